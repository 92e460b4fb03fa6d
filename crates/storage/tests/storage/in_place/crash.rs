//! The world of power failures.

use std::sync::atomic::AtomicU64;

use flashwise_core::cache::Cache;
use flashwise_core::format::{Geometry, Place};
use flashwise_core::journal::Journal;
use flashwise_engine::engine::{BACKEND, Engine, Settings};
use flashwise_storage::attach::Attachment;
use flashwise_storage::export::Operation;
use flashwise_storage::layout::{CacheLayout, End, Held, contents};
use flashwise_testing::fake_disk::FakeDisk;
use flashwise_testing::random::Random;

use super::row::{Contents, IN_PLACE, TRUSTING};
use super::slots::Slots;
use crate::crash::clients::random_range;
use crate::crash::planted::Stays;
use crate::crash::world::{self, Cached, Outcome};
use crate::crash::{run, survive};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    /// Flushes of the backend are answered and not done.
    SkipBackendFlushes,
    /// After a crash, the table of the last clean shutdown counts.
    TrustsAnyTable,
}

#[derive(Clone, Debug)]
struct Setup {
    geometry: Geometry,
    volume_blocks: usize,
    depth: usize,
    bug: Option<Bug>,
}

impl Setup {
    fn random(random: &mut Random, bug: Option<Bug>) -> Setup {
        let geometry = Geometry { units: 11, unit_pages: 16 };
        // More or fewer than there are slots.
        let volume_blocks = random.pick(&[60, 120, 300]);
        Setup { geometry, volume_blocks, depth: random.pick(&[1, 4, 12]), bug }
    }
}

type World = world::World<Setup>;

impl Cached for Setup {
    type Engine = Engine<Slots>;

    fn layout(&self) -> &'static dyn CacheLayout {
        if self.bug == Some(Bug::TrustsAnyTable) { &TRUSTING } else { &IN_PLACE }
    }

    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn volume_blocks(&self) -> usize {
        self.volume_blocks
    }

    fn depth(&self) -> usize {
        self.depth
    }

    fn writes_back(&self) -> bool {
        false
    }

    fn flash(&self) -> FakeDisk {
        FakeDisk::new(self.geometry.pages() as usize, 512)
    }

    fn engine(
        &self,
        held: Box<dyn Held>,
        attachment: &Attachment,
        _journal: Option<Journal>,
        _flash: &FakeDisk,
        _stays: &Stays,
    ) -> Engine<Slots> {
        contents::<Contents>(held).start(attachment.superblock(), Settings::default())
    }

    fn act(world: &mut World) {
        let (blocks, random) = (world.setup.volume_blocks, &mut world.random);
        let (offset, length) = random_range(random, blocks, blocks / 4, &[1, 1, 1, 2, 5, 20], 4);
        let durable = random.chance(12);
        let zeroes = Operation::WriteZeroes { may_punch_holes: true, only_if_fast: false };
        match random.below(20) {
            0..=8 => world.submit(Operation::Read, offset, length, false),
            9..=15 => world.submit(Operation::Write, offset, length, durable),
            16 => world.submit(Operation::Flush, 0, 0, false),
            17 => world.submit(Operation::Cache, offset, length, false),
            18 => world.submit(zeroes, offset, length, durable),
            _ => world.submit(Operation::Trim, offset, length, durable),
        }
    }

    fn read_again(world: &mut World) {
        world.engine.read_again();
    }

    fn skips_flush(world: &mut World, disk: usize) -> bool {
        world.setup.bug == Some(Bug::SkipBackendFlushes) && disk == BACKEND
    }

    fn pause(_engine: &mut Engine<Slots>) -> Option<End> {
        None
    }

    fn end(_engine: &Engine<Slots>) -> End {
        End::from(Place::default())
    }

    fn blocks_to_write_back(engine: &Engine<Slots>) -> u64 {
        engine.cache().blocks_to_write_back()
    }

    fn lost_blocks(&self, _engine: &Engine<Slots>) -> Vec<usize> {
        Vec::new()
    }

    fn check_settled(&self, engine: &Engine<Slots>) -> Outcome<()> {
        engine.cache().check();
        Ok(())
    }

    fn verify_written_back(world: &mut World) -> Outcome<()> {
        world.settle()?;
        world.verify_backend(&world.lost())
    }

    /// The server ends and starts again, works, and loses power.
    fn after_crash(mut recovered: World, before: &World, random: &mut Random) -> Outcome<u64> {
        let (devices, model) = recovered.close()?;
        let next_tag = recovered.clients.next_tag;
        let mut again = World::open(before.setup.clone(), devices, model, Random(random.next()), next_tag)?;
        let cached = again.engine.cache().cached_blocks();
        if cached != recovered.engine.cache().cached_blocks() {
            return Err(format!("{cached} blocks are cached after a clean shutdown"));
        }
        again.verify_readable().map_err(|error| format!("once reopened: {error}"))?;
        for _ in 0..20 {
            again.step(&mut world::no_crash)?;
        }
        again.crashed(random)?.verify_recovered().map_err(|error| format!("once reopened: {error}"))?;
        Ok(1)
    }
}

#[test]
fn data_flushed_in_place_survives_power_failures_at_any_operation() {
    survive(3, |random| Setup::random(random, None));
}

#[test]
fn bugs_that_are_planted_in_place_are_found() {
    for bug in [Bug::SkipBackendFlushes, Bug::TrustsAnyTable] {
        let points = AtomicU64::new(0);
        let found =
            (1..100).find_map(|seed| run(Setup::random(&mut Random(seed), Some(bug)), seed, 600, 3, &points).err());
        println!("{bug:?}: {:.200}", found.unwrap_or_else(|| panic!("{bug:?} is not found")));
    }
}
