//! Decisions of an offline algorithm for each access of a stream, and the history of each insertion.

use flashwise_core::access::NEVER;
use flashwise_core::prefetch::prefetch;
use flashwise_trace::progress::Progress;

use super::FlashStream;
use crate::pace::may_end;

/// Accesses between a prefetch hint and the use of an insertion.
const PREFETCH_DISTANCE: usize = 12;

/// [`Insertion::evicts`] of an insertion into free space.
pub const NOT_EVICTING: u32 = u32::MAX;

/// A block's stay in the cache, from the access that inserts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Insertion {
    /// The position of the evicted block's next read, or [`NOT_EVICTING`].
    pub evicts: u32,
    /// The position at which the block leaves: the insertion that evicts it, or its last read before it is overwritten
    /// or the trace ends. [`NEVER`] if it stays until the end.
    pub leaves: u32,
    /// The position of its last read hit, or of the insertion if there is none.
    pub last_hit: u32,
    /// Number of its read hits.
    pub hits: u32,
}

/// Decision about an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The block is not in the cache and is not inserted.
    Bypass,
    /// The block is read from the cache and stays.
    Hit,
    /// The block is read from the cache for the last time, and leaves.
    LastHit,
    /// The block is inserted: the next of the [`Insertion`]s.
    Insert,
}

/// All decisions of an algorithm over a [`FlashStream`].
#[derive(Debug)]
pub struct Plan {
    decisions: Vec<Decision>,
    insertions: Vec<Insertion>,
}

impl Plan {
    /// The decision for each access of the stream.
    pub fn decisions(&self) -> &[Decision] {
        &self.decisions
    }

    /// The insertions, in order.
    pub fn insertions(&self) -> &[Insertion] {
        &self.insertions
    }

    /// Read hits on flash.
    pub fn hits(&self) -> u64 {
        self.insertions.iter().map(|insertion| u64::from(insertion.hits)).sum()
    }

    /// Asserts, from the decisions only, that the plan is valid for `stream` and a cache of `capacity` blocks. Slow;
    /// for tests.
    pub fn check(&self, stream: &FlashStream, capacity: usize) {
        // The position of the next read of each cached block, and its insertion.
        let mut cached = std::collections::BTreeMap::new();
        let mut stays: Vec<Insertion> = Vec::new();
        for (position, decision) in self.decisions.iter().enumerate() {
            let now = position as u32;
            let next_read = stream.next_read(position);
            let stay: Option<usize> = cached.remove(&now);
            assert!(stay.is_none() || !stream.is_write(position), "a cached block is overwritten at {position}");
            assert_eq!(
                stay.is_some(),
                matches!(decision, Decision::Hit | Decision::LastHit),
                "{decision:?} at {position}"
            );
            if let Some(stay) = stay {
                stays[stay].hits += 1;
                stays[stay].last_hit = now;
            }
            match (decision, stay) {
                (Decision::Hit, Some(stay)) => assert_eq!(cached.insert(next_read, stay), None),
                (Decision::LastHit, Some(stay)) => {
                    assert_eq!(next_read, NEVER);
                    stays[stay].leaves = now;
                }
                (Decision::Insert, _) => {
                    let evicts = self.insertions[stays.len()].evicts;
                    if evicts != NOT_EVICTING {
                        let stay = cached.remove(&evicts).expect("an evicted block is cached");
                        stays[stay].leaves = now;
                    }
                    assert_eq!(cached.insert(next_read, stays.len()), None);
                    stays.push(Insertion { evicts, leaves: NEVER, last_hit: now, hits: 0 });
                }
                _ => {}
            }
            assert!(!cached.contains_key(&NEVER), "a block that is never read is not cached");
            assert!(cached.len() <= capacity, "{} blocks in a cache of {capacity}", cached.len());
        }
        assert_eq!(stays, self.insertions);
    }
}

/// Records a plan while it is made.
pub(super) struct Planner<'a> {
    stream: &'a FlashStream,
    progress: &'a dyn Progress,
    plan: Plan,
    /// The latest insertion of each block.
    insertion_of: Vec<u32>,
}

impl<'a> Planner<'a> {
    pub(super) fn new(stream: &'a FlashStream, progress: &'a dyn Progress) -> Planner<'a> {
        let decisions = Vec::with_capacity(stream.len());
        let insertion_of = vec![0; stream.unique_blocks()];
        Planner { stream, progress, plan: Plan { decisions, insertions: Vec::new() }, insertion_of }
    }

    /// The position of the next decision.
    #[inline]
    pub(super) fn position(&self) -> usize {
        self.plan.decisions.len()
    }

    /// Prefetches scattered data for the coming accesses into the processor's caches.
    #[inline]
    fn prefetch(&self) {
        let position = self.position();
        let blocks_after =
            |distance| (position + distance < self.stream.len()).then(|| self.stream.block(position + distance));
        if let Some(later) = blocks_after(2 * PREFETCH_DISTANCE) {
            prefetch(&self.insertion_of, later as usize);
        }
        if let Some(soon) = blocks_after(PREFETCH_DISTANCE) {
            prefetch(&self.plan.insertions, self.insertion_of[soon as usize] as usize);
        }
    }

    #[inline]
    fn decide(&mut self, decision: Decision) {
        may_end(self.position(), self.progress);
        self.plan.decisions.push(decision);
        self.prefetch();
    }

    #[inline]
    fn insertion_at(&mut self, position: usize) -> &mut Insertion {
        let insertion = self.insertion_of[self.stream.block(position) as usize];
        &mut self.plan.insertions[insertion as usize]
    }

    #[inline]
    pub(super) fn bypass(&mut self) {
        self.decide(Decision::Bypass);
    }

    #[inline]
    pub(super) fn hit(&mut self) {
        let position = self.position();
        let last = self.stream.next_read(position) == NEVER;
        let insertion = self.insertion_at(position);
        insertion.hits += 1;
        insertion.last_hit = position as u32;
        if last {
            insertion.leaves = position as u32;
        }
        self.decide(if last { Decision::LastHit } else { Decision::Hit });
    }

    /// `evicts`: see [`Insertion::evicts`].
    #[inline]
    pub(super) fn insert(&mut self, evicts: u32) {
        let position = self.position();
        if evicts != NOT_EVICTING {
            self.insertion_at(evicts as usize).leaves = position as u32;
        }
        self.insertion_of[self.stream.block(position) as usize] = self.plan.insertions.len() as u32;
        self.plan.insertions.push(Insertion { evicts, leaves: NEVER, last_hit: position as u32, hits: 0 });
        self.decide(Decision::Insert);
    }

    pub(super) fn finish(self) -> Plan {
        assert_eq!(self.plan.decisions.len(), self.stream.len(), "every access is decided about once");
        self.plan
    }
}
