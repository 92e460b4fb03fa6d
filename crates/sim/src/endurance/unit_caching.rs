//! H and its variants: unit caching, where an erase unit is one block.
//!
//! Source: Cheng et al., USENIX ATC 2016, section 3 ("the case where each file block can be erased individually").
//!
//! Departures from the paper, which does not define the count of erasures: the device has exactly as many slots as the
//! cache has blocks. They are used in turn. A slot is erased when it is written again. So every insertion is an
//! erasure, except the first into each slot.

use super::planned::Placed;
use crate::offline::{Decision, FlashStream};
use flashwise_core::block_cache::Tally;
use flashwise_core::step::FlashStep;
use flashwise_device::flash::{Device, DeviceCounters, StepError};

/// A slot for each block.
pub(super) struct UnitCaching<'a> {
    stream: &'a FlashStream,
    tally: Tally,
}

impl<'a> UnitCaching<'a> {
    /// Returns an empty cache for the blocks of `stream`.
    pub(super) fn new(stream: &'a FlashStream) -> UnitCaching<'a> {
        UnitCaching { stream, tally: Tally::default() }
    }
}

impl Placed for UnitCaching<'_> {
    #[inline]
    fn access(&mut self, position: usize, decision: Decision, _evicts: u32, steps: &mut Vec<FlashStep>) {
        match decision {
            Decision::Bypass => {}
            Decision::Hit | Decision::LastHit => steps.push(FlashStep::Read { page: 0 }),
            Decision::Insert => {
                self.tally.flash_writes.count_insertion(self.stream.is_write(position));
                steps.push(FlashStep::Write { page: 0 });
            }
        }
    }

    fn prefetch(&self, _block: u32) {}

    fn tally(&self) -> Tally {
        self.tally
    }
}

/// Slots that are used in turn, independent of the page.
pub(super) struct Places {
    places: u64,
    counters: DeviceCounters,
}

impl Places {
    /// Returns this many empty slots.
    pub(super) fn new(places: usize) -> Places {
        Places { places: places as u64, counters: DeviceCounters::default() }
    }
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
        // The first slots were erased once more than the others.
        (0..self.places).map(|place| (rounds + u64::from(place < more)) as u32).collect()
    }

    fn check(&self) {}
}
