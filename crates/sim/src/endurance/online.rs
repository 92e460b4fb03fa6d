//! Replacement policies on a conventional SSD, behind a DRAM cache with LRU.
//!
//! Source: Cheng et al., USENIX ATC 2016, section 5 and Table 2 (LRU).
//!
//! The policy sees the reads that the DRAM cache misses, and all writes, which the DRAM cache keeps too. A block that is written while it is cached is
//! overwritten in place; one that is not comes in if the policy admits it.

use flashwise_core::access::{Access, NEVER, Op};
use flashwise_core::index::Dense;
use flashwise_core::layout::slots::Slots;
use flashwise_core::options::Options;
use flashwise_core::policy::lru::Lru;
use flashwise_core::policy::{Outcome, Policy, Visitor};
use flashwise_core::step::FlashStep;

use super::settings::Geometry;
use super::{Counts, device_of};
use crate::device::{Device, Ftl};
use crate::trace::Trace;

/// Runs a policy over a trace.
pub(super) struct Online<'a> {
    pub trace: &'a Trace,
    pub geometry: &'a Geometry,
    /// Accesses not counted.
    pub warmup: u64,
    pub trim: bool,
}

/// The DRAM cache; none if it has no room.
pub(super) fn dram(trace: &Trace, geometry: &Geometry) -> Option<Lru<Dense>> {
    let blocks = geometry.read_cache_blocks;
    (blocks > 0).then(|| Lru::new(Dense::new(trace.unique_blocks()), blocks, &Options::default()))
}

impl Visitor<u32> for Online<'_> {
    type Output = Counts;

    fn visit<P: Policy<Key = u32>>(self, policy: P) -> Counts {
        let device = device_of(self.geometry);
        let index = Dense::new(self.trace.unique_blocks());
        let mut cache = OnlineCache {
            dram: dram(self.trace, self.geometry),
            policy,
            slots: Slots::new(index, self.geometry.ftl.logical_pages),
            trim: self.trim,
            steps: Vec::new(),
            counts: Counts::none(self.geometry.unit_pages, device.wear()),
            device,
        };
        let mut before = cache.counts;
        let mut position = 0;
        for columns in self.trace.batches() {
            for (at, &block) in columns.block.iter().enumerate() {
                if position == self.warmup {
                    before = cache.counted();
                }
                position += 1;
                let op = if columns.op[at] == 0 { Op::Read } else { Op::Write };
                let request_blocks = columns.request_blocks[at];
                cache.access(Access { block: block as u32, op, request_blocks, next_use: NEVER });
            }
        }
        let all = cache.counted();
        all.check();
        if position <= self.warmup {
            before = all;
        }
        all.since(&before)
    }
}

struct OnlineCache<P> {
    dram: Option<Lru<Dense>>,
    policy: P,
    slots: Slots<Dense>,
    trim: bool,
    steps: Vec<FlashStep>,
    device: Ftl,
    counts: Counts,
}

impl<P: Policy<Key = u32>> OnlineCache<P> {
    #[inline]
    fn access(&mut self, access: Access<u32>) {
        let is_write = access.op == Op::Write;
        self.counts.reads += u64::from(!is_write);
        self.counts.writes += u64::from(is_write);
        let in_dram = self.dram.as_mut().is_some_and(|dram| dram.access(access) == Outcome::Hit);
        if in_dram && !is_write {
            self.counts.ram_hits += 1;
            return;
        }
        let written = match self.policy.access(access) {
            Outcome::Hit if is_write => self.slots.overwrite(access.block, &mut self.steps),
            Outcome::Hit => {
                self.counts.flash_hits += 1;
                assert!(self.slots.read(access.block, &mut self.steps), "a hit is on flash");
                false
            }
            Outcome::Admit { evicted } => {
                if let Some(evicted) = evicted {
                    self.slots.remove(evicted, self.trim, &mut self.steps);
                }
                self.slots.place(access.block, &mut self.steps);
                true
            }
            Outcome::Bypass => {
                self.counts.bypasses += 1;
                false
            }
        };
        if written {
            self.counts.flash_writes.count_insertion(is_write);
            if is_write {
                self.counts.insertions_write += 1;
            } else {
                self.counts.insertions_read += 1;
            }
        }
        for step in self.steps.drain(..) {
            self.device.step(step);
        }
    }

    /// With what the device counted.
    fn counted(&self) -> Counts {
        let device = *self.device.counters();
        let evicted_live_blocks = device.programs_collection + device.programs_levelling;
        Counts { device, wear: self.device.wear(), evicted_live_blocks, ..self.counts }
    }
}
