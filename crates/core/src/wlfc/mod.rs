//! WLFC: a cache that writes whole buckets of flash in order of writes, with neither garbage collection nor
//! over-provisioning, for host-managed flash.
//!
//! Source: Dong, Wang, Zhang: WLFC: Write Less in the Flash-based Cache, section IV. The backend is divided into
//! buckets of the same size as the cache's. A backend bucket has at most one read copy and one bucket of logs in the
//! cache. The logs override the copy, and the copy overrides the backend. The answers to its
//! [events](crate::cache::Event) are [`Step`]s; [`recover`] restores the cache after a power failure.
//!
//! Departures from the paper:
//! - A cache bucket is reset once its replacement is durable, in order of eviction. Several are reset together to save
//!   flushes, but never two of one backend bucket. The reset of the older one must be durable first, so that it does
//!   not outlive the newer one.
//! - Data is durable on flash before it is written back, and durable in the backend before a clean copy is made of it.
//! - Refreshing a copy reads only the logs that it lacks, without their overwritten parts. If it lacks none, it stays
//!   unchanged.
//! - Blocks that logs cover entirely are not read from the backend before they are written there.
//! - A write that bypasses the cache first writes newer data in the cache back, then leaves a durable tombstone.
//! - Zeroes and trims are logs without data if the cache knows the bucket, and otherwise go to the backend. Trims only
//!   affect whole blocks.
//! - Logs hold whole blocks. For a partial write the rest of the block is read first.
//! - A write bucket is evicted after the reply to the write that needed its place, and so is the least recently used
//!   copy. Rewriting a copy counts as a use.

/// True if this bug is planted, only in tests.
macro_rules! planted {
    ($wlfc:expr, $bug:ident) => {{
        #[cfg(test)]
        let planted = $wlfc.planted == Some(tests::Planted::$bug);
        #[cfg(not(test))]
        let planted = false;
        planted
    }};
}

mod bucket;
mod check;
mod config;
pub mod durable;
mod events;
mod evict;
mod failing;
mod figures;
pub mod header;
mod load;
mod pieces;
mod queues;
mod ram;
pub mod recovery;
pub mod scan;
mod step;
#[cfg(test)]
mod tests;
mod uses;

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use rustc_hash::FxBuildHasher;

use crate::cache::{Kind, Request};
pub use bucket::{Bucket, Entry, Log, Oob, State};
pub use config::{BucketOptions, Config, ConfigError, Refresh};
pub use figures::Figures;
use load::BucketContents;
use pieces::Piece;
pub use queues::{Queues, WriteQueue};
use ram::Ram;
pub use recovery::{Around, Scan, recover, recover_around};
pub use step::Step;
pub use uses::{BACKEND, FLASH, Shape};

/// Marks the absence of a cache bucket.
const NONE: u32 = u32::MAX;

/// The cache buckets of a backend bucket.
#[derive(Clone, Copy, Debug)]
struct Copies {
    /// The bucket of logs for writes.
    write: u32,
    /// The read copy.
    read: u32,
    /// The number of buckets that are not erased, evicted ones included.
    count: u32,
}

impl Copies {
    const NONE: Copies = Copies { write: NONE, read: NONE, count: 0 };
}

/// Fails a request because a part of it finds no room. The rest is not planned.
fn fail(steps: &mut Vec<Step>) -> Then {
    steps.push(Step::Fail);
    Then::Nothing
}

/// Work that a request leaves for after its reply.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    Nothing,
    /// Evicts a write bucket.
    Evict(u32),
    /// Writes the blocks of a backend bucket, which are in memory, to a read copy.
    Copy {
        backend: u32,
        dirty: bool,
    },
}

/// The cache manager. Its memory: about 70 bytes per cache bucket, 16 per log, and the frames of RAM.
#[derive(Clone, Debug)]
pub struct Wlfc {
    config: Config,
    queues: Queues,
    contents: BucketContents,
    /// The global epoch.
    epoch: u64,
    /// Write buckets allocated since the last halving.
    allocated: u32,
    ram: Ram,
    /// True if the flash has appends since its last flush.
    appended: bool,
    /// Backend buckets with cache buckets reset since the last flush of the flash.
    reset: HashSet<u32, FxBuildHasher>,
    /// True if the backend has writes since its last flush.
    backend_dirty: bool,
    /// Client writes that bypassed the cache.
    passed: failing::Passed,
    /// Backend buckets whose last write failed.
    failing: BTreeSet<u32>,
    trials: failing::Trials,
    /// True if the last read of the backend failed; then no copies are made, because their reads may fail too.
    unread: bool,
    /// True if a queue exceeds its limit, or spare buckets are missing, because a write-back failed.
    crowded: bool,
    /// Contents of buckets with unfinished resets, oldest first; only with headers.
    resetting: HashMap<u32, VecDeque<Bucket>, FxBuildHasher>,
    /// True if the flash can no longer be written.
    frozen: bool,
    /// True if the contents of a frozen flash are durable nevertheless.
    settled: bool,
    figures: Figures,
    #[cfg(test)]
    planted: Option<tests::Planted>,
}

impl Wlfc {
    /// Creates an empty cache.
    ///
    /// # Errors
    /// An invalid configuration, according to [`Config::check`].
    pub fn new(config: Config) -> Result<Wlfc, ConfigError> {
        config.check()?;
        Ok(Wlfc {
            queues: Queues::new(config.buckets),
            contents: BucketContents::new(config.buckets),
            epoch: 0,
            allocated: 0,
            ram: Ram::new(config.ram_blocks),
            appended: false,
            reset: HashSet::default(),
            backend_dirty: false,
            passed: failing::Passed::default(),
            failing: BTreeSet::new(),
            trials: failing::Trials::default(),
            unread: false,
            crowded: false,
            resetting: HashMap::default(),
            frozen: false,
            settled: false,
            figures: Figures::default(),
            #[cfg(test)]
            planted: None,
            config,
        })
    }

    /// Returns the configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the blocks in copies and logs. A block in several logs counts for each.
    pub fn cached_blocks(&self) -> u64 {
        let copied = self
            .queues
            .read_copies()
            .map(|bucket| u64::from(self.config.extent(self.contents.buckets[bucket as usize].backend)));
        let logs = self.queues.write.buckets().flat_map(|bucket| &self.contents.buckets[bucket as usize].entries);
        copied.sum::<u64>() + logs.map(|entry| u64::from(entry.blocks)).sum::<u64>()
    }

    /// Plans a request; appends its steps to `steps`.
    #[inline]
    fn plan(&mut self, request: &Request, steps: &mut Vec<Step>) {
        let end = request.offset.checked_add(request.length).expect("a request ends");
        assert!(end.div_ceil(pieces::BLOCK) <= self.config.volume_blocks, "the request reaches beyond the volume");
        self.figures.requests += u64::from(request.last);
        self.figures.flushes += u64::from(request.kind == Kind::Flush);
        let changes = !matches!(request.kind, Kind::Read | Kind::Prefetch);
        let flushes = request.kind == Kind::Flush || changes && request.durable && request.last;
        // An error of a change would only concern that change.
        if request.kind == Kind::Flush && self.passed.tells(request.durable) {
            steps.extend([Step::Fail, Step::Reply]);
            return;
        }
        let mut then = Then::Nothing;
        for piece in pieces::pieces(request, self.config.bucket_blocks) {
            self.background(then, steps);
            if self.config.erases_at_once {
                self.erase_all(steps);
            }
            then = match request.kind {
                Kind::Read | Kind::Prefetch => self.read(&piece, request.kind == Kind::Read, steps),
                Kind::Write if self.passes(request, piece.backend) => self.pass(&piece, steps),
                Kind::Write => self.write(&piece, steps),
                Kind::Trim => self.trim(&piece, steps),
                Kind::WriteZeroes { may_punch_holes } => self.write_zeroes(&piece, may_punch_holes, steps),
                Kind::Flush => unreachable!("a flush has no bytes"),
            };
            if steps.last() == Some(&Step::Fail) {
                break;
            }
        }
        if flushes && steps.last() != Some(&Step::Fail) {
            // Blocks that were written back stay on flash until they are durable.
            if self.passed.is_unflushed() {
                self.settle_backend(steps);
            }
            self.settle_flash(steps);
        }
        steps.push(Step::Reply);
        self.background(then, steps);
        self.leave_room(steps);
        self.erase_all(steps);
    }

    /// Erases evicted buckets, if there are enough for a batch, until the target of free buckets is reached.
    fn erase_all(&mut self, steps: &mut Vec<Step>) {
        if self.queues.gc_len() >= self.config.erase_batch {
            while self.queues.free() < self.config.free_target && self.erase(steps) {}
        }
    }

    /// Prepares for shutdown: erases evicted buckets and makes everything durable.
    fn close(&mut self, steps: &mut Vec<Step>) {
        while !self.frozen && self.erase(steps) {}
        self.settle(steps);
    }

    /// Section IV.C.1.
    fn read(&mut self, piece: &Piece, for_client: bool, steps: &mut Vec<Step>) -> Then {
        let &Piece { backend, at, blocks, .. } = piece;
        if for_client {
            self.figures.read_blocks += u64::from(blocks);
        }
        if self.ram.read(piece.block_range(&self.config), steps) {
            self.figures.ram_hits += u64::from(if for_client { blocks } else { 0 });
            self.send(piece, for_client, steps);
            return Then::Nothing;
        }
        let copies = self.contents.of(backend);
        let stale = self.contents.logs_beyond_copy(&copies);
        if copies.read != NONE {
            self.queues.read_touch(copies.read);
        }
        let found = if copies.read != NONE && !stale { blocks } else { self.contents.cached(&copies, at, blocks) };
        self.figures.read_hits += u64::from(if for_client { found } else { 0 });
        let whole = self.may_copy(backend)
            && match self.config.refresh {
                Refresh::Read => stale || copies.read == NONE,
                Refresh::Evict => found < blocks && copies.read == NONE,
            };
        let (from, length) = if whole { (0, self.config.extent(backend)) } else { (at, blocks) };
        self.load(backend, &copies, from, length, steps);
        self.send(piece, for_client, steps);
        self.ram.keep(piece.block_range(&self.config), true, steps);
        if !whole {
            return Then::Nothing;
        }
        self.figures.read_admissions += u64::from(if for_client { blocks - found } else { 0 });
        let dirty = copies.read != NONE && self.contents.buckets[copies.read as usize].state == State::Dirty;
        Then::Copy { backend, dirty: dirty || self.contents.has_data(copies.write) }
    }

    /// Section IV.C.2.
    #[inline]
    fn write(&mut self, piece: &Piece, steps: &mut Vec<Step>) -> Then {
        let &Piece { backend, at, blocks, offset, length } = piece;
        self.figures.written_blocks += u64::from(blocks);
        if !self.has_room(piece, Log::Data, steps) {
            return fail(steps);
        }
        let copies = self.contents.of(backend);
        self.figures.write_hits += u64::from(self.contents.cached(&copies, at, blocks));
        self.load_ends(piece, steps);
        steps.push(Step::Receive { offset, length });
        let then = self.log(backend, Log::Data, at, blocks, steps);
        self.ram.keep(piece.block_range(&self.config), false, steps);
        then
    }

    /// Writes past the cache. Newer data in the cache is written back first, because the tombstone invalidates it, even
    /// if the write itself does not become durable.
    fn pass(&mut self, piece: &Piece, steps: &mut Vec<Step>) -> Then {
        let &Piece { backend, at, blocks, offset, length } = piece;
        self.figures.written_blocks += u64::from(blocks);
        self.figures.passed_blocks += u64::from(blocks);
        let block = piece.block(&self.config);
        let mut then = Then::Nothing;
        let known = self.is_known(backend, steps) && !planted!(self, NoTombstone);
        if known && !self.has_room(piece, Log::Passed, steps) {
            return fail(steps);
        }
        self.load_ends(piece, steps);
        if known {
            let copies = self.contents.of(backend);
            if !planted!(self, TombstoneAlone) {
                if self.contents.has_newer(&copies, at, blocks) {
                    self.load(backend, &copies, at, blocks, steps);
                    self.settle_flash(steps);
                    self.push(Step::WriteBackend { block, blocks, gives_up: false }, steps);
                }
                // Data of evicted buckets may also be on its way.
                self.settle_backend(steps);
            }
            // The eviction of an old bucket of logs would overwrite the new data in the backend.
            if copies.write != NONE && self.room(copies.write) == 0 {
                self.evict(copies.write, steps);
            }
            then = self.log(backend, Log::Passed, at, blocks, steps);
            self.settle_flash(steps);
        }
        steps.push(Step::Receive { offset, length });
        self.push(Step::WriteBackend { block, blocks, gives_up: false }, steps);
        self.passed.note();
        self.ram.keep(piece.block_range(&self.config), false, steps);
        if known && blocks == self.config.extent(backend) {
            let copies = self.contents.of(backend);
            for bucket in [copies.read, copies.write].into_iter().filter(|bucket| *bucket != NONE) {
                self.retire(bucket);
            }
        }
        then
    }

    fn trim(&mut self, piece: &Piece, steps: &mut Vec<Step>) -> Then {
        match piece.whole_blocks() {
            Some(inner) => self.zero(&inner, true, steps),
            None => Then::Nothing,
        }
    }

    /// Zeroes blocks. Partial blocks become logs of data with zeroes.
    fn write_zeroes(&mut self, piece: &Piece, may_punch_holes: bool, steps: &mut Vec<Step>) -> Then {
        let mut then = Then::Nothing;
        for part in piece.parts() {
            self.background(then, steps);
            then = if part.is_whole() {
                self.zero(&part, may_punch_holes, steps)
            } else if !self.has_room(&part, Log::Data, steps) {
                fail(steps)
            } else {
                self.load_ends(&part, steps);
                steps.push(Step::Zero { offset: part.offset, length: part.length });
                let then = self.log(part.backend, Log::Data, part.at, part.blocks, steps);
                self.ram.keep(part.block_range(&self.config), false, steps);
                then
            };
            if steps.last() == Some(&Step::Fail) {
                break;
            }
        }
        then
    }

    /// Zeroes whole blocks.
    fn zero(&mut self, piece: &Piece, may_punch_holes: bool, steps: &mut Vec<Step>) -> Then {
        let &Piece { backend, at, blocks, .. } = piece;
        let known = self.is_known(backend, steps);
        if known && !self.has_room(piece, Log::Zeroes, steps) {
            return fail(steps);
        }
        self.ram.forget(piece.block_range(&self.config));
        if known {
            return self.log(backend, Log::Zeroes, at, blocks, steps);
        }
        let block = piece.block(&self.config);
        self.push(Step::ZeroBackend { block, blocks, may_punch_holes }, steps);
        self.passed.note();
        Then::Nothing
    }

    /// Appends a log; returns the write bucket to evict for it.
    #[inline]
    fn log(&mut self, backend: u32, log: Log, at: u32, blocks: u32, steps: &mut Vec<Step>) -> Then {
        let mut bucket = self.contents.of(backend).write;
        let oob = Oob { state: State::Write, backend, epoch: 0, log, at, blocks };
        let pages = self.config.pages(&oob);
        let mut then = Then::Nothing;
        if bucket == NONE || self.room(bucket) < pages {
            let full = self.queues.write.len() as u32 >= self.config.write_queue;
            let victim = match bucket {
                NONE if full => self.victim(),
                NONE => None,
                bucket => Some(bucket),
            };
            then = victim.map_or(Then::Nothing, Then::Evict);
            bucket = self.allocate(State::Write, backend, steps);
        }
        let headers = if log == Log::Data { self.config.headers(blocks) } else { 0 };
        let of = &mut self.contents.buckets[bucket as usize];
        let (page, epoch) = (of.next_page, of.epoch);
        of.push(Entry { log, at, blocks, page: page + headers });
        of.next_page = page + pages;
        self.push(Step::Append { bucket, page, pages, oob: Oob { epoch, ..oob } }, steps);
        self.queues.write.set(bucket, self.room(bucket));
        then
    }

    /// Returns the pages that can still be written.
    #[inline]
    fn room(&self, bucket: u32) -> u32 {
        self.config.bucket_pages() - self.contents.buckets[bucket as usize].next_page
    }

    /// Allocates the bucket that has been free for longest. The caller queues a read copy.
    fn allocate(&mut self, state: State, backend: u32, steps: &mut Vec<Step>) -> u32 {
        if self.queues.free() == 0 {
            assert!(self.erase(steps), "there are more buckets than both queues can have");
        }
        let bucket = self.queues.allocate().expect("a bucket was erased");
        self.epoch += 1;
        let Bucket { mut entries, mut covered, .. } = std::mem::take(&mut self.contents.buckets[bucket as usize]);
        entries.clear();
        covered.clear();
        self.contents.buckets[bucket as usize] =
            Bucket { state, backend, epoch: self.epoch, entries, covered, ..Bucket::default() };
        let copies = self.contents.add(backend);
        if state == State::Write {
            copies.write = bucket;
            self.allocated += 1;
            if self.allocated == self.config.halving {
                self.allocated = 0;
                self.queues.write.halve();
            }
        } else {
            copies.read = bucket;
        }
        bucket
    }

    /// Loads the newest content of blocks of a backend bucket into memory.
    fn load(&mut self, backend: u32, copies: &Copies, at: u32, blocks: u32, steps: &mut Vec<Step>) {
        let Wlfc { contents, config, figures, .. } = self;
        contents.load(config, (backend, copies), at, blocks, |step| {
            figures.count(&step, config);
            steps.push(step);
        });
    }

    /// Loads the blocks that a piece changes partly.
    #[inline]
    fn load_ends(&mut self, piece: &Piece, steps: &mut Vec<Step>) {
        let (head, tail) = piece.is_cut();
        if !head && !tail {
            return;
        }
        let copies = self.contents.of(piece.backend);
        if head || piece.blocks == 1 {
            self.load(piece.backend, &copies, piece.at, 1, steps);
        }
        if tail && piece.blocks > 1 {
            self.load(piece.backend, &copies, piece.at + piece.blocks - 1, 1, steps);
        }
    }

    #[inline]
    fn send(&mut self, piece: &Piece, for_client: bool, steps: &mut Vec<Step>) {
        if for_client {
            steps.push(Step::Send { offset: piece.offset, length: piece.length });
        }
    }

    /// True if the flash may hold data of a backend bucket, even after a power failure.
    fn is_known(&mut self, backend: u32, steps: &mut Vec<Step>) -> bool {
        if self.contents.copies.contains_key(&backend) {
            return true;
        }
        if self.reset.contains(&backend) {
            self.settle_flash(steps);
        }
        false
    }

    /// Makes everything so far durable.
    fn settle(&mut self, steps: &mut Vec<Step>) {
        self.settle_backend(steps);
        self.settle_flash(steps);
    }

    fn settle_flash(&mut self, steps: &mut Vec<Step>) {
        if std::mem::take(&mut self.appended) || !self.reset.is_empty() {
            self.reset.clear();
            steps.push(Step::FlushFlash);
        }
    }

    fn settle_backend(&mut self, steps: &mut Vec<Step>) {
        if std::mem::take(&mut self.backend_dirty) {
            self.passed.plan_flush();
            steps.push(Step::FlushBackend);
        }
    }

    /// Adds a step on a device, and counts it.
    #[inline]
    fn push(&mut self, step: Step, steps: &mut Vec<Step>) {
        self.figures.count(&step, &self.config);
        match step {
            Step::Append { .. } => self.appended = true,
            Step::Reset { bucket } => drop(self.reset.insert(self.contents.buckets[bucket as usize].backend)),
            Step::WriteBackend { .. } | Step::ZeroBackend { .. } => self.backend_dirty = true,
            _ => {}
        }
        steps.push(step);
    }
}
