//! Write budget: a coin flip whose probability keeps the writes to the cache within a budget.
//!
//! Source: CacheLib's admission policy "dynamic random" (Berg et al.: The CacheLib caching engine. OSDI 2020), with its
//! constants. At the end of each interval the probability is multiplied by the allowed write rate over the actual one.
//! It changes by at most a quarter. The allowed rate is the one that would use up the budget within a day.
//!
//! - CacheLib asks the device for the bytes written; here the rule counts the blocks that it accepted: misses, and
//!   write hits.
//! - The probability does not depend on the length of a request.
//! - When the [budget](super::budget) is used up, nothing is written; the probability only spreads the writes over
//!   time.

use super::budget::{INTERVAL, Pace, WRITES_PER_DAY};
use super::probability::Probability;
use super::{Info, Judge, SEED, WRITES};
use crate::access::Access;
use crate::index::Index;
use crate::options::{Kind, Options, Parameter};

/// The row of the write budget in the table of rules.
pub static INFO: Info = Info {
    name: "write-budget",
    title: "Admits a portion of the misses at random that keeps to a budget of writes",
    source: "Berg et al.: The CacheLib caching engine. OSDI 2020, admission policy dynamic random",
    parameters: &[
        WRITES_PER_DAY,
        Parameter::of(INTERVAL, Kind::Duration(1_000_000, 86_400_000_000), "1min")
            .means("time between two changes of the probability"),
        WRITES,
        SEED,
    ],
    thresholds: None,
    decides: None,
};

/// Bounds of the factor by which the probability changes per interval.
const CHANGES: (f64, f64) = (0.75, 1.25);
/// Bounds of the probability. Above 1 everything is admitted, and it takes a while until less is.
const PROBABILITIES: (f64, f64) = (0.001, 10.0);

/// Admits misses at random within a budget.
#[derive(Debug)]
pub struct WriteBudget {
    probability: f64,
    coin: Probability,
}

impl<I: Index> Judge<I> for WriteBudget {
    fn build(options: &Options, _index: I, _capacity: usize, _block_bytes: u64) -> Self {
        WriteBudget { probability: 1.0, coin: Probability::with(1.0, options.count(SEED.name)) }
    }

    fn set_threshold(&mut self, threshold: f64) {
        unreachable!("a budget has no threshold that could be {threshold}");
    }

    #[cold]
    fn end_interval(&mut self, pace: Pace) {
        // If nothing was accepted, this is infinite, and clamped to the maximum.
        let change = (pace.allowed.max(f64::MIN_POSITIVE) / pace.wanted).clamp(CHANGES.0, CHANGES.1);
        self.probability = (self.probability * change).clamp(PROBABILITIES.0, PROBABILITIES.1);
        self.coin.set_p(self.probability.min(1.0));
    }

    #[inline(always)]
    fn judge(&mut self, _access: &Access<I::Key>, is_cached: impl Fn() -> bool) -> bool {
        self.coin.admits() || is_cached()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::{Admitted, Rule, budget::Budget};
    use crate::index::Dense;
    use crate::policy::lru::Lru;
    use crate::policy::{Outcome, Policy};

    fn rule() -> WriteBudget {
        Judge::<Dense>::build(&Options::default_of(INFO.parameters), Dense::new(0), 86_400, 4096)
    }

    /// 120 blocks where 60 are allowed: the smallest factor, 3/4. Then 54 where 66 are: 66 / 54. Then none: the
    /// largest, 5/4.
    #[test]
    fn the_probability_follows_the_rate_that_is_left() {
        let mut rule = rule();
        for (wanted, allowed, expected) in
            [(120.0, 60.0, 0.75), (54.0, 66.0, 0.75 * 66.0 / 54.0), (0.0, 99.0, 0.9375 * 66.0 / 54.0)]
        {
            Judge::<Dense>::end_interval(&mut rule, Pace { wanted, allowed, next: 0.0 });
            assert!((rule.probability - expected).abs() < 1e-12, "{} after {wanted}", rule.probability);
        }
    }

    /// Ten misses a second for five days, and a budget of one a second: all of it is used, spread over each hour.
    #[test]
    fn writes_use_the_budget_and_stay_within_it() {
        let options = Options::default_of(INFO.parameters);
        let budget = Budget::of(INFO.parameters, &options, 86_400);
        let mut cache =
            Admitted::new(Rule::<Dense>::WriteBudget(rule()), Lru::new(Dense::new(0), 86_400, &options)).within(budget);
        let (mut written, mut refused_by_coin) = (0_u64, 0_u64);
        for tenth in 0..5 * 864_000_u32 {
            cache.tick(u64::from(tenth) * 100_000);
            let had_budget = cache.may_write();
            let is_written = cache.access(Access::read(tenth)) != Outcome::Bypass;
            written += u64::from(is_written);
            refused_by_coin += u64::from(had_budget && !is_written);
        }
        let share = written as f64 / (5.0 * 86_400.0);
        assert!((0.97..=1.0).contains(&share), "{share} of the budget");
        assert!(refused_by_coin > 400_000, "the coin refused {refused_by_coin} misses that the budget had a block for");
    }
}
