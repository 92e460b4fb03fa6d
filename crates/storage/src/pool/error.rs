//! Errors of pools.

use std::io;
use std::sync::Arc;

use uuid::Uuid;

use super::LOGICAL_BYTES_MAX;
use super::label::{LabelError, NAME_BYTES_MAX};
use super::map::Misfit;
use crate::disk::is_dead;

/// Why a pool or an operation on it was refused or failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum PoolError {
    #[error("{path}: {error}")]
    Disk { path: String, error: io::Error },
    #[error(transparent)]
    Open { source: io::Error },
    #[error("{path}: {error}")]
    Label { path: String, error: LabelError },
    #[error("{path} is a disk of pool '{found}', expected '{expected}'")]
    OtherPool { path: String, found: String, expected: String },
    #[error(
        "{first} is a disk of pool {first_pool}, and {second} of another pool with that name, {second_pool}; give the \
         disks of one"
    )]
    TwoPools { first: String, first_pool: Uuid, second: String, second_pool: Uuid },
    #[error(
        "{first} and {second} are the same disk {disk} of the pool, or one is a copy of the other; give one of them"
    )]
    Duplicate { first: String, second: String, disk: Uuid },
    #[error("{first} and {second} are one disk; give it once")]
    Twice { first: String, second: String },
    #[error("{path}: found {found} bytes, expected {expected} by its label; it was truncated")]
    CutShort { path: String, found: u64, expected: u64 },
    #[error(
        "pool '{pool}' misses {}; give {}, or set degraded = true to start without; requests for its data will fail{}",
        .missing.join(" and "), if .missing.len() == 1 { "it" } else { "them" },
        .others.iter().map(|(path, why)| format!("; {path} is another: {why}")).collect::<String>()
    )]
    Missing { pool: String, missing: Vec<String>, others: Vec<(String, &'static str)> },
    #[error("{path} was removed from pool '{pool}'; leave it out")]
    TakenOut { path: String, pool: String },
    #[error(
        "{path} contradicts the other disks of pool '{pool}': it is an older copy of a disk, or was started without \
         them. Give its newest copy, or leave it out and set degraded = true"
    )]
    Diverged { path: String, pool: String },
    #[error(
        "pool '{pool}': {error}; if the disk is gone, set degraded = true to start without it; requests for its data \
         will fail"
    )]
    Gone { pool: String, error: io::Error },
    #[error("pool '{pool}': no disk has a complete map, so its data cannot be found")]
    NoMap { pool: String },
    #[error("pool '{pool}': its map is damaged: {misfit}")]
    Damaged { pool: String, misfit: Misfit },
    #[error(
        "{path}: its map cannot be read, and that of other disks may be older: {error}. \
         Retry, or set degraded = true to use theirs and lose later changes"
    )]
    Unread { path: String, error: io::Error },
    #[error("{path} has {found} bytes; a disk of a pool needs at least 1 MiB")]
    TooSmall { path: String, found: u64 },
    #[error(
        "found '{name}' as a name, expected 1 to {NAME_BYTES_MAX} lower-case letters, digits, '-' and '.', and not \
         only dots"
    )]
    Name { name: String },
    #[error("found a size of {found} bytes, expected a multiple of 4096 up to {LOGICAL_BYTES_MAX}")]
    Size { found: u64 },
    #[error("found {found} bytes of RAM to reserve, expected a multiple of 4096")]
    Pinned { found: u64 },
    #[error("found '{found}' as the disk to wipe, expected '{expected}', the disk to add")]
    Wipe { found: String, expected: String },
    #[error("pool '{pool}': it has no disk {number}")]
    NoDisk { pool: String, number: u32 },
    #[error("the pool would have more than 16 TiB, which its cache cannot address")]
    TooLarge,
    #[error("pool '{pool}': the map does not fit its area on {path}; use fewer and larger pieces, or add larger disks")]
    MapFull { pool: String, path: String },
    #[error("pool '{pool}': no disk accepts changes of the map any more: {last}")]
    NotWritten { pool: String, last: String },
    #[error("pool '{pool}': its cache has failed: {what}")]
    CacheFailed { pool: String, what: String },
    #[error(
        "pool '{pool}': {what}, but this is not durable: a restart undoes it unless the pool accepts writes before; \
         {error}"
    )]
    NotDurable { pool: String, what: String, error: Arc<PoolError> },
    #[error("pool '{pool}': {wanted} bytes are needed, {free} are free")]
    NoSpace { pool: String, wanted: u64, free: u64 },
    #[error(
        "{path}: {what}{}",
        if *.can_be_wiped { "; to use it anyway and lose that data, name it again as the disk to wipe \
            (--wipe)" } else { "" }
    )]
    NotFree { path: String, what: String, can_be_wiped: bool },
    #[error("pool '{pool}': {what}")]
    Refused { pool: String, what: String },
    /// The error of a commit of several changes.
    #[error(transparent)]
    Together(Arc<PoolError>),
}

impl PoolError {
    /// Returns the error itself, without [`PoolError::Together`].
    pub fn cause(&self) -> &PoolError {
        if let PoolError::Together(error) = self { error.cause() } else { self }
    }

    /// True if a retry cannot succeed.
    pub fn is_permanent(&self) -> bool {
        match self.cause() {
            PoolError::Open { source } => {
                matches!(
                    source.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput
                )
            }
            PoolError::Gone { error, .. } => !is_dead(error),
            PoolError::Disk { .. }
            | PoolError::Unread { .. }
            | PoolError::NotWritten { .. }
            | PoolError::CacheFailed { .. }
            | PoolError::NotDurable { .. } => false,
            _ => true,
        }
    }
}
