//! A world whose cache is a log.

use std::collections::BTreeSet;
use std::ops::Range;

use flashwise_core::admission::Admission;
use flashwise_core::cache::{Cache, Config, CopyForward, LogCache, Mode, Regions, WriteBackOrder, admission};
use flashwise_core::epochs::BackendState;
use flashwise_core::filter::Caching;
use flashwise_core::format::{BLOCK_BYTES, Geometry, Kind, Role, decode_metadata};
use flashwise_core::journal::{Group, Head, Journal};
use flashwise_core::policy::{self, Spec};
use flashwise_core::recovery::Recovered;
use flashwise_engine::engine::{BACKEND, FLASH, JOURNAL, Settings};
use flashwise_engine::log::Engine;
use flashwise_storage::attach::Attachment;
use flashwise_storage::disk::Disk;
use flashwise_storage::export::{Done, Operation, Request};
use flashwise_storage::flash::cache_tag;
use flashwise_storage::layout::{CacheLayout, End, Held, LAYOUTS, contents};
use flashwise_testing::fake_disk::{ACTIVE_MIN, FakeDisk};
use flashwise_testing::random::Random;

use super::{Cached, Class, Effect, Fault, Outcome, World};
use crate::crash::clients::random_range;
use crate::crash::fake_side::{FakeRecord, FakeSide};
use crate::crash::model::SECTOR_BYTES;
use crate::crash::planted::{
    Planted, Stays, distort, drop_dirty_filter, forget_filter, lossy_filter, region_filter, stays_filter,
    uncounted_filter, unsaid_filter, witness_filter,
};

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

/// How a world is made; everything else follows from the seed.
#[derive(Clone, Debug)]
pub struct Setup {
    pub geometry: Geometry,
    pub segment_blocks: u32,
    pub policy: &'static str,
    pub admission: &'static str,
    pub mode: Mode,
    pub order: WriteBackOrder,
    /// Pages of the journal; 0 without one.
    pub journal_pages: usize,
    pub read_buffer_blocks: u32,
    pub write_buffer_blocks: u32,
    pub sequential_blocks: u32,
    pub copy_forward: CopyForward,
    /// One request in this many is of a client that may not use the flash, and one of a client that always may.
    pub filtered_odds: u64,
    pub depth: usize,
    pub spare_frames: u32,
    pub regions: Regions,
    /// True if the flash has zones.
    pub zoned: bool,
    pub planted: Option<Planted>,
    pub faults: Vec<Fault>,
    /// Tries after the first.
    pub retries: u8,
    /// True if an unreadable flash counts as failed after a while.
    pub gives_up: bool,
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
            order: WriteBackOrder::None,
            journal_pages: 0,
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
            gives_up: false,
        }
    }

    /// Data is written back in order, by way of a journal.
    pub fn with_journal(random: &mut Random) -> Setup {
        let setup = Setup { order: WriteBackOrder::Journal, ..Setup::random(random) };
        Setup { journal_pages: random.pick(&[8, 24, 60, 200]), ..setup }
    }

    pub fn admission(&self, rule: &str) -> Option<Admission> {
        if rule == "none" {
            return None;
        }
        let bytes = (VOLUME_BLOCKS * BLOCK_BYTES) as u64;
        Some(admission(rule.parse().unwrap(), &flashwise_device::paper(), &self.geometry, bytes))
    }

    pub fn config(&self) -> Config {
        Config {
            segment_blocks: self.segment_blocks,
            admission: self.admission(self.admission),
            mode: self.mode,
            order: self.order,
            unix_us: 1_700_000_000_000_000,
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

impl Cached for Setup {
    type Engine = Engine;

    fn layout(&self) -> &'static dyn CacheLayout {
        LAYOUTS[0].1
    }

    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn volume_blocks(&self) -> usize {
        VOLUME_BLOCKS
    }

    fn depth(&self) -> usize {
        self.depth
    }

    fn writes_back(&self) -> bool {
        self.mode == Mode::WriteBack
    }

    fn in_order(&self) -> bool {
        self.order != WriteBackOrder::None
    }

    fn is_backend_a_state(engine: &Engine) -> bool {
        engine.cache().backend_state(0) != Some(BackendState::Mixed)
    }

    fn journal_pages(&self) -> usize {
        self.journal_pages
    }

    fn faults(&self) -> &[Fault] {
        &self.faults
    }

    fn clear_stalls(&mut self) {
        self.faults.retain(|fault| fault.effect != Effect::Stall);
    }

    fn may_be_dirty(world: &mut World) {
        world.set_mode(Mode::WriteBack);
    }

    fn flash(&self) -> FakeDisk {
        let flash = match self.zoned {
            true => FakeDisk::zoned(self.geometry, ACTIVE_MIN),
            false => FakeDisk::new(self.geometry.pages() as usize, SECTOR_BYTES),
        };
        match self.planted {
            Some(Planted::SkipForgets) => flash.set_filter(forget_filter(None)),
            Some(Planted::SkipOneForget(number)) => flash.set_filter(forget_filter(Some(number))),
            Some(
                Planted::SkipUnsure | Planted::SkipUnsureAgain | Planted::SureTooEarly | Planted::SkipForgetRegions,
            ) => flash.set_filter(region_filter(self.planted.unwrap())),
            Some(Planted::DropDirty) => flash.set_filter(drop_dirty_filter()),
            Some(Planted::SkipCountingOnFlash) => flash.set_filter(uncounted_filter()),
            Some(Planted::SkipEpochEnds) => flash.set_filter(lossy_filter(Kind::EpochEnd, |_, _| true)),
            Some(Planted::SkipEpochsDone) => flash.set_filter(lossy_filter(Kind::EpochsDone, |_, _| true)),
            Some(Planted::SkipBroken) => flash.set_filter(lossy_filter(Kind::OrderBroken, |_, _| true)),
            Some(Planted::SkipWitness) => flash.set_filter(witness_filter()),
            Some(Planted::UnsaidSkips) => flash.set_filter(unsaid_filter()),
            _ => {}
        }
        flash
    }

    fn record(&self) -> FakeRecord {
        FakeRecord {
            skips_counting: self.planted == Some(Planted::SkipCounting),
            skips_closing: self.planted == Some(Planted::SkipClosing),
            ..FakeRecord::default()
        }
    }

    fn engine(
        &self,
        held: Box<dyn Held>,
        attachment: &Attachment,
        journal: Option<Journal>,
        flash: &FakeDisk,
        stays: &Stays,
    ) -> Engine {
        let recovered: Recovered = contents(held);
        recovered.log.check();
        if matches!(self.planted, Some(Planted::RefusedStays | Planted::FilteredStays)) {
            flash.set_filter(stays_filter(stays.clone()));
        }
        let epoch = if self.planted == Some(Planted::SameEpoch) { 1 } else { recovered.epoch };
        let cache = LogCache::new(Config { journal, ..self.config() }, recovered.log, recovered.lost);
        let settings = Settings {
            cache: cache_tag(attachment.superblock()),
            epoch,
            retries: self.retries,
            patience: self.retries,
            discard: true,
            // Zones are written in one order. In a third of the other worlds a segment is several writes.
            write_streams: if self.depth == 4 && !self.zoned { 4 } else { 0 },
            spare_frames: self.spare_frames,
            answers_flushes_at_once: self.planted == Some(Planted::AnswerFlushesAtOnce),
            ..Settings::default()
        };
        Engine::new(cache, settings, recovered.checksums, recovered.head_records)
    }

    fn act(world: &mut World) {
        match world.random.below(120) {
            0..=3 => {
                world.engine.tick(world.now_us);
                world.collect();
            }
            5 => world.note_durable(),
            4 => world.change_settings(),
            _ => world.submit_random(),
        }
    }

    /// A planted bug loses marks of blocks.
    fn submit(world: &mut World, request: Request, done: Done) {
        let (caching, operation) = (request.caching, request.operation);
        let block_bytes = BLOCK_BYTES as u64;
        let blocks =
            (request.offset / block_bytes) as u32..(request.offset + request.length).div_ceil(block_bytes) as u32;
        let refused = |world: &World| world.engine.cache().figures().refused_write_blocks;
        let (was, refused_before) = (world.cached(blocks.clone()), refused(world));
        world.engine.submit(request, done, world.now_us);
        let stays = match world.setup.planted {
            Some(Planted::RefusedStays) => refused(world) > refused_before,
            Some(Planted::FilteredStays) => caching == Caching::Never && operation == Operation::Write,
            _ => false,
        };
        let is = world.cached(blocks);
        let mut marks_lost = world.stays.lock().unwrap();
        marks_lost.retain(|block| !is.contains(block));
        marks_lost.extend(was.difference(&is).filter(|_| stays));
    }

    fn read_again(world: &mut World) {
        if world.setup.gives_up && world.engine.has_postponed() && world.random.chance(3) {
            world.engine.give_flash_up();
        }
        world.engine.read_again();
    }

    fn answers_early(&self) -> bool {
        self.planted == Some(Planted::IgnoreOrder)
    }

    fn skips_flush(world: &mut World, disk: usize) -> bool {
        let number = world.seen[disk][Class::Sync as usize];
        let moved = disk == FLASH && world.tails.0 > world.tails.1;
        if disk == FLASH {
            world.tails.1 = world.tails.0;
        }
        match world.setup.planted {
            Some(Planted::SkipFlashFlushes) => disk == FLASH,
            Some(Planted::SkipBackendFlushes) => disk == BACKEND,
            Some(Planted::SkipJournalFlushes) => disk == JOURNAL,
            Some(Planted::SkipOneFlashFlush(skipped)) => disk == FLASH && number == skipped,
            Some(Planted::SkipOneBackendFlush(skipped)) => disk == BACKEND && number == skipped,
            Some(Planted::ResetEarly) => moved,
            _ => false,
        }
    }

    fn write_early(world: &World, random: &mut Random) {
        let (cache, log) = (world.engine.cache(), world.engine.cache().log());
        if world.setup.planted == Some(Planted::MarkEarly) && random.chance(4) {
            let [_, _, journal] = &world.disks;
            let read = |page: u32, bytes: &mut [u8]| journal.read_at(bytes, u64::from(page) * BLOCK_BYTES as u64);
            let last = Head::last(&[journal.page(0), journal.page(1)]);
            let group = last.and_then(|last| Group::find(&last, world.setup.journal_pages as u64, read).unwrap());
            if let Some(Group { head, .. }) = group {
                journal.set_page(head.mark_page() as usize, head.mark());
            }
        }
        if world.setup.planted != Some(Planted::EpochEarly) || !random.chance(50) {
            return;
        }
        let Some(oldest) = cache.epochs().and_then(|epochs| epochs.oldest()) else { return };
        let slots = log.blocks().into_iter().map(|block| (block, log.find(block).unwrap()));
        let is_later = |slot| log.is_dirty(slot) && log.is_durable(slot) && !log.is_before(slot, oldest.end);
        let later: Vec<(u32, u32)> = slots.filter(|&(_, slot)| is_later(slot)).collect();
        if !later.is_empty() {
            let (block, slot) = random.pick(&later);
            world.disks[BACKEND].set_page(block as usize, world.disks[FLASH].page(slot as usize));
        }
    }

    fn written(world: &mut World, first: usize) {
        if let Ok(metadata) = decode_metadata(Role::Segment, &world.disks[FLASH].page(first)) {
            world.tails.0 = metadata.header.tail;
        }
    }

    fn distort(&self, flash: &FakeDisk, random: &mut Random) {
        if let Some(planted) = self.planted {
            let Geometry { unit_pages, .. } = self.geometry;
            distort(planted, flash, self.geometry.pages() as usize, unit_pages as usize, random);
        }
    }

    fn pause(engine: &mut Engine) -> Option<End> {
        engine.pause().map(End::from)
    }

    fn end(engine: &Engine) -> End {
        End::from(engine.cache().log().end())
    }

    fn has_flash_failed(engine: &Engine) -> bool {
        engine.cache().has_flash_failed()
    }

    fn blocks_to_write_back(engine: &Engine) -> u64 {
        engine.cache().blocks_to_write_back()
    }

    fn lost_blocks(&self, engine: &Engine) -> Vec<usize> {
        engine.cache().lost_blocks().into_iter().map(|block| block as usize).collect()
    }

    fn check_settled(&self, engine: &Engine) -> Outcome<()> {
        engine.cache().check();
        Ok(())
    }

    fn verify_written_back(world: &mut World) -> Outcome<()> {
        world.verify_detached()
    }
}

impl World {
    /// Returns those of some blocks that have a copy on flash.
    fn cached(&self, blocks: Range<u32>) -> BTreeSet<u32> {
        let log = self.engine.cache().log();
        blocks.filter(|&block| log.find(block).is_some()).collect()
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

    /// Changes the mode as a server does.
    pub fn set_mode(&mut self, mode: Mode) {
        if mode == Mode::WriteBack {
            let side = FakeSide { record: &self.record, backend: &self.disks[BACKEND], flash: &self.disks[FLASH] };
            self.attachment.allow_dirty(&self.disks[FLASH], &side).unwrap();
        }
        self.engine.cache_mut().set_mode(mode);
    }
}
