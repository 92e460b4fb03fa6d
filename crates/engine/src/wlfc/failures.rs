//! What failed of the devices, and what requests have of that.

use std::collections::BTreeSet;

use flashwise_core::cache::Cache;
use flashwise_core::wlfc::Step;

use super::Engine;
use crate::export::{Done, Request};

/// What failed of a flash since its cache was found.
#[derive(Clone, Debug, Default)]
pub struct Failures {
    /// Cache buckets that cannot be written any more.
    pub buckets: BTreeSet<u32>,
    /// Cache buckets that cannot be reset, of which nothing counts.
    pub dead: BTreeSet<u32>,
    /// It cannot be flushed.
    pub flushes: bool,
}

impl Engine {
    /// Backend buckets that are not written back, as the flash has lost some of what they lack.
    pub fn lossy(&self) -> usize {
        let blocks = u64::from(self.layout.bucket_blocks);
        let is_lossy = |backend: &&u32| {
            let all = u64::from(**backend) * blocks..(u64::from(**backend) + 1) * blocks;
            self.layout.lossy.contains(&all.start) || self.layout.unreadable.iter().any(|block| all.contains(block))
        };
        self.cache.failing().iter().filter(is_lossy).count()
    }

    /// True if every change is answered with an error, because nothing is written to the flash any more.
    pub fn refuses_changes(&self) -> bool {
        self.cache.is_frozen() && !self.layout.holds_frozen
    }
}

impl<C: Cache<Step = Step>> Engine<C> {
    /// What failed of the flash.
    pub fn failures(&self) -> &Failures {
        &self.layout.failures
    }

    /// True if something failed that the cache relies on, of the flash, as 0, or the backend, as 1: no request is performed any more.
    pub fn stopped(&self) -> Option<usize> {
        self.layout.stopped
    }

    /// Erase units of the flash that failed.
    pub fn failed_units(&self) -> Vec<u32> {
        let all = self.layout.worn.iter().chain(&self.layout.failures.buckets).chain(&self.layout.failures.dead);
        all.map(|bucket| bucket + 1).collect::<BTreeSet<u32>>().into_iter().collect()
    }

    /// The flash cannot be read for now: requests fail until the cache is found again.
    pub fn wait(&mut self) {
        self.layout.waits = true;
    }

    /// True if it waits for the flash to be read again.
    pub fn waits(&self) -> bool {
        self.layout.waits
    }

    /// Requests that fail from now on, as nothing is written to the flash any more, are answered. Hands back those that failed before and wait until
    /// nothing runs: no other call does. Where the cache has to be found again, they are [handed back](crate::engine::Output::held) after that.
    #[must_use]
    pub fn stop_holding(&mut self) -> Vec<(Request, Done)> {
        self.layout.holds_frozen = false;
        let held = if self.layout.stopped.is_none() { std::mem::take(&mut self.held) } else { Vec::new() };
        held.into_iter().map(|(_, request, done)| (request, done)).collect()
    }

    /// Every request fails from now on.
    pub fn give_up(&mut self) {
        self.settings.holds_failed = false;
    }

    /// True if every request fails for good.
    pub fn is_given_up(&self) -> bool {
        self.layout.stopped.is_some() && !self.settings.holds_failed
    }

    /// Returns how many blocks the flash has lost that the backend does not have.
    pub fn unreadable(&self) -> usize {
        self.layout.unreadable.len()
    }

    /// The blocks whose only copy could not be read, in order.
    pub fn lost_blocks(&self) -> Vec<u64> {
        let all: BTreeSet<u64> = self.layout.unreadable.iter().copied().collect();
        all.into_iter().collect()
    }
}
