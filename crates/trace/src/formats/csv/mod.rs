//! Any other text of one request a line, in columns that the user or a header names.
//!
//! Source: none; for the published and private traces that have no format of their own. Fields may be quoted as in RFC 4180 (read by
//! the `csv` crate, which lines without a quote do not need), but not contain line ends. Lines that begin with `#` are comments; the
//! first of them may be the header.
//!
//! A header that names offset, length, op and time in words that are known here (`offset`, `lba_sectors`, `len_bytes`, `ts_ms`, ...) needs no
//! mapping at all, and its units are taken from the words. Units that nobody names are taken from the values where these are certain
//! (`evidence.rs`), or else assumed; the program says which ones, and refuses units that contradict the values.

use flashwise_core::access::Op;
use flashwise_core::options::{Kind, OptionError, Options, Parameter};

use self::evidence::{Evidence, Origin, Origins, epoch_of, has_dates};
use self::header::{ROLES, Role, TIME_UNITS, byte_unit_of, column_expected, find, names, plain, plays, time_unit_of};
use self::quoted::Quoted;
use super::fields::{Columns, Fields, TimeUnit, Words, time_us};
use super::{Format, Lines, Malformed, ParseLine, REQUEST_BYTES_MAX, Reading, Record, Sample};
use crate::request::{ONLY_VOLUME, Request, Volumes};

mod evidence;
mod header;
mod quoted;
mod recognise;

pub(super) use recognise::first_refused;

/// The row of generic CSV in the table of formats.
pub static FORMAT: Format = Format {
    name: "csv",
    title: "Any columns",
    source: "the columns that the options name, by number from 0 or, with a header, by name",
    parameters: &[
        column("time", "column of the time; without it all times are 0"),
        column("op", "column that says read or write; without it all requests read"),
        column("offset", "column of the first byte, sector or block; needed"),
        column("length", "column of the length; without it each request is one offset-unit long"),
        column("volume", "column of the volume; without it there is one volume"),
        Parameter {
            name: "time-unit",
            kind: Kind::Choice(&["s", "ms", "us", "ns", "filetime", "date"]),
            default: "",
            meaning: "unit of time, decimals allowed (filetime: 100 ns; date: 2024-01-31T23:59:59.5Z); default: dates where they stand, else as in the \
                      column's name (ts_ms), else as dates since 1990 show, else us",
        },
        unit(
            "offset-unit",
            "bytes in a unit of offset; default: as in the column's name (lba, offset_sectors: 512), else 1",
        ),
        unit("length-unit", "bytes in a unit of length; default: as in the column's name (sectors: 512), else 1"),
        Parameter {
            name: "delimiter",
            kind: Kind::Choice(&["auto", "comma", "semicolon", "tab", "pipe", "space"]),
            default: "auto",
            meaning: "what parts fields (space: any run of spaces and tabs); auto: the first of these that the first line holds",
        },
        Parameter {
            name: "decimal",
            kind: Kind::Choice(&["point", "comma"]),
            default: "point",
            meaning: "what stands before the decimals of times",
        },
        Parameter {
            name: "header",
            kind: Kind::Choice(&["auto", "yes", "no"]),
            default: "auto",
            meaning: "whether the first line names the columns; auto: yes if it holds no number or begins with #",
        },
        words(
            "read",
            "what op says in a read, several with / between them (0/4); default: r or read if write is not given",
        ),
        words(
            "write",
            "what op says in a write; without it whatever is not a read is a write, with both all else is skipped",
        ),
    ],
    recognise: recognise::recognise,
    parser: |options, sample, _| Ok(Box::new(Lines(Csv::new(options, sample)?))),
};

const fn column(name: &'static str, meaning: &'static str) -> Parameter {
    Parameter { name, kind: Kind::Text, default: "", meaning }
}

const fn words(name: &'static str, meaning: &'static str) -> Parameter {
    Parameter { name, kind: Kind::Text, default: "", meaning }
}

const fn unit(name: &'static str, meaning: &'static str) -> Parameter {
    Parameter { name, kind: Kind::Count(1, REQUEST_BYTES_MAX), default: "", meaning }
}

/// Bytes in a sector.
const SECTOR_BYTES: u64 = 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delimiter {
    Byte(u8),
    Blanks,
}

#[derive(Clone, Debug)]
struct Csv {
    delimiter: Delimiter,
    header: Option<Vec<u8>>,
    /// Fields of a line, of which only empty ones may follow more.
    width: usize,
    /// What the columns are for, up to the last that is for anything.
    columns: Vec<Option<Role>>,
    /// What errors call them.
    labels: Vec<String>,
    time_unit: TimeUnit,
    has_decimal_commas: bool,
    offset_unit_bytes: u64,
    length_unit_bytes: u64,
    origins: Origins,
    read: Vec<Vec<u8>>,
    write: Vec<Vec<u8>>,
    /// The options that were given of those that say how lines are cut and what words mean, for who wants to read it so again.
    others: String,
}

fn bad(name: &str, found: &str, expected: String) -> OptionError {
    OptionError::BadValue { owner: FORMAT.name.to_owned(), name: name.to_owned(), found: found.to_owned(), expected }
}

impl Csv {
    fn new(options: &Options, sample: &Sample) -> Result<Csv, OptionError> {
        let first = sample.lines().next().unwrap_or_default();
        let delimiter = delimiter(options.text("delimiter"), sample);
        let given: Vec<_> = ROLES.iter().map(|(role, option, _)| (*role, *option, options.text(option))).collect();
        let by_name =
            given.iter().any(|(_, _, column)| !matches!(*column, "" | "none") && column.parse::<usize>().is_err());
        let first_names = names(first, delimiter);
        let is_header = match options.text("header") {
            "yes" => true,
            "no" => false,
            _ => by_name || first.starts_with(b"#") || !first_names.iter().any(|name| name.parse::<f64>().is_ok()),
        };
        let names = if is_header { first_names } else { Vec::new() };
        let mut csv = Csv {
            delimiter,
            header: is_header.then(|| first.to_vec()),
            width: 0,
            columns: Vec::new(),
            labels: Vec::new(),
            time_unit: TimeUnit::Microseconds,
            has_decimal_commas: options.text("decimal") == "comma",
            offset_unit_bytes: 1,
            length_unit_bytes: 1,
            origins: Origins::default(),
            others: others(options),
            read: alternatives(options.text("read")),
            write: alternatives(options.text("write")),
        };
        let by_number = given.iter().any(|(_, _, column)| column.parse::<usize>().is_ok());
        for (role, option, column) in given {
            // Who gives numbers has decided about all columns.
            let known = ROLES.iter().find(|(known, ..)| *known == role).map_or(&[][..], |(_, _, words)| words);
            let found = match column {
                "none" => None,
                "" if by_number => None,
                "" => names.iter().position(|name| plays(&plain(name), known)),
                _ => Some(find(option, column, &names)?),
            };
            if let Some(found) = found {
                csv.assign(found, role, option, names.get(found).map(|name| plain(name)))?;
            }
        }
        csv.set_units(options);
        csv.width = csv.width(sample, &names).max(csv.columns.len());
        if !csv.columns.contains(&Some(Role::Offset)) {
            return Err(bad("offset", options.text("offset"), column_expected(&names)));
        }
        if csv.origins.time != Origin::Option && has_dates(&csv, sample) {
            (csv.time_unit, csv.origins.time) = (TimeUnit::Date, Origin::Values);
        } else if csv.origins.time == Origin::Assumed
            && let Some(unit) = epoch_of(&Evidence::of(&csv, sample).times)
        {
            (csv.time_unit, csv.origins.time) = (unit, Origin::Values);
        }
        Ok(csv)
    }

    /// Fields of a line: as many as the header names, or as the first other line has.
    fn width(&self, sample: &Sample, names: &[String]) -> usize {
        if self.header.as_ref().is_some_and(|header| !header.starts_with(b"#")) {
            return names.len();
        }
        let line = sample.lines().find(|line| !line.starts_with(b"#")).unwrap_or_default();
        match self.delimiter {
            Delimiter::Byte(delimiter) => {
                let mut reader = csv::ReaderBuilder::new().delimiter(delimiter).has_headers(false).from_reader(line);
                let mut record = csv::ByteRecord::new();
                reader.read_byte_record(&mut record).map_or(0, |_| record.len())
            }
            Delimiter::Blanks => Words::new(line).all().count(),
        }
    }

    fn assign(&mut self, column: usize, role: Role, option: &str, name: Option<String>) -> Result<(), OptionError> {
        if column >= self.columns.len() {
            for unused in self.columns.len()..=column {
                self.labels.push(format!("column {unused}"));
            }
            self.columns.resize(column + 1, None);
        }
        if self.columns[column].is_some() {
            return Err(bad(option, &column.to_string(), "a column that no other option names".to_owned()));
        }
        self.columns[column] = Some(role);
        let kind = match option {
            "time" => "a time in ",
            "offset" | "length" => "a whole number in ",
            _ => "",
        };
        self.labels[column] = format!("{kind}column {column} ({option})");
        let name = name.unwrap_or_default();
        match role {
            Role::Time => {
                (self.time_unit, self.origins.time) = said(time_unit_of(&name), TimeUnit::Microseconds);
            }
            Role::Offset => (self.offset_unit_bytes, self.origins.offset) = said(byte_unit_of(&name), 1),
            Role::Length => (self.length_unit_bytes, self.origins.length) = said(byte_unit_of(&name), 1),
            Role::Op | Role::Volume => {}
        }
        Ok(())
    }

    /// Units that are given stand above those that the header says.
    fn set_units(&mut self, options: &Options) {
        if let Some((_, unit)) = TIME_UNITS.iter().find(|(word, _)| *word == options.text("time-unit")) {
            (self.time_unit, self.origins.time) = (*unit, Origin::Option);
        }
        if let Ok(bytes) = options.text("offset-unit").parse() {
            (self.offset_unit_bytes, self.origins.offset) = (bytes, Origin::Option);
        }
        if !self.columns.contains(&Some(Role::Length)) {
            (self.length_unit_bytes, self.origins.length) = (self.offset_unit_bytes, self.origins.offset);
        }
        if let Ok(bytes) = options.text("length-unit").parse() {
            (self.length_unit_bytes, self.origins.length) = (bytes, Origin::Option);
        }
    }

    #[inline]
    fn op(&self, word: &[u8]) -> Result<Option<Op>, Malformed> {
        let is = |words: &[Vec<u8>]| words.iter().any(|known| known == word);
        match (self.read.is_empty(), self.write.is_empty()) {
            (true, true) => known_op(word),
            (false, true) => Ok(Some(if is(&self.read) { Op::Read } else { Op::Write })),
            (true, false) => Ok(Some(if is(&self.write) { Op::Write } else { Op::Read })),
            (false, false) if is(&self.read) => Ok(Some(Op::Read)),
            (false, false) => Ok(is(&self.write).then_some(Op::Write)),
        }
    }

    #[inline]
    fn request<'a>(&self, mut fields: impl Columns<'a>, volumes: &mut Volumes) -> Result<Record, Malformed> {
        let mut request = Request {
            time_us: 0,
            op: Op::Read,
            volume: u32::MAX,
            offset_bytes: 0,
            length_bytes: self.length_unit_bytes,
        };
        let mut skipped = false;
        for (role, label) in self.columns.iter().zip(&self.labels) {
            match role {
                None => drop(fields.next(label)?),
                Some(Role::Time) => request.time_us = self.time_us(&mut fields, label)?,
                Some(Role::Offset) => request.offset_bytes = fields.bytes(self.offset_unit_bytes, label)?,
                Some(Role::Length) => request.length_bytes = fields.bytes(self.length_unit_bytes, label)?,
                Some(Role::Volume) => request.volume = volumes.number(fields.next(label)?),
                Some(Role::Op) => match self.op(fields.next(label)?.trim_ascii())? {
                    Some(op) => request.op = op,
                    None => skipped = true,
                },
            }
        }
        fields.end_after(self.width - self.columns.len(), self.width)?;
        if skipped {
            return Ok(Record::Skipped);
        }
        if request.volume == u32::MAX {
            request.volume = volumes.number(ONLY_VOLUME);
        }
        Ok(Record::Request(request))
    }

    #[inline]
    fn time_us<'a>(&self, fields: &mut impl Columns<'a>, label: &str) -> Result<i64, Malformed> {
        let time = if self.has_decimal_commas {
            let pointed = |byte: &u8| if *byte == b',' { b'.' } else { *byte };
            time_us(&fields.next(label)?.iter().map(pointed).collect::<Vec<_>>(), self.time_unit, label)
        } else {
            fields.time_us(self.time_unit, label)
        };
        time.map_err(|malformed| no_time(malformed, label))
    }

    #[cold]
    fn quoted_line(&self, line: &[u8], delimiter: u8, volumes: &mut Volumes) -> Result<Record, Malformed> {
        let mut reader = csv::ReaderBuilder::new().delimiter(delimiter).has_headers(false).from_reader(line);
        let mut record = csv::ByteRecord::new();
        reader.read_byte_record(&mut record).map_err(|_| Malformed::new(line, "quoted fields"))?;
        self.request(Quoted { line, fields: record.iter() }, volumes)
    }
}

/// What is wrong with a field that should be a time, with what could be meant by it.
#[cold]
fn no_time(malformed: Malformed, label: &str) -> Malformed {
    let Malformed { found, expected } = malformed;
    let hint = match () {
        () if expected != label => "",
        () if found.contains([':', '/']) => ": a number, or in all lines a date such as 2024-01-31T23:59:59.5Z",
        () if found.contains(',') => "; decimal=comma in --format reads commas before decimals",
        () => "",
    };
    Malformed { found, expected: expected + hint }
}

/// A unit that a name said, or the one that is assumed.
fn said<T>(unit: Option<T>, assumed: T) -> (T, Origin) {
    unit.map_or((assumed, Origin::Assumed), |unit| (unit, Origin::Header))
}

/// The options of [`Csv::others`], each with a comma before it.
fn others(options: &Options) -> String {
    let names = ["delimiter", "decimal", "header", "read", "write"];
    let given = |name: &&str| !matches!(options.text(name), "" | "auto" | "point");
    names.iter().filter(|name| given(name)).map(|name| format!(",{name}={}", options.text(name))).collect()
}

fn alternatives(text: &str) -> Vec<Vec<u8>> {
    text.split('/').filter(|word| !word.is_empty()).map(|word| word.as_bytes().to_vec()).collect()
}

#[inline]
fn known_op(word: &[u8]) -> Result<Option<Op>, Malformed> {
    const READ: [&[u8]; 3] = [b"r", b"read", b"rd"];
    const WRITE: [&[u8]; 3] = [b"w", b"write", b"wr"];
    const NEITHER: [&[u8]; 9] = [b"d", b"discard", b"t", b"trim", b"unmap", b"f", b"flush", b"n", b"none"];
    let is = |words: &[&[u8]]| words.iter().any(|known| known.eq_ignore_ascii_case(word));
    match word {
        b"R" => Ok(Some(Op::Read)),
        b"W" => Ok(Some(Op::Write)),
        _ if is(&READ) => Ok(Some(Op::Read)),
        _ if is(&WRITE) => Ok(Some(Op::Write)),
        _ if is(&NEITHER) => Ok(None),
        _ => Err(Malformed::new(word, "R or W (other words can be given with read= and write=)")),
    }
}

fn delimiter(given: &str, sample: &Sample) -> Delimiter {
    let known = [("comma", b','), ("semicolon", b';'), ("tab", b'\t'), ("pipe", b'|')];
    if let Some((_, byte)) = known.iter().find(|(name, _)| *name == given) {
        return Delimiter::Byte(*byte);
    }
    // A comment may hold anything, so a line after it tells more.
    let line = sample.lines().find(|line| !line.starts_with(b"#")).or(sample.lines().next()).unwrap_or_default();
    let found = known.iter().find(|(_, byte)| line.contains(byte)).filter(|_| given == "auto");
    found.map_or(Delimiter::Blanks, |(_, byte)| Delimiter::Byte(*byte))
}

impl ParseLine for Csv {
    #[inline]
    fn line(&self, line: &[u8], volumes: &mut Volumes) -> Result<Record, Malformed> {
        if line.starts_with(b"#") || self.header.as_deref() == Some(line) {
            return Ok(Record::Ignored);
        }
        match self.delimiter {
            Delimiter::Byte(delimiter) if memchr::memchr(b'"', line).is_some() => {
                self.quoted_line(line, delimiter, volumes)
            }
            Delimiter::Byte(delimiter) => self.request(Fields::new(line, delimiter), volumes),
            Delimiter::Blanks => self.request(Words::new(line), volumes),
        }
    }

    fn reading(&self, sample: &Sample) -> Result<Option<Reading>, Malformed> {
        Evidence::of(self, sample).judge(self).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::FormatSpec;
    use crate::formats::testing::{read, recognised, refuses, requests};

    fn refused(spec: &str, contents: &str) -> String {
        let sample = Sample { bytes: contents.as_bytes(), whole: true };
        spec.parse::<FormatSpec>().unwrap().parser(&sample, 4096).unwrap_err().to_string()
    }

    #[test]
    fn columns_are_named_by_number() {
        let spec = "csv:time=0,op=3,offset=1,length=2,volume=4,time-unit=s,offset-unit=512,length-unit=512,read=0";
        let trace = b"1538323200,8,16,0,1063\n1538323201,16,8,1,1107\n";
        let expected = ["1538323200000000 R 1063 4096 8192", "1538323201000000 W 1107 8192 4096"];
        assert_eq!(requests(spec, trace), expected);
    }

    #[test]
    fn columns_are_named_by_the_header() {
        let trace = b"when;Where;\"how much\";what\n7;4096;512;put\n9;0;4096;get\n";
        let spec = "csv:time=when,offset=where,length=how much,op=what,time-unit=ms,read=get";
        assert_eq!(requests(spec, trace), ["7000 W 0 4096 512", "9000 R 0 0 4096"]);
    }

    #[test]
    fn a_header_that_says_everything_needs_no_mapping() {
        let trace =
            b"# ts_ms,offset_bytes,length_bytes,op(R/W)  (sorted)\n0.5,4923392,4096,R\n1.25,0,512,W\n2,0,512,discard\n";
        assert_eq!(requests("csv", trace), ["500 R 0 4923392 4096", "1250 W 0 0 512"]);
        assert_eq!(read("csv", trace).skipped, 1);
        assert_eq!(recognised(trace), Ok("csv"));
        let trace = b"Time_s\tDevice\tLBA\tSectors\tOp\n1.5\tsda\t8\t16\tread\n";
        assert_eq!(requests("csv", trace), ["1500000 R sda 4096 8192"]);
        assert_eq!(recognised(trace), Ok("csv"));
    }

    #[test]
    fn other_delimiters_and_spellings_of_numbers_are_read() {
        let expected = ["1706702400500000 R 0 4096 512", "1706702401000000 W 0 8192 1024"];
        let piped = b"time|op|lba|sectors\n2024-01-31T12:00:00.5Z|R|0x8|1\n2024-01-31T13:00:01+01:00|W|16|2.0\n";
        assert_eq!(requests("csv", piped), expected);
        assert_eq!(recognised(piped), Ok("csv"));
        let quoted = b"ts_ms;op;lba;sectors\n\"2024-01-31 12:00:00.5\";R;8;1\n2024/01/31 12:00:01;W;16.0;2\n";
        assert_eq!(requests("csv", quoted), expected);
        let commas = b"time_s;op;lba;sectors\n1706702400,5;R;8;1\n1706702401;W;16;2\n";
        assert_eq!(requests("csv:decimal=comma", commas), expected);
    }

    #[test]
    fn blanks_part_fields_however_many_there_are() {
        let spec = "csv:delimiter=space,offset=0,length=2,op=3,time=4,offset-unit=512,time-unit=s,read=0/4";
        let trace = b"4043872\t\t96\t\t49152\t\t5\t\t1398396860.168065791\n 8 8 4096 4 1398396861\n";
        // 4043872 * 512 = 2070462464.
        let expected = ["1398396860168065 W 0 2070462464 49152", "1398396861000000 R 0 4096 4096"];
        assert_eq!(requests(spec, trace), expected);
    }

    #[test]
    fn fields_may_be_quoted() {
        let trace = b"\"a \"\"b\"\", c\",\"1\",512\n\"a \"\"b\"\", c\",2,512\n";
        let spec = "csv:volume=0,offset=1,length=2,offset-unit=512";
        assert_eq!(requests(spec, trace), ["0 R a \"b\", c 512 512", "0 R a \"b\", c 1024 512"]);
    }

    #[test]
    fn without_a_length_a_request_is_one_unit_long() {
        assert_eq!(requests("csv:offset=1,offset-unit=4096,header=no", b"x,3\n"), ["0 R 0 12288 4096"]);
    }

    #[test]
    fn reads_and_writes_can_be_named() {
        let ops = |spec: &str| {
            let batch = read(spec, b"1,512\n2,512\n3,512\n");
            let ops = batch.requests.iter().map(|request| if request.op == Op::Read { 'R' } else { 'W' });
            (ops.collect::<String>(), batch.skipped)
        };
        assert_eq!(ops("csv:op=0,offset=1,read=1"), ("RWW".to_owned(), 0));
        assert_eq!(ops("csv:op=0,offset=1,write=1"), ("WRR".to_owned(), 0));
        assert_eq!(ops("csv:op=0,offset=1,read=1,write=2"), ("RW".to_owned(), 1));
    }

    #[test]
    fn mappings_that_cannot_be_are_refused() {
        assert_eq!(
            refused("csv", "1,2,3\n"),
            "csv: option 'offset' is '', expected a column number, from 0 (the trace has no header)"
        );
        assert_eq!(
            refused("csv:offset=lba", "when,where\n1,2\n"),
            "csv: option 'offset' is 'lba', expected a column number, from 0, or a name of the header: when, where"
        );
        assert_eq!(
            refused("csv:offset=1,length=1", "1,2\n"),
            "csv: option 'length' is '1', expected a column that no other option names"
        );
        assert_eq!(
            refused("csv:offset=1000", "1,2\n"),
            "csv: option 'offset' is '1000', expected a column number below 1000"
        );
        assert!("csv:time-unit=h".parse::<FormatSpec>().is_err());
        assert!("csv:offset-unit=0".parse::<FormatSpec>().is_err());
    }

    #[test]
    fn refuses_what_is_malformed() {
        refuses(
            "csv:time=0,offset=1,length=2,op=3,offset-unit=512,header=no",
            &[
                ("x,1,2,R", r#"found "x", expected a time in column 0 (time)"#),
                ("1,-1,2,R", r#"found "-1", expected a whole number in column 1 (offset)"#),
                ("1,1,,R", r#"found "", expected a whole number in column 2 (length)"#),
                ("1,1,2,0", r#"found "0", expected R or W (other words can be given with read= and write=)"#),
                ("1,1,2", r#"found "1,1,2", expected a line with one more field: column 3 (op)"#),
                (
                    "1,36028797018963968,2,R",
                    r#"found "36028797018963968", expected a whole number in column 1 (offset), in units of 512 bytes, below 2^64"#,
                ),
            ],
        );
    }
}
