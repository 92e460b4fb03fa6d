//! Nanoseconds per access that `--arrivals` adds to LRU before an array: one core, a prepared Zipf trace, a cache of 10
//! %.
//!
//! The trace has a million accesses per second. The runs take turns, so that other work on the machine slows all of
//! them. Times are processor time.

use flashwise_benches::{thread_seconds, zipf_trace};
use flashwise_core::policy::Spec;
use flashwise_device::{ArrayModel, tier_model_of_option};
use flashwise_sim::array::{Arrivals, setting, storage_bytes};
use flashwise_sim::online::replay;
use flashwise_sim::simulate::{Counting, Warmup};

const ROUNDS: usize = 11;
const ACCESSES: usize = 5_000_000;

/// Arrivals, and the storage behind a cache of SLC.
const RUNS: [(&str, &str); 7] = [
    ("none", "mlc"),
    ("trace:speed=0.01", "mlc"),
    ("trace:speed=0.01", "cloud"),
    ("trace:speed=0.001", "hdd:devices=16"),
    ("trace", "mlc"),
    ("closed:depth=1", "mlc"),
    ("closed:depth=64", "mlc:devices=4"),
];

fn main() {
    let trace = zipf_trace(ACCESSES);
    let capacity = trace.unique_blocks() / 10;
    let policy = Spec::parse("lru").expect("a policy");
    let mut times = vec![Vec::new(); RUNS.len()];
    let mut used = vec![None; RUNS.len()];
    for _ in 0..ROUNDS {
        for (number, (arrivals, storage)) in RUNS.iter().enumerate() {
            let storage = tier_model_of_option("storage", storage).expect("a device");
            let model = ArrayModel { storage, ..ArrayModel::paper() };
            let setting = setting(&model.array(), trace.block_size_bytes(), capacity, storage_bytes(&trace));
            let arrivals: Arrivals = arrivals.parse().expect("arrivals");
            let start = thread_seconds();
            let counting = Counting { warmup: Warmup::Accesses(0), epoch: None };
            let replayed = replay(&trace, &policy, None, capacity, &setting, counting, Some((&model, arrivals)));
            times[number].push(1e9 * (thread_seconds() - start) / trace.len() as f64);
            used[number] = replayed.waits.and_then(|waits| waits.storage_utilisation);
        }
    }
    println!("{:36} {:>9} {:>9} {:>9} {:>12}", "", "ns least", "ns median", "added", "storage used");
    times.iter_mut().for_each(|times| times.sort_by(f64::total_cmp));
    for (((arrivals, storage), of_run), used) in RUNS.iter().zip(&times).zip(used) {
        let (least, median, added) = (of_run[0], of_run[ROUNDS / 2], of_run[0] - times[0][0]);
        let used = used.map_or("-".to_owned(), |used: f64| format!("{:.0}%", 100.0 * used));
        println!("{:36} {least:9.1} {median:9.1} {added:9.1} {used:>12}", format!("{arrivals}, {storage}"));
    }
}
