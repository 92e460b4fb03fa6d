//! Queries of a log's state.

use super::Log;
use crate::format::{Geometry, Place};
use crate::step::{Cause, Frame, Segment};

impl Log {
    /// Returns the geometry of the device.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Returns the slot of the newest copy of `block`.
    #[inline]
    pub fn find(&self, block: u32) -> Option<u32> {
        self.contents.slot_of(block)
    }

    /// True if the block whose newest copy is at `slot` is dirty.
    #[inline]
    pub fn is_dirty(&self, slot: u32) -> bool {
        self.dirty.contains(slot)
    }

    /// True if the newest copy of `block` is the one at `slot` in the unit of `sequence`.
    pub fn is_newest(&self, block: u32, slot: u32, sequence: u64) -> bool {
        self.find(block) == Some(slot) && self.sequence_at(slot) == sequence
    }

    /// Returns the known end of the durable log.
    pub fn flushed(&self) -> Place {
        Place { sequence: self.flushed.0, page: self.flushed.1 }
    }

    /// True if the copy at `slot` is known to be durable.
    pub fn is_durable(&self, slot: u32) -> bool {
        self.is_before(slot, self.flushed())
    }

    /// True if the copy at `slot` is before a place in the log.
    pub fn is_before(&self, slot: u32, place: Place) -> bool {
        (self.sequence_at(slot), slot % self.geometry.unit_pages) < (place.sequence, place.page)
    }

    /// Returns the place after a slot.
    pub fn place_after(&self, slot: u32) -> Place {
        Place { sequence: self.sequence_at(slot), page: slot % self.geometry.unit_pages + 1 }
    }

    /// Returns the number of blocks with a copy in the log.
    pub fn len(&self) -> usize {
        self.contents.len()
    }

    /// True if no block has a copy in the log.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of dirty blocks.
    pub fn dirty_blocks(&self) -> u64 {
        self.dirty.len()
    }

    /// Returns the number of blocks added to the log for `cause`.
    pub fn written_blocks(&self, cause: Cause) -> u64 {
        self.written[cause as usize]
    }

    /// Returns the header and footer pages written.
    pub fn metadata_pages(&self) -> u64 {
        self.metadata_pages
    }

    /// Returns the number of unit resets.
    pub fn resets(&self) -> u64 {
        self.resets
    }

    /// Returns the number of free units.
    pub fn free_units(&self) -> u32 {
        let used = (self.end.head + 1 - self.tail) as u32;
        self.geometry.log_units() - used
    }

    /// Returns the sequence numbers of the valid units, oldest first.
    pub fn sequences(&self) -> std::ops::RangeInclusive<u64> {
        self.tail..=self.end.head
    }

    /// True if the unit of `sequence` is the one being filled.
    pub fn is_head(&self, sequence: u64) -> bool {
        sequence == self.end.head
    }

    /// Returns the segment being filled, if any.
    pub fn open_segment(&self) -> Option<&Segment> {
        self.open.as_ref()
    }

    /// Returns the dirty blocks in the unit of `sequence`; 0 during their write-back.
    pub fn dirty_in(&self, sequence: u64) -> u32 {
        let unit = self.geometry.unit_of(sequence);
        if self.units[unit as usize].destaging { 0 } else { self.dirty.in_unit(unit) }
    }

    /// True if a dirty block in the unit of `sequence` is due for write-back, even if that is in progress.
    pub fn has_due(&self, sequence: u64) -> bool {
        let unit = self.geometry.unit_of(sequence);
        let mut slots = self.geometry.slot(unit, 0)..self.geometry.slot(unit + 1, 0);
        self.has_dirty(sequence) && slots.any(|slot| self.is_dirty(slot) && self.dirty.is_due(slot))
    }

    /// Returns the time when a block will be due, 0 if one already is; `None` without dirty blocks.
    pub fn due_us(&self) -> Option<u64> {
        self.dirty.due_us()
    }

    /// Returns the time when the oldest dirty block became dirty, or up to a tenth of the maximum age earlier.
    pub fn oldest_dirty_us(&self) -> Option<u64> {
        self.dirty.oldest_us()
    }

    /// Returns how often blocks have become due.
    pub fn due_count(&self) -> u64 {
        self.dirty.count()
    }

    /// True if the dirty block at `slot` became dirty in the newest period.
    pub fn is_newly_dirty(&self, slot: u32) -> bool {
        self.dirty.of(slot) == self.dirty.newest()
    }

    /// True if the unit of `sequence` has dirty blocks, with or without a write-back in progress.
    pub fn has_dirty(&self, sequence: u64) -> bool {
        self.dirty.in_unit(self.geometry.unit_of(sequence)) > 0
    }

    /// Returns the time when the unit of `sequence` was started.
    pub fn begun_us(&self, sequence: u64) -> u64 {
        self.units[self.geometry.unit_of(sequence) as usize].begun_us
    }

    /// Returns the frame of the newest copy of the block at `slot`, if its segment was not handed out for writing.
    #[inline]
    pub fn in_memory(&self, slot: u32) -> Option<Frame> {
        let open = self.open.as_ref()?;
        self.open_record(open, slot).map(|at| open.records[at].frame)
    }

    /// Requires a flush of the backend before the next segment is written.
    pub fn need_backend_flush(&mut self) {
        if let Some(open) = &mut self.open {
            open.needs_backend_flush = true;
        }
    }

    /// Lets the next segment be written after the planned writes to the backend.
    pub fn follow_writes(&mut self) {
        if let Some(open) = &mut self.open {
            open.follows_writes = true;
        }
    }

    pub(super) fn open_record(&self, open: &Segment, slot: u32) -> Option<usize> {
        let first = self.geometry.slot(open.unit, open.page) + 1;
        if slot < first || slot >= first + open.data_pages {
            return None;
        }
        // Marks may precede it, so a record with data is at its own rank or later.
        (((slot - first) as usize)..open.records.len()).find(|&at| {
            let record = &open.records[at];
            record.kind.has_data() && record.slot == slot
        })
    }

    /// Returns the blocks with a copy on the unit of `sequence`, as (block, slot), in log order.
    pub fn blocks_in(&self, sequence: u64) -> Vec<(u32, u32)> {
        let unit = self.geometry.unit_of(sequence);
        let slots = self.geometry.slot(unit, 0)..self.geometry.slot(unit, self.geometry.segments_end());
        slots.filter_map(|slot| Some((self.contents.current(slot)?, slot))).collect()
    }

    /// Returns all blocks with a copy, oldest copy first.
    pub fn blocks(&self) -> Vec<u32> {
        self.sequences().flat_map(|sequence| self.blocks_in(sequence)).map(|(block, _)| block).collect()
    }

    /// True if units are only written at their ends.
    pub fn writes_in_order(&self) -> bool {
        self.end.in_order
    }

    /// True if a unit was ever reset, which means that all of the flash has been used.
    pub fn has_wrapped(&self) -> bool {
        self.tail > 1
    }

    /// Returns the end of the log, without the segment in memory.
    pub fn end(&self) -> Place {
        self.end.place()
    }

    /// Makes the log write units only at their ends, because they are zones. `page` is the next writable page of the
    /// newest zone; pages between the end of the log and `page` are invalid.
    pub fn write_in_order(&mut self, page: u32) {
        self.end.write_in_order(page);
    }

    /// True if no durable footer repeats the log up to its end and declares it durable.
    pub fn lacks_witness(&self) -> bool {
        self.end.lacks_witness()
    }
}
