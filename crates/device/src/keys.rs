//! Keys and their values, from TOML files or from options: parsed, checked, and rejected with their place.

use ::toml::de::DeValue;
use flashwise_core::options::did_you_mean;
use flashwise_core::quantity::Share;

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
    #[error("{place}: {key}: found {found}, expected {expected}")]
    Value { place: String, key: String, found: String, expected: String },
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

/// The numbers that a key accepts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Range {
    /// More than zero.
    Positive,
    /// More than zero, or `unlimited`.
    PositiveOrUnlimited,
    /// A whole number, within these bounds.
    Whole(u32, u32),
    /// A number within these bounds.
    Between(f64, f64),
    /// Zero or more.
    NotNegative,
    /// A share of 1, or a percentage.
    Share,
}

/// Upper limit of numbers. Larger ones are mistakes, and far larger ones would overflow to infinity in sums.
const NUMBER_MAX: f64 = 1e15;
/// The smallest number that counts as positive.
const POSITIVE_MIN: f64 = 1e-9;

impl Range {
    fn expected(self) -> String {
        match self {
            Range::Positive => "a number greater than 0".to_owned(),
            Range::PositiveOrUnlimited => "a number greater than 0, or 'unlimited'".to_owned(),
            Range::Whole(least, most) => format!("a whole number from {least} to {most}"),
            Range::Between(least, most) => format!("a number from {least} to {most}"),
            Range::NotNegative => "a number of at least 0".to_owned(),
            Range::Share => "a share from 0% to 100%".to_owned(),
        }
    }

    pub(crate) fn read(self, text: &str) -> Option<f64> {
        let number = |text: &str| text.trim().parse::<f64>().ok().filter(|number| *number <= NUMBER_MAX);
        match self {
            Range::Positive => number(text).filter(|number| *number >= POSITIVE_MIN),
            Range::PositiveOrUnlimited if text == "unlimited" => Some(f64::INFINITY),
            Range::PositiveOrUnlimited => Range::Positive.read(text),
            Range::Whole(least, most) => {
                text.trim().parse().ok().filter(|number| (least..=most).contains(number)).map(f64::from)
            }
            Range::Between(least, most) => number(text).filter(|number| (least..=most).contains(number)),
            Range::NotNegative => number(text).filter(|number| *number >= 0.0),
            Range::Share => text.trim().parse().ok().map(Share::of_one),
        }
    }
}

#[derive(Clone, Debug)]
struct Entry {
    key: String,
    /// The value, if it is a number or text.
    text: Option<String>,
    /// The value as the user wrote it.
    shown: String,
    line: Option<usize>,
}

/// Keys and values that describe one thing.
#[derive(Clone, Debug)]
pub struct Keys {
    place: String,
    entries: Vec<Entry>,
}

impl Keys {
    /// Parses `key=value,key=value`, given to `option`.
    pub fn from_option(option: &str, text: &str) -> Result<Keys, ArrayError> {
        let mut entries = Vec::new();
        for pair in text.split(',').filter(|pair| !pair.is_empty()) {
            let Some((key, value)) = pair.split_once('=') else {
                let (place, found) = (option.to_owned(), format!("'{pair}'"));
                return Err(ArrayError::Value {
                    place,
                    key: "options".to_owned(),
                    found,
                    expected: "key=value".to_owned(),
                });
            };
            let text = Some(value.to_owned());
            entries.push(Entry { key: key.to_owned(), text, shown: format!("'{value}'"), line: None });
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
        match entry.text.as_deref().filter(|text| !text.is_empty()) {
            Some(text) => Ok(Some(text)),
            None => Err(self.refuse(entry, "text that is not empty")),
        }
    }

    /// Returns the number of `key`, if given.
    pub fn number(&self, key: &str, range: Range) -> Result<Option<f64>, ArrayError> {
        let Some(entry) = self.find(key) else { return Ok(None) };
        match entry.text.as_deref().and_then(|text| range.read(text)) {
            Some(number) => Ok(Some(number)),
            None => Err(self.refuse(entry, &range.expected())),
        }
    }

    /// Returns the number of `key`, which is required.
    pub fn needed(&self, key: &str, range: Range) -> Result<f64, ArrayError> {
        self.number(key, range)?.ok_or_else(|| self.missing(key, &range.expected()))
    }

    /// Returns the number of `key`, from `least` to `most`, if given.
    pub fn whole(&self, key: &str, least: u32, most: u32) -> Result<Option<u32>, ArrayError> {
        Ok(self.number(key, Range::Whole(least, most))?.map(|number| number as u32))
    }

    /// True if `key` is given.
    pub fn has(&self, key: &str) -> bool {
        self.find(key).is_some()
    }

    /// Returns the error that the value of `key` is not `expected`, or that the key is missing.
    pub fn refused(&self, key: &str, expected: &str) -> ArrayError {
        match self.find(key) {
            Some(entry) => self.refuse(entry, expected),
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
        let shown = format!("'{text}'");
        self.entries.push(Entry { key: key.to_owned(), text: Some(text), shown, line: None });
        self
    }

    /// Returns the error that `key` is missing.
    pub fn missing(&self, key: &str, expected: &str) -> ArrayError {
        ArrayError::Missing { place: self.place.clone(), key: key.to_owned(), expected: expected.to_owned() }
    }

    fn find(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    fn place_of(&self, entry: &Entry) -> String {
        match entry.line {
            Some(line) => format!("{}, line {line}", self.place),
            None => self.place.clone(),
        }
    }

    fn refuse(&self, entry: &Entry, expected: &str) -> ArrayError {
        let (key, found) = (entry.key.clone(), entry.shown.clone());
        ArrayError::Value { place: self.place_of(entry), key, found, expected: expected.to_owned() }
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
            let text = match value.get_ref() {
                DeValue::String(text) => Some(text.to_string()),
                DeValue::Integer(number) => Some(toml::decimal(number)),
                DeValue::Float(number) => Some(number.as_str().replace('_', "")),
                _ => None,
            };
            Entry { key: key.replace('_', "-"), text, shown: self.toml.shown(value).to_owned(), line: Some(line) }
        };
        Keys { place: format!("{}{name}", self.path), entries: entries.into_iter().map(entry).collect() }
    }
}

fn refused(path: &str, malformed: Malformed) -> ArrayError {
    let Malformed { line, message } = malformed;
    ArrayError::Syntax { path: path.to_owned(), line, message }
}
