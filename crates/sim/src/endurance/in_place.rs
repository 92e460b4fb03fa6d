//! M and its kin on a conventional SSD: each block at a place of its own, which the device's translation layer maps.
//!
//! Source: Cheng et al., USENIX ATC 2016, section 3.3 ("container-oblivious").
//!
//! Without TRIM a block that leaves keeps its page until another is put there, and the device copies it as if it were needed. With TRIM the
//! device hears of each block that leaves, be it evicted, read for the last time, or read for the last time before it is overwritten.

use flashwise_core::index::Dense;
use flashwise_core::layout::slots::Slots;
use flashwise_core::step::FlashStep;

use super::settings::Geometry;
use super::tally::{Tally, run};
use super::{Counts, device_of};
use crate::offline::{Decision, FlashStream, NOT_EVICTING, Plan};
use flashwise_device::flash::{Device, Ftl};

/// Performs `plan` on an SSD.
pub(super) fn in_place(stream: &FlashStream, plan: &Plan, geometry: &Geometry, trim: bool) -> Counts {
    let mut cache = InPlace {
        stream,
        slots: Slots::new(Dense::new(stream.unique_blocks()), geometry.ftl.logical_pages),
        trim,
        steps: Vec::with_capacity(4),
        device: device_of(geometry),
        tally: Tally::default(),
    };
    run(&mut cache, stream, plan, geometry.unit_pages)
}

struct InPlace<'a> {
    stream: &'a FlashStream,
    slots: Slots<Dense>,
    trim: bool,
    steps: Vec<FlashStep>,
    device: Ftl,
    tally: Tally,
}

impl super::tally::Cache for InPlace<'_> {
    #[inline]
    fn access(&mut self, position: usize, decision: Decision, evicts: u32) {
        let block = self.stream.block(position);
        match decision {
            Decision::Bypass => return,
            Decision::Hit | Decision::LastHit => {
                let found = self.slots.read(block, &mut self.steps);
                assert!(found, "a hit is on flash");
                if decision == Decision::LastHit {
                    self.slots.remove(block, self.trim, &mut self.steps);
                }
            }
            Decision::Insert => {
                if evicts != NOT_EVICTING {
                    self.slots.remove(self.stream.block(evicts as usize), self.trim, &mut self.steps);
                }
                self.slots.place(block, &mut self.steps);
                self.tally.flash_writes.count_insertion(self.stream.is_write(position));
            }
        }
        for step in self.steps.drain(..) {
            self.device.step(step);
        }
    }

    #[inline]
    fn prefetch(&self, block: u32) {
        self.slots.prefetch(block);
    }

    fn tally(&self) -> Tally {
        let copied = self.device.counters().programs_collection + self.device.counters().programs_levelling;
        Tally { evicted_live_blocks: copied, ..self.tally }
    }

    fn device(&self) -> &impl Device {
        &self.device
    }
}
