//! Columns that hold something else than their format says: times, offsets, lengths and volumes in each other's places.

use flashwise_core::access::Op;

use super::super::fields::{TimeUnit, decimal, time_us};
use super::{
    Contradiction, Extents, Fault, Fitting, Layout, Moment, Origin, Units, distinct, epoch_of, likely_time, time_doubt,
    time_fault,
};
use crate::human::bytes;

/// Which column holds what.
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

    /// The same with the contents of two columns in each other's place.
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

/// Which columns stand in other places than `own`.
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

/// The number that `field` spells, if it is one.
fn moment(field: &[u8]) -> Option<Moment> {
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
    /// The columns of `rows`, which are those of `layout`.
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

    /// The numbers of a column, if all are whole.
    pub fn numbers(&self, at: usize) -> Option<&[u64]> {
        self.numbers.get(at)?.as_deref()
    }

    /// How many different values the column has.
    pub fn distinct(&self, at: usize) -> usize {
        distinct(&self.rows.iter().map(|row| row[at]).collect::<Vec<_>>())
    }

    /// The share of rows with a number at least as large as a third of all rows before; noise and cycles have a smaller one than clocks.
    fn rising(&self, at: usize) -> f64 {
        let Some(moments) = self.moments(at) else { return 0.0 };
        let lag = (moments.len() / 3).max(1);
        let pairs = moments.iter().zip(&moments[lag..]);
        pairs.filter(|(before, after)| before <= after).count() as f64 / (moments.len() - lag) as f64
    }

    /// True if the numbers of a column rise as times do.
    pub fn is_clock(&self, at: usize) -> bool {
        self.rising(at) >= 0.97 && self.distinct(at) >= 3
    }

    /// True if the numbers of a column are dates.
    pub fn is_dated(&self, at: usize) -> bool {
        let whole = self.moments(at).map(|moments| moments.iter().map(|moment| moment.whole).collect::<Vec<_>>());
        whole.is_some_and(|whole| epoch_of(&whole).is_some())
    }

    /// How many columns of `places` are better suited for another purpose.
    fn misplaced(&self, places: &Places) -> usize {
        let rows = self.rows.len();
        let mut misplaced = 0;
        if let Some(time) = places.time {
            let better = |at: usize| {
                // Offsets rise in order too, if they are sequential.
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
            // A column that nothing reads has whole sectors, and this one has none.
            let is_better = !habits.any_bytes && unit == 1 && self.in_sectors(column) < 0.1 && spare().next().is_some();
            misplaced += usize::from(is_better);
        }
        misplaced
    }

    /// The share of rows with a number of bytes that is whole sectors; 0 where the column always has the same.
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

    /// The places of the layout.
    fn own_places(&self) -> Places {
        let Layout { time, offset, length, .. } = *self.layout;
        let (time, volume) = (time.map(|(at, _)| at), self.layout.volume.clone());
        Places { time, offset: offset.0, length: length.0, volume }
    }

    /// The places that fit best: those of the layout, unless two or three columns stand in each other's place.
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
            // A column without a purpose may be the time, or where bytes are expected the offset or the length.
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

    /// Columns that stand in other places than the layout says, with their places.
    pub fn moved(&self) -> Option<(String, Places)> {
        let (own, places) = (self.own_places(), self.places());
        (places != own).then(|| (moved(&own, &places), places))
    }

    /// What contradicts the layout, with the columns and units that fit.
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

    /// What the user should know of units that nothing shows.
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

    /// The columns and units that are likely, whatever the layout says of units.
    pub fn likely(&self) -> Fitting {
        self.likely_at(&self.places(), self.layout.time.map(|(_, unit)| unit))
    }

    /// The units that are likely in these columns, where nothing speaks against a unit of time.
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

    /// The columns as `--format csv` names them.
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
