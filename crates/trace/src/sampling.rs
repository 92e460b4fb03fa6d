//! Spatial samples of traces: all accesses to some of the blocks, chosen by a hash of where they lie.
//!
//! Source: Waldspurger, Park, Garthwaite, Ahmad: Efficient MRC construction with SHARDS. FAST 2015, section 3, for sampling by hash; and
//! Waldspurger, Saemundsson, Ahmad, Park: Cache modeling and optimization using miniature simulations. ATC 2017, for running any policy
//! over such a sample in a cache that is as much smaller.
//!
//! Departures: where something asks how long requests are, blocks are kept or left out by groups of 64 KiB, so that requests of usual sizes and
//! streams within a group stay whole. It costs accuracy: a group is one draw, however many blocks it has. A kept access always says how long
//! its request was. The sample knows of the whole trace how many reads and writes there were up to
//! any access, and which of 64 classes each of its blocks belongs to: estimates and their errors come from those.

use flashwise_core::access::Op;
use flashwise_core::quantity::Share;

use crate::error::TraceError;

/// Bytes of a group, where blocks are kept or left out together.
const GROUP_BYTES: u64 = 64 << 10;
/// Classes that the blocks of a sample fall into, by other bits of the hash than those that choose.
pub const CLASSES: usize = 64;
/// Accesses of the whole trace from one mark to the next.
const MARK_ACCESSES: u64 = 1 << 14;

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
        // Of 2^64 hashes, as many as the share says; a real number of 1 becomes the greatest.
        let last = (self.rate * 2f64.powi(64)) as u64;
        Filter { last, salt: mix(self.seed.wrapping_add(0x9E37_79B9_7F4A_7C15)), shift: group_blocks.ilog2() }
    }
}

/// Chooses blocks by their [`BlockAddress`](crate::normalised::numbering::BlockAddress).
#[derive(Clone, Copy, Debug)]
pub struct Filter {
    last: u64,
    salt: u64,
    shift: u32,
}

/// The finaliser of splitmix64 (Steele, Lea, Flood, OOPSLA 2014): each bit of the input changes each of the output with probability one half.
#[inline]
fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

impl Filter {
    #[inline]
    fn hash(&self, address: u64) -> u64 {
        mix((address >> self.shift) ^ self.salt)
    }

    /// Whether the sample has the block at `address`.
    #[inline]
    pub fn keeps(&self, address: u64) -> bool {
        self.hash(address) <= self.last
    }

    /// The class of the block at `address`.
    #[inline]
    pub fn class(&self, address: u64) -> u8 {
        (self.hash(address) % CLASSES as u64) as u8
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
}

impl SampleNotes {
    pub fn new(sampling: Sampling, block_size_bytes: u64) -> SampleNotes {
        let filter = sampling.filter(block_size_bytes);
        SampleNotes { sampling, filter, now: Mark::default(), marks: Vec::new() }
    }

    /// This many accesses of one kind came, of which this many are in the sample.
    #[inline]
    pub fn note(&mut self, op: Op, accesses: u64, sampled: u64) {
        self.note_mixed(accesses, if op == Op::Read { accesses } else { 0 }, sampled);
    }

    /// This many accesses came, of which this many read and this many are in the sample.
    #[inline]
    pub fn note_mixed(&mut self, accesses: u64, reads: u64, sampled: u64) {
        self.now.accesses += accesses;
        self.now.reads += reads;
        self.now.sampled += sampled;
        if self.now.accesses - self.marks.last().map_or(0, |mark| mark.accesses) >= MARK_ACCESSES {
            self.marks.push(self.now);
        }
    }

    /// That none of the accesses of the trace at `path` is in the sample.
    pub fn nothing(&self, path: String) -> TraceError {
        let rate = Share::new(self.sampling.rate).unwrap_or(Share::WHOLE);
        TraceError::EmptySample { path, accesses: self.now.accesses, rate }
    }

    /// The sample, which has the blocks at these addresses.
    pub fn finish(mut self, addresses: &[u64], unique_blocks: Option<u64>) -> Sample {
        if self.marks.last() != Some(&self.now) {
            self.marks.push(self.now);
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
        }
    }
}
