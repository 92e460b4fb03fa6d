//! Volumes and pools on devices that fail for a while, as their clients see them: each read is legal, every request is answered, and once
//! the devices work again all answered data is there, also after a restart.
//!
//! A seed decides the requests, the failures, and the time of each transfer. The real volume and pool run, with their threads, so that the
//! order of transfers differs a little from run to run.

mod disk;
mod world;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use flashwise_engine::engine::Bug;
use flashwise_testing::budget::Budget;
use flashwise_testing::setting;

use world::{KINDS, Kind, World};

/// Worlds that run at once: most of their time is that of devices.
const THREADS: usize = 24;

/// Runs worlds from `FLASHWISE_SEED` on while `goes_on` allows it, given how many have begun. Returns their number and the violations.
fn run(kinds: &[Kind], planted: Option<Bug>, goes_on: impl Fn(u64) -> bool + Sync) -> (u64, Vec<String>) {
    let (first, begun) = (setting("FLASHWISE_SEED", 1), AtomicU64::new(0));
    let violations = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let number = begun.fetch_add(1, Ordering::Relaxed);
                    // Of a planted bug, one violation is enough.
                    if !goes_on(number) || planted.is_some() && !violations.lock().unwrap().is_empty() {
                        return;
                    }
                    let (seed, kind) = (first + number, kinds[(first + number) as usize % kinds.len()]);
                    if let Err(violation) = World::new(kind, seed, planted).run() {
                        violations.lock().unwrap().push(format!("seed {seed}, {kind:?}: {violation}"));
                    }
                }
            });
        }
    });
    (begun.into_inner() - THREADS as u64, violations.into_inner().unwrap())
}

#[test]
fn devices_that_fail_for_a_while_lose_nothing_that_was_answered() {
    let budget = Budget::new("FLASHWISE_WORLDS", 60..600, 10.0);
    let (worlds, violations) = run(&KINDS, None, |begun| budget.goes_on(begun));
    println!("{worlds} worlds");
    assert!(violations.is_empty(), "{} violations:\n{}", violations.len(), violations.join("\n"));
}

#[test]
fn planted_bugs_are_found_on_failing_devices() {
    let bugs = [
        (Bug::ForgetsContent, &[Kind::Log, Kind::NoFlash][..]),
        (Bug::ShowsRefusedWrites, &[Kind::Log]),
        (Bug::ZeroesBesideData, &[Kind::Pool]),
        (Bug::DropsRefusedData, &[Kind::Log, Kind::Pool]),
    ];
    for (bug, kinds) in bugs {
        let (worlds, violations) = run(kinds, Some(bug), |begun| begun < 2_000);
        println!("{bug:?}: {worlds} worlds");
        assert!(!violations.is_empty(), "{bug:?} is not found in {worlds} worlds");
    }
}
