//! Protocol data units: their headers and digests. Source: RFC 7143, section 11.

use flashwise_core::checksum::{crc32c, crc32c_append};

/// Bytes of a basic header segment.
pub const HEADER_BYTES: usize = 48;
/// Bytes of a digest.
pub const DIGEST_BYTES: usize = 4;
/// The reserved tag, which identifies nothing.
pub const NO_TAG: u32 = 0xffff_ffff;

/// Opcodes of initiators.
pub mod request {
    #![allow(missing_docs)]
    pub const NOP_OUT: u8 = 0x00;
    pub const SCSI_COMMAND: u8 = 0x01;
    pub const TASK_MANAGEMENT: u8 = 0x02;
    pub const LOGIN: u8 = 0x03;
    pub const TEXT: u8 = 0x04;
    pub const DATA_OUT: u8 = 0x05;
    pub const LOGOUT: u8 = 0x06;
    pub const SNACK: u8 = 0x10;
}

/// Opcodes of targets.
pub mod response {
    #![allow(missing_docs)]
    pub const NOP_IN: u8 = 0x20;
    pub const SCSI_RESPONSE: u8 = 0x21;
    pub const TASK_MANAGEMENT: u8 = 0x22;
    pub const LOGIN: u8 = 0x23;
    pub const TEXT: u8 = 0x24;
    pub const DATA_IN: u8 = 0x25;
    pub const LOGOUT: u8 = 0x26;
    pub const READY_TO_TRANSFER: u8 = 0x31;
    pub const REJECT: u8 = 0x3f;
}

/// Reasons of a Reject.
pub mod reject {
    #![allow(missing_docs)]
    pub const PROTOCOL_ERROR: u8 = 0x04;
    pub const COMMAND_NOT_SUPPORTED: u8 = 0x05;
    pub const TOO_MANY_IMMEDIATE_COMMANDS: u8 = 0x06;
    pub const INVALID_PDU_FIELD: u8 = 0x09;
}

/// The bit of the second byte for the end of a sequence.
pub const FINAL: u8 = 0x80;
/// The bit of the second byte for text that continues.
pub const CONTINUES: u8 = 0x40;

const IMMEDIATE: u8 = 0x40;

/// A basic header segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header(pub [u8; HEADER_BYTES]);

impl Header {
    /// Creates a header of a target's response.
    pub fn new(opcode: u8, flags: u8) -> Header {
        let mut bytes = [0; HEADER_BYTES];
        (bytes[0], bytes[1]) = (opcode, flags);
        Header(bytes)
    }

    /// Returns the opcode.
    pub fn opcode(&self) -> u8 {
        self.0[0] & 0x3f
    }

    /// True for immediate commands.
    pub fn is_immediate(&self) -> bool {
        self.0[0] & IMMEDIATE != 0
    }

    /// Returns the second byte.
    pub fn flags(&self) -> u8 {
        self.0[1]
    }

    /// True if a bit of the second byte is set.
    pub fn has(&self, flag: u8) -> bool {
        self.0[1] & flag != 0
    }

    /// Returns the length of the additional header segments in bytes.
    pub fn additional_bytes(&self) -> usize {
        usize::from(self.0[4]) * 4
    }

    /// Returns the length of the data segment in bytes, without padding.
    pub fn data_bytes(&self) -> usize {
        self.0[5..8].iter().fold(0, |length, byte| length << 8 | usize::from(*byte))
    }

    /// Returns four bytes as a number.
    pub fn word(&self, at: usize) -> u32 {
        u32::from_be_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
    }

    /// Sets four bytes.
    pub fn set_word(&mut self, at: usize, value: u32) {
        self.0[at..at + 4].copy_from_slice(&value.to_be_bytes());
    }

    /// Sets the length of the data segment.
    pub fn with_data(mut self, length: usize) -> Header {
        debug_assert!(length < 1 << 24);
        self.0[5..8].copy_from_slice(&(length as u32).to_be_bytes()[1..]);
        self
    }

    /// Returns the logical unit number.
    pub fn lun(&self) -> [u8; 8] {
        let mut lun = [0; 8];
        lun.copy_from_slice(&self.0[8..16]);
        lun
    }

    /// Sets the logical unit number.
    pub fn with_lun(mut self, lun: [u8; 8]) -> Header {
        self.0[8..16].copy_from_slice(&lun);
        self
    }

    /// Returns the initiator task tag.
    pub fn tag(&self) -> u32 {
        self.word(16)
    }

    /// Sets the initiator task tag.
    pub fn with_tag(mut self, tag: u32) -> Header {
        self.set_word(16, tag);
        self
    }
}

/// Returns the number of bytes that pad a length to a multiple of four.
pub fn padding(length: usize) -> usize {
    length.wrapping_neg() % 4
}

/// Use of digests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    /// True if headers have digests.
    pub header: bool,
    /// True if data segments have digests.
    pub data: bool,
}

/// A header's digest is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongDigest;

/// Decodes a header at the start of `input`, with its additional segments and digest. Returns the header and the total
/// length, or `None` if it is incomplete.
pub fn take_header(input: &[u8], digests: Digests) -> Result<Option<(Header, usize)>, WrongDigest> {
    let Some(bytes) = input.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let header = Header(*bytes);
    let length = HEADER_BYTES + header.additional_bytes();
    if !digests.header {
        return Ok((input.len() >= length).then_some((header, length)));
    }
    let Some(protected) = input.get(..length + DIGEST_BYTES) else { return Ok(None) };
    let (covered, digest) = protected.split_at(length);
    if digest != crc32c(covered).to_le_bytes() {
        return Err(WrongDigest);
    }
    Ok(Some((header, length + DIGEST_BYTES)))
}

/// Appends a header, with its digest.
pub fn put_header(output: &mut Vec<u8>, header: &Header, digests: Digests) {
    output.extend_from_slice(&header.0);
    if digests.header {
        output.extend_from_slice(&crc32c(&header.0).to_le_bytes());
    }
}

/// Appends the padding and the digest behind a data segment.
pub fn put_trailer(output: &mut Vec<u8>, data: &[u8], digests: Digests) {
    let padding = &[0; 3][..padding(data.len())];
    output.extend_from_slice(padding);
    if digests.data && !data.is_empty() {
        let digest = crc32c_append(crc32c(data), padding);
        output.extend_from_slice(&digest.to_le_bytes());
    }
}

/// Appends a complete unit with a short data segment.
pub fn put(output: &mut Vec<u8>, header: Header, data: &[u8], digests: Digests) {
    put_header(output, &header.with_data(data.len()), digests);
    output.extend_from_slice(data);
    put_trailer(output, data, digests);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scsi_command_is_taken_apart_as_specified() {
        // RFC 7143, section 11.3, by hand: an immediate, final read of LUN 1 with 8 bytes of data.
        let mut bytes = vec![0x41, 0xc1, 0, 0, 0, 0, 0, 8, 0, 1, 0, 0, 0, 0, 0, 0, 0xde, 0xad, 0xbe, 0xef];
        bytes.extend([0, 0, 2, 0, 0, 0, 0, 7, 0, 0, 0, 9]);
        bytes.extend([0x28; 16]);
        let (header, length) = take_header(&bytes, Digests::default()).unwrap().unwrap();
        assert_eq!((header.opcode(), header.is_immediate(), header.has(FINAL)), (request::SCSI_COMMAND, true, true));
        assert_eq!((header.data_bytes(), header.tag(), length), (8, 0xdead_beef, 48));
        assert_eq!((header.lun(), header.word(20), header.word(24)), ([0, 1, 0, 0, 0, 0, 0, 0], 512, 7));
        assert_eq!(take_header(&bytes[..47], Digests::default()), Ok(None));
        bytes[4] = 1;
        assert_eq!(take_header(&bytes, Digests::default()), Ok(None), "an additional header segment is to come");
        bytes.extend([0; 4]);
        assert_eq!(take_header(&bytes, Digests::default()).unwrap().unwrap().1, 52);
    }

    #[test]
    fn digests_are_those_of_the_specification() {
        // RFC 7143, appendix A.4 (CRC examples): 32 bytes of zeroes, and of ones.
        assert_eq!(crc32c::crc32c(&[0; 32]).to_le_bytes(), [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(crc32c::crc32c(&[0xff; 32]).to_le_bytes(), [0x43, 0xab, 0xa8, 0x62]);
        let digests = Digests { header: true, data: true };
        let mut output = Vec::new();
        put(&mut output, Header::new(response::NOP_IN, FINAL).with_tag(5), b"ping!", digests);
        assert_eq!(output.len(), 48 + 4 + 8 + 4);
        let (header, length) = take_header(&output, digests).unwrap().unwrap();
        assert_eq!((header.tag(), header.data_bytes(), length), (5, 5, 52));
        assert_eq!(output[60..], crc32c::crc32c(b"ping!\0\0\0").to_le_bytes());
        output[20] ^= 1;
        assert_eq!(take_header(&output, digests), Err(WrongDigest));
    }
}
