//! Chunks that move to a disk whose flush fails.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flashwise_storage::disk::Disk;
use flashwise_storage::disk::memory::MemoryDisk;
use flashwise_storage::export::Operation;
use flashwise_storage::pool::{CHUNK_BYTES, Metadata, NewLogical, Pool};
use flashwise_testing::waiting::{take, wait_until};

use super::live::{Tank, ask, flush, new, read, write};

const MIB: u64 = 1 << 20;
const CHUNK: u64 = CHUNK_BYTES;

/// A disk with a volatile cache, which a flush that fails empties: what was written since the last one is gone.
struct Volatile {
    disk: MemoryDisk,
    /// The contents at the last flush.
    durable: Mutex<Vec<u8>>,
    /// True if the next flush fails.
    fails: AtomicBool,
    /// True if writes of data are slow: the pool's records take one block each, data more.
    is_slow: AtomicBool,
    /// Bytes that such writes have written. The engine may write a chunk in parts.
    slow_bytes: AtomicU64,
}

impl Disk for Volatile {
    fn size(&self) -> u64 {
        self.disk.size()
    }
    fn description(&self) -> String {
        "volatile.img".to_owned()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
        self.disk.read_at(buffer, offset)
    }
    fn write_at(&self, buffer: &[u8], offset: u64) -> std::io::Result<()> {
        if self.is_slow.load(Ordering::SeqCst) && buffer.len() > 4096 {
            take(Duration::from_millis(5));
            self.slow_bytes.fetch_add(buffer.len() as u64, Ordering::SeqCst);
        }
        self.disk.write_at(buffer, offset)
    }
    fn sync(&self) -> std::io::Result<()> {
        let mut durable = self.durable.lock().unwrap();
        if self.fails.swap(false, Ordering::SeqCst) {
            self.disk.write_at(&durable, 0)?;
            return Err(std::io::Error::other("what was written is gone"));
        }
        *durable = self.disk.contents();
        Ok(())
    }
    fn zero(&self, offset: u64, length: u64, may_punch_holes: bool) -> std::io::Result<()> {
        self.disk.zero(offset, length, may_punch_holes)
    }
    fn discard(&self, _: u64, _: u64) -> std::io::Result<()> {
        Ok(())
    }
}

/// A flush by a client fails while chunks are being copied to another disk. The client gets the error. The copies are
/// lost, so the chunks keep their place until they are copied again.
#[test]
fn a_chunk_does_not_move_to_where_a_failed_flush_took_it() {
    let tank = Tank::new(false);
    let first: Arc<dyn Disk> = Arc::new(MemoryDisk::new(8 * MIB as usize));
    let second = Arc::new(Volatile {
        disk: MemoryDisk::new(8 * MIB as usize),
        durable: Mutex::new(vec![0; 8 * MIB as usize]),
        fails: AtomicBool::new(false),
        is_slow: AtomicBool::new(false),
        slow_bytes: AtomicU64::new(0),
    });
    let disks = vec![first, second.clone() as Arc<dyn Disk>];
    drop(Metadata::create("tank", disks.clone()).unwrap());
    let pool = Pool::open_on(tank.config.clone(), disks, &|_, _| ()).unwrap().0;
    let disk = pool.create_logical(&NewLogical { striped: true, ..new("a", 4 * MIB) }).unwrap();
    write(&disk, 0, 4 * MIB, 7).unwrap();
    flush(&disk);
    write(&disk, 0, CHUNK / 2, 8).unwrap();
    second.is_slow.store(true, Ordering::SeqCst);
    pool.remove_disk(1).unwrap();
    wait_until("chunks are copied", || second.slow_bytes.load(Ordering::SeqCst) >= 8 * CHUNK);
    second.fails.store(true, Ordering::SeqCst);
    ask(&disk, Operation::Flush, 0, 0, Vec::new()).unwrap_err();
    assert!(second.slow_bytes.load(Ordering::SeqCst) < 32 * CHUNK, "it fails while chunks are copied");
    wait_until("the disk has gone", || pool.status().disks.len() < 2);
    // The client got an error for this write, so either content is legal.
    assert_eq!(read(&disk, CHUNK, 4 * MIB - CHUNK), vec![7; (4 * MIB - CHUNK) as usize]);
    pool.close().unwrap();
}
