//! Seeded workloads of five kinds.

use flashwise_core::access::{Access, NEVER, Op};
pub use flashwise_core::random::next as random;

/// Upper bound of block numbers.
pub const BLOCKS: u32 = 300;
/// Accesses of a workload.
pub const ACCESSES: usize = 6_000;

/// The kinds of workloads.
pub const WORKLOADS: [&str; 5] = ["uniform", "zipf", "loop", "scans", "phases"];

/// Returns a number below `BLOCKS`, with probability roughly proportional to 1/n.
fn skewed(state: &mut u64) -> u32 {
    let exponent = (random(state) as f64 / u64::MAX as f64) * f64::from(BLOCKS).ln();
    (exponent.exp() as u32 - 1).min(BLOCKS - 1)
}

/// Returns a workload of one of [`WORKLOADS`]; a third of its accesses are writes.
pub fn workload(kind: &str) -> Vec<Access<u32>> {
    let mut state = 42;
    let block = |position: usize, state: &mut u64| match kind {
        "uniform" => (random(state) % u64::from(BLOCKS)) as u32,
        "zipf" => skewed(state),
        "loop" => position as u32 % 110,
        "scans" if position % 1000 < 250 => position as u32 % BLOCKS,
        "scans" => skewed(state),
        "phases" => (skewed(state) + (position / 1500) as u32 * 75) % BLOCKS,
        _ => unreachable!(),
    };
    let blocks: Vec<u32> = (0..ACCESSES).map(|position| block(position, &mut state)).collect();
    let mut next_use_of = [NEVER; BLOCKS as usize];
    let mut accesses: Vec<_> = (0..ACCESSES)
        .rev()
        .map(|position| {
            let block = blocks[position];
            let next_use = std::mem::replace(&mut next_use_of[block as usize], position as u32);
            let op = if random(&mut state).is_multiple_of(3) { Op::Write } else { Op::Read };
            Access { block, op, request_blocks: 1, next_use }
        })
        .collect();
    accesses.reverse();
    accesses
}
