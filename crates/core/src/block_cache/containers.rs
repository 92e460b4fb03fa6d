//! Container policies on host-managed flash.
//!
//! Source: Cheng et al., USENIX ATC 2016, section 5.3 and Table 2 (RIPQ+, Pannier).

use super::{BlockCache, Tally};
use crate::access::{Access, Op};
use crate::container_policy::{ContainerOutcome, ContainerPolicy};
use crate::policy::Outcome;
use crate::step::FlashStep;

/// A cache of a container policy, which also decides the location of blocks.
#[derive(Clone, Debug)]
pub struct Containers<P> {
    policy: P,
    buffer_hits: u64,
}

impl<P: ContainerPolicy> Containers<P> {
    /// Creates an empty cache of `policy`, which must be empty.
    pub fn new(policy: P) -> Containers<P> {
        Containers { policy, buffer_hits: 0 }
    }
}

impl<P: ContainerPolicy> BlockCache for Containers<P> {
    type Key = P::Key;

    #[inline]
    fn access(&mut self, access: Access<P::Key>, time_us: u64, steps: &mut Vec<FlashStep>) -> Outcome<P::Key> {
        match self.policy.access(access, time_us, steps) {
            ContainerOutcome::Hit { in_ram } => {
                self.buffer_hits += u64::from(in_ram && access.op == Op::Read);
                Outcome::Hit
            }
            ContainerOutcome::Admit => Outcome::Admit { evicted: None },
            ContainerOutcome::Bypass => Outcome::Bypass,
        }
    }

    #[inline]
    fn prefetch(&self, soon: P::Key, later: P::Key) {
        self.policy.prefetch(soon, later);
    }

    fn tally(&self) -> Tally {
        let counts = self.policy.counts();
        Tally {
            flash_writes: counts.flash_writes,
            buffer_hits: self.buffer_hits,
            live_at_reset_blocks: counts.live_at_reset_blocks,
            wasted_copies_blocks: 0,
        }
    }
}
