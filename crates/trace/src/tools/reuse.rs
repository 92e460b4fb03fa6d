//! Reuse distances of blocks, as in LARC's Figure 3.
//!
//! Source: LARC (MSST 2013), section III.B: "Reuse distance is the number of blocks accessed between two consecutive
//! accesses to a block." Counted in distinct blocks it is the LRU stack distance of Mattson et al. (1970), computed by
//! `Recency`.

use flashwise_core::access::Op;
use serde::Serialize;

use crate::Trace;
use crate::normalised::trace::Accesses;
use crate::progress::{Progress, Silent};
use crate::tools::recency::Recency;

/// The number of accesses between two reports of progress.
const PROGRESS_ACCESSES: usize = 1 << 16;

/// The unit of distances between two accesses to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Distance {
    /// Distinct blocks: the LRU stack distance.
    Unique,
    /// All accesses.
    Accesses,
}

/// Reuse distances of one kind of op. The op is that of the later access of each pair.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Histogram {
    /// The number of accesses to a block not accessed before; their distance is infinite.
    pub first_accesses: u64,
    /// `by_log2[0]` counts the distances 0 and 1, `by_log2[i]` those above 2^(i-1) and up to 2^i.
    pub by_log2: Vec<u64>,
}

/// The reuse distances of a trace, separate for reads and writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReuseDistances {
    /// The unit of the distances.
    pub distance: Distance,
    /// Reads.
    pub reads: Histogram,
    /// Writes.
    pub writes: Histogram,
}

/// A row of the table of reuse distances.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The longest distance of the row: `2^5` for 17 to 32. The first row, `2^0`, holds 0 and 1; the last one is called
    /// `first access`.
    pub distance: String,
    /// The number of reads with these distances.
    pub reads: u64,
    /// The number of writes with these distances.
    pub writes: u64,
    /// Reads with these distances or shorter ones, per read.
    pub reads_up_to: f64,
    /// Writes with these distances or shorter ones, per write.
    pub writes_up_to: f64,
}

impl ReuseDistances {
    /// Returns the table of distances, shortest first; first accesses to blocks are last.
    pub fn rows(&self) -> Vec<Row> {
        let (reads, writes) = (self.reads.cumulative(), self.writes.cumulative());
        let mut rows = Vec::new();
        for log2 in 0..self.reads.by_log2.len() {
            rows.push(Row {
                distance: format!("2^{log2}"),
                reads: self.reads.by_log2[log2],
                writes: self.writes.by_log2[log2],
                reads_up_to: reads[log2],
                writes_up_to: writes[log2],
            });
        }
        let all = |histogram: &Histogram| if histogram.accesses() == 0 { 0.0 } else { 1.0 };
        rows.push(Row {
            distance: "first access".to_owned(),
            reads: self.reads.first_accesses,
            writes: self.writes.first_accesses,
            reads_up_to: all(&self.reads),
            writes_up_to: all(&self.writes),
        });
        rows
    }

    /// Computes the reuse distances of `trace` in the unit `distance`: an access right after one to the same block has
    /// distance 0. Both histograms end at the same power of two. Memory: 5 to 8 bytes per unique block. `progress`
    /// receives the number of block accesses.
    pub fn of(trace: &Trace, distance: Distance, progress: &dyn Progress) -> ReuseDistances {
        let mut pass = ReusePass::new(distance, trace.unique_blocks());
        for columns in trace.batches() {
            pass.count(&columns, progress);
        }
        pass.finish()
    }
}

/// Counts reuse distances while the accesses of a trace pass. Memory: 5 to 8 bytes for each expected block, up to 13
/// for others.
#[derive(Debug)]
pub struct ReusePass {
    since: Since,
    histograms: [Histogram; 2],
}

#[derive(Debug)]
enum Since {
    Unique(Recency),
    Accesses(Positions),
}

impl ReusePass {
    /// Creates an empty pass; `unique_blocks` is the expected number of distinct blocks, which may differ.
    pub fn new(distance: Distance, unique_blocks: usize) -> ReusePass {
        let since = match distance {
            Distance::Unique => Since::Unique(Recency::new(unique_blocks)),
            Distance::Accesses => Since::Accesses(Positions::new(unique_blocks)),
        };
        ReusePass { since, histograms: Default::default() }
    }

    /// Counts the next accesses.
    pub fn accesses(&mut self, columns: &Accesses) {
        self.count(columns, &Silent);
    }

    fn count(&mut self, columns: &Accesses, progress: &dyn Progress) {
        for (blocks, ops) in columns.block.chunks(PROGRESS_ACCESSES).zip(columns.op.chunks(PROGRESS_ACCESSES)) {
            match &mut self.since {
                Since::Unique(recency) => record(&mut self.histograms, blocks, ops, |block| recency.access(block)),
                Since::Accesses(positions) => {
                    record(&mut self.histograms, blocks, ops, |block| positions.access(block))
                }
            }
            progress.advance(blocks.len() as u64);
        }
    }

    /// Returns the counted distances.
    pub fn finish(self) -> ReuseDistances {
        let distance = match self.since {
            Since::Unique(_) => Distance::Unique,
            Since::Accesses(_) => Distance::Accesses,
        };
        let [mut reads, mut writes] = self.histograms;
        let len = reads.by_log2.len().max(writes.by_log2.len());
        reads.by_log2.resize(len, 0);
        writes.by_log2.resize(len, 0);
        ReuseDistances { distance, reads, writes }
    }
}

/// Records the distances of some accesses, separately for reads and writes.
#[inline]
fn record(histograms: &mut [Histogram; 2], blocks: &[i32], ops: &[u8], mut distance: impl FnMut(usize) -> Option<u64>) {
    for (&block, &op) in blocks.iter().zip(ops) {
        histograms[usize::from(op != Op::Read as u8)].record(distance(block as usize));
    }
}

/// One in this number of accesses may have a shorter distance than the minimal reuse distance: the paper's curve
/// "remains at around 0" there.
const SOONER_SHARE: u64 = 100;
/// Distances below two to this power are counted exactly, longer ones by this many leading bits.
const EXACT_BITS: u32 = 17;

/// Computes LARC's minimal reuse distance (section III.B) of reads and of writes while accesses pass. It is the longest
/// distance in accesses that at most a hundredth of them fall short of. Distances of 131,072 accesses and more are
/// rounded down to their 17 highest bits, by less than 1/65,000. Memory: 8 bytes per unique block, and 512 KiB for each
/// power of two that distances reach.
#[derive(Debug)]
pub(super) struct MinimalDistances {
    positions: Positions,
    accesses: [u64; 2],
    /// Counts by the distances' [`bucket`].
    counts: [Vec<u64>; 2],
}

/// Returns the index at which a distance is counted: one for each distance below 2^17, then 2^16 for each power of two.
fn bucket(distance: u64) -> usize {
    let over = (u64::BITS - distance.leading_zeros()).saturating_sub(EXACT_BITS);
    ((u64::from(over) << (EXACT_BITS - 1)) + (distance >> over)) as usize
}

/// Returns the shortest distance that is counted at this index.
fn shortest(bucket: usize) -> u64 {
    let half = 1 << (EXACT_BITS - 1);
    let over = (bucket as u64 / half).saturating_sub(1);
    (bucket as u64 - over * half) << over
}

impl MinimalDistances {
    pub fn new(unique_blocks: usize) -> Self {
        let (accesses, counts) = Default::default();
        MinimalDistances { positions: Positions::new(unique_blocks), accesses, counts }
    }

    pub fn accesses(&mut self, columns: &Accesses) {
        for (&block, &op) in columns.block.iter().zip(columns.op.iter()) {
            let kind = usize::from(op != Op::Read as u8);
            self.accesses[kind] += 1;
            let Some(distance) = self.positions.access(block as usize) else { continue };
            let (counts, bucket) = (&mut self.counts[kind], bucket(distance));
            if counts.len() <= bucket {
                counts.resize(bucket + 1, 0);
            }
            counts[bucket] += 1;
        }
    }

    /// Returns the distances of reads and of writes; none if at most a hundredth of them are repeated accesses.
    pub fn finish(self) -> [Option<u64>; 2] {
        [0, 1].map(|kind| {
            let mut left = self.accesses[kind] / SOONER_SHARE;
            let found = self.counts[kind].iter().position(|&count| {
                let is_here = count > left;
                left = left.saturating_sub(count);
                is_here
            });
            found.map(shortest)
        })
    }
}

impl Histogram {
    fn record(&mut self, distance: Option<u64>) {
        let Some(distance) = distance else {
            self.first_accesses += 1;
            return;
        };
        let log2 = (u64::BITS - distance.saturating_sub(1).leading_zeros()) as usize;
        if log2 >= self.by_log2.len() {
            self.by_log2.resize(log2 + 1, 0);
        }
        self.by_log2[log2] += 1;
    }

    /// Returns the number of all accesses.
    pub fn accesses(&self) -> u64 {
        self.first_accesses + self.by_log2.iter().sum::<u64>()
    }

    /// Returns for each x the share of accesses, 0 to 1, whose distance is at most 2^x (Figure 3).
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

/// The position in the trace of the last access to each block.
#[derive(Debug)]
struct Positions {
    next: u64,
    last: Vec<u64>,
}

impl Positions {
    const NONE: u64 = u64::MAX;

    fn new(blocks: usize) -> Self {
        Positions { next: 0, last: vec![Self::NONE; blocks] }
    }

    /// Returns the number of accesses since the last one to `block`.
    fn access(&mut self, block: usize) -> Option<u64> {
        if block >= self.last.len() {
            self.last.resize(block + 1, Self::NONE);
        }
        let last = std::mem::replace(&mut self.last[block], self.next);
        self.next += 1;
        (last != Self::NONE).then(|| self.next - 2 - last)
    }
}

#[cfg(test)]
mod tests {
    use flashwise_core::access::{Access, NEVER};
    use flashwise_core::index::Dense;
    use flashwise_core::options::Options;
    use flashwise_core::policy::lru::Lru;
    use flashwise_core::policy::{Outcome, Policy};
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;
    use crate::normalised::Normaliser;
    use crate::progress::Silent;
    use crate::request::Request;

    fn trace(accesses: &[(Op, u64)]) -> Trace {
        let mut normaliser = Normaliser::new("test", 512, tempfile::tempfile().unwrap()).unwrap();
        let volume = normaliser.volume(b"").unwrap();
        for &(op, block) in accesses {
            let request = Request { time_us: 0, op, volume, offset_bytes: 512 * block, length_bytes: 512 };
            normaliser.request(&request).unwrap();
        }
        Trace::map("test", &normaliser.finish().unwrap()).unwrap()
    }

    /// Generates accesses in which lower blocks are more frequent, in an order that drifts; a third are writes.
    fn drifting(seed: u64, accesses: usize, blocks: u64) -> Vec<(Op, u64)> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let access = |at: usize| {
            let share: f64 = random.random();
            let block = (share.powi(3) * blocks as f64) as u64 + at as u64 / 7 % blocks;
            (if random.random_ratio(1, 3) { Op::Write } else { Op::Read }, block % blocks)
        };
        (0..accesses).map(access).collect()
    }

    /// Walks back to the last access to the same block and counts the accesses in between.
    fn naive(accesses: &[(Op, u64)], distance: Distance) -> [Histogram; 2] {
        let mut histograms = [Histogram::default(), Histogram::default()];
        for (at, &(op, block)) in accesses.iter().enumerate() {
            let last = accesses[..at].iter().rposition(|&(_, earlier)| earlier == block);
            let between = last.map(|last| accesses[last + 1..at].iter().map(|&(_, block)| block));
            let distance = between.map(|between| match distance {
                Distance::Accesses => between.count() as u64,
                Distance::Unique => between.collect::<std::collections::HashSet<_>>().len() as u64,
            });
            histograms[op as usize].record(distance);
        }
        histograms
    }

    #[test]
    fn distances_of_a_hand_worked_trace() {
        // block     a a b c a b d c b b d   the second c is a write
        // unique    - 0 - - 2 2 - 3 2 0 2   different blocks between
        // accesses  - 0 - - 2 2 - 3 2 0 3   accesses between
        let op = |at: usize| if at == 7 { Op::Write } else { Op::Read };
        let accesses: Vec<_> = b"aabcabdcbbd".iter().enumerate().map(|(at, &block)| (op(at), block.into())).collect();
        let trace = trace(&accesses);
        let unique = ReuseDistances::of(&trace, Distance::Unique, &Silent);
        assert_eq!(unique.reads, Histogram { first_accesses: 4, by_log2: vec![2, 4, 0] });
        assert_eq!(unique.writes, Histogram { first_accesses: 0, by_log2: vec![0, 0, 1] });
        let all = ReuseDistances::of(&trace, Distance::Accesses, &Silent);
        assert_eq!(all.reads, Histogram { first_accesses: 4, by_log2: vec![2, 3, 1] });
    }

    /// Reads of the blocks 0 to 49, four times over: 150 reads of distance 49. Of n reads n / 100 may fall short.
    #[test]
    fn the_minimal_reuse_distance_leaves_out_one_in_a_hundred() {
        let loops = || (0..200).map(|at| (Op::Read, at % 50));
        let minimal = |accesses: Vec<(Op, u64)>| {
            let mut distances = MinimalDistances::new(0);
            trace(&accesses).batches().for_each(|columns| distances.accesses(&columns));
            distances.finish()
        };
        assert_eq!(minimal(loops().collect()), [Some(49), None]);
        // Two immediate repetitions: 202 reads, with two that may fall short.
        let again = |times: usize| loops().chain(std::iter::repeat_n((Op::Read, 49), times)).collect::<Vec<_>>();
        assert_eq!(minimal(again(2)), [Some(49), None]);
        assert_eq!(minimal(again(3)), [Some(0), None], "three of 203 are more than one in a hundred");
        // Writes between two reads of a block are accesses too; of fewer than a hundred none may fall short.
        let written =
            |(at, read): (usize, (Op, u64))| if at % 5 == 0 { vec![read, (Op::Write, 100)] } else { vec![read] };
        assert_eq!(minimal(loops().enumerate().flat_map(written).collect()), [Some(59), Some(5)]);
        // Of 100 first accesses and 2 more one may fall short: the second of them is the result.
        let few = |again: u64| (0..100).chain(100 - again..100).map(|block| (Op::Read, block)).collect::<Vec<_>>();
        assert_eq!(minimal(few(2)), [Some(1), None]);
        assert_eq!(minimal(few(1)), [None, None], "99 % and more are first accesses");
    }

    #[test]
    fn both_distances_equal_a_naive_count() {
        // Few blocks and many accesses: positions run out many times.
        for (seed, accesses, blocks) in [(1, 3000, 10), (2, 3000, 300), (3, 2000, 3000), (4, 10_000, 600), (5, 1, 1)] {
            let accesses = drifting(seed, accesses, blocks);
            let trace = trace(&accesses);
            for distance in [Distance::Unique, Distance::Accesses] {
                let [mut reads, mut writes] = naive(&accesses, distance);
                let found = ReuseDistances::of(&trace, distance, &Silent);
                let len = found.reads.by_log2.len();
                assert_eq!(len, reads.by_log2.len().max(writes.by_log2.len()));
                reads.by_log2.resize(len, 0);
                writes.by_log2.resize(len, 0);
                assert_eq!(found, ReuseDistances { distance, reads, writes }, "seed {seed}");
            }
        }
    }

    #[test]
    fn long_distances_are_rounded_down_by_less_than_a_65000th() {
        for distance in (0..1 << 18).chain([1 << 20, (1 << 20) + 15, (1 << 33) - 1, u64::MAX / 2]) {
            let found = shortest(bucket(distance));
            assert!(
                found <= distance && (distance - found) as f64 * 65_000.0 < found.max(1) as f64,
                "{distance}: {found}"
            );
            assert!(distance >= 1 << 17 || found == distance);
        }
        // 2^17 + 1 is the first that shares an index with the one before; indexes are consecutive.
        assert_eq!((bucket((1 << 17) - 1), bucket(1 << 17), bucket((1 << 17) + 1)), ((1 << 17) - 1, 1 << 17, 1 << 17));
        assert_eq!((bucket((1 << 18) - 1), bucket(1 << 18)), (3 * (1 << 16) - 1, 3 * (1 << 16)));
    }

    #[test]
    fn unexpected_blocks_are_counted_alike() {
        for (seed, accesses, blocks) in [(7, 60_000, 3000), (8, 3000, 10), (9, 20_000, 1_000_000)] {
            let trace = trace(&drifting(seed, accesses, blocks));
            for distance in [Distance::Unique, Distance::Accesses] {
                let mut pass = ReusePass::new(distance, 0);
                trace.batches().for_each(|columns| pass.accesses(&columns));
                assert_eq!(pass.finish(), ReuseDistances::of(&trace, distance, &Silent), "seed {seed}");
            }
        }
    }

    #[test]
    fn lru_of_c_blocks_hits_the_accesses_with_fewer_than_c_blocks_between() {
        let trace = trace(&drifting(6, 200_000, 40_000));
        let distances = ReuseDistances::of(&trace, Distance::Unique, &Silent);
        let powers = distances.reads.by_log2.len();
        for log2 in 0..powers {
            // Distances up to 2^x are those below 2^x + 1.
            let mut lru = Lru::new(Dense::new(trace.unique_blocks()), (1 << log2) + 1, &Options::default());
            let mut hits = [0; 2];
            for columns in trace.batches() {
                for (&block, &op) in columns.block.iter().zip(columns.op.iter()) {
                    let access = Access { op: Op::Read, block: block as u32, request_blocks: 1, next_use: NEVER };
                    hits[usize::from(op)] += u64::from(lru.access(access) == Outcome::Hit);
                }
            }
            let up_to = |histogram: &Histogram| histogram.by_log2[..=log2].iter().sum::<u64>();
            assert_eq!(hits, [up_to(&distances.reads), up_to(&distances.writes)], "2^{log2}");
        }
        assert!(powers > 12);
    }
}
