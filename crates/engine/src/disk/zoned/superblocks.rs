//! The superblocks of a zoned device: one after the other in two zones, which are reset in turn.

use std::io::{self, IoSlice};

use flashwise_core::format::{BLOCK_BYTES, Page, Superblock};

use super::flash::ZonedFlash;
use crate::memory::Memory;

const PAGE: u64 = BLOCK_BYTES as u64;

impl ZonedFlash {
    /// The superblocks that were written last, two at most, in the order in which they were written.
    pub fn superblocks(&self) -> io::Result<Vec<Page>> {
        let newest = self.newest_superblocks()?;
        let mut pages = self.last_superblocks(newest)?;
        if pages.len() == 1 {
            let before = self.last_superblocks(1 - newest)?;
            pages.splice(0..0, before.last().copied());
        }
        Ok(pages)
    }

    /// Writes a superblock behind the last one; it is not durable yet.
    pub fn append_superblock(&self, superblock: &Superblock) -> io::Result<()> {
        let mut page = Memory::new(1);
        *page.page_mut(0) = superblock.encode();
        let mut zone = self.newest_superblocks()?;
        let mut state = self.state(zone);
        self.pad(zone, &mut state, |written| written.next_multiple_of(PAGE))?;
        if self.written(zone) + PAGE > self.device.capacity() {
            zone = 1 - zone;
            state = self.state(zone);
            self.reset(zone, &mut state)?;
        }
        let at = self.written(zone);
        self.append(zone, &mut state, &mut [IoSlice::new(page.bytes_mut())], at, PAGE)
    }

    /// Resets all zones, those with the newest superblock after the other, and the log last: who is interrupted finds the cache as it
    /// was, or none.
    pub fn wipe(&self) -> io::Result<()> {
        let newest = self.newest_superblocks()?;
        for zone in [1 - newest, newest] {
            self.reset(zone, &mut self.state(zone))?;
            self.device.sync()?;
        }
        self.prepare(|_| super::Use::None)?;
        self.device.sync()
    }

    /// Of the two zones, the one that was written last: it is not full, or its last superblock is the newer one.
    fn newest_superblocks(&self) -> io::Result<u32> {
        let pages = [0, 1].map(|zone| self.written(zone).div_ceil(PAGE));
        let full = self.device.capacity() / PAGE;
        Ok(match pages {
            [_, 0] => 0,
            [0, _] => 1,
            [first, second] if (first == full) != (second == full) => u32::from(first == full),
            _ => {
                let generation = |zone| -> io::Result<u64> {
                    let pages = self.last_superblocks(zone)?;
                    let superblocks = pages.iter().filter_map(|page| Superblock::decode(page).ok());
                    Ok(superblocks.map(|superblock| superblock.generation).max().unwrap_or(0))
                };
                u32::from(generation(1)? > generation(0)?)
            }
        })
    }

    /// The last pages of a zone, two at most.
    fn last_superblocks(&self, zone: u32) -> io::Result<Vec<Page>> {
        let pages = self.written(zone).div_ceil(PAGE);
        let first = pages.saturating_sub(2);
        let mut memory = Memory::new(2);
        let bytes = &mut memory.bytes_mut()[..((pages - first) * PAGE) as usize];
        self.read_zone(zone, bytes, first * PAGE)?;
        Ok(bytes.as_chunks::<BLOCK_BYTES>().0.to_vec())
    }
}
