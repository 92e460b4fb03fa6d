//! What a volume is made of, and the cache that comes of it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flashwise_core::cache::Config;
use flashwise_core::cache::settings::{Devices, Settings};
use flashwise_core::format::{Geometry, Layout};
use flashwise_core::tiers::Array;
use flashwise_engine::engine::Bug;

use super::BLOCK;
use crate::attach::stores::default_state_directory;
use crate::disk::Disk;
use crate::disk::zoned::zoning::Zoning;

/// A disk that the caller has opened.
#[derive(Clone)]
pub struct OpenDisk(pub Arc<dyn Disk>);

impl fmt::Debug for OpenDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.description())
    }
}

/// What a volume is made of. Sizes are in bytes, multiples of 4,096.
#[derive(Clone, Debug)]
pub struct VolumeConfig {
    /// Its name: the NBD export.
    pub name: String,
    /// True if it is the cache of a pool, which has that name.
    pub of_pool: bool,
    /// Further names of the NBD export.
    pub aliases: Vec<String>,
    /// The slow storage: a regular file or a block device.
    pub backend: PathBuf,
    /// The volume's size; the backend's if `None`.
    pub size_bytes: Option<u64>,
    /// The flash: a block device, or a regular file, which is made if it is missing; empty for a volume without one.
    pub flash: PathBuf,
    /// The flash, if the caller has opened it already: it is used in place of the file at `flash`, which only names it.
    pub flash_disk: Option<OpenDisk>,
    /// How much of the flash is used; all of it if `None`.
    pub flash_size_bytes: Option<u64>,
    /// How a file of the flash that is made is divided into zones; not at all if `None`.
    pub flash_zones: Option<Zoning>,
    /// How its cache is laid out on the flash.
    pub layout: Layout,
    /// The settings of its cache.
    pub cache: Settings,
    /// What rules that adapt take the devices for. How large these are, flash and volume say.
    pub array: Array,
    /// True if erase units are discarded when they are reset.
    pub discard: bool,
    /// True if files bypass the page cache where they can.
    pub direct_io: bool,
    /// Drive writes per day that the flash is rated for, over its warranty.
    pub drive_writes_per_day: Option<f64>,
    /// The years of that warranty.
    pub warranty_years: f64,
    /// An operator's name for the backend, where nothing else tells it from another, or a copy stands in for it.
    pub backend_id: Option<String>,
    /// Where the records of backends are kept that have no room for their own.
    pub state_directory: PathBuf,
    /// True if an operator has given up what a cache holds that is not here.
    pub discard_cache: bool,
    /// Flushes are answered and not done: to show that the tests of durability find lost data. Loses data.
    pub unsafe_ignore_flushes: bool,
    /// A bug to plant, so that tests can show that they find it. Never in service.
    pub planted: Option<Bug>,
    /// Every read and write of the backend takes this long, one at a time: stands for a disk in benchmarks.
    pub backend_delay_us: u64,
}

impl VolumeConfig {
    /// A volume of a backend and a flash, by paths, with the defaults for all else.
    pub fn of(name: &str, backend: &Path, flash: &Path) -> VolumeConfig {
        VolumeConfig {
            name: name.to_owned(),
            of_pool: false,
            aliases: Vec::new(),
            backend: backend.to_owned(),
            size_bytes: None,
            flash: flash.to_owned(),
            flash_disk: None,
            flash_size_bytes: None,
            flash_zones: None,
            layout: Layout::Log,
            cache: Settings::default(),
            array: flashwise_device::paper(),
            discard: false,
            direct_io: true,
            drive_writes_per_day: None,
            warranty_years: flashwise_device::offers::WARRANTY_YEARS,
            backend_id: None,
            state_directory: default_state_directory(),
            discard_cache: false,
            unsafe_ignore_flushes: false,
            planted: None,
            backend_delay_us: 0,
        }
    }

    /// What its operator calls it.
    pub fn whose(&self) -> Whose {
        Whose { of_pool: self.of_pool, name: self.name.clone() }
    }

    /// All names that clients can open it by, its own first.
    pub fn export_names(&self) -> Vec<String> {
        std::iter::once(&self.name).chain(&self.aliases).cloned().collect()
    }
}

/// A volume as its operator calls it: by name, and as the pool that it is the cache of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whose {
    of_pool: bool,
    /// Its name.
    pub name: String,
}

impl Whose {
    /// What it is.
    pub fn kind(&self) -> &'static str {
        if self.of_pool { "pool" } else { "volume" }
    }
}

impl fmt::Display for Whose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} '{}'", self.kind(), self.name)
    }
}

/// The cache of a volume of `size_bytes` on a flash of `geometry`.
pub(crate) fn cache_config(config: &VolumeConfig, geometry: Geometry, size_bytes: u64) -> Config {
    config.cache.config(geometry, &devices(config, &geometry, size_bytes))
}

/// What the cache of a volume of `size_bytes` on a flash of `geometry` stands between.
pub(super) fn devices(config: &VolumeConfig, geometry: &Geometry, size_bytes: u64) -> Devices {
    Devices { flash_bytes: u64::from(geometry.pages()) * BLOCK, storage_bytes: size_bytes, array: config.array }
}
