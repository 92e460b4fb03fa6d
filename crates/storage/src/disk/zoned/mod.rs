//! Zoned flash: devices whose zones are written sequentially at a write pointer, and reset as a whole.
//!
//! | file | holds |
//! | --- | --- |
//! | `mod.rs` | the interface of zoned devices, and how they are opened |
//! | `flash.rs` | a zoned device as the disk of a cache |
//! | `superblocks.rs` | its superblocks |
//! | `device.rs` | zoned block devices: SSDs with zoned namespaces, null_blk |
//! | `zonefs.rs` | the file system zonefs, which has a file for each zone |
//! | `file.rs` | a regular file that behaves like a zoned device |
//!
//! Source: NVMe Zoned Namespace Command Set Specification, revision 1.1, for states, limits and the effects of a power
//! failure; zoned block devices in the kernel's documentation.

mod device;
pub mod file;
mod flash;
mod superblocks;
mod table;
mod zonefs;
pub mod zoning;

use std::io::{self, IoSlice, IoSliceMut};
use std::path::Path;
use std::sync::Arc;

use self::file::ZoneFile;
pub use self::flash::{Use, ZonedFlash};
use super::Disk;
use super::file::{FileDisk, Options};

/// The condition of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Nothing was written since the last reset.
    Empty,
    /// It is being written.
    Open,
    /// It is partly written, and not being written.
    Closed,
    /// It must be reset before it can be written.
    Full,
    /// It can be read, but never written or reset again.
    ReadOnly,
    /// It can be neither read nor written.
    Offline,
}

impl Condition {
    /// True if it takes resources of the device, which may be limited.
    pub fn is_active(self) -> bool {
        matches!(self, Condition::Open | Condition::Closed)
    }

    /// True if it failed permanently.
    pub fn has_failed(self) -> bool {
        matches!(self, Condition::ReadOnly | Condition::Offline)
    }
}

/// A zone as reported by the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Its condition.
    pub condition: Condition,
    /// Number of bytes before the write pointer; the capacity if it is full.
    pub written: u64,
}

/// The limits of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of open and closed zones, if limited.
    pub max_active: Option<u32>,
    /// Maximum number of open zones, if limited.
    pub max_open: Option<u32>,
}

/// A zoned device. Zones are numbered from 0 and must be written in order. Offsets are in bytes from the start of a
/// zone.
pub trait ZonedDevice: Send + Sync {
    /// The name in error messages: a path.
    fn description(&self) -> String;

    /// Notes for users.
    fn notes(&self) -> &[String] {
        &[]
    }

    /// Number of zones.
    fn zones(&self) -> u32;

    /// Number of bytes that fit into each zone, a multiple of [`ALIGNMENT`](super::ALIGNMENT). Its address range may be
    /// larger.
    fn capacity(&self) -> u64;

    /// The limits.
    fn limits(&self) -> Limits;

    /// Returns the current state of `count` zones from `first` on.
    fn report(&self, first: u32, count: u32) -> io::Result<Vec<Zone>>;

    /// Fills `buffers` from `offset`, before the write pointer.
    fn read(&self, zone: u32, buffers: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<()>;

    /// Writes `buffers` at the write pointer, which must be `offset`. After a failure, only a report shows how much was
    /// written.
    fn write(&self, zone: u32, buffers: &mut [IoSlice<'_>], offset: u64) -> io::Result<()>;

    /// Resets a zone.
    fn reset(&self, zone: u32) -> io::Result<()>;

    /// Makes a zone full, regardless of its write pointer.
    fn finish(&self, zone: u32) -> io::Result<()>;

    /// Makes durable all writes, resets and finishes that have returned.
    fn sync(&self) -> io::Result<()>;

    /// Like [`Disk::let_go`].
    fn let_go(&self) -> io::Result<()> {
        Ok(())
    }
}

/// True if a path is a zoned block device, a zonefs, or a file with zones.
pub fn may_have_zones(path: &Path) -> bool {
    device::is_zoned(path) || zonefs::is_at(path) || table::is_at(path)
}

/// Opens the disk of a cache: a zoned block device, a zonefs, a file with zones, or any other block device or regular
/// file. A zonefs is given by its mount point.
pub fn open_flash(path: &Path, options: Options) -> io::Result<Arc<dyn Disk>> {
    if device::is_zoned(path) {
        return Ok(Arc::new(ZonedFlash::new(Box::new(device::ZonedBlockDevice::open(path, options)?))?));
    }
    if zonefs::is_at(path) {
        return Ok(Arc::new(ZonedFlash::new(Box::new(zonefs::Zonefs::open(path, options)?))?));
    }
    let disk = FileDisk::open(path, options)?;
    if table::is_at(path) {
        return Ok(Arc::new(ZonedFlash::new(Box::new(ZoneFile::open(disk)?))?));
    }
    Ok(Arc::new(disk))
}
