//! Policies behind admission rules over traces: every (trace, policy, rule, size), in parallel.

use flashwise_core::admission::{Setting, Spec as Rule};
use flashwise_device::{ArrayError, ArrayModel};
use rayon::prelude::*;

use super::{Arrivals, Replayed, replay, setting};
use crate::simulate::{Counting, Job};
use flashwise_trace::Trace;
use flashwise_trace::progress::Progress;

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

/// Runs all jobs, on all cores, each before devices like those of `array` and storage of `storage_bytes` for its trace, whose requests
/// come as `arrivals` says; the runs come in the order of the jobs. `progress` is told of block accesses.
///
/// # Errors
/// Where requests wait, devices have to be a whole number, and traces may have to have times.
pub fn simulate_array(
    traces: &[Trace],
    jobs: Vec<ArrayJob>,
    array: &ArrayModel,
    storage_bytes: &(dyn Fn(&Trace) -> u64 + Sync),
    arrivals: Arrivals,
    counting: Counting,
    progress: &dyn Progress,
) -> Result<Vec<ArrayRun>, ArrayError> {
    if arrivals != Arrivals::None {
        array.check()?;
        traces.iter().try_for_each(|trace| arrivals.check(trace))?;
    }
    let run = |job: ArrayJob| {
        let trace = &traces[job.job.trace];
        let capacity_blocks = job.job.capacity_blocks;
        let setting = setting(&array.array(), trace.block_size_bytes(), capacity_blocks, storage_bytes(trace));
        let (policy, rule) = (&job.job.policy, job.admission.as_ref());
        let replayed = replay(trace, policy, rule, capacity_blocks, &setting, counting, Some((array, arrivals)));
        progress.advance(trace.len() as u64);
        ArrayRun { job, setting, replayed }
    };
    Ok(jobs.into_par_iter().with_max_len(1).map(run).collect())
}
