//! The read buffer: clean blocks in RAM, of which the least recently used makes room.
//!
//! Source: NCache, section 3.1; the LRU policy of [`crate::policy::lru`], with a frame kept for each block.
//!
//! Departures from the paper: a part of the buffer can be pinned for those who ask for it, by the number of a *pin*. The blocks that a pin's
//! requests used last, as many as are pinned, leave for no other's. They are a list of their own, whose least recently used block goes to
//! the front of the common one, as from the protected segment of SLRU to the probationary one.

use crate::blocks::{Blocks, List, NodeId};
use crate::index::Hashed;

/// The blocks that make room, most recently used first; the list of a pin's number has those of the pin.
const Q: List = List(0);

/// Most pins; they are numbered from 1.
pub const PINS_MAX: u8 = 63;

/// The clean blocks in RAM, each with its frame `F`.
///
/// Memory: 34 bytes per block for a 4-byte frame.
#[derive(Clone, Debug)]
pub struct ReadBuffer<F> {
    capacity_blocks: usize,
    /// `None` stands on a list's head alone.
    blocks: Blocks<Hashed<u32>, Option<F>>,
    /// By pin, how many blocks are kept for it; that of 0 is 0.
    pinned_blocks: [usize; PINS_MAX as usize + 1],
}

impl<F: Copy> ReadBuffer<F> {
    /// An empty buffer for `capacity_blocks`, which may be 0.
    pub fn new(capacity_blocks: usize) -> Self {
        let blocks = Blocks::new(Hashed::with_capacity(capacity_blocks, 0), PINS_MAX + 1, 0);
        ReadBuffer { capacity_blocks, blocks, pinned_blocks: [0; PINS_MAX as usize + 1] }
    }

    /// Keeps this many blocks for a pin from now on, of what its requests use; whether the buffer has room for that besides the other pins.
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

    /// What is kept for each pin, by its number; that of 0 is 0.
    pub fn pinned_blocks(&self) -> &[usize; PINS_MAX as usize + 1] {
        &self.pinned_blocks
    }

    /// What is more on a pin's list than is kept for it goes to the common one.
    fn release(&mut self, list: List) {
        while list != Q && self.blocks.len(list) > self.pinned_blocks[usize::from(list.0)] {
            let node = self.blocks.back(list).expect("the list has blocks");
            self.blocks.move_front(node, Q);
        }
    }

    /// The frame of `block`, which becomes the most recently used, if it is here; for a request of a pin, or of none, which is 0.
    pub fn get(&mut self, block: u32, pin: u8) -> Option<F> {
        let node = self.blocks.find(block)?;
        let kept = self.pinned_blocks[usize::from(pin)] > 0;
        let list = if kept { List(pin) } else { self.blocks.list(node) };
        self.blocks.move_front(node, list);
        self.release(list);
        *self.blocks.data(node)
    }

    /// The frame of `block`, if it is here; not a use.
    pub fn peek(&self, block: u32) -> Option<F> {
        *self.blocks.data(self.blocks.find(block)?)
    }

    /// Puts `block`, which must not be here, into the buffer as the most recently used, for a request of a pin or of none, which is 0. Returns
    /// the block that has to leave and its frame, which is free now: the least recently used one of a full buffer that may leave, `block`
    /// itself if there is room for none.
    #[must_use = "the frame of the evicted block is free"]
    pub fn insert(&mut self, block: u32, frame: F, pin: u8) -> Option<(u32, F)> {
        assert!(self.blocks.find(block).is_none(), "block {block} is in the read buffer already");
        let list = if self.pinned_blocks[usize::from(pin)] > 0 { List(pin) } else { Q };
        let mut evicted = None;
        if self.len() == self.capacity_blocks {
            // Where all of it is pinned, the pin's own oldest makes room.
            let Some(node) = self.blocks.back(Q).or_else(|| self.blocks.back(list)) else {
                return Some((block, frame));
            };
            evicted = self.take(node);
        }
        self.blocks.insert_front(list, block, Some(frame));
        self.release(list);
        evicted
    }

    /// Takes the least recently used block out of the buffer that may leave, or else one that is pinned.
    pub fn pop(&mut self) -> Option<(u32, F)> {
        (0..=PINS_MAX).find_map(|list| self.blocks.back(List(list))).and_then(|node| self.take(node))
    }

    /// Takes `block` out of the buffer, and returns its frame if it was here.
    pub fn remove(&mut self, block: u32) -> Option<F> {
        let node = self.blocks.find(block)?;
        self.take(node).map(|(_, frame)| frame)
    }

    fn take(&mut self, node: NodeId) -> Option<(u32, F)> {
        let frame = (*self.blocks.data(node))?;
        Some((self.blocks.remove(node), frame))
    }

    /// Number of blocks in the buffer.
    pub fn len(&self) -> usize {
        self.blocks.cached_len()
    }

    /// Whether no block is in the buffer.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of blocks that there is room for.
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
    ///
    ///     step        after it
    ///     insert 1    1
    ///     insert 2    2 1
    ///     insert 3    3 2 1
    ///     get 1       1 3 2
    ///     peek 2      1 3 2    no use
    ///     insert 4    4 1 3    2 leaves
    ///     remove 1    4 3
    ///     insert 5    5 4 3    in the free place
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

    /// Room for 4 blocks, of which 2 are pinned for pin 1. Most recently used first.
    ///
    ///     step           pin 1   others
    ///     1 to 3 by 1    3 2     1
    ///     insert 4       3 2     4 1
    ///     insert 5       3 2     5 4    1 leaves
    ///     get 4 by 1     4 3     2 5
    ///     insert 6 to 8  4 3     8 7    5, 2 and 6 leave
    ///     pin 1 of it    4       3 8 7
    #[test]
    fn what_is_pinned_makes_room_for_nobody_else() {
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
        // Where all is pinned, others keep nothing, and the pin's own oldest makes room.
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
