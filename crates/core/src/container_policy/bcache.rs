//! bcache: buckets that admit everything read or written, evicted by priorities that read hits renew and that decay
//! with all I/O.
//!
//! Source: the Linux kernel, `drivers/md/bcache/alloc.c` (`bch_rescale_priorities`, `bucket_prio`,
//! `invalidate_buckets_lru`, `_fifo` and `_random`) and `request.c` (`cache_lookup_fn`).
//!
//! A bucket has a priority of 16 bits, 32,768 initially and after each read hit. After every I/O of a 1024th of the
//! cache's size all priorities decrease by one. The victim is the bucket with the smallest product of live data and
//! priority; the lowest priority counts as an eighth of the initial one. So a recently hit bucket may be evicted
//! because it is nearly empty.
//!
//! Departures from its code:
//! - It has several open buckets and sorts the writers to them; here there is one, which fills in RAM as in other
//!   container policies.
//! - It learns the live share of a bucket from its garbage collection, and tracks it afterwards. Here it is known at
//!   once, and a bucket without live data is evicted first for any `replacement`.
//! - It evicts many buckets at once, but none with dirty data; here it evicts one when room is needed, and all data is
//!   clean.
//! - Buckets of its tree, the sequential bypass and the bypass under congestion are omitted: `--sequential-bypass` is a
//!   setting of the cache.
//! - Among buckets with the smallest product the one with the lowest number is evicted; the code's heap does not define
//!   this.

use super::{ContainerOutcome, ContainerPolicy, Counts, Flash};
use crate::access::{Access, Op};
use crate::index::Index;
use crate::layout::open_units::OpenUnits;
use crate::layout::units::Units;
use crate::options::{Kind, Options, Parameter};
use crate::policy::Info;
use crate::random::Random;
use crate::step::{Cause, FlashStep};

/// bcache's row in the table of container policies.
pub static INFO: Info = Info {
    name: "bcache",
    title: "bcache: buckets by priority",
    source: "Linux kernel, drivers/md/bcache/alloc.c",
    parameters: &[
        Parameter::of("replacement", Kind::Choice(&["lru", "fifo", "random"]), "lru")
            .means("order of evictions: by priority, by number, or random"),
        Parameter::of("seed", Kind::Count(0, u64::MAX), "1").means("seed of the random numbers"),
    ],
    offline: false,
};

/// `INITIAL_PRIO`.
const PRIORITY: u16 = 32_768;
/// The part of the cache's size after whose I/O priorities decrease.
const RESCALE_PART: u64 = 1024;
/// The one open bucket.
const OPEN: u32 = 0;

/// `CACHE_REPLACEMENT`.
#[derive(Clone, Debug)]
enum Replacement {
    Lru,
    /// With the bucket to examine next.
    Fifo(u32),
    Random(Random),
}

/// Buckets by priority.
#[derive(Debug)]
pub struct Bcache<I: Index> {
    units: Units<I>,
    open: OpenUnits<I::Key, ()>,
    replacement: Replacement,
    /// The priority of each bucket; 0 decreases no further.
    priorities: Vec<u16>,
    /// The lowest priority at the last decrease.
    least: u16,
    /// Accesses until the next decrease, and between decreases.
    rescale_in: u64,
    rescale_every: u64,
    reserve_units: u32,
    sealing: (Vec<I::Key>, Vec<(Cause, ())>),
    counts: Counts,
}

impl<I: Index> Bcache<I> {
    /// Creates an empty cache.
    pub fn new(index: I, flash: Flash, options: &Options) -> Self {
        let Flash { units, unit_pages, reserve_units } = flash;
        let replacement = match options.text("replacement") {
            "fifo" => Replacement::Fifo(0),
            "random" => Replacement::Random(Random::new(options.count("seed"))),
            _ => Replacement::Lru,
        };
        Bcache {
            units: Units::new(index, units, unit_pages),
            open: OpenUnits::new(1, unit_pages),
            replacement,
            priorities: vec![0; units as usize],
            least: u16::MAX,
            rescale_in: 0,
            rescale_every: (u64::from(units) * u64::from(unit_pages) / RESCALE_PART).max(1),
            reserve_units,
            sealing: Default::default(),
            counts: Counts::default(),
        }
    }

    /// Decreases priorities, if it is time.
    #[inline]
    fn rescale(&mut self) {
        if self.rescale_in > 0 {
            self.rescale_in -= 1;
            return;
        }
        self.rescale_in = self.rescale_every - 1;
        self.least = u16::MAX;
        for priority in self.priorities.iter_mut().filter(|priority| **priority > 0) {
            *priority -= 1;
            self.least = self.least.min(*priority);
        }
    }

    /// Returns the worth of a bucket: its live blocks times its priority, with the lowest counted as an eighth of the
    /// initial one.
    fn worth(&self, unit: u32) -> u64 {
        let (priority, least) = (u64::from(self.priorities[unit as usize]), u64::from(self.least.min(PRIORITY)));
        (priority.saturating_sub(least) + (u64::from(PRIORITY) - least) / 8) * u64::from(self.units.live(unit))
    }

    fn victim(&mut self) -> u32 {
        let emptiest = self.units.emptiest().expect("units that are not free are sealed");
        if self.units.live(emptiest) == 0 {
            return emptiest;
        }
        let units = self.units.units();
        let sealed = |unit: &u32| self.units.is_sealed(*unit);
        let found = match &mut self.replacement {
            Replacement::Lru => (0..units).filter(sealed).min_by_key(|&unit| self.worth(unit)),
            Replacement::Fifo(next) => {
                let unit = (*next..units).chain(0..*next).find(sealed);
                *next = unit.map_or(0, |unit| (unit + 1) % units);
                unit
            }
            Replacement::Random(random) => {
                let from = (random.bits() % u64::from(units)) as u32;
                (from..units).chain(0..from).find(sealed)
            }
        };
        found.expect("a bucket is sealed")
    }

    fn evict(&mut self, steps: &mut Vec<FlashStep>) {
        let unit = self.victim();
        self.priorities[unit as usize] = 0;
        self.counts.units_reset += 1;
        self.counts.live_at_reset_blocks += u64::from(self.units.reset(unit, steps));
    }

    /// Adds a block to the open bucket, and seals the bucket once it is full.
    fn insert(&mut self, block: I::Key, cause: Cause, steps: &mut Vec<FlashStep>) {
        if !self.open.push(OPEN, block, cause, ()) {
            return;
        }
        if self.units.free_units() == 0 {
            self.evict(steps);
        }
        let (blocks, kept) = &mut self.sealing;
        self.open.take(OPEN, blocks, kept);
        kept.iter().for_each(|(cause, ())| self.counts.flash_writes.count(*cause));
        let unit = self.units.seal(blocks, steps);
        self.priorities[unit as usize] = PRIORITY;
        while self.units.free_units() < self.reserve_units {
            self.evict(steps);
        }
    }
}

impl<I: Index> ContainerPolicy for Bcache<I> {
    type Key = I::Key;

    #[inline]
    fn access(&mut self, access: Access<I::Key>, _time_us: u64, steps: &mut Vec<FlashStep>) -> ContainerOutcome {
        let Access { block, op, .. } = access;
        self.rescale();
        if let Some(page) = self.units.page_of(block) {
            if op == Op::Read {
                steps.push(FlashStep::Read { page });
                self.priorities[self.units.unit_of(page) as usize] = PRIORITY;
            } else {
                self.units.invalidate(block);
                self.insert(block, Cause::Client, steps);
            }
            return ContainerOutcome::Hit { in_ram: false };
        }
        if let Some(place) = self.open.find(block) {
            if op == Op::Write {
                self.open.overwrite(place);
            }
            return ContainerOutcome::Hit { in_ram: true };
        }
        self.insert(block, if op == Op::Write { Cause::Client } else { Cause::Admission }, steps);
        ContainerOutcome::Admit
    }

    fn remove(&mut self, block: I::Key) -> bool {
        if let Some(place) = self.open.find(block) {
            self.open.remove(place);
            return true;
        }
        self.units.invalidate(block)
    }

    fn contains(&self, block: I::Key) -> bool {
        self.units.page_of(block).is_some() || self.open.find(block).is_some()
    }

    fn page_of(&self, block: I::Key) -> Option<u32> {
        self.units.page_of(block)
    }

    fn len(&self) -> usize {
        self.units.len() + self.open.blocks()
    }

    fn ram_blocks_max(&self) -> usize {
        self.units.unit_pages() as usize - 1
    }

    fn counts(&self) -> Counts {
        self.counts
    }

    #[inline]
    fn prefetch(&self, _soon: I::Key, later: I::Key) {
        self.units.prefetch(later);
    }

    fn check(&self) {
        self.units.check();
        self.open.check();
        assert!(self.units.free_units() >= self.reserve_units, "the reserve is free");
        for unit in 0..self.units.units() {
            let priority = self.priorities[unit as usize];
            assert!(priority <= PRIORITY && (priority == 0 || self.units.is_sealed(unit)), "unit {unit}: {priority}");
            for (block, _) in self.units.live_blocks(unit) {
                assert!(self.open.find(block).is_none(), "{block:?} is on flash and in RAM");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Dense;

    /// A cache of three buckets of two blocks.
    fn bcache(options: &str) -> Bcache<Dense> {
        let options = Options::parse("bcache", INFO.parameters, options).unwrap();
        Bcache::new(Dense::new(100), Flash { units: 3, unit_pages: 2, reserve_units: 0 }, &options)
    }

    fn access(bcache: &mut Bcache<Dense>, access: Access<u32>) -> Vec<FlashStep> {
        let mut steps = vec![];
        bcache.access(access, 0, &mut steps);
        bcache.check();
        steps
    }

    fn reset(steps: &[FlashStep]) -> Option<u32> {
        steps.iter().find_map(|step| if let FlashStep::Reset { unit } = step { Some(*unit) } else { None })
    }

    /// Priorities decrease with each access, because the cache has fewer than 1024 blocks. Blocks 1 to 6 fill buckets
    /// 0, 1 and 2 with accesses 2, 4 and 6. Access 7 reads block 1 and 8 overwrites 3, so bucket 1 has one live block:
    #[test]
    fn the_bucket_that_is_worth_least_goes() {
        let mut bcache = bcache("");
        for block in 1..=6 {
            assert_eq!(reset(&access(&mut bcache, Access::read(block))), None);
        }
        assert_eq!(access(&mut bcache, Access::read(1)), [FlashStep::Read { page: 0 }]);
        access(&mut bcache, Access::write(3));
        assert_eq!(bcache.open.blocks_of(OPEN), [3]);
        assert_eq!(reset(&access(&mut bcache, Access::read(7))), Some(1));
        assert_eq!(bcache.priorities, [32_766, PRIORITY, 32_765]);
        // 3 is hit on its way through RAM and, with 7, in bucket 1. Now bucket 2 has the lowest worth: the lowest
        // priority is its own.
        assert!(bcache.contains(3) && !bcache.contains(4));
        access(&mut bcache, Access::read(8));
        assert_eq!(reset(&access(&mut bcache, Access::read(9))), Some(2));
        let Counts { flash_writes, live_at_reset_blocks, .. } = bcache.counts();
        assert_eq!((flash_writes.client_blocks, flash_writes.admission_blocks, live_at_reset_blocks), (1, 9, 3));
    }

    #[test]
    fn fifo_takes_buckets_by_number_and_an_empty_one_goes_first() {
        let mut bcache = bcache("replacement=fifo");
        let mut resets: Vec<u32> = vec![];
        for block in 1..=12 {
            resets.extend(reset(&access(&mut bcache, Access::read(block))));
        }
        assert_eq!(resets, [0, 1, 2]);
        // 9 and 10 are in bucket 1; without them it is empty.
        assert!(bcache.remove(9) && bcache.remove(10));
        access(&mut bcache, Access::read(13));
        assert_eq!(reset(&access(&mut bcache, Access::read(14))), Some(1));
    }
}
