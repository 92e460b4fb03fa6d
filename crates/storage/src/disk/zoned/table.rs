//! The description of a file with zones: its layout and its write pointers. There are two copies with checksums, so a
//! damaged page loses nothing.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use flashwise_core::checksum::{crc32c, crc32c_append};
use serde::{Deserialize, Serialize};

use super::zoning::Zoning;
use super::{Condition, Zone};
use crate::disk::ALIGNMENT;

/// The first bytes of both copies of the description.
const MAGIC: &[u8; 8] = b"fwzones2";
/// The same in files with one copy and no checksums.
const MAGIC_ONCE: &[u8; 8] = b"fwzones1";
const PAGE: u64 = ALIGNMENT as u64;
/// Bytes of a zone's entry in the table: write pointer, condition and checksum.
const ENTRY: u64 = 16;
/// Alignment of the first zone.
const DATA_ALIGNMENT: u64 = 1 << 20;

/// The conditions, in the order of their numbers in the table.
const CONDITIONS: [Condition; 6] =
    [Condition::Empty, Condition::Open, Condition::Closed, Condition::Full, Condition::ReadOnly, Condition::Offline];

/// The layout of a file, stored as JSON after the magic number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct TableDescription {
    zones: u32,
    zoning: Zoning,
    /// Number of copies of description and table, given by the magic number.
    #[serde(skip)]
    copies: u64,
}

impl TableDescription {
    /// Encodes a page: the magic number, the length of the JSON, the checksum of both, and the JSON.
    fn to_page(self) -> io::Result<Vec<u8>> {
        let json = serde_json::to_vec(&self)?;
        let mut page = vec![0; ALIGNMENT];
        page[8..12].copy_from_slice(&(json.len() as u32).to_le_bytes());
        page[16..][..json.len()].copy_from_slice(&json);
        page[..8].copy_from_slice(MAGIC);
        let sum = crc32c(&page);
        page[12..16].copy_from_slice(&sum.to_le_bytes());
        Ok(page)
    }

    /// Decodes a page of [`to_page`](Self::to_page). Returns `None` if it is damaged.
    fn from_page(page: &[u8]) -> Option<TableDescription> {
        if &page[..8] == MAGIC_ONCE {
            let json = page[8..].split(|&byte| byte == 0).next().unwrap_or_default();
            return Some(TableDescription { copies: 1, ..serde_json::from_slice(json).ok()? });
        }
        let mut unsigned = page.to_vec();
        unsigned[12..16].fill(0);
        if &page[..8] != MAGIC || page[12..16] != crc32c(&unsigned).to_le_bytes() {
            return None;
        }
        let length = u32::from_le_bytes(page[8..12].try_into().expect("4 bytes")) as usize;
        Some(TableDescription { copies: 2, ..serde_json::from_slice(page.get(16..16 + length)?).ok()? })
    }

    fn table_bytes(&self) -> u64 {
        u64::from(self.zones) * ENTRY
    }

    /// The offset of a copy of the table. The copies share no page.
    fn table(&self, copy: u64) -> u64 {
        (self.copies + copy * self.table_bytes().div_ceil(PAGE)) * PAGE
    }

    /// The offset of the first zone.
    fn data(&self) -> u64 {
        (self.table(self.copies - 1) + self.table_bytes()).next_multiple_of(DATA_ALIGNMENT)
    }

    fn file_bytes(&self) -> u64 {
        self.data() + u64::from(self.zones) * self.zoning.size
    }

    /// Encodes the entry of a zone.
    fn entry(&self, number: u32, zone: Zone) -> [u8; ENTRY as usize] {
        let condition =
            CONDITIONS.iter().position(|condition| *condition == zone.condition).expect("one of all conditions");
        let mut entry = [0; ENTRY as usize];
        entry[..8].copy_from_slice(&zone.written.to_le_bytes());
        entry[8..12].copy_from_slice(&(condition as u32).to_le_bytes());
        if self.copies > 1 {
            let sum = checksum(number, &entry[..12]);
            entry[12..].copy_from_slice(&sum.to_le_bytes());
        }
        entry
    }

    /// Decodes the entry of a zone. Returns `None` if it is damaged.
    fn zone(&self, number: u32, entry: &[u8]) -> Option<Zone> {
        let sum = u32::from_le_bytes(entry[12..].try_into().expect("4 bytes"));
        let expected = if self.copies > 1 { checksum(number, &entry[..12]) } else { 0 };
        let condition = u32::from_le_bytes(entry[8..12].try_into().expect("4 bytes"));
        let zone = Zone {
            condition: *CONDITIONS.get(condition as usize)?,
            written: u64::from_le_bytes(entry[..8].try_into().expect("8 bytes")),
        };
        (sum == expected && zone.written <= self.zoning.capacity).then_some(zone)
    }
}

fn checksum(number: u32, fields: &[u8]) -> u32 {
    crc32c_append(crc32c(&number.to_le_bytes()), fields)
}

/// True if the file at a path has zones.
pub(super) fn is_at(path: &Path) -> bool {
    let is_file = std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file());
    let begins = |file: &File, at: u64| {
        let mut magic = [0; 8];
        file.read_exact_at(&mut magic, at).is_ok() && (&magic == MAGIC || (at == 0 && &magic == MAGIC_ONCE))
    };
    is_file && File::open(path).is_ok_and(|file| begins(&file, 0) || begins(&file, PAGE))
}

/// The layout of a new file with as many zones as fit into `size` bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewTable(TableDescription);

impl NewTable {
    pub fn new(size: u64, zoning: Zoning) -> NewTable {
        NewTable(TableDescription { zones: (size / zoning.size).min(u32::MAX.into()) as u32, zoning, copies: 2 })
    }

    pub fn file_bytes(&self) -> u64 {
        self.0.file_bytes()
    }
}

/// The table of an open file.
#[derive(Debug)]
pub(super) struct ZoneTable {
    /// Uses the page cache.
    file: File,
    description: TableDescription,
}

/// A table that was read.
pub(super) struct ReadTable {
    pub table: ZoneTable,
    pub zones: Vec<Zone>,
    /// A note for users about damage that was repaired.
    pub note: Option<String>,
}

impl ZoneTable {
    /// Writes the description of a new file, durably. All zones are empty.
    pub fn create(file: File, plan: NewTable) -> io::Result<()> {
        let table = ZoneTable { file, description: plan.0 };
        table.write_all(&vec![Zone { condition: Condition::Empty, written: 0 }; plan.0.zones as usize])
    }

    /// Reads the description of a file of this size. Damaged parts are read from the other copy, and repaired if `mend`
    /// is set.
    pub fn open(file: File, bytes: u64, mend: bool) -> io::Result<ReadTable> {
        let wrong = |what: String| {
            io::Error::new(io::ErrorKind::InvalidData, format!("its description of zones is damaged: {what}"))
        };
        let mut damaged = Vec::new();
        let page = |at: u64| {
            let mut page = vec![0; ALIGNMENT];
            file.read_exact_at(&mut page, at)?;
            io::Result::Ok(TableDescription::from_page(&page))
        };
        let description = match page(0)? {
            Some(description) => {
                if description.copies > 1 && page(PAGE)? != Some(description) {
                    damaged.push("its second page".to_owned());
                }
                description
            }
            None => {
                damaged.push("its first page".to_owned());
                let copy = page(PAGE)?.filter(|description| description.copies > 1);
                copy.ok_or_else(|| wrong("the layout, in the first page and in its copy".to_owned()))?
            }
        };
        if bytes < description.file_bytes() || description.zoning.capacity > description.zoning.size {
            let expected = description.file_bytes();
            return Err(wrong(format!("its zones take {expected} bytes, and the file has {bytes}")));
        }
        let table = ZoneTable { file, description };
        let read = |copy| {
            let mut entries = vec![0; description.table_bytes() as usize];
            table.file.read_exact_at(&mut entries, description.table(copy))?;
            io::Result::Ok(entries)
        };
        let copies = (0..description.copies).map(read).collect::<io::Result<Vec<_>>>()?;
        let mut zones = Vec::new();
        for number in 0..description.zones {
            let entry =
                |copy: &Vec<u8>| description.zone(number, &copy[number as usize * ENTRY as usize..][..ENTRY as usize]);
            // After a power failure the copies may differ. Either is a valid state of a device.
            let found: Vec<Option<Zone>> = copies.iter().map(entry).collect();
            let zone = found.iter().flatten().next();
            zones.push(*zone.ok_or_else(|| wrong(format!("the write pointer of zone {number}")))?);
            if found.contains(&None) {
                damaged.push(format!("zone {number}"));
            }
        }
        let note = (!damaged.is_empty()).then(|| {
            let first = damaged[..damaged.len().min(3)].join(", ");
            let more = if damaged.len() > 3 { format!(" and {} more", damaged.len() - 3) } else { String::new() };
            let written = if mend { " and was written again" } else { "" };
            format!("its description of zones was damaged ({first}{more}); it was read from the copy{written}")
        });
        if note.is_some() && mend {
            table.write_all(&zones)?;
        }
        Ok(ReadTable { table, zones, note })
    }

    pub fn zones(&self) -> u32 {
        self.description.zones
    }

    pub fn zoning(&self) -> &Zoning {
        &self.description.zoning
    }

    /// The offset of the first zone.
    pub fn data(&self) -> u64 {
        self.description.data()
    }

    /// Records the state of a zone.
    pub fn set(&self, number: u32, zone: Zone) -> io::Result<()> {
        let entry = self.description.entry(number, zone);
        for copy in 0..self.description.copies {
            self.file.write_all_at(&entry, self.description.table(copy) + u64::from(number) * ENTRY)?;
        }
        Ok(())
    }

    fn write_all(&self, zones: &[Zone]) -> io::Result<()> {
        let page = self.description.to_page()?;
        let entries: Vec<u8> =
            (0..).zip(zones).flat_map(|(number, &zone)| self.description.entry(number, zone)).collect();
        // The copies are written one after the other, so one of them is always valid.
        for copy in 0..self.description.copies {
            self.file.write_all_at(&page, copy * PAGE)?;
            self.file.write_all_at(&entries, self.description.table(copy))?;
            self.file.sync_all()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZONING: Zoning = Zoning { size: 128 << 10, capacity: 96 << 10, max_active: 3, max_open: 2 };
    /// 600 zones fill more than two pages of a table.
    const ZONES: u32 = 600;

    fn state(number: u32) -> Zone {
        let condition = CONDITIONS[number as usize % CONDITIONS.len()];
        Zone { condition, written: u64::from(number % 24) << 12 }
    }

    /// Creates a file with a table of empty zones. Returns it with its final size.
    fn made(directory: &tempfile::TempDir) -> (File, u64) {
        let plan = NewTable::new(u64::from(ZONES) * ZONING.size, ZONING);
        let path = directory.path().join("zones");
        let open = || File::options().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
        open().set_len(plan.file_bytes()).unwrap();
        ZoneTable::create(open(), plan).unwrap();
        (open(), plan.file_bytes())
    }

    #[test]
    fn a_damaged_page_is_read_from_its_copy_and_two_are_refused_in_words() {
        let directory = tempfile::tempdir().unwrap();
        let (file, bytes) = made(&directory);
        let open = |mend| ZoneTable::open(file.try_clone().unwrap(), bytes, mend);
        let found = open(false).unwrap();
        assert_eq!((found.zones.len(), found.note), (ZONES as usize, None));
        for number in 0..ZONES {
            found.table.set(number, state(number)).unwrap();
        }
        let expected: Vec<Zone> = (0..ZONES).map(state).collect();
        // Two pages of descriptions, and two copies of a table of three pages.
        for page in 0..8 {
            let mut before = [0; ALIGNMENT];
            file.read_exact_at(&mut before, page * PAGE).unwrap();
            for (damage, at) in [(vec![0; ALIGNMENT], 0), (vec![0xaa; ALIGNMENT], 0), (vec![before[40] ^ 1], 40)] {
                file.write_all_at(&damage, page * PAGE + at).unwrap();
                let found = open(false).unwrap();
                assert_eq!(found.zones, expected, "page {page}");
                let note = found.note.unwrap();
                assert!(note.ends_with("it was read from the copy"), "{note}");
                let mended = open(true).unwrap();
                assert!(mended.note.unwrap().ends_with("it was read from the copy and was written again"));
                let whole = open(true).unwrap();
                assert_eq!((whole.zones, whole.note), (expected.clone(), None), "page {page}");
            }
        }
        let refused = |pages: [u64; 2]| {
            for page in pages {
                file.write_all_at(&[0; ALIGNMENT], page * PAGE).unwrap();
            }
            open(true).map(|_| ()).unwrap_err().to_string()
        };
        assert_eq!(refused([3, 6]), "its description of zones is damaged: the write pointer of zone 256");
        assert_eq!(
            refused([0, 1]),
            "its description of zones is damaged: the layout, in the first page and in its copy"
        );
    }

    /// The layout of the first version: a page with JSON, and a table without checksums.
    #[test]
    fn files_of_the_first_version_are_read_and_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("zones");
        let json = r#"{"zones":3,"zoning":{"size":131072,"capacity":98304,"max-active":3,"max-open":2}}"#;
        let mut bytes = vec![0; (1 << 20) + (3 << 17)];
        bytes[..8].copy_from_slice(b"fwzones1");
        bytes[8..8 + json.len()].copy_from_slice(json.as_bytes());
        // Zone 1 is full.
        bytes[4096 + 16..][..8].copy_from_slice(&98304_u64.to_le_bytes());
        bytes[4096 + 24] = 3;
        std::fs::write(&path, &bytes).unwrap();
        assert!(is_at(&path));
        let open =
            || ZoneTable::open(File::options().read(true).write(true).open(&path).unwrap(), bytes.len() as u64, true);
        let ReadTable { table, zones, note } = open().unwrap();
        let empty = Zone { condition: Condition::Empty, written: 0 };
        let full = Zone { condition: Condition::Full, written: 98304 };
        assert_eq!((&zones[..], note, table.data()), (&[empty, full, empty][..], None, 1 << 20));
        table.set(2, full).unwrap();
        assert_eq!(open().unwrap().zones, [empty, full, full]);
        bytes[4096 + 16..][..8].copy_from_slice(&98304_u64.to_le_bytes());
        bytes[4096 + 40..][..1].copy_from_slice(&[3]);
        bytes[4096 + 32..][..8].copy_from_slice(&98304_u64.to_le_bytes());
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }
}
