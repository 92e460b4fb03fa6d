//! Profiles of flash: geometry, times and endurance, each file of `profiles/` with the source that prints them.

use std::fs::File;
use std::io::Read;
use std::ops::RangeInclusive;
use std::path::Path;

use flashwise_core::options::nearest;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::ProfileError;

/// What flash is like, as printed by `source`.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The name that it is found by, or the path of its file.
    pub name: String,
    /// Where the figures come from.
    pub source: String,
    /// Bytes of a flash page; a multiple of the 4,096 of a block.
    pub page_bytes: u32,
    /// Flash pages of an erase block.
    pub pages_per_block: u32,
    /// Buses; 1 if not given.
    pub channels: u32,
    /// Dies on each bus; 1 if not given.
    pub dies_per_channel: u32,
    /// Planes of each die, each of which reads, programs and erases by itself; 1 if not given.
    pub planes_per_die: u32,
    /// Time to read a page into its plane's register, t_R.
    pub read_us: f64,
    /// Time to program a page from its plane's register, t_PROG.
    pub program_us: f64,
    /// Time to erase a block, t_BERS.
    pub erase_us: f64,
    /// Speed of each bus, in millions of bytes per second; if not given, transfers take no time.
    pub bus_mb_per_s: Option<f64>,
    /// How often a block can be programmed and erased; if not given, no lifetime can be told.
    pub pe_cycles: Option<u32>,
    /// Spare share of the logical capacity, where the source tells.
    pub over_provision: Option<f64>,
}

/// The profiles that are known by name.
const PROFILES: [(&str, &str); 5] = [
    ("samsung-slc", include_str!("profiles/samsung-slc.toml")),
    ("femu", include_str!("profiles/femu.toml")),
    ("wlfc", include_str!("profiles/wlfc.toml")),
    ("mixed-slc", include_str!("profiles/mixed-slc.toml")),
    ("mixed-mlc", include_str!("profiles/mixed-mlc.toml")),
];

/// No profile needs as much.
const FILE_BYTES_MAX: u64 = 64 << 10;

impl Profile {
    /// The names of the profiles that are known.
    pub fn names() -> Vec<&'static str> {
        PROFILES.iter().map(|(name, _)| *name).collect()
    }

    /// The profile of this name, or in the TOML file with this path: what ends in `.toml` or has a slash is a path.
    pub fn find(text: &str) -> Result<Profile, ProfileError> {
        if let Some((name, toml)) = PROFILES.iter().find(|(name, _)| *name == text) {
            return Profile::parse(name, toml);
        }
        if text.contains('/') || text.ends_with(".toml") {
            return Profile::read(Path::new(text));
        }
        let expected = Profile::names();
        Err(ProfileError::UnknownName { found: text.to_owned(), near: nearest(text, &expected), expected })
    }

    /// Reads a TOML file.
    pub fn read(path: &Path) -> Result<Profile, ProfileError> {
        let name = path.display().to_string();
        let io = |source| ProfileError::Io { path: name.clone(), source };
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(io)?;
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(io)?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(ProfileError::TooLong { path: name, bytes_max: FILE_BYTES_MAX });
        }
        match str::from_utf8(&bytes) {
            Ok(text) => Profile::parse(&name, text),
            Err(error) => Err(ProfileError::NotText { path: name, byte: error.valid_up_to() }),
        }
    }

    /// Reads a TOML document, which messages call `name`.
    pub fn parse(name: &str, text: &str) -> Result<Profile, ProfileError> {
        let document = Document::parse(name, text)?;
        let over_provision = document.number("over_provision", 0.0..=100.0)?;
        Ok(Profile {
            name: name.to_owned(),
            source: document.text("source")?,
            page_bytes: document.page_bytes()?,
            pages_per_block: document.required("pages_per_block", 1..=1 << 16, Document::count)?,
            channels: document.count("channels", 1..=256)?.unwrap_or(1),
            dies_per_channel: document.count("dies_per_channel", 1..=256)?.unwrap_or(1),
            planes_per_die: document.count("planes_per_die", 1..=16)?.unwrap_or(1),
            read_us: document.required("read_us", TIMES_US, Document::number)?,
            program_us: document.required("program_us", TIMES_US, Document::number)?,
            erase_us: document.required("erase_us", TIMES_US, Document::number)?,
            bus_mb_per_s: document.number("bus_mb_per_s", 0.001..=1e6)?,
            pe_cycles: document.count("pe_cycles", 1..=1_000_000_000)?,
            over_provision,
        })
    }

    /// Bytes of an erase block.
    pub fn block_bytes(&self) -> u64 {
        u64::from(self.page_bytes) * u64::from(self.pages_per_block)
    }
}

/// From a nanosecond to ten seconds.
const TIMES_US: RangeInclusive<f64> = 0.001..=1e7;

const KEYS: [&str; 12] = [
    "source",
    "page_bytes",
    "pages_per_block",
    "channels",
    "dies_per_channel",
    "planes_per_die",
    "read_us",
    "program_us",
    "erase_us",
    "bus_mb_per_s",
    "pe_cycles",
    "over_provision",
];

/// The keys of a profile, as a user wrote them.
struct Document<'a> {
    name: &'a str,
    text: &'a str,
    table: Spanned<DeTable<'a>>,
}

impl<'a> Document<'a> {
    fn parse(name: &'a str, text: &'a str) -> Result<Document<'a>, ProfileError> {
        let table = DeTable::parse(text).map_err(|error| ProfileError::Syntax {
            path: name.to_owned(),
            line: line(text, error.span().map_or(0, |span| span.start)),
            message: format!("is no TOML: {}", error.message()),
        })?;
        let unknown = table.get_ref().keys().filter(|key| !KEYS.contains(&key.get_ref().as_ref()));
        if let Some(key) = unknown.min_by_key(|key| key.span().start) {
            return Err(ProfileError::UnknownKey {
                path: name.to_owned(),
                line: line(text, key.span().start),
                key: key.get_ref().to_string(),
                near: nearest(key.get_ref(), &KEYS),
                expected: KEYS.to_vec(),
            });
        }
        Ok(Document { name, text, table })
    }

    fn value(&self, key: &str) -> Option<&Spanned<DeValue<'a>>> {
        assert!(KEYS.contains(&key), "a key that is read is known");
        self.table.get_ref().get(key)
    }

    fn refuse<T>(&self, key: &'static str, value: &Spanned<DeValue>, expected: String) -> Result<T, ProfileError> {
        Err(ProfileError::Value {
            path: self.name.to_owned(),
            line: line(self.text, value.span().start),
            key,
            found: shown(value.get_ref()),
            expected,
        })
    }

    fn text(&self, key: &'static str) -> Result<String, ProfileError> {
        let expected = "text that says where the figures come from".to_owned();
        match self.value(key) {
            None => Err(ProfileError::MissingKey { path: self.name.to_owned(), key, expected }),
            Some(value) => match value.get_ref() {
                DeValue::String(text) if !text.trim().is_empty() => Ok(text.to_string()),
                _ => self.refuse(key, value, expected),
            },
        }
    }

    fn count(&self, key: &'static str, range: RangeInclusive<u32>) -> Result<Option<u32>, ProfileError> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let number = match value.get_ref() {
            DeValue::Integer(number) => u32::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => None,
        };
        match number.filter(|number| range.contains(number)) {
            Some(number) => Ok(Some(number)),
            None => self.refuse(key, value, format!("a whole number from {} to {}", range.start(), range.end())),
        }
    }

    fn number(&self, key: &'static str, range: RangeInclusive<f64>) -> Result<Option<f64>, ProfileError> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let number = match value.get_ref() {
            DeValue::Integer(number) => {
                i64::from_str_radix(number.as_str(), number.radix()).ok().map(|number| number as f64)
            }
            DeValue::Float(number) => number.as_str().parse().ok(),
            _ => None,
        };
        match number.filter(|number| range.contains(number)) {
            Some(number) => Ok(Some(number)),
            None => self.refuse(key, value, format!("a number from {} to {}", range.start(), range.end())),
        }
    }

    /// The value of a key that must be there, which `read` reads.
    fn required<T: std::fmt::Display>(
        &self,
        key: &'static str,
        range: RangeInclusive<T>,
        read: impl FnOnce(&Self, &'static str, RangeInclusive<T>) -> Result<Option<T>, ProfileError>,
    ) -> Result<T, ProfileError> {
        let expected = format!("a number from {} to {}", range.start(), range.end());
        read(self, key, range)?.ok_or_else(|| ProfileError::MissingKey { path: self.name.to_owned(), key, expected })
    }

    fn page_bytes(&self) -> Result<u32, ProfileError> {
        let key = "page_bytes";
        let page_bytes = self.required(key, 4096..=1 << 20, Document::count)?;
        match self.value(key) {
            Some(value) if !page_bytes.is_multiple_of(4096) => {
                self.refuse(key, value, "a multiple of 4096, since blocks of 4 KiB are written".to_owned())
            }
            _ => Ok(page_bytes),
        }
    }
}

/// The line of a byte, both of a text, the line counted from 1.
fn line(text: &str, at: usize) -> usize {
    1 + text.as_bytes()[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count()
}

fn shown(value: &DeValue) -> String {
    match value {
        DeValue::String(text) => format!("'{text}'"),
        DeValue::Integer(number) if number.radix() == 10 => number.as_str().to_owned(),
        DeValue::Integer(number) => format!("{} in base {}", number.as_str(), number.radix()),
        DeValue::Float(number) => number.as_str().to_owned(),
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Datetime(date) => date.to_string(),
        DeValue::Array(_) => "an array".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CUSTOM: &str = "source = 'measured'\npage_bytes = 8_192\npages_per_block = 256\nread_us = 75\nprogram_us = 7.5e2\nerase_us = 3_800\n";

    fn refused(text: &str) -> String {
        Profile::parse("mine.toml", text).unwrap_err().to_string()
    }

    fn with(line: &str) -> String {
        let key = line.split([' ', '=']).next().unwrap();
        let others = CUSTOM.lines().filter(|line| !line.starts_with(key));
        others.chain([line]).map(|line| format!("{line}\n")).collect()
    }

    #[test]
    fn every_known_profile_is_read_and_names_its_source() {
        let figures = |profile: &Profile| {
            let Profile { page_bytes, pages_per_block, read_us, program_us, erase_us, pe_cycles, .. } = *profile;
            (page_bytes, pages_per_block, read_us, program_us, erase_us, pe_cycles)
        };
        let read = |name| Profile::find(name).unwrap();
        assert_eq!(figures(&read("samsung-slc")), (4096, 64, 25.0, 200.0, 1500.0, Some(100_000)));
        assert_eq!(figures(&read("femu")), (4096, 256, 40.0, 200.0, 2000.0, None));
        assert_eq!(figures(&read("wlfc")), (16_384, 256, 50.0, 500.0, 5000.0, Some(10_000)));
        assert_eq!(figures(&read("mixed-slc")), (4096, 64, 40.0, 200.0, 1500.0, Some(100_000)));
        assert_eq!(figures(&read("mixed-mlc")), (4096, 128, 200.0, 1000.0, 3500.0, Some(10_000)));
        assert_eq!(Profile::names().len(), 5, "each is looked at above");
        for (name, text) in PROFILES {
            assert!(read(name).source.len() > 20, "{name} says where it comes from");
            assert!(text.lines().all(|line| line.len() < 300), "{name} can be read by people");
        }
        assert_eq!(read("samsung-slc").block_bytes(), 256 << 10);
    }

    #[test]
    fn a_custom_profile_is_read_from_its_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mine.toml");
        std::fs::write(&path, CUSTOM).unwrap();
        let name = path.to_str().unwrap();
        let profile = Profile::find(name).unwrap();
        let expected = Profile {
            name: name.to_owned(),
            source: "measured".to_owned(),
            page_bytes: 8192,
            pages_per_block: 256,
            channels: 1,
            dies_per_channel: 1,
            planes_per_die: 1,
            read_us: 75.0,
            program_us: 750.0,
            erase_us: 3800.0,
            bus_mb_per_s: None,
            pe_cycles: None,
            over_provision: None,
        };
        assert_eq!(profile, expected);
        let full = Profile::parse("x", &format!("{CUSTOM}channels = 8\ndies_per_channel = 4\nplanes_per_die = 2\nbus_mb_per_s = 333\npe_cycles = 3_000\nover_provision = 0.07")).unwrap();
        let expected = Profile {
            name: "x".to_owned(),
            channels: 8,
            dies_per_channel: 4,
            planes_per_die: 2,
            bus_mb_per_s: Some(333.0),
            pe_cycles: Some(3000),
            over_provision: Some(0.07),
            ..expected
        };
        assert_eq!(full, expected);
    }

    #[test]
    fn a_profile_that_is_not_there_is_named() {
        assert_eq!(
            Profile::find("samsung-scl").unwrap_err().to_string(),
            "unknown flash profile 'samsung-scl' (did you mean 'samsung-slc'?); expected the path of a TOML file or one of: \
             samsung-slc, femu, wlfc, mixed-slc, mixed-mlc"
        );
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("none.toml");
        let missing = Profile::find(path.to_str().unwrap()).unwrap_err();
        assert_eq!(missing.to_string(), path.display().to_string());
        assert!(matches!(missing, ProfileError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound));
        std::fs::write(&path, vec![b'#'; 65_537]).unwrap();
        let long = format!("{}: found more than 65536 bytes, expected a profile of flash", path.display());
        assert_eq!(Profile::read(&path).unwrap_err().to_string(), long);
        std::fs::write(&path, b"source = '\xff'").unwrap();
        let no_text = format!("{}: byte 10 is not UTF-8, expected TOML", path.display());
        assert_eq!(Profile::read(&path).unwrap_err().to_string(), no_text);
    }

    #[test]
    fn a_key_that_is_unknown_missing_or_twice_is_refused() {
        assert_eq!(
            refused(&format!("{CUSTOM}plane_per_die = 2")),
            "mine.toml, line 7: unknown key 'plane_per_die' (did you mean 'planes_per_die'?); expected one of: source, page_bytes, \
             pages_per_block, channels, dies_per_channel, planes_per_die, read_us, program_us, erase_us, bus_mb_per_s, pe_cycles, \
             over_provision"
        );
        assert!(
            refused(&format!("{CUSTOM}[times]\nread_us = 2")).starts_with("mine.toml, line 7: unknown key 'times'")
        );
        assert_eq!(
            refused(&CUSTOM.replace("erase_us", "#")),
            "mine.toml: key 'erase_us' is missing, expected a number from 0.001 to 10000000"
        );
        assert_eq!(
            refused(""),
            "mine.toml: key 'source' is missing, expected text that says where the figures come from"
        );
        assert_eq!(refused(&format!("{CUSTOM}read_us = 1")), "mine.toml, line 7: is no TOML: duplicate key");
    }

    #[test]
    fn a_value_of_the_wrong_kind_or_size_is_refused() {
        for (line, message) in [
            ("page_bytes = '8KiB'", "page_bytes: found '8KiB', expected a whole number from 4096 to 1048576"),
            ("page_bytes = 2048", "page_bytes: found 2048, expected a whole number from 4096 to 1048576"),
            (
                "page_bytes = 6000",
                "page_bytes: found 6000, expected a multiple of 4096, since blocks of 4 KiB are written",
            ),
            ("pages_per_block = 0", "pages_per_block: found 0, expected a whole number from 1 to 65536"),
            ("pages_per_block = 2.5", "pages_per_block: found 2.5, expected a whole number from 1 to 65536"),
            ("channels = -1", "channels: found -1, expected a whole number from 1 to 256"),
            (
                "channels = 99999999999999999999",
                "channels: found 99999999999999999999, expected a whole number from 1 to 256",
            ),
            ("read_us = 0", "read_us: found 0, expected a number from 0.001 to 10000000"),
            ("read_us = nan", "read_us: found nan, expected a number from 0.001 to 10000000"),
            ("read_us = [1]", "read_us: found an array, expected a number from 0.001 to 10000000"),
            ("source = ' '", "source: found ' ', expected text that says where the figures come from"),
            ("source = 7", "source: found 7, expected text that says where the figures come from"),
            ("pe_cycles = 0x0", "pe_cycles: found 0 in base 16, expected a whole number from 1 to 1000000000"),
            ("over_provision = '7%'", "over_provision: found '7%', expected a number from 0 to 100"),
            ("bus_mb_per_s = true", "bus_mb_per_s: found true, expected a number from 0.001 to 1000000"),
        ] {
            let text = with(line);
            assert_eq!(refused(&text), format!("mine.toml, line {}: {message}", text.lines().count()));
        }
    }
}
