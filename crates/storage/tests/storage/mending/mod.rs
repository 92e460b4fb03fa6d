//! The engine of WLFC on devices that cannot be read or written any more, and how it goes on.

mod bytes;
mod flaky;
mod handed_back;
mod headers;
mod model;
mod reads;
mod world;

use std::collections::HashMap;

use flashwise_core::cache::Cache;
use flashwise_core::format::BLOCK_BYTES;
use flashwise_engine::engine::{BACKEND, FLASH};
use flashwise_storage::disk::{Disk, Operation as DiskOperation};
use flashwise_storage::export::{Error, Operation};
use flashwise_testing::setting;
use world::{ANYWHERE, BLOCKS, World, bytes_of};

fn block(fill: u8) -> Vec<u8> {
    vec![fill; BLOCK_BYTES]
}

#[test]
fn a_clean_copy_that_cannot_be_read_is_read_from_the_backend() {
    let mut world = World::new();
    world.ask(Operation::Write, 3, &block(5)).unwrap();
    world.engine.destage_all(0);
    world.settle();
    // The copy of the bucket.
    assert_eq!(world.ask(Operation::Read, 4, &[]), Ok(block(0)));
    world.damage(world.page_of(&block(5)));
    assert_eq!(world.ask(Operation::Read, 3, &[]), Ok(block(5)));
    assert_eq!(world.engine.faults().flash_read_errors, 1);
    assert_eq!(world.engine.lost_blocks(), [0; 0]);
}

/// It is an error of those who ask for it, is listed, and is over when it is written anew.
#[test]
fn an_unreadable_log_fails_only_its_blocks_until_they_are_rewritten() {
    let mut world = World::new();
    world.ask(Operation::Write, 3, &block(5)).unwrap();
    world.ask(Operation::Write, 4, &block(6)).unwrap();
    world.damage(world.page_of(&block(5)));
    assert_eq!(world.ask(Operation::Read, 3, &[]), Err(Error::Io));
    assert_eq!(world.engine.lost_blocks(), [3]);
    assert_eq!(world.ask(Operation::Read, 4, &[]), Ok(block(6)));
    // The copy that these reads waited for has no content, and reports that.
    assert_eq!(world.ask(Operation::Read, 3, &[]), Err(Error::Io));
    assert_eq!(world.engine.recovery().stopped(), None);
    world.ask(Operation::Write, 3, &block(7)).unwrap();
    assert_eq!(world.ask(Operation::Read, 3, &[]), Ok(block(7)));
    assert_eq!(world.engine.lost_blocks(), [0; 0]);
    world.ask(Operation::Flush, 0, &[]).unwrap();
    let mut world = World::open(world.disks, 2).unwrap();
    assert_eq!(world.ask(Operation::Read, 3, &[]), Ok(block(7)));
    assert_eq!(world.ask(Operation::Read, 4, &[]), Ok(block(6)));
}

/// Flushes of the flash fail for good. Its blocks are read and written back. No flush succeeds, because they may not be
/// durable.
#[test]
fn a_flash_that_cannot_be_flushed_is_read_and_not_written() {
    let mut world = World::new();
    world.ask(Operation::Write, 3, &block(5)).unwrap();
    world.ask(Operation::Flush, 0, &[]).unwrap();
    world.failing = vec![(FLASH, DiskOperation::Sync, ANYWHERE)];
    world.ask(Operation::Write, 9, &block(1)).unwrap();
    assert_eq!(world.ask(Operation::Flush, 0, &[]), Err(Error::Io));
    assert!(world.engine.cache().is_frozen());
    world.failing.clear();
    assert_eq!(
        world.ask(Operation::Flush, 0, &[]),
        Err(Error::Io),
        "what a flush did not make durable no later one does"
    );
    assert_eq!(world.ask(Operation::Write, 9, &block(2)), Err(Error::Io));
    assert_eq!(world.ask(Operation::Read, 3, &[]), Ok(block(5)));
    assert_eq!(world.ask(Operation::Read, 9, &[]), Ok(block(1)));
    world.engine.destage_all(0);
    world.settle();
    assert_eq!((world.engine.cache().blocks_to_write_back(), world.engine.recovery().stopped()), (0, None));
    let backend = world.disks[BACKEND].contents();
    assert_eq!([3, 9].map(|at| backend[at * BLOCK_BYTES]), [5, 1]);
}

/// Fewer buckets are left than a cache needs: nothing is written to them, and what they hold is durable, so that
/// flushes succeed.
#[test]
fn a_flash_with_too_few_buckets_is_read_and_flushed() {
    let mut world = World::new();
    world.ask(Operation::Write, 3, &block(5)).unwrap();
    world.failing = (1..10).map(|bucket| (FLASH, DiskOperation::Write, bytes_of(bucket))).collect();
    // It is answered before it is appended: that it came to nothing is said by what cannot be read, and by flushes.
    assert_eq!(world.ask(Operation::Write, 20, &block(1)), Ok(Vec::new()));
    assert!(world.engine.cache().is_frozen());
    assert!(world.engine.failures().units().len() > 6, "{:?}", world.engine.failures().units());
    assert_eq!((world.engine.lost_blocks(), world.engine.unwritten_blocks()), (vec![], 1));
    assert_eq!(world.ask(Operation::Read, 20, &[]), Ok(block(1)), "it is in memory");
    assert_eq!(world.ask(Operation::Flush, 0, &[]), Err(Error::Io));
    assert_eq!(world.ask(Operation::Write, 21, &block(1)), Err(Error::Io), "nothing is taken any more");
    assert_eq!(world.ask(Operation::Read, 3, &[]), Ok(block(5)));
    let mut world = world.reopened(2);
    assert!(world.engine.cache().is_frozen());
    assert_eq!(world.ask(Operation::Read, 3, &[]), Ok(block(5)));
    world.engine.destage_all(0);
    world.settle();
    assert_eq!(world.disks[BACKEND].contents()[3 * BLOCK_BYTES..4 * BLOCK_BYTES], block(5));
}

/// One bad block of the backend is an error of those who write it past the cache; who reads and writes others hears
/// nothing.
#[test]
fn a_bad_block_of_the_backend_fails_no_other_block() {
    let mut world = World::new();
    let bad = 20 * BLOCK_BYTES as u64..21 * BLOCK_BYTES as u64;
    world.failing = vec![(BACKEND, DiskOperation::Write, bad.clone()), (BACKEND, DiskOperation::Read, bad)];
    assert_eq!(world.ask(Operation::Read, 20, &[]), Err(Error::Io));
    assert_eq!(world.ask(Operation::Read, 21, &[]), Ok(block(0)), "read with it, and not bad");
    // Past the cache: larger than a bucket.
    assert_eq!(world.ask(Operation::Write, 15, &vec![7; 16 * BLOCK_BYTES]), Err(Error::Io));
    for number in 0..200 {
        world.ask(Operation::Write, number % 60, &block(number as u8)).unwrap();
        world.ask(Operation::Flush, 0, &[]).unwrap();
    }
    (140..200).for_each(|number| assert_eq!(world.ask(Operation::Read, number % 60, &[]), Ok(block(number as u8))));
    assert_eq!(world.engine.cache().failing().iter().collect::<Vec<_>>(), [&1]);
    assert_eq!(world.engine.lost_blocks(), [0; 0]);
    // It is tried again, and once it is written it may leave.
    world.tick(1);
    assert_eq!(world.engine.cache().failing().len(), 1);
    world.failing.clear();
    world.tick(2);
    assert_eq!(world.engine.cache().failing().len(), 0);
    world.engine.destage_all(0);
    world.settle();
    let backend = world.disks[BACKEND].contents();
    (140..200).for_each(|number| assert_eq!(backend[number % 60 * BLOCK_BYTES..][..BLOCK_BYTES], block(number as u8)));
}

/// The backend cannot be written at all: the cache takes what it has room for, and refuses the rest; nothing that was
/// acknowledged is lost.
#[test]
fn writes_fail_without_space_if_the_backend_is_read_only() {
    let mut world = World::new();
    world.failing = vec![(BACKEND, DiskOperation::Write, ANYWHERE)];
    let mut newest: HashMap<usize, u8> = HashMap::new();
    let (mut written, mut refused) = (0, 0);
    for number in 0..600 {
        let at = number * 7 % 60;
        match world.ask(Operation::Write, at, &block(number as u8)) {
            Ok(_) => drop(newest.insert(at, number as u8)),
            Err(error) => {
                assert_eq!(error, Error::Io);
                refused += 1;
            }
        }
        written += usize::from(world.ask(Operation::Flush, 0, &[]).is_ok());
    }
    assert!(written == 600 && refused < 600, "{written} flushes, {refused} writes refused");
    newest.iter().for_each(|(&at, &fill)| assert_eq!(world.ask(Operation::Read, at, &[]), Ok(block(fill))));
    world.failing.clear();
    (1..20).for_each(|second| world.tick(second));
    assert_eq!(world.engine.cache().failing().len(), 0);
    world.ask(Operation::Write, 1, &block(1)).unwrap();
    newest.insert(1, 1);
    let mut world = world.reopened(2);
    newest.iter().for_each(|(&at, &fill)| assert_eq!(world.ask(Operation::Read, at, &[]), Ok(block(fill))));
}

/// A write spans two buckets of the backend. The logs of the first are full and cannot be written back. The write finds
/// space anyway.
#[test]
fn evictions_between_parts_of_a_write_fail_no_request() {
    for full in 1..12 {
        let mut world = World::new();
        (0..full).for_each(|number| drop(world.ask(Operation::Write, number % 15, &block(1)).unwrap()));
        world.failing = vec![(BACKEND, DiskOperation::Write, ANYWHERE)];
        world.ask(Operation::Write, 13, &vec![2; 4 * BLOCK_BYTES]).unwrap_or_else(|error| panic!("{full}: {error:?}"));
        world.ask(Operation::Flush, 0, &[]).unwrap();
        (13..17).for_each(|at| assert_eq!(world.ask(Operation::Read, at, &[]), Ok(block(2)), "{full}"));
        world.failing.clear();
        let mut world = world.reopened(2);
        (13..17).for_each(|at| assert_eq!(world.ask(Operation::Read, at, &[]), Ok(block(2)), "{full}"));
    }
}

/// Writes are acknowledged before the backend rejects blocks that would make room for them. They wait in memory, and no
/// flush succeeds. Once the backend works, they are written, except where a client has written newer data.
#[test]
fn acknowledged_writes_without_space_are_made_later() {
    let mut world = World::before(300);
    (0..30).for_each(|number| drop(world.ask(Operation::Write, number * 7, &block(1)).unwrap()));
    world.ask(Operation::Flush, 0, &[]).unwrap();
    world.failing = vec![(BACKEND, DiskOperation::Write, ANYWHERE)];
    let mut newest: HashMap<usize, u8> = (0..30).map(|number| (number * 7, 1)).collect();
    let mut answers = Vec::new();
    for number in 0..60 {
        let at = number * 7 % 300;
        // Whole blocks, and parts of them.
        let answer = match number % 3 {
            0 => world.begin_bytes(
                Operation::Write,
                (at * BLOCK_BYTES) as u64,
                BLOCK_BYTES as u64 - 512,
                &block(2)[512..],
            ),
            _ => world.begin(Operation::Write, at, &block(2)),
        };
        answers.push((at, answer));
    }
    world.settle();
    for (at, answer) in answers {
        match answer.lock().unwrap().take().expect("it is answered") {
            Ok(_) => newest.insert(at, 2),
            Err(_) => newest.remove(&at),
        };
    }
    let waiting = world.engine.not_durable_blocks();
    assert!(waiting.len() >= 3 && world.engine.lost_blocks().is_empty(), "{waiting:?}");
    world.ask(Operation::Flush, 0, &[]).expect_err("some of it is not durable");
    let check = |world: &mut World, newest: &HashMap<usize, u8>| {
        for (&at, &fill) in newest {
            let mut expected = block(fill);
            if fill == 2 && at % 3 == 0 {
                let before = u8::from(at % 7 == 0 && at < 30 * 7);
                expected[BLOCK_BYTES - 512..].fill(before);
            }
            assert!(world.ask(Operation::Read, at, &[]) == Ok(expected), "{at}");
        }
    };
    // Waiting data is read from memory.
    check(&mut world, &newest);
    world.failing.clear();
    // One of them is written anew before that.
    let anew = waiting[1] as usize;
    while world.ask(Operation::Write, anew, &block(255)).is_err() {
        world.engine.advance(1_000_000);
        world.settle();
    }
    newest.insert(anew, 255);
    (1..20).for_each(|second| world.tick(second * 1_000_000));
    assert_eq!(world.engine.not_durable_blocks(), [0; 0]);
    check(&mut world, &newest);
    world.ask(Operation::Flush, 0, &[]).unwrap();
    check(&mut world.reopened(2), &newest);
}

/// The backend takes writes and cannot be flushed: who reads hears nothing of it, and all is there once it can.
#[test]
fn reads_continue_while_flushes_of_the_backend_fail() {
    let mut world = World::before(300);
    (0..60).for_each(|number| drop(world.ask(Operation::Write, number * 4, &block(1)).unwrap()));
    world.ask(Operation::Flush, 0, &[]).unwrap();
    world.failing = vec![(BACKEND, DiskOperation::Sync, ANYWHERE)];
    let mut newest: HashMap<usize, u8> = (0..60).map(|number| (number * 4, 1)).collect();
    for number in 0..200 {
        let at = number * 7 % 240;
        if world.ask(Operation::Write, at, &block(2)).is_ok() {
            newest.insert(at, 2);
        } else {
            newest.remove(&at);
        }
        let read = number * 4 % 240;
        if let Some(&fill) = newest.get(&read) {
            assert_eq!(world.ask(Operation::Read, read, &[]), Ok(block(fill)), "{number}");
        }
        world.tick(number as u64 * 1_000_000);
    }
    world.failing.clear();
    (200..240).for_each(|second| world.tick(second * 1_000_000));
    // One flush hears of those that failed.
    let _ = world.ask(Operation::Flush, 0, &[]);
    world.ask(Operation::Flush, 0, &[]).unwrap();
    let mut world = world.reopened(2);
    newest.iter().for_each(|(&at, &fill)| assert_eq!(world.ask(Operation::Read, at, &[]), Ok(block(fill)), "{at}"));
}

/// A bucket that cannot be written is not used again; its blocks move.
#[test]
fn a_bucket_that_cannot_be_written_is_left_and_never_used_again() {
    let mut world = World::new();
    world.ask(Operation::Write, 3, &block(5)).unwrap();
    world.failing = vec![(FLASH, DiskOperation::Write, bytes_of(0))];
    for number in 0..100 {
        world.ask(Operation::Write, number % 60, &block(number as u8)).unwrap();
    }
    assert_eq!(world.engine.failures().units(), [1]);
    world.ask(Operation::Flush, 0, &[]).unwrap();
    let mut world = world.reopened(2);
    // As if it could be written again.
    let before = world.disks[FLASH].contents()[bytes_of(0).start as usize..bytes_of(0).end as usize].to_vec();
    (40..100).for_each(|number| assert_eq!(world.ask(Operation::Read, number % 60, &[]), Ok(block(number as u8))));
    (0..100).for_each(|number| drop(world.ask(Operation::Write, number % 60, &block(number as u8)).unwrap()));
    assert!(before == world.disks[FLASH].contents()[bytes_of(0).start as usize..bytes_of(0).end as usize]);
    assert_eq!(world.engine.failures().units(), [1]);
}

/// A bucket of logs can neither be read nor written. Its blocks are lost and listed, also after a start, until new data
/// is written there.
#[test]
fn blocks_of_a_lost_bucket_are_listed_and_fail() {
    let mut world = World::new();
    world.ask(Operation::Write, 3, &block(5)).unwrap();
    world.ask(Operation::Write, 4, &block(6)).unwrap();
    world.ask(Operation::Write, 20, &block(7)).unwrap();
    world.ask(Operation::Flush, 0, &[]).unwrap();
    world.failing =
        [DiskOperation::Write, DiskOperation::Read].map(|operation| (FLASH, operation, bytes_of(0))).to_vec();
    world.ask(Operation::Write, 5, &block(8)).unwrap();
    // This test's scan cannot read the bucket either, so its blocks are lost.
    let gone = vec![0xEE; (bytes_of(0).end - bytes_of(0).start) as usize];
    world.disks[FLASH].write_at(&gone, bytes_of(0).start).unwrap();
    let check = |world: &mut World| {
        assert_eq!(world.ask(Operation::Read, 3, &[]), Err(Error::Io));
        assert_eq!(world.ask(Operation::Read, 4, &[]), Err(Error::Io));
        assert_eq!(world.ask(Operation::Read, 5, &[]), Ok(block(8)));
        assert_eq!(world.ask(Operation::Read, 6, &[]), Ok(block(0)));
        assert_eq!(world.ask(Operation::Read, 20, &[]), Ok(block(7)));
        assert_eq!(world.engine.lost_blocks(), [3, 4]);
    };
    check(&mut world);
    world.ask(Operation::Flush, 0, &[]).unwrap();
    let mut world = world.reopened(2);
    assert_eq!(world.engine.lost_blocks(), [3, 4], "before anyone reads them");
    check(&mut world);
    // Only blocks that cannot be read are not written back, also after a recovery.
    world.engine.destage_all(0);
    world.settle();
    assert_eq!((world.engine.cache().failing().len(), world.engine.lossy()), (1, 1));
    world.ask(Operation::Write, 3, &vec![9; 2 * BLOCK_BYTES]).unwrap();
    world.engine.destage_all(0);
    world.settle();
    world.tick(1);
    assert_eq!((world.engine.lost_blocks(), world.engine.cache().failing().len()), (vec![], 0));
    assert_eq!(world.ask(Operation::Read, 4, &[]), Ok(block(9)));
}

/// A small generator of numbers: xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % limit
    }
}

/// Buckets fail for good, and blocks of the backend temporarily. A block reads as its last write, or as a write that
/// failed since, also after starts. Up to eight of ten buckets fail, so some worlds have too few to write to.
/// `FLASHWISE_SEEDS` sets the number of worlds, and `FLASHWISE_SEED` the first.
#[test]
fn nothing_acknowledged_is_lost_while_devices_fail_in_part() {
    let first = setting("FLASHWISE_SEED", 1);
    let (mut frozen, mut refused, mut at_once, mut lost, mut worlds_lost) = (0, 0, 0, 0, 0);
    for seed in first..first + setting("FLASHWISE_SEEDS", 50) {
        let mut random = Random(seed);
        let most_failed = random.below(9) as usize;
        let mut world = World::new();
        // The legal contents of each block; the newest acknowledged one comes first.
        let mut may_be: Vec<Vec<u8>> = vec![vec![0]; BLOCKS];
        // All that was ever written, for what was answered and could not be written.
        let mut ever: Vec<Vec<u8>> = may_be.clone();
        let mut failed_buckets = Vec::new();
        let mut second = 0;
        for number in 0..400 {
            let fill = (number % 251) as u8;
            match random.below(60) {
                0 | 45 if failed_buckets.len() < most_failed => {
                    let mut bucket = random.below(10);
                    while failed_buckets.contains(&bucket) {
                        bucket = (bucket + 1) % 10;
                    }
                    failed_buckets.push(bucket);
                    world.failing.push((FLASH, DiskOperation::Write, bytes_of(bucket)));
                }
                1 => {
                    let first = random.below(BLOCKS as u64) * BLOCK_BYTES as u64;
                    world.failing.push((BACKEND, DiskOperation::Write, first..first + 3 * BLOCK_BYTES as u64));
                }
                2 => world.failing.push((BACKEND, DiskOperation::Sync, ANYWHERE)),
                3..6 => world.failing.retain(|(disk, ..)| *disk == FLASH),
                6..9 => {
                    second += 1;
                    world.tick(second);
                }
                9 if world.failing.iter().all(|(disk, ..)| *disk == FLASH) => {
                    // Lost blocks are overwritten, if the flash accepts them.
                    world.tick(second);
                    for block in world.engine.not_durable_blocks() {
                        lost += 1;
                        may_be[block as usize] = vec![fill];
                        ever[block as usize].push(fill);
                        if world.ask(Operation::Write, block as usize, &[fill; BLOCK_BYTES]).is_err() {
                            may_be[block as usize].clone_from(&ever[block as usize]);
                        }
                    }
                    // The backend works. Stopped work continues within seconds, and the first flush may report an
                    // earlier failure.
                    let flushed = (0..4).any(|_| {
                        second += 1;
                        world.tick(second);
                        world.ask(Operation::Flush, 0, &[]).is_ok()
                    });
                    assert!(flushed || !world.engine.not_durable_blocks().is_empty(), "seed {seed}, {number}");
                    // Blocks lost since a flush may have any earlier contents.
                    for block in world.engine.not_durable_blocks() {
                        may_be[block as usize].clone_from(&ever[block as usize]);
                    }
                    let failing = std::mem::take(&mut world.failing);
                    second += 1;
                    world = world.reopened(second + 1000);
                    world.failing = failing;
                }
                10..13 => drop(world.ask(Operation::Flush, 0, &[])),
                13 => world.engine.destage_all(0),
                14..30 => {
                    let at = random.below(BLOCKS as u64) as usize;
                    let found = match world.ask(Operation::Read, at, &[]) {
                        Ok(found) => found,
                        Err(_) if world.engine.recovery().stopped().is_some() => continue,
                        Err(_) if world.engine.not_durable_blocks().contains(&(at as u64)) => continue,
                        Err(error) => panic!("seed {seed}, {number}: {error}"),
                    };
                    assert!(found.iter().all(|byte| *byte == found[0]), "seed {seed}, {number}: block {at} is mixed");
                    assert!(may_be[at].contains(&found[0]), "seed {seed}, {number}: block {at} is {}", found[0]);
                    may_be[at] = vec![found[0]];
                }
                kind => {
                    let at = random.below(BLOCKS as u64) as usize;
                    let blocks = if kind == 30 {
                        16.min(BLOCKS - at)
                    } else {
                        1 + random.below(3).min((BLOCKS - at - 1) as u64) as usize
                    };
                    // Some are answered before anything of them is done, and written over.
                    let ahead = random.below(4) as u8;
                    // Of those that are under way together, any may be the last where the cache has to be found again.
                    let mut together = Vec::new();
                    for before in 0..ahead {
                        let answer = world.begin(Operation::Write, at, &[fill ^ before; BLOCK_BYTES]);
                        let mut answer = answer.lock().unwrap();
                        let is_answered = answer.take() == Some(Ok(Vec::new()));
                        at_once += u32::from(is_answered);
                        if !is_answered && !world.failing.is_empty() {
                            together.push(fill ^ before);
                        }
                        may_be[at].push(fill ^ before);
                        ever[at].push(fill ^ before);
                    }
                    let written = world.ask(Operation::Write, at, &vec![fill; blocks * BLOCK_BYTES]);
                    refused += u32::from(written.is_err());
                    let is_whole = failed_buckets.is_empty() && world.engine.cache().failing().is_empty();
                    assert!(written.is_ok() || !is_whole || !world.failing.is_empty(), "seed {seed}, {number}");
                    for may_be in &mut may_be[at..at + blocks] {
                        if written.is_ok() {
                            may_be.clear();
                        }
                        may_be.push(fill);
                    }
                    may_be[at].extend(together);
                    for ever in &mut ever[at..at + blocks] {
                        ever.push(fill);
                    }
                }
            }
            world.settle();
        }
        let lost_now = world.engine.not_durable_blocks();
        assert!(
            lost_now.is_empty() || world.ask(Operation::Flush, 0, &[]).is_err(),
            "seed {seed}: no flush hides a loss"
        );
        (worlds_lost, lost) = (worlds_lost + u32::from(!lost_now.is_empty()), lost + lost_now.len());
        frozen += u32::from(world.engine.cache().is_frozen());
        world.failing.retain(|(disk, ..)| *disk == FLASH);
        (0..40).for_each(|tick| world.tick(second + 1 + tick));
        world.engine.destage_all(0);
        world.settle();
        assert_eq!(world.engine.cache().blocks_to_write_back(), 0, "seed {seed}");
        let backend = world.disks[BACKEND].contents();
        for block in world.engine.not_durable_blocks() {
            may_be[block as usize].clone_from(&ever[block as usize]);
        }
        for (at, may_be) in may_be.iter().enumerate() {
            let found = &backend[at * BLOCK_BYTES..(at + 1) * BLOCK_BYTES];
            assert!(
                found.iter().all(|byte| *byte == found[0]) && may_be.contains(&found[0]),
                "seed {seed}: block {at}"
            );
        }
    }
    println!(
        "{frozen} worlds with too few buckets, {refused} writes refused, {at_once} answered at once, {lost} blocks \
         lost that were answered and not flushed, {worlds_lost} worlds end with some"
    );
    assert!(frozen > 0 && refused > 0 && at_once > 0, "{frozen} worlds with too few buckets, {refused} writes refused");
}
