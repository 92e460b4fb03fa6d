//! Failures of the flash.

use std::collections::BTreeSet;

use flashwise_core::wlfc::Step;
use rustc_hash::FxHashSet;

/// The failures of a flash since its cache was recovered, and the data that it has lost.
#[derive(Clone, Debug)]
pub struct Failures {
    /// Cache buckets that are no longer writable.
    pub buckets: BTreeSet<u32>,
    /// Cache buckets that cannot be reset, and whose contents are invalid.
    pub dead: BTreeSet<u32>,
    /// True if a flush has failed.
    pub flushes: bool,
    /// Cache buckets that failed earlier, and are not reset.
    pub(super) worn: BTreeSet<u32>,
    /// Dirty blocks that could not be read from flash.
    pub(super) unreadable: FxHashSet<u64>,
    /// First blocks of failed write-backs, because some of their blocks are lost.
    pub(super) lossy: BTreeSet<u64>,
}

impl Failures {
    /// Starts with buckets that failed earlier, and blocks that could not be read.
    pub(super) fn new(worn: BTreeSet<u32>, unreadable: FxHashSet<u64>) -> Failures {
        let (buckets, dead, lossy) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        Failures { buckets, dead, flushes: false, worn, unreadable, lossy }
    }

    /// Records the failure of a step.
    pub(super) fn note(&mut self, step: &Step) {
        match *step {
            Step::Append { bucket, .. } => drop(self.buckets.insert(bucket)),
            Step::Reset { bucket } => drop(self.dead.insert(bucket)),
            Step::FlushFlash => self.flushes = true,
            _ => {}
        }
    }

    /// Returns the failed erase units.
    pub fn units(&self) -> Vec<u32> {
        let all = self.worn.iter().chain(&self.buckets).chain(&self.dead);
        all.map(|bucket| bucket + 1).collect::<BTreeSet<u32>>().into_iter().collect()
    }

    /// Returns the blocks whose only copy was unreadable, in order.
    pub fn lost_blocks(&self) -> Vec<u64> {
        let all: BTreeSet<u64> = self.unreadable.iter().copied().collect();
        all.into_iter().collect()
    }

    /// Returns the number of `failing` backend buckets with dirty blocks that the flash has lost. They are not written
    /// back. Each has `bucket_blocks`.
    pub fn lossy(&self, failing: &BTreeSet<u32>, bucket_blocks: u32) -> usize {
        let blocks = u64::from(bucket_blocks);
        let is_lossy = |backend: &&u32| {
            let all = u64::from(**backend) * blocks..(u64::from(**backend) + 1) * blocks;
            self.lossy.contains(&all.start) || self.unreadable.iter().any(|block| all.contains(block))
        };
        failing.iter().filter(is_lossy).count()
    }
}
