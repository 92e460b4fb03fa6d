//! Shows the waits of clients that write more than a slow backend takes: `pressure DIRECTORY [SECONDS [POLICY]]`.
//!
//! Eight writers of random blocks and a reader that misses fill a cache of 64 MiB in front of a backend of 8 ms.
//! Another reader hits the flash, and every second there is a flush. Prints the longest wait of each, and the requests
//! per second.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use flashwise_core::cache::Cache;
use flashwise_core::cache::settings::Settings;
use flashwise_storage::export::{Export, Operation, Request};
use flashwise_storage::volume::{Volume, VolumeConfig};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const BLOCK: u64 = 4096;
const VOLUME_BLOCKS: u64 = 1 << 20;
/// Blocks that the reader of hits reads again and again.
const HOT_BLOCKS: u64 = 256;
const WRITERS: u64 = 8;

/// Requests of a kind, and the longest of them.
#[derive(Default)]
struct Waits {
    count: AtomicU64,
    longest_us: AtomicU64,
}

impl Waits {
    fn ask(&self, volume: &Volume, operation: Operation, block: u64) {
        let (sender, receiver) = mpsc::channel();
        let length = if operation == Operation::Flush { 0 } else { BLOCK };
        let data = if operation == Operation::Write { vec![1; length as usize] } else { Vec::new() };
        let started = Instant::now();
        let request = Request {
            operation,
            offset: block * BLOCK,
            length,
            force_unit_access: false,
            data,
            caching: Default::default(),
        };
        volume.submit(request, Box::new(move |result| sender.send(result.is_ok()).expect("the client waits")));
        assert!(receiver.recv().expect("every request is answered"), "a request failed");
        self.longest_us.fetch_max(started.elapsed().as_micros() as u64, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    fn report(&self, name: &str, seconds: f64) {
        let (count, longest) = (self.count.load(Ordering::Relaxed), self.longest_us.load(Ordering::Relaxed));
        println!("{name}: {:.0} a second, longest {:.1} ms", count as f64 / seconds, longest as f64 / 1e3);
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (directory, seconds, policy) = match &arguments[..] {
        [directory] => (directory, 60.0, "lru"),
        [directory, seconds] => (directory, seconds.parse()?, "lru"),
        [directory, seconds, policy] => (directory, seconds.parse()?, policy.as_str()),
        _ => return Err("usage: pressure DIRECTORY [SECONDS [POLICY]]".into()),
    };
    let directory = std::path::Path::new(directory);
    let (backend, flash) = (directory.join("pressure.backend"), directory.join("pressure.flash"));
    let _ = (std::fs::remove_file(&backend), std::fs::remove_file(&flash));
    std::fs::File::create(&backend)?.set_len(VOLUME_BLOCKS * BLOCK)?;
    let config = VolumeConfig {
        flash_size_bytes: Some(64 << 20),
        cache: Settings::of(&[("erase-unit", "1MiB"), ("ram", "0"), ("policy", policy)])?,
        backend_delay_us: 8_000,
        ..VolumeConfig::of("disk", &backend, &flash)
    };
    let (volume, _): (Arc<Volume>, _) = Volume::open(config, &|_, _| ())?;
    let (hits, misses, writes, flushes) = (Waits::default(), Waits::default(), Waits::default(), Waits::default());
    for _ in 0..2 {
        (0..HOT_BLOCKS).for_each(|block| Waits::default().ask(&volume, Operation::Read, block));
    }
    let ended = AtomicBool::new(false);
    let begun = Instant::now();
    let running = || !ended.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (volume, writes) = (&volume, &writes);
            scope.spawn(move || {
                let mut random = Xoshiro256PlusPlus::seed_from_u64(writer);
                while running() {
                    writes.ask(volume, Operation::Write, random.random_range(VOLUME_BLOCKS / 2..VOLUME_BLOCKS));
                }
            });
        }
        scope.spawn(|| {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(WRITERS);
            while running() {
                misses.ask(&volume, Operation::Read, random.random_range(HOT_BLOCKS..VOLUME_BLOCKS / 2));
            }
        });
        scope.spawn(|| {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(WRITERS + 1);
            while running() {
                hits.ask(&volume, Operation::Read, random.random_range(0..HOT_BLOCKS));
                std::thread::sleep(Duration::from_micros(500));
            }
        });
        scope.spawn(|| {
            while running() {
                flushes.ask(&volume, Operation::Flush, 0);
                std::thread::sleep(Duration::from_secs(1));
            }
        });
        for second in 0..(seconds as u64) {
            std::thread::sleep(Duration::from_secs(1));
            if second % 5 == 4 {
                let status = volume.status();
                eprintln!(
                    "{} s: {} writes, {} dirty blocks, {} refused reads, {} refused writes, {:.1} s throttled",
                    second + 1,
                    writes.count.load(Ordering::Relaxed),
                    status.dirty_blocks,
                    status.cache.refused_read_blocks,
                    status.cache.refused_write_blocks,
                    status.throttled_seconds
                );
            }
        }
        ended.store(true, Ordering::Relaxed);
    });
    let seconds = begun.elapsed().as_secs_f64();
    hits.report("reads of hot blocks", seconds);
    misses.report("reads that miss", seconds);
    writes.report("writes", seconds);
    flushes.report("flushes", seconds);
    let figures = volume.with_cache(|cache| cache.figures());
    let missed = figures.reads - figures.flash_read_hits;
    let admitted = 100.0 * (1.0 - figures.refused_read_blocks as f64 / missed as f64);
    println!("{missed} blocks missed, of which {admitted:.0} % were admitted");
    Ok(())
}
