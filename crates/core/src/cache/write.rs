//! Writes, zeroes and flushes.

use std::ops::Range;

use super::config::BESIDE_BUFFER_BLOCKS;
use super::lost::{Anew, CleanCopy};
use super::request::{edges, parts};
use super::{BlockPart, LogCache, Mode, Request};
use crate::access::Op;
use crate::filter::Caching;
use crate::format::{BLOCK_BYTES, Kind as RecordKind};
use crate::ram::write_buffer::Chunk;
use crate::step::{Cause, Frame, Step};

/// A block to be written to flash or backend.
#[derive(Clone, Copy, Debug)]
pub(super) struct Write {
    pub block: u32,
    pub frame: Frame,
    /// True if this replaces an acknowledged write of the block that was only in memory.
    pub replaces: bool,
    /// Length in blocks of the request that wrote it.
    pub request_blocks: u32,
}

/// The origin of blocks that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    /// A client that waits for its reply.
    Client,
    /// The write buffer, to make room or for a flush.
    Buffer,
    /// The write buffer, because of their age; blocks that bypass the flash are paced.
    AgedBuffer,
}

/// The flash write in addition to a write to the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    Nothing,
    /// A clean copy, with this number of accesses to the old copy.
    Copy {
        uses: u32,
    },
    /// The copy of a block that [was lost](LogCache::add_found).
    Found,
    /// A copy in place of a dirty one, so that no crash restores that. It stays dirty until it is written back,
    /// although the backend has the same data.
    Dirty,
}

impl LogCache {
    pub(super) fn plan_write(&mut self, request: &Request, steps: &mut Vec<Step>) {
        let bypasses = self.bypasses(request, Op::Write);
        let may_stay = self.may_stay(request);
        let buffered = may_stay && !bypasses && !request.durable && self.may_wait_in_ram();
        let mut written = Vec::new();
        let (dirty_before, past_before) = (self.dirty_and_buffered(), self.past.blocks());
        for part in parts(request.offset, request.length) {
            self.figures.writes += 1;
            let may_come = || self.may_send_past() || self.write_buffer.get(part.block).is_some();
            if buffered && self.config.write_buffer_blocks > 0 && may_come() {
                self.write_buffered(part, steps);
            } else if let Some(write) = self.receive(part, steps) {
                written.push(write);
            }
        }
        let replaces_dirty = self.write_down(&written, !bypasses, may_stay, From::Client, steps);
        self.transient.extend(written.iter().map(|write| write.frame));
        let dirty = self.dirty_and_buffered().saturating_sub(dirty_before);
        self.pause(dirty, self.past.blocks() > past_before, steps);
        self.end_change(request, replaces_dirty, steps);
    }

    /// Plans a delay of the reply to a write, if needed: one that made `blocks` dirty, or sent older ones `past` the
    /// flash.
    fn pause(&mut self, blocks: u64, past: bool, steps: &mut Vec<Step>) {
        self.pace.sample(self.destaging.blocks() > 0, self.now_us);
        self.past.sample(self.now_us);
        if self.config.mode != Mode::WriteBack {
            return;
        }
        let excess_us = if past { self.past.excess_us() } else { 0 };
        let excess_us = excess_us.max(self.excess_of_flush_us());
        let buffered = self.dirty_and_buffered() - self.log.dirty_blocks();
        let until_us = self.pace.pause(blocks, excess_us, (&self.config, &self.log, buffered), self.now_us);
        steps.extend(until_us.map(|until_us| Step::Pause { until_us }));
    }

    /// Plans the steps that a change's reply waits for: a flush of everything if requested; otherwise only copies on
    /// flash that replace dirty ones (`replaces_dirty`).
    fn end_change(&mut self, request: &Request, replaces_dirty: bool, steps: &mut Vec<Step>) {
        if request.durable && request.last {
            self.make_durable(steps);
        } else if replaces_dirty {
            self.log_seal(steps);
            self.log.flush(steps);
        } else {
            return;
        }
        steps.push(Step::AwaitFlushes);
    }

    /// Writes a part of the request to the write buffer, which evicts a chunk if it is full.
    fn write_buffered(&mut self, part: BlockPart, steps: &mut Vec<Step>) {
        self.past.stays(part.block);
        if let Some(mut frame) = self.write_buffer.write(part.block) {
            self.figures.ram_write_hits += 1;
            self.frame_request_blocks[frame.number as usize] = self.request_blocks;
            if part.is_whole() {
                frame = self.frames.refilled(frame.number);
                self.write_buffer.set_frame(part.block, frame);
            }
            steps.push(receive(part, frame));
            return;
        }
        let Some(Write { frame, .. }) = self.receive(part, steps) else { return };
        if self.write_buffer.is_full()
            && !self.send_one_past(steps)
            && let Some(chunk) = self.write_buffer.pop()
        {
            self.write_chunk(&chunk, From::Buffer, steps);
        }
        self.frame_request_blocks[frame.number as usize] = self.request_blocks;
        self.write_buffer.insert(part.block, frame, self.now_us);
    }

    /// Receives a part into its own frame, on top of the block's old content if it is partial. The caller holds the
    /// frame, and the buffers no longer have the block. Returns `None` if the old content is needed but lost: the
    /// request fails.
    fn receive(&mut self, part: BlockPart, steps: &mut Vec<Step>) -> Option<Write> {
        let write = self.take_old(part, steps)?;
        steps.push(receive(part, write.frame));
        Some(write)
    }

    fn take_old(&mut self, part: BlockPart, steps: &mut Vec<Step>) -> Option<Write> {
        let (block, request_blocks) = (part.block, self.request_blocks);
        if part.is_whole() {
            let replaces = self.drop_buffered(block);
            return Some(Write { block, frame: self.frames.take(), replaces, request_blocks });
        }
        if let Some(frame) = self.write_buffer.remove(block) {
            self.past.stays(block);
            return Some(Write { block, frame, replaces: true, request_blocks });
        }
        let from = if let Some(frame) = self.read_buffer.get(block, 0) {
            self.frames.hold(frame);
            self.transient.push(frame);
            frame
        } else if self.lost.is_gone(block) {
            steps.push(Step::Fail);
            return None;
        } else {
            let slot = self.log.find(block);
            self.fetch(block, slot, steps)
        };
        self.forget_read(block);
        let to = self.frames.take();
        steps.push(Step::Copy { block, from, to });
        Some(Write { block, frame: to, replaces: false, request_blocks })
    }

    /// Removes a block from the buffers. Returns true if it was in the write buffer.
    fn drop_buffered(&mut self, block: u32) -> bool {
        self.forget_read(block);
        self.past.stays(block);
        let buffered = self.write_buffer.remove(block);
        buffered.into_iter().for_each(|frame| self.frames.release(frame));
        buffered.is_some()
    }

    /// Writes the blocks of a chunk that leaves the write buffer, and releases their frames.
    fn write_chunk(&mut self, chunk: &Chunk<Frame>, from: From, steps: &mut Vec<Step>) {
        let write = |(block, frame): (u32, Frame)| {
            let request_blocks = self.frame_request_blocks[frame.number as usize];
            Write { block, frame, replaces: false, request_blocks }
        };
        let blocks: Vec<Write> = chunk.blocks().map(write).collect();
        let may_stay = self.config.mode == Mode::WriteBack;
        let before = self.log.written_blocks(Cause::Client);
        self.write_down(&blocks, true, may_stay, from, steps);
        let to_flash = (self.log.written_blocks(Cause::Client) - before) as usize;
        self.past.left(blocks.len(), blocks.len().saturating_sub(to_flash));
        for Write { frame, .. } in blocks {
            self.frames.release(frame);
        }
    }

    /// True if an acknowledged write in RAM will find a place. False if the backend accepts nothing and the flash is
    /// full of dirty data, or if the flash is being removed.
    fn may_wait_in_ram(&self) -> bool {
        !self.is_leaving() && (!self.backend_refuses || self.has_room_for_dirty())
    }

    /// True if the flash, if any, has room for one more dirty block.
    pub fn has_room_for_dirty(&self) -> bool {
        let is_full = || self.dirty_and_buffered() >= self.config.dirty_max();
        !(self.has_flash && (self.is_pressed() || is_full()))
    }

    /// True if a lost block may be rewritten. If the flash has no room it goes to the backend, where one block at once
    /// tests if it accepts writes.
    pub fn may_write_again(&self, is_first: bool) -> bool {
        is_first || !self.backend_refuses || self.has_room_for_dirty()
    }

    /// True if written data may stay in RAM and on flash until it is written back.
    fn may_stay(&self, request: &Request) -> bool {
        self.config.mode == Mode::WriteBack && matches!(request.caching, Caching::Usual | Caching::Always)
    }

    /// Writes blocks to flash, to the backend, or to both, according to the mode and the policy (if it is consulted).
    /// `may_stay` allows them to be only on flash. Returns true if copies replaced dirty ones of blocks that may not
    /// stay. Until the new copies are on flash, a crash would restore the old ones over the backend's data.
    pub(super) fn write_down(
        &mut self,
        writes: &[Write],
        ask: bool,
        may_stay: bool,
        from: From,
        steps: &mut Vec<Step>,
    ) -> bool {
        let acknowledged = from != From::Client;
        let mut to_backend: Vec<(Write, Beside)> = Vec::new();
        let mut forgotten = Vec::new();
        let mut last = None;
        let may_pass = self.may_pass();
        for &write in writes {
            let Write { block, frame, request_blocks, .. } = write;
            self.past.forget(block);
            self.reclaim(steps);
            // For a leaving block, the policy was consulted before.
            let was_leaving = self.past.stays(block);
            let asks = ask && !was_leaving && self.config.mode != Mode::WriteAround;
            let wanted = asks && self.ask_policy(block, Op::Write, request_blocks);
            if !may_pass {
                if !wanted && self.log.policy().contains(block) {
                    self.log.policy_mut().remove(block);
                }
                self.lost.remove(block);
                self.log_add(block, frame, true, Cause::Client, steps);
                self.figures.flash_write_requests += u64::from(last.is_none_or(|last: u32| last + 1 != block));
                last = Some(block);
                continue;
            }
            let slot = self.log.find(block);
            let dirty_copy = slot.is_some_and(|slot| self.log.is_dirty(slot));
            let may_dirty = may_stay && self.log.dirty_blocks() < self.config.dirty_max();
            // At the limit a clean copy does not help: it waits for all earlier writes.
            let no_room = self.is_pressed() || (may_stay && !may_dirty);
            let refused = wanted && !dirty_copy && no_room;
            let wanted = wanted && !refused;
            if refused {
                self.log.policy_mut().refuse(block);
                self.figures.refused_write_blocks += 1;
            } else if !wanted && self.log.policy().contains(block) {
                self.log.policy_mut().remove(block);
            }
            let anew = self.anew(block, dirty_copy);
            // Acknowledged data that the backend does not accept must go to flash, regardless of the policy.
            let has_to = self.has_flash && acknowledged && self.backend_refuses && !self.is_pressed();
            if dirty_copy && !may_stay {
                self.figures.flash_write_requests += u64::from(last.is_none_or(|last: u32| last + 1 != block));
                last = Some(block);
                forgotten.push(block);
                to_backend.push((Write { replaces: false, ..write }, Beside::Dirty));
                continue;
            }
            if dirty_copy || anew == Some(Anew::Flash) || ((wanted || has_to) && may_dirty) {
                // A dirty copy is replaced on flash regardless of the policy: no crash may restore it. For a lost
                // block, no crash may restore the backend's data.
                self.lost.remove(block);
                self.log_add(block, frame, true, Cause::Client, steps);
                self.figures.flash_write_requests += u64::from(last.is_none_or(|last: u32| last + 1 != block));
                last = Some(block);
                continue;
            }
            if anew == Some(Anew::Both) {
                to_backend.push((Write { replaces: true, ..write }, Beside::Found));
                continue;
            }
            if slot.is_some_and(|slot| !(wanted && self.log.can_replace_clean(slot))) {
                self.log_mark(RecordKind::Forget, block, 0, steps);
                forgotten.push(block);
            }
            let copy = || Beside::Copy { uses: slot.map_or(0, |slot| self.log.uses(slot)) };
            to_backend.push((write, if wanted { copy() } else { Beside::Nothing }));
        }
        self.become_unsure(&forgotten, steps);
        to_backend.sort_unstable_by_key(|(write, ..)| write.block);
        let replaces_dirty = to_backend.iter().any(|(_, beside)| *beside == Beside::Dirty);
        if !to_backend.is_empty() {
            self.note_change();
        }
        for &(Write { block, frame, replaces, .. }, beside) in &to_backend {
            if from == From::AgedBuffer && beside == Beside::Nothing && self.past.is_enough() {
                self.frames.hold(frame);
                self.write_buffer.put_back(block, frame, self.now_us);
                self.past.leaves(block);
                continue;
            }
            if matches!(beside, Beside::Copy { .. }) {
                self.reclaim(steps);
            }
            // A copy to replace in memory may have been handed out for writing in the meantime.
            if let Some(slot) = self.log.find(block)
                && !matches!(beside, Beside::Found | Beside::Dirty)
                && !self.log.can_replace_clean(slot)
            {
                self.log_mark(RecordKind::Forget, block, 0, steps);
                self.become_unsure(&[block], steps);
            }
            self.figures.backend_written_blocks += 1;
            let logged = beside == Beside::Dirty;
            steps.push(Step::WriteBackend { block, frame, acknowledged, replaces, logged, batch: None });
            if acknowledged {
                self.past.begin(block, frame, &mut self.frames);
            }
            if let Some(lost) = self.lost.get_mut(block) {
                lost.on_its_way += 1;
            }
            self.unflushed.add(block..block + 1);
            match beside {
                Beside::Nothing => {}
                Beside::Found => self.add_found(block, frame, steps),
                Beside::Dirty => {
                    self.reclaim(steps);
                    // Its dirty copy may contain data of a failed write that a reader has seen.
                    self.lost.remove(block);
                    self.log_add(block, frame, true, Cause::Client, steps);
                }
                Beside::Copy { uses } => {
                    self.log_add(block, frame, false, Cause::Admission, steps);
                    if let Some(slot) = self.log.find(block) {
                        self.log.set_uses(slot, uses);
                    }
                }
            }
        }
        replaces_dirty
    }

    /// Returns the destination of new content for a block, if it is lost, or if the flash still has a record of its
    /// loss. `is_dirty` is true if the log has a dirty copy.
    fn anew(&self, block: u32, is_dirty: bool) -> Option<Anew> {
        self.lost.anew(block, is_dirty, || self.has_flash.then(|| self.has_room_for_dirty()))
    }

    /// Plans the clean copy of a lost block that goes to the backend.
    fn add_found(&mut self, block: u32, frame: Frame, steps: &mut Vec<Step>) {
        self.reclaim(steps);
        // Not earlier: a unit with a record of the loss may have been reset.
        self.lost.remove(block);
        // An earlier copy may have been handed out for writing, and becomes another record if the backend rejects its
        // data.
        if self.log.find(block).is_some_and(|slot| !self.log.can_replace_clean(slot)) {
            self.log_mark(RecordKind::Lost, block, 0, steps);
        }
        self.log_add(block, frame, false, Cause::Admission, steps);
        if let Some(slot) = self.log.find(block) {
            self.lost.add_found(block, CleanCopy { slot, sequence: *self.log.sequences().end() });
        }
    }

    pub(super) fn plan_flush(&mut self, steps: &mut Vec<Step>) {
        self.figures.flushes += 1;
        self.past.flushed(self.now_us);
        let can_be_durable = self.can_be_durable();
        if !self.flash_failed {
            self.flush_down(steps);
        }
        steps.push(Step::AwaitFlushes);
        if self.flash_failed || !can_be_durable {
            steps.push(Step::Fail);
        }
    }

    /// Plans to move all writes to flash or the backend and make them durable.
    pub(super) fn flush_down(&mut self, steps: &mut Vec<Step>) {
        self.write_down_all(From::Buffer, steps);
    }

    /// Plans the same for writes that have been in RAM for long enough. The backend takes its part at its own pace.
    pub(super) fn commit(&mut self, steps: &mut Vec<Step>) {
        self.write_down_all(From::AgedBuffer, steps);
    }

    fn write_down_all(&mut self, from: From, steps: &mut Vec<Step>) {
        for chunk in self.write_buffer.drain() {
            self.write_chunk(&chunk, from, steps);
        }
        self.make_flash_durable(steps);
        // Otherwise the backend is flushed after the last leaving block was sent.
        if self.past.leaving() == 0 {
            self.flush_backend(steps);
        }
    }

    /// Sends leaving blocks past the flash until enough writes are in progress.
    pub(super) fn send_past(&mut self, steps: &mut Vec<Step>) {
        while !self.past.is_enough() && self.send_one_past(steps) {}
    }

    /// Sends the first leaving block. Returns false if there is none.
    fn send_one_past(&mut self, steps: &mut Vec<Step>) -> bool {
        let Some(block) = self.past.first_leaving() else { return false };
        let frame = self.write_buffer.remove(block).expect("a block that is leaving is in the write buffer");
        let request_blocks = self.frame_request_blocks[frame.number as usize];
        let write = Write { block, frame, replaces: false, request_blocks };
        self.write_down(&[write], true, self.config.mode == Mode::WriteBack, From::Buffer, steps);
        self.frames.release(frame);
        if self.past.leaving() == 0 {
            self.flush_backend(steps);
        }
        true
    }

    /// Returns the blocks and frames of acknowledged writes in progress past the flash, in the order of blocks.
    pub fn going_past(&self) -> Vec<(u32, u32)> {
        self.past.writes()
    }

    /// See [`Past::excess_of_flush_us`](super::past::Past::excess_of_flush_us).
    fn excess_of_flush_us(&self) -> u64 {
        let buffered = self.write_buffer.len() as f64;
        let beyond = self.dirty_and_buffered().saturating_sub(self.config.dirty_max()) as f64;
        self.past.excess_of_flush_us(buffered, beyond.min(buffered), self.now_us)
    }

    /// True if one more block may enter the write buffer. False if so many are in progress past the flash that its
    /// writer has to wait for the backend itself.
    fn may_send_past(&self) -> bool {
        let most = self.config.write_buffer_blocks as usize + BESIDE_BUFFER_BLOCKS as usize;
        self.write_buffer.len() + self.past.blocks() < most
            && !self.past.is_too_many(self.write_buffer.is_full(), || self.excess_of_flush_us())
    }

    pub(super) fn make_durable(&mut self, steps: &mut Vec<Step>) {
        self.make_flash_durable(steps);
        self.flush_backend(steps);
    }

    /// Plans to make the flash durable, which ends the open epoch.
    fn make_flash_durable(&mut self, steps: &mut Vec<Step>) {
        self.record_lost(steps);
        let ends = self.mark_epoch_end(steps);
        if self.log.open_matters() || self.lost.has_found() {
            self.log_seal(steps);
        }
        if ends {
            self.epoch_ended();
        }
        self.log.flush(steps);
    }

    /// Plans records for blocks whose loss is only known in memory: acknowledged data must not reappear in an older
    /// version.
    fn record_lost(&mut self, steps: &mut Vec<Step>) {
        if !self.has_flash {
            return;
        }
        for block in self.lost.such(|lost| lost.is_unsaid() && lost.on_its_way == 0) {
            self.reclaim(steps);
            self.mark_lost(block, steps);
        }
    }

    pub(super) fn flush_backend(&mut self, steps: &mut Vec<Step>) {
        if self.unflushed.begin_flush() {
            steps.push(Step::FlushBackend { batch: None });
        }
    }

    /// Plans a trim or zeroing. A trim only discards whole blocks.
    pub(super) fn plan_zeroes(&mut self, request: &Request, trim: bool, may_punch_holes: bool, steps: &mut Vec<Step>) {
        let mut whole = request.blocks();
        let block_bytes = BLOCK_BYTES as u64;
        whole.start += u32::from(!request.offset.is_multiple_of(block_bytes));
        whole.end -= u32::from(!(request.offset + request.length).is_multiple_of(block_bytes));
        let may_pass = self.may_pass() || request.caching == Caching::Unowned;
        let zeroes_dirty = match (whole.is_empty(), may_pass) {
            (true, _) => false,
            (false, true) => self.zero_whole(&whole, may_punch_holes, steps),
            (false, false) => {
                self.log_zeroes(&whole, steps);
                false
            }
        };
        let mut written = Vec::new();
        for part in if trim { Vec::new() } else { edges(request.offset, request.length) } {
            self.touched.add(part.block..part.block + 1);
            if let Some(write) = self.take_old(part, steps) {
                steps.push(Step::Zero { frame: write.frame, at: part.at, length: part.length });
                written.push(write);
            }
        }
        let (ask, may_stay) = (request.caching != Caching::Never, self.may_stay(request));
        let replaces_dirty =
            self.write_down(&written, ask, may_stay, From::Client, steps) || zeroes_dirty && !trim && !may_stay;
        self.transient.extend(written.iter().map(|write| write.frame));
        self.end_change(request, replaces_dirty, steps);
    }

    /// Plans zeroing of whole blocks. Returns true if dirty copies were replaced.
    fn zero_whole(&mut self, blocks: &Range<u32>, may_punch_holes: bool, steps: &mut Vec<Step>) -> bool {
        let mut replaces_dirty = false;
        self.figures.zeroed_blocks += blocks.len() as u64;
        self.note_change();
        let mut zeroes = None;
        let mut marked = Vec::new();
        let (mut replaces, mut clean) = (Vec::new(), Vec::new());
        let mut known = blocks.clone();
        while let Some(block) = self.touched.next(known.clone()).map(|region| region.start) {
            known.start = block + 1;
            self.reclaim(steps);
            if self.drop_buffered(block) {
                replaces.push(block);
            }
            self.log.policy_mut().remove(block);
            self.past.forget(block);
            let slot = self.log.find(block);
            let has_dirty_copy = slot.is_some_and(|slot| self.log.is_dirty(slot));
            let anew = self.anew(block, has_dirty_copy);
            if matches!(anew, Some(Anew::Backend | Anew::Both)) {
                replaces.push(block);
            }
            if anew != Some(Anew::Both) {
                self.lost.remove(block);
            }
            replaces_dirty |= has_dirty_copy;
            let needs_zeroes = matches!(anew, Some(Anew::Flash | Anew::Both)) || has_dirty_copy;
            let zeroes = needs_zeroes.then(|| {
                *zeroes.get_or_insert_with(|| {
                    let frame = self.frames.take();
                    self.transient.push(frame);
                    steps.push(Step::Zero { frame, at: 0, length: BLOCK_BYTES as u16 });
                    frame
                })
            });
            if anew == Some(Anew::Both) {
                clean.extend(zeroes.map(|frame| (block, frame)));
            } else if let Some(frame) = zeroes {
                // Behind a dirty copy that is not durable there may be an older clean one.
                self.log_add(block, frame, true, Cause::Client, steps);
                marked.push(block);
            } else if slot.is_some() {
                self.log_mark(RecordKind::Forget, block, 0, steps);
                marked.push(block);
            }
        }
        self.become_unsure(&marked, steps);
        let (block, count) = (blocks.start, blocks.len() as u32);
        steps.push(Step::ZeroBackend { block, count, may_punch_holes, replaces });
        self.unflushed.add(block..block + count);
        for (block, frame) in clean {
            self.add_found(block, frame, steps);
        }
        replaces_dirty
    }

    /// Plans zeroes of whole blocks in the log.
    fn log_zeroes(&mut self, blocks: &Range<u32>, steps: &mut Vec<Step>) {
        self.figures.zeroed_blocks += blocks.len() as u64;
        self.touched.add(blocks.clone());
        let frame = self.take_transient();
        steps.push(Step::Zero { frame, at: 0, length: BLOCK_BYTES as u16 });
        for block in blocks.clone() {
            self.reclaim(steps);
            self.drop_buffered(block);
            self.log.policy_mut().remove(block);
            self.past.forget(block);
            self.lost.remove(block);
            self.log_add(block, frame, true, Cause::Client, steps);
        }
    }
}

fn receive(part: BlockPart, frame: Frame) -> Step {
    Step::Receive { block: part.block, frame, at: part.at, length: part.length, from: part.from }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::{Cache, Config, Event, Kind};
    use super::*;
    use crate::format::Geometry;
    use crate::layout::containers::Log;

    /// Unknown blocks are not visited one by one: there are four billion.
    #[test]
    fn a_trim_of_16_tib_costs_only_its_cached_blocks() {
        let geometry = Geometry { units: 24, unit_pages: 64 };
        let mut cache =
            LogCache::new(Config::new(geometry, "lru".parse().unwrap()), Log::new(geometry), HashMap::new());
        let ask = |cache: &mut LogCache, kind, block: u64, blocks: u64| {
            let (request, mut steps) = (Request::whole(kind, block * 4096, blocks * 4096, false), Vec::new());
            cache.on(Event::Request { request: &request, now_us: 1 }, &mut steps);
            steps.iter().for_each(|step| cache.on(Event::Done(step), &mut Vec::new()));
            steps
        };
        let written = [7, 70_000, 4_000_000_000];
        let _ = written.map(|block| ask(&mut cache, Kind::Write, block, 1));
        ask(&mut cache, Kind::Flush, 0, 0);
        let most = u64::from(u32::MAX);
        let steps = ask(&mut cache, Kind::Trim, 0, most);
        let of_all = |step: &&Step| matches!(step, Step::ZeroBackend { block: 0, count: u32::MAX, .. });
        assert_eq!(steps.iter().filter(of_all).count(), 1);
        // Zeroes replace the dirty copies.
        assert!(written.iter().all(|&block| steps.iter().any(|step| match step {
            Step::Append(segment) => segment.records.iter().any(|record| u64::from(record.block) == block),
            _ => false,
        })));
        assert_eq!(cache.figures().zeroed_blocks, most);
    }
}
