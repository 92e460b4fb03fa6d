//! Mending: correction of a single wrong bit in a page by its checksum.
//!
//! CRC32C is linear: the difference of a page's checksums depends only on the positions of the wrong bits. Within 4,096
//! bytes no two single bits, of the page or of the checksum, make the same difference (the Hamming distance is 4). So
//! the bit can be identified.

use std::collections::HashMap;

use rustc_hash::FxBuildHasher;

use crate::checksum;
use crate::format::{BLOCK_BYTES, MetadataPage, Page, Role, SUPERBLOCK_MAGIC, Superblock, decode_metadata};
use crate::wlfc::header::{Header as BucketHeader, MAGIC as BUCKET_MAGIC};

/// The polynomial of CRC32C, bits reversed.
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// The effect of each bit of a page on its checksum.
#[derive(Debug)]
pub struct Mending {
    /// The number of bits after the wrong one, by the change of the checksum.
    bits: HashMap<u32, u32, FxBuildHasher>,
}

impl Default for Mending {
    fn default() -> Mending {
        Mending::new()
    }
}

impl Mending {
    /// Creates the table for pages of one block.
    pub fn new() -> Mending {
        let mut change = POLYNOMIAL;
        let bits = (0..BLOCK_BYTES as u32 * 8).map(|following| {
            let this = (change, following);
            change = (change >> 1) ^ if change & 1 == 1 { POLYNOMIAL } else { 0 };
            this
        });
        Mending { bits: bits.collect() }
    }

    /// Corrects a metadata page with one wrong bit.
    pub fn metadata(&self, role: Role, page: &Page) -> Option<(Page, MetadataPage)> {
        let mended = self.mend(*page, &role.magic().to_le_bytes(), 4, 8)?;
        Some((mended, decode_metadata(role, &mended).ok()?))
    }

    /// Corrects and decodes a header page of a [bucket](crate::wlfc) with one wrong bit.
    pub fn bucket_header(&self, page: &Page) -> Option<(Page, BucketHeader)> {
        let mended = self.mend(*page, &BUCKET_MAGIC.to_le_bytes(), 4, 8)?;
        Some((mended, BucketHeader::decode(&mended)?.0))
    }

    /// Corrects and decodes a superblock with one wrong bit.
    pub fn superblock(&self, page: &Page) -> Option<Superblock> {
        Superblock::decode(&self.mend(*page, &SUPERBLOCK_MAGIC.to_le_bytes(), 8, 12)?).ok()
    }

    /// Corrects the one wrong bit of a page. It can be in the magic number, in the checksum at `crc_at`, or in the data
    /// that the checksum covers, from `start` on.
    fn mend(&self, mut page: Page, magic: &[u8], crc_at: usize, start: usize) -> Option<Page> {
        let wrong: u32 = page.iter().zip(magic).map(|(found, expected)| (found ^ expected).count_ones()).sum();
        if wrong > 1 {
            return None;
        }
        page[..magic.len()].copy_from_slice(magic);
        let found = u32::from_le_bytes(page[crc_at..crc_at + 4].try_into().expect("4 bytes"));
        let change = found ^ checksum::crc32c(&page[start..]);
        if wrong == 1 {
            return (change == 0).then_some(page);
        }
        let at = if change.count_ones() == 1 {
            crc_at * 8 + change.trailing_zeros() as usize
        } else {
            let following = *self.bits.get(&change)? as usize;
            Some(BLOCK_BYTES * 8 - 1 - following).filter(|at| *at >= start * 8)?
        };
        page[at / 8] ^= 1 << (at % 8);
        Some(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Geometry, Header, Kind, Record, encode_metadata};
    use crate::wlfc::{Log, Oob, State};

    #[test]
    fn every_flipped_bit_is_found_and_two_are_not_taken_for_one() {
        let mending = Mending::new();
        assert_eq!(mending.bits.len(), BLOCK_BYTES * 8, "no two bits change the checksum alike");
        let header = Header {
            cache: 7,
            epoch: 1,
            sequence: 1,
            tail: 1,
            previous_end: 0,
            page: 0,
            data_pages: 1,
            durable_end: 0,
            footer_pages: 0,
            skipped: 0,
        };
        let record = Record { kind: Kind::Dirty, block: 5, slot: 17, crc: 3 };
        let mut page = [0; BLOCK_BYTES];
        encode_metadata(Role::Segment, &header, &[record], &mut page);
        let oob = Oob { state: State::Write, backend: 7, epoch: 9, log: Log::Data, at: 3, blocks: 890 };
        let bucket_header = BucketHeader {
            cache: 7,
            oob,
            run: 1,
            sequence: 3,
            durable: 0,
            page: 8,
            durable_end: 0,
            previous: 6,
            part: 0,
            before: None,
        };
        let mut of_bucket = [0; BLOCK_BYTES];
        bucket_header.encode(&vec![Ok(0x0101_0101); 890], &mut of_bucket);
        let geometry = Geometry { units: 100, unit_pages: 512 };
        let superblock = Superblock::new([1; 16], [2; 16], geometry, 10 << 30);
        for bit in 0..BLOCK_BYTES * 8 {
            let flipped = |page: &Page| {
                let mut page = *page;
                page[bit / 8] ^= 1 << (bit % 8);
                page
            };
            let mended = mending.metadata(Role::Segment, &flipped(&page)).map(|(page, _)| page);
            assert_eq!(mended, Some(page), "bit {bit}");
            assert_eq!(mending.superblock(&flipped(&superblock.encode())), Some(superblock.clone()), "bit {bit}");
            assert_eq!(mending.bucket_header(&flipped(&of_bucket)), Some((of_bucket, bucket_header)), "bit {bit}");
            let mut twice = flipped(&page);
            twice[(bit / 8 + 1000) % BLOCK_BYTES] ^= 4;
            assert!(mending.metadata(Role::Segment, &twice).is_none(), "bit {bit}");
        }
    }
}
