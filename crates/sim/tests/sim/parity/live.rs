//! The server's engine over disks in memory, whose transfers end in random order.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use flashwise_core::cache::{Cache, Config, Kind, LogCache, WriteBackOrder};
use flashwise_core::format::{BLOCK_BYTES, Superblock};
use flashwise_engine::engine::{FLASH, Output, Settings};
use flashwise_engine::log::Engine;
use flashwise_sim::cache_run::CacheCounts;
use flashwise_storage::disk::memory::MemoryDisk;
use flashwise_storage::disk::{Disk, Transfer};
use flashwise_storage::export::{Operation, Request};
use flashwise_storage::flash::{cache_tag, format, read_superblock, recover_log};
use flashwise_trace::request_file::CacheRequest;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::workload::BACKEND_BLOCKS;

/// The cache's events, in order.
#[derive(Clone, Debug)]
pub enum Event {
    Tick(u64),
    Request(CacheRequest),
    /// A batch of blocks was written back.
    Ended(u32),
    /// The backend took an answered write past the flash, from this frame.
    WentPast(u32),
    /// The oldest flush of the backend ended.
    Flushed,
}

type Answers = Arc<Mutex<Answered>>;

#[derive(Default)]
struct Answered {
    outstanding: usize,
    /// The bytes of unanswered changes. In order, a read may pass those that wait.
    changing: Vec<Range<u64>>,
    wrong: Vec<String>,
}

pub struct Live {
    engine: Engine,
    flash: MemoryDisk,
    backend: MemoryDisk,
    depth: usize,
    in_order: bool,
    random: Xoshiro256PlusPlus,
    in_flight: Vec<Transfer>,
    output: Output,
    events: Vec<Event>,
    answers: Answers,
    /// The contents of each written block.
    contents: HashMap<u64, Vec<u8>>,
    fill: u8,
}

impl Live {
    /// Returns an empty cache, as after its first start, with up to `depth` requests at once.
    pub fn new(config: &Config, seed: u64, depth: usize) -> Live {
        let flash = MemoryDisk::new(config.geometry.pages() as usize * BLOCK_BYTES);
        let volume_bytes = BACKEND_BLOCKS * BLOCK_BYTES as u64;
        let mut superblock = Superblock::new([7; 16], [9; 16], config.geometry, volume_bytes);
        format(&flash, &mut superblock).unwrap();
        let superblock = read_superblock(&flash).unwrap();
        let recovered = recover_log(&flash, &superblock, 1, &|_, _| ()).unwrap();
        let cache = LogCache::new(config.clone(), recovered.log, recovered.lost);
        let settings = Settings {
            cache: cache_tag(&superblock),
            epoch: recovered.epoch,
            retries: 0,
            discard: true,
            spare_frames: 16,
            answers_flushes_at_once: false,
            ..Settings::default()
        };
        Live {
            engine: Engine::new(cache, settings, recovered.checksums, recovered.head_records),
            flash,
            backend: MemoryDisk::new(volume_bytes as usize),
            depth,
            in_order: config.order != WriteBackOrder::None,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            in_flight: Vec::new(),
            output: Output::default(),
            events: Vec::new(),
            answers: Answers::default(),
            contents: HashMap::new(),
            fill: 0,
        }
    }

    pub fn events(&self) -> &[Event] {
        &self.events
    }

    pub fn counts(&self) -> CacheCounts {
        CacheCounts { figures: self.engine.cache().figures(), counters: *self.engine.cache().counters() }
    }

    /// Submits all requests in order, and lets everything end.
    pub fn run(&mut self, requests: &[CacheRequest]) {
        for request in requests {
            self.ticks(request.time_us);
            self.submit(request);
            while self.is_full() {
                self.end_one();
            }
            // Transfers also end between requests.
            while self.depth > 1 && !self.in_flight.is_empty() && self.random.random_bool(0.6) {
                self.end_one();
            }
        }
        self.settle();
    }

    /// True if another request has to wait; with a depth of 1, for the background too.
    fn is_full(&self) -> bool {
        let outstanding = self.answers.lock().unwrap().outstanding;
        if self.depth == 1 { !self.in_flight.is_empty() } else { outstanding >= self.depth }
    }

    fn settle(&mut self) {
        while !self.in_flight.is_empty() {
            self.end_one();
        }
        assert_eq!((self.engine.running(), self.answers.lock().unwrap().outstanding), (0, 0));
        self.engine.cache().check();
    }

    /// The ticks that come before a request, each with time to do what it plans.
    fn ticks(&mut self, now_us: u64) {
        while let Some(tick_us) = self.engine.cache().next_tick_us(now_us) {
            self.engine.advance(tick_us);
            self.events.push(Event::Tick(tick_us));
            self.collect();
            while self.is_full() {
                self.end_one();
            }
        }
    }

    fn submit(&mut self, request: &CacheRequest) {
        self.events.push(Event::Request(*request));
        let CacheRequest { kind, offset_bytes: offset, length_bytes: length, durable, time_us, caching } = *request;
        let operation = Operation::from(kind);
        let mut data = Vec::new();
        if kind == Kind::Write {
            self.fill = self.fill.wrapping_add(1);
            data = vec![self.fill; length as usize];
        }
        let expected = self.expect(request, &data);
        let bytes = offset..offset + length;
        let is_change = operation.changes();
        let may_pass = {
            let mut answers = self.answers.lock().unwrap();
            answers.outstanding += 1;
            let overlaps = |change: &Range<u64>| change.start < bytes.end && bytes.start < change.end;
            let may_pass = self.in_order && kind == Kind::Read && answers.changing.iter().any(overlaps);
            answers.changing.extend(is_change.then(|| bytes.clone()));
            may_pass
        };
        let answers = self.answers.clone();
        let done = move |answer: Result<Vec<u8>, _>| {
            let mut answers = answers.lock().unwrap();
            answers.outstanding -= 1;
            if is_change {
                let at = answers.changing.iter().position(|change| *change == bytes);
                answers.changing.swap_remove(at.expect("it was noted"));
            }
            if answer.as_ref() != Ok(&expected) && !may_pass {
                answers.wrong.push(format!("{operation:?} at {offset}, {length} bytes"));
            }
        };
        let request = Request { operation, offset, length, force_unit_access: durable, data, caching };
        self.engine.submit(request, Box::new(done), time_us);
        self.collect();
    }

    /// Changes what the blocks hold; returns what the request is answered.
    fn expect(&mut self, request: &CacheRequest, data: &[u8]) -> Vec<u8> {
        let CacheRequest { kind, offset_bytes: offset, length_bytes: length, .. } = *request;
        let mut read = Vec::new();
        let block_bytes = BLOCK_BYTES as u64;
        for block in offset / block_bytes..(offset + length).div_ceil(block_bytes) {
            let content = self.contents.entry(block).or_insert_with(|| vec![0; BLOCK_BYTES]);
            let start = offset.max(block * block_bytes);
            let stop = (offset + length).min((block + 1) * block_bytes);
            let bytes = &mut content[(start - block * block_bytes) as usize..(stop - block * block_bytes) as usize];
            match kind {
                Kind::Read => read.extend_from_slice(bytes),
                Kind::Write => bytes.copy_from_slice(&data[(start - offset) as usize..(stop - offset) as usize]),
                Kind::WriteZeroes { .. } => bytes.fill(0),
                // Of a trim only whole blocks are given up; these disks make them zeroes.
                Kind::Trim if bytes.len() == BLOCK_BYTES => bytes.fill(0),
                Kind::Trim | Kind::Flush | Kind::Prefetch => {}
            }
        }
        read
    }

    fn collect(&mut self) {
        self.engine.take_output(&mut self.output);
        self.in_flight.append(&mut self.output.transfers);
        for (done, result) in self.output.answers.drain(..) {
            done(result);
        }
        self.output.answered.clear();
    }

    fn end_one(&mut self) {
        let transfer = self.in_flight.swap_remove(self.random.random_range(0..self.in_flight.len()));
        let disk = if transfer.disk == FLASH { &self.flash } else { &self.backend };
        disk.perform(&transfer).unwrap();
        let unfinished = |cache: &LogCache| (cache.batches(), cache.going_past(), cache.backend_flushes());
        let (before, past_before, flushes_before) = unfinished(self.engine.cache());
        self.engine.completed(transfer.tag, Ok(()));
        let (after, past_after, flushes) = unfinished(self.engine.cache());
        let went_past = past_before.into_iter().filter(|write| !past_after.contains(write));
        self.events.extend(went_past.map(|(_, frame)| Event::WentPast(frame)));
        self.events.extend((flushes_before..flushes).map(|_| Event::Flushed));
        self.events.extend(before.into_iter().filter(|batch| !after.contains(batch)).map(Event::Ended));
        self.collect();
    }

    /// Asserts that every answer was right, and that every block holds what was written to it last.
    pub fn verify(&mut self) {
        let counts = self.counts();
        let mut blocks: Vec<u64> = self.contents.keys().copied().collect();
        blocks.sort_unstable();
        let time_us = u64::MAX;
        for block in blocks {
            let block_bytes = BLOCK_BYTES as u64;
            let (kind, durable, caching) = (Kind::Read, false, Default::default());
            let offset_bytes = block * block_bytes;
            self.submit(&CacheRequest { time_us, kind, offset_bytes, length_bytes: block_bytes, durable, caching });
            while self.is_full() {
                self.end_one();
            }
        }
        self.settle();
        assert_eq!(self.answers.lock().unwrap().wrong, Vec::<String>::new());
        assert!(self.counts() != counts);
    }
}
