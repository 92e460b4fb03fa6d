//! How long requests wait, in virtual time: the real volume, modelled devices, and modelled clients. The figures are exact, so a scenario
//! states its bounds.

mod device;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flashwise_core::cache::settings::Settings;
use flashwise_core::format::BLOCK_BYTES;
use flashwise_engine::disk::identity::Identity;
use flashwise_engine::export::{Export, Operation, Request};
use flashwise_engine::status::VolumeState;
use flashwise_engine::time;
use flashwise_engine::volume::{OpenDisk, Storage, Volume, VolumeConfig};
use flashwise_testing::random::Random;
use flashwise_testing::virtual_time::{self, pass};

use crate::failing::SharedSide;
use device::Device;

const MIB: usize = 1 << 20;
const BLOCKS_PER_MIB: u64 = (MIB / BLOCK_BYTES) as u64;

fn ms(time: u64) -> Duration {
    Duration::from_millis(time)
}

/// What a client does again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Load {
    /// Writes a block anywhere in the last MiB.
    Write,
    /// Reads a block of the cached first MiB.
    ReadCached,
    Flush,
    /// Reads a block of the written region, some far more often than others.
    ReadSkewed,
    /// Writes one.
    WriteSkewed,
    /// Writes a block once; it waits until the backend has it.
    WriteOnce,
    /// Overwrites a block; it waits for nothing. The wait is that of the oldest write that the backend lacks.
    Overwrite,
}

/// One client: it waits for each answer, and then thinks.
#[derive(Clone, Copy)]
struct Client {
    load: Load,
    thinks: Duration,
}

/// What happens meanwhile.
#[derive(Clone, Copy)]
enum Event {
    /// The backend serves nothing for so long.
    Hangs(Duration),
    /// The volume is detached from its flash.
    Detach,
    /// Blocks are written once and flushed, one after the other, each when the backend has the one before.
    WriteOnce { blocks: u64 },
    /// A block is overwritten every 100 ms for a minute.
    Overwrite,
}

struct Scenario {
    settings: Vec<(&'static str, &'static str)>,
    flash_mib: usize,
    backend_mib: usize,
    backend_service: Duration,
    /// MiB from the start that clients read, and that are on flash when the time begins.
    cached_mib: u64,
    /// MiB at the end that clients write.
    written_mib: u64,
    clients: Vec<Client>,
    lasts: Duration,
    event: Option<(Duration, Event)>,
}

/// The waits of each kind of request.
type Waits = BTreeMap<Load, Vec<Duration>>;

fn ask(export: &dyn Export, operation: Operation, block: u64, data: Vec<u8>) -> Duration {
    let length = if operation == Operation::Flush { 0 } else { BLOCK_BYTES as u64 };
    let offset = block * BLOCK_BYTES as u64;
    let request = Request { operation, offset, length, force_unit_access: false, data, caching: Default::default() };
    let (started, (sender, answer)) = (time::now(), time::channel());
    export.submit(request, Box::new(move |result| drop(sender.send(result))));
    answer.recv().expect("it is answered").expect("no device fails");
    time::elapsed(started)
}

/// One of so many blocks, by Zipf's law with an exponent of about 1, in an order of its own.
fn skewed(random: &mut Random, blocks: u64) -> u64 {
    let rank = (blocks as f64).powf(random.below(1 << 32) as f64 / (1_u64 << 32) as f64) as u64;
    rank.wrapping_mul(0x9e37_79b9_7f4a_7c15) % blocks
}

impl Scenario {
    fn open(&self) -> (Arc<Volume>, Arc<Device>) {
        let flash = Device::new("flash", self.flash_mib * MIB, Duration::from_micros(20), Duration::from_micros(500));
        let backend = Device::new("disk", self.backend_mib * MIB, self.backend_service, ms(1));
        let mut config = VolumeConfig::of("v", Path::new("disk"), Path::new("flash"));
        config.flash_disk = Some(OpenDisk(flash));
        config.cache = Settings::of(&self.settings).unwrap();
        let identity = Identity { id: [9; 16], description: "a backend in memory".to_owned() };
        let side = Box::new(SharedSide(Arc::default()));
        let storage = Storage { disk: backend.clone(), identity, side, notes: Vec::new() };
        let (volume, _) = Volume::open_on(config, storage, &|_, _| ()).unwrap_or_else(|error| panic!("{error}"));
        (volume, backend)
    }

    fn run(self, seed: u64) -> Waits {
        let (waits, left) = virtual_time::run(seed, move || self.run_in_time(seed));
        assert!(left.is_empty(), "these threads do not end: {left:?}");
        waits
    }

    fn run_in_time(self, seed: u64) -> Waits {
        let (volume, backend) = self.open();
        let cached_blocks = self.cached_mib * BLOCKS_PER_MIB;
        for block in 0..cached_blocks {
            ask(&*volume, Operation::Write, block, vec![1; BLOCK_BYTES]);
        }
        volume.flush().unwrap();
        let collected: Arc<Mutex<Waits>> = Arc::default();
        let (ended, running) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(self.clients.len())));
        for (number, client) in (0..).zip(self.clients) {
            let (volume, waits) = (volume.clone(), collected.clone());
            let (ended, running) = (ended.clone(), running.clone());
            let mut random = Random(seed + number);
            let written = self.written_mib * BLOCKS_PER_MIB;
            let first_written = self.backend_mib as u64 * BLOCKS_PER_MIB - written;
            time::start("client", move || {
                while !ended.load(Ordering::SeqCst) {
                    let wait = match client.load {
                        Load::Write => {
                            let block = first_written + random.below(written);
                            ask(&*volume, Operation::Write, block, vec![2; BLOCK_BYTES])
                        }
                        Load::ReadCached => ask(&*volume, Operation::Read, random.below(cached_blocks), Vec::new()),
                        Load::Flush => ask(&*volume, Operation::Flush, 0, Vec::new()),
                        Load::ReadSkewed => {
                            ask(&*volume, Operation::Read, first_written + skewed(&mut random, written), Vec::new())
                        }
                        Load::WriteSkewed => {
                            let block = first_written + skewed(&mut random, written);
                            ask(&*volume, Operation::Write, block, vec![2; BLOCK_BYTES])
                        }
                        Load::WriteOnce | Load::Overwrite => unreachable!("it is an event"),
                    };
                    waits.lock().unwrap().entry(client.load).or_default().push(wait);
                    pass(client.thinks);
                }
                running.fetch_sub(1, Ordering::SeqCst);
            });
        }
        let begun = time::now();
        if let Some((at, event)) = self.event {
            pass(at);
            match event {
                Event::Hangs(lasts) => backend.hang(lasts),
                Event::Detach => {
                    let dirty = volume.status().dirty_blocks;
                    let started = time::now();
                    let told: Arc<Mutex<Vec<_>>> = Arc::default();
                    let (watched, tells) = (volume.clone(), told.clone());
                    time::start("watcher", move || {
                        loop {
                            pass(ms(500));
                            let status = watched.status();
                            if status.state == VolumeState::Detached {
                                break;
                            }
                            let remaining = status.detach_remaining_seconds;
                            tells.lock().unwrap().extend(remaining.map(|remaining| (time::now(), remaining)));
                        }
                    });
                    assert_eq!(volume.detach().unwrap(), 0);
                    let took = time::elapsed(started);
                    println!("{dirty} dirty blocks are detached in {took:?}");
                    // The first seconds write neighbours back together.
                    let told = told.lock().unwrap();
                    for &(at, remaining) in told.iter().filter(|(at, _)| at.duration_since(started) > ms(5_000)) {
                        let really = (started + took).duration_since(at).as_secs_f64();
                        assert!(
                            (remaining - really).abs() <= 0.1 * really + 0.2,
                            "{remaining} s are told, {really} s remain"
                        );
                    }
                    assert!(told.len() > 20);
                }
                Event::Overwrite => {
                    let writes: Vec<_> = (1..=600).map(|number| (number % 250 + 1) as u8).collect();
                    let behind = (0..writes.len()).map(|number| {
                        ask(&*volume, Operation::Write, cached_blocks, vec![writes[number]; BLOCK_BYTES]);
                        pass(ms(100));
                        let has = backend.byte_at(cached_blocks * BLOCK_BYTES as u64);
                        ms(100 * writes[..=number].iter().rev().take_while(|&&write| write != has).count() as u64)
                    });
                    let behind = behind.collect();
                    collected.lock().unwrap().insert(Load::Overwrite, behind);
                }
                Event::WriteOnce { blocks } => {
                    let waits = (cached_blocks..cached_blocks + blocks).map(|block| {
                        ask(&*volume, Operation::Write, block, vec![3; BLOCK_BYTES]);
                        volume.flush().unwrap();
                        let written = time::now();
                        while backend.byte_at(block * BLOCK_BYTES as u64) != 3 {
                            pass(ms(100));
                        }
                        let wait = time::elapsed(written);
                        pass(ms(700));
                        wait
                    });
                    let waits = waits.collect();
                    collected.lock().unwrap().insert(Load::WriteOnce, waits);
                }
            }
        }
        pass(self.lasts.saturating_sub(time::elapsed(begun)));
        ended.store(true, Ordering::SeqCst);
        while running.load(Ordering::SeqCst) > 0 {
            pass(ms(10));
        }
        volume.close().unwrap();
        std::mem::take(&mut *collected.lock().unwrap())
    }
}

/// Writers of random blocks, a reader of cached ones and a flush every 200 ms, on a backend of 8 ms: dirty data reaches its limit.
fn writers(policy: &'static str, ram: &'static str) -> Scenario {
    let client = |load, thinks| Client { load, thinks };
    let mut clients = vec![client(Load::Write, ms(3)); 8];
    clients.extend([client(Load::ReadCached, ms(1)), client(Load::Flush, ms(200))]);
    let settings = vec![("erase-unit", "256KiB"), ("policy", policy), ("ram", ram)];
    let (flash_mib, backend_mib, cached_mib, lasts) = (64, 256, 4, Duration::from_secs(60));
    let written_mib = backend_mib as u64 - cached_mib;
    let backend_service = ms(8);
    Scenario { settings, flash_mib, backend_mib, backend_service, cached_mib, written_mib, clients, lasts, event: None }
}

/// The longest waits that a scenario allows: for a read of a cached block, a write, and a flush.
type Bounds = [(Load, Duration); 3];

fn bounds(read: u64, write: u64, flush: u64) -> Bounds {
    [(Load::ReadCached, ms(read)), (Load::Write, ms(write)), (Load::Flush, ms(flush))]
}

/// Runs a scenario and holds it to its bounds; clients wrote at least `blocks_per_second`.
fn hold(name: &str, scenario: Scenario, bounds: Bounds, blocks_per_second: u64) {
    let lasts = scenario.lasts.as_secs();
    let waits = scenario.run(1);
    for (load, bound) in bounds {
        let of = &waits[&load];
        let longest = of.iter().copied().max().unwrap_or_default();
        println!("{name}: {load:?}: {} requests, longest {longest:?}", of.len());
        assert!(longest <= bound, "{name}: {load:?} waits for {longest:?}, expected at most {bound:?}");
    }
    let written = waits[&Load::Write].len() as u64 / lasts;
    assert!(written >= blocks_per_second, "{name}: {written} blocks are written a second");
}

/// Where writes in RAM caused no pressure, a write waited for 20 s with 8 MiB of RAM, a flush for 156 s with 128 MiB.
#[test]
fn writers_do_not_stop_when_dirty_data_reaches_its_limit() {
    for ram in ["0", "8MiB", "128MiB"] {
        hold(&format!("lru, ram {ram}"), writers("lru", ram), bounds(50, 260, 500), 119);
    }
    // What LARC does not admit goes past the flash: a flush waits for the backend to take it.
    // It does not admit what is read at first either: with no RAM such reads are misses.
    for (ram, read) in [("0", 100), ("8MiB", 50), ("128MiB", 50)] {
        hold(&format!("larc, ram {ram}"), writers("larc", ram), bounds(read, 260, 520), 119);
    }
}

/// The flash has room for what is written meanwhile.
#[test]
fn hits_writes_and_flushes_go_on_while_the_backend_hangs() {
    for ram in ["0", "8MiB"] {
        let mut scenario = writers("lru", ram);
        scenario
            .clients
            .iter_mut()
            .filter(|client| client.load == Load::Write)
            .for_each(|client| client.thinks = ms(200));
        scenario.event = Some((Duration::from_secs(10), Event::Hangs(Duration::from_secs(60))));
        scenario.lasts = Duration::from_secs(75);
        hold(&format!("the backend hangs, ram {ram}"), scenario, bounds(50, 250, 500), 30);
    }
}

/// Clients that read cached blocks, miss, and write, before and while 24 MiB of dirty data are written back.
#[test]
fn clients_go_on_while_a_volume_is_detached() {
    for unit in ["256KiB", "2MiB"] {
        let mut scenario = writers("lru", "8MiB");
        scenario.settings[0] = ("erase-unit", unit);
        scenario.backend_service = ms(4);
        let writers = scenario.clients.iter_mut().filter(|client| client.load == Load::Write);
        writers.for_each(|client| client.thinks = ms(100));
        scenario.event = Some((Duration::from_secs(60), Event::Detach));
        hold(&format!("detach, erase units of {unit}"), scenario, bounds(50, 250, 500), 30);
    }
}

/// The cleaner has no pause: clients overwrite a quarter of the flash faster than it is written back.
#[test]
fn a_block_that_is_written_once_reaches_the_backend_within_its_time() {
    let mut scenario = writers("lru", "8MiB");
    scenario.settings.push(("dirty-age", "60s"));
    scenario.written_mib = 16;
    scenario.event = Some((Duration::from_secs(10), Event::WriteOnce { blocks: 20 }));
    let waits = &scenario.run(1)[&Load::WriteOnce];
    let longest = waits.iter().max().unwrap();
    println!("{} blocks, longest {longest:?}", waits.len());
    assert!(*longest <= Duration::from_secs(66), "{longest:?}");
}

/// A block that was overwritten again and again was never old enough for the cleaner.
#[test]
fn a_block_that_is_overwritten_reaches_the_backend_within_its_time() {
    let mut scenario = writers("lru", "8MiB");
    scenario.settings.push(("dirty-age", "10s"));
    scenario.clients = vec![Client { load: Load::Flush, thinks: ms(200) }];
    scenario.event = Some((Duration::from_secs(1), Event::Overwrite));
    let waits = &scenario.run(1)[&Load::Overwrite];
    let longest = waits.iter().max().unwrap();
    println!("longest {longest:?}");
    assert!(*longest <= Duration::from_secs(11), "the backend is {longest:?} behind");
}

/// Clients read and write by Zipf's law while the log wraps, so that units are cleaned and reset. Where nothing bounded how many answered writes
/// were on their way past the flash, a read waited for 3.2 s, and with LARC, where a whole write buffer went past it for its age, for 1 s.
#[test]
fn misses_go_on_while_units_are_cleaned_and_reset() {
    for (readers, writers_think_ms, policy, bounds) in
        [(4, 10, "lru", [100, 50]), (8, 20, "lru", [100, 50]), (4, 10, "larc", [150, 100]), (8, 20, "larc", [200, 100])]
    {
        let mut scenario = writers(policy, "8MiB");
        scenario.settings.remove(0);
        scenario.clients = vec![Client { load: Load::ReadSkewed, thinks: ms(20) }; readers];
        scenario.clients.extend(vec![Client { load: Load::WriteSkewed, thinks: ms(writers_think_ms) }; readers]);
        (scenario.backend_mib, scenario.written_mib, scenario.backend_service) = (512, 500, ms(4));
        scenario.lasts = Duration::from_secs(120);
        let waits = scenario.run(1);
        for (load, bound) in [Load::ReadSkewed, Load::WriteSkewed].into_iter().zip(bounds) {
            let longest = *waits[&load].iter().max().unwrap();
            println!("{load:?}: {} requests, longest {longest:?}", waits[&load].len());
            assert!(longest <= ms(bound), "{load:?} waits for {longest:?}, expected at most {bound} ms");
        }
    }
}
