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
