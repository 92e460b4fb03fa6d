//! One run of the simulator for every cache but the log that a server keeps: trace, read cache in RAM, admission rule, policy or algorithm,
//! layout, device, waiting. Each stage is optional; what does not go together is refused with its reason.

mod reference;

use std::collections::BTreeMap;

use flashwise_core::admission::{Setting, Spec as Rule};
use flashwise_core::index::Dense;
use flashwise_core::quantity::ByteSize;
use flashwise_device::{ArrayError, ArrayModel};
use flashwise_trace::Trace;
use flashwise_trace::progress::Progress;
use rayon::prelude::*;

pub use reference::{reference, with_references};

use crate::array::{Arrivals, Queues, setting, storage_bytes};
use crate::cache_settings::Ram;
use crate::endurance::{
    self, Algorithm, EnduranceError, Geometry, Method, OfflineRun, Placement, days, flash_of, ram_blocks, run_offline,
};
use crate::online::{Online, Ran};
use crate::simulate::Counting;
use crate::wlfc::System;

/// A cache to run over one trace.
#[derive(Clone, Debug)]
pub struct Job {
    /// Position of the trace among the traces.
    pub trace: usize,
    /// The policy or algorithm.
    pub algorithm: Algorithm,
    /// The rule in front of it, if there is one.
    pub admission: Option<Rule>,
    /// The size as it was asked for.
    pub size: String,
    /// The size.
    pub capacity_blocks: usize,
}

/// Where cached blocks lie.
#[derive(Clone, Debug, PartialEq)]
pub enum Layout {
    /// Nowhere: what policies decide, behind a read cache in RAM.
    None {
        /// The RAM.
        ram: Ram,
    },
    /// On modelled flash: replacement policies in place, algorithms with a layout of their own in that.
    Flash(endurance::Settings),
}

/// Devices of an array around the cache: what latency and lifetime are reckoned with, and what requests may wait for.
#[derive(Clone, Debug)]
pub struct Devices {
    /// The devices. How large they are, cache and trace say.
    pub model: ArrayModel,
    /// What the storage holds; twice the blocks of the trace if not given.
    pub storage_bytes: Option<u64>,
    /// When requests come.
    pub arrivals: Arrivals,
}

/// What all jobs of a simulation share.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Where cached blocks lie.
    pub layout: Layout,
    /// The array around the cache, if one is simulated. A job with a rule has one: rules have to know it.
    pub devices: Option<Devices>,
    /// How to count.
    pub counting: Counting,
}

/// The flash of a run.
#[derive(Clone, Debug)]
pub struct Flash {
    /// What it is made of.
    pub geometry: Geometry,
    /// What was counted after the warm-up.
    pub counts: endurance::Counts,
}

/// What came of a job.
#[derive(Clone, Debug)]
pub struct Run {
    /// The job.
    pub job: Job,
    /// The array, as large as cache and trace make it, if one was simulated.
    pub setting: Option<Setting>,
    /// The flash, if one was simulated.
    pub flash: Option<Flash>,
    /// Blocks of the read cache in RAM.
    pub ram_blocks: u64,
    /// What was counted; none of an algorithm that knows the future, of which the flash says all.
    pub ran: Option<Ran>,
}

/// Why something cannot be simulated.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum ExperimentError {
    #[error(transparent)]
    Endurance(#[from] EnduranceError),
    #[error(transparent)]
    Array(#[from] ArrayError),
    #[error("{algorithm} and {with}: {reason}")]
    Meaningless { algorithm: String, with: String, reason: &'static str },
}

/// What does not go together, and why.
const MEANINGLESS: [(&str, Combined, &str); 6] = [
    (
        "an admission rule",
        |job, _| job.admission.is_some() && job.algorithm.offline(),
        "an algorithm that knows the future decides itself what to take in; a rule can only make it worse",
    ),
    (
        "an admission rule",
        |job, _| job.admission.is_some() && matches!(job.algorithm.method(), Method::ContainerPolicy(_)),
        "a container policy decides itself what to take in",
    ),
    (
        "arrivals",
        |job, experiment| experiment.waits() && job.algorithm.offline(),
        "what an algorithm that knows the future decides is a bound for hits and wear, not for waiting",
    ),
    (
        "--epoch",
        |job, experiment| experiment.counting.epoch.is_some() && job.algorithm.offline(),
        "an algorithm that knows the future is the best over the whole trace, and over no part of it",
    ),
    (
        "arrivals",
        |job, experiment| experiment.waits() && matches!(job.algorithm.method(), Method::ContainerPolicy(_)),
        "a container policy evicts erase units, whose blocks the model of waiting does not know",
    ),
    (
        "no layout",
        |job, experiment| {
            matches!(experiment.layout, Layout::None { .. }) && !matches!(job.algorithm.method(), Method::Policy(_))
        },
        "its blocks lie on flash",
    ),
];

/// Options that mean nothing to a cache that evicts whole buckets, and why.
const MEANINGLESS_TO_BUCKETS: [(&[&str], &[System], &str); 9] = [
    (&["--policy"], &System::ALL, "it decides itself what it keeps"),
    (&["--admission"], &System::ALL, "it decides itself what it takes in"),
    (&["--arrivals"], &System::ALL, "its requests come one after the other, each when the one before it is answered"),
    (&["--epoch", "--html"], &System::ALL, "its figures are those of the whole run"),
    (&["--ram"], &System::ALL, "only wlfc_c has RAM, which is 64MiB"),
    (&["--bucket", "--device", "--storage-device"], &[], ""),
    (&["--write-queue", "--halving", "--refresh"], &[System::BLike], "it has neither a write queue nor read copies"),
    (&["--journal-logs"], &[System::Wlfc, System::WlfcC], "it has no journal"),
    (&["--over-provision"], &[System::Wlfc, System::WlfcC], "it has no spare flash: it needs none"),
];

/// Refuses what does not go with a cache that evicts whole buckets, of the options that were given.
///
/// # Errors
/// The first option that means nothing to it, with the reason.
pub fn check_buckets(system: System, given: &[String]) -> Result<(), ExperimentError> {
    for option in given {
        let known = MEANINGLESS_TO_BUCKETS.iter().find(|(options, ..)| options.contains(&option.as_str()));
        let reason = match known {
            Some((_, systems, reason)) if systems.contains(&system) => *reason,
            Some(_) => continue,
            None => "the option is of another layout",
        };
        let (algorithm, with) = (format!("--layout {}", system.name()), option.clone());
        return Err(ExperimentError::Meaningless { algorithm, with, reason });
    }
    Ok(())
}

/// Whether a job has what does not go with an experiment.
type Combined = fn(&Job, &Experiment) -> bool;

impl Experiment {
    fn waits(&self) -> bool {
        self.devices.as_ref().is_some_and(|devices| devices.arrivals != Arrivals::None)
    }

    /// Refuses a job of what does not go together.
    pub fn check(&self, job: &Job) -> Result<(), ExperimentError> {
        match MEANINGLESS.iter().find(|(_, combined, _)| combined(job, self)) {
            None => Ok(()),
            Some(&(with, _, reason)) => Err(ExperimentError::Meaningless {
                algorithm: job.algorithm.to_string(),
                with: with.to_owned(),
                reason,
            }),
        }
    }

    fn geometry(&self, job: &Job, block_size_bytes: u64) -> Result<Option<Geometry>, EnduranceError> {
        let Layout::Flash(settings) = &self.layout else { return Ok(None) };
        let Job { algorithm, size, capacity_blocks, .. } = job;
        let with = |buffers| settings.geometry(size, *capacity_blocks, block_size_bytes, buffers);
        let placement = match algorithm.method() {
            Method::Offline(offline) => Some(offline.placement),
            Method::Policy(_) | Method::ContainerPolicy(_) => None,
        };
        let geometry = match placement {
            Some(Placement::UnitCaching) => settings.unit_caching_geometry(size, *capacity_blocks, block_size_bytes),
            Some(Placement::Containers { buffers, .. }) => with(buffers),
            Some(Placement::InPlace { .. }) | None => with(None),
        }?;
        if let Method::ContainerPolicy(policy) = algorithm.method() {
            flash_of(policy, &geometry).map_err(|units| {
                let [flash, least] = [*capacity_blocks as u64, u64::from(units) * u64::from(geometry.unit_pages)]
                    .map(|blocks| ByteSize::new(blocks * block_size_bytes));
                let (algorithm, size) = (algorithm.to_string(), size.clone());
                EnduranceError::OpenUnits { algorithm, size, flash, least, units }
            })?;
        }
        Ok(Some(geometry))
    }

    /// Blocks of RAM, and of the read cache there.
    fn ram_blocks(&self, geometry: Option<&Geometry>, capacity_blocks: usize, block_size_bytes: u64) -> (u64, usize) {
        match (&self.layout, geometry) {
            (Layout::None { ram }, _) => {
                let blocks = ram_blocks(*ram, capacity_blocks, block_size_bytes);
                (blocks, usize::try_from(blocks).unwrap_or(usize::MAX))
            }
            (Layout::Flash(_), geometry) => {
                let geometry = geometry.expect("what is on flash has a geometry");
                (geometry.ram_blocks, geometry.read_cache_blocks)
            }
        }
    }
}

/// A job that can be run.
struct Prepared {
    number: usize,
    job: Job,
    geometry: Option<Geometry>,
    setting: Option<Setting>,
}

/// Runs all jobs, on all cores; the runs come in the order of the jobs, whatever the number of threads. What jobs have in common is done
/// once. `progress` is told of block accesses, those of a whole trace when a job is done.
///
/// # Errors
/// What does not go together (algorithms that know the future are run beside arrivals and epochs, and have none: where they were asked for,
/// [`Experiment::check`] refuses them), sizes that make no flash, budgets that allow nothing; where requests wait, devices have to be a whole
/// number, and traces may have to have times.
///
/// # Panics
/// If a job has a rule and the experiment no devices.
pub fn run(
    traces: &[Trace],
    jobs: Vec<Job>,
    experiment: &Experiment,
    progress: &dyn Progress,
) -> Result<Vec<Run>, ExperimentError> {
    if let Some(Devices { model, arrivals, .. }) = &experiment.devices
        && *arrivals != Arrivals::None
    {
        model.check()?;
        traces.iter().try_for_each(|trace| arrivals.check(trace))?;
    }
    let prepare = |(number, job): (usize, Job)| {
        // What others are compared with stands beside arrivals and epochs, and has none itself.
        if !(job.algorithm.offline() && job.admission.is_none() && matches!(experiment.layout, Layout::Flash(_))) {
            experiment.check(&job)?;
        }
        let trace = &traces[job.trace];
        let geometry = experiment.geometry(&job, trace.block_size_bytes())?;
        let array = experiment.devices.as_ref().map(|Devices { model, storage_bytes: given, .. }| {
            let storage_bytes = given.unwrap_or_else(|| storage_bytes(trace));
            setting(&model.array(), trace.block_size_bytes(), job.capacity_blocks, storage_bytes)
        });
        assert!(array.is_some() || job.admission.is_none(), "a rule has to know the devices");
        Ok(Prepared { number, job, geometry, setting: array })
    };
    let prepared: Vec<Prepared> = jobs.into_iter().enumerate().map(prepare).collect::<Result<_, ExperimentError>>()?;
    let mut by_trace: BTreeMap<usize, Vec<&Prepared>> = BTreeMap::new();
    for prepared in &prepared {
        by_trace.entry(prepared.job.trace).or_default().push(prepared);
    }
    let of_trace =
        |(trace, jobs): (usize, Vec<&Prepared>)| TraceRuns::new(&traces[trace], experiment, progress).run(&jobs);
    let by_trace: Vec<_> = by_trace.into_iter().collect();
    let found: Vec<Vec<Done>> = by_trace.into_par_iter().with_max_len(1).map(of_trace).collect::<Result<_, _>>()?;
    let mut found: BTreeMap<usize, (Option<Ran>, Option<endurance::Counts>)> =
        found.into_iter().flatten().map(|(number, ran, counts)| (number, (ran, counts))).collect();
    let run = |Prepared { number, job, geometry, setting }| {
        let (ran, counts) = found.remove(&number).expect("every job was run");
        let block_size_bytes = traces[job.trace].block_size_bytes();
        let (ram_blocks, _) = experiment.ram_blocks(geometry.as_ref(), job.capacity_blocks, block_size_bytes);
        let flash = geometry.zip(counts).map(|(geometry, counts)| Flash { geometry, counts });
        Run { job, setting, flash, ram_blocks, ran }
    };
    Ok(prepared.into_iter().map(run).collect())
}

/// A job's number and what came of it.
type Done = (usize, Option<Ran>, Option<endurance::Counts>);

/// The jobs over one trace.
struct TraceRuns<'a> {
    trace: &'a Trace,
    /// Accesses not counted.
    warmup: u64,
    days: Option<f64>,
    experiment: &'a Experiment,
    progress: &'a dyn Progress,
}

impl<'a> TraceRuns<'a> {
    fn new(trace: &'a Trace, experiment: &'a Experiment, progress: &'a dyn Progress) -> TraceRuns<'a> {
        let warmup = experiment.counting.warmup.accesses(trace.len());
        TraceRuns { trace, warmup, days: days(trace, warmup), experiment, progress }
    }

    fn run(&self, jobs: &[&Prepared]) -> Result<Vec<Done>, EnduranceError> {
        let (offline, online): (Vec<&Prepared>, Vec<&Prepared>) =
            jobs.iter().partition(|prepared| prepared.job.algorithm.offline());
        let online = || online.par_iter().with_max_len(1).map(|prepared| self.online(prepared)).collect::<Vec<Done>>();
        let offline: Vec<OfflineRun> = offline.into_iter().map(offline_run).collect();
        let ended = || self.progress.advance(self.trace.len() as u64);
        let offline = || run_offline(self.trace, self.warmup, self.days, &offline, &ended);
        let (online, offline) = rayon::join(online, offline);
        Ok(online
            .into_iter()
            .chain(offline?.into_iter().map(|(number, counts)| (number, None, Some(counts))))
            .collect())
    }

    fn online(&self, Prepared { number, job, geometry, setting }: &Prepared) -> Done {
        let (trace, counting) = (self.trace, self.experiment.counting);
        let (_, ram_blocks) =
            self.experiment.ram_blocks(geometry.as_ref(), job.capacity_blocks, trace.block_size_bytes());
        let devices = self.experiment.devices.as_ref().filter(|devices| devices.arrivals != Arrivals::None);
        let run = Online {
            trace,
            counting,
            ram_blocks,
            flash: geometry.as_ref(),
            trim: matches!(&self.experiment.layout, Layout::Flash(settings) if settings.online_trim),
            queues: devices.map(|devices| Queues::new(&devices.model, trace.block_size_bytes(), devices.arrivals)),
        };
        let ran = match job.algorithm.method() {
            Method::Policy(policy) => {
                run.policy(policy, job.admission.as_ref().zip(setting.as_ref()), job.capacity_blocks)
            }
            Method::ContainerPolicy(policy) => {
                let flash = flash_of(policy, geometry.as_ref().expect("containers lie on flash"));
                policy.build(Dense::new(trace.unique_blocks()), flash.expect("the job was checked"), run)
            }
            Method::Offline(_) => unreachable!("it does not know the future"),
        };
        self.progress.advance(trace.len() as u64);
        let counts = geometry.as_ref().zip(ran.wear).map(|(geometry, wear)| {
            endurance::Counts::of_online(&ran.counted.counts, geometry.unit_pages, wear, self.days)
        });
        (*number, Some(ran), counts)
    }
}

fn offline_run(Prepared { number, job, geometry, .. }: &Prepared) -> OfflineRun {
    let Method::Offline(method) = job.algorithm.method() else { unreachable!("it knows the future") };
    let geometry = geometry.clone().expect("what knows the future has a layout");
    let (number, algorithm, size) = (*number, job.algorithm.to_string(), job.size.clone());
    OfflineRun { number, method: *method, algorithm, size, geometry }
}
