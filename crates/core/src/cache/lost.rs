//! Blocks whose only copy was lost: the record of the loss, and its effect on flushes.

use std::collections::HashMap;

#[cfg(doc)]
use super::Cache;

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

/// The blocks whose only copy was lost.
#[derive(Debug)]
pub(super) struct Losses {
    blocks: HashMap<u32, Lost>,
    /// Blocks that were lost and are being written to the backend, with the clean copies that will replace the flash's
    /// record of the loss.
    found: HashMap<u32, CleanCopy>,
    /// True if the caller handles them: see [`LogCache::leave_lost`](super::LogCache::leave_lost).
    pub is_left: bool,
}

impl Losses {
    /// Starts with blocks that are recorded as lost, each with the sequence number of the unit that records it.
    pub fn new(recorded: HashMap<u32, u64>) -> Losses {
        let lost = |(block, sequence)| (block, Lost { said: Some(sequence), ..Lost::default() });
        Losses { blocks: recorded.into_iter().map(lost).collect(), found: HashMap::new(), is_left: false }
    }

    /// Returns the lost blocks.
    pub fn blocks(&self) -> impl Iterator<Item = &u32> {
        self.blocks.keys()
    }

    /// Returns the lost blocks for which `is_such` is true, in order.
    pub fn such(&self, is_such: impl Fn(&Lost) -> bool) -> Vec<u32> {
        let such = self.blocks.iter().filter(|(_, lost)| is_such(lost));
        let mut blocks: Vec<u32> = such.map(|(block, _)| *block).collect();
        blocks.sort_unstable();
        blocks
    }

    /// True if no block is lost.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Returns a lost block.
    pub fn get(&self, block: u32) -> Option<&Lost> {
        self.blocks.get(&block)
    }

    /// Returns a lost block, to be changed.
    pub fn get_mut(&mut self, block: u32) -> Option<&mut Lost> {
        self.blocks.get_mut(&block)
    }

    /// Adds a lost block, unless it is there.
    pub fn add(&mut self, block: u32) -> &mut Lost {
        self.blocks.entry(block).or_default()
    }

    /// A block has content again. Returns true if it was lost.
    pub fn remove(&mut self, block: u32) -> bool {
        self.blocks.remove(&block).is_some()
    }

    /// True if a block's content is lost, without new content on its way.
    pub fn is_gone(&self, block: u32) -> bool {
        self.get(block).is_some_and(|lost| lost.on_its_way == 0)
    }

    /// Records that a write to the backend has ended.
    pub fn write_ended(&mut self, block: u32) {
        if let Some(lost) = self.get_mut(block) {
            lost.on_its_way = lost.on_its_way.saturating_sub(1);
        }
    }

    /// Handles a complete write of new content to the backend.
    pub fn written(&mut self, block: u32) {
        if self.get(block).is_some_and(|lost| lost.said.is_none() || self.found.contains_key(&block)) {
            self.remove(block);
        }
    }

    /// Handles new content that the backend did not take.
    pub fn write_failed(&mut self, block: u32) {
        let found = self.found.get(&block).map(|found| found.sequence);
        let lost = self.add(block);
        // The copy that replaces the flash's record will record it itself.
        lost.said = found.or(lost.said);
    }

    /// True if clean copies of blocks that were lost are to be written.
    pub fn has_found(&self) -> bool {
        !self.found.is_empty()
    }

    /// Adds the clean copy of a block that was lost.
    pub fn add_found(&mut self, block: u32, copy: CleanCopy) {
        self.found.insert(block, copy);
    }

    /// True if such a copy is to be written.
    pub fn is_found(&self, block: u32) -> bool {
        self.found.contains_key(&block)
    }

    /// Handles a clean copy at `slot` that is about to be written. If it is of a block that was lost, returns true for
    /// the block's last copy, and false for an earlier one.
    pub fn take_found(&mut self, block: u32, slot: u32) -> Option<bool> {
        let is_last = self.found.get(&block)?.slot == slot;
        if is_last {
            self.found.remove(&block);
        }
        Some(is_last)
    }

    /// Returns the destination of new content for a block, if it is lost, or if the flash still has a record of its
    /// loss. `is_dirty` is true if the log has a dirty copy, and `has_room` if it has room for another one; `None`
    /// without a flash.
    pub fn anew(&self, block: u32, is_dirty: bool, has_room: impl FnOnce() -> Option<bool>) -> Option<Anew> {
        let is_said = self.is_found(block) && !is_dirty || self.get(block)?.said.is_some();
        Some(match (has_room(), is_said) {
            (None, _) | (Some(false), false) => Anew::Backend,
            (Some(true), _) => Anew::Flash,
            (Some(false), true) => Anew::Both,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Cache, Config, Event, Kind, LogCache, Request};
    use super::*;
    use crate::format::Geometry;
    use crate::layout::containers::Log;
    use crate::step::Step;

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
