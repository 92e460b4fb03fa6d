//! TOML with lines: what reads descriptions of devices reads the configuration of a server too.

use ::toml::Spanned;
use ::toml::de::{DeInteger, DeTable, DeValue};

/// Why a text was not read.
#[derive(Debug)]
pub struct Malformed {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub message: String,
}

/// The text of a document, and what it says.
#[derive(Debug)]
pub struct Toml<'a> {
    text: &'a str,
    root: DeTable<'a>,
    /// Where each line ends, so that the line of a key is found without reading the text again.
    line_ends: Vec<usize>,
}

/// A key, its value and its line.
#[derive(Debug)]
pub struct Entry<'t, 'a> {
    /// The key.
    pub key: &'t str,
    /// The value.
    pub value: &'t Spanned<DeValue<'a>>,
    /// The line of the key, from 1.
    pub line: usize,
}

impl<'a> Toml<'a> {
    /// Reads a text.
    ///
    /// # Errors
    /// It is no TOML.
    pub fn parse(text: &'a str) -> Result<Toml<'a>, Malformed> {
        let line_ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
        match DeTable::parse(text) {
            Ok(root) => Ok(Toml { text, root: root.into_inner(), line_ends }),
            Err(error) => Err(Malformed {
                line: line(&line_ends, error.span().map_or(0, |span| span.start)),
                message: format!("is no TOML: {}", error.message()),
            }),
        }
    }

    /// The keys at the top, and the names of the tables, by line.
    pub fn root(&self) -> Vec<Entry<'_, 'a>> {
        self.entries(&self.root)
    }

    /// The keys of a table, by line.
    pub fn entries<'t>(&self, table: &'t DeTable<'a>) -> Vec<Entry<'t, 'a>> {
        let entry = |(key, value): (&'t Spanned<_>, &'t Spanned<DeValue<'a>>)| {
            let name: &'t std::borrow::Cow<'a, str> = key.get_ref();
            Entry { key: name, value, line: line(&self.line_ends, key.span().start) }
        };
        let mut entries: Vec<_> = table.iter().map(entry).collect();
        entries.sort_by_key(|entry| entry.line);
        entries
    }

    /// The keys of the table that is the value of `entry`.
    ///
    /// # Errors
    /// It is no table.
    pub fn table<'t>(&self, entry: &Entry<'t, 'a>) -> Result<Vec<Entry<'t, 'a>>, Malformed> {
        let name = entry.key;
        match entry.value.get_ref() {
            DeValue::Table(table) => Ok(self.entries(table)),
            _ => Err(Malformed {
                line: self.line_of(entry.value),
                message: format!("{name} is no table; expected a line [{name}] with its keys below"),
            }),
        }
    }

    /// The lines where the tables begin that are the value of `entry`, and their keys.
    ///
    /// # Errors
    /// It is no array of tables.
    pub fn tables<'t>(&self, entry: &Entry<'t, 'a>) -> Result<Vec<(usize, Vec<Entry<'t, 'a>>)>, Malformed> {
        let name = entry.key;
        let refuse = |value| Malformed {
            line: self.line_of(value),
            message: format!(
                "{name} is no array of tables; expected a line [[{name}]] for each {name}, with its keys below"
            ),
        };
        let DeValue::Array(tables) = entry.value.get_ref() else { return Err(refuse(entry.value)) };
        let read = |table: &'t Spanned<DeValue<'a>>| match table.get_ref() {
            DeValue::Table(entries) => Ok((self.line_of(table), self.entries(entries))),
            _ => Err(refuse(table)),
        };
        tables.iter().map(read).collect()
    }

    /// The value as the user wrote it, as far as it is on its first line.
    pub fn shown(&self, value: &Spanned<DeValue<'_>>) -> &'a str {
        self.text.get(value.span()).and_then(|text| text.lines().next()).unwrap_or_default()
    }

    fn line_of(&self, value: &Spanned<DeValue<'_>>) -> usize {
        line(&self.line_ends, value.span().start)
    }
}

/// A whole number as people write it, whatever base it was written in.
pub fn decimal(number: &DeInteger<'_>) -> String {
    let digits = number.as_str().replace('_', "");
    match i128::from_str_radix(&digits, number.radix()) {
        Ok(number) => number.to_string(),
        Err(_) => digits,
    }
}

/// The line of a byte, from 1.
fn line(line_ends: &[usize], at: usize) -> usize {
    1 + line_ends.partition_point(|end| *end < at)
}
