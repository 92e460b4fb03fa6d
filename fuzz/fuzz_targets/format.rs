//! Any page as a superblock, a segment's header or a footer. A decoded page is encoded to the same bytes. Magic
//! numbers, version and checksums are corrected first; otherwise almost no input would pass them.
#![no_main]

use flashwise_core::format::{
    BLOCK_BYTES, Geometry, Header, Page, Role, State, Superblock, VERSION, decode_metadata, encode_metadata,
};
use libfuzzer_sys::fuzz_target;

fn superblock(bytes: &Page) {
    // The page as it is, without corrections.
    if let Ok(superblock) = Superblock::decode(bytes) {
        assert_eq!(Superblock::decode(&superblock.encode()), Ok(superblock));
    }
    let geometry = Geometry { units: Geometry::UNITS_MIN, unit_pages: Geometry::UNIT_PAGES_MIN };
    let any = Superblock { state: State::Clean, ..Superblock::new([0; 16], [0; 16], geometry, 0) };
    let mut page = *bytes;
    page[..8].copy_from_slice(&any.encode()[..8]);
    page[12..16].copy_from_slice(&VERSION.to_le_bytes());
    let crc = crc32c::crc32c(&page[12..]);
    page[8..12].copy_from_slice(&crc.to_le_bytes());
    if let Ok(superblock) = Superblock::decode(&page) {
        let geometry = superblock.geometry;
        // Values derived from a geometry do not overflow.
        assert!(geometry.segments_end() < geometry.unit_pages && geometry.log_units() < geometry.units);
        assert!(geometry.slot(geometry.units - 1, geometry.unit_pages - 1) < geometry.pages());
        assert_eq!(Superblock::decode(&superblock.encode()), Ok(superblock));
    }
}

fn metadata(role: Role, bytes: &Page) {
    let cache = 1;
    let header = Header {
        cache,
        epoch: 1,
        sequence: 1,
        tail: 1,
        previous_end: 0,
        page: 0,
        data_pages: 0,
        durable_end: 0,
        footer_pages: 0,
        skipped: 0,
    };
    let mut empty: Page = [0; BLOCK_BYTES];
    encode_metadata(role, &header, &[], &mut empty);
    let mut page = *bytes;
    page[..4].copy_from_slice(&empty[..4]);
    let crc = crc32c::crc32c(&page[8..]);
    page[4..8].copy_from_slice(&crc.to_le_bytes());
    if let Ok(found) = decode_metadata(role, &page) {
        let mut again: Page = [0; BLOCK_BYTES];
        encode_metadata(role, &found.header, &found.records, &mut again);
        assert_eq!(decode_metadata(role, &again), Ok(found));
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut page: Page = [0; BLOCK_BYTES];
    let length = bytes.len().min(BLOCK_BYTES);
    page[..length].copy_from_slice(&bytes[..length]);
    superblock(&page);
    metadata(Role::Segment, &page);
    metadata(Role::Footer, &page);
});
