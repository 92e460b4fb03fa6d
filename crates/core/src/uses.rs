//! Which block was used least often: a heap of uses, where a use is outdated once its block was used again or has left.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// The heap is rid of what is outdated when it has this many uses more than twice those of the cache.
const SPARE_USES: usize = 64;

/// A use of a block. No two have the same rank.
#[derive(Clone, Copy, Debug)]
pub struct Use<K> {
    /// How often the block was used, this time included.
    pub frequency: u32,
    /// Among blocks that were used as often the one of the least rank comes first.
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

/// Uses of the blocks of a cache, the last of each and outdated ones, the least at the top.
#[derive(Clone, Debug)]
pub struct Uses<K> {
    heap: BinaryHeap<Reverse<Use<K>>>,
    len_max: usize,
}

impl<K: Copy> Uses<K> {
    /// None yet, of a cache of `capacity` blocks.
    pub fn new(capacity: usize) -> Uses<K> {
        Uses { heap: BinaryHeap::new(), len_max: capacity.saturating_mul(2).saturating_add(SPARE_USES) }
    }

    /// Notes a use. `is_current` tells of each, this one included, whether it is not outdated.
    #[inline]
    pub fn push(&mut self, used: Use<K>, is_current: impl Fn(&Use<K>) -> bool) {
        self.heap.push(Reverse(used));
        if self.heap.len() > self.len_max {
            self.heap.retain(|Reverse(used)| is_current(used));
        }
    }

    /// What `current` says of the least use that is not outdated; of outdated ones it says none.
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

    /// Asserts that each of `cached` blocks has one use that is not outdated. Slow; for tests.
    pub fn check(&self, cached: usize, is_current: impl Fn(&Use<K>) -> bool) {
        let current = self.heap.iter().filter(|Reverse(used)| is_current(used)).count();
        assert_eq!(current, cached, "each cached block has one use that is not outdated");
        assert!(self.heap.len() <= self.len_max, "{} uses, {} at most", self.heap.len(), self.len_max);
    }
}
