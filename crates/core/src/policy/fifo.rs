//! FIFO: evict the block that has been in the cache for the longest time.
//!
//! Source: Belady: A study of replacement algorithms for a virtual-storage computer. IBM Systems Journal 5(2), 1966.
//!
//! Departures from the paper: none.

use super::{Info, OnDemand, Policy, of_blocks, on_demand};
use crate::blocks::{Blocks, List, NodeId};
use crate::index::Index;
use crate::options::Options;

/// FIFO's row in the table of policies.
pub static INFO: Info = Info {
    name: "fifo",
    title: "First In, First Out",
    source: "Belady: A study of replacement algorithms for a virtual-storage computer. IBM Systems Journal 5(2), 1966",
    parameters: &[],
    offline: false,
};

/// The cached blocks, last admitted first.
const Q: List = List(0);

/// Evicts the block that was admitted first.
#[derive(Debug)]
pub struct Fifo<I: Index> {
    c: usize,
    blocks: Blocks<I, ()>,
}

impl<I: Index> Fifo<I> {
    /// Creates an empty cache of `capacity` blocks.
    pub fn new(index: I, capacity: usize, _options: &Options) -> Self {
        Fifo { c: capacity, blocks: Blocks::new(index, 1, 0) }
    }
}

impl<I: Index> OnDemand<I> for Fifo<I> {
    #[inline]
    fn is_full(&self) -> bool {
        self.blocks.len(Q) == self.c
    }

    #[inline]
    fn hit(&mut self, _: NodeId) {}

    #[inline]
    fn evict(&mut self) -> Option<I::Key> {
        self.blocks.pop_back(Q)
    }

    #[inline]
    fn admit(&mut self, block: I::Key) {
        self.blocks.insert_front(Q, block, ());
    }
}

impl<I: Index> Policy for Fifo<I> {
    of_blocks!(I);
    on_demand!(I);

    /// A hit touches no node, so only the index is prefetched.
    #[inline]
    fn prefetch(&self, _soon: I::Key, later: I::Key) {
        self.blocks.prefetch_index(later);
    }

    fn check(&self) {
        self.blocks.check(self.c);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Access;
    use crate::index::Dense;
    use crate::policy::Outcome;

    /// A cache of 3 blocks. The hit on 1 does not save it: the miss of 4 still evicts it.
    ///
    ///     access   queue after it, last admitted first
    ///     1        1
    ///     2        2 1
    ///     3        3 2 1
    ///     1  hit   3 2 1
    ///     4        4 3 2    1 leaves
    ///     1        1 4 3    2 leaves
    ///     3  hit   1 4 3
    #[test]
    fn a_hit_does_not_delay_eviction() {
        let mut fifo = Fifo::new(Dense::new(100), 3, &Options::default());
        let rows: [(u32, Outcome<u32>, &[u32]); 7] = [
            (1, Outcome::Admit { evicted: None }, &[1]),
            (2, Outcome::Admit { evicted: None }, &[2, 1]),
            (3, Outcome::Admit { evicted: None }, &[3, 2, 1]),
            (1, Outcome::Hit, &[3, 2, 1]),
            (4, Outcome::Admit { evicted: Some(1) }, &[4, 3, 2]),
            (1, Outcome::Admit { evicted: Some(2) }, &[1, 4, 3]),
            (3, Outcome::Hit, &[1, 4, 3]),
        ];
        for (block, outcome, queue) in rows {
            assert_eq!(fifo.access(Access::read(block)), outcome);
            assert_eq!(fifo.blocks.keys(Q).collect::<Vec<_>>(), queue, "after the access to {block}");
            fifo.check();
        }
    }
}
