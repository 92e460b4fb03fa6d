//! The read cache in RAM.

use std::ops::Range;

use super::step::Step;
use crate::ram::read_buffer::ReadBuffer;

/// The blocks in RAM, each in a frame, and the free frames.
#[derive(Clone, Debug)]
pub(super) struct Ram {
    blocks: ReadBuffer<u32>,
    free: Vec<u32>,
    frames: u32,
}

impl Ram {
    /// Creates an empty cache of so many frames.
    pub fn new(frames: u32) -> Ram {
        Ram { blocks: ReadBuffer::new(frames as usize), free: (0..frames).collect(), frames }
    }

    /// Loads blocks, if all of them are there.
    #[inline]
    pub fn read(&mut self, blocks: Range<u64>, steps: &mut Vec<Step>) -> bool {
        if self.frames == 0 || !blocks.clone().all(|block| self.blocks.peek(block as u32).is_some()) {
            return false;
        }
        for block in blocks {
            let frame = self.blocks.get(block as u32, 0).expect("all blocks are there");
            steps.push(Step::ReadRam { block, frame });
        }
        true
    }

    /// Keeps blocks that are in memory: all of them, or only those already there.
    #[inline]
    pub fn keep(&mut self, blocks: Range<u64>, all: bool, steps: &mut Vec<Step>) {
        if self.frames == 0 {
            return;
        }
        for block in blocks {
            let frame = match self.blocks.get(block as u32, 0) {
                Some(frame) => frame,
                None if !all => continue,
                None => {
                    if self.free.is_empty() {
                        let (_, frame) = self.blocks.pop().expect("all frames are in use");
                        self.free.push(frame);
                    }
                    let frame = self.free.pop().expect("a frame is free");
                    let evicted = self.blocks.insert(block as u32, frame, 0);
                    assert!(evicted.is_none(), "there are no more frames than there is room for");
                    frame
                }
            };
            steps.push(Step::KeepInRam { block, frame });
        }
    }

    /// Drops blocks.
    pub fn forget(&mut self, blocks: Range<u64>) {
        if self.frames > 0 {
            blocks.for_each(|block| self.free.extend(self.blocks.remove(block as u32)));
        }
    }

    /// Drops a block that could not be kept in a frame.
    pub fn failed(&mut self, block: u64, frame: u32) {
        if self.blocks.peek(block as u32) == Some(frame) {
            self.free.extend(self.blocks.remove(block as u32));
        }
    }

    pub fn check(&self) {
        self.blocks.check();
        assert!(self.free.len() + self.blocks.len() == self.frames as usize, "a frame is free or holds a block");
    }
}
