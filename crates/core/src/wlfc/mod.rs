//! WLFC: a cache that writes whole buckets of flash in the order in which writes come, with neither garbage collection nor
//! over-provisioning, for flash that the host manages.
//!
//! Source: Dong, Wang, Zhang: WLFC: Write Less in the Flash-based Cache, section IV. The backend is cut into buckets as large as those of
//! the cache. A backend bucket has at most one read copy and one bucket of logs in the cache; what it holds is the backend's blocks, below
//! the copy's, below the logs'. Its [events](crate::cache::Event) come out as [`Step`]s; [`recover`] finds the cache again after a power failure.
//!
//! Departures from the paper:
//! - A cache bucket is reset once what took its place is durable, in the order of eviction. Several are reset together where that saves
//!   flushes, but never two of one backend bucket: the reset of the older one is durable before, so that it does not outlive the newer one.
//! - What is written back is durable on flash before, and what a clean copy is made of is durable in the backend.
//! - Of a copy that is brought up to date only the logs that it lacks are read, and of these only what no later log overwrote. If it lacks
//!   none it stays as it is.
//! - What logs cover whole is not read from the backend before it is written there.
//! - A write past the cache first writes back what is newer in the cache, then leaves a durable tombstone.
//! - Zeroes and trims are logs without data where the cache knows the bucket, and go to the backend where it does not. Of a trim only
//!   whole blocks count.
//! - Logs are of whole blocks. The rest of a block that is written in part is read first.
//! - A write bucket is evicted after the write that needed its place was answered, and so is the least recently used copy. A copy that is
//!   rewritten counts as used.

/// Whether a bug is planted, which only tests do.
macro_rules! planted {
    ($wlfc:expr, $bug:ident) => {{
        #[cfg(test)]
        let planted = $wlfc.is_planted(tests::Planted::$bug);
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
pub mod recovery;
pub mod scan;
mod step;
#[cfg(test)]
mod tests;
mod uses;

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use rustc_hash::FxBuildHasher;

use crate::cache::{Kind, Request};
use crate::ram::read_buffer::ReadBuffer;
pub use bucket::{Bucket, Entry, Log, Oob, State};
pub use config::{Config, ConfigError, Refresh};
pub use figures::Figures;
use load::Cover;
use pieces::Piece;
pub use queues::{Queues, WriteQueue};
pub use recovery::{Around, Scan, recover, recover_around};
pub use step::Step;
pub use uses::{BACKEND, FLASH, Shape};

/// No cache bucket.
const NONE: u32 = u32::MAX;

/// The cache buckets of a backend bucket.
#[derive(Clone, Copy, Debug)]
struct Copies {
    /// The bucket of logs that writes go to.
    write: u32,
    /// The read copy.
    read: u32,
    /// All that are not erased, evicted ones included.
    count: u32,
}

impl Copies {
    const NONE: Copies = Copies { write: NONE, read: NONE, count: 0 };
}

/// A part of a request has no place: the rest of it is not planned, and the client hears of it.
fn fail(steps: &mut Vec<Step>) -> Then {
    steps.push(Step::Fail);
    Then::Nothing
}

/// What a request leaves to be done once it is answered.
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

/// The cache manager. Its memory: some 70 bytes for a cache bucket, 16 for a log, and the frames of RAM.
#[derive(Clone, Debug)]
pub struct Wlfc {
    config: Config,
    queues: Queues,
    buckets: Vec<Bucket>,
    copies: HashMap<u32, Copies, FxBuildHasher>,
    /// The global epoch.
    epoch: u64,
    /// Write buckets allocated since the last halving.
    allocated: u32,
    ram: ReadBuffer<u32>,
    free_frames: Vec<u32>,
    /// Something was appended to the flash since its last flush, ...
    appended: bool,
    /// ... buckets were reset that held something of these backend buckets, ...
    reset: HashSet<u32, FxBuildHasher>,
    /// ... and something was written to the backend since its own.
    backend_dirty: bool,
    /// What clients wrote past the cache.
    passed: failing::Passed,
    /// Backend buckets that could not be written when that was tried last.
    failing: BTreeSet<u32>,
    trials: failing::Trials,
    /// What was read of the backend last did not come: no copies are made of what may not come either.
    unread: bool,
    /// More is in a queue than there may be, or fewer buckets are to spare, since something could not be written back.
    crowded: bool,
    /// What buckets hold whose resets are not done, the oldest first; where buckets have headers.
    resetting: HashMap<u32, VecDeque<Bucket>, FxBuildHasher>,
    /// The flash cannot be written any more.
    frozen: bool,
    /// What is on it is durable nevertheless.
    settled: bool,
    figures: Figures,
    cover: Cover,
    #[cfg(test)]
    planted: Option<tests::Planted>,
}

impl Wlfc {
    /// An empty cache.
    ///
    /// # Errors
    /// [`Config::check`] says what cannot work.
    pub fn new(config: Config) -> Result<Wlfc, ConfigError> {
        config.check()?;
        Ok(Wlfc {
            queues: Queues::new(config.buckets),
            buckets: vec![Bucket::new(); config.buckets as usize],
            copies: HashMap::default(),
            epoch: 0,
            allocated: 0,
            ram: ReadBuffer::new(config.ram_blocks as usize),
            free_frames: (0..config.ram_blocks).collect(),
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
            cover: Cover::default(),
            #[cfg(test)]
            planted: None,
            config,
        })
    }

    /// What it is like.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Blocks in copies and in logs. One that is in several logs counts once for each.
    pub fn cached_blocks(&self) -> u64 {
        let copied = self
            .queues
            .read_copies()
            .map(|bucket| u64::from(self.config.extent(self.buckets[bucket as usize].backend)));
        let logs = self.queues.write.buckets().flat_map(|bucket| &self.buckets[bucket as usize].entries);
        copied.sum::<u64>() + logs.map(|entry| u64::from(entry.blocks)).sum::<u64>()
    }

    /// Plans a request: its steps are added to `steps`.
    ///
    /// # Panics
    /// If the request reaches beyond the volume.
    #[inline]
    fn plan(&mut self, request: &Request, steps: &mut Vec<Step>) {
        let end = request.offset.checked_add(request.length).expect("a request ends");
        assert!(end.div_ceil(pieces::BLOCK) <= self.config.volume_blocks, "the request reaches beyond the volume");
        self.figures.requests += u64::from(request.last);
        self.figures.flushes += u64::from(request.kind == Kind::Flush);
        let changes = !matches!(request.kind, Kind::Read | Kind::Prefetch);
        let flushes = request.kind == Kind::Flush || changes && request.durable && request.last;
        // Of a change an error would speak of that alone.
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
            // What was written back is on flash until it is durable.
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

    /// Erases what was evicted, if it is as much as is erased together, until as many buckets are free as are to be.
    fn erase_all(&mut self, steps: &mut Vec<Step>) {
        if self.queues.gc_len() >= self.config.erase_batch {
            while self.queues.free() < self.config.free_target && self.erase(steps) {}
        }
    }

    /// Leaves a cache that is found as it is, without what was evicted from it.
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
        if self.read_ram(piece, steps) {
            self.figures.ram_hits += u64::from(if for_client { blocks } else { 0 });
            self.send(piece, for_client, steps);
            return Then::Nothing;
        }
        let copies = self.copies_of(backend);
        let stale = self.logs_beyond_copy(&copies);
        if copies.read != NONE {
            self.queues.read_touch(copies.read);
        }
        let found = if copies.read != NONE && !stale { blocks } else { self.cached(&copies, at, blocks) };
        self.figures.read_hits += u64::from(if for_client { found } else { 0 });
        let whole = self.may_copy(backend)
            && match self.config.refresh {
                Refresh::Read => stale || copies.read == NONE,
                Refresh::Evict => found < blocks && copies.read == NONE,
            };
        let (from, length) = if whole { (0, self.config.extent(backend)) } else { (at, blocks) };
        self.load(backend, &copies, from, length, steps);
        self.send(piece, for_client, steps);
        self.keep_in_ram(piece, true, steps);
        if !whole {
            return Then::Nothing;
        }
        self.figures.read_admissions += u64::from(if for_client { blocks - found } else { 0 });
        let dirty = copies.read != NONE && self.buckets[copies.read as usize].state == State::Dirty;
        Then::Copy { backend, dirty: dirty || self.has_data(copies.write) }
    }

    /// Section IV.C.2.
    #[inline]
    fn write(&mut self, piece: &Piece, steps: &mut Vec<Step>) -> Then {
        let &Piece { backend, at, blocks, offset, length } = piece;
        self.figures.written_blocks += u64::from(blocks);
        if !self.has_room(piece, Log::Data, steps) {
            return fail(steps);
        }
        let copies = self.copies_of(backend);
        self.figures.write_hits += u64::from(self.cached(&copies, at, blocks));
        self.load_ends(piece, steps);
        steps.push(Step::Receive { offset, length });
        let then = self.log(backend, Log::Data, at, blocks, steps);
        self.keep_in_ram(piece, false, steps);
        then
    }

    /// A write past the cache. What the cache has that is newer than the backend's is written back first, since the tombstone makes it
    /// count no more, whether or not what follows becomes durable.
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
            let copies = self.copies_of(backend);
            if !planted!(self, TombstoneAlone) {
                if self.has_newer(&copies, at, blocks) {
                    self.load(backend, &copies, at, blocks, steps);
                    self.settle_flash(steps);
                    self.push(Step::WriteBackend { block, blocks, gives_up: false }, steps);
                }
                // What was evicted may be on its way too.
                self.settle_backend(steps);
            }
            // What the old bucket of logs holds would be written over what goes past it.
            if copies.write != NONE && self.room(copies.write) == 0 {
                self.evict(copies.write, steps);
            }
            then = self.log(backend, Log::Passed, at, blocks, steps);
            self.settle_flash(steps);
        }
        steps.push(Step::Receive { offset, length });
        self.push(Step::WriteBackend { block, blocks, gives_up: false }, steps);
        self.passed.note();
        self.keep_in_ram(piece, false, steps);
        if known && blocks == self.config.extent(backend) {
            let copies = self.copies_of(backend);
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

    /// Blocks that are zeroed in part are logs as if zeroes were written.
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
                self.keep_in_ram(&part, false, steps);
                then
            };
            if steps.last() == Some(&Step::Fail) {
                break;
            }
        }
        then
    }

    /// Whole blocks become zeroes.
    fn zero(&mut self, piece: &Piece, may_punch_holes: bool, steps: &mut Vec<Step>) -> Then {
        let &Piece { backend, at, blocks, .. } = piece;
        let known = self.is_known(backend, steps);
        if known && !self.has_room(piece, Log::Zeroes, steps) {
            return fail(steps);
        }
        self.forget_in_ram(piece);
        if known {
            return self.log(backend, Log::Zeroes, at, blocks, steps);
        }
        let block = piece.block(&self.config);
        self.push(Step::ZeroBackend { block, blocks, may_punch_holes }, steps);
        self.passed.note();
        Then::Nothing
    }

    /// Appends a log; returns which write bucket has to leave for it.
    #[inline]
    fn log(&mut self, backend: u32, log: Log, at: u32, blocks: u32, steps: &mut Vec<Step>) -> Then {
        let mut bucket = self.copies_of(backend).write;
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
        let of = &mut self.buckets[bucket as usize];
        let (page, epoch) = (of.next_page, of.epoch);
        of.push(Entry { log, at, blocks, page: page + headers });
        of.next_page = page + pages;
        self.push(Step::Append { bucket, page, pages, oob: Oob { epoch, ..oob } }, steps);
        self.queues.write.set(bucket, self.room(bucket));
        then
    }

    /// Pages that can still be written.
    #[inline]
    fn room(&self, bucket: u32) -> u32 {
        self.config.bucket_pages() - self.buckets[bucket as usize].next_page
    }

    /// The bucket that was free for longest. The caller queues a read copy.
    fn allocate(&mut self, state: State, backend: u32, steps: &mut Vec<Step>) -> u32 {
        if self.queues.free() == 0 {
            assert!(self.erase(steps), "there are more buckets than both queues can have");
        }
        let bucket = self.queues.allocate().expect("a bucket was erased");
        self.epoch += 1;
        let Bucket { mut entries, mut covered, .. } = std::mem::take(&mut self.buckets[bucket as usize]);
        entries.clear();
        covered.clear();
        self.buckets[bucket as usize] =
            Bucket { state, backend, epoch: self.epoch, entries, covered, ..Bucket::default() };
        let copies = self.copies.entry(backend).or_insert(Copies::NONE);
        copies.count += 1;
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

    #[inline]
    fn copies_of(&self, backend: u32) -> Copies {
        self.copies.get(&backend).copied().unwrap_or(Copies::NONE)
    }

    /// Whether flash may hold anything of a backend bucket, after a power failure too.
    fn is_known(&mut self, backend: u32, steps: &mut Vec<Step>) -> bool {
        if self.copies.contains_key(&backend) {
            return true;
        }
        if self.reset.contains(&backend) {
            self.settle_flash(steps);
        }
        false
    }

    /// Makes durable what was done so far.
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
            Step::Reset { bucket } => drop(self.reset.insert(self.buckets[bucket as usize].backend)),
            Step::WriteBackend { .. } | Step::ZeroBackend { .. } => self.backend_dirty = true,
            _ => {}
        }
        steps.push(step);
    }
}
