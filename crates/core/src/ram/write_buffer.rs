//! The write buffer: dirty blocks in RAM, in chunks that leave as a whole, least frequently written first.
//!
//! Source: NCache, section 3.2, with the chunks of section 3.3: the 64 KiB trunk of its disks. The paper's blocks and
//! units are chunks and blocks here.
//!
//! A chunk's frequency is the number of its writes divided by the number of its written blocks. So 12 writes to two
//! blocks are 6, 12 writes to one are 12. The chunk with the lowest frequency leaves first; among equals, the one with
//! more dirty blocks. It frees more room, and small writes merge into large ones by staying.
//!
//! Departures from the paper:
//! - Among chunks of equal frequency and size the one written least recently leaves; the paper does not define this.
//! - Writes are counted from the first write to the chunk since its last eviction, because the paper counts writes "in
//!   the RAM".
//! - Counts decay by default; this can be disabled to match the paper. All frequencies are halved after each
//!   *half-life*, a number of writes given as a multiple of the buffer's blocks. In the paper's way, a chunk that was
//!   once written often stays for ever. The blocks of a database's log, written 13 times each, then fill the buffer
//!   within minutes, and no other chunk stays.
//! - The paper removes no blocks. A block removed by a trim still counts in the frequency while its chunk stays,
//!   because its writes are not counted separately. A chunk stays as long as one of its blocks is dirty.
//! - The paper does not cover flushes, or data written too often to ever leave. This buffer can be drained, and can
//!   return the chunk that has been dirty for longest.
//!
//! The priority queue is the paper's heap, implemented here. Every write moves a chunk in it, so each chunk has to know
//! its place, and comparing frequencies takes both chunks' counters. A crate's indexed heap (orx-priority-queue) would
//! hold a second copy of them as its key, and save fewer than forty lines.

use std::cmp::Ordering;

use crate::blocks::{Blocks, List, NodeId};
use crate::index::Hashed;

/// Number of blocks in a chunk: 64 KiB of 4 KiB blocks.
pub const CHUNK_BLOCKS: u32 = 16;

/// The chunks, newest first: the one at the back has been dirty for longest.
const CHUNKS: List = List(0);

/// A power of two at which weights are rescaled, far below the largest number.
const WEIGHT_MAX: f64 = (1_u128 << 100) as f64;

/// Children of a node in the heap. Four are faster than two: as many comparisons, half the cache lines.
const ARITY: usize = 4;

/// The dirty blocks of a chunk that left the buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk<F> {
    first_block: u32,
    frames: [Option<F>; CHUNK_BLOCKS as usize],
}

impl<F: Copy> Chunk<F> {
    /// Iterates over the dirty blocks with their frames, in block order.
    pub fn blocks(&self) -> impl Iterator<Item = (u32, F)> {
        let first = self.first_block;
        self.frames.iter().zip(0..).filter_map(move |(frame, unit)| frame.map(|frame| (first + unit, frame)))
    }
}

/// The state of a chunk during its stay in the buffer.
#[derive(Clone, Copy, Debug)]
struct Stay<F> {
    frames: [Option<F>; CHUNK_BLOCKS as usize],
    /// Writes to the chunk, each with its [weight](WriteBuffer::weight) at the time.
    writes: f64,
    /// The sequence number of the last write; unique among chunks.
    written_last: u64,
    /// The time of the first write.
    dirty_since_us: u64,
    /// The chunk's position in the heap.
    place: u32,
    /// A bit for each block written during the stay.
    written: u16,
    /// Number of frames.
    dirty: u8,
}

impl<F> Default for Stay<F> {
    fn default() -> Self {
        Stay {
            frames: [const { None }; CHUNK_BLOCKS as usize],
            writes: 0.0,
            written_last: 0,
            dirty_since_us: 0,
            place: 0,
            written: 0,
            dirty: 0,
        }
    }
}

impl<F> Stay<F> {
    /// Compares by order of eviction.
    fn cmp(&self, other: &Self) -> Ordering {
        let (blocks, other_blocks) = (self.written.count_ones(), other.written.count_ones());
        let frequency = (self.writes * f64::from(other_blocks)).total_cmp(&(other.writes * f64::from(blocks)));
        frequency.then(other.dirty.cmp(&self.dirty)).then(self.written_last.cmp(&other.written_last))
    }
}

/// The dirty blocks in RAM, each with its frame `F`.
///
/// Memory: 190 bytes per chunk for a 4-byte frame, 126 if it is a `NonZeroU32`; at most one chunk per block of the
/// capacity.
#[derive(Clone, Debug)]
pub struct WriteBuffer<F> {
    capacity_blocks: usize,
    /// Number of dirty blocks.
    len: usize,
    /// Number of writes so far.
    writes: u64,
    /// Writes per halving of frequencies; 0 disables it.
    half_life_writes: u64,
    /// The weight of a write. Doubling it after each half-life has the same effect as halving all earlier weights.
    weight: f64,
    /// By number: chunk n starts at block 16 n.
    chunks: Blocks<Hashed<u32>, Stay<F>>,
    /// A heap by order of eviction; the children of a node are at `ARITY * place + 1` and after.
    heap: Vec<NodeId>,
}

impl<F: Copy> WriteBuffer<F> {
    /// Creates an empty buffer for `capacity_blocks`. With 0 it is always full: nothing can be inserted, and nothing
    /// popped to make room.
    ///
    /// Frequencies are halved after every `half_life` times as many writes; 0 disables it, as in the paper.
    pub fn new(capacity_blocks: usize, half_life: u32) -> Self {
        WriteBuffer {
            capacity_blocks,
            len: 0,
            writes: 0,
            half_life_writes: u64::from(half_life) * capacity_blocks as u64,
            weight: 1.0,
            chunks: Blocks::new(Hashed::with_capacity(capacity_blocks, 0), 1, 0),
            heap: Vec::new(),
        }
    }

    /// Returns the frame of `block`, if it is here. Reads do not count.
    pub fn get(&self, block: u32) -> Option<F> {
        self.chunks.data(self.chunks.find(block / CHUNK_BLOCKS)?).frames[unit(block)]
    }

    /// Counts a write to `block` and returns its frame, if it is here. Otherwise nothing happens: the caller [makes
    /// room](Self::pop) until the buffer [is not full](Self::is_full), and [inserts](Self::insert) it.
    pub fn write(&mut self, block: u32) -> Option<F> {
        let node = self.chunks.find(block / CHUNK_BLOCKS)?;
        let frame = self.chunks.data(node).frames[unit(block)]?;
        self.count(node, block);
        Some(frame)
    }

    /// Replaces the frame of `block`, which must be here, without counting a write.
    pub fn set_frame(&mut self, block: u32, frame: F) {
        let node = self.chunks.find(block / CHUNK_BLOCKS).expect("a block whose frame is set is in the write buffer");
        self.chunks.data_mut(node).frames[unit(block)] = Some(frame);
    }

    /// Inserts `block`, which must not be here, into a buffer that is not full, and counts the write.
    pub fn insert(&mut self, block: u32, frame: F, now_us: u64) {
        let node = self.place(block, frame, now_us);
        self.count(node, block);
    }

    /// Inserts a block that left before, without counting a write, so frequencies do not decay.
    pub fn put_back(&mut self, block: u32, frame: F, now_us: u64) {
        let node = self.place(block, frame, now_us);
        self.note_write(node, block);
    }

    fn place(&mut self, block: u32, frame: F, now_us: u64) -> NodeId {
        assert!(!self.is_full(), "a write buffer of {} blocks is full", self.capacity_blocks);
        let number = block / CHUNK_BLOCKS;
        let node = self.chunks.find(number).unwrap_or_else(|| self.admit(number, now_us));
        let stay = self.chunks.data_mut(node);
        assert!(stay.frames[unit(block)].is_none(), "block {block} is in the write buffer already");
        stay.frames[unit(block)] = Some(frame);
        stay.dirty += 1;
        self.len += 1;
        node
    }

    /// Starts the stay of a chunk at the end of the heap; its first write moves it.
    fn admit(&mut self, number: u32, now_us: u64) -> NodeId {
        let place = self.heap.len() as u32;
        let node = self.chunks.insert_front(CHUNKS, number, Stay { dirty_since_us: now_us, place, ..Stay::default() });
        self.heap.push(node);
        node
    }

    fn count(&mut self, node: NodeId, block: u32) {
        self.writes += 1;
        if self.half_life_writes > 0 && self.writes.is_multiple_of(self.half_life_writes) {
            self.age();
        }
        self.note_write(node, block);
    }

    fn note_write(&mut self, node: NodeId, block: u32) {
        let weight = self.weight;
        let stay = self.chunks.data_mut(node);
        stay.writes += weight;
        stay.written_last = self.writes;
        stay.written |= 1 << unit(block);
        let place = stay.place as usize;
        self.sift(place);
    }

    /// Halves the effect of all earlier writes, by doubling the weight of later ones.
    fn age(&mut self) {
        self.weight *= 2.0;
        if self.weight < WEIGHT_MAX {
            return;
        }
        self.weight /= WEIGHT_MAX;
        for at in 0..self.heap.len() {
            self.chunks.data_mut(self.heap[at]).writes /= WEIGHT_MAX;
        }
        // Very old weights may become 0, and so equal to smaller ones.
        (0..self.heap.len()).rev().for_each(|place| self.sink(place));
    }

    /// Removes `block` without writing it back, and returns its frame if it was here.
    pub fn remove(&mut self, block: u32) -> Option<F> {
        let node = self.chunks.find(block / CHUNK_BLOCKS)?;
        let stay = self.chunks.data_mut(node);
        let frame = stay.frames[unit(block)].take()?;
        stay.dirty -= 1;
        self.len -= 1;
        let (place, dirty) = (stay.place as usize, stay.dirty);
        if dirty == 0 {
            self.leave(node);
        } else {
            self.sift(place);
        }
        Some(frame)
    }

    /// Removes the least frequently written chunk, to write it back.
    pub fn pop(&mut self) -> Option<Chunk<F>> {
        self.heap.first().copied().map(|node| self.leave(node))
    }

    /// Returns the time of the first write to the chunk that has been dirty for longest. No block has been dirty for
    /// longer.
    pub fn oldest_us(&self) -> Option<u64> {
        self.chunks.back(CHUNKS).map(|node| self.chunks.data(node).dirty_since_us)
    }

    /// Removes the chunk that has been dirty for longest, to write it back.
    pub fn pop_oldest(&mut self) -> Option<Chunk<F>> {
        self.chunks.back(CHUNKS).map(|node| self.leave(node))
    }

    /// Removes all chunks, in block order, to write them back.
    pub fn drain(&mut self) -> Vec<Chunk<F>> {
        let mut chunks: Vec<_> = std::iter::from_fn(|| self.pop_oldest()).collect();
        chunks.sort_unstable_by_key(|chunk| chunk.first_block);
        chunks
    }

    /// Ends a chunk's stay.
    fn leave(&mut self, node: NodeId) -> Chunk<F> {
        let Stay { frames, place, dirty, .. } = *self.chunks.data(node);
        let place = place as usize;
        self.heap.swap_remove(place);
        if let Some(&moved) = self.heap.get(place) {
            self.chunks.data_mut(moved).place = place as u32;
            self.sift(place);
        }
        self.len -= usize::from(dirty);
        Chunk { first_block: self.chunks.remove(node) * CHUNK_BLOCKS, frames }
    }

    /// True if the chunk at one place in the heap is evicted before the one at another.
    fn is_before(&self, place: usize, other: usize) -> bool {
        let [stay, other] = [place, other].map(|place| self.chunks.data(self.heap[place]));
        stay.cmp(other) == Ordering::Less
    }

    fn swap(&mut self, place: usize, other: usize) {
        self.heap.swap(place, other);
        for place in [place, other] {
            self.chunks.data_mut(self.heap[place]).place = place as u32;
        }
    }

    /// Moves the chunk at `place`, which changed, up or down the heap to its position.
    fn sift(&mut self, mut place: usize) {
        while place > 0 && self.is_before(place, (place - 1) / ARITY) {
            self.swap(place, (place - 1) / ARITY);
            place = (place - 1) / ARITY;
        }
        self.sink(place);
    }

    /// Moves the chunk at `place` down the heap to its position.
    fn sink(&mut self, mut place: usize) {
        loop {
            let children = (place * ARITY + 1)..(place * ARITY + 1 + ARITY).min(self.heap.len());
            let first = children.reduce(|first, child| if self.is_before(child, first) { child } else { first });
            match first {
                Some(first) if self.is_before(first, place) => self.swap(first, place),
                _ => return,
            }
            place = first.unwrap_or(place);
        }
    }

    /// Returns the number of dirty blocks.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if no block is dirty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// True if a chunk has to leave before another block can be inserted.
    pub fn is_full(&self) -> bool {
        self.len >= self.capacity_blocks
    }

    /// Returns the capacity in blocks.
    pub fn capacity_blocks(&self) -> usize {
        self.capacity_blocks
    }

    /// Iterates over the dirty blocks with their frames, newest chunk first, in block order within a chunk.
    pub fn iter(&self) -> impl Iterator<Item = (u32, F)> {
        self.chunks.keys(CHUNKS).flat_map(move |number| {
            (0..CHUNK_BLOCKS).filter_map(move |unit| {
                let block = number * CHUNK_BLOCKS + unit;
                self.get(block).map(|frame| (block, frame))
            })
        })
    }

    /// Asserts the buffer's invariants, its memory bound included. Slow; for tests.
    pub fn check(&self) {
        self.chunks.check(self.capacity_blocks);
        assert_eq!(self.heap.len(), self.chunks.len(CHUNKS), "every chunk stands in the heap");
        for (place, &node) in self.heap.iter().enumerate() {
            let number = self.chunks.key(node);
            let stay = self.chunks.data(node);
            assert_eq!(self.chunks.find(number), Some(node), "the heap holds a chunk that left");
            assert_eq!(stay.place as usize, place, "chunk {number} knows its place in the heap");
            let frames = stay.frames.iter().flatten().count();
            assert!(frames > 0, "chunk {number} has no dirty block");
            assert_eq!(usize::from(stay.dirty), frames, "the dirty blocks of chunk {number}");
            let unwritten = (0..16).filter(|unit| stay.written >> unit & 1 == 0);
            assert!(
                unwritten.into_iter().all(|unit| stay.frames[unit].is_none()),
                "chunk {number}: dirty but not written"
            );
            assert!(
                self.half_life_writes > 0 || stay.writes >= f64::from(stay.written.count_ones()),
                "chunk {number} has writes for each block"
            );
            assert!(
                place == 0 || !self.is_before(place, (place - 1) / ARITY),
                "chunk {number} leaves before its parent"
            );
        }
        assert_eq!(self.iter().count(), self.len, "dirty blocks");
        assert!(self.len <= self.capacity_blocks, "{} of {} blocks are dirty", self.len, self.capacity_blocks);
    }
}

/// Returns the position of `block` within its chunk.
fn unit(block: u32) -> usize {
    (block % CHUNK_BLOCKS) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::next as random;
    use std::cmp::Reverse;
    use std::collections::{BTreeMap, BTreeSet};
    use std::num::NonZeroU32;

    /// Writes each of `blocks` in turn, with its own number as its frame.
    fn write_all(buffer: &mut WriteBuffer<u32>, blocks: &[u32]) {
        for &block in blocks {
            match buffer.write(block) {
                Some(frame) => assert_eq!(frame, block),
                None => buffer.insert(block, block, 0),
            }
            buffer.check();
        }
    }

    /// Returns the dirty blocks of all chunks, in order of eviction.
    fn pop_all(buffer: &mut WriteBuffer<u32>) -> Vec<Vec<u32>> {
        let mut chunks = Vec::new();
        while let Some(chunk) = buffer.pop() {
            chunks.push(chunk.blocks().map(|(block, _)| block).collect());
            buffer.check();
        }
        chunks
    }

    /// Chunk A, 12 writes over blocks 3 and 4: 12 / 2 = 6. Chunk B, 12 writes to block 20: 12 / 1 = 12.
    #[test]
    fn of_two_chunks_written_12_times_the_one_with_two_blocks_written_leaves_first_as_in_the_paper() {
        let mut buffer = WriteBuffer::new(100, 0);
        for _ in 0..6 {
            write_all(&mut buffer, &[20, 3, 4, 20]);
        }
        assert_eq!(pop_all(&mut buffer), [vec![3, 4], vec![20]]);
    }

    #[test]
    fn of_equal_frequencies_the_chunk_with_more_dirty_blocks_leaves_and_then_the_one_written_least_recently() {
        let mut buffer = WriteBuffer::new(100, 0);
        // Each block once, so that every frequency is 1.
        write_all(&mut buffer, &[0, 16, 32, 33, 48]);
        assert_eq!(pop_all(&mut buffer), [vec![32, 33], vec![0], vec![16], vec![48]]);
        // Twice each: 16 was written before 0 the last time.
        write_all(&mut buffer, &[0, 16, 16, 0]);
        assert_eq!(pop_all(&mut buffer), [[16], [0]]);
    }

    /// Room for 4 blocks; chunk `a` is blocks 0 to 15, `b` from 16, `c` from 32.
    ///
    ///     step        frequencies after it
    ///     write 0     a 1/1
    ///     write 0     a 2/1
    ///     write 16    a 2/1   b 1/1
    ///     write 17    a 2/1   b 2/2
    ///     write 17    a 2/1   b 3/2
    ///     write 32    a 2/1   b 3/2   c 1/1    full
    ///     pop         a 2/1   b 3/2            c leaves
    ///     write 1     a 3/2   b 3/2            the new block lowers a
    ///     remove 17   a 3/2   b 3/2            b still counts the writes to 17
    ///     pop         b 3/2                    equal, a has more dirty blocks
    ///     write 0     b 3/2   a 1/1            a starts anew
    ///     pop         b 3/2                    a leaves
    #[test]
    fn frequencies_move_as_worked_out_by_hand() {
        let mut buffer = WriteBuffer::new(4, 0);
        let dirty = |chunk: Option<Chunk<u32>>| chunk.map(|chunk| chunk.blocks().map(|(block, _)| block).collect());
        write_all(&mut buffer, &[0, 0, 16, 17, 17, 32]);
        assert!(buffer.is_full());
        assert_eq!(dirty(buffer.pop()), Some(vec![32]));
        write_all(&mut buffer, &[1]);
        assert_eq!(buffer.remove(17), Some(17));
        assert_eq!(buffer.remove(17), None);
        buffer.check();
        assert_eq!(dirty(buffer.pop()), Some(vec![0, 1]));
        write_all(&mut buffer, &[0]);
        assert_eq!(dirty(buffer.pop()), Some(vec![0]));
        assert_eq!(dirty(buffer.pop()), Some(vec![16]));
        assert_eq!(dirty(buffer.pop()), None);
    }

    /// Room for 4 blocks and a half-life of once as many writes.
    #[test]
    fn old_frequent_writes_leave_before_recent_ones() {
        let mut buffer = WriteBuffer::new(4, 1);
        // The fourth write halves the three before it: 1.5 + 1.
        write_all(&mut buffer, &[0, 0, 0, 0, 16, 16]);
        assert_eq!(buffer.clone().pop().map(|chunk| chunk.blocks().collect()), Some(vec![(16, 16)]), "2.5 against 2");
        // The eighth halves all again: 0.5 for 32, 1.25 for 0, and 1 + 1 for 16.
        write_all(&mut buffer, &[32, 16]);
        assert_eq!(pop_all(&mut buffer), [[32], [0], [16]]);
        // As in the paper, 4 writes always outweigh 3.
        let mut buffer = WriteBuffer::new(4, 0);
        write_all(&mut buffer, &[0, 0, 0, 0, 16, 16, 32, 16]);
        assert_eq!(pop_all(&mut buffer), [[32], [16], [0]]);
    }

    #[test]
    fn a_flush_takes_everything_in_block_order_and_age_the_chunk_first_written_first() {
        let mut buffer = WriteBuffer::new(100, 0);
        for (block, now_us) in [(40, 10), (3, 20), (u32::MAX, 30), (41, 40), (2, 50)] {
            buffer.insert(block, 'x', now_us);
        }
        assert_eq!(buffer.oldest_us(), Some(10));
        assert_eq!(buffer.iter().map(|(block, _)| block).collect::<Vec<_>>(), [u32::MAX, 2, 3, 40, 41]);
        let oldest = buffer.pop_oldest().expect("it holds three chunks");
        assert_eq!(oldest.blocks().collect::<Vec<_>>(), [(40, 'x'), (41, 'x')]);
        // Another write makes a chunk no younger.
        assert_eq!(buffer.write(3), Some('x'));
        assert_eq!(buffer.oldest_us(), Some(20));
        let drained: Vec<_> = buffer.drain().iter().flat_map(Chunk::blocks).map(|(block, _)| block).collect();
        assert_eq!(drained, [2, 3, u32::MAX]);
        assert_eq!((buffer.len(), buffer.oldest_us(), buffer.pop()), (0, None, None));
        buffer.check();
    }

    #[test]
    fn a_read_does_not_count() {
        let mut buffer = WriteBuffer::new(100, 0);
        write_all(&mut buffer, &[0, 16]);
        assert_eq!([buffer.get(0), buffer.get(0), buffer.get(1), buffer.get(32)], [Some(0), Some(0), None, None]);
        assert_eq!(buffer.write(1), None);
        assert_eq!(pop_all(&mut buffer), [[0], [16]]);
    }

    #[test]
    #[should_panic(expected = "a write buffer of 1 blocks is full")]
    fn a_full_buffer_takes_no_block() {
        let mut buffer = WriteBuffer::new(1, 0);
        buffer.insert(0, 'x', 0);
        buffer.insert(1, 'x', 0);
    }

    #[test]
    fn a_chunk_takes_the_documented_memory() {
        // A node is 16 bytes more, the heap and the index have 14.
        assert_eq!((size_of::<Stay<u32>>(), size_of::<Stay<NonZeroU32>>()), (160, 96));
    }

    /// A model: the chunks in no order, searched linearly.
    #[derive(Default)]
    struct Model {
        chunks: Vec<ModelChunk>,
        writes: u64,
        half_life_writes: u64,
    }

    #[derive(Default)]
    struct ModelChunk {
        number: u32,
        frames: BTreeMap<u32, u32>,
        written: BTreeSet<u32>,
        writes: f64,
        written_last: u64,
        since_us: u64,
    }

    type Blocks = Vec<(u32, u32)>;

    impl Model {
        fn len(&self) -> usize {
            self.chunks.iter().map(|chunk| chunk.frames.len()).sum()
        }

        fn get(&self, block: u32) -> Option<u32> {
            self.chunks.iter().find_map(|chunk| chunk.frames.get(&block).copied())
        }

        fn write(&mut self, block: u32, frame: u32, now_us: u64) {
            self.writes += 1;
            if self.half_life_writes > 0 && self.writes.is_multiple_of(self.half_life_writes) {
                self.chunks.iter_mut().for_each(|chunk| chunk.writes /= 2.0);
            }
            let number = block / 16;
            if self.chunks.iter().all(|chunk| chunk.number != number) {
                self.chunks.push(ModelChunk { number, since_us: now_us, ..ModelChunk::default() });
            }
            let chunk = self.chunks.iter_mut().find(|chunk| chunk.number == number).unwrap();
            chunk.frames.insert(block, frame);
            chunk.written.insert(block);
            chunk.writes += 1.0;
            chunk.written_last = self.writes;
        }

        fn remove(&mut self, block: u32) -> Option<u32> {
            let frame = self.chunks.iter_mut().find_map(|chunk| chunk.frames.remove(&block));
            self.chunks.retain(|chunk| !chunk.frames.is_empty());
            frame
        }

        fn pop_least<K: Ord>(&mut self, key: impl Fn(&ModelChunk) -> K) -> Option<Blocks> {
            let (at, _) = self.chunks.iter().enumerate().min_by_key(|(_, chunk)| key(chunk))?;
            Some(self.chunks.remove(at).frames.into_iter().collect())
        }

        fn pop(&mut self) -> Option<Blocks> {
            // 720,720 is a multiple of every number up to 16. Positive numbers are in the order of their bits.
            let frequency =
                |chunk: &ModelChunk| (chunk.writes * f64::from(720_720 / chunk.written.len() as u32)).to_bits();
            self.pop_least(|chunk| (frequency(chunk), Reverse(chunk.frames.len()), chunk.written_last))
        }

        fn pop_oldest(&mut self) -> Option<Blocks> {
            self.pop_least(|chunk| chunk.since_us)
        }
    }

    fn compare(capacity_blocks: usize, half_life: u32, state: &mut u64) {
        let mut buffer = WriteBuffer::new(capacity_blocks, half_life);
        let half_life_writes = u64::from(half_life) * capacity_blocks as u64;
        let mut model = Model { half_life_writes, ..Model::default() };
        let blocks = |chunk: Chunk<u32>| chunk.blocks().collect::<Blocks>();
        for step in 0..20_000_u32 {
            let now_us = u64::from(step);
            // 40 chunks, up to the largest block number; some are written far more often than others.
            let hot = random(state) % 40 * (random(state) % 40) / 40;
            let block = u32::MAX - 16 * hot as u32 - (random(state) % 16) as u32;
            assert_eq!(buffer.get(block), model.get(block), "step {step}");
            match random(state) % 1000 {
                0 => {
                    let drained: Vec<_> = buffer.drain().into_iter().flat_map(blocks).collect();
                    let mut expected: Vec<_> = std::iter::from_fn(|| model.pop()).flatten().collect();
                    expected.sort_unstable();
                    assert_eq!(drained, expected, "step {step}");
                }
                1..20 => assert_eq!(buffer.pop().map(blocks), model.pop(), "step {step}"),
                20..40 => {
                    assert_eq!(buffer.oldest_us(), model.chunks.iter().map(|chunk| chunk.since_us).min());
                    assert_eq!(buffer.pop_oldest().map(blocks), model.pop_oldest(), "step {step}");
                }
                40..150 => assert_eq!(buffer.remove(block), model.remove(block), "step {step}"),
                _ => {
                    if let Some(frame) = buffer.write(block) {
                        model.write(block, frame, now_us);
                    } else {
                        while buffer.is_full() {
                            let chunk = buffer.pop().map(blocks);
                            assert!(chunk.is_some(), "step {step}: full of nothing");
                            assert_eq!(chunk, model.pop(), "step {step}");
                        }
                        buffer.insert(block, step, now_us);
                        model.write(block, step, now_us);
                    }
                }
            }
            assert_eq!(buffer.len(), model.len(), "step {step}");
            if step.is_multiple_of(8) {
                buffer.check();
            }
        }
    }

    #[test]
    fn it_matches_a_slow_and_obvious_model() {
        let mut state = 42;
        for capacity_blocks in [1, 2, 5, 16, 60, 150, 1000] {
            for half_life in [0, 1, 16] {
                compare(capacity_blocks, half_life, &mut state);
            }
        }
    }
}
