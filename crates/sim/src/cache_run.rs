//! The whole cache in simulations without times: the server's cache, whose steps are done at once.
//!
//! It is the cache of `flashwise-core` that the server runs, with the same [events](Event). These are the ticks due
//! before a request, the request's pieces, then the ends of their steps. Blocks written back are clean before the next
//! request. A real run, and one in time, differs only in this: blocks stay dirty until the backend has them.

use std::collections::{HashMap, VecDeque};

use flashwise_core::cache::{Cache, Config, Event, Figures, LogCache, Request};
use flashwise_core::counters::Counters;
use flashwise_core::layout::containers::Log;
use flashwise_core::step::Step;
use flashwise_engine::request::Operation;
use flashwise_trace::request_file::CacheRequest;

/// A cache that starts empty and runs one request after another.
#[derive(Debug)]
pub struct CacheRun<C = LogCache> {
    cache: C,
    now_us: u64,
    planned: Vec<Step>,
    /// Batches of blocks being written back.
    batches: VecDeque<u32>,
    /// Changes that wait until more is written back, in order.
    waiting: VecDeque<CacheRequest>,
    /// Answered writes past the flash, and flushes of the backend, if they are ended one by one.
    open: Option<Vec<Step>>,
}

impl CacheRun {
    /// Returns an empty cache.
    pub fn new(config: Config) -> CacheRun {
        let log = Log::new(config.geometry);
        CacheRun::of(LogCache::new(config, log, HashMap::new()))
    }

    /// Number of blocks that clients read and wrote so far.
    pub fn accesses(&self) -> u64 {
        let figures = self.cache.figures();
        figures.reads + figures.writes
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> CacheCounts {
        CacheCounts { figures: self.cache.figures(), counters: *self.cache.counters() }
    }
}

impl<C: Cache<Step = Step>> CacheRun<C> {
    /// Runs an existing cache.
    pub fn of(cache: C) -> CacheRun<C> {
        let (planned, batches, waiting) = (Vec::new(), VecDeque::new(), VecDeque::new());
        CacheRun { cache, now_us: 0, planned, batches, waiting, open: None }
    }

    /// Runs a request. Times never decrease: an earlier one counts as the previous.
    pub fn request(&mut self, request: &CacheRequest) {
        self.now_us = self.now_us.max(request.time_us);
        while let Some(tick_us) = self.cache.next_tick_us(self.now_us) {
            self.tick(tick_us);
            self.end_batches();
        }
        self.plan(request);
        self.end_batches();
    }

    /// Keeps answered writes past the flash open until [`end_past`](Self::end_past), and flushes of the backend until
    /// [`end_flush`](Self::end_flush).
    pub fn leave_open(&mut self) {
        self.open = Some(Vec::new());
    }

    /// Ends an answered write past the flash, given by the number of its frame.
    pub fn end_past(&mut self, number: u32) {
        self.end_open(|step| matches!(step, Step::WriteBackend { frame, .. } if frame.number == number));
    }

    /// Ends the oldest flush of the backend that belongs to no batch.
    pub fn end_flush(&mut self) {
        self.end_open(|step| matches!(step, Step::FlushBackend { .. }));
    }

    fn end_open(&mut self, is_this: impl FnMut(&Step) -> bool) {
        let open = self.open.as_mut().expect("such steps were to be left open");
        let at = open.iter().position(is_this).expect("a step is planned and ends once");
        let step = open.remove(at);
        self.cache.on(Event::Done(&step), &mut self.planned);
        if self.cache.may_go_on() {
            self.go_on();
        }
    }

    /// Plans a tick; its write-back stays open.
    pub fn tick(&mut self, tick_us: u64) {
        self.background(Event::Tick { now_us: tick_us });
    }

    /// Plans a request without the ticks before it; its write-back stays open. A change may have to wait for the end of
    /// write-back.
    pub fn plan(&mut self, request: &CacheRequest) {
        self.now_us = self.now_us.max(request.time_us);
        if Operation::from(request.kind).changes() && (!self.waiting.is_empty() || self.must_wait(request)) {
            self.waiting.push_back(*request);
            self.go_on();
        } else {
            self.begin(request);
        }
    }

    fn must_wait(&mut self, request: &CacheRequest) -> bool {
        let CacheRequest { kind, offset_bytes, length_bytes, durable, caching, .. } = *request;
        self.cache.waits(&Request { caching, ..Request::whole(kind, offset_bytes, length_bytes, durable) })
    }

    fn begin(&mut self, request: &CacheRequest) {
        let CacheRequest { kind, offset_bytes, length_bytes, durable, caching, .. } = *request;
        for piece in Request::pieces(kind, offset_bytes, length_bytes, durable).of_client(caching) {
            let event = Event::Request { request: &piece, now_us: self.now_us };
            self.cache.on(event, &mut self.planned);
            self.perform();
        }
    }

    fn background(&mut self, event: Event<'_>) {
        self.cache.on(event, &mut self.planned);
        self.perform();
    }

    /// Performs the plan and everything that follows from it.
    fn perform(&mut self) {
        self.perform_planned();
        while self.open.is_none() && self.cache.may_go_on() {
            self.cache.on(Event::GoOn, &mut self.planned);
            self.perform_planned();
        }
    }

    /// Lets the cache go on, and begins changes that no longer have to wait.
    fn go_on(&mut self) {
        loop {
            self.background(Event::GoOn);
            let before = self.waiting.len();
            while let Some(request) = self.waiting.front().copied()
                && !self.must_wait(&request)
            {
                self.waiting.pop_front();
                self.begin(&request);
            }
            // Those that began may have ended an epoch that the next one waits for.
            if !(1..before).contains(&self.waiting.len()) {
                return;
            }
        }
    }

    /// Reports the steps of the plan to the cache as done, except the ends of batches.
    fn perform_planned(&mut self) {
        let mut steps = std::mem::take(&mut self.planned);
        for step in &steps {
            match (step, &mut self.open) {
                (Step::Destaged { batch }, _) => self.batches.push_back(*batch),
                (Step::WriteBackend { acknowledged: true, .. } | Step::FlushBackend { batch: None }, Some(open)) => {
                    open.push(step.clone());
                }
                _ => self.cache.on(Event::Done(step), &mut self.planned),
            }
        }
        steps.clear();
        assert!(self.planned.is_empty(), "what became of a step gets no steps as its answer");
        self.planned = steps;
    }

    fn end_batches(&mut self) {
        while let Some(batch) = self.batches.pop_front() {
            self.end(batch);
        }
        assert!(self.waiting.is_empty(), "changes wait only while something is written back");
    }

    /// Ends a batch of blocks written back.
    pub fn end_batch(&mut self, batch: u32) {
        let found = self.batches.iter().position(|&planned| planned == batch);
        self.batches.remove(found.expect("a batch is planned and ends once"));
        self.end(batch);
    }

    fn end(&mut self, batch: u32) {
        self.cache.on(Event::Done(&Step::Destaged { batch }), &mut self.planned);
        self.go_on();
    }

    /// The cache.
    pub fn cache(&self) -> &C {
        &self.cache
    }

    /// The time of the last request.
    pub fn now_us(&self) -> u64 {
        self.now_us
    }
}

/// Counts of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// Counts of its tiers.
    pub figures: Figures,
    /// Counts of its policy.
    pub counters: Counters,
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashwise_core::cache::{Kind, WriteBackOrder};
    use flashwise_core::filter::Caching;
    use flashwise_core::format::Geometry;
    use flashwise_core::policy::Spec;

    fn config() -> Config {
        Config {
            write_buffer_blocks: 16,
            dirty_age_us: 60_000_000,
            commit_age_us: 5_000_000,
            sequential_blocks: 0,
            ..Config::new(Geometry { units: 12, unit_pages: 16 }, Spec::parse("lru").unwrap())
        }
    }

    fn request(time_us: u64, kind: Kind, block: u64) -> CacheRequest {
        CacheRequest {
            time_us,
            kind,
            offset_bytes: 4096 * block,
            length_bytes: 4096,
            durable: false,
            caching: Caching::Usual,
        }
    }

    /// A block written at 0.5 s reaches flash at the tick at 6 s, and the backend within the next 60 s. That is at the
    /// tick after eight periods of 6 s from the one that began at 0.5 s.
    #[test]
    fn data_moves_down_by_its_age_at_ticks_between_requests() {
        let mut run = CacheRun::new(config());
        run.request(&request(500_000, Kind::Write, 7));
        run.request(&request(5_999_999, Kind::Read, 1000));
        assert_eq!((run.cache().buffered_blocks(), run.counts().figures.flash_client_blocks), (1, 0));
        run.request(&request(6_000_000, Kind::Read, 1000));
        assert_eq!((run.cache().buffered_blocks(), run.counts().figures.flash_client_blocks), (0, 1));
        run.request(&request(48_000_000, Kind::Read, 1000));
        assert_eq!((run.cache().log().dirty_blocks(), run.counts().figures.destaged_blocks), (1, 0));
        run.request(&request(49_000_000, Kind::Read, 1000));
        assert_eq!((run.cache().log().dirty_blocks(), run.counts().figures.destaged_blocks), (0, 1));
        run.cache().check();
    }

    /// No client flushes. A first epoch begins at 0, because writes before could have passed the flash. It ends at 5 s.
    /// The next one begins at 7 s. Each is written back as soon as it has ended.
    #[test]
    fn an_epoch_without_flushes_ends_by_its_age() {
        let mut run = CacheRun::new(Config { order: WriteBackOrder::Barriers, write_buffer_blocks: 0, ..config() });
        let requests = [
            (500_000, Kind::Write, 0),
            (4_999_999, Kind::Read, 0),
            (5_000_000, Kind::Read, 1),
            (7_000_000, Kind::Write, 1),
            (11_999_999, Kind::Read, 1),
            (12_000_000, Kind::Read, 2),
        ];
        for (time_us, kind, written_back) in requests {
            run.request(&request(time_us, kind, 7));
            assert_eq!(run.counts().figures.destaged_blocks, written_back, "{time_us}");
        }
        run.cache().check();
    }

    #[test]
    fn a_gap_of_ages_costs_no_more_ticks_than_there_is_to_do() {
        let mut run = CacheRun::new(config());
        run.request(&request(0, Kind::Write, 7));
        run.request(&request(1 << 62, Kind::Read, 8));
        run.request(&request(u64::MAX, Kind::Read, 8));
        assert_eq!((run.cache().log().dirty_blocks(), run.counts().figures.destaged_blocks), (0, 1));
    }

    #[test]
    fn ticks_that_were_passed_over_had_nothing_to_do() {
        let requests = [0, 1, 2, 9, 10, 200, 201].map(|second| request(second * 1_000_000 + 1, Kind::Write, second));
        let (mut few, mut all) = (CacheRun::new(config()), CacheRun::new(config()));
        for request in &requests {
            few.request(request);
            for second in all.now_us / 1_000_000 + 1..=request.time_us / 1_000_000 {
                all.tick(second * 1_000_000);
                all.end_batches();
            }
            all.plan(request);
            all.end_batches();
            assert_eq!(few.counts(), all.counts());
        }
    }
}
