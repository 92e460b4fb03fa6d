//! Any page as a superblock, a segment's header or a footer: what is read is written again as the same. Checksums are mended, or almost
//! no input would pass them.
#![no_main]

use flashwise_core::format::{BLOCK_BYTES, Page, Role, Superblock, decode_metadata, encode_metadata};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut page: Page = [0; BLOCK_BYTES];
    let length = bytes.len().min(BLOCK_BYTES);
    page[..length].copy_from_slice(&bytes[..length]);
    if let Ok(superblock) = Superblock::decode(&page) {
        assert_eq!(Superblock::decode(&superblock.encode()), Ok(superblock));
    }
    for role in [Role::Segment, Role::Footer] {
        // The magic number and a right checksum: those of an empty page of the role, over these bytes.
        let mut page = page;
        let header = flashwise_core::format::Header {
            cache: 1,
            epoch: 1,
            sequence: 1,
            tail: 1,
            previous_end: 0,
            page: 0,
            data_pages: 0,
            durable_end: 0,
        };
        let mut empty: Page = [0; BLOCK_BYTES];
        encode_metadata(role, &header, &[], &mut empty);
        page[..4].copy_from_slice(&empty[..4]);
        let crc = crc32c::crc32c(&page[8..]);
        page[4..8].copy_from_slice(&crc.to_le_bytes());
        if let Ok(found) = decode_metadata(role, &page) {
            let mut again: Page = [0; BLOCK_BYTES];
            encode_metadata(role, &found.header, &found.records, &mut again);
            assert_eq!(decode_metadata(role, &again), Ok(found));
        }
    }
});
