//! Cost of a sample per access of a normalised trace on one core.
//!
//! The sample's accesses are found, or also taken into a trace in memory.

use flashwise_benches::{ZIPF_ACCESSES, processor_seconds, seconds, zipf_trace};
use flashwise_trace::progress::Silent;
use flashwise_trace::sampling::Sampling;
use flashwise_trace::tools::sample::{self, Kept};

const RUNS: usize = 5;
/// Accesses filtered in one call.
const CHUNK_ACCESSES: usize = 1 << 12;

fn main() {
    let trace = zipf_trace(ZIPF_ACCESSES);
    println!("{:34} {:>12} {:>12} {:>18} {:>16}", "", "wall, least", "wall, median", "processor, mean", "most");
    for rate in [0.001, 0.01, 0.1] {
        let sampling = Sampling::new(rate, 1).expect("a share");
        let kept = Kept::new(&trace, sampling);
        show(&format!("{}%, find", 100.0 * rate), || {
            let (mut found, mut sum) = (Vec::new(), 0);
            for columns in trace.batches() {
                for blocks in columns.block.chunks(CHUNK_ACCESSES) {
                    kept.find(blocks, &mut found);
                    sum += found.len();
                }
            }
            assert!(sum > 0);
        });
        show(&format!("{}%, take", 100.0 * rate), || {
            assert!(sample::of(&trace, sampling, &Silent).is_ok());
        });
    }
}

/// Prints the cost of `work` per access.
fn show(what: &str, work: impl FnMut()) {
    let before = processor_seconds();
    let (least, median) = seconds(RUNS, work);
    let processor = (processor_seconds() - before) / RUNS as f64;
    let ns = 1e9 / ZIPF_ACCESSES as f64;
    let most = 1e3 / (least * ns);
    println!("{what:34} {:9.2} ns {:9.2} ns {:15.2} ns {most:12.0} M/s", least * ns, median * ns, processor * ns);
}
