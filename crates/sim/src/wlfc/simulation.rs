//! Runs of caches of buckets.

use flashwise_core::account;
use flashwise_core::block_cache::{FlashWrites, Tally};
use flashwise_core::cache::{self, Kind};
use flashwise_core::counters::{Counters, OpCounters};
use flashwise_core::format::BLOCK_BYTES;
use flashwise_core::policy::Info;
use flashwise_core::quantity::ByteSize;
use flashwise_core::wlfc::header::HEADER_BLOCKS;
use flashwise_core::wlfc::{BucketOptions, Config, ConfigError, Figures, Wlfc};
use flashwise_device::flash::{Clock, DeviceCounters, DeviceError, Profile, UnitError};
use flashwise_device::{ArrayModel, TierModel, tier_model_of_option};
use flashwise_engine::wlfc as engine;
use flashwise_trace::error::TraceError;
use flashwise_trace::request_file::CacheRequest;

use super::{BLike, BLikeConfig, Managed};
use crate::array::{Arrivals, InTime};
use crate::cache_settings::{RAM_OF_WLFC_C, Ram, SPARE};
use crate::counting::Counting;
use crate::stretch::{Counts, Ran, Stretches};

/// A cache that evicts whole buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// WLFC.
    Wlfc,
    /// WLFC with a read cache in RAM.
    WlfcC,
    /// bcache as modelled by the paper.
    BLike,
}

impl System {
    /// All systems.
    pub const ALL: [System; 3] = [System::Wlfc, System::WlfcC, System::BLike];

    /// Its name in every output.
    pub const fn name(self) -> &'static str {
        self.info().name
    }

    /// Its description.
    pub const fn info(self) -> &'static Info {
        match self {
            System::Wlfc => &WLFC,
            System::WlfcC => &WLFC_C,
            System::BLike => &B_LIKE,
        }
    }
}

static WLFC: Info = info("wlfc", "Buckets on host-managed flash");
static WLFC_C: Info = info("wlfc_c", "Buckets on host-managed flash, behind RAM");
static B_LIKE: Info = info("b-like", "Buckets on a conventional SSD");

const fn info(name: &'static str, title: &'static str) -> Info {
    let source = "Dong, Wang, Zhang: WLFC: Write Less in the Flash-based Cache";
    Info { name, title, source, parameters: &[], offline: false }
}

/// Configuration of a cache of buckets, except its size.
#[derive(Clone, Debug, PartialEq)]
pub struct BucketSettings {
    /// The flash.
    pub device: Profile,
    /// The backend.
    pub backend: TierModel,
    /// Bytes of a bucket; by default an erase block of the device.
    pub bucket_bytes: Option<u64>,
    /// RAM of WLFC_c for reads; by default [`RAM_OF_WLFC_C`].
    pub ram: Option<Ram>,
    /// Settings of the buckets; their RAM is [`ram`](Self::ram).
    pub options: BucketOptions,
    /// Spare pages of B_like's SSD, as a share of the visible ones.
    pub spare: f64,
    /// Logs of B_like per page of its journal.
    pub journal_logs: u32,
}

impl BucketSettings {
    /// Returns the paper's settings, as far as it gives them: its flash in front of a hard disk.
    pub fn paper() -> BucketSettings {
        BucketSettings {
            device: Profile::find("wlfc", "wlfc").expect("the profile comes with flashwise"),
            backend: tier_model_of_option("storage-device", "hdd").expect("the profile comes with flashwise"),
            bucket_bytes: None,
            ram: None,
            options: BucketOptions::default(),
            spare: SPARE,
            journal_logs: 1,
        }
    }

    /// RAM for reads in front of flash of this many bytes.
    pub fn ram_bytes(&self, system: System, flash_bytes: u64) -> u64 {
        match system {
            System::WlfcC => self.ram.unwrap_or(RAM_OF_WLFC_C).bytes(flash_bytes),
            System::Wlfc | System::BLike => 0,
        }
    }

    fn bucket_bytes(&self) -> u64 {
        self.bucket_bytes.unwrap_or(self.device.block_bytes())
    }

    /// Builds a cache on flash of this many bytes; the rest after the last bucket is unused. If requests come at their
    /// `times`, the cache is the server's, with pages of 4 KiB.
    fn build(&self, system: System, flash_bytes: u64, times: Option<Times<'_>>) -> Result<BucketCache, BucketError> {
        let bucket = ByteSize::new(self.bucket_bytes());
        self.build_any(system, flash_bytes, times).map_err(|error| match error {
            BucketError::Config(ConfigError::Buckets { found, least }) => {
                let (flash, found, least) = (ByteSize::new(flash_bytes), found.into(), least.into());
                BucketError::Few { flash, bucket, found, least }
            }
            BucketError::Device(DeviceError::TooSmall { what: "buckets", found, least }) => {
                BucketError::Few { flash: ByteSize::new(flash_bytes), bucket, found, least }
            }
            BucketError::Profile(UnitError { unit, device, parts, part }) => {
                BucketError::Division { found: unit, device, parts, part }
            }
            other => other,
        })
    }

    fn build_any(
        &self,
        system: System,
        flash_bytes: u64,
        times: Option<Times<'_>>,
    ) -> Result<BucketCache, BucketError> {
        let (bucket, page) = (self.bucket_bytes(), u64::from(self.device.page_bytes));
        if bucket < page {
            return Err(BucketError::Bucket { found: ByteSize::new(bucket), page: ByteSize::new(page) });
        }
        let erase_block = bucket.min(self.device.block_bytes());
        let buckets = flash_bytes / bucket;
        if buckets * (bucket / page) >= u64::from(u32::MAX) / 2 {
            return Err(BucketError::Size { flash: ByteSize::new(flash_bytes) });
        }
        let page_blocks = (page / BLOCK_BYTES as u64) as u32;
        if system == System::BLike {
            // The FTL erases its own blocks, independent of the buckets.
            Clock::new(&self.device, bucket)?;
            let clock = Clock::new(&self.device, erase_block)?;
            let [flash, erase_block, bucket] =
                [buckets * bucket, erase_block, bucket].map(|bytes| (bytes / page) as u32);
            let config = BLikeConfig::new(flash, erase_block, bucket, page_blocks);
            let config = BLikeConfig {
                spare: self.spare,
                journal_logs: self.journal_logs,
                large_write_bytes: self.options.large_write_bytes.unwrap_or(config.large_write_bytes),
                ..config
            };
            return Ok(BucketCache::BLike(Box::new(BLike::new(config, clock, &self.backend)?)));
        }
        let clock = Clock::new(&self.device, bucket)?;
        let blocks = (bucket / BLOCK_BYTES as u64) as u32;
        let is_served = page_blocks == 1 || times.is_some();
        if is_served && blocks < 2 {
            let (found, least) = (ByteSize::new(bucket), ByteSize::new(2 * page));
            return Err(BucketError::NoRoomBesideHeader { found, least });
        }
        // Pages of a block have no out-of-band bytes to identify a bucket. As on a server's flash, headers replace
        // them.
        let config = match is_served {
            true => {
                let bucket_blocks = Config::blocks_beside_headers(blocks, HEADER_BLOCKS);
                Config::served(buckets as u32, bucket_blocks, HEADER_BLOCKS, self.options.write_share)?
            }
            false => Config::new(buckets as u32, blocks, page_blocks, self.options.write_share)?,
        };
        let ram_blocks = (self.ram_bytes(system, flash_bytes) / BLOCK_BYTES as u64).try_into().unwrap_or(u32::MAX);
        let halving = self.options.halving.unwrap_or(config.halving);
        // The addresses of a trace's requests are below 16 TiB.
        let large_write_bytes = self.options.large_write_bytes.unwrap_or(config.large_write_bytes);
        let (refresh, volume_blocks) = (self.options.refresh, 1 << 32);
        let config = Config { halving, large_write_bytes, refresh, ram_blocks, volume_blocks, ..config };
        Ok(match times {
            None => BucketCache::Managed(Box::new(Managed::new(config, clock, &self.backend)?)),
            Some((model, arrivals)) => {
                let in_time = InTime::of_buckets(Wlfc::new(config)?, model, arrivals);
                BucketCache::InTime(Box::new(in_time), clock.unit_blocks())
            }
        })
    }
}

/// The reason why a cache cannot be built.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum BucketError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(transparent)]
    Profile(#[from] UnitError),
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error("size: {flash} of flash, expected fewer than 2^31 of its pages")]
    Size { flash: ByteSize },
    #[error(
        "size: {flash} of flash has room for {found} buckets of {bucket}, expected at least {least}; choose more flash \
         or smaller buckets"
    )]
    Few { flash: ByteSize, bucket: ByteSize, found: u64, least: u64 },
    #[error("bucket: found {found}, expected at least a page of the flash, {page}")]
    Bucket { found: ByteSize, page: ByteSize },
    #[error(
        "bucket: found {found}, expected a multiple of {part}, the {parts} of device '{device}'; choose another length \
         or device"
    )]
    Division { found: ByteSize, device: String, parts: &'static str, part: ByteSize },
    #[error("bucket: found {found}, expected at least {least}: one page of the flash is its header")]
    NoRoomBesideHeader { found: ByteSize, least: ByteSize },
}

/// Blocks that clients of a WLFC read and wrote so far.
#[inline]
pub(super) fn accesses_of(wlfc: &Wlfc) -> u64 {
    let figures = cache::Cache::figures(wlfc);
    figures.read_blocks + figures.written_blocks
}

/// The devices that requests wait for, and when requests come.
pub type Times<'a> = (&'a ArrayModel, Arrivals);

/// A cache of any system.
enum BucketCache {
    Managed(Box<Managed>),
    /// The server's engine of WLFC, and the erase blocks of a bucket.
    InTime(Box<InTime<engine::Buckets>>, u32),
    BLike(Box<BLike>),
}

impl BucketCache {
    /// Lets time pass until a request comes.
    #[inline]
    fn await_arrival(&mut self, request: &CacheRequest) {
        if let BucketCache::InTime(run, _) = self {
            run.await_arrival(request.time_us);
        }
    }

    #[inline]
    fn request(&mut self, request: &CacheRequest, counted: bool) {
        match self {
            BucketCache::Managed(managed) => managed.request(request),
            BucketCache::InTime(run, _) => run.request(request, counted),
            BucketCache::BLike(b_like) => b_like.request(request),
        }
    }

    fn counts(&self) -> Counts {
        match self {
            BucketCache::Managed(managed) => managed.counts(),
            BucketCache::InTime(run, unit_blocks) => Buckets::of_wlfc(run.cache(), Latencies::default(), *unit_blocks),
            BucketCache::BLike(b_like) => b_like.counts(),
        }
    }

    /// Blocks that clients read and wrote so far.
    #[inline]
    fn accesses(&self) -> u64 {
        match self {
            BucketCache::Managed(managed) => managed.accesses(),
            BucketCache::InTime(run, _) => accesses_of(run.cache()),
            BucketCache::BLike(b_like) => b_like.accesses(),
        }
    }

    /// The time of the last answer, if requests do not come at times of their own.
    #[inline]
    fn now_us(&self) -> Option<u64> {
        match self {
            BucketCache::Managed(managed) => Some(managed.now_us()),
            BucketCache::InTime(..) => None,
            BucketCache::BLike(b_like) => Some(b_like.now_us()),
        }
    }

    /// Number of blocks that fit.
    fn capacity_blocks(&self) -> u64 {
        match self {
            BucketCache::Managed(managed) => managed.wlfc().config().capacity_blocks(),
            BucketCache::InTime(run, _) => run.cache().config().capacity_blocks(),
            BucketCache::BLike(b_like) => b_like.capacity_blocks(),
        }
    }
}

flashwise_core::counts! {
    /// Numbers of requests and their total latency.
    pub struct Latencies {
        /// Read requests.
        pub reads: u64,
        /// Total latency of reads.
        pub reads_ns: u64,
        /// Requests that write, trim or zero.
        pub writes: u64,
        /// Total latency of writes.
        pub writes_ns: u64,
        /// Bytes read and written.
        pub bytes: u64,
        /// Time until the last request was answered.
        pub elapsed_ns: u64,
    }

    /// Counts that only caches of buckets have.
    pub struct Buckets {
        /// Counts of requests, flash and backend.
        pub figures: Figures,
        /// Latencies of requests, if each comes when the previous one is answered.
        pub latencies: Latencies,
    }
}

impl Latencies {
    #[inline]
    pub(super) fn record(&mut self, kind: Kind, length: u64, ns: u64) {
        match kind {
            Kind::Read | Kind::Prefetch => (self.reads, self.reads_ns) = (self.reads + 1, self.reads_ns + ns),
            Kind::Write | Kind::Trim | Kind::WriteZeroes { .. } => {
                (self.writes, self.writes_ns) = (self.writes + 1, self.writes_ns + ns);
            }
            Kind::Flush => return,
        }
        if matches!(kind, Kind::Read | Kind::Write) {
            self.bytes += length;
        }
    }
}

impl Buckets {
    /// Returns the counts of a WLFC whose buckets have so many erase blocks.
    pub(super) fn of_wlfc(wlfc: &Wlfc, latencies: Latencies, unit_blocks: u32) -> Counts {
        let figures = cache::Cache::figures(wlfc);
        Buckets { figures, latencies }.counts(figures.resets * u64::from(unit_blocks))
    }

    /// Returns the counts of a cache of buckets that caused this many erasures. Blocks that fill pages count as
    /// metadata.
    pub(super) fn counts(self, erasures: u64) -> Counts {
        let figures = &self.figures;
        let (reads, writes) = (figures.read_blocks, figures.written_blocks);
        let write_admissions = writes - figures.passed_blocks - figures.write_hits;
        let op = |hits, fills, bypasses| OpCounters { hits, fills, replacements: 0, bypasses };
        let missed = reads - figures.ram_hits - figures.read_hits - figures.read_admissions;
        Counts {
            reads,
            writes,
            read_hits: figures.ram_hits + figures.read_hits,
            write_hits: figures.write_hits,
            ram_hits: figures.ram_hits,
            counters: Counters::of_ops([
                op(figures.read_hits, figures.read_admissions, 0),
                op(figures.write_hits, write_admissions, figures.passed_blocks),
            ]),
            answered: account::Counts {
                hits: [figures.read_hits, figures.write_hits],
                admissions: [figures.read_admissions, write_admissions],
                bypasses: [missed, figures.passed_blocks],
                written_back: figures.backend_written_blocks - figures.passed_blocks,
            },
            tally: Tally {
                flash_writes: FlashWrites {
                    client_blocks: figures.log_blocks,
                    admission_blocks: figures.copy_blocks - figures.copy_forward_blocks,
                    copy_forward_blocks: figures.copy_forward_blocks,
                    metadata_blocks: figures.metadata_blocks + figures.padding_blocks,
                },
                ..Tally::default()
            },
            device: DeviceCounters { erasures, ..DeviceCounters::default() },
            buckets: Some(self),
            ..Counts::default()
        }
    }
}

/// Runs a cache on flash of this many bytes over requests with this many block accesses. Warm-up and epochs end with
/// the request in which they reach their length. Requests come one after another, or wait as in a server if they have
/// `times`. Returns the result and the cache's capacity in blocks. Without `times`, its time is that of the last
/// answer.
///
/// # Errors
/// The settings make no cache.
///
/// # Panics
/// B_like has `times`, or the arrivals are [`Arrivals::None`].
pub fn run_buckets<E: From<BucketError>>(
    settings: &BucketSettings,
    system: System,
    flash_bytes: u64,
    (counting, accesses): (Counting, usize),
    times: Option<Times<'_>>,
    requests: impl FnOnce(&mut dyn FnMut(&CacheRequest)) -> Result<(), E>,
) -> Result<(Ran, u64), E> {
    assert!(times.is_none() || system != System::BLike, "B_like has no times");
    let mut cache = settings.build(system, flash_bytes, times)?;
    let mut stretches = Stretches::new(counting, accesses);
    let mut time_us = 0;
    requests(&mut |request| {
        time_us = request.time_us.max(time_us);
        cache.await_arrival(request);
        let now_us = cache.now_us().unwrap_or(time_us);
        let counted = stretches.at(cache.accesses(), now_us, || cache.counts(), || None);
        cache.request(request, counted);
    })?;
    if let BucketCache::InTime(run, _) = &mut cache {
        run.await_answers();
    }
    let (now_us, counts, capacity_blocks) =
        (cache.now_us().unwrap_or(time_us), cache.counts(), cache.capacity_blocks());
    let waits = if let BucketCache::InTime(run, _) = &mut cache { Some(run.finish()) } else { None };
    Ok((stretches.end(now_us, counts, waits, None), capacity_blocks))
}
