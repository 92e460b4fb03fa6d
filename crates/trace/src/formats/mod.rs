//! Trace formats: each has its own file and a row in [`FORMATS`].
//!
//! A format splits the bytes of a trace into records (lines, or a fixed number of bytes). It converts each record to a
//! [`Request`], or to nothing (headers, comments, requests other than reads and writes). Records are parsed
//! independently, so that chunks of a trace can be parsed in parallel.

use std::fmt::{self, Debug};

use flashwise_core::filter::{Caching, Client, Filter};
use flashwise_core::options::{OptionError, Options, Parameter, named};

pub use self::passed::{PassedOver, Reason};
use self::unit_options::UnitOptions;
use crate::error::{Place, TraceError};
use crate::request::{RecordedRequest, Request, Volumes};

mod alibaba;
mod biosnoop;
mod blkparse;
mod blktrace;
mod blocks;
mod csv;
mod dates;
mod disksim;
mod etw;
mod fields;
mod fio;
mod fiu;
mod flashwise;
mod foreign;
mod ftrace;
mod iotrace;
mod json;
mod lcs;
mod lis;
mod meta;
mod mooncake;
mod msr;
mod objects;
mod oracle_general;
mod passed;
mod plausible;
mod raw_blocks;
mod spc;
mod spellings;
mod stacked;
mod systor;
mod tencent;
#[cfg(test)]
mod testing;
mod unfinished;
mod unit_options;
mod vscsi;

/// Builds the table of formats.
macro_rules! formats {
    ($($module:ident),* $(,)?) => {
        /// All formats, in the order in which they are listed.
        pub static FORMATS: &[&Format] = &[$(&$module::FORMAT),*];
    };
}

formats! {
    msr,
    spc,
    alibaba,
    tencent,
    systor,
    meta,
    fiu,
    blkparse,
    blktrace,
    ftrace,
    biosnoop,
    iotrace,
    etw,
    fio,
    disksim,
    lis,
    blocks,
    raw_blocks,
    vscsi,
    oracle_general,
    lcs,
    mooncake,
    flashwise,
    csv,
}

pub(crate) use flashwise::recorded;

/// A row of the table of formats.
#[derive(Debug)]
pub struct Format {
    /// The name on the command line.
    pub name: &'static str,
    /// A short title.
    pub title: &'static str,
    /// The columns, and the source of the definition.
    pub source: &'static str,
    /// The options: `--format name:key=value`.
    pub parameters: &'static [Parameter],
    /// Tells how well a trace that begins with this sample matches the format.
    pub recognise: fn(&Sample) -> Fit,
    /// Creates a parser for a trace that begins with this sample and is divided into blocks of this many bytes. The
    /// sample determines the properties of the whole trace, such as the order of columns in a header or the version.
    /// The block size matters if a trace numbers blocks instead of bytes.
    pub parser: fn(&Options, &Sample, u64) -> Result<Parser, OptionError>,
}

/// The match between a trace's first bytes and a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// They are not in this format.
    No,
    /// They are in this format, unless they are in another one too.
    Yes,
    /// They are readable in this format, if no more specific one matches.
    Generic,
    /// They have the shape of this format and of others with other units; the text names these.
    Unsure(&'static str),
}

/// The maximum length of a request, in bytes: Linux cannot make longer ones, so a longer one is damage.
pub const REQUEST_BYTES_MAX: u64 = 1 << 32;
/// The maximum end of a volume, in bytes. It is sufficient for any block size and fits into a
/// [`BlockAddress`](crate::normalised::numbering::BlockAddress) of blocks of 512 bytes.
pub const VOLUME_BYTES_MAX: u64 = 1 << (crate::normalised::numbering::BLOCK_BITS + 9);

/// A parser of any format.
pub type Parser = Box<dyn Parse>;

/// The first bytes of a trace.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// True if they are the whole trace.
    pub whole: bool,
}

impl<'a> Sample<'a> {
    /// Returns the complete lines, without line ends.
    pub fn lines(&self) -> impl Iterator<Item = &'a [u8]> {
        let end = match memchr::memrchr(b'\n', self.bytes) {
            Some(newline) if !self.whole => newline,
            _ => self.bytes.len(),
        };
        let lines = self.bytes[..end].split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        lines.filter(|line| !line.is_empty())
    }

    /// Tells how well a format of lines matches. The first line that is not ignored must parse, and at least half of
    /// the first hundred. So a damaged line is reported as such and not as an unknown format.
    fn fit_lines(&self, parser: &impl ParseLine) -> Fit {
        const LINES_MAX: usize = 100;
        let mut volumes = Volumes::default();
        let mut records = self.lines().map(|line| parser.line(line, &mut volumes));
        let says_nothing = |record: &Result<Record, Malformed>| match record {
            Ok(Record::Ignored) => true,
            Ok(Record::PassedOver(reason)) => reason.says_nothing(),
            _ => false,
        };
        let first = records.find(|record| !says_nothing(record));
        let (mut good, mut bad) = (1, 0);
        for record in records.take(LINES_MAX).filter(|record| !says_nothing(record)) {
            match record {
                Ok(_) => good += 1,
                Err(_) => bad += 1,
            }
        }
        if matches!(first, Some(Ok(_))) && bad <= good { Fit::Yes } else { Fit::No }
    }
}

/// The division of a trace's bytes into records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// At newlines; a carriage return before them is dropped.
    Lines,
    /// At multiples of a length.
    Records {
        /// The length of a record.
        bytes: usize,
    },
    /// At ends that [`Parse::whole`] finds: records differ in length, or follow a header.
    Varied,
}

impl Framing {
    /// Returns the position of the record with this number, from 0.
    pub fn place(self, record: u64) -> Place {
        match self {
            Framing::Lines => Place::Line(record + 1),
            Framing::Records { bytes } => Place::Byte(record * bytes as u64),
            Framing::Varied => Place::Record(record + 1),
        }
    }
}

/// Parses the records of a format.
pub trait Parse: Debug + Send + Sync {
    /// Returns the division of the bytes into records.
    fn framing(&self) -> Framing;

    /// Returns the length of the complete records at the beginning of `bytes`, which start at a record and end
    /// anywhere.
    fn whole(&self, bytes: &[u8]) -> usize {
        match self.framing() {
            Framing::Lines => memchr::memrchr(b'\n', bytes).map_or(0, |newline| newline + 1),
            Framing::Records { bytes: length } => bytes.len() / length * length,
            Framing::Varied => bytes.len(),
        }
    }

    /// Parses complete records; the last line may lack its newline.
    fn parse(&self, records: &[u8], batch: &mut Batch);

    /// Returns the columns of a format of lines and their units, if it has any.
    fn layout(&self) -> Option<plausible::Layout> {
        None
    }

    /// Returns how a trace that begins with `sample` is read, if its format allows several ways.
    ///
    /// # Errors
    /// A contradiction, and the options that resolve it.
    fn reading(&self, _sample: &Sample) -> Result<Option<Reading>, Malformed> {
        Ok(None)
    }

    /// Returns a parser that also applies `filter` to the process of each request; none if the format has no processes.
    fn filtered(self: Box<Self>, _filter: Filter) -> Option<Parser> {
        None
    }

    /// True if a compressed trace may be truncated, for example because its writer was killed.
    fn may_be_cut(&self) -> bool {
        false
    }
}

/// The chosen reading of a trace whose format allows several meanings of its columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// The columns and their units, as `--format` names them, and their origin; empty if the format names them.
    pub columns: String,
    /// Signs of a different meaning.
    pub doubts: Vec<String>,
}

/// The parsed contents of a run of records.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Requests in order; their volumes are numbers in `volumes`.
    pub requests: Vec<Request>,
    /// The volumes seen in this batch.
    pub volumes: Volumes,
    /// The decision of the I/O filter for each of `requests`; empty without a filter.
    pub caching: Vec<Caching>,
    /// All requests of a recording in order, including reads and writes, with their flags; empty in other formats.
    pub recorded: Vec<RecordedRequest>,
    /// Records that do not match the format, with their number in this batch, from 0.
    pub malformed: Vec<(u64, Malformed)>,
    /// The number of records of any kind.
    pub records: u64,
    /// The number of records skipped because they have no data: trims, flushes, requests of length 0.
    pub skipped: u64,
    /// Skipped lines to report to the user.
    pub passed_over: PassedOver,
}

/// The error of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The text found.
    pub found: String,
    /// A description of the expected text.
    pub expected: String,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "found {}, expected {}", self.found, self.expected)
    }
}

impl Malformed {
    /// Creates the error that `found` is in the place of `expected`.
    #[cold]
    #[inline(never)]
    pub fn new(found: &[u8], expected: impl Into<String>) -> Self {
        const SHOWN_MAX: usize = 80;
        let text = String::from_utf8_lossy(&found[..found.len().min(SHOWN_MAX)]).into_owned();
        let more = if found.len() > SHOWN_MAX { "..." } else { "" };
        Malformed { found: format!("{text:?}{more}"), expected: expected.into() }
    }
}

/// The parsed contents of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// A request.
    Request(Request),
    /// A request of a recording; other operations than reads and writes count as skipped.
    Recorded(RecordedRequest),
    /// An operation without data, counted as skipped.
    Skipped,
    /// A skipped line to report to the user; if it is a request, it also counts as skipped.
    PassedOver(Reason),
    /// A header, comment or blank line, not counted.
    Ignored,
}

impl Batch {
    #[inline(always)]
    fn push(&mut self, record: Result<Record, Malformed>, volume_bytes_max: u64) {
        match record {
            Ok(Record::Request(request)) if request.length_bytes > 0 => match check(&request, volume_bytes_max) {
                Ok(()) => self.requests.push(request),
                Err(malformed) => self.malformed.push((self.records, malformed)),
            },
            Ok(Record::Recorded(request)) => {
                self.recorded.push(request);
                match request.access().filter(|access| access.length_bytes > 0) {
                    Some(access) => self.requests.push(access),
                    None => self.skipped += 1,
                }
            }
            Ok(Record::Request(_) | Record::Skipped) => self.skipped += 1,
            Ok(Record::PassedOver(reason)) => {
                self.passed_over.push(reason);
                self.skipped += u64::from(matches!(reason, Reason::NoData | Reason::NoOp | Reason::Empty));
            }
            Ok(Record::Ignored) => {}
            Err(malformed) => self.malformed.push((self.records, malformed)),
        }
        self.records += 1;
    }
}

/// Rejects requests that no device can have served.
#[inline(always)]
fn check(request: &Request, volume_bytes_max: u64) -> Result<(), Malformed> {
    let Request { offset_bytes, length_bytes, .. } = *request;
    if length_bytes > REQUEST_BYTES_MAX {
        let expected = format!("at most {REQUEST_BYTES_MAX}");
        return Err(Malformed { found: format!("a request of {length_bytes} bytes"), expected });
    }
    if offset_bytes > volume_bytes_max - length_bytes {
        let found = format!("a request of {length_bytes} bytes at byte {offset_bytes}");
        return Err(Malformed { found, expected: format!("one that ends at byte {volume_bytes_max} or before") });
    }
    Ok(())
}

/// A format of lines.
pub trait ParseLine: Debug + Send + Sync {
    /// Parses a line, which is not empty and has no line end.
    fn line(&self, line: &[u8], volumes: &mut Volumes) -> Result<Record, Malformed>;

    /// Returns its columns and units, which are checked against the first lines of a trace; `None` skips the check.
    fn layout(&self) -> Option<plausible::Layout> {
        None
    }

    /// Returns the same parser for lines in these units, if `csv` cannot read the lines and their units are options.
    fn in_units(&self, _units: UnitOptions) -> Option<Box<dyn ParseLine>> {
        None
    }

    /// See [`Parse::reading`].
    fn reading(&self, sample: &Sample) -> Result<Option<Reading>, Malformed> {
        let Some(layout) = self.layout() else { return Ok(None) };
        let doubts = plausible::check(&layout, self, sample)?;
        Ok((!doubts.is_empty()).then(|| Reading { columns: String::new(), doubts }))
    }

    /// True if lines name the process of a request.
    fn names_processes(&self) -> bool {
        false
    }

    /// Returns the process of a line that is a request: its pid and the name of its program.
    fn process(&self, _line: &[u8]) -> Client {
        Client::default()
    }
}

/// The parser of a format of lines.
#[derive(Debug)]
pub struct Lines<P>(pub P);

impl<P: ParseLine> Lines<P> {
    /// Parses lines into `batch`, and calls the function after each line.
    #[inline(always)]
    fn parse_each(&self, records: &[u8], batch: &mut Batch, mut after_line: impl FnMut(&[u8], &mut Batch)) {
        // Reserves space for lines of this length; for shorter ones it grows.
        const LINE_BYTES: usize = 24;
        batch.requests.reserve(records.len() / LINE_BYTES);
        let has_returns = memchr::memchr(b'\r', records).is_some();
        let mut rest = records;
        while !rest.is_empty() {
            let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
            let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
            let record = match line {
                [] => Ok(Record::Ignored),
                line if has_returns && line.contains(&b'\r') => Err(lone_return(line)),
                line => match self.0.line(line, &mut batch.volumes) {
                    Ok(Record::Request(Request { length_bytes: 0, .. })) => Ok(Record::PassedOver(Reason::Empty)),
                    Ok(Record::Skipped) => Ok(Record::PassedOver(Reason::NoData)),
                    record => record,
                },
            };
            batch.push(record, VOLUME_BYTES_MAX);
            after_line(line, batch);
            rest = rest.get(end + 1..).unwrap_or_default();
        }
    }
}

/// Returns the error for a line with a carriage return in it: it would be several lines if only some lines end in
/// newlines.
#[cold]
fn lone_return(line: &[u8]) -> Malformed {
    Malformed::new(line, "no carriage return within a line that ends in a newline")
}

impl<P: ParseLine + 'static> Parse for Lines<P> {
    fn framing(&self) -> Framing {
        Framing::Lines
    }

    fn layout(&self) -> Option<plausible::Layout> {
        self.0.layout()
    }

    fn reading(&self, sample: &Sample) -> Result<Option<Reading>, Malformed> {
        self.0.reading(sample)
    }

    fn parse(&self, records: &[u8], batch: &mut Batch) {
        self.parse_each(records, batch, |_, _| ());
    }

    fn filtered(self: Box<Self>, filter: Filter) -> Option<Parser> {
        self.0.names_processes().then(|| Box::new(FilteredLines { lines: *self, filter }) as Parser)
    }
}

/// The parser of a format of lines that name processes, with the I/O filter that decides which processes are cached.
#[derive(Debug)]
struct FilteredLines<P> {
    lines: Lines<P>,
    filter: Filter,
}

impl<P: ParseLine + 'static> Parse for FilteredLines<P> {
    fn framing(&self) -> Framing {
        Framing::Lines
    }

    fn parse(&self, records: &[u8], batch: &mut Batch) {
        self.lines.parse_each(records, batch, |line, batch| {
            if batch.requests.len() > batch.caching.len() {
                batch.caching.push(self.filter.caching(&self.lines.0.process(line)));
            }
        });
    }
}

/// A format of records of `N` bytes.
pub trait ParseRecord<const N: usize>: Debug + Send + Sync {
    /// The maximum end of a volume, in bytes.
    const VOLUME_BYTES_MAX: u64 = VOLUME_BYTES_MAX;

    /// Parses a record.
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
        batch.requests.reserve(whole.len());
        for record in whole {
            let record = self.0.record(record, &mut batch.volumes);
            batch.push(record, P::VOLUME_BYTES_MAX);
        }
        if !rest.is_empty() {
            let expected = format!("a record of {N} bytes");
            let found = format!("the last {} bytes", rest.len());
            batch.push(Err(Malformed { found, expected }), P::VOLUME_BYTES_MAX);
        }
    }
}

/// A format and its options as the user wrote them: `msr`, `csv:time=0,offset=3`.
#[derive(Clone, Debug)]
pub struct FormatSpec {
    format: &'static Format,
    options: Options,
}

impl std::str::FromStr for FormatSpec {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<FormatSpec, OptionError> {
        let (format, options) = named("trace format", text, FORMATS.iter(), |format| format.name)?;
        Ok(FormatSpec { format, options: Options::parse(format.name, format.parameters, options)? })
    }
}

/// Writes the format with all of its options, including defaults.
impl fmt::Display for FormatSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.format.name)?;
        for (at, Parameter { name, .. }) in self.format.parameters.iter().enumerate() {
            write!(f, "{}{name}={}", if at == 0 { ':' } else { ',' }, self.options.text(name))?;
        }
        Ok(())
    }
}

impl FormatSpec {
    /// Returns the format.
    pub fn format(&self) -> &'static Format {
        self.format
    }

    /// Recognises the format of the trace at `path`, which begins with `sample`, from its contents.
    pub fn recognise(path: &str, sample: &Sample) -> Result<FormatSpec, TraceError> {
        let fits: Vec<_> = FORMATS.iter().map(|&format| (format, (format.recognise)(sample))).collect();
        let with = |wanted: fn(Fit) -> bool| -> Vec<&'static Format> {
            fits.iter().filter(|(_, fit)| wanted(*fit)).map(|(format, _)| *format).collect()
        };
        let names = |formats: &[&Format]| formats.iter().map(|format| format.name).collect::<Vec<_>>().join(", ");
        let path = path.to_owned();
        let special = with(|fit| matches!(fit, Fit::Yes | Fit::Unsure(_)));
        let fitting = if special.is_empty() { with(|fit| fit == Fit::Generic) } else { special };
        let [format] = fitting[..] else {
            return Err(match fitting[..] {
                [] => Self::unrecognised(path, sample, names(FORMATS)),
                _ => TraceError::Ambiguous { path, formats: names(&fitting) },
            });
        };
        for (format, fit) in &fits {
            if let Fit::Unsure(why) = fit {
                let example = plausible::example(&[*format], sample);
                return Err(TraceError::Unsure { path, format: format.name, why, example });
            }
        }
        Ok(FormatSpec { format, options: Options::parse(format.name, format.parameters, "")? })
    }

    /// Returns the error that the trace at `path`, which begins with `sample`, matches none of the `formats`.
    fn unrecognised(path: String, sample: &Sample, formats: String) -> TraceError {
        if let Some((found, expected)) = foreign::named(sample.bytes) {
            return TraceError::Contradiction { path, found: found.to_owned(), expected: expected.to_owned() };
        }
        match csv::first_refused(sample) {
            Some(Err((line, Malformed { found, expected }))) => {
                TraceError::Malformed { path, place: Place::Line(line), found, expected }
            }
            Some(Ok(())) if sample.whole => TraceError::Empty { path },
            _ => {
                let example = plausible::example(FORMATS, sample);
                TraceError::Unrecognised { path, found: Malformed::new(sample.bytes, "").found, formats, example }
            }
        }
    }

    /// Creates a parser for a trace that begins with `sample` and is divided into blocks of `block_size_bytes`.
    pub fn parser(&self, sample: &Sample, block_size_bytes: u64) -> Result<Parser, OptionError> {
        (self.format.parser)(&self.options, sample, block_size_bytes)
    }
}
