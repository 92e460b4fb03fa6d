//! Witnesses: records of the durable end of the log. Also: zoned units, where these differ.

use super::Log;
use crate::format::RECORDS_PER_PAGE;
use crate::step::{Footer, Segment, Step};

impl Log {
    /// Makes the log write units only at their ends, because they are zones. `page` is the next writable page of the
    /// newest zone; pages between the end of the log and `page` are invalid.
    pub fn write_in_order(&mut self, page: u32) {
        self.in_order = true;
        self.skipped = page.checked_sub(self.page).expect("the log ends where its zone was written");
        self.page = page;
    }

    /// True if no durable footer repeats the log up to its end and declares it durable.
    pub fn lacks_witness(&self) -> bool {
        self.witnessed != self.end() || self.unflushed
    }

    /// Plans to make the log durable up to its end, and then a footer that repeats the records of the head unit and
    /// declares so. Later damage to the last segment is then not mistaken for an interrupted write.
    ///
    /// In zoned units the witness is an empty segment, because the log continues after it. Memory must hold no records.
    pub fn bear_witness(&mut self, steps: &mut Vec<Step>) {
        self.flush(steps);
        if self.witnessed == self.end() {
            return;
        }
        match self.in_order {
            false => self.add_footer(steps),
            true if self.page < self.geometry.segments_end() => self.add_empty_segment(steps),
            // The unit is full, and has its footer or the pages of a torn one.
            true => self.witnessed = self.end(),
        }
        self.flush(steps);
    }

    /// Plans a segment that only records the durable end of the unit.
    fn add_empty_segment(&mut self, steps: &mut Vec<Step>) {
        let open = self.open.take();
        assert!(open.is_none_or(|open| open.records.is_empty()), "what waited in memory was handed out");
        self.metadata_pages += 1;
        steps.push(Step::Append(Box::new(Segment { durable_end: self.durable_end, ..self.next_segment() })));
        self.skipped = 0;
        self.page += 1;
        self.unflushed = true;
        self.witnessed = self.end();
    }

    /// Plans a footer of the head unit, which is durable up to its last segment.
    pub(super) fn add_footer(&mut self, steps: &mut Vec<Step>) {
        assert!(!self.unflushed && self.durable_end == self.page, "a flush of the end was planned");
        let pages = self.unit_records.div_ceil(RECORDS_PER_PAGE).max(1) as u32;
        // In a zoned unit the pages before it are written too.
        let padding = if self.in_order { self.geometry.segments_end() - self.page } else { 0 };
        self.metadata_pages += u64::from(pages + padding);
        self.witnessed = self.end();
        steps.push(Step::Witness(Footer {
            unit: self.geometry.unit_of(self.head),
            sequence: self.head,
            tail: self.tail,
            previous_end: self.previous_end,
            end: self.page,
            pages,
        }));
        self.unflushed = true;
    }
}
