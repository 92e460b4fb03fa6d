//! What the first lines of a CSV say of its units: times that are dates, offsets and lengths that contradict each other.

use std::cmp::Ordering;

use super::super::dates::DateOrder;
use super::super::fields::TimeUnit;
use super::super::spellings::has_exponent;
use super::super::{Malformed, ParseLine, Reading, Record, Sample};
use super::header::{ROLES, Role, TIME_UNITS};
use super::{Csv, SECTOR_BYTES};
use crate::request::Volumes;

/// What says which unit a column counts in, the strongest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// The user.
    Option,
    /// The name of the column.
    Header,
    /// The column's values.
    Values,
    /// Nothing.
    #[default]
    Assumed,
}

/// The same of each unit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Origins {
    pub time: Origin,
    pub offset: Origin,
    pub length: Origin,
}

/// The requests of the first lines, in the numbers that stand there.
#[derive(Debug, Default)]
pub struct Evidence {
    pub times: Vec<i64>,
    /// A time with decimals, in millionths.
    decimals: Option<i64>,
    offsets: Vec<u64>,
    lengths: Vec<u64>,
    /// A number with an exponent, as it stands there.
    exponent: Option<String>,
    /// A time, as it stands there, where times are dates.
    date: Option<String>,
}

/// The unit of which `times` count dates between 1990 and 2100, if all do. No number is a date in two of the units.
pub fn epoch_of(times: &[i64]) -> Option<TimeUnit> {
    const DATES_S: std::ops::RangeInclusive<i64> = 631_152_000..=4_102_444_800;
    /// From 1601, where Windows begins to count, to 1970.
    const FILETIME_S: i64 = 11_644_473_600;
    let units = [
        (TimeUnit::Seconds, 1, 0),
        (TimeUnit::Milliseconds, 1_000, 0),
        (TimeUnit::Microseconds, 1_000_000, 0),
        (TimeUnit::Nanoseconds, 1_000_000_000, 0),
        (TimeUnit::Filetime, 10_000_000, FILETIME_S),
    ];
    let is_date = |time: i64, per_s: i64, since_s: i64| DATES_S.contains(&(time / per_s - since_s));
    let (unit, ..) = units
        .into_iter()
        .find(|&(_, per_s, since_s)| !times.is_empty() && times.iter().all(|&time| is_date(time, per_s, since_s)))?;
    Some(unit)
}

/// The order of the dates that the first lines of `sample`, read as `csv` says, have for times, and whether that is certain or assumed.
pub fn dates_of(csv: &Csv, sample: &Sample) -> Option<(DateOrder, Origin)> {
    const LINES_MAX: usize = 100;
    if !csv.columns.contains(&Some(Role::Time)) {
        return None;
    }
    // What else is wrong with a line says nothing of its time.
    let time_alone: Vec<_> = csv.columns.iter().map(|role| role.filter(|role| *role == Role::Time)).collect();
    let dates = |order: DateOrder, lines: usize| {
        let dated = Csv { time_unit: TimeUnit::Date(order), columns: time_alone.clone(), ..csv.clone() };
        let mut volumes = Volumes::default();
        let records = sample.lines().take(lines).map(|line| dated.line(line, &mut volumes));
        records.filter(|record| matches!(record, Ok(Record::Request(_)))).count()
    };
    if dates(DateOrder::Year, LINES_MAX) > 0 {
        return Some((DateOrder::Year, Origin::Values));
    }
    if dates(DateOrder::Day, LINES_MAX) + dates(DateOrder::Month, LINES_MAX) == 0 {
        return None;
    }
    // A number above 12 is no month.
    let (day_first, month_first) = (dates(DateOrder::Day, usize::MAX), dates(DateOrder::Month, usize::MAX));
    Some(match day_first.cmp(&month_first) {
        Ordering::Greater => (DateOrder::Day, Origin::Values),
        Ordering::Less => (DateOrder::Month, Origin::Values),
        Ordering::Equal => (DateOrder::Day, Origin::Assumed),
    })
}

fn word_of(unit: TimeUnit) -> &'static str {
    TIME_UNITS.iter().find(|(_, known)| *known == unit).map_or("", |(word, _)| word)
}

fn date_words(unit: TimeUnit) -> String {
    match unit {
        TimeUnit::Filetime => "units of 100 ns since 1601 (filetime)".to_owned(),
        TimeUnit::Date(DateOrder::Year) => "dates".to_owned(),
        TimeUnit::Date(DateOrder::Day) => "dates, the day first".to_owned(),
        TimeUnit::Date(DateOrder::Month) => "dates, the month first".to_owned(),
        unit => format!("{} since 1970", word_of(unit)),
    }
}

/// Whether `value` units of `unit_bytes` are whole sectors.
fn is_whole(value: u64, unit_bytes: u64) -> bool {
    (value % SECTOR_BYTES * (unit_bytes % SECTOR_BYTES)).is_multiple_of(SECTOR_BYTES)
}

/// Values that are not whole sectors: how many there are, and the first.
fn partial(values: &[u64], unit_bytes: u64) -> (usize, Option<u64>) {
    let mut partial = values.iter().copied().filter(|&value| !is_whole(value, unit_bytes));
    let first = partial.next();
    (partial.count() + usize::from(first.is_some()), first)
}

impl Evidence {
    /// What the first lines hold, read in the columns of `csv`.
    pub fn of(csv: &Csv, sample: &Sample) -> Evidence {
        let in_unit = |unit| if matches!(csv.time_unit, TimeUnit::Date(_)) { csv.time_unit } else { unit };
        let time_unit = in_unit(TimeUnit::Microseconds);
        let plain = Csv { time_unit, offset_unit_bytes: 1, length_unit_bytes: 1, ..csv.clone() };
        let in_millionths = Csv { time_unit: in_unit(TimeUnit::Seconds), ..plain.clone() };
        let text = |field: &[u8]| String::from_utf8_lossy(field.trim_ascii()).into_owned();
        let (mut evidence, mut volumes) = (Evidence::default(), Volumes::default());
        for line in sample.lines() {
            let Ok(Record::Request(request)) = plain.line(line, &mut volumes) else { continue };
            if evidence.exponent.is_none() {
                evidence.exponent = csv.fields(line).into_iter().find(|field| has_exponent(field)).map(text);
            }
            if evidence.date.is_none() {
                let column = csv.columns.iter().position(|column| *column == Some(Role::Time));
                evidence.date = column.and_then(|column| csv.fields(line).into_iter().nth(column)).map(text);
            }
            evidence.times.push(request.time_us);
            evidence.offsets.push(request.offset_bytes);
            evidence.lengths.extend((request.length_bytes > 0).then_some(request.length_bytes));
            if evidence.decimals.is_none()
                && let Ok(Record::Request(request)) = in_millionths.line(line, &mut volumes)
            {
                evidence.decimals = Some(request.time_us).filter(|millionths| millionths % 1_000_000 != 0);
            }
        }
        if !csv.columns.contains(&Some(Role::Time)) {
            evidence.times.clear();
        }
        evidence
    }

    /// What was read how, and what speaks against it.
    ///
    /// # Errors
    /// Units that cannot be right, unless an option says so.
    pub fn judge(&self, csv: &Csv) -> Result<Reading, Malformed> {
        let mut doubts = Vec::new();
        self.judge_times(csv, &mut doubts)?;
        if let Some(number) = &self.exponent {
            doubts.push(format!(
                "it has numbers with exponents, such as {number}, which may have lost digits where they were written"
            ));
        }
        if csv.columns.contains(&Some(Role::Length)) {
            self.judge_lengths(csv)?;
            self.judge_offsets(csv)?;
            let unaligned =
                partial(&self.offsets, csv.offset_unit_bytes).0.min(partial(&self.lengths, csv.length_unit_bytes).0);
            if 2 * unaligned > self.offsets.len() && [csv.origins.offset, csv.origins.length] == [Origin::Assumed; 2] {
                doubts.push(
                    "most requests begin and end within sectors; offset-unit=512 and length-unit=512 read them in sectors".to_owned(),
                );
            }
        }
        Ok(Reading { columns: self.columns(csv), doubts })
    }

    fn judge_times(&self, csv: &Csv, doubts: &mut Vec<String>) -> Result<(), Malformed> {
        if let (Origin::Assumed, TimeUnit::Date(_), Some(date)) = (csv.origins.time, csv.time_unit, &self.date) {
            let found = format!("dates such as {date:?}, whose day and month may be either");
            let decides = "time-unit=date-dmy or time-unit=date-mdy in --format";
            let expected = format!("an order of them, which nothing says: {decides} {}", self.spec(csv));
            return Err(Malformed { found, expected });
        }
        if let (Origin::Assumed, Some(millionths)) = (csv.origins.time, self.decimals) {
            let found = format!("times with decimals, such as {:.6}", millionths as f64 / 1e6);
            let expected = "a unit of time, which nothing says: time-unit=s or time-unit=ms in --format".to_owned();
            return Err(Malformed { found, expected: format!("{expected} {}", self.spec(csv)) });
        }
        match epoch_of(&self.times).filter(|_| csv.origins.time != Origin::Option) {
            Some(unit) if unit != csv.time_unit && !matches!(csv.time_unit, TimeUnit::Date(_)) => doubts.push(format!(
                "its times look like {} and are read in {}; time-unit= decides",
                date_words(unit),
                word_of(csv.time_unit)
            )),
            _ => {}
        }
        Ok(())
    }

    /// Lengths in bytes beside offsets in sectors.
    fn judge_lengths(&self, csv: &Csv) -> Result<(), Malformed> {
        let offsets_are_whole = partial(&self.offsets, csv.offset_unit_bytes).0 == 0;
        let (odd, Some(length)) = partial(&self.lengths, csv.length_unit_bytes) else { return Ok(()) };
        let in_sectors = csv.offset_unit_bytes.is_multiple_of(SECTOR_BYTES);
        let mut sorted = self.lengths.clone();
        sorted.sort_unstable();
        let are_short = sorted[sorted.len() / 2].saturating_mul(csv.length_unit_bytes) < SECTOR_BYTES;
        let several = self.offsets.iter().any(|offset| *offset != self.offsets[0]);
        let wrong = match csv.origins.length {
            Origin::Option => false,
            // Devices of sectors have no other requests.
            Origin::Assumed if in_sectors => true,
            _ => offsets_are_whole && (in_sectors || several) && are_short && 2 * odd > self.lengths.len(),
        };
        if !wrong {
            return Ok(());
        }
        let offsets = if in_sectors { "in sectors" } else { "that are multiples of 512" };
        let bytes = length.saturating_mul(csv.length_unit_bytes);
        Err(Malformed {
            found: format!("offsets {offsets} beside requests of {bytes} bytes"),
            expected: format!(
                "length-unit=512 (sectors) or length-unit=1 (bytes) in --format {}, which decides",
                self.spec(csv)
            ),
        })
    }

    /// Offsets in bytes beside lengths in sectors.
    fn judge_offsets(&self, csv: &Csv) -> Result<(), Malformed> {
        let (odd, Some(offset)) = partial(&self.offsets, csv.offset_unit_bytes) else { return Ok(()) };
        let in_sectors = csv.length_unit_bytes.is_multiple_of(SECTOR_BYTES);
        let wrong = match csv.origins.offset {
            Origin::Option => false,
            Origin::Assumed => in_sectors,
            Origin::Header | Origin::Values => in_sectors && 2 * odd > self.offsets.len(),
        };
        if !wrong {
            return Ok(());
        }
        let byte = offset.saturating_mul(csv.offset_unit_bytes);
        Err(Malformed {
            found: format!("lengths in sectors beside a request at byte {byte}, within a sector"),
            expected: format!(
                "offset-unit=512 (sectors) or offset-unit=1 (bytes) in --format {}, which decides",
                self.spec(csv)
            ),
        })
    }

    /// The columns as `--format` names them.
    fn spec(&self, csv: &Csv) -> String {
        let column = |(role, option, _): &(Role, &str, _)| {
            let at = csv.columns.iter().position(|column| *column == Some(*role));
            at.map(|at| format!("{option}={at}"))
        };
        let columns: Vec<String> = ROLES.iter().filter_map(column).collect();
        format!("csv:{}{}", columns.join(","), csv.others)
    }

    /// The same with the units, and what these come from.
    fn columns(&self, csv: &Csv) -> String {
        let Origins { time, offset, length } = csv.origins;
        let has = |role: Role| csv.columns.contains(&Some(role));
        let units = [
            ("time-unit", word_of(csv.time_unit).to_owned(), time, has(Role::Time)),
            ("offset-unit", csv.offset_unit_bytes.to_string(), offset, true),
            ("length-unit", csv.length_unit_bytes.to_string(), length, has(Role::Length)),
        ];
        let mut text = self.spec(csv);
        for (option, unit, ..) in units.iter().filter(|(.., is_there)| *is_there) {
            text += &format!(",{option}={unit}");
        }
        let from = |origin: Origin, words: &str| {
            let of: Vec<&str> = units
                .iter()
                .filter(|(_, _, from, there)| *there && *from == origin)
                .map(|(option, ..)| *option)
                .collect();
            (!of.is_empty()).then(|| format!("{words}: {}", of.join(", ")))
        };
        let dates = format!("by its values, {}", date_words(csv.time_unit));
        let said =
            [from(Origin::Header, "by the header"), from(Origin::Values, &dates), from(Origin::Assumed, "assumed")];
        let said: Vec<String> = said.into_iter().flatten().collect();
        if said.is_empty() { text } else { format!("{text} ({})", said.join("; ")) }
    }
}
