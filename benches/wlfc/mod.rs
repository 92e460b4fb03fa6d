//! Figures 5 to 8 of the paper on WLFC, in simulation: the runs and their report.

mod report;
mod workload;

use flashwise_sim::results::BucketFigures;
use flashwise_sim::simulate::{Counting, Warmup};
use flashwise_sim::wlfc::{BucketError, BucketSettings, System, run_buckets};
use flashwise_trace::error::TraceError;
use rayon::prelude::*;

pub use report::{chart, mixed_table, random_table, range_table, sweep_table};
pub use workload::{Mixed, RandomWrites, TABLE_1, Workload};

/// Size of the flash in the paper.
pub const FLASH_BYTES: u64 = 1 << 30;

/// A workload on a cache.
#[derive(Clone, Debug)]
pub struct Run {
    /// The workload.
    pub workload: Workload,
    /// The cache.
    pub system: System,
    /// The settings of the cache.
    pub settings: BucketSettings,
    /// The difference in settings, as a name for reports.
    pub name: String,
    /// Size of its flash.
    pub flash_bytes: u64,
}

/// Runs all on all cores, and returns the figures in the order of the runs.
///
/// # Errors
/// Invalid settings of a cache, or a trace that cannot be read.
pub fn run_all(runs: &[Run]) -> Result<Vec<BucketFigures>, BucketError> {
    let run = |run: &Run| {
        let each =
            |consume: &mut dyn FnMut(&_)| run.workload.for_each(consume).map_err(|error: TraceError| error.into());
        let counting = Counting { warmup: Warmup::Accesses(0), epoch: None };
        let (ran, _) =
            run_buckets::<BucketError>(&run.settings, run.system, run.flash_bytes, (counting, 0), None, each)?;
        Ok(BucketFigures::of(&ran.counted.counts, run.flash_bytes))
    };
    runs.par_iter().with_max_len(1).map(run).collect()
}
