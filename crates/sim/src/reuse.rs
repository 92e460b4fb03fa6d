//! How long it takes until blocks are used again: the reuse distances of LARC's Figure 3.

use serde::Serialize;

/// What is counted between two accesses to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Distance {
    /// Different blocks: the LRU stack distance.
    Unique,
    /// All accesses.
    Accesses,
}

/// Reuse distances of one kind of op. The op is that of the later access of each pair.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Histogram {
    /// Accesses to a block not accessed before; their distance is infinite.
    pub first_accesses: u64,
    /// `by_log2[0]` counts the distances 0 and 1, `by_log2[i]` those above 2^(i-1) and up to 2^i.
    pub by_log2: Vec<u64>,
}

/// The reuse distances of a trace, reads and writes apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReuseDistances {
    /// What the distances count.
    pub distance: Distance,
    /// Reads.
    pub reads: Histogram,
    /// Writes.
    pub writes: Histogram,
}

impl Histogram {
    /// All accesses.
    pub fn accesses(&self) -> u64 {
        self.first_accesses + self.by_log2.iter().sum::<u64>()
    }

    /// For each x, the share of accesses, 0 to 1, whose distance is no more than 2^x (Figure 3).
    pub fn cumulative(&self) -> Vec<f64> {
        let accesses = self.accesses().max(1) as f64;
        let mut sum = 0;
        let up_to = |count: &u64| {
            sum += count;
            sum as f64 / accesses
        };
        self.by_log2.iter().map(up_to).collect()
    }
}
