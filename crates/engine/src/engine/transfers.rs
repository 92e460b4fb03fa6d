//! Transfers: few of them for all parts that steps read and write, and their ends.

use std::sync::Arc;

use flashwise_core::order::StepId;
use smallvec::SmallVec;

use super::background::{Backend, Background};
use super::{BACKEND, Engine, Layout, Output};
use crate::request::Error;
use crate::transfer::{Buffer, Operation, Transfer};

/// A part of a transfer, which belongs to one step.
#[derive(Clone, Debug)]
pub struct Part {
    /// [`FLASH`](super::FLASH), [`BACKEND`] or [`JOURNAL`](super::JOURNAL).
    pub disk: usize,
    /// The operation.
    pub operation: Operation,
    /// The first byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// The memory.
    pub buffers: SmallVec<[Buffer; 1]>,
    /// The step.
    pub step: StepId,
    /// True if it yields to others.
    pub background: bool,
    /// The disk of the backend that has the bytes.
    pub lane: u16,
    /// As [`Transfer::stream`].
    pub stream: u8,
    /// True if it is not joined with others, because they failed together.
    pub alone: bool,
}

impl Part {
    /// Creates a part that a client may wait for.
    pub fn new(step: StepId, disk: usize, operation: Operation, offset: u64, length: u64) -> Part {
        let (buffers, background, lane, stream, alone) = (SmallVec::new(), false, 0, 0, false);
        Part { disk, operation, offset, length, buffers, step, background, lane, stream, alone }
    }
}

/// The parts of a transfer.
pub(super) type Group = SmallVec<[Part; 1]>;

/// The parts of a transfer that is being put together.
#[derive(Debug, Default)]
pub struct Joining {
    parts: Group,
    /// Bytes, gaps included.
    length: u64,
    buffers: Vec<Buffer>,
}

impl Joining {
    /// Returns its parts.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Returns the number of its buffers.
    pub fn buffers(&self) -> usize {
        self.buffers.len()
    }

    /// Returns the byte after it.
    pub fn end(&self) -> u64 {
        self.parts.first().map_or(0, |first| first.offset + self.length)
    }

    fn push(&mut self, part: Part) {
        self.length += part.length;
        part.buffers.iter().for_each(|&buffer| self.push_buffer(buffer));
        self.parts.push(part);
    }

    /// Adds memory, in as few pieces as possible.
    fn push_buffer(&mut self, buffer: Buffer) {
        match self.buffers.last_mut() {
            Some(last) if last.start.wrapping_add(last.length) == buffer.start => last.length += buffer.length,
            _ => self.buffers.push(buffer),
        }
    }
}

impl<L: Layout> Engine<L> {
    /// Starts to measure this backend, to keep each of its disks busy in the background.
    pub fn set_backend(&mut self, backend: Arc<dyn Backend>) {
        self.background.measure(backend);
    }

    /// Returns the disk, the operation and the offset of an unfinished transfer.
    pub fn transfer_of(&self, tag: u64) -> (usize, Operation, u64) {
        let part = &self.groups[&tag][0];
        (part.disk, part.operation, part.offset)
    }

    /// Handles the end of a transfer. An error that cannot be resolved goes to clients.
    pub fn completed(&mut self, tag: u64, result: Result<(), Error>) {
        let parts = self.groups.remove(&tag).expect("a transfer ends once");
        let first = &parts[0];
        if first.disk == BACKEND {
            self.background.ended(first);
        } else if first.background {
            self.background.ended_from_flash(parts.len());
        }
        if result.is_err() && parts.len() > 1 && L::splits(first.operation) {
            // One by one, they show which of them failed.
            self.outgoing.extend(parts.into_iter().map(|part| Part { alone: true, ..part }));
        } else {
            for part in parts {
                L::part_completed(self, part, result);
                // Its bytes are still in the processor's caches.
                self.run_ready();
            }
        }
        self.go_on();
    }

    /// Returns the work for the caller: transfers to start, and answers.
    pub fn take_output(&mut self, output: &mut Output) {
        self.prepare_output(output);
        self.hand_out(&mut output.transfers);
        self.hand_out_background(Background::next, &mut output.transfers);
        self.hand_out_background(Background::next_from_flash, &mut output.transfers);
        output.answers.append(&mut self.answers);
        output.answered.append(&mut self.answered);
        output.paused.append(&mut self.paused);
    }

    /// Finishes the step of a part that ended, or hands a failed part over again. Returns a failed part without retries
    /// left. A flush is not retried, because a second one would not report the failure.
    pub fn retry(&mut self, part: Part, result: Result<(), Error>) -> Result<(), (Part, Error)> {
        let Err(error) = result else {
            self.finish(part.step, Ok(()));
            return Ok(());
        };
        let running = self.step(part.step);
        if running.retries == 0 || part.operation == Operation::Sync {
            return Err((part, error));
        }
        running.retries -= 1;
        self.outgoing.push(part);
        Ok(())
    }

    /// Hands out a part later, with its neighbours.
    pub fn hand_over(&mut self, mut part: Part) {
        part.lane = self.background.lane_of(part.disk, part.offset);
        self.outgoing.push(part);
    }

    fn hand_out(&mut self, transfers: &mut Vec<Transfer>) {
        let mut outgoing = std::mem::take(&mut self.outgoing);
        if L::SORTS && outgoing.len() > 1 {
            outgoing.sort_by_key(|part| (part.disk, part.offset));
        }
        let mut joining = Joining::default();
        for part in outgoing.drain(..) {
            match joining.parts.first().and_then(|_| L::continues(self, &joining, &part)) {
                Some(0) => {}
                Some(gap) => {
                    joining.push_buffer(self.gap.buffer(0, (gap / super::clients::BLOCK) as u32));
                    joining.length += gap;
                }
                None => self.hand_out_joined(&mut joining, transfers),
            }
            joining.push(part);
        }
        self.hand_out_joined(&mut joining, transfers);
        self.outgoing = outgoing;
    }

    /// Hands out transfers of the background, each of the next parts.
    fn hand_out_background(&mut self, next: fn(&mut Background) -> Group, transfers: &mut Vec<Transfer>) {
        let mut joining = Joining::default();
        loop {
            next(&mut self.background).into_iter().for_each(|part| joining.push(part));
            if joining.parts.is_empty() {
                return;
            }
            self.hand_out_joined(&mut joining, transfers);
        }
    }

    fn hand_out_joined(&mut self, joining: &mut Joining, transfers: &mut Vec<Transfer>) {
        let Some(first) = joining.parts.first() else { return };
        if first.disk == BACKEND {
            self.background.started(first);
        } else if first.background {
            self.background.started_from_flash(joining.parts.len());
        }
        let tag = self.next_tag;
        self.next_tag += 1;
        let &Part { disk, operation, offset, stream, .. } = first;
        let Joining { parts, length, buffers } = std::mem::take(joining);
        transfers.push(Transfer { tag, disk, operation, offset, length, buffers, stream });
        self.groups.insert(tag, parts);
    }
}
