//! Requests about a server's pools, their disks and their logical disks.

use std::collections::{BTreeMap, BTreeSet};

use flashwise_storage::disk::inventory::{DiskInfo, Presence};
use flashwise_storage::pool::PoolChange;
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

    /// Returns the paths of the block devices that volumes and pools use.
    fn used_disks(&self) -> BTreeSet<String> {
        BTreeSet::new()
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
