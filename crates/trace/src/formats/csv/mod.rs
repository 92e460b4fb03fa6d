//! Any other text with one request per line, in columns that the user or a header names.
//!
//! Source: none; for published and private traces without a format of their own. Fields may be quoted as in RFC 4180,
//! but not contain line ends. Lines with quotes are read by the `csv` crate. Lines that begin with `#` are comments;
//! the first of them may be the header.
//!
//! A header needs no mapping if it names offset, length, op and time in known words (`offset`, `lba_sectors`,
//! `len_bytes`, `ts_ms`, ...). Its words also set the units. Units that are not given are inferred from the values if
//! these are certain (`evidence.rs`), otherwise assumed. A note names them, and units that contradict the values are
//! rejected. Object ids are hashed to block numbers by 64-bit FNV-1a, mixed by the last step of SplitMix64. For a
//! million objects, two share a block with a probability of 1.5 % at 4 KiB.

use flashwise_core::access::Op;
use flashwise_core::options::{Kind, OptionError, Options, Parameter};

use self::evidence::{Evidence, dates_of};
use self::header::{ROLES, Role, TIME_UNITS, byte_unit_of, column_expected, find, names, plain, plays, time_unit_of};
use self::quoted::Quoted;
use super::fields::{Columns, Fields, TimeUnit, Words, time_us};
use super::objects::mixed;
use super::passed::Reason;
use super::plausible::{Layout, Origin, Origins, epoch_of};
use super::spellings::{Unit, known_op};
use super::{Format, Lines, Malformed, ParseLine, REQUEST_BYTES_MAX, Reading, Record, Sample, VOLUME_BYTES_MAX};
use crate::request::{Request, Volumes};
use crate::settings::DEFAULT_BLOCK_SIZE_BYTES;

mod evidence;
mod header;
mod quoted;
mod recognise;
#[cfg(test)]
mod tests;

pub(super) use recognise::first_refused;

/// The row of generic CSV in the table of formats.
pub static FORMAT: Format = Format {
    name: "csv",
    title: "Any columns",
    source: "the columns that the options name, by number from 0 or, with a header, by name",
    parameters: &[
        column("time", "column of the time; without it all times are 0"),
        column("op", "column of the operation, read or write; without it all requests are reads"),
        column("offset", "column of the first byte, sector or block; this or hash is required"),
        column("length", "column of the length; without it each request is one offset-unit long"),
        column("volume", "column of the volume, or two with / between them (1/2); without it there is one volume"),
        column(
            "hash",
            "column of an object's id (any text), which becomes a block number; without a length an object is one \
             block",
        ),
        Parameter::of(
            "time-unit",
            Kind::Choice(&["s", "ms", "us", "ns", "filetime", "date", "date-dmy", "date-mdy"]),
            "",
        )
        .means(
            "unit of time, decimals allowed (filetime: 100 ns; date: 2024-01-31T23:59:59.5Z; date-dmy: \
                 31.01.2024 23:59:59; date-mdy: 01/31/2024 11:59:59 PM). The default is: dates, if their \
                 order is certain; the unit in the column's name (ts_ms); a unit that gives dates since \
                 1990; us",
        ),
        unit(
            "offset-unit",
            "bytes in a unit of offset; default: as in the column's name (lba, offset_sectors: 512), else 1",
        ),
        unit("length-unit", "bytes in a unit of length; default: as in the column's name (sectors: 512), else 1"),
        Parameter::of(
            "delimiter",
            Kind::Choice(&["auto", "comma", "semicolon", "tab", "pipe", "space", "colon"]),
            "auto",
        )
        .means("separator of fields (space: any run of spaces and tabs); auto: the first of these in the first line"),
        Parameter::of("kilo", Kind::Choice(&["1000", "1024"]), "")
            .means("bytes in the K of sizes such as 4K and 4KB (4KiB is 4096 always); without it these are refused"),
        Parameter::of("decimal", Kind::Choice(&["point", "comma"]), "point").means("decimal separator of times"),
        Parameter::of("header", Kind::Choice(&["auto", "yes", "no"]), "auto")
            .means("the first line names the columns; auto: yes if it has no number or begins with #"),
        words(
            "read",
            "words of op for reads, several with / between them (0/4); default: r or read if write is not given",
        ),
        words(
            "write",
            "words of op for writes; without it, all words not for reads; with both, other words are skipped",
        ),
    ],
    recognise: recognise::recognise,
    parser: |options, sample, block_size_bytes| {
        let csv = Csv::new(options, sample)?;
        Ok(Box::new(Lines(Csv { block_size_bytes, ..csv })))
    },
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

/// The size of a sector, in bytes.
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
    /// The number of fields in a line; any further ones must be empty.
    width: usize,
    /// The role of each column, up to the last with a role.
    columns: Vec<Option<Role>>,
    /// The names of the columns in errors.
    labels: Vec<String>,
    time_unit: TimeUnit,
    has_decimal_commas: bool,
    kilo_bytes: Option<u64>,
    offset_unit_bytes: u64,
    length_unit_bytes: u64,
    /// The block size of an object, in bytes.
    block_size_bytes: u64,
    /// True if two columns name the volume.
    has_two_volumes: bool,
    origins: Origins,
    read: Vec<Vec<u8>>,
    write: Vec<Vec<u8>>,
    /// The given options for delimiters and words, to suggest a complete `--format`.
    others: String,
}

fn bad(name: &str, found: &str, expected: String) -> OptionError {
    OptionError::bad_value(FORMAT.name, name, found, expected)
}

impl Csv {
    fn new(options: &Options, sample: &Sample) -> Result<Csv, OptionError> {
        let delimiter = delimiter(options.text("delimiter"), sample);
        let given: Vec<_> = ROLES.iter().map(|(role, option, _)| (*role, *option, options.text(option))).collect();
        let first = first_line(sample, delimiter, options.text("offset"));
        let by_name = given.iter().any(|(_, option, column)| {
            *column != "none" && parts(option, column).any(|part| part.parse::<usize>().is_err())
        });
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
            kilo_bytes: options.text("kilo").parse().ok(),
            offset_unit_bytes: 1,
            length_unit_bytes: 1,
            block_size_bytes: DEFAULT_BLOCK_SIZE_BYTES,
            has_two_volumes: false,
            origins: Origins::default(),
            others: others(options),
            read: alternatives(options.text("read")),
            write: alternatives(options.text("write")),
        };
        let by_number =
            given.iter().any(|(_, option, column)| parts(option, column).any(|part| part.parse::<usize>().is_ok()));
        let has_objects = !matches!(options.text("hash"), "" | "none");
        for (role, option, column) in given {
            // If the user gives column numbers, all columns are decided.
            let known = ROLES.iter().find(|(known, ..)| *known == role).map_or(&[][..], |(_, _, words)| words);
            let found: Vec<usize> = match column {
                "none" => Vec::new(),
                "" if by_number || has_objects && role == Role::Offset => Vec::new(),
                "" => names.iter().position(|name| plays(&plain(name), known)).into_iter().collect(),
                _ => parts(option, column).map(|part| find(option, part, &names)).collect::<Result<_, _>>()?,
            };
            if found.len() > 2 {
                return Err(bad(option, column, "one column, or two with / between them".to_owned()));
            }
            csv.has_two_volumes |= found.len() == 2;
            for found in found {
                csv.assign(found, role, option, names.get(found).map(|name| plain(name)))?;
            }
        }
        if has_objects && csv.columns.contains(&Some(Role::Offset)) {
            return Err(bad("hash", options.text("hash"), "either hash or offset".to_owned()));
        }
        csv.set_units(options);
        csv.width = csv.width(sample, &names).max(csv.columns.len());
        if !has_objects && !csv.columns.contains(&Some(Role::Offset)) {
            return Err(bad("offset", options.text("offset"), column_expected(&names)));
        }
        if csv.origins.time != Origin::Option
            && let Some((order, origin)) = dates_of(&csv, sample)
        {
            (csv.time_unit, csv.origins.time) = (TimeUnit::Date(order), origin);
        } else if csv.origins.time == Origin::Assumed
            && let Some(unit) = epoch_of(&Evidence::of(&csv, sample).times())
        {
            (csv.time_unit, csv.origins.time) = (unit, Origin::Values);
        }
        Ok(csv)
    }

    /// Returns the number of fields in a line: that of the header, or of the first other line.
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

    /// Returns the fields of `line` without quotes around them; a delimiter within quotes splits here too.
    fn fields<'a>(&self, line: &'a [u8]) -> Vec<&'a [u8]> {
        let unquoted = |field: &'a [u8]| {
            field.trim_ascii().strip_prefix(b"\"").and_then(|field| field.strip_suffix(b"\"")).unwrap_or(field)
        };
        match self.delimiter {
            Delimiter::Byte(delimiter) => line.split(|byte| *byte == delimiter).map(unquoted).collect(),
            Delimiter::Blanks => Words::new(line).all().collect(),
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
                (self.time_unit, self.origins.time) = unit_or_assumed(time_unit_of(&name), TimeUnit::Microseconds);
            }
            Role::Offset => (self.offset_unit_bytes, self.origins.offset) = unit_or_assumed(byte_unit_of(&name), 1),
            Role::Length => (self.length_unit_bytes, self.origins.length) = unit_or_assumed(byte_unit_of(&name), 1),
            Role::Op | Role::Volume | Role::Hash => {}
        }
        Ok(())
    }

    /// Sets the units; those of options take precedence over those of the header.
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
    fn unit(&self, bytes: u64) -> Unit {
        Unit { bytes, kilo_bytes: self.kilo_bytes }
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
        let (mut skipped, mut first_volume) = (false, None);
        for (role, label) in self.columns.iter().zip(&self.labels) {
            match role {
                None => drop(fields.next(label)?),
                Some(Role::Time) => request.time_us = self.time_us(&mut fields, label)?,
                Some(Role::Offset) => {
                    let bytes = fields.bytes(self.unit(self.offset_unit_bytes), label);
                    request.offset_bytes = bytes.map_err(|malformed| no_offset(malformed, label))?;
                }
                Some(Role::Length) => request.length_bytes = fields.bytes(self.unit(self.length_unit_bytes), label)?,
                Some(Role::Volume) => {
                    let name = fields.next(label)?;
                    match first_volume {
                        None if self.has_two_volumes => first_volume = Some(name),
                        None => request.volume = volumes.number(name),
                        Some(first) => request.volume = volumes.number_of_two(first, b'.', name),
                    }
                }
                Some(Role::Hash) => self.place(fields.next(label)?.trim_ascii(), &mut request),
                Some(Role::Op) => match self.op(fields.next(label)?.trim_ascii())? {
                    Some(op) => request.op = op,
                    None => skipped = true,
                },
            }
        }
        fields.end_after(self.width - self.columns.len(), self.width)?;
        if skipped {
            return Ok(Record::PassedOver(Reason::NoData));
        }
        if request.volume == u32::MAX {
            request.volume = volumes.only();
        }
        Ok(Record::Request(request))
    }

    /// Sets the address of a request from the hash of the object `id`; its length is set later, if there is one.
    #[inline]
    fn place(&self, id: &[u8], request: &mut Request) {
        let is_said = self.origins.offset == Origin::Option;
        let unit_bytes = if is_said { self.offset_unit_bytes } else { self.block_size_bytes };
        request.offset_bytes = hash(id) % ((VOLUME_BYTES_MAX - REQUEST_BYTES_MAX) / unit_bytes) * unit_bytes;
        if !self.columns.contains(&Some(Role::Length)) {
            request.length_bytes = unit_bytes;
        }
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

    /// True if `line` names the same columns as the header.
    #[cold]
    fn is_header(&self, line: &[u8]) -> bool {
        let Some(header) = &self.header else { return false };
        let [known, names] = [header, line].map(|line| names(text_of(line), self.delimiter));
        known.len() == names.len() && known.iter().zip(&names).all(|(known, name)| plain(known) == plain(name))
    }

    #[cold]
    fn quoted_line(&self, line: &[u8], delimiter: u8, volumes: &mut Volumes) -> Result<Record, Malformed> {
        let mut reader = csv::ReaderBuilder::new().delimiter(delimiter).has_headers(false).from_reader(line);
        let mut record = csv::ByteRecord::new();
        reader.read_byte_record(&mut record).map_err(|_| Malformed::new(line, "quoted fields"))?;
        self.request(Quoted { line, fields: record.iter() }, volumes)
    }
}

/// Extends the error for an invalid time by a suggestion.
#[cold]
fn no_time(malformed: Malformed, label: &str) -> Malformed {
    let Malformed { found, expected } = malformed;
    let hint = match () {
        () if expected != label => "",
        () if found.contains([':', '/']) => {
            ": a number, or in all lines a date such as 2024-01-31T23:59:59.5Z or, by time-unit=date-dmy or date-mdy, \
             31.01.2024 or 01/31/2024 23:59:59"
        }
        () if found.contains(',') => "; decimal=comma in --format reads commas before decimals",
        () => "",
    };
    Malformed { found, expected: expected + hint }
}

/// Extends the error for an invalid offset by a suggestion.
#[cold]
fn no_offset(malformed: Malformed, label: &str) -> Malformed {
    let Malformed { found, expected } = malformed;
    let text = found.trim_matches('"');
    let is_number =
        text.trim().is_empty() || text.starts_with(|first: char| first.is_ascii_digit() || " -+.".contains(first));
    let is_id = !is_number || text.len() >= 19 && !text.starts_with("0x");
    let column = label.split("column ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap_or_default();
    let hint = if is_id && expected == label {
        format!("; hash={column} in --format reads ids of objects")
    } else {
        String::new()
    };
    Malformed { found, expected: expected + &hint }
}

/// FNV-1a, mixed by the last step of SplitMix64.
#[inline]
fn hash(id: &[u8]) -> u64 {
    let hash = id
        .iter()
        .fold(0xCBF2_9CE4_8422_2325, |hash: u64, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3));
    mixed(hash)
}

/// Splits the value of an option into columns; only the volume may have several.
fn parts<'a>(option: &str, column: &'a str) -> impl Iterator<Item = &'a str> {
    let separator: &[char] = if option == "volume" { &['/'] } else { &[] };
    column.split(separator).filter(|part| !part.is_empty())
}

/// Returns the unit of the header, or the assumed one.
fn unit_or_assumed<T>(unit: Option<T>, assumed: T) -> (T, Origin) {
    unit.map_or((assumed, Origin::Assumed), |unit| (unit, Origin::Header))
}

/// Returns the options of [`Csv::others`], each with a comma before it.
fn others(options: &Options) -> String {
    let names = ["delimiter", "kilo", "decimal", "header", "read", "write"];
    let given = |name: &&str| !matches!(options.text(name), "" | "auto" | "point");
    names.iter().filter(|name| given(name)).map(|name| format!(",{name}={}", options.text(name))).collect()
}

fn alternatives(text: &str) -> Vec<Vec<u8>> {
    text.split('/').filter(|word| !word.is_empty()).map(|word| word.as_bytes().to_vec()).collect()
}

/// Returns the line that may name the columns: the first comment with a name for the offset, either the `given` one or
/// a known one. Otherwise, it is the first line that is not a comment, if it contains no number; otherwise the first
/// line.
fn first_line<'a>(sample: &Sample<'a>, delimiter: Delimiter, given: &str) -> &'a [u8] {
    let is_comment = |line: &&[u8]| line.starts_with(b"#");
    let has_offset = |line: &&[u8]| {
        let names = names(line, delimiter);
        let is_known =
            |name: &String| ROLES.iter().any(|(role, _, words)| *role == Role::Offset && plays(&plain(name), words));
        names.iter().any(is_known) || find("offset", given, &names).is_ok_and(|_| given.parse::<usize>().is_err())
    };
    let has_number = |line: &&[u8]| names(line, delimiter).iter().any(|name| name.parse::<f64>().is_ok());
    let comment = sample.lines().take_while(is_comment).find(has_offset);
    let other = sample.lines().find(|line| !is_comment(line)).filter(|line| !has_number(line));
    comment.or(other).or(sample.lines().next()).unwrap_or_default()
}

/// Removes a UTF-8 byte order mark, which begins a line if files were concatenated.
fn text_of(line: &[u8]) -> &[u8] {
    line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line)
}

fn delimiter(given: &str, sample: &Sample) -> Delimiter {
    let known = [("comma", b','), ("semicolon", b';'), ("tab", b'\t'), ("pipe", b'|')];
    let colon = ("colon", b':');
    if let Some((_, byte)) = known.iter().chain([&colon]).find(|(name, _)| *name == given) {
        return Delimiter::Byte(*byte);
    }
    // A comment can contain anything, so the first line after the comments is used.
    let line = sample.lines().find(|line| !line.starts_with(b"#")).or(sample.lines().next()).unwrap_or_default();
    match known.iter().find(|(_, byte)| line.contains(byte)) {
        _ if given == "space" => Delimiter::Blanks,
        Some((_, byte)) => Delimiter::Byte(*byte),
        // Times contain colons too, so colons are only delimiters if there is no other.
        None if line.contains(&colon.1) && !line.trim_ascii().iter().any(u8::is_ascii_whitespace) => {
            Delimiter::Byte(colon.1)
        }
        None => Delimiter::Blanks,
    }
}

impl ParseLine for Csv {
    #[inline]
    fn line(&self, line: &[u8], volumes: &mut Volumes) -> Result<Record, Malformed> {
        if self.header.as_deref() == Some(line) {
            return Ok(Record::PassedOver(Reason::Header));
        }
        if line.starts_with(b"#") {
            return Ok(Record::PassedOver(Reason::Comment));
        }
        let record = match self.delimiter {
            Delimiter::Byte(delimiter) if memchr::memchr(b'"', line).is_some() => {
                self.quoted_line(line, delimiter, volumes)
            }
            Delimiter::Byte(delimiter) => self.request(Fields::new(line, delimiter), volumes),
            Delimiter::Blanks => self.request(Words::new(line), volumes),
        };
        if record.is_err() && self.is_header(line) {
            return Ok(Record::PassedOver(Reason::Header));
        }
        record
    }

    fn layout(&self) -> Option<Layout> {
        evidence::layout(self)
    }

    fn reading(&self, sample: &Sample) -> Result<Option<Reading>, Malformed> {
        Evidence::of(self, sample).judge(self, sample).map(Some)
    }
}
