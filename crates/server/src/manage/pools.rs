//! What can be asked of a server's pools, their disks and their logical disks.

use std::collections::BTreeMap;

use flashwise_core::human;
use flashwise_storage::inventory::{DiskInfo, Presence};
use flashwise_storage::pool::status::{MapRun, PoolStatus};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ManageError;
use super::plan::Plan;

/// What can be asked of pools. Calls may wait.
pub trait Pools: Send + Sync {
    /// The machine's disks, and the files that are disks of pools or flash of volumes.
    fn machine_disks(&self) -> Result<Vec<DiskInfo>, ManageError>;

    /// The machine's block devices, at the cost of a look at sysfs.
    fn present_disks(&self) -> BTreeMap<String, Presence> {
        BTreeMap::new()
    }

    /// All pools.
    fn status(&self) -> Vec<PoolStatus>;

    /// What making a pool would do; refused where it would be.
    fn plan_pool(&self, new: &NewPool) -> Result<Plan, ManageError>;

    /// Makes a pool, and serves it.
    fn make_pool(&self, new: &NewPool) -> Result<(), ManageError>;

    /// What deleting a pool would do; refused where it would be.
    fn plan_end(&self, pool: &str) -> Result<Plan, ManageError>;

    /// Deletes a pool that has no logical disks, and has its disks blank.
    fn end(&self, pool: &str) -> Result<(), ManageError>;

    /// What a change would do; refused where it would be.
    fn plan(&self, pool: &str, change: &PoolChange) -> Result<Plan, ManageError>;

    /// Makes a change; of emptying a disk, its beginning.
    fn make(&self, pool: &str, change: &PoolChange) -> Result<(), ManageError>;

    /// One disk, which nothing uses and which holds something.
    fn wipeable(&self, path: &str) -> Result<DiskInfo, ManageError>;

    /// Clears what such a disk holds, durably.
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
    /// The disk of this number, which is being emptied, stays.
    KeepDisk(u32),
    /// The missing disk of this number does not come back.
    GiveUpDisk(u32, DiskGivenUp),
    /// A logical disk comes.
    Create(NewLogicalDisk),
    /// The logical disk of this name becomes another.
    Alter(String, LogicalDiskChange),
    /// The logical disk of this name goes.
    Delete(String),
}

impl PoolChange {
    /// What happened when it was made, for people.
    pub fn told(&self) -> String {
        match self {
            PoolChange::AddDisk(disk) => format!("The disk {} was added", disk.path),
            PoolChange::RemoveDisk(number) => format!("Somebody asked to empty disk {number} and to take it out"),
            PoolChange::KeepDisk(number) => format!("Disk {number} is not emptied any more, and stays"),
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

/// A pool that is to be made.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPool {
    /// Its name: 1 to 64 lower-case letters, digits, `-` and `.`.
    pub name: String,
    /// Its disks: block devices or regular files, by absolute paths.
    pub disks: Vec<String>,
    /// Those of the disks once more that are to be wiped, although they hold something, which is lost then.
    #[serde(default)]
    pub wipe: Vec<String>,
    /// Keys of a table `[[pool]]` of the configuration with their values as text, such as `flash` and `/dev/nvme0n1`,
    /// or `ram` and `512MiB`.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
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

/// A disk that is to be wiped.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskWiped {
    /// The device or file.
    pub path: String,
    /// The same path once more, so that none is wiped by a slip; a dry run does without.
    #[serde(default)]
    pub confirm: Option<String>,
}

/// A missing disk that is to be given up.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskGivenUp {
    /// Its path, as the pool's status shows it, so that none is given up by a slip; a dry run does without.
    #[serde(default)]
    pub confirm: Option<String>,
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
    /// When what is written reaches the disks, at the latest: `write-back`, which is so unless given, `write-through`
    /// or `write-around`. The stricter of this and the pool's mode counts.
    #[serde(default)]
    pub mode: Option<String>,
    /// RAM of the pool's read buffer that is kept for what was read of it last, whatever is read of others: a multiple
    /// of 4,096.
    #[serde(default)]
    pub pinned_ram_bytes: u64,
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
    /// RAM of the pool's read buffer that is kept for what was read of it last; 0 for none.
    #[serde(default)]
    pub pinned_ram_bytes: Option<u64>,
}
