//! Open CAS's LRU: the more recent half of the queue is hot, and a hit on a hot block moves nothing.
//!
//! Source: the Open CAS Framework, `src/ocf_lru.c`: "hot" blocks and how the list is balanced.
//!
//! Departures from its code:
//! - It has 32 lists to reduce lock contention, chosen by the block's position in the cache; here there is one.
//! - It keeps clean and dirty blocks on separate lists, and evicts only clean ones. Here a policy does not know which
//!   blocks are dirty.
//! - Its promotion policy, which decides about admission, is here the admission rule `nhit`.

use super::{Info, OnDemand, Policy, of_blocks, on_demand};
use crate::blocks::{Blocks, List, NodeId};
use crate::index::Index;
use crate::options::Options;

/// The row of Open CAS's LRU in the table of policies.
pub static INFO: Info = Info {
    name: "ocf-lru",
    title: "LRU of Open CAS, whose hot half stays in order",
    source: "Open CAS Framework, src/ocf_lru.c",
    parameters: &[],
    offline: false,
};

/// The front half of the queue, in order of entry.
const HOT: List = List(0);
/// The back half.
const COLD: List = List(1);

/// An LRU queue in which a block moves only when hit behind the middle.
#[derive(Debug)]
pub struct OcfLru<I: Index> {
    c: usize,
    blocks: Blocks<I, ()>,
}

impl<I: Index> OcfLru<I> {
    /// Creates an empty cache of `capacity` blocks.
    pub fn new(index: I, capacity: usize, _options: &Options) -> Self {
        OcfLru { c: capacity, blocks: Blocks::new(index, 2, 0) }
    }

    /// Cools the last hot block if more than half of the blocks are hot, or warms the first cold one if fewer are.
    #[inline]
    fn balance(&mut self) {
        let hot_target = self.blocks.cached_len() / 2;
        if self.blocks.len(HOT) > hot_target
            && let Some(last_hot) = self.blocks.back(HOT)
        {
            self.blocks.move_front(last_hot, COLD);
        } else if self.blocks.len(HOT) < hot_target
            && let Some(first_cold) = self.blocks.front(COLD)
        {
            self.blocks.move_back(first_cold, HOT);
        }
    }
}

impl<I: Index> OnDemand<I> for OcfLru<I> {
    #[inline]
    fn is_full(&self) -> bool {
        self.blocks.cached_len() == self.c
    }

    #[inline]
    fn hit(&mut self, node: NodeId) {
        if self.blocks.list(node) == COLD {
            self.blocks.move_front(node, HOT);
            self.balance();
        }
    }

    #[inline]
    fn evict(&mut self) -> Option<I::Key> {
        self.blocks.pop_back(COLD)
    }

    #[inline]
    fn admit(&mut self, block: I::Key) {
        self.blocks.insert_front(HOT, block, ());
        self.balance();
    }
}

impl<I: Index> Policy for OcfLru<I> {
    of_blocks!(I);
    on_demand!(I);

    fn remove(&mut self, block: I::Key) -> bool {
        let removed = self.blocks.forget(block).is_some();
        self.balance();
        removed
    }

    fn check(&self) {
        assert_eq!(self.blocks.len(HOT), self.blocks.cached_len() / 2, "hot blocks");
        self.blocks.check(self.c);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Access;
    use crate::index::Dense;
    use crate::policy::outcomes::{FILL, HIT, evict};

    /// Four blocks, `hot | cold`, the head first.
    #[test]
    fn a_hit_on_a_hot_block_moves_nothing_and_one_on_a_cold_block_makes_it_hot() {
        let rows = [
            (1, FILL, " | 1"),
            (2, FILL, "2 | 1"),
            (3, FILL, "3 | 2 1"),
            (4, FILL, "4 3 | 2 1"),
            (3, HIT, "4 3 | 2 1"),
            (1, HIT, "1 4 | 3 2"),
            (5, evict(2), "5 1 | 4 3"),
            // LRU would have evicted 4 here.
            (6, evict(3), "6 5 | 1 4"),
        ];
        let mut lru = OcfLru::new(Dense::new(100), 4, &Options::default());
        for (block, outcome, after) in rows {
            assert_eq!(lru.access(Access::read(block)), outcome, "access to {block}");
            let draw = |list| lru.blocks.keys(list).map(|key| key.to_string()).collect::<Vec<_>>().join(" ");
            assert_eq!([HOT, COLD].map(draw).join(" | "), after, "after the access to {block}");
            lru.check();
        }
    }
}
