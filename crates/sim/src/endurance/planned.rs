//! Plans as caches: a plan is a policy that has read the future.
//!
//! The plan holds the decisions; a [`Placed`] places the blocks. Such a cache runs like any other, but only behind the
//! read cache and over the trace that the plan was made for.

use flashwise_core::access::Access;
use flashwise_core::block_cache::{BlockCache, Tally};
use flashwise_core::policy::Outcome;
use flashwise_core::step::FlashStep;
use flashwise_trace::progress::Progress;

use crate::offline::{Decision, FlashStream, Insertion, NOT_EVICTING, Plan};
use crate::pace::may_end;

/// Accesses between a prefetch hint and the access.
const PREFETCH_DISTANCE: usize = 12;

/// Placement of a plan's blocks.
pub(crate) trait Placed {
    /// Performs the access at `position` of the stream; for `evicts` see [`Insertion::evicts`].
    fn access(&mut self, position: usize, decision: Decision, evicts: u32, steps: &mut Vec<FlashStep>);
    /// Hints that `block` will be accessed soon.
    fn prefetch(&self, block: u32);
    /// Returns the writes so far.
    fn tally(&self) -> Tally;
}

/// A cache that follows a plan.
pub(crate) struct Planned<'a, P> {
    stream: &'a FlashStream,
    plan: &'a Plan,
    insertions: std::slice::Iter<'a, Insertion>,
    /// Accesses of the stream so far.
    position: usize,
    left: Option<u32>,
    placed: P,
}

impl<'a, P: Placed> Planned<'a, P> {
    /// Returns an empty cache for the accesses of `stream`.
    pub(super) fn new(stream: &'a FlashStream, plan: &'a Plan, placed: P) -> Planned<'a, P> {
        Planned { stream, plan, insertions: plan.insertions().iter(), position: 0, left: None, placed }
    }

    /// Runs the whole plan without a device, to train the placement.
    pub(super) fn rehearse(&mut self, progress: &dyn Progress) {
        let mut steps = Vec::new();
        for position in 0..self.stream.len() {
            may_end(position, progress);
            self.next(&mut steps);
            steps.clear();
        }
    }

    /// Performs the next access of the stream.
    #[inline]
    pub(super) fn next(&mut self, steps: &mut Vec<FlashStep>) -> Outcome<u32> {
        let (position, decision) = (self.position, self.plan.decisions()[self.position]);
        self.position += 1;
        if position + PREFETCH_DISTANCE < self.stream.len() {
            self.placed.prefetch(self.stream.block(position + PREFETCH_DISTANCE));
        }
        let mut evicts = NOT_EVICTING;
        let outcome = match decision {
            Decision::Bypass => Outcome::Bypass,
            Decision::Hit | Decision::LastHit => Outcome::Hit,
            Decision::Insert => {
                evicts = self.insertions.next().expect("there is an insertion for each decision to insert").evicts;
                let evicted = (evicts != NOT_EVICTING).then(|| self.stream.block(evicts as usize));
                Outcome::Admit { evicted }
            }
        };
        self.left = (decision == Decision::LastHit).then(|| self.stream.block(position));
        self.placed.access(position, decision, evicts, steps);
        outcome
    }

    /// Returns the placement at the end.
    pub(super) fn into_placed(self) -> P {
        self.placed
    }
}

impl<P: Placed> BlockCache for Planned<'_, P> {
    type Key = u32;

    #[inline]
    fn access(&mut self, access: Access<u32>, _time_us: u64, steps: &mut Vec<FlashStep>) -> Outcome<u32> {
        debug_assert_eq!(access.block, self.stream.block(self.position), "the plan is that of another trace");
        self.next(steps)
    }

    #[inline]
    fn left(&self) -> Option<u32> {
        self.left
    }

    fn tally(&self) -> Tally {
        self.placed.tally()
    }
}
