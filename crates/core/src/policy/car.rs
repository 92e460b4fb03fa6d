//! CAR: the two lists of ARC as clocks, so that a hit sets a bit and moves nothing.
//!
//! Source: Bansal, Modha: CAR: Clock with Adaptive Replacement. FAST 2004, Figure 2.
//!
//! Departures from the paper: none. `p` is a real number. The paper removes no blocks. Here a removed block leaves its
//! list, `p` stays, and nothing is evicted until the cache is full again. Meanwhile the history is bounded on every
//! miss, not only on those that evict.

use super::{Info, Outcome, Policy, of_blocks};
use crate::access::Access;
use crate::blocks::{Blocks, List};
use crate::index::Index;
use crate::options::Options;

/// CAR's row in the table of policies.
pub static INFO: Info = Info {
    name: "car",
    title: "Clock with Adaptive Replacement",
    source: "Bansal, Modha: CAR: Clock with Adaptive Replacement. FAST 2004",
    parameters: &[],
    offline: false,
};

/// Cached blocks of short-term use. In every list the head page is the back, the tail page or MRU page the front.
const T1: List = List(0);
/// Cached blocks of long-term use.
const T2: List = List(1);
/// Ghosts of `T1`, last evicted first.
const B1: List = List(2);
/// Ghosts of `T2`, last evicted first.
const B2: List = List(3);

/// Two clocks, each with a list of ghosts.
#[derive(Debug)]
pub struct Car<I: Index> {
    c: usize,
    /// The target size of `T1`, 0 to `c`.
    p: f64,
    /// Each block with its page reference bit.
    blocks: Blocks<I, bool>,
}

impl<I: Index> Car<I> {
    /// Creates an empty cache of `capacity` blocks.
    pub fn new(index: I, capacity: usize, _options: &Options) -> Self {
        Car { c: capacity, p: 0.0, blocks: Blocks::new(index, 2, 2) }
    }

    /// replace(): moves the hands to the first block whose bit is not set, and evicts it into its ghost list.
    #[inline]
    fn replace(&mut self) -> Option<I::Key> {
        loop {
            let (from, to) = if self.blocks.len(T1) as f64 >= self.p.max(1.0) { (T1, B1) } else { (T2, B2) };
            let head = self.blocks.back(from)?;
            if !*self.blocks.data(head) {
                self.blocks.move_front(head, to);
                self.blocks.prefetch_back(from);
                return Some(self.blocks.key(head));
            }
            *self.blocks.data_mut(head) = false;
            self.blocks.move_front(head, T2);
        }
    }

    /// Cache directory replacement: makes room for a block that is in no list.
    #[inline]
    fn trim_history(&mut self) {
        let [t1, t2, b1, b2] = [T1, T2, B1, B2].map(|list| self.blocks.len(list));
        if t1 + b1 >= self.c && b1 > 0 {
            self.blocks.pop_back(B1);
        } else if t1 + t2 + b1 + b2 >= 2 * self.c {
            self.blocks.pop_back(B2);
        }
    }
}

impl<I: Index> Policy for Car<I> {
    of_blocks!(I);

    #[inline]
    fn access(&mut self, access: Access<I::Key>) -> Outcome<I::Key> {
        let x = self.blocks.find(access.block);
        if let Some(x) = x
            && [T1, T2].contains(&self.blocks.list(x))
        {
            *self.blocks.data_mut(x) = true;
            return Outcome::Hit;
        }
        let is_full = self.blocks.len(T1) + self.blocks.len(T2) == self.c;
        let evicted = if is_full { self.replace() } else { None };
        let Some(x) = x else {
            self.trim_history();
            self.blocks.insert_front(T1, access.block, false);
            return Outcome::Admit { evicted };
        };
        let (b1, b2) = (self.blocks.len(B1) as f64, self.blocks.len(B2) as f64);
        self.p = match self.blocks.list(x) {
            B1 => (self.p + (b2 / b1).max(1.0)).min(self.c as f64),
            _ => (self.p - (b1 / b2).max(1.0)).max(0.0),
        };
        *self.blocks.data_mut(x) = false;
        self.blocks.move_front(x, T2);
        Outcome::Admit { evicted }
    }

    fn check(&self) {
        let [t1, t2, b1, b2] = [T1, T2, B1, B2].map(|list| self.blocks.len(list));
        assert!(t1 + t2 <= self.c);
        assert!(t1 + b1 <= self.c, "T1 and B1 have {t1} + {b1} blocks");
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

    /// c = 2. `T1 | B1 | T2 | B2`, each from its tail to its head, with a `'` where the bit is set.
    ///
    ///     access   p   what happens
    ///     1, 2     0   both are inserted into T1
    ///     1        0   its bit is set
    ///     3        0   |T1| = 2 >= 1: 1 has its bit, and goes to T2; |T1| = 1 >= 1: 2 goes to B1
    ///     2        1   |T1| = 1 >= 1: 3 goes to B1; 2 is in B1, of 2 with B2 of 0: p = 0 + 1
    ///     1        1
    ///     4        1   |T1| = 0: 1 has its bit, and goes round; 2 goes to B2
    ///     2        0   |T1| = 1 >= 1: 4 goes to B1; 2 is in B2, of 1 with B1 of 2: p = 1 - 2, at least 0
    ///     5        0   T2 gives up 1; |T1| + |B1| = 2: 3 is forgotten
    #[test]
    fn figure_2_case_by_case() {
        let rows = [
            (1, FILL, 0.0, "1 |  |  | "),
            (2, FILL, 0.0, "2 1 |  |  | "),
            (1, HIT, 0.0, "2 1' |  |  | "),
            (3, evict(2), 0.0, "3 | 2 | 1 | "),
            (2, evict(3), 1.0, " | 3 | 2 1 | "),
            (1, HIT, 1.0, " | 3 | 2 1' | "),
            (4, evict(2), 1.0, "4 | 3 | 1 | 2"),
            (2, evict(4), 0.0, " | 4 3 | 2 1 | "),
            (5, evict(1), 0.0, "5 | 4 | 2 | 1"),
        ];
        let mut car = Car::new(Dense::new(100), 2, &Options::default());
        for (block, outcome, p, after) in rows {
            assert_eq!(car.access(Access::read(block)), outcome, "access to {block}");
            let is_set = |block| car.blocks.find(block).is_some_and(|node| *car.blocks.data(node));
            let draw = |block| format!("{block}{}", if is_set(block) { "'" } else { "" });
            let lists = [T1, B1, T2, B2].map(|list| car.blocks.keys(list).map(draw).collect::<Vec<_>>().join(" "));
            assert_eq!((car.p, &lists.join(" | ")[..]), (p, after), "after the access to {block}");
            car.check();
        }
    }
}
