//! A write buffer: blocks in RAM until they fill whole erase units.
//!
//! Source: Cheng et al., USENIX ATC 2016, section 4.1, "In-RAM Write Buffer".

use flashwise_core::prefetch::prefetch;
pub(super) use flashwise_core::step::Cause;

/// A block in the write buffer.
#[derive(Clone, Copy, Debug)]
struct BufferedBlock {
    block: u32,
    /// The time when it leaves the cache.
    leaves: u32,
    cause: Cause,
}

/// The write buffer, which has each block once. Memory: 4 bytes for each block of the trace, 12 for each in the buffer.
#[derive(Debug)]
pub(super) struct UnitBuffer {
    waiting: Vec<Option<BufferedBlock>>,
    /// 1 + the position of each block in `waiting`, or 0.
    place_of: Vec<u32>,
    len: usize,
    capacity: usize,
}

impl UnitBuffer {
    /// Returns an empty buffer for `capacity` of the blocks `0..unique_blocks`.
    pub(super) fn new(unique_blocks: usize, capacity: usize) -> UnitBuffer {
        UnitBuffer { waiting: Vec::with_capacity(2 * capacity), place_of: vec![0; unique_blocks], len: 0, capacity }
    }

    pub(super) fn is_full(&self) -> bool {
        self.len == self.capacity
    }

    #[inline]
    pub(super) fn contains(&self, block: u32) -> bool {
        self.place_of[block as usize] != 0
    }

    #[inline]
    pub(super) fn prefetch(&self, block: u32) {
        prefetch(&self.place_of, block as usize);
    }

    /// Adds `block`, which must not be in the buffer.
    #[inline]
    pub(super) fn push(&mut self, block: u32, leaves: u32, cause: Cause) {
        assert!(self.len < self.capacity, "a full write buffer is written");
        if self.waiting.len() == 2 * self.capacity {
            self.close_gaps();
        }
        debug_assert!(!self.contains(block), "block {block} is in the write buffer");
        self.waiting.push(Some(BufferedBlock { block, leaves, cause }));
        self.place_of[block as usize] = self.waiting.len() as u32;
        self.len += 1;
    }

    /// Removes `block`; returns true if it was there. The others stay in order.
    #[inline]
    pub(super) fn remove(&mut self, block: u32) -> bool {
        let place = std::mem::take(&mut self.place_of[block as usize]);
        if place == 0 {
            return false;
        }
        self.waiting[place as usize - 1] = None;
        self.len -= 1;
        true
    }

    fn close_gaps(&mut self) {
        self.waiting.retain(Option::is_some);
        for (place, waiting) in (1..).zip(self.waiting.iter().flatten()) {
            self.place_of[waiting.block as usize] = place;
        }
    }

    /// Sorts the blocks by the time when they leave. Positions are unknown until the buffer is cleared.
    pub(super) fn sort_by_leaving(&mut self) {
        self.waiting.retain(Option::is_some);
        self.waiting.sort_unstable_by_key(|waiting| waiting.map(|waiting| (waiting.leaves, waiting.block)));
    }

    /// Number of blocks by cause.
    pub(super) fn causes(&self) -> [u64; 3] {
        let mut causes = [0; 3];
        for waiting in self.waiting.iter().flatten() {
            causes[waiting.cause as usize] += 1;
        }
        causes
    }

    /// Returns the blocks at these positions.
    pub(super) fn blocks(&self, places: std::ops::Range<usize>) -> impl Iterator<Item = u32> {
        self.waiting.iter().flatten().skip(places.start).take(places.len()).map(|waiting| waiting.block)
    }

    /// Empties the buffer.
    pub(super) fn clear(&mut self) {
        for waiting in self.waiting.drain(..).flatten() {
            self.place_of[waiting.block as usize] = 0;
        }
        self.len = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_wait_in_the_order_in_which_they_came_or_leave() {
        let mut buffer = UnitBuffer::new(10, 4);
        for (block, leaves) in [(7, 30), (3, 10), (5, 20), (9, 40)] {
            buffer.push(block, leaves, Cause::Client);
        }
        assert!(buffer.is_full() && buffer.remove(3) && !buffer.remove(3) && !buffer.is_full());
        buffer.push(1, 15, Cause::CopyForward);
        assert_eq!(buffer.blocks(0..4).collect::<Vec<_>>(), [7, 5, 9, 1]);
        assert_eq!(buffer.causes(), [3, 0, 1]);
        buffer.sort_by_leaving();
        assert_eq!(buffer.blocks(0..2).collect::<Vec<_>>(), [1, 5]);
        assert_eq!(buffer.blocks(2..4).collect::<Vec<_>>(), [7, 9]);
        buffer.clear();
        assert!((0..10).all(|block| !buffer.contains(block)));
    }

    #[test]
    fn blocks_that_come_and_go_take_no_room() {
        let mut buffer = UnitBuffer::new(1000, 3);
        buffer.push(999, 0, Cause::Admission);
        for block in 0..500 {
            buffer.push(block, block, Cause::Admission);
            assert!(buffer.contains(block) && buffer.contains(999));
            assert!(buffer.remove(block));
        }
        assert!(buffer.waiting.len() <= 6);
        assert_eq!(buffer.blocks(0..3).collect::<Vec<_>>(), [999]);
    }
}
