//! ARC: two LRU lists, of blocks seen once and of blocks seen repeatedly. Hits in their ghosts set their shares of the
//! cache.
//!
//! Source: Megiddo, Modha: ARC: A Self-Tuning, Low Overhead Replacement Cache. FAST 2003, Figure 4.
//!
//! Departures from the paper: none. `p` is a real number in both, so `|T1| = p` in REPLACE holds only if `p` is whole.
//! The paper removes no blocks. Here a removed block leaves its list, `p` stays, and REPLACE evicts nothing until the
//! cache is full again. Meanwhile ghosts exist beside free places; they still hit, tune `p` and are forgotten.

use super::{Info, Outcome, Policy, of_blocks};
use crate::access::Access;
use crate::blocks::{Blocks, List};
use crate::index::Index;
use crate::options::Options;

/// ARC's row in the table of policies.
pub static INFO: Info = Info {
    name: "arc",
    title: "Adaptive Replacement Cache",
    source: "Megiddo, Modha: ARC: a self-tuning, low overhead replacement cache. FAST 2003",
    parameters: &[],
    offline: false,
};

/// Cached blocks seen once recently, most recently used first.
const T1: List = List(0);
/// Cached blocks seen at least twice recently, most recently used first.
const T2: List = List(1);
/// Ghosts of `T1`, last evicted first.
const B1: List = List(2);
/// Ghosts of `T2`, last evicted first.
const B2: List = List(3);

/// Two LRU lists, each with a list of ghosts.
#[derive(Debug)]
pub struct Arc<I: Index> {
    c: usize,
    /// The target size of `T1`, 0 to `c`.
    p: f64,
    blocks: Blocks<I, ()>,
}

impl<I: Index> Arc<I> {
    /// Creates an empty cache of `capacity` blocks.
    pub fn new(index: I, capacity: usize, _options: &Options) -> Self {
        Arc { c: capacity, p: 0.0, blocks: Blocks::new(index, 2, 2) }
    }

    #[inline]
    fn delete_lru(&mut self, list: List) -> Option<I::Key> {
        self.blocks.pop_back(list)
    }

    /// REPLACE(x, p): evicts the LRU block of `T1` or `T2` into its ghost list, unless removals left a place free.
    #[inline]
    fn replace(&mut self, x_in_b2: bool) -> Option<I::Key> {
        if self.blocks.len(T1) + self.blocks.len(T2) < self.c {
            return None;
        }
        let t1 = self.blocks.len(T1) as f64;
        let from_t1 = t1 > 0.0 && (t1 > self.p || (x_in_b2 && t1 == self.p));
        let (from, to) = if from_t1 { (T1, B1) } else { (T2, B2) };
        let lru = self.blocks.back(from)?;
        self.blocks.move_front(lru, to);
        Some(self.blocks.key(lru))
    }

    /// Case IV: `x` is in neither directory. Makes room for it in the cache and in the ghost lists.
    #[inline]
    fn make_room(&mut self) -> Option<I::Key> {
        let l1 = self.blocks.len(T1) + self.blocks.len(B1);
        let l2 = self.blocks.len(T2) + self.blocks.len(B2);
        if l1 == self.c {
            if self.blocks.len(T1) < self.c {
                self.delete_lru(B1);
                self.replace(false)
            } else {
                self.delete_lru(T1)
            }
        } else if l1 + l2 >= self.c {
            if l1 + l2 == 2 * self.c {
                self.delete_lru(B2);
            }
            self.replace(false)
        } else {
            None
        }
    }
}

impl<I: Index> Policy for Arc<I> {
    of_blocks!(I);

    #[inline]
    fn access(&mut self, access: Access<I::Key>) -> Outcome<I::Key> {
        let Some(x) = self.blocks.find(access.block) else {
            let evicted = self.make_room();
            self.blocks.insert_front(T1, access.block, ());
            return Outcome::Admit { evicted };
        };
        let (b1, b2) = (self.blocks.len(B1) as f64, self.blocks.len(B2) as f64);
        let evicted = match self.blocks.list(x) {
            B1 => {
                let delta1 = if b1 >= b2 { 1.0 } else { b2 / b1 };
                self.p = (self.p + delta1).min(self.c as f64);
                self.replace(false)
            }
            B2 => {
                let delta2 = if b2 >= b1 { 1.0 } else { b1 / b2 };
                self.p = (self.p - delta2).max(0.0);
                self.replace(true)
            }
            _ => {
                self.blocks.move_front(x, T2);
                return Outcome::Hit;
            }
        };
        self.blocks.move_front(x, T2);
        Outcome::Admit { evicted }
    }

    /// The paper's bounds of the four lists, and the range of `p`. The paper's bound that there are no ghosts before
    /// the cache is full holds only until the first removal.
    fn check(&self) {
        let [t1, t2, b1, b2] = [T1, T2, B1, B2].map(|list| self.blocks.len(list));
        assert!(t1 + t2 <= self.c);
        assert!(t1 + b1 <= self.c, "|L1| is {t1} + {b1}");
        assert!(t1 + t2 + b1 + b2 <= 2 * self.c, "{t1} + {t2} + {b1} + {b2} blocks are remembered");
        assert!((0.0..=self.c as f64).contains(&self.p), "p = {}", self.p);
        self.blocks.check(2 * self.c);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Dense;
    use crate::policy::outcomes::{FILL, HIT, evict};

    /// An access, its outcome, `p` after it, and `T1`, `B1`, `T2` and `B2` after it.
    type Row<'a> = (u32, Outcome<u32>, f64, [&'a [u32]; 4]);

    fn run(arc: &mut Arc<Dense>, rows: &[Row]) {
        for (block, outcome, p, lists) in rows {
            assert_eq!(arc.access(Access::read(*block)), *outcome, "the access to {block}");
            assert_eq!(arc.p, *p, "p after the access to {block}");
            let found = [T1, B1, T2, B2].map(|list| arc.blocks.keys(list).collect::<Vec<_>>());
            assert_eq!(found, lists.map(<[u32]>::to_vec), "after the access to {block}");
            arc.check();
        }
    }

    fn arc(capacity: usize) -> Arc<Dense> {
        Arc::new(Dense::new(100), capacity, &Options::default())
    }

    /// c = 2. MRU ends on the left.
    ///
    ///     access   case        p   T1    B1    T2    B2
    ///     1        IV          0   1
    ///     1        I           0               1
    ///     2        IV          0   2           1
    ///     3        IV B        0   3     2     1          |T1| = 1 > 0
    ///     2        II          1   3           2     1    p = 0 + 1; |T1| = 1 is not > 1, so T2 gives up 1
    ///     1        III         0         3     1 2        p = 1 - 1; |T1| = 1 > 0
    ///     4        IV B        0   4     3     1     2    T1 is empty, so T2 gives up 2
    ///     5        IV A        0   5     4     1     2    |L1| = 2: 3 is forgotten, and |T1| = 1 > 0
    ///     6        IV A        0   6     5     1     2
    ///     6        I           0         5     6 1   2
    #[test]
    fn figure_4_case_by_case() {
        run(
            &mut arc(2),
            &[
                (1, FILL, 0.0, [&[1], &[], &[], &[]]),
                (1, HIT, 0.0, [&[], &[], &[1], &[]]),
                (2, FILL, 0.0, [&[2], &[], &[1], &[]]),
                (3, evict(2), 0.0, [&[3], &[2], &[1], &[]]),
                (2, evict(1), 1.0, [&[3], &[], &[2], &[1]]),
                (1, evict(3), 0.0, [&[], &[3], &[1, 2], &[]]),
                (4, evict(2), 0.0, [&[4], &[3], &[1], &[2]]),
                (5, evict(4), 0.0, [&[5], &[4], &[1], &[2]]),
                (6, evict(5), 0.0, [&[6], &[5], &[1], &[2]]),
                (6, HIT, 0.0, [&[], &[5], &[6, 1], &[2]]),
            ],
        );
    }

    /// A cache of blocks seen once forgets the oldest one entirely: B1 has no room beside a T1 of c blocks.
    #[test]
    fn a_full_t1_leaves_no_ghosts() {
        let rows: [Row; 3] = [
            (1, FILL, 0.0, [&[1], &[], &[], &[]]),
            (2, FILL, 0.0, [&[2, 1], &[], &[], &[]]),
            (3, evict(1), 0.0, [&[3, 2], &[], &[], &[]]),
        ];
        run(&mut arc(2), &rows);
    }

    /// c = 4, from a state worked out by hand: p = 2, and |T1| = 1 after p has moved.
    #[test]
    fn on_a_tie_in_b2_t1_gives_way_and_ghost_lengths_set_the_step() {
        let mut arc = arc(4);
        for (list, blocks) in [(T1, vec![1]), (B1, vec![2]), (T2, vec![3, 4, 5]), (B2, vec![6, 7])] {
            for block in blocks {
                arc.blocks.insert_back(list, block, ());
            }
        }
        arc.p = 2.0;
        run(
            &mut arc,
            &[
                (6, evict(1), 1.0, [&[], &[1, 2], &[6, 3, 4, 5], &[7]]),
                (2, evict(5), 2.0, [&[], &[1], &[2, 6, 3, 4], &[5, 7]]),
                (1, evict(4), 4.0, [&[], &[], &[1, 2, 6, 3], &[4, 5, 7]]),
                (7, evict(3), 3.0, [&[], &[], &[7, 1, 2, 6], &[3, 4, 5]]),
            ],
        );
    }

    /// c = 4, T1 empty, T2 full, so T2 evicts its tail each time; only `p` and the lengths of the ghost lists matter.
    #[test]
    fn p_stays_between_0_and_c() {
        let mut arc = arc(4);
        for (list, blocks) in [(T2, vec![1, 2, 3, 4]), (B1, vec![5, 6, 7]), (B2, vec![8])] {
            for block in blocks {
                arc.blocks.insert_back(list, block, ());
            }
        }
        arc.p = 1.0;
        for (block, b1, b2, p) in [(8, 3, 1, 0.0), (5, 2, 2, 1.0), (6, 1, 3, 2.0), (7, 0, 4, 4.0)] {
            arc.access(Access::read(block));
            assert_eq!((arc.blocks.len(B1), arc.blocks.len(B2), arc.p), (b1, b2, p), "after the access to {block}");
            arc.check();
        }
    }
}
