//! Traces to run jobs over: files, or open traces.

use std::path::PathBuf;

use flashwise_trace::Trace;
use flashwise_trace::error::TraceError;
use flashwise_trace::normalised::{self, Settings, requests_of};
use flashwise_trace::progress::Progress;
use flashwise_trace::request_file::RequestFile;
use flashwise_trace::tools::{sample, volumes};

use super::{Job, JobError, Reads, Runs};
use crate::results::ResultRow;
use crate::sampling::{accurate, margin};

/// A trace to run jobs over.
#[derive(Clone, Debug)]
pub enum Input {
    /// A file of any kind, with settings for reading.
    File(PathBuf, Settings),
    /// A file as in [`File`](Self::File); each of its volumes is a separate trace.
    Volumes(PathBuf, Settings),
    /// An open trace. Its requests span whole blocks.
    Open(Trace),
}

/// Traces, and the rows of the jobs over each, in the jobs' order.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    /// The traces, or their samples, as read by the last jobs.
    pub traces: Vec<Trace>,
    /// For each trace a row for each job.
    pub rows: Vec<Vec<ResultRow>>,
}

impl Input {
    /// Opens the traces, or the samples of them that jobs read.
    fn open(&self, reads: &Reads, progress: &dyn Progress) -> Result<Vec<(Trace, Option<RequestFile>)>, TraceError> {
        let Input::Volumes(path, settings) = self else { return Ok(vec![self.open_one(reads, progress)?]) };
        if reads.requests {
            let whole = Input::File(path.clone(), settings.clone()).open_one(reads, progress)?;
            let (trace, requests) = (whole.0, whole.1.expect("they are read"));
            let requests = requests.each(&trace.description().volumes)?.into_iter().map(Some);
            return Ok(volumes::each(&trace, progress).into_iter().zip(requests).collect());
        }
        let volumes = volumes::each(&normalised::open(path, settings, progress)?, progress).into_iter();
        let read = |volume: Trace| match reads.sampling {
            Some(sampling) => sample::of_volume(&volume, sampling, progress),
            None => Ok(volume),
        };
        volumes.map(|volume| Ok((read(volume)?, None))).collect()
    }

    fn open_one(&self, reads: &Reads, progress: &dyn Progress) -> Result<(Trace, Option<RequestFile>), TraceError> {
        let with_filter = |settings: &Settings| Settings { filter: reads.filter.clone(), ..settings.clone() };
        match (self, &reads.sampling) {
            (Input::File(path, settings), _) if reads.requests => {
                let (trace, requests) = normalised::open_with_requests(path, &with_filter(settings), progress)?;
                Ok((trace, Some(requests)))
            }
            (Input::File(path, settings), Some(sampling)) => {
                Ok((sample::open(path, settings, *sampling, progress)?, None))
            }
            (Input::File(path, settings), None) => Ok((normalised::open(path, settings, progress)?, None)),
            (Input::Open(trace), _) if reads.filter.is_some() => {
                let found = "a filter by process".to_owned();
                let expected = "none, since it has no processes; use the original".to_owned();
                Err(TraceError::Normalised { path: trace.name().to_owned(), found, expected })
            }
            (Input::Open(trace), _) if reads.requests => Ok((trace.clone(), Some(requests_of(trace, progress)?))),
            (Input::Open(trace), Some(sampling)) => Ok((sample::of(trace, *sampling, progress)?, None)),
            (Input::Open(trace), None) => Ok((trace.clone(), None)),
            (Input::Volumes(..), _) => unreachable!("they are several"),
        }
    }
}

/// Runs `jobs` over each of `inputs`, on all cores. `progress` counts bytes read and block accesses run.
///
/// # Errors
/// An input cannot be read or a job cannot be run; then nothing is run.
pub fn run(inputs: &[Input], jobs: &[Job], progress: &dyn Progress) -> Result<Rows, JobError> {
    let mut all = Rows::default();
    // Jobs may read different parts of the traces.
    for jobs in jobs.chunk_by(|job, other| job.reads().ok() == other.reads().ok()) {
        let reads = jobs[0].reads()?;
        let opened = inputs.iter().map(|input| input.open(&reads, progress)).collect::<Result<Vec<_>, _>>()?;
        let (traces, requests): (Vec<_>, Vec<_>) = opened.into_iter().flatten().unzip();
        let requests: Vec<RequestFile> = requests.into_iter().flatten().collect();
        all.rows.resize(traces.len(), Vec::new());
        for (rows, more) in all.rows.iter_mut().zip(Runs::new(&traces, requests.into(), jobs)?.run(progress)?) {
            rows.extend(more);
        }
        all.traces = traces;
    }
    Ok(all)
}

/// Runs jobs as [`run`] does, over the smallest samples with hit ratios within `accuracy`, or over whole traces if no
/// sample suffices.
///
/// # Errors
/// See [`run`].
pub fn run_accurate(inputs: &[Input], jobs: &[Job], accuracy: f64, progress: &dyn Progress) -> Result<Rows, JobError> {
    let work = |sample| {
        let jobs: Vec<Job> = jobs.iter().map(|job| Job { sample, ..job.clone() }).collect();
        run(inputs, &jobs, progress)
    };
    let margin = |done: &Rows| margin(done.rows.iter().flatten().map(|row| &row.sample));
    accurate(accuracy, jobs, work, JobError::is_empty_sample, margin)
}
