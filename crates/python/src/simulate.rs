//! `flashwise.simulate`.

use flashwise_core::policy::POLICIES;
use flashwise_core::quantity::Share;
use flashwise_sim::job::{Input, Job, run, run_accurate};
use flashwise_sim::results::ResultRow;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::exception;
use crate::table::Table;
use crate::{jobs, policy, trace, work};

/// Simulates caches over traces. Returns a row for each trace, policy and size, as `flashwise simulate` with the same options.
#[pyfunction]
#[pyo3(signature = (
    trace, policies=None, sizes=None, *, accuracy=None, jobs=None, per_volume=false, format=None, block_size=None, lenient=false,
    threads=None, progress=None, **stages
))]
#[allow(clippy::too_many_arguments)] // Each is a keyword of Python.
pub fn simulate(
    py: Python<'_>,
    trace: &Bound<'_, PyAny>,
    policies: Option<&Bound<'_, PyAny>>,
    sizes: Option<&Bound<'_, PyAny>>,
    accuracy: Option<&Bound<'_, PyAny>>,
    jobs: Option<&Bound<'_, PyAny>>,
    per_volume: bool,
    format: Option<String>,
    block_size: Option<&Bound<'_, PyAny>>,
    lenient: bool,
    threads: Option<usize>,
    progress: Option<&Bound<'_, PyAny>>,
    stages: Option<&Bound<'_, PyDict>>,
) -> PyResult<Table> {
    let settings = trace::settings(format, block_size, lenient)?;
    let mut many = jobs::many(policies, sizes, stages)?;
    let own = jobs::items("policies", policies)?.into_iter().filter(jobs::is_own).collect::<Vec<_>>();
    let accuracy = jobs::accuracy(accuracy, &many.base)?;
    if accuracy.is_some() && (jobs.is_some() || !own.is_empty()) {
        let found = if jobs.is_some() { "jobs" } else { "a policy written in Python" };
        let what = format!("accuracy needs policies by name; remove {found}");
        return Err(PyTypeError::new_err(what));
    }
    // Keywords about a sample apply to the samples tried.
    many.base.sample = many.base.sample.or(accuracy.map(|_| Share::WHOLE));
    let named: Vec<Job> = match jobs {
        Some(jobs) => {
            let said = if own.is_empty() { many.said() } else { Some("policy".to_owned()) };
            if let Some(said) = said {
                let found = jobs::keyword(&said);
                let what = format!("jobs already describe the runs: remove {found}");
                return Err(PyTypeError::new_err(what));
            }
            jobs::listed(jobs)?
        }
        None if !own.is_empty() && many.policies.is_empty() => Vec::new(),
        None => many.jobs().map_err(exception)?,
    };
    let mut inputs = trace::inputs(trace, &settings)?;
    if per_volume {
        let later = own.is_empty();
        let each = |watch: &work::Watch| trace::volumes(&inputs, later, watch);
        inputs = work::run(py, threads, None, each)?;
    }
    let work = |watch: &work::Watch| match accuracy {
        None => run(&inputs, &named, watch).map(|done| done.rows),
        Some(accuracy) => run_accurate(&inputs, &named, accuracy, watch).map(|done| done.rows),
    };
    let mut rows: Vec<Vec<ResultRow>> = match named.is_empty() {
        true => vec![Vec::new(); inputs.len()],
        false => work::run(py, threads, progress, work)?,
    };
    if !own.is_empty() {
        let counting = policy::counting(&many)?;
        for (input, rows) in inputs.iter().zip(&mut rows) {
            let open = |watch: &work::Watch| trace::open(input, watch);
            let trace = match input {
                Input::Open(trace) => trace.clone(),
                Input::File(..) | Input::Volumes(..) => work::run(py, threads, None, open)?,
            };
            rows.extend(policy::run(&trace, &own, &many.sizes, counting, progress)?);
        }
    }
    Table::of_rows(rows.into_iter().flatten().collect())
}

/// Returns the names of all replacement policies.
#[pyfunction]
pub fn policies() -> Vec<&'static str> {
    POLICIES.iter().map(|info| info.name).collect()
}
