//! Files that look like a format but have other units or columns. Each is read with its true figures or rejected, and
//! the `--format` of the error reads it with these.

use std::collections::{BTreeMap, HashSet};
use std::io::Cursor;
use std::sync::Mutex;

use flashwise_core::access::Op;
use flashwise_trace::Trace;
use flashwise_trace::input::Input;
use flashwise_trace::normalised::{Settings, normalise};
use flashwise_trace::progress::Progress;
use flashwise_trace::request::Request;

use self::written::{CLOCKS, Clock, FORMATS, LINES, PATTERNS, RELATIVE, Row, UNITS, Written};
use crate::fixtures::chain;

mod written;

/// The figures of a trace: requests, blocks, and microseconds.
type Figures = (u64, u64, u64);

/// A file, and its true figures.
struct Case {
    name: String,
    text: String,
    figures: Figures,
    /// The tolerance of the duration in microseconds, if times were truncated.
    within_us: u64,
}

/// Returns the number of blocks of a pattern with this number of volumes.
fn blocks(pattern: usize, volumes: u64) -> u64 {
    static KNOWN: Mutex<BTreeMap<(usize, u64), u64>> = Mutex::new(BTreeMap::new());
    *KNOWN.lock().unwrap().entry((pattern, volumes)).or_insert_with(|| {
        let of = |(at, request): (u64, Request)| {
            let end = (request.offset_bytes + request.length_bytes).div_ceil(4096);
            (request.offset_bytes / 4096..end).map(move |block| (at % volumes, block))
        };
        (0..).zip(PATTERNS[pattern].1(1.0)).flat_map(of).collect::<HashSet<_>>().len() as u64
    })
}

impl Case {
    /// Returns the file, if its requests are whole in these units.
    fn new(format: &Written, clock: Clock, units: (u64, u64), pattern: usize, volumes: u64) -> Option<Case> {
        let (clock_name, step_s, time) = clock;
        let (pattern_name, requests) = PATTERNS[pattern];
        let requests = requests(step_s);
        let mut text = format.head.to_owned();
        for (at, request) in (0..).zip(&requests) {
            if !request.offset_bytes.is_multiple_of(units.0) || !request.length_bytes.is_multiple_of(units.1) {
                return None;
            }
            let row = Row {
                time: time(request.time_us as f64 / 1e6),
                offset: request.offset_bytes / units.0,
                length: request.length_bytes / units.1,
                volume: at % volumes,
                is_read: request.op == Op::Read,
                at,
            };
            text += &(format.line)(&row);
            text.push('\n');
        }
        let duration_us = requests.last().unwrap().time_us - requests[0].time_us;
        let figures = (LINES, blocks(pattern, volumes), duration_us as u64);
        let unit_us = if clock_name.contains("ms") { 1_000 } else { 10 };
        let within_us =
            if clock_name.contains("seconds") && !clock_name.contains("decimal") { 1_000_000 } else { unit_us };
        let name = format!("{}, {clock_name}, units of {units:?}, {pattern_name}, {volumes} volumes", format.name);
        Some(Case { name, text, figures, within_us })
    }

    /// Returns the case with two columns swapped.
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

    /// Returns the error of reading the file in `format`; none on success. A unit of time without evidence must be
    /// noted.
    fn misread(&self, format: Option<&str>) -> Option<String> {
        let wrong = match read_with_notes(&self.text, format) {
            Ok((found, _)) if self.is_right(found) => return None,
            Ok(((requests, blocks, _), notes))
                if (requests, blocks) == (self.figures.0, self.figures.1)
                    && notes
                        .iter()
                        .any(|note| note.contains("its times are not dates") || note.contains("time-unit=us")) =>
            {
                return None;
            }
            // A kernel may write such long requests.
            Ok((_, notes)) if notes.iter().any(|note| note.contains("most of its requests have 2 MiB")) => {
                return None;
            }
            Ok((found, _)) => format!("read as {found:?}"),
            Err(error) => match suggested(&error) {
                None => error,
                Some(format) => match read(&self.text, Some(format)) {
                    Ok(found) if self.is_right(found) => return None,
                    // Several units of time are possible.
                    Ok((requests, blocks, _))
                        if (requests, blocks) == (self.figures.0, self.figures.1) && error.contains("is a guess") =>
                    {
                        return None;
                    }
                    other => format!("{error}\n    which gives {other:?}"),
                },
            },
        };
        let line = self.text.lines().nth(3).unwrap();
        Some(format!("{}: {wrong} instead of {:?}\n    {line}", self.name, self.figures))
    }
}

/// Collects notes.
#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

impl Progress for Notes {
    fn advance(&self, _: u64) {}

    fn note(&self, _: &str, what: &str) {
        self.0.lock().unwrap().push(what.to_owned());
    }
}

fn read_with_notes(text: &str, format: Option<&str>) -> Result<(Figures, Vec<String>), String> {
    let format = format.map(|format| format.parse().map_err(|error| format!("{format}: {error}"))).transpose()?;
    let (settings, notes) = (Settings { format, ..Settings::default() }, Notes::default());
    let input = Input::new("trace", Box::new(Cursor::new(text.as_bytes().to_vec())), &notes);
    let file = input.and_then(|input| normalise(input, &settings, tempfile::tempfile().unwrap()));
    let trace = file.and_then(|file| Trace::map("trace", &file)).map_err(|error| chain(&error))?;
    let figures = (trace.description().requests, trace.unique_blocks() as u64, trace.times().duration_us());
    drop(trace);
    Ok((figures, notes.0.into_inner().unwrap()))
}

fn read(text: &str, format: Option<&str>) -> Result<Figures, String> {
    read_with_notes(text, format).map(|(figures, _)| figures)
}

/// Returns the `--format` that an error suggests.
fn suggested(error: &str) -> Option<&str> {
    let (_, rest) = error.rsplit_once("--format ")?;
    rest.split(' ').next()
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
            // Each other unit of time with one of bytes, and each of bytes with the format's own unit of time.
            let is_other = |(_, clock): &(usize, &Clock)| pattern < 3 && clock.0 != format.clock.0;
            for (at, clock) in CLOCKS.iter().enumerate().filter(is_other) {
                cases.extend(Case::new(format, *clock, UNITS[at], pattern, volumes));
            }
            // Unordered pages look like FlashSim's sectors.
            let is_told = |units: &&(u64, u64)| !(format.name == "disksim" && pattern == 3 && **units == (4096, 4096));
            for units in UNITS.iter().filter(is_told) {
                cases.extend(Case::new(format, format.clock, *units, pattern, volumes));
            }
        }
    }
    assert!(cases.len() > 800, "{}", cases.len());
    assert_none(cases.iter().filter_map(|case| case.misread(None)).collect(), cases.len());
}

#[test]
fn no_time_since_the_start_is_misread() {
    // Without dates, a unit is detected if the rate is one that no disk reaches; otherwise a note names it.
    let each = FORMATS.iter().flat_map(|format| {
        let is_other = |(at, clock): &(usize, &Clock)| {
            // A trace of whole seconds or milliseconds has no decimals, so formats that have them do not match.
            *at != 5 && clock.0 != format.clock.0 && !matches!(format.name, "flashwise" | "csv")
        };
        RELATIVE.iter().enumerate().filter(is_other).map(move |(_, clock)| (format, *clock))
    });
    let cases: Vec<Case> = each
        .flat_map(|(format, clock)| {
            (0..3).filter_map(move |pattern| Case::new(format, clock, format.units, pattern, 3))
        })
        .collect();
    assert!(cases.len() > 150, "{}", cases.len());
    assert_none(cases.iter().filter_map(|case| case.misread(None)).collect(), cases.len());
}

#[test]
fn no_column_in_the_place_of_another_is_misread() {
    let mut cases = Vec::new();
    for format in FORMATS.iter().filter(|format| format.name != "csv" && format.columns != [0; 4]) {
        let separator = if matches!(format.name, "fiu" | "disksim") { ' ' } else { ',' };
        for pattern in 0..PATTERNS.len() {
            let Some(case) = Case::new(format, format.clock, format.units, pattern, 3) else { continue };
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

#[test]
fn no_time_of_prompts_is_misread() {
    let cases = [("", 0), (r#""chat_id":1,"#, 1)].into_iter().flat_map(|(chat, own)| {
        CLOCKS.iter().chain(&RELATIVE).map(move |(clock, step_s, time)| {
            let line = |at: u64| {
                let time = time(at as f64 * step_s);
                format!("{{{chat}\"timestamp\":{time},\"input_length\":512,\"hash_ids\":[{}]}}\n", at % 500)
            };
            let figures = (LINES, 500, ((LINES - 1) as f64 * step_s * 1e6).round() as u64);
            let within_us = if *step_s < 0.01 { 1_000_000 } else { 1000 };
            Case { name: format!("prompts, {clock}, {own}"), text: (0..LINES).map(line).collect(), figures, within_us }
        })
    });
    let cases: Vec<Case> = cases.collect();
    assert_none(cases.iter().filter_map(|case| case.misread(None)).collect(), cases.len());
}

/// A format that the user names is checked too; units that the user gives are not.
#[test]
fn a_named_format_is_checked_and_named_units_are_not() {
    let mut wrong = Vec::new();
    let named = || FORMATS.iter().filter(|format| !matches!(format.name, "csv" | "disksim"));
    for format in named() {
        let case = Case::new(format, format.clock, format.units, 2, 3).unwrap();
        wrong.extend(case.misread(Some(format.name)));
        let other = Case::new(format, format.clock, (4096, 512), 1, 3).unwrap();
        wrong.extend(other.misread(Some(format.name)));
        let error = read(&other.text, Some(format.name)).unwrap_err();
        let line = suggested(&error).unwrap();
        let at = line.find("offset-unit=").unwrap();
        let insisting = format!("{}offset-unit=1,length-unit=1", &line[..at]);
        let (requests, blocks, _) = read(&other.text, Some(&insisting)).unwrap();
        assert_eq!(requests, LINES, "{insisting}");
        assert!(blocks < 10, "{blocks} blocks of {insisting}");
    }
    assert_none(wrong, 2 * named().count());
}

/// Returns a case of arbitrary lines, with loops of 500 blocks and one second from line to line.
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
        lines("lba and bytes swapped below a header", TIMED, |at| {
            let header = if at == 0 { "ts_us,op,lba,bytes\n" } else { "" };
            format!("{header}{},R,4096,{}", 1_577_808_000_000_000 + at * 1_000_000, at % 500 * 8)
        }),
        lines("size and response time of MSR swapped", TIMED, |at| {
            format!(
                "{},h,0,Read,{},{},4096",
                132_222_816_000_000_000 + at * 10_000_000,
                at % 500 * 4096,
                1000 + at * 37 % 900
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

/// Files of two parts in different units, and times without evidence.
#[test]
fn uncertain_units_are_noted() {
    let part = |name: &str, units: (u64, u64), pattern: usize| {
        let format = FORMATS.iter().find(|format| format.name == name).unwrap();
        Case::new(format, format.clock, units, pattern, 3).unwrap().text
    };
    let notes = |text: &str| read_with_notes(text, None).map_or_else(|error| vec![error], |(_, notes)| notes);
    for name in ["msr", "alibaba", "csv", "fio"] {
        let text = part(name, (1, 1), 1).repeat(4) + &part(name, (512, 512), 1);
        let changed = |note: &String| note.ends_with("the units may change in the middle of the trace");
        assert!(notes(&text).iter().any(changed), "{name}: {:?}", notes(&text));
        assert!(!notes(&part(name, (1, 1), 1).repeat(8)).iter().any(changed), "{name}");
    }
    let same: String = (0..LINES).map(|at| format!("0,R,{},4096,1577808000000000\n", at % 500 * 4096)).collect();
    assert_eq!(notes(&same), ["all times of the first 1000 requests are 1577808000000000"]);
    let again: String = (0..LINES).map(|at| format!("{at}.5 /dev/sda sync 0 0\n")).collect();
    let text = part("fio", (1, 1), 1) + "fio version 3 iolog\n" + &again;
    let skipped = "1,001 lines were skipped: 1 repeated header, 1,000 operations without data";
    assert!(notes(&text).iter().any(|note| note == skipped), "{:?}", notes(&text));
}

/// Lines that `csv` cannot distinguish from requests, and names of several words, are read in other units by the format
/// itself.
#[test]
fn events_without_requests_are_not_suggested() {
    const TIMED: Figures = (LINES, 500, 999_000_000);
    let actions = |at: u64| {
        let line = |action: &str| format!("8,16 1 {at} {at}.000001 7 {action} R {} + 4096 [a]", at % 500 * 8);
        ["Q", "D", "C"].map(line).join("\n")
    };
    let named = |at: u64| format!("{at} 7 my program {} 8 R 6 0 531e", at % 500 * 8);
    let cases = [lines("actions", TIMED, actions), lines("a name of two words", TIMED, named)];
    assert_none(cases.iter().filter_map(|case| case.misread(None)).collect(), cases.len());
    // Swapped offsets and lengths.
    let swapped = |at: u64| format!("8,16 1 {at} {at}.000001 7 Q R 8 + {} [a]", at * 7919 % 4093 * 8);
    let error = read(&lines("swapped", TIMED, swapped).text, None).unwrap_err();
    assert_eq!(
        error,
        "trace: found swapped times, offsets or lengths, expected the columns in the order of the format, which no \
         --format changes"
    );
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
            let Some(case) = Case::new(csv, CLOCKS[0], *units, pattern, 3) else { continue };
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
    // Tables in no known format: the suggestion reads them.
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
    assert_eq!(both, "csv: hash: found '0', expected either hash or offset");
}
