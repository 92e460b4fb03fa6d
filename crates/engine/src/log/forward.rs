//! The content of an unfinished or failed step, while it is in memory. Reads get it from there. The next write of the
//! block of a failed step replaces it.

use flashwise_core::cache::Cache;
use flashwise_core::format::{BLOCK_BYTES, Page};
use flashwise_core::order::StepId;
use flashwise_core::step::{LogRecord, Segment, Step};

use super::{Engine, Running, State};
use flashwise_core::order::Bond;

/// Returns the record of a segment for data on this page of the flash.
fn record_of(segment: &Segment, slot: u32) -> Option<&LogRecord> {
    segment.records.iter().find(|record| record.kind.has_data() && record.slot == slot)
}

impl<C: Cache<Step = Step>> Engine<C> {
    /// Returns the place in memory of the content that an unfinished segment writes to a page of the flash. The content
    /// may not have arrived there yet. `None` if its client is only answered once the content is on flash: after a
    /// failure, a later read returns the old content.
    pub(super) fn on_its_way(&self, slot: u32) -> Option<u32> {
        let append = self.order.page_writer(slot)?;
        let Running { step: Step::Append(segment), state: State { undecided: false, .. }, .. } =
            self.steps[append as usize].as_ref()?
        else {
            return None;
        };
        let place = record_of(segment, slot)?.frame.number;
        // A writer that the segment does not wait for brings other content later.
        let comes = self.order.place(place).writer().is_none_or(|writer| {
            let writer = self.peek(writer);
            writer.dependents.iter().any(|&(dependent, _)| dependent == append)
        });
        (comes && !self.layout.bad[place as usize]).then_some(place)
    }

    /// Speeds up the content for a place in memory, because a client waits for it.
    pub(super) fn hurry(&mut self, place: u32) {
        if let Some(writer) = self.order.place(place).writer() {
            self.step(writer).state.background = false;
            self.outgoing.extend(self.background.take_from_flash(writer));
        }
    }

    /// Ends a read whose content is at a place in memory. Returns false if it is not there.
    pub(super) fn read_from_place(&mut self, id: StepId, place: u32) -> bool {
        if self.layout.bad[place as usize] {
            return false;
        }
        let content = *self.layout.memory.page(place);
        self.read_from_memory(id, &content);
        true
    }

    /// Ends a read whose content was still in memory.
    pub(super) fn read_from_memory(&mut self, id: StepId, content: &Page) {
        let (Step::ReadFlash { frame, .. } | Step::ReadBackend { frame, .. }) = self.step(id).step else {
            unreachable!("only reads get content from memory")
        };
        self.layout.page_mut(frame.number).copy_from_slice(content);
        self.finish(id, Ok(()));
    }

    /// Gives the reads that wait for a failed step the content that it has in memory, if a client may have been
    /// answered for it. Without this a partial write over that content would fail, and the only copy would be lost with
    /// it.
    pub(super) fn forward(&mut self, failed: &Running<C>) {
        for &(reader, bond) in &failed.dependents {
            if bond != Bond::Needs {
                continue;
            }
            let frame = match (&failed.step, &self.step(reader).step) {
                (
                    &Step::WriteBackend { frame, acknowledged, replaces, logged: false, batch: None, .. },
                    Step::ReadBackend { .. },
                ) if acknowledged || replaces => Some(frame),
                (Step::ZeroBackend { replaces, .. }, Step::ReadBackend { block, .. }) if replaces.contains(block) => {
                    None
                }
                (Step::Append(segment), Step::ReadFlash { slot, dirty: true, .. }) => match record_of(segment, *slot) {
                    Some(record) => Some(record.frame),
                    None => continue,
                },
                _ => continue,
            };
            let content = match frame {
                Some(frame) if self.layout.bad[frame.number as usize] => continue,
                Some(frame) => Box::new(*self.layout.memory.page(frame.number)),
                None => Box::new([0; BLOCK_BYTES]),
            };
            self.step(reader).state.content = Some(content);
        }
    }

    /// Returns the last unfinished step that changes a block of the backend.
    pub(super) fn last_writer(&self, block: u32) -> Option<StepId> {
        self.order.blocks().writer(block)
    }

    /// The content of a block did not reach the backend. If a newer write of the block is in progress, its result
    /// counts instead. Returns true in that case.
    pub(super) fn hand_on(&mut self, block: u32) -> bool {
        let Some(newer) = self.last_writer(block) else { return false };
        match &mut self.step(newer).step {
            Step::WriteBackend { replaces, logged: false, batch: None, .. } => *replaces = true,
            Step::ZeroBackend { replaces, .. } if replaces.contains(&block) => {}
            Step::ZeroBackend { replaces, .. } => replaces.push(block),
            _ => return false,
        }
        true
    }
}
