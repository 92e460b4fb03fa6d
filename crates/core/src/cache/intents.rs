//! Write intents, for blocks that are overwritten past the flash while they have a clean copy there.
//!
//! Source: the write-intent bitmaps of Linux md (Documentation/admin-guide/md.rst); here they are records in the log.
//!
//! A clean copy must not be valid after a crash if the backend may have newer data. Before a region of the backend with
//! such copies is overwritten, it is durably recorded as [unsure](Kind::Unsure). Its clean copies are invalid until it
//! is [sure](Kind::Sure) again. Meanwhile each overwritten block only needs a [`Kind::Forget`], which may wait in
//! memory:
//!
//! - A prefix of the log survives. If the record that a region is sure survives, so do all its earlier Forgets.
//! - The record of an older dirty copy may survive without its write-back mark and without the Forget. Then the copy is
//!   valid and the write past it is lost. That is allowed, because no flush was answered since: a flush waits for
//!   Forgets.
//! - When the unit with the unsure record is reset, all earlier Forgets are durable. The region is recorded as sure
//!   before.
//!
//! Clean copies of an unsure region may also be written before the backend is flushed: they hold the newest data, and
//! a crash invalidates them. The backend is flushed before the region becomes sure. If that fails, the record says
//! that it is unsure.
//!
//! Recovery drops clean copies of unsure regions. The next run first records that permanently ([`Kind::ForgetRegion`]).

use std::collections::HashMap;

use rustc_hash::FxBuildHasher;

use super::append::Appender;
use super::config::Regions;
use crate::format::{Kind, Region};

/// An unsure region.
#[derive(Clone, Copy, Debug)]
struct Unsure {
    /// The sequence number of the unit that records it.
    said: u64,
    /// The time of the last overwrite of a block in it.
    used_us: u64,
}

/// The unsure regions.
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

    /// Returns the time when a region becomes sure again without further overwrites.
    pub(super) fn due_us(&self) -> Option<u64> {
        self.unsure.values().map(|unsure| unsure.used_us).min().map(|us| us.saturating_add(self.settings.sure_after_us))
    }

    /// True if the region of a block is unsure.
    pub(super) fn is_unsure(&self, block: u32) -> bool {
        !self.unsure.is_empty() && self.unsure.contains_key(&Region::of(block, self.settings.blocks))
    }

    /// Handles a region that could not become sure: the unit of the sequence number `said` records it as unsure again.
    pub(super) fn stay_unsure(&mut self, region: Region, said: u64, used_us: u64) {
        self.unsure.entry(region).or_insert(Unsure { said, used_us });
    }

    /// Returns the region that was overwritten longest ago.
    fn oldest(&self) -> Option<Region> {
        let some = self.unsure.iter().filter(|(region, _)| **region != Region::ALL);
        let oldest = some.min_by_key(|(region, unsure)| (unsure.used_us, region.first));
        oldest.map(|(region, _)| *region)
    }

    /// Makes the backend's copies of `blocks` changeable: their clean copies on flash will be invalid after a crash.
    /// They must have been [forgotten](Kind::Forget), or replaced by dirty ones, before.
    pub(super) fn become_unsure(&mut self, blocks: &[u32], now_us: u64, end: &mut Appender<'_>) {
        let mut regions: Vec<Region> = blocks.iter().map(|&block| Region::of(block, self.settings.blocks)).collect();
        regions.sort_unstable();
        regions.dedup();
        regions.retain(|region| self.unsure.get_mut(region).map(|unsure| unsure.used_us = now_us).is_none());
        if regions.is_empty() {
            return;
        }
        for region in regions {
            if self.unsure.len() >= self.settings.unsure_max as usize
                && let Some(oldest) = self.oldest()
            {
                self.become_sure(oldest, end);
            }
            end.mark(Kind::Unsure, region.first, region.blocks);
            let said = *end.log.sequences().end();
            self.unsure.insert(region, Unsure { said, used_us: now_us });
        }
        end.flush();
    }

    /// Records a region, or all regions together, as sure. The segment waits until the backend has all data on which
    /// clean copies rely.
    pub(super) fn become_sure(&mut self, region: Region, end: &mut Appender<'_>) {
        if region == Region::ALL {
            self.unsure.clear();
        }
        self.unsure.remove(&region);
        end.mark(Kind::Sure, region.first, region.blocks);
        if end.unflushed.are_relied_on() {
            end.log.need_backend_flush();
        }
    }

    /// Records regions as sure before the unit of `sequence` is reset, which records them as unsure. All regions
    /// together stay unsure, because some of them may be in use.
    pub(super) fn become_sure_with(&mut self, sequence: u64, end: &mut Appender<'_>) {
        let is_said = |(_, unsure): &(&Region, &Unsure)| unsure.said <= sequence;
        let mut regions: Vec<Region> = self.unsure.iter().filter(is_said).map(|(region, _)| *region).collect();
        regions.sort_unstable();
        for region in regions {
            if region != Region::ALL {
                self.become_sure(region, end);
                continue;
            }
            end.mark(Kind::Unsure, region.first, region.blocks);
            let said = *end.log.sequences().end();
            self.unsure.entry(region).and_modify(|unsure| unsure.said = said);
        }
    }

    /// Returns the unsure regions that were not overwritten for a while. If no others are unsure, that is all regions
    /// together.
    pub(super) fn due(&self, now_us: u64) -> Vec<Region> {
        let is_due = |unsure: &Unsure| unsure.used_us.saturating_add(self.settings.sure_after_us) <= now_us;
        let mut due: Vec<Region> = self.unsure.iter().filter(|(_, it)| is_due(it)).map(|(region, _)| *region).collect();
        if !due.is_empty() && due.len() == self.unsure.len() {
            return vec![Region::ALL];
        }
        due.sort_unstable();
        // Some of all regions are not due.
        due.retain(|region| *region != Region::ALL);
        due
    }
}
