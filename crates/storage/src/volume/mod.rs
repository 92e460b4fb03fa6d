//! A volume: a backend behind its cache, as an [`Export`] that clients read and write.
//!
//! | file | holds |
//! | --- | --- |
//! | `budget.rs` | its budget of flash writes |
//! | `config.rs` | what it is made of |
//! | `devices.rs` | its devices, opened and paired |
//! | `detaching.rs` | giving the flash up |
//! | `opening.rs` | opening it, with or without its flash |
//! | `ending.rs` | its last moments |
//! | `mending.rs` | finding the cache again where something failed that it relies on |
//! | `extents.rs` | what of it is data |
//! | `guests.rs` | who has it open, and whose requests are cached |
//! | `reads.rs` | what became of reads of a part of it |
//! | `requests.rs` | how requests pass through it |
//! | `status.rs` | what it says of itself |
//! | `error.rs` | why it is refused |
//! | `write_account.rs` | what was written to its flash, per day and over the flash's life |

mod budget;
mod changing;
mod config;
mod detaching;
mod devices;
mod ending;
mod error;
mod extents;
mod guests;
mod mending;
mod opening;
mod pacer;
mod reads;
mod remaining;
mod requests;
mod status;
mod write_account;

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use flashwise_core::cache::{LogCache, Mode};
use flashwise_core::filter::Client;
use flashwise_core::format::{BLOCK_BYTES, Layout};

use crate::attach::{Attachment, BackendSide};
use crate::disk::health::Health;
use crate::disk::slow::{SlowTransfers, Slowness};
use crate::disk::{Completed, Completion, Disk, Method, Transfers, transfers};
use crate::driver::Driver;
use crate::export::{Done, Error, Export, Extent, Guest, Request};
use crate::flash::{read_superblock, superblock_pages};
use crate::latency::Latencies;
use crate::load::Load;
use crate::record::Recorder;
use crate::status::{VolumeState, VolumeStatus};
use crate::time::{self, Mutex, Receiver, Sender};
use crate::vital;
use crate::what_if::{WhatIf, WhatIfStatus};
use crate::wipe;

pub(crate) use self::config::cache_config;
pub use self::config::{OpenDisk, VolumeConfig};
pub use self::error::VolumeError;
pub use self::guests::{Guests, check_exports};
pub(crate) use self::opening::Opening;
pub use self::opening::{Opened, Storage};
pub use self::reads::{Part, ReadFigures};

use self::devices::open_flash;
use self::extents::overlay;
use self::opening::{Pair, size_of};
use self::pacer::Pacer;
use self::remaining::Remaining;
use self::requests::Waiting;
use self::write_account::WriteAccount;

pub(crate) const BLOCK: u64 = BLOCK_BYTES as u64;
/// A dirty block that is about to be moved and cannot be read is read again this many times, at every [`TICK`].
pub(crate) const READ_PATIENCE: u8 = 5;
/// After how long a bucket is read again that cannot be read where its cache is found again.
pub(crate) const READ_PAUSE: Duration = Duration::from_millis(100);
/// Time between two looks at what is due.
const TICK: Duration = Duration::from_secs(1);
/// How long a log waits for a flash that cannot be read at all, before that counts as failed: shorter than clients wait
/// for an answer.
const UNREAD_MAX: Duration = Duration::from_secs(20);
/// Blocks that are asked about under one lock when extents are told.
const EXTENT_BLOCKS: u64 = 65_536;

struct Inner {
    engine: Box<dyn Driver>,
    waiting: VecDeque<Waiting>,
    /// Requests wait, because the engine is about to be replaced or stopped.
    frozen: bool,
    closed: bool,
    /// Where in its life the volume is; whether a device fails is asked of the devices.
    state: VolumeState,
    failed_requests: u64,
    /// True if it was decided what becomes of a flash that failed.
    flash_given_up: bool,
    /// Since when the flash cannot be read at all while something waits for that.
    unread_since: Option<Instant>,
    /// What was counted before the flash was given up.
    given_up: Option<Box<VolumeStatus>>,
    /// Time that requests which change something waited for before they were begun, as too much was under way.
    held_back_us: u64,
    /// Of the backend.
    load: Load,
    /// Of a detach, once nothing waits in RAM any more.
    remaining: Option<Remaining>,
    /// About the last detach or attach that an operator asked for; a part of the state's reason.
    remark: Option<String>,
    /// When and how many times the cache was found again, within a [`TICK`].
    mended: Option<(Instant, u32)>,
    /// When that began which had it found again, and when it was so last.
    mending: Option<(Instant, Instant)>,
    /// Requests that failed with the flash, until that is decided.
    held: Vec<(Request, Done)>,
    /// Of the flash; none without one.
    account: Option<WriteAccount>,
    /// Of the flash and of the backend.
    health: [Health; 2],
    recorder: Option<(Arc<Recorder>, u32)>,
}

/// An open volume: its engine, the disks that perform its transfers, and the threads that keep time.
pub struct Volume {
    /// Dropped first: that waits for transfers, which use the engine's memory.
    transfers: OnceLock<Arc<dyn Transfers>>,
    config: VolumeConfig,
    size_bytes: AtomicU64,
    inner: vital::Mutex<Inner>,
    /// Something ended, so that the engine may be idle.
    ended: vital::Condvar,
    /// A disk of no bytes for a volume without flash.
    flash: Arc<dyn Disk>,
    backend: Arc<dyn Disk>,
    /// Held while the flash is being given up, which one thread does at a time.
    detaching: Mutex<()>,
    /// The backend's.
    identity: [u8; 16],
    /// None for a volume without flash.
    attachment: Mutex<Option<Attachment>>,
    guests: Guests,
    /// Where the backend keeps what it knows of its cache.
    side: Box<dyn BackendSide>,
    latencies: Latencies,
    pacer: OnceLock<Pacer>,
    /// What another policy or size would do; none for a volume without flash, or whose flash has no log.
    what_if: Option<WhatIf>,
    /// A flush failed that an operator asked for: the next of a client's tells.
    untold: Arc<AtomicBool>,
    opened: Instant,
    stop: Mutex<Option<Sender<()>>>,
}

impl Volume {
    fn start(config: VolumeConfig, mut engine: Box<dyn Driver>, pair: Pair) -> Result<Arc<Volume>, VolumeError> {
        let Pair { flash, attachment, account, storage } = pair;
        engine.set_backend(storage.disk.clone());
        let size_bytes = size_of(&config, &storage);
        let of_log = engine.log().filter(|_| attachment.is_some());
        let what_if = of_log.map(|cache| WhatIf::new(&cache.config().policy, cache.config().capacity_blocks() as u64));
        let inner = Inner {
            engine,
            waiting: VecDeque::new(),
            frozen: false,
            closed: false,
            state: VolumeState::Ok,
            failed_requests: 0,
            flash_given_up: false,
            unread_since: None,
            given_up: None,
            held_back_us: 0,
            load: Load::default(),
            remaining: None,
            remark: None,
            mended: None,
            mending: None,
            held: Vec::new(),
            account,
            health: Default::default(),
            recorder: None,
        };
        let (stop, stopped) = time::channel();
        let volume = Arc::new(Volume {
            size_bytes: AtomicU64::new(size_bytes),
            inner: vital::Mutex::new(inner),
            ended: vital::Condvar::default(),
            transfers: OnceLock::new(),
            detaching: Mutex::default(),
            attachment: Mutex::new(attachment),
            guests: Guests::new(config.cache.filter()),
            side: storage.side,
            latencies: Latencies::default(),
            pacer: OnceLock::new(),
            what_if,
            untold: Arc::default(),
            opened: time::now(),
            stop: Mutex::new(Some(stop)),
            flash,
            backend: storage.disk,
            identity: storage.identity.id,
            config,
        });
        let error = |error| VolumeError::Flash { volume: volume.config.whose(), error };
        let started = volume.make_transfers().map_err(error)?;
        assert!(volume.transfers.set(started).is_ok(), "transfers are made once");
        volume.keep_account();
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
            // The end of a volume waits for its transfers, which use its memory. This thread ends transfers, so it
            // cannot wait for them.
            if let Some(volume) = Arc::into_inner(volume) {
                let _ = vital::spawn("end of volume", move || drop(volume));
            }
        });
        let disks: Vec<Arc<dyn Disk>> = vec![self.flash.clone(), self.backend.clone()];
        if self.config.backend_delay_us == 0 {
            return transfers(disks, Method::Automatic, completed);
        }
        let slowness = Slowness { delay: Duration::from_micros(self.config.backend_delay_us), spindles: 1 };
        let make = |completed| transfers(disks, Method::Automatic, completed);
        Ok(Arc::new(SlowTransfers::new(&[None, Some(slowness)], make, completed)?))
    }

    /// The configuration that it was opened with.
    pub fn config(&self) -> &VolumeConfig {
        &self.config
    }

    /// Records every request from now on, as one to the volume of this number.
    pub fn record(&self, recorder: Arc<Recorder>, number: u32) {
        self.lock().recorder = Some((recorder, number));
    }

    fn lock(&self) -> vital::MutexGuard<'_, Inner> {
        vital::lock(&self.inner)
    }

    /// Whoever asks for flushes sees by themselves to what is [not durable](Self::not_durable_blocks): it fails none
    /// from now on.
    pub(crate) fn leave_lost(&self) {
        self.lock().engine.log_mut().into_iter().for_each(LogCache::leave_lost);
    }

    /// Flushes of the backend that have failed.
    pub(crate) fn failed_flushes(&self) -> u64 {
        self.lock().engine.failed_flushes()
    }

    /// The blocks whose newest content is in memory alone or nowhere any more, with no flash that says so, whatever was
    /// flushed.
    pub(crate) fn not_durable_blocks(&self) -> Vec<u64> {
        let lost = self.lock().engine.log().map(LogCache::not_durable_blocks);
        lost.unwrap_or_default().into_iter().map(u64::from).collect()
    }

    /// What state it is in, and why, as [`status`](Self::status) has it.
    pub(crate) fn state(&self) -> (VolumeState, Option<String>) {
        status::state(&self.lock())
    }

    /// What another policy or size would do; none for a volume that had no log on flash when it was opened.
    pub fn what_if(&self) -> Option<WhatIfStatus> {
        let what_if = self.what_if.as_ref()?;
        let policy = self.lock().engine.log()?.config().policy.clone();
        Some(what_if.status(&policy))
    }

    /// Size of its read buffer.
    pub fn read_buffer_bytes(&self) -> u64 {
        let inner = self.lock();
        inner.engine.log().map_or(0, |cache| u64::from(cache.config().read_buffer_blocks) * BLOCK)
    }

    /// Keeps this many bytes of the read buffer for a pin, of what its requests read; whether there is room for that
    /// besides the other pins.
    pub fn pin_ram(&self, pin: u8, bytes: u64) -> bool {
        let mut inner = self.lock();
        inner.engine.log_mut().is_some_and(|cache| cache.pin_ram(pin, (bytes / BLOCK) as usize))
    }

    /// Who has it open, and whose requests are cached.
    pub fn guests(&self) -> &Guests {
        &self.guests
    }

    /// Changes settings of the cache while it runs.
    pub fn with_cache<T>(&self, change: impl FnOnce(&mut LogCache) -> T) -> T {
        change(self.lock().engine.log_mut().expect("the volume has a log"))
    }

    /// Waits until nothing is under way and holds requests back.
    fn freeze(&self) -> vital::MutexGuard<'_, Inner> {
        let mut inner = self.lock();
        inner.frozen = true;
        inner.engine.set_calm(true);
        while inner.engine.running() > 0 {
            let timed_out;
            (inner, timed_out) = self.ended.wait_timeout(&self.inner, inner, TICK);
            if timed_out {
                // Who does what is due once in a while may be who waits here.
                inner.engine.look(time::now_us());
                self.dispatch(inner);
                inner = self.lock();
            }
        }
        inner
    }

    fn thaw(&self, mut inner: vital::MutexGuard<'_, Inner>) {
        inner.frozen = false;
        inner.engine.set_calm(false);
        self.admit_waiting(&mut inner);
        self.dispatch(inner);
    }

    /// True if it has a flash, which was not detached.
    pub fn has_flash(&self) -> bool {
        !self.config.flash.as_os_str().is_empty() && !self.lock().state.is_without_flash()
    }

    /// True if the flash may have what was written and the backend has not.
    pub(crate) fn writes_back_to_flash(&self) -> bool {
        let inner = self.lock();
        let writes_back = inner.engine.log().is_none_or(|cache| cache.config().mode == Mode::WriteBack);
        writes_back && !self.config.flash.as_os_str().is_empty() && !inner.state.is_without_flash()
    }

    /// True if every change is refused, because the flash has failed and the volume does not go on without it.
    pub(crate) fn refuses_changes(&self) -> bool {
        self.lock().engine.refuses_changes()
    }

    /// Has a closed volume's flash blank, durably: nothing is on it that the backend lacks.
    pub(crate) fn blank_flash(&self) -> io::Result<()> {
        if !self.has_flash() {
            return Ok(());
        }
        wipe::clear(&*self.flash)
    }

    /// Clears the flash that was detached from this volume, durably, if it still holds the cache.
    ///
    /// # Errors
    /// The flash cannot be opened or written.
    pub fn clear_detached_flash(&self) -> io::Result<()> {
        if self.lock().state != VolumeState::Detached || !self.config.flash.exists() {
            return Ok(());
        }
        // The volume has let go of it.
        let flash = open_flash(&self.config, || Ok(())).map_err(io::Error::other)?;
        match read_superblock(&*flash) {
            Ok(superblock) if superblock.backend == self.identity => wipe::clear(&*flash),
            _ => Ok(()),
        }
    }

    /// Does something to the pair; nothing where there is no flash.
    fn with_attachment(&self, work: impl FnOnce(&mut Attachment) -> io::Result<()>) -> io::Result<()> {
        self.attachment.lock().as_mut().map_or(Ok(()), work)
    }

    /// Makes it known on both sides that data may become newer than the backend's; before the mode is changed to one in
    /// which it does.
    pub fn allow_dirty(&self) -> Result<(), VolumeError> {
        if self.lock().state.is_without_flash() {
            return Ok(());
        }
        let allowed = self.with_attachment(|attachment| attachment.allow_dirty(&*self.flash, &*self.side));
        allowed.map_err(|error| VolumeError::Flash { volume: self.config.whose(), error })
    }

    /// Lets the volume's own thread see what became of the flash.
    fn look_at_flash(&self) {
        if let Some(looks) = &*self.stop.lock() {
            // Where the thread has ended, so has the volume.
            let _ = looks.send(());
        }
    }

    /// Blocks that are not on the backend yet.
    pub fn dirty_blocks(&self) -> u64 {
        let inner = self.lock();
        inner.engine.blocks_to_write_back()
    }

    /// A volume without a size of its own grows when its backend has grown.
    fn follow_backend(&self) {
        if self.config.size_bytes.is_some() || self.config.layout == Layout::Wlfc {
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

    /// Follows the backend's size, after it has grown; returns the new size. Clients see it when they open the export
    /// anew.
    pub fn resize(&self, size_bytes: u64) -> Result<u64, VolumeError> {
        let found =
            self.backend.refresh_size().map_err(|error| VolumeError::Backend { volume: self.config.whose(), error })?;
        if size_bytes > found || size_bytes < self.size() {
            let (volume, path) = (self.config.whose(), self.config.backend.display().to_string());
            return Err(VolumeError::BackendTooSmall { volume, path, found, expected: size_bytes });
        }
        if self.config.layout == Layout::Wlfc {
            return Err(VolumeError::FixedSize { volume: self.config.whose() });
        }
        let size_bytes = size_bytes / BLOCK * BLOCK;
        // The flash of a volume without one is of no concern any more.
        let attached = !self.lock().state.is_without_flash();
        let set = |attachment: &mut Attachment| attachment.set_volume_bytes(&*self.flash, size_bytes);
        let written = if attached { self.with_attachment(set) } else { Ok(()) };
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
        // First what is newer than the backend: what is written back meanwhile is then on the backend when that is
        // asked.
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

/// What is due once in a while, and whenever someone asks to look at the flash.
fn tick(volume: &Weak<Volume>, looks: &Receiver<()>) {
    loop {
        let asked = match looks.recv_timeout(TICK) {
            Ok(()) => true,
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => break,
        };
        let Some(volume) = volume.upgrade() else { break };
        volume.mend();
        volume.go_on_without_flash();
        if asked {
            continue;
        }
        volume.follow_backend();
        volume.keep_account();
        // A flash that cannot be read at all may be read later: what is to be moved does not count as lost for that.
        let waits = volume.lock().engine.has_postponed() && superblock_pages(&*volume.flash).is_err();
        let mut inner = volume.lock();
        inner.unread_since = waits.then(|| inner.unread_since.unwrap_or_else(time::now));
        match inner.unread_since {
            Some(since) if time::elapsed(since) < UNREAD_MAX => inner.engine.be_patient(),
            // Nothing of it is given up: it may be there after a start.
            Some(_) if !inner.engine.has_flash_failed() => inner.engine.give_flash_up(),
            _ => {}
        }
        inner.engine.look(time::now_us());
        if !inner.frozen {
            inner.engine.advance(time::now_us());
        }
        let pause = inner.engine.pause();
        volume.dispatch(inner);
        if let Some(end) = pause
            && let Err(error) = volume.with_attachment(|attachment| attachment.note_durable(&*volume.flash, end))
        {
            tracing::warn!(event = "superblock-not-written", volume = volume.config.name, %error, "the superblock \
                could not be written");
        }
        if let Some(what_if) = &volume.what_if {
            what_if.catch_up();
        }
    }
}
