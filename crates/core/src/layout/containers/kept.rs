//! Older versions of blocks that are kept for the [epoch](crate::epochs) that they belong to.

use super::Log;
use super::slot_set::SlotSet;
use crate::epochs::Epochs;
use crate::format::{Geometry, Place};

/// The kept versions.
#[derive(Debug)]
pub(super) struct Kept {
    /// The end of the last epoch: dirty copies before it are kept when they are replaced. `None` without epochs.
    before: Option<Place>,
    slots: SlotSet,
    /// True if a replaced copy became current again, wherever in the log it is.
    restored: bool,
    /// The epochs that a recovery found.
    found: Option<Epochs>,
}

impl Kept {
    /// Returns no versions.
    pub fn new(geometry: Geometry) -> Kept {
        Kept { before: None, slots: SlotSet::new(geometry), restored: false, found: None }
    }

    /// Returns the number of versions in a unit.
    pub fn in_unit(&self, unit: u32) -> u32 {
        self.slots.in_unit(unit)
    }
}

impl Log {
    /// Keeps dirty copies before this place when they are replaced. With `None`, nothing is kept any more.
    pub fn keep_before(&mut self, place: Option<Place>) {
        self.kept.before = place;
        if place.is_none() {
            self.kept.slots = SlotSet::new(self.geometry);
        }
    }

    /// Keeps a dirty copy that is about to be replaced, if its epoch has ended.
    pub(super) fn keep_replaced(&mut self, slot: u32) {
        if let Some(place) = self.kept.before
            && self.is_dirty(slot)
            && self.is_before(slot, place)
        {
            self.kept.slots.insert(slot);
        }
    }

    /// True if `slot` holds a version that is kept for its epoch.
    pub fn is_kept(&self, slot: u32) -> bool {
        self.kept.slots.contains(slot)
    }

    /// Ends the keeping of a version, if it is kept. Returns true if it was.
    pub fn drop_kept(&mut self, slot: u32) -> bool {
        self.kept.slots.remove(slot)
    }

    /// Ends the keeping of all versions from a place on.
    pub fn drop_kept_from(&mut self, place: Place) {
        if self.kept_blocks() > 0 {
            let behind: Vec<u32> = self.kept.slots.iter().filter(|&slot| !self.is_before(slot, place)).collect();
            for slot in behind {
                self.drop_kept(slot);
            }
        }
    }

    /// Ends the keeping of all versions before a place. The dirty copies there belong to the next epoch.
    pub fn drop_kept_before(&mut self, place: Place) {
        let before: Vec<u32> = self.kept.slots.iter().filter(|&slot| self.is_before(slot, place)).collect();
        for slot in before {
            self.drop_kept(slot);
        }
        self.find_all_versions();
    }

    /// Makes the next [`Log::versions`] return those before its first place, too.
    pub fn find_all_versions(&mut self) {
        self.kept.restored = true;
    }

    /// Returns the number of kept versions.
    pub fn kept_blocks(&self) -> u64 {
        self.kept.slots.len()
    }

    /// Notes that a replaced copy is current again.
    pub(super) fn note_restored(&mut self, slot: u32) {
        self.drop_kept(slot);
        self.kept.restored = true;
    }

    /// Marks a clean copy as dirty, although its epoch may be done.
    pub fn distrust(&mut self, slot: u32) {
        self.kept.restored = true;
        self.set_dirty(slot, true);
    }

    /// True if the unit of `sequence` has data that the backend lacks: dirty copies, or kept versions.
    pub fn is_needed(&self, sequence: u64) -> bool {
        let unit = self.geometry.unit_of(sequence);
        self.dirty.in_unit(unit) > 0 || self.kept.in_unit(unit) > 0
    }

    /// Returns the number of free units, and of the oldest ones without data that the backend lacks; counted up to
    /// `most`.
    pub fn free_and_done_units(&self, most: u32) -> u32 {
        let done = (self.tail..self.end.head).take(most as usize).take_while(|&sequence| !self.is_needed(sequence));
        self.free_units() + done.count() as u32
    }

    /// Returns the versions that the backend lacks, dirty or kept, from a place up to another, as (block, slot). If a
    /// copy was restored since the last call, it may be before the first place.
    pub fn versions(&mut self, from: Place, end: Place) -> Vec<(u32, u32)> {
        let from = if std::mem::take(&mut self.kept.restored) { Place::default() } else { from };
        self.versions_between(from, end)
    }

    /// Returns the versions that the backend lacks between two places, as (block, slot).
    pub fn versions_between(&self, from: Place, end: Place) -> Vec<(u32, u32)> {
        let mut versions = Vec::new();
        for sequence in from.sequence.max(self.tail)..=end.sequence.min(self.end.head) {
            if sequence == 0 || !self.is_needed(sequence) {
                continue;
            }
            let first = self.geometry.slot(self.geometry.unit_of(sequence), 0);
            let skip = if sequence == from.sequence { from.page } else { 0 };
            let pages = if sequence == end.sequence { end.page } else { self.geometry.segments_end() };
            for slot in first + skip..first + pages {
                if (self.is_dirty(slot) || self.is_kept(slot))
                    && let Some(block) = self.contents.block_at(slot)
                {
                    versions.push((block, slot));
                }
            }
        }
        versions
    }

    /// Adds a recovered version of `block`, older than its newest copy, that is kept for its epoch.
    pub fn restore_kept(&mut self, block: u32, slot: u32) {
        self.contents.note_superseded(block, slot);
        self.kept.slots.insert(slot);
    }

    /// Sets the epochs that a recovery found.
    pub fn set_epochs(&mut self, found: Epochs) {
        self.kept.before = Some(found.last());
        self.kept.found = Some(found);
    }

    /// Takes the epochs that a recovery found, if it looked for them.
    pub fn take_epochs(&mut self) -> Option<Epochs> {
        self.kept.found.take()
    }

    /// Asserts what holds of kept versions. Slow; for tests.
    pub(super) fn check_kept(&self) {
        let mut kept = vec![0; self.units.len()];
        for slot in self.kept.slots.iter() {
            assert!(!self.is_dirty(slot) && self.contents.block_at(slot).is_some(), "slot {slot} is kept");
            assert_eq!(self.contents.current(slot), None, "slot {slot} is kept and current");
            assert!(self.sequence_at(slot) >= self.tail, "slot {slot} is kept and was reset");
            kept[(slot / self.geometry.unit_pages) as usize] += 1;
        }
        assert_eq!(kept, (0..self.geometry.units).map(|unit| self.kept.in_unit(unit)).collect::<Vec<_>>());
        assert_eq!(u64::from(kept.iter().sum::<u32>()), self.kept_blocks());
    }
}
