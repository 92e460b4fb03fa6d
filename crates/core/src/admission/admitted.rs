//! A replacement policy behind a rule that judges each missed block, and what such a rule is.

use super::Rule;
use super::budget::{Budget, Pace};
use crate::access::{Access, Op};
use crate::index::Index;
use crate::options::Options;
use crate::policy::{Outcome, Policy, pass_on};

/// A rule that judges each missed block by itself, by a threshold.
pub trait Judge<I: Index>: Sized {
    /// The rule that `options` say, for a cache of `capacity` blocks of `block_bytes`. `index` is empty.
    fn build(options: &Options, index: I, capacity: usize, block_bytes: u64) -> Self;

    /// Judges by `threshold` from now on, which is one of the rule's [`Thresholds`](super::Thresholds).
    fn set_threshold(&mut self, threshold: f64);

    /// Whether the block of `access` is admitted if it is missed. The answer does not matter where `is_cached`, which is only asked by
    /// rules that treat hits in another way, or after a no: what is admitted is looked up once and not twice.
    fn judge(&mut self, access: &Access<I::Key>, is_cached: impl Fn() -> bool) -> bool;

    /// Notes that `block` is referenced and admitted without being judged.
    #[inline]
    fn note_admitted(&mut self, block: I::Key) {
        let _ = block;
    }

    /// Plans the next interval of a budget.
    #[inline]
    fn end_interval(&mut self, pace: Pace) {
        let _ = pace;
    }

    /// Notes that the policy evicted `block` for one that was admitted.
    #[inline]
    fn note_evicted(&mut self, block: I::Key) {
        let _ = block;
    }

    /// Notes that the cache has `len` blocks, after one was admitted or removed.
    #[inline]
    fn note_len(&mut self, len: usize, admitted: Option<I::Key>) {
        let _ = (len, admitted);
    }

    /// Whether anything is remembered of `block`.
    fn remembers(&self, block: I::Key) -> bool {
        let _ = block;
        false
    }

    /// Forgets `block`: it is to be one that was never seen.
    fn forget(&mut self, block: I::Key) {
        let _ = block;
    }

    /// The longest requests of which blocks are admitted: 0 if nothing is, `u64::MAX` if their length does not matter.
    fn request_blocks_max(&self) -> u64 {
        u64::MAX
    }

    /// A hint that `later` will be accessed soon and `soon`, for which the hint as `later` was given before, sooner.
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
    /// `rule` in front of `policy`, both for a cache of the same size. It judges reads and writes.
    pub fn new(rule: Rule<I>, policy: P) -> Self {
        Admitted { rule, admits_writes: false, budget: None, policy }
    }

    /// The same, which admits all writes if `admits_writes`.
    pub fn admitting_writes(self, admits_writes: bool) -> Self {
        Admitted { admits_writes, ..self }
    }

    /// The same, which writes no more than `budget`.
    pub fn within(self, budget: Option<Budget>) -> Self {
        Admitted { budget, ..self }
    }

    /// True if the budget, if there is one, has a block left.
    pub fn may_write(&self) -> bool {
        self.budget.as_ref().is_none_or(|budget| !budget.is_used_up())
    }

    /// The rule.
    pub fn rule(&self) -> &Rule<I> {
        &self.rule
    }

    fn note_written(&mut self) {
        if let Some(budget) = &mut self.budget {
            budget.note_written();
        }
    }

    /// Tells the rule what became of an access that it let through.
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

    /// The rule, to change its threshold.
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
