//! Blocks whose only copy was lost: the record of the loss, and its effect on flushes.

use super::{Cache, LogCache};
use crate::format::Kind as RecordKind;
use crate::step::{Cause, Frame, LogRecord, Step};

/// A block whose only copy was lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lost {
    /// The sequence number of the unit that records the loss; without one it is only known in memory, until the next
    /// flush.
    pub said: Option<u64>,
    /// True if the driver has the content: see [`Cache::keep`].
    pub kept: bool,
    /// Unfinished writes of new content to the backend; readers wait for them.
    pub on_its_way: u32,
    /// True if the flash may have the flushed version, and the backend lacks it.
    pub flushed: bool,
}

impl Lost {
    /// True if the loss is only known in memory, and the content is gone.
    pub fn is_unsaid(&self) -> bool {
        self.said.is_none() && !self.kept
    }

    /// True if a start uses the flash's record, regardless of the backend's data.
    pub fn is_on_flash(&self) -> bool {
        self.flushed || self.said.is_some()
    }
}

/// A clean copy of a block that was lost: it replaces the flash's record of the loss, once the backend has the same
/// data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CleanCopy {
    /// Its slot.
    pub slot: u32,
    /// The sequence number of its unit.
    pub sequence: u64,
}

/// The destination of new content for a lost block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anew {
    /// The flash, until it is written back.
    Flash,
    /// The backend: the loss is not recorded.
    Backend,
    /// The backend, and a clean copy on the flash, which has a record of the loss and no room for more dirty data.
    Both,
}

impl LogCache {
    /// True if a block's content is lost, without new content on its way.
    pub(super) fn is_gone(&self, block: u32) -> bool {
        self.lost.get(&block).is_some_and(|lost| lost.on_its_way == 0)
    }

    /// Records that a write to the backend has ended.
    pub(super) fn no_more_on_its_way(&mut self, block: u32) {
        if let Some(lost) = self.lost.get_mut(&block) {
            lost.on_its_way = lost.on_its_way.saturating_sub(1);
        }
    }

    /// Returns the destination of new content for a block, if it is lost, or if the flash still has a record of its
    /// loss.
    pub(super) fn anew(&self, block: u32) -> Option<Anew> {
        let is_found = self.found.contains_key(&block) && !self.has_dirty_copy(block);
        let is_said = is_found || self.lost.get(&block)?.said.is_some();
        Some(match is_said {
            _ if !self.has_flash => Anew::Backend,
            _ if self.has_room_for_dirty() => Anew::Flash,
            true => Anew::Both,
            false => Anew::Backend,
        })
    }

    /// True if the log has a dirty copy.
    pub(super) fn has_dirty_copy(&self, block: u32) -> bool {
        self.log.find(block).is_some_and(|slot| self.log.is_dirty(slot))
    }

    /// Plans the clean copy of a lost block that goes to the backend.
    pub(super) fn add_found(&mut self, block: u32, frame: Frame, steps: &mut Vec<Step>) {
        self.reclaim(steps);
        // Not earlier: a unit with a record of the loss may have been reset.
        self.lost.remove(&block);
        // An earlier copy may have been handed out for writing, and becomes another record if the backend rejects its
        // data.
        if self.log.find(block).is_some_and(|slot| !self.log.can_replace_clean(slot)) {
            self.log_mark(RecordKind::Lost, block, 0, steps);
        }
        self.log_add(block, frame, false, Cause::Admission, steps);
        if let Some(slot) = self.log.find(block) {
            self.found.insert(block, CleanCopy { slot, sequence: *self.log.sequences().end() });
        }
    }

    /// Handles a record that is about to be written. Returns true if it is a clean copy of a lost block whose data the
    /// backend has not accepted. Then the block is still lost, and the loss is recorded in the unit of `sequence`
    /// instead. The copy's fate is final.
    pub(super) fn is_not_found(&mut self, record: &LogRecord, sequence: u64, came: bool) -> bool {
        let LogRecord { kind, block, slot, .. } = *record;
        let Some(found) = self.found.get(&block).copied() else { return false };
        // A later copy may not be written before the unit with the record of the loss is reset.
        let is_last = found.slot == slot;
        if is_last {
            self.found.remove(&block);
        }
        let refused = is_last && (self.lost.contains_key(&block) || self.backend_lacks.contains(&block));
        if kind != RecordKind::Clean || came && !refused {
            return false;
        }
        self.drop_copy(record, sequence);
        if is_last && !self.has_dirty_copy(block) {
            self.lost.entry(block).or_default().said = Some(sequence);
        }
        true
    }

    /// True if a flush can succeed.
    pub(super) fn can_be_durable(&self) -> bool {
        self.leaves_lost || self.lost.is_empty() || self.without_a_place(|lost| lost.kept).is_empty()
    }

    /// Returns the blocks whose content, or whose loss, is only known in memory, in order. No flush may succeed before
    /// they are rewritten.
    pub fn not_durable_blocks(&self) -> Vec<u32> {
        // A flush records losses that are known when it begins.
        self.without_a_place(|lost| lost.kept || lost.is_unsaid())
    }

    /// Returns lost blocks for which `is_such` is true; without a flash, all lost blocks. In order.
    fn without_a_place(&self, is_such: impl Fn(&Lost) -> bool) -> Vec<u32> {
        if !self.has_flash {
            return self.lost_blocks();
        }
        let such = self.lost.iter().filter(|(block, lost)| is_such(lost) && self.write_buffer.get(**block).is_none());
        let mut blocks: Vec<u32> = such.map(|(block, _)| *block).collect();
        blocks.sort_unstable();
        blocks
    }

    /// Returns the number of lost blocks that the flash records as lost, or whose flushed version it may have. Without
    /// the flash, their content would be the backend's older data.
    pub fn lost_on_flash(&self) -> usize {
        self.lost.values().filter(|lost| lost.is_on_flash() && !lost.kept).count()
    }

    /// True if a block is [kept in memory](Cache::keep), and a start would use the flash's record of it.
    pub fn is_kept_and_on_flash(&self, block: u32) -> bool {
        self.lost.get(&block).is_some_and(|lost| lost.is_on_flash() && lost.kept)
    }

    /// Leaves [not durable](Self::not_durable_blocks) blocks to the caller, so flushes no longer fail because of them.
    pub fn leave_lost(&mut self) {
        self.leaves_lost = true;
    }

    /// Takes over the list of lost blocks when a cache continues without flash. They stay lost until they are
    /// rewritten.
    pub fn take_over_lost(&mut self, before: Option<&LogCache>, blocks: impl IntoIterator<Item = u32>) {
        self.leaves_lost |= before.is_some_and(|before| before.leaves_lost);
        for block in blocks {
            self.touched.add(block..block + 1);
            self.lost.insert(block, Lost::default());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::{Config, Event, Kind, Request};
    use super::*;
    use crate::format::Geometry;
    use crate::layout::containers::Log;

    /// Plans a request about one block.
    fn plan(cache: &mut LogCache, kind: Kind, block: u32) -> Vec<Step> {
        let mut steps = Vec::new();
        for request in Request::pieces(kind, u64::from(block) * 4096, 4096, false) {
            cache.on(Event::Request { request: &request, now_us: 1 }, &mut steps);
        }
        steps
    }

    /// A trim discards a lost block taken over from the predecessor: the block is no longer lost.
    #[test]
    fn a_trim_of_a_lost_block_that_was_taken_over_makes_it_good() {
        let geometry = Geometry { units: 24, unit_pages: 16 };
        let config = Config::new(geometry, "lru".parse().unwrap());
        let mut cache = LogCache::new(config, Log::new(geometry), HashMap::new());
        cache.do_without_flash();
        cache.take_over_lost(None, [700, 900]);
        plan(&mut cache, Kind::Trim, 700).iter().for_each(|step| cache.on(Event::Done(step), &mut Vec::new()));
        assert_eq!(cache.lost_blocks(), [900]);
    }

    /// Blocks are overwritten repeatedly while the flash accepts nothing, until the log is a lap ahead. A start uses
    /// their flushed versions, which are not restored. Blocks kept in memory are not lost with the flash.
    #[test]
    fn waiting_blocks_in_memory_survive_the_flash() {
        let geometry = Geometry { units: 24, unit_pages: 16 };
        let config = Config { write_buffer_blocks: 0, ..Config::new(geometry, "lru".parse().unwrap()) };
        let mut cache = LogCache::new(config, Log::new(geometry), HashMap::new());
        let mut flushed: Vec<Step> = (0..50).flat_map(|block| plan(&mut cache, Kind::Write, block)).collect();
        flushed.extend(plan(&mut cache, Kind::Flush, 0));
        flushed.iter().for_each(|step| cache.on(Event::Done(step), &mut Vec::new()));
        let newer: Vec<Step> = (0..1000).flat_map(|number| plan(&mut cache, Kind::Write, number % 50)).collect();
        for step in &newer {
            let fails =
                matches!(step, Step::Append(_) | Step::FlushFlash { .. } | Step::ResetUnit { .. } | Step::Witness(_));
            let event = if fails { Event::Failed { step, missing: false } } else { Event::Done(step) };
            cache.on(event, &mut Vec::new());
        }
        let lost = cache.lost_blocks();
        assert!(cache.has_flash_failed() && cache.lost_on_flash() > 0, "{lost:?}");
        lost.iter().for_each(|block| cache.keep(*block));
        assert_eq!(cache.lost_on_flash(), 0);
        assert!(lost.iter().any(|block| cache.is_kept_and_on_flash(*block)), "{lost:?}");
        // A block recorded as lost is lost as long as nothing has its content.
        let mut steps = Vec::new();
        cache.mark_lost(60, &mut steps);
        assert_eq!(cache.lost_on_flash(), 1);
    }
}
