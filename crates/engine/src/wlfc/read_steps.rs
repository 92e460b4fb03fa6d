//! The execution of reads, and failed reads. Another device may have the blocks, they may be readable later, or they
//! are lost.

use flashwise_core::cache::Cache;
use flashwise_core::order::{StepId, Use};
use flashwise_core::wlfc::header::Missing;
use flashwise_core::wlfc::{State, Step};
use smallvec::{SmallVec, smallvec};

use super::memory::BLOCK;
use super::read::{Next, Run};
use super::{Engine, StepState, Work};
use crate::engine::{BACKEND, FLASH, Part};
use crate::memory::Memory;
use crate::request::Error;
use crate::transfer::Operation;

impl<C: Cache<Step = Step>> Engine<C> {
    /// Begins a read of the flash.
    pub(super) fn read_flash(&mut self, id: StepId) {
        let running = self.steps.get_mut(id);
        let run = Run::of(running);
        // Content read earlier from the backend is replaced.
        let region = self.layout.plans.region(running.state.plan, run.block);
        run.range().for_each(|block| region.set_missing(block, None));
        let next = self.layout.reads.begin(id, run, &mut running.state);
        self.read_next(id, next);
    }

    /// Starts the next transfer of a read of the flash.
    fn read_next(&mut self, id: StepId, next: Next) {
        let running = self.steps.get_mut(id);
        let (Run { bucket, page, block, blocks }, state) = (Run::of(running), &mut running.state);
        let (first, before, has_data) = match next {
            Next::Data => (page, 0, true),
            Next::Header { page: header, with_data: true } => (header, page - header, true),
            Next::Header { page: header, .. } => (header, 1, false),
            Next::Wait | Next::Came => return,
        };
        let (mut buffers, mut pages) = (smallvec![], before);
        if before > 0 {
            let memory = Memory::new(before as usize);
            buffers.push(memory.buffer(0, before));
            (state.memory, state.header) = (Some(memory), Some((first, has_data)));
        }
        if has_data {
            buffers.push(self.layout.plans.region(state.plan, block).buffer(block, blocks));
            pages += blocks;
        }
        let offset = self.unit_offset(bucket) + u64::from(first) * BLOCK;
        self.hand_over_part(id, FLASH, Operation::Read, offset, u64::from(pages) * BLOCK, buffers);
    }

    /// Processes a header page, if one was read. True if the data must still be read.
    pub(super) fn expects_more(&mut self, id: StepId) -> bool {
        let running = self.steps.get_mut(id);
        let Some(header) = running.state.header.take() else { return false };
        let memory = running.state.memory.take().expect("a header page has memory");
        let bucket = Run::of(running).bucket;
        let epoch = self.layout.programs.on_flash[bucket as usize].epoch;
        let mut readers: SmallVec<[StepId; 4]> = smallvec![id];
        if let (page, false) = header {
            readers.extend(self.layout.reads.take_waiting(bucket, page));
        }
        let mut more = true;
        for id in readers {
            let running = self.steps.get_mut(id);
            let (run, state) = (Run::of(running), &mut running.state);
            let next = self.layout.reads.take_over((id, run), state, header, memory.page(0), epoch);
            more &= !matches!(next, Next::Came);
            self.read_next(id, next);
        }
        more
    }

    /// Handles an unreadable header page: the steps that waited for it try to read it themselves.
    pub(super) fn header_failed(&mut self, id: StepId) {
        let running = self.steps.get_mut(id);
        let Some((page, false)) = running.state.header.take() else { return };
        let bucket = Run::of(running).bucket;
        for other in self.layout.reads.take_waiting(bucket, page) {
            let running = self.steps.get(other);
            let next = self.layout.reads.read_header(other, Run::of(running), &running.state, page);
            self.read_next(other, next);
        }
    }

    /// Compares data with its checksums. True if some of it is wrong.
    pub(super) fn compare(&mut self, id: StepId) -> bool {
        let running = self.steps.get_mut(id);
        let (run, expected) = (Run::of(running), std::mem::take(&mut running.state.expected));
        let region = self.layout.plans.region(running.state.plan, run.block);
        let wrong = region.compare(run.range(), &expected);
        for block in run.range().filter(|block| !region.is_bad(*block)) {
            self.layout.failures.unreadable.remove(&block);
        }
        wrong
    }

    /// Plans to read blocks from the backend that are marked as being only there. Later writes of that bucket of the
    /// backend wait for this read; a write in progress is concurrent with it.
    pub(super) fn read_below(&mut self, id: StepId) {
        let running = self.steps.get_mut(id);
        let run = Run::of(running);
        let region = self.layout.plans.region(running.state.plan, run.block);
        let is_below = |missing| missing == Some(Missing::OfBackend);
        if !region.has_any(Missing::OfBackend, run.block, run.blocks) {
            return;
        }
        let parts = region.apart(id, run.range(), Operation::Read, is_below);
        (running.state.falls_back, running.state.next, running.state.apart) = (true, parts, true);
        self.also_reads_backend(id, run.block);
    }

    /// Records that a step reads the backend instead of the flash.
    fn also_reads_backend(&mut self, id: StepId, block: u64) {
        self.order.begin(id, Use::ReadBlock(self.layout.shape.bucket_of(block)), |_| ());
    }

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
            let blocks = first..first + part.length / BLOCK;
            let parts = self.layout.plans.region(plan, first).apart(id, blocks, Operation::Read, |_| true);
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
        let buffers = smallvec![self.transfers.gap.buffer(0, 1)];
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
                && self.layout.programs.on_flash[*other as usize].end > 0
                && !self.layout.failures.worn.contains(other)
        };
        (0..self.layout.programs.on_flash.len() as u32).find(is_other).map(|other| self.unit_offset(other))
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
