//! Runs: a client's reads of blocks that are adjacent on flash are one step, from flash to the reply. If anything about
//! it fails, each block becomes steps of its own, which retry and fall back as usual.

use flashwise_core::format::BLOCK_BYTES;
use flashwise_core::order::{Order, StepId, Use};
use flashwise_core::step::{Frame, Step};
use smallvec::SmallVec;

use super::frames::Frames;
use super::perform::BLOCK;
use super::places::Places;
use crate::engine::{Client, FLASH, Part};
use crate::transfer::{Buffer, Operation};

/// A block of a run. The frame is that of its place in memory.
#[derive(Clone, Copy, Debug)]
struct Read {
    block: u32,
    frame: Frame,
    dirty: bool,
}

/// The blocks of a run, from a page of flash on, and where they go in the reply.
#[derive(Debug)]
pub(super) struct Run {
    slot: u32,
    to: u32,
    reads: Vec<Read>,
}

impl Run {
    /// Takes the first steps of a plan as a run, if they wait for nothing. Their bytes begin at `base` in those of the
    /// request.
    pub fn first_of(steps: &[Step], base: u32, order: &Order, places: &mut Places) -> Option<Run> {
        let mut run = Run { slot: 0, to: 0, reads: Vec::new() };
        for pair in steps.chunks_exact(2) {
            let &[Step::ReadFlash { block, slot, mut frame, dirty }, Step::Send { frame: sent, length, to, .. }] = pair
            else {
                break;
            };
            let count = run.reads.len() as u32;
            if count == 0 {
                (run.slot, run.to) = (slot, base + to);
            }
            let continues = slot == run.slot + count && base + to == run.to + count * BLOCK_BYTES as u32;
            let is_free = order.page_writer(slot).is_none() && order.blocks().writer(block).is_none();
            if frame != sent || usize::from(length) != BLOCK_BYTES || !continues || !is_free {
                break;
            }
            places.place_frame(order, &mut frame, true);
            if !order.place(frame.number).is_idle() {
                break;
            }
            run.reads.push(Read { block, frame, dirty });
        }
        (!run.reads.is_empty()).then_some(run)
    }

    /// Returns the number of its blocks.
    pub fn len(&self) -> usize {
        self.reads.len()
    }

    /// Returns its steps in the plan: of each block, the page, the read, and the step that sends it.
    pub fn steps(&self) -> impl Iterator<Item = (u32, Step, Step)> {
        (0..).zip(&self.reads).map(|(number, &Read { block, frame, dirty })| {
            let (slot, to) = (self.slot + number, self.to + number * BLOCK_BYTES as u32);
            let send = Step::Send { block, frame, at: 0, length: BLOCK_BYTES as u16, to };
            (slot, Step::ReadFlash { block, slot, frame, dirty }, send)
        })
    }

    /// Passes each resource that it uses to `each`.
    pub fn uses(&self, mut each: impl FnMut(Use)) {
        for &Read { block, frame, dirty } in &self.reads {
            each(Use::WriteMemory(frame.number));
            if !dirty {
                // It may fall back to the backend.
                each(Use::ReadBlock(block));
            }
        }
        each(Use::KeepPages(self.slot..self.slot + self.reads.len() as u32));
    }

    /// Returns its transfer.
    pub fn read(&self, step: StepId, frames: &mut Frames) -> Part {
        let mut buffers: SmallVec<[Buffer; 1]> = SmallVec::new();
        for Read { frame, .. } in &self.reads {
            let buffer = frames.buffer(Operation::Read, frame.number);
            match buffers.last_mut() {
                Some(last) if last.start.wrapping_add(last.length) == buffer.start => last.length += buffer.length,
                _ => buffers.push(buffer),
            }
        }
        let (offset, length) = (u64::from(self.slot) * BLOCK, self.reads.len() as u64 * BLOCK);
        Part { buffers, ..Part::new(step, FLASH, Operation::Read, offset, length) }
    }

    /// Sends each block to the client, if all have their checksums.
    pub fn send(&self, frames: &mut Frames, checksums: &[u32], client: &mut Client) -> bool {
        for (at, Read { frame, .. }) in self.reads.iter().enumerate() {
            let place = frame.number;
            if frames.sum(place) != checksums[self.slot as usize + at] {
                return false;
            }
            frames.set_bad(place, false);
            client.put(self.to as usize + at * BLOCK_BYTES, frames.page(place));
        }
        true
    }
}
