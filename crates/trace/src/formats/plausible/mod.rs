//! One check for all formats of lines: a reading that the first lines contradict is refused, with the columns and units that fit.
//!
//! Many programs write the columns of a known format in other units, or in another order. Such a file parses, and every figure of it is
//! wrong. The check compares times with dates and rates, and offsets and lengths with sectors and pages (`units.rs`), and columns with
//! what they should hold. Its error has a complete `--format csv:...`, whose units are the user's and are not questioned.

use flashwise_core::access::Op;
use flashwise_core::options::Options;

use super::fields::{TimeUnit, Words, time_us};
use super::spellings::known_op;
use super::{Format, Malformed, ParseLine, Record, Sample};
use crate::request::Volumes;
use crate::settings::DEFAULT_BLOCK_SIZE_BYTES;

mod columns;
mod guess;
mod units;

pub use columns::Columns;
pub use units::{
    Extents, Fault, Habits, LINES_MIN, Moment, Origin, Units, date_words, distinct, epoch_of, likely_time, time_fault,
};

/// The operation that a word says, if it is one.
pub type OpOf = fn(&[u8]) -> Option<Op>;

/// The columns of a format of lines, by number from 0, and their units.
#[derive(Clone, Debug)]
pub struct Layout {
    /// What parts the columns; blanks if absent.
    pub separator: Option<u8>,
    /// The columns of a line, if more blanks than there are between columns stand in one of them, and which one that is.
    pub blanks_in: Option<(usize, usize)>,
    /// The column of the time, and its unit.
    pub time: Option<(usize, TimeUnit)>,
    /// The column of the operation.
    pub op: Option<usize>,
    /// What a word of that column says; absent if `csv` knows the words.
    pub op_of: Option<OpOf>,
    /// The column of the offset, and the bytes of its unit.
    pub offset: (usize, u64),
    /// The column of the length, and the bytes of its unit.
    pub length: (usize, u64),
    /// The columns that name the volume, at most two.
    pub volume: &'static [usize],
    /// In which ways it differs from a plain table of block requests.
    pub habits: Habits,
}

/// A format of fields parted by commas, to begin a layout from.
pub const COMMAS: Layout = Layout {
    separator: Some(b','),
    blanks_in: None,
    time: None,
    op: None,
    op_of: None,
    offset: (0, 1),
    length: (1, 1),
    volume: &[],
    habits: Habits { dated: false, any_bytes: false, short: false, streaming: false },
};

/// The same of words parted by blanks.
pub const BLANKS: Layout = Layout { separator: None, ..COMMAS };

impl Layout {
    /// The fields of `line`.
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

    /// Columns up to the last that is read.
    fn width(&self) -> usize {
        let columns = [self.offset.0, self.length.0, self.op.unwrap_or_default(), self.time.map_or(0, |(at, _)| at)];
        columns.into_iter().chain(self.volume.iter().copied()).max().map_or(0, |last| last + 1)
    }

    /// True if `fields` are what stands in the columns, in any units.
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

/// The layout of a format, if it has one.
fn layout(format: &Format) -> Option<Layout> {
    let options = Options::default_of(format.parameters);
    let parser = (format.parser)(&options, &Sample { bytes: b"", whole: true }, DEFAULT_BLOCK_SIZE_BYTES);
    parser.ok()?.layout()
}

/// The value of `--format` that is likely to read a text in the columns of one of `formats` in unknown units, or a table of no format.
pub fn example(formats: &[&Format], sample: &Sample) -> String {
    const GENERAL: &str = "csv:time=0,op=1,offset=2,length=3";
    // Numbers alone have no shape.
    for layout in formats.iter().filter_map(|format| layout(format)).filter(|layout| layout.op.is_some()) {
        let lines: Vec<Vec<&[u8]>> = sample.lines().map(|line| layout.fields(line)).collect();
        let rows: Vec<Vec<&[u8]>> = lines.iter().filter(|fields| layout.fits(fields)).cloned().collect();
        // The last column of a known format may be missing.
        let is_whole = rows.iter().all(|fields| fields.len() <= layout.width() + 2);
        if rows.len() >= LINES_MIN && is_whole && 20 * rows.len() >= 19 * lines.len() {
            return Columns::new(&layout, &rows).likely().line();
        }
    }
    let requests = guess::table(sample).map(|fitting| fitting.line());
    requests.or_else(|| guess::objects(sample)).unwrap_or_else(|| GENERAL.to_owned())
}

/// Checks that the first lines of a trace are plausible in the columns and units of `layout`.
///
/// # Errors
/// What contradicts them, and the `--format csv:...` that fits.
pub fn check(layout: &Layout, parser: &(impl ParseLine + ?Sized), sample: &Sample) -> Result<(), Malformed> {
    let mut volumes = Volumes::default();
    let lines = sample.lines().filter(|line| matches!(parser.line(line, &mut volumes), Ok(Record::Request(_))));
    let rows: Vec<Vec<&[u8]>> = lines.map(|line| layout.fields(line)).collect();
    if rows.len() < LINES_MIN {
        return Ok(());
    }
    match Columns::new(layout, &rows).contradiction() {
        Some((found, fitting)) => {
            let Malformed { found, expected } = fitting.refusal(found);
            // In another format lines of other events are requests, and words in a name are columns.
            let others = sample.lines().count() - rows.len();
            let has_words = |(width, _)| {
                layout.separator.is_none() && sample.lines().any(|line| Words::new(line).all().count() > width)
            };
            let first = match layout.blanks_in {
                _ if layout.habits.streaming && 20 * others > rows.len() => "lines of one action alone, and ",
                Some(blanks) if has_words(blanks) => "names of processes without blanks, and ",
                _ => "",
            };
            Err(Malformed { found, expected: format!("{first}{expected}") })
        }
        None => Ok(()),
    }
}

/// Columns and units that fit a trace.
#[derive(Clone, Debug)]
pub struct Fitting {
    /// The columns as `--format` names them, and other options that are needed, without units.
    pub spec: String,
    /// The unit of time, if there are times.
    pub time: Option<TimeUnit>,
    /// Bytes in a unit of offset, if there are offsets.
    pub offset_bytes: Option<u64>,
    /// Bytes in a unit of length.
    pub length_bytes: Option<u64>,
}

impl Fitting {
    /// The complete value of `--format`.
    pub fn line(&self) -> String {
        let mut line = self.spec.clone();
        if let Some(unit) = self.time {
            line += &format!(",time-unit={}", unit.word());
        }
        if let Some(bytes) = self.offset_bytes {
            line += &format!(",offset-unit={bytes}");
        }
        if let Some(bytes) = self.length_bytes {
            line += &format!(",length-unit={bytes}");
        }
        line
    }

    /// The refusal of a trace in which `found` stands.
    pub fn refusal(&self, found: String) -> Malformed {
        let expected = format!(
            "other columns or units; if these are right, read it with --format {} (units that this option gives are not questioned)",
            self.line()
        );
        Malformed { found, expected }
    }
}
