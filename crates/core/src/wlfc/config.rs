//! The configuration of WLFC, and its checks.

use super::bucket::{Log, Oob};
use crate::format::BLOCK_BYTES;

crate::words! {
    /// The time when a read copy is refreshed.
    #[derive(Default)]
    pub enum Refresh {
        /// At each read of a bucket with newer logs, as in section IV.C.1: the whole bucket is read and rewritten.
        #[default]
        Read "read",
        /// When the bucket of logs is evicted. Until then reads take their blocks from the logs.
        Evict "evict",
    }
}

/// Settings of a cache of buckets; the rest of its [`Config`] follows from its devices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BucketOptions {
    /// The share of the buckets for writes.
    pub write_share: f64,
    /// Allocations of write buckets between two halvings of all priorities; by default the length of the write queue.
    pub halving: Option<u32>,
    /// Writes of more bytes bypass the cache; by default those larger than a bucket.
    pub large_write_bytes: Option<u64>,
    /// The time when read copies are refreshed.
    pub refresh: Refresh,
    /// Bytes of the read cache in RAM.
    pub ram_bytes: u64,
    /// The most buckets that can be written at once, if that is limited.
    pub written_max: Option<u32>,
}

impl Default for BucketOptions {
    fn default() -> BucketOptions {
        BucketOptions {
            write_share: Config::WRITE_SHARE,
            halving: None,
            large_write_bytes: None,
            refresh: Refresh::default(),
            ram_bytes: 0,
            written_max: None,
        }
    }
}

/// Maximum number of buckets erased together; the cost of a flush is small compared with the data of this many.
const ERASE_BATCH_MAX: u32 = 16;

/// The configuration of WLFC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Cache buckets.
    pub buckets: u32,
    /// Blocks of a bucket, in the cache and in the backend.
    pub bucket_blocks: u32,
    /// Blocks of a flash page, the unit of programming.
    pub page_blocks: u32,
    /// Data blocks described by one header page, on flash without out-of-band bytes; programmed data starts with the
    /// headers that it needs. 0 if flash has out-of-band bytes.
    pub header_blocks: u32,
    /// Maximum number of write buckets.
    pub write_queue: u32,
    /// Maximum number of read copies.
    pub read_queue: u32,
    /// Allocations of write buckets between two halvings of all priorities.
    pub halving: u32,
    /// Larger writes bypass the cache.
    pub large_write_bytes: u64,
    /// The time when read copies are refreshed.
    pub refresh: Refresh,
    /// Blocks of the read cache in RAM: 64 MiB in WLFC_c.
    pub ram_blocks: u32,
    /// Number of free buckets up to which evicted ones are erased in the background. The paper has no limit.
    pub free_target: u32,
    /// Number of evicted buckets that are erased together, to share the flushes before the erasures.
    pub erase_batch: u32,
    /// Erases evicted buckets before the next piece of a request is planned, for devices that limit the number of open
    /// buckets.
    pub erases_at_once: bool,
    /// Blocks of the backend.
    pub volume_blocks: u64,
}

/// An invalid configuration.
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
        "write-queue: {write_queue} write buckets and {read_queue} read copies, expected at most {most} of {buckets} \
         in all"
    )]
    Queues { write_queue: u32, read_queue: u32, most: u32, buckets: u32 },
}

impl Config {
    /// Buckets in neither queue, so that a bucket to write to is always available.
    pub const SPARE_MIN: u32 = 2;
    /// Default share of the write queue; the paper gives none.
    pub const WRITE_SHARE: f64 = 0.5;

    /// Returns the paper's configuration, as far as published. The share `write_share` of the buckets is for writing,
    /// the rest for reading; a 64th of all, at least two, is spare. All priorities are halved after as many allocations
    /// of write buckets as the queue holds.
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

    /// Returns the configuration for flash with headers instead of out-of-band bytes, on devices that are flushed. A
    /// 16th of the buckets, at most 18, is spare if the paper's share is smaller; all of these except two are erased
    /// together.
    ///
    /// # Errors
    /// An invalid configuration, according to [`check`](Self::check).
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

    /// Removes buckets from the queues, from the longer one first.
    fn shorten(&mut self, buckets: u32) {
        for _ in 0..buckets {
            let longer = if self.read_queue >= self.write_queue { &mut self.read_queue } else { &mut self.write_queue };
            *longer -= 1;
        }
    }

    /// Returns the configuration without `failed` buckets, if enough are left. The longer queue shrinks first.
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

    /// Rejects invalid configurations.
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

    /// Returns the capacity in blocks: all buckets that are not spare.
    pub fn capacity_blocks(&self) -> u64 {
        u64::from(self.write_queue + self.read_queue) * u64::from(self.bucket_blocks)
    }

    /// Returns the flash pages of a cache bucket, that is, of a copy.
    pub fn bucket_pages(&self) -> u32 {
        self.headers(self.bucket_blocks) + self.bucket_blocks / self.page_blocks
    }

    /// Returns the header pages for this many data blocks that are programmed together.
    #[inline]
    pub fn headers(&self, blocks: u32) -> u32 {
        if self.header_blocks == 0 { 0 } else { blocks.div_ceil(self.header_blocks) }
    }

    /// Returns the pages to program for `oob`.
    #[inline]
    pub fn pages(&self, oob: &Oob) -> u32 {
        self.headers(if oob.log == Log::Data { oob.blocks } else { 0 }) + oob.pages(self.page_blocks)
    }

    /// Returns the maximum number of data blocks in a bucket of this many pages, if a header page describes
    /// `header_blocks`.
    pub fn blocks_beside_headers(pages: u32, header_blocks: u32) -> u32 {
        pages - pages.div_ceil(header_blocks + 1)
    }

    /// True if the blocks of a header exist.
    pub(super) fn has(&self, oob: &Oob) -> bool {
        let is_there = u64::from(oob.backend) * u64::from(self.bucket_blocks) < self.volume_blocks;
        is_there && u64::from(oob.at) + u64::from(oob.blocks) <= u64::from(self.extent(oob.backend))
    }

    /// Returns the blocks of a backend bucket; fewer at the end of the volume.
    pub(super) fn extent(&self, backend: u32) -> u32 {
        let start = u64::from(backend) * u64::from(self.bucket_blocks);
        (self.volume_blocks - start).min(u64::from(self.bucket_blocks)) as u32
    }
}
