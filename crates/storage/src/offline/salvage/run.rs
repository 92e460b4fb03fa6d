//! The salvage of a cache of any layout.

use flashwise_core::format::State;

use super::{List, Outcome, SalvageOptions, find_superblock};
use crate::attach::{Attachment, RecordedJournal, paired};
use crate::flash::Progress;
use crate::layout::layout_of;
use crate::offline::detach::{DetachError, Pair, check_size};

/// Writes back the certain blocks of a damaged cache, after the last group of its journal. `list` must store the
/// uncertain ones before the cache is given up. `reading` receives the progress of reading the flash, `progress` the
/// number of blocks written back and their total.
pub fn salvage(
    pair: Pair<'_>,
    options: &SalvageOptions,
    list: List<'_>,
    reading: Progress<'_>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Outcome, DetachError> {
    let Pair { flash, backend, side, pairing, .. } = pair;
    let pair_error = |error| DetachError::pair(flash, backend, error);
    let (found, is_whole) = find_superblock(pair, options)?;
    let (superblock, record) = paired(flash, side, found, pairing).map_err(pair_error)?;
    // A damaged record names no journal.
    let recorded = RecordedJournal::of(record.as_ref());
    let complete = || -> Result<usize, DetachError> {
        let opened = pair.complete(recorded.clone(), options.discard_rest)?;
        Ok(opened.and_then(|opened| opened.replayed_blocks).unwrap_or(0))
    };
    if superblock.state == State::Detached {
        let journal_blocks = if recorded.waits_for.is_empty() { 0 } else { complete()? };
        Attachment::finish_detach(superblock, side)?;
        return Ok(Outcome { detached: true, was_detached: true, journal_blocks, ..Outcome::default() });
    }
    check_size(backend, &superblock)?;
    let layout = layout_of(&superblock).map_err(|error| DetachError::cache(flash, error))?;
    let journal_blocks = complete()?;
    let outcome = layout.salvage(pair, (superblock, is_whole), options, list, reading, progress)?;
    Ok(Outcome { journal_blocks, ..outcome })
}
