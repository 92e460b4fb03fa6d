//! The status of a running server: one set of figures for `flashwise status`, the JSON API and the metrics.

use std::collections::BTreeMap;

use flashwise_core::cache::{Figures, Reads};
use flashwise_core::filter::Client;
use flashwise_core::human;
use flashwise_core::tiers::YEAR_DAYS;
use flashwise_core::words;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::export::{Guest, Requested};

pub use crate::load::BackendLoad;

words! {
    /// The state of a volume.
    #[derive(Default, Serialize, Deserialize, ToSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum VolumeState {
        /// Everything works.
        #[default]
        Ok "ok",
        /// The flash failed and holds dirty blocks: reads are served, writes fail.
        FlashFailed "flash-failed",
        /// The flash failed without dirty blocks, and the volume continues without it.
        WithoutFlash "without-flash",
        /// All reads, all writes or all flushes of the backend have failed for at least 5 seconds.
        BackendFailed "backend-failed",
        /// Dirty blocks are being written back, so that the volume can continue without its flash.
        Detaching "detaching",
        /// The volume continues without its flash, on request.
        Detached "detached",
    }
}

impl VolumeState {
    /// True if the volume continues without its flash.
    pub fn is_without_flash(self) -> bool {
        matches!(self, VolumeState::WithoutFlash | VolumeState::Detached)
    }
}

/// The status of a volume. Counts start when this process opened the cache, and are in blocks of 4,096 bytes unless a
/// field has another unit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VolumeStatus {
    /// The volume's name: its NBD export.
    pub name: String,
    /// Size in bytes; for the cache of a pool, the space for data on its disks.
    pub size_bytes: u64,
    /// The path of the backend.
    pub backend: String,
    /// The path of the flash; empty without one.
    pub flash: String,
    /// Layout of the cache on flash: `log` or `wlfc`.
    #[serde(default)]
    pub layout: String,
    /// Replacement policy with its options; `wlfc` for layout wlfc, which has its own.
    pub policy: String,
    /// Admission rule with its options, or `none`.
    pub admission: String,
    /// The current choice of an adaptive admission rule: `p=0.25`, `max=64KiB`, `min=3`, `everything`, or
    /// `policy larc`.
    pub admission_choice: Option<String>,
    /// The threshold of that choice: a probability, blocks or references; absent without one, or before the first
    /// decision.
    pub admission_threshold: Option<f64>,
    /// Number of decisions of an adaptive admission rule.
    pub admission_decisions: u64,
    /// `write-back`, `write-through` or `write-around`.
    pub write_mode: String,
    /// The order of write-back: `none`, `barriers` or `journal`; empty for layout `wlfc`.
    #[serde(default)]
    pub write_back_order: String,
    /// The state of the backend without its flash. Absent without a flash, and if data is written back in any order.
    #[serde(default)]
    pub backend_state: Option<BackendStatus>,
    /// Default for clients that no rule names: `all` are cached or `none`.
    pub cache_clients: String,
    /// Rules of the allow list, separated by commas, or `none`.
    pub allow_clients: String,
    /// Rules of the deny list, separated by commas, or `none`.
    pub deny_clients: String,
    /// The clients that have the volume open.
    pub clients: Vec<ClientStatus>,
    /// The volume's state.
    pub state: VolumeState,
    /// The failed device and its last error; for a backend, also the time of the failure. Absent without a failure.
    pub state_reason: Option<String>,
    /// Seconds since the volume was opened.
    pub uptime_seconds: f64,
    /// Blocks that clients read.
    pub reads: u64,
    /// Blocks that clients wrote.
    pub writes: u64,
    /// Reads served from RAM.
    pub ram_read_hits: u64,
    /// Reads served from flash.
    pub flash_read_hits: u64,
    /// Reads served from RAM or flash, 0 to 1.
    pub read_hit_ratio: f64,
    /// Figures of the cache, with the names of `flashwise simulate`.
    #[serde(flatten)]
    pub cache: CacheStatus,
    /// Number of writes of neighbouring blocks to the log because of clients. One is a request, or the blocks that
    /// leave the write buffer together.
    pub flash_write_requests: u64,
    /// All flash writes, in bytes.
    pub flash_bytes_written: u64,
    /// Erase units reset.
    pub erasures: u64,
    /// Flash writes per day at the rate so far, in bytes; 0 in the first second.
    pub flash_bytes_per_day: f64,
    /// Drive writes per day at this rate.
    pub drive_writes_per_day: f64,
    /// The rated drive writes per day of the flash, if configured.
    pub drive_writes_per_day_rated: Option<f64>,
    /// Years until the rated writes of the flash are used up at the rate so far. Writes over its whole life count, as
    /// in `write_budget`. Absent without a rating, writes or flash, and in the first hour, whose rate says little.
    pub lifetime_years_rated: Option<f64>,
    /// The budget of flash writes and its use; absent without a budget and a rating.
    #[serde(default)]
    pub write_budget: Option<WriteBudgetStatus>,
    /// Blocks read or written that missed, and that the admission rule or the policy rejected.
    pub bypasses: u64,
    /// Total delay of answers to writes, to limit dirty blocks to what the backend can take.
    pub throttled_seconds: f64,
    /// Requests in progress.
    pub queue_depth: u64,
    /// Blocks that are being written back.
    pub destaging_blocks: u64,
    /// Flushes requested by clients.
    pub flushes: u64,
    /// Size of the flash, in bytes.
    pub flash_bytes: u64,
    /// Maximum number of blocks that the policy keeps on flash.
    pub capacity_blocks: u64,
    /// Maximum number of blocks on flash: those that the policy keeps, and evicted ones that are not yet overwritten.
    pub flash_room_blocks: u64,
    /// Blocks with a copy on flash, kept by the policy or not: at most `flash_room_blocks`.
    pub cached_blocks: u64,
    /// Dirty blocks on flash.
    pub dirty_blocks: u64,
    /// Dirty data on flash and in RAM, in bytes.
    pub dirty_bytes: u64,
    /// Blocks that wait in the write buffer.
    pub buffered_blocks: u64,
    /// Age of the oldest dirty block on flash in seconds, or up to a tenth of `dirty-age` more. Absent without dirty
    /// blocks, and for layout `wlfc`.
    pub oldest_dirty_seconds: Option<f64>,
    /// Estimated time until a detach is complete, in seconds, at the rate of the last seconds. Absent while that is
    /// unknown, and for layout `wlfc`.
    pub detach_remaining_seconds: Option<f64>,
    /// Transfers of the backend.
    #[serde(default)]
    pub backend_load: BackendLoad,
    /// Blocks whose only copy is lost; reads of them fail.
    pub lost_blocks: Vec<u64>,
    /// Acknowledged blocks that wait in memory because no device accepts them. Flushes fail until they are written.
    #[serde(default)]
    pub unwritten_blocks: u64,
    /// Memory used by the process, in bytes.
    pub memory_bytes: u64,
    /// Device failures.
    pub faults: FaultsStatus,
    /// Latencies by kind of request.
    pub latencies: Vec<LatencyStatus>,
    /// Keys of settings that were changed since the server started. The next start uses the configuration's values.
    pub changed_settings: Vec<String>,
    /// True if a running server created it, so that it is not in the configuration.
    #[serde(default)]
    pub made: bool,
    /// True if an operator attached the detached flash again: the next start uses it.
    #[serde(default)]
    pub attaches_at_start: bool,
}

/// The state of the backend without its flash, if data is written back in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BackendStatus {
    /// False if it is a mixture of old and new blocks: some that were dirty before the order began are not written back
    /// yet.
    pub is_consistent: bool,
    /// The moment of its consistent state, in seconds since 1970. Absent if that is unknown.
    pub consistent_seconds: Option<f64>,
    /// The age of that state in seconds.
    pub age_seconds: Option<f64>,
    /// The maximum of this age: `dirty-age`.
    pub age_seconds_max: f64,
    /// Blocks that are newer than the backend's, and lost with the flash.
    pub newer_blocks: u64,
}

impl BackendStatus {
    /// True if it is older than it may be.
    pub fn is_late(&self) -> bool {
        self.age_seconds.is_some_and(|age| age > self.age_seconds_max)
    }

    /// Describes the backend in words that follow "the backend is". `since` describes the time since the moment in
    /// seconds since 1970.
    pub fn described(&self, since: impl FnOnce(f64) -> String) -> String {
        match self.consistent_seconds {
            _ if !self.is_consistent => "a mixture of old and new blocks: some that were dirty before the order began \
                are not written back"
                .to_owned(),
            Some(moment) => format!("consistent as of {}{}", human::utc(moment), since(moment)),
            None => "consistent as of an unknown moment".to_owned(),
        }
    }
}

/// A budget of flash writes, per day and over the life of the flash. It is the budget of the admission rule, or else
/// the rated drive writes per day, which no rule enforces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WriteBudgetStatus {
    /// The source of the counts: `drive` for the drive's counter (SMART), which includes writes of others, or
    /// `flashwise`.
    pub source: String,
    /// Bytes that may be written per day.
    pub bytes_per_day: f64,
    /// Bytes written today; days begin at 00:00 UTC.
    pub today_bytes: u64,
    /// Writes of today as a share of the daily budget.
    pub today_used: f64,
    /// Days since the account began.
    pub life_days: f64,
    /// Bytes written since then, over all starts of the server.
    pub life_bytes: u64,
    /// These writes as a share of the budget since then.
    pub life_used: f64,
    /// Bytes written to the drive over its whole life, by its own counter; absent if it has none.
    pub drive_bytes: Option<u64>,
}

macro_rules! cache_status {
    (
        [$($(#[doc = $of_flash_meaning:literal])+ $of_flash:ident: u64, $of_flash_unit:literal $(, $of_flash_head:literal, $of_flash_note:literal)?;)*]
        [$($(#[doc = $of_log_meaning:literal])+ $of_log:ident: u64, $of_log_unit:literal $(, $of_log_head:literal, $of_log_note:literal)?;)*]
    ) => {
        /// Figures of the cache since it was opened; a simulated cache has the same.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
        #[serde(default)]
        pub struct CacheStatus {
            $($(#[doc = $of_flash_meaning])+ pub $of_flash: u64,)*
            $($(#[doc = $of_log_meaning])+ pub $of_log: u64,)*
        }

        impl CacheStatus {
            /// Their names, meanings and values, in order.
            pub const FIGURES: &[CacheFigure] = &[
                $(CacheFigure { name: stringify!($of_flash), meaning: &[$($of_flash_meaning),+], value: |cache| cache.$of_flash },)*
                $(CacheFigure { name: stringify!($of_log), meaning: &[$($of_log_meaning),+], value: |cache| cache.$of_log },)*
            ];
        }

        impl std::ops::AddAssign<&CacheStatus> for CacheStatus {
            fn add_assign(&mut self, other: &CacheStatus) {
                $(self.$of_flash += other.$of_flash;)*
                $(self.$of_log += other.$of_log;)*
            }
        }

        impl From<&Figures> for CacheStatus {
            fn from(figures: &Figures) -> CacheStatus {
                CacheStatus { $($of_flash: figures.$of_flash,)* $($of_log: figures.$of_log,)* }
            }
        }
    };
}

flashwise_core::cache_figures! { cache_status! {} }

/// A figure that running and simulated caches share, in blocks.
#[derive(Clone, Copy, Debug)]
pub struct CacheFigure {
    /// Its name in every output.
    pub name: &'static str,
    /// Its meaning, in sentences.
    pub meaning: &'static [&'static str],
    /// Its value.
    pub value: fn(&CacheStatus) -> u64,
}

/// A client that has a volume open, and the treatment of its requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClientStatus {
    /// The number of its connection, for requests to disconnect it.
    #[serde(default)]
    pub number: Option<u64>,
    /// The export that it opened.
    pub export: String,
    /// Its protocol: `nbd` or `iscsi`.
    #[serde(default)]
    pub protocol: String,
    /// The name of its iSCSI initiator.
    #[serde(default)]
    pub initiator: Option<String>,
    /// `usual`: cached, except sequential streams; `always`: cached; `never`: not cached.
    pub caching: String,
    /// Its network address.
    pub address: Option<String>,
    /// Its process, if it runs on this machine.
    pub pid: Option<u32>,
    /// The user of that process.
    pub uid: Option<u32>,
    /// The group of that user.
    pub gid: Option<u32>,
    /// The name of its program.
    pub program: Option<String>,
    /// The names in its TLS certificate.
    pub tls_names: Vec<String>,
    /// Its requests since it opened the export.
    #[serde(default)]
    pub requests: u64,
    /// Bytes requested by its reads.
    #[serde(default)]
    pub read_bytes: u64,
    /// Bytes requested by its writes.
    #[serde(default)]
    pub written_bytes: u64,
}

impl ClientStatus {
    /// The status of a client.
    pub fn of(guest: &Guest) -> ClientStatus {
        let Client { connection, export, protocol, initiator, pid, uid, gid, program, address, tls_names } =
            guest.client().clone();
        let Requested { requests, read_bytes, written_bytes } = guest.requested();
        ClientStatus {
            number: connection,
            export,
            protocol: protocol.to_owned(),
            initiator,
            caching: guest.caching().name().to_owned(),
            address: address.map(|address| address.to_string()),
            pid,
            uid,
            gid,
            program,
            tls_names,
            requests,
            read_bytes,
            written_bytes,
        }
    }
}

/// Failures of devices since the volume was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FaultsStatus {
    /// Failed reads of the flash.
    pub flash_read_errors: u64,
    /// Blocks read from flash with a wrong checksum.
    pub flash_checksum_errors: u64,
    /// Failed writes and flushes of the flash.
    pub flash_write_errors: u64,
    /// Failed reads of the backend.
    pub backend_read_errors: u64,
    /// Failed writes and flushes of the backend.
    pub backend_write_errors: u64,
    /// Requests answered with an error.
    pub failed_requests: u64,
}

/// Latencies of one kind of request, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LatencyStatus {
    /// `read`, `write`, `flush`, `trim`, `write-zeroes` or `cache`.
    pub operation: String,
    /// Requests answered.
    pub count: u64,
    /// Mean.
    pub mean_us: f64,
    /// Median.
    pub p50_us: u64,
    /// 99th percentile.
    pub p99_us: u64,
    /// 99.9th percentile.
    pub p999_us: u64,
    /// Longest.
    pub max_us: u64,
    /// Sum of all latencies, for the metrics.
    #[serde(skip)]
    pub sum_us: u64,
    /// Numbers of requests by rising bounds, for the metrics. Requests above the last bound are in no bucket.
    #[serde(skip)]
    pub buckets: Vec<LatencyBucket>,
}

/// Requests with a latency up to a bound, and above the next lower bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyBucket {
    /// The bound.
    pub us_max: u64,
    /// Requests.
    pub count: u64,
}

words! {
    /// The state of a recording.
    #[derive(Default, Serialize, Deserialize, ToSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum RecordingState {
        /// Requests are recorded.
        #[default]
        Recording "recording",
        /// Recording has stopped until segments are removed.
        Full "full",
        /// A write failed, and recording has stopped.
        Failed "failed",
    }
}

/// A server's recording of requests, for `flashwise simulate`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RecordingStatus {
    /// The path in the configuration, which gives the segments their names.
    pub path: String,
    /// The current segment; absent before the first one of this start.
    pub segment: Option<String>,
    /// The recording's state.
    pub state: RecordingState,
    /// Size of all segments, including those of earlier starts.
    pub size_bytes: u64,
    /// Maximum size of all segments.
    pub size_bytes_max: u64,
    /// Requests of this start that were recorded.
    pub recorded_requests: u64,
    /// Requests of this start that are missing: recording was too slow, failed, or had no space.
    pub dropped_requests: u64,
    /// The reason if recording has stopped.
    pub error: Option<String>,
}

/// The status of a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ServerStatus {
    /// Version of the program.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Open connections.
    pub connections: u64,
    /// Memory that requests and answers of all connections hold, in bytes.
    pub request_memory_bytes: u64,
    /// Its limit in bytes: `memory-max`.
    pub request_memory_bytes_max: u64,
    /// Number of times that each limit was reached since the server started.
    #[serde(default)]
    pub limits_reached: BTreeMap<String, u64>,
    /// Addresses for clients, as NBD or iSCSI URIs.
    pub listening: Vec<String>,
    /// Addresses where other machines can read and write every volume without authentication, as `insecure` allows.
    #[serde(default)]
    pub insecure: Vec<String>,
    /// The recording of requests, if enabled.
    pub recording: Option<RecordingStatus>,
    /// Its volumes.
    pub volumes: Vec<VolumeStatus>,
    /// Volumes that could not be opened when the server started.
    #[serde(default)]
    pub unserved_volumes: Vec<Unserved>,
    /// Pools that could not be opened when the server started.
    #[serde(default)]
    pub unserved_pools: Vec<Unserved>,
    /// The volumes that `flashwise demo --page` compares; absent in service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comparison: Option<Comparison>,
}

/// Two volumes that receive the same requests, for a comparison of their figures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Comparison {
    /// Name of the volume with a cache.
    pub cached: String,
    /// Name of the volume without a cache.
    pub uncached: String,
}

/// A known volume or pool that is not served.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Unserved {
    /// Its name.
    pub name: String,
    /// The reason, and possible remedies.
    pub reason: String,
    /// True if a running server made it: deleting it forgets it.
    #[serde(default)]
    pub made: bool,
}

/// The rated endurance of a flash device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rating {
    /// Writes of the whole device per day.
    pub drive_writes_per_day: f64,
    /// The duration of the warranty in years.
    pub warranty_years: f64,
}

const DAY_SECONDS: f64 = 86_400.0;

impl VolumeStatus {
    /// Continues the counts from before the flash was removed.
    pub(crate) fn go_on_from(&mut self, before: &VolumeStatus) {
        for (count, before) in [
            (&mut self.reads, before.reads),
            (&mut self.writes, before.writes),
            (&mut self.ram_read_hits, before.ram_read_hits),
            (&mut self.flash_read_hits, before.flash_read_hits),
            (&mut self.flash_write_requests, before.flash_write_requests),
            (&mut self.flash_bytes_written, before.flash_bytes_written),
            (&mut self.erasures, before.erasures),
            (&mut self.bypasses, before.bypasses),
            (&mut self.flushes, before.flushes),
        ] {
            *count += before;
        }
        self.cache += &before.cache;
        self.throttled_seconds += before.throttled_seconds;
        let reads = Reads { blocks: self.reads, ram_hits: self.ram_read_hits, flash_hits: self.flash_read_hits };
        self.read_hit_ratio = reads.hit_ratio();
        if self.flash_bytes == 0 {
            (self.flash_bytes, self.capacity_blocks) = (before.flash_bytes, before.capacity_blocks);
            self.flash_room_blocks = before.flash_room_blocks;
        }
    }

    /// Computes the fields that depend on time: `uptime_seconds`, flash writes per day, drive writes per day and
    /// lifetime. Needs `state`, `flash_bytes_written`, `flash_bytes` and `write_budget`.
    pub fn set_wear(&mut self, uptime_seconds: f64, rating: Option<Rating>) {
        self.uptime_seconds = uptime_seconds;
        self.flash_bytes_per_day = bytes_per_day(self.flash_bytes_written, uptime_seconds);
        self.drive_writes_per_day = drive_writes_per_day(self.flash_bytes_per_day, self.flash_bytes);
        self.drive_writes_per_day_rated = rating.map(|rating| rating.drive_writes_per_day);
        let over_life = self.write_budget.as_ref().map_or(0, |budget| budget.life_bytes);
        let written_bytes = over_life.max(self.flash_bytes_written);
        let known = uptime_seconds >= RATE_KNOWN_SECONDS && !self.state.is_without_flash();
        self.lifetime_years_rated = rating
            .filter(|_| known)
            .and_then(|rating| lifetime_years(rating, self.flash_bytes, written_bytes, self.flash_bytes_per_day));
    }
}

/// Minimum uptime in seconds for an estimated lifetime.
pub const RATE_KNOWN_SECONDS: f64 = 3600.0;

/// Returns bytes per day at the rate so far; 0 in the first second, whose rate says little.
pub fn bytes_per_day(written_bytes: u64, elapsed_seconds: f64) -> f64 {
    if elapsed_seconds < 1.0 { 0.0 } else { written_bytes as f64 * DAY_SECONDS / elapsed_seconds }
}

/// Returns the number of complete writes of a device of `flash_bytes` per day.
pub fn drive_writes_per_day(bytes_per_day: f64, flash_bytes: u64) -> f64 {
    if flash_bytes == 0 { 0.0 } else { bytes_per_day / flash_bytes as f64 }
}

/// Returns the years until the rated writes of a device of `flash_bytes` are used up, after `written_bytes`. `None`
/// without writes.
pub fn lifetime_years(rating: Rating, flash_bytes: u64, written_bytes: u64, bytes_per_day: f64) -> Option<f64> {
    if bytes_per_day <= 0.0 {
        return None;
    }
    let rated_bytes = rating.drive_writes_per_day * rating.warranty_years * YEAR_DAYS * flash_bytes as f64;
    Some((rated_bytes - written_bytes as f64).max(0.0) / bytes_per_day / YEAR_DAYS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: u64 = 1_000_000_000;

    /// 600 GB in six hours are 2,400 GB a day: 2.4 writes of a drive of 1 TB. Its rating of 1 write a day over 5 years
    /// is 5 * 365 * 1,000 GB = 1,825,000 GB. Without the 600 GB, these last 1,824,400 / 2,400 = 760.1667 days = 2.08265
    /// years.
    #[test]
    fn wear_is_worked_out_from_bytes_and_time() {
        let mut volume =
            VolumeStatus { flash_bytes_written: 600 * GB, flash_bytes: 1000 * GB, ..VolumeStatus::default() };
        volume.set_wear(6.0 * 3600.0, Some(Rating { drive_writes_per_day: 1.0, warranty_years: 5.0 }));
        assert_eq!(volume.uptime_seconds, 21_600.0);
        assert!((volume.flash_bytes_per_day - 2.4e12).abs() < 1.0);
        assert!((volume.drive_writes_per_day - 2.4).abs() < 1e-12);
        assert_eq!(volume.drive_writes_per_day_rated, Some(1.0));
        let years = volume.lifetime_years_rated.unwrap();
        assert!((years - 2.082_648_4).abs() < 1e-6, "{years}");
        // With 12,600 GB more of earlier starts the rest is 1,811,800 GB.
        volume.write_budget = Some(WriteBudgetStatus { life_bytes: 13_200 * GB, ..WriteBudgetStatus::default() });
        volume.set_wear(6.0 * 3600.0, Some(Rating { drive_writes_per_day: 1.0, warranty_years: 5.0 }));
        let years = volume.lifetime_years_rated.unwrap();
        assert!((years - 1_811_800.0 / 2400.0 / YEAR_DAYS).abs() < 1e-9, "{years}");
    }

    #[test]
    fn a_lifetime_needs_an_hour_and_a_flash_in_use() {
        let rating = Some(Rating { drive_writes_per_day: 1.0, warranty_years: 5.0 });
        let mut volume = VolumeStatus { flash_bytes_written: GB, flash_bytes: 1000 * GB, ..VolumeStatus::default() };
        volume.set_wear(RATE_KNOWN_SECONDS - 1.0, rating);
        assert_eq!((volume.lifetime_years_rated, volume.flash_bytes_per_day > 0.0), (None, true));
        volume.set_wear(RATE_KNOWN_SECONDS, rating);
        assert!(volume.lifetime_years_rated.is_some());
        volume.state = VolumeState::Detached;
        volume.set_wear(RATE_KNOWN_SECONDS, rating);
        assert_eq!(volume.lifetime_years_rated, None);
    }

    #[test]
    fn without_time_writes_size_or_rating_there_is_no_figure() {
        let rating = Rating { drive_writes_per_day: 3.0, warranty_years: 5.0 };
        assert_eq!(bytes_per_day(1 << 40, 0.999), 0.0);
        assert_eq!(bytes_per_day(10, 1.0), 864_000.0);
        assert_eq!(drive_writes_per_day(5.0, 0), 0.0);
        assert_eq!(lifetime_years(rating, GB, 0, 0.0), None);
        let mut volume = VolumeStatus { flash_bytes_written: GB, flash_bytes: GB, ..VolumeStatus::default() };
        volume.set_wear(86_400.0, None);
        assert_eq!(
            (volume.drive_writes_per_day, volume.drive_writes_per_day_rated, volume.lifetime_years_rated),
            (1.0, None, None)
        );
    }

    /// Rated for 3 * 365 = 1,095 GB; 2,000 GB are written, so none is left.
    #[test]
    fn a_device_past_its_rating_has_no_lifetime_left() {
        let rating = Rating { drive_writes_per_day: 3.0, warranty_years: 1.0 };
        assert_eq!(lifetime_years(rating, GB, 2000 * GB, 1.0), Some(0.0));
        // Exactly at its rating, a new device lasts as long as its warranty.
        assert_eq!(lifetime_years(rating, GB, 0, 3.0 * GB as f64), Some(1.0));
    }
}
