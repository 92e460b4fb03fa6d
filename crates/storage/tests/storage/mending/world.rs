//! A cache of buckets in memory, on devices that fail.

use flashwise_core::cache::Cache;
use flashwise_core::format::{BLOCK_BYTES, Geometry, Layout, Resets, Superblock};
use flashwise_core::wlfc::BucketOptions;
use flashwise_engine::engine::{BACKEND, FLASH, Output};
use flashwise_engine::wlfc::{Engine, Settings};
use flashwise_storage::attach::Attachment;
use flashwise_storage::disk::memory::MemoryDisk;
use flashwise_storage::disk::{Disk, Operation as DiskOperation, Transfer};
use flashwise_storage::driver::recover;
use flashwise_storage::export::{Error, Operation, Request};
use flashwise_storage::flash::{FlashError, cache_tag, format, read_superblock, write_superblock};
use flashwise_storage::wlfc::start;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::Random;

/// Ten buckets of a header and 15 blocks, before 60 blocks.
pub const GEOMETRY: Geometry = Geometry { units: 11, unit_pages: 16 };
pub const BLOCKS: usize = 60;

pub type Answer = Result<Vec<u8>, Error>;

pub struct World {
    pub disks: [MemoryDisk; 2],
    pub attachment: Attachment,
    pub engine: Engine,
    options: BucketOptions,
    pub output: Output,
    pub failing: Vec<Failing>,
    /// True if everything works again after a second.
    pub heals: bool,
    /// Transfers of each disk so far, those that failed included.
    pub transfers: [u64; 2],
    /// True if a failed flush of the backend loses half of its data.
    pub loses: bool,
    /// Contents at the last flush, of the blocks of each disk that have changed since.
    unflushed: [BTreeMap<u64, Vec<u8>>; 2],
}

/// A failure: operations of a disk that touch these bytes.
pub type Failing = (usize, DiskOperation, Range<u64>);

pub const ANYWHERE: Range<u64> = 0..u64::MAX;

pub fn fails(failing: &[Failing], transfer: &Transfer) -> bool {
    failing.iter().any(|(disk, operation, bytes)| {
        let end = transfer.offset + transfer.length.max(1);
        (*disk, *operation) == (transfer.disk, transfer.operation) && transfer.offset < bytes.end && bytes.start < end
    })
}

/// The flash as who finds the cache again reads it.
pub struct Failed<'a> {
    disk: &'a MemoryDisk,
    failing: &'a [Failing],
    is_flushed: &'a AtomicBool,
}

impl Failed<'_> {
    pub fn check(&self, operation: DiskOperation, offset: u64, length: u64) -> io::Result<()> {
        let touches = |bytes: &Range<u64>| offset < bytes.end && bytes.start < offset + length.max(1);
        let fails = |(disk, of, bytes): &Failing| (*disk, *of) == (FLASH, operation) && touches(bytes);
        if self.failing.iter().any(fails) { Err(io::Error::other("it fails")) } else { Ok(()) }
    }
}

impl Disk for Failed<'_> {
    fn size(&self) -> u64 {
        self.disk.size()
    }

    fn description(&self) -> String {
        self.disk.description()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.check(DiskOperation::Read, offset, buffer.len() as u64)?;
        self.disk.read_at(buffer, offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.check(DiskOperation::Write, offset, buffer.len() as u64)?;
        self.disk.write_at(buffer, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.check(DiskOperation::Sync, 0, 0)?;
        self.is_flushed.store(true, Ordering::Relaxed);
        self.disk.sync()
    }

    fn zero(&self, offset: u64, length: u64, may_punch_holes: bool) -> io::Result<()> {
        self.disk.zero(offset, length, may_punch_holes)
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.disk.discard(offset, length)
    }
}

/// The bytes of a cache bucket.
pub fn bytes_of(bucket: u64) -> Range<u64> {
    let unit = u64::from(GEOMETRY.unit_pages) * BLOCK_BYTES as u64;
    (bucket + 1) * unit..(bucket + 2) * unit
}

impl World {
    pub fn new() -> World {
        World::before(BLOCKS)
    }

    /// Before a backend of so many blocks.
    pub fn before(blocks: usize) -> World {
        World::with(blocks, BucketOptions::default())
    }

    /// As [`before`](Self::before), a cache of its own kind.
    pub fn with(blocks: usize, options: BucketOptions) -> World {
        let flash = MemoryDisk::new(GEOMETRY.pages() as usize * BLOCK_BYTES);
        let backend = MemoryDisk::new(blocks * BLOCK_BYTES);
        let mut superblock = Superblock::new([7; 16], [9; 16], GEOMETRY, (blocks * BLOCK_BYTES) as u64);
        (superblock.layout, superblock.resets) = (Layout::Wlfc, Resets::EverySector);
        format(&flash, &mut superblock).unwrap();
        start::format(&flash, &superblock).unwrap();
        World::open_with([flash, backend], 1, options).unwrap()
    }

    pub fn open(disks: [MemoryDisk; 2], run: u64) -> Result<World, FlashError> {
        World::open_with(disks, run, BucketOptions::default())
    }

    fn open_with(disks: [MemoryDisk; 2], run: u64, options: BucketOptions) -> Result<World, FlashError> {
        let mut superblock = read_superblock(&disks[FLASH])?;
        let mut held = start::scan(&disks[FLASH], &superblock, 2, &|_, _| ())?;
        held.settle(&disks[FLASH]).unwrap();
        held.ends.iter().for_each(|end| superblock.note_end(*end));
        write_superblock(&disks[FLASH], &mut superblock).unwrap();
        let config = start::config(GEOMETRY, &options, superblock.volume_bytes).unwrap();
        let (wlfc, started) = held.start(config).unwrap();
        let settings = Settings {
            cache: cache_tag(&superblock),
            start: run,
            retries: 1,
            patience: 1,
            holds_failed: true,
            ..Settings::default()
        };
        let engine = Engine::new(wlfc, settings, started);
        let attachment = Attachment::of(superblock, None);
        let (output, failing) = (Output::default(), Vec::new());
        Ok(World {
            disks,
            attachment,
            engine,
            options,
            output,
            failing,
            heals: false,
            transfers: [0; 2],
            loses: false,
            unflushed: Default::default(),
        })
    }

    /// The cache again after the process has died.
    pub fn reopened(self, run: u64) -> World {
        World::open(self.disks, run).unwrap()
    }

    /// The process dies, and a new one finds the cache; the flash does not fail any more. In a power `cut` both disks
    /// lose some of what was not flushed.
    pub fn die(&mut self, run: u64, cut: Option<&mut Random>) -> Result<(), FlashError> {
        if let Some(random) = cut {
            for (disk, unflushed) in self.disks.iter().zip(&mut self.unflushed) {
                for (block, before) in std::mem::take(unflushed) {
                    if random.below(2) == 0 {
                        disk.write_at(&before, block * BLOCK_BYTES as u64).unwrap();
                    }
                }
            }
        }
        self.unflushed[FLASH].clear();
        let empty = || MemoryDisk::new(0);
        let mut next = World::open_with(std::mem::replace(&mut self.disks, [empty(), empty()]), run, self.options)?;
        next.failing = std::mem::take(&mut self.failing);
        next.failing.retain(|(disk, ..)| *disk == BACKEND);
        next.unflushed = std::mem::take(&mut self.unflushed);
        (next.loses, next.heals, next.transfers) = (self.loses, self.heals, self.transfers);
        *self = next;
        self.settle();
        Ok(())
    }

    /// Performs a request and all that follows from it.
    pub fn ask(&mut self, operation: Operation, block: usize, data: &[u8]) -> Answer {
        let answer = self.begin(operation, block, data);
        self.settle();
        answer.lock().unwrap().take().expect("it is answered")
    }

    /// Performs a request of bytes, and all that follows from it.
    pub fn ask_bytes(&mut self, operation: Operation, offset: u64, length: u64, data: &[u8]) -> Answer {
        let answer = self.begin_bytes(operation, offset, length, data);
        self.settle();
        answer.lock().unwrap().take().expect("it is answered")
    }

    /// Begins a request, and performs nothing.
    pub fn begin(&mut self, operation: Operation, block: usize, data: &[u8]) -> Arc<Mutex<Option<Answer>>> {
        let length = match operation {
            Operation::Flush => 0,
            Operation::Read => BLOCK_BYTES,
            _ => data.len(),
        };
        self.begin_bytes(operation, (block * BLOCK_BYTES) as u64, length as u64, data)
    }

    pub fn begin_bytes(
        &mut self,
        operation: Operation,
        offset: u64,
        length: u64,
        data: &[u8],
    ) -> Arc<Mutex<Option<Answer>>> {
        self.begin_with(operation, offset, length, data, false)
    }

    /// As [`begin_bytes`](Self::begin_bytes), of a change that is to be durable or not.
    pub fn begin_with(
        &mut self,
        operation: Operation,
        offset: u64,
        length: u64,
        data: &[u8],
        force_unit_access: bool,
    ) -> Arc<Mutex<Option<Answer>>> {
        let answer = Arc::new(Mutex::new(None));
        let shared = answer.clone();
        let done = Box::new(move |result| *shared.lock().unwrap() = Some(result));
        let (data, caching) = (data.to_vec(), Default::default());
        let request = Request { operation, offset, length, force_unit_access, data, caching };
        self.engine.submit(request, done, 0);
        self.engine.take_output(&mut self.output);
        self.output.answers.drain(..).for_each(|(done, result)| done(result));
        answer
    }

    /// Performs the pending work; restarts the engine if it stops.
    pub fn settle(&mut self) {
        for attempt in 0.. {
            self.perform();
            let held = std::mem::take(&mut self.output.held);
            if self.engine.recovery().stopped().is_none() || self.engine.recovery().is_given_up() {
                assert!(held.is_empty());
                return;
            }
            if attempt > 16 {
                // There is no room, neither on flash nor in the backend.
                held.into_iter().for_each(|(_, done)| done(Err(Error::Io)));
                return;
            }
            match self.find_again() {
                // A flash that is not written any more stays.
                Ok(()) => assert!(self.engine.recovery_mut().stop_holding().is_empty()),
                Err(FlashError::Io(_)) => {
                    held.into_iter().for_each(|(_, done)| done(Err(Error::Io)));
                    return;
                }
                Err(error) => panic!("{error}"),
            }
            self.engine.cache().check();
            held.into_iter().for_each(|(request, done)| self.engine.submit(request, done, 0));
        }
    }

    /// Finds the cache again where the engine has stopped.
    pub fn find_again(&mut self) -> Result<(), FlashError> {
        let backend_fails =
            self.failing.iter().any(|(disk, operation, _)| *disk == BACKEND && *operation != DiskOperation::Read);
        let is_flushed = AtomicBool::new(false);
        let flash = Failed { disk: &self.disks[FLASH], failing: &self.failing, is_flushed: &is_flushed };
        let found = recover(&mut self.engine, &flash, &mut self.attachment, backend_fails);
        if is_flushed.into_inner() {
            self.unflushed[FLASH].clear();
        }
        found
    }

    pub fn perform(&mut self) {
        loop {
            self.engine.take_output(&mut self.output);
            self.output.answers.drain(..).for_each(|(done, result)| done(result));
            let Some(transfer) = self.output.transfers.pop() else {
                if self.engine.running() == 0 {
                    break;
                }
                // A second passes.
                if self.heals {
                    self.failing.clear();
                }
                self.engine.read_again();
                self.engine.read_unreadable(0);
                continue;
            };
            let others = std::mem::take(&mut self.output.transfers);
            for transfer in std::iter::once(transfer).chain(others) {
                self.transfer(transfer);
            }
        }
        assert_eq!(self.engine.running(), 0);
    }

    fn transfer(&mut self, transfer: Transfer) {
        self.transfers[transfer.disk] += 1;
        let fails = fails(&self.failing, &transfer);
        let result = if fails { Err(Error::Io) } else { Ok(()) };
        self.note_change(&transfer, fails);
        if !fails {
            self.disks[transfer.disk].perform(&transfer).unwrap();
        }
        self.engine.completed(transfer.tag, result);
    }

    /// Performs at most so many transfers, in any order: the disks take their time for the others. Then a second is
    /// over.
    pub fn perform_some(&mut self, most: u64, random: &mut Random, now_us: u64) {
        for _ in 0..most {
            self.engine.take_output(&mut self.output);
            let waiting = self.output.transfers.len() as u64;
            if waiting == 0 {
                break;
            }
            let transfer = self.output.transfers.swap_remove(random.below(waiting) as usize);
            self.transfer(transfer);
        }
        self.engine.make_what_was_lost();
        self.engine.advance(now_us);
        self.engine.take_output(&mut self.output);
        self.output.answers.drain(..).for_each(|(done, result)| done(result));
    }

    /// Keeps what a disk may lose, or has the backend lose that.
    fn note_change(&mut self, transfer: &Transfer, fails: bool) {
        let disk = &self.disks[transfer.disk];
        let unflushed = &mut self.unflushed[transfer.disk];
        match transfer.operation {
            DiskOperation::Sync if !fails => unflushed.clear(),
            DiskOperation::Sync if transfer.disk == BACKEND => {
                // Every second one of them, or none is kept in mind.
                let lost = if self.loses { std::mem::take(unflushed) } else { BTreeMap::new() };
                for (block, before) in lost.into_iter().step_by(2) {
                    disk.write_at(&before, block * BLOCK_BYTES as u64).unwrap();
                }
            }
            DiskOperation::Write | DiskOperation::Zero { .. } if !fails => {
                for block in
                    transfer.offset / BLOCK_BYTES as u64..(transfer.offset + transfer.length) / BLOCK_BYTES as u64
                {
                    unflushed.entry(block).or_insert_with(|| {
                        let mut before = vec![0; BLOCK_BYTES];
                        disk.read_at(&mut before, block * BLOCK_BYTES as u64).unwrap();
                        before
                    });
                }
            }
            _ => {}
        }
    }

    pub fn tick(&mut self, now_us: u64) {
        self.engine.read_again();
        self.engine.read_unreadable(0);
        self.engine.make_what_was_lost();
        self.engine.advance(now_us);
        self.settle();
    }

    /// The last page of the flash, of those behind the first unit, that holds these bytes.
    pub fn page_of(&self, bytes: &[u8]) -> u64 {
        let mut page = vec![0; BLOCK_BYTES];
        (u64::from(GEOMETRY.unit_pages)..u64::from(GEOMETRY.pages()))
            .rev()
            .find(|number| {
                self.disks[FLASH].read_at(&mut page, number * BLOCK_BYTES as u64).unwrap();
                page == bytes
            })
            .expect("it is on flash")
    }

    pub fn damage(&self, page: u64) {
        let mut bytes = vec![0; BLOCK_BYTES];
        self.disks[FLASH].read_at(&mut bytes, page * BLOCK_BYTES as u64).unwrap();
        bytes[100] ^= 1;
        self.disks[FLASH].write_at(&bytes, page * BLOCK_BYTES as u64).unwrap();
    }
}
