//! Reads of the flash: the data, and before it the header pages with checksums that are not in memory.

use std::collections::hash_map::Entry;

use flashwise_core::cache::Cache;
use flashwise_core::checksum;
use flashwise_core::format::Page;
use flashwise_core::order::{StepId, Use};
use flashwise_core::wlfc::Step;
use flashwise_core::wlfc::header::Missing;
use smallvec::smallvec;

use super::checksums::{Says, header_at, says};
use super::memory::BLOCK;
use super::transfers::of_block;
use super::{Engine, Work};
use crate::engine::{FLASH, Part};
use crate::memory::Memory;
use crate::transfer::Operation;

/// A header page within this distance before the data is read together with it.
const TOGETHER: u32 = 4;

/// The read of a step: pages of a bucket, for blocks of the volume.
struct Run {
    bucket: u32,
    page: u32,
    block: u64,
    blocks: u32,
}

impl<C: Cache<Step = Step>> Engine<C> {
    fn run(&mut self, id: StepId) -> Run {
        let Work::Step(Step::ReadFlash { bucket, slot, block, blocks }) = self.step(id).step else {
            unreachable!("it reads the flash")
        };
        Run { bucket, page: slot, block, blocks }
    }

    /// Begins a read: only the data, if all its checksums are in memory.
    pub(super) fn read_flash(&mut self, id: StepId) {
        let Run { bucket, page, block, blocks } = self.run(id);
        // Content read earlier from the backend is replaced.
        let plan = self.step(id).state.plan;
        let region = self.layout.plans.region(plan, block);
        (block..block + u64::from(blocks)).for_each(|block| region.set_missing(block, None));
        let first = bucket * self.layout.bucket_pages + page;
        let known = (first..first + blocks).map_while(|slot| self.layout.checksums.get(slot).map(Ok)).collect();
        self.step(id).state.expected = known;
        self.read_more(id);
    }

    /// Reads the next header page, or the data once all checksums are known.
    fn read_more(&mut self, id: StepId) {
        let Run { bucket, page, block, blocks } = self.run(id);
        let found = self.step(id).state.expected.len() as u32;
        let state = self.step(id).state.holds;
        match (found < blocks).then(|| self.layout.headers.of(bucket, state, page + found)).flatten() {
            Some(header) => self.read_header(id, header),
            // Pages without a checksum count as wrong.
            None => {
                self.step(id).state.header = None;
                let offset = self.unit_offset(bucket) + u64::from(page) * BLOCK;
                let plan = self.step(id).state.plan;
                let buffer = self.layout.plans.region(plan, block).buffer(block, blocks);
                let length = u64::from(blocks) * BLOCK;
                self.hand_over_part(id, FLASH, Operation::Read, offset, length, smallvec![buffer]);
            }
        }
    }

    /// Reads a header page: together with the data if it is near, otherwise once for all steps that need it.
    fn read_header(&mut self, id: StepId, header: u32) {
        let Run { bucket, page, .. } = self.run(id);
        if self.step(id).state.expected.is_empty() && page - header <= TOGETHER {
            return self.transfer_header(id, header, page - header, true);
        }
        match self.layout.reading.entry((bucket, header)) {
            Entry::Occupied(mut others) => others.get_mut().push(id),
            Entry::Vacant(first) => {
                first.insert(Vec::new());
                self.transfer_header(id, header, 1, false);
            }
        }
    }

    fn transfer_header(&mut self, id: StepId, header: u32, before: u32, with_data: bool) {
        let Run { bucket, block, blocks, .. } = self.run(id);
        let memory = Memory::new(before as usize);
        let mut buffers = smallvec![memory.buffer(0, before)];
        let mut pages = before;
        if with_data {
            let plan = self.step(id).state.plan;
            buffers.push(self.layout.plans.region(plan, block).buffer(block, blocks));
            pages += blocks;
        }
        let offset = self.unit_offset(bucket) + u64::from(header) * BLOCK;
        let running = self.step(id);
        (running.state.memory, running.state.header) = (Some(memory), Some((header, with_data)));
        self.hand_over_part(id, FLASH, Operation::Read, offset, u64::from(pages) * BLOCK, buffers);
    }

    /// Processes a header page, if one was read. True if the data must still be read.
    pub(super) fn expects_more(&mut self, id: StepId) -> bool {
        let Some((header, with_data)) = self.step(id).state.header.take() else { return false };
        let bucket = self.run(id).bucket;
        let memory = self.step(id).state.memory.take().expect("a header page has memory");
        let waiting = if with_data { None } else { self.layout.reading.remove(&(bucket, header)) };
        let more = self.take_over(id, header, memory.page(0), with_data);
        for other in waiting.unwrap_or_default() {
            self.take_over(other, header, memory.page(0), false);
        }
        more
    }

    /// Handles an unreadable header page: the steps that waited for it try to read it themselves.
    pub(super) fn header_failed(&mut self, id: StepId) {
        if let Some((header, false)) = self.step(id).state.header.take() {
            let bucket = self.run(id).bucket;
            for other in self.layout.reading.remove(&(bucket, header)).unwrap_or_default() {
                self.read_header(other, header);
            }
        }
    }

    /// Takes the checksums for a step from a header page, and continues. True if there is more to read.
    fn take_over(&mut self, id: StepId, header: u32, bytes: &Page, with_data: bool) -> bool {
        let Run { bucket, page, blocks, .. } = self.run(id);
        let epoch = self.layout.on_flash[bucket as usize].epoch;
        let of = match self.settings.blank {
            true => self.layout.blank_headers.get(&(bucket, header)).copied().filter(|of| of.oob.epoch == epoch),
            false => header_at(bytes, self.settings.cache, epoch, header),
        };
        let expected = &mut self.step(id).state.expected;
        let before = expected.len() as u32;
        let mut elsewhere = None;
        while (expected.len() as u32) < blocks {
            match says(of.as_ref(), bytes, page + expected.len() as u32) {
                Says::Checksum(crc) => expected.push(crc),
                Says::Elsewhere(other) => {
                    elsewhere = Some(other);
                    break;
                }
                Says::Nothing => break,
            }
        }
        let found = expected.len() as u32;
        if let Some(of) = of.filter(|_| found > before) {
            let first = page + before;
            self.layout.checksums.keep(&of, bytes, bucket * self.layout.bucket_pages + first, first, found - before);
        }
        match elsewhere {
            // Another header page of the same program: the right one, or the next.
            Some(other) if other != header && (found > before) == (other > header) => self.read_header(id, other),
            _ if with_data => return false,
            _ => {
                if found == before {
                    // The header has no checksums for these pages, so they count as wrong.
                    self.step(id).state.expected.resize(blocks as usize, Err(Missing::Lost));
                }
                self.read_more(id);
            }
        }
        true
    }

    /// Repeats a read with wrong checksums, including its checksums.
    pub(super) fn read_once_more(&mut self, id: StepId) {
        let Run { bucket, page, blocks, .. } = self.run(id);
        self.layout.checksums.forget(bucket * self.layout.bucket_pages + page, blocks);
        self.read_flash(id);
    }

    /// Compares data with its checksums. True if a wrong page may be right when read again.
    pub(super) fn compare(&mut self, id: StepId) -> bool {
        let Run { block, blocks, .. } = self.run(id);
        let running = self.step(id);
        let (plan, expected) = (running.state.plan, std::mem::take(&mut running.state.expected));
        let region = self.layout.plans.region(plan, block);
        let mut wrong = false;
        for (number, block) in (block..block + u64::from(blocks)).enumerate() {
            let page = region.bytes(block * BLOCK, BLOCK as usize);
            let missing = match expected.get(number) {
                Some(Ok(crc)) if checksum::crc32c(page) == *crc => None,
                Some(Err(Missing::OfBackend)) => Some(Missing::OfBackend),
                _ => Some(Missing::Lost),
            };
            region.set_missing(block, missing);
            wrong |= missing == Some(Missing::Lost);
            if missing.is_none() {
                self.layout.failures.unreadable.remove(&block);
            }
        }
        wrong
    }

    /// Plans to read blocks from the backend that are marked as being only there. Later writes of that bucket of the
    /// backend wait for this read; a write in progress is concurrent with it.
    pub(super) fn read_below(&mut self, id: StepId) {
        let Run { block, blocks, .. } = self.run(id);
        let plan = self.step(id).state.plan;
        let region = self.layout.plans.region(plan, block);
        if !region.has_bad(block, blocks) {
            return;
        }
        let is_below = |block: &u64| region.missing(*block) == Some(Missing::OfBackend);
        let below: Vec<u64> = (block..block + u64::from(blocks)).rev().filter(is_below).collect();
        let parts: Vec<Part> = below.into_iter().map(|block| of_block(id, region, block, Operation::Read)).collect();
        if parts.is_empty() {
            return;
        }
        self.also_reads_backend(id, block);
        let running = self.step(id);
        (running.state.falls_back, running.state.next, running.state.apart) = (true, parts, true);
    }

    /// Records that a step reads the backend instead of the flash.
    pub(super) fn also_reads_backend(&mut self, id: StepId, block: u64) {
        self.order.begin(id, Use::ReadBlock(self.layout.shape.bucket_of(block)), |_| ());
    }
}
