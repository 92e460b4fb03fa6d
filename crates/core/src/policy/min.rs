//! MIN with bypass: no cache of its size hits more often, and it admits only blocks that it will hit. It must know the
//! future.
//!
//! Source: Belady: A study of replacement algorithms for a virtual-storage computer. IBM Systems Journal 5(2), 1966,
//! algorithm MIN, for a cache that may bypass misses. Proof that its hits are maximal: Faigle, Nawijn: Note on
//! scheduling intervals on-line. Discrete Applied Mathematics 58(1), 1995. An access and the next one to the same block
//! are the ends of an interval. The interval is a hit if a place is kept for it throughout. If more intervals overlap
//! than there are places, the one that ends last is dropped.
//!
//! Departures from the paper:
//! - Once it [foresees](Policy::foresee) the whole trace, it admits a block only if it will hit before it is dropped.
//!   Otherwise it admits a block that is accessed again before another cached block; some of those are evicted for a
//!   block that is needed sooner.
//! - Several choices have the maximum of hits, and this one does not always have the fewest admissions. A cached block
//!   that was hit costs no admission to keep, but may be the one dropped. On random traces of 40 accesses to at most 9
//!   blocks, an exhaustive search finds as many hits with fewer admissions. MIN has 77, 52, 28 and 12 % more in 1, 2, 3
//!   and 4 places. FIF has 7.3, 3.7, 2.4 and 1.7 times the fewest. The fewest admissions are a minimum-cost flow
//!   through the whole trace. By that (`crates/sim/tests/sim/min.rs`) MIN has 17 to 20 % more than needed on random
//!   traces. These have 3,000 accesses to 500 blocks, in 10 to 150 places. On pieces of 4,000 accesses of the bundled
//!   trace, which re-read little, it has none more.
//! - While places are free, a block that is not accessed again is still not admitted.
//! - The hits are maximal for the foreseen accesses. A simulation with a warm-up foresees those that it counts.

use super::fif::Fif;
use super::{Info, Outcome, Policy};
use crate::access::{Access, NEVER};
use crate::blocks::Queues;
use crate::index::Index;
use crate::options::Options;
use crate::positions::Positions;

/// MIN's row in the table of policies.
pub static INFO: Info = Info {
    name: "min",
    title: "MIN with bypass: the best possible",
    source: "Belady: A study of replacement algorithms for a virtual-storage computer. IBM Systems Journal 5(2), 1966; \
        Faigle, \
             Nawijn: Note on scheduling intervals on-line. Discrete Applied Mathematics 58(1), 1995",
    parameters: &[],
    offline: true,
};

/// Admits the blocks that it hits, and evicts the block whose next access is furthest away.
#[derive(Debug)]
pub struct Min<I: Index> {
    c: usize,
    /// The positions of the accesses that hit, once foreseen.
    hits: Option<Positions>,
    /// The cached blocks and their eviction order.
    fif: Fif<I>,
}

impl<I: Index> Min<I> {
    /// Creates an empty cache of `capacity` blocks.
    pub fn new(index: I, capacity: usize, options: &Options) -> Self {
        Min { c: capacity, hits: None, fif: Fif::new(index, capacity, options) }
    }

    /// True if a missed block that is accessed again at `next_use` is admitted.
    #[inline]
    fn admits(&self, next_use: u32) -> bool {
        next_use != NEVER
            && (!self.fif.is_full() || self.fif.furthest_use().is_some_and(|furthest| next_use < furthest))
    }
}

impl<I: Index> Policy for Min<I> {
    type Key = I::Key;

    fn blocks(&self) -> Option<&dyn Queues<I::Key>> {
        None
    }

    fn blocks_mut(&mut self) -> Option<&mut dyn Queues<I::Key>> {
        None
    }

    /// Opens the interval that begins at each position. If more are open than there are places, drops the one that ends
    /// last.
    fn foresee(&mut self, next_uses: &[u32]) {
        let (mut hits, mut open) = (Positions::new(), 0);
        for (position, &next_use) in (0..).zip(next_uses) {
            open -= usize::from(hits.contains(position));
            if next_use == NEVER {
                continue;
            }
            hits.insert(next_use);
            open += 1;
            if open > self.c
                && let Some(last) = hits.greatest()
            {
                hits.remove(last);
                open -= 1;
            }
        }
        self.hits = Some(hits);
    }

    #[inline]
    fn access(&mut self, access: Access<I::Key>) -> Outcome<I::Key> {
        let is_hit = |hits: &Positions| access.next_use != NEVER && hits.contains(access.next_use);
        let next_use = if self.hits.as_ref().is_none_or(is_hit) { access.next_use } else { NEVER };
        if !self.fif.contains(access.block) && !self.admits(next_use) {
            return Outcome::Bypass;
        }
        self.fif.access(Access { next_use, ..access })
    }

    fn remove(&mut self, block: I::Key) -> bool {
        self.fif.remove(block)
    }

    #[inline]
    fn contains(&self, block: I::Key) -> bool {
        self.fif.contains(block)
    }

    #[inline]
    fn len(&self) -> usize {
        self.fif.len()
    }

    #[inline]
    fn prefetch(&self, soon: I::Key, later: I::Key) {
        self.fif.prefetch(soon, later);
    }

    fn check(&self) {
        self.fif.check();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Dense;
    use crate::policy::outcomes::{FILL, HIT};

    const BYPASS: Outcome<u32> = Outcome::Bypass;

    fn next_uses(blocks: &[u32]) -> Vec<u32> {
        let next_use = |(at, block)| {
            let later = blocks[at + 1..].iter().position(|later| later == block);
            later.map_or(NEVER, |distance| (at + 1 + distance) as u32)
        };
        blocks.iter().enumerate().map(next_use).collect()
    }

    fn outcomes(capacity: usize, foresees: bool, blocks: &[u32]) -> Vec<Outcome<u32>> {
        let mut min = Min::new(Dense::new(10), capacity, &Options::default());
        let next_uses = next_uses(blocks);
        if foresees {
            min.foresee(&next_uses);
        }
        let access = |(&block, &next_use)| {
            let outcome = min.access(Access { next_use, ..Access::read(block) });
            min.check();
            outcome
        };
        blocks.iter().zip(&next_uses).map(access).collect()
    }

    /// Two places, and a block that is accessed once after each 1 and 2: admitting it would evict 1 or 2 each time.
    #[test]
    fn blocks_accessed_once_bypass_it() {
        let blocks = [1, 2, 3, 1, 2, 4, 1, 2, 5];
        for foresees in [false, true] {
            let expected = [FILL, FILL, BYPASS, HIT, HIT, BYPASS, HIT, HIT, BYPASS];
            assert_eq!(outcomes(2, foresees, &blocks), expected);
        }
    }

    /// One place. Intervals; the second begins and ends within the first:
    ///
    ///     position   0  1  2  3
    ///     block      1  2  2  1
    ///                |--------|
    ///                   |--|
    #[test]
    fn blocks_evicted_before_a_hit_are_not_admitted_with_foresight() {
        let evict = |evicted| Outcome::Admit { evicted: Some(evicted) };
        assert_eq!(outcomes(1, false, &[1, 2, 2, 1]), [FILL, evict(1), HIT, BYPASS]);
        assert_eq!(outcomes(1, true, &[1, 2, 2, 1]), [BYPASS, FILL, HIT, BYPASS]);
    }
}
