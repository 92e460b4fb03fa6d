//! Recently missed blocks, in the order of their first misses, each with a count.

use crate::blocks::{Blocks, List};
use crate::index::Index;

/// The blocks, newest first.
const QUEUE: List = List(0);

/// A FIFO queue of blocks with counts of misses.
#[derive(Clone, Debug)]
pub struct Misses<I: Index> {
    blocks: Blocks<I, u16>,
    len_max: usize,
}

impl<I: Index> Misses<I> {
    /// Creates an empty queue of at most `len_max` blocks. `index` must be empty.
    pub fn new(index: I, len_max: usize) -> Self {
        Misses { blocks: Blocks::new(index, 0, 1), len_max: len_max.min(u32::MAX as usize / 2) }
    }

    /// Counts a miss of `block`. Returns its misses since it entered the queue, or 0 if the queue has no room at all. A
    /// new block enters the queue, and the oldest leaves if there are too many.
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

    /// Sets the misses of `block` to 0, if it is in the queue; it stays there.
    #[inline]
    pub fn reset(&mut self, block: I::Key) {
        if let Some(node) = self.blocks.find(block) {
            *self.blocks.data_mut(node) = 0;
        }
    }

    /// True if `block` is in the queue.
    pub fn has(&self, block: I::Key) -> bool {
        self.blocks.find(block).is_some()
    }

    /// Removes `block` from the queue.
    pub fn forget(&mut self, block: I::Key) {
        self.blocks.forget(block);
    }

    /// Hints that `later` will be counted soon, and `soon`, an earlier `later`, even sooner.
    #[inline]
    pub fn prefetch(&self, soon: I::Key, later: I::Key) {
        self.blocks.prefetch_node(soon);
        self.blocks.prefetch_index(later);
    }

    /// Asserts that the queue is within its limit.
    pub fn check(&self) {
        self.blocks.check(self.len_max);
    }
}
