//! What a running server says of itself: the one set of figures behind `flashwise status`, the JSON API and the
//! metrics.

use std::collections::BTreeMap;

use flashwise_core::cache::{Figures, Reads};
use flashwise_core::filter::Client;
use flashwise_core::tiers::YEAR_DAYS;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::export::{Guest, Requested};

pub use crate::load::BackendLoad;

/// The states that something can be in, each with its name in kebab case, which every output has. The first is the one
/// that it begins in.
macro_rules! states {
    ($(#[$meaning:meta])* $name:ident [$count:literal] { $($(#[$of_state:meta])* $state:ident $text:literal,)* }) => {
        $(#[$meaning])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
        #[serde(rename_all = "kebab-case")]
        pub enum $name {
            $($(#[$of_state])* $state,)*
        }

        impl $name {
            /// All of them.
            pub const ALL: [$name; $count] = [$($name::$state),*];

            /// What it is called.
            pub const fn name(self) -> &'static str {
                match self {
                    $($name::$state => $text,)*
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}
pub(crate) use states;

states! {
    /// What state a volume is in.
    VolumeState [6] {
        /// Everything works.
        #[default]
        Ok "ok",
        /// The flash failed, and data is only there: reads are served, writes refused.
        FlashFailed "flash-failed",
        /// The flash failed, nothing was only there, and the volume goes on without it.
        WithoutFlash "without-flash",
        /// All reads, all writes or all flushes of the backend have failed for at least 5 seconds, until one succeeds.
        BackendFailed "backend-failed",
        /// What is dirty is being written back, so that the volume can go on without its flash.
        Detaching "detaching",
        /// The volume was asked to go on without its flash, and does.
        Detached "detached",
    }
}

impl VolumeState {
    /// True if the volume goes on without its flash.
    pub fn is_without_flash(self) -> bool {
        matches!(self, VolumeState::WithoutFlash | VolumeState::Detached)
    }
}

/// A volume at a moment. Counts are since its cache was opened by this process, in blocks of 4,096 bytes unless they
/// say otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VolumeStatus {
    /// The volume's name: its NBD export.
    pub name: String,
    /// Size in bytes; of the cache of a pool, what its disks have for data.
    pub size_bytes: u64,
    /// Where the slow storage is.
    pub backend: String,
    /// Where the flash is; empty for a volume without one.
    pub flash: String,
    /// How its cache is laid out on the flash: `log` or `wlfc`.
    #[serde(default)]
    pub layout: String,
    /// Replacement policy with its options; `wlfc` where the layout has its own.
    pub policy: String,
    /// Admission rule with its options, or `none`.
    pub admission: String,
    /// What an admission rule that adapts holds to now, in words: `p=0.25`, `max=64KiB`, `min=3`, `everything`, or
    /// `policy larc`.
    pub admission_choice: Option<String>,
    /// The threshold behind that: a portion, blocks or references; absent where there is none, or before the first
    /// decision.
    pub admission_threshold: Option<f64>,
    /// How often an admission rule that adapts has decided.
    pub admission_decisions: u64,
    /// `write-back`, `write-through` or `write-around`.
    pub write_mode: String,
    /// Which clients are cached that no rule names: `all` or `none`.
    pub cache_clients: String,
    /// Rules of the allow list with commas between them, or `none`.
    pub allow_clients: String,
    /// Rules of the deny list with commas between them, or `none`.
    pub deny_clients: String,
    /// The clients that have the volume open.
    pub clients: Vec<ClientStatus>,
    /// What state it is in.
    pub state: VolumeState,
    /// Which device failed, with the last error, and since when for a backend; absent while none has.
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
    /// What the cache did, by the names that `flashwise simulate` has for it.
    #[serde(flatten)]
    pub cache: CacheStatus,
    /// Writes of neighbouring blocks that were handed to the log because a client wrote: a request's, or what left the
    /// write buffer together.
    pub flash_write_requests: u64,
    /// All flash writes, in bytes.
    pub flash_bytes_written: u64,
    /// Erase units reset.
    pub erasures: u64,
    /// Flash writes per day at the rate so far, in bytes; 0 in the first second.
    pub flash_bytes_per_day: f64,
    /// Drive writes per day that this is.
    pub drive_writes_per_day: f64,
    /// Drive writes per day that the flash is rated for, if the configuration says so.
    pub drive_writes_per_day_rated: Option<f64>,
    /// Years until the rated writes of a new device are used up at the rate so far, less what was written over its life
    /// as `write_budget` has it. Absent without a rating, without writes, without a flash in use, and in the first
    /// hour, whose rate is no basis for years.
    pub lifetime_years_rated: Option<f64>,
    /// The budget of flash writes and how much of it was used; absent without a budget and a rating.
    #[serde(default)]
    pub write_budget: Option<WriteBudgetStatus>,
    /// Blocks read or written that missed, and that neither admission rule nor policy took in.
    pub bypasses: u64,
    /// Time that answers to writes were held back for, all of them together, so that no more becomes dirty than can be
    /// written back.
    pub throttled_seconds: f64,
    /// Requests that are under way.
    pub queue_depth: u64,
    /// Blocks that are being written back.
    pub destaging_blocks: u64,
    /// Flushes that clients asked for.
    pub flushes: u64,
    /// Size of the flash, in bytes.
    pub flash_bytes: u64,
    /// Most blocks that the policy may keep on flash.
    pub capacity_blocks: u64,
    /// Most blocks that fit on flash: those that the policy keeps, and those that it gave up and that are not
    /// overwritten yet.
    pub flash_room_blocks: u64,
    /// Blocks with a copy on flash, kept by the policy or not: at most `flash_room_blocks`.
    pub cached_blocks: u64,
    /// Blocks on flash that are newer than the backend's.
    pub dirty_blocks: u64,
    /// The same in bytes, with what waits in RAM.
    pub dirty_bytes: u64,
    /// Blocks that wait in the write buffer.
    pub buffered_blocks: u64,
    /// Seconds since the block on flash that has been dirty for longest became dirty, or up to a tenth of `dirty-age`
    /// more; absent if none is dirty, and with layout `wlfc`.
    pub oldest_dirty_seconds: Option<f64>,
    /// While the flash is being detached: how long that still takes in seconds, if dirty blocks are written back as
    /// fast as in the last seconds. Absent before that is known, and with layout `wlfc`.
    pub detach_remaining_seconds: Option<f64>,
    /// Transfers of the backend.
    #[serde(default)]
    pub backend_load: BackendLoad,
    /// Blocks whose only copy was lost; reading them is an error.
    pub lost_blocks: Vec<u64>,
    /// Blocks that were answered and have found no place yet: they wait in memory, and no flush succeeds before.
    #[serde(default)]
    pub unwritten_blocks: u64,
    /// Memory that the process takes, in bytes.
    pub memory_bytes: u64,
    /// Failures of devices.
    pub faults: FaultsStatus,
    /// Requests by kind, with how long they took.
    pub latencies: Vec<LatencyStatus>,
    /// Keys of settings that were changed since the server was started. The next start takes them from the
    /// configuration again.
    pub changed_settings: Vec<String>,
    /// True if a running server made it, so that no configuration has it.
    #[serde(default)]
    pub made: bool,
}

/// A budget of flash writes, per day and over the life of the flash. The budget is that of the admission rule, else the
/// drive writes per day that the flash is rated for, which no rule holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WriteBudgetStatus {
    /// The counter of the writes: `drive` for the drive's own (SMART), which has those of others too, or `flashwise`.
    pub source: String,
    /// Bytes that may be written per day.
    pub bytes_per_day: f64,
    /// Bytes that were written today; days begin at 00:00 UTC.
    pub today_bytes: u64,
    /// Those as a share of the budget of a day.
    pub today_used: f64,
    /// Days since the account began.
    pub life_days: f64,
    /// Bytes that were written since then, over all starts of the server.
    pub life_bytes: u64,
    /// Those as a share of what the budget allowed since then.
    pub life_used: f64,
    /// Bytes that hosts wrote to the drive over all of its life, by its own counter; absent if it has none.
    pub drive_bytes: Option<u64>,
}

macro_rules! cache_status {
    (
        [$($(#[doc = $of_flash_meaning:literal])+ $of_flash:ident: u64, $of_flash_unit:literal $(, $of_flash_head:literal, $of_flash_note:literal)?;)*]
        [$($(#[doc = $of_log_meaning:literal])+ $of_log:ident: u64, $of_log_unit:literal $(, $of_log_head:literal, $of_log_note:literal)?;)*]
    ) => {
        /// What a cache did since it was opened: the figures that it shares with a simulated one.
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
    /// What it means, in sentences.
    pub meaning: &'static [&'static str],
    /// Its value.
    pub value: fn(&CacheStatus) -> u64,
}

/// A client that has a volume open: what is known of it, and what becomes of its requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClientStatus {
    /// The number of its connection, by which it can be disconnected.
    #[serde(default)]
    pub number: Option<u64>,
    /// The export that it opened.
    pub export: String,
    /// The protocol that it speaks: `nbd` or `iscsi`.
    #[serde(default)]
    pub protocol: String,
    /// The name of its iSCSI initiator.
    #[serde(default)]
    pub initiator: Option<String>,
    /// `usual`: cached, but for sequential streams; `always`: cached; `never`: not cached.
    pub caching: String,
    /// Its network address.
    pub address: Option<String>,
    /// Its process, where it is on this machine.
    pub pid: Option<u32>,
    /// The user whose process it is.
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
    /// Bytes that it asked to read.
    #[serde(default)]
    pub read_bytes: u64,
    /// Bytes that it asked to write.
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
    /// Reads of the flash that failed.
    pub flash_read_errors: u64,
    /// Blocks read from flash whose checksum was wrong.
    pub flash_checksum_errors: u64,
    /// Writes and flushes of the flash that failed.
    pub flash_write_errors: u64,
    /// Reads of the backend that failed.
    pub backend_read_errors: u64,
    /// Writes and flushes of the backend that failed.
    pub backend_write_errors: u64,
    /// Requests that were answered with an error.
    pub failed_requests: u64,
}

/// How long requests of one kind took, in microseconds.
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
    /// All of them together; for the metrics.
    #[serde(skip)]
    pub sum_us: u64,
    /// How many took how long, by rising bounds; those above the last are in none. For the metrics.
    #[serde(skip)]
    pub buckets: Vec<LatencyBucket>,
}

/// Requests that took at most as long as a bound, and longer than the bound below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyBucket {
    /// The bound.
    pub us_max: u64,
    /// Requests.
    pub count: u64,
}

states! {
    /// What state a recording is in.
    RecordingState [3] {
        /// Requests are written.
        #[default]
        Recording "recording",
        /// Nothing is written until segments were taken away.
        Full "full",
        /// Writing failed, and nothing is written any more.
        Failed "failed",
    }
}

/// What a server records of its requests, for `flashwise simulate`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RecordingStatus {
    /// The path of the configuration, which the segments are named after.
    pub path: String,
    /// The segment that was written to last; absent before this start's first.
    pub segment: Option<String>,
    /// What state it is in.
    pub state: RecordingState,
    /// What all segments take, those of earlier starts included.
    pub size_bytes: u64,
    /// The most that they may take.
    pub size_bytes_max: u64,
    /// Requests of this start that are in the segments.
    pub recorded_requests: u64,
    /// Requests of this start that are missing there: writing could not keep up, failed, or there was no room.
    pub dropped_requests: u64,
    /// Why nothing is written, if that is so.
    pub error: Option<String>,
}

/// A server at a moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ServerStatus {
    /// Version of the program.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Connections that are open.
    pub connections: u64,
    /// Memory that requests and answers of all connections hold, in bytes.
    pub request_memory_bytes: u64,
    /// Most of it that they may hold, in bytes: `memory-max`.
    pub request_memory_bytes_max: u64,
    /// How often each limit was reached since the server was started.
    #[serde(default)]
    pub limits_reached: BTreeMap<String, u64>,
    /// Where clients connect, as NBD URIs.
    pub listening: Vec<String>,
    /// Those of them where other machines can connect and read and write every volume, as `insecure` allows.
    #[serde(default)]
    pub insecure: Vec<String>,
    /// The recording of its requests, if it makes one.
    pub recording: Option<RecordingStatus>,
    /// Its volumes.
    pub volumes: Vec<VolumeStatus>,
    /// Volumes that could not be opened at the start of the server, while others could.
    #[serde(default)]
    pub unserved_volumes: Vec<Unserved>,
    /// Pools that could not be opened at the start of the server, while others could, or that a running server had
    /// made.
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

/// A volume or a pool that a server knows of and does not serve.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Unserved {
    /// Its name.
    pub name: String,
    /// Why it is not served, and what can be done about it.
    pub reason: String,
}

/// What a flash device is rated for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rating {
    /// How many times the whole device may be written per day.
    pub drive_writes_per_day: f64,
    /// The years for which that holds.
    pub warranty_years: f64,
}

const DAY_SECONDS: f64 = 86_400.0;

impl VolumeStatus {
    /// Counts on from what was counted before the flash was given up.
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

    /// Works out from the counts, after `uptime_seconds`, what depends on time: `uptime_seconds`, flash writes per day,
    /// drive writes per day and the lifetime. Needs `state`, `flash_bytes_written`, `flash_bytes` and `write_budget`.
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

/// Seconds that a volume has to be open before it has a lifetime.
pub const RATE_KNOWN_SECONDS: f64 = 3600.0;

/// Bytes per day at the rate so far; 0 in the first second, when a rate means nothing.
pub fn bytes_per_day(written_bytes: u64, elapsed_seconds: f64) -> f64 {
    if elapsed_seconds < 1.0 { 0.0 } else { written_bytes as f64 * DAY_SECONDS / elapsed_seconds }
}

/// How often per day a device of `flash_bytes` is written in full.
pub fn drive_writes_per_day(bytes_per_day: f64, flash_bytes: u64) -> f64 {
    if flash_bytes == 0 { 0.0 } else { bytes_per_day / flash_bytes as f64 }
}

/// Years until the rated writes of a device of `flash_bytes`, less those already written, are used up; `None` at no
/// writes.
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

    /// 600 GB in six hours are 2,400 GB a day: 2.4 writes of a drive of 1 TB. Rated for 1 write a day over 5 years, it
    /// takes 5 * 365 * 1,000 GB = 1,825,000 GB; less 600 GB those last 1,824,400 / 2,400 = 760.1667 days = 2.08265
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

    /// Rated for 3 * 365 = 1,095 GB, of which 2,000 GB are written: none is left.
    #[test]
    fn a_device_past_its_rating_has_no_lifetime_left() {
        let rating = Rating { drive_writes_per_day: 3.0, warranty_years: 1.0 };
        assert_eq!(lifetime_years(rating, GB, 2000 * GB, 1.0), Some(0.0));
        // Exactly at its rating, a new device lasts as long as its warranty.
        assert_eq!(lifetime_years(rating, GB, 0, 3.0 * GB as f64), Some(1.0));
    }
}
