//! Replacement policies on a conventional SSD, each block in its own slot.
//!
//! Source: Cheng et al., USENIX ATC 2016, Table 2 (LRU).
//!
//! A write to a cached block overwrites it in place. Other blocks enter the cache if the policy admits them.

use super::{BlockCache, Tally};
use crate::access::{Access, Op};
use crate::admission::adaptive::Decision;
use crate::index::Index;
use crate::layout::slots::Slots;
use crate::policy::{Outcome, Policy};
use crate::step::FlashStep;

/// A policy, and a slot for each of its cached blocks.
#[derive(Clone, Debug)]
pub struct InPlace<P, I: Index> {
    policy: P,
    slots: Slots<I>,
    trim: bool,
    tally: Tally,
}

impl<P: Policy<Key = I::Key>, I: Index> InPlace<P, I> {
    /// Creates an empty cache of `slots`, at least as many as the capacity of `policy`, with an empty `index`. With
    /// `trim`, evictions are reported to the device.
    pub fn new(policy: P, index: I, slots: u32, trim: bool) -> InPlace<P, I> {
        InPlace { policy, slots: Slots::new(index, slots), trim, tally: Tally::default() }
    }
}

impl<P: Policy<Key = I::Key>, I: Index> BlockCache for InPlace<P, I> {
    type Key = I::Key;

    #[inline]
    fn access(&mut self, access: Access<I::Key>, time_us: u64, steps: &mut Vec<FlashStep>) -> Outcome<I::Key> {
        self.policy.tick(time_us);
        let (block, is_write) = (access.block, access.op == Op::Write);
        let outcome = self.policy.access(access);
        let written = match outcome {
            Outcome::Hit if is_write => self.slots.overwrite(block, steps),
            Outcome::Hit => {
                let found = self.slots.read(block, steps);
                assert!(found, "a hit is on flash");
                false
            }
            Outcome::Admit { evicted } => {
                if let Some(evicted) = evicted {
                    self.slots.remove(evicted, self.trim, steps);
                }
                self.slots.place(block, steps);
                true
            }
            Outcome::Bypass => {
                // After a rejected write the old content is obsolete.
                if is_write {
                    self.slots.remove(block, self.trim, steps);
                }
                false
            }
        };
        if written {
            self.tally.flash_writes.count_insertion(is_write);
        }
        outcome
    }

    #[inline]
    fn prefetch(&self, soon: I::Key, later: I::Key) {
        self.policy.prefetch(soon, later);
    }

    fn decision(&self) -> Option<&Decision> {
        self.policy.decision()
    }

    fn tally(&self) -> Tally {
        self.tally
    }
}
