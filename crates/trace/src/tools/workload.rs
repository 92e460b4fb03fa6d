//! The accesses of a trace over time and addresses, in bins for plots, however long the trace is.
//!
//! One pass over the accesses, after one over the block addresses; memory: 5 bytes for each distinct block.

use serde::Serialize;

use crate::Trace;
use crate::progress::Progress;

/// The number of bins of time.
pub const COLUMNS: usize = 120;
/// The number of bins of addresses.
pub const ROWS: usize = 48;

/// Requests and accesses of a part of the trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Part {
    /// The number of read requests, by the time of their first access.
    pub read_requests: u64,
    /// The number of write requests.
    pub write_requests: u64,
    /// The number of accesses that are reads.
    pub reads: u64,
    /// The number of accesses that are writes.
    pub writes: u64,
}

/// A trace in bins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Workload {
    /// The length of a block, in bytes.
    pub block_size_bytes: u64,
    /// The start of the first bin, in microseconds since the first request. None if times are not a clock: then bins
    /// have equally many accesses.
    pub start_us: Option<i64>,
    /// The length of a bin: in microseconds, or in accesses.
    pub part_len: u64,
    /// The bins of time, in order.
    pub parts: Vec<Part>,
    /// `heat[row][part]` accesses to the blocks of a row. Rows have equally many distinct blocks, in the order of their
    /// addresses, lowest first, volume by volume. Blocks without accesses are in no row.
    pub heat: Vec<Vec<u64>>,
    /// `sizes[0]` are read requests, `sizes[1]` write requests: `[i]` counts those of more than 2^(i-1) and up to 2^i
    /// blocks.
    pub sizes: [Vec<u64>; 2],
    /// `popularity[i]` accesses go to the 2^i most accessed blocks, the last to all of them.
    pub popularity: Vec<u64>,
    /// The number of distinct blocks.
    pub unique_blocks: u64,
}

/// Maps accesses to bins of time.
struct BinClock {
    start_us: Option<i64>,
    part_len: u64,
}

impl BinClock {
    fn of(trace: &Trace) -> BinClock {
        let times = trace.times();
        let (len, duration_us) = (trace.len() as u64, times.duration_us());
        if duration_us == 0 || trace.rates_refused().is_some() {
            return BinClock { start_us: None, part_len: len.div_ceil(COLUMNS as u64).max(1) };
        }
        BinClock { start_us: Some(times.earliest_us), part_len: (duration_us + 1).div_ceil(COLUMNS as u64) }
    }

    /// Returns the bin of the access at `position`, which has the time `time_us`; absurd times count for the first or
    /// last bin.
    #[inline]
    fn part(&self, position: u64, time_us: i64) -> usize {
        let since = match self.start_us {
            Some(start_us) => time_us.saturating_sub(start_us).max(0) as u64,
            None => position,
        };
        ((since / self.part_len) as usize).min(COLUMNS - 1)
    }
}

impl Workload {
    /// Computes the bins of `trace`. `progress` receives the number of block accesses.
    pub fn of(trace: &Trace, progress: &dyn Progress) -> Workload {
        let clock = BinClock::of(trace);
        let row_of = rows(trace.addresses());
        let rows = row_of.iter().max().map_or(0, |&row| usize::from(row) + 1);
        let mut parts = vec![Part::default(); COLUMNS];
        let mut heat = vec![vec![0_u64; COLUMNS]; rows];
        let mut sizes = [Vec::new(), Vec::new()];
        let mut accesses_of = vec![0_u32; trace.unique_blocks()];
        let (mut position, mut last) = (0, None);
        for columns in trace.batches() {
            let (times, ops, blocks) = (&columns.time_us[..], &columns.op[..], &columns.block[..]);
            let (requests, lengths) = (&columns.request[..], &columns.request_blocks[..]);
            for at in 0..columns.rows {
                let (block, is_write) = (blocks[at] as usize, ops[at] != 0);
                let number = clock.part(position, times[at]);
                let part = &mut parts[number];
                *(if is_write { &mut part.writes } else { &mut part.reads }) += 1;
                if last.replace(requests[at]) != Some(requests[at]) {
                    *(if is_write { &mut part.write_requests } else { &mut part.read_requests }) += 1;
                    add(&mut sizes[usize::from(is_write)], lengths[at]);
                }
                heat[usize::from(row_of[block])][number] += 1;
                accesses_of[block] = accesses_of[block].saturating_add(1);
                position += 1;
            }
            progress.advance(columns.rows as u64);
        }
        let len = sizes[0].len().max(sizes[1].len());
        sizes.iter_mut().for_each(|sizes| sizes.resize(len, 0));
        Workload {
            block_size_bytes: trace.block_size_bytes(),
            start_us: clock.start_us,
            part_len: clock.part_len,
            parts,
            heat,
            sizes,
            popularity: popularity(accesses_of),
            unique_blocks: trace.unique_blocks() as u64,
        }
    }
}

/// Returns the row of each block, by id.
fn rows(addresses: &[u64]) -> Vec<u8> {
    let mut by_address: Vec<u32> = (0..addresses.len() as u32).collect();
    by_address.sort_unstable_by_key(|&block| addresses[block as usize]);
    let mut rows = vec![0; addresses.len()];
    let row_len = addresses.len().div_ceil(ROWS).max(1);
    for (rank, block) in by_address.into_iter().enumerate() {
        rows[block as usize] = (rank / row_len) as u8;
    }
    rows
}

/// Counts a request of this many blocks.
fn add(sizes: &mut Vec<u64>, blocks: u32) {
    let log2 = (u32::BITS - blocks.saturating_sub(1).leading_zeros()) as usize;
    if sizes.len() <= log2 {
        sizes.resize(log2 + 1, 0);
    }
    sizes[log2] += 1;
}

fn popularity(mut accesses_of: Vec<u32>) -> Vec<u64> {
    accesses_of.sort_unstable_by(|one, other| other.cmp(one));
    let (mut found, mut sum, mut next) = (Vec::new(), 0_u64, 1);
    for (rank, &accesses) in accesses_of.iter().enumerate() {
        sum += u64::from(accesses);
        if rank + 1 == next {
            found.push(sum);
            next *= 2;
        }
    }
    if !accesses_of.len().is_power_of_two() && !accesses_of.is_empty() {
        found.push(sum);
    }
    found
}

#[cfg(test)]
mod tests {
    use flashwise_core::access::Op;

    use super::*;
    use crate::normalised::Normaliser;
    use crate::progress::Silent;
    use crate::request::Request;

    /// Creates a trace of requests of (time in microseconds, op, block, blocks).
    fn trace(requests: &[(i64, Op, u64, u64)]) -> Trace {
        let mut normaliser = Normaliser::new("test", 512, tempfile::tempfile().unwrap()).unwrap();
        let volume = normaliser.volume(b"").unwrap();
        for &(time_us, op, block, blocks) in requests {
            let (offset_bytes, length_bytes) = (512 * block, 512 * blocks);
            normaliser.request(&Request { time_us, op, volume, offset_bytes, length_bytes }).unwrap();
        }
        Trace::map("test", &normaliser.finish().unwrap()).unwrap()
    }

    /// 1,200 us in bins of 11: 1,200 / 120 is 10, and the last moment needs a bin too. Blocks 5, 6, 7 and 100 are a row
    /// each.
    #[test]
    fn a_hand_worked_trace_in_bins() {
        let requests = [(0, Op::Read, 5, 3), (10, Op::Write, 100, 1), (11, Op::Read, 6, 1), (1200, Op::Read, 6, 1)];
        let found = Workload::of(&trace(&requests), &Silent);
        assert_eq!((found.start_us, found.part_len, found.unique_blocks), (Some(0), 11, 4));
        let first = Part { read_requests: 1, write_requests: 1, reads: 3, writes: 1 };
        let one = Part { read_requests: 1, reads: 1, ..Part::default() };
        assert_eq!((found.parts[0], found.parts[1], found.parts[2]), (first, one, Part::default()));
        assert_eq!(found.parts[109], one, "1,200 / 11");
        assert_eq!(found.heat.len(), 4);
        let row = |row: usize| [0, 1, 109].map(|part| found.heat[row][part]);
        assert_eq!([row(0), row(1), row(2), row(3)], [[1, 0, 0], [1, 1, 1], [1, 0, 0], [1, 0, 0]]);
        assert_eq!(found.sizes, [vec![2, 0, 1], vec![1, 0, 0]]);
        // Block 6 three times, the others once.
        assert_eq!(found.popularity, [3, 4, 6]);
    }

    #[test]
    fn without_a_clock_bins_are_of_accesses() {
        let requests: Vec<_> = (0..360).map(|at| (0, Op::Read, at % 96, 1)).collect();
        let found = Workload::of(&trace(&requests), &Silent);
        assert_eq!((found.start_us, found.part_len), (None, 3));
        assert!(found.parts.iter().all(|part| (part.reads, part.read_requests) == (3, 3)));
        assert_eq!((found.heat.len(), found.heat.iter().flatten().sum::<u64>()), (ROWS, 360));
        assert_eq!(found.popularity.last(), Some(&360), "all blocks");
        assert_eq!(found.popularity.len(), 8, "1, 2, 4, 8, 16, 32, 64 and all 96");
    }
}
