//! A flash device as the storage of a cache: formats, opens and recovers it.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use flashwise_core::format::{BLOCK_BYTES, Geometry, Page, PageError, SUPERBLOCK_COPIES, Superblock};
use flashwise_core::recovery::{Footer, Known, Recovered, RecoveryError, UnitScan, Units, footer_of, recover};
use flashwise_core::wlfc::ConfigError;
use flashwise_core::wlfc::scan::ScanError;
use flashwise_engine::memory::Memory;

use crate::disk::Disk;
use crate::disk::zoned::{Use, ZonedFlash};

/// Why a flash device cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum FlashError {
    #[error("the flash device cannot be read or written: {0}")]
    Io(io::Error),
    #[error("no superblock of a cache: {0}")]
    NoSuperblock(PageError),
    #[error("the superblock is damaged in both of its copies: {0}; the other: {1}{salvage}", salvage = SALVAGE)]
    Damaged(PageError, PageError),
    #[error(
        "the cache has {found} bytes of flash by its superblock, the device has {device}; \
         it was truncated or is another device"
    )]
    TooSmall { found: u64, device: u64 },
    #[error("{0}{salvage}", salvage = if matches!(.0, ScanError::Read(_)) { "" } else { SALVAGE })]
    Buckets(ScanError<io::Error>),
    #[error("its buckets make no cache: {0}")]
    Config(ConfigError),
    #[error("{0}{salvage}", salvage = if matches!(.0, RecoveryError::Read(_)) { "" } else { SALVAGE })]
    Recovery(RecoveryError<io::Error>),
}

// The messages include those of the causes.
impl From<io::Error> for FlashError {
    fn from(error: io::Error) -> FlashError {
        FlashError::Io(error)
    }
}

impl From<ScanError<io::Error>> for FlashError {
    fn from(error: ScanError<io::Error>) -> FlashError {
        FlashError::Buckets(error)
    }
}

impl From<RecoveryError<io::Error>> for FlashError {
    fn from(error: RecoveryError<io::Error>) -> FlashError {
        FlashError::Recovery(error)
    }
}

/// A hint for damaged caches.
const SALVAGE: &str = "; 'flashwise detach --salvage' writes back certain blocks and lists the rest";

impl FlashError {
    /// True if the contents are no cache, or cannot be read as one.
    pub fn is_of_contents(&self) -> bool {
        matches!(self, FlashError::Recovery(_) | FlashError::Buckets(_))
    }

    /// True if a retry cannot succeed: the contents are wrong, not just unreadable at present.
    pub fn is_permanent(&self) -> bool {
        !matches!(
            self,
            FlashError::Io(_) | FlashError::Recovery(RecoveryError::Read(_)) | FlashError::Buckets(ScanError::Read(_))
        )
    }
}

/// Reads the pages of both copies of the superblock. On a zoned flash, they are the last ones written, at most two.
pub fn superblock_pages(flash: &dyn Disk) -> io::Result<Vec<Page>> {
    if let Some(zoned) = flash.zoned() {
        return zoned.superblocks();
    }
    let mut pages = Memory::new(SUPERBLOCK_COPIES as usize);
    flash.read_at(pages.bytes_mut(), 0)?;
    Ok((0..SUPERBLOCK_COPIES).map(|copy| *pages.page(copy)).collect())
}

/// Decodes both copies of the superblock from [`superblock_pages`].
pub fn read_copies(flash: &dyn Disk) -> io::Result<Vec<Result<Superblock, PageError>>> {
    Ok(superblock_pages(flash)?.iter().map(Superblock::decode).collect())
}

/// Reads the superblock.
pub fn read_superblock(flash: &dyn Disk) -> Result<Superblock, FlashError> {
    let copies = read_copies(flash)?;
    // A newer version in either copy means that a newer program wrote it.
    if let Some(Err(newer @ PageError::Version { .. })) =
        copies.iter().find(|copy| matches!(copy, Err(PageError::Version { .. })))
    {
        return Err(FlashError::NoSuperblock(*newer));
    }
    let newest = copies.iter().flatten().max_by_key(|superblock| superblock.generation);
    match (newest, &copies[..]) {
        (Some(newest), _) => {
            let geometry = newest.geometry;
            let found = u64::from(geometry.pages()) * BLOCK_BYTES as u64;
            if found > flash.size() {
                return Err(FlashError::TooSmall { found, device: flash.size() });
            }
            Ok(newest.clone())
        }
        (None, copies) if copies.iter().all(|copy| matches!(copy, Err(PageError::Magic))) => {
            Err(FlashError::NoSuperblock(PageError::Magic))
        }
        (None, [Err(first), .., Err(second)] | [Err(first @ second)]) => Err(FlashError::Damaged(*first, *second)),
        (None, _) => unreachable!("a copy is whole or not"),
    }
}

/// True if both copies of the superblock are zeroes, so formatting loses nothing.
pub fn is_blank(flash: &dyn Disk) -> io::Result<bool> {
    Ok(superblock_pages(flash)?.iter().flatten().all(|&byte| byte == 0))
}

/// Increments the generation of the superblock and writes it durably, over the older copy or, on a zoned flash, after
/// the last one.
pub fn write_superblock(flash: &dyn Disk, superblock: &mut Superblock) -> io::Result<()> {
    superblock.generation += 1;
    if let Some(zoned) = flash.zoned() {
        zoned.append_superblock(superblock)?;
        return flash.sync();
    }
    let copy = superblock.generation % u64::from(SUPERBLOCK_COPIES);
    let mut page = Memory::new(1);
    *page.page_mut(0) = superblock.encode();
    flash.write_at(page.bytes_mut(), copy * BLOCK_BYTES as u64)?;
    flash.sync()
}

/// Formats a flash device as an empty cache, without any unit that belongs to the log.
///
/// The generation continues from the old superblock, whose newest copy is replaced last. If this is interrupted, the
/// device has either the old cache or the new one.
pub fn format(flash: &dyn Disk, superblock: &mut Superblock) -> io::Result<()> {
    if let Some(failed) = flash.zoned().map(ZonedFlash::failed_zones)
        && !failed.is_empty()
    {
        let path = flash.description();
        return Err(io::Error::other(format!(
            "{path}: zones {failed:?} have failed; a new cache needs a device without failed zones"
        )));
    }
    superblock.generation = match flash.zoned() {
        // The old ones stay in a zone that is full, and must be older.
        Some(zoned) => zoned.last_generation()?,
        None => read_copies(flash)?.iter().flatten().map(|copy| copy.generation).max().unwrap_or(0),
    };
    // Replaces both copies, so that no old one remains. Existing pages of the log have the UUID of another cache.
    write_superblock(flash, superblock)?;
    write_superblock(flash, superblock)?;
    if let Some(zoned) = flash.zoned() {
        zoned.prepare(|_| Use::None)?;
        flash.sync()?;
    }
    Ok(())
}

/// The first 8 bytes of a cache's UUID, which identify the pages of its log.
pub fn cache_tag(superblock: &Superblock) -> u64 {
    Known::of(superblock).cache
}

/// Receives the number of erase units read, and their total.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) + Sync);

/// Number of concurrent transfers at the start of a cache, enough to keep a device busy.
pub const SCAN_THREADS: u32 = 32;
/// Pages of the units in one batch of footers.
const BATCH_PAGES: u32 = 8192;

/// The log on a flash device, read by several threads.
pub(crate) struct FlashUnits<'a> {
    flash: &'a dyn Disk,
    geometry: Geometry,
    cache: u64,
    threads: u32,
    progress: Progress<'a>,
    /// Number of units read so far, and the total as far as known.
    done: AtomicU64,
    all: AtomicU64,
}

impl<'a> FlashUnits<'a> {
    /// Creates the log for one thread, without progress.
    pub(crate) fn of(flash: &'a dyn Disk, superblock: &Superblock) -> Self {
        let (geometry, cache) = (superblock.geometry, cache_tag(superblock));
        let (done, all) = (AtomicU64::new(0), AtomicU64::new(0));
        FlashUnits { flash, geometry, cache, threads: 1, progress: &|_, _| (), done, all }
    }

    fn tell(&self) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        (self.progress)(done, self.all.load(Ordering::Relaxed));
    }

    fn read(&self, unit: u32, page: u32, bytes: &mut [u8]) -> io::Result<()> {
        self.flash.read_at(bytes, u64::from(self.geometry.slot(unit, page)) * BLOCK_BYTES as u64)
    }

    /// Reads the first page and the footer of every unit.
    fn scan(&self) -> io::Result<Vec<UnitScan>> {
        let share = self.geometry.log_units().div_ceil(self.threads);
        let ranges = (0..self.threads).map(|thread| {
            let start = (1 + thread * share).min(self.geometry.units);
            start..(start + share).min(self.geometry.units)
        });
        let ranges: Vec<Range<u32>> = ranges.filter(|range| !range.is_empty()).collect();
        if let [range] = &ranges[..] {
            return self.scan_range(range.clone());
        }
        let parts: Vec<io::Result<Vec<UnitScan>>> = std::thread::scope(|scope| {
            let threads: Vec<_> = ranges.into_iter().map(|range| scope.spawn(|| self.scan_range(range))).collect();
            threads.into_iter().map(|thread| thread.join().expect("scanning does not panic")).collect()
        });
        let parts: Vec<Vec<UnitScan>> = parts.into_iter().collect::<io::Result<_>>()?;
        Ok(parts.concat())
    }

    /// One transfer reads the footer of a unit and the first page of the next, which are adjacent.
    fn scan_range(&self, units: Range<u32>) -> io::Result<Vec<UnitScan>> {
        let footer_bytes = self.geometry.footer_pages() as usize * BLOCK_BYTES;
        let mut first = Memory::new(1);
        let mut pages = Memory::new(self.geometry.footer_pages() as usize + 1);
        let mut scans = Vec::new();
        self.read(units.start, 0, first.bytes_mut())?;
        for unit in units.clone() {
            let is_last = unit + 1 == units.end;
            let length = footer_bytes + if is_last { 0 } else { BLOCK_BYTES };
            self.read(unit, self.geometry.segments_end(), &mut pages.bytes_mut()[..length])?;
            let (footer, next) = pages.bytes_mut().split_at(footer_bytes);
            let scan = UnitScan::new(self.geometry, self.cache, unit, first.page(0), footer);
            if scan.was_begun() {
                scans.push(scan);
            }
            first.bytes_mut().copy_from_slice(next);
            self.tell();
        }
        Ok(scans)
    }

    fn read_footer(&self, unit: u32, pages: &mut Memory) -> io::Result<Option<Footer>> {
        self.read(unit, self.geometry.segments_end(), pages.bytes_mut())?;
        self.tell();
        Ok(footer_of(self.geometry, self.cache, unit, pages.bytes_mut()))
    }
}

impl Units for FlashUnits<'_> {
    type Error = io::Error;

    fn read_pages(&self, unit: u32, page: u32, bytes: &mut [u8]) -> io::Result<()> {
        let mut pages = Memory::new(bytes.len() / BLOCK_BYTES);
        self.read(unit, page, pages.bytes_mut())?;
        bytes.copy_from_slice(pages.bytes_mut());
        Ok(())
    }

    fn written_pages(&self, unit: u32) -> io::Result<u32> {
        Ok(self.flash.zoned().map_or(self.geometry.unit_pages, |zoned| zoned.written_pages(unit)))
    }

    /// Threads read batches of units in turn, each one batch ahead.
    fn read_footers(
        &self,
        units: &[u32],
        each: &mut dyn FnMut(Option<Footer>) -> Result<(), RecoveryError<io::Error>>,
    ) -> Result<(), RecoveryError<io::Error>> {
        self.all.fetch_add(units.len() as u64, Ordering::Relaxed);
        let footer = || Memory::new(self.geometry.footer_pages() as usize);
        let share = units.len().div_ceil(self.threads as usize);
        let batches = units.chunks(share.clamp(1, (BATCH_PAGES / self.geometry.unit_pages).max(1) as usize));
        let batches: Vec<&[u32]> = batches.collect();
        let threads = batches.len().min(self.threads as usize);
        if threads <= 1 {
            let mut pages = footer();
            return units
                .iter()
                .try_for_each(|&unit| each(self.read_footer(unit, &mut pages).map_err(RecoveryError::Read)?));
        }
        std::thread::scope(|scope| {
            let batches = &batches;
            let read = |thread: usize| {
                let (sender, receiver) = mpsc::sync_channel(0);
                scope.spawn(move || {
                    let mut pages = footer();
                    for batch in batches.iter().skip(thread).step_by(threads) {
                        let footers = batch.iter().map(|&unit| self.read_footer(unit, &mut pages));
                        // After an error, the receiver is gone.
                        if sender.send(footers.collect::<io::Result<Vec<_>>>()).is_err() {
                            break;
                        }
                    }
                });
                receiver
            };
            let receivers: Vec<mpsc::Receiver<io::Result<Vec<Option<Footer>>>>> = (0..threads).map(read).collect();
            (0..batches.len()).try_for_each(|batch| {
                let footers = receivers[batch % threads].recv().expect("each batch is read or fails");
                footers.map_err(RecoveryError::Read)?.into_iter().try_for_each(&mut *each)
            })
        })
    }
}

/// Determines the contents of a cache's log. Writes nothing; [`settle`] must be called before any write.
pub fn recover_log(
    flash: &dyn Disk,
    superblock: &Superblock,
    threads: u32,
    progress: Progress<'_>,
) -> Result<Recovered, FlashError> {
    let geometry = superblock.geometry;
    let all = AtomicU64::new(geometry.log_units().into());
    let units = FlashUnits { threads, progress, all, ..FlashUnits::of(flash, superblock) };
    Ok(recover(geometry, Known::of(superblock), units.scan()?, &units)?)
}

/// Makes the recovered log durable, and erases leftovers of an interrupted run after its end. On a zoned flash, resets
/// all other zones.
pub fn settle(flash: &dyn Disk, recovered: &Recovered) -> io::Result<()> {
    // The data that was read may still be in the device's volatile cache.
    flash.sync()?;
    if let Some(zoned) = flash.zoned() {
        let log = &recovered.log;
        let used: HashMap<u32, Use> = log
            .sequences()
            .map(|sequence| {
                (log.geometry().unit_of(sequence), if log.is_head(sequence) { Use::Head } else { Use::Log })
            })
            .collect();
        zoned.prepare(|unit| used.get(&unit).copied().unwrap_or(Use::None))?;
        return flash.sync();
    }
    if !recovered.leftovers.is_empty() {
        let mut empty = Memory::new(1);
        for &page in &recovered.leftovers {
            flash.write_at(empty.bytes_mut(), u64::from(page) * BLOCK_BYTES as u64)?;
        }
        flash.sync()?;
    }
    Ok(())
}
