//! The superblocks of a zoned device, appended to two zones that are reset in turn.

use std::io::{self, IoSlice};

use flashwise_core::format::{BLOCK_BYTES, Page, Superblock};
use flashwise_engine::memory::Memory;

use super::flash::ZonedFlash;

const PAGE: u64 = BLOCK_BYTES as u64;

impl ZonedFlash {
    /// Returns the last superblocks, at most two, in the order in which they were written.
    pub fn superblocks(&self) -> io::Result<Vec<Page>> {
        let newest = self.newest_superblocks()?;
        let mut pages = self.last_superblocks(newest)?;
        if pages.len() == 1 {
            let before = self.last_superblocks(1 - newest)?;
            pages.splice(0..0, before.last().copied());
        }
        Ok(pages)
    }

    /// Appends a superblock. It is not durable yet.
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

    /// Resets all zones: the older superblocks, then the newest one, then the log. If this is interrupted, the cache is
    /// either unchanged or gone.
    pub fn wipe(&self) -> io::Result<()> {
        let newest = self.newest_superblocks()?;
        for zone in [1 - newest, newest] {
            self.reset(zone, &mut self.state(zone))?;
            self.device.sync()?;
        }
        self.prepare(|_| super::Use::None)?;
        self.device.sync()
    }

    /// Returns the superblock zone that was written last: the one that is not full, or has the newer superblocks.
    fn newest_superblocks(&self) -> io::Result<u32> {
        let pages = [0, 1].map(|zone| self.written(zone).div_ceil(PAGE));
        let full = self.device.capacity() / PAGE;
        Ok(match pages {
            [_, 0] => 0,
            [0, _] => 1,
            [first, second] if (first == full) != (second == full) => u32::from(first == full),
            _ => u32::from(self.generation_in(1)? > self.generation_in(0)?),
        })
    }

    /// Returns the generation of the last whole superblock, 0 if there is none. It can be older than the pages of
    /// [`superblocks`](Self::superblocks) if those are damaged.
    pub fn last_generation(&self) -> io::Result<u64> {
        Ok(self.generation_in(0)?.max(self.generation_in(1)?))
    }

    /// Returns the generation of the last whole superblock in a zone.
    fn generation_in(&self, zone: u32) -> io::Result<u64> {
        let mut page = Memory::new(1);
        for number in (0..self.written(zone).div_ceil(PAGE)).rev() {
            self.read_zone(zone, page.bytes_mut(), number * PAGE)?;
            if let Ok(superblock) = Superblock::decode(page.page(0)) {
                return Ok(superblock.generation);
            }
        }
        Ok(0)
    }

    /// Returns the last pages of a zone, at most two.
    fn last_superblocks(&self, zone: u32) -> io::Result<Vec<Page>> {
        let pages = self.written(zone).div_ceil(PAGE);
        let first = pages.saturating_sub(2);
        let mut memory = Memory::new(2);
        let bytes = &mut memory.bytes_mut()[..((pages - first) * PAGE) as usize];
        self.read_zone(zone, bytes, first * PAGE)?;
        Ok(bytes.as_chunks::<BLOCK_BYTES>().0.to_vec())
    }
}
