//! What a flash cache wears, and how far it is from the best: algorithms that know the future and such that do not, on modelled devices.
//!
//! Source: Cheng, Douglis, Shilane, Trachtman, Wallace, Desnoyers, Li: Erasing Belady's limitations: in search of flash cache
//! offline optimality. USENIX ATC 2016.
//!
//! Accesses are counted per block, and reads alone count for hits. [`crate::offline`] decides for the algorithms that know the future;
//! here their decisions are performed: in place behind the translation layer of a conventional SSD, in containers on host-managed flash,
//! or with an erase unit for each block. Replacement policies run in place too, container policies on host-managed flash.
//! Every algorithm of a size has the same flash, spare erase units included, and a DRAM cache of the same size.

mod algorithm;
mod budget;
mod containers;
mod counts;
mod error;
mod in_place;
mod online;
mod online_containers;
mod online_in_place;
mod reference;
mod settings;
mod tally;
mod unit_caching;
mod write_buffer;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use flashwise_core::index::Dense;
use flashwise_core::quantity::ByteSize;
use rayon::prelude::*;

pub use algorithm::{Algorithm, Budget, CopyForwardReduction, Limit, Method, Offline, Order, Placement, algorithms};
pub use counts::{Counts, FlashWrites};
pub use error::EnduranceError;
pub use reference::{reference, with_references};
pub use settings::{Geometry, Settings, WRITE_BUFFERS};

use crate::offline::{FlashStream, Plan, Threshold, next_reads};
use crate::simulate::Warmup;
use flashwise_device::flash::Ftl;
use flashwise_trace::Trace;
use flashwise_trace::progress::Progress;

/// An algorithm and a cache size to run over one trace.
#[derive(Clone, Debug)]
pub struct Job {
    /// Position of the trace among the traces.
    pub trace: usize,
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The size as it was asked for.
    pub size: String,
    /// The size.
    pub capacity_blocks: usize,
}

/// What came of a job.
#[derive(Clone, Debug)]
pub struct Run {
    /// The job.
    pub job: Job,
    /// The cache that it ran on.
    pub geometry: Geometry,
    /// What was counted after the warm-up.
    pub counts: Counts,
}

/// Runs all jobs, on all cores; the runs come in the order of the jobs, whatever the number of threads. What jobs have in common is done
/// once. `progress` is told of block accesses, those of a whole trace when a job is done.
pub fn simulate_endurance(
    traces: &[Trace],
    jobs: Vec<Job>,
    settings: &Settings,
    warmup: Warmup,
    progress: &dyn Progress,
) -> Result<Vec<Run>, EnduranceError> {
    let prepared: Vec<Prepared> = jobs
        .into_iter()
        .enumerate()
        .map(|(number, job)| Prepared::new(number, job, traces, settings))
        .collect::<Result<_, _>>()?;
    let mut by_trace: BTreeMap<usize, Vec<&Prepared>> = BTreeMap::new();
    for prepared in &prepared {
        by_trace.entry(prepared.job.trace).or_default().push(prepared);
    }
    let of_trace = |(trace, jobs): (usize, Vec<&Prepared>)| {
        let trace = &traces[trace];
        let warmup = warmup.accesses(trace.len());
        TraceRuns { trace, warmup, days: days(trace, warmup), settings, progress }.run(&jobs)
    };
    let by_trace: Vec<(usize, Vec<&Prepared>)> = by_trace.into_iter().collect();
    let found: Vec<Vec<Done>> = by_trace.into_par_iter().with_max_len(1).map(of_trace).collect::<Result<_, _>>()?;
    let mut found: BTreeMap<usize, Counts> = found.into_iter().flatten().collect();
    let run = |Prepared { number, job, geometry }| {
        let counts = found.remove(&number).expect("every job was run");
        Run { job, geometry, counts }
    };
    Ok(prepared.into_iter().map(run).collect())
}

/// A job's number and what came of it.
type Done = (usize, Counts);

/// A job that can be run.
struct Prepared {
    number: usize,
    job: Job,
    geometry: Geometry,
}

impl Prepared {
    fn new(number: usize, job: Job, traces: &[Trace], settings: &Settings) -> Result<Prepared, EnduranceError> {
        let trace = &traces[job.trace];
        let block_size_bytes = trace.block_size_bytes();
        let Job { algorithm, size, capacity_blocks, .. } = &job;
        let geometry = |buffers| settings.geometry(size, *capacity_blocks, block_size_bytes, buffers);
        let placement = match algorithm.method() {
            Method::Offline(offline) => Some(offline.placement),
            Method::Policy(_) | Method::ContainerPolicy(_) => None,
        };
        let geometry = match placement {
            Some(Placement::UnitCaching) => settings.unit_caching_geometry(size, *capacity_blocks, block_size_bytes),
            Some(Placement::Containers { buffers, .. }) => geometry(buffers),
            Some(Placement::InPlace { .. }) | None => geometry(None),
        }?;
        if let Method::ContainerPolicy(policy) = algorithm.method() {
            online_containers::flash_of(policy, &geometry).map_err(|units| {
                let [flash, least] = [*capacity_blocks as u64, u64::from(units) * u64::from(geometry.unit_pages)]
                    .map(|blocks| ByteSize::new(blocks * block_size_bytes));
                let (algorithm, size) = (algorithm.to_string(), size.clone());
                EnduranceError::OpenUnits { algorithm, size, flash, least, units }
            })?;
        }
        Ok(Prepared { number, job, geometry })
    }
}

/// Performs the decisions of `plan` over `stream` on a device of its own. What is counted has no days, since a stream has no times.
pub fn perform(stream: &FlashStream, plan: &Plan, geometry: &Geometry, placement: Placement) -> Counts {
    match placement {
        Placement::InPlace { trim } => in_place::in_place(stream, plan, geometry, trim),
        Placement::Containers { reduction, order, .. } => {
            containers::containers(stream, plan, geometry, reduction, order)
        }
        Placement::UnitCaching => unit_caching::unit_caching(stream, plan, geometry.capacity_blocks),
    }
}

/// The conventional SSD of a cache.
fn device_of(geometry: &Geometry) -> Ftl {
    Ftl::new(geometry.ftl.clone()).expect("the geometry is that of a device")
}

/// How long the accesses after the first `warmup` take.
fn days(trace: &Trace, warmup: u64) -> Option<f64> {
    const DAY_US: f64 = 86_400e6;
    let mut before = 0;
    let batches = trace.batches().iter();
    let first_us = *batches.clone().find_map(|columns| {
        let at = usize::try_from(warmup - before).unwrap_or(usize::MAX);
        before += (columns.time_us.len() as u64).min(warmup - before);
        columns.time_us.get(at)
    })?;
    // Traces are not always sorted.
    let last_us = batches.fold(first_us, |last_us, columns| columns.time_us.iter().copied().fold(last_us, i64::max));
    let days = last_us.saturating_sub(first_us) as f64 / DAY_US;
    (days > 0.0).then_some(days)
}

/// The jobs over one trace.
struct TraceRuns<'a> {
    trace: &'a Trace,
    /// Accesses not counted.
    warmup: u64,
    days: Option<f64>,
    settings: &'a Settings,
    progress: &'a dyn Progress,
}

impl TraceRuns<'_> {
    fn run(&self, jobs: &[&Prepared]) -> Result<Vec<Done>, EnduranceError> {
        let (offline, online): (Vec<&Prepared>, Vec<&Prepared>) =
            jobs.iter().partition(|prepared| prepared.job.algorithm.offline());
        let online = || online.par_iter().with_max_len(1).map(|prepared| self.online(prepared)).collect::<Vec<Done>>();
        let (online, offline) = rayon::join(online, || self.offline(&offline));
        Ok([online, offline?].concat())
    }

    fn online(&self, prepared: &Prepared) -> Done {
        let Prepared { job, geometry, .. } = prepared;
        let (trace, trim) = (self.trace, self.settings.online_trim);
        let run = online::Online { trace, geometry, warmup: self.warmup, trim };
        let index = Dense::new(trace.unique_blocks());
        let counts = match job.algorithm.method() {
            Method::Policy(policy) => policy.build(index, geometry.capacity_blocks, run),
            Method::ContainerPolicy(policy) => {
                let flash = online_containers::flash_of(policy, geometry).expect("the job was checked");
                policy.build(index, flash, run)
            }
            Method::Offline(_) => unreachable!("it does not know the future"),
        };
        self.done(prepared, counts)
    }

    fn done(&self, prepared: &Prepared, counts: Counts) -> Done {
        self.progress.advance(self.trace.len() as u64);
        (prepared.number, Counts { days: self.days, ..counts })
    }

    fn offline(&self, jobs: &[&Prepared]) -> Result<Vec<Done>, EnduranceError> {
        if jobs.is_empty() {
            return Ok(vec![]);
        }
        let next_reads = next_reads(self.trace)?;
        let by_ram = grouped(jobs, |prepared| prepared.geometry.read_cache_blocks);
        let done: Vec<Vec<Done>> = by_ram
            .into_par_iter()
            .with_max_len(1)
            .map(|(ram_blocks, jobs)| {
                let stream = FlashStream::behind_min(self.trace, &next_reads, ram_blocks, self.warmup);
                let by_size = grouped(&jobs, |prepared| prepared.geometry.capacity_blocks);
                let of_size = |(_, jobs): (usize, Vec<&Prepared>)| SizeRuns::new(self, &stream, &jobs).run(&jobs);
                let done = by_size.into_par_iter().with_max_len(1).map(of_size).collect::<Result<Vec<_>, _>>()?;
                Ok(done.concat())
            })
            .collect::<Result<_, EnduranceError>>()?;
        Ok(done.concat())
    }
}

fn grouped<'a>(jobs: &[&'a Prepared], by: impl Fn(&Prepared) -> usize) -> Vec<(usize, Vec<&'a Prepared>)> {
    let mut groups: BTreeMap<usize, Vec<&Prepared>> = BTreeMap::new();
    for &prepared in jobs {
        groups.entry(by(prepared)).or_default().push(prepared);
    }
    groups.into_iter().collect()
}

/// The jobs over one trace with caches and DRAM of one size.
struct SizeRuns<'a> {
    of_trace: &'a TraceRuns<'a>,
    stream: &'a FlashStream,
    capacity_blocks: usize,
    m: Plan,
    m_plus: OnceLock<Plan>,
    /// What M+ erases in place, and in unit caching.
    m_plus_erasures: [OnceLock<u64>; 2],
}

impl<'a> SizeRuns<'a> {
    fn new(of_trace: &'a TraceRuns<'a>, stream: &'a FlashStream, jobs: &[&Prepared]) -> SizeRuns<'a> {
        let capacity_blocks = jobs[0].geometry.capacity_blocks;
        SizeRuns {
            of_trace,
            stream,
            capacity_blocks,
            m: Plan::min(stream, capacity_blocks),
            m_plus: OnceLock::new(),
            m_plus_erasures: [OnceLock::new(), OnceLock::new()],
        }
    }

    fn run(&self, jobs: &[&Prepared]) -> Result<Vec<Done>, EnduranceError> {
        let run = |prepared: &&Prepared| {
            let Method::Offline(offline) = prepared.job.algorithm.method() else { unreachable!("it knows the future") };
            let counts = match offline.limit {
                Limit::Hits(0) => self.perform(&self.m, prepared, offline.placement),
                Limit::Hits(1) => self.perform(self.m_plus(), prepared, offline.placement),
                Limit::Hits(hits) => {
                    let plan = self.rerun(Threshold::least_hits(hits));
                    self.perform(&plan, prepared, offline.placement)
                }
                Limit::Budget(budget) => self.within(budget, prepared, offline.placement)?,
            };
            Ok(self.of_trace.done(prepared, counts))
        };
        jobs.par_iter().with_max_len(1).map(run).collect()
    }

    fn m_plus(&self) -> &Plan {
        self.m_plus.get_or_init(|| self.m.rerun(self.stream, self.capacity_blocks, Threshold::least_hits(1)))
    }

    fn rerun(&self, threshold: Threshold) -> Plan {
        self.m_plus().rerun(self.stream, self.capacity_blocks, threshold)
    }

    fn perform(&self, plan: &Plan, prepared: &Prepared, placement: Placement) -> Counts {
        perform(self.stream, plan, &prepared.geometry, placement)
    }

    fn within(&self, budget: Budget, prepared: &Prepared, placement: Placement) -> Result<Counts, EnduranceError> {
        let budget = self.erasures(budget, prepared, placement)?;
        budget::Within {
            run: &|threshold| Ok(self.perform(&self.rerun(threshold), prepared, placement)),
            leave_out: &|count| Threshold::of_count(self.m_plus(), count),
            insertions: self.m_plus().insertions().len() as u64,
        }
        .budget(budget)
    }

    /// How many erasures a budget allows.
    fn erasures(&self, budget: Budget, prepared: &Prepared, placement: Placement) -> Result<f64, EnduranceError> {
        let Prepared { job, geometry, .. } = prepared;
        let trace = self.of_trace.trace.name().to_owned();
        let algorithm = job.algorithm.to_string();
        let (erasures, one) = match budget {
            Budget::Epbpd(epbpd) => {
                let Some(days) = self.of_trace.days else {
                    return Err(EnduranceError::NoTimes { algorithm, trace });
                };
                let units_days = f64::from(geometry.units) * days;
                (epbpd * units_days, format!("epbpd={:.3e}", 1.0 / units_days))
            }
            Budget::Share(share) => {
                let all = self.m_plus_erasures(prepared, placement);
                if all == 0 {
                    // There is nothing to save: M+ erases nothing, and neither does C.
                    return Ok(0.0);
                }
                (share * all as f64, format!("share={:.3}%", 100.0 / all as f64))
            }
        };
        if erasures < 1.0 {
            let size = job.size.clone();
            return Err(EnduranceError::BudgetBelowOneErasure { algorithm, size, trace, erasures, least: one });
        }
        Ok(erasures)
    }

    fn m_plus_erasures(&self, prepared: &Prepared, placement: Placement) -> u64 {
        let (at, placement) = match placement {
            Placement::UnitCaching => (1, placement),
            _ => (0, Placement::InPlace { trim: true }),
        };
        *self.m_plus_erasures[at].get_or_init(|| self.perform(self.m_plus(), prepared, placement).erasures())
    }
}
