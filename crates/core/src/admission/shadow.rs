//! Shadow caches: small caches without data that see a sample of the blocks, and predict the cache's behaviour with
//! other settings.
//!
//! Source: Moon, Reddy: Adaptive policies for balancing performance and lifetime of mixed SSD arrays through workload
//! sampling. MSST 2016, section V.B and Figure 6; the sample and its correction after Waldspurger, Park, Garthwaite,
//! Ahmad: Efficient MRC construction with SHARDS. FAST 2015, sections 3.2 and 3.4 (SHARDS-adj).
//!
//! A block is in the sample if its hash is below a bound, so either all its accesses are or none. A shadow cache has
//! the cache's blocks times the share of sampled blocks.
//!
//! Departures from the paper:
//! - The paper's sample caches are parts of the cache that hold data and serve their share of the workload, each a
//!   different one. Here they hold nothing: the cache serves every access, none with a bad threshold. So all can see
//!   the same sample, which makes them comparable, and the sampling rate is the total share of the workload.
//! - A few popular blocks dominate the sampling error: with or without one of them a sample of 1 % differs by several
//!   points. The cache's own results are known for all accesses and for the sampled ones. The difference of its hits
//!   and misses, scaled, is added to each shadow's. If the cache rejects requests of that length, the whole difference
//!   counts as hits, as in SHARDS-adj; if the shadow does, as rejected accesses.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

use rustc_hash::FxBuildHasher;

use super::{Admitted, Rule};
use crate::access::{Access, Op};
use crate::account::{Account, Bits, Counts};
use crate::index::{Dense, Key};
use crate::policy::{self, AnyPolicy, Outcome, Policy};
use crate::sketch::mix;
use crate::tiers::Traffic;

/// Minimum size of shadow caches in blocks, unless the cache is smaller. Smaller ones would predict nothing; so small
/// caches are sampled at a higher rate.
const SHADOW_BLOCKS_MIN: f64 = 256.0;

/// Selects the blocks of the sample.
#[derive(Clone, Copy, Debug)]
pub struct Sampler {
    /// The largest hash in the sample.
    hash_max: u64,
    seed: u64,
}

impl Sampler {
    /// Creates a sampler of a `rate` of the blocks, above 0 and at most 1.
    pub fn new(rate: f64, seed: u64) -> Self {
        assert!(rate > 0.0 && rate <= 1.0, "a sampling rate of {rate}");
        Sampler { hash_max: (rate * u64::MAX as f64) as u64, seed: mix(seed.wrapping_add(1)) }
    }

    /// True if `block` is in the sample.
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

/// Accesses by op, by outcome in the cache (hit, admitted, bypassed), and by class.
type Tally = [[[u64; CLASSES]; 3]; 2];

const EMPTY: Tally = [[[0; CLASSES]; 3]; 2];

/// Sampled accesses per batch. Batches keep one shadow's tables in the processor's caches.
const BATCH_ACCESSES: usize = 256;
/// Accesses between the hint that a block will be accessed and the access.
const PREFETCH_DISTANCE: usize = 4;

/// The prediction of one shadow for the whole workload in a timeframe.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// The expected traffic of the devices.
    pub traffic: Traffic,
    /// Hits per access.
    pub hit_ratio: f64,
}

/// Numbers for the blocks that shadows remember, so that each can use an array. Numbers of forgotten blocks are reused.
struct Numbers<K> {
    number_of: HashMap<K, u32, FxBuildHasher>,
    free: Vec<u32>,
    /// The count of used numbers at which unneeded ones are searched.
    sweep_at: usize,
}

/// Minimum count for such a search.
const SWEPT_NUMBERS_MIN: usize = 1024;

impl<K: Key> Numbers<K> {
    fn new() -> Self {
        Numbers { number_of: HashMap::default(), free: Vec::new(), sweep_at: SWEPT_NUMBERS_MIN }
    }

    #[inline]
    fn of(&mut self, block: K) -> u32 {
        let Numbers { number_of, free, .. } = self;
        // Free and used numbers together are all numbers so far.
        let next = (number_of.len() + free.len()) as u32;
        *number_of.entry(block).or_insert_with(|| free.pop().unwrap_or(next))
    }

    /// Frees the numbers for which `known` is false, if there are many in use.
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
    /// The shadow cache, which uses numbers as block names.
    cache: Admitted<AnyPolicy<u32>, Dense>,
    account: Account<Bits>,
    /// The account at the start of the timeframe.
    before: Counts,
    /// The longest requests whose blocks it caches, in blocks.
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

    /// True if it remembers `block`.
    fn knows(&self, block: u32) -> bool {
        self.cache.rule().remembers(block) || self.cache.directory().is_none_or(|directory| directory.knows(block))
    }
}

/// Shadow caches that share one sample.
pub struct Shadows<K> {
    sampler: Sampler,
    rate: f64,
    block_bytes: u64,
    shadows: Vec<Shadow>,
    numbers: Numbers<K>,
    /// Sampled accesses that the shadows have not processed.
    pending: Vec<Access<u32>>,
    /// True if the rules of shadows, and the rule of the cache, admit all writes.
    admits_writes: bool,
    /// True if some shadow's rule depends on the length of requests; otherwise all are of class 0.
    has_classes: bool,
    /// The cache's outcomes in this timeframe: of all accesses, and of the sampled ones.
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
    /// Creates the sampler for a cache of `capacity` blocks of `block_bytes`, without shadows.
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

    /// Sets `admits_writes`: the rules of shadows, and the rule of the cache, admit all writes.
    pub fn admitting_writes(self, admits_writes: bool) -> Self {
        Shadows { admits_writes, ..self }
    }

    /// Returns the share of blocks that is sampled.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// Returns the blocks of each shadow of a cache of `capacity` blocks.
    pub fn capacity(&self, capacity: usize) -> usize {
        ((capacity as f64 * self.rate).round() as usize).max(1)
    }

    /// Adds the shadow of a cache of `capacity` blocks with `policy` behind `rule`. The rule must be for a cache of
    /// [`capacity`](Self::capacity).
    pub fn add(&mut self, policy: &policy::Spec, rule: Rule<Dense>, capacity: usize) {
        let request_blocks_max = rule.request_blocks_max();
        self.has_classes |= !matches!(request_blocks_max, 0 | u64::MAX);
        self.shadows.push(Shadow {
            cache: Admitted::new(rule, policy.boxed(0, self.capacity(capacity))).admitting_writes(self.admits_writes),
            account: Account::new(Bits::new(0)),
            before: Counts::default(),
            request_blocks_max,
        });
    }

    /// Passes an access and its outcome in the cache itself to the shadows.
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

    /// Separate from [`access`](Self::access), to keep that small enough for inlining.
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

    /// Runs the shadows over the pending accesses.
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

    /// Warms the shadows with a block that is already in the cache.
    pub fn warm(&mut self, block: K) {
        if self.sampler.takes(&block) {
            self.catch_up();
            let number = self.numbers.of(block);
            for shadow in &mut self.shadows {
                shadow.cache.warm(number);
            }
        }
    }

    /// Returns the sampled accesses of this timeframe.
    pub fn sampled_accesses(&self) -> u64 {
        self.sampled_accesses
    }

    /// Returns the cache's own counts in this timeframe, without write-backs.
    pub fn own(&self) -> Counts {
        let sum = |outcome: usize| [0, 1].map(|op| self.seen[op][outcome].iter().sum());
        Counts { hits: sum(0), admissions: sum(1), bypasses: sum(2), written_back: 0 }
    }

    /// Returns each shadow's prediction for this timeframe, and ends it. The cache itself admitted requests of at most
    /// `request_blocks_max`.
    pub fn estimates(&mut self, request_blocks_max: u64) -> Vec<Estimate> {
        self.catch_up();
        let (seen, sampled, rate, block_bytes) = (self.seen, self.sampled, self.rate, self.block_bytes as f64);
        // If writes are admitted, the cache has blocks of requests of every length.
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
                    // If the cache rejected everything, its misses predict nothing.
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

/// Adds misses, with the ratios of admissions per miss and write-backs per admission from `counts`.
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

/// Multiplies `traffic` by `factor`; values that a correction made negative become 0.
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

    /// A scan of 100,000 blocks through caches of 256 blocks that remember at most as many ghosts, or ten times as
    /// many.
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
