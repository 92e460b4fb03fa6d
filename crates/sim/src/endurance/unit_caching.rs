//! H and its kin: unit caching, where an erase unit is one block.
//!
//! Source: Cheng et al., USENIX ATC 2016, section 3 ("the case where each file block can be erased individually").
//!
//! Departures from the paper, which does not say how erasures are counted: the device has as many places as the cache has blocks, none to
//! spare. A place is erased when it is written again, so that all insertions but those that fill a place for the first time are
//! erasures; places are used in turn.

use super::Counts;
use super::tally::{Cache, Tally, run};
use crate::offline::{Decision, FlashStream, Plan};
use flashwise_core::block_cache::FlashWrites;
use flashwise_core::step::FlashStep;
use flashwise_device::flash::{Device, DeviceCounters, StepError};

/// Performs `plan` with a place for each of `capacity_blocks`.
pub(super) fn unit_caching(stream: &FlashStream, plan: &Plan, capacity_blocks: usize) -> Counts {
    let places = Places { places: capacity_blocks as u64, counters: DeviceCounters::default() };
    run(&mut UnitCaching { stream, places, flash_writes: FlashWrites::default() }, stream, plan, 1)
}

struct UnitCaching<'a> {
    stream: &'a FlashStream,
    places: Places,
    flash_writes: FlashWrites,
}

impl Cache for UnitCaching<'_> {
    #[inline]
    fn access(&mut self, position: usize, decision: Decision, _evicts: u32) {
        match decision {
            Decision::Bypass => {}
            Decision::Hit | Decision::LastHit => self.places.step(FlashStep::Read { page: 0 }),
            Decision::Insert => {
                self.flash_writes.count_insertion(self.stream.is_write(position));
                self.places.step(FlashStep::Write { page: 0 });
            }
        }
    }

    fn prefetch(&self, _block: u32) {}

    fn tally(&self) -> Tally {
        Tally { flash_writes: self.flash_writes, ..Tally::default() }
    }

    fn device(&self) -> &impl Device {
        &self.places
    }
}

/// Places that are used in turn, whatever page is named.
struct Places {
    places: u64,
    counters: DeviceCounters,
}

impl Device for Places {
    #[inline]
    fn try_step(&mut self, step: FlashStep) -> Result<(), StepError> {
        let counters = &mut self.counters;
        match step {
            FlashStep::Read { .. } => counters.host_reads += 1,
            FlashStep::Write { .. } => {
                counters.erasures += u64::from(counters.host_writes >= self.places);
                counters.host_writes += 1;
                counters.programs_host += 1;
            }
            FlashStep::Discard { .. } => counters.host_discards += 1,
            FlashStep::Reset { .. } => counters.host_resets += 1,
        }
        Ok(())
    }

    fn counters(&self) -> &DeviceCounters {
        &self.counters
    }

    fn erasures_by_unit(&self) -> Vec<u32> {
        let (rounds, more) = (self.counters.erasures / self.places, self.counters.erasures % self.places);
        // The first places were erased once more than the others.
        (0..self.places).map(|place| (rounds + u64::from(place < more)) as u32).collect()
    }

    fn check(&self) {}
}
