//! Results of the runs, compared with the paper's.

use std::fmt::Write as _;

use flashwise_report::{Panel, panels_chart};
use flashwise_sim::results::BucketFigures;
use flashwise_sim::wlfc::System;

use super::{Run, Workload};

type Found<'a> = (&'a Run, &'a BucketFigures);

fn row(table: &mut String, cells: &[String]) {
    writeln!(table, "| {} |", cells.join(" | ")).expect("a string takes everything");
}

fn header(cells: &[&str]) -> String {
    format!("| {} |\n|{}\n", cells.join(" | "), " --- |".repeat(cells.len()))
}

fn maybe(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.0}"))
}

fn change(value: f64, other: f64) -> String {
    if other == 0.0 { "-".to_owned() } else { format!("{:+.1} %", (value / other - 1.0) * 100.0) }
}

/// Returns the paper's result of WLFC against B_like at a size of requests: latency and throughput, if its text has
/// them.
fn paper(request_bytes: u64) -> [&'static str; 2] {
    match request_bytes >> 10 {
        4 => ["-80 %", "4.5"],
        256 => ["-7 %", "1.07"],
        _ => ["", ""],
    }
}

/// Returns pairs of system `of` and B_like with the same workload and name.
fn pairs<'a>(found: &[Found<'a>], of: System) -> Vec<(Found<'a>, Found<'a>)> {
    let ours = found.iter().filter(|(run, _)| run.system == of);
    let pair = |(run, figures): &Found<'a>| {
        let other = found.iter().find(|(other, _)| {
            other.system == System::BLike && other.workload.name() == run.workload.name() && other.name == run.name
        })?;
        Some(((*run, *figures), *other))
    };
    ours.filter_map(pair).collect()
}

/// Returns Figures 5 and 6 as a table: WLFC compared with B_like.
pub fn random_table(found: &[Found]) -> String {
    let mut table = header(&[
        "range",
        "requests of",
        "latency us: WLFC",
        "B_like",
        "less (paper)",
        "MiB/s: WLFC",
        "B_like",
        "times (paper)",
        "erasures per request: WLFC",
        "B_like",
        "less (paper: -60 to -80 %)",
        "backend per request: WLFC",
        "B_like",
    ]);
    for ((run, wlfc), (_, b_like)) in pairs(found, System::Wlfc) {
        let Workload::Random(random) = &run.workload else { continue };
        let [latency, times] = paper(random.request_bytes);
        let with = |found: String, paper: &str| if paper.is_empty() { found } else { format!("{found} ({paper})") };
        let speed = |figures: &BucketFigures| figures.throughput_mib_s.unwrap_or(0.0);
        let less = change(wlfc.serial_latency_mean_us.unwrap_or(0.0), b_like.serial_latency_mean_us.unwrap_or(0.0));
        let cells = [
            run.name.clone(),
            run.workload.name(),
            maybe(wlfc.serial_latency_mean_us),
            maybe(b_like.serial_latency_mean_us),
            with(less, latency),
            format!("{:.2}", speed(wlfc)),
            format!("{:.2}", speed(b_like)),
            with(format!("{:.2}", speed(wlfc) / speed(b_like)), times),
            format!("{:.5}", wlfc.erase_ratio),
            format!("{:.5}", b_like.erase_ratio),
            change(wlfc.erase_ratio, b_like.erase_ratio),
            format!("{:.4}", wlfc.backend_ratio),
            format!("{:.4}", b_like.backend_ratio),
        ];
        row(&mut table, &cells);
    }
    table
}

/// Returns the paper's result for a mixed workload: mean latency of WLFC_c against B_like.
fn paper_mixed(name: &str) -> &'static str {
    match name {
        "LevelDB" => " (-39.3 %)",
        "MySQL" => " (-40.7 %)",
        "Financial" => " (below -70 %)",
        _ => "",
    }
}

/// Returns Figures 7 and 8 as a table of all three caches.
pub fn mixed_table(found: &[Found]) -> String {
    let mut table = header(&[
        "workload",
        "cache",
        "latency us",
        "of writes",
        "of reads",
        "against B_like (paper)",
        "erasures per request",
        "against B_like (paper: -50 to -88.9 %)",
        "reads against WLFC (paper: -39.8 to -97 %)",
        "backend per request",
    ]);
    for (run, figures) in found {
        let same = |system: System| {
            found.iter().find(|(other, _)| {
                other.system == system && other.workload.name() == run.workload.name() && other.name == run.name
            })
        };
        let against = |system: System, of: fn(&BucketFigures) -> Option<f64>| {
            let other = same(system).filter(|_| run.system != system).and_then(|(_, other)| of(other));
            other.zip(of(figures)).map_or_else(String::new, |(other, own)| change(own, other))
        };
        let latency = against(System::BLike, |figures| figures.serial_latency_mean_us);
        let paper = if run.system == System::WlfcC { paper_mixed(&run.workload.name()) } else { "" };
        let name =
            if run.name.is_empty() { run.workload.name() } else { format!("{}, {}", run.workload.name(), run.name) };
        let cells = [
            name,
            run.system.name().to_owned(),
            maybe(figures.serial_latency_mean_us),
            maybe(figures.write_latency_mean_us),
            maybe(figures.read_latency_mean_us),
            latency + paper,
            format!("{:.5}", figures.erase_ratio),
            against(System::BLike, |figures| Some(figures.erase_ratio)),
            if run.system == System::WlfcC {
                against(System::Wlfc, |figures| figures.read_latency_mean_us)
            } else {
                String::new()
            },
            format!("{:.4}", figures.backend_ratio),
        ];
        row(&mut table, &cells);
    }
    table
}

/// Returns the influence of a mixed workload's range as a table: WLFC_c compared with B_like.
pub fn range_table(found: &[Found]) -> String {
    let mut table = header(&[
        "workload",
        "range",
        "latency of WLFC_c against B_like (paper)",
        "of writes",
        "of reads",
        "erasures (paper: -50 to -88.9 %)",
        "WLFC_c's reads against WLFC's (paper: -39.8 to -97 %)",
    ]);
    let wlfc = pairs(found, System::Wlfc);
    for (((run, wlfc_c), (_, b_like)), ((_, wlfc), _)) in pairs(found, System::WlfcC).into_iter().zip(wlfc) {
        let against = |of: fn(&BucketFigures) -> Option<f64>, other: &BucketFigures| match (of(wlfc_c), of(other)) {
            (Some(own), Some(other)) => change(own, other),
            _ => "-".to_owned(),
        };
        let cells = [
            run.workload.name(),
            run.name.clone(),
            against(|figures| figures.serial_latency_mean_us, b_like) + paper_mixed(&run.workload.name()),
            against(|figures| figures.write_latency_mean_us, b_like),
            against(|figures| figures.read_latency_mean_us, b_like),
            against(|figures| Some(figures.erase_ratio), b_like),
            against(|figures| figures.read_latency_mean_us, wlfc),
        ];
        row(&mut table, &cells);
    }
    table
}

/// Returns the influence of settings that the paper omits as a table: each compared with B_like with the same buckets.
pub fn sweep_table(found: &[Found]) -> String {
    let mut table = header(&[
        "workload",
        "settings",
        "cache",
        "throughput, times B_like's",
        "erasures against B_like",
        "backend per request",
    ]);
    for system in [System::Wlfc, System::WlfcC] {
        for ((run, figures), (_, b_like)) in pairs(found, system) {
            let speed = |figures: &BucketFigures| figures.throughput_mib_s.unwrap_or(0.0);
            let cells = [
                run.workload.name(),
                run.name.clone(),
                run.system.name().to_owned(),
                format!("{:.2}", speed(figures) / speed(b_like)),
                change(figures.erase_ratio, b_like.erase_ratio),
                format!("{:.4}", figures.backend_ratio),
            ];
            row(&mut table, &cells);
        }
    }
    table
}

/// Returns Figures 5 and 6 as a chart, for one range.
pub fn chart(found: &[Found], name: &str) -> String {
    let panel = |label: &str, of: fn(&BucketFigures) -> f64| {
        let line = |system: System| {
            let points = found.iter().filter(|(run, _)| run.system == system && run.name == name);
            let points = points.filter_map(|(run, figures)| match &run.workload {
                Workload::Random(random) => Some(((random.request_bytes >> 10) as f64, of(figures))),
                Workload::Mixed(_) | Workload::Trace(_) => None,
            });
            (system.name().to_owned(), points.collect())
        };
        Panel { label: label.to_owned(), lines: [System::Wlfc, System::BLike].map(line).to_vec() }
    };
    let panels = [
        panel("mean latency, ms", |figures| figures.serial_latency_mean_us.unwrap_or(0.0) / 1000.0),
        panel("throughput, MiB/s", |figures| figures.throughput_mib_s.unwrap_or(0.0)),
        panel("erasures per request", |figures| figures.erase_ratio),
        panel("backend accesses per request", |figures| figures.backend_ratio),
    ];
    panels_chart(
        "WLFC and B_like under random writes",
        "Mean latency, throughput, erasures and backend accesses per request against the size of requests, of WLFC and \
         B_like.",
        "Size of a request, in KiB",
        2,
        &panels,
    )
}
