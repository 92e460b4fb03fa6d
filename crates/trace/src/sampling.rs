//! Spatial samples of traces: all accesses to some of the blocks, chosen by a hash of their addresses.
//!
//! Source: Waldspurger, Park, Garthwaite, Ahmad: Efficient MRC construction with SHARDS. FAST 2015, section 3, for
//! sampling by hash. Waldspurger, Saemundsson, Ahmad, Park: Cache modeling and optimization using miniature
//! simulations. ATC 2017, for running any policy over such a sample in a proportionally smaller cache.
//!
//! Departures: the choice of blocks is random, but not independent. Of any two or more neighbours, the chosen share is
//! close to the rate, as in stratified samples (Cochran: Sampling techniques. 3rd edition, 1977, chapter 5). Neighbours
//! are accessed together; so the sample gets closer to its share of a cache's contents than with independent draws. If
//! a policy uses request lengths, blocks are chosen in groups of 64 KiB, so that usual requests and streams within a
//! group stay whole. This costs accuracy: a group is one draw, regardless of its number of blocks. A sampled access
//! always has the full length of its request. The sample also knows the number of reads and writes of the whole trace
//! up to any access. It knows the hot blocks, and the class (of 64) of each sampled block. Each class has two halves,
//! and neighbours are in different ones. Hot blocks have so many accesses that chance must not decide their hit ratio.
//! Estimates and their errors are computed from these facts.

mod hot;

use flashwise_core::access::Op;
use flashwise_core::quantity::Share;

use self::hot::{Hot, HotNotes};
use crate::error::TraceError;

/// The size of a group, whose blocks are chosen together.
const GROUP_BYTES: u64 = 64 << 10;
/// The number of classes of a sample's blocks, each with two halves. In the order of addresses, the groups of the
/// sample form pairs. Other bits of the hash than the choice select the class of a pair, and the half of each of the
/// two.
pub const CLASSES: usize = 64;
/// The number of accesses of the whole trace between two marks.
const MARK_ACCESSES: u64 = 1 << 14;
/// The number of accesses that are examined to find hot blocks.
pub(crate) const LOOK_ACCESSES: usize = 1 << 18;

/// The choice of the blocks of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    rate: f64,
    seed: u64,
    by_groups: bool,
}

impl Sampling {
    /// Chooses a share of the blocks, above 0 and up to 1; another seed chooses others. Returns `None` if the share is
    /// out of range. With one seed, the sample of a smaller rate is part of the sample of a larger one.
    pub fn new(rate: f64, seed: u64) -> Option<Sampling> {
        (rate > 0.0 && rate <= 1.0).then_some(Sampling { rate, seed, by_groups: false })
    }

    /// Returns the same choice by groups of 64 KiB.
    pub fn by_groups(self) -> Sampling {
        Sampling { by_groups: true, ..self }
    }

    /// Returns the number of bytes that are chosen together in a trace with blocks of this size.
    pub fn group_bytes(&self, block_size_bytes: u64) -> u64 {
        block_size_bytes << self.filter(block_size_bytes).shift
    }

    /// Returns the share of the blocks.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// Returns the seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the filter of a trace with blocks of this many bytes.
    pub fn filter(&self, block_size_bytes: u64) -> Filter {
        let group_blocks = if self.by_groups { (GROUP_BYTES / block_size_bytes.max(1)).max(1) } else { 1 };
        // The given share of the 2^64 ranks; a share of 1 saturates to the greatest.
        let last = (self.rate * 2f64.powi(64)) as u64;
        let salt = |number: u64| mix(self.seed.wrapping_add(number.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
        Filter { last, salts: [1, 2, 3, 4].map(salt), shift: group_blocks.ilog2() }
    }
}

/// Chooses blocks by their [`BlockAddress`](crate::normalised::numbering::BlockAddress), or groups of blocks. A block
/// is chosen if its rank, a random number, is small enough.
///
/// The first 18 binary digits of a rank come from a tree over the addresses. Of each pair of neighbours, a coin toss
/// gives one the digit 0 and the other 1. Of each pair of pairs, one gets the next digit 0, and so on. Take any 2^k
/// blocks whose addresses differ only in the last k binary digits: each 2^k-th part of the ranks contains one of them.
/// 64 neighbours take their 63 coins from one hash.
#[derive(Clone, Copy, Debug)]
pub struct Filter {
    last: u64,
    salts: [u64; TREES + 1],
    shift: u32,
}

/// The height of a tree whose coins are the bits of one hash.
const TREE_HEIGHT: u32 = u64::BITS.ilog2();
/// The number of such trees above each other.
const TREES: usize = 3;

/// The finaliser of splitmix64 (Steele, Lea, Flood, OOPSLA 2014): each input bit changes each output bit with
/// probability one half.
#[inline]
fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

impl Filter {
    /// Returns the digits that the `tree`-th tree from below gives to a group.
    #[inline]
    fn digits(&self, group: u64, tree: usize) -> u64 {
        let leaf = group >> (TREE_HEIGHT * tree as u32);
        let coins = mix((leaf >> TREE_HEIGHT) ^ self.salts[tree]);
        let leaf = leaf % u64::from(u64::BITS);
        // The pairs of each height are numbered from left to right, after those of all heights above.
        let digit =
            |height: u32| (leaf >> (height - 1) ^ coins >> ((1 << (TREE_HEIGHT - height)) + (leaf >> height))) & 1;
        (1..=TREE_HEIGHT).fold(0, |digits, height| digits << 1 | digit(height))
    }

    fn rank(&self, group: u64) -> u64 {
        let digits = (0..TREES).fold(0, |digits, tree| digits << TREE_HEIGHT | self.digits(group, tree));
        let in_trees = TREE_HEIGHT * TREES as u32;
        digits << (u64::BITS - in_trees) | self.hash(group) >> in_trees
    }

    #[inline]
    fn hash(&self, group: u64) -> u64 {
        mix(group ^ self.salts[TREES])
    }

    /// True if the sample has the block at `address`.
    #[inline]
    pub fn keeps(&self, address: u64) -> bool {
        let group = self.group(address);
        // The first digits decide in almost all cases.
        let (digits, last) = (self.digits(group, 0), self.last >> (u64::BITS - TREE_HEIGHT));
        digits < last || digits == last && self.rank(group) <= self.last
    }

    /// Returns twice the class, plus the half, of the group at `at` of the sorted `groups` of a sample.
    fn class_and_half(&self, groups: &[u64], at: usize) -> u8 {
        let hash = self.hash(groups[at & !1]);
        ((hash % CLASSES as u64) << 1 | (hash >> 32 ^ at as u64) & 1) as u8
    }

    /// Returns the group of the block at `address`.
    #[inline]
    pub fn group(&self, address: u64) -> u64 {
        address >> self.shift
    }

    /// Returns the last address in the group of `address`.
    #[inline]
    pub fn group_end(&self, address: u64) -> u64 {
        address | ((1 << self.shift) - 1)
    }
}

/// The number of reads and writes up to an access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mark {
    /// Accesses of the whole trace.
    accesses: u64,
    /// Reads of the whole trace.
    reads: u64,
    /// Accesses in the sample.
    sampled: u64,
    /// Hot accesses of the whole trace, by [`Op`].
    hot: [u64; 2],
}

/// A sample and the facts about the trace that it was taken from.
#[derive(Clone, Debug)]
pub struct Sample {
    sampling: Sampling,
    unique_blocks: Option<u64>,
    /// From the beginning to the end of the trace, in steps of about [`MARK_ACCESSES`].
    marks: Vec<Mark>,
    /// By block id.
    classes: Vec<u8>,
    groups: u64,
    /// The mean number of sampled blocks in the group of a sampled block.
    group_blocks: f64,
    hot: Hot,
}

impl Sample {
    /// Returns the choice of its blocks.
    pub fn sampling(&self) -> Sampling {
        self.sampling
    }

    /// Returns the number of block accesses of the whole trace.
    pub fn accesses(&self) -> u64 {
        self.marks.last().map_or(0, |mark| mark.accesses)
    }

    /// Returns the number of distinct blocks of the whole trace, if they were counted.
    pub fn unique_blocks(&self) -> Option<u64> {
        self.unique_blocks
    }

    /// Returns twice the class of each block, plus its half, by id.
    pub fn classes(&self) -> &[u8] {
        &self.classes
    }

    /// Returns the number of groups in the sample.
    pub fn groups(&self) -> u64 {
        self.groups
    }

    /// Scales a cache size from the whole trace to the sample.
    pub fn capacity_blocks(&self, capacity_blocks: usize) -> usize {
        ((capacity_blocks as f64 * self.share()).round() as usize).max(1)
    }

    /// Returns the actual share of the blocks in the sample, if known, otherwise the requested share.
    pub fn share(&self) -> f64 {
        match self.unique_blocks {
            Some(unique) if unique > 0 => self.classes.len() as f64 / unique as f64,
            _ => self.sampling.rate,
        }
    }

    /// Returns the number of groups that fit in a cache of this many sampled blocks.
    pub fn groups_of(&self, sampled_blocks: usize) -> f64 {
        sampled_blocks as f64 / self.group_blocks
    }

    /// Returns the relative error of the size of a cache of this many sampled blocks. It is the standard deviation of
    /// the number of blocks of the whole trace that the cache stands for, if groups are chosen independently.
    pub fn size_error(&self, sampled_blocks: usize) -> f64 {
        ((1.0 - self.sampling.rate) / self.groups_of(sampled_blocks.max(1))).sqrt()
    }

    /// Returns the number of sampled accesses among the first `accesses` of the whole trace.
    pub fn sampled_before(&self, accesses: u64) -> u64 {
        self.before(accesses, |mark| mark.sampled)
    }

    /// Returns the number of reads among the first `accesses` of the whole trace.
    pub fn reads_before(&self, accesses: u64) -> u64 {
        self.before(accesses, |mark| mark.reads)
    }

    /// True if the trace has hot blocks: blocks with so many accesses that estimates treat them separately.
    pub fn has_hot_blocks(&self) -> bool {
        !self.hot.is_empty()
    }

    /// True if the access at `position` of the sample is to a hot block.
    #[inline]
    pub fn is_hot(&self, position: u64) -> bool {
        self.hot.has(position)
    }

    /// Returns the number of hot accesses among the first `accesses` of the whole trace, by [`Op`].
    pub fn hot_before(&self, accesses: u64) -> [u64; 2] {
        [Op::Read, Op::Write].map(|op| self.before(accesses, |mark| mark.hot[op as usize]))
    }

    /// Returns the share of the hot accesses that LRU hits in a cache of `blocks` sampled blocks, after `warmup`
    /// accesses of the sample.
    pub fn hot_hit_ratio(&self, op: Op, blocks: usize, warmup: u64) -> f64 {
        self.hot.hit_ratio(op, blocks, warmup)
    }

    /// Returns a figure at `accesses`: exact at marks and at the end, interpolated in between.
    fn before(&self, accesses: u64, figure: impl Fn(&Mark) -> u64) -> u64 {
        let at = self.marks.partition_point(|mark| mark.accesses <= accesses);
        let start = at.checked_sub(1).map_or_else(Mark::default, |before| self.marks[before]);
        let Some(end) = self.marks.get(at) else { return figure(&start) };
        let share = (accesses - start.accesses) as f64 / (end.accesses - start.accesses) as f64;
        figure(&start) + ((figure(end) - figure(&start)) as f64 * share).round() as u64
    }
}

/// Collects facts about the whole trace while a sample is taken.
#[derive(Clone, Debug)]
pub(crate) struct SampleNotes {
    sampling: Sampling,
    pub filter: Filter,
    now: Mark,
    marks: Vec<Mark>,
    pub hot: HotNotes,
    look: Look,
}

/// Chooses the accesses to examine for hot blocks when a trace is read once: all of its beginning, then those of fewer
/// and fewer requests.
#[derive(Clone, Debug)]
struct Look {
    seen: Vec<u64>,
    /// One of this many requests is examined.
    every: u64,
    /// The number of requests before the next examined one.
    before_next: u64,
}

impl SampleNotes {
    pub fn new(sampling: Sampling, block_size_bytes: u64) -> SampleNotes {
        let look = Look { seen: Vec::new(), every: 1, before_next: 0 };
        SampleNotes {
            sampling,
            filter: sampling.filter(block_size_bytes),
            now: Mark::default(),
            marks: Vec::new(),
            hot: HotNotes::new(sampling.rate),
            look,
        }
    }

    /// Examines a request for the blocks from `first` to `last`, of a trace that is read once. Returns true once the
    /// hot blocks of the beginning are known: then the requests so far can be noted, and later ones at once.
    #[inline]
    pub fn look(&mut self, first: u64, last: u64) -> bool {
        if self.look.before_next > 0 {
            self.look.before_next -= 1;
            return false;
        }
        self.look.seen.extend(first..=last);
        let enough = self.look.seen.len() >= LOOK_ACCESSES;
        if enough {
            self.look.every *= 2;
            self.look_back();
        }
        self.look.before_next = self.look.every - 1;
        enough
    }

    /// Determines the hot blocks from the examined accesses.
    pub fn look_back(&mut self) {
        self.hot.seek(&mut self.look.seen);
        self.look.seen.clear();
    }

    /// Returns the number of accesses noted of the whole trace, and of the sample.
    pub fn noted(&self) -> (u64, u64) {
        (self.now.accesses, self.now.sampled)
    }

    /// Notes this many accesses of one kind, of them this many in the sample.
    #[inline]
    pub fn note(&mut self, op: Op, accesses: u64, sampled: u64) {
        self.note_mixed(accesses, if op == Op::Read { accesses } else { 0 }, sampled);
    }

    /// Notes this many accesses, of them this many reads and this many in the sample. The hot ones among them must be
    /// noted before.
    #[inline]
    pub fn note_mixed(&mut self, accesses: u64, reads: u64, sampled: u64) {
        self.now.accesses += accesses;
        self.now.reads += reads;
        self.now.sampled += sampled;
        if self.now.accesses - self.marks.last().map_or(0, |mark| mark.accesses) >= MARK_ACCESSES {
            self.mark();
        }
    }

    fn mark(&mut self) {
        self.marks.push(Mark { hot: self.hot.accesses(), ..self.now });
    }

    /// Returns the error that none of the accesses of the trace at `path` is in the sample.
    pub fn nothing(&self, path: String) -> TraceError {
        let rate = Share::new(self.sampling.rate).unwrap_or(Share::WHOLE);
        TraceError::EmptySample { path, accesses: self.now.accesses, rate }
    }

    /// Returns the sample with the facts about the whole trace. `addresses` are the addresses of the sampled blocks, by
    /// id.
    pub fn finish(
        mut self,
        addresses: &[u64],
        accesses: impl Iterator<Item = u32>,
        unique_blocks: Option<u64>,
    ) -> Sample {
        if self.marks.last().map_or(0, |mark| mark.accesses) != self.now.accesses {
            self.mark();
        }
        let mut groups: Vec<u64> = addresses.iter().map(|&address| self.filter.group(address)).collect();
        groups.sort_unstable();
        let lengths: Vec<u64> = groups.chunk_by(|a, b| a == b).map(|group| group.len() as u64).collect();
        let squares: u64 = lengths.iter().map(|length| length * length).sum();
        groups.dedup();
        let class = |&address: &u64| {
            let at = groups.partition_point(|&group| group < self.filter.group(address));
            self.filter.class_and_half(&groups, at)
        };
        let classes = addresses.iter().map(class).collect();
        Sample {
            sampling: self.sampling,
            unique_blocks,
            marks: self.marks,
            classes,
            groups: lengths.len() as u64,
            group_blocks: (squares as f64 / addresses.len().max(1) as f64).max(1.0),
            hot: self.hot.finish(accesses, addresses.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(rate: f64, seed: u64) -> Filter {
        Sampling::new(rate, seed).unwrap().filter(4096)
    }

    fn kept(filter: Filter, addresses: impl Iterator<Item = u64>) -> usize {
        addresses.filter(|&address| filter.keeps(address)).count()
    }

    #[test]
    fn the_chosen_share_of_neighbours_is_close_to_the_rate() {
        for seed in 0..20 {
            // One 128th of each 128, wherever they are; one 2^14th of each 2^14.
            for (digits, first) in [(7, 5 << 48), (7, 77 << 7), (14, 3 << 14), (18, 0)] {
                let filter = filter(0.5_f64.powi(digits), seed);
                let neighbours = 1_u64 << digits;
                for number in 0..5 {
                    let start = first + number * neighbours;
                    assert_eq!(kept(filter, start..start + neighbours), 1, "seed {seed}, {neighbours} from {start} on");
                }
            }
            let found = kept(filter(0.01, seed), 12_345..112_345) as f64;
            assert!((found - 1000.0).abs() < 15.0, "of 1,000 expected {found}");
        }
    }

    /// At any distance, blocks are not in the sample together more often than by chance, and each block is sampled
    /// equally often.
    #[test]
    fn blocks_that_are_no_neighbours_are_drawn_as_if_by_chance() {
        for step in [1, 2, 3, 16, 64, 128, 1000, 4096, 1 << 20, 1 << 48] {
            let (blocks, seeds) = (200_u64, 500);
            let expected = 0.01 * blocks as f64;
            let found: Vec<f64> = (0..seeds)
                .map(|seed| kept(filter(0.01, seed), (0..blocks).map(|block| 7 * step + block * step)) as f64)
                .collect();
            let mean = found.iter().sum::<f64>() / seeds as f64;
            let variance = found.iter().map(|found| (found - expected).powi(2)).sum::<f64>() / seeds as f64;
            assert!((mean / expected - 1.0).abs() < 0.15, "step {step}: {mean} of {expected}");
            assert!(variance < 1.25 * expected, "step {step}: a variance of {variance}, by chance {expected}");
        }
    }

    /// Accesses to block 1, which is hot, between those to others; the sample has blocks 2 and 3. The results are from
    /// an LRU stack by hand.
    #[test]
    fn hot_accesses_are_counted_with_their_distances() {
        let mut notes = HotNotes::new(0.5);
        notes.seek(&mut [vec![1; 8], vec![4; 7]].concat());
        assert_eq!(notes.blocks().collect::<Vec<_>>(), [1]);
        // The whole trace is 1 2 3 2 1 3 1 1; block 1 is in the sample too.
        let sample = [1, 2, 3, 2, 1, 3, 1, 1];
        for (at, &block) in sample.iter().enumerate() {
            let op = if at == 4 { Op::Write } else { Op::Read };
            notes.note(block, op, at as u64, at as u64, true);
        }
        assert_eq!(notes.accesses(), [2, 1], "the first is not known to be hot");
        let hot = notes.finish(sample.iter().map(|&block| block as u32), 4);
        assert_eq!((0..9).filter(|&at| hot.has(at)).collect::<Vec<_>>(), [4, 6, 7]);
        // The write comes after two other blocks, the reads after one and zero.
        assert_eq!([1, 2, 3].map(|blocks| hot.hit_ratio(Op::Write, blocks, 0)), [0.0, 0.0, 1.0]);
        assert_eq!([0, 1, 2].map(|blocks| hot.hit_ratio(Op::Read, blocks, 0)), [0.0, 0.5, 1.0]);
        assert_eq!(hot.hit_ratio(Op::Read, 1, 7), 1.0, "only the last");
    }

    /// With more hot accesses than are noted, the noted ones are a fair choice.
    #[test]
    fn some_of_many_hot_accesses_are_noted() {
        let mut notes = HotNotes::new(0.1);
        notes.seek(&mut [1; 8]);
        // Between two accesses to the hot block the sample has one or two others, alternating.
        let (mut sample, mut at) = (Vec::new(), 0);
        for number in 0..400_000_u32 {
            notes.note(1, Op::Read, at, sample.len() as u64, false);
            sample.extend((0..1 + number % 2).map(|other| (number + other) % 7));
            at += 3;
        }
        assert_eq!(notes.accesses(), [399_999, 0]);
        let hot = notes.finish(sample.into_iter(), 7);
        assert!((hot.hit_ratio(Op::Read, 2, 0) - 0.5).abs() < 0.01);
        assert_eq!((hot.hit_ratio(Op::Read, 1, 0), hot.hit_ratio(Op::Read, 3, 0)), (0.0, 1.0));
    }
}
