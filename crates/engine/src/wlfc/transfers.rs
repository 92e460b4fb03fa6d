//! Transfers: what steps read and write, as few of them as possible, and what becomes of them.

use flashwise_core::cache::Cache;
use flashwise_core::order::StepId;
use flashwise_core::wlfc::Step;
use smallvec::{SmallVec, smallvec};

use super::Engine;
use super::memory::{BLOCK, Region};
use crate::disk::{Buffer, Operation, Transfer};
use crate::engine::{BACKEND, FLASH, Output};
use crate::export::Error;

/// Buffers of a transfer: as many as the kernel takes at once.
pub(super) const BUFFERS_MAX: usize = 1024;

/// The most pages between two that are read together: what is between logs of one bucket is their headers and other logs, and what is between the
/// blocks that logs lack in the backend is as short. A disk reads them sooner than it takes another request.
pub(super) const GAP_PAGES_MAX: usize = 8;

/// A piece of a step that is transferred.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub disk: usize,
    pub operation: Operation,
    pub offset: u64,
    pub length: u64,
    pub buffers: SmallVec<[Buffer; 2]>,
    /// It is not transferred together with others.
    pub alone: bool,
}

impl Part {
    /// One block of the backend.
    pub fn of_block(region: &mut Region, block: u64, operation: Operation) -> Part {
        let buffers = smallvec![region.buffer(block, 1)];
        Part { disk: BACKEND, operation, offset: block * BLOCK, length: BLOCK, buffers, alone: false }
    }

    /// How far behind `end` it begins, if it is transferred together with what `first` begins and ends there. `bucket_bytes` are those of a
    /// bucket on its disk.
    fn continues(&self, first: &Part, end: u64, bucket_bytes: u64) -> Option<u64> {
        let gap = self.offset.checked_sub(end)?;
        let are_alike = (self.disk, self.operation) == (first.disk, first.operation) && !self.alone && !first.alone;
        let in_bucket = self.offset / bucket_bytes == first.offset / bucket_bytes;
        let together = match self.operation {
            Operation::Read => gap == 0 && self.disk == FLASH || in_bucket && gap <= GAP_PAGES_MAX as u64 * BLOCK,
            Operation::Write => gap == 0 && self.disk == FLASH && in_bucket,
            Operation::Sync => gap == 0,
            _ => false,
        };
        (are_alike && together).then_some(gap)
    }
}

impl<C: Cache<Step = Step>> Engine<C> {
    /// The disk, the operation and the offset of a transfer that has not ended.
    pub fn transfer_of(&self, tag: u64) -> (usize, Operation, u64) {
        let (_, part) = &self.transfers[&tag][0];
        (part.disk, part.operation, part.offset)
    }

    /// What is to be done after calls: transfers, and answers to give.
    pub fn take_output(&mut self, output: &mut Output) {
        if self.stopped.is_some() && !self.postponed.is_empty() {
            // Nothing moves any more, and what did not is where it was.
            std::mem::take(&mut self.postponed).into_iter().for_each(|id| self.finish(id, false));
            self.run_ready();
        }
        self.admit_delayed();
        if self.running == 0 && self.is_given_up() {
            self.lose_answered();
        }
        if self.outgoing.len() > 1 {
            // Logs that are read together are next to each other on flash, with their headers.
            self.outgoing.sort_by_key(|(_, part)| (part.disk, part.offset));
        }
        let mut outgoing = self.outgoing.drain(..).peekable();
        while let Some(first) = outgoing.next() {
            let (disk, operation, offset) = (first.1.disk, first.1.operation, first.1.offset);
            let (mut length, mut buffers) = (first.1.length, first.1.buffers.to_vec());
            let mut parts: SmallVec<[(StepId, Part); 1]> = smallvec![first];
            let bucket_bytes = if disk == FLASH { self.unit_bytes } else { u64::from(self.bucket_blocks) * BLOCK };
            while let Some((_, part)) = outgoing.peek()
                && let Some(gap) = part.continues(&parts[0].1, offset + length, bucket_bytes)
                && buffers.len() + part.buffers.len() < BUFFERS_MAX
            {
                let (step, part) = outgoing.next().expect("it was seen");
                if gap > 0 {
                    buffers.push(self.gap.buffer(0, (gap / BLOCK) as u32));
                }
                length += gap + part.length;
                buffers.extend(part.buffers.iter().copied());
                parts.push((step, part));
            }
            let tag = self.next_tag;
            self.next_tag += 1;
            output.transfers.push(Transfer { tag, disk, operation, offset, length, buffers, stream: 0 });
            self.transfers.insert(tag, parts);
        }
        if self.running == 0 && !self.held.is_empty() {
            self.held.sort_unstable_by_key(|(number, ..)| *number);
            output.held.extend(self.held.drain(..).map(|(_, request, done)| (request, done)));
        }
        output.answers.append(&mut self.answers);
        output.answered.append(&mut self.answered);
    }

    /// Is told that a transfer ended.
    pub fn completed(&mut self, tag: u64, result: Result<(), Error>) {
        let parts = self.transfers.remove(&tag).expect("a transfer ends once");
        let are_several = parts.len() > 1;
        for (id, part) in parts {
            if are_several && result.is_err() && part.operation == Operation::Read {
                // Which of them cannot be read is found out one by one. What is programmed is tried again together, in order.
                self.outgoing.push((id, Part { alone: true, ..part }));
            } else {
                self.part_completed(id, part, result);
            }
        }
        self.run_ready();
    }
}
