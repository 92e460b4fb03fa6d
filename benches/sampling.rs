//! Errors of the hit ratios of sampled shadow caches, in points: the mean and the maximum of ten samples at each rate.
//!
//! The shadows are LRU, LARC and S3-FIFO behind LRU, at a cache size of 10 %. The traces are a Zipf trace and those in
//! the arguments.

use flashwise_benches::zipf_trace;
use flashwise_core::access::{Access, NEVER};
use flashwise_core::admission::Rule;
use flashwise_core::admission::shadow::Shadows;
use flashwise_core::admission::size::Size;
use flashwise_core::counters::Counters;
use flashwise_core::index::Dense;
use flashwise_core::policy::{Outcome, Policy, Spec, Visitor};
use flashwise_trace::Trace;
use flashwise_trace::normalised::{self, Settings};
use flashwise_trace::progress::Silent;

const POLICIES: [&str; 3] = ["lru", "larc", "s3-fifo"];
const RATES: [f64; 5] = [0.001, 0.005, 0.01, 0.05, 0.1];
const SEEDS: u64 = 10;

fn main() {
    show("zipf", &zipf_trace(5_000_000));
    for path in std::env::args().skip(1).filter(|argument| !argument.starts_with('-')) {
        let trace = normalised::open(&path, &Settings::default(), &Silent).expect("a trace that can be read");
        show(&path, &trace);
    }
}

fn show(name: &str, trace: &Trace) {
    let capacity = trace.unique_blocks() / 10;
    let runs =
        POLICIES.map(|policy| policy_of(policy).build(Dense::new(trace.unique_blocks()), capacity, Outcomes(trace)));
    println!("{name}: {} accesses, {} unique blocks", trace.len(), trace.unique_blocks());
    println!("{:>8} {:>10} {:>14} {:>14} {:>14}", "rate", "blocks", POLICIES[0], POLICIES[1], POLICIES[2]);
    for rate in RATES {
        let mut errors = [const { Vec::new() }; 3];
        let mut blocks = 0;
        for seed in 0..SEEDS {
            let mut shadows: Shadows<u32> = Shadows::new(rate, seed, capacity, trace.block_size_bytes());
            POLICIES
                .iter()
                .for_each(|policy| shadows.add(&policy_of(policy), Rule::Size(Size::with(u64::MAX)), capacity));
            blocks = shadows.capacity(capacity);
            for (access, outcome) in accesses(trace).zip(&runs[0].0) {
                shadows.access(&access, outcome);
            }
            for ((errors, estimate), (_, full)) in errors.iter_mut().zip(shadows.estimates(u64::MAX)).zip(&runs) {
                errors.push(100.0 * (estimate.hit_ratio - full).abs());
            }
        }
        let shown = errors.map(|errors| {
            let mean = errors.iter().sum::<f64>() / errors.len() as f64;
            format!("{mean:.2} ({:.2})", errors.iter().copied().fold(0.0, f64::max))
        });
        println!("{:7.1}% {blocks:>10} {:>14} {:>14} {:>14}", 100.0 * rate, shown[0], shown[1], shown[2]);
    }
}

fn policy_of(name: &str) -> Spec {
    Spec::parse(name).expect("a policy")
}

fn accesses(trace: &Trace) -> impl Iterator<Item = Access<u32>> {
    trace.accesses().map(|(block, op)| Access { block, op, request_blocks: 1, next_use: NEVER })
}

/// Returns the outcome of each access, and the hit ratio.
struct Outcomes<'a>(&'a Trace);

impl Visitor<u32> for Outcomes<'_> {
    type Output = (Vec<Outcome<u32>>, f64);

    fn visit<P: Policy<Key = u32> + Send + 'static>(self, mut policy: P) -> Self::Output {
        let mut counters = Counters::default();
        let step = |access: Access<u32>| {
            let outcome = policy.access(access);
            counters.record(access.op, &outcome);
            outcome
        };
        let outcomes = accesses(self.0).map(step).collect();
        (outcomes, counters.hit_ratio())
    }
}
