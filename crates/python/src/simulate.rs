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

/// Simulates caches over traces, as `flashwise simulate` with the same options.
///
/// Parameters
/// ----------
/// trace : path, Trace, data frame, or list or array of int; or a list of these
///     Accesses. Integers, shape (accesses,), are the numbers of the blocks that are read.
///     A data frame has the columns of a CSV, or a column "block" with such numbers, and "op" and "time_us" if there are any.
/// policies : str or class, or a list of these, optional
///     Names from `policies`, with their options, or classes of your own.
/// sizes : float, int or str, or a list or an array of these, optional
///     Cache sizes. A float is a share of the unique blocks, an int a number of blocks.
///     Text is "10%", "512MiB", or a range such as "1%..10%:1%".
/// accuracy : float or str, optional
///     Use the smallest sample with hit ratios within this margin, such as 0.01.
/// jobs : str or dict, or a list of these, optional
///     Jobs in place of policies, sizes and stages.
/// per_volume : bool, default False
///     Give each volume a cache of its own.
/// format : str, optional
///     Format of the trace, such as "msr" or "csv:op=kind". By default it is recognised.
/// block_size : int or str, optional
///     Block size in bytes, a power of two from 512 to 1 MiB. The default is 4 KiB.
/// lenient : bool, default False
///     Skip malformed records instead of raising an error.
/// threads : int, optional
///     Number of threads, from 1 to 256. The default is one for each core.
/// progress : callable, optional
///     Called about twenty times a second with the bytes read and the block accesses run so far.
/// **stages
///     Other options of the command line, with `_` for `-`: `layout="log"`, `erase_unit="256KiB"`, `warmup="10%"`.
///
/// Returns
/// -------
/// Table
///     A row for each trace, policy and size, in this order. Its shape is (rows, columns).
///
/// Raises
/// ------
/// TypeError
///     A keyword, or the type of a value, is unknown.
/// ValueError
///     A value or a trace is malformed.
/// OSError
///     A file cannot be read.
///
/// Examples
/// --------
/// >>> import flashwise
/// >>> table = flashwise.simulate([1, 2, 1, 3, 1, 2], "lru", 2)
/// >>> table["hits"], table["hit_ratio"]
/// ([2], [0.3333333333333333])
///
/// >>> example = flashwise.load_example()
/// >>> flashwise.simulate(example, ["lru", "larc"], [0.01, 0.1])["size"]
/// ['1%', '10%', '1%', '10%']
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
///
/// Returns
/// -------
/// list of str
///     Names, shape (policies,). `flashwise policies` explains them.
///
/// Examples
/// --------
/// >>> import flashwise
/// >>> "larc" in flashwise.policies()
/// True
#[pyfunction]
pub fn policies() -> Vec<&'static str> {
    POLICIES.iter().map(|info| info.name).collect()
}
