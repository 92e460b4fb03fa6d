//! The dirty slots, and the ages of their blocks in periods: four bits per slot.
//!
//! A block belongs to the period in which it became dirty. Overwriting or copying it forward does not change that;
//! writing it back ends it. Sixteen periods are distinguished. So a new one begins only once no block of the sixteenth
//! last is dirty. Until then the newest is extended, and its blocks count as older than they are.

use super::slot_set::SlotSet;
use crate::format::Geometry;

/// Number of distinguished periods.
const PERIODS: usize = 16;
/// Periods in the maximum age of dirty blocks.
const PERIODS_OF_AGE: u64 = 10;
/// Blocks are due once this many periods have begun after theirs. That leaves a fifth of the maximum age to write them
/// back.
const DUE_AFTER: usize = 8;

/// The dirty slots.
#[derive(Debug)]
pub(super) struct Dirty {
    slots: SlotSet,
    /// Four bits per slot, valid if the slot is dirty.
    periods: Vec<u64>,
    /// Dirty blocks of each period.
    blocks: [u64; PERIODS],
    /// The start of each period.
    begun_us: [u64; PERIODS],
    /// Number of the newest period.
    newest: u64,
    /// The end of the newest period.
    ends_us: u64,
    /// Length of a period.
    lasts_us: u64,
}

impl Dirty {
    /// Returns the empty set.
    pub fn new(geometry: Geometry) -> Dirty {
        Dirty {
            slots: SlotSet::new(geometry),
            periods: vec![0; (geometry.pages() as usize).div_ceil(16)],
            blocks: [0; PERIODS],
            begun_us: [0; PERIODS],
            newest: 0,
            ends_us: u64::MAX,
            lasts_us: u64::MAX,
        }
    }

    /// Advances to the time `now_us`, with the maximum age of dirty blocks.
    pub fn pass(&mut self, now_us: u64, age_us: u64) {
        if self.ends_us == u64::MAX {
            self.begun_us[self.newest()] = now_us;
        }
        self.lasts_us = (age_us / PERIODS_OF_AGE).max(1);
        let next_us = now_us.saturating_add(self.lasts_us);
        self.ends_us = self.ends_us.min(next_us);
        if now_us < self.ends_us {
            return;
        }
        if self.blocks == [0; PERIODS] {
            self.begin(now_us);
            self.ends_us = next_us;
            return;
        }
        while now_us >= self.ends_us {
            if self.blocks[self.ago(PERIODS - 1)] > 0 {
                // The next one begins late, with the normal length.
                self.ends_us = now_us;
                return;
            }
            self.begin(self.ends_us);
            self.ends_us = self.ends_us.saturating_add(self.lasts_us);
        }
    }

    fn begin(&mut self, now_us: u64) {
        self.newest += 1;
        self.begun_us[self.newest()] = now_us;
    }

    /// Returns the time when the oldest dirty block became dirty, or up to a period earlier.
    pub fn oldest_us(&self) -> Option<u64> {
        let oldest = (0..PERIODS).rev().map(|periods| self.ago(periods)).find(|&period| self.blocks[period] > 0)?;
        Some(self.begun_us[oldest])
    }

    /// Returns the index of the period this many before the newest.
    fn ago(&self, periods: usize) -> usize {
        (self.newest as usize).wrapping_sub(periods) % PERIODS
    }

    /// Returns the index of the newest period.
    pub fn newest(&self) -> usize {
        self.ago(0)
    }

    /// Returns the number of periods so far. When it changes, more blocks are due.
    pub fn count(&self) -> u64 {
        self.newest
    }

    /// Returns the period of a dirty slot.
    pub fn of(&self, slot: u32) -> usize {
        (self.periods[slot as usize / 16] >> (slot % 16 * 4) & 15) as usize
    }

    /// True if a slot is dirty.
    #[inline]
    pub fn contains(&self, slot: u32) -> bool {
        self.slots.contains(slot)
    }

    /// Returns the number of dirty slots in a unit.
    pub fn in_unit(&self, unit: u32) -> u32 {
        self.slots.in_unit(unit)
    }

    /// Returns the number of dirty slots.
    pub fn len(&self) -> u64 {
        self.slots.len()
    }

    /// Marks a clean slot as dirty, with the period of its block.
    pub fn insert(&mut self, slot: u32, period: usize) {
        self.slots.insert(slot);
        let (word, shift) = (&mut self.periods[slot as usize / 16], slot % 16 * 4);
        *word = *word & !(15 << shift) | (period as u64) << shift;
        self.blocks[period] += 1;
    }

    /// Marks a slot as clean. Returns the period in which its block became dirty, if it was.
    pub fn remove(&mut self, slot: u32) -> Option<usize> {
        let period = self.slots.remove(slot).then(|| self.of(slot))?;
        self.blocks[period] -= 1;
        Some(period)
    }

    /// Returns the number of dirty blocks that are due.
    fn due_blocks(&self) -> u64 {
        (DUE_AFTER..PERIODS).map(|periods| self.blocks[self.ago(periods)]).sum()
    }

    /// True if the block of a dirty slot is due.
    pub fn is_due(&self, slot: u32) -> bool {
        (self.newest as usize).wrapping_sub(self.of(slot)) % PERIODS >= DUE_AFTER
    }

    /// Returns the time when blocks are due next; 0 if some already are.
    pub fn due_us(&self) -> Option<u64> {
        if self.due_blocks() > 0 {
            return Some(0);
        }
        let begins_us = |periods: usize| self.ends_us.saturating_add(self.lasts_us.saturating_mul(periods as u64));
        let of = |periods: usize| self.blocks[self.ago(DUE_AFTER - 1 - periods)] > 0;
        (0..DUE_AFTER).find(|&periods| of(periods)).map(begins_us)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Log;
    use super::*;
    use crate::step::{Cause, Frame};

    fn dirty() -> Dirty {
        Dirty::new(Geometry { units: 16, unit_pages: 64 })
    }

    #[test]
    fn a_block_that_is_overwritten_or_copied_forward_keeps_its_age() {
        for cause in [Cause::Client, Cause::CopyForward] {
            let mut log = Log::new(Geometry { units: 16, unit_pages: 64 });
            let (mut steps, frame) = (Vec::new(), Frame { number: 0, fill: 0 });
            log.set_time(100_000_000, 10_000_000);
            log.add(7, frame, true, Cause::Client, &mut steps);
            log.seal(&mut steps);
            log.set_time(105_000_000, 10_000_000);
            log.add(7, frame, true, cause, &mut steps);
            log.add(8, frame, true, Cause::Client, &mut steps);
            assert_eq!(log.due_us(), Some(108_000_000), "{cause:?}");
            log.set_time(108_000_000, 10_000_000);
            assert!(log.has_due(1));
            log.set_dirty(log.find(7).unwrap(), false);
            assert_eq!(log.due_us(), Some(113_000_000), "{cause:?}");
        }
    }

    #[test]
    fn a_block_is_due_seven_to_eight_tenths_of_the_age_after_it_became_dirty() {
        let mut dirty = dirty();
        // Periods of 1 s.
        let at = |dirty: &mut Dirty, seconds: u64| {
            dirty.pass(seconds * 1_000_000, 10_000_000);
            (dirty.due_blocks(), dirty.due_us().map(|us| us / 1_000_000))
        };
        assert_eq!((at(&mut dirty, 100), dirty.oldest_us()), ((0, None), None));
        dirty.insert(40, dirty.newest());
        assert_eq!((at(&mut dirty, 101), dirty.oldest_us()), ((0, Some(108)), Some(100_000_000)));
        dirty.insert(41, dirty.newest());
        assert_eq!(at(&mut dirty, 107), (0, Some(108)));
        dirty.insert(63, dirty.newest());
        assert_eq!(at(&mut dirty, 108), (1, Some(0)));
        assert!(dirty.is_due(40) && !dirty.is_due(41) && !dirty.is_due(63));
        assert_eq!(dirty.remove(40), Some(dirty.ago(8)));
        assert_eq!(at(&mut dirty, 108), (0, Some(109)));
        assert_eq!(at(&mut dirty, 109), (1, Some(0)));
        assert_eq!(dirty.oldest_us(), Some(101_000_000));
        assert_eq!(dirty.remove(41), Some(dirty.ago(8)));
        assert_eq!(at(&mut dirty, 110), (0, Some(115)));
    }

    #[test]
    fn time_may_jump_to_its_end() {
        let mut dirty = dirty();
        for now_us in [0, 1 << 62, u64::MAX, u64::MAX] {
            dirty.pass(now_us, 10_000_000);
        }
        dirty.insert(0, dirty.newest());
        dirty.pass(u64::MAX, 10_000_000);
        assert_eq!(dirty.len(), 1);
    }

    #[test]
    fn the_newest_period_lasts_while_blocks_of_the_sixteenth_last_are_dirty() {
        let mut dirty = dirty();
        dirty.pass(0, 10);
        dirty.insert(0, dirty.newest());
        dirty.pass(1_000, 10);
        let newest = dirty.newest();
        dirty.insert(1, newest);
        dirty.pass(2_000, 10);
        assert_eq!((dirty.newest(), dirty.due_blocks()), (newest, 1));
        dirty.remove(0);
        dirty.pass(2_000, 10);
        assert_eq!((dirty.due_us(), dirty.len()), (Some(2_007), 1));
    }
}
