//! Seconds and memory of a sweep: two policies at eight sizes over one prepared trace, on all cores.

use flashwise_benches::{memory_peak_bytes, processor_seconds, seconds, zipf_trace};
use flashwise_core::policy::Spec;
use flashwise_sim::experiment::Case;
use flashwise_sim::simulate::{Counting, Warmup, simulate};
use flashwise_trace::progress::Silent;

/// The number of ARC's trace P12.
const ACCESSES: usize = 13_200_000;
const RUNS: usize = 3;

fn main() {
    let trace = zipf_trace(ACCESSES);
    let cases: Vec<Case> = ["lru", "arc"]
        .into_iter()
        .flat_map(|policy| [1, 2, 5, 10, 20, 30, 40, 50].map(|percent| (policy, percent)))
        .map(|(policy, percent)| {
            let policy: Spec = policy.parse().expect("a listed policy can be named");
            Case::of(policy, format!("{percent}%"), trace.unique_blocks() * percent / 100)
        })
        .collect();
    let counting = Counting { warmup: Warmup::Accesses(0), epoch: None };
    let traces = [trace];
    let before = processor_seconds();
    let (least, median) = seconds(RUNS, || {
        simulate(&traces, cases.clone(), counting, &Silent).expect("the trace is short enough");
    });
    let processor = (processor_seconds() - before) / RUNS as f64;
    println!("LRU and ARC at 8 sizes, {ACCESSES} accesses, {} unique blocks", traces[0].unique_blocks());
    println!("{least:.2} s least, {median:.2} s median, {processor:.2} s of processor time");
    println!("{} MB at most, mapped trace included", memory_peak_bytes() / 1_000_000);
}
