//! Plans as caches: a plan is a policy that has read the future.
//!
//! What is decided stands in the plan; where blocks lie says a [`Placed`]. Such a cache runs like any other, behind the read cache for which the
//! plan was made, and only over its trace.

use flashwise_core::access::Access;
use flashwise_core::block_cache::{BlockCache, Tally};
use flashwise_core::policy::Outcome;
use flashwise_core::step::FlashStep;
use flashwise_trace::progress::Progress;

use crate::offline::{Decision, FlashStream, Insertion, NOT_EVICTING, Plan};
use crate::pace::may_end;

/// Accesses between the hint that a block will be accessed and when it is.
const PREFETCH_DISTANCE: usize = 12;

/// Where the blocks of a plan lie.
pub(crate) trait Placed {
    /// The access at `position` of the stream; `evicts`: see [`Insertion::evicts`].
    fn access(&mut self, position: usize, decision: Decision, evicts: u32, steps: &mut Vec<FlashStep>);
    /// A hint that `block` will be accessed soon.
    fn prefetch(&self, block: u32);
    /// What was written so far.
    fn tally(&self) -> Tally;
}

/// A cache that does what a plan says.
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
    /// An empty cache for the accesses of `stream`.
    pub(super) fn new(stream: &'a FlashStream, plan: &'a Plan, placed: P) -> Planned<'a, P> {
        Planned { stream, plan, insertions: plan.insertions().iter(), position: 0, left: None, placed }
    }

    /// Runs all of the plan on no device, for what is learnt from it.
    pub(super) fn rehearse(&mut self, progress: &dyn Progress) {
        let mut steps = Vec::new();
        for position in 0..self.stream.len() {
            may_end(position, progress);
            self.next(&mut steps);
            steps.clear();
        }
    }

    /// The next access of the stream.
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

    /// Where the blocks lie in the end.
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
