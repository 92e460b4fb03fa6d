//! Pools that were made while a server ran, by its management API: no configuration has them, a file of the state directory does.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use flashwise_engine::pool::Uuid;
use serde::{Deserialize, Serialize};

use super::document::{Entry, Tables};
use super::value::Value;
use super::{ConfigError, Origin, ServerConfig};
use crate::kept;

/// What the file has, for people.
const WHAT: &str = "pools";

/// A pool that was made while the server ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MadePool {
    /// Its name.
    pub name: String,
    /// Its disks, by absolute paths.
    pub disks: Vec<String>,
    /// Keys of a table `[[pool]]` with their values as text, such as `ram` and `512MiB`.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// The pool's UUID once it is being deleted: who is interrupted goes on with that at the next start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Uuid>,
}

impl MadePool {
    fn entries(&self) -> Vec<Entry> {
        let entry = |key: &str, value| Entry { key: key.to_owned(), value, line: None };
        let disks = Value::List(self.disks.iter().cloned().map(Value::Text).collect());
        let own = [entry("name", Value::Text(self.name.clone())), entry("disks", disks)];
        let others = self.settings.iter().map(|(key, value)| entry(key, Value::Plain(value.clone())));
        own.into_iter().chain(others).collect()
    }
}

/// The file that has them.
pub fn path(state_directory: &Path) -> PathBuf {
    state_directory.join("pools.json")
}

/// Those that are kept.
pub fn read(state_directory: &Path) -> io::Result<Vec<MadePool>> {
    // Who may not look there has made none.
    if !kept::can_look_into(state_directory) {
        return Ok(Vec::new());
    }
    let pools: Vec<MadePool> = kept::read(&path(state_directory), WHAT)?.unwrap_or_default();
    for (at, pool) in pools.iter().enumerate() {
        if pools[..at].iter().any(|other| other.name == pool.name) {
            let what =
                format!("{}: found pool '{}' twice, expected it once", path(state_directory).display(), pool.name);
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
    }
    Ok(pools)
}

/// Refuses where others than these are there.
pub fn check_unchanged(state_directory: &Path, left: &Vec<MadePool>) -> io::Result<()> {
    kept::check_unchanged(&path(state_directory), WHAT, left)
}

/// Keeps them.
pub fn write(state_directory: &Path, pools: &[MadePool]) -> io::Result<()> {
    kept::write(&path(state_directory), &pools)
}

impl MadePool {
    /// Has it go on without its flash.
    pub fn leave_flash_out(&mut self) {
        self.settings.retain(|key, _| !key.starts_with("flash"));
    }
}

/// Keeps that a pool goes on without its flash; nothing where it was not made by a running server.
///
/// # Errors
/// The file cannot be read or written.
pub fn leave_flash_out(state_directory: &Path, pool: &str) -> io::Result<()> {
    let mut pools = read(state_directory)?;
    match pools.iter_mut().find(|made| made.name == pool) {
        Some(made) => made.leave_flash_out(),
        None => return Ok(()),
    }
    write(state_directory, &pools)
}

impl Tables {
    /// Takes up a pool that was made, unless it is being deleted, or the document has one of its name.
    pub(super) fn add_made(&mut self, pool: &MadePool, path: Option<PathBuf>) {
        let has_name = |entries: &Vec<Entry>| {
            entries.iter().any(|entry| entry.key == "name" && entry.value.text().is_ok_and(|name| name == pool.name))
        };
        if pool.ended.is_none() && !self.pools.iter().any(has_name) {
            self.made.insert(self.pools.len(), path);
            self.pools.push(pool.entries());
        }
    }
}

impl ServerConfig {
    /// Whether a pool was made while a server ran.
    pub fn is_made(&self, pool: &str) -> bool {
        self.pools.iter().zip(0..).any(|(one, number)| one.cache.name == pool && self.given.made.contains_key(&number))
    }

    /// The configuration without a pool that was made.
    pub fn without_made(&self, pool: &str) -> Result<ServerConfig, ConfigError> {
        let mut tables = self.given.clone();
        if let Some(at) = self.pools.iter().position(|one| one.cache.name == pool) {
            tables.pools.remove(at);
            let others = std::mem::take(&mut tables.made).into_iter().filter(|(number, _)| *number != at);
            tables.made = others.map(|(number, path)| (number - usize::from(number > at), path)).collect();
        }
        ServerConfig::checked(&Origin { path: self.path.as_deref(), tables: &tables })
    }

    /// The configuration with a pool besides, its last one, if it goes with the rest.
    pub fn with_made(&self, pool: &MadePool) -> Result<ServerConfig, ConfigError> {
        let mut tables = self.given.clone();
        tables.made.insert(tables.pools.len(), None);
        tables.pools.push(pool.entries());
        ServerConfig::checked(&Origin { path: self.path.as_deref(), tables: &tables })
    }
}
