//! A pool: disks, logical disks made of their chunks, and one cache in front of all disks.
//!
//! A logical disk is a list of chunks of 64 KiB. Each chunk has a place on a disk of the pool, or has none and reads as
//! zeroes. Places are looked up before the cache is asked. So the cache addresses blocks of the pool, and all logical
//! disks share it. `docs/pool.md` is for users.
//!
//! Two rules make the map safe in a crash:
//!
//! - A place is recorded only once the chunk durably holds nothing of an earlier owner.
//! - A released chunk is reused only once its release is recorded and the cache has durably discarded it.
//!
//! So a flush first makes the cache durable, then the map, and then replies.
//!
//! | file | holds |
//! | --- | --- |
//! | `label.rs`, `record.rs`, `journal.rs` | the format on the disks |
//! | `space.rs`, `entries.rs`, `map.rs` | the map in memory: free chunks, places |
//! | `metadata.rs` | reads, checks and writes the map and the labels |
//! | `backend.rs` | the disks as one device |
//! | `gate.rs`, `commits.rs` | the order of requests, flushes and changes of the map |
//! | `logical.rs`, `first_writes.rs`, `pieces.rs`, `join.rs` | a logical disk as an export |
//! | `in_order.rs`, `resting.rs` | changes of the map if data is written back in order |
//! | `control.rs`, `evacuate.rs` | operations of an administrator |
//! | `change.rs`, `plan.rs` | these operations as values, and their previews |
//! | `prepare.rs` | checks of disks before they join a pool |
//! | `owners.rs` | maps blocks of the pool to logical disks |
//! | `status.rs` | the status of a pool |

mod backend;
mod change;
mod commits;
mod control;
mod entries;
mod error;
mod evacuate;
mod first_writes;
mod gate;
mod in_order;
pub mod journal;
pub mod label;
mod logical;
pub mod map;
pub mod metadata;
mod owners;
mod pieces;
pub mod plan;
pub mod prepare;
pub mod record;
mod resting;
pub mod space;
pub mod status;
mod told;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use flashwise_core::format::BLOCK_BYTES;
pub use uuid::Uuid;

use crate::attach::{BackendPart, BackendSide, Owned, Record, Stamp};
use crate::disk::file::{FileDisk, Options, PageCache};
use crate::disk::identity::Identity;
use crate::disk::slow::{SlowDisk, Slowness};
use crate::disk::{Disk, is_dead};
use crate::flash::Progress;
use crate::time::{self, JoinHandle, Mutex, RwLock, Sender};
use crate::vital;
use crate::volume::{Opened, Storage, Volume, VolumeConfig, VolumeError};

pub use self::change::{DiskAdded, DiskGivenUp, LogicalDiskChange, NewLogical, PoolChange};
pub use self::error::PoolError;
pub use self::logical::LogicalDisk;
pub use self::metadata::Metadata;

use self::backend::{PoolDisk, Range};
use self::commits::Job;
use self::gate::Gate;
use self::owners::{Owner, Owners};
use self::record::Change;

/// Size of a chunk: 64 KiB, the trunk size of the paper.
pub const CHUNK_BYTES: u64 = 64 << 10;
/// Largest logical disk: its chunks take 256 MiB of memory.
const LOGICAL_BYTES_MAX: u64 = 64 << 40;
/// Maximum number of chunks of a pool, all disks together: 16 TiB, which the cache's 32-bit block numbers allow.
pub const CHUNKS_MAX: u32 = 1 << 28;
/// Size of the pool as the cache sees it: the maximum, so that disks can come and go. The last chunk is never used,
/// because the number of blocks must fit into 32 bits as well.
pub const POOL_BYTES: u64 = (CHUNKS_MAX as u64 - 1) * CHUNK_BYTES;

/// The configuration of a pool.
#[derive(Clone, Debug)]
pub struct PoolConfig {
    /// The disks: block devices or regular files, in any order.
    pub disks: Vec<PathBuf>,
    /// True if the pool may start without some of its disks.
    pub degraded: bool,
    /// The pool's name, its optional flash, and the settings of its cache. The backend is the pool itself.
    pub cache: VolumeConfig,
}

/// Why a pool could not be opened.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum OpenError {
    #[error(transparent)]
    Pool(#[from] PoolError),
    #[error(transparent)]
    Volume(#[from] VolumeError),
}

impl OpenError {
    /// True if a retry cannot succeed.
    pub fn is_permanent(&self) -> bool {
        match self {
            OpenError::Pool(error) => error.is_permanent(),
            OpenError::Volume(error) => error.is_permanent(),
        }
    }
}

/// The mutable state of a pool, under one lock.
struct Tables {
    metadata: Metadata,
    /// Changes that exist only in memory.
    pending: Vec<Change>,
    /// Released chunks: free once their release is recorded and the cache has discarded them.
    released: Vec<u32>,
    /// Released chunks that could not be zeroed: not free until they are.
    unclean: Vec<u32>,
    /// Chunks that get no new data before the disks have older epochs.
    resting: Vec<resting::Resting>,
    /// Number of chunks that became free again since the start.
    given_back: u64,
    /// True while changes taken from `pending` are being recorded.
    committing: bool,
    /// The owners of chunks with lost or waiting blocks.
    owners: Owners,
    /// The present disks that are being evacuated, by number.
    leaving: BTreeMap<u32, evacuate::Leaving>,
    /// The disks of `leaving` that a thread works on.
    evacuated: BTreeSet<u32>,
}

/// State that the pool, its logical disks and its threads share.
struct Shared {
    name: String,
    /// Shared with the cache's side of the pool.
    state: Arc<vital::Mutex<Tables>>,
    gate: Gate,
    disk: Arc<PoolDisk>,
    volume: OnceLock<Arc<Volume>>,
    /// Number of changes that are not durable and chunks that are not free yet. While it is above 0, a flush must wait
    /// for them.
    uncommitted: AtomicU64,
    /// Flushes of clients, including those of deleted logical disks.
    flushes: AtomicU64,
    /// Refused requests, including those of deleted logical disks.
    refused: AtomicU64,
    jobs: Mutex<Option<Sender<Job>>>,
    exports: RwLock<BTreeMap<u32, Arc<LogicalDisk>>>,
    /// True if the warning about a nearly full pool was logged.
    warned: AtomicBool,
    /// Serializes the operations of administrators.
    control: Mutex<()>,
    /// Called when a disk was added or removed.
    on_disks: OnceLock<DisksChanged>,
}

/// Receives the paths of a pool's disks, including missing ones, after a disk was added or removed.
pub type DisksChanged = Box<dyn Fn(&BTreeSet<String>) + Send + Sync>;

/// An open pool.
pub struct Pool {
    shared: Arc<Shared>,
    commits: Mutex<Option<JoinHandle>>,
    config: PoolConfig,
}

impl Tables {
    /// Returns the logical disks that own these chunks. Chunks without an owner are left out.
    fn owners_of(&mut self, chunks: &BTreeSet<u32>) -> BTreeMap<u32, Owner> {
        if chunks.is_empty() {
            return BTreeMap::new();
        }
        self.owners.of(&self.metadata.map, chunks)
    }
}

impl Shared {
    fn state(&self) -> vital::MutexGuard<'_, Tables> {
        vital::lock(&self.state)
    }

    fn volume(&self) -> &Arc<Volume> {
        self.volume.get().expect("the volume is there before a request comes")
    }

    /// Registers changes made in memory; the next flush makes them durable.
    fn add_pending(&self, state: &mut Tables, changes: Vec<Change>, released: Vec<u32>) {
        self.uncommitted.fetch_add((changes.len() + released.len()) as u64, Ordering::SeqCst);
        state.pending.extend(changes);
        state.released.extend(released);
        let (chunks, used) = state.metadata.map.space.usage();
        let full = chunks > 0 && u64::from(used) * 100 >= u64::from(chunks) * status::WARN_PERCENT;
        if full && !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                event = "pool-nearly-full",
                pool = self.name,
                "at least {}% of the pool is in use",
                status::WARN_PERCENT
            );
        } else if !full {
            self.warned.store(false, Ordering::Relaxed);
        }
    }

    /// Returns the disks and their chunks, as recorded in the map.
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

/// The cache's record of the pool, which is kept in the map.
struct PoolSide(Arc<vital::Mutex<Tables>>);

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

    /// Constant, because adding or removing disks does not change the contents of the others.
    fn stamp(&self) -> io::Result<Stamp> {
        Ok(Stamp { size: POOL_BYTES, modified_ns: None, writes: None })
    }

    fn inode(&self) -> Option<u64> {
        None
    }

    fn owned(&self, ranges: &[std::ops::Range<u64>]) -> Vec<Owned> {
        owners::owned(&vital::lock(&self.0).metadata.map, ranges)
    }

    fn parts(&self) -> Vec<BackendPart> {
        const CHUNK_BLOCKS: u32 = (CHUNK_BYTES / BLOCK_BYTES as u64) as u32;
        let metadata = &vital::lock(&self.0).metadata;
        let missing = metadata.missing();
        let part = |(id, member): (&u32, &record::Member)| BackendPart {
            id: member.disk,
            path: member.path.clone(),
            blocks: member.base * CHUNK_BLOCKS..(member.base + member.chunks) * CHUNK_BLOCKS,
            is_missing: missing.contains(id),
        };
        metadata.map.disks.iter().map(part).collect()
    }
}

/// Opens and locks a disk of a pool.
fn open_disk(path: &Path, direct_io: bool) -> io::Result<Arc<dyn Disk>> {
    let page_cache = if direct_io { PageCache::AvoidIfPossible } else { PageCache::Use };
    FileDisk::open(path, Options { read_only: false, page_cache }).map(|disk| Arc::new(disk) as Arc<dyn Disk>)
}

/// Opens the disks of a pool. A degraded pool opens the disks that are present, at least one. Notes for users are added
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

/// Reads the metadata of a pool that no server has open, and collects notes for users. Writes nothing.
fn look_at(config: &PoolConfig) -> Result<(Metadata, Vec<String>), PoolError> {
    let mut notes = Vec::new();
    let disks = open_those_there(config, &mut notes)?;
    let metadata = Metadata::open(&config.cache.name, disks, config.degraded, &mut notes)?;
    Ok((metadata, notes))
}

/// Builds the state of a pool, and its disks as one device with the storage of its cache.
fn storage_of(metadata: Metadata, notes: Vec<String>) -> (Arc<vital::Mutex<Tables>>, Arc<PoolDisk>, Storage) {
    let name = metadata.name.clone();
    let identity = Identity { id: metadata.pool.into_bytes(), description: format!("pool {name} {}", metadata.pool) };
    let disk = Arc::new(PoolDisk::new(&name, Shared::ranges(&metadata)));
    let state = Tables {
        metadata,
        pending: Vec::new(),
        released: Vec::new(),
        unclean: Vec::new(),
        resting: Vec::new(),
        given_back: 0,
        committing: false,
        owners: Owners::default(),
        leaving: BTreeMap::new(),
        evacuated: BTreeSet::new(),
    };
    let state = Arc::new(vital::Mutex::new(state));
    let asked = state.clone();
    disk.ask_whether_free(Box::new(move |chunk| {
        let state = vital::lock(&asked);
        state.metadata.map.space.is_free(chunk) || state.resting.iter().any(|rest| rest.released.contains(&chunk))
    }));
    let storage = Storage { disk: disk.clone(), identity, side: Box::new(PoolSide(state.clone())), notes };
    (state, disk, storage)
}

impl Pool {
    /// Finds the pool on its disks and starts its cache.
    pub fn open(config: PoolConfig, progress: Progress<'_>) -> Result<(Pool, Opened), OpenError> {
        let mut config = config;
        let mut notes = Vec::new();
        let mut disks = open_those_there(&config, &mut notes)?;
        // The delay applies to each disk, not to the pool.
        let delay = Duration::from_micros(std::mem::take(&mut config.cache.backend_delay_us));
        if !delay.is_zero() {
            let slow = |disk| Arc::new(SlowDisk::new(disk, Slowness { delay, spindles: 1 })) as Arc<dyn Disk>;
            disks = disks.into_iter().map(slow).collect();
        }
        Pool::open_noted(config, disks, notes, progress)
    }

    /// Returns the storage that the pool's cache uses, for tools that work on the cache of a pool that is not being
    /// served.
    ///
    /// # Errors
    /// Those of [`open`](Self::open) for the pool's disks.
    pub fn storage(config: &PoolConfig) -> Result<Storage, PoolError> {
        let (metadata, notes) = look_at(config)?;
        Ok(storage_of(metadata, notes).2)
    }

    /// Like [`storage`](Self::storage), for disks that are open already.
    ///
    /// # Errors
    /// Those of [`open_on`](Self::open_on) for the pool's disks.
    pub fn storage_on(config: &PoolConfig, disks: Vec<Arc<dyn Disk>>) -> Result<Storage, PoolError> {
        let mut notes = Vec::new();
        let metadata = Metadata::open(&config.cache.name, disks, config.degraded, &mut notes)?;
        Ok(storage_of(metadata, notes).2)
    }

    /// Returns the names of the logical disks of a pool that no server has open. Writes nothing.
    ///
    /// # Errors
    /// The disks are refused.
    pub fn names(config: &PoolConfig) -> Result<Vec<String>, PoolError> {
        let (metadata, _) = look_at(config)?;
        Ok(metadata.map.logicals.values().map(|logical| logical.shape().name).collect())
    }

    /// Like [`open`](Self::open), for disks that are open already.
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
        if volume.ended_epochs().is_some() {
            let (end, blocks) = volume.unfinished_blocks();
            shared.state().rest(end, blocks);
        }
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
                    event = "pinned-ram-short",
                    pool = name,
                    disk = disk.name(),
                    bytes,
                    "there is too little RAM for the pinned-ram of a logical disk"
                );
            }
        }
        let commits = commits::start(shared.clone(), received).map_err(|source| PoolError::Open { source })?;
        let pool = Pool { shared, commits: Mutex::new(Some(commits)), config };
        evacuate::Evacuation::resume(&pool.shared);
        Ok((pool, opened))
    }

    /// The pool's name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The pool's UUID, which is in the labels of its disks.
    pub fn uuid(&self) -> Uuid {
        self.shared.state().metadata.pool
    }

    /// The configuration that the pool was opened with.
    pub fn config(&self) -> &PoolConfig {
        &self.config
    }

    /// The pool's cache, as a volume of all its chunks.
    pub fn volume(&self) -> &Arc<Volume> {
        self.shared.volume()
    }

    /// Returns the paths of the disks, including missing ones.
    pub fn disk_paths(&self) -> BTreeSet<String> {
        self.shared.disk_paths()
    }

    /// Registers a function that is called when a disk was added or removed. At most one can be registered.
    pub fn on_disks(&self, tell: DisksChanged) {
        assert!(self.shared.on_disks.set(tell).is_ok(), "only one function is registered");
    }

    /// Returns the logical disks, by name.
    pub fn logical_disks(&self) -> BTreeMap<String, Arc<LogicalDisk>> {
        let exports = self.shared.exports.read();
        exports.values().map(|disk| (disk.name(), disk.clone())).collect()
    }

    /// Makes all acknowledged writes durable: the cache and the map. Fails if a block is lost, or waits in memory for a
    /// place.
    pub fn flush(&self) -> Result<(), PoolError> {
        self.commit_all()?;
        self.shared.check_none_lost(None)
    }

    /// Detaches the flash, as [`Volume::detach`] does. Frees chunks that could not be freed while the flash was
    /// attached.
    pub fn detach(&self) -> Result<usize, VolumeError> {
        let lost = self.volume().detach()?;
        if let Err(error) = self.commit_all() {
            tracing::warn!(event = "chunks-not-free", pool = self.name(), %error, "the flash is detached; some chunks \
                become free at the next flush that succeeds");
        }
        Ok(lost)
    }

    /// Makes all changes in memory durable. The second commit covers changes that the first held back and that are no
    /// longer lost.
    fn commit_all(&self) -> Result<(), PoolError> {
        self.shared.commit_now()?;
        let is_all = self.shared.state().pending.is_empty();
        match is_all {
            true => Ok(()),
            false => self.shared.commit_now(),
        }
    }

    /// Makes everything durable and stops the pool. New requests fail.
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
        // Errors above take precedence over this one.
        if is_first {
            self.shared.state().metadata.end()?;
        }
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        drop(self.shared.jobs.lock().take());
        // The exports and the shared state reference each other.
        self.shared.exports.write().clear();
    }
}

impl Shared {
    /// Returns the paths of the disks. A missing disk may have had the path that another disk has now.
    fn disk_paths(&self) -> BTreeSet<String> {
        self.state().metadata.map.disks.values().map(|disk| disk.path.clone()).collect()
    }

    /// Reports that a disk was added or removed. Must not be called with the state locked.
    fn tell_disks(&self) {
        if let Some(tell) = self.on_disks.get() {
            tell(&self.disk_paths());
        }
    }

    fn refuse(&self, what: String) -> PoolError {
        PoolError::Refused { pool: self.name.clone(), what }
    }

    /// True if a byte of the pool is on a missing disk.
    fn is_missing(&self, place: u64) -> bool {
        self.disk.is_missing(place)
    }

    fn export(&self, id: u32) -> Option<Arc<LogicalDisk>> {
        self.exports.read().get(&id).cloned()
    }

    fn add_export(self: &Arc<Self>, id: u32, logical: Arc<map::Logical>) -> Arc<LogicalDisk> {
        let disk = Arc::new(LogicalDisk::new(self.clone(), id, logical));
        self.exports.write().insert(id, disk.clone());
        disk
    }
}
