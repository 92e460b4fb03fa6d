//! Figures 5 to 8 of the paper on WLFC, in simulation: what is run, and what is told of it.

mod report;
mod workload;

use flashwise_sim::results::BucketFigures;
use flashwise_sim::wlfc::{BucketError, BucketSettings, System, run_buckets};
use flashwise_trace::error::TraceError;
use rayon::prelude::*;

pub use report::{chart, mixed_table, random_table, range_table, sweep_table};
pub use workload::{Mixed, RandomWrites, TABLE_1, Workload};

/// Flash of the paper's device.
pub const FLASH_BYTES: u64 = 1 << 30;

/// A cache that a workload runs over.
#[derive(Clone, Debug)]
pub struct Run {
    /// What runs.
    pub workload: Workload,
    /// The cache.
    pub system: System,
    /// What it is made of.
    pub settings: BucketSettings,
    /// What is told of it where settings differ.
    pub name: String,
    /// Its flash.
    pub flash_bytes: u64,
}

/// Runs all, on all cores; the figures come in the order of the runs.
///
/// # Errors
/// Settings that make no cache, and traces that cannot be read.
pub fn run_all(runs: &[Run]) -> Result<Vec<BucketFigures>, BucketError> {
    let run = |run: &Run| {
        let each =
            |consume: &mut dyn FnMut(&_)| run.workload.for_each(consume).map_err(|error: TraceError| error.into());
        let (counts, ..) = run_buckets::<BucketError>(&run.settings, run.system, run.flash_bytes, 0, each)?;
        Ok(BucketFigures::new(&counts, run.flash_bytes))
    };
    runs.par_iter().with_max_len(1).map(run).collect()
}
