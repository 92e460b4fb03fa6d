//! A volume's devices: opened, and paired by the superblock on the flash.

use std::io;
use std::sync::Arc;

use flashwise_core::format::{Geometry, State, Superblock};
use uuid::Uuid;

use super::{BLOCK, VolumeConfig, VolumeError};
use crate::disk::Disk;
use crate::disk::file::{Allocation, FileDisk, Options, PageCache};
use crate::disk::identity::Identity;
use crate::flash::{self, FlashError, read_superblock};

fn page_cache(config: &VolumeConfig) -> PageCache {
    if config.direct_io { PageCache::AvoidIfPossible } else { PageCache::Use }
}

pub(super) fn open_backend(config: &VolumeConfig) -> Result<Arc<FileDisk>, VolumeError> {
    let options = Options { read_only: false, page_cache: page_cache(config) };
    let volume = || config.name.clone();
    let disk =
        FileDisk::open(&config.backend, options).map_err(|error| VolumeError::Backend { volume: volume(), error })?;
    let expected = config.size_bytes.unwrap_or(BLOCK);
    if disk.size() < expected {
        let path = config.backend.display().to_string();
        return Err(VolumeError::BackendTooSmall { volume: volume(), path, found: disk.size(), expected });
    }
    Ok(Arc::new(disk))
}

/// A remark about what of a backend of `found` bytes is not part of the volume because it makes no whole block.
pub(super) fn tail_note(config: &VolumeConfig, found: u64) -> Option<String> {
    let tail = found % BLOCK;
    (tail > 0 && config.size_bytes.is_none()).then(|| {
        format!(
            "{}: its size of {found} bytes is no multiple of {BLOCK}; its last {tail} bytes are not part of the volume",
            config.backend.display()
        )
    })
}

/// Opens the flash, or makes its file; `true`: it was just made.
pub(super) fn open_flash(config: &VolumeConfig) -> Result<(Arc<FileDisk>, bool), VolumeError> {
    let options = Options { read_only: false, page_cache: page_cache(config) };
    let error = |error| VolumeError::Flash { volume: config.name.clone(), error };
    if !config.flash.exists() {
        let Some(size) = config.flash_size_bytes else {
            let missing = format!("{}: does not exist; give its size to have it made", config.flash.display());
            return Err(error(io::Error::new(io::ErrorKind::NotFound, missing)));
        };
        check_flash_size(config, size)?;
        let disk = FileDisk::create(&config.flash, size, Allocation::Full, options).map_err(error)?;
        return Ok((Arc::new(disk), true));
    }
    let disk = FileDisk::open(&config.flash, options).map_err(error)?;
    check_flash_size(config, disk.size().min(config.flash_size_bytes.unwrap_or(u64::MAX)))?;
    if let Some(expected) = config.flash_size_bytes
        && disk.size() < expected
    {
        let message =
            format!("{}: it has {} bytes, the configuration says {expected}", config.flash.display(), disk.size());
        return Err(error(io::Error::new(io::ErrorKind::InvalidInput, message)));
    }
    Ok((Arc::new(disk), false))
}

fn check_flash_size(config: &VolumeConfig, found: u64) -> Result<(), VolumeError> {
    let unit = config.erase_unit_bytes;
    let expected = unit * u64::from(Geometry::UNITS_MIN);
    if found >= expected {
        return Ok(());
    }
    let (volume, path) = (config.name.clone(), config.flash.display().to_string());
    Err(VolumeError::FlashTooSmall { volume, path, found, expected, unit })
}

fn geometry(config: &VolumeConfig, flash_bytes: u64) -> Geometry {
    let unit = config.erase_unit_bytes;
    let bytes = config.flash_size_bytes.unwrap_or(flash_bytes);
    Geometry { units: u32::try_from(bytes / unit).unwrap_or(u32::MAX), unit_pages: (unit / BLOCK) as u32 }
}

pub(super) fn new_superblock(
    config: &VolumeConfig,
    flash: &FileDisk,
    identity: &Identity,
    size_bytes: u64,
) -> Result<Superblock, VolumeError> {
    let mut superblock = Superblock {
        generation: 0,
        cache: Uuid::new_v4().into_bytes(),
        backend: identity.id,
        geometry: geometry(config, flash.size()),
        volume_bytes: size_bytes,
        state: State::InUse,
    };
    flash::format(flash, &mut superblock).map_err(|error| VolumeError::Flash { volume: config.name.clone(), error })?;
    Ok(superblock)
}

/// The superblock of a flash that was used before; `None` if it is blank or was detached.
pub(super) fn existing_superblock(
    config: &VolumeConfig,
    flash: &FileDisk,
    identity: &Identity,
    size_bytes: u64,
) -> Result<Option<Superblock>, VolumeError> {
    let (volume, path) = (config.name.clone(), config.flash.display().to_string());
    let superblock = match read_superblock(flash) {
        Ok(superblock) => superblock,
        Err(FlashError::NoSuperblock(flashwise_core::format::PageError::Magic)) => {
            return match flash::is_blank(flash) {
                Ok(true) => Ok(None),
                Ok(false) => Err(VolumeError::Foreign { volume, path }),
                Err(error) => Err(VolumeError::Flash { volume, error }),
            };
        }
        Err(error) => return Err(VolumeError::Cache { volume, path, error }),
    };
    if superblock.state == State::Detached {
        return Ok(None);
    }
    if superblock.backend != identity.id {
        return Err(VolumeError::OtherBackend {
            volume,
            path,
            backend: config.backend.display().to_string(),
            found: Uuid::from_bytes(superblock.backend),
            expected: Uuid::from_bytes(identity.id),
            what: identity.description.clone(),
        });
    }
    let refuse = |what, found: u64, expected: u64| {
        let (volume, path) = (volume.clone(), path.clone());
        let (found, expected) = (format!("{found} bytes"), format!("{expected} bytes"));
        Err(VolumeError::Geometry { volume, path, what, found, expected })
    };
    let unit_bytes = u64::from(superblock.geometry.unit_pages) * BLOCK;
    if unit_bytes != config.erase_unit_bytes {
        return refuse("erase unit", unit_bytes, config.erase_unit_bytes);
    }
    let expected = geometry(config, flash.size());
    if superblock.geometry != expected {
        let bytes = |geometry: Geometry| u64::from(geometry.pages()) * BLOCK;
        return refuse("flash size", bytes(superblock.geometry), bytes(expected));
    }
    if superblock.volume_bytes > size_bytes {
        return refuse("volume size", superblock.volume_bytes, size_bytes);
    }
    Ok(Some(superblock))
}
