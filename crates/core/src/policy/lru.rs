//! LRU: evict the least recently used block.
//!
//! Source: common knowledge; as the baseline of LARC (Huang et al., MSST 2013), section II.C.
//!
//! Departures from the paper: none.

use super::{Info, OnDemand, Policy, of_blocks, on_demand};
use crate::blocks::{Blocks, List, NodeId};
use crate::index::Index;
use crate::options::Options;

/// LRU's row in the table of policies.
pub static INFO: Info = Info {
    name: "lru",
    title: "Least Recently Used",
    source: "Mattson, Gecsei, Slutz, Traiger: Evaluation techniques for storage hierarchies. IBM Systems Journal 9(2), \
        1970",
    parameters: &[],
    offline: false,
};

/// The cached blocks, most recently used first.
const Q: List = List(0);

/// Evicts the least recently used block.
#[derive(Debug)]
pub struct Lru<I: Index> {
    c: usize,
    blocks: Blocks<I, ()>,
}

impl<I: Index> Lru<I> {
    /// Creates an empty cache of `capacity` blocks.
    pub fn new(index: I, capacity: usize, _options: &Options) -> Self {
        Lru { c: capacity, blocks: Blocks::new(index, 1, 0) }
    }
}

impl<I: Index> OnDemand<I> for Lru<I> {
    #[inline]
    fn is_full(&self) -> bool {
        self.blocks.len(Q) == self.c
    }

    #[inline]
    fn hit(&mut self, node: NodeId) {
        self.blocks.move_front(node, Q);
    }

    #[inline]
    fn evict(&mut self) -> Option<I::Key> {
        self.blocks.pop_back(Q)
    }

    #[inline]
    fn admit(&mut self, block: I::Key) {
        self.blocks.insert_front(Q, block, ());
    }
}

impl<I: Index> Policy for Lru<I> {
    of_blocks!(I);
    on_demand!(I);

    fn check(&self) {
        self.blocks.check(self.c);
    }
}
