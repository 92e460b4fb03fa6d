//! Trace formats: one file each, and one row each in [`FORMATS`].
//!
//! A format cuts a trace's bytes into records (lines, or a fixed number of bytes) and turns each record into a [`Request`], or
//! into nothing (headers, comments, requests other than reads and writes). Records are parsed apart from each other, so that
//! chunks of a trace parse in parallel.

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
        /// Every format, in the order in which they are listed.
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
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, in a few words.
    pub title: &'static str,
    /// Its columns, and who defines it.
    pub source: &'static str,
    /// What can be set: `--format name:key=value`.
    pub parameters: &'static [Parameter],
    /// Whether a trace that begins with this sample is in this format.
    pub recognise: fn(&Sample) -> Fit,
    /// A parser for a trace that begins with this sample and is cut into blocks of this many bytes. The sample settles what holds
    /// for the whole trace, such as the order of columns in a header or which of several versions it is; the block size matters
    /// where a trace numbers blocks and not bytes.
    pub parser: fn(&Options, &Sample, u64) -> Result<Parser, OptionError>,
}

/// How well a trace's first bytes fit a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// They are not in this format.
    No,
    /// They are in this format, unless they are in another one too.
    Yes,
    /// They can be read so, if nothing more special fits.
    Generic,
    /// They have the shape of this format and of others with other units; this says which.
    Unsure(&'static str),
}

/// The longest request, in bytes: Linux cannot make longer ones, and what is longer is damage.
pub const REQUEST_BYTES_MAX: u64 = 1 << 32;
/// Where volumes end at the latest: far enough for any block size, and not yet too far for a
/// [`BlockAddress`](crate::normalised::numbering::BlockAddress) in blocks of 512 bytes.
pub const VOLUME_BYTES_MAX: u64 = 1 << (crate::normalised::numbering::BLOCK_BITS + 9);

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

    /// Whether a format of lines fits: the first line that is not ignored parses, and at least half of the first hundred do, so that a
    /// damaged line is reported as such and not as an unknown format.
    fn fit_lines(&self, parser: &impl ParseLine) -> Fit {
        const LINES_MAX: usize = 100;
        let mut volumes = Volumes::default();
        let mut records = self.lines().map(|line| parser.line(line, &mut volumes));
        let says_nothing = |record: &Result<Record, Malformed>| {
            matches!(record, Ok(Record::Ignored | Record::PassedOver(Reason::Comment | Reason::Header)))
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

/// How a trace's bytes are cut into records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// At newlines; a carriage return before them is dropped.
    Lines,
    /// At multiples of a length.
    Records {
        /// Length of a record.
        bytes: usize,
    },
    /// At ends that [`Parse::whole`] finds: records differ in length, or follow a header.
    Varied,
}

impl Framing {
    /// Where the record with this number stands, from 0.
    pub fn place(self, record: u64) -> Place {
        match self {
            Framing::Lines => Place::Line(record + 1),
            Framing::Records { bytes } => Place::Byte(record * bytes as u64),
            Framing::Varied => Place::Record(record + 1),
        }
    }
}

/// Parses the records of one format.
pub trait Parse: Debug + Send + Sync {
    /// How the bytes are cut.
    fn framing(&self) -> Framing;

    /// Length of the whole records at the beginning of `bytes`, which begin with a record and go on.
    fn whole(&self, bytes: &[u8]) -> usize {
        match self.framing() {
            Framing::Lines => memchr::memrchr(b'\n', bytes).map_or(0, |newline| newline + 1),
            Framing::Records { bytes: length } => bytes.len() / length * length,
            Framing::Varied => bytes.len(),
        }
    }

    /// Parses whole records; the last line may lack its newline.
    fn parse(&self, records: &[u8], batch: &mut Batch);

    /// The columns of a format of lines and their units, if it has any.
    fn layout(&self) -> Option<plausible::Layout> {
        None
    }

    /// How a trace that begins with `sample` is read, where its format leaves that open.
    ///
    /// # Errors
    /// What cannot be right, and what the user should say instead.
    fn reading(&self, _sample: &Sample) -> Result<Option<Reading>, Malformed> {
        Ok(None)
    }

    /// The parser that also tells what `filter` says of the process of each request; none where the format has no processes.
    fn filtered(self: Box<Self>, _filter: Filter) -> Option<Parser> {
        None
    }

    /// Whether a compressed trace may end in the middle, as where its writer was killed.
    fn may_be_cut(&self) -> bool {
        false
    }
}

/// How a trace is read whose format leaves open what its columns are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// The columns and their units, as `--format` names them, and what says so; empty if the format names them.
    pub columns: String,
    /// What looks as if it were meant otherwise.
    pub doubts: Vec<String>,
}

/// What became of a run of records.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Requests in order; their volumes are numbers in `volumes`.
    pub requests: Vec<Request>,
    /// The volumes seen in this batch.
    pub volumes: Volumes,
    /// What the I/O filter says of each of `requests`, where one was set; else empty.
    pub caching: Vec<Caching>,
    /// All requests of a recording in order, reads and writes once more, with their flags; empty in other formats.
    pub recorded: Vec<RecordedRequest>,
    /// Records that are not what the format says, with their number in this batch, from 0.
    pub malformed: Vec<(u64, Malformed)>,
    /// Records seen, of any kind.
    pub records: u64,
    /// Records passed over because they ask for no data: trims, flushes, requests of length 0.
    pub skipped: u64,
    /// Lines passed over that the user should know of.
    pub passed_over: PassedOver,
}

/// What is wrong with a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// What stands there.
    pub found: String,
    /// What should.
    pub expected: String,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "found {}, expected {}", self.found, self.expected)
    }
}

impl Malformed {
    /// `found` stands where `expected` should.
    #[cold]
    #[inline(never)]
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
    /// A request of a recording; what is neither a read nor a write is counted as skipped.
    Recorded(RecordedRequest),
    /// An operation that asks for no data, counted as skipped.
    Skipped,
    /// A line that the user should know is passed over; if it is a request, it is counted as skipped too.
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

/// Refuses requests that no device can have served.
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
    /// What a line, without its end and not empty, says.
    fn line(&self, line: &[u8], volumes: &mut Volumes) -> Result<Record, Malformed>;

    /// Its columns and units, which are checked against the first lines of a trace; `None` to read any that parse.
    fn layout(&self) -> Option<plausible::Layout> {
        None
    }

    /// The same parser of lines in these units, if `csv` cannot read the lines and their units are options.
    fn in_units(&self, _units: UnitOptions) -> Option<Box<dyn ParseLine>> {
        None
    }

    /// See [`Parse::reading`].
    fn reading(&self, sample: &Sample) -> Result<Option<Reading>, Malformed> {
        let Some(layout) = self.layout() else { return Ok(None) };
        let doubts = plausible::check(&layout, self, sample)?;
        Ok((!doubts.is_empty()).then(|| Reading { columns: String::new(), doubts }))
    }

    /// Whether lines name the process that asked.
    fn names_processes(&self) -> bool {
        false
    }

    /// The process of a line that is a request: its pid and the name of its program.
    fn process(&self, _line: &[u8]) -> Client {
        Client::default()
    }
}

/// The parser of a format of lines.
#[derive(Debug)]
pub struct Lines<P>(pub P);

impl<P: ParseLine> Lines<P> {
    /// Parses lines into `batch`, and tells `told` of each when it is there.
    #[inline(always)]
    fn parse_each(&self, records: &[u8], batch: &mut Batch, mut told: impl FnMut(&[u8], &mut Batch)) {
        // Room for lines of this length; of shorter ones there are more, and it grows.
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
            told(line, batch);
            rest = rest.get(end + 1..).unwrap_or_default();
        }
    }
}

/// A line with a carriage return in it is two or more where only some lines end in newlines.
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

/// The parser of a format of lines that name processes, with the I/O filter that says which of these are cached.
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
    /// Where volumes end at the latest.
    const VOLUME_BYTES_MAX: u64 = VOLUME_BYTES_MAX;

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

/// A format and its options as a user wrote them: `msr`, `csv:time=0,offset=3`.
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

/// The format with all of its options, those that were not given too.
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
    /// The format that is meant.
    pub fn format(&self) -> &'static Format {
        self.format
    }

    /// The format of the trace at `path` that begins with `sample`, recognised from its contents.
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

    /// Why the trace at `path`, which begins with `sample`, is of none of the `formats`.
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

    /// A parser for a trace that begins with `sample` and is cut into blocks of `block_size_bytes`.
    pub fn parser(&self, sample: &Sample, block_size_bytes: u64) -> Result<Parser, OptionError> {
        (self.format.parser)(&self.options, sample, block_size_bytes)
    }
}
