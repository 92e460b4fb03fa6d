//! Background work: resetting the oldest units, copying wanted blocks forward, and writing dirty blocks back, also so
//! that the flash can be removed.
//!
//! Source: LARC (section V.A: the cleaner starts above a threshold of dirty blocks, and also cleans blocks idle for 15
//! minutes). Here blocks are cleaned once they have been dirty for that long, idle or not, and before all others. So a
//! block that is rewritten again and again does not keep others dirty.

use super::append::Appender;
use super::config::RESERVE_UNITS;
use super::destage::{BATCH_BLOCKS, Batch, Target};
use super::pace::units_to_keep_clean;
use super::{Cache, CopyForward, LogCache, Mode};
use crate::format::Kind as RecordKind;
use crate::step::{Cause, Frame, LogRecord, Step};

/// Interval between two cleanings of the unit being filled.
const HEAD_CLEAN_US: u64 = 1_000_000;
/// Interval between two such cleanings while the flash is being removed.
const HEAD_CLEAN_LEAVING_US: u64 = 100_000;

/// Number of free units below which dirty blocks are copied forward instead of waiting for their write-back.
const FREE_UNITS_MIN: u32 = 2;

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
            let many = reclaimed >= RECLAIMED_MAX.min(self.log.geometry().log_units());
            let short = self.log.free_units() <= 1 || many || self.is_reserved();
            self.reclaim_oldest(short, steps);
            reclaimed += 1;
        }
    }

    /// True if the oldest unit should wait for the write-back of its dirty blocks, which the cleaner plans after the
    /// request. Copying them forward would only delay that, and wear the flash. It would also mix ended epochs.
    fn waits_for_destaging(&self) -> bool {
        let tail = *self.log.sequences().start();
        self.log.is_needed(tail) && (self.log.free_units() >= FREE_UNITS_MIN || self.is_in_ended_epoch(tail))
    }

    /// True if optional data should not go to flash: space is short until dirty blocks are written back.
    pub(super) fn is_pressed(&self) -> bool {
        self.log.free_units() <= FREE_UNITS_MIN || self.is_reserved()
    }

    /// Copies dirty and wanted blocks of the oldest unit forward, and resets it. If space is `short`, all clean blocks
    /// are dropped.
    fn reclaim_oldest(&mut self, short: bool, steps: &mut Vec<Step>) {
        let sequence = *self.log.sequences().start();
        for block in self.lost.such(|lost| lost.said == Some(sequence)) {
            self.mark_lost(block, steps);
        }
        self.keep_broken(sequence, steps);
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
        let LogCache { intents, log, frames, unflushed, .. } = self;
        let mut end = Appender { log, frames, unflushed, steps };
        intents.become_sure_with(sequence, &mut end);
        end.reset_tail();
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
        self.lost.add(block).said = Some(*self.log.sequences().end());
    }

    /// Plans due write-backs, as far as few enough blocks are in progress.
    pub(super) fn go_on(&mut self, steps: &mut Vec<Step>) {
        if self.in_order.is_some() {
            self.go_on_in_order(steps);
        } else if !self.flash_failed && self.now_us >= self.destaging.after_us {
            self.clean_due(steps);
            self.clean_ahead_of_tail(steps);
            self.clean_above_threshold(steps);
        }
    }

    /// Cleans the units that will be reset next, so that no dirty block has to be copied forward or waited for.
    fn clean_ahead_of_tail(&mut self, steps: &mut Vec<Step>) {
        let ahead = units_to_keep_clean(&self.log);
        if self.log.free_units() >= RESERVE_UNITS + ahead {
            return;
        }
        let tail = *self.log.sequences().start();
        let end = (tail + u64::from(ahead)).min(*self.log.sequences().end());
        let mut sequence = tail.max(self.clean_from);
        while sequence < end && self.destaging.may_begin() {
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
        self.log.dirty_blocks().saturating_sub(self.destaging.blocks())
    }

    fn clean_down_to(&mut self, dirty_blocks: u64, steps: &mut Vec<Step>) {
        let mut sequence = self.clean_from.max(*self.log.sequences().start());
        while self.dirty_to_clean() > dirty_blocks && !self.log.is_head(sequence) && self.destaging.may_begin() {
            if self.log.dirty_in(sequence) > 0 {
                self.destage(sequence, BATCH_BLOCKS, false, steps);
            }
            sequence += 1;
        }
        self.clean_from = sequence;
    }

    /// Cleans blocks that have been dirty for too long.
    fn clean_due(&mut self, steps: &mut Vec<Step>) {
        if self.log.due_us() != Some(0) || !self.destaging.may_begin() {
            return;
        }
        let (tail, head) = (*self.log.sequences().start(), *self.log.sequences().end());
        let count = self.log.due_count();
        let mut sequence = if self.due_from.0 == count { self.due_from.1.max(tail) } else { tail };
        while sequence < head && self.destaging.may_begin() {
            if self.log.dirty_in(sequence) > 0 && self.log.has_due(sequence) {
                self.destage(sequence, BATCH_BLOCKS, true, steps);
            }
            sequence += 1;
        }
        self.due_from = (count, sequence);
        let rests = self.now_us < self.head_cleaned_us.saturating_add(self.head_rests_us());
        if sequence < head || !self.destaging.may_begin() || rests || self.log.dirty_in(head) == 0 {
            return;
        }
        // The unit being filled comes last.
        let is_behind = |sequence: u64| (tail..head).contains(&sequence) && self.log.has_due(sequence);
        let is_due = |(_, batch): (u32, &Batch)| matches!(batch.target, Target::Unit(sequence) if is_behind(sequence));
        if self.log.has_due(head) && !self.destaging.batches().any(is_due) {
            self.head_cleaned_us = self.now_us;
            self.destage(head, BATCH_BLOCKS, true, steps);
        }
    }

    /// If nothing may stay dirty, periodically cleans all blocks, including those of the unit being filled.
    pub(super) fn clean_all(&mut self, steps: &mut Vec<Step>) {
        if self.in_order.is_some() || self.now_us < self.destaging.after_us || self.dirty_bounds().0 > 0 {
            return;
        }
        let mut sequence = self.clean_from.max(*self.log.sequences().start());
        while sequence < *self.log.sequences().end()
            && self.destaging.may_begin()
            && self.all_due_us(sequence) <= self.now_us
        {
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
        if self.in_order.is_some() {
            return self.ordered_us();
        }
        if self.dirty_bounds().0 > 0 {
            let due_us = self.log.due_us().filter(|&due_us| due_us > 0 || self.destaging.blocks() == 0)?;
            return Some(due_us.max(self.destaging.after_us));
        }
        let from = self.clean_from.max(*self.log.sequences().start());
        let dirty = (from..=*self.log.sequences().end()).find(|&sequence| self.log.dirty_in(sequence) > 0)?;
        Some(self.all_due_us(dirty).max(self.destaging.after_us))
    }

    /// Returns the time to clean the dirty blocks of a unit if none may stay.
    fn all_due_us(&self, sequence: u64) -> u64 {
        self.log.begun_us(sequence).max(self.head_cleaned_us).saturating_add(self.head_rests_us())
    }

    /// Returns the pause after a cleaning of the unit being filled.
    pub(super) fn head_rests_us(&self) -> u64 {
        let most_us = if self.is_leaving() { HEAD_CLEAN_LEAVING_US } else { HEAD_CLEAN_US };
        most_us.min(self.config.dirty_age_us)
    }

    /// Returns the numbers of dirty blocks at which the cleaner starts and stops.
    pub(super) fn dirty_bounds(&self) -> (u64, u64) {
        let pages = self.config.data_pages() as f64;
        match self.config.mode {
            _ if self.is_leaving() => (0, 0),
            Mode::WriteBack => ((pages * self.config.dirty_high) as u64, (pages * self.config.dirty_low) as u64),
            Mode::WriteThrough | Mode::WriteAround => (0, 0),
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
        self.become_sure(u64::MAX, steps);
        // Clean blocks in memory are as valuable as others.
        self.say_done(steps);
        self.log_seal(steps);
        self.log.say_destaged(steps);
        self.log.flush(steps);
        self.log.bear_witness(steps);
    }

    /// Returns the end of the log.
    pub(super) fn end_of_log<'a>(&'a mut self, steps: &'a mut Vec<Step>) -> Appender<'a> {
        let LogCache { log, frames, unflushed, .. } = self;
        Appender { log, frames, unflushed, steps }
    }

    pub(super) fn log_add(&mut self, block: u32, frame: Frame, dirty: bool, cause: Cause, steps: &mut Vec<Step>) {
        if dirty {
            self.note_change();
        }
        self.end_of_log(steps).add(block, frame, dirty, cause);
        if !dirty && self.unflushed.contains(block) {
            // It may be of a write that the backend could still lose; flash must not outlive that as clean.
            if self.intents.is_unsure(block) {
                // A crash invalidates it. But a failed write must not become the block's content.
                self.unflushed.rely();
                self.log.follow_writes();
            } else {
                self.log.need_backend_flush();
            }
        }
    }

    pub(super) fn log_mark(&mut self, kind: RecordKind, block: u32, slot: u32, steps: &mut Vec<Step>) {
        self.end_of_log(steps).mark(kind, block, slot);
    }

    pub(super) fn log_seal(&mut self, steps: &mut Vec<Step>) {
        self.end_of_log(steps).seal();
    }

    /// Plans to make the backend's copies of `blocks` changeable.
    pub(super) fn become_unsure(&mut self, blocks: &[u32], steps: &mut Vec<Step>) {
        if !blocks.is_empty() {
            // Not later: it may reset the unit that records a region as unsure.
            self.reclaim(steps);
            let LogCache { intents, now_us, log, frames, unflushed, .. } = self;
            intents.become_unsure(blocks, *now_us, &mut Appender { log, frames, unflushed, steps });
        }
    }

    /// Plans to make regions sure again that are due.
    pub(super) fn become_sure(&mut self, now_us: u64, steps: &mut Vec<Step>) {
        for region in self.intents.due(now_us) {
            self.reclaim(steps);
            let LogCache { intents, log, frames, unflushed, .. } = self;
            intents.become_sure(region, &mut Appender { log, frames, unflushed, steps });
        }
    }

    /// True if a client's write may still become dirty on a flash that is being removed.
    pub(super) fn may_dirty_while_leaving(&self) -> bool {
        self.is_leaving() && self.config.mode == Mode::WriteBack && self.pace.has_credit(self.log.dirty_blocks())
    }

    /// Returns the blocks not yet written to the backend; the others of [`Cache::blocks_to_write_back`] only wait for
    /// its flush.
    pub fn blocks_to_give_back(&self) -> u64 {
        self.blocks_to_write_back().saturating_sub(self.pace.written_of_batches())
    }

    /// Returns the number of blocks whose write-back is in progress.
    pub fn destaging_blocks(&self) -> u64 {
        self.destaging.blocks()
    }

    /// Returns the total delay of replies to writes, in microseconds, which keeps dirty data from growing faster than
    /// it is written back. It depends on real devices; in a simulation it is meaningless.
    pub fn throttled_us(&self) -> u64 {
        self.pace.throttled_us()
    }

    /// Returns the dirty blocks on flash, and those in RAM that wait for the flash.
    pub(super) fn dirty_and_buffered(&self) -> u64 {
        self.log.dirty_blocks() + if self.has_flash { self.buffered_blocks() as u64 } else { 0 }
    }

    /// Runs without flash. Reads stay in the read buffer. Writes stay in the write buffer until they are evicted or
    /// flushed, and then go to the backend. A block that the backend does not accept is lost, and flushes fail until it
    /// is rewritten.
    pub fn do_without_flash(&mut self) {
        (self.admitting, self.has_flash) = (false, false);
    }

    /// Prepares the removal of the flash: reads are not admitted, and the cleaner writes back all dirty blocks. Writes
    /// of dirty blocks still go to the flash. Other writes go there at half the write-back rate, so clients only wait
    /// for the backend if they write faster.
    pub fn stop_admitting(&mut self) {
        self.admitting = false;
    }

    /// Switches to write-around: writes bypass the flash if possible.
    pub fn write_around(&mut self) {
        self.config.mode = Mode::WriteAround;
    }

    /// True if the flash is being removed.
    pub(super) fn is_leaving(&self) -> bool {
        self.has_flash && !self.admitting
    }

    /// Cancels the removal of the flash: reverts [`stop_admitting`](Self::stop_admitting), with the earlier write mode.
    pub fn admit_again(&mut self, mode: Mode) {
        self.admitting = true;
        self.config.mode = mode;
    }

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
        let batch = Batch { last_slot, ..Batch::of(Target::Unit(sequence), dirty) };
        self.destaging.write_back(batch, &self.log, &mut self.frames, steps);
    }

    /// Plans to write data in memory to the backend, because its flash failed.
    fn destage_memory(&mut self, steps: &mut Vec<Step>) {
        for chunk in self.write_buffer.drain() {
            for (block, frame) in chunk.blocks() {
                let slot = self.log.find(block);
                let replaces = slot.is_some_and(|slot| self.log.is_dirty(slot)) || self.lost.remove(block);
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
                self.past.begin(block, frame, &mut self.frames);
                self.unflushed.add(block..block + 1);
                self.frames.release(frame);
            }
        }
        self.flush_backend(steps);
    }

    /// Returns the unfinished batches, in order.
    pub fn batches(&self) -> Vec<u32> {
        let mut batches: Vec<u32> = self.destaging.batches().map(|(number, _)| number).collect();
        batches.sort_unstable();
        batches
    }

    /// Ends a batch: its blocks were written back and flushed, except failed ones. If it was not `flushed`, nothing is
    /// certain.
    pub(super) fn end_batch(&mut self, batch: u32, flushed: bool) {
        let Batch { target, last_slot, blocks, failed, unread } = self.destaging.end(batch);
        let last_slot = last_slot.filter(|_| flushed && failed.is_empty());
        self.active = true;
        let given_up = match target {
            Target::Unit(_) => 0,
            // A failed flash keeps them: a start may be able to read them.
            Target::Epochs | Target::Journal if self.flash_failed || unread.is_empty() => 0,
            Target::Epochs | Target::Journal => {
                self.in_order.as_mut().map_or(0, |order| order.lost.not_read(&blocks, &unread, order.drains, &self.log))
            }
        };
        let is_retried = !flushed || failed.len() > given_up;
        if is_retried {
            self.destaging.rest(self.now_us);
        }
        if matches!(target, Target::Journal) {
            return self.journal_batch_ended(is_retried);
        }
        self.figures.destaged_blocks += if flushed { (blocks.len() - failed.len()) as u64 } else { 0 };
        self.pace.batch_written_back((blocks.len() - failed.len()) as u64);
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
        self.previous.note_written_back(sequence, &blocks, &self.log);
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
}
