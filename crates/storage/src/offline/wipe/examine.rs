//! The contents of a flash that is to be wiped.

use flashwise_core::format::{PageError, State};

use super::{Holding, WipeError};
use crate::disk::Disk;
use crate::flash::{FlashError, SCAN_THREADS, is_blank, read_superblock};
use crate::layout::layout_of;

/// Determines the contents of a flash.
pub fn examine(flash: &dyn Disk) -> Result<Holding, WipeError> {
    let path = || flash.description();
    let error = |error| WipeError::Flash { path: path(), error };
    let superblock = match read_superblock(flash) {
        Ok(superblock) => Some(superblock),
        Err(FlashError::Damaged(..)) => None,
        Err(FlashError::NoSuperblock(PageError::Magic)) if is_blank(flash)? => {
            return Err(WipeError::Blank { path: path() });
        }
        Err(FlashError::NoSuperblock(PageError::Magic)) => return Err(WipeError::Foreign { path: path() }),
        Err(other) => return Err(error(other)),
    };
    let dirty_blocks = match &superblock {
        None => None,
        Some(superblock) if superblock.state == State::Detached => Some(0),
        Some(superblock) => {
            let layout = layout_of(superblock).map_err(error)?;
            match layout.read(flash, superblock, SCAN_THREADS, &|_, _| ()) {
                Ok(held) => Some(held.blocks().1),
                Err(error) if error.is_of_contents() => (!superblock.may_be_dirty).then_some(0),
                Err(other) => return Err(error(other)),
            }
        }
    };
    Ok(Holding { superblock, dirty_blocks })
}
