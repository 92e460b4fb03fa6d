//! The backend's side of the pair: a short record of its cache, stored with the backend.

use std::io::{self, Write};
use std::ops::Range;

use flashwise_core::checksum;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The version of [`Record`] that this code writes. It reads no other.
const VERSION: u32 = 1;
/// The end of a record's JSON: a checksum of everything before it.
const CHECKSUM: &[u8] = b",\"checksum\":\"";
/// Length of that end: CRC-32C in hexadecimal, a quotation mark and a brace.
const CHECKSUM_BYTES: usize = CHECKSUM.len() + 8 + 2;

/// The backend's record of its cache. `docs/format.md` describes the JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Record {
    /// The version of the format.
    pub version: u32,
    /// The cache's UUID.
    pub cache: Uuid,
    /// Number of starts, as in the cache's superblock.
    pub attach: u64,
    /// True if the cache may hold unwritten data.
    pub may_be_dirty: bool,
    /// True if an operator has detached the cache: starts do without one until [`attach_again`](super::attach_again).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub detached: bool,
    /// Its journal, if any.
    #[serde(flatten)]
    pub journal: RecordedJournal,
    /// The inode of the backend, which differs for a copy of the file. `None` if the record is not part of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inode: Option<u64>,
    /// True if the backend may have more than the flash records as written back, because the flash failed. Then the
    /// next start cannot continue in the order of epochs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_ahead: bool,
    /// The last clean shutdown, if the last run ended with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed: Option<Closed>,
}

/// The [journal](crate::journal) that may have blocks of the backend.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct RecordedJournal {
    /// Its UUID; `None` without one.
    #[serde(rename = "journal", default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Uuid>,
    /// The [parts](BackendPart) of the backend that were missing when a start wrote its last group into place. The
    /// others have their blocks of that group.
    #[serde(rename = "journal-waits-for", default, skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<Uuid>,
}

impl RecordedJournal {
    /// Returns the journal in a record, if any.
    pub fn of(record: Option<&Record>) -> RecordedJournal {
        record.map(|record| record.journal.clone()).unwrap_or_default()
    }
}

/// A clean shutdown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Closed {
    /// The generation of the cache's superblock.
    pub generation: u64,
    /// The end of the log: the sequence of the unit.
    pub end_sequence: u64,
    /// The page within that unit.
    pub end_page: u32,
    /// True if the journal has a group without its mark.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_journal: bool,
    /// The stamp of the backend.
    pub stamp: Stamp,
}

/// Properties that change when a backend is written. Two different stamps prove a write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Stamp {
    /// Size in bytes.
    pub size: u64,
    /// The modification time of a file, in nanoseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified_ns: Option<i64>,
    /// The writes of a device since boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes: Option<Writes>,
}

/// A count of writes to a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Writes {
    /// The kernel's identifier of the boot. Each boot restarts the count.
    pub boot: String,
    /// The number of writes.
    pub count: u64,
}

impl Stamp {
    /// Describes the change since `before`; `None` if none is visible.
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
    /// Creates the record of a cache that was attached `attach` times.
    pub fn new(cache: [u8; 16], attach: u64, may_be_dirty: bool, inode: Option<u64>) -> Record {
        let cache = Uuid::from_bytes(cache);
        Record {
            version: VERSION,
            cache,
            attach,
            may_be_dirty,
            detached: false,
            journal: RecordedJournal::default(),
            inode,
            is_ahead: false,
            closed: None,
        }
    }

    /// Encodes the record as JSON with a checksum.
    pub fn encode(&self) -> Vec<u8> {
        let mut json = serde_json::to_vec(self).expect("a record has nothing that JSON has not");
        // The brace comes after the checksum.
        json.pop();
        let crc = checksum::crc32c(&json);
        json.extend_from_slice(CHECKSUM);
        write!(json, "{crc:08x}\"}}").expect("memory takes all that is written");
        json
    }

    /// Decodes a record, with or without a checksum.
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

/// True if a record is damaged, so that a retry cannot succeed.
pub fn is_damaged(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidData
}

/// Returns the record, or the error if it is damaged.
pub(crate) fn read_or_damage(side: &dyn BackendSide) -> io::Result<Result<Option<Record>, io::Error>> {
    match side.read() {
        Err(error) if is_damaged(&error) => Ok(Err(error)),
        record => record.map(Ok),
    }
}

/// The storage of the record. A write is durable when it returns, and takes effect completely or not at all.
pub trait BackendSide: Send + Sync {
    /// Returns the record, if any.
    ///
    /// # Errors
    /// It cannot be read, or [`Record::decode`] refuses it.
    fn read(&self) -> io::Result<Option<Record>>;

    /// Replaces the record.
    fn write(&self, record: &Record) -> io::Result<()>;

    /// Returns the current stamp of the backend.
    fn stamp(&self) -> io::Result<Stamp>;

    /// The inode of the backend, if the record is part of a file.
    fn inode(&self) -> Option<u64>;

    /// Returns the owned parts of these block ranges. For a pool, the owners are logical disks.
    fn owned(&self, ranges: &[Range<u64>]) -> Vec<Owned> {
        let all = ranges.iter().enumerate();
        all.map(|(of, blocks)| Owned { of, disk: None, blocks: blocks.clone() }).collect()
    }

    /// Returns the parts of a backend that can be missing: the disks of a pool.
    fn parts(&self) -> Vec<BackendPart> {
        Vec::new()
    }
}

/// A part of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendPart {
    /// Its UUID.
    pub id: Uuid,
    /// Its path, or the last known one.
    pub path: String,
    /// Its block numbers.
    pub blocks: Range<u32>,
    /// True if it is missing.
    pub is_missing: bool,
}

/// Blocks of a cache, as numbered by their owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    /// The index of the requested range.
    pub of: usize,
    /// The logical disk that owns them; `None` for a volume.
    pub disk: Option<String>,
    /// The owner's block numbers.
    pub blocks: Range<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_decodes_and_errors_name_the_problem() {
        let mut record = Record::new([7; 16], 5, true, Some(12));
        assert_eq!(Record::decode(&record.encode()).unwrap(), record);
        let stamp =
            Stamp { size: 4096, modified_ns: Some(-3), writes: Some(Writes { boot: "b".to_owned(), count: 9 }) };
        record.closed = Some(Closed { generation: 8, end_sequence: 2, end_page: 3, in_journal: false, stamp });
        assert_eq!(Record::decode(&record.encode()).unwrap(), record);
        let message = |json: &str| Record::decode(json.as_bytes()).unwrap_err().to_string();
        assert_eq!(message(r#"{"version":2}"#), "it has version 2; this program reads version 1");
        assert!(message("x").starts_with("found \"x\", expected JSON"), "{}", message("x"));
        assert!(message(r#"{"version":1}"#).contains("missing field `cache`"));
    }

    /// Flips each bit of each byte. A record that still decodes is unchanged. Records of earlier programs have no
    /// checksum.
    #[test]
    fn a_record_with_a_wrong_bit_is_damaged_or_says_the_same() {
        let mut record = Record::new([7; 16], 12, true, Some(12));
        let stamp = Stamp { size: 4096, modified_ns: Some(3), writes: None };
        record.closed = Some(Closed { generation: 8, end_sequence: 2, end_page: 3, in_journal: false, stamp });
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
        // Another boot counts from zero.
        assert_eq!(Stamp { writes: writes("b", 1), ..before.clone() }.changes(&before), None);
        assert_eq!(Stamp { writes: None, ..before.clone() }.changes(&before), None);
    }
}
