//! Erase units that are written once, front to back, and reset whole. They are the flash of the container caches and of
//! offline algorithms that choose their containers.
//!
//! Source: Cheng, Douglis, Shilane, Trachtman, Wallace, Desnoyers, Li: Erasing Belady's limitations: in search of flash
//! cache offline optimality. USENIX ATC 2016, section 4.1 (block index, container queue, list of free containers).
//!
//! A unit is free or sealed. The caller holds units in RAM while they fill.

use std::collections::VecDeque;

use super::tournament::Tournament;
use crate::index::Index;
use crate::step::FlashStep;

/// Bits of the sequence of sealing in a 64-bit key, below a unit's count of live blocks.
const SEQUENCE_BITS: u32 = 40;

/// The blocks on flash, each on one page of a sealed unit. Page `p` is on unit `p / unit_pages`.
///
/// Memory: the index, the key of a block (4 bytes in the simulator) and a bit per page, about 20 bytes per unit.
#[derive(Clone, Debug)]
pub struct Units<I: Index> {
    /// Node `page + 1` for a block that is live on `page`.
    index: I,
    /// The block last written to each page.
    block_at: Vec<I::Key>,
    /// A bit for each page whose block is live.
    live: Vec<u64>,
    unit_pages: u32,
    /// Blocks live on each unit.
    live_on: Vec<u32>,
    /// Sealed units, the emptiest first and among equals the one sealed first; free units are out.
    emptiest: Tournament,
    free: VecDeque<u32>,
    live_blocks: usize,
    /// Number of seals so far.
    sequence: u64,
}

impl<I: Index> Units<I> {
    /// Creates `units` free units of `unit_pages` pages each.
    pub fn new(index: I, units: u32, unit_pages: u32) -> Self {
        assert!(units > 0 && unit_pages > 0, "a flash device has a unit and a unit has a page");
        assert!(unit_pages < 1 << (64 - SEQUENCE_BITS), "a unit of {unit_pages} pages");
        let pages = units.checked_mul(unit_pages).filter(|&pages| pages < u32::MAX);
        let pages = pages.expect("a flash device has fewer than 2^32 - 1 pages") as usize;
        Units {
            index,
            block_at: vec![I::Key::default(); pages],
            live: vec![0; pages.div_ceil(64)],
            unit_pages,
            live_on: vec![0; units as usize],
            emptiest: Tournament::new(units),
            free: (0..units).collect(),
            live_blocks: 0,
            sequence: 0,
        }
    }

    /// Returns the number of units.
    pub fn units(&self) -> u32 {
        self.live_on.len() as u32
    }

    /// Returns the pages of a unit.
    pub fn unit_pages(&self) -> u32 {
        self.unit_pages
    }

    /// Returns the number of free units.
    pub fn free_units(&self) -> u32 {
        self.free.len() as u32
    }

    /// Returns the number of live blocks.
    pub fn len(&self) -> usize {
        self.live_blocks
    }

    /// True if no block is live.
    pub fn is_empty(&self) -> bool {
        self.live_blocks == 0
    }

    /// Writes `blocks` front to back to the unit that has been free for longest, and returns the unit. Their live
    /// copies elsewhere become dead; if a block occurs twice, its last copy counts. Unused pages are dead. There must
    /// be a free unit.
    pub fn seal(&mut self, blocks: &[I::Key], steps: &mut Vec<FlashStep>) -> u32 {
        assert!(blocks.len() <= self.unit_pages as usize, "{} blocks for a unit of {}", blocks.len(), self.unit_pages);
        let unit = self.free.pop_front().expect("a unit was reset before another is sealed");
        steps.reserve(blocks.len());
        for (page, &block) in (unit * self.unit_pages..).zip(blocks) {
            self.invalidate(block);
            self.block_at[page as usize] = block;
            self.index.insert(block, page + 1, |node| self.block_at[node as usize - 1]);
            self.live[page as usize / 64] |= 1 << (page % 64);
            self.live_on[unit as usize] += 1;
            self.live_blocks += 1;
            steps.push(FlashStep::Write { page });
        }
        self.sequence += 1;
        assert!(self.sequence < 1 << SEQUENCE_BITS, "fewer than 2^40 units are sealed");
        self.emptiest.set_key(unit, u64::from(self.live_on[unit as usize]) << SEQUENCE_BITS | self.sequence);
        unit
    }

    /// Returns the page on which `block` is live.
    #[inline]
    pub fn page_of(&self, block: I::Key) -> Option<u32> {
        self.index.get(block, |node| self.block_at[node as usize - 1]).checked_sub(1)
    }

    /// Returns the unit of `page`.
    #[inline]
    pub fn unit_of(&self, page: u32) -> u32 {
        page / self.unit_pages
    }

    /// Reads `block`. Returns true if it is live.
    #[inline]
    pub fn read(&self, block: I::Key, steps: &mut Vec<FlashStep>) -> bool {
        let page = self.page_of(block);
        steps.extend(page.map(|page| FlashStep::Read { page }));
        page.is_some()
    }

    /// Makes `block` dead, because it was overwritten or dropped. Returns true if it was live.
    #[inline]
    pub fn invalidate(&mut self, block: I::Key) -> bool {
        let Some(page) = self.page_of(block) else {
            return false;
        };
        self.index.remove(block, |node| self.block_at[node as usize - 1]);
        self.live[page as usize / 64] &= !(1 << (page % 64));
        self.live_blocks -= 1;
        let unit = self.unit_of(page);
        self.live_on[unit as usize] -= 1;
        let key = self.emptiest.key(unit);
        if key != Tournament::OUT {
            self.emptiest.set_key(unit, key - (1 << SEQUENCE_BITS));
        }
        true
    }

    /// Returns the number of live blocks on `unit`.
    #[inline]
    pub fn live(&self, unit: u32) -> u32 {
        self.live_on[unit as usize]
    }

    /// Iterates over the live blocks of `unit` and their pages, front to back.
    pub fn live_blocks(&self, unit: u32) -> impl Iterator<Item = (I::Key, u32)> {
        let pages = unit * self.unit_pages..(unit + 1) * self.unit_pages;
        pages.filter(|&page| self.is_live(page)).map(|page| (self.block_at[page as usize], page))
    }

    #[inline]
    fn is_live(&self, page: u32) -> bool {
        self.live[page as usize / 64] >> (page % 64) & 1 == 1
    }

    /// True if `unit` is sealed, not free.
    pub fn is_sealed(&self, unit: u32) -> bool {
        self.emptiest.key(unit) != Tournament::OUT
    }

    /// Returns the sealed unit with the fewest live blocks; among equals the one sealed first.
    #[inline]
    pub fn emptiest(&self) -> Option<u32> {
        self.emptiest.winner()
    }

    /// Resets `unit`, which must be sealed: it becomes free and its blocks dead. Returns the number of its live blocks.
    pub fn reset(&mut self, unit: u32, steps: &mut Vec<FlashStep>) -> u32 {
        assert!(self.is_sealed(unit), "unit {unit} is reset twice");
        let was_live = self.live(unit);
        self.emptiest.set_key(unit, Tournament::OUT);
        for page in unit * self.unit_pages..(unit + 1) * self.unit_pages {
            if self.is_live(page) {
                self.index.remove(self.block_at[page as usize], |node| self.block_at[node as usize - 1]);
                self.live[page as usize / 64] &= !(1 << (page % 64));
            }
        }
        self.live_blocks -= was_live as usize;
        self.live_on[unit as usize] = 0;
        self.free.push_back(unit);
        steps.push(FlashStep::Reset { unit });
        was_live
    }

    /// Hints that `block` will be looked up soon.
    #[inline]
    pub fn prefetch(&self, block: I::Key) {
        self.index.prefetch(block);
    }

    /// Asserts that index, pages, counts and order agree.
    pub fn check(&self) {
        let mut live_blocks = 0;
        for unit in 0..self.units() {
            let live = self.live_blocks(unit).count();
            assert_eq!(live, self.live(unit) as usize, "the count of blocks live on unit {unit}");
            assert_eq!(self.is_sealed(unit), !self.free.contains(&unit), "unit {unit} is free or sealed");
            for (block, page) in self.live_blocks(unit) {
                assert_eq!(self.page_of(block), Some(page), "{block:?} is live on a page that the index does not name");
            }
            let key = self.emptiest.key(unit);
            if self.is_sealed(unit) {
                assert_eq!(key >> SEQUENCE_BITS, live as u64, "unit {unit} is queued by its live blocks");
                let first = self.emptiest().expect("a unit is sealed");
                assert!(self.emptiest.key(first) <= key, "unit {unit} is emptier than {first}, which is queued first");
            } else {
                assert_eq!(live, 0, "unit {unit} is free");
            }
            live_blocks += live;
        }
        assert_eq!(live_blocks, self.live_blocks, "the count of live blocks");
        let mut free: Vec<_> = self.free.iter().collect();
        free.sort_unstable();
        free.dedup();
        assert_eq!(free.len(), self.free.len(), "a unit is free twice");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{Dense, Hashed};
    use std::collections::BTreeMap;

    const BLOCKS: u32 = 60;

    /// A simple model: the contents of each unit, dead blocks as `None`.
    struct Model {
        unit_pages: u32,
        free: Vec<u32>,
        /// In the order of sealing.
        sealed: Vec<(u32, Vec<Option<u32>>)>,
    }

    impl Model {
        fn pages(&self) -> BTreeMap<u32, u32> {
            let page = |unit: u32, at: usize| unit * self.unit_pages + at as u32;
            let live = self.sealed.iter().flat_map(|(unit, blocks)| {
                blocks.iter().enumerate().filter_map(move |(at, block)| block.map(|block| (block, page(*unit, at))))
            });
            live.collect()
        }

        fn invalidate(&mut self, block: u32) -> bool {
            let mut copies = self.sealed.iter_mut().flat_map(|(_, blocks)| blocks).filter(|held| **held == Some(block));
            copies.next().map(|held| *held = None).is_some()
        }

        fn seal(&mut self, blocks: &[u32]) -> u32 {
            let unit = self.free.remove(0);
            self.sealed.push((unit, vec![]));
            for &block in blocks {
                self.invalidate(block);
                self.sealed.last_mut().unwrap().1.push(Some(block));
            }
            unit
        }

        fn reset(&mut self, unit: u32) -> u32 {
            let at = self.sealed.iter().position(|(sealed, _)| *sealed == unit).unwrap();
            self.free.push(unit);
            self.sealed.remove(at).1.iter().flatten().count() as u32
        }

        fn emptiest(&self) -> Option<u32> {
            self.sealed.iter().min_by_key(|(_, blocks)| blocks.iter().flatten().count()).map(|(unit, _)| *unit)
        }
    }

    fn random(state: &mut u32, below: u32) -> u32 {
        *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (*state >> 8) % below
    }

    fn compare<I: Index<Key = u32>>(index: I, unit_count: u32, unit_pages: u32) {
        let mut units = Units::new(index, unit_count, unit_pages);
        let mut model = Model { unit_pages, free: (0..unit_count).collect(), sealed: vec![] };
        let mut state = unit_count * 100 + unit_pages;
        for _ in 0..3_000 {
            let mut steps = vec![];
            match random(&mut state, 8) {
                0 if !model.free.is_empty() => {
                    let count = random(&mut state, unit_pages + 1);
                    let blocks: Vec<u32> = (0..count).map(|_| random(&mut state, BLOCKS)).collect();
                    let unit = units.seal(&blocks, &mut steps);
                    assert_eq!(unit, model.seal(&blocks));
                    let write = |at| FlashStep::Write { page: unit * unit_pages + at };
                    assert_eq!(steps, (0..count).map(write).collect::<Vec<_>>());
                }
                1 if !model.sealed.is_empty() => {
                    let unit = match random(&mut state, 2) {
                        0 => model.sealed[random(&mut state, model.sealed.len() as u32) as usize].0,
                        _ => units.emptiest().unwrap(),
                    };
                    let live: Vec<_> = units.live_blocks(unit).collect();
                    let on_unit = |page: &u32| page / unit_pages == unit;
                    let mut expected: Vec<_> = model.pages().into_iter().filter(|(_, page)| on_unit(page)).collect();
                    expected.sort_by_key(|(_, page)| *page);
                    assert_eq!(live, expected);
                    assert_eq!(units.reset(unit, &mut steps), model.reset(unit));
                    assert_eq!(steps, [FlashStep::Reset { unit }]);
                }
                _ => {
                    let block = random(&mut state, BLOCKS);
                    let page = model.pages().get(&block).copied();
                    assert_eq!(units.read(block, &mut steps), page.is_some());
                    assert_eq!(steps, page.map(|page| FlashStep::Read { page }).into_iter().collect::<Vec<_>>());
                    assert_eq!(units.invalidate(block), model.invalidate(block));
                }
            }
            units.check();
            let pages = model.pages();
            assert_eq!(units.len(), pages.len());
            assert_eq!(units.free_units() as usize, model.free.len());
            assert_eq!(units.emptiest(), model.emptiest());
            for block in 0..BLOCKS {
                assert_eq!(units.page_of(block), pages.get(&block).copied());
            }
        }
    }

    #[test]
    fn units_match_lists_of_blocks_with_either_index() {
        for (unit_count, unit_pages) in [(1, 1), (1, 7), (5, 1), (4, 4), (9, 33), (3, 70)] {
            compare(Dense::new(BLOCKS as usize), unit_count, unit_pages);
            compare(Hashed::new(), unit_count, unit_pages);
        }
    }

    #[test]
    fn the_emptiest_unit_is_the_first_sealed_among_equals_however_it_became_so() {
        let mut units = Units::new(Dense::new(10), 3, 2);
        let mut steps = vec![];
        for blocks in [[0, 1], [2, 3], [4, 5]] {
            units.seal(&blocks, &mut steps);
        }
        assert_eq!(units.emptiest(), Some(0));
        units.invalidate(4);
        assert_eq!(units.emptiest(), Some(2));
        units.invalidate(1);
        assert_eq!(
            units.emptiest(),
            Some(0),
            "two units have one block each; 0 was sealed first, though 2 lost its block first"
        );
        assert_eq!(units.reset(0, &mut steps), 1);
        assert_eq!(units.emptiest(), Some(2));
        // Unit 0 is sealed again, with copies of the blocks of unit 1.
        assert_eq!(units.seal(&[2, 3], &mut steps), 0);
        assert_eq!((units.emptiest(), units.live(1)), (Some(1), 0));
    }
}
