//! Erase units that are filled in RAM before they are sealed to flash.

use crate::index::{Hashed, Index, Key};
use crate::step::Cause;

/// The data of a block in an open unit.
#[derive(Clone, Copy, Debug)]
struct KeptBlock<T> {
    cause: Cause,
    data: T,
}

/// The position of a block in an open unit. Valid until a block leaves that unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenPlace(u32);

/// Open units, numbered from 0, with their blocks and the caller's `T` for each. A full unit must be taken before
/// another block is pushed to it.
#[derive(Clone, Debug)]
pub struct OpenUnits<K, T> {
    unit_pages: u32,
    blocks: Vec<Vec<K>>,
    kept: Vec<Vec<KeptBlock<T>>>,
    /// Node `unit * unit_pages + place + 1` for each block.
    index: Hashed<K>,
}

#[inline]
fn key_of<K: Copy>(blocks: &[Vec<K>], unit_pages: u32, node: u32) -> K {
    let place = node - 1;
    blocks[(place / unit_pages) as usize][(place % unit_pages) as usize]
}

impl<K: Key, T: Copy> OpenUnits<K, T> {
    /// Creates `count` empty open units of `unit_pages` pages.
    pub fn new(count: u32, unit_pages: u32) -> Self {
        assert!(unit_pages > 0 && count.checked_mul(unit_pages).is_some_and(|pages| pages < u32::MAX));
        let (blocks, kept) = (vec![vec![]; count as usize], vec![vec![]; count as usize]);
        OpenUnits { unit_pages, blocks, kept, index: Hashed::new() }
    }

    /// Returns the position of `block`, if it is here.
    #[inline]
    pub fn find(&self, block: K) -> Option<OpenPlace> {
        self.index.get(block, |node| key_of(&self.blocks, self.unit_pages, node)).checked_sub(1).map(OpenPlace)
    }

    #[inline]
    fn split(&self, place: OpenPlace) -> (usize, usize) {
        ((place.0 / self.unit_pages) as usize, (place.0 % self.unit_pages) as usize)
    }

    /// Returns the open unit of a position.
    #[inline]
    pub fn unit_of(&self, place: OpenPlace) -> u32 {
        place.0 / self.unit_pages
    }

    /// Returns the caller's data of the block there.
    #[inline]
    pub fn data_mut(&mut self, place: OpenPlace) -> &mut T {
        let (unit, at) = self.split(place);
        &mut self.kept[unit][at].data
    }

    /// Records that the client overwrote the block there.
    #[inline]
    pub fn overwrite(&mut self, place: OpenPlace) {
        let (unit, at) = self.split(place);
        self.kept[unit][at].cause = Cause::Client;
    }

    /// Returns the number of blocks in `unit`.
    #[inline]
    pub fn len(&self, unit: u32) -> u32 {
        self.blocks[unit as usize].len() as u32
    }

    /// True if `unit` is empty.
    pub fn is_empty(&self, unit: u32) -> bool {
        self.len(unit) == 0
    }

    /// Returns the number of blocks in all open units.
    pub fn blocks(&self) -> usize {
        self.blocks.iter().map(Vec::len).sum()
    }

    /// Pushes `block`, which is in no open unit, to `unit`. Returns true if the unit is now full.
    #[inline]
    pub fn push(&mut self, unit: u32, block: K, cause: Cause, data: T) -> bool {
        let at = self.len(unit);
        assert!(at < self.unit_pages, "a full unit is taken before a block is put into it");
        self.blocks[unit as usize].push(block);
        self.kept[unit as usize].push(KeptBlock { cause, data });
        self.remember(block, unit * self.unit_pages + at);
        at + 1 == self.unit_pages
    }

    /// Removes the block there; the last block of the unit takes its position.
    pub fn remove(&mut self, place: OpenPlace) -> (K, Cause, T) {
        let (unit, at) = self.split(place);
        let (block, last) = (self.blocks[unit][at], self.blocks[unit].len() - 1);
        self.forget(block);
        if at < last {
            let moved = self.blocks[unit][last];
            self.forget(moved);
            self.blocks[unit].swap_remove(at);
            self.remember(moved, place.0);
        } else {
            self.blocks[unit].pop();
        }
        let KeptBlock { cause, data } = self.kept[unit].swap_remove(at);
        (block, cause, data)
    }

    #[inline]
    fn remember(&mut self, block: K, place: u32) {
        self.index.insert(block, place + 1, |node| key_of(&self.blocks, self.unit_pages, node));
    }

    #[inline]
    fn forget(&mut self, block: K) {
        self.index.remove(block, |node| key_of(&self.blocks, self.unit_pages, node));
    }

    /// Moves all blocks of `unit` into `blocks` and `kept`, in order of insertion, except as reordered by removals.
    pub fn take(&mut self, unit: u32, blocks: &mut Vec<K>, kept: &mut Vec<(Cause, T)>) {
        for at in 0..self.blocks[unit as usize].len() {
            self.forget(self.blocks[unit as usize][at]);
        }
        blocks.clear();
        std::mem::swap(blocks, &mut self.blocks[unit as usize]);
        kept.clear();
        kept.extend(self.kept[unit as usize].drain(..).map(|KeptBlock { cause, data }| (cause, data)));
    }

    /// Returns the blocks of `unit`.
    pub fn blocks_of(&self, unit: u32) -> &[K] {
        &self.blocks[unit as usize]
    }

    /// Asserts that index and units agree and that no unit is full.
    pub fn check(&self) {
        for (unit, blocks) in (0..).zip(&self.blocks) {
            assert!(blocks.len() < self.unit_pages as usize, "open unit {unit} is full");
            assert_eq!(blocks.len(), self.kept[unit as usize].len());
            for (at, &block) in (0..).zip(blocks) {
                assert_eq!(
                    self.find(block),
                    Some(OpenPlace(unit * self.unit_pages + at)),
                    "{block:?} is indexed elsewhere"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_units_match_lists_of_blocks() {
        for unit_pages in [1, 2, 5, 20] {
            let mut open = OpenUnits::new(3, unit_pages);
            let mut model: [Vec<(u32, Cause, u32)>; 3] = Default::default();
            let mut state = unit_pages;
            for step in 0..3_000 {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let (block, unit) = ((state >> 8) % 50, (state >> 20) % 3);
                let held = |(unit, blocks): (usize, &Vec<(u32, Cause, u32)>)| {
                    blocks.iter().position(|held| held.0 == block).map(|at| (unit, at))
                };
                match (model.iter().enumerate().find_map(held), state >> 30) {
                    (None, _) => {
                        assert_eq!(open.find(block), None);
                        model[unit as usize].push((block, Cause::Admission, step));
                        let full = model[unit as usize].len() as u32 == unit_pages;
                        assert_eq!(open.push(unit, block, Cause::Admission, step), full);
                        if full {
                            let (mut blocks, mut kept) = (vec![], vec![]);
                            open.take(unit, &mut blocks, &mut kept);
                            let taken: Vec<_> =
                                blocks.iter().zip(kept).map(|(&block, kept)| (block, kept.0, kept.1)).collect();
                            assert_eq!(taken, std::mem::take(&mut model[unit as usize]));
                            assert!(open.is_empty(unit));
                        }
                    }
                    (Some((unit, at)), 0) => {
                        let place = open.find(block).unwrap();
                        assert_eq!(open.unit_of(place), unit as u32);
                        assert_eq!(open.remove(place), model[unit].swap_remove(at));
                    }
                    (Some((unit, at)), _) => {
                        let place = open.find(block).unwrap();
                        open.overwrite(place);
                        *open.data_mut(place) += 1;
                        model[unit][at].1 = Cause::Client;
                        model[unit][at].2 += 1;
                    }
                }
                open.check();
                assert_eq!(open.blocks(), model.iter().map(Vec::len).sum::<usize>());
                for (unit, blocks) in (0..).zip(&model) {
                    assert!(open.blocks_of(unit).iter().eq(blocks.iter().map(|(block, ..)| block)));
                }
            }
        }
    }
}
