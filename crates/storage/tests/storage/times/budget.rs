//! The budget of flash writes over days of virtual time, with and without a drive that counts what hosts write to it.

use std::sync::Arc;
use std::time::Duration;

use flashwise_core::format::BLOCK_BYTES;
use flashwise_storage::export::Operation;
use flashwise_storage::status::WriteBudgetStatus;
use flashwise_storage::time;
use flashwise_testing::virtual_time::{self, pass};

use super::device::Speed;
use super::scenarios::writers;
use super::{Scenario, World, ask};

const HOUR: Duration = Duration::from_secs(3600);
const BLOCK: u64 = BLOCK_BYTES as u64;

/// A volume without clients, with a budget of two writes of its capacity per day.
fn scenario(policy: &'static str, admission: &'static str) -> Scenario {
    let mut scenario = writers(policy, "0");
    (scenario.flash, scenario.backend) = (Speed::FLASH, Speed::ssd(100));
    scenario.settings.extend([("admission", admission), ("sequential-bypass", "0")]);
    (scenario.cached_mib, scenario.clients) = (0, Vec::new());
    scenario
}

/// Does `work` with the open volume.
fn with_volume(admission: &'static str, work: impl FnOnce(&Arc<World>) + Send + 'static) {
    let run = move || {
        let world = scenario("lru", admission).open();
        work(&world);
        world.volume.close().unwrap();
    };
    let ((), left) = virtual_time::run(1, run);
    assert!(left.is_empty(), "these threads do not end: {left:?}");
}

/// Writes blocks one after the other, one in each `pause`.
fn write(world: &World, first: u64, count: u64, pause: Duration) {
    for block in first..first + count {
        let block = block % (256 << 20 >> 12);
        ask(&*world.volume, Operation::Write, &(block..block + 1), 3);
        pass(pause);
    }
}

fn budget(world: &World) -> WriteBudgetStatus {
    world.volume.status().write_budget.expect("the rule has a budget")
}

/// Writes of others to the drive use up the budget. Without the drive's counter the cache writes all of the budget
/// beside them.
#[test]
fn the_drives_counter_includes_writes_of_others() {
    for (others_share, admission) in [
        (0.0, "write-budget:writes-per-day=2"),
        (0.5, "write-budget:writes-per-day=2"),
        (0.5, "baleen:writes-per-day=2"),
    ] {
        with_volume(admission, move |world| {
            world.flash.count_writes(7 << 30);
            pass(Duration::from_secs(61));
            let (began, of_day) = (time::now(), budget(world).bytes_per_day);
            for round in 0..12 * 60 {
                write(world, 45 * round, 45, Duration::from_millis(1333));
                world.flash.count_writes((of_day * others_share / 24.0 / 60.0) as u64);
            }
            pass(Duration::from_secs(60));
            let days = time::elapsed(began).as_secs_f64() / 86_400.0;
            let status = budget(world);
            let own = world.volume.status().flash_bytes_written as f64;
            let used = (own + of_day * others_share * 0.5) / (of_day * days);
            println!("{admission}, others {others_share}: {used} of the budget, {status:?}");
            assert!((0.9..=1.05).contains(&used), "{admission}: {used} of the budget, with {others_share} of others");
            assert_eq!((status.source.as_str(), status.drive_bytes.unwrap() >> 30), ("drive", 7));
            assert!((status.life_used / used - 1.0).abs() < 0.03 && status.life_used < 1.01, "{status:?}");
            assert_eq!(status.today_bytes, status.life_bytes);
        });
    }
}

/// Two days are idle, and the budget of one is saved. The third day writes no more than its own budget. Half of the
/// saved day is left, and the next day may be written in full again.
#[test]
fn no_day_has_more_than_its_budget() {
    with_volume("baleen:writes-per-day=0.2", |world| {
        write(world, 0, 1, Duration::ZERO);
        pass(48 * HOUR + Duration::from_secs(10));
        write(world, 0, 10_000, Duration::from_secs(4));
        let status = budget(world);
        println!("{status:?}");
        assert_eq!(status.source, "flashwise");
        assert!((0.95..=1.03).contains(&status.today_used), "{status:?}");
        pass(24 * HOUR - Duration::from_secs(40_000));
        assert_eq!(budget(world).today_bytes, 0);
        write(world, 10_000, 2000, Duration::from_secs(4));
        assert!(budget(world).today_used > 0.5, "{:?}", budget(world));
    });
}

/// Once the budget is used up, a write of a clean cached block goes to the backend, and the block leaves the flash.
#[test]
fn without_budget_a_write_of_a_cached_block_goes_past_the_flash() {
    with_volume("write-budget:writes-per-day=0.001", |world| {
        write(world, 2000, 1, Duration::ZERO);
        pass(10 * HOUR);
        let of_flash = || {
            let status = world.volume.status();
            (status.cache.flash_client_blocks + status.cache.flash_admission_blocks, status.cached_blocks)
        };
        write(world, 0, 200, Duration::ZERO);
        world.volume.flush().unwrap();
        let (written, cached) = of_flash();
        assert!((2..20).contains(&cached), "{cached} blocks are cached");
        // The cleaner writes them back, and little is added to the budget.
        pass(Duration::from_secs(1000));
        assert_eq!(world.volume.status().dirty_blocks, 0);
        for block in 0..200 {
            ask(&*world.volume, Operation::Write, &(block..block + 1), 4);
        }
        world.volume.flush().unwrap();
        assert_eq!(of_flash(), (written, 0), "no block is written to flash, and it has none of them");
        assert!((0..200).all(|block| world.backend.byte_at(block * BLOCK) == 4));
    });
}

/// A write of a dirty block goes to the flash even without budget, since no crash may bring the old copy back. So
/// nothing stays dirty for long while the budget is overdrawn. With the 15 minutes of `dirty-age`, 2.6 times the budget
/// was written.
#[test]
fn blocks_that_are_written_again_and_again_stay_within_the_budget() {
    for admission in ["write-budget:writes-per-day=2", "baleen:writes-per-day=2", "adaptive:writes-per-day=2"] {
        with_volume(admission, move |world| {
            write(world, 0, 1, Duration::from_secs(61));
            pass(12 * HOUR);
            for round in 0..20 * 60 * 50 {
                write(world, round * 7 % 1000, 1, Duration::from_millis(20));
            }
            let status = budget(world);
            println!("{admission}: {status:?}");
            assert!((0.8..=1.02).contains(&status.life_used), "{admission}: {status:?}");
        });
    }
}
