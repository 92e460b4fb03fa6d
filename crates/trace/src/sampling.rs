//! Spatial samples of traces: all accesses to some of the blocks, chosen by a hash of where they lie.
//!
//! Source: Waldspurger, Park, Garthwaite, Ahmad: Efficient MRC construction with SHARDS. FAST 2015, section 3, for sampling by hash; and
//! Waldspurger, Saemundsson, Ahmad, Park: Cache modeling and optimization using miniature simulations. ATC 2017, for running any policy
//! over such a sample in a cache that is as much smaller.
//!
//! Departures: which blocks are chosen is random, but not independent: of neighbours about as many are chosen as the share says, from any two of
//! them on, as in stratified samples (Cochran: Sampling techniques. 3rd edition, 1977, chapter 5). Blocks that lie together are accessed
//! together, so that whatever a cache holds, the sample has more nearly its share of it than if each block were drawn by itself. Where
//! something asks how long requests are, blocks are kept or left out by groups of 64 KiB, so that requests of usual sizes and
//! streams within a group stay whole. It costs accuracy: a group is one draw, however many blocks it has. A kept access always says how long
//! its request was. The sample knows of the whole trace how many reads and writes there were up to
//! any access, which of 64 classes each of its blocks belongs to, and of blocks that are accessed so often that chance must not decide
//! about them how all accesses to them fare: estimates and their errors come from those.

mod hot;

use flashwise_core::access::Op;
use flashwise_core::quantity::Share;

use self::hot::{Hot, HotNotes};
use crate::error::TraceError;

/// Bytes of a group, where blocks are kept or left out together.
const GROUP_BYTES: u64 = 64 << 10;
/// Classes that the blocks of a sample fall into, by other bits of the hash than those that choose.
pub const CLASSES: usize = 64;
/// Accesses of the whole trace from one mark to the next.
const MARK_ACCESSES: u64 = 1 << 14;
/// Accesses that are looked at to find hot blocks.
pub(crate) const LOOK_ACCESSES: usize = 1 << 18;

/// Which blocks a sample has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    rate: f64,
    seed: u64,
    by_groups: bool,
}

impl Sampling {
    /// A share of the blocks, above 0 and up to 1; another seed chooses others. None where there is no such share. Of two rates with one
    /// seed, the smaller one's sample is a part of the larger one's.
    pub fn new(rate: f64, seed: u64) -> Option<Sampling> {
        (rate > 0.0 && rate <= 1.0).then_some(Sampling { rate, seed, by_groups: false })
    }

    /// The same, by groups of 64 KiB.
    pub fn by_groups(self) -> Sampling {
        Sampling { by_groups: true, ..self }
    }

    /// Bytes that are kept or left out together, of a trace with blocks of this many bytes.
    pub fn group_bytes(&self, block_size_bytes: u64) -> u64 {
        block_size_bytes << self.filter(block_size_bytes).shift
    }

    /// The share of the blocks.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The filter of a trace with blocks of this many bytes.
    pub fn filter(&self, block_size_bytes: u64) -> Filter {
        let group_blocks = if self.by_groups { (GROUP_BYTES / block_size_bytes.max(1)).max(1) } else { 1 };
        // Of 2^64 ranks, as many as the share says; a real number of 1 becomes the greatest.
        let last = (self.rate * 2f64.powi(64)) as u64;
        let salt = |number: u64| mix(self.seed.wrapping_add(number.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
        Filter { last, salts: [1, 2, 3, 4].map(salt), shift: group_blocks.ilog2() }
    }
}

/// Chooses blocks by their [`BlockAddress`](crate::normalised::numbering::BlockAddress), or groups of them: those whose rank, a number that is random
/// for each of them, is small enough.
///
/// The first 18 binary digits of ranks are those of a tree over the addresses: of each pair of neighbours one has the digit 0, by a toss of a
/// coin, and the other 1; of each pair of pairs one has the next digit 0, and so on. So of any 2^k blocks with the same address but for the last k binary
/// digits, one is among each 2^k-th part of all ranks. 64 neighbours take their 63 coins from one hash.
#[derive(Clone, Copy, Debug)]
pub struct Filter {
    last: u64,
    salts: [u64; TREES + 1],
    shift: u32,
}

/// The height of a tree whose coins are the bits of one hash.
const TREE_HEIGHT: u32 = u64::BITS.ilog2();
/// How many such trees lie above each other.
const TREES: usize = 3;

/// The finaliser of splitmix64 (Steele, Lea, Flood, OOPSLA 2014): each bit of the input changes each of the output with probability one half.
#[inline]
fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

impl Filter {
    /// The digits that the `tree`-th tree from below gives to a group.
    #[inline]
    fn digits(&self, group: u64, tree: usize) -> u64 {
        let leaf = group >> (TREE_HEIGHT * tree as u32);
        let coins = mix((leaf >> TREE_HEIGHT) ^ self.salts[tree]);
        let leaf = leaf % u64::from(u64::BITS);
        // The pairs of each height are numbered from left to right, after those of all above.
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

    /// Whether the sample has the block at `address`.
    #[inline]
    pub fn keeps(&self, address: u64) -> bool {
        let group = self.group(address);
        // The first digits decide but for few.
        let (digits, last) = (self.digits(group, 0), self.last >> (u64::BITS - TREE_HEIGHT));
        digits < last || digits == last && self.rank(group) <= self.last
    }

    /// The class of the block at `address`.
    #[inline]
    pub fn class(&self, address: u64) -> u8 {
        (self.hash(self.group(address)) % CLASSES as u64) as u8
    }

    /// The group that the block at `address` is in.
    #[inline]
    pub fn group(&self, address: u64) -> u64 {
        address >> self.shift
    }

    /// The last address of the group that `address` is in.
    #[inline]
    pub fn group_end(&self, address: u64) -> u64 {
        address | ((1 << self.shift) - 1)
    }
}

/// Reads and writes up to an access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mark {
    /// Accesses of the whole trace.
    accesses: u64,
    /// Those of the whole trace that read.
    reads: u64,
    /// Those that the sample has.
    sampled: u64,
    /// Hot ones of the whole trace, by [`Op`].
    hot: [u64; 2],
}

/// What a sample knows of the trace that it was taken from.
#[derive(Clone, Debug)]
pub struct Sample {
    sampling: Sampling,
    unique_blocks: Option<u64>,
    /// From the beginning to the end of the trace, in steps of about [`MARK_ACCESSES`].
    marks: Vec<Mark>,
    /// By block id.
    classes: Vec<u8>,
    groups: u64,
    /// Mean number of sampled blocks in the group of a sampled block.
    group_blocks: f64,
    hot: Hot,
}

impl Sample {
    /// Which blocks it has.
    pub fn sampling(&self) -> Sampling {
        self.sampling
    }

    /// Block accesses of the whole trace.
    pub fn accesses(&self) -> u64 {
        self.marks.last().map_or(0, |mark| mark.accesses)
    }

    /// Different blocks of the whole trace, where they were counted.
    pub fn unique_blocks(&self) -> Option<u64> {
        self.unique_blocks
    }

    /// The class of each block, by id.
    pub fn classes(&self) -> &[u8] {
        &self.classes
    }

    /// Groups of blocks in the sample.
    pub fn groups(&self) -> u64 {
        self.groups
    }

    /// The size of a cache that is to the sample what one of `capacity_blocks` is to the whole trace.
    pub fn capacity_blocks(&self, capacity_blocks: usize) -> usize {
        ((capacity_blocks as f64 * self.share()).round() as usize).max(1)
    }

    /// The share of the blocks that the sample really has, where that is known, else the share that was asked for.
    pub fn share(&self) -> f64 {
        match self.unique_blocks {
            Some(unique) if unique > 0 => self.classes.len() as f64 / unique as f64,
            _ => self.sampling.rate,
        }
    }

    /// Groups of blocks that fit in a cache of this many sampled blocks.
    pub fn groups_of(&self, sampled_blocks: usize) -> f64 {
        sampled_blocks as f64 / self.group_blocks
    }

    /// By how much the size of a cache of this many sampled blocks errs, as a share of it: the standard deviation of how many blocks of the
    /// whole trace it stands for, if each group is in the sample or not independently of the others.
    pub fn size_error(&self, sampled_blocks: usize) -> f64 {
        ((1.0 - self.sampling.rate) / self.groups_of(sampled_blocks.max(1))).sqrt()
    }

    /// How many of the first `accesses` of the whole trace the sample has.
    pub fn sampled_before(&self, accesses: u64) -> u64 {
        self.before(accesses, |mark| mark.sampled)
    }

    /// How many of the first `accesses` of the whole trace read.
    pub fn reads_before(&self, accesses: u64) -> u64 {
        self.before(accesses, |mark| mark.reads)
    }

    /// Whether the trace has blocks that are accessed so often that estimates take accesses to them apart: hot ones.
    pub fn has_hot_blocks(&self) -> bool {
        !self.hot.is_empty()
    }

    /// Whether the access at `position` of the sample is to a hot block.
    #[inline]
    pub fn is_hot(&self, position: u64) -> bool {
        self.hot.has(position)
    }

    /// How many of the first `accesses` of the whole trace are to hot blocks, by [`Op`].
    pub fn hot_before(&self, accesses: u64) -> [u64; 2] {
        [Op::Read, Op::Write].map(|op| self.before(accesses, |mark| mark.hot[op as usize]))
    }

    /// The share of the accesses to hot blocks that LRU hits in a cache of `blocks` sampled blocks, after as many of the sample as `warmup`.
    pub fn hot_hit_ratio(&self, op: Op, blocks: usize, warmup: u64) -> f64 {
        self.hot.hit_ratio(op, blocks, warmup)
    }

    /// A figure at `accesses`: exact at marks and at the end, between two in proportion.
    fn before(&self, accesses: u64, figure: impl Fn(&Mark) -> u64) -> u64 {
        let at = self.marks.partition_point(|mark| mark.accesses <= accesses);
        let start = at.checked_sub(1).map_or_else(Mark::default, |before| self.marks[before]);
        let Some(end) = self.marks.get(at) else { return figure(&start) };
        let share = (accesses - start.accesses) as f64 / (end.accesses - start.accesses) as f64;
        figure(&start) + ((figure(end) - figure(&start)) as f64 * share).round() as u64
    }
}

/// Takes notes of the whole trace while a sample is taken.
#[derive(Clone, Debug)]
pub(crate) struct SampleNotes {
    sampling: Sampling,
    pub filter: Filter,
    now: Mark,
    marks: Vec<Mark>,
    pub hot: HotNotes,
    look: Look,
}

/// Which accesses are looked at to find hot blocks where a trace is read once: all of its beginning, then those of fewer and fewer requests.
#[derive(Clone, Debug)]
struct Look {
    seen: Vec<u64>,
    /// How many requests there are for each that is looked at.
    every: u64,
    /// How many come before the next that is.
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

    /// A request for the blocks from `first` to `last` comes, of a trace that is read once. Returns whether now is known what is hot in the beginning:
    /// then what came so far can be noted, and what comes from now on, at once.
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

    /// Takes for hot what is hot in what was looked at.
    pub fn look_back(&mut self) {
        self.hot.seek(&mut self.look.seen);
        self.look.seen.clear();
    }

    /// How many accesses were noted of the whole trace, and how many of these the sample has.
    pub fn noted(&self) -> (u64, u64) {
        (self.now.accesses, self.now.sampled)
    }

    /// This many accesses of one kind came, of which this many are in the sample.
    #[inline]
    pub fn note(&mut self, op: Op, accesses: u64, sampled: u64) {
        self.note_mixed(accesses, if op == Op::Read { accesses } else { 0 }, sampled);
    }

    /// This many accesses came, of which this many read and this many are in the sample. Hot ones among them have been noted.
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

    /// That none of the accesses of the trace at `path` is in the sample.
    pub fn nothing(&self, path: String) -> TraceError {
        let rate = Share::new(self.sampling.rate).unwrap_or(Share::WHOLE);
        TraceError::EmptySample { path, accesses: self.now.accesses, rate }
    }

    /// What is known of the whole trace besides its sampled accesses, which are to these blocks, numbered as their addresses are.
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
        Sample {
            sampling: self.sampling,
            unique_blocks,
            marks: self.marks,
            classes: addresses.iter().map(|&address| self.filter.class(address)).collect(),
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
    fn of_neighbours_about_as_many_are_chosen_as_the_share_says() {
        for seed in 0..20 {
            // A 128th of each 128, wherever they are; a 2^14th of each 2^14.
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

    /// Whatever lies between them, blocks are not in the sample together more often than by chance, and each is in it as often as another.
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

    /// Accesses to block 1, which is hot, between those to others, of which the sample has blocks 2 and 3; told with a stack by hand.
    #[test]
    fn hot_accesses_are_counted_and_know_what_lies_between() {
        let mut notes = HotNotes::new(0.5);
        notes.seek(&mut [vec![1; 8], vec![4; 7]].concat());
        assert_eq!(notes.blocks().collect::<Vec<_>>(), [1]);
        // Whole trace: 1 2 3 2 1 3 1 1, of which 1 is in the sample too.
        let sample = [1, 2, 3, 2, 1, 3, 1, 1];
        for (at, &block) in sample.iter().enumerate() {
            let op = if at == 4 { Op::Write } else { Op::Read };
            notes.note(block, op, at as u64, at as u64, true);
        }
        assert_eq!(notes.accesses(), [2, 1], "the first is not known to be hot");
        let hot = notes.finish(sample.iter().map(|&block| block as u32), 4);
        assert_eq!((0..9).filter(|&at| hot.has(at)).collect::<Vec<_>>(), [4, 6, 7]);
        // The write comes after two other blocks, the reads after one and none.
        assert_eq!([1, 2, 3].map(|blocks| hot.hit_ratio(Op::Write, blocks, 0)), [0.0, 0.0, 1.0]);
        assert_eq!([0, 1, 2].map(|blocks| hot.hit_ratio(Op::Read, blocks, 0)), [0.0, 0.5, 1.0]);
        assert_eq!(hot.hit_ratio(Op::Read, 1, 7), 1.0, "the last alone");
    }

    /// More hot accesses than are noted: those that are noted are a fair choice.
    #[test]
    fn of_many_hot_accesses_some_are_noted() {
        let mut notes = HotNotes::new(0.1);
        notes.seek(&mut [1; 8]);
        // Between two accesses to the hot block the sample has one or two others, in turn.
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
