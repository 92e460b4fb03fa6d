//! A volume's devices: opening, checks, and the expected pair of flash and backend.

use std::io;
use std::path::Path;
use std::sync::Arc;

use flashwise_core::cache::{Mode, WriteBackOrder};
use flashwise_core::format::{Geometry, PageError};
use flashwise_core::journal::BYTES_DEFAULT;
use uuid::Uuid;

use super::backend_state::without_flash;
use super::config::OpenDisk;
use super::{BLOCK, VolumeConfig, VolumeError};
use crate::attach::{
    AttachError, BackendSide, Pairing, Record, RecordedJournal, Refusal, VOLUME_SIZE, Wanted, read_or_damage,
};
use crate::disk::Disk;
use crate::disk::file::{Allocation, FileDisk, Options, PageCache};
use crate::disk::identity::Identity;
use crate::disk::inventory::{DiskInfo, JOURNAL, Places, Role, Signature, examine};
use crate::disk::zoned::file::ZoneFile;
use crate::disk::zoned::{ZonedFlash, open_flash as open_any_flash};
use crate::flash::{FlashError, SCAN_THREADS, is_blank};
use crate::journal::{BYTES_MIN, JournalError};
use crate::time;

fn page_cache(config: &VolumeConfig) -> PageCache {
    if config.direct_io { PageCache::AvoidIfPossible } else { PageCache::Use }
}

pub(super) fn open_backend(config: &VolumeConfig) -> Result<Arc<FileDisk>, VolumeError> {
    let options = Options { read_only: false, page_cache: page_cache(config) };
    let volume = || config.whose();
    let disk =
        FileDisk::open(&config.backend, options).map_err(|error| VolumeError::Backend { volume: volume(), error })?;
    let expected = config.size_bytes.unwrap_or(BLOCK);
    if disk.size() < expected {
        let path = config.backend.display().to_string();
        return Err(VolumeError::BackendTooSmall { volume: volume(), path, found: disk.size(), expected });
    }
    Ok(Arc::new(disk))
}

/// Refuses a backend that is in use. Refuses a new backend that belongs to a pool or a cache, because writes of clients
/// would destroy those.
pub(super) fn check_backend(config: &VolumeConfig, side: &dyn BackendSide) -> Result<(), VolumeError> {
    let info = look_at(config, "backend", &config.backend)?;
    // The check of its cache decides if a damaged one can be used.
    let is_known = record_of(config, side)?.map_or(true, |record| record.is_some());
    if is_known || config.backend_id.is_some() {
        return Ok(());
    }
    let Some(holds) = info.holds() else { return Ok(()) };
    let served = if info.role == Role::Data { ", which [[pool]] serves" } else { "" };
    let what = format!(
        "{holds}{served}. Give another device, or wipe it if its data is not needed. If it is a backend whose clients \
         wrote that data, set backend-id"
    );
    Err(taken(config, "backend", &config.backend, what))
}

/// Returns the journal that the backend's record names.
pub(super) fn journal_of_record(config: &VolumeConfig, side: &dyn BackendSide) -> Result<RecordedJournal, VolumeError> {
    // The check of its cache decides if a damaged one can be used.
    Ok(RecordedJournal::of(record_of(config, side)?.ok().flatten().as_ref()))
}

/// Returns the backend's record, or the error if it is damaged.
fn record_of(config: &VolumeConfig, side: &dyn BackendSide) -> Result<io::Result<Option<Record>>, VolumeError> {
    read_or_damage(side).map_err(|error| VolumeError::Backend { volume: config.whose(), error })
}

/// Opens the file or the device of the journal, if one is configured. A missing file is created, unless the backend has
/// a journal.
pub(super) fn open_journal_disk(
    config: &VolumeConfig,
    side: &dyn BackendSide,
) -> Result<Option<Arc<dyn Disk>>, VolumeError> {
    let RecordedJournal { id: expected, waits_for } = journal_of_record(config, side)?;
    if let Some(OpenDisk(disk)) = &config.journal_disk {
        return Ok(Some(disk.clone()));
    }
    let path = config.journal.as_deref().unwrap_or(Path::new(""));
    let refused = |error: JournalError| {
        let way_out = error.way_out(config.discard_cache, !waits_for.is_empty());
        VolumeError::Journal { volume: config.whose(), path: path.display().to_string(), error, way_out }
    };
    if config.journal.is_none() {
        // Without the flash, only the journal can complete the backend, or a disk of it that was missing.
        return match expected.filter(|_| config.discard_cache || !waits_for.is_empty()) {
            Some(expected) => Err(refused(JournalError::NotGiven { expected })),
            None => Ok(None),
        };
    }
    let options = Options { read_only: false, page_cache: page_cache(config) };
    let failed = |error: io::Error| refused(error.into());
    if !path.exists() {
        if let Some(expected) = expected {
            return Err(refused(JournalError::Absent { expected }));
        }
        let size = config.journal_size_bytes.unwrap_or(BYTES_DEFAULT);
        let disk = FileDisk::create(path, size, Allocation::Full, options).map_err(failed)?;
        return Ok(Some(Arc::new(disk)));
    }
    let info = look_at(config, "journal", path)?;
    // Whose journal it is, its mark says.
    let other = info.signatures.iter().find(|signature| signature.kind != JOURNAL);
    if let (Some(signature), None) = (other, expected) {
        return Err(taken(config, "journal", path, holds(signature, path)));
    }
    let disk = FileDisk::open(path, options).map_err(failed)?;
    if disk.size() < BYTES_MIN {
        return Err(refused(JournalError::TooSmall { found: disk.size() }));
    }
    Ok(Some(Arc::new(disk)))
}

/// Refuses a flash without a cache that is in use or has contents. A blank first page is not enough, because most
/// formats leave it blank.
fn check_blank(config: &VolumeConfig) -> Result<(), VolumeError> {
    let info = look_at(config, "flash", &config.flash)?;
    let Some(signature) = info.signatures.first() else { return Ok(()) };
    Err(taken(config, "flash", &config.flash, holds(signature, &config.flash)))
}

/// Describes a device that holds something else.
fn holds(signature: &Signature, path: &Path) -> String {
    format!(
        "it holds {}; give another, or clear it if what it holds is not needed, for example with 'wipefs -a {}'",
        signature.kind,
        path.display()
    )
}

/// Examines a disk; fails if it is in use.
fn look_at(config: &VolumeConfig, role: &'static str, path: &Path) -> Result<DiskInfo, VolumeError> {
    let info = examine(&Places::default(), path);
    let info = info.map_err(|error| VolumeError::Unfit { volume: config.whose(), error })?;
    match info.role {
        Role::System => {
            let what = info.refused.clone().unwrap_or_else(|| "the machine uses it".to_owned());
            Err(taken(config, role, path, what))
        }
        _ => Ok(info),
    }
}

fn taken(config: &VolumeConfig, role: &'static str, path: &Path, what: String) -> VolumeError {
    VolumeError::Taken { volume: config.whose(), role, path: path.display().to_string(), what }
}

/// Returns a remark if the end of a backend of `found` bytes is an incomplete block, which is not part of the volume.
pub(super) fn tail_note(config: &VolumeConfig, found: u64) -> Option<String> {
    let tail = found % BLOCK;
    (tail > 0 && config.size_bytes.is_none()).then(|| {
        format!(
            "{}: found {found} bytes, which is not a multiple of {BLOCK}; the last {tail} bytes are not part of the \
             volume",
            config.backend.display()
        )
    })
}

/// Opens the flash. Creates its file if `may_make` allows an empty one.
pub(super) fn open_flash(
    config: &VolumeConfig,
    may_make: impl FnOnce() -> Result<(), VolumeError>,
) -> Result<Arc<dyn Disk>, VolumeError> {
    let options = Options { read_only: false, page_cache: page_cache(config) };
    let error = |error| VolumeError::Flash { volume: config.whose(), error };
    if let Some(OpenDisk(disk)) = &config.flash_disk {
        return Ok(disk.clone());
    }
    if !config.flash.exists() {
        let Some(size) = config.flash_size_bytes else {
            let missing = format!(
                "{}: does not exist; give its size to create it, or start without it with --discard-cache {}",
                config.flash.display(),
                config.name
            );
            return Err(error(io::Error::new(io::ErrorKind::NotFound, missing)));
        };
        let unit = config.flash_zones.map_or(config.cache.erase_unit_bytes(), |zoning| zoning.size);
        check_flash_size(config, size, unit)?;
        may_make()?;
        if let Some(zoning) = config.flash_zones {
            let file = ZoneFile::create(&config.flash, size, zoning, options).map_err(error)?;
            // Removes an unusable new file.
            let zoned = ZonedFlash::new(Box::new(file)).inspect_err(|_| drop(std::fs::remove_file(&config.flash)));
            return Ok(Arc::new(zoned.map_err(error)?));
        }
        return Ok(Arc::new(FileDisk::create(&config.flash, size, Allocation::Full, options).map_err(error)?));
    }
    let disk = open_any_flash(&config.flash, options).map_err(error)?;
    let unfit = |message: String| {
        let (volume, error) = (config.whose(), io::Error::new(io::ErrorKind::InvalidInput, message));
        VolumeError::Unfit { volume, error }
    };
    let unit = disk.zoned().map_or(config.cache.erase_unit_bytes(), |zoned| zoned.device().capacity());
    if config.flash_zones.is_some() && disk.zoned().is_none() {
        let message = format!("{}: it has no zones, and the configuration says flash-zones", config.flash.display());
        return Err(unfit(message));
    }
    check_flash_size(config, disk.size().min(config.flash_size_bytes.unwrap_or(u64::MAX)), unit)?;
    if let Some(expected) = config.flash_size_bytes
        && disk.zoned().is_none()
        && disk.size() < expected
    {
        let message =
            format!("{}: it has {} bytes, the configuration says {expected}", config.flash.display(), disk.size());
        return Err(unfit(message));
    }
    if disk.zoned().is_none() && is_blank(&*disk).map_err(error)? {
        check_blank(config)?;
    }
    Ok(disk)
}

fn check_flash_size(config: &VolumeConfig, found: u64, unit: u64) -> Result<(), VolumeError> {
    let expected = unit * u64::from(Geometry::UNITS_MIN);
    if found >= expected {
        return Ok(());
    }
    let (volume, path) = (config.whose(), config.flash.display().to_string());
    Err(VolumeError::FlashTooSmall { volume, path, found, expected, unit })
}

/// Returns the geometry of a flash. The zones of a zoned flash are its units; as many are used as fit the configured
/// size.
fn geometry(config: &VolumeConfig, flash: &dyn Disk) -> Geometry {
    if let Some(zoned) = flash.zoned() {
        let Geometry { units, unit_pages } = zoned.geometry();
        let most = config.flash_size_bytes.map_or(u64::MAX, |bytes| bytes / (u64::from(unit_pages) * BLOCK));
        return Geometry { units: units.min(most.try_into().unwrap_or(u32::MAX)), unit_pages };
    }
    let unit = config.cache.erase_unit_bytes();
    let bytes = config.flash_size_bytes.unwrap_or(flash.size());
    Geometry { units: u32::try_from(bytes / unit).unwrap_or(u32::MAX), unit_pages: (unit / BLOCK) as u32 }
}

/// Returns the smallest geometry, for a volume without flash; it remains empty.
pub(super) fn geometry_without_flash(config: &VolumeConfig) -> Geometry {
    Geometry { units: Geometry::UNITS_MIN, unit_pages: (config.cache.erase_unit_bytes() / BLOCK) as u32 }
}

fn has_journal(config: &VolumeConfig) -> bool {
    config.journal.is_some() || config.journal_disk.is_some()
}

/// Returns the expected cache of a start.
pub(super) fn wanted(config: &VolumeConfig, flash: &dyn Disk, backend: [u8; 16], volume_bytes: u64) -> Wanted {
    Wanted {
        pairing: Pairing { backend, is_identified: config.backend_id.is_some(), discards: config.discard_cache },
        new_cache: Uuid::new_v4().into_bytes(),
        geometry: geometry(config, flash),
        layout: config.layout,
        volume_bytes,
        writes_back: config.cache.mode() == Mode::WriteBack,
        in_order: config.cache.order() != WriteBackOrder::None,
        has_journal: config.cache.order() == WriteBackOrder::Journal && has_journal(config),
        threads: time::threads(SCAN_THREADS),
        loss: without_flash(config, backend),
    }
}

/// Converts the error of an attach, with names for users.
pub(super) fn refused(config: &VolumeConfig, identity: &Identity, error: AttachError) -> VolumeError {
    let (volume, path) = (config.whose(), config.flash.display().to_string());
    match error {
        AttachError::Flash(FlashError::NoSuperblock(PageError::Magic)) => match look_at(config, "flash", &config.flash)
        {
            Ok(DiskInfo { role: Role::Data, .. }) => {
                let what = "it belongs to a pool; give another".to_owned();
                taken(config, "flash", &config.flash, what)
            }
            _ => VolumeError::Foreign { volume, path },
        },
        AttachError::Flash(error) => VolumeError::Cache { volume, path, error },
        AttachError::Refused(Refusal::OtherBackend { found, expected }) => VolumeError::OtherBackend {
            volume,
            path,
            backend: config.backend.display().to_string(),
            found,
            expected,
            what: identity.description.clone(),
        },
        AttachError::Refused(Refusal::Missing { expected }) if path.is_empty() => {
            VolumeError::FlashLeftOut { volume, expected }
        }
        AttachError::Refused(refusal) => VolumeError::Refused { volume, path, refusal },
        error @ AttachError::Layout { .. } => VolumeError::Layout { volume, path, error },
        AttachError::Side(error) => VolumeError::Backend { volume, error },
        AttachError::Detached => VolumeError::Detached { volume },
        AttachError::DamagedRecord(error) => VolumeError::DamagedRecord { volume, error },
        AttachError::Geometry { what: VOLUME_SIZE, found, expected }
            if config.size_bytes.is_none() && expected < found =>
        {
            let backend = config.backend.display().to_string();
            VolumeError::CutShort { volume, backend, found: expected, expected: found }
        }
        AttachError::Geometry { what, found, expected } => {
            let (found, expected) = (format!("{found} bytes"), format!("{expected} bytes"));
            VolumeError::Geometry { volume, path, what, found, expected }
        }
    }
}
