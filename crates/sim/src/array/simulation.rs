//! Policies behind admission rules over traces: every (trace, policy, rule, size), in parallel.

use flashwise_core::admission::{Setting, Spec as Rule};
use flashwise_core::array::Array;
use rayon::prelude::*;

use super::{Replayed, replay, setting};
use crate::progress::Progress;
use crate::simulate::{Counting, Job};
use crate::trace::Trace;

/// A policy behind a rule, before an array.
#[derive(Clone, Debug)]
pub struct ArrayJob {
    /// Trace, policy and size.
    pub job: Job,
    /// The rule, if there is one.
    pub admission: Option<Rule>,
}

/// What came of a job.
#[derive(Clone, Debug)]
pub struct ArrayRun {
    /// The job.
    pub job: ArrayJob,
    /// The array, as large as the cache and the trace make it.
    pub setting: Setting,
    /// What was counted.
    pub replayed: Replayed,
}

/// Runs all jobs, on all cores, each before devices like those of `array`; the runs come in the order of the jobs. `progress` is told of
/// block accesses.
pub fn simulate_array(
    traces: &[Trace],
    jobs: Vec<ArrayJob>,
    array: &Array,
    counting: Counting,
    progress: &dyn Progress,
) -> Vec<ArrayRun> {
    let run = |job: ArrayJob| {
        let trace = &traces[job.job.trace];
        let capacity_blocks = job.job.capacity_blocks;
        let setting = setting(array, trace.block_size_bytes(), capacity_blocks, trace.unique_blocks());
        let warmup = counting.warmup.accesses(trace.len());
        let (policy, rule) = (&job.job.policy, job.admission.as_ref());
        let replayed = replay(trace, policy, rule, capacity_blocks, &setting, warmup, counting.epoch);
        progress.advance(trace.len() as u64);
        ArrayRun { job, setting, replayed }
    };
    jobs.into_par_iter().with_max_len(1).map(run).collect()
}
