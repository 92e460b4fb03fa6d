//! Processor time of the engine per request, with disks in memory whose transfers end at once: one thread, no sockets.
//! Beside it, one copy and one CRC-32C of the same bytes, which no cache can do without.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flashwise_benches::thread_seconds;
use flashwise_core::cache::{Config, LogCache, Mode};
use flashwise_core::checksum::crc32c;
use flashwise_core::format::{BLOCK_BYTES, Geometry};
use flashwise_core::layout::containers::Log;
use flashwise_core::policy::Spec;
use flashwise_engine::engine::{FLASH, Output, Settings};
use flashwise_engine::log::Engine;
use flashwise_storage::disk::Disk;
use flashwise_storage::disk::memory::MemoryDisk;
use flashwise_storage::export::{Operation, Request};

const GEOMETRY: Geometry = Geometry { units: 256, unit_pages: 256 };
const VOLUME_BLOCKS: u64 = 16_384;
const RUNS: usize = 5;

/// Returns the processor time of this thread in nanoseconds.
fn thread_ns() -> f64 {
    1e9 * thread_seconds()
}

struct World {
    engine: Engine,
    disks: [MemoryDisk; 2],
    output: Output,
    answered: Arc<AtomicU64>,
    now_us: u64,
}

impl World {
    fn new(mode: Mode, ram_blocks: u32) -> World {
        let config = Config {
            mode,
            sequential_blocks: 0,
            read_buffer_blocks: ram_blocks / 2,
            write_buffer_blocks: ram_blocks / 2,
            ..Config::new(GEOMETRY, Spec::parse("lru").expect("a policy"))
        };
        let cache = LogCache::new(config, Log::new(GEOMETRY), HashMap::new());
        let settings = Settings { cache: 1, epoch: 1, spare_frames: 2048, ..Settings::default() };
        let engine = Engine::new(cache, settings, vec![0; GEOMETRY.pages() as usize], Vec::new());
        let disks =
            [u64::from(GEOMETRY.pages()), VOLUME_BLOCKS].map(|blocks| MemoryDisk::new(blocks as usize * BLOCK_BYTES));
        World { engine, disks, output: Output::default(), answered: Arc::default(), now_us: 0 }
    }

    fn ask(&mut self, operation: Operation, offset: u64, length: u64) {
        let data = if operation == Operation::Write { vec![7; length as usize] } else { Vec::new() };
        let (force_unit_access, caching) = (false, Default::default());
        let answered = self.answered.clone();
        let done = move |result: Result<Vec<u8>, _>| {
            black_box(result).expect("nothing fails");
            answered.fetch_add(1, Ordering::Relaxed);
        };
        let request = Request { operation, offset, length, force_unit_access, data, caching };
        self.now_us += 10;
        self.engine.submit(request, Box::new(done), self.now_us);
        self.run();
    }

    fn run(&mut self) {
        loop {
            self.engine.take_output(&mut self.output);
            self.output.answers.drain(..).for_each(|(done, result)| done(result));
            self.output.answered.clear();
            if self.output.transfers.is_empty() {
                return;
            }
            for transfer in std::mem::take(&mut self.output.transfers) {
                let disk = if transfer.disk == FLASH { &self.disks[0] } else { &self.disks[1] };
                disk.perform(&transfer).expect("nothing fails");
                self.engine.completed(transfer.tag, Ok(()));
            }
        }
    }

    /// Asks for `requests` random ranges. Returns nanoseconds per request.
    fn measure(&mut self, operation: Operation, blocks: u64, area: u64, requests: u64) -> f64 {
        let (mut at, before) = (1u64, self.answered.load(Ordering::Relaxed));
        let start = thread_ns();
        for _ in 0..requests {
            at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let range = (at >> 33) % (area / blocks);
            self.ask(operation, range * blocks * BLOCK_BYTES as u64, blocks * BLOCK_BYTES as u64);
        }
        let time = (thread_ns() - start) / requests as f64;
        assert_eq!(self.answered.load(Ordering::Relaxed) - before, requests);
        time
    }
}

fn main() {
    let area = 4096;
    println!("{:34} {:>9} {:>9} {:>9} {:>9}", "", "ns least", "ns median", "per block", "copy, CRC");
    let rows = [
        ("read from RAM", Operation::Read, Mode::WriteBack, 16_384),
        ("read from flash", Operation::Read, Mode::WriteBack, 0),
        ("write, write-back", Operation::Write, Mode::WriteBack, 0),
        ("write, write-through", Operation::Write, Mode::WriteThrough, 0),
    ];
    for (name, operation, mode, ram_blocks) in rows {
        for blocks in [1, 32] {
            let mut world = World::new(mode, ram_blocks);
            (0..area / 32).for_each(|range| world.ask(Operation::Write, range * 32 * 4096, 32 * 4096));
            world.engine.destage_all(world.now_us);
            world.run();
            let requests = 20_000 / blocks.min(8);
            let mut times: Vec<f64> = (0..RUNS).map(|_| world.measure(operation, blocks, area, requests)).collect();
            times.sort_by(f64::total_cmp);
            let bytes = vec![1u8; blocks as usize * BLOCK_BYTES];
            let mut target = bytes.clone();
            let start = thread_ns();
            for _ in 0..requests {
                target.copy_from_slice(black_box(&bytes));
                black_box(crc32c(black_box(&target)));
            }
            let floor = (thread_ns() - start) / requests as f64;
            let (least, median) = (times[0], times[RUNS / 2]);
            println!(
                "{:34} {least:9.0} {median:9.0} {:9.0} {floor:9.0}",
                format!("{name}, {} KiB", blocks * 4),
                least / blocks as f64
            );
        }
    }
}
