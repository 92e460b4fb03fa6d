//! A detach as a lasting decision: the backend's record keeps it, so a wiped, replaced or missing flash does not change
//! it.

use std::io;

use flashwise_core::format::{State, Superblock};
use uuid::Uuid;

use super::{AttachError, BackendSide, Record, RecordedJournal};

/// Records on the backend's side that it is used without a cache, so that no later start trusts an old one. `known` is
/// the result of [`check_empty`](super::check_empty). If it is a cache, that cache is dropped when it returns;
/// otherwise, any cache is refused.
pub fn use_without_cache(side: &dyn BackendSide, known: Option<Record>) -> Result<(), AttachError> {
    // A start that was interrupted may have counted one more on the flash.
    let journal = RecordedJournal::of(known.as_ref());
    let (cache, attach) = known.map_or((Uuid::new_v4(), 1), |known| (known.cache, known.attach + 2));
    let record = Record { journal, ..Record::new(cache.into_bytes(), attach, false, side.inode()) };
    side.write(&record).map_err(AttachError::Side)
}

/// Ends a detach: the next start may use a cache again. Returns false if none is detached.
///
/// # Errors
/// The record cannot be read or written.
pub fn attach_again(side: &dyn BackendSide) -> Result<bool, AttachError> {
    match side.read().map_err(AttachError::of_record)?.filter(|record| record.detached) {
        Some(record) => use_without_cache(side, Some(record)).map(|()| true),
        None => Ok(false),
    }
}

/// Records that an operator has detached the cache of a backend that has all data.
///
/// # Errors
/// The record cannot be read or written.
pub(crate) fn note_detached(side: &dyn BackendSide) -> io::Result<()> {
    match side.read()? {
        Some(record) if !record.detached => side.write(&Record { detached: true, closed: None, ..record }),
        _ => Ok(()),
    }
}

/// True if the flash is marked as detached and the record does not know it. Either the detach was interrupted, or the
/// record is lost.
pub(super) fn is_detach_unfinished(found: &Superblock, record: Option<&Record>, backend: [u8; 16]) -> bool {
    let is_newest = |record: &Record| record.cache == Uuid::from_bytes(found.cache) && record.attach <= found.attach;
    found.state == State::Detached && found.backend == backend && record.is_none_or(is_newest)
}
