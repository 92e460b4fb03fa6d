//! Detects columns that do not hold the values of their format: swapped times, offsets, lengths and volumes.

use flashwise_core::access::Op;

use super::super::fields::{TimeUnit, decimal, time_us};
use super::{
    Contradiction, Extents, Fault, Fitting, Layout, Moment, Origin, Units, distinct, epoch_of, likely_time, time_doubt,
    time_fault,
};
use flashwise_core::human::bytes;

/// The column of each role.
#[derive(Clone, Debug, PartialEq)]
pub struct Places {
    pub time: Option<usize>,
    pub offset: usize,
    pub length: usize,
    pub volume: Vec<usize>,
}

impl Places {
    fn has(&self, column: usize) -> bool {
        self.time == Some(column) || [self.offset, self.length].contains(&column) || self.volume.contains(&column)
    }

    /// Returns the places with the contents of two columns swapped.
    fn swapped(&self, one: usize, other: usize) -> Places {
        let place = |column: usize| match column {
            _ if column == one => other,
            _ if column == other => one,
            _ => column,
        };
        Places {
            time: self.time.map(place),
            offset: place(self.offset),
            length: place(self.length),
            volume: self.volume.iter().map(|column| place(*column)).collect(),
        }
    }
}

/// Lists the columns that are not in the places of `own`.
fn moved(own: &Places, places: &Places) -> String {
    let mut each = Vec::new();
    if let Some(time) = places.time.filter(|_| places.time != own.time) {
        each.push(format!("times in column {time}"));
    }
    each.extend((places.offset != own.offset).then(|| format!("offsets in column {}", places.offset)));
    each.extend((places.length != own.length).then(|| format!("lengths in column {}", places.length)));
    each.extend((places.volume != own.volume).then(|| {
        let volume: Vec<String> = places.volume.iter().map(usize::to_string).collect();
        format!("volumes in column {}", volume.join("/"))
    }));
    each.join(" and ")
}

/// The first requests of a trace by columns.
#[derive(Debug)]
pub struct Columns<'a> {
    layout: &'a Layout,
    rows: &'a [Vec<&'a [u8]>],
    /// The columns of numbers, as times.
    moments: Vec<Option<Vec<Moment>>>,
    /// The columns of whole numbers.
    numbers: Vec<Option<Vec<u64>>>,
}

/// Parses `field` as a number.
pub fn moment(field: &[u8]) -> Option<Moment> {
    let whole = time_us(field, TimeUnit::Microseconds, "").ok()?;
    let has_decimals = field.iter().any(|byte| matches!(byte, b'.' | b'e' | b'E'));
    let millionths = if has_decimals {
        time_us(field, TimeUnit::Seconds, "").map_or(0, |millionths| millionths % 1_000_000)
    } else {
        0
    };
    Some(Moment { whole, millionths })
}

impl<'a> Columns<'a> {
    /// Creates the columns of `rows` in the given layout.
    pub fn new(layout: &'a Layout, rows: &'a [Vec<&'a [u8]>]) -> Columns<'a> {
        let width = rows.iter().map(Vec::len).min().unwrap_or_default();
        let column = |at: usize| rows.iter().map(move |row| row[at]);
        let is_number = |at: usize| Some(at) != layout.op;
        let moments = (0..width).map(|at| is_number(at).then(|| column(at).map(moment).collect())?).collect();
        let number = |field: &[u8]| decimal(field, "").ok();
        let numbers = (0..width).map(|at| is_number(at).then(|| column(at).map(number).collect())?).collect();
        Columns { layout, rows, moments, numbers }
    }

    fn moments(&self, at: usize) -> Option<&[Moment]> {
        self.moments.get(at)?.as_deref()
    }

    /// Returns the numbers of a column, if all are whole.
    pub fn numbers(&self, at: usize) -> Option<&[u64]> {
        self.numbers.get(at)?.as_deref()
    }

    /// Returns the number of distinct values in a column.
    pub fn distinct(&self, at: usize) -> usize {
        distinct(&self.rows.iter().map(|row| row[at]).collect::<Vec<_>>())
    }

    /// Returns the share of rows whose number is at least that of the row one third of all rows earlier. Noise and
    /// cycles have a smaller share than clocks.
    fn rising(&self, at: usize) -> f64 {
        let Some(moments) = self.moments(at) else { return 0.0 };
        let lag = (moments.len() / 3).max(1);
        let pairs = moments.iter().zip(&moments[lag..]);
        pairs.filter(|(before, after)| before <= after).count() as f64 / (moments.len() - lag) as f64
    }

    /// True if the numbers of a column increase as times do.
    pub fn is_clock(&self, at: usize) -> bool {
        self.rising(at) >= 0.97 && self.distinct(at) >= 3
    }

    /// True if the numbers of a column are dates.
    pub fn is_dated(&self, at: usize) -> bool {
        let whole = self.moments(at).map(|moments| moments.iter().map(|moment| moment.whole).collect::<Vec<_>>());
        whole.is_some_and(|whole| epoch_of(&whole).is_some())
    }

    /// Returns the number of columns in `places` that fit another role better.
    fn misplaced(&self, places: &Places) -> usize {
        let rows = self.rows.len();
        let mut misplaced = 0;
        if let Some(time) = places.time {
            let better = |at: usize| {
                // Sequential offsets increase too.
                let is_offset = at == places.offset;
                let is_finer = self.distinct(at) >= (8 * self.distinct(time)).max(rows / 20);
                at != time
                    && self.is_clock(at)
                    && (self.is_dated(at) && !self.is_dated(time)
                        || !self.is_dated(time) && self.rising(time) < 0.9 && self.distinct(at) >= rows / 20
                        || !self.is_dated(time) && !is_offset && is_finer)
            };
            misplaced += usize::from(self.moments(time).is_none() || (0..self.moments.len()).any(better));
        }
        let (Some(_), Some(lengths)) = (self.numbers(places.offset), self.numbers(places.length)) else { return 9 };
        let starts = self.distinct(places.offset);
        misplaced += usize::from(starts * 4 < self.distinct(places.length) && self.distinct(places.length) >= 32);
        let volumes = places.volume.iter().filter(|at| self.numbers(**at).is_some()).map(|at| self.distinct(*at)).max();
        misplaced += usize::from(volumes.is_some_and(|volumes| volumes >= 32 && starts * 4 < volumes));
        let zeros = lengths.iter().filter(|length| **length == 0).count();
        misplaced += usize::from(10 * zeros > rows);
        let Layout { offset: (_, offset_unit), length: (_, length_unit), habits, .. } = *self.layout;
        let spare = || (0..self.numbers.len()).filter(|at| !places.has(*at) && self.in_sectors(*at) >= 0.95);
        for (column, unit) in [(places.offset, offset_unit), (places.length, length_unit)] {
            // An unused column has whole sectors, and this one does not.
            let is_better = !habits.any_bytes && unit == 1 && self.in_sectors(column) < 0.1 && spare().next().is_some();
            misplaced += usize::from(is_better);
        }
        misplaced
    }

    /// Returns the share of rows whose number of bytes is whole sectors; 0 if the column is constant.
    fn in_sectors(&self, at: usize) -> f64 {
        const SECTOR_BYTES: u64 = 512;
        let numbers = self.numbers(at).unwrap_or_default();
        let whole = numbers.iter().filter(|number| number.is_multiple_of(SECTOR_BYTES)).count();
        let has_any = numbers.iter().any(|number| *number > 0);
        if has_any { whole as f64 / numbers.len() as f64 } else { 0.0 }
    }

    fn extents(&self, places: &Places) -> Extents {
        let (Some(starts), Some(lengths)) = (self.numbers(places.offset), self.numbers(places.length)) else {
            return Extents::default();
        };
        let (starts, lengths) = starts.iter().zip(lengths).filter(|(_, length)| **length > 0).unzip();
        Extents { starts, lengths }
    }

    fn time_fault(&self, places: &Places) -> Option<Fault<TimeUnit>> {
        let (_, unit) = self.layout.time?;
        time_fault(self.moments(places.time?)?, unit, self.layout.origins.time, self.layout.habits)
    }

    fn extent_fault(&self, places: &Places) -> Option<Fault<(u64, u64)>> {
        let Layout { offset: (_, offset), length: (_, length), habits, origins, .. } = *self.layout;
        let units = Units { offset: (offset, origins.offset), length: (length, origins.length) };
        self.extents(places).fault(units, habits)
    }

    /// Returns the places of the layout.
    fn own_places(&self) -> Places {
        let Layout { time, offset, length, .. } = *self.layout;
        let (time, volume) = (time.map(|(at, _)| at), self.layout.volume.clone());
        Places { time, offset: offset.0, length: length.0, volume }
    }

    /// Returns the best places: those of the layout, unless two or three columns are swapped.
    fn places(&self) -> Places {
        let own = self.own_places();
        let mut misplaced = self.misplaced(&own);
        let mut places = own.clone();
        for _ in 0..2 {
            if misplaced == 0 {
                break;
            }
            let numbers: Vec<usize> = (0..self.moments.len()).filter(|at| self.moments(*at).is_some()).collect();
            let pairs = numbers.iter().flat_map(|one| numbers.iter().map(move |other| (*one, *other)));
            // A column without a role may be the time, or if bytes are expected, the offset or the length.
            let Layout { offset: (_, offset_unit), length: (_, length_unit), .. } = *self.layout;
            let may_be_bytes = |column: usize, spare: usize| {
                (column == places.offset && offset_unit == 1 || column == places.length && length_unit == 1)
                    && self.in_sectors(spare) >= 0.95
            };
            let pairs = pairs.filter(|(one, other)| {
                one < other
                    && (places.has(*one) && places.has(*other)
                        || places.time == Some(*one)
                        || places.time == Some(*other)
                        || may_be_bytes(*one, *other)
                        || may_be_bytes(*other, *one))
            });
            let others = pairs.map(|(one, other)| places.swapped(one, other));
            let faults = |places: &Places| {
                usize::from(self.time_fault(places).is_some()) + usize::from(self.extent_fault(places).is_some())
            };
            let is_still = |places: &Places| places.time.is_some_and(|time| !self.is_clock(time));
            let best = others.min_by_key(|places| (self.misplaced(places), is_still(places), faults(places)));
            let Some(best) = best.filter(|best| self.misplaced(best) < misplaced) else { break };
            misplaced = self.misplaced(&best);
            places = best;
        }
        places
    }

    /// Returns the columns that are not where the layout expects them, with their places.
    pub fn moved(&self) -> Option<(String, Places)> {
        let (own, places) = (self.own_places(), self.places());
        (places != own).then(|| (moved(&own, &places), places))
    }

    /// Returns the contradiction to the layout, if any, with the columns and units that fit.
    pub fn contradiction(&self) -> Option<Contradiction> {
        let (own, places) = (self.own_places(), self.places());
        let (time, extent) = (self.time_fault(&places), self.extent_fault(&places));
        let is_moved = places != own;
        let mut found = Vec::new();
        if is_moved {
            found.push(moved(&own, &places));
        }
        found.extend(time.iter().map(|fault| fault.found.clone()));
        found.extend(extent.iter().map(|fault| fault.found.clone()));
        if found.is_empty() {
            return None;
        }
        let (offset_bytes, length_bytes) =
            extent.map_or((self.layout.offset.1, self.layout.length.1), |fault| fault.unit);
        let is_time_guessed = time.is_some() && places.time.is_some_and(|time| !self.is_dated(time));
        let unit = time.map(|fault| fault.unit).or(self.layout.time.map(|(_, unit)| unit));
        let own_spec = self.layout.spec.clone().filter(|_| !is_moved);
        let fitting = Fitting {
            spec: own_spec.unwrap_or_else(|| self.spec(&places)),
            time: unit,
            offset_bytes: Some(offset_bytes),
            length_bytes: Some(length_bytes),
            is_time_guessed,
        };
        Some(Contradiction { found: found.join(" and "), fitting, is_moved })
    }

    /// Returns the notes for the user about units without evidence.
    pub fn doubts(&self) -> Vec<String> {
        let Layout { habits, origins, length: (_, length_bytes), .. } = *self.layout;
        let option = self.layout.spec.as_deref().unwrap_or("csv:...");
        let time = self
            .layout
            .time
            .and_then(|(column, unit)| time_doubt(self.moments(column)?, unit, origins.time, habits, option));
        let lengths =
            self.extents(&self.own_places()).long(length_bytes, habits).filter(|_| origins.length == Origin::Format);
        let lengths = lengths.map(|length| {
            format!(
                "most of its requests have {} or more (length-unit= of --format {option} names another unit)",
                bytes(length as f64)
            )
        });
        time.into_iter().chain(lengths).collect()
    }

    /// Returns the likely columns and units, independent of the layout's units.
    pub fn likely(&self) -> Fitting {
        self.likely_at(&self.places(), self.layout.time.map(|(_, unit)| unit))
    }

    /// Returns the likely units in these columns; the given unit of time is kept unless the values contradict it.
    pub fn likely_at(&self, places: &Places, unit: Option<TimeUnit>) -> Fitting {
        let moments = places.time.and_then(|at| self.moments(at));
        let likely = |own: TimeUnit, moments: &[Moment]| {
            let unit = likely_time(moments, own);
            time_fault(moments, unit, Origin::Format, self.layout.habits).map_or(unit, |fault| fault.unit)
        };
        let time = unit.map(|own| moments.map_or(own, |moments| likely(own, moments)));
        let (offset, length) = self.extents(places).likely(self.layout.habits);
        Fitting {
            spec: self.spec(places),
            time,
            offset_bytes: Some(offset),
            length_bytes: Some(length),
            is_time_guessed: false,
        }
    }

    /// Returns the columns as `--format csv` names them.
    fn spec(&self, places: &Places) -> String {
        let mut options = Vec::new();
        options.extend(self.layout.separator.is_none().then(|| "delimiter=space".to_owned()));
        options.extend(places.time.map(|at| format!("time={at}")));
        options.extend(self.layout.op.map(|at| format!("op={at}")));
        options.push(format!("offset={},length={}", places.offset, places.length));
        let volume: Vec<String> = places.volume.iter().map(usize::to_string).collect();
        options.extend((!volume.is_empty()).then(|| format!("volume={}", volume.join("/"))));
        if let (Some(op), Some(op_of)) = (self.layout.op, self.layout.op_of) {
            let mut words: Vec<&[u8]> = self.rows.iter().map(|row| row[op]).collect();
            words.sort_unstable();
            words.dedup();
            let (read, write): (Vec<&[u8]>, Vec<&[u8]>) =
                words.into_iter().partition(|word| op_of(word) == Some(Op::Read));
            let (option, words) = if read.is_empty() { ("write", write) } else { ("read", read) };
            options.push(format!("{option}={}", String::from_utf8_lossy(&words.join(&b'/'))));
        }
        format!("csv:{}", options.join(","))
    }
}
