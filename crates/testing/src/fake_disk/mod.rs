//! A disk with a volatile cache that fails in every requested way.
//!
//! Forks share pages, so the cost of a power failure depends on the changes and not on the size of the disk.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex};

use flashwise_core::format::{BLOCK_BYTES, Geometry, Page};
use flashwise_storage::disk::Disk;
use flashwise_storage::disk::zoned::ZonedFlash;

use crate::random::Random;

mod zones;

pub use zones::ACTIVE_MIN;
use zones::{FakeZonedDevice, FakeZones};

/// The unflushed writes that survive a power failure.
#[derive(Clone, Copy, Debug)]
pub enum Loss {
    /// All of them, and they stay volatile: only the process died.
    Process,
    /// All of them.
    Nothing,
    /// None of them.
    Everything,
    /// A random state of each sector since the last flush.
    Sectors,
    /// Each write completely or not at all.
    Writes,
}

/// The wrong result of reading a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Corruption {
    /// A bit is wrong.
    BitFlip,
    /// Zeroes.
    Zeroes,
    /// The previous content of the page.
    Stale,
    /// The content of another page.
    Misdirected,
}

/// All of them.
pub const CORRUPTIONS: [Corruption; 4] =
    [Corruption::BitFlip, Corruption::Zeroes, Corruption::Stale, Corruption::Misdirected];

/// Changes pages on their way to the disk.
pub type Filter = Arc<Mutex<dyn FnMut(&mut Page) + Send>>;

#[derive(Clone)]
struct Inner {
    sector: usize,
    stable: Vec<Arc<Page>>,
    visible: Vec<Arc<Page>>,
    /// The visible pages before the last write.
    before: Vec<Arc<Page>>,
    /// The writes to each page since the last flush, with their numbers.
    volatile: BTreeMap<usize, Vec<(u64, Arc<Page>)>>,
    /// The volatile state of a disk with zones.
    zones: Option<FakeZones>,
    writes: u64,
    filter: Option<Filter>,
    /// Operations that still succeed.
    lives: u64,
}

/// The disk.
pub struct FakeDisk {
    inner: Arc<Mutex<Inner>>,
    zoned: Option<ZonedFlash>,
}

impl FakeDisk {
    /// Creates a zeroed disk that tears writes at `sector` bytes.
    pub fn new(pages: usize, sector: usize) -> FakeDisk {
        let zero = Arc::new([0; BLOCK_BYTES]);
        let inner = Inner {
            sector,
            stable: vec![zero.clone(); pages],
            visible: vec![zero.clone(); pages],
            before: vec![zero; pages],
            volatile: BTreeMap::new(),
            zones: None,
            writes: 0,
            filter: None,
            lives: u64::MAX,
        };
        FakeDisk::of(inner)
    }

    /// Creates a disk whose units are zones. At most `max_active` may be open or closed.
    pub fn zoned(geometry: Geometry, max_active: u32) -> FakeDisk {
        let pages = geometry.unit_pages as usize;
        let disk = FakeDisk::new((geometry.units as usize + 1) * pages, 512);
        let zones = Some(FakeZones::new(geometry.units, pages, max_active));
        FakeDisk::of(Inner { zones, ..disk.inner.lock().unwrap().clone() })
    }

    fn of(inner: Inner) -> FakeDisk {
        let is_zoned = inner.zones.is_some();
        let inner = Arc::new(Mutex::new(inner));
        let zoned = is_zoned.then(|| ZonedFlash::new(Box::new(FakeZonedDevice { inner: inner.clone() })).unwrap());
        FakeDisk { inner, zoned }
    }

    /// Returns an independent copy.
    pub fn fork(&self) -> FakeDisk {
        FakeDisk::of(self.inner.lock().unwrap().clone())
    }

    /// Returns the number of operations that a zoned device refused.
    pub fn refusals(&self) -> u64 {
        self.inner.lock().unwrap().zones.as_ref().map_or(0, |zones| zones.refusals)
    }

    /// Returns the pages of the superblock's copies; with zones, those written last, older first.
    pub fn superblock_pages(&self) -> Vec<usize> {
        self.inner.lock().unwrap().zones.as_ref().map_or(vec![0, 1], FakeZones::superblock_pages)
    }

    /// Clears everything.
    pub fn blank(&self) {
        let mut inner = self.inner.lock().unwrap();
        if let Some(zones) = &mut inner.zones {
            zones.blank();
        }
        let pages = inner.visible.len();
        drop(inner);
        (0..pages).for_each(|page| self.set_page(page, [0; BLOCK_BYTES]));
        self.look_again();
    }

    fn look_again(&self) {
        self.zoned.iter().for_each(|zoned| zoned.look_again().unwrap());
    }

    /// Sets the filter for later writes.
    pub fn set_filter(&self, filter: Filter) {
        self.inner.lock().unwrap().filter = Some(filter);
    }

    /// Makes all operations fail after `lives` more.
    pub fn set_lives(&self, lives: u64) {
        self.inner.lock().unwrap().lives = lives;
    }

    /// True if it has failed because of that.
    pub fn is_dead(&self) -> bool {
        self.inner.lock().unwrap().lives == 0
    }

    /// Counts an operation of something that fails together with the disk.
    pub fn operate(&self) -> io::Result<()> {
        self.inner.lock().unwrap().operate(0)
    }

    /// Returns the number of the last write. A flush requested now covers no later one.
    pub fn writes(&self) -> u64 {
        self.inner.lock().unwrap().writes
    }

    /// Makes all writes up to this number durable.
    pub fn sync_until(&self, write: u64) {
        self.inner.lock().unwrap().sync_until(write);
    }

    /// Simulates a power failure: only the surviving writes stay visible.
    pub fn crash(&self, loss: Loss, random: &mut Random) {
        self.lose(loss, random);
        self.look_again();
    }

    fn lose(&self, loss: Loss, random: &mut Random) {
        let inner = &mut *self.inner.lock().unwrap();
        if matches!(loss, Loss::Process) {
            return;
        }
        if let Some(zones) = &mut inner.zones {
            zones.crash(loss, random, &mut inner.stable);
        }
        let mut kept_writes: BTreeMap<u64, bool> = BTreeMap::new();
        for (page, versions) in std::mem::take(&mut inner.volatile) {
            match loss {
                Loss::Process | Loss::Everything => {}
                Loss::Nothing => inner.stable[page] = versions.last().unwrap().1.clone(),
                Loss::Sectors => {
                    let mut bytes = *inner.stable[page];
                    for sector in (0..BLOCK_BYTES).step_by(inner.sector) {
                        let sector = sector..sector + inner.sector;
                        let kept = random.below(versions.len() as u64 + 1) as usize;
                        if let Some((_, version)) = versions.get(kept) {
                            bytes[sector.clone()].copy_from_slice(&version[sector]);
                        }
                    }
                    inner.stable[page] = Arc::new(bytes);
                }
                Loss::Writes => {
                    for (number, version) in versions {
                        if *kept_writes.entry(number).or_insert_with(|| random.chance(2)) {
                            inner.stable[page] = version;
                        }
                    }
                }
            }
        }
        inner.visible.clone_from(&inner.stable);
    }

    /// Returns a page as a read does.
    pub fn page(&self, page: usize) -> Page {
        *self.inner.lock().unwrap().visible[page]
    }

    /// Returns a page as after the worst power failure.
    pub fn stable_page(&self, page: usize) -> Page {
        *self.inner.lock().unwrap().stable[page]
    }

    /// Returns a wrong result of reading a page.
    pub fn corrupted(&self, page: usize, how: Corruption, random: &mut Random) -> Page {
        let inner = self.inner.lock().unwrap();
        match how {
            Corruption::BitFlip => {
                let mut bytes = *inner.visible[page];
                bytes[random.below(BLOCK_BYTES as u64) as usize] ^= 1 << random.below(8);
                bytes
            }
            Corruption::Zeroes => [0; BLOCK_BYTES],
            Corruption::Stale => *inner.before[page],
            Corruption::Misdirected => *inner.visible[random.below(inner.visible.len() as u64) as usize],
        }
    }

    /// Changes the result of reads, now and after a crash.
    pub fn set_page(&self, page: usize, bytes: Page) {
        let inner = &mut *self.inner.lock().unwrap();
        inner.volatile.remove(&page);
        inner.stable[page] = Arc::new(bytes);
        inner.visible[page] = inner.stable[page].clone();
    }

    /// Changes the result of reads until it is changed back, and returns the previous result.
    pub fn show_page(&self, page: usize, bytes: Page) -> Page {
        *std::mem::replace(&mut self.inner.lock().unwrap().visible[page], Arc::new(bytes))
    }
}

impl Inner {
    fn sync_until(&mut self, write: u64) {
        if let Some(zones) = &mut self.zones {
            zones.sync_until(write, &mut self.stable);
        }
        self.volatile.retain(|&page, versions| {
            if let Some(covered) = versions.iter().rposition(|(number, _)| *number <= write) {
                self.stable[page] = versions[covered].1.clone();
                versions.drain(..=covered);
            }
            !versions.is_empty()
        });
    }

    /// Saves the visible pages of a zone before a write.
    fn keep_before(&mut self, zone: u32, offset: u64, length: usize) {
        let first = self.zones.as_ref().map_or(0, |zones| zones.first_page(zone));
        let first = first + offset as usize / BLOCK_BYTES;
        let pages = first..first + length.div_ceil(BLOCK_BYTES);
        self.before[pages.clone()].clone_from_slice(&self.visible[pages]);
    }

    fn operate(&mut self, end: u64) -> io::Result<()> {
        if end > (self.visible.len() * BLOCK_BYTES) as u64 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if self.lives == 0 {
            return Err(io::Error::other("the disk is dead"));
        }
        self.lives -= 1;
        Ok(())
    }
}

impl Disk for FakeDisk {
    fn size(&self) -> u64 {
        match &self.zoned {
            Some(zoned) => zoned.size(),
            None => (self.inner.lock().unwrap().visible.len() * BLOCK_BYTES) as u64,
        }
    }

    fn zoned(&self) -> Option<&ZonedFlash> {
        self.zoned.as_ref()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        if let Some(zoned) = &self.zoned {
            return zoned.read_at(buffer, offset);
        }
        let inner = &mut *self.inner.lock().unwrap();
        inner.operate(offset + buffer.len() as u64)?;
        let first = offset as usize / BLOCK_BYTES;
        for (bytes, page) in buffer.chunks_exact_mut(BLOCK_BYTES).zip(&inner.visible[first..]) {
            bytes.copy_from_slice(&**page);
        }
        Ok(())
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        if let Some(zoned) = &self.zoned {
            return zoned.write_at(buffer, offset);
        }
        let inner = &mut *self.inner.lock().unwrap();
        inner.operate(offset + buffer.len() as u64)?;
        inner.writes += 1;
        for (bytes, page) in buffer.chunks_exact(BLOCK_BYTES).zip(offset as usize / BLOCK_BYTES..) {
            let mut bytes: Page = bytes.try_into().unwrap();
            if let Some(filter) = &inner.filter {
                filter.lock().unwrap()(&mut bytes);
            }
            let bytes = Arc::new(bytes);
            inner.before[page] = std::mem::replace(&mut inner.visible[page], bytes.clone());
            inner.volatile.entry(page).or_default().push((inner.writes, bytes));
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.lock().unwrap().operate(0)?;
        self.sync_until(u64::MAX);
        Ok(())
    }

    /// Zones accept a segment as one write.
    fn write_vectored_at(&self, buffers: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        if let Some(zoned) = &self.zoned {
            return zoned.write_vectored_at(buffers, offset);
        }
        buffers.iter().try_fold(offset, |at, buffer| self.write_at(buffer, at).map(|()| at + buffer.len() as u64))?;
        Ok(())
    }

    fn zero(&self, offset: u64, length: u64, _may_punch_holes: bool) -> io::Result<()> {
        self.write_at(&vec![0; length as usize], offset)
    }

    /// The worst behaviour of a device: discarded bytes read as noise.
    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        if let Some(zoned) = &self.zoned {
            return zoned.discard(offset, length);
        }
        self.write_at(&vec![0xDB; length as usize], offset)
    }
}
