//! Hot blocks: blocks with so many accesses that it matters whether a sample contains them.
//!
//! Consider blocks that each have 1/500 as many accesses as the whole sample. A sample of 1 % contains each of them
//! with a probability of 1 %. If a trace has some hundred such blocks, the hit ratios of samples depend on which of
//! them they contain. A sample without them does not know of their existence. So accesses to them are counted in the
//! whole trace. For a random choice of these accesses, the amount of the sample accessed since the last access to the
//! same block is noted. This gives the LRU hits at any size. Estimates use it for hot accesses, and the sample for the
//! rest.
//!
//! An access is hot if its block is known as hot and was accessed shortly before. Neither depends on the contents of
//! the sample. So the rest is sampled correctly, whichever blocks are considered hot.

use std::ops::Range;

use flashwise_core::access::Op;
use rustc_hash::FxHashMap;

use super::mix;

/// The minimum number of accesses to a hot block, as a share of the sample's accesses.
const SHARE: f64 = 0.002;
/// The minimum number of examined accesses to a hot block.
const ACCESSES_MIN: usize = 8;
/// The maximum number of hot blocks.
const BLOCKS_MAX: usize = 1 << 16;
/// The maximum distance of a hot access from the previous one, in accesses of the sample.
const GAP_SAMPLED: f64 = 4096.0;
/// The maximum number of noted pairs of hot accesses.
const PAIRS_MAX: usize = 1 << 17;

/// The number of bits for each hot block.
const BITS_EACH: usize = 32;

/// Returns the position of the bit of `block`: the word, and the bit in it.
#[inline]
fn bit_of(bits: &[u64], block: u64) -> (usize, u32) {
    let hash = block.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    ((hash as usize >> 6) & (bits.len() - 1), hash as u32 & 63)
}

/// Collects hot accesses while a sample is taken. Any numbers can identify blocks.
#[derive(Clone, Debug)]
pub(crate) struct HotNotes {
    /// The share of all accesses that makes a block hot.
    share: f64,
    /// The maximum distance of a hot access from the previous one, in accesses of the whole trace.
    gap: u64,
    /// The last access to each hot block.
    last: FxHashMap<u64, Last>,
    /// A bit filter of the hot blocks, which quickly excludes most others; the number of words is a power of two.
    bits: Vec<u64>,
    /// Hot accesses so far, by [`Op`].
    accesses: [u64; 2],
    pairs: Vec<Pair>,
    /// Later pairs are noted only if their draw is at most this.
    draws: u32,
    /// A bit for each access of the sample: set for hot ones.
    sampled: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Last {
    /// The position in the whole trace; none before the first access.
    at: Option<u64>,
    /// The number of accesses of the sample up to there.
    sampled: u64,
}

/// A hot access and the previous one.
#[derive(Clone, Copy, Debug)]
struct Pair {
    op: Op,
    draw: u32,
    /// The number of accesses of the sample up to the previous access, and before this one.
    between: (u64, u64),
}

impl HotNotes {
    /// Creates an empty collection for a sample with this share of the blocks.
    pub fn new(rate: f64) -> HotNotes {
        HotNotes {
            share: SHARE * rate,
            gap: (GAP_SAMPLED / rate) as u64,
            last: FxHashMap::default(),
            bits: vec![0],
            accesses: [0; 2],
            pairs: Vec::new(),
            draws: u32::MAX,
            sampled: Vec::new(),
        }
    }

    /// Adds the hot blocks of `seen`, the blocks of some accesses, which is sorted. Blocks that were hot stay so.
    pub fn seek(&mut self, seen: &mut [u64]) {
        let least = ((self.share * seen.len() as f64).ceil() as usize).max(ACCESSES_MIN);
        seen.sort_unstable();
        let of_block = seen.chunk_by(|a, b| a == b).filter(|block| block.len() >= least);
        let mut found: Vec<(usize, u64)> = of_block.map(|block| (block.len(), block[0])).collect();
        found.sort_unstable_by(|a, b| b.cmp(a));
        for (_, block) in found {
            if self.last.len() < BLOCKS_MAX {
                self.last.entry(block).or_insert(Last { at: None, sampled: 0 });
            }
        }
        self.bits = vec![0; (self.last.len() * BITS_EACH / 64).next_power_of_two()];
        for &block in self.last.keys() {
            let (word, bit) = bit_of(&self.bits, block);
            self.bits[word] |= 1 << bit;
        }
    }

    /// Returns the hot blocks.
    pub fn blocks(&self) -> impl Iterator<Item = u64> {
        self.last.keys().copied()
    }

    /// True if there are no hot blocks.
    pub fn is_empty(&self) -> bool {
        self.last.is_empty()
    }

    /// Returns the number of hot accesses so far, by [`Op`].
    pub fn accesses(&self) -> [u64; 2] {
        self.accesses
    }

    /// Notes an access to `block` at position `at` of the whole trace. The sample has `sampled` accesses before it, and
    /// also this one if it is `kept`.
    #[inline]
    pub fn note(&mut self, block: u64, op: Op, at: u64, sampled: u64, kept: bool) {
        let (word, bit) = bit_of(&self.bits, block);
        if self.bits[word] >> bit & 1 == 1 {
            self.note_likely_hot(block, op, at, sampled, kept);
        }
    }

    fn note_likely_hot(&mut self, block: u64, op: Op, at: u64, sampled: u64, kept: bool) {
        let Some(last) = self.last.get_mut(&block) else { return };
        let before = std::mem::replace(last, Last { at: Some(at), sampled: sampled + u64::from(kept) });
        if before.at.is_some_and(|before| at - before <= self.gap) {
            self.hot(op, (before.sampled, sampled), kept);
        }
    }

    fn hot(&mut self, op: Op, between: (u64, u64), kept: bool) {
        self.accesses[op as usize] += 1;
        if kept {
            let word = (between.1 / u64::from(u64::BITS)) as usize;
            if self.sampled.len() <= word {
                self.sampled.resize(word + 1, 0);
            }
            self.sampled[word] |= 1 << (between.1 % u64::from(u64::BITS));
        }
        let draw = (mix(self.accesses[0] + self.accesses[1]) >> 32) as u32;
        if draw > self.draws {
            return;
        }
        if self.pairs.len() == PAIRS_MAX {
            self.draws /= 2;
            self.pairs.retain(|pair| pair.draw <= self.draws);
        }
        if draw <= self.draws {
            self.pairs.push(Pair { op, draw, between });
        }
    }

    /// Returns the hot accesses with their distances. `sample` are the blocks of the sample's accesses.
    pub fn finish(self, sample: impl Iterator<Item = u32>, unique_blocks: usize) -> Hot {
        if self.pairs.is_empty() {
            return Hot::default();
        }
        // For each access of the sample, the distance to the previous access to the same block, saturated.
        let mut last_of = vec![None; unique_blocks];
        let back = |(at, block): (usize, u32)| {
            let before: Option<usize> = last_of[block as usize].replace(at);
            before.map_or(u32::MAX, |before| u32::try_from(at - before).unwrap_or(u32::MAX))
        };
        let back: Vec<u32> = sample.enumerate().map(back).collect();
        // The distinct blocks between the two accesses are those whose previous access is before both.
        let distance = |Range { start, end }: Range<usize>| {
            back[start..end].iter().enumerate().filter(|&(since, &back)| back as usize > since).count() as u64
        };
        let of_pair = |pair: &Pair| HotAccess {
            op: pair.op,
            at: pair.between.1,
            distance: distance(pair.between.0 as usize..pair.between.1 as usize),
        };
        Hot { accesses: self.pairs.iter().map(of_pair).collect(), sampled: self.sampled }
    }
}

/// A hot access.
#[derive(Clone, Copy, Debug)]
struct HotAccess {
    op: Op,
    /// The number of accesses of the sample before it.
    at: u64,
    /// The number of distinct sampled blocks accessed since the previous access.
    distance: u64,
}

/// The hot accesses of a trace: some of all, and the sampled ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hot {
    accesses: Vec<HotAccess>,
    /// A bit for each access of the sample: set for hot ones.
    sampled: Vec<u64>,
}

impl Hot {
    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.accesses.is_empty()
    }

    /// True if the access at `position` of the sample is hot.
    #[inline]
    pub fn has(&self, position: u64) -> bool {
        let word = self.sampled.get((position / u64::from(u64::BITS)) as usize);
        word.is_some_and(|word| word >> (position % u64::from(u64::BITS)) & 1 == 1)
    }

    /// Returns the share of the hot accesses with `op` that LRU hits in a cache of `blocks` sampled blocks. Accesses
    /// before `start` of the sample do not count.
    pub fn hit_ratio(&self, op: Op, blocks: usize, start: u64) -> f64 {
        let (mut hits, mut accesses) = (0_u64, 0_u64);
        for access in self.accesses.iter().filter(|access| access.op == op && access.at >= start) {
            accesses += 1;
            hits += u64::from(access.distance < blocks as u64);
        }
        if accesses == 0 { 0.0 } else { hits as f64 / accesses as f64 }
    }
}
