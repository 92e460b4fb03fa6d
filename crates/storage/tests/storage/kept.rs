//! Caches that earlier programs left behind are read as they were.

use flashwise_core::format::{BLOCK_BYTES, Geometry, State};
use flashwise_storage::disk::Disk;
use flashwise_storage::disk::memory::MemoryDisk;
use flashwise_storage::flash::{read_superblock, recover_log};

/// A cache of version 3, left by a killed `flashwise serve` 0.1.0: 704 KiB in units of 64 KiB, in write-back. In rounds
/// 1 to 5, blocks 0 to 29 were filled with the byte `block * 5 + round`, and flushed. Round 5 skipped block 8. Block 7
/// was trimmed at the end.
#[test]
fn a_cache_of_version_3_is_read() {
    let image = zstd::decode_all(&include_bytes!("../kept/version-3.img.zst")[..]).unwrap();
    assert_eq!(image[12], 3);
    let flash = MemoryDisk::new(image.len());
    flash.write_at(&image, 0).unwrap();
    let superblock = read_superblock(&flash).unwrap();
    assert_eq!(superblock.geometry, Geometry { units: 11, unit_pages: 16 });
    assert_eq!((superblock.state, superblock.in_order, superblock.volume_bytes), (State::InUse, false, 4 << 20));
    let recovered = recover_log(&flash, &superblock, 1, &|_, _| ()).unwrap();
    assert!(recovered.lost.is_empty() && recovered.epoch == 2);
    let mut page = [0; BLOCK_BYTES];
    for block in 0..30_u32 {
        let slot = recovered.log.find(block).unwrap();
        flash.read_at(&mut page, u64::from(slot) * BLOCK_BYTES as u64).unwrap();
        let round = if block == 8 { 4 } else { 5 };
        let expected = if block == 7 { 0 } else { (block * 5 + round) as u8 };
        assert!(page.iter().all(|&byte| byte == expected), "block {block} is {}, expected {expected}", page[0]);
    }
    // As many as that program's own `flashwise check` finds.
    assert_eq!((recovered.log.len(), recovered.log.dirty_blocks()), (30, 30));
}
