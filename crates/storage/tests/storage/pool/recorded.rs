//! Disks in memory that remember every write and sync, so that a crash can be put after each of them.

use std::io;
use std::sync::{Arc, Mutex};

use flashwise_storage::disk::Disk;
use flashwise_storage::disk::memory::MemoryDisk;

/// A recorded operation of a disk.
#[derive(Clone)]
pub enum Op {
    Write { disk: usize, offset: u64, bytes: Vec<u8> },
    Sync { disk: usize },
}

pub type Log = Arc<Mutex<Vec<Op>>>;

pub struct RecordedDisk {
    number: usize,
    memory: MemoryDisk,
    log: Log,
}

impl RecordedDisk {
    pub fn shared(number: usize, size: usize, log: &Log) -> Arc<dyn Disk> {
        Arc::new(RecordedDisk { number, memory: MemoryDisk::new(size), log: log.clone() })
    }
}

impl Disk for RecordedDisk {
    fn size(&self) -> u64 {
        self.memory.size()
    }

    fn description(&self) -> String {
        format!("disk {}", self.number)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.memory.read_at(buffer, offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.log.lock().unwrap().push(Op::Write { disk: self.number, offset, bytes: buffer.to_vec() });
        self.memory.write_at(buffer, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.log.lock().unwrap().push(Op::Sync { disk: self.number });
        Ok(())
    }

    fn zero(&self, offset: u64, length: u64, may_punch_holes: bool) -> io::Result<()> {
        self.memory.zero(offset, length, may_punch_holes)
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.memory.discard(offset, length)
    }
}

/// The state of unsynced data after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// All of it.
    Kept,
    /// Nothing.
    Lost,
    /// All, but of the last write only its first half.
    Torn,
    /// Of each disk every second write: the later ones may come first.
    Mixed,
}

pub const CRASHES: [Crash; 4] = [Crash::Kept, Crash::Lost, Crash::Torn, Crash::Mixed];

/// The disks after a crash behind the first `count` of what was done, where a sync makes durable what was written
/// before it.
pub fn after(log: &[Op], count: usize, crash: Crash, disks: usize, size: usize) -> Vec<Arc<dyn Disk>> {
    let last_sync = |disk: usize| {
        log[..count].iter().rposition(|op| matches!(op, Op::Sync { disk: synced } if *synced == disk)).unwrap_or(0)
    };
    let synced: Vec<usize> = (0..disks).map(last_sync).collect();
    after_syncs(log, count, crash, &synced, size)
}

/// As [`after`], where of each disk what comes before that of `synced` is durable.
pub fn after_syncs(log: &[Op], count: usize, crash: Crash, synced: &[usize], size: usize) -> Vec<Arc<dyn Disk>> {
    let disks = synced.len();
    let left: Vec<MemoryDisk> = (0..disks).map(|_| MemoryDisk::new(size)).collect();
    let mut parity = vec![false; disks];
    for (number, op) in log[..count].iter().enumerate() {
        let Op::Write { disk, offset, bytes } = op else { continue };
        let is_synced = number < synced[*disk];
        let bytes = match crash {
            _ if is_synced => &bytes[..],
            Crash::Kept => &bytes[..],
            Crash::Lost => continue,
            Crash::Torn if number + 1 == count => &bytes[..bytes.len() / 2],
            Crash::Torn => &bytes[..],
            Crash::Mixed => {
                parity[*disk] = !parity[*disk];
                if parity[*disk] {
                    continue;
                }
                &bytes[..]
            }
        };
        left[*disk].write_at(bytes, *offset).unwrap();
    }
    left.into_iter().map(|disk| Arc::new(disk) as Arc<dyn Disk>).collect()
}
