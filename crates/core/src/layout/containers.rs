//! Flash as a log of erase units, written strictly front to back and reset whole.
//!
//! Source: our own. Containers, and copying wanted blocks forward, follow the offline flash caching paper (section
//! III). Finding the newest copy of a block by an epoch follows WLFC (section IV.D).
//!
//! The units are used in turn, and reset in the order in which they were written. So a unit with an older record of a
//! block is always reset before the unit with a newer one. No stale record becomes valid again because its replacement
//! was erased first. Wear is even by construction.
//!
//! A unit is a sequence of segments and a footer. A segment is a header page with records, followed by their data
//! pages. The footer repeats all records of the unit at a fixed place, so recovery reads a full unit's metadata in one
//! step.

mod dirty;
mod end;
mod kept;
mod slot_set;
mod state;

use std::collections::VecDeque;

use super::contents::{AnyPolicy, Contents};
use crate::format::{Geometry, Kind, RECORDS_PER_PAGE, Record, Region};
use crate::step::{Cause, Frame, LogRecord, Step};
pub use crate::step::{Footer, Segment};
use dirty::Dirty;
use end::End;
use kept::Kept;

/// Maximum number of regions recorded one by one as forgotten, if fewer units than [`FORGETTING_UNITS_MIN`] are free.
const FORGOTTEN_MAX: usize = 64;
const FORGETTING_UNITS_MIN: u32 = 4;
/// Maximum number of padding pages before a footer.
const PADDING_MAX: u32 = 64;

#[derive(Clone, Copy, Debug, Default)]
struct ContainerUnit {
    /// The time when its first segment started.
    begun_us: u64,
    destaging: bool,
}

/// The log: the location of each cached block, and the segment that is being filled.
#[derive(Debug)]
pub struct Log {
    geometry: Geometry,
    contents: Contents,
    dirty: Dirty,
    kept: Kept,
    /// Two bits per slot: how often, up to 2, its block was accessed since an admission or a copy placed it there.
    uses: Vec<u64>,
    units: Vec<ContainerUnit>,
    /// Sequence number of the oldest valid unit.
    tail: u64,
    end: End,
    /// The known end of the durable log: a unit's sequence number, and a page of it.
    flushed: (u64, u32),
    /// Maximum number of data pages in a segment.
    segment_blocks: u32,
    open: Option<Segment>,
    /// Units whose dirty copies were written back, which is not yet recorded on flash: sequence number, and last slot
    /// concerned.
    destaged: VecDeque<(u64, u32)>,
    /// Regions to forget, written as the first records of this run.
    to_forget: Vec<Region>,
    now_us: u64,
    /// Blocks added to the log, by [`Cause`]; and pages of metadata.
    written: [u64; 3],
    metadata_pages: u64,
    resets: u64,
}

/// The newest unit, with its written part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Its sequence number.
    pub sequence: u64,
    /// The page after its last segment.
    pub end: u32,
    /// Where the segments of the unit before it end.
    pub previous_end: u32,
    /// The records of its segments.
    pub records: Vec<Record>,
}

impl Log {
    /// Creates an empty log without a policy.
    pub fn new(geometry: Geometry) -> Log {
        assert!(geometry.units >= Geometry::UNITS_MIN && geometry.unit_pages >= Geometry::UNIT_PAGES_MIN);
        let slots = geometry.pages() as usize;
        Log {
            geometry,
            contents: Contents::new(geometry.pages()),
            dirty: Dirty::new(geometry),
            kept: Kept::new(geometry),
            uses: vec![0; slots.div_ceil(32)],
            units: vec![ContainerUnit::default(); geometry.units as usize],
            tail: 1,
            end: End::default(),
            flushed: (0, 0),
            segment_blocks: RECORDS_PER_PAGE as u32,
            open: None,
            destaged: VecDeque::new(),
            to_forget: Vec::new(),
            now_us: 0,
            written: [0; 3],
            metadata_pages: 0,
            resets: 0,
        }
    }

    /// Creates the log whose units from `tail` to the `head` were recovered, to continue after the end of the head. The
    /// caller adds the blocks.
    pub fn continued(geometry: Geometry, tail: u64, head: &Head) -> Log {
        let mut log = Log::new(geometry);
        (log.tail, log.end) = (tail, End::of(head));
        log.flushed = (head.sequence, head.end);
        let units = head.sequence + 1 - tail;
        log.contents.reserve(units as usize * geometry.unit_data_pages(RECORDS_PER_PAGE as u32) as usize);
        log
    }

    /// Sets `policy`, which must be empty, as the keeper of the slots' contents. It does not see the blocks as
    /// accesses.
    pub fn set_policy(&mut self, policy: AnyPolicy) {
        self.contents.set_policy(policy, self.geometry.pages());
    }

    /// Returns the policy; a log in a cache has one.
    pub fn policy(&self) -> &AnyPolicy {
        self.contents.policy()
    }

    /// Returns the policy, mutable.
    pub fn policy_mut(&mut self) -> &mut AnyPolicy {
        self.contents.policy_mut()
    }

    /// Limits segments to `blocks` data pages.
    pub fn limit_segments(&mut self, blocks: u32) {
        assert!((1..=RECORDS_PER_PAGE as u32).contains(&blocks), "a segment of {blocks} blocks");
        self.segment_blocks = blocks;
    }

    /// Adds a recovered newest copy of `block`, which must have none yet.
    pub fn restore(&mut self, block: u32, slot: u32, dirty: bool) {
        self.contents.place_new(block, slot);
        self.set_dirty(slot, dirty);
    }

    /// Sets regions whose clean copies recovery dropped. The first records of this run invalidate all earlier clean
    /// copies there.
    pub fn forget_first(&mut self, regions: Vec<Region>) {
        self.to_forget = regions;
    }

    /// Plans those first records, unless something was added before.
    pub fn say_forgotten(&mut self, steps: &mut Vec<Step>) {
        if !self.to_forget.is_empty() {
            self.ensure_room(false, steps);
        }
    }

    /// Hints that `block` will be looked up soon.
    #[inline]
    pub fn prefetch(&self, block: u32) {
        self.contents.prefetch(block);
    }

    /// Forgets all clean copies.
    pub fn drop_clean(&mut self) {
        for sequence in self.sequences() {
            for (block, slot) in self.blocks_in(sequence) {
                if !self.is_dirty(slot) {
                    self.drop_slot(block, slot);
                }
            }
        }
    }

    /// True if no copy on the unit of `last`, up to that slot, is dirty.
    pub fn is_clean_up_to(&self, last: u32) -> bool {
        (last / self.geometry.unit_pages * self.geometry.unit_pages..=last).all(|slot| !self.is_dirty(slot))
    }

    /// Marks the copy at `slot` as dirty or clean. A dirty one becomes as young as a new one.
    pub fn set_dirty(&mut self, slot: u32, dirty: bool) {
        self.dirty.remove(slot);
        if dirty {
            self.dirty.insert(slot, self.dirty.newest());
        }
    }

    /// Sets the time, and the maximum age of dirty blocks, in microseconds.
    pub fn set_time(&mut self, now_us: u64, dirty_age_us: u64) {
        self.now_us = now_us;
        self.dirty.pass(now_us, dirty_age_us);
    }

    /// Records that the write-back of the dirty blocks of the unit of `sequence` is in progress or not. Plans may
    /// already use that unit for a newer sequence number.
    pub fn set_destaging(&mut self, sequence: u64, destaging: bool) {
        let unit = self.geometry.unit_of(sequence);
        if self.sequence_at(self.geometry.slot(unit, 0)) == sequence {
            self.units[unit as usize].destaging = destaging;
        }
    }

    /// Adds a block at the end of the log, in place of its old copy. If that copy was still in memory, its frame is
    /// returned and `frame` replaces it.
    pub fn add(&mut self, block: u32, frame: Frame, dirty: bool, cause: Cause, steps: &mut Vec<Step>) -> Option<Frame> {
        self.written[cause as usize] += 1;
        let old = self.find(block);
        if let Some(slot) = old
            && let Some(open) = &self.open
            && let Some(at) = self.open_record(open, slot)
        {
            let was_dirty = self.is_dirty(slot);
            let record = &mut self.open.as_mut().expect("the segment is open").records[at];
            let replaced = std::mem::replace(&mut record.frame, frame);
            let replaced_cause = std::mem::replace(&mut record.cause, cause);
            if dirty {
                record.kind = Kind::Dirty;
            }
            if dirty && !was_dirty {
                self.set_dirty(slot, true);
            }
            // The replaced copy never reached the flash.
            self.written[replaced_cause as usize] -= 1;
            return Some(replaced);
        }
        self.ensure_room(true, steps);
        if cause != Cause::CopyForward {
            old.into_iter().for_each(|slot| self.keep_replaced(slot));
        }
        let old = old.map(|slot| (slot, self.is_dirty(slot)));
        let since = old.and_then(|(slot, _)| self.dirty.remove(slot)).unwrap_or(self.dirty.newest());
        let (unit, page) = {
            let open = self.open.as_mut().expect("there is room in an open segment");
            open.data_pages += 1;
            (open.unit, open.page + open.data_pages)
        };
        let slot = self.geometry.slot(unit, page);
        let kind = if dirty { Kind::Dirty } else { Kind::Clean };
        let uses = old.filter(|_| cause != Cause::CopyForward).map_or(0, |(old, _)| self.uses(old));
        self.push(LogRecord { kind, block, slot, frame, old, cause });
        self.contents.place(block, slot);
        self.set_uses(slot, uses);
        if dirty {
            self.dirty.insert(slot, since);
        }
        None
    }

    fn push(&mut self, record: LogRecord) {
        self.open.as_mut().expect("there is room in an open segment").records.push(record);
    }

    /// Adds a record without data. [`Kind::Forget`] and [`Kind::Lost`] also drop the block's copy.
    pub fn mark(&mut self, kind: Kind, block: u32, slot: u32, steps: &mut Vec<Step>) {
        assert!(!kind.has_data());
        if matches!(kind, Kind::Forget | Kind::Lost)
            && let Some(slot) = self.find(block)
        {
            self.drop_slot(block, slot);
        }
        self.ensure_room(false, steps);
        self.push_mark(kind, block, slot);
    }

    fn push_mark(&mut self, kind: Kind, block: u32, slot: u32) {
        let (frame, cause) = (Frame { number: 0, fill: 0 }, Cause::Client);
        self.push(LogRecord { kind, block, slot, frame, old: None, cause });
    }

    /// Returns the last slot of the unit of `sequence` in a segment that was handed out for writing; `None` without
    /// one.
    pub fn last_slot(&self, sequence: u64) -> Option<u32> {
        let page = if self.is_head(sequence) { self.end.page } else { self.geometry.segments_end() };
        Some(self.geometry.slot(self.geometry.unit_of(sequence), page.checked_sub(1)?))
    }

    /// Remembers to record that the dirty copies on the unit of `sequence`, up to the slot `last`, were written back.
    pub fn note_destaged(&mut self, sequence: u64, last: u32) {
        self.destaged.retain(|&(noted, _)| noted != sequence && noted >= self.tail);
        self.destaged.push_back((sequence, last));
    }

    /// Plans records of all units that were written back, as long as units are free.
    pub fn say_destaged(&mut self, steps: &mut Vec<Step>) {
        while !self.destaged.is_empty() && self.free_units() > 1 {
            self.ensure_room(false, steps);
            self.seal_open(steps);
        }
    }

    /// Adds records of units that were written back, as far as there is room.
    fn add_destaged(&mut self) {
        while self.has_room_for_mark()
            && let Some((sequence, last)) = self.destaged.pop_front()
        {
            if sequence >= self.tail {
                self.push_mark(Kind::UnitDestaged, 0, last);
            }
        }
    }

    /// True if a mark can be added without a new segment.
    pub fn has_room_for_mark(&self) -> bool {
        self.open.as_ref().is_some_and(|open| self.records_left(open) > 0)
    }

    /// Forgets the copy of `block` at `slot`.
    pub fn drop_slot(&mut self, block: u32, slot: u32) {
        assert_eq!(self.contents.block_at(slot), Some(block), "a copy that is dropped is in the log");
        self.set_dirty(slot, false);
        self.contents.supersede(slot);
    }

    /// Returns the sequence number of the newest planned unit with this slot.
    fn sequence_at(&self, slot: u32) -> u64 {
        self.sequence_before(slot, self.end.head)
    }

    /// Returns that sequence number for the time when the unit of `head` was the newest.
    pub fn sequence_before(&self, slot: u32, head: u64) -> u64 {
        let laps = u64::from(self.geometry.log_units());
        let unit = u64::from(slot / self.geometry.unit_pages);
        // Sequence number 1 is unit 1.
        head - (head + laps - unit) % laps
    }

    /// Records that the log is durable up to `page` of the unit of `sequence`.
    pub fn set_flushed(&mut self, sequence: u64, page: u32) {
        self.flushed = self.flushed.max((sequence, page));
    }

    /// Handles a failed write of the copy at `slot` in the unit of `sequence`, newest or not.
    pub fn vacate(&mut self, block: u32, slot: u32, sequence: u64) {
        if self.is_newest(block, slot, sequence) {
            self.drop_slot(block, slot);
        }
        // Plans may be a lap ahead.
        if self.sequence_at(slot) == sequence {
            self.drop_kept(slot);
            self.contents.clear(slot..slot + 1);
        }
    }

    /// Restores the copy of `block` at `slot` as its newest, if it still exists; returns true if so. With
    /// `undo_resets`, resets that were only planned do not count.
    pub fn bring_back(&mut self, block: u32, slot: u32, dirty: bool, undo_resets: bool) -> bool {
        assert!(self.find(block).is_none(), "block {block} has a newer copy");
        let is_there = if undo_resets { self.contents.block_at(slot) == Some(block) } else { self.holds(block, slot) };
        if !is_there {
            return false;
        }
        self.tail = self.tail.min(self.sequence_at(slot));
        self.note_restored(slot);
        self.contents.place(block, slot);
        self.set_dirty(slot, dirty);
        true
    }

    /// True if `slot` holds a copy of `block`, new or old, in a unit whose reset is not planned.
    pub fn holds(&self, block: u32, slot: u32) -> bool {
        self.contents.block_at(slot) == Some(block) && self.sequence_at(slot) >= self.tail
    }

    /// Counts an access to the cached block at `slot`.
    pub fn note_use(&mut self, slot: u32) {
        self.set_uses(slot, self.uses(slot) + 1);
    }

    /// Returns the accesses to the block at `slot` since it was admitted or last copied forward: 0, 1, or 2 for more.
    /// Overwriting the block keeps the count. For recovered blocks it is 0.
    pub fn uses(&self, slot: u32) -> u32 {
        (self.uses[slot as usize / 32] >> (slot % 32 * 2) & 3) as u32
    }

    /// Sets the accesses to the block at `slot`.
    pub fn set_uses(&mut self, slot: u32, uses: u32) {
        let word = &mut self.uses[slot as usize / 32];
        let shift = slot % 32 * 2;
        *word = *word & !(3 << shift) | u64::from(uses.min(2)) << shift;
    }

    /// True if memory holds a block or mark that the next flush must make durable.
    pub fn open_matters(&self) -> bool {
        let matters = |record: &LogRecord| record.kind.matters_to_flush();
        self.open.as_ref().is_some_and(|open| open.records.iter().any(matters))
    }

    /// True if a new clean copy of the block at `slot` would replace this one in memory, and no copy on flash.
    pub fn can_replace_clean(&self, slot: u32) -> bool {
        let Some(open) = &self.open else { return false };
        self.open_record(open, slot)
            .map(|at| &open.records[at])
            .is_some_and(|it| it.kind == Kind::Clean && it.old.is_none())
    }

    /// True if memory holds a record that a region is reliable again.
    pub fn waits_to_say_sure(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.records.iter().any(|record| record.kind == Kind::Sure))
    }

    /// Plans a flush of the flash, if anything was appended since the last.
    pub fn flush(&mut self, steps: &mut Vec<Step>) {
        self.end.flush(steps);
    }

    /// Plans to make the log durable up to its end, and then a footer that repeats the records of the head unit and
    /// declares so. Later damage to the last segment is then not mistaken for an interrupted write.
    ///
    /// In zoned units the witness is an empty segment, because the log continues after it. Memory must hold no records.
    pub fn bear_witness(&mut self, steps: &mut Vec<Step>) {
        self.flush(steps);
        let pages = self.end.bear_witness(self.geometry, self.tail, steps);
        if pages > 0 && self.end.in_order {
            let open = self.open.take();
            assert!(open.is_none_or(|open| open.records.is_empty()), "what waited in memory was handed out");
        }
        self.metadata_pages += u64::from(pages);
        self.flush(steps);
    }

    fn records_left(&self, open: &Segment) -> usize {
        let in_page = RECORDS_PER_PAGE - open.records.len();
        in_page.min(self.geometry.unit_records_max() - self.end.unit_records - open.records.len())
    }

    fn ensure_room(&mut self, data: bool, steps: &mut Vec<Step>) {
        self.make_room(data, steps);
        if self.to_forget.len() > FORGOTTEN_MAX && self.free_units() < FORGETTING_UNITS_MIN {
            self.to_forget = vec![Region::ALL];
        }
        while let Some(Region { first, blocks }) = self.to_forget.pop() {
            self.push_mark(Kind::ForgetRegion, first, blocks);
            self.make_room(data, steps);
        }
    }

    fn make_room(&mut self, data: bool, steps: &mut Vec<Step>) {
        if let Some(open) = &self.open {
            let in_unit = self.geometry.segments_end() - open.page - 1;
            let pages_left = in_unit.min(self.segment_blocks).saturating_sub(open.data_pages);
            if self.records_left(open) > 0 && (!data || pages_left > 0) {
                return;
            }
            self.seal(steps);
        }
        if self.end.head == 0 || self.end.is_full(self.geometry) {
            self.begin_unit();
        }
        self.open = Some(self.end.next_segment(self.geometry, self.tail));
    }

    fn begin_unit(&mut self) {
        assert!(self.free_units() > 0, "units are reset before the log runs into its tail");
        self.end.begin_unit();
        let unit = self.geometry.unit_of(self.end.head);
        self.units[unit as usize] = ContainerUnit { begun_us: self.now_us, ..ContainerUnit::default() };
        self.contents.clear(self.geometry.slot(unit, 0)..self.geometry.slot(unit + 1, 0));
    }

    /// Hands the open segment out for writing, if it has records. If it is the unit's last, a flush and the footer
    /// follow: everything before the head unit is durable.
    pub fn seal(&mut self, steps: &mut Vec<Step>) {
        if self.open.as_ref().is_some_and(|open| !open.records.is_empty()) {
            self.seal_open(steps);
        }
    }

    fn seal_open(&mut self, steps: &mut Vec<Step>) {
        self.add_destaged();
        let mut segment = self.open.take().expect("a segment is open");
        segment.tail = self.tail;
        self.end.append(segment, steps);
        self.metadata_pages += 1;
        if self.end.is_full(self.geometry) {
            self.flush(steps);
            // A zone full of marks gets no footer: filling all of it up to the footer would cost too much.
            if !self.end.in_order || self.geometry.segments_end() - self.end.page <= PADDING_MAX {
                self.metadata_pages += u64::from(self.end.add_footer(self.geometry, self.tail, steps));
            }
        }
    }

    /// Frees the oldest unit, whose blocks are no longer needed: forgets its copies, makes that durable and resets it.
    pub fn reset_tail(&mut self, steps: &mut Vec<Step>) {
        assert!(self.tail < self.end.head, "the unit that is being filled is not reset");
        for (block, slot) in self.blocks_in(self.tail) {
            assert!(!self.is_dirty(slot), "a dirty block is copied forward before its unit is reset");
            self.drop_slot(block, slot);
        }
        assert!(!self.is_needed(self.tail), "versions are written back before their unit is reset");
        let unit = self.geometry.unit_of(self.tail);
        self.tail += 1;
        self.ensure_room(false, steps);
        self.seal_open(steps);
        self.flush(steps);
        steps.push(Step::ResetUnit { unit });
        self.resets += 1;
    }

    /// Asserts the log's invariants. Slow; for tests.
    pub fn check(&self) {
        assert!(
            self.tail <= self.end.head + 1 && self.end.head + 1 - self.tail <= u64::from(self.geometry.log_units())
        );
        let (mut dirty, mut copies) = (0, 0);
        for slot in 0..self.geometry.pages() {
            let Some(block) = self.contents.current(slot) else { continue };
            assert_eq!(self.find(block), Some(slot), "block {block} has two copies");
            copies += 1;
            let unit = slot / self.geometry.unit_pages;
            assert!(self.sequences().any(|sequence| self.geometry.unit_of(sequence) == unit), "slot {slot} was reset");
            dirty += u64::from(self.is_dirty(slot));
        }
        assert_eq!(copies, self.len());
        assert_eq!(dirty, self.dirty_blocks());
        assert_eq!((0..self.geometry.units).map(|unit| u64::from(self.dirty.in_unit(unit))).sum::<u64>(), dirty);
        self.check_kept();
        if let Some(open) = &self.open {
            let data = open.records.iter().filter(|record| record.kind.has_data()).count();
            assert_eq!(data, open.data_pages as usize);
            assert!(open.page + 1 + open.data_pages <= self.geometry.segments_end());
            assert!(self.end.unit_records + open.records.len() <= self.geometry.unit_records_max());
        }
    }
}
