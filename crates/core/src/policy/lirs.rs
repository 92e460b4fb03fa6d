//! LIRS: keep the blocks whose last two accesses were closest together, and pass the others through a small queue.
//!
//! Source: Jiang, Zhang: LIRS: an efficient low inter-reference recency set replacement policy to improve buffer cache
//! performance. SIGMETRICS 2002, section 3.
//!
//! A block is LIR (low inter-reference recency; always cached) or HIR. The paper's stack `S` is ordered by recency of
//! access. It holds the LIR blocks, and those HIR blocks, cached or not, that were accessed after the LIR block at its
//! bottom.
//!
//! Here `S` is not one list. Every block has the time of its last access, and a HIR block is in `S` if that time is
//! after the bottom LIR block's. So a block is on only one list (`LIR`, `Q` or `N`). When the bottom of `S` moves, the
//! HIR blocks below it drop out implicitly. Stack pruning only forgets the uncached ones; the oldest are at the back of
//! `N`.
//!
//! Departures from the paper:
//! - Uncached HIR blocks in `S` are at most `ghosts` times the cache size; those deepest in `S` are forgotten first.
//!   The paper lets `S` grow; the authors' simulator limits it to 2500 times the cache size. That is the default, so
//!   the results on any trace are the paper's. Each such block costs about 26 bytes, so a long-lived cache needs a
//!   lower bound.
//! - `L_hirs` is rounded down and at least 1 block; the authors' simulator has at least 2. A cache of one block, or
//!   `hirs=100%`, has no LIR blocks and thus an empty `S`, and is LRU.
//! - While the cache fills, missed blocks become LIR until there are `L_lirs`, then HIR, in `S` and in `Q`.
//! - Removing a LIR block prunes `S`. The next block that is missed, or that would swap with the LIR block at the
//!   bottom, becomes LIR in its place. No other block becomes HIR for it. Without LIR blocks `S` is empty, ghosts
//!   included.
//! - Every access counts; the authors' simulator skips an access to the same block as the access before it.

use super::{Info, Outcome, Policy, of_blocks};
use crate::access::Access;
use crate::blocks::{Blocks, List, NodeId};
use crate::index::Index;
use crate::options::{Kind, Options, Parameter};

/// LIRS's row in the table of policies.
pub static INFO: Info = Info {
    name: "lirs",
    title: "Low Inter-reference Recency Set",
    source: "Jiang, Zhang: LIRS: an efficient low inter-reference recency set replacement policy to improve buffer \
        cache \
             performance. SIGMETRICS 2002",
    parameters: &[
        Parameter::of("hirs", Kind::Number(0.0, 1.0), "1%")
            .means("L_hirs, the room for HIR blocks, as a share of the cache size, at least one block (section 3.3)"),
        Parameter::of("ghosts", Kind::Number(0.0, f64::MAX), "2500").means(
            "the maximum number of uncached HIR blocks in the stack S, as a multiple of the cache size. \
                 The paper has no limit; this is that of the authors' simulator",
        ),
    ],
    offline: false,
};

/// LIR blocks, most recently accessed first. The one at the back is the bottom of `S`.
const LIR: List = List(0);
/// Cached HIR blocks; evicted from the back, which the paper calls the front of `Q`.
const Q: List = List(1);
/// Uncached HIR blocks, all in `S`, most recently accessed first. They left `Q` in the same order, because two HIR
/// blocks in `S` are in the same order in `Q` and in `S`.
const N: List = List(2);

/// A cache with LIR blocks, HIR blocks and ghosts.
#[derive(Debug)]
pub struct Lirs<I: Index> {
    l_lirs: usize,
    l_hirs: usize,
    n_max: usize,
    /// Accesses so far.
    now: u64,
    /// Each block with the time of its last access.
    blocks: Blocks<I, u64>,
}

impl<I: Index> Lirs<I> {
    /// Creates an empty cache of `capacity` blocks.
    pub fn new(index: I, capacity: usize, options: &Options) -> Self {
        let c = capacity as f64;
        let l_hirs = ((options.number("hirs") * c) as usize).max(1);
        Lirs {
            l_lirs: capacity - l_hirs,
            l_hirs,
            n_max: (options.number("ghosts") * c) as usize,
            now: 0,
            blocks: Blocks::new(index, 2, 1),
        }
    }

    /// True if HIR block `x` is in `S`.
    #[inline]
    fn in_s(&self, x: NodeId) -> bool {
        let bottom = self.blocks.back(LIR);
        bottom.is_some_and(|bottom| self.blocks.data(x) > self.blocks.data(bottom))
    }

    /// Moves `x`, accessed now, to the top of `S` as a LIR block, or as a HIR block to the end of `Q` as well.
    #[inline]
    fn push(&mut self, x: NodeId, list: List) {
        *self.blocks.data_mut(x) = self.now;
        self.blocks.move_front(x, list);
    }

    /// Turns the LIR block at the bottom of `S` into a HIR block at the end of `Q`, because another block became LIR.
    /// If that block replaced a removed LIR block, nothing turns.
    #[inline]
    fn demote_bottom(&mut self) {
        if self.blocks.len(LIR) > self.l_lirs
            && let Some(bottom) = self.blocks.back(LIR)
        {
            self.blocks.move_front(bottom, Q);
        }
        self.prune();
    }

    /// Stack pruning: forgets the uncached blocks that were accessed before the LIR block at the bottom of `S`.
    #[inline]
    fn prune(&mut self) {
        while let Some(ghost) = self.blocks.back(N)
            && !self.in_s(ghost)
        {
            self.blocks.remove(ghost);
        }
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.blocks.len(LIR) + self.blocks.len(Q) == self.l_lirs + self.l_hirs
    }

    /// Evicts the block at the front of `Q`; if it is in `S`, it stays there as a ghost.
    #[inline]
    fn evict(&mut self) -> Option<I::Key> {
        let front = self.blocks.back(Q)?;
        if !self.in_s(front) {
            return Some(self.blocks.remove(front));
        }
        let evicted = self.blocks.key(front);
        self.blocks.move_front(front, N);
        if self.blocks.len(N) > self.n_max
            && let Some(deepest) = self.blocks.back(N)
        {
            self.blocks.remove(deepest);
        }
        Some(evicted)
    }
}

impl<I: Index> Policy for Lirs<I> {
    of_blocks!(I);

    #[inline]
    fn access(&mut self, access: Access<I::Key>) -> Outcome<I::Key> {
        self.now += 1;
        let Some(x) = self.blocks.find(access.block) else {
            let evicted = if self.is_full() { self.evict() } else { None };
            let list = if self.blocks.len(LIR) < self.l_lirs { LIR } else { Q };
            self.blocks.insert_front(list, access.block, self.now);
            return Outcome::Admit { evicted };
        };
        match self.blocks.list(x) {
            LIR => {
                self.push(x, LIR);
                self.prune();
                Outcome::Hit
            }
            Q if self.in_s(x) => {
                self.push(x, LIR);
                self.demote_bottom();
                Outcome::Hit
            }
            Q => {
                self.push(x, Q);
                Outcome::Hit
            }
            // X leaves N before the evicted block joins it, so X cannot be the block forgotten for it.
            _ => {
                let full = self.is_full();
                self.push(x, LIR);
                let evicted = if full { self.evict() } else { None };
                self.demote_bottom();
                Outcome::Admit { evicted }
            }
        }
    }

    fn remove(&mut self, block: I::Key) -> bool {
        let list = self.blocks.forget(block);
        if list == Some(LIR) {
            self.prune();
        }
        matches!(list, Some(LIR | Q))
    }

    fn check(&self) {
        assert!(self.blocks.len(LIR) <= self.l_lirs);
        assert!(self.blocks.len(Q) <= self.l_hirs);
        assert!(self.blocks.back(N).is_none_or(|oldest| self.in_s(oldest)), "an uncached block is outside of S");
        assert!(self.blocks.len(LIR) + self.blocks.len(Q) <= self.l_lirs + self.l_hirs);
        assert!(self.blocks.len(N) <= self.n_max);
        self.blocks.check((self.l_lirs + self.l_hirs).saturating_add(self.n_max));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Dense;
    use crate::policy::outcomes::{FILL, HIT, evict};

    fn lirs(capacity: usize, options: &str) -> Lirs<Dense> {
        let options = Options::parse("lirs", INFO.parameters, options).unwrap();
        Lirs::new(Dense::new(100), capacity, &options)
    }

    /// Draws `S` from its top. Each block has a letter: l for LIR, h for a cached and n for an uncached HIR block.
    fn s(lirs: &Lirs<Dense>) -> String {
        let mut s = Vec::new();
        for (list, letter) in [(LIR, 'l'), (Q, 'h'), (N, 'n')] {
            for block in lirs.blocks.keys(list) {
                let x = lirs.blocks.find(block).unwrap();
                if list == LIR || lirs.in_s(x) {
                    s.push((*lirs.blocks.data(x), format!("{block}{letter}")));
                }
            }
        }
        s.sort();
        s.iter().rev().map(|(_, block)| block.as_str()).collect::<Vec<_>>().join(" ")
    }

    /// L_lirs = 2, L_hirs = 1. Each row: the access, its outcome, then S from its top and Q from its end.
    #[test]
    fn blocks_become_lir_when_they_are_accessed_again_within_the_stack() {
        let mut lirs = lirs(3, "");
        let rows: [(u32, Outcome<u32>, &str, &[u32]); 9] = [
            (1, FILL, "1l", &[]),
            (2, FILL, "2l 1l", &[]),
            (3, FILL, "3h 2l 1l", &[3]),
            // 3 is evicted and stays in S.
            (4, evict(3), "4h 3n 2l 1l", &[4]),
            // 3 was in S: it becomes LIR, and 1 leaves the bottom of S for Q.
            (3, evict(4), "3l 4n 2l", &[1]),
            // 1 is in Q and no longer in S: it stays HIR.
            (1, HIT, "1h 3l 4n 2l", &[1]),
            // The bottom moves to the top: 4 is pruned.
            (2, HIT, "2l 1h 3l", &[1]),
            // 1 is in Q and in S: it becomes LIR, and 3 leaves the bottom of S for Q.
            (1, HIT, "1l 2l", &[3]),
            // 3 is evicted and, not being in S, forgotten.
            (5, evict(3), "5h 1l 2l", &[5]),
        ];
        for (block, outcome, stack, q) in rows {
            assert_eq!(lirs.access(Access::read(block)), outcome, "access to {block}");
            assert_eq!(s(&lirs), stack, "after the access to {block}");
            assert_eq!(lirs.blocks.keys(Q).collect::<Vec<_>>(), q, "after the access to {block}");
            lirs.check();
        }
    }

    /// As above, with room for one uncached block in S: the deeper one is forgotten, and 3 is new when it returns.
    #[test]
    fn the_deepest_uncached_block_is_forgotten_when_there_are_too_many() {
        let mut lirs = lirs(3, "ghosts=0.34");
        let rows = [
            (1, FILL, "1l"),
            (2, FILL, "2l 1l"),
            (3, FILL, "3h 2l 1l"),
            (4, evict(3), "4h 3n 2l 1l"),
            (5, evict(4), "5h 4n 2l 1l"),
            (3, evict(5), "3h 5n 2l 1l"),
            // 5 is promoted, which makes room for 3 among the uncached.
            (5, evict(3), "5l 3n 2l"),
        ];
        for (block, outcome, stack) in rows {
            assert_eq!(lirs.access(Access::read(block)), outcome, "access to {block}");
            assert_eq!(s(&lirs), stack, "after the access to {block}");
            lirs.check();
        }
    }

    #[test]
    fn a_cache_of_one_block_holds_the_last_block() {
        let mut lirs = lirs(1, "");
        let rows = [(1, FILL), (2, evict(1)), (2, HIT), (1, evict(2)), (1, HIT)];
        for (block, outcome) in rows {
            assert_eq!(lirs.access(Access::read(block)), outcome, "access to {block}");
            assert_eq!(s(&lirs), "");
            lirs.check();
        }
    }
}
