//! The mapping of pages to planes: the erase blocks of a unit are on neighbouring planes, its pages striped over them.

use super::profile::Profile;

/// The location of the pages of erase units.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planes {
    /// Flash pages of an erase unit.
    unit_pages: u64,
    /// Erase blocks of an erase unit.
    unit_blocks: u64,
    number: u64,
}

impl Planes {
    /// Creates the mapping for erase units of this many flash pages on this many erase blocks.
    pub(super) fn new(profile: &Profile, unit_pages: u32, unit_blocks: u32) -> Planes {
        let number = profile.channels * profile.dies_per_channel * profile.planes_per_die;
        Planes { unit_pages: unit_pages.into(), unit_blocks: unit_blocks.into(), number: number.into() }
    }

    /// Returns the number of planes.
    pub(super) fn number(&self) -> usize {
        self.number as usize
    }

    /// Returns the plane of a flash page.
    #[inline]
    pub(super) fn of_page(&self, page: u64) -> usize {
        self.of_turn(page / self.unit_pages, page % self.unit_pages)
    }

    /// Returns the plane of erase block or page number `turn` of a unit.
    #[inline]
    pub(super) fn of_turn(&self, unit: u64, turn: u64) -> usize {
        ((unit * self.unit_blocks + turn % self.unit_blocks) % self.number) as usize
    }
}
