//! One run of the simulator for every cache: trace, read cache in RAM, admission rule, policy or algorithm, layout,
//! device, waiting. Each stage is optional; stages that do not go together are refused with the reason.

mod equal_ram;
mod meaningless;
mod reference;
mod sampled;
mod trace_runs;

use std::collections::BTreeMap;
use std::sync::Arc;

use flashwise_core::admission::Setting;
use flashwise_core::cache;
use flashwise_core::cache::Config;
use flashwise_core::format::BLOCK_BYTES;
use flashwise_core::quantity::ByteSize;
use flashwise_device::{ArrayError, ArrayModel};
use flashwise_trace::Trace;
use flashwise_trace::error::TraceError;
use flashwise_trace::progress::Progress;
use flashwise_trace::request_file::RequestFile;
use rayon::prelude::*;

pub use crate::case::{Case, Flash, Run};
pub use meaningless::{Cache, Meaningless, check};
pub use reference::{reference, with_references};

use crate::array::{Arrivals, setting, storage_bytes};
use crate::cache_settings::{self, CacheError, Ram};
use crate::endurance::{self, Buffers, EnduranceError, Geometry, Method, Placement, days, flash_of, ram_blocks};
use crate::simulate::{Counting, simulate};
use crate::wlfc::{BucketError, BucketSettings};
use trace_runs::{Done, TraceRuns};

/// Where cached blocks lie.
#[derive(Clone, Debug)]
pub enum Layout {
    /// Policies without a layout on flash, behind a read cache in RAM.
    None {
        /// The RAM.
        ram: Ram,
    },
    /// Simulated flash: replacement policies in place, and algorithms with their own layout.
    Flash(endurance::Settings),
    /// The log of the whole cache, as in the server.
    Log(Log),
    /// Buckets that are evicted whole. The size of a case is that of the flash.
    Buckets(Box<BucketSettings>, Arc<[RequestFile]>),
}

/// The whole cache that a server keeps.
#[derive(Clone, Debug)]
pub struct Log {
    /// Its settings.
    pub settings: cache::settings::Settings,
    /// The requests of each trace, in the order of the traces, with original flushes and flags.
    pub requests: Arc<[RequestFile]>,
    /// The SSD that the log lies on, if one is simulated.
    pub ssd: Option<endurance::Settings>,
}

/// The devices of an array around the cache, for latency, lifetime and waits.
#[derive(Clone, Debug, PartialEq)]
pub struct Devices {
    /// The devices. Their sizes follow from cache and trace.
    pub model: ArrayModel,
    /// Size of the stored data; by default twice the blocks of the trace.
    pub storage_bytes: Option<u64>,
    /// When requests come.
    pub arrivals: Arrivals,
}

/// The common settings of all cases of a simulation.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Where cached blocks lie.
    pub layout: Layout,
    /// The array around the cache, if one is simulated. A case with a rule has one: rules have to know it.
    pub devices: Option<Devices>,
    /// How to count.
    pub counting: Counting,
}

/// Why something cannot be simulated.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum ExperimentError {
    #[error(transparent)]
    Endurance(#[from] EnduranceError),
    #[error(transparent)]
    Array(#[from] ArrayError),
    #[error(transparent)]
    Cache(#[from] CacheError),
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error(transparent)]
    Bucket(#[from] BucketError),
    #[error(transparent)]
    Meaningless(#[from] Meaningless),
    #[error("{rule} needs the times of the trace, since its budget is per day: {wrong}")]
    Budget { rule: String, wrong: String },
    #[error("{trace}: {error}")]
    Of { trace: String, error: Box<ExperimentError> },
}

impl ExperimentError {
    /// Returns the error of a cache over `trace`, with its name if there are several.
    pub(crate) fn of(self, trace: &Trace, several: bool) -> ExperimentError {
        match self {
            ExperimentError::Bucket(BucketError::Trace(error)) => ExperimentError::Trace(error),
            error @ (ExperimentError::Endurance(_)
            | ExperimentError::Cache(_)
            | ExperimentError::Bucket(_)
            | ExperimentError::Budget { .. })
                if several =>
            {
                ExperimentError::Of { trace: trace.name().to_owned(), error: Box::new(error) }
            }
            error => error,
        }
    }
}

impl Experiment {
    /// True if only decisions of policies are simulated.
    pub fn is_policy_alone(&self) -> bool {
        matches!(self.layout, Layout::None { ram: Ram::Bytes(0) }) && self.devices.is_none()
    }

    /// Refuses a case with settings that do not go together.
    pub fn check(&self, case: &Case) -> Result<(), ExperimentError> {
        let waits = self.devices.as_ref().is_some_and(|devices| devices.arrivals != Arrivals::None);
        let given = [
            ("--admission", case.admission.is_some()),
            ("--arrivals", waits),
            ("--layout none", matches!(self.layout, Layout::None { .. })),
            ("--layout log", matches!(self.layout, Layout::Log(_))),
        ];
        let given = given.into_iter().filter(|(_, given)| *given).map(|(option, _)| option);
        Ok(check(Cache::Algorithm(&case.algorithm), given)?)
    }

    /// Refuses settings that a sample cannot simulate. A sample is enough for policies without other settings.
    pub(crate) fn check_sample(&self) -> Result<(), ExperimentError> {
        let waits = self.devices.as_ref().is_some_and(|devices| devices.arrivals != Arrivals::None);
        let given = [
            ("--layout log", matches!(self.layout, Layout::Log(_))),
            ("--arrivals", waits),
            ("--epoch", self.counting.epoch.is_some()),
        ];
        let given = given.into_iter().filter(|(_, given)| *given).map(|(option, _)| option);
        Ok(check(Cache::Sample, given)?)
    }

    /// Returns the whole cache of a case, if the case simulates it.
    fn whole(&self, case: &Case, trace: &Trace) -> Result<Option<Config>, ExperimentError> {
        let (Layout::Log(log), Method::Policy(policy)) = (&self.layout, case.algorithm.method()) else {
            return Ok(None);
        };
        let model = self.devices.as_ref().map_or_else(ArrayModel::paper, |devices| devices.model);
        let devices = cache::settings::Devices {
            flash_bytes: case.capacity_blocks as u64 * trace.block_size_bytes(),
            storage_bytes: self.storage_bytes(trace),
            array: model.array(),
        };
        let config = cache_settings::config(&log.settings, policy.clone(), &case.size, &devices)?;
        let admission = case.admission.clone().map(|rule| devices.admission(rule, &config.geometry));
        Ok(Some(Config { admission, ..config }))
    }

    /// Returns the size of the data stored on the array.
    pub(crate) fn storage_bytes(&self, trace: &Trace) -> u64 {
        let given = self.devices.as_ref().and_then(|devices| devices.storage_bytes);
        given.unwrap_or_else(|| storage_bytes(trace))
    }

    /// The array behind a case, if one is simulated.
    pub(crate) fn setting(&self, case: &Case, trace: &Trace, whole: Option<&Config>) -> Option<Setting> {
        let model = &self.devices.as_ref()?.model;
        let (block_bytes, blocks) = match (whole, &self.layout) {
            (Some(config), _) => (BLOCK_BYTES as u64, config.geometry.pages() as usize),
            (None, Layout::Buckets(..)) => {
                (BLOCK_BYTES as u64, case.capacity_blocks * trace.block_size_bytes() as usize / BLOCK_BYTES)
            }
            (None, _) => (trace.block_size_bytes(), case.capacity_blocks),
        };
        Some(setting(&model.array(), block_bytes, blocks, self.storage_bytes(trace)))
    }

    /// The flash of a case, if one is simulated.
    pub(crate) fn geometry(
        &self,
        case: &Case,
        block_size_bytes: u64,
        whole: Option<&Config>,
    ) -> Result<Option<Geometry>, EnduranceError> {
        let Case { algorithm, size, capacity_blocks, .. } = case;
        let settings = match (&self.layout, whole) {
            (Layout::Log(Log { ssd: Some(settings), .. }), Some(config)) => {
                let (pages, held) = (config.geometry.pages(), config.capacity_blocks());
                let (reads, writes) = (config.read_buffer_blocks, config.write_buffer_blocks);
                return settings.log_geometry(size, pages, held, reads, writes).map(Some);
            }
            (Layout::Flash(settings), _) => settings,
            _ => return Ok(None),
        };
        let with = |buffers| settings.geometry(size, *capacity_blocks, block_size_bytes, buffers);
        let placement = match algorithm.method() {
            Method::Offline(offline) => Some(offline.placement),
            Method::Policy(_) | Method::ContainerPolicy(_) | Method::Buckets(_) => None,
        };
        let geometry = match placement {
            Some(Placement::UnitCaching) => settings.unit_caching_geometry(*capacity_blocks, block_size_bytes),
            Some(Placement::Containers { buffers, .. }) => with(Buffers::Units(buffers))?,
            Some(Placement::InPlace { .. }) | None => with(Buffers::None)?,
        };
        let Method::ContainerPolicy(policy) = algorithm.method() else { return Ok(Some(geometry)) };
        let unit_pages = geometry.unit_pages;
        let (_, geometry) = flash_of(policy, geometry).map_err(|units| {
            let [flash, least] = [*capacity_blocks as u64, u64::from(units) * u64::from(unit_pages)]
                .map(|blocks| ByteSize::new(blocks * block_size_bytes));
            let (algorithm, size) = (algorithm.to_string(), size.clone());
            EnduranceError::OpenUnits { algorithm, size, flash, least, units }
        })?;
        Ok(Some(geometry))
    }

    /// RAM of a case, which may be a whole cache or be on the flash of `geometry`.
    pub(crate) fn ram_bytes(
        &self,
        case: &Case,
        geometry: Option<&Geometry>,
        whole: Option<&Config>,
        block_size_bytes: u64,
    ) -> u64 {
        match (&self.layout, whole, geometry) {
            (_, Some(config), _) => {
                let blocks = u64::from(config.read_buffer_blocks) + u64::from(config.write_buffer_blocks);
                blocks * BLOCK_BYTES as u64
            }
            (Layout::Buckets(settings, _), ..) => match case.algorithm.method() {
                Method::Buckets(system) => settings.ram_bytes(*system, case.capacity_blocks as u64 * block_size_bytes),
                _ => 0,
            },
            (_, None, Some(geometry)) => geometry.ram_used_blocks() * block_size_bytes,
            (Layout::None { ram }, None, None) => {
                ram_blocks(*ram, case.capacity_blocks, block_size_bytes) * block_size_bytes
            }
            _ => unreachable!("a cache on flash has a geometry"),
        }
    }

    /// True if the SSD receives TRIM for evicted or reset blocks.
    fn trims(&self) -> bool {
        match &self.layout {
            Layout::None { .. } | Layout::Buckets(..) => false,
            Layout::Flash(settings) => settings.online_trim,
            Layout::Log(Log { ssd, .. }) => ssd.as_ref().is_some_and(|settings| settings.online_trim),
        }
    }
}

/// A case that can be run.
struct Prepared {
    number: usize,
    case: Case,
    /// The whole cache, if the case simulates it.
    whole: Option<Config>,
    geometry: Option<Geometry>,
    setting: Option<Setting>,
    ram_bytes: u64,
    /// Blocks of the read cache in RAM; the whole cache has its own.
    read_cache_blocks: usize,
}

impl Prepared {
    fn new(number: usize, case: Case, experiment: &Experiment, trace: &Trace) -> Result<Prepared, ExperimentError> {
        let budget = case.admission.as_ref().filter(|rule| rule.writes_per_day().is_some());
        if let Some(rule) = budget
            && days(trace, 0).is_none()
        {
            let wrong = trace.rates_refused().unwrap_or_else(|| "no time passes in it".to_owned());
            return Err(ExperimentError::Budget { rule: rule.to_string(), wrong });
        }
        let whole = experiment.whole(&case, trace)?;
        let geometry = experiment.geometry(&case, trace.block_size_bytes(), whole.as_ref())?;
        let setting = experiment.setting(&case, trace, whole.as_ref());
        assert!(setting.is_some() || case.admission.is_none() || whole.is_some(), "a rule has to know the devices");
        let block_bytes = trace.block_size_bytes();
        let ram_bytes = experiment.ram_bytes(&case, geometry.as_ref(), whole.as_ref(), block_bytes);
        let read_cache_blocks = match (&geometry, &whole) {
            (_, Some(_)) => 0,
            (Some(geometry), None) => geometry.read_cache_blocks,
            (None, None) => usize::try_from(ram_bytes / block_bytes).unwrap_or(usize::MAX),
        };
        Ok(Prepared { number, case, whole, geometry, setting, ram_bytes, read_cache_blocks })
    }
}

/// Checks that a case over `trace` can run.
///
/// # Errors
/// The error that [`run`] would return.
pub fn fits(trace: &Trace, case: &Case, experiment: &Experiment) -> Result<(), ExperimentError> {
    experiment.check(case)?;
    Prepared::new(0, case.clone(), experiment, trace).map(drop)
}

/// Runs all cases on all cores. The runs are in the order of the cases. Work that cases share is done once. `progress`
/// counts block accesses.
///
/// # Errors
/// - Settings that do not go together: see [`Experiment::check`].
/// - Sizes that give no valid flash, and budgets that allow no insertions.
/// - With simulated waits: fractions of devices, and for some arrivals a trace without times.
///
/// # Panics
/// If a case has a rule and the experiment no devices.
pub fn run(
    traces: &[Trace],
    cases: Vec<Case>,
    experiment: &Experiment,
    progress: &dyn Progress,
) -> Result<Vec<Run>, ExperimentError> {
    if experiment.is_policy_alone() {
        return Ok(simulate(traces, cases, experiment.counting, progress)?);
    }
    if traces.iter().any(|trace| trace.sample().is_some()) {
        return sampled::run(traces, &cases, experiment, progress);
    }
    run_all(traces, cases, experiment, progress)
}

/// Runs all cases over whole traces, or over samples as if they were whole.
pub(crate) fn run_all(
    traces: &[Trace],
    cases: Vec<Case>,
    experiment: &Experiment,
    progress: &dyn Progress,
) -> Result<Vec<Run>, ExperimentError> {
    if let Some(Devices { model, arrivals, .. }) = &experiment.devices
        && *arrivals != Arrivals::None
    {
        model.check()?;
        traces.iter().try_for_each(|trace| arrivals.check(trace))?;
    }
    let prepare = |(number, case): (usize, Case)| {
        experiment.check(&case)?;
        let trace = &traces[case.trace];
        Prepared::new(number, case, experiment, trace).map_err(|error| error.of(trace, traces.len() > 1))
    };
    let prepared: Vec<Prepared> = cases.into_iter().enumerate().map(prepare).collect::<Result<_, ExperimentError>>()?;
    let mut by_trace: BTreeMap<usize, Vec<&Prepared>> = BTreeMap::new();
    for prepared in &prepared {
        by_trace.entry(prepared.case.trace).or_default().push(prepared);
    }
    let of_trace = |(trace, cases): (usize, Vec<&Prepared>)| {
        let (trace, several) = (&traces[trace], traces.len() > 1);
        let warmup = experiment.counting.warmup.accesses(trace.len());
        TraceRuns { trace, warmup, days: days(trace, warmup), experiment, several, progress }.run(&cases)
    };
    let by_trace: Vec<_> = by_trace.into_iter().collect();
    let found: Vec<Vec<Done>> = by_trace.into_par_iter().with_max_len(1).map(of_trace).collect::<Result<_, _>>()?;
    let found: BTreeMap<usize, Run> = found.into_iter().flatten().collect();
    Ok(found.into_values().collect())
}
