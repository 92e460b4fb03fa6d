//! Changes of a pool, by an administrator: a plan says what a change does, and the change does it.

use std::path::Path;

use flashwise_core::cache::Mode;
use flashwise_core::human;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::plan::Plan;
use super::{Pool, PoolError};

/// A change of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PoolChange {
    /// Adds a disk.
    AddDisk(DiskAdded),
    /// Empties the disk with this number, and removes it then.
    RemoveDisk(u32),
    /// Stops emptying the disk with this number.
    KeepDisk(u32),
    /// Removes the missing disk with this number for good.
    GiveUpDisk(u32, DiskGivenUp),
    /// Creates a logical disk.
    Create(NewLogical),
    /// Changes the logical disk of this name.
    Alter(String, LogicalDiskChange),
    /// Deletes the logical disk of this name.
    Delete(String),
}

/// A new disk of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskAdded {
    /// The device or file.
    pub path: String,
    /// Repeats the path to wipe a disk that holds data, which is lost.
    #[serde(default)]
    pub wipe: Option<String>,
}

/// A missing disk to remove for good.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskGivenUp {
    /// Repeats the path as the pool's status shows it, to prevent mistakes. Optional in a dry run.
    #[serde(default)]
    pub confirm: Option<String>,
}

/// A new logical disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = NewLogicalDisk)]
#[serde(deny_unknown_fields)]
pub struct NewLogical {
    /// Its name, which is also the name of the export: 1 to 64 lower-case letters, digits, `-` and `.`.
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
    #[serde(default, with = "mode")]
    #[schema(value_type = Option<String>)]
    pub mode: Option<Mode>,
    /// RAM of the pool's read buffer that is reserved for recent reads of this disk: a multiple of 4,096 bytes.
    #[serde(default)]
    pub pinned_ram_bytes: u64,
}

/// Changes of a logical disk: the fields that are present.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LogicalDiskChange {
    /// A larger size.
    #[serde(default)]
    pub size_bytes: Option<u64>,
    /// True to cache its requests.
    #[serde(default)]
    pub cached: Option<bool>,
    /// The write mode: `write-back`, `write-through` or `write-around`.
    #[serde(default, with = "mode")]
    #[schema(value_type = Option<String>)]
    pub mode: Option<Mode>,
    /// RAM of the pool's read buffer that is reserved for recent reads of this disk; 0 for none.
    #[serde(default)]
    pub pinned_ram_bytes: Option<u64>,
}

fn yes() -> bool {
    true
}

/// The name of a write mode, if there is one.
mod mode {
    use serde::de::Error;

    use super::{Deserialize, Mode};

    pub fn serialize<S: serde::Serializer>(mode: &Option<Mode>, serializer: S) -> Result<S::Ok, S::Error> {
        serde::Serialize::serialize(&mode.map(Mode::name), serializer)
    }

    pub fn deserialize<'a, D: serde::Deserializer<'a>>(deserializer: D) -> Result<Option<Mode>, D::Error> {
        let name = Option::<String>::deserialize(deserializer)?;
        name.map(|name| name.parse().map_err(|what| D::Error::custom(format!("mode: {what}")))).transpose()
    }
}

impl DiskAdded {
    /// True if the disk may be wiped.
    fn wipes(&self) -> Result<bool, PoolError> {
        match &self.wipe {
            Some(found) if *found != self.path => {
                Err(PoolError::Wipe { found: found.clone(), expected: self.path.clone() })
            }
            wipe => Ok(wipe.is_some()),
        }
    }
}

impl LogicalDiskChange {
    /// True if nothing changes.
    pub fn is_empty(&self) -> bool {
        *self == LogicalDiskChange::default()
    }

    fn apply(&self, pool: &Pool, name: &str) -> Result<(), PoolError> {
        // All of it, or nothing.
        Plan::alter(pool, name, self)?;
        if let Some(size_bytes) = self.size_bytes {
            pool.grow_logical(name, size_bytes)?;
        }
        if let Some(mode) = self.mode {
            pool.set_mode(name, mode)?;
        }
        if let Some(bytes) = self.pinned_ram_bytes {
            pool.set_pinned(name, bytes)?;
        }
        self.cached.map_or(Ok(()), |cached| pool.set_cached(name, cached))
    }
}

impl PoolChange {
    /// Describes the effects of the change.
    ///
    /// # Errors
    /// Those that [`apply`](Self::apply) would return before it changes anything.
    pub fn plan(&self, pool: &Pool) -> Result<Plan, PoolError> {
        match self {
            PoolChange::AddDisk(disk) => Plan::add(pool, Path::new(&disk.path), disk.wipes()?),
            PoolChange::RemoveDisk(number) => Plan::remove(pool, *number),
            PoolChange::KeepDisk(number) => Plan::keep(pool, *number),
            PoolChange::GiveUpDisk(number, disk) => Plan::give_up(pool, *number, disk.confirm.as_deref()),
            PoolChange::Create(new) => Plan::create(pool, new),
            PoolChange::Alter(name, change) => Plan::alter(pool, name, change),
            PoolChange::Delete(name) => Plan::delete(pool, name),
        }
    }

    /// Makes the change, durably. A disk is only begun to be emptied.
    ///
    /// # Errors
    /// The change is impossible now, is not confirmed, or does not become durable.
    pub fn apply(&self, pool: &Pool) -> Result<(), PoolError> {
        match self {
            PoolChange::AddDisk(disk) => pool.add_disk(Path::new(&disk.path), disk.wipes()?).map(drop),
            PoolChange::RemoveDisk(number) => pool.remove_disk(*number),
            PoolChange::KeepDisk(number) => pool.keep_disk(*number),
            PoolChange::GiveUpDisk(number, disk) => {
                pool.give_up_disk(*number, disk.confirm.as_deref().unwrap_or_default())
            }
            PoolChange::Create(new) => pool.create_logical(new).map(drop),
            PoolChange::Alter(name, change) => change.apply(pool, name),
            PoolChange::Delete(name) => pool.delete_logical(name),
        }
    }

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
                let mode = change.mode.map(|mode| format!("has the mode {}", mode.name()));
                let pinned =
                    change.pinned_ram_bytes.map(|bytes| format!("has {} of RAM kept", human::bytes(bytes as f64)));
                let now: Vec<_> = size.into_iter().chain(cached).chain(mode).chain(pinned).collect();
                format!("The logical disk {name} {} now", now.join(" and "))
            }
            PoolChange::Delete(name) => format!("The logical disk {name} was deleted"),
        }
    }
}
