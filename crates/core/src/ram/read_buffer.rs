//! The read buffer: clean blocks in RAM, with LRU eviction.
//!
//! Source: NCache, section 3.1; the LRU policy of [`crate::policy::lru`], with a frame kept for each block.
//!
//! Departures from the paper: a part of the buffer can be reserved for a *pin*, a number given with requests. The
//! blocks that the pin's requests used last, up to its reservation, are not evicted for others. They have their own
//! list. Its least recently used block moves to the front of the common list, as from the protected segment of SLRU to
//! the probationary one.

use crate::blocks::{Blocks, List, NodeId};
use crate::index::Hashed;

/// The evictable blocks, most recently used first; each pin's blocks are on the list of its number.
const Q: List = List(0);

/// Maximum number of pins, numbered from 1.
pub const PINS_MAX: u8 = 63;

/// The clean blocks in RAM, each with its frame `F`.
///
/// Memory: 34 bytes per block with a 4-byte frame.
#[derive(Clone, Debug)]
pub struct ReadBuffer<F> {
    capacity_blocks: usize,
    /// `None` only for the heads of lists.
    blocks: Blocks<Hashed<u32>, Option<F>>,
    /// Reserved blocks by pin; 0 for pin 0.
    pinned_blocks: [usize; PINS_MAX as usize + 1],
}

impl<F: Copy> ReadBuffer<F> {
    /// Creates an empty buffer for `capacity_blocks`, which may be 0.
    pub fn new(capacity_blocks: usize) -> Self {
        let blocks = Blocks::new(Hashed::with_capacity(capacity_blocks, 0), PINS_MAX + 1, 0);
        ReadBuffer { capacity_blocks, blocks, pinned_blocks: [0; PINS_MAX as usize + 1] }
    }

    /// Reserves this many blocks for a pin. Returns false if the buffer has no room for that besides the other pins.
    pub fn pin(&mut self, pin: u8, blocks: usize) -> bool {
        assert!((1..=PINS_MAX).contains(&pin), "pin {pin} is one of 1 to {PINS_MAX}");
        let others = self.pinned_blocks.iter().sum::<usize>() - self.pinned_blocks[usize::from(pin)];
        if others.saturating_add(blocks) > self.capacity_blocks {
            return false;
        }
        self.pinned_blocks[usize::from(pin)] = blocks;
        self.release(List(pin));
        true
    }

    /// Returns the reserved blocks of each pin, by number; 0 for pin 0.
    pub fn pinned_blocks(&self) -> &[usize; PINS_MAX as usize + 1] {
        &self.pinned_blocks
    }

    /// Moves the excess of a pin's list to the common one.
    fn release(&mut self, list: List) {
        while list != Q && self.blocks.len(list) > self.pinned_blocks[usize::from(list.0)] {
            let node = self.blocks.back(list).expect("the list has blocks");
            self.blocks.move_front(node, Q);
        }
    }

    /// Returns the frame of `block` if it is here, and marks it as the most recently used. `pin` is the request's pin,
    /// or 0.
    pub fn get(&mut self, block: u32, pin: u8) -> Option<F> {
        let node = self.blocks.find(block)?;
        let kept = self.pinned_blocks[usize::from(pin)] > 0;
        let list = if kept { List(pin) } else { self.blocks.list(node) };
        self.blocks.move_front(node, list);
        self.release(list);
        *self.blocks.data(node)
    }

    /// Returns the frame of `block`, if it is here, without marking it as used.
    pub fn peek(&self, block: u32) -> Option<F> {
        *self.blocks.data(self.blocks.find(block)?)
    }

    /// Inserts `block`, which must not be here, as the most recently used. `pin` is the request's pin, or 0. If the
    /// buffer is full, returns the evicted block, the least recently used evictable one, with its frame. If there is no
    /// room at all, that is `block` itself.
    #[must_use = "the frame of the evicted block is free"]
    pub fn insert(&mut self, block: u32, frame: F, pin: u8) -> Option<(u32, F)> {
        assert!(self.blocks.find(block).is_none(), "block {block} is in the read buffer already");
        let list = if self.pinned_blocks[usize::from(pin)] > 0 { List(pin) } else { Q };
        let mut evicted = None;
        if self.len() == self.capacity_blocks {
            // If everything is reserved, the pin's own oldest block is evicted.
            let Some(node) = self.blocks.back(Q).or_else(|| self.blocks.back(list)) else {
                return Some((block, frame));
            };
            evicted = self.take(node);
        }
        self.blocks.insert_front(list, block, Some(frame));
        self.release(list);
        evicted
    }

    /// Removes the least recently used evictable block, otherwise a reserved one.
    pub fn pop(&mut self) -> Option<(u32, F)> {
        (0..=PINS_MAX).find_map(|list| self.blocks.back(List(list))).and_then(|node| self.take(node))
    }

    /// Removes `block`, and returns its frame if it was here.
    pub fn remove(&mut self, block: u32) -> Option<F> {
        let node = self.blocks.find(block)?;
        self.take(node).map(|(_, frame)| frame)
    }

    fn take(&mut self, node: NodeId) -> Option<(u32, F)> {
        let frame = (*self.blocks.data(node))?;
        Some((self.blocks.remove(node), frame))
    }

    /// Returns the number of blocks in the buffer.
    pub fn len(&self) -> usize {
        self.blocks.cached_len()
    }

    /// True if the buffer is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the capacity in blocks.
    pub fn capacity_blocks(&self) -> usize {
        self.capacity_blocks
    }

    /// Asserts the buffer's invariants, its memory bound included. Slow; for tests.
    pub fn check(&self) {
        self.blocks.check(self.capacity_blocks);
        assert!(self.pinned_blocks.iter().sum::<usize>() <= self.capacity_blocks);
        for list in (0..=PINS_MAX).map(List) {
            let pinned = self.pinned_blocks[usize::from(list.0)];
            assert!(list == Q || self.blocks.len(list) <= pinned, "list {list:?} has more than is pinned");
            for block in self.blocks.keys(list) {
                assert!(self.peek(block).is_some(), "block {block} has no frame");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(buffer: &ReadBuffer<char>) -> Vec<u32> {
        buffer.blocks.keys(Q).collect()
    }

    /// Room for 3 blocks, most recently used first.
    #[test]
    fn the_least_recently_used_block_makes_room() {
        let mut buffer = ReadBuffer::new(3);
        for (block, frame) in [(1, 'a'), (2, 'b'), (3, 'c')] {
            assert_eq!(buffer.insert(block, frame, 0), None);
        }
        assert_eq!(buffer.get(1, 0), Some('a'));
        assert_eq!(order(&buffer), [1, 3, 2]);
        assert_eq!(buffer.peek(2), Some('b'));
        assert_eq!(order(&buffer), [1, 3, 2]);
        assert_eq!(buffer.insert(4, 'd', 0), Some((2, 'b')));
        assert_eq!((buffer.get(2, 0), buffer.peek(2)), (None, None));
        assert_eq!(buffer.remove(1), Some('a'));
        assert_eq!(buffer.remove(1), None);
        assert_eq!(buffer.insert(5, 'e', 0), None);
        assert_eq!(order(&buffer), [5, 4, 3]);
        buffer.check();
        assert_eq!(
            [buffer.pop(), buffer.pop(), buffer.pop(), buffer.pop()],
            [Some((3, 'c')), Some((4, 'd')), Some((5, 'e')), None]
        );
        assert!(buffer.is_empty());
        buffer.check();
    }

    /// Room for 4 blocks; 2 are reserved for pin 1. Most recently used first.
    #[test]
    fn pinned_blocks_are_not_evicted_for_others() {
        let mut buffer = ReadBuffer::new(4);
        assert!(buffer.pin(1, 2) && !buffer.pin(2, 3), "there is room for two more");
        let mut left = Vec::new();
        let mut insert = |buffer: &mut ReadBuffer<char>, block, pin| {
            left.extend(buffer.insert(block, 'x', pin).map(|(block, _)| block));
        };
        (1..=3).for_each(|block| insert(&mut buffer, block, 1));
        (4..=5).for_each(|block| insert(&mut buffer, block, 0));
        assert_eq!(buffer.get(4, 1), Some('x'));
        (6..=8).for_each(|block| insert(&mut buffer, block, 0));
        assert_eq!(left, [1, 5, 2, 6]);
        buffer.check();
        let on = |buffer: &ReadBuffer<char>, list| buffer.blocks.keys(List(list)).collect::<Vec<_>>();
        assert_eq!((on(&buffer, 1), on(&buffer, 0)), (vec![4, 3], vec![8, 7]));
        assert!(buffer.pin(1, 1));
        assert_eq!((on(&buffer, 1), on(&buffer, 0)), (vec![4], vec![3, 8, 7]));
        // If everything is reserved, others keep nothing, and the pin's own oldest block is evicted.
        assert!(buffer.pin(1, 0) && buffer.pin(2, 4));
        for block in 11..=14 {
            let _ = buffer.insert(block, 'y', 2);
        }
        assert_eq!(buffer.insert(15, 'z', 0), Some((15, 'z')));
        assert_eq!(buffer.insert(16, 'z', 2), Some((11, 'y')));
        buffer.check();
    }

    #[test]
    fn a_buffer_without_room_hands_every_block_straight_back() {
        let mut buffer = ReadBuffer::new(0);
        assert_eq!(buffer.insert(7, 'a', 0), Some((7, 'a')));
        assert_eq!((buffer.peek(7), buffer.len()), (None, 0));
        buffer.check();
    }

    #[test]
    #[should_panic(expected = "block 7 is in the read buffer already")]
    fn a_block_has_one_frame_only() {
        let mut buffer = ReadBuffer::new(2);
        let _ = buffer.insert(7, 'a', 0);
        let _ = buffer.insert(7, 'b', 0);
    }
}
