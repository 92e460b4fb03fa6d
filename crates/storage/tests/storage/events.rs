//! The engine uses a cache only through its interface. Here it drives two caches at once, over disks whose transfers
//! end in random order and fail. Both plan the same steps, each step ends once and as planned, and every kind of event
//! occurs.

use std::collections::{BTreeMap, HashMap};

use flashwise_core::cache::{Appending, Cache, Config, Event, Figures, LogCache};
use flashwise_core::filter::Caching;
use flashwise_core::format::{BLOCK_BYTES, Geometry};
use flashwise_core::layout::containers::Log;
use flashwise_core::policy::Spec;
use flashwise_core::step::Step;
use flashwise_engine::engine::{BACKEND, FLASH, Output, Settings};
use flashwise_engine::log::Engine;
use flashwise_storage::disk::memory::MemoryDisk;
use flashwise_storage::disk::{Disk, Operation as DiskOperation, Transfer};
use flashwise_storage::export::{Error, Operation, Request};
use flashwise_testing::random::Random;

const GEOMETRY: Geometry = Geometry { units: 12, unit_pages: 16 };
const VOLUME_BLOCKS: u64 = 200;

/// A cache that asks two. It is the first of them, unless the second one says something else.
struct Twins {
    first: LogCache,
    second: LogCache,
    /// Steps that were planned and did not end yet.
    outstanding: Vec<Step>,
    /// Events by name.
    seen: BTreeMap<&'static str, u64>,
}

impl Twins {
    fn new(config: &Config) -> Twins {
        let cache = || LogCache::new(config.clone(), Log::new(GEOMETRY), HashMap::new());
        Twins { first: cache(), second: cache(), outstanding: Vec::new(), seen: BTreeMap::new() }
    }

    fn plan(&mut self, event: impl Fn() -> Event<'static>, steps: &mut Vec<Step>) {
        self.ask(event(), event(), steps);
    }

    fn ask(&mut self, event: Event<'_>, again: Event<'_>, steps: &mut Vec<Step>) {
        let mut expected = Vec::new();
        self.second.on(again, &mut expected);
        let from = steps.len();
        self.first.on(event, steps);
        assert_eq!(steps[from..], expected);
        // The answer is no step of its own, and of what the engine moves in memory a cache need not hear.
        let ends = |step: &&Step| !matches!(step, Step::Reply | Step::Pause { .. }) && !is_in_memory(step);
        self.outstanding.extend(expected.iter().filter(ends).cloned());
    }

    fn ended(&mut self, step: &Step) {
        let found = self.outstanding.iter().position(|planned| without_answers(planned) == without_answers(step));
        assert!(found.is_some() || is_in_memory(step), "{step:?} was not planned, or ended before");
        found.into_iter().for_each(|found| drop(self.outstanding.remove(found)));
    }
}

/// Returns a step without the answers that depend on it. A failed step passes these to a later step for the same block
/// of the backend.
fn without_answers(step: &Step) -> Step {
    match step.clone() {
        Step::WriteBackend { block, frame, logged, batch, .. } => {
            Step::WriteBackend { block, frame, acknowledged: false, replaces: false, logged, batch }
        }
        Step::ZeroBackend { block, count, may_punch_holes, .. } => {
            Step::ZeroBackend { block, count, may_punch_holes, replaces: Vec::new() }
        }
        step => step,
    }
}

fn is_in_memory(step: &Step) -> bool {
    matches!(step, Step::Receive { .. } | Step::Send { .. } | Step::Zero { .. } | Step::Copy { .. })
}

impl Cache for Twins {
    type Step = Step;
    type Figures = Figures;

    fn on(&mut self, event: Event<'_>, steps: &mut Vec<Step>) {
        let name = match event {
            Event::Request { request, now_us } => {
                self.ask(Event::Request { request, now_us }, Event::Request { request, now_us }, steps);
                "request"
            }
            Event::Tick { now_us } => {
                self.plan(|| Event::Tick { now_us }, steps);
                "tick"
            }
            Event::GoOn => {
                self.plan(|| Event::GoOn, steps);
                "go on"
            }
            Event::DestageAll { now_us } => {
                self.plan(|| Event::DestageAll { now_us }, steps);
                "destage all"
            }
            Event::DestageRest { now_us } => {
                self.plan(|| Event::DestageRest { now_us }, steps);
                "destage rest"
            }
            Event::Close { now_us } => {
                self.plan(|| Event::Close { now_us }, steps);
                "close"
            }
            Event::Appending(Appending { segment, checksums, doubtful, records }) => {
                let (from, mut expected) = (records.len(), Vec::new());
                let again = Appending { segment, checksums, doubtful, records: &mut expected };
                self.second.on(Event::Appending(again), steps);
                self.first.on(Event::Appending(Appending { segment, checksums, doubtful, records }), steps);
                assert_eq!(records[from..], expected);
                assert_eq!(expected.len(), segment.records.len(), "one for each");
                "appending"
            }
            Event::Done(step) => {
                self.ended(step);
                self.ask(Event::Done(step), Event::Done(step), steps);
                "done"
            }
            Event::Missing { step, blocks } => {
                self.ask(Event::Missing { step, blocks }, Event::Missing { step, blocks }, steps);
                "without data"
            }
            Event::Postponed(step) => {
                self.ask(Event::Postponed(step), Event::Postponed(step), steps);
                "postponed"
            }
            Event::Failed { step, missing } => {
                self.ended(step);
                self.ask(Event::Failed { step, missing }, Event::Failed { step, missing }, steps);
                if missing { "missing" } else { "failed" }
            }
        };
        *self.seen.entry(name).or_default() += 1;
    }

    fn next_tick_us(&self, now_us: u64) -> Option<u64> {
        let next = self.first.next_tick_us(now_us);
        assert_eq!(next, self.second.next_tick_us(now_us));
        next
    }

    fn geometry(&self) -> Geometry {
        self.first.geometry()
    }

    fn frame_count(&self) -> u32 {
        self.first.frame_count()
    }

    fn is_newer_than_backend(&self, block: u32) -> bool {
        self.first.is_newer_than_backend(block)
    }

    fn blocks_to_write_back(&self) -> u64 {
        self.first.blocks_to_write_back()
    }

    fn may_go_on(&self) -> bool {
        assert_eq!(self.first.may_go_on(), self.second.may_go_on());
        self.first.may_go_on()
    }

    fn lost_blocks(&self) -> Vec<u32> {
        let lost = self.first.lost_blocks();
        assert_eq!(lost, self.second.lost_blocks());
        lost
    }

    fn figures(&self) -> Figures {
        assert_eq!(self.first.figures(), self.second.figures());
        self.first.figures()
    }

    fn check(&self) {
        self.first.check();
        self.second.check();
    }
}

/// How seldom a transfer fails: once in so many times.
#[derive(Clone, Copy, Debug)]
struct Odds {
    flash_read: u64,
    flash_write: u64,
    backend: u64,
}

const NEVER: u64 = u64::MAX;

struct Live {
    engine: Engine<Twins>,
    disks: [MemoryDisk; 2],
    in_flight: Vec<Transfer>,
    output: Output,
    random: Random,
    odds: Odds,
    now_us: u64,
}

impl Live {
    fn new(seed: u64, odds: Odds) -> Live {
        let config = Config {
            read_buffer_blocks: 8,
            write_buffer_blocks: 16,
            dirty_high: 0.3,
            dirty_low: 0.2,
            dirty_age_us: 400_000,
            commit_age_us: 200_000,
            sequential_blocks: 0,
            ..Config::new(GEOMETRY, Spec::parse("lru").unwrap())
        };
        let settings =
            Settings { cache: 1, epoch: 1, patience: 2, discard: true, spare_frames: 4, ..Settings::default() };
        let engine = Engine::new(Twins::new(&config), settings, vec![0; GEOMETRY.pages() as usize], Vec::new());
        let disks =
            [u64::from(GEOMETRY.pages()), VOLUME_BLOCKS].map(|blocks| MemoryDisk::new(blocks as usize * BLOCK_BYTES));
        let (in_flight, output, random) = (Vec::new(), Output::default(), Random(seed));
        Live { engine, disks, in_flight, output, random, odds, now_us: 0 }
    }

    fn collect(&mut self) {
        self.engine.take_output(&mut self.output);
        self.in_flight.append(&mut self.output.transfers);
        self.output.answers.drain(..).for_each(|(done, result)| done(result));
        self.output.answered.clear();
    }

    fn end_one(&mut self) {
        let transfer = self.in_flight.swap_remove(self.random.below(self.in_flight.len() as u64) as usize);
        let odds = match (transfer.disk, transfer.operation) {
            (FLASH, DiskOperation::Read) => self.odds.flash_read,
            (FLASH, _) => self.odds.flash_write,
            (BACKEND, _) => self.odds.backend,
            (disk, _) => panic!("there is no disk {disk}"),
        };
        let fails = self.random.chance(odds);
        if !fails {
            self.disks[transfer.disk].perform(&transfer).unwrap();
        }
        self.engine.completed(transfer.tag, if fails { Err(Error::Io) } else { Ok(()) });
        self.collect();
    }

    fn settle(&mut self) {
        while self.engine.running() > 0 {
            if self.in_flight.is_empty() {
                self.engine.read_again();
                self.collect();
            }
            self.end_one();
        }
    }

    fn request(&mut self) {
        let (random, block) = (&mut self.random, BLOCK_BYTES as u64);
        let (first, blocks) = (random.below(VOLUME_BLOCKS - 8), 1 + random.below(8));
        let operation = match random.below(20) {
            0..=6 => Operation::Read,
            7..=16 => Operation::Write,
            17 => Operation::Trim,
            18 => Operation::WriteZeroes { may_punch_holes: true, only_if_fast: false },
            _ => Operation::Flush,
        };
        // Some begin within a block.
        let cut = if random.chance(3) { 512 } else { 0 };
        let (offset, length) =
            if operation == Operation::Flush { (0, 0) } else { (first * block + cut, blocks * block - cut) };
        let data = if operation == Operation::Write { vec![7; length as usize] } else { Vec::new() };
        let (force_unit_access, caching) = (random.chance(12), Caching::Usual);
        let request = Request { operation, offset, length, force_unit_access, data, caching };
        self.engine.submit(request, Box::new(|_| ()), self.now_us);
        self.collect();
    }

    /// Random requests, and then an orderly end; what happened, by name.
    fn run(mut self) -> BTreeMap<&'static str, u64> {
        for _ in 0..400 {
            self.now_us += self.random.below(20_000);
            self.request();
            while self.engine.requests() > 6 || !self.in_flight.is_empty() && self.random.chance(2) {
                if self.in_flight.is_empty() {
                    self.engine.read_again();
                    self.collect();
                }
                self.end_one();
            }
        }
        self.settle();
        for round in 0..3 {
            self.now_us += 2_000_000;
            match round {
                2 if self.engine.recovery().has_flash_failed() => self.engine.destage_rest(self.now_us),
                2 => self.engine.close(self.now_us),
                _ => self.engine.destage_all(self.now_us),
            }
            self.collect();
            self.settle();
        }
        let cache = self.engine.cache();
        cache.check();
        assert_eq!(cache.outstanding, [], "each step ends");
        assert!(cache.figures().erasures > 0 || self.engine.recovery().has_flash_failed(), "the log went round");
        let _ = cache.lost_blocks();
        cache.seen.clone()
    }
}

#[test]
fn the_same_events_get_the_same_steps_and_each_step_ends_once() {
    let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
    let odds = |flash_read, flash_write, backend| Odds { flash_read, flash_write, backend };
    for seed in 0..12 {
        for odds in [odds(NEVER, NEVER, NEVER), odds(8, NEVER, 4), odds(20, 300, 20), odds(NEVER, NEVER, 3)] {
            for (name, count) in Live::new(seed, odds).run() {
                *seen.entry(name).or_default() += count;
            }
        }
    }
    let names: Vec<_> = seen.keys().copied().collect();
    let all = [
        "appending",
        "close",
        "destage all",
        "destage rest",
        "done",
        "failed",
        "go on",
        "missing",
        "postponed",
        "request",
        "tick",
        "without data",
    ];
    assert_eq!(names, all, "every kind of event happens: {seen:?}");
}
