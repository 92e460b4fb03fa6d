//! Caches that are asked one block access at a time, and answer with what became of it and with steps for their flash.
//!
//! The three that there are differ in where blocks lie: nowhere ([`Alone`]: what a policy decides, and no device), each at a place of its
//! own ([`InPlace`]), or in erase units that are written and reset whole ([`Containers`]). What they have of data is clean, and they do not
//! outlive their process: the cache that a server runs is [`crate::cache`].

mod containers;
mod in_place;

pub use containers::Containers;
pub use in_place::InPlace;

use crate::access::Access;
use crate::admission::adaptive::Decision;
use crate::policy::{Outcome, Policy};
use crate::step::FlashStep;

/// Blocks that a cache wrote to its flash, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlashWrites {
    /// Because a client wrote them.
    pub client_blocks: u64,
    /// Because a client read them and the cache took them in.
    pub admission_blocks: u64,
    /// Because the erase unit that they were on was reset.
    pub copy_forward_blocks: u64,
    /// To find the others again: headers and footers.
    pub metadata_blocks: u64,
}

impl FlashWrites {
    /// A block is written because of an access.
    #[inline]
    pub fn count_insertion(&mut self, is_write: bool) {
        if is_write {
            self.client_blocks += 1;
        } else {
            self.admission_blocks += 1;
        }
    }

    /// All that was written, for each block that was written because of an access. None if none was.
    pub fn amplification(&self) -> Option<f64> {
        let wanted = self.client_blocks + self.admission_blocks;
        (wanted > 0).then(|| self.total_blocks() as f64 / wanted as f64)
    }

    /// All of them.
    pub fn total_blocks(&self) -> u64 {
        self.client_blocks + self.admission_blocks + self.copy_forward_blocks + self.metadata_blocks
    }
}

impl std::ops::Sub for FlashWrites {
    type Output = FlashWrites;

    /// What was written after `before`.
    fn sub(self, before: FlashWrites) -> FlashWrites {
        FlashWrites {
            client_blocks: self.client_blocks - before.client_blocks,
            admission_blocks: self.admission_blocks - before.admission_blocks,
            copy_forward_blocks: self.copy_forward_blocks - before.copy_forward_blocks,
            metadata_blocks: self.metadata_blocks - before.metadata_blocks,
        }
    }
}

/// What only the cache knows of an access, beyond its outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Blocks written to flash.
    pub flash_writes: FlashWrites,
    /// Reads that hit blocks that were not on flash yet, but in RAM on their way there.
    pub buffer_hits: u64,
    /// Blocks that were still valid on the erase units that the cache reset.
    pub live_at_reset_blocks: u64,
    /// Blocks copied forward although they were not read after that before they left; only who knows the future knows them.
    pub wasted_copies_blocks: u64,
}

impl std::ops::Sub for Tally {
    type Output = Tally;

    /// What happened after `before`.
    fn sub(self, before: Tally) -> Tally {
        Tally {
            flash_writes: self.flash_writes - before.flash_writes,
            buffer_hits: self.buffer_hits - before.buffer_hits,
            live_at_reset_blocks: self.live_at_reset_blocks - before.live_at_reset_blocks,
            wasted_copies_blocks: self.wasted_copies_blocks - before.wasted_copies_blocks,
        }
    }
}

/// A cache of blocks. It is told every access once, in order.
pub trait BlockCache {
    /// What names a block.
    type Key: Copy + Eq;

    /// Decides about one access at `time_us`, which never goes back, and pushes what is to be done on flash. A cache that evicts whole
    /// erase units names none of the evicted blocks.
    fn access(&mut self, access: Access<Self::Key>, time_us: u64, steps: &mut Vec<FlashStep>) -> Outcome<Self::Key>;

    /// The block that left with the last access although it was a hit, if there is one: who knows the future keeps nothing that is not asked
    /// for again.
    fn left(&self) -> Option<Self::Key> {
        None
    }

    /// A hint that `later` will be accessed soon and `soon`, for which the hint as `later` was given before, sooner.
    fn prefetch(&self, soon: Self::Key, later: Self::Key) {
        let _ = (soon, later);
    }

    /// What was decided last about a setting that adapts, if one does.
    fn decision(&self) -> Option<&Decision> {
        None
    }

    /// What was written so far.
    fn tally(&self) -> Tally;
}

/// A policy and nothing else: what is cached lies nowhere.
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
