//! Parses a TOML document into tables of keys and values with their lines.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ::toml::de::DeValue;
use flashwise_core::options::{Given, nearest};
use flashwise_device::toml::{self, Malformed, Toml};

use super::kind::Kind;
use super::{ConfigError, Flags, Place, Section};

/// A key and its value.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub key: String,
    pub value: Given,
    /// The line, counted from 1, in a file.
    pub line: Option<usize>,
}

/// The tables of a configuration; each may be empty.
#[derive(Clone, Debug, Default)]
pub(super) struct Tables {
    server: Vec<Entry>,
    api: Vec<Entry>,
    tls: Vec<Entry>,
    limits: Vec<Entry>,
    iscsi: Vec<Entry>,
    alerts: Vec<Entry>,
    pub volumes: Vec<Vec<Entry>>,
    /// Lines where the tables of the volumes begin.
    pub volume_lines: Vec<usize>,
    pub pools: Vec<Vec<Entry>>,
    /// Lines where the tables of the pools begin.
    pub pool_lines: Vec<usize>,
    /// Volumes and pools that no document has, by number, with their file in the state directory, if it exists yet.
    pub made: BTreeMap<(Kind, usize), Option<PathBuf>>,
}

const TABLES: [&str; 7] = ["api", "tls", "limits", "iscsi", "alerts", "volume", "pool"];

impl Tables {
    /// Parses a TOML document.
    pub fn parse(path: &Path, text: &str) -> Result<Tables, ConfigError> {
        let refused = |malformed: Malformed| {
            let Malformed { line, message } = malformed;
            ConfigError::Syntax { path: path.to_owned(), line, message }
        };
        let toml = Toml::parse(text).map_err(refused)?;
        let mut tables = Tables::default();
        for entry in toml.root() {
            let table = || toml.table(&entry).map(read_all).map_err(refused);
            let several = || -> Result<(Vec<Vec<Entry>>, Vec<usize>), ConfigError> {
                let tables = toml.tables(&entry).map_err(refused)?;
                Ok(tables.into_iter().map(|(line, entries)| (read_all(entries), line)).unzip())
            };
            match entry.key {
                "api" => tables.api = table()?,
                "tls" => tables.tls = table()?,
                "limits" => tables.limits = table()?,
                "iscsi" => tables.iscsi = table()?,
                "alerts" => tables.alerts = table()?,
                "volume" => (tables.volumes, tables.volume_lines) = several()?,
                "pool" => (tables.pools, tables.pool_lines) = several()?,
                name if matches!(entry.value.get_ref(), DeValue::Table(_)) || is_tables(entry.value.get_ref()) => {
                    let (path, key) = (path.to_owned(), format!("[{name}]"));
                    let place = Place::Key { path, line: Some(entry.line), table: String::new(), key };
                    return Err(ConfigError::UnknownKey {
                        place,
                        near: nearest(name, &TABLES),
                        expected: TABLES.to_vec(),
                    });
                }
                _ => tables.server.extend(read_all(vec![entry])),
            }
        }
        Ok(tables)
    }

    /// Converts flags to tables.
    pub fn from_flags(flags: Flags) -> Tables {
        let plain = |entries: Vec<(&'static str, String)>| {
            let entry =
                |(key, text): (&str, String)| Entry { key: key.to_owned(), value: Given::Text(text), line: None };
            entries.into_iter().map(entry).collect::<Vec<_>>()
        };
        let mut server = plain(flags.server);
        let listen = Given::List(flags.listen.into_iter().map(Given::Text).collect());
        server.push(Entry { key: "listen".to_owned(), value: listen, line: None });
        Tables { server, api: plain(flags.api), volumes: vec![plain(flags.volume)], ..Tables::default() }
    }

    /// The keys of a table.
    pub fn entries(&self, section: Section) -> &[Entry] {
        match section {
            Section::Server => &self.server,
            Section::Api => &self.api,
            Section::Tls => &self.tls,
            Section::Limits => &self.limits,
            Section::Iscsi => &self.iscsi,
            Section::Alerts => &self.alerts,
            Section::Volume(number) => &self.volumes[number],
            Section::Pool(number) => &self.pools[number],
        }
    }
}

fn is_tables(value: &DeValue<'_>) -> bool {
    let DeValue::Array(values) = value else { return false };
    values.iter().any(|value| matches!(value.get_ref(), DeValue::Table(_)))
}

fn read_all(entries: Vec<toml::Entry<'_, '_>>) -> Vec<Entry> {
    let entry = |toml::Entry { key, value, line }: toml::Entry<'_, '_>| Entry {
        key: key.to_owned(),
        value: read(value.get_ref()),
        line: Some(line),
    };
    entries.into_iter().map(entry).collect()
}

fn read(value: &DeValue<'_>) -> Given {
    toml::scalar(value).unwrap_or_else(|| match value {
        DeValue::Array(values) => Given::List(values.iter().map(|value| read(value.get_ref())).collect()),
        DeValue::Datetime(date) => Given::Other(date.to_string()),
        _ => Given::Other("a table".to_owned()),
    })
}
