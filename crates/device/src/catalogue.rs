//! The catalogue of devices: those that come with flashwise, each a TOML file of `devices/` with its source, and files of the user's own.
//! A file says what the whole device does at its top, and in its table `[flash]` what its flash is like; many know only one of the two.

use std::fs::File;
use std::io::Read;

use crate::keys::{ArrayError, Document, Keys};

/// The devices that come with flashwise: a name, and what its file says.
const DEVICES: [(&str, &str); 10] = [
    ("slc", include_str!("devices/slc.toml")),
    ("mlc", include_str!("devices/mlc.toml")),
    ("hdd", include_str!("devices/hdd.toml")),
    ("cloud", include_str!("devices/cloud.toml")),
    ("p4500", include_str!("devices/p4500.toml")),
    ("9200-max", include_str!("devices/9200-max.toml")),
    ("p4800x", include_str!("devices/p4800x.toml")),
    ("samsung-slc", include_str!("devices/samsung-slc.toml")),
    ("femu", include_str!("devices/femu.toml")),
    ("wlfc", include_str!("devices/wlfc.toml")),
];

/// Names that devices had before.
const ALIASES: [(&str, &str); 2] = [("mixed-slc", "slc"), ("mixed-mlc", "mlc")];

/// Where its figures are from, and what it is.
const ABOUT_KEYS: [&str; 2] = ["title", "source"];
/// What the whole device does.
pub(crate) const DRIVE_KEYS: [&str; 7] = [
    "capacity-gb",
    "endurance-cycles",
    "total-writes-tb",
    "read-latency-ms",
    "write-latency-ms",
    "channels",
    "transfer-mb-per-s",
];
/// What its flash is like.
const FLASH_KEYS: [&str; 10] = [
    "page-bytes",
    "pages-per-block",
    "channels",
    "dies-per-channel",
    "planes-per-die",
    "read-us",
    "program-us",
    "erase-us",
    "bus-mb-per-s",
    "over-provision",
];
/// What stands in a file of flash alone, which can do without the line `[flash]`.
const FLAT_KEYS: [&str; 2] = ["endurance-cycles", "pe-cycles"];

/// No device needs as much.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// A device as its file describes it.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The name that it is found by, or the path of its file.
    pub name: String,
    /// What stands at the top.
    pub top: Keys,
    /// What stands below `[flash]`.
    pub flash: Option<Keys>,
}

impl Entry {
    /// The device that `text`, found at `place`, stands for: a name of flashwise, or a path, which ends in `.toml` or has a slash.
    /// Where there is none, the names of devices of which it is `known` what is asked for are expected.
    pub fn find(text: &str, place: &str, known: impl Fn(&Entry) -> bool) -> Result<Entry, ArrayError> {
        let name = ALIASES.iter().find(|(alias, _)| *alias == text).map_or(text, |(_, name)| *name);
        if let Some((name, toml)) = DEVICES.iter().find(|(known, _)| *known == name) {
            return Entry::parse(name, toml);
        }
        if text.contains('/') || text.ends_with(".toml") {
            return Entry::read(text);
        }
        Err(ArrayError::NoSuchDevice { place: place.to_owned(), found: text.to_owned(), expected: names_with(known) })
    }

    /// Reads a file.
    fn read(path: &str) -> Result<Entry, ArrayError> {
        Entry::parse(path, &text_of(path)?)
    }

    /// Reads a document that messages call `name`.
    pub fn parse(name: &str, text: &str) -> Result<Entry, ArrayError> {
        let document = Document::parse(name, text)?;
        let top = document.keys();
        let flat = top.has("page-bytes") || top.has("pages-per-block");
        let flash = match document.table("flash")? {
            _ if flat => {
                top.check(&[&ABOUT_KEYS[..], &FLASH_KEYS, &FLAT_KEYS].concat())?;
                Some(top.clone())
            }
            table => {
                top.check(&[&ABOUT_KEYS[..], &DRIVE_KEYS, &["flash"]].concat())?;
                table.map(|keys| keys.check(&FLASH_KEYS).map(|()| keys)).transpose()?
            }
        };
        Ok(Entry { name: name.to_owned(), top, flash })
    }

    /// All that come with flashwise.
    pub fn all() -> Vec<Entry> {
        DEVICES
            .iter()
            .map(|(name, toml)| Entry::parse(name, toml).expect("the devices of flashwise are in order"))
            .collect()
    }
}

/// What stands in a file that describes devices.
pub(crate) fn text_of(path: &str) -> Result<String, ArrayError> {
    let io = |source| ArrayError::Io { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    File::open(path).map_err(io)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(ArrayError::TooLong { path: path.to_owned(), bytes_max: FILE_BYTES_MAX });
    }
    String::from_utf8(bytes)
        .map_err(|error| ArrayError::NotText { path: path.to_owned(), byte: error.utf8_error().valid_up_to() })
}

/// The names of the devices that come with flashwise of which a file says what is asked for.
pub(crate) fn names_with(known: impl Fn(&Entry) -> bool) -> Vec<&'static str> {
    let names = DEVICES.iter().map(|(name, _)| *name);
    names.zip(Entry::all()).filter(|(_, entry)| known(entry)).map(|(name, _)| name).collect()
}

/// What is told of a device that comes with flashwise, whatever is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub title: String,
    /// Where its figures are from.
    pub source: String,
}

/// All devices that come with flashwise.
pub fn devices() -> Vec<About> {
    let about = |(name, entry): (&'static str, Entry)| {
        let text = |key| entry.top.text(key).ok().flatten().unwrap_or_default().to_owned();
        About { name, title: text("title"), source: text("source") }
    };
    DEVICES.iter().map(|(name, _)| *name).zip(Entry::all()).map(about).collect()
}
