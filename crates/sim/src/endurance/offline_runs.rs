//! Runs of the offline algorithms. Work shared by runs of one trace, RAM and size is done once.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use flashwise_trace::Trace;
use flashwise_trace::progress::Progress;
use rayon::prelude::*;

use super::algorithm::{Budget, Limit, Offline, Placement};
use super::settings::Geometry;
use super::{EnduranceError, budget, perform};
use crate::offline::{FlashStream, Plan, Threshold, next_reads};
use crate::stretch::Ran;

/// An offline algorithm over a trace.
#[derive(Clone, Debug)]
pub(crate) struct OfflineRun {
    /// Its index among the cases.
    pub number: usize,
    /// The algorithm.
    pub method: Offline,
    /// The user's name for the algorithm.
    pub algorithm: String,
    /// The user's text for the size.
    pub size: String,
    /// The parts of the cache.
    pub geometry: Geometry,
}

/// Runs a finished plan.
type Performed<'a> = &'a (dyn Fn(&OfflineRun, &FlashStream, &Plan) -> Ran + Sync);
/// A run's index and its result.
type Done = (usize, Ran);

/// Makes a plan for each of `runs` over `trace` and runs it. The first `warmup` accesses are not counted; the others
/// take this many `days`. `progress` may end it.
pub(crate) fn run_offline(
    trace: &Trace,
    warmup: u64,
    days: Option<f64>,
    runs: &[OfflineRun],
    performed: Performed,
    progress: &dyn Progress,
) -> Result<Vec<Done>, EnduranceError> {
    if runs.is_empty() {
        return Ok(vec![]);
    }
    let next_reads = next_reads(trace, progress)?;
    let runs: Vec<&OfflineRun> = runs.iter().collect();
    let by_ram = grouped(&runs, |run| run.geometry.read_cache_blocks);
    let done: Vec<Vec<Done>> = by_ram
        .into_par_iter()
        .with_max_len(1)
        .map(|(ram_blocks, runs)| {
            let stream = FlashStream::behind_min(trace, &next_reads, ram_blocks, warmup, progress);
            let by_size = grouped(&runs, |run| run.geometry.capacity_blocks);
            let with = SharedRuns { trace, next_reads: &next_reads, warmup, days, performed, progress };
            let of_size = |(_, runs): (usize, Vec<&OfflineRun>)| SizeRuns::new(with, &stream, &runs).run(&runs);
            let done = by_size.into_par_iter().with_max_len(1).map(of_size).collect::<Result<Vec<_>, _>>()?;
            Ok(done.concat())
        })
        .collect::<Result<_, EnduranceError>>()?;
    Ok(done.concat())
}

fn grouped<'a>(runs: &[&'a OfflineRun], by: impl Fn(&OfflineRun) -> usize) -> Vec<(usize, Vec<&'a OfflineRun>)> {
    let mut groups: BTreeMap<usize, Vec<&OfflineRun>> = BTreeMap::new();
    for &run in runs {
        groups.entry(by(run)).or_default().push(run);
    }
    groups.into_iter().collect()
}

/// Data that all cases over a trace share.
#[derive(Clone, Copy)]
struct SharedRuns<'a> {
    trace: &'a Trace,
    next_reads: &'a [u32],
    warmup: u64,
    days: Option<f64>,
    performed: Performed<'a>,
    progress: &'a dyn Progress,
}

/// The cases over a trace with the same sizes of cache and read cache.
struct SizeRuns<'a> {
    shared: SharedRuns<'a>,
    stream: &'a FlashStream,
    capacity_blocks: usize,
    m: Plan,
    m_plus: OnceLock<Plan>,
    /// Erasures of M+ in place.
    m_plus_erasures: OnceLock<u64>,
}

impl<'a> SizeRuns<'a> {
    fn new(shared: SharedRuns<'a>, stream: &'a FlashStream, runs: &[&OfflineRun]) -> SizeRuns<'a> {
        let capacity_blocks = runs[0].geometry.capacity_blocks;
        SizeRuns {
            shared,
            stream,
            capacity_blocks,
            m: Plan::min(stream, capacity_blocks, shared.progress),
            m_plus: OnceLock::new(),
            m_plus_erasures: OnceLock::new(),
        }
    }

    fn run(&self, runs: &[&OfflineRun]) -> Result<Vec<Done>, EnduranceError> {
        let run = |prepared: &&OfflineRun| {
            let ran = |plan: &Plan| (self.shared.performed)(prepared, self.stream, plan);
            let ran = match prepared.method.limit {
                Limit::Hits(0) => ran(&self.m),
                Limit::Hits(1) => ran(self.m_plus()),
                Limit::Hits(hits) => ran(&self.rerun(Threshold::least_hits(hits))),
                Limit::Budget(budget) => ran(&self.rerun(self.within(budget, prepared)?)),
            };
            Ok((prepared.number, ran))
        };
        runs.par_iter().with_max_len(1).map(run).collect()
    }

    fn m_plus(&self) -> &Plan {
        let least = Threshold::least_hits(1);
        self.m_plus.get_or_init(|| self.m.rerun(self.stream, self.capacity_blocks, least, self.shared.progress))
    }

    fn rerun(&self, threshold: Threshold) -> Plan {
        self.m_plus().rerun(self.stream, self.capacity_blocks, threshold, self.shared.progress)
    }

    /// Returns the erasures of the algorithm with `plan`.
    fn erases(&self, plan: &Plan, prepared: &OfflineRun) -> u64 {
        perform(self.stream, plan, &prepared.geometry, prepared.method.placement, self.shared.progress).erasures()
    }

    /// Returns the insertions to leave out to stay within `budget`.
    fn within(&self, budget: Budget, prepared: &OfflineRun) -> Result<Threshold, EnduranceError> {
        let budget = self.erasures(budget, prepared)?;
        let leave_out = |count| Threshold::of_count(self.m_plus(), count);
        let within = budget::Within {
            erasures: &|count| self.erases(&self.rerun(leave_out(count)), prepared),
            insertions: self.m_plus().insertions().len() as u64,
        };
        Ok(leave_out(within.budget(budget)))
    }

    /// Returns the number of erasures that a budget allows.
    fn erasures(&self, budget: Budget, prepared: &OfflineRun) -> Result<f64, EnduranceError> {
        let OfflineRun { geometry, size, .. } = prepared;
        let trace = self.shared.trace.name().to_owned();
        let algorithm = prepared.algorithm.clone();
        let (erasures, one) = match budget {
            Budget::Epbpd(epbpd) => {
                let Some(days) = self.shared.days else {
                    return Err(EnduranceError::NoTimes { algorithm, trace });
                };
                let units_days = f64::from(geometry.units) * days;
                (epbpd * units_days, format!("epbpd={:.3e}", 1.0 / units_days))
            }
            Budget::Share(share) | Budget::ShareOfMPlus(share) => {
                let all = match budget {
                    Budget::ShareOfMPlus(_) => self.m_plus_erasures(prepared),
                    _ => self.erases(self.m_plus(), prepared),
                };
                if all == 0 {
                    // If M+ erases nothing, neither does C, so there is nothing to save.
                    return Ok(0.0);
                }
                (share * all as f64, format!("share={:.3}%", 100.0 / all as f64))
            }
        };
        if erasures < 1.0 {
            let size = size.clone();
            return Err(EnduranceError::BudgetBelowOneErasure { algorithm, size, trace, erasures, least: one });
        }
        Ok(erasures)
    }

    /// M+ needs no buffer, so its read cache has all of the RAM.
    fn m_plus_erasures(&self, prepared: &OfflineRun) -> u64 {
        let in_place = Placement::InPlace { trim: true };
        let geometry = prepared.geometry.clone().with_buffer(0);
        let erasures = || {
            if geometry.read_cache_blocks == prepared.geometry.read_cache_blocks {
                return perform(self.stream, self.m_plus(), &geometry, in_place, self.shared.progress).erasures();
            }
            let SharedRuns { trace, next_reads, warmup, progress, .. } = self.shared;
            let stream = FlashStream::behind_min(trace, next_reads, geometry.read_cache_blocks, warmup, progress);
            let m = Plan::min(&stream, self.capacity_blocks, progress);
            let m_plus = m.rerun(&stream, self.capacity_blocks, Threshold::least_hits(1), progress);
            perform(&stream, &m_plus, &geometry, in_place, progress).erasures()
        };
        *self.m_plus_erasures.get_or_init(erasures)
    }
}
