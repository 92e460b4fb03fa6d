//! The least frequently used block: a heap of uses. A use is outdated once its block was used again or left the cache.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Outdated uses are removed when the heap exceeds twice the cache's blocks by this many.
const SPARE_USES: usize = 64;

/// A use of a block. No two have the same rank.
#[derive(Clone, Copy, Debug)]
pub struct Use<K> {
    /// The number of uses of the block, this one included.
    pub frequency: u32,
    /// Among equal frequencies the lowest rank comes first.
    pub rank: u64,
    /// The block.
    pub key: K,
}

impl<K> Ord for Use<K> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.frequency, self.rank).cmp(&(other.frequency, other.rank))
    }
}

impl<K> PartialOrd for Use<K> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<K> PartialEq for Use<K> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<K> Eq for Use<K> {}

/// The last use of each block of a cache, and outdated ones, the least at the top.
#[derive(Clone, Debug)]
pub struct Uses<K> {
    heap: BinaryHeap<Reverse<Use<K>>>,
    len_max: usize,
}

impl<K: Copy> Uses<K> {
    /// Creates an empty heap for a cache of `capacity` blocks.
    pub fn new(capacity: usize) -> Uses<K> {
        Uses { heap: BinaryHeap::new(), len_max: capacity.saturating_mul(2).saturating_add(SPARE_USES) }
    }

    /// Adds a use. `is_current` is true for uses that are not outdated, including this one.
    #[inline]
    pub fn push(&mut self, used: Use<K>, is_current: impl Fn(&Use<K>) -> bool) {
        self.heap.push(Reverse(used));
        if self.heap.len() > self.len_max {
            self.heap.retain(|Reverse(used)| is_current(used));
        }
    }

    /// Returns the result of `current` for the least use that is not outdated; for outdated ones `current` returns
    /// `None`.
    #[inline]
    pub fn least<T>(&mut self, current: impl Fn(&Use<K>) -> Option<T>) -> Option<T> {
        loop {
            let Reverse(used) = self.heap.peek()?;
            let of_block = current(used);
            if of_block.is_some() {
                return of_block;
            }
            self.heap.pop();
        }
    }

    /// Asserts that each of `cached` blocks has exactly one current use. Slow; for tests.
    pub fn check(&self, cached: usize, is_current: impl Fn(&Use<K>) -> bool) {
        let current = self.heap.iter().filter(|Reverse(used)| is_current(used)).count();
        assert_eq!(current, cached, "each cached block has one use that is not outdated");
        assert!(self.heap.len() <= self.len_max, "{} uses, {} at most", self.heap.len(), self.len_max);
    }
}
