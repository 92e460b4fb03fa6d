//! The blocks that were missed first lately, each with its misses since, in the order of the first ones.

use crate::blocks::{Blocks, List};
use crate::index::Index;

/// The blocks, the last that came in first.
const QUEUE: List = List(0);

/// A first-in, first-out queue of blocks with counts of misses.
///
/// Memory: the index, 11 bytes and the key for each block.
#[derive(Clone, Debug)]
pub struct Misses<I: Index> {
    blocks: Blocks<I, u16>,
    len_max: usize,
}

impl<I: Index> Misses<I> {
    /// An empty queue of at most `len_max` blocks. `index` is empty.
    pub fn new(index: I, len_max: usize) -> Self {
        Misses { blocks: Blocks::new(index, 0, 1), len_max: len_max.min(u32::MAX as usize / 2) }
    }

    /// Counts a miss of `block`, and returns how many that makes since it came in, or 0 if there is no room for any block. A block
    /// that is not in the queue comes in, and the one that has been there longest leaves if there are too many.
    #[inline]
    pub fn count(&mut self, block: I::Key) -> u16 {
        if let Some(node) = self.blocks.find(block) {
            let misses = self.blocks.data_mut(node);
            *misses = misses.saturating_add(1);
            return *misses;
        }
        if self.len_max == 0 {
            return 0;
        }
        if self.blocks.len(QUEUE) == self.len_max {
            self.blocks.pop_back(QUEUE);
        }
        self.blocks.insert_front(QUEUE, block, 1);
        1
    }

    /// Sets the misses of `block` to 0, if it is in the queue, where it stays.
    #[inline]
    pub fn reset(&mut self, block: I::Key) {
        if let Some(node) = self.blocks.find(block) {
            *self.blocks.data_mut(node) = 0;
        }
    }

    /// Whether `block` is in the queue.
    pub fn has(&self, block: I::Key) -> bool {
        self.blocks.find(block).is_some()
    }

    /// Takes `block` out of the queue.
    pub fn forget(&mut self, block: I::Key) {
        self.blocks.forget(block);
    }

    /// A hint that `later` will be counted soon and `soon`, for which the hint as `later` was given before, sooner.
    #[inline]
    pub fn prefetch(&self, soon: I::Key, later: I::Key) {
        self.blocks.prefetch_node(soon);
        self.blocks.prefetch_index(later);
    }

    /// Asserts that the queue is no longer than it may be.
    pub fn check(&self) {
        self.blocks.check(self.len_max);
    }
}
