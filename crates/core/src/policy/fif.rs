//! FIF, furthest in future: evict the block whose next access is furthest away. No algorithm that admits every missed
//! block hits more often. It must know the future.
//!
//! Source: Belady: A study of replacement algorithms for a virtual-storage computer. IBM Systems Journal 5(2), 1966,
//! algorithm MIN. The form is that of Mattson et al. 1970 (OPT). LARC uses it as the upper bound (Huang et al., MSST
//! 2013).
//!
//! Departures from the paper: none. Every miss is admitted, even of the block whose own next access is furthest (demand
//! fetch). Of blocks that are never accessed again, the last accessed is evicted first; any order gives the same hits.
//! If one of them is removed, the last takes its position in that order.
//!
//! A position names the block accessed there. The index maps a cached block to the position of its next use. An array
//! maps positions back to blocks, and the set of those positions finds its maximum. Memory is 4 bytes and 1 bit per
//! access of the trace (with 32-bit keys) plus the index; blocks have no nodes. Positions are only compared with each
//! other, so the trace may be part of a longer one, or the misses of another cache.
//!
//! Next uses must be correct. Two blocks with the same next use, or an access to a block without one, mean a broken
//! trace, and panic.

use super::{Info, Outcome, Policy};
use crate::access::{Access, NEVER};
use crate::blocks::Queues;
use crate::index::Index;
use crate::options::Options;
use crate::positions::Positions;

/// FIF's row in the table of policies.
pub static INFO: Info = Info {
    name: "fif",
    title: "Furthest In Future",
    source: "Belady: A study of replacement algorithms for a virtual-storage computer. IBM Systems Journal 5(2), 1966",
    parameters: &[],
    offline: true,
};

/// Evicts the block whose next access is furthest away.
#[derive(Debug)]
pub struct Fif<I: Index> {
    c: usize,
    len: usize,
    /// Maps each cached block to 1 + the position of its next use, or to `u32::MAX - i` for `never[i]`.
    index: I,
    /// The next uses of the cached blocks that have one.
    next_uses: Positions,
    /// The block accessed at each position of `next_uses`; arbitrary at other positions.
    block_at: Vec<I::Key>,
    /// The cached blocks that are never accessed again, the last accessed at the end.
    never: Vec<I::Key>,
}

impl<I: Index> Fif<I> {
    /// Creates an empty cache of `capacity` blocks.
    pub fn new(index: I, capacity: usize, _options: &Options) -> Self {
        Fif { c: capacity, len: 0, index, next_uses: Positions::new(), block_at: Vec::new(), never: Vec::new() }
    }

    /// Returns the index number of `block`, or 0 if it is not cached.
    #[inline]
    fn find(&self, block: I::Key) -> u32 {
        self.index.get(block, |node| key_of(&self.block_at, &self.never, node))
    }

    /// Returns the next use of the eviction candidate, [`NEVER`] if it has none; `None` if the cache is empty.
    #[inline]
    pub(super) fn furthest_use(&self) -> Option<u32> {
        if self.never.is_empty() { self.next_uses.greatest() } else { Some(NEVER) }
    }

    /// True if the cache is full.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.len == self.c
    }

    #[inline]
    fn insert(&mut self, block: I::Key, next_use: u32) {
        let node = if next_use == NEVER {
            self.never.push(block);
            u32::MAX - (self.never.len() - 1) as u32
        } else {
            assert!(
                (next_use as usize) < u32::MAX as usize - self.c,
                "a trace has fewer than 2^32 - {} accesses",
                self.c
            );
            assert!(self.next_uses.insert(next_use), "two blocks have their next use at position {next_use}");
            let at = next_use as usize;
            if at >= self.block_at.len() {
                self.block_at.resize(at + 1, I::Key::default());
            }
            self.block_at[at] = block;
            next_use + 1
        };
        let Fif { index, block_at, never, .. } = self;
        index.insert(block, node, |node| key_of(block_at, never, node));
        self.len += 1;
    }

    /// Forgets `block`, whose index number is `node`, when it is accessed.
    #[inline]
    fn reach(&mut self, block: I::Key, node: u32) {
        assert!(self.next_uses.remove(node - 1), "{block:?} is accessed although it was not to be accessed again");
        self.forget(block);
    }

    #[inline]
    fn forget(&mut self, block: I::Key) {
        let Fif { index, block_at, never, .. } = self;
        index.remove(block, |node| key_of(block_at, never, node));
        self.len -= 1;
    }

    /// Fills the gap at `never[at]`, whose block left the index, with the last of `never`.
    fn remove_from_never(&mut self, at: usize) {
        let Fif { index, block_at, never, .. } = self;
        let last = never.len() - 1;
        if at < last {
            let moved = never[last];
            index.remove(moved, |node| key_of(block_at, never, node));
            never[at] = moved;
            index.insert(moved, u32::MAX - at as u32, |node| key_of(block_at, never, node));
        }
        never.pop();
    }

    #[inline]
    fn evict(&mut self) -> Option<I::Key> {
        if let Some(&block) = self.never.last() {
            self.forget(block);
            return self.never.pop();
        }
        let furthest = self.next_uses.greatest()?;
        let block = self.block_at[furthest as usize];
        self.reach(block, furthest + 1);
        Some(block)
    }
}

/// Returns the block of an index number.
#[inline]
fn key_of<K: Copy>(block_at: &[K], never: &[K], node: u32) -> K {
    match never.get((u32::MAX - node) as usize) {
        Some(&block) => block,
        None => block_at[node as usize - 1],
    }
}

impl<I: Index> Policy for Fif<I> {
    type Key = I::Key;

    fn blocks(&self) -> Option<&dyn Queues<I::Key>> {
        None
    }

    fn blocks_mut(&mut self) -> Option<&mut dyn Queues<I::Key>> {
        None
    }

    #[inline]
    fn access(&mut self, access: Access<I::Key>) -> Outcome<I::Key> {
        let node = self.find(access.block);
        if node != 0 {
            self.reach(access.block, node);
            self.insert(access.block, access.next_use);
            return Outcome::Hit;
        }
        let evicted = if self.len == self.c { self.evict() } else { None };
        self.insert(access.block, access.next_use);
        Outcome::Admit { evicted }
    }

    fn remove(&mut self, block: I::Key) -> bool {
        let node = self.find(block);
        if node == 0 {
            return false;
        }
        self.forget(block);
        let at = (u32::MAX - node) as usize;
        if at < self.never.len() {
            self.remove_from_never(at);
        } else {
            self.next_uses.remove(node - 1);
        }
        true
    }

    fn contains(&self, block: I::Key) -> bool {
        self.find(block) != 0
    }

    fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn prefetch(&self, _soon: I::Key, later: I::Key) {
        self.index.prefetch(later);
    }

    fn check(&self) {
        assert!(self.len <= self.c);
        for (i, &block) in self.never.iter().enumerate() {
            assert_eq!(self.find(block), u32::MAX - i as u32, "{block:?} is never accessed again");
        }
        let mut next_uses = self.next_uses.clone();
        let mut len = self.never.len();
        while let Some(next_use) = next_uses.greatest() {
            let block = self.block_at[next_use as usize];
            assert_eq!(self.find(block), next_use + 1, "{block:?} is accessed next at {next_use}");
            next_uses.remove(next_use);
            len += 1;
        }
        assert_eq!(len, self.len, "cached blocks");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Dense;

    /// Returns accesses to `blocks` with their next uses.
    fn trace(blocks: &[u32]) -> Vec<Access<u32>> {
        let next_use = |at: usize| blocks[at + 1..].iter().position(|&later| later == blocks[at]);
        let access = |(at, &block): (usize, &u32)| {
            let next_use = next_use(at).map_or(NEVER, |distance| (at + 1 + distance) as u32);
            Access { next_use, ..Access::read(block) }
        };
        blocks.iter().enumerate().map(access).collect()
    }

    /// Draws the cached blocks as `block@next use`, nearest first, then those never used again, in order of access.
    fn draw(fif: &Fif<Dense>) -> String {
        let cached = |position: &usize| fif.next_uses.clone().remove(*position as u32);
        let used = (0..fif.block_at.len()).filter(cached).map(|at| format!("{}@{at}", fif.block_at[at]));
        used.chain(fif.never.iter().map(|block| format!("{block}@never"))).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_block_used_furthest_in_the_future_goes_and_those_never_used_again_before_it() {
        let mut fif = Fif::new(Dense::new(10), 2, &Options::default());
        let evict = |evicted| Outcome::Admit { evicted };
        let rows = [
            (1, evict(None), "1@3"),
            (2, evict(None), "1@3 2@4"),
            // 2 is evicted, although 3 itself is used later than 2.
            (3, evict(Some(2)), "1@3 3@7"),
            (1, Outcome::Hit, "1@6 3@7"),
            (2, evict(Some(3)), "1@6 2@never"),
            (4, evict(Some(2)), "1@6 4@never"),
            (1, Outcome::Hit, "4@never 1@never"),
            (3, evict(Some(1)), "4@never 3@never"),
        ];
        let blocks: Vec<u32> = rows.iter().map(|row| row.0).collect();
        for (access, (_, outcome, after)) in trace(&blocks).into_iter().zip(rows) {
            assert_eq!(fif.access(access), outcome, "{access:?}");
            assert_eq!(draw(&fif), after, "after {access:?}");
            fif.check();
        }
    }

    #[test]
    #[should_panic(expected = "7 is accessed although it was not to be accessed again")]
    fn a_trace_without_next_uses_is_refused() {
        let mut fif = Fif::new(Dense::new(10), 2, &Options::default());
        fif.access(Access::read(7));
        fif.access(Access::read(7));
    }
}
