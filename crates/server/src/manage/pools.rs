//! Requests about a server's pools, their disks and their logical disks.

use std::collections::BTreeMap;

use flashwise_core::human;
use flashwise_storage::inventory::{DiskInfo, Presence};
use flashwise_storage::pool::status::{MapRun, PoolStatus};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ManageError;
use super::plan::Plan;

/// The pools of a server. Calls can block.
pub trait Pools: Send + Sync {
    /// The machine's disks, and the files that volumes and pools use.
    fn machine_disks(&self) -> Result<Vec<DiskInfo>, ManageError>;

    /// Returns the machine's block devices, by reading sysfs.
    fn present_disks(&self) -> BTreeMap<String, Presence> {
        BTreeMap::new()
    }

    /// All pools.
    fn status(&self) -> Vec<PoolStatus>;

    /// Describes the effect of creating a pool. Fails if the creation would.
    fn plan_pool(&self, new: &NewPool) -> Result<Plan, ManageError>;

    /// Makes a pool, and serves it.
    fn make_pool(&self, new: &NewPool) -> Result<(), ManageError>;

    /// Describes the effect of deleting a pool. Fails if the deletion would.
    fn plan_end(&self, pool: &str) -> Result<Plan, ManageError>;

    /// Deletes a pool without logical disks, and wipes its disks.
    fn end(&self, pool: &str) -> Result<(), ManageError>;

    /// Describes the effect of a change. Fails if the change would.
    fn plan(&self, pool: &str, change: &PoolChange) -> Result<Plan, ManageError>;

    /// Makes a change; of emptying a disk, its beginning.
    fn make(&self, pool: &str, change: &PoolChange) -> Result<(), ManageError>;

    /// One disk, which nothing uses and which holds something.
    fn wipeable(&self, path: &str) -> Result<DiskInfo, ManageError>;

    /// Wipes such a disk, durably.
    fn wipe(&self, path: &str) -> Result<(), ManageError>;

    /// Where the chunks of a logical disk are.
    fn map(&self, pool: &str, name: &str) -> Result<Vec<MapRun>, ManageError>;
}

/// A change of a pool.
#[derive(Clone, Debug)]
pub enum PoolChange {
    /// A disk comes.
    AddDisk(DiskAdded),
    /// The disk of this number is emptied and goes.
    RemoveDisk(u32),
    /// Stops emptying the disk with this number.
    KeepDisk(u32),
    /// Removes the missing disk with this number for good.
    GiveUpDisk(u32, DiskGivenUp),
    /// A logical disk comes.
    Create(NewLogicalDisk),
    /// The logical disk of this name becomes another.
    Alter(String, LogicalDiskChange),
    /// The logical disk of this name goes.
    Delete(String),
}

impl PoolChange {
    /// Describes the change after it was made.
    pub fn description(&self) -> String {
        match self {
            PoolChange::AddDisk(disk) => format!("The disk {} was added", disk.path),
            PoolChange::RemoveDisk(number) => format!("Disk {number} is being emptied, and will be removed"),
            PoolChange::KeepDisk(number) => format!("Disk {number} is no longer being emptied, and stays"),
            PoolChange::GiveUpDisk(number, _) => format!("The missing disk {number} was given up"),
            PoolChange::Create(new) => {
                format!("The logical disk {} of {} was made", new.name, human::bytes(new.size_bytes as f64))
            }
            PoolChange::Alter(name, change) => {
                let size = change.size_bytes.map(|bytes| format!("has {}", human::bytes(bytes as f64)));
                let cached = change.cached.map(|cached| if cached { "is cached" } else { "is not cached" }.to_owned());
                let mode = change.mode.as_ref().map(|mode| format!("has the mode {mode}"));
                let pinned =
                    change.pinned_ram_bytes.map(|bytes| format!("has {} of RAM kept", human::bytes(bytes as f64)));
                let now: Vec<_> = size.into_iter().chain(cached).chain(mode).chain(pinned).collect();
                format!("The logical disk {name} {} now", now.join(" and "))
            }
            PoolChange::Delete(name) => format!("The logical disk {name} was deleted"),
        }
    }
}

/// A new pool.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPool {
    /// Its name: 1 to 64 lower-case letters, digits, `-` and `.`.
    pub name: String,
    /// Its disks: block devices or regular files, by absolute paths.
    pub disks: Vec<String>,
    /// The disks that may be wiped although they hold data, which is lost.
    #[serde(default)]
    pub wipe: Vec<String>,
    /// Keys of a table `[[pool]]` of the configuration with their values as text, such as `flash` and `/dev/nvme0n1`,
    /// or `ram` and `512MiB`.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
}

/// A new disk of a pool.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskAdded {
    /// The device or file.
    pub path: String,
    /// Repeats the path to wipe a disk that holds data, which is lost.
    #[serde(default)]
    pub wipe: Option<String>,
}

/// A disk to wipe.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskWiped {
    /// The device or file.
    pub path: String,
    /// Repeats the path, to prevent mistakes. Optional in a dry run.
    #[serde(default)]
    pub confirm: Option<String>,
}

/// A missing disk to remove for good.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskGivenUp {
    /// Repeats the path as the pool's status shows it, to prevent mistakes. Optional in a dry run.
    #[serde(default)]
    pub confirm: Option<String>,
}

/// A new logical disk.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewLogicalDisk {
    /// Its name: 1 to 64 lower-case letters, digits, `-` and `.`.
    pub name: String,
    /// Its size, a multiple of 4,096 up to 64 TiB.
    pub size_bytes: u64,
    /// True to allocate all chunks at creation.
    #[serde(default)]
    pub thick: bool,
    /// True to place neighbouring chunks on different disks.
    #[serde(default)]
    pub striped: bool,
    /// True to cache its requests; the default.
    #[serde(default = "yes")]
    pub cached: bool,
    /// The write mode: `write-back` (the default), `write-through` or `write-around`. The stricter of this and the
    /// pool's mode applies.
    #[serde(default)]
    pub mode: Option<String>,
    /// RAM of the pool's read buffer that is reserved for recent reads of this disk: a multiple of 4,096 bytes.
    #[serde(default)]
    pub pinned_ram_bytes: u64,
}

fn yes() -> bool {
    true
}

/// Changes of a logical disk.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LogicalDiskChange {
    /// A larger size.
    #[serde(default)]
    pub size_bytes: Option<u64>,
    /// True to cache its requests.
    #[serde(default)]
    pub cached: Option<bool>,
    /// The write mode: `write-back`, `write-through` or `write-around`.
    #[serde(default)]
    pub mode: Option<String>,
    /// RAM of the pool's read buffer that is reserved for recent reads of this disk; 0 for none.
    #[serde(default)]
    pub pinned_ram_bytes: Option<u64>,
}
