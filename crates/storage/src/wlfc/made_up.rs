//! Reconstruction of the superblock of a cache of buckets from its pages.

use std::io;

use flashwise_core::format::{BLOCK_BYTES, Geometry, Layout, Resets, Superblock};
use flashwise_core::wlfc::header::{Header, marked_bucket, reset_at};
use flashwise_engine::memory::Memory;

use crate::disk::Disk;
use crate::flash::cache_tag;

/// Completes `superblock` from the cache's pages on the flash, up to the end of the device. The second value is true if
/// all pages are where the superblock expects them. Returns `None` if there are no pages.
pub(crate) fn made_up(flash: &dyn Disk, superblock: &Superblock) -> io::Result<Option<(Superblock, bool)>> {
    let (cache, Geometry { units, unit_pages }) = (cache_tag(superblock), superblock.geometry);
    let (mut is_there, mut resets, mut in_place) = (false, Resets::Unmarked, true);
    let mut pages = Memory::new(unit_pages as usize);
    let unit_bytes = u64::from(unit_pages) * BLOCK_BYTES as u64;
    for unit in 1..(flash.size() / unit_bytes) as u32 {
        let count = flash.zoned().map_or(unit_pages, |zoned| zoned.written_pages(unit).min(unit_pages));
        let bytes = &mut pages.bytes_mut()[..count as usize * BLOCK_BYTES];
        if flash.read_at(bytes, u64::from(unit) * unit_bytes).is_err() {
            continue;
        }
        for number in 0..count {
            let page = pages.page(number);
            if let Some((header, _)) = Header::decode(page).filter(|(header, _)| header.cache == cache) {
                is_there = true;
                in_place &= header.page + header.part == number && unit < units;
            } else if let Some(bucket) = marked_bucket(page, cache) {
                let is_whole = reset_at(page, 1, cache, bucket).is_some();
                resets = resets.max(if is_whole { Resets::EverySector } else { Resets::FirstSector });
                in_place &= (bucket + 1, 0) == (unit, number) && unit < units;
            }
        }
    }
    let made_up = Superblock { layout: Layout::Wlfc, resets, ..superblock.clone() };
    Ok((is_there || resets > Resets::Unmarked).then_some((made_up, in_place)))
}
