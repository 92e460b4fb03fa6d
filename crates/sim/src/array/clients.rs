//! When requests come, and how long they waited once they are answered.
//!
//! Source: Schroeder, Wierman, Harchol-Balter: Open versus closed: a cautionary tale. NSDI 2006, section 2: open and closed systems.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Arrivals;
use super::channels::Channels;
use super::latency::{Distribution, Latencies};

/// What a simulation of waits found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Waits {
    /// When requests came.
    pub arrivals: Arrivals,
    /// From the arrival of a request to its answer.
    pub latencies: Latencies,
    /// The work that the busiest device of the cache was asked to do, background included, per time of its channels; above 1 it cannot
    /// keep up. None if no time passed.
    pub cache_utilisation: Option<f64>,
    /// The same of the storage.
    pub storage_utilisation: Option<f64>,
    /// Requests answered per second of a closed loop; none of an open one, which has them from the trace.
    pub requests_per_s: Option<f64>,
}

/// Those who send requests.
#[derive(Clone, Debug)]
pub(super) struct Clients {
    arrivals: Arrivals,
    /// When the requests of a closed loop that are under way are answered, as far as that is known.
    under_way: BinaryHeap<Reverse<u64>>,
    measured: Option<Measured>,
    distribution: Distribution,
}

/// Since the first request that counts.
#[derive(Clone, Debug)]
struct Measured {
    first_arrival_ns: u64,
    last_arrival_ns: u64,
    last_done_ns: u64,
    /// What the devices had been asked for before.
    cache_work_ns: Vec<u64>,
    storage_work_ns: Vec<u64>,
}

impl Clients {
    /// The arrivals are not [`Arrivals::None`].
    pub fn new(arrivals: Arrivals) -> Clients {
        assert!(arrivals != Arrivals::None, "without arrivals nobody waits");
        Clients { arrivals, under_way: BinaryHeap::new(), measured: None, distribution: Distribution::new() }
    }

    /// A time of the trace on the clock of the devices; none of a closed loop, which has no use for it.
    pub fn clock_ns(&self, time_us: u64) -> Option<u64> {
        match self.arrivals {
            Arrivals::Closed { .. } => None,
            Arrivals::Trace { speed } if speed != 1.0 => Some((time_us as f64 * (1e3 / speed)) as u64),
            _ => Some(time_us.saturating_mul(1000)),
        }
    }

    /// Whether a request of a closed loop has to wait for the answer to another, where `unanswered` are under way of which nobody knows yet
    /// when they are answered.
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

    /// When the next request comes, which the trace has at `time_us`. In a closed loop the first answer that is known of is the one that it
    /// waited for, if it has to wait.
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
        }
    }

    /// What was found, once all requests are answered and all work is done.
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
        }
    }
}

impl Measured {
    /// How long devices had for what they were asked to do: of an open loop, until no more came.
    fn span_ns(&self, arrivals: Arrivals) -> u64 {
        let end_ns = match arrivals {
            Arrivals::Closed { .. } => self.last_done_ns,
            _ => self.last_arrival_ns,
        };
        end_ns - self.first_arrival_ns
    }
}
