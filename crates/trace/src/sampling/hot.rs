//! Blocks that are accessed so often that it matters whether a sample has one of them.
//!
//! One block with a five-hundredth of as many accesses as all of the sample, and a sample of a hundredth has each with a chance of one in a hundred:
//! where a trace has some hundred of these, hit ratios of samples differ by which of them they have, and a sample that has none does not
//! know that there are any. So accesses to them are counted in all of the trace, and a random choice of them notes how much of the sample
//! was accessed since the last access to the same block. From that comes how many of them LRU would hit at any size. Estimates take these
//! from there, and the rest from the sample.
//!
//! An access is hot where its block is known as hot and was accessed shortly before. Neither depends on what the sample has, so that
//! what is left is sampled as before, whichever blocks are taken for hot.

use std::ops::Range;

use flashwise_core::access::Op;
use rustc_hash::FxHashMap;

use super::mix;

/// A block is hot that has at least this share of as many accesses as the sample.
const SHARE: f64 = 0.002;
/// And of the accesses that were looked at, at least this many.
const ACCESSES_MIN: usize = 8;
/// Blocks that are taken for hot at most.
const BLOCKS_MAX: usize = 1 << 16;
/// A hot access comes at most as long after the one before as this many accesses of the sample.
const GAP_SAMPLED: f64 = 4096.0;
/// Hot accesses of which it is noted how much was accessed since the one before, at most.
const PAIRS_MAX: usize = 1 << 17;

/// Bits for each hot block.
const BITS_EACH: usize = 32;

/// Where the bit of `block` is: the word, and its place there.
#[inline]
fn bit_of(bits: &[u64], block: u64) -> (usize, u32) {
    let hash = block.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    ((hash as usize >> 6) & (bits.len() - 1), hash as u32 & 63)
}

/// Takes notes of hot accesses while a sample is taken. Blocks are known by any numbers.
#[derive(Clone, Debug)]
pub(crate) struct HotNotes {
    /// The share of all accesses that makes a block hot.
    share: f64,
    /// How many accesses of the whole trace lie between a hot access and the one before, at most.
    gap: u64,
    /// The last access to each hot block.
    last: FxHashMap<u64, Last>,
    /// Bits of which each hot block has one, so that most others are known not to be hot at once; a power of two of words.
    bits: Vec<u64>,
    /// Hot accesses so far, by [`Op`].
    accesses: [u64; 2],
    pairs: Vec<Pair>,
    /// Of the pairs to come, those are noted whose draw is no larger.
    draws: u32,
    /// A bit for each access of the sample.
    sampled: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Last {
    /// Where it is in the whole trace; none before the first.
    at: Option<u64>,
    /// How many accesses the sample has up to there.
    sampled: u64,
}

/// A hot access and the one before.
#[derive(Clone, Copy, Debug)]
struct Pair {
    op: Op,
    draw: u32,
    /// How many accesses the sample has up to the one before, and before this one.
    between: (u64, u64),
}

impl HotNotes {
    /// Of a sample of such a share of the blocks.
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

    /// From now on blocks are hot that make up so large a part of `seen`, the blocks of some accesses, which is sorted. Those that were stay.
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

    /// The blocks that are known as hot.
    pub fn blocks(&self) -> impl Iterator<Item = u64> {
        self.last.keys().copied()
    }

    /// Whether no block is.
    pub fn is_empty(&self) -> bool {
        self.last.is_empty()
    }

    /// Hot accesses so far, by [`Op`].
    pub fn accesses(&self) -> [u64; 2] {
        self.accesses
    }

    /// An access to `block`, the one at `at` of the whole trace; the sample has `sampled` before it, and it too if it is `kept`.
    #[inline]
    pub fn note(&mut self, block: u64, op: Op, at: u64, sampled: u64, kept: bool) {
        let (word, bit) = bit_of(&self.bits, block);
        if self.bits[word] >> bit & 1 == 1 {
            self.note_known(block, op, at, sampled, kept);
        }
    }

    fn note_known(&mut self, block: u64, op: Op, at: u64, sampled: u64, kept: bool) {
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

    /// What is known of them in the end, where the sample has the blocks of these accesses.
    pub fn finish(self, sample: impl Iterator<Item = u32>, unique_blocks: usize) -> Hot {
        if self.pairs.is_empty() {
            return Hot::default();
        }
        // For each access of the sample how many accesses before the one to the same block was; what is far away may be as far as it likes.
        let mut last_of = vec![None; unique_blocks];
        let back = |(at, block): (usize, u32)| {
            let before: Option<usize> = last_of[block as usize].replace(at);
            before.map_or(u32::MAX, |before| u32::try_from(at - before).unwrap_or(u32::MAX))
        };
        let back: Vec<u32> = sample.enumerate().map(back).collect();
        // Different blocks between the two accesses are those whose access before lies before both.
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
    /// How many accesses the sample has before it.
    at: u64,
    /// Different blocks of the sample that were accessed since the access before.
    distance: u64,
}

/// Hot accesses of a trace: some of all, and those that the sample has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hot {
    accesses: Vec<HotAccess>,
    /// A bit for each access of the sample.
    sampled: Vec<u64>,
}

impl Hot {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.accesses.is_empty()
    }

    /// Whether the access at `position` of the sample is one.
    #[inline]
    pub fn has(&self, position: u64) -> bool {
        let word = self.sampled.get((position / u64::from(u64::BITS)) as usize);
        word.is_some_and(|word| word >> (position % u64::from(u64::BITS)) & 1 == 1)
    }

    /// The share of those of one kind that LRU hits in a cache of `blocks` sampled blocks, from the access at `start` of the sample on.
    pub fn hit_ratio(&self, op: Op, blocks: usize, start: u64) -> f64 {
        let (mut hits, mut accesses) = (0_u64, 0_u64);
        for access in self.accesses.iter().filter(|access| access.op == op && access.at >= start) {
            accesses += 1;
            hits += u64::from(access.distance < blocks as u64);
        }
        if accesses == 0 { 0.0 } else { hits as f64 / accesses as f64 }
    }
}
