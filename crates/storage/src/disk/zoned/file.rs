//! A regular file that behaves like a zoned device, for users without such a device and for tests. Writes are only
//! possible at write pointers. The capacity of a zone may be less than its size, and the number of zones being written
//! may be limited.
//!
//! The file begins with its own description, see `table.rs`. After a power failure, the file system may have kept a
//! write pointer but lost the data before it. A cache detects that by its checksums, as on any file.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::time::Mutex;

use super::super::Disk;
use super::super::file::{Allocation, FileDisk, Options};
use super::table::{NewTable, ReadTable, ZoneTable};
use super::zoning::Zoning;
use super::{Condition, Limits, Zone, ZonedDevice};
/// An open file with zones.
#[derive(Debug)]
pub struct ZoneFile {
    disk: FileDisk,
    table: ZoneTable,
    /// Notes of the file, and about damage in its table.
    notes: Vec<String>,
    zones: Mutex<Vec<Zone>>,
    refusals: AtomicU64,
}

impl ZoneFile {
    /// Creates a file with as many zones as fit into `size` bytes. Removes the file on failure.
    pub fn create(path: &Path, size: u64, zoning: Zoning, options: Options) -> io::Result<ZoneFile> {
        let plan = NewTable::new(size, zoning);
        let disk = FileDisk::create(path, plan.file_bytes(), Allocation::Full, options)?;
        let table = File::options().write(true).open(path).and_then(|file| ZoneTable::create(file, plan));
        let opened = table.and_then(|()| ZoneFile::open(disk));
        if opened.is_err() {
            // The first error is reported.
            let _ = std::fs::remove_file(path);
        }
        opened
    }

    /// Reads the layout and the write pointers of a file. Zones that were open become closed.
    pub(super) fn open(disk: FileDisk) -> io::Result<ZoneFile> {
        let can_write = !disk.is_read_only();
        let file = File::options().read(true).write(can_write).open(disk.path())?;
        let ReadTable { table, mut zones, note } = ZoneTable::open(file, disk.size(), can_write)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", disk.path().display())))?;
        for zone in zones.iter_mut().filter(|zone| zone.condition == Condition::Open) {
            zone.condition = Condition::Closed;
        }
        let notes = Disk::notes(&disk).iter().cloned().chain(note).collect();
        Ok(ZoneFile { disk, table, notes, zones: Mutex::new(zones), refusals: AtomicU64::new(0) })
    }

    /// Number of operations that a zoned device refuses: writes away from the write pointer, or to too many zones.
    pub fn refusals(&self) -> u64 {
        self.refusals.load(Ordering::Relaxed)
    }

    /// Makes a zone fail, as a device may do.
    pub fn fail(&self, zone: u32, condition: Condition) -> io::Result<()> {
        let mut zones = self.zones.lock();
        self.set(&mut zones, zone, |zone| zone.condition = condition)
    }

    fn set(&self, zones: &mut [Zone], zone: u32, change: impl FnOnce(&mut Zone)) -> io::Result<()> {
        let mut changed = zones[zone as usize];
        change(&mut changed);
        self.table.set(zone, changed)?;
        zones[zone as usize] = changed;
        Ok(())
    }

    fn refuse(&self, what: String) -> io::Error {
        self.refusals.fetch_add(1, Ordering::Relaxed);
        io::Error::new(io::ErrorKind::InvalidInput, what)
    }

    fn address(&self, zone: u32, offset: u64) -> u64 {
        self.table.data() + u64::from(zone) * self.table.zoning().size + offset
    }

    /// Opens a zone for a write, if the limits allow it. Closes another zone if too many are open.
    fn open_zone(&self, zones: &mut [Zone], zone: u32) -> io::Result<()> {
        let Zoning { max_active, max_open, .. } = *self.table.zoning();
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
        &self.notes
    }

    fn let_go(&self) -> io::Result<()> {
        Disk::let_go(&self.disk)
    }

    fn zones(&self) -> u32 {
        self.table.zones()
    }

    fn capacity(&self) -> u64 {
        self.table.zoning().capacity
    }

    fn limits(&self) -> Limits {
        let limit = |limit: u32| (limit > 0).then_some(limit);
        let Zoning { max_active, max_open, .. } = *self.table.zoning();
        Limits { max_active: limit(max_active), max_open: limit(max_open) }
    }

    fn report(&self, first: u32, count: u32) -> io::Result<Vec<Zone>> {
        Ok(self.zones.lock()[first as usize..][..count as usize].to_vec())
    }

    fn read(&self, zone: u32, buffers: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<()> {
        if self.zones.lock()[zone as usize].condition == Condition::Offline {
            return Err(io::Error::other("the zone is offline"));
        }
        self.disk.read_vectored_at(buffers, self.address(zone, offset))
    }

    fn write(&self, zone: u32, buffers: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        let length: u64 = buffers.iter().map(|buffer| buffer.len() as u64).sum();
        let end = offset + length;
        let mut zones = self.zones.lock();
        let Zone { condition, written } = zones[zone as usize];
        if condition.has_failed() {
            return Err(io::Error::other("the zone has failed"));
        }
        if condition == Condition::Full || offset != written || end > self.capacity() {
            return Err(self.refuse(format!(
                "a write of {length} bytes at {offset}, where the write pointer is at {written} and the zone is \
                 {condition:?}"
            )));
        }
        self.open_zone(&mut zones, zone)?;
        // Other zones may be written meanwhile.
        drop(zones);
        self.disk.write_vectored_at(buffers, self.address(zone, offset))?;
        let is_full = end == self.capacity();
        self.set(&mut self.zones.lock(), zone, |zone| {
            zone.written = end;
            if is_full {
                zone.condition = Condition::Full;
            }
        })
    }

    fn reset(&self, zone: u32) -> io::Result<()> {
        let mut zones = self.zones.lock();
        if zones[zone as usize].condition.has_failed() {
            return Err(io::Error::other("the zone has failed"));
        }
        self.set(&mut zones, zone, |zone| *zone = Zone { condition: Condition::Empty, written: 0 })
    }

    fn finish(&self, zone: u32) -> io::Result<()> {
        let mut zones = self.zones.lock();
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
