//! Checks the units of a CSV against its first lines: times that are dates, offsets and lengths that contradict each
//! other.

use std::cmp::Ordering;

use super::super::dates::DateOrder;
use super::super::fields::TimeUnit;
use super::super::plausible::{
    COMMAS, Columns, Extents, Fault, Fitting, Habits, LINES_MIN, Layout, Moment, Origin, Origins, Units, date_words,
    distinct, epoch_of, likely_time, time_doubt, time_fault,
};
use super::super::spellings::has_exponent;
use super::super::{Malformed, ParseLine, Reading, Record, Sample};
use super::header::{ROLES, Role};
use super::{Csv, SECTOR_BYTES};
use crate::request::Volumes;
use crate::settings::DEFAULT_BLOCK_SIZE_BYTES;

/// The raw numbers of the requests in the first lines.
#[derive(Debug, Default)]
pub struct Evidence {
    moments: Vec<Moment>,
    extents: Extents,
    /// A number with an exponent, as spelled in the file.
    exponent: Option<String>,
    /// A time, as spelled in the file, if times are dates.
    date: Option<String>,
}

/// Returns the order of day, month and year in the first lines of `sample`, if their times are dates. The origin tells
/// if the order is certain or assumed.
pub fn dates_of(csv: &Csv, sample: &Sample) -> Option<(DateOrder, Origin)> {
    const LINES_MAX: usize = 100;
    if !csv.columns.contains(&Some(Role::Time)) {
        return None;
    }
    // Only the time is parsed: other errors of a line do not matter here.
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
    // A number above 12 is not a month.
    let (day_first, month_first) = (dates(DateOrder::Day, usize::MAX), dates(DateOrder::Month, usize::MAX));
    Some(match day_first.cmp(&month_first) {
        Ordering::Greater => (DateOrder::Day, Origin::Values),
        Ordering::Less => (DateOrder::Month, Origin::Values),
        Ordering::Equal => (DateOrder::Day, Origin::Assumed),
    })
}

/// Returns the number of values that are not whole sectors.
fn partial(values: &[u64], unit_bytes: u64) -> usize {
    values.iter().filter(|value| !value.saturating_mul(unit_bytes).is_multiple_of(SECTOR_BYTES)).count()
}

/// Returns the layout of a CSV with offsets and lengths.
pub fn layout(csv: &Csv) -> Option<Layout> {
    let all = |role: Role| (0..csv.columns.len()).filter(move |at| csv.columns[*at] == Some(role));
    Some(Layout {
        time: all(Role::Time).next().map(|at| (at, csv.time_unit)),
        op: all(Role::Op).next(),
        offset: (all(Role::Offset).next()?, csv.offset_unit_bytes),
        length: (all(Role::Length).next()?, csv.length_unit_bytes),
        volume: all(Role::Volume).collect(),
        origins: csv.origins,
        ..COMMAS
    })
}

/// Rejects swapped columns, unless the user gives the units of offset and length.
fn judge_places(csv: &Csv, sample: &Sample) -> Result<(), Malformed> {
    let Origins { offset, length, .. } = csv.origins;
    let is_dated = matches!(csv.time_unit, TimeUnit::Date(_));
    let Some(layout) = layout(csv).filter(|_| !is_dated) else { return Ok(()) };
    if [offset, length] == [Origin::Option; 2] || csv.kilo_bytes.is_some() {
        return Ok(());
    }
    let mut volumes = Volumes::default();
    let lines = sample.lines().filter(|line| matches!(csv.line(line, &mut volumes), Ok(Record::Request(_))));
    let rows: Vec<Vec<&[u8]>> = lines.map(|line| csv.fields(line)).collect();
    if rows.len() < LINES_MIN {
        return Ok(());
    }
    let Some((found, places)) = Columns::new(&layout, &rows).moved() else { return Ok(()) };
    let roles = [(places.time, Role::Time), (Some(places.offset), Role::Offset), (Some(places.length), Role::Length)];
    let roles = roles.into_iter().filter_map(|(at, role)| Some((at?, role)));
    let mut columns = vec![None; rows[0].len()];
    columns.iter_mut().zip(&csv.columns).for_each(|(to, from)| *to = from.filter(|role| *role == Role::Op));
    for (at, role) in roles.chain(places.volume.iter().map(|at| (*at, Role::Volume))) {
        columns[at] = Some(role);
    }
    let moved = Csv { labels: vec![String::new(); columns.len()], columns, ..csv.clone() };
    let evidence = Evidence::of(&moved, sample);
    let (offset_bytes, length_bytes) = evidence.extents.likely(Habits::default());
    let own = evidence.fitting(&moved);
    Err(Fitting { offset_bytes: Some(offset_bytes), length_bytes: Some(length_bytes), ..own }.refusal(found))
}

impl Evidence {
    /// Collects the first lines of `sample` in the columns of `csv`.
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
            let millionths = match in_millionths.line(line, &mut volumes) {
                Ok(Record::Request(request)) => request.time_us % 1_000_000,
                _ => 0,
            };
            evidence.moments.push(Moment { whole: request.time_us, millionths });
            if request.length_bytes > 0 {
                evidence.extents.starts.push(request.offset_bytes);
                evidence.extents.lengths.push(request.length_bytes);
            }
        }
        if !csv.columns.contains(&Some(Role::Time)) {
            evidence.moments.clear();
        }
        evidence
    }

    /// Returns the times in whole units.
    pub fn times(&self) -> Vec<i64> {
        self.moments.iter().map(|moment| moment.whole).collect()
    }

    /// Returns how the columns are read, and the doubts about it.
    ///
    /// # Errors
    /// Units that cannot be right, unless an option sets them.
    pub fn judge(&self, csv: &Csv, sample: &Sample) -> Result<Reading, Malformed> {
        let mut doubts = Vec::new();
        judge_places(csv, sample)?;
        self.judge_times(csv, &mut doubts)?;
        if let Some(number) = &self.exponent {
            doubts.push(format!(
                "it has numbers with exponents, such as {number}, which may have lost digits where they were written"
            ));
        }
        self.judge_extents(csv, &mut doubts)?;
        Ok(Reading { columns: self.columns(csv), doubts })
    }

    fn judge_times(&self, csv: &Csv, doubts: &mut Vec<String>) -> Result<(), Malformed> {
        if let (Origin::Assumed, TimeUnit::Date(_), Some(date)) = (csv.origins.time, csv.time_unit, &self.date) {
            let found = format!("dates such as {date:?}, whose day and month may be either");
            let decides = "time-unit=date-dmy or time-unit=date-mdy in --format";
            let expected = format!("their order: {decides} {}", self.spec(csv));
            return Err(Malformed { found, expected });
        }
        let own = self.fitting(csv);
        if let (Origin::Assumed, Some(decimal)) =
            (csv.origins.time, self.moments.iter().find(|moment| moment.millionths != 0))
        {
            let steps = (self.moments.len() - 1).max(1) as f64;
            let span = self.moments[self.moments.len() - 1].whole - self.moments[0].whole;
            let unit = if span as f64 / steps > 2.0 { TimeUnit::Milliseconds } else { TimeUnit::Seconds };
            let found = format!("times with decimals, such as {}.{:06}", decimal.whole, decimal.millionths);
            let line = Fitting { time: Some(unit), ..own }.line();
            let expected = format!("a unit of time: time-unit=s or time-unit=ms, as in --format {line}");
            return Err(Malformed { found, expected });
        }
        if let Some(Fault { found, unit }) =
            time_fault(&self.moments, csv.time_unit, csv.origins.time, Habits::default())
        {
            return Err(Fitting { time: Some(unit), ..own }.refusal(found));
        }
        // Only times that are all equal are in doubt; the note about the columns names the unit.
        doubts.extend(time_doubt(&self.moments, csv.time_unit, csv.origins.time, Habits::default(), "csv"));
        match epoch_of(&self.times()) {
            Some(unit)
                if unit != csv.time_unit
                    && csv.origins.time != Origin::Option
                    && !matches!(csv.time_unit, TimeUnit::Date(_)) =>
            {
                doubts.push(format!(
                    "its times look like {} and are read in {}; time-unit= decides",
                    date_words(unit),
                    csv.time_unit.word()
                ));
            }
            _ => {}
        }
        Ok(())
    }

    /// Rejects offsets and lengths that contradict each other.
    fn judge_extents(&self, csv: &Csv, doubts: &mut Vec<String>) -> Result<(), Malformed> {
        let Origins { offset, length, .. } = csv.origins;
        let Extents { starts, lengths } = &self.extents;
        let own = self.fitting(csv);
        match (csv.columns.contains(&Some(Role::Hash)), csv.columns.contains(&Some(Role::Length))) {
            (true, _) => {}
            (false, false) if offset == Origin::Assumed && length == Origin::Assumed => {
                if starts.len() < LINES_MIN || distinct(starts) == 1 {
                    return Ok(());
                }
                let found = "offsets without lengths, as of requests of one byte".to_owned();
                return Err(match partial(starts, 1) {
                    0 => Fitting { length_bytes: Some(DEFAULT_BLOCK_SIZE_BYTES), ..own }.refusal(found),
                    _ => Fitting { spec: own.spec.replacen("offset=", "hash=", 1), offset_bytes: None, ..own }
                        .refusal(found),
                });
            }
            (false, false) => {}
            (false, true) => {
                let units = Units { offset: (csv.offset_unit_bytes, offset), length: (csv.length_unit_bytes, length) };
                if let Some(Fault { found, unit: (offset_bytes, length_bytes) }) =
                    self.extents.fault(units, Habits::default())
                {
                    let fitting = Fitting { offset_bytes: Some(offset_bytes), length_bytes: Some(length_bytes), ..own };
                    return Err(fitting.refusal(found));
                }
                let unaligned = partial(starts, csv.offset_unit_bytes).min(partial(lengths, csv.length_unit_bytes));
                if 2 * unaligned > starts.len() && [offset, length] == [Origin::Assumed; 2] {
                    doubts.push(
                        "most requests begin and end within sectors; offset-unit=512 and length-unit=512 read \
                        them in sectors"
                            .to_owned(),
                    );
                }
            }
        }
        Ok(())
    }

    /// Returns the columns and units of `csv`.
    fn fitting(&self, csv: &Csv) -> Fitting {
        let has = |role: Role| csv.columns.contains(&Some(role));
        Fitting {
            spec: self.spec(csv),
            time: has(Role::Time).then(|| match csv.origins.time {
                Origin::Assumed => likely_time(&self.moments, csv.time_unit),
                _ => csv.time_unit,
            }),
            offset_bytes: has(Role::Offset).then_some(csv.offset_unit_bytes),
            length_bytes: has(Role::Length).then_some(csv.length_unit_bytes),
            is_time_guessed: false,
        }
    }

    /// Returns the columns as `--format` names them.
    fn spec(&self, csv: &Csv) -> String {
        let column = |(role, option, _): &(Role, &str, _)| {
            let all = csv.columns.iter().enumerate().filter(|(_, column)| **column == Some(*role));
            let all: Vec<String> = all.map(|(at, _)| at.to_string()).collect();
            (!all.is_empty()).then(|| format!("{option}={}", all.join("/")))
        };
        let columns: Vec<String> = ROLES.iter().filter_map(column).collect();
        format!("csv:{}{}", columns.join(","), csv.others)
    }

    /// Returns the columns with their units and the origins of these.
    fn columns(&self, csv: &Csv) -> String {
        let Origins { time, offset, length } = csv.origins;
        let has = |role: Role| csv.columns.contains(&Some(role));
        let units = [
            ("time-unit", csv.time_unit.word().to_owned(), time, has(Role::Time)),
            ("offset-unit", csv.offset_unit_bytes.to_string(), offset, has(Role::Offset)),
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
