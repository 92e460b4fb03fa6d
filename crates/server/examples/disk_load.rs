//! The webserver and netsfs workloads of LARC's section V.C, at the level of blocks, against a volume whose backend is as slow as a
//! disk: `disk_load DIRECTORY webserver|netsfs POLICY FLASH_MIB SECONDS`,
//! of which the first half warms the cache and is not counted.
//!
//! The paper ran Filebench on ext4 in front of the cache, 8.5 and 12 GB of files, with at most 1 GB of page cache. This runs at a
//! scale of 1 to 40, without a file system: a file is a run of blocks, the page cache is an LRU in front of the volume.
//!
//! - webserver: 100 threads; each reads ten whole files of 32 KiB on average and appends 16 KiB to a log, again and again. The page cache
//!   gathers what is appended and writes it 256 KiB at a time.
//! - netsfs: one thread; it reads a file of 4 KiB and writes it back, writes another whole, and appends to a third, again and again.
//!
//! Files are chosen by a gamma distribution with alpha 0.1 and beta 1, as in the paper, times the number of files and wrapped around.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use flashwise_core::cache::Mode;
use flashwise_core::ram::read_buffer::ReadBuffer;
use flashwise_server::export::{Export, Operation, Request};
use flashwise_server::volume::{Volume, VolumeConfig};
use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const BLOCK: u64 = 4096;
/// Blocks of the log that are written at once.
const LOG_BLOCKS: u64 = 64;

struct Workload {
    files: u64,
    file_blocks: fn(u64) -> u64,
    threads: u64,
    page_cache_blocks: usize,
}

/// 32 KiB on average: from 1 to 15 blocks.
fn webserver_blocks(file: u64) -> u64 {
    1 + file.wrapping_mul(0x9E37_79B9_7F4A_7C15) % 15
}

/// Marsaglia and Tsang's method for a shape below 1: gamma(a) = gamma(a + 1) u^(1/a).
fn gamma(shape: f64, random: &mut impl Rng) -> f64 {
    let d = shape + 1.0 - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let (u1, u2): (f64, f64) = (random.random(), random.random());
        let x = (-2.0 * u1.max(1e-300).ln()).sqrt() * (std::f64::consts::TAU * u2).cos();
        let v = (1.0 + c * x).powi(3);
        let u: f64 = random.random();
        if v > 0.0 && u.max(1e-300).ln() < 0.5 * x * x + d - d * v + d * v.ln() {
            let boost: f64 = random.random();
            return d * v * boost.max(1e-300).powf(1.0 / shape);
        }
    }
}

struct Client {
    volume: Arc<Volume>,
    page_cache: Mutex<ReadBuffer<()>>,
    starts: Vec<u64>,
    workload: Workload,
    log_block: AtomicU64,
    operations: AtomicU64,
}

impl Client {
    fn choose(&self, random: &mut impl Rng) -> u64 {
        (gamma(0.1, random) * self.workload.files as f64) as u64 % self.workload.files
    }

    fn ask(&self, operation: Operation, block: u64, blocks: u64) {
        let (sender, receiver) = mpsc::channel();
        let length = blocks * BLOCK;
        let data = if operation == Operation::Write { vec![1; length as usize] } else { Vec::new() };
        let request = Request {
            operation,
            offset: block * BLOCK,
            length,
            force_unit_access: false,
            data,
            caching: Default::default(),
        };
        self.volume.submit(request, Box::new(move |result| sender.send(result.is_ok()).expect("the client waits")));
        assert!(receiver.recv().expect("every request is answered"), "a request failed");
    }

    fn read_file(&self, file: u64) {
        let (start, blocks) = (self.starts[file as usize], (self.workload.file_blocks)(file));
        let mut page_cache = self.page_cache.lock().expect("no client panics");
        let cached = (start..start + blocks).filter(|&block| page_cache.get(block as u32).is_some()).count() as u64;
        for block in start..start + blocks {
            page_cache.insert_or_touch(block as u32);
        }
        drop(page_cache);
        if cached < blocks {
            self.ask(Operation::Read, start, blocks);
        }
    }

    fn write_file(&self, file: u64) {
        let (start, blocks) = (self.starts[file as usize], (self.workload.file_blocks)(file));
        self.ask(Operation::Write, start, blocks);
    }

    fn webserver(&self, random: &mut impl Rng) {
        for _ in 0..10 {
            self.read_file(self.choose(random));
        }
        let end = self.starts[self.starts.len() - 1] + 16;
        let appended = self.log_block.fetch_add(4, Ordering::Relaxed) + 4;
        if appended.is_multiple_of(LOG_BLOCKS) {
            self.ask(Operation::Write, end + (appended - LOG_BLOCKS) % 16_384, LOG_BLOCKS);
        }
        self.operations.fetch_add(11, Ordering::Relaxed);
    }

    fn netsfs(&self, random: &mut impl Rng) {
        let file = self.choose(random);
        self.read_file(file);
        self.write_file(file);
        self.write_file(self.choose(random));
        self.write_file(self.choose(random));
        self.operations.fetch_add(4, Ordering::Relaxed);
    }
}

trait Touch {
    fn insert_or_touch(&mut self, block: u32);
}

impl Touch for ReadBuffer<()> {
    fn insert_or_touch(&mut self, block: u32) {
        if self.get(block).is_none() {
            let _evicted = self.insert(block, ());
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, name, policy, flash_mib, seconds] = &arguments[..] else {
        return Err("usage: disk_load DIRECTORY webserver|netsfs POLICY FLASH_MIB SECONDS".into());
    };
    let workload = match name.as_str() {
        "webserver" => Workload { files: 6_250, file_blocks: webserver_blocks, threads: 100, page_cache_blocks: 6_400 },
        "netsfs" => Workload { files: 12_500, file_blocks: |_| 1, threads: 1, page_cache_blocks: 1_024 },
        other => return Err(format!("unknown workload '{other}'").into()),
    };
    let mut starts = vec![0];
    for file in 0..workload.files {
        starts.push(starts[file as usize] + (workload.file_blocks)(file));
    }
    let directory = std::path::Path::new(directory);
    let (backend, flash) = (directory.join("disk_load.backend"), directory.join("disk_load.flash"));
    std::fs::File::create(&backend)?.set_len((starts[starts.len() - 1] + 16 + 16_384 + 16) * BLOCK)?;
    let _ = std::fs::remove_file(&flash);
    let config = VolumeConfig {
        flash_size_bytes: Some(flash_mib.parse::<u64>()? << 20),
        erase_unit_bytes: 1 << 20,
        ram_bytes: 0,
        policy: policy.parse()?,
        write_mode: Mode::WriteBack,
        sequential_bytes: 0,
        backend_delay_us: 8_000,
        ..VolumeConfig::of("disk", &backend, &flash)
    };
    let (volume, _) = Volume::open(config, &|_, _| ())?;
    let page_cache = Mutex::new(ReadBuffer::new(workload.page_cache_blocks));
    let threads = workload.threads;
    let client = Client {
        volume: volume.clone(),
        page_cache,
        starts,
        workload,
        log_block: AtomicU64::new(0),
        operations: AtomicU64::new(0),
    };
    let time = Duration::from_secs_f64(seconds.parse()?);
    let started = Instant::now();
    let read =
        || (client.operations.load(Ordering::Relaxed), volume.with_cache(|cache| cache.figures()), Instant::now());
    let before = std::thread::scope(|scope| {
        for thread in 0..threads {
            let client = &client;
            scope.spawn(move || {
                let mut random = Xoshiro256PlusPlus::seed_from_u64(thread);
                while started.elapsed() < time {
                    if name == "webserver" { client.webserver(&mut random) } else { client.netsfs(&mut random) }
                }
            });
        }
        // The first half warms the cache and is not counted.
        std::thread::sleep(time / 2);
        read()
    });
    let after = read();
    let (operations, figures) = ((after.0 - before.0) as f64, after.1 - before.1);
    let elapsed = (after.2 - before.2).as_secs_f64();
    println!(
        "{name} {policy} {flash_mib}MiB: {:.1} operations/s, {:.3} flash blocks written per operation, {:.3} of reads hit",
        operations / elapsed,
        figures.flash_written_blocks() as f64 / operations,
        figures.read_hit_ratio()
    );
    println!("{figures:?}");
    std::fs::remove_file(backend)?;
    std::fs::remove_file(flash)?;
    Ok(())
}
