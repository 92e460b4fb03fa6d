//! Proofs over random worlds: as many as time allows, or as many as requested.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The size of a proof in a run of the tests.
#[derive(Clone, Debug)]
pub struct Budget {
    counts: Range<u64>,
    until: Instant,
}

impl Budget {
    /// Creates a budget of the number in the environment variable `name`; without it, as many as fit into `seconds`,
    /// within `counts`.
    pub fn new(name: &str, counts: Range<u64>, seconds: f64) -> Budget {
        let asked = std::env::var_os(name).map(|_| crate::setting(name, 0));
        let counts = asked.map_or(counts, |asked| asked..asked);
        Budget { counts, until: Instant::now() + Duration::from_secs_f64(seconds) }
    }

    /// True if more is to be done after `done`.
    pub fn goes_on(&self, done: u64) -> bool {
        done < self.counts.start || done < self.counts.end && Instant::now() < self.until
    }
}

/// Runs `one` for each number from 0 on, on all cores, while `goes_on` allows the next. Returns how many ran.
pub fn on_all_cores(goes_on: impl Fn(u64) -> bool + Sync, one: impl Fn(u64) + Sync) -> u64 {
    let begun = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let number = begun.fetch_add(1, Ordering::Relaxed);
                    if !goes_on(number) {
                        return;
                    }
                    one(number);
                }
            });
        }
    });
    // Each thread ends with a number that it does not run.
    begun.into_inner() - threads as u64
}
