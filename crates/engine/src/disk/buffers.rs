//! The memory of transfers as slices, for system calls and disks that block.
#![allow(unsafe_code)]

use std::io::{IoSlice, IoSliceMut};

use smallvec::SmallVec;

use super::Buffer;

/// Few, mostly: they need no memory of their own.
type Slices<Slice> = SmallVec<[Slice; 4]>;

/// The memory of a read's buffers.
///
/// # Safety
///
/// The memory is valid, and no one else reads or writes it, for as long as the slices live.
pub(super) unsafe fn slices_to_fill<'a>(buffers: &[Buffer]) -> Slices<IoSliceMut<'a>> {
    let slice = |buffer: &Buffer| {
        // SAFETY: the caller guarantees it.
        IoSliceMut::new(unsafe { std::slice::from_raw_parts_mut(buffer.start, buffer.length) })
    };
    buffers.iter().map(slice).collect()
}

/// The memory of a write's buffers.
///
/// # Safety
///
/// The memory is valid, and no one writes it, for as long as the slices live.
pub(super) unsafe fn slices_to_write<'a>(buffers: &[Buffer]) -> Slices<IoSlice<'a>> {
    let slice = |buffer: &Buffer| {
        // SAFETY: the caller guarantees it.
        IoSlice::new(unsafe { std::slice::from_raw_parts(buffer.start, buffer.length) })
    };
    buffers.iter().map(slice).collect()
}
