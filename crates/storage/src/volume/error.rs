//! Why a volume is refused.

use std::io;

use flashwise_core::format::Geometry;
use flashwise_core::recovery::RecoveryError;
use flashwise_core::wlfc::scan::ScanError;
use uuid::Uuid;

use crate::attach::Refusal;
use crate::disk::identity::IdentityError;
use crate::disk::is_dead;
use crate::flash::FlashError;
use crate::volume::config::Whose;

/// Why a volume cannot be opened or closed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum VolumeError {
    #[error("{volume}: backend: {error}")]
    Backend { volume: Whose, error: io::Error },
    #[error("{volume}: flash: {error}")]
    Flash { volume: Whose, error: io::Error },
    #[error("{volume}: flash '{path}': {error}")]
    Cache { volume: Whose, path: String, error: FlashError },
    #[error("{volume}: the backend '{path}' has {found} bytes, the volume needs {expected}")]
    BackendTooSmall { volume: Whose, path: String, found: u64, expected: u64 },
    #[error(
        "{volume}: the flash '{path}' has {found} bytes; at least {expected} are needed: {} erase units of {unit}",
        Geometry::UNITS_MIN
    )]
    FlashTooSmall { volume: Whose, path: String, found: u64, expected: u64, unit: u64 },
    #[error(
        "{volume}: the flash '{path}' holds something that is not a cache; if it is one whose first pages are damaged, \
         'flashwise detach --salvage' gets back what can be got back; to use it as a new one, wipe its first 8192 \
         bytes (for example with 'dd if=/dev/zero of={path} bs=4096 count=2 conv=notrunc')"
    )]
    Foreign { volume: Whose, path: String },
    #[error("{volume}: the {role} '{path}': {what}")]
    Taken { volume: Whose, role: &'static str, path: String, what: String },
    #[error(
        "{volume}: the flash '{path}' is a cache of another backend (it belongs to {found}, '{backend}' is {expected}: \
         {what}); \
         give its own backend, or wipe the flash if what it holds is not needed"
    )]
    OtherBackend { volume: Whose, path: String, backend: String, found: Uuid, expected: Uuid, what: String },
    #[error(
        "{volume}: flash '{path}': {refusal}, or start without what is only there, which is then lost, by \
         --discard-cache {}",
        .volume.name
    )]
    Refused { volume: Whose, path: String, refusal: Refusal },
    #[error(
        "{volume}: it is to have no flash, and its backend belongs to cache {expected}, which may hold data that was \
         not written \
         back; give the flash with that cache, and detach it before it is left out; or start without what is only \
         there, which is then \
         lost, by --discard-cache {}",
        .volume.name
    )]
    FlashLeftOut { volume: Whose, expected: Uuid },
    #[error(
        "{error}; data that was not written back may be on it: while it can be read, 'flashwise detach {name} --config \
         FILE' writes that back; \
         else have it read again, or start without what is only there, which is then lost, by --discard-cache {name}",
        name = .volume.name
    )]
    DeadFlash { volume: Whose, error: Box<VolumeError> },
    #[error(
        "{volume}: the backend's record of its cache is damaged, and trying again cannot mend it ({error}); run \
         'flashwise detach' with backend and \
         flash, which writes back the dirty blocks and a new record, or lose them by --discard-cache {}",
        .volume.name
    )]
    DamagedRecord { volume: Whose, error: io::Error },
    #[error("{volume}: backend {error}")]
    Unidentified { volume: Whose, error: IdentityError },
    #[error(
        "{volume}: the flash '{path}' is a cache whose {what} is {found}, the {what} is now to be {expected}; \
         keep the old {what}, or run 'flashwise detach' and 'flashwise attach'"
    )]
    Geometry { volume: Whose, path: String, what: &'static str, found: String, expected: String },
    #[error(
        "{volume}: the backend '{backend}' has {found} bytes, and its cache is of a volume of {expected}: it was cut \
         short; make it as \
         large as it was"
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
    #[error("{volume}: {lost} blocks lost their only copy; overwrite them before detaching, or they hold old data")]
    Lost { volume: Whose, lost: usize },
    #[error(
        "{volume}: {lost} blocks were lost with the flash, which may have them as they were flushed last; stop the \
         server and run \
         'flashwise detach' with backend and flash"
    )]
    LostWithFlash { volume: Whose, lost: usize },
    #[error("{volume}: the backend refuses to be written; {dirty_blocks} blocks are not written back")]
    NotDestaged { volume: Whose, dirty_blocks: u64 },
    #[error("{volume}: the flash cannot be read, and what is only there is not written back: {reason}")]
    NotRead { volume: Whose, reason: String },
    #[error("{volume}: it has layout wlfc, whose size is fixed while it has a cache; detach the cache first")]
    FixedSize { volume: Whose },
    #[error("{volume}: its cache is detached")]
    Detached { volume: Whose },
    #[error("{volume}: its cache is not detached, so there is nothing to attach")]
    NotDetached { volume: Whose },
    #[error("{volume}: it was closed")]
    Closed { volume: Whose },
}

impl VolumeError {
    /// True if trying again cannot mend it: the configuration has to change, or what the devices hold.
    pub fn is_permanent(&self) -> bool {
        match self {
            VolumeError::Backend { error, .. } | VolumeError::Flash { error, .. } => {
                matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported)
            }
            VolumeError::Cache { error, .. } => error.is_permanent(),
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

    /// True if the flash cannot be read or written; `given_up`, also whether it is not there.
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
