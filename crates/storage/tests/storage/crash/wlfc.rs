//! WLFC under power failures.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use flashwise_core::cache::{Cache, Event};
use flashwise_core::format::{BLOCK_BYTES, Geometry};
use flashwise_core::journal::Journal;
use flashwise_core::wlfc::BucketOptions;
use flashwise_core::wlfc::{Config, Figures, Log, Refresh, Scan, Step, Wlfc};
use flashwise_engine::engine::FLASH;
use flashwise_engine::wlfc::{Engine, Settings};
use flashwise_storage::attach::Attachment;
use flashwise_storage::export::Operation;
use flashwise_storage::flash::cache_tag;
use flashwise_storage::layout::{CacheLayout, End, Held, LAYOUTS, contents};
use flashwise_storage::wlfc::start;
use flashwise_testing::fake_disk::{ACTIVE_MIN, FakeDisk};
use flashwise_testing::random::Random;

use crate::crash::clients::random_range;
use crate::crash::planted::Stays;
use crate::crash::world::{self, Cached, Outcome};
use crate::crash::{run, survive};

/// A bug that is planted, which the tests must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    /// The paper's rule of recovery: of several cache buckets of a backend bucket, the one with the highest epoch
    /// counts.
    HighestEpoch,
    /// A write goes past the cache as in the paper, which leaves no tombstone on flash.
    NoTombstone,
    /// Flushes of the flash are answered and not done.
    SkipFlashFlushes,
    /// Flushes of the backend are answered and not done.
    SkipBackendFlushes,
    /// Flushes are answered at once.
    AnswerFlushesAtOnce,
    /// Written pages do not name their start of the cache, so torn pages count as durable later.
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

/// The setup of a world.
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
        let options =
            BucketOptions { refresh: random.pick(&[Refresh::Read, Refresh::Evict]), ..BucketOptions::default() };
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
}

/// A cache whose tombstones say nothing, if that is asked for.
#[derive(Debug)]
pub struct Planted {
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

pub type World = world::World<Setup>;

impl Cached for Setup {
    type Engine = Engine<Planted>;

    fn layout(&self) -> &'static dyn CacheLayout {
        LAYOUTS[1].1
    }

    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn volume_blocks(&self) -> usize {
        self.config.volume_blocks as usize
    }

    fn depth(&self) -> usize {
        self.depth
    }

    fn flash(&self) -> FakeDisk {
        match self.zoned {
            true => FakeDisk::zoned(self.geometry, ACTIVE_MIN - 1 + self.config.write_queue),
            false => FakeDisk::new(self.geometry.pages() as usize, self.sector),
        }
    }

    fn engine(
        &self,
        held: Box<dyn Held>,
        attachment: &Attachment,
        _journal: Option<Journal>,
        _flash: &FakeDisk,
        _stays: &Stays,
    ) -> Engine<Planted> {
        let mut held: start::Held = contents(held);
        if self.bug == Some(Bug::HighestEpoch) {
            highest_epoch(&mut held.scans);
        }
        let (wlfc, started) = held.start(self.config.clone()).unwrap();
        wlfc.check();
        let settings = Settings {
            cache: cache_tag(attachment.superblock()),
            start: if self.bug == Some(Bug::SameRun) { 1 } else { attachment.superblock().attach },
            zoned: self.zoned,
            answers_flushes_at_once: self.bug == Some(Bug::AnswerFlushesAtOnce),
            ..Settings::default()
        };
        Engine::new(Planted { wlfc, no_tombstone: self.bug == Some(Bug::NoTombstone) }, settings, started)
    }

    fn act(world: &mut World) {
        let (volume_blocks, random) = (world.setup.volume_blocks(), &mut world.random);
        let lengths = [1, 1, 1, 1, 2, 3, 5, 20];
        let (offset, length) = random_range(random, volume_blocks, volume_blocks / 4, &lengths, 5);
        let durable = random.chance(12);
        match random.below(44) {
            0..=7 => world.submit(Operation::Read, offset, length, false),
            8..=31 => world.submit(Operation::Write, offset, length, durable),
            32..=35 => world.submit(Operation::Flush, 0, 0, false),
            36 => {
                let zeroes = Operation::WriteZeroes { may_punch_holes: true, only_if_fast: false };
                world.submit(zeroes, offset, length, durable);
            }
            37 => world.submit(Operation::Trim, offset, length, durable),
            38 => {
                world.engine.destage_all(0);
                world.collect();
            }
            39 => world.submit(Operation::Cache, offset, length, false),
            _ => world.note_durable(),
        }
    }

    fn read_again(world: &mut World) {
        world.engine.read_again();
        world.engine.read_unreadable(0);
    }

    fn skips_flush(world: &mut World, disk: usize) -> bool {
        match world.setup.bug {
            Some(Bug::SkipFlashFlushes) => disk == FLASH,
            Some(Bug::SkipBackendFlushes) => disk != FLASH,
            _ => false,
        }
    }

    fn pause(engine: &mut Engine<Planted>) -> Option<End> {
        engine.pause().map(End::from)
    }

    fn end(engine: &Engine<Planted>) -> End {
        End::from(engine.end())
    }

    fn blocks_to_write_back(engine: &Engine<Planted>) -> u64 {
        engine.cache().blocks_to_write_back()
    }

    /// An engine that has stopped answers nothing until the cache is recovered, which other tests do.
    fn lost_blocks(&self, engine: &Engine<Planted>) -> Vec<usize> {
        if engine.recovery().stopped().is_some() {
            return (0..self.volume_blocks()).collect();
        }
        engine.lost_blocks().into_iter().map(|block| block as usize).collect()
    }

    fn check_settled(&self, engine: &Engine<Planted>) -> Outcome<()> {
        if engine.planned_bytes() > 0 {
            return Err(format!("{} bytes are not given back", engine.planned_bytes()));
        }
        if self.bug.is_none() {
            engine.cache().check();
        }
        Ok(())
    }

    fn verify_written_back(world: &mut World) -> Outcome<()> {
        world.settle()?;
        world.engine.destage_all(0);
        world.collect();
        world.settle()?;
        match Self::blocks_to_write_back(&world.engine) {
            0 => world.verify_backend(&world.lost()),
            dirty => Err(format!("{dirty} blocks stay dirty")),
        }
    }

    /// Either the power fails again while the recovered cache is being settled, or the server ends and starts again.
    fn after_crash(mut recovered: World, before: &World, random: &mut Random) -> Outcome<u64> {
        if random.chance(2) {
            let (devices, model) = recovered.close()?;
            let mut again = World::open(before.setup.clone(), devices, model, Random(1), recovered.clients.next_tag)?;
            again.verify_readable().map_err(|error| format!("once reopened: {error}"))?;
            return Ok(0);
        }
        let mut again = before.crashed(random)?;
        for _ in 0..random.below(20) {
            if !again.is_idle() {
                again.complete_one();
            }
        }
        again.crashed(random)?.verify_recovered().map_err(|error| format!("in recovery: {error}"))?;
        Ok(1)
    }
}

#[test]
fn data_flushed_by_wlfc_survives_power_failures_at_any_operation() {
    survive(3, Setup::sound);
}

#[test]
fn bugs_that_are_planted_in_wlfc_are_found() {
    for bug in BUGS {
        let (started, points) = (Instant::now(), AtomicU64::new(0));
        let found = (1..300).find_map(|seed| {
            let run = || run(Setup::random(&mut Random(seed), Some(bug)), seed, 600, 3, &points);
            let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
            run.unwrap_or_else(|_| Err("a panic".to_owned())).err()
        });
        let points = points.into_inner();
        let found = found.unwrap_or_else(|| panic!("{bug:?} was not found in {points} power failures"));
        let found = found.rsplit_once("operations: ").map_or(found.as_str(), |(_, found)| found);
        println!("{bug:?}: {points} power failures, {:.1} s: {found:.160}", started.elapsed().as_secs_f64());
    }
}
