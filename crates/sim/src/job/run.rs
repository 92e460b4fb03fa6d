//! Runs jobs over traces: jobs of one meaning together, each row named by its job.

use std::sync::Arc;

use flashwise_trace::Trace;
use flashwise_trace::progress::Progress;
use flashwise_trace::request_file::RequestFile;

use super::{Choice, Job, JobError, Meaning, Place};
use crate::experiment::{self, Case, Layout, reference, with_references};
use crate::results::ResultRow;
use crate::sampled;
use crate::sampling::SampleFigures;
use crate::simulate::{PolicyCase, simulate};
use crate::wlfc::{BucketCase, simulate_buckets};

/// Jobs, ready to run over traces.
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
    /// The job of each case, by its number; behind them cases may follow that others are compared with.
    jobs: Vec<usize>,
    cases: Cases,
}

/// What jobs are over traces, whose blocks have a length.
#[derive(Debug)]
enum Cases {
    Policies(Vec<PolicyCase>),
    Buckets(Vec<BucketCase>),
    All(Vec<Case>),
}

impl Cases {
    /// The traces of the cases, by their number.
    fn traces(&self) -> Vec<usize> {
        match self {
            Cases::Policies(cases) => cases.iter().map(|case| case.trace).collect(),
            Cases::Buckets(cases) => cases.iter().map(|case| case.trace).collect(),
            Cases::All(cases) => cases.iter().map(|case| case.trace).collect(),
        }
    }
}

impl<'a> Runs<'a> {
    /// `jobs` over each of `traces`, whose `requests` are there if the jobs read them: see [`Job::reads`].
    ///
    /// # Errors
    /// What cannot be run, in whatever trace.
    pub fn new(traces: &'a [Trace], requests: Arc<[RequestFile]>, jobs: &'a [Job]) -> Result<Runs<'a>, JobError> {
        let mut groups: Vec<(Meaning, Vec<usize>)> = Vec::new();
        for (number, job) in jobs.iter().enumerate() {
            job.check()?;
            let meaning = job.meaning()?;
            match groups.iter_mut().find(|(other, _)| *other == meaning) {
                Some((_, of_meaning)) => of_meaning.push(number),
                None => groups.push((meaning, vec![number])),
            }
        }
        let group = |(meaning, numbers): (Meaning, Vec<usize>)| -> Result<Group, JobError> {
            let each = (0..traces.len()).flat_map(|trace| numbers.iter().map(move |&number| (trace, number)));
            let cases = cases(&meaning, traces, each.clone().map(|(trace, number)| (trace, &jobs[number])))?;
            Ok(Group { meaning, jobs: each.map(|(_, number)| number).collect(), cases })
        };
        let groups = groups.into_iter().map(group).collect::<Result<_, _>>()?;
        Ok(Runs { traces, requests, jobs, groups })
    }

    /// The traces of all runs, those for comparison included, by their number.
    fn of_traces(&self) -> impl Iterator<Item = usize> {
        self.groups.iter().flat_map(|group| group.cases.traces())
    }

    /// How many runs there are, those for comparison included.
    pub fn count(&self) -> usize {
        self.of_traces().count()
    }

    /// How many block accesses they are together.
    pub fn accesses(&self) -> u64 {
        self.of_traces().map(|trace| self.traces[trace].len() as u64).sum()
    }

    /// Runs all, on all cores: for each trace the rows of the jobs, in their order.
    pub fn run(self, progress: &dyn Progress) -> Result<Vec<Vec<ResultRow>>, JobError> {
        let Runs { traces, requests, jobs, groups } = self;
        let mut found: Vec<Vec<Option<ResultRow>>> = vec![vec![None; jobs.len()]; traces.len()];
        for Group { meaning, jobs: numbers, cases } in groups {
            let of_traces = cases.traces();
            let rows = rows(traces, &requests, &meaning, cases, progress)?;
            for ((row, number), trace) in rows.into_iter().zip(numbers).zip(of_traces) {
                found[trace][number] = Some(ResultRow { job: Some(jobs[number].to_string()), ..row });
            }
        }
        let all = |rows: Vec<Option<ResultRow>>| rows.into_iter().map(|row| row.expect("each job was run")).collect();
        Ok(found.into_iter().map(all).collect())
    }
}

/// What jobs of one meaning are over their traces.
fn cases<'j>(
    meaning: &Meaning,
    traces: &[Trace],
    jobs: impl Iterator<Item = (usize, &'j Job)>,
) -> Result<Cases, JobError> {
    let (mut alone, mut buckets, mut all) = (Vec::new(), Vec::new(), Vec::new());
    for (number, job) in jobs {
        let trace = &traces[number];
        let (warmup, accesses) =
            (meaning.counting.warmup.accesses(trace.whole_len() as usize), trace.whole_len() as usize);
        if warmup >= accesses as u64 {
            return Err(JobError::Warmup { trace: trace.name().to_owned(), warmup, accesses });
        }
        let size = job.size.as_ref().expect("a job that was checked has a size");
        let capacity_blocks = size.capacity_blocks(trace.whole_unique_blocks() as usize, trace.block_size_bytes())?;
        let size = size.to_string();
        match (&meaning.place, &job.policy) {
            (Place::Buckets(system, _), _) => {
                let flash_bytes = capacity_blocks as u64 * trace.block_size_bytes();
                buckets.push(BucketCase { trace: number, system: *system, size, flash_bytes });
            }
            (_, Some(Choice::Policy(policy))) if meaning.is_policy_alone() => {
                alone.push(PolicyCase { trace: number, policy: policy.clone(), size, capacity_blocks });
            }
            (_, policy) => {
                let algorithm = policy.as_ref().expect("a job that was checked has a policy").algorithm()?;
                let admission = job.rule_of(|rule| rule.of(trace));
                all.push(Case { trace: number, algorithm, admission, size, capacity_blocks });
            }
        }
    }
    Ok(match &meaning.place {
        Place::Buckets(..) => Cases::Buckets(buckets),
        Place::Flash(_) => Cases::All(with_references(all)),
        _ if meaning.is_policy_alone() => Cases::Policies(alone),
        _ => Cases::All(all),
    })
}

/// The rows of cases of one meaning, in their order.
fn rows(
    traces: &[Trace],
    requests: &Arc<[RequestFile]>,
    meaning: &Meaning,
    cases: Cases,
    progress: &dyn Progress,
) -> Result<Vec<ResultRow>, JobError> {
    let counting = meaning.counting;
    match (cases, &meaning.place) {
        (Cases::Policies(cases), _) => {
            let runs = simulate(traces, cases, counting, progress)?;
            Ok(runs.iter().map(|run| ResultRow::new(&traces[run.case.trace], run)).collect())
        }
        (Cases::Buckets(cases), Place::Buckets(_, settings)) => {
            let accesses: Vec<usize> = traces.iter().map(Trace::len).collect();
            let results = simulate_buckets(requests, &accesses, cases, settings, counting, progress)?;
            Ok(results.iter().map(|result| ResultRow::of_buckets(&traces[result.case.trace], result)).collect())
        }
        (Cases::All(cases), _) => {
            let experiment = meaning.experiment(requests).expect("it is no cache of buckets");
            let (runs, samples): (Vec<_>, Vec<_>) = match meaning.sampling {
                Some(_) => {
                    let runs = sampled::run(traces, &cases, &experiment, progress)?;
                    runs.into_iter().map(|sampled| (sampled.run, Some(sampled.figures))).unzip()
                }
                None => {
                    let runs = experiment::run(traces, cases, &experiment, progress)?;
                    runs.into_iter().map(|run| (run, None)).unzip()
                }
            };
            let row = |(run, sample): (&experiment::Run, Option<SampleFigures>)| {
                let compared = match experiment.layout {
                    Layout::Flash(_) => reference(&runs, run),
                    Layout::None { .. } | Layout::Log(_) => None,
                };
                let row = ResultRow::of_run(&traces[run.case.trace], run, compared, &meaning.limits);
                ResultRow { sample, ..row }
            };
            Ok(runs.iter().zip(samples).map(row).collect())
        }
        (Cases::Buckets(_), _) => unreachable!("they lie in buckets"),
    }
}
