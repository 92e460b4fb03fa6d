//! The time for which flash is busy with its operations.
//!
//! A plane reads a page into its register, programs it from there and erases blocks, one of these at once; planes work
//! in parallel. A page passes between register and controller over the bus of its channel, during which bus and
//! register are busy. As in Agrawal and others, Design Tradeoffs for SSD Performance (USENIX ATC 2008), but simpler:
//!
//! - All queues are full: the busiest plane or bus determines the total time.
//! - The planes of a die work independently of each other.
//! - An erase unit is one erase block, or several on neighbouring channels with its pages striped over them.
//! - The controller programs a flash page once it has all its blocks. It reads a page once for blocks that are read one
//!   after the other.

use flashwise_core::quantity::ByteSize;

use super::error::UnitError;
use super::meter::Meter;
use super::planes::Planes;
use super::profile::Profile;

/// A block as the device sees it.
const BLOCK_BYTES: u64 = 4096;
/// Marks a register without a page that could be read again.
const NOTHING: u64 = u64::MAX;

/// Sums the busy time of planes and buses.
#[derive(Clone, Debug)]
pub struct Timing {
    /// Blocks of a flash page.
    page_blocks: u32,
    /// Erase blocks of an erase unit.
    unit_erase_blocks: u32,
    read_ns: u64,
    program_ns: u64,
    erase_ns: u64,
    transfer_ns: u64,
    places: Planes,
    planes: Vec<Plane>,
    channels_busy_ns: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Plane {
    busy_ns: u64,
    /// The flash page in the register.
    register: u64,
}

/// Busy times of flash.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Busy {
    /// The minimum total time: that of the busiest plane or bus.
    pub busy_us: f64,
    /// Busy time of the busiest plane.
    pub plane_us_max: f64,
    /// Mean busy time of the planes.
    pub plane_us_mean: f64,
    /// Busy time of the busiest bus.
    pub bus_us_max: f64,
}

impl Timing {
    /// Creates counters for flash of this profile, in erase units of `unit_pages` pages of 4 KiB.
    pub fn new(profile: &Profile, unit_pages: u32) -> Result<Timing, UnitError> {
        let (unit, block) = (u64::from(unit_pages) * BLOCK_BYTES, profile.block_bytes());
        if unit == 0 || !unit.is_multiple_of(block) {
            let (unit, part) = (ByteSize::new(unit), ByteSize::new(block));
            return Err(UnitError { device: profile.name.clone(), unit, parts: "erase blocks", part });
        }
        let unit_erase_blocks = (unit / block) as u32;
        let places = Planes::new(profile, (unit / u64::from(profile.page_bytes)) as u32, unit_erase_blocks);
        let ns = |us: f64| (us * 1000.0).round() as u64;
        let bytes_per_us = profile.bus_mb_per_s.unwrap_or(f64::INFINITY);
        Ok(Timing {
            page_blocks: profile.page_bytes / BLOCK_BYTES as u32,
            unit_erase_blocks,
            read_ns: ns(profile.read_us),
            program_ns: ns(profile.program_us),
            erase_ns: ns(profile.erase_us),
            transfer_ns: ns(BLOCK_BYTES as f64 / bytes_per_us),
            planes: vec![Plane { busy_ns: 0, register: NOTHING }; places.number()],
            places,
            channels_busy_ns: vec![0; profile.channels as usize],
        })
    }

    /// Returns the busy times so far.
    pub fn busy(&self) -> Busy {
        let us = |ns: u64| ns as f64 / 1000.0;
        let planes = || self.planes.iter().map(|plane| plane.busy_ns);
        let plane_ns_max = planes().max().expect("there is a plane");
        let bus_ns_max = self.channels_busy_ns.iter().copied().max().expect("there is a channel");
        Busy {
            busy_us: us(plane_ns_max.max(bus_ns_max)),
            plane_us_max: us(plane_ns_max),
            plane_us_mean: us(planes().sum()) / self.planes.len() as f64,
            bus_us_max: us(bus_ns_max),
        }
    }

    /// Returns the flash page of a page of the device, and its plane. Neighbouring planes are on different channels.
    fn place(&self, page: u32) -> (u64, usize) {
        let flash_page = u64::from(page / self.page_blocks);
        (flash_page, self.places.of_page(flash_page))
    }

    fn transfer(&mut self, plane: usize) {
        let channel = plane % self.channels_busy_ns.len();
        self.channels_busy_ns[channel] += self.transfer_ns;
        self.planes[plane].busy_ns += self.transfer_ns;
    }
}

impl Meter for Timing {
    fn read(&mut self, page: u32) {
        let (flash_page, plane) = self.place(page);
        if std::mem::replace(&mut self.planes[plane].register, flash_page) != flash_page {
            self.planes[plane].busy_ns += self.read_ns;
        }
        self.transfer(plane);
    }

    fn program(&mut self, page: u32) {
        let (_, plane) = self.place(page);
        self.transfer(plane);
        if page % self.page_blocks == self.page_blocks - 1 {
            self.planes[plane].busy_ns += self.program_ns;
            self.planes[plane].register = NOTHING;
        }
    }

    fn erase(&mut self, unit: u32) {
        for erase_block in 0..self.unit_erase_blocks {
            let plane = self.places.of_turn(unit.into(), erase_block.into());
            self.planes[plane].busy_ns += self.erase_ns;
            self.planes[plane].register = NOTHING;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flash::{Device, Ftl, FtlConfig, Zoned};
    use flashwise_core::step::FlashStep;

    /// Pages of 8 KiB, blocks of 4 of them: 8 blocks of 4 KiB. A transfer of 4 KiB takes 10 us.
    fn profile(channels: u32, dies_per_channel: u32) -> Profile {
        Profile {
            name: "test".to_owned(),
            source: "made up".to_owned(),
            page_bytes: 8192,
            pages_per_block: 4,
            channels,
            dies_per_channel,
            planes_per_die: 1,
            read_us: 50.0,
            program_us: 500.0,
            erase_us: 3000.0,
            bus_mb_per_s: Some(409.6),
            pe_cycles: None,
            spare: None,
        }
    }

    #[test]
    fn one_plane_does_one_thing_after_the_other() {
        let timing = Timing::new(&profile(1, 1), 8).unwrap();
        let mut zoned = Zoned::metered(2, 8, timing).unwrap();
        (0..8).for_each(|page| zoned.step(FlashStep::Write { page }));
        // 8 transfers, 4 programs.
        assert_eq!(zoned.meter().busy().busy_us, 8.0 * 10.0 + 4.0 * 500.0);
        // Pages 0 and 1 share a flash page, which is read once; so do 5 and 4. The last 0 is no longer in the register.
        [0, 1, 5, 4, 0].into_iter().for_each(|page| zoned.step(FlashStep::Read { page }));
        assert_eq!(zoned.meter().busy().busy_us, 2080.0 + 3.0 * 50.0 + 5.0 * 10.0);
        zoned.step(FlashStep::Reset { unit: 0 });
        let busy = zoned.meter().busy();
        assert_eq!((busy.busy_us, busy.plane_us_max, busy.plane_us_mean), (5280.0, 5280.0, 5280.0));
        assert_eq!(busy.bus_us_max, 13.0 * 10.0);
    }

    #[test]
    fn planes_work_side_by_side_and_share_the_bus_of_their_channel() {
        // Units of two erase blocks, which are on two channels; the next unit is on the other two planes.
        let timing = Timing::new(&profile(2, 2), 16).unwrap();
        let mut zoned = Zoned::metered(2, 16, timing).unwrap();
        (0..16).for_each(|page| zoned.step(FlashStep::Write { page }));
        // Each of two planes has half of 16 transfers and 8 programs, and so has its bus of the transfers; the others
        // are idle.
        let expected = Busy { busy_us: 2080.0, plane_us_max: 2080.0, plane_us_mean: 1040.0, bus_us_max: 80.0 };
        assert_eq!(zoned.meter().busy(), expected);
        (16..32).for_each(|page| zoned.step(FlashStep::Write { page }));
        let expected = Busy { busy_us: 2080.0, plane_us_max: 2080.0, plane_us_mean: 2080.0, bus_us_max: 160.0 };
        assert_eq!(zoned.meter().busy(), expected);
        zoned.step(FlashStep::Reset { unit: 1 });
        let expected = Busy { busy_us: 5080.0, plane_us_max: 5080.0, plane_us_mean: 3580.0, bus_us_max: 160.0 };
        assert_eq!(zoned.meter().busy(), expected);
    }

    #[test]
    fn everything_waits_for_a_slow_bus() {
        let slow = Profile { bus_mb_per_s: Some(4.096), ..profile(1, 8) };
        let mut zoned = Zoned::metered(8, 8, Timing::new(&slow, 8).unwrap()).unwrap();
        (0..64).for_each(|page| zoned.step(FlashStep::Write { page }));
        // 64 transfers of 1 ms over one bus; each of eight planes has 8 of them and 4 programs.
        let expected =
            Busy { busy_us: 64_000.0, plane_us_max: 10_000.0, plane_us_mean: 10_000.0, bus_us_max: 64_000.0 };
        assert_eq!(zoned.meter().busy(), expected);
    }

    #[test]
    fn copies_of_an_ssd_take_a_read_and_a_program() {
        let profile = Profile { page_bytes: 4096, bus_mb_per_s: None, ..profile(1, 1) };
        let mut ftl = Ftl::metered(FtlConfig::new(64, 4, 0.2), Timing::new(&profile, 4).unwrap()).unwrap();
        for write in 0..2000 {
            ftl.step(FlashStep::Write { page: write * 37 % 64 / (1 + write % 3) });
        }
        let counters = *ftl.counters();
        assert!(counters.programs_collection > 100, "{counters:?}");
        let expected = counters.programs() as f64 * 500.0
            + counters.programs_collection as f64 * 50.0
            + counters.erasures as f64 * 3000.0;
        assert_eq!(ftl.meter().busy().busy_us, expected);
    }

    #[test]
    fn a_unit_that_is_no_multiple_of_erase_blocks_is_refused() {
        let refused = |unit_pages| Timing::new(&profile(1, 1), unit_pages).unwrap_err().to_string();
        assert_eq!(
            refused(12),
            "erase units of 48KiB: expected a multiple of 32KiB, the erase blocks of device 'test'; choose another \
             unit or device"
        );
        assert!(refused(4).starts_with("erase units of 16KiB: expected a multiple of 32KiB"));
        assert!(refused(0).starts_with("erase units of 0B: expected a multiple of 32KiB"));
        Timing::new(&profile(1, 1), 24).expect("three blocks are a unit");
    }
}
