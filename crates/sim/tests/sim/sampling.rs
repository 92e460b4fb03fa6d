//! The share of intervals of samples that contain the true hit ratio.

use std::fmt::Write;

use flashwise_core::policy::Spec;
use flashwise_sim::counting::{Counting, Warmup};
use flashwise_sim::experiment::{Case, Run};
use flashwise_sim::simulate::simulate;
use flashwise_trace::Trace;
use flashwise_trace::normalised::{Settings, open};
use flashwise_trace::progress::Silent;
use flashwise_trace::sampling::Sampling;
use flashwise_trace::tools::sample;

use crate::workloads::{bundled, random};

/// Samples of each trace.
const SAMPLES: u64 = 40;
const ACCESSES: u64 = 100_000;
const POLICIES: [&str; 3] = ["lru", "larc", "s3-fifo"];
/// Cache sizes, in parts of the blocks.
const SIZES: [f64; 2] = [0.1, 0.3];

/// Accesses by Zipf's law to 40,000 blocks in an order of their own. Every fifth is to a run over the blocks after
/// them.
fn skewed() -> String {
    let (mut text, mut state) = (String::new(), 1);
    for number in 0..ACCESSES {
        let share = random(&mut state) as f64 / (1_u64 << 31) as f64;
        let rank = 40_000_f64.powf(share) as u64;
        let block = if number.is_multiple_of(5) { 100_000 + number / 5 } else { rank * 7919 % 40_009 };
        writeln!(text, "{block}").unwrap();
    }
    text
}

/// Accesses to 117 parts of 256 blocks, three of four to one part that changes. Neighbours are used together.
fn phases() -> String {
    let (mut text, mut state, mut part) = (String::new(), 5, 0);
    for number in 0..ACCESSES {
        if number.is_multiple_of(1000) {
            part = random(&mut state) % 117;
        }
        let of = if random(&mut state).is_multiple_of(4) { random(&mut state) % 117 } else { part };
        writeln!(text, "{}", of * 256 + random(&mut state) % 256).unwrap();
    }
    text
}

/// Runs every policy at every size.
fn run(trace: &Trace) -> Vec<Run> {
    let size = |part: f64| (trace.whole_unique_blocks() as f64 * part) as usize;
    let case = |policy: &str, capacity_blocks: usize| Case::of(Spec::parse(policy).unwrap(), "", capacity_blocks);
    let cases = SIZES.iter().flat_map(|&part| POLICIES.map(|policy| case(policy, size(part)))).collect();
    let counting = Counting { warmup: Warmup::Accesses(0), epoch: None };
    simulate(std::slice::from_ref(trace), cases, counting, &Silent).unwrap()
}

#[test]
fn intervals_contain_the_truth_in_95_of_100_samples() {
    let folder = tempfile::tempdir().unwrap();
    let written = |name: &str, text: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        let settings = Settings { format: Some("blocks".parse().unwrap()), ..Settings::default() };
        open(&path, &settings, &Silent).unwrap()
    };
    let traces = [(written("skewed", skewed()), 0.1), (written("phases", phases()), 0.1), (bundled(), 0.02)];
    let (mut within, mut intervals) = (0, 0);
    for (trace, share) in &traces {
        let truths: Vec<f64> = run(trace).iter().map(|run| run.counts().counters.hit_ratio()).collect();
        let mut of_trace = 0;
        let (mut errors, mut stated) = (0.0, 0.0);
        for seed in 0..SAMPLES {
            let sampled = sample::of(trace, Sampling::new(*share, seed).unwrap(), &Silent).unwrap();
            for (run, truth) in run(&sampled).iter().zip(&truths) {
                let figures = run.sample.as_ref().unwrap();
                of_trace += u64::from((figures.hit_ratio_low..=figures.hit_ratio_high).contains(truth));
                errors += (run.counts().counters.hit_ratio() - truth).powi(2);
                stated += figures.hit_ratio_standard_error.powi(2);
            }
        }
        let of_all = SAMPLES * truths.len() as u64;
        let [error, stated] = [errors, stated].map(|sum: f64| (sum / of_all as f64).sqrt());
        println!("{}: {of_trace} of {of_all}, error {error:.5}, stated {stated:.5}", trace.name());
        assert!(of_trace * 100 >= 92 * of_all, "{of_trace} of {of_all} intervals of {} are true", trace.name());
        within += of_trace;
        intervals += of_all;
    }
    assert!(within * 100 <= 98 * intervals, "{within} of {intervals} intervals are true: they are too wide");
}
