//! The resources that each step of the log uses, and the consequence of its failure for waiting steps.

use std::ops::Range;

use super::Step;
use crate::format::Geometry;
use crate::order::{Bond, Key, Use};

/// The chain of appends, witnesses and resets.
const LOG: Key = 0;
/// The chain of the flash's flushes.
const FLASH_FLUSH: Key = 1;
/// The group of the writes to the backend that belong to no batch.
pub const CLIENTS: Key = 2;
/// The groups of the writes of all batches, to the backend and to the journal.
pub const BATCHES: Range<Key> = CLIENTS + 1..CLIENTS + 2 + u32::MAX as Key;

/// Returns the group of the writes to the backend of a batch, or of no batch. The chain of the flushes of these writes
/// has the same number.
fn of_batch(batch: Option<u32>) -> Key {
    batch.map_or(CLIENTS, |batch| CLIENTS + 1 + Key::from(batch))
}

impl Step {
    /// Passes each resource that the step uses to `each`, with the bond to the steps that it has to wait for.
    #[inline]
    pub fn uses(&self, geometry: Geometry, mut each: impl FnMut(Use, Bond)) {
        use Bond::{Follows, Needs, Strands, Trusts};
        match self {
            Step::Receive { frame, .. } | Step::Zero { frame, .. } => each(Use::WriteMemory(frame.number), Follows),
            Step::Send { frame, .. } => each(Use::ReadMemory(frame.number), Follows),
            Step::Copy { from, to, .. } => {
                each(Use::ReadMemory(from.number), Follows);
                each(Use::WriteMemory(to.number), Follows);
            }
            Step::ReadFlash { block, slot, frame, dirty } => {
                each(Use::WriteMemory(frame.number), Follows);
                if !dirty {
                    // It may fall back to the backend.
                    each(Use::ReadBlock(*block), Strands);
                }
                // If the append fails, the page holds another block.
                each(Use::AfterPages(*slot..*slot + 1), Needs);
                each(Use::KeepPages(*slot..*slot + 1), Follows);
            }
            Step::ReadBackend { block, frame } => {
                each(Use::WriteMemory(frame.number), Follows);
                // After a failed write, the backend may lack acknowledged data.
                each(Use::ReadBlock(*block), Needs);
            }
            Step::WriteBackend { block, frame, batch, .. } => {
                each(Use::ReadMemory(frame.number), Follows);
                each(Use::WriteBlocks(*block..*block + 1), Follows);
                each(Use::Join(of_batch(*batch)), Follows);
                each(Use::After(FLASH_FLUSH), Needs);
            }
            Step::ZeroBackend { block, count, .. } => {
                each(Use::WriteBlocks(*block..*block + *count), Follows);
                each(Use::Join(CLIENTS), Follows);
                each(Use::After(FLASH_FLUSH), Needs);
            }
            Step::WriteJournal(write) => {
                write.frames().iter().for_each(|frame| each(Use::ReadMemory(frame.number), Follows));
                each(Use::Join(of_batch(Some(write.batch))), Follows);
                each(Use::After(FLASH_FLUSH), Needs);
            }
            Step::FlushJournal { batch } => {
                each(Use::AfterAll(of_batch(Some(*batch))), Needs);
                each(Use::Next(of_batch(Some(*batch))), Follows);
            }
            Step::Append(segment) => {
                for record in segment.records.iter().filter(|record| record.kind.has_data()) {
                    each(Use::ReadMemory(record.frame.number), Follows);
                }
                each(Use::Next(LOG), Follows);
                let first = geometry.slot(segment.unit, segment.page);
                each(Use::WritePages(first..first + segment.data_pages + 1), Follows);
                if segment.needs_backend_flush {
                    each(Use::After(of_batch(None)), Trusts);
                }
                if segment.follows_writes {
                    each(Use::AfterAll(of_batch(None)), Follows);
                }
                each(Use::After(FLASH_FLUSH), Needs);
            }
            Step::Witness(_) => {
                each(Use::Next(LOG), Follows);
                each(Use::After(FLASH_FLUSH), Needs);
            }
            Step::ResetUnit { unit } => {
                each(Use::Next(LOG), Follows);
                let first = geometry.slot(*unit, 0);
                each(Use::ErasePages(first..first + geometry.unit_pages), Follows);
                each(Use::After(FLASH_FLUSH), Needs);
            }
            Step::FlushFlash { .. } => {
                each(Use::After(LOG), Follows);
                each(Use::Next(FLASH_FLUSH), Needs);
            }
            Step::FlushBackend { batch } => {
                each(Use::AfterAll(of_batch(*batch)), Follows);
                each(Use::Next(of_batch(*batch)), Follows);
            }
            Step::Destaged { batch } => {
                each(Use::After(FLASH_FLUSH), Needs);
                each(Use::After(of_batch(Some(*batch))), Needs);
            }
            Step::AwaitFlushes => {
                each(Use::After(FLASH_FLUSH), Needs);
                each(Use::After(of_batch(None)), Needs);
            }
            Step::Fail | Step::Pause { .. } | Step::Reply => {}
        }
    }
}
