//! The effect of region records on clean copies, read newest first.

use std::collections::{BTreeMap, HashMap};

use rustc_hash::FxBuildHasher;

use crate::format::{Kind, Region};

/// The records of a region.
#[derive(Clone, Copy, Debug)]
struct Said {
    /// The number of region records newer than the newest of this one.
    newer: u64,
    /// True if the newest one is `Unsure`.
    is_unsure: bool,
    /// True if one of them invalidates earlier copies.
    is_forgotten: bool,
}

/// The state of regions according to the records so far.
#[derive(Debug, Default)]
pub(super) struct Regions {
    /// By size (a log has one or two) and by number.
    said: BTreeMap<u32, HashMap<u32, Said, FxBuildHasher>>,
    seen: u64,
    /// True if there is a `ForgetRegion`.
    forgets: bool,
}

fn number(block: u32, blocks: u32) -> u32 {
    block.checked_div(blocks).unwrap_or(0)
}

impl Regions {
    /// Adds a record, older than all before.
    pub(super) fn note(&mut self, kind: Kind, region: Region) {
        let newest = Said { newer: self.seen, is_unsure: kind == Kind::Unsure, is_forgotten: false };
        let of_size = self.said.entry(region.blocks).or_default();
        let said = of_size.entry(number(region.first, region.blocks)).or_insert(newest);
        said.is_forgotten |= kind == Kind::ForgetRegion;
        self.forgets |= kind == Kind::ForgetRegion;
        self.seen += 1;
    }

    /// Returns the state of the regions that contain `block`.
    fn of(&self, block: u32) -> impl Iterator<Item = Said> {
        self.said.iter().filter_map(move |(blocks, said)| said.get(&number(block, *blocks)).copied())
    }

    /// True if a clean copy of `block` is invalid, given that its record is older than all so far.
    pub(super) fn is_forgotten(&self, block: u32) -> bool {
        self.forgets && self.of(block).any(|said| said.is_forgotten)
    }

    /// True if all clean copies of `block` are invalid, after all records were added.
    pub(super) fn is_unsure(&self, block: u32) -> bool {
        self.of(block).min_by_key(|said| said.newer).is_some_and(|said| said.is_unsure)
    }

    /// Returns the regions that were unsure at the end of the log, in order.
    pub(super) fn unsure(&self) -> Vec<Region> {
        let whole = self.said.get(&0).and_then(|said| said.get(&0));
        let mut unsure: Vec<Region> = Vec::new();
        for (blocks, said) in &self.said {
            let is_unsure = |said: &Said| said.is_unsure && whole.is_none_or(|whole| said.newer <= whole.newer);
            let numbers = said.iter().filter(|(_, said)| is_unsure(said)).map(|(number, _)| *number);
            unsure.extend(numbers.map(|number| Region { first: number * blocks, blocks: *blocks }));
        }
        unsure.sort_unstable();
        unsure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Region = Region { first: 0, blocks: 10 };
    const SECOND: Region = Region { first: 10, blocks: 10 };

    /// Adds the records of a log given oldest first.
    fn regions(log: &[(Kind, Region)]) -> Regions {
        let mut regions = Regions::default();
        log.iter().rev().for_each(|&(kind, region)| regions.note(kind, region));
        regions
    }

    #[test]
    fn the_newest_record_of_a_region_holds() {
        use Kind::{ForgetRegion, Sure, Unsure};
        let unsure = |log: &[(Kind, Region)]| regions(log).unsure();
        assert_eq!(unsure(&[(Unsure, FIRST), (Unsure, SECOND)]), [FIRST, SECOND]);
        assert_eq!(unsure(&[(Unsure, FIRST), (Unsure, SECOND), (Sure, FIRST)]), [SECOND]);
        assert_eq!(unsure(&[(Unsure, FIRST), (Sure, FIRST), (Unsure, FIRST)]), [FIRST]);
        assert_eq!(unsure(&[(Unsure, FIRST), (Unsure, SECOND), (Sure, Region::ALL)]), []);
        assert_eq!(unsure(&[(Unsure, FIRST), (Sure, Region::ALL), (Unsure, SECOND)]), [SECOND]);
        assert_eq!(unsure(&[(Unsure, FIRST), (ForgetRegion, FIRST)]), []);
        let regions = regions(&[(Unsure, FIRST), (Sure, Region::ALL), (Unsure, SECOND)]);
        assert_eq!([9, 10, 19, 20].map(|block| regions.is_unsure(block)), [false, true, true, false]);
    }

    /// Later records only concern later copies.
    #[test]
    fn copies_before_a_forgetting_record_stay_invalid() {
        let mut regions = regions(&[(Kind::ForgetRegion, FIRST), (Kind::Unsure, FIRST), (Kind::Sure, FIRST)]);
        assert_eq!(
            [9, 10].map(|block| (regions.is_forgotten(block), regions.is_unsure(block))),
            [(true, false), (false, false)]
        );
        regions.note(Kind::ForgetRegion, Region::ALL);
        assert!(regions.is_forgotten(10));
    }
}
