//! What a running server says of itself: the one set of figures behind `flashwise status`, the JSON API and the metrics.

use serde::{Deserialize, Serialize};

/// A volume at a moment. Counts are since its cache was opened by this process, in blocks of 4,096 bytes unless they say otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VolumeStatus {
    /// The volume's name: its NBD export.
    pub name: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Where the slow storage is.
    pub backend: String,
    /// Where the flash is.
    pub flash: String,
    /// Replacement policy with its options.
    pub policy: String,
    /// `write-back`, `write-through` or `write-around`.
    pub write_mode: String,
    /// `ok`; `flash-failed`: reads are served, writes refused; `detaching`; `detached`.
    pub state: String,
    /// Seconds since the volume was opened.
    pub uptime_seconds: f64,
    /// Blocks that clients read.
    pub read_blocks: u64,
    /// Blocks that clients wrote.
    pub written_blocks: u64,
    /// Reads served from RAM.
    pub ram_read_hits: u64,
    /// Reads served from flash.
    pub flash_read_hits: u64,
    /// Writes to blocks that waited in the write buffer.
    pub ram_write_hits: u64,
    /// Reads served from RAM or flash, 0 to 1.
    pub read_hit_ratio: f64,
    /// Flash writes because clients wrote.
    pub flash_client_blocks: u64,
    /// Flash writes because the policy admitted blocks.
    pub flash_admission_blocks: u64,
    /// Flash writes because wanted blocks were moved out of units that were reset.
    pub flash_copy_forward_blocks: u64,
    /// Flash writes of metadata.
    pub flash_metadata_blocks: u64,
    /// All flash writes, in bytes.
    pub flash_written_bytes: u64,
    /// Erase units reset.
    pub erasures: u64,
    /// Flash writes per day at the rate so far, in bytes; 0 in the first second.
    pub flash_written_bytes_per_day: f64,
    /// Drive writes per day that this is.
    pub drive_writes_per_day: f64,
    /// Drive writes per day that the flash is rated for, if the configuration says so.
    pub drive_writes_per_day_rated: Option<f64>,
    /// Years until the rated writes are used up at the rate so far, if a rating is known.
    pub lifetime_years: Option<f64>,
    /// Blocks read from the backend.
    pub backend_read_blocks: u64,
    /// Blocks that clients' writes sent to the backend past the flash.
    pub backend_written_blocks: u64,
    /// Blocks written back.
    pub destaged_blocks: u64,
    /// Blocks of sequential streams that bypassed the flash.
    pub sequential_blocks: u64,
    /// Flushes that clients asked for.
    pub flushes: u64,
    /// Size of the flash, in bytes.
    pub flash_bytes: u64,
    /// Most blocks that the policy may keep on flash.
    pub capacity_blocks: u64,
    /// Blocks with a copy on flash.
    pub cached_blocks: u64,
    /// Blocks on flash that are newer than the backend's.
    pub dirty_blocks: u64,
    /// The same in bytes, with what waits in RAM.
    pub dirty_bytes: u64,
    /// Blocks that wait in the write buffer.
    pub buffered_blocks: u64,
    /// Blocks whose only copy was lost; reading them is an error.
    pub lost_blocks: Vec<u64>,
    /// Memory that the cache's tables and buffers take, in bytes.
    pub memory_bytes: u64,
    /// Failures of devices.
    pub faults: FaultsStatus,
    /// Requests by kind, with how long they took.
    pub latencies: Vec<LatencyStatus>,
}

/// Failures of devices since the volume was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
}

/// A server at a moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerStatus {
    /// Version of the program.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Connections that are open.
    pub connections: u64,
    /// Where clients connect, as NBD URIs.
    pub listening: Vec<String>,
    /// Its volumes.
    pub volumes: Vec<VolumeStatus>,
}
