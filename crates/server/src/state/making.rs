//! Volumes and pools that are created while a server runs. They are served immediately, and again after a restart.

mod volumes;

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flashwise_core::human;
use flashwise_storage::disk::zoned::may_have_zones;
use flashwise_storage::pool::{Pool, PoolConfig, PoolError, plan, prepare};
use flashwise_storage::volume::Opened;
use parking_lot::Mutex;
use rustix::fs::Access;
use rustix::io::Errno;

use crate::config::ServerConfig;
use crate::config::made::{self, Kind, Made};
use crate::manage::plan::Plan;
use crate::manage::{ManageError, NewPool};

/// Creates volumes and pools, and saves their definitions.
#[derive(Debug)]
pub struct Making {
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    /// The configuration, including created volumes and pools.
    config: ServerConfig,
    volumes: List,
    pools: List,
}

/// The definitions of a kind, including those of earlier starts.
#[derive(Debug)]
struct List {
    all: Vec<Made>,
    /// The definitions in the file.
    kept: Vec<Made>,
}

impl List {
    fn of(kept: &[Made]) -> List {
        List { all: kept.to_owned(), kept: kept.to_owned() }
    }
}

impl Known {
    fn folder(&self) -> &Path {
        &self.config.state_directory
    }

    fn list(&mut self, kind: Kind) -> &mut List {
        match kind {
            Kind::Volume => &mut self.volumes,
            Kind::Pool => &mut self.pools,
        }
    }

    /// Refuses if the file was changed since this server wrote it, or is certainly not writable.
    fn check_file(&self, kind: Kind) -> Result<(), ManageError> {
        let (folder, file) = (self.folder(), kind.path(self.folder()));
        let list = if kind == Kind::Volume { &self.volumes } else { &self.pools };
        made::check_unchanged(folder, kind, &list.kept).map_err(|error| ManageError::Failed(error.to_string()))?;
        match rustix::fs::access(folder, Access::WRITE_OK | Access::EXEC_OK) {
            Err(error) if error != Errno::NOENT => {
                Err(ManageError::Failed(format!("{} cannot be written: {error}", file.display())))
            }
            _ => Ok(()),
        }
    }

    /// Returns the configuration with a new volume or pool, if its name is free and it can be saved.
    fn check_new(&self, kind: Kind, made: &Made) -> Result<ServerConfig, ManageError> {
        let config = &self.config;
        if config.path.is_none() {
            let what = format!(
                "this server was started by flags, which describe one volume; start it with a configuration to make \
                 {kind}s"
            );
            return Err(ManageError::Conflict(what));
        }
        let names = config.volumes.iter().map(|volume| (Kind::Volume, &volume.name));
        let names = names.chain(config.pools.iter().map(|pool| (Kind::Pool, &pool.cache.name)));
        if let Some((taken, _)) = { names }.find(|(_, name)| **name == made.name) {
            return Err(ManageError::Conflict(format!("there is a {taken} '{}' already", made.name)));
        }
        let config = config.with_made(kind, made).map_err(|error| ManageError::Invalid(error.to_string()))?;
        self.check_file(kind)?;
        Ok(config)
    }

    /// Saves the definitions that are not in the file yet.
    fn write(&mut self, kind: Kind) -> Result<(), ManageError> {
        self.check_file(kind)?;
        let folder = self.config.state_directory.clone();
        let list = self.list(kind);
        made::write(&folder, kind, &list.all).map_err(|error| {
            ManageError::Failed(format!("{} cannot be written: {error}", kind.path(&folder).display()))
        })?;
        list.kept.clone_from(&list.all);
        Ok(())
    }

    /// Changes the definitions and saves them. If saving fails, nothing changes.
    fn change(&mut self, kind: Kind, change: impl FnOnce(&mut Vec<Made>)) -> Result<(), ManageError> {
        let before = self.list(kind).all.clone();
        change(&mut self.list(kind).all);
        let written = self.write(kind);
        if written.is_err() {
            self.list(kind).all = before;
        }
        written
    }
}

/// Converts an error of a pool to one of the API.
pub(crate) fn error(error: PoolError) -> ManageError {
    let what = error.to_string();
    match error.cause() {
        PoolError::Name { .. } | PoolError::Size { .. } | PoolError::Pinned { .. } | PoolError::Wipe { .. } => {
            ManageError::Invalid(what)
        }
        // The path does not exist, or cannot be a disk.
        PoolError::Open { source } if matches!(source.kind(), ErrorKind::NotFound | ErrorKind::InvalidInput) => {
            ManageError::Invalid(what)
        }
        PoolError::NoDisk { .. } => ManageError::NotFound(what),
        PoolError::Open { .. }
        | PoolError::Disk { .. }
        | PoolError::NotWritten { .. }
        | PoolError::CacheFailed { .. }
        | PoolError::NotDurable { .. } => ManageError::Failed(what),
        _ => ManageError::Conflict(what),
    }
}

/// Returns the definition of a requested pool.
fn asked(new: &NewPool) -> Result<Made, ManageError> {
    let NewPool { name, disks, wipe, settings } = new;
    let invalid = |what: String| Err(ManageError::Invalid(what));
    if disks.is_empty() {
        return invalid("disks: found none, expected at least one".to_owned());
    }
    let of_cache = ["flash", "journal"].into_iter().filter_map(|key| Some((key, settings.get(key)?)));
    let named = disks.iter().map(|path| ("disks", path)).chain(of_cache);
    if let Some((key, path)) = named.into_iter().find(|(_, path)| !Path::new(path).is_absolute()) {
        return invalid(format!("{key}: found '{path}', expected an absolute path such as /dev/sdb"));
    }
    if let Some(other) = wipe.iter().find(|path| !disks.contains(path)) {
        return invalid(format!("found '{other}' as a disk to wipe, which is none of the pool's disks"));
    }
    if let Some(key) = ["name", "disks"].into_iter().find(|key| settings.contains_key(*key)) {
        return invalid(format!(
            "found {key} among the settings, expected keys of a pool's cache, such as flash or ram"
        ));
    }
    Ok(Made { name: name.clone(), disks: disks.clone(), settings: settings.clone(), ended: None })
}

fn paths(of: &[String]) -> Vec<PathBuf> {
    of.iter().map(PathBuf::from).collect()
}

/// Refuses flash that holds data or is in use, so that no cache is overwritten by mistake.
fn check_flash(path: &Path) -> Result<(), ManageError> {
    if !path.exists() || may_have_zones(path) {
        return Ok(());
    }
    match prepare::check(path, false) {
        Err(PoolError::NotFree { path, what, can_be_wiped }) => {
            let wipe = if can_be_wiped { "; to use it anyway and lose that data, wipe it first" } else { "" };
            Err(ManageError::Conflict(format!("flash: {path}: {what}{wipe}")))
        }
        checked => checked.map(drop).map_err(error),
    }
}

impl Making {
    /// Starts with the server's configuration.
    pub fn new(config: ServerConfig) -> Making {
        let (volumes, pools) = (List::of(&config.made_volumes), List::of(&config.made_pools));
        Making { known: Mutex::new(Known { config, volumes, pools }) }
    }

    /// True if a running server created the pool, so that it is not in the configuration.
    pub fn is_made(&self, pool: &str) -> bool {
        self.known.lock().config.is_made(pool)
    }

    /// Refuses to change the disks of a created pool if the change cannot be saved.
    pub fn check_kept(&self, pool: &str) -> Result<(), ManageError> {
        let known = self.known.lock();
        if known.config.is_made(pool) { known.check_file(Kind::Pool) } else { Ok(()) }
    }

    /// Returns the configuration with a new pool, if it is valid.
    fn check(&self, pool: &Made) -> Result<(ServerConfig, PoolConfig), ManageError> {
        let config = self.known.lock().check_new(Kind::Pool, pool)?;
        let made = config.pools.last().expect("the pool is the last one").clone();
        check_flash(&made.cache.flash)?;
        Ok((config, made))
    }

    /// Returns the plan for creating a pool.
    pub fn plan(&self, new: &NewPool) -> Result<Plan, ManageError> {
        let pool = asked(new)?;
        let (config, made) = self.check(&pool)?;
        let disks = prepare::check_all(&pool.name, &paths(&pool.disks), &paths(&new.wipe)).map_err(error)?;
        let room: u64 = disks.iter().map(|(_, room)| room).sum();
        let count = match disks.len() {
            1 => "1 disk".to_owned(),
            many => format!("{many} disks"),
        };
        let mut does =
            vec![format!("Pool {} is made of {count}, with room for {}.", pool.name, human::bytes(room as f64))];
        let wiped: Vec<_> = disks.iter().map(|(disk, _)| disk).filter(|disk| disk.refused.is_some()).collect();
        does.extend(wiped.iter().map(|disk| plan::lost(disk)));
        let wipes: Vec<String> = wiped.iter().map(|disk| disk.identity()).collect();
        let ram = human::bytes(made.cache.cache.ram_bytes() as f64);
        does.push(match made.cache.flash.as_os_str().is_empty() {
            true => format!("Its cache has {ram} of RAM and no flash."),
            false => format!("Its cache has {ram} of RAM, and lies on {}.", made.cache.flash.display()),
        });
        let file = Kind::Pool.path(&config.state_directory);
        does.push(format!("It is served at once, and after each restart: {} has it.", file.display()));
        Ok(Plan { does, destroys: !wipes.is_empty(), wipes })
    }

    /// Creates a pool and opens it.
    pub fn make(&self, new: &NewPool) -> Result<(Arc<Pool>, Opened), ManageError> {
        let pool = asked(new)?;
        let (config, made) = self.check(&pool)?;
        let disks = paths(&pool.disks);
        let metadata = prepare::create(&pool.name, &disks, &paths(&new.wipe)).map_err(error)?;
        let uuid = metadata.pool;
        drop(metadata);
        let opened = Pool::open(made, &|_, _| {}).map_err(|error| ManageError::Failed(error.to_string()));
        let opened = opened.and_then(|(made, opened)| {
            let mut known = self.known.lock();
            if let Err(error) = known.change(Kind::Pool, |pools| pools.push(pool)) {
                // The error of saving is the one to report.
                drop(made.close());
                return Err(error);
            }
            known.config = config;
            Ok((Arc::new(made), opened))
        });
        match opened {
            Ok(opened) => Ok(opened),
            Err(error) => {
                // The disks become blank again.
                if let Err(error) = prepare::unmake(uuid, &disks) {
                    tracing::error!(event = "disk-not-blank", %error, "a disk of a pool that could not be created is \
                        not blank");
                }
                Err(error)
            }
        }
    }

    /// Refuses to delete a pool that is in the configuration, or cannot be removed from the file.
    fn check_end(&self, pool: &Pool) -> Result<(), ManageError> {
        let known = self.known.lock();
        if !known.config.is_made(pool.name()) {
            let file = known.config.path.as_deref().unwrap_or(Path::new("the configuration")).display().to_string();
            let what = format!(
                "pool '{}' is of {file}: take it out there, start the server again, and wipe its disks",
                pool.name()
            );
            return Err(ManageError::Conflict(what));
        }
        known.check_file(Kind::Pool)
    }

    /// Returns the plan for deleting a pool.
    pub fn plan_end(&self, pool: &Pool) -> Result<Plan, ManageError> {
        self.check_end(pool)?;
        let mut plan = Plan::from(plan::Plan::end(pool).map_err(error)?);
        plan.does.push(format!("{} does not have it any more.", self.file(Kind::Pool).display()));
        Ok(plan)
    }

    /// Deletes a created pool for which [`plan_end`](Self::plan_end) succeeds; its disks become blank.
    pub fn end(&self, pool: &Pool) -> Result<(), ManageError> {
        {
            let mut known = self.known.lock();
            let config = known.config.without_made(Kind::Pool, pool.name());
            let config = config.map_err(|error| ManageError::Failed(error.to_string()))?;
            let uuid = pool.uuid();
            known.change(Kind::Pool, |pools| {
                pools.iter_mut().filter(|made| made.name == pool.name()).for_each(|made| made.ended = Some(uuid));
            })?;
            known.config = config;
        }
        // From now on no start opens it.
        let failed = |error| ManageError::Failed(format!("the pool is not served any more, but: {error}"));
        pool.end().map_err(|error| failed(error.to_string()))?;
        self.drop_from_file(Kind::Pool, pool.name()).map_err(|error| failed(error.to_string()))
    }

    fn drop_from_file(&self, kind: Kind, name: &str) -> Result<(), ManageError> {
        let mut known = self.known.lock();
        let config = match known.config.is_made(name) {
            true => known.config.without_made(kind, name).map_err(|error| ManageError::Failed(error.to_string()))?,
            false => known.config.clone(),
        };
        known.change(kind, |all| all.retain(|made| made.name != name))?;
        known.config = config;
        Ok(())
    }

    /// Returns the path of the file with the definitions of a kind.
    pub fn file(&self, kind: Kind) -> PathBuf {
        kind.path(self.known.lock().folder())
    }

    /// True if the file has one of that name, served or not.
    pub fn keeps(&self, kind: Kind, name: &str) -> bool {
        self.known.lock().list(kind).all.iter().any(|made| made.name == name)
    }

    /// Refuses the name of a created one that is not served.
    pub fn check_unserved(&self, kind: Kind, name: &str, is_served: bool) -> Result<(), ManageError> {
        if is_served || !self.keeps(kind, name) {
            return Ok(());
        }
        let file = self.file(kind);
        Err(ManageError::Conflict(format!(
            "there is a {kind} '{name}' already in {}, which is not served; to forget it, delete it",
            file.display()
        )))
    }

    /// Returns the plan for forgetting a pool that is not served.
    pub fn plan_forget(&self, name: &str) -> Result<Plan, ManageError> {
        let disks = {
            let known = self.known.lock();
            let of_name = known.pools.all.iter().filter(|made| made.name == name);
            of_name.flat_map(|made| made.disks.clone()).collect::<Vec<_>>()
        };
        self.plan_forget_of(Kind::Pool, name, format!("The contents of {} stay.", disks.join(" and ")))
    }

    fn plan_forget_of(&self, kind: Kind, name: &str, leaves: String) -> Result<Plan, ManageError> {
        self.known.lock().check_file(kind)?;
        let mut title = kind.to_string();
        title[..1].make_ascii_uppercase();
        let first =
            format!("{title} {name} is not served, and {} does not have it any more.", self.file(kind).display());
        Ok(Plan { does: vec![first, leaves], destroys: true, ..Plan::default() })
    }

    /// Removes one that is not served from the file; its devices keep their contents.
    pub fn forget(&self, kind: Kind, name: &str) -> Result<(), ManageError> {
        self.drop_from_file(kind, name)
    }

    /// Saves the current disks of a pool, if it was created here. If saving fails now, the next change saves it, or the
    /// end of the server.
    pub fn note_disks(&self, pool: &str, disks: &BTreeSet<String>) -> Result<(), ManageError> {
        let mut known = self.known.lock();
        if !known.config.is_made(pool) {
            return Ok(());
        }
        let Some(made) = known.list(Kind::Pool).all.iter_mut().find(|made| made.name == pool) else { return Ok(()) };
        made.disks = disks.iter().cloned().collect();
        known.write(Kind::Pool)
    }
}

/// Resumes interrupted deletions: the disks and the flash of such pools become blank.
pub fn finish_deletions(config: &mut ServerConfig) {
    let ended = |made: &Made| made.ended.map(|pool| (pool, made.clone()));
    for (pool, made) in config.made_pools.iter().filter_map(ended).collect::<Vec<_>>() {
        let [flash, journal] = ["flash", "journal"].map(|key| made.settings.get(key).map(PathBuf::from));
        let blank = prepare::unmake(pool, &paths(&made.disks))
            .and_then(|()| prepare::unmake_flash(pool, flash.as_deref()))
            .and_then(|()| prepare::unmake_journal(pool, journal.as_deref()));
        let others: Vec<Made> = config.made_pools.iter().filter(|other| other.name != made.name).cloned().collect();
        let done = blank.map_err(|error| error.to_string()).and_then(|()| {
            made::write(&config.state_directory, Kind::Pool, &others).map_err(|error| error.to_string())
        });
        match done {
            Ok(()) => {
                tracing::warn!(
                    event = "pool-deleted",
                    pool = made.name,
                    "the server ended while it deleted the pool; the disks are blank now"
                );
                config.made_pools = others;
            }
            Err(error) => {
                tracing::error!(
                    event = "pool-not-deleted",
                    pool = made.name,
                    error,
                    "the server ended while it deleted the pool; the disks are not blank yet"
                )
            }
        }
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        let mut known = self.known.lock();
        for kind in Kind::ALL {
            let list = known.list(kind);
            if list.all != list.kept
                && let Err(error) = known.write(kind)
            {
                tracing::error!(event = "created-not-saved", %error, "the list of created {kind}s is not saved");
            }
        }
    }
}
