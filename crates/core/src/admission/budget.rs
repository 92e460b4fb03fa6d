//! An enforced budget of writes to the cache: time adds to it, and nothing else does.
//!
//! Source: CacheLib's admission policy "dynamic random" (Berg et al.: The CacheLib caching engine. OSDI 2020) for a
//! rule's planned rate: the one that would use up the budget within a day.
//!
//! Departures from its code: CacheLib only plans. Here a miss without a block left in the budget is rejected. A write
//! hit is rejected too: it goes to storage, and its block leaves the cache.

use crate::access::{Access, Op};
use crate::options::{Kind, OptionError, Options, Parameter};
use crate::policy::Policy;

const DAY_US: f64 = 86_400e6;
const MINUTE_US: f64 = 60e6;

/// Upper limit of full writes per day, above any real flash.
const WRITES_PER_DAY_MAX: f64 = 1_000_000.0;

/// `writes-per-day`: the budget.
pub const WRITES_PER_DAY: Parameter = Parameter::of("writes-per-day", Kind::Number(0.0001, WRITES_PER_DAY_MAX), "1")
    .means("full writes of the cache allowed per day (DWPD)");

/// `interval`: the time between two plans of a rule. Rules with a budget but without intervals do not have this option.
pub const INTERVAL: &str = "interval";

/// Rejects options whose budget cannot be enforced because all writes are admitted.
///
/// # Errors
/// Names `writes`, its value, and the value that the budget needs.
pub(super) fn check(owner: &str, parameters: &[Parameter], options: &Options) -> Result<(), OptionError> {
    let has = |name: &str| parameters.iter().any(|parameter| parameter.name == name) && options.has(name);
    let (budget, writes) = (WRITES_PER_DAY.name, super::WRITES.name);
    if has(budget) && has(writes) && super::admits_writes(options) {
        let expected = format!("filter: the budget of {budget} cannot hold if all writes are admitted");
        return Err(OptionError::bad_value(owner, writes, options.text(writes), expected));
    }
    Ok(())
}

/// The figures at the end of an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Blocks that the rule accepted in it, written or not.
    pub wanted: f64,
    /// Blocks that could be written in the same time at the rate that uses up the budget within a day.
    pub allowed: f64,
    /// Blocks that may be written in the next interval: its own share, and half of the savings.
    pub next: f64,
}

/// A budget of block writes. Time adds to it, writes subtract from it; the savings are limited to one day's share. It
/// starts empty.
#[derive(Clone, Debug)]
pub struct Budget {
    /// Blocks per microsecond.
    rate: f64,
    interval_us: u64,
    /// Blocks that may be written now. Negative after writes that the cache could not avoid.
    left: f64,
    /// Blocks that the rule accepted in this interval.
    wanted: f64,
    /// The times of the last access and of the end of the last interval; `None` before the first access.
    at_us: Option<(u64, u64)>,
}

/// Tolerance for rounding errors in sums of many small numbers.
const ROUNDING: f64 = 1e-6;
/// The share of the savings that may be used in one interval.
const SPENT: f64 = 0.5;

impl Budget {
    /// Returns the budget of `options` for a cache of `capacity` blocks, if set. `parameters` are those of the options.
    pub fn of(parameters: &[Parameter], options: &Options, capacity: usize) -> Option<Budget> {
        let has = |name: &str| parameters.iter().any(|parameter| parameter.name == name) && options.has(name);
        let writes_per_day = has(WRITES_PER_DAY.name).then(|| options.number(WRITES_PER_DAY.name))?;
        let interval_us = if has(INTERVAL) { options.duration_us(INTERVAL) } else { u64::MAX };
        // No flash endures more writes than this.
        let rate = writes_per_day.min(WRITES_PER_DAY_MAX) * capacity as f64 / DAY_US;
        Some(Budget { rate, interval_us, left: 0.0, wanted: 0.0, at_us: None })
    }

    /// Counts a block written because of an access.
    #[inline]
    pub fn note_written(&mut self) {
        self.wanted += 1.0;
        self.left -= 1.0;
    }

    /// Counts blocks written for other reasons than an access; negative numbers are blocks of accesses that were not
    /// written after all.
    pub fn note_others(&mut self, blocks: f64) {
        self.left -= blocks;
    }

    /// Limits the rest of the budget to this many blocks.
    pub fn limit(&mut self, blocks: f64) {
        self.left = self.left.min(blocks);
    }

    /// True if no block may be written now.
    #[inline]
    pub fn is_used_up(&self) -> bool {
        self.left < 1.0 - ROUNDING
    }

    /// True if writes that the cache could not avoid have taken more than a minute brings.
    pub fn is_overdrawn(&self) -> bool {
        self.left < -self.rate * MINUTE_US
    }

    /// True if an accepted `access` must not write the flash because the budget is used up. If it writes a block that
    /// `policy` holds, the block leaves the cache.
    #[inline]
    pub fn refuses<P: Policy>(&mut self, access: &Access<P::Key>, policy: &mut P) -> bool {
        self.is_used_up() && self.refuse(access, policy)
    }

    fn refuse<P: Policy>(&mut self, access: &Access<P::Key>, policy: &mut P) -> bool {
        let is_cached = policy.contains(access.block);
        if is_cached && access.op == Op::Read {
            return false;
        }
        self.wanted += 1.0;
        if is_cached {
            policy.refuse(access.block);
        }
        true
    }

    /// Sets the time, which never decreases. Returns the figures for planning if an interval ends.
    #[inline]
    pub fn tick(&mut self, now_us: u64) -> Option<Pace> {
        let (at_us, ended_us) = *self.at_us.get_or_insert((now_us, now_us));
        self.left = (self.left + self.rate * (now_us - at_us) as f64).min((self.rate * DAY_US).max(1.0));
        let ends = now_us - ended_us >= self.interval_us;
        self.at_us = Some((now_us, if ends { now_us } else { ended_us }));
        ends.then(|| self.end_interval((now_us - ended_us) as f64))
    }

    #[cold]
    fn end_interval(&mut self, elapsed_us: f64) -> Pace {
        let of_interval = self.rate * self.interval_us as f64;
        Pace {
            wanted: std::mem::take(&mut self.wanted),
            allowed: (self.rate + self.left / DAY_US) * elapsed_us,
            next: (of_interval + SPENT * (self.left - of_interval)).max(0.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::Spec;
    use crate::index::Dense;
    use crate::policy::lru::Lru;

    /// 86,400 blocks a day are one per second, and an interval is a minute. The budget starts empty. After a minute it
    /// has 60 blocks, and 60 may be written in the next. After ten more minutes with 20 written it has 640: 60 + (640 -
    /// 60) / 2. After a year it has one day's share.
    #[test]
    fn only_saved_credit_is_spent() {
        const MINUTE_US: u64 = super::MINUTE_US as u64;
        let rule: Spec = "baleen".parse().unwrap();
        let mut budget = Budget::of(rule.info().parameters, rule.options(), 86_400).unwrap();
        let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-6, "{found}, {expected}");
        assert_eq!(budget.tick(5), None);
        assert!(budget.is_used_up());
        assert_eq!(budget.tick(5 + MINUTE_US - 1), None);
        near(budget.tick(5 + MINUTE_US).unwrap().next, 60.0);
        for written in 0..60 {
            assert!(!budget.is_used_up(), "{written}");
            budget.note_written();
        }
        assert!(budget.is_used_up());
        budget.note_others(-40.0);
        let pace = budget.tick(5 + 11 * MINUTE_US).unwrap();
        near(pace.next, 350.0);
        near(pace.wanted, 60.0);
        near(pace.allowed, 600.0 * (1.0 + 640.0 / 86_400.0));
        near(budget.tick(365 * 24 * 60 * MINUTE_US).unwrap().next, 60.0 + (86_400.0 - 60.0) / 2.0);
    }

    /// 86,400 blocks a day are one a second.
    #[test]
    fn a_limit_takes_saved_credit_and_not_future_credit() {
        let rule: Spec = "write-budget".parse().unwrap();
        let mut budget = Budget::of(rule.info().parameters, rule.options(), 86_400).unwrap();
        budget.tick(0);
        budget.tick(100_000_000);
        budget.limit(200.0);
        assert!(!budget.is_used_up());
        budget.limit(-61.0);
        assert!(budget.is_overdrawn());
        budget.tick(101_500_000);
        assert!(!budget.is_overdrawn());
        budget.tick(161_900_000);
        assert!(budget.is_used_up());
        budget.tick(162_000_000);
        assert!(!budget.is_used_up());
    }

    #[test]
    fn without_budget_a_write_of_a_cached_block_leaves_the_cache_and_a_read_is_a_hit() {
        let rule: Spec = "write-budget".parse().unwrap();
        let mut budget = Budget::of(rule.info().parameters, rule.options(), 10).unwrap();
        let mut lru = Lru::new(Dense::new(10), 10, &Options::default());
        lru.access(Access::read(1));
        assert!(!budget.refuses(&Access::read(1), &mut lru) && lru.contains(1));
        assert!(budget.refuses(&Access::read(2), &mut lru));
        assert!(budget.refuses(&Access::write(1), &mut lru) && lru.is_empty());
        budget.note_others(-1.0);
        assert!(!budget.refuses(&Access::write(1), &mut lru));
    }

    #[test]
    fn a_budget_and_writes_that_are_always_admitted_do_not_go_together() {
        for rule in ["write-budget:writes=admit", "baleen:writes=admit", "adaptive:writes-per-day=1,writes=admit"] {
            let error = Spec::parse(rule).unwrap_err().to_string();
            assert!(error.contains("writes: found 'admit', expected filter: the budget of writes-per-day"), "{error}");
        }
        assert!(Spec::parse("adaptive:writes=admit").is_ok());
    }
}
