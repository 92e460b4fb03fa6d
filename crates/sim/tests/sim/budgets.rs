//! Budgets of writes hold: every rule that has one, before every policy, at every size of budget.

use std::sync::Arc;

use flashwise_core::policy;
use flashwise_sim::job::{Job, Runs};
use flashwise_sim::results::ResultRow;
use flashwise_trace::Trace;
use flashwise_trace::normalised::requests_of;
use flashwise_trace::progress::Silent;
use flashwise_trace::request::Request;
use flashwise_trace::request_file::RequestFile;
use flashwise_trace::tools::generate::{Arrivals, Length, Workload};

use crate::workloads::{bundled, normalised, without_times};

/// The rules that have a budget; its number follows.
const RULES: [&str; 6] = [
    "write-budget:writes-per-day=",
    "baleen:writes-per-day=",
    "adaptive:timeframe=10min,shadows=2,writes-per-day=",
    "adaptive:kind=size,timeframe=10min,shadows=2,writes-per-day=",
    "adaptive:kind=hotness,timeframe=10min,shadows=2,writes-per-day=",
    "auto:policies=lru+larc,timeframe=10min,writes-per-day=",
];

/// Drive writes per day: a budget that is used up soon, one that is used up later, and one that allows all.
const BUDGETS: [f64; 3] = [0.5, 5.0, 500.0];

/// How far a budget may be exceeded.
const TOLERANCE: f64 = 1.05;
/// Blocks that the log writes at once when it empties an erase unit of 64 KiB: its blocks, a header and a footer.
const UNIT_BLOCKS: f64 = 18.0;

/// The requests of some hours, some of them reads.
fn requests(read_share: f64, accesses: u64, seed: u64) -> impl Iterator<Item = Request> {
    let workload = Workload {
        pattern: "zipf".parse().unwrap(),
        blocks: 2_000,
        length: Length::Accesses(accesses),
        read_share,
        request_blocks: 1..=4,
        rate: 0.1,
        arrivals: Arrivals::Poisson,
        seed,
        block_size_bytes: 4096,
    };
    workload.generator().unwrap().map(Result::unwrap)
}

fn traces(accesses: u64) -> [Trace; 2] {
    [("reads", 0.9), ("writes", 0.1)].map(|(name, reads)| normalised(name, requests(reads, accesses, 3)))
}

fn rows(traces: &[Trace], requests: Vec<RequestFile>, jobs: &[String]) -> Vec<ResultRow> {
    let jobs: Vec<Job> = jobs.iter().map(|job| job.parse().unwrap()).collect();
    let runs = Runs::new(traces, Arc::from(requests), &jobs).unwrap();
    runs.run(&Silent).unwrap().concat()
}

/// Asserts that `row` keeps to its budget, by the figures that it is made of as well; returns the share that was used.
fn assert_holds(row: &ResultRow, days: f64, budget: f64) -> f64 {
    let used = row.drive_writes_budget_used.unwrap_or_else(|| panic!("{:?} has no budget", row.job));
    let counted = row.flash_writes_blocks as f64 / row.capacity_blocks as f64 / days / budget;
    assert!((used - counted).abs() < 1e-6 * counted, "{:?}: {used} and {counted}", row.job);
    let at_once = if row.cache.is_some() { UNIT_BLOCKS / (budget * days * row.capacity_blocks as f64) } else { 0.0 };
    assert!(used <= TOLERANCE + at_once, "{:?} used {used:.3} times its budget", row.job);
    used
}

fn days(trace: &Trace) -> f64 {
    let last = trace.batches().next_back().map_or(0, |columns| columns.time_us[columns.rows - 1]);
    (last - trace.first_us()) as f64 / 86_400e6
}

#[test]
fn no_rule_exceeds_its_budget_before_any_policy() {
    let traces = traces(4_000);
    let mut jobs = Vec::new();
    for rule in RULES {
        let policies = policy::online().map(|info| info.name);
        let each = policies
            .flat_map(|policy| BUDGETS.map(|budget| format!("policy={policy} admission={rule}{budget} size=10%")));
        jobs.extend(each);
    }
    let (mut unused, mut cases) = (Vec::new(), 0);
    for (rows, days) in rows(&traces, Vec::new(), &jobs).chunks(jobs.len()).zip(traces.each_ref().map(days)) {
        for (number, row) in rows.iter().enumerate() {
            let budget = BUDGETS[number % BUDGETS.len()];
            let used = assert_holds(row, days, budget);
            cases += 1;
            // Rules that follow the rate spend what they have.
            let follows = row.job.as_ref().is_some_and(|job| job.contains("write-budget"));
            if follows && budget == BUDGETS[0] && used < 0.5 {
                unused.push((row.job.clone(), used));
            }
        }
    }
    assert!(cases > 700, "{cases} cases");
    assert!(unused.is_empty(), "{unused:?}");
}

/// Where blocks lie on a conventional SSD, and in the whole cache, where headers and copies count too.
#[test]
fn budgets_hold_on_flash_and_in_the_whole_cache() {
    let traces = traces(15_000);
    let requests: Vec<_> = traces.iter().map(|trace| requests_of(trace, &Silent).unwrap()).collect();
    let log = ["write-back", "write-through", "write-around"].map(|mode| format!("layout=log write-mode={mode}"));
    let modes = [&["layout=in-place".to_owned()], &log[..]].concat();
    let mut jobs = Vec::new();
    for (mode, rule) in modes.iter().flat_map(|mode| RULES.map(|rule| (mode, rule))) {
        jobs.extend(
            BUDGETS.map(|budget| format!("policy=lru admission={rule}{budget} size=4MiB erase-unit=64KiB {mode}")),
        );
    }
    for (rows, days) in rows(&traces, requests, &jobs).chunks(jobs.len()).zip(traces.each_ref().map(days)) {
        for (number, row) in rows.iter().enumerate() {
            assert_holds(row, days, BUDGETS[number % BUDGETS.len()]);
        }
    }
}

/// Three minutes of 1 drive write per day are a 480th of the cache.
#[test]
fn a_trace_of_minutes_has_the_budget_of_minutes() {
    let trace = [bundled()];
    let jobs = [RULES[0], RULES[1], RULES[2]].map(|rule| format!("policy=larc admission={rule}1 size=10%"));
    let days = days(&trace[0]);
    for row in rows(&trace, Vec::new(), &jobs) {
        assert_holds(&row, days, 1.0);
    }
}

#[test]
fn a_budget_needs_times() {
    let jobs = ["policy=lru admission=write-budget size=10%".parse::<Job>().unwrap()];
    let traces = [without_times()];
    let error = Runs::new(&traces, Arc::from([]), &jobs).unwrap().run(&Silent).unwrap_err().to_string();
    assert!(error.starts_with("write-budget needs the times of the trace, since its budget is per day: "), "{error}");
}
