//! Frames: the pieces of memory that data passes through or stays in, handed out and taken back.

use std::collections::VecDeque;

use crate::step::Frame;

/// A fixed number of frames, each held by any number of owners. The frame that was given back first is handed out first, so that
/// steps that still use its old content have the most time to end.
#[derive(Debug)]
pub struct Frames {
    free: VecDeque<u32>,
    holders: Vec<u16>,
    fill: u32,
}

impl Frames {
    /// `count` free frames, numbered from `first`.
    pub fn new(first: u32, count: u32) -> Frames {
        Frames { free: (first..first + count).collect(), holders: vec![0; (first + count) as usize], fill: 0 }
    }

    /// Hands out a frame, with one holder.
    pub fn take(&mut self) -> Frame {
        let number = self.free.pop_front().expect("buffers are bounded so that frames do not run out");
        self.holders[number as usize] = 1;
        self.refilled(number)
    }

    /// The frame, with its content counted as new.
    pub fn refilled(&mut self, number: u32) -> Frame {
        self.fill = self.fill.wrapping_add(1);
        Frame { number, fill: self.fill }
    }

    /// Adds a holder.
    pub fn hold(&mut self, frame: Frame) {
        self.holders[frame.number as usize] += 1;
    }

    /// How many hold the frame.
    pub fn holders(&self, frame: Frame) -> u16 {
        self.holders[frame.number as usize]
    }

    /// Takes a holder away; without holders the frame is free.
    pub fn release(&mut self, frame: Frame) {
        let holders = &mut self.holders[frame.number as usize];
        *holders -= 1;
        if *holders == 0 {
            self.free.push_back(frame.number);
        }
    }

    /// Frames that nobody holds.
    pub fn free(&self) -> usize {
        self.free.len()
    }
}
