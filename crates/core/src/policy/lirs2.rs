//! LIRS2: LIRS based on the last three accesses to a block instead of the last two.
//!
//! Source: Zhong, Zhao, Jiang: LIRS2: an improved LIRS replacement algorithm. SYSTOR 2021. Where the paper is silent,
//! this follows the authors' own simulator and Caffeine's (`Lirs2Policy`).
//!
//! LIRS makes a block LIR if its last two accesses are close together. One such distance varies much from access to
//! access. LIRS2 adds two consecutive ones: the time since the access before the last one. The paper's stack `S` holds
//! each block twice, at its last access and at the one before. Its bottom, `R_max2`, is the LIR block with the oldest
//! access before the last. A HIR block becomes LIR when accessed, if its access before the last is above the bottom. A
//! block that was accessed once has no such access.
//!
//! Here `S` is not a list of blocks but of accesses, oldest first, and each block has the times of its last two. Older
//! accesses in the list do not count; the front is always the bottom. The authors also keep `R_max1` and the instances
//! below the bottom. These have no effect: a block whose last access is below the bottom is treated like a new one.
//!
//! Departures from the paper and the authors' simulator:
//! - Uncached blocks are at most `ghosts` times the cache size; those that left the cache first are forgotten first.
//!   The authors keep all, but remove HIR blocks from the bottom of `S` when it holds 8 times the cache size, each
//!   block counted twice. Without either bound both give the same hits. They are 42,688, 94,764 and 114,375 on the
//!   trace sprite in 100, 400 and 1,000 blocks. On multi3 in 300, 745 and 2,000 blocks they are 12,130, 14,210 and
//!   18,534, and on 2_pools in 100 and 450 blocks 48,863 and 51,689. With their bound they have 42,623, 94,766,
//!   114,375, 10,830, 14,616, 18,534, 48,916 and 51,640. With `ghosts=300%` it is 42,684, 94,762, 114,375, 10,830,
//!   14,627, 18,534, 48,998 and 51,670. 100% is too little (36,690 for the first).
//! - `L_hirs` is rounded down and at least 1 block; the authors' simulator has at least 4 (1 for the hits above). A
//!   cache of one block, or `hirs=100%`, has no LIR blocks and thus an empty `S`, and is LRU.
//! - While the cache fills, missed blocks become LIR until there are `L_lirs`, then HIR, in `S` and in `Q`.
//! - Removing a LIR block may move the bottom. The next block that is missed, or that would swap with the LIR block at
//!   the bottom, becomes LIR in its place. No other block becomes HIR for it.
//! - An access to the same block as the previous access is a hit and changes nothing, as in both simulators. The two
//!   would have the shortest possible distance.

use std::collections::VecDeque;

use super::{Info, Outcome, Policy, of_blocks};
use crate::access::Access;
use crate::blocks::{Blocks, List, NodeId};
use crate::index::Index;
use crate::options::{Kind, Options, Parameter};

/// LIRS2's row in the table of policies.
pub static INFO: Info = Info {
    name: "lirs2",
    title: "LIRS by two reuse distances in a row",
    source: "Zhong, Zhao, Jiang: LIRS2: an improved LIRS replacement algorithm. SYSTOR 2021",
    parameters: &[
        Parameter::of("hirs", Kind::Number(0.0, 1.0), "1%")
            .means("L_hirs, the room for HIR blocks, as a share of the cache size, at least one block"),
        Parameter::of("ghosts", Kind::Number(0.0, f64::MAX), "300%").means(
            "the number of uncached blocks that are remembered, as a share of the cache size; the \
                 default is about the capacity of the authors' S",
        ),
    ],
    offline: false,
};

/// LIR blocks, most recently accessed first.
const LIR: List = List(0);
/// Cached HIR blocks; evicted from the back.
const Q: List = List(1);
/// Uncached HIR blocks, last evicted first.
const N: List = List(2);

/// The times of a block's last accesses.
#[derive(Clone, Copy, Debug, Default, bytemuck::Zeroable)]
struct Times {
    /// Its last access: the paper's instance 1.
    last: u64,
    /// The access before, instance 2; equal to the last for a block accessed once.
    before: u64,
}

/// Limit of `S` in accesses per block, above which it is compacted. At most two accesses of each block count.
const ACCESSES_PER_BLOCK_MAX: usize = 4;

/// A cache with LIR blocks, HIR blocks and ghosts.
#[derive(Debug)]
pub struct Lirs2<I: Index> {
    l_lirs: usize,
    l_hirs: usize,
    n_max: usize,
    /// Accesses so far, without repeated ones.
    now: u64,
    /// The block of the last access.
    latest: Option<I::Key>,
    /// Accesses, oldest first. The first is the access before the last of the LIR block at the bottom, `R_max2`.
    s: VecDeque<(u64, I::Key)>,
    blocks: Blocks<I, Times>,
}

impl<I: Index> Lirs2<I> {
    /// Creates an empty cache of `capacity` blocks.
    pub fn new(index: I, capacity: usize, options: &Options) -> Self {
        let c = capacity as f64;
        let l_hirs = ((options.number("hirs") * c) as usize).max(1);
        Lirs2 {
            l_lirs: capacity - l_hirs,
            l_hirs,
            n_max: (options.number("ghosts") * c) as usize,
            now: 0,
            latest: None,
            s: VecDeque::new(),
            blocks: Blocks::new(index, 2, 1),
        }
    }

    /// True if an access at `time` is above the bottom of `S`.
    #[inline]
    fn in_s(&self, time: u64) -> bool {
        self.s.front().is_some_and(|(bottom, _)| time > *bottom)
    }

    /// Returns the list and the times of `block`, if the access at `time` is its last or the one before.
    #[inline]
    fn counts(&self, time: u64, block: I::Key) -> Option<(List, Times)> {
        let x = self.blocks.find(block)?;
        let times = *self.blocks.data(x);
        (times.last == time || times.before == time).then(|| (self.blocks.list(x), times))
    }

    /// Moves the bottom up to the LIR block with the oldest access before the last, and forgets uncached blocks below
    /// it.
    #[inline]
    fn prune(&mut self) {
        while let Some(&(time, block)) = self.s.front()
            && !self.counts(time, block).is_some_and(|(list, times)| list == LIR && times.before == time)
        {
            self.s.pop_front();
        }
        while let Some(ghost) = self.blocks.back(N)
            && !self.in_s(self.blocks.data(ghost).last)
        {
            self.blocks.remove(ghost);
        }
        let remembered = self.blocks.cached_len() + self.blocks.len(N);
        if self.s.len() > ACCESSES_PER_BLOCK_MAX * (remembered + 1) {
            self.compact();
        }
    }

    /// Removes accesses that do not count from `S`.
    #[cold]
    fn compact(&mut self) {
        let mut s = std::mem::take(&mut self.s);
        s.retain(|&(time, block)| self.counts(time, block).is_some());
        self.s = s;
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.blocks.cached_len() == self.l_lirs + self.l_hirs
    }

    /// Evicts the block at the back of `Q`, which becomes a ghost if its last access is in `S`.
    #[inline]
    fn evict(&mut self) -> Option<I::Key> {
        let victim = self.blocks.back(Q)?;
        if !self.in_s(self.blocks.data(victim).last) {
            return Some(self.blocks.remove(victim));
        }
        let evicted = self.blocks.key(victim);
        self.blocks.move_front(victim, N);
        if self.blocks.len(N) > self.n_max
            && let Some(first) = self.blocks.back(N)
        {
            self.blocks.remove(first);
        }
        Some(evicted)
    }

    /// Turns the LIR block at the bottom of `S` into a HIR block at the front of `Q`, because another block became LIR.
    /// If that block replaced a removed LIR block, nothing turns.
    #[inline]
    fn demote_bottom(&mut self) {
        if self.blocks.len(LIR) > self.l_lirs
            && let Some(bottom) = self.s.front().and_then(|(_, block)| self.blocks.find(*block))
        {
            self.blocks.move_front(bottom, Q);
        }
    }

    /// Handles an access to a cached block or a ghost.
    #[inline]
    fn access_again(&mut self, x: NodeId) -> Outcome<I::Key> {
        let list = self.blocks.list(x);
        let Times { last, before } = *self.blocks.data(x);
        let becomes_lir = list != LIR && self.l_lirs > 0 && before != last && self.in_s(before);
        *self.blocks.data_mut(x) = Times { last: self.now, before: last };
        let must_evict = list == N && self.is_full();
        // X leaves N before the evicted block joins it, so X cannot be the block forgotten for it.
        self.blocks.move_front(x, if list == LIR || becomes_lir { LIR } else { Q });
        let evicted = if must_evict { self.evict() } else { None };
        if becomes_lir {
            self.demote_bottom();
        }
        self.prune();
        if list == N { Outcome::Admit { evicted } } else { Outcome::Hit }
    }
}

impl<I: Index> Policy for Lirs2<I> {
    of_blocks!(I);

    #[inline]
    fn access(&mut self, access: Access<I::Key>) -> Outcome<I::Key> {
        let block = access.block;
        let found = self.blocks.find(block);
        let repeats = self.latest.replace(block) == Some(block);
        if repeats && found.is_some_and(|x| self.blocks.list(x) != N) {
            return Outcome::Hit;
        }
        self.now += 1;
        self.s.push_back((self.now, block));
        if let Some(x) = found {
            return self.access_again(x);
        }
        let evicted = if self.is_full() { self.evict() } else { None };
        let list = if self.blocks.len(LIR) < self.l_lirs { LIR } else { Q };
        self.blocks.insert_front(list, block, Times { last: self.now, before: self.now });
        self.prune();
        Outcome::Admit { evicted }
    }

    fn remove(&mut self, block: I::Key) -> bool {
        let list = self.blocks.forget(block);
        if list.is_some() {
            self.prune();
        }
        matches!(list, Some(LIR | Q))
    }

    fn check(&self) {
        assert!(self.blocks.len(LIR) <= self.l_lirs);
        assert!(self.blocks.len(N) <= self.n_max);
        assert!(self.blocks.cached_len() <= self.l_lirs + self.l_hirs);
        let times_of =
            |list| self.blocks.keys(list).filter_map(|key| self.blocks.find(key)).map(|x| self.blocks.data(x));
        let bottom = times_of(LIR).map(|times| times.before).min();
        assert_eq!(self.s.front().map(|(time, _)| *time), bottom, "the bottom of S");
        let of_n = self.blocks.back(N).map(|x| self.blocks.data(x).last);
        assert!(of_n.is_none_or(|last| self.in_s(last)), "an uncached block is outside of S");
        assert!(self.s.iter().is_sorted_by_key(|(time, _)| *time));
        self.blocks.check((self.l_lirs + self.l_hirs).saturating_add(self.n_max));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Dense;
    use crate::policy::outcomes::{FILL, HIT, evict};

    fn lirs2(capacity: usize, options: &str) -> Lirs2<Dense> {
        let options = Options::parse("lirs2", INFO.parameters, options).unwrap();
        Lirs2::new(Dense::new(100), capacity, &options)
    }

    /// Draws the accesses in `S` that count, from its top. A letter is the kind of block: l for LIR, h for a cached and
    /// n for an uncached HIR block. A `'` marks the access before the last; a block accessed once has none.
    fn s(lirs2: &Lirs2<Dense>) -> String {
        let counting = lirs2.s.iter().rev().filter_map(|&(time, block)| {
            let (list, times) = lirs2.counts(time, block)?;
            let letter = ["l", "h", "n"][usize::from(list.0)];
            Some(format!("{block}{letter}{}", if times.last == time { "" } else { "'" }))
        });
        counting.collect::<Vec<_>>().join(" ")
    }

    /// L_lirs = 2, L_hirs = 1. Each row: the access, its outcome, then S from its top and Q from its end.
    #[test]
    fn blocks_become_lir_when_the_access_before_the_last_is_in_the_stack() {
        let mut lirs2 = lirs2(3, "");
        let rows: [(u32, Outcome<u32>, &str, &[u32]); 12] = [
            (1, FILL, "1l", &[]),
            (2, FILL, "2l 1l", &[]),
            (3, FILL, "3h 2l 1l", &[3]),
            // Two accesses in a row count once.
            (3, HIT, "3h 2l 1l", &[3]),
            // 3 is evicted and stays in S.
            (4, evict(3), "4h 3n 2l 1l", &[4]),
            // 3 was accessed only once before: it stays HIR.
            (3, evict(4), "3h 4n 3h' 2l 1l", &[3]),
            // The access before the last of 1 is its first, so it is the bottom.
            (1, HIT, "1l 3h 4n 3h' 2l 1l'", &[3]),
            // The one of 3 is in S: it becomes LIR, and 1 leaves the bottom for Q. The last access of 1 stays.
            (3, HIT, "3l 1h 3l' 4n 2l", &[1]),
            // The access before the last of 1 is below the bottom: it stays HIR.
            (1, HIT, "1h 3l 1h' 3l' 4n 2l", &[1]),
            // Now it is above: 1 becomes LIR in the place of 2.
            (2, HIT, "2l 1h 3l 1h' 3l' 4n 2l'", &[1]),
            (1, HIT, "1l 2h 1l' 3l 3l'", &[2]),
            (5, evict(2), "5h 1l 2n 1l' 3l 3l'", &[5]),
        ];
        for (block, outcome, stack, q) in rows {
            assert_eq!(lirs2.access(Access::read(block)), outcome, "access to {block}");
            assert_eq!(s(&lirs2), stack, "after the access to {block}");
            assert_eq!(lirs2.blocks.keys(Q).collect::<Vec<_>>(), q, "after the access to {block}");
            lirs2.check();
        }
    }

    #[test]
    fn accesses_that_count_for_nothing_are_dropped() {
        let mut lirs2 = lirs2(4, "ghosts=0");
        for block in 1..=4 {
            lirs2.access(Access::read(block));
        }
        // 1 stays the bottom; 2 and 3 are accessed repeatedly.
        for at in 0..1000 {
            assert_eq!(lirs2.access(Access::read(2 + at % 2)), HIT);
            assert!(lirs2.s.len() <= ACCESSES_PER_BLOCK_MAX * 5);
            lirs2.check();
        }
        assert_eq!(lirs2.s[0], (1, 1));
    }
}
