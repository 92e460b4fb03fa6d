//! Runs jobs over traces. Jobs of one meaning run together, and each row names its job.

use std::collections::HashMap;
use std::sync::Arc;

use flashwise_core::quantity::ByteSize;
use flashwise_trace::Trace;
use flashwise_trace::progress::Progress;
use flashwise_trace::request_file::RequestFile;
use rayon::prelude::*;

use super::{Job, JobError, Meaning, Placement};
use crate::endurance::Algorithm;
use crate::experiment::{self, Case, Layout, reference, with_references};
use crate::results::ResultRow;

/// Jobs that are ready to run over traces.
#[derive(Debug)]
pub struct Runs<'a> {
    traces: &'a [Trace],
    requests: Arc<[RequestFile]>,
    jobs: &'a [Job],
    groups: Vec<Group>,
}

/// Jobs of one meaning over all traces.
#[derive(Debug)]
struct Group {
    meaning: Meaning,
    /// The job of each case, by index; cases for comparison may follow.
    jobs: Vec<usize>,
    cases: Vec<Case>,
}

impl<'a> Runs<'a> {
    /// Prepares `jobs` over each of `traces`. `requests` are there if the jobs read them: see [`Job::reads`].
    ///
    /// # Errors
    /// A job cannot run over a trace.
    pub fn new(traces: &'a [Trace], requests: Arc<[RequestFile]>, jobs: &'a [Job]) -> Result<Runs<'a>, JobError> {
        let each = (0..traces.len()).flat_map(|trace| (0..jobs.len()).map(move |number| (trace, number)));
        Self::of(traces, requests, jobs, &each.collect::<Vec<_>>())
    }

    /// Prepares some of the jobs over some of the traces, given by the indexes of both, trace by trace.
    ///
    /// # Errors
    /// A job cannot run over its trace.
    pub fn of(
        traces: &'a [Trace],
        requests: Arc<[RequestFile]>,
        jobs: &'a [Job],
        some: &[(usize, usize)],
    ) -> Result<Runs<'a>, JobError> {
        let mut groups: Vec<(Meaning, Vec<(usize, usize)>)> = Vec::new();
        let mut known: HashMap<usize, usize> = HashMap::new();
        for &(trace, number) in some {
            if let Some(&group) = known.get(&number) {
                groups[group].1.push((trace, number));
                continue;
            }
            jobs[number].check()?;
            let meaning = jobs[number].meaning()?;
            let group = groups.iter().position(|(other, _)| *other == meaning).unwrap_or(groups.len());
            known.insert(number, group);
            match groups.get_mut(group) {
                Some((_, of_meaning)) => of_meaning.push((trace, number)),
                None => groups.push((meaning, vec![(trace, number)])),
            }
        }
        let group = |(meaning, each): (Meaning, Vec<(usize, usize)>)| -> Result<Group, JobError> {
            let cases = cases(&meaning, traces, each.iter().map(|&(trace, number)| (trace, &jobs[number])))?;
            Ok(Group { meaning, jobs: each.into_iter().map(|(_, number)| number).collect(), cases })
        };
        let groups = groups.into_iter().map(group).collect::<Result<_, _>>()?;
        Ok(Runs { traces, requests, jobs, groups })
    }

    /// The traces of all runs by index, including runs for comparison.
    fn of_traces(&self) -> impl Iterator<Item = usize> {
        self.groups.iter().flat_map(|group| &group.cases).map(|case| case.trace)
    }

    /// Number of runs, including those for comparison.
    pub fn count(&self) -> usize {
        self.of_traces().count()
    }

    /// Total number of block accesses.
    pub fn accesses(&self) -> u64 {
        self.of_traces().map(|trace| self.traces[trace].len() as u64).sum()
    }

    /// Runs everything on all cores. Returns, for each trace, the rows of the jobs in their order.
    pub fn run(self, progress: &dyn Progress) -> Result<Vec<Vec<ResultRow>>, JobError> {
        let mut found: Vec<Vec<Option<ResultRow>>> = vec![vec![None; self.jobs.len()]; self.traces.len()];
        for (trace, number, row) in self.rows(progress)? {
            found[trace][number] = Some(row);
        }
        let all = |rows: Vec<Option<ResultRow>>| rows.into_iter().map(|row| row.expect("each job was run")).collect();
        Ok(found.into_iter().map(all).collect())
    }

    /// Runs everything on all cores. Returns the index of the trace, that of the job, and the row.
    fn rows(self, progress: &dyn Progress) -> Result<Vec<(usize, usize, ResultRow)>, JobError> {
        let Runs { traces, requests, jobs, groups } = self;
        let mut found = Vec::new();
        for Group { meaning, jobs: numbers, cases } in groups {
            let of_traces: Vec<usize> = cases.iter().map(|case| case.trace).collect();
            let rows = rows(traces, &requests, &meaning, cases, progress)?;
            for ((row, number), trace) in rows.into_iter().zip(numbers).zip(of_traces) {
                found.push((trace, number, ResultRow { job: Some(jobs[number].to_string()), ..row }));
            }
        }
        Ok(found)
    }
}

/// Runs some of `jobs` over some of `traces`, on all cores. Passes each finished row, with the index of its trace, to
/// `done` at once. `requests` are there if the jobs read them. `some` are indexes of traces and jobs, trace by trace.
///
/// # Errors
/// A job cannot run, found before anything runs, or `done` fails, which ends the work.
pub fn run_each(
    traces: &[Trace],
    requests: &Arc<[RequestFile]>,
    jobs: &[Job],
    some: &[(usize, usize)],
    progress: &dyn Progress,
    done: &(dyn Fn(usize, ResultRow) -> Result<(), JobError> + Sync),
) -> Result<(), JobError> {
    Runs::of(traces, requests.clone(), jobs, some)?;
    let mut together: Vec<Vec<(usize, usize)>> = Vec::new();
    let mut compared: HashMap<(usize, String), usize> = HashMap::new();
    for &(trace, number) in some {
        let job = &jobs[number];
        if let Placement::Flash(_) = job.meaning()?.place {
            // Cases of one size are compared with the same run.
            let size = job.size.as_ref().map(ToString::to_string).unwrap_or_default();
            let at = *compared.entry((trace, size)).or_insert(together.len());
            if at < together.len() {
                together[at].push((trace, number));
                continue;
            }
        }
        together.push(vec![(trace, number)]);
    }
    together.into_par_iter().with_max_len(1).try_for_each(|some| {
        let rows = Runs::of(traces, requests.clone(), jobs, &some)?.rows(progress)?;
        rows.into_iter().try_for_each(|(trace, _, row)| done(trace, row))
    })
}

/// Returns the cases of jobs of one meaning over their traces.
fn cases<'j>(
    meaning: &Meaning,
    traces: &[Trace],
    jobs: impl Iterator<Item = (usize, &'j Job)>,
) -> Result<Vec<Case>, JobError> {
    let mut cases = Vec::new();
    for (number, job) in jobs {
        let trace = &traces[number];
        let (warmup, accesses) =
            (meaning.counting.warmup.accesses(trace.whole_len() as usize), trace.whole_len() as usize);
        if warmup >= accesses as u64 {
            return Err(JobError::Warmup { trace: trace.name().to_owned(), warmup, accesses });
        }
        check_storage(meaning, trace).map_err(|error| error.of(trace.name(), traces.len() > 1))?;
        let size = job.size.as_ref().expect("a job that was checked has a size");
        let capacity_blocks = size
            .capacity_blocks(trace.whole_unique_blocks() as usize, trace.block_size_bytes())
            .map_err(|error| JobError::from(error).of(trace.name(), traces.len() > 1))?;
        let size = size.to_string();
        let algorithm = match (&meaning.place, &job.policy) {
            (Placement::Buckets(system, _), _) => Algorithm::from(*system),
            (_, policy) => policy.clone().expect("a job that was checked has a policy"),
        };
        let admission = job.rule_of(|rule| rule.of(trace));
        cases.push(Case { trace: number, algorithm, admission, size, capacity_blocks });
    }
    match &meaning.place {
        Placement::Flash(_) => Ok(with_references(cases)),
        _ => Ok(cases),
    }
}

/// Refuses a storage that is too small for the trace.
fn check_storage(meaning: &Meaning, trace: &Trace) -> Result<(), JobError> {
    let least = trace.whole_unique_blocks() * trace.block_size_bytes();
    match meaning.devices.as_ref().and_then(|devices| devices.storage_bytes) {
        // A sample may not know the number of blocks.
        Some(found) if found < least && trace.sample().is_none() => {
            let [found, least] = [found, least].map(ByteSize::new);
            let problem = format!("found {found}, expected at least {least}, which the trace accesses");
            Err(JobError::Value { key: "storage-size", problem })
        }
        _ => Ok(()),
    }
}

/// Returns the rows of cases of one meaning, in their order.
fn rows(
    traces: &[Trace],
    requests: &Arc<[RequestFile]>,
    meaning: &Meaning,
    cases: Vec<Case>,
    progress: &dyn Progress,
) -> Result<Vec<ResultRow>, JobError> {
    let experiment = meaning.experiment(requests);
    let runs = experiment::run(traces, cases, &experiment, progress)?;
    let row = |run: &experiment::Run| {
        let compared = match experiment.layout {
            Layout::Flash(_) => reference(&runs, run),
            _ => None,
        };
        ResultRow::of(&traces[run.case.trace], run, compared, &meaning.limits)
    };
    Ok(runs.iter().map(row).collect())
}
