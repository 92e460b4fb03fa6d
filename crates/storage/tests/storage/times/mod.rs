//! How long requests wait, in virtual time: the real volume, modelled devices, and modelled clients. The figures are
//! exact, so a scenario states its bounds.

mod budget;
mod device;
mod events;
mod ordered;
mod picture;
mod random;
mod replayed;
mod scenarios;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use flashwise_core::cache::settings::Settings;
use flashwise_core::format::BLOCK_BYTES;
use flashwise_storage::disk::identity::Identity;
use flashwise_storage::export::{Export, Operation, Request};
use flashwise_storage::layout::CacheLayout;
use flashwise_storage::status::VolumeStatus;
use flashwise_storage::time;
use flashwise_storage::volume::{OpenDisk, Storage, Volume, VolumeConfig};
use flashwise_testing::random::Random;
use flashwise_testing::virtual_time::{self, pass};

use crate::failing::SharedSide;
use device::{Device, Log, Speed, Window};
use events::Event;
use picture::Sample;

const MIB: u64 = 1 << 20;
const BLOCKS_PER_MIB: u64 = MIB / BLOCK_BYTES as u64;
const BLOCK_KIB: u64 = BLOCK_BYTES as u64 / 1024;

const fn ms(time: u64) -> Duration {
    Duration::from_millis(time)
}

/// Which blocks of its part of the volume a client asks for.
#[derive(Clone, Copy, Debug)]
enum Pattern {
    /// Any of them.
    Anywhere,
    /// Some far more often than others.
    Skewed,
    /// One after the other.
    Onwards,
}

/// One client: it waits for each answer, and then thinks.
#[derive(Clone, Debug)]
struct Client {
    /// The name of its requests in the results.
    kind: &'static str,
    operation: Operation,
    pattern: Pattern,
    /// Its part of the volume, in MiB.
    mib: Range<u64>,
    /// The size of a request.
    kib: u64,
    thinks: Duration,
}

impl Client {
    /// A client that asks for single blocks anywhere.
    const fn new(kind: &'static str, operation: Operation, mib: Range<u64>, thinks: Duration) -> Client {
        Client { kind, operation, pattern: Pattern::Anywhere, mib, kib: BLOCK_KIB, thinks }
    }

    /// A client that flushes.
    const fn flushes(thinks: Duration) -> Client {
        Client::new("flush", Operation::Flush, 0..1, thinks)
    }

    /// Its next request, after so many: blocks from a first one on.
    fn next(&self, random: &mut Random, asked: u64) -> Range<u64> {
        let size = self.kib / BLOCK_KIB;
        let places = (self.mib.end - self.mib.start) * BLOCKS_PER_MIB / size;
        let place = match self.pattern {
            Pattern::Anywhere => random.below(places),
            Pattern::Skewed => skewed(random, places),
            Pattern::Onwards => asked % places,
        };
        let first = self.mib.start * BLOCKS_PER_MIB + place * size;
        first..first + size
    }
}

/// One of so many places, by Zipf's law with an exponent of about 1, in an order of its own.
fn skewed(random: &mut Random, places: u64) -> u64 {
    let rank = (places as f64).powf(random.below(1 << 32) as f64 / (1_u64 << 32) as f64) as u64;
    rank.wrapping_mul(0x9e37_79b9_7f4a_7c15) % places
}

/// Devices, settings, clients, and the events meanwhile.
#[derive(Clone, Debug)]
struct Scenario {
    layout: &'static dyn CacheLayout,
    settings: Vec<(&'static str, &'static str)>,
    flash: Speed,
    flash_mib: u64,
    backend: Speed,
    /// The backend's other disks: all have equal parts of it, one after the other.
    more_disks: Vec<Speed>,
    backend_mib: u64,
    /// The size of the journal, on the backend's disk; 0 without one.
    journal_mib: u64,
    /// True if all data is written back at the end.
    drains: bool,
    /// MiB from the start that are on flash when the time begins.
    cached_mib: u64,
    clients: Vec<Client>,
    lasts: Duration,
    /// Events, each so long after the one before.
    events: Vec<(Duration, Event)>,
    /// True if a picture is drawn.
    is_drawn: bool,
}

/// A request that has its answer.
#[derive(Clone, Debug)]
struct Answered {
    /// The time at which the client asked.
    asked: Instant,
    waited: Duration,
    blocks: Range<u64>,
}

impl Answered {
    /// The part of its wait after some time.
    fn waited_after(&self, after: Instant) -> Duration {
        (self.asked + self.waited).saturating_duration_since(self.asked.max(after))
    }
}

/// The requests of each kind.
type Requests = BTreeMap<&'static str, Vec<Answered>>;

/// The results of a scenario.
#[derive(Debug)]
struct Measured {
    begun: Instant,
    requests: Requests,
    /// The requests that the devices had.
    flash: Log,
    backend: Log,
    samples: Vec<Sample>,
    /// The status at the end.
    status: VolumeStatus,
    /// How often a thread ran.
    turns: u64,
}

impl Measured {
    /// True if no read of the backend for these blocks was under way meanwhile.
    fn is_hit(&self, Answered { asked, waited, blocks }: &Answered) -> bool {
        let reads = &self.backend.reads;
        let answered = *asked + *waited;
        let later = &reads[reads.partition_point(|read| read.ended < *asked)..];
        // A device with one queue ends reads in the order in which they come.
        let meanwhile = later.iter().take_while(|read| read.came <= answered);
        meanwhile.into_iter().all(|read| read.blocks.end <= blocks.start || blocks.end <= read.blocks.start)
    }

    /// The longest wait of a share of the reads of a kind that the backend was not read for.
    fn hit(&self, kind: &str, share: f64) -> Duration {
        let requests = self.requests.get(kind).map_or(&[][..], Vec::as_slice);
        longest(requests.iter().filter(|request| self.is_hit(request)).map(|request| request.waited).collect(), share)
    }

    /// The longest wait, after some time, of a share of the requests of a kind.
    fn wait(&self, kind: &str, share: f64, after: Duration) -> Duration {
        let requests = &self.requests[kind];
        longest(requests.iter().map(|request| request.waited_after(self.begun + after)).collect(), share)
    }
}

/// The longest of a share of waits; none of no waits.
fn longest(mut waits: Vec<Duration>, share: f64) -> Duration {
    waits.sort_unstable();
    let count = (waits.len() as f64 * share).ceil() as usize;
    waits[..count].last().copied().unwrap_or_default()
}

/// Asks and waits. Returns the time from `asked` on, which is the present.
fn ask(export: &dyn Export, operation: Operation, blocks: &Range<u64>, byte: u8) -> Answered {
    let bytes = (blocks.end - blocks.start) * BLOCK_BYTES as u64;
    let data = if operation == Operation::Write { vec![byte; bytes as usize] } else { Vec::new() };
    let (offset, length) = match operation {
        Operation::Flush => (0, 0),
        _ => (blocks.start * BLOCK_BYTES as u64, bytes),
    };
    let request = Request { operation, offset, length, force_unit_access: false, data, caching: Default::default() };
    let (asked, (sender, answer)) = (time::now(), time::channel());
    export.submit(request, Box::new(move |result| drop(sender.send(result))));
    answer.recv().expect("it is answered").expect("no device fails");
    Answered { asked, waited: time::elapsed(asked), blocks: blocks.clone() }
}

/// A volume on its devices, and the requests so far.
struct World {
    volume: Arc<Volume>,
    flash: Arc<Device>,
    backend: Arc<Device>,
    requests: Mutex<Requests>,
    ended: AtomicBool,
    clients: AtomicUsize,
}

impl World {
    fn note(&self, kind: &'static str, answered: Answered) {
        self.requests.lock().unwrap().entry(kind).or_default().push(answered);
    }

    fn start(self: &Arc<World>, client: Client, mut random: Random) {
        let world = self.clone();
        time::start("client", move || {
            let mut asked = 0;
            while !world.ended.load(Ordering::SeqCst) {
                let blocks = client.next(&mut random, asked);
                world.note(client.kind, ask(&*world.volume, client.operation, &blocks, 2));
                asked += 1;
                pass(client.thinks);
            }
            world.clients.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

impl Scenario {
    fn open(&self) -> Arc<World> {
        let flash = Device::new("flash", self.flash_mib * MIB, [self.flash]);
        let disks = [self.backend].into_iter().chain(self.more_disks.iter().copied());
        let backend = Device::new("disk", (self.backend_mib + self.journal_mib) * MIB, disks);
        let mut config = VolumeConfig::of("v", Path::new("disk"), Path::new("flash"));
        config.flash_disk = Some(OpenDisk(flash.clone()));
        config.cache = Settings::of(&self.settings).unwrap();
        config.layout = self.layout;
        if self.journal_mib > 0 {
            let (offset, size) = (self.backend_mib * MIB, self.journal_mib * MIB);
            config.size_bytes = Some(offset);
            config.journal_disk = Some(OpenDisk(Arc::new(Window { of: backend.clone(), offset, size })));
        }
        let identity = Identity { id: [9; 16], description: "a backend in memory".to_owned() };
        let side = Box::new(SharedSide(Arc::default()));
        let storage = Storage { disk: backend.clone(), identity, side, notes: Vec::new() };
        let (volume, _) = Volume::open_on(config, storage, &|_, _| ()).unwrap_or_else(|error| panic!("{error}"));
        let (requests, ended, clients) = (Mutex::default(), AtomicBool::new(false), AtomicUsize::new(0));
        Arc::new(World { volume, flash, backend, requests, ended, clients })
    }

    fn run(self, seed: u64) -> Measured {
        let (measured, left) = virtual_time::run(seed, move || self.run_in_time(seed));
        assert!(left.is_empty(), "these threads do not end: {left:?}");
        measured
    }

    fn run_in_time(self, seed: u64) -> Measured {
        let world = self.open();
        for block in 0..self.cached_mib * BLOCKS_PER_MIB {
            ask(&*world.volume, Operation::Write, &(block..block + 1), 1);
        }
        world.volume.flush().unwrap();
        world.clients.store(self.clients.len(), Ordering::SeqCst);
        let _before = [&world.flash, &world.backend].map(|device| device.take_log());
        let (begun, turns) = (time::now(), virtual_time::turns());
        for (number, client) in (0..).zip(self.clients) {
            world.start(client, Random(seed + number));
        }
        let samples = self.is_drawn.then(|| picture::start(&world));
        for (after, event) in self.events {
            pass(after);
            event.happen(&world);
        }
        pass(self.lasts.saturating_sub(time::elapsed(begun)));
        let turns = virtual_time::turns() - turns;
        world.ended.store(true, Ordering::SeqCst);
        while world.clients.load(Ordering::SeqCst) > 0 {
            pass(ms(10));
        }
        if self.drains {
            world.volume.detach().unwrap();
        }
        let [flash, backend] = [&world.flash, &world.backend].map(|device| device.take_log());
        let samples = samples.map_or_else(Vec::new, |samples| std::mem::take(&mut *samples.lock().unwrap()));
        let status = world.volume.status();
        world.volume.close().unwrap();
        let requests = std::mem::take(&mut *world.requests.lock().unwrap());
        Measured { begun, requests, flash, backend, samples, status, turns }
    }
}
