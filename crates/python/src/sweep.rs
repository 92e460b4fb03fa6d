//! Tasks of sweeps, as text that can be sent to another machine.

use std::path::{Path, PathBuf};

use flashwise_sim::sweep::{Shard, SweepPlan, Task, TaskResults};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::errors::exception;
use crate::work;

/// Returns the tasks of a plan, a TOML file or a dictionary with the same keys, as JSON. `shard` selects a part of them: `2/10`.
#[pyfunction]
#[pyo3(signature = (plan, shard=None))]
pub fn sweep_tasks(py: Python<'_>, plan: &Bound<'_, PyAny>, shard: Option<&str>) -> PyResult<Vec<String>> {
    // Resolving patterns may need another machine, or a thread of this process.
    let mut read = if plan.is_instance_of::<PyString>() || plan.hasattr("__fspath__")? {
        let path = plan.extract::<PathBuf>()?;
        work::run(py, None, None, |_| SweepPlan::read(&path))?
    } else {
        let written: String = py.import("json")?.call_method1("dumps", (plan,))?.extract()?;
        let plan = serde_json::from_str(&written).map_err(exception)?;
        work::run(py, None, None, |_| SweepPlan::of("plan", &plan))?
    };
    if let Some(shard) = shard {
        let shard: Shard = shard.parse().map_err(|problem| PyValueError::new_err(format!("shard: {problem}")))?;
        read = read.shard(shard);
    }
    read.tasks.iter().map(|task| serde_json::to_string(task).map_err(exception)).collect()
}

/// Finds the results of a task: the path, if known yet, and true if they exist.
#[pyfunction]
pub fn sweep_find(py: Python<'_>, task: &str) -> PyResult<(Option<String>, bool)> {
    let task: Task = serde_json::from_str(task).map_err(exception)?;
    let TaskResults { file, is_done } = work::run(py, None, None, |watch| task.find(watch))?;
    Ok((file.as_deref().map(text), is_done))
}

/// Runs a task unless its results exist, and returns their path.
#[pyfunction]
#[pyo3(signature = (task, *, threads=None))]
pub fn sweep_run(py: Python<'_>, task: &str, threads: Option<usize>) -> PyResult<String> {
    let task: Task = serde_json::from_str(task).map_err(exception)?;
    Ok(text(&work::run(py, threads, None, |watch| task.run(watch))?))
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
