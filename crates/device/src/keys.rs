//! Keys and their values, from TOML files or from options: parsed, checked, and rejected with their place.

use flashwise_core::options::{Given, Kind, did_you_mean};

use crate::toml::{self, Malformed, Toml};

/// An error in the description of an array, a device or a workload.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum ArrayError {
    #[error("{path}")]
    Io { path: String, source: std::io::Error },
    #[error("{path}: found more than {bytes_max} bytes, expected a device")]
    TooLong { path: String, bytes_max: u64 },
    #[error("{path}: byte {byte} is not UTF-8, expected TOML")]
    NotText { path: String, byte: usize },
    #[error("{path}, line {line}: {message}")]
    Syntax { path: String, line: usize, message: String },
    #[error("{place}: unknown key '{key}'{}; expected one of: {}", did_you_mean(.key, .expected), .expected.join(", "))]
    UnknownKey { place: String, key: String, expected: Vec<&'static str> },
    #[error("{place}: {key} is given twice")]
    Repeated { place: String, key: String },
    #[error("{place}: {key}: {problem}")]
    Value { place: String, key: String, problem: String },
    #[error("{place}: {key} is missing, expected {expected}")]
    Missing { place: String, key: String, expected: String },
    #[error("{place}: {keys} are both given, expected one of them")]
    Both { place: String, keys: &'static str },
    #[error("{place}: found no device '{found}'{}; expected one of: {}, or the path of a file that ends in \
        .toml", did_you_mean(.found, .expected), .expected.join(", "))]
    NoSuchDevice { place: String, found: String, expected: Vec<&'static str> },
    #[error(
        "{trace}: all requests have the same time, expected arrival times; without them, use a closed loop: \
         closed:depth=16"
    )]
    NoTimes { trace: String },
}

#[derive(Clone, Debug)]
struct KeyEntry {
    key: String,
    value: Given,
    line: Option<usize>,
}

/// Keys and values that describe one thing.
#[derive(Clone, Debug)]
pub struct Keys {
    place: String,
    entries: Vec<KeyEntry>,
}

impl Keys {
    /// Parses `key=value,key=value`, given to `option`.
    pub fn from_option(option: &str, text: &str) -> Result<Keys, ArrayError> {
        let mut entries = Vec::new();
        for pair in text.split(',').filter(|pair| !pair.is_empty()) {
            let Some((key, value)) = pair.split_once('=') else {
                let (place, problem) = (option.to_owned(), format!("found '{pair}', expected key=value"));
                return Err(ArrayError::Value { place, key: "options".to_owned(), problem });
            };
            entries.push(KeyEntry { key: key.to_owned(), value: value.into(), line: None });
        }
        let keys = Keys { place: option.to_owned(), entries };
        match keys.repeated() {
            Some(key) => Err(ArrayError::Repeated { place: keys.place.clone(), key }),
            None => Ok(keys),
        }
    }

    fn repeated(&self) -> Option<String> {
        let earlier = |at: usize, key: &str| self.entries[..at].iter().any(|entry| entry.key == key);
        let mut entries = self.entries.iter().enumerate();
        entries.find(|(at, entry)| earlier(*at, &entry.key)).map(|(_, entry)| entry.key.clone())
    }

    /// The source of the keys: a file, a table or an option.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Rejects keys that are not in `expected`, and repeated keys (`_` and `-` are the same).
    pub fn check(&self, expected: &[&'static str]) -> Result<(), ArrayError> {
        if let Some(key) = self.repeated() {
            return Err(ArrayError::Repeated { place: self.place.clone(), key });
        }
        match self.entries.iter().find(|entry| !expected.contains(&entry.key.as_str())) {
            None => Ok(()),
            Some(entry) => Err(ArrayError::UnknownKey {
                place: self.place_of(entry),
                key: entry.key.clone(),
                expected: expected.to_vec(),
            }),
        }
    }

    /// Returns the text of `key`, if given.
    pub fn text(&self, key: &str) -> Result<Option<&str>, ArrayError> {
        let Some(entry) = self.find(key) else { return Ok(None) };
        match &entry.value {
            Given::Number(text) => Ok(Some(text)),
            value => value.text().map(Some).map_err(|problem| self.problem(entry, problem)),
        }
    }

    /// Returns the number of `key`, of this kind, if given.
    pub fn number(&self, key: &str, kind: Kind) -> Result<Option<f64>, ArrayError> {
        let Some(entry) = self.find(key) else { return Ok(None) };
        entry.value.number(kind).map(Some).map_err(|problem| self.problem(entry, problem))
    }

    /// Returns the number of `key`, above 0, if given. It is infinite for `unlimited`.
    pub fn limit(&self, key: &str) -> Result<Option<f64>, ArrayError> {
        match self.find(key) {
            Some(entry) if entry.value.as_text() == Some("unlimited") => Ok(Some(f64::INFINITY)),
            _ => self.number(key, Kind::POSITIVE).map_err(|_| self.refused(key, "a number above 0, or 'unlimited'")),
        }
    }

    /// Returns the number of `key`, which is required.
    pub fn needed(&self, key: &str, kind: Kind) -> Result<f64, ArrayError> {
        self.number(key, kind)?.ok_or_else(|| self.missing(key, &kind.to_string()))
    }

    /// Returns the number of `key`, from `least` to `most`, if given.
    pub fn whole(&self, key: &str, least: u32, most: u32) -> Result<Option<u32>, ArrayError> {
        Ok(self.number(key, Kind::Count(least.into(), most.into()))?.map(|number| number as u32))
    }

    /// True if `key` is given.
    pub fn has(&self, key: &str) -> bool {
        self.find(key).is_some()
    }

    /// Returns the error that the value of `key` is not `expected`, or that the key is missing.
    pub fn refused(&self, key: &str, expected: &str) -> ArrayError {
        match self.find(key) {
            Some(entry) => self.problem(entry, format!("found {}, expected {expected}", entry.value)),
            None => self.missing(key, expected),
        }
    }

    /// Returns the keys without `key`.
    pub fn without(mut self, key: &str) -> Keys {
        self.entries.retain(|entry| entry.key != key);
        self
    }

    /// Adds `key`, which must not be present, as if the user had given it.
    pub(crate) fn with(mut self, key: &str, text: String) -> Keys {
        self.entries.push(KeyEntry { key: key.to_owned(), value: Given::Text(text), line: None });
        self
    }

    /// Returns the error that `key` is missing.
    pub fn missing(&self, key: &str, expected: &str) -> ArrayError {
        ArrayError::Missing { place: self.place.clone(), key: key.to_owned(), expected: expected.to_owned() }
    }

    fn find(&self, key: &str) -> Option<&KeyEntry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    fn place_of(&self, entry: &KeyEntry) -> String {
        match entry.line {
            Some(line) => format!("{}, line {line}", self.place),
            None => self.place.clone(),
        }
    }

    fn problem(&self, entry: &KeyEntry, problem: String) -> ArrayError {
        ArrayError::Value { place: self.place_of(entry), key: entry.key.clone(), problem }
    }
}

/// A TOML document whose values are numbers and text, at its top or in tables. In keys `_` stands for `-`.
#[derive(Debug)]
pub struct Document<'a> {
    path: &'a str,
    toml: Toml<'a>,
}

impl<'a> Document<'a> {
    /// Parses the document `text` from `path`.
    pub fn parse(path: &'a str, text: &'a str) -> Result<Document<'a>, ArrayError> {
        let toml = Toml::parse(text).map_err(|malformed| refused(path, malformed))?;
        Ok(Document { path, toml })
    }

    /// Returns the keys at the top.
    pub fn keys(&self) -> Keys {
        self.read(self.toml.root(), "")
    }

    /// Returns the keys of the table `name`, if there is one.
    pub fn table(&self, name: &str) -> Result<Option<Keys>, ArrayError> {
        let Some(found) = self.toml.root().into_iter().find(|entry| entry.key == name) else { return Ok(None) };
        let entries = self.toml.table(&found).map_err(|malformed| refused(self.path, malformed))?;
        Ok(Some(self.read(entries, &format!(" [{name}]"))))
    }

    /// Returns the keys of each table in the array `name`.
    pub fn tables(&self, name: &str) -> Result<Vec<Keys>, ArrayError> {
        let Some(found) = self.toml.root().into_iter().find(|entry| entry.key == name) else { return Ok(Vec::new()) };
        let tables = self.toml.tables(&found).map_err(|malformed| refused(self.path, malformed))?;
        let numbered = tables.into_iter().enumerate();
        Ok(numbered.map(|(at, (_, entries))| self.read(entries, &format!(" [[{name}]] {}", at + 1))).collect())
    }

    fn read(&self, entries: Vec<toml::Entry<'_, '_>>, name: &str) -> Keys {
        let entry = |toml::Entry { key, value, line }: toml::Entry<'_, '_>| {
            let shown = || Given::Other(self.toml.shown(value).to_owned());
            let value = toml::scalar(value.get_ref()).unwrap_or_else(shown);
            KeyEntry { key: key.replace('_', "-"), value, line: Some(line) }
        };
        Keys { place: format!("{}{name}", self.path), entries: entries.into_iter().map(entry).collect() }
    }
}

fn refused(path: &str, malformed: Malformed) -> ArrayError {
    let Malformed { line, message } = malformed;
    ArrayError::Syntax { path: path.to_owned(), line, message }
}
