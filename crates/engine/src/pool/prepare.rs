//! Disks that are to be a part of a pool: what is in use or holds something is refused, unless it is to be wiped.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use uuid::Uuid;

use super::CHUNK_BYTES;
use super::error::PoolError;
use super::label::{Label, clear};
use super::metadata::Metadata;
use crate::disk::Disk;
use crate::disk::file::{FileDisk, Options, PageCache};
use crate::flash::read_superblock;
use crate::inventory::{DiskInfo, Locks, Places, examine, same};
use crate::wipe;

/// A smaller disk would be hardly more than its label and its map.
const DISK_BYTES_MIN: u64 = 1 << 20;
/// Looks at a disk, and refuses it if it cannot be a part of a pool. `wipe`: whether what it holds may be lost.
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

/// Refuses what is too small for a disk.
pub fn check_size(disk: &DiskInfo) -> Result<(), PoolError> {
    if disk.size_bytes < DISK_BYTES_MIN {
        return Err(PoolError::TooSmall { path: disk.path.clone(), found: disk.size_bytes });
    }
    Ok(())
}

/// Bytes that a pool of this name has room for on a disk; one that is too small is refused.
pub fn room(disk: &DiskInfo, pool: &str) -> Result<u64, PoolError> {
    check_size(disk)?;
    match Label::new(Uuid::nil(), pool, Uuid::nil(), disk.size_bytes) {
        Some(label) => Ok(u64::from(label.chunks - label.first_chunk()) * CHUNK_BYTES),
        None => Err(PoolError::TooSmall { path: disk.path.clone(), found: disk.size_bytes }),
    }
}

/// Opens a disk that [`check`] has nothing against, and wipes it if it holds something.
pub fn prepare(path: &Path, wipe: bool, direct_io: bool) -> Result<Arc<dyn Disk>, PoolError> {
    check_size(&check(path, wipe)?)?;
    let page_cache = if direct_io { PageCache::AvoidIfPossible } else { PageCache::Use };
    let disk = FileDisk::open(path, Options { read_only: false, page_cache });
    let disk = disk.map_err(|source| PoolError::Open { source })?;
    // Now that no one else can, once more.
    let info = check_contents(path, wipe)?;
    if info.refused.is_some() {
        clear(&disk).map_err(|error| PoolError::Disk { path: path.display().to_string(), error })?;
    }
    // Where the file system is full, what is there can still be served.
    let label = Label::new(Uuid::nil(), "", Uuid::nil(), info.size_bytes);
    let map_end = label.map_or(0, |label| u64::from(label.first_chunk()) * CHUNK_BYTES);
    disk.set_aside(map_end).map_err(|source| PoolError::Open { source })?;
    Ok(Arc::new(disk))
}

/// Looks at the disks that a pool of this name is to be made of, and refuses them if it cannot be; those in `wipe` may hold something. Returns
/// what each is, and bytes that the pool has room for on it.
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

/// Makes a pool of disks; those in `wipe` may hold something.
pub fn create(name: &str, paths: &[PathBuf], wipe: &[PathBuf]) -> Result<Metadata, PoolError> {
    // Nothing is wiped before all are known to do.
    check_all(name, paths, wipe)?;
    let disks = paths.iter().map(|path| prepare(path, wipe.contains(path), true)).collect::<Result<_, _>>()?;
    Metadata::create(name, disks)
}

/// Makes disks as blank again as they were before they became a pool's, which is closed now; others are left as they are. Where one is still
/// being let go of, that is awaited.
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
    // Those that can be are, whatever becomes of another.
    let failures: Vec<_> = paths.iter().filter_map(failed).collect();
    failures.into_iter().next().map_or(Ok(()), Err)
}

/// Makes a flash blank that holds the cache of a pool, which is closed now; others, and what is missing, are left as they are.
pub fn unmake_flash(pool: Uuid, flash: Option<&Path>) -> Result<(), PoolError> {
    let Some(path) = flash.filter(|path| path.exists()) else { return Ok(()) };
    let failed = |error| PoolError::Disk { path: path.display().to_string(), error };
    let disk = FileDisk::open(path, Options { read_only: false, page_cache: PageCache::Use }).map_err(failed)?;
    match read_superblock(&disk) {
        Ok(superblock) if superblock.backend == pool.into_bytes() => wipe::clear(&disk).map_err(failed),
        _ => Ok(()),
    }
}
