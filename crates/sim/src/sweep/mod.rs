//! Sweeps: many jobs over many traces, as tasks that run anywhere and write a file each.
//!
//! A [`SweepPlan`] names traces and jobs. A [`Task`] is one trace with all of its jobs. It reads the trace once, with
//! as many caches in memory as there are threads. Its result is one Parquet file, named by the contents of the trace,
//! the jobs and the version. If that exists, nothing is run again, and two workers with the same task write the same
//! bytes.
//! The file appears atomically. Traces and results are files or objects of S3; such a trace is first copied to the
//! local disk.

mod cache;
mod error;
mod folder;
mod objects;
mod origin;
mod plan;
mod rows;
mod task;

pub use error::SweepError;
pub use plan::{PlanError, SweepPlan};
pub use rows::{Rows, rows};
pub use task::{Shard, Task, TaskResults};
