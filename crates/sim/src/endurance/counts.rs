//! Measures of endurance; the only definition of these figures.
//!
//! Source: Cheng et al., USENIX ATC 2016, section 3.1; Li, Shilane, Douglis, Wallace: Pannier. Middleware 2015, for
//! FUE.

use std::ops::Deref;

use flashwise_device::flash::Wear;

use crate::stretch::Counts;

/// Effect of a run on a flash device: its counts after the warm-up, and the wear.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Endurance {
    /// Counts per block access. Offline algorithms have no write hits: an overwritten block left after its last read.
    pub counts: Counts,
    /// Wear of the device.
    pub wear: Wear,
    /// Pages of an erase unit.
    pub unit_pages: u32,
    /// Duration; `None` if the trace has no times, or no time passed.
    pub days: Option<f64>,
}

impl Deref for Endurance {
    type Target = Counts;

    fn deref(&self) -> &Counts {
        &self.counts
    }
}

impl Endurance {
    /// Blocks inserted into the flash cache, or overwritten there. Fewer are written if blocks leave before.
    pub fn insertions(&self) -> u64 {
        self.counters.flash_writes_blocks()
    }

    /// Read hit ratio, RHR: read hits per read; 0 if there was no read.
    pub fn rhr(&self) -> f64 {
        ratio(self.read_hits, self.reads).unwrap_or(0.0)
    }

    /// Erase units that were erased.
    pub fn erasures(&self) -> u64 {
        self.device.erasures
    }

    /// Erase units of the device, spare ones included.
    pub fn units(&self) -> u32 {
        self.wear.units
    }

    /// Erasures per erase unit and day.
    pub fn epbpd(&self) -> Option<f64> {
        self.days.map(|days| self.erasures() as f64 / f64::from(self.units()) / days)
    }

    /// Flash usage effectiveness, FUE: blocks that hits read from flash per page programmed, including copies of host
    /// and device. Hits in RAM do not count. `None` if no page was programmed.
    pub fn fue(&self) -> Option<f64> {
        ratio(self.flash_hits(), self.device.programs())
    }

    /// Weighted flash usage effectiveness, WFUE, against M+ over the same trace. It is the read hit ratio, weighted by
    /// `alpha`, plus the saved erasures, both relative to M+. `None` if M+ has no hit or no erasure.
    pub fn wfue(&self, alpha: f64, m_plus: &Endurance) -> Option<f64> {
        let (hits, erasures) = (m_plus.rhr(), m_plus.erasures() as f64);
        let saved = (erasures - self.erasures() as f64) / erasures;
        (hits > 0.0 && erasures > 0.0).then(|| alpha * self.rhr() / hits + (1.0 - alpha) * saved)
    }

    /// The read hit ratio relative to `m_plus`. `None` if that has no hit.
    pub fn rhr_of(&self, m_plus: &Endurance) -> Option<f64> {
        (m_plus.rhr() > 0.0).then(|| self.rhr() / m_plus.rhr())
    }

    /// Erasures relative to `m_plus`. `None` if that has none.
    pub fn erasures_of(&self, m_plus: &Endurance) -> Option<f64> {
        ratio(self.erasures(), m_plus.erasures())
    }

    /// Blocks that the host wrote to flash per block that it wrote because of an access. `None` without the latter.
    pub fn host_write_amplification(&self) -> Option<f64> {
        self.tally.flash_writes.amplification()
    }

    /// Pages that the device programmed per block that the host wrote. `None` if it wrote none.
    pub fn device_write_amplification(&self) -> Option<f64> {
        self.device.write_amplification()
    }

    /// Pages programmed per block that was written because of an access: both factors together.
    pub fn write_amplification(&self) -> Option<f64> {
        Some(self.host_write_amplification()? * self.device_write_amplification()?)
    }

    /// Valid blocks per page in the erased units. `None` without erasures.
    pub fn live_share_at_eviction(&self) -> Option<f64> {
        ratio(self.live_at_eviction_blocks(), self.erasures() * u64::from(self.unit_pages))
    }
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use flashwise_core::block_cache::{FlashWrites, Tally};
    use flashwise_device::flash::DeviceCounters;

    use super::*;

    fn counts(reads: u64, read_hits: u64, erasures: u64) -> Endurance {
        let wear = Wear { units: 10, erasures_min: 0, erasures_mean: 0.0, erasures_max: 0, erasures_deviation: 0.0 };
        let device = DeviceCounters {
            erasures,
            host_writes: 60,
            programs_host: 60,
            programs_collection: 20,
            ..Default::default()
        };
        let flash_writes =
            FlashWrites { client_blocks: 10, admission_blocks: 30, copy_forward_blocks: 20, metadata_blocks: 0 };
        let tally = Tally { flash_writes, ..Tally::default() };
        let counts = Counts { reads, read_hits, ram_hits: 1, device, tally, ..Counts::default() };
        Endurance { counts, wear, unit_pages: 4, days: Some(0.5) }
    }

    #[test]
    fn figures_follow_their_definitions() {
        let counted = counts(100, 41, 20);
        assert_eq!((counted.rhr(), counted.epbpd()), (0.41, Some(4.0)));
        // 40 blocks read from flash, 80 pages programmed.
        assert_eq!(counted.fue(), Some(0.5));
        assert_eq!(
            (counted.host_write_amplification(), counted.device_write_amplification()),
            (Some(1.5), Some(80.0 / 60.0))
        );
        assert_eq!(counted.write_amplification(), Some(2.0));
        // 20 pages of collected units were live, of 20 units with 4 pages.
        assert_eq!(counted.live_share_at_eviction(), Some(0.25));
    }

    #[test]
    fn wfue_weighs_hits_and_saved_erasures_against_m_plus() {
        let m_plus = counts(100, 50, 20);
        assert_eq!(m_plus.wfue(0.3, &m_plus), Some(0.3));
        // Half the hits and a quarter of the erasures: 0.5 * 0.5 + 0.5 * 0.75.
        assert_eq!(counts(100, 25, 5).wfue(0.5, &m_plus), Some(0.625));
        // Twice the erasures without hits cost more than any gain.
        assert_eq!(counts(100, 1, 40).wfue(0.0, &m_plus), Some(-1.0));
        assert_eq!(m_plus.wfue(0.5, &counts(100, 50, 0)), None);
    }

    #[test]
    fn ratios_of_zero_are_absent() {
        let wear = counts(1, 1, 0).wear;
        let none = Endurance { counts: Counts::default(), wear, unit_pages: 4, days: None };
        assert_eq!((none.rhr(), none.epbpd(), none.fue(), none.write_amplification()), (0.0, None, None, None));
        assert_eq!(none.live_share_at_eviction(), None);
    }
}
