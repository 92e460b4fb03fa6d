//! The salvage of a cache of any layout.

use flashwise_core::format::State;
use uuid::Uuid;

use super::{List, Options, Outcome, Pair, find_superblock};
use crate::attach::{Attachment, paired, read_unless};
use crate::flash::Progress;
use crate::journal::{JournalError, open};
use crate::layout::layout_of;
use crate::offline::detach::{DetachError, check_size};

/// Writes back the certain blocks of a damaged cache, after the last group of its journal. `list` must store the
/// uncertain ones before the cache is given up. `reading` receives the progress of reading the flash, `progress` the
/// number of blocks written back and their total.
pub fn salvage(
    pair: Pair<'_>,
    options: &Options,
    list: List<'_>,
    reading: Progress<'_>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Outcome, DetachError> {
    let Pair { flash, backend, side, pairing, .. } = pair;
    let pair_error = |error| DetachError::pair(flash, backend, error);
    let (found, is_whole) = find_superblock(pair, options)?;
    let superblock = paired(flash, side, found, pairing).map_err(pair_error)?;
    if superblock.state == State::Detached {
        Attachment::finish_detach(superblock, side)?;
        return Ok(Outcome { detached: true, was_detached: true, ..Outcome::default() });
    }
    check_size(backend, &superblock)?;
    let layout = layout_of(&superblock).map_err(|error| DetachError::cache(flash, error))?;
    // A damaged record names no journal.
    let (record, _) = read_unless(true, side).map_err(pair_error)?;
    let journal_blocks = complete(pair, record.and_then(|record| record.journal), options)
        .map_err(|error| DetachError::Journal { backend: backend.description(), error })?
        .unwrap_or(0);
    let outcome = layout.salvage(pair, (superblock, is_whole), options, list, reading, progress)?;
    Ok(Outcome { journal_blocks, ..outcome })
}

/// Writes the last group of the `expected` journal into place. Otherwise, a start would later write it over newer data.
/// Returns the number of blocks.
fn complete(pair: Pair<'_>, expected: Option<Uuid>, options: &Options) -> Result<Option<usize>, JournalError> {
    match (expected, pair.journal) {
        (Some(_), Some(journal)) => {
            let opened = open(journal, pair.backend, pair.pairing.backend, expected, options.discard_rest)?;
            Ok(opened.replayed_blocks)
        }
        // The journal no longer counts after the detach.
        (Some(expected), None) if !options.discard_rest => Err(JournalError::NotGiven { expected }),
        _ => Ok(None),
    }
}
