//! A budget of writes to the cache, and how fast it may be used.
//!
//! Source: CacheLib's admission policy "dynamic random" (Berg et al.: The CacheLib caching engine. OSDI 2020): the rate at which may be
//! written is what would have used up the budget a day from now on.

use crate::options::{Kind, Options, Parameter};

const DAY_US: f64 = 86_400e6;

/// `writes-per-day`: the budget.
pub const WRITES_PER_DAY: Parameter = Parameter {
    name: "writes-per-day",
    kind: Kind::Number(0.0001, 1_000_000.0),
    default: "1",
    meaning: "how often a day the cache may be written in full (DWPD)",
};

/// What was written so far of what may be.
#[derive(Clone, Debug)]
pub struct Budget {
    /// Blocks per microsecond.
    target_rate: f64,
    interval_us: u64,
    /// When the first access was, and when the last interval ended.
    began_us: Option<u64>,
    ended_us: u64,
    /// Blocks written since the first access, and in this interval.
    written: u64,
    written_since: u64,
}

/// The end of an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// How long the interval was, in microseconds.
    pub elapsed_us: f64,
    /// Blocks that were written in it.
    pub written: f64,
    /// Blocks that may be written in as much time, below 0 if too many were.
    pub allowed: f64,
}

impl Budget {
    /// The budget of `options`, which have [`WRITES_PER_DAY`] and an `interval`, for a cache of `capacity` blocks.
    pub fn new(options: &Options, capacity: usize) -> Budget {
        Budget {
            target_rate: options.number(WRITES_PER_DAY.name) * capacity as f64 / DAY_US,
            interval_us: options.duration_us("interval"),
            began_us: None,
            ended_us: 0,
            written: 0,
            written_since: 0,
        }
    }

    /// A block is written.
    #[inline]
    pub fn note_written(&mut self) {
        self.written += 1;
        self.written_since += 1;
    }

    /// Tells the time, which never goes back; what there is to say if an interval ends.
    #[inline]
    pub fn tick(&mut self, now_us: u64) -> Option<Pace> {
        let Some(began_us) = self.began_us else {
            (self.began_us, self.ended_us) = (Some(now_us), now_us);
            return None;
        };
        (now_us - self.ended_us >= self.interval_us).then(|| self.end_interval(began_us, now_us))
    }

    #[cold]
    fn end_interval(&mut self, began_us: u64, now_us: u64) -> Pace {
        let left = self.target_rate * ((now_us - began_us) as f64 + DAY_US) - self.written as f64;
        let elapsed_us = (now_us - self.ended_us) as f64;
        let pace = Pace { elapsed_us, written: self.written_since as f64, allowed: left / DAY_US * elapsed_us };
        (self.ended_us, self.written_since) = (now_us, 0);
        pace
    }
}

/// A budget that is never exceeded but by what nobody asks: what comes in with the rate is there to be spent, at most a day's.
#[derive(Clone, Debug)]
pub struct Allowance {
    /// Blocks per microsecond.
    rate: f64,
    interval_us: u64,
    /// Blocks that may be written now; below 0 after write hits that could not be refused.
    left: f64,
    /// The last access, and when the last interval ended; none before the first access.
    at_us: Option<(u64, u64)>,
}

/// The share of what was saved that may be spent in an interval.
const SPENT: f64 = 0.5;

impl Allowance {
    /// The budget of `options`, which have [`WRITES_PER_DAY`] and an `interval`, for a cache of `capacity` blocks. An interval's blocks are there at once.
    pub fn new(options: &Options, capacity: usize) -> Allowance {
        let rate = options.number(WRITES_PER_DAY.name) * capacity as f64 / DAY_US;
        let interval_us = options.duration_us("interval");
        Allowance { rate, interval_us, left: rate * interval_us as f64, at_us: None }
    }

    /// A block is written.
    #[inline]
    pub fn note_written(&mut self) {
        self.left -= 1.0;
    }

    /// Whether nothing more may be written now.
    #[inline]
    pub fn is_used_up(&self) -> bool {
        self.left <= 0.0
    }

    /// Tells the time, which never goes back; how many blocks may be written in the next interval, if one ends.
    #[inline]
    pub fn tick(&mut self, now_us: u64) -> Option<f64> {
        let (at_us, ended_us) = *self.at_us.get_or_insert((now_us, now_us));
        self.left = (self.left + self.rate * (now_us - at_us) as f64).min(self.rate * DAY_US);
        let ends = now_us - ended_us >= self.interval_us;
        self.at_us = Some((now_us, if ends { now_us } else { ended_us }));
        ends.then(|| {
            let of_interval = self.rate * self.interval_us as f64;
            (of_interval + SPENT * (self.left - of_interval)).max(0.0)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 86,400 blocks a day are one a second, and an interval is a minute. 60 are there at once; 80 are written, of which 20 could not be refused. After
    /// a minute 40 are there: 60 + (40 - 60) / 2 may be written in the next. After ten minutes without writes 640 are: 60 + (640 - 60) / 2. After a year a
    /// day's are.
    #[test]
    fn what_is_saved_may_be_spent_and_no_more() {
        const MINUTE_US: u64 = 60_000_000;
        const INTERVAL: Parameter =
            Parameter { name: "interval", kind: Kind::Duration(1, 1 << 40), default: "1min", meaning: "" };
        static PARAMETERS: [Parameter; 2] = [WRITES_PER_DAY, INTERVAL];
        let mut allowance = Allowance::new(&Options::parse("test", &PARAMETERS, "").unwrap(), 86_400);
        let near = |found: Option<f64>, expected: f64| {
            assert!((found.unwrap() - expected).abs() < 1e-6, "{found:?}, {expected}")
        };
        assert_eq!(allowance.tick(5), None);
        for written in 0..80 {
            assert_eq!(allowance.is_used_up(), written >= 60);
            allowance.note_written();
        }
        assert_eq!(allowance.tick(5 + MINUTE_US - 1), None);
        near(allowance.tick(5 + MINUTE_US), 50.0);
        near(allowance.tick(5 + 11 * MINUTE_US), 350.0);
        near(allowance.tick(365 * 24 * 60 * MINUTE_US), 60.0 + (86_400.0 - 60.0) / 2.0);
    }
}
