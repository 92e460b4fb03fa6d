//! What a log tells of itself.

use super::{Log, bit};
use crate::format::{Geometry, Place};
use crate::step::{Cause, Frame, Segment};

impl Log {
    /// How the device is divided.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The slot of the newest copy of `block`.
    #[inline]
    pub fn find(&self, block: u32) -> Option<u32> {
        self.contents.slot_of(block)
    }

    /// Whether the block whose newest copy is at `slot` is newer than the backend's.
    #[inline]
    pub fn is_dirty(&self, slot: u32) -> bool {
        bit(&self.dirty, slot)
    }

    /// Blocks that have a copy in the log.
    pub fn len(&self) -> usize {
        self.contents.len()
    }

    /// Whether no block has a copy in the log.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Blocks that are newer than the backend's.
    pub fn dirty_blocks(&self) -> u64 {
        self.ages.total()
    }

    /// Blocks put into the log for `cause`.
    pub fn written_blocks(&self, cause: Cause) -> u64 {
        self.written[cause as usize]
    }

    /// Header and footer pages written.
    pub fn metadata_pages(&self) -> u64 {
        self.metadata_pages
    }

    /// Units reset.
    pub fn resets(&self) -> u64 {
        self.resets
    }

    /// Units that can be begun.
    pub fn free_units(&self) -> u32 {
        let used = (self.head + 1 - self.tail) as u32;
        self.geometry.log_units() - used
    }

    /// The sequences of the units that count, oldest first.
    pub fn sequences(&self) -> std::ops::RangeInclusive<u64> {
        self.tail..=self.head
    }

    /// Whether the unit of `sequence` is the one that is being filled.
    pub fn is_head(&self, sequence: u64) -> bool {
        sequence == self.head
    }

    /// The segment that is being filled, if there is one.
    pub fn open_segment(&self) -> Option<&Segment> {
        self.open.as_ref()
    }

    /// Dirty blocks in the unit of `sequence`, 0 if they are being written back.
    pub fn dirty_in(&self, sequence: u64) -> u32 {
        let unit = &self.units[self.geometry.unit_of(sequence) as usize];
        if unit.destaging { 0 } else { unit.dirty }
    }

    /// Whether a block in the unit of `sequence`, being written back or not, has been dirty for so long that it is due.
    pub fn has_due(&self, sequence: u64) -> bool {
        let unit = self.geometry.unit_of(sequence);
        let mut slots = self.geometry.slot(unit, 0)..self.geometry.slot(unit + 1, 0);
        self.has_dirty(sequence) && slots.any(|slot| self.is_dirty(slot) && self.ages.is_due(slot))
    }

    /// When a block will be due; 0 if one is. None is dirty if there is no such time.
    pub fn due_us(&self) -> Option<u64> {
        self.ages.due_us()
    }

    /// When the first of the blocks that are dirty became dirty, or up to a tenth of the age at which they are due before.
    pub fn oldest_dirty_us(&self) -> Option<u64> {
        self.ages.oldest_us()
    }

    /// How often blocks became due so far.
    pub fn due_count(&self) -> u64 {
        self.ages.count()
    }

    /// Whether the dirty block at `slot` became dirty a short time ago.
    pub fn is_newly_dirty(&self, slot: u32) -> bool {
        self.ages.of(slot) == self.ages.newest()
    }

    /// Whether the unit of `sequence` has dirty blocks, being written back or not.
    pub fn has_dirty(&self, sequence: u64) -> bool {
        self.units[self.geometry.unit_of(sequence) as usize].dirty > 0
    }

    /// When the unit of `sequence` was begun.
    pub fn begun_us(&self, sequence: u64) -> u64 {
        self.units[self.geometry.unit_of(sequence) as usize].begun_us
    }

    /// Where the newest copy of the block at `slot` is in memory, if its segment was not yet handed out for writing.
    #[inline]
    pub fn in_memory(&self, slot: u32) -> Option<Frame> {
        let open = self.open.as_ref()?;
        self.open_record(open, slot).map(|at| open.records[at].frame)
    }

    pub(super) fn open_record(&self, open: &Segment, slot: u32) -> Option<usize> {
        let first = self.geometry.slot(open.unit, open.page) + 1;
        if slot < first || slot >= first + open.data_pages {
            return None;
        }
        // Marks lie between; a record with data is at its own rank or later.
        (((slot - first) as usize)..open.records.len()).find(|&at| {
            let record = &open.records[at];
            record.kind.has_data() && record.slot == slot
        })
    }

    /// Blocks with a copy on the unit of `sequence`, as (block, slot), in log order.
    pub fn blocks_in(&self, sequence: u64) -> Vec<(u32, u32)> {
        let unit = self.geometry.unit_of(sequence);
        let slots = self.geometry.slot(unit, 0)..self.geometry.slot(unit, self.geometry.segments_end());
        slots.filter_map(|slot| Some((self.contents.current(slot)?, slot))).collect()
    }

    /// All blocks with a copy, oldest copy first.
    pub fn blocks(&self) -> Vec<u32> {
        self.sequences().flat_map(|sequence| self.blocks_in(sequence)).map(|(block, _)| block).collect()
    }

    /// Whether nothing of a unit is written but at its end.
    pub fn writes_in_order(&self) -> bool {
        self.in_order
    }

    /// Whether a unit was ever reset: all of the flash was in use.
    pub fn has_wrapped(&self) -> bool {
        self.tail > 1
    }

    /// Where the log ends, without what waits in memory.
    pub fn end(&self) -> Place {
        match (self.head, self.page - self.skipped) {
            (0 | 1, 0) => Place::default(),
            // Of the newest unit nothing was written yet.
            (head, 0) => Place { sequence: head - 1, page: self.previous_end },
            (head, page) => Place { sequence: head, page },
        }
    }
}
