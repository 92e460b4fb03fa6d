//! Completion times of flash operations: a clock for each plane.
//!
//! Planes work in parallel. Each plane executes its operations one by one, in order: read a page into its register,
//! program from there, erase a block. A page passes to and from the register over the bus of its channel. Its time is
//! added to the plane's, without waiting for the bus. A unit is one erase block, or several on neighbouring planes with
//! its pages striped over them.
//!
//! [`Timing`](super::Timing) instead computes the total time if all queues are full.

use super::error::UnitError;
use super::planes::Planes;
use super::profile::Profile;
use flashwise_core::quantity::ByteSize;

/// A flash operation. Pages are flash pages, counted through the units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads neighbouring pages of a unit.
    Read {
        /// The first page.
        page: u32,
        /// The number of pages.
        pages: u32,
    },
    /// Programs neighbouring pages of a unit.
    Program {
        /// The first page.
        page: u32,
        /// The number of pages.
        pages: u32,
    },
    /// Erases a unit.
    Erase {
        /// The unit.
        unit: u32,
    },
}

/// The clocks of the planes, in nanoseconds.
#[derive(Clone, Debug)]
pub struct Clock {
    unit_pages: u32,
    /// Erase blocks of a unit.
    unit_blocks: u32,
    read_ns: u64,
    program_ns: u64,
    erase_ns: u64,
    planes: Planes,
    /// The time when each plane is free.
    free_at_ns: Vec<u64>,
}

impl Clock {
    /// Creates clocks for flash of this profile. A unit is several erase blocks, or a part of one, which then is the
    /// erase block.
    ///
    /// # Errors
    /// `unit_bytes` is not a whole number of pages, or of blocks.
    pub fn new(profile: &Profile, unit_bytes: u64) -> Result<Clock, UnitError> {
        let (page, block) = (u64::from(profile.page_bytes), profile.block_bytes());
        let (part, parts) = if unit_bytes < block { (page, "pages") } else { (block, "erase blocks") };
        if unit_bytes == 0 || !unit_bytes.is_multiple_of(part) {
            let [unit, part] = [unit_bytes, part].map(ByteSize::new);
            return Err(UnitError { device: profile.name.clone(), unit, parts, part });
        }
        let ns = |us: f64| (us * 1000.0).round() as u64;
        let transfer_us = profile.bus_mb_per_s.map_or(0.0, |bytes_per_us| page as f64 / bytes_per_us);
        let (unit_pages, unit_blocks) = ((unit_bytes / page) as u32, (unit_bytes / block).max(1) as u32);
        let planes = Planes::new(profile, unit_pages, unit_blocks);
        Ok(Clock {
            unit_pages,
            unit_blocks,
            read_ns: ns(profile.read_us + transfer_us),
            program_ns: ns(profile.program_us + transfer_us),
            erase_ns: ns(profile.erase_us),
            free_at_ns: vec![0; planes.number()],
            planes,
        })
    }

    /// Returns the erase blocks of a unit.
    pub fn unit_blocks(&self) -> u32 {
        self.unit_blocks
    }

    /// Returns the flash pages of a unit.
    pub fn unit_pages(&self) -> u32 {
        self.unit_pages
    }

    /// Runs an operation from `now_ns`, or from when its planes are free; returns its completion time.
    #[inline]
    pub fn run(&mut self, operation: Operation, now_ns: u64) -> u64 {
        let (first, count, each_ns) = match operation {
            Operation::Read { page, pages } => (page, pages, self.read_ns),
            Operation::Program { page, pages } => (page, pages, self.program_ns),
            Operation::Erase { unit } => (unit * self.unit_pages, self.unit_blocks.min(self.unit_pages), self.erase_ns),
        };
        let (unit, at) = (first / self.unit_pages, first % self.unit_pages);
        let mut done_ns = now_ns;
        for turn in 0..count.min(self.unit_blocks) {
            let plane = self.planes.of_turn(u64::from(unit), u64::from(at + turn));
            let pages = (count - turn).div_ceil(self.unit_blocks);
            let free_at_ns = &mut self.free_at_ns[plane];
            *free_at_ns = (*free_at_ns).max(now_ns) + u64::from(pages) * each_ns;
            done_ns = done_ns.max(*free_at_ns);
        }
        done_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile() -> Profile {
        Profile { bus_mb_per_s: None, ..Profile::find("wlfc", "wlfc").expect("it is known") }
    }

    /// Units of one block of 4 MiB on 64 planes: unit 64 is on the plane of unit 0.
    #[test]
    fn a_plane_does_one_thing_after_the_other_and_planes_work_side_by_side() {
        let mut clock = Clock::new(&profile(), 4 << 20).unwrap();
        assert_eq!((clock.unit_pages(), clock.unit_blocks()), (256, 1));
        assert_eq!(clock.run(Operation::Program { page: 0, pages: 3 }, 0), 1_500_000);
        assert_eq!(clock.run(Operation::Read { page: 256, pages: 2 }, 1000), 101_000);
        assert_eq!(clock.run(Operation::Read { page: 64 * 256, pages: 1 }, 1000), 1_550_000);
        assert_eq!(clock.run(Operation::Erase { unit: 0 }, 9_000_000), 14_000_000);
    }

    /// Units of two blocks: three pages are two on one plane and one on the next.
    #[test]
    fn the_blocks_of_a_unit_take_turns() {
        let mut clock = Clock::new(&profile(), 8 << 20).unwrap();
        assert_eq!(clock.run(Operation::Program { page: 0, pages: 3 }, 0), 1_000_000);
        assert_eq!(clock.run(Operation::Read { page: 1, pages: 1 }, 0), 550_000);
        assert_eq!(clock.run(Operation::Erase { unit: 0 }, 2_000_000), 7_000_000);
    }

    #[test]
    fn a_unit_is_whole_blocks_or_whole_pages_of_one() {
        assert_eq!(Clock::new(&profile(), 256 << 10).unwrap().unit_pages(), 16);
        let refused = Clock::new(&profile(), 6 << 20).unwrap_err().to_string();
        assert!(refused.starts_with("erase units of 6MiB: expected a multiple of 4MiB"), "{refused}");
        let refused = Clock::new(&profile(), 20 << 10).unwrap_err().to_string();
        assert!(refused.starts_with("erase units of 20KiB: expected a multiple of 16KiB"), "{refused}");
    }
}
