//! A policy behind an admission rule over a trace, at the trace's times: what the devices of an array would have to do.

use flashwise_core::access::{Access, NEVER, Op};
use flashwise_core::account::{Account, Bits, Counts};
use flashwise_core::admission::adaptive::Decision;
use flashwise_core::admission::{Setting, Spec as Rule};
use flashwise_core::counters::Counters;
use flashwise_core::index::Dense;
use flashwise_core::policy::{Policy, Spec, Visitor};

use crate::trace::Trace;

/// Accesses between the hint that a block will be accessed and the access.
const PREFETCH_DISTANCE: usize = 12;

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// The accesses after the warm-up, as the devices see them, ...
    pub counts: Counts,
    /// ... and as the policy answered.
    pub counters: Counters,
    /// From the first of them to the last, at least a microsecond.
    pub seconds: f64,
    /// Every decision of a rule that adapts.
    pub decisions: Vec<Decision>,
    /// The epochs, if they were asked for; they include the warm-up.
    pub epochs: Vec<Stretch>,
}

/// Consecutive accesses of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Stretch {
    /// From the beginning of the trace to that of the stretch.
    pub start_s: f64,
    /// To the beginning of the next, or the last access of the trace; at least a microsecond.
    pub seconds: f64,
    /// What the devices see, ...
    pub counts: Counts,
    /// ... and what the policy answered.
    pub counters: Counters,
    /// How many decisions were made when it ended.
    pub decisions: usize,
}

/// Runs `policy`, an online one, behind `rule` over `trace` in a cache of `capacity_blocks`; the first `warmup` accesses are not counted.
/// `epoch` accesses are an epoch.
pub fn replay(
    trace: &Trace,
    policy: &Spec,
    rule: Option<&Rule>,
    capacity_blocks: usize,
    setting: &Setting,
    warmup: u64,
    epoch: Option<u64>,
) -> Replayed {
    assert!(!policy.info().offline, "{policy} would need next uses");
    let index = Dense::new(trace.unique_blocks());
    match rule {
        Some(rule) => rule.build(policy, index, capacity_blocks, setting, Replay { trace, warmup, epoch }),
        None => policy.build(index, capacity_blocks, Replay { trace, warmup, epoch }),
    }
}

struct Replay<'a> {
    trace: &'a Trace,
    warmup: u64,
    epoch: Option<u64>,
}

/// Where a stretch begins.
#[derive(Clone, Copy, Default)]
struct Mark {
    counts: Counts,
    counters: Counters,
    time_us: u64,
}

impl Mark {
    fn to(self, end: Mark, decisions: usize) -> Stretch {
        Stretch {
            start_s: self.time_us as f64 / 1e6,
            seconds: (end.time_us - self.time_us).max(1) as f64 / 1e6,
            counts: end.counts - self.counts,
            counters: end.counters - self.counters,
            decisions,
        }
    }
}

impl Visitor<u32> for Replay<'_> {
    type Output = Replayed;

    fn visit<P: Policy<Key = u32>>(self, mut policy: P) -> Replayed {
        let mut account = Account::new(Bits::new(self.trace.unique_blocks()));
        let mut counters = Counters::default();
        let (mut warm, mut begun) = (Mark::default(), Mark::default());
        let mut epochs = Vec::new();
        let mut next_epoch = self.epoch.unwrap_or(u64::MAX);
        let mut decisions: Vec<Decision> = Vec::new();
        let first_us = self.trace.batches()[0].time_us[0];
        // A trace's times may go back; the time of a policy does not.
        let (mut time_us, mut position) = (0, 0);
        for columns in self.trace.batches() {
            let blocks = &columns.block[..];
            let ahead = |at: usize| blocks[at.min(blocks.len() - 1)] as u32;
            for (at, &block) in blocks.iter().enumerate() {
                policy.prefetch(ahead(at + PREFETCH_DISTANCE), ahead(at + 2 * PREFETCH_DISTANCE));
                time_us = time_us.max(columns.time_us[at].saturating_sub(first_us).max(0) as u64);
                policy.tick(time_us);
                if position == self.warmup || position == next_epoch {
                    let mark = Mark { counts: *account.counts(), counters, time_us };
                    if position == self.warmup {
                        warm = mark;
                    }
                    if position == next_epoch {
                        epochs.push(begun.to(mark, decisions.len()));
                        begun = mark;
                        next_epoch = position.saturating_add(self.epoch.unwrap_or(u64::MAX));
                    }
                }
                position += 1;
                let op = if columns.op[at] == 0 { Op::Read } else { Op::Write };
                let (block, request_blocks) = (block as u32, columns.request_blocks[at]);
                let outcome = policy.access(Access { block, op, request_blocks, next_use: NEVER });
                account.record(block, op, &outcome);
                counters.record(op, &outcome);
                if let Some(decision) = policy.decision()
                    && decision.number > decisions.len() as u64
                {
                    decisions.push(decision.clone());
                }
            }
        }
        let end = Mark { counts: *account.counts(), counters, time_us };
        if self.epoch.is_some() {
            epochs.push(begun.to(end, decisions.len()));
        }
        let Stretch { counts, counters, seconds, .. } = warm.to(end, decisions.len());
        Replayed { counts, counters, seconds, decisions, epochs }
    }
}
