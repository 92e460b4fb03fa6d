//! Errors of volumes.

use std::io;

use flashwise_core::format::Geometry;
use flashwise_core::recovery::RecoveryError;
use flashwise_core::wlfc::scan::ScanError;
use uuid::Uuid;

use crate::attach::Refusal;
use crate::disk::identity::IdentityError;
use crate::disk::is_dead;
use crate::flash::FlashError;
use crate::journal::JournalError;
use crate::volume::config::Whose;

/// An error of opening, closing or changing a volume.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum VolumeError {
    #[error("{volume}: backend: {error}")]
    Backend { volume: Whose, error: io::Error },
    #[error("{volume}: flash: {error}")]
    Flash { volume: Whose, error: io::Error },
    #[error("{volume}: flash '{path}': {error}")]
    Cache { volume: Whose, path: String, error: FlashError },
    #[error("{volume}: backend '{path}': found {found} bytes, expected at least {expected}, the size of the volume")]
    BackendTooSmall { volume: Whose, path: String, found: u64, expected: u64 },
    #[error(
        "{volume}: flash '{path}': found {found} bytes, expected at least {expected}: {} erase units of {unit}",
        Geometry::UNITS_MIN
    )]
    FlashTooSmall { volume: Whose, path: String, found: u64, expected: u64, unit: u64 },
    #[error(
        "{volume}: flash '{path}': found data that is not a cache, expected a cache or a blank device. If the start of \
         a cache is damaged, recover its data with 'flashwise detach --salvage'. To lose the data, wipe its first 8192 \
         bytes: 'dd if=/dev/zero of={path} bs=4096 count=2 conv=notrunc'"
    )]
    Foreign { volume: Whose, path: String },
    #[error("{volume}: {role} '{path}': {what}")]
    Taken { volume: Whose, role: &'static str, path: String, what: String },
    #[error(
        "{volume}: flash '{path}': found a cache of another backend, {found}; expected one of '{backend}', {expected} \
         ({what}). Give the backend of this cache, or wipe the flash if its data is not needed"
    )]
    OtherBackend { volume: Whose, path: String, backend: String, found: Uuid, expected: Uuid, what: String },
    #[error(
        "{volume}: flash '{path}': {refusal}. To start anyway and lose that data, use --discard-cache {}",
        .volume.name
    )]
    Refused { volume: Whose, path: String, refusal: Refusal },
    #[error(
        "{volume}: flash: found none in the configuration, expected the flash with cache {expected}, which may hold \
         unwritten data. Give it, and detach the cache before you leave it out; to start anyway and lose that data, \
         use --discard-cache {}",
        .volume.name
    )]
    FlashLeftOut { volume: Whose, expected: Uuid },
    #[error(
        "{error}. The flash may hold unwritten data. If it is still readable, 'flashwise detach {name} --config FILE' \
         writes that back; to start anyway and lose it, use --discard-cache {name}",
        name = .volume.name
    )]
    DeadFlash { volume: Whose, error: Box<VolumeError> },
    #[error(
        "{volume}: the backend's record of its cache is permanently damaged ({error}). Run 'flashwise detach' with \
         backend and flash to write back the dirty blocks and a new record; to lose those blocks, use --discard-cache \
         {}",
        .volume.name
    )]
    DamagedRecord { volume: Whose, error: io::Error },
    #[error("{volume}: backend {error}")]
    Unidentified { volume: Whose, error: IdentityError },
    #[error(
        "{volume}: flash '{path}': found a cache with {what} {found}, expected {expected}; keep the old {what}, or run \
         'flashwise detach' and 'flashwise attach'"
    )]
    Geometry { volume: Whose, path: String, what: &'static str, found: String, expected: String },
    #[error(
        "{volume}: backend '{backend}': found {found} bytes, expected {expected}, the volume size of its cache. It was \
         truncated; restore its size"
    )]
    CutShort { volume: Whose, backend: String, found: u64, expected: u64 },
    #[error("{volume}: flash {error}")]
    Unfit { volume: Whose, error: io::Error },
    #[error("{volume}: flash '{path}': {error}")]
    Layout { volume: Whose, path: String, error: crate::attach::AttachError },
    #[error(
        "{volume}: the log on flash '{path}' has no free erase unit; run 'flashwise detach' and 'flashwise attach', \
         and start again"
    )]
    LogFull { volume: Whose, path: String },
    #[error(
        "{volume}: the only copy of {lost} blocks is lost; overwrite them before you detach, or they hold old data"
    )]
    Lost { volume: Whose, lost: usize },
    #[error(
        "{volume}: {lost} blocks were lost with the flash, which may still hold their last flushed data. Stop the \
         server and run 'flashwise detach' with backend and flash"
    )]
    LostWithFlash { volume: Whose, lost: usize },
    #[error("{volume}: writes to the backend fail, so {dirty_blocks} dirty blocks remain on the flash")]
    NotDestaged { volume: Whose, dirty_blocks: u64 },
    #[error("{volume}: reads of the flash fail, so its dirty blocks cannot be written back: {reason}")]
    NotRead { volume: Whose, reason: String },
    #[error("{volume}: layout wlfc fixes the size of a volume while it has a cache; detach the cache first")]
    FixedSize { volume: Whose },
    #[error("{volume}: journal{}: {error}{way_out}", quoted(path))]
    Journal { volume: Whose, path: String, error: JournalError, way_out: &'static str },
    #[error("{volume}: its cache is detached")]
    Detached { volume: Whose },
    #[error("{volume}: its cache is not detached, so there is nothing to attach")]
    NotDetached { volume: Whose },
    #[error("{volume}: it was closed")]
    Closed { volume: Whose },
}

impl VolumeError {
    /// True if a retry cannot succeed before the configuration or the contents of a device change.
    pub fn is_permanent(&self) -> bool {
        match self {
            VolumeError::Backend { error, .. } | VolumeError::Flash { error, .. } => {
                matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported)
            }
            VolumeError::Cache { error, .. } => error.is_permanent(),
            VolumeError::Journal { error, .. } => !error.is_of_device(),
            VolumeError::DeadFlash { error, .. } => error.is_permanent(),
            VolumeError::BackendTooSmall { .. }
            | VolumeError::FlashTooSmall { .. }
            | VolumeError::Foreign { .. }
            | VolumeError::Taken { .. }
            | VolumeError::OtherBackend { .. }
            | VolumeError::Refused { .. }
            | VolumeError::FlashLeftOut { .. }
            | VolumeError::DamagedRecord { .. }
            | VolumeError::Unidentified { .. }
            | VolumeError::Geometry { .. }
            | VolumeError::CutShort { .. }
            | VolumeError::Unfit { .. }
            | VolumeError::Layout { .. }
            | VolumeError::LogFull { .. } => true,
            VolumeError::Lost { .. }
            | VolumeError::LostWithFlash { .. }
            | VolumeError::NotDestaged { .. }
            | VolumeError::NotRead { .. }
            | VolumeError::FixedSize { .. }
            | VolumeError::Detached { .. }
            | VolumeError::NotDetached { .. }
            | VolumeError::Closed { .. } => false,
        }
    }

    /// True if the flash fails reads or writes. With `given_up`, also true if it does not exist.
    pub(super) fn is_of_dead_flash(&self, given_up: bool) -> bool {
        let error = match self {
            VolumeError::Flash { error, .. } => error,
            VolumeError::Cache {
                error:
                    FlashError::Io(error)
                    | FlashError::Recovery(RecoveryError::Read(error))
                    | FlashError::Buckets(ScanError::Read(error)),
                ..
            } => error,
            _ => return false,
        };
        is_dead(error) || given_up && error.kind() == io::ErrorKind::NotFound
    }
}

/// Formats a path; nothing if there is none.
fn quoted(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!(" '{path}'") }
}
