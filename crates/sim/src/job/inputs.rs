//! Traces to run jobs over: files, or what is open already.

use std::path::PathBuf;

use flashwise_trace::Trace;
use flashwise_trace::error::TraceError;
use flashwise_trace::normalised::{self, Settings, requests_of};
use flashwise_trace::progress::Progress;
use flashwise_trace::request_file::RequestFile;
use flashwise_trace::tools::sample;

use super::{Job, JobError, Reads, Runs};
use crate::results::ResultRow;

/// A trace to run jobs over.
#[derive(Clone, Debug)]
pub enum Input {
    /// A file of any kind, and how it is read.
    File(PathBuf, Settings),
    /// A trace that is open. Its requests span whole blocks.
    Open(Trace),
}

/// Traces that were run, and the rows of the jobs over each, in their order.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    /// The traces, or their samples, as the last jobs read them.
    pub traces: Vec<Trace>,
    /// For each trace a row for each job.
    pub rows: Vec<Vec<ResultRow>>,
}

impl Input {
    /// The trace, or the sample of it that jobs read.
    fn open(&self, reads: &Reads, progress: &dyn Progress) -> Result<(Trace, Option<RequestFile>), TraceError> {
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
                let expected = "none, since it does not say which process asked; use the original".to_owned();
                Err(TraceError::Normalised { path: trace.name().to_owned(), found, expected })
            }
            (Input::Open(trace), _) if reads.requests => Ok((trace.clone(), Some(requests_of(trace, progress)?))),
            (Input::Open(trace), Some(sampling)) => Ok((sample::of(trace, *sampling, progress)?, None)),
            (Input::Open(trace), None) => Ok((trace.clone(), None)),
        }
    }
}

/// Runs `jobs` over each of `inputs`, on all cores. `progress` is told of the bytes that are read, and of block accesses that are run.
///
/// # Errors
/// What cannot be read or run; nothing is run then.
pub fn run(inputs: &[Input], jobs: &[Job], progress: &dyn Progress) -> Result<Rows, JobError> {
    let mut all = Rows { traces: Vec::new(), rows: vec![Vec::new(); inputs.len()] };
    // What is read of the traces may differ between jobs.
    for jobs in jobs.chunk_by(|job, other| job.reads().ok() == other.reads().ok()) {
        let reads = jobs[0].reads()?;
        let opened = inputs.iter().map(|input| input.open(&reads, progress)).collect::<Result<Vec<_>, _>>()?;
        let (traces, requests): (Vec<_>, Vec<_>) = opened.into_iter().unzip();
        let requests: Vec<RequestFile> = requests.into_iter().flatten().collect();
        for (rows, more) in all.rows.iter_mut().zip(Runs::new(&traces, requests.into(), jobs)?.run(progress)?) {
            rows.extend(more);
        }
        all.traces = traces;
    }
    Ok(all)
}
