//! What a volume is made of, and the cache that comes of it.

use std::path::{Path, PathBuf};

use flashwise_core::admission;
use flashwise_core::array::Array;
use flashwise_core::cache::{self, Config, CopyForward, Mode};
use flashwise_core::filter::Filter;
use flashwise_core::format::Geometry;
use flashwise_core::policy::Spec;

use super::BLOCK;
use crate::attach::stores::default_state_directory;

/// What a volume is made of. Sizes are in bytes, multiples of 4,096.
#[derive(Clone, Debug)]
pub struct VolumeConfig {
    /// Its name: the NBD export.
    pub name: String,
    /// Further names of the NBD export.
    pub aliases: Vec<String>,
    /// Whose requests are cached.
    pub filter: Filter,
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
    /// The admission rule in front of it, if there is one.
    pub admission: Option<admission::Spec>,
    /// What rules that adapt take the devices for. How large these are, flash and volume say.
    pub array: Array,
    /// When written data reaches the backend.
    pub write_mode: Mode,
    /// Share of the flash that is kept free of wanted blocks, 0 to 0.9.
    pub over_provision: f64,
    /// What is copied forward of an erase unit that is reset.
    pub copy_forward: CopyForward,
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
    /// An operator's name for the backend, where nothing else tells it from another, or a copy stands in for it.
    pub backend_id: Option<String>,
    /// Where the records of backends are kept that have no room for their own.
    pub state_directory: PathBuf,
    /// Whether an operator has given up what a cache holds that is not here.
    pub discard_cache: bool,
    /// Flushes are answered and not done: to show that the tests of durability find lost data. Loses data.
    pub unsafe_ignore_flushes: bool,
    /// Every read and write of the backend takes this long, one at a time: stands for a disk in benchmarks.
    pub backend_delay_us: u64,
}

impl VolumeConfig {
    /// A volume of a backend and a flash, by paths, with the defaults for all else.
    pub fn of(name: &str, backend: &Path, flash: &Path) -> VolumeConfig {
        VolumeConfig {
            name: name.to_owned(),
            aliases: Vec::new(),
            filter: Filter::default(),
            backend: backend.to_owned(),
            size_bytes: None,
            flash: flash.to_owned(),
            flash_size_bytes: None,
            erase_unit_bytes: 2 << 20,
            ram_bytes: 128 << 20,
            write_buffer_share: 0.5,
            policy: Spec::parse("larc").expect("a policy of the table"),
            admission: None,
            array: flashwise_device::paper(),
            write_mode: Mode::WriteBack,
            over_provision: 0.1,
            copy_forward: CopyForward::default(),
            dirty_high: 0.5,
            dirty_low: 0.4,
            dirty_age_us: 15 * 60_000_000,
            commit_age_us: 5_000_000,
            sequential_bytes: 4 << 20,
            discard: false,
            direct_io: true,
            drive_writes_per_day: None,
            warranty_years: 5.0,
            backend_id: None,
            state_directory: default_state_directory(),
            discard_cache: false,
            unsafe_ignore_flushes: false,
            backend_delay_us: 0,
        }
    }

    /// All names that clients can open it by, its own first.
    pub fn export_names(&self) -> Vec<String> {
        std::iter::once(&self.name).chain(&self.aliases).cloned().collect()
    }
}

/// The cache of a volume of `size_bytes` on a flash of `geometry`.
pub(super) fn cache_config(config: &VolumeConfig, geometry: Geometry, size_bytes: u64) -> Config {
    let admission = config.admission.clone();
    let ram_blocks = config.ram_bytes / BLOCK;
    let write_buffer = (ram_blocks as f64 * config.write_buffer_share) as u32;
    Config {
        admission: admission.map(|rule| cache::admission(rule, &config.array, &geometry, size_bytes)),
        mode: config.write_mode,
        read_buffer_blocks: ram_blocks as u32 - write_buffer,
        write_buffer_blocks: write_buffer,
        over_provision: config.over_provision,
        copy_forward: config.copy_forward,
        dirty_high: config.dirty_high,
        dirty_low: config.dirty_low,
        dirty_age_us: config.dirty_age_us,
        commit_age_us: config.commit_age_us,
        sequential_blocks: (config.sequential_bytes / BLOCK) as u32,
        ..Config::new(geometry, config.policy.clone())
    }
}
