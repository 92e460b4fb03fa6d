//! The check of a cache of any layout.

use std::io;

use super::{Report, check_copies, describe};
use crate::disk::Disk;
use crate::disk::identity::Identity;
use crate::flash::{FlashError, read_superblock};
use crate::layout::layout_of;

/// Checks a cache. With a backend, compares its identity and size; with `data`, compares all data with its checksums.
/// `progress` receives the number of bytes processed, out of [`total_bytes`](super::total_bytes). Fails only if the
/// device is unreadable.
pub fn check(
    flash: &dyn Disk,
    backend: Option<(&Identity, u64)>,
    data: bool,
    progress: &(dyn Fn(u64) + Sync),
) -> io::Result<Report> {
    let mut report = Report::default();
    if flash.zoned().is_some() {
        flash.notes().iter().for_each(|note| report.note(note.clone()));
    }
    let is_whole = check_copies(flash, &mut report)?;
    let superblock = match read_superblock(flash) {
        Ok(superblock) => superblock,
        Err(FlashError::Io(error)) => return Err(error),
        Err(error) => {
            report.damage(format!("The cache cannot be opened: {error}."));
            return Ok(report);
        }
    };
    describe(&superblock, is_whole, backend, &mut report);
    match layout_of(&superblock) {
        Ok(layout) => layout.check(flash, &superblock, data, &mut report, progress)?,
        Err(error) => report.damage(format!("The cache cannot be opened: {error}.")),
    }
    Ok(report)
}
