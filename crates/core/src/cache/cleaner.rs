//! Background work: resetting the oldest units, copying wanted blocks forward, and writing dirty blocks back.
//!
//! Source: LARC (section V.A: the cleaner starts above a threshold of dirty blocks, and also cleans blocks idle for 15
//! minutes). Here blocks are cleaned once they have been dirty for that long, idle or not, and before all others. So a
//! block that is rewritten again and again does not keep others dirty.

use super::config::RESERVE_UNITS;
use super::{Batch, CopyForward, DESTAGING_BLOCKS_MAX, LogCache, Mode};
use crate::format::Kind as RecordKind;
use crate::step::{Cause, Frame, LogRecord, Step};

/// Pause of the cleaner after a failed write to the backend.
const DESTAGE_RETRY_US: u64 = 1_000_000;

/// Interval between two cleanings of the unit being filled.
const HEAD_CLEAN_US: u64 = 1_000_000;
/// Interval between two such cleanings while the flash is being removed.
const HEAD_CLEAN_LEAVING_US: u64 = 100_000;

/// Number of free units below which dirty blocks are copied forward instead of waiting for their write-back.
const FREE_UNITS_MIN: u32 = 2;

/// Maximum number of remembered replaced copies before old ones are forgotten.
const REPLACED_MAX: usize = 4096;

/// Maximum number of blocks in a batch.
const BATCH_BLOCKS: usize = DESTAGING_BLOCKS_MAX as usize / 2;

/// Blocks of a batch that are read before they are written.
const CHUNK_BLOCKS: usize = 64;

/// If more than this share of a unit's data pages was used, only blocks used twice are copied forward. If most of a
/// unit was used, a single use means little, and copying most of it frees little room. Measured in docs/larc.md.
const USED_SHARE_MAX: f64 = 0.45;

/// Maximum number of consecutive resets before clean blocks are dropped instead of copied forward.
const RECLAIMED_MAX: u32 = 32;

impl LogCache {
    pub(super) fn background(&mut self, steps: &mut Vec<Step>) {
        if self.flash_failed {
            return;
        }
        self.reclaim(steps);
        self.go_on(steps);
    }

    /// Resets the oldest units until enough are free.
    pub(super) fn reclaim(&mut self, steps: &mut Vec<Step>) {
        let mut reclaimed = 0;
        while !self.flash_failed && self.log.free_units() < RESERVE_UNITS {
            if self.waits_for_destaging() {
                return;
            }
            let short = self.log.free_units() <= 1 || reclaimed >= RECLAIMED_MAX.min(self.log.geometry().log_units());
            self.reclaim_oldest(short, steps);
            reclaimed += 1;
        }
    }

    /// True if the oldest unit should wait for the write-back of its dirty blocks, which the cleaner plans after the
    /// request. Copying them forward would only delay that, and wear the flash.
    fn waits_for_destaging(&self) -> bool {
        self.log.has_dirty(*self.log.sequences().start()) && self.log.free_units() >= FREE_UNITS_MIN
    }

    /// True if optional data should not go to flash: space is short until dirty blocks are written back.
    pub(super) fn is_pressed(&self) -> bool {
        self.log.free_units() <= FREE_UNITS_MIN
    }

    /// Copies dirty and wanted blocks of the oldest unit forward, and resets it. If space is `short`, all clean blocks
    /// are dropped.
    fn reclaim_oldest(&mut self, short: bool, steps: &mut Vec<Step>) {
        let sequence = *self.log.sequences().start();
        let mut still_lost: Vec<u32> =
            self.lost.iter().filter(|(_, lost)| lost.said == Some(sequence)).map(|(block, _)| *block).collect();
        still_lost.sort_unstable();
        for block in still_lost {
            self.mark_lost(block, steps);
        }
        let blocks = self.log.blocks_in(sequence);
        let uses_min = self.uses_to_be_copied(&blocks);
        for (block, slot) in blocks {
            let dirty = self.log.is_dirty(slot);
            if dirty || (!short && self.is_worth_copying(block, slot, uses_min)) {
                let frame = self.frames.take();
                steps.push(Step::ReadFlash { block, slot, frame, dirty });
                self.log_add(block, frame, dirty, Cause::CopyForward, steps);
                self.frames.release(frame);
            } else if self.log.policy().contains(block) {
                // The policy may still remember blocks that it evicted, to recognise them.
                self.log.policy_mut().refuse(block);
                self.figures.dropped_blocks += 1;
            }
        }
        self.log.policy_mut().space_is_full();
        let from = steps.len();
        self.log.reset_tail(steps);
        self.settle(from, steps);
        self.intents.unit_reset(sequence);
    }

    /// Returns how often one of the `blocks` of a unit must have been used to be copied forward: once, or twice if many
    /// were.
    fn uses_to_be_copied(&self, blocks: &[(u32, u32)]) -> u32 {
        let is_used = |&&(_, slot): &&(u32, u32)| !self.log.is_dirty(slot) && self.log.uses(slot) > 0;
        let used = blocks.iter().filter(is_used).count();
        let data_pages = self.log.geometry().unit_data_pages(self.config.segment_blocks);
        1 + u32::from(used as f64 > f64::from(data_pages) * USED_SHARE_MAX)
    }

    /// True if a clean block should be copied forward if there is space. `uses_min` is the minimum number of uses for
    /// `CopyForward::Used`.
    fn is_worth_copying(&self, block: u32, slot: u32, uses_min: u32) -> bool {
        let policy = self.log.policy();
        match self.config.copy_forward {
            CopyForward::All => policy.contains(block),
            CopyForward::Used => policy.contains(block) && self.log.uses(slot) >= uses_min,
            CopyForward::Young(_) => policy.is_young(block),
            CopyForward::None => false,
        }
    }

    pub(super) fn mark_lost(&mut self, block: u32, steps: &mut Vec<Step>) {
        self.log_mark(RecordKind::Lost, block, 0, steps);
        self.touched.add(block..block + 1);
        self.lost.entry(block).or_default().said = Some(*self.log.sequences().end());
    }

    /// Plans due write-backs, as far as few enough blocks are in progress.
    pub(super) fn go_on(&mut self, steps: &mut Vec<Step>) {
        if !self.flash_failed && self.now_us >= self.destage_after_us {
            self.clean_due(steps);
            self.clean_ahead_of_tail(steps);
            self.clean_above_threshold(steps);
        }
    }

    /// True if another batch may start. The number of blocks is limited so that readers and writers of the backend do
    /// not wait for many.
    fn may_destage(&self) -> bool {
        self.destaging_blocks as usize <= DESTAGING_BLOCKS_MAX as usize - BATCH_BLOCKS
    }

    /// Cleans the units that will be reset next, so that no dirty block has to be copied forward or waited for.
    fn clean_ahead_of_tail(&mut self, steps: &mut Vec<Step>) {
        let ahead = self.units_to_keep_clean();
        if self.log.free_units() >= RESERVE_UNITS + ahead {
            return;
        }
        let tail = *self.log.sequences().start();
        let end = (tail + u64::from(ahead)).min(*self.log.sequences().end());
        let mut sequence = tail.max(self.clean_from);
        while sequence < end && self.may_destage() {
            if self.log.dirty_in(sequence) > 0 {
                self.destage(sequence, BATCH_BLOCKS, false, steps);
            }
            sequence += 1;
            self.clean_from = sequence;
        }
    }

    fn clean_above_threshold(&mut self, steps: &mut Vec<Step>) {
        let (high, low) = self.dirty_bounds();
        if self.dirty_to_clean() > high {
            self.clean_down_to(low, steps);
        }
    }

    fn dirty_to_clean(&self) -> u64 {
        self.log.dirty_blocks().saturating_sub(self.destaging_blocks)
    }

    fn clean_down_to(&mut self, dirty_blocks: u64, steps: &mut Vec<Step>) {
        let mut sequence = self.clean_from.max(*self.log.sequences().start());
        while self.dirty_to_clean() > dirty_blocks && !self.log.is_head(sequence) && self.may_destage() {
            if self.log.dirty_in(sequence) > 0 {
                self.destage(sequence, BATCH_BLOCKS, false, steps);
            }
            sequence += 1;
        }
        self.clean_from = sequence;
    }

    /// Cleans blocks that have been dirty for too long.
    fn clean_due(&mut self, steps: &mut Vec<Step>) {
        if self.log.due_us() != Some(0) || !self.may_destage() {
            return;
        }
        let (tail, head) = (*self.log.sequences().start(), *self.log.sequences().end());
        let count = self.log.due_count();
        let mut sequence = if self.due_from.0 == count { self.due_from.1.max(tail) } else { tail };
        while sequence < head && self.may_destage() {
            if self.log.dirty_in(sequence) > 0 && self.log.has_due(sequence) {
                self.destage(sequence, BATCH_BLOCKS, true, steps);
            }
            sequence += 1;
        }
        self.due_from = (count, sequence);
        let rests = self.now_us < self.head_cleaned_us.saturating_add(self.head_rests_us());
        if sequence < head || !self.may_destage() || rests || self.log.dirty_in(head) == 0 {
            return;
        }
        // The unit being filled comes last.
        let is_due = |batch: &Batch| (tail..head).contains(&batch.sequence) && self.log.has_due(batch.sequence);
        if self.log.has_due(head) && !self.batches.values().any(is_due) {
            self.head_cleaned_us = self.now_us;
            self.destage(head, BATCH_BLOCKS, true, steps);
        }
    }

    /// If nothing may stay dirty, periodically cleans all blocks, including those of the unit being filled.
    pub(super) fn clean_all(&mut self, steps: &mut Vec<Step>) {
        if self.now_us < self.destage_after_us || self.dirty_bounds().0 > 0 {
            return;
        }
        let mut sequence = self.clean_from.max(*self.log.sequences().start());
        while sequence < *self.log.sequences().end() && self.may_destage() && self.all_due_us(sequence) <= self.now_us {
            if self.log.dirty_in(sequence) > 0 {
                self.destage(sequence, BATCH_BLOCKS, false, steps);
            }
            sequence += 1;
            self.clean_from = sequence;
        }
        let head = *self.log.sequences().end();
        if head > 0 && sequence == head && self.log.dirty_in(head) > 0 && self.all_due_us(head) <= self.now_us {
            self.head_cleaned_us = self.now_us;
            self.destage(head, BATCH_BLOCKS, false, steps);
        }
    }

    /// Returns the time when the cleaner has work because of the age of blocks. While it is working, it continues by
    /// itself.
    pub(super) fn aged_us(&self) -> Option<u64> {
        if self.dirty_bounds().0 > 0 {
            let due_us = self.log.due_us().filter(|&due_us| due_us > 0 || self.destaging_blocks == 0)?;
            return Some(due_us.max(self.destage_after_us));
        }
        let from = self.clean_from.max(*self.log.sequences().start());
        let dirty = (from..=*self.log.sequences().end()).find(|&sequence| self.log.dirty_in(sequence) > 0)?;
        Some(self.all_due_us(dirty).max(self.destage_after_us))
    }

    /// Returns the time to clean the dirty blocks of a unit if none may stay.
    fn all_due_us(&self, sequence: u64) -> u64 {
        self.log.begun_us(sequence).max(self.head_cleaned_us).saturating_add(self.head_rests_us())
    }

    /// Returns the pause after a cleaning of the unit being filled.
    fn head_rests_us(&self) -> u64 {
        let most_us = if self.is_leaving() { HEAD_CLEAN_LEAVING_US } else { HEAD_CLEAN_US };
        most_us.min(self.config.dirty_age_us)
    }

    /// Returns the numbers of dirty blocks at which the cleaner starts and stops.
    fn dirty_bounds(&self) -> (u64, u64) {
        let pages = self.config.data_pages() as f64;
        match self.config.mode {
            _ if self.is_leaving() => (0, 0),
            Mode::WriteBack => ((pages * self.config.dirty_high) as u64, (pages * self.config.dirty_low) as u64),
            Mode::WriteThrough | Mode::WriteAround => (0, 0),
        }
    }

    /// Plans to write back everything dirty; after a flash failure, everything that is durable there.
    pub(super) fn destage_all(&mut self, now_us: u64, steps: &mut Vec<Step>) {
        self.set_time(now_us);
        self.active = true;
        if !self.flash_failed {
            self.flush_down(steps);
        }
        self.destage_units(steps);
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
        self.log.blocks().iter().filter(|&block| is_due(block)).count() as u64
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
    fn destage(&mut self, sequence: u64, most: usize, only_old: bool, steps: &mut Vec<Step>) {
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
        self.destaging_blocks += dirty.len() as u64;
        let batch = self.next_batch;
        self.next_batch = self.next_batch.wrapping_add(1);
        for chunk in dirty.chunks(CHUNK_BLOCKS) {
            let mut writes = Vec::with_capacity(chunk.len());
            for &(block, slot) in chunk {
                // In memory only if the flash failed before the segment was written.
                let frame = self.log.in_memory(slot).unwrap_or_else(|| {
                    let frame = self.next_destage_frame();
                    steps.push(Step::ReadFlash { block, slot, frame, dirty: true });
                    frame
                });
                writes.push(Step::WriteBackend {
                    block,
                    frame,
                    acknowledged: false,
                    replaces: false,
                    logged: false,
                    batch: Some(batch),
                });
            }
            steps.append(&mut writes);
        }
        steps.push(Step::FlushBackend { batch: Some(batch) });
        let last_slot = last_slot.filter(|_| !self.flash_failed && !leaves_some);
        self.batches.insert(batch, Batch { sequence, last_slot, blocks: dirty, failed: Vec::new() });
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
        let Batch { sequence, last_slot, blocks, failed } = self.batches.remove(&batch).expect("a batch ends once");
        let is_whole = flushed && failed.is_empty();
        let last_slot = last_slot.filter(|_| is_whole);
        self.figures.destaged_blocks += if flushed { (blocks.len() - failed.len()) as u64 } else { 0 };
        self.active = true;
        self.destaging_blocks -= blocks.len() as u64;
        self.batch_written_back((blocks.len() - failed.len()) as u64);
        self.clean_from = *self.log.sequences().start();
        self.due_from.1 = self.due_from.1.min(sequence);
        if !is_whole {
            self.destage_after_us = self.now_us + DESTAGE_RETRY_US;
        }
        // The unit returns if its reset was only planned when the flash failed.
        self.log.set_destaging(sequence, false);
        if flushed {
            self.note_replaced(sequence, blocks.iter().filter(|(block, _)| !failed.contains(block)));
        }
        if sequence < self.clean_from {
            // The unit was reset in the meantime; its dirty blocks moved, and its slots may hold other blocks.
            return;
        }
        for (block, slot) in blocks {
            if !flushed || failed.contains(&block) {
                continue;
            }
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
    fn note_replaced<'a>(&mut self, sequence: u64, written_back: impl Iterator<Item = &'a (u32, u32)>) {
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

    /// Plans a clean shutdown: all writes are durable, write-backs are recorded, and a witness is at the end of the
    /// log.
    pub(super) fn close(&mut self, now_us: u64, steps: &mut Vec<Step>) {
        self.set_time(now_us);
        if self.flash_failed {
            return;
        }
        self.flush_down(steps);
        self.log.say_forgotten(steps);
        self.all_become_sure(steps);
        // Clean blocks in memory are as valuable as others.
        self.log_seal(steps);
        self.log.say_destaged(steps);
        self.log.flush(steps);
        self.log.bear_witness(steps);
    }

    pub(super) fn log_add(&mut self, block: u32, frame: Frame, dirty: bool, cause: Cause, steps: &mut Vec<Step>) {
        let from = steps.len();
        self.frames.hold(frame);
        if let Some(replaced) = self.log.add(block, frame, dirty, cause, steps) {
            self.frames.release(replaced);
        }
        self.settle(from, steps);
        if !dirty && self.unflushed.contains(block) {
            // It may be of a write that the backend could still lose; flash must not outlive that as clean.
            self.log.need_backend_flush();
        }
    }

    pub(super) fn log_mark(&mut self, kind: RecordKind, block: u32, slot: u32, steps: &mut Vec<Step>) {
        let from = steps.len();
        self.log.mark(kind, block, slot, steps);
        self.settle(from, steps);
    }

    pub(super) fn log_seal(&mut self, steps: &mut Vec<Step>) {
        let from = steps.len();
        self.log.seal(steps);
        self.settle(from, steps);
    }

    /// Processes the log's steps from position `from`. Releases the frames of segments handed out for writing, and
    /// flushes the backend before segments that rely on it.
    fn settle(&mut self, from: usize, steps: &mut Vec<Step>) {
        let mut at = from;
        while at < steps.len() {
            if let Step::Append(segment) = &steps[at] {
                for record in segment.records.iter().filter(|record| record.kind.has_data()) {
                    self.frames.release(record.frame);
                }
                if segment.needs_backend_flush && self.unflushed.begin_flush() {
                    steps.insert(at, Step::FlushBackend { batch: None });
                    at += 1;
                }
            }
            at += 1;
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
