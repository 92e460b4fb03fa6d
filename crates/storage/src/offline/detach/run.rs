//! The detach of a cache of any layout.

use flashwise_core::format::{Place, State};

use super::{DetachError, Detached, Pair, check_size};
use crate::attach::{Attachment, RecordedJournal, forget_epochs, may_be_dirty, note_ahead, paired_superblock};
use crate::flash::{Progress, SCAN_THREADS, cache_tag};
use crate::layout::layout_of;

/// Writes back the dirty blocks of a cache, and marks it as detached on both sides. A disk of a pool first gets the
/// blocks that wait for it in the journal. `reading` receives the progress of reading the cache, `progress` the number
/// of blocks written back and their total.
pub fn detach(
    pair: Pair<'_>,
    reading: Progress<'_>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Detached, DetachError> {
    let mut come = None;
    let detached = detach_counted(pair, reading, &mut |written, all| {
        come = Some((written, all));
        progress(written, all);
    });
    detached.map_err(|error| match (error, come) {
        (DetachError::Io(error), Some((written, all))) if written < all => {
            DetachError::Unwritten { path: pair.flash.description(), written, all, error }
        }
        (error, _) => error,
    })
}

fn detach_counted(
    pair: Pair<'_>,
    reading: Progress<'_>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Detached, DetachError> {
    let Pair { flash, backend, side, pairing, .. } = pair;
    let (mut superblock, record) =
        paired_superblock(flash, side, pairing).map_err(|error| DetachError::pair(flash, backend, error))?;
    // A damaged record names no journal.
    let recorded = RecordedJournal::of(record.as_ref());
    let is_needed = !recorded.waits_for.is_empty();
    if superblock.state == State::Detached {
        if is_needed {
            pair.complete(recorded, false)?;
        }
        Attachment::finish_detach(superblock, side)?;
        return Ok(Detached::Before);
    }
    check_size(backend, &superblock)?;
    // The flash has all blocks of the journal that the backend lacks, except those of a disk that was missing. But
    // without the journal, their order is unknown.
    let journal = match pair.complete(recorded, false) {
        Err(DetachError::Journal { error, .. }) if !is_needed && error.is_of_lost_journal() => None,
        completed => completed?,
    };
    forget_epochs(&mut superblock, record.as_ref(), journal.is_some());
    let done = journal.map_or(Place::default(), |opened| opened.journal.of_cache(cache_tag(&superblock)).last.end);
    let read = layout_of(&superblock).and_then(|layout| layout.read(flash, &superblock, SCAN_THREADS, reading));
    let held = match read {
        Err(error) if error.is_of_contents() && error.is_permanent() && !may_be_dirty(&superblock, side)? => {
            Attachment::of(superblock, side.inode()).detach(flash, side)?;
            return Ok(Detached::Empty);
        }
        held => held.map_err(|error| DetachError::cache(flash, error))?,
    };
    // Nothing is written to the flash until all blocks are written back.
    let (destaged_blocks, blocks) =
        held.destage(flash, backend, &superblock, done, &|| note_ahead(&superblock, record.as_ref(), side), progress)?;
    if !blocks.is_empty() {
        return Err(DetachError::Lost { path: flash.description(), blocks });
    }
    Attachment::of(superblock, side.inode()).detach(flash, side)?;
    Ok(Detached::Now { destaged_blocks })
}
