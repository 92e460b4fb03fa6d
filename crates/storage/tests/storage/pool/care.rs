//! Operations on a pool: replacing and removing disks, modes of logical disks, and plans of changes.

use std::collections::BTreeMap;

use flashwise_core::cache::Mode;
use flashwise_storage::export::{Error, Export, Operation};
use flashwise_storage::pool::plan::Plan;
use flashwise_storage::pool::status::{PoolDiskState, PoolState};
use flashwise_storage::pool::{CHUNK_BYTES, NewLogical, Pool, PoolConfig, prepare};
use flashwise_testing::waiting::wait_until;

use super::live::{Tank, ask, flush, new, read, write};

const MIB: u64 = 1 << 20;
const CHUNK: u64 = CHUNK_BYTES;

fn open(config: &PoolConfig) -> Pool {
    Pool::open(config.clone(), &|_, _| ()).unwrap().0
}

/// The disk of each chunk of a logical disk, by offset.
pub fn disks_of(pool: &Pool, name: &str) -> BTreeMap<u64, u32> {
    let runs = pool.map_of(name).unwrap();
    let chunks = |run: &flashwise_storage::pool::status::MapRun| {
        let (at, step, disk) = (run.offset_bytes, run.step_bytes, run.disk);
        (0..run.length_bytes / CHUNK).map(move |k| (at + k * step, disk)).collect::<Vec<_>>()
    };
    runs.iter().flat_map(chunks).collect()
}

/// A disk is added and another taken out: neighbours still lie on different disks. Where one is taken out and none
/// comes, what was there goes to the others by halves.
#[test]
fn an_evacuation_spreads_neighbouring_chunks() {
    for replaced in [true, false] {
        let tank = Tank::new(false);
        let pool = tank.open();
        let disk = pool.create_logical(&NewLogical { striped: true, ..new("a", 6 * MIB) }).unwrap();
        write(&disk, 0, 6 * MIB, 1).unwrap();
        if replaced {
            let path = tank.config.cache.state_directory.join("disk3.img");
            std::fs::File::create(&path).unwrap().set_len(8 * MIB).unwrap();
            assert_eq!(pool.add_disk(&path, false).unwrap(), 4);
        }
        pool.remove_disk(1).unwrap();
        wait_until("the disk has gone", || pool.status().disks.iter().all(|disk| disk.number != 1));
        let disks = disks_of(&pool, "a");
        assert_eq!(disks.len(), 96);
        let count = |number: u32| disks.values().filter(|disk| **disk == number).count();
        if replaced {
            let together = disks.iter().filter(|(at, disk)| disks.get(&(*at + CHUNK)) == Some(*disk)).count();
            assert_eq!(together, 0, "{disks:?}");
            assert_eq!([2, 3, 4].map(count), [32; 3]);
        } else {
            assert_eq!([2, 3].map(count), [48; 2]);
        }
        pool.close().unwrap();
    }
}

/// Others fill the pool while a disk is emptied: that waits, and goes on once there is space again.
#[test]
fn emptying_a_disk_waits_for_space() {
    let tank = Tank::new(false);
    let pool = tank.open();
    let free = pool.status().free_bytes;
    let disk = pool.create_logical(&new("a", free)).unwrap();
    // As much as a disk has, which moves in more than one batch.
    write(&disk, 0, free / 3, 1).unwrap();
    flush(&disk);
    let most = disks_of(&pool, "a").into_values().fold(BTreeMap::new(), |mut counts, disk| {
        *counts.entry(disk).or_insert(0) += 1;
        counts
    });
    let (&number, &chunks) = most.iter().max_by_key(|(_, chunks)| **chunks).unwrap();
    assert!(chunks > 64, "{most:?}");
    pool.remove_disk(number).unwrap();
    // One request takes all places but those of the first batch, before the second is begun.
    let at = (free / 3).next_multiple_of(CHUNK);
    // Space reserved for an evacuation is not available to clients, except for writes to existing thin logical disks.
    let room = || {
        let stay = pool.status().disks.into_iter().filter(|disk| disk.number != number);
        stay.map(|disk| disk.size_bytes - disk.used_bytes).sum::<u64>()
    };
    wait_until("the room is taken", || write(&disk, at, room(), 2).is_ok());
    let leaving = || pool.status().disks.into_iter().find(|disk| disk.number == number);
    wait_until("it fails", || leaving().is_none_or(|disk| disk.failed.is_some()));
    let failed = leaving().and_then(|disk| disk.failed).unwrap();
    assert!(failed.starts_with("it waits for space: "), "{failed}");
    let path = tank.config.cache.state_directory.join("disk3.img");
    std::fs::File::create(&path).unwrap().set_len(8 * MIB).unwrap();
    pool.add_disk(&path, false).unwrap();
    wait_until("the disk has gone", || leaving().is_none());
    assert_eq!(read(&disk, 0, free / 3 / CHUNK * CHUNK), vec![1; (free / 3 / CHUNK * CHUNK) as usize]);
    pool.close().unwrap();
}

/// The chunks of each of two disks would fit on the other disks, but not those of both.
#[test]
fn two_evacuations_do_not_share_the_same_space() {
    let tank = Tank::new(false);
    let pool = tank.open();
    let free = pool.status().free_bytes;
    let disk = pool.create_logical(&NewLogical { striped: true, ..new("a", free) }).unwrap();
    write(&disk, 0, free / 2, 1).unwrap();
    flush(&disk);
    // The thread that empties it waits for nothing but this.
    pool.remove_disk(1).unwrap();
    let error = pool.remove_disk(2).unwrap_err().to_string();
    assert!(error.contains("bytes are needed"), "{error}");
    assert_eq!(Plan::remove(&pool, 2).unwrap_err().to_string(), error);
    let status = pool.status();
    assert_eq!(status.free_bytes, status.size_bytes - status.used_bytes);
    let thick = NewLogical { thick: true, ..new("thick", status.free_bytes + MIB) };
    assert!(pool.create_logical(&thick).err().unwrap().to_string().contains("are free"));
    wait_until("the disk has gone", || pool.status().disks.len() < 3);
    pool.close().unwrap();
}

/// All are asked to go at once, while nothing has to be moved.
#[test]
fn the_last_disk_that_stays_is_not_taken_out() {
    let tank = Tank::new(false);
    let pool = tank.open();
    pool.remove_disk(1).unwrap();
    pool.remove_disk(2).unwrap();
    let error = pool.remove_disk(3).unwrap_err().to_string();
    assert!(error.contains("cannot be removed"), "{error}");
    wait_until("two disks have gone", || pool.status().disks.len() == 1);
    let disk = pool.create_logical(&new("a", MIB)).unwrap();
    write(&disk, 0, MIB, 1).unwrap();
    assert_eq!(pool.remove_disk(3).unwrap_err().to_string(), "pool 'tank': its only disk cannot be removed");
    pool.close().unwrap();
    drop((disk, pool));
    // Its last disk that is there cannot leave one behind that is missing.
    let pool = tank_without_the_second_disk();
    let error = pool.1.remove_disk(1).unwrap_err().to_string();
    assert!(error.contains("its other disks are missing or being removed"), "{error}");
    pool.1.close().unwrap();
}

/// Creates an empty pool of two disks; one is missing.
fn tank_without_the_second_disk() -> (Tank, Pool) {
    let tank = Tank::new(false);
    let pool = tank.open();
    pool.remove_disk(3).unwrap();
    wait_until("the disk has gone", || pool.status().disks.len() == 2);
    pool.close().unwrap();
    drop(pool);
    let mut config = tank.config.clone();
    config.disks.truncate(1);
    config.degraded = true;
    let pool = open(&config);
    (tank, pool)
}

/// Creates a pool with a flash, writes to a logical disk, and closes the pool.
fn written_tank() -> Tank {
    let tank = Tank::new(true);
    let pool = tank.open();
    let disk = pool.create_logical(&new("a", MIB)).unwrap();
    write(&disk, 0, MIB, 1).unwrap();
    pool.close().unwrap();
    drop((disk, pool));
    tank
}

fn has_what_was_written(tank: &Tank) {
    let pool = tank.open();
    assert_eq!(read(&pool.logical("a").unwrap(), 0, MIB), vec![1; MIB as usize]);
    pool.close().unwrap();
}

/// A pool had a flash with data that was not written back, and is to do without.
#[test]
fn a_flash_that_is_left_out_is_missed() {
    let tank = written_tank();
    let mut config = tank.config.clone();
    config.cache.flash = std::path::PathBuf::new();
    config.cache.flash_size_bytes = None;
    let error = Pool::open(config, &|_, _| ()).err().unwrap().to_string();
    let expected = "pool 'tank': flash: found none in the configuration, expected the flash with cache ";
    assert!(error.starts_with(expected), "{error}");
    has_what_was_written(&tank);
}

/// An operator's mistake between two valid starts: a refused start does not change the disks.
#[test]
fn a_start_that_is_refused_changes_no_disk() {
    let tank = written_tank();
    // A disk is away.
    let mut config = PoolConfig { degraded: true, ..tank.config.clone() };
    let away = config.disks.pop().unwrap();
    open(&config).close().unwrap();
    let content = std::fs::read(&away).unwrap();
    // The wrong disks are named, and once no flash.
    config.disks = vec![away.clone()];
    let error = Pool::open(config.clone(), &|_, _| ()).err().unwrap().to_string();
    assert!(error.contains("the backend is an older copy"), "{error}");
    config.cache.flash = std::path::PathBuf::new();
    config.cache.flash_size_bytes = None;
    let error = Pool::open(config, &|_, _| ()).err().unwrap().to_string();
    assert!(error.contains("found none in the configuration"), "{error}");
    assert!(std::fs::read(&away).unwrap() == content);
    has_what_was_written(&tank);
}

/// Chunks deleted or trimmed while their disk is missing need no write-back: the flash can be removed, and the disk can
/// return.
#[test]
fn deleted_chunks_of_a_missing_disk_need_no_flash() {
    let tank = Tank::new(true);
    let pool = tank.open();
    let striped = |name| NewLogical { striped: true, ..new(name, MIB) };
    let disk = pool.create_logical(&striped("a")).unwrap();
    let kept = pool.create_logical(&NewLogical { mode: Some(Mode::WriteThrough), ..striped("kept") }).unwrap();
    write(&disk, 0, MIB, 4).unwrap();
    write(&kept, 0, MIB, 5).unwrap();
    pool.close().unwrap();
    drop((disk, kept, pool));

    let mut config = tank.config.clone();
    config.disks.remove(1);
    config.degraded = true;
    let pool = open(&config);
    pool.delete_logical("a").unwrap();
    let kept = pool.logical("kept").unwrap();
    let (missing, there): (Vec<_>, Vec<_>) = disks_of(&pool, "kept").into_iter().partition(|(_, disk)| *disk == 2);
    write(&kept, there[0].0, 4096, 6).unwrap();
    pool.flush().unwrap();
    let dirty = pool.volume().status().dirty_bytes;
    assert!(dirty > CHUNK, "what was deleted is to be written back as zeroes: {dirty}");
    pool.volume().detach().unwrap();
    assert_eq!(pool.volume().status().dirty_bytes, 0);
    assert!(ask(&kept, Operation::Write, missing[0].0, 4096, vec![7; 4096]).is_err(), "its disk is missing");
    pool.close().unwrap();
    drop((kept, pool));

    // Chunks that reuse deleted space read as zeroes where nothing was written.
    let pool = tank.open();
    let disk = pool.create_logical(&striped("b")).unwrap();
    for at in (0..MIB).step_by(CHUNK as usize) {
        write(&disk, at, 4096, 8).unwrap();
    }
    assert_eq!(disks_of(&pool, "b").into_iter().filter(|(_, disk)| *disk == 2).count(), missing.len());
    flush(&disk);
    for at in (0..MIB).step_by(CHUNK as usize) {
        assert_eq!(read(&disk, at, CHUNK), [vec![8; 4096], vec![0; CHUNK as usize - 4096]].concat(), "at {at}");
    }
    let kept = pool.logical("kept").unwrap();
    assert_eq!(read(&kept, missing[0].0, CHUNK), vec![5; CHUNK as usize]);
    assert_eq!(read(&kept, there[0].0, 4096), vec![6; 4096]);
    pool.close().unwrap();
}

#[test]
fn a_missing_disk_is_removed_by_its_path_and_its_data_is_lost() {
    for flash in [false, true] {
        let tank = Tank::new(flash);
        let pool = tank.open();
        let disk = pool.create_logical(&NewLogical { striped: true, ..new("a", MIB) }).unwrap();
        pool.create_logical(&NewLogical { striped: true, thick: true, ..new("thick", MIB) }).unwrap();
        write(&disk, 0, MIB, 4).unwrap();
        flush(&disk);
        let lost: Vec<u64> =
            disks_of(&pool, "a").into_iter().filter(|(_, disk)| *disk == 2).map(|(at, _)| at).collect();
        let error = pool.give_up_disk(2, "disk1.img").unwrap_err().to_string();
        assert!(error.contains("is present; remove it instead"), "{error}");
        // In write-back, the cache has what it never wrote back.
        write(&disk, lost[0], 4096, 5).unwrap();
        pool.close().unwrap();
        drop((disk, pool));

        let mut config = tank.config.clone();
        let path = config.disks.remove(1).display().to_string();
        config.degraded = true;
        let pool = open(&config);
        let error = pool.remove_disk(2).unwrap_err().to_string();
        assert!(error.contains("is missing and has") && error.contains("give it up by its path"), "{error}");
        let error = pool.give_up_disk(2, "another").unwrap_err().to_string();
        assert!(error.contains(&format!("found 'another' as the disk to give up, expected '{path}'")), "{error}");
        let plan = Plan::give_up(&pool, 2, None).unwrap();
        let bytes = lost.len() as u64 * 64;
        let expected = format!("{bytes} KiB of a are lost: reads fail until new data is written there.");
        assert!(plan.destroys && plan.word == Some(path.clone()) && plan.does.contains(&expected), "{plan:?}");
        let unwritten = disks_of(&pool, "thick").into_iter().filter(|(_, disk)| *disk == 2).count() * 64;
        let expected =
            format!("{unwritten} KiB of thick, which is thick, were never written: they lose their reserved space");
        assert!(unwritten > 0 && plan.does[2].starts_with(&expected), "{plan:?}");
        // Dirty blocks are only on the flash.
        let newer = plan.does.iter().any(|line| line.starts_with("Dirty blocks of the disk in the cache are lost too"));
        assert_eq!((newer, plan.does.len()), (flash, 3 + usize::from(flash)), "{plan:?}");
        pool.give_up_disk(2, &path).unwrap();
        let check = |pool: &Pool, lost: &[u64]| {
            let status = pool.status();
            assert_eq!((status.state, status.disks.len()), (PoolState::Ok, 2));
            let told = (status.logical_disks[0].lost_bytes, status.logical_disks[0].missing_bytes);
            assert_eq!(told, (lost.len() as u64 * CHUNK, 0));
            let warned = status.warning.unwrap_or_default();
            assert!(warned.contains("of logical disks are lost: reads fail"), "{warned}");
            let disk = pool.logical("a").unwrap();
            for at in (0..MIB).step_by(CHUNK as usize) {
                let answer = ask(&disk, Operation::Read, at + 4096, 4096, Vec::new());
                assert_eq!(answer.is_err(), lost.contains(&at), "at {at}");
            }
            let listed =
                pool.map_of("a").unwrap().iter().filter(|run| run.lost).map(|run| run.length_bytes).sum::<u64>();
            assert_eq!(listed, lost.len() as u64 * CHUNK);
            let thick = pool.logical("thick").unwrap();
            assert_eq!(read(&thick, 0, MIB), vec![0; MIB as usize]);
            assert!(disk.extents(0, MIB, 100).unwrap().iter().all(|extent| !extent.zero), "what is lost is no hole");
        };
        check(&pool, &lost);
        pool.close().unwrap();
        drop(pool);

        config.degraded = false;
        let pool = open(&config);
        check(&pool, &lost);
        let disk = pool.logical("a").unwrap();
        assert_eq!(write(&disk, lost[0], 4096, 6), Err(Error::Io), "the rest of the chunk would be made up");
        assert_eq!(write(&disk, lost[0], CHUNK, 6), Ok(()));
        ask(&disk, Operation::Trim, lost[1], CHUNK, Vec::new()).unwrap();
        let zeroes = Operation::WriteZeroes { may_punch_holes: true, only_if_fast: false };
        assert_eq!(ask(&disk, zeroes, lost[2], 4096, Vec::new()), Err(Error::Io));
        ask(&disk, zeroes, lost[2], CHUNK, Vec::new()).unwrap();
        flush(&disk);
        write(&pool.logical("thick").unwrap(), 0, MIB, 9).unwrap();
        drop(disk);
        pool.close().unwrap();
        drop(pool);
        let pool = open(&config);
        let disk = pool.logical("a").unwrap();
        assert_eq!(read(&disk, lost[0], CHUNK), vec![6; CHUNK as usize]);
        assert_eq!(read(&disk, lost[1], CHUNK), vec![0; CHUNK as usize]);
        assert_eq!(read(&disk, lost[2], CHUNK), vec![0; CHUNK as usize]);
        assert_eq!(pool.status().logical_disks[0].lost_bytes, (lost.len() as u64 - 3) * CHUNK);
        assert_eq!(read(&pool.logical("thick").unwrap(), 0, MIB), vec![9; MIB as usize]);
        pool.close().unwrap();
        drop((disk, pool));
        // A removed disk that returns is ignored.
        let (pool, opened) = Pool::open(tank.config.clone(), &|_, _| ()).unwrap();
        let note = format!("pool tank: {path} is not one of its disks and is ignored");
        assert!(opened.notes.contains(&note), "{:?}", opened.notes);
        pool.close().unwrap();
    }
}

/// The pool is in write-back mode. A logical disk in write-through mode leaves nothing dirty, and is still read from
/// flash. Writes of one in write-around mode do not reach the flash.
#[test]
fn a_logical_disk_has_a_mode_of_its_own() {
    let tank = Tank::new(true);
    let pool = tank.open();
    let dirty = |pool: &Pool| pool.volume().status().dirty_bytes;
    for (name, mode) in [("through", Mode::WriteThrough), ("around", Mode::WriteAround), ("back", Mode::WriteBack)] {
        let disk = pool.create_logical(&NewLogical { mode: Some(mode), ..new(name, MIB) }).unwrap();
        for byte in 1..3 {
            for at in (0..MIB).step_by(CHUNK as usize) {
                write(&disk, at, CHUNK, byte).unwrap();
            }
        }
        let cached = pool.volume().status().cached_blocks;
        match mode {
            Mode::WriteThrough => assert!(dirty(&pool) == 0 && cached > 0, "{cached}"),
            Mode::WriteAround => assert_eq!(dirty(&pool), 0),
            Mode::WriteBack => assert!(dirty(&pool) > 0),
        }
        assert_eq!(read(&disk, 0, MIB), vec![2; MIB as usize], "{name}");
        assert_eq!(pool.status().logical_disks.iter().find(|disk| disk.name == name).unwrap().mode, mode.name());
    }
    pool.set_mode("back", Mode::WriteThrough).unwrap();
    pool.flush().unwrap();
    pool.close().unwrap();
    drop(pool);
    let pool = tank.open();
    let modes: Vec<_> =
        pool.status().logical_disks.into_iter().map(|disk| (disk.name, disk.mode, disk.cached)).collect();
    let kept = |name: &str, mode: &str| (name.to_owned(), mode.to_owned(), true);
    assert_eq!(
        modes,
        [kept("around", "write-around"), kept("back", "write-through"), kept("through", "write-through")]
    );
    pool.close().unwrap();
}

#[test]
fn a_plan_describes_or_refuses_every_change() {
    let tank = Tank::new(false);
    let pool = tank.open();
    let says = |plan: &Plan, text: &str| assert!(plan.does.iter().any(|line| line.contains(text)), "{text}: {plan:?}");
    let plan = Plan::create(&pool, &NewLogical { thick: true, ..new("a", 20 * MIB) }).unwrap();
    says(&plan, "A logical disk a of 20 MiB is created in pool ");
    says(&plan, "It reserves 20 MiB of the pool now.");
    says(&plan, "87% of the pool will be in use");
    assert!(pool.logical("a").is_err() && !plan.destroys && plan.word.is_none());
    let plan = Plan::create(&pool, &new("a", 64 * MIB)).unwrap();
    says(&plan, "Logical disks will have 64 MiB in total, and the pool has 2");
    let pinned = |bytes| NewLogical { pinned_ram_bytes: bytes, ..new("a", MIB) };
    says(&Plan::create(&pool, &pinned(8192)).unwrap(), "8 KiB of the pool's RAM are reserved for recent reads of a.");
    let refused = [
        NewLogical { thick: true, ..new("a", 64 * MIB) },
        pinned(5000),
        pinned(1 << 40),
        new("..", MIB),
        new(".", MIB),
        new("a", 5000),
    ];
    for new in refused {
        let [plan, done] = [Plan::create(&pool, &new).err(), pool.create_logical(&new).err()];
        assert_eq!(plan.unwrap().to_string(), done.unwrap().to_string());
    }

    let disk = pool.create_logical(&new("a", MIB)).unwrap();
    write(&disk, 0, 2 * CHUNK, 1).unwrap();
    says(&Plan::grow(&pool, "a", 2 * MIB).unwrap(), "a grows from 1 MiB to 2 MiB.");
    let [plan, done] = [Plan::grow(&pool, "a", MIB).err(), pool.grow_logical("a", MIB).err()];
    assert_eq!(plan.unwrap().to_string(), done.unwrap().to_string());
    let plan = Plan::delete(&pool, "a").unwrap();
    says(&plan, "The data on a, 128 KiB, is lost.");
    assert!(plan.destroys && plan.word.as_deref() == Some("a"));
    let guest = disk.enter(Default::default());
    let [plan, done] = [Plan::delete(&pool, "a").err(), pool.delete_logical("a").err()];
    assert_eq!(plan.unwrap().to_string(), done.unwrap().to_string());
    drop(guest);

    says(&Plan::remove(&pool, 1).unwrap(), "128 KiB move from");
    assert_eq!(pool.status().disks[0].state, PoolDiskState::Ok);
    assert!(Plan::remove(&pool, 7).unwrap_err().to_string().contains("it has no disk 7"));
    // Its own disks are in use, whether they are to be wiped or not.
    for (disk, wipe) in
        tank.config.disks.iter().chain([&tank.config.cache.flash]).flat_map(|disk| [(disk, false), (disk, true)])
    {
        let refused = Plan::add(&pool, disk, wipe).unwrap_err().to_string();
        let is_in_use = refused == format!("{}: it is in use by this server", disk.display());
        assert!(is_in_use || !disk.exists() || !wipe, "{refused}");
    }
    let small = tank.config.cache.state_directory.join("small.img");
    std::fs::write(&small, vec![0; 512 << 10]).unwrap();
    let [plan, done] = [Plan::add(&pool, &small, false).err(), pool.add_disk(&small, false).err()];
    assert_eq!(
        plan.unwrap().to_string(),
        format!("{} has 524288 bytes; a disk of a pool needs at least 1 MiB", small.display())
    );
    assert!(done.unwrap().to_string().ends_with("needs at least 1 MiB"));
    let path = tank.config.cache.state_directory.join("new.img");
    std::fs::write(&path, vec![1; 2 * MIB as usize]).unwrap();
    let error = Plan::add(&pool, &path, false).unwrap_err().to_string();
    assert!(error.contains("it holds data of an unknown kind"), "{error}");
    let plan = Plan::add(&pool, &path, true).unwrap();
    says(&plan, "is lost: it holds data of an unknown kind.");
    assert!(plan.destroys && plan.word == Some(path.display().to_string()));
    assert_eq!(std::fs::read(&path).unwrap(), vec![1; 2 * MIB as usize], "nothing is done");
    pool.close().unwrap();
}

/// Reads a part of a logical disk from its end, so that it is no sequential stream.
fn read_back(disk: &flashwise_storage::pool::LogicalDisk, length: u64) {
    (0..length / CHUNK).rev().for_each(|chunk| drop(read(disk, chunk * CHUNK, CHUNK)));
}

/// Half of the 4 MiB of RAM are for reads, and half of these are kept for one of two logical disks of 4 MiB.
#[test]
fn ram_that_is_kept_for_a_logical_disk_is_not_taken_by_reads_of_another() {
    let tank = Tank::new(false);
    let pool = tank.open();
    for name in ["a", "b"] {
        let disk = pool.create_logical(&new(name, 4 * MIB)).unwrap();
        (0..4 * MIB).step_by(CHUNK as usize).for_each(|at| write(&disk, at, CHUNK, 1).unwrap());
        flush(&disk);
    }
    let status =
        |pool: &Pool, name: &str| pool.status().logical_disks.into_iter().find(|disk| disk.name == name).unwrap();
    // Of a MiB of `one` that was read before 4 MiB of `other` were, so many blocks are still in RAM.
    let left = |pool: &Pool, one: &str, other: &str| {
        let disks = [one, other].map(|name| pool.logical(name).unwrap());
        read_back(&disks[0], MIB);
        read_back(&disks[1], 4 * MIB);
        let before = status(pool, one);
        read_back(&disks[0], MIB);
        let after = status(pool, one);
        assert_eq!((after.reads - before.reads, after.read_bytes - before.read_bytes), (256, MIB));
        after.ram_read_hits - before.ram_read_hits
    };
    assert_eq!(left(&pool, "a", "b"), 0);
    assert_eq!(Plan::pin(&pool, "a", MIB).unwrap(), "1 MiB of the pool's RAM are reserved for recent reads of a.");
    pool.set_pinned("a", MIB).unwrap();
    assert_eq!((left(&pool, "a", "b"), left(&pool, "b", "a")), (256, 0));
    let a = status(&pool, "a");
    assert_eq!(a.read_hit_ratio, (a.ram_read_hits + a.flash_read_hits) as f64 / a.reads as f64);
    assert!(a.flash_read_hits == 0 && a.ram_read_hits >= 256);
    let [plan, done] = [Plan::pin(&pool, "b", 2 * MIB).err(), pool.set_pinned("b", 2 * MIB).err()].map(Option::unwrap);
    let expected =
        "found 2MiB of RAM to keep, expected at most the 2MiB of the read buffer, because 1MiB are kept for others";
    assert!(plan.to_string().contains(expected) && plan.to_string() == done.to_string(), "{plan}");
    pool.set_pinned("a", 0).unwrap();
    pool.set_pinned("b", MIB).unwrap();
    assert_eq!(left(&pool, "a", "b"), 0);
    pool.close().unwrap();
    drop(pool);
    let pool = tank.open();
    assert_eq!(["a", "b"].map(|name| status(&pool, name).pinned_ram_bytes), [0, MIB]);
    assert_eq!(left(&pool, "b", "a"), 256);
    pool.delete_logical("b").unwrap();
    pool.set_pinned("a", 2 * MIB).unwrap();
    assert_eq!(status(&pool, "a").pinned_ram_bytes, 2 * MIB);
    pool.close().unwrap();
}

#[test]
fn without_flash_writes_wait_in_ram_until_a_flush() {
    let tank = Tank::new(false);
    let pool = tank.open();
    let disk = pool.create_logical(&new("a", MIB)).unwrap();
    write(&disk, 0, CHUNK, 1).unwrap();
    flush(&disk);
    let status = || pool.volume().status();
    let before = status();
    assert_eq!(before.dirty_bytes, 0);
    for byte in 2..5 {
        write(&disk, 0, CHUNK, byte).unwrap();
    }
    assert_eq!(read(&disk, 0, CHUNK), vec![4; CHUNK as usize]);
    let waiting = status();
    assert_eq!((waiting.dirty_bytes, waiting.cache.ram_write_hits - before.cache.ram_write_hits), (CHUNK, 32));
    assert_eq!(waiting.cache.backend_written_blocks, before.cache.backend_written_blocks);
    flush(&disk);
    let flushed = status();
    assert_eq!(
        (flushed.dirty_bytes, flushed.cache.backend_written_blocks),
        (0, before.cache.backend_written_blocks + 16)
    );
    pool.close().unwrap();
    drop((disk, pool));
    assert_eq!(read(&tank.open().logical("a").unwrap(), 0, CHUNK), vec![4; CHUNK as usize]);
}

#[test]
fn a_disk_is_given_once() {
    let folder = tempfile::tempdir().unwrap();
    let [one, other, link] = ["one", "other", "link"].map(|name| folder.path().join(name));
    for path in [&one, &other] {
        std::fs::File::create(path).unwrap().set_len(8 * MIB).unwrap();
    }
    std::fs::hard_link(&one, &link).unwrap();
    for again in [one.clone(), link, folder.path().join(".").join("one")] {
        let error = prepare::create("tank", &[one.clone(), other.clone(), again.clone()], &[]).err().unwrap();
        let expected = format!("{} and {} are one disk; give it once", one.display(), again.display());
        assert_eq!(error.to_string(), expected);
    }
    prepare::create("tank", &[one, other], &[]).unwrap();
}

/// If the creation of a pool fails, its disks are blank again, even if a thread closes one late. Disks of other pools
/// are unchanged.
#[test]
fn disks_of_a_pool_that_is_unmade_are_blank_once_they_are_let_go_of() {
    let folder = tempfile::tempdir().unwrap();
    let [one, other, foreign] = ["one", "other", "foreign"].map(|name| folder.path().join(name));
    for path in [&one, &other, &foreign] {
        std::fs::File::create(path).unwrap().set_len(8 * MIB).unwrap();
    }
    let is_blank = |path: &std::path::Path| std::fs::read(path).unwrap().iter().all(|byte| *byte == 0);
    drop(prepare::create("another", std::slice::from_ref(&foreign), &[]).unwrap());
    let metadata = prepare::create("tank", &[one.clone(), other.clone()], &[]).unwrap();
    let pool = metadata.pool;
    assert!(!is_blank(&one) && !is_blank(&other));
    let path = one.canonicalize().unwrap();
    let opened = move || {
        let files =
            std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|file| file.unwrap().path().read_link().ok());
        files.filter(|file| *file == path).count()
    };
    let before = opened();
    let held = std::thread::spawn(move || {
        wait_until("whoever unmakes it waits for its lock", || opened() > before);
        drop(metadata);
    });
    prepare::unmake(pool, &[one.clone(), other.clone(), foreign.clone()]).unwrap();
    assert!(is_blank(&one) && is_blank(&other) && !is_blank(&foreign));
    held.join().unwrap();
}
