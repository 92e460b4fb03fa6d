//! A replacement policy behind a rule that judges each missed block, and the trait of such rules.

use super::Rule;
use super::budget::{Budget, Pace};
use crate::access::{Access, Op};
use crate::index::Index;
use crate::options::Options;
use crate::policy::{Outcome, Policy, pass_on};

/// A rule that judges each missed block independently, by a threshold.
pub trait Judge<I: Index>: Sized {
    /// Builds the rule with `options`, for a cache of `capacity` blocks of `block_bytes`. `index` must be empty.
    fn build(options: &Options, index: I, capacity: usize, block_bytes: u64) -> Self;

    /// Sets the threshold, one of the rule's [`Thresholds`](super::Thresholds).
    fn set_threshold(&mut self, threshold: f64);

    /// True if the block of `access` is admitted when missed. For cached blocks the answer does not matter. Only rules
    /// that treat hits differently call `is_cached`, or rules about to reject, so an admitted block is looked up once.
    fn judge(&mut self, access: &Access<I::Key>, is_cached: impl Fn() -> bool) -> bool;

    /// Records a reference to `block`, which is admitted without judgement.
    #[inline]
    fn note_admitted(&mut self, block: I::Key) {
        let _ = block;
    }

    /// Plans the next interval of a budget.
    #[inline]
    fn end_interval(&mut self, pace: Pace) {
        let _ = pace;
    }

    /// Records that the policy evicted `block` for an admitted one.
    #[inline]
    fn note_evicted(&mut self, block: I::Key) {
        let _ = block;
    }

    /// Records that the cache has `len` blocks, after one was admitted or removed.
    #[inline]
    fn note_len(&mut self, len: usize, admitted: Option<I::Key>) {
        let _ = (len, admitted);
    }

    /// True if the rule remembers `block`.
    fn remembers(&self, block: I::Key) -> bool {
        let _ = block;
        false
    }

    /// Forgets `block`: the next access to it counts as the first.
    fn forget(&mut self, block: I::Key) {
        let _ = block;
    }

    /// Returns the longest requests whose blocks are admitted, in blocks: 0 for none, `u64::MAX` if the length does not
    /// matter.
    fn request_blocks_max(&self) -> u64 {
        u64::MAX
    }

    /// Hints that `later` will be accessed soon, and `soon`, an earlier `later`, even sooner.
    #[inline]
    fn prefetch(&self, soon: I::Key, later: I::Key) {
        let _ = (soon, later);
    }

    /// Asserts the rule's invariants. Slow; for tests.
    fn check(&self) {}
}

/// A replacement policy behind an admission rule; see the [module](super).
#[derive(Debug)]
pub struct Admitted<P, I: Index> {
    rule: Rule<I>,
    admits_writes: bool,
    budget: Option<Budget>,
    policy: P,
}

impl<P: Policy<Key = I::Key>, I: Index> Admitted<P, I> {
    /// Creates `rule` in front of `policy`, both for a cache of the same size. It judges reads and writes.
    pub fn new(rule: Rule<I>, policy: P) -> Self {
        Admitted { rule, admits_writes: false, budget: None, policy }
    }

    /// Admits all writes if `admits_writes`.
    pub fn admitting_writes(self, admits_writes: bool) -> Self {
        Admitted { admits_writes, ..self }
    }

    /// Limits writes to `budget`.
    pub fn within(self, budget: Option<Budget>) -> Self {
        Admitted { budget, ..self }
    }

    /// True if there is no budget, or it has a block left.
    pub fn may_write(&self) -> bool {
        self.budget.as_ref().is_none_or(|budget| !budget.is_used_up())
    }

    /// Returns the rule.
    pub fn rule(&self) -> &Rule<I> {
        &self.rule
    }

    fn note_written(&mut self) {
        if let Some(budget) = &mut self.budget {
            budget.note_written();
        }
    }

    /// Reports the outcome of an access that the rule accepted.
    #[inline(always)]
    fn note(&mut self, access: &Access<I::Key>, outcome: &Outcome<I::Key>) {
        match *outcome {
            Outcome::Admit { evicted } => {
                self.note_written();
                if let Some(evicted) = evicted {
                    self.rule.note_evicted(evicted);
                }
                self.rule.note_len(self.policy.len(), Some(access.block));
            }
            Outcome::Hit if access.op == Op::Write => self.note_written(),
            _ => {}
        }
    }

    /// Returns the rule, to change its threshold.
    pub fn rule_mut(&mut self) -> &mut Rule<I> {
        &mut self.rule
    }
}

impl<P: Policy<Key = I::Key>, I: Index> Policy for Admitted<P, I> {
    type Key = I::Key;

    pass_on!(self => self.policy);

    #[inline(always)]
    fn access(&mut self, access: Access<I::Key>) -> Outcome<I::Key> {
        let admitted = if self.admits_writes && access.op == Op::Write {
            self.rule.note_admitted(access.block);
            true
        } else {
            self.rule.judge(&access, || self.policy.contains(access.block))
        };
        if !admitted {
            return Outcome::Bypass;
        }
        if let Some(budget) = &mut self.budget
            && budget.refuses(&access, &mut self.policy)
        {
            self.rule.note_len(self.policy.len(), None);
            return Outcome::Bypass;
        }
        let outcome = self.policy.access(access);
        self.note(&access, &outcome);
        outcome
    }

    fn remove(&mut self, block: I::Key) -> bool {
        self.rule.forget(block);
        let removed = self.policy.remove(block);
        self.rule.note_len(self.policy.len(), None);
        removed
    }

    #[inline]
    fn tick(&mut self, time_us: u64) {
        if let Some(budget) = &mut self.budget
            && let Some(pace) = budget.tick(time_us)
        {
            self.rule.end_interval(pace);
        }
        self.policy.tick(time_us);
    }

    fn note_others_written(&mut self, blocks: f64) {
        if let Some(budget) = &mut self.budget {
            budget.note_others(blocks);
        }
    }

    fn is_overdrawn(&self) -> bool {
        self.budget.as_ref().is_some_and(Budget::is_overdrawn)
    }

    fn limit_budget(&mut self, blocks: f64) {
        if let Some(budget) = &mut self.budget {
            budget.limit(blocks);
        }
    }

    fn warm(&mut self, block: I::Key) -> Outcome<I::Key> {
        self.policy.warm(block)
    }

    #[inline]
    fn prefetch(&self, soon: I::Key, later: I::Key) {
        self.policy.prefetch(soon, later);
        self.rule.prefetch(soon, later);
    }

    fn check(&self) {
        self.policy.check();
        self.rule.check();
    }
}
