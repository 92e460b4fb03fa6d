//! Failures of the devices and their effects on requests.

use std::collections::BTreeSet;

use flashwise_core::cache::Cache;
use flashwise_core::wlfc::Step;

use super::Engine;
use crate::request::{Done, Request};

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

    /// True if every change fails, because the flash is no longer written.
    pub fn refuses_changes(&self) -> bool {
        self.cache.is_frozen() && !self.layout.holds_frozen
    }
}

impl<C: Cache<Step = Step>> Engine<C> {
    /// The failures of the flash.
    pub fn failures(&self) -> &Failures {
        &self.layout.failures
    }

    /// The device whose failure stopped the engine: 0 for the flash, 1 for the backend. A stopped engine performs no
    /// requests.
    pub fn stopped(&self) -> Option<usize> {
        self.layout.stopped
    }

    /// Returns the failed erase units of the flash.
    pub fn failed_units(&self) -> Vec<u32> {
        let all = self.layout.worn.iter().chain(&self.layout.failures.buckets).chain(&self.layout.failures.dead);
        all.map(|bucket| bucket + 1).collect::<BTreeSet<u32>>().into_iter().collect()
    }

    /// Makes requests fail while the flash is unreadable, until the cache is recovered.
    pub fn wait(&mut self) {
        self.layout.waits = true;
    }

    /// True if the engine waits for the flash to become readable.
    pub fn waits(&self) -> bool {
        self.layout.waits
    }

    /// From now on, requests that fail on a frozen flash are answered with an error. Returns those that failed earlier
    /// and are held while nothing runs; no other call returns them. If the cache must be recovered, they are [handed
    /// back](crate::engine::Output::held) afterwards.
    #[must_use]
    pub fn stop_holding(&mut self) -> Vec<(Request, Done)> {
        self.layout.holds_frozen = false;
        let held = if self.layout.stopped.is_none() { std::mem::take(&mut self.held) } else { Vec::new() };
        held.into_iter().map(|(_, request, done)| (request, done)).collect()
    }

    /// Makes all further requests fail.
    pub fn give_up(&mut self) {
        self.settings.holds_failed = false;
    }

    /// True if all requests fail permanently.
    pub fn is_given_up(&self) -> bool {
        self.layout.stopped.is_some() && !self.settings.holds_failed
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
