//! Writes segments and footers of the log.

use flashwise_core::cache::{Appending, Cache, Event};
use flashwise_core::checksum;
use flashwise_core::format::{Header, RECORDS_PER_PAGE, Role, encode_metadata};
use flashwise_core::order::{Bond, StepId};
use flashwise_core::step::{Footer, Segment, Step};

use super::Engine;
use super::perform::BLOCK;
use super::streams::Stream;
use crate::engine::{FLASH, Part};
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
}
