//! Writes segments and footers of the log, and groups of epochs to the journal.

use flashwise_core::cache::{Appending, Cache, Event};
use flashwise_core::checksum;
use flashwise_core::format::{Header, Page, RECORDS_PER_PAGE, Role, encode_metadata};
use flashwise_core::journal::{Group, INDEX_START};
use flashwise_core::order::{Bond, StepId};
use flashwise_core::step::{Footer, JournalPart, JournalWrite, Segment, Step};
use smallvec::{SmallVec, smallvec};

use super::Engine;
use super::perform::BLOCK;
use super::streams::Stream;
use crate::engine::{FLASH, JOURNAL, Part};
use crate::memory::Memory;
use crate::transfer::{Buffer, Operation};

impl<C: Cache<Step = Step>> Engine<C> {
    /// Writes pages of the flash, with the stream of each.
    fn write_pages(&mut self, step: StepId, first: u32, pages: &[(Buffer, Stream)]) {
        let streams = self.settings.write_streams;
        let mut offset = u64::from(first) * BLOCK;
        for run in pages.chunk_by(|one, next| one.1.number(streams) == next.1.number(streams)) {
            let (disk, operation, length) = (FLASH, Operation::Write, run.len() as u64 * BLOCK);
            let (buffers, stream) = (run.iter().map(|(buffer, _)| *buffer).collect(), run[0].1.number(streams));
            self.hand_over_part(Part { buffers, stream, ..Part::new(step, disk, operation, offset, length) });
            offset += length;
        }
    }

    /// Writes a segment: its header with its data.
    pub(super) fn append(&mut self, id: StepId, segment: &Segment) {
        let geometry = self.cache.geometry();
        let header = Header {
            cache: self.settings.cache,
            epoch: self.settings.epoch,
            sequence: segment.sequence,
            tail: segment.tail,
            previous_end: segment.previous_end,
            durable_end: segment.durable_end,
            page: segment.page,
            data_pages: segment.data_pages,
            footer_pages: 0,
            skipped: segment.skipped,
        };
        let header_frame = self.layout.places.count();
        let first = geometry.slot(segment.unit, segment.page);
        let late = std::mem::take(&mut self.step(id).state.late);
        let mut pages = vec![(self.layout.memory.buffer(header_frame, 1), Stream::Metadata)];
        let mut checksums = Vec::with_capacity(segment.data_pages as usize);
        for record in segment.records.iter().filter(|record| record.kind.has_data()) {
            pages.push((self.layout.memory.buffer(record.frame.number, 1), Stream::of(record.cause)));
            let place = record.frame.number;
            let came = !self.layout.bad[place as usize] && !late.contains(&place);
            let crc = if came { self.layout.sum(place) } else { checksum::crc32c(self.layout.memory.page(place)) };
            checksums.push(came.then_some(crc));
            // Copies of missing content may be planned; the written bytes must not match its checksum.
            self.layout.checksums[record.slot as usize] = if came { crc } else { !crc };
        }
        if segment.page == 0 {
            self.layout.unit_records.clear();
        }
        let doubtful = self.step(id).broken.has(Bond::Trusts);
        let mut records = std::mem::take(&mut self.layout.unit_records);
        let first_record = records.len();
        self.tell(Event::Appending(Appending { segment, checksums: &checksums, doubtful, records: &mut records }));
        encode_metadata(Role::Segment, &header, &records[first_record..], self.layout.memory.page_mut(header_frame));
        self.layout.unit_records = records;
        self.write_pages(id, first, &pages);
    }

    /// Writes a footer with the records of the unit so far. They are durable.
    pub(super) fn append_footer(&mut self, id: StepId, footer: &Footer) {
        let geometry = self.cache.geometry();
        let first_frame = self.layout.places.count() + 1;
        let &Footer { unit, sequence, tail, previous_end, end, pages } = footer;
        for page in 0..pages {
            let header = Header {
                cache: self.settings.cache,
                epoch: self.settings.epoch,
                sequence,
                tail,
                previous_end,
                page: geometry.segments_end() + page,
                data_pages: end,
                durable_end: end,
                footer_pages: pages,
                skipped: 0,
            };
            let from = (page as usize * RECORDS_PER_PAGE).min(self.layout.unit_records.len());
            let to = (from + RECORDS_PER_PAGE).min(self.layout.unit_records.len());
            let records = &self.layout.unit_records[from..to];
            encode_metadata(Role::Footer, &header, records, self.layout.memory.page_mut(first_frame + page));
        }
        let slot = geometry.slot(unit, geometry.segments_end());
        let pages: Vec<_> = (first_frame..first_frame + pages)
            .map(|frame| (self.layout.memory.buffer(frame, 1), Stream::Metadata))
            .collect();
        self.write_pages(id, slot, &pages);
    }

    /// Starts a write to the journal. `Some(false)` if its content is missing.
    pub(super) fn write_journal(&mut self, id: StepId, write: &JournalWrite) -> Option<bool> {
        let (page, buffers): (u32, SmallVec<[Buffer; 1]>) = match &write.part {
            JournalPart::Blocks { page, frames } => {
                if frames.iter().any(|frame| self.layout.bad[frame.number as usize]) {
                    return Some(false);
                }
                (*page, frames.iter().map(|frame| self.layout.memory.buffer(frame.number, 1)).collect())
            }
            JournalPart::Index { head, blocks } => {
                let sum = |&(block, slot): &(u32, u32)| (block, self.layout.checksums[slot as usize]);
                let group = Group { head: *head, blocks: blocks.iter().map(sum).collect() };
                let pages: Vec<_> = group.index().collect();
                (INDEX_START, smallvec![self.keep_for_journal(&pages)])
            }
            JournalPart::Mark(head) => (head.mark_page(), smallvec![self.keep_for_journal(&[head.mark()])]),
        };
        let length = buffers.iter().map(|buffer| buffer.length as u64).sum();
        let part = Part::new(id, JOURNAL, Operation::Write, u64::from(page) * BLOCK, length);
        // Its buffers are as many as a transfer can have.
        self.hand_over_part(Part { buffers, alone: true, ..part });
        None
    }

    /// Keeps pages in memory until the next ones. An index or a mark is written before the next one begins.
    fn keep_for_journal(&mut self, pages: &[Page]) -> Buffer {
        let memory = self.layout.of_journal.insert(Memory::new(pages.len()));
        (0..).zip(pages).for_each(|(number, page)| *memory.page_mut(number) = *page);
        memory.buffer(0, pages.len() as u32)
    }
}
