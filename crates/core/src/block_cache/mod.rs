//! Caches that handle one block access at once; the result is an outcome, and steps for the flash.
//!
//! The three kinds differ in the location of blocks. [`Alone`] has none: only a policy's decisions, without a device.
//! [`InPlace`] has a slot for each block. [`Containers`] has erase units that are written and reset whole. Their data
//! is clean and does not outlive the process; the cache of a server is [`crate::cache`].

mod containers;
mod in_place;

pub use containers::Containers;
pub use in_place::InPlace;

use crate::access::Access;
use crate::admission::adaptive::Decision;
use crate::policy::{Outcome, Policy};
use crate::step::FlashStep;
pub use crate::step::FlashWrites;

crate::counts! {
    /// Figures that only the cache knows, in addition to outcomes.
    pub struct Tally {
        /// Blocks written to flash.
        pub flash_writes: FlashWrites,
        /// Read hits of blocks that were still in RAM on their way to flash.
        pub buffer_hits: u64,
        /// Blocks that were still valid on the erase units when the cache reset them.
        pub live_at_reset_blocks: u64,
        /// Blocks copied forward that were not read again before they left. Only offline policies can count them.
        pub wasted_copies_blocks: u64,
    }
}

/// A cache of blocks. It sees every access once, in order.
pub trait BlockCache {
    /// The name of a block.
    type Key: Copy + Eq;

    /// Decides about one access at `time_us`, which never decreases, and pushes the steps for the flash. A cache that
    /// evicts whole erase units does not name the evicted blocks.
    fn access(&mut self, access: Access<Self::Key>, time_us: u64, steps: &mut Vec<FlashStep>) -> Outcome<Self::Key>;

    /// Returns the block that left with the last access although it was a hit, if any. An offline policy keeps no block
    /// without a further access.
    fn left(&self) -> Option<Self::Key> {
        None
    }

    /// Hints that `later` will be accessed soon, and `soon`, an earlier `later`, even sooner.
    fn prefetch(&self, soon: Self::Key, later: Self::Key) {
        let _ = (soon, later);
    }

    /// Returns the last decision about an adaptive setting, if any.
    fn decision(&self) -> Option<&Decision> {
        None
    }

    /// Returns the figures so far.
    fn tally(&self) -> Tally;
}

/// Only a policy: cached blocks have no location.
#[derive(Clone, Debug)]
pub struct Alone<P>(pub P);

impl<P: Policy> BlockCache for Alone<P> {
    type Key = P::Key;

    #[inline]
    fn access(&mut self, access: Access<P::Key>, time_us: u64, _steps: &mut Vec<FlashStep>) -> Outcome<P::Key> {
        self.0.tick(time_us);
        self.0.access(access)
    }

    #[inline]
    fn prefetch(&self, soon: P::Key, later: P::Key) {
        self.0.prefetch(soon, later);
    }

    fn decision(&self) -> Option<&Decision> {
        self.0.decision()
    }

    fn tally(&self) -> Tally {
        Tally::default()
    }
}
