//! The content of an unfinished or failed step, while it is in memory. Reads get it from there. The next write of the
//! block of a failed step replaces it.

use flashwise_core::cache::Cache;
use flashwise_core::format::BLOCK_BYTES;
use flashwise_core::order::{Bond, Order};
use flashwise_core::step::{LogRecord, Segment, Step};

use super::{Log, Running, State};
use crate::engine::Steps;

/// Returns the record of a segment for data on this page of the flash.
fn record_of(segment: &Segment, slot: u32) -> Option<&LogRecord> {
    segment.records.iter().find(|record| record.kind.has_data() && record.slot == slot)
}

impl<C: Cache<Step = Step>> Log<C> {
    /// Returns the place in memory of the content that an unfinished segment writes to a page of the flash. The content
    /// may not have arrived there yet. `None` if its client is only answered once the content is on flash: after a
    /// failure, a later read returns the old content.
    pub(super) fn on_its_way(&self, order: &Order, steps: &Steps<Self>, slot: u32) -> Option<u32> {
        let append = order.page_writer(slot)?;
        let Running { step: Step::Append(segment), state: State { undecided: false, .. }, .. } = steps.find(append)?
        else {
            return None;
        };
        let place = record_of(segment, slot)?.frame.number;
        // A writer that the segment does not wait for brings other content later.
        let comes = order
            .place(place)
            .writer()
            .is_none_or(|writer| steps.get(writer).dependents.iter().any(|&(dependent, _)| dependent == append));
        (comes && !self.frames.is_bad(place)).then_some(place)
    }

    /// Gives the reads that wait for a failed step the content that it has in memory, if a client may have been
    /// answered for it. Without this a partial write over that content would fail, and the only copy would be lost with
    /// it.
    pub(super) fn forward(&self, steps: &mut Steps<Self>, failed: &Running<C>) {
        for &(reader, bond) in &failed.dependents {
            if bond != Bond::Needs {
                continue;
            }
            let frame = match (&failed.step, &steps.get(reader).step) {
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
                Some(frame) if self.frames.is_bad(frame.number) => continue,
                Some(frame) => Box::new(*self.frames.page(frame.number)),
                None => Box::new([0; BLOCK_BYTES]),
            };
            steps.get_mut(reader).state.content = Some(content);
        }
    }
}
