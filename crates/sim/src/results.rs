//! The figures of a run, named once: JSON, CSV, Parquet, tables and the report all show these rows.

use flashwise_core::access::Op;
use flashwise_core::counters::Counters;
use serde::Serialize;

use crate::simulate::Run;
use crate::trace::Trace;

/// One (trace, policy, size) and what came of it. Definitions are those of [`Counters`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ResultRow {
    /// The trace as the user named it.
    pub trace: String,
    /// The policy as the user named it.
    pub policy: String,
    /// The cache size as the user gave it.
    pub size: String,
    /// The cache size.
    pub capacity_blocks: u64,
    /// Length of a block.
    pub block_size_bytes: u64,
    /// Different blocks in the whole trace.
    pub unique_blocks: u64,
    /// Accesses at the start that are not counted.
    pub warmup_accesses: u64,
    /// Block accesses counted.
    pub accesses: u64,
    /// Reads among them.
    pub reads: u64,
    /// Writes among them.
    pub writes: u64,
    /// Reads that found their block in the cache.
    pub read_hits: u64,
    /// Writes that found their block in the cache.
    pub write_hits: u64,
    /// Both.
    pub hits: u64,
    /// Hits per access.
    pub hit_ratio: f64,
    /// Read hits per read.
    pub read_hit_ratio: f64,
    /// Misses whose block was put into the cache.
    pub admissions: u64,
    /// Read misses among them.
    pub read_admissions: u64,
    /// Write misses among them.
    pub write_admissions: u64,
    /// Admissions that evicted a block.
    pub replacements: u64,
    /// Blocks that left the cache.
    pub evictions: u64,
    /// Misses that left the cache as it was.
    pub bypasses: u64,
    /// Write hits and admissions.
    pub flash_writes_blocks: u64,
    /// The same in bytes.
    pub flash_bytes_written: u64,
    /// Figures over time, if they were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub epochs: Vec<Epoch>,
}

/// Figures of a run of consecutive accesses (Figure 8 of the LARC paper).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Epoch {
    /// Position of the epoch's first access in the trace.
    pub first_access: u64,
    /// Accesses in the epoch.
    pub accesses: u64,
    /// Hits per access.
    pub hit_ratio: f64,
    /// Replacements per access.
    pub replacement_rate: f64,
    /// Write hits and admissions.
    pub flash_writes_blocks: u64,
}

impl ResultRow {
    /// The row of `run`, which ran over `trace`.
    pub fn new(trace: &Trace, run: &Run) -> ResultRow {
        let counters = &run.counters;
        let (read, write) = (counters.of(Op::Read), counters.of(Op::Write));
        ResultRow {
            trace: trace.name().to_owned(),
            policy: run.job.policy.to_string(),
            size: run.job.size.clone(),
            capacity_blocks: run.job.capacity_blocks as u64,
            block_size_bytes: trace.block_size_bytes(),
            unique_blocks: trace.unique_blocks() as u64,
            warmup_accesses: trace.len() as u64 - counters.accesses(),
            accesses: counters.accesses(),
            reads: read.accesses(),
            writes: write.accesses(),
            read_hits: read.hits,
            write_hits: write.hits,
            hits: counters.hits(),
            hit_ratio: counters.hit_ratio(),
            read_hit_ratio: counters.read_hit_ratio(),
            admissions: counters.admissions(),
            read_admissions: read.admissions(),
            write_admissions: write.admissions(),
            replacements: counters.replacements(),
            evictions: counters.evictions(),
            bypasses: counters.bypasses(),
            flash_writes_blocks: counters.flash_writes_blocks(),
            flash_bytes_written: counters.flash_writes_blocks() * trace.block_size_bytes(),
            epochs: epochs(&run.epochs),
        }
    }
}

fn epochs(counters: &[Counters]) -> Vec<Epoch> {
    let mut first_access = 0;
    let epoch = |counters: &Counters| {
        let epoch = Epoch {
            first_access,
            accesses: counters.accesses(),
            hit_ratio: counters.hit_ratio(),
            replacement_rate: counters.replacement_rate(),
            flash_writes_blocks: counters.flash_writes_blocks(),
        };
        first_access += epoch.accesses;
        epoch
    };
    counters.iter().map(epoch).collect()
}
