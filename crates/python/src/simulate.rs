//! `flashwise.simulate`.

use flashwise_core::policy::POLICIES;
use flashwise_sim::job::{Input, Job, run};
use flashwise_sim::results::ResultRow;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::exception;
use crate::table::Table;
use crate::{jobs, policy, trace, work};

/// Simulates caches over traces: a row for each trace, policy and size, those of `flashwise simulate` with the same options.
#[pyfunction]
#[pyo3(signature = (
    trace, policies=None, sizes=None, *, jobs=None, format=None, block_size=None, lenient=false, threads=None, progress=None,
    **stages
))]
#[allow(clippy::too_many_arguments)] // Each is a keyword of Python.
pub fn simulate(
    py: Python<'_>,
    trace: &Bound<'_, PyAny>,
    policies: Option<&Bound<'_, PyAny>>,
    sizes: Option<&Bound<'_, PyAny>>,
    jobs: Option<&Bound<'_, PyAny>>,
    format: Option<String>,
    block_size: Option<&Bound<'_, PyAny>>,
    lenient: bool,
    threads: Option<usize>,
    progress: Option<&Bound<'_, PyAny>>,
    stages: Option<&Bound<'_, PyDict>>,
) -> PyResult<Table> {
    let settings = trace::settings(format, block_size, lenient)?;
    let many = jobs::many(policies, sizes, stages)?;
    let own = jobs::items(policies)?.into_iter().filter(jobs::is_own).collect::<Vec<_>>();
    let named: Vec<Job> = match jobs {
        Some(jobs) => {
            if !own.is_empty() || many.said().is_some() {
                return Err(PyTypeError::new_err("jobs say all that is to be run, found other keywords beside them"));
            }
            jobs::listed(jobs)?
        }
        None if !own.is_empty() && many.policies.is_empty() => Vec::new(),
        None => many.jobs().map_err(exception)?,
    };
    let inputs = trace::inputs(trace, &settings)?;
    let mut rows: Vec<Vec<ResultRow>> = match named.is_empty() {
        true => vec![Vec::new(); inputs.len()],
        false => work::run(py, threads, progress, |watch| run(&inputs, &named, watch))?.rows,
    };
    if !own.is_empty() {
        let counting = policy::counting(&many)?;
        for (input, rows) in inputs.iter().zip(&mut rows) {
            let open = |watch: &work::Watch| trace::open(input, watch);
            let trace = match input {
                Input::Open(trace) => trace.clone(),
                Input::File(..) => work::run(py, threads, None, open)?,
            };
            rows.extend(policy::run(&trace, &own, &many.sizes, counting, progress)?);
        }
    }
    Table::of_rows(rows.into_iter().flatten().collect())
}

/// The names of all replacement policies.
#[pyfunction]
pub fn policies() -> Vec<&'static str> {
    POLICIES.iter().map(|info| info.name).collect()
}
