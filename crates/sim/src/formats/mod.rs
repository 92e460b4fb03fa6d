//! Trace formats: one file each, and one row each in [`FORMATS`].
//!
//! A format cuts a trace's bytes into records (lines, or a fixed number of bytes) and turns each record into a [`Request`], or
//! into nothing (headers, comments, requests other than reads and writes). Records are parsed apart from each other, so that
//! chunks of a trace parse in parallel.

use std::fmt::Debug;

use flashwise_core::options::{OptionError, Options, Parameter, nearest};

use crate::error::TraceError;
use crate::request::{Request, Volumes};

mod fields;
mod msr;

/// Every format, in the order in which they are listed.
pub static FORMATS: &[&Format] = &[&msr::FORMAT];

/// A row of the table of formats.
#[derive(Debug)]
pub struct Format {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, in a few words.
    pub title: &'static str,
    /// Its columns, and who defines it.
    pub source: &'static str,
    /// What can be set: `--format name:key=value`.
    pub parameters: &'static [Parameter],
    /// Whether a trace that begins with this sample is in this format.
    pub recognise: fn(&Sample) -> bool,
    /// A parser for a trace that begins with this sample. The sample settles what holds for the whole trace, such as the order
    /// of columns in a header or which of several versions it is.
    pub parser: fn(&Options, &Sample) -> Result<Parser, OptionError>,
}

/// A parser of any format.
pub type Parser = Box<dyn Parse>;

/// The first bytes of a trace.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// Whether they are all that there is.
    pub whole: bool,
}

impl<'a> Sample<'a> {
    /// Its whole lines, without line ends.
    pub fn lines(&self) -> impl Iterator<Item = &'a [u8]> {
        let end = match memchr::memrchr(b'\n', self.bytes) {
            Some(newline) if !self.whole => newline,
            _ => self.bytes.len(),
        };
        let lines = self.bytes[..end].split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        lines.filter(|line| !line.is_empty())
    }
}

/// How a trace's bytes are cut into records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// At newlines; a carriage return before them is dropped.
    Lines,
    /// Every so many bytes.
    Records {
        /// Length of a record.
        bytes: usize,
    },
}

/// Parses the records of one format.
pub trait Parse: Debug + Send + Sync {
    /// How the bytes are cut.
    fn framing(&self) -> Framing;

    /// Parses whole records; the last line may lack its newline.
    fn parse(&self, records: &[u8], batch: &mut Batch);
}

/// What became of a run of records.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Requests in order; their volumes are numbers in `volumes`.
    pub requests: Vec<Request>,
    /// The volumes seen in this batch.
    pub volumes: Volumes,
    /// Records that are not what the format says, with their number in this batch, from 0.
    pub malformed: Vec<(u64, Malformed)>,
    /// Records seen, of any kind.
    pub records: u64,
    /// Records passed over because they ask for no data: trims, flushes, requests of length 0.
    pub skipped: u64,
}

/// What is wrong with a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// What stands there.
    pub found: String,
    /// What should.
    pub expected: String,
}

impl Malformed {
    /// `found` stands where `expected` should.
    pub fn new(found: &[u8], expected: impl Into<String>) -> Self {
        const SHOWN_MAX: usize = 80;
        let text = String::from_utf8_lossy(&found[..found.len().min(SHOWN_MAX)]).into_owned();
        let more = if found.len() > SHOWN_MAX { "..." } else { "" };
        Malformed { found: format!("{text:?}{more}"), expected: expected.into() }
    }
}

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// A request.
    Request(Request),
    /// An operation that asks for no data, counted as skipped.
    Skipped,
    /// A header, comment or blank line, not counted.
    Ignored,
}

impl Batch {
    fn push(&mut self, record: Result<Record, Malformed>) {
        match record {
            Ok(Record::Request(request)) if request.length_bytes > 0 => {
                match request.offset_bytes.checked_add(request.length_bytes) {
                    Some(_) => self.requests.push(request),
                    None => {
                        let found = format!("offset {} and length {}", request.offset_bytes, request.length_bytes);
                        let expected = "a range that ends before 2^64".to_owned();
                        self.malformed.push((self.records, Malformed { found, expected }));
                    }
                }
            }
            Ok(Record::Request(_) | Record::Skipped) => self.skipped += 1,
            Ok(Record::Ignored) => {}
            Err(malformed) => self.malformed.push((self.records, malformed)),
        }
        self.records += 1;
    }
}

/// A format of lines.
pub trait ParseLine: Debug + Send + Sync {
    /// What a line, without its end and not empty, says.
    fn line(&self, line: &[u8], volumes: &mut Volumes) -> Result<Record, Malformed>;
}

/// The parser of a format of lines.
#[derive(Debug)]
pub struct Lines<P>(pub P);

impl<P: ParseLine> Parse for Lines<P> {
    fn framing(&self) -> Framing {
        Framing::Lines
    }

    fn parse(&self, records: &[u8], batch: &mut Batch) {
        let mut rest = records;
        while !rest.is_empty() {
            let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
            let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
            let record = if line.is_empty() { Ok(Record::Ignored) } else { self.0.line(line, &mut batch.volumes) };
            batch.push(record);
            rest = rest.get(end + 1..).unwrap_or_default();
        }
    }
}

/// A format of records of `N` bytes.
pub trait ParseRecord<const N: usize>: Debug + Send + Sync {
    /// What a record says.
    fn record(&self, record: &[u8; N], volumes: &mut Volumes) -> Result<Record, Malformed>;
}

/// The parser of a format of records of `N` bytes.
#[derive(Debug)]
pub struct Records<P, const N: usize>(pub P);

impl<P: ParseRecord<N>, const N: usize> Parse for Records<P, N> {
    fn framing(&self) -> Framing {
        Framing::Records { bytes: N }
    }

    fn parse(&self, records: &[u8], batch: &mut Batch) {
        let (whole, rest) = records.as_chunks::<N>();
        for record in whole {
            let record = self.0.record(record, &mut batch.volumes);
            batch.push(record);
        }
        if !rest.is_empty() {
            let expected = format!("a record of {N} bytes");
            batch.push(Err(Malformed { found: format!("the last {} bytes", rest.len()), expected }));
        }
    }
}

/// A format and its options as a user wrote them: `msr`, `csv:time=0,offset=3`.
#[derive(Clone, Debug)]
pub struct FormatSpec {
    format: &'static Format,
    options: Options,
}

impl std::str::FromStr for FormatSpec {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<FormatSpec, OptionError> {
        let (name, options) = text.split_once(':').unwrap_or((text, ""));
        let Some(format) = FORMATS.iter().find(|format| format.name == name) else {
            let expected: Vec<_> = FORMATS.iter().map(|format| format.name).collect();
            let near = nearest(name, &expected);
            return Err(OptionError::UnknownName { what: "trace format", name: name.to_owned(), near, expected });
        };
        Ok(FormatSpec { format, options: Options::parse(name, format.parameters, options)? })
    }
}

impl FormatSpec {
    /// The format that is meant.
    pub fn format(&self) -> &'static Format {
        self.format
    }

    /// The format of the trace at `path` that begins with `sample`, recognised from its contents.
    pub fn recognise(path: &str, sample: &Sample) -> Result<FormatSpec, TraceError> {
        let fitting: Vec<_> = FORMATS.iter().filter(|format| (format.recognise)(sample)).collect();
        let names =
            |formats: &[&&'static Format]| formats.iter().map(|format| format.name).collect::<Vec<_>>().join(", ");
        match fitting[..] {
            [format] => Ok(FormatSpec { format, options: Options::parse(format.name, format.parameters, "")? }),
            [] => Err(TraceError::Unrecognised {
                path: path.to_owned(),
                found: Malformed::new(sample.bytes, "").found,
                formats: names(&FORMATS.iter().collect::<Vec<_>>()),
            }),
            _ => Err(TraceError::Ambiguous { path: path.to_owned(), formats: names(&fitting) }),
        }
    }

    /// A parser for a trace that begins with `sample`.
    pub fn parser(&self, sample: &Sample) -> Result<Parser, OptionError> {
        (self.format.parser)(&self.options, sample)
    }
}
