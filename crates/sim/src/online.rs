//! One run of a cache that does not know the future over a trace: read cache in RAM, admission rule, policy, layout, device and waiting, each
//! where it is asked for.
//!
//! Source: Cheng et al., USENIX ATC 2016, section 5 and Table 2, for the DRAM cache, which is LRU. The flash cache sees the reads that the DRAM
//! cache misses, and all writes, which the DRAM cache keeps too.

use flashwise_core::access::{Access, NEVER, Op};
use flashwise_core::account::{self, Account, Bits};
use flashwise_core::admission::adaptive::Decision;
use flashwise_core::admission::{Setting, Spec as Rule};
use flashwise_core::block_cache::{Alone, BlockCache, Containers, InPlace, Tally};
use flashwise_core::container_policy::{self, ContainerPolicy};
use flashwise_core::counters::Counters;
use flashwise_core::index::Dense;
use flashwise_core::options::Options;
use flashwise_core::policy::lru::Lru;
use flashwise_core::policy::{self, Outcome, Policy};
use flashwise_core::step::FlashStep;
use flashwise_device::ArrayModel;
use flashwise_device::flash::{Device, DeviceCounters, Ftl, StepError, Wear, Zoned};
use flashwise_trace::Trace;

use crate::array::{Arrivals, Queues, Served, Waits};
use crate::endurance::Geometry;
use crate::simulate::Counting;

/// Accesses between the hint that a block will be accessed and the access.
const PREFETCH_DISTANCE: usize = 12;

/// Accesses after which decisions are asked for. A timeframe has more, so that none is missed.
const DECISION_ACCESSES_MAX: u64 = 64;

/// What is run, besides a policy.
pub(crate) struct Online<'a> {
    pub trace: &'a Trace,
    pub counting: Counting,
    /// Blocks of the read cache in RAM.
    pub ram_blocks: usize,
    /// The flash, if one is simulated, ...
    pub flash: Option<&'a Geometry>,
    /// ... and whether a conventional SSD is told what is evicted.
    pub trim: bool,
    /// What requests wait for.
    pub queues: Option<Queues>,
}

/// What was counted over some accesses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads that the read cache in RAM had; see [`reads_from_ram`](Counts::reads_from_ram).
    pub ram_hits: u64,
    /// What became of the accesses that came past it, ...
    pub counters: Counters,
    /// ... as devices see them, ...
    pub traffic: account::Counts,
    /// ... and what was written for them.
    pub tally: Tally,
    /// What the flash device did.
    pub device: DeviceCounters,
}

impl Counts {
    /// Block accesses.
    pub fn accesses(&self) -> u64 {
        self.ram_hits + self.counters.accesses()
    }

    /// Blocks that were valid on the erase units that were erased: copied by the device, or found by the cache that reset them.
    pub fn live_at_eviction_blocks(&self) -> u64 {
        let copied = self.device.programs_collection + self.device.programs_levelling;
        copied + self.tally.live_at_reset_blocks
    }

    /// Reads that RAM had: its read cache, and what fills up there on its way to flash.
    pub fn reads_from_ram(&self) -> u64 {
        self.ram_hits + self.tally.buffer_hits
    }

    /// What the devices of an array were asked for: the reads that RAM had on the way to flash are not.
    pub fn device_traffic(&self) -> account::Counts {
        let mut traffic = self.traffic;
        traffic.hits[Op::Read as usize] -= self.tally.buffer_hits;
        traffic
    }

    /// Accesses that found their block in RAM or on flash.
    pub fn hits(&self) -> u64 {
        self.ram_hits + self.counters.hits()
    }
}

impl std::ops::Sub for Counts {
    type Output = Counts;

    /// What was counted after `before`.
    fn sub(self, before: Counts) -> Counts {
        Counts {
            ram_hits: self.ram_hits - before.ram_hits,
            counters: self.counters - before.counters,
            traffic: self.traffic - before.traffic,
            tally: self.tally - before.tally,
            device: self.device.since(&before.device),
        }
    }
}

/// Consecutive accesses of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Stretch {
    /// From the beginning of the trace to that of the stretch.
    pub start_s: f64,
    /// To the beginning of the next, or the last access of the trace; at least a microsecond.
    pub seconds: f64,
    /// What was counted.
    pub counts: Counts,
    /// How many decisions were made when it ended.
    pub decisions: usize,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Ran {
    /// The accesses after the warm-up; its seconds are from the first of them to the last, at least a microsecond.
    pub counted: Stretch,
    /// Every decision of a rule that adapts.
    pub decisions: Vec<Decision>,
    /// How long requests waited, if that was simulated.
    pub waits: Option<Waits>,
    /// The epochs, if they were asked for; they include the warm-up.
    pub epochs: Vec<Stretch>,
    /// How the flash device was worn after the warm-up, if there was one.
    pub wear: Option<Wear>,
}

/// Runs `policy`, an online one, behind `rule` over `trace` in a cache of `capacity_blocks` that lies nowhere, and counts as `counting` says.
///
/// With `waiting` requests wait for the devices of an array, as [`ArrayModel::check`] and [`Arrivals::check`] let them; those count whose last
/// access does. What the policy decides does not depend on it.
pub fn replay(
    trace: &Trace,
    policy: &policy::Spec,
    rule: Option<&Rule>,
    capacity_blocks: usize,
    setting: &Setting,
    counting: Counting,
    waiting: Option<(&ArrayModel, Arrivals)>,
) -> Ran {
    let waiting = waiting.filter(|(_, arrivals)| *arrivals != Arrivals::None);
    let queues = waiting.map(|(model, arrivals)| Queues::new(model, trace.block_size_bytes(), arrivals));
    let run = Online { trace, counting, ram_blocks: 0, flash: None, trim: false, queues };
    run.policy(policy, rule.map(|rule| (rule, setting)), capacity_blocks)
}

impl Online<'_> {
    /// Runs `policy`, an online one, behind `rule` in a cache of `capacity_blocks`.
    pub(crate) fn policy(self, policy: &policy::Spec, rule: Option<(&Rule, &Setting)>, capacity_blocks: usize) -> Ran {
        assert!(!policy.info().offline, "{policy} would need next uses");
        let index = self.index();
        match rule {
            Some((rule, setting)) => rule.build(policy, index, capacity_blocks, setting, self),
            None => policy.build(index, capacity_blocks, self),
        }
    }

    fn index(&self) -> Dense {
        Dense::new(self.trace.unique_blocks())
    }

    fn run<C: BlockCache<Key = u32>>(mut self, mut cache: C, mut device: impl Device) -> Ran {
        let mut ram = (self.ram_blocks > 0).then(|| Lru::new(self.index(), self.ram_blocks, &Options::default()));
        let mut account = Account::new(Bits::new(self.trace.unique_blocks()));
        let (mut counters, mut ram_hits, mut steps) = (Counters::default(), 0, Vec::new());
        let (mut warm, mut begun) = (Mark::default(), Mark::default());
        let mut erased_warm = device.erasures_by_unit();
        let (mut epochs, mut decisions) = (Vec::new(), Vec::new());
        let (warmup, epoch) =
            (self.counting.warmup.accesses(self.trace.len()), self.counting.epoch.unwrap_or(u64::MAX));
        let mut next_epoch = epoch;
        let first_us = self.trace.batches()[0].time_us[0];
        // A trace's times may go back; the time of a cache does not.
        let (mut time_us, mut position) = (0, 0);
        let counts = |ram_hits, counters, account: &Account<Bits>, cache: &C, device: &dyn Device| {
            let (traffic, tally, device) = (*account.counts(), cache.tally(), *device.counters());
            Counts { ram_hits, counters, traffic, tally, device }
        };
        for columns in self.trace.batches() {
            let blocks = &columns.block[..];
            let ahead = |at: usize| blocks[at.min(blocks.len() - 1)] as u32;
            for (at, &block) in blocks.iter().enumerate() {
                cache.prefetch(ahead(at + PREFETCH_DISTANCE), ahead(at + 2 * PREFETCH_DISTANCE));
                time_us = time_us.max(columns.time_us[at].saturating_sub(first_us).max(0) as u64);
                if position == warmup || position == next_epoch {
                    let mark = Mark { counts: counts(ram_hits, counters, &account, &cache, &device), time_us };
                    if position == warmup {
                        (warm, erased_warm) = (mark, device.erasures_by_unit());
                    }
                    if position == next_epoch {
                        epochs.push(begun.to(mark, decisions.len()));
                        begun = mark;
                        next_epoch = position.saturating_add(epoch);
                    }
                }
                position += 1;
                let op = if columns.op[at] == 0 { Op::Read } else { Op::Write };
                let (block, request_blocks) = (block as u32, columns.request_blocks[at]);
                let access = Access { block, op, request_blocks, next_use: NEVER };
                let (request, counted) = (columns.request[at], position > warmup);
                let in_ram = ram.as_mut().is_some_and(|ram| ram.access(access) == Outcome::Hit);
                let (outcome, written_back) = if in_ram && op == Op::Read {
                    ram_hits += 1;
                    (None, None)
                } else {
                    let outcome = cache.access(access, time_us, &mut steps);
                    for step in steps.drain(..) {
                        device.step(step);
                    }
                    counters.record(op, &outcome);
                    (Some(outcome), account.record(block, op, &outcome))
                };
                if let Some(queues) = &mut self.queues {
                    let outcome = outcome.as_ref();
                    queues.access(&Served { request, time_us, block, op, outcome, written_back, counted });
                }
                if position.is_multiple_of(DECISION_ACCESSES_MAX) || position == next_epoch {
                    note(cache.decision(), &mut decisions);
                }
            }
        }
        note(cache.decision(), &mut decisions);
        let end = Mark { counts: counts(ram_hits, counters, &account, &cache, &device), time_us };
        if self.counting.epoch.is_some() {
            epochs.push(begun.to(end, decisions.len()));
        }
        let erased = device.erasures_by_unit();
        if position <= warmup {
            (warm, erased_warm) = (end, erased.clone());
        }
        let counted = warm.to(end, decisions.len());
        let written = end.counts.tally.flash_writes.total_blocks();
        assert_eq!(written, end.counts.device.host_writes, "each write to flash has a cause");
        let wear = self.flash.is_some().then(|| Wear::between(&erased_warm, &erased));
        Ran { counted, decisions, waits: self.queues.map(Queues::finish), epochs, wear }
    }
}

/// Notes the last decision, unless it is known already.
fn note(decision: Option<&Decision>, decisions: &mut Vec<Decision>) {
    if let Some(decision) = decision
        && decision.number > decisions.len() as u64
    {
        decisions.push(decision.clone());
    }
}

/// Where a stretch begins.
#[derive(Clone, Copy, Default)]
struct Mark {
    counts: Counts,
    time_us: u64,
}

impl Mark {
    fn to(self, end: Mark, decisions: usize) -> Stretch {
        Stretch {
            start_s: self.time_us as f64 / 1e6,
            seconds: (end.time_us - self.time_us).max(1) as f64 / 1e6,
            counts: end.counts - self.counts,
            decisions,
        }
    }
}

impl policy::Visitor<u32> for Online<'_> {
    type Output = Ran;

    fn visit<P: Policy<Key = u32>>(self, policy: P) -> Ran {
        match self.flash {
            None => self.run(Alone(policy), NoDevice::default()),
            Some(geometry) => {
                let device = Ftl::new(geometry.ftl.clone()).expect("the geometry is that of a device");
                let cache = InPlace::new(policy, self.index(), geometry.ftl.logical_pages, self.trim);
                self.run(cache, device)
            }
        }
    }
}

impl container_policy::Visitor<u32> for Online<'_> {
    type Output = Ran;

    fn visit<P: ContainerPolicy<Key = u32>>(self, policy: P) -> Ran {
        let geometry = self.flash.expect("containers lie on flash");
        let device = Zoned::new(geometry.units, geometry.unit_pages).expect("the geometry is that of a device");
        self.run(Containers::new(policy), device)
    }
}

/// Stands where no device is simulated: a policy alone takes no steps.
#[derive(Default)]
struct NoDevice(DeviceCounters);

impl Device for NoDevice {
    fn try_step(&mut self, step: FlashStep) -> Result<(), StepError> {
        unreachable!("{step:?} of a policy that lies nowhere")
    }

    fn counters(&self) -> &DeviceCounters {
        &self.0
    }

    fn erasures_by_unit(&self) -> Vec<u32> {
        Vec::new()
    }

    fn check(&self) {}
}
