//! Sweeps: many jobs over many traces, as tasks that run anywhere and leave a file each.
//!
//! A [`Plan`] names traces and jobs. A [`Task`] is one trace with all of its jobs: the trace is read once, and as many caches are in memory at a time
//! as there are threads. What comes of a task is one Parquet file, which is named by the contents of the trace, the jobs and the version: where it is
//! there, nothing is run again, and two who run the same task write the same bytes. It appears whole or not at all.
//! Traces and results are files, or objects of S3: a trace is then copied to the disk of the machine that runs its task.

mod cache;
mod error;
mod folder;
mod objects;
mod origin;
mod plan;
mod rows;
mod task;

pub use error::SweepError;
pub use plan::{Plan, PlanError};
pub use rows::{Rows, rows};
pub use task::{Found, Shard, Task};
