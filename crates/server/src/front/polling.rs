//! Looking for a client's next request for a moment before sleeping.
//!
//! To wake a thread up takes longer than to answer a request from memory. So a connection whose client comes back at once looks
//! for the next request for up to [`POLL_TIME_MAX`] before it sleeps. As with halt polling for guests of Linux
//! (Documentation/virt/kvm/halt-polling.rst), this is kept to where it helps: a connection polls only after a wait that was short,
//! no more after it polled in vain, and one core at least is left to others.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long a connection polls at most, and the longest wait that shows that polling would have helped.
pub const POLL_TIME_MAX: Duration = Duration::from_micros(50);

/// How many connections may begin to poll.
static TURNS_LEFT: LazyLock<AtomicUsize> =
    LazyLock::new(|| AtomicUsize::new(std::thread::available_parallelism().map_or(0, |cores| cores.get() - 1)));

/// This many requests in a row that came alone show a client that waits for each answer.
const ALONE_MIN: u32 = 8;

/// Whether a client makes one request at a time. What such a client asks for next is not held up by a connection that waits for a
/// device itself.
#[derive(Debug, Default)]
pub struct Solitude {
    alone: u32,
}

impl Solitude {
    /// A request comes, after all before it were answered and with none behind it, or not.
    pub fn comes(&mut self, alone: bool) {
        self.alone = if alone { self.alone.saturating_add(1) } else { 0 };
    }

    /// Whether no other request is likely to come before the last one is answered.
    pub fn is_likely(&self) -> bool {
        self.alone > ALONE_MIN
    }
}

/// Whether one connection polls.
#[derive(Debug, Default)]
pub struct Polling {
    worth_it: bool,
}

impl Polling {
    /// A turn to poll, if it is worth it and not too many others do.
    pub fn begin(&self) -> Option<Turn> {
        if !self.worth_it {
            return None;
        }
        let take = |left: usize| left.checked_sub(1);
        TURNS_LEFT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
        Some(Turn { until: Instant::now() + POLL_TIME_MAX })
    }

    /// The connection slept for this time, from when it began to wait, and polled before if it had a turn.
    pub fn slept(&mut self, time: Duration) {
        self.worth_it = time <= POLL_TIME_MAX;
    }
}

/// The time in which a connection polls.
#[derive(Debug)]
pub struct Turn {
    until: Instant,
}

impl Turn {
    /// Whether it is not over.
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
    fn a_client_is_alone_after_several_requests_in_a_row_until_two_overlap() {
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
        // Connections of other tests may have turns, too.
        let turns: Vec<Turn> = std::iter::from_fn(|| polling.begin()).take(cores).collect();
        assert!(turns.len() < cores);
    }
}
