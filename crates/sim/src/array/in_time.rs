//! A whole cache in time: the server's engine on modelled devices, with a virtual clock.
//!
//! Source: the devices as in Moon, Reddy: Adaptive policies for balancing performance and lifetime of mixed SSD arrays
//! through workload sampling. MSST 2016.
//!
//! Requests pass through the engine as in a volume. They wait if too much is in progress, but reads may pass changes of
//! other blocks. Transfers queue at their devices, first come, first served. So blocks stay dirty until their
//! write-back ends, and writers are slowed as by a server. Discards and memory take no time, and flushes none of their
//! own.
//!
//! All data is zeroes, and takes no memory.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use flashwise_core::access::Op;
use flashwise_core::cache::{Cache, Kind};
use flashwise_core::format::BLOCK_BYTES;
use flashwise_core::step::Step;
use flashwise_core::wlfc::Wlfc;
use flashwise_device::ArrayModel;
use flashwise_engine::engine::{Backend, Engine, FLASH, Layout, Output, Paused, Settings, WaitingRequests};
use flashwise_engine::log::{self, Log};
use flashwise_engine::request::{Operation, Request};
use flashwise_engine::transfer::{Operation as DiskOperation, Transfer};
use flashwise_engine::wlfc::{self, Buckets, Started};
use flashwise_trace::request_file::CacheRequest;

use super::Arrivals;
use super::channels::Channels;
use super::clients::{Clients, Waits};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// The interval of a volume's regular work.
const LOOK_US: u64 = 1_000_000;

/// A layout that runs in time.
pub trait Timed: Layout {
    /// Does the regular work of a volume.
    fn look(_engine: &mut Engine<Self>) {}

    /// True if that would find something.
    fn has_work(engine: &Engine<Self>) -> bool {
        engine.running() > 0
    }
}

impl<C: Cache<Step = Step>> Timed for Log<C> {}

impl Timed for Buckets {
    /// Makes everything durable once nothing is in progress. Its end is not recorded.
    fn look(engine: &mut Engine<Self>) {
        let _end = engine.pause();
    }

    fn has_work(engine: &Engine<Self>) -> bool {
        engine.running() > 0 || !engine.is_durable()
    }
}

/// An engine, its devices, and its clients.
pub struct InTime<L: Layout> {
    engine: Engine<L>,
    output: Output,
    clock: Arc<VirtualClock>,
    clients: Clients,
    cache: Channels,
    storage: Channels,
    /// Ends of transfers and times of paused answers, the earliest first.
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    next_event: u64,
    paused: HashMap<u64, Paused>,
    /// Unanswered requests by number.
    requests: HashMap<u64, Unanswered>,
    next_request: u64,
    /// By their numbers.
    waiting: WaitingRequests<(u64, CacheRequest)>,
    /// The numbers of answered requests, which the engine's answers add.
    answered: Arc<Mutex<Vec<u64>>>,
    now_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A transfer ends. The value is its tag.
    Ends(u64),
    /// A paused answer is given.
    Answers,
}

#[derive(Clone, Copy, Debug)]
struct Unanswered {
    arrival_ns: u64,
    counted: bool,
}

/// The time of the devices, in microseconds.
#[derive(Debug, Default)]
struct VirtualClock(AtomicU64);

impl Backend for VirtualClock {
    /// An array is one device for its user.
    fn lane(&self, _offset: u64) -> u16 {
        0
    }

    fn now_us(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl<C: Cache<Step = Step>> InTime<Log<C>> {
    /// Returns the engine of an empty log. `trim`: reset units are discarded. The arrivals are not [`Arrivals::None`].
    pub fn of_log(cache: C, trim: bool, model: &ArrayModel, arrivals: Arrivals) -> InTime<Log<C>> {
        let pages = cache.geometry().pages() as usize;
        let settings = Settings {
            cache: 1,
            epoch: 1,
            pauses: true,
            discard: trim,
            spare_frames: log::SPARE_FRAMES,
            blank: true,
            ..Settings::default()
        };
        let mut run = InTime::of(log::Engine::new(cache, settings, vec![0; pages], Vec::new()), model, arrivals);
        run.engine.set_backend(run.clock.clone());
        run
    }
}

impl InTime<Buckets> {
    /// Returns the engine of empty buckets. The arrivals are not [`Arrivals::None`].
    pub fn of_buckets(wlfc: Wlfc, model: &ArrayModel, arrivals: Arrivals) -> InTime<Buckets> {
        let settings = Settings { cache: 1, start: 1, blank: true, ..Settings::default() };
        let started = Started::empty(wlfc.config().buckets, wlfc.config().bucket_pages());
        InTime::of(wlfc::Engine::new(wlfc, settings, started), model, arrivals)
    }
}

impl<L: Timed> InTime<L> {
    /// Returns an engine on modelled devices. The arrivals are not [`Arrivals::None`].
    pub fn of(engine: Engine<L>, model: &ArrayModel, arrivals: Arrivals) -> InTime<L> {
        InTime {
            engine,
            output: Output::default(),
            clock: Arc::default(),
            clients: Clients::new(arrivals),
            cache: Channels::new(&model.cache, BLOCK),
            storage: Channels::new(&model.storage, BLOCK),
            events: BinaryHeap::new(),
            next_event: 0,
            paused: HashMap::new(),
            requests: HashMap::new(),
            next_request: 0,
            waiting: WaitingRequests::default(),
            answered: Arc::default(),
            now_ns: 0,
        }
    }

    /// The cache.
    pub fn cache(&self) -> &L::Cache {
        self.engine.cache()
    }

    /// Lets time pass until a request comes, which is at `time_us` in the trace.
    pub fn await_arrival(&mut self, time_us: u64) {
        while self.clients.waits_for_answer(self.requests.len()) && self.clients.first_answer_ns().is_none() {
            self.pass(u64::MAX);
        }
        let arrival_ns = self.clients.arrival_ns(time_us, self.requests.len());
        while self.pass(arrival_ns) {}
        self.set_time(arrival_ns);
    }

    /// Starts a request that has come.
    pub fn request(&mut self, request: &CacheRequest, counted: bool) {
        let arrival_ns = self.now_ns;
        if counted {
            self.clients.counts(arrival_ns, &self.cache, &self.storage);
        }
        let number = self.next_request;
        self.next_request += 1;
        if request.length_bytes == 0 && request.kind != Kind::Flush {
            return self.clients.answered(arrival_ns, arrival_ns, counted);
        }
        self.requests.insert(number, Unanswered { arrival_ns, counted });
        let operation = Operation::from(request.kind);
        let bytes = request.offset_bytes..request.offset_bytes + request.length_bytes;
        if self.waiting.precede(operation, &bytes) || self.engine.is_full(operation == Operation::Read) {
            self.waiting.push(operation, &bytes, (number, *request));
            return;
        }
        self.plan(number, request);
        self.collect();
    }

    /// Lets time pass until all requests are answered.
    pub fn await_answers(&mut self) {
        while !self.requests.is_empty() {
            self.pass(u64::MAX);
        }
    }

    /// Lets the work end that is in progress after the last answer, and returns the results.
    pub fn finish(&mut self) -> Waits {
        self.await_answers();
        while let Some(Reverse((at_ns, number, event))) = self.events.pop() {
            self.happen(at_ns, number, event);
        }
        self.clients.waits(&self.cache, &self.storage)
    }

    fn now_us(&self) -> u64 {
        self.now_ns / 1000
    }

    fn set_time(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        self.clock.0.store(self.now_us(), Ordering::Relaxed);
    }

    /// Lets time pass until something happens, at most until `end_ns`. False if nothing does.
    fn pass(&mut self, end_ns: u64) -> bool {
        let event_ns = self.events.peek().map_or(u64::MAX, |Reverse((at_ns, ..))| *at_ns);
        // A volume looks after its work once a second. Without work it would find nothing but what ticks bring.
        let is_busy = L::has_work(&self.engine) || !self.waiting.is_empty();
        let look_us = if is_busy { (self.now_us() / LOOK_US + 1) * LOOK_US } else { u64::MAX };
        let until_us = (event_ns.min(end_ns) / 1000).min(look_us);
        let tick_us = self.engine.cache().next_tick_us(until_us);
        if let Some(due_us) = tick_us.or((look_us == until_us).then_some(look_us)) {
            self.set_time(due_us * 1000);
            let now_us = self.now_us();
            self.engine.advance(now_us);
            if due_us == look_us {
                L::look(&mut self.engine);
            }
            self.admit();
            self.collect();
            return true;
        }
        if event_ns > end_ns {
            return false;
        }
        let Some(Reverse((at_ns, number, event))) = self.events.pop() else { return false };
        self.happen(at_ns, number, event);
        true
    }

    fn happen(&mut self, at_ns: u64, number: u64, event: Event) {
        self.set_time(at_ns);
        match event {
            Event::Ends(tag) => {
                self.engine.completed(tag, Ok(()));
                self.admit();
            }
            Event::Answers => {
                let Paused { done, result, .. } = self.paused.remove(&number).expect("an answer is given once");
                done(result);
            }
        }
        self.collect();
    }

    /// Plans requests that had to wait.
    fn admit(&mut self) {
        while !self.waiting.is_empty() && !self.engine.is_full(false) {
            let (number, request) = self.waiting.pop().expect("one waits");
            self.plan(number, &request);
        }
    }

    fn plan(&mut self, number: u64, request: &CacheRequest) {
        let &CacheRequest { kind, offset_bytes: offset, length_bytes: length, durable, caching, .. } = request;
        let operation = Operation::from(kind);
        let data = if kind == Kind::Write { vec![0; length as usize] } else { Vec::new() };
        let request = Request { operation, offset, length, force_unit_access: durable, data, caching };
        let answered = self.answered.clone();
        let done = Box::new(move |_| answered.lock().unwrap_or_else(PoisonError::into_inner).push(number));
        self.engine.submit(request, done, self.now_us());
    }

    /// Starts transfers and gives answers.
    fn collect(&mut self) {
        self.engine.take_output(&mut self.output);
        let mut output = std::mem::take(&mut self.output);
        for transfer in output.transfers.drain(..) {
            let done_ns = self.serve(&transfer);
            self.add(done_ns, Event::Ends(transfer.tag));
        }
        for paused in output.paused.drain(..) {
            let number = self.add(paused.until_us.saturating_mul(1000).max(self.now_ns), Event::Answers);
            self.paused.insert(number, paused);
        }
        output.answers.drain(..).for_each(|(done, result)| done(result));
        output.answered.clear();
        self.output = output;
        let answered = std::mem::take(&mut *self.answered.lock().unwrap_or_else(PoisonError::into_inner));
        for number in answered {
            let Unanswered { arrival_ns, counted } = self.requests.remove(&number).expect("a request is answered once");
            self.clients.answered(arrival_ns, self.now_ns, counted);
        }
    }

    fn add(&mut self, at_ns: u64, event: Event) -> u64 {
        let number = self.next_event;
        self.next_event += 1;
        self.events.push(Reverse((at_ns, number, event)));
        number
    }

    /// Starts a transfer at its device, and returns its end.
    fn serve(&mut self, transfer: &Transfer) -> u64 {
        let channels = if transfer.disk == FLASH { &mut self.cache } else { &mut self.storage };
        let first = (transfer.offset / BLOCK) as u32;
        let (op, blocks) = match transfer.operation {
            DiskOperation::Read => (Op::Read, transfer.length / BLOCK),
            DiskOperation::Write => (Op::Write, transfer.length / BLOCK),
            DiskOperation::Zero { .. } => (Op::Write, 1),
            DiskOperation::Sync => return channels.flush(self.now_ns),
            DiskOperation::Discard => return self.now_ns,
        };
        let access = |block| channels.access_of(transfer.tag, block, op, self.now_ns);
        (first..first + blocks as u32).map(access).max().unwrap_or(self.now_ns)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use flashwise_core::cache::{self, LogCache};
    use flashwise_core::filter::Caching;
    use flashwise_core::format::Geometry;
    use flashwise_core::layout::containers;
    use flashwise_core::policy::Spec;
    use flashwise_core::wlfc::{Config, header};
    use flashwise_device::tier_model_of_option;

    use super::*;

    /// The paper's latencies: 40 and 200 us for the cache, 200 and 1,000 us for the storage, one channel each.
    fn model() -> ArrayModel {
        let tier = |device: &str| tier_model_of_option("test", &format!("{device}:channels=1")).unwrap();
        ArrayModel { cache: tier("slc"), storage: tier("mlc") }
    }

    /// Units have 16 pages, and only blocks in progress are in RAM.
    fn in_time(arrivals: &str) -> InTime<Log> {
        let geometry = Geometry { units: 12, unit_pages: 16 };
        let config =
            cache::Config { sequential_blocks: 0, ..cache::Config::new(geometry, Spec::parse("lru").unwrap()) };
        let cache = LogCache::new(config, containers::Log::new(geometry), HashMap::new());
        InTime::of_log(cache, false, &model(), arrivals.parse().unwrap())
    }

    fn request(time_us: u64, kind: Kind, block: u64) -> CacheRequest {
        let (offset_bytes, length_bytes) = if kind == Kind::Flush { (0, 0) } else { (BLOCK * block, BLOCK) };
        CacheRequest { time_us, kind, offset_bytes, length_bytes, durable: false, caching: Caching::Usual }
    }

    /// Returns the latency in us of each request.
    fn latencies(arrivals: &str, requests: &[CacheRequest]) -> Vec<f64> {
        latencies_of(|| in_time(arrivals), requests)
    }

    fn latencies_of<L: Timed>(start: impl Fn() -> InTime<L>, requests: &[CacheRequest]) -> Vec<f64> {
        let of = |counted: usize| {
            let mut run = start();
            for (number, request) in requests.iter().enumerate() {
                run.await_arrival(request.time_us);
                run.request(request, number == counted);
            }
            run.finish().latencies.mean_us
        };
        (0..requests.len()).map(of).collect()
    }

    /// Times in us:
    ///
    ///     comes                      storage    answered
    ///     0      miss of a block     0-200           200
    ///     100    miss of another     200-400         400
    ///     200    the first block     in memory       200
    #[test]
    fn a_request_waits_for_its_device_and_for_what_is_on_its_way() {
        let requests = [(0, 7), (100, 8), (200, 7)].map(|(time_us, block)| request(time_us, Kind::Read, block));
        assert_eq!(latencies("trace", &requests), [200.0, 300.0, 0.0]);
        // One request after the other, so none waits for another.
        assert_eq!(latencies("closed:depth=1", &requests), [200.0, 200.0, 0.0]);
        assert_eq!(latencies("closed:depth=2", &requests), [200.0, 400.0, 0.0]);
    }

    /// A write is in memory. A flush writes its page and a header, 200 us each.
    #[test]
    fn a_write_is_answered_from_memory_and_a_flush_waits_for_flash() {
        let requests = [request(0, Kind::Write, 7), request(10, Kind::Flush, 0), request(20, Kind::Read, 9)];
        assert_eq!(latencies("trace", &requests), [0.0, 400.0, 200.0]);
    }

    /// Buckets of 15 blocks. A write is in memory, and its log is begun at once: a header and a page, 200 us each. The
    /// first block of another bucket is read with the bucket, 200 us a block.
    #[test]
    fn a_flush_waits_for_logs_and_a_read_for_its_bucket() {
        let config = Config::served(12, 15, header::HEADER_BLOCKS, 0.5).unwrap();
        let start = || InTime::of_buckets(Wlfc::new(config.clone()).unwrap(), &model(), "trace".parse().unwrap());
        let requests = [request(0, Kind::Write, 7), request(10, Kind::Flush, 0), request(500, Kind::Read, 15)];
        assert_eq!(latencies_of(start, &requests), [0.0, 390.0, 3000.0]);
    }

    /// 3,000 misses of a storage that serves 5,000 per second come in 3 ms.
    #[test]
    fn requests_wait_while_devices_are_behind_and_all_are_answered() {
        let mut run = in_time("trace");
        for number in 0..3000 {
            run.await_arrival(number);
            run.request(&request(number, Kind::Read, number), true);
        }
        let waits = run.finish();
        // Frames for blocks that wait for the cache are few, so the storage idles at times.
        let least = 3000.0 * 200.0 - 2999.0;
        assert!((least..1.02 * least).contains(&waits.latencies.max_us), "{waits:?}");
        assert!((waits.storage_utilisation.unwrap() - 3000.0 * 200.0 / 2999.0).abs() < 1e-9, "{waits:?}");
    }

    /// Writes of a cache without room for more dirty blocks go at the speed of the storage: a block per ms.
    #[test]
    fn blocks_are_dirty_until_the_storage_has_them() {
        let mut run = in_time("closed:depth=4");
        for number in 0..2000 {
            run.await_arrival(0);
            run.request(&request(0, Kind::Write, number), number >= 1000);
        }
        assert!(run.cache().log().dirty_blocks() > 0);
        let per_s = run.finish().requests_per_s.unwrap();
        assert!((800.0..1100.0).contains(&per_s), "{per_s}");
    }
}
