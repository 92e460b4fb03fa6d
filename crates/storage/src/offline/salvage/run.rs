//! The salvage of a cache of any layout.

use flashwise_core::format::State;

use super::{List, Options, Outcome, Pair, find_superblock};
use crate::attach::{Attachment, RecordedJournal, paired};
use crate::flash::Progress;
use crate::journal::{JournalError, JournalOwner, open};
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
    let (superblock, record) = paired(flash, side, found, pairing).map_err(pair_error)?;
    if superblock.state == State::Detached {
        Attachment::finish_detach(superblock, side)?;
        return Ok(Outcome { detached: true, was_detached: true, ..Outcome::default() });
    }
    check_size(backend, &superblock)?;
    let layout = layout_of(&superblock).map_err(|error| DetachError::cache(flash, error))?;
    // A damaged record names no journal.
    let journal_blocks = complete(pair, RecordedJournal::of(record.as_ref()), options)
        .map_err(|error| DetachError::Journal { backend: backend.description(), error })?
        .unwrap_or(0);
    let outcome = layout.salvage(pair, (superblock, is_whole), options, list, reading, progress)?;
    Ok(Outcome { journal_blocks, ..outcome })
}

/// Writes the last group of the `expected` journal into place. Otherwise, a start would later write it over newer data.
/// Returns the number of blocks.
fn complete(pair: Pair<'_>, recorded: RecordedJournal, options: &Options) -> Result<Option<usize>, JournalError> {
    match (recorded.id, pair.journal) {
        (Some(_), Some(journal)) => {
            let (identity, parts) = (pair.pairing.backend, pair.side.parts());
            let owner = JournalOwner { identity, recorded, parts, gives_up: options.discard_rest };
            let opened = open(journal, pair.backend, &owner)?;
            match opened.waits_for.is_empty() || options.discard_rest {
                true => Ok(opened.replayed_blocks),
                false => {
                    Err(JournalError::Waits { paths: opened.waits_for.into_iter().map(|part| part.path).collect() })
                }
            }
        }
        // The journal no longer counts after the detach.
        (Some(expected), None) if !options.discard_rest => Err(JournalError::NotGiven { expected }),
        _ => Ok(None),
    }
}
