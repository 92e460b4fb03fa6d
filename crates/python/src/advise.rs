//! `flashwise.advise`.

use std::path::PathBuf;

use flashwise_core::quantity::Duration;
use flashwise_device::offers::Catalogue;
use flashwise_sim::advise::{
    AdviseError, Question, Targets, Ways, Workload, YEARS_MAX, advise as find_cache, mode_of, over_provision_of,
    policy_of,
};
use flashwise_sim::job::{Admission, JobError};
use flashwise_sim::simulate::Warmup;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::exception;
use crate::jobs::{self, text};
use crate::tools::loads;
use crate::{trace, work};

/// Finds the cheapest cache that is fast enough and lasts long enough, as `flashwise advise`.
///
/// Parameters
/// ----------
/// trace : path, Trace, data frame, or list or array of int
///     Accesses. Integers, shape (accesses,), are the numbers of the blocks that are read.
///     A data frame has the columns of a CSV, or a column "block" with such numbers, and "op" and "time_us" if there are any.
/// latency : str, optional
///     How long a request may wait on average, such as "1ms". A catalogue with a price of waiting needs none.
/// years : float, default 5
///     Required lifetime of the flash in years at the rate of the trace, from 0 to 100. 0 asks for none.
/// devices : path, optional
///     Catalogue in TOML with devices, sizes and prices. The default is an example with assumed prices.
/// policies : str or list of str, optional
///     Policies to choose among.
/// admissions : str or list of str, optional
///     Admission rules to choose among.
/// write_modes : str or list of str, optional
///     Some of "write-back", "write-through" and "write-around".
/// write_back_order : str, default "none"
///     Required order of write-back: "none", "barriers" or "journal". With the last two, the backend is a consistent
///     older state if the flash is lost. `order_cost` then has the cost of the order.
/// over_provisions : str or float, or a list of these, optional
///     Free shares of the flash to choose among, up to 0.9.
/// warmup : int or str, optional
///     Accesses at the start that are not counted: a number, or a share such as "10%".
/// exhaustive : bool, default False
///     Run every cache exactly instead of searching.
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
///
/// Returns
/// -------
/// dict
///     The advice of `flashwise advise --json`: `verdict`, `sentences`, `cache`, `alternatives`, `cautions` and more.
///     If no cache meets the targets, `verdict` is "nothing-meets".
///
/// Examples
/// --------
/// >>> import flashwise
/// >>> advice = flashwise.advise([1, 2, 1, 3] * 10, latency="1ms", years=0)
/// >>> advice["verdict"]
/// 'ram-only'
#[pyfunction]
#[pyo3(signature = (
    trace, *, latency=None, years=5.0, devices=None, policies=None, admissions=None, write_modes=None, write_back_order="none",
    over_provisions=None,
    warmup=None, exhaustive=false, format=None, block_size=None, lenient=false, threads=None, progress=None
))]
#[allow(clippy::too_many_arguments)] // Each is a keyword of Python.
pub fn advise<'py>(
    py: Python<'py>,
    trace: &Bound<'py, PyAny>,
    latency: Option<&Bound<'py, PyAny>>,
    years: f64,
    devices: Option<PathBuf>,
    policies: Option<&Bound<'py, PyAny>>,
    admissions: Option<&Bound<'py, PyAny>>,
    write_modes: Option<&Bound<'py, PyAny>>,
    write_back_order: &str,
    over_provisions: Option<&Bound<'py, PyAny>>,
    warmup: Option<&Bound<'py, PyAny>>,
    exhaustive: bool,
    format: Option<String>,
    block_size: Option<&Bound<'py, PyAny>>,
    lenient: bool,
    threads: Option<usize>,
    progress: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let input = trace::input(trace, &trace::settings(format, block_size, lenient)?)?;
    let wrong = |name: &str, problem: String| PyValueError::new_err(format!("{name}: {problem}"));
    if !(0.0..=YEARS_MAX).contains(&years) {
        return Err(wrong("years", format!("found {years}, expected a number of years from 0 to {YEARS_MAX}")));
    }
    let latency = latency.map(|latency| text("latency", latency)).transpose()?;
    let latency = latency.map(|latency| latency.parse::<Duration>()).transpose().map_err(exception)?;
    let texts = |name: &str, values| -> PyResult<Vec<String>> {
        jobs::items(name, values)?.iter().map(|value| text(name, value)).collect()
    };
    let mut ways = Ways::default();
    for policy in texts("policies", policies)? {
        ways.policies.push(policy_of(&policy).map_err(exception)?);
    }
    for rule in texts("admissions", admissions)? {
        ways.admissions.extend(Admission::parse_list(&rule).map_err(exception)?);
    }
    for mode in texts("write_modes", write_modes)? {
        ways.modes.push(mode_of(&mode).map_err(|problem| wrong("write_modes", problem))?);
    }
    for share in texts("over_provisions", over_provisions)? {
        ways.over_provisions.push(over_provision_of(&share).map_err(|problem| wrong("over_provisions", problem))?);
    }
    let warmup = warmup.map(|warmup| text("warmup", warmup)).transpose()?;
    let warmup = warmup.map_or(Ok(Warmup::Accesses(0)), |warmup| warmup.parse());
    let catalogue = devices.as_ref().map(|path| Catalogue::read(&path.to_string_lossy())).transpose();
    let catalogue = catalogue.map_err(exception)?.unwrap_or_else(Catalogue::example);
    let question = Question {
        catalogue: &catalogue,
        targets: Targets { latency_us: latency.map(|latency| latency.us() as f64), years },
        ways: ways.or_defaults().map_err(PyValueError::new_err)?,
        order: write_back_order.parse().map_err(|problem| wrong("write_back_order", problem))?,
        warmup: warmup.map_err(|problem| wrong("warmup", problem))?,
        exhaustive,
    };
    let mut advice = work::run(py, threads, progress, |watch| -> Result<_, AdviseError> {
        let workload = Workload::open(&input, watch).map_err(JobError::from)?;
        find_cache(&workload, &question, watch)
    })?;
    if devices.is_none() {
        let caution = "Prices are those of the example catalogue, which are assumed: devices takes a file with yours.";
        advice.cautions.push(caution.to_owned());
    }
    Ok(loads(py, &advice)?.cast_into::<PyDict>()?)
}
