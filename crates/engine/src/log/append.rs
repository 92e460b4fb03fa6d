//! Writes segments and footers of the log, and groups of epochs to the journal.

use flashwise_core::cache::{Appending, Cache, Event};
use flashwise_core::checksum;
use flashwise_core::format::{Header, Page, RECORDS_PER_PAGE, Role, encode_metadata};
use flashwise_core::journal::{Group, INDEX_START};
use flashwise_core::order::StepId;
use flashwise_core::step::{Footer, JournalPart, JournalWrite, Segment, Step};
use smallvec::{SmallVec, smallvec};

use super::Log;
use super::perform::BLOCK;
use super::streams::Stream;
use crate::engine::{FLASH, JOURNAL, Part, Settings};
use crate::memory::Memory;
use crate::transfer::{Buffer, Operation};

impl<C: Cache<Step = Step>> Log<C> {
    /// Returns the writes of pages of the flash, with the stream of each.
    fn write_pages(step: StepId, first: u32, pages: &[(Buffer, Stream)], streams: u8) -> Vec<Part> {
        let mut offset = u64::from(first) * BLOCK;
        let runs = pages.chunk_by(|one, next| one.1.number(streams) == next.1.number(streams));
        let part = |run: &[(Buffer, Stream)]| {
            let (disk, operation, length) = (FLASH, Operation::Write, run.len() as u64 * BLOCK);
            let (buffers, stream) = (run.iter().map(|(buffer, _)| *buffer).collect(), run[0].1.number(streams));
            offset += length;
            Part { buffers, stream, ..Part::new(step, disk, operation, offset - length, length) }
        };
        runs.map(part).collect()
    }

    /// Returns the writes of a segment: its header with its data, without the places of `late` blocks. If it is
    /// `doubtful`, the backend may lack what its clean copies have.
    pub(super) fn append(
        &mut self,
        cache: &mut C,
        settings: &Settings,
        (step, segment): (StepId, &Segment),
        late: &[u32],
        doubtful: bool,
    ) -> Vec<Part> {
        let geometry = cache.geometry();
        let header = Header {
            cache: settings.cache,
            epoch: settings.epoch,
            sequence: segment.sequence,
            tail: segment.tail,
            previous_end: segment.previous_end,
            durable_end: segment.durable_end,
            page: segment.page,
            data_pages: segment.data_pages,
            footer_pages: 0,
            skipped: segment.skipped,
        };
        let header_frame = self.places.count();
        let first = geometry.slot(segment.unit, segment.page);
        let mut pages = vec![(self.frames.buffer(Operation::Write, header_frame), Stream::Metadata)];
        let mut checksums = Vec::with_capacity(segment.data_pages as usize);
        for record in segment.records.iter().filter(|record| record.kind.has_data()) {
            let place = record.frame.number;
            pages.push((self.frames.buffer(Operation::Write, place), Stream::of(record.cause)));
            let came = !self.frames.is_bad(place) && !late.contains(&place);
            let crc = if came { self.frames.sum(place) } else { checksum::crc32c(self.frames.page(place)) };
            checksums.push(came.then_some(crc));
            // Copies of missing content may be planned; the written bytes must not match its checksum.
            self.checksums[record.slot as usize] = if came { crc } else { !crc };
        }
        if segment.page == 0 {
            self.unit_records.clear();
        }
        let (first_record, records) = (self.unit_records.len(), &mut self.unit_records);
        let mut none = Vec::new();
        cache.on(Event::Appending(Appending { segment, checksums: &checksums, doubtful, records }), &mut none);
        assert!(none.is_empty(), "a segment that is about to be written gets no steps in reply");
        let (records, page) = (&self.unit_records[first_record..], self.frames.metadata_mut(header_frame));
        encode_metadata(Role::Segment, &header, records, page);
        Self::write_pages(step, first, &pages, settings.write_streams)
    }

    /// Returns the writes of a footer with the records of the unit so far. They are durable.
    pub(super) fn append_footer(&mut self, cache: &C, settings: &Settings, step: StepId, footer: &Footer) -> Vec<Part> {
        let geometry = cache.geometry();
        let first_frame = self.places.count() + 1;
        let &Footer { unit, sequence, tail, previous_end, end, pages } = footer;
        for page in 0..pages {
            let header = Header {
                cache: settings.cache,
                epoch: settings.epoch,
                sequence,
                tail,
                previous_end,
                page: geometry.segments_end() + page,
                data_pages: end,
                durable_end: end,
                footer_pages: pages,
                skipped: 0,
            };
            let from = (page as usize * RECORDS_PER_PAGE).min(self.unit_records.len());
            let to = (from + RECORDS_PER_PAGE).min(self.unit_records.len());
            let records = &self.unit_records[from..to];
            encode_metadata(Role::Footer, &header, records, self.frames.metadata_mut(first_frame + page));
        }
        let slot = geometry.slot(unit, geometry.segments_end());
        let frames = first_frame..first_frame + pages;
        let pages: Vec<_> =
            frames.map(|frame| (self.frames.buffer(Operation::Write, frame), Stream::Metadata)).collect();
        Self::write_pages(step, slot, &pages, settings.write_streams)
    }

    /// Returns a write to the journal; `None` if its content is missing.
    pub(super) fn write_journal(&mut self, step: StepId, write: &JournalWrite) -> Option<Part> {
        let (page, buffers): (u32, SmallVec<[Buffer; 1]>) = match &write.part {
            JournalPart::Blocks { page, frames } => {
                if frames.iter().any(|frame| self.frames.is_bad(frame.number)) {
                    return None;
                }
                (*page, frames.iter().map(|frame| self.frames.buffer(Operation::Write, frame.number)).collect())
            }
            JournalPart::Index { head, blocks } => {
                let sum = |&(block, slot): &(u32, u32)| (block, self.checksums[slot as usize]);
                let group = Group { head: *head, blocks: blocks.iter().map(sum).collect() };
                let pages: Vec<_> = group.index().collect();
                (INDEX_START, smallvec![self.keep_for_journal(&pages)])
            }
            JournalPart::Mark(head) => (head.mark_page(), smallvec![self.keep_for_journal(&[head.mark()])]),
        };
        let length = buffers.iter().map(|buffer| buffer.length as u64).sum();
        let part = Part::new(step, JOURNAL, Operation::Write, u64::from(page) * BLOCK, length);
        // Its buffers are as many as a transfer can have.
        Some(Part { buffers, alone: true, ..part })
    }

    /// Keeps pages in memory until the next ones. An index or a mark is written before the next one begins.
    fn keep_for_journal(&mut self, pages: &[Page]) -> Buffer {
        let memory = self.of_journal.insert(Memory::new(pages.len()));
        (0..).zip(pages).for_each(|(number, page)| *memory.page_mut(number) = *page);
        memory.buffer(0, pages.len() as u32)
    }
}
