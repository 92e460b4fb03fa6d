//! Failures of the devices and their effects on requests.

use std::collections::BTreeSet;

use flashwise_core::cache::Cache;
use flashwise_core::wlfc::Step;

use super::Engine;

/// The failures of a flash since its cache was recovered.
#[derive(Clone, Debug, Default)]
pub struct Failures {
    /// Cache buckets that are no longer writable.
    pub buckets: BTreeSet<u32>,
    /// Cache buckets that cannot be reset, and whose contents are invalid.
    pub dead: BTreeSet<u32>,
    /// True if a flush has failed.
    pub flushes: bool,
}

impl Engine {
    /// Number of backend buckets that are not written back, because the flash has lost some of their dirty blocks.
    pub fn lossy(&self) -> usize {
        let blocks = u64::from(self.layout.bucket_blocks);
        let is_lossy = |backend: &&u32| {
            let all = u64::from(**backend) * blocks..(u64::from(**backend) + 1) * blocks;
            self.layout.lossy.contains(&all.start) || self.layout.unreadable.iter().any(|block| all.contains(block))
        };
        self.cache.failing().iter().filter(is_lossy).count()
    }
}

impl<C: Cache<Step = Step>> Engine<C> {
    /// The failures of the flash.
    pub fn failures(&self) -> &Failures {
        &self.layout.failures
    }

    /// Returns the failed erase units of the flash.
    pub fn failed_units(&self) -> Vec<u32> {
        let all = self.layout.worn.iter().chain(&self.layout.failures.buckets).chain(&self.layout.failures.dead);
        all.map(|bucket| bucket + 1).collect::<BTreeSet<u32>>().into_iter().collect()
    }

    /// Returns the number of dirty blocks that the flash has lost.
    pub fn unreadable(&self) -> usize {
        self.layout.unreadable.len()
    }

    /// Returns the blocks whose only copy was unreadable, in order.
    pub fn lost_blocks(&self) -> Vec<u64> {
        let all: BTreeSet<u64> = self.layout.unreadable.iter().copied().collect();
        all.into_iter().collect()
    }
}
