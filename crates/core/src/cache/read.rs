//! Reads: from RAM, flash or the backend, with admission by the policy.

use super::{LogCache, Request, parts};
use crate::access::{Access, NEVER, Op};
use crate::filter::Caching;
use crate::format::BLOCK_BYTES;
use crate::policy::{Outcome, Policy};
use crate::step::{Cause, Frame, Step};

impl LogCache {
    pub(super) fn plan_read(&mut self, request: &Request, send: bool, steps: &mut Vec<Step>) {
        let bypasses = self.bypasses(request, Op::Read);
        // The processor overlaps the memory accesses of many lookups.
        parts(request.offset, request.length).skip(1).for_each(|part| self.log.prefetch(part.block));
        for part in parts(request.offset, request.length) {
            self.figures.reads += 1;
            match self.read_block(part.block, !bypasses, steps) {
                Some(frame) if send => {
                    steps.push(Step::Send { block: part.block, frame, at: part.at, length: part.length, to: part.from })
                }
                Some(_) => {}
                None => steps.push(Step::Fail),
            }
        }
    }

    /// True if a request bypasses the flash: by the client's list, or else as part of a sequential stream.
    pub(super) fn bypasses(&mut self, request: &Request, op: Op) -> bool {
        let block_bytes = BLOCK_BYTES as u64;
        let first = request.offset / block_bytes;
        let end = (request.offset + request.length).div_ceil(block_bytes);
        let blocks = end - first;
        let (bypasses, counted) = match request.caching {
            Caching::Always => return false,
            Caching::Never | Caching::Unowned => (true, &mut self.figures.filtered_blocks),
            Caching::Usual | Caching::Through => {
                (self.streams.observe(first, blocks, op), &mut self.figures.sequential_blocks)
            }
        };
        *counted += if bypasses { blocks } else { 0 };
        bypasses
    }

    /// Loads a block into memory for a reader; `None` if it was lost. `cached` is true if the policy is consulted and
    /// the read buffer filled.
    fn read_block(&mut self, block: u32, cached: bool, steps: &mut Vec<Step>) -> Option<Frame> {
        if let Some(frame) = self.write_buffer.get(block).or_else(|| self.read_buffer.get(block, self.pin)) {
            self.figures.ram_read_hits += 1;
            self.frames.hold(frame);
            self.transient.push(frame);
            return Some(frame);
        }
        if self.lost.is_gone(block) {
            return None;
        }
        self.reclaim(steps);
        let slot = self.log.find(block);
        let admitted = cached && self.ask_policy(block, Op::Read, self.request_blocks);
        if slot.is_some() {
            self.figures.flash_read_hits += 1;
        }
        let frame = self.fetch(block, slot, steps);
        if slot.is_none() && admitted && (self.flash_failed || self.is_pressed()) {
            self.log.policy_mut().refuse(block);
            self.figures.refused_read_blocks += 1;
        } else if slot.is_none() && admitted {
            self.log_add(block, frame, false, Cause::Admission, steps);
        }
        if cached {
            self.keep_for_reading(block, frame);
        }
        Some(frame)
    }

    /// Passes the policy the time, and the flash writes in addition to those that it requested.
    pub(super) fn tick_policy(&mut self, now_us: u64) {
        let others = self.count_others_written();
        let more = others - std::mem::replace(&mut self.others_written, others);
        let policy = self.log.policy_mut();
        policy.note_others_written(more);
        policy.tick(now_us);
    }

    /// Returns the blocks that the admission rule lets the flash be written with per day; none if it has no budget.
    pub fn budget_blocks_per_day(&self) -> Option<f64> {
        let rule = &self.config.admission.as_ref()?.rule;
        Some(rule.writes_per_day()? * self.config.capacity_blocks() as f64)
    }

    /// Adds `credit` blocks to the rest of the admission rule's budget, then limits the rest to `left_max` blocks.
    pub fn settle_budget(&mut self, credit: f64, left_max: f64) {
        let policy = self.log.policy_mut();
        policy.note_others_written(-credit);
        policy.limit_budget(left_max);
    }

    /// Returns the blocks written to flash, minus the policy's admissions and write hits.
    pub(super) fn count_others_written(&self) -> f64 {
        let blocks = [Cause::Client, Cause::Admission, Cause::CopyForward].map(|cause| self.log.written_blocks(cause));
        let written = blocks.iter().sum::<u64>() + self.log.metadata_pages();
        written as f64 - self.counters.flash_writes_blocks() as f64
    }

    /// Consults the policy about an access. Returns true if the block should be on flash afterwards.
    pub(super) fn ask_policy(&mut self, block: u32, op: Op, request_blocks: u32) -> bool {
        let leaves = !self.admitting;
        if leaves && !(op == Op::Write && self.may_dirty_while_leaving()) {
            return false;
        }
        let access = Access { block, op, request_blocks, next_use: NEVER };
        let outcome = self.log.policy_mut().access(access);
        self.counters.record(op, &outcome);
        if outcome == Outcome::Hit
            && let Some(slot) = self.log.find(block)
        {
            self.log.note_use(slot);
        }
        let admitted = outcome != Outcome::Bypass;
        if leaves && admitted {
            self.pace.use_credit();
        }
        admitted
    }

    /// Returns the content of a block that is not in a buffer, in a frame held until the request is planned.
    pub(super) fn fetch(&mut self, block: u32, slot: Option<u32>, steps: &mut Vec<Step>) -> Frame {
        let in_memory = slot.map_or_else(|| self.past.get(block), |slot| self.log.in_memory(slot));
        if let Some(frame) = in_memory {
            self.frames.hold(frame);
            self.transient.push(frame);
            return frame;
        }
        let frame = self.take_transient();
        match slot {
            Some(slot) => steps.push(Step::ReadFlash { block, slot, frame, dirty: self.log.is_dirty(slot) }),
            None => {
                self.figures.backend_read_blocks += 1;
                steps.push(Step::ReadBackend { block, frame });
            }
        }
        frame
    }

    pub(super) fn take_transient(&mut self) -> Frame {
        let frame = self.frames.take();
        self.transient.push(frame);
        frame
    }

    fn keep_for_reading(&mut self, block: u32, frame: Frame) {
        if self.config.read_buffer_blocks == 0 {
            return;
        }
        self.forget_read(block);
        self.frames.hold(frame);
        if let Some((_, evicted)) = self.read_buffer.insert(block, frame, self.pin) {
            self.frames.release(evicted);
        }
    }

    pub(super) fn forget_read(&mut self, block: u32) {
        if let Some(frame) = self.read_buffer.remove(block) {
            self.frames.release(frame);
        }
    }
}
