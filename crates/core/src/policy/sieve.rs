//! SIEVE: a queue in order of insertion, where a hand that moves from old to new evicts the first block not hit since
//! it passed.
//!
//! Source: Zhang, Yang, Yue, Vigfusson, Rashmi: SIEVE is simpler than LRU: an efficient turn-key eviction algorithm for
//! web caches. NSDI 2024, section 3, Algorithm 1.
//!
//! Departures from the paper: none. If the block under the hand is removed, the hand moves on as after an eviction.

use super::{Info, OnDemand, Policy, of_blocks, on_demand};
use crate::blocks::{Blocks, List, NodeId};
use crate::directory::Moved;
use crate::index::Index;
use crate::options::Options;

/// SIEVE's row in the table of policies.
pub static INFO: Info = Info {
    name: "sieve",
    title: "SIEVE",
    source: "Zhang, Yang, Yue, Vigfusson, Rashmi: SIEVE is simpler than LRU: an efficient turn-key eviction algorithm \
        for web \
             caches. NSDI 2024",
    parameters: &[],
    offline: false,
};

/// The cached blocks, the last inserted at the front, the head.
const T: List = List(0);

/// A queue with a hand that evicts the first block that was not visited.
#[derive(Debug)]
pub struct Sieve<I: Index> {
    c: usize,
    /// The position where the next search for a victim starts; `None` for the tail.
    hand: Option<NodeId>,
    /// Each block with its visited bit.
    blocks: Blocks<I, bool>,
}

impl<I: Index> Sieve<I> {
    /// Creates an empty cache of `capacity` blocks.
    pub fn new(index: I, capacity: usize, _options: &Options) -> Self {
        Sieve { c: capacity, hand: None, blocks: Blocks::new(index, 1, 0) }
    }
}

impl<I: Index> OnDemand<I> for Sieve<I> {
    #[inline]
    fn is_full(&self) -> bool {
        self.blocks.len(T) == self.c
    }

    #[inline]
    fn hit(&mut self, x: NodeId) {
        *self.blocks.data_mut(x) = true;
    }

    /// Moves the hand from the tail towards the head, clearing visited bits, and evicts the first block without one.
    #[inline]
    fn evict(&mut self) -> Option<I::Key> {
        let mut o = self.hand.or(self.blocks.back(T))?;
        while *self.blocks.data(o) {
            *self.blocks.data_mut(o) = false;
            o = self.blocks.toward_front(o).or(self.blocks.back(T))?;
        }
        self.hand = self.blocks.toward_front(o);
        let evicted = self.blocks.remove(o);
        if let Some(hand) = self.hand {
            self.blocks.prefetch_removal(hand);
        }
        Some(evicted)
    }

    #[inline]
    fn admit(&mut self, block: I::Key) {
        self.blocks.insert_front(T, block, false);
    }
}

impl<I: Index> Policy for Sieve<I> {
    of_blocks!(I);
    on_demand!(I);

    fn remove(&mut self, block: I::Key) -> bool {
        let Some(x) = self.blocks.find(block) else {
            return false;
        };
        if self.hand == Some(x) {
            self.hand = self.blocks.toward_front(x);
        }
        self.blocks.remove(x);
        true
    }

    #[inline]
    fn prefetch(&self, soon: I::Key, later: I::Key) {
        self.blocks.prefetch_data(soon);
        self.blocks.prefetch_index(later);
    }

    fn moved(&mut self, moved: Moved) {
        if self.hand == Some(moved.from) {
            self.hand = Some(moved.to);
        }
    }

    fn check(&self) {
        assert!(self.hand.is_none_or(|hand| self.blocks.list(hand) == T), "the hand points at no cached block");
        self.blocks.check(self.c);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Access;
    use crate::index::Dense;
    use crate::policy::Outcome;

    /// Draws the queue from its head: `'` marks a visited block, `<` the one under the hand.
    fn t(sieve: &Sieve<Dense>) -> String {
        let draw = |block| {
            let node = sieve.blocks.find(block);
            let visited = if node.is_some_and(|node| *sieve.blocks.data(node)) { "'" } else { "" };
            let hand = if node == sieve.hand { "<" } else { "" };
            format!("{block}{visited}{hand}")
        };
        sieve.blocks.keys(T).map(draw).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_hand_clears_visited_bits_evicts_in_the_middle_and_stays_there() {
        let mut sieve = Sieve::new(Dense::new(100), 3, &Options::default());
        let fill = Outcome::Admit { evicted: None };
        let evict = |block| Outcome::Admit { evicted: Some(block) };
        let rows = [
            (1, fill, "1"),
            (2, fill, "2 1"),
            (3, fill, "3 2 1"),
            (1, Outcome::Hit, "3 2 1'"),
            // From the tail: 1 was visited and stays in place, 2 is evicted, the hand stops at 3.
            (4, evict(2), "4 3< 1"),
            (4, Outcome::Hit, "4' 3< 1"),
            // From the hand, not from the tail: 3 is evicted.
            (5, evict(3), "5 4'< 1"),
            (5, Outcome::Hit, "5' 4'< 1"),
            // 4 and 5 are cleared; past the head the hand restarts at the tail: 1 is evicted, the hand stops at 4.
            (6, evict(1), "6 5 4<"),
            (7, evict(4), "7 6 5<"),
        ];
        for (block, outcome, queue) in rows {
            assert_eq!(sieve.access(Access::read(block)), outcome, "access to {block}");
            assert_eq!(t(&sieve), queue, "after the access to {block}");
            sieve.check();
        }
    }

    /// The evicted block was the head: the hand returns to the tail, not to the block inserted next.
    #[test]
    fn a_hand_that_passes_the_head_starts_again_at_the_tail() {
        let mut sieve = Sieve::new(Dense::new(100), 2, &Options::default());
        for block in [1, 2, 1] {
            sieve.access(Access::read(block));
        }
        let rows = [(3, 2, "3 1"), (4, 1, "4 3<")];
        for (block, evicted, queue) in rows {
            assert_eq!(sieve.access(Access::read(block)), Outcome::Admit { evicted: Some(evicted) });
            assert_eq!(t(&sieve), queue, "after the access to {block}");
        }
    }
}
