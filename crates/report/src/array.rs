//! The figures of arrays with admission rules, each a chart and its table. They follow Figures 4, 5, 8 and 10 to 13 of
//! a paper. Source: Moon, Reddy: Adaptive policies for balancing performance and lifetime of mixed SSD arrays (MSST
//! 2016).
//!
//! Everything is relative to the policy without a rule, on the same trace in a cache of the same size. Over several
//! traces it is the geometric mean.

pub(crate) mod time;

use crate::draw::charts::{Chart, Series};
use crate::draw::look::Looks;
use crate::draw::scales::{categories, linear, ratios};
use crate::figures::{NOT_RUN, NUMBERS_FOLLOW, Subject, figure};
use crate::grid::Grid;
use crate::numbers::{count, duration, lifetime, number, percent, shortest, years};
use crate::rows::{file_name, rule, with_caveat};
use crate::table::{Figure, Table};
use flashwise_sim::array::ArrayFigures;
use flashwise_sim::columns::{About, Column, about};
use flashwise_sim::results::{ResultRow, SpecText};

/// The paper's results on 13 traces of a week, against LRU.
const PAPER: &str = "Moon and Reddy have 2.36 with probability, 2.31 with size and 1.41 with hotness, on average of 13 \
    traces of a week.";

/// A figure of an array: a column of the rows.
pub struct Measure {
    pub id: &'static str,
    pub name: &'static str,
    about: About,
    /// True if more is better.
    pub more_is_better: bool,
}

impl Measure {
    const fn new(id: &'static str, about: About, more_is_better: bool) -> Measure {
        Measure { id, name: about.title(), about, more_is_better }
    }

    /// Returns its value in a row, if any.
    fn of(&self, row: &ResultRow) -> Option<f64> {
        row.figure(self.about.name)
    }

    /// Formats a value for a table.
    fn written(&self, value: f64) -> String {
        match self.about.unit {
            "years" => years(value),
            "us" => duration(value),
            _ => number(value),
        }
    }
}

const ARRAY: &[Column<ArrayFigures>] = ArrayFigures::COLUMNS;
const LATENCY: Measure = Measure::new("latency", about(ARRAY, "latency_mean_us"), false);
const LIFETIME: Measure = Measure::new("lifetime", about(ARRAY, "lifetime_years"), true);
const QUOTIENT: Measure = Measure::new("quotient", about(ARRAY, "latency_over_lifetime"), false);
const HITS: Measure = Measure::new("hits", about(ResultRow::COLUMNS, "hit_ratio"), true);
const MEASURES: [&Measure; 3] = [&LATENCY, &LIFETIME, &QUOTIENT];

/// True if arrays were simulated.
pub fn is_of_arrays(rows: &[ResultRow]) -> bool {
    rows.first().is_some_and(|row| row.array.is_some())
}

/// Labels rows with their rule, or with the policy if there is none; with both if rules are before several policies.
/// Rows of other simulations are unchanged.
pub fn labelled(all: &[&[ResultRow]]) -> Vec<Vec<ResultRow>> {
    let mut behind: Vec<&str> = Vec::new();
    for row in all.iter().copied().flatten().filter(|row| !rule(row).is_empty()) {
        if !behind.contains(&&row.policy[..]) {
            behind.push(&row.policy);
        }
    }
    let label = |row: &ResultRow| match &rule(row)[..] {
        "" => row.policy.to_string(),
        rule if behind.len() == 1 => rule.to_owned(),
        rule => format!("{} behind {rule}", row.policy),
    };
    all.iter()
        .map(|rows| rows.iter().map(|row| ResultRow { policy: label(row).into(), ..row.clone() }).collect())
        .collect()
}

/// Returns the run of the policy without a rule, for comparison with a run.
fn alone<'a>(rows: &'a [ResultRow], row: &ResultRow) -> Option<&'a ResultRow> {
    rows.iter().find(|other| {
        rule(other).is_empty() && other.policy == row.policy && other.capacity_blocks == row.capacity_blocks
    })
}

/// Returns `value` of `row` relative to that of `base`, if it is a number above 0.
fn relative(measure: &Measure, row: &ResultRow, base: &ResultRow) -> Option<f64> {
    let ratio = measure.of(row)? / measure.of(base)?;
    (ratio.is_finite() && ratio > 0.0).then_some(ratio)
}

/// Returns how many times better a ratio is.
fn times_better(measure: &Measure, ratio: f64) -> f64 {
    if measure.more_is_better { ratio } else { 1.0 / ratio }
}

fn geometric_mean(values: &[f64]) -> Option<f64> {
    let sum: f64 = values.iter().map(|value| value.ln()).sum();
    (!values.is_empty()).then(|| (sum / values.len() as f64).exp())
}

/// Returns the figures of one trace; `rows` are not labelled.
pub fn by_rule(subject: &Subject, rows: &[ResultRow]) -> Vec<Figure> {
    let mut figures = Vec::new();
    if subject.grid.sizes.len() > 1 {
        figures.push(subject.hit_ratio());
        figures.extend(MEASURES.iter().filter_map(|measure| provisioning(subject, measure, rows)));
    }
    figures.extend(rules(subject));
    figures.extend(sweeps(subject.id, &[rows]));
    figures
}

/// Returns a measure against the cache size, relative to the first line at the smallest size (Figure 11).
fn provisioning(subject: &Subject, measure: &Measure, rows: &[ResultRow]) -> Option<Figure> {
    let grid = subject.grid;
    let smallest = *grid.sizes.first()?;
    let mut of_smallest = grid.policies.iter().filter_map(|&policy| grid.row(policy, smallest));
    let base = of_smallest.find(|row| rule(row).is_empty())?;
    let value = |row: &ResultRow| relative(measure, row, base);
    let title = format!("{} against cache size", measure.name);
    let axis = format!("{}, of {}'s at the smallest size", measure.name, base.policy);
    let chart = subject.against_size(measure.id, &title, &axis, "", &value, &grid.policies);
    let cell = |row: &ResultRow| measure.of(row).map(|value| measure.written(value));
    let table = subject.by_policy(&format!("{title}, in {}", measure.about.unit), &grid.policies, cell);
    let better = if measure.more_is_better { "more" } else { "less" };
    let caption = format!(
        "{} against cache size: {better} is better. The storage is twice the trace's blocks, so that a cache of 10% of \
         the blocks is 5% of it.",
        measure.name
    );
    let caption = if measure.id == LATENCY.id { caption } else { with_caveat(caption, rows) };
    Some(Figure { caption, ..figure(&chart, table) })
}

/// Compares the rules at the largest size: a line of points for each.
fn rules(subject: &Subject) -> Option<Figure> {
    let grid = subject.grid;
    let size = *grid.sizes.last()?;
    let rows: Vec<&ResultRow> = grid.policies.iter().filter_map(|&policy| grid.row(policy, size)).collect();
    let base = *rows.iter().find(|row| rule(row).is_empty())?;
    if rows.len() < 2 {
        return None;
    }
    let looks = Looks::new(MEASURES.map(|measure| measure.name));
    let values = MEASURES.map(|measure| rows.iter().map(|row| relative(measure, row, base)).collect::<Vec<_>>());
    let x = ratios(
        format!("Relative to {} without a rule (logarithmic)", base.policy),
        values.iter().flatten().flatten().copied(),
    );
    let names: Vec<String> = rows.iter().map(|row| row.policy.to_string()).collect();
    let title = format!("Latency, lifetime and their quotient by rule with {}", size.named());
    let chart = Chart {
        id: format!("{}-rules", subject.id),
        title: title.clone(),
        description: format!("A line for each rule, relative to {} without a rule. {NUMBERS_FOLLOW}", base.policy),
        x,
        y: categories("", &names),
        series: dots(&MEASURES.map(|measure| measure.name), &looks, &values),
        markers: true,
    };
    let heads = [
        "Rule",
        "Hit ratio",
        "Bypassed",
        "Latency",
        "Lifetime\nyears",
        "us per year",
        "Times better",
        "Cache writes\nper cell and s",
        "Storage writes\nper cell and s",
    ];
    let mut table = Table::new(&title, heads);
    for row in &rows {
        let Some(array) = &row.array else { continue };
        let better = relative(&QUOTIENT, row, base).map_or_else(|| "-".to_owned(), |ratio| number(1.0 / ratio));
        let mut cells = vec![percent(row.hit_ratio), count(row.bypasses)];
        cells.extend([
            duration(array.latency_mean_us),
            years(array.lifetime_years),
            number(array.latency_over_lifetime),
        ]);
        cells.extend([better, number(array.cache_write_rate), number(array.storage_write_rate)]);
        table.push(&*row.policy, cells);
    }
    let caption = format!(
        "Effect of each rule, relative to {} without a rule: less latency, a longer lifetime and less latency over \
         lifetime are better.",
        base.policy
    );
    let caption = with_caveat(caption, rows);
    Some(Figure { caption, ..figure(&chart, table) })
}

/// Returns a point for each value; values of several names are side by side in each category.
fn dots(names: &[&str], looks: &Looks, values: &[Vec<Option<f64>>]) -> Vec<Series> {
    let mut series = Vec::new();
    for (number, (name, values)) in names.iter().zip(values).enumerate() {
        let aside = 0.5 * ((number as f64 + 0.5) / names.len() as f64 - 0.5);
        for (at, value) in values.iter().enumerate() {
            let y = (values.len() - 1 - at) as f64 - aside;
            let point = value.map(|value| (value.log2(), y));
            series.extend(point.map(|point| Series {
                name: (*name).to_owned(),
                look: looks.of(name),
                points: vec![point],
            }));
        }
    }
    series
}

/// Compares each rule with its policy on each trace, with the geometric mean (Figure 10), and places `auto` among its
/// candidates.
pub fn over_traces(
    names: &[&str],
    sections: &[&[ResultRow]],
    labelled: &[Vec<ResultRow>],
    looks: &Looks,
) -> Vec<Figure> {
    let mut figures = Vec::new();
    if sections.len() > 1 {
        for size in sizes(sections) {
            figures.extend(
                MEASURES.iter().filter_map(|measure| on_traces(names, sections, labelled, looks, measure, size)),
            );
        }
        figures.extend(sweeps("all", sections));
    }
    figures.extend(crate::answer::candidates::of_auto(names, sections, labelled, looks));
    figures
}

/// Returns the sizes as given, in the order of their first rows.
pub fn sizes<'a>(sections: &[&'a [ResultRow]]) -> Vec<&'a str> {
    let mut sizes: Vec<&str> = Vec::new();
    for row in sections.iter().copied().flatten() {
        if !sizes.contains(&&row.size[..]) {
            sizes.push(&row.size);
        }
    }
    sizes
}

fn on_traces(
    names: &[&str],
    sections: &[&[ResultRow]],
    labelled: &[Vec<ResultRow>],
    looks: &Looks,
    measure: &Measure,
    size: &str,
) -> Option<Figure> {
    let mut labels: Vec<&str> = Vec::new();
    let ruled = |row: &&ResultRow| !rule(row).is_empty() && row.size == size;
    for row in labelled.iter().flatten().filter(ruled) {
        if !labels.contains(&&row.policy[..]) {
            labels.push(&row.policy);
        }
    }
    if labels.is_empty() {
        return None;
    }
    let better = |trace: usize, label: &str| {
        let at = labelled[trace].iter().position(|row| row.policy == label && row.size == size)?;
        let row = &sections[trace][at];
        relative(measure, row, alone(sections[trace], row)?).map(|ratio| times_better(measure, ratio))
    };
    let mut values: Vec<Vec<Option<f64>>> =
        labels.iter().map(|label| (0..sections.len()).map(|trace| better(trace, label)).collect()).collect();
    for values in &mut values {
        values.push(geometric_mean(&values.iter().copied().flatten().collect::<Vec<_>>()));
    }
    let rows: Vec<String> = names.iter().copied().chain(["geometric mean"]).map(str::to_owned).collect();
    let x = ratios("Times better than without a rule (logarithmic)", values.iter().flatten().flatten().copied());
    let title = format!("{} by trace and rule with a cache of {size}", measure.name);
    let chart = Chart {
        id: format!("all-{}-{}", measure.id, size.replace(|letter: char| !letter.is_ascii_alphanumeric(), "-")),
        title: title.clone(),
        description: format!(
            "A row for each trace with a point for each rule; further right is better. {NUMBERS_FOLLOW}"
        ),
        x,
        y: categories("", &rows.iter().map(|name| file_name(name)).collect::<Vec<_>>()),
        series: dots(&labels, looks, &values),
        markers: true,
    };
    let heads = std::iter::once("Trace").chain(labels.iter().copied());
    let mut table = Table::new(format!("{title}: times better than without a rule"), heads);
    for (at, name) in rows.iter().enumerate() {
        let cell = |values: &Vec<Option<f64>>| values[at].map_or_else(|| NOT_RUN.to_owned(), number);
        table.push(name, values.iter().map(cell).collect());
    }
    let adapts = labels.iter().any(|label| label.contains("adaptive"));
    let paper = if adapts && measure.id == QUOTIENT.id { format!(" {PAPER}") } else { String::new() };
    let caption = format!(
        "{} with a cache of {size}, {} than without a rule; 1 is as good.{paper}",
        measure.name,
        if measure.more_is_better { "how many times longer" } else { "how many times less" }
    );
    Some(Figure { caption, ..figure(&chart, table) })
}

/// An option of rules that may differ between runs.
struct RuleOption {
    rule: &'static str,
    name: &'static str,
    id: &'static str,
    axis: &'static str,
    unit: AxisUnit,
}

#[derive(Clone, Copy, PartialEq)]
enum AxisUnit {
    Share,
    Count,
    Bytes,
    Us,
}

const OPTIONS: [RuleOption; 7] = [
    RuleOption { rule: "size", name: "max", id: "size", axis: "Longest request admitted", unit: AxisUnit::Bytes },
    RuleOption {
        rule: "probability",
        name: "p",
        id: "probability",
        axis: "Portion of the misses admitted",
        unit: AxisUnit::Share,
    },
    RuleOption {
        rule: "hotness",
        name: "min",
        id: "hotness",
        axis: "References that a block needs",
        unit: AxisUnit::Count,
    },
    RuleOption {
        rule: "hotness",
        name: "top",
        id: "hotness-top",
        axis: "Share of the blocks that is hot",
        unit: AxisUnit::Share,
    },
    RuleOption { rule: "adaptive", name: "target", id: "target", axis: "Target latency", unit: AxisUnit::Us },
    RuleOption { rule: "adaptive", name: "sampling", id: "sampling", axis: "Sampling rate", unit: AxisUnit::Share },
    RuleOption { rule: "auto", name: "sampling", id: "auto-sampling", axis: "Sampling rate", unit: AxisUnit::Share },
];

impl RuleOption {
    /// Returns the option's value in a rule, and the rule without it.
    fn split(&self, rule: &SpecText) -> Option<(f64, SpecText)> {
        let given = rule.value(self.name).filter(|_| rule.name() == self.rule)?;
        Some((self.read(given)?, rule.without(self.name)))
    }

    fn read(&self, text: &str) -> Option<f64> {
        match self.unit {
            AxisUnit::Bytes => Some(text.parse::<flashwise_core::quantity::ByteSize>().ok()?.bytes() as f64),
            AxisUnit::Us => Some(text.parse::<flashwise_core::quantity::Duration>().ok()?.us() as f64),
            AxisUnit::Share | AxisUnit::Count => flashwise_core::quantity::ratio(text),
        }
    }

    fn write(&self, value: f64) -> String {
        match self.unit {
            AxisUnit::Bytes => crate::numbers::bytes(value as u64),
            AxisUnit::Us => duration(value),
            AxisUnit::Share => percent(value),
            AxisUnit::Count => count(value as u64),
        }
    }
}

/// Rules that differ in one option only: their common part, and for each value, the largest last, the rows with their
/// traces.
struct Sweep<'a> {
    name: String,
    values: Vec<(f64, Vec<(usize, &'a ResultRow)>)>,
}

/// Returns latency, lifetime and their quotient against the values of an option (Figures 4, 5, 12 and 13), for rules
/// that differ in it only.
fn sweeps(id: &str, sections: &[&[ResultRow]]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for option in &OPTIONS {
        for (number, sweep) in grouped(option, sections).iter().enumerate() {
            figures.extend(against(&format!("{id}-{}-{number}", option.id), option, sweep, sections));
        }
    }
    figures
}

fn grouped<'a>(option: &RuleOption, sections: &[&'a [ResultRow]]) -> Vec<Sweep<'a>> {
    let mut sweeps: Vec<Sweep> = Vec::new();
    for (trace, row) in sections.iter().enumerate().flat_map(|(trace, rows)| rows.iter().map(move |row| (trace, row))) {
        let Some((value, rest)) = option.split(rule(row)) else { continue };
        let name = format!("{rest} before {} with {}", row.policy, row.size);
        let at = sweeps.iter().position(|sweep| sweep.name == name).unwrap_or_else(|| {
            sweeps.push(Sweep { name, values: Vec::new() });
            sweeps.len() - 1
        });
        let values = &mut sweeps[at].values;
        match values.iter_mut().find(|point| point.0 == value) {
            Some((_, rows)) => rows.push((trace, row)),
            None => values.push((value, vec![(trace, row)])),
        }
    }
    sweeps.retain(|sweep| sweep.values.len() > 1);
    sweeps.iter_mut().for_each(|sweep| sweep.values.sort_by(|a, b| a.0.total_cmp(&b.0)));
    sweeps
}

fn against(id: &str, option: &'static RuleOption, sweep: &Sweep, sections: &[&[ResultRow]]) -> Option<Figure> {
    let mean = |measure: &Measure, rows: &[(usize, &ResultRow)]| {
        let ratio = |(trace, row): &(usize, &ResultRow)| relative(measure, row, alone(sections[*trace], row)?);
        geometric_mean(&rows.iter().filter_map(ratio).collect::<Vec<_>>())
    };
    let logarithmic = matches!(option.unit, AxisUnit::Bytes | AxisUnit::Us) || option.name == "sampling";
    // Ticks are at 1%, 2%, 4% and at 100 us, 200 us, 400 us.
    let one = match option.unit {
        AxisUnit::Share => 0.01,
        AxisUnit::Us => 100.0,
        AxisUnit::Bytes | AxisUnit::Count => 1.0,
    };
    let place = move |value: f64| if logarithmic { (value / one).log2() } else { value };
    let lines = MEASURES.map(|measure| -> Vec<(f64, f64)> {
        let point = |(value, rows): &(f64, Vec<_>)| Some((place(*value), mean(measure, rows)?));
        sweep.values.iter().filter_map(point).collect()
    });
    if lines.iter().all(Vec::is_empty) {
        return None;
    }
    let looks = Looks::new(MEASURES.map(|measure| measure.name));
    let series = MEASURES.iter().zip(lines).map(|(measure, points)| Series {
        name: measure.name.to_owned(),
        look: looks.of(measure.name),
        points,
    });
    let series: Vec<_> = series.collect();
    let points = || series.iter().flat_map(|series| &series.points);
    let values = sweep.values.iter().map(|(value, _)| place(*value));
    let x = if logarithmic {
        crate::draw::scales::doublings(format!("{} (logarithmic)", option.axis), values, move |value| {
            option.write(value * one)
        })
    } else {
        let mut axis = linear(option.axis, values, "");
        if option.unit == AxisUnit::Share {
            axis.tick = std::sync::Arc::new(|value| format!("{}%", shortest(value * 100.0, 1)));
        }
        axis
    };
    let y = linear("Relative to no rule", points().map(|point| point.1), "");
    let title = format!("{}: {}", option.axis, sweep.name);
    let description = format!("Latency, lifetime and their quotient against it. {NUMBERS_FOLLOW}");
    let chart = Chart { id: id.to_owned(), title: title.clone(), description, x, y, series, markers: true };
    let heads = [option.axis, LATENCY.name, LIFETIME.name, QUOTIENT.name, "Hit ratio"];
    let mut table = Table::new(format!("{title}: as multiples of the policy without a rule"), heads);
    for (value, rows) in &sweep.values {
        let cell = |measure: &&Measure| mean(measure, rows).map_or_else(|| "unlimited".to_owned(), number);
        let hits: f64 = rows.iter().filter_map(|(_, row)| HITS.of(row)).sum::<f64>() / rows.len() as f64;
        table.push(option.write(*value), MEASURES.iter().map(cell).chain([percent(hits)]).collect());
    }
    let over = if sections.len() > 1 { ", geometric means over the traces" } else { "" };
    let caption = format!("{} with {}{over}; relative to the policy without a rule.", option.axis, sweep.name);
    Some(Figure { caption, ..figure(&chart, table) })
}

/// Latency and lifetime are best if nothing is cached and nothing wears out. So a rule counts as better than no rule
/// only if it keeps at least this share of the hits.
const HITS_MIN: f64 = 0.5;
/// A rule counts as better only if accesses wait at most this many times as long. With the paper's rules they wait less
/// than 40 % longer on average (section VI.E). This limit is needed too, because a cache with few hits hardly changes
/// the storage's latency.
const LATENCY_MAX: f64 = 1.4;

/// True if a rule uses the cache enough, compared with no rule.
fn is_used(row: &ResultRow, base: &ResultRow) -> bool {
    let latency = |row: &ResultRow| LATENCY.of(row).unwrap_or(0.0);
    row.hit_ratio >= HITS_MIN * base.hit_ratio && latency(row) <= LATENCY_MAX * latency(base)
}

/// Names the storage of runs that do not name theirs.
const DEFAULT_STORAGE: &str = "On SSDs of MLC flash, the default of --storage-device";

/// True if the run has the default storage.
fn has_default_storage(row: &ResultRow) -> bool {
    row.job.as_ref().is_some_and(|job| job.split(' ').all(|word| !word.starts_with("storage-device=")))
}

/// Explains that a rule has the least latency over lifetime because it hardly uses the cache.
fn left_out(row: &ResultRow, base: &ResultRow) -> String {
    let better =
        relative(&QUOTIENT, row, base).map_or_else(String::new, |ratio| format!(" by {} times", number(1.0 / ratio)));
    let [own, without] = [row, base].map(|row| LATENCY.of(row).map_or_else(String::new, duration));
    format!(
        "{} would be better{better}, but hits {} of the accesses where {} hits {}, and takes {own} where that takes \
         {without}. A rule with less than half the hits, or waits more than 40% longer, is not compared.",
        row.policy,
        percent(row.hit_ratio),
        base.policy,
        percent(base.hit_ratio)
    )
}

/// Summarises the rules of a trace: the best, and the one with the most hits.
pub fn sentences(grid: &Grid) -> [String; 2] {
    let Some(&size) = grid.sizes.last() else { return ["Nothing was simulated.".to_owned(), String::new()] };
    let rows: Vec<&ResultRow> = grid.policies.iter().filter_map(|&policy| grid.row(policy, size)).collect();
    let quotient = |row: &&&ResultRow| QUOTIENT.of(row).unwrap_or(f64::INFINITY);
    let least =
        |rows: &[&ResultRow]| rows.iter().min_by(|a, b| quotient(a).total_cmp(&quotient(b))).map(|row| (*row).clone());
    let base = rows.iter().find(|row| rule(row).is_empty()).or(rows.first());
    let Some(base) = base else { return ["Nothing was simulated.".to_owned(), String::new()] };
    let used: Vec<&ResultRow> = rows.iter().copied().filter(|row| is_used(row, base)).collect();
    let (Some(best), Some(least_of_all)) = (&least(&used), &least(&rows)) else {
        return ["Nothing was simulated.".to_owned(), String::new()];
    };
    let [from, to] = [base, best].map(|row| {
        let [latency, years] = [&LATENCY, &LIFETIME].map(|measure| measure.of(row));
        format!("{} and {}", latency.map_or_else(String::new, duration), years.map_or_else(String::new, lifetime))
    });
    let better = relative(&QUOTIENT, best, base).map(|ratio| 1.0 / ratio);
    let all_are_compared = is_used(least_of_all, base);
    let before = match (has_default_storage(base), all_are_compared) {
        (true, true) => format!("{DEFAULT_STORAGE}, "),
        (true, false) => format!("{DEFAULT_STORAGE}, of the compared rules "),
        (false, true) => String::new(),
        (false, false) => "Of the compared rules, ".to_owned(),
    };
    let first = match better {
        _ if best.policy == base.policy => {
            let policy = &base.policy;
            format!(
                "{before}{policy} without a rule has the least latency over lifetime with {}: {from}.",
                size.named()
            )
        }
        Some(better) => format!(
            "{before}{} has the least latency over lifetime with {}, {} times better than {}: {to}, where {} has \
             {from}.",
            best.policy,
            size.named(),
            number(better),
            base.policy,
            base.policy
        ),
        None => format!("{before}{} has the least latency over lifetime with {}: {to}.", best.policy, size.named()),
    };
    let first = if all_are_compared { first } else { format!("{first} {}", left_out(least_of_all, base)) };
    let most = rows.iter().map(|row| row.hits).max().unwrap_or(0);
    let leaders: Vec<_> = rows.iter().filter(|row| row.hits == most).collect();
    let names: Vec<_> = leaders.iter().map(|row| &*row.policy).collect();
    let hits = format!("The highest hit ratio, {}, is that of {}.", percent(leaders[0].hit_ratio), names.join(", "));
    [first, hits]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a run of LRU with a rule, with this latency and lifetime.
    fn row(rule: &str, latency_mean_us: f64, lifetime_years: f64) -> ResultRow {
        let latency_over_lifetime = latency_mean_us / lifetime_years;
        let array = ArrayFigures { latency_mean_us, lifetime_years, latency_over_lifetime, ..ArrayFigures::default() };
        ResultRow {
            policy: "lru".into(),
            size: "10%".to_owned(),
            capacity_blocks: 10,
            admission: Some(rule.into()),
            array: Some(array),
            ..ResultRow::default()
        }
    }

    #[test]
    fn rows_are_named_by_rule_and_by_policy_too_where_there_are_several() {
        let rows = [row("", 1.0, 1.0), row("auto", 1.0, 1.0)];
        let names =
            |labelled: Vec<Vec<ResultRow>>| labelled[0].iter().map(|row| row.policy.clone()).collect::<Vec<_>>();
        assert_eq!(names(labelled(&[&rows])), ["lru", "auto"]);
        let larc = [ResultRow { policy: "larc".into(), ..row("auto", 1.0, 1.0) }];
        assert_eq!(names(labelled(&[&rows, &larc])), ["lru", "lru behind auto"]);
    }

    #[test]
    fn options_are_taken_out_of_rules() {
        let split = |at: usize, rule: &str| OPTIONS[at].split(&rule.into());
        assert_eq!(split(0, "size:max=64KiB"), Some((65_536.0, "size".into())));
        assert_eq!(split(1, "probability:p=30%"), Some((0.3, "probability".into())));
        assert_eq!(
            split(4, "adaptive:kind=size,target=0.4ms,seed=2"),
            Some((400.0, "adaptive:kind=size,seed=2".into()))
        );
        assert_eq!((split(4, "adaptive:kind=size"), split(1, "hotness:min=2"), split(1, "")), (None, None, None));
    }

    /// A half and an eighth on two traces give a quarter. Values without a number are left out.
    #[test]
    fn sweeps_have_geometric_means_relative_to_runs_without_a_rule() {
        let [one, two] = [2.0, 8.0].map(|better| {
            let ruled = |p: &str, better: f64| row(&format!("probability:p={p}"), 100.0, 3.0 * better);
            [row("", 100.0, 3.0), ruled("0.5", better), ruled("0.1", f64::INFINITY), ruled("0.9", 1.0)]
        });
        let sections = [&one[..], &two[..]];
        let sweeps = grouped(&OPTIONS[1], &sections);
        assert_eq!(sweeps.len(), 1);
        let values: Vec<_> = sweeps[0].values.iter().map(|(value, rows)| (*value, rows.len())).collect();
        assert_eq!(values, [(0.1, 2), (0.5, 2), (0.9, 2)]);
        let figure = &super::sweeps("all", &sections)[0];
        let cells: Vec<_> = figure.table.rows.iter().map(|row| (row.head.as_str(), row.cells[2].as_str())).collect();
        assert_eq!(cells, [("10%", "unlimited"), ("50%", "0.25"), ("90%", "1")]);
    }

    #[test]
    fn each_trace_has_how_many_times_better_a_rule_is_and_the_last_row_the_geometric_mean() {
        let [one, two] = [2.0, 8.0].map(|better| [row("", 100.0, 3.0), row("auto", 50.0, 3.0 * better / 2.0)]);
        let sections = [&one[..], &two[..]];
        let labelled = labelled(&sections);
        let figures = over_traces(&["one", "two"], &sections, &labelled, &Looks::new(["lru", "auto"]));
        let columns: Vec<Vec<_>> =
            figures.iter().map(|figure| figure.table.rows.iter().map(|row| row.cells[0].as_str()).collect()).collect();
        assert_eq!(columns, [["2", "2", "2"], ["1", "4", "2"], ["2", "8", "4"]]);
    }

    /// A rule that hits 0.3 %, where LRU hits 12 %, wears nothing and would win by 483 times.
    #[test]
    fn a_cache_that_is_hardly_used_does_not_have_the_least_latency_over_lifetime() {
        let hitting = |hit_ratio: f64, row: ResultRow| ResultRow { hit_ratio, ..row };
        let rows = [
            hitting(0.12, row("", 180.0, 1.0)),
            hitting(0.10, row("hotness:min=2", 190.0, 2.0)),
            hitting(0.003, row("probability:p=0", 199.0, 534.0)),
        ];
        let labelled = labelled(&[&rows]);
        let [first, _] = sentences(&Grid::new(&labelled[0]));
        assert!(
            first.starts_with("Of the compared rules, hotness:min=2 has the least latency over lifetime"),
            "{first}"
        );
        let said = "probability:p=0 would be better by 483 times, but hits 0.3% of the accesses where lru hits 12%";
        assert!(first.contains(said), "{first}");
        let [first, _] = sentences(&Grid::new(&labelled[0][..2]));
        assert!(
            first.starts_with("hotness:min=2 has the least latency") && !first.contains("would be better"),
            "{first}"
        );
        let of_job = |job: &str| {
            let of_job = |row: &ResultRow| ResultRow { job: Some(job.to_owned()), ..row.clone() };
            sentences(&Grid::new(&labelled[0][..2].iter().map(of_job).collect::<Vec<_>>()))[0].clone()
        };
        let default = of_job("policy=lru size=10%");
        assert!(
            default.starts_with("On SSDs of MLC flash, the default of --storage-device, hotness:min=2"),
            "{default}"
        );
        assert!(of_job("policy=lru size=10% storage-device=hdd").starts_with("hotness:min=2 has the least"));
    }
}
