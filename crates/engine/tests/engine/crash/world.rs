//! A volume on fake disks: requests, transfers in any order, faults and power failures, all from one seed.

mod setup;
mod transfers;
mod verify;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use flashwise_core::cache::{Cache, LogCache, Mode};
use flashwise_core::filter::Caching;
use flashwise_core::format::{BLOCK_BYTES, Geometry, Layout};
use flashwise_core::policy::Spec;
use flashwise_engine::attach::{AttachError, Attached, Attachment, End, Held, Pairing, Wanted, attach};
use flashwise_engine::disk::{Operation as DiskOperation, Transfer};
use flashwise_engine::engine::{BACKEND, FLASH, Output, Settings};
use flashwise_engine::export::Operation;
use flashwise_engine::flash::cache_tag;
use flashwise_engine::log::Engine;
use flashwise_testing::fake_disk::{ACTIVE_MIN, FakeDisk};
use flashwise_testing::random::Random;

use crate::crash::clients::{Clients, fail, random_range};
use crate::crash::fake_side::{FakeRecord, FakeSide};
use crate::crash::model::{Model, SECTOR_BYTES};
use crate::crash::planted::{
    Planted, Stays, distort, drop_dirty_filter, forget_filter, region_filter, stays_filter, uncounted_filter,
    unsaid_filter, witness_filter,
};

pub use crate::crash::clients::Outcome;
pub use setup::{ADMISSIONS, CLASSES, Class, Effect, Fault, Setup, VOLUME_BLOCKS, pick_policy, random_corruption};

struct InFlight {
    transfer: Transfer,
    /// The last write when the transfer was handed out: what a flush covers.
    writes: u64,
    stalled: bool,
}

/// What outlives a server.
pub struct Devices {
    /// By number: flash and backend.
    pub disks: [FakeDisk; 2],
    /// What the backend knows of its cache.
    pub record: FakeRecord,
}

impl Devices {
    pub fn fork(&self) -> Devices {
        Devices { disks: self.disks.each_ref().map(FakeDisk::fork), record: self.record.fork() }
    }

    pub fn side(&self) -> FakeSide<'_> {
        FakeSide { record: &self.record, backend: &self.disks[BACKEND], flash: &self.disks[FLASH] }
    }

    /// What a server does first. `discards`: an operator gives up what is only on a cache that is not here.
    pub fn attach(&self, setup: &Setup, discards: bool) -> Result<Attached, AttachError> {
        let wanted = Wanted {
            pairing: Pairing { backend: [9; 16], is_identified: false, discards },
            new_cache: new_cache(),
            geometry: setup.geometry,
            layout: Layout::Log,
            volume_bytes: (VOLUME_BLOCKS * BLOCK_BYTES) as u64,
            writes_back: setup.mode == Mode::WriteBack,
            threads: 1,
        };
        attach(&self.disks[FLASH], &self.side(), &wanted, &|_, _| ())
    }
}

/// A UUID that no other cache has.
fn new_cache() -> [u8; 16] {
    static CACHES: AtomicU64 = AtomicU64::new(1);
    let number = CACHES.fetch_add(1, Ordering::Relaxed).to_le_bytes();
    [number, number].concat().try_into().unwrap()
}

pub struct World {
    pub setup: Setup,
    /// By number: flash and backend.
    pub disks: [FakeDisk; 2],
    pub record: FakeRecord,
    pub attachment: Attachment,
    pub engine: Engine,
    pub clients: Clients,
    pub random: Random,
    in_flight: Vec<InFlight>,
    output: Output,
    pub now_us: u64,
    /// What the I/O filter says of the client of the requests that come.
    pub caching: Caching,
    pub operations: u64,
    /// Transfers so far, by disk and kind.
    pub seen: [[u64; 3]; 2],
    /// It follows the death of a process, after which devices may still lose what was not flushed.
    killed: bool,
    /// Flushes that were answered and are still to be done, of a planted bug.
    late: Vec<(usize, u64)>,
    /// The oldest unit that counts by what was written, and by what was flushed.
    tails: (u64, u64),
    /// Blocks whose marks a planted bug loses.
    stays: Stays,
}

pub type AtTransfer<'a> = &'a mut dyn FnMut(&World) -> Outcome<()>;

pub fn no_crash(_: &World) -> Outcome<()> {
    Ok(())
}

impl World {
    pub fn new(setup: Setup, seed: u64) -> World {
        let flash = match setup.zoned {
            true => FakeDisk::zoned(setup.geometry, ACTIVE_MIN),
            false => FakeDisk::new(setup.geometry.pages() as usize, SECTOR_BYTES),
        };
        // What goes past the cache is as whole as the backend makes it: it writes blocks whole.
        let backend = FakeDisk::new(VOLUME_BLOCKS, BLOCK_BYTES);
        let planted = |bug: Planted| setup.planted == Some(bug);
        let record = FakeRecord {
            skips_counting: planted(Planted::SkipCounting),
            skips_closing: planted(Planted::SkipClosing),
            ..FakeRecord::default()
        };
        match setup.planted {
            Some(Planted::SkipForgets) => flash.set_filter(forget_filter(None)),
            Some(Planted::SkipOneForget(number)) => flash.set_filter(forget_filter(Some(number))),
            Some(
                Planted::SkipUnsure | Planted::SkipUnsureAgain | Planted::SureTooEarly | Planted::SkipForgetRegions,
            ) => flash.set_filter(region_filter(setup.planted.unwrap())),
            Some(Planted::DropDirty) => flash.set_filter(drop_dirty_filter()),
            Some(Planted::SkipCountingOnFlash) => flash.set_filter(uncounted_filter()),
            Some(Planted::SkipWitness) => flash.set_filter(witness_filter()),
            Some(Planted::UnsaidSkips) => flash.set_filter(unsaid_filter()),
            _ => {}
        }
        let model = Model::new(VOLUME_BLOCKS, !setup.faults.is_empty());
        World::open(setup, Devices { disks: [flash, backend], record }, model, Random(seed), 1).unwrap()
    }

    pub fn open(setup: Setup, devices: Devices, model: Model, random: Random, next_tag: u64) -> Outcome<World> {
        let opened = devices.attach(&setup, false);
        let Attached { attachment, held, .. } = opened.map_err(|error| format!("recovery: {error}"))?;
        let Held::Log(recovered) = held else { unreachable!("it has a log") };
        recovered.log.check();
        let Devices { disks, record } = devices;
        let stays = Stays::default();
        if matches!(setup.planted, Some(Planted::RefusedStays | Planted::FilteredStays)) {
            disks[FLASH].set_filter(stays_filter(stays.clone()));
        }
        let epoch = if setup.planted == Some(Planted::SameEpoch) { 1 } else { recovered.epoch };
        let cache = LogCache::new(setup.config(), recovered.log, recovered.lost);
        let settings = Settings {
            cache: cache_tag(attachment.superblock()),
            epoch,
            retries: setup.retries,
            patience: setup.retries,
            discard: true,
            // What zones hold is written in one order alone. In a third of the others a segment is several writes.
            write_streams: if setup.depth == 4 && !setup.zoned { 4 } else { 0 },
            spare_frames: setup.spare_frames,
            answers_flushes_at_once: setup.planted == Some(Planted::AnswerFlushesAtOnce),
            ..Settings::default()
        };
        let engine = Engine::new(cache, settings, recovered.checksums, recovered.head_records);
        Ok(World {
            setup,
            disks,
            record,
            attachment,
            engine,
            clients: Clients::new(model, next_tag),
            random,
            in_flight: Vec::new(),
            output: Output::default(),
            now_us: 0,
            caching: Caching::Usual,
            operations: 0,
            seen: [[0; 3]; 2],
            killed: false,
            late: Vec::new(),
            tails: (1, 1),
            stays,
        })
    }

    pub fn submit(&mut self, operation: Operation, offset: usize, length: usize, force_unit_access: bool) {
        let caching = self.caching;
        let blocks = offset / BLOCK_BYTES..(offset + length).div_ceil(BLOCK_BYTES);
        let (request, done) = self.clients.ask(operation, offset, length, force_unit_access, caching);
        let refused = |world: &World| world.engine.cache().figures().refused_write_blocks;
        let (was, refused_before) = (self.cached(blocks.clone()), refused(self));
        self.engine.submit(request, done, self.now_us);
        let stays = match self.setup.planted {
            Some(Planted::RefusedStays) => refused(self) > refused_before,
            Some(Planted::FilteredStays) => caching == Caching::Never && operation == Operation::Write,
            _ => false,
        };
        let is = self.cached(blocks);
        let mut marks_lost = self.stays.lock().unwrap();
        marks_lost.retain(|block| !is.contains(block));
        marks_lost.extend(was.difference(&is).filter(|_| stays));
        drop(marks_lost);
        self.collect();
    }

    /// Those of some blocks that have a copy on flash.
    fn cached(&self, blocks: std::ops::Range<usize>) -> BTreeSet<u32> {
        let log = self.engine.cache().log();
        blocks.map(|block| block as u32).filter(|&block| log.find(block).is_some()).collect()
    }

    pub fn collect(&mut self) {
        loop {
            self.engine.take_output(&mut self.output);
            for (done, result) in self.output.answers.drain(..) {
                done(result);
            }
            self.output.answered.clear();
            let mut early = Vec::new();
            for transfer in self.output.transfers.drain(..) {
                let writes = self.disks[transfer.disk].writes();
                if self.setup.planted == Some(Planted::IgnoreOrder) && transfer.operation == DiskOperation::Sync {
                    early.push(transfer.tag);
                    self.late.push((transfer.disk, writes));
                } else {
                    self.in_flight.push(InFlight { writes, transfer, stalled: false });
                }
            }
            if early.is_empty() {
                return;
            }
            early.into_iter().for_each(|tag| self.engine.completed(tag, Ok(())));
        }
    }

    fn submit_random(&mut self) {
        let random = &mut self.random;
        let (offset, length) = random_range(random, VOLUME_BLOCKS, VOLUME_BLOCKS / 6, &[1, 1, 1, 2, 5, 20], 4);
        let durable = random.chance(12);
        self.caching = match random.below(self.setup.filtered_odds) {
            0 => Caching::Never,
            1 => Caching::Always,
            _ => Caching::Usual,
        };
        match random.below(20) {
            0..=7 => self.submit(Operation::Read, offset, length, false),
            8..=15 => self.submit(Operation::Write, offset, length, durable),
            16 | 17 => self.submit(Operation::Flush, 0, 0, false),
            18 => {
                let zeroes = Operation::WriteZeroes { may_punch_holes: true, only_if_fast: false };
                self.submit(zeroes, offset, length, durable);
            }
            _ => self.submit(Operation::Trim, offset, length, durable),
        }
    }

    /// Does one thing that can happen next. `at_transfer` is called before a transfer takes place.
    pub fn step(&mut self, at_transfer: AtTransfer) -> Outcome<()> {
        self.now_us += self.random.below(3_000);
        let may_submit = self.clients.outstanding() < self.setup.depth;
        if may_submit && (self.running() == 0 || self.random.chance(3)) {
            match self.random.below(120) {
                0..=3 => {
                    self.engine.tick(self.now_us);
                    self.collect();
                }
                5 => self.note_durable(),
                4 => self.change_settings(),
                _ => self.submit_random(),
            }
        } else if self.running() > 0 {
            at_transfer(self)?;
            self.complete_one();
        } else if self.in_flight.is_empty() {
            self.read_again()?;
        } else {
            self.end_stalls();
        }
        self.check()
    }

    fn change_settings(&mut self) {
        let random = &mut self.random;
        if random.chance(2) {
            let mode = random.pick(&[Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround]);
            self.set_mode(mode);
        } else {
            let admission = self.setup.admission(random.pick(&ADMISSIONS));
            let cache = self.engine.cache_mut();
            cache.set_policy(Spec::parse(pick_policy(random)).unwrap(), admission);
        }
    }

    /// A copy of what would outlive it.
    pub fn devices(&self) -> Devices {
        Devices { disks: self.disks.each_ref().map(FakeDisk::fork), record: self.record.fork() }
    }

    /// Everything was written back: gives the flash up.
    pub fn give_up(self) -> Outcome<(Devices, Model)> {
        let World { disks, record, mut attachment, clients, .. } = self;
        let devices = Devices { disks, record };
        attachment.detach(&devices.disks[FLASH], &devices.side()).map_err(|error| error.to_string())?;
        let model = clients.model.lock().unwrap().clone();
        Ok((devices, model))
    }

    /// Some seconds in which no one asks for anything.
    pub fn idle(&mut self) -> Outcome<()> {
        for _ in 0..5 {
            self.now_us += 1_000_000;
            self.engine.advance(self.now_us);
            self.collect();
            self.settle()?;
            self.note_durable();
        }
        Ok(())
    }

    /// Has the superblock say up to where the log is durable, as a server does once in a while.
    pub fn note_durable(&mut self) {
        if let Some(place) = self.engine.pause() {
            // A flash that fails is found out elsewhere.
            let _ = self.attachment.note_durable(&self.disks[FLASH], End::Log(place));
        }
    }

    /// Changes the mode as a server does.
    pub fn set_mode(&mut self, mode: Mode) {
        if mode == Mode::WriteBack {
            let side = FakeSide { record: &self.record, backend: &self.disks[BACKEND], flash: &self.disks[FLASH] };
            self.attachment.allow_dirty(&self.disks[FLASH], &side).unwrap();
        }
        self.engine.cache_mut().set_mode(mode);
    }

    /// Ends in order; what outlives it.
    pub fn close(&mut self) -> Outcome<(Devices, Model)> {
        self.settle()?;
        self.engine.close(self.now_us);
        self.collect();
        self.settle()?;
        let cache = self.engine.cache();
        let may_be_dirty = cache.blocks_to_write_back() > 0 || !cache.lost_blocks().is_empty();
        let (end, failed) = (End::Log(cache.log().end()), cache.has_flash_failed());
        let devices = self.devices();
        if !failed {
            self.attachment.close(&devices.disks[FLASH], &devices.side(), end, may_be_dirty).unwrap();
        }
        let model = self.clients.model.lock().unwrap().clone();
        Ok((devices, model))
    }

    /// Transfers that can end.
    fn running(&self) -> usize {
        self.in_flight.iter().filter(|transfer| !transfer.stalled).count()
    }

    fn check(&self) -> Outcome<()> {
        let refusals = self.disks[FLASH].refusals();
        // Where transfers fail that took place, what is written again is refused.
        if refusals > 0 && self.setup.faults.is_empty() {
            return Err(format!("a zoned device refuses {refusals} operations"));
        }
        self.clients.check()
    }

    /// Lets requests end until only so many are outstanding.
    pub fn settle_down_to(&mut self, outstanding: usize, at_transfer: AtTransfer) -> Outcome<()> {
        while self.clients.outstanding() > outstanding {
            if self.running() == 0 {
                self.end_stalls();
            }
            if self.in_flight.is_empty() {
                self.read_again()?;
            }
            at_transfer(self)?;
            self.complete_one();
        }
        self.check()
    }

    /// Nothing is under way: reads that were put off are what is waited for.
    fn read_again(&mut self) -> Outcome<()> {
        if self.setup.gives_up && self.engine.has_postponed() && self.random.chance(3) {
            self.engine.give_flash_up();
        }
        self.engine.read_again();
        self.collect();
        let outstanding = self.clients.outstanding();
        if self.in_flight.is_empty() && (outstanding > 0 || self.engine.running() > 0) {
            return Err(format!("{outstanding} requests and {} steps hang", self.engine.running()));
        }
        Ok(())
    }

    fn end_stalls(&mut self) {
        self.setup.faults.retain(|fault| fault.effect != Effect::Stall);
        self.in_flight.iter_mut().for_each(|transfer| transfer.stalled = false);
    }

    /// Lets everything that was begun end. `at_transfer` is called before each transfer.
    pub fn settle_with(&mut self, at_transfer: AtTransfer) -> Outcome<()> {
        while !self.in_flight.is_empty() || self.engine.running() > 0 {
            if self.in_flight.is_empty() {
                self.read_again()?;
            }
            if self.running() == 0 {
                self.end_stalls();
            }
            at_transfer(self)?;
            self.complete_one();
        }
        if self.engine.running() > 0 || self.clients.outstanding() > 0 {
            return Err(format!("{} steps hang", self.engine.running()));
        }
        self.engine.cache().check();
        self.check()
    }

    pub fn settle(&mut self) -> Outcome<()> {
        self.settle_with(&mut no_crash)
    }

    /// The disks and the model after a power failure at this moment.
    pub fn devices_after_crash(&self, killed: bool, random: &mut Random) -> (Devices, Model) {
        let devices = self.devices();
        let disks = &devices.disks;
        fail(disks, self.in_flight.iter().map(|flight| &flight.transfer), killed, random);
        let mut model = self.clients.model.lock().unwrap().clone();
        model.crashed();
        if let Some(planted) = self.setup.planted {
            let Geometry { unit_pages, .. } = self.setup.geometry;
            distort(planted, &disks[FLASH], self.setup.geometry.pages() as usize, unit_pages as usize, random);
        }
        (devices, model)
    }

    /// The world after a power failure at this moment; this one goes on as if nothing had happened.
    pub fn crashed(&self, random: &mut Random) -> Outcome<World> {
        let killed = random.chance(7);
        let (devices, model) = self.devices_after_crash(killed, random);
        // What it writes is not what this one will write.
        let next_tag = random.next() >> 16;
        let mut world = World::open(self.setup.clone(), devices, model, Random(random.next()), next_tag)?;
        world.killed = killed;
        Ok(world)
    }
}
