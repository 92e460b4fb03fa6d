//! Runs policies over traces: every (trace, policy, size), in parallel, reading each trace once.

use flashwise_core::access::{Access, NEVER, Op};
use flashwise_core::counters::Counters;
use flashwise_core::index::Dense;
use flashwise_core::policy::{Policy, Visitor};
use rayon::prelude::*;

use flashwise_trace::error::TraceError;
use flashwise_trace::normalised::trace::{Accesses, Trace};
use flashwise_trace::progress::Progress;

use crate::case::{Case, Run};
use crate::counting::foresee;
pub use crate::counting::{Counting, Warmup};
use crate::endurance::Method;
use crate::pace::PACE_ACCESSES;
use crate::sampling;
use crate::stretch::Ran;

/// Distance in accesses of the prefetch of a block's node; its index entry is prefetched at twice the distance.
const PREFETCH_DISTANCE: usize = 12;

/// Runs all cases on all cores: policies, without rules, devices and flash. Returns the runs in the order of the cases,
/// independent of the number of threads. `progress` counts block accesses.
///
/// # Panics
/// If a case is not of a policy.
pub fn simulate(
    traces: &[Trace],
    cases: Vec<Case>,
    counting: Counting,
    progress: &dyn Progress,
) -> Result<Vec<Run>, TraceError> {
    let offline = |trace: usize| cases.iter().any(|case| case.trace == trace && case.algorithm.offline());
    let next_uses: Vec<Option<Vec<u32>>> = (0..traces.len())
        .into_par_iter()
        .map(|trace| if offline(trace) { traces[trace].next_uses(progress).map(Some) } else { Ok(None) })
        .collect::<Result<_, _>>()?;
    let run = |case: Case| {
        // Allows the caller to end the work.
        progress.advance(0);
        let trace = &traces[case.trace];
        let Method::Policy(policy) = case.algorithm.method() else { panic!("{} is not a policy", case.algorithm) };
        let next_uses = if case.algorithm.offline() { next_uses[case.trace].as_deref() } else { None };
        let (counters, epochs, sample) = if trace.sample().is_some() {
            let sampled = sampling::run(trace, policy, case.capacity_blocks, counting, next_uses, progress);
            progress.advance(trace.len() as u64);
            (sampled.counters, sampled.epochs, Some(sampled.figures))
        } else {
            let replay = Replay { trace, next_uses, counting, lengths: false, progress };
            let (counters, epochs) = policy.build(Dense::new(trace.unique_blocks()), case.capacity_blocks, replay);
            (counters, epochs, None)
        };
        let ran = Ran::of_policy(counters, &epochs, trace.whole_len() - counters.accesses());
        Run { sample, ..Run::new(case, ran) }
    };
    Ok(cases.into_par_iter().with_max_len(1).map(run).collect())
}

/// Runs a policy outside the table over `trace`. Returns its counters after the warm-up and for each epoch.
/// [`ResultRow::of_policy`](crate::results::ResultRow::of_policy) makes the row. `progress` counts block accesses.
pub fn run_own<P: Policy<Key = u32> + Send + 'static>(
    trace: &Trace,
    policy: P,
    counting: Counting,
    progress: &dyn Progress,
) -> (Counters, Vec<Counters>) {
    Replay { trace, next_uses: None, counting, lengths: true, progress }.visit(policy)
}

struct Replay<'a> {
    trace: &'a Trace,
    next_uses: Option<&'a [u32]>,
    counting: Counting,
    /// True if the policy gets the length of requests. No policy of the table uses it, so it is usually not unpacked.
    lengths: bool,
    progress: &'a dyn Progress,
}

impl Visitor<u32> for Replay<'_> {
    type Output = (Counters, Vec<Counters>);

    fn visit<P: Policy<Key = u32>>(self, mut policy: P) -> Self::Output {
        let warmup = self.counting.warmup.accesses(self.trace.len());
        foresee(&mut policy, self.next_uses, warmup);
        let epoch = self.counting.epoch.unwrap_or(u64::MAX);
        let (mut counted, mut in_epoch, mut epochs) = (Counters::default(), Counters::default(), Vec::new());
        let mut position = 0;
        for columns in self.trace.batches() {
            let batch_end = position + columns.block.len() as u64;
            let batch_start = position;
            while position < batch_end {
                // A segment ends with the batch, with the warm-up or an epoch, or when progress is due.
                let multiple_after = |at: u64, step: u64| (at / step).saturating_add(1).saturating_mul(step);
                let end =
                    batch_end.min(multiple_after(position, PACE_ACCESSES)).min(match position.checked_sub(warmup) {
                        None => warmup,
                        Some(counted) => warmup.saturating_add(multiple_after(counted, epoch)),
                    });
                let range = (position - batch_start) as usize..(end - batch_start) as usize;
                let next_uses = self.next_uses.map(|next_uses| &next_uses[position as usize..end as usize]);
                let segment = replay(&mut policy, &columns, range, next_uses, self.lengths);
                if position >= warmup {
                    counted += segment;
                    in_epoch += segment;
                    if (end - warmup).is_multiple_of(epoch) {
                        epochs.push(std::mem::take(&mut in_epoch));
                    }
                }
                self.progress.advance(end - position);
                position = end;
            }
        }
        if self.counting.epoch.is_some() && in_epoch.accesses() > 0 {
            epochs.push(in_epoch);
        }
        (counted, epochs)
    }
}

/// Runs and counts the accesses of `range`. `next_uses` starts at the range.
#[inline(never)]
fn replay<P: Policy<Key = u32>>(
    policy: &mut P,
    columns: &Accesses,
    range: std::ops::Range<usize>,
    next_uses: Option<&[u32]>,
    lengths: bool,
) -> Counters {
    let mut counters = Counters::default();
    let (blocks, ops) = (&columns.block[..], &columns.op[..]);
    let lengths = lengths.then(|| &columns.request_blocks[..]);
    let ahead = |at: usize| blocks[at.min(blocks.len() - 1)] as u32;
    for (in_range, at) in range.enumerate() {
        policy.prefetch(ahead(at + PREFETCH_DISTANCE), ahead(at + 2 * PREFETCH_DISTANCE));
        let op = if ops[at] == 0 { Op::Read } else { Op::Write };
        let next_use = next_uses.map_or(NEVER, |next_uses| next_uses[in_range]);
        let request_blocks = lengths.map_or(1, |lengths| lengths[at]);
        let access = Access { block: blocks[at] as u32, op, request_blocks, next_use };
        let outcome = policy.access(access);
        counters.record(op, &outcome);
    }
    counters
}

#[cfg(test)]
mod tests {
    use std::io::Seek;

    use flashwise_core::policy::{POLICIES, Spec};
    use flashwise_trace::normalised::Normaliser;
    use flashwise_trace::progress::Silent;
    use flashwise_trace::request::Request;

    use super::*;

    #[test]
    fn no_policy_of_the_table_looks_at_the_length_of_requests() {
        let mut normaliser = Normaliser::new("test", 4096, tempfile::tempfile().unwrap()).unwrap();
        let volume = normaliser.volume(b"").unwrap();
        for number in 0..2000_u64 {
            let op = if number.is_multiple_of(3) { Op::Write } else { Op::Read };
            let offset_bytes = 4096 * (number * number % 1511);
            let length_bytes = 4096 * (1 + number % 40);
            normaliser.request(&Request { time_us: 0, op, volume, offset_bytes, length_bytes }).unwrap();
        }
        let mut file = normaliser.finish().unwrap();
        file.rewind().unwrap();
        let trace = Trace::map("test", &file).unwrap();
        let next_uses = trace.next_uses(&Silent).unwrap();
        let counting = Counting { warmup: Warmup::Accesses(0), epoch: None };
        for info in POLICIES {
            let counters = [false, true].map(|lengths| {
                let next_uses = info.offline.then_some(&next_uses[..]);
                let replay = Replay { trace: &trace, next_uses, counting, lengths, progress: &Silent };
                Spec::parse(info.name).unwrap().build(Dense::new(trace.unique_blocks()), 200, replay).0
            });
            assert!(counters[0].accesses() > 2000 && counters[0] == counters[1], "{}", info.name);
        }
    }
}
