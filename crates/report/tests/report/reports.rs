//! Reports over small traces, for tests: real traces of a few hundred accesses, normalised, simulated and rendered.

use std::path::Path;

use flashwise_core::policy::Spec;
use flashwise_report::{Report, Section};
use flashwise_sim::cache_settings::Ram;
use flashwise_sim::endurance::{self, Algorithm};
use flashwise_sim::experiment::{self, Case, Experiment, Layout, reference, with_references};
use flashwise_sim::results::{ResultRow, WearLimits};
use flashwise_sim::simulate::{Counting, Warmup, simulate};
use flashwise_sim::size::Size;
use flashwise_trace::normalised::{self, Settings};
use flashwise_trace::progress::Silent;
use flashwise_trace::tools::info::Info;
use flashwise_trace::tools::reuse::{Distance, ReuseDistances};
use flashwise_trace::tools::workload::Workload;

/// The runs of a report.
pub struct Runs<'a> {
    pub policies: &'a [&'a str],
    pub sizes: &'a str,
    pub epoch: Option<u64>,
}

/// An MSR-Cambridge trace of `requests` requests: a small hot set, a large cold one, and a scan from time to time.
pub fn msr_text(requests: u64) -> String {
    let mut state = 42_u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut text = String::new();
    for number in 0..requests {
        let block = match number % 10 {
            0..6 => random(40),
            6..9 => 100 + random(400),
            _ => 1000 + number,
        };
        let op = if random(10) < 7 { "Read" } else { "Write" };
        let blocks = 1 + random(3);
        let time = 128_166_372_000_000_000 + number * 10_000;
        text += &format!("{time},host,0,{op},{},{},0\n", block * 4096, blocks * 4096);
    }
    text
}

/// A section over the trace at `path`.
pub fn section(path: &Path, runs: &Runs) -> Section {
    let trace = normalised::open(path.to_str().unwrap(), &Settings::default(), &Silent).unwrap();
    let mut cases = Vec::new();
    for policy in runs.policies {
        for size in Size::parse_list(runs.sizes).unwrap() {
            let capacity_blocks = size.capacity_blocks(trace.unique_blocks(), trace.block_size_bytes()).unwrap();
            cases.push(Case::of(Spec::parse(policy).unwrap(), size, capacity_blocks));
        }
    }
    let traces = [trace];
    let results = simulate(&traces, cases, counting(runs), &Silent).unwrap();
    let rows = results.iter().map(|run| ResultRow::of(&traces[0], run, None, &WearLimits::default())).collect();
    let reuse = ReuseDistances::of(&traces[0], Distance::Unique, &Silent);
    let workload = Some(Workload::of(&traces[0], &Silent));
    Section { info: Info::of(&traces[0]), reuse, workload, rows, checks: None }
}

/// A report of wear over traces of these names and numbers of requests, once with each over-provisioning.
pub fn wear_report(traces: &[(&str, u64)], algorithms: &[&str], sizes: &str, spares: &[f64]) -> Report {
    let directory = tempfile::tempdir().unwrap();
    let section = |(name, requests): &(&str, u64)| {
        let path = directory.path().join("trace.csv");
        std::fs::write(&path, msr_text(*requests)).unwrap();
        let trace = normalised::open(path.to_str().unwrap(), &Settings::default(), &Silent).unwrap();
        let mut cases = Vec::new();
        for algorithm in algorithms {
            for size in Size::parse_list(sizes).unwrap() {
                let capacity_blocks = size.capacity_blocks(trace.unique_blocks(), trace.block_size_bytes()).unwrap();
                cases.push(Case::of(Algorithm::parse(algorithm).unwrap(), size, capacity_blocks));
            }
        }
        let traces = [trace];
        let cases = with_references(cases);
        let mut rows = Vec::new();
        for &spare in spares {
            let settings =
                endurance::Settings { ram: Ram::Bytes(0), erase_unit_bytes: 16 << 10, spare, ..Default::default() };
            let counting = Counting { warmup: Warmup::Accesses(0), epoch: None };
            let experiment = Experiment { layout: Layout::Flash(settings), devices: None, counting };
            let runs = experiment::run(&traces, cases.clone(), &experiment, &Silent).unwrap();
            let row = |run| ResultRow::of(&traces[0], run, reference(&runs, run), &WearLimits::default());
            rows.extend(runs.iter().map(row));
        }
        rows.iter_mut().for_each(|row| row.trace = (*name).to_owned());
        let reuse = ReuseDistances::of(&traces[0], Distance::Unique, &Silent);
        let mut info = Info::of(&traces[0]);
        info.trace = (*name).to_owned();
        Section { info, reuse, workload: None, rows, checks: None }
    };
    let counting = Counting { warmup: Warmup::Accesses(0), epoch: None };
    Report {
        command: "flashwise simulate".to_owned(),
        title: None,
        date: None,
        counting,
        sections: traces.iter().map(section).collect(),
    }
}

fn counting(runs: &Runs) -> Counting {
    Counting { warmup: Warmup::Accesses(0), epoch: runs.epoch }
}

/// A report over traces of these names and numbers of requests.
pub fn report(traces: &[(&str, u64)], runs: &Runs) -> Report {
    let directory = tempfile::tempdir().unwrap();
    let sections = traces.iter().map(|(name, requests)| {
        let path = directory.path().join("trace.csv");
        std::fs::write(&path, msr_text(*requests)).unwrap();
        let mut section = section(&path, runs);
        section.info.trace = (*name).to_owned();
        section
    });
    let sections = sections.collect();
    Report {
        command: "flashwise simulate a.csv --html report.html".to_owned(),
        title: None,
        date: None,
        counting: counting(runs),
        sections,
    }
}
