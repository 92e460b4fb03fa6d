//! Which parts are joined to one transfer.

use super::Buckets;
use super::memory::{BLOCK, Region};
use crate::disk::Operation;
use crate::engine::{BACKEND, FLASH, Joining, Part};
use flashwise_core::order::StepId;
use smallvec::smallvec;

/// Buffers of a transfer: as many as the kernel takes at once.
pub(super) const BUFFERS_MAX: usize = 1024;

/// The most pages between two that are read together: what is between logs of one bucket is their headers and other logs, and what is between the
/// blocks that logs lack in the backend is as short. A disk reads them sooner than it takes another request.
pub(super) const GAP_PAGES_MAX: usize = 8;

/// One block of the backend.
pub(super) fn of_block(step: StepId, region: &mut Region, block: u64, operation: Operation) -> Part {
    let buffers = smallvec![region.buffer(block, 1)];
    Part { buffers, ..Part::new(step, BACKEND, operation, block * BLOCK, BLOCK) }
}

impl<C> Buckets<C> {
    /// How far behind a transfer a part begins, if it can join that.
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
