//! Values as users write them, after a flag, in options, jobs, TOML or JSON, and the one reader of them.
//!
//! ```
//! use flashwise_core::options::{Given, Kind};
//!
//! let kind = Kind::Size(4096, 1 << 30);
//! assert_eq!(Given::from("512KiB").size(kind), Ok(512 << 10));
//! let error = Given::from("1KiB").size(kind).unwrap_err();
//! assert_eq!(error, "found '1KiB', expected a size in bytes from 4KiB to 1GiB");
//! ```

use std::fmt;
use std::path::PathBuf;

use super::{Kind, word};
use crate::format::BLOCK_BYTES;
use crate::quantity::{ByteSize, Duration, QuantityError, Share, ratio};

/// The smallest number that counts as positive.
const POSITIVE_MIN: f64 = 1e-9;

/// A value as a user wrote it. Errors are the value found and the value expected.
#[derive(Clone, Debug, PartialEq)]
pub enum Given {
    /// Text, which may stand for a value of any type.
    Text(String),
    /// A number, as it is written.
    Number(String),
    /// True or false.
    Boolean(bool),
    /// Several values.
    List(Vec<Given>),
    /// A value that no key accepts, formatted.
    Other(String),
}

impl fmt::Display for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Given::Text(text) => write!(f, "'{text}'"),
            Given::Number(text) | Given::Other(text) => f.write_str(text),
            Given::Boolean(value) => write!(f, "{value}"),
            Given::List(_) => f.write_str("an array"),
        }
    }
}

impl From<&str> for Given {
    fn from(text: &str) -> Given {
        Given::Text(text.to_owned())
    }
}

impl Given {
    /// Returns the error that something else was expected.
    pub fn refuse<T>(&self, expected: impl fmt::Display) -> Result<T, String> {
        Err(format!("found {self}, expected {expected}"))
    }

    /// Returns the value if it is text.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Given::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns text that is not empty.
    pub fn text(&self) -> Result<&str, String> {
        match self.as_text() {
            Some(text) if !text.is_empty() => Ok(text),
            _ => self.refuse("text that is not empty"),
        }
    }

    /// Returns the path of a file.
    pub fn path(&self) -> Result<PathBuf, String> {
        match self.as_text() {
            Some(text) if !text.is_empty() && !text.contains('\0') => Ok(PathBuf::from(text)),
            _ => self.refuse("the path of a file, in quotes"),
        }
    }

    /// Returns a list of texts; a single text needs no array.
    pub fn texts(&self) -> Result<Vec<String>, String> {
        let text = |given: &Given| given.text().map(str::to_owned);
        match self {
            Given::List(values) => values.iter().map(text).collect(),
            one => Ok(vec![text(one)?]),
        }
    }

    /// Returns the meaning of one of `words`.
    pub fn word<T: Copy>(&self, words: &[(&'static str, T)]) -> Result<T, String> {
        match self.as_text() {
            Some(text) => word(text, words),
            None => self.refuse(words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ")),
        }
    }

    /// Returns true or false.
    pub fn boolean(&self) -> Result<bool, String> {
        match self {
            Given::Boolean(value) => Ok(*value),
            Given::Text(text) => text.parse().or_else(|_| self.refuse("true or false")),
            _ => self.refuse("true or false"),
        }
    }

    /// Returns text or a number, which can be quantities.
    fn quantity(&self, kind: Kind) -> Result<&str, String> {
        match self {
            Given::Text(text) | Given::Number(text) => Ok(text),
            _ => self.refuse(kind),
        }
    }

    /// Returns a number, or a share of 1, of this kind.
    pub fn number(&self, kind: Kind) -> Result<f64, String> {
        let text = self.quantity(kind)?.trim();
        let number = match kind {
            Kind::Share(max) => text.parse().ok().map(Share::of_one).filter(|share| *share <= max),
            Kind::Number(min, max) => ratio(text).filter(|number| (min..=max).contains(number)),
            Kind::Positive(max) => text.parse().ok().filter(|number| (POSITIVE_MIN..=max).contains(number)),
            Kind::Count(min, max) => self.count(min, max).ok().map(|count| count as f64),
            _ => None,
        };
        number.map_or_else(|| self.refuse(kind), Ok)
    }

    /// Returns a whole number within these bounds, inclusive.
    pub fn count(&self, min: u64, max: u64) -> Result<u64, String> {
        let kind = Kind::Count(min, max);
        let number = self.quantity(kind)?.trim().parse().ok().filter(|number| (min..=max).contains(number));
        number.map_or_else(|| self.refuse(kind), Ok)
    }

    /// Returns a size of this kind, in bytes.
    pub fn size(&self, kind: Kind) -> Result<u64, String> {
        let size = self.quantity(kind)?.parse().map(ByteSize::bytes);
        let bytes = size.map_err(|error: QuantityError| error.to_string())?;
        let fits = match kind {
            Kind::Size(min, max) => (min..=max).contains(&bytes),
            Kind::PowerOfTwo(min, max) => (min..=max).contains(&bytes) && bytes.is_power_of_two(),
            _ => false,
        };
        if fits { Ok(bytes) } else { self.refuse(kind) }
    }

    /// Returns a size of this kind, in bytes, that is a multiple of a block.
    pub fn blocks(&self, kind: Kind) -> Result<u64, String> {
        let bytes = self.size(kind)?;
        let block = BLOCK_BYTES as u64;
        if bytes.is_multiple_of(block) {
            return Ok(bytes);
        }
        // Short and precise enough: in the largest unit with a value of at least a hundred.
        let unit = [1 << 40, 1 << 30, 1 << 20].into_iter().find(|unit| bytes / unit >= 100).unwrap_or(block);
        self.refuse(format!("a multiple of 4KiB, such as {}", ByteSize::new((bytes / unit * unit).max(block))))
    }

    /// Returns a duration of this kind, in microseconds.
    pub fn duration_us(&self, kind: Kind) -> Result<u64, String> {
        let duration = self.quantity(kind)?.parse().map(Duration::us);
        let us = duration.map_err(|error: QuantityError| error.to_string())?;
        match kind {
            Kind::Duration(min, max) if (min..=max).contains(&us) => Ok(us),
            _ => self.refuse(kind),
        }
    }

    /// Checks that the value is of this kind.
    pub fn check(&self, kind: Kind) -> Result<(), String> {
        match kind {
            Kind::Number(..) | Kind::Positive(_) | Kind::Share(_) | Kind::Count(..) => self.number(kind).map(drop),
            Kind::Size(..) | Kind::PowerOfTwo(..) => self.size(kind).map(drop),
            Kind::Duration(..) => self.duration_us(kind).map(drop),
            Kind::Choice(words) if !self.as_text().is_some_and(|text| words.contains(&text)) => self.refuse(kind),
            Kind::Choice(_) | Kind::Text | Kind::List => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Given {
        Given::Number(text.to_owned())
    }

    fn text(text: &str) -> Given {
        Given::from(text)
    }

    #[test]
    fn sizes_are_multiples_of_a_block_within_bounds() {
        let any = Kind::Size(0, u64::MAX);
        assert_eq!(text("1GiB").blocks(any), Ok(1 << 30));
        assert_eq!(number("8192").blocks(Kind::Size(4096, 8192)), Ok(8192));
        assert_eq!(text("6KiB").size(any), Ok(6 << 10));
        assert_eq!(text("6KiB").blocks(any).unwrap_err(), "found '6KiB', expected a multiple of 4KiB, such as 4KiB");
        let error = text("1MiB").size(Kind::Size(4096, 8192)).unwrap_err();
        assert_eq!(error, "found '1MiB', expected a size in bytes from 4KiB to 8KiB");
        assert!(text("1PB").size(any).unwrap_err().starts_with("size '1PB': unknown unit 'PB', expected B, KiB, MiB"));
        assert!(Given::Boolean(true).size(any).unwrap_err().starts_with("found true, expected a size in bytes"));
        assert!(text("6KiB").size(Kind::PowerOfTwo(0, 1 << 20)).is_err());
    }

    #[test]
    fn a_word_that_is_nearly_right_is_guessed() {
        let words = [("write-back", 1), ("write-around", 2)];
        assert_eq!(text("write-around").word(&words), Ok(2));
        let error = text("writeback").word(&words).unwrap_err();
        assert_eq!(error, "found 'writeback' (did you mean 'write-back'?), expected write-back or write-around");
    }

    #[test]
    fn counts_and_numbers_are_bounded_and_text_stands_for_them() {
        assert_eq!((number("1000").count(1, 1000), text("7").count(1, 1000)), (Ok(1000), Ok(7)));
        assert!(number("-1").count(0, 1000).is_err() && number("1001").count(0, 1000).is_err());
        assert_eq!(number("0.3").number(Kind::Positive(100.0)), Ok(0.3));
        let refused = |given: Given| given.number(Kind::Positive(100.0)).unwrap_err();
        assert_eq!(refused(number("0")), "found 0, expected a number above 0, at most 100");
        assert_eq!(refused(text("nan")), "found 'nan', expected a number above 0, at most 100");
        assert_eq!(text("50%").number(Kind::Number(0.0, f64::MAX)), Ok(0.5));
        assert!(text("1e16").number(Kind::NOT_NEGATIVE).is_err());
        assert_eq!(text("50%").number(Kind::Share(0.5)), Ok(0.5));
        assert!(text("51%").number(Kind::Share(0.5)).is_err());
        assert_eq!((text("true").boolean(), Given::Boolean(false).boolean()), (Ok(true), Ok(false)));
        assert_eq!(text("yes").boolean().unwrap_err(), "found 'yes', expected true or false");
    }
}
