//! LFU: evict the least frequently used block, among equals the least recently used.
//!
//! Source: common knowledge; as a baseline of LARC (Huang et al., MSST 2013), section IV. The list of frequencies that
//! makes it O(1): Shah, Mitra, Matani: An O(1) algorithm for implementing the LFU cache eviction scheme. 2010.
//!
//! Departures from the paper (none defines more than the name):
//! - A block's frequency counts its accesses since it entered the cache, and is forgotten on eviction ("in-cache LFU").
//!   It does not age.
//! - Among blocks of the lowest frequency the least recently used one is evicted.
//! - All blocks are on one list, by frequency and then by recency; Shah et al. keep a list for each frequency.

use super::{Info, OnDemand, Policy, of_blocks, on_demand};
use crate::blocks::{Blocks, List, NodeId};
use crate::directory::Moved;
use crate::index::Index;
use crate::options::Options;

/// LFU's row in the table of policies.
pub static INFO: Info = Info {
    name: "lfu",
    title: "Least Frequently Used",
    source: "Shah, Mitra, Matani: An O(1) algorithm for implementing the LFU cache eviction scheme. 2010",
    parameters: &[],
    offline: false,
};

/// The cached blocks, most frequently used first, among equals most recently used first.
const Q: List = List(0);

/// A run: the blocks of one frequency, neighbours on `Q`. Runs are linked in order of frequency.
#[derive(Clone, Copy, Debug)]
struct FrequencyRun {
    frequency: u64,
    /// The most recently used block of the run; `None` if it is empty.
    front: Option<NodeId>,
    len: u32,
    higher: RunId,
    lower: RunId,
}

/// An index of [`Lfu::runs`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Zeroable)]
struct RunId(u32);

/// The run of frequency 0, which holds no block and closes the ring of runs: the lowest is above it, the highest below.
const NOT_CACHED: RunId = RunId(0);

/// Evicts the block that was accessed least often.
#[derive(Debug)]
pub struct Lfu<I: Index> {
    c: usize,
    /// Each block with its run.
    blocks: Blocks<I, RunId>,
    runs: Vec<FrequencyRun>,
    /// Unused runs.
    free: Vec<RunId>,
}

impl<I: Index> Lfu<I> {
    /// Creates an empty cache of `capacity` blocks.
    pub fn new(index: I, capacity: usize, _options: &Options) -> Self {
        let not_cached = FrequencyRun { frequency: 0, front: None, len: 0, higher: NOT_CACHED, lower: NOT_CACHED };
        Lfu { c: capacity, blocks: Blocks::new(index, 1, 0), runs: vec![not_cached], free: vec![] }
    }

    #[inline]
    fn run(&mut self, id: RunId) -> &mut FrequencyRun {
        &mut self.runs[id.0 as usize]
    }

    /// Creates an empty run of the next frequency above `id`'s.
    #[inline]
    fn insert_run_above(&mut self, id: RunId) -> RunId {
        let FrequencyRun { frequency, higher, .. } = *self.run(id);
        let made = FrequencyRun { frequency: frequency + 1, front: None, len: 0, higher, lower: id };
        let made_id = if let Some(reused) = self.free.pop() {
            *self.run(reused) = made;
            reused
        } else {
            self.runs.push(made);
            RunId(self.runs.len() as u32 - 1)
        };
        self.run(id).higher = made_id;
        self.run(higher).lower = made_id;
        made_id
    }

    /// Removes `node` from run `id`, and frees the run if it is empty then. `node` must still be at its old position on
    /// `Q`.
    #[inline]
    fn leave_run(&mut self, node: NodeId, id: RunId) {
        self.run(id).len -= 1;
        let FrequencyRun { front, len, higher, lower, .. } = *self.run(id);
        if len == 0 {
            self.run(higher).lower = lower;
            self.run(lower).higher = higher;
            self.free.push(id);
        } else if front == Some(node) {
            self.run(id).front = self.blocks.toward_back(node);
        }
    }

    /// Counts a use of `node`: it moves to the front of the run of the next higher frequency.
    #[inline]
    fn raise(&mut self, node: NodeId) {
        let id = *self.blocks.data(node);
        let FrequencyRun { frequency, front, len, higher, .. } = *self.run(id);
        let there_is_a_next = self.run(higher).frequency == frequency + 1;
        if len == 1 && !there_is_a_next {
            self.run(id).frequency += 1;
            return;
        }
        let next = if there_is_a_next { higher } else { self.insert_run_above(id) };
        // A new run is directly above the whole of the old one.
        let behind = if there_is_a_next { self.run(next).front } else { front };
        self.leave_run(node, id);
        if let Some(behind) = behind
            && behind != node
        {
            self.blocks.move_before(node, behind);
        }
        *self.blocks.data_mut(node) = next;
        self.run(next).front = Some(node);
        self.run(next).len += 1;
    }
}

impl<I: Index> OnDemand<I> for Lfu<I> {
    #[inline]
    fn is_full(&self) -> bool {
        self.blocks.len(Q) == self.c
    }

    #[inline]
    fn hit(&mut self, node: NodeId) {
        self.raise(node);
    }

    #[inline]
    fn evict(&mut self) -> Option<I::Key> {
        let least = self.blocks.back(Q)?;
        self.leave_run(least, *self.blocks.data(least));
        let evicted = self.blocks.remove(least);
        self.blocks.prefetch_back(Q);
        Some(evicted)
    }

    /// Inserts a block with its first use at the front of the run of frequency 1.
    #[inline]
    fn admit(&mut self, block: I::Key) {
        let mut once = self.run(NOT_CACHED).higher;
        if self.run(once).frequency != 1 {
            once = self.insert_run_above(NOT_CACHED);
        }
        let node = match self.run(once).front {
            Some(front) => self.blocks.insert_before(front, block, once),
            None => self.blocks.insert_back(Q, block, once),
        };
        self.run(once).front = Some(node);
        self.run(once).len += 1;
    }
}

impl<I: Index> Policy for Lfu<I> {
    of_blocks!(I);
    on_demand!(I);

    fn remove(&mut self, block: I::Key) -> bool {
        let Some(node) = self.blocks.find(block) else {
            return false;
        };
        self.leave_run(node, *self.blocks.data(node));
        self.blocks.remove(node);
        true
    }

    fn moved(&mut self, moved: Moved) {
        let id = *self.blocks.data(moved.to);
        let front = &mut self.run(id).front;
        if *front == Some(moved.from) {
            *front = Some(moved.to);
        }
    }

    fn check(&self) {
        self.blocks.check(self.c);
        // Walks down the runs from the highest, and along their blocks.
        let (mut id, mut runs, mut node) = (NOT_CACHED, 0, self.blocks.front(Q));
        loop {
            let above = self.runs[id.0 as usize];
            let run = self.runs[above.lower.0 as usize];
            assert_eq!(run.higher, id, "the links of runs {id:?} and {:?} disagree", above.lower);
            if above.lower == NOT_CACHED {
                break;
            }
            assert!(id == NOT_CACHED || run.frequency < above.frequency, "a lower run has a lower frequency");
            assert!(run.len > 0 && run.front == node, "a run starts at the first block behind the higher run");
            for _ in 0..run.len {
                assert_eq!(
                    node.map(|node| *self.blocks.data(node)),
                    Some(above.lower),
                    "a run's blocks are neighbours"
                );
                node = node.and_then(|node| self.blocks.toward_back(node));
            }
            (id, runs) = (above.lower, runs + 1);
        }
        assert_eq!(node, None, "every block is in a run");
        assert_eq!(runs + 1 + self.free.len(), self.runs.len(), "every run is in use or free");
        assert!(self.runs.len() <= self.c + 2, "{} runs for {} blocks", self.runs.len(), self.c);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Access;
    use crate::index::Dense;
    use crate::policy::Outcome;

    /// A cache of 3 blocks. 3 leaves as the least recently used of those used once, and returns with a frequency of 1,
    /// not 2.
    ///
    ///     access   blocks and their frequencies after it, evicted last first
    ///     1        1:1
    ///     2        2:1 1:1
    ///     1  hit   1:2 2:1
    ///     3        1:2 3:1 2:1
    ///     2  hit   2:2 1:2 3:1
    ///     4        2:2 1:2 4:1      3 leaves
    ///     3        2:2 1:2 3:1      4 leaves
    ///     3  hit   3:2 2:2 1:2
    ///     3  hit   3:3 2:2 1:2
    ///     4        3:3 2:2 4:1      1 leaves
    #[test]
    fn frequency_decides_then_recency_and_eviction_forgets() {
        let mut lfu = Lfu::new(Dense::new(100), 3, &Options::default());
        type Row<'a> = (u32, Outcome<u32>, &'a [(u32, u64)]);
        let rows: [Row; 10] = [
            (1, Outcome::Admit { evicted: None }, &[(1, 1)]),
            (2, Outcome::Admit { evicted: None }, &[(2, 1), (1, 1)]),
            (1, Outcome::Hit, &[(1, 2), (2, 1)]),
            (3, Outcome::Admit { evicted: None }, &[(1, 2), (3, 1), (2, 1)]),
            (2, Outcome::Hit, &[(2, 2), (1, 2), (3, 1)]),
            (4, Outcome::Admit { evicted: Some(3) }, &[(2, 2), (1, 2), (4, 1)]),
            (3, Outcome::Admit { evicted: Some(4) }, &[(2, 2), (1, 2), (3, 1)]),
            (3, Outcome::Hit, &[(3, 2), (2, 2), (1, 2)]),
            (3, Outcome::Hit, &[(3, 3), (2, 2), (1, 2)]),
            (4, Outcome::Admit { evicted: Some(1) }, &[(3, 3), (2, 2), (4, 1)]),
        ];
        for (block, outcome, expected) in rows {
            assert_eq!(lfu.access(Access::read(block)), outcome, "the access to {block}");
            let frequency =
                |key| lfu.blocks.find(key).map_or(0, |node| lfu.runs[lfu.blocks.data(node).0 as usize].frequency);
            let blocks: Vec<_> = lfu.blocks.keys(Q).map(|key| (key, frequency(key))).collect();
            assert_eq!(blocks, expected, "after the access to {block}");
            lfu.check();
        }
    }

    /// Two blocks used in turn need at most three runs: the lower and the higher frequency, and the one being entered.
    #[test]
    fn runs_are_reused() {
        let mut lfu = Lfu::new(Dense::new(100), 3, &Options::default());
        for _ in 0..1000 {
            lfu.access(Access::read(1));
            lfu.access(Access::read(2));
        }
        assert_eq!(lfu.runs.len(), 1 + 2);
    }
}
