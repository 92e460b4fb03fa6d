//! Failures of the devices: what can still be read is right, what was lost is listed, nothing hangs, and all is well
//! afterwards.

use flashwise_core::cache::{Mode, WriteBackOrder};
use flashwise_engine::engine::{BACKEND, FLASH};
use flashwise_testing::budget::Budget;
use flashwise_testing::fake_disk::CORRUPTIONS;
use flashwise_testing::random::Random;
use flashwise_testing::setting;

use crate::crash::planted::Planted;
use crate::crash::scripts::{Action, scripts, setups};
use crate::crash::world::{CLASSES, Class, Effect, Fault, Outcome, Setup, World, no_crash, random_corruption};

fn fault(disk: usize, class: Class, transfers: std::ops::Range<u64>, odds: u64, effect: Effect) -> Fault {
    Fault { disk, class, transfers, odds, effect }
}

/// Checks the world once the devices work again, and after the next start.
fn verify(world: &mut World, random: &mut Random) -> Outcome<()> {
    world.verify_after_faults()?;
    world.verify_detached()?;
    let mut again = world.crashed(random)?;
    again.verify_recovered().map_err(|error| format!("after a restart: {error}"))?;
    again.verify_after_faults().map_err(|error| format!("after a restart: {error}"))?;
    again.verify_detached().map_err(|error| format!("after a restart: {error}"))
}

fn run_script(setup: &Setup, script: &[Action], faults: Vec<Fault>) -> Outcome<[[u64; 3]; 3]> {
    let described = format!("{faults:?}");
    let mut world = World::new(Setup { faults, ..setup.clone() }, 7);
    let mut run = || -> Outcome<[[u64; 3]; 3]> {
        let mut random = Random(9);
        world.perform_script(script, &mut |world| world.lose_flash(&mut random).map(drop))?;
        world.settle()?;
        let seen = world.seen;
        verify(&mut world, &mut Random(3))?;
        Ok(seen)
    };
    run().map_err(|error| format!("{described}: {error}"))
}

/// Every n-th transfer of each kind on each device, for some effects.
fn for_every_transfer(effects: impl Fn(usize, Class, u64) -> Vec<Vec<Fault>>) {
    let mut runs = 0;
    for (at, (name, mode, script)) in scripts().into_iter().enumerate() {
        let setups = setups(mode);
        // Each order with each grouping.
        let order = [WriteBackOrder::Barriers, WriteBackOrder::None][at % 2];
        let setup = &Setup { order, ..setups[at % setups.len()].clone() };
        // A fault that never comes makes errors no violation, so that the counts are those of the runs below.
        let never = fault(FLASH, Class::Read, u64::MAX - 1..u64::MAX, 1, Effect::Fail);
        let seen = run_script(setup, &script, vec![never]).unwrap_or_else(|error| panic!("{name}, {setup:?}: {error}"));
        for (disk, class) in [FLASH, BACKEND].into_iter().flat_map(|disk| CLASSES.map(|class| (disk, class))) {
            for number in 0..seen[disk][class as usize] {
                for faults in effects(disk, class, number) {
                    runs += 1;
                    run_script(setup, &script, faults).unwrap_or_else(|error| panic!("{name}, {setup:?}: {error}"));
                }
            }
        }
    }
    println!("{runs} runs");
    assert!(runs > 500, "the scripts do something: {runs} runs");
}

#[test]
fn every_transfer_of_scripted_workloads_may_fail_once() {
    for_every_transfer(|disk, class, number| vec![vec![fault(disk, class, number..number + 1, 1, Effect::Fail)]]);
}

#[test]
fn a_device_may_fail_for_good_at_every_transfer_of_scripted_workloads() {
    for_every_transfer(|disk, class, number| {
        // A device that refuses one kind of transfer: it is read-only, full, or cannot be flushed.
        let one = vec![fault(disk, class, number..u64::MAX, 1, Effect::Fail)];
        // A device that is gone, from its n-th write on.
        let gone =
            CLASSES.map(|other| fault(disk, other, if other == class { number } else { 0 }..u64::MAX, 1, Effect::Fail));
        if class == Class::Write { vec![one, gone.into()] } else { vec![one] }
    });
}

#[test]
fn every_read_of_the_flash_in_scripted_workloads_may_return_something_else() {
    for_every_transfer(|disk, class, number| {
        if (disk, class) != (FLASH, Class::Read) {
            return Vec::new();
        }
        let corrupt = |how, lasting| Effect::Corrupt { how, lasting };
        let effects = CORRUPTIONS.into_iter().flat_map(|how| [corrupt(how, false), corrupt(how, true)]);
        effects.map(|effect| vec![fault(disk, class, number..number + 1, 1, effect)]).collect()
    });
}

#[test]
fn every_transfer_of_scripted_workloads_may_stall() {
    for_every_transfer(|disk, class, number| vec![vec![fault(disk, class, number..number + 1, 1, Effect::Stall)]]);
}

/// The order of write-back in a world: every third has epochs, and every other one of those a journal.
fn order(seed: u64) -> WriteBackOrder {
    if seed % 6 == 3 { WriteBackOrder::Journal } else { crate::crash::order(seed) }
}

/// Pages of the journal of an order.
fn journal_pages(order: WriteBackOrder) -> usize {
    if order == WriteBackOrder::Journal { 40 } else { 0 }
}

/// The number of disks that an order uses.
fn disks(order: WriteBackOrder) -> u64 {
    if order == WriteBackOrder::Journal { 3 } else { 2 }
}

fn random_faults(random: &mut Random, disks: u64) -> Vec<Fault> {
    (0..1 + random.below(3))
        .map(|_| {
            let (disk, class) = (random.below(disks) as usize, random.pick(&CLASSES));
            let from = random.below(200);
            let until = random.pick(&[from + 1, from + 20, u64::MAX]);
            let corrupts = (disk, class) == (FLASH, Class::Read) && random.chance(2);
            let effect = match random.below(6) {
                _ if corrupts => random_corruption(random),
                0 => Effect::Stall,
                _ => Effect::Fail,
            };
            fault(disk, class, from..until, random.pick(&[1, 3, 20]), effect)
        })
        .collect()
}

/// Runs a world with random faults and power failures.
fn run_random(seed: u64, order: WriteBackOrder, planted: Option<Planted>) -> Outcome<()> {
    let random = &mut Random(seed.wrapping_mul(77));
    let (faults, retries, gives_up) = (random_faults(random, disks(order)), random.below(2) as u8, random.chance(2));
    let journal_pages = journal_pages(order);
    let setup = Setup { faults, retries, gives_up, order, journal_pages, planted, ..Setup::random(random) };
    let described = format!("seed {seed}, {setup:?}");
    let mut world = World::new(setup, seed);
    let mut run = || -> Outcome<()> {
        for _ in 0..500 {
            world.step(&mut |world| {
                world.lose_flash(random)?;
                if !random.chance(25) {
                    return Ok(());
                }
                let mut recovered = world.crashed(random)?;
                recovered.setup.faults.clear();
                recovered.lose_flash(random)?;
                recovered.verify_recovered()?;
                recovered.verify_after_faults()?;
                recovered.verify_detached()
            })?;
        }
        verify(&mut world, random)
    };
    run().map_err(|error| format!("{described}, after {} operations: {error}", world.operations))
}

#[test]
fn random_faults_with_power_failures_lose_only_listed_blocks() {
    let (first, budget) = (setting("FLASHWISE_SEED", 1), Budget::new("FLASHWISE_FAULT_SEEDS", 60..300, 3.0));
    let mut worlds = 0;
    // Regressions. 1: A block that the backend had rejected was written again, to a full write buffer, and read as its
    // old content. 2: It was rejected again, and no flush reported that. 3: A reader kept a frame in RAM whose content
    // never came. 4: A region became sure although the backend's flush had failed. 5: Clean copies that became dirty,
    // because a flush had failed, were in an epoch that was done. 6: The journal named the end of a group that the
    // failed flash did not have.
    let regressions = [3212, 901_504, 3_001_393].map(|seed| (seed, WriteBackOrder::None));
    let regressions = regressions.into_iter().chain([48, 132].map(|seed| (seed, WriteBackOrder::Barriers)));
    let regressions = regressions.chain([(45, WriteBackOrder::Journal)]);
    let seeds = (first..).take_while(|seed| budget.goes_on(seed - first)).map(|seed| (seed, order(seed)));
    for (seed, order) in seeds.chain(regressions) {
        worlds += 1;
        run_random(seed, order, None).unwrap_or_else(|error| panic!("{error}"));
    }
    println!("{worlds} worlds");
}

/// The test of the test, with write-back in order.
#[test]
fn bugs_of_an_order_are_found_on_devices_that_fail() {
    // The search begins near the seed that found the bug when this was written.
    for (bug, first) in [(Planted::SkipBroken, 70), (Planted::EpochEarly, 1)] {
        let run = |seed| Some((seed, run_random(seed, WriteBackOrder::Barriers, Some(bug)).err()?));
        let (seed, found) = (first..3_000).find_map(run).unwrap_or_else(|| panic!("{bug:?} was not found"));
        println!("{bug:?}: seed {seed}, {:.200}", found.rsplit_once("after ").map_or("", |(_, found)| found));
        assert!(found.contains("the bare backend was never a state of the volume"), "{found}");
        run_random(seed, WriteBackOrder::Barriers, None).unwrap_or_else(|error| panic!("without the bug: {error}"));
    }
}

/// A device that refuses writes and flushes for a while, or lets them wait.
fn refusals(random: &mut Random, disks: u64) -> Vec<Fault> {
    (0..1 + random.below(4))
        .map(|_| {
            let (disk, class) = (random.below(disks) as usize, random.pick(&[Class::Write, Class::Write, Class::Sync]));
            let from = random.below(200);
            let until = from + random.pick(&[1, 5, 20, 80]);
            let effect = if random.chance(8) { Effect::Stall } else { Effect::Fail };
            fault(disk, class, from..until, random.pick(&[1, 1, 3]), effect)
        })
        .collect()
}

/// A device that refuses a write has lost nothing: the content is in memory, or on the other device.
#[test]
fn devices_that_refuse_writes_for_a_while_lose_no_answered_write() {
    let (first, budget) = (setting("FLASHWISE_SEED", 1), Budget::new("FLASHWISE_FAULT_SEEDS", 100..2000, 3.0));
    let mut worlds = 0;
    for seed in (first..).take_while(|seed| budget.goes_on(seed - first)) {
        worlds += 1;
        let random = &mut Random(seed.wrapping_mul(77));
        let order = order(seed);
        let (faults, retries) = (refusals(random, disks(order)), random.below(2) as u8);
        let journal_pages = journal_pages(order);
        let setup = Setup { faults, retries, order, journal_pages, ..Setup::random(random) };
        let described = format!("seed {seed}, {setup:?}");
        let mut world = World::new(setup, seed);
        let mut run = || -> Outcome<()> {
            for _ in 0..400 {
                world.step(&mut |world| world.lose_flash(random).map(drop))?;
                let lost = world.engine.lost_blocks();
                if !lost.is_empty() {
                    return Err(format!("blocks {lost:?} are lost"));
                }
            }
            world.setup.faults.clear();
            world.idle()?;
            world.verify_readable()
        };
        run().unwrap_or_else(|error| panic!("{described}, after {} operations: {error}", world.operations));
    }
    println!("{worlds} worlds");
}

/// The blocks that are lost after a script, one of whose reads of the flash failed `tries` times in a row.
fn lost_after(setup: &Setup, script: &[Action], number: u64, tries: u64) -> Outcome<usize> {
    // Nothing can be written back, so that dirty blocks have to be moved.
    let faults = vec![
        fault(FLASH, Class::Read, number..number + tries, 1, Effect::Fail),
        fault(BACKEND, Class::Write, 0..u64::MAX, 1, Effect::Fail),
    ];
    let mut world = World::new(Setup { faults, retries: (tries - 1) as u8, ..setup.clone() }, 7);
    world.perform_script(script, &mut no_crash)?;
    world.settle()?;
    // Blocks are listed as long as clients cannot read them.
    world.setup.faults.clear();
    world.idle()?;
    world.verify_readable()?;
    Ok(world.lost().len())
}

/// An unreadable copy is retried for some time before it counts as lost. An engine without patience, which reads only
/// once, loses blocks.
#[test]
fn a_dirty_block_that_cannot_be_read_for_a_while_is_not_lost() {
    // A quarter of the log is dirty, and overwriting a few blocks goes round it again and again.
    let fill = [Action::Write(0, 30), Action::Flush];
    let overwrite = (0..60).flat_map(|_| [Action::Write(30, 5), Action::Flush]);
    let script: Vec<Action> = fill.into_iter().chain(overwrite).collect();
    let (mut lost, mut runs) = (0, 0);
    for setup in setups(Mode::WriteBack) {
        let setup = Setup { depth: 1, sequential_blocks: 0, write_buffer_blocks: 0, ..setup };
        let run = |number, tries| {
            lost_after(&setup, &script, number, tries)
                .unwrap_or_else(|error| panic!("{setup:?}, read {number}, {tries} tries: {error}"))
        };
        assert_eq!(run(u64::MAX - 9, 2), 0, "a backend that cannot be written loses nothing by itself");
        for number in 0..60 {
            lost += run(number, 1);
            runs += 1;
            assert_eq!(run(number, 2), 0, "{setup:?}: read {number}");
        }
    }
    println!("{lost} blocks lost without patience in {runs} runs, none with it");
    assert!(lost > 5);
}

/// A partial write waits while the only copy of its block is unreadable, like a copy to be moved. Otherwise the log
/// might reset the copy's unit. An engine without patience answers with an error.
#[test]
fn a_write_of_a_part_waits_for_a_dirty_block_that_cannot_be_read_for_a_while() {
    for setup in setups(Mode::WriteBack) {
        let answered = |tries: u64| {
            let faults = vec![fault(FLASH, Class::Read, 0..tries, 1, Effect::Fail)];
            let setup = Setup { depth: 1, write_buffer_blocks: 0, read_buffer_blocks: 0, ..setup.clone() };
            let mut world = World::new(Setup { faults, retries: (tries - 1) as u8, ..setup }, 7);
            world.perform_script(&[Action::Write(0, 1), Action::Flush, Action::WritePart(0, 3, 1)], &mut no_crash)?;
            world.settle()?;
            let answered = world.clients.model.lock().unwrap().answered()[0];
            Ok::<_, String>(answered)
        };
        assert_eq!((answered(1), answered(2)), (Ok(1), Ok(2)), "{setup:?}");
    }
}
