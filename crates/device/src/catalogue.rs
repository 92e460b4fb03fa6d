//! The catalogue of devices: the built-in ones, each a TOML file in `devices/` with its source, and the user's own
//! files. The top of a file gives the figures of the whole device, the table `[flash]` those of its flash. Many files
//! have only one of the two.

use std::fs::File;
use std::io::Read;

use crate::keys::{ArrayError, Document, Keys};

/// The built-in devices: a name and the text of its file.
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

/// Former names of devices.
const ALIASES: [(&str, &str); 2] = [("mixed-slc", "slc"), ("mixed-mlc", "mlc")];

/// Keys for the title of a device and the source of its figures.
const ABOUT_KEYS: [&str; 2] = ["title", "source"];
/// Keys of the whole device.
pub(crate) const DRIVE_KEYS: [&str; 7] = [
    "capacity-gb",
    "endurance-cycles",
    "total-writes-tb",
    "read-latency-ms",
    "write-latency-ms",
    "channels",
    "transfer-mb-per-s",
];
/// Keys of its flash.
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
    "spare",
];
/// Keys of a file that describes only flash. Such a file needs no `[flash]` line.
const FLAT_KEYS: [&str; 2] = ["endurance-cycles", "pe-cycles"];

/// Upper limit of a file's size, well above any real description.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// A device as its file describes it.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The built-in name, or the path of the file.
    pub name: String,
    /// The keys at the top.
    pub top: Keys,
    /// The keys of the table `[flash]`.
    pub flash: Option<Keys>,
}

impl Entry {
    /// Finds the device `text`, given at `place`: a built-in name, or a path, which ends in `.toml` or contains a
    /// slash. If the name is unknown, the error lists the built-in devices that are `known` to have the needed figures.
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

    /// Parses a document; messages call it `name`.
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

    /// Returns all built-in devices.
    pub fn all() -> Vec<Entry> {
        DEVICES
            .iter()
            .map(|(name, toml)| Entry::parse(name, toml).expect("the devices of flashwise are in order"))
            .collect()
    }
}

/// Returns the text of a file that describes devices.
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

/// Returns the names of the built-in devices whose file has the needed figures.
pub(crate) fn names_with(known: impl Fn(&Entry) -> bool) -> Vec<&'static str> {
    let names = DEVICES.iter().map(|(name, _)| *name);
    names.zip(Entry::all()).filter(|(_, entry)| known(entry)).map(|(name, _)| name).collect()
}

/// Title and source of a built-in device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// Its name.
    pub name: &'static str,
    /// Its title.
    pub title: String,
    /// The source of its figures.
    pub source: String,
}

/// Returns all built-in devices.
pub fn devices() -> Vec<About> {
    let about = |(name, entry): (&'static str, Entry)| {
        let text = |key| entry.top.text(key).ok().flatten().unwrap_or_default().to_owned();
        About { name, title: text("title"), source: text("source") }
    };
    DEVICES.iter().map(|(name, _)| *name).zip(Entry::all()).map(about).collect()
}
