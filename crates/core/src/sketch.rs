//! TinyLFU's sketch: approximate counts of recent accesses in little memory.
//!
//! Source: Einziger, Friedman, Manes: TinyLFU: a highly efficient cache admission policy. ACM Transactions on Storage
//! 13(4), 2017, section 3: a count-min sketch with small counters, the reset (3.3) and the doorkeeper (3.4.2).
//!
//! Each block has four counters of 4 bits, one in each row. Its estimate is their minimum, which can be too large
//! because of other blocks, but never too small. After a sample of `W` accesses all counters are halved, and the sample
//! counts as half full. A doorkeeper is a Bloom filter that each reset empties. It records the first access to a block
//! in a sample; only further ones are counted.
//!
//! Departures from the paper:
//! - The four counters of a block share a cache line of 64 bytes, each in a quarter of it: one memory access. There are
//!   16 to 32 counters per block of the cache, because the number of lines is a power of two.
//! - The bits of a block in the doorkeeper share a word. It has 8 to 16 bits per access between two resets.
//! - Hashing is fixed: the same accesses give the same estimates in every run.

use std::hash::{BuildHasher, Hash};

use rustc_hash::FxBuildHasher;

use crate::prefetch::prefetch;

/// Rows of the sketch: counters per block.
const ROWS: u32 = 4;
/// The lowest bit of each of the 16 counters in a word.
const LOW_BITS: u64 = 0x1111_1111_1111_1111;
const COUNTER_MAX: u64 = 15;

/// A block's hash, which determines all its counters and bits in a [`Sketch`].
#[derive(Clone, Copy, Debug)]
pub struct BlockHash(u64);

impl BlockHash {
    /// Hashes `block`.
    #[inline]
    pub fn new<K: Hash>(block: &K) -> Self {
        BlockHash(mix(FxBuildHasher.hash_one(block)))
    }

    /// Returns a second hash for the doorkeeper: blocks that share counters should not share bits there.
    #[inline]
    fn second(self) -> Self {
        BlockHash(mix(self.0.wrapping_add(0x9E37_79B9_7F4A_7C15)))
    }
}

/// The finisher of SplitMix64: every bit of the result depends on every bit of `h`.
#[inline]
pub(crate) fn mix(mut h: u64) -> u64 {
    h = (h ^ (h >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    h = (h ^ (h >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    h ^ (h >> 31)
}

/// Words of a cache line of counters: row i has two, from 2i, with 32 counters.
const LINE_WORDS: usize = 8;

/// Approximate counts of recent accesses.
#[derive(Clone, Debug)]
pub struct Sketch {
    /// Lines of counters, from `first`, where a cache line of the processor begins. An aligned allocation would be
    /// zero-filled explicitly, and so use all of its memory at once.
    words: Vec<u64>,
    first: usize,
    /// The number of lines, a power of two.
    lines: usize,
    /// The Bloom filter; empty if disabled.
    doorkeeper: Vec<u64>,
    /// Accesses counted in this sample; those before the reset count half.
    sampled: u64,
    /// `W`: accesses in a full sample.
    sample: u64,
}

impl Sketch {
    /// Creates an empty sketch for a cache of `capacity` blocks, with a reset after every `sample` accesses.
    pub fn new(capacity: usize, sample: u64, doorkeeper: bool) -> Self {
        let lines = capacity.div_ceil(8).next_power_of_two();
        let doorkeeper_words = if doorkeeper { (sample / 2 / 8).max(1).next_power_of_two() as usize } else { 0 };
        let words = vec![0_u64; (lines + 1) * LINE_WORDS];
        let first = words.as_ptr().align_offset(LINE_WORDS * size_of::<u64>());
        Sketch { words, first, lines, doorkeeper: vec![0; doorkeeper_words], sampled: 0, sample: sample.max(2) }
    }

    /// Returns the approximate number of accesses to `block`.
    #[inline]
    pub fn estimate(&self, block: BlockHash) -> u64 {
        let line = &self.words[self.line(block)..][..LINE_WORDS];
        let counter = |row| {
            let (word, shift) = place(block, row);
            line[word] >> shift & COUNTER_MAX
        };
        let counted = (0..ROWS).map(counter).min().unwrap_or(0);
        counted + u64::from(self.in_doorkeeper(block))
    }

    /// Counts an access to `block`.
    #[inline]
    pub fn add(&mut self, block: BlockHash) {
        if self.enter(block) {
            self.count(block);
        }
        self.sampled += 1;
        if self.sampled >= self.sample {
            self.reset();
        }
    }

    /// Records `block` in the doorkeeper. Returns true if it was there before, or if there is no doorkeeper.
    #[inline]
    fn enter(&mut self, block: BlockHash) -> bool {
        if self.doorkeeper.is_empty() {
            return true;
        }
        let (word, bits) = self.doorkeeper_place(block);
        let before = self.doorkeeper[word];
        self.doorkeeper[word] |= bits;
        before & bits == bits
    }

    #[inline]
    fn count(&mut self, block: BlockHash) {
        let at = self.line(block);
        let line = &mut self.words[at..][..LINE_WORDS];
        for row in 0..ROWS {
            let (word, shift) = place(block, row);
            if line[word] >> shift & COUNTER_MAX < COUNTER_MAX {
                line[word] += 1 << shift;
            }
        }
    }

    /// Halves all counts, rounding down.
    #[cold]
    fn reset(&mut self) {
        for word in &mut self.words {
            *word = *word >> 1 & !(LOW_BITS << 3);
        }
        self.doorkeeper.fill(0);
        self.sampled /= 2;
    }

    /// Returns the first word of the block's line.
    #[inline]
    fn line(&self, block: BlockHash) -> usize {
        self.first + ((block.0 >> 32) as usize & (self.lines - 1)) * LINE_WORDS
    }

    #[inline]
    fn in_doorkeeper(&self, block: BlockHash) -> bool {
        if self.doorkeeper.is_empty() {
            return false;
        }
        let (word, bits) = self.doorkeeper_place(block);
        self.doorkeeper[word] & bits == bits
    }

    /// Returns the word of `block` in the doorkeeper, and its up to four bits there.
    #[inline]
    fn doorkeeper_place(&self, block: BlockHash) -> (usize, u64) {
        let h = block.second().0;
        let word = (h >> 32) as usize & (self.doorkeeper.len() - 1);
        (word, 1 << (h & 63) | 1 << (h >> 6 & 63) | 1 << (h >> 12 & 63) | 1 << (h >> 18 & 63))
    }

    /// Hints that `block` will be counted soon.
    #[inline]
    pub fn prefetch(&self, block: BlockHash) {
        prefetch(&self.words, self.line(block));
        if !self.doorkeeper.is_empty() {
            prefetch(&self.doorkeeper, self.doorkeeper_place(block).0);
        }
    }
}

/// Returns the position of `block`'s counter of `row` in its line: the word and the shift.
#[inline]
fn place(block: BlockHash, row: u32) -> (usize, u32) {
    let byte = (block.0 >> (8 * row)) as u32;
    ((2 * row + (byte & 1)) as usize, (byte >> 1 & 15) * 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(block: u32) -> BlockHash {
        BlockHash::new(&block)
    }

    /// Adds blocks and returns the estimates of 1, 2 and 3.
    fn add(sketch: &mut Sketch, blocks: &[u32]) -> [u64; 3] {
        blocks.iter().for_each(|&block| sketch.add(hash(block)));
        [1, 2, 3].map(|block| sketch.estimate(hash(block)))
    }

    #[test]
    fn a_full_sample_halves_all_counts_and_is_then_half_full() {
        let mut sketch = Sketch::new(100, 8, false);
        assert_eq!(add(&mut sketch, &[1, 1, 1, 1, 1, 2, 2]), [5, 2, 0]);
        // The eighth access: 6 / 2, 2 / 2.
        assert_eq!(add(&mut sketch, &[1]), [3, 1, 0]);
        assert_eq!(add(&mut sketch, &[3, 3, 3]), [3, 1, 3]);
        // The fourth after that: 3 / 2, 1 / 2, 4 / 2.
        assert_eq!(add(&mut sketch, &[3]), [1, 0, 2]);
    }

    #[test]
    fn the_doorkeeper_has_the_first_access_and_forgets_it_at_the_reset() {
        let mut sketch = Sketch::new(100, 8, true);
        assert_eq!(add(&mut sketch, &[1, 1, 1, 1, 1, 2]), [5, 1, 0]);
        assert_eq!(sketch.words.iter().map(|word| word.count_ones()).sum::<u32>(), 4, "four counters are 4");
        // The eighth access: (4 + 1) / 2 counted, nothing in the doorkeeper.
        assert_eq!(add(&mut sketch, &[1, 3]), [2, 0, 0]);
    }

    #[test]
    fn counters_stop_at_15() {
        let mut sketch = Sketch::new(100, 1000, false);
        assert_eq!(add(&mut sketch, &[1; 100]), [15, 0, 0]);
    }

    /// The worst sample: ten times as many accesses as the cache has blocks, each to another block. 9,999 blocks share
    /// 4,096 counters a row, 2.44 each. A counter has no second block with probability e^-2.44 = 0.087, one of a
    /// block's four with 1 - (1 - 0.087)^4 = 0.305.
    #[test]
    fn estimates_are_never_too_small_and_seldom_too_great() {
        let mut sketch = Sketch::new(1000, 10_000, false);
        for block in 0..9_999 {
            sketch.add(hash(block));
        }
        let estimates: Vec<_> = (0..9_999).map(|block| sketch.estimate(hash(block))).collect();
        assert!(estimates.iter().all(|&estimate| estimate >= 1));
        let right = estimates.iter().filter(|&&estimate| estimate == 1).count();
        assert!((2_900..3_200).contains(&right), "{right} of 9,999 are right");
    }

    /// Simulation results depend on these hashes.
    #[test]
    fn hashes_do_not_change() {
        assert_eq!(hash(1).0, 2_791_328_109_449_727_256);
    }
}
