//! LRU hit curves over all cache sizes, and working sets over time.
//!
//! Source: Mattson, Gecsei, Slutz, Traiger: Evaluation techniques for storage hierarchies. IBM Systems Journal 9(2),
//! 1970. An LRU cache of C blocks hits an access if fewer than C distinct blocks were accessed since the last access to
//! the same block.

use flashwise_core::access::Op;
use serde::Serialize;

use crate::Trace;
use crate::normalised::trace::Accesses;
use crate::progress::{Progress, Silent};
use crate::tools::recency::Recency;

/// The number of accesses between two reports of progress.
const PROGRESS_ACCESSES: usize = 1 << 16;

/// The hits of LRU at every cache size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LruCurve {
    /// Counted accesses, by [`Op`].
    accesses: [u64; 2],
    /// `hits[op][c]` of them hit in a cache of `c` blocks, from 0 to the number of distinct blocks.
    hits: [Vec<u64>; 2],
}

impl LruCurve {
    /// Computes the curve of `trace` in one pass; the first `warmup` accesses are not counted. Memory: 21 to 24 bytes
    /// for each distinct block. `progress` receives the number of block accesses.
    pub fn of(trace: &Trace, warmup: u64, progress: &dyn Progress) -> LruCurve {
        let mut pass = LruCurvePass::new(warmup, trace.unique_blocks());
        for columns in trace.batches() {
            pass.count(&columns, progress);
        }
        pass.finish()
    }

    /// Returns the number of counted accesses of one kind.
    pub fn accesses(&self, op: Op) -> u64 {
        self.accesses[op as usize]
    }

    /// Returns the number of counted accesses of one kind that hit in a cache of `capacity_blocks`.
    pub fn hits(&self, op: Op, capacity_blocks: usize) -> u64 {
        let hits = &self.hits[op as usize];
        hits[capacity_blocks.min(hits.len() - 1)]
    }
}

/// Counts the hits of LRU at every cache size while the accesses of a trace pass. Memory: 21 to 24 bytes for each
/// expected block, up to 45 for others.
#[derive(Debug)]
pub struct LruCurvePass {
    warmup: u64,
    position: u64,
    accesses: [u64; 2],
    /// Hits by op and distance, up to the largest distance so far.
    distances: [Vec<u64>; 2],
    recency: Recency,
    unique_blocks: usize,
}

impl LruCurvePass {
    /// Creates an empty pass; the first `warmup` accesses are not counted. `unique_blocks` is the expected number of
    /// distinct blocks, which may differ.
    pub fn new(warmup: u64, unique_blocks: usize) -> LruCurvePass {
        let (accesses, distances) = Default::default();
        LruCurvePass {
            warmup,
            position: 0,
            accesses,
            distances,
            recency: Recency::new(unique_blocks),
            unique_blocks: 0,
        }
    }

    /// Counts the next accesses.
    pub fn accesses(&mut self, columns: &Accesses) {
        self.count(columns, &Silent);
    }

    fn count(&mut self, columns: &Accesses, progress: &dyn Progress) {
        for (blocks, ops) in columns.block.chunks(PROGRESS_ACCESSES).zip(columns.op.chunks(PROGRESS_ACCESSES)) {
            for (&block, &op) in blocks.iter().zip(ops) {
                let distance = self.recency.access(block as usize);
                self.unique_blocks = self.unique_blocks.max(block as usize + 1);
                if self.position >= self.warmup {
                    self.accesses[usize::from(op)] += 1;
                    if let Some(distance) = distance {
                        let (counts, distance) = (&mut self.distances[usize::from(op)], distance as usize);
                        if counts.len() <= distance {
                            counts.resize(distance + 1, 0);
                        }
                        counts[distance] += 1;
                    }
                }
                self.position += 1;
            }
            progress.advance(blocks.len() as u64);
        }
    }

    /// Returns the curve.
    pub fn finish(self) -> LruCurve {
        let hits = self.distances.map(|distances| {
            let mut sum = 0;
            // A cache of one more block also hits accesses at the next distance.
            let hits = (0..=self.unique_blocks).map(|blocks| {
                sum += blocks.checked_sub(1).and_then(|distance| distances.get(distance)).unwrap_or(&0);
                sum
            });
            hits.collect()
        });
        LruCurve { accesses: self.accesses, hits }
    }
}

/// The blocks in use in a part of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WorkingSet {
    /// The position of its first access.
    pub first_access: u64,
    /// The number of its accesses.
    pub accesses: u64,
    /// The time of its first access, in microseconds since the first request.
    pub time_us: i64,
    /// The number of distinct blocks accessed in it.
    pub blocks: u64,
    /// The number of distinct blocks written in it.
    pub written_blocks: u64,
    /// The number of `blocks` that were not accessed before.
    pub new_blocks: u64,
}

/// Returns the working sets of `parts` parts of a trace, or one per access if there are fewer. All parts but the last
/// have equally many accesses. For a sample they are estimates for the whole trace. Memory: 8 bytes for each distinct
/// block.
pub fn working_sets(trace: &Trace, parts: u64) -> Vec<WorkingSet> {
    let len = trace.len() as u64;
    let part_len = len.div_ceil(parts.max(1)).max(1);
    // The last part in which a block was accessed and written, from 1.
    let mut last = vec![[0_u32; 2]; trace.unique_blocks()];
    let mut found: Vec<WorkingSet> = Vec::new();
    let mut position = 0_u64;
    for columns in trace.batches() {
        let (ops, times) = (&columns.op[..], &columns.time_us[..]);
        for (at, &block) in columns.block.iter().enumerate() {
            if position.is_multiple_of(part_len) {
                let time_us = times[at];
                found.push(WorkingSet { first_access: position, time_us, ..WorkingSet::default() });
            }
            let number = found.len() as u32;
            let part = &mut found[number as usize - 1];
            let [accessed, written] = &mut last[block as usize];
            part.accesses += 1;
            part.new_blocks += u64::from(*accessed == 0);
            part.blocks += u64::from(std::mem::replace(accessed, number) != number);
            if ops[at] == Op::Write as u8 {
                part.written_blocks += u64::from(std::mem::replace(written, number) != number);
            }
            position += 1;
        }
    }
    let Some(sample) = trace.sample() else { return found };
    let by_accesses = sample.accesses() as f64 / len as f64;
    let times = |count: u64, by: f64| (count as f64 * by).round() as u64;
    let whole = |part: &WorkingSet| WorkingSet {
        first_access: times(part.first_access, by_accesses),
        accesses: times(part.accesses, by_accesses),
        time_us: part.time_us,
        blocks: times(part.blocks, 1.0 / sample.share()),
        written_blocks: times(part.written_blocks, 1.0 / sample.share()),
        new_blocks: times(part.new_blocks, 1.0 / sample.share()),
    };
    found.iter().map(whole).collect()
}

#[cfg(test)]
mod tests {
    use flashwise_core::access::{Access, NEVER};
    use flashwise_core::index::Dense;
    use flashwise_core::options::Options;
    use flashwise_core::policy::lru::Lru;
    use flashwise_core::policy::{Outcome, Policy};

    use super::*;
    use crate::normalised::Normaliser;
    use crate::progress::Silent;
    use crate::request::Request;

    fn trace(accesses: &[(Op, u64)]) -> Trace {
        let mut normaliser = Normaliser::new("test", 512, tempfile::tempfile().unwrap()).unwrap();
        let volume = normaliser.volume(b"").unwrap();
        for (at, &(op, block)) in accesses.iter().enumerate() {
            let request = Request { time_us: at as i64, op, volume, offset_bytes: 512 * block, length_bytes: 512 };
            normaliser.request(&request).unwrap();
        }
        Trace::map("test", &normaliser.finish().unwrap()).unwrap()
    }

    /// Squares and a loop: 40 to 60 distinct blocks, read and written.
    fn accesses() -> Vec<(Op, u64)> {
        let access = |at: u64| {
            (
                if at.is_multiple_of(3) { Op::Write } else { Op::Read },
                if at.is_multiple_of(2) { at * at % 97 } else { at % 43 },
            )
        };
        (0..4000).map(access).collect()
    }

    #[test]
    fn the_curve_has_lru_hits_at_every_size() {
        let accesses = accesses();
        let trace = trace(&accesses);
        for warmup in [0, 777] {
            let curve = LruCurve::of(&trace, warmup, &Silent);
            for capacity in 1..=trace.unique_blocks() + 3 {
                let mut lru = Lru::new(Dense::new(trace.unique_blocks()), capacity, &Options::default());
                let mut hits = [0; 2];
                for (at, (block, op)) in trace.accesses().enumerate() {
                    let outcome = lru.access(Access { op, block, request_blocks: 1, next_use: NEVER });
                    hits[op as usize] += u64::from(outcome == Outcome::Hit && at as u64 >= warmup);
                }
                assert_eq!([Op::Read, Op::Write].map(|op| curve.hits(op, capacity)), hits, "{capacity} blocks");
            }
            assert_eq!((curve.hits(Op::Read, 0), curve.hits(Op::Write, 0)), (0, 0));
            assert_eq!(curve.accesses(Op::Read) + curve.accesses(Op::Write), accesses.len() as u64 - warmup);
        }
    }

    /// Blocks 1 2 1 | 2 3 3 | 1, with writes at the second and the fifth, in parts of three accesses.
    #[test]
    fn working_sets_of_a_hand_worked_trace() {
        let ops = [Op::Read, Op::Write, Op::Read, Op::Read, Op::Write, Op::Read, Op::Read];
        let accesses: Vec<_> = ops.into_iter().zip([1, 2, 1, 2, 3, 3, 1]).collect();
        let set = |first_access, accesses, blocks, written_blocks, new_blocks| WorkingSet {
            first_access,
            accesses,
            time_us: first_access as i64,
            blocks,
            written_blocks,
            new_blocks,
        };
        let expected = [set(0, 3, 2, 1, 2), set(3, 3, 2, 1, 1), set(6, 1, 1, 0, 0)];
        assert_eq!(working_sets(&trace(&accesses), 3), expected);
        assert_eq!(working_sets(&trace(&accesses), 100).len(), 7);
    }
}
