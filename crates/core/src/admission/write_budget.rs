//! Write budget: a coin flip whose probability keeps what is written to the cache within a budget.
//!
//! Source: CacheLib's admission policy "dynamic random" (Berg et al.: The CacheLib caching engine. OSDI 2020), with its constants: at
//! the end of each interval the probability is multiplied by the rate at which may be written over that at which was, and by a quarter
//! more or less at most. The rate at which may be written is what would have used up the budget a day from then on.
//!
//! Departures from its code:
//! - CacheLib asks the device what was written; here that are blocks that were let through to the policy and missed, and write hits.
//! - The probability does not depend on the length of a request.

use super::budget::{Budget, Pace, WRITES_PER_DAY};
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
        Parameter {
            name: "interval",
            kind: Kind::Duration(1_000_000, 86_400_000_000),
            default: "1min",
            meaning: "time between two changes of the probability",
        },
        WRITES,
        SEED,
    ],
    thresholds: None,
    decides: None,
};

/// By how much the probability changes at most from one interval to the next.
const CHANGES: (f64, f64) = (0.75, 1.25);
/// Between which bounds it stays. Above 1 all is admitted, and it takes a while until less is.
const PROBABILITIES: (f64, f64) = (0.001, 10.0);

/// Admits at random what a budget allows.
#[derive(Debug)]
pub struct WriteBudget {
    budget: Budget,
    probability: f64,
    coin: Probability,
}

impl WriteBudget {
    /// An interval ended.
    #[cold]
    fn change(&mut self, pace: Pace) {
        let change = (pace.allowed / pace.written).clamp(CHANGES.0, CHANGES.1);
        self.probability = (self.probability * change).clamp(PROBABILITIES.0, PROBABILITIES.1);
        self.coin.set_p(self.probability.min(1.0));
    }
}

impl<I: Index> Judge<I> for WriteBudget {
    fn build(options: &Options, _index: I, capacity: usize, _block_bytes: u64) -> Self {
        WriteBudget {
            budget: Budget::new(options, capacity),
            probability: 1.0,
            coin: Probability::with(1.0, options.count(SEED.name)),
        }
    }

    fn set_threshold(&mut self, threshold: f64) {
        unreachable!("a budget has no threshold that could be {threshold}");
    }

    #[inline]
    fn tick(&mut self, time_us: u64) {
        // Where nothing was written there is nothing to go by.
        if let Some(pace) = self.budget.tick(time_us).filter(|pace| pace.written > 0.0) {
            self.change(pace);
        }
    }

    #[inline(always)]
    fn judge(&mut self, _access: &Access<I::Key>, is_cached: impl Fn() -> bool) -> bool {
        self.coin.admits() || is_cached()
    }

    #[inline]
    fn note_written(&mut self) {
        self.budget.note_written();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Dense;

    const MINUTE_US: u64 = 60_000_000;

    fn rule(options: &str, capacity: usize) -> WriteBudget {
        let options = Options::parse("write-budget", INFO.parameters, options).unwrap();
        Judge::<Dense>::build(&options, Dense::new(0), capacity, 4096)
    }

    /// A budget of 86,400 blocks a day is 1 a second. 120 in the first minute are 2 a second; what is left for a day and a minute less
    /// these is 86,340 / 86,400 = 0.9993 a second, half of what was written: the least change, 3/4. Then 54 in a minute, 0.9 a
    /// second: (86,520 - 174) / 86,400 / 0.9 = 1.1104 times as much. Then none, which changes nothing.
    #[test]
    fn the_probability_follows_the_rate_that_is_left() {
        let mut rule = rule("", 86_400);
        Judge::<Dense>::tick(&mut rule, 0);
        let rows = [(120, 0.75), (54, 0.75 * (86_520.0 - 174.0) / 86_400.0 / 0.9), (0, 0.832_81)];
        for (number, (written, expected)) in (1..).zip(rows) {
            (0..written).for_each(|_| Judge::<Dense>::note_written(&mut rule));
            Judge::<Dense>::tick(&mut rule, number * MINUTE_US);
            assert!((rule.probability - expected).abs() < 1e-4, "{} after {written}", rule.probability);
        }
    }

    /// Ten misses a second for five days, and a budget of one a second.
    #[test]
    fn what_is_written_keeps_to_the_budget() {
        let mut rule = rule("", 86_400);
        let mut written = 0_u64;
        for tenth in 0..5 * 864_000_u64 {
            Judge::<Dense>::tick(&mut rule, tenth * 100_000);
            if Judge::<Dense>::judge(&mut rule, &Access::read(0), || false) {
                Judge::<Dense>::note_written(&mut rule);
                written += 1;
            }
        }
        let share = written as f64 / (5.0 * 86_400.0);
        assert!((0.97..1.03).contains(&share), "{share} of the budget");
    }
}
