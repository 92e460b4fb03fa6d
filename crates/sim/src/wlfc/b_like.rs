//! B_like: bcache as the paper on WLFC models it, on a conventional SSD.
//!
//! Source: Dong, Wang, Zhang: WLFC: Write Less in the Flash-based Cache, section V: "managing data as the bucket unit, caching data as logs
//! in the bucket, index the logs by a B+ tree in DRAM, performing garbage collection to remove the invalid data logs periodically and evicting
//! buckets by the LRU replacement algorithm". What it leaves open is as in bcache (Documentation/admin-guide/bcache.rst and
//! drivers/md/bcache of Linux), or chosen, and a field of [`BLikeConfig`].
//!
//! - A log is programmed at once and fills flash pages: an SSD that must not lose what it acknowledged cannot wait for more.
//! - A log is in the index when the journal has it: a page of the journal for each log of a client. The journal is a ring.
//! - Reads of what is not cached put it into the cache as clean logs, after the answer.
//! - A bucket is evicted when few are free: what is dirty in it is written back in the order of its addresses, an access for each run of
//!   neighbours, and one page of the journal says so.
//! - Collection moves what is live out of the buckets that have the least, a bucket's worth at most each time.
//! - The SSD is not told what is not needed any more: bcache's `discard` is off unless it is asked for.

use std::collections::{BTreeMap, VecDeque};

use flashwise_core::cache::Kind;
use flashwise_core::format::BLOCK_BYTES;
use flashwise_core::lists::Lists;
use flashwise_core::step::FlashStep;
use flashwise_device::TierModel;
use flashwise_device::flash::clock::Operation;
use flashwise_device::flash::{Clock, Device, DeviceError, Ftl, FtlConfig, Meter};
use flashwise_trace::request_file::CacheRequest;

use super::schedule::{Schedule, Work};
use super::simulation::{BucketCounts, Latencies};

/// What a B_like is like.
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
    /// Flash pages beyond those that the host sees, as a share of these.
    pub over_provision: f64,
    /// Logs for each page of the journal.
    pub journal_logs: u32,
    /// Buckets of the journal.
    pub journal_buckets: u32,
    /// Buckets that are kept free.
    pub free_buckets: u32,
    /// How often is collected: each time that this share of the cache was written.
    pub collection_share: f64,
    /// A bucket is only collected if no more than this share of its blocks is live.
    pub live_share_max: f64,
    /// A write of more bytes goes past the cache.
    pub large_write_bytes: u64,
}

impl BLikeConfig {
    /// The defaults: 7 % of over-provisioning, a page of the journal for each log and two buckets of them, two buckets free, collection
    /// each time that a 16th of the cache was written (bcache's GC does so) of buckets of which at most half is live.
    pub fn new(flash_pages: u32, erase_block_pages: u32, bucket_pages: u32, page_blocks: u32) -> BLikeConfig {
        BLikeConfig {
            flash_pages,
            erase_block_pages,
            bucket_pages,
            page_blocks,
            over_provision: 0.07,
            journal_logs: 1,
            journal_buckets: 2,
            free_buckets: 2,
            collection_share: 1.0 / 16.0,
            live_share_max: 0.5,
            large_write_bytes: u64::from(bucket_pages * page_blocks) * BLOCK_BYTES as u64,
        }
    }

    /// Buckets that the SSD has room for, those of the journal included.
    fn buckets(&self) -> u32 {
        (f64::from(self.flash_pages) / (1.0 + self.over_provision)) as u32 / self.bucket_pages
    }
}

/// No block.
const NOBODY: u64 = u64::MAX;

/// The only list: buckets that are full, the most recently used first.
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

/// The bucket that is written.
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
    counts: BucketCounts,
    /// The B+ tree: the slot of each cached block. A slot is a block's worth of a page of the SSD.
    index: BTreeMap<u64, u32>,
    /// The block of each slot that is live.
    owners: Vec<u64>,
    dirty: Vec<bool>,
    /// Blocks that are live, by bucket.
    live: Vec<u32>,
    used: Lists,
    free: VecDeque<u32>,
    open: Open,
    /// Pages written since the last collection.
    written: u32,
    /// Logs that the journal has not.
    unsaid: u32,
    journal_next: u32,
}

impl BLike {
    /// An empty cache.
    ///
    /// # Errors
    /// An SSD that there cannot be, or that has too few buckets.
    pub fn new(config: BLikeConfig, flash: Clock, backend: &TierModel) -> Result<BLike, DeviceError> {
        let (all, least) = (config.buckets(), config.journal_buckets + config.free_buckets + 3);
        if all < least {
            return Err(DeviceError::TooSmall { what: "buckets", found: all.into(), least: least.into() });
        }
        let buckets = all - config.journal_buckets;
        let logical_pages = all * config.bucket_pages;
        let over_provision = f64::from(config.flash_pages) / f64::from(logical_pages) - 1.0;
        let ftl = FtlConfig::new(logical_pages, config.erase_block_pages, over_provision);
        let slots = (buckets * config.bucket_pages * config.page_blocks) as usize;
        Ok(BLike {
            ftl: Ftl::metered(ftl, Recorder::default())?,
            schedule: Schedule::new(flash, backend, buckets),
            latencies: Latencies::default(),
            counts: BucketCounts::default(),
            index: BTreeMap::new(),
            owners: vec![NOBODY; slots],
            dirty: vec![false; slots],
            live: vec![0; buckets as usize],
            used: Lists::new(1),
            free: (1..buckets).collect(),
            open: Open { bucket: 0, next_page: 0 },
            written: 0,
            unsaid: 0,
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
        self.counts.requests += 1;
        let mut missed = Vec::new();
        match kind {
            Kind::Read | Kind::Prefetch => missed = self.read(blocks, kind == Kind::Read),
            Kind::Write => {
                self.counts.writes += blocks.end - blocks.start;
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
            self.say();
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

    /// Reads what is cached, and of the backend what is not; returns that.
    fn read(&mut self, blocks: std::ops::Range<u64>, for_client: bool) -> Vec<std::ops::Range<u64>> {
        let counted = u64::from(for_client);
        self.counts.reads += counted * (blocks.end - blocks.start);
        let (mut missed, mut page_before): (Vec<std::ops::Range<u64>>, _) = (Vec::new(), u32::MAX);
        for block in blocks {
            match self.index.get(&block) {
                Some(&slot) => {
                    self.counts.flash_hits += counted;
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
            self.counts.read_admissions += counted * (run.end - run.start);
            self.backend((run.end - run.start) as u32, false);
        }
        missed
    }

    /// Reads the blocks that a write changes in part.
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
        if self.unsaid >= self.config.journal_logs {
            self.say();
        }
    }

    /// Past the cache.
    fn pass(&mut self, blocks: std::ops::Range<u64>) {
        self.forget_all(blocks.clone());
        self.counts.bypasses += blocks.end - blocks.start;
        self.backend((blocks.end - blocks.start) as u32, true);
    }

    /// Blocks become zeroes, which the backend is told without data.
    fn zero(&mut self, blocks: std::ops::Range<u64>) {
        if !blocks.is_empty() {
            self.forget_all(blocks);
            self.counts.backend_writes += 1;
            self.schedule.add(Work::Backend { blocks: 1, write: true });
        }
    }

    /// The cache forgets what it has of the blocks.
    fn forget_all(&mut self, blocks: std::ops::Range<u64>) {
        let cached: Vec<u64> = self.index.range(blocks).map(|(block, _)| *block).collect();
        for block in &cached {
            self.forget(*block);
        }
        if !cached.is_empty() {
            self.unsaid += 1;
            self.say();
        }
    }

    /// Appends a log, which a bucket's end splits.
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
                    self.counts.padding_blocks += 1;
                    continue;
                }
                let hit = self.place(at, slot, of_client);
                if of_client {
                    (self.counts.log_blocks, self.counts.write_hits) =
                        (self.counts.log_blocks + 1, self.counts.write_hits + u64::from(hit));
                } else {
                    self.counts.admission_blocks += 1;
                }
                at += 1;
            }
            self.write_page(page);
        }
        self.unsaid += 1;
    }

    fn write_page(&mut self, page: u32) {
        self.flash(FlashStep::Write { page });
        self.open.next_page += 1;
        self.written += 1;
    }

    /// A block lies in this slot from now on; returns whether it was cached before.
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
        self.owners[slot as usize] = NOBODY;
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

    /// Says in the journal what it has not been told.
    fn say(&mut self) {
        if self.unsaid == 0 {
            return;
        }
        self.unsaid = 0;
        let first = self.live.len() as u32 * self.config.bucket_pages;
        let pages = self.config.journal_buckets * self.config.bucket_pages;
        let page = self.journal_next;
        self.journal_next = first + (page + 1 - first) % pages;
        self.counts.metadata_blocks += u64::from(self.config.page_blocks);
        self.flash(FlashStep::Write { page });
    }

    /// Evicts the least recently used bucket, if there is one.
    fn evict(&mut self) -> bool {
        let Some(bucket) = self.used.back(USED) else { return false };
        let mut dirty = Vec::new();
        let mut page_before = u32::MAX;
        for slot in self.slots(bucket) {
            let block = self.owners[slot as usize];
            if block == NOBODY {
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
        self.unsaid += 1;
        self.say();
        self.used.remove(bucket);
        self.release(bucket);
        true
    }

    fn slots(&self, bucket: u32) -> std::ops::Range<u32> {
        let slots = self.config.bucket_pages * self.config.page_blocks;
        bucket * slots..(bucket + 1) * slots
    }

    /// A bucket that is not in use any more is free.
    fn release(&mut self, bucket: u32) {
        self.free.push_back(bucket);
        self.schedule.add(Work::Release { bucket });
    }

    /// Periodically frees buckets without live logs, and moves the logs of those that have few.
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
            // Moving may have evicted it.
            if self.used.list_of(bucket).is_none() {
                continue;
            }
            moved += self.live[bucket as usize];
            if moved > slots {
                break;
            }
            // What makes room for its logs does not evict it.
            self.used.remove(bucket);
            self.move_out(bucket);
            self.release(bucket);
        }
        self.say();
    }

    fn move_out(&mut self, bucket: u32) {
        let page_blocks = self.config.page_blocks;
        let moved: Vec<(u64, u32)> = self
            .slots(bucket)
            .filter(|slot| self.owners[*slot as usize] != NOBODY)
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
                self.counts.copy_forward_blocks += 1;
            }
            self.counts.padding_blocks += u64::from(page_blocks) - logs.len() as u64;
            self.write_page(page);
            self.unsaid += 1;
        }
    }

    fn flash(&mut self, step: FlashStep) {
        self.ftl.step(step);
        for operation in self.ftl.meter_mut().0.drain(..) {
            self.schedule.add(Work::Flash(operation));
        }
    }

    fn backend(&mut self, blocks: u32, write: bool) {
        let counts = &mut self.counts;
        let (accesses, moved) = match write {
            true => (&mut counts.backend_writes, &mut counts.backend_written_blocks),
            false => (&mut counts.backend_reads, &mut counts.backend_read_blocks),
        };
        (*accesses, *moved) = (*accesses + 1, *moved + u64::from(blocks));
        self.schedule.add(Work::Backend { blocks, write });
    }

    /// How many blocks it has room for.
    pub fn capacity_blocks(&self) -> u64 {
        self.owners.len() as u64
    }

    /// What happened so far.
    pub fn counts(&self) -> BucketCounts {
        let erasures = self.ftl.counters().erasures;
        BucketCounts { erasures, elapsed_ns: self.schedule.now_ns(), latencies: self.latencies, ..self.counts }
    }

    /// Asserts what always holds. Slow; for tests.
    pub fn check(&self) {
        self.ftl.check();
        self.used.check();
        let mut live = vec![0; self.live.len()];
        for (block, slot) in &self.index {
            assert_eq!(self.owners[*slot as usize], *block, "the slot of block {block} is its own");
            live[self.bucket_of(*slot) as usize] += 1;
        }
        assert_eq!(live, self.live, "live blocks are counted by bucket");
        let owned = self.owners.iter().filter(|owner| **owner != NOBODY).count();
        assert_eq!(owned, self.index.len(), "a slot with a block is in the index");
        let buckets = self.free.len() + self.used.len(USED) as usize + 1;
        assert_eq!(buckets, self.live.len(), "a bucket is free, used or open");
        assert!(self.free.iter().all(|bucket| self.live[*bucket as usize] == 0), "a free bucket holds nothing");
    }
}
