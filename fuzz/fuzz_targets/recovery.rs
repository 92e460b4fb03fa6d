//! Recovery of a log whose metadata pages say anything, with right checksums, and of pages of any bytes: a log that is sound, or a refusal.
#![no_main]

use flashwise_core::format::{
    BLOCK_BYTES, Geometry, Header, Kind, Page, Record, Role, State, Superblock, encode_metadata,
};
use flashwise_server::disk::Disk;
use flashwise_server::disk::memory::MemoryDisk;
use flashwise_server::flash::{cache_tag, format, recover_log};
use libfuzzer_sys::fuzz_target;

const GEOMETRY: Geometry = Geometry { units: 11, unit_pages: 16 };
const PAGE_BYTES: usize = 28;
const KINDS: [Kind; 6] = [Kind::Void, Kind::Clean, Kind::Dirty, Kind::Forget, Kind::Destaged, Kind::Lost];

fuzz_target!(|bytes: &[u8]| {
    let flash = MemoryDisk::new(GEOMETRY.pages() as usize * BLOCK_BYTES);
    let mut superblock = Superblock {
        generation: 0,
        cache: [7; 16],
        backend: [9; 16],
        geometry: GEOMETRY,
        volume_bytes: 1 << 20,
        state: State::InUse,
    };
    format(&flash, &mut superblock).expect("memory is written");
    let tag = cache_tag(&superblock);
    for piece in bytes.chunks_exact(PAGE_BYTES).take(200) {
        let at = GEOMETRY.slot(u32::from(piece[0]) % GEOMETRY.units, u32::from(piece[1]) % GEOMETRY.unit_pages);
        // The superblock's unit is not recovery's.
        if at < GEOMETRY.unit_pages {
            continue;
        }
        let header = Header {
            cache: if piece[2] == 255 { 0 } else { tag },
            epoch: u64::from(piece[3] % 4),
            sequence: u64::from(piece[4] % 32),
            tail: u64::from(piece[5] % 32),
            previous_end: u32::from(piece[6] % 20),
            page: u32::from(piece[7] % 20),
            data_pages: u32::from(piece[8] % 20),
            durable_end: u32::from(piece[9] % 20),
        };
        let record = |bytes: &[u8]| Record {
            kind: KINDS[bytes[0] as usize % KINDS.len()],
            block: u32::from(bytes[1]),
            slot: at.saturating_add(u32::from(bytes[2] % 20)),
            crc: 0,
        };
        let records: Vec<Record> = piece[10..].chunks_exact(3).map(record).collect();
        let role = if piece[2] % 2 == 0 { Role::Segment } else { Role::Footer };
        let mut page: Page = [piece[2]; BLOCK_BYTES];
        if piece[2] != 254 {
            encode_metadata(role, &header, &records[..piece[2] as usize / 2 % (records.len() + 1)], &mut page);
        }
        flash.write_at(&page, u64::from(at) * BLOCK_BYTES as u64).expect("memory is written");
    }
    if let Ok(recovered) = recover_log(&flash, &superblock, 1, &|_| ()) {
        recovered.log.check();
    }
});
