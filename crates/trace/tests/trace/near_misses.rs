//! Files that look like a format and mean something else: each is read with its true figures or refused, and the `--format` of the
//! refusal reads it with these.

use std::collections::HashSet;

use flashwise_core::access::Op;
use flashwise_trace::normalised::Settings;
use flashwise_trace::request::Request;

use crate::fixtures::{requests, trace};

const LINES: u64 = 1000;

/// A request in what a file shall be written in.
struct Row {
    time: String,
    offset: u64,
    length: u64,
    volume: u64,
    is_read: bool,
    at: u64,
}

/// How times are written: a name, seconds between two requests, and the text of a number of seconds since the start.
type Clock = (&'static str, f64, fn(f64) -> String);

/// Seconds from 1970 to the first request of a trace with dates.
const START_S: f64 = 1_577_808_000.0;

fn dated(per_s: u64, seconds: f64) -> String {
    let (whole, part) = (START_S as u64 + seconds as u64, seconds.fract());
    (whole * per_s + (part * per_s as f64).round() as u64).to_string()
}

const CLOCKS: [Clock; 9] = [
    ("seconds since 1970", 1.0, |s| dated(1, s)),
    ("ms since 1970", 0.01, |s| dated(1000, s)),
    ("slow ms since 1970", 1.0, |s| dated(1000, s)),
    ("us since 1970", 0.01, |s| dated(1_000_000, s)),
    ("ns since 1970", 0.01, |s| dated(1_000_000_000, s)),
    ("filetime", 0.01, |s| (116_444_736_000_000_000 + dated(10_000_000, s).parse::<u64>().unwrap()).to_string()),
    (".NET ticks", 0.01, |s| (621_355_968_000_000_000 + dated(10_000_000, s).parse::<u64>().unwrap()).to_string()),
    ("decimal seconds since 1970", 0.01, |s| format!("{}.{:06}", dated(1, s.floor()), (s.fract() * 1e6).round())),
    ("fast seconds since 1970", 0.001, |s| dated(1, s)),
];

/// Times since the start; the step of whole seconds is one.
const RELATIVE: [Clock; 6] = [
    ("seconds", 1.0, |s| (s as u64).to_string()),
    ("ms", 0.01, |s| ((s * 1e3).round() as u64).to_string()),
    ("us", 0.01, |s| ((s * 1e6).round() as u64).to_string()),
    ("ns", 0.01, |s| ((s * 1e6).round() as u64 * 1000).to_string()),
    ("decimal seconds", 0.01, |s| format!("{s:.6}")),
    ("decimal ms", 0.01, |s| format!("{:.3}", s * 1e3)),
];

/// How offsets and lengths are written: bytes in a unit of each.
const UNITS: &[(u64, u64)] = &[
    (1, 1),
    (512, 512),
    (4096, 4096),
    (1024, 1024),
    (512, 1),
    (1, 512),
    (4096, 1),
    (1, 4096),
    (512, 4096),
    (4096, 512),
];

/// The requests of a trace with these seconds from one to the next.
type Pattern = fn(f64) -> Vec<Request>;

/// Requests in bytes and seconds since the start: they go round, jump about, or are those of a real trace.
const PATTERNS: &[(&str, Pattern)] = &[
    ("loop", |step_s| (0..LINES).map(|at| block(at, at % 500, step_s)).collect()),
    ("noise", |step_s| (0..LINES).map(|at| block(at, at * 7919 % 4093 * 3 % 500, step_s)).collect()),
    ("real", |step_s| {
        let requests = requests(LINES as usize);
        // As fast as the others, in its own rhythm.
        let start_us = requests[0].time_us;
        let scale = step_s * LINES as f64 / (requests[LINES as usize - 1].time_us - start_us) as f64;
        let time_us = |time_us: i64| ((time_us - start_us) as f64 * scale * 1e6) as i64;
        requests.into_iter().map(|request| Request { time_us: time_us(request.time_us), ..request }).collect()
    }),
];

/// A request of the block with this number of 4 KiB.
fn block(at: u64, block: u64, step_s: f64) -> Request {
    let op = if at.is_multiple_of(3) { Op::Write } else { Op::Read };
    Request {
        time_us: (at as f64 * step_s * 1e6).round() as i64,
        op,
        volume: 0,
        offset_bytes: block * 4096,
        length_bytes: 4096,
    }
}

/// A line of a format, in the units that the row has.
type Line = fn(&Row) -> String;

fn letter(row: &Row) -> char {
    if row.is_read { 'R' } else { 'W' }
}

/// A format, its lines, and its own units: microseconds in one of time, bytes in one of offset and of length.
struct Written {
    name: &'static str,
    line: Line,
    clock: Clock,
    units: (u64, u64),
    /// Its columns of time, offset, length and volume.
    columns: [usize; 4],
    /// A column that it does not read.
    other: Option<usize>,
}

const FORMATS: &[Written] = &[
    Written {
        name: "msr",
        line: |r| {
            let op = if r.is_read { "Read" } else { "Write" };
            format!("{},h,{},{op},{},{},{}", r.time, r.volume, r.offset, r.length, 5 + r.at % 90)
        },
        clock: CLOCKS[5],
        units: (1, 1),
        columns: [0, 4, 5, 2],
        other: Some(6),
    },
    Written {
        name: "spc",
        line: |r| format!("{},{},{},{},{}", r.volume, r.offset, r.length, letter(r), r.time),
        clock: RELATIVE[4],
        units: (512, 1),
        columns: [4, 1, 2, 0],
        other: None,
    },
    Written {
        name: "alibaba",
        line: |r| format!("{},{},{},{},{}", r.volume, letter(r), r.offset, r.length, r.time),
        clock: CLOCKS[3],
        units: (1, 1),
        columns: [4, 2, 3, 0],
        other: None,
    },
    Written {
        name: "tencent",
        line: |r| format!("{},{},{},{},{}", r.time, r.offset, r.length, u8::from(!r.is_read), r.volume),
        clock: CLOCKS[0],
        units: (512, 512),
        columns: [0, 1, 2, 4],
        other: None,
    },
    Written {
        name: "systor",
        line: |r| format!("{},0.00{},{},{},{},{}", r.time, 1 + r.at % 7, letter(r), r.volume, r.offset, r.length),
        clock: CLOCKS[7],
        units: (1, 1),
        columns: [0, 4, 5, 3],
        other: Some(1),
    },
    Written {
        name: "fiu",
        line: |r| format!("{} 4892 syslogd {} {} {} 6 {} 531e", r.time, r.offset, r.length, letter(r), r.volume),
        clock: RELATIVE[3],
        units: (512, 512),
        columns: [0, 3, 4, 7],
        other: Some(1),
    },
    Written {
        name: "disksim",
        line: |r| format!("{} {} {} {} {}", r.time, r.volume, r.offset, r.length, u8::from(r.is_read)),
        clock: RELATIVE[5],
        units: (512, 512),
        columns: [0, 2, 3, 1],
        other: None,
    },
    Written {
        name: "csv",
        line: |r| format!("{},{},{},{},{}", r.time, letter(r), r.offset, r.length, r.volume),
        clock: CLOCKS[0],
        units: (1, 1),
        columns: [0, 2, 3, 4],
        other: None,
    },
];

/// The figures of a trace: requests, blocks, and microseconds.
type Figures = (u64, u64, u64);

/// A file, and its true figures.
struct Case {
    name: String,
    text: String,
    figures: Figures,
    /// Microseconds by which the duration may be another, where times were cut.
    within_us: u64,
}

impl Case {
    fn new(format: &Written, clock: Clock, units: (u64, u64), pattern: usize, volumes: u64) -> Case {
        let (clock_name, step_s, time) = clock;
        let (pattern_name, requests) = PATTERNS[pattern];
        let requests = requests(step_s);
        let mut blocks = HashSet::new();
        let mut text = if format.name == "csv" { "time,op,offset,length,device\n".to_owned() } else { String::new() };
        for (at, request) in (0..).zip(&requests) {
            let row = Row {
                time: time(request.time_us as f64 / 1e6),
                offset: request.offset_bytes / units.0,
                length: request.length_bytes / units.1,
                volume: at % volumes,
                is_read: request.op == Op::Read,
                at,
            };
            let first = request.offset_bytes / 4096;
            blocks.extend((first..first + request.length_bytes / 4096).map(|block| (row.volume, block)));
            text += &(format.line)(&row);
            text.push('\n');
        }
        let duration_us = requests.last().unwrap().time_us - requests[0].time_us;
        let figures = (LINES, blocks.len() as u64, duration_us as u64);
        let unit_us = if clock_name.contains("ms") { 1_000 } else { 10 };
        let within_us =
            if clock_name.contains("seconds") && !clock_name.contains("decimal") { 1_000_000 } else { unit_us };
        let name = format!("{}, {clock_name}, units of {units:?}, {pattern_name}, {volumes} volumes", format.name);
        Case { name, text, figures, within_us }
    }

    /// The same with the contents of two columns in each other's place.
    fn swapped(&self, one: usize, other: usize, separator: char) -> Case {
        let line = |line: &str| {
            let mut fields: Vec<&str> = line.split(separator).collect();
            fields.swap(one, other);
            fields.join(&separator.to_string()) + "\n"
        };
        let name = format!("{}, columns {one} and {other} swapped", self.name);
        Case { name, text: self.text.lines().map(line).collect(), figures: self.figures, ..*self }
    }

    fn is_right(&self, found: Figures) -> bool {
        (found.0, found.1) == (self.figures.0, self.figures.1) && found.2.abs_diff(self.figures.2) <= self.within_us
    }

    /// What is wrong with what becomes of the file, read in `format`; nothing if all is well.
    fn misread(&self, format: Option<&str>) -> Option<String> {
        let wrong = match read(&self.text, format) {
            Ok(found) if self.is_right(found) => return None,
            Ok(found) => format!("read as {found:?}"),
            Err(error) => match suggested(&error) {
                None => error,
                Some(line) => match read(&self.text, Some(&format!("csv:{line}"))) {
                    Ok(found) if self.is_right(found) => return None,
                    other => format!("{error}\n    which gives {other:?}"),
                },
            },
        };
        let line = self.text.lines().nth(1).unwrap();
        Some(format!("{}: {wrong} instead of {:?}\n    {line}", self.name, self.figures))
    }
}

fn read(text: &str, format: Option<&str>) -> Result<Figures, String> {
    let format = format.map(|format| format.parse().map_err(|error| format!("{format}: {error}"))).transpose()?;
    let settings = Settings { format, ..Settings::default() };
    let trace = trace(text.as_bytes().to_vec(), &settings)?;
    Ok((trace.description().requests, trace.unique_blocks() as u64, trace.times().duration_us()))
}

/// The `--format` that an error suggests.
fn suggested(error: &str) -> Option<&str> {
    error.split("--format csv:").nth(1).map(|rest| rest.split(' ').next().unwrap_or_default())
}

fn assert_none(wrong: Vec<String>, of: usize) {
    assert!(wrong.is_empty(), "{} of {of}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn no_unit_of_any_column_is_misread() {
    let mut cases = Vec::new();
    for format in FORMATS {
        for pattern in 0..PATTERNS.len() {
            let volumes = 1 + 2 * (pattern as u64 % 2);
            // Each unit of time beside one of bytes, and each of bytes beside the own of time.
            for (at, clock) in CLOCKS.iter().enumerate() {
                cases.push(Case::new(format, *clock, UNITS[at], pattern, volumes));
            }
            for units in UNITS {
                cases.push(Case::new(format, format.clock, *units, pattern, volumes));
            }
        }
    }
    assert!(cases.len() > 400);
    assert_none(cases.iter().filter_map(|case| case.misread(None)).collect(), cases.len());
}

#[test]
fn no_time_since_the_start_is_misread() {
    // Without dates, a unit shows where the rate is one that no disk has.
    let cases: Vec<Case> =
        [("fiu", &RELATIVE[..3]), ("fiu", &RELATIVE[4..5]), ("spc", &RELATIVE[1..4]), ("disksim", &RELATIVE[..4])]
            .iter()
            .flat_map(|(name, clocks)| {
                let format = FORMATS.iter().find(|format| format.name == *name).unwrap();
                clocks.iter().flat_map(move |clock| {
                    (0..PATTERNS.len()).map(move |pattern| Case::new(format, *clock, format.units, pattern, 3))
                })
            })
            .collect();
    assert_none(cases.iter().filter_map(|case| case.misread(None)).collect(), cases.len());
}

#[test]
fn no_column_in_the_place_of_another_is_misread() {
    let mut cases = Vec::new();
    for format in FORMATS.iter().filter(|format| format.name != "csv") {
        let separator = if matches!(format.name, "fiu" | "disksim") { ' ' } else { ',' };
        for pattern in 0..PATTERNS.len() {
            let case = Case::new(format, format.clock, format.units, pattern, 3);
            cases.extend(format.other.map(|other| case.swapped(format.columns[0], other, separator)));
            for (at, one) in format.columns.iter().enumerate() {
                for other in &format.columns[at + 1..] {
                    cases.push(case.swapped(*one, *other, separator));
                }
            }
        }
    }
    assert_none(cases.iter().filter_map(|case| case.misread(None)).collect(), cases.len());
}

/// A format that the user names is checked too; units that the user names are not.
#[test]
fn a_named_format_is_checked_and_named_units_are_not() {
    let mut wrong = Vec::new();
    for format in FORMATS.iter().filter(|format| format.name != "csv") {
        let case = Case::new(format, format.clock, format.units, 2, 3);
        wrong.extend(case.misread(Some(format.name)));
        let other = Case::new(format, format.clock, (4096, 512), 1, 3);
        wrong.extend(other.misread(Some(format.name)));
        let error = read(&other.text, Some(format.name)).unwrap_err();
        let line = suggested(&error).unwrap();
        let at = line.find("offset-unit=").unwrap();
        let insisting = format!("csv:{}offset-unit=1,length-unit=1", &line[..at]);
        let (requests, blocks, _) = read(&other.text, Some(&insisting)).unwrap();
        assert_eq!(requests, LINES, "{insisting}");
        assert!(blocks < 10, "{blocks} blocks of {insisting}");
    }
    assert_none(wrong, 14);
}

/// A case of lines of whatever shape, with loops of 500 blocks and one second from line to line.
fn lines(name: &str, figures: Figures, line: fn(u64) -> String) -> Case {
    let text = (0..LINES).map(|at| line(at) + "\n").collect();
    Case { name: name.to_owned(), text, figures, within_us: 0 }
}

#[test]
fn lines_of_numbers_are_not_taken_for_each_other() {
    const BLOCKS: Figures = (LINES, 500, 0);
    const TIMED: Figures = (LINES, 500, 999_000_000);
    let own = (0..LINES).map(|at| format!("{} 8 0 {at}\n", at % 500 * 8)).collect::<String>();
    assert_eq!(read(&own, None), Ok(BLOCKS));
    let cases = [
        lines("time op offset bytes", TIMED, |at| format!("{at} {} {} 4096", at % 2, at % 500 * 4096)),
        lines("time,op,offset,bytes", TIMED, |at| format!("{at},{},{},4096", at % 2, at % 500 * 4096)),
        lines("time offset bytes op", TIMED, |at| format!("{at} {} 4096 {}", at % 500 * 4096, at % 2)),
        lines("time op sector sectors", TIMED, |at| format!("{at} {} {} 8", at % 2, at % 500 * 8)),
        lines("time R page pages", TIMED, |at| format!("{at}\tR\t{}\t1", at % 500)),
        lines("offset;bytes;op", BLOCKS, |at| format!("{} 4096 W", at % 500 * 4096)),
        lines("time volume op offset bytes", TIMED, |at| {
            format!("{at} 7 {} {} 4096", "RW".as_bytes()[at as usize % 2] as char, at % 500 * 4096)
        }),
        lines("index;ms;op;bytes;offset", TIMED, |at| {
            format!(
                "x;{};{};8192;{}",
                1_577_808_000_000 + at * 1000,
                "RW".as_bytes()[at as usize % 2] as char,
                at % 250 * 8192
            )
        }),
        lines("lis in bytes", BLOCKS, |at| format!("{} 4096 0 {at}", at % 500 * 4096)),
        lines("lis, lengths in bytes", BLOCKS, |at| format!("{} 4096 0 {at}", at % 500 * 8)),
        lines("lis, offsets in bytes", BLOCKS, |at| format!("{} 8 0 {at}", at % 500 * 4096)),
        lines("lis, swapped", BLOCKS, |at| format!("8 {} 0 {at}", at % 500 * 8)),
        lines("blkparse in bytes", TIMED, |at| format!("8,16 1 {at} {at}.0 7 Q R {} + 4096 [a]", at % 500 * 8)),
        lines("blkparse, offsets in bytes", TIMED, |at| {
            format!("8,16 1 {at} {at}.0 7 Q WS {} + 8 [a]", at % 500 * 4096)
        }),
        lines("blkparse in us", (LINES, 500, 9_990_000), |at| {
            format!("8,16 1 {at} {at}0000 7 Q R {} + 8 [a]", at % 500 * 8)
        }),
        lines("meta in ms", TIMED, |at| {
            format!("{},a1,2,4096,{},7,8,getChunkData.x,1,9,3", 1_577_808_000_000 + at * 1000, at % 500 * 4096)
        }),
        lines("meta, swapped", TIMED, |at| {
            format!("{},a1,2,{},4096,7,8,putChunk.x,1,9,3", 1_577_808_000 + at, at % 500 * 4096)
        }),
        lines("alibaba in seconds since the start", TIMED, |at| format!("0,R,{},4096,{at}", at % 500 * 4096)),
        lines("systor in seconds since the start in ms", TIMED, |at| {
            format!("{}000.5,0.1,R,0,{},4096", 1_577_808_000 + at, at % 500 * 4096)
        }),
    ];
    let count = cases.len();
    assert_none(cases.iter().filter_map(|case| case.misread(None)).collect(), count);
}

#[test]
fn lines_that_csv_cannot_tell_from_requests_are_to_be_taken_out() {
    let actions = |at: u64| {
        let line = |action: &str| format!("8,16 1 {at} {at}.0 7 {action} R {} + 4096 [a]", at % 500 * 8);
        ["Q", "D", "C"].map(line).join("\n")
    };
    let error = lines("actions", (0, 0, 0), actions).misread(None).unwrap();
    assert!(error.contains("expected lines of one action alone, and other columns or units"), "{error}");
    let named = |at: u64| format!("{at} 7 my program {} 8 R 6 0 531e", at % 500 * 8);
    let error = lines("a name of two words", (0, 0, 0), named).misread(None).unwrap();
    assert!(error.contains("expected names of processes without blanks, and other columns or units"), "{error}");
}

#[test]
fn headers_and_numbers_of_columns_are_checked_alike() {
    let mut wrong = Vec::new();
    let headers = [
        "Time (s),op,block,length,device",
        "time,op,slba,nlb,device",
        "ts_s,op,io.lba,io.size,device",
        "time [s],op,blkno,nblocks,device",
        "timestamp,op,offset_bytes,len_bytes,device",
        "timestamp,op,lba,sectors,device",
    ];
    let csv = FORMATS.last().unwrap();
    for units in UNITS {
        for (pattern, (pattern_name, _)) in PATTERNS.iter().enumerate() {
            let case = Case::new(csv, CLOCKS[0], *units, pattern, 3);
            let body = case.text.split_once('\n').unwrap().1.to_owned();
            for header in headers {
                let text = format!("{header}\n{body}");
                let name = format!("{header}, units of {units:?}, {pattern_name}");
                wrong.extend(Case { name, text, ..case }.misread(None));
            }
            let numbered = Case { name: case.name.clone(), text: body, ..case };
            wrong.extend(numbered.misread(Some("csv:time=0,op=1,offset=2,length=3,volume=4")));
        }
    }
    assert_none(wrong, UNITS.len() * PATTERNS.len() * 7);
}

#[test]
fn objects_are_blocks_by_their_ids() {
    let of = |name: &str, id: fn(u64) -> String| {
        let text = (0..LINES).map(|at| format!("{at},{},R\n", id(at * 7 % 500))).collect();
        Case { name: name.to_owned(), text, figures: (LINES, 500, 999_000_000), within_us: 0 }
    };
    let cases = [
        of("numbers", |id| id.to_string()),
        of("large numbers", |id| (u64::MAX - id * 1_000_003).to_string()),
        of("UUIDs", |id| format!("{:08x}-0000-4000-8000-{:012x}", id * 7919, id)),
        of("words", |id| format!("/home/{id}/file")),
    ];
    for case in &cases {
        let hashed = read(&case.text, Some("csv:time=0,hash=1,op=2,time-unit=s"));
        assert!(case.is_right(hashed.clone().unwrap()), "{}: {hashed:?}", case.name);
        let with_length = case.text.replace(",R", ",R,8192");
        let (_, blocks, _) = read(&with_length, Some("csv:time=0,hash=1,op=2,length=3,time-unit=s")).unwrap();
        assert_eq!(blocks, 1000, "{}", case.name);
        assert_eq!(
            case.misread(Some("csv:time=0,offset=1,op=2,time-unit=s")).filter(|_| case.name.contains("numbers")),
            None
        );
        let error = read(&case.text, Some("csv:time=0,offset=1,op=2,time-unit=s")).unwrap_err();
        assert!(error.contains("hash=1"), "{error}");
    }
    // Tables that no format fits: what is suggested reads them.
    let ids = |word: fn(u64) -> &'static str, header: &str| {
        let lines = (0..LINES).map(|at| format!("{at},{},{:08x}-0000-4000\n", word(at), at * 7 % 500));
        format!("{header}{}", lines.collect::<String>())
    };
    let tables = [
        (ids(|_| "R", "time,op,key\n"), "csv:time=0,op=1,hash=2"),
        (ids(|at| if at % 2 == 0 { "GET" } else { "SET" }, ""), "csv:time=0,op=1,read=GET,write=SET,hash=2"),
        ((0..LINES).map(|at| format!("{at} {}\n", at * 7 % 500 * 7919)).collect(), "csv:delimiter=space,time=0,hash=1"),
    ];
    for (text, suggested) in &tables {
        let error = read(text, None).unwrap_err();
        assert!(error.ends_with(&format!("--format {suggested}")), "{error}");
        assert_eq!(
            read(text, Some(&format!("{suggested},time-unit=s"))).unwrap(),
            (LINES, 500, 999_000_000),
            "{suggested}"
        );
    }
    let both = read("1,2,R\n", Some("csv:hash=0,offset=1")).unwrap_err();
    assert_eq!(both, "csv: option 'hash' is '0', expected either hash or offset");
}
