//! Volumes and pools on devices with temporary failures, as their clients see them. Each read is legal and every
//! request is answered. Once the devices work again, all acknowledged data is present, also after a restart.
//!
//! A seed decides the requests, the failures, the time of each transfer, and the order of threads. The real volume and
//! pool run with their threads, in virtual time, so a seed always gives the same run.

mod disk;
mod history;
mod side;
mod world;

use std::sync::Mutex;

use flashwise_engine::engine::Bug;

use flashwise_testing::budget::{Budget, on_all_cores};
use flashwise_testing::setting;
use flashwise_testing::virtual_time;

pub use side::SharedSide;
use world::World;

/// The contents of the devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Log,
    Buckets,
    InPlace,
    NoFlash,
    Pool,
    PoolWithoutFlash,
}

pub const KINDS: [Kind; 6] =
    [Kind::Log, Kind::Pool, Kind::Buckets, Kind::NoFlash, Kind::PoolWithoutFlash, Kind::InPlace];

/// Runs worlds from seed `first` on while `goes_on` allows it, given how many have begun. Returns their number and the
/// violations.
fn run(kinds: &[Kind], first: u64, planted: Option<Bug>, goes_on: impl Fn(u64) -> bool + Sync) -> (u64, Vec<String>) {
    let violations = Mutex::new(Vec::new());
    // Of a planted bug, one violation is enough.
    let goes_on = |number| goes_on(number) && (planted.is_none() || violations.lock().unwrap().is_empty());
    let worlds = on_all_cores(goes_on, |number| {
        let (seed, kind) = (first + number, kinds[(first + number) as usize % kinds.len()]);
        if let Err(violation) = run_one(kind, seed, planted) {
            violations.lock().unwrap().push(format!("seed {seed}, {kind:?}: {violation}"));
        }
    });
    (worlds, violations.into_inner().unwrap())
}

/// Runs a world. Returns a digest of what happened; the error is the first violation.
fn run_one(kind: Kind, seed: u64, planted: Option<Bug>) -> Result<u64, String> {
    run_world(seed, move || World::new(kind, seed, planted))
}

fn run_world(seed: u64, world: impl FnOnce() -> World + 'static) -> Result<u64, String> {
    let world = move || virtual_time::run(seed, move || world().run());
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(world)).map(|(result, left)| {
        let digest = result?;
        if left.is_empty() { Ok(digest) } else { Err(format!("these threads do not end: {left:?}")) }
    });
    ended.unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        Err(format!("it panics: {}", said.unwrap_or_default()))
    })
}

#[test]
fn devices_that_fail_for_a_while_lose_nothing_that_was_answered() {
    let budget = Budget::new("FLASHWISE_WORLDS", 60..600, 5.0);
    let (worlds, violations) = run(&KINDS, setting("FLASHWISE_SEED", 1), None, |begun| budget.goes_on(begun));
    println!("{worlds} worlds");
    assert!(violations.is_empty(), "{} violations:\n{}", violations.len(), violations.join("\n"));
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for (seed, kind) in (1..).zip(KINDS) {
        let first = run_one(kind, seed, None);
        assert_eq!(first, run_one(kind, seed, None), "{kind:?}");
        assert_ne!(first, run_one(kind, seed + 5, None), "{kind:?}: the seed changes the run");
    }
}

#[test]
fn planted_bugs_are_found_on_failing_devices() {
    // The search begins at the seed that found the bug when this was written.
    let bugs = [
        (Bug::ForgetsContent, &[Kind::Log, Kind::NoFlash][..], 418),
        (Bug::ShowsRefusedWrites, &[Kind::Log], 661),
        (Bug::ZeroesBesideData, &[Kind::Pool], 4396),
        (Bug::DropsRefusedData, &[Kind::Log, Kind::Pool], 276),
        (Bug::DetachesTwice, &[Kind::Log, Kind::Pool], 1784),
        (Bug::ForgetsHeldRequests, &[Kind::Buckets], 21),
        (Bug::KeepsRefusedPlaces, &[Kind::Pool], 1),
    ];
    for (bug, kinds, first) in bugs {
        let (worlds, violations) = run(kinds, first, Some(bug), |begun| begun < 2_000);
        let found = violations.first().and_then(|violation| violation.lines().next()).unwrap_or_default();
        println!("{bug:?}: {worlds} worlds, {found}");
        assert!(!violations.is_empty(), "{bug:?} is not found in {worlds} worlds");
    }
}

/// Every 18th world is a volume with a log that writes back in order.
#[test]
fn a_block_that_is_written_back_an_epoch_early_is_found_on_failing_devices() {
    let found = (1..100).map(|number| 18 * number).find_map(|seed| {
        let world = move || {
            let mut world = World::new(Kind::Log, seed, None);
            world.writes_early = true;
            world
        };
        run_world(seed, world).err()
    });
    let found = found.expect("it is found");
    println!("{}", found.lines().next().unwrap_or_default());
    assert!(found.contains("the bare backend was never a state of the volume"), "{found}");
}
