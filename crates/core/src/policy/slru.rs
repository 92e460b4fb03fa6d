//! SLRU, segmented LRU: a block enters the lowest of some LRU segments, and each hit lifts it to the next.
//!
//! Source: Karedla, Love, Wherry: Caching strategies to improve disk system performance. IEEE Computer 27(3), 1994, for
//! two segments, probationary and protected. For four of equal length, S4LRU: Huang, Birman, van Renesse, Lloyd, Kumar,
//! Li: An analysis of Facebook photo caching. SOSP 2013.
//!
//! Departures from the paper:
//! - The article leaves the length of the protected segment to a tuner. Here it is four fifths by default, as in the
//!   main cache of W-TinyLFU; with `segments=4,protected=75%` the policy is S4LRU.
//! - A segment that exceeds its limit moves its least recently used block to the one below. So the lowest segment uses
//!   the space that those above leave free. A block is evicted only when the whole cache is full: the least recently
//!   used of the lowest non-empty segment.

use super::{Info, OnDemand, Policy, of_blocks, on_demand};
use crate::blocks::{Blocks, List, NodeId};
use crate::index::Index;
use crate::options::{Kind, Options, Parameter};

/// SLRU's row in the table of policies.
pub static INFO: Info = Info {
    name: "slru",
    title: "Segmented LRU",
    source: "Karedla, Love, Wherry: Caching strategies to improve disk system performance. IEEE Computer 27(3), 1994",
    parameters: &[
        Parameter::of("segments", Kind::Count(2, SEGMENTS_MAX as u64), "2")
            .means("the number of segments; 2 in the article, 4 in S4LRU"),
        Parameter::of("protected", Kind::Number(0.0, 1.0), "80%")
            .means("the share of the cache that the segments above the lowest may have, each as much as the others"),
    ],
    offline: false,
};

const SEGMENTS_MAX: u8 = 16;

/// The lowest segment, which missed blocks enter. In every segment the most recently used block comes first.
const PROBATIONARY: List = List(0);

/// LRU segments that blocks climb by hits.
#[derive(Debug)]
pub struct Slru<I: Index> {
    c: usize,
    segments: u8,
    /// The most blocks of each segment above the lowest.
    protected_max: usize,
    blocks: Blocks<I, ()>,
}

impl<I: Index> Slru<I> {
    /// Creates an empty cache of `capacity` blocks.
    pub fn new(index: I, capacity: usize, options: &Options) -> Self {
        let segments = options.count("segments").min(SEGMENTS_MAX.into()) as u8;
        let protected = options.number("protected") * capacity as f64 / f64::from(segments - 1);
        Slru { c: capacity, segments, protected_max: protected as usize, blocks: Blocks::new(index, segments, 0) }
    }

    /// Moves the excess of segment `from` to the one below, and so on down.
    #[inline]
    fn settle(&mut self, from: u8) {
        for segment in (1..=from).rev() {
            match self.blocks.back(List(segment)) {
                Some(last) if self.blocks.len(List(segment)) > self.protected_max => {
                    self.blocks.move_front(last, List(segment - 1));
                }
                _ => break,
            }
        }
    }
}

impl<I: Index> OnDemand<I> for Slru<I> {
    #[inline]
    fn is_full(&self) -> bool {
        self.blocks.cached_len() == self.c
    }

    #[inline]
    fn hit(&mut self, node: NodeId) {
        let segment = (self.blocks.list(node).0 + 1).min(self.segments - 1);
        self.blocks.move_front(node, List(segment));
        self.settle(segment);
    }

    #[inline]
    fn evict(&mut self) -> Option<I::Key> {
        (0..self.segments).find_map(|segment| self.blocks.pop_back(List(segment)))
    }

    #[inline]
    fn admit(&mut self, block: I::Key) {
        self.blocks.insert_front(PROBATIONARY, block, ());
    }
}

impl<I: Index> Policy for Slru<I> {
    of_blocks!(I);
    on_demand!(I);

    fn check(&self) {
        for segment in 1..self.segments {
            assert!(self.blocks.len(List(segment)) <= self.protected_max, "segment {segment}");
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

    /// Compares the segments after each access, lowest first, each most recently used first.
    fn compare(capacity: usize, options: &str, rows: &[(u32, Outcome<u32>, &str)]) {
        let options = Options::parse("slru", INFO.parameters, options).unwrap();
        let mut slru = Slru::new(Dense::new(100), capacity, &options);
        for &(block, outcome, after) in rows {
            assert_eq!(slru.access(Access::read(block)), outcome, "access to {block}");
            let draw = |list| slru.blocks.keys(List(list)).map(|key| key.to_string()).collect::<Vec<_>>().join(" ");
            let segments = (0..slru.segments).map(draw).collect::<Vec<_>>().join(" | ");
            assert_eq!(segments, after, "after the access to {block}");
            slru.check();
        }
    }

    /// Four blocks; at most two are protected.
    #[test]
    fn a_hit_protects_a_block_and_the_last_protected_one_goes_back() {
        let rows = [
            (1, FILL, "1 | "),
            (2, FILL, "2 1 | "),
            (1, HIT, "2 | 1"),
            (3, FILL, "3 2 | 1"),
            (4, FILL, "4 3 2 | 1"),
            (5, evict(2), "5 4 3 | 1"),
            (3, HIT, "5 4 | 3 1"),
            (4, HIT, "1 5 | 4 3"),
            (6, evict(5), "6 1 | 4 3"),
            (1, HIT, "3 6 | 1 4"),
        ];
        compare(4, "protected=50%", &rows);
    }

    /// Three blocks in three segments; the upper two may have one each.
    #[test]
    fn with_more_segments_a_hit_lifts_by_one_and_pushes_one_down_from_each_full_segment() {
        let rows = [
            (1, FILL, "1 |  | "),
            (1, HIT, " | 1 | "),
            (1, HIT, " |  | 1"),
            (2, FILL, "2 |  | 1"),
            (2, HIT, " | 2 | 1"),
            (2, HIT, " | 1 | 2"),
            (3, FILL, "3 | 1 | 2"),
            (3, HIT, "1 | 3 | 2"),
            (3, HIT, "1 | 2 | 3"),
            (4, evict(1), "4 | 2 | 3"),
        ];
        compare(3, "segments=3,protected=67%", &rows);
    }
}
