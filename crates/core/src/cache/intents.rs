//! Overwriting past the flash what has a clean copy there.
//!
//! Source: write intents as the bitmaps of Linux md keep them (Documentation/admin-guide/md.rst); ours are records in the log.
//!
//! A clean copy must not count after a crash if the backend may hold newer data. Before a region of the backend is written over such a
//! copy, it is durably said to be [unsure](Kind::Unsure): no clean copy of it counts, until it is [sure](Kind::Sure) again. Whatever is
//! written there meanwhile needs no more than a [`Kind::Forget`] for each block, which may wait in memory:
//!
//! - What survives of the log is a prefix of it. Where a region is sure again, all of its Forgets before that have survived.
//! - Where the record of an older dirty copy survives, and neither the mark that it was written back nor the Forget, it counts, and what was
//!   written past it is gone. That may be, as long as no flush was answered since: a flush waits for Forgets.
//! - When the unit that says that a region is unsure is reset, all Forgets before are durable: the region is sure without a word.
//!
//! Recovery leaves clean copies of unsure regions out. The next run begins by saying so for good ([`Kind::ForgetRegion`]).

use std::collections::HashMap;

use rustc_hash::FxBuildHasher;

use super::LogCache;
use super::config::Regions;
use crate::format::{Kind, Region};
use crate::step::Step;

/// A region that is unsure.
#[derive(Clone, Copy, Debug)]
struct Unsure {
    /// The sequence of the unit that says so.
    said: u64,
    /// When a block of it was overwritten last.
    used_us: u64,
}

/// The regions that are unsure.
#[derive(Debug)]
pub(super) struct Intents {
    settings: Regions,
    unsure: HashMap<Region, Unsure, FxBuildHasher>,
}

impl Intents {
    pub(super) fn new(settings: Regions) -> Intents {
        assert!(settings.blocks > 0 && settings.unsure_max > 0);
        Intents { settings, unsure: HashMap::default() }
    }

    /// When a region becomes sure again if nothing more is overwritten.
    pub(super) fn due_us(&self) -> Option<u64> {
        self.unsure.values().map(|unsure| unsure.used_us).min().map(|us| us.saturating_add(self.settings.sure_after_us))
    }

    /// The unit of `sequence` is reset, with what it says.
    pub(super) fn unit_reset(&mut self, sequence: u64) {
        self.unsure.retain(|_, unsure| unsure.said > sequence);
    }

    /// The region that was overwritten longest ago.
    fn oldest(&self) -> Option<Region> {
        let oldest = self.unsure.iter().min_by_key(|(region, unsure)| (unsure.used_us, region.first));
        oldest.map(|(region, _)| *region)
    }
}

impl LogCache {
    /// Plans that the backend's copies of `blocks` may be changed: the clean copies that they had on flash do not count after a crash.
    /// These were [forgotten](Kind::Forget), or replaced by dirty ones, before.
    pub(super) fn become_unsure(&mut self, blocks: &[u32], steps: &mut Vec<Step>) {
        if blocks.is_empty() {
            return;
        }
        // Not later: it may reset the unit that says that a region is unsure.
        self.reclaim(steps);
        let Intents { settings, unsure } = &mut self.intents;
        let unsure_max = settings.unsure_max as usize;
        let mut regions: Vec<Region> = blocks.iter().map(|&block| Region::of(block, settings.blocks)).collect();
        regions.sort_unstable();
        regions.dedup();
        regions.retain(|region| match unsure.get_mut(region) {
            Some(unsure) => {
                unsure.used_us = self.now_us;
                false
            }
            None => true,
        });
        if regions.is_empty() {
            return;
        }
        for region in regions {
            if self.intents.unsure.len() >= unsure_max
                && let Some(oldest) = self.intents.oldest()
            {
                self.say_sure(oldest, steps);
            }
            self.log_mark(Kind::Unsure, region.first, region.blocks, steps);
            let said = *self.log.sequences().end();
            self.intents.unsure.insert(region, Unsure { said, used_us: self.now_us });
        }
        self.log_seal(steps);
        self.log.flush(steps);
    }

    fn say_sure(&mut self, region: Region, steps: &mut Vec<Step>) {
        self.intents.unsure.remove(&region);
        self.log_mark(Kind::Sure, region.first, region.blocks, steps);
    }

    /// Plans that regions of which nothing was overwritten for a while are sure again.
    pub(super) fn become_sure(&mut self, steps: &mut Vec<Step>) {
        let Intents { settings, unsure } = &self.intents;
        let is_due = |unsure: &Unsure| unsure.used_us.saturating_add(settings.sure_after_us) <= self.now_us;
        let mut due: Vec<Region> = unsure.iter().filter(|(_, it)| is_due(it)).map(|(region, _)| *region).collect();
        if due.len() == unsure.len() {
            return self.all_become_sure(steps);
        }
        due.sort_unstable();
        for region in due {
            self.reclaim(steps);
            self.say_sure(region, steps);
        }
    }

    /// Plans that no region is unsure.
    pub(super) fn all_become_sure(&mut self, steps: &mut Vec<Step>) {
        if !self.intents.unsure.is_empty() {
            self.reclaim(steps);
            self.intents.unsure.clear();
            self.say_sure(Region::ALL, steps);
        }
    }
}
