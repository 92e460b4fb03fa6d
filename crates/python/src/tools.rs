//! Commands that describe, make and convert traces, and compute from them.

use std::path::{Path, PathBuf};

use flashwise_core::policy::Spec;
use flashwise_core::quantity::Share;
use flashwise_core::tiers::Array;
use flashwise_device::tier_of_option;
use flashwise_report::pareto as frontier;
use flashwise_sim::array::{Description, Lifetime, NamedWorkload};
use flashwise_sim::curve::{self as curves, SIZES, capacities};
use flashwise_sim::endurance::Algorithm;
use flashwise_sim::experiment::{self, Experiment, Layout};
use flashwise_sim::job::{Input, Job, JobError, Many, Placement};
use flashwise_sim::sampling::{accurate, margin};
use flashwise_sim::simulate::{Counting, Warmup};
use flashwise_sim::size::{Size, parse_block_size};
use flashwise_trace::sampling::Sampling;
use flashwise_trace::tools::generate::{
    Arrivals, Length, PatternSpec, Workload, Written, generate as generate_pattern, generate_week, parse_rate,
    parse_request_blocks,
};
use flashwise_trace::tools::info::Info;
use flashwise_trace::tools::like::{Server, Week};
use flashwise_trace::tools::reuse::{Distance, ReuseDistances};
use flashwise_trace::tools::{convert as convert_trace, sample};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::errors::exception;
use crate::jobs::{self, each, text};
use crate::table::Table;
use crate::{trace, work};

/// Converts JSON to Python.
pub fn loads<'py>(py: Python<'py>, value: &impl serde::Serialize) -> PyResult<Bound<'py, PyAny>> {
    py.import("json")?.call_method1("loads", (serde_json::to_string(value).map_err(exception)?,))
}

/// Describes a trace: requests, blocks, sizes, duration and reuse.
///
/// Parameters
/// ----------
/// trace : path, Trace, data frame, or list or array of int
///     Accesses. Integers, shape (accesses,), are the numbers of the blocks that are read.
///     A data frame has the columns of a CSV, or a column "block" with such numbers, and "op" and "time_us" if there are any.
/// format : str, optional
///     Format of the trace, such as "msr" or "csv:op=kind". By default it is recognised.
/// block_size : int or str, optional
///     Block size in bytes, a power of two from 512 to 1 MiB. The default is 4 KiB.
/// lenient : bool, default False
///     Skip malformed records instead of raising an error.
/// progress : callable, optional
///     Called about twenty times a second with the bytes read and the block accesses run so far.
///
/// Returns
/// -------
/// dict
///     The figures of `flashwise trace info --json`.
///
/// Examples
/// --------
/// >>> import flashwise
/// >>> flashwise.info([1, 2, 1])["unique_blocks"]
/// 2
#[pyfunction]
#[pyo3(signature = (trace, *, format=None, block_size=None, lenient=false, progress=None))]
pub fn info<'py>(
    py: Python<'py>,
    trace: &Bound<'py, PyAny>,
    format: Option<String>,
    block_size: Option<&Bound<'py, PyAny>>,
    lenient: bool,
    progress: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let input = trace::input(trace, &trace::settings(format, block_size, lenient)?)?;
    let info = work::run(py, None, progress, |watch| trace::open(&input, watch).map(|trace| Info::of(&trace)))?;
    Ok(loads(py, &info)?.cast_into::<PyDict>()?)
}

/// Returns the reuse distances of a trace: numbers of accesses by distance.
///
/// Parameters
/// ----------
/// trace : path, Trace, data frame, or list or array of int
///     Accesses. Integers, shape (accesses,), are the numbers of the blocks that are read.
///     A data frame has the columns of a CSV, or a column "block" with such numbers, and "op" and "time_us" if there are any.
/// distance : {"unique", "accesses"}, default "unique"
///     Count unique blocks or all accesses since the last access to the block.
/// format : str, optional
///     Format of the trace, such as "msr" or "csv:op=kind". By default it is recognised.
/// block_size : int or str, optional
///     Block size in bytes, a power of two from 512 to 1 MiB. The default is 4 KiB.
/// lenient : bool, default False
///     Skip malformed records instead of raising an error.
/// progress : callable, optional
///     Called about twenty times a second with the bytes read and the block accesses run so far.
///
/// Returns
/// -------
/// dict
///     The figures of `flashwise trace reuse --json`.
///
/// Examples
/// --------
/// >>> import flashwise
/// >>> flashwise.reuse([1, 2, 1])["reads"]["first_accesses"]
/// 2
#[pyfunction]
#[pyo3(signature = (trace, *, distance="unique", format=None, block_size=None, lenient=false, progress=None))]
pub fn reuse<'py>(
    py: Python<'py>,
    trace: &Bound<'py, PyAny>,
    distance: &str,
    format: Option<String>,
    block_size: Option<&Bound<'py, PyAny>>,
    lenient: bool,
    progress: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let distance = match distance {
        "unique" => Distance::Unique,
        "accesses" => Distance::Accesses,
        _ => return Err(PyValueError::new_err(format!("distance: found '{distance}', expected unique or accesses"))),
    };
    let input = trace::input(trace, &trace::settings(format, block_size, lenient)?)?;
    let work =
        |watch: &work::Watch| trace::open(&input, watch).map(|trace| ReuseDistances::of(&trace, distance, watch));
    Ok(loads(py, &work::run(py, None, progress, work)?)?.cast_into::<PyDict>()?)
}

/// Returns the hit ratios of policies at every cache size, with knees marked.
///
/// Parameters
/// ----------
/// trace : path, Trace, data frame, or list or array of int
///     Accesses. Integers, shape (accesses,), are the numbers of the blocks that are read.
///     A data frame has the columns of a CSV, or a column "block" with such numbers, and "op" and "time_us" if there are any.
/// policies : str or list of str, optional
///     Names from `policies`. The default is "lru".
/// sizes : float, int or str, or a list or an array of these, optional
///     Cache sizes. A float is a share of the unique blocks, an int a number of blocks.
///     Text is "10%", "512MiB", or a range such as "1%..10%:1%".
/// accuracy : float or str, optional
///     Use the smallest sample with hit ratios within this margin, such as 0.01.
/// warmup : int or str, optional
///     Accesses at the start that are not counted: a number, or a share such as "10%".
/// sample : float or str, optional
///     Share of the blocks to simulate.
/// sample_by : {"blocks", "groups"}, optional
///     Draw single blocks or groups of neighbours.
/// sample_seed : int, optional
///     Seed of the sample.
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
/// Table
///     A row for each policy and size. Its shape is (rows, columns).
///
/// Examples
/// --------
/// >>> import flashwise
/// >>> curve = flashwise.curve([1, 2, 3, 1, 2, 3], "lru", [1, 2, 3])
/// >>> curve["hit_ratio"]
/// [0.0, 0.0, 0.5]
#[pyfunction]
#[pyo3(signature = (
    trace, policies=None, sizes=None, *, accuracy=None, warmup=None, sample=None, sample_by=None, sample_seed=None, format=None,
    block_size=None, lenient=false, threads=None, progress=None
))]
#[allow(clippy::too_many_arguments)] // Each is a keyword of Python.
pub fn curve(
    py: Python<'_>,
    trace: &Bound<'_, PyAny>,
    policies: Option<&Bound<'_, PyAny>>,
    sizes: Option<&Bound<'_, PyAny>>,
    accuracy: Option<&Bound<'_, PyAny>>,
    warmup: Option<&Bound<'_, PyAny>>,
    sample: Option<&Bound<'_, PyAny>>,
    sample_by: Option<&Bound<'_, PyAny>>,
    sample_seed: Option<&Bound<'_, PyAny>>,
    format: Option<String>,
    block_size: Option<&Bound<'_, PyAny>>,
    lenient: bool,
    threads: Option<usize>,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<Table> {
    let input = trace::input(trace, &trace::settings(format, block_size, lenient)?)?;
    let stages = PyDict::new(py);
    for (name, value) in
        [("warmup", warmup), ("sample", sample), ("sample-by", sample_by), ("sample-seed", sample_seed)]
    {
        stages.set_item(name, value)?;
    }
    let base = jobs::many(None, None, Some(&stages))?.base;
    let accuracy = jobs::accuracy(accuracy, &base)?;
    let on = |sample| Job { sample, ..base.clone() }.meaning();
    let warmup = on(base.sample.or(accuracy.map(|_| Share::WHOLE))).map_err(exception)?.counting.warmup;
    let mut policies: Vec<Spec> = each("policies", policies)?;
    if policies.is_empty() {
        policies.push("lru".parse().map_err(exception)?);
    }
    let mut sizes = jobs::sizes(sizes)?;
    if sizes.is_empty() {
        sizes = Size::parse_list(SIZES).map_err(exception)?;
    }
    let points = work::run(py, threads, progress, |watch| -> Result<_, JobError> {
        let on_sample = |sample| {
            let trace = match on(sample)?.sampling {
                None => trace::open(&input, watch)?,
                Some(sampling) => sampled(&input, sampling, watch)?,
            };
            let sizes = capacities(&trace, &sizes)?;
            let (mut points, mut samples) = (Vec::new(), Vec::new());
            for policy in &policies {
                let (curve, of_curve) = curves::points(&trace, policy, &sizes, warmup, watch)?;
                points.extend(curve);
                samples.extend(of_curve);
            }
            Ok((points, samples))
        };
        match accuracy {
            None => on_sample(base.sample),
            Some(accuracy) => {
                accurate(accuracy, &[], on_sample, JobError::is_empty_sample, |(_, samples)| margin(samples))
            }
        }
    })?;
    Table::of_points(points.0)
}

fn sampled(input: &Input, sampling: Sampling, watch: &work::Watch) -> Result<flashwise_trace::Trace, JobError> {
    Ok(match input {
        Input::File(path, settings) | Input::Volumes(path, settings) => sample::open(path, settings, sampling, watch)?,
        Input::Open(trace) => sample::of(trace, sampling, watch)?,
    })
}

/// Returns the caches with the most hits for their erasures, beside the best possible.
///
/// Parameters
/// ----------
/// trace : path, Trace, data frame, or list or array of int
///     Accesses. Integers, shape (accesses,), are the numbers of the blocks that are read.
///     A data frame has the columns of a CSV, or a column "block" with such numbers, and "op" and "time_us" if there are any.
/// policies : str or list of str, optional
///     Names from `policies`, except offline ones.
/// sizes : float, int or str, or a list or an array of these, optional
///     Cache sizes. A float is a share of the unique blocks, an int a number of blocks.
///     Text is "10%", "512MiB", or a range such as "1%..10%:1%".
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
///     Options about flash, such as `erase_unit="256KiB"`, and `warmup`.
///
/// Returns
/// -------
/// Frontier
///     A list with a dictionary for each cache. `frontier` is true for caches worth having. The attribute `svg` is the chart.
#[pyfunction]
#[pyo3(signature = (
    trace, policies=None, sizes=None, *, format=None, block_size=None, lenient=false, threads=None, progress=None, **stages
))]
#[allow(clippy::too_many_arguments)] // Each is a keyword of Python.
pub fn pareto<'py>(
    py: Python<'py>,
    trace: &Bound<'py, PyAny>,
    policies: Option<&Bound<'py, PyAny>>,
    sizes: Option<&Bound<'py, PyAny>>,
    format: Option<String>,
    block_size: Option<&Bound<'py, PyAny>>,
    lenient: bool,
    threads: Option<usize>,
    progress: Option<&Bound<'py, PyAny>>,
    stages: Option<&Bound<'py, PyDict>>,
) -> PyResult<(Bound<'py, PyList>, String)> {
    let input = trace::input(trace, &trace::settings(format, block_size, lenient)?)?;
    let mut many = jobs::many(None, None, stages)?;
    let warmup = many.base.warmup.take().unwrap_or(Warmup::Accesses(0));
    refuse_stages(&many)?;
    let job = Job { spare: many.spares.first().copied(), ..many.base };
    let Placement::Flash(settings) = job.meaning_with(Some("flashwise pareto")).map_err(exception)?.place else {
        return Err(PyValueError::new_err("layout: expected in-place or containers for pareto"));
    };
    let mut online: Vec<Algorithm> = each("policies", policies)?;
    if online.is_empty() {
        online = frontier::online().collect();
    }
    if let Some(algorithm) = online.iter().find(|algorithm| algorithm.offline()) {
        return Err(PyValueError::new_err(format!(
            "pareto: policy: found {algorithm}, expected a policy that can run; those that know the future are compared with anyway"
        )));
    }
    let mut sizes = jobs::sizes(sizes)?;
    if sizes.is_empty() {
        sizes = Size::parse_list(frontier::SIZES).map_err(exception)?;
    }
    let points = work::run(py, threads, progress, |watch| -> Result<_, JobError> {
        let trace = trace::open(&input, watch)?;
        let cases = frontier::cases(&trace, &online, &sizes)?;
        let counting = Counting { warmup, epoch: None };
        let experiment = Experiment { layout: Layout::Flash(settings), devices: None, counting };
        let experiment = experiment.with_equal_ram(&trace, &cases);
        let runs = experiment::run(std::slice::from_ref(&trace), cases, &experiment, watch)?;
        Ok(frontier::points(&trace, runs.iter()))
    })?;
    Ok((loads(py, &points)?.cast_into::<PyList>()?, frontier::chart(&points)))
}

/// Words of a job that do not concern flash, which a frontier needs.
const NOT_OF_FLASH: [&str; 8] =
    ["epoch", "sample", "sample-by", "sample-seed", "arrivals", "cache-device", "storage-device", "storage-size"];

/// Refuses options that would not change a frontier.
fn refuse_stages(many: &Many) -> PyResult<()> {
    let word = many.base.words().map(|(name, _)| name).find(|name| NOT_OF_FLASH.contains(name));
    let found = match word {
        Some(word) => jobs::keyword(word),
        None if !many.admissions.is_empty() => "admission".to_owned(),
        None if many.spares.len() > 1 => "a list as spare".to_owned(),
        None => return Ok(()),
    };
    let expected = "expected what flash is made of, such as erase_unit, and one value of each";
    Err(PyTypeError::new_err(format!("pareto: found {found}, {expected}")))
}

/// Returns lifetime and latency of cache and storage under workloads given in numbers.
///
/// Parameters
/// ----------
/// file : path, optional
///     Description in TOML, as for `flashwise lifetime`.
/// cache : str, optional
///     Device of the cache, such as "slc".
/// storage : str, optional
///     Device of the storage, such as "mlc:devices=3".
/// workloads : str or list of str, optional
///     Workloads as options of the command line write them.
///
/// Returns
/// -------
/// list of dict
///     A dictionary for each workload, shape (workloads,).
///
/// Examples
/// --------
/// >>> import flashwise
/// >>> load = "read-mb-per-s=160,write-mb-per-s=200,read-hit-ratio=90%,write-hit-ratio=85%,dirty=65%"
/// >>> len(flashwise.lifetime(cache="slc", storage="mlc:devices=3", workloads=load))
/// 1
#[pyfunction]
#[pyo3(signature = (file=None, *, cache=None, storage=None, workloads=None))]
pub fn lifetime<'py>(
    py: Python<'py>,
    file: Option<PathBuf>,
    cache: Option<&str>,
    storage: Option<&str>,
    workloads: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyList>> {
    let file = file.map(|file| file.to_string_lossy().into_owned());
    let described = file.as_deref().map(Description::read).transpose().map_err(exception)?.unwrap_or_default();
    let tier =
        |option, text: Option<&str>| text.map(|text| tier_of_option(option, text)).transpose().map_err(exception);
    let missing = |what: &str, example: &str| {
        PyValueError::new_err(format!("found no {what}, expected one in the file or as a keyword: {example}"))
    };
    let cache = tier("cache", cache)?.or(described.cache).ok_or_else(|| missing("cache", "cache='slc'"))?;
    let storage =
        tier("storage", storage)?.or(described.storage).ok_or_else(|| missing("storage", "storage='mlc:devices=3'"))?;
    let mut given = Vec::new();
    for workload in jobs::items("workloads", workloads)? {
        given.push(NamedWorkload::of_option("workload", &text("workloads", &workload)?).map_err(exception)?);
    }
    let workloads = if given.is_empty() { described.workloads } else { given };
    if workloads.is_empty() {
        return Err(missing("workload", "workloads=['read-mb-per-s=160,...']"));
    }
    let array = Array { cache, storage };
    let figures: Vec<_> = workloads.iter().map(|workload| Lifetime::of(&array, workload)).collect();
    Ok(loads(py, &figures)?.cast_into::<PyList>()?)
}

/// Converts a trace of any kind to a normalised one, an Arrow IPC file.
///
/// Parameters
/// ----------
/// trace : path
///     Trace in any format.
/// out : path
///     File to write.
/// force : bool, default False
///     Replace an existing file.
/// format : str, optional
///     Format of the trace, such as "msr" or "csv:op=kind". By default it is recognised.
/// block_size : int or str, optional
///     Block size in bytes, a power of two from 512 to 1 MiB. The default is 4 KiB.
/// lenient : bool, default False
///     Skip malformed records instead of raising an error.
/// progress : callable, optional
///     Called about twenty times a second with the bytes read and the block accesses run so far.
#[pyfunction]
#[pyo3(signature = (trace, out, *, force=false, format=None, block_size=None, lenient=false, progress=None))]
#[allow(clippy::too_many_arguments)] // Each is a keyword of Python.
pub fn convert(
    py: Python<'_>,
    trace: PathBuf,
    out: PathBuf,
    force: bool,
    format: Option<String>,
    block_size: Option<&Bound<'_, PyAny>>,
    lenient: bool,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let settings = trace::settings(format, block_size, lenient)?;
    if out.is_file() && !force {
        let name = out.display();
        return Err(PyValueError::new_err(format!("{name}: found a file, expected none, or force=True to replace it")));
    }
    work::run(py, None, progress, |watch| convert_trace::convert(&trace, &out, &settings, watch).map(drop))
}

/// Generates a synthetic trace; the same arguments give the same trace.
///
/// Parameters
/// ----------
/// out : path
///     File to write.
/// pattern : str, optional
///     Pattern of `flashwise trace generate`. The default is "zipf".
/// like : str, optional
///     A server whose week is imitated, in place of a pattern.
/// blocks : int, optional
///     Blocks of the address range. Required with a pattern.
/// requests, accesses : int, optional
///     Length in requests or in block accesses.
/// read_share : float or str, default 0.7
///     Share of the requests that read.
/// request_blocks : int or str, default 1
///     Blocks of a request, or a range such as "1..4".
/// rate : float or str, default "1000/s"
///     Requests per second.
/// arrivals : {"poisson", "constant"}, default "poisson"
///     Intervals between requests.
/// seed : int, default 1
///     Seed of the random numbers.
/// block_size : int or str, default 4096
///     Block size in bytes.
/// csv : bool, default False
///     Write CSV instead of a normalised trace.
/// progress : callable, optional
///     Called about twenty times a second with the bytes read and the block accesses run so far.
#[pyfunction]
#[pyo3(signature = (
    out, *, pattern=None, like=None, blocks=None, requests=None, accesses=None, read_share=None, request_blocks=None, rate=None,
    arrivals="poisson", seed=1, block_size=None, csv=false, progress=None
))]
#[allow(clippy::too_many_arguments)] // Each is a keyword of Python.
pub fn generate(
    py: Python<'_>,
    out: PathBuf,
    pattern: Option<&str>,
    like: Option<&str>,
    blocks: Option<u64>,
    requests: Option<u64>,
    accesses: Option<u64>,
    read_share: Option<&Bound<'_, PyAny>>,
    request_blocks: Option<&Bound<'_, PyAny>>,
    rate: Option<&Bound<'_, PyAny>>,
    arrivals: &str,
    seed: u64,
    block_size: Option<&Bound<'_, PyAny>>,
    csv: bool,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let or = |name: &str, value: Option<&Bound<'_, PyAny>>, default: &str| {
        value.map_or_else(|| Ok(default.to_owned()), |value| text(name, value))
    };
    let written = if csv { Written::Csv } else { Written::Normalised };
    let block_size_bytes = parse_block_size(&or("block_size", block_size, "4KiB")?).map_err(exception)?;
    let out: &Path = &out;
    if let Some(server) = like {
        if pattern.is_some() || blocks.is_some() || requests.is_some() {
            return Err(PyTypeError::new_err(
                "like does not go with a pattern, blocks or requests; give accesses only",
            ));
        }
        let server = Server::named(server).map_err(exception)?;
        let week = Week::new(server, accesses.unwrap_or(2_000_000), block_size_bytes, seed).map_err(exception)?;
        return work::run(py, None, progress, |watch| generate_week(week, out, written, watch).map(drop));
    }
    let length = match (requests, accesses) {
        (Some(_), Some(_)) => {
            return Err(PyTypeError::new_err("found requests and accesses, expected one of them"));
        }
        (Some(requests), None) => Length::Requests(requests),
        (None, Some(accesses)) => Length::Accesses(accesses),
        (None, None) => Length::WholePattern,
    };
    let workload = Workload {
        pattern: pattern.unwrap_or("zipf").parse::<PatternSpec>().map_err(exception)?,
        blocks: blocks.ok_or_else(|| {
            PyTypeError::new_err("blocks is missing, expected the number of blocks of the address range")
        })?,
        length,
        read_share: or("read_share", read_share, "0.7")?.parse::<Share>().map_err(exception)?.of_one(),
        request_blocks: parse_request_blocks(&or("request_blocks", request_blocks, "1")?).map_err(exception)?,
        rate: parse_rate(&or("rate", rate, "1000/s")?).map_err(exception)?,
        arrivals: match arrivals {
            "poisson" => Arrivals::Poisson,
            "constant" => Arrivals::Constant,
            _ => {
                let expected = "expected poisson or constant";
                return Err(PyValueError::new_err(format!("arrivals: found '{arrivals}', {expected}")));
            }
        },
        seed,
        block_size_bytes,
    };
    work::run(py, None, progress, |watch| generate_pattern(workload, out, written, watch).map(drop))
}
