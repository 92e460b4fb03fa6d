//! What a volume's cache would do with another policy or another size: small caches without data that see a sample of the accesses.
//!
//! Source: Waldspurger, Park, Garthwaite, Ahmad: Efficient MRC construction with SHARDS. FAST 2015, sections 3.2 and 3.4 (SHARDS-adj). A
//! block is in the sample if its hash is below a bound, so that all its accesses are or none; a cache over the sample is as much
//! smaller. What the sample has too many or too few of in accesses is taken for hits.
//!
//! Each is the policy alone, as `flashwise simulate` runs it without RAM, layout and admission rule, since the volume was opened. Whoever
//! asks for blocks pays for a hash of each, and for a push to a queue of fixed size for each of the sample: a thread that keeps time
//! shows them to the caches. What the queue has no room for is dropped and counted, never waited for.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::time::Mutex;
use crossbeam_queue::ArrayQueue;
use flashwise_core::access::{Access, NEVER, Op};
use flashwise_core::admission::shadow::Sampler;
use flashwise_core::counters::Counters;
use flashwise_core::format::BLOCK_BYTES;
use flashwise_core::index::Hashed;
use flashwise_core::policy::{AnyPolicy, Boxed, Info, Spec, online};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::export::{Operation, Request};

/// A small cache has at least this many blocks, or as many as the real one: with fewer it would tell little.
const BLOCKS_MIN: f64 = 2048.0;
/// Least share of the blocks that are sampled: larger small caches tell no more.
const RATE_MIN: f64 = 1e-4;
/// Sampled accesses that can wait: those of a second, at 300,000 blocks a second of which a fifth is sampled.
const QUEUE_ACCESSES: usize = 1 << 16;
/// Other sizes than the present one, as factors of it.
const SIZES: [f64; 4] = [0.25, 0.5, 2.0, 4.0];
/// Most blocks that a policy remembers beside each that it keeps: LIRS would take 2,500, and the memory of a server with them.
const GHOSTS_MAX: f64 = 4.0;
/// Which blocks are sampled; any number does.
const SEED: u64 = 17;

/// What another policy or size would do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WhatIfStatus {
    /// The share of all blocks that is sampled.
    pub sampled_share: f64,
    /// Block accesses since the volume was opened.
    pub accesses: u64,
    /// Those of them that were sampled and looked at.
    pub sampled_accesses: u64,
    /// Those that were sampled and not looked at, for want of time. Where they are many, the estimates are worth little.
    pub dropped_accesses: u64,
    /// The estimates: of the policy that the volume was opened with at several sizes, smallest first, then of the others at its present size.
    pub estimates: Vec<EstimateStatus>,
}

/// What one policy at one size would do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EstimateStatus {
    /// The policy with its options.
    pub policy: String,
    /// The size of the cache, in bytes.
    pub capacity_bytes: u64,
    /// True if this is what the volume has now.
    pub is_present: bool,
    /// Reads that would hit, 0 to 1; absent before anything was read.
    pub read_hit_ratio: Option<f64>,
    /// Bytes that would be written to flash: writes that hit, and what is taken in.
    pub flash_bytes_written: u64,
}

struct Small {
    policy: String,
    capacity_blocks: u64,
    cache: AnyPolicy<u64>,
    counters: Counters,
}

/// A policy that remembers at most [`GHOSTS_MAX`] times as many blocks as it keeps; where its default is more, with that option.
fn remembering_little(info: &Info) -> String {
    let ghosts = info.parameters.iter().find(|parameter| parameter.name == "ghosts");
    match ghosts.and_then(|ghosts| ghosts.default.parse::<f64>().ok()) {
        Some(ghosts) if ghosts > GHOSTS_MAX => format!("{}:ghosts={GHOSTS_MAX}", info.name),
        _ => info.name.to_owned(),
    }
}

/// The small caches of a volume.
pub struct WhatIf {
    sampler: Sampler,
    rate: f64,
    queue: ArrayQueue<Access<u64>>,
    /// Reads and writes of blocks.
    seen: [AtomicU64; 2],
    dropped: AtomicU64,
    small: Mutex<Vec<Small>>,
}

impl std::fmt::Debug for WhatIf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WhatIf").field("rate", &self.rate).finish_non_exhaustive()
    }
}

impl WhatIf {
    /// For a cache of this many blocks with this policy.
    pub fn new(policy: &Spec, capacity_blocks: u64) -> WhatIf {
        let rate = (BLOCKS_MIN / capacity_blocks as f64).clamp(RATE_MIN, 1.0);
        let small = |policy: &Spec, blocks: u64| {
            let sampled = ((blocks as f64 * rate).round() as usize).max(1);
            let cache = policy.build(Hashed::new(), sampled, Boxed);
            Small { policy: policy.to_string(), capacity_blocks: blocks, cache, counters: Counters::default() }
        };
        let sizes = SIZES.map(|size| ((capacity_blocks as f64 * size) as u64).max(1));
        let own = sizes.into_iter().chain([capacity_blocks]).map(|blocks| small(policy, blocks));
        let others = online()
            .filter_map(|info| Spec::parse(&remembering_little(info)).ok())
            .filter(|other| other.to_string() != policy.to_string());
        let mut all: Vec<Small> = own.collect();
        all.sort_by_key(|small| small.capacity_blocks);
        all.extend(others.map(|other| small(&other, capacity_blocks)));
        WhatIf {
            sampler: Sampler::new(rate, SEED),
            rate,
            queue: ArrayQueue::new(QUEUE_ACCESSES),
            seen: Default::default(),
            dropped: AtomicU64::new(0),
            small: Mutex::new(all),
        }
    }

    /// Takes note of a request.
    #[inline]
    pub fn note(&self, request: &Request) {
        let op = match request.operation {
            Operation::Read => Op::Read,
            Operation::Write => Op::Write,
            _ => return,
        };
        const BLOCK: u64 = BLOCK_BYTES as u64;
        let (first, end) = (request.offset / BLOCK, (request.offset + request.length).div_ceil(BLOCK));
        self.seen[op as usize].fetch_add(end - first, Ordering::Relaxed);
        for block in (first..end).filter(|block| self.sampler.takes(block)) {
            let access = Access { block, op, request_blocks: (end - first) as u32, next_use: NEVER };
            if self.queue.push(access).is_err() {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Shows the caches what they have not seen yet; to be called once a second.
    pub fn catch_up(&self) {
        if self.queue.is_empty() {
            return;
        }
        let mut small = self.small.lock();
        let new: Vec<Access<u64>> = std::iter::from_fn(|| self.queue.pop()).take(QUEUE_ACCESSES).collect();
        // One cache after another: each one's tables at a time are what the processor's caches hold.
        for Small { cache, counters, .. } in small.iter_mut() {
            for access in &new {
                let outcome = cache.access(*access);
                counters.record(access.op, &outcome);
            }
        }
    }

    /// What the caches tell, of all accesses so far. `policy` is the one that the volume has now.
    pub fn status(&self, policy: &Spec) -> WhatIfStatus {
        self.catch_up();
        let small = self.small.lock();
        let seen = [Op::Read, Op::Write].map(|op| self.seen[op as usize].load(Ordering::Relaxed));
        let present = (policy.to_string(), small.last().map_or(0, |small| small.capacity_blocks));
        let estimates = small.iter().map(|small| self.estimate(small, seen, &present)).collect();
        WhatIfStatus {
            sampled_share: self.rate,
            accesses: seen.iter().sum(),
            sampled_accesses: small.first().map_or(0, |small| small.counters.accesses()),
            dropped_accesses: self.dropped.load(Ordering::Relaxed),
            estimates,
        }
    }

    fn estimate(&self, small: &Small, seen: [u64; 2], present: &(String, u64)) -> EstimateStatus {
        let Small { policy, capacity_blocks, counters, .. } = small;
        // As many accesses as a sample of this rate should have; the difference are those of a few popular blocks, which hit.
        let hits = |op: Op| {
            let of = counters.of(op);
            let expected = seen[op as usize] as f64 * self.rate;
            (of.hits as f64 + expected - of.accesses() as f64, expected)
        };
        let ((read_hits, reads), (write_hits, _)) = (hits(Op::Read), hits(Op::Write));
        let written = write_hits.max(0.0)
            + [Op::Read, Op::Write].map(|op| counters.of(op).admissions() as f64).iter().sum::<f64>();
        EstimateStatus {
            policy: policy.clone(),
            capacity_bytes: capacity_blocks * BLOCK_BYTES as u64,
            is_present: (policy, capacity_blocks) == (&present.0, &present.1),
            read_hit_ratio: (reads > 0.0).then(|| (read_hits / reads).clamp(0.0, 1.0)),
            flash_bytes_written: (written / self.rate) as u64 * BLOCK_BYTES as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use flashwise_core::random::Random;

    use super::*;

    /// Blocks of which the k-th is asked for 1/k as often as the first, and a scan now and then.
    fn requests(count: usize) -> Vec<(Op, u64)> {
        let mut random = Random::new(5);
        let blocks = 200_000_f64;
        (0..count)
            .map(|at| {
                let block = blocks.powf(random.share()) as u64;
                let scanned = at.is_multiple_of(7);
                let block = if scanned { 1_000_000 + at as u64 } else { block.wrapping_mul(0x9E37_79B9) % 900_000 };
                (if at.is_multiple_of(4) { Op::Write } else { Op::Read }, block)
            })
            .collect()
    }

    /// All policies and sizes against the policies themselves over all accesses, which is what `flashwise simulate` runs.
    #[test]
    fn estimates_are_close_to_whole_runs() {
        let capacity = 20_000;
        let what_if = WhatIf::new(&Spec::parse("larc").unwrap(), capacity);
        let requests = requests(600_000);
        for (at, (op, block)) in requests.iter().enumerate() {
            let operation = if *op == Op::Read { Operation::Read } else { Operation::Write };
            what_if.note(&Request {
                operation,
                offset: block * 4096 + 512,
                length: 1024,
                force_unit_access: false,
                data: Vec::new(),
                caching: Default::default(),
            });
            if at.is_multiple_of(1000) {
                what_if.catch_up();
            }
        }
        let status = what_if.status(&Spec::parse("larc").unwrap());
        assert_eq!((status.accesses, status.dropped_accesses), (600_000, 0));
        assert!((status.sampled_share - 0.1024).abs() < 1e-9 && status.sampled_accesses < 100_000, "{status:?}");
        assert_eq!(status.estimates.len(), SIZES.len() + online().count());
        assert_eq!(status.estimates.iter().filter(|estimate| estimate.is_present).count(), 1);
        for estimate in &status.estimates {
            let blocks = (estimate.capacity_bytes / 4096) as usize;
            let mut policy = Spec::parse(&estimate.policy).unwrap().build(Hashed::<u64>::new(), blocks, Boxed);
            let mut counters = Counters::default();
            for (op, block) in &requests {
                let outcome = policy.access(Access { block: *block, op: *op, request_blocks: 1, next_use: NEVER });
                counters.record(*op, &outcome);
            }
            let reads = counters.of(Op::Read);
            let error = estimate.read_hit_ratio.unwrap() - reads.hits as f64 / reads.accesses() as f64;
            let written =
                counters.of(Op::Write).hits + counters.of(Op::Read).admissions() + counters.of(Op::Write).admissions();
            let ratio = estimate.flash_bytes_written as f64 / (written * 4096) as f64;
            assert!(error.abs() < 0.01 && (0.95..1.05).contains(&ratio), "{estimate:?}: off by {error}, {ratio}");
        }
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let what_if = WhatIf::new(&Spec::parse("lru").unwrap(), 64);
        let read = |offset| Request {
            operation: Operation::Read,
            offset,
            length: 4096 << 10,
            force_unit_access: false,
            data: Vec::new(),
            caching: Default::default(),
        };
        (0..100).for_each(|at| what_if.note(&read(at * (4096 << 10))));
        what_if.note(&Request { operation: Operation::Trim, ..read(0) });
        let status = what_if.status(&Spec::parse("lru").unwrap());
        assert_eq!((status.sampled_share, status.accesses), (1.0, 102_400));
        assert_eq!((status.sampled_accesses, status.dropped_accesses), (65_536, 36_864));
    }
}
