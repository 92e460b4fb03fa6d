//! A pool that writes back in order loses its flash: without it, its disks are a state of all logical disks together.
//!
//! The pool runs with its threads in virtual time. Clients write, trim and flush two logical disks; a third comes and
//! goes, so that chunks change their owners. Disks are emptied, logical disks grow, and power fails. Half of the worlds
//! have a journal: without the flash, its last group is written into place first.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flashwise_core::cache::WriteBackOrder;
use flashwise_core::cache::settings::Settings;
use flashwise_core::filter::Caching;
use flashwise_core::format::{BLOCK_BYTES, Geometry};
use flashwise_engine::engine::Bug;
use flashwise_storage::disk::Disk;
use flashwise_storage::disk::zoned::ZonedFlash;
use flashwise_storage::export::{Error, Export, Operation, Request};
use flashwise_storage::pool::{CHUNK_BYTES, LogicalDisk, Metadata, NewLogical, Pool, PoolConfig};
use flashwise_storage::volume::{OpenDisk, VolumeConfig};
use flashwise_testing::budget::{Budget, on_all_cores};
use flashwise_testing::fake_disk::{ACTIVE_MIN, FakeDisk, Loss};
use flashwise_testing::history::History;
use flashwise_testing::random::Random;
use flashwise_testing::setting;
use flashwise_testing::virtual_time::{self, pass};

use super::bare::{Planted, bare, complete};
use super::live::new;

const BLOCK: u64 = BLOCK_BYTES as u64;
pub const CHUNK_BLOCKS: usize = (CHUNK_BYTES / BLOCK) as usize;
/// Blocks of a logical disk, and after its growth.
const BLOCKS: usize = 10 * CHUNK_BLOCKS;
pub const BLOCKS_MAX: usize = 11 * CHUNK_BLOCKS;
pub const NAMES: [&str; 2] = ["a", "b"];
/// Disks of the pool. The journal comes after them.
pub const DISKS: usize = 3;
const STEPS: u64 = 300;
const DEPTH: usize = 6;

/// A disk that takes time, and notes moments at which the flash may be lost.
struct Watched {
    disk: FakeDisk,
    random: Mutex<Random>,
    /// True if the moment of this change is noted.
    notes: Option<Box<dyn Fn() + Send + Sync>>,
}

impl Watched {
    fn before_change(&self) {
        let micros = self.random.lock().unwrap().below(200);
        pass(Duration::from_micros(micros));
        if let Some(note) = &self.notes {
            note();
        }
    }
}

impl Disk for Watched {
    fn size(&self) -> u64 {
        self.disk.size()
    }

    fn description(&self) -> String {
        "disk".to_owned()
    }

    fn zoned(&self) -> Option<&ZonedFlash> {
        self.disk.zoned()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        pass(Duration::from_micros(50));
        self.disk.read_at(buffer, offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.before_change();
        self.disk.write_at(buffer, offset)
    }

    /// Covers the writes that have ended before.
    fn sync(&self) -> io::Result<()> {
        let covered = self.disk.writes();
        self.before_change();
        self.disk.sync_until(covered);
        Ok(())
    }

    fn zero(&self, offset: u64, length: u64, may_punch_holes: bool) -> io::Result<()> {
        self.before_change();
        self.disk.zero(offset, length, may_punch_holes)
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.disk.discard(offset, length)
    }
}

/// The clients' view of the blocks of both logical disks, one after the other.
struct Clients {
    history: History<u64>,
    /// By block: the newest content; `None` if a failed request may have changed it.
    newest: Vec<Option<u64>>,
    /// By block: the version that was acknowledged last.
    acknowledged: BTreeMap<usize, u64>,
    busy: BTreeSet<usize>,
    running: usize,
    /// Answers of an earlier run come too late.
    run: u64,
    violations: Vec<String>,
}

struct World {
    random: Random,
    config: VolumeConfig,
    planted: Option<Planted>,
    /// The disks of the pool, and the journal of some worlds.
    disks: Watchers,
    flash: Arc<Watched>,
    pool: Pool,
    exports: Vec<Arc<LogicalDisk>>,
    clients: Arc<Mutex<Clients>>,
    /// Copies of all disks at some moments.
    moments: Moments,
    next: u64,
    losses: u64,
}

pub type Outcome<T> = Result<T, String>;
/// The disks of a pool, and its journal.
type Watchers = Arc<Mutex<Vec<Arc<Watched>>>>;
type Moments = Arc<Mutex<Vec<Vec<Arc<FakeDisk>>>>>;

fn watched(disk: FakeDisk, random: &mut Random, notes: Option<Box<dyn Fn() + Send + Sync>>) -> Arc<Watched> {
    Arc::new(Watched { disk, random: Mutex::new(Random(random.next())), notes })
}

/// Returns watched disks; each change of one is a moment, now and then.
fn watched_pool(disks: Vec<FakeDisk>, random: &mut Random, moments: &Moments) -> Watchers {
    let all: Watchers = Arc::default();
    for disk in disks {
        let (of, moments, odds) = (Arc::downgrade(&all), moments.clone(), Mutex::new(Random(random.next())));
        let note = move || {
            if odds.lock().unwrap().chance(3)
                && let Some(all) = of.upgrade()
            {
                moments.lock().unwrap().push(forks(&all));
            }
        };
        all.lock().unwrap().push(watched(disk, random, Some(Box::new(note))));
    }
    all
}

fn forks(disks: &Watchers) -> Vec<Arc<FakeDisk>> {
    disks.lock().unwrap().iter().map(|disk| Arc::new(disk.disk.fork())).collect()
}

fn as_disks(disks: &Watchers) -> Vec<Arc<dyn Disk>> {
    disks.lock().unwrap().iter().take(DISKS).map(|disk| disk.clone() as Arc<dyn Disk>).collect()
}

pub fn content(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}

fn bytes_of(contents: &[u64]) -> Vec<u8> {
    contents.iter().flat_map(|content| content.to_le_bytes().repeat(BLOCK_BYTES / 8)).collect()
}

impl World {
    fn new(seed: u64, planted: Option<Planted>) -> World {
        let mut random = Random(seed.wrapping_mul(0x9E37));
        let has_journal = seed.is_multiple_of(2);
        let moments: Moments = Arc::default();
        let mut fakes: Vec<_> = (0..DISKS).map(|_| FakeDisk::new(256, BLOCK_BYTES)).collect();
        if has_journal {
            fakes.push(FakeDisk::new(random.pick(&[16, 64, 256]), 512));
        }
        let disks = watched_pool(fakes, &mut random, &moments);
        // Every fifth flash has zones.
        let geometry = Geometry { units: 25, unit_pages: 16 };
        let flash = match seed.is_multiple_of(5) {
            true => FakeDisk::zoned(geometry, ACTIVE_MIN),
            false => FakeDisk::new(geometry.pages() as usize, BLOCK_BYTES),
        };
        let flash = watched(flash, &mut random, None);
        drop(Metadata::create("v", as_disks(&disks)).unwrap());
        let mut config = VolumeConfig::of("v", Path::new(""), Path::new("flash"));
        if let Some(Planted::InPool(bug)) = planted {
            config.planted = Some(bug);
        }
        config.cache = Settings::of(&[
            ("erase-unit", "64KiB"),
            ("ram", random.pick(&["0", "64KiB", "1MiB"])),
            ("policy", "lru"),
            ("write-mode", random.pick(&["write-back", "write-back", "write-back", "write-through"])),
            ("commit-age", random.pick(&["1s", "60s"])),
            ("dirty-age", random.pick(&["2s", "60s"])),
            ("write-back-order", if has_journal { "journal" } else { "barriers" }),
        ])
        .unwrap();
        let pool = World::open(&mut config, &disks, &flash).unwrap();
        for name in NAMES {
            let (thick, striped) = (random.chance(4), random.chance(2));
            pool.create_logical(&NewLogical { thick, striped, ..new(name, BLOCKS as u64 * BLOCK) }).unwrap();
        }
        // The pool is there.
        moments.lock().unwrap().clear();
        let blocks = NAMES.len() * BLOCKS_MAX;
        let clients = Clients {
            history: History::new(vec![0; blocks]),
            newest: vec![Some(0); blocks],
            acknowledged: BTreeMap::new(),
            busy: BTreeSet::new(),
            running: 0,
            run: 0,
            violations: Vec::new(),
        };
        let exports = NAMES.map(|name| pool.logical(name).unwrap()).into();
        let clients = Arc::new(Mutex::new(clients));
        World { random, config, planted, disks, flash, pool, exports, clients, moments, next: 1 << 16, losses: 0 }
    }

    fn open(config: &mut VolumeConfig, disks: &Watchers, flash: &Arc<Watched>) -> Outcome<Pool> {
        config.flash_disk = Some(OpenDisk(flash.clone()));
        let journal = disks.lock().unwrap().get(DISKS).map(|disk| OpenDisk(disk.clone()));
        config.journal_disk = journal.filter(|_| config.cache.order() == WriteBackOrder::Journal);
        let config = PoolConfig { disks: Vec::new(), degraded: false, cache: config.clone() };
        Ok(Pool::open_on(config, as_disks(disks), &|_, _| ()).map_err(|error| error.to_string())?.0)
    }

    fn run(mut self) -> Outcome<u64> {
        for step in 0..STEPS {
            self.step().and_then(|()| self.check()).map_err(|error| format!("step {step}: {error}"))?;
        }
        self.settle()?;
        // With nothing left to write back, the disks have everything.
        self.pool.detach().map_err(|error| error.to_string())?;
        self.pool.flush().map_err(|error| error.to_string())?;
        let found = bare(&forks(&self.disks))?;
        let clients = self.clients.lock().unwrap();
        let is_wrong = |(found, newest): (&u64, &Option<u64>)| newest.is_some_and(|newest| newest != *found);
        let wrong = found.iter().zip(&clients.newest).position(is_wrong);
        drop(clients);
        self.pool.close().map_err(|error| error.to_string())?;
        match wrong {
            None => Ok(self.losses),
            Some(block) => Err(format!("block {block} is {} after a detach", found[block])),
        }
    }

    fn step(&mut self) -> Outcome<()> {
        match self.random.below(100) {
            0..2 => {
                let loss = self.random.pick(&[Loss::Nothing, Loss::Everything, Loss::Writes]);
                return self.start_again(Some(loss));
            }
            10 if self.random.chance(3) => return self.end().and_then(|()| self.start_again(None)),
            2..5 => return self.replace_scratch(),
            5 => drop(self.pool.grow_logical(self.random.pick(&NAMES), BLOCKS_MAX as u64 * BLOCK)),
            6..9 => {
                let disk = 1 + self.random.below(3) as u32;
                if self.pool.remove_disk(disk).is_ok() {
                    pass(Duration::from_millis(self.random.below(40)));
                    // It may be gone: then the pool is smaller.
                    if self.random.chance(8) { self.settle()? } else { drop(self.pool.keep_disk(disk)) }
                }
            }
            9 => pass(Duration::from_millis(self.random.below(6_000))),
            _ if self.clients.lock().unwrap().running < DEPTH => self.submit(),
            _ => pass(Duration::from_micros(300)),
        }
        Ok(())
    }

    /// Checks the disks as they were at some moments without the flash.
    fn check(&mut self) -> Outcome<()> {
        let moments = std::mem::take(&mut *self.moments.lock().unwrap());
        for copies in moments {
            let loss = self.random.pick(&[Loss::Nothing, Loss::Everything, Loss::Sectors, Loss::Writes]);
            copies.iter().for_each(|disk| disk.crash(loss, &mut self.random));
            if self.random.chance(4) {
                complete(&copies, self.planted, Some(&mut self.random))?;
            }
            complete(&copies, self.planted, None)?;
            let contents = bare(&copies)?;
            self.losses += 1;
            self.clients.lock().unwrap().history.check(&contents)?;
        }
        match self.clients.lock().unwrap().violations.pop() {
            None => Ok(()),
            Some(violation) => Err(violation),
        }
    }

    /// Waits for all answers.
    fn settle(&mut self) -> Outcome<()> {
        for _ in 0..200_000 {
            if self.clients.lock().unwrap().running == 0 {
                return self.check();
            }
            pass(Duration::from_millis(1));
        }
        Err("requests are not answered".to_owned())
    }

    fn submit(&mut self) {
        let number = self.random.below(NAMES.len() as u64) as usize;
        let disk = self.exports[number].clone();
        let first = number * BLOCKS_MAX;
        if self.random.chance(8) {
            return self.flush(number);
        }
        let blocks = (disk.size() / BLOCK) as usize;
        // Whole chunks are more likely than by chance.
        let (at, length) = match self.random.chance(3) {
            true => {
                let chunk = self.random.below((blocks / CHUNK_BLOCKS) as u64) as usize;
                (chunk * CHUNK_BLOCKS, CHUNK_BLOCKS)
            }
            false => (self.random.below(blocks as u64) as usize, 1 + self.random.below(24) as usize),
        };
        let range = at..(at + length).min(blocks);
        let all: Vec<usize> = range.clone().map(|block| first + block).collect();
        if all.iter().any(|block| self.clients.lock().unwrap().busy.contains(block)) {
            return;
        }
        let operation = match self.random.below(10) {
            0..2 => Operation::Trim,
            2 => Operation::WriteZeroes { may_punch_holes: self.random.chance(2), only_if_fast: false },
            3 => Operation::Read,
            _ => Operation::Write,
        };
        let is_read = operation == Operation::Read;
        let contents: Vec<u64> = all
            .iter()
            .map(|_| {
                self.next += 1;
                if operation == Operation::Write { self.next } else { 0 }
            })
            .collect();
        let data = if operation == Operation::Write { bytes_of(&contents) } else { Vec::new() };
        let durable = !is_read && self.random.chance(10);
        let request = Request {
            operation,
            offset: range.start as u64 * BLOCK,
            length: range.len() as u64 * BLOCK,
            force_unit_access: durable,
            data,
            caching: self.random.pick(&[Caching::Usual, Caching::Usual, Caching::Never]),
        };
        let (clients, run, written) = {
            let clients = &mut *self.clients.lock().unwrap();
            clients.running += 1;
            clients.busy.extend(&all);
            let change =
                |(block, content): (&usize, &u64)| (*block, *content, clients.history.written(*block, *content));
            let written: Vec<_> = if is_read { Vec::new() } else { all.iter().zip(&contents).map(change).collect() };
            (self.clients.clone(), clients.run, written)
        };
        let answered = move |result: Result<Vec<u8>, Error>| {
            let clients = &mut *clients.lock().unwrap();
            if clients.run != run {
                return;
            }
            clients.running -= 1;
            clients.busy.retain(|block| !all.contains(block));
            match result {
                Ok(bytes) if is_read => {
                    for (block, bytes) in all.iter().zip(bytes.chunks(BLOCK_BYTES)) {
                        let (found, newest) = (content(bytes), clients.newest[*block]);
                        if newest.is_some_and(|newest| newest != found) {
                            clients.violations.push(format!("block {block} reads {found}, not {newest:?}"));
                        }
                    }
                }
                Ok(_) => {
                    for &(block, content, version) in &written {
                        clients.newest[block] = Some(content);
                        clients.acknowledged.insert(block, version);
                    }
                    if durable {
                        clients.history.promised(written.iter().map(|(block, _, version)| (*block, *version)));
                    }
                }
                Err(Error::NoSpace) => written.iter().for_each(|(block, ..)| clients.newest[*block] = None),
                Err(error) => clients.violations.push(format!("{operation:?} of {all:?} fails: {error:?}")),
            }
        };
        disk.submit(request, Box::new(answered));
    }

    fn flush(&mut self, number: usize) {
        let (clients, run, covered) = {
            let clients = &mut *self.clients.lock().unwrap();
            clients.running += 1;
            let own = number * BLOCKS_MAX..(number + 1) * BLOCKS_MAX;
            let covered: Vec<_> = clients.acknowledged.range(own).map(|(block, version)| (*block, *version)).collect();
            (self.clients.clone(), clients.run, covered)
        };
        let answered = move |result: Result<Vec<u8>, Error>| {
            let clients = &mut *clients.lock().unwrap();
            if clients.run != run {
                return;
            }
            clients.running -= 1;
            match result {
                Ok(_) => clients.history.promised(covered),
                Err(error) => clients.violations.push(format!("a flush fails: {error:?}")),
            }
        };
        self.exports[number].submit(Request::flush(), Box::new(answered));
    }

    /// Deletes the third logical disk, or creates and fills it.
    fn replace_scratch(&mut self) -> Outcome<()> {
        if self.pool.logical("scratch").is_ok() {
            return self.pool.delete_logical("scratch").map_err(|error| error.to_string());
        }
        let Ok(scratch) = self.pool.create_logical(&new("scratch", 8 * CHUNK_BYTES)) else { return Ok(()) };
        for chunk in 0..8 {
            let data = bytes_of(&[u64::MAX; CHUNK_BLOCKS]);
            let (offset, length) = (chunk * CHUNK_BYTES, CHUNK_BYTES);
            let operation = Operation::Write;
            let request =
                Request { operation, offset, length, force_unit_access: false, data, caching: Caching::Usual };
            scratch.submit(request, Box::new(|_| ()));
        }
        if self.random.chance(3) {
            // Some of the writes have not begun, or wait for their zeroes.
            pass(Duration::from_micros(self.random.below(3_000)));
            self.pool.delete_logical("scratch").map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Ends in order, and starts again. If there is a journal, the next run may do without.
    fn end(&mut self) -> Outcome<()> {
        self.settle()?;
        self.pool.close().map_err(|error| error.to_string())?;
        self.check()?;
        let clients = &mut *self.clients.lock().unwrap();
        clients.history.promised(std::mem::take(&mut clients.acknowledged));
        if self.disks.lock().unwrap().len() > DISKS {
            let order = self.random.pick(&["barriers", "journal"]);
            self.config.cache.take_over(&Settings::of(&[("write-back-order", order)]).unwrap());
        }
        Ok(())
    }

    /// After an end within a group, a start without the journal does not know the order of dirty blocks. Waits until
    /// the status no longer says that the disks are a mixture.
    fn become_consistent(&mut self) -> Outcome<()> {
        for _ in 0..200_000 {
            let state = self.pool.volume().status().backend_state.ok_or("there is no state of the disks")?;
            if state.is_consistent {
                return Ok(());
            }
            pass(Duration::from_millis(1));
            self.moments.lock().unwrap().clear();
        }
        Err("the disks stay a mixture".to_owned())
    }

    /// The pool starts again with its flash, after a power failure or an end in order.
    fn start_again(&mut self, loss: Option<Loss>) -> Outcome<()> {
        let disks: Vec<FakeDisk> = self.disks.lock().unwrap().iter().map(|disk| disk.disk.fork()).collect();
        let flash = self.flash.disk.fork();
        for disk in disks.iter().chain([&flash]) {
            loss.into_iter().for_each(|loss| disk.crash(loss, &mut self.random));
        }
        {
            let clients = &mut *self.clients.lock().unwrap();
            (clients.run, clients.running) = (clients.run + 1, 0);
            clients.busy.clear();
            clients.acknowledged.clear();
        }
        self.exports.clear();
        let _ = self.pool.close();
        self.moments.lock().unwrap().clear();
        self.disks = watched_pool(disks, &mut self.random, &self.moments);
        self.flash = watched(flash, &mut self.random, None);
        self.pool = World::open(&mut self.config, &self.disks, &self.flash)?;
        if loss.is_none() {
            self.become_consistent()?;
        }
        self.exports = NAMES.map(|name| self.pool.logical(name).unwrap()).into();
        for (number, export) in self.exports.iter().enumerate() {
            let bytes = read_all(export)?;
            let clients = &mut *self.clients.lock().unwrap();
            let mut found = Vec::new();
            for (at, bytes) in bytes.chunks(BLOCK_BYTES).enumerate() {
                let (block, content) = (number * BLOCKS_MAX + at, content(bytes));
                if !clients.history.is_kept(block, &content) {
                    return Err(format!("block {block} is {content} after a start"));
                }
                clients.newest[block] = Some(content);
                found.push((block, clients.history.settled(block, &content, false)));
            }
            clients.history.promised(found);
        }
        Ok(())
    }
}

fn read_all(disk: &LogicalDisk) -> Outcome<Vec<u8>> {
    let (operation, length) = (Operation::Read, disk.size());
    let (data, caching) = (Vec::new(), Caching::Usual);
    let request = Request { operation, offset: 0, length, force_unit_access: false, data, caching };
    perform(disk, request).map_err(|error| format!("it cannot be read: {error:?}"))
}

/// Submits a request, and waits for its answer in virtual time.
pub fn perform(disk: &dyn Export, request: Request) -> Result<Vec<u8>, Error> {
    let answer = Arc::new(Mutex::new(None::<Result<Vec<u8>, Error>>));
    let there = answer.clone();
    disk.submit(request, Box::new(move |result| *there.lock().unwrap() = Some(result)));
    loop {
        pass(Duration::from_micros(100));
        if let Some(result) = answer.lock().unwrap().take() {
            return result;
        }
    }
}

/// Runs a world. Returns the number of losses; the error is the first violation.
fn run_one(seed: u64, planted: Option<Planted>) -> Outcome<u64> {
    let world = move || virtual_time::run(seed, move || World::new(seed, planted).run());
    let ended = std::panic::catch_unwind(world).map(|(result, _)| result);
    ended.unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        Err(format!("it panics: {}", said.unwrap_or_default()))
    })
}

/// Runs worlds from seed `first` on. Returns the number of losses, and the violations.
fn run(first: u64, planted: Option<Planted>, goes_on: impl Fn(u64) -> bool + Sync) -> (u64, Vec<String>) {
    let (losses, violations) = (Mutex::new(0), Mutex::new(Vec::new()));
    let goes_on = |number| goes_on(number) && (planted.is_none() || violations.lock().unwrap().is_empty());
    on_all_cores(goes_on, |number| match run_one(first + number, planted) {
        Ok(count) => *losses.lock().unwrap() += count,
        Err(violation) => violations.lock().unwrap().push(format!("seed {}: {violation}", first + number)),
    });
    (losses.into_inner().unwrap(), violations.into_inner().unwrap())
}

#[test]
fn without_its_flash_a_pool_is_as_it_was_at_a_flush() {
    let budget = Budget::new("FLASHWISE_WORLDS", 30..300, 5.0);
    let (losses, violations) = run(setting("FLASHWISE_SEED", 1), None, |begun| budget.goes_on(begun));
    println!("{losses} losses");
    assert!(violations.is_empty(), "{} violations:\n{}", violations.len(), violations.join("\n"));
}

#[test]
fn maps_that_change_ahead_of_their_data_and_wrong_replays_are_found() {
    // With the first seed of a run that may find it.
    let bugs = [
        (Planted::InPool(Bug::ZeroesInOrder), 1),
        (Planted::InPool(Bug::TrimsAtOnce), 1),
        (Planted::InPool(Bug::MovesAhead), 1),
        (Planted::InPool(Bug::ReusesAtOnce), 1),
        (Planted::NotReplayed, 1),
        (Planted::ReplayedAgain, 1),
    ];
    for (bug, first) in bugs {
        let (losses, violations) = run(first, Some(bug), |begun| begun < 400);
        let found = violations.first().map(|violation| violation.replace('\n', " ")).unwrap_or_default();
        println!("{bug:?}: {losses} losses, {found:.200}");
        assert!(!violations.is_empty(), "{bug:?} is not found in {losses} losses");
    }
}
