//! One run of a cache over a trace: read cache in RAM, admission rule, policy or plan, layout, device and waiting, each
//! optional.
//!
//! Source: Cheng et al., USENIX ATC 2016, section 5 and Table 2, for the DRAM cache: LRU, or MIN before a plan. The
//! flash cache sees the read misses of the DRAM cache, and all writes, which the DRAM cache keeps too.

use flashwise_core::access::{Access, NEVER, Op};
use flashwise_core::account::{self, Account, Bits};
use flashwise_core::admission::{Setting, Spec as Rule};
use flashwise_core::block_cache::{Alone, BlockCache, Containers, InPlace};
use flashwise_core::container_policy::{self, ContainerPolicy};
use flashwise_core::counters::Counters;
use flashwise_core::index::Dense;
use flashwise_core::options::Options;
use flashwise_core::policy::lru::Lru;
use flashwise_core::policy::{self, Outcome, Policy};
use flashwise_core::step::FlashStep;
use flashwise_device::ArrayModel;
use flashwise_device::flash::{Device, DeviceCounters, Ftl, StepError, Zoned};
use flashwise_trace::Trace;
use flashwise_trace::progress::{Progress, Silent};

use crate::array::{Arrivals, Queues, Served};
use crate::endurance::{Geometry, Performs, Placed, Placement, Planned, perform_by};
use crate::offline::{FlashStream, Plan};
use crate::pace::Pace;
use crate::simulate::Counting;
use crate::stretch::Stretches;
pub use crate::stretch::{Counts, Ran, Stretch};

/// Accesses between a prefetch hint and the access.
const PREFETCH_DISTANCE: usize = 12;

/// Accesses between two queries for decisions. A timeframe is longer, so none is missed.
const DECISION_ACCESSES_MAX: u64 = 64;

/// Parts of a run, except the policy.
pub(crate) struct Online<'a> {
    pub trace: &'a Trace,
    pub counting: Counting,
    /// Blocks of the read cache in RAM.
    pub ram_blocks: usize,
    /// The flash, if simulated.
    pub flash: Option<&'a Geometry>,
    /// True if evicted blocks are trimmed on a conventional SSD.
    pub trim: bool,
    /// The devices that requests wait for.
    pub queues: Option<Queues>,
    /// Receives the number of accesses done.
    pub progress: &'a dyn Progress,
}

/// Runs `policy`, an online one, behind `rule` over `trace` in a cache of `capacity_blocks` without flash, and counts
/// as in `counting`.
///
/// With `waiting`, requests wait for the devices of an array, as [`ArrayModel::check`] and [`Arrivals::check`] allow. A
/// request counts if its last access does. Decisions of the policy do not depend on waiting.
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
    let run = Online { trace, counting, ram_blocks: 0, flash: None, trim: false, queues, progress: &Silent };
    run.policy(policy, rule.map(|rule| (rule, setting)), capacity_blocks)
}

impl Online<'_> {
    /// Runs `policy`, an online one, behind `rule` in a cache of `capacity_blocks`.
    pub(crate) fn policy(self, policy: &policy::Spec, rule: Option<(&Rule, &Setting)>, capacity_blocks: usize) -> Ran {
        assert!(!policy.info().offline, "{policy} would need next uses");
        let blocks = self.trace.unique_blocks();
        let policy = match rule {
            Some((rule, setting)) => rule.boxed(policy, blocks, capacity_blocks, setting),
            None => policy.boxed(blocks, capacity_blocks),
        };
        let ram = self.lru();
        match self.flash {
            None => self.run(ram, Alone(policy), NoDevice::default()),
            Some(geometry) => {
                let device = Ftl::new(geometry.ftl.clone()).expect("the geometry is that of a device");
                let cache = InPlace::new(policy, self.index(), geometry.ftl.logical_pages, self.trim);
                self.run(ram, cache, device)
            }
        }
    }

    fn index(&self) -> Dense {
        Dense::new(self.trace.unique_blocks())
    }

    /// Runs a plan over the accesses of `stream`.
    pub(crate) fn planned(self, stream: &FlashStream, plan: &Plan, geometry: &Geometry, placement: Placement) -> Ran {
        struct Behind<'a>(Online<'a>, &'a FlashStream);
        impl Performs for Behind<'_> {
            type Output = Ran;

            fn perform<P: Placed>(self, cache: Planned<'_, P>, device: impl Device) -> Ran {
                self.0.run(ReadCache::Min(self.1), cache, device)
            }
        }
        perform_by(stream, plan, geometry, placement, self.progress, Behind(self, stream))
    }

    /// Returns the read cache for online policies.
    fn lru(&self) -> ReadCache<'static> {
        if self.ram_blocks == 0 {
            return ReadCache::None;
        }
        ReadCache::Lru(Box::new(Lru::new(self.index(), self.ram_blocks, &Options::default())))
    }

    fn run<C: BlockCache<Key = u32>>(mut self, mut ram: ReadCache<'_>, mut cache: C, mut device: impl Device) -> Ran {
        let mut account = Account::new(Bits::new(self.trace.unique_blocks()));
        let (mut counters, mut ram_hits, mut steps) = (Counters::default(), 0, Vec::new());
        let mut stretches = Stretches::new(self.counting, self.trace.len());
        let on_flash = self.flash.is_some();
        let first_us = self.trace.first_us();
        let mut pace = Pace::new(self.progress);
        // A trace's times may decrease; the time of a cache does not.
        let (mut time_us, mut position) = (0, 0);
        for columns in self.trace.batches() {
            let (blocks, ops, times) = (&columns.block[..], &columns.op[..], &columns.time_us[..]);
            let (requests, lengths) = (&columns.request[..], &columns.request_blocks[..]);
            let ahead = |at: usize| blocks[at.min(blocks.len() - 1)] as u32;
            for (at, &block) in blocks.iter().enumerate() {
                cache.prefetch(ahead(at + PREFETCH_DISTANCE), ahead(at + 2 * PREFETCH_DISTANCE));
                time_us = time_us.max(times[at].saturating_sub(first_us).max(0) as u64);
                let counts = || counts(ram_hits, &counters, account.counts(), &cache, &device);
                let erased = || on_flash.then(|| device.erasures_by_unit());
                let counted = stretches.at(position, time_us, counts, erased);
                let op = if ops[at] == 0 { Op::Read } else { Op::Write };
                let (block, request_blocks) = (block as u32, lengths[at]);
                let access = Access { block, op, request_blocks, next_use: NEVER };
                let request = requests[at];
                let in_ram = ram.answers(position, access);
                position += 1;
                let (outcome, written_back) = if in_ram {
                    ram_hits += 1;
                    (None, None)
                } else {
                    let outcome = cache.access(access, time_us, &mut steps);
                    for step in steps.drain(..) {
                        device.step(step);
                    }
                    counters.record(op, &outcome);
                    let evicted = account.record(block, op, &outcome);
                    let left = cache.left().filter(|&left| account.leave(left));
                    (Some(outcome), evicted.or(left))
                };
                if let Some(queues) = &mut self.queues {
                    let outcome = outcome.as_ref();
                    queues.access(&Served { request, time_us, block, op, outcome, written_back, counted });
                }
                if position.is_multiple_of(DECISION_ACCESSES_MAX) || position == stretches.next_epoch() {
                    stretches.note(cache.decision());
                    pace.done(position);
                }
            }
        }
        pace.tell(position);
        stretches.note(cache.decision());
        let end = counts(ram_hits, &counters, account.counts(), &cache, &device);
        let written = end.tally.flash_writes.total_blocks();
        assert_eq!(written, end.device.host_writes, "each write to flash has a cause");
        let erased = on_flash.then(|| device.erasures_by_unit());
        stretches.end(time_us, end, self.queues.map(Queues::finish), erased)
    }
}

/// The read cache in RAM.
enum ReadCache<'a> {
    None,
    Lru(Box<Lru<Dense>>),
    /// MIN, as planned: the accesses that pass it are those of the stream.
    Min(&'a FlashStream),
}

impl ReadCache<'_> {
    /// True if it answers the access at `position` of the trace. It keeps written blocks too, and answers reads.
    #[inline]
    fn answers(&mut self, position: u64, access: Access<u32>) -> bool {
        match self {
            ReadCache::None => false,
            ReadCache::Lru(lru) => lru.access(access) == Outcome::Hit && access.op == Op::Read,
            ReadCache::Min(stream) => stream.is_in_dram(position),
        }
    }
}

/// Returns the counts so far of a cache behind a read cache with `ram_hits`. Write buffers count as RAM.
fn counts<C: BlockCache>(
    ram_hits: u64,
    counters: &Counters,
    answered: &account::Counts,
    cache: &C,
    device: &impl Device,
) -> Counts {
    let (read, write) = (counters.of(Op::Read), counters.of(Op::Write));
    let (tally, mut answered) = (cache.tally(), *answered);
    answered.hits[Op::Read as usize] -= tally.buffer_hits;
    Counts {
        reads: ram_hits + read.accesses(),
        writes: write.accesses(),
        read_hits: ram_hits + read.hits,
        write_hits: write.hits,
        ram_hits: ram_hits + tally.buffer_hits,
        counters: *counters,
        answered,
        tally,
        device: *device.counters(),
        ..Counts::default()
    }
}

impl container_policy::Visitor<u32> for Online<'_> {
    type Output = Ran;

    fn visit<P: ContainerPolicy<Key = u32>>(self, policy: P) -> Ran {
        let (ram, geometry) = (self.lru(), self.flash.expect("containers lie on flash"));
        let device = Zoned::new(geometry.units, geometry.unit_pages).expect("the geometry is that of a device");
        self.run(ram, Containers::new(policy), device)
    }
}

/// The device of a policy without flash, which takes no steps.
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
