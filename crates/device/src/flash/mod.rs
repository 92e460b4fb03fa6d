//! Models of flash devices that [`FlashStep`]s are charged to; they count programs, erasures and wear.
//!
//! A [conventional SSD](ftl) hides its erase units behind a page map and collects garbage by itself. [Host-managed
//! flash](zoned) executes exactly the given steps and rejects those that its medium cannot do. A page is one block, 4
//! KiB; all erase units have equally many. A [meter] sees all flash operations; [`Timing`] computes from them how long
//! flash of a [`Profile`] is busy.

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

/// Marks the absence of a page or a unit.
const NONE: u32 = u32::MAX;

/// A device that steps are charged to.
pub trait Device {
    /// Executes a step; on error the device is unchanged.
    fn try_step(&mut self, step: FlashStep) -> Result<(), StepError>;

    /// Returns the counters so far.
    fn counters(&self) -> &DeviceCounters;

    /// Returns the erasures of each unit so far.
    fn erasures_by_unit(&self) -> Vec<u32>;

    /// Returns a summary of the erasures so far, in time linear in the number of units.
    fn wear(&self) -> Wear {
        Wear::of(&self.erasures_by_unit())
    }

    /// Asserts the invariants, in time and memory linear in the size of the device.
    fn check(&self);

    /// Executes a step of a layout that knows the device.
    ///
    /// # Panics
    /// If the device rejects the step, which is a defect of the layout.
    #[inline]
    fn step(&mut self, step: FlashStep) {
        if let Err(error) = self.try_step(step) {
            panic!("a layout asked for what its device refuses: {error}");
        }
    }

    /// Returns all figures.
    fn figures(&self) -> DeviceFigures {
        DeviceFigures { counters: *self.counters(), wear: self.wear() }
    }
}

flashwise_core::counts! {
    /// Counters of a device. Reads, writes and discards are in pages.
    pub struct DeviceCounters {
        /// Pages that the host read.
        pub host_reads: u64,
        /// Pages that the host wrote.
        pub host_writes: u64,
        /// Pages that the host discarded, one by one or by resetting their unit, whether they held data or not.
        pub host_discards: u64,
        /// Units that the host reset.
        pub host_resets: u64,
        /// Pages programmed because the host wrote them.
        pub programs_host: u64,
        /// Pages programmed to copy valid data out of collected units.
        pub programs_collection: u64,
        /// Pages programmed to move cold data onto worn units.
        pub programs_levelling: u64,
        /// Units erased.
        pub erasures: u64,
    }
}

impl DeviceCounters {
    /// Returns all pages programmed.
    pub fn programs(&self) -> u64 {
        self.programs_host + self.programs_collection + self.programs_levelling
    }

    /// Returns the pages programmed per page that the host wrote; `None` before its first write.
    pub fn write_amplification(&self) -> Option<f64> {
        (self.host_writes > 0).then(|| self.programs() as f64 / self.host_writes as f64)
    }
}

/// Operations and wear of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceFigures {
    /// The counters.
    pub counters: DeviceCounters,
    /// The distribution of erasures over the units.
    pub wear: Wear,
}

impl DeviceFigures {
    /// Returns the pages programmed per page that the host wrote; `None` before its first write.
    pub fn write_amplification(&self) -> Option<f64> {
        self.counters.write_amplification()
    }
}
