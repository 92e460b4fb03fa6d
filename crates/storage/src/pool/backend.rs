//! The disks of a pool as one device: the backend of the pool's cache.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::time::{self, Mutex, RwLock};

use super::{CHUNK_BYTES, POOL_BYTES};
use crate::disk::health::{Change, Health};
use crate::disk::{Disk, Operation};
use crate::export::Extent;

/// The chunks of a disk.
#[derive(Clone)]
pub struct Range {
    /// The number of the first chunk.
    pub base: u32,
    /// The number of chunks.
    pub chunks: u32,
    /// The number of chunks at the beginning that hold no data.
    pub reserved: u32,
    /// The disk; `None` if it is missing.
    pub disk: Option<Arc<dyn Disk>>,
}

impl Range {
    fn start(&self) -> u64 {
        u64::from(self.base) * CHUNK_BYTES
    }

    fn data(&self) -> u64 {
        u64::from(self.base + self.reserved) * CHUNK_BYTES
    }

    fn end(&self) -> u64 {
        u64::from(self.base + self.chunks) * CHUNK_BYTES
    }
}

/// All disks of a pool, at the offsets of their chunks.
///
/// Outside the data chunks of its disks, it reads as zeroes and discards writes. No logical disk refers to these
/// places, but the cache may still hold zeroes of a removed disk. Free chunks of a missing disk behave the same way:
/// the cache may hold zeroes of trimmed or deleted chunks.
pub struct PoolDisk {
    name: String,
    ranges: RwLock<Arc<Vec<Range>>>,
    any_missing: AtomicBool,
    is_free: OnceLock<IsFree>,
    /// Results of the transfers of each disk, by its first chunk.
    health: Mutex<BTreeMap<u32, Health>>,
    /// True if a transfer failed, and no transfer of its kind has succeeded on that disk since.
    any_failing: AtomicBool,
    /// Disks written since their last sync, by their first chunks. Only these are synced, so a dead disk does not delay
    /// the syncs of others.
    unsynced: Mutex<BTreeSet<u32>>,
    /// Held during a sync. A sync that comes meanwhile waits here and then has nothing left to do.
    syncing: Mutex<()>,
}

/// True if a chunk is free.
pub type IsFree = Box<dyn Fn(u32) -> bool + Send + Sync>;

/// The place of a piece of a byte range.
enum PieceDisk {
    On(Arc<dyn Disk>, u64),
    Missing,
    Nowhere,
}

impl PoolDisk {
    /// Creates the device of the pool `name`.
    pub fn new(name: &str, ranges: Vec<Range>) -> PoolDisk {
        let unsynced = ranges.iter().map(|range| range.base).collect();
        let disk = PoolDisk {
            name: name.to_owned(),
            ranges: RwLock::default(),
            any_missing: AtomicBool::new(false),
            is_free: OnceLock::new(),
            health: Mutex::default(),
            any_failing: AtomicBool::new(false),
            // Writes of an earlier process may still be volatile.
            unsynced: Mutex::new(unsynced),
            syncing: Mutex::new(()),
        };
        disk.set_ranges(ranges);
        disk
    }

    /// Sets the function that decides if a chunk of a missing disk is free.
    pub fn ask_whether_free(&self, is_free: IsFree) {
        assert!(self.is_free.set(is_free).is_ok(), "the pool is asked");
    }

    /// Fails for a write to a missing disk, except to free chunks.
    fn forget(&self, offset: u64, length: u64) -> io::Result<()> {
        let chunks = offset / CHUNK_BYTES..(offset + length).div_ceil(CHUNK_BYTES);
        let is_free = |chunk: u64| self.is_free.get().is_some_and(|is_free| is_free(chunk as u32));
        chunks.into_iter().all(is_free).then_some(()).ok_or_else(|| self.missing(offset))
    }

    /// Replaces the disks.
    pub fn set_ranges(&self, mut ranges: Vec<Range>) {
        ranges.sort_by_key(|range| range.base);
        self.any_missing.store(ranges.iter().any(|range| range.disk.is_none()), Ordering::Relaxed);
        self.health.lock().retain(|base, _| ranges.iter().any(|range| range.base == *base && range.disk.is_some()));
        *self.ranges.write() = Arc::new(ranges);
    }

    /// True if a byte is on a missing disk.
    pub fn is_missing(&self, offset: u64) -> bool {
        self.any_missing.load(Ordering::Relaxed)
            && self.ranges().iter().any(|range| range.disk.is_none() && (range.start()..range.end()).contains(&offset))
    }

    /// Marks the disks of a write as unsynced: for writes across disks, and for writes without a transfer.
    fn will_be_written(&self, offset: u64, length: u64) {
        let touched = |range: &&Range| offset < range.end() && range.start() < offset + length;
        self.unsynced.lock().extend(self.ranges().iter().filter(touched).map(|range| range.base));
    }

    /// Returns why the disk with this first chunk counts as failed, if it does.
    pub fn failure(&self, base: u32) -> Option<String> {
        self.health.lock().get(&base)?.failure(time::now())
    }

    fn note(&self, range: &Range, operation: Operation, result: &io::Result<()>) {
        let Some(disk) = &range.disk else { return };
        let mut all = self.health.lock();
        let health = all.entry(range.base).or_default();
        let (pool, path, now) = (&self.name, disk.description(), time::now());
        match (health.ended(operation, result, now), result) {
            (Some(Change::Failure), Err(error)) => {
                tracing::warn!(event = "transfer-failed", pool, disk = path, %error, "a transfer failed")
            }
            (Some(Change::Failed), _) => {
                let error = health.failure(now).unwrap_or_default();
                tracing::error!(event = "disk-failed", pool, disk = path, error, "the disk has failed");
            }
            (Some(Change::Recovered), _) => {
                tracing::warn!(event = "disk-recovered", pool, disk = path, "the disk works again");
            }
            _ => {}
        }
        self.any_failing.store(all.values().any(|health| health.last_failure().is_some()), Ordering::Relaxed);
    }

    fn ranges(&self) -> Arc<Vec<Range>> {
        self.ranges.read().clone()
    }

    /// Splits a byte range, and calls `work` for each piece with its place, offset and length.
    fn pieces(
        &self,
        offset: u64,
        length: u64,
        mut work: impl FnMut(PieceDisk, u64, u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let ranges = self.ranges();
        let mut at = offset;
        let end = offset + length;
        while at < end {
            let range = ranges.iter().find(|range| at < range.end());
            let (place, until) = match range {
                None => (PieceDisk::Nowhere, end),
                Some(range) if at < range.data() => (PieceDisk::Nowhere, range.data()),
                Some(range) => match &range.disk {
                    Some(disk) => (PieceDisk::On(disk.clone(), at - range.start()), range.end()),
                    None => (PieceDisk::Missing, range.end()),
                },
            };
            let until = until.min(end);
            work(place, at, until - at)?;
            at = until;
        }
        Ok(())
    }

    fn missing(&self, offset: u64) -> io::Error {
        io::Error::other(format!("pool {}: the disk with byte {offset} is missing", self.name))
    }
}

impl Disk for PoolDisk {
    /// The maximum size of a pool, because disks come and go.
    fn size(&self) -> u64 {
        POOL_BYTES
    }

    fn description(&self) -> String {
        format!("pool {}", self.name)
    }

    fn lane(&self, offset: u64) -> u16 {
        self.ranges().partition_point(|range| range.end() <= offset) as u16
    }

    fn part(&self, offset: u64, length: u64) -> Option<(Arc<dyn Disk>, u64)> {
        let ranges = self.ranges();
        let range = ranges.iter().find(|range| (range.data()..range.end()).contains(&offset))?;
        (length > 0 && offset + length <= range.end()).then_some(())?;
        Some((range.disk.clone()?, offset - range.start()))
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.pieces(offset, buffer.len() as u64, |place, at, length| {
            let piece = &mut buffer[(at - offset) as usize..][..length as usize];
            match place {
                PieceDisk::On(disk, there) => disk.read_at(piece, there),
                PieceDisk::Missing => Err(self.missing(at)),
                PieceDisk::Nowhere => {
                    piece.fill(0);
                    Ok(())
                }
            }
        })
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.will_be_written(offset, buffer.len() as u64);
        self.pieces(offset, buffer.len() as u64, |place, at, length| {
            let piece = &buffer[(at - offset) as usize..][..length as usize];
            match place {
                PieceDisk::On(disk, there) => disk.write_at(piece, there),
                PieceDisk::Missing => self.forget(at, length),
                PieceDisk::Nowhere => Ok(()),
            }
        })
    }

    /// One transfer if the range is on one disk.
    fn read_vectored_at(&self, buffers: &mut [io::IoSliceMut<'_>], offset: u64) -> io::Result<()> {
        let length = buffers.iter().map(|buffer| buffer.len() as u64).sum();
        if let Some((disk, there)) = self.part(offset, length) {
            return disk.read_vectored_at(buffers, there);
        }
        let mut at = offset;
        buffers.iter_mut().try_for_each(|buffer| {
            self.read_at(buffer, at)?;
            at += buffer.len() as u64;
            Ok(())
        })
    }

    fn write_vectored_at(&self, buffers: &mut [io::IoSlice<'_>], offset: u64) -> io::Result<()> {
        let length = buffers.iter().map(|buffer| buffer.len() as u64).sum();
        if let Some((disk, there)) = self.part(offset, length) {
            return disk.write_vectored_at(buffers, there);
        }
        let mut at = offset;
        buffers.iter().try_for_each(|buffer| {
            self.write_at(buffer, at)?;
            at += buffer.len() as u64;
            Ok(())
        })
    }

    /// Syncs all present disks that were written. If one fails, the others are synced before the error is returned.
    fn sync(&self) -> io::Result<()> {
        let _one = self.syncing.lock();
        let unsynced = std::mem::take(&mut *self.unsynced.lock());
        let ranges = self.ranges();
        let sync = |range: &Range| {
            let synced = range.disk.as_ref()?.sync();
            if synced.is_err() {
                self.unsynced.lock().insert(range.base);
            }
            if synced.is_err() || self.any_failing.load(Ordering::Relaxed) {
                self.note(range, Operation::Sync, &synced);
            }
            Some(synced)
        };
        let synced: Vec<_> = ranges.iter().filter(|range| unsynced.contains(&range.base)).filter_map(sync).collect();
        synced.into_iter().collect()
    }

    fn ended(&self, operation: Operation, offset: u64, result: &io::Result<()>) -> bool {
        let writes = matches!(operation, Operation::Write | Operation::Zero { .. });
        let is_known = result.is_ok() && !self.any_failing.load(Ordering::Relaxed);
        if operation == Operation::Sync || is_known && !writes {
            return true;
        }
        if let Some(range) = self.ranges().iter().find(|range| (range.start()..range.end()).contains(&offset)) {
            if writes && result.is_ok() {
                self.unsynced.lock().insert(range.base);
            }
            if !is_known {
                self.note(range, operation, result);
            }
        }
        true
    }

    fn zero(&self, offset: u64, length: u64, may_punch_holes: bool) -> io::Result<()> {
        self.will_be_written(offset, length);
        self.pieces(offset, length, |place, at, length| match place {
            PieceDisk::On(disk, there) => disk.zero(there, length, may_punch_holes),
            PieceDisk::Missing => self.forget(at, length),
            PieceDisk::Nowhere => Ok(()),
        })
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.pieces(offset, length, |place, _, length| match place {
            PieceDisk::On(disk, there) => disk.discard(there, length),
            PieceDisk::Missing | PieceDisk::Nowhere => Ok(()),
        })
    }

    fn extents(&self, offset: u64, length: u64, extents_max: usize) -> io::Result<Vec<Extent>> {
        let mut extents = Vec::new();
        self.pieces(offset, length, |place, _, length| {
            if extents.len() < extents_max {
                match place {
                    PieceDisk::On(disk, there) => {
                        extents.extend(disk.extents(there, length, extents_max - extents.len())?)
                    }
                    PieceDisk::Missing => extents.push(Extent { length, hole: false, zero: false }),
                    PieceDisk::Nowhere => extents.push(Extent { length, hole: true, zero: true }),
                }
            }
            Ok(())
        })?;
        Ok(extents)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::memory::MemoryDisk;

    const CHUNK: usize = CHUNK_BYTES as usize;

    /// Chunks 0 to 3 on a disk, 4 to 7 on a missing one, a gap of two, 10 to 13 on another disk. The first chunk of
    /// each holds no data.
    fn pool() -> (PoolDisk, Arc<MemoryDisk>, Arc<MemoryDisk>) {
        let [one, other] = [(); 2].map(|()| Arc::new(MemoryDisk::new(4 * CHUNK)));
        let range = |base, disk: Option<&Arc<MemoryDisk>>| Range {
            base,
            chunks: 4,
            reserved: 1,
            disk: disk.map(|disk| disk.clone() as Arc<dyn Disk>),
        };
        (PoolDisk::new("p", vec![range(10, Some(&other)), range(0, Some(&one)), range(4, None)]), one, other)
    }

    #[test]
    fn each_byte_is_on_the_disk_whose_chunk_it_is_and_on_no_label() {
        let (pool, one, other) = pool();
        assert!(pool.is_missing(5 * CHUNK_BYTES) && !pool.is_missing(2 * CHUNK_BYTES));
        pool.write_at(&vec![1; 4 * CHUNK], 0).unwrap();
        assert_eq!(one.contents()[..CHUNK], vec![0; CHUNK], "labels and map are not for the cache");
        assert_eq!(one.contents()[CHUNK..], vec![1; 3 * CHUNK]);
        // Writes to the gap and the label are discarded.
        pool.write_at(&vec![2; 6 * CHUNK], 8 * CHUNK_BYTES).unwrap();
        assert_eq!(other.contents()[CHUNK..], vec![2; 3 * CHUNK]);
        let mut bytes = vec![9; 2 * CHUNK];
        pool.read_at(&mut bytes, 10 * CHUNK_BYTES).unwrap();
        assert_eq!((&bytes[..CHUNK], &bytes[CHUNK..]), (&vec![0; CHUNK][..], &vec![2; CHUNK][..]));
        let error = pool.read_at(&mut bytes, 4 * CHUNK_BYTES + CHUNK_BYTES / 2).unwrap_err().to_string();
        assert_eq!(error, "pool p: the disk with byte 327680 is missing");
        pool.zero(0, 4 * CHUNK_BYTES, true).unwrap();
        assert_eq!(one.contents(), vec![0; 4 * CHUNK]);
    }

    #[test]
    fn buffers_lie_behind_one_another_on_one_disk_and_over_its_end() {
        let (pool, one, _) = pool();
        let [ones, twos] = [1, 2].map(|byte| vec![byte; CHUNK]);
        pool.write_vectored_at(&mut [io::IoSlice::new(&ones), io::IoSlice::new(&twos)], CHUNK_BYTES).unwrap();
        assert_eq!(one.contents()[CHUNK..], [&ones[..], &twos[..], &vec![0; CHUNK][..]].concat());
        let [mut first, mut second] = [vec![9; CHUNK], vec![9; CHUNK]];
        let mut buffers = [io::IoSliceMut::new(&mut first), io::IoSliceMut::new(&mut second)];
        pool.read_vectored_at(&mut buffers, 2 * CHUNK_BYTES).unwrap();
        assert_eq!((first, second), (twos.clone(), vec![0; CHUNK]));
        // The first chunk after the end holds no data.
        let mut over = [io::IoSlice::new(&twos), io::IoSlice::new(&ones), io::IoSlice::new(&ones)];
        let error = pool.write_vectored_at(&mut over, 3 * CHUNK_BYTES).unwrap_err().to_string();
        assert_eq!(error, "pool p: the disk with byte 327680 is missing");
        assert_eq!(one.contents()[3 * CHUNK..], twos);
    }

    /// A disk that counts its syncs, and fails them on request.
    struct Synced(MemoryDisk, AtomicBool, std::sync::atomic::AtomicU32);

    impl Disk for Synced {
        fn size(&self) -> u64 {
            self.0.size()
        }
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
            self.0.read_at(buffer, offset)
        }
        fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
            self.0.write_at(buffer, offset)
        }
        fn sync(&self) -> io::Result<()> {
            self.2.fetch_add(1, Ordering::SeqCst);
            if self.1.load(Ordering::SeqCst) { Err(io::Error::other("dead")) } else { Ok(()) }
        }
        fn zero(&self, offset: u64, length: u64, may_punch_holes: bool) -> io::Result<()> {
            self.0.zero(offset, length, may_punch_holes)
        }
        fn discard(&self, _: u64, _: u64) -> io::Result<()> {
            Ok(())
        }
    }

    /// Only written disks are synced, with retries until that succeeds, for every kind of write.
    #[test]
    fn a_dead_disk_fails_only_the_syncs_of_its_own_writes() {
        let disks = [(); 2].map(|()| Arc::new(Synced(MemoryDisk::new(4 * CHUNK), AtomicBool::new(false), 0.into())));
        let range = |base: u32, disk: &Arc<Synced>| Range { base, chunks: 4, reserved: 1, disk: Some(disk.clone()) };
        let pool = PoolDisk::new("p", vec![range(0, &disks[0]), range(4, &disks[1])]);
        let synced = || disks.each_ref().map(|disk| disk.2.swap(0, Ordering::SeqCst));
        pool.sync().unwrap();
        assert_eq!(synced(), [1, 1], "an earlier process may have written them");
        pool.sync().unwrap();
        assert_eq!(synced(), [0, 0]);
        disks[1].1.store(true, Ordering::SeqCst);
        // Like a transfer that went directly to the disk.
        pool.ended(Operation::Write, CHUNK_BYTES, &Ok(()));
        pool.ended(Operation::Write, 5 * CHUNK_BYTES, &Err(io::Error::other("dead")));
        pool.ended(Operation::Read, 5 * CHUNK_BYTES, &Ok(()));
        pool.sync().unwrap();
        assert_eq!(synced(), [1, 0]);
        pool.ended(Operation::Zero { may_punch_holes: false }, 5 * CHUNK_BYTES, &Ok(()));
        (0..2).for_each(|_| pool.sync().map_err(drop).unwrap_err());
        assert_eq!(synced(), [0, 2]);
        disks[1].1.store(false, Ordering::SeqCst);
        pool.sync().unwrap();
        pool.write_at(&vec![1; 3 * CHUNK], 3 * CHUNK_BYTES).unwrap();
        pool.sync().unwrap();
        assert_eq!(synced(), [1, 2]);
    }

    #[test]
    fn a_part_lies_on_one_disk_whole() {
        let (pool, ..) = pool();
        let at = |offset, length| pool.part(offset, length).map(|(_, there)| there);
        assert_eq!(at(11 * CHUNK_BYTES, CHUNK_BYTES), Some(CHUNK_BYTES));
        assert_eq!(at(13 * CHUNK_BYTES, CHUNK_BYTES), Some(3 * CHUNK_BYTES));
        assert_eq!(at(13 * CHUNK_BYTES, CHUNK_BYTES + 4096), None);
        assert_eq!((at(5 * CHUNK_BYTES, 4096), at(0, 4096), at(0, 0)), (None, None, None));
    }
}
