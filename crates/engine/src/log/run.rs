//! Runs: a client's reads of blocks that are adjacent on flash are one step, from flash to the reply. If anything about
//! it fails, each block becomes steps of its own, which retry and fall back as usual.

use flashwise_core::cache::{Cache, Event};
use flashwise_core::format::BLOCK_BYTES;
use flashwise_core::order::{Bond, StepId, Use};
use flashwise_core::step::{Frame, Step};
use smallvec::SmallVec;

use super::{Engine, State};
use crate::engine::{FLASH, Part};
use crate::request::Error;
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
    /// Returns the pages of its blocks, with the read of each.
    fn steps(&self) -> impl Iterator<Item = (u32, Step)> {
        (self.slot..)
            .zip(&self.reads)
            .map(|(slot, &Read { block, frame, dirty })| (slot, Step::ReadFlash { block, slot, frame, dirty }))
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
}

impl<C: Cache<Step = Step>> Engine<C> {
    /// Enters the first steps of a plan as a run, if they wait for nothing. Returns their number.
    pub(super) fn enqueue_run(&mut self, steps: &[Step], client: u32, base: u32) -> usize {
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
            let is_free = self.order.page_writer(slot).is_none() && self.order.blocks().writer(block).is_none();
            if frame != sent || usize::from(length) != BLOCK_BYTES || !continues || !is_free {
                break;
            }
            self.layout.places.place_frame(&self.order, &mut frame, true);
            if !self.order.place(frame.number).is_idle() {
                break;
            }
            run.reads.push(Read { block, frame, dirty });
        }
        let Some(&Read { block, frame, dirty }) = run.reads.first() else { return 0 };
        let (count, first) = (run.reads.len(), Step::ReadFlash { block, slot: run.slot, frame, dirty });
        let state = State { planned_us: self.now_us, run: Some(Box::new(run)), ..State::default() };
        let id = self.add(first, Some(client), state);
        self.begin_uses(id, |_, _| unreachable!("it waits for nothing"));
        self.steps.wait_for(id, std::iter::empty());
        2 * count
    }

    /// Starts a run.
    pub(super) fn read_run(&mut self, id: StepId) {
        let run = self.steps.get(id).state.run.as_deref();
        let Run { slot, reads, .. } = run.expect("the step is a run");
        let mut buffers: SmallVec<[Buffer; 1]> = SmallVec::new();
        for Read { frame, .. } in reads {
            self.layout.sums[frame.number as usize] = None;
            let buffer = self.layout.memory.buffer(frame.number, 1);
            match buffers.last_mut() {
                Some(last) if last.start.wrapping_add(last.length) == buffer.start => last.length += buffer.length,
                _ => buffers.push(buffer),
            }
        }
        let (offset, length) = (u64::from(*slot) * super::perform::BLOCK, reads.len() as u64 * super::perform::BLOCK);
        self.hand_over_part(Part { buffers, ..Part::new(id, FLASH, Operation::Read, offset, length) });
    }

    /// Handles the end of the transfer of a run.
    pub(super) fn run_ended(&mut self, id: StepId, result: Result<(), Error>) {
        self.step(id).state.transfers -= 1;
        if result.is_ok() && self.send_run(id) {
            self.finish(id, Ok(()));
        } else {
            self.split(id);
        }
    }

    /// Sends each block of a run to the client, if all have their checksums.
    fn send_run(&mut self, id: StepId) -> bool {
        let running = self.steps.get(id);
        let client = self.clients.get_mut(running.request.expect("a client waits for a run"));
        let Run { slot, to, reads } = running.state.run.as_deref().expect("the step is a run");
        for (at, Read { frame, .. }) in reads.iter().enumerate() {
            let place = frame.number;
            if self.layout.sum(place) != self.layout.checksums[*slot as usize + at] {
                return false;
            }
            self.layout.bad[place as usize] = false;
            client.put(*to as usize + at * BLOCK_BYTES, self.layout.memory.page(place));
        }
        true
    }

    /// Tells the cache that the reads of a run are done.
    pub(super) fn tell_run(&mut self, run: &Run) {
        for (_, mut step) in run.steps() {
            self.layout.places.unplace_frames(&mut step);
            self.tell(Event::Done(&step));
        }
    }

    /// Puts steps for each block in the place of a run.
    fn split(&mut self, id: StepId) {
        self.replace(id, |engine, running| {
            let (run, request) = (running.state.run.expect("the step is a run"), running.request);
            let mut steps = Vec::with_capacity(2 * run.reads.len());
            for (number, (slot, step)) in (0..).zip(run.steps()) {
                let Step::ReadFlash { block, frame, .. } = step else { unreachable!("a run reads flash") };
                let to = run.to + number * BLOCK_BYTES as u32;
                let send = Step::Send { block, frame, at: 0, length: BLOCK_BYTES as u16, to };
                let state = || State { planned_us: running.state.planned_us, ..State::default() };
                let (read, send) = (engine.add(step, None, state()), engine.add(send, request, state()));
                engine.order.replace(id, (read, send), frame.number, block, slot);
                engine.steps.wait_for(send, std::iter::once((read, Bond::Follows)));
                steps.extend([read, send]);
            }
            engine.order.end(id, Use::KeepPages(0..0));
            engine.clients.get_mut(request.expect("a client waits for a run")).pending -= 1;
            for (dependent, bond) in running.dependents {
                steps.iter().for_each(|&step| engine.step(step).dependents.push((dependent, bond)));
                engine.step(dependent).waiting += steps.len() as u32 - 1;
            }
            steps.into_iter().step_by(2).for_each(|read| engine.steps.wait_for(read, std::iter::empty()));
        });
        self.run_ready();
    }
}
