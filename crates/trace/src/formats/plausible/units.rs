//! Infers units from the values of columns, and detects contradictions.

use super::super::dates::DateOrder;
use super::super::fields::TimeUnit;
use flashwise_core::human;

/// The source of a column's unit, the strongest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// The user, whose choice is not checked.
    Option,
    /// The format.
    Format,
    /// The name of the column.
    Header,
    /// The column's values.
    Values,
    /// No source.
    #[default]
    Assumed,
}

/// The source of each unit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Origins {
    pub time: Origin,
    pub offset: Origin,
    pub length: Origin,
}

/// Differences of formats to a plain table of block requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Habits {
    /// Times are dates, not relative to the start.
    pub dated: bool,
    /// Times have decimals, as printed seconds do.
    pub decimals: bool,
    /// Offsets and lengths need not be whole sectors.
    pub any_bytes: bool,
    /// Requests of less than 4 KiB are common.
    pub short: bool,
    /// The lines come from a kernel, and long sequential requests are common.
    pub streaming: bool,
    /// Lengths can count pages while offsets count sectors.
    pub pages_beside_sectors: bool,
}

/// A time in the units of its column.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Moment {
    /// Whole units.
    pub whole: i64,
    /// The remaining millionths of a unit.
    pub millionths: i64,
}

impl Moment {
    /// Returns the units from `start` to this time.
    fn since(self, start: Moment) -> f64 {
        (self.whole - start.whole) as f64 + (self.millionths - start.millionths) as f64 / 1e6
    }
}

/// A column whose values contradict its unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault<U> {
    /// The contradicting text.
    pub found: String,
    /// The unit that fits.
    pub unit: U,
}

/// The minimum number of lines to check a unit that a format or header defines.
pub const LINES_MIN: usize = 20;
/// The minimum number of lines for evidence from rates and alignments.
const STATISTICS_MIN: usize = 50;
const SECTOR_BYTES: u64 = 512;
const PAGE_BYTES: u64 = 4096;
const PAGE_SECTORS: u64 = PAGE_BYTES / SECTOR_BYTES;

/// Returns the length of a unit in seconds.
fn seconds(unit: TimeUnit) -> f64 {
    match unit {
        TimeUnit::Seconds => 1.0,
        TimeUnit::Milliseconds => 1e-3,
        TimeUnit::Microseconds | TimeUnit::Date(_) => 1e-6,
        TimeUnit::Filetime => 1e-7,
        TimeUnit::Nanoseconds => 1e-9,
    }
}

/// Returns the unit in which all `times` are dates between 1991 and 2100, if there is one. No number is a date in two
/// of the units.
pub fn epoch_of(times: &[i64]) -> Option<TimeUnit> {
    // 1990 in ns since 1970 is 2040 in units of 100 ns since the year 1.
    const DATES_S: std::ops::RangeInclusive<i64> = 662_688_000..=4_102_444_800;
    /// The seconds to 1970 from 1601, the epoch of Windows, and from the year 1, the epoch of .NET.
    const FILETIME_S: i64 = 11_644_473_600;
    const TICKS_S: i64 = 62_135_596_800;
    let units = [
        (TimeUnit::Seconds, 1, 0),
        (TimeUnit::Milliseconds, 1_000, 0),
        (TimeUnit::Microseconds, 1_000_000, 0),
        (TimeUnit::Nanoseconds, 1_000_000_000, 0),
        (TimeUnit::Filetime, 10_000_000, FILETIME_S),
        (TimeUnit::Microseconds, 1_000_000, FILETIME_S),
        (TimeUnit::Filetime, 10_000_000, TICKS_S),
    ];
    let is_date = |time: i64, per_s: i64, since_s: i64| DATES_S.contains(&(time / per_s - since_s));
    let (unit, ..) = units
        .into_iter()
        .find(|&(_, per_s, since_s)| !times.is_empty() && times.iter().all(|&time| is_date(time, per_s, since_s)))?;
    Some(unit)
}

/// Returns a description of dates in `unit`.
pub fn date_words(unit: TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Date(DateOrder::Day) => "dates, the day first",
        TimeUnit::Date(DateOrder::Month) => "dates, the month first",
        TimeUnit::Seconds => "s since 1970",
        TimeUnit::Milliseconds => "ms since 1970",
        TimeUnit::Microseconds => "us since 1970",
        TimeUnit::Nanoseconds => "ns since 1970",
        TimeUnit::Filetime => "units of 100 ns since 1601 (filetime)",
        TimeUnit::Date(_) => "dates",
    }
}

/// Returns the contradiction to times in `unit`, if any: dates in another unit, or rates that no device reaches.
pub fn time_fault(moments: &[Moment], unit: TimeUnit, origin: Origin, habits: Habits) -> Option<Fault<TimeUnit>> {
    const YEAR_S: f64 = 365.25 * 86_400.0;
    if origin == Origin::Option || matches!(unit, TimeUnit::Date(_)) || moments.len() < LINES_MIN {
        return None;
    }
    let mut sorted = moments.to_vec();
    sorted.sort_unstable_by(|one, other| one.partial_cmp(other).unwrap_or(std::cmp::Ordering::Equal));
    // The first and the last ones are left out: they may be invalid.
    let rest = sorted.len() / 20;
    let middle = &sorted[rest..sorted.len() - rest];
    let steps = (middle.len() - 1) as f64;
    let span = middle[middle.len() - 1].since(middle[0]);
    let gap = span / steps;
    let whole: Vec<i64> = moments.iter().map(|moment| moment.whole).collect();
    let are_whole = moments.iter().all(|moment| moment.millionths == 0);
    let far = middle[middle.len() - 1].whole as f64 * seconds(unit) > 600.0 * YEAR_S;
    if let Some(epoch) = epoch_of(&whole) {
        // Relative times can look like dates; slow ones are accepted.
        let may_be_relative = !habits.dated && gap * seconds(unit) > 2e-3;
        let is_fault = epoch != unit && (far || !may_be_relative && gap * seconds(epoch) <= 100.0);
        let found = || format!("times such as {} that are {}", whole[0], date_words(epoch));
        return is_fault.then(|| Fault { found: found(), unit: epoch });
    }
    if far {
        let found = format!(
            "times such as {}, which are {}",
            whole[0],
            human::lifetime(whole[0] as f64 * seconds(unit) / YEAR_S)
        );
        return Some(Fault { found, unit: finer(gap, unit) });
    }
    // If all times are equal, they are no evidence.
    if moments.len() < STATISTICS_MIN || span == 0.0 {
        return None;
    }
    // The maximum rate of disks from the time of a format; the user's own may be faster.
    let per_s_max = if origin == Origin::Format { 5e4 } else { 1e7 };
    let per_s = steps / ((span + f64::from(u8::from(are_whole))) * seconds(unit));
    if per_s > per_s_max && unit != TimeUnit::Seconds {
        let found = format!("times with {} requests per second", human::number(per_s));
        return Some(Fault { found, unit: coarser(gap, are_whole, unit) });
    }
    let step_max = if habits.decimals { STEP } else { 2.0 };
    let is_slow = gap * seconds(unit) > 100.0
        || origin == Origin::Format && unit == TimeUnit::Seconds && are_whole && gap > step_max;
    let found = || format!("times with {} from one request to the next", human::seconds(gap * seconds(unit)));
    is_slow.then(|| Fault { found: found(), unit: finer(gap, unit) })
}

/// Returns a note about times whose `unit` could be another one. These are times that are not dates, unless they have
/// the decimals of seconds, or times that are all equal. `spec` is the value of `--format` that accepts another unit.
pub fn time_doubt(moments: &[Moment], unit: TimeUnit, origin: Origin, habits: Habits, spec: &str) -> Option<String> {
    let (first, last) = (moments.iter().copied().reduce(lesser)?, moments.iter().copied().reduce(greater)?);
    let span_s = last.since(first) * seconds(unit);
    if moments.len() < LINES_MIN || matches!(unit, TimeUnit::Date(_)) {
        return None;
    }
    if span_s == 0.0 {
        return Some(format!("all times of the first {} requests are {}", moments.len(), first.whole));
    }
    let whole: Vec<i64> = moments.iter().map(|moment| moment.whole).collect();
    let per_s = (moments.len() - 1) as f64 / span_s;
    let are_fine = moments.iter().any(|moment| moment.millionths % 1000 != 0);
    let is_likely = habits.decimals && are_fine && (0.5..2e4).contains(&per_s);
    if origin != Origin::Format || epoch_of(&whole) == Some(unit) || is_likely {
        return None;
    }
    Some(format!(
        "its times are not dates; as {} they give {} requests per second (time-unit= of --format {spec} names another \
         unit)",
        unit.word(),
        human::number(per_s)
    ))
}

fn lesser(one: Moment, other: Moment) -> Moment {
    if other < one { other } else { one }
}

fn greater(one: Moment, other: Moment) -> Moment {
    if other > one { other } else { one }
}

/// The maximum mean step of whole seconds; longer steps are milliseconds.
const STEP: f64 = 1.5;

/// Returns a unit longer than `unit` in which a gap of `gap` units between requests is likely.
fn coarser(gap: f64, are_whole: bool, unit: TimeUnit) -> TimeUnit {
    match gap {
        _ if !are_whole && gap < 1.0 => TimeUnit::Seconds,
        _ if gap <= STEP && unit != TimeUnit::Seconds => TimeUnit::Seconds,
        _ if gap <= 100.0 => TimeUnit::Milliseconds,
        _ => TimeUnit::Microseconds,
    }
}

/// Returns a unit shorter than `unit` in which a gap of `gap` units between requests is likely.
pub fn finer(gap: f64, unit: TimeUnit) -> TimeUnit {
    match gap {
        _ if gap < 30.0 && unit == TimeUnit::Seconds => TimeUnit::Milliseconds,
        _ if gap < 3e4 && unit != TimeUnit::Microseconds => TimeUnit::Microseconds,
        _ => TimeUnit::Nanoseconds,
    }
}

/// Returns the likely unit of times: that of dates, of whole numbers by their steps, or `own`.
pub fn likely_time(moments: &[Moment], own: TimeUnit) -> TimeUnit {
    let whole: Vec<i64> = moments.iter().map(|moment| moment.whole).collect();
    let (Some(first), Some(last)) = (moments.first(), moments.last()) else { return own };
    let gap = last.since(*first) / (moments.len().max(2) - 1) as f64;
    match epoch_of(&whole) {
        Some(epoch) => epoch,
        None if moments.iter().any(|moment| moment.millionths != 0) => own,
        None if gap <= STEP => TimeUnit::Seconds,
        None => finer(gap, TimeUnit::Seconds),
    }
}

/// Returns the share of `values` for which `is` is true.
fn share(values: &[u64], is: impl Fn(u64) -> bool) -> f64 {
    values.iter().filter(|&&value| is(value)).count() as f64 / values.len().max(1) as f64
}

/// Returns the number of distinct values.
pub fn distinct<T: Ord + Copy>(values: &[T]) -> usize {
    let mut values = values.to_vec();
    values.sort_unstable();
    values.dedup();
    values.len()
}

fn median(values: &[u64]) -> u64 {
    let mut values = values.to_vec();
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// The starts and lengths of requests, in their original units; lengths are above 0.
#[derive(Clone, Debug, Default)]
pub struct Extents {
    pub starts: Vec<u64>,
    pub lengths: Vec<u64>,
}

/// The units of offsets and lengths, in bytes, and their sources.
#[derive(Clone, Copy, Debug)]
pub struct Units {
    pub offset: (u64, Origin),
    pub length: (u64, Origin),
}

impl Extents {
    /// Returns the share of requests that begin at the end of the previous one, in these units.
    fn contiguous(&self, offset_bytes: u64, length_bytes: u64) -> f64 {
        let requests: Vec<_> = self.starts.iter().zip(&self.lengths).collect();
        let follows = requests.windows(2).filter(|pair| {
            let ((start, length), (next, _)) = (pair[0], pair[1]);
            u128::from(*next) * u128::from(offset_bytes)
                == u128::from(*start) * u128::from(offset_bytes) + u128::from(*length) * u128::from(length_bytes)
        });
        follows.count() as f64 / (requests.len().max(2) - 1) as f64
    }

    /// Returns the largest share of starts with the same remainder modulo 8.
    fn aligned(&self) -> f64 {
        (0..PAGE_SECTORS).map(|place| share(&self.starts, |start| start % PAGE_SECTORS == place)).fold(0.0, f64::max)
    }

    /// True if requests begin at multiples of 8, as whole pages do in sectors, and most have other lengths.
    fn on_pages(&self) -> bool {
        let all = |values: &[u64], of: u64| share(values, |value| value.is_multiple_of(of));
        all(&self.starts, PAGE_SECTORS) >= 0.95
            && all(&self.starts, SECTOR_BYTES) < 0.95
            && all(&self.lengths, PAGE_SECTORS) < 0.5
    }

    /// Returns the unit of length inferred from the lengths.
    fn length_unit(&self) -> u64 {
        let all = |of: u64| share(&self.lengths, |length| length.is_multiple_of(of));
        match median(&self.lengths) {
            SECTOR_BYTES.. => 1,
            _ if self.in_kib() => 1024,
            _ if all(PAGE_SECTORS) >= 0.5 => SECTOR_BYTES,
            // If the unit were sectors, whole pages that begin at multiples of 8 would also end there.
            _ if self.on_pages() => PAGE_BYTES,
            _ if all(4) >= 0.95 && share(&self.starts, |start| start.is_multiple_of(4)) >= 0.95 => 1024,
            PAGE_SECTORS.. => SECTOR_BYTES,
            // The most common length is 1 in pages and 8 in sectors.
            _ if share(&self.lengths, |length| length == 1) < share(&self.lengths, |length| length == PAGE_SECTORS) => {
                SECTOR_BYTES
            }
            _ => PAGE_BYTES,
        }
    }

    /// Returns the median length in bytes, if a kernel usually makes shorter requests.
    pub fn long(&self, length_bytes: u64, habits: Habits) -> Option<u64> {
        let length = median(&self.lengths).saturating_mul(length_bytes);
        (habits.streaming && length >= 1 << 20).then_some(length)
    }

    /// True if requests begin and end at multiples of 4, as pages do in KiB, and not at the same place within 8.
    fn in_kib(&self) -> bool {
        let all = |values: &[u64]| share(values, |value| value.is_multiple_of(4)) >= 0.95;
        all(&self.lengths) && all(&self.starts) && self.aligned() <= 0.6
    }

    /// Returns the share of distinct starts whose successor is a start too.
    fn neighbours(&self) -> f64 {
        let mut starts = self.starts.clone();
        starts.sort_unstable();
        starts.dedup();
        starts.windows(2).filter(|pair| pair[0] + 1 == pair[1]).count() as f64 / starts.len().max(1) as f64
    }

    /// Returns the unit of offset inferred from the starts, given lengths in units of `length_bytes`.
    fn offset_unit(&self, length_bytes: u64) -> u64 {
        let all = |values: &[u64], of: u64| share(values, |value| value.is_multiple_of(of)) >= 0.95;
        let is_whole = |of: u64| all(&self.lengths, of / of.min(length_bytes));
        if all(&self.starts, SECTOR_BYTES) {
            return 1;
        }
        if length_bytes == 1 && !is_whole(SECTOR_BYTES) {
            // Requests of arbitrary bytes.
            return if share(&self.lengths, |length| length.is_multiple_of(SECTOR_BYTES)) < 0.5 {
                1
            } else {
                SECTOR_BYTES
            };
        }
        let pages_in_sectors = length_bytes == PAGE_BYTES
            && (all(&self.starts, PAGE_SECTORS)
                || self.contiguous(SECTOR_BYTES, length_bytes) > self.contiguous(PAGE_BYTES, length_bytes));
        if length_bytes > SECTOR_BYTES && !pages_in_sectors {
            return length_bytes;
        }
        let units = [SECTOR_BYTES, 1024, 2048, PAGE_BYTES];
        let follows = units.map(|unit| self.contiguous(unit, length_bytes));
        if let Some(at) =
            (0..units.len()).find(|&at| follows[at] > 0.2 && follows.iter().all(|other| *other <= follows[at]))
        {
            return units[at];
        }
        // If places within a page are no evidence, the unit is a page, unless requests are shorter.
        match self.aligned() <= 0.6 && is_whole(PAGE_BYTES) {
            false => SECTOR_BYTES,
            true if all(&self.starts, 4) => 1024,
            true if all(&self.starts, 2) => 2048,
            true => PAGE_BYTES,
        }
    }

    /// Returns the likely units of offset and length.
    pub fn likely(&self, habits: Habits) -> (u64, u64) {
        let length = self.length_unit();
        // Pages are dense, and rounded sectors are not.
        let are_pages = self.contiguous(PAGE_BYTES, PAGE_BYTES) > 0.05
            || self.neighbours() >= 0.1
            || share(&self.starts, |start| start.is_multiple_of(SECTOR_BYTES)) >= 0.95;
        match length {
            PAGE_BYTES if habits.pages_beside_sectors && !are_pages => (SECTOR_BYTES, PAGE_BYTES),
            _ => (self.offset_unit(length), length),
        }
    }

    /// Returns units in which requests are sequential, if they are not in `offset_bytes` and `length_bytes`.
    fn sequential_units(&self, offset_bytes: u64, length_bytes: u64) -> Option<(u64, u64)> {
        const UNITS: [u64; 4] = [1, SECTOR_BYTES, 1024, PAGE_BYTES];
        // Requests of one length can be sequential by chance.
        let least = if distinct(&self.lengths) >= 3 { 0.5 } else { 0.9 };
        let others =
            UNITS.iter().map(|unit| (offset_bytes, *unit)).chain(UNITS.iter().map(|unit| (*unit, length_bytes)));
        if self.lengths.len() < STATISTICS_MIN || self.contiguous(offset_bytes, length_bytes) >= 0.05 {
            return None;
        }
        others.filter(|units| units.0 <= PAGE_BYTES).find(|units| self.contiguous(units.0, units.1) >= least)
    }

    /// Returns the contradiction of offsets and lengths in `units`, if any, with the units that fit.
    pub fn fault(&self, units: Units, habits: Habits) -> Option<Fault<(u64, u64)>> {
        let Units { offset: (offset_bytes, offset_origin), length: (length_bytes, length_origin) } = units;
        let lines = self.lengths.len();
        let is_enough = |origin: Origin| origin != Origin::Format || lines >= LINES_MIN;
        if lines == 0 || offset_origin == Origin::Option && length_origin == Origin::Option {
            return None;
        }
        let in_pages = |value: u64, unit: u64| value.saturating_mul(unit).is_multiple_of(PAGE_BYTES);
        // If requests have whole pages but do not begin at whole pages, the unit of offset is wrong.
        let are_pages = share(&self.lengths, |length| in_pages(length, length_bytes)) >= 0.95
            && share(&self.starts, |start| in_pages(start, offset_bytes)) < 0.5;
        if habits.any_bytes && !are_pages && median(&self.lengths).saturating_mul(length_bytes) >= SECTOR_BYTES {
            return None;
        }
        let length_unit = if length_origin == Origin::Option { length_bytes } else { self.length_unit() };
        let offset_unit = if offset_origin == Origin::Option { offset_bytes } else { self.offset_unit(length_unit) };
        let follows = self.contiguous(offset_bytes, length_bytes) >= 0.5;
        let starts_whole =
            share(&self.starts, |start| (start.saturating_mul(offset_bytes)).is_multiple_of(SECTOR_BYTES));
        let several = distinct(&self.starts) > 1;
        let shown = self
            .lengths
            .iter()
            .copied()
            .find(|length| !length.saturating_mul(length_bytes).is_multiple_of(SECTOR_BYTES));
        let length = shown.unwrap_or(self.lengths[0]).saturating_mul(length_bytes);
        let inside =
            self.starts.iter().copied().find(|start| !start.saturating_mul(offset_bytes).is_multiple_of(SECTOR_BYTES));
        let fixed = |found: String| Some(Fault { found, unit: (offset_unit, length_unit) });
        if length_origin != Origin::Option && length_bytes != length_unit && is_enough(length_origin) {
            let in_bytes = length_bytes < SECTOR_BYTES;
            let offsets_in_sectors = offset_bytes.is_multiple_of(SECTOR_BYTES);
            // Requests to files can have any length and begin at any byte.
            let are_units = share(&self.lengths, |length| length.is_multiple_of(PAGE_SECTORS)) >= 0.5
                || median(&self.lengths) < PAGE_SECTORS && lines >= LINES_MIN
                || self.lengths.iter().all(|length| *length < SECTOR_BYTES) && lines >= STATISTICS_MIN;
            let is_wrong = match length_origin {
                Origin::Format => true,
                Origin::Assumed if are_units || offsets_in_sectors => true,
                Origin::Header if are_units && lines >= LINES_MIN => true,
                _ => starts_whole >= 0.95 && (several || offsets_in_sectors),
            };
            if in_bytes && is_wrong {
                let beside = match offsets_in_sectors {
                    true => "offsets in sectors",
                    false if starts_whole >= 0.95 => "offsets that are multiples of 512",
                    false => "offsets within sectors",
                };
                return fixed(format!("{beside} beside requests of {length} bytes"));
            }
            if length_bytes == SECTOR_BYTES && length_unit == 1024 && !habits.short && lines >= STATISTICS_MIN {
                return fixed(
                    "requests that begin and end at multiples of 2048 bytes, and most within a page of 4096".to_owned(),
                );
            }
            let multiples = share(&self.lengths, |length| length.is_multiple_of(SECTOR_BYTES)) >= 0.95;
            let is_long =
                length > 1 << 20 || self.lengths.iter().any(|length| length.saturating_mul(length_bytes) > 64 << 20);
            if !in_bytes
                && length_unit == 1
                && multiples
                && lines >= LINES_MIN
                && (!follows
                    || is_long && (!habits.streaming || median(&self.lengths).saturating_mul(length_bytes) >= 16 << 20))
            {
                return fixed(format!(
                    "requests of {length} bytes, each as long as {} in bytes",
                    length / length_bytes
                ));
            }
            let are_pages = self.lengths.iter().all(|length| *length < PAGE_SECTORS) || self.on_pages();
            if length_bytes == SECTOR_BYTES && !habits.short && are_pages && lines >= STATISTICS_MIN {
                return fixed(format!("requests of {length} bytes, most of them less than whole pages of 4096"));
            }
        }
        let sectors = share(&self.lengths, |length| length.saturating_mul(length_bytes).is_multiple_of(SECTOR_BYTES));
        let whole_lengths = sectors >= 0.95;
        if length_origin == Origin::Format
            && length_bytes == 1
            && lines >= LINES_MIN
            && sectors < 0.5
            && starts_whole >= 0.95
        {
            return fixed(format!("offsets that are multiples of 512 beside requests of {length} bytes"));
        }
        if offset_origin != Origin::Option && offset_bytes != offset_unit && is_enough(offset_origin) {
            let is_said = matches!(offset_origin, Origin::Header);
            if offset_bytes < SECTOR_BYTES
                && starts_whole < 0.9
                && whole_lengths
                && let Some(start) = inside
            {
                let in_sectors = length_bytes.is_multiple_of(SECTOR_BYTES);
                if !is_said || in_sectors || lines >= LINES_MIN {
                    let lengths = if in_sectors { "lengths in sectors" } else { "lengths in whole sectors" };
                    let byte = start.saturating_mul(offset_bytes);
                    return fixed(format!("{lengths} beside a request at byte {byte}, within a sector"));
                }
            }
            if offset_bytes >= SECTOR_BYTES
                && offset_unit == 1
                && distinct(&self.starts) >= 8
                && lines >= LINES_MIN
                && !(follows && habits.streaming)
                && median(&self.lengths).saturating_mul(length_bytes) < 512 * offset_bytes
            {
                return fixed(format!("offsets that are multiples of 512 in units of {offset_bytes} bytes"));
            }
            if offset_bytes == SECTOR_BYTES
                && offset_unit > SECTOR_BYTES
                && !habits.short
                && lines >= STATISTICS_MIN
                && !follows
                && distinct(&self.starts) >= 8
            {
                return fixed("requests of whole pages of 4096 bytes that mostly begin within a page".to_owned());
            }
        }
        match self.sequential_units(offset_bytes, length_bytes) {
            Some(unit) if ![offset_origin, length_origin].contains(&Origin::Option) && !habits.any_bytes => {
                Some(Fault {
                    found: format!(
                        "requests that are not sequential, but mostly are with offsets in units of {} bytes and \
                         lengths in units of {} bytes",
                        unit.0, unit.1
                    ),
                    unit,
                })
            }
            _ => None,
        }
    }
}
