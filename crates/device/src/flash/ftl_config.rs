//! Configuration of a conventional SSD: size, spare space and garbage collection.

use flashwise_core::options::{OptionError, Options, named};

use super::victims::Victim;
use super::{DeviceError, NONE};

flashwise_core::words! {
    /// The unit to which garbage collection copies pages.
    ///
    /// Under uniform random writes the choice makes no difference. Under skewed writes it does, since copied pages are
    /// mostly cold. Write amplification with 28 % over-provisioning, units of 256 pages and greedy collection:
    ///
    /// | writes | own unit | mixed |
    /// | --- | --- | --- |
    /// | nine tenths go to a tenth of the pages | 2.90 | 3.29 |
    /// | Zipf's law with exponent 1 | 2.87 | 3.68 |
    #[derive(Default)]
    pub enum GcPlacement {
        /// A separate open unit. A copied page probably stays valid, so cold pages gather apart from fresh ones.
        #[default]
        Own "own",
        /// The unit that the host writes, as in the theory.
        Mixed "mixed",
    }
}

impl GcPlacement {
    /// Parses `own` or `mixed`.
    pub fn parse(text: &str) -> Result<GcPlacement, OptionError> {
        let ((name, placement), options) =
            named("placement of copies", text, GcPlacement::NAMES.into_iter(), |row| row.0)?;
        Options::parse(name, &[], options).map(|_| placement)
    }
}

/// Configuration of a conventional SSD.
#[derive(Clone, Debug, PartialEq)]
pub struct FtlConfig {
    /// Pages that the host sees.
    pub logical_pages: u32,
    /// Pages of an erase unit.
    pub unit_pages: u32,
    /// Physical pages beyond the logical ones, as a share of these; rounded up to whole erase units.
    pub spare: f64,
    /// The choice of the unit to collect.
    pub victim: Victim,
    /// The unit to which its valid pages are copied.
    pub gc_placement: GcPlacement,
    /// Units kept free, taken from the over-provisioning. If only these are left when the host needs a unit, one is
    /// collected. At least one, so that copies always have room; a larger reserve leaves less space for data.
    pub reserve_units: u32,
    /// Erasures by which a unit may exceed the least worn one before it gets cold data; `None` disables static wear
    /// levelling.
    pub wear_levelling: Option<u32>,
    /// The random seed.
    pub seed: u64,
}

impl FtlConfig {
    /// Returns the defaults: greedy collection into a separate unit, a reserve of one unit, no static wear levelling.
    pub fn new(logical_pages: u32, unit_pages: u32, spare: f64) -> FtlConfig {
        FtlConfig {
            logical_pages,
            unit_pages,
            spare,
            victim: Victim::default(),
            gc_placement: GcPlacement::default(),
            reserve_units: 1,
            wear_levelling: None,
            seed: 0,
        }
    }

    /// Returns the number of erase units, spare and reserve included.
    pub fn units(&self) -> Result<u32, DeviceError> {
        let FtlConfig { logical_pages, unit_pages, spare, reserve_units, .. } = *self;
        let at_least_one = [
            ("logical pages", logical_pages),
            ("pages of an erase unit", unit_pages),
            ("erase units in reserve", reserve_units),
            ("choices of a victim", if let Victim::Choices(choices) = self.victim { choices } else { 1 }),
            ("erasures that wear levelling allows between units", self.wear_levelling.unwrap_or(1)),
        ];
        if let Some((what, _)) = at_least_one.into_iter().find(|(_, found)| *found == 0) {
            return Err(DeviceError::TooSmall { what, found: 0, least: 1 });
        }
        if !(0.0..=100.0).contains(&spare) {
            return Err(DeviceError::Spare { found: spare });
        }
        // 7 % of 100 pages are 7 pages, not 7.000000000000001: rounding errors are below a millionth of a page.
        let spare_pages = (f64::from(logical_pages) * spare - 1e-6).ceil().max(0.0) as u64;
        let units = (u64::from(logical_pages) + spare_pages).div_ceil(u64::from(unit_pages));
        let pages = units * u64::from(unit_pages);
        if pages >= u64::from(NONE) {
            return Err(DeviceError::TooLarge { what: "physical pages", found: pages, most: u64::from(NONE) - 1 });
        }
        let data_units = u64::from(logical_pages.div_ceil(unit_pages));
        let least = u64::from(reserve_units) + 1;
        if units < data_units + least {
            let pages_least = (data_units + least) * u64::from(unit_pages);
            // Any larger share is enough; shown with two digits, rounded up.
            let share_least = (pages_least - u64::from(unit_pages)) as f64 / f64::from(logical_pages) - 1.0;
            return Err(DeviceError::Reserve {
                // Shows 7 %, not the 7.000000000000001 % of binary fractions.
                spare_percent: (spare * 1e6).round() / 1e4,
                logical_pages,
                unit_pages,
                found: (units - data_units) as u32,
                least: least as u32,
                reserve_units,
                least_percent: ((10_000.0 * share_least).floor() + 1.0) / 100.0,
            });
        }
        Ok(units as u32)
    }
}
