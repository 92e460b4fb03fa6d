//! Replacement policies on a conventional SSD, each block at a place of its own.
//!
//! Source: Cheng et al., USENIX ATC 2016, Table 2 (LRU).
//!
//! A block that is written while it is cached is overwritten in place; one that is not comes in if the policy admits it.

use flashwise_core::access::{Access, Op};
use flashwise_core::index::Dense;
use flashwise_core::layout::slots::Slots;
use flashwise_core::policy::{Outcome, Policy, Visitor};
use flashwise_core::step::FlashStep;

use super::online::{FlashCache, Online};
use super::{Counts, device_of};
use flashwise_device::flash::{Device, Ftl};

impl Visitor<u32> for Online<'_> {
    type Output = Counts;

    fn visit<P: Policy<Key = u32>>(self, policy: P) -> Counts {
        let device = device_of(self.geometry);
        let index = Dense::new(self.trace.unique_blocks());
        let slots = Slots::new(index, self.geometry.ftl.logical_pages);
        let counts = Counts::none(self.geometry.unit_pages, device.wear());
        self.run(OnlineInPlace { policy, slots, trim: self.trim, steps: Vec::new(), device }, counts)
    }
}

struct OnlineInPlace<P> {
    policy: P,
    slots: Slots<Dense>,
    trim: bool,
    steps: Vec<FlashStep>,
    device: Ftl,
}

impl<P: Policy<Key = u32>> FlashCache for OnlineInPlace<P> {
    #[inline]
    fn access(&mut self, access: Access<u32>, _time_us: u64, counts: &mut Counts) {
        let is_write = access.op == Op::Write;
        let written = match self.policy.access(access) {
            Outcome::Hit if is_write => self.slots.overwrite(access.block, &mut self.steps),
            Outcome::Hit => {
                counts.flash_hits += 1;
                let found = self.slots.read(access.block, &mut self.steps);
                assert!(found, "a hit is on flash");
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
                counts.bypasses += 1;
                false
            }
        };
        if written {
            counts.flash_writes.count_insertion(is_write);
            counts.count_insertion(is_write);
        }
        for step in self.steps.drain(..) {
            self.device.step(step);
        }
    }

    fn counted(&self, counts: Counts) -> Counts {
        let device = *self.device.counters();
        let evicted_live_blocks = device.programs_collection + device.programs_levelling;
        Counts { device, wear: self.device.wear(), evicted_live_blocks, ..counts }
    }
}
