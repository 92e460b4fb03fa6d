//! Replies as they are sent. Source: RFC 7143, sections 11.4, 11.7, 11.8, 11.17 to 11.19.

use super::super::pdu::{self, FINAL, Header, NO_TAG, response};
use super::Session;
use super::task::Task;
use crate::scsi::status::{Answer, Status};

const OVERFLOW: u8 = 0x04;
const UNDERFLOW: u8 = 0x02;
const HAS_STATUS: u8 = 0x01;

impl Session<'_> {
    /// Sets the numbers of a reply. A reply with a status increments the number of the status.
    fn number(&mut self, header: &mut Header, has_status: bool) {
        header.set_word(24, self.status_number);
        if has_status {
            self.status_number = self.status_number.wrapping_add(1);
        }
        header.set_word(28, self.command_number);
        let room = self.depth.saturating_sub(self.tasks.len()) as u32;
        let last = self.command_number.wrapping_add(room).wrapping_sub(1);
        // The window never shrinks.
        if (last.wrapping_sub(self.last_command_number) as i32) > 0 {
            self.last_command_number = last;
        }
        header.set_word(32, self.last_command_number);
    }

    /// Sends a header with a short data segment.
    pub(super) fn put(&mut self, mut header: Header, data: &[u8], has_status: bool) {
        self.number(&mut header, has_status);
        let digests = self.parameters.digests;
        self.link.output.put(|output| pdu::put(output, header, data, digests));
    }

    /// Rejects a message. Source: RFC 7143, section 11.17.
    pub(super) fn reject(&mut self, reason: u8, refused: &Header) {
        let mut header = Header::new(response::REJECT, FINAL).with_tag(NO_TAG);
        header.0[2] = reason;
        self.put(header, &refused.0, true);
    }

    /// Requests data.
    pub(super) fn put_ready(&mut self, tag: u32, lun: [u8; 8], transfer: u32, number: u32, from: usize, length: usize) {
        let mut header = Header::new(response::READY_TO_TRANSFER, FINAL).with_lun(lun).with_tag(tag);
        header.set_word(20, transfer);
        header.set_word(36, number);
        header.set_word(40, from as u32);
        header.set_word(44, length as u32);
        self.put(header, &[], false);
    }

    /// Sends the reply of a command.
    pub(super) fn put_answer(&mut self, tag: u32, task: &Task, mut answer: Answer) {
        let residual = task.residual(answer.data.len());
        let flags = match residual {
            0 => 0,
            1.. => OVERFLOW,
            ..0 => UNDERFLOW,
        };
        let residual = u32::try_from(residual.unsigned_abs()).unwrap_or(u32::MAX);
        answer.data.truncate(if task.reads { task.expected } else { 0 });
        if answer.status == Status::Good && !answer.data.is_empty() {
            return self.put_data(tag, answer.data, flags, residual);
        }
        let mut header = Header::new(response::SCSI_RESPONSE, FINAL | flags).with_tag(tag);
        header.0[3] = answer.status as u8;
        header.set_word(36, task.asked);
        header.set_word(44, residual);
        let mut data = Vec::new();
        if let Some(sense) = answer.sense {
            let in_descriptors = self.used.as_ref().is_some_and(|used| used.senses_in_descriptors());
            let sense = sense.encode(in_descriptors);
            data.extend((sense.len() as u16).to_be_bytes());
            data.extend(sense);
        }
        self.put(header, &data, true);
    }

    /// Sends data, with the status in its last segment.
    fn put_data(&mut self, tag: u32, data: Vec<u8>, flags: u8, residual: u32) {
        let digests = self.parameters.digests;
        let segment_bytes_max = self.parameters.segment_bytes_max as usize;
        let burst_bytes_max = self.parameters.burst_bytes_max as usize;
        let whole = data.len();
        self.tally.bytes_read += whole as u64;
        let (mut from, mut number) = (0, 0);
        // A sequence ends at each multiple of the longest burst.
        let length_from =
            |from: usize| (whole - from).min(segment_bytes_max).min(burst_bytes_max - from % burst_bytes_max);
        while from + length_from(from) < whole {
            let length = length_from(from);
            let ends_burst = (from + length).is_multiple_of(burst_bytes_max);
            let header = self.data_header(tag, if ends_burst { FINAL } else { 0 }, from, length, number);
            let segment = &data[from..from + length];
            self.link.output.put(|output| pdu::put_header(output, &header, digests));
            self.link.output.put_data(segment.to_vec());
            self.link.output.put(|output| pdu::put_trailer(output, segment, digests));
            from += length;
            number += 1;
        }
        let mut header = self.data_header(tag, FINAL | HAS_STATUS | flags, from, whole - from, number);
        header.set_word(44, residual);
        let mut trailer = Vec::new();
        pdu::put_trailer(&mut trailer, &data[from..], digests);
        self.link.output.put(|output| pdu::put_header(output, &header, digests));
        self.link.output.put_data(if from == 0 { data } else { data[from..].to_vec() });
        self.link.output.put(|output| output.extend_from_slice(&trailer));
    }

    fn data_header(&mut self, tag: u32, flags: u8, from: usize, length: usize, number: u32) -> Header {
        let has_status = flags & HAS_STATUS != 0;
        let mut header = Header::new(response::DATA_IN, flags).with_tag(tag).with_data(length);
        header.set_word(20, NO_TAG);
        self.number(&mut header, has_status);
        if !has_status {
            header.set_word(24, 0);
        }
        header.set_word(36, number);
        header.set_word(40, from as u32);
        header
    }
}
