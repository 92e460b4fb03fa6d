//! What the management API manages: the pools of a server, whose logical disks are its exports.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use flashwise_core::cache::Mode;
use flashwise_engine::export::Exports;
use flashwise_engine::inventory::{DiskInfo, Places, scan};
use flashwise_engine::pool::status::{MapRun, PoolStatus};
use flashwise_engine::pool::{NewLogical, Pool, PoolError};

use crate::manage::{DiskAdded, DiskGivenUp, LogicalDiskChange, ManageError, NewLogicalDisk, Pools};

/// The pools of a server.
pub struct ServedPools {
    pools: Vec<Arc<Pool>>,
    exports: Exports,
    /// One change of the table of exports at a time.
    changing: Mutex<()>,
}

fn error(error: PoolError) -> ManageError {
    let what = error.to_string();
    match error {
        PoolError::Name { .. } => ManageError::Invalid(what),
        PoolError::Open { .. } | PoolError::Disk { .. } | PoolError::NotWritten { .. } => ManageError::Failed(what),
        _ => ManageError::Conflict(what),
    }
}

fn mode(name: Option<&String>) -> Result<Option<Mode>, ManageError> {
    name.map(|name| name.parse().map_err(|what| ManageError::Invalid(format!("mode: {what}")))).transpose()
}

impl ServedPools {
    /// Pools whose logical disks are among `exports`.
    pub fn new(pools: Vec<Arc<Pool>>, exports: Exports) -> ServedPools {
        ServedPools { pools, exports, changing: Mutex::new(()) }
    }

    fn find(&self, name: &str) -> Result<&Pool, ManageError> {
        let there = || self.pools.iter().map(|pool| pool.name()).collect::<Vec<_>>().join(", ");
        let found = self.pools.iter().find(|pool| pool.name() == name);
        found
            .map(|pool| &**pool)
            .ok_or_else(|| ManageError::NotFound(format!("no pool '{name}', expected one of: {}", there())))
    }

    fn find_disk(&self, pool: &str, name: &str) -> Result<&Pool, ManageError> {
        let pool = self.find(pool)?;
        pool.logical(name).map_err(|error| ManageError::NotFound(error.to_string()))?;
        Ok(pool)
    }

    /// Makes the maps durable, of one pool or of all.
    pub fn flush(&self, name: Option<&str>) -> Result<(), ManageError> {
        let mut named = self.pools.iter().filter(|pool| name.is_none_or(|name| name == pool.name()));
        named.try_for_each(|pool| pool.flush().map_err(error))
    }
}

impl Pools for ServedPools {
    fn machine_disks(&self) -> Result<Vec<DiskInfo>, ManageError> {
        scan(&Places::default()).map_err(|error| ManageError::Failed(error.to_string()))
    }

    fn status(&self) -> Vec<PoolStatus> {
        self.pools.iter().map(|pool| pool.status()).collect()
    }

    fn add_disk(&self, pool: &str, disk: &DiskAdded) -> Result<(), ManageError> {
        let pool = self.find(pool)?;
        if let Some(wipe) = disk.wipe.as_ref().filter(|wipe| **wipe != disk.path) {
            let what = format!("found '{wipe}' as the disk to wipe, expected '{}', the disk to add", disk.path);
            return Err(ManageError::Invalid(what));
        }
        pool.add_disk(Path::new(&disk.path), disk.wipe.is_some()).map(drop).map_err(error)
    }

    fn remove_disk(&self, pool: &str, number: u32) -> Result<(), ManageError> {
        self.find(pool)?.remove_disk(number).map_err(error)
    }

    fn give_up_disk(&self, pool: &str, number: u32, disk: &DiskGivenUp) -> Result<(), ManageError> {
        self.find(pool)?.give_up_disk(number, &disk.confirm).map_err(error)
    }

    fn create(&self, pool: &str, new: &NewLogicalDisk) -> Result<(), ManageError> {
        let _one = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let pool = self.find(pool)?;
        if self.exports.names().contains(&new.name) {
            return Err(ManageError::Conflict(format!("there is an export '{}' already", new.name)));
        }
        let NewLogicalDisk { name, size_bytes, thick, striped, cached, mode: named } = new.clone();
        let mode = mode(named.as_ref())?.unwrap_or(Mode::WriteBack);
        let disk =
            pool.create_logical(&NewLogical { name, size_bytes, thick, striped, cached, mode }).map_err(error)?;
        assert!(self.exports.add(&new.name, disk), "names of exports change under one lock");
        Ok(())
    }

    fn change(&self, pool: &str, name: &str, change: &LogicalDiskChange) -> Result<(), ManageError> {
        let pool = self.find_disk(pool, name)?;
        let mode = mode(change.mode.as_ref())?;
        if let Some(size_bytes) = change.size_bytes {
            pool.grow_logical(name, size_bytes).map_err(error)?;
        }
        if let Some(mode) = mode {
            pool.set_mode(name, mode).map_err(error)?;
        }
        change.cached.map_or(Ok(()), |cached| pool.set_cached(name, cached).map_err(error))
    }

    fn delete(&self, pool: &str, name: &str) -> Result<(), ManageError> {
        let _one = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let pool = self.find_disk(pool, name)?;
        let disk = pool.logical(name).map_err(error)?;
        // None comes in between.
        self.exports.remove(name);
        let deleted = pool.delete_logical(name).map_err(error);
        if deleted.is_err() && pool.logical(name).is_ok() {
            self.exports.add(name, disk);
        }
        deleted
    }

    fn map(&self, pool: &str, name: &str) -> Result<Vec<MapRun>, ManageError> {
        self.find_disk(pool, name)?.map_of(name).map_err(error)
    }
}
