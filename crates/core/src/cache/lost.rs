//! Blocks whose only copy was lost: who knows of it, and what that is to a flush.

use super::{Cache, LogCache};
use crate::format::Kind as RecordKind;
use crate::step::{Cause, Frame, LogRecord, Step};

/// A block whose only copy was lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lost {
    /// The unit of this sequence says so; where none does, nothing but this knows of it, before the next flush.
    pub said: Option<u64>,
    /// Whoever performs the steps has what it should hold: see [`Cache::keep`].
    pub kept: bool,
    /// Writes to the backend of what it is to hold that have not ended: who reads it waits for them.
    pub on_its_way: u32,
    /// The flash may have it as it was flushed last, and the backend has not.
    pub flushed: bool,
}

impl Lost {
    /// Whether only memory knows that it is lost, and nothing what it should hold.
    pub fn is_unsaid(&self) -> bool {
        self.said.is_none() && !self.kept
    }

    /// True if a start counts what the flash says of it, whatever the backend has.
    fn is_on_flash(&self) -> bool {
        self.flushed || self.said.is_some()
    }
}

/// A clean copy of a block that was lost: it takes the place of what the flash says, once the backend has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// Where it is.
    pub slot: u32,
    /// The unit that it is in.
    pub sequence: u64,
}

/// Where what a lost block is to hold goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anew {
    /// To flash, until it is written back.
    Flash,
    /// To the backend: nothing says that it is lost.
    Backend,
    /// To the backend, and clean to flash, which says that it is lost and has no room for more that is dirty.
    Both,
}

impl LogCache {
    /// Whether what a block holds is lost, with nothing on its way that it will hold.
    pub(super) fn is_gone(&self, block: u32) -> bool {
        self.lost.get(&block).is_some_and(|lost| lost.on_its_way == 0)
    }

    /// A write to the backend has ended.
    pub(super) fn no_more_on_its_way(&mut self, block: u32) {
        if let Some(lost) = self.lost.get_mut(&block) {
            lost.on_its_way = lost.on_its_way.saturating_sub(1);
        }
    }

    /// Where what a block is to hold goes, if it is lost, or was and the flash still says so.
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

    /// Whether the log has a copy that is newer than the backend's.
    pub(super) fn has_dirty_copy(&self, block: u32) -> bool {
        self.log.find(block).is_some_and(|slot| self.log.is_dirty(slot))
    }

    /// Plans the clean copy of a lost block that goes to the backend.
    pub(super) fn add_found(&mut self, block: u32, frame: Frame, steps: &mut Vec<Step>) {
        self.reclaim(steps);
        // Not before: a unit that says so may have been reset.
        self.lost.remove(&block);
        // One before it may have been handed out for writing, and says something else if the backend does not take that.
        if self.log.find(block).is_some_and(|slot| !self.log.can_replace_clean(slot)) {
            self.log_mark(RecordKind::Lost, block, 0, steps);
        }
        self.log_add(block, frame, false, Cause::Admission, steps);
        if let Some(slot) = self.log.find(block) {
            self.found.insert(block, Found { slot, sequence: *self.log.sequences().end() });
        }
    }

    /// Whether a record that is about to be written is a clean copy of a block that was lost, and the backend has not taken the same: the block is
    /// lost still, and that is what is recorded in the unit of `sequence`. From now on the copy is as it will be.
    pub(super) fn is_not_found(&mut self, record: &LogRecord, sequence: u64, came: bool) -> bool {
        let LogRecord { kind, block, slot, .. } = *record;
        let Some(found) = self.found.get(&block).copied() else { return false };
        // Another that follows may not be written before the unit is reset that says so.
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

    /// Whether a flush can be true to its word.
    pub(super) fn can_be_durable(&self) -> bool {
        self.leaves_lost || self.lost.is_empty() || self.without_a_place(|lost| lost.kept).is_empty()
    }

    /// Blocks of which nothing but memory knows what they should hold, or that they are lost: no flush may be answered for them before they are
    /// written anew. In order.
    pub fn not_durable_blocks(&self) -> Vec<u32> {
        // A flush has the flash say that those are lost which are when it begins.
        self.without_a_place(|lost| lost.kept || lost.is_unsaid())
    }

    /// Lost blocks that nothing has, or that are such; without a flash, all of them. In order.
    fn without_a_place(&self, is_such: impl Fn(&Lost) -> bool) -> Vec<u32> {
        if !self.has_flash {
            return self.lost_blocks();
        }
        let such = self.lost.iter().filter(|(block, lost)| is_such(lost) && self.write_buffer.get(**block).is_none());
        let mut blocks: Vec<u32> = such.map(|(block, _)| *block).collect();
        blocks.sort_unstable();
        blocks
    }

    /// Returns how many blocks are lost that the flash calls lost, or may have as they were flushed last. Without the flash, each of them would be what
    /// the backend has, which is older.
    pub fn lost_on_flash(&self) -> usize {
        self.lost.values().filter(|lost| lost.is_on_flash() && !lost.kept).count()
    }

    /// True if a block [waits in memory](Cache::keep), and a start would count what the flash says of it.
    pub fn is_kept_and_on_flash(&self, block: u32) -> bool {
        self.lost.get(&block).is_some_and(|lost| lost.is_on_flash() && lost.kept)
    }

    /// From now on, whoever asks for flushes sees by themselves to [what is not durable](Self::not_durable_blocks): it fails none.
    pub fn leave_lost(&mut self) {
        self.leaves_lost = true;
    }

    /// Goes on without the flash from a cache that had one, maybe: what was lost there is lost until it is written anew.
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

    /// A trim gives up a lost block that a cache took over from the one before it: the block is not lost any more.
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

    /// Blocks are written over and over while the flash takes nothing, until the log is a lap ahead: what was flushed of them counts at a start, and
    /// is not brought back. Those that wait in memory are not lost with the flash.
    #[test]
    fn what_waits_in_memory_is_not_lost_with_the_flash() {
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
        // One that the flash calls lost is, as long as nothing has it.
        let mut steps = Vec::new();
        cache.mark_lost(60, &mut steps);
        assert_eq!(cache.lost_on_flash(), 1);
    }
}
