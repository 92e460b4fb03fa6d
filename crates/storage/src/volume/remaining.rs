//! Estimates the remaining time of a detach from the recent rate of write-back.

use std::time::{Duration, Instant};

/// The rate is measured over one to two of these periods. The first period is skipped, because blocks of the oldest
/// units are often neighbours and fast to write.
const PERIOD: Duration = Duration::from_secs(2);

/// A time, and the number of dirty blocks then.
type Look = (Instant, u64);

/// The progress of a detach.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remaining {
    /// Start of the measured interval, after the first period.
    from: Option<Look>,
    /// Start of the next measured interval.
    next: Look,
    last: Look,
}

impl Remaining {
    /// Records the number of dirty blocks; `before` is the previous progress.
    pub fn seen(before: Option<Remaining>, now: Instant, blocks: u64) -> Remaining {
        let last = (now, blocks);
        match before {
            None => Remaining { from: None, next: last, last },
            Some(Remaining { next, .. }) if now - next.0 >= PERIOD => Remaining { from: Some(next), next: last, last },
            Some(before) => Remaining { last, ..before },
        }
    }

    /// Returns the remaining seconds, or `None` if unknown.
    pub fn seconds(&self, now: Instant) -> Option<f64> {
        let (from, first) = self.from?;
        let (until, left) = self.last;
        let written = first.checked_sub(left).filter(|&written| written > 0)?;
        let each = (until - from).as_secs_f64() / written as f64;
        Some((each * left as f64 - (now - until).as_secs_f64()).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_last_seconds() {
        let begun = Instant::now();
        let mut remaining = None;
        // 1,000 blocks are written at once, then 100 per second.
        for tenth in 0..=60 {
            let blocks = if tenth == 0 { 3_000 } else { 2_000 - 10 * tenth };
            let now = begun + Duration::from_millis(100 * tenth);
            let seen = Remaining::seen(remaining, now, blocks);
            let (told, really) = (seen.seconds(now), blocks as f64 / 100.0);
            assert_eq!(told.is_some(), tenth >= 20, "{tenth}");
            assert!(tenth < 40 || (told.unwrap() - really).abs() < 0.001, "{tenth}: {told:?}, expected {really}");
            remaining = Some(seen);
        }
        let later = begun + Duration::from_secs(7);
        assert!((remaining.unwrap().seconds(later).unwrap() - 13.0).abs() < 0.001);
    }
}
