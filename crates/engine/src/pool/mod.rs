//! A pool: disks, logical disks made of their chunks, and one cache in front of them all.
//!
//! A logical disk is a list of chunks of 64 KiB, each of which has a place on a disk of the pool, or none and reads as zeroes. Places are
//! looked up before the cache is asked, so that the cache knows blocks of the pool and is shared by all. `docs/pool.md` is for users.
//!
//! What must hold at a crash: a place is written down once the chunk holds nothing of an earlier owner, durably; and a chunk that was
//! given up is given away once that is written down and the cache has forgotten it, durably. A flush therefore makes the cache
//! durable, then the map, and then it is answered.
//!
//! | file | holds |
//! | --- | --- |
//! | `label.rs`, `record.rs`, `journal.rs` | what is on the disks |
//! | `space.rs`, `entries.rs`, `map.rs` | what is known of it: free chunks, places |
//! | `metadata.rs` | both together, found and checked at the start |
//! | `backend.rs` | the disks as one |
//! | `gate.rs`, `commits.rs` | who waits for whom |
//! | `logical.rs`, `first_writes.rs`, `pieces.rs`, `join.rs` | a logical disk as an export |
//! | `control.rs`, `pins.rs`, `evacuate.rs`, `lost.rs` | what an operator does |
//! | `plan.rs` | what that would do, before it is done |
//! | `prepare.rs` | disks that are to be a part of a pool |
//! | `owners.rs` | which logical disk has a block of the pool |
//! | `status.rs` | what a pool says of itself |

mod backend;
mod commits;
mod control;
mod entries;
mod error;
mod evacuate;
mod first_writes;
mod gate;
pub mod journal;
pub mod label;
mod logical;
mod lost;
pub mod map;
pub mod metadata;
mod owners;
mod pieces;
mod pins;
pub mod plan;
pub mod prepare;
pub mod record;
pub mod space;
pub mod status;
mod told;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub use uuid::Uuid;

use crate::attach::{BackendSide, Owned, Record, Stamp};
use crate::disk::file::{FileDisk, Options, PageCache};
use crate::disk::identity::Identity;
use crate::disk::slow::{SlowDisk, Slowness};
use crate::disk::{Disk, is_dead};
use crate::flash::Progress;
use crate::time::{self, JoinHandle, Mutex, RwLock, Sender};
use crate::vital;
use crate::volume::{Opened, Storage, Volume, VolumeConfig, VolumeError};

pub use self::control::NewLogical;
pub use self::error::PoolError;
pub use self::logical::LogicalDisk;
pub use self::metadata::Metadata;

use self::backend::{PoolDisk, Range};
use self::commits::Job;
use self::gate::Gate;
use self::owners::{Owner, Owners};
use self::record::Change;

/// Size of a chunk: the paper's trunk of 64 KB.
pub const CHUNK_BYTES: u64 = 64 << 10;
/// Largest logical disk: its chunks take 256 MiB of memory.
const LOGICAL_BYTES_MAX: u64 = 64 << 40;
/// Chunks that a pool can have, all disks together: 16 TiB, as many blocks as the cache has numbers for.
pub const CHUNKS_MAX: u32 = 1 << 28;
/// What the cache takes a pool for: as large as it can be, so that disks can come and go. The last chunk is never used: the number of
/// all blocks has 32 bits as well.
pub const POOL_BYTES: u64 = (CHUNKS_MAX as u64 - 1) * CHUNK_BYTES;

/// What a pool is made of.
#[derive(Clone, Debug)]
pub struct PoolConfig {
    /// Its disks: block devices or regular files, in any order.
    pub disks: Vec<PathBuf>,
    /// True if it starts although disks are missing.
    pub degraded: bool,
    /// Its name, its flash, which may be none, and the settings of its cache. The backend is the pool itself.
    pub cache: VolumeConfig,
}

/// Why a pool cannot be opened.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum OpenError {
    #[error(transparent)]
    Pool(#[from] PoolError),
    #[error(transparent)]
    Volume(#[from] VolumeError),
}

impl OpenError {
    /// True if trying again cannot mend it.
    pub fn is_permanent(&self) -> bool {
        match self {
            OpenError::Pool(error) => error.is_permanent(),
            OpenError::Volume(error) => error.is_permanent(),
        }
    }
}

/// What of a pool changes, under one lock.
struct State {
    metadata: Metadata,
    /// Changes that are in memory alone.
    pending: Vec<Change>,
    /// Chunks that were given up: free once that is written down and the cache has forgotten them.
    released: Vec<u32>,
    /// Chunks that were given up and could not be zeroed: not free before they are.
    unclean: Vec<u32>,
    /// How many chunks became free again since the start.
    given_back: u64,
    /// True if changes that were pending are being written down.
    committing: bool,
    /// Who has the chunks of which something is lost or waits.
    owners: Owners,
    /// The disks that are there and are being emptied, by number, ...
    leaving: BTreeMap<u32, evacuate::Leaving>,
    /// ... and those that a thread works on.
    evacuated: BTreeSet<u32>,
}

/// What the pool, its logical disks and its threads share.
struct Shared {
    name: String,
    /// The side of the cache has it too.
    state: Arc<vital::Mutex<State>>,
    gate: Gate,
    disk: Arc<PoolDisk>,
    volume: OnceLock<Arc<Volume>>,
    /// Changes that are not durable yet, and chunks that are not free yet: as long as there are any, a flush has to wait for them.
    uncommitted: AtomicU64,
    /// Flushes that clients asked for, of logical disks that are gone too.
    flushes: AtomicU64,
    /// Requests of logical disks that were refused, in the same way.
    refused: AtomicU64,
    jobs: Mutex<Option<Sender<Job>>>,
    exports: RwLock<BTreeMap<u32, Arc<LogicalDisk>>>,
    /// True if it was said that the pool is nearly full.
    warned: AtomicBool,
    /// One operator's change at a time.
    control: Mutex<()>,
    /// Who is told when a disk came or went.
    on_disks: OnceLock<DisksChanged>,
}

/// Is told of the paths of a pool's disks, those that are missing among them, after one came or went.
pub type DisksChanged = Box<dyn Fn(&[String]) + Send + Sync>;

/// An open pool.
pub struct Pool {
    shared: Arc<Shared>,
    commits: Mutex<Option<JoinHandle>>,
    config: PoolConfig,
}

impl State {
    /// The logical disks that have these chunks, of those that have one.
    fn owners_of(&mut self, chunks: &BTreeSet<u32>) -> BTreeMap<u32, Owner> {
        if chunks.is_empty() {
            return BTreeMap::new();
        }
        self.owners.of(&self.metadata.map, chunks)
    }
}

impl Shared {
    fn state(&self) -> vital::MutexGuard<'_, State> {
        vital::lock(&self.state)
    }

    fn volume(&self) -> &Arc<Volume> {
        self.volume.get().expect("the volume is there before a request comes")
    }

    /// Takes note of changes that are in memory; they are durable after the next flush.
    fn add_pending(&self, state: &mut State, changes: Vec<Change>, released: Vec<u32>) {
        self.uncommitted.fetch_add((changes.len() + released.len()) as u64, Ordering::SeqCst);
        state.pending.extend(changes);
        state.released.extend(released);
        let (chunks, used) = state.metadata.map.space.usage();
        let full = chunks > 0 && u64::from(used) * 100 >= u64::from(chunks) * status::WARN_PERCENT;
        if full && !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(pool = self.name, "at least {} % of the pool is in use", status::WARN_PERCENT);
        } else if !full {
            self.warned.store(false, Ordering::Relaxed);
        }
    }

    /// The disks as the map has them.
    fn ranges(metadata: &Metadata) -> Vec<Range> {
        let disk =
            |id: u32| metadata.present.iter().find(|present| present.id == id).map(|present| present.disk.clone());
        let range = |(id, member): (&u32, &record::Member)| Range {
            base: member.base,
            chunks: member.chunks,
            reserved: member.reserved,
            disk: disk(*id),
        };
        metadata.map.disks.iter().map(range).collect()
    }
}

/// Where a pool keeps what it knows of its cache: in its map.
struct PoolSide(Arc<vital::Mutex<State>>);

impl BackendSide for PoolSide {
    fn read(&self) -> io::Result<Option<Record>> {
        vital::lock(&self.0).metadata.map.cache.as_deref().map(Record::decode).transpose()
    }

    fn write(&self, record: &Record) -> io::Result<()> {
        let mut state = vital::lock(&self.0);
        let before = state.metadata.map.cache.replace(record.encode());
        let written = state.metadata.commit(&[Change::Cache(record.encode())]);
        if written.is_err() {
            state.metadata.map.cache = before;
        }
        written.map_err(io::Error::other)
    }

    /// Disks that come and go do not change what is on the others.
    fn stamp(&self) -> io::Result<Stamp> {
        Ok(Stamp { size: POOL_BYTES, modified_ns: None, writes: None })
    }

    fn inode(&self) -> Option<u64> {
        None
    }

    fn owned(&self, ranges: &[std::ops::Range<u64>]) -> Vec<Owned> {
        owners::owned(&vital::lock(&self.0).metadata.map, ranges)
    }
}

/// Opens a disk of a pool, locked against others.
fn open_disk(path: &Path, direct_io: bool) -> io::Result<Arc<dyn Disk>> {
    let page_cache = if direct_io { PageCache::AvoidIfPossible } else { PageCache::Use };
    FileDisk::open(path, Options { read_only: false, page_cache }).map(|disk| Arc::new(disk) as Arc<dyn Disk>)
}

/// Opens the disks of a pool; where it may start without some of them, those that are there, if any is. What people should know is added
/// to `notes`.
fn open_those_there(config: &PoolConfig, notes: &mut Vec<String>) -> Result<Vec<Arc<dyn Disk>>, PoolError> {
    let pool = &config.cache.name;
    let mut disks = Vec::new();
    let mut gone = None;
    for path in &config.disks {
        match open_disk(path, config.cache.direct_io) {
            Ok(disk) => disks.push(disk),
            Err(source) if source.kind() != io::ErrorKind::NotFound && !is_dead(&source) => {
                return Err(PoolError::Open { source });
            }
            Err(source) if !config.degraded => return Err(PoolError::Gone { pool: pool.clone(), error: source }),
            Err(source) => {
                notes.push(format!("pool {pool}: {source}"));
                gone.get_or_insert(source);
            }
        }
    }
    match gone {
        Some(source) if disks.is_empty() => Err(PoolError::Open { source }),
        _ => Ok(disks),
    }
}

/// What the disks of a pool say that no server has open, and what people should know. Nothing is written to them.
fn look_at(config: &PoolConfig) -> Result<(Metadata, Vec<String>), PoolError> {
    let mut notes = Vec::new();
    let disks = open_those_there(config, &mut notes)?;
    let metadata = Metadata::open(&config.cache.name, disks, config.degraded, &mut notes)?;
    Ok((metadata, notes))
}

/// What changes of a pool, and its disks as one, as which its cache lies before them.
fn storage_of(metadata: Metadata, notes: Vec<String>) -> (Arc<vital::Mutex<State>>, Arc<PoolDisk>, Storage) {
    let name = metadata.name.clone();
    let identity = Identity { id: metadata.pool.into_bytes(), description: format!("pool {name} {}", metadata.pool) };
    let disk = Arc::new(PoolDisk::new(&name, Shared::ranges(&metadata)));
    let state = State {
        metadata,
        pending: Vec::new(),
        released: Vec::new(),
        unclean: Vec::new(),
        given_back: 0,
        committing: false,
        owners: Owners::default(),
        leaving: BTreeMap::new(),
        evacuated: BTreeSet::new(),
    };
    let state = Arc::new(vital::Mutex::new(state));
    let asked = state.clone();
    disk.ask_whether_free(Box::new(move |chunk| vital::lock(&asked).metadata.map.space.is_free(chunk)));
    let storage = Storage { disk: disk.clone(), identity, side: Box::new(PoolSide(state.clone())), notes };
    (state, disk, storage)
}

impl Pool {
    /// Finds the pool on its disks and starts its cache.
    pub fn open(config: PoolConfig, progress: Progress<'_>) -> Result<(Pool, Opened), OpenError> {
        let mut config = config;
        let mut notes = Vec::new();
        let mut disks = open_those_there(&config, &mut notes)?;
        // Each disk by itself is as slow as it is to be.
        let delay = Duration::from_micros(std::mem::take(&mut config.cache.backend_delay_us));
        if !delay.is_zero() {
            let slow = |disk| Arc::new(SlowDisk::new(disk, Slowness { delay, spindles: 1 })) as Arc<dyn Disk>;
            disks = disks.into_iter().map(slow).collect();
        }
        Pool::open_noted(config, disks, notes, progress)
    }

    /// What the pool's cache lies before, for those who work on the cache while nobody serves the pool.
    ///
    /// # Errors
    /// As of [`open`](Self::open), of the pool's disks.
    pub fn storage(config: &PoolConfig) -> Result<Storage, PoolError> {
        let (metadata, notes) = look_at(config)?;
        Ok(storage_of(metadata, notes).2)
    }

    /// The names of its logical disks, of disks that no server has open, to which nothing is written.
    ///
    /// # Errors
    /// Its disks are refused.
    pub fn names(config: &PoolConfig) -> Result<Vec<String>, PoolError> {
        let (metadata, _) = look_at(config)?;
        Ok(metadata.map.logicals.values().map(|logical| logical.shape().name).collect())
    }

    /// As [`open`](Self::open), of disks that were opened.
    pub fn open_on(
        config: PoolConfig,
        disks: Vec<Arc<dyn Disk>>,
        progress: Progress<'_>,
    ) -> Result<(Pool, Opened), OpenError> {
        Pool::open_noted(config, disks, Vec::new(), progress)
    }

    fn open_noted(
        mut config: PoolConfig,
        disks: Vec<Arc<dyn Disk>>,
        mut notes: Vec<String>,
        progress: Progress<'_>,
    ) -> Result<(Pool, Opened), OpenError> {
        let name = config.cache.name.clone();
        let metadata = Metadata::open(&name, disks, config.degraded, &mut notes)?;
        let (state, disk, storage) = storage_of(metadata, notes);
        let (jobs, received) = time::channel();
        let shared = Arc::new(Shared {
            name: name.clone(),
            state,
            gate: Gate::default(),
            disk,
            volume: OnceLock::new(),
            uncommitted: AtomicU64::new(0),
            flushes: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            jobs: Mutex::new(Some(jobs)),
            exports: RwLock::default(),
            warned: AtomicBool::new(false),
            control: Mutex::new(()),
            on_disks: OnceLock::new(),
        });
        config.cache.of_pool = true;
        config.cache.size_bytes = Some(POOL_BYTES);
        config.cache.backend = PathBuf::from(storage.disk.description());
        let (volume, opened) = Volume::open_on(config.cache.clone(), storage, progress)?;
        shared.state().metadata.write_start()?;
        volume.leave_lost();
        assert!(shared.volume.set(volume).is_ok(), "a pool has one volume");
        let logicals: Vec<_> = {
            let state = shared.state();
            state.metadata.map.logicals.iter().map(|(id, logical)| (*id, logical.clone())).collect()
        };
        for (id, logical) in logicals {
            let bytes = logical.shape().pinned_ram_bytes;
            let disk = shared.add_export(id, logical);
            if !shared.pin(&disk, bytes) {
                tracing::warn!(
                    pool = name,
                    disk = disk.name(),
                    bytes,
                    "there is too little RAM to keep for a logical disk"
                );
            }
        }
        let commits = commits::start(shared.clone(), received).map_err(|source| PoolError::Open { source })?;
        let pool = Pool { shared, commits: Mutex::new(Some(commits)), config };
        pool.go_on_evacuating();
        Ok((pool, opened))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Its UUID, which its disks' labels have.
    pub fn uuid(&self) -> Uuid {
        self.shared.state().metadata.pool
    }

    /// What it was opened with.
    pub fn config(&self) -> &PoolConfig {
        &self.config
    }

    /// Its cache, as a volume of all its chunks.
    pub fn volume(&self) -> &Arc<Volume> {
        self.shared.volume()
    }

    /// Has somebody told when a disk came or went, from now on; one at most.
    pub fn on_disks(&self, tell: DisksChanged) {
        assert!(self.shared.on_disks.set(tell).is_ok(), "one is told of disks");
    }

    /// Its logical disks, by name.
    pub fn logical_disks(&self) -> BTreeMap<String, Arc<LogicalDisk>> {
        let exports = self.shared.exports.read();
        exports.values().map(|disk| (disk.name(), disk.clone())).collect()
    }

    /// Makes everything durable that was answered, the cache and the map; an error where something is lost, or waits in memory for a place.
    pub fn flush(&self) -> Result<(), PoolError> {
        self.commit_all()?;
        self.shared.check_none_lost(None)
    }

    /// Gives the flash up, as [`Volume::detach`] does. Chunks that could not become free before are free when this returns.
    pub fn detach(&self) -> Result<usize, VolumeError> {
        let lost = self.volume().detach()?;
        if let Err(error) = self.commit_all() {
            tracing::warn!(pool = self.name(), %error, "the flash is detached, and some chunks are not free before a flush succeeds");
        }
        Ok(lost)
    }

    /// Makes durable what is in memory now, with what was held back at first and is lost no more.
    fn commit_all(&self) -> Result<(), PoolError> {
        self.shared.commit_now()?;
        let is_all = self.shared.state().pending.is_empty();
        match is_all {
            true => Ok(()),
            false => self.shared.commit_now(),
        }
    }

    /// Makes everything durable and ends: requests that come now fail.
    pub fn close(&self) -> Result<(), OpenError> {
        let committed = self.commit_all();
        drop(self.shared.jobs.lock().take());
        let thread = self.commits.lock().take();
        let is_first = thread.is_some();
        if let Some(thread) = thread {
            thread.join().expect("the thread of commits does not panic");
        }
        let closed = self.volume().close();
        committed?;
        closed?;
        self.shared.check_none_lost(None)?;
        // What came before counts for more than this.
        if is_first {
            self.shared.state().metadata.end()?;
        }
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        drop(self.shared.jobs.lock().take());
        // They and what they share hold each other.
        self.shared.exports.write().clear();
    }
}

impl Shared {
    /// Tells that a disk came or went. Never while the state is held.
    fn tell_disks(&self) {
        if let Some(tell) = self.on_disks.get() {
            let mut disks: Vec<String> = Vec::new();
            // One that is missing may have been where another is now.
            for disk in self.state().metadata.map.disks.values() {
                if !disks.contains(&disk.path) {
                    disks.push(disk.path.clone());
                }
            }
            tell(&disks);
        }
    }

    fn add_export(self: &Arc<Self>, id: u32, logical: Arc<map::Logical>) -> Arc<LogicalDisk> {
        let disk = Arc::new(LogicalDisk::new(self.clone(), id, logical));
        self.exports.write().insert(id, disk.clone());
        disk
    }
}
