//! M and its variants on a conventional SSD: each block in its own slot, which the device's translation layer maps.
//!
//! Source: Cheng et al., USENIX ATC 2016, section 3.3 ("container-oblivious").
//!
//! Without TRIM, a block that leaves keeps its page until another takes the slot, and the device copies it as if it
//! were needed. With TRIM, the device learns of each block that leaves: at its eviction, or at its last read before an
//! overwrite or the end.

use flashwise_core::block_cache::Tally;
use flashwise_core::index::Dense;
use flashwise_core::layout::slots::Slots;
use flashwise_core::step::FlashStep;

use super::planned::Placed;
use crate::offline::{Decision, FlashStream, NOT_EVICTING};

/// A slot for each block.
pub(super) struct InPlace<'a> {
    stream: &'a FlashStream,
    slots: Slots<Dense>,
    trim: bool,
    tally: Tally,
}

impl<'a> InPlace<'a> {
    /// Returns an empty cache of `slots` for the blocks of `stream`. If `trim`, blocks that leave are trimmed.
    pub(super) fn new(stream: &'a FlashStream, slots: u32, trim: bool) -> InPlace<'a> {
        let slots = Slots::new(Dense::new(stream.unique_blocks()), slots);
        InPlace { stream, slots, trim, tally: Tally::default() }
    }
}

impl Placed for InPlace<'_> {
    #[inline]
    fn access(&mut self, position: usize, decision: Decision, evicts: u32, steps: &mut Vec<FlashStep>) {
        let block = self.stream.block(position);
        match decision {
            Decision::Bypass => {}
            Decision::Hit | Decision::LastHit => {
                let found = self.slots.read(block, steps);
                assert!(found, "a hit is on flash");
                if decision == Decision::LastHit {
                    self.slots.remove(block, self.trim, steps);
                }
            }
            Decision::Insert => {
                if evicts != NOT_EVICTING {
                    self.slots.remove(self.stream.block(evicts as usize), self.trim, steps);
                }
                self.slots.place(block, steps);
                self.tally.flash_writes.count_insertion(self.stream.is_write(position));
            }
        }
    }

    #[inline]
    fn prefetch(&self, block: u32) {
        self.slots.prefetch(block);
    }

    fn tally(&self) -> Tally {
        self.tally
    }
}
