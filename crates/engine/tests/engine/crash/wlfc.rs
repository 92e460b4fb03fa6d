//! WLFC under power failures: its engine and format as they stand, on devices that keep what they like of unflushed writes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use flashwise_core::cache::{Cache, Event};
use flashwise_core::filter::Caching;
use flashwise_core::format::{BLOCK_BYTES, Geometry, Layout};
use flashwise_core::wlfc::{Config, Figures, Log, Refresh, Scan, Step, Wlfc};
use flashwise_engine::attach::{Attached, Attachment, End, Held, Pairing, Wanted, attach};
use flashwise_engine::disk::{Operation as DiskOperation, Transfer};
use flashwise_engine::engine::{BACKEND, FLASH, Output};
use flashwise_engine::export::{Operation, Request};
use flashwise_engine::flash::cache_tag;
use flashwise_engine::wlfc::start::{self, Options};
use flashwise_engine::wlfc::{Engine, Settings};
use flashwise_testing::budget::Budget;
use flashwise_testing::fake_disk::{ACTIVE_MIN, FakeDisk};
use flashwise_testing::random::Random;
use flashwise_testing::setting;

use crate::crash::clients::{Clients, Outcome, fail, random_range};
use crate::crash::fake_side::{FakeRecord, FakeSide};
use crate::crash::model::{Content, Model, SECTORS, decode};
use crate::crash::world::Devices;

/// A bug that is planted, which the tests must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    /// The paper's rule of recovery: of several cache buckets of a backend bucket, the one with the highest epoch counts.
    HighestEpoch,
    /// A write goes past the cache as in the paper, which leaves no tombstone on flash.
    NoTombstone,
    /// Flushes of the flash are answered and not done.
    SkipFlashFlushes,
    /// Flushes of the backend are answered and not done.
    SkipBackendFlushes,
    /// Flushes are answered at once.
    AnswerFlushesAtOnce,
    /// What is programmed does not say which start of the cache it is of: what was torn passes for durable later.
    SameRun,
}

const BUGS: [Bug; 6] = [
    Bug::HighestEpoch,
    Bug::NoTombstone,
    Bug::SkipFlashFlushes,
    Bug::SkipBackendFlushes,
    Bug::AnswerFlushesAtOnce,
    Bug::SameRun,
];

/// What a world is made of.
#[derive(Clone, Debug)]
pub struct Setup {
    pub geometry: Geometry,
    config: Config,
    depth: usize,
    pub zoned: bool,
    sector: usize,
    bug: Option<Bug>,
}

impl Setup {
    /// One without a bug.
    pub fn sound(random: &mut Random) -> Setup {
        Setup::random(random, None)
    }

    fn random(random: &mut Random, bug: Option<Bug>) -> Setup {
        let geometry = Geometry { units: 11 + random.below(6) as u32, unit_pages: random.pick(&[16, 16, 24, 40]) };
        let buckets = u64::from(geometry.log_units());
        let volume_blocks = 30 + random.below(60);
        let options = Options { refresh: random.pick(&[Refresh::Read, Refresh::Evict]), ..Options::default() };
        let config = start::config(geometry, &options, volume_blocks * BLOCK_BYTES as u64).unwrap();
        let zoned = random.chance(2);
        let write_queue = 1 + random.below(buckets / 2 - 1) as u32;
        let config = Config {
            write_queue,
            read_queue: 1 + random.below(buckets / 2 - 1) as u32,
            halving: 1 + random.below(4) as u32,
            large_write_bytes: u64::from(config.bucket_blocks) * BLOCK_BYTES as u64 / random.pick(&[1, 2, 4]),
            ram_blocks: random.pick(&[0, 0, 5]),
            erases_at_once: zoned,
            free_target: if zoned { u32::MAX } else { random.pick(&[1, 2, u32::MAX]) },
            erase_batch: if zoned { 1 } else { random.pick(&[1, 2, 4]) },
            ..config
        };
        config.check().unwrap();
        let depth = random.pick(&[1, 2, 8]);
        Setup { geometry, config, depth, zoned, sector: random.pick(&[512, 4096]), bug }
    }

    fn volume_blocks(&self) -> usize {
        self.config.volume_blocks as usize
    }
}

/// A cache whose tombstones say nothing, if that is asked for.
#[derive(Debug)]
struct Planted {
    wlfc: Wlfc,
    no_tombstone: bool,
}

impl Cache for Planted {
    type Step = Step;
    type Figures = Figures;

    fn on(&mut self, event: Event<'_, Step>, steps: &mut Vec<Step>) {
        self.wlfc.on(event, steps);
        for step in steps.iter_mut().filter(|_| self.no_tombstone) {
            if let Step::Append { oob, .. } = step
                && oob.log == Log::Passed
            {
                oob.blocks = 0;
            }
        }
    }

    fn next_tick_us(&self, now_us: u64) -> Option<u64> {
        self.wlfc.next_tick_us(now_us)
    }

    fn geometry(&self) -> Geometry {
        self.wlfc.geometry()
    }

    fn frame_count(&self) -> u32 {
        self.wlfc.frame_count()
    }

    fn is_newer_than_backend(&self, block: u32) -> bool {
        self.wlfc.is_newer_than_backend(block)
    }

    fn blocks_to_write_back(&self) -> u64 {
        self.wlfc.blocks_to_write_back()
    }

    fn lost_blocks(&self) -> Vec<u32> {
        self.wlfc.lost_blocks()
    }

    fn figures(&self) -> Figures {
        self.wlfc.figures()
    }

    fn check(&self) {
        self.wlfc.check();
    }
}

/// Lets of each backend bucket only the cache bucket with the highest epoch count.
fn highest_epoch(scans: &mut [Scan]) {
    let mut highest: BTreeMap<u32, u64> = BTreeMap::new();
    for (_, oob) in scans.iter().filter_map(|scan| scan.found.first()) {
        let epoch = highest.entry(oob.backend).or_default();
        *epoch = (*epoch).max(oob.epoch);
    }
    for scan in scans {
        if scan.found.first().is_some_and(|(_, oob)| oob.epoch < highest[&oob.backend]) {
            *scan = Scan { torn: true, ..Scan::default() };
        }
    }
}

pub struct World {
    setup: Setup,
    pub disks: [FakeDisk; 2],
    record: FakeRecord,
    attachment: Attachment,
    engine: Engine<Planted>,
    pub clients: Clients,
    random: Random,
    /// Transfers with the last write that a flush covers.
    in_flight: Vec<(Transfer, u64)>,
    output: Output,
    /// Only the process died.
    killed: bool,
}

impl World {
    pub fn new(setup: Setup, seed: u64) -> World {
        let flash = match setup.zoned {
            true => FakeDisk::zoned(setup.geometry, ACTIVE_MIN - 1 + setup.config.write_queue),
            false => FakeDisk::new(setup.geometry.pages() as usize, setup.sector),
        };
        let disks = [flash, FakeDisk::new(setup.volume_blocks(), BLOCK_BYTES)];
        let model = Model::new(setup.volume_blocks(), false);
        World::open(setup, disks, FakeRecord::default(), model, Random(seed), 1).unwrap()
    }

    pub fn open(
        setup: Setup,
        disks: [FakeDisk; 2],
        record: FakeRecord,
        model: Model,
        random: Random,
        next_tag: u64,
    ) -> Outcome<World> {
        let wanted = Wanted {
            pairing: Pairing { backend: [9; 16], is_identified: false, discards: false },
            new_cache: [7; 16],
            geometry: setup.geometry,
            layout: Layout::Wlfc,
            volume_bytes: (setup.volume_blocks() * BLOCK_BYTES) as u64,
            writes_back: true,
            threads: 1,
        };
        let side = FakeSide { record: &record, backend: &disks[BACKEND], flash: &disks[FLASH] };
        let attached = attach(&disks[FLASH], &side, &wanted, &|_, _| ());
        let Attached { attachment, held, .. } = attached.map_err(|error| format!("recovery: {error}"))?;
        let Held::Wlfc(mut held) = held else { unreachable!("it has buckets") };
        if setup.bug == Some(Bug::HighestEpoch) {
            highest_epoch(&mut held.scans);
        }
        let (wlfc, started) = held.start(setup.config.clone()).unwrap();
        wlfc.check();
        let settings = Settings {
            cache: cache_tag(attachment.superblock()),
            start: if setup.bug == Some(Bug::SameRun) { 1 } else { attachment.superblock().attach },
            zoned: setup.zoned,
            answers_flushes_at_once: setup.bug == Some(Bug::AnswerFlushesAtOnce),
            ..Settings::default()
        };
        let cache = Planted { wlfc, no_tombstone: setup.bug == Some(Bug::NoTombstone) };
        let engine = Engine::new(cache, settings, started);
        let mut world = World {
            setup,
            disks,
            record,
            attachment,
            engine,
            clients: Clients::new(model, next_tag),
            random,
            in_flight: Vec::new(),
            output: Output::default(),
            killed: false,
        };
        world.collect();
        Ok(world)
    }

    pub fn submit(&mut self, operation: Operation, offset: usize, length: usize, durable: bool) {
        let (request, done) = self.clients.ask(operation, offset, length, durable, Caching::default());
        self.engine.submit(request, done, 0);
        self.collect();
    }

    fn collect(&mut self) {
        self.engine.take_output(&mut self.output);
        for (done, result) in self.output.answers.drain(..) {
            done(result);
        }
        self.output.answered.clear();
        for transfer in self.output.transfers.drain(..) {
            let writes = self.disks[transfer.disk].writes();
            self.in_flight.push((transfer, writes));
        }
    }

    fn submit_random(&mut self) {
        let (volume_blocks, random) = (self.setup.volume_blocks(), &mut self.random);
        let lengths = [1, 1, 1, 1, 2, 3, 5, 20];
        let (offset, length) = random_range(random, volume_blocks, volume_blocks / 4, &lengths, 5);
        let durable = random.chance(12);
        match random.below(40) {
            0..=7 => self.submit(Operation::Read, offset, length, false),
            8..=31 => self.submit(Operation::Write, offset, length, durable),
            32..=35 => self.submit(Operation::Flush, 0, 0, false),
            36 => {
                let zeroes = Operation::WriteZeroes { may_punch_holes: true, only_if_fast: false };
                self.submit(zeroes, offset, length, durable);
            }
            37 => self.submit(Operation::Trim, offset, length, durable),
            38 => {
                self.engine.destage_all(0);
                self.collect();
            }
            _ => self.submit(Operation::Cache, offset, length, false),
        }
    }

    fn complete_one(&mut self) {
        let at = self.random.below(self.in_flight.len() as u64) as usize;
        let (transfer, writes) = self.in_flight.swap_remove(at);
        let disk = &self.disks[transfer.disk];
        match (transfer.operation, transfer.disk, self.setup.bug) {
            (DiskOperation::Sync, FLASH, Some(Bug::SkipFlashFlushes))
            | (DiskOperation::Sync, BACKEND, Some(Bug::SkipBackendFlushes)) => {}
            (DiskOperation::Sync, ..) => disk.sync_until(writes),
            _ => transfer.perform(disk).unwrap(),
        }
        self.engine.completed(transfer.tag, Ok(()));
        self.collect();
    }

    /// Does one thing that can happen next. `at_transfer` is called before a transfer takes place.
    pub fn step(&mut self, at_transfer: &mut dyn FnMut(&World) -> Outcome<()>) -> Outcome<()> {
        if self.random.chance(30) {
            self.pause()?;
        }
        let may_submit = self.clients.outstanding() < self.setup.depth;
        if may_submit && (self.in_flight.is_empty() || self.random.chance(3)) {
            self.submit_random();
        } else if !self.in_flight.is_empty() {
            at_transfer(self)?;
            self.complete_one();
        }
        self.check()
    }

    /// As a server does once in a while.
    fn pause(&mut self) -> Outcome<()> {
        let end = self.engine.pause();
        self.collect();
        let note = |end| self.attachment.note_durable(&self.disks[FLASH], End::Buckets(end));
        end.map_or(Ok(()), note).map_err(|error| error.to_string())
    }

    fn check(&self) -> Outcome<()> {
        self.clients.check()?;
        match self.disks[FLASH].refusals() {
            0 => Ok(()),
            refusals => Err(format!("a zoned device refuses {refusals} operations")),
        }
    }

    /// Lets everything that was begun end.
    pub fn settle(&mut self) -> Outcome<()> {
        while !self.in_flight.is_empty() {
            self.complete_one();
        }
        if self.engine.running() > 0 || self.clients.outstanding() > 0 {
            return Err(format!("{} steps hang", self.engine.running()));
        }
        if self.engine.planned_bytes() > 0 {
            return Err(format!("{} bytes are not given back", self.engine.planned_bytes()));
        }
        if self.setup.bug.is_none() {
            self.engine.cache().check();
        }
        self.check()
    }

    /// The world after a power failure at this moment; this one goes on as if nothing had happened.
    fn crashed(&self, random: &mut Random) -> Outcome<World> {
        let killed = random.chance(7);
        let disks = self.disks.each_ref().map(FakeDisk::fork);
        fail(&disks, self.in_flight.iter().map(|(transfer, _)| transfer), killed, random);
        let mut model = self.clients.model.lock().unwrap().clone();
        model.crashed();
        let (seed, next_tag) = (Random(random.next()), random.next() >> 16);
        let mut world = World::open(self.setup.clone(), disks, self.record.fork(), model, seed, next_tag)?;
        world.killed = killed;
        Ok(world)
    }

    /// Reads every block; `None` where that failed.
    pub fn read_all(&mut self) -> Outcome<Vec<Option<Content>>> {
        let blocks = self.setup.volume_blocks();
        let found = Arc::new(Mutex::new(vec![None; blocks]));
        self.read_into(&found, 0, blocks)?;
        if found.lock().unwrap()[0].is_none() {
            (0..blocks).try_for_each(|block| self.read_into(&found, block, 1))?;
        }
        Ok(std::mem::take(&mut *found.lock().unwrap()))
    }

    fn read_into(&mut self, found: &Arc<Mutex<Vec<Option<Content>>>>, first: usize, count: usize) -> Outcome<()> {
        let shared = found.clone();
        let done = move |result: Result<Vec<u8>, _>| {
            for (bytes, found) in
                result.iter().flat_map(|bytes| bytes.chunks(BLOCK_BYTES)).zip(&mut shared.lock().unwrap()[first..])
            {
                *found = Some(decode(bytes).try_into().unwrap());
            }
        };
        let (offset, length) = ((first * BLOCK_BYTES) as u64, (count * BLOCK_BYTES) as u64);
        let (operation, caching) = (Operation::Read, Default::default());
        let request = Request { operation, offset, length, force_unit_access: false, data: Vec::new(), caching };
        self.engine.submit(request, Box::new(done), 0);
        self.collect();
        self.settle()
    }

    /// Reads every block after a crash; from then on each is what it was found to be.
    pub fn verify_recovered(&mut self) -> Outcome<()> {
        let found = self.read_all()?;
        let mut model = self.clients.model.lock().unwrap();
        for (block, content) in found.iter().enumerate() {
            match content {
                Some(content) => model.settled(block, content, self.killed)?,
                // What is lost is found by reads.
                None => model.read_lost(block, true)?,
            }
        }
        Ok(())
    }

    /// Writes everything back: the backend alone must be whole.
    fn verify_destaged(&mut self) -> Outcome<()> {
        self.settle()?;
        self.engine.destage_all(0);
        self.collect();
        self.settle()?;
        let dirty = self.engine.cache().blocks_to_write_back();
        if dirty > 0 {
            return Err(format!("{dirty} blocks stay dirty"));
        }
        let mut model = self.clients.model.lock().unwrap();
        for block in 0..self.setup.volume_blocks() {
            let content: Content = decode(&self.disks[BACKEND].page(block)).try_into().unwrap();
            let earliest = model.earliest(block);
            model.read(block, earliest, &content, 0..SECTORS).map_err(|error| format!("once destaged: {error}"))?;
        }
        Ok(())
    }

    /// A copy of what would outlive it.
    pub fn devices(&self) -> Devices {
        Devices { disks: self.disks.each_ref().map(FakeDisk::fork), record: self.record.fork() }
    }

    /// Some seconds in which no one asks for anything.
    pub fn idle(&mut self) -> Outcome<()> {
        for _ in 0..3 {
            self.pause()?;
            self.settle()?;
        }
        Ok(())
    }

    /// Ends in order; what outlives it.
    pub fn close(&mut self) -> Outcome<Devices> {
        self.settle()?;
        self.engine.close(0);
        self.collect();
        self.settle()?;
        let (end, devices) = (End::Buckets(self.engine.end()), self.devices());
        let closed = self.attachment.close(&devices.disks[FLASH], &devices.side(), end, true);
        closed.map_err(|error| error.to_string())?;
        Ok(devices)
    }

    /// Ends in order, and starts again: nothing may be lost.
    fn reopened(mut self) -> Outcome<World> {
        let Devices { disks, record } = self.close()?;
        let World { setup, clients, random, .. } = self;
        let model = clients.model.lock().unwrap().clone();
        let mut world = World::open(setup, disks, record, model, random, clients.next_tag)?;
        let found = world.read_all()?;
        let mut model = world.clients.model.lock().unwrap();
        for (block, content) in found.iter().enumerate() {
            let earliest = model.earliest(block);
            let content = content.ok_or_else(|| format!("once reopened: block {block} cannot be read"))?;
            model.read(block, earliest, &content, 0..SECTORS).map_err(|error| format!("once reopened: {error}"))?;
        }
        drop(model);
        Ok(world)
    }
}

/// What one power failure leads to.
fn after_crash(world: &World, random: &mut Random, points: &AtomicU64) -> Outcome<()> {
    points.fetch_add(1, Ordering::Relaxed);
    let mut recovered = world.crashed(random)?;
    recovered.verify_recovered().map_err(|error| format!("first: {error}"))?;
    match random.below(8) {
        0 | 1 => {
            for _ in 0..random.below(80) {
                recovered.step(&mut |_| Ok(()))?;
            }
            points.fetch_add(1, Ordering::Relaxed);
            let mut again = recovered.crashed(random)?;
            again.verify_recovered().map_err(|error| format!("second: {error}"))?;
            again.verify_destaged().map_err(|error| format!("second: {error}"))
        }
        2 => recovered.verify_destaged().map_err(|error| format!("first: {error}")),
        3 => {
            // The power fails again while what was found is being settled.
            points.fetch_add(1, Ordering::Relaxed);
            let mut again = world.crashed(random)?;
            for _ in 0..random.below(20) {
                if !again.in_flight.is_empty() {
                    again.complete_one();
                }
            }
            again.crashed(random)?.verify_recovered().map_err(|error| format!("in recovery: {error}"))
        }
        4 => recovered.reopened().map(drop),
        _ => Ok(()),
    }
}

fn run(setup: Setup, seed: u64, points: &AtomicU64) -> Outcome<()> {
    let described = format!("seed {seed}, {setup:?}");
    let mut world = World::new(setup, seed);
    let mut random = Random(!seed);
    let mut run = || {
        for _ in 0..600 {
            world.step(&mut |world| if random.chance(3) { after_crash(world, &mut random, points) } else { Ok(()) })?;
        }
        world.verify_destaged()
    };
    run().map_err(|error: String| format!("{described}: {error}"))
}

/// `FLASHWISE_CRASH_POINTS` asks for more of them, and `FLASHWISE_SEED` for others.
#[test]
fn what_wlfc_flushed_survives_power_failures_at_any_operation() {
    let (budget, first_seed) =
        (Budget::new("FLASHWISE_CRASH_POINTS", 2_000..10_000, 3.0), setting("FLASHWISE_SEED", 1));
    let (started, points, next_seed) = (Instant::now(), AtomicU64::new(0), AtomicU64::new(first_seed));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while budget.goes_on(points.load(Ordering::Relaxed)) {
                    let seed = next_seed.fetch_add(1, Ordering::Relaxed);
                    if let Err(violation) = run(Setup::random(&mut Random(seed), None), seed, &points) {
                        points.store(u64::MAX / 2, Ordering::Relaxed);
                        panic!("{violation}");
                    }
                }
            });
        }
    });
    let (points, seconds) = (points.into_inner(), started.elapsed().as_secs_f64());
    println!("{points} power failures, seeds {first_seed} to {}, {seconds:.1} s", next_seed.into_inner() - 1);
}

#[test]
fn bugs_that_are_planted_in_wlfc_are_found() {
    for bug in BUGS {
        let (started, points) = (Instant::now(), AtomicU64::new(0));
        let found = (1..300).find_map(|seed| {
            let run = || run(Setup::random(&mut Random(seed), Some(bug)), seed, &points);
            let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
            run.unwrap_or_else(|_| Err("a panic".to_owned())).err()
        });
        let points = points.into_inner();
        let found = found.unwrap_or_else(|| panic!("{bug:?} was not found in {points} power failures"));
        let found = found.rsplit_once("}: ").map_or(found.as_str(), |(_, found)| found);
        println!("{bug:?}: {points} power failures, {:.1} s: {found:.160}", started.elapsed().as_secs_f64());
    }
}
