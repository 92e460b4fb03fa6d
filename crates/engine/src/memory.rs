//! The memory for data: aligned frames, which are shared with transfers in progress.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use flashwise_core::format::{BLOCK_BYTES, Page};

use crate::transfer::Buffer;

/// Frames of one block each. The engine prevents conflicts: it starts no step and no transfer on a frame while another
/// one changes it.
#[derive(Debug)]
pub struct Memory {
    /// The allocation.
    allocation: NonNull<u8>,
    /// Its first aligned byte.
    start: NonNull<u8>,
    frames: usize,
    /// The first frames, which are one and the same frame of zeroes; 0 if each has bytes of its own.
    blank: usize,
}

// SAFETY: this value owns the memory, apart from transfers, whose submitter obeys the rules of `Transfer`.
#[allow(unsafe_code)]
unsafe impl Send for Memory {}

#[allow(unsafe_code)]
impl Memory {
    /// Allocates zeroed frames, at least one.
    pub fn new(frames: usize) -> Memory {
        Memory::with_blank(frames, 0)
    }

    /// Allocates zeroed frames. The first `blank` share their bytes, for simulations, whose data is all zeroes.
    pub fn with_blank(frames: usize, blank: usize) -> Memory {
        assert!(frames > 0 && blank <= frames, "memory of no frames");
        let layout = Memory::layout(frames - blank.saturating_sub(1));
        // SAFETY: the layout is not empty.
        let allocation = unsafe { alloc_zeroed(layout) };
        let Some(allocation) = NonNull::new(allocation) else { handle_alloc_error(layout) };
        // SAFETY: the allocation has room for the frames and for less than one more before them.
        let start = unsafe { allocation.add(allocation.align_offset(BLOCK_BYTES)) };
        Memory { allocation, start, frames, blank }
    }

    /// The layout has room for alignment. The standard library would zero an aligned allocation explicitly, which takes
    /// all its memory at once. Memory that the system zeroes takes none until it is used.
    fn layout(frames: usize) -> Layout {
        Layout::array::<u8>((frames + 1) * BLOCK_BYTES).expect("memory that fits the address space")
    }

    fn at(&self, frame: u32) -> *mut u8 {
        assert!((frame as usize) < self.frames, "frame {frame} of {}", self.frames);
        let frame = (frame as usize).saturating_sub(self.blank.saturating_sub(1));
        // SAFETY: the frame lies within the allocation.
        unsafe { self.start.as_ptr().add(frame * BLOCK_BYTES) }
    }

    /// Returns a frame.
    pub fn page(&self, frame: u32) -> &Page {
        // SAFETY: a frame is a block of initialised bytes; no transfer changes it while steps read it.
        unsafe { &*self.at(frame).cast::<Page>() }
    }

    /// Returns a mutable frame.
    pub fn page_mut(&mut self, frame: u32) -> &mut Page {
        // SAFETY: a frame is a block of initialised bytes, and no transfer uses a frame that a step changes.
        unsafe { &mut *self.at(frame).cast::<Page>() }
    }

    /// Returns the bytes of all frames, mutable.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        assert_eq!(self.blank, 0, "each frame has bytes of its own");
        // SAFETY: the allocation is this long and initialised; no transfer uses it.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.frames * BLOCK_BYTES) }
    }

    /// Copies a frame.
    pub fn copy(&mut self, from: u32, to: u32) {
        assert_ne!(from, to, "a frame copied onto itself");
        let (from, to) = (self.at(from), self.at(to));
        // SAFETY: two frames of the allocation.
        unsafe { std::ptr::copy(from, to, BLOCK_BYTES) }
    }

    /// Returns `count` frames from `frame` for a transfer.
    pub fn buffer(&self, frame: u32, count: u32) -> Buffer {
        assert!((frame + count) as usize <= self.frames);
        Buffer { start: self.at(frame), length: count as usize * BLOCK_BYTES }
    }
}

#[allow(unsafe_code)]
impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with the same layout.
        unsafe { dealloc(self.allocation.as_ptr(), Memory::layout(self.frames - self.blank.saturating_sub(1))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_frames_share_their_bytes_and_others_have_their_own() {
        for (blank, shared) in [(0, 1), (1, 1), (3, 3)] {
            let mut memory = Memory::with_blank(5, blank);
            memory.page_mut(0)[7] = 1;
            memory.page_mut(4)[7] = 2;
            memory.copy(4, 3);
            let found: Vec<u8> = (0..5).map(|frame| memory.page(frame)[7]).collect();
            let expected: Vec<u8> = (0..5)
                .map(|frame| {
                    if frame < shared {
                        1
                    } else if frame > 2 {
                        2
                    } else {
                        0
                    }
                })
                .collect();
            assert_eq!(found, expected, "{blank} blank ones");
        }
    }
}
