//! Which plane does what: the erase blocks of a unit are on neighbouring planes, and its pages go to them in turns.

use super::profile::Profile;

/// Where the pages of erase units are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planes {
    /// Flash pages of an erase unit.
    unit_pages: u64,
    /// Erase blocks of an erase unit.
    unit_blocks: u64,
    number: u64,
}

impl Planes {
    /// Those of a device, in erase units of this many flash pages on this many erase blocks.
    pub(super) fn new(profile: &Profile, unit_pages: u32, unit_blocks: u32) -> Planes {
        let number = profile.channels * profile.dies_per_channel * profile.planes_per_die;
        Planes { unit_pages: unit_pages.into(), unit_blocks: unit_blocks.into(), number: number.into() }
    }

    /// How many there are.
    pub(super) fn number(&self) -> usize {
        self.number as usize
    }

    /// That of a flash page.
    #[inline]
    pub(super) fn of_page(&self, page: u64) -> usize {
        self.of_turn(page / self.unit_pages, page % self.unit_pages)
    }

    /// That of what comes at this turn in a unit: of its erase blocks, or of its pages.
    #[inline]
    pub(super) fn of_turn(&self, unit: u64, turn: u64) -> usize {
        ((unit * self.unit_blocks + turn % self.unit_blocks) % self.number) as usize
    }
}
