//! Estimates for a volume's cache with another policy or size, from small caches without data that see a sample of
//! accesses.
//!
//! Source: Waldspurger, Park, Garthwaite, Ahmad: Efficient MRC construction with SHARDS. FAST 2015, sections 3.2 and
//! 3.4 (SHARDS-adj). A block is sampled if its hash is below a bound, so either all its accesses are sampled or none.
//! The cache is scaled down by the same factor. A difference between the expected and the actual number of sampled
//! accesses counts as hits.
//!
//! Each small cache is only the policy, as `flashwise simulate` runs it without RAM, layout and admission rule, since
//! the volume was opened. A request costs a hash for each block, and a push to a queue of fixed size for each sampled
//! one. A background thread feeds the caches. If the queue is full, accesses are dropped and counted.

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

/// Minimum number of blocks of a small cache, unless the real one is smaller. Fewer blocks would make poor estimates.
const BLOCKS_MIN: f64 = 2048.0;
/// Minimum share of sampled blocks. Larger small caches are no more accurate.
const RATE_MIN: f64 = 1e-4;
/// Length of the queue: the accesses of one second, at 300,000 blocks per second, a fifth of them sampled.
const QUEUE_ACCESSES: usize = 1 << 16;
/// Estimated sizes as factors of the present one.
const SIZES: [f64; 4] = [0.25, 0.5, 2.0, 4.0];
/// Maximum number of ghost blocks per cached block. The default of LIRS, 2,500, would take all memory of a server.
const GHOSTS_MAX: f64 = 4.0;
/// An arbitrary seed of the sample.
const SEED: u64 = 17;

/// Estimates for other policies and sizes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WhatIfStatus {
    /// The share of sampled blocks.
    pub sampled_share: f64,
    /// Block accesses since the volume was opened.
    pub accesses: u64,
    /// Sampled accesses that reached the small caches.
    pub sampled_accesses: u64,
    /// Sampled accesses that were dropped for lack of time. If there are many, the estimates are inaccurate.
    pub dropped_accesses: u64,
    /// The estimates: first for the policy that the volume was opened with, by increasing size, then for other policies
    /// at the present size.
    pub estimates: Vec<EstimateStatus>,
}

/// The estimate for one policy at one size.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EstimateStatus {
    /// The policy with its options.
    pub policy: String,
    /// The size of the cache, in bytes.
    pub capacity_bytes: u64,
    /// True for the present policy and size.
    pub is_present: bool,
    /// Expected hit ratio of reads, 0 to 1; absent before the first read.
    pub read_hit_ratio: Option<f64>,
    /// Bytes that would be written to flash: write hits and admissions.
    pub flash_bytes_written: u64,
}

struct Small {
    policy: String,
    capacity_blocks: u64,
    cache: AnyPolicy<u64>,
    counters: Counters,
}

/// Returns the policy with at most [`GHOSTS_MAX`] ghosts, set as an option if its default is higher.
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
    /// Accessed blocks, by operation: reads and writes.
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
    /// Creates the small caches for a cache of this many blocks with this policy.
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

    /// Records a request.
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

    /// Feeds queued accesses to the caches. To be called once per second.
    pub fn catch_up(&self) {
        if self.queue.is_empty() {
            return;
        }
        let mut small = self.small.lock();
        let new: Vec<Access<u64>> = std::iter::from_fn(|| self.queue.pop()).take(QUEUE_ACCESSES).collect();
        // One cache after the other, because the processor's caches hold the tables of only one.
        for Small { cache, counters, .. } in small.iter_mut() {
            for access in &new {
                let outcome = cache.access(*access);
                counters.record(access.op, &outcome);
            }
        }
    }

    /// Returns the estimates for all accesses so far. `policy` is the present one.
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
        // Scales to the number of accesses expected at this rate. The difference comes from a few popular blocks, which
        // hit.
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

    /// A Zipf-like distribution, where block k is accessed 1/k as often as the first, with occasional scans.
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

    /// Compares all policies and sizes with full simulations of the policies, as `flashwise simulate` runs them.
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
    fn accesses_beyond_the_queue_are_counted() {
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
