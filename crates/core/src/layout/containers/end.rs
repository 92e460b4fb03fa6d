//! The end of the log, and witnesses: records of how much of it is durable. Also: zoned units, where these differ.

use super::Head;
use crate::format::{Geometry, Place, RECORDS_PER_PAGE};
use crate::step::{Footer, Segment, Step};

/// The newest unit: how much of it is written, durable, and declared so.
#[derive(Debug, Default)]
pub(super) struct End {
    /// Sequence number of the unit that is being filled, 0 before the first.
    pub head: u64,
    /// Page of the head unit where the next segment starts.
    pub page: u32,
    /// Pages before it that are invalid, because a crash interrupted their writes.
    skipped: u32,
    /// True if units are only written at their ends, as in [`crate::format::Superblock::in_order`].
    pub in_order: bool,
    /// Records in the head unit's sealed segments.
    pub unit_records: usize,
    previous_end: u32,
    /// The page of the head unit that the planned flushes reach.
    durable_end: u32,
    /// The end of the log up to which a footer repeats it and declares it durable.
    witnessed: Place,
    /// True if a segment was appended after the last flush.
    unflushed: bool,
}

impl End {
    /// Returns the end of a recovered log.
    pub fn of(head: &Head) -> End {
        let &Head { sequence, end, previous_end, .. } = head;
        let unit_records = head.records.len();
        End { head: sequence, page: end, durable_end: end, unit_records, previous_end, ..End::default() }
    }

    /// Makes the log write units only at their ends. `page` is the next writable page of the newest zone.
    pub fn write_in_order(&mut self, page: u32) {
        self.in_order = true;
        self.skipped = page.checked_sub(self.page).expect("the log ends where its zone was written");
        self.page = page;
    }

    /// Returns the end of the log, without the segment in memory.
    pub fn place(&self) -> Place {
        match (self.head, self.page - self.skipped) {
            (0 | 1, 0) => Place::default(),
            // The newest unit has no writes yet.
            (head, 0) => Place { sequence: head - 1, page: self.previous_end },
            (head, page) => Place { sequence: head, page },
        }
    }

    /// True if no durable footer repeats the log up to its end and declares it durable.
    pub fn lacks_witness(&self) -> bool {
        self.witnessed != self.place() || self.unflushed
    }

    /// Plans a flush of the flash, if anything was appended since the last.
    pub fn flush(&mut self, steps: &mut Vec<Step>) {
        if std::mem::take(&mut self.unflushed) {
            self.durable_end = self.page;
            // Nothing can be missing in a unit without writes.
            let Place { sequence, page } = self.place();
            steps.push(Step::FlushFlash { sequence, page });
        }
    }

    /// True if a header and one data page no longer fit, or a record no longer fits the footer.
    pub fn is_full(&self, geometry: Geometry) -> bool {
        self.page + 2 > geometry.segments_end() || self.unit_records >= geometry.unit_records_max()
    }

    /// Continues in the next unit.
    pub fn begin_unit(&mut self) {
        if self.head > 0 {
            self.previous_end = self.page - self.skipped;
        }
        self.head += 1;
        (self.page, self.skipped, self.durable_end, self.unit_records) = (0, 0, 0, 0);
        self.witnessed = self.place();
    }

    /// Returns the next segment, without records. `tail` is the oldest valid unit.
    pub fn next_segment(&self, geometry: Geometry, tail: u64) -> Segment {
        Segment {
            unit: geometry.unit_of(self.head),
            sequence: self.head,
            tail,
            previous_end: self.previous_end,
            durable_end: self.durable_end,
            page: self.page,
            skipped: self.skipped,
            data_pages: 0,
            records: Vec::new(),
            needs_backend_flush: false,
            follows_writes: false,
        }
    }

    /// Plans the next segment.
    pub fn append(&mut self, mut segment: Segment, steps: &mut Vec<Step>) {
        segment.durable_end = self.durable_end;
        self.page = segment.page + 1 + segment.data_pages;
        self.skipped = 0;
        self.unit_records += segment.records.len();
        steps.push(Step::Append(Box::new(segment)));
        self.unflushed = true;
    }

    /// Plans a witness of a durable log, if it has none: a footer or, in zoned units, an empty segment. Returns its
    /// pages.
    pub fn bear_witness(&mut self, geometry: Geometry, tail: u64, steps: &mut Vec<Step>) -> u32 {
        if self.witnessed == self.place() {
            return 0;
        }
        if !self.in_order {
            return self.add_footer(geometry, tail, steps);
        }
        // Otherwise the unit has its footer or the pages of a torn one.
        let has_room = self.page < geometry.segments_end();
        if has_room {
            self.append(self.next_segment(geometry, tail), steps);
        }
        self.witnessed = self.place();
        has_room.into()
    }

    /// Plans a footer of the head unit, which is durable up to its last segment. Returns its pages.
    pub fn add_footer(&mut self, geometry: Geometry, tail: u64, steps: &mut Vec<Step>) -> u32 {
        assert!(!self.unflushed && self.durable_end == self.page, "a flush of the end was planned");
        let pages = self.unit_records.div_ceil(RECORDS_PER_PAGE).max(1) as u32;
        // In a zoned unit the pages before it are written too.
        let padding = if self.in_order { geometry.segments_end() - self.page } else { 0 };
        self.witnessed = self.place();
        let (unit, sequence) = (geometry.unit_of(self.head), self.head);
        let (previous_end, end) = (self.previous_end, self.page);
        steps.push(Step::Witness(Footer { unit, sequence, tail, previous_end, end, pages }));
        self.unflushed = true;
        pages + padding
    }
}
