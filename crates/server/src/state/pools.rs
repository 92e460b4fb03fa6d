//! The pools of a server, as the management API sees them. Their logical disks are its exports.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flashwise_storage::disk::inventory::{
    DiskInfo, Places, Presence, disks_behind, examine, mark_locked, present, scan,
};
use flashwise_storage::export::Exports;
use flashwise_storage::pool::status::{MapRun, PoolStatus};
use flashwise_storage::pool::{DiskAdded, NewLogical, Pool, PoolChange, prepare};
use parking_lot::Mutex;

use crate::config::made::Kind;
use crate::front::Assignments;
use crate::front::iscsi::names;
use crate::manage::plan::Plan;
use crate::manage::{ManageError, NewPool, Pools};
use crate::reach::Reach;
use crate::state::making::{Making, error};
use crate::state::served::Served;

/// The pools of a server.
pub struct ServedPools {
    served: Arc<Served>,
    making: Arc<Making>,
    exports: Exports,
    assignments: Arc<Assignments>,
    reach: Reach,
    /// Serialises changes of the list of exports.
    changing: Mutex<()>,
}

/// Has it kept which disks a pool has, where no configuration does.
fn follow(making: &Arc<Making>, pool: &Arc<Pool>) {
    let (making, name) = (making.clone(), pool.name().to_owned());
    pool.on_disks(Box::new(move |disks| {
        if let Err(error) = making.note_disks(&name, disks) {
            tracing::error!(event = "created-not-saved", pool = name, %error, "the new list of the pool's disks is not \
                saved");
        }
    }));
}

impl ServedPools {
    /// Creates the managed pools. Their logical disks are in `exports`, and `assignments` maps exports to initiators.
    pub(crate) fn new(
        served: Arc<Served>,
        making: Arc<Making>,
        exports: Exports,
        assignments: Arc<Assignments>,
        reach: Reach,
    ) -> ServedPools {
        served.pools().iter().filter(|pool| making.is_made(pool.name())).for_each(|pool| follow(&making, pool));
        ServedPools { served, making, exports, assignments, reach, changing: Mutex::new(()) }
    }

    /// Returns a change with the absolute path of a new disk, so that the stored path works from any directory.
    fn placed(&self, change: &PoolChange) -> Result<PoolChange, ManageError> {
        let PoolChange::AddDisk(disk) = change else { return Ok(change.clone()) };
        self.reach.check("path", Path::new(&disk.path))?;
        let absolute = |path: &String| match std::path::absolute(path) {
            Ok(absolute) => Ok(absolute.display().to_string()),
            Err(error) => Err(ManageError::Invalid(format!("path: '{path}': {error}"))),
        };
        let wipe = disk.wipe.as_ref().map(absolute).transpose()?;
        Ok(PoolChange::AddDisk(DiskAdded { path: absolute(&disk.path)?, wipe }))
    }

    fn find(&self, name: &str) -> Result<Arc<Pool>, ManageError> {
        let there = || self.served.pools().iter().map(|pool| pool.name().to_owned()).collect::<Vec<_>>();
        self.served.pool(name).ok_or_else(|| ManageError::no_pool(name, &there()))
    }

    fn find_disk(&self, pool: &str, name: &str) -> Result<Arc<Pool>, ManageError> {
        let pool = self.find(pool)?;
        pool.logical(name).map_err(|error| ManageError::NotFound(error.to_string()))?;
        Ok(pool)
    }

    /// Refuses a name that another export has; the rest the pool refuses itself.
    fn check_new(&self, new: &NewLogical) -> Result<(), ManageError> {
        if self.exports.names().contains(&new.name) {
            return Err(ManageError::Conflict(format!("there is an export '{}' already", new.name)));
        }
        Ok(())
    }

    fn create(&self, pool: &Pool, new: &NewLogical) -> Result<(), ManageError> {
        let _one = self.changing.lock();
        self.check_new(new)?;
        // Assignments of an earlier logical disk with this name are obsolete.
        let kept = |error| {
            ManageError::Failed(format!("the assignment of an earlier {} cannot be removed: {error}", new.name))
        };
        self.assignments.forget(&new.name).map_err(kept)?;
        let disk = pool.create_logical(new).map_err(error)?;
        assert!(self.exports.add(&new.name, disk), "names of exports change under one lock");
        Ok(())
    }

    fn delete(&self, pool: &Pool, name: &str) -> Result<(), ManageError> {
        let _one = self.changing.lock();
        let disk = pool.logical(name).map_err(error)?;
        // None comes in between.
        self.exports.remove(name);
        let deleted = pool.delete_logical(name).map_err(error);
        if deleted.is_err() && pool.logical(name).is_ok() {
            self.exports.add(name, disk);
        }
        deleted?;
        // Another one of its name is for others.
        self.assignments.forget(name).map_err(|error| ManageError::Failed(format!("{name} is deleted; {error}")))
    }

    /// Returns the backends, journals, disks and flash devices of all volumes and pools.
    fn used_paths(&self) -> BTreeSet<PathBuf> {
        let pools = self.served.pools();
        let of_pools = pools.iter().flat_map(|pool| {
            let config = pool.config();
            let disks = pool.disk_paths().into_iter().map(PathBuf::from);
            let of_cache = [&config.cache.flash].into_iter().chain(&config.cache.journal);
            config.disks.iter().chain(of_cache).cloned().chain(disks).collect::<Vec<_>>()
        });
        let volumes = self.served.own_volumes();
        let of_volumes = volumes.iter().map(|volume| volume.config());
        let of_volumes =
            of_volumes.flat_map(|config| [&config.backend, &config.flash].into_iter().chain(&config.journal).cloned());
        of_pools.chain(of_volumes).collect()
    }

    /// Makes the maps durable, of one pool or of all.
    pub fn flush(&self, name: Option<&str>) -> Result<(), ManageError> {
        let pools = self.served.pools();
        let mut named = pools.iter().filter(|pool| name.is_none_or(|name| name == pool.name()));
        named.try_for_each(|pool| pool.flush().map_err(error))
    }
}

impl ServedPools {
    /// Returns the pool of a change. Fails if a logical disk of the change is absent, or if the new set of disks could
    /// not be stored.
    fn find_for(&self, pool: &str, change: &PoolChange) -> Result<Arc<Pool>, ManageError> {
        match change {
            PoolChange::AddDisk(_) | PoolChange::RemoveDisk(_) => self.making.check_kept(pool)?,
            PoolChange::Alter(name, _) | PoolChange::Delete(name) => return self.find_disk(pool, name),
            _ => {}
        }
        self.find(pool)
    }

    /// Refuses the name of a pool that was made and is not served.
    fn check_unserved(&self, name: &str) -> Result<(), ManageError> {
        self.making.check_unserved(Kind::Pool, name, self.served.pool(name).is_some())
    }
}

impl Pools for ServedPools {
    fn machine_disks(&self) -> Result<Vec<DiskInfo>, ManageError> {
        let mut disks = scan(&Places::default()).map_err(|error| ManageError::Failed(error.to_string()))?;
        let used = self.used_paths();
        let files = used.iter().filter(|path| path.is_file());
        disks.extend(files.filter_map(|path| examine(&Places::default(), path).ok()));
        mark_locked(&Places::default(), &mut disks);
        Ok(disks)
    }

    fn present_disks(&self) -> BTreeMap<String, Presence> {
        present(&Places::default()).unwrap_or_default()
    }

    fn used_disks(&self) -> BTreeSet<String> {
        let mut disks = BTreeSet::new();
        self.used_paths().iter().for_each(|path| disks_behind(&Places::default(), path, &mut disks));
        disks
    }

    fn status(&self) -> Vec<PoolStatus> {
        self.served.pools().iter().map(|pool| pool.status()).collect()
    }

    fn plan_pool(&self, new: &NewPool) -> Result<Plan, ManageError> {
        self.reach.check_pool(new)?;
        self.check_unserved(&new.name)?;
        self.making.plan(new)
    }

    fn make_pool(&self, new: &NewPool) -> Result<(), ManageError> {
        let _one = self.changing.lock();
        self.reach.check_pool(new)?;
        self.check_unserved(&new.name)?;
        let (pool, opened) = self.making.make(new)?;
        opened.notes.iter().for_each(|note| tracing::info!(event = "opened", pool = new.name, "{note}"));
        follow(&self.making, &pool);
        self.served.add(pool);
        Ok(())
    }

    fn plan_end(&self, name: &str) -> Result<Plan, ManageError> {
        match self.served.pool(name) {
            None if self.making.keeps(Kind::Pool, name) => self.making.plan_forget(name),
            _ => self.making.plan_end(&*self.find(name)?),
        }
    }

    fn end(&self, name: &str) -> Result<(), ManageError> {
        let _one = self.changing.lock();
        if self.served.pool(name).is_none() && self.making.keeps(Kind::Pool, name) {
            self.making.forget(Kind::Pool, name)?;
            self.served.forget(name);
            return Ok(());
        }
        let pool = self.find(name)?;
        // A refusal has no effects.
        self.making.plan_end(&pool)?;
        self.served.remove(name);
        let ended = self.making.end(&pool);
        if ended.is_err() && self.making.is_made(name) {
            self.served.add(pool);
        }
        ended
    }

    fn plan(&self, pool: &str, change: &PoolChange) -> Result<Plan, ManageError> {
        let pool = self.find_for(pool, change)?;
        let mut opens = None;
        if let PoolChange::Create(new) = change {
            self.check_new(new)?;
            opens = Some(format!(
                "Clients can open it at once, as the NBD export {} or the iSCSI target {}.",
                new.name,
                names::target(&new.name)
            ));
        }
        let mut plan = self.placed(change)?.plan(&pool).map(Plan::from).map_err(error)?;
        plan.does.extend(opens);
        Ok(plan)
    }

    fn make(&self, pool: &str, change: &PoolChange) -> Result<(), ManageError> {
        let pool = self.find_for(pool, change)?;
        match change {
            PoolChange::Create(new) => self.create(&pool, new),
            PoolChange::Delete(name) => self.delete(&pool, name),
            _ => self.placed(change)?.apply(&pool).map_err(error),
        }
    }

    fn wipeable(&self, path: &str) -> Result<DiskInfo, ManageError> {
        self.reach.check("path", Path::new(path))?;
        let info = prepare::check(Path::new(path), true).map_err(error)?;
        // Refuses devices that cannot be a disk of a pool.
        prepare::check_size(&info).map_err(error)?;
        match info.refused {
            Some(_) => Ok(info),
            None => Err(ManageError::Conflict(format!("{path} is blank: there is nothing to wipe"))),
        }
    }

    fn wipe(&self, path: &str) -> Result<(), ManageError> {
        self.wipeable(path)?;
        prepare::prepare(Path::new(path), true, true).map(drop).map_err(error)
    }

    fn map(&self, pool: &str, name: &str) -> Result<Vec<MapRun>, ManageError> {
        self.find_disk(pool, name)?.map_of(name).map_err(error)
    }
}
