//! What a WLFC is like, and what it refuses to be.

use std::str::FromStr;

use super::bucket::{Log, Oob};
use crate::format::BLOCK_BYTES;
use crate::options::word;

/// When a read copy is brought up to date.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Refresh {
    /// At each read of a bucket that has newer logs, as section IV.C.1 has it: the whole bucket is read and written again.
    #[default]
    Read,
    /// When the bucket of the logs is evicted. A read takes from the logs what it asks for.
    Evict,
}

impl Refresh {
    /// Both by the names that users know them by.
    pub const NAMES: [(&str, Refresh); 2] = [("read", Refresh::Read), ("evict", Refresh::Evict)];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize].0
    }
}

impl FromStr for Refresh {
    type Err = String;

    fn from_str(name: &str) -> Result<Refresh, String> {
        word(name, &Refresh::NAMES)
    }
}

/// The most buckets that are erased together: what a flush costs is small beside what moves between as many.
const ERASE_BATCH_MAX: u32 = 16;

/// What a WLFC is like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Cache buckets.
    pub buckets: u32,
    /// Blocks of a bucket, in the cache and in the backend.
    pub bucket_blocks: u32,
    /// Blocks of a flash page, which is programmed whole.
    pub page_blocks: u32,
    /// Blocks of data that a header page says all about, where flash has no bytes out of band: what is programmed begins with as many as its
    /// data needs. 0 where it has.
    pub header_blocks: u32,
    /// Most write buckets.
    pub write_queue: u32,
    /// Most read copies.
    pub read_queue: u32,
    /// Write buckets that are allocated between two halvings of all priorities.
    pub halving: u32,
    /// A write of more bytes goes past the cache.
    pub large_write_bytes: u64,
    /// When read copies are brought up to date.
    pub refresh: Refresh,
    /// Blocks of the read cache in RAM: 64 MiB of WLFC_c.
    pub ram_blocks: u32,
    /// Evicted buckets are erased in the background until this many are free. The paper erases without end.
    pub free_target: u32,
    /// ... but not before so many are evicted, which share the flushes of the devices that come before they are erased.
    pub erase_batch: u32,
    /// Few buckets may be written at a time, so that those that were evicted are erased before the next piece of a request is planned.
    pub erases_at_once: bool,
    /// Blocks of the backend.
    pub volume_blocks: u64,
}

/// Why there is no WLFC like that.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum ConfigError {
    #[error("bucket: found {found} blocks, expected a multiple of the {page_blocks} blocks of a flash page")]
    Bucket { found: u32, page_blocks: u32 },
    #[error("header: {header_blocks} blocks are described by pages of {page_blocks} blocks, expected pages of 1")]
    Header { header_blocks: u32, page_blocks: u32 },
    #[error("{what}: found 0, expected at least 1")]
    Zero { what: &'static str },
    #[error("buckets: found {found}, expected at least {least}: one of each queue and {} to spare", Config::SPARE_MIN)]
    Buckets { found: u32, least: u32 },
    #[error(
        "write-queue: {write_queue} write buckets and {read_queue} read copies, expected at most {most} of {buckets} in all"
    )]
    Queues { write_queue: u32, read_queue: u32, most: u32, buckets: u32 },
}

impl Config {
    /// Buckets that are in neither queue of the cache, so that there is always one to write to.
    pub const SPARE_MIN: u32 = 2;
    /// The share of the write queue where none is given; the paper tells none.
    pub const WRITE_SHARE: f64 = 0.5;

    /// The paper's, as far as it tells: the share `write_share` of the buckets is for writing, and the rest for reading; a 64th of them,
    /// two at least, to spare. All priorities are halved when as many write buckets were allocated as there may be.
    pub fn new(buckets: u32, bucket_blocks: u32, page_blocks: u32, write_share: f64) -> Result<Config, ConfigError> {
        let least = Config::SPARE_MIN + 2;
        if buckets < least {
            return Err(ConfigError::Buckets { found: buckets, least });
        }
        let queued = buckets - (buckets / 64).max(Config::SPARE_MIN);
        let write_queue = ((f64::from(queued) * write_share).round() as u32).clamp(1, queued - 1);
        let config = Config {
            buckets,
            bucket_blocks,
            page_blocks,
            header_blocks: 0,
            write_queue,
            read_queue: queued - write_queue,
            halving: write_queue,
            large_write_bytes: u64::from(bucket_blocks) * BLOCK_BYTES as u64,
            refresh: Refresh::Read,
            ram_blocks: 0,
            free_target: u32::MAX,
            erase_batch: 1,
            erases_at_once: false,
            volume_blocks: u64::from(u32::MAX),
        };
        config.check()?;
        Ok(config)
    }

    /// The same on flash whose devices are flushed, where headers take the place of bytes out of band: a 16th of the buckets, 18 at
    /// most, is to spare if the paper's share is less, and all of these but two are erased together.
    ///
    /// # Errors
    /// [`check`](Self::check) says what cannot work.
    pub fn served(
        buckets: u32,
        bucket_blocks: u32,
        header_blocks: u32,
        write_share: f64,
    ) -> Result<Config, ConfigError> {
        let mut config = Config::new(buckets, bucket_blocks, 1, write_share)?;
        let spare = |config: &Config| buckets - config.write_queue - config.read_queue;
        let wanted = (buckets / 16).min(Config::SPARE_MIN + ERASE_BATCH_MAX);
        config.shorten(wanted.saturating_sub(spare(&config)));
        config.erase_batch = (spare(&config) - Config::SPARE_MIN).clamp(1, ERASE_BATCH_MAX);
        Ok(Config { halving: config.write_queue, header_blocks, ..config })
    }

    /// Takes buckets from the queues: the longer one gives way first.
    fn shorten(&mut self, buckets: u32) {
        for _ in 0..buckets {
            let longer = if self.read_queue >= self.write_queue { &mut self.read_queue } else { &mut self.write_queue };
            *longer -= 1;
        }
    }

    /// The same with `failed` buckets fewer that can be used, if enough are left: the longer queue gives way first.
    pub(super) fn without(&self, failed: u32) -> Option<Config> {
        let usable = self.buckets.saturating_sub(failed);
        if usable < Config::SPARE_MIN + 2 {
            return None;
        }
        let mut config = self.clone();
        let beyond = (config.write_queue + config.read_queue + Config::SPARE_MIN).saturating_sub(usable);
        config.shorten(beyond);
        Some(config)
    }

    /// Refuses what cannot work.
    pub fn check(&self) -> Result<(), ConfigError> {
        let at_least_one = [
            ("flash page", self.page_blocks),
            ("bucket", self.bucket_blocks),
            ("write queue", self.write_queue),
            ("read queue", self.read_queue),
            ("halving", self.halving),
            ("free buckets", self.free_target),
            ("buckets erased together", self.erase_batch),
        ];
        if let Some((what, _)) = at_least_one.into_iter().find(|(_, number)| *number == 0) {
            return Err(ConfigError::Zero { what });
        }
        let Config { buckets, bucket_blocks, page_blocks, write_queue, read_queue, .. } = *self;
        if !bucket_blocks.is_multiple_of(page_blocks) {
            return Err(ConfigError::Bucket { found: bucket_blocks, page_blocks });
        }
        if self.header_blocks > 0 && page_blocks != 1 {
            return Err(ConfigError::Header { header_blocks: self.header_blocks, page_blocks });
        }
        if u64::from(write_queue) + u64::from(read_queue) + u64::from(Config::SPARE_MIN) > u64::from(buckets) {
            let most = buckets.saturating_sub(Config::SPARE_MIN);
            return Err(ConfigError::Queues { write_queue, read_queue, most, buckets });
        }
        Ok(())
    }

    /// How many blocks the cache has room for: those of all buckets that are not to spare.
    pub fn capacity_blocks(&self) -> u64 {
        u64::from(self.write_queue + self.read_queue) * u64::from(self.bucket_blocks)
    }

    /// Flash pages of a bucket of the cache: those of a copy.
    pub fn bucket_pages(&self) -> u32 {
        self.headers(self.bucket_blocks) + self.bucket_blocks / self.page_blocks
    }

    /// Header pages of this many blocks of data that are programmed together.
    #[inline]
    pub fn headers(&self, blocks: u32) -> u32 {
        if self.header_blocks == 0 { 0 } else { blocks.div_ceil(self.header_blocks) }
    }

    /// Pages that are programmed for what `oob` says.
    #[inline]
    pub fn pages(&self, oob: &Oob) -> u32 {
        self.headers(if oob.log == Log::Data { oob.blocks } else { 0 }) + oob.pages(self.page_blocks)
    }

    /// The most blocks that a bucket of this many pages can have, each of a block, where a header page is about `header_blocks` of them.
    pub fn blocks_beside_headers(pages: u32, header_blocks: u32) -> u32 {
        pages - pages.div_ceil(header_blocks + 1)
    }

    /// Whether what a header says is of blocks that there are.
    pub(super) fn has(&self, oob: &Oob) -> bool {
        let is_there = u64::from(oob.backend) * u64::from(self.bucket_blocks) < self.volume_blocks;
        is_there && u64::from(oob.at) + u64::from(oob.blocks) <= u64::from(self.extent(oob.backend))
    }

    /// Blocks of a backend bucket: fewer at the end of the volume.
    pub(super) fn extent(&self, backend: u32) -> u32 {
        let start = u64::from(backend) * u64::from(self.bucket_blocks);
        (self.volume_blocks - start).min(u64::from(self.bucket_blocks)) as u32
    }
}
