//! Completed steps.

use super::LogCache;
use crate::step::Step;

impl LogCache {
    #[inline]
    pub(super) fn done(&mut self, step: &Step) {
        match *step {
            Step::ReadFlash { block, slot, dirty: true, .. }
                if !self.unreadable.is_empty() && !self.log.is_kept(slot) =>
            {
                self.unreadable.remove(&block);
            }
            Step::WriteBackend { block, batch, logged, .. } => {
                if batch.is_none() {
                    self.no_more_on_its_way(block);
                }
                self.backend_refuses = false;
                // If the log should have it too and does not, its copy is older: the block is still lost.
                self.backend_written(block, batch.is_some() || logged);
                if batch.is_some() {
                    self.block_written_back();
                }
            }
            Step::ZeroBackend { block, count, .. } => {
                self.backend_lacks.retain(|lacking| !(block..block + count).contains(lacking));
            }
            Step::Append(ref segment) if !self.replaced.is_empty() => {
                for (record, old) in segment.records.iter().filter_map(|record| Some((record, record.old?.0))) {
                    self.replaced.remove(&(record.block, old, self.log.sequence_before(old, segment.sequence)));
                }
            }
            Step::FlushFlash { sequence, page } => self.log.set_flushed(sequence, page),
            Step::FlushBackend { batch: None } => self.unflushed.end_flush(),
            Step::AwaitFlushes => self.promised = self.log.flushed(),
            Step::Destaged { batch } => self.end_batch(batch, true),
            _ => {}
        }
    }
}
