//! Write budget: a coin flip whose probability keeps what is written to the cache within a budget.
//!
//! Source: CacheLib's admission policy "dynamic random" (Berg et al.: The CacheLib caching engine. OSDI 2020), with its constants: at
//! the end of each interval the probability is multiplied by the rate at which may be written over that at which was, and by a quarter
//! more or less at most. The rate at which may be written is what would have used up the budget a day from then on.
//!
//! Departures from its code:
//! - CacheLib asks the device what was written; here that are blocks that were let through to the policy and missed, and write hits.
//! - The probability does not depend on the length of a request.

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
        Parameter {
            name: "writes-per-day",
            kind: Kind::Number(0.0001, 1_000_000.0),
            default: "1",
            meaning: "how often a day the cache may be written in full (DWPD)",
        },
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

const DAY_US: f64 = 86_400e6;
/// By how much the probability changes at most from one interval to the next.
const CHANGES: (f64, f64) = (0.75, 1.25);
/// Between which bounds it stays. Above 1 all is admitted, and it takes a while until less is.
const PROBABILITIES: (f64, f64) = (0.001, 10.0);

/// Admits at random what a budget allows.
#[derive(Debug)]
pub struct WriteBudget {
    /// Blocks per microsecond.
    target_rate: f64,
    interval_us: u64,
    /// When the first access was, and when the probability was changed last.
    began_us: Option<u64>,
    changed_us: u64,
    /// Blocks written since the first access, and since the last change.
    written: u64,
    written_since: u64,
    probability: f64,
    coin: Probability,
}

impl WriteBudget {
    /// Changes the probability at `now_us`.
    #[cold]
    fn change(&mut self, began_us: u64, now_us: u64) {
        let elapsed_us = (now_us - began_us) as f64;
        let observed_rate = self.written_since as f64 / (now_us - self.changed_us) as f64;
        self.changed_us = now_us;
        if observed_rate > 0.0 {
            let left = self.target_rate * (elapsed_us + DAY_US) - self.written as f64;
            let change = (left / DAY_US / observed_rate).clamp(CHANGES.0, CHANGES.1);
            self.probability = (self.probability * change).clamp(PROBABILITIES.0, PROBABILITIES.1);
            self.coin.set_p(self.probability.min(1.0));
            self.written_since = 0;
        }
    }
}

impl<I: Index> Judge<I> for WriteBudget {
    fn build(options: &Options, _index: I, capacity: usize, _block_bytes: u64) -> Self {
        WriteBudget {
            target_rate: options.number("writes-per-day") * capacity as f64 / DAY_US,
            interval_us: options.duration_us("interval"),
            began_us: None,
            changed_us: 0,
            written: 0,
            written_since: 0,
            probability: 1.0,
            coin: Probability::with(1.0, options.count(SEED.name)),
        }
    }

    fn set_threshold(&mut self, threshold: f64) {
        unreachable!("a budget has no threshold that could be {threshold}");
    }

    #[inline]
    fn tick(&mut self, time_us: u64) {
        let Some(began_us) = self.began_us else {
            (self.began_us, self.changed_us) = (Some(time_us), time_us);
            return;
        };
        if time_us - self.changed_us >= self.interval_us {
            self.change(began_us, time_us);
        }
    }

    #[inline(always)]
    fn judge(&mut self, _access: &Access<I::Key>, is_cached: impl Fn() -> bool) -> bool {
        self.coin.admits() || is_cached()
    }

    #[inline]
    fn note_written(&mut self) {
        self.written += 1;
        self.written_since += 1;
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
