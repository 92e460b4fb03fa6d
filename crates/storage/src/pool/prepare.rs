//! Checks of disks before they join a pool. Disks that are in use are refused, and so are disks with content unless
//! they may be wiped.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use uuid::Uuid;

use super::CHUNK_BYTES;
use super::error::PoolError;
use super::label::{Label, clear};
use super::metadata::Metadata;
use crate::disk::Disk;
use crate::disk::file::{FileDisk, Options, PageCache};
use crate::disk::inventory::{DiskInfo, Locks, Places, examine, same};
use crate::flash::read_superblock;
use crate::journal;
use crate::offline::wipe;

/// Minimum size of a disk. A smaller one would hold little more than its label and the map.
const DISK_BYTES_MIN: u64 = 1 << 20;
/// Examines a disk, and refuses it if it cannot join a pool. `wipe` allows to erase its contents.
pub fn check(path: &Path, wipe: bool) -> Result<DiskInfo, PoolError> {
    let info = check_contents(path, wipe)?;
    match Locks::read(&Places::default()).holder(path) {
        Some(holder) => Err(PoolError::NotFree { path: info.path, what: holder.to_string(), can_be_wiped: false }),
        None => Ok(info),
    }
}

fn check_contents(path: &Path, wipe: bool) -> Result<DiskInfo, PoolError> {
    let info = examine(&Places::default(), path).map_err(|source| PoolError::Open { source })?;
    match &info.refused {
        Some(_) if wipe && info.can_be_wiped => Ok(info),
        Some(what) => {
            let (path, what) = (info.path.clone(), what.clone());
            Err(PoolError::NotFree { path, what, can_be_wiped: info.can_be_wiped })
        }
        None => Ok(info),
    }
}

/// Refuses a disk that is too small.
pub fn check_size(disk: &DiskInfo) -> Result<(), PoolError> {
    if disk.size_bytes < DISK_BYTES_MIN {
        return Err(PoolError::TooSmall { path: disk.path.clone(), found: disk.size_bytes });
    }
    Ok(())
}

/// Returns the bytes for data on a disk of the pool `pool`. Refuses a disk that is too small.
pub fn room(disk: &DiskInfo, pool: &str) -> Result<u64, PoolError> {
    check_size(disk)?;
    match Label::new(Uuid::nil(), pool, Uuid::nil(), disk.size_bytes) {
        Some(label) => Ok(u64::from(label.chunks - label.first_chunk()) * CHUNK_BYTES),
        None => Err(PoolError::TooSmall { path: disk.path.clone(), found: disk.size_bytes }),
    }
}

/// Opens a disk that passes [`check`], and wipes it if it has content.
pub fn prepare(path: &Path, wipe: bool, direct_io: bool) -> Result<Arc<dyn Disk>, PoolError> {
    check_size(&check(path, wipe)?)?;
    let page_cache = if direct_io { PageCache::AvoidIfPossible } else { PageCache::Use };
    let disk = FileDisk::open(path, Options { read_only: false, page_cache });
    let disk = disk.map_err(|source| PoolError::Open { source })?;
    // Checked again now that the disk is locked.
    let info = check_contents(path, wipe)?;
    if info.refused.is_some() {
        clear(&disk).map_err(|error| PoolError::Disk { path: path.display().to_string(), error })?;
    }
    // On a full file system, the existing data can still be served.
    let label = Label::new(Uuid::nil(), "", Uuid::nil(), info.size_bytes);
    let map_end = label.map_or(0, |label| u64::from(label.first_chunk()) * CHUNK_BYTES);
    disk.set_aside(map_end).map_err(|source| PoolError::Open { source })?;
    Ok(Arc::new(disk))
}

/// Examines the disks of a new pool, and refuses them if they do not fit. Those in `wipe` may have content. Returns the
/// disks with their bytes for data.
pub fn check_all(name: &str, paths: &[PathBuf], wipe: &[PathBuf]) -> Result<Vec<(DiskInfo, u64)>, PoolError> {
    super::metadata::check_name(name)?;
    let files: Vec<_> = paths.iter().map(|path| path.canonicalize().unwrap_or_else(|_| path.clone())).collect();
    for (at, second) in files.iter().enumerate() {
        if let Some(first) = files[..at].iter().position(|first| same(first, second)) {
            let [first, second] = [first, at].map(|at| paths[at].display().to_string());
            return Err(PoolError::Twice { first, second });
        }
    }
    let look = |path: &PathBuf| {
        let info = check(path, wipe.contains(path))?;
        let room = room(&info, name)?;
        Ok((info, room))
    };
    paths.iter().map(look).collect()
}

/// Creates a pool. The disks in `wipe` may have content.
pub fn create(name: &str, paths: &[PathBuf], wipe: &[PathBuf]) -> Result<Metadata, PoolError> {
    // All disks are checked before the first is wiped.
    check_all(name, paths, wipe)?;
    let disks = paths.iter().map(|path| prepare(path, wipe.contains(path), true)).collect::<Result<_, _>>()?;
    Metadata::create(name, disks)
}

/// Blanks the disks of a pool that is closed; disks of others are left unchanged. Waits for a disk that is still being
/// closed.
pub fn unmake(pool: Uuid, paths: &[PathBuf]) -> Result<(), PoolError> {
    let blank = |path: &PathBuf| {
        let disk = FileDisk::open(path, Options { read_only: false, page_cache: PageCache::AvoidIfPossible })?;
        match Label::read(&disk)? {
            Ok(label) if label.pool == pool => clear(&disk),
            _ => Ok(()),
        }
    };
    let failed = |path: &PathBuf| {
        let error = blank(path).err()?;
        Some(PoolError::Disk { path: path.display().to_string(), error })
    };
    // A failure does not stop the others.
    let failures: Vec<_> = paths.iter().filter_map(failed).collect();
    failures.into_iter().next().map_or(Ok(()), Err)
}

/// Blanks the flash of a pool that is closed. A flash that is missing, or of another backend, is left unchanged.
pub fn unmake_flash(pool: Uuid, flash: Option<&Path>) -> Result<(), PoolError> {
    let Some(path) = flash.filter(|path| path.exists()) else { return Ok(()) };
    let failed = |error| PoolError::Disk { path: path.display().to_string(), error };
    let disk = FileDisk::open(path, Options { read_only: false, page_cache: PageCache::Use }).map_err(failed)?;
    match read_superblock(&disk) {
        Ok(superblock) if superblock.backend == pool.into_bytes() => wipe::clear(&disk).map_err(failed),
        _ => Ok(()),
    }
}

/// Blanks the journal of a pool that is closed. A journal that is missing, or of another backend, is left unchanged.
pub fn unmake_journal(pool: Uuid, journal: Option<&Path>) -> Result<(), PoolError> {
    let Some(path) = journal.filter(|path| path.exists()) else { return Ok(()) };
    let disk = FileDisk::open(path, Options { read_only: false, page_cache: PageCache::Use });
    let blank = disk.and_then(|disk| journal::clear(&disk, pool.into_bytes()));
    blank.map_err(|error| PoolError::Disk { path: path.display().to_string(), error })
}
