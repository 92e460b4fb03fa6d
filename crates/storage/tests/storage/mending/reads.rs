//! Devices that cannot be read for a while: who asks then may hear of it, and afterwards all is as it was.

use flashwise_core::cache::Cache;
use flashwise_core::format::BLOCK_BYTES;
use flashwise_engine::engine::{BACKEND, FLASH};
use flashwise_storage::disk::{Disk, Operation as DiskOperation};
use flashwise_storage::export::{Error, Operation};
use flashwise_testing::setting;

use crate::mending::world::{ANYWHERE, BLOCKS, Failing, World, bytes_of};
use crate::mending::{Random, block};

const BYTES: u64 = BLOCK_BYTES as u64;
const FLASH_READS: Failing = (FLASH, DiskOperation::Read, ANYWHERE);
const BACKEND_READS: Failing = (BACKEND, DiskOperation::Read, ANYWHERE);

/// Creates a world whose backend has different content in each block.
fn world() -> World {
    let world = World::new();
    (0..BLOCKS).for_each(|at| world.disks[BACKEND].write_at(&block(100 + at as u8), at as u64 * BYTES).unwrap());
    world
}

fn is_as_before(world: &mut World, blocks: impl IntoIterator<Item = usize>) {
    for at in blocks {
        assert_eq!(world.ask(Operation::Read, at, &[]), Ok(block(100 + at as u8)), "block {at}");
    }
}

/// Neighbours of written blocks stay on the backend if they cannot be copied while it is unreadable.
#[test]
fn a_backend_that_cannot_be_read_for_a_while_loses_nothing() {
    let mut world = world();
    world.ask(Operation::Write, 0, &block(1)).unwrap();
    world.ask(Operation::Flush, 0, &[]).unwrap();
    world.failing = vec![BACKEND_READS];
    // The copy that this read leaves has no content for the others.
    assert_eq!(world.ask(Operation::Read, 0, &[]), Ok(block(1)));
    assert_eq!(world.ask(Operation::Read, 5, &[]), Err(Error::Io));
    world.failing.clear();
    is_as_before(&mut world, 1..20);
    assert_eq!(world.engine.lost_blocks(), [0; 0]);
    world.ask(Operation::Flush, 0, &[]).unwrap();
    let mut world = world.reopened(2);
    assert_eq!((world.ask(Operation::Read, 0, &[]), world.engine.lost_blocks()), (Ok(block(1)), vec![]));
    is_as_before(&mut world, 1..20);
    // It leaves for others, and takes nothing of the backend with it.
    world.failing = vec![BACKEND_READS];
    world.engine.destage_all(0);
    world.settle();
    assert_eq!((world.engine.cache().blocks_to_write_back(), world.engine.recovery().stopped()), (0, None));
    let backend = world.disks[BACKEND].contents();
    assert_eq!((backend[0], backend[BLOCK_BYTES]), (1, 101));
}

/// While the backend is unreadable, only reads of clients are tried. Planning copies would wear the flash and displace
/// cached blocks.
#[test]
fn a_backend_that_cannot_be_read_fills_no_bucket() {
    let mut world = world();
    is_as_before(&mut world, [0]);
    world.failing = vec![BACKEND_READS];
    assert_eq!(world.ask(Operation::Read, 15, &[]), Err(Error::Io));
    let (before, figures) = (world.transfers, world.engine.cache().figures());
    let asked = (30..BLOCKS).map(|at| assert_eq!(world.ask(Operation::Read, at, &[]), Err(Error::Io))).count() as u64;
    // Once, and once more as it failed.
    assert_eq!(world.transfers, [before[FLASH], before[BACKEND] + 2 * asked]);
    let now = world.engine.cache().figures();
    assert_eq!((now.flash_written_blocks(), now.resets), (figures.flash_written_blocks(), figures.resets));
    is_as_before(&mut world, 0..15);
    // Copies are made again once it can be read.
    world.failing.clear();
    is_as_before(&mut world, 15..BLOCKS);
    let before = world.transfers;
    is_as_before(&mut world, 30..BLOCKS);
    assert_eq!(world.transfers[BACKEND], before[BACKEND]);
}

/// A partial write of an unreadable block fails, and changes nothing.
#[test]
fn a_part_of_a_block_that_cannot_be_read_is_not_changed() {
    let mut world = world();
    world.ask(Operation::Write, 40, &block(1)).unwrap();
    let zeroes = Operation::WriteZeroes { may_punch_holes: true, only_if_fast: false };
    world.failing = vec![BACKEND_READS];
    for at in [42, 7] {
        assert_eq!(world.ask_bytes(zeroes, at * BYTES + 512, 512, &[]), Err(Error::Io));
        assert_eq!(world.ask_bytes(Operation::Write, at * BYTES, 512, &[3; 512]), Err(Error::Io));
    }
    // Blocks that are changed whole are.
    assert_eq!(world.ask_bytes(zeroes, 20 * BYTES + 512, 2 * BYTES, &[]), Err(Error::Io));
    world.failing.clear();
    is_as_before(&mut world, [42, 7, 20, 22]);
    assert_eq!(world.ask(Operation::Read, 40, &[]), Ok(block(1)));
    let mut world = world.reopened(2);
    is_as_before(&mut world, [42, 7, 20, 22, 41, 43]);
    // Nor is one whose only copy is damaged.
    world.ask(Operation::Write, 50, &block(9)).unwrap();
    world.damage(world.page_of(&block(9)));
    assert_eq!(world.ask_bytes(zeroes, 50 * BYTES, 512, &[]), Err(Error::Io));
    assert_eq!(world.ask(Operation::Read, 50, &[]), Err(Error::Io));
    // Whole, it is anew.
    world.ask_bytes(zeroes, 50 * BYTES, BYTES, &[]).unwrap();
    assert_eq!((world.ask(Operation::Read, 50, &[]), world.engine.lost_blocks()), (Ok(block(0)), vec![]));
}

/// The flash is unreadable for some time, while buckets must be evicted. No unit of it has failed, and all of its data
/// stays.
#[test]
fn a_flash_that_cannot_be_read_for_a_while_loses_nothing() {
    let mut world = world();
    for at in 0..BLOCKS {
        world.ask(Operation::Write, at, &block(at as u8)).unwrap();
    }
    world.ask(Operation::Flush, 0, &[]).unwrap();
    world.failing = vec![FLASH_READS];
    let mut refused = 0;
    for at in (0..BLOCKS).rev() {
        refused += usize::from(world.ask(Operation::Write, at, &block(at as u8)).is_err());
        refused += usize::from(world.ask(Operation::Read, at, &[]).is_err());
    }
    assert!(refused > BLOCKS && world.engine.recovery().waits(), "{refused}");
    world.failing.clear();
    let check = |world: &mut World| {
        world.tick(1);
        (0..BLOCKS).for_each(|at| assert_eq!(world.ask(Operation::Read, at, &[]), Ok(block(at as u8)), "block {at}"));
        assert_eq!((world.engine.lost_blocks(), world.engine.failures().units()), (vec![], vec![]));
        assert!(!world.engine.recovery().waits() && !world.engine.cache().is_frozen());
        world.ask(Operation::Flush, 0, &[]).unwrap();
    };
    check(&mut world);
    check(&mut world.reopened(2));
}

/// A bucket is temporarily unreadable while the cache recovers, because another bucket cannot be written. Its blocks
/// are present afterwards.
#[test]
fn a_bucket_that_cannot_be_read_while_another_fails_loses_nothing() {
    let mut unread = 0;
    for bucket in 0..10 {
        let mut world = world();
        for at in 0..BLOCKS {
            world.ask(Operation::Write, at, &block(at as u8)).unwrap();
        }
        world.ask(Operation::Flush, 0, &[]).unwrap();
        let others = (0..10).filter(|other| *other != bucket);
        world.failing = vec![(FLASH, DiskOperation::Read, bytes_of(bucket))];
        world.failing.extend(others.clone().take(2).map(|other| (FLASH, DiskOperation::Write, bytes_of(other))));
        world.heals = true;
        for at in (0..BLOCKS).rev() {
            drop(world.ask(Operation::Write, at, &block(at as u8)));
        }
        unread += usize::from(world.engine.failures().units().contains(&(bucket as u32 + 1)));
        world.failing.clear();
        let check = |world: &mut World| {
            (1..3).for_each(|second| world.tick(second));
            for at in 0..BLOCKS {
                assert!(world.ask(Operation::Read, at, &[]) == Ok(block(at as u8)), "bucket {bucket}, block {at}");
            }
            assert_eq!(world.engine.lost_blocks(), [0; 0], "bucket {bucket}");
            world.ask(Operation::Flush, 0, &[]).unwrap();
        };
        check(&mut world);
        check(&mut world.reopened(2));
    }
    assert!(unread > 2, "{unread} buckets were found to be unreadable");
}

/// A flash that is gone and had nothing that the backend has not: it can be done without.
#[test]
fn a_missing_clean_flash_is_not_needed() {
    let mut world = world();
    is_as_before(&mut world, 0..BLOCKS);
    world.failing = vec![FLASH_READS, (FLASH, DiskOperation::Write, ANYWHERE), (FLASH, DiskOperation::Sync, ANYWHERE)];
    is_as_before(&mut world, 0..BLOCKS);
    let _ = world.ask(Operation::Write, 3, &block(1));
    assert!(world.engine.cache().is_frozen() && !world.engine.recovery().waits());
    is_as_before(&mut world, 4..BLOCKS);
}

/// Both devices fail reads temporarily, the flash completely or in one bucket. A block reads as its last write, or as a
/// write that failed since. Nothing is lost unless a bucket was unreadable for long. `FLASHWISE_SEEDS` sets the number
/// of worlds, and `FLASHWISE_SEED` the first.
#[test]
fn temporarily_unreadable_blocks_return() {
    let first = setting("FLASHWISE_SEED", 1);
    let (mut errors, mut waited, mut losses) = (0, 0, 0);
    for seed in first..first + setting("FLASHWISE_SEEDS", 60) {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let in_part = seed % 3 == 0;
        let mut world = World::new();
        // The legal contents of each block now, and at any time.
        let mut may_be: Vec<Vec<u8>> = vec![vec![0]; BLOCKS];
        let mut ever = may_be.clone();
        let mut second = 0;
        for number in 0..400_u64 {
            let fill = (1 + number % 250) as u8;
            let at = random.below(BLOCKS as u64) as usize;
            match random.below(40) {
                0 | 1 if in_part => {
                    let bucket = random.below(10);
                    world.failing.push((FLASH, DiskOperation::Read, bytes_of(bucket)));
                }
                0 | 1 => world.failing.push(FLASH_READS),
                2 => world.failing.push((BACKEND, DiskOperation::Read, at as u64 * BYTES..(at as u64 + 9) * BYTES)),
                3 => world.failing.push((BACKEND, DiskOperation::Write, at as u64 * BYTES..(at as u64 + 9) * BYTES)),
                4..10 => world.failing.clear(),
                10..12 => {
                    second += 1;
                    world.tick(second);
                }
                12..15 => drop(world.ask(Operation::Flush, 0, &[])),
                15 => {
                    world.engine.destage_all(0);
                    world.settle();
                }
                16..18 => {
                    // A part of a block: zeroes are all of it or nothing in this world.
                    let zeroes = Operation::WriteZeroes { may_punch_holes: false, only_if_fast: false };
                    let length = [512, BYTES, 3 * BYTES][random.below(3) as usize].min((BLOCKS - at) as u64 * BYTES);
                    let result = world.ask_bytes(zeroes, at as u64 * BYTES, length, &[]);
                    errors += u32::from(result.is_err());
                    if length == 512 {
                        // The rest of the block is what it was; then it is written anew, whole.
                        if let Ok(found) = world.ask(Operation::Read, at, &[]) {
                            let rest = found[512];
                            assert!(may_be[at].contains(&rest), "seed {seed}, {number}: block {at} is {rest}");
                            assert!(result.is_err() || found[0] == 0, "seed {seed}, {number}: block {at}");
                        }
                        world.failing.clear();
                        second += 1;
                        world.tick(second);
                        // Where blocks of too many buckets are lost, there is no room.
                        match world.ask(Operation::Write, at, &block(fill)) {
                            Ok(_) => may_be[at] = vec![fill],
                            Err(error) => {
                                assert!(in_part, "seed {seed}, {number}: {error}");
                                break;
                            }
                        }
                        ever[at].push(fill);
                        continue;
                    }
                    for at in at..at + (length / BYTES) as usize {
                        if result.is_ok() {
                            may_be[at].clear();
                        }
                        may_be[at].push(0);
                        ever[at].push(0);
                    }
                }
                18..28 => {
                    let found = match world.ask(Operation::Read, at, &[]) {
                        Ok(found) => found,
                        Err(error) => {
                            assert!(!world.failing.is_empty() || in_part, "seed {seed}, {number}: block {at}: {error}");
                            errors += 1;
                            continue;
                        }
                    };
                    assert!(found.iter().all(|byte| *byte == found[0]), "seed {seed}, {number}: block {at} is mixed");
                    assert!(may_be[at].contains(&found[0]), "seed {seed}, {number}: block {at} is {}", found[0]);
                    may_be[at] = vec![found[0]];
                }
                kind => {
                    let most = if kind == 28 { 16 } else { 3 };
                    let blocks = (1 + random.below(most) as usize).min(BLOCKS - at);
                    let written = world.ask(Operation::Write, at, &vec![fill; blocks * BLOCK_BYTES]);
                    errors += u32::from(written.is_err());
                    for at in at..at + blocks {
                        if written.is_ok() {
                            may_be[at].clear();
                        }
                        may_be[at].push(fill);
                        ever[at].push(fill);
                    }
                }
            }
            world.settle();
            waited += u32::from(world.engine.recovery().waits());
            if number % 50 == 49 {
                world.failing.clear();
                (0..6).for_each(|tick| world.tick(1000 * number + tick));
                let lost = world.engine.lost_blocks();
                assert!(lost.is_empty() || in_part, "seed {seed}, {number}: {lost:?} are lost");
                losses += lost.len();
                if number % 100 == 99 {
                    // One flush may report an earlier failure; the next one does not.
                    let flushed = (0..3).any(|_| world.ask(Operation::Flush, 0, &[]).is_ok());
                    assert!(flushed || in_part, "seed {seed}, {number}: no flush succeeds");
                    for block in world.engine.lost_blocks() {
                        may_be[block as usize].clone_from(&ever[block as usize]);
                    }
                    world = world.reopened(number);
                }
                for (at, may_be) in may_be.iter_mut().enumerate() {
                    match world.ask(Operation::Read, at, &[]) {
                        Ok(found) => {
                            assert!(may_be.contains(&found[0]), "seed {seed}, {number}: block {at} is {}", found[0]);
                            *may_be = vec![found[0]];
                        }
                        Err(error) => assert!(
                            in_part
                                && (world.engine.recovery().stopped().is_some()
                                    || world.engine.lost_blocks().contains(&(at as u64))),
                            "seed {seed}, {number}: block {at}: {error}"
                        ),
                    }
                }
                assert!(in_part || world.engine.failures().units().is_empty(), "seed {seed}, {number}");
            }
        }
    }
    println!(
        "{errors} errors reported, {waited} times the flash was waited for, {losses} blocks lost where a bucket could \
         not \
         be read"
    );
    assert!(errors > 500 && waited > 50, "{errors} errors, waited {waited} times");
}
