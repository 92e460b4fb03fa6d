//! A conventional SSD: a page-mapped flash translation layer. It writes to open erase units and collects garbage when
//! free units run out.
//!
//! Sources: Desnoyers: Analytic Modeling of SSD Write Performance. SYSTOR 2012. Van Houdt: A Mean Field Model for a
//! Class of Garbage Collection Algorithms in Flash-based Solid State Drives. SIGMETRICS 2013.
//!
//! Additions to both: unwritten and discarded pages, a separate unit for copies, a larger reserve and static wear
//! levelling.

use std::collections::VecDeque;
use std::ops::Range;

use flashwise_core::step::FlashStep;

use super::ftl_config::{FtlConfig, GcPlacement};
use super::meter::{Meter, Unmetered};
use super::victims::Candidates;
use super::wear::Erasures;
use super::{Device, DeviceCounters, DeviceError, NONE, StepError};

/// A unit that is being written, with its unwritten pages `next..end`; or none.
#[derive(Clone, Copy, Debug)]
struct OpenUnit {
    unit: u32,
    next: u32,
    end: u32,
}

impl OpenUnit {
    const NONE: OpenUnit = OpenUnit { unit: NONE, next: 0, end: 0 };

    fn is_none(&self) -> bool {
        self.unit == NONE
    }
}

/// A conventional SSD.
#[derive(Clone, Debug)]
pub struct Ftl<M: Meter = Unmetered> {
    config: FtlConfig,
    /// The physical page of each logical page.
    physical: Vec<u32>,
    /// The logical page of each valid physical page.
    logical: Vec<u32>,
    /// Valid pages, by unit.
    valid: Vec<u32>,
    /// Time when a unit was filled or last lost a page, in pages written by the host. Empty unless wear is levelled.
    modified: Vec<u64>,
    erasures: Erasures,
    /// Erased units, the earliest erased first.
    free: VecDeque<u32>,
    candidates: Candidates,
    host: OpenUnit,
    copies: OpenUnit,
    /// Scratch space for the valid pages of the unit being collected; kept to avoid allocations.
    moving: Vec<u32>,
    counters: DeviceCounters,
    meter: M,
}

impl Ftl {
    /// Creates an empty SSD.
    pub fn new(config: FtlConfig) -> Result<Ftl, DeviceError> {
        Ftl::metered(config, Unmetered)
    }
}

impl<M: Meter> Ftl<M> {
    /// Creates an empty SSD that reports its flash operations to `meter`.
    pub fn metered(config: FtlConfig, meter: M) -> Result<Ftl<M>, DeviceError> {
        let units = config.units()?;
        Ok(Ftl {
            physical: vec![NONE; config.logical_pages as usize],
            logical: vec![NONE; units as usize * config.unit_pages as usize],
            valid: vec![0; units as usize],
            modified: vec![0; if config.wear_levelling.is_some() { units as usize } else { 0 }],
            erasures: Erasures::new(units),
            free: (0..units).collect(),
            candidates: Candidates::new(config.victim, units, config.unit_pages, config.seed),
            host: OpenUnit::NONE,
            copies: OpenUnit::NONE,
            moving: vec![0; config.unit_pages as usize],
            counters: DeviceCounters::default(),
            meter,
            config,
        })
    }

    /// Returns the configuration.
    pub fn config(&self) -> &FtlConfig {
        &self.config
    }

    /// Returns the number of erase units, spare and reserve included.
    pub fn units(&self) -> u32 {
        self.valid.len() as u32
    }

    /// Returns the physical page that holds a logical page; `None` if the page is unwritten or discarded.
    pub fn physical_page(&self, page: u32) -> Option<u32> {
        let physical = self.physical[page as usize];
        (physical != NONE).then_some(physical)
    }

    /// Returns the meter of the flash operations.
    pub fn meter(&self) -> &M {
        &self.meter
    }

    /// Returns the meter, for instance to reset it.
    pub fn meter_mut(&mut self) -> &mut M {
        &mut self.meter
    }

    fn read(&mut self, page: u32) {
        self.counters.host_reads += 1;
        // An unmapped page reads as zeroes, without access to the flash.
        if let Some(physical) = self.physical_page(page) {
            self.meter.read(physical);
        }
    }

    fn write(&mut self, page: u32) {
        self.counters.host_writes += 1;
        self.invalidate(page);
        if self.host.is_none() {
            match self.config.gc_placement {
                GcPlacement::Own => self.open_for_host(),
                GcPlacement::Mixed => self.open_for_host_and_copies(),
            }
        }
        self.program(page);
    }

    fn discard(&mut self, page: u32) {
        self.counters.host_discards += 1;
        self.invalidate(page);
    }

    fn reset(&mut self, unit: u32) {
        self.counters.host_resets += 1;
        let first = unit * self.config.unit_pages;
        let end = first.saturating_add(self.config.unit_pages).min(self.config.logical_pages);
        (first..end).for_each(|page| self.discard(page));
    }

    #[inline]
    fn unit_of(&self, page: u32) -> u32 {
        page / self.config.unit_pages
    }

    /// Marks the current copy of the logical page as invalid.
    #[inline]
    fn invalidate(&mut self, page: u32) {
        let physical = std::mem::replace(&mut self.physical[page as usize], NONE);
        if physical == NONE {
            return;
        }
        self.logical[physical as usize] = NONE;
        let unit = self.unit_of(physical);
        let valid = self.valid[unit as usize] - 1;
        self.valid[unit as usize] = valid;
        if !self.is_open(unit) {
            self.candidates.lost_page(unit, valid, self.counters.host_writes);
            self.touch(unit);
        }
    }

    #[inline]
    fn is_open(&self, unit: u32) -> bool {
        self.host.unit == unit || self.copies.unit == unit
    }

    /// Writes the logical page to the host's open unit.
    #[inline]
    fn program(&mut self, page: u32) {
        let OpenUnit { unit, next, end } = self.host;
        assert!(next < end, "a unit was opened for the write");
        self.host.next += 1;
        self.counters.programs_host += 1;
        self.physical[page as usize] = next;
        self.logical[next as usize] = page;
        self.valid[unit as usize] += 1;
        self.meter.program(next);
        if next + 1 == end {
            self.host = OpenUnit::NONE;
            self.fill(unit);
        }
    }

    /// Handles a unit whose last page was written: it becomes a candidate for collection.
    fn fill(&mut self, unit: u32) {
        self.candidates.add(unit, self.valid[unit as usize], self.counters.host_writes);
        self.touch(unit);
    }

    #[inline]
    fn touch(&mut self, unit: u32) {
        if let Some(modified) = self.modified.get_mut(unit as usize) {
            *modified = self.counters.host_writes;
        }
    }

    fn open_unit(&mut self) -> OpenUnit {
        let unit = self.free.pop_front().expect("the reserve leaves a free unit");
        let first = unit * self.config.unit_pages;
        OpenUnit { unit, next: first, end: first + self.config.unit_pages }
    }

    fn has_unit_beyond_reserve(&self) -> bool {
        self.free.len() > self.config.reserve_units as usize
    }

    /// A collection takes at most one unit from the reserve, if the copies do not fit the open unit, and returns one.
    fn open_for_host(&mut self) {
        while !self.has_unit_beyond_reserve() {
            self.collect();
        }
        self.host = self.open_unit();
    }

    /// The host continues in the unit that the copies went to.
    fn open_for_host_and_copies(&mut self) {
        while self.host.is_none() {
            let collects = !self.has_unit_beyond_reserve();
            self.host = self.open_unit();
            if collects {
                self.collect();
            }
        }
    }

    /// Copies the valid pages of a full unit elsewhere, and erases it.
    fn collect(&mut self) {
        let victim = self.candidates.choose(&self.valid, self.counters.host_writes);
        let victim = victim.expect("units that are neither free nor open are full");
        self.candidates.remove(victim);
        let count = self.gather(victim);
        let mut copied = 0;
        while copied < count {
            if self.config.gc_placement == GcPlacement::Own && self.copies.is_none() {
                self.copies = self.open_unit();
            }
            let open = match self.config.gc_placement {
                GcPlacement::Own => &mut self.copies,
                GcPlacement::Mixed => &mut self.host,
            };
            let OpenUnit { unit, next, end } = *open;
            let length = (count - copied).min((end - next) as usize);
            assert!(length > 0, "a unit was opened for the copies");
            open.next += length as u32;
            let full = open.next == end;
            if full {
                *open = OpenUnit::NONE;
            }
            self.copy(copied..copied + length, next);
            self.counters.programs_collection += length as u64;
            self.valid[unit as usize] += length as u32;
            if full {
                self.fill(unit);
            }
            copied += length;
        }
        self.erase(victim);
        self.level(victim);
    }

    /// Collects the valid pages of a unit at the start of `moving`; returns their number.
    fn gather(&mut self, unit: u32) -> usize {
        let first = unit * self.config.unit_pages;
        let pages = &self.logical[first as usize..(first + self.config.unit_pages) as usize];
        if self.valid[unit as usize] == 0 {
            return 0;
        }
        let mut count = 0;
        // Branch-free, because the validity of a page is unpredictable.
        for (physical, page) in (first..).zip(pages) {
            self.moving[count] = physical;
            count += usize::from(*page != NONE);
        }
        count
    }

    /// Copies the given pages of `moving` to the pages from `to` on.
    fn copy(&mut self, moving: Range<usize>, to: u32) {
        for (to, from) in (to..).zip(&self.moving[moving]) {
            let page = std::mem::replace(&mut self.logical[*from as usize], NONE);
            self.meter.read(*from);
            self.meter.program(to);
            self.logical[to as usize] = page;
            self.physical[page as usize] = to;
        }
    }

    fn erase(&mut self, unit: u32) {
        self.valid[unit as usize] = 0;
        self.erasures.count(unit);
        self.counters.erasures += 1;
        self.meter.erase(unit);
        self.free.push_back(unit);
    }

    /// Levels wear: a unit that was just erased gets the pages of a full unit that is too far behind. Among those, cold
    /// units come first: the ones unchanged while the host wrote the whole device twice, longest unchanged first. Their
    /// data lets the worn unit rest. If there is none, the least worn unit is chosen: under a cache in place, its
    /// oldest data is overwritten next.
    fn level(&mut self, worn: u32) {
        let Some(allowed) = self.config.wear_levelling else { return };
        let behind = |erasures: u32| self.erasures.of(worn) > erasures.saturating_add(allowed);
        if !behind(self.erasures.least()) {
            return;
        }
        let is_full = |unit: &u32| self.valid[*unit as usize] > 0 && !self.is_open(*unit);
        let full_and_behind = (0..self.units()).filter(|unit| behind(self.erasures.of(*unit)) && is_full(unit));
        let twice = 2 * u64::from(self.config.logical_pages);
        let rest_of = |unit: &u32| {
            let modified = self.modified[*unit as usize];
            let is_cold = modified.saturating_add(twice) <= self.counters.host_writes;
            (!is_cold, if is_cold { 0 } else { self.erasures.of(*unit) }, modified)
        };
        if let Some(rested) = full_and_behind.min_by_key(rest_of) {
            self.swap(rested, worn);
        }
    }

    /// Moves the valid pages of a full unit to the unit that was erased last, and erases the full unit. Its invalid
    /// pages stay unwritten there, so the free space does not change.
    fn swap(&mut self, rested: u32, worn: u32) {
        assert_eq!(self.free.pop_back(), Some(worn), "it was erased last");
        self.candidates.remove(rested);
        let count = self.gather(rested);
        self.copy(0..count, worn * self.config.unit_pages);
        self.counters.programs_levelling += count as u64;
        self.valid[worn as usize] = count as u32;
        self.modified[worn as usize] = self.modified[rested as usize];
        self.candidates.add(worn, self.valid[worn as usize], self.counters.host_writes);
        self.erase(rested);
    }
}

impl<M: Meter> Device for Ftl<M> {
    /// Executes a step. Resetting a unit discards the logical pages that lie in it.
    #[inline]
    fn try_step(&mut self, step: FlashStep) -> Result<(), StepError> {
        let pages = self.config.logical_pages;
        match step {
            FlashStep::Read { page } | FlashStep::Write { page } | FlashStep::Discard { page } if page >= pages => {
                return Err(StepError::Page { page, pages });
            }
            FlashStep::Read { page } => self.read(page),
            FlashStep::Write { page } => self.write(page),
            FlashStep::Discard { page } => self.discard(page),
            FlashStep::Reset { unit } => {
                let units = pages.div_ceil(self.config.unit_pages);
                if unit >= units {
                    return Err(StepError::Unit { unit, units });
                }
                self.reset(unit);
            }
        }
        Ok(())
    }

    fn counters(&self) -> &DeviceCounters {
        &self.counters
    }

    fn erasures_by_unit(&self) -> Vec<u32> {
        self.erasures.by_unit()
    }

    fn check(&self) {
        let mut valid = vec![0; self.valid.len()];
        for (physical, page) in (0..).zip(&self.logical).filter(|(_, page)| **page != NONE) {
            assert_eq!(self.physical[*page as usize], physical, "a valid page is where its logical page is mapped to");
            valid[self.unit_of(physical) as usize] += 1;
        }
        assert_eq!(valid, self.valid, "valid pages are counted by unit");
        let mapped = self.physical.iter().filter(|physical| **physical != NONE).count();
        assert_eq!(mapped, valid.iter().sum::<u32>() as usize, "each mapped logical page has one valid physical page");
        let mut full = vec![true; self.valid.len()];
        for unit in &self.free {
            assert!(std::mem::replace(&mut full[*unit as usize], false), "a unit is free once");
            assert_eq!(valid[*unit as usize], 0, "a free unit holds nothing");
        }
        for unit in (0..self.units()).filter(|unit| self.is_open(*unit)) {
            assert!(std::mem::replace(&mut full[unit as usize], false), "an open unit is not free");
        }
        for open in [&self.host, &self.copies] {
            let unwritten = &self.logical[open.next as usize..open.end as usize];
            assert!(unwritten.iter().all(|page| *page == NONE), "what was not written is not valid");
        }
        self.candidates.check(&full, &self.valid);
        let started = self.counters.erasures > 0;
        assert!(!started || self.free.len() >= self.config.reserve_units as usize, "the reserve is free between steps");
        assert_eq!(self.counters.programs_host, self.counters.host_writes, "the host's writes go to flash");
        self.erasures.check(self.counters.erasures);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_device_collects_the_unit_with_the_fewest_valid_pages() {
        // Two units of data, one in reserve, one to write: 4 units of 2 pages.
        let config = FtlConfig { gc_placement: GcPlacement::Mixed, ..FtlConfig::new(4, 2, 1.0) };
        let mut ftl = Ftl::new(config).unwrap();
        assert_eq!(ftl.units(), 4);
        let physical = |ftl: &Ftl| (0..4).map(|page| ftl.physical_page(page).unwrap()).collect::<Vec<_>>();
        for page in [0, 1, 2, 3, 0, 2] {
            ftl.step(FlashStep::Write { page });
            ftl.check();
        }
        // Units 0: [-, 1], 1: [-, 3], 2: [0, 2], 3 in reserve. Nothing has been collected.
        assert_eq!(physical(&ftl), [4, 1, 5, 3]);
        assert_eq!(ftl.counters().erasures, 0);
        // Writing 1 leaves unit 0 without valid pages. It is collected at no cost, and the write goes to the unit in
        // reserve.
        ftl.step(FlashStep::Write { page: 1 });
        assert_eq!((ftl.counters().programs_collection, ftl.counters().erasures), (0, 1));
        assert_eq!(physical(&ftl), [4, 6, 5, 3]);
        // 0 fills unit 3: units 0 free, 1: [-, 3], 2: [-, 2], 3: [1, 0]. Writing 0 again makes that three units with
        // one valid page: unit 1 lost its page first. 3 is copied to unit 0, and 0 follows it.
        for page in [0, 0] {
            ftl.step(FlashStep::Write { page });
            ftl.check();
        }
        assert_eq!((ftl.counters().programs_collection, ftl.counters().erasures), (1, 2));
        assert_eq!(physical(&ftl), [1, 6, 5, 0]);
        assert_eq!(ftl.counters().write_amplification(), Some(10.0 / 9.0));
    }

    #[test]
    fn cold_pages_that_are_moved_to_a_worn_unit_stay_cold() {
        let config = FtlConfig { wear_levelling: Some(1), ..FtlConfig::new(64, 8, 0.5) };
        let mut ftl = Ftl::new(config).unwrap();
        (0..64).for_each(|page| ftl.step(FlashStep::Write { page }));
        let mut places = vec![ftl.physical_page(0)];
        for write in 0..4000 {
            // The first half is never rewritten.
            ftl.step(FlashStep::Write { page: 32 + write * 13 % 32 });
            let place = ftl.physical_page(0);
            if places.last() != Some(&place) {
                places.push(place);
            }
            let unit = ftl.unit_of(place.unwrap());
            assert_eq!(ftl.modified[unit as usize], 8, "unit {unit} holds what was written first");
        }
        ftl.check();
        assert!(places.len() > 5, "it was moved again and again: {places:?}");
    }

    /// Pages are overwritten roughly in the order they were written, as by a cache in place: the oldest page is next.
    #[test]
    fn pages_that_are_about_to_be_overwritten_do_not_wear_a_unit_out() {
        let spread = |wear_levelling| {
            let mut ftl = Ftl::new(FtlConfig { wear_levelling, ..FtlConfig::new(2048, 16, 0.1) }).unwrap();
            let mut state = 1_u64;
            for write in 0..400_000_u64 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                ftl.step(FlashStep::Write { page: ((write + (state >> 33) % 512) % 2048) as u32 });
            }
            ftl.check();
            let wear = ftl.wear();
            (wear.erasures_max - wear.erasures_min, wear.erasures_mean)
        };
        let ((levelled, mean), (unlevelled, _)) = (spread(Some(8)), spread(None));
        assert!(
            levelled <= unlevelled.max(24),
            "{levelled} apart at {mean} erasures on average, {unlevelled} without levelling"
        );
    }
}
