//! Background work: resetting the oldest units, copying wanted blocks forward, and writing dirty blocks back, also so
//! that the flash can be removed.
//!
//! Source: LARC (section V.A: the cleaner starts above a threshold of dirty blocks, and also cleans blocks idle for 15
//! minutes). Here blocks are cleaned once they have been dirty for that long, idle or not, and before all others. So a
//! block that is rewritten again and again does not keep others dirty.

use super::config::RESERVE_UNITS;
use super::destage::{BATCH_BLOCKS, Batch, Target};
use super::{CopyForward, DESTAGING_BLOCKS_MAX, LogCache, Mode};
use crate::format::Kind as RecordKind;
use crate::step::{Cause, Frame, Step};

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
        let mut still_lost: Vec<u32> =
            self.lost.iter().filter(|(_, lost)| lost.said == Some(sequence)).map(|(block, _)| *block).collect();
        still_lost.sort_unstable();
        for block in still_lost {
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
        self.become_sure_with(sequence, steps);
        let from = steps.len();
        self.log.reset_tail(steps);
        self.settle(from, steps);
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
        if self.in_order.is_some() {
            self.go_on_in_order(steps);
        } else if !self.flash_failed && self.now_us >= self.destage_after_us {
            self.clean_due(steps);
            self.clean_ahead_of_tail(steps);
            self.clean_above_threshold(steps);
        }
    }

    /// True if another batch may start. The number of blocks is limited so that readers and writers of the backend do
    /// not wait for many.
    pub(super) fn may_destage(&self) -> bool {
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
        let is_behind = |sequence: u64| (tail..head).contains(&sequence) && self.log.has_due(sequence);
        let is_due = |batch: &Batch| matches!(batch.target, Target::Unit(sequence) if is_behind(sequence));
        if self.log.has_due(head) && !self.batches.values().any(is_due) {
            self.head_cleaned_us = self.now_us;
            self.destage(head, BATCH_BLOCKS, true, steps);
        }
    }

    /// If nothing may stay dirty, periodically cleans all blocks, including those of the unit being filled.
    pub(super) fn clean_all(&mut self, steps: &mut Vec<Step>) {
        if self.in_order.is_some() || self.now_us < self.destage_after_us || self.dirty_bounds().0 > 0 {
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
        if self.in_order.is_some() {
            return self.ordered_us();
        }
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
        self.all_become_sure(steps);
        // Clean blocks in memory are as valuable as others.
        self.say_done(steps);
        self.log_seal(steps);
        self.log.say_destaged(steps);
        self.log.flush(steps);
        self.log.bear_witness(steps);
    }

    pub(super) fn log_add(&mut self, block: u32, frame: Frame, dirty: bool, cause: Cause, steps: &mut Vec<Step>) {
        if dirty {
            self.note_change();
        }
        let from = steps.len();
        self.frames.hold(frame);
        if let Some(replaced) = self.log.add(block, frame, dirty, cause, steps) {
            self.frames.release(replaced);
        }
        self.settle(from, steps);
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
}
