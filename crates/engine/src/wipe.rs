//! Wiping: a cache is given up, after its operator was told what it holds.

use std::io;

use flashwise_core::format::{BLOCK_BYTES, Layout, PageError, SUPERBLOCK_COPIES, State, Superblock};
use flashwise_core::mending::Mending;

use crate::attach::{AttachError, Attachment, BackendSide, Pairing, paired};
use crate::disk::Disk;
use crate::flash::{FlashError, SCAN_THREADS, is_blank, read_copies, read_superblock, recover_log};
use crate::memory::Memory;
use crate::salvage::mended_superblock;
use crate::wlfc::start;

/// Bytes that are discarded at once.
const DISCARD_BYTES: u64 = 1 << 30;

/// Why a flash is not wiped.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum WipeError {
    #[error("flash {path}: {error}")]
    Flash { path: String, error: FlashError },
    #[error("flash {path}: it is blank: there is nothing to wipe")]
    Blank { path: String },
    #[error(
        "flash {path}: it holds something that is not a cache, which is not wiped here; expected the magic number of a cache"
    )]
    Foreign { path: String },
    #[error("flash {path} and backend {backend}: {error}; without --backend the flash alone is wiped")]
    Pair { path: String, backend: String, error: AttachError },
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// What a flash holds.
#[derive(Clone, Debug)]
pub struct Holding {
    /// What its superblock says; none if both copies are damaged.
    pub superblock: Option<Superblock>,
    /// Blocks that the backend does not have, lost ones included; none where that cannot be told.
    pub dirty_blocks: Option<u64>,
}

impl Holding {
    /// True if something would be lost that the backend does not have.
    pub fn may_be_dirty(&self) -> bool {
        self.dirty_blocks != Some(0)
    }
}

/// Finds out what a flash holds.
pub fn examine(flash: &dyn Disk) -> Result<Holding, WipeError> {
    let path = || flash.description();
    let error = |error| WipeError::Flash { path: path(), error };
    let superblock = match read_superblock(flash) {
        Ok(superblock) => Some(superblock),
        Err(FlashError::Damaged(..)) => mended_superblock(flash, &Mending::new())?,
        Err(FlashError::NoSuperblock(PageError::Magic)) => match mended_superblock(flash, &Mending::new())? {
            None if is_blank(flash)? => return Err(WipeError::Blank { path: path() }),
            None => return Err(WipeError::Foreign { path: path() }),
            mended => mended,
        },
        Err(other) => return Err(error(other)),
    };
    let dirty_blocks = match &superblock {
        None => None,
        Some(superblock) if superblock.state == State::Detached => Some(0),
        Some(superblock) if superblock.layout == Layout::Wlfc => {
            match start::scan(flash, superblock, SCAN_THREADS, &|_, _| ()) {
                Ok(held) => Some(held.blocks().1),
                Err(FlashError::Buckets(_)) if !superblock.may_be_dirty => Some(0),
                Err(FlashError::Buckets(_)) => None,
                Err(other) => return Err(error(other)),
            }
        }
        Some(superblock) => match recover_log(flash, superblock, SCAN_THREADS, &|_, _| ()) {
            Ok(recovered) => Some(recovered.log.dirty_blocks() + recovered.lost.len() as u64),
            Err(FlashError::Recovery(_)) if !superblock.may_be_dirty => Some(0),
            Err(FlashError::Recovery(_)) => None,
            Err(other) => return Err(error(other)),
        },
    };
    Ok(Holding { superblock, dirty_blocks })
}

/// Clears a flash that was examined, durably. With a backend, its record says from then on that it misses nothing.
pub fn wipe(
    flash: &dyn Disk,
    holding: &Holding,
    pair: Option<(&dyn Disk, &dyn BackendSide, &Pairing)>,
) -> Result<(), WipeError> {
    if let (Some((backend, side, pairing)), Some(superblock)) = (pair, &holding.superblock) {
        let error = |error| WipeError::Pair { path: flash.description(), backend: backend.description(), error };
        // Of a detached cache, and of one that is out of date, the backend misses nothing.
        let superblock = paired(flash, side, superblock.clone(), pairing).map_err(error)?;
        if superblock.state != State::Detached {
            Attachment::of(superblock, side.inode()).abandon(side)?;
        }
    }
    Ok(clear(flash)?)
}

/// Clears a flash that nothing is missed of, durably.
pub fn clear(flash: &dyn Disk) -> io::Result<()> {
    if let Some(zoned) = flash.zoned() {
        return zoned.wipe();
    }
    // The newest copy goes last: who is interrupted finds the cache as it was, or none.
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
        // No more than a favour to the device: what is there belongs to no cache any more.
        if flash.discard(at, length).is_err() {
            break;
        }
        at += length;
    }
    flash.sync()
}
