//! Joins parts into one transfer.

use super::Buckets;
use super::memory::BLOCK;
use crate::engine::{FLASH, Joining, Part};
use crate::transfer::Operation;

/// Maximum number of buffers of a transfer, given by the kernel.
pub(super) const BUFFERS_MAX: usize = 1024;

/// Maximum gap in pages between two parts that are read together. A gap consists of headers and other logs of a bucket,
/// or of blocks of the backend that logs replace. A disk reads it faster than another request.
pub(super) const GAP_PAGES_MAX: usize = 8;

impl<C> Buckets<C> {
    /// Returns the gap between a transfer and a part, if they can be joined.
    pub(super) fn gap_before(&self, joining: &Joining, part: &Part) -> Option<u64> {
        let first = &joining.parts()[0];
        let gap = part.offset.checked_sub(joining.end())?;
        let are_alike = (part.disk, part.operation) == (first.disk, first.operation) && !part.alone && !first.alone;
        let bucket_bytes = if part.disk == FLASH { self.unit_bytes } else { u64::from(self.bucket_blocks) * BLOCK };
        let in_bucket = part.offset / bucket_bytes == first.offset / bucket_bytes;
        let together = match part.operation {
            Operation::Read => gap == 0 && part.disk == FLASH || in_bucket && gap <= GAP_PAGES_MAX as u64 * BLOCK,
            Operation::Write => gap == 0 && part.disk == FLASH && in_bucket,
            Operation::Sync => gap == 0,
            _ => false,
        };
        (are_alike && together && joining.buffers() + part.buffers.len() < BUFFERS_MAX).then_some(gap)
    }
}
