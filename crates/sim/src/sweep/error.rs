//! Errors of a sweep.

use flashwise_trace::error::TraceError;

use crate::job::JobError;

/// The reason why a task failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum SweepError {
    #[error(transparent)]
    Job(#[from] JobError),
    #[error("{path}")]
    Copied { path: String, source: JobError },
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error("{path}: the results make no Parquet file: {problem}")]
    Parquet { path: String, problem: String },
    #[error("{path}: {problem}")]
    NotResults { path: String, problem: String },
    #[error("{path}: changed while it was read")]
    Changed { path: String },
    #[error("{path}: {problem}")]
    Object { path: String, problem: String },
    #[error("{path}: found {free} free in {cache}, expected {needed} for a copy of it (cache names another folder)")]
    Room { path: String, cache: String, free: String, needed: String },
}
