//! An open pool as its clients see it: they read their own writes, through all events.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;

use flashwise_core::filter::{Caching, Client};
use flashwise_storage::disk::Disk;
use flashwise_storage::disk::memory::MemoryDisk;
use flashwise_storage::export::{Error, Export, Operation, Request};
use flashwise_storage::pool::status::{PoolDiskState, PoolState};
use flashwise_storage::pool::{CHUNK_BYTES, LogicalDisk, NewLogical, Pool, PoolConfig, prepare};
use flashwise_storage::volume::VolumeConfig;
use flashwise_testing::waiting::wait_until;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
const CHUNK: u64 = CHUNK_BYTES;

pub fn config(folder: &Path, flash: bool) -> PoolConfig {
    let flash_path = if flash { folder.join("flash.img") } else { PathBuf::new() };
    let mut cache = VolumeConfig::of("tank", Path::new(""), &flash_path);
    cache.flash_size_bytes = flash.then_some(16 * MIB);
    cache.state_directory = folder.to_owned();
    cache.cache = flashwise_core::cache::settings::Settings::of(&[("ram", "4MiB"), ("erase-unit", "1MiB")]).unwrap();
    PoolConfig { disks: Vec::new(), degraded: false, cache }
}

/// A pool of three files of 8 MiB.
pub struct Tank {
    /// Removed with it.
    _folder: TempDir,
    pub config: PoolConfig,
}

impl Tank {
    pub fn new(flash: bool) -> Tank {
        let folder = TempDir::new().unwrap();
        let mut config = config(folder.path(), flash);
        for number in 0..3 {
            let path = folder.path().join(format!("disk{number}.img"));
            std::fs::File::create(&path).unwrap().set_len(8 * MIB).unwrap();
            config.disks.push(path);
        }
        drop(prepare::create("tank", &config.disks, &[]).unwrap());
        Tank { _folder: folder, config }
    }

    pub fn open(&self) -> Pool {
        Pool::open(self.config.clone(), &|_, _| ()).unwrap().0
    }
}

pub fn new(name: &str, size_bytes: u64) -> NewLogical {
    let (mode, pinned_ram_bytes) = (None, 0);
    NewLogical { name: name.to_owned(), size_bytes, thick: false, striped: false, cached: true, mode, pinned_ram_bytes }
}

fn ask_with(disk: &LogicalDisk, request: Request) -> Result<Vec<u8>, Error> {
    let (sender, receiver) = channel();
    disk.submit(request, Box::new(move |result| sender.send(result).unwrap()));
    receiver.recv().unwrap()
}

pub fn ask(
    disk: &LogicalDisk,
    operation: Operation,
    offset: u64,
    length: u64,
    data: Vec<u8>,
) -> Result<Vec<u8>, Error> {
    let caching = Caching::Usual;
    ask_with(disk, Request { operation, offset, length, force_unit_access: false, data, caching })
}

pub fn read(disk: &LogicalDisk, offset: u64, length: u64) -> Vec<u8> {
    ask(disk, Operation::Read, offset, length, Vec::new()).unwrap()
}

pub fn write(disk: &LogicalDisk, offset: u64, length: u64, byte: u8) -> Result<(), Error> {
    ask(disk, Operation::Write, offset, length, vec![byte; length as usize]).map(drop)
}

pub fn flush(disk: &LogicalDisk) {
    ask(disk, Operation::Flush, 0, 0, Vec::new()).unwrap();
}

fn random(seed: u64) -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(seed)
}

#[test]
fn clients_read_their_writes_from_all_disks_and_after_a_restart() {
    for flash in [false, true] {
        let tank = Tank::new(flash);
        let mut models: BTreeMap<&str, Vec<u8>> = BTreeMap::new();
        let size = 3 * MIB + 4096;
        let mut random = random(7);
        for round in 0..3 {
            let pool = tank.open();
            if round == 0 {
                for (name, thick, striped) in
                    [("linear", false, false), ("striped", false, true), ("thick", true, true)]
                {
                    pool.create_logical(&NewLogical { thick, striped, ..new(name, size) }).unwrap();
                    models.insert(name, vec![0; size as usize]);
                }
            }
            for (name, model) in &mut models {
                let disk = pool.logical(name).unwrap();
                assert_eq!(read(&disk, 0, size), *model, "{name}, round {round}, flash {flash}");
                for _ in 0..150 {
                    let offset = random.random_range(0..size);
                    let length = random.random_range(1..=(size - offset).min(3 * CHUNK));
                    let (from, to) = (offset as usize, (offset + length) as usize);
                    match random.random_range(0..10u32) {
                        0..6 => {
                            let byte = random.random_range(1..=255u8);
                            write(&disk, offset, length, byte).unwrap();
                            model[from..to].fill(byte);
                        }
                        6 => {
                            let zeroes = Operation::WriteZeroes { may_punch_holes: true, only_if_fast: false };
                            ask(&disk, zeroes, offset, length, Vec::new()).unwrap();
                            model[from..to].fill(0);
                        }
                        7 => {
                            ask(&disk, Operation::Trim, offset, length, Vec::new()).unwrap();
                            // As before, or zeroes: what it is now stays.
                            let now = read(&disk, offset, length);
                            assert!(now.iter().zip(&model[from..to]).all(|(now, before)| *now == 0 || now == before));
                            model[from..to].copy_from_slice(&now);
                        }
                        8 => flush(&disk),
                        _ => assert_eq!(read(&disk, offset, length), model[from..to], "{name} at {offset}"),
                    }
                }
                let extents = disk.extents(0, size, 1000).unwrap();
                assert_eq!(extents.iter().map(|extent| extent.length).sum::<u64>(), size);
                let mut at = 0;
                for extent in extents {
                    let bytes = &model[at..at + extent.length as usize];
                    assert!(!extent.zero || bytes.iter().all(|byte| *byte == 0), "a hole that is none at {at}");
                    at += extent.length as usize;
                }
            }
            pool.close().unwrap();
        }
    }
}

/// Unflushed data may be lost; flushed data is present.
#[test]
fn flushed_data_survives_a_killed_server() {
    for flash in [false, true] {
        let tank = Tank::new(flash);
        let pool = tank.open();
        let disk = pool.create_logical(&new("a", 4 * MIB)).unwrap();
        write(&disk, 5000, 100_000, 1).unwrap();
        flush(&disk);
        let data = vec![2; 4096];
        let request = Request {
            operation: Operation::Write,
            offset: 2 * MIB,
            length: 4096,
            force_unit_access: true,
            data,
            caching: Caching::Usual,
        };
        ask_with(&disk, request).unwrap();
        write(&disk, 3 * MIB, 4096, 3).unwrap();
        // Copies of the files, as a crash would leave them.
        let crashed = TempDir::new().unwrap();
        let mut config = tank.config.clone();
        for path in config.disks.iter_mut().chain(flash.then_some(&mut config.cache.flash)) {
            let copy = crashed.path().join(path.file_name().unwrap());
            std::fs::copy(&*path, &copy).unwrap();
            *path = copy;
        }
        config.cache.state_directory = crashed.path().to_owned();
        let after = Pool::open(config, &|_, _| ()).unwrap().0;
        let seen = after.logical("a").unwrap();
        assert_eq!(read(&seen, 5000, 100_000), vec![1; 100_000], "flash {flash}");
        assert_eq!(read(&seen, 0, 5000), vec![0; 5000]);
        assert_eq!(read(&seen, 2 * MIB, 4096), vec![2; 4096]);
        let unflushed = read(&seen, 3 * MIB, 4096);
        assert!(unflushed == vec![0; 4096] || unflushed == vec![3; 4096]);
        after.close().unwrap();
        pool.close().unwrap();
    }
}

#[test]
fn a_new_logical_disk_reads_zeroes_where_a_deleted_one_was() {
    for flash in [false, true] {
        let tank = Tank::new(flash);
        let pool = tank.open();
        for round in 0..4u8 {
            let disk = pool.create_logical(&new("a", 20 * MIB)).unwrap();
            assert!(read(&disk, 0, 20 * MIB).iter().all(|byte| *byte == 0), "round {round}");
            write(&disk, 0, 20 * MIB, round + 1).unwrap();
            // Part of a block of each chunk of another, which gets the freed chunks.
            drop(disk);
            pool.delete_logical("a").unwrap();
            let other = pool.create_logical(&new("b", 20 * MIB)).unwrap();
            for at in (0..20 * MIB).step_by(CHUNK as usize) {
                write(&other, at + 100, 50, 9).unwrap();
            }
            for at in (0..20 * MIB).step_by(CHUNK as usize) {
                let bytes = read(&other, at, CHUNK);
                let is_right = |(at, byte): (usize, &u8)| *byte == if (100..150).contains(&at) { 9 } else { 0 };
                assert!(bytes.iter().enumerate().all(is_right), "round {round}, at {at}");
            }
            drop(other);
            pool.delete_logical("b").unwrap();
        }
        assert_eq!(pool.status().used_bytes, 0);
        pool.close().unwrap();
    }
}

/// Without the flash that had the data, a logical disk reads as zeroes. It never shows earlier contents of the disks,
/// or data of others.
#[test]
fn earlier_contents_of_disks_are_never_read() {
    const BEFORE: u8 = 0xee;
    let tank = Tank::new(true);
    for path in &tank.config.disks {
        std::fs::write(path, vec![BEFORE; 8 * MIB as usize]).unwrap();
    }
    drop(prepare::create("tank", &tank.config.disks, &tank.config.disks).unwrap());
    let pool = tank.open();
    let disks = [false, true].map(|thick| {
        let name = if thick { "thick" } else { "thin" };
        pool.create_logical(&NewLogical { thick, ..new(name, 4 * MIB) }).unwrap()
    });
    for disk in &disks {
        // Whole chunks, blocks, and parts of blocks.
        for (number, length) in [4 * CHUNK, CHUNK, 4096, 8192, 100].into_iter().enumerate() {
            write(disk, number as u64 * 8 * CHUNK, length, 1).unwrap();
            write(disk, number as u64 * 8 * CHUNK + 6 * CHUNK - 4096, 8192, 1).unwrap();
        }
        ask(disk, Operation::Flush, 0, 0, Vec::new()).unwrap();
    }
    drop(disks);
    pool.close().unwrap();
    drop(pool);
    std::fs::remove_file(&tank.config.cache.flash).unwrap();
    let mut config = tank.config.clone();
    config.cache.discard_cache = true;
    let pool = Pool::open(config, &|_, _| ()).unwrap().0;
    for name in ["thin", "thick"] {
        let bytes = read(&pool.logical(name).unwrap(), 0, 4 * MIB);
        assert_eq!(bytes.iter().position(|byte| *byte == BEFORE), None, "{name}");
    }
    pool.close().unwrap();
}

#[test]
fn a_full_pool_says_so_and_goes_on_once_there_is_space() {
    let tank = Tank::new(false);
    let pool = tank.open();
    let free = pool.status().free_bytes;
    let disk = pool.create_logical(&new("a", 64 * MIB)).unwrap();
    let error = pool.create_logical(&NewLogical { thick: true, ..new("b", free + 4096) }).err().unwrap().to_string();
    assert!(error.contains(&format!("{} bytes are needed, {free} are free", free + CHUNK)), "{error}");
    assert!(pool.logical("b").is_err(), "nothing is left of what did not fit");
    let mut written = 0;
    while write(&disk, written, CHUNK, 1).is_ok() {
        written += CHUNK;
        assert_eq!(pool.status().warning.is_some(), written * 100 >= free * 80, "{written} of {free}");
    }
    assert_eq!(written, free);
    assert_eq!(write(&disk, written, 4096, 1), Err(Error::NoSpace));
    assert_eq!(write(&disk, 0, 4096, 2), Ok(()), "what has its place can be written");
    ask(&disk, Operation::Trim, 0, 2 * CHUNK, Vec::new()).unwrap();
    assert_eq!(write(&disk, written, 2 * CHUNK, 3), Ok(()), "a chunk that was given up is given away");
    assert_eq!(write(&disk, 0, 4096, 1), Err(Error::NoSpace));
    assert_eq!(read(&disk, 0, CHUNK), vec![0; CHUNK as usize]);
    assert_eq!(read(&disk, written, 2 * CHUNK), vec![3; 2 * CHUNK as usize]);
    pool.close().unwrap();
}

/// Chunks zeroed by clients need no space. At the end, all parts of such a chunk have been zeroed.
#[test]
fn chunks_that_are_zeroed_or_trimmed_whole_are_given_back() {
    let tank = Tank::new(true);
    let pool = tank.open();
    let free = pool.status().free_bytes;
    let disk = pool.create_logical(&new("a", 4 * CHUNK + 4096)).unwrap();
    assert_eq!(u64::from(disk.trim_granularity()), CHUNK);
    let zeroes = |may_punch_holes| Operation::WriteZeroes { may_punch_holes, only_if_fast: false };
    for (operation, end, left) in [
        (zeroes(true), 4 * CHUNK + 4096, 0),
        (zeroes(true), 3 * CHUNK + 4096, 2),
        (zeroes(false), 4 * CHUNK, 5),
        (Operation::Trim, 4 * CHUNK + 4096, 0),
        (Operation::Trim, 4 * CHUNK + 512, 1),
    ] {
        write(&disk, 0, 4 * CHUNK + 4096, 7).unwrap();
        ask(&disk, operation, 0, end, Vec::new()).unwrap();
        ask(&disk, Operation::Flush, 0, 0, Vec::new()).unwrap();
        assert_eq!(free - pool.status().free_bytes, left * CHUNK, "{operation:?} to {end}");
        let (zeroed, rest) = (end / CHUNK * CHUNK, 4 * CHUNK + 4096);
        assert_eq!(read(&disk, 0, zeroed), vec![0; zeroed as usize]);
        if end == 3 * CHUNK + 4096 {
            assert_eq!(read(&disk, end, rest - end), vec![7; (rest - end) as usize]);
        }
    }
    pool.close().unwrap();
}

#[test]
fn a_logical_disk_grows_while_it_is_used_and_is_not_deleted_while_it_is() {
    let tank = Tank::new(false);
    let pool = tank.open();
    for thick in [false, true] {
        let name = if thick { "thick" } else { "thin" };
        let disk = pool.create_logical(&NewLogical { thick, ..new(name, MIB + 4096) }).unwrap();
        write(&disk, MIB, 4096, 5).unwrap();
        pool.grow_logical(name, 3 * MIB).unwrap();
        assert_eq!(disk.size(), 3 * MIB);
        assert_eq!(read(&disk, MIB + 4096, 2 * MIB - 4096), vec![0; (2 * MIB - 4096) as usize]);
        write(&disk, 3 * MIB - 4096, 4096, 6).unwrap();
        let error = pool.grow_logical(name, MIB).unwrap_err().to_string();
        assert!(error.contains("it can only grow"), "{error}");
        let guest = disk.enter(Client::default());
        let error = pool.delete_logical(name).unwrap_err().to_string();
        assert!(error.contains("in use"), "{error}");
        drop(guest);
    }
    pool.close().unwrap();
    drop(pool);
    let pool = tank.open();
    let disk = pool.logical("thick").unwrap();
    assert_eq!(read(&disk, MIB, 4096), vec![5; 4096]);
    assert_eq!(read(&disk, 3 * MIB - 4096, 4096), vec![6; 4096]);
    pool.delete_logical("thick").unwrap();
    assert_eq!(ask(&disk, Operation::Read, 0, 4096, Vec::new()), Err(Error::ShuttingDown));
    let error = pool.logical("thick").err().unwrap().to_string();
    assert!(error.contains("no logical disk 'thick', expected one of: thin"), "{error}");
    pool.close().unwrap();
}

#[test]
fn without_a_disk_its_chunks_answer_with_an_error_and_the_others_are_served() {
    for flash in [false, true] {
        let tank = Tank::new(flash);
        let pool = tank.open();
        let disk = pool.create_logical(&NewLogical { striped: true, ..new("a", MIB) }).unwrap();
        write(&disk, 0, MIB, 4).unwrap();
        flush(&disk);
        let runs = pool.map_of("a").unwrap();
        let disks: std::collections::BTreeSet<_> = runs.iter().map(|run| run.disk).collect();
        assert_eq!(disks.len(), 3, "{runs:?}");
        pool.close().unwrap();
        drop((disk, pool));
        let mut config = tank.config.clone();
        config.disks.remove(1);
        let error = Pool::open(config.clone(), &|_, _| ()).err().unwrap().to_string();
        assert!(error.contains("disk1.img"), "{error}");
        config.degraded = true;
        let pool = Pool::open(config, &|_, _| ()).unwrap().0;
        let status = pool.status();
        assert_eq!((status.state, status.disks[1].state), (PoolState::Degraded, PoolDiskState::Missing));
        let missing: u64 = runs.iter().filter(|run| run.disk == 2).map(|run| run.length_bytes).sum();
        assert_eq!(status.logical_disks[0].missing_bytes, missing);
        let disk = pool.logical("a").unwrap();
        let mut failed = 0;
        for at in (0..MIB).step_by(CHUNK as usize) {
            let result = ask(&disk, Operation::Read, at, CHUNK, Vec::new());
            let is_missing = runs.iter().any(|run| {
                run.disk == 2 && (0..run.length_bytes / CHUNK).any(|k| run.offset_bytes + k * run.step_bytes == at)
            });
            assert_eq!(result.is_err(), is_missing, "at {at}");
            assert_eq!(write(&disk, at, 4096, 4).is_err(), is_missing);
            failed += u64::from(is_missing);
        }
        assert_eq!(failed * CHUNK, missing);
        pool.close().unwrap();
        drop((disk, pool));
        let pool = tank.open();
        assert_eq!(read(&pool.logical("a").unwrap(), 0, MIB), vec![4; MIB as usize], "it is back");
        pool.close().unwrap();
    }
}

#[test]
fn a_disk_is_emptied_and_taken_out_while_clients_write() {
    for flash in [false, true] {
        let tank = Tank::new(flash);
        let pool = tank.open();
        let size = 6 * MIB;
        let disk = pool.create_logical(&NewLogical { striped: true, ..new("a", size) }).unwrap();
        pool.create_logical(&NewLogical { striped: true, thick: true, ..new("thick", MIB) }).unwrap();
        write(&disk, 0, size, 1).unwrap();
        let mut model = vec![1; size as usize];
        pool.remove_disk(1).unwrap();
        let mut random = random(3);
        let mut writes = 0;
        while pool.status().disks.len() == 3 {
            let at = random.random_range(0..size / 4096) * 4096;
            let byte = random.random_range(0..=255u8);
            write(&disk, at, 4096, byte).unwrap();
            model[at as usize..][..4096].fill(byte);
            writes += 1;
            assert_eq!(pool.status().disks[0].failed, None);
        }
        assert!(read(&disk, 0, size) == model, "after {writes} writes");
        // It belongs to no pool any more, and can come back as a new one.
        let path = tank.config.disks[0].clone();
        assert!(pool.map_of("a").unwrap().iter().all(|run| run.path != path.display().to_string()));
        assert_eq!(pool.add_disk(&path, false).unwrap(), 4);
        pool.remove_disk(2).unwrap();
        wait_until("the disk has gone", || pool.status().disks.len() < 3);
        assert!(read(&disk, 0, size) == model);
        pool.close().unwrap();
        drop((disk, pool));
        let mut config = tank.config.clone();
        config.disks.remove(1);
        let pool = Pool::open(config, &|_, _| ()).unwrap().0;
        assert!(read(&pool.logical("a").unwrap(), 0, size) == model);
        let error = pool.remove_disk(3).and_then(|()| pool.remove_disk(4)).unwrap_err().to_string();
        assert!(error.contains("are free") || error.contains("cannot be removed"), "{error}");
        pool.close().unwrap();
    }
}

#[test]
fn clients_that_write_side_by_side_to_new_chunks_all_find_their_bytes() {
    let tank = Tank::new(true);
    let pool = tank.open();
    let disk = pool.create_logical(&new("a", 8 * MIB)).unwrap();
    std::thread::scope(|scope| {
        for number in 0..8u64 {
            let disk = &disk;
            // Each has every eighth 512 bytes of all chunks, so that all meet in each.
            scope.spawn(move || {
                for at in (number * 512..8 * MIB).step_by(4096) {
                    write(disk, at, 512, number as u8 + 1).unwrap();
                    if at % (64 * 4096) == number * 512 {
                        flush(disk);
                    }
                }
            });
        }
    });
    let bytes = read(&disk, 0, 8 * MIB);
    let is_right = |(at, byte): (usize, &u8)| *byte == (at / 512 % 8) as u8 + 1;
    assert!(bytes.iter().enumerate().all(is_right));
    pool.close().unwrap();
}

/// Makes 100,000 random creations, growths and deletions, with writes in between. A model knows the number of chunks of
/// each logical disk. The pool restarts after every 10,000 changes.
#[test]
fn a_hundred_thousand_random_changes_match_the_model() {
    const CHANGES: u32 = 100_000;
    let disks: Vec<Arc<dyn Disk>> = (0..3).map(|_| Arc::new(MemoryDisk::new(2 << 20)) as Arc<dyn Disk>).collect();
    let folder = TempDir::new().unwrap();
    let config = config(folder.path(), false);
    drop(flashwise_storage::pool::Metadata::create("tank", disks.clone()).unwrap());
    let open = || Pool::open_on(config.clone(), disks.clone(), &|_, _| ()).unwrap().0;
    let mut pool = open();
    let total = pool.status().free_bytes / CHUNK;
    // By name: chunks, whether it is thick, and which of them were written, with which byte.
    let mut model: BTreeMap<String, (u64, bool, BTreeMap<u64, u8>)> = BTreeMap::new();
    let used = |model: &BTreeMap<String, (u64, bool, BTreeMap<u64, u8>)>| -> u64 {
        model.values().map(|(chunks, thick, written)| if *thick { *chunks } else { written.len() as u64 }).sum()
    };
    let mut random = random(11);
    let (mut created, mut full) = (0, 0);
    for change in 0..CHANGES {
        let names: Vec<String> = model.keys().cloned().collect();
        let picked = (!names.is_empty()).then(|| names[random.random_range(0..names.len())].clone());
        match (random.random_range(0..4u32), picked) {
            (0, _) if names.len() < 20 => {
                let (name, chunks, thick) =
                    (format!("d{change}"), random.random_range(1..30u64), random.random_bool(0.3));
                let striped = random.random_bool(0.5);
                let made = pool.create_logical(&NewLogical { thick, striped, ..new(&name, chunks * CHUNK) });
                let fits = !thick || used(&model) + chunks <= total;
                assert_eq!(made.is_ok(), fits, "change {change}: {:?}", made.err().map(|error| error.to_string()));
                if fits {
                    model.insert(name, (chunks, thick, BTreeMap::new()));
                    created += 1;
                }
                full += u32::from(!fits);
            }
            (1, Some(name)) => {
                let more = random.random_range(1..5u64);
                let fits = !model[&name].1 || used(&model) + more <= total;
                let (chunks, ..) = model.get_mut(&name).unwrap();
                assert_eq!(pool.grow_logical(&name, (*chunks + more) * CHUNK).is_ok(), fits, "change {change}");
                *chunks += if fits { more } else { 0 };
            }
            (2, Some(name)) => {
                pool.delete_logical(&name).unwrap();
                model.remove(&name);
            }
            (_, Some(name)) => {
                let in_use = used(&model);
                let (chunks, thick, written) = model.get_mut(&name).unwrap();
                let at = random.random_range(0..*chunks);
                let disk = pool.logical(&name).unwrap();
                let expected = written.get(&at).copied().unwrap_or(0);
                assert_eq!(read(&disk, at * CHUNK + 4096, 512), [expected; 512], "change {change}: {name} at {at}");
                let fits = *thick || written.contains_key(&at) || in_use < total;
                let byte = random.random_range(1..=255u8);
                let result = write(&disk, at * CHUNK + 4096, 512, byte);
                assert_eq!(result, if fits { Ok(()) } else { Err(Error::NoSpace) }, "change {change}");
                if fits {
                    written.insert(at, byte);
                }
                full += u32::from(!fits);
            }
            _ => {}
        }
        if change % 10_000 == 9_999 {
            let status = pool.status();
            assert_eq!(status.used_bytes, used(&model) * CHUNK, "change {change}");
            pool.close().unwrap();
            drop(pool);
            pool = open();
            let there: Vec<String> = pool.logical_disks().into_keys().collect();
            assert_eq!(there, model.keys().cloned().collect::<Vec<_>>());
            for (name, (chunks, _, written)) in &model {
                let disk = pool.logical(name).unwrap();
                assert_eq!(disk.size(), chunks * CHUNK);
                for at in 0..*chunks {
                    let expected = written.get(&at).copied().unwrap_or(0);
                    assert_eq!(read(&disk, at * CHUNK + 4096, 512), [expected; 512], "{name} at {at}");
                }
            }
        }
    }
    assert!(created > 10_000 && full > 1_000, "{created} created, {full} times full");
    pool.close().unwrap();
}
