//! Detaching a cache offline: writes back the dirty blocks, and marks the cache as no longer needed.
//!
//! It needs no room in the log, so it also works if a volume cannot be opened.

mod in_order;
mod run;

use std::io;

use flashwise_core::cache::Cache;
use flashwise_core::checksum;
use flashwise_core::format::{BLOCK_BYTES, Superblock};
use flashwise_core::recovery::Recovered;
use flashwise_core::salvage::BlockCopy;
use flashwise_core::wlfc::BucketOptions;
use flashwise_engine::engine::{BACKEND, FLASH, Output};
use flashwise_engine::memory::Memory;
use flashwise_engine::wlfc::{Engine, Settings};

use crate::attach::{AttachError, BackendSide, Pairing, RecordedJournal};
use crate::disk::Disk;
use crate::export::Error;
use crate::flash::{FlashError, cache_tag};
use crate::journal::{JournalError, Opened};
use crate::offline::journal::GivenJournal;
use crate::wlfc::start;
pub(crate) use in_order::destage_in_order;
pub use run::detach;

/// Maximum number of blocks in one write.
const RUN_BLOCKS: usize = 256;

/// Why a cache could not be detached.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum DetachError {
    #[error("flash {path}: {error}")]
    Cache { path: String, error: FlashError },
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(
        "{error}. {written} of {all} blocks were written back, and {path} still has all of them. Detach it again when \
         the backend is writable"
    )]
    Unwritten { path: String, written: u64, all: u64, error: io::Error },
    #[error("flash {path} and backend {backend}: {error}")]
    Pair { path: String, backend: String, error: AttachError },
    #[error("backend {backend}: journal{journal}: {error}{}", if .error.is_of_lost_journal() { GIVE_UP } else { "" })]
    Journal { backend: String, journal: String, error: JournalError },
    #[error("backend {path}: found {found} bytes, expected {expected}; it was truncated or is another backend")]
    BackendTooSmall { path: String, found: u64, expected: u64 },
    #[error(
        "flash {path}: both copies of its superblock are lost, and {what}. Give its backend, and --erase-unit and \
         --flash-size with the values of its creation"
    )]
    NoSuperblock { path: String, what: String },
    #[error(
        "flash {path}: the only copy of {} blocks is lost or damaged ({}); everything else was written back. The \
         backend has \
         older data there. To give them up, overwrite them through the server and detach again, or use 'flashwise \
         detach --salvage \
         --discard-rest'",
        .blocks.len(),
        listed(.blocks)
    )]
    Lost { path: String, blocks: Vec<u32> },
}

impl DetachError {
    /// True if a retry cannot succeed, because the devices do not belong together.
    pub fn is_misuse(&self) -> bool {
        match self {
            DetachError::Pair { error, .. } => {
                matches!(error, AttachError::Refused(_) | AttachError::DamagedRecord(_))
            }
            DetachError::Journal { error, .. } => !error.is_of_device(),
            error => matches!(error, DetachError::BackendTooSmall { .. }),
        }
    }

    pub(crate) fn cache(flash: &dyn Disk, error: FlashError) -> DetachError {
        DetachError::Cache { path: flash.description(), error }
    }

    pub(crate) fn pair(flash: &dyn Disk, backend: &dyn Disk, error: AttachError) -> DetachError {
        match error {
            AttachError::Flash(error) => DetachError::cache(flash, error),
            error => DetachError::Pair { path: flash.description(), backend: backend.description(), error },
        }
    }
}

/// The way out if a journal is lost.
const GIVE_UP: &str = ". 'flashwise detach --salvage --discard-rest' gives it up, with all that cannot be salvaged";

fn listed(blocks: &[u32]) -> String {
    let named: Vec<String> = blocks.iter().take(10).map(u32::to_string).collect();
    format!("{}{}", named.join(", "), if blocks.len() > 10 { ", ..." } else { "" })
}

/// A cache that no server uses, and its backend.
#[derive(Clone, Copy)]
pub struct Pair<'a> {
    /// The cache.
    pub flash: &'a dyn Disk,
    /// The backend.
    pub backend: &'a dyn Disk,
    /// The journal of the backend.
    pub journal: GivenJournal<'a>,
    /// The backend's record of its cache.
    pub side: &'a dyn BackendSide,
    /// The expected pairing.
    pub pairing: &'a Pairing,
}

impl Pair<'_> {
    /// Writes the last group of the `recorded` journal into place. See [`GivenJournal::complete`].
    pub(super) fn complete(&self, recorded: RecordedJournal, gives_up: bool) -> Result<Option<Opened>, DetachError> {
        let Pair { backend, journal, side, pairing, .. } = self;
        let error = |error| DetachError::Journal { backend: backend.description(), journal: journal.path(), error };
        journal.complete(*backend, *side, pairing, recorded, gives_up).map_err(error)
    }
}

/// The result of a detach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detached {
    /// Blocks were written back.
    Now {
        /// The number of blocks.
        destaged_blocks: u64,
    },
    /// The cache was detached before.
    Before,
    /// The cache is damaged, but held no dirty blocks.
    Empty,
}

/// Writes back the dirty blocks of buckets, durably. Returns their number, and the unreadable blocks.
pub(crate) fn destage_buckets(
    flash: &dyn Disk,
    backend: &dyn Disk,
    superblock: &Superblock,
    held: start::Held,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(u64, Vec<u32>), DetachError> {
    let refuse = |error| DetachError::cache(flash, FlashError::Config(error));
    let config = start::config(superblock.geometry, &BucketOptions::default(), superblock.volume_bytes);
    let (wlfc, started) = config.and_then(|config| held.start(config)).map_err(refuse)?;
    let (cache, start) = (cache_tag(superblock), superblock.attach);
    let zoned = flash.zoned().is_some();
    let settings = Settings { cache, start, retries: 2, zoned, skips_bad: true, ..Settings::default() };
    let mut engine = Engine::new(wlfc, settings, started);
    let all = engine.cache().blocks_to_write_back();
    progress(0, all);
    engine.destage_all(0);
    let mut output = Output::default();
    while engine.running() > 0 {
        engine.take_output(&mut output);
        for transfer in output.transfers.drain(..) {
            let disk = if transfer.disk == FLASH { flash } else { backend };
            let result = disk.perform(&transfer);
            if let (BACKEND, Err(error)) = (transfer.disk, &result) {
                return Err(io::Error::new(error.kind(), format!("backend {}: {error}", backend.description())).into());
            }
            engine.completed(transfer.tag, result.as_ref().map(drop).map_err(Error::from));
            progress(engine.cache().figures().backend_written_blocks.min(all), all);
        }
    }
    backend.sync()?;
    Ok((all, engine.lost_blocks().into_iter().map(|block| block as u32).collect()))
}

/// Fails if the backend is smaller than the volume.
pub(crate) fn check_size(backend: &dyn Disk, superblock: &Superblock) -> Result<(), DetachError> {
    let (found, expected) = (backend.size(), superblock.volume_bytes);
    if found < expected {
        return Err(DetachError::BackendTooSmall { path: backend.description(), found, expected });
    }
    Ok(())
}

/// Returns the dirty copies, ordered by block.
pub(crate) fn dirty_copies(recovered: &Recovered) -> Vec<BlockCopy> {
    let copy = |block| {
        let slot = recovered.log.find(block).expect("a block of the log has a copy");
        BlockCopy { block, slot, crc: recovered.checksums[slot as usize] }
    };
    let mut dirty: Vec<BlockCopy> = recovered.log.blocks().into_iter().map(copy).collect();
    dirty.retain(|copy| recovered.log.is_dirty(copy.slot));
    dirty.sort_unstable_by_key(|copy| copy.block);
    dirty
}

/// Writes copies, ordered by block, to the backend. Returns their number, and the blocks whose data was damaged.
pub(crate) fn destage(
    flash: &dyn Disk,
    backend: &dyn Disk,
    copies: &[BlockCopy],
    progress: &mut dyn FnMut(u64, u64),
) -> io::Result<(u64, Vec<u32>)> {
    let mut memory = Memory::new(RUN_BLOCKS);
    let mut run: Vec<u32> = Vec::new();
    let (mut destaged, mut damaged) = (0, Vec::new());
    progress(0, copies.len() as u64);
    for &BlockCopy { block, slot, crc } in copies {
        let continues = run.last().is_some_and(|last| last + 1 == block) && run.len() < RUN_BLOCKS;
        if !continues {
            destaged += write_run(backend, &mut memory, &mut run)?;
            progress(destaged, copies.len() as u64);
        }
        let frame = run.len() as u32;
        let read = flash.read_at(memory.page_mut(frame), u64::from(slot) * BLOCK_BYTES as u64);
        if read.is_ok() && checksum::crc32c(memory.page(frame)) == crc {
            run.push(block);
        } else {
            damaged.push(block);
        }
    }
    destaged += write_run(backend, &mut memory, &mut run)?;
    progress(destaged, copies.len() as u64);
    Ok((destaged, damaged))
}

/// Writes the contiguous blocks of `run` from the first frames of `memory`, and empties `run`.
fn write_run(backend: &dyn Disk, memory: &mut Memory, run: &mut Vec<u32>) -> io::Result<u64> {
    let Some(&first) = run.first() else { return Ok(0) };
    let bytes = &memory.bytes_mut()[..run.len() * BLOCK_BYTES];
    backend.write_at(bytes, u64::from(first) * BLOCK_BYTES as u64)?;
    Ok(run.drain(..).count() as u64)
}
