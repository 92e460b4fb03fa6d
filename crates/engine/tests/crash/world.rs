//! A volume on fake disks: requests, transfers in any order, faults and power failures, all from one seed.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use flashwise_core::admission::Admission;
use flashwise_core::cache::{Cache, Config, CopyForward, Mode, Regions, admission};
use flashwise_core::filter::Caching;
use flashwise_core::format::{BLOCK_BYTES, Geometry, Header, MetadataPage, Role, decode_metadata};
use flashwise_core::policy::{self, Spec};
use flashwise_engine::attach::{AttachError, Attached, Attachment, Pairing, Wanted, attach};
use flashwise_engine::disk::{Operation as DiskOperation, Transfer};
use flashwise_engine::engine::{BACKEND, Engine, FLASH, Output, Settings};
use flashwise_engine::export::{Error, Operation, Request};
use flashwise_engine::flash::cache_tag;

use crate::fake_disk::{CORRUPTIONS, Corruption, FakeDisk, Loss};
use crate::fake_side::{FakeRecord, FakeSide};
use crate::model::{Content, Model, SECTOR_BYTES, SECTORS, Shared, decode, encode};
use crate::planted::{
    Planted, Stays, distort, drop_dirty_filter, forget_filter, metadata, region_filter, stays_filter, uncounted_filter,
    unsaid_filter, witness_filter,
};
use crate::random::Random;

pub const VOLUME_BLOCKS: usize = 120;

/// A policy that a live cache can have.
pub fn pick_policy(random: &mut Random) -> &'static str {
    let names: Vec<_> = policy::online().map(|info| info.name).collect();
    random.pick(&names)
}

/// Admission rules, half of them none; those that adapt decide often.
pub const ADMISSIONS: [&str; 12] = [
    "none",
    "none",
    "none",
    "none",
    "none",
    "none",
    "size:max=8KiB",
    "probability:p=0.3",
    "hotness:min=2",
    "adaptive:kind=probability,shadows=3,timeframe=50ms,target=1h,sampling=1",
    "adaptive:kind=size,shadows=3,timeframe=50ms,target=1h,sampling=1",
    "auto:policies=lru+larc+s3-fifo,timeframe=50ms,sampling=1",
];

/// Kinds of transfers that can fail apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    Read,
    Write,
    Sync,
}

pub const CLASSES: [Class; 3] = [Class::Read, Class::Write, Class::Sync];

fn class(operation: DiskOperation) -> Class {
    match operation {
        DiskOperation::Read => Class::Read,
        DiskOperation::Sync => Class::Sync,
        _ => Class::Write,
    }
}

/// What a fault does to a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It fails; a write may have happened.
    Fail,
    /// It does not end while the faults last.
    Stall,
    /// A page that is read is not what was written; `lasting`: never again.
    Corrupt { how: Corruption, lasting: bool },
}

/// Some transfers of one kind on one disk, counted from 0, go wrong: one in `odds`.
#[derive(Clone, Debug)]
pub struct Fault {
    pub disk: usize,
    pub class: Class,
    pub transfers: std::ops::Range<u64>,
    pub odds: u64,
    pub effect: Effect,
}

/// How a world is made; everything else follows from the seed.
#[derive(Clone, Debug)]
pub struct Setup {
    pub geometry: Geometry,
    pub segment_blocks: u32,
    pub policy: &'static str,
    pub admission: &'static str,
    pub mode: Mode,
    pub read_buffer_blocks: u32,
    pub write_buffer_blocks: u32,
    pub sequential_blocks: u32,
    pub copy_forward: CopyForward,
    /// Of how many requests one is of a client whom the I/O filter denies the flash, and one of a client to whom it allows it always.
    pub filtered_odds: u64,
    pub depth: usize,
    pub spare_frames: u32,
    pub regions: Regions,
    /// Whether the flash has zones.
    pub zoned: bool,
    pub planted: Option<Planted>,
    pub faults: Vec<Fault>,
    /// Tries after the first.
    pub retries: u8,
}

impl Setup {
    pub fn random(random: &mut Random) -> Setup {
        let modes = [Mode::WriteBack, Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround];
        let unit_pages = random.pick(&[16, 16, 20, 32, 64]);
        Setup {
            geometry: Geometry { units: 11 + random.below(3) as u32, unit_pages },
            segment_blocks: random.pick(&[1, 2, 3, 5, 252]),
            policy: pick_policy(random),
            admission: random.pick(&ADMISSIONS),
            mode: random.pick(&modes),
            read_buffer_blocks: random.pick(&[0, 8, 24]),
            write_buffer_blocks: random.pick(&[0, 16, 40]),
            sequential_blocks: random.pick(&[0, 0, 12]),
            copy_forward: random.pick(&[
                CopyForward::Used,
                CopyForward::Used,
                CopyForward::All,
                CopyForward::Young(0.5),
                CopyForward::None,
            ]),
            filtered_odds: random.pick(&[4, 12, u64::MAX]),
            depth: random.pick(&[1, 4, 12]),
            spare_frames: random.pick(&[0, 2, 64]),
            regions: Regions {
                blocks: random.pick(&[4, 8, 8, 40, 4096]),
                sure_after_us: random.pick(&[5_000, 40_000, 400_000]),
                unsure_max: random.pick(&[1, 3, 1024]),
            },
            zoned: random.chance(3),
            planted: None,
            faults: Vec::new(),
            retries: 0,
        }
    }

    pub fn admission(&self, rule: &str) -> Option<Admission> {
        if rule == "none" {
            return None;
        }
        let bytes = (VOLUME_BLOCKS * BLOCK_BYTES) as u64;
        Some(admission(rule.parse().unwrap(), &flashwise_device::paper(), &self.geometry, bytes))
    }

    fn config(&self) -> Config {
        Config {
            segment_blocks: self.segment_blocks,
            admission: self.admission(self.admission),
            mode: self.mode,
            read_buffer_blocks: self.read_buffer_blocks,
            write_buffer_blocks: self.write_buffer_blocks,
            dirty_high: 0.3,
            dirty_low: 0.2,
            dirty_age_us: 400_000,
            commit_age_us: 200_000,
            sequential_blocks: self.sequential_blocks,
            copy_forward: self.copy_forward,
            regions: self.regions,
            ..Config::new(self.geometry, Spec::parse(self.policy).unwrap())
        }
    }
}

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
    pub model: Shared,
    pub random: Random,
    in_flight: Vec<InFlight>,
    outstanding: Arc<Mutex<usize>>,
    violations: Arc<Mutex<Vec<String>>>,
    output: Output,
    pub now_us: u64,
    /// What the I/O filter says of the client of the requests that come.
    pub caching: Caching,
    next_tag: u64,
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

pub type Outcome<T> = Result<T, String>;
pub type AtTransfer<'a> = &'a mut dyn FnMut(&World) -> Outcome<()>;

pub fn no_crash(_: &World) -> Outcome<()> {
    Ok(())
}

impl World {
    pub fn new(setup: Setup, seed: u64) -> World {
        let flash = match setup.zoned {
            true => FakeDisk::zoned(setup.geometry),
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
        let Attached { attachment, recovered, .. } = opened.map_err(|error| format!("recovery: {error}"))?;
        recovered.log.check();
        let Devices { disks, record } = devices;
        let stays = Stays::default();
        if matches!(setup.planted, Some(Planted::RefusedStays | Planted::FilteredStays)) {
            disks[FLASH].set_filter(stays_filter(stays.clone()));
        }
        let epoch = if setup.planted == Some(Planted::SameEpoch) { 1 } else { recovered.epoch };
        let cache = Cache::new(setup.config(), recovered.log, recovered.lost);
        let settings = Settings {
            cache: cache_tag(attachment.superblock()),
            epoch,
            retries: setup.retries,
            patience: setup.retries,
            discard: true,
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
            model: Arc::new(Mutex::new(model)),
            random,
            in_flight: Vec::new(),
            outstanding: Arc::default(),
            violations: Arc::default(),
            output: Output::default(),
            now_us: 0,
            caching: Caching::Usual,
            next_tag,
            operations: 0,
            seen: [[0; 3]; 2],
            killed: false,
            late: Vec::new(),
            tails: (1, 1),
            stays,
        })
    }

    pub fn submit(&mut self, operation: Operation, offset: usize, length: usize, force_unit_access: bool) {
        let mut data = Vec::new();
        let caching = self.caching;
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
                let sectors = start / SECTOR_BYTES..stop / SECTOR_BYTES;
                written.push((block, model.written(block, content, sectors)));
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
                (Operation::Read | Operation::Flush, Err(_)) => model.failed(operation),
                (_, Err(_)) => {
                    written.iter().for_each(|&(block, version)| model.write_failed(block, version));
                    model.failed(operation)
                }
            };
            violations.lock().unwrap().extend(result.err());
        };
        let request =
            Request { operation, offset: offset as u64, length: length as u64, force_unit_access, data, caching };
        let refused = |world: &World| world.engine.cache().figures().refused_write_blocks;
        let (was, refused_before) = (self.cached(blocks.clone()), refused(self));
        self.engine.submit(request, Box::new(done), self.now_us);
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
        // Half of all accesses go to a sixth of the blocks.
        let limit = if random.chance(2) { VOLUME_BLOCKS / 6 } else { VOLUME_BLOCKS };
        let block = random.below(limit as u64) as usize;
        let blocks = random.pick(&[1, 1, 1, 2, 5, 20]).min(VOLUME_BLOCKS - block);
        let (mut offset, mut length) = (block * BLOCK_BYTES, blocks * BLOCK_BYTES);
        if random.chance(4) {
            offset += random.below(SECTORS as u64) as usize * SECTOR_BYTES;
            let left = block * BLOCK_BYTES + length - offset;
            length = SECTOR_BYTES * (1 + random.below((left / SECTOR_BYTES) as u64) as usize);
        }
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
        let may_submit = *self.outstanding.lock().unwrap() < self.setup.depth;
        if may_submit && (self.running() == 0 || self.random.chance(3)) {
            match self.random.below(120) {
                0..=3 => {
                    self.engine.tick(self.now_us);
                    self.collect();
                }
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
        let World { disks, record, mut attachment, model, .. } = self;
        let devices = Devices { disks, record };
        attachment.detach(&devices.disks[FLASH], &devices.side()).map_err(|error| error.to_string())?;
        let model = model.lock().unwrap().clone();
        Ok((devices, model))
    }

    /// Some seconds in which no one asks for anything.
    pub fn idle(&mut self) -> Outcome<()> {
        for _ in 0..5 {
            self.now_us += 1_000_000;
            self.engine.advance(self.now_us);
            self.collect();
            self.settle()?;
        }
        Ok(())
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
        let (end, failed) = (cache.log().end(), cache.has_flash_failed());
        let devices = self.devices();
        if !failed {
            self.attachment.close(&devices.disks[FLASH], &devices.side(), end, may_be_dirty).unwrap();
        }
        let model = self.model.lock().unwrap().clone();
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
        match self.violations.lock().unwrap().first() {
            Some(violation) => Err(violation.clone()),
            None => Ok(()),
        }
    }

    /// The effect of the faults on the transfer that is about to take place.
    fn effect(&mut self, transfer: &Transfer) -> Option<Effect> {
        let class = class(transfer.operation);
        let number = self.seen[transfer.disk][class as usize];
        self.seen[transfer.disk][class as usize] += 1;
        let random = &mut self.random;
        self.setup
            .faults
            .iter()
            .filter(|fault| (fault.disk, fault.class) == (transfer.disk, class) && fault.transfers.contains(&number))
            .find(|fault| random.chance(fault.odds))
            .map(|fault| fault.effect)
    }

    pub fn complete_one(&mut self) {
        let mut at = self.random.below(self.in_flight.len() as u64) as usize;
        while self.in_flight[at].stalled {
            at = (at + 1) % self.in_flight.len();
        }
        let mut taken = self.in_flight.swap_remove(at);
        let effect = self.effect(&taken.transfer);
        if effect == Some(Effect::Stall) {
            taken.stalled = true;
            self.in_flight.push(taken);
            return;
        }
        self.operations += 1;
        let InFlight { transfer, writes, .. } = taken;
        let mut ok = effect != Some(Effect::Fail);
        if ok || (class(transfer.operation) == Class::Write && self.random.chance(2)) {
            ok &= self.perform(&transfer, writes, effect).is_ok();
        }
        if !self.late.is_empty() && self.random.chance(4) {
            let (disk, writes) = self.late.remove(0);
            self.disks[disk].sync_until(writes);
        }
        self.engine.completed(transfer.tag, if ok { Ok(()) } else { Err(Error::Io) });
        self.collect();
    }

    fn perform(&mut self, transfer: &Transfer, writes: u64, effect: Option<Effect>) -> std::io::Result<()> {
        let disk = &self.disks[transfer.disk];
        let first = (transfer.offset / BLOCK_BYTES as u64) as usize;
        match (transfer.operation, effect) {
            (DiskOperation::Sync, _) => {
                if !self.is_skipped(transfer.disk) {
                    self.disks[transfer.disk].sync_until(writes);
                }
            }
            (DiskOperation::Read, Some(Effect::Corrupt { how, lasting })) => {
                let page = first + self.random.below(transfer.length / BLOCK_BYTES as u64) as usize;
                let bytes = disk.corrupted(page, how, &mut self.random);
                if lasting && is_vouched_for(disk, self.setup.geometry, page) {
                    disk.set_page(page, bytes);
                    transfer.perform(disk)?;
                } else {
                    let right = disk.show_page(page, bytes);
                    transfer.perform(disk)?;
                    disk.show_page(page, right);
                }
            }
            _ => transfer.perform(disk)?,
        }
        if (transfer.disk, transfer.operation) == (FLASH, DiskOperation::Write)
            && let Ok(metadata) = decode_metadata(Role::Segment, &self.disks[FLASH].page(first))
        {
            self.tails.0 = metadata.header.tail;
        }
        Ok(())
    }

    /// Whether a planted bug leaves out the flush that is due.
    fn is_skipped(&mut self, disk: usize) -> bool {
        let number = self.seen[disk][Class::Sync as usize];
        let moved = disk == FLASH && self.tails.0 > self.tails.1;
        if disk == FLASH {
            self.tails.1 = self.tails.0;
        }
        match self.setup.planted {
            Some(Planted::SkipFlashFlushes) => disk == FLASH,
            Some(Planted::SkipBackendFlushes) => disk != FLASH,
            Some(Planted::SkipOneFlashFlush(skipped)) => disk == FLASH && number == skipped,
            Some(Planted::SkipOneBackendFlush(skipped)) => disk != FLASH && number == skipped,
            Some(Planted::ResetEarly) => moved,
            _ => false,
        }
    }

    /// Lets requests end until only so many are outstanding.
    pub fn settle_down_to(&mut self, outstanding: usize, at_transfer: AtTransfer) -> Outcome<()> {
        while *self.outstanding.lock().unwrap() > outstanding {
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
        self.engine.read_again();
        self.collect();
        let outstanding = *self.outstanding.lock().unwrap();
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
        if self.engine.running() > 0 || *self.outstanding.lock().unwrap() > 0 {
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
        for InFlight { transfer, .. } in &self.in_flight {
            let changes = !matches!(transfer.operation, DiskOperation::Read | DiskOperation::Sync);
            if changes && random.chance(2) {
                // One that reaches past the end fails.
                let _ = transfer.perform(&disks[transfer.disk]);
            }
        }
        let losses = [Loss::Nothing, Loss::Everything, Loss::Sectors, Loss::Sectors, Loss::Writes, Loss::Writes];
        for disk in disks {
            disk.crash(if killed { Loss::Process } else { random.pick(&losses) }, random);
        }
        let mut model = self.model.lock().unwrap().clone();
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

    /// Reads every block; `None` where that failed.
    fn read_all(&mut self) -> Outcome<Vec<Option<Content>>> {
        let found: Arc<Mutex<Vec<Option<Content>>>> = Arc::new(Mutex::new(vec![None; VOLUME_BLOCKS]));
        self.read_into(&found, 0, VOLUME_BLOCKS);
        self.settle()?;
        if found.lock().unwrap()[0].is_none() {
            (0..VOLUME_BLOCKS).for_each(|block| self.read_into(&found, block, 1));
            self.settle()?;
        }
        Ok(std::mem::take(&mut *found.lock().unwrap()))
    }

    fn read_into(&mut self, found: &Arc<Mutex<Vec<Option<Content>>>>, first: usize, count: usize) {
        let found = found.clone();
        let done = move |result: Result<Vec<u8>, _>| {
            let Ok(bytes) = result else { return };
            for (bytes, found) in bytes.chunks(BLOCK_BYTES).zip(&mut found.lock().unwrap()[first..]) {
                *found = Some(decode(bytes).try_into().unwrap());
            }
        };
        let request = Request {
            operation: Operation::Read,
            offset: (first * BLOCK_BYTES) as u64,
            length: (count * BLOCK_BYTES) as u64,
            force_unit_access: false,
            data: Vec::new(),
            caching: Default::default(),
        };
        self.engine.submit(request, Box::new(done), self.now_us);
        self.collect();
    }

    /// The blocks that the cache says are lost.
    pub fn lost(&self) -> BTreeSet<usize> {
        self.engine.cache().lost_blocks().into_iter().map(|block| block as usize).collect()
    }

    /// Reads every block after a crash; from then on each is what it was found to be.
    pub fn verify_recovered(&mut self) -> Outcome<()> {
        let found = self.read_all()?;
        let lost = self.lost();
        let mut model = self.model.lock().unwrap();
        for (block, content) in found.into_iter().enumerate() {
            match content {
                Some(content) => model.settled(block, &content, self.killed)?,
                None => model.read_lost(block, lost.contains(&block))?,
            }
        }
        Ok(())
    }

    /// Reads every block while nothing fails any more.
    pub fn verify_readable(&mut self) -> Outcome<()> {
        let found = self.read_all()?;
        let lost = self.lost();
        let mut model = self.model.lock().unwrap();
        for (block, content) in found.into_iter().enumerate() {
            match content {
                Some(content) => {
                    let earliest = model.earliest(block);
                    model.read(block, earliest, &content, 0..SECTORS)?;
                }
                None => model.read_lost(block, lost.contains(&block))?,
            }
        }
        Ok(())
    }

    /// The devices work again: what can be read is right, what was lost is listed, and heals by being written.
    pub fn verify_after_faults(&mut self) -> Outcome<()> {
        self.setup.faults.clear();
        self.in_flight.iter_mut().for_each(|transfer| transfer.stalled = false);
        self.settle()?;
        self.now_us += 10_000_000;
        self.engine.tick(self.now_us);
        self.collect();
        self.settle()?;
        self.verify_readable()?;
        if !self.engine.cache().has_flash_failed() {
            // Background work may find more that cannot be read; the first flush may report a failure from before.
            for round in 0..5 {
                let lost = self.lost();
                if round == 4 && !lost.is_empty() {
                    return Err(format!("blocks {lost:?} stay lost after they were written"));
                }
                for block in lost {
                    self.submit(Operation::Write, block * BLOCK_BYTES, BLOCK_BYTES, false);
                }
                self.submit(Operation::Flush, 0, 0, false);
                self.settle()?;
            }
            self.model.lock().unwrap().set_faults(false);
            self.verify_readable()?;
            // A device that lost something may show it again.
            self.model.lock().unwrap().set_faults(true);
        }
        Ok(())
    }

    fn destage(&mut self, start: impl Fn(&mut Engine, u64)) -> Outcome<()> {
        for _ in 0..3 {
            self.now_us += 2_000_000;
            start(&mut self.engine, self.now_us);
            self.collect();
            self.settle()?;
        }
        Ok(())
    }

    /// Writes everything back; then the backend alone must be whole, but for what was lost.
    pub fn verify_detached(&mut self) -> Outcome<()> {
        self.destage(Engine::destage_all)?;
        if self.engine.cache().has_flash_failed() {
            // Until it is known that the flash is detached, starting again must do no harm.
            let mut random = Random(self.random.next());
            let mut again = self.crashed(&mut random)?;
            again.verify_recovered()?;
            again.verify_detached().map_err(|error| format!("after a restart: {error}"))?;
            if !self.lost().is_empty() {
                // What the flash still has of lost blocks is better than nothing: it is not detached.
                return self.model.lock().unwrap().lost_are_allowed(&self.lost());
            }
            // The server goes on under this condition, too.
            let due = self.engine.cache().durable_dirty_blocks();
            if due > 0 {
                return Err(format!("{due} blocks that the flash holds are not written back"));
            }
            let side = FakeSide { record: &self.record, backend: &self.disks[BACKEND], flash: &self.disks[FLASH] };
            self.attachment.detach(&self.disks[FLASH], &side).unwrap();
            self.destage(Engine::destage_rest)?;
        }
        let lost = self.lost();
        let cache = self.engine.cache();
        let dirty = cache.log().dirty_blocks();
        if dirty > lost.len() as u64 || cache.buffered_blocks() > 0 {
            return Err(format!("{dirty} blocks stay dirty, {} in memory", cache.buffered_blocks()));
        }
        let mut model = self.model.lock().unwrap();
        for block in (0..VOLUME_BLOCKS).filter(|block| !lost.contains(block)) {
            let content: Content = decode(&self.disks[1].page(block)).try_into().unwrap();
            let earliest = model.earliest(block);
            model.read(block, earliest, &content, 0..SECTORS).map_err(|error| format!("after detaching: {error}"))?;
        }
        model.lost_are_allowed(&lost)
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

/// Whether something that was written later says that the page was durable. The last segment alone has no such witness: damage
/// to it looks like a write that was interrupted.
fn is_vouched_for(flash: &FakeDisk, geometry: Geometry, page: usize) -> bool {
    let all = metadata(flash, geometry.pages() as usize);
    let newest = all.first().map_or(0, |(.., metadata)| metadata.header.sequence);
    let crc = crc32c::crc32c(&flash.stable_page(page));
    let holds = |metadata: &MetadataPage| {
        metadata
            .records
            .iter()
            .any(|record| record.slot as usize == page && record.crc == crc && record.kind.has_data())
    };
    let Some((.., owner)) = all.iter().find(|(.., metadata)| holds(metadata)) else { return false };
    let reaches = |header: &Header| {
        header.sequence == newest && header.durable_end as usize > page % geometry.unit_pages as usize
    };
    owner.header.sequence < newest || all.iter().any(|(.., metadata)| reaches(&metadata.header))
}

/// A random fault of a read of the flash.
pub fn random_corruption(random: &mut Random) -> Effect {
    Effect::Corrupt { how: random.pick(&CORRUPTIONS), lasting: random.chance(2) }
}
