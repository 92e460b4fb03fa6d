//! The backend's side of the pair: a short record of the cache that belongs to the backend, kept where the backend is.

use std::io::{self, Write};
use std::ops::Range;

use flashwise_core::checksum;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The version of [`Record`] that this code writes, and the only one that it reads.
const VERSION: u32 = 1;
/// How the JSON of a record ends: with the checksum of all before it.
const CHECKSUM: &[u8] = b",\"checksum\":\"";
/// The length of that end: CRC-32C in hexadecimal, a quotation mark and a brace.
const CHECKSUM_BYTES: usize = CHECKSUM.len() + 8 + 2;

/// What the backend knows of its cache. As JSON: `docs/format.md`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Record {
    /// Of the record's format.
    pub version: u32,
    /// The cache.
    pub cache: Uuid,
    /// Counts the starts, as the cache's superblock does.
    pub attach: u64,
    /// True if the cache may hold what the backend does not.
    pub may_be_dirty: bool,
    /// The inode of the backend, which a copy of the file does not share; none where the record is not a part of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inode: Option<u64>,
    /// How the last run ended, if it ended in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed: Option<Closed>,
}

/// An orderly end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Closed {
    /// The generation of the cache's superblock.
    pub generation: u64,
    /// Where the log ended: the unit's sequence.
    pub end_sequence: u64,
    /// The page within that unit.
    pub end_page: u32,
    /// What the backend looked like.
    pub stamp: Stamp,
}

/// What changes when a backend is written: where two differ, it was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Stamp {
    /// Size in bytes.
    pub size: u64,
    /// When a file was modified last, in nanoseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified_ns: Option<i64>,
    /// Writes that a device has taken since the machine was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes: Option<Writes>,
}

/// Writes to a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Writes {
    /// The kernel's identity of this start of the machine; the count begins anew with each.
    pub boot: String,
    /// Their number.
    pub count: u64,
}

impl Stamp {
    /// What has changed since `before`, in words; none if nothing is seen to have.
    pub fn changes(&self, before: &Stamp) -> Option<String> {
        if self.size != before.size {
            return Some(format!("its size was {} bytes and is {}", before.size, self.size));
        }
        if self.modified_ns != before.modified_ns {
            return Some("it was modified later".to_owned());
        }
        match (&self.writes, &before.writes) {
            (Some(now), Some(then)) if now.boot == then.boot && now.count != then.count => {
                Some(format!("it had taken {} writes and has taken {}", then.count, now.count))
            }
            _ => None,
        }
    }
}

impl Record {
    /// That of a cache that was attached so often.
    pub fn new(cache: [u8; 16], attach: u64, may_be_dirty: bool, inode: Option<u64>) -> Record {
        Record { version: VERSION, cache: Uuid::from_bytes(cache), attach, may_be_dirty, inode, closed: None }
    }

    /// The record as JSON, with a checksum.
    pub fn encode(&self) -> Vec<u8> {
        let mut json = serde_json::to_vec(self).expect("a record has nothing that JSON has not");
        // The brace comes behind the checksum.
        json.pop();
        let crc = checksum::crc32c(&json);
        json.extend_from_slice(CHECKSUM);
        write!(json, "{crc:08x}\"}}").expect("memory takes all that is written");
        json
    }

    /// Reads a record, with or without a checksum.
    ///
    /// # Errors
    /// The record [is damaged](is_damaged), or a later program wrote it.
    pub fn decode(json: &[u8]) -> io::Result<Record> {
        let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let shown = String::from_utf8_lossy(&json[..json.len().min(80)]).into_owned();
        let (before, end) = json.split_at(json.len().saturating_sub(CHECKSUM_BYTES));
        let has_checksum = end.starts_with(CHECKSUM);
        if has_checksum && end[CHECKSUM.len()..] != *format!("{:08x}\"}}", checksum::crc32c(before)).as_bytes() {
            return Err(invalid(format!("found {shown:?}, and its checksum is wrong")));
        }
        let Version { version } = serde_json::from_slice(json)
            .map_err(|error| invalid(format!("found {shown:?}, expected JSON ({error})")))?;
        if version != VERSION {
            let what = format!("it has version {version}; this program reads version {VERSION}");
            return Err(if has_checksum { io::Error::new(io::ErrorKind::Unsupported, what) } else { invalid(what) });
        }
        serde_json::from_slice(json).map_err(|error| invalid(format!("found {shown:?}: {error}")))
    }
}

/// True if a record could not be read because it is damaged: reading it again does not help.
pub fn is_damaged(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidData
}

/// Where the record is kept. What was written is durable when the call returns, and was either written whole or not at all.
pub trait BackendSide: Send + Sync {
    /// The record, if there is one.
    ///
    /// # Errors
    /// It cannot be read, or [`Record::decode`] refuses it.
    fn read(&self) -> io::Result<Option<Record>>;

    /// Puts a record in the place of the one before.
    fn write(&self, record: &Record) -> io::Result<()>;

    /// What the backend looks like now.
    fn stamp(&self) -> io::Result<Stamp>;

    /// The inode of the backend, where the record is a part of a file.
    fn inode(&self) -> Option<u64>;

    /// What of these blocks anybody has, and where: in front of a pool, that are blocks of logical disks.
    fn owned(&self, ranges: &[Range<u64>]) -> Vec<Owned> {
        let all = ranges.iter().enumerate();
        all.map(|(of, blocks)| Owned { of, disk: None, blocks: blocks.clone() }).collect()
    }
}

/// Blocks that a cache holds, as who uses them knows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    /// Which of the ranges that were asked for they are of.
    pub of: usize,
    /// The logical disk that has them; none in front of a volume.
    pub disk: Option<String>,
    /// Its blocks.
    pub blocks: Range<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_back_and_what_is_wrong_with_it_is_said() {
        let mut record = Record::new([7; 16], 5, true, Some(12));
        assert_eq!(Record::decode(&record.encode()).unwrap(), record);
        let stamp =
            Stamp { size: 4096, modified_ns: Some(-3), writes: Some(Writes { boot: "b".to_owned(), count: 9 }) };
        record.closed = Some(Closed { generation: 8, end_sequence: 2, end_page: 3, stamp });
        assert_eq!(Record::decode(&record.encode()).unwrap(), record);
        let message = |json: &str| Record::decode(json.as_bytes()).unwrap_err().to_string();
        assert_eq!(message(r#"{"version":2}"#), "it has version 2; this program reads version 1");
        assert!(message("x").starts_with("found \"x\", expected JSON"), "{}", message("x"));
        assert!(message(r#"{"version":1}"#).contains("missing field `cache`"));
    }

    /// Each bit of each byte: what is read all the same says what was written. A record of an earlier program has no checksum.
    #[test]
    fn a_record_with_a_wrong_bit_is_damaged_or_says_the_same() {
        let mut record = Record::new([7; 16], 12, true, Some(12));
        let stamp = Stamp { size: 4096, modified_ns: Some(3), writes: None };
        record.closed = Some(Closed { generation: 8, end_sequence: 2, end_page: 3, stamp });
        let json = record.encode();
        let mut read = 0;
        for (byte, bit) in (0..json.len()).flat_map(|byte| (0..8).map(move |bit| (byte, bit))) {
            let mut wrong = json.clone();
            wrong[byte] ^= 1 << bit;
            match Record::decode(&wrong) {
                Ok(found) => {
                    assert_eq!(found, record, "byte {byte}, bit {bit}");
                    read += 1;
                }
                Err(error) => assert!(is_damaged(&error), "byte {byte}, bit {bit}: {error}"),
            }
        }
        assert!(read < 8 * CHECKSUM.len(), "{read} of {} say nothing of the checksum", 8 * json.len());
        let before = serde_json::to_vec(&record).unwrap();
        assert_eq!(Record::decode(&before).unwrap(), record);
        let mut later = record;
        later.version = 2;
        let error = Record::decode(&later.encode()).unwrap_err();
        assert!(!is_damaged(&error), "{error}");
    }

    #[test]
    fn a_backend_has_changed_if_size_time_or_writes_differ() {
        let writes = |boot: &str, count| Some(Writes { boot: boot.to_owned(), count });
        let before = Stamp { size: 1, modified_ns: Some(2), writes: writes("a", 3) };
        assert_eq!(before.changes(&before), None);
        let grown = Stamp { size: 2, ..before.clone() };
        assert_eq!(grown.changes(&before).unwrap(), "its size was 1 bytes and is 2");
        let later = Stamp { modified_ns: Some(3), ..before.clone() };
        assert_eq!(later.changes(&before).unwrap(), "it was modified later");
        let written = Stamp { writes: writes("a", 4), ..before.clone() };
        assert_eq!(written.changes(&before).unwrap(), "it had taken 3 writes and has taken 4");
        // Another start of the machine counts from zero.
        assert_eq!(Stamp { writes: writes("b", 1), ..before.clone() }.changes(&before), None);
        assert_eq!(Stamp { writes: None, ..before.clone() }.changes(&before), None);
    }
}
