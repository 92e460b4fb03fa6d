//! B_like: bcache as the paper on WLFC models it, on a conventional SSD.
//!
//! Source: Dong, Wang, Zhang: WLFC: Write Less in the Flash-based Cache, section V: "managing data as the bucket unit,
//! caching data as logs in the bucket, index the logs by a B+ tree in DRAM, performing garbage collection to remove the
//! invalid data logs periodically and evicting buckets by the LRU replacement algorithm". Details that the paper leaves
//! open follow bcache (Documentation/admin-guide/bcache.rst and drivers/md/bcache of Linux), or are fields of
//! [`BLikeConfig`].
//!
//! - A log is programmed at once and fills flash pages: an SSD that must not lose acknowledged data cannot wait for
//!   more.
//! - A log enters the index once it is in the journal: one journal page for each log of a client. The journal is a
//!   ring.
//! - A read miss enters the cache as a clean log, after the answer.
//! - A bucket is evicted when few are free. Its dirty blocks are written back by address, one access for each run of
//!   neighbours, and recorded in one page of the journal.
//! - Collection moves live blocks out of the buckets that have the fewest, at most one bucket's worth each time.
//! - Unneeded data is not trimmed on the SSD: bcache's `discard` is off by default.

use std::collections::{BTreeMap, VecDeque};

use flashwise_core::cache::Kind;
use flashwise_core::format::BLOCK_BYTES;
use flashwise_core::lists::Lists;
use flashwise_core::step::FlashStep;
use flashwise_core::wlfc::Figures;
use flashwise_device::TierModel;
use flashwise_device::flash::clock::Operation;
use flashwise_device::flash::{Clock, Device, DeviceError, Ftl, FtlConfig, Meter};
use flashwise_trace::request_file::CacheRequest;

use crate::cache_settings::SPARE;

use super::schedule::{Schedule, Work};
use super::simulation::{Buckets, Latencies};
use crate::stretch::Counts;

/// Configuration of a B_like.
#[derive(Clone, Debug, PartialEq)]
pub struct BLikeConfig {
    /// Flash pages of the SSD, spare ones included.
    pub flash_pages: u32,
    /// Flash pages of an erase block.
    pub erase_block_pages: u32,
    /// Flash pages of a bucket.
    pub bucket_pages: u32,
    /// Blocks of a flash page.
    pub page_blocks: u32,
    /// Flash pages that are hidden from the host, as a share of the visible ones.
    pub spare: f64,
    /// Logs per page of the journal.
    pub journal_logs: u32,
    /// Buckets of the journal.
    pub journal_buckets: u32,
    /// Buckets that are kept free.
    pub free_buckets: u32,
    /// Interval of collection, as a share of the cache that is written meanwhile.
    pub collection_share: f64,
    /// Largest share of live blocks in a bucket that is collected.
    pub live_share_max: f64,
    /// A write of more bytes bypasses the cache.
    pub large_write_bytes: u64,
}

impl BLikeConfig {
    /// Returns the defaults: spare flash of [`SPARE`]; a journal page for each log, and two journal buckets; two free
    /// buckets. A collection follows each 16th of the cache that is written, as in bcache, and takes buckets that are
    /// at most half live.
    pub fn new(flash_pages: u32, erase_block_pages: u32, bucket_pages: u32, page_blocks: u32) -> BLikeConfig {
        BLikeConfig {
            flash_pages,
            erase_block_pages,
            bucket_pages,
            page_blocks,
            spare: SPARE,
            journal_logs: 1,
            journal_buckets: 2,
            free_buckets: 2,
            collection_share: 1.0 / 16.0,
            live_share_max: 0.5,
            large_write_bytes: u64::from(bucket_pages * page_blocks) * BLOCK_BYTES as u64,
        }
    }

    /// Buckets that fit on the SSD, including the journal's.
    fn buckets(&self) -> u32 {
        (f64::from(self.flash_pages) / (1.0 + self.spare)) as u32 / self.bucket_pages
    }
}

/// Stands for no block.
const NO_BLOCK: u64 = u64::MAX;

/// The only list: full buckets, the most recently used first.
const USED: u8 = 0;

#[derive(Clone, Debug, Default)]
struct Recorder(Vec<Operation>);

impl Meter for Recorder {
    fn read(&mut self, page: u32) {
        self.0.push(Operation::Read { page, pages: 1 });
    }

    fn program(&mut self, page: u32) {
        self.0.push(Operation::Program { page, pages: 1 });
    }

    fn erase(&mut self, unit: u32) {
        self.0.push(Operation::Erase { unit });
    }
}

/// The bucket being written.
#[derive(Clone, Copy, Debug)]
struct Open {
    bucket: u32,
    next_page: u32,
}

/// The cache, its SSD and its backend.
#[derive(Debug)]
pub struct BLike {
    config: BLikeConfig,
    ftl: Ftl<Recorder>,
    schedule: Schedule,
    latencies: Latencies,
    figures: Figures,
    /// The B+ tree: the slot of each cached block. A slot is one block of a page of the SSD.
    index: BTreeMap<u64, u32>,
    /// The block of each live slot.
    owners: Vec<u64>,
    dirty: Vec<bool>,
    /// Live blocks by bucket.
    live: Vec<u32>,
    used: Lists,
    free: VecDeque<u32>,
    open: Open,
    /// Pages written since the last collection.
    written: u32,
    /// Logs that are not in the journal yet.
    pending_logs: u32,
    journal_next: u32,
}

impl BLike {
    /// Returns an empty cache.
    ///
    /// # Errors
    /// The SSD cannot exist, or has too few buckets.
    pub fn new(config: BLikeConfig, flash: Clock, backend: &TierModel) -> Result<BLike, DeviceError> {
        let (all, least) = (config.buckets(), config.journal_buckets + config.free_buckets + 3);
        if all < least {
            return Err(DeviceError::TooSmall { what: "buckets", found: all.into(), least: least.into() });
        }
        let buckets = all - config.journal_buckets;
        let logical_pages = all * config.bucket_pages;
        let spare = f64::from(config.flash_pages) / f64::from(logical_pages) - 1.0;
        let ftl = FtlConfig::new(logical_pages, config.erase_block_pages, spare);
        let slots = (buckets * config.bucket_pages * config.page_blocks) as usize;
        Ok(BLike {
            ftl: Ftl::metered(ftl, Recorder::default())?,
            schedule: Schedule::new(flash, backend, buckets),
            latencies: Latencies::default(),
            figures: Figures::default(),
            index: BTreeMap::new(),
            owners: vec![NO_BLOCK; slots],
            dirty: vec![false; slots],
            live: vec![0; buckets as usize],
            used: Lists::new(1),
            free: (1..buckets).collect(),
            open: Open { bucket: 0, next_page: 0 },
            written: 0,
            pending_logs: 0,
            journal_next: buckets * config.bucket_pages,
            config,
        })
    }

    /// Runs a request.
    pub fn request(&mut self, request: &CacheRequest) {
        let &CacheRequest { kind, offset_bytes: offset, length_bytes: length, durable, .. } = request;
        let block = BLOCK_BYTES as u64;
        let blocks = offset / block..(offset + length).div_ceil(block);
        self.schedule.begin();
        self.figures.requests += 1;
        let mut missed = Vec::new();
        match kind {
            Kind::Read | Kind::Prefetch => missed = self.read(blocks, kind == Kind::Read),
            Kind::Write => {
                self.figures.written_blocks += blocks.end - blocks.start;
                self.read_ends(offset, length);
                if length > self.config.large_write_bytes { self.pass(blocks) } else { self.write(blocks) }
            }
            Kind::Trim => self.zero(offset.div_ceil(block)..(offset + length) / block),
            Kind::WriteZeroes { .. } => {
                self.read_ends(offset, length);
                self.zero(blocks);
            }
            Kind::Flush => {}
        }
        if kind == Kind::Flush || durable {
            self.write_journal();
        }
        let ns = self.schedule.reply();
        self.latencies.record(kind, length, ns);
        for run in missed {
            self.append(run, false);
        }
        self.collect();
        while self.free.len() <= self.config.free_buckets as usize && self.evict() {}
        self.schedule.end();
    }

    /// Reads the cached blocks from flash and the others from the backend. Returns the latter.
    fn read(&mut self, blocks: std::ops::Range<u64>, for_client: bool) -> Vec<std::ops::Range<u64>> {
        let counted = u64::from(for_client);
        self.figures.read_blocks += counted * (blocks.end - blocks.start);
        let (mut missed, mut page_before): (Vec<std::ops::Range<u64>>, _) = (Vec::new(), u32::MAX);
        for block in blocks {
            match self.index.get(&block) {
                Some(&slot) => {
                    self.figures.read_hits += counted;
                    let page = slot / self.config.page_blocks;
                    self.touch(page / self.config.bucket_pages);
                    if page != page_before {
                        self.flash(FlashStep::Read { page });
                    }
                    page_before = page;
                }
                None => match missed.last_mut() {
                    Some(run) if run.end == block => run.end += 1,
                    _ => missed.push(block..block + 1),
                },
            }
        }
        for run in &missed {
            self.figures.read_admissions += counted * (run.end - run.start);
            self.backend((run.end - run.start) as u32, false);
        }
        missed
    }

    /// Reads the blocks that a write changes only in part.
    fn read_ends(&mut self, offset: u64, length: u64) {
        let block = BLOCK_BYTES as u64;
        let ends = [offset, offset + length].map(|end| (!end.is_multiple_of(block)).then_some(end / block));
        let twice = ends[0] == ends[1];
        for block in ends.into_iter().skip(usize::from(twice)).flatten() {
            match self.index.get(&block) {
                Some(slot) => self.flash(FlashStep::Read { page: slot / self.config.page_blocks }),
                None => self.backend(1, false),
            }
        }
    }

    fn write(&mut self, blocks: std::ops::Range<u64>) {
        self.append(blocks, true);
        if self.pending_logs >= self.config.journal_logs {
            self.write_journal();
        }
    }

    /// Writes blocks past the cache.
    fn pass(&mut self, blocks: std::ops::Range<u64>) {
        self.forget_all(blocks.clone());
        self.figures.passed_blocks += blocks.end - blocks.start;
        self.backend((blocks.end - blocks.start) as u32, true);
    }

    /// Zeroes blocks; the backend gets the command without data.
    fn zero(&mut self, blocks: std::ops::Range<u64>) {
        if !blocks.is_empty() {
            self.forget_all(blocks);
            self.figures.backend_writes += 1;
            self.schedule.add(Work::Backend { blocks: 1, write: true });
        }
    }

    /// Removes blocks from the cache.
    fn forget_all(&mut self, blocks: std::ops::Range<u64>) {
        let cached: Vec<u64> = self.index.range(blocks).map(|(block, _)| *block).collect();
        for block in &cached {
            self.forget(*block);
        }
        if !cached.is_empty() {
            self.pending_logs += 1;
            self.write_journal();
        }
    }

    /// Appends a log, split at the end of the bucket.
    fn append(&mut self, blocks: std::ops::Range<u64>, of_client: bool) {
        let page_blocks = self.config.page_blocks;
        let mut at = blocks.start;
        while at < blocks.end {
            if self.open.next_page == self.config.bucket_pages {
                self.open_next();
            }
            let Open { bucket, next_page } = self.open;
            let page = bucket * self.config.bucket_pages + next_page;
            for slot in page * page_blocks..(page + 1) * page_blocks {
                if at == blocks.end {
                    self.figures.padding_blocks += 1;
                    continue;
                }
                let hit = self.place(at, slot, of_client);
                if of_client {
                    (self.figures.log_blocks, self.figures.write_hits) =
                        (self.figures.log_blocks + 1, self.figures.write_hits + u64::from(hit));
                } else {
                    self.figures.copy_blocks += 1;
                }
                at += 1;
            }
            self.write_page(page);
        }
        self.pending_logs += 1;
    }

    fn write_page(&mut self, page: u32) {
        self.flash(FlashStep::Write { page });
        self.open.next_page += 1;
        self.written += 1;
    }

    /// Maps a block to a slot; returns true if it was cached already.
    fn place(&mut self, block: u64, slot: u32, dirty: bool) -> bool {
        let hit = self.forget(block);
        self.index.insert(block, slot);
        self.owners[slot as usize] = block;
        self.dirty[slot as usize] = dirty;
        let bucket = self.bucket_of(slot);
        self.live[bucket as usize] += 1;
        hit
    }

    fn forget(&mut self, block: u64) -> bool {
        let Some(slot) = self.index.remove(&block) else { return false };
        self.owners[slot as usize] = NO_BLOCK;
        let bucket = self.bucket_of(slot);
        self.live[bucket as usize] -= 1;
        true
    }

    fn bucket_of(&self, slot: u32) -> u32 {
        slot / self.config.page_blocks / self.config.bucket_pages
    }

    fn touch(&mut self, bucket: u32) {
        if bucket != self.open.bucket {
            self.used.move_front(bucket, USED);
        }
    }

    fn open_next(&mut self) {
        self.used.push_front(USED, self.open.bucket);
        while self.free.is_empty() {
            assert!(self.evict(), "a bucket that is full can be evicted");
        }
        let bucket = self.free.pop_front().expect("a bucket was evicted");
        self.open = Open { bucket, next_page: 0 };
        self.schedule.wait_for(bucket);
    }

    /// Writes pending logs to the journal.
    fn write_journal(&mut self) {
        if self.pending_logs == 0 {
            return;
        }
        self.pending_logs = 0;
        let first = self.live.len() as u32 * self.config.bucket_pages;
        let pages = self.config.journal_buckets * self.config.bucket_pages;
        let page = self.journal_next;
        self.journal_next = first + (page + 1 - first) % pages;
        self.figures.metadata_blocks += u64::from(self.config.page_blocks);
        self.flash(FlashStep::Write { page });
    }

    /// Evicts the least recently used bucket, if any.
    fn evict(&mut self) -> bool {
        let Some(bucket) = self.used.back(USED) else { return false };
        let mut dirty = Vec::new();
        let mut page_before = u32::MAX;
        for slot in self.slots(bucket) {
            let block = self.owners[slot as usize];
            if block == NO_BLOCK {
                continue;
            }
            if self.dirty[slot as usize] {
                dirty.push(block);
                let page = slot / self.config.page_blocks;
                if page != page_before {
                    self.flash(FlashStep::Read { page });
                }
                page_before = page;
            }
            self.forget(block);
        }
        dirty.sort_unstable();
        for run in dirty.chunk_by(|before, block| before + 1 == *block) {
            self.backend(run.len() as u32, true);
        }
        self.pending_logs += 1;
        self.write_journal();
        self.used.remove(bucket);
        self.release(bucket);
        true
    }

    fn slots(&self, bucket: u32) -> std::ops::Range<u32> {
        let slots = self.config.bucket_pages * self.config.page_blocks;
        bucket * slots..(bucket + 1) * slots
    }

    /// Frees an unused bucket.
    fn release(&mut self, bucket: u32) {
        self.free.push_back(bucket);
        self.schedule.add(Work::Release { bucket });
    }

    /// Periodically frees buckets without live logs, and moves the logs of buckets with few.
    fn collect(&mut self) {
        let capacity = f64::from(self.live.len() as u32 * self.config.bucket_pages);
        if f64::from(self.written) < capacity * self.config.collection_share {
            return;
        }
        self.written = 0;
        let slots = self.config.bucket_pages * self.config.page_blocks;
        let live_max = (f64::from(slots) * self.config.live_share_max) as u32;
        let mut buckets: Vec<u32> =
            self.used.from_back(USED).filter(|bucket| self.live[*bucket as usize] <= live_max).collect();
        buckets.sort_by_key(|bucket| self.live[*bucket as usize]);
        let mut moved = 0;
        for bucket in buckets {
            // Moving logs may have evicted it.
            if self.used.list_of(bucket).is_none() {
                continue;
            }
            moved += self.live[bucket as usize];
            if moved > slots {
                break;
            }
            // Making room for its logs must not evict it.
            self.used.remove(bucket);
            self.move_out(bucket);
            self.release(bucket);
        }
        self.write_journal();
    }

    fn move_out(&mut self, bucket: u32) {
        let page_blocks = self.config.page_blocks;
        let moved: Vec<(u64, u32)> = self
            .slots(bucket)
            .filter(|slot| self.owners[*slot as usize] != NO_BLOCK)
            .map(|slot| (self.owners[slot as usize], slot))
            .collect();
        let mut page_before = u32::MAX;
        for (_, slot) in &moved {
            if slot / page_blocks != page_before {
                self.flash(FlashStep::Read { page: slot / page_blocks });
            }
            page_before = slot / page_blocks;
        }
        for logs in moved.chunks(page_blocks as usize) {
            if self.open.next_page == self.config.bucket_pages {
                self.open_next();
            }
            let page = self.open.bucket * self.config.bucket_pages + self.open.next_page;
            for ((block, old), slot) in logs.iter().zip(page * page_blocks..) {
                let dirty = self.dirty[*old as usize];
                self.place(*block, slot, dirty);
                self.figures.copy_blocks += 1;
                self.figures.copy_forward_blocks += 1;
            }
            self.figures.padding_blocks += u64::from(page_blocks) - logs.len() as u64;
            self.write_page(page);
            self.pending_logs += 1;
        }
    }

    fn flash(&mut self, step: FlashStep) {
        self.ftl.step(step);
        for operation in self.ftl.meter_mut().0.drain(..) {
            self.schedule.add(Work::Flash(operation));
        }
    }

    fn backend(&mut self, blocks: u32, write: bool) {
        let figures = &mut self.figures;
        let (accesses, moved) = match write {
            true => (&mut figures.backend_writes, &mut figures.backend_written_blocks),
            false => (&mut figures.backend_reads, &mut figures.backend_read_blocks),
        };
        (*accesses, *moved) = (*accesses + 1, *moved + u64::from(blocks));
        self.schedule.add(Work::Backend { blocks, write });
    }

    /// Number of blocks that fit.
    pub fn capacity_blocks(&self) -> u64 {
        self.owners.len() as u64
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> Counts {
        let latencies = Latencies { elapsed_ns: self.schedule.now_ns(), ..self.latencies };
        Buckets { figures: self.figures, latencies }.counts(self.ftl.counters().erasures)
    }

    /// Blocks that clients read and wrote so far.
    pub fn accesses(&self) -> u64 {
        self.figures.read_blocks + self.figures.written_blocks
    }

    /// The time of the last answer.
    pub fn now_us(&self) -> u64 {
        self.schedule.now_ns() / 1000
    }

    /// Asserts the invariants. Slow; for tests.
    pub fn check(&self) {
        self.ftl.check();
        self.used.check();
        let mut live = vec![0; self.live.len()];
        for (block, slot) in &self.index {
            assert_eq!(self.owners[*slot as usize], *block, "the slot of block {block} is its own");
            live[self.bucket_of(*slot) as usize] += 1;
        }
        assert_eq!(live, self.live, "live blocks are counted by bucket");
        let owned = self.owners.iter().filter(|owner| **owner != NO_BLOCK).count();
        assert_eq!(owned, self.index.len(), "a slot with a block is in the index");
        let buckets = self.free.len() + self.used.len(USED) as usize + 1;
        assert_eq!(buckets, self.live.len(), "a bucket is free, used or open");
        assert!(self.free.iter().all(|bucket| self.live[*bucket as usize] == 0), "a free bucket holds nothing");
    }
}
