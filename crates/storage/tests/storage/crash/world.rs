//! A volume on fake disks: requests, transfers in any order, faults and power failures, all from one seed. The layout
//! of its cache is part of the setup.

mod log;
mod transfers;
mod verify;

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};

use flashwise_core::filter::Caching;
use flashwise_core::format::{BLOCK_BYTES, Geometry};
use flashwise_core::journal::Journal;
use flashwise_engine::engine::{BACKEND, FLASH, JOURNAL, Output};
use flashwise_storage::attach::{AttachError, Attached, Attachment, Pairing, Wanted, attach, attach_again};
use flashwise_storage::disk::{Operation as DiskOperation, Transfer};
use flashwise_storage::driver::Performer;
use flashwise_storage::export::{Done, Operation, Request};
use flashwise_storage::flash::cache_tag;
use flashwise_storage::journal::{JournalOwner, open};
use flashwise_storage::layout::{CacheLayout, End, Held};
use flashwise_testing::fake_disk::{FakeDisk, Loss};
use flashwise_testing::random::Random;

use crate::crash::clients::{Clients, fail};
use crate::crash::fake_side::{FakeRecord, FakeSide};
use crate::crash::model::{Model, SECTOR_BYTES};
use crate::crash::planted::Stays;

pub use crate::crash::clients::Outcome;
pub use log::{ADMISSIONS, Setup};
pub use transfers::{CLASSES, Class, Effect, Fault, random_corruption};

/// The cache of a world: its layout, its settings and its planted bug.
pub trait Cached: Clone + Debug {
    type Engine: Performer;
    /// Returns the layout.
    fn layout(&self) -> &'static dyn CacheLayout;

    fn geometry(&self) -> Geometry;
    fn volume_blocks(&self) -> usize;
    /// The number of concurrent requests.
    fn depth(&self) -> usize;
    fn writes_back(&self) -> bool {
        true
    }
    /// True if data is written back in order.
    fn in_order(&self) -> bool {
        false
    }
    /// True if the backend is a state of the volume, when data is written back in order.
    fn is_backend_a_state(_engine: &Self::Engine) -> bool {
        true
    }
    /// Pages of the journal; 0 without one.
    fn journal_pages(&self) -> usize {
        0
    }
    fn faults(&self) -> &[Fault] {
        &[]
    }
    fn clear_stalls(&mut self) {}

    /// Lets the cache have dirty data from now on.
    fn may_be_dirty(_world: &mut World<Self>) {}
    /// Returns a blank flash.
    fn flash(&self) -> FakeDisk;
    /// Returns the record of a backend that has had no cache.
    fn record(&self) -> FakeRecord {
        FakeRecord::default()
    }
    /// Makes the engine of a cache that was found on its flash.
    fn engine(
        &self,
        held: Box<dyn Held>,
        attachment: &Attachment,
        journal: Option<Journal>,
        flash: &FakeDisk,
        stays: &Stays,
    ) -> Self::Engine;

    /// Does one thing that a client, an operator or time may do.
    fn act(world: &mut World<Self>);
    fn submit(world: &mut World<Self>, request: Request, done: Done) {
        world.engine.submit_waited(request, done, world.now_us, 0);
    }
    /// Retries the postponed reads.
    fn read_again(world: &mut World<Self>);
    /// True if a planted bug answers flushes before it does them.
    fn answers_early(&self) -> bool {
        false
    }
    /// True if a planted bug omits a flush.
    fn skips_flush(world: &mut World<Self>, disk: usize) -> bool;
    /// Writes a block back too early, as a planted bug would.
    fn write_early(_world: &World<Self>, _random: &mut Random) {}
    /// Notes a write of the flash.
    fn written(_world: &mut World<Self>, _first: usize) {}
    /// Changes the flash after a power failure, as a planted bug would.
    fn distort(&self, _flash: &FakeDisk, _random: &mut Random) {}

    /// Returns the durable end, if it is to be noted.
    fn pause(engine: &mut Self::Engine) -> Option<End>;
    fn end(engine: &Self::Engine) -> End;
    fn has_flash_failed(_engine: &Self::Engine) -> bool {
        false
    }
    fn blocks_to_write_back(engine: &Self::Engine) -> u64;
    /// Returns the blocks that the cache reports as lost.
    fn lost_blocks(&self, engine: &Self::Engine) -> Vec<usize>;
    /// Checks an engine without work.
    fn check_settled(&self, engine: &Self::Engine) -> Outcome<()>;

    /// Writes everything back. Then the backend has all data, except for lost blocks.
    fn verify_written_back(world: &mut World<Self>) -> Outcome<()>;
    /// Does more to a world after a crash, in one of four cases.
    fn after_crash(_recovered: World<Self>, _before: &World<Self>, _random: &mut Random) -> Outcome<u64> {
        Ok(0)
    }
}

struct InFlight {
    transfer: Transfer,
    /// The last write when the transfer was handed out: what a flush covers.
    writes: u64,
    stalled: bool,
}

/// The state that survives a server.
pub struct Devices {
    /// By number: flash, backend and journal.
    pub disks: [FakeDisk; 3],
    /// The backend's record of its cache.
    pub record: FakeRecord,
}

impl Devices {
    pub fn fork(&self) -> Devices {
        Devices { disks: self.disks.each_ref().map(FakeDisk::fork), record: self.record.fork() }
    }

    pub fn side(&self) -> FakeSide<'_> {
        FakeSide { record: &self.record, backend: &self.disks[BACKEND], flash: &self.disks[FLASH] }
    }

    /// Attaches the cache, as a server does first. With `discards`, an operator gives up dirty data of an absent cache.
    pub fn attach<S: Cached>(&self, setup: &S, discards: bool) -> Result<Attached, AttachError> {
        let wanted = Wanted {
            pairing: Pairing { backend: [9; 16], is_identified: false, discards },
            new_cache: new_cache(),
            geometry: setup.geometry(),
            layout: setup.layout(),
            volume_bytes: (setup.volume_blocks() * BLOCK_BYTES) as u64,
            writes_back: setup.writes_back(),
            in_order: setup.in_order(),
            has_journal: setup.journal_pages() > 0,
            threads: 1,
            loss: String::new(),
        };
        let attach = || attach(&self.disks[FLASH], &self.side(), &wanted, &|_, _| ());
        match attach() {
            // An operator attaches it again.
            Err(AttachError::Detached) => attach_again(&self.side()).and_then(|_| attach()),
            attached => attached,
        }
    }
}

/// Seconds after which an epoch is written back again, or is no longer waited for.
const EPOCH_WAITS_S: u32 = 10;

/// A UUID that no other cache has.
fn new_cache() -> [u8; 16] {
    static CACHES: AtomicU64 = AtomicU64::new(1);
    let number = CACHES.fetch_add(1, Ordering::Relaxed).to_le_bytes();
    [number, number].concat().try_into().unwrap()
}

pub struct World<S: Cached = Setup> {
    pub setup: S,
    /// By number: flash, backend and journal.
    pub disks: [FakeDisk; 3],
    pub record: FakeRecord,
    pub attachment: Attachment,
    pub engine: S::Engine,
    pub clients: Clients,
    pub random: Random,
    in_flight: Vec<InFlight>,
    output: Output,
    pub now_us: u64,
    /// The decision of the I/O filter about the client.
    pub caching: Caching,
    pub operations: u64,
    /// Transfers so far, by disk and kind.
    pub seen: [[u64; 3]; 3],
    /// It follows the death of a process, after which devices may still lose what was not flushed.
    killed: bool,
    /// Flushes that were answered and are still to be done, of a planted bug.
    late: Vec<(usize, u64)>,
    /// The oldest unit that counts by what was written, and by what was flushed.
    tails: (u64, u64),
    /// Blocks whose marks a planted bug loses.
    stays: Stays,
}

pub type AtTransfer<'a, S = Setup> = &'a mut dyn FnMut(&World<S>) -> Outcome<()>;

pub fn no_crash<S: Cached>(_: &World<S>) -> Outcome<()> {
    Ok(())
}

impl<S: Cached> World<S> {
    pub fn new(setup: S, seed: u64) -> World<S> {
        // A write that bypasses the cache is as whole as the backend makes it: it writes blocks whole.
        let journal = FakeDisk::new(setup.journal_pages(), SECTOR_BYTES);
        let disks = [setup.flash(), FakeDisk::new(setup.volume_blocks(), BLOCK_BYTES), journal];
        let record = setup.record();
        let model = Model::new(setup.volume_blocks(), !setup.faults().is_empty());
        World::open(setup, Devices { disks, record }, model, Random(seed), 1).unwrap()
    }

    pub fn open(setup: S, devices: Devices, model: Model, random: Random, next_tag: u64) -> Outcome<World<S>> {
        let opened = devices.attach(&setup, false);
        let Attached { mut attachment, held, .. } = opened.map_err(|error| format!("recovery: {error}"))?;
        let journal = match setup.journal_pages() {
            0 => None,
            _ => {
                let (cache, [_, backend, journal]) = (cache_tag(attachment.superblock()), &devices.disks);
                let opened = open(journal, backend, &JournalOwner::of_volume([9; 16], attachment.journal().id));
                let opened = opened.map_err(|error| format!("journal: {error}"))?;
                let named = attachment.name_journal(&devices.side(), opened.recorded());
                named.map_err(|error| format!("journal: {error}"))?;
                Some(opened.journal.of_cache(cache))
            }
        };
        let Devices { disks, record } = devices;
        let stays = Stays::default();
        let engine = setup.engine(held, &attachment, journal, &disks[FLASH], &stays);
        let mut world = World {
            setup,
            disks,
            record,
            attachment,
            engine,
            clients: Clients::new(model, next_tag),
            random,
            in_flight: Vec::new(),
            output: Output::default(),
            now_us: 0,
            caching: Caching::Usual,
            operations: 0,
            seen: [[0; 3]; 3],
            killed: false,
            late: Vec::new(),
            tails: (1, 1),
            stays,
        };
        world.collect();
        Ok(world)
    }

    pub fn submit(&mut self, operation: Operation, offset: usize, length: usize, force_unit_access: bool) {
        let (request, done) = self.clients.ask(operation, offset, length, force_unit_access, self.caching);
        S::submit(self, request, done);
        self.collect();
    }

    pub fn collect(&mut self) {
        loop {
            self.engine.take_output(&mut self.output);
            for (done, result) in self.output.answers.drain(..) {
                done(result);
            }
            self.output.answered.clear();
            let mut early = Vec::new();
            for transfer in self.output.transfers.drain(..) {
                let writes = self.disks[transfer.disk].writes();
                if self.setup.answers_early() && transfer.operation == DiskOperation::Sync {
                    early.push(transfer.tag);
                    self.late.push((transfer.disk, writes));
                } else {
                    self.in_flight.push(InFlight { writes, transfer, stalled: false });
                }
            }
            if early.is_empty() {
                return;
            }
            early.into_iter().for_each(|tag| self.engine.completed(tag, Ok(())));
        }
    }

    /// Does one thing that can happen next. `at_transfer` is called before a transfer takes place.
    pub fn step(&mut self, at_transfer: AtTransfer<'_, S>) -> Outcome<()> {
        self.now_us += self.random.below(3_000);
        let may_submit = self.clients.outstanding() < self.setup.depth();
        if may_submit && (self.running() == 0 || self.random.chance(3)) {
            S::act(self);
        } else if self.running() > 0 {
            at_transfer(self)?;
            self.complete_one();
        } else if self.in_flight.is_empty() {
            self.read_again()?;
        } else {
            self.end_stalls();
        }
        self.check()
    }

    /// A copy of what would outlive it.
    pub fn devices(&self) -> Devices {
        Devices { disks: self.disks.each_ref().map(FakeDisk::fork), record: self.record.fork() }
    }

    /// Everything was written back: gives the flash up.
    pub fn give_up(self) -> Outcome<(Devices, Model)> {
        let World { disks, record, mut attachment, clients, .. } = self;
        let devices = Devices { disks, record };
        attachment.detach(&devices.disks[FLASH], &devices.side()).map_err(|error| error.to_string())?;
        let model = clients.model.lock().unwrap().clone();
        Ok((devices, model))
    }

    /// Some seconds in which no one asks for anything.
    pub fn idle(&mut self) -> Outcome<()> {
        for _ in 0..5 {
            self.idle_second(&mut no_crash)?;
            self.note_durable();
        }
        Ok(())
    }

    /// A second in which no one asks for anything. `at_transfer` is called before each transfer.
    pub fn idle_second(&mut self, at_transfer: AtTransfer<'_, S>) -> Outcome<()> {
        self.now_us += 1_000_000;
        self.engine.advance(self.now_us);
        self.collect();
        self.settle_with(at_transfer)
    }

    /// Notes the durable end in the superblock, as a server does now and then.
    pub fn note_durable(&mut self) {
        let end = S::pause(&mut self.engine);
        self.collect();
        // Other checks find a flash that fails.
        let _ = end.map(|end| self.attachment.note_durable(&self.disks[FLASH], end));
    }

    /// Shuts down cleanly. Returns the devices.
    pub fn close(&mut self) -> Outcome<(Devices, Model)> {
        self.settle()?;
        self.engine.close(self.now_us);
        self.collect();
        self.settle()?;
        let may_be_dirty =
            S::blocks_to_write_back(&self.engine) > 0 || !self.setup.lost_blocks(&self.engine).is_empty();
        let devices = self.devices();
        if !S::has_flash_failed(&self.engine) {
            let end = S::end(&self.engine);
            self.attachment.close(&devices.disks[FLASH], &devices.side(), end, may_be_dirty, false).unwrap();
        }
        let model = self.clients.model.lock().unwrap().clone();
        Ok((devices, model))
    }

    /// True if no transfer is in progress.
    pub fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Transfers that can end.
    fn running(&self) -> usize {
        self.in_flight.iter().filter(|transfer| !transfer.stalled).count()
    }

    fn check(&self) -> Outcome<()> {
        let refusals = self.disks[FLASH].refusals();
        // If completed transfers report an error, their repetition is refused.
        if refusals > 0 && self.setup.faults().is_empty() {
            return Err(format!("a zoned device refuses {refusals} operations"));
        }
        self.clients.check()
    }

    /// Lets requests end until only so many are outstanding.
    pub fn settle_down_to(&mut self, outstanding: usize, at_transfer: AtTransfer<'_, S>) -> Outcome<()> {
        while self.clients.outstanding() > outstanding {
            if self.running() == 0 {
                self.end_stalls();
            }
            if self.in_flight.is_empty() {
                self.read_again()?;
                continue;
            }
            at_transfer(self)?;
            self.complete_one();
        }
        self.check()
    }

    /// Nothing is in progress, except for postponed reads.
    fn read_again(&mut self) -> Outcome<()> {
        S::read_again(self);
        self.collect();
        // Changes wait for epochs, whose write-back is tried again after a second.
        for _ in 0..if self.setup.in_order() { EPOCH_WAITS_S } else { 0 } {
            if !self.in_flight.is_empty() || self.clients.outstanding() + self.engine.running() == 0 {
                break;
            }
            self.now_us += 1_000_000;
            self.engine.advance(self.now_us);
            self.collect();
        }
        let outstanding = self.clients.outstanding();
        if self.in_flight.is_empty() && (outstanding > 0 || self.engine.running() > 0) {
            return Err(format!("{outstanding} requests and {} steps hang", self.engine.running()));
        }
        Ok(())
    }

    fn end_stalls(&mut self) {
        self.setup.clear_stalls();
        self.in_flight.iter_mut().for_each(|transfer| transfer.stalled = false);
    }

    /// Lets everything that was begun end. `at_transfer` is called before each transfer.
    pub fn settle_with(&mut self, at_transfer: AtTransfer<'_, S>) -> Outcome<()> {
        let in_order = self.setup.in_order();
        while !self.in_flight.is_empty() || self.engine.running() > 0 || in_order && self.clients.outstanding() > 0 {
            if self.in_flight.is_empty() {
                self.read_again()?;
                continue;
            }
            if self.running() == 0 {
                self.end_stalls();
            }
            at_transfer(self)?;
            self.complete_one();
        }
        if self.engine.running() > 0 || self.clients.outstanding() > 0 {
            return Err(format!("{} steps hang", self.engine.running()));
        }
        self.setup.check_settled(&self.engine)?;
        self.check()
    }

    pub fn settle(&mut self) -> Outcome<()> {
        self.settle_with(&mut no_crash)
    }

    /// The backend after a power failure at this moment that the flash does not survive. The journal is in place.
    pub fn backend_after_crash(&self, random: &mut Random) -> Outcome<FakeDisk> {
        let disks = [BACKEND, JOURNAL].map(|number| self.disks[number].fork());
        let of_others = self.in_flight.iter().map(|flight| &flight.transfer).filter(|it| it.disk != FLASH);
        fail(&disks, of_others.map(|transfer| (transfer.disk - BACKEND, transfer)), false, random);
        let expected = self.record.get().and_then(|record| record.journal.id);
        let [mut backend, mut journal] = disks;
        if expected.is_some() && random.chance(4) {
            // The start is interrupted.
            [&backend, &journal].into_iter().for_each(|disk| disk.set_lives(1 + random.below(20)));
            let _ = open(&journal, &backend, &JournalOwner::of_volume([9; 16], expected));
            for disk in [&mut backend, &mut journal] {
                disk.set_lives(u64::MAX);
                *disk = disk.fork();
                disk.crash(random.pick(&[Loss::Everything, Loss::Sectors, Loss::Writes]), random);
            }
        }
        if expected.is_some() {
            let opened = open(&journal, &backend, &JournalOwner::of_volume([9; 16], expected));
            opened.map_err(|error| format!("the journal without the flash: {error}"))?;
        }
        Ok(backend)
    }

    /// The disks and the model after a power failure at this moment.
    pub fn devices_after_crash(&self, killed: bool, random: &mut Random) -> (Devices, Model) {
        let devices = self.devices();
        let disks = &devices.disks;
        fail(disks, self.in_flight.iter().map(|flight| (flight.transfer.disk, &flight.transfer)), killed, random);
        let mut model = self.clients.model.lock().unwrap().clone();
        model.crashed();
        self.setup.distort(&disks[FLASH], random);
        (devices, model)
    }

    /// The world after a power failure at this moment; this one goes on as if nothing had happened.
    pub fn crashed(&self, random: &mut Random) -> Outcome<World<S>> {
        let killed = random.chance(7);
        let (devices, model) = self.devices_after_crash(killed, random);
        // Its writes differ from those of the other world.
        let next_tag = random.next() >> 16;
        let mut world = World::open(self.setup.clone(), devices, model, Random(random.next()), next_tag)?;
        world.killed = killed;
        Ok(world)
    }
}
