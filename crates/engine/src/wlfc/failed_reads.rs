//! Handling of failed reads: of blocks that another device has, too, that may be readable later, or that are lost.

use flashwise_core::cache::Cache;
use flashwise_core::order::StepId;
use flashwise_core::wlfc::header::Missing;
use flashwise_core::wlfc::{State, Step};
use smallvec::smallvec;

use super::memory::BLOCK;
use super::transfers::of_block;
use super::{Engine, StepState, Work};
use crate::engine::{BACKEND, FLASH, Part};
use crate::request::Error;
use crate::transfer::Operation;

impl<C: Cache<Step = Step>> Engine<C> {
    /// Records if the blocks of a partial read of the backend were read.
    pub(super) fn came(&mut self, id: StepId, part: &Part, came: bool) {
        let running = self.step(id);
        running.state.unread |= !came;
        let (first, plan) = (part.offset / BLOCK, running.state.plan);
        let region = self.layout.plans.region(plan, first);
        let missing = (!came).then_some(Missing::OfBackend);
        for block in first..first + part.length / BLOCK {
            region.set_missing(block, missing);
            // If the flash has newer data, it is read afterwards.
            if came {
                self.layout.failures.unreadable.remove(&block);
            }
        }
    }

    /// Reads the blocks of a failed read of the backend one by one, so that only the bad ones are missing.
    pub(super) fn read_apart(&mut self, id: StepId, part: &Part) -> bool {
        if part.length > BLOCK {
            let (first, plan) = (part.offset / BLOCK, self.step(id).state.plan);
            let region = self.layout.plans.region(plan, first);
            let blocks = (first..first + part.length / BLOCK).rev();
            let parts = blocks.map(|block| of_block(id, region, block, Operation::Read)).collect();
            let running = self.step(id);
            (running.state.next, running.state.apart) = (parts, true);
            self.next_part(id);
            return true;
        }
        let apart = self.step(id).state.apart;
        if apart {
            self.came(id, part, false);
            self.next_part(id);
        }
        apart
    }

    /// Handles a read that failed permanently: clean blocks are read from the backend instead, others are missing from
    /// now on.
    pub(super) fn read_failed(&mut self, id: StepId, flash: bool) {
        let retries = self.settings.retries;
        let running = self.step(id);
        running.state.unread |= !flash;
        let Work::Step(Step::ReadFlash { block, blocks, .. } | Step::ReadBackend { block, blocks }) = running.step
        else {
            unreachable!("it reads")
        };
        let (plan, clean, fell_back) =
            (running.state.plan, running.state.holds == State::Read, running.state.falls_back);
        if flash && clean && !fell_back {
            let running = self.step(id);
            (running.state.falls_back, running.retries) = (true, retries);
            self.also_reads_backend(id, block);
            self.faults.flash_read_errors += 1;
            self.transfer(id, BACKEND, Operation::Read, block * BLOCK, block, blocks);
            return;
        }
        // If only checksums were wrong, the bad blocks are known; otherwise all are bad.
        let region = self.layout.plans.region(plan, block);
        let all = !(flash && region.has_bad(block, blocks));
        // The backend has the same content as a clean block.
        let missing = if flash && !clean { Missing::Lost } else { Missing::OfBackend };
        for block in block..block + u64::from(blocks) {
            if all || clean && region.is_bad(block) {
                region.set_missing(block, Some(missing));
            }
        }
        if flash && !clean {
            let lost = |block: &u64| region.missing(*block) == Some(Missing::Lost);
            self.layout.failures.unreadable.extend((block..block + u64::from(blocks)).filter(lost));
        }
        self.finish(id, Ok(()));
    }

    /// Delays an unreadable block that is about to be moved, because the move would lose it. It is retried several
    /// times, and at last a probe tests if the flash is readable at all. True if the read was delayed.
    pub(super) fn is_patient(&mut self, id: StepId, part: &Part) -> bool {
        let StepState { plan, holds, .. } = self.step(id).state;
        if self.settings.patience == 0 || holds == State::Read || !self.layout.plans.get(plan).moves {
            return false;
        }
        if !self.recovery.works() {
            self.finish(id, Err(Error::Io));
            return true;
        }
        if self.postpone(part.clone()) {
            return true;
        }
        let Some(offset) = self.probed_page(id) else {
            self.probed(id, false);
            return true;
        };
        self.step(id).state.probes = true;
        let buffers = smallvec![self.gap.buffer(0, 1)];
        let (disk, operation) = (FLASH, Operation::Read);
        self.hand_over(Part { buffers, alone: true, ..Part::new(id, disk, operation, offset, BLOCK) });
        true
    }

    /// Returns the offset of a page that is readable unless the flash has failed: the first one. If buckets are zones,
    /// it is in another programmed bucket.
    fn probed_page(&mut self, id: StepId) -> Option<u64> {
        if !self.settings.zoned {
            return Some(0);
        }
        let Work::Step(Step::ReadFlash { bucket, .. }) = self.step(id).step else { return None };
        let is_other = |other: &u32| {
            *other != bucket
                && self.layout.on_flash[*other as usize].end > 0
                && !self.layout.failures.worn.contains(other)
        };
        (0..self.layout.on_flash.len() as u32).find(is_other).map(|other| self.unit_offset(other))
    }

    /// Handles the result of the probe. If the flash is unreadable, none of its contents are given up.
    pub(super) fn probed(&mut self, id: StepId, can_be_read: bool) {
        if can_be_read {
            return self.read_failed(id, true);
        }
        self.recovery.stop(FLASH, self.settings.holds_failed);
        self.finish(id, Err(Error::Io));
    }
}
