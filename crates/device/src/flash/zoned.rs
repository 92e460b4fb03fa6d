//! Host-managed flash, zoned or open-channel: a unit is written at its write pointer and reset whole. There are no
//! hidden writes.
//!
//! The rules are those of zones that require sequential writes: NVMe Zoned Namespace Command Set Specification 1.1,
//! section 2.1.

use flashwise_core::step::FlashStep;

use super::meter::{Meter, Unmetered};
use super::wear::Erasures;
use super::{Device, DeviceCounters, DeviceError, NONE, StepError};

/// Flash managed by the host.
#[derive(Clone, Debug)]
pub struct Zoned<M: Meter = Unmetered> {
    unit_pages: u32,
    /// Pages written since the reset, by unit.
    written: Vec<u32>,
    /// Units that are partly written.
    open_units: u32,
    open_units_max: u32,
    erasures: Erasures,
    counters: DeviceCounters,
    meter: M,
}

impl Zoned {
    /// Creates a device of `units` erase units; all of them may be open at once.
    pub fn new(units: u32, unit_pages: u32) -> Result<Zoned, DeviceError> {
        Zoned::metered(units, unit_pages, Unmetered)
    }
}

impl<M: Meter> Zoned<M> {
    /// Creates a device of `units` erase units that reports its flash operations to `meter`.
    pub fn metered(units: u32, unit_pages: u32, meter: M) -> Result<Zoned<M>, DeviceError> {
        for (what, found) in [("erase units", units), ("pages of an erase unit", unit_pages)] {
            if found == 0 {
                return Err(DeviceError::TooSmall { what, found: 0, least: 1 });
            }
        }
        let pages = u64::from(units) * u64::from(unit_pages);
        if pages >= u64::from(NONE) {
            return Err(DeviceError::TooLarge { what: "pages", found: pages, most: u64::from(NONE) - 1 });
        }
        Ok(Zoned {
            unit_pages,
            written: vec![0; units as usize],
            open_units: 0,
            open_units_max: units,
            erasures: Erasures::new(units),
            counters: DeviceCounters::default(),
            meter,
        })
    }

    /// Limits the number of units that may be partly written at once.
    pub fn with_open_units_max(self, open_units_max: u32) -> Result<Zoned<M>, DeviceError> {
        if open_units_max == 0 {
            return Err(DeviceError::TooSmall { what: "open erase units", found: 0, least: 1 });
        }
        Ok(Zoned { open_units_max, ..self })
    }

    /// Returns the number of erase units.
    pub fn units(&self) -> u32 {
        self.written.len() as u32
    }

    /// Returns the page of the unit where the next write must go, from 0; the pages of a unit if it is full.
    pub fn write_pointer(&self, unit: u32) -> u32 {
        self.written[unit as usize]
    }

    /// Returns the meter of the flash operations.
    pub fn meter(&self) -> &M {
        &self.meter
    }

    fn place(&self, page: u32) -> Result<(u32, u32), StepError> {
        let (unit, at) = (page / self.unit_pages, page % self.unit_pages);
        if unit >= self.units() {
            return Err(StepError::Page { page, pages: self.units() * self.unit_pages });
        }
        Ok((unit, at))
    }

    fn read(&mut self, page: u32) -> Result<(), StepError> {
        let (unit, at) = self.place(page)?;
        if at >= self.written[unit as usize] {
            return Err(StepError::Unwritten { page, unit });
        }
        self.counters.host_reads += 1;
        self.meter.read(page);
        Ok(())
    }

    fn write(&mut self, page: u32) -> Result<(), StepError> {
        let (unit, at) = self.place(page)?;
        let written = self.written[unit as usize];
        if written == self.unit_pages {
            return Err(StepError::Full { page, unit });
        }
        if at != written {
            return Err(StepError::NotAtWritePointer { page, unit, expected: unit * self.unit_pages + written });
        }
        // A unit of one page is full once it is opened, but must still be opened.
        if written == 0 {
            if self.open_units == self.open_units_max {
                return Err(StepError::OpenUnits { page, unit, most: self.open_units_max });
            }
            self.open_units += 1;
        }
        self.written[unit as usize] += 1;
        if self.written[unit as usize] == self.unit_pages {
            self.open_units -= 1;
        }
        self.counters.host_writes += 1;
        self.counters.programs_host += 1;
        self.meter.program(page);
        Ok(())
    }

    /// Resets a unit. An empty unit is not erased again.
    fn reset(&mut self, unit: u32) -> Result<(), StepError> {
        if unit >= self.units() {
            return Err(StepError::Unit { unit, units: self.units() });
        }
        self.counters.host_resets += 1;
        self.counters.host_discards += u64::from(self.unit_pages);
        let written = std::mem::take(&mut self.written[unit as usize]);
        if written > 0 {
            self.open_units -= u32::from(written < self.unit_pages);
            self.erasures.count(unit);
            self.counters.erasures += 1;
            self.meter.erase(unit);
        }
        Ok(())
    }
}

impl<M: Meter> Device for Zoned<M> {
    /// Executes a step. A discard is only counted: pages are freed by resets.
    fn try_step(&mut self, step: FlashStep) -> Result<(), StepError> {
        match step {
            FlashStep::Read { page } => self.read(page),
            FlashStep::Write { page } => self.write(page),
            FlashStep::Discard { page } => {
                self.place(page)?;
                self.counters.host_discards += 1;
                Ok(())
            }
            FlashStep::Reset { unit } => self.reset(unit),
        }
    }

    fn counters(&self) -> &DeviceCounters {
        &self.counters
    }

    fn erasures_by_unit(&self) -> Vec<u32> {
        self.erasures.by_unit()
    }

    fn check(&self) {
        let open = self.written.iter().filter(|written| (1..self.unit_pages).contains(*written)).count();
        assert_eq!(open, self.open_units as usize, "units written in part are open");
        assert!(self.open_units <= self.open_units_max, "no more units are open than may be");
        assert!(self.written.iter().all(|written| *written <= self.unit_pages), "no unit is written beyond its end");
        assert_eq!(self.counters.programs(), self.counters.host_writes, "nothing is written in secret");
        self.erasures.check(self.counters.erasures);
    }
}
