//! Zoned block devices by ioctl(2): linux/blkzoned.h and the kernel's documentation of zoned block devices.
#![allow(unsafe_code)]

use std::io::{self, IoSlice, IoSliceMut};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::ioctl::{Opcode, Setter, Updater, opcode};

use super::super::device::{is_zoned as must_be_written_in_order, queue_number, sysfs};
use super::super::file::{FileDisk, Options, PageCache};
use super::super::{ALIGNMENT, Disk};
use super::{Condition, Limits, Zone, ZonedDevice};

/// The kernel's unit, regardless of the device's sectors.
const SECTOR: u64 = 512;
/// Number of zones in one report.
const REPORTED: usize = 128;

/// `struct blk_zone`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct BlkZone {
    start: u64,
    len: u64,
    wp: u64,
    kind: u8,
    cond: u8,
    non_seq: u8,
    reset: u8,
    reserved: [u8; 4],
    capacity: u64,
    reserved_too: [u8; 24],
}

/// `struct blk_zone_report`, without the zones that follow.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct ReportHeader {
    sector: u64,
    zones: u32,
    flags: u32,
}

#[repr(C)]
struct Report {
    header: ReportHeader,
    zones: [BlkZone; REPORTED],
}

/// `struct blk_zone_range`: first sector, number of sectors.
type Range = [u64; 2];

const BLKREPORTZONE: Opcode = opcode::read_write::<ReportHeader>(0x12, 130);
const BLKRESETZONE: Opcode = opcode::write::<Range>(0x12, 131);
const BLKFINISHZONE: Opcode = opcode::write::<Range>(0x12, 136);
/// The report has capacities (`BLK_ZONE_REP_CAPACITY`), since Linux 5.9.
const HAS_CAPACITY: u32 = 1;
/// The zone must be written in order (`BLK_ZONE_TYPE_SEQWRITE_REQ`).
const SEQUENTIAL: u8 = 2;

const _: () = assert!(size_of::<BlkZone>() == 64 && size_of::<ReportHeader>() == 16);

/// True if `path` is a device that must be written in order.
pub(super) fn is_zoned(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| {
        metadata.file_type().is_block_device() && must_be_written_in_order(&sysfs(metadata.rdev()))
    })
}

/// The zones of a block device that must be written in order. Other zones are not used.
#[derive(Debug)]
pub(super) struct ZonedBlockDevice {
    disk: FileDisk,
    /// The first sector of each zone. All zones have the same length.
    starts: Vec<u64>,
    sectors: u64,
    capacity: u64,
    limits: Limits,
}

impl ZonedBlockDevice {
    /// Opens, locks and examines a device.
    pub(super) fn open(path: &Path, options: Options) -> io::Result<ZonedBlockDevice> {
        // The page cache does not preserve the order of writes.
        let disk = FileDisk::open_for(path, Options { page_cache: PageCache::Avoid, ..options }, true)?;
        let refuse = |what: String| io::Error::new(io::ErrorKind::InvalidInput, format!("{}: {what}", path.display()));
        let folder = sysfs(disk.file().metadata()?.rdev());
        let limit = |name| queue_number(&folder, name).filter(|limit| *limit > 0).map(|limit| limit as u32);
        let limits = Limits { max_active: limit("max_active_zones"), max_open: limit("max_open_zones") };
        if let Some(granularity) = queue_number(&folder, "zone_write_granularity")
            && granularity > ALIGNMENT as u64
        {
            return Err(refuse(format!(
                "its zones have a write granularity of {granularity} bytes, expected at most {ALIGNMENT}"
            )));
        }
        let mut zones = Vec::new();
        let mut sector = 0;
        while sector * SECTOR < disk.size() {
            let found = report(&disk, sector, REPORTED)?;
            let Some(last) = found.last() else { break };
            sector = last.start + last.len;
            zones.extend(found.into_iter().filter(|zone| zone.kind == SEQUENTIAL));
        }
        let Some(sectors) = zones.first().map(|zone| zone.len) else {
            return Err(refuse("it has no zones that are written in order".to_owned()));
        };
        // The last zone may be shorter.
        zones.retain(|zone| zone.len == sectors);
        let capacity = zones.iter().map(|zone| zone.capacity).min().unwrap_or(0) * SECTOR / ALIGNMENT as u64;
        let starts = zones.iter().map(|zone| zone.start).collect();
        Ok(ZonedBlockDevice { disk, starts, sectors, capacity: capacity * ALIGNMENT as u64, limits })
    }

    fn path(&self) -> PathBuf {
        self.disk.path().to_owned()
    }

    fn address(&self, zone: u32, offset: u64) -> u64 {
        self.starts[zone as usize] * SECTOR + offset
    }

    fn range(&self, zone: u32) -> Range {
        [self.starts[zone as usize], self.sectors]
    }
}

fn report(disk: &FileDisk, sector: u64, count: usize) -> io::Result<Vec<BlkZone>> {
    let header = ReportHeader { sector, zones: count.min(REPORTED) as u32, flags: 0 };
    let mut report = Box::new(Report { header, zones: [BlkZone::default(); REPORTED] });
    // SAFETY: the kernel reads the header. It writes the header and at most as many zones as the header asks for, which
    // the array has.
    let asked = unsafe { rustix::ioctl::ioctl(disk.file(), Updater::<BLKREPORTZONE, Report>::new(&mut report)) };
    asked.map_err(|error| {
        let error = io::Error::from(error);
        io::Error::new(error.kind(), format!("{}: reporting zones: {error}", disk.path().display()))
    })?;
    let told = report.header.flags & HAS_CAPACITY != 0;
    let zones = report.zones.iter().take(report.header.zones as usize);
    Ok(zones.map(|zone| BlkZone { capacity: if told { zone.capacity } else { zone.len }, ..*zone }).collect())
}

/// Converts a zone of the kernel's report. `capacity` is the number of used bytes.
fn zone(found: &BlkZone, capacity: u64) -> io::Result<Zone> {
    let condition = match found.cond {
        1 => Condition::Empty,
        2 | 3 => Condition::Open,
        4 => Condition::Closed,
        0xD => Condition::ReadOnly,
        0xE => Condition::Full,
        0xF => Condition::Offline,
        other => return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a zone has condition {other}"))),
    };
    let written = match condition {
        Condition::Empty => 0,
        // The write pointer is invalid in these conditions.
        Condition::Full | Condition::ReadOnly | Condition::Offline => capacity,
        Condition::Open | Condition::Closed => (found.wp.saturating_sub(found.start) * SECTOR).min(capacity),
    };
    Ok(Zone { condition, written })
}

impl ZonedDevice for ZonedBlockDevice {
    fn description(&self) -> String {
        self.path().display().to_string()
    }

    fn notes(&self) -> &[String] {
        self.disk.notes()
    }

    fn let_go(&self) -> io::Result<()> {
        Disk::let_go(&self.disk)
    }

    fn zones(&self) -> u32 {
        self.starts.len() as u32
    }

    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn report(&self, first: u32, count: u32) -> io::Result<Vec<Zone>> {
        let mut zones = Vec::with_capacity(count as usize);
        while zones.len() < count as usize {
            let next = first as usize + zones.len();
            let found = report(&self.disk, self.starts[next], count as usize - zones.len())?;
            let wanted = self.starts[next..].iter().zip(&found).take_while(|(start, found)| **start == found.start);
            let before = zones.len();
            for (_, found) in wanted {
                zones.push(zone(found, self.capacity)?);
            }
            if zones.len() == before {
                let what = format!("{}: zone {next} is not reported any more", self.path().display());
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
        }
        Ok(zones)
    }

    fn read(&self, zone: u32, buffers: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<()> {
        self.disk.read_vectored_at(buffers, self.address(zone, offset))
    }

    fn write(&self, zone: u32, buffers: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.disk.write_vectored_at(buffers, self.address(zone, offset))
    }

    fn reset(&self, zone: u32) -> io::Result<()> {
        // SAFETY: the kernel reads two 64-bit numbers from the argument and writes nothing to it.
        Ok(unsafe { rustix::ioctl::ioctl(self.disk.file(), Setter::<BLKRESETZONE, Range>::new(self.range(zone))) }?)
    }

    fn finish(&self, zone: u32) -> io::Result<()> {
        // SAFETY: the kernel reads two 64-bit numbers from the argument and writes nothing to it.
        Ok(unsafe { rustix::ioctl::ioctl(self.disk.file(), Setter::<BLKFINISHZONE, Range>::new(self.range(zone))) }?)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.sync()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of linux/blkzoned.h, printed by a C program on x86-64.
    #[test]
    fn requests_have_the_numbers_of_the_kernel() {
        assert_eq!([BLKREPORTZONE, BLKRESETZONE, BLKFINISHZONE], [0xC010_1282, 0x4010_1283, 0x4010_1288]);
    }

    #[test]
    fn a_zone_that_is_full_or_failed_has_no_write_pointer() {
        let found = |cond, wp| zone(&BlkZone { start: 8192, len: 8192, wp, cond, ..BlkZone::default() }, 1 << 20);
        assert_eq!(found(1, 8192).unwrap(), Zone { condition: Condition::Empty, written: 0 });
        assert_eq!(found(2, 8195).unwrap(), Zone { condition: Condition::Open, written: 1536 });
        assert_eq!(found(4, 8200).unwrap(), Zone { condition: Condition::Closed, written: 4096 });
        for (cond, condition) in [(0xD, Condition::ReadOnly), (0xE, Condition::Full), (0xF, Condition::Offline)] {
            assert_eq!(found(cond, u64::MAX).unwrap(), Zone { condition, written: 1 << 20 });
        }
        assert!(found(7, 0).is_err());
    }
}
