//! Reads a flash of cache buckets, and corrects wrong bits in its pages.

use std::collections::BTreeSet;
use std::io;

use crate::time::Mutex;
use flashwise_core::format::{BLOCK_BYTES, Geometry, Page, Superblock};
use flashwise_core::mending::Mending;
use flashwise_core::wlfc::header::{Header, SECTORS_PER_PAGE, reset_at, reset_mark};

use crate::disk::Disk;
use crate::disk::zoned::ZonedFlash;
use crate::flash::cache_tag;

/// Maximum number of wrong bits in the mark of a reset bucket, which is known completely.
const MARK_BITS_MAX: u32 = 8;

/// Reads header pages with one wrong bit, and marks of reset buckets, as they were written. Never writes.
pub(crate) struct Mended<'a> {
    flash: &'a dyn Disk,
    mending: &'a Mending,
    geometry: Geometry,
    cache: u64,
    pages: Mutex<BTreeSet<u64>>,
}

impl<'a> Mended<'a> {
    pub fn new(flash: &'a dyn Disk, superblock: &Superblock, mending: &'a Mending) -> Mended<'a> {
        let (geometry, cache) = (superblock.geometry, cache_tag(superblock));
        Mended { flash, mending, geometry, cache, pages: Mutex::default() }
    }

    /// Returns the number of corrected pages.
    pub fn pages(&self) -> u64 {
        self.pages.lock().len() as u64
    }

    /// Returns the original contents of a page, if they are known and differ.
    fn mend(&self, number: u64, page: &Page) -> Option<Page> {
        let unit_pages = u64::from(self.geometry.unit_pages);
        let (unit, page_of_bucket) = (number / unit_pages, (number % unit_pages) as u32);
        let bucket = u32::try_from(unit.checked_sub(1)?).ok()?;
        let is_here = |header: &Header| (header.cache, header.page + header.part) == (self.cache, page_of_bucket);
        if Header::decode(page).is_some() {
            return None;
        }
        if let Some((mended, _)) = self.mending.bucket_header(page).filter(|(_, header)| is_here(header)) {
            return Some(mended);
        }
        if page_of_bucket > 0 {
            return None;
        }
        // The other sectors contain the time of the reset, since version 8.
        let at = (1..SECTORS_PER_PAGE).find_map(|number| reset_at(page, number, self.cache, bucket));
        let mark = reset_mark(self.cache, bucket, at.unwrap_or_default());
        let wrong: u32 = mark[..512].iter().zip(page).map(|(expected, found)| (expected ^ found).count_ones()).sum();
        (1..=MARK_BITS_MAX).contains(&wrong).then_some(mark)
    }
}

impl Disk for Mended<'_> {
    fn description(&self) -> String {
        self.flash.description()
    }

    fn size(&self) -> u64 {
        self.flash.size()
    }

    fn zoned(&self) -> Option<&ZonedFlash> {
        self.flash.zoned()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.flash.read_at(buffer, offset)?;
        for (page, number) in buffer.chunks_exact_mut(BLOCK_BYTES).zip(offset / BLOCK_BYTES as u64..) {
            let page: &mut Page = page.try_into().expect("a page of bytes");
            if let Some(mended) = self.mend(number, page) {
                *page = mended;
                self.pages.lock().insert(number);
            }
        }
        Ok(())
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.flash.write_at(buffer, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.flash.sync()
    }

    fn zero(&self, offset: u64, length: u64, may_punch_holes: bool) -> io::Result<()> {
        self.flash.zero(offset, length, may_punch_holes)
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.flash.discard(offset, length)
    }
}
