//! Checks for all formats of lines that the first lines are plausible. An implausible reading is rejected, with the
//! columns and units that fit.
//!
//! Many programs write the columns of a known format in other units, or in another order. Such a file parses, but all
//! its figures are wrong. The check compares times with dates and rates, offsets and lengths with sectors and pages
//! (`units.rs`), and columns with their expected contents. Its error suggests a complete `--format ...`; units that the
//! user gives are not checked. A unit of time without evidence is not an error: a note names it with the resulting
//! rate.

use flashwise_core::access::Op;
use flashwise_core::options::Options;

use super::fields::{TimeUnit, Words, time_us};
use super::spellings::known_op;
use super::unit_options::{PLAIN, UnitOptions};
use super::{Format, Malformed, ParseLine, Record, Sample};
use crate::request::{Request, Volumes};
use crate::settings::DEFAULT_BLOCK_SIZE_BYTES;

mod columns;
mod guess;
mod units;

pub use columns::{Columns, moment};
pub use units::{
    Extents, Fault, Habits, LINES_MIN, Moment, Origin, Origins, Units, date_words, distinct, epoch_of, likely_time,
    time_doubt, time_fault,
};

/// Parses the operation of a word, if it is one.
pub type OpOf = fn(&[u8]) -> Option<Op>;

/// The columns of a format of lines, by number from 0, and their units.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The separator of the columns; blanks if absent.
    pub separator: Option<u8>,
    /// If one column can contain blanks: the number of columns in a line, and the number of that column.
    pub blanks_in: Option<(usize, usize)>,
    /// The column of the time, and its unit.
    pub time: Option<(usize, TimeUnit)>,
    /// The column of the operation.
    pub op: Option<usize>,
    /// The parser of the words in that column; absent if `csv` knows the words.
    pub op_of: Option<OpOf>,
    /// The column of the offset, and its unit in bytes.
    pub offset: (usize, u64),
    /// The column of the length, and its unit in bytes.
    pub length: (usize, u64),
    /// The columns that name the volume, at most two.
    pub volume: Vec<usize>,
    /// The differences to a plain table of block requests.
    pub habits: Habits,
    /// The source of each unit.
    pub origins: Origins,
    /// The value of `--format` that accepts units as options, if the format has one.
    pub spec: Option<String>,
}

/// A layout of fields separated by commas, to start from.
pub const COMMAS: Layout = parted(Some(b','));

/// A layout of words separated by blanks, to start from.
pub const BLANKS: Layout = parted(None);

const fn parted(separator: Option<u8>) -> Layout {
    Layout {
        separator,
        blanks_in: None,
        time: None,
        op: None,
        op_of: None,
        offset: (0, 1),
        length: (1, 1),
        volume: Vec::new(),
        habits: Habits {
            dated: false,
            decimals: false,
            any_bytes: false,
            short: false,
            streaming: false,
            pages_beside_sectors: false,
        },
        origins: Origins { time: Origin::Format, offset: Origin::Format, length: Origin::Format },
        spec: None,
    }
}

/// Returns the layout of a format whose columns `csv` cannot read: the columns are those of [`numbers`].
pub fn unparted(habits: Habits) -> Layout {
    Layout { time: Some((0, TimeUnit::Seconds)), offset: (1, 1), length: (2, 1), volume: vec![3], habits, ..BLANKS }
}

impl Layout {
    /// Returns the layout in `units`. Errors name `spec`: the format and its options except units.
    pub fn in_units(self, units: UnitOptions, spec: &str) -> Layout {
        let [time, offset, length] =
            units.are_given.map(|is_given| if is_given { Origin::Option } else { Origin::Format });
        Layout {
            time: self.time.map(|(column, _)| (column, units.time)),
            offset: (self.offset.0, units.offset_bytes),
            length: (self.length.0, units.length_bytes),
            origins: Origins { time, offset, length },
            spec: Some(spec.to_owned()),
            ..self
        }
    }

    /// Returns the contradiction to the layout's units at the beginning or the end of `requests`, if any. The requests
    /// are from the middle of a trace whose first lines are plausible.
    pub fn changed(&self, requests: &[Request]) -> Option<String> {
        const REQUESTS: usize = 200;
        let last = requests.len().checked_sub(REQUESTS)?;
        [&requests[..REQUESTS], &requests[last..]].into_iter().find_map(|requests| self.contradicted(requests))
    }

    fn contradicted(&self, requests: &[Request]) -> Option<String> {
        let (offset, length) = (self.offset.1, self.length.1);
        let extents = Extents {
            starts: requests.iter().map(|request| request.offset_bytes / offset).collect(),
            lengths: requests.iter().map(|request| request.length_bytes / length).collect(),
        };
        let units = Units { offset: (offset, self.origins.offset), length: (length, self.origins.length) };
        extents.fault(units, self.habits).map(|fault| fault.found)
    }

    /// Splits `line` into fields.
    fn fields<'a>(&self, line: &'a [u8]) -> Vec<&'a [u8]> {
        let mut fields: Vec<&[u8]> = match self.separator {
            Some(separator) => line.split(|byte| *byte == separator).collect(),
            None => Words::new(line).all().collect(),
        };
        if let Some((width, column)) = self.blanks_in
            && fields.len() > width
        {
            fields.drain(column..column + fields.len() - width);
        }
        fields
    }

    /// Returns the number of columns up to the last that is read.
    fn width(&self) -> usize {
        let columns = [self.offset.0, self.length.0, self.op.unwrap_or_default(), self.time.map_or(0, |(at, _)| at)];
        columns.into_iter().chain(self.volume.iter().copied()).max().map_or(0, |last| last + 1)
    }

    /// True if `fields` match the columns, in any units.
    fn fits(&self, fields: &[&[u8]]) -> bool {
        let is_number =
            |at: usize| fields.get(at).is_some_and(|field| time_us(field, TimeUnit::Microseconds, "").is_ok());
        let op_of = self.op_of.unwrap_or(|word| known_op(word).ok().flatten());
        let is_op = |at: usize| fields.get(at).is_some_and(|word| op_of(word).is_some());
        self.time.is_none_or(|(at, _)| is_number(at))
            && is_number(self.offset.0)
            && is_number(self.length.0)
            && self.op.is_none_or(is_op)
            && self.volume.iter().all(|at| *at < fields.len())
    }
}

/// Returns the layout of a format, if it has one.
fn layout(format: &Format) -> Option<Layout> {
    let options = Options::default_of(format.parameters);
    let parser = (format.parser)(&options, &Sample { bytes: b"", whole: true }, DEFAULT_BLOCK_SIZE_BYTES);
    parser.ok()?.layout()
}

/// Returns a likely value of `--format` for a text. The text is in one of `formats` with unknown units, or a table of
/// unknown format.
pub fn example(formats: &[&Format], sample: &Sample) -> String {
    const GENERAL: &str = "csv:time=0,op=1,offset=2,length=3";
    // Columns that are all numbers cannot be recognised.
    for layout in formats.iter().filter_map(|format| layout(format)).filter(|layout| layout.op.is_some()) {
        let lines: Vec<Vec<&[u8]>> = sample.lines().map(|line| layout.fields(line)).collect();
        let rows: Vec<Vec<&[u8]>> = lines.iter().filter(|fields| layout.fits(fields)).cloned().collect();
        // The last column of a known format can be missing.
        let is_whole = rows.iter().all(|fields| fields.len() <= layout.width() + 2);
        if rows.len() >= LINES_MIN && is_whole && 20 * rows.len() >= 19 * lines.len() {
            return Columns::new(&layout, &rows).likely().line();
        }
    }
    let requests = guess::table(sample).map(|fitting| fitting.line());
    requests.or_else(|| guess::objects(sample)).unwrap_or_else(|| GENERAL.to_owned())
}

/// Returns the times, offsets, lengths and volumes of the requests of `sample`, as texts in their original units.
fn numbers(parser: &(impl ParseLine + ?Sized), sample: &Sample) -> Option<Vec<[String; 4]>> {
    let whole = parser.in_units(PLAIN)?;
    let in_millionths = parser.in_units(UnitOptions::new(TimeUnit::Seconds, 1, 1))?;
    let mut volumes = Volumes::default();
    let mut row = |line| {
        let Ok(Record::Request(request)) = whole.line(line, &mut volumes) else { return None };
        let millionths = match in_millionths.line(line, &mut volumes) {
            Ok(Record::Request(request)) => request.time_us % 1_000_000,
            _ => 0,
        };
        let time = match millionths {
            0 => request.time_us.to_string(),
            _ => format!("{}.{millionths:06}", request.time_us),
        };
        let Request { offset_bytes, length_bytes, volume, .. } = request;
        Some([time, offset_bytes.to_string(), length_bytes.to_string(), volume.to_string()])
    };
    Some(sample.lines().filter_map(&mut row).collect())
}

/// Checks that the first lines of a trace are plausible in the columns and units of `layout`. Returns notes for the
/// user about units without evidence.
///
/// # Errors
/// A contradiction, and the `--format ...` that fits.
pub fn check(layout: &Layout, parser: &(impl ParseLine + ?Sized), sample: &Sample) -> Result<Vec<String>, Malformed> {
    let mut volumes = Volumes::default();
    let numbers = numbers(parser, sample);
    let rows: Vec<Vec<&[u8]>> = match &numbers {
        Some(numbers) => numbers.iter().map(|row| row.iter().map(String::as_bytes).collect()).collect(),
        None => {
            let lines = sample.lines().filter(|line| match parser.line(line, &mut volumes) {
                Ok(Record::Request(_)) => true,
                Ok(Record::Recorded(request)) => request.access().is_some(),
                _ => false,
            });
            lines.map(|line| layout.fields(line)).collect()
        }
    };
    if rows.len() < LINES_MIN {
        return Ok(Vec::new());
    }
    let columns = Columns::new(layout, &rows);
    let Some(Contradiction { found, fitting, is_moved }) = columns.contradiction() else {
        return Ok(columns.doubts());
    };
    // For `csv`, lines of other events would be requests, and words in a name would be columns.
    let has_others = 20 * (sample.lines().count() - rows.len()) > rows.len();
    let has_words =
        |(width, _)| layout.separator.is_none() && sample.lines().any(|line| Words::new(line).all().count() > width);
    let is_readable = numbers.is_none() && !has_others && !layout.blanks_in.is_some_and(has_words);
    if is_moved && layout.spec.is_some() && !is_readable {
        let found = "swapped times, offsets or lengths".to_owned();
        let expected = "the columns in the order of the format, which no --format changes".to_owned();
        return Err(Malformed { found, expected });
    }
    Err(fitting.refusal(found))
}

/// A contradiction to a layout.
#[derive(Clone, Debug)]
pub struct Contradiction {
    /// The contradicting text.
    pub found: String,
    /// The columns and units that fit.
    pub fitting: Fitting,
    /// True if columns are swapped.
    pub is_moved: bool,
}

/// Columns and units that fit a trace.
#[derive(Clone, Debug)]
pub struct Fitting {
    /// The columns as `--format` names them, and other required options, without units.
    pub spec: String,
    /// The unit of time, if there are times.
    pub time: Option<TimeUnit>,
    /// The unit of offsets in bytes, if there are offsets.
    pub offset_bytes: Option<u64>,
    /// The unit of lengths in bytes.
    pub length_bytes: Option<u64>,
    /// True if several units of time are possible.
    pub is_time_guessed: bool,
}

impl Fitting {
    /// Returns the complete value of `--format`.
    pub fn line(&self) -> String {
        let units = [
            self.time.map(|unit| format!("time-unit={}", unit.word())),
            self.offset_bytes.map(|bytes| format!("offset-unit={bytes}")),
            self.length_bytes.map(|bytes| format!("length-unit={bytes}")),
        ];
        let units: Vec<String> = units.into_iter().flatten().collect();
        let separator = if self.spec.contains(':') { ',' } else { ':' };
        format!("{}{separator}{}", self.spec, units.join(","))
    }

    /// Returns the error for a trace with the contradiction `found`.
    pub fn refusal(&self, found: String) -> Malformed {
        let guess = if self.is_time_guessed { "; its unit of time is a guess from the rate of requests" } else { "" };
        let line = self.line();
        let expected = format!(
            "other columns or units: use --format {line} if these are right (flashwise does not check units that you \
             name{guess})"
        );
        Malformed { found, expected }
    }
}
