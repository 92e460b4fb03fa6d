//! The order of steps, on disks in memory whose transfers end when the test ends them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use flashwise_core::cache::{Cache, Config, LogCache, Mode};
use flashwise_core::format::{BLOCK_BYTES, Geometry};
use flashwise_core::layout::containers::Log;
use flashwise_core::policy::Spec;
use flashwise_engine::engine::{FLASH, Output, Settings};
use flashwise_engine::log::Engine;
use flashwise_storage::disk::memory::MemoryDisk;
use flashwise_storage::disk::{Disk, Operation as DiskOperation, Transfer};
use flashwise_storage::export::{Error, Operation, Request};

const GEOMETRY: Geometry = Geometry { units: 64, unit_pages: 64 };
const BLOCK: u64 = BLOCK_BYTES as u64;

fn content(block: u64) -> Vec<u8> {
    (block + 1).to_le_bytes().repeat(BLOCK_BYTES / 8)
}

struct World {
    engine: Engine,
    disks: [MemoryDisk; 2],
    /// Transfers of the backend that did not end yet.
    slow: Vec<Transfer>,
    answers: Arc<Mutex<HashMap<u64, Vec<u8>>>>,
    /// Of each write of the flash, its pages and its stream.
    written: Vec<(u64, u8)>,
}

impl World {
    fn new(spare_frames: u32) -> World {
        World::with_streams(spare_frames, 0)
    }

    fn with_streams(spare_frames: u32, write_streams: u8) -> World {
        World::of(World::config("lru"), spare_frames, write_streams)
    }

    fn config(policy: &str) -> Config {
        Config {
            dirty_age_us: u64::MAX,
            commit_age_us: u64::MAX,
            sequential_blocks: 0,
            ..Config::new(GEOMETRY, Spec::parse(policy).unwrap())
        }
    }

    fn of(config: Config, spare_frames: u32, write_streams: u8) -> World {
        World::with_settings(
            config,
            Settings { cache: 1, epoch: 1, write_streams, spare_frames, ..Settings::default() },
        )
    }

    fn with_settings(config: Config, settings: Settings) -> World {
        let blocks = 8_000;
        let cache = LogCache::new(config, Log::new(GEOMETRY), HashMap::new());
        let engine = Engine::new(cache, settings, vec![0; GEOMETRY.pages() as usize], Vec::new());
        let backend = MemoryDisk::new(blocks * BLOCK_BYTES);
        (0..blocks as u64).for_each(|block| backend.write_at(&content(block), block * BLOCK).unwrap());
        let flash = MemoryDisk::new(GEOMETRY.pages() as usize * BLOCK_BYTES);
        World { engine, disks: [flash, backend], slow: Vec::new(), answers: Arc::default(), written: Vec::new() }
    }

    /// Starts to read `count` blocks. Of the transfers that follow, those of the flash end.
    fn read(&mut self, block: u64, count: u64) {
        self.ask(Operation::Read, block, count, Vec::new());
    }

    fn ask(&mut self, operation: Operation, block: u64, count: u64, data: Vec<u8>) {
        let answers = self.answers.clone();
        let done = move |result: Result<Vec<u8>, Error>| {
            result.into_iter().for_each(|read| drop(answers.lock().unwrap().insert(block, read)));
        };
        let (offset, length) = (block * BLOCK, count * BLOCK);
        let request =
            Request { operation, offset, length, force_unit_access: false, data, caching: Default::default() };
        self.engine.submit(request, Box::new(done), 0);
        self.run();
    }

    fn run(&mut self) {
        let mut output = Output::default();
        loop {
            self.engine.take_output(&mut output);
            output.answers.drain(..).for_each(|(done, result)| done(result));
            if output.transfers.is_empty() {
                return;
            }
            for transfer in output.transfers.drain(..) {
                match transfer.disk {
                    FLASH => self.end(&transfer),
                    _ => self.slow.push(transfer),
                }
            }
        }
    }

    fn end(&mut self, transfer: &Transfer) {
        if (transfer.disk, transfer.operation) == (FLASH, DiskOperation::Write) {
            self.written.push((transfer.length / BLOCK, transfer.stream));
        }
        self.disks[transfer.disk].perform(transfer).unwrap();
        self.engine.completed(transfer.tag, Ok(()));
    }

    /// Takes the answer to a read, if it came.
    fn answer(&self, block: u64) -> Option<Vec<u8>> {
        self.answers.lock().unwrap().remove(&block)
    }

    /// Ends the first change of the backend, which fails or not.
    fn end_change(&mut self, fails: bool) {
        let is_change = |transfer: &Transfer| transfer.operation != DiskOperation::Sync;
        let first = self.slow.iter().position(is_change).expect("there is one");
        let transfer = self.slow.remove(first);
        match fails {
            true => self.engine.completed(transfer.tag, Err(Error::Io)),
            false => self.end(&transfer),
        }
        self.run();
    }

    fn end_backend(&mut self) {
        while let Some(transfer) = self.slow.pop() {
            self.end(&transfer);
            self.run();
        }
    }
}

fn contents(block: u64, count: u64) -> Vec<u8> {
    (block..block + count).flat_map(content).collect()
}

/// A hundred clients read 8 blocks each that the backend has, while others are read from flash many times more often
/// than there are frames.
#[test]
fn while_the_backend_is_slow_hits_do_not_wait_and_each_miss_is_one_transfer() {
    let mut world = World::new(1024);
    // 62 of them are the first segment of the log, which is written.
    world.read(0, 64);
    world.end_backend();
    assert_eq!(world.answer(0).unwrap(), contents(0, 64));
    for client in 0..100 {
        let missed = 1_000 + client * 10;
        world.read(missed, 8);
        assert_eq!(world.slow.len() as u64, client + 1, "each is one transfer");
        assert_eq!(world.slow[client as usize].length, 8 * BLOCK);
        assert!(world.answer(missed).is_none());
        for _ in 0..5 {
            world.read(0, 60);
            assert!(world.answer(0).expect("a hit does not wait") == contents(0, 60));
        }
    }
    world.end_backend();
    for client in 0..100 {
        assert!(world.answer(1_000 + client * 10).unwrap() == contents(1_000 + client * 10, 8), "client {client}");
    }
    assert_eq!(world.engine.running(), 0);
    world.engine.cache().check();
}

/// Twice what there are frames for: the rest waits, and gets its turn. The second time, blocks are read that segments
/// under way hold, whose memory is to hold others next.
#[test]
fn without_spare_frames_reads_wait_and_are_correct() {
    for spare_frames in [0, 1, 500] {
        let mut world = World::new(spare_frames);
        (0..250).for_each(|client| world.read(client * 10, 10));
        assert!(world.slow.len() < 250, "with {spare_frames} spare frames");
        (0..250).for_each(|client| world.read(client * 10 + 1, 9));
        world.end_backend();
        for client in 0..250 {
            assert!(world.answer(client * 10).unwrap() == contents(client * 10, 10), "client {client}");
            assert!(world.answer(client * 10 + 1).unwrap() == contents(client * 10 + 1, 9), "client {client}, again");
        }
        assert_eq!(world.engine.running(), 0);
    }
}

/// The dirty limit is reached, and the backend takes nothing. Blocks on flash are read and others are written. A flush
/// waits only for the flash.
#[test]
fn write_back_delays_only_clients_that_need_the_backend() {
    let mut world = World::new(1024);
    // What an earlier run wrote to the backend is flushed once.
    world.ask(Operation::Flush, 9_000, 0, Vec::new());
    world.end_backend();
    let mut block = 0;
    while world.slow.is_empty() {
        world.ask(Operation::Write, block, 8, contents(block, 8));
        assert!(world.answer(block).is_some(), "a write to flash waits for nothing");
        block += 8;
    }
    let dirty_blocks = world.engine.cache().log().dirty_blocks();
    for round in 0..20 {
        let written = block + 8 * round;
        world.ask(Operation::Write, written, 8, contents(written + 1, 8));
        assert!(world.answer(written).is_some(), "a write to flash waits for nothing");
        world.ask(Operation::Flush, 9_000 + round, 0, Vec::new());
        assert!(world.answer(9_000 + round).is_some(), "a flush waits for what was answered before");
        for read in (0..block).step_by(64) {
            world.read(read, 8);
            assert!(world.answer(read).expect("a hit does not wait") == contents(read, 8));
        }
        assert!((1..=8).contains(&world.slow.len()), "{} transfers are under way", world.slow.len());
    }
    assert!(world.engine.cache().log().dirty_blocks() >= dirty_blocks, "nothing came to the backend yet");
    world.end_backend();
    assert!(world.engine.cache().log().dirty_blocks() < dirty_blocks);
    world.ask(Operation::Flush, 9_999, 0, Vec::new());
    assert!(world.answer(9_999).is_some());
    assert_eq!(world.engine.running(), 0);
    world.engine.cache().check();
}

/// A flush of the backend for clients fails while a batch is in progress. Blocks that were written back before may be
/// gone with it, and stay dirty.
#[test]
fn a_batch_is_not_clean_after_a_flush_of_another_failed() {
    let mut world = World::new(1024);
    let mut block = 0;
    while world.slow.is_empty() {
        world.ask(Operation::Write, block, 8, contents(block, 8));
        block += 8;
    }
    let dirty_blocks = world.engine.cache().log().dirty_blocks();
    world.engine.cache_mut().set_mode(Mode::WriteAround);
    world.ask(Operation::Write, 7_900, 8, contents(7_900, 8));
    let written =
        world.slow.iter().position(|transfer| transfer.offset == 7_900 * BLOCK).expect("it goes to the backend");
    let written = world.slow.remove(written);
    world.end(&written);
    world.run();
    world.ask(Operation::Flush, 9_000, 0, Vec::new());
    let flush =
        world.slow.iter().position(|transfer| transfer.operation == DiskOperation::Sync).expect("it is flushed");
    let flush = world.slow.remove(flush);
    let before: Vec<u32> = world.engine.cache().batches();
    assert!(!before.is_empty());
    world.engine.completed(flush.tag, Err(Error::Io));
    world.run();
    assert!(world.answers.lock().unwrap().remove(&9_000).is_none(), "the flush failed");
    while world.engine.cache().batches().iter().any(|batch| before.contains(batch)) {
        let transfer = world.slow.remove(0);
        world.end(&transfer);
        world.run();
    }
    assert_eq!(world.engine.cache().log().dirty_blocks(), dirty_blocks, "every block of the batch is dirty still");
}

/// A flush of the backend failed while a write was in progress there. The write may be gone too, although it is
/// answered later.
#[test]
fn a_failed_flush_reports_a_concurrent_acknowledged_write() {
    let mut world = World::new(1024);
    world.engine.cache_mut().set_mode(Mode::WriteAround);
    world.ask(Operation::Write, 100, 1, contents(1, 1));
    world.end_backend();
    world.ask(Operation::Flush, 9_000, 0, Vec::new());
    let flush = world.slow.pop().expect("the backend is flushed");
    assert_eq!(flush.operation, DiskOperation::Sync);
    world.ask(Operation::Write, 200, 1, contents(2, 1));
    world.engine.completed(flush.tag, Err(Error::Io));
    world.run();
    assert!(world.answer(9_000).is_none() && world.answer(200).is_none(), "the flush failed");
    world.end_backend();
    assert!(world.answer(200).is_some());
    world.ask(Operation::Flush, 9_001, 0, Vec::new());
    world.end_backend();
    assert!(world.answer(9_001).is_none(), "nobody was told of the write");
    world.ask(Operation::Flush, 9_002, 0, Vec::new());
    world.end_backend();
    assert!(world.answer(9_002).is_some());
}

/// A flush of the backend fails. Only a durable write reports it. The flush that has to report it is handed back,
/// because the flash fails meanwhile. So the engine without flash has to report it.
#[test]
fn a_returned_flush_has_reported_no_error() {
    let settings = Settings { spare_frames: 1024, holds_failed: true, ..Settings::default() };
    let mut world = World::with_settings(World::config("lru"), settings);
    world.engine.cache_mut().set_mode(Mode::WriteAround);
    world.ask(Operation::Write, 100, 1, contents(1, 1));
    world.end_backend();
    assert!(world.answer(100).is_some(), "it is answered");
    let (offset, length, data) = (200 * BLOCK, BLOCK, contents(2, 1));
    let operation = Operation::Write;
    let request = Request { operation, offset, length, force_unit_access: true, data, caching: Default::default() };
    let heard = Arc::new(Mutex::new(None));
    let hears = heard.clone();
    world.engine.submit(request, Box::new(move |result| *hears.lock().unwrap() = Some(result)), 0);
    world.run();
    world.end_change(false);
    let flush = world.slow.pop().expect("the backend is flushed");
    assert_eq!(flush.operation, DiskOperation::Sync);
    world.engine.completed(flush.tag, Err(Error::Io));
    world.run();
    assert_eq!(*heard.lock().unwrap(), Some(Err(Error::Io)));
    world.engine.give_flash_up();
    world.ask(Operation::Flush, 9_000, 0, Vec::new());
    world.end_backend();
    assert!(world.answer(9_000).is_none(), "it is not answered");
    let mut next = World::new(1024).engine;
    next.succeed(world.engine.legacy());
    assert_eq!(next.legacy().unreported, 1);
}

/// A block that the policy rejects waits in memory and is on its way to the backend. Zeroes or a write of the same
/// block follow. The result of the newer one counts: the block has the newer content, unless only that one failed.
#[test]
fn the_result_of_the_newer_change_counts() {
    let written = contents(70, 1);
    for (zeroes, older_fails, newer_fails) in [true, false]
        .into_iter()
        .flat_map(|zeroes| [(zeroes, true, false), (zeroes, true, true), (zeroes, false, true)])
    {
        let what = format!("zeroes {zeroes}, the older fails {older_fails}, the newer {newer_fails}");
        let mut world = World::of(Config { write_buffer_blocks: 64, ..World::config("larc:fill=ghost") }, 1024, 0);
        // What an earlier run wrote to the backend is flushed once.
        world.ask(Operation::Flush, 9_000, 0, Vec::new());
        world.end_backend();
        world.ask(Operation::Write, 7, 1, written.clone());
        assert!(world.answer(7).is_some(), "it waits in memory");
        world.ask(Operation::Flush, 9_001, 0, Vec::new());
        let newer = if zeroes { vec![0; BLOCK_BYTES] } else { contents(71, 1) };
        match zeroes {
            true => world.ask(Operation::Trim, 7, 1, Vec::new()),
            false => {
                world.engine.cache_mut().set_mode(Mode::WriteAround);
                world.ask(Operation::Write, 7, 1, newer.clone());
            }
        }
        world.end_change(older_fails);
        world.end_change(newer_fails);
        world.end_backend();
        // Others may make durable what is known.
        world.ask(Operation::Flush, 9_003, 0, Vec::new());
        world.end_backend();
        world.engine.write_unwritten(1);
        world.end_backend();
        assert_eq!(world.engine.lost_blocks(), [0; 0], "{what}");
        world.read(7, 1);
        world.end_backend();
        let read = world.answer(7).unwrap_or_else(|| panic!("{what}: it cannot be read"));
        assert!(read == newer || newer_fails && !older_fails && read == written, "{what}");
        world.ask(Operation::Flush, 9_004, 0, Vec::new());
        world.end_backend();
        assert!(world.answer(9_004).is_some(), "{what}");
        world.engine.cache().check();
    }
}

/// A read waits behind a write that fails on the backend: what the write was to make of the block is kept all the same.
#[test]
fn a_block_read_during_its_failed_write_is_not_lost() {
    let mut world = World::of(Config { write_buffer_blocks: 64, ..World::config("larc:fill=ghost") }, 1024, 0);
    world.ask(Operation::Write, 7, 1, contents(70, 1));
    world.ask(Operation::Flush, 9_000, 0, Vec::new());
    world.read(7, 1);
    world.end_change(true);
    world.end_backend();
    world.answer(7);
    for _ in 0..2 {
        world.read(7, 1);
        world.end_backend();
        assert!(world.answer(7) == Some(contents(70, 1)));
        world.engine.write_unwritten(1);
        world.end_backend();
    }
    assert_eq!(world.engine.lost_blocks(), [0; 0]);
    world.ask(Operation::Flush, 9_001, 0, Vec::new());
    world.end_backend();
    assert!(world.answer(9_001).is_some());
}

/// The pages of each write of the flash, and its stream. One segment has two blocks of a client. The other has three
/// admitted blocks and one of a client.
#[test]
fn a_flash_with_write_streams_gets_the_kind_of_each_page() {
    for (streams, expected) in [
        (0, vec![(3, 0), (5, 0)]),
        (1, vec![(3, 1), (5, 1)]),
        (2, vec![(1, 1), (2, 2), (1, 1), (4, 2)]),
        (9, vec![(1, 1), (2, 2), (1, 1), (3, 3), (1, 2)]),
    ] {
        let mut world = World::with_streams(64, streams);
        world.ask(Operation::Write, 10, 2, contents(10, 2));
        world.ask(Operation::Flush, 0, 0, Vec::new());
        world.read(100, 3);
        world.end_backend();
        world.ask(Operation::Write, 20, 1, contents(20, 1));
        world.ask(Operation::Flush, 0, 0, Vec::new());
        assert_eq!(world.written, expected, "{streams} streams");
    }
}
