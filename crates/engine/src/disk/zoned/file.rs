//! A regular file that behaves like a zoned device: it is written at write pointers only, a zone holds less than its addresses span if
//! that is asked for, and few zones may be written at a time. For those who have no such device, and for tests.
//!
//! The file begins with a page that says how it is divided, and a table of where the write pointers are. After a power failure the
//! file system may have kept a write pointer and not what was written before it: a cache notices that by its checksums, as it does
//! on any file.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use flashwise_core::options::{Kind, OptionError, Options as Given, Parameter};
use serde::{Deserialize, Serialize};

use super::super::file::{Allocation, FileDisk, Options};
use super::super::{ALIGNMENT, Disk};
use super::{Condition, Limits, Zone, ZonedDevice};

const MAGIC: &[u8; 8] = b"fwzones1";
const PAGE: u64 = ALIGNMENT as u64;
/// Where the table of write pointers begins.
const TABLE: u64 = PAGE;
/// Bytes in the table for each zone: its write pointer, and its condition.
const ENTRY: u64 = 16;
/// What the first zone's offset is a multiple of.
const DATA_ALIGNMENT: u64 = 1 << 20;
const ZONE_BYTES_MIN: u64 = 64 << 10;
const ZONE_BYTES_MAX: u64 = 2 << 30;

/// The conditions, in the order of their numbers in the table.
const CONDITIONS: [Condition; 6] =
    [Condition::Empty, Condition::Open, Condition::Closed, Condition::Full, Condition::ReadOnly, Condition::Offline];

/// How a file is divided into zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Zoning {
    /// From the start of a zone to that of the next, in bytes.
    pub size: u64,
    /// Bytes that a zone holds, at most its size.
    pub capacity: u64,
    /// Zones that may be open or closed at a time; 0 for any number.
    pub max_active: u32,
    /// Zones that may be open at a time; 0 for any number.
    pub max_open: u32,
}

/// What users may say of it.
pub static PARAMETERS: [Parameter; 4] = [
    Parameter {
        name: "size",
        kind: Kind::Size(ZONE_BYTES_MIN, ZONE_BYTES_MAX),
        default: "4MiB",
        meaning: "from the start of a zone to that of the next",
    },
    Parameter {
        name: "capacity",
        kind: Kind::Size(ZONE_BYTES_MIN, ZONE_BYTES_MAX),
        default: "",
        meaning: "what a zone holds, if less than its size",
    },
    Parameter {
        name: "max-active",
        kind: Kind::Count(0, 1 << 20),
        default: "14",
        meaning: "zones that may be open or closed at a time, 0 for any number",
    },
    Parameter {
        name: "max-open",
        kind: Kind::Count(0, 1 << 20),
        default: "14",
        meaning: "zones that may be open at a time, 0 for any number",
    },
];

impl Zoning {
    /// Reads `size=4MiB,capacity=3MiB,max-active=14,max-open=14`, any of which may be missing.
    pub fn parse(owner: &str, text: &str) -> Result<Zoning, OptionError> {
        let given = Given::parse(owner, &PARAMETERS, text)?;
        let size = given.size_bytes("size");
        let capacity = if given.has("capacity") { given.size_bytes("capacity") } else { size };
        let refuse = |name: &str, found: u64, expected: String| OptionError::BadValue {
            owner: owner.to_owned(),
            name: name.to_owned(),
            found: found.to_string(),
            expected,
        };
        for (name, found) in [("size", size), ("capacity", capacity)] {
            if !found.is_multiple_of(PAGE) {
                return Err(refuse(name, found, format!("a multiple of {PAGE} bytes")));
            }
        }
        if capacity > size {
            return Err(refuse("capacity", capacity, format!("at most the size of a zone, {size} bytes")));
        }
        let count = |name| given.count(name) as u32;
        Ok(Zoning { size, capacity, max_active: count("max-active"), max_open: count("max-open") })
    }
}

/// What the first page says, behind the magic number, as JSON.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Description {
    zones: u32,
    zoning: Zoning,
}

impl Description {
    /// Where the first zone is.
    fn data(&self) -> u64 {
        (TABLE + u64::from(self.zones) * ENTRY).next_multiple_of(DATA_ALIGNMENT)
    }

    fn file_bytes(&self) -> u64 {
        self.data() + u64::from(self.zones) * self.zoning.size
    }
}

/// A file that was opened or made.
#[derive(Debug)]
pub struct ZoneFile {
    disk: FileDisk,
    /// The same file by way of the page cache, for the table.
    table: File,
    description: Description,
    zones: Mutex<Vec<Zone>>,
    refusals: AtomicU64,
}

/// Whether the file at a path was made by [`ZoneFile::create`].
pub(super) fn is_at(path: &Path) -> bool {
    let mut magic = [0; 8];
    let is_file = std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file());
    is_file && File::open(path).and_then(|file| file.read_exact_at(&mut magic, 0)).is_ok() && magic == *MAGIC
}

impl ZoneFile {
    /// Makes a file with as many zones as fit `size` bytes. Leaves none behind if it fails.
    pub fn create(path: &Path, size: u64, zoning: Zoning, options: Options) -> io::Result<ZoneFile> {
        let description = Description { zones: (size / zoning.size).min(u32::MAX.into()) as u32, zoning };
        let disk = FileDisk::create(path, description.file_bytes(), Allocation::Full, options)?;
        let written = || {
            let json = serde_json::to_vec(&description)?;
            let mut page = vec![0; ALIGNMENT];
            page[..8].copy_from_slice(MAGIC);
            page[8..8 + json.len()].copy_from_slice(&json);
            let table = File::options().write(true).open(path)?;
            table.write_all_at(&page, 0)?;
            table.sync_all()
        };
        let opened = written().and_then(|()| ZoneFile::open(disk));
        if opened.is_err() {
            // The first error is the one to tell.
            let _ = std::fs::remove_file(path);
        }
        opened
    }

    /// Reads how a file is divided and where its write pointers are. No zone stays open between two openings.
    pub(super) fn open(disk: FileDisk) -> io::Result<ZoneFile> {
        let wrong = |what: String| {
            let message = format!("{}: the description of its zones {what}", disk.path().display());
            io::Error::new(io::ErrorKind::InvalidData, message)
        };
        let table = File::options().read(true).write(!disk.is_read_only()).open(disk.path())?;
        let mut page = vec![0; ALIGNMENT];
        table.read_exact_at(&mut page, 0)?;
        let json = page[8..].split(|&byte| byte == 0).next().unwrap_or_default();
        let description: Description =
            serde_json::from_slice(json).map_err(|error| wrong(format!("is damaged: {error}")))?;
        let (found, expected) = (disk.size(), description.file_bytes());
        if found < expected || description.zoning.capacity > description.zoning.size {
            return Err(wrong(format!("takes {expected} bytes, the file has {found}")));
        }
        let mut entries = vec![0; description.zones as usize * ENTRY as usize];
        table.read_exact_at(&mut entries, TABLE)?;
        let zone = |(number, entry): (usize, &[u8])| {
            let field = |at: usize| u64::from_le_bytes(entry[at..at + 8].try_into().expect("8 bytes"));
            let condition = CONDITIONS.get(field(8) as usize).copied();
            let zone = condition.map(|condition| Zone { condition, written: field(0) });
            let zone = zone.filter(|zone| zone.written <= description.zoning.capacity);
            let mut zone = zone.ok_or_else(|| wrong(format!("is damaged: zone {number} has {entry:?}")))?;
            if zone.condition == Condition::Open {
                zone.condition = Condition::Closed;
            }
            Ok(zone)
        };
        let zones = entries.chunks(ENTRY as usize).enumerate().map(zone).collect::<io::Result<_>>()?;
        Ok(ZoneFile { disk, table, description, zones: Mutex::new(zones), refusals: AtomicU64::new(0) })
    }

    /// Operations that a device with zones refuses: writes that are not at the write pointer, or of too many zones at a time.
    pub fn refusals(&self) -> u64 {
        self.refusals.load(Ordering::Relaxed)
    }

    /// Lets a zone fail, as a device does of itself.
    pub fn fail(&self, zone: u32, condition: Condition) -> io::Result<()> {
        let mut zones = self.lock();
        self.set(&mut zones, zone, |zone| zone.condition = condition)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Zone>> {
        self.zones.lock().expect("no thread panics with the zones")
    }

    fn set(&self, zones: &mut [Zone], zone: u32, change: impl FnOnce(&mut Zone)) -> io::Result<()> {
        let mut changed = zones[zone as usize];
        change(&mut changed);
        let number = CONDITIONS.iter().position(|condition| *condition == changed.condition);
        let mut entry = [0; ENTRY as usize];
        entry[..8].copy_from_slice(&changed.written.to_le_bytes());
        entry[8..].copy_from_slice(&(number.expect("one of all conditions") as u64).to_le_bytes());
        self.table.write_all_at(&entry, TABLE + u64::from(zone) * ENTRY)?;
        zones[zone as usize] = changed;
        Ok(())
    }

    fn refuse(&self, what: String) -> io::Error {
        self.refusals.fetch_add(1, Ordering::Relaxed);
        io::Error::new(io::ErrorKind::InvalidInput, what)
    }

    fn address(&self, zone: u32, offset: u64) -> u64 {
        self.description.data() + u64::from(zone) * self.description.zoning.size + offset
    }

    /// Opens a zone that is about to be written, if that is allowed; closes another if too many are open.
    fn open_zone(&self, zones: &mut [Zone], zone: u32) -> io::Result<()> {
        let Zoning { max_active, max_open, .. } = self.description.zoning;
        let count = |counts: fn(&Zone) -> bool| zones.iter().filter(|zone| counts(zone)).count() as u32;
        let active = count(|zone| zone.condition.is_active());
        if zones[zone as usize].condition == Condition::Empty && max_active > 0 && active >= max_active {
            return Err(self.refuse(format!("{active} zones are active, which is as many as may be")));
        }
        if zones[zone as usize].condition != Condition::Open
            && max_open > 0
            && count(|zone| zone.condition == Condition::Open) >= max_open
            && let Some(other) = zones.iter().position(|zone| zone.condition == Condition::Open)
        {
            self.set(zones, other as u32, |zone| zone.condition = Condition::Closed)?;
        }
        self.set(zones, zone, |zone| zone.condition = Condition::Open)
    }
}

impl ZonedDevice for ZoneFile {
    fn description(&self) -> String {
        self.disk.description()
    }

    fn notes(&self) -> &[String] {
        Disk::notes(&self.disk)
    }

    fn let_go(&self) -> io::Result<()> {
        Disk::let_go(&self.disk)
    }

    fn zones(&self) -> u32 {
        self.description.zones
    }

    fn capacity(&self) -> u64 {
        self.description.zoning.capacity
    }

    fn limits(&self) -> Limits {
        let limit = |limit: u32| (limit > 0).then_some(limit);
        let Zoning { max_active, max_open, .. } = self.description.zoning;
        Limits { max_active: limit(max_active), max_open: limit(max_open) }
    }

    fn report(&self, first: u32, count: u32) -> io::Result<Vec<Zone>> {
        Ok(self.lock()[first as usize..][..count as usize].to_vec())
    }

    fn read(&self, zone: u32, buffers: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<()> {
        if self.lock()[zone as usize].condition == Condition::Offline {
            return Err(io::Error::other("the zone is offline"));
        }
        self.disk.read_vectored_at(buffers, self.address(zone, offset))
    }

    fn write(&self, zone: u32, buffers: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        let length: u64 = buffers.iter().map(|buffer| buffer.len() as u64).sum();
        let end = offset + length;
        let mut zones = self.lock();
        let Zone { condition, written } = zones[zone as usize];
        if condition.has_failed() {
            return Err(io::Error::other("the zone has failed"));
        }
        if condition == Condition::Full || offset != written || end > self.capacity() {
            return Err(self.refuse(format!(
                "a write of {length} bytes at {offset}, where the write pointer is at {written} and the zone is {condition:?}"
            )));
        }
        self.open_zone(&mut zones, zone)?;
        // Others may write other zones meanwhile.
        drop(zones);
        self.disk.write_vectored_at(buffers, self.address(zone, offset))?;
        let is_full = end == self.capacity();
        self.set(&mut self.lock(), zone, |zone| {
            zone.written = end;
            if is_full {
                zone.condition = Condition::Full;
            }
        })
    }

    fn reset(&self, zone: u32) -> io::Result<()> {
        let mut zones = self.lock();
        if zones[zone as usize].condition.has_failed() {
            return Err(io::Error::other("the zone has failed"));
        }
        self.set(&mut zones, zone, |zone| *zone = Zone { condition: Condition::Empty, written: 0 })
    }

    fn finish(&self, zone: u32) -> io::Result<()> {
        let mut zones = self.lock();
        let Zone { condition, written } = zones[zone as usize];
        if condition.has_failed() {
            return Err(io::Error::other("the zone has failed"));
        }
        let capacity = self.capacity();
        self.disk.zero(self.address(zone, written), capacity - written, true)?;
        self.set(&mut zones, zone, |zone| *zone = Zone { condition: Condition::Full, written: capacity })
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.sync()
    }
}
