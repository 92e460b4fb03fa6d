//! Frames: pieces of memory for data in transit or in buffers, allocated and released.

use std::collections::VecDeque;

use crate::step::Frame;

/// A fixed number of frames, each with any number of holders. The frame that was released first is reused first, so
/// that steps that still use its old content have the most time to end.
#[derive(Debug)]
pub struct Frames {
    free: VecDeque<u32>,
    holders: Vec<u16>,
    fill: u32,
}

impl Frames {
    /// Creates `count` free frames, numbered from `first`.
    pub fn new(first: u32, count: u32) -> Frames {
        Frames { free: (first..first + count).collect(), holders: vec![0; (first + count) as usize], fill: 0 }
    }

    /// Allocates a frame with one holder.
    pub fn take(&mut self) -> Frame {
        let number = self.free.pop_front().expect("buffers are bounded so that frames do not run out");
        self.holders[number as usize] = 1;
        self.refilled(number)
    }

    /// Returns the frame with a new fill number, because its content changes.
    pub fn refilled(&mut self, number: u32) -> Frame {
        self.fill = self.fill.wrapping_add(1);
        Frame { number, fill: self.fill }
    }

    /// Adds a holder.
    pub fn hold(&mut self, frame: Frame) {
        self.holders[frame.number as usize] += 1;
    }

    /// Returns the number of holders.
    pub fn holders(&self, frame: Frame) -> u16 {
        self.holders[frame.number as usize]
    }

    /// True if it is one of these frames and has no holder.
    pub fn is_free(&self, number: u32) -> bool {
        self.holders.get(number as usize) == Some(&0)
    }

    /// Removes a holder; without holders the frame is free.
    pub fn release(&mut self, frame: Frame) {
        let holders = &mut self.holders[frame.number as usize];
        *holders -= 1;
        if *holders == 0 {
            self.free.push_back(frame.number);
        }
    }

    /// Returns the number of free frames.
    pub fn free(&self) -> usize {
        self.free.len()
    }
}
