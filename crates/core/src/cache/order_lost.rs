//! Versions of ordered write-back that the flash lost.
//!
//! The epoch of a version that cannot be read stays open, and the read is retried. If a client's change waits for the
//! epoch, the version counts as lost after some time, so that nothing waits for ever. A version that a newer one has
//! replaced counts as lost when the flash is removed, too: its block is not lost.
//!
//! Then the backend gets the later epochs. It is no state of the volume until it has a newer version of the block. The
//! order is [broken](crate::epochs::Break), which the log records before the backend changes.

use std::collections::BTreeSet;

use super::LogCache;
use crate::format::Kind as RecordKind;
use crate::step::Step;

/// The lost versions.
#[derive(Debug, Default)]
pub(super) struct LostVersions {
    /// Versions of the oldest epoch that count as lost, as (block, slot).
    unread: Vec<(u32, u32)>,
    /// True if a client's change waits for the oldest epoch.
    is_awaited: bool,
    /// True if one waited when the current attempt to write the epoch back began. Then the driver retries reads.
    is_patient: bool,
    /// Lost blocks without a newer version.
    blocks: BTreeSet<u32>,
    /// The sequence number of the unit whose record states that the order is broken.
    said: Option<u64>,
}

impl LostVersions {
    /// Starts with blocks that were lost before. `said`: the oldest unit that can state that the order is broken.
    pub fn of<'a>(blocks: impl Iterator<Item = &'a u32>, said: Option<u64>) -> LostVersions {
        LostVersions { blocks: blocks.copied().collect(), said, ..LostVersions::default() }
    }

    /// True if the log states that the order is broken.
    pub fn is_said(&self) -> bool {
        self.said.is_some()
    }

    /// Sets whether a client's change waits for the oldest epoch.
    pub fn set_awaited(&mut self, is_awaited: bool) {
        self.is_awaited = is_awaited;
    }

    /// Begins an attempt to write the oldest epoch back.
    pub fn begin_attempt(&mut self) {
        self.is_patient = self.is_awaited;
    }

    /// True if the driver retries the reads of this attempt.
    pub fn is_patient(&self) -> bool {
        self.is_patient
    }

    /// True if versions count as lost and are not recorded as such.
    pub fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }
}

impl LogCache {
    /// Handles versions of the oldest epoch whose blocks are in `unread`, because the flash could not read them.
    /// Returns the number of those that count as lost.
    pub(super) fn epoch_not_read(&mut self, versions: &[(u32, u32)], unread: &[u32]) -> usize {
        // A failed flash keeps them: a start may be able to read them.
        let Some(order) = self.in_order.as_mut().filter(|_| !self.flash_failed && !unread.is_empty()) else { return 0 };
        let before = order.lost.unread.len();
        for &(block, slot) in versions.iter().filter(|(block, _)| unread.contains(block)) {
            if order.lost.is_patient || order.drains && self.log.is_kept(slot) {
                order.lost.unread.push((block, slot));
            }
        }
        order.lost.unread.len() - before
    }

    /// Records the versions of the oldest epoch that count as lost.
    pub(super) fn give_up_versions(&mut self, steps: &mut Vec<Step>) {
        let unix_us = self.unix_us();
        let Some(order) = self.in_order.as_mut().filter(|order| !order.lost.unread.is_empty()) else { return };
        let unread = std::mem::take(&mut order.lost.unread);
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
        self.log_seal(steps);
        self.log.flush(steps);
    }

    /// Adds a record that the order is broken, if it is. It follows each record of done epochs.
    pub(super) fn say_broken(&mut self, steps: &mut Vec<Step>) {
        self.reclaim(steps);
        self.mark_broken(steps);
    }

    /// Repeats the record that the order is broken before its unit is reset.
    pub(super) fn keep_broken(&mut self, sequence: u64, steps: &mut Vec<Step>) {
        if self.in_order.as_ref().is_some_and(|order| order.lost.said.is_some_and(|said| said <= sequence)) {
            self.mark_broken(steps);
        }
    }

    fn mark_broken(&mut self, steps: &mut Vec<Step>) {
        let Some(order) = &mut self.in_order else { return };
        order.lost.said = None;
        if let Some(broken) = order.epochs.broken() {
            let since = u32::try_from(broken.since_unix_us / 1_000_000).unwrap_or(0).max(1);
            self.log_mark(RecordKind::OrderBroken, since, 0, steps);
            let said = *self.log.sequences().end();
            self.in_order.as_mut().expect("data is written back in order").lost.said = Some(said);
        }
    }

    /// Judges, before an epoch is done, whether the order is broken: a block lacks a version that was durable, and a
    /// newer one.
    pub(super) fn judge_order(&mut self) {
        let unix_us = self.unix_us();
        let Some(order) = &mut self.in_order else { return };
        let blocks = &mut order.lost.blocks;
        blocks.extend(self.lost.iter().filter(|(_, lost)| lost.is_on_flash()).map(|(block, _)| *block));
        let Some(&first) = blocks.first() else { return };
        let mut until = order.epochs.done();
        blocks.retain(|&block| {
            let has_newer = !self.lost.contains_key(&block) && self.write_buffer.get(block).is_none();
            let newest = self.log.find(block).filter(|&slot| self.log.is_dirty(slot));
            if has_newer && let Some(slot) = newest {
                until = until.max(self.log.place_after(slot));
            }
            !has_newer || newest.is_none() && self.unflushed.contains(block)
        });
        order.epochs.break_order(Some(first), unix_us, until);
        order.epochs.set_lacking(!blocks.is_empty());
    }

    /// Notes that a flush of the backend failed, when `before` had ended.
    pub(super) fn flush_of_epochs_failed(&mut self, before: u64) {
        if let Some(order) = &mut self.in_order {
            order.epochs.flush_failed(before, self.unflushed.with_next());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::super::{Appending, Cache, Config, Event, Kind, Request, WriteBackOrder};
    use super::*;
    use crate::format::Geometry;
    use crate::layout::containers::Log;

    fn cache() -> LogCache {
        let geometry = Geometry { units: 24, unit_pages: 16 };
        let config = Config {
            order: WriteBackOrder::Barriers,
            unix_us: 1_000_000_000,
            write_buffer_blocks: 0,
            ..Config::new(geometry, "lru".parse().unwrap())
        };
        LogCache::new(config, Log::new(geometry), HashMap::new())
    }

    /// Executes steps and all that follow, on a flash that cannot read these slots. Returns the kinds of marks, and the
    /// blocks written back, in order.
    fn perform(cache: &mut LogCache, mut steps: Vec<Step>, unreadable: &[u32]) -> Vec<String> {
        let (mut bad, mut done) = (HashSet::new(), Vec::new());
        while !steps.is_empty() {
            for step in std::mem::take(&mut steps) {
                let mut event = Event::Done(&step);
                match &step {
                    Step::ReadFlash { slot, frame, .. } if unreadable.contains(slot) => {
                        bad.insert(frame.number);
                        event = Event::Failed { step: &step, missing: false };
                    }
                    Step::ReadFlash { frame, .. } => drop(bad.remove(&frame.number)),
                    Step::WriteBackend { frame, .. } if bad.contains(&frame.number) => {
                        event = Event::Failed { step: &step, missing: true };
                    }
                    Step::WriteBackend { block, .. } => done.push(format!("write {block}")),
                    Step::Append(segment) => {
                        let with_data = segment.records.iter().filter(|record| record.kind.has_data()).count();
                        let (checksums, mut records) = (vec![Some(0); with_data], Vec::new());
                        let (doubtful, records_of) = (false, &mut records);
                        let appending = Appending { segment, checksums: &checksums, doubtful, records: records_of };
                        cache.on(Event::Appending(appending), &mut Vec::new());
                        let broken = records.iter().filter(|record| record.kind == RecordKind::OrderBroken);
                        done.extend(broken.map(|record| format!("broken since {}", record.block)));
                    }
                    _ => {}
                }
                cache.on(event, &mut Vec::new());
            }
            cache.on(Event::GoOn, &mut steps);
        }
        cache.check();
        done
    }

    /// Writes a block and flushes. Returns its slot.
    fn write(cache: &mut LogCache, block: u32) -> u32 {
        let mut steps = Vec::new();
        for kind in [Kind::Write, Kind::Flush] {
            let length = if kind == Kind::Write { 4096 } else { 0 };
            let request = Request::whole(kind, u64::from(block) * 4096, length, false);
            cache.on(Event::Request { request: &request, now_us: cache.now_us }, &mut steps);
        }
        perform(cache, steps, &[]);
        cache.log.find(block).unwrap()
    }

    fn destage_all(cache: &mut LogCache, now_us: u64, unreadable: &[u32]) -> Vec<String> {
        let mut steps = Vec::new();
        cache.on(Event::DestageAll { now_us }, &mut steps);
        perform(cache, steps, unreadable)
    }

    #[test]
    fn a_replaced_version_that_cannot_be_read_breaks_the_order_until_the_newer_one_is_written_back() {
        let mut cache = cache();
        let old = write(&mut cache, 7);
        write(&mut cache, 8);
        write(&mut cache, 7);
        let done = destage_all(&mut cache, 1, &[old]);
        assert_eq!(done, ["broken since 1000", "write 8", "write 7"]);
        let epochs = cache.epochs().unwrap();
        assert!(epochs.all_done() && epochs.broken().is_none() && cache.lost_blocks().is_empty());
    }

    #[test]
    fn the_newest_version_is_lost_if_a_client_waits_for_it_and_the_order_heals_when_it_is_rewritten() {
        let mut cache = cache();
        let newest = write(&mut cache, 7);
        write(&mut cache, 8);
        assert_eq!(destage_all(&mut cache, 1, &[newest]), [""; 0]);
        // A detach is refused, and the block can still be read later.
        assert_eq!((cache.lost_blocks(), cache.epochs().unwrap().unfinished()), (vec![7], 2));
        assert!(cache.epochs().unwrap().broken().is_none() && !cache.gives_up_unread());
        // A trim of this length does not go through the log.
        let trim = Request::whole(Kind::Trim, 0, 100 * 4096, false);
        assert!(cache.waits(&trim));
        let mut steps = Vec::new();
        cache.on(Event::Tick { now_us: 2_000_000 }, &mut steps);
        assert!(cache.gives_up_unread(), "the driver retries the read");
        assert_eq!(perform(&mut cache, steps, &[newest]), ["broken since 1002", "write 8"]);
        assert!(!cache.waits(&trim));
        let broken = cache.epochs().unwrap().broken().copied().expect("block 7 lacks a newer version");
        assert_eq!((broken.block, broken.since_unix_us), (Some(7), 1_002_000_000));
        assert_eq!(cache.lost_blocks(), [7]);
        write(&mut cache, 7);
        assert!(cache.epochs().unwrap().broken().is_some());
        destage_all(&mut cache, 3_000_000, &[]);
        assert!(cache.epochs().unwrap().broken().is_none() && cache.lost_blocks().is_empty());
    }
}
