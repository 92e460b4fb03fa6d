//! A disk that was given up while the log had blocks of it, and a disk that gets its chunk numbers.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flashwise_core::cache::settings::Settings;
use flashwise_core::filter::Caching;
use flashwise_core::format::BLOCK_BYTES;
use flashwise_storage::disk::Disk;
use flashwise_storage::disk::file::{FileDisk, Options};
use flashwise_storage::export::{Error, Operation, Request};
use flashwise_storage::pool::{CHUNK_BYTES, LogicalDisk, NewLogical, Pool, PoolConfig};
use flashwise_testing::virtual_time::{self, pass};

use super::care::disks_of;
use super::in_order::perform;
use super::live::{Tank, new};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = BLOCK_BYTES as u64;
/// The first byte for data on a disk of 8 MiB.
const DATA: u64 = 6 * CHUNK_BYTES;

/// A disk of a pool that can reject data, by its first byte. Its map can still be written, and its chunks zeroed.
pub struct Rejecting {
    disk: FileDisk,
    takes: fn(u8) -> bool,
    pub rejects: AtomicBool,
}

impl Rejecting {
    pub fn open(path: &Path, takes: fn(u8) -> bool) -> Arc<Rejecting> {
        let disk = FileDisk::open(path, Options::default()).unwrap();
        Arc::new(Rejecting { disk, takes, rejects: AtomicBool::new(true) })
    }
}

impl Disk for Rejecting {
    fn size(&self) -> u64 {
        self.disk.size()
    }
    fn description(&self) -> String {
        self.disk.description()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.disk.read_at(buffer, offset)
    }
    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        match offset >= DATA && self.rejects.load(Ordering::SeqCst) && !(self.takes)(buffer[0]) {
            true => Err(io::Error::other("it takes no data")),
            false => self.disk.write_at(buffer, offset),
        }
    }
    fn sync(&self) -> io::Result<()> {
        self.disk.sync()
    }
    fn zero(&self, offset: u64, length: u64, may_punch_holes: bool) -> io::Result<()> {
        self.disk.zero(offset, length, may_punch_holes)
    }
    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.disk.discard(offset, length)
    }
}

fn ask(disk: &LogicalDisk, operation: Operation, offset: u64, data: Vec<u8>) -> Result<Vec<u8>, Error> {
    let length = if operation == Operation::Read { BLOCK } else { data.len() as u64 };
    let request = Request { operation, offset, length, force_unit_access: false, data, caching: Caching::Usual };
    perform(disk, request)
}

/// Writes the first blocks of some chunks, and flushes.
fn write(disk: &LogicalDisk, chunks: [u64; 2], blocks: u64, byte: u8) {
    for chunk in chunks {
        ask(disk, Operation::Write, chunk * CHUNK_BYTES, vec![byte; (blocks * BLOCK) as usize]).unwrap();
    }
    ask(disk, Operation::Flush, 0, Vec::new()).unwrap();
}

fn open(config: &PoolConfig) -> Pool {
    Pool::open(config.clone(), &|_, _| ()).unwrap().0
}

/// Disks 2 and 3 are missing, and have blocks of an epoch. So the log still has those of disk 2 after that is given up.
/// A new disk gets its chunk numbers. When disk 3 returns, the epoch is written back. The other disks reject the data
/// of the next epoch, and the flash is lost.
#[test]
fn a_disk_that_is_added_has_no_data_of_one_that_was_given_up() {
    virtual_time::run(1, || {
        let mut tank = Tank::new(true);
        let order = [("write-back-order", "barriers"), ("ram", "0"), ("erase-unit", "1MiB")];
        (tank.config.cache.cache, tank.config.cache.direct_io) = (Settings::of(&order).unwrap(), false);
        let open_rejecting = |config: &PoolConfig, takes: [fn(u8) -> bool; 3]| {
            let disks = config.disks.iter().zip(takes);
            let disks = disks.map(|(path, takes)| Rejecting::open(path, takes) as Arc<dyn Disk>).collect();
            Pool::open_on(config.clone(), disks, &|_, _| ()).unwrap().0
        };
        let pool = open_rejecting(&tank.config, [|_| false; 3]);
        let disk = pool.create_logical(&NewLogical { striped: true, ..new("a", MIB) }).unwrap();
        write(&disk, [1, 2], 2, 1);
        assert_eq!(disks_of(&pool, "a").into_values().collect::<Vec<_>>(), [2, 3]);
        pool.close().unwrap();
        drop((disk, pool));

        let mut degraded = PoolConfig { degraded: true, ..tank.config.clone() };
        degraded.disks.truncate(1);
        let pool = open(&degraded);
        let path = tank.config.disks[1].display().to_string();
        let error = pool.give_up_disk(2, &path).unwrap_err().to_string();
        assert!(error.contains("disk1.img was given up, but blocks of it could not be dropped durably"), "{error}");
        let added: PathBuf = path.replace("disk1", "added").into();
        std::fs::File::create(&added).unwrap().set_len(8 * MIB).unwrap();
        assert_eq!(pool.add_disk(&added, false).unwrap(), 4);
        let disk = pool.create_logical(&NewLogical { striped: true, ..new("b", MIB) }).unwrap();
        write(&disk, [0, 2], 1, 2);
        assert_eq!(disks_of(&pool, "b").into_values().collect::<Vec<_>>(), [1, 4]);
        let _ = pool.close();
        drop((disk, pool));

        tank.config.disks[1] = added;
        let pool = open_rejecting(&tank.config, [|_| false, |byte| byte == 1, |_| true]);
        pass(Duration::from_secs(3));
        pool.close().unwrap();
        drop(pool);

        let cache = &mut tank.config.cache;
        (cache.discard_cache, cache.flash, cache.flash_size_bytes) = (true, PathBuf::new(), None);
        let pool = open(&tank.config);
        let found =
            |name: &str, at: u64| ask(&pool.logical(name).unwrap(), Operation::Read, at, Vec::new()).unwrap()[0];
        assert_eq!(found("a", 2 * CHUNK_BYTES), 1, "the first epoch is written back");
        assert_eq!([0, BLOCK].map(|at| found("b", 2 * CHUNK_BYTES + at)), [0, 0]);
        pool.close().unwrap();
    });
}
