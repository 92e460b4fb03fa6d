//! The layouts of this program.

use flashwise_core::format::{PageError, Superblock};

use super::CacheLayout;
use crate::flash::FlashError;
use crate::log::LogLayout;
use crate::wlfc::WlfcLayout;

/// The layouts of this program, by name.
pub const LAYOUTS: [(&str, &dyn CacheLayout); 2] = [("log", &LogLayout), ("wlfc", &WlfcLayout)];

/// Returns the layout with this number.
///
/// # Errors
/// It is none of this program.
pub fn layout_of(superblock: &Superblock) -> Result<&'static dyn CacheLayout, FlashError> {
    let row = LAYOUTS.iter().find(|(_, layout)| layout.number() == superblock.layout);
    let version = superblock.version();
    row.map(|(_, layout)| *layout).ok_or(FlashError::NoSuperblock(PageError::Version { found: version }))
}
