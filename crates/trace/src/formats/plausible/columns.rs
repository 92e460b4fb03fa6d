//! Columns that hold something else than their format says: times, offsets, lengths and volumes in each other's places.

use flashwise_core::access::Op;

use super::super::fields::{TimeUnit, decimal, time_us};
use super::{Extents, Fault, Fitting, Layout, Moment, Origin, Units, distinct, epoch_of, likely_time, time_fault};

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
        misplaced + usize::from(10 * zeros > rows)
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
        time_fault(self.moments(places.time?)?, unit, Origin::Format, self.layout.habits)
    }

    fn extent_fault(&self, places: &Places) -> Option<Fault<(u64, u64)>> {
        let Layout { offset: (_, offset), length: (_, length), habits, .. } = *self.layout;
        let units = Units { offset: (offset, Origin::Format), length: (length, Origin::Format) };
        self.extents(places).fault(units, habits)
    }

    /// The places that fit best: those of the layout, unless two or three columns stand in each other's place.
    fn places(&self) -> Places {
        let Layout { time, offset, length, .. } = *self.layout;
        let (time, volume) = (time.map(|(at, _)| at), self.layout.volume.to_vec());
        let own = Places { time, offset: offset.0, length: length.0, volume };
        let mut misplaced = self.misplaced(&own);
        let mut places = own.clone();
        for _ in 0..2 {
            if misplaced == 0 {
                break;
            }
            let numbers: Vec<usize> = (0..self.moments.len()).filter(|at| self.moments(*at).is_some()).collect();
            let pairs = numbers.iter().flat_map(|one| numbers.iter().map(move |other| (*one, *other)));
            // Of the columns without a purpose one may be the time.
            let pairs = pairs.filter(|(one, other)| {
                one < other
                    && (places.has(*one) && places.has(*other)
                        || places.time == Some(*one)
                        || places.time == Some(*other))
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

    /// What contradicts the layout, with the columns and units that fit.
    pub fn contradiction(&self) -> Option<(String, Fitting)> {
        let places = self.places();
        let own = Places {
            time: self.layout.time.map(|(at, _)| at),
            offset: self.layout.offset.0,
            length: self.layout.length.0,
            volume: self.layout.volume.to_vec(),
        };
        let (time, extent) = (self.time_fault(&places), self.extent_fault(&places));
        let mut found = Vec::new();
        if places != own {
            found.push("columns that stand in each other's place".to_owned());
        }
        found.extend(time.iter().map(|fault| fault.found.clone()));
        found.extend(extent.iter().map(|fault| fault.found.clone()));
        if found.is_empty() {
            return None;
        }
        let (offset_bytes, length_bytes) =
            extent.map_or((self.layout.offset.1, self.layout.length.1), |fault| fault.unit);
        let unit = time.map(|fault| fault.unit).or(self.layout.time.map(|(_, unit)| unit));
        let fitting = Fitting {
            spec: self.spec(&places),
            time: unit,
            offset_bytes: Some(offset_bytes),
            length_bytes: Some(length_bytes),
        };
        Some((found.join(" and "), fitting))
    }

    /// The columns and units that are likely, whatever the layout says of units.
    pub fn likely(&self) -> Fitting {
        self.likely_at(&self.places(), self.layout.time.map(|(_, unit)| unit))
    }

    /// The units that are likely in these columns, where nothing speaks against a unit of time.
    pub fn likely_at(&self, places: &Places, unit: Option<TimeUnit>) -> Fitting {
        let moments = places.time.and_then(|at| self.moments(at));
        let time = unit.map(|own| moments.map_or(own, |moments| likely_time(moments, own)));
        let (offset, length) = self.extents(places).likely();
        Fitting { spec: self.spec(places), time, offset_bytes: Some(offset), length_bytes: Some(length) }
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
