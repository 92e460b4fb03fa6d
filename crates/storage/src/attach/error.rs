//! Errors of attaching a cache to a backend.

use std::io;

use flashwise_core::format::Layout;
use uuid::Uuid;

use super::is_damaged;
use crate::flash::FlashError;

/// Why a cache was not attached to a backend, if the administrator has to decide.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum Refusal {
    #[error(
        "there is no cache on it, and the backend belongs to cache {expected}, which may hold data that was not \
         written back. \
         Give the flash with that cache; if this is it and its first pages are damaged, use 'flashwise detach \
         --salvage'"
    )]
    Missing { expected: Uuid },
    #[error(
        "it holds cache {found}, the backend belongs to cache {expected}, and unwritten data may be on {}. \
         Give the flash with cache {expected}",
        place(*.on_found, *.on_expected)
    )]
    OtherCache { found: Uuid, expected: Uuid, on_found: bool, on_expected: bool },
    #[error(
        "it is an older copy of cache {cache}: it was attached {found} times{}, the backend's record has {expected}{}. \
         Give the newest, which may hold data that was not written back",
        ended(*.found_closed),
        ended(*.expected_closed)
    )]
    Older { cache: Uuid, found: u64, found_closed: bool, expected: u64, expected_closed: bool },
    #[error(
        "the backend is an older copy: cache {cache} was attached {expected} times, the backend's record has {found}. \
         Give the newest backend: this flash may hold data that was not written back to it"
    )]
    BackendOlder { cache: Uuid, found: u64, expected: u64 },
    #[error(
        "the backend is a copy of the file that cache {cache} belongs to (its inode was {expected} and is {found}). \
         The cache may hold data that was not written back: give the original or, if it was moved here, confirm that \
         once with \
         backend-id = \"{backend}\""
    )]
    Copy { cache: Uuid, backend: Uuid, found: u64, expected: u64 },
    #[error(
        "it is a cache of another backend: it belongs to {found}, and this one is {expected}; give its own backend"
    )]
    OtherBackend { found: Uuid, expected: Uuid },
}

fn place(on_found: bool, on_expected: bool) -> &'static str {
    match (on_found, on_expected) {
        (true, true) => "both",
        (true, false) => "the first",
        _ => "the second",
    }
}

fn ended(closed: bool) -> &'static str {
    if closed { " and ended in order" } else { "" }
}

/// Why a cache could not be attached.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum AttachError {
    #[error(transparent)]
    Flash(#[from] FlashError),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("the backend's record of its cache: {0}")]
    Side(io::Error),
    #[error(
        "the backend's record of its cache is damaged ({0}), and the flash does not show which blocks the backend \
         lacks. \
         Give the flash that was used last, or start once with --discard-cache and lose them"
    )]
    DamagedRecord(io::Error),
    #[error(
        "it holds a cache of layout \"{}\", the configuration has \"{}\"; configure the layout of the cache, or run \
         'flashwise detach' and 'flashwise attach'",
        found.name(),
        expected.name()
    )]
    Layout { found: Layout, expected: Layout },
    #[error("it was detached from this backend, and nothing has attached it again")]
    Detached,
    #[error("it is a cache of {found}, expected {expected}")]
    Geometry { what: &'static str, found: u64, expected: u64 },
}

impl AttachError {
    pub(super) fn of_record(error: io::Error) -> AttachError {
        if is_damaged(&error) { AttachError::DamagedRecord(error) } else { AttachError::Side(error) }
    }
}

/// Logs the consequences of a lost cache.
pub(crate) fn log_loss(loss: &str) {
    tracing::warn!(event = "cache-discarded", "the cache is given up: {loss}");
}
