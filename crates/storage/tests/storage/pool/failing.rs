//! Failing disks of a served pool: the other disks continue to work, and data lost from one logical disk does not
//! affect others.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use flashwise_core::cache::Mode;
use flashwise_storage::disk::Disk;
use flashwise_storage::disk::memory::MemoryDisk;
use flashwise_storage::export::{Error, Operation};
use flashwise_storage::pool::plan::Plan;
use flashwise_storage::pool::status::{PoolDiskState, PoolState};
use flashwise_storage::pool::{CHUNK_BYTES, LogicalDisk, Metadata, NewLogical, Pool, PoolConfig};
use flashwise_testing::waiting::{wait_for, wait_until};

use super::care::disks_of;
use super::live::{Tank, ask, flush, new, read, write};

const MIB: u64 = 1 << 20;
const CHUNK: u64 = CHUNK_BYTES;

/// A disk that fails reads of some bytes, and optionally writes, while that is enabled.
struct Bad {
    disk: MemoryDisk,
    bad: Mutex<std::ops::Range<u64>>,
    takes_writes: AtomicBool,
    /// True if flushes fail.
    loses_flushes: AtomicBool,
    /// True if zeroing and trimming fail.
    keeps: AtomicBool,
}

impl Bad {
    fn new(bytes: u64) -> Arc<Bad> {
        let [takes_writes, loses_flushes, keeps] = [false; 3].map(AtomicBool::new);
        let (disk, bad) = (MemoryDisk::new(bytes as usize), Mutex::new(0..0));
        Arc::new(Bad { disk, bad, takes_writes, loses_flushes, keeps })
    }

    fn set(&self, bad: std::ops::Range<u64>) {
        *self.bad.lock().unwrap() = bad;
    }

    fn check(&self, offset: u64, length: u64) -> std::io::Result<()> {
        let bad = self.bad.lock().unwrap();
        match bad.start < offset + length && offset < bad.end {
            true => Err(std::io::Error::other("bad sector")),
            false => Ok(()),
        }
    }
}

impl Disk for Bad {
    fn size(&self) -> u64 {
        self.disk.size()
    }
    fn description(&self) -> String {
        "bad.img".to_owned()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
        self.check(offset, buffer.len() as u64)?;
        self.disk.read_at(buffer, offset)
    }
    fn write_at(&self, buffer: &[u8], offset: u64) -> std::io::Result<()> {
        if !self.takes_writes.load(Ordering::SeqCst) {
            self.check(offset, buffer.len() as u64)?;
        }
        self.disk.write_at(buffer, offset)
    }
    fn sync(&self) -> std::io::Result<()> {
        match self.loses_flushes.load(Ordering::SeqCst) {
            true => Err(std::io::Error::other("no flush")),
            false => Ok(()),
        }
    }
    fn zero(&self, offset: u64, length: u64, may_punch_holes: bool) -> std::io::Result<()> {
        self.check(offset, length)?;
        if self.keeps.load(Ordering::SeqCst) {
            return Err(std::io::Error::other("it keeps what it has"));
        }
        self.disk.zero(offset, length, may_punch_holes)
    }
    fn discard(&self, _: u64, _: u64) -> std::io::Result<()> {
        Ok(())
    }
}

/// A pool of one disk that is [`Bad`] and two that are not, of 8 MiB each.
fn with_a_bad_disk(flash: bool) -> (Tank, Vec<Arc<dyn Disk>>, Arc<Bad>) {
    with_a_bad_disk_beside(2, flash)
}

/// The same, of so many that are not.
fn with_a_bad_disk_beside(others: usize, flash: bool) -> (Tank, Vec<Arc<dyn Disk>>, Arc<Bad>) {
    let bad = Bad::new(8 * MIB);
    let others = (0..others).map(|_| Arc::new(MemoryDisk::new(8 * MIB as usize)) as Arc<dyn Disk>);
    let disks: Vec<Arc<dyn Disk>> = std::iter::once(bad.clone() as Arc<dyn Disk>).chain(others).collect();
    drop(Metadata::create("tank", disks.clone()).unwrap());
    (Tank::new(flash), disks, bad)
}

/// Where a chunk of a logical disk is on its disk.
fn place_on(pool: &Pool, number: u32) -> (u64, u64) {
    let runs = pool.map_of("a").unwrap();
    let run = runs.iter().find(|run| run.disk == number).unwrap();
    (run.offset_bytes, run.disk_offset_bytes)
}

/// A failed flush may lose data of all clients. Each logical disk with writes reports it once; the others do not.
#[test]
fn each_logical_disk_that_wrote_hears_of_a_flush_that_failed() {
    let (tank, disks, bad) = with_a_bad_disk_beside(0, false);
    let pool = Pool::open_on(tank.config.clone(), disks, &|_, _| ()).unwrap().0;
    let logicals = ["a", "b", "c"].map(|name| pool.create_logical(&new(name, MIB)).unwrap());
    let flushed = |disk: &LogicalDisk| ask(disk, Operation::Flush, 0, 0, Vec::new()).is_ok();
    for disk in &logicals {
        write(disk, 0, MIB, 1).unwrap();
        assert!(flushed(disk));
    }
    for written in [2, 3] {
        logicals[..2].iter().for_each(|disk| write(disk, 0, CHUNK, written).unwrap());
        bad.loses_flushes.store(true, Ordering::SeqCst);
        assert!(!flushed(&logicals[0]));
        bad.loses_flushes.store(false, Ordering::SeqCst);
        assert!(!flushed(&logicals[1]), "it was not told yet");
        assert!(flushed(&logicals[2]), "it had written nothing");
        assert!(logicals.iter().all(|disk| flushed(disk)), "all were told");
    }
}

/// Blocks of a failing disk wait in memory. A write that finds no free chunk gets that error at once, without endless
/// retries.
#[test]
fn a_full_pool_fails_at_once_while_blocks_wait_in_memory() {
    let (tank, disks, bad) = with_a_bad_disk_beside(1, false);
    let mut config = tank.config.clone();
    config.cache.cache.read("sequential-bypass", "0").unwrap();
    let pool = Pool::open_on(config, disks, &|_, _| ()).unwrap().0;
    let striped = |name| pool.create_logical(&NewLogical { striped: true, ..new(name, 64 * MIB) }).unwrap();
    let [full, waits, other] = ["a", "b", "c"].map(striped);
    // A dozen free chunks on each disk.
    let room = pool.status().free_bytes - 24 * CHUNK;
    write(&full, 0, room, 1).unwrap();
    flush(&full);
    // Its labels and the map can be written still.
    bad.set(2 * MIB..8 * MIB);
    [6, 2, 4, 0].into_iter().for_each(|at| write(&waits, at * CHUNK, CHUNK, 2).unwrap());
    ask(&waits, Operation::Flush, 0, 0, Vec::new()).expect_err("a part of it has no place");
    assert!(pool.status().logical_disks[1].unwritten_blocks > 0, "{:?}", pool.status());
    // A write to the failing disk gets another error.
    let mut refused = (0..64).filter_map(|at| write(&other, at * CHUNK, CHUNK, 3).err());
    assert!(refused.any(|error| error == Error::NoSpace));
    bad.set(0..0);
}

/// A chunk was freed and cannot be zeroed. It must not be allocated before it is, because a failed flush could lose the
/// new owner's writes.
#[test]
fn a_chunk_that_cannot_be_zeroed_is_not_allocated() {
    let (tank, disks, bad) = with_a_bad_disk_beside(0, false);
    let pool = Pool::open_on(tank.config.clone(), disks, &|_, _| ()).unwrap().0;
    let disk = pool.create_logical(&new("a", MIB)).unwrap();
    write(&disk, 0, MIB, 1).unwrap();
    flush(&disk);
    drop(disk);
    let free = || pool.status().free_bytes;
    let before = free();
    bad.keeps.store(true, Ordering::SeqCst);
    pool.delete_logical("a").unwrap();
    assert_eq!(free(), before);
    bad.keeps.store(false, Ordering::SeqCst);
    wait_until("they are zeroed and free", || free() == before + MIB);
}

/// An operator's change that cannot become durable is undone, at once and after a restart. It can be repeated.
#[test]
fn a_change_that_cannot_be_made_durable_is_undone() {
    for flash in [false, true] {
        let (tank, disks, bad) = with_a_bad_disk_beside(0, flash);
        let open = || Pool::open_on(tank.config.clone(), disks.clone(), &|_, _| ()).unwrap().0;
        let pool = open();
        let thick = |name, bytes| NewLogical { thick: true, ..new(name, bytes) };
        let disk = pool.create_logical(&thick("a", 3 * MIB)).unwrap();
        write(&disk, 0, 3 * MIB, 1).unwrap();
        flush(&disk);
        let look = |pool: &Pool| {
            let status = pool.status();
            let disks = status.logical_disks.iter().map(|disk| {
                (
                    disk.name.clone(),
                    disk.size_bytes,
                    disk.allocated_bytes,
                    disk.mode.clone(),
                    disk.cached,
                    disk.pinned_ram_bytes,
                )
            });
            (disks.collect::<Vec<_>>(), status.used_bytes, status.free_bytes)
        };
        let before = look(&pool);
        let all_fail = || {
            pool.grow_logical("a", 4 * MIB).unwrap_err();
            pool.set_mode("a", Mode::WriteThrough).unwrap_err();
            pool.set_cached("a", false).unwrap_err();
            pool.set_pinned("a", 4096).unwrap_err();
            pool.create_logical(&thick("b", MIB)).err().unwrap();
            pool.delete_logical("a").unwrap_err();
            // The chunks of what was not made are given back once that can be written down.
            assert_eq!(look(&pool).0, before.0);
        };
        // Without and with client data to flush, and with failures of the map only.
        bad.loses_flushes.store(true, Ordering::SeqCst);
        all_fail();
        write(&disk, 0, CHUNK, 1).unwrap();
        all_fail();
        bad.loses_flushes.store(false, Ordering::SeqCst);
        bad.set(2 * CHUNK..6 * CHUNK);
        all_fail();
        bad.set(0..0);
        // It reports the failed flushes. With a flash, its data is there, and seldom needs such a flush.
        assert!(ask(&disk, Operation::Flush, 0, 0, Vec::new()).is_err() || flash);
        flush(&disk);
        assert_eq!(look(&pool), before);
        pool.grow_logical("a", 3 * MIB + CHUNK).unwrap();
        write(&disk, 3 * MIB, CHUNK, 2).unwrap();
        flush(&disk);
        let grown = look(&pool);
        assert_eq!((grown.1, grown.2), (before.1 + CHUNK, before.2 - CHUNK));
        drop((disk, pool));
        let pool = open();
        assert_eq!(look(&pool), grown);
        assert!(read(&pool.logical("a").unwrap(), 0, MIB).iter().all(|byte| *byte == 1));
        pool.delete_logical("a").unwrap();
        drop(pool);
        assert!(look(&open()).0.is_empty());
    }
}

/// A dead disk that is still there is one that is missing.
#[test]
fn a_disk_that_cannot_be_read_at_a_start_is_missing() {
    let (tank, disks, bad) = with_a_bad_disk(false);
    bad.set(0..8 * MIB);
    let open = |degraded| {
        let config = PoolConfig { degraded, ..tank.config.clone() };
        Pool::open_on(config, disks.clone(), &|_, _| ())
    };
    let error = open(false).err().unwrap().to_string();
    assert!(error.contains("bad.img: bad sector; if the disk is gone, set degraded = true"), "{error}");
    let (pool, opened) = open(true).unwrap();
    assert!(opened.notes.iter().any(|note| note.contains("bad.img cannot be read and is ignored")), "{opened:?}");
    assert_eq!(pool.status().disks[0].state, PoolDiskState::Missing);
    pool.close().unwrap();
    drop(pool);
    bad.set(0..0);
    let (pool, _) = open(false).unwrap();
    assert_eq!(pool.status().disks[0].state, PoolDiskState::Ok);
    pool.close().unwrap();
}

/// A label has two copies, and a map two areas. An unreadable sector in one of them does no harm, unless it may have
/// the newest version.
#[test]
fn a_sector_of_a_label_or_of_the_map_that_cannot_be_read_keeps_no_disk_out() {
    for takes_writes in [true, false] {
        let (tank, disks, bad) = with_a_bad_disk(false);
        bad.takes_writes.store(takes_writes, Ordering::SeqCst);
        let try_open = |degraded| {
            let config = PoolConfig { degraded, ..tank.config.clone() };
            Pool::open_on(config, disks.clone(), &|_, _| ())
        };
        let pool = try_open(false).unwrap().0;
        let disk = pool.create_logical(&NewLogical { striped: true, ..new("a", 3 * MIB) }).unwrap();
        write(&disk, 0, 3 * MIB, 1).unwrap();
        pool.close().unwrap();
        drop((disk, pool));
        // Both copies of the label, the last pages of both areas, and their first.
        let places = [0, CHUNK, 4 * CHUNK - 4096, 6 * CHUNK - 4096, 2 * CHUNK, 4 * CHUNK];
        for (round, at) in places.into_iter().enumerate() {
            bad.set(at..at + 4096);
            let may_be_newest = round >= 4;
            if may_be_newest {
                let error = try_open(false).err().unwrap().to_string();
                assert!(
                    error.contains("bad.img: its map cannot be read, and that of other disks may be older"),
                    "{error}"
                );
            }
            let (pool, opened) = try_open(may_be_newest).unwrap_or_else(|error| panic!("{at}: {error}"));
            assert!(pool.status().disks.iter().all(|disk| disk.state != PoolDiskState::Missing), "{at}: {opened:?}");
            let disk = pool.logical("a").unwrap();
            assert!(read(&disk, 0, 3 * MIB) == vec![round as u8 + 1; 3 * MIB as usize], "{at}");
            write(&disk, 0, 3 * MIB, round as u8 + 2).unwrap();
            flush(&disk);
            pool.create_logical(&new(&format!("b{round}"), 2 * CHUNK)).unwrap();
            pool.close().unwrap();
        }
        bad.set(0..0);
        let pool = try_open(false).unwrap().0;
        assert!(read(&pool.logical("a").unwrap(), 0, 3 * MIB) == vec![7; 3 * MIB as usize]);
        assert_eq!(pool.logical_disks().len(), 7);
        pool.close().unwrap();
    }
}

/// Chunks of a logical disk are on their way to another disk when it is deleted, and another is made.
#[test]
fn late_requests_of_a_deleted_disk_do_not_reach_the_next() {
    for round in 0..12 {
        let (tank, disks, _) = with_a_bad_disk(false);
        let open = || Pool::open_on(tank.config.clone(), disks.clone(), &|_, _| ()).unwrap().0;
        let pool = open();
        let disk = pool.create_logical(&NewLogical { striped: true, ..new("x", 6 * MIB) }).unwrap();
        write(&disk, 0, 6 * MIB, 1).unwrap();
        flush(&disk);
        pool.remove_disk(1).unwrap();
        drop(disk);
        // More of its 48 chunks each time.
        let left = || disks_of(&pool, "x").values().filter(|disk| **disk == 1).count();
        wait_until("chunks have moved", || left() <= 48 - 4 * round);
        pool.delete_logical("x").unwrap();
        let small = pool.create_logical(&new("y", CHUNK)).unwrap();
        write(&small, 0, CHUNK, 2).unwrap();
        flush(&small);
        let large = pool.create_logical(&NewLogical { striped: true, ..new("z", 6 * MIB) }).unwrap();
        write(&large, 0, 6 * MIB, 3).unwrap();
        flush(&large);
        // As after a crash.
        drop((small, large, pool));
        let pool = open();
        assert!(read(&pool.logical("y").unwrap(), 0, CHUNK) == vec![2; CHUNK as usize], "round {round}");
        assert!(read(&pool.logical("z").unwrap(), 0, 6 * MIB) == vec![3; 6 * MIB as usize], "round {round}");
        pool.close().unwrap();
    }
}

/// A disk that did not take a change of the map has it soon after it takes writes again, whether or not anything else
/// changes.
#[test]
fn a_stale_disk_is_brought_up_to_date_by_itself() {
    let (tank, disks, bad) = with_a_bad_disk(false);
    let pool = Pool::open_on(tank.config.clone(), disks.clone(), &|_, _| ()).unwrap().0;
    bad.set(0..8 * MIB);
    pool.create_logical(&new("a", MIB)).unwrap();
    assert_eq!(pool.status().disks[0].state, PoolDiskState::Stale);
    bad.set(0..0);
    wait_until("the disk is up to date", || {
        // Independent of other pending work.
        pool.flush().unwrap();
        pool.status().disks[0].state != PoolDiskState::Stale
    });
    // As after a crash, with only that disk.
    drop(pool);
    let config = PoolConfig { degraded: true, ..tank.config.clone() };
    let pool = Pool::open_on(config, disks[..1].to_vec(), &|_, _| ()).unwrap().0;
    assert!(pool.logical("a").is_ok());
    pool.close().unwrap();
}

/// Readable data of a disk with a bad sector moves, and the rest when it becomes readable. Until then the evacuation
/// can be cancelled.
#[test]
fn a_disk_with_a_bad_sector_is_emptied_of_all_else() {
    let (tank, disks, bad) = with_a_bad_disk(false);
    let open = || Pool::open_on(tank.config.clone(), disks.clone(), &|_, _| ()).unwrap().0;
    let pool = open();
    let disk = pool.create_logical(&NewLogical { striped: true, ..new("a", 6 * MIB) }).unwrap();
    write(&disk, 0, 6 * MIB, 1).unwrap();
    pool.close().unwrap();
    drop((disk, pool));
    // Nothing of it is in RAM.
    let pool = open();
    let (_, at) = place_on(&pool, 1);
    bad.set(at + 8192..at + 12_288);
    let used = pool.status().disks[0].used_bytes;
    assert!(used > 20 * CHUNK, "{used}");
    for stays in [true, false] {
        pool.remove_disk(1).unwrap();
        // As often as it is asked for, others have no less room.
        pool.remove_disk(1).unwrap();
        let stuck = || pool.status().disks[0].failed.clone().filter(|_| pool.status().disks[0].used_bytes == CHUNK);
        let reason = wait_for("it is stuck", stuck);
        let expected = "disk 1: a chunk could not be moved, and will be retried: chunk ";
        assert!(
            reason.contains(expected) && reason.ends_with(" of logical disk a cannot be read: input/output error"),
            "{reason}"
        );
        assert!(pool.status().warning.unwrap().contains(&reason));
        let (size, free) = (pool.status().size_bytes, pool.status().free_bytes);
        assert_eq!(free, size - pool.status().used_bytes, "what it needs is set aside");
        if stays {
            assert_eq!(
                Plan::keep(&pool, 1).unwrap().does[0],
                "bad.img is no longer being emptied, and stays in pool tank."
            );
            pool.keep_disk(1).unwrap();
            assert_eq!((pool.status().disks[0].state, &pool.status().disks[0].failed), (PoolDiskState::Ok, &None));
            let error = pool.keep_disk(1).unwrap_err().to_string();
            assert_eq!(error, "pool 'tank': disk 1, bad.img, is not being emptied");
        }
    }
    pool.create_logical(&new("b", MIB)).unwrap();
    bad.set(0..0);
    wait_until("the disk has gone", || pool.status().disks.len() < 3);
    assert_eq!(read(&pool.logical("a").unwrap(), 0, 6 * MIB), vec![1; 6 * MIB as usize]);
    assert!(bad.disk.contents()[..MIB as usize].iter().all(|byte| *byte == 0), "it is blank");
    pool.close().unwrap();
}

/// Without a flash, a block that a disk rejected waits in memory. Each flush of its logical disk fails; flushes of
/// others do not. A disk that rejects everything counts as failed. Once it accepts the block, nothing is lost.
#[test]
fn losses_of_one_logical_disk_do_not_affect_others() {
    let (tank, disks, bad) = with_a_bad_disk(false);
    let pool = Pool::open_on(tank.config.clone(), disks.clone(), &|_, _| ()).unwrap().0;
    let disk = pool.create_logical(&NewLogical { striped: true, ..new("a", MIB) }).unwrap();
    let other = pool.create_logical(&NewLogical { striped: true, ..new("b", MIB) }).unwrap();
    [&disk, &other].into_iter().for_each(|disk| write(disk, 0, MIB, 1).unwrap());
    flush(&disk);
    let (offset, at) = place_on(&pool, 1);
    bad.set(at..at + 4096);
    write(&disk, offset, 4096, 2).unwrap();
    let try_flush = |disk: &LogicalDisk| ask(disk, Operation::Flush, 0, 0, Vec::new());
    try_flush(&disk).unwrap_err();
    write(&other, 0, 4096, 3).unwrap();
    try_flush(&other).unwrap();
    try_flush(&disk).unwrap_err();
    assert!(read(&disk, offset, 4096) == vec![2; 4096], "it waits in memory");
    // Nor is it one of the map.
    let third = pool.create_logical(&new("c", MIB)).unwrap();
    write(&third, 0, MIB, 4).unwrap();
    flush(&third);
    assert_eq!(pool.status().state, PoolState::Ok);
    // A flush of the pool reports all of them.
    let error = pool.flush().unwrap_err().to_string();
    assert!(error.contains("blocks wait in memory for space"), "{error}");
    let status = pool.status();
    let waiting: Vec<_> = status.logical_disks.iter().map(|disk| (disk.unwritten_blocks, disk.lost_bytes)).collect();
    assert_eq!(waiting, [(1, 0), (0, 0), (0, 0)]);
    let expected = "1 acknowledged blocks of a wait in memory, because bad.img rejects them: its flushes fail";
    assert_eq!(status.warning.as_deref(), Some(expected));
    wait_until("the disk is known to fail", || {
        let is_known = pool.status().state != PoolState::Ok;
        if !is_known {
            let _ = write(&disk, offset, 4096, 2).and_then(|()| try_flush(&disk).map(drop));
        }
        is_known
    });
    let status = pool.status();
    assert_eq!(status.disks[0].state, PoolDiskState::Failed);
    let reason = status.disks[0].failed.clone().unwrap();
    assert!(reason.starts_with("all writes have failed for ") && reason.contains("bad sector"), "{reason}");
    assert!(status.warning.unwrap().starts_with(&format!("bad.img: {reason}")));
    assert_eq!(pool.failed_disks(), [format!("bad.img: {reason}")]);
    bad.set(0..0);
    wait_until("it is flushed", || pool.status().state == PoolState::Ok && try_flush(&disk).is_ok());
    assert_eq!(pool.status().warning, None);
    pool.close().unwrap();
    drop((disk, other, third, pool));
    let pool = Pool::open_on(tank.config.clone(), disks, &|_, _| ()).unwrap().0;
    assert!(read(&pool.logical("a").unwrap(), offset, 4096) == vec![2; 4096]);
    pool.close().unwrap();
}

/// A first write to a chunk that is lost, and chunks given up that are: the flushes of others, and management, go on.
#[test]
fn losses_of_new_and_freed_chunks_do_not_affect_others() {
    let (tank, disks, bad) = with_a_bad_disk(false);
    let pool = Pool::open_on(tank.config.clone(), disks.clone(), &|_, _| ()).unwrap().0;
    let disk = pool.create_logical(&NewLogical { striped: true, ..new("a", 2 * MIB) }).unwrap();
    let other = pool.create_logical(&NewLogical { striped: true, ..new("b", MIB) }).unwrap();
    write(&disk, 0, MIB, 1).unwrap();
    write(&other, 0, 3 * CHUNK, 1).unwrap();
    flush(&disk);
    let (at, _) = disks_of(&pool, "b").into_iter().find(|(_, disk)| *disk != 1).unwrap();
    bad.set(11 * CHUNK..8 * MIB);
    let try_flush = |disk: &LogicalDisk| ask(disk, Operation::Flush, 0, 0, Vec::new());
    // New chunks, on all disks.
    write(&disk, MIB, MIB / 2, 2).unwrap();
    try_flush(&disk).unwrap_err();
    let changed = |byte| {
        write(&other, at, 4096, byte).unwrap_or_else(|error| panic!("{byte}: {error}"));
        try_flush(&other).unwrap_or_else(|error| panic!("{byte}: {error}"));
    };
    changed(3);
    pool.create_logical(&new("c", MIB)).unwrap();
    let _ = ask(&disk, Operation::Trim, 0, MIB, Vec::new());
    changed(4);
    pool.create_logical(&new("d", MIB)).unwrap();
    drop(disk);
    pool.delete_logical("a").unwrap();
    changed(5);
    assert!(pool.logical("a").is_err());
    bad.set(0..0);
    wait_until("what was given up is free", || {
        let _ = pool.flush();
        pool.status().used_bytes <= MIB
    });
    pool.close().unwrap();
    drop((other, pool));
    let pool = Pool::open_on(tank.config.clone(), disks, &|_, _| ()).unwrap().0;
    assert!(read(&pool.logical("b").unwrap(), at, 4096) == vec![5; 4096]);
    pool.close().unwrap();
}

/// The error about a block lost with the flash names its logical disk and the position there.
#[test]
fn lost_blocks_name_their_logical_disk() {
    let disks: Vec<Arc<dyn Disk>> = vec![Arc::new(MemoryDisk::new(8 * MIB as usize))];
    drop(Metadata::create("tank", disks.clone()).unwrap());
    let tank = Tank::new(true);
    let open = || Pool::open_on(tank.config.clone(), disks.clone(), &|_, _| ()).unwrap().0;
    let pool = open();
    let names = ["a", "b"];
    let [_, disk] = names.map(|name| pool.create_logical(&new(name, MIB)).unwrap());
    write(&disk, 0, MIB, 1).unwrap();
    let at = 3 * CHUNK + 5 * 4096;
    write(&disk, at, 4096, 0xa7).unwrap();
    flush(&disk);
    pool.close().unwrap();
    drop((disk, pool));
    let mut flash = std::fs::read(&tank.config.cache.flash).unwrap();
    let page = flash.chunks(4096).position(|page| page.iter().all(|byte| *byte == 0xa7)).unwrap();
    flash[page * 4096] ^= 1;
    std::fs::write(&tank.config.cache.flash, flash).unwrap();

    let pool = open();
    let disk = pool.logical("b").unwrap();
    assert_eq!(ask(&disk, Operation::Read, at, 4096, Vec::new()), Err(Error::Io));
    let told =
        || pool.status().logical_disks.into_iter().map(|disk| (disk.lost_bytes, disk.lost_blocks)).collect::<Vec<_>>();
    assert_eq!(told(), [(0, vec![]), (4096, vec![at / 4096])]);
    let warning = pool.status().warning.unwrap();
    assert!(
        warning.contains("4 KiB of logical disks are lost") && warning.ends_with("new data is written there (b)"),
        "{warning}"
    );
    let lost = |name| {
        let runs = pool.map_of(name).unwrap().into_iter().filter(|run| run.lost);
        runs.map(|run| (run.offset_bytes, run.length_bytes)).collect::<Vec<_>>()
    };
    assert_eq!(names.map(lost), [vec![], vec![(at, 4096)]]);
    write(&disk, at, 4096, 2).unwrap();
    assert_eq!((told(), names.map(lost)), (vec![(0, vec![]); 2], [vec![], vec![]]));
    pool.close().unwrap();
}

/// A disk that missed a change of the map has all of it before the one that has it is taken out.
#[test]
fn the_map_is_on_those_that_stay_before_a_disk_goes() {
    let bad = Bad::new(8 * MIB);
    let good = Arc::new(MemoryDisk::new(8 * MIB as usize));
    let disks: Vec<Arc<dyn Disk>> = vec![good.clone(), bad.clone()];
    drop(Metadata::create("tank", disks.clone()).unwrap());
    let tank = Tank::new(false);
    let pool = Pool::open_on(tank.config.clone(), disks.clone(), &|_, _| ()).unwrap().0;
    let disk = pool.create_logical(&NewLogical { striped: true, ..new("a", 2 * MIB) }).unwrap();
    write(&disk, 0, 2 * MIB, 1).unwrap();
    flush(&disk);
    bad.set(0..8 * MIB);
    pool.create_logical(&new("b", MIB)).unwrap();
    assert_eq!(pool.status().disks[1].state, PoolDiskState::Stale);
    bad.set(0..0);
    pool.remove_disk(1).unwrap();
    wait_until("the disk has gone", || pool.status().disks.len() < 2);
    assert!(good.contents()[..MIB as usize].iter().all(|byte| *byte == 0), "it is blank");
    flush(&disk);
    // As after a crash.
    let left = MemoryDisk::new(8 * MIB as usize);
    left.write_at(&bad.disk.contents(), 0).unwrap();
    let again = Pool::open_on(tank.config.clone(), vec![Arc::new(left)], &|_, _| ()).unwrap().0;
    assert!(read(&again.logical("a").unwrap(), 0, 2 * MIB) == vec![1; 2 * MIB as usize]);
    assert!(again.logical("b").is_ok());
    pool.close().unwrap();
    again.close().unwrap();
}
