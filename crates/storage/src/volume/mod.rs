//! A volume: a backend behind its cache, as an [`Export`] that clients read and write.
//!
//! | file | holds |
//! | --- | --- |
//! | `backend_state.rs` | the state of its backend without the flash |
//! | `budget.rs` | its budget of flash writes |
//! | `config.rs` | its configuration |
//! | `state.rs` | its states, and the transitions between them |
//! | `devices.rs` | its devices, opened and paired |
//! | `pair.rs` | its flash, with the records of its cache |
//! | `detaching.rs`, `unwritten.rs` | the removal of its flash |
//! | `opening.rs` | opening it, with or without its flash |
//! | `ending.rs` | its end |
//! | `recovery.rs` | recovery after a failure of a device |
//! | `extents.rs` | the ranges that hold data |
//! | `guests.rs` | its clients, and those whose requests are cached |
//! | `reads.rs` | figures of reads of a part of it |
//! | `requests.rs` | the path of requests |
//! | `status.rs` | its status |
//! | `error.rs` | the reasons for refusals |
//! | `write_account.rs` | writes to its flash, per day and over the flash's life |

mod backend_state;
mod budget;
mod config;
mod detaching;
mod devices;
mod ending;
mod error;
mod extents;
mod guests;
mod opening;
mod pacer;
mod pair;
mod reads;
mod recovery;
mod remaining;
mod requests;
mod state;
mod status;
mod unwritten;
mod write_account;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use flashwise_core::cache::settings::{Devices, SettingError, Settings};
use flashwise_core::cache::{LogCache, Mode};
use flashwise_core::filter::Client;
use flashwise_core::format::BLOCK_BYTES;

use crate::disk::health::Health;
use crate::disk::slow::{SlowTransfers, Slowness};
use crate::disk::{Completed, Completion, Disk, Method, Transfers, transfers};
use crate::driver::Driver;
use crate::export::{Done, Error, Export, Extent, Guest, Request};
use crate::flash::{read_superblock, superblock_pages};
use crate::journal;
use crate::latency::Latencies;
use crate::load::Load;
use crate::offline::wipe;
use crate::record::Recorder;
use crate::status::{VolumeState, VolumeStatus};
use crate::time::{self, Mutex, Receiver, Sender};
use crate::vital;
use crate::what_if::{WhatIf, WhatIfStatus};

pub(crate) use self::backend_state::backend_status;
pub(crate) use self::config::cache_config;
pub use self::config::{OpenDisk, VolumeConfig};
pub use self::error::VolumeError;
pub use self::guests::{Guests, check_exports};
pub use self::opening::{Opened, Opening, Storage};
pub use self::reads::{Part, ReadFigures};

use self::budget::{Budget, keep_account};
use self::config::devices;
use self::detaching::{Detach, decide};
use self::devices::open_flash;
use self::extents::overlay;
use self::opening::{Parts, size_of};
use self::pacer::Pacer;
use self::pair::Pair;
use self::recovery::{Rounds, find_again};
use self::requests::Queue;
use self::state::{State, Without};

pub(crate) const BLOCK: u64 = BLOCK_BYTES as u64;
/// Number of retries, one per [`TICK`], to read a dirty block that must move.
pub(crate) const READ_PATIENCE: u8 = 5;
/// Time before an unreadable bucket is retried in a recovery.
pub(crate) const READ_PAUSE: Duration = Duration::from_millis(100);
/// Interval of periodic work.
const TICK: Duration = Duration::from_secs(1);
/// Maximum time that a log waits for an unreadable flash before it counts as failed. It is shorter than the timeouts of
/// clients.
const UNREAD_MAX: Duration = Duration::from_secs(20);
/// Maximum number of blocks examined under one lock for a list of extents.
const EXTENT_BLOCKS: u64 = 65_536;

struct Inner {
    engine: Box<dyn Driver>,
    state: State,
    queue: Queue,
    rounds: Rounds,
    failed_requests: u64,
    /// The backend's transfers.
    load: Load,
    budget: Budget,
    /// The health of flash, backend and journal.
    health: [Health; 3],
    recorder: Option<(Arc<Recorder>, u32)>,
    /// Paths of the disks, missing at the start, that lack blocks of the journal's last group.
    journal_waits_for: Vec<String>,
}

/// An open volume: its engine, disks and threads.
pub struct Volume {
    /// Dropped first, which waits for transfers that use the engine's memory.
    transfers: OnceLock<Arc<dyn Transfers>>,
    config: VolumeConfig,
    size_bytes: AtomicU64,
    inner: vital::Mutex<Inner>,
    /// Signals the end of a step, after which the engine may be idle.
    ended: vital::Condvar,
    pair: Pair,
    backend: Arc<dyn Disk>,
    /// The journal; an empty disk without one.
    journal: Arc<dyn Disk>,
    /// Held during a detach; only one runs.
    detaching: Mutex<()>,
    /// The identity of the backend.
    identity: [u8; 16],
    keeper: Mutex<backend_state::Keeper>,
    guests: Guests,
    latencies: Latencies,
    pacer: OnceLock<Pacer>,
    /// Predictions for other policies and sizes; `None` without a log on flash.
    what_if: Option<WhatIf>,
    /// True if an operator's flush failed; the next flush of a client reports that.
    untold: Arc<AtomicBool>,
    opened: Instant,
    stop: Mutex<Option<Sender<()>>>,
}

impl Volume {
    fn start(config: VolumeConfig, parts: Parts) -> Result<Arc<Volume>, VolumeError> {
        let Parts { mut engine, flash, journal, journal_waits_for, attachment, account, storage, without } = parts;
        engine.set_backend(storage.disk.clone());
        let size_bytes = size_of(&config, &storage);
        let of_log = engine.log().filter(|_| attachment.is_some());
        let what_if = of_log.map(|cache| WhatIf::new(&cache.config().policy, cache.config().capacity_blocks() as u64));
        let has_failed = engine.recovery().has_flash_failed();
        let inner = Inner {
            engine,
            state: State::new(without, has_failed),
            queue: Queue::default(),
            rounds: Rounds::default(),
            failed_requests: 0,
            load: Load::default(),
            budget: Budget::new(account, config.drive_writes_per_day),
            health: Default::default(),
            recorder: None,
            journal_waits_for,
        };
        let (stop, stopped) = time::channel();
        let volume = Arc::new(Volume {
            size_bytes: AtomicU64::new(size_bytes),
            inner: vital::Mutex::new(inner),
            ended: vital::Condvar::default(),
            transfers: OnceLock::new(),
            detaching: Mutex::default(),
            keeper: Mutex::new(backend_state::Keeper::new(&config, storage.identity.id)),
            guests: Guests::new(config.cache.filter()),
            pair: Pair::new(flash, attachment, storage.side),
            latencies: Latencies::default(),
            pacer: OnceLock::new(),
            what_if,
            untold: Arc::default(),
            opened: time::now(),
            stop: Mutex::new(Some(stop)),
            backend: storage.disk,
            journal,
            identity: storage.identity.id,
            config,
        });
        let error = |error| VolumeError::Flash { volume: volume.config.whose(), error };
        let started = volume.make_transfers().map_err(error)?;
        assert!(volume.transfers.set(started).is_ok(), "transfers are made once");
        keep_account(&volume);
        backend_state::keep(&volume, true);
        let weak = Arc::downgrade(&volume);
        let pacer = Pacer::start(weak.clone(), &volume.config.name).map_err(error)?;
        assert!(volume.pacer.set(pacer).is_ok(), "a pacer is started once");
        vital::spawn(&format!("tick {}", volume.config.name), move || tick(&weak, &stopped)).map_err(error)?;
        Ok(volume)
    }

    fn make_transfers(self: &Arc<Self>) -> io::Result<Arc<dyn Transfers>> {
        let weak = Arc::downgrade(self);
        let completed: Completed = Box::new(move |batch: &mut Vec<Completion>| {
            let Some(volume) = weak.upgrade() else { return };
            volume.completed(batch);
            // Dropping a volume waits for its transfers. This thread completes transfers, so it cannot wait for them.
            if let Some(volume) = Arc::into_inner(volume) {
                let _ = vital::spawn("end of volume", move || drop(volume));
            }
        });
        let disks: Vec<Arc<dyn Disk>> = vec![self.pair.flash.clone(), self.backend.clone(), self.journal.clone()];
        if self.config.backend_delay_us == 0 {
            return transfers(disks, Method::Automatic, completed);
        }
        let slowness = Slowness { delay: Duration::from_micros(self.config.backend_delay_us), spindles: 1 };
        let make = |completed| transfers(disks, Method::Automatic, completed);
        Ok(Arc::new(SlowTransfers::new(&[None, Some(slowness), None], make, completed)?))
    }

    /// Returns the configuration of the start.
    pub fn config(&self) -> &VolumeConfig {
        &self.config
    }

    /// Starts to record all requests, under this volume number.
    pub fn record(&self, recorder: Arc<Recorder>, number: u32) {
        self.lock().recorder = Some((recorder, number));
    }

    fn lock(&self) -> vital::MutexGuard<'_, Inner> {
        vital::lock(&self.inner)
    }

    /// From now on, the caller handles [lost blocks](Self::not_durable_blocks) itself, so they fail no flush.
    pub(crate) fn leave_lost(&self) {
        self.lock().engine.log_mut().into_iter().for_each(LogCache::leave_lost);
    }

    /// Returns the number of failed flushes of the backend.
    pub(crate) fn failed_flushes(&self) -> u64 {
        self.lock().engine.failed_flushes()
    }

    /// Returns the acknowledged blocks that are only in memory, or lost without a record on flash.
    pub(crate) fn not_durable_blocks(&self) -> Vec<u64> {
        let lost = self.lock().engine.log().map(LogCache::not_durable_blocks);
        lost.unwrap_or_default().into_iter().map(u64::from).collect()
    }

    /// Returns the blocks whose only copy is lost or unreadable, in ascending order.
    pub fn lost_blocks(&self) -> Vec<u64> {
        self.lock().engine.lost_blocks()
    }

    /// Returns its status.
    pub fn status(&self) -> VolumeStatus {
        status::status(self)
    }

    /// Returns the state and its reason, as in [`status`](Self::status).
    pub(crate) fn state(&self) -> (VolumeState, Option<String>) {
        status::state(&self.lock())
    }

    /// Returns predictions for other policies and sizes; `None` if the volume was opened without a log on flash.
    pub fn what_if(&self) -> Option<WhatIfStatus> {
        let what_if = self.what_if.as_ref()?;
        let policy = self.lock().engine.log()?.config().policy.clone();
        Some(what_if.status(&policy))
    }

    /// Returns the size of the read buffer.
    pub fn read_buffer_bytes(&self) -> u64 {
        let inner = self.lock();
        inner.engine.log().map_or(0, |cache| u64::from(cache.config().read_buffer_blocks) * BLOCK)
    }

    /// Reserves bytes of the read buffer for the reads of a pin. Returns false if other pins leave too little.
    pub fn pin_ram(&self, pin: u8, bytes: u64) -> bool {
        let mut inner = self.lock();
        inner.engine.log_mut().is_some_and(|cache| cache.pin_ram(pin, (bytes / BLOCK) as usize))
    }

    /// Returns the clients and the I/O filter.
    pub fn guests(&self) -> &Guests {
        &self.guests
    }

    /// Changes settings of the cache while it runs.
    pub fn change(&self, settings: &Settings) -> Result<(), SettingError> {
        self.with_settings(settings, LogCache::change)
    }

    /// Refuses settings that [`change`](Self::change) would refuse.
    pub fn check_change(&self, settings: &Settings) -> Result<(), SettingError> {
        self.with_settings(settings, |cache, settings, devices| cache.check_change(settings, devices))
    }

    fn with_settings(
        &self,
        settings: &Settings,
        perform: impl FnOnce(&mut LogCache, &Settings, &Devices) -> Result<(), SettingError>,
    ) -> Result<(), SettingError> {
        let mut inner = self.lock();
        let layout = self.config.layout;
        let Some(cache) = inner.engine.log_mut().filter(|_| layout.changes()) else {
            let key = settings.names().next().unwrap_or_default().to_owned();
            let name = layout.number().name();
            let problem = format!("a volume of layout {name} has no settings that can be changed");
            return Err(SettingError { key, problem });
        };
        let devices = devices(&self.config, &cache.config().geometry, self.size());
        perform(cache, settings, &devices)
    }

    /// Makes all answered changes durable. The next flush of a client reports a failure, too.
    pub fn flush(&self) -> Result<(), Error> {
        self.begin_flush().recv().map_err(|_| Error::ShuttingDown)?.map(drop)
    }

    /// Flushes, records a clean shutdown, and ends the volume. Further requests fail.
    pub fn close(&self) -> Result<(), VolumeError> {
        ending::close(self)
    }

    /// Writes back all dirty blocks and removes the cache. Afterwards the backend is complete, and the volume continues
    /// without its flash. After a failure, the volume keeps its flash, unless its contents are already outdated.
    ///
    /// A failed flash is removed once the backend has all flushed data. Acknowledged data that exists nowhere any more
    /// is lost: reads and flushes fail until new data is written there. Returns the number of these blocks.
    pub fn detach(&self) -> Result<usize, VolumeError> {
        let volume = &self.config.name;
        Detach::run(self, Without::DETACHED).inspect_err(
            |error| tracing::error!(event = "detach-failed", volume, %error, "the flash is not detached"),
        )?;
        let lost_blocks = self.lock().engine.lost_blocks().len();
        tracing::info!(
            event = "detached",
            volume,
            lost_blocks,
            "the volume is detached and continues without its flash"
        );
        Ok(lost_blocks)
    }

    /// Ends a detach: the next start uses the flash of the configuration again. This run continues without it.
    ///
    /// # Errors
    /// The volume is not detached, or its record cannot be written.
    pub fn attach(&self) -> Result<(), VolumeError> {
        let _only = self.detaching.lock();
        let volume = || self.config.whose();
        let is_detached = matches!(self.lock().state.without(), Some(Without::Detached { .. }));
        if !is_detached {
            return Err(VolumeError::NotDetached { volume: volume() });
        }
        self.pair
            .attach_again()
            .map_err(|error| VolumeError::Backend { volume: volume(), error: io::Error::other(error.to_string()) })?;
        self.lock().state.set_without(Without::Detached { attaches: true });
        Ok(())
    }

    /// Changes the cache while it runs.
    pub fn with_cache<T>(&self, change: impl FnOnce(&mut LogCache) -> T) -> T {
        change(self.lock().engine.log_mut().expect("the volume has a log"))
    }

    /// True if it has a flash that is not detached.
    pub fn has_flash(&self) -> bool {
        self.lock().state.without().is_none()
    }

    /// True if the flash may have dirty blocks.
    pub(crate) fn writes_back_to_flash(&self) -> bool {
        let inner = self.lock();
        let writes_back = inner.engine.log().is_none_or(|cache| cache.config().mode == Mode::WriteBack);
        writes_back && inner.state.without().is_none()
    }

    /// True if every change is refused, because a failed flash still has dirty blocks.
    pub(crate) fn refuses_changes(&self) -> bool {
        self.lock().engine.recovery().refuses_changes()
    }

    /// Clears the flash of a closed volume, durably. It must have no dirty blocks.
    pub(crate) fn blank_flash(&self) -> io::Result<()> {
        if !self.has_flash() {
            return Ok(());
        }
        wipe::clear(&*self.pair.flash)
    }

    /// Makes the journal blank, if it is this volume's.
    pub(crate) fn blank_journal(&self) -> io::Result<()> {
        journal::clear(&*self.journal, self.identity)
    }

    /// Clears the detached flash of this volume, durably, if it still has the cache.
    ///
    /// # Errors
    /// The flash cannot be opened or written.
    pub fn clear_detached_flash(&self) -> io::Result<()> {
        let without = self.lock().state.without();
        if !matches!(without, Some(Without::Detached { .. })) || !self.config.flash.exists() {
            return Ok(());
        }
        // The volume has closed it.
        let flash = open_flash(&self.config, || Ok(())).map_err(io::Error::other)?;
        match read_superblock(&*flash) {
            Ok(superblock) if superblock.backend == self.identity => wipe::clear(&*flash),
            _ => Ok(()),
        }
    }

    /// Records on both sides that dirty blocks may exist. Called before the mode changes to one with dirty blocks.
    pub fn allow_dirty(&self) -> Result<(), VolumeError> {
        if !self.has_flash() {
            return Ok(());
        }
        self.pair.allow_dirty().map_err(|error| VolumeError::Flash { volume: self.config.whose(), error })
    }

    /// Wakes the volume's thread to check the flash.
    fn look_at_flash(&self) {
        if let Some(looks) = &*self.stop.lock() {
            // If the thread has ended, the volume is closed.
            let _ = looks.send(());
        }
    }

    /// Returns the number of dirty blocks.
    pub fn dirty_blocks(&self) -> u64 {
        let inner = self.lock();
        inner.engine.blocks_to_write_back()
    }

    /// Grows a volume without a configured size with its backend.
    fn follow_backend(&self) {
        if self.config.size_bytes.is_some() || !self.config.layout.grows() {
            return;
        }
        let found = self.backend.refresh_size().map(|size| size / BLOCK * BLOCK);
        if let Ok(found) = found
            && found > self.size()
            && let Err(error) = self.resize(found)
        {
            tracing::warn!(event = "resize-failed", volume = self.config.name, %error, "the volume does not grow with \
                its backend");
        }
    }

    /// Adopts the size of a grown backend, and returns it. Clients see it when they reconnect.
    pub fn resize(&self, size_bytes: u64) -> Result<u64, VolumeError> {
        let found =
            self.backend.refresh_size().map_err(|error| VolumeError::Backend { volume: self.config.whose(), error })?;
        if size_bytes > found || size_bytes < self.size() {
            let (volume, path) = (self.config.whose(), self.config.backend.display().to_string());
            return Err(VolumeError::BackendTooSmall { volume, path, found, expected: size_bytes });
        }
        if !self.config.layout.grows() {
            return Err(VolumeError::FixedSize { volume: self.config.whose() });
        }
        let size_bytes = size_bytes / BLOCK * BLOCK;
        // A detached flash is ignored.
        let written = if self.has_flash() { self.pair.set_volume_bytes(size_bytes) } else { Ok(()) };
        written.map_err(|error| VolumeError::Flash { volume: self.config.whose(), error })?;
        self.size_bytes.store(size_bytes, Ordering::Release);
        Ok(size_bytes)
    }
}

impl Export for Volume {
    fn size(&self) -> u64 {
        self.size_bytes.load(Ordering::Acquire)
    }

    fn description(&self) -> String {
        let backend = self.config.backend.display();
        match &self.config.flash {
            none if none.as_os_str().is_empty() => backend.to_string(),
            flash => format!("{backend} behind {}", flash.display()),
        }
    }

    fn identity(&self) -> Option<[u8; 16]> {
        Some(self.identity)
    }

    fn enter(&self, client: Client) -> Arc<Guest> {
        self.guests.enter(client)
    }

    fn submit(&self, request: Request, done: Done) {
        self.start_request(self.of_client(request, done), false);
    }

    fn submit_and_wait(&self, request: Request, done: Done) -> bool {
        self.start_request(self.of_client(request, done), true)
    }

    fn extents(&self, offset: u64, length: u64, extents_max: usize) -> Result<Vec<Extent>, Error> {
        let length = length.min(EXTENT_BLOCKS * BLOCK);
        // Dirty blocks are read first: those written back meanwhile are already on the backend when its extents are
        // read.
        let newer: Vec<u64> = {
            let inner = self.lock();
            (offset / BLOCK..(offset + length).div_ceil(BLOCK))
                .filter(|&block| inner.engine.is_newer_than_backend(block as u32))
                .collect()
        };
        let stored = self.backend.extents(offset, length, extents_max).map_err(|_| Error::Io)?;
        Ok(overlay(offset, &stored, &newer, extents_max))
    }
}

/// Performs periodic work, and checks of the flash on request.
fn tick(volume: &Weak<Volume>, looks: &Receiver<()>) {
    loop {
        let asked = match looks.recv_timeout(TICK) {
            Ok(()) => true,
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => break,
        };
        let Some(volume) = volume.upgrade() else { break };
        find_again(&volume);
        decide(&volume);
        if asked {
            continue;
        }
        volume.follow_backend();
        keep_account(&volume);
        backend_state::keep(&volume, false);
        // An unreadable flash may recover, so blocks to be moved do not count as lost.
        let unread = volume.lock().engine.has_postponed() && superblock_pages(&*volume.pair.flash).is_err();
        let mut inner = volume.lock();
        match inner.state.note_unread(unread, time::now()) {
            Some(unread) if unread < UNREAD_MAX => inner.engine.be_patient(),
            // Its data is kept: a start may be able to read it.
            Some(_) => inner.engine.give_flash_up(),
            None => {}
        }
        inner.engine.look(time::now_us());
        if !inner.queue.is_frozen() {
            inner.engine.advance(time::now_us());
        }
        let pause = inner.engine.pause();
        volume.dispatch(inner);
        if let Some(end) = pause
            && let Err(error) = volume.pair.note_durable(end)
        {
            tracing::warn!(event = "superblock-not-written", volume = volume.config.name, %error, "the superblock \
                could not be written");
        }
        if let Some(what_if) = &volume.what_if {
            what_if.catch_up();
        }
    }
}
