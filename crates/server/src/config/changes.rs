//! //! Differences between two configurations.

use std::collections::BTreeSet;

use super::document::{Entry, Tables};
use super::{Section, ServerConfig};

/// Keys that a reload applies to the running server, by table.
const RELOADED: [(&str, &str); 6] = [
    ("", "log-level"),
    ("[api] ", "token-file"),
    ("[api] ", "read-token-file"),
    ("[tls] ", "certificate"),
    ("[tls] ", "key"),
    ("[tls] ", "client-authorities"),
];

impl ServerConfig {
    /// Returns the keys that differ in a `newer` configuration and need a restart, such as `[limits] connections-max`.
    pub fn needs_restart(&self, newer: &ServerConfig) -> Vec<String> {
        let (old, new) = (&self.given, &newer.given);
        let sections = [
            ("", Section::Server),
            ("[api] ", Section::Api),
            ("[tls] ", Section::Tls),
            ("[limits] ", Section::Limits),
            ("[iscsi] ", Section::Iscsi),
            ("[alerts] ", Section::Alerts),
        ];
        let mut found = Vec::new();
        for (table, section) in sections {
            let differing = differing(old.entries(section), new.entries(section));
            let kept = differing.into_iter().filter(|key| !RELOADED.contains(&(table, *key)));
            found.extend(kept.map(|key| format!("{table}{key}")));
        }
        let names: BTreeSet<&str> =
            self.volumes.iter().chain(&newer.volumes).map(|volume| volume.name.as_str()).collect();
        // Volumes and pools of the state directory are already served.
        for name in names.into_iter().filter(|name| !self.is_made(name) && !newer.is_made(name)) {
            match (volume(old, self, name), volume(new, newer, name)) {
                (Some(old), Some(new)) => {
                    found.extend(differing(old, new).into_iter().map(|key| format!("[[volume]] '{name}' {key}")));
                }
                _ => found.push(format!("[[volume]] '{name}'")),
            }
        }
        let names: BTreeSet<&str> =
            self.pools.iter().chain(&newer.pools).map(|pool| pool.cache.name.as_str()).collect();
        for name in names.into_iter().filter(|name| !self.is_made(name) && !newer.is_made(name)) {
            match (pool(old, self, name), pool(new, newer, name)) {
                (Some(old), Some(new)) => {
                    found.extend(differing(old, new).into_iter().map(|key| format!("[[pool]] '{name}' {key}")));
                }
                _ => found.push(format!("[[pool]] '{name}'")),
            }
        }
        found
    }
}

fn pool<'a>(tables: &'a Tables, config: &ServerConfig, name: &str) -> Option<&'a [Entry]> {
    let number = config.pools.iter().position(|pool| pool.cache.name == name)?;
    Some(tables.entries(Section::Pool(number)))
}

fn volume<'a>(tables: &'a Tables, config: &ServerConfig, name: &str) -> Option<&'a [Entry]> {
    let number = config.volumes.iter().position(|volume| volume.name == name)?;
    Some(tables.entries(Section::Volume(number)))
}

/// Returns the keys that differ, or that only one of two tables has.
fn differing<'a>(old: &'a [Entry], new: &'a [Entry]) -> BTreeSet<&'a str> {
    let value =
        |entries: &'a [Entry], key: &str| entries.iter().find(|entry| entry.key == key).map(|entry| &entry.value);
    let keys = old.iter().chain(new).map(|entry| entry.key.as_str());
    keys.filter(|key| value(old, key) != value(new, key)).collect()
}
