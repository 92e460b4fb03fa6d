//! Volumes and pools on devices that fail for a while, as their clients see them: each read is legal, every request is answered, and once
//! the devices work again all answered data is there, also after a restart.
//!
//! A seed decides the requests, the failures, and the time of each transfer. The real volume and pool run, with their threads, so that the
//! order of transfers differs a little from run to run.

mod disk;
mod world;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use flashwise_testing::budget::Budget;
use flashwise_testing::setting;

use world::{KINDS, World};

/// Worlds that run at once: most of their time is that of devices.
const THREADS: usize = 12;

/// Runs worlds from `FLASHWISE_SEED` on: as many as `FLASHWISE_WORLDS` asks for, or as the time allows. Returns the violations.
fn run(seeds: impl Fn(u64) -> bool + Sync) -> (u64, Vec<String>) {
    let (next, done) = (AtomicU64::new(setting("FLASHWISE_SEED", 1)), AtomicU64::new(0));
    let budget = Budget::new("FLASHWISE_WORLDS", 60..600, 10.0);
    let violations = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while budget.goes_on(done.fetch_add(1, Ordering::Relaxed)) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if !seeds(seed) {
                        continue;
                    }
                    let kind = KINDS[seed as usize % KINDS.len()];
                    if let Err(violation) = World::new(kind, seed).run() {
                        violations.lock().unwrap().push(format!("seed {seed}, {kind:?}: {violation}"));
                    }
                }
            });
        }
    });
    (done.into_inner(), violations.into_inner().unwrap())
}

#[test]
fn devices_that_fail_for_a_while_lose_nothing_that_was_answered() {
    let (worlds, violations) = run(|_| true);
    println!("{worlds} worlds");
    assert!(violations.is_empty(), "{} violations:\n{}", violations.len(), violations.join("\n"));
}
