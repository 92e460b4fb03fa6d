//! The durability contract under power failures, at every operation of a device that keeps what it likes of unflushed writes.
//!
//! `FLASHWISE_CRASH_POINTS` sets how many power failures are tried, `FLASHWISE_SEED` where the seeds start.

mod fake_disk;
mod model;
mod random;
mod world;

use flashwise_server::engine::Unsafe;
use random::Random;
use world::{Setup, World};

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is '{text}', not a number")))
}

/// What one power failure leads to: recovery, every block read, and sometimes more work and another power failure.
fn after_crash(world: &World, random: &mut Random, points: &mut u64) -> Result<(), String> {
    *points += 1;
    let mut recovered = world.crashed(random)?;
    recovered.verify_recovered().map_err(|error| format!("first: {error}"))?;
    match random.below(8) {
        0 => {
            for _ in 0..40 {
                recovered.step(&mut |_| Ok(()))?;
            }
            *points += 1;
            let mut again = recovered.crashed(random)?;
            again.verify_recovered().map_err(|error| format!("second: {error}"))?;
            again.verify_detached().map_err(|error| format!("second: {error}"))
        }
        1 => recovered.verify_detached().map_err(|error| format!("first: {error}")),
        2 => {
            // The power fails again before anything was done.
            *points += 1;
            recovered.crashed(random)?.verify_recovered()
        }
        _ => Ok(()),
    }
}

/// Runs one world and fails its power at one in `odds` device operations.
fn run(setup: Setup, seed: u64, steps: u64, odds: u64, points: &mut u64) -> Result<(), String> {
    let described = format!("seed {seed}, {setup:?}");
    let mut world = World::new(setup, seed);
    let mut random = Random(!seed);
    let mut run = || {
        for _ in 0..steps {
            world.step(&mut |world| {
                if random.chance(odds) { after_crash(world, &mut random, points) } else { Ok(()) }
            })?;
        }
        world.settle()?;
        world.verify_detached()
    };
    run().map_err(|error| format!("{described}, after {} operations: {error}", world.operations))
}

#[test]
fn what_was_flushed_survives_power_failures_at_any_operation() {
    let (wanted, first_seed) = (setting("FLASHWISE_CRASH_POINTS", 20_000), setting("FLASHWISE_SEED", 1));
    println!("seeds from {first_seed}");
    let (mut points, mut seed) = (0, first_seed);
    while points < wanted {
        let setup = Setup::random(&mut Random(seed));
        if let Err(violation) = run(setup, seed, 600, 2, &mut points) {
            panic!("{violation}");
        }
        seed += 1;
    }
    println!("{points} power failures, seeds {first_seed} to {}", seed - 1);
}

/// The test of the test: each way to be unsafe is found.
#[test]
fn planted_bugs_are_found() {
    let bugs = [
        Unsafe::SkipFlashFlush,
        Unsafe::SkipBackendFlush,
        Unsafe::IgnoreOrder,
        Unsafe::SkipForget,
        Unsafe::SameEpoch,
        Unsafe::SkipDestage,
    ];
    for bug in bugs {
        let mut points = 0;
        let found = (1..400).find_map(|seed| {
            let setup = Setup { unsafe_mode: Some(bug), ..Setup::random(&mut Random(seed)) };
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(setup, seed, 600, 2, &mut points)))
                .unwrap_or_else(|_| Err("a panic".to_owned()))
                .err()
        });
        let found = found.unwrap_or_else(|| panic!("{bug:?} was not found in {points} power failures"));
        println!("{bug:?} was found at power failure {points}: {}", &found[..found.len().min(200)]);
    }
}
