//! Results of the runs, compared with the paper's.

use std::fmt::Write as _;

use flashwise_report::{Panel, panels_chart};

use super::{Experiment, Kind, Outcome};

/// Returns LARC's change against LRU in the paper, in percent: operations per second, and flash writes per operation.
fn paper(kind: Kind) -> [&'static str; 2] {
    match kind {
        Kind::Webserver => ["+36 to +49", "-51 to -73"],
        Kind::Netsfs => ["+10 to +29", "-26 to -35"],
    }
}

type Run = (Experiment, Outcome);

/// Means over the runs of one policy at one size.
struct Mean {
    operations_per_second: f64,
    written: f64,
    without_copies: f64,
    read_hit_ratio: f64,
}

impl Mean {
    fn of(runs: &[Run], kind: Kind, filter: &str, paper_gb: u64, policy: &str) -> Option<Self> {
        let is_one = |experiment: &Experiment| {
            (experiment.kind, experiment.filter.as_str(), experiment.paper_gb) == (kind, filter, paper_gb)
                && experiment.policy == policy
        };
        let outcomes: Vec<_> = runs.iter().filter(|run| is_one(&run.0)).map(|run| &run.1).collect();
        let mean =
            |of: fn(&Outcome) -> f64| outcomes.iter().map(|outcome| of(outcome)).sum::<f64>() / outcomes.len() as f64;
        (!outcomes.is_empty()).then(|| Self {
            operations_per_second: mean(Outcome::operations_per_second),
            written: mean(Outcome::written_per_operation),
            without_copies: mean(Outcome::written_without_copies_per_operation),
            read_hit_ratio: mean(Outcome::read_hit_ratio),
        })
    }
}

/// Returns the distinct values, in the order of their first occurrence.
fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    values.for_each(|value| {
        if !found.contains(&value) {
            found.push(value);
        }
    });
    found
}

/// Returns a value, and its difference from LRU's in percent.
fn beside(value: f64, lru: f64, decimals: usize) -> String {
    let change = if value == lru { String::new() } else { format!(" ({:+.0} %)", (value / lru - 1.0) * 100.0) };
    format!("{value:.decimals$}{change}")
}

/// Returns the paper's two figures as a table in Markdown: each policy compared with LRU, which comes first. Values are
/// means over the runs.
pub fn table(runs: &[Run]) -> String {
    let mut table = String::from(
        "| workload | I/O filter | flash | policy | operations/s | blocks written per operation | without copies | \
         reads that hit flash |\n",
    );
    table += &("|".to_owned() + &" --- |".repeat(8) + "\n");
    for (kind, filter, gb) in distinct(runs.iter().map(|(run, _)| (run.kind, run.filter.as_str(), run.paper_gb))) {
        let Some(lru) = Mean::of(runs, kind, filter, gb, "lru") else { continue };
        for policy in distinct(runs.iter().map(|(run, _)| run.policy.as_str())) {
            let Some(mean) = Mean::of(runs, kind, filter, gb, policy) else { continue };
            let row = [
                kind.name().to_owned(),
                if filter == "0B" { "off" } else { filter }.to_owned(),
                format!("{gb} GB"),
                format!("`{policy}`"),
                beside(mean.operations_per_second, lru.operations_per_second, 0),
                beside(mean.written, lru.written, 3),
                beside(mean.without_copies, lru.without_copies, 3),
                format!("{:.1} %", mean.read_hit_ratio * 100.0),
            ];
            writeln!(table, "| {} |", row.join(" | ")).expect("a string takes everything");
        }
        if filter == "0B" {
            let [speed, writes] = paper(kind);
            writeln!(table, "| {} | | {gb} GB | LARC in the paper | ({speed} %) | ({writes} %) | | |", kind.name())
                .expect("a string takes everything");
        }
    }
    table
}

/// Returns the paper's two figures as a chart: operations per second on the left, blocks written per operation on the
/// right.
pub fn chart(runs: &[Run]) -> String {
    let panel = |kind: Kind, label: &str, value: fn(&Mean) -> f64| {
        // Only the first filter: the lines of the others would overlap.
        let lines = distinct(runs.iter().map(|(run, _)| (run.policy.as_str(), runs[0].0.filter.as_str())));
        let line = |(policy, filter): (&str, &str)| {
            let sizes = distinct(runs.iter().map(|(run, _)| run.paper_gb));
            let point = |&gb: &u64| Some((gb as f64, value(&Mean::of(runs, kind, filter, gb, policy)?)));
            (policy.to_owned(), sizes.iter().filter_map(point).collect())
        };
        Panel { label: format!("{}: {label}", kind.name()), lines: lines.into_iter().map(line).collect() }
    };
    let panels = Kind::ALL.map(|kind| {
        [
            panel(kind, "operations per second", |mean| mean.operations_per_second),
            panel(kind, "blocks written to flash per operation", |mean| mean.written),
        ]
    });
    panels_chart(
        "LRU and LARC before a slow disk",
        "Operations per second and blocks written to flash per operation against the size of the flash, for the \
         workloads \
         webserver and netsfs, with the policies LRU and LARC.",
        "Size of the flash in the paper's terms, in GB",
        2,
        panels.as_flattened(),
    )
}
