//! Sweeps: many jobs over many traces, as tasks that run anywhere and leave a file each.
//!
//! A [`Plan`] names traces and jobs. A [`Task`] is one trace with all of its jobs: the trace is read once, and as many caches are in memory at a time
//! as there are threads. What comes of a task is one Parquet file, which is named by the contents of the trace, the jobs and the version: where it is
//! there, nothing is run again, and two who run the same task write the same bytes. It appears whole or not at all.

mod plan;
mod rows;
mod task;

pub use plan::{Plan, PlanError};
pub use rows::{Rows, rows};
pub use task::{Found, Shard, SweepError, Task};
