//! Admission rules over the bundled trace.

use crate::workloads::{accesses, bundled, hits};
use flashwise_core::admission::shadow::Shadows;
use flashwise_core::admission::size::Size;
use flashwise_core::admission::{Rule, Setting};
use flashwise_core::policy::{Outcome, Spec};
use flashwise_device::paper;
use flashwise_sim::array::{ArrayFigures, setting};
use flashwise_sim::experiment::Case;
use flashwise_sim::online::{Ran, replay};
use flashwise_sim::simulate::{Counting, Warmup, simulate};
use flashwise_trace::Trace;
use flashwise_trace::progress::Silent;

/// A tenth of the blocks.
fn capacity(trace: &Trace) -> usize {
    trace.unique_blocks() / 10
}

fn devices(trace: &Trace) -> Setting {
    setting(
        &paper(),
        trace.block_size_bytes(),
        capacity(trace),
        2 * trace.unique_blocks() as u64 * trace.block_size_bytes(),
    )
}

fn run(trace: &Trace, policy: &str, rule: Option<&str>) -> Ran {
    let (policy, rule) = (policy.parse().unwrap(), rule.map(|rule| rule.parse().unwrap()));
    let counting = Counting { warmup: Warmup::Accesses(0), epoch: None };
    replay(trace, &policy, rule.as_ref(), capacity(trace), &devices(trace), counting, None)
}

#[test]
fn without_a_rule_and_with_an_open_one_counts_match_simulate() {
    let traces = [bundled()];
    let trace = &traces[0];
    let plain = run(trace, "larc", None);
    assert_eq!(run(trace, "larc", Some("probability:p=1")).counted.counts.answered, plain.counted.counts.answered);
    let case = Case::of("larc".parse::<Spec>().unwrap(), "", capacity(trace));
    let counting = Counting { warmup: Warmup::Accesses(0), epoch: None };
    let simulated = simulate(&traces, vec![case], counting, &Silent).unwrap()[0].counts().counters;
    assert_eq!(plain.counted.counts.answered.hits.iter().sum::<u64>(), simulated.hits());
    assert_eq!(plain.counted.counts.answered.admissions.iter().sum::<u64>(), simulated.admissions());
    assert_eq!(plain.counted.counts.answered.bypasses.iter().sum::<u64>(), simulated.bypasses());
    let nothing = run(trace, "lru", Some("probability:p=0"));
    let figures = ArrayFigures::of(&devices(trace), &nothing.counted.counts, nothing.counted.seconds);
    assert_eq!((figures.cache_write_rate, nothing.counted.counts.counters.bypasses()), (0.0, trace.len() as u64));
}

/// Shadows of LRU, LARC and S3-FIFO behind LRU, and behind LARC, with five samples.
#[test]
fn shadows_of_one_percent_of_the_blocks_are_within_two_points_of_full_caches() {
    const POLICIES: [&str; 3] = ["lru", "larc", "s3-fifo"];
    let trace = bundled();
    let capacity = capacity(&trace);
    let full = POLICIES.map(|policy| run(&trace, policy, None).counted.counts.answered.hit_ratio());
    let mut errors = Vec::new();
    for (seed, behind) in (0..5).flat_map(|seed| [(seed, "lru"), (seed, "larc")]) {
        let mut shadows: Shadows<u32> = Shadows::new(0.01, seed, capacity, 4096);
        for policy in POLICIES {
            shadows.add(&Spec::parse(policy).unwrap(), Rule::Size(Size::with(u64::MAX)), capacity);
        }
        for (access, hit) in accesses(&trace).zip(hits(&trace, behind, capacity)) {
            let outcome = if hit { Outcome::Hit } else { Outcome::Bypass };
            shadows.access(&access, &outcome);
        }
        for ((policy, full), estimate) in POLICIES.iter().zip(full).zip(shadows.estimates(u64::MAX)) {
            let points = 100.0 * (estimate.hit_ratio - full);
            assert!(points.abs() < 2.0, "{policy} behind {behind}, seed {seed}: {points:+.2} of {:.2}", 100.0 * full);
            errors.push(points);
        }
    }
    println!("{errors:+.2?}");
}

/// Three minutes: a timeframe of two seconds.
#[test]
fn adapting_makes_latency_over_lifetime_less_than_lru_has_it() {
    let trace = bundled();
    let cost = |rule: Option<&str>| {
        let replayed = run(&trace, "lru", rule);
        let figures = ArrayFigures::of(&devices(&trace), &replayed.counted.counts, replayed.counted.seconds);
        println!("{rule:?}: {figures:?}, {} decisions", replayed.decisions.len());
        assert!(rule.is_none() || replayed.decisions.len() > 50);
        figures.latency_over_lifetime
    };
    let lru = cost(None);
    for rule in ["adaptive", "adaptive:kind=size", "adaptive:kind=hotness", "auto"] {
        let separator = if rule.contains(':') { ',' } else { ':' };
        let adapted = cost(Some(&format!("{rule}{separator}timeframe=2s,target=1ms")));
        println!("{rule}: {:.2} times better", lru / adapted);
        assert!(adapted < lru, "{rule}: {adapted}, LRU {lru}");
    }
}
