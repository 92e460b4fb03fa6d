//! Requests that queue at the devices of an array, in order of time.
//!
//! Source: open and closed loops as in Schroeder, Wierman, Harchol-Balter: Open versus closed: a cautionary tale. NSDI
//! 2006. Devices and their accesses as in Moon, Reddy: Adaptive policies for balancing performance and lifetime of
//! mixed SSD arrays through workload sampling. MSST 2016, Figures 2 and 3, whose arrows take time here.
//!
//! All block accesses of a request come at once, and it is answered when the last of them is:
//!
//! - A read hit in RAM is answered at once.
//! - A hit and an admitted write access the cache; a read miss and a refused write access the storage.
//! - An admitted read miss is written to the cache in the background, once the storage has read it.
//! - An evicted dirty block is written back in the background. It is read from the cache, behind the accesses of the
//!   evicting request, then written to the storage. (The wear model ignores that read: reads wear nothing.)
//!
//! Background work queues at the devices like any other, first come, first served. A block counts as cached from the
//! access that admits it, even while the storage still reads it. In a closed loop, requests are not slowed when
//! write-back falls behind: the storage's utilisation shows it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use flashwise_core::access::Op;
use flashwise_core::policy::Outcome;
use flashwise_device::ArrayModel;

use super::Arrivals;
use super::channels::Channels;
use super::clients::{Clients, Waits};

/// Largest backlog of waiting work: 16 MiB. It is exceeded only if devices are hours behind. Work beyond it starts at
/// once, which keeps the devices equally busy.
const PENDING_MAX: usize = 1 << 20;

/// One block access and its outcome.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Served<'a> {
    /// The number of its request. Accesses of a request are consecutive.
    pub request: u64,
    /// Its time in the trace.
    pub time_us: u64,
    pub block: u32,
    pub op: Op,
    /// Its outcome; `None` for a read hit in RAM, which waits for nothing.
    pub outcome: Option<&'a Outcome<u32>>,
    /// A dirty block that it evicted.
    pub written_back: Option<u32>,
    /// True if its request counts, should this be the last access.
    pub counted: bool,
}

/// The queues of an array's devices, and the requests in them.
#[derive(Clone, Debug)]
pub(crate) struct Queues {
    clients: Clients,
    cache: Channels,
    storage: Channels,
    /// Background work by start time, the earliest first.
    pending: BinaryHeap<Reverse<Pending>>,
    pending_max: usize,
    request: Option<QueuedRequest>,
    /// Dirty blocks evicted by the request.
    evicted: Vec<u32>,
}

/// Background work and its time. The order at equal times does not matter: background work on a tier always takes
/// equally long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pending {
    at_ns: u64,
    block: u32,
    work: QueuedWork,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum QueuedWork {
    /// Writes a block from the storage to the cache.
    Fill,
    /// Writes a block from the cache to the storage.
    WriteBack,
}

/// The current request.
#[derive(Clone, Copy, Debug)]
struct QueuedRequest {
    number: u64,
    arrival_ns: u64,
    done_ns: u64,
    counted: bool,
}

impl Queues {
    /// Returns the queues of idle devices. The arrivals must not be [`Arrivals::None`].
    pub fn new(model: &ArrayModel, block_bytes: u64, arrivals: Arrivals) -> Queues {
        Queues {
            clients: Clients::new(arrivals),
            cache: Channels::new(&model.cache, block_bytes),
            storage: Channels::new(&model.storage, block_bytes),
            pending: BinaryHeap::new(),
            pending_max: PENDING_MAX,
            request: None,
            evicted: Vec::new(),
        }
    }

    /// Serves an access. Times must not decrease.
    #[inline]
    pub fn access(&mut self, served: &Served) {
        let mut request = match self.request {
            Some(request) if request.number == served.request => request,
            _ => self.begin(served),
        };
        request.counted = served.counted;
        if served.counted {
            self.clients.counts(request.arrival_ns, &self.cache, &self.storage);
        }
        let (number, arrival_ns) = (request.number, request.arrival_ns);
        let Served { block, op, .. } = *served;
        let done_ns = match (op, served.outcome) {
            (_, None) => arrival_ns,
            (_, Some(Outcome::Hit)) | (Op::Write, Some(Outcome::Admit { .. })) => {
                self.cache.access_of(number, block, op, arrival_ns)
            }
            (Op::Read, Some(Outcome::Admit { .. })) => {
                let done_ns = self.storage.access_of(number, block, op, arrival_ns);
                self.pend(arrival_ns, done_ns, block, QueuedWork::Fill);
                done_ns
            }
            (_, Some(Outcome::Bypass)) => self.storage.access_of(number, block, op, arrival_ns),
        };
        request.done_ns = request.done_ns.max(done_ns);
        self.request = Some(request);
        self.evicted.extend(served.written_back);
    }

    /// Returns the results, after the last request.
    pub fn finish(mut self) -> Waits {
        self.end();
        self.work_until(u64::MAX);
        self.clients.waits(&self.cache, &self.storage)
    }

    /// Ends the previous request and starts that of `served`.
    fn begin(&mut self, served: &Served) -> QueuedRequest {
        self.end();
        let arrival_ns = self.clients.arrival_ns(served.time_us, 0);
        self.work_until(arrival_ns);
        QueuedRequest { number: served.request, arrival_ns, done_ns: 0, counted: false }
    }

    /// Ends the current request.
    fn end(&mut self) {
        let Some(request) = self.request.take() else { return };
        self.clients.answered(request.arrival_ns, request.done_ns, request.counted);
        let mut evicted = std::mem::take(&mut self.evicted);
        for block in evicted.drain(..) {
            let read_ns = self.cache.access(block, Op::Read, request.arrival_ns);
            self.pend(request.arrival_ns, read_ns, block, QueuedWork::WriteBack);
        }
        self.evicted = evicted;
    }

    /// Schedules work that can start at `at_ns`; the time is `now_ns`.
    #[inline]
    fn pend(&mut self, now_ns: u64, at_ns: u64, block: u32, work: QueuedWork) {
        if self.pending.len() < self.pending_max {
            self.pending.push(Reverse(Pending { at_ns, block, work }));
        } else {
            self.perform(now_ns, block, work);
        }
    }

    /// Performs the work that can start up to and including `end_ns`.
    fn work_until(&mut self, end_ns: u64) {
        while let Some(&Reverse(Pending { at_ns, block, work })) = self.pending.peek()
            && at_ns <= end_ns
        {
            self.pending.pop();
            self.perform(at_ns, block, work);
        }
    }

    fn perform(&mut self, at_ns: u64, block: u32, work: QueuedWork) {
        match work {
            QueuedWork::Fill => self.cache.access(block, Op::Write, at_ns),
            QueuedWork::WriteBack => self.storage.access(block, Op::Write, at_ns),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashwise_device::tier_model_of_option;

    const ADMIT: Outcome<u32> = Outcome::Admit { evicted: None };

    /// The paper's latencies: 40 and 200 us for the cache, 200 and 1,000 us for the storage, with one channel each
    /// unless changed.
    fn queues(cache: &str, storage: &str, arrivals: &str) -> Queues {
        let tier = |device: &str, keys: &str| tier_model_of_option("test", &format!("{device}:{keys}")).unwrap();
        let model = ArrayModel { cache: tier("slc", cache), storage: tier("mlc", storage) };
        Queues::new(&model, 4096, arrivals.parse().unwrap())
    }

    /// An access of a request to the block of the same number.
    fn access(request: u32, time_us: u64, op: Op, outcome: &Outcome<u32>) -> Served<'_> {
        Served {
            request: request.into(),
            time_us,
            block: request,
            op,
            outcome: Some(outcome),
            written_back: None,
            counted: true,
        }
    }

    fn near(found: Option<f64>, expected: f64) {
        assert!(found.is_some_and(|found| (found - expected).abs() < 1e-9), "found {found:?}, expected {expected}");
    }

    /// Open loop, one channel each; times in us:
    ///
    ///     arrives   cache            storage          answered   latency
    ///     0   read, admitted         read 0-200        200       200
    ///     10  read, hit    10-50                       50        40
    ///     20  read, refused          read 200-400      400       380
    ///         (fill 200-400)
    ///     210 read, hit    400-440                     440       230
    ///     300 write, hit   440-640                     640       340
    ///
    /// Until 300 us the cache works for 200 + 2 * 40 + 200, the storage for 2 * 200.
    #[test]
    fn an_open_loop_waits_for_earlier_requests() {
        let mut queues = queues("channels=1", "channels=1", "trace");
        queues.access(&access(0, 0, Op::Read, &ADMIT));
        queues.access(&access(1, 10, Op::Read, &Outcome::Hit));
        queues.access(&access(2, 20, Op::Read, &Outcome::Bypass));
        queues.access(&access(3, 210, Op::Read, &Outcome::Hit));
        queues.access(&access(4, 300, Op::Write, &Outcome::Hit));
        let waits = queues.finish();
        assert_eq!(
            (waits.latencies.mean_us, waits.latencies.max_us),
            ((200 + 40 + 380 + 230 + 340) as f64 / 5.0, 380.0)
        );
        // The third of five latencies, within a thousandth.
        assert!((230.0..230.3).contains(&waits.latencies.p50_us), "{waits:?}");
        assert_eq!((waits.latencies.p99_us, waits.requests_per_s), (380.0, None));
        near(waits.cache_utilisation, 480.0 / 300.0);
        near(waits.storage_utilisation, 400.0 / 300.0);
    }

    /// At twice the speed, requests come at 0, 5, 10, 105 and 150 us. With spare channels each waits for its own device
    /// only.
    #[test]
    fn with_channels_to_spare_a_request_takes_as_long_as_its_longest_access() {
        let mut queues = queues("channels=8", "channels=8", "trace:speed=2");
        for (request, time_us) in [0, 10, 20, 210, 300].into_iter().enumerate() {
            let request = request as u32;
            queues.access(&access(request, time_us, Op::Read, &Outcome::Hit));
            queues.access(&Served { block: 90 + request, ..access(request, time_us, Op::Read, &ADMIT) });
        }
        let waits = queues.finish();
        assert_eq!((waits.latencies.mean_us, waits.latencies.max_us), (200.0, 200.0));
        // 5 hits and 5 fills, 5 reads of the storage, by 8 channels in 150 us.
        near(waits.cache_utilisation, (5.0 * 40.0 + 5.0 * 200.0) / 8.0 / 150.0);
        near(waits.storage_utilisation, 5.0 * 200.0 / 8.0 / 150.0);
    }

    /// Depth 1: 40 + 200 us of the cache, 1,000 + 200 us of the storage.
    #[test]
    fn a_closed_loop_of_one_takes_all_services_one_after_the_other() {
        let mut queues = queues("channels=1", "channels=1", "closed:depth=1");
        queues.access(&access(0, 0, Op::Read, &Outcome::Hit));
        queues.access(&access(1, 0, Op::Write, &Outcome::Hit));
        queues.access(&access(2, 0, Op::Write, &Outcome::Bypass));
        queues.access(&access(3, 0, Op::Read, &Outcome::Bypass));
        let waits = queues.finish();
        assert_eq!((waits.latencies.mean_us, waits.latencies.max_us), (1440.0 / 4.0, 1000.0));
        near(waits.requests_per_s, 4.0 / 1440e-6);
        near(waits.cache_utilisation, 240.0 / 1440.0);
        near(waits.storage_utilisation, 1200.0 / 1440.0);
    }

    /// Depth 1; times in us:
    ///
    ///     comes                      cache       storage       answered
    ///     0    write, evicts dirty   0-200                     200
    ///          (read the evicted     200-240)
    ///     200  read, hit             240-280                   280
    ///          (write it back                    240-1,240)
    ///     280  read, refused                     1,240-1,440   1,440
    #[test]
    fn write_back_reads_the_cache_and_writes_the_storage() {
        let mut queues = queues("channels=1", "channels=1", "closed:depth=1");
        let evicts = Outcome::Admit { evicted: Some(9) };
        queues.access(&Served { written_back: Some(9), ..access(0, 0, Op::Write, &evicts) });
        queues.access(&access(1, 0, Op::Read, &Outcome::Hit));
        queues.access(&access(2, 0, Op::Read, &Outcome::Bypass));
        let waits = queues.finish();
        assert_eq!((waits.latencies.mean_us, waits.latencies.max_us), ((200 + 80 + 1160) as f64 / 3.0, 1160.0));
        near(waits.cache_utilisation, 280.0 / 1440.0);
        near(waits.storage_utilisation, 1200.0 / 1440.0);
    }

    /// Hits of 40 us on 4 channels: a small depth bounds throughput, then the channels do.
    #[test]
    fn throughput_is_bounded_by_depth_and_by_channels() {
        let per_s = |depth: u32| {
            let mut queues = queues("channels=4", "channels=1", &format!("closed:depth={depth}"));
            (0..4000).for_each(|request| queues.access(&access(request, 0, Op::Read, &Outcome::Hit)));
            let waits = queues.finish();
            (waits.requests_per_s.unwrap().round(), waits.latencies.max_us, waits.cache_utilisation.unwrap())
        };
        assert_eq!(per_s(1), (25e3, 40.0, 0.25));
        assert_eq!(per_s(2), (50e3, 40.0, 0.5));
        assert_eq!(per_s(4), (100e3, 40.0, 1.0));
        assert_eq!(per_s(16), (100e3, 160.0, 1.0));
    }

    /// Requests for two blocks on two devices. The first does not count; of the second, one access counts.
    #[test]
    fn a_request_counts_if_its_last_access_does() {
        let mut queues = queues("channels=1", "devices=10,channels=1", "trace");
        for (request, counted) in [(0, [false, false]), (1, [false, true]), (2, [true, true])] {
            let time_us = 100 * u64::from(request);
            for (at, counted) in counted.into_iter().enumerate() {
                let block = 10 * request + at as u32;
                queues.access(&Served { block, counted, ..access(request, time_us, Op::Read, &Outcome::Bypass) });
            }
        }
        // Each device has a block of each request: the first takes 200 us, the second waits 100 us, and the third waits
        // 200 us.
        let waits = queues.finish();
        assert_eq!((waits.latencies.mean_us, waits.latencies.max_us), (350.0, 400.0));
        // The counted access of the second request and both of the third, in 100 us: two of them on one device.
        near(waits.storage_utilisation, 400.0 / 100.0);
    }

    /// 3,000 misses come at once to a storage that takes 200 us each. Their fills start after them, or at most 5 of
    /// them wait.
    #[test]
    fn overloaded_devices_need_bounded_memory_and_the_same_work() {
        let run = |pending_max: usize| {
            let mut queues = queues("channels=1", "channels=1", "trace");
            queues.pending_max = pending_max;
            for request in 0..3000 {
                queues.access(&access(request, request.into(), Op::Read, &ADMIT));
                assert!(queues.pending.len() <= pending_max);
            }
            queues.finish()
        };
        let (all, few) = (run(PENDING_MAX), run(5));
        assert_eq!(few, all);
        near(all.storage_utilisation, 3000.0 * 200.0 / 2999.0);
    }

    #[test]
    fn times_beyond_all_measure_do_no_harm() {
        let mut queues = queues("read-latency-ms=1e15", "channels=1", "trace");
        for request in 0..10 {
            queues.access(&access(request, u64::MAX - 10 + u64::from(request), Op::Read, &Outcome::Hit));
            queues.access(&access(request, u64::MAX - 10 + u64::from(request), Op::Read, &ADMIT));
        }
        queues.finish();
        let mut queues = super::tests::queues("read-latency-ms=1e15", "channels=1", "closed:depth=2");
        (0..10).for_each(|request| queues.access(&access(request, 0, Op::Read, &Outcome::Hit)));
        assert_eq!(queues.finish().latencies.max_us, u64::MAX as f64 / 1e3);
    }
}
