//! Write-back in the order of [epochs](crate::epochs).
//!
//! Source: our own. An epoch is an interval of the log. A unit with versions of ended epochs is reset after they are
//! written back, and nothing of it is copied forward. While the backend lacks an ended epoch, nothing passes the flash:
//! such changes go to the log, or wait.
//!
//! So an epoch is written back as soon as it has ended. To delay that would save no write to the backend, because each
//! epoch has its own version of a block. But all that the policy rejects would go to flash meanwhile.
//!
//! After a crash, epochs are written back again from the last one that the log records as done. That changes nothing on
//! the backend, unless it has a newer version of one of their blocks. So done epochs are recorded before an epoch is
//! written back that has blocks in common with them. They are also recorded before the end of the next epoch, which
//! could have changes past the flash.
//!
//! With a [journal](crate::journal), a group of ended epochs goes there first and then into place, each block once.
//! Nothing passes a group before its mark is durable. A group that was given up gets its mark before the next one
//! begins: otherwise a start could find it whole.

use super::append::Appender;
use super::config::RESERVE_UNITS;
use super::destage::{BATCH_BLOCKS, Batch, Target};
use super::groups::{Group, InOrder, Phase, group_blocks, next_head};
use super::order_lost::LostVersions;
use super::pace::units_to_keep_clean;
use super::{Cache, Kind, LogCache, Mode, Request, WriteBackOrder};
use crate::epochs::{BackendState, Epochs};
use crate::format::{BLOCK_BYTES, Kind as RecordKind, Place};
use crate::journal::{INDEX_START, Journal, blocks_max, index_pages};
use crate::step::{JournalPart, Step};

/// Zeroes of more blocks wait for the epochs before them, and pass the flash.
const ZEROES_MAX: u64 = 64;
/// Units that must be left beside the data of a waiting change, before it is planned; and when a piece of it is.
const UNITS_LEAST: u32 = 3;
pub(super) const PLAN_UNITS_LEAST: u32 = 1;
/// Maximum number of blocks in epochs that are done and not recorded as such.
const UNSAID_MAX: usize = 4096;

impl LogCache {
    /// Begins or ends ordered write-back, as configured. Dirty blocks without a known order are one epoch.
    pub(super) fn set_order(&mut self) {
        let found = self.log.take_epochs();
        match (self.config.order, &self.in_order) {
            (WriteBackOrder::None, _) => {
                self.in_order = None;
                self.log.keep_before(None);
            }
            (WriteBackOrder::Barriers | WriteBackOrder::Journal, Some(_)) => {}
            (WriteBackOrder::Barriers | WriteBackOrder::Journal, None) => {
                let has_dirty = self.log.dirty_blocks() > 0;
                let mut epochs = found.unwrap_or_else(|| match has_dirty {
                    true => Epochs::unordered(self.log.end()),
                    false => Epochs::begun(self.unix_us()),
                });
                if let Some(journal) = &self.config.journal {
                    let end = journal.last.end.min(self.log.end());
                    epochs.finish_until(end);
                    // A change past the flash, lost with the crash, may have replaced a copy on the backend.
                    self.log.drop_kept_before(end);
                }
                // The backend becomes a state of the volume as soon as possible.
                let drains = self.backend_state_of(&epochs) == BackendState::Mixed;
                // Some changes may have passed the flash.
                epochs.changed(self.now_us);
                self.log.keep_before(Some(epochs.last()));
                // The log records the journal's epochs as done once the dirty copies of them are written back.
                let said = epochs.done();
                let said_broken = epochs.broken().map(|_| *self.log.sequences().start());
                let lost = LostVersions::of(self.lost.blocks(), said_broken);
                if epochs.broken().is_some() || !self.lost.is_empty() {
                    // Newer versions of all that was lost are before this, if there are any.
                    epochs.break_order(None, 0, self.log.end());
                    epochs.set_lacking(!self.lost.is_empty());
                }
                let starts = self.log.end() > Place::default();
                self.in_order = Some(InOrder { epochs, lost, said, starts, drains, ..InOrder::default() });
            }
        }
    }

    /// Ends the epoch that the last run left open, before anything else is planned.
    pub(super) fn end_last_run(&mut self, steps: &mut Vec<Step>) {
        if self.in_order.as_mut().is_some_and(|order| std::mem::take(&mut order.starts)) {
            self.end_epoch(steps);
        }
    }

    /// Returns the state of the backend without its flash, if data is written back in order.
    pub fn backend_state(&self, now_us: u64) -> Option<BackendState> {
        let order = self.in_order.as_ref().filter(|_| self.has_flash)?;
        Some(match self.backend_state_of(&order.epochs) {
            BackendState::Of(_) if Cache::blocks_to_write_back(self) == 0 && order.epochs.all_done() => {
                BackendState::Of(Some(self.config.unix_us.saturating_add(now_us)))
            }
            state => state,
        })
    }

    fn backend_state_of(&self, epochs: &Epochs) -> BackendState {
        epochs.backend_state(*self.log.sequences().start(), self.config.unix_us)
    }

    /// Returns the epochs that the backend lacks, if data is written back in order.
    pub fn epochs(&self) -> Option<&Epochs> {
        self.in_order.as_ref().map(|order| &order.epochs)
    }

    /// Returns the end of the last epoch that has ended, if data is written back in order. All changes that were
    /// durable before are in epochs up to it.
    pub fn ended_epochs(&self) -> Option<Place> {
        self.in_order.as_ref().filter(|_| self.has_flash).map(|order| order.epochs.last())
    }

    /// Returns if the backend has all epochs up to an end. It has without write-back in order. It has, too, if the end
    /// is behind the log, and so of an earlier flash.
    pub fn written_back(&self) -> impl Fn(Place) -> bool + use<> {
        let done = self.in_order.as_ref().filter(|_| self.has_flash).map(|order| order.epochs.done());
        let log_end = self.log.end();
        move |end| done.is_none_or(|done| done >= end) || end > log_end
    }

    /// Returns the end of the log, and the blocks with data in it that the backend lacks, in any version.
    pub fn unfinished_blocks(&self) -> (Place, Vec<u32>) {
        let end = self.log.end();
        let versions = self.log.versions_between(Place::default(), end);
        (end, versions.into_iter().map(|(block, _)| block).collect())
    }

    /// Returns the number of flushes of the backend, besides those of batches, that have ended.
    pub fn backend_flushes(&self) -> u64 {
        self.unflushed.ended()
    }

    /// True if changes may pass the flash: the backend has all epochs that have ended.
    pub(super) fn may_pass(&self) -> bool {
        !self.has_flash || self.in_order.as_ref().is_none_or(|order| order.epochs.all_done())
    }

    /// True if the next request ends the epoch that the last run left open.
    fn ends_last_run(&self) -> bool {
        self.in_order.as_ref().is_some_and(|order| order.starts && order.epochs.changed_us().is_some())
    }

    /// True if the unit of `sequence` may have versions of an epoch that has ended and that the backend lacks.
    pub(super) fn is_in_ended_epoch(&self, sequence: u64) -> bool {
        !self.may_pass() && self.in_order.as_ref().is_some_and(|order| sequence <= order.epochs.last().sequence)
    }

    /// Notes a change in the open epoch.
    #[inline]
    pub(super) fn note_change(&mut self) {
        let now_us = self.now_us;
        if let Some(order) = &mut self.in_order {
            order.epochs.changed(now_us);
        }
    }

    /// True if the flush of the backend has ended that the next epoch waits for.
    pub(super) fn waited_for_flush(&self) -> bool {
        let is_flushed = |order: &InOrder| order.epochs.oldest().is_some_and(|it| it.flushes <= self.unflushed.ended());
        self.destaging.blocks() == 0 && self.in_order.as_ref().is_some_and(|it| it.waits_for_flush && is_flushed(it))
    }

    /// Adds a record that the open epoch ends, if it has changes. Returns true if so; the segment is then to be handed
    /// out.
    pub(super) fn mark_epoch_end(&mut self, steps: &mut Vec<Step>) -> bool {
        let has_changes = self.in_order.as_ref().is_some_and(|order| order.epochs.changed_us().is_some());
        if !has_changes || !self.has_flash || self.flash_failed {
            return false;
        }
        self.say_done(steps);
        self.reclaim(steps);
        let (seconds, milliseconds) = (self.unix_us() / 1_000_000, self.unix_us() / 1_000 % 1_000);
        let seconds = u32::try_from(seconds).unwrap_or(0);
        self.log_mark(RecordKind::EpochEnd, seconds, milliseconds as u32, steps);
        true
    }

    /// Returns the time in microseconds since 1970, or 0.
    pub(super) fn unix_us(&self) -> u64 {
        if self.config.unix_us == 0 { 0 } else { self.config.unix_us.saturating_add(self.now_us) }
    }

    /// Ends the open epoch at the end of the log. A flush of its changes past the flash follows.
    pub(super) fn epoch_ended(&mut self) {
        let (end, unix_us, flushes) = (self.log.end(), self.unix_us(), self.unflushed.with_next());
        let order = self.in_order.as_mut().expect("epochs end if data is written back in order");
        order.epochs.end(end, unix_us, flushes);
        self.log.keep_before(Some(end));
    }

    /// Returns the time when the open epoch ends without a client's flush. Some clients never flush.
    pub(super) fn epoch_ends_us(&self) -> Option<u64> {
        let order = self.in_order.as_ref().filter(|_| self.has_flash)?;
        let is_awaited = order.starts && order.drains;
        Some(order.epochs.changed_us()?.saturating_add(if is_awaited { 0 } else { self.config.commit_age_us }))
    }

    /// Ends the open epoch without a client's flush. Returns false if it has no changes.
    pub(super) fn end_epoch(&mut self, steps: &mut Vec<Step>) -> bool {
        if self.flash_failed && self.in_order.as_ref().is_some_and(|order| order.epochs.changed_us().is_some()) {
            self.epoch_ended();
            return true;
        }
        let ends = self.mark_epoch_end(steps);
        if ends {
            self.log_seal(steps);
            self.epoch_ended();
            self.log.flush(steps);
            self.flush_backend(steps);
        }
        ends
    }

    /// Adds a record of the epochs that are done, if it is missing.
    pub(super) fn say_done(&mut self, steps: &mut Vec<Step>) {
        let Some(order) = &mut self.in_order else { return };
        let (done, unix_us) = (order.epochs.done(), order.epochs.done_unix_us().unwrap_or(0));
        if done == order.said || done.sequence < *self.log.sequences().start() {
            return;
        }
        order.said = done;
        order.unsaid.clear();
        self.reclaim(steps);
        let geometry = self.log.geometry();
        let slot = geometry.slot(geometry.unit_of(done.sequence), done.page);
        let seconds = u32::try_from(unix_us / 1_000_000).unwrap_or(0);
        self.log_mark(RecordKind::EpochsDone, seconds, slot, steps);
        self.say_broken(steps);
    }

    /// Adds a record that the order is broken, if it is. It follows each record of done epochs.
    fn say_broken(&mut self, steps: &mut Vec<Step>) {
        self.reclaim(steps);
        self.mark_broken(steps);
    }

    /// Repeats the record that the order is broken before its unit is reset.
    pub(super) fn keep_broken(&mut self, sequence: u64, steps: &mut Vec<Step>) {
        if self.in_order.as_ref().is_some_and(|order| order.lost.is_said_by(sequence)) {
            self.mark_broken(steps);
        }
    }

    fn mark_broken(&mut self, steps: &mut Vec<Step>) {
        let LogCache { in_order, log, frames, unflushed, .. } = self;
        if let Some(InOrder { epochs, lost, .. }) = in_order {
            lost.mark_broken(epochs, &mut Appender { log, frames, unflushed, steps });
        }
    }

    /// Records the versions of the oldest epoch that count as lost.
    fn give_up_versions(&mut self, steps: &mut Vec<Step>) {
        let unix_us = self.unix_us();
        let Some(order) = self.in_order.as_mut().filter(|order| order.lost.has_unread()) else { return };
        let unread = order.lost.take_unread();
        if self.flash_failed {
            return;
        }
        for (block, slot) in unread {
            let is_newest = self.log.find(block) == Some(slot) && self.log.is_dirty(slot);
            if is_newest {
                self.log.policy_mut().remove(block);
                self.unreadable.remove(&block);
                self.reclaim(steps);
                self.mark_lost(block, steps);
            } else if !self.log.drop_kept(slot) {
                continue;
            }
            let until = self.log.find(block).map_or(self.log.end(), |newest| self.log.place_after(newest));
            let order = self.in_order.as_mut().expect("data is written back in order");
            order.epochs.break_order(Some(block), unix_us, until);
        }
        self.say_broken(steps);
        self.end_of_log(steps).flush();
    }

    /// Writes back all epochs that have ended.
    pub(super) fn drain_in_order(&mut self, steps: &mut Vec<Step>) {
        if let Some(order) = &mut self.in_order {
            order.drains = true;
        }
        self.end_epoch(steps);
        self.destaging.after_us = 0;
        self.go_on_in_order(steps);
    }

    /// Plans due write-backs, as far as few enough blocks are in progress.
    pub(super) fn go_on_in_order(&mut self, steps: &mut Vec<Step>) {
        let is_of_unit = |(_, batch): (u32, &Batch)| matches!(batch.target, Target::Unit(_));
        if self.now_us < self.destaging.after_us || self.destaging.batches().any(is_of_unit) {
            return;
        }
        while self.destaging.may_begin() && self.has_part_to_write(steps) {
            let quarter = |it: Journal| BATCH_BLOCKS.min(blocks_max(it.pages).div_ceil(4).max(1));
            let most = self.config.journal.map_or(BATCH_BLOCKS, quarter);
            let order = self.in_order.as_mut().expect("data is written back in order");
            let rest = order.todo.len().saturating_sub(most);
            let mut blocks = order.todo.split_off(rest);
            blocks.reverse();
            order.batches += 1;
            let Group { phase, head, blocks: all, .. } = order.group.as_ref().expect("a group is written back");
            match (phase, *head) {
                (Phase::Place, _) | (_, None) => {
                    self.destaging.write_back(Batch::of(Target::Epochs, blocks), &self.log, &mut self.frames, steps);
                }
                (Phase::Journal | Phase::Mark, Some(head)) => {
                    let at = (all.len() - rest - blocks.len()) as u32;
                    let page = INDEX_START + index_pages(all.len()) + at;
                    let part = match phase {
                        Phase::Mark => Some(JournalPart::Mark(head)),
                        _ => (at == 0).then(|| JournalPart::Index { head, blocks: all.clone() }),
                    };
                    let (log, frames) = (&self.log, &mut self.frames);
                    let pages = self.destaging.write_journal(part, (page, blocks), log, frames, steps);
                    self.figures.destaged_blocks += pages;
                }
            }
        }
    }

    /// True if the journal may have a whole group without its mark.
    pub fn has_group_in_journal(&self) -> bool {
        self.in_order.as_ref().is_some_and(|order| order.in_journal)
    }

    /// Begins the write-back of the oldest epochs if that is due. Returns true if a part of them is to be written.
    fn has_part_to_write(&mut self, steps: &mut Vec<Step>) -> bool {
        loop {
            let Some(order) = &mut self.in_order else { return false };
            order.waits_for_flush = false;
            if let Some(group) = &order.group {
                if group.phase == Phase::Place && order.lost.has_unread() && order.batches == 0 {
                    self.give_up_parts(steps);
                    continue;
                }
                return !order.todo.is_empty() || group.phase == Phase::Mark && order.batches == 0;
            }
            if order.in_journal {
                let (end, ended_unix_us) = (order.epochs.done(), order.epochs.done_unix_us().unwrap_or(0));
                let log_end = self.flash_failed.then(|| self.log.flushed());
                let head = self.config.journal.map(|journal| next_head(&journal, end, ended_unix_us, log_end));
                let given_up = Group { phase: Phase::Mark, end, head, blocks: Vec::new(), absorbed: Vec::new() };
                self.in_order.as_mut().expect("data is written back in order").group = Some(given_up);
                continue;
            }
            if !self.is_write_back_due() {
                return false;
            }
            self.give_up_versions(steps);
            let order = self.in_order.as_mut().expect("data is written back in order");
            let Some(&oldest) = order.epochs.oldest() else {
                // A change in pieces belongs to one epoch. After its first piece, no other may be refused.
                if self.flash_failed || self.change_blocks > 0 || !self.end_epoch(steps) {
                    return false;
                }
                continue;
            };
            if oldest.flushes > self.unflushed.ended() {
                order.waits_for_flush = true;
                self.flush_backend(steps);
                return false;
            }
            let flushed = self.unflushed.ended();
            let data_pages = self.config.data_pages();
            let journal = self.config.journal.as_ref().map(|journal| (journal, group_blocks(journal, data_pages)));
            let log_end = self.flash_failed.then(|| self.log.flushed());
            let group = Group::next((oldest, &order.epochs), journal, &mut self.log, flushed, log_end);
            order.lost.begin_attempt();
            let has_common = group.blocks.iter().any(|(block, _)| order.unsaid.contains(block));
            let has_many = order.unsaid.len() > UNSAID_MAX;
            let breaks = order.epochs.broken().is_some() && !order.lost.is_said();
            order.todo.extend(group.blocks.iter().rev());
            order.in_journal = group.phase == Phase::Journal;
            order.group = Some(group);
            if !self.flash_failed {
                if has_common || has_many {
                    self.say_done(steps);
                }
                if breaks {
                    self.say_broken(steps);
                }
                if has_common || has_many || breaks {
                    self.log_seal(steps);
                }
                self.log.flush(steps);
            }
            self.end_phase();
        }
    }

    /// Ends the current phase of the group, if all of it was written.
    fn end_phase(&mut self) {
        if let Some(group) = self.in_order.as_mut().and_then(|order| order.end_phase(&mut self.log)) {
            self.end_group(&group);
        }
    }

    /// Ends a group that is durably in place.
    fn end_group(&mut self, group: &Group) {
        // The mark of a group that was given up ends no epoch.
        if self.in_order.as_ref().is_some_and(|order| order.epochs.done() < group.end) {
            let unix_us = self.unix_us();
            let newer = (&self.lost, &self.write_buffer);
            if let Some(InOrder { epochs, lost, .. }) = &mut self.in_order {
                lost.judge(epochs, unix_us, newer, (&self.log, &self.unflushed));
            }
        }
        let Some(order) = &mut self.in_order else { return };
        order.epochs.finish_until(group.end);
        if let (Some(journal), Some(head)) = (&mut self.config.journal, group.head) {
            journal.last = head;
            order.in_journal = false;
        }
        if order.epochs.all_done() {
            order.drains = false;
            order.lost.set_awaited(false);
        }
    }

    /// Records versions of the group that count as lost, which are no longer to be written into place.
    fn give_up_parts(&mut self, steps: &mut Vec<Step>) {
        self.give_up_versions(steps);
        let Some(order) = &mut self.in_order else { return };
        let log = &self.log;
        order.todo.retain(|&(_, slot)| log.is_dirty(slot) || log.is_kept(slot));
        self.end_phase();
    }

    /// Ends a batch of the oldest epochs after these blocks were written back and flushed. Others may be `retried`.
    pub(super) fn epochs_written_back(&mut self, written: Vec<(u32, u32)>, retried: bool) {
        for &(block, slot) in &written {
            // Its unit cannot have been reset.
            let sequence = self.log.sequence_before(slot, *self.log.sequences().end());
            self.previous.note_written_back(sequence, &[(block, slot)], &self.log);
            if self.log.find(block) == Some(slot) {
                self.log.set_dirty(slot, false);
            } else {
                self.log.drop_kept(slot);
            }
        }
        if let Some(order) = &mut self.in_order {
            order.unsaid.extend(written.iter().map(|(block, _)| *block));
        }
        self.journal_batch_ended(retried);
    }

    /// Ends a batch of the oldest epochs. Parts of it may be `retried`.
    pub(super) fn journal_batch_ended(&mut self, retried: bool) {
        if let Some(order) = &mut self.in_order {
            order.batches -= 1;
            order.failed |= retried;
        }
        self.end_phase();
    }

    /// True if an epoch is to be written back now: the oldest that has ended, or the open one.
    fn is_write_back_due(&mut self) -> bool {
        let (high, low) = self.dirty_bounds();
        let versions = self.log.dirty_blocks() + self.log.kept_blocks();
        let Some(order) = &mut self.in_order else { return false };
        order.cleans = versions > high || order.cleans && versions > low;
        let (cleans, heals) = (order.cleans, order.epochs.heals());
        if self.flash_failed {
            return order.drains;
        }
        if !order.epochs.all_done() {
            return true;
        }
        let ahead = units_to_keep_clean(&self.log);
        let lacks_units = self.log.free_and_done_units(RESERVE_UNITS + ahead) < RESERVE_UNITS + ahead;
        let rests = self.now_us < self.head_cleaned_us.saturating_add(self.head_rests_us());
        let is_old = self.old_us().is_some_and(|old_us| old_us <= self.now_us);
        let is_due = versions > 0 && (cleans && (high > 0 || !rests) || lacks_units || is_old) || heals && !rests;
        if is_due {
            self.head_cleaned_us = self.now_us;
        }
        is_due
    }

    /// Returns the time when the open epoch is old enough to be written back. That leaves a fifth of the maximum age of
    /// dirty blocks to do it.
    fn old_us(&self) -> Option<u64> {
        let changed_us = self.in_order.as_ref()?.epochs.changed_us()?;
        Some(changed_us.saturating_add(self.config.dirty_age_us / 5 * 4))
    }

    /// Returns the time when write-back has work, without other events. While it is working, it continues by itself.
    pub(super) fn ordered_us(&self) -> Option<u64> {
        let order = self.in_order.as_ref()?;
        let is_working = self.destaging.blocks() > 0 || order.batches > 0 || order.waits_for_flush;
        let has_none = self.log.dirty_blocks() + self.log.kept_blocks() == 0 && order.epochs.all_done();
        let heals = order.epochs.heals();
        if is_working || has_none && !heals {
            return None;
        }
        if order.group.is_some() || order.in_journal {
            return Some(self.destaging.after_us);
        }
        let soon_us = self.head_cleaned_us.saturating_add(self.head_rests_us());
        let is_soon = !order.epochs.all_done() || heals || self.dirty_bounds().0 == 0;
        let due_us = if is_soon { soon_us } else { self.old_us()? };
        Some(due_us.max(self.destaging.after_us))
    }

    /// True if a change has to wait until more of the ended epochs is written back. The log has no room for it beside
    /// `units` free units, or the change is not for the log.
    pub(super) fn lacks_room(&self, request: &Request, units: u32) -> bool {
        if self.may_pass() && !self.ends_last_run() || self.flash_failed {
            return false;
        }
        let is_leaving = self.has_flash && !self.admitting && !self.may_dirty_while_leaving();
        let passes = self.config.mode != Mode::WriteBack || is_leaving;
        let blocks = match request.kind {
            Kind::Read | Kind::Prefetch | Kind::Flush => return false,
            Kind::Write if passes => return true,
            Kind::Write => request.blocks().len() as u64,
            Kind::Trim | Kind::WriteZeroes { .. } => {
                let blocks = request.whole_length.div_ceil(BLOCK_BYTES as u64);
                if passes || blocks > ZEROES_MAX {
                    return true;
                }
                blocks + 2
            }
        };
        self.lacks_units(blocks, units)
    }

    /// True if the log has no room for the write buffer and this many blocks beside `units` free units.
    fn lacks_units(&self, blocks: u64, units: u32) -> bool {
        let blocks = blocks + self.write_buffer.len() as u64;
        let pages = blocks + blocks.div_ceil(self.config.segment_blocks.into()) + 2;
        let unit_pages = u64::from(self.log.geometry().segments_end()) - 2;
        let needed = u32::try_from(pages.div_ceil(unit_pages)).unwrap_or(u32::MAX).saturating_add(units);
        self.log.free_and_done_units(needed) < needed
    }

    /// True if the room of the log is for changes that are in memory, or being planned, and may not pass the flash.
    pub(super) fn is_reserved(&self) -> bool {
        !self.may_pass() && !self.flash_failed && self.lacks_units(self.change_blocks, UNITS_LEAST)
    }

    /// See [`Cache::waits`](super::Cache::waits). If the backend takes nothing, the change fails instead.
    pub(super) fn waits_for_order(&mut self, request: &Request) -> bool {
        let waits = !self.backend_refuses && self.lacks_room(request, UNITS_LEAST);
        // A flash that is being removed keeps what cannot be read: then it is not removed.
        let is_leaving = self.is_leaving();
        if let (true, Some(order)) = (waits, &mut self.in_order) {
            order.drains = true;
            order.lost.set_awaited(!is_leaving);
        }
        waits
    }
}
