//! Zoned flash: devices whose zones are written front to back, each at its write pointer, and reset whole.
//!
//! | file | holds |
//! | --- | --- |
//! | `mod.rs` | what a zoned device is, and what opens one |
//! | `flash.rs` | a zoned device as the disk that a cache lives on |
//! | `superblocks.rs` | where its superblocks are |
//! | `device.rs` | block devices with zones: SSDs with zoned namespaces, null_blk |
//! | `zonefs.rs` | the file system zonefs, which shows each zone as a file |
//! | `file.rs` | a regular file that behaves like one |
//!
//! Source: NVMe Zoned Namespace Command Set Specification, revision 1.1, for states, limits and what a power failure leaves; zoned
//! block devices in the kernel's documentation.

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

/// What state a zone is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Nothing was written since it was reset.
    Empty,
    /// It is being written.
    Open,
    /// It was written in part, and is not being written.
    Closed,
    /// Nothing more can be written before it is reset.
    Full,
    /// It can be read, and never be written or reset again.
    ReadOnly,
    /// It can neither be read nor written.
    Offline,
}

impl Condition {
    /// True if the device keeps resources for it, of which there may be few.
    pub fn is_active(self) -> bool {
        matches!(self, Condition::Open | Condition::Closed)
    }

    /// True if it failed for good.
    pub fn has_failed(self) -> bool {
        matches!(self, Condition::ReadOnly | Condition::Offline)
    }
}

/// A zone, as the device reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// What state it is in.
    pub condition: Condition,
    /// Bytes before its write pointer; its capacity where it is full.
    pub written: u64,
}

/// What a device allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// How many zones may be open or closed at a time, where that is limited.
    pub max_active: Option<u32>,
    /// How many zones may be open at a time, where that is limited.
    pub max_open: Option<u32>,
}

/// A device with zones, which are numbered from 0 and must be written in order. Offsets are in bytes from the start of a zone.
pub trait ZonedDevice: Send + Sync {
    /// What it is, for error messages: a path.
    fn description(&self) -> String;

    /// Remarks, lines for people.
    fn notes(&self) -> &[String] {
        &[]
    }

    /// Number of zones.
    fn zones(&self) -> u32;

    /// Bytes that can be written to each zone, a multiple of [`ALIGNMENT`](super::ALIGNMENT). Its addresses may span more.
    fn capacity(&self) -> u64;

    /// What it allows.
    fn limits(&self) -> Limits;

    /// The `count` zones from `first` on, as they are now.
    fn report(&self, first: u32, count: u32) -> io::Result<Vec<Zone>>;

    /// Fills `buffers` from before the write pointer.
    fn read(&self, zone: u32, buffers: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<()>;

    /// Writes `buffers` at the write pointer, which is `offset`. What is written of them if this fails, only a report tells.
    fn write(&self, zone: u32, buffers: &mut [IoSlice<'_>], offset: u64) -> io::Result<()>;

    /// Empties a zone.
    fn reset(&self, zone: u32) -> io::Result<()>;

    /// Makes a zone full, whatever was written to it.
    fn finish(&self, zone: u32) -> io::Result<()>;

    /// Makes durable all writes, resets and finishes that have returned.
    fn sync(&self) -> io::Result<()>;

    /// As [`Disk::let_go`].
    fn let_go(&self) -> io::Result<()> {
        Ok(())
    }
}

/// True if what is at a path has zones: a block device, a zonefs, or a file that was made so.
pub fn may_have_zones(path: &Path) -> bool {
    device::is_zoned(path) || zonefs::is_at(path) || table::is_at(path)
}

/// Opens what a cache lives on: a zoned block device, a zonefs by the directory that it is mounted on, a file that behaves like one, or any other block device or regular file.
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
