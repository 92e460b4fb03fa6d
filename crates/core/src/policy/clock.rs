//! CLOCK: blocks form a circle in order of insertion; a hand evicts the first that was not hit since it passed.
//!
//! Source: Corbató: A paging experiment with the Multics system. MIT Project MAC report MAC-M-384, 1968; with counters
//! in place of use bits, generalized CLOCK: Smith: Sequentiality and prefetching in database systems. ACM Transactions
//! on Database Systems 3(3), 1978.
//!
//! Departures from the paper:
//! - The circle is a list with the hand at its back. A block that the hand spares moves to the front: FIFO with
//!   reinsertion, which evicts the same blocks.
//! - A block's use bit is set by hits, not by the miss that admits it. Each hit adds 1 up to 2^`bits` - 1, and the hand
//!   subtracts 1.

use super::{Info, OnDemand, Policy, of_blocks, on_demand};
use crate::blocks::{Blocks, List, NodeId};
use crate::index::Index;
use crate::options::{Kind, Options, Parameter};

/// CLOCK's row in the table of policies.
pub static INFO: Info = Info {
    name: "clock",
    title: "CLOCK, second chance",
    source: "Corbató: A paging experiment with the Multics system. MIT Project MAC report MAC-M-384, 1968",
    parameters: &[Parameter::of("bits", Kind::Count(1, 8), "1")
        .means("the length of a block's counter of hits; 1 is the use bit of the report, more is generalized CLOCK")],
    offline: false,
};

/// The circle. The hand is at its back, and moves towards the front.
const CIRCLE: List = List(0);

/// A circle of blocks with a hand that spares those hit recently.
#[derive(Debug)]
pub struct Clock<I: Index> {
    c: usize,
    uses_max: u8,
    /// Each block with its count of hits, less those that the hand subtracted.
    blocks: Blocks<I, u8>,
}

impl<I: Index> Clock<I> {
    /// Creates an empty cache of `capacity` blocks.
    pub fn new(index: I, capacity: usize, options: &Options) -> Self {
        let uses_max = u8::MAX >> (8 - options.count("bits").min(8));
        Clock { c: capacity, uses_max, blocks: Blocks::new(index, 1, 0) }
    }
}

impl<I: Index> OnDemand<I> for Clock<I> {
    #[inline]
    fn is_full(&self) -> bool {
        self.blocks.len(CIRCLE) == self.c
    }

    #[inline]
    fn hit(&mut self, node: NodeId) {
        let uses = self.blocks.data_mut(node);
        *uses += u8::from(*uses < self.uses_max);
    }

    /// Advances the hand to a block with a count of 0, and evicts it.
    #[inline]
    fn evict(&mut self) -> Option<I::Key> {
        while let Some(under_hand) = self.blocks.back(CIRCLE) {
            let uses = self.blocks.data_mut(under_hand);
            if *uses == 0 {
                break;
            }
            *uses -= 1;
            self.blocks.move_front(under_hand, CIRCLE);
            self.blocks.prefetch_back(CIRCLE);
        }
        self.blocks.pop_back(CIRCLE)
    }

    #[inline]
    fn admit(&mut self, block: I::Key) {
        self.blocks.insert_front(CIRCLE, block, 0);
    }
}

impl<I: Index> Policy for Clock<I> {
    of_blocks!(I);
    on_demand!(I);

    #[inline]
    fn prefetch(&self, soon: I::Key, later: I::Key) {
        self.blocks.prefetch_data(soon);
        self.blocks.prefetch_index(later);
    }

    fn check(&self) {
        for block in self.blocks.keys(CIRCLE) {
            let uses = self.blocks.find(block).map(|node| *self.blocks.data(node));
            assert!(uses <= Some(self.uses_max), "{block:?} has {uses:?} uses");
        }
        self.blocks.check(self.c);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Access;
    use crate::index::Dense;
    use crate::policy::Outcome;
    use crate::policy::outcomes::{FILL, HIT, evict};

    /// Compares the circle after each access, from behind the hand to under it, with a `'` for each use.
    fn compare(options: &str, rows: &[(u32, Outcome<u32>, &str)]) {
        let options = Options::parse("clock", INFO.parameters, options).unwrap();
        let mut clock = Clock::new(Dense::new(100), 3, &options);
        for &(block, outcome, after) in rows {
            assert_eq!(clock.access(Access::read(block)), outcome, "access to {block}");
            let uses = |block| clock.blocks.find(block).map_or(0, |node| *clock.blocks.data(node));
            let draw = |block| format!("{block}{}", "'".repeat(usize::from(uses(block))));
            let circle = clock.blocks.keys(CIRCLE).map(draw).collect::<Vec<_>>().join(" ");
            assert_eq!(circle, after, "after the access to {block}");
            clock.check();
        }
    }

    #[test]
    fn the_hand_spares_each_block_once_that_was_hit_since_it_passed() {
        let rows = [
            (1, FILL, "1"),
            (2, FILL, "2 1"),
            (3, FILL, "3 2 1"),
            (1, HIT, "3 2 1'"),
            (1, HIT, "3 2 1'"),
            // The hand spares 1 and evicts 2.
            (4, evict(2), "4 1 3"),
            (3, HIT, "4 1 3'"),
            (4, HIT, "4' 1 3'"),
            (5, evict(1), "5 3 4'"),
            // All the way round to 3, which was spared before.
            (6, evict(3), "6 4 5"),
        ];
        compare("", &rows);
    }

    #[test]
    fn with_two_bits_three_hits_are_three_rounds() {
        let rows = [
            (1, FILL, "1"),
            (2, FILL, "2 1"),
            (3, FILL, "3 2 1"),
            (1, HIT, "3 2 1'"),
            (1, HIT, "3 2 1''"),
            (1, HIT, "3 2 1'''"),
            (1, HIT, "3 2 1'''"),
            (4, evict(2), "4 1'' 3"),
            (5, evict(3), "5 4 1''"),
        ];
        compare("bits=2", &rows);
    }
}
