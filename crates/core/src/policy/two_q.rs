//! 2Q: admit a block to the main queue only on an access after it has left a FIFO queue.
//!
//! Source: Johnson, Shasha: 2Q: A Low Overhead High Performance Buffer Management Replacement Algorithm. VLDB 1994, the
//! full version.
//!
//! Departures from the paper:
//! - The paper does not define when `X`, found in `A1out`, leaves it. Here that is after `reclaimfor(X)`, which the
//!   paper calls first, so `X` still counts in the check `|A1out| > Kout`. If `X` itself is the tail to be removed, it
//!   leaves, and still goes to `Am`.
//! - If the cache is full and `|A1in| > Kin` does not hold, the paper pages out the tail of `Am`. If `Am` is empty,
//!   which requires `kin=100%`, the tail of `A1in` is paged out and remembered in `A1out`, as if `A1in` were too long.
//! - `Kin` and `Kout` are rounded down to whole blocks, which does not change the comparisons. With the paper's shares
//!   a cache of one block has `Kout` = 0, and is FIFO.

use super::{Info, Outcome, Policy, of_blocks};
use crate::access::Access;
use crate::blocks::{Blocks, List, NodeId};
use crate::index::Index;
use crate::options::{Kind, Options, Parameter};

/// 2Q's row in the table of policies.
pub static INFO: Info = Info {
    name: "2q",
    title: "2Q, full version",
    source: "Johnson, Shasha: 2Q: a low overhead high performance buffer management replacement algorithm. VLDB 1994",
    parameters: &[
        Parameter::of("kin", Kind::Number(0.0, 1.0), "25%")
            .means("Kin, the length above which blocks of A1in are evicted, as a share of the cache size"),
        Parameter::of("kout", Kind::Number(0.0, f64::MAX), "50%")
            .means("Kout, the number of blocks remembered in A1out, as a share of the cache size"),
    ],
    offline: false,
};

/// Cached blocks that were accessed again after their stay in `A1in`, most recently used first.
const AM: List = List(0);
/// Cached blocks in order of arrival, last first.
const A1IN: List = List(1);
/// Ghosts: blocks that left `A1in`, last first.
const A1OUT: List = List(2);

/// A FIFO queue of blocks accessed once, an LRU queue of the others, and ghosts of the former.
#[derive(Debug)]
pub struct TwoQ<I: Index> {
    c: usize,
    kin: usize,
    kout: usize,
    blocks: Blocks<I, ()>,
}

impl<I: Index> TwoQ<I> {
    /// Creates an empty cache of `capacity` blocks.
    pub fn new(index: I, capacity: usize, options: &Options) -> Self {
        let share = |name| (options.number(name) * capacity as f64) as usize;
        TwoQ { c: capacity, kin: share("kin"), kout: share("kout"), blocks: Blocks::new(index, 2, 1) }
    }

    /// Makes room for the block `X`; `x` is its node if it is in `A1out`.
    #[inline]
    fn reclaim_for(&mut self, x: Option<NodeId>) -> Option<I::Key> {
        if self.blocks.len(A1IN) + self.blocks.len(AM) < self.c {
            return None;
        }
        if self.blocks.len(A1IN) <= self.kin
            && let Some(tail) = self.blocks.back(AM)
        {
            // Not remembered in A1out: it has not been accessed for a while.
            let evicted = self.blocks.remove(tail);
            self.blocks.prefetch_back(AM);
            return Some(evicted);
        }
        let y = self.blocks.back(A1IN)?;
        let evicted = self.blocks.key(y);
        self.blocks.move_front(y, A1OUT);
        self.blocks.prefetch_back(A1IN);
        if self.blocks.len(A1OUT) > self.kout
            && let Some(tail) = self.blocks.back(A1OUT)
            && x != Some(tail)
        {
            self.blocks.remove(tail);
            self.blocks.prefetch_back(A1OUT);
        }
        Some(evicted)
    }
}

impl<I: Index> Policy for TwoQ<I> {
    of_blocks!(I);

    #[inline]
    fn access(&mut self, access: Access<I::Key>) -> Outcome<I::Key> {
        let Some(x) = self.blocks.find(access.block) else {
            let evicted = self.reclaim_for(None);
            self.blocks.insert_front(A1IN, access.block, ());
            return Outcome::Admit { evicted };
        };
        match self.blocks.list(x) {
            AM => {
                self.blocks.move_front(x, AM);
                Outcome::Hit
            }
            A1IN => Outcome::Hit,
            _ => {
                let evicted = self.reclaim_for(Some(x));
                self.blocks.move_front(x, AM);
                Outcome::Admit { evicted }
            }
        }
    }

    fn check(&self) {
        assert!(self.blocks.len(A1IN) + self.blocks.len(AM) <= self.c);
        let ghosts = self.blocks.len(A1OUT);
        assert!(ghosts <= self.kout, "{ghosts} ghosts, {} at most", self.kout);
        self.blocks.check(self.c.saturating_add(self.kout));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Dense;
    use crate::policy::outcomes::{FILL, HIT, evict};

    /// An access, its outcome, and `Am`, `A1in` and `A1out` after it.
    type Row<'a> = (u32, Outcome<u32>, &'a [u32], &'a [u32], &'a [u32]);

    fn run(capacity: usize, options: &str, rows: &[Row]) {
        let options = Options::parse("2q", INFO.parameters, options).unwrap();
        let mut two_q = TwoQ::new(Dense::new(100), capacity, &options);
        for (block, outcome, am, a1in, a1out) in rows {
            assert_eq!(two_q.access(Access::read(*block)), *outcome, "the access to {block}");
            let queues = [AM, A1IN, A1OUT].map(|list| two_q.blocks.keys(list).collect::<Vec<_>>());
            assert_eq!(queues, [am.to_vec(), a1in.to_vec(), a1out.to_vec()], "after the access to {block}");
            two_q.check();
        }
    }

    /// C = 4, Kin = 1, Kout = 2. Heads on the left.
    ///
    ///     access   Am     A1in      A1out
    ///     1               1
    ///     2               2 1
    ///     3               3 2 1
    ///     1  hit          3 2 1              stays where it is
    ///     4               4 3 2 1
    ///     5               5 4 3 2   1        1 pages out
    ///     1        1      5 4 3     2        2 pages out to A1out, then 1 moves to Am
    ///     6        1      6 5 4     3 2
    ///     2        2 1    6 5       4 3      4 pages out; A1out is 4 3 2 and its tail is 2 itself
    ///     2  hit   2 1    6 5       4 3
    #[test]
    fn a_block_enters_am_from_a1out_only() {
        run(
            4,
            "",
            &[
                (1, FILL, &[], &[1], &[]),
                (2, FILL, &[], &[2, 1], &[]),
                (3, FILL, &[], &[3, 2, 1], &[]),
                (1, HIT, &[], &[3, 2, 1], &[]),
                (4, FILL, &[], &[4, 3, 2, 1], &[]),
                (5, evict(1), &[], &[5, 4, 3, 2], &[1]),
                (1, evict(2), &[1], &[5, 4, 3], &[2]),
                (6, evict(3), &[1], &[6, 5, 4], &[3, 2]),
                (2, evict(4), &[2, 1], &[6, 5], &[4, 3]),
                (2, HIT, &[2, 1], &[6, 5], &[4, 3]),
            ],
        );
    }

    /// C = 2, Kin = 1, Kout = 2: once A1in is down to Kin, Am gives up its tail, which is not remembered.
    ///
    ///     access   Am     A1in   A1out
    ///     1               1
    ///     2               2 1
    ///     3               3 2    1
    ///     1        1      3      2        |A1in| = 2 > 1: 2 pages out
    ///     2        2      3               |A1in| = 1: 1 pages out, forgotten
    ///     1               1 3             |A1in| = 1: 2 pages out, forgotten
    ///     3  hit          1 3
    ///     4               4 1    3
    #[test]
    fn am_pages_out_while_a1in_is_not_longer_than_kin() {
        run(
            2,
            "kin=50%,kout=100%",
            &[
                (1, FILL, &[], &[1], &[]),
                (2, FILL, &[], &[2, 1], &[]),
                (3, evict(1), &[], &[3, 2], &[1]),
                (1, evict(2), &[1], &[3], &[2]),
                (2, evict(1), &[2], &[3], &[]),
                (1, evict(2), &[], &[1, 3], &[]),
                (3, HIT, &[], &[1, 3], &[]),
                (4, evict(3), &[], &[4, 1], &[3]),
            ],
        );
    }

    /// C = 4, Kin = 1, Kout = 2.
    ///
    ///     access   Am     A1in      A1out
    ///     1 2 3 4         4 3 2 1
    ///     5               5 4 3 2   1
    ///     6               6 5 4 3   2 1
    ///     2        2      6 5 4     3        3 pages out: A1out is 3 2 1, and 1 is removed; then 2 moves to Am
    #[test]
    fn the_block_that_is_promoted_counts_in_a1out_until_it_has_room() {
        run(
            4,
            "",
            &[
                (1, FILL, &[], &[1], &[]),
                (2, FILL, &[], &[2, 1], &[]),
                (3, FILL, &[], &[3, 2, 1], &[]),
                (4, FILL, &[], &[4, 3, 2, 1], &[]),
                (5, evict(1), &[], &[5, 4, 3, 2], &[1]),
                (6, evict(2), &[], &[6, 5, 4, 3], &[2, 1]),
                (2, evict(3), &[2], &[6, 5, 4], &[3]),
            ],
        );
    }

    /// C = 2, Kin = 2, Kout = 1: a full cache without a main queue pages out of A1in, even if short.
    #[test]
    fn a1in_pages_out_while_am_is_empty() {
        run(
            2,
            "kin=100%",
            &[
                (1, FILL, &[], &[1], &[]),
                (2, FILL, &[], &[2, 1], &[]),
                (3, evict(1), &[], &[3, 2], &[1]),
                (1, evict(2), &[1], &[3], &[2]),
            ],
        );
    }
}
