//! Reports of finished runs: repeats the recommended run for its certainty, and describes each trace.

use flashwise_core::policy::Spec;
use flashwise_sim::checks::{self, Checks};
use flashwise_sim::job::{Job, JobError};
use flashwise_sim::results::ResultRow;
use flashwise_sim::simulate::Warmup;
use flashwise_trace::Trace;
use flashwise_trace::progress::{Progress, Silent};
use flashwise_trace::tools::info::Info;
use flashwise_trace::tools::reuse::{Distance, Histogram, ReuseDistances};
use flashwise_trace::tools::workload::Workload;
use rayon::prelude::*;

use crate::{Report, Section, others, recommended};

impl Report {
    /// Returns the report of the `rows` over each of `traces`, which `command` made; `job` is the first job. `progress`
    /// counts block accesses.
    ///
    /// # Errors
    /// The recommended run cannot be repeated.
    pub fn of(
        command: String,
        job: &Job,
        traces: &[Trace],
        rows: &[Vec<ResultRow>],
        progress: &dyn Progress,
    ) -> Result<Report, JobError> {
        let meaning = job.meaning()?;
        let counting = meaning.counting;
        let section = |(trace, rows): (&Trace, &Vec<ResultRow>)| -> Result<Section, JobError> {
            let checks = if meaning.is_policy_alone() { checks(trace, rows, counting.warmup)? } else { None };
            // A sample does not have the whole workload.
            let workload = trace.sample().is_none().then(|| Workload::of(trace, &Silent));
            let (info, reuse) = (Info::of(trace), reuse(trace, progress));
            Ok(Section { info, reuse, workload, rows: rows.clone(), checks })
        };
        let sections = traces.par_iter().zip(rows).map(section).collect::<Result<_, _>>()?;
        Ok(Report { command, title: None, date: None, counting, sections })
    }
}

/// Repeats the recommended run to measure its certainty. `None` if only offline policies ran, and for a sample, which
/// has its own error.
fn checks(trace: &Trace, rows: &[ResultRow], warmup: Warmup) -> Result<Option<Checks>, JobError> {
    if trace.sample().is_some() {
        return Ok(None);
    }
    let Some(row) = recommended(rows) else { return Ok(None) };
    let Ok(policy) = Spec::parse(&row.policy) else { return Ok(None) };
    if policy.info().offline {
        return Ok(None);
    }
    let others: Vec<Spec> = others(rows).iter().filter_map(|name| Spec::parse(name).ok()).collect();
    let others: Vec<Spec> = others.into_iter().filter(|other| !other.info().offline).collect();
    Ok(Some(checks::run(trace, &policy, &others, row, warmup, &Silent)?))
}

/// Returns the reuse distances of a trace; empty for a sample, whose distances differ.
fn reuse(trace: &Trace, progress: &dyn Progress) -> ReuseDistances {
    if trace.sample().is_none() {
        return ReuseDistances::of(trace, Distance::Unique, progress);
    }
    ReuseDistances { distance: Distance::Unique, reads: Histogram::default(), writes: Histogram::default() }
}
