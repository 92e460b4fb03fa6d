//! Wiping a cache, after the administrator was informed of its contents.

mod examine;

use std::io;

use flashwise_core::format::{BLOCK_BYTES, SUPERBLOCK_COPIES, State, Superblock};
use flashwise_engine::memory::Memory;

use crate::attach::{AttachError, Attachment, BackendSide, Pairing, RecordedJournal, paired};
use crate::disk::Disk;
use crate::flash::{FlashError, read_copies};
pub use examine::examine;

/// Number of bytes in one discard.
const DISCARD_BYTES: u64 = 1 << 30;

/// Why a flash was not wiped.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum WipeError {
    #[error("flash {path}: {error}")]
    Flash { path: String, error: FlashError },
    #[error("flash {path}: it is blank: there is nothing to wipe")]
    Blank { path: String },
    #[error(
        "flash {path}: found data that is not a cache, so it is not wiped; expected the magic number of a \
         cache"
    )]
    Foreign { path: String },
    #[error("flash {path} and backend {backend}: {error}; without --backend only the flash is wiped")]
    Pair { path: String, backend: String, error: AttachError },
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The contents of a flash.
#[derive(Clone, Debug)]
pub struct Holding {
    /// The superblock; `None` if both copies are damaged.
    pub superblock: Option<Superblock>,
    /// Number of dirty and lost blocks; `None` if unknown.
    pub dirty_blocks: Option<u64>,
}

impl Holding {
    /// True if data could be lost that the backend lacks.
    pub fn may_be_dirty(&self) -> bool {
        self.dirty_blocks != Some(0)
    }
}

/// Wipes a flash that was examined, durably. With a backend, its record is updated: it lacks no data from then on.
pub fn wipe(
    flash: &dyn Disk,
    holding: &Holding,
    pair: Option<(&dyn Disk, &dyn BackendSide, &Pairing)>,
) -> Result<(), WipeError> {
    if let (Some((backend, side, pairing)), Some(superblock)) = (pair, &holding.superblock) {
        let error = |error| WipeError::Pair { path: flash.description(), backend: backend.description(), error };
        // A detached or outdated cache has no data that the backend lacks.
        let (superblock, record) = paired(flash, side, superblock.clone(), pairing).map_err(error)?;
        if superblock.state != State::Detached {
            let mut attachment = Attachment::of(superblock, side.inode());
            // The journal may have blocks that the backend lacks. A damaged record names none.
            attachment.name_journal(side, RecordedJournal::of(record.as_ref()))?;
            attachment.abandon(side)?;
        }
    }
    Ok(clear(flash)?)
}

/// Clears a flash without data that the backend lacks, durably.
pub fn clear(flash: &dyn Disk) -> io::Result<()> {
    if let Some(zoned) = flash.zoned() {
        return zoned.wipe();
    }
    // The newest copy is cleared last. If this is interrupted, the cache is either unchanged or gone.
    let copies = read_copies(flash)?;
    let mut order: Vec<u32> = (0..SUPERBLOCK_COPIES).collect();
    order.sort_by_key(|&copy| copies[copy as usize].as_ref().map_or(0, |superblock| superblock.generation));
    let mut zeroes = Memory::new(1);
    for copy in order {
        flash.write_at(zeroes.bytes_mut(), u64::from(copy) * BLOCK_BYTES as u64)?;
        flash.sync()?;
    }
    let mut at = u64::from(SUPERBLOCK_COPIES) * BLOCK_BYTES as u64;
    while at < flash.size() {
        let length = DISCARD_BYTES.min(flash.size() - at);
        // Optional for the device, because the contents belong to no cache any more.
        if flash.discard(at, length).is_err() {
            break;
        }
        at += length;
    }
    flash.sync()
}
