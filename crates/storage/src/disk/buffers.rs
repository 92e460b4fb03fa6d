//! Slices of the memory of transfers, for system calls and blocking disks.
#![allow(unsafe_code)]

use std::io::{IoSlice, IoSliceMut};

use smallvec::SmallVec;

use super::Buffer;

/// Usually few, which need no allocation.
type Slices<Slice> = SmallVec<[Slice; 4]>;

/// Returns the memory of a read's buffers.
///
/// # Safety
///
/// The memory is valid, and is not accessed otherwise, while the slices live.
pub(super) unsafe fn slices_to_fill<'a>(buffers: &[Buffer]) -> Slices<IoSliceMut<'a>> {
    let slice = |buffer: &Buffer| {
        // SAFETY: the caller guarantees it.
        IoSliceMut::new(unsafe { std::slice::from_raw_parts_mut(buffer.start, buffer.length) })
    };
    buffers.iter().map(slice).collect()
}

/// Returns the memory of a write's buffers.
///
/// # Safety
///
/// The memory is valid, and is not written, while the slices live.
pub(super) unsafe fn slices_to_write<'a>(buffers: &[Buffer]) -> Slices<IoSlice<'a>> {
    let slice = |buffer: &Buffer| {
        // SAFETY: the caller guarantees it.
        IoSlice::new(unsafe { std::slice::from_raw_parts(buffer.start, buffer.length) })
    };
    buffers.iter().map(slice).collect()
}
