//! Flash devices that [`FlashStep`]s are charged to: what they program, erase and wear.
//!
//! A [conventional SSD](ftl) hides its erase units behind a page map and collects garbage by itself; [host-managed flash](zoned) does
//! exactly what it is told and refuses what its medium cannot do. Pages are of one block, 4 KiB; erase units of equally many pages. What flash
//! is asked to do can be [metered](meter): [`Timing`] tells how long flash of a [`Profile`] is busy with it.

pub mod clock;
pub mod error;
pub mod ftl;
pub mod ftl_config;
pub mod lifetime;
pub mod meter;
mod planes;
pub mod profile;
pub mod timing;
pub mod victims;
pub mod wear;
pub mod zoned;

use flashwise_core::step::FlashStep;

pub use clock::Clock;
pub use error::{DeviceError, StepError, UnitError};
pub use ftl::Ftl;
pub use ftl_config::{FtlConfig, GcPlacement};
pub use meter::Meter;
pub use profile::Profile;
pub use timing::{Busy, Timing};
pub use victims::Victim;
pub use wear::Wear;
pub use zoned::Zoned;

/// No page and no unit.
const NONE: u32 = u32::MAX;

/// A device that steps are charged to.
pub trait Device {
    /// Does a step, or says why it cannot be done and does nothing.
    fn try_step(&mut self, step: FlashStep) -> Result<(), StepError>;

    /// What was counted so far.
    fn counters(&self) -> &DeviceCounters;

    /// How often each erase unit was erased so far.
    fn erasures_by_unit(&self) -> Vec<u32>;

    /// How often each erase unit was erased so far, in short. Takes time in proportion to their number.
    fn wear(&self) -> Wear {
        Wear::of(&self.erasures_by_unit())
    }

    /// Asserts what always holds, in time and memory linear in the size of the device.
    fn check(&self);

    /// Does a step of a layout that knows the device.
    ///
    /// # Panics
    /// If the device refuses the step: the layout is wrong.
    #[inline]
    fn step(&mut self, step: FlashStep) {
        if let Err(error) = self.try_step(step) {
            panic!("a layout asked for what its device refuses: {error}");
        }
    }

    /// All figures.
    fn figures(&self) -> DeviceFigures {
        DeviceFigures { counters: *self.counters(), wear: self.wear() }
    }
}

/// What a device counts. Reads, writes and discards are of pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounters {
    /// Pages that the host read.
    pub host_reads: u64,
    /// Pages that the host wrote.
    pub host_writes: u64,
    /// Pages that the host discarded, one by one or by resetting their unit; counted whether they held anything or not.
    pub host_discards: u64,
    /// Units that the host reset.
    pub host_resets: u64,
    /// Pages programmed because the host wrote them.
    pub programs_host: u64,
    /// Pages programmed to copy what was still valid in a unit that was collected.
    pub programs_collection: u64,
    /// Pages programmed to move cold data onto worn units.
    pub programs_levelling: u64,
    /// Units erased.
    pub erasures: u64,
}

impl DeviceCounters {
    /// Pages programmed, for whatever reason.
    pub fn programs(&self) -> u64 {
        self.programs_host + self.programs_collection + self.programs_levelling
    }

    /// Pages programmed for each page that the host wrote; none before its first write.
    pub fn write_amplification(&self) -> Option<f64> {
        (self.host_writes > 0).then(|| self.programs() as f64 / self.host_writes as f64)
    }

    /// What was counted after `earlier`, which the same device counted.
    pub fn since(&self, earlier: &DeviceCounters) -> DeviceCounters {
        DeviceCounters {
            host_reads: self.host_reads - earlier.host_reads,
            host_writes: self.host_writes - earlier.host_writes,
            host_discards: self.host_discards - earlier.host_discards,
            host_resets: self.host_resets - earlier.host_resets,
            programs_host: self.programs_host - earlier.programs_host,
            programs_collection: self.programs_collection - earlier.programs_collection,
            programs_levelling: self.programs_levelling - earlier.programs_levelling,
            erasures: self.erasures - earlier.erasures,
        }
    }
}

/// What a device did and how it was worn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceFigures {
    /// What was done, and why.
    pub counters: DeviceCounters,
    /// How the erasures spread over the units.
    pub wear: Wear,
}

impl DeviceFigures {
    /// Pages programmed for each page that the host wrote; none before its first write.
    pub fn write_amplification(&self) -> Option<f64> {
        self.counters.write_amplification()
    }
}
