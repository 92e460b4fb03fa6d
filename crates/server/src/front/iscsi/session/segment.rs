//! A data segment as it arrives: the part that is kept, the padding and the digest.

use flashwise_core::checksum::crc32c_append;

use super::super::pdu::{DIGEST_BYTES, padding};
use crate::front::link::Direct;

/// A data segment that is incomplete.
#[derive(Debug)]
pub struct Segment {
    /// The kept data, appended to the earlier data.
    pub data: Vec<u8>,
    /// Length of `data` when all kept data has arrived.
    end: usize,
    /// Bytes to skip behind the kept ones: excess data and padding.
    skipped: usize,
    /// The received part of the digest, if there is one.
    digest: Option<([u8; DIGEST_BYTES], usize)>,
    crc: u32,
}

impl Segment {
    /// Starts a segment of `length` bytes, whose first `kept` bytes are appended to `data`.
    pub fn new(data: Vec<u8>, length: usize, kept: usize, has_digest: bool) -> Segment {
        debug_assert!(kept <= length);
        let digest = (has_digest && length > 0).then_some(([0; DIGEST_BYTES], 0));
        Segment { end: data.len() + kept, data, skipped: length - kept + padding(length), digest, crc: 0 }
    }

    /// Returns the buffer for the kept data.
    pub fn direct(&mut self) -> Direct<'_> {
        Direct { length: self.end, data: &mut self.data }
    }

    /// Returns the number of kept bytes that have arrived.
    pub fn kept(&self) -> usize {
        self.data.len()
    }

    /// Records that data was received directly since `data` had `before` bytes.
    pub fn received(&mut self, before: usize) {
        if self.digest.is_some() {
            self.crc = crc32c_append(self.crc, &self.data[before..]);
        }
    }

    /// Processes bytes from the start of `input` and returns their number.
    pub fn feed(&mut self, input: &[u8]) -> usize {
        let mut taken = (self.end - self.data.len()).min(input.len());
        if self.data.capacity() < self.end {
            self.data.reserve_exact(self.end - self.data.len());
        }
        self.data.extend_from_slice(&input[..taken]);
        let skipped = self.skipped.min(input.len() - taken);
        self.skipped -= skipped;
        taken += skipped;
        if let Some((digest, have)) = &mut self.digest {
            self.crc = crc32c_append(self.crc, &input[..taken]);
            let count = (DIGEST_BYTES - *have).min(input.len() - taken);
            digest[*have..*have + count].copy_from_slice(&input[taken..taken + count]);
            *have += count;
            taken += count;
        }
        taken
    }

    /// True if all of it has arrived.
    pub fn is_whole(&self) -> bool {
        self.data.len() == self.end && self.skipped == 0 && self.digest.is_none_or(|(_, have)| have == DIGEST_BYTES)
    }

    /// True if its digest is correct. The segment must be complete.
    pub fn is_intact(&self) -> bool {
        self.digest.is_none_or(|(digest, _)| digest == self.crc.to_le_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_comes_in_pieces_of_any_size() {
        let digest = crc32c::crc32c(b"0123456789\0\0").to_le_bytes();
        let bytes = [&b"0123456789\0\0"[..], &digest, b"next"].concat();
        for piece in 1..=bytes.len() {
            for kept in [0, 4, 10] {
                let mut segment = Segment::new(b"before".to_vec(), 10, kept, true);
                let mut at = 0;
                while !segment.is_whole() {
                    at += segment.feed(&bytes[at..(at + piece).min(bytes.len())]);
                }
                assert!(at == 16 && segment.is_intact(), "pieces of {piece}, {kept} kept");
                assert_eq!(segment.data, [b"before", &b"0123456789"[..kept]].concat());
            }
        }
        let mut segment = Segment::new(Vec::new(), 10, 10, true);
        segment.feed(&[&b"0123456780\0\0"[..], &digest].concat());
        assert!(segment.is_whole() && !segment.is_intact());
    }
}
