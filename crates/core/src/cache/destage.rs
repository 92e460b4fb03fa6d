//! Write-back: batches of dirty blocks, from plan to end.

use super::{DESTAGING_BLOCKS_MAX, LogCache};
use crate::format::Kind as RecordKind;
use crate::step::{Frame, JournalPart, JournalWrite, LogRecord, Step};

/// Pause of the cleaner after a failed write to the backend.
const DESTAGE_RETRY_US: u64 = 1_000_000;

/// Maximum number of remembered replaced copies before old ones are forgotten.
const REPLACED_MAX: usize = 4096;

/// Maximum number of blocks in a batch.
pub(super) const BATCH_BLOCKS: usize = DESTAGING_BLOCKS_MAX as usize / 2;

/// Blocks of a batch that are read before they are written.
const CHUNK_BLOCKS: usize = 64;

/// The destination of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    /// The backend: blocks of the unit with this sequence number.
    Unit(u64),
    /// The backend: blocks of the oldest epochs.
    Epochs,
    /// The journal.
    Journal,
}

/// Blocks whose write-back is in progress.
#[derive(Debug)]
pub(super) struct Batch {
    pub target: Target,
    /// The last slot up to which all dirty copies of the unit are in the batch; `None` if only some are.
    pub last_slot: Option<u32>,
    /// Blocks with their slots.
    pub blocks: Vec<(u32, u32)>,
    /// Blocks that could not be written to the backend so far.
    pub failed: Vec<u32>,
    /// Those of them that could not be read from the flash.
    pub unread: Vec<u32>,
}

impl Batch {
    /// Returns a batch that nothing has happened to. It has some of the dirty copies of a unit.
    pub fn of(target: Target, blocks: Vec<(u32, u32)>) -> Batch {
        Batch { target, last_slot: None, blocks, failed: Vec::new(), unread: Vec::new() }
    }
}

impl LogCache {
    /// Plans to write back everything dirty; after a flash failure, everything that is durable there.
    pub(super) fn destage_all(&mut self, now_us: u64, steps: &mut Vec<Step>) {
        self.set_time(now_us);
        self.active = true;
        self.end_last_run(steps);
        if !self.flash_failed {
            self.flush_down(steps);
        }
        if self.in_order.is_some() {
            self.drain_in_order(steps);
        } else {
            self.destage_units(steps);
        }
    }

    /// Plans to write back data that never became durable on a failed flash. The flash must be durably
    /// [`Detached`](crate::format::State::Detached): its copies of these blocks are clean and older.
    pub(super) fn destage_rest(&mut self, now_us: u64, steps: &mut Vec<Step>) {
        assert!(self.flash_failed, "everything is durable on a flash that works");
        self.set_time(now_us);
        self.detached = true;
        self.settle_open_segment();
        self.destage_memory(steps);
        self.destage_units(steps);
    }

    /// Handles the open segment, which is never written after a flash failure. Clients' writes in it with missing data
    /// have failed.
    fn settle_open_segment(&mut self) {
        let Some(segment) = self.log.open_segment() else { return };
        let never_came =
            |record: &LogRecord| record.kind.has_data() && self.unreadable.get(&record.block) == Some(&record.slot);
        let records = (0..).zip(&segment.records).filter(|(_, record)| never_came(record));
        let missing: Vec<u32> = records.map(|(number, _)| number).collect();
        if !missing.is_empty() {
            let segment = segment.clone();
            self.never_came(&segment, &missing);
        }
    }

    /// Returns the number of dirty blocks whose newest content was acknowledged as durable.
    /// [`Event::DestageAll`](super::Event::DestageAll) has to write them back before a failed flash is abandoned.
    pub fn durable_dirty_blocks(&self) -> u64 {
        let is_due = |&block: &u32| {
            let slot = self.log.find(block).expect("a block of the log has a copy");
            self.log.is_dirty(slot) && self.log.is_before(slot, self.promised)
        };
        let in_journal = u64::from(self.has_group_in_journal());
        in_journal + self.log.kept_blocks() + self.log.blocks().iter().filter(|&block| is_due(block)).count() as u64
    }

    fn destage_units(&mut self, steps: &mut Vec<Step>) {
        for sequence in self.log.sequences() {
            if sequence > 0 && self.log.dirty_in(sequence) > 0 {
                self.destage(sequence, usize::MAX, false, steps);
            }
        }
    }

    /// Plans to write back at most `most` dirty blocks of a unit, the first in the backend's order. With `only_old`,
    /// blocks that became dirty recently are left out.
    pub(super) fn destage(&mut self, sequence: u64, most: usize, only_old: bool, steps: &mut Vec<Step>) {
        if self.log.is_head(sequence) && !self.flash_failed {
            self.log_seal(steps);
        }
        if !self.flash_failed {
            self.log.flush(steps);
        }
        let mut dirty = self.log.blocks_in(sequence);
        // The backend is not written while an older copy on flash would be valid after a crash.
        let may = !self.flash_failed || self.detached;
        dirty.retain(|&(_, slot)| self.log.is_dirty(slot) && (may || self.log.is_durable(slot)));
        if dirty.is_empty() {
            return;
        }
        let count = dirty.len();
        if only_old {
            dirty.retain(|&(_, slot)| !self.log.is_newly_dirty(slot));
        }
        let leaves_some = dirty.len() < count;
        let is_all = dirty.len() <= most;
        dirty.truncate(most);
        // In the head, later appends do not count.
        let last_slot = if is_all { self.log.last_slot(sequence) } else { dirty.last().map(|&(_, slot)| slot) };
        dirty.sort_unstable();
        self.log.set_destaging(sequence, true);
        let last_slot = last_slot.filter(|_| !self.flash_failed && !leaves_some);
        self.write_back(Batch { last_slot, ..Batch::of(Target::Unit(sequence), dirty) }, steps);
    }

    /// Plans to write a batch back, whose blocks are in the backend's order.
    pub(super) fn write_back(&mut self, blocks: Batch, steps: &mut Vec<Step>) {
        let batch = self.begin_batch();
        for chunk in blocks.blocks.chunks(CHUNK_BLOCKS) {
            let frames = self.read_to_destage(chunk, steps);
            steps.extend(chunk.iter().zip(frames).map(|(&(block, _), frame)| Step::WriteBackend {
                block,
                frame,
                acknowledged: false,
                replaces: false,
                logged: false,
                batch: Some(batch),
            }));
        }
        steps.push(Step::FlushBackend { batch: Some(batch) });
        self.batch_planned(batch, blocks, steps);
    }

    /// Plans to write parts of the journal. The contents of some blocks go to a page and those behind it.
    pub(super) fn write_journal(
        &mut self,
        part: Option<JournalPart>,
        page: u32,
        blocks: Vec<(u32, u32)>,
        steps: &mut Vec<Step>,
    ) {
        let batch = self.begin_batch();
        let frames = self.read_to_destage(&blocks, steps);
        let blocks_part = (!frames.is_empty()).then_some(JournalPart::Blocks { page, frames });
        for part in part.into_iter().chain(blocks_part) {
            self.figures.destaged_blocks += part.pages();
            steps.push(Step::WriteJournal(Box::new(JournalWrite { batch, part })));
        }
        steps.push(Step::FlushJournal { batch });
        self.batch_planned(batch, Batch::of(Target::Journal, blocks), steps);
    }

    fn begin_batch(&mut self) -> u32 {
        let batch = self.next_batch;
        self.next_batch = self.next_batch.wrapping_add(1);
        batch
    }

    /// Plans to read blocks with their slots. Returns the frames of their contents.
    fn read_to_destage(&mut self, blocks: &[(u32, u32)], steps: &mut Vec<Step>) -> Vec<Frame> {
        let read = |&(block, slot): &(u32, u32)| {
            // In memory only if the flash failed before the segment was written.
            self.log.in_memory(slot).unwrap_or_else(|| {
                let frame = self.next_destage_frame();
                steps.push(Step::ReadFlash { block, slot, frame, dirty: true });
                frame
            })
        };
        blocks.iter().map(read).collect()
    }

    fn batch_planned(&mut self, batch: u32, blocks: Batch, steps: &mut Vec<Step>) {
        self.destaging_blocks += blocks.blocks.len() as u64;
        self.batches.insert(batch, blocks);
        steps.push(Step::Destaged { batch });
    }

    /// Returns the unfinished batches, in order.
    pub fn batches(&self) -> Vec<u32> {
        let mut batches: Vec<u32> = self.batches.keys().copied().collect();
        batches.sort_unstable();
        batches
    }

    /// Plans to write data in memory to the backend, because its flash failed.
    fn destage_memory(&mut self, steps: &mut Vec<Step>) {
        for chunk in self.write_buffer.drain() {
            for (block, frame) in chunk.blocks() {
                let slot = self.log.find(block);
                let replaces = slot.is_some_and(|slot| self.log.is_dirty(slot)) || self.lost.remove(&block).is_some();
                if let Some(slot) = slot {
                    self.log.drop_slot(block, slot);
                }
                steps.push(Step::WriteBackend {
                    block,
                    frame,
                    acknowledged: true,
                    replaces,
                    logged: false,
                    batch: None,
                });
                self.go_past(block, frame);
                self.unflushed.add(block..block + 1);
                self.frames.release(frame);
            }
        }
        self.flush_backend(steps);
    }

    /// Returns the next frame for write-backs. They have their own frames, used in turn, so that a slow backend does
    /// not block clients.
    fn next_destage_frame(&mut self) -> Frame {
        let count = DESTAGING_BLOCKS_MAX;
        let number = self.config.working_frames() + self.destage_frame % count;
        self.destage_frame = (self.destage_frame + 1) % count;
        self.frames.refilled(number)
    }

    /// Ends a batch: its blocks were written back and flushed, except failed ones. If it was not `flushed`, nothing is
    /// certain.
    pub(super) fn end_batch(&mut self, batch: u32, flushed: bool) {
        let Batch { target, last_slot, blocks, failed, unread } =
            self.batches.remove(&batch).expect("a batch ends once");
        let last_slot = last_slot.filter(|_| flushed && failed.is_empty());
        self.active = true;
        self.destaging_blocks -= blocks.len() as u64;
        let given_up = match target {
            Target::Unit(_) => 0,
            Target::Epochs | Target::Journal => self.epoch_not_read(&blocks, &unread),
        };
        let is_retried = !flushed || failed.len() > given_up;
        if is_retried {
            self.destage_after_us = self.now_us + DESTAGE_RETRY_US;
        }
        if matches!(target, Target::Journal) {
            return self.journal_batch_ended(is_retried);
        }
        self.figures.destaged_blocks += if flushed { (blocks.len() - failed.len()) as u64 } else { 0 };
        self.batch_written_back((blocks.len() - failed.len()) as u64);
        let written = blocks.into_iter().filter(|(block, _)| flushed && !failed.contains(block)).collect();
        match target {
            Target::Unit(sequence) => self.unit_written_back(sequence, last_slot, written),
            Target::Epochs | Target::Journal => self.epochs_written_back(written, is_retried),
        }
    }

    /// Ends a batch of a unit after these blocks were written back and flushed. With `last_slot`, the unit is clean up
    /// to there.
    fn unit_written_back(&mut self, sequence: u64, last_slot: Option<u32>, blocks: Vec<(u32, u32)>) {
        self.clean_from = *self.log.sequences().start();
        self.due_from.1 = self.due_from.1.min(sequence);
        // The unit returns if its reset was only planned when the flash failed.
        self.log.set_destaging(sequence, false);
        self.note_replaced(sequence, &blocks);
        if sequence < self.clean_from {
            // The unit was reset in the meantime; its dirty blocks moved, and its slots may hold other blocks.
            return;
        }
        for (block, slot) in blocks {
            let newest = self.log.find(block);
            if let Some(newest) = newest.filter(|&newest| newest != slot && self.log.is_dirty(newest)) {
                // It was rewritten in the meantime.
                self.log.set_dirty(newest, true);
            }
            if newest == Some(slot) {
                self.log.set_dirty(slot, false);
                if last_slot.is_none() && !self.flash_failed && self.log.has_room_for_mark() {
                    let mut none = Vec::new();
                    self.log.mark(RecordKind::Destaged, block, slot, &mut none);
                    assert!(none.is_empty(), "a mark that has room needs no new segment");
                }
            }
        }
        // One mark for all of them, once there is room for it or the cache is closed.
        if let Some(last_slot) = last_slot {
            self.log.note_destaged(sequence, last_slot);
        }
    }

    /// Records copies in the unit of `sequence` that were written back and had been replaced by plans, while their
    /// replacements are not durable.
    pub(super) fn note_replaced(&mut self, sequence: u64, written_back: &[(u32, u32)]) {
        for &(block, slot) in written_back {
            let newest = self.log.find(block);
            if newest.is_some_and(|newest| newest != slot && !self.log.is_durable(newest)) {
                self.replaced.insert((block, slot, sequence));
            }
        }
        let (units, head) = (u64::from(self.log.geometry().log_units()), *self.log.sequences().end());
        if self.replaced.len() > REPLACED_MAX {
            self.replaced.retain(|(_, _, sequence)| sequence + units > head);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::ops::Range;

    use super::super::{Appending, Cache, Config, Event, Kind, Request};
    use super::*;
    use crate::filter::Caching;
    use crate::format::Geometry;
    use crate::layout::containers::Log;

    fn write(cache: &mut LogCache, blocks: Range<u64>, length: u64, caching: Caching) -> Vec<Step> {
        let mut steps = Vec::new();
        for block in blocks {
            let request = Request { caching, ..Request::whole(Kind::Write, block * 4096, length, false) };
            cache.on(Event::Request { request: &request, now_us: 1 }, &mut steps);
        }
        steps
    }

    fn perform(cache: &mut LogCache, steps: &[Step]) {
        steps.iter().for_each(|step| cache.on(Event::Done(step), &mut Vec::new()));
    }

    /// Block 7 is written back while a part of it is rewritten. The data of that part is missing, and the unit with the
    /// old copy will be reset.
    #[test]
    fn written_back_blocks_survive_a_write_that_never_came() {
        let geometry = Geometry { units: 24, unit_pages: 16 };
        let config = Config { write_buffer_blocks: 0, ..Config::new(geometry, "lru".parse().unwrap()) };
        let mut cache = LogCache::new(config, Log::new(geometry), HashMap::new());
        let mut steps = write(&mut cache, 7..8, 4096, Caching::default());
        steps.extend(write(&mut cache, 100..116, 4096, Caching::Through));
        cache.on(Event::Request { request: &Request::whole(Kind::Flush, 0, 0, false), now_us: 1 }, &mut steps);
        perform(&mut cache, &steps);
        let mut back = Vec::new();
        cache.on(Event::DestageAll { now_us: 1 }, &mut back);
        let mut later = write(&mut cache, 7..8, 512, Caching::default());
        perform(&mut cache, &back);
        later.extend(write(&mut cache, 200..600, 4096, Caching::Through));
        assert!(later.iter().any(|step| matches!(step, Step::ResetUnit { unit: 1 })));
        let of_block = |step: &Step| match step {
            Step::Append(segment) if segment.records.iter().any(|record| record.block == 7) => Some(segment.clone()),
            _ => None,
        };
        let segment = later.iter().find_map(of_block).unwrap();
        let came = |record: &LogRecord| (record.block != 7).then_some(0);
        let checksums: Vec<_> = segment.records.iter().filter(|record| record.kind.has_data()).map(came).collect();
        let mut records = Vec::new();
        let appending = Appending { segment: &segment, checksums: &checksums, doubtful: false, records: &mut records };
        cache.on(Event::Appending(appending), &mut Vec::new());
        let kind = records.iter().find(|record| record.block == 7).map(|record| record.kind);
        assert_eq!((cache.lost_blocks(), kind), (vec![], Some(RecordKind::Forget)));
    }
}
