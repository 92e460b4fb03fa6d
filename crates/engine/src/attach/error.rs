//! Why a cache is not attached to a backend.

use std::io;

use flashwise_core::format::Layout;
use uuid::Uuid;

use super::is_damaged;
use crate::flash::FlashError;

/// Why a cache is not attached to a backend: an operator has to decide.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum Refusal {
    #[error(
        "there is no cache on it, and the backend belongs to cache {expected}, which may hold data that was not written back; give the \
         flash with that cache; if it is this one and its first pages are damaged, 'flashwise detach --salvage' gets back what can be got back"
    )]
    Missing { expected: Uuid },
    #[error(
        "it holds cache {found}, the backend belongs to cache {expected}, and data that was not written back may be on {}; give the \
         flash with cache {expected}",
        place(*.on_found, *.on_expected)
    )]
    OtherCache { found: Uuid, expected: Uuid, on_found: bool, on_expected: bool },
    #[error(
        "it is an older copy of cache {cache}: it was attached {found} times{}, the backend says {expected}{}; what it holds is out \
         of date, and the newest may hold data that was not written back; give the newest",
        ended(*.found_closed),
        ended(*.expected_closed)
    )]
    Older { cache: Uuid, found: u64, found_closed: bool, expected: u64, expected_closed: bool },
    #[error(
        "the backend is an older copy: cache {cache} was attached {expected} times, the backend says {found}; data that was not written \
         back to the newest may be on this flash; give the newest backend"
    )]
    BackendOlder { cache: Uuid, found: u64, expected: u64 },
    #[error(
        "the backend is a copy of the file that cache {cache} belongs to (its inode was {expected} and is {found}), and the cache may \
         hold data that was not written back; give the original or, if it was moved here and is used no more, say so once by \
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

/// Why a cache cannot be attached.
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
        "the backend's record of its cache is damaged, and trying again cannot mend it ({0}); the flash does not say either which blocks the backend \
         misses: give the flash that was used last, or lose them by starting once with --discard-cache"
    )]
    DamagedRecord(io::Error),
    #[error(
        "it holds a cache of layout \"{}\", and the configuration says \"{}\"; say the layout that it has, or detach the cache first",
        found.name(),
        expected.name()
    )]
    Layout { found: Layout, expected: Layout },
    #[error("it is a cache of {found}, expected {expected}")]
    Geometry { what: &'static str, found: u64, expected: u64 },
}

impl AttachError {
    pub(super) fn of_record(error: io::Error) -> AttachError {
        if is_damaged(&error) { AttachError::DamagedRecord(error) } else { AttachError::Side(error) }
    }
}
