//! The read buffer: clean blocks in RAM, of which the least recently used makes room.
//!
//! Source: NCache, section 3.1; the LRU policy of [`crate::policy::lru`], with a frame kept for each block.

use crate::blocks::{Blocks, List, NodeId};
use crate::index::Hashed;

/// The blocks, most recently used first.
const Q: List = List(0);

/// The clean blocks in RAM, each with its frame `F`.
///
/// Memory: 34 bytes per block for a 4-byte frame.
#[derive(Clone, Debug)]
pub struct ReadBuffer<F> {
    capacity_blocks: usize,
    /// `None` stands on the list's head alone.
    blocks: Blocks<Hashed<u32>, Option<F>>,
}

impl<F: Copy> ReadBuffer<F> {
    /// An empty buffer for `capacity_blocks`, which may be 0.
    pub fn new(capacity_blocks: usize) -> Self {
        ReadBuffer { capacity_blocks, blocks: Blocks::new(Hashed::with_capacity(capacity_blocks, 0), 1, 0) }
    }

    /// The frame of `block`, which becomes the most recently used, if it is here.
    pub fn get(&mut self, block: u32) -> Option<F> {
        let node = self.blocks.find(block)?;
        self.blocks.move_front(node, Q);
        *self.blocks.data(node)
    }

    /// The frame of `block`, if it is here; not a use.
    pub fn peek(&self, block: u32) -> Option<F> {
        *self.blocks.data(self.blocks.find(block)?)
    }

    /// Puts `block`, which must not be here, into the buffer as the most recently used. Returns the block that has to leave and
    /// its frame, which is free now: the least recently used of a full buffer, `block` itself if there is room for none.
    #[must_use = "the frame of the evicted block is free"]
    pub fn insert(&mut self, block: u32, frame: F) -> Option<(u32, F)> {
        assert!(self.blocks.find(block).is_none(), "block {block} is in the read buffer already");
        if self.capacity_blocks == 0 {
            return Some((block, frame));
        }
        let evicted = if self.len() == self.capacity_blocks { self.pop() } else { None };
        self.blocks.insert_front(Q, block, Some(frame));
        evicted
    }

    /// Takes the least recently used block out of the buffer.
    pub fn pop(&mut self) -> Option<(u32, F)> {
        self.blocks.back(Q).and_then(|node| self.take(node))
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
        self.blocks.len(Q)
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
        for block in self.blocks.keys(Q) {
            assert!(self.peek(block).is_some(), "block {block} has no frame");
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
            assert_eq!(buffer.insert(block, frame), None);
        }
        assert_eq!(buffer.get(1), Some('a'));
        assert_eq!(order(&buffer), [1, 3, 2]);
        assert_eq!(buffer.peek(2), Some('b'));
        assert_eq!(order(&buffer), [1, 3, 2]);
        assert_eq!(buffer.insert(4, 'd'), Some((2, 'b')));
        assert_eq!((buffer.get(2), buffer.peek(2)), (None, None));
        assert_eq!(buffer.remove(1), Some('a'));
        assert_eq!(buffer.remove(1), None);
        assert_eq!(buffer.insert(5, 'e'), None);
        assert_eq!(order(&buffer), [5, 4, 3]);
        buffer.check();
        assert_eq!(
            [buffer.pop(), buffer.pop(), buffer.pop(), buffer.pop()],
            [Some((3, 'c')), Some((4, 'd')), Some((5, 'e')), None]
        );
        assert!(buffer.is_empty());
        buffer.check();
    }

    #[test]
    fn a_buffer_without_room_hands_every_block_straight_back() {
        let mut buffer = ReadBuffer::new(0);
        assert_eq!(buffer.insert(7, 'a'), Some((7, 'a')));
        assert_eq!((buffer.peek(7), buffer.len()), (None, 0));
        buffer.check();
    }

    #[test]
    #[should_panic(expected = "block 7 is in the read buffer already")]
    fn a_block_has_one_frame_only() {
        let mut buffer = ReadBuffer::new(2);
        let _ = buffer.insert(7, 'a');
        let _ = buffer.insert(7, 'b');
    }
}
