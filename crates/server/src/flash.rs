//! A flash device as a cache's home: formatting it, opening it, and recovering what it holds.

use std::io;

use flashwise_core::format::{BLOCK_BYTES, Geometry, PageError, SUPERBLOCK_COPIES, Superblock};
use flashwise_core::recovery::{Known, Recovered, RecoveryError, UnitScan, recover};

use crate::disk::Disk;
use crate::memory::Memory;

/// Why a flash device cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum FlashError {
    #[error("the flash device cannot be read or written: {0}")]
    Io(#[from] io::Error),
    #[error("no superblock of a cache: {0}")]
    NoSuperblock(PageError),
    #[error("the superblock is damaged in both of its copies: {0}; the other: {1}")]
    Damaged(PageError, PageError),
    #[error(
        "the cache has {found} bytes of flash by its superblock, the device has {device}; \
         it was cut short or is another device"
    )]
    TooSmall { found: u64, device: u64 },
    #[error(transparent)]
    Recovery(#[from] RecoveryError<io::Error>),
}

impl FlashError {
    /// Whether trying again cannot mend it: it is what the device holds, not that it cannot be read now.
    pub fn is_permanent(&self) -> bool {
        !matches!(self, FlashError::Io(_) | FlashError::Recovery(RecoveryError::Read(_)))
    }
}

/// Both copies of the superblock.
pub fn read_copies(flash: &dyn Disk) -> io::Result<Vec<Result<Superblock, PageError>>> {
    let mut pages = Memory::new(SUPERBLOCK_COPIES as usize);
    flash.read_at(pages.bytes_mut(), 0)?;
    Ok((0..SUPERBLOCK_COPIES).map(|copy| Superblock::decode(pages.page(copy))).collect())
}

/// Reads the superblock.
pub fn read_superblock(flash: &dyn Disk) -> Result<Superblock, FlashError> {
    let copies = read_copies(flash)?;
    // A newer version in either copy means that a newer program was here.
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
        (None, [Err(PageError::Magic), Err(PageError::Magic)]) => Err(FlashError::NoSuperblock(PageError::Magic)),
        (None, [Err(first), Err(second)]) => Err(FlashError::Damaged(*first, *second)),
        (None, _) => unreachable!("there are two copies"),
    }
}

/// Whether the place of the superblock is all zeroes, so that nothing is lost by formatting.
pub fn is_blank(flash: &dyn Disk) -> io::Result<bool> {
    let mut pages = Memory::new(SUPERBLOCK_COPIES as usize);
    flash.read_at(pages.bytes_mut(), 0)?;
    Ok(pages.bytes_mut().iter().all(|&byte| byte == 0))
}

/// Writes the superblock in the place of its older copy, durably, and counts its generation up.
pub fn write_superblock(flash: &dyn Disk, superblock: &mut Superblock) -> io::Result<()> {
    superblock.generation += 1;
    let copy = superblock.generation % u64::from(SUPERBLOCK_COPIES);
    let mut page = Memory::new(1);
    *page.page_mut(0) = superblock.encode();
    flash.write_at(page.bytes_mut(), copy * BLOCK_BYTES as u64)?;
    flash.sync()
}

/// Makes an empty cache of a flash device: no unit looks as if it belonged to the log.
///
/// Its superblock counts on from what is there, so that the copy that held until now is the last to go: who is interrupted finds either
/// the old cache, as it was left last, or the new one.
pub fn format(flash: &dyn Disk, superblock: &mut Superblock) -> io::Result<()> {
    let copies = read_copies(flash)?;
    superblock.generation = copies.iter().flatten().map(|copy| copy.generation).max().unwrap_or(0);
    // Both copies, so that no older one is left; the log's pages belong to another cache's UUID, if to any.
    write_superblock(flash, superblock)?;
    write_superblock(flash, superblock)
}

/// First 8 bytes of a cache's UUID, as the log's pages have them.
pub fn cache_tag(superblock: &Superblock) -> u64 {
    Known::of(superblock).cache
}

/// Reads the metadata of every unit, on `threads` threads; `progress` is told of units.
pub fn scan(
    flash: &dyn Disk,
    geometry: Geometry,
    cache: u64,
    threads: u32,
    progress: &(dyn Fn(u64) + Sync),
) -> io::Result<Vec<UnitScan>> {
    let scan_range = |units: std::ops::Range<u32>| -> io::Result<Vec<UnitScan>> {
        let mut first = Memory::new(1);
        let mut footer = Memory::new(geometry.footer_pages() as usize);
        units
            .map(|unit| {
                flash.read_at(first.bytes_mut(), u64::from(geometry.slot(unit, 0)) * BLOCK_BYTES as u64)?;
                let at = geometry.slot(unit, geometry.segments_end());
                flash.read_at(footer.bytes_mut(), u64::from(at) * BLOCK_BYTES as u64)?;
                progress(1);
                Ok(UnitScan::new(geometry, cache, unit, first.page(0), footer.bytes_mut()))
            })
            .collect()
    };
    if threads <= 1 {
        return scan_range(1..geometry.units);
    }
    let share = geometry.log_units().div_ceil(threads);
    let ranges = (0..threads).map(|thread| {
        let start = (1 + thread * share).min(geometry.units);
        start..(start + share).min(geometry.units)
    });
    let parts: Vec<io::Result<Vec<UnitScan>>> = std::thread::scope(|scope| {
        let scan_range = &scan_range;
        let threads: Vec<_> = ranges.map(|range| scope.spawn(move || scan_range(range))).collect();
        threads.into_iter().map(|thread| thread.join().expect("scanning does not panic")).collect()
    });
    let mut scans = Vec::new();
    for part in parts {
        scans.extend(part?);
    }
    Ok(scans)
}

/// Threads that read a cache at its start: enough to keep a device busy.
pub const SCAN_THREADS: u32 = 8;

/// The log of a cache that was just formatted: no unit was begun, so none is read.
pub fn fresh_log(superblock: &Superblock) -> Result<Recovered, FlashError> {
    Ok(recover(superblock.geometry, Known::of(superblock), &[], |_, _| Ok(()))?)
}

/// Finds out what the log of a cache holds. Writes nothing: before anything is, [`settle`] is called.
pub fn recover_log(
    flash: &dyn Disk,
    superblock: &Superblock,
    threads: u32,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Recovered, FlashError> {
    let geometry = superblock.geometry;
    let scans = scan(flash, geometry, cache_tag(superblock), threads, progress)?;
    let mut unit_bytes = Memory::new(geometry.unit_pages as usize);
    let recovered = recover(geometry, Known::of(superblock), &scans, |unit, bytes: &mut [u8]| {
        let offset = u64::from(geometry.slot(unit, 0)) * BLOCK_BYTES as u64;
        flash.read_at(unit_bytes.bytes_mut(), offset)?;
        bytes.copy_from_slice(unit_bytes.bytes_mut());
        Ok(())
    })?;
    Ok(recovered)
}

/// Makes durable what was recovered, and wipes what an interrupted run left behind the end of the log.
pub fn settle(flash: &dyn Disk, recovered: &Recovered) -> io::Result<()> {
    // What was read must not be lost by a later crash: it may be in the device's volatile cache only.
    flash.sync()?;
    if !recovered.leftovers.is_empty() {
        let mut empty = Memory::new(1);
        for &page in &recovered.leftovers {
            flash.write_at(empty.bytes_mut(), u64::from(page) * BLOCK_BYTES as u64)?;
        }
        flash.sync()?;
    }
    Ok(())
}
