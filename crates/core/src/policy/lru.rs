//! LRU: evict the least recently used block.
//!
//! Source: folklore; as the baseline of LARC (Huang et al., MSST 2013), section II.C.
//!
//! Departures from the paper: none.

use super::{Info, Outcome, Policy};
use crate::access::Access;
use crate::blocks::{Blocks, List, Queues};
use crate::index::Index;
use crate::options::Options;

/// LRU's row in the table of policies.
pub static INFO: Info = Info {
    name: "lru",
    title: "Least Recently Used",
    source: "Mattson, Gecsei, Slutz, Traiger: Evaluation techniques for storage hierarchies. IBM Systems Journal 9(2), 1970",
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
    /// An empty cache of `capacity` blocks.
    pub fn new(index: I, capacity: usize, _options: &Options) -> Self {
        Lru { c: capacity, blocks: Blocks::new(index, 1, 0) }
    }
}

impl<I: Index> Policy for Lru<I> {
    type Key = I::Key;

    fn blocks(&self) -> Option<&dyn Queues<I::Key>> {
        Some(&self.blocks)
    }

    fn blocks_mut(&mut self) -> Option<&mut dyn Queues<I::Key>> {
        Some(&mut self.blocks)
    }

    #[inline]
    fn access(&mut self, access: Access<I::Key>) -> Outcome<I::Key> {
        if let Some(node) = self.blocks.find(access.block) {
            self.blocks.move_front(node, Q);
            return Outcome::Hit;
        }
        let evicted = if self.blocks.len(Q) == self.c { self.blocks.pop_back(Q) } else { None };
        self.blocks.insert_front(Q, access.block, ());
        Outcome::Admit { evicted }
    }

    fn check(&self) {
        self.blocks.check(self.c);
    }
}
