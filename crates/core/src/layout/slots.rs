//! A fixed slot of the flash for each cached block, overwritten in place; the device's own translation layer does the
//! rest.

use crate::index::Index;
use crate::step::FlashStep;

/// The blocks on flash, one per slot. A slot is a page of the device.
///
/// The slot that was freed last is reused first. So a new block overwrites its victim, as in caches that replace in
/// place, and discarded slots stay so while the cache is not full. To a device that maps page by page the choice makes
/// no difference.
///
/// Memory: the index, and up to the key of a block and 4 bytes per slot.
#[derive(Clone, Debug)]
pub struct Slots<I: Index> {
    /// Node `slot + 1` for the block in `slot`.
    index: I,
    /// The block that was last put into each slot.
    block_at: Vec<I::Key>,
    /// Free slots, the next one to use at the end.
    free: Vec<u32>,
}

impl<I: Index> Slots<I> {
    /// Creates `slots` free slots.
    pub fn new(index: I, slots: u32) -> Self {
        assert!(slots > 0 && slots < u32::MAX, "{slots} slots");
        Slots { index, block_at: vec![I::Key::default(); slots as usize], free: (0..slots).rev().collect() }
    }

    /// Returns the number of free slots.
    pub fn free_slots(&self) -> u32 {
        self.free.len() as u32
    }

    /// Returns the number of blocks.
    pub fn len(&self) -> usize {
        self.block_at.len() - self.free.len()
    }

    /// True if there are no blocks.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the page of `block`.
    #[inline]
    pub fn page_of(&self, block: I::Key) -> Option<u32> {
        self.index.get(block, |node| self.block_at[node as usize - 1]).checked_sub(1)
    }

    /// Writes `block`, which has no slot, to a free one, and returns it. There must be a free slot.
    #[inline]
    pub fn place(&mut self, block: I::Key, steps: &mut Vec<FlashStep>) -> u32 {
        debug_assert!(self.page_of(block).is_none(), "{block:?} is placed twice");
        let page = self.free.pop().expect("a block leaves before another is placed on a full device");
        self.block_at[page as usize] = block;
        self.index.insert(block, page + 1, |node| self.block_at[node as usize - 1]);
        steps.push(FlashStep::Write { page });
        page
    }

    /// Overwrites `block` in its slot. Returns true if it has one.
    #[inline]
    pub fn overwrite(&mut self, block: I::Key, steps: &mut Vec<FlashStep>) -> bool {
        let page = self.page_of(block);
        steps.extend(page.map(|page| FlashStep::Write { page }));
        page.is_some()
    }

    /// Reads `block`. Returns true if it is here.
    #[inline]
    pub fn read(&self, block: I::Key, steps: &mut Vec<FlashStep>) -> bool {
        let page = self.page_of(block);
        steps.extend(page.map(|page| FlashStep::Read { page }));
        page.is_some()
    }

    /// Frees the slot of `block`, and with `discard` informs the device. Returns true if it had one.
    #[inline]
    pub fn remove(&mut self, block: I::Key, discard: bool, steps: &mut Vec<FlashStep>) -> bool {
        let Some(page) = self.page_of(block) else {
            return false;
        };
        self.index.remove(block, |node| self.block_at[node as usize - 1]);
        self.free.push(page);
        if discard {
            steps.push(FlashStep::Discard { page });
        }
        true
    }

    /// Hints that `block` will be looked up soon.
    #[inline]
    pub fn prefetch(&self, block: I::Key) {
        self.index.prefetch(block);
    }

    /// Asserts that index and free slots agree.
    pub fn check(&self) {
        let mut is_free = vec![false; self.block_at.len()];
        for &slot in &self.free {
            assert!(!std::mem::replace(&mut is_free[slot as usize], true), "slot {slot} is free twice");
        }
        for (slot, &block) in (0..).zip(&self.block_at) {
            let here = self.page_of(block) == Some(slot);
            assert_eq!(here, !is_free[slot as usize], "slot {slot} is free or {block:?} is in it");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{Dense, Hashed};

    const BLOCKS: u32 = 40;

    fn compare<I: Index<Key = u32>>(index: I, count: u32) {
        let mut slots = Slots::new(index, count);
        let mut model = vec![None; count as usize];
        let mut discarded = vec![false; count as usize];
        let mut state = count;
        for _ in 0..4_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (block, what) = ((state >> 8) % BLOCKS, state >> 30);
            let at = model.iter().position(|&held| held == Some(block)).map(|at| at as u32);
            let mut steps = vec![];
            let expected = match (at, what) {
                (None, _) if slots.free_slots() > 0 => {
                    let page = slots.place(block, &mut steps);
                    assert_eq!(model[page as usize].replace(block), None, "slot {page} was free");
                    discarded[page as usize] = false;
                    Some(FlashStep::Write { page })
                }
                (_, 0) => {
                    assert_eq!(slots.read(block, &mut steps), at.is_some());
                    at.map(|page| FlashStep::Read { page })
                }
                (_, 1) => {
                    assert_eq!(slots.overwrite(block, &mut steps), at.is_some());
                    at.map(|page| FlashStep::Write { page })
                }
                _ => {
                    let discard = what == 2;
                    assert_eq!(slots.remove(block, discard, &mut steps), at.is_some());
                    if let Some(page) = at {
                        model[page as usize] = None;
                        assert!(
                            !std::mem::replace(&mut discarded[page as usize], discard),
                            "slot {page} is discarded twice"
                        );
                    }
                    at.filter(|_| discard).map(|page| FlashStep::Discard { page })
                }
            };
            assert_eq!(steps, expected.into_iter().collect::<Vec<_>>());
            slots.check();
            assert_eq!(slots.len(), model.iter().flatten().count());
            for block in 0..BLOCKS {
                let at = model.iter().position(|&held| held == Some(block)).map(|at| at as u32);
                assert_eq!(slots.page_of(block), at);
            }
        }
    }

    #[test]
    fn slots_match_a_list_of_blocks_with_either_index() {
        for count in [1, 2, 7, 30, 50] {
            compare(Dense::new(BLOCKS as usize), count);
            compare(Hashed::new(), count);
        }
    }

    #[test]
    fn a_block_takes_the_slot_of_the_one_that_left_for_it() {
        let mut slots = Slots::new(Dense::new(10), 4);
        let mut steps = vec![];
        for block in 1..=3 {
            assert_eq!(slots.place(block, &mut steps), block - 1);
        }
        assert!(slots.remove(2, false, &mut steps));
        assert_eq!(slots.place(7, &mut steps), 1, "slot 3 was never written and stays so");
    }
}
