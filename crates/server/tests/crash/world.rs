//! A volume on fake disks: requests, transfers in any order, faults and power failures, all from one seed.

use std::sync::{Arc, Mutex};

use flashwise_core::cache::{Cache, Config, Mode};
use flashwise_core::format::{BLOCK_BYTES, Geometry, State, Superblock};
use flashwise_core::policy::Spec;
use flashwise_server::disk::{Operation as DiskOperation, Transfer};
use flashwise_server::engine::{BACKEND, Engine, FLASH, Output, Settings, Unsafe};
use flashwise_server::export::{Operation, Request};
use flashwise_server::flash::{cache_tag, format, read_superblock, recover_log};

use crate::fake_disk::{FakeDisk, Loss};
use crate::model::{Content, Model, SECTOR_BYTES, SECTORS, Shared, decode, encode};
use crate::random::Random;

pub const GEOMETRY: Geometry = Geometry { units: 12, unit_pages: 16 };
pub const VOLUME_BLOCKS: usize = 120;

/// How a world is made; everything else follows from the seed.
#[derive(Clone, Debug)]
pub struct Setup {
    pub policy: &'static str,
    pub mode: Mode,
    pub read_buffer_blocks: u32,
    pub write_buffer_blocks: u32,
    pub sequential_blocks: u32,
    pub depth: usize,
    pub unsafe_mode: Option<Unsafe>,
    /// One transfer in so many fails; 0 for none.
    pub fault_odds: u64,
}

impl Setup {
    pub fn random(random: &mut Random) -> Setup {
        let policies = ["larc", "lru", "fifo", "2q", "arc", "s3-fifo", "sieve", "w-tinylfu", "lirs", "mq", "lfu"];
        let modes = [Mode::WriteBack, Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround];
        Setup {
            policy: policies[random.below(policies.len() as u64) as usize],
            mode: modes[random.below(4) as usize],
            read_buffer_blocks: [0, 8, 24][random.below(3) as usize],
            write_buffer_blocks: [0, 16, 40][random.below(3) as usize],
            sequential_blocks: [0, 0, 12][random.below(3) as usize],
            depth: [1, 4, 12][random.below(3) as usize],
            unsafe_mode: None,
            fault_odds: 0,
        }
    }

    fn config(&self) -> Config {
        Config {
            geometry: GEOMETRY,
            policy: Spec::parse(self.policy).unwrap(),
            mode: self.mode,
            read_buffer_blocks: self.read_buffer_blocks,
            write_buffer_blocks: self.write_buffer_blocks,
            over_provision: 0.1,
            dirty_high: 0.3,
            dirty_low: 0.2,
            dirty_age_us: 400_000,
            commit_age_us: 200_000,
            sequential_blocks: self.sequential_blocks,
        }
    }
}

struct InFlight {
    transfer: Transfer,
    /// The last write when the transfer was handed out: what a flush covers.
    writes: u64,
}

pub struct World {
    pub setup: Setup,
    pub flash: FakeDisk,
    pub backend: FakeDisk,
    pub engine: Engine,
    pub model: Shared,
    pub random: Random,
    in_flight: Vec<InFlight>,
    outstanding: Arc<Mutex<usize>>,
    violations: Arc<Mutex<Vec<String>>>,
    output: Output,
    pub now_us: u64,
    next_tag: u64,
    pub operations: u64,
}

type Outcome<T> = Result<T, String>;

impl World {
    pub fn new(setup: Setup, seed: u64) -> World {
        let flash = FakeDisk::new(GEOMETRY.pages() as usize * BLOCK_BYTES, SECTOR_BYTES);
        // What goes past the cache is as whole as the backend makes it: it writes blocks whole.
        let backend = FakeDisk::new(VOLUME_BLOCKS * BLOCK_BYTES, BLOCK_BYTES);
        let mut superblock = Superblock {
            generation: 0,
            cache: [7; 16],
            backend: [9; 16],
            geometry: GEOMETRY,
            volume_bytes: (VOLUME_BLOCKS * BLOCK_BYTES) as u64,
            state: State::InUse,
        };
        format(&flash, &mut superblock).unwrap();
        let model = Model::new(VOLUME_BLOCKS, setup.fault_odds > 0);
        World::open(setup, flash, backend, model, Random(seed), 1).unwrap()
    }

    fn open(
        setup: Setup,
        flash: FakeDisk,
        backend: FakeDisk,
        model: Model,
        random: Random,
        next_tag: u64,
    ) -> Outcome<World> {
        let superblock = read_superblock(&flash).map_err(|error| format!("superblock: {error}"))?;
        let recovered = recover_log(&flash, &superblock, 1, &|_| ()).map_err(|error| format!("recovery: {error}"))?;
        recovered.log.check();
        let epoch = if setup.unsafe_mode == Some(Unsafe::SameEpoch) { 1 } else { recovered.epoch };
        let cache = Cache::new(setup.config(), recovered.log, recovered.lost);
        let settings = Settings {
            cache: cache_tag(&superblock),
            epoch,
            retries: 0,
            discard: true,
            unsafe_mode: setup.unsafe_mode,
        };
        let engine = Engine::new(cache, settings, recovered.checksums);
        Ok(World {
            setup,
            flash,
            backend,
            engine,
            model: Arc::new(Mutex::new(model)),
            random,
            in_flight: Vec::new(),
            outstanding: Arc::default(),
            violations: Arc::default(),
            output: Output::default(),
            now_us: 0,
            next_tag,
            operations: 0,
        })
    }

    fn submit(&mut self, operation: Operation, offset: usize, length: usize, force_unit_access: bool) {
        let mut data = Vec::new();
        let blocks = offset / BLOCK_BYTES..(offset + length).div_ceil(BLOCK_BYTES);
        let mut written: Vec<(usize, usize)> = Vec::new();
        let mut model = self.model.lock().unwrap();
        let zeroes = matches!(operation, Operation::Trim | Operation::WriteZeroes { .. });
        if zeroes || operation == Operation::Write {
            for block in blocks.clone() {
                let mut content: Content = model.newest(block);
                let start = offset.max(block * BLOCK_BYTES) - block * BLOCK_BYTES;
                let stop = (offset + length).min((block + 1) * BLOCK_BYTES) - block * BLOCK_BYTES;
                if operation == Operation::Trim && stop - start < BLOCK_BYTES {
                    continue;
                }
                for tag in &mut content[start / SECTOR_BYTES..stop / SECTOR_BYTES] {
                    *tag = if zeroes { 0 } else { self.next_tag };
                }
                self.next_tag += 1;
                if operation == Operation::Write {
                    data.extend(&encode(&content)[start..stop]);
                }
                written.push((block, model.written(block, content)));
            }
        }
        let earliest: Vec<usize> = blocks.clone().map(|block| model.earliest(block)).collect();
        let answered = model.answered();
        drop(model);
        *self.outstanding.lock().unwrap() += 1;
        let (shared, outstanding, violations) = (self.model.clone(), self.outstanding.clone(), self.violations.clone());
        let done = move |result: Result<Vec<u8>, _>| {
            *outstanding.lock().unwrap() -= 1;
            let mut model = shared.lock().unwrap();
            let result = match (operation, result) {
                (Operation::Read, Ok(bytes)) => check_read(&mut model, offset, &bytes, &earliest),
                (Operation::Read, Err(_)) => model.read_failed(blocks.start),
                (Operation::Flush, Ok(_)) => {
                    model.flushed(&answered);
                    Ok(())
                }
                (_, Ok(_)) => {
                    for (block, version) in written {
                        model.acknowledged(block, version, force_unit_access);
                    }
                    Ok(())
                }
                (_, Err(_)) => model.read_failed(blocks.start),
            };
            violations.lock().unwrap().extend(result.err());
        };
        let request = Request { operation, offset: offset as u64, length: length as u64, force_unit_access, data };
        self.engine.submit(request, Box::new(done), self.now_us);
        self.collect();
    }

    fn collect(&mut self) {
        self.engine.take_output(&mut self.output);
        for transfer in self.output.transfers.drain(..) {
            let disk = if transfer.disk == FLASH { &self.flash } else { &self.backend };
            self.in_flight.push(InFlight { writes: disk.writes(), transfer });
        }
        for (done, result) in self.output.answers.drain(..) {
            done(result);
        }
        self.output.answered.clear();
    }

    fn submit_random(&mut self) {
        let random = &mut self.random;
        // Half of all accesses go to a sixth of the blocks.
        let limit = if random.chance(2) { VOLUME_BLOCKS / 6 } else { VOLUME_BLOCKS };
        let block = random.below(limit as u64) as usize;
        let blocks = [1, 1, 1, 2, 5, 20][random.below(6) as usize].min(VOLUME_BLOCKS - block);
        let (mut offset, mut length) = (block * BLOCK_BYTES, blocks * BLOCK_BYTES);
        if random.chance(4) {
            offset += random.below(SECTORS as u64) as usize * SECTOR_BYTES;
            let left = block * BLOCK_BYTES + length - offset;
            length = SECTOR_BYTES * (1 + random.below((left / SECTOR_BYTES) as u64) as usize);
        }
        let durable = random.chance(12);
        match random.below(20) {
            0..=7 => self.submit(Operation::Read, offset, length, false),
            8..=15 => self.submit(Operation::Write, offset, length, durable),
            16 | 17 => self.submit(Operation::Flush, 0, 0, false),
            18 => {
                let only_if_fast = false;
                let zeroes = Operation::WriteZeroes { may_punch_holes: true, only_if_fast };
                self.submit(zeroes, offset, length, durable);
            }
            _ => self.submit(Operation::Trim, offset, length, durable),
        }
    }

    /// Does one thing that can happen next. `crash` is called before a transfer takes place.
    pub fn step(&mut self, crash: &mut dyn FnMut(&mut World) -> Outcome<()>) -> Outcome<()> {
        self.now_us += self.random.below(3_000);
        let may_submit = *self.outstanding.lock().unwrap() < self.setup.depth;
        if may_submit && (self.in_flight.is_empty() || self.random.chance(3)) {
            if self.random.chance(30) {
                self.engine.tick(self.now_us);
                self.collect();
            } else {
                self.submit_random();
            }
        } else if !self.in_flight.is_empty() {
            crash(self)?;
            self.complete_one();
        } else {
            return Err(format!("{} requests hang", self.outstanding.lock().unwrap()));
        }
        self.check()
    }

    fn check(&self) -> Outcome<()> {
        match self.violations.lock().unwrap().first() {
            Some(violation) => Err(violation.clone()),
            None => Ok(()),
        }
    }

    fn complete_one(&mut self) {
        let at = self.random.below(self.in_flight.len() as u64) as usize;
        let InFlight { transfer, writes } = self.in_flight.swap_remove(at);
        self.operations += 1;
        let disk = if transfer.disk == FLASH { &self.flash } else { &self.backend };
        let fails = self.setup.fault_odds > 0 && self.random.chance(self.setup.fault_odds);
        // Once the flash could not be written, nothing more is learnt of it.
        let fails = fails && (transfer.disk == BACKEND || transfer.operation == DiskOperation::Read);
        if !fails {
            if transfer.operation == DiskOperation::Sync {
                disk.sync_until(writes);
            } else {
                transfer.perform(disk).unwrap();
            }
        }
        self.engine.completed(transfer.tag, !fails);
        self.collect();
    }

    /// Lets everything that was begun end.
    pub fn settle(&mut self) -> Outcome<()> {
        while !self.in_flight.is_empty() {
            self.complete_one();
        }
        if self.engine.running() > 0 || *self.outstanding.lock().unwrap() > 0 {
            return Err(format!("{} steps hang", self.engine.running()));
        }
        self.engine.cache().check();
        self.check()
    }

    /// The world after a power failure at this moment; this one goes on as if nothing had happened.
    pub fn crashed(&self, random: &mut Random) -> Outcome<World> {
        let (flash, backend) = (self.flash.fork(), self.backend.fork());
        for InFlight { transfer, .. } in &self.in_flight {
            let disk = if transfer.disk == FLASH { &flash } else { &backend };
            let changes = !matches!(transfer.operation, DiskOperation::Read | DiskOperation::Sync);
            if changes && random.chance(2) {
                transfer.perform(disk).unwrap();
            }
        }
        let losses = [Loss::Nothing, Loss::Everything, Loss::Sectors, Loss::Sectors, Loss::Writes, Loss::Writes];
        flash.crash(losses[random.below(6) as usize], random);
        backend.crash(losses[random.below(6) as usize], random);
        let mut model = self.model.lock().unwrap().clone();
        model.crashed();
        World::open(self.setup.clone(), flash, backend, model, Random(random.next()), self.next_tag)
    }

    /// Reads every block after a crash; from then on each is what it was found to be.
    pub fn verify_recovered(&mut self) -> Outcome<()> {
        let found: Arc<Mutex<Vec<(usize, Vec<u8>)>>> = Arc::default();
        for block in 0..VOLUME_BLOCKS {
            let found = found.clone();
            let done =
                move |result: Result<Vec<u8>, _>| found.lock().unwrap().push((block, result.unwrap_or_default()));
            let request = Request {
                operation: Operation::Read,
                offset: (block * BLOCK_BYTES) as u64,
                length: BLOCK_BYTES as u64,
                force_unit_access: false,
                data: Vec::new(),
            };
            self.engine.submit(request, Box::new(done), self.now_us);
            self.collect();
        }
        self.settle()?;
        let found = std::mem::take(&mut *found.lock().unwrap());
        let mut model = self.model.lock().unwrap();
        assert_eq!(found.len(), model.len());
        for (block, bytes) in found {
            if bytes.is_empty() {
                model.read_failed(block)?;
                continue;
            }
            let content: Content = decode(&bytes).try_into().unwrap();
            model.settled(block, &content)?;
        }
        Ok(())
    }

    /// Writes everything back; then the backend alone must be whole.
    pub fn verify_detached(&mut self) -> Outcome<()> {
        for _ in 0..3 {
            self.engine.destage_all(self.now_us);
            self.collect();
            self.settle()?;
        }
        let dirty = self.engine.cache().log().dirty_blocks();
        if dirty > 0 || self.engine.cache().buffered_blocks() > 0 {
            return Err(format!("{dirty} blocks stay dirty"));
        }
        let mut model = self.model.lock().unwrap();
        for block in 0..VOLUME_BLOCKS {
            let bytes = self.backend.read(block * BLOCK_BYTES, BLOCK_BYTES);
            let earliest = model.earliest(block);
            let content: Content = decode(&bytes).try_into().unwrap();
            model.read(block, earliest, &content, 0..SECTORS).map_err(|error| format!("after detaching: {error}"))?;
        }
        Ok(())
    }
}

fn check_read(model: &mut Model, offset: usize, bytes: &[u8], earliest: &[usize]) -> Outcome<()> {
    let mut tags = decode(bytes).into_iter();
    let first = offset / BLOCK_BYTES;
    let end = offset + bytes.len();
    for (block, &earliest) in (first..).zip(earliest) {
        let start = offset.max(block * BLOCK_BYTES) - block * BLOCK_BYTES;
        let stop = end.min((block + 1) * BLOCK_BYTES) - block * BLOCK_BYTES;
        let sectors = start / SECTOR_BYTES..stop / SECTOR_BYTES;
        let mut content: Content = [0; SECTORS];
        for sector in sectors.clone() {
            content[sector] = tags.next().unwrap();
        }
        model.read(block, earliest, &content, sectors)?;
    }
    Ok(())
}
