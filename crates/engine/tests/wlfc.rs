//! The engine of WLFC on devices that cannot be read or written any more.
#![allow(clippy::unwrap_used)] // A test ends where something goes wrong.

use std::sync::{Arc, Mutex};

use flashwise_core::format::{BLOCK_BYTES, Geometry, Layout, Superblock};
use flashwise_engine::disk::memory::MemoryDisk;
use flashwise_engine::disk::{Disk, Operation as DiskOperation};
use flashwise_engine::engine::{BACKEND, FLASH, Output};
use flashwise_engine::export::{Error, Operation, Request};
use flashwise_engine::flash::{FlashError, cache_tag, format, read_superblock};
use flashwise_engine::wlfc::start::{self, Options};
use flashwise_engine::wlfc::{Engine, Settings};

/// Ten buckets of a header and 15 blocks, before 60 blocks.
const GEOMETRY: Geometry = Geometry { units: 11, unit_pages: 16 };
const BLOCKS: usize = 60;

struct World {
    disks: [MemoryDisk; 2],
    superblock: Superblock,
    engine: Engine,
    output: Output,
    /// What fails: operations of a disk.
    failing: Option<(usize, DiskOperation)>,
}

impl World {
    fn new() -> World {
        let flash = MemoryDisk::new(GEOMETRY.pages() as usize * BLOCK_BYTES);
        let backend = MemoryDisk::new(BLOCKS * BLOCK_BYTES);
        let mut superblock = Superblock::new([7; 16], [9; 16], GEOMETRY, (BLOCKS * BLOCK_BYTES) as u64);
        superblock.layout = Layout::Wlfc;
        format(&flash, &mut superblock).unwrap();
        start::format(&flash, GEOMETRY).unwrap();
        World::open([flash, backend], 1).unwrap()
    }

    fn open(disks: [MemoryDisk; 2], run: u64) -> Result<World, FlashError> {
        let superblock = read_superblock(&disks[FLASH])?;
        let held = start::scan(&disks[FLASH], &superblock, 2, &|_, _| ())?;
        let config = start::config(GEOMETRY, &Options::default(), superblock.volume_bytes).unwrap();
        let (wlfc, started) = held.start(config).unwrap();
        let settings = Settings { cache: cache_tag(&superblock), run, retries: 1, ..Settings::default() };
        let engine = Engine::new(wlfc, settings, started);
        Ok(World { disks, superblock, engine, output: Output::default(), failing: None })
    }

    /// Performs a request and all that follows from it.
    fn ask(&mut self, operation: Operation, block: usize, data: &[u8]) -> Result<Vec<u8>, Error> {
        let answer = Arc::new(Mutex::new(None));
        let shared = answer.clone();
        let done = Box::new(move |result| *shared.lock().unwrap() = Some(result));
        let length = match operation {
            Operation::Flush => 0,
            Operation::Read => BLOCK_BYTES,
            _ => data.len(),
        };
        let (offset, length, data) = ((block * BLOCK_BYTES) as u64, length as u64, data.to_vec());
        let caching = Default::default();
        let request = Request { operation, offset, length, force_unit_access: false, data, caching };
        self.engine.submit(request, done, 0);
        self.settle();
        answer.lock().unwrap().take().expect("it is answered")
    }

    fn settle(&mut self) {
        loop {
            self.engine.take_output(&mut self.output);
            self.output.answers.drain(..).for_each(|(done, result)| done(result));
            let Some(transfer) = self.output.transfers.pop() else { break };
            let others = std::mem::take(&mut self.output.transfers);
            for transfer in std::iter::once(transfer).chain(others) {
                let fails = self.failing == Some((transfer.disk, transfer.operation));
                let result = if fails { Err(Error::Io) } else { Ok(()) };
                if !fails {
                    transfer.perform(&self.disks[transfer.disk]).unwrap();
                }
                self.engine.completed(transfer.tag, result);
            }
        }
        assert_eq!(self.engine.running(), 0);
    }

    /// The last page of the flash, of those behind the first unit, that holds these bytes.
    fn page_of(&self, bytes: &[u8]) -> u64 {
        let mut page = vec![0; BLOCK_BYTES];
        (u64::from(GEOMETRY.unit_pages)..u64::from(GEOMETRY.pages()))
            .rev()
            .find(|number| {
                self.disks[FLASH].read_at(&mut page, number * BLOCK_BYTES as u64).unwrap();
                page == bytes
            })
            .expect("it is on flash")
    }

    fn damage(&self, page: u64) {
        let mut bytes = vec![0; BLOCK_BYTES];
        self.disks[FLASH].read_at(&mut bytes, page * BLOCK_BYTES as u64).unwrap();
        bytes[100] ^= 1;
        self.disks[FLASH].write_at(&bytes, page * BLOCK_BYTES as u64).unwrap();
    }
}

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
    assert_eq!(world.engine.unreadable(), [0; 0]);
}

/// It is an error of those who ask for it, is listed, and is over when it is written anew.
#[test]
fn a_log_that_cannot_be_read_fails_alone_until_it_is_written_anew() {
    let mut world = World::new();
    world.ask(Operation::Write, 3, &block(5)).unwrap();
    world.ask(Operation::Write, 4, &block(6)).unwrap();
    world.damage(world.page_of(&block(5)));
    assert_eq!(world.ask(Operation::Read, 3, &[]), Err(Error::Io));
    assert_eq!(world.engine.unreadable(), [3]);
    assert_eq!(world.ask(Operation::Read, 4, &[]), Ok(block(6)));
    // The copy that these reads have left has no content for it, and says so.
    assert_eq!(world.ask(Operation::Read, 3, &[]), Err(Error::Io));
    assert_eq!(world.engine.stopped(), None);
    world.ask(Operation::Write, 3, &block(7)).unwrap();
    assert_eq!(world.ask(Operation::Read, 3, &[]), Ok(block(7)));
    assert_eq!(world.engine.unreadable(), [0; 0]);
    world.ask(Operation::Flush, 0, &[]).unwrap();
    let mut world = World::open(world.disks, 2).unwrap();
    assert_eq!(world.ask(Operation::Read, 3, &[]), Ok(block(7)));
    assert_eq!(world.ask(Operation::Read, 4, &[]), Ok(block(6)));
}

#[test]
fn what_cannot_be_written_stops_everything_until_a_start() {
    for (disk, operation) in
        [(FLASH, DiskOperation::Write), (FLASH, DiskOperation::Sync), (BACKEND, DiskOperation::Write)]
    {
        let mut world = World::new();
        world.ask(Operation::Write, 3, &block(5)).unwrap();
        world.ask(Operation::Flush, 0, &[]).unwrap();
        world.failing = Some((disk, operation));
        // Larger than a bucket: it goes past the cache, behind a tombstone.
        let passes = disk == BACKEND;
        let written = world.ask(Operation::Write, 0, &vec![6; if passes { 16 * BLOCK_BYTES } else { BLOCK_BYTES }]);
        let flushed = world.ask(Operation::Flush, 0, &[]);
        assert!(written.is_err() || flushed.is_err(), "{disk}, {operation:?}");
        assert_eq!(world.engine.stopped(), Some(disk), "{operation:?}");
        world.failing = None;
        assert_eq!(world.ask(Operation::Write, 9, &block(1)), Err(Error::Io));
        assert_eq!(world.ask(Operation::Read, 9, &[]), Err(Error::Io));
        let mut world = World::open(world.disks, 2).unwrap();
        let found = world.ask(Operation::Read, 3, &[]).unwrap();
        assert!(found == block(5) || passes && found == block(6), "what was flushed is there");
    }
}

#[test]
fn a_damaged_header_that_was_durable_is_refused_and_its_bucket_is_told() {
    let mut world = World::new();
    for number in 0..3 {
        world.ask(Operation::Write, 3, &block(5 + number)).unwrap();
        world.ask(Operation::Flush, 0, &[]).unwrap();
    }
    let second = world.page_of(&block(6)) - 1;
    world.damage(second);
    let World { disks, superblock, .. } = world;
    let refused = start::scan(&disks[FLASH], &superblock, 1, &|_, _| ()).unwrap_err().to_string();
    assert!(refused.contains("a header page is damaged: page 2 of bucket 0, which was durable"), "{refused}");
    let (held, missing) = start::scan_remains(&disks[FLASH], &superblock, 1, &|_, _| ()).unwrap();
    assert_eq!((missing, held.blocks()), (vec![Some(0)], (1, 1)));
}
