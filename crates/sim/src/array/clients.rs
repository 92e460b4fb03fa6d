//! Clients of a simulated array: arrivals of requests, and their waits.
//!
//! Source: Schroeder, Wierman, Harchol-Balter: Open versus closed: a cautionary tale. NSDI 2006, section 2: open and
//! closed systems.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Arrivals;
use super::channels::Channels;
use super::latency::{Distribution, Latencies};

/// The results of a simulation with waiting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Waits {
    /// The arrivals of requests.
    pub arrivals: Arrivals,
    /// From the arrival of a request to its answer.
    pub latencies: Latencies,
    /// Work of the busiest cache device, including background work, as a share of the time of its channels. Above 1 it
    /// cannot keep up. `None` if no time passed.
    pub cache_utilisation: Option<f64>,
    /// The same of the storage.
    pub storage_utilisation: Option<f64>,
    /// Requests answered per second of a closed loop; none of an open one, which has them from the trace.
    pub requests_per_s: Option<f64>,
    /// The interval with the longest mean wait. `None` without requests.
    pub worst: Option<Worst>,
}

/// An interval of a run, by the arrival of its requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Worst {
    /// From the first request that counts to the beginning of the interval, in seconds.
    pub after_s: f64,
    /// How long it is, in seconds.
    pub seconds: f64,
    /// How long its requests waited on average.
    pub mean_us: f64,
}

/// Intervals of equal length, which doubles whenever there are too many of them.
#[derive(Clone, Debug)]
struct Intervals {
    length_ns: u64,
    /// Sum of the waits, and requests.
    waits: Vec<(u128, u64)>,
}

/// There are at most this many intervals, unless they are an hour long or longer.
const INTERVALS_MAX: usize = 48;
const HOUR_NS: u64 = 3_600_000_000_000;
/// Intervals with fewer requests than this share of the mean interval are ignored.
const INTERVAL_SHARE_MIN: f64 = 0.1;

impl Intervals {
    fn new() -> Intervals {
        Intervals { length_ns: 1_000_000_000, waits: Vec::new() }
    }

    fn record(&mut self, after_ns: u64, wait_ns: u64) {
        while after_ns / self.length_ns >= INTERVALS_MAX as u64 && self.length_ns < HOUR_NS {
            self.double();
        }
        let at = (after_ns / self.length_ns) as usize;
        if at >= self.waits.len() {
            // A single time far away is not worth the memory.
            if at > 1 << 20 {
                return;
            }
            self.waits.resize(at + 1, (0, 0));
        }
        self.waits[at].0 += u128::from(wait_ns);
        self.waits[at].1 += 1;
    }

    fn double(&mut self) {
        self.length_ns *= 2;
        let sum = |pair: &[(u128, u64)]| pair.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        self.waits = self.waits.chunks(2).map(sum).collect();
    }

    fn worst(&self) -> Option<Worst> {
        let busy = self.waits.iter().filter(|(_, requests)| *requests > 0);
        let (intervals, requests) = busy.fold((0, 0), |(count, sum), (_, requests)| (count + 1, sum + requests));
        let least = INTERVAL_SHARE_MIN * requests as f64 / f64::from(intervals.max(1));
        let mean = |&(waits, requests): &(u128, u64)| waits as f64 / requests as f64 / 1e3;
        let enough =
            self.waits.iter().enumerate().filter(|(_, (_, requests))| *requests > 0 && *requests as f64 >= least);
        let seconds = self.length_ns as f64 / 1e9;
        let all = enough.map(|(at, waits)| Worst { after_s: at as f64 * seconds, seconds, mean_us: mean(waits) });
        all.reduce(|worst, one| if one.mean_us > worst.mean_us { one } else { worst })
    }
}

/// The clients that send requests.
#[derive(Clone, Debug)]
pub(super) struct Clients {
    arrivals: Arrivals,
    /// When the requests of a closed loop that are under way are answered, as far as that is known.
    under_way: BinaryHeap<Reverse<u64>>,
    measured: Option<Measured>,
    distribution: Distribution,
    intervals: Intervals,
}

/// Since the first request that counts.
#[derive(Clone, Debug)]
struct Measured {
    first_arrival_ns: u64,
    last_arrival_ns: u64,
    last_done_ns: u64,
    /// Work of the devices before the counted requests.
    cache_work_ns: Vec<u64>,
    storage_work_ns: Vec<u64>,
}

impl Clients {
    /// The arrivals are not [`Arrivals::None`].
    pub fn new(arrivals: Arrivals) -> Clients {
        assert!(arrivals != Arrivals::None, "without arrivals there are no waits");
        Clients {
            arrivals,
            under_way: BinaryHeap::new(),
            measured: None,
            distribution: Distribution::new(),
            intervals: Intervals::new(),
        }
    }

    /// A time of the trace on the clock of the devices; none of a closed loop, which has no use for it.
    pub fn clock_ns(&self, time_us: u64) -> Option<u64> {
        match self.arrivals {
            Arrivals::Closed { .. } => None,
            Arrivals::Trace { speed } if speed != 1.0 => Some((time_us as f64 * (1e3 / speed)) as u64),
            _ => Some(time_us.saturating_mul(1000)),
        }
    }

    /// True if the next request of a closed loop must wait for an answer. `unanswered` requests have an unknown time of
    /// their answer.
    pub fn waits_for_answer(&self, unanswered: usize) -> bool {
        match self.arrivals {
            Arrivals::Closed { depth } => self.under_way.len() + unanswered >= depth as usize,
            _ => false,
        }
    }

    /// The first answer that is known of.
    pub fn first_answer_ns(&self) -> Option<u64> {
        self.under_way.peek().map(|Reverse(done_ns)| *done_ns)
    }

    /// When the next request comes, which the trace has at `time_us`. In a closed loop the first answer that is known
    /// of is the one that it waited for, if it has to wait.
    pub fn arrival_ns(&mut self, time_us: u64, unanswered: usize) -> u64 {
        match self.clock_ns(time_us) {
            Some(arrival_ns) => arrival_ns,
            None if self.waits_for_answer(unanswered) => self.under_way.pop().map_or(0, |Reverse(done_ns)| done_ns),
            None => 0,
        }
    }

    /// A request that counts comes, with the first of its accesses that does.
    #[inline]
    pub fn counts(&mut self, arrival_ns: u64, cache: &Channels, storage: &Channels) {
        if self.measured.is_none() {
            self.measured = Some(Measured {
                first_arrival_ns: arrival_ns,
                last_arrival_ns: arrival_ns,
                last_done_ns: arrival_ns,
                cache_work_ns: cache.work_ns().to_vec(),
                storage_work_ns: storage.work_ns().to_vec(),
            });
        }
    }

    /// It is known when a request is answered.
    pub fn answered(&mut self, arrival_ns: u64, done_ns: u64, counted: bool) {
        if let Arrivals::Closed { .. } = self.arrivals {
            self.under_way.push(Reverse(done_ns));
        }
        if counted {
            self.distribution.record(done_ns - arrival_ns);
            let measured = self.measured.as_mut().expect("what counts is measured");
            measured.last_arrival_ns = measured.last_arrival_ns.max(arrival_ns);
            measured.last_done_ns = measured.last_done_ns.max(done_ns);
            self.intervals.record(arrival_ns.saturating_sub(measured.first_arrival_ns), done_ns - arrival_ns);
        }
    }

    /// Returns the results, after all requests are answered and all work is done.
    pub fn waits(&self, cache: &Channels, storage: &Channels) -> Waits {
        let measured = self.measured.as_ref();
        let utilisation = |channels: &Channels, before: fn(&Measured) -> &[u64]| {
            let measured = measured.filter(|measured| measured.span_ns(self.arrivals) > 0)?;
            Some(channels.work_ns_max(before(measured)) / measured.span_ns(self.arrivals) as f64)
        };
        let requests_per_s = |measured: &Measured| match self.arrivals {
            Arrivals::Closed { .. } => {
                Some(self.distribution.count() as f64 / (measured.span_ns(self.arrivals) as f64 / 1e9))
            }
            _ => None,
        };
        Waits {
            arrivals: self.arrivals,
            latencies: self.distribution.latencies(),
            cache_utilisation: utilisation(cache, |measured| &measured.cache_work_ns),
            storage_utilisation: utilisation(storage, |measured| &measured.storage_work_ns),
            requests_per_s: measured.and_then(requests_per_s),
            worst: self.intervals.worst(),
        }
    }
}

impl Measured {
    /// Returns the time available to the devices; for an open loop, until the last arrival.
    fn span_ns(&self, arrivals: Arrivals) -> u64 {
        let end_ns = match arrivals {
            Arrivals::Closed { .. } => self.last_done_ns,
            _ => self.last_arrival_ns,
        };
        end_ns - self.first_arrival_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1,000 s are 32 intervals of 32 s. A request a second waits 1 ms, but 5 ms from 600 s to 640 s. A single long
    /// wait does not count.
    #[test]
    fn the_worst_interval_is_the_one_with_the_longest_mean_wait() {
        let mut intervals = Intervals::new();
        for second in 0..1000_u64 {
            let wait_ms = if (600..640).contains(&second) { 5 } else { 1 };
            intervals.record(second * 1_000_000_000, wait_ms * 1_000_000);
        }
        intervals.record(1_030_000_000_000, 1_000_000_000);
        let worst = intervals.worst().unwrap();
        assert_eq!((worst.after_s, worst.seconds), (608.0, 32.0));
        assert!((worst.mean_us - 5000.0).abs() < 1e-9, "{worst:?}");
        assert_eq!(Intervals::new().worst(), None);
    }

    #[test]
    fn intervals_are_no_longer_than_it_takes() {
        let mut intervals = Intervals::new();
        (0..14 * 24).for_each(|hour| intervals.record(hour * HOUR_NS, 1));
        assert!(intervals.length_ns >= HOUR_NS && intervals.length_ns < 2 * HOUR_NS);
        intervals.record(u64::MAX, 1);
        assert!(intervals.waits.len() < 400);
    }
}
