//! Algorithms that do not know the future: a flash cache behind a DRAM cache with LRU.
//!
//! Source: Cheng et al., USENIX ATC 2016, section 5 and Table 2.
//!
//! The flash cache sees the reads that the DRAM cache misses, and all writes, which the DRAM cache keeps too.

use flashwise_core::access::{Access, NEVER, Op};
use flashwise_core::index::Dense;
use flashwise_core::options::Options;
use flashwise_core::policy::lru::Lru;
use flashwise_core::policy::{Outcome, Policy};

use super::Counts;
use super::settings::Geometry;
use flashwise_trace::Trace;

/// What an online algorithm is run over, and on what.
#[derive(Clone, Copy)]
pub(super) struct Online<'a> {
    pub trace: &'a Trace,
    pub geometry: &'a Geometry,
    /// Accesses not counted.
    pub warmup: u64,
    /// Whether a conventional SSD is told what is evicted.
    pub trim: bool,
}

/// A flash cache with its device.
pub(super) trait FlashCache {
    /// An access that gets past the DRAM cache; adds what came of it to `counts`, but for what [`FlashCache::counted`] knows.
    fn access(&mut self, access: Access<u32>, time_us: u64, counts: &mut Counts);
    /// `counts` with what cache and device counted so far.
    fn counted(&self, counts: Counts) -> Counts;
}

impl Online<'_> {
    /// Runs the whole trace.
    pub(super) fn run<C: FlashCache>(&self, mut cache: C, counts: Counts) -> Counts {
        let dram_blocks = self.geometry.read_cache_blocks;
        let index = || Dense::new(self.trace.unique_blocks());
        let mut dram = (dram_blocks > 0).then(|| Lru::new(index(), dram_blocks, &Options::default()));
        let (mut counts, mut before) = (counts, counts);
        let (mut position, mut time_us) = (0, 0);
        for columns in self.trace.batches() {
            for (at, &block) in columns.block.iter().enumerate() {
                if position == self.warmup {
                    before = cache.counted(counts);
                }
                position += 1;
                // Traces are not always sorted; time does not go back for a cache.
                time_us = time_us.max(columns.time_us[at]);
                let op = if columns.op[at] == 0 { Op::Read } else { Op::Write };
                let request_blocks = columns.request_blocks[at];
                let access = Access { block: block as u32, op, request_blocks, next_use: NEVER };
                let in_dram = dram.as_mut().is_some_and(|dram| dram.access(access) == Outcome::Hit);
                match op {
                    Op::Read => counts.reads += 1,
                    Op::Write => counts.writes += 1,
                }
                if in_dram && op == Op::Read {
                    counts.ram_hits += 1;
                } else {
                    cache.access(access, time_us as u64, &mut counts);
                }
            }
        }
        let all = cache.counted(counts);
        all.check();
        if position <= self.warmup {
            before = all;
        }
        all.since(&before)
    }
}
