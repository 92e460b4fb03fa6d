//! Writes, zeroes and flushes.

use super::{Cache, Mode, Part, Request, parts};
use crate::access::Op;
use crate::format::{BLOCK_BYTES, Kind as RecordKind};
use crate::layout::containers::Cause;
use crate::ram::write_buffer::Chunk;
use crate::step::{Frame, Step};

impl Cache {
    pub(super) fn plan_write(&mut self, request: &Request, steps: &mut Vec<Step>) {
        let sequential = self.is_sequential(request, Op::Write);
        let buffered = self.config.mode == Mode::WriteBack && !sequential && !request.durable;
        let mut written = Vec::new();
        for part in parts(request.offset, request.length) {
            self.figures.written_blocks += 1;
            self.figures.sequential_blocks += u64::from(sequential);
            if buffered && self.config.write_buffer_blocks > 0 {
                self.write_buffered(part, steps);
            } else if let Some(frame) = self.receive(part, steps) {
                written.push((part.block, frame));
            }
        }
        self.write_down(&written, !sequential, false, steps);
        self.transient.extend(written.iter().map(|(_, frame)| *frame));
        if request.durable && request.last {
            self.make_durable(steps);
            steps.push(Step::AwaitFlushes);
        }
    }

    /// Puts a part of the request into the write buffer, which gives up a chunk if it is full.
    fn write_buffered(&mut self, part: Part, steps: &mut Vec<Step>) {
        if let Some(mut frame) = self.write_buffer.write(part.block) {
            self.figures.ram_write_hits += 1;
            if part.is_whole() {
                frame = self.frames.refilled(frame.number);
                self.write_buffer.set_frame(part.block, frame);
            }
            steps.push(receive(part, frame));
            return;
        }
        let Some(frame) = self.receive(part, steps) else { return };
        if self.write_buffer.is_full()
            && let Some(chunk) = self.write_buffer.pop()
        {
            self.write_chunk(&chunk, steps);
        }
        self.write_buffer.insert(part.block, frame, self.now_us);
    }

    /// Receives a part into a frame of its own, over the block's old content if it is not whole. The caller holds the frame; the
    /// buffers no longer have the block. `None` if the old content is needed and lost: the request fails.
    fn receive(&mut self, part: Part, steps: &mut Vec<Step>) -> Option<Frame> {
        let frame = self.take_old(part, steps)?;
        steps.push(receive(part, frame));
        Some(frame)
    }

    fn take_old(&mut self, part: Part, steps: &mut Vec<Step>) -> Option<Frame> {
        let block = part.block;
        if part.is_whole() {
            if let Some(frame) = self.write_buffer.remove(block) {
                self.frames.release(frame);
            }
            self.forget_read(block);
            return Some(self.frames.take());
        }
        if let Some(frame) = self.write_buffer.remove(block) {
            return Some(frame);
        }
        let from = if let Some(frame) = self.read_buffer.get(block) {
            self.frames.hold(frame);
            self.transient.push(frame);
            frame
        } else if self.lost.contains_key(&block) {
            steps.push(Step::Fail);
            return None;
        } else {
            let slot = self.log.find(block);
            self.fetch(block, slot, steps)
        };
        self.forget_read(block);
        let to = self.frames.take();
        steps.push(Step::Copy { block, from, to });
        Some(to)
    }

    /// Writes the blocks of a chunk, which leave the write buffer, and gives their frames back.
    fn write_chunk(&mut self, chunk: &Chunk<Frame>, steps: &mut Vec<Step>) {
        let blocks: Vec<(u32, Frame)> = chunk.blocks().collect();
        self.write_down(&blocks, true, true, steps);
        for (_, frame) in blocks {
            self.frames.release(frame);
        }
    }

    /// Writes blocks to flash, to the backend, or to both, as mode and policy (if it is asked) say. `acknowledged`: the client has had
    /// its answer.
    pub(super) fn write_down(&mut self, writes: &[(u32, Frame)], ask: bool, acknowledged: bool, steps: &mut Vec<Step>) {
        let mut to_backend: Vec<(u32, Frame, bool)> = Vec::new();
        let mut forgot = false;
        for &(block, frame) in writes {
            self.reclaim(steps);
            let wanted = ask && self.config.mode != Mode::WriteAround && self.ask_policy(block, Op::Write);
            let slot = self.log.find(block);
            let dirty_copy = slot.is_some_and(|slot| self.log.is_dirty(slot));
            let wanted = wanted && (dirty_copy || !self.is_pressed());
            if !wanted && self.policy.contains(block) {
                self.policy.remove(block);
            }
            let may_dirty = self.config.mode == Mode::WriteBack && self.log.dirty_blocks() < self.config.dirty_max();
            if dirty_copy || (wanted && may_dirty) {
                // A dirty copy is replaced on flash whatever the policy says: no crash may bring it back.
                self.lost.remove(&block);
                self.log_add(block, frame, true, Cause::Client, steps);
                continue;
            }
            if slot.is_some() || self.lost.remove(&block).is_some() {
                self.log_mark(RecordKind::Forget, block, 0, steps);
                forgot = true;
            }
            to_backend.push((block, frame, wanted));
        }
        if forgot {
            self.log_seal(steps);
            self.log.flush(steps);
        }
        to_backend.sort_unstable_by_key(|&(block, ..)| block);
        for &(block, frame, wanted) in &to_backend {
            self.figures.backend_written_blocks += 1;
            steps.push(Step::WriteBackend { block, frame, acknowledged });
            self.backend_unflushed = true;
            if wanted {
                self.reclaim(steps);
                self.log_add(block, frame, false, Cause::Admission, steps);
                self.log.need_backend_flush();
            }
        }
    }

    /// Plans that all that was written reaches flash or the backend and stays there.
    pub(super) fn flush_down(&mut self, steps: &mut Vec<Step>) {
        for chunk in self.write_buffer.drain() {
            self.write_chunk(&chunk, steps);
        }
        self.make_durable(steps);
    }

    pub(super) fn make_durable(&mut self, steps: &mut Vec<Step>) {
        if self.log.open_matters() {
            self.log_seal(steps);
        }
        self.log.flush(steps);
        self.flush_backend(steps);
    }

    pub(super) fn flush_backend(&mut self, steps: &mut Vec<Step>) {
        if self.backend_unflushed {
            self.backend_unflushed = false;
            steps.push(Step::FlushBackend);
        }
    }

    /// Plans a trim or writing zeroes. Of a trim, only whole blocks are given up.
    pub(super) fn plan_zeroes(&mut self, request: &Request, trim: bool, may_punch_holes: bool, steps: &mut Vec<Step>) {
        let (mut whole, mut edges) = (Vec::new(), Vec::new());
        for part in parts(request.offset, request.length) {
            if part.is_whole() {
                whole.push(part.block);
            } else if !trim {
                edges.push(part);
            }
        }
        self.zero_whole(&whole, may_punch_holes, steps);
        let mut written = Vec::new();
        for part in edges {
            if let Some(frame) = self.take_old(part, steps) {
                steps.push(Step::Zero { frame, at: part.at, length: part.length });
                written.push((part.block, frame));
            }
        }
        self.write_down(&written, true, false, steps);
        self.transient.extend(written.iter().map(|(_, frame)| *frame));
        if request.durable && request.last {
            self.make_durable(steps);
            steps.push(Step::AwaitFlushes);
        }
    }

    fn zero_whole(&mut self, blocks: &[u32], may_punch_holes: bool, steps: &mut Vec<Step>) {
        let (Some(&first), Some(&last)) = (blocks.first(), blocks.last()) else { return };
        self.figures.zeroed_blocks += blocks.len() as u64;
        let mut zeroes = None;
        let mut forgot = false;
        for &block in blocks {
            self.reclaim(steps);
            if let Some(frame) = self.write_buffer.remove(block) {
                self.frames.release(frame);
            }
            self.forget_read(block);
            self.policy.remove(block);
            let slot = self.log.find(block);
            if slot.is_some_and(|slot| self.log.is_dirty(slot)) {
                let frame = *zeroes.get_or_insert_with(|| {
                    let frame = self.frames.take();
                    self.transient.push(frame);
                    steps.push(Step::Zero { frame, at: 0, length: BLOCK_BYTES as u16 });
                    frame
                });
                self.log_add(block, frame, true, Cause::Client, steps);
            } else if slot.is_some() || self.lost.remove(&block).is_some() {
                self.log_mark(RecordKind::Forget, block, 0, steps);
                forgot = true;
            }
        }
        if forgot {
            self.log_seal(steps);
            self.log.flush(steps);
        }
        steps.push(Step::ZeroBackend { block: first, count: last - first + 1, may_punch_holes });
        self.backend_unflushed = true;
    }
}

fn receive(part: Part, frame: Frame) -> Step {
    Step::Receive { block: part.block, frame, at: part.at, length: part.length, from: part.from }
}
