//! Values as users write them, in TOML or after a flag, and their conversion to the types of keys.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use flashwise_core::cache::settings::{Given, multiple_of_block};
use flashwise_core::options::word;
use flashwise_core::quantity::{ByteSize, Duration, QuantityError};
use flashwise_core::tiers::Tier;
use flashwise_device::{ArrayError, tier_of_option};

/// A value that was given to a key.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// The text after a flag, which can have any type.
    Plain(String),
    /// A TOML string.
    Text(String),
    /// A TOML number, as written.
    Number(String),
    /// A TOML boolean.
    Boolean(bool),
    /// A TOML array.
    List(Vec<Value>),
    /// A TOML table.
    Table,
    /// A TOML date or time, as written.
    Date(String),
}

/// An error message: the value found and the value expected.
pub type Problem = String;

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Plain(text) | Value::Text(text) => write!(f, "'{text}'"),
            Value::Number(text) | Value::Date(text) => f.write_str(text),
            Value::Boolean(value) => write!(f, "{value}"),
            Value::List(_) => f.write_str("an array"),
            Value::Table => f.write_str("a table"),
        }
    }
}

impl Value {
    fn refuse<T>(&self, expected: &str) -> Result<T, Problem> {
        Err(format!("found {self}, expected {expected}"))
    }

    fn as_text(&self) -> Option<&str> {
        match self {
            Value::Plain(text) | Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Text that is not empty.
    pub fn text(&self) -> Result<String, Problem> {
        match self.as_text() {
            Some(text) if !text.is_empty() => Ok(text.to_owned()),
            _ => self.refuse("text that is not empty"),
        }
    }

    /// The path of a file.
    pub fn path(&self) -> Result<PathBuf, Problem> {
        match self.as_text() {
            Some(text) if !text.is_empty() && !text.contains('\0') => Ok(PathBuf::from(text)),
            _ => self.refuse("the path of a file, in quotes"),
        }
    }

    /// A list of texts; a single text needs no array.
    pub fn texts(&self) -> Result<Vec<String>, Problem> {
        match self {
            Value::List(values) => values.iter().map(Value::text).collect(),
            one => Ok(vec![one.text()?]),
        }
    }

    /// Yes or no.
    pub fn boolean(&self) -> Result<bool, Problem> {
        match self {
            Value::Boolean(value) => Ok(*value),
            Value::Plain(text) if text == "true" => Ok(true),
            Value::Plain(text) if text == "false" => Ok(false),
            _ => self.refuse("true or false"),
        }
    }

    fn quantity<T: FromStr<Err = QuantityError>>(&self, expected: &str) -> Result<T, Problem> {
        match self {
            Value::Plain(text) | Value::Text(text) | Value::Number(text) => {
                text.parse().map_err(|error: QuantityError| error.to_string())
            }
            _ => self.refuse(expected),
        }
    }

    /// A size in bytes from `min` to `max`, a multiple of 4,096.
    pub fn size(&self, min: u64, max: u64) -> Result<u64, Problem> {
        let bytes = self.quantity::<ByteSize>("a size in bytes such as 10GiB or 512MiB")?.bytes();
        let shown = |bytes| ByteSize::new(bytes).to_string();
        if !(min..=max).contains(&bytes) {
            return self.refuse(&format!("a size from {} to {}", shown(min), shown(max)));
        }
        if !bytes.is_multiple_of(4096) {
            return self.refuse(&multiple_of_block(bytes));
        }
        Ok(bytes)
    }

    /// A duration in microseconds.
    pub fn duration_us(&self) -> Result<u64, Problem> {
        Ok(self.quantity::<Duration>("a duration such as 10ms or 15min")?.us())
    }

    fn number(&self) -> Option<f64> {
        match self {
            Value::Plain(text) | Value::Number(text) => text.replace('_', "").parse().ok(),
            _ => None,
        }
        .filter(|number: &f64| number.is_finite())
    }

    /// A number above 0, at most `max`.
    pub fn positive(&self, max: f64) -> Result<f64, Problem> {
        match self.number() {
            Some(number) if number > 0.0 && number <= max => Ok(number),
            _ => self.refuse(&format!("a number above 0, at most {max}")),
        }
    }

    /// A whole number from `min` to `max`.
    pub fn count(&self, min: u64, max: u64) -> Result<u64, Problem> {
        let number = match self {
            Value::Plain(text) | Value::Number(text) => text.replace('_', "").parse().ok(),
            _ => None,
        };
        match number {
            Some(number) if (min..=max).contains(&number) => Ok(number),
            _ => self.refuse(&format!("a whole number from {min} to {max}")),
        }
    }

    /// One of several words.
    pub fn word<T: Copy>(&self, words: &[(&'static str, T)]) -> Result<T, Problem> {
        match self.as_text() {
            Some(text) => word(text, words),
            None => self.refuse(&words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ")),
        }
    }

    /// The value in the form that a setting of the cache takes.
    pub fn given(&self) -> Given<'_> {
        match self {
            Value::Plain(text) | Value::Text(text) => Given::Text(text),
            Value::Number(text) => Given::Number(text),
            Value::List(values) => match values.iter().map(Value::as_text).collect() {
                Some(texts) => Given::Texts(texts),
                None => Given::Other(self.to_string()),
            },
            Value::Boolean(_) | Value::Table | Value::Date(_) => Given::Other(self.to_string()),
        }
    }

    /// A cache or storage device: a name, the path of a TOML file, which is read, or either with changes.
    pub fn device(&self) -> Result<Tier, Problem> {
        tier_of_option(&self.to_string(), &self.text()?).map_err(|error| match error {
            ArrayError::Io { path, source } => format!("found '{path}', which cannot be read: {source}"),
            error => error.to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use flashwise_core::cache::Mode;

    use super::*;

    fn plain(text: &str) -> Value {
        Value::Plain(text.to_owned())
    }

    fn number(text: &str) -> Value {
        Value::Number(text.to_owned())
    }

    fn text(text: &str) -> Value {
        Value::Text(text.to_owned())
    }

    #[test]
    fn sizes_are_multiples_of_a_block_within_bounds() {
        assert_eq!(text("1GiB").size(0, u64::MAX), Ok(1 << 30));
        assert_eq!(number("8192").size(4096, 8192), Ok(8192));
        assert_eq!(
            text("6KiB").size(0, u64::MAX).unwrap_err(),
            "found '6KiB', expected a multiple of 4KiB, such as 4KiB"
        );
        let error = text("1MiB").size(4096, 8192).unwrap_err();
        assert_eq!(error, "found '1MiB', expected a size from 4KiB to 8KiB");
        let error = text("1PB").size(0, u64::MAX).unwrap_err();
        assert_eq!(
            error,
            "size '1PB': unknown unit 'PB', expected B, KiB, MiB, GiB, TiB (powers of 1024), KB, MB, GB or TB (powers \
             of 1000)"
        );
        assert!(Value::Boolean(true).size(0, 1).unwrap_err().contains("found true, expected a size"));
    }

    #[test]
    fn a_word_that_is_nearly_right_is_guessed() {
        assert_eq!(text("write-around").word(&Mode::NAMES), Ok(Mode::WriteAround));
        let error = text("writeback").word(&Mode::NAMES).unwrap_err();
        let expected =
            "found 'writeback' (did you mean 'write-back'?), expected write-back, write-through or write-around";
        assert_eq!(error, expected);
    }

    #[test]
    fn a_device_is_a_name_or_a_file_with_changes() {
        assert_eq!(text("hdd:read-latency-ms=5").device().unwrap().device.read_latency_us, 5000.0);
        let errors = ["hddd", "hdd:devices=0", "missing.toml"].map(|device| text(device).device().unwrap_err());
        let expected = [
            "'hddd': found no device 'hddd' (did you mean 'hdd'?); expected one of: slc, mlc, hdd, cloud, p4500, \
             9200-max, p4800x, or the path of a \
             file that ends in .toml",
            "'hdd:devices=0': devices: found '0', expected a number greater than 0",
            "found 'missing.toml', which cannot be read: No such file or directory (os error 2)",
        ];
        assert_eq!(errors, expected);
    }

    #[test]
    fn counts_and_numbers_are_bounded_and_plain_text_stands_for_them() {
        assert_eq!(number("1_000").count(1, 1000), Ok(1000));
        assert_eq!(plain("7").count(1, 1000), Ok(7));
        assert!(number("-1").count(0, 1000).is_err() && text("7").count(1, 1000).is_err());
        assert_eq!(number("0.3").positive(100.0), Ok(0.3));
        assert!(number("0").positive(100.0).is_err() && number("101").positive(100.0).is_err());
        assert_eq!(plain("true").boolean(), Ok(true));
        assert!(text("true").boolean().is_err());
    }
}
