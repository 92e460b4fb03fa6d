//! zonefs: a file system with a file `seq/NUMBER` for each zone. The length of a file is the number of bytes written to
//! the zone.
//!
//! Files are written only at their end. Truncating one to zero resets its zone; truncating it to its maximum finishes
//! the zone. Files are opened for each transfer, because there may be more zones than open files are allowed. On a
//! mount with `explicit-open`, a file that is open for writing is also an open zone.
//!
//! Source: zonefs in the kernel's documentation of file systems.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, fdatasync, ftruncate, openat, statat, statfs};

use super::super::ALIGNMENT;
use super::super::device::{queue_number, sysfs};
use super::super::file::{Options, lock, named, read_exactly, write_exactly};
use super::{Condition, Limits, Zone, ZonedDevice};

/// The type of a zonefs in statfs(2).
const MAGIC: u64 = 0x5A4F_4653;
/// The directory of the zones that must be written in order.
const SEQUENTIAL: &str = "seq";
/// The unit of stat(2).
const SECTOR: u64 = 512;

/// True if `path` is the mount point of a zonefs, or a directory in it.
pub(super) fn is_at(path: &Path) -> bool {
    path.is_dir() && statfs(path).is_ok_and(|found| found.f_type as u64 == MAGIC)
}

/// The zones of a zonefs that must be written in order. Other zones are not used.
#[derive(Debug)]
pub(super) struct Zonefs {
    path: PathBuf,
    directory: File,
    zones: u32,
    capacity: u64,
    limits: Limits,
}

impl Zonefs {
    /// Opens, locks and examines the zonefs mounted at `path`.
    pub(super) fn open(path: &Path, options: Options) -> io::Result<Zonefs> {
        let folder = path.join(SEQUENTIAL);
        if !folder.is_dir() {
            let expected = "expected the directory that a zonefs with zones that are written in order is mounted on";
            let message = format!("{}: found no directory '{SEQUENTIAL}' in it, {expected}", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let directory = File::open(&folder).map_err(|error| named(path, "cannot be opened", error))?;
        lock(&directory, path, options.read_only)?;
        let device = sysfs(directory.metadata()?.dev());
        let limit = |name| queue_number(&device, name).filter(|limit| *limit > 0).map(|limit| limit as u32);
        let limits = Limits { max_active: limit("max_active_zones"), max_open: limit("max_open_zones") };
        let zones = std::fs::read_dir(&folder)?.count() as u32;
        let mut found = Zonefs { path: path.to_owned(), directory, zones, capacity: 0, limits };
        let mut capacities = (0..zones).map(|zone| found.holds(zone)).collect::<io::Result<Vec<u64>>>()?;
        // The last zone may be shorter.
        let first = capacities.first().copied();
        capacities.pop_if(|last| Some(*last) < first);
        found.zones = capacities.len() as u32;
        found.capacity = capacities.into_iter().min().unwrap_or(0) / ALIGNMENT as u64 * ALIGNMENT as u64;
        Ok(found)
    }

    /// Returns the capacity of a zone in bytes.
    fn holds(&self, zone: u32) -> io::Result<u64> {
        let about = statat(&self.directory, zone.to_string(), AtFlags::empty());
        Ok(about.map_err(|error| named(&self.path, &format!("zone {zone}"), error.into()))?.st_blocks as u64 * SECTOR)
    }

    fn file(&self, zone: u32, flags: OFlags) -> io::Result<File> {
        Ok(openat(&self.directory, zone.to_string(), flags | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty())?.into())
    }

    fn truncate(&self, zone: u32, length: u64) -> io::Result<()> {
        Ok(ftruncate(self.file(zone, OFlags::WRONLY)?, length)?)
    }
}

/// Derives the state of a zone from the length and the mode of its file. A failed zone is not writable, or not readable
/// either.
fn zone(mode: u32, length: u64, capacity: u64) -> Zone {
    let condition = match length {
        _ if mode & 0o777 == 0 => return Zone { condition: Condition::Offline, written: capacity },
        _ if mode & 0o222 == 0 => Condition::ReadOnly,
        0 => Condition::Empty,
        // It may be open as well, which matters only to the kernel.
        _ if length < capacity => Condition::Closed,
        _ => Condition::Full,
    };
    Zone { condition, written: length.min(capacity) }
}

impl ZonedDevice for Zonefs {
    fn description(&self) -> String {
        self.path.display().to_string()
    }

    fn zones(&self) -> u32 {
        self.zones
    }

    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn report(&self, first: u32, count: u32) -> io::Result<Vec<Zone>> {
        let report = |number: u32| {
            let about = statat(&self.directory, number.to_string(), AtFlags::empty())?;
            Ok(zone(about.st_mode, about.st_size as u64, self.capacity))
        };
        (first..first + count).map(report).collect()
    }

    fn read(&self, zone: u32, buffers: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<()> {
        read_exactly(&self.file(zone, OFlags::RDONLY)?, &self.path, self.capacity, buffers, offset)
    }

    fn write(&self, zone: u32, buffers: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        write_exactly(&self.file(zone, OFlags::WRONLY)?, &self.path, buffers, offset)
    }

    fn reset(&self, zone: u32) -> io::Result<()> {
        self.truncate(zone, 0)
    }

    fn finish(&self, zone: u32) -> io::Result<()> {
        self.truncate(zone, self.holds(zone)?)
    }

    /// Flushes the device through the first zone that has not failed; the kernel refuses a flush through failed ones.
    fn sync(&self) -> io::Result<()> {
        let mut refused = io::Error::from(io::ErrorKind::PermissionDenied);
        for zone in 0..self.zones {
            match self.file(zone, OFlags::RDONLY).and_then(|file| Ok(fdatasync(file)?)) {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => refused = error,
                synced => return synced.map_err(|error| named(&self.path, "syncing", error)),
            }
        }
        Err(named(&self.path, "syncing", refused))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_tells_the_condition_of_its_zone_by_length_and_mode() {
        let found = |mode: u32, length| zone(0o100_000 | mode, length, 8192);
        for (length, condition) in [(0, Condition::Empty), (4096, Condition::Closed), (8192, Condition::Full)] {
            assert_eq!(found(0o640, length), Zone { condition, written: length });
        }
        assert_eq!(found(0o440, 4096), Zone { condition: Condition::ReadOnly, written: 4096 });
        assert_eq!(found(0, 0), Zone { condition: Condition::Offline, written: 8192 });
    }

    #[test]
    fn a_directory_of_another_file_system_is_none() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join(SEQUENTIAL)).unwrap();
        assert!(!is_at(folder.path()));
    }
}
