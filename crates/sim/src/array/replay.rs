//! A policy behind an admission rule over a trace, at the trace's times: what the devices of an array would have to do.

use flashwise_core::access::{Access, NEVER, Op};
use flashwise_core::account::{Account, Bits, Counts};
use flashwise_core::admission::adaptive::Decision;
use flashwise_core::admission::{Setting, Spec as Rule};
use flashwise_core::counters::Counters;
use flashwise_core::index::Dense;
use flashwise_core::policy::{Outcome, Policy, Spec, Visitor};
use flashwise_device::ArrayModel;

use super::queue::{Queues, Served};
use super::{Arrivals, Waits};
use crate::simulate::Counting;
use flashwise_trace::Trace;

/// Accesses between the hint that a block will be accessed and the access.
const PREFETCH_DISTANCE: usize = 12;

/// Accesses after which decisions are asked for. A timeframe has more, so that none is missed.
const DECISION_ACCESSES_MAX: u64 = 64;

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
    /// How long requests waited, if that was simulated.
    pub waits: Option<Waits>,
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

/// Runs `policy`, an online one, behind `rule` over `trace` in a cache of `capacity_blocks`, and counts as `counting` says.
///
/// With `waiting` requests wait for the devices of an array, as [`ArrayModel::check`] and [`Arrivals::check`] let them; those count whose last
/// access does. What the policy decides does not depend on it.
pub fn replay(
    trace: &Trace,
    policy: &Spec,
    rule: Option<&Rule>,
    capacity_blocks: usize,
    setting: &Setting,
    counting: Counting,
    waiting: Option<(&ArrayModel, Arrivals)>,
) -> Replayed {
    assert!(!policy.info().offline, "{policy} would need next uses");
    let waiting = waiting.filter(|(_, arrivals)| *arrivals != Arrivals::None);
    let queues = waiting.map(|(model, arrivals)| Queues::new(model, trace.block_size_bytes(), arrivals));
    let index = Dense::new(trace.unique_blocks());
    match rule {
        Some(rule) => rule.build(policy, index, capacity_blocks, setting, Replay { trace, counting, queues }),
        None => policy.build(index, capacity_blocks, Replay { trace, counting, queues }),
    }
}

struct Replay<'a> {
    trace: &'a Trace,
    counting: Counting,
    queues: Option<Queues>,
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

/// Notes the last decision, unless it is known already.
fn note<P: Policy>(policy: &P, decisions: &mut Vec<Decision>) {
    if let Some(decision) = policy.decision()
        && decision.number > decisions.len() as u64
    {
        decisions.push(decision.clone());
    }
}

impl Visitor<u32> for Replay<'_> {
    type Output = Replayed;

    fn visit<P: Policy<Key = u32>>(mut self, mut policy: P) -> Replayed {
        let mut account = Account::new(Bits::new(self.trace.unique_blocks()));
        let mut counters = Counters::default();
        let (mut warm, mut begun) = (Mark::default(), Mark::default());
        let mut epochs = Vec::new();
        let (warmup, epoch) =
            (self.counting.warmup.accesses(self.trace.len()), self.counting.epoch.unwrap_or(u64::MAX));
        let mut next_epoch = epoch;
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
                if position == warmup || position == next_epoch {
                    let mark = Mark { counts: *account.counts(), counters, time_us };
                    if position == warmup {
                        warm = mark;
                    }
                    if position == next_epoch {
                        epochs.push(begun.to(mark, decisions.len()));
                        begun = mark;
                        next_epoch = position.saturating_add(epoch);
                    }
                }
                position += 1;
                let op = if columns.op[at] == 0 { Op::Read } else { Op::Write };
                let (block, request_blocks) = (block as u32, columns.request_blocks[at]);
                let outcome = policy.access(Access { block, op, request_blocks, next_use: NEVER });
                let written_back = account.counts().written_back;
                account.record(block, op, &outcome);
                counters.record(op, &outcome);
                if let Some(queues) = &mut self.queues {
                    let written_back = match outcome {
                        Outcome::Admit { evicted } if account.counts().written_back > written_back => evicted,
                        _ => None,
                    };
                    let (request, counted) = (columns.request[at], position > warmup);
                    queues.access(&Served { request, time_us, block, op, outcome: &outcome, written_back, counted });
                }
                if position.is_multiple_of(DECISION_ACCESSES_MAX) || position == next_epoch {
                    note(&policy, &mut decisions);
                }
            }
        }
        note(&policy, &mut decisions);
        let end = Mark { counts: *account.counts(), counters, time_us };
        if self.counting.epoch.is_some() {
            epochs.push(begun.to(end, decisions.len()));
        }
        let Stretch { counts, counters, seconds, .. } = warm.to(end, decisions.len());
        Replayed { counts, counters, seconds, decisions, waits: self.queues.map(Queues::finish), epochs }
    }
}
