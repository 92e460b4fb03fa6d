//! What can be asked of a server's pools, their disks and their logical disks.

use flashwise_engine::inventory::DiskInfo;
use flashwise_engine::pool::status::{MapRun, PoolStatus};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ManageError;

/// What can be asked of pools. Calls may wait.
pub trait Pools: Send + Sync {
    /// The machine's disks.
    fn machine_disks(&self) -> Result<Vec<DiskInfo>, ManageError>;

    /// All pools.
    fn status(&self) -> Vec<PoolStatus>;

    /// Adds a disk to a pool.
    fn add_disk(&self, pool: &str, disk: &DiskAdded) -> Result<(), ManageError>;

    /// Starts to empty a disk and to take it out.
    fn remove_disk(&self, pool: &str, number: u32) -> Result<(), ManageError>;

    /// Gives up a disk that is missing, which loses what was there.
    fn give_up_disk(&self, pool: &str, number: u32, disk: &DiskGivenUp) -> Result<(), ManageError>;

    /// Makes a logical disk.
    fn create(&self, pool: &str, new: &NewLogicalDisk) -> Result<(), ManageError>;

    /// Changes a logical disk.
    fn change(&self, pool: &str, name: &str, change: &LogicalDiskChange) -> Result<(), ManageError>;

    /// Deletes a logical disk.
    fn delete(&self, pool: &str, name: &str) -> Result<(), ManageError>;

    /// Where the chunks of a logical disk are.
    fn map(&self, pool: &str, name: &str) -> Result<Vec<MapRun>, ManageError>;
}

/// A disk that is to be added to a pool.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskAdded {
    /// The device or file.
    pub path: String,
    /// The same path once more, to wipe a disk that holds something, which is lost then.
    #[serde(default)]
    pub wipe: Option<String>,
}

/// A missing disk that is to be given up.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskGivenUp {
    /// Its path, as the pool's status shows it, so that none is given up by a slip.
    pub confirm: String,
}

/// A logical disk that is to be made.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewLogicalDisk {
    /// Its name: 1 to 64 lower-case letters, digits, `-` and `.`.
    pub name: String,
    /// Its size, a multiple of 4,096 up to 64 TiB.
    pub size_bytes: u64,
    /// Whether each chunk has its place from the beginning.
    #[serde(default)]
    pub thick: bool,
    /// Whether neighbouring chunks go to different disks.
    #[serde(default)]
    pub striped: bool,
    /// Whether its requests are cached; so unless given.
    #[serde(default = "yes")]
    pub cached: bool,
    /// When what is written reaches the disks, at the latest: `write-back`, which is so unless given, `write-through` or `write-around`. The
    /// stricter of this and the pool's mode counts.
    #[serde(default)]
    pub mode: Option<String>,
}

fn yes() -> bool {
    true
}

/// What is to be changed of a logical disk.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LogicalDiskChange {
    /// A larger size.
    #[serde(default)]
    pub size_bytes: Option<u64>,
    /// Whether its requests are cached.
    #[serde(default)]
    pub cached: Option<bool>,
    /// When what is written reaches the disks, at the latest: `write-back`, `write-through` or `write-around`.
    #[serde(default)]
    pub mode: Option<String>,
}
