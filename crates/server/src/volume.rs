//! A volume: a backend behind its cache, as an [`Export`] that clients read and write.

use std::path::PathBuf;

use flashwise_core::cache::Mode;
use flashwise_core::policy::Spec;

/// What a volume is made of. Sizes are in bytes, multiples of 4,096.
#[derive(Clone, Debug)]
pub struct VolumeConfig {
    /// Its name: the NBD export.
    pub name: String,
    /// The slow storage: a regular file or a block device.
    pub backend: PathBuf,
    /// The volume's size; the backend's if `None`.
    pub size_bytes: Option<u64>,
    /// The flash: a block device, or a regular file, which is made if it is missing.
    pub flash: PathBuf,
    /// How much of the flash is used; all of it if `None`.
    pub flash_size_bytes: Option<u64>,
    /// Size of an erase unit.
    pub erase_unit_bytes: u64,
    /// RAM for the read and the write buffer together.
    pub ram_bytes: u64,
    /// The share of that for the write buffer, 0 to 1.
    pub write_buffer_share: f64,
    /// The replacement policy.
    pub policy: Spec,
    /// When written data reaches the backend.
    pub write_mode: Mode,
    /// Share of the flash that is kept free of wanted blocks, 0 to 0.9.
    pub over_provision: f64,
    /// The cleaner starts above this share of dirty blocks, and stops at the other.
    pub dirty_high: f64,
    /// See `dirty_high`.
    pub dirty_low: f64,
    /// Blocks that have been dirty for longer are written back.
    pub dirty_age_us: u64,
    /// Acknowledged writes reach flash or backend within this time, flushed or not.
    pub commit_age_us: u64,
    /// Sequential streams longer than this bypass the flash; 0 for never.
    pub sequential_bytes: u64,
    /// Whether erase units are discarded when they are reset.
    pub discard: bool,
    /// Whether files bypass the page cache where they can.
    pub direct_io: bool,
    /// Drive writes per day that the flash is rated for, over its warranty.
    pub drive_writes_per_day: Option<f64>,
    /// The years of that warranty.
    pub warranty_years: f64,
    /// Every read and write of the backend takes this long, one at a time: stands for a disk in benchmarks.
    pub backend_delay_us: u64,
}
