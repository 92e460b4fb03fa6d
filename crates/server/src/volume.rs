//! A volume: a backend behind its cache, as an [`Export`] that clients read and write.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, OnceLock, Weak, mpsc};
use std::time::{Duration, Instant};

use flashwise_core::admission::{self, Admission};
use flashwise_core::array::Array;
use flashwise_core::cache::{self, Cache, Config, Mode};
use flashwise_core::format::{BLOCK_BYTES, Geometry, RECORDS_PER_PAGE, State, Superblock};
use flashwise_core::layout::containers::Log;
use flashwise_core::policy::Spec;
use uuid::Uuid;

use crate::disk::file::{Allocation, FileDisk, Options, PageCache};
use crate::disk::identity::{Identity, identity};
use crate::disk::slow::{SlowTransfers, Slowness};
use crate::disk::{Completed, Completion, Disk, Method, Transfer, Transfers, transfers};
use crate::engine::{BACKEND, Engine, FLASH, Output, Settings};
use crate::export::{Done, Error, Export, Extent, Operation, Request};
use crate::flash::{self, FlashError, SCAN_THREADS, cache_tag, read_superblock, recover_log, write_superblock};
use crate::latency::Latencies;
use crate::record::Recorder;
use crate::status::{FaultsStatus, Rating, VolumeStatus};

/// What a volume is made of. Sizes are in bytes, multiples of 4,096.
#[derive(Clone, Debug)]
pub struct VolumeConfig {
    /// Its name: the NBD export.
    pub name: String,
    /// The slow storage: a regular file or a block device.
    pub backend: PathBuf,
    /// The volume's size; the backend's if `None`.
    pub size_bytes: Option<u64>,
    /// The flash: a block device, or a regular file, which is made if it is missing.
    pub flash: PathBuf,
    /// How much of the flash is used; all of it if `None`.
    pub flash_size_bytes: Option<u64>,
    /// Size of an erase unit.
    pub erase_unit_bytes: u64,
    /// RAM for the read and the write buffer together.
    pub ram_bytes: u64,
    /// The share of that for the write buffer, 0 to 1.
    pub write_buffer_share: f64,
    /// The replacement policy.
    pub policy: Spec,
    /// The admission rule in front of it, if there is one.
    pub admission: Option<admission::Spec>,
    /// What rules that adapt take the devices for. How large these are, flash and volume say.
    pub array: Array,
    /// When written data reaches the backend.
    pub write_mode: Mode,
    /// Share of the flash that is kept free of wanted blocks, 0 to 0.9.
    pub over_provision: f64,
    /// The cleaner starts above this share of dirty blocks, and stops at the other.
    pub dirty_high: f64,
    /// See `dirty_high`.
    pub dirty_low: f64,
    /// Blocks that have been dirty for longer are written back.
    pub dirty_age_us: u64,
    /// Acknowledged writes reach flash or backend within this time, flushed or not.
    pub commit_age_us: u64,
    /// Sequential streams longer than this bypass the flash; 0 for never.
    pub sequential_bytes: u64,
    /// Whether erase units are discarded when they are reset.
    pub discard: bool,
    /// Whether files bypass the page cache where they can.
    pub direct_io: bool,
    /// Drive writes per day that the flash is rated for, over its warranty.
    pub drive_writes_per_day: Option<f64>,
    /// The years of that warranty.
    pub warranty_years: f64,
    /// Flushes are answered and not done: to show that the tests of durability find lost data. Loses data.
    pub unsafe_ignore_flushes: bool,
    /// Every read and write of the backend takes this long, one at a time: stands for a disk in benchmarks.
    pub backend_delay_us: u64,
}

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Steps under way above which requests wait before they are planned.
const STEPS_MAX: usize = 16_384;
/// 8 MiB: for a hundred clients that wait for eight blocks each of a slow backend, and as many blocks that are being admitted.
const SPARE_FRAMES: u32 = 2048;
/// Reads that are tried without waiting, at most.
const NOW_BYTES: u64 = 256 << 10;
/// Time between two looks at what is due.
const TICK: Duration = Duration::from_secs(1);
/// Blocks that are asked about under one lock when extents are told.
const EXTENT_BLOCKS: u64 = 65_536;

/// Why a volume cannot be opened or closed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum VolumeError {
    #[error("volume '{volume}': backend: {error}")]
    Backend { volume: String, error: io::Error },
    #[error("volume '{volume}': flash: {error}")]
    Flash { volume: String, error: io::Error },
    #[error("volume '{volume}': flash '{path}': {error}")]
    Cache { volume: String, path: String, error: FlashError },
    #[error("volume '{volume}': the backend '{path}' has {found} bytes, the volume needs {expected}")]
    BackendTooSmall { volume: String, path: String, found: u64, expected: u64 },
    #[error(
        "volume '{volume}': the flash '{path}' has {found} bytes; at least {expected} are needed: {} erase units of {unit}",
        Geometry::UNITS_MIN
    )]
    FlashTooSmall { volume: String, path: String, found: u64, expected: u64, unit: u64 },
    #[error(
        "volume '{volume}': the flash '{path}' holds something that is not a cache; \
         to use it as one, wipe its first 8192 bytes (for example with 'dd if=/dev/zero of={path} bs=4096 count=2 conv=notrunc')"
    )]
    Foreign { volume: String, path: String },
    #[error(
        "volume '{volume}': the flash '{path}' is a cache of another backend (it belongs to {found}, '{backend}' is {expected}: {what}); \
         give its own backend, or wipe the flash if what it holds is not needed"
    )]
    OtherBackend { volume: String, path: String, backend: String, found: Uuid, expected: Uuid, what: String },
    #[error(
        "volume '{volume}': the flash '{path}' is a cache of {found}, the configuration says {expected}; \
         keep the old {what}, or detach the cache first"
    )]
    Geometry { volume: String, path: String, what: &'static str, found: String, expected: String },
    #[error(
        "volume '{volume}': the log on flash '{path}' has no free erase unit; detach the cache ('flashwise detach') and start again"
    )]
    LogFull { volume: String, path: String },
    #[error(
        "volume '{volume}': {lost} blocks lost their only copy; overwrite them before detaching, or they hold old data"
    )]
    Lost { volume: String, lost: usize },
    #[error("volume '{volume}': the backend refuses to be written; {dirty_blocks} blocks are not written back")]
    NotDestaged { volume: String, dirty_blocks: u64 },
    #[error("volume '{volume}': it was closed")]
    Closed { volume: String },
}

thread_local! {
    /// Lists that are used again by each call, so that requests allocate little.
    static OUTPUT: Cell<Output> = Cell::default();
}

struct Inner {
    engine: Engine,
    waiting: VecDeque<(Request, Done)>,
    /// Requests wait, because the engine is about to be replaced or stopped.
    frozen: bool,
    closed: bool,
    state: &'static str,
    failed_requests: u64,
    recorder: Option<(Arc<Recorder>, u32)>,
}

/// See the module.
pub struct Volume {
    /// Dropped first: that waits for transfers, which use the engine's memory.
    transfers: OnceLock<Arc<dyn Transfers>>,
    config: VolumeConfig,
    size_bytes: AtomicU64,
    inner: Mutex<Inner>,
    /// Something ended, so that the engine may be idle.
    ended: Condvar,
    flash: Arc<FileDisk>,
    backend: Arc<FileDisk>,
    superblock: Mutex<Superblock>,
    latencies: Latencies,
    opened: Instant,
    stop: Mutex<Option<mpsc::Sender<()>>>,
}

/// What is known of the work of opening a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// Whether the flash was formatted.
    pub formatted: bool,
    /// Blocks that the cache came back with.
    pub cached_blocks: u64,
    /// How many of those are newer than the backend's.
    pub dirty_blocks: u64,
    /// Blocks whose only copy is lost.
    pub lost_blocks: u64,
    /// Whether the last run ended without closing the volume.
    pub crashed: bool,
    /// How long reading the log took.
    pub recovery: Duration,
    /// Remarks about devices.
    pub notes: Vec<String>,
}

impl Volume {
    /// Opens a volume: locks its devices, formats the flash if it is blank, and recovers what it holds.
    pub fn open(config: VolumeConfig) -> Result<(Arc<Volume>, Opened), VolumeError> {
        let mut opened = Opened::default();
        let backend = open_backend(&config)?;
        let (flash, fresh) = open_flash(&config)?;
        opened.notes.extend([&backend, &flash].into_iter().filter_map(|disk| disk.note().map(str::to_owned)));
        let size_bytes = config.size_bytes.unwrap_or(backend.size() / BLOCK * BLOCK);
        let identity =
            identity(&backend).map_err(|error| VolumeError::Backend { volume: config.name.clone(), error })?;
        let mut superblock = match fresh {
            true => None,
            false => existing_superblock(&config, &flash, &identity, size_bytes)?,
        };
        if superblock.is_none() {
            opened.formatted = true;
            superblock = Some(new_superblock(&config, &flash, &identity, size_bytes)?);
        }
        let mut superblock = superblock.expect("made above if it was missing");
        opened.crashed = !opened.formatted && superblock.state == State::InUse;
        let started = Instant::now();
        let error =
            |error| VolumeError::Cache { volume: config.name.clone(), path: config.flash.display().to_string(), error };
        let recovered = recover_log(&*flash, &superblock, SCAN_THREADS, &|_| ()).map_err(error)?;
        opened.recovery = started.elapsed();
        if recovered.log.free_units() == 0 {
            return Err(VolumeError::LogFull { volume: config.name.clone(), path: config.flash.display().to_string() });
        }
        superblock.volume_bytes = size_bytes;
        superblock.state = State::InUse;
        write_superblock(&*flash, &mut superblock).map_err(|io| error(FlashError::Io(io)))?;
        opened.cached_blocks = recovered.log.len() as u64;
        opened.dirty_blocks = recovered.log.dirty_blocks();
        opened.lost_blocks = recovered.lost.len() as u64;
        let cache = Cache::new(cache_config(&config, superblock.geometry, size_bytes), recovered.log, recovered.lost);
        let settings = Settings {
            cache: cache_tag(&superblock),
            epoch: recovered.epoch,
            retries: 2,
            discard: config.discard,
            spare_frames: SPARE_FRAMES,
            answers_flushes_at_once: config.unsafe_ignore_flushes,
        };
        let engine = Engine::new(cache, settings, recovered.checksums, recovered.head_records);
        let volume = Volume::start(config, engine, flash, backend, superblock, size_bytes)?;
        Ok((volume, opened))
    }

    fn start(
        config: VolumeConfig,
        engine: Engine,
        flash: Arc<FileDisk>,
        backend: Arc<FileDisk>,
        superblock: Superblock,
        size_bytes: u64,
    ) -> Result<Arc<Volume>, VolumeError> {
        let inner = Inner {
            engine,
            waiting: VecDeque::new(),
            frozen: false,
            closed: false,
            state: "ok",
            failed_requests: 0,
            recorder: None,
        };
        let (stop, stopped) = mpsc::channel();
        let volume = Arc::new(Volume {
            size_bytes: AtomicU64::new(size_bytes),
            inner: Mutex::new(inner),
            ended: Condvar::new(),
            transfers: OnceLock::new(),
            superblock: Mutex::new(superblock),
            latencies: Latencies::default(),
            opened: Instant::now(),
            stop: Mutex::new(Some(stop)),
            flash,
            backend,
            config,
        });
        let error = |error| VolumeError::Flash { volume: volume.config.name.clone(), error };
        let started = volume.make_transfers().map_err(error)?;
        assert!(volume.transfers.set(started).is_ok(), "transfers are made once");
        let weak = Arc::downgrade(&volume);
        std::thread::Builder::new()
            .name(format!("tick {}", volume.config.name))
            .spawn(move || tick(&weak, &stopped))
            .map_err(error)?;
        Ok(volume)
    }

    fn make_transfers(self: &Arc<Self>) -> io::Result<Arc<dyn Transfers>> {
        let weak = Arc::downgrade(self);
        let completed: Completed = Box::new(move |batch: &mut Vec<Completion>| {
            if let Some(volume) = weak.upgrade() {
                volume.completed(batch);
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

    /// Microseconds on a clock that all volumes share.
    fn now_us(&self) -> u64 {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        START.elapsed().as_micros() as u64
    }

    /// Records every request from now on, as one to the volume of this number.
    pub fn record(&self, recorder: Arc<Recorder>, number: u32) {
        self.lock().recorder = Some((recorder, number));
    }

    /// What there is to know of it.
    pub fn status(&self) -> VolumeStatus {
        let inner = self.lock();
        let (engine, cache) = (&inner.engine, inner.engine.cache());
        let (figures, faults, log, config) = (cache.figures(), engine.faults(), cache.log(), cache.config());
        let state = if cache.has_flash_failed() { "flash-failed" } else { inner.state };
        let mut status = VolumeStatus {
            name: self.config.name.clone(),
            size_bytes: self.size(),
            backend: self.config.backend.display().to_string(),
            flash: self.config.flash.display().to_string(),
            policy: config.policy.to_string(),
            admission: config.admission.as_ref().map_or("none".to_owned(), |admission| admission.rule.to_string()),
            admission_choice: cache.admission_choice(),
            admission_threshold: cache.admission_threshold(),
            admission_decisions: cache.decision().map_or(0, |decision| decision.number),
            write_mode: config.mode.name().to_owned(),
            state: state.to_owned(),
            read_blocks: figures.read_blocks,
            written_blocks: figures.written_blocks,
            ram_read_hits: figures.ram_read_hits,
            flash_read_hits: figures.flash_read_hits,
            ram_write_hits: figures.ram_write_hits,
            read_hit_ratio: figures.read_hit_ratio(),
            flash_client_blocks: figures.flash_client_blocks,
            flash_admission_blocks: figures.flash_admission_blocks,
            flash_copy_forward_blocks: figures.flash_copy_forward_blocks,
            flash_metadata_blocks: figures.flash_metadata_blocks,
            flash_written_bytes: figures.flash_written_blocks() * BLOCK,
            erasures: figures.erasures,
            backend_read_blocks: figures.backend_read_blocks,
            backend_written_blocks: figures.backend_written_blocks,
            destaged_blocks: figures.destaged_blocks,
            sequential_blocks: figures.sequential_blocks,
            bypassed_blocks: cache.counters().bypasses(),
            flushes: figures.flushes,
            flash_bytes: u64::from(config.geometry.pages()) * BLOCK,
            capacity_blocks: config.capacity_blocks() as u64,
            cached_blocks: log.len() as u64,
            dirty_blocks: log.dirty_blocks(),
            dirty_bytes: cache.blocks_to_write_back() * BLOCK,
            buffered_blocks: cache.buffered_blocks() as u64,
            lost_blocks: cache.lost_blocks().into_iter().map(u64::from).collect(),
            memory_bytes: resident_bytes(),
            faults: FaultsStatus {
                flash_read_errors: faults.flash_read_errors,
                flash_checksum_errors: faults.flash_checksum_errors,
                flash_write_errors: faults.flash_write_errors,
                backend_read_errors: faults.backend_read_errors,
                backend_write_errors: faults.backend_write_errors,
                failed_requests: inner.failed_requests,
            },
            ..VolumeStatus::default()
        };
        drop(inner);
        status.latencies = self.latencies.status();
        let rating = self
            .config
            .drive_writes_per_day
            .map(|drive_writes_per_day| Rating { drive_writes_per_day, warranty_years: self.config.warranty_years });
        status.set_wear(self.opened.elapsed().as_secs_f64(), rating);
        status
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no thread panics with the engine")
    }

    /// Starts transfers and gives answers, without the lock. Reads that need no waiting are done at once, without another thread.
    fn dispatch<'a>(&'a self, mut inner: MutexGuard<'a, Inner>) {
        let mut output = OUTPUT.take();
        loop {
            inner.engine.take_output(&mut output);
            inner.failed_requests += output.answered.iter().filter(|answered| answered.failed).count() as u64;
            if !output.answered.is_empty() {
                self.latencies.record(&output.answered, self.now_us());
                output.answered.clear();
            }
            let idle = inner.engine.running() == 0;
            drop(inner);
            if idle {
                self.ended.notify_all();
            }
            let done = self.perform_now(&mut output.transfers);
            if !output.transfers.is_empty() {
                self.transfers.get().expect("set before the volume is used").submit(&mut output.transfers);
            }
            for (done, result) in output.answers.drain(..) {
                done(result);
            }
            if done.is_empty() {
                break;
            }
            inner = self.lock();
            for tag in done {
                inner.engine.completed(tag, Ok(()));
            }
            self.admit_waiting(&mut inner);
        }
        OUTPUT.set(output);
    }

    /// Takes those out that could be done at once.
    fn perform_now(&self, transfers: &mut Vec<Transfer>) -> Vec<u64> {
        let mut done = Vec::new();
        transfers.retain(|transfer| {
            let slow = self.config.backend_delay_us > 0 && transfer.disk == BACKEND;
            let disk: &dyn Disk = if transfer.disk == FLASH { &*self.flash } else { &*self.backend };
            let now = !slow && transfer.length <= NOW_BYTES && transfer.perform_now(disk);
            if now {
                done.push(transfer.tag);
            }
            !now
        });
        done
    }

    fn completed(&self, batch: &mut Vec<Completion>) {
        let mut inner = self.lock();
        for completion in batch.drain(..) {
            if let Err(error) = &completion.result {
                tracing::warn!(volume = self.config.name, %error, "a transfer failed");
            }
            inner.engine.completed(completion.tag, completion.result.as_ref().map(drop).map_err(Error::from));
        }
        self.admit_waiting(&mut inner);
        self.dispatch(inner);
    }

    fn admit_waiting(&self, inner: &mut Inner) {
        while !inner.frozen && inner.engine.running() < STEPS_MAX {
            let Some((request, done)) = inner.waiting.pop_front() else { break };
            self.plan(inner, request, done);
        }
    }

    fn plan(&self, inner: &mut Inner, request: Request, done: Done) {
        let now_us = self.now_us();
        if let Some((recorder, number)) = &inner.recorder {
            recorder.record(now_us, *number, &request);
        }
        inner.engine.submit(request, done, now_us);
    }

    /// Makes durable what was answered; returns when it is.
    pub fn flush(&self) -> Result<(), Error> {
        let (sender, receiver) = mpsc::channel();
        let request =
            Request { operation: Operation::Flush, offset: 0, length: 0, force_unit_access: false, data: Vec::new() };
        self.submit(request, Box::new(move |result| drop(sender.send(result))));
        receiver.recv().map_err(|_| Error::ShuttingDown)?.map(drop)
    }

    /// An admission rule for its cache.
    pub fn admission(&self, rule: admission::Spec, geometry: &Geometry) -> Admission {
        cache::admission(rule, &self.config.array, geometry, self.size())
    }

    /// Changes settings of the cache while it runs.
    pub fn with_cache<T>(&self, change: impl FnOnce(&mut Cache) -> T) -> T {
        change(self.lock().engine.cache_mut())
    }

    /// Waits until nothing is under way and holds requests back.
    fn freeze(&self) -> MutexGuard<'_, Inner> {
        let mut inner = self.lock();
        inner.frozen = true;
        while inner.engine.running() > 0 {
            inner = self.ended.wait(inner).expect("no thread panics with the engine");
        }
        inner
    }

    fn thaw(&self, mut inner: MutexGuard<'_, Inner>) {
        inner.frozen = false;
        self.admit_waiting(&mut inner);
        self.dispatch(inner);
    }

    /// Flushes, marks the cache as closed in order, and ends: requests that come now fail.
    pub fn close(&self) -> Result<(), VolumeError> {
        let volume = || self.config.name.clone();
        let flushed = self.flush();
        let mut inner = self.freeze();
        if std::mem::replace(&mut inner.closed, true) {
            return Ok(());
        }
        let refused = std::mem::take(&mut inner.waiting);
        let detached = inner.state == "detached";
        let failed = flushed.is_err() || inner.engine.cache().has_flash_failed();
        self.dispatch(inner);
        for (_, done) in refused {
            done(Err(Error::ShuttingDown));
        }
        drop(self.stop.lock().expect("no thread panics with the timer").take());
        if detached || failed {
            return match failed {
                true => Err(VolumeError::Flash { volume: volume(), error: io::Error::other("the last flush failed") }),
                false => Ok(()),
            };
        }
        let mut superblock = self.superblock.lock().expect("no thread panics with the superblock");
        superblock.state = State::Clean;
        write_superblock(&*self.flash, &mut superblock).map_err(|error| VolumeError::Flash { volume: volume(), error })
    }

    /// Blocks that are not on the backend yet.
    pub fn dirty_blocks(&self) -> u64 {
        let inner = self.lock();
        inner.engine.cache().blocks_to_write_back()
    }

    /// Writes everything back and gives the cache up: afterwards the backend alone is whole, and the volume goes on without flash.
    pub fn detach(&self) -> Result<(), VolumeError> {
        {
            let mut inner = self.lock();
            if inner.state == "detached" {
                return Ok(());
            }
            inner.state = "detaching";
            inner.engine.cache_mut().stop_admitting();
        }
        let mut attempts_left = 10;
        let mut marked = false;
        loop {
            let mut inner = self.lock();
            match marked {
                true => inner.engine.destage_rest(self.now_us()),
                false => inner.engine.destage_all(self.now_us()),
            }
            self.dispatch(inner);
            let inner = self.freeze();
            let cache = inner.engine.cache();
            let dirty_blocks = cache.blocks_to_write_back();
            if inner.closed {
                return Err(VolumeError::Closed { volume: self.config.name.clone() });
            }
            if dirty_blocks == 0 {
                return self.give_up_flash(inner);
            }
            if !marked && cache.has_flash_failed() && cache.durable_dirty_blocks() == 0 {
                // The rest is in memory alone, and may go to the backend once nothing older on flash counts any more.
                let result = self.check_none_lost(cache).and_then(|()| self.mark_detached());
                self.thaw(inner);
                result?;
                marked = true;
                continue;
            }
            self.thaw(inner);
            attempts_left -= 1;
            if attempts_left == 0 {
                return Err(VolumeError::NotDestaged { volume: self.config.name.clone(), dirty_blocks });
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn give_up_flash(&self, mut inner: MutexGuard<'_, Inner>) -> Result<(), VolumeError> {
        let marked = self.check_none_lost(inner.engine.cache()).and_then(|()| self.mark_detached());
        if let Err(error) = marked {
            self.thaw(inner);
            return Err(error);
        }
        let geometry = inner.engine.cache().config().geometry;
        let mut cache =
            Cache::new(cache_config(&self.config, geometry, self.size()), Log::new(geometry), Default::default());
        cache.stop_admitting();
        let settings = Settings {
            cache: 0,
            epoch: 0,
            retries: 2,
            discard: false,
            spare_frames: SPARE_FRAMES,
            answers_flushes_at_once: false,
        };
        inner.engine = Engine::new(cache, settings, vec![0; geometry.pages() as usize], Vec::new());
        inner.state = "detached";
        self.thaw(inner);
        Ok(())
    }

    fn check_none_lost(&self, cache: &Cache) -> Result<(), VolumeError> {
        match cache.lost_blocks().len() {
            0 => Ok(()),
            lost => Err(VolumeError::Lost { volume: self.config.name.clone(), lost }),
        }
    }

    /// From now on, what the flash holds counts no more.
    fn mark_detached(&self) -> Result<(), VolumeError> {
        let mut superblock = self.superblock.lock().expect("no thread panics with the superblock");
        superblock.state = State::Detached;
        write_superblock(&*self.flash, &mut superblock)
            .map_err(|error| VolumeError::Flash { volume: self.config.name.clone(), error })
    }

    /// A volume without a size of its own grows when its backend has grown.
    fn follow_backend(&self) {
        if self.config.size_bytes.is_some() {
            return;
        }
        let found = self.backend.refresh_size().map(|size| size / BLOCK * BLOCK);
        if let Ok(found) = found
            && found > self.size()
            && let Err(error) = self.resize(found)
        {
            tracing::warn!(volume = self.config.name, %error, "the volume does not follow its backend");
        }
    }

    /// Follows the backend's size, after it has grown; returns the new size. Clients see it when they open the export anew.
    pub fn resize(&self, size_bytes: u64) -> Result<u64, VolumeError> {
        let found = self
            .backend
            .refresh_size()
            .map_err(|error| VolumeError::Backend { volume: self.config.name.clone(), error })?;
        if size_bytes > found || size_bytes < self.size() {
            let (volume, path) = (self.config.name.clone(), self.config.backend.display().to_string());
            return Err(VolumeError::BackendTooSmall { volume, path, found, expected: size_bytes });
        }
        let size_bytes = size_bytes / BLOCK * BLOCK;
        let mut superblock = self.superblock.lock().expect("no thread panics with the superblock");
        superblock.volume_bytes = size_bytes;
        write_superblock(&*self.flash, &mut superblock)
            .map_err(|error| VolumeError::Flash { volume: self.config.name.clone(), error })?;
        self.size_bytes.store(size_bytes, Ordering::Release);
        Ok(size_bytes)
    }
}

impl Export for Volume {
    fn size(&self) -> u64 {
        self.size_bytes.load(Ordering::Acquire)
    }

    fn description(&self) -> String {
        format!("{} behind {}", self.config.backend.display(), self.config.flash.display())
    }

    fn submit(&self, request: Request, done: Done) {
        if request.length == 0 && request.operation != Operation::Flush {
            return done(Ok(Vec::new()));
        }
        if let Operation::WriteZeroes { only_if_fast: true, .. } = request.operation {
            return done(Err(Error::NotSupported));
        }
        let mut inner = self.lock();
        if inner.closed {
            drop(inner);
            return done(Err(Error::ShuttingDown));
        }
        if inner.frozen || !inner.waiting.is_empty() || inner.engine.running() >= STEPS_MAX {
            inner.waiting.push_back((request, done));
            return;
        }
        self.plan(&mut inner, request, done);
        self.dispatch(inner);
    }

    fn extents(&self, offset: u64, length: u64, extents_max: usize) -> Result<Vec<Extent>, Error> {
        let length = length.min(EXTENT_BLOCKS * BLOCK);
        // First what is newer than the backend: what is written back meanwhile is then on the backend when that is asked.
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

/// The extents `stored` from `offset` on, with the blocks `newer`, in order, as data.
fn overlay(offset: u64, stored: &[Extent], newer: &[u64], extents_max: usize) -> Vec<Extent> {
    let mut extents: Vec<Extent> = Vec::new();
    let mut add = |length: u64, like: Extent| match extents.last_mut() {
        Some(last) if (last.hole, last.zero) == (like.hole, like.zero) => last.length += length,
        _ => extents.push(Extent { length, ..like }),
    };
    let data = Extent { length: 0, hole: false, zero: false };
    let mut newer = newer.iter().copied().peekable();
    let mut at = offset;
    for &extent in stored {
        let end = at + extent.length;
        while at < end {
            while newer.next_if(|block| (block + 1) * BLOCK <= at).is_some() {}
            let next = newer.peek().map_or(end, |block| block * BLOCK);
            let (stop, like) = if next <= at { ((next + BLOCK).min(end), data) } else { (next.min(end), extent) };
            add(stop - at, like);
            at = stop;
        }
    }
    extents.truncate(extents_max);
    extents
}

fn tick(volume: &Weak<Volume>, stopped: &mpsc::Receiver<()>) {
    while let Err(mpsc::RecvTimeoutError::Timeout) = stopped.recv_timeout(TICK) {
        let Some(volume) = volume.upgrade() else { break };
        volume.follow_backend();
        let mut inner = volume.lock();
        if !inner.frozen {
            inner.engine.advance(volume.now_us());
        }
        volume.dispatch(inner);
    }
}

fn page_cache(config: &VolumeConfig) -> PageCache {
    if config.direct_io { PageCache::AvoidIfPossible } else { PageCache::Use }
}

fn open_backend(config: &VolumeConfig) -> Result<Arc<FileDisk>, VolumeError> {
    let options = Options { read_only: false, page_cache: page_cache(config) };
    let volume = || config.name.clone();
    let disk =
        FileDisk::open(&config.backend, options).map_err(|error| VolumeError::Backend { volume: volume(), error })?;
    let expected = config.size_bytes.unwrap_or(BLOCK);
    if disk.size() < expected {
        let path = config.backend.display().to_string();
        return Err(VolumeError::BackendTooSmall { volume: volume(), path, found: disk.size(), expected });
    }
    Ok(Arc::new(disk))
}

/// Opens the flash, or makes its file; `true`: it was just made.
fn open_flash(config: &VolumeConfig) -> Result<(Arc<FileDisk>, bool), VolumeError> {
    let options = Options { read_only: false, page_cache: page_cache(config) };
    let error = |error| VolumeError::Flash { volume: config.name.clone(), error };
    if !config.flash.exists() {
        let Some(size) = config.flash_size_bytes else {
            let missing = format!("{}: does not exist; give its size to have it made", config.flash.display());
            return Err(error(io::Error::new(io::ErrorKind::NotFound, missing)));
        };
        check_flash_size(config, size)?;
        let disk = FileDisk::create(&config.flash, size, Allocation::Full, options).map_err(error)?;
        return Ok((Arc::new(disk), true));
    }
    let disk = FileDisk::open(&config.flash, options).map_err(error)?;
    check_flash_size(config, disk.size().min(config.flash_size_bytes.unwrap_or(u64::MAX)))?;
    if let Some(expected) = config.flash_size_bytes
        && disk.size() < expected
    {
        let message =
            format!("{}: it has {} bytes, the configuration says {expected}", config.flash.display(), disk.size());
        return Err(error(io::Error::new(io::ErrorKind::InvalidInput, message)));
    }
    Ok((Arc::new(disk), false))
}

fn check_flash_size(config: &VolumeConfig, found: u64) -> Result<(), VolumeError> {
    let unit = config.erase_unit_bytes;
    let expected = unit * u64::from(Geometry::UNITS_MIN);
    if found >= expected {
        return Ok(());
    }
    let (volume, path) = (config.name.clone(), config.flash.display().to_string());
    Err(VolumeError::FlashTooSmall { volume, path, found, expected, unit })
}

fn geometry(config: &VolumeConfig, flash_bytes: u64) -> Geometry {
    let unit = config.erase_unit_bytes;
    let bytes = config.flash_size_bytes.unwrap_or(flash_bytes);
    Geometry { units: u32::try_from(bytes / unit).unwrap_or(u32::MAX), unit_pages: (unit / BLOCK) as u32 }
}

fn new_superblock(
    config: &VolumeConfig,
    flash: &FileDisk,
    identity: &Identity,
    size_bytes: u64,
) -> Result<Superblock, VolumeError> {
    let mut superblock = Superblock {
        generation: 0,
        cache: Uuid::new_v4().into_bytes(),
        backend: identity.id,
        geometry: geometry(config, flash.size()),
        volume_bytes: size_bytes,
        state: State::InUse,
    };
    flash::format(flash, &mut superblock).map_err(|error| VolumeError::Flash { volume: config.name.clone(), error })?;
    Ok(superblock)
}

/// The superblock of a flash that was used before; `None` if it is blank or was detached.
fn existing_superblock(
    config: &VolumeConfig,
    flash: &FileDisk,
    identity: &Identity,
    size_bytes: u64,
) -> Result<Option<Superblock>, VolumeError> {
    let (volume, path) = (config.name.clone(), config.flash.display().to_string());
    let superblock = match read_superblock(flash) {
        Ok(superblock) => superblock,
        Err(FlashError::NoSuperblock(flashwise_core::format::PageError::Magic)) => {
            return match flash::is_blank(flash) {
                Ok(true) => Ok(None),
                Ok(false) => Err(VolumeError::Foreign { volume, path }),
                Err(error) => Err(VolumeError::Flash { volume, error }),
            };
        }
        Err(error) => return Err(VolumeError::Cache { volume, path, error }),
    };
    if superblock.state == State::Detached {
        return Ok(None);
    }
    if superblock.backend != identity.id {
        return Err(VolumeError::OtherBackend {
            volume,
            path,
            backend: config.backend.display().to_string(),
            found: Uuid::from_bytes(superblock.backend),
            expected: Uuid::from_bytes(identity.id),
            what: identity.description.clone(),
        });
    }
    let refuse = |what, found: u64, expected: u64| {
        let (volume, path) = (volume.clone(), path.clone());
        let (found, expected) = (format!("{found} bytes"), format!("{expected} bytes"));
        Err(VolumeError::Geometry { volume, path, what, found, expected })
    };
    let unit_bytes = u64::from(superblock.geometry.unit_pages) * BLOCK;
    if unit_bytes != config.erase_unit_bytes {
        return refuse("erase unit", unit_bytes, config.erase_unit_bytes);
    }
    let expected = geometry(config, flash.size());
    if superblock.geometry != expected {
        let bytes = |geometry: Geometry| u64::from(geometry.pages()) * BLOCK;
        return refuse("flash size", bytes(superblock.geometry), bytes(expected));
    }
    if superblock.volume_bytes > size_bytes {
        return refuse("volume size", superblock.volume_bytes, size_bytes);
    }
    Ok(Some(superblock))
}

fn cache_config(config: &VolumeConfig, geometry: Geometry, size_bytes: u64) -> Config {
    let admission = config.admission.clone();
    let ram_blocks = config.ram_bytes / BLOCK;
    let write_buffer = (ram_blocks as f64 * config.write_buffer_share) as u32;
    Config {
        geometry,
        policy: config.policy.clone(),
        admission: admission.map(|rule| cache::admission(rule, &config.array, &geometry, size_bytes)),
        mode: config.write_mode,
        read_buffer_blocks: ram_blocks as u32 - write_buffer,
        write_buffer_blocks: write_buffer,
        over_provision: config.over_provision,
        dirty_high: config.dirty_high,
        dirty_low: config.dirty_low,
        dirty_age_us: config.dirty_age_us,
        commit_age_us: config.commit_age_us,
        sequential_blocks: (config.sequential_bytes / BLOCK) as u32,
        segment_blocks: RECORDS_PER_PAGE as u32,
    }
}

/// Memory that the process has, by proc(5); 0 where that is not told.
fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}
