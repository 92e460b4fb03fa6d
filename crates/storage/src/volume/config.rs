//! The configuration of a volume and of its cache.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flashwise_core::cache::Config;
use flashwise_core::cache::settings::{Devices, Settings};
use flashwise_core::format::Geometry;
use flashwise_core::tiers::Array;
use flashwise_engine::engine::Bug;

use super::BLOCK;
use crate::attach::stores::default_state_directory;
use crate::disk::Disk;
use crate::disk::zoned::zoning::Zoning;
use crate::layout::{CacheLayout, LAYOUTS};
use crate::time;

/// A disk opened by the caller.
#[derive(Clone)]
pub struct OpenDisk(pub Arc<dyn Disk>);

impl fmt::Debug for OpenDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.description())
    }
}

/// The configuration of a volume. Sizes are in bytes, multiples of 4,096.
#[derive(Clone, Debug)]
pub struct VolumeConfig {
    /// Its name: the NBD export.
    pub name: String,
    /// True for the cache of a pool; then `name` is the pool's.
    pub of_pool: bool,
    /// Further names of the NBD export.
    pub aliases: Vec<String>,
    /// The backend: a regular file or a block device.
    pub backend: PathBuf,
    /// The volume's size; the backend's if `None`.
    pub size_bytes: Option<u64>,
    /// The flash: a block device, or a regular file, which is created if it is missing. Empty for a volume without
    /// flash.
    pub flash: PathBuf,
    /// The flash as a disk that is already open. `flash` is then only its name.
    pub flash_disk: Option<OpenDisk>,
    /// Size of the flash to use; all of it if `None`.
    pub flash_size_bytes: Option<u64>,
    /// Zones of a new flash file; none if `None`.
    pub flash_zones: Option<Zoning>,
    /// The journal of [ordered write-back](flashwise_core::journal): a file or a block device.
    pub journal: Option<PathBuf>,
    /// Bytes of a new journal, and the most that are used. By default, a new one has
    /// [`BYTES_DEFAULT`](flashwise_core::journal::BYTES_DEFAULT).
    pub journal_size_bytes: Option<u64>,
    /// The journal as a disk that is already open. `journal` is then only its name.
    pub journal_disk: Option<OpenDisk>,
    /// The layout of the cache on flash.
    pub layout: &'static dyn CacheLayout,
    /// The settings of its cache.
    pub cache: Settings,
    /// The devices that adaptive rules assume. Their sizes follow from flash and volume.
    pub array: Array,
    /// True if erase units are discarded when they are reset.
    pub discard: bool,
    /// True if files bypass the page cache where possible.
    pub direct_io: bool,
    /// Rated drive writes per day of the flash, during its warranty.
    pub drive_writes_per_day: Option<f64>,
    /// Duration of the warranty in years.
    pub warranty_years: f64,
    /// A configured identity of the backend, if it has no other, or if a copy replaces it.
    pub backend_id: Option<String>,
    /// Directory for the records of backends without room for their own.
    pub state_directory: PathBuf,
    /// True if an operator accepts the loss of a missing cache.
    pub discard_cache: bool,
    /// Answers flushes without effect, so that durability tests can show that they find lost data. Loses data.
    pub unsafe_ignore_flushes: bool,
    /// A planted bug, so that tests can show that they find it. Never in service.
    pub planted: Option<Bug>,
    /// Duration of each transfer of the backend, one after another, to imitate a disk in benchmarks.
    pub backend_delay_us: u64,
}

impl VolumeConfig {
    /// Creates a configuration with these paths, and defaults otherwise.
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
            journal: None,
            journal_size_bytes: None,
            journal_disk: None,
            layout: LAYOUTS[0].1,
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

    /// Returns the volume's name for messages.
    pub fn whose(&self) -> Whose {
        Whose { of_pool: self.of_pool, name: self.name.clone() }
    }

    /// Returns all export names, the volume's own first.
    pub fn export_names(&self) -> Vec<String> {
        std::iter::once(&self.name).chain(&self.aliases).cloned().collect()
    }
}

/// The name of a volume in messages: `volume NAME`, or `pool NAME` for the cache of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whose {
    of_pool: bool,
    /// Its name.
    pub name: String,
}

impl Whose {
    /// Returns `volume` or `pool`.
    pub fn kind(&self) -> &'static str {
        if self.of_pool { "pool" } else { "volume" }
    }
}

impl fmt::Display for Whose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} '{}'", self.kind(), self.name)
    }
}

/// Returns the configuration of the cache for a volume of `size_bytes` and flash with `geometry`.
pub(crate) fn cache_config(config: &VolumeConfig, geometry: Geometry, size_bytes: u64) -> Config {
    let of_cache = config.cache.config(geometry, &devices(config, &geometry, size_bytes));
    Config { unix_us: time::start_unix_us(), ..of_cache }
}

/// Returns the devices around the cache of a volume of `size_bytes`, for adaptive rules.
pub(super) fn devices(config: &VolumeConfig, geometry: &Geometry, size_bytes: u64) -> Devices {
    Devices { flash_bytes: u64::from(geometry.pages()) * BLOCK, storage_bytes: size_bytes, array: config.array }
}
