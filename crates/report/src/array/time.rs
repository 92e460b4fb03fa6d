//! The work of an array over time, and the choices of its rule. Source: Moon, Reddy: Adaptive policies for balancing
//! performance and lifetime of mixed SSD arrays (MSST 2016), Figure 9.

use crate::draw::charts::{Chart, Series};
use crate::draw::look::Looks;
use crate::draw::scales::{categories, linear};
use crate::figures::{NUMBERS_FOLLOW, Subject, figure};
use crate::grid::GridSize;
use crate::numbers::{duration, percent, shortest};
use crate::table::{Figure, Table};
use flashwise_sim::array::ArrayEpoch;
use flashwise_sim::results::{Epoch, ResultRow};

/// Largest number of points over time.
const POINTS_MAX: usize = 120;

/// Units of time for an axis, in seconds.
const UNITS: [(f64, &str); 4] = [(86_400.0, "days"), (3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds")];

/// A line over time, 0 to 1.
type Share = (&'static str, fn(&ArrayEpoch) -> Option<f64>);

/// Returns the figures at one size: for each adaptive rule its threshold and inputs, for each `auto` its policies.
pub fn over_time(subject: &Subject, size: GridSize) -> Vec<Figure> {
    let rows: Vec<&ResultRow> =
        subject.grid.policies.iter().filter_map(|&policy| subject.grid.row(policy, size)).collect();
    let mut figures = Vec::new();
    figures.extend(latency(subject, size, &rows));
    for (number, row) in rows.iter().enumerate() {
        let epochs: Vec<&ArrayEpoch> = row.epochs.iter().filter_map(|epoch| epoch.array.as_ref()).collect();
        let id = format!("{}-time-{}-{number}", subject.id, size.blocks);
        if epochs.iter().any(|epoch| epoch.threshold_position.is_some()) {
            let locality: [Share; 2] =
                [("threshold", |epoch| epoch.threshold_position), ("misses", |epoch| Some(epoch.miss_ratio))];
            let caption = format!(
                "{}: the threshold (100% admits everything) and misses per access. It falls when reuse is low.",
                row.policy
            );
            figures.push(shares(&format!("{id}-misses"), row, &locality, caption));
            let wear: [Share; 4] = [
                ("threshold", |epoch| epoch.threshold_position),
                ("writes", |epoch| Some(epoch.write_share)),
                ("wear of the cache", |epoch| Some(epoch.cache_wear_rate)),
                ("wear of the storage", |epoch| Some(epoch.storage_wear_rate)),
            ];
            let caption = format!(
                "{}: the threshold, writes per access, and how fast cache and storage wear out, of the fastest of \
                 both.",
                row.policy
            );
            figures.push(shares(&format!("{id}-wear"), row, &wear, caption));
        }
        if epochs.iter().any(|epoch| epoch.chosen_policy.is_some()) {
            figures.push(policies(&format!("{id}-policy"), row));
        }
    }
    figures
}

/// Returns the epochs of a row, merged to the number that is drawn.
fn drawn(row: &ResultRow) -> Vec<&ArrayEpoch> {
    let every = row.epochs.len().div_ceil(POINTS_MAX).max(1);
    row.epochs.iter().step_by(every).filter_map(|epoch| epoch.array.as_ref()).collect()
}

/// Returns seconds and name of the unit for epochs that end at `end_s`.
fn unit(end_s: f64) -> (f64, &'static str) {
    UNITS.into_iter().find(|(seconds, _)| end_s >= 2.0 * seconds).unwrap_or(UNITS[3])
}

fn end_s(rows: &[&ResultRow]) -> f64 {
    let ends = rows.iter().filter_map(|row| row.epochs.last()?.array.as_ref()).map(|last| last.start_s + last.seconds);
    ends.fold(0.0, f64::max)
}

/// Returns the mean latency of accesses by rule.
fn latency(subject: &Subject, size: GridSize, rows: &[&ResultRow]) -> Option<Figure> {
    let rows: Vec<&ResultRow> = rows.iter().copied().filter(|row| !row.epochs.is_empty()).collect();
    let (unit_s, unit) = unit(end_s(&rows));
    let longest = rows.iter().map(|row| drawn(row)).max_by_key(Vec::len)?;
    let line = |row: &&ResultRow| Series {
        name: row.policy.to_string(),
        look: subject.looks.of(&row.policy),
        points: drawn(row).iter().map(|epoch| (epoch.start_s / unit_s, epoch.latency_mean_us)).collect(),
    };
    let series: Vec<_> = rows.iter().map(line).collect();
    let title = format!("Latency over time with {}", size.named());
    let chart = Chart {
        id: format!("{}-time-{}-latency", subject.id, size.blocks),
        title: title.clone(),
        description: format!("A line for each rule. {NUMBERS_FOLLOW}"),
        x: linear(format!("Time in {unit}"), [end_s(&rows) / unit_s].into_iter(), ""),
        y: linear("Latency in us", series.iter().flat_map(|series| &series.points).map(|point| point.1), ""),
        series,
        markers: false,
    };
    let mut table = Table::new(&title, ["Seconds"].into_iter().chain(rows.iter().map(|row| &row.policy[..])));
    for (at, epoch) in longest.iter().enumerate() {
        let cell =
            |row: &&ResultRow| drawn(row).get(at).map_or_else(String::new, |epoch| duration(epoch.latency_mean_us));
        table.push(shortest(epoch.start_s, 1), rows.iter().map(cell).collect());
    }
    let caption = "Latency over time: how long a block access waits on average.".to_owned();
    Some(Figure { caption, open: false, ..figure(&chart, table) })
}

/// Draws lines from 0 to 1; rates are relative to the largest rate.
fn shares(id: &str, row: &ResultRow, lines: &[Share], caption: String) -> Figure {
    let epochs = drawn(row);
    let (unit_s, unit) = unit(end_s(&[row]));
    let is_rate = |name: &str| name.starts_with("wear");
    let rates = lines.iter().filter(|(name, _)| is_rate(name));
    let fastest = rates.flat_map(|(_, value)| epochs.iter().filter_map(|epoch| value(epoch))).fold(0.0, f64::max);
    let share = |(name, value): &Share, epoch: &ArrayEpoch| {
        let value = value(epoch)?;
        Some(if !is_rate(name) {
            value
        } else if fastest > 0.0 {
            value / fastest
        } else {
            0.0
        })
    };
    let looks = Looks::new(lines.iter().map(|(name, _)| *name));
    let line = |line: &Share| Series {
        name: line.0.to_owned(),
        look: looks.of(line.0),
        points: epochs.iter().filter_map(|epoch| Some((epoch.start_s / unit_s, share(line, epoch)? * 100.0))).collect(),
    };
    let title = format!("{}: {}", row.policy, lines.iter().map(|line| line.0).collect::<Vec<_>>().join(", "));
    let chart = Chart {
        id: id.to_owned(),
        title: title.clone(),
        description: format!("Lines over time. {NUMBERS_FOLLOW}"),
        x: linear(format!("Time in {unit}"), [end_s(&[row]) / unit_s].into_iter(), ""),
        y: linear("", [100.0].into_iter(), "%"),
        series: lines.iter().map(line).collect(),
        markers: false,
    };
    let mut table = Table::new(&title, ["Seconds"].into_iter().chain(lines.iter().map(|line| line.0)));
    for epoch in &epochs {
        let cell = |line: &Share| share(line, epoch).map_or_else(|| "none yet".to_owned(), percent);
        table.push(shortest(epoch.start_s, 1), lines.iter().map(cell).collect());
    }
    Figure { caption, open: false, ..figure(&chart, table) }
}

/// Returns the policy that `auto` used at the end of each epoch.
fn policies(id: &str, row: &ResultRow) -> Figure {
    let (unit_s, unit) = unit(end_s(&[row]));
    let epochs = drawn(row);
    let mut names: Vec<String> = Vec::new();
    for policy in epochs.iter().filter_map(|epoch| epoch.chosen_policy.as_ref()) {
        if !names.contains(policy) {
            names.push(policy.clone());
        }
    }
    let place = |policy: &String| names.iter().position(|name| name == policy).map(|at| (names.len() - 1 - at) as f64);
    let mut points = Vec::new();
    for epoch in &epochs {
        let Some(y) = epoch.chosen_policy.as_ref().and_then(place) else { continue };
        points.extend([epoch.start_s, epoch.start_s + epoch.seconds].map(|time_s| (time_s / unit_s, y)));
    }
    let title = format!("{}: the policy over time", row.policy);
    let looks = Looks::new([&row.policy[..]]);
    let chart = Chart {
        id: id.to_owned(),
        title: title.clone(),
        description: format!("A line from policy to policy over time. {NUMBERS_FOLLOW}"),
        x: linear(format!("Time in {unit}"), [end_s(&[row]) / unit_s].into_iter(), ""),
        y: categories("", &names),
        series: vec![Series { name: row.policy.to_string(), look: looks.of(&row.policy), points }],
        markers: false,
    };
    let mut table = Table::new(&title, ["Seconds", "Policy", "Hit ratio"]);
    let every = row.epochs.len().div_ceil(POINTS_MAX).max(1);
    for (epoch, of_array) in
        row.epochs.iter().step_by(every).filter_map(|epoch: &Epoch| Some((epoch, epoch.array.as_ref()?)))
    {
        let policy = of_array.chosen_policy.clone().unwrap_or_else(|| "none yet".to_owned());
        table.push(shortest(of_array.start_s, 1), vec![policy, percent(epoch.hit_ratio)]);
    }
    let caption = format!("{}: which policy was the best by its shadow caches.", row.policy);
    Figure { caption, open: false, ..figure(&chart, table) }
}
