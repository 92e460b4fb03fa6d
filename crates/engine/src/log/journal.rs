//! Writes to the journal.

use flashwise_core::cache::Cache;
use flashwise_core::format::Page;
use flashwise_core::journal::{Group, INDEX_START};
use flashwise_core::order::StepId;
use flashwise_core::step::{JournalPart, JournalWrite, Step};
use smallvec::{SmallVec, smallvec};

use super::Engine;
use super::perform::BLOCK;
use crate::engine::{JOURNAL, Part};
use crate::memory::Memory;
use crate::transfer::{Buffer, Operation};

impl<C: Cache<Step = Step>> Engine<C> {
    /// Starts a write to the journal. `Some(false)` if its content is missing.
    pub(super) fn write_journal(&mut self, id: StepId, write: &JournalWrite) -> Option<bool> {
        let (page, buffers): (u32, SmallVec<[Buffer; 1]>) = match &write.part {
            JournalPart::Blocks { page, frames } => {
                if frames.iter().any(|frame| self.layout.bad[frame.number as usize]) {
                    return Some(false);
                }
                (*page, frames.iter().map(|frame| self.layout.memory.buffer(frame.number, 1)).collect())
            }
            JournalPart::Index { head, blocks } => {
                let sum = |&(block, slot): &(u32, u32)| (block, self.layout.checksums[slot as usize]);
                let group = Group { head: *head, blocks: blocks.iter().map(sum).collect() };
                let pages: Vec<_> = group.index().collect();
                (INDEX_START, smallvec![self.keep_for_journal(&pages)])
            }
            JournalPart::Mark(head) => (head.mark_page(), smallvec![self.keep_for_journal(&[head.mark()])]),
        };
        let length = buffers.iter().map(|buffer| buffer.length as u64).sum();
        let part = Part::new(id, JOURNAL, Operation::Write, u64::from(page) * BLOCK, length);
        // Its buffers are as many as a transfer can have.
        self.hand_over_part(Part { buffers, alone: true, ..part });
        None
    }

    /// Keeps pages in memory until the next ones. An index or a mark is written before the next one begins.
    fn keep_for_journal(&mut self, pages: &[Page]) -> Buffer {
        let memory = self.layout.of_journal.insert(Memory::new(pages.len()));
        (0..).zip(pages).for_each(|(number, page)| *memory.page_mut(number) = *page);
        memory.buffer(0, pages.len() as u32)
    }
}
