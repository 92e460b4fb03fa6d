//! The two forms of a job: words as text, and the same words in JSON.

use std::fmt;
use std::str::FromStr;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};

use super::{Job, JobError, Key};

impl Job {
    /// Returns the given words with their values, in the order of the table.
    pub fn words(&self) -> impl Iterator<Item = (&'static str, String)> {
        Key::all().filter_map(|key| Some((key.name(), key.shown(self)?)))
    }

    /// Parses a further word.
    fn read(&mut self, name: &str, text: &str) -> Result<(), JobError> {
        let key = Key::find(name)?;
        if key.shown(self).is_some() {
            return Err(JobError::Repeated { key: key.name() });
        }
        key.read(self, text)
    }
}

/// Jobs with the same words are equal.
impl PartialEq for Job {
    fn eq(&self, other: &Job) -> bool {
        self.words().eq(other.words())
    }
}

impl fmt::Display for Job {
    /// Formats words with spaces between them, quoted for a shell if necessary.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_plain = |text: &str| !text.is_empty() && !text.contains([' ', '\t', '\n', '\'', '"', '\\']);
        for (number, (name, text)) in self.words().enumerate() {
            let gap = if number > 0 { " " } else { "" };
            match is_plain(&text) {
                true => write!(f, "{gap}{name}={text}")?,
                false => write!(f, "{gap}{name}={}", shlex::try_quote(&text).unwrap_or_default())?,
            }
        }
        Ok(())
    }
}

/// Returns the names and values of the words of a job's text, which need not make a job.
pub(crate) fn words_of(text: &str) -> Result<Vec<(String, String)>, JobError> {
    let not_a_word = |found: &str| JobError::NotAWord { found: found.to_owned() };
    let words = shlex::split(text).ok_or_else(|| not_a_word(text))?;
    let pair = |word: &String| word.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    words.iter().map(|word| pair(word).ok_or_else(|| not_a_word(word))).collect()
}

impl FromStr for Job {
    type Err = JobError;

    /// Parses words in any order, and checks them.
    fn from_str(text: &str) -> Result<Job, JobError> {
        let mut job = Job::default();
        for (name, value) in words_of(text)? {
            job.read(&name, &value)?;
        }
        job.plain()
    }
}

impl Serialize for Job {
    /// Writes an object of texts.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, text) in self.words() {
            map.serialize_entry(name, &text)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Job {
    /// Reads an object of texts and numbers, and checks it.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Job, D::Error> {
        struct WordsVisitor;
        impl<'de> Visitor<'de> for WordsVisitor {
            type Value = Job;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a job such as {\"policy\": \"lru\", \"size\": \"10%\"}")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Job, A::Error> {
                let mut job = Job::default();
                while let Some(name) = map.next_key::<String>()? {
                    let key = Key::find(&name).map_err(A::Error::custom)?;
                    let text = map.next_value_seed(ValueOf(key.name()))?;
                    job.read(key.name(), &text).map_err(A::Error::custom)?;
                }
                job.plain().map_err(A::Error::custom)
            }
        }
        deserializer.deserialize_map(WordsVisitor)
    }
}

/// Reads the value of a word, text or number, as text.
struct ValueOf(&'static str);

impl<'de> DeserializeSeed<'de> for ValueOf {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Visitor<'_> for ValueOf {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "text or a number as {}", self.0)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<String, E> {
        Ok(number.to_string())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<String, E> {
        Ok(number.to_string())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<String, E> {
        Ok(number.to_string())
    }
}
