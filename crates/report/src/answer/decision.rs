//! The decision chart: hits against flash writes of every policy at the recommended size, each with its name.

use flashwise_sim::results::ResultRow;

use crate::answer::choice::Choice;
use crate::draw::charts::{Chart, Series};
use crate::draw::scales::linear;
use crate::figures::{NUMBERS_FOLLOW, Subject};
use crate::numbers::binary_unit;
use crate::rows::rule;
use crate::table::Picture;

/// Returns the chart. `own` is the recommended run, which may be behind a rule; `beside` is another run behind a rule.
pub fn picture(subject: &Subject, choice: &Choice, own: &ResultRow, beside: Option<&ResultRow>) -> Picture {
    let grid = subject.grid;
    let alone = grid.policies.iter().filter_map(|&policy| grid.row(policy, choice.size));
    let beside = beside.filter(|row| (&row.policy, rule(row)) != (&own.policy, rule(own)));
    let behind = [beside, Some(own)].into_iter().flatten().filter(|row| !rule(row).is_empty());
    let mut rows: Vec<&ResultRow> = alone.chain(behind).collect();
    // The recommended run is drawn over the others.
    rows.sort_by_key(|row| named(row) == named(own));
    let most = rows.iter().map(|row| row.flash_bytes_written).max().unwrap_or(0);
    let (unit, unit_bytes) = binary_unit(most);
    let point = |row: &&ResultRow| (row.flash_bytes_written as f64 / unit_bytes, row.hit_ratio * 100.0);
    let one =
        |row: &&ResultRow| Series { name: named(row), look: subject.looks.of(&row.policy), points: vec![point(row)] };
    let series: Vec<Series> = rows.iter().map(one).collect();
    let points = || series.iter().flat_map(|series| &series.points);
    let chart = Chart {
        id: format!("{}-answer", subject.id),
        title: format!("Hit ratio against flash writes with {}", choice.size.named()),
        description: format!("A point for each policy; the upper left is best. {NUMBERS_FOLLOW}"),
        x: linear(format!("Flash writes, in {unit}"), points().map(|point| point.0), ""),
        y: linear("Hit ratio", points().map(|point| point.1), "%"),
        series: series.clone(),
        markers: true,
    };
    let recommended = named(own);
    let (wide, narrow) = chart.inline_named(&recommended);
    let caption = format!(
        "Hits and flash writes of each policy with {}. The upper left is best; {recommended} is recommended.",
        choice.size.named()
    );
    Picture { caption, wide, narrow, legend: Vec::new() }
}

/// Returns the name of a run: its policy, and the name of its rule.
fn named(row: &ResultRow) -> String {
    match rule(row).name() {
        "" => row.policy.to_string(),
        rule => format!("{} behind {rule}", row.policy),
    }
}
