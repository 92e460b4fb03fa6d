//! Workloads and clocks of the benchmarks.

pub mod larc;
pub mod ncache;
pub mod wlfc;

use std::time::Instant;

use flashwise_core::access::Op;
use flashwise_trace::Trace;
use flashwise_trace::normalised::Normaliser;
use flashwise_trace::request::Request;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};
use rand_xoshiro::Xoshiro256PlusPlus;
use rayon::iter::{IndexedParallelIterator, IntoParallelRefIterator, ParallelIterator};

/// Accesses of the Zipf workload.
pub const ZIPF_ACCESSES: usize = 20_000_000;
/// Number of blocks of the Zipf workload.
pub const ZIPF_BLOCKS: u64 = 3_300_000;

/// Returns the block numbers and operations of a Zipf workload of exponent 1; 3 in 10 are writes. The blocks are
/// scattered, so that popular blocks are not neighbours.
pub fn zipf(accesses: usize) -> impl Iterator<Item = (u64, Op)> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let zipf = Zipf::new(ZIPF_BLOCKS as f64, 1.0).expect("the parameters are valid");
    (0..accesses).map(move |_| {
        let rank = zipf.sample(&mut random) as u64;
        // Multiplication by a number coprime to the modulus permutes the ranks.
        let block = rank * 2_654_435_761 % ZIPF_BLOCKS;
        let op = if random.random_range(0..10) < 3 { Op::Write } else { Op::Read };
        (block, op)
    })
}

/// Returns the Zipf workload as a mapped trace of 4 KiB blocks.
pub fn zipf_trace(accesses: usize) -> Trace {
    let file = tempfile::tempfile().expect("a temporary file can be made");
    let mut normaliser = Normaliser::new("zipf", 4096, std::io::BufWriter::new(file)).expect("a trace can be begun");
    let volume = normaliser.volume(b"0").expect("one volume fits");
    for (at, (block, op)) in zipf(accesses).enumerate() {
        let request = Request { time_us: at as i64, op, volume, offset_bytes: block * 4096, length_bytes: 4096 };
        normaliser.request(&request).expect("the request fits");
    }
    let file = normaliser.finish().expect("the trace can be written").into_inner().expect("the trace can be flushed");
    Trace::map("zipf", &file).expect("what was written can be mapped")
}

/// Returns the minimum and the median of the seconds that `work` takes in `runs` runs.
pub fn seconds(runs: usize, mut work: impl FnMut()) -> (f64, f64) {
    let mut times: Vec<f64> = (0..runs)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    (times[0], times[runs / 2])
}

/// Returns the processor time of this process so far, in seconds on all cores, or 0 if the system has none. On a shared
/// machine it is more reliable than wall time.
pub fn processor_seconds() -> f64 {
    flashwise_testing::processor::seconds(std::process::id() as usize).unwrap_or(0.0)
}

/// Returns the processor time of this thread in seconds, or 0 if the system has none.
pub fn thread_seconds() -> f64 {
    // proc(5), /proc/PID/schedstat: the first field is time on the processor in nanoseconds.
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|nanoseconds| nanoseconds.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}

/// Returns the peak of this process's resident memory, mapped files included, or 0 if the system has none.
pub fn memory_peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak.and_then(|peak| peak.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Runs `experiments` on `threads` threads, and returns each with its result.
///
/// # Errors
/// The first error of an experiment.
pub fn side_by_side<E: Send + Sync, O: Send, P: Send>(
    experiments: Vec<E>,
    threads: usize,
    run: impl Fn(usize, &E) -> Result<O, P> + Sync,
) -> Result<Vec<(E, O)>, P> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("the system has threads");
    let of_one = |(number, experiment): (usize, &E)| run(number, experiment);
    let outcomes: Vec<O> =
        pool.install(|| experiments.par_iter().enumerate().with_max_len(1).map(of_one).collect::<Result<_, P>>())?;
    Ok(experiments.into_iter().zip(outcomes).collect())
}
