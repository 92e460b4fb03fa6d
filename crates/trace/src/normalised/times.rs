//! The times of a trace's requests: the duration, and whether they are a valid clock.

use flashwise_core::quantity::Share;
use serde::{Deserialize, Serialize};

use flashwise_core::human;

/// The figures of a trace's request times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// The earliest time that is not absurd, in microseconds since the first request; negative if a later request has
    /// an earlier time.
    pub earliest_us: i64,
    /// The latest time that is not absurd, in microseconds since the first request.
    pub latest_us: i64,
    /// The number of requests with an earlier time than the previous request. Many traces have some, by microseconds:
    /// requests end in another order than they begin.
    pub out_of_order_requests: u64,
    /// The number of requests more than a second earlier than a previous one.
    #[serde(default)]
    pub late_requests: u64,
    /// The number of requests with absurd times: more than a year away from those of most requests.
    pub absurd_requests: u64,
}

/// The maximum gap between times of one trace, in microseconds.
const YEAR_US: i64 = 365 * 86_400 * 1_000_000;
/// The maximum difference, in microseconds, between a request and a later-timed previous one that counts as reordering.
const LATE_US: i64 = 1_000_000;
/// The share of late or absurd requests above which times are not a clock.
const REFUSED_SHARE: f64 = 0.1;

impl Times {
    /// Returns the time from the earliest request to the latest, in microseconds, without absurd times; 0 in traces
    /// without times.
    pub fn duration_us(&self) -> u64 {
        self.latest_us.saturating_sub(self.earliest_us).max(0) as u64
    }

    /// True if `time_us`, since the first request, is not absurd.
    pub fn hold(&self, time_us: i64) -> bool {
        (self.earliest_us..=self.latest_us).contains(&time_us)
    }

    /// Describes the late and absurd ones of `requests`, if any.
    pub fn disorder(&self, requests: u64) -> Option<String> {
        let Times { late_requests: late, absurd_requests: absurd, .. } = *self;
        let order = (late > 0).then(|| format!("{} more than a second earlier than one before", human::count(late)));
        let absurd = (absurd > 0).then(|| format!("{} more than a year away from most", human::count(absurd)));
        let found: Vec<String> = order.into_iter().chain(absurd).collect();
        (!found.is_empty()).then(|| format!("of {}, {}", human::counted(requests, "request"), found.join(" and ")))
    }

    /// Returns the reason why a trace of `requests` has no rates per day or year, if there is one.
    pub fn refusal(&self, requests: u64) -> Option<String> {
        let wrong = self.late_requests.max(self.absurd_requests);
        if wrong as f64 <= REFUSED_SHARE * requests as f64 {
            return None;
        }
        let most = Share::new(REFUSED_SHARE).unwrap_or(Share::WHOLE);
        self.disorder(requests).map(|disorder| format!("{disorder}; expected at most {most} of them"))
    }
}

/// Times that are at most a year away from one another, or from others between them.
#[derive(Clone, Copy, Debug)]
struct Era {
    first_us: i64,
    last_us: i64,
    requests: u64,
}

impl Era {
    fn of(time_us: i64) -> Era {
        Era { first_us: time_us, last_us: time_us, requests: 0 }
    }

    #[inline]
    fn is_near(&self, time_us: i64) -> bool {
        time_us >= self.first_us.saturating_sub(YEAR_US) && time_us <= self.last_us.saturating_add(YEAR_US)
    }
}

/// Collects times, one call per request.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    /// The time of the first request.
    start_us: i64,
    previous_us: i64,
    out_of_order: u64,
    late: u64,
    requests: u64,
    /// The era of the last request.
    current: Option<Era>,
    others: Vec<Era>,
}

/// The maximum number of eras; the times of a trace with more are meaningless.
const ERAS_MAX: usize = 64;

impl Clock {
    /// Adds the next request at `time_us`, in microseconds since any moment.
    #[inline]
    pub fn tick(&mut self, time_us: i64) {
        match &mut self.current {
            Some(era) if era.is_near(time_us) => {
                self.late += u64::from(time_us < era.last_us.saturating_sub(LATE_US));
                era.first_us = era.first_us.min(time_us);
                era.last_us = era.last_us.max(time_us);
                era.requests += 1;
                self.out_of_order += u64::from(time_us < self.previous_us);
            }
            _ => self.leap(time_us),
        }
        self.previous_us = time_us;
        self.requests += 1;
    }

    /// Adds the first request, or one more than a year away from the previous one.
    #[cold]
    fn leap(&mut self, time_us: i64) {
        match self.current.take() {
            None => (self.start_us, self.previous_us) = (time_us, time_us),
            Some(era) => self.others.push(era),
        }
        self.out_of_order += u64::from(time_us < self.previous_us);
        let known = self.others.iter().position(|era| era.is_near(time_us));
        let mut era = known.map_or_else(|| Era::of(time_us), |at| self.others.swap_remove(at));
        era.first_us = era.first_us.min(time_us);
        era.last_us = era.last_us.max(time_us);
        era.requests += 1;
        self.current = Some(era);
        if self.others.len() > ERAS_MAX {
            // The smallest era is discarded; its requests still count as absurd.
            let least = self.others.iter().enumerate().min_by_key(|(_, era)| era.requests).map(|(at, _)| at);
            least.map(|at| self.others.swap_remove(at));
        }
    }

    /// Returns the figures of the times.
    pub fn times(&self) -> Times {
        let mut eras: Vec<Era> = self.others.iter().copied().chain(self.current).collect();
        eras.sort_unstable_by_key(|era| era.first_us);
        // Eras that have grown towards each other are merged.
        eras.dedup_by(|next, era| {
            let is_one = era.is_near(next.first_us);
            if is_one {
                era.last_us = era.last_us.max(next.last_us);
                era.requests += next.requests;
            }
            is_one
        });
        let Some(most) = eras.into_iter().max_by_key(|era| era.requests) else { return Times::default() };
        Times {
            earliest_us: most.first_us.saturating_sub(self.start_us),
            latest_us: most.last_us.saturating_sub(self.start_us),
            out_of_order_requests: self.out_of_order,
            late_requests: self.late,
            absurd_requests: self.requests - most.requests,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(of: impl IntoIterator<Item = i64>) -> Times {
        let mut clock = Clock::default();
        of.into_iter().for_each(|time_us| clock.tick(time_us));
        clock.times()
    }

    #[test]
    fn a_reversed_trace_lasts_as_long_as_it_did() {
        let forth = times((0..1000).map(|second| 1_000_000 * second));
        let back = times((0..1000).rev().map(|second| 1_000_000 * second));
        assert_eq!((forth.duration_us(), back.duration_us()), (999_000_000, 999_000_000));
        assert_eq!((forth.out_of_order_requests, back.out_of_order_requests), (0, 999));
        assert_eq!((back.earliest_us, back.latest_us, back.absurd_requests), (-999_000_000, 0, 0));
        assert_eq!((forth.disorder(1000), forth.refusal(1000)), (None, None));
        assert_eq!(
            back.refusal(1000).unwrap(),
            "of 1,000 requests, 998 more than a second earlier than one before; expected at most 10% of them"
        );
    }

    #[test]
    fn absurd_times_are_counted_and_add_nothing_to_the_duration() {
        // 2007 in microseconds, with a zero at the beginning, a far future and a zero in between.
        let start = 1_172_163_203_000_000;
        let mut all: Vec<i64> = (0..1000).map(|second| start + 1_000_000 * second).collect();
        (all[0], all[500], all[700]) = (0, i64::MAX, 0);
        let found = times(all);
        assert_eq!((found.duration_us(), found.absurd_requests), (998_000_000, 3));
        assert_eq!(found.out_of_order_requests, 2, "after the far future, and at the second zero");
        assert!(found.hold(start + 1_000_000) && !found.hold(0) && !found.hold(i64::MAX));
        let said = "of 1,000 requests, 3 more than a year away from most";
        assert_eq!((found.disorder(1000).unwrap().as_str(), found.refusal(1000)), (said, None));
    }

    #[test]
    fn a_trace_of_several_years_has_no_absurd_times() {
        // Three years apart at its ends, but never half a year without a request, in any order.
        let months = [0_i64, 36, 5, 31, 10, 26, 15, 21].map(|month| month * 30 * 86_400_000_000);
        let found = times(months);
        assert_eq!((found.absurd_requests, found.duration_us()), (0, 36 * 30 * 86_400_000_000));
    }

    #[test]
    fn times_all_over_are_refused_however_many_eras_there_are() {
        // 200 moments, each three years from the next, in no order.
        let found = times((0..10_000_i64).map(|number| (number * 7_919 % 200) * 3 * YEAR_US));
        assert!(found.absurd_requests > 9_000, "{found:?}");
        assert!(found.refusal(10_000).is_some());
        assert_eq!(times([]), Times::default());
        assert_eq!(times([i64::MIN, i64::MAX]).duration_us(), 0);
    }
}
