//! Shadow caches: small caches without data that see a sample of the blocks and tell what the cache would do with other settings.
//!
//! Source: Moon, Reddy: Adaptive policies for balancing performance and lifetime of mixed SSD arrays through workload
//! sampling. MSST 2016, section V.B and Figure 6; the sample and its correction after Waldspurger, Park, Garthwaite, Ahmad:
//! Efficient MRC construction with SHARDS. FAST 2015, sections 3.2 and 3.4 (SHARDS-adj).
//!
//! A block is in the sample if its hash is below a bound, so that all its accesses are or none. A shadow cache has as
//! many blocks as the cache times the share of blocks sampled.
//!
//! Departures from the paper:
//! - Its sample caches are parts of the cache that hold data and serve their share of the workload, each another one. These
//!   hold nothing: the cache serves every access, none is served by a bad threshold. So all of them can see the same sample,
//!   which makes them comparable with each other, and the sampling rate is the share of the workload sampled in all.
//! - A few popular blocks decide by how much a sample is off: with or without one of them a sample of 1 % differs by several
//!   points. What the cache itself does is known of all accesses and of those in the sample. The hits and misses of the cache
//!   that the sample has too few or too many of are added to each shadow's. Where the cache admits no requests of such length,
//!   all of them are taken for hits, as SHARDS-adj does; where a shadow does not, for refused accesses.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

use rustc_hash::FxBuildHasher;

use super::{Admitted, Rule};
use crate::access::{Access, Op};
use crate::account::{Account, Bits, Counts};
use crate::index::{Dense, Key};
use crate::policy::{self, AnyPolicy, Boxed, Outcome, Policy};
use crate::sketch::mix;
use crate::tiers::Traffic;

/// Shadow caches have at least this many blocks, or as many as the cache: with fewer they would tell nothing. Small caches are
/// sampled at a higher rate for it.
const SHADOW_BLOCKS_MIN: f64 = 256.0;

/// Which blocks are in the sample.
#[derive(Clone, Copy, Debug)]
pub struct Sampler {
    /// Hashes up to this are.
    hash_max: u64,
    seed: u64,
}

impl Sampler {
    /// Samples a `rate` of the blocks, more than 0 and at most 1.
    pub fn new(rate: f64, seed: u64) -> Self {
        assert!(rate > 0.0 && rate <= 1.0, "a sampling rate of {rate}");
        Sampler { hash_max: (rate * u64::MAX as f64) as u64, seed: mix(seed.wrapping_add(1)) }
    }

    /// Whether `block` is in the sample.
    #[inline]
    pub fn takes<K: Hash>(&self, block: &K) -> bool {
        mix(FxBuildHasher.hash_one(block) ^ self.seed) <= self.hash_max
    }
}

/// Classes of requests by length: class i has those of 2^(i-1) + 1 to 2^i blocks.
const CLASSES: usize = 33;

#[inline]
fn class(request_blocks: u32) -> usize {
    (u32::BITS - request_blocks.saturating_sub(1).leading_zeros()) as usize
}

/// Accesses by op, by what became of them in the cache (hit, admitted, bypassed), and by class.
type Tally = [[[u64; CLASSES]; 3]; 2];

const EMPTY: Tally = [[[0; CLASSES]; 3]; 2];

/// Accesses of the sample that shadows are shown at once: one shadow's tables at a time are what the processor's caches hold.
const BATCH_ACCESSES: usize = 256;
/// Accesses between the hint that a block will be accessed and the access.
const PREFETCH_DISTANCE: usize = 4;

/// What one shadow tells of the whole workload in a timeframe.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// What the devices would have had to do.
    pub traffic: Traffic,
    /// Hits per access.
    pub hit_ratio: f64,
}

/// Numbers for the blocks that shadows remember, so that each finds them in an array. Numbers of blocks that none remembers any more
/// are used again.
struct Numbers<K> {
    number_of: HashMap<K, u32, FxBuildHasher>,
    free: Vec<u32>,
    /// With this many numbers in use, those that are not needed are looked for.
    sweep_at: usize,
}

/// Fewer numbers are never looked through.
const SWEPT_NUMBERS_MIN: usize = 1024;

impl<K: Key> Numbers<K> {
    fn new() -> Self {
        Numbers { number_of: HashMap::default(), free: Vec::new(), sweep_at: SWEPT_NUMBERS_MIN }
    }

    #[inline]
    fn of(&mut self, block: K) -> u32 {
        let Numbers { number_of, free, .. } = self;
        // Numbers that are free and those that are not are all there were.
        let next = (number_of.len() + free.len()) as u32;
        *number_of.entry(block).or_insert_with(|| free.pop().unwrap_or(next))
    }

    /// Frees numbers of which `known` says that they are not needed, if there are many.
    fn sweep(&mut self, known: impl Fn(u32) -> bool) {
        if self.number_of.len() < self.sweep_at {
            return;
        }
        let free = &mut self.free;
        self.number_of.retain(|_, number| {
            let known = known(*number);
            if !known {
                free.push(*number);
            }
            known
        });
        self.sweep_at = (2 * self.number_of.len()).max(SWEPT_NUMBERS_MIN);
    }
}

struct Shadow {
    /// It knows blocks by their numbers.
    cache: Admitted<AnyPolicy<u32>, Dense>,
    account: Account<Bits>,
    /// The account at the beginning of the timeframe.
    before: Counts,
    /// The longest requests of which it caches blocks.
    request_blocks_max: u64,
}

impl Shadow {
    /// Runs some accesses and counts their outcomes.
    fn run(&mut self, accesses: &[Access<u32>]) {
        let ahead = |at: usize| accesses[at.min(accesses.len() - 1)].block;
        for (at, access) in accesses.iter().enumerate() {
            self.cache.prefetch(ahead(at + PREFETCH_DISTANCE), ahead(at + 2 * PREFETCH_DISTANCE));
            let outcome = self.cache.access(*access);
            self.account.record(access.block, access.op, &outcome);
        }
    }

    /// True if it remembers anything of `block`.
    fn knows(&self, block: u32) -> bool {
        self.cache.rule().remembers(block) || self.cache.directory().is_none_or(|directory| directory.knows(block))
    }
}

/// Some shadow caches over one sample.
pub struct Shadows<K> {
    sampler: Sampler,
    rate: f64,
    block_bytes: u64,
    shadows: Vec<Shadow>,
    numbers: Numbers<K>,
    /// Accesses of the sample that the shadows have not seen yet.
    pending: Vec<Access<u32>>,
    /// Whether the rules of shadows, and that of the cache, admit all writes.
    admits_writes: bool,
    /// Whether some shadow tells requests apart by their length; if none does, all are of class 0.
    has_classes: bool,
    /// What the cache did in this timeframe, and of it in the sample.
    seen: Tally,
    sampled: Tally,
    sampled_accesses: u64,
}

impl<K> std::fmt::Debug for Shadows<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shadows")
            .field("rate", &self.rate)
            .field("shadows", &self.shadows.len())
            .finish_non_exhaustive()
    }
}

impl<K: Key> Shadows<K> {
    /// No shadows yet of a cache of `capacity` blocks of `block_bytes`, of which a `rate` is to be sampled.
    pub fn new(rate: f64, seed: u64, capacity: usize, block_bytes: u64) -> Self {
        let rate = rate.max(SHADOW_BLOCKS_MIN / capacity as f64).min(1.0);
        Shadows {
            sampler: Sampler::new(rate, seed),
            rate,
            block_bytes,
            shadows: Vec::new(),
            numbers: Numbers::new(),
            pending: Vec::with_capacity(BATCH_ACCESSES),
            admits_writes: false,
            has_classes: false,
            seen: EMPTY,
            sampled: EMPTY,
            sampled_accesses: 0,
        }
    }

    /// The same, where the rules of shadows, and that of the cache, admit all writes if `admits_writes`.
    pub fn admitting_writes(self, admits_writes: bool) -> Self {
        Shadows { admits_writes, ..self }
    }

    /// The share of blocks that is sampled.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// Blocks of each shadow of a cache of `capacity` blocks.
    pub fn capacity(&self, capacity: usize) -> usize {
        ((capacity as f64 * self.rate).round() as usize).max(1)
    }

    /// Adds the shadow of a cache of `capacity` blocks with `policy` behind `rule`, which is for a cache of
    /// [`capacity`](Self::capacity).
    pub fn add(&mut self, policy: &policy::Spec, rule: Rule<Dense>, capacity: usize) {
        let request_blocks_max = rule.request_blocks_max();
        self.has_classes |= !matches!(request_blocks_max, 0 | u64::MAX);
        self.shadows.push(Shadow {
            cache: Admitted::new(rule, policy.build(Dense::new(0), self.capacity(capacity), Boxed))
                .admitting_writes(self.admits_writes),
            account: Account::new(Bits::new(0)),
            before: Counts::default(),
            request_blocks_max,
        });
    }

    /// Shows an access, and what became of it in the cache itself, to the shadows.
    #[inline]
    pub fn access(&mut self, access: &Access<K>, outcome: &Outcome<K>) {
        let class = if self.has_classes { class(access.request_blocks) } else { 0 };
        let became = match outcome {
            Outcome::Hit => 0,
            Outcome::Admit { .. } => 1,
            Outcome::Bypass => 2,
        };
        self.seen[access.op as usize][became][class] += 1;
        if self.sampler.takes(&access.block) {
            self.access_sampled(*access, became, class);
        }
    }

    /// Apart from [`access`](Self::access), so that this is small enough to be inlined where every access passes.
    #[inline(never)]
    fn access_sampled(&mut self, access: Access<K>, became: usize, class: usize) {
        let Access { block, op, request_blocks, next_use } = access;
        self.sampled[op as usize][became][class] += 1;
        self.sampled_accesses += 1;
        self.pending.push(Access { block: self.numbers.of(block), op, request_blocks, next_use });
        if self.pending.len() == BATCH_ACCESSES {
            self.catch_up();
        }
    }

    /// Shows the shadows what they have not seen yet.
    #[inline(never)]
    fn catch_up(&mut self) {
        for shadow in &mut self.shadows {
            shadow.run(&self.pending);
        }
        self.pending.clear();
        let shadows = &self.shadows;
        self.numbers.sweep(|number| shadows.iter().any(|shadow| shadow.knows(number)));
    }

    /// Forgets `block`.
    pub fn remove(&mut self, block: K) {
        if self.sampler.takes(&block) {
            self.catch_up();
            let number = self.numbers.of(block);
            for shadow in &mut self.shadows {
                shadow.cache.remove(number);
                shadow.account.remove(number);
            }
        }
    }

    /// Shows the shadows a block that is in the cache already.
    pub fn warm(&mut self, block: K) {
        if self.sampler.takes(&block) {
            self.catch_up();
            let number = self.numbers.of(block);
            for shadow in &mut self.shadows {
                shadow.cache.warm(number);
            }
        }
    }

    /// Accesses of this timeframe that were in the sample.
    pub fn sampled_accesses(&self) -> u64 {
        self.sampled_accesses
    }

    /// What the cache itself did in this timeframe, but for what it wrote back.
    pub fn own(&self) -> Counts {
        let sum = |outcome: usize| [0, 1].map(|op| self.seen[op][outcome].iter().sum());
        Counts { hits: sum(0), admissions: sum(1), bypasses: sum(2), written_back: 0 }
    }

    /// What each shadow tells of this timeframe, which ends here. In it the cache itself admitted requests of at most
    /// `request_blocks_max`.
    pub fn estimates(&mut self, request_blocks_max: u64) -> Vec<Estimate> {
        self.catch_up();
        let (seen, sampled, rate, block_bytes) = (self.seen, self.sampled, self.rate, self.block_bytes as f64);
        // Where writes are admitted, blocks of requests of every length are in the cache.
        let admits_writes = self.admits_writes;
        let seen_accesses: u64 = seen.iter().flatten().flatten().sum();
        let estimate = |shadow: &mut Shadow| {
            let counts = *shadow.account.counts() - shadow.before;
            shadow.before = *shadow.account.counts();
            let mut hits = counts.hits.iter().sum::<u64>() as f64;
            let mut traffic = counts.traffic(1);
            for op in [Op::Read, Op::Write] {
                for class in 0..CLASSES {
                    let short = |outcome: usize| {
                        let at = |tally: &Tally| tally[op as usize][outcome][class] as f64;
                        at(&seen) * rate - at(&sampled)
                    };
                    let (hits_short, misses_short) = (short(0), short(1) + short(2));
                    let class_blocks = 1_u64 << class;
                    if !admits_writes && class_blocks > shadow.request_blocks_max {
                        add_refused(&mut traffic, op, hits_short + misses_short);
                        continue;
                    }
                    // Where the cache refused everything, its misses tell nothing.
                    let of_cache = admits_writes || class_blocks <= request_blocks_max;
                    let (short_hits, short_misses) =
                        if of_cache { (hits_short, misses_short) } else { (hits_short + misses_short, 0.0) };
                    hits += short_hits;
                    add_hits(&mut traffic, op, short_hits);
                    add_misses(&mut traffic, op, short_misses, &counts);
                }
            }
            let hit_ratio = (hits / (seen_accesses as f64 * rate)).clamp(0.0, 1.0);
            Estimate { traffic: scaled(traffic, block_bytes / rate), hit_ratio }
        };
        let estimates = self.shadows.iter_mut().map(estimate).collect();
        (self.seen, self.sampled, self.sampled_accesses) = (EMPTY, EMPTY, 0);
        estimates
    }

    /// Asserts the invariants of all shadows.
    pub fn check(&self) {
        assert!(self.pending.len() < BATCH_ACCESSES);
        self.shadows.iter().for_each(|shadow| shadow.cache.check());
    }
}

fn add_hits(traffic: &mut Traffic, op: Op, hits: f64) {
    match op {
        Op::Read => traffic.read_hits += hits,
        Op::Write => {
            traffic.cached_writes += hits;
            traffic.cache_written += hits;
        }
    }
}

fn add_refused(traffic: &mut Traffic, op: Op, refused: f64) {
    match op {
        Op::Read => traffic.read_misses += refused,
        Op::Write => {
            traffic.bypassed_writes += refused;
            traffic.storage_written += refused;
        }
    }
}

/// Adds misses of which as many are admitted as of those counted, and as many blocks written back per admission.
fn add_misses(traffic: &mut Traffic, op: Op, misses: f64, counts: &Counts) {
    let ratio = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    let (admissions, bypasses) = (counts.admissions[op as usize], counts.bypasses[op as usize]);
    let admitted = misses * ratio(admissions, admissions + bypasses);
    add_refused(traffic, op, misses - admitted);
    match op {
        Op::Read => traffic.read_misses += admitted,
        Op::Write => traffic.cached_writes += admitted,
    }
    traffic.cache_written += admitted;
    traffic.storage_written += admitted * ratio(counts.written_back, counts.admissions.iter().sum());
}

/// `traffic` times `factor`; what a correction made negative is nothing.
fn scaled(traffic: Traffic, factor: f64) -> Traffic {
    let scale = |number: f64| (number * factor).max(0.0);
    Traffic {
        read_hits: scale(traffic.read_hits),
        read_misses: scale(traffic.read_misses),
        cached_writes: scale(traffic.cached_writes),
        bypassed_writes: scale(traffic.bypassed_writes),
        cache_written: scale(traffic.cache_written),
        storage_written: scale(traffic.storage_written),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::NEVER;
    use crate::admission::hotness::Hotness;

    #[test]
    fn a_sample_has_its_share_of_the_blocks_and_another_seed_has_others() {
        let sampled = |rate, seed| {
            let sampler = Sampler::new(rate, seed);
            (0..100_000_u32).filter(|block| sampler.takes(block)).collect::<Vec<_>>()
        };
        for seed in 0..10 {
            let len = sampled(0.01, seed).len();
            assert!((900..1100).contains(&len), "{len} of 100,000 with seed {seed}");
        }
        let (one, two) = (sampled(0.1, 1), sampled(0.1, 2));
        let both = one.iter().filter(|block| two.binary_search(block).is_ok()).count();
        assert!((850..1150).contains(&both), "{both} blocks of 100,000 are in two samples of 10 %");
        assert_eq!(sampled(1.0, 5).len(), 100_000);
    }

    #[test]
    fn classes_end_at_powers_of_two() {
        assert_eq!([0, 1, 2, 3, 4, 5, 8, 9, u32::MAX].map(class), [0, 0, 1, 2, 2, 3, 3, 4, 32]);
    }

    /// A scan of 100,000 blocks past caches of 256 blocks that remember at most as many ghosts, or ten times as many.
    #[test]
    fn numbers_are_as_many_as_blocks_are_remembered() {
        let mut shadows: Shadows<u64> = Shadows::new(1.0, 1, 256, 4096);
        for policy in ["lru", "larc", "2q", "s3-fifo", "w-tinylfu"] {
            shadows.add(
                &policy::Spec::parse(policy).unwrap(),
                Rule::Hotness(Hotness::with_min(Dense::new(0), 256, 2)),
                256,
            );
        }
        for round in 0..100_000 {
            for block in [round, round] {
                let access = Access { block: block << 20, op: Op::Write, request_blocks: 1, next_use: NEVER };
                shadows.access(&access, &Outcome::Hit);
            }
        }
        shadows.check();
        let numbers = shadows.numbers.number_of.len() + shadows.numbers.free.len();
        assert!((256..4 * SWEPT_NUMBERS_MIN).contains(&numbers), "{numbers} numbers");
    }
}
