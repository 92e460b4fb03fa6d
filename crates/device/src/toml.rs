//! TOML with line numbers, for descriptions of devices and for the configuration of a server.

use ::toml::Spanned;
use ::toml::de::{DeInteger, DeTable, DeValue};
use flashwise_core::options::Given;

/// A syntax error.
#[derive(Debug)]
pub struct Malformed {
    /// The line, from 1.
    pub line: usize,
    /// The error, in words.
    pub message: String,
}

/// A parsed document with its text.
#[derive(Debug)]
pub struct Toml<'a> {
    text: &'a str,
    root: DeTable<'a>,
    /// The byte offset of each line's end, to find the line of a key quickly.
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
    /// Parses a text.
    ///
    /// # Errors
    /// The text is not TOML.
    pub fn parse(text: &'a str) -> Result<Toml<'a>, Malformed> {
        let line_ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
        match DeTable::parse(text) {
            Ok(root) => Ok(Toml { text, root: root.into_inner(), line_ends }),
            Err(error) => Err(Malformed {
                line: line(&line_ends, error.span().map_or(0, |span| span.start)),
                message: format!("is not TOML: {}", error.message()),
            }),
        }
    }

    /// Returns the keys at the top and the names of the tables, by line.
    pub fn root(&self) -> Vec<Entry<'_, 'a>> {
        self.entries(&self.root)
    }

    /// Returns the keys of a table, by line.
    pub fn entries<'t>(&self, table: &'t DeTable<'a>) -> Vec<Entry<'t, 'a>> {
        let entry = |(key, value): (&'t Spanned<_>, &'t Spanned<DeValue<'a>>)| {
            let name: &'t std::borrow::Cow<'a, str> = key.get_ref();
            Entry { key: name, value, line: line(&self.line_ends, key.span().start) }
        };
        let mut entries: Vec<_> = table.iter().map(entry).collect();
        entries.sort_by_key(|entry| entry.line);
        entries
    }

    /// Returns the keys of the table that is the value of `entry`.
    ///
    /// # Errors
    /// The value is not a table.
    pub fn table<'t>(&self, entry: &Entry<'t, 'a>) -> Result<Vec<Entry<'t, 'a>>, Malformed> {
        let name = entry.key;
        match entry.value.get_ref() {
            DeValue::Table(table) => Ok(self.entries(table)),
            _ => Err(Malformed {
                line: self.line_of(entry.value),
                message: format!("{name} is not a table; expected a line [{name}] with its keys below"),
            }),
        }
    }

    /// Returns the tables in the array that is the value of `entry`: the line where each begins, and its keys.
    ///
    /// # Errors
    /// The value is not an array of tables.
    pub fn tables<'t>(&self, entry: &Entry<'t, 'a>) -> Result<Vec<(usize, Vec<Entry<'t, 'a>>)>, Malformed> {
        let name = entry.key;
        let refuse = |value| Malformed {
            line: self.line_of(value),
            message: format!(
                "{name} is not an array of tables; expected a line [[{name}]] for each {name}, with its keys below"
            ),
        };
        let DeValue::Array(tables) = entry.value.get_ref() else { return Err(refuse(entry.value)) };
        let read = |table: &'t Spanned<DeValue<'a>>| match table.get_ref() {
            DeValue::Table(entries) => Ok((self.line_of(table), self.entries(entries))),
            _ => Err(refuse(table)),
        };
        tables.iter().map(read).collect()
    }

    /// Returns the first line of the value as the user wrote it.
    pub fn shown(&self, value: &Spanned<DeValue<'_>>) -> &'a str {
        self.text.get(value.span()).and_then(|text| text.lines().next()).unwrap_or_default()
    }

    fn line_of(&self, value: &Spanned<DeValue<'_>>) -> usize {
        line(&self.line_ends, value.span().start)
    }
}

/// Reads text, a number or a boolean.
pub fn scalar(value: &DeValue<'_>) -> Option<Given> {
    match value {
        DeValue::String(text) => Some(Given::Text(text.to_string())),
        DeValue::Integer(number) => Some(Given::Number(decimal(number))),
        DeValue::Float(number) => Some(Given::Number(number.as_str().replace('_', ""))),
        DeValue::Boolean(value) => Some(Given::Boolean(*value)),
        _ => None,
    }
}

/// Formats a whole number in decimal, in whichever base it was written.
pub fn decimal(number: &DeInteger<'_>) -> String {
    let digits = number.as_str().replace('_', "");
    match i128::from_str_radix(&digits, number.radix()) {
        Ok(number) => number.to_string(),
        Err(_) => digits,
    }
}

/// Returns the line of a byte, from 1.
fn line(line_ends: &[usize], at: usize) -> usize {
    1 + line_ends.partition_point(|end| *end < at)
}
