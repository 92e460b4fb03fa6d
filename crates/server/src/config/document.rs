//! A TOML document as tables of keys and values with their lines.

use std::path::Path;

use flashwise_core::options::nearest;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::value::Value;
use super::{ConfigError, Flags, Place, Section};

/// A key and its value.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub key: String,
    pub value: Value,
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
    pub volumes: Vec<Vec<Entry>>,
    /// Where the tables of the volumes begin.
    pub volume_lines: Vec<usize>,
    pub pools: Vec<Vec<Entry>>,
    /// Where the tables of the pools begin.
    pub pool_lines: Vec<usize>,
}

const TABLES: [&str; 6] = ["api", "tls", "limits", "iscsi", "volume", "pool"];

struct Document<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Document<'_> {
    fn line(&self, at: usize) -> usize {
        1 + self.text.as_bytes()[..at.min(self.text.len())].iter().filter(|byte| **byte == b'\n').count()
    }

    fn syntax(&self, at: usize, message: String) -> ConfigError {
        ConfigError::Syntax { path: self.path.to_owned(), line: self.line(at), message }
    }

    fn entries(&self, table: &DeTable<'_>) -> Vec<Entry> {
        let mut entries: Vec<_> = table
            .iter()
            .map(|(key, value)| Entry {
                key: key.get_ref().to_string(),
                value: read(value.get_ref()),
                line: Some(self.line(key.span().start)),
            })
            .collect();
        entries.sort_by_key(|entry| entry.line);
        entries
    }

    fn table(&self, name: &str, value: &Spanned<DeValue<'_>>) -> Result<Vec<Entry>, ConfigError> {
        match value.get_ref() {
            DeValue::Table(table) => Ok(self.entries(table)),
            _ => Err(self.syntax(
                value.span().start,
                format!("{name} is no table; expected a line [{name}] with its keys below"),
            )),
        }
    }

    /// The tables of an array of them, and where they begin.
    fn tables(&self, name: &str, value: &Spanned<DeValue<'_>>) -> Result<Several, ConfigError> {
        let refuse = |at| {
            let message = format!(
                "{name} is no array of tables; expected a line [[{name}]] for each {name}, with its keys below"
            );
            Err(self.syntax(at, message))
        };
        let DeValue::Array(tables) = value.get_ref() else { return refuse(value.span().start) };
        let (mut found, mut lines) = (Vec::new(), Vec::new());
        for table in tables.iter() {
            let DeValue::Table(entries) = table.get_ref() else { return refuse(table.span().start) };
            found.push(self.entries(entries));
            lines.push(self.line(table.span().start));
        }
        Ok((found, lines))
    }
}

/// The entries of several tables, and the lines where they begin.
type Several = (Vec<Vec<Entry>>, Vec<usize>);

impl Tables {
    /// Takes a TOML document apart.
    pub fn parse(path: &Path, text: &str) -> Result<Tables, ConfigError> {
        let document = Document { path, text };
        let root = DeTable::parse(text).map_err(|error| {
            document.syntax(error.span().map_or(0, |span| span.start), format!("is no TOML: {}", error.message()))
        })?;
        let mut tables = Tables::default();
        let mut own = DeTable::new();
        for (key, value) in root.get_ref() {
            match key.get_ref().as_ref() {
                name @ "api" => tables.api = document.table(name, value)?,
                name @ "tls" => tables.tls = document.table(name, value)?,
                name @ "limits" => tables.limits = document.table(name, value)?,
                name @ "iscsi" => tables.iscsi = document.table(name, value)?,
                name @ "volume" => (tables.volumes, tables.volume_lines) = document.tables(name, value)?,
                name @ "pool" => (tables.pools, tables.pool_lines) = document.tables(name, value)?,
                name if matches!(value.get_ref(), DeValue::Table(_)) || is_tables(value.get_ref()) => {
                    let line = Some(document.line(key.span().start));
                    let (path, key) = (path.to_owned(), format!("[{name}]"));
                    let place = Place::Key { path, line, table: String::new(), key };
                    return Err(ConfigError::UnknownKey {
                        place,
                        near: nearest(name, &TABLES),
                        expected: TABLES.to_vec(),
                    });
                }
                _ => {
                    own.insert(key.clone(), value.clone());
                }
            }
        }
        tables.server = document.entries(&own);
        Ok(tables)
    }

    /// The tables of what flags say.
    pub fn from_flags(flags: Flags) -> Tables {
        let plain = |entries: Vec<(&'static str, String)>| {
            let entry =
                |(key, text): (&str, String)| Entry { key: key.to_owned(), value: Value::Plain(text), line: None };
            entries.into_iter().map(entry).collect::<Vec<_>>()
        };
        let mut server = plain(flags.server);
        let listen = Value::List(flags.listen.into_iter().map(Value::Plain).collect());
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
            Section::Volume(number) => &self.volumes[number],
            Section::Pool(number) => &self.pools[number],
        }
    }
}

fn is_tables(value: &DeValue<'_>) -> bool {
    let DeValue::Array(values) = value else { return false };
    values.iter().any(|value| matches!(value.get_ref(), DeValue::Table(_)))
}

fn read(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Value::Number(number.to_string()),
            Err(_) => Value::Number(number.as_str().to_owned()),
        },
        DeValue::Float(number) => Value::Number(number.as_str().to_owned()),
        DeValue::Boolean(value) => Value::Boolean(*value),
        DeValue::Datetime(date) => Value::Date(date.to_string()),
        DeValue::Array(values) => Value::List(values.iter().map(|value| read(value.get_ref())).collect()),
        DeValue::Table(_) => Value::Table,
    }
}
