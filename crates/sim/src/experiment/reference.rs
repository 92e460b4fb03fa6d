//! What weighted flash usage effectiveness compares with: M+, and H where every block is an erase unit.

use super::{Job, Run};
use crate::endurance::{Algorithm, Counts, Method, Placement};

/// The algorithm that an algorithm is compared with.
fn reference_of(algorithm: &Algorithm) -> &'static str {
    match algorithm.method() {
        Method::Offline(offline) if offline.placement == Placement::UnitCaching => "h",
        _ => "m+",
    }
}

fn is_reference(job: &Job, of: &Job) -> bool {
    let name = job.algorithm.to_string();
    name == reference_of(&of.algorithm) && (job.trace, job.capacity_blocks) == (of.trace, of.capacity_blocks)
}

/// The jobs, and behind them those that they are to be compared with and that are not there yet.
pub fn with_references(mut jobs: Vec<Job>) -> Vec<Job> {
    for at in 0..jobs.len() {
        let job = jobs[at].clone();
        if !jobs.iter().any(|other| is_reference(other, &job)) {
            let algorithm = Algorithm::parse(reference_of(&job.algorithm)).expect("a reference is an algorithm");
            jobs.push(Job { algorithm, admission: None, ..job });
        }
    }
    jobs
}

/// What `run` is compared with, if it is among `runs`.
pub fn reference<'a>(runs: &'a [Run], run: &Run) -> Option<&'a Counts> {
    let reference = runs.iter().find(|other| is_reference(&other.job, &run.job))?;
    reference.flash.as_ref().map(|flash| &flash.counts)
}
