//! The plans of a whole cache that queue at the devices of an array, in order of time.
//!
//! Source: the devices as in Moon, Reddy: Adaptive policies for balancing performance and lifetime of mixed SSD arrays
//! through workload sampling. MSST 2016. [`Step`] defines which steps may overlap.
//!
//! All plans of a request come at once, and it is answered when all steps that it [awaits](Step::is_awaited) are done.
//! Steps that only make room, or are planned at ticks, run in the background. A step queues at its device, first come,
//! first served, once the steps that it needs are done:
//!
//! - a read of flash needs the append that wrote the page,
//! - a write or an append those that fill its frames,
//! - appends and footers the previous ones,
//! - a flush the writes that it makes durable,
//! - every write the earlier flushes of the flash.
//!
//! Flushes, resets and memory take no time of their own.
//!
//! Decisions do not depend on these times: for the cache each step is done at once, so blocks are clean before their
//! write-back ends. [Pauses](Step::Pause) that slow writers follow the times of the trace.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use flashwise_core::access::Op;
use flashwise_core::format::{BLOCK_BYTES, Geometry};
use flashwise_core::step::{Frame, Segment, Step};
use flashwise_device::ArrayModel;

use super::Arrivals;
use super::channels::Channels;
use super::clients::{Clients, Waits};

/// Largest number of unfinished tasks. It is exceeded only if devices are hours behind. Tasks beyond it run early,
/// which keeps the devices equally busy.
const TASKS_MAX: usize = 1 << 20;
/// Start of the numbers of runs that are not a client's request.
const OWN_RUN: u64 = 1 << 63;

/// The plans of a cache, the devices and the waiting tasks.
#[derive(Debug)]
pub(crate) struct Plans {
    geometry: Geometry,
    clients: Clients,
    cache: Channels,
    storage: Channels,
    /// Unfinished tasks by number.
    tasks: HashMap<u64, Task>,
    next_task: u64,
    /// Starts and ends of tasks, the earliest first.
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    requests: HashMap<u64, Request>,
    next_request: u64,
    /// The current request.
    current: Option<u64>,
    /// The current time on the clock of the devices.
    now_ns: u64,
    /// The task that fills a frame, writes a block of the backend, or writes a page of flash.
    frames: HashMap<u32, u64>,
    blocks: HashMap<u32, u64>,
    pages: HashMap<u32, u64>,
    /// The last append or footer.
    appended: Option<u64>,
    /// The last flushes: of the flash, and of the backend for clients.
    flash_flush: Option<u64>,
    backend_flush: Option<u64>,
    /// Writes to the backend without a planned flush, by batch.
    backend_writes: HashMap<Option<u32>, Vec<u64>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Ends,
    Begins,
}

#[derive(Debug)]
struct Task {
    work: Work,
    /// Number of unfinished tasks that it waits for.
    waits_for: u32,
    /// Tasks that wait for it.
    then: Vec<u64>,
    /// Earliest start.
    earliest_ns: u64,
}

#[derive(Clone, Copy, Debug)]
enum Work {
    /// An access to a block of the storage or a page of flash, as part of a run.
    Storage {
        block: u32,
        op: Op,
        run: u64,
    },
    Cache {
        page: u32,
        op: Op,
        run: u64,
    },
    /// Writes consecutive pages of flash.
    Append {
        page: u32,
        pages: u32,
        run: u64,
    },
    /// Only waits for other tasks.
    Join,
    /// Waits for other tasks, then answers a piece of a request.
    Reply {
        request: u64,
    },
}

#[derive(Clone, Copy, Debug)]
struct Request {
    arrival_ns: u64,
    done_ns: u64,
    counted: bool,
    /// Unanswered pieces, plus one while more pieces may come.
    open: u32,
}

impl Plans {
    /// Returns the plans of an idle cache on flash of `geometry`. The arrivals must not be [`Arrivals::None`].
    pub fn new(model: &ArrayModel, geometry: Geometry, arrivals: Arrivals) -> Plans {
        let channels = |model| Channels::new(model, BLOCK_BYTES as u64);
        Plans {
            geometry,
            clients: Clients::new(arrivals),
            cache: channels(&model.cache),
            storage: channels(&model.storage),
            tasks: HashMap::new(),
            next_task: 0,
            events: BinaryHeap::new(),
            requests: HashMap::new(),
            next_request: 0,
            current: None,
            now_ns: 0,
            frames: HashMap::new(),
            blocks: HashMap::new(),
            pages: HashMap::new(),
            appended: None,
            flash_flush: None,
            backend_flush: None,
            backend_writes: HashMap::new(),
        }
    }

    /// Starts a request, which is at `time_us` in the trace; its plans follow.
    pub fn begin(&mut self, time_us: u64, counted: bool) {
        while self.clients.waits_for_answer(self.requests.len()) {
            let next_ns = self.events.peek().map(|Reverse((at_ns, ..))| *at_ns);
            match (self.clients.first_answer_ns(), next_ns) {
                (Some(answer_ns), Some(next_ns)) if answer_ns <= next_ns => break,
                (Some(_), None) => break,
                (_, Some(_)) => self.next_event(),
                (None, None) => unreachable!("a request in progress is answered when all of its steps are done"),
            }
        }
        let arrival_ns = self.clients.arrival_ns(time_us, self.requests.len());
        self.work_until(arrival_ns);
        if counted {
            self.clients.counts(arrival_ns, &self.cache, &self.storage);
        }
        let request = Request { arrival_ns, done_ns: arrival_ns, counted, open: 1 };
        self.requests.insert(self.next_request, request);
        self.current = Some(self.next_request);
        self.next_request += 1;
    }

    /// Ends the plans of the request.
    pub fn end(&mut self) {
        if let Some(request) = self.current.take() {
            self.answer(request, 0);
        }
    }

    /// Performs work until `time_us` of the trace, if nothing else comes before.
    pub fn idle_until(&mut self, time_us: u64) {
        if let Some(at_ns) = self.clients.clock_ns(time_us) {
            self.work_until(at_ns);
        }
    }

    /// Adds a plan made at `now_us` of the trace, for a piece of the current request or in the background.
    pub fn plan(&mut self, now_us: u64, steps: &[Step]) {
        let mut needed = Vec::new();
        let mut not_before_ns = 0;
        // Reads and writes of a request are separate runs.
        let run = |op: Op| self.current.map(|request| request << 1 | op as u64);
        let (read_run, write_run) = (run(Op::Read), run(Op::Write));
        for step in steps {
            let task = match step {
                Step::Receive { frame, length, .. } | Step::Zero { frame, length, .. } => {
                    if usize::from(*length) == BLOCK_BYTES {
                        self.frames.remove(&frame.number);
                    }
                    self.filling(*frame)
                }
                Step::Send { frame, .. } => self.filling(*frame),
                Step::Copy { from, to, .. } => {
                    let filling = self.filling(*from);
                    match filling {
                        Some(task) => self.frames.insert(to.number, task),
                        None => self.frames.remove(&to.number),
                    };
                    filling
                }
                Step::ReadFlash { slot, frame, .. } => {
                    let after = self.pages.get(slot).copied();
                    let run = read_run.unwrap_or_else(|| self.own_run());
                    let task = self.add(Work::Cache { page: *slot, op: Op::Read, run }, after);
                    self.frames.insert(frame.number, task);
                    Some(task)
                }
                Step::ReadBackend { block, frame } => {
                    let after = self.blocks.get(block).copied();
                    let run = read_run.unwrap_or_else(|| self.own_run());
                    let task = self.add(Work::Storage { block: *block, op: Op::Read, run }, after);
                    self.frames.insert(frame.number, task);
                    Some(task)
                }
                Step::WriteBackend { block, frame, batch, .. } => {
                    let run = write_run.filter(|_| batch.is_none()).unwrap_or_else(|| self.own_run());
                    Some(self.write_backend(*block, 1, run, *batch, self.filling(*frame)))
                }
                Step::ZeroBackend { block, count, .. } => {
                    Some(self.write_backend(*block, *count, self.own_run(), None, None))
                }
                Step::Append(segment) => Some(self.append(segment)),
                Step::Witness(footer) => {
                    let page = self.geometry.slot(footer.unit, self.geometry.segments_end());
                    let after = [self.appended, self.flash_flush];
                    Some(self.add_append(page, footer.pages, after.into_iter().flatten()))
                }
                Step::FlushFlash { .. } => {
                    let task = self.add(Work::Join, [self.appended, self.flash_flush].into_iter().flatten());
                    self.flash_flush = Some(task);
                    Some(task)
                }
                Step::FlushBackend { batch } => {
                    let task = self.flush_backend(*batch);
                    if batch.is_none() {
                        self.backend_flush = Some(task);
                    }
                    Some(task)
                }
                Step::AwaitFlushes => {
                    needed.extend(self.backend_flush);
                    self.flash_flush
                }
                Step::Pause { until_us } => {
                    not_before_ns = until_us.saturating_sub(now_us).saturating_mul(1000);
                    None
                }
                Step::Reply => {
                    if let Some(request) = self.current {
                        self.reply(request, std::mem::take(&mut needed), not_before_ns);
                    }
                    None
                }
                Step::ResetUnit { .. } | Step::Destaged { .. } | Step::Fail => None,
            };
            if step.is_awaited() {
                needed.extend(task);
            }
        }
        while self.tasks.len() > TASKS_MAX {
            self.next_event();
        }
    }

    /// Returns the results, after the last request.
    pub fn finish(mut self) -> Waits {
        self.end();
        self.work_until(u64::MAX);
        self.clients.waits(&self.cache, &self.storage)
    }

    fn reply(&mut self, request: u64, needed: Vec<u64>, not_before_ns: u64) {
        let open = self.requests.get_mut(&request).expect("a request whose plans come is not answered");
        open.open += 1;
        let earliest_ns = open.arrival_ns.saturating_add(not_before_ns);
        self.add_at(Work::Reply { request }, needed, earliest_ns);
    }

    fn append(&mut self, segment: &Segment) -> u64 {
        let data = || segment.records.iter().filter(|record| record.kind.has_data());
        let mut after: Vec<u64> = data().filter_map(|record| self.filling(record.frame)).collect();
        let backend_flush = self.backend_flush.filter(|_| segment.needs_backend_flush);
        after.extend([self.appended, self.flash_flush, backend_flush].into_iter().flatten());
        let page = self.geometry.slot(segment.unit, segment.page);
        let task = self.add_append(page, 1 + segment.data_pages, after);
        for record in data() {
            self.pages.insert(record.slot, task);
        }
        task
    }

    fn add_append(&mut self, page: u32, pages: u32, after: impl IntoIterator<Item = u64>) -> u64 {
        let run = self.own_run();
        let task = self.add(Work::Append { page, pages, run }, after);
        self.appended = Some(task);
        task
    }

    /// Writes `count` blocks in one access, once their data is ready.
    fn write_backend(&mut self, block: u32, count: u32, run: u64, batch: Option<u32>, data: Option<u64>) -> u64 {
        let blocks = block..block + count;
        let mut after: Vec<u64> = blocks.clone().filter_map(|block| self.blocks.get(&block).copied()).collect();
        after.extend(data.into_iter().chain(self.flash_flush));
        let task = self.add(Work::Storage { block, op: Op::Write, run }, after);
        self.blocks.extend(blocks.map(|block| (block, task)));
        self.backend_writes.entry(batch).or_default().push(task);
        task
    }

    /// Waits for the writes of a batch, or for those of clients.
    fn flush_backend(&mut self, batch: Option<u32>) -> u64 {
        let mut after = self.backend_writes.remove(&batch).unwrap_or_default();
        after.extend(self.backend_flush.filter(|_| batch.is_none()));
        self.add(Work::Join, after)
    }

    /// Returns the unfinished task that fills a frame, if any.
    fn filling(&self, frame: Frame) -> Option<u64> {
        self.frames.get(&frame.number).copied().filter(|task| self.tasks.contains_key(task))
    }

    /// Returns a run for the next task only.
    fn own_run(&self) -> u64 {
        self.next_task | OWN_RUN
    }

    fn add(&mut self, work: Work, after: impl IntoIterator<Item = u64>) -> u64 {
        self.add_at(work, after, self.now_ns)
    }

    fn add_at(&mut self, work: Work, after: impl IntoIterator<Item = u64>, earliest_ns: u64) -> u64 {
        let number = self.next_task;
        self.next_task += 1;
        let mut waits_for = 0;
        for before in after {
            if let Some(before) = self.tasks.get_mut(&before) {
                before.then.push(number);
                waits_for += 1;
            }
        }
        if waits_for == 0 {
            self.events.push(Reverse((earliest_ns, number, Event::Begins)));
        }
        self.tasks.insert(number, Task { work, waits_for, then: Vec::new(), earliest_ns });
        number
    }

    /// Performs the events up to and including `end_ns`.
    fn work_until(&mut self, end_ns: u64) {
        while self.events.peek().is_some_and(|Reverse((at_ns, ..))| *at_ns <= end_ns) {
            self.next_event();
        }
        if end_ns < u64::MAX {
            self.now_ns = self.now_ns.max(end_ns);
        }
    }

    fn next_event(&mut self) {
        let Some(Reverse((at_ns, number, event))) = self.events.pop() else { return };
        self.now_ns = self.now_ns.max(at_ns);
        match event {
            Event::Begins => {
                let done_ns = self.perform(self.tasks[&number].work, at_ns);
                self.events.push(Reverse((done_ns, number, Event::Ends)));
            }
            Event::Ends => {
                let Task { work, then, .. } = self.tasks.remove(&number).expect("a task ends once");
                if let Work::Reply { request } = work {
                    self.answer(request, at_ns);
                }
                for next in then {
                    let task = self.tasks.get_mut(&next).expect("what waits is not done");
                    task.waits_for -= 1;
                    if task.waits_for == 0 {
                        self.events.push(Reverse((task.earliest_ns.max(at_ns), next, Event::Begins)));
                    }
                }
            }
        }
    }

    /// Performs work that queues at its device at `at_ns`, and returns its end.
    fn perform(&mut self, work: Work, at_ns: u64) -> u64 {
        match work {
            Work::Storage { block, op, run } => self.storage.access_of(run, block, op, at_ns),
            Work::Cache { page, op, run } => self.cache.access_of(run, page, op, at_ns),
            Work::Append { page, pages, run } => {
                let done_ns = |page| self.cache.access_of(run, page, Op::Write, at_ns);
                (page..page + pages).map(done_ns).max().unwrap_or(at_ns)
            }
            Work::Join | Work::Reply { .. } => at_ns,
        }
    }

    /// Answers a piece of a request, or ends its pieces.
    fn answer(&mut self, number: u64, at_ns: u64) {
        let request = self.requests.get_mut(&number).expect("a request is answered once");
        request.done_ns = request.done_ns.max(at_ns);
        request.open -= 1;
        if request.open == 0 {
            let Request { arrival_ns, done_ns, counted, .. } = *request;
            self.requests.remove(&number);
            self.clients.answered(arrival_ns, done_ns, counted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashwise_core::format::Kind;
    use flashwise_core::step::{Cause, LogRecord};
    use flashwise_device::tier_model_of_option;

    /// The paper's latencies: 40 and 200 us for the cache, 200 and 1,000 us for the storage, one channel each. Units
    /// have 16 pages.
    fn plans(arrivals: &str) -> Plans {
        let tier = |device: &str| tier_model_of_option("test", &format!("{device}:channels=1")).unwrap();
        let model = ArrayModel { cache: tier("slc"), storage: tier("mlc") };
        Plans::new(&model, Geometry { units: 12, unit_pages: 16 }, arrivals.parse().unwrap())
    }

    fn frame(number: u32) -> Frame {
        Frame { number, fill: 0 }
    }

    fn receive(frame: Frame, length: u16) -> Step {
        Step::Receive { block: 7, frame, at: 0, length, from: 0 }
    }

    fn send(frame: Frame) -> Step {
        Step::Send { block: 7, frame, at: 0, length: 4096, to: 0 }
    }

    fn write(frame: Frame) -> Step {
        Step::WriteBackend { block: 7, frame, acknowledged: false, replaces: false, logged: false, batch: None }
    }

    /// The first segment of unit 1, with one block, in slot 17.
    fn append(frame: Frame) -> Step {
        let record = LogRecord { kind: Kind::Dirty, block: 7, slot: 17, frame, old: None, cause: Cause::Client };
        Step::Append(Box::new(Segment {
            unit: 1,
            sequence: 1,
            tail: 1,
            previous_end: 0,
            durable_end: 0,
            page: 0,
            skipped: 0,
            data_pages: 1,
            records: vec![record],
            needs_backend_flush: false,
        }))
    }

    /// Returns the latencies in us of requests of one piece each, which come at times in us.
    fn latencies(arrivals: &str, requests: &[(u64, Vec<Step>)]) -> Vec<f64> {
        fn run(mut plans: Plans, requests: &[(u64, Vec<Step>)], counted: usize) -> f64 {
            for (number, (time_us, steps)) in requests.iter().enumerate() {
                plans.begin(*time_us, number == counted);
                plans.plan(*time_us, steps);
                plans.end();
            }
            plans.finish().latencies.mean_us
        }
        (0..requests.len()).map(|counted| run(plans(arrivals), requests, counted)).collect()
    }

    /// Times in us:
    ///
    ///     comes                              cache      storage       answered
    ///     0    write of a part of a block               read 0-200
    ///                                                   write 200-1,200   1,200
    ///     100  read from flash               100-140                        140
    ///     300  read from the backend                    1,200-1,400       1,400
    #[test]
    fn a_step_waits_for_those_that_it_needs_and_for_its_device() {
        let (old, new) = (frame(1), frame(2));
        let part = vec![
            Step::ReadBackend { block: 7, frame: old },
            Step::Copy { block: 7, from: old, to: new },
            receive(new, 512),
            write(new),
            Step::Reply,
        ];
        let hit =
            vec![Step::ReadFlash { block: 8, slot: 40, frame: frame(3), dirty: false }, send(frame(3)), Step::Reply];
        let miss = vec![Step::ReadBackend { block: 9, frame: frame(4) }, send(frame(4)), Step::Reply];
        let requests = [(0, part), (100, hit), (300, miss)];
        assert_eq!(latencies("trace", &requests), [1200.0, 40.0, 1100.0]);
        // One request after the other, so none waits for another.
        assert_eq!(latencies("closed:depth=1", &requests), [1200.0, 40.0, 200.0]);
    }

    /// The block is read, 0-200 us, then written with its header, 200-600; a concurrent read is answered earlier.
    #[test]
    fn a_flush_waits_for_its_writes_and_a_read_does_not() {
        let read = [Step::ReadBackend { block: 7, frame: frame(1) }, send(frame(1)), Step::Reply, append(frame(1))];
        let flush = [Step::FlushFlash { sequence: 1, page: 2 }, Step::AwaitFlushes, Step::Reply];
        assert_eq!(latencies("trace", &[(0, read.to_vec()), (0, flush.to_vec())]), [200.0, 600.0]);
    }

    /// The write is in memory. Its page is written until 400 us and read after that; the next fill of its frame does
    /// not wait.
    #[test]
    fn a_write_is_answered_from_memory_and_its_page_is_read_once_it_is_written() {
        let new = frame(1);
        let written = vec![receive(new, 4096), Step::Reply, append(new)];
        let read =
            vec![Step::ReadFlash { block: 7, slot: 17, frame: frame(2), dirty: true }, send(frame(2)), Step::Reply];
        let again = vec![receive(frame(2), 4096), Step::Reply];
        let paused = vec![receive(new, 4096), Step::Pause { until_us: 70 }, Step::Reply];
        let requests = [(0, written), (10, read), (20, again), (30, paused)];
        assert_eq!(latencies("trace", &requests), [0.0, 430.0, 0.0, 40.0]);
    }

    /// Blocks of a batch are written back while a client's flush waits for its own write only.
    #[test]
    fn a_flush_of_the_backend_waits_for_no_batch_but_its_own() {
        let own = vec![receive(frame(1), 4096), write(frame(1)), Step::Reply];
        let back = Step::WriteBackend {
            block: 9,
            frame: frame(2),
            acknowledged: true,
            replaces: false,
            logged: false,
            batch: Some(3),
        };
        let flush = vec![back, Step::FlushBackend { batch: None }, Step::AwaitFlushes, Step::Reply];
        // The second write waits for the first, until 2,000 us.
        assert_eq!(latencies("trace", &[(0, own), (100, flush)]), [1000.0, 900.0]);
        let of_batch = [
            Step::WriteBackend {
                block: 9,
                frame: frame(2),
                acknowledged: true,
                replaces: false,
                logged: false,
                batch: Some(3),
            },
            Step::FlushBackend { batch: Some(3) },
            Step::Reply,
        ];
        assert_eq!(latencies("trace", &[(0, of_batch.to_vec())]), [0.0]);
    }

    /// 3,000 misses at once, 200 us each: a small limit of tasks leaves the devices the same work.
    #[test]
    fn work_that_never_ends_in_time_is_all_done() {
        let mut plans = plans("trace");
        for request in 0..3000_u32 {
            let miss = [Step::ReadBackend { block: request, frame: frame(request) }, send(frame(request)), Step::Reply];
            plans.begin(request.into(), true);
            plans.plan(request.into(), &miss);
            plans.end();
        }
        let waits = plans.finish();
        assert_eq!(waits.latencies.max_us, 3000.0 * 200.0 - 2999.0);
        assert!((waits.storage_utilisation.unwrap() - 3000.0 * 200.0 / 2999.0).abs() < 1e-9, "{waits:?}");
    }
}
