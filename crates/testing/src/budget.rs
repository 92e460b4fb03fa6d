//! Proofs over random worlds: as many as there is time for, or as many as are asked for.

use std::ops::Range;
use std::time::{Duration, Instant};

/// How much of a proof is done in a run of the tests.
#[derive(Clone, Debug)]
pub struct Budget {
    counts: Range<u64>,
    until: Instant,
}

impl Budget {
    /// As many as the environment variable `name` asks for. Without it, as many as `seconds` are enough for, within `counts`.
    pub fn new(name: &str, counts: Range<u64>, seconds: f64) -> Budget {
        let asked = std::env::var_os(name).map(|_| crate::setting(name, 0));
        let counts = asked.map_or(counts, |asked| asked..asked);
        Budget { counts, until: Instant::now() + Duration::from_secs_f64(seconds) }
    }

    /// Whether more is to be done once `done` is.
    pub fn goes_on(&self, done: u64) -> bool {
        done < self.counts.start || done < self.counts.end && Instant::now() < self.until
    }
}
