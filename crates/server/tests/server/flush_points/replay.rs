//! A recording played to the cache, on disks that lose unflushed writes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use flashwise_core::cache::{Cache, Config, LogCache, Mode};
use flashwise_core::format::{BLOCK_BYTES, Geometry, Superblock};
use flashwise_core::policy::Spec;
use flashwise_engine::engine::{BACKEND, FLASH, Output, Settings};
use flashwise_engine::log::Engine;
use flashwise_storage::disk::{Disk, Operation as DiskOperation, Transfer};
use flashwise_storage::export::{Operation, Request};
use flashwise_storage::flash::{cache_tag, format, read_superblock, recover_log, settle};
use flashwise_testing::fake_disk::{FakeDisk, Loss};
use flashwise_testing::random::Random;

use super::recording::Recorded;

/// 3 MiB of flash, which is written several times over.
const GEOMETRY: Geometry = Geometry { units: 24, unit_pages: 32 };
const SECTOR_BYTES: usize = 512;
/// Bytes of a read.
const READ_BYTES: usize = 1 << 20;

#[derive(Clone, Debug)]
pub struct Setup {
    pub mode: Mode,
    pub policy: &'static str,
    pub ram_blocks: u32,
    pub sequential_blocks: u32,
    /// The control: flushes are answered without effect.
    pub ignores_flushes: bool,
}

impl Setup {
    fn config(&self) -> Config {
        Config {
            segment_blocks: 16,
            mode: self.mode,
            read_buffer_blocks: self.ram_blocks / 2,
            write_buffer_blocks: self.ram_blocks / 2,
            dirty_low: 0.3,
            dirty_age_us: 10_000_000,
            commit_age_us: 2_000_000,
            sequential_blocks: self.sequential_blocks,
            ..Config::new(GEOMETRY, Spec::parse(self.policy).unwrap())
        }
    }
}

struct InFlight {
    transfer: Transfer,
    /// The last write when the transfer was started; a flush covers it.
    writes: u64,
}

/// The cache, its disks, and the work in flight.
pub struct Replay {
    setup: Setup,
    disks: [FakeDisk; 2],
    engine: Engine,
    random: Random,
    in_flight: Vec<InFlight>,
    outstanding: Arc<AtomicUsize>,
    violations: Arc<Mutex<Vec<String>>>,
    output: Output,
    now_us: u64,
    /// The content of the volume.
    pub content: Vec<u8>,
}

impl Replay {
    pub fn new(setup: Setup, size: u64, seed: u64) -> Replay {
        let flash = FakeDisk::new(GEOMETRY.pages() as usize, SECTOR_BYTES);
        // Blocks written past the cache are atomic, because the backend writes whole blocks.
        let backend = FakeDisk::new(size as usize / BLOCK_BYTES, BLOCK_BYTES);
        let mut superblock = Superblock::new([7; 16], [9; 16], GEOMETRY, size);
        format(&flash, &mut superblock).unwrap();
        Replay::open(setup, [flash, backend], vec![0; size as usize], seed).unwrap()
    }

    fn open(setup: Setup, disks: [FakeDisk; 2], content: Vec<u8>, seed: u64) -> Result<Replay, String> {
        let superblock = read_superblock(&disks[FLASH]).map_err(|error| format!("superblock: {error}"))?;
        let recovered =
            recover_log(&disks[FLASH], &superblock, 1, &|_, _| ()).map_err(|error| format!("recovery: {error}"))?;
        if !recovered.lost.is_empty() {
            return Err(format!("{} blocks are lost, and no device failed", recovered.lost.len()));
        }
        settle(&disks[FLASH], &recovered).map_err(|error| format!("settling: {error}"))?;
        let settings = Settings {
            cache: cache_tag(&superblock),
            epoch: recovered.epoch,
            retries: 0,
            discard: true,
            spare_frames: 16,
            answers_flushes_at_once: setup.ignores_flushes,
            ..Settings::default()
        };
        let cache = LogCache::new(setup.config(), recovered.log, recovered.lost);
        Ok(Replay {
            engine: Engine::new(cache, settings, recovered.checksums, recovered.head_records),
            setup,
            disks,
            random: Random(seed),
            in_flight: Vec::new(),
            outstanding: Arc::default(),
            violations: Arc::default(),
            output: Output::default(),
            now_us: 0,
            content,
        })
    }

    /// Makes a request; some of the work in flight completes.
    pub fn submit(&mut self, recorded: &Recorded) -> Result<(), String> {
        let Recorded { operation, offset, length, force_unit_access, ref data } = *recorded;
        if length == 0 && operation != Operation::Flush {
            return Ok(());
        }
        self.now_us += self.random.below(20_000);
        let range = offset as usize..(offset + length) as usize;
        match operation {
            Operation::Write => self.content[range.clone()].copy_from_slice(data),
            Operation::WriteZeroes { .. } => self.content[range.clone()].fill(0),
            Operation::Trim => {
                // A partly trimmed block keeps its content.
                let first = range.start.next_multiple_of(BLOCK_BYTES);
                let end = range.end / BLOCK_BYTES * BLOCK_BYTES;
                self.content[first..end.max(first)].fill(0);
            }
            Operation::Read | Operation::Flush | Operation::Cache => {}
        }
        let expected = if operation == Operation::Read { self.content[range].to_vec() } else { Vec::new() };
        let violations = self.violations.clone();
        self.start(operation, offset, length, force_unit_access, data.to_vec(), move |result| {
            let wrong = match result {
                Ok(bytes) if operation != Operation::Read || bytes == expected => return,
                Ok(_) => format!("{length} bytes at {offset} read as something else"),
                Err(error) => format!("{operation:?} of {length} bytes at {offset}: {error}"),
            };
            violations.lock().unwrap().push(wrong);
        });
        while self.is_answering() && self.random.chance(2) {
            self.end_one();
        }
        self.check()
    }

    fn start(
        &mut self,
        operation: Operation,
        offset: u64,
        length: u64,
        force_unit_access: bool,
        data: Vec<u8>,
        done: impl FnOnce(Result<Vec<u8>, flashwise_storage::export::Error>) + Send + 'static,
    ) {
        self.outstanding.fetch_add(1, Ordering::Relaxed);
        let outstanding = self.outstanding.clone();
        let done = Box::new(move |result| {
            outstanding.fetch_sub(1, Ordering::Relaxed);
            done(result);
        });
        self.engine.submit(
            Request { operation, offset, length, force_unit_access, data, caching: Default::default() },
            done,
            self.now_us,
        );
        self.collect();
    }

    fn collect(&mut self) {
        self.engine.take_output(&mut self.output);
        for (done, result) in self.output.answers.drain(..) {
            done(result);
        }
        self.output.answered.clear();
        for transfer in self.output.transfers.drain(..) {
            let writes = self.disks[transfer.disk].writes();
            self.in_flight.push(InFlight { writes, transfer });
        }
    }

    fn check(&self) -> Result<(), String> {
        self.violations.lock().unwrap().first().map_or(Ok(()), |violation| Err(violation.clone()))
    }

    /// True if requests wait for a reply.
    pub fn is_answering(&self) -> bool {
        self.outstanding.load(Ordering::Relaxed) > 0
    }

    /// Completes one transfer.
    pub fn end_one(&mut self) {
        assert!(!self.in_flight.is_empty(), "requests hang");
        let chosen = self.random.below(self.in_flight.len() as u64) as usize;
        let InFlight { transfer, writes } = self.in_flight.swap_remove(chosen);
        let disk = &self.disks[transfer.disk];
        match transfer.operation {
            DiskOperation::Sync => disk.sync_until(writes),
            _ => disk.perform(&transfer).unwrap(),
        }
        self.engine.completed(transfer.tag, Ok(()));
        self.collect();
    }

    /// Completes all requests.
    pub fn answer_all(&mut self) -> Result<(), String> {
        while self.is_answering() {
            self.end_one();
        }
        self.check()
    }

    fn settle(&mut self) -> Result<(), String> {
        while !self.in_flight.is_empty() {
            self.end_one();
        }
        self.check()
    }

    /// Returns the whole volume after a power failure now. It is read through the cache, or, once detached, from the
    /// backend.
    pub fn after_power_failure(&mut self) -> Result<Vec<u8>, String> {
        let random = &mut self.random;
        let disks = self.disks.each_ref().map(FakeDisk::fork);
        for InFlight { transfer, .. } in &self.in_flight {
            let changes = !matches!(transfer.operation, DiskOperation::Read | DiskOperation::Sync);
            if changes && random.chance(2) {
                disks[transfer.disk].perform(transfer).unwrap();
            }
        }
        let losses = [Loss::Nothing, Loss::Everything, Loss::Sectors, Loss::Sectors, Loss::Writes, Loss::Writes];
        for disk in &disks {
            disk.crash(random.pick(&losses), random);
        }
        let size = self.content.len();
        let mut recovered = Replay::open(self.setup.clone(), disks, Vec::new(), random.next())?;
        if self.random.chance(4) {
            return recovered.detached(size);
        }
        recovered.read_all(size)
    }

    fn read_all(&mut self, size: usize) -> Result<Vec<u8>, String> {
        let bytes = Arc::new(Mutex::new(vec![0; size]));
        for offset in (0..size).step_by(READ_BYTES) {
            let (bytes, violations) = (bytes.clone(), self.violations.clone());
            let length = READ_BYTES.min(size - offset);
            self.start(Operation::Read, offset as u64, length as u64, false, Vec::new(), move |result| match result {
                Ok(read) => bytes.lock().unwrap()[offset..offset + length].copy_from_slice(&read),
                Err(error) => violations.lock().unwrap().push(format!("{length} bytes at {offset}: {error}")),
            });
            self.settle()?;
        }
        Ok(std::mem::take(&mut *bytes.lock().unwrap()))
    }

    fn detached(&mut self, size: usize) -> Result<Vec<u8>, String> {
        for _ in 0..2 {
            self.now_us += 1_000_000;
            self.engine.destage_all(self.now_us);
            self.collect();
            self.settle()?;
        }
        let dirty = self.engine.cache().log().dirty_blocks();
        if dirty > 0 {
            return Err(format!("{dirty} blocks stay dirty"));
        }
        Ok((0..size / BLOCK_BYTES).flat_map(|page| self.disks[BACKEND].page(page)).collect())
    }

    /// Returns a summary of the cache's work for people.
    pub fn description(&self) -> String {
        let figures = self.engine.cache().figures();
        format!(
            "{} blocks written to flash, {} erasures, {} written back, {} read from flash",
            figures.flash_written_blocks(),
            figures.erasures,
            figures.destaged_blocks,
            figures.flash_read_hits
        )
    }
}
