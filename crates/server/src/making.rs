//! Pools that are made while a server runs: they are served at once, and again after a restart.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flashwise_core::quantity::ByteSize;
use flashwise_engine::disk::zoned::may_have_zones;
use flashwise_engine::pool::plan::lost;
use flashwise_engine::pool::{Pool, PoolConfig, PoolError, prepare};
use flashwise_engine::volume::Opened;

use crate::config::ServerConfig;
use crate::config::made::{self, MadePool};
use crate::manage::plan::Plan;
use crate::manage::{ManageError, NewPool};
use crate::managed_pools::error;

/// Makes pools, and keeps what they are made of.
#[derive(Debug)]
pub struct Making {
    /// The configuration with the pools that were made.
    config: Mutex<ServerConfig>,
}

/// What a request asks for.
fn asked(new: &NewPool) -> Result<MadePool, ManageError> {
    let NewPool { name, disks, wipe, settings } = new;
    let invalid = |what: String| Err(ManageError::Invalid(what));
    if disks.is_empty() {
        return invalid("disks: found none, expected at least one".to_owned());
    }
    let flash = settings.get("flash").into_iter();
    if let Some(path) = disks.iter().chain(flash).find(|path| !Path::new(path).is_absolute()) {
        return invalid(format!("found '{path}', expected an absolute path such as /dev/sdb"));
    }
    if let Some(other) = wipe.iter().find(|path| !disks.contains(path)) {
        return invalid(format!("found '{other}' as a disk to wipe, which is none of the pool's disks"));
    }
    if let Some(key) = ["name", "disks", "degraded"].into_iter().find(|key| settings.contains_key(*key)) {
        return invalid(format!(
            "found {key} among the settings, expected keys of a pool's cache, such as flash or ram"
        ));
    }
    Ok(MadePool { name: name.clone(), disks: disks.clone(), settings: settings.clone() })
}

fn paths(of: &[String]) -> Vec<PathBuf> {
    of.iter().map(PathBuf::from).collect()
}

/// Refuses a flash that holds something or is used: a cache is not given away by a slip.
fn check_flash(path: &Path) -> Result<(), PoolError> {
    if !path.exists() || may_have_zones(path) {
        return Ok(());
    }
    prepare::check(path, false).map(drop)
}

impl Making {
    /// With the configuration that the server was started with.
    pub fn new(config: ServerConfig) -> Making {
        Making { config: Mutex::new(config) }
    }

    fn locked(&self) -> MutexGuard<'_, ServerConfig> {
        self.config.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The configuration with a pool that is wanted, if that can be made.
    fn check(&self, pool: &MadePool) -> Result<(ServerConfig, PoolConfig), ManageError> {
        let config = self.locked();
        if config.path.is_none() {
            let what = "this server was started by flags, which describe one volume; start it with a configuration to make pools";
            return Err(ManageError::Conflict(what.to_owned()));
        }
        if config.pools.iter().any(|other| other.cache.name == pool.name) {
            return Err(ManageError::Conflict(format!("there is a pool '{}' already", pool.name)));
        }
        let config = config.with_made(pool).map_err(|error| ManageError::Invalid(error.to_string()))?;
        let made = config.pools.last().expect("the pool is the last one").clone();
        check_flash(&made.cache.flash).map_err(error)?;
        Ok((config, made))
    }

    /// What making a pool would do.
    pub fn plan(&self, new: &NewPool) -> Result<Plan, ManageError> {
        let pool = asked(new)?;
        let (config, made) = self.check(&pool)?;
        let disks = prepare::check_all(&pool.name, &paths(&pool.disks), &paths(&new.wipe)).map_err(error)?;
        let room: u64 = disks.iter().map(|(_, room)| room).sum();
        let count = match disks.len() {
            1 => "1 disk".to_owned(),
            many => format!("{many} disks"),
        };
        let mut does = vec![format!("Pool {} is made of {count}, with room for {}.", pool.name, ByteSize::new(room))];
        let wiped = disks.iter().map(|(disk, _)| disk).filter(|disk| disk.refused.is_some());
        let wiped: Vec<String> = wiped.map(lost).collect();
        let destroys = !wiped.is_empty();
        does.extend(wiped);
        let ram = ByteSize::new(made.cache.cache.ram_bytes());
        does.push(match made.cache.flash.as_os_str().is_empty() {
            true => format!("Its cache has {ram} of RAM and no flash."),
            false => format!("Its cache has {ram} of RAM, and lies on {}.", made.cache.flash.display()),
        });
        let file = made::path(&config.state_directory);
        does.push(format!("It is served at once, and after each restart: {} has it.", file.display()));
        Ok(Plan { does, destroys })
    }

    /// Makes a pool and opens it.
    pub fn make(&self, new: &NewPool) -> Result<(Arc<Pool>, Opened), ManageError> {
        let pool = asked(new)?;
        let (config, made) = self.check(&pool)?;
        let disks = paths(&pool.disks);
        drop(prepare::create(&pool.name, &disks, &paths(&new.wipe)).map_err(error)?);
        let opened = Pool::open(made, &|_, _| {}).map_err(|error| ManageError::Failed(error.to_string()));
        let opened = opened.and_then(|(made, opened)| match self.keep(|pools| pools.push(pool)) {
            Ok(()) => Ok((Arc::new(made), opened)),
            Err(error) => {
                // That it cannot be kept is what there is to say.
                drop(made.close());
                Err(error)
            }
        });
        match opened {
            Ok(opened) => {
                *self.locked() = config;
                Ok(opened)
            }
            Err(error) => {
                // They are as blank as they were made for it.
                disks.iter().for_each(|path| drop(prepare::prepare(path, true, true)));
                Err(error)
            }
        }
    }

    /// Takes note of the disks that a pool has now, if it was made here.
    pub fn note_disks(&self, pool: &str, disks: &[String]) -> Result<(), ManageError> {
        if !self.locked().is_made(pool) {
            return Ok(());
        }
        self.keep(|pools| {
            pools.iter_mut().filter(|made| made.name == pool).for_each(|made| made.disks = disks.to_vec());
        })
    }

    /// Changes what is kept of the pools that were made.
    fn keep(&self, change: impl FnOnce(&mut Vec<MadePool>)) -> Result<(), ManageError> {
        let config = self.locked();
        let folder = &config.state_directory;
        let kept = made::read(folder).and_then(|mut pools| {
            change(&mut pools);
            made::write(folder, &pools)
        });
        let file = made::path(folder);
        kept.map_err(|error| ManageError::Failed(format!("{} cannot be written: {error}", file.display())))
    }
}
