//! Polling for a client's next request before sleeping.
//!
//! Waking a thread takes longer than answering a request from memory. So a connection whose client responds fast polls
//! for the next request for up to [`POLL_TIME_MAX`] before it sleeps. This is limited to cases where it helps, as in
//! Linux's halt polling for guests (Documentation/virt/kvm/halt-polling.rst). A connection polls only after a short
//! wait, and not after it polled in vain or for long data. At least one core is left to others.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Longest time to poll, and the longest wait that polling would have shortened.
pub const POLL_TIME_MAX: Duration = Duration::from_micros(50);

/// Number of connections that may start to poll.
static TURNS_LEFT: LazyLock<AtomicUsize> =
    LazyLock::new(|| AtomicUsize::new(std::thread::available_parallelism().map_or(0, |cores| cores.get() - 1)));

/// After more than this number of single requests in a row, the client is assumed to wait for each reply.
const ALONE_MIN: u32 = 8;

/// Detects a client that waits for each answer before its next request. Its connection can wait for a device itself,
/// because no further request is delayed.
#[derive(Debug, Default)]
pub struct Solitude {
    alone: u32,
}

impl Solitude {
    /// Records a request. It is `alone` if all earlier ones were answered and none follows it yet.
    pub fn comes(&mut self, alone: bool) {
        self.alone = if alone { self.alone.saturating_add(1) } else { 0 };
    }

    /// True if probably no other request arrives before the last one is answered.
    pub fn is_likely(&self) -> bool {
        self.alone > ALONE_MIN
    }
}

/// State of polling of one connection.
#[derive(Debug, Default)]
pub struct Polling {
    worth_it: bool,
}

impl Polling {
    /// Returns a turn to poll, if it is worthwhile and not too many others poll.
    pub fn begin(&self) -> Option<Turn> {
        if !self.worth_it {
            return None;
        }
        let take = |left: usize| left.checked_sub(1);
        TURNS_LEFT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
        Some(Turn { until: Instant::now() + POLL_TIME_MAX })
    }

    /// Records how long the connection waited, including the time it polled.
    pub fn slept(&mut self, time: Duration) {
        self.worth_it = time <= POLL_TIME_MAX;
    }
}

/// A period in which a connection polls.
#[derive(Debug)]
pub struct Turn {
    until: Instant,
}

impl Turn {
    /// True until it ends.
    pub fn lasts(&self) -> bool {
        Instant::now() < self.until
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        TURNS_LEFT.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_polls_after_short_waits_only() {
        let mut polling = Polling::default();
        assert!(polling.begin().is_none(), "nothing is known of the client");
        polling.slept(POLL_TIME_MAX + Duration::from_nanos(1));
        assert!(polling.begin().is_none());
        polling.slept(POLL_TIME_MAX);
        assert!(polling.worth_it);
    }

    #[test]
    fn a_client_is_solitary_after_several_requests_until_two_overlap() {
        let mut solitude = Solitude::default();
        (0..ALONE_MIN).for_each(|_| solitude.comes(true));
        assert!(!solitude.is_likely());
        solitude.comes(true);
        assert!(solitude.is_likely());
        solitude.comes(false);
        assert!(!solitude.is_likely());
    }

    #[test]
    fn one_core_is_left_to_others() {
        let cores = std::thread::available_parallelism().unwrap().get();
        let polling = Polling { worth_it: true };
        // Connections of other tests may hold turns as well.
        let turns: Vec<Turn> = std::iter::from_fn(|| polling.begin()).take(cores).collect();
        assert!(turns.len() < cores);
    }
}
