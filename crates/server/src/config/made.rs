//! Volumes and pools that were made while a server ran, by its management API: no configuration has them, files of the
//! state directory do.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use flashwise_core::options::Given;
use flashwise_storage::pool::Uuid;
use serde::{Deserialize, Serialize};

use super::document::{Entry, Tables};
pub use super::kind::Kind;
use super::{ConfigError, Origin, ServerConfig};
use crate::state::kept;

/// A volume or a pool that was made while the server ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Made {
    /// Its name.
    pub name: String,
    /// The disks of a pool, by absolute paths; none for a volume.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<String>,
    /// Keys of its table in a configuration with their values as text, such as `ram` and `512MiB`.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// A pool's UUID during its deletion. After an interruption, the next start completes the deletion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Uuid>,
}

impl Made {
    fn entries(&self) -> Vec<Entry> {
        let entry = |key: &str, value| Entry { key: key.to_owned(), value, line: None };
        let disks = Given::List(self.disks.iter().cloned().map(Given::Text).collect());
        let disks = (!self.disks.is_empty()).then(|| entry("disks", disks));
        let others = self.settings.iter().map(|(key, value)| entry(key, Given::Text(value.clone())));
        std::iter::once(entry("name", Given::Text(self.name.clone()))).chain(disks).chain(others).collect()
    }
}

/// Reads the volumes or pools from the state directory.
pub fn read(state_directory: &Path, kind: Kind) -> io::Result<Vec<Made>> {
    // Without access to the directory, this user has created none.
    if !kept::can_look_into(state_directory) {
        return Ok(Vec::new());
    }
    let path = kind.path(state_directory);
    let all: Vec<Made> = kept::read(&path, kind.many())?.unwrap_or_default();
    for (at, one) in all.iter().enumerate() {
        if all[..at].iter().any(|other| other.name == one.name) {
            let what = format!("{}: found {kind} '{}' twice, expected it once", path.display(), one.name);
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
    }
    Ok(all)
}

/// Fails if the file contains other entries.
pub fn check_unchanged(state_directory: &Path, kind: Kind, left: &Vec<Made>) -> io::Result<()> {
    kept::check_unchanged(&kind.path(state_directory), kind.many(), left)
}

/// Keeps them.
pub fn write(state_directory: &Path, kind: Kind, all: &[Made]) -> io::Result<()> {
    kept::write(&kind.path(state_directory), &all)
}

impl Tables {
    fn of_kind(&mut self, kind: Kind) -> &mut Vec<Vec<Entry>> {
        match kind {
            Kind::Volume => &mut self.volumes,
            Kind::Pool => &mut self.pools,
        }
    }

    fn add(&mut self, kind: Kind, made: &Made, path: Option<PathBuf>) {
        let number = self.of_kind(kind).len();
        self.made.insert((kind, number), path);
        self.of_kind(kind).push(made.entries());
    }

    /// Adds a volume or pool of the state directory, unless it is being deleted or the document has the same name.
    pub(super) fn add_made(&mut self, kind: Kind, made: &Made, path: Option<PathBuf>) {
        let has_name = |entries: &Vec<Entry>| {
            entries.iter().any(|entry| entry.key == "name" && entry.value.text().is_ok_and(|name| name == made.name))
        };
        if made.ended.is_none() && !self.of_kind(kind).iter().any(has_name) {
            self.add(kind, made, path);
        }
    }
}

impl ServerConfig {
    fn position(&self, kind: Kind, name: &str) -> Option<usize> {
        match kind {
            Kind::Volume => self.volumes.iter().position(|one| one.name == name),
            Kind::Pool => self.pools.iter().position(|one| one.cache.name == name),
        }
    }

    /// True if a volume or a pool was made while a server ran.
    pub fn is_made(&self, name: &str) -> bool {
        let is_made =
            |kind| self.position(kind, name).is_some_and(|number| self.given.made.contains_key(&(kind, number)));
        Kind::ALL.into_iter().any(is_made)
    }

    /// The configuration without one that was made.
    pub fn without_made(&self, kind: Kind, name: &str) -> Result<ServerConfig, ConfigError> {
        let mut tables = self.given.clone();
        if let Some(at) = self.position(kind, name) {
            tables.of_kind(kind).remove(at);
            let others = std::mem::take(&mut tables.made).into_iter().filter(|(of, _)| *of != (kind, at));
            let moved = |(of, number)| (of, number - usize::from(of == kind && number > at));
            tables.made = others.map(|(of, path)| (moved(of), path)).collect();
        }
        ServerConfig::checked(&Origin { path: self.path.as_deref(), tables: &tables })
    }

    /// The configuration with one besides, the last of its kind, if it goes with the rest.
    pub fn with_made(&self, kind: Kind, made: &Made) -> Result<ServerConfig, ConfigError> {
        let mut tables = self.given.clone();
        tables.add(kind, made, None);
        ServerConfig::checked(&Origin { path: self.path.as_deref(), tables: &tables })
    }
}
