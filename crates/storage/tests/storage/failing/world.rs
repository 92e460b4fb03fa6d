//! One volume or pool with its devices and clients.

mod verify;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flashwise_core::cache::settings::Settings;
use flashwise_core::filter::Caching;
use flashwise_core::format::BLOCK_BYTES;
use flashwise_engine::engine::Bug;
use flashwise_storage::attach::memory::MemorySide;
use flashwise_storage::disk::{Disk, identity::Identity};
use flashwise_storage::export::{Error, Export, Operation, Request};
use flashwise_storage::layout::LAYOUTS;
use flashwise_storage::pool::{LogicalDisk, Metadata, Pool, PoolConfig};
use flashwise_storage::status::VolumeState;
use flashwise_storage::time;
use flashwise_storage::volume::{OpenDisk, Storage, Volume, VolumeConfig};
use flashwise_testing::random::Random;
use flashwise_testing::virtual_time::pass;

use super::disk::{Class, Effect, Failing, Failure};
use super::history::History;
use super::side::SharedSide;
use super::{KINDS, Kind};
use crate::crash::clients::{Clients, Outcome, random_range};
use crate::crash::model::{Content, Model, decode};
use crate::in_place::IN_PLACE;
use crate::pool::live::new;

const MIB: usize = 1 << 20;
/// Blocks of an export, some chunks of a pool, and of a logical disk that has grown.
const BLOCKS: usize = 288;
const BLOCKS_MAX: usize = BLOCKS + 24;
const STEPS: u64 = 250;
const JOURNAL_BYTES: usize = MIB / 4;
/// The time in which a request has to be answered, and a detach or a flush has to succeed, once no device fails any
/// more.
const BOUND: Duration = Duration::from_secs(40);

type Answer = Result<Vec<u8>, Error>;

enum Served {
    Volume(Arc<Volume>),
    Pool(Box<Pool>),
}

impl Served {
    fn volume(&self) -> &Arc<Volume> {
        match self {
            Served::Volume(volume) => volume,
            Served::Pool(pool) => pool.volume(),
        }
    }

    fn close(&self) -> Result<(), String> {
        match self {
            Served::Volume(volume) => volume.close().map_err(|error| error.to_string()),
            Served::Pool(pool) => pool.close().map_err(|error| error.to_string()),
        }
    }
}

/// An export, and the clients of it.
struct Guest {
    name: &'static str,
    /// None while its volume or pool starts again.
    export: Option<Arc<dyn Export>>,
    clients: Clients,
    /// Its size.
    blocks: usize,
    /// Blocks of changes in progress. Concurrent changes of a block may take effect in any order, so the model avoids
    /// them.
    changing: Arc<Mutex<Vec<Range<usize>>>>,
}

pub struct World {
    kind: Kind,
    random: Random,
    flash: Arc<Failing>,
    /// The backend, or the disks of the pool.
    backends: Vec<Arc<Failing>>,
    side: Arc<MemorySide>,
    config: VolumeConfig,
    served: Option<Served>,
    guests: Vec<Guest>,
    depth: usize,
    /// True while a detach is in progress.
    detaching: Arc<AtomicBool>,
    history: History,
    /// True if data is written back in order.
    is_ordered: bool,
    /// The journal of some of those worlds.
    journal: Option<Arc<Failing>>,
    /// A planted fault: blocks are written back too early.
    pub writes_early: bool,
    random_of_checks: Random,
}

impl World {
    pub fn new(kind: Kind, seed: u64, planted: Option<Bug>) -> World {
        let mut random = Random(seed.wrapping_mul(0x9E37));
        let is_pool = matches!(kind, Kind::Pool | Kind::PoolWithoutFlash);
        let flash = Failing::new("flash", if kind == Kind::Buckets { 4 * MIB } else { 2 * MIB }, random.next());
        let backends = (0..if is_pool { 2 } else { 1 }).map(|_| Failing::new("disk", 3 * MIB, random.next())).collect();
        let has_flash = !matches!(kind, Kind::NoFlash | Kind::PoolWithoutFlash);
        let path = if has_flash { "flash" } else { "" };
        let mut config = VolumeConfig::of("v", Path::new("disk"), Path::new(path));
        config.size_bytes = Some((BLOCKS * BLOCK_BYTES) as u64);
        config.planted = planted;
        config.flash_disk = has_flash.then(|| OpenDisk(flash.clone()));
        let mode = random.pick(&["write-back", "write-back", "write-through", "write-around"]);
        let ram = random.pick(&["0", "64KiB", "1MiB"]);
        let admission = random.pick(&["none", "none", "size:max=4KiB"]);
        // Of volumes and pools with a log, every third one.
        let is_ordered = matches!(kind, Kind::Log | Kind::Pool) && (seed / KINDS.len() as u64).is_multiple_of(3);
        let has_journal = is_ordered && (seed / KINDS.len() as u64 / 3).is_multiple_of(2);
        let journal = has_journal.then(|| Failing::new("journal", JOURNAL_BYTES, seed));
        config.journal_disk = journal.clone().map(|journal| OpenDisk(journal));
        let order = if has_journal { "journal" } else { "barriers" };
        let cache = match kind {
            Kind::Buckets => Settings::of(&[("erase-unit", "128KiB"), ("ram", ram)]),
            Kind::InPlace => Settings::of(&[("erase-unit", "64KiB"), ("write-mode", "write-through")]),
            _ => Settings::of(&[
                ("erase-unit", "64KiB"),
                ("ram", ram),
                ("policy", "lru"),
                ("write-mode", mode),
                ("admission", admission),
                ("commit-age", random.pick(&["1s", "60s"])),
                ("write-back-order", if is_ordered { order } else { "none" }),
                ("dirty-high", if is_ordered { "10%" } else { "50%" }),
                ("dirty-low", if is_ordered { "5%" } else { "40%" }),
            ]),
        };
        config.cache = cache.unwrap();
        config.layout = match kind {
            Kind::Buckets => LAYOUTS[1].1,
            Kind::InPlace => &IN_PLACE,
            _ => LAYOUTS[0].1,
        };
        let depth = random.pick(&[1, 4, 12]);
        let (side, served, guests) = (Arc::default(), None, Vec::new());
        World {
            kind,
            random,
            flash,
            backends,
            side,
            config,
            served,
            guests,
            depth,
            detaching: Arc::default(),
            history: History::default(),
            is_ordered,
            journal,
            writes_early: false,
            random_of_checks: Random(!seed),
        }
    }

    fn is_pool(&self) -> bool {
        matches!(self.kind, Kind::Pool | Kind::PoolWithoutFlash)
    }

    fn open(&mut self) -> Outcome<()> {
        let failed = |error: String| format!("it cannot be opened: {error}");
        self.served = Some(match self.is_pool() {
            false => {
                let identity = Identity { id: [9; 16], description: "a backend in memory".to_owned() };
                let (disk, side) = (self.backends[0].clone(), Box::new(SharedSide(self.side.clone())));
                let storage = Storage { disk, identity, side, notes: Vec::new() };
                let opened = Volume::open_on(self.config.clone(), storage, &|_, _| ());
                Served::Volume(opened.map_err(|error| failed(error.to_string()))?.0)
            }
            true => {
                let config = PoolConfig { disks: Vec::new(), degraded: false, cache: self.config.clone() };
                let opened = Pool::open_on(config, self.disks(), &|_, _| ());
                Served::Pool(Box::new(opened.map_err(|error| failed(error.to_string()))?.0))
            }
        });
        Ok(())
    }

    fn disks(&self) -> Vec<Arc<dyn Disk>> {
        self.backends.iter().map(|disk| disk.clone() as Arc<dyn Disk>).collect()
    }

    fn served(&self) -> &Served {
        self.served.as_ref().expect("it is open")
    }

    fn pool(&self) -> &Pool {
        let Served::Pool(pool) = self.served() else { unreachable!("only pools have logical disks") };
        pool
    }

    fn create(&mut self, name: &'static str) -> Outcome<()> {
        let started = time::now();
        let export: Arc<LogicalDisk> = loop {
            match self.pool().create_logical(&new(name, (BLOCKS * BLOCK_BYTES) as u64)) {
                Ok(export) => break export,
                Err(error) if time::elapsed(started) > BOUND => {
                    return Err(format!("{name} cannot be created: {error}"));
                }
                Err(_) => self.leave_failed_flash()?,
            }
            pass(Duration::from_millis(20));
        };
        self.add_guest(name, export);
        Ok(())
    }

    fn add_guest(&mut self, name: &'static str, export: Arc<dyn Export>) {
        let next_tag = self.random.next() >> 16;
        let clients = Clients::new(Model::new(BLOCKS_MAX, true), next_tag);
        self.guests.push(Guest { name, export: Some(export), clients, blocks: BLOCKS, changing: Arc::default() });
    }

    /// Runs the world to its end. Returns a digest of all that happened; the error is the first violation.
    pub fn run(mut self) -> Outcome<u64> {
        let ended = self.run_all();
        ended
            .map(|()| self.history.digest())
            .map_err(|violation| format!("{violation}\n    {}", self.history.of(&violation)))
    }

    fn run_all(&mut self) -> Outcome<()> {
        if self.is_pool() {
            drop(Metadata::create("v", self.disks()).map_err(|error| error.to_string())?);
        }
        self.open()?;
        match self.is_pool() {
            true => ["a", "b"].into_iter().try_for_each(|name| self.create(name))?,
            false => {
                let export = self.served().volume().clone();
                self.add_guest("v", export);
            }
        }
        for _ in 0..STEPS {
            self.step()?;
        }
        self.heal()?;
        self.verify().map_err(|error| format!("at the end: {error}"))?;
        self.restart()?;
        self.verify().map_err(|error| format!("after a restart: {error}"))
    }

    fn step(&mut self) -> Outcome<()> {
        self.check_bare_backend()?;
        match self.random.below(200) {
            0..8 => self.fail_something(),
            8..14 => self.heal_disks(),
            14 if !self.detaching.load(Ordering::SeqCst) && self.config.flash_disk.is_some() => self.detach(),
            15 => {
                self.heal()?;
                // Data that is only in memory, or that the flash rejects, would be lost.
                let status = self.served().volume().status();
                if status.unwritten_blocks == 0 && status.state != VolumeState::FlashFailed {
                    self.restart()?;
                }
            }
            16 if self.is_pool() => self.replace_logical()?,
            17 if self.is_pool() => self.grow_logical()?,
            _ => {
                let at = self.random.below(self.guests.len() as u64) as usize;
                if self.guests[at].clients.outstanding() < self.depth {
                    self.submit(at);
                } else {
                    pass(Duration::from_micros(100));
                }
            }
        }
        self.check()
    }

    fn check(&self) -> Outcome<()> {
        self.guests
            .iter()
            .try_for_each(|guest| guest.clients.check().map_err(|error| format!("{}: {error}", guest.name)))
    }

    fn fail_something(&mut self) {
        let random = &mut self.random;
        let of_flash = self.config.flash_disk.is_some() && random.chance(2);
        let class = random.pick(&[Class::Read, Class::Write, Class::Write, Class::Flush]);
        let effect = random.pick(&[Effect::None, Effect::Half, Effect::All]);
        let failure = Failure { class, effect, odds: random.pick(&[1, 1, 3]) };
        let disks: Vec<_> = self.backends.iter().chain(&self.journal).collect();
        let disk = random.below(disks.len() as u64) as usize;
        let device = if of_flash { "flash".to_owned() } else { format!("disk {disk}") };
        self.history.add(0..BLOCKS_MAX, format!("{device}: {failure:?}"));
        if of_flash { self.flash.fail(failure) } else { disks[disk].fail(failure) }
    }

    fn heal_disks(&self) {
        self.history.add(0..BLOCKS_MAX, "the devices work".to_owned());
        self.flash.heal();
        self.backends.iter().chain(&self.journal).for_each(|disk| disk.heal());
    }

    /// Lets no device fail any more, and waits until all requests are answered.
    fn heal(&mut self) -> Outcome<()> {
        self.heal_disks();
        let started = time::now();
        while self.guests.iter().any(|guest| guest.clients.outstanding() > 0) {
            if time::elapsed(started) > BOUND {
                let left: usize = self.guests.iter().map(|guest| guest.clients.outstanding()).sum();
                return Err(format!("{left} requests are not answered"));
            }
            pass(Duration::from_micros(200));
        }
        while self.detaching.load(Ordering::SeqCst) {
            if time::elapsed(started) > BOUND {
                return Err("the detach does not end".to_owned());
            }
            pass(Duration::from_micros(500));
        }
        self.check()
    }

    fn detach(&mut self) {
        let volume = self.served().volume().clone();
        self.history.add(0..BLOCKS_MAX, "detach".to_owned());
        self.detaching.store(true, Ordering::SeqCst);
        let detaching = self.detaching.clone();
        time::start("detach", move || {
            // It may fail while devices do.
            let _ = volume.detach();
            detaching.store(false, Ordering::SeqCst);
        });
    }

    /// Ends in order and starts again; all devices work.
    fn restart(&mut self) -> Outcome<()> {
        // Ends a detach, if there was one.
        let _ = self.served().volume().attach();
        let closed = self.served().close();
        self.history.add(0..BLOCKS_MAX, format!("restart, {closed:?}"));
        let flashless = self.served().volume().status().state.is_without_flash();
        self.served = None;
        self.guests.iter_mut().for_each(|guest| guest.export = None);
        self.await_end()?;
        for guest in &self.guests {
            let mut model = guest.clients.model.lock().unwrap();
            match &closed {
                Ok(()) => {
                    let answered = model.answered();
                    model.flushed(&answered);
                }
                // The next start is as after a crash.
                Err(_) => model.crashed(),
            }
        }
        if self.kind == Kind::Buckets && flashless {
            // The volume stays without its flash.
            self.config.flash_disk = None;
            self.config.flash = PathBuf::new();
        }
        self.open()?;
        for at in 0..self.guests.len() {
            let name = self.guests[at].name;
            let export: Arc<dyn Export> = match self.served() {
                Served::Volume(volume) => volume.clone(),
                Served::Pool(pool) => {
                    pool.logical(name).map_err(|error| format!("{name} is gone after a restart: {error}"))?
                }
            };
            self.guests[at].export = Some(export);
            if closed.is_err() {
                let found = self.read_all(at)?;
                let mut model = self.guests[at].clients.model.lock().unwrap();
                for (block, content) in found.iter().enumerate() {
                    let settled = model.settled(block, content, true);
                    settled.map_err(|error| format!("{name}, after an end that failed: {error}"))?;
                }
            }
        }
        Ok(())
    }

    /// Waits until nothing uses the devices any more, as after the end of a process.
    fn await_end(&self) -> Outcome<()> {
        let started = time::now();
        let is_idle = |disk: &Arc<Failing>, owners| Arc::strong_count(disk) == owners;
        let flash_owners = 1 + usize::from(self.config.flash_disk.is_some());
        while !(is_idle(&self.flash, flash_owners) && self.backends.iter().all(|disk| is_idle(disk, 1))) {
            if time::elapsed(started) > BOUND {
                return Err("the end leaves something that uses the devices".to_owned());
            }
            pass(Duration::from_micros(200));
        }
        Ok(())
    }

    /// Deletes a logical disk and creates it again: it reads as zeroes.
    fn replace_logical(&mut self) -> Outcome<()> {
        self.heal()?;
        let Some(Guest { name, .. }) = self.guests.pop() else { return Ok(()) };
        let started = time::now();
        while let Err(error) = self.pool().delete_logical(name) {
            // A deletion whose commit fails is committed later.
            if error.to_string().contains("no logical disk") {
                break;
            }
            if time::elapsed(started) > BOUND {
                return Err(format!("{name} cannot be deleted: {error}"));
            }
            self.leave_failed_flash()?;
            pass(Duration::from_millis(20));
        }
        self.create(name)
    }

    /// Grows a logical disk: the new bytes are zeroes.
    fn grow_logical(&mut self) -> Outcome<()> {
        self.heal()?;
        self.leave_failed_flash()?;
        let (name, size_bytes) = (self.guests[0].name, (BLOCKS_MAX * BLOCK_BYTES) as u64);
        let started = time::now();
        while self.export(0).size() < size_bytes {
            if let Err(error) = self.pool().grow_logical(name, size_bytes)
                && time::elapsed(started) > BOUND
            {
                return Err(format!("{name} cannot grow: {error}"));
            }
        }
        self.guests[0].blocks = BLOCKS_MAX;
        Ok(())
    }

    fn submit(&mut self, at: usize) {
        let (random, blocks) = (&mut self.random, self.guests[at].blocks);
        let (offset, length) = random_range(random, blocks, blocks / 12, &[1, 1, 1, 1, 2, 5, 20, 60, 256], 3);
        let durable = random.chance(6);
        let zeroes = Operation::WriteZeroes { may_punch_holes: random.chance(2), only_if_fast: false };
        let operation = match random.below(20) {
            0..=6 => Operation::Read,
            7..=15 => Operation::Write,
            16 | 17 => Operation::Flush,
            // A trim promises nothing, and buckets may show the content from before it again.
            19 if self.kind != Kind::Buckets => Operation::Trim,
            _ => zeroes,
        };
        let caching = random.pick(&[Caching::Usual, Caching::Usual, Caching::Usual, Caching::Through, Caching::Never]);
        let (offset, length) = if operation == Operation::Flush { (0, 0) } else { (offset, length) };
        let is_change = !matches!(operation, Operation::Read | Operation::Flush);
        let guest = &mut self.guests[at];
        let blocks = offset / BLOCK_BYTES..(offset + length).div_ceil(BLOCK_BYTES);
        let overlaps = |other: &Range<usize>| other.start < blocks.end && blocks.start < other.end;
        if is_change && guest.changing.lock().unwrap().iter().any(overlaps) {
            return;
        }
        if is_change {
            guest.changing.lock().unwrap().push(blocks.clone());
        }
        let (request, done) = guest.clients.ask(operation, offset, length, durable && is_change, caching);
        let tag = guest.clients.next_tag - 1;
        let what = format!(
            "{} {operation:?} of sectors {}..{}, {caching:?}, durable {}, tags to {tag:x}",
            guest.name,
            offset / 512,
            (offset + length) / 512,
            durable && is_change
        );
        self.history.add(blocks.clone(), format!("> {what}"));
        let (history, changing) = (self.history.clone(), guest.changing.clone());
        let noted = move |result: Result<Vec<u8>, Error>| {
            let error = result.as_ref().err().map_or("ok".to_owned(), Error::to_string);
            history.add(blocks.clone(), format!("< {what}: {error}"));
            done(result);
            if is_change {
                let mut changing = changing.lock().unwrap();
                let ended = changing.iter().position(|other| *other == blocks).expect("a change ends once");
                changing.swap_remove(ended);
            }
        };
        self.export(at).submit(request, Box::new(noted));
    }

    /// Acts as an operator after a failure of a dirty flash: repairs it and detaches it. If the log skipped pages
    /// twice, only a start finds all of it, and the error says that.
    fn leave_failed_flash(&mut self) -> Outcome<()> {
        let volume = self.served().volume().clone();
        if volume.status().state != VolumeState::FlashFailed {
            return Ok(());
        }
        match volume.detach().map_err(|error| error.to_string()) {
            Ok(0) => Ok(()),
            Ok(lost) => Err(format!("a detach loses {lost} blocks, lost {:?}", volume.status().lost_blocks)),
            Err(error) if error.contains("Stop the server") => {
                drop(volume);
                self.restart()
            }
            Err(error) => Err(format!("a flash that works again cannot be detached: {error}")),
        }
    }

    fn ask(&self, at: usize, operation: Operation, block: usize, blocks: usize) -> Result<Vec<u8>, Error> {
        let answer: Arc<Mutex<Option<Answer>>> = Arc::default();
        let (offset, length) = ((block * BLOCK_BYTES) as u64, (blocks * BLOCK_BYTES) as u64);
        let caching = Caching::Usual;
        let request = Request { operation, offset, length, force_unit_access: false, data: Vec::new(), caching };
        let sent = answer.clone();
        self.export(at).submit(request, Box::new(move |result| *sent.lock().unwrap() = Some(result)));
        let started = time::now();
        loop {
            if let Some(result) = answer.lock().unwrap().take() {
                return result;
            }
            assert!(time::elapsed(started) < 2 * BOUND, "{operation:?} is not answered");
            pass(Duration::from_micros(100));
        }
    }

    fn export(&self, at: usize) -> &Arc<dyn Export> {
        self.guests[at].export.as_ref().expect("it is served")
    }

    fn read_all(&self, at: usize) -> Outcome<Vec<Content>> {
        let blocks = self.guests[at].blocks;
        let bytes = self.ask(at, Operation::Read, 0, blocks).or_else(|_| {
            (0..blocks)
                .map(|block| self.read_block(at, block))
                .collect::<Outcome<Vec<_>>>()
                .map(|blocks| blocks.concat())
        })?;
        Ok(bytes.chunks(BLOCK_BYTES).map(|block| decode(block).try_into().unwrap()).collect())
    }

    /// Reads a block, which may have to be found again by a cache whose flash could not be read.
    fn read_block(&self, at: usize, block: usize) -> Outcome<Vec<u8>> {
        let started = time::now();
        loop {
            match self.ask(at, Operation::Read, block, 1) {
                Ok(bytes) => return Ok(bytes),
                Err(error) if time::elapsed(started) > BOUND => {
                    return Err(format!("{}: block {block}: {error}", self.guests[at].name));
                }
                Err(_) => pass(Duration::from_millis(20)),
            }
        }
    }
}
