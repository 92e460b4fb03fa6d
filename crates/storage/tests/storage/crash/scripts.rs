//! Scripted workloads, with a power failure at every single device operation of them.

use flashwise_core::cache::{Mode, Regions, WriteBackOrder};
use flashwise_core::filter::Caching;
use flashwise_core::format::{BLOCK_BYTES, Geometry};
use flashwise_core::policy::Spec;
use flashwise_engine::engine::FLASH;
use flashwise_storage::export::Operation;
use flashwise_testing::fake_disk::Loss;
use flashwise_testing::random::Random;

use crate::crash::model::SECTOR_BYTES;
use crate::crash::world::{AtTransfer, Outcome, Setup, World, no_crash};

#[derive(Clone, Copy, Debug)]
pub enum Action {
    /// Blocks from one, count of them.
    Write(usize, usize),
    WriteDurable(usize, usize),
    /// A block's sectors, from one, count of them.
    WritePart(usize, usize, usize),
    Read(usize, usize),
    Flush,
    Trim(usize, usize),
    Zero(usize, usize),
    Mode(Mode),
    /// Requests come from a client of whom the I/O filter says this.
    Client(Caching),
    Policy(&'static str),
    /// The policy stays.
    Admission(&'static str),
    /// The clock advances by this many milliseconds, and the cache performs the due work.
    Wait(u64),
    Destage,
    /// Everything that was begun ends.
    Settle,
}

use Action::*;

/// The workloads, by name.
pub fn scripts() -> Vec<(&'static str, Mode, Vec<Action>)> {
    let overwrites = (0..8).flat_map(|round| [Write(round % 3, 4), WritePart(2, round % 6, 2), Flush, Write(round, 2)]);
    let durable = (0..10).flat_map(|round| [Write(round, 3), WriteDurable(round + 1, 2), WritePart(round, 3, 2)]);
    // 12 rounds of 20 blocks are more than the log holds.
    let fill = (0..12).flat_map(|round| [Write(round * 9 % 90, 20), Read(round * 7 % 80, 12), Flush, Wait(30)]);
    let destage =
        (0..4).flat_map(|round| [Write(round * 20, 12), Flush, Wait(500), Read(round * 20, 12), Destage, Settle]);
    let zeroes = (0..4).flat_map(|round| {
        let at = round * 20;
        [
            Write(at, 12),
            Flush,
            Write(at + 4, 3),
            Trim(at + 2, 6),
            Zero(at + 9, 6),
            WritePart(at + 9, 1, 3),
            Flush,
            Destage,
        ]
        .into_iter()
        .chain([Settle, Trim(at, 4), Write(at + 1, 1), Zero(at, 2)])
    });
    let modes = [Mode::WriteThrough, Mode::WriteAround, Mode::WriteBack, Mode::WriteAround, Mode::WriteThrough];
    let modes = modes.into_iter().zip(["lru", "s3-fifo", "2q", "larc", "arc"]).enumerate().flat_map(
        |(round, (mode, policy))| {
            [
                Write(round * 3, 8),
                Read(round * 2, 10),
                Mode(mode),
                Write(round * 3 + 2, 4),
                WritePart(round * 3 + 1, 2, 2),
            ]
            .into_iter()
            .chain([Policy(policy), Flush, Trim(round * 3 + 4, 2), Write(round * 3 + 5, 2), Wait(100)])
        },
    );
    let sequential = (0..6).flat_map(|round| [Write(round * 2, 4), Write(round * 16, 30), Read(round * 16, 40), Flush]);
    // Blocks on flash are written there or bypass it. New blocks are rejected at first.
    let rules = ["probability:p=0", "size:max=8KiB", "hotness:min=2", "none"];
    let refusals = rules.into_iter().enumerate().flat_map(|(round, rule)| {
        let at = round * 24;
        [
            Write(at, 20),
            Flush,
            Admission(rule),
            Write(at + 10, 14),
            WritePart(at + 21, 1, 2),
            Read(at + 8, 20),
            Wait(300),
            Flush,
            Write(at + 18, 6),
        ]
        .into_iter()
        .chain([
            Mode([Mode::WriteThrough, Mode::WriteBack][round % 2]),
            WriteDurable(at + 19, 3),
            Trim(at + 22, 2),
            Flush,
        ])
    });
    // Clean and written-back copies of three regions are overwritten past the flash; regions become sure and unsure
    // again.
    let past = (0..4).flat_map(|round| {
        let at = round * 6;
        let past = [Mode::WriteThrough, Mode::WriteAround][round % 2];
        [Write(at, 12), Flush, Destage, Settle, Mode(past), Read(at, 12), Write(at + 2, 4), Write(at + 5, 1), Flush]
            .into_iter()
            .chain([Write(at + 4, 6), Wait(70), Wait(70), WriteDurable(at + 8, 2), Mode(Mode::WriteThrough)])
            .chain([Write(at + 1, 3), Trim(at + 1, 2), Write(at + 3, 1), Flush, Mode(Mode::WriteBack)])
    });
    // A client whom the filter denies the flash writes over dirty and clean copies, whole and in part, and reads them.
    let filtered = (0..4).flat_map(|round| {
        let at = round * 6;
        let others = [Write(at, 12), Flush, Write(at + 8, 6), Destage, Settle, Write(at + 2, 3), Read(at, 14)];
        let denied = [Client(Caching::Never), Write(at + 1, 3), WritePart(at + 6, 2, 3), Read(at, 8), Write(at + 9, 2)];
        let more = [Flush, Wait(70), Wait(70), WriteDurable(at + 11, 2), Zero(at + 3, 2), Client(Caching::Always)];
        others.into_iter().chain(denied).chain(more).chain([Write(at, 30), Read(at + 4, 9), Client(Caching::Usual)])
    });
    let detach = [Write(0, 30), Flush, Write(10, 30), WritePart(50, 1, 4), Destage, Write(5, 10), Destage, Settle];
    vec![
        ("overwrites and flushes", Mode::WriteBack, overwrites.collect()),
        ("durable writes", Mode::WriteBack, durable.collect()),
        ("the log is filled several times", Mode::WriteBack, fill.collect()),
        ("destaging", Mode::WriteBack, destage.collect()),
        ("trims and zeroes", Mode::WriteBack, zeroes.collect()),
        ("modes and policies change", Mode::WriteBack, modes.collect()),
        ("admission rules come and go", Mode::WriteBack, refusals.collect()),
        ("sequential streams", Mode::WriteBack, sequential.collect()),
        ("overwrites past the flash", Mode::WriteThrough, past.collect()),
        ("clients that are filtered", Mode::WriteBack, filtered.collect()),
        ("detaching", Mode::WriteBack, detach.into_iter().collect()),
    ]
}

/// Returns small worlds that differ only in the grouping of writes.
pub fn setups(mode: Mode) -> Vec<Setup> {
    let setup = Setup {
        mode,
        sequential_blocks: 24,
        policy: "lru",
        admission: "none",
        regions: Regions { blocks: 8, sure_after_us: 100_000, unsure_max: 2 },
        zoned: false,
        ..Setup::random(&mut Random(1))
    };
    let small = Geometry { units: 11, unit_pages: 16 };
    vec![
        Setup {
            geometry: small,
            segment_blocks: 3,
            write_buffer_blocks: 16,
            read_buffer_blocks: 8,
            depth: 4,
            zoned: true,
            ..setup.clone()
        },
        Setup {
            geometry: small,
            segment_blocks: 252,
            write_buffer_blocks: 0,
            read_buffer_blocks: 0,
            depth: 1,
            ..setup.clone()
        },
        Setup {
            geometry: Geometry { units: 11, unit_pages: 24 },
            segment_blocks: 2,
            write_buffer_blocks: 40,
            read_buffer_blocks: 0,
            depth: 8,
            ..setup
        },
    ]
}

impl World {
    fn act(&mut self, action: Action, at_transfer: AtTransfer) -> Outcome<()> {
        let bytes = |blocks: usize| blocks * BLOCK_BYTES;
        match action {
            Write(block, count) => self.submit(Operation::Write, bytes(block), bytes(count), false),
            WriteDurable(block, count) => self.submit(Operation::Write, bytes(block), bytes(count), true),
            WritePart(block, sector, count) => {
                let at = bytes(block) + sector * SECTOR_BYTES;
                self.submit(Operation::Write, at, count * SECTOR_BYTES, false);
            }
            Read(block, count) => self.submit(Operation::Read, bytes(block), bytes(count), false),
            Flush => self.submit(Operation::Flush, 0, 0, false),
            Trim(block, count) => self.submit(Operation::Trim, bytes(block), bytes(count), false),
            Zero(block, count) => {
                let zeroes = Operation::WriteZeroes { may_punch_holes: false, only_if_fast: false };
                self.submit(zeroes, bytes(block), bytes(count), false);
            }
            Mode(mode) => self.set_mode(mode),
            Client(caching) => self.caching = caching,
            Policy(policy) => self.engine.cache_mut().set_policy(Spec::parse(policy).unwrap(), None),
            Admission(rule) => {
                let admission = self.setup.admission(rule);
                let cache = self.engine.cache_mut();
                cache.set_policy(cache.config().policy.clone(), admission);
            }
            Wait(milliseconds) => {
                self.now_us += milliseconds * 1000;
                self.engine.tick(self.now_us);
                self.collect();
                if milliseconds >= 300 {
                    self.note_durable();
                }
            }
            Destage => {
                self.engine.destage_all(self.now_us);
                self.collect();
            }
            Settle => self.settle_with(at_transfer)?,
        }
        Ok(())
    }

    /// Performs a script, with at most the setup's number of concurrent requests.
    pub fn perform_script(&mut self, script: &[Action], at_transfer: AtTransfer) -> Outcome<()> {
        for &action in script {
            self.act(action, at_transfer)?;
            self.settle_down_to(self.setup.depth - 1, at_transfer)?;
        }
        Ok(())
    }
}

/// After a power failure, recovery itself is interrupted three times, at each of its own operations.
fn interrupt_recovery(world: &World, random: &mut Random) -> Outcome<()> {
    let (mut devices, model) = world.devices_after_crash(false, random);
    for _ in 0..3 {
        devices.disks[FLASH].set_lives(1 + random.below(60));
        // It fails with the disk, or was done.
        let _ = devices.attach(&world.setup, false);
        devices.disks[FLASH].set_lives(u64::MAX);
        devices = devices.fork();
        let loss = random.pick(&[Loss::Everything, Loss::Sectors]);
        devices.disks[FLASH].crash(loss, random);
    }
    let mut recovered = World::open(world.setup.clone(), devices, model, Random(random.next()), u64::from(u32::MAX))?;
    recovered.verify_recovered()?;
    recovered.verify_detached()
}

fn run_script(setup: Setup, script: &[Action], points: &mut u64) -> Outcome<()> {
    let mut world = World::new(setup, 7);
    let mut random = Random(11);
    let mut at_transfer = |world: &World| -> Outcome<()> {
        *points += world.lose_flash(&mut random)?;
        for _ in 0..3 {
            *points += 1;
            world.crashed(&mut random)?.verify_recovered()?;
        }
        let mut recovered = world.crashed(&mut random)?;
        recovered.verify_recovered()?;
        recovered.perform_script(&script[..3], &mut no_crash)?;
        *points += 2;
        recovered.crashed(&mut random)?.verify_recovered()?;
        if random.chance(8) { interrupt_recovery(world, &mut random) } else { Ok(()) }
    };
    world.perform_script(script, &mut at_transfer)?;
    world.settle_with(&mut at_transfer)?;
    world.verify_detached()
}

#[test]
fn in_order_the_loss_of_the_flash_at_every_operation_of_scripted_workloads_leaves_a_state_of_the_volume() {
    let mut points = 0;
    for (name, mode, script) in scripts() {
        for (setup, journal_pages) in
            setups(mode).into_iter().flat_map(|setup| [0, 24].map(|pages| (setup.clone(), pages)))
        {
            let setup = Setup { order: WriteBackOrder::Barriers, journal_pages, ..setup };
            let described = format!("{name}, {setup:?}");
            run_script(setup, &script, &mut points).unwrap_or_else(|error| panic!("{described}: {error}"));
        }
    }
    println!("{points} losses");
}

#[test]
fn a_power_failure_at_every_operation_of_scripted_workloads_loses_nothing_that_was_flushed() {
    let mut points = 0;
    for (name, mode, script) in scripts() {
        for setup in setups(mode) {
            let described = format!("{name}, {setup:?}");
            run_script(setup, &script, &mut points).unwrap_or_else(|error| panic!("{described}: {error}"));
        }
    }
    println!("{points} power failures");
    assert!(points > 5_000, "the scripts do something: {points} power failures");
}
