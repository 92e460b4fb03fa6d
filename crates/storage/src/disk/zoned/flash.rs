//! A zoned device as the disk of a cache.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::time::{Mutex, MutexGuard};
use flashwise_core::format::{BLOCK_BYTES, Geometry};

use super::super::{ALIGNMENT, Disk};
use super::{Condition, Zone, ZonedDevice};

/// The first zone of the log. The zones before it hold superblocks.
pub(super) const LOG_ZONE: u32 = 2;

/// Minimum number of active zones: one of the superblocks, one of the log, and the previous one of the log. A power
/// failure may have undone the end of the latter.
const ACTIVE_MIN: u32 = 3;
/// Minimum number of open zones.
const OPEN_MIN: u32 = 2;

/// Zeroes for padding.
#[repr(align(4096))]
struct Zeroes([u8; 64 << 10]);
static ZEROES: Zeroes = Zeroes([0; 64 << 10]);

/// The state of a zone. No two transfers change it concurrently.
#[derive(Debug)]
pub(super) struct ZoneState {
    zone: Zone,
    /// The offset of a failed write, which may be retried.
    failed_at: Option<u64>,
}

#[derive(Debug)]
struct Slot {
    state: Mutex<ZoneState>,
    /// Readable bytes, without those of a write in progress.
    written: AtomicU64,
}

/// A zoned device whose zones are the units of a log. Addresses that zones leave unused are skipped.
///
/// Superblocks alternate between the first two zones, and unit 0, which holds the superblock on other disks, cannot be
/// accessed. Unit 1 is the third zone. A unit is written at its write pointer; skipped pages are filled with zeroes,
/// and unwritten pages read as zeroes. A write before the write pointer is an error unless it repeats a failed one.
/// Discarding a unit resets its zone. Only one zone of the log is open: it is finished when the next one begins, unless
/// [many](Self::write_many) are written.
pub struct ZonedFlash {
    pub(super) device: Box<dyn ZonedDevice>,
    zones: Vec<Slot>,
    /// The zone of the log that is being written.
    current: Mutex<Option<u32>>,
    /// True if many zones are written concurrently, so that none is finished when another begins.
    many: AtomicBool,
}

impl std::fmt::Debug for ZonedFlash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ZonedFlash").field("device", &self.device.description()).finish_non_exhaustive()
    }
}

/// The use of a unit when a cache is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// A full part of the log.
    Log,
    /// The part of the log that is written next.
    Head,
    /// One of several units that are written next.
    Open,
    /// Unused.
    None,
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

/// Rounds written bytes up to whole pages.
fn whole(written: u64) -> u64 {
    written.next_multiple_of(ALIGNMENT as u64)
}

impl ZonedFlash {
    /// Examines all zones. Fails if the device is unsuitable for a cache.
    pub fn new(device: Box<dyn ZonedDevice>) -> io::Result<ZonedFlash> {
        let refuse = |what: String| invalid(format!("{}: {what}", device.description()));
        let (zones, capacity, limits) = (device.zones(), device.capacity(), device.limits());
        let pages = capacity / BLOCK_BYTES as u64;
        let expected = u64::from(Geometry::UNIT_PAGES_MIN)..=u64::from(Geometry::UNIT_PAGES_MAX);
        if !expected.contains(&pages) {
            let block = BLOCK_BYTES as u64;
            let (min, max) = (expected.start() * block, expected.end() * block);
            return Err(refuse(format!("its zones hold {capacity} bytes each, expected from {min} to {max}")));
        }
        let zones_min = Geometry::UNITS_MIN + 1;
        if zones < zones_min || u64::from(zones) * pages > u64::from(u32::MAX) {
            return Err(refuse(format!(
                "it has {zones} zones that are written in order, expected at least {zones_min}, and less than 16 TiB \
                 in all"
            )));
        }
        for (what, found, min) in [("active", limits.max_active, ACTIVE_MIN), ("open", limits.max_open, OPEN_MIN)] {
            if let Some(found) = found.filter(|found| *found < min) {
                return Err(refuse(format!("at most {found} of its zones may be {what}, expected at least {min}")));
            }
        }
        let reported = device.report(0, zones)?;
        let slot = |&zone: &Zone| Slot {
            state: Mutex::new(ZoneState { zone, failed_at: None }),
            written: AtomicU64::new(zone.written),
        };
        let zones = reported.iter().map(slot).collect();
        Ok(ZonedFlash { device, zones, current: Mutex::new(None), many: AtomicBool::new(false) })
    }

    /// Allows to write many zones concurrently. The caller must observe the device's limits.
    pub fn write_many(&self) {
        self.many.store(true, Ordering::Release);
    }

    /// Maximum number of zones that can be written concurrently, besides those of superblocks; `None` if unlimited.
    pub fn written_max(&self) -> Option<u32> {
        let limits = self.device.limits();
        let most = [limits.max_active, limits.max_open].into_iter().flatten().min();
        most.map(|most| most.saturating_sub(1))
    }

    /// Reads the state of all zones again from the device.
    pub fn look_again(&self) -> io::Result<()> {
        self.current.lock().take();
        for (zone, found) in (0..).zip(self.device.report(0, self.device.zones())?) {
            let mut state = self.state(zone);
            state.failed_at = None;
            self.set(zone, &mut state, found);
        }
        Ok(())
    }

    /// Returns the geometry of the log.
    pub fn geometry(&self) -> Geometry {
        let unit_pages = (self.device.capacity() / BLOCK_BYTES as u64) as u32;
        Geometry { units: self.zones.len() as u32 + 1 - LOG_ZONE, unit_pages }
    }

    /// The device.
    pub fn device(&self) -> &dyn ZonedDevice {
        &*self.device
    }

    /// Returns the zones that failed permanently.
    pub fn failed_zones(&self) -> Vec<u32> {
        (0..self.zones.len() as u32).filter(|&zone| self.state(zone).zone.condition.has_failed()).collect()
    }

    /// Number of written pages of a unit. The last one may be incomplete.
    pub fn written_pages(&self, unit: u32) -> u32 {
        (whole(self.written(zone_of(unit))) / BLOCK_BYTES as u64) as u32
    }

    /// Prepares each unit for its use. Zones of the log are finished, the head is padded to a whole page, and unused
    /// zones are reset.
    pub fn prepare(&self, used: impl Fn(u32) -> Use) -> io::Result<()> {
        for unit in 1..self.geometry().units {
            let (zone, used) = (zone_of(unit), used(unit));
            if used == Use::Head {
                *self.current.lock() = Some(zone);
            }
            let mut state = self.state(zone);
            match used {
                Use::Log => self.finish(zone, &mut state)?,
                Use::Head => self.pad(zone, &mut state, whole)?,
                Use::Open => {}
                // The log detects a failed zone when it gets there.
                Use::None if state.zone.condition.has_failed() => {}
                Use::None => self.reset(zone, &mut state)?,
            }
        }
        Ok(())
    }

    /// Number of bytes written to a zone.
    pub(super) fn written(&self, zone: u32) -> u64 {
        self.zones[zone as usize].written.load(Ordering::Acquire)
    }

    fn set(&self, zone: u32, state: &mut ZoneState, found: Zone) {
        state.zone = found;
        self.zones[zone as usize].written.store(found.written, Ordering::Release);
    }

    pub(super) fn state(&self, zone: u32) -> MutexGuard<'_, ZoneState> {
        self.zones[zone as usize].state.lock()
    }

    fn failed(&self, zone: u32, doing: &str, error: io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{}: {doing} zone {zone}: {error}", self.device.description()))
    }

    /// Resets a zone that is not empty.
    pub(super) fn reset(&self, zone: u32, state: &mut ZoneState) -> io::Result<()> {
        if state.zone.condition != Condition::Empty {
            self.device.reset(zone).map_err(|error| self.failed(zone, "resetting", error))?;
            state.failed_at = None;
            self.set(zone, state, Zone { condition: Condition::Empty, written: 0 });
        }
        Ok(())
    }

    /// Finishes a zone that is active.
    fn finish(&self, zone: u32, state: &mut ZoneState) -> io::Result<()> {
        let Zone { condition, written } = state.zone;
        if !condition.is_active() {
            return Ok(());
        }
        if let Err(error) = self.device.finish(zone) {
            match self.device.report(zone, 1) {
                // A failed zone is not active.
                Ok(reported) if reported[0].condition.has_failed() => self.set(zone, state, reported[0]),
                _ => return Err(self.failed(zone, "finishing", error)),
            }
        } else {
            // Unwritten pages still read as zeroes.
            self.set(zone, state, Zone { condition: Condition::Full, written });
        }
        Ok(())
    }

    /// Pads a zone with zeroes up to `end` of the written bytes.
    pub(super) fn pad(&self, zone: u32, state: &mut ZoneState, end: impl Fn(u64) -> u64) -> io::Result<()> {
        let end = end(state.zone.written);
        while state.zone.written < end {
            let length = (end - state.zone.written).min(ZEROES.0.len() as u64);
            let at = state.zone.written;
            self.append(zone, state, &mut [IoSlice::new(&ZEROES.0[..length as usize])], at, length)?;
        }
        Ok(())
    }

    /// Writes at the write pointer. On failure, determines how much was written.
    pub(super) fn append(
        &self,
        zone: u32,
        state: &mut ZoneState,
        buffers: &mut [IoSlice<'_>],
        offset: u64,
        length: u64,
    ) -> io::Result<()> {
        let result = self.device.write(zone, buffers, offset);
        if result.is_ok() {
            let written = offset + length;
            let is_full = written >= self.device.capacity();
            let condition = if is_full { Condition::Full } else { Condition::Open };
            self.set(zone, state, Zone { condition, written });
        } else if let Ok(reported) = self.device.report(zone, 1) {
            self.set(zone, state, reported[0]);
        }
        result.map_err(|error| match state.zone.condition {
            Condition::ReadOnly => self.failed(zone, "it has failed and is read-only, writing", error),
            Condition::Offline => self.failed(zone, "it has failed and is offline, writing", error),
            _ => self.failed(zone, &format!("writing at {offset} of"), error),
        })
    }

    /// Writes a part of a unit.
    fn write_unit(&self, unit: u32, mut buffers: &mut [IoSlice<'_>], offset: u64, length: u64) -> io::Result<()> {
        let zone = zone_of(unit);
        let mut current = self.current.lock();
        let mut state = self.state(zone);
        if !self.many.load(Ordering::Acquire) {
            if let Some(before) = current.filter(|before| *before != zone) {
                self.finish(before, &mut self.state(before))?;
            }
            *current = Some(zone);
        }
        drop(current);
        // A failed write may have been written in part.
        let done = state.zone.written.saturating_sub(offset);
        if done > 0 {
            if state.failed_at != Some(offset) || done > length {
                return Err(invalid(format!(
                    "{}: a write at {offset} of zone {zone}, whose write pointer is at {}",
                    self.device.description(),
                    state.zone.written
                )));
            }
            IoSlice::advance_slices(&mut buffers, done as usize);
        }
        let result = self.pad(zone, &mut state, |_| offset).and_then(|()| match length - done {
            0 => Ok(()),
            left => self.append(zone, &mut state, buffers, offset + done, left),
        });
        state.failed_at = result.is_err().then_some(offset);
        result
    }

    /// Splits a range of the disk into units: unit, first byte in it, and number of bytes.
    fn pieces(&self, offset: u64, length: u64) -> io::Result<Vec<(u32, u64, u64)>> {
        let capacity = self.device.capacity();
        let end = offset + length;
        if offset < capacity || end > self.size() {
            let path = self.device.description();
            return Err(invalid(format!("{path}: {length} bytes at {offset} are not of the log's zones")));
        }
        let mut at = offset;
        let mut pieces = Vec::new();
        while at < end {
            let (unit, within) = ((at / capacity) as u32, at % capacity);
            let length = (capacity - within).min(end - at);
            pieces.push((unit, within, length));
            at += length;
        }
        Ok(pieces)
    }

    /// Reads from a zone. Bytes after the write pointer are zeroes.
    pub(super) fn read_zone(&self, zone: u32, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let written = self.written(zone).saturating_sub(offset).min(buffer.len() as u64) as usize;
        let (stored, rest) = buffer.split_at_mut(written);
        rest.fill(0);
        if stored.is_empty() {
            return Ok(());
        }
        let read = self.device.read(zone, &mut [IoSliceMut::new(stored)], offset);
        read.map_err(|error| self.failed(zone, &format!("reading at {offset} of"), error))
    }
}

/// Returns the zone of a unit of the log.
fn zone_of(unit: u32) -> u32 {
    unit - 1 + LOG_ZONE
}

impl Disk for ZonedFlash {
    fn size(&self) -> u64 {
        u64::from(self.geometry().units) * self.device.capacity()
    }

    fn description(&self) -> String {
        self.device.description()
    }

    fn notes(&self) -> &[String] {
        self.device.notes()
    }

    fn zoned(&self) -> Option<&ZonedFlash> {
        Some(self)
    }

    fn let_go(&self) -> io::Result<()> {
        self.device.let_go()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let mut rest = buffer;
        for (unit, within, length) in self.pieces(offset, rest.len() as u64)? {
            let (piece, behind) = rest.split_at_mut(length as usize);
            self.read_zone(zone_of(unit), piece, within)?;
            rest = behind;
        }
        Ok(())
    }

    fn read_vectored_at(&self, buffers: &mut [IoSliceMut<'_>], mut offset: u64) -> io::Result<()> {
        let length = buffers.iter().map(|buffer| buffer.len() as u64).sum();
        if let [(unit, within, _)] = self.pieces(offset, length)?[..]
            && within + length <= self.written(zone_of(unit))
        {
            let zone = zone_of(unit);
            let read = self.device.read(zone, buffers, within);
            return read.map_err(|error| self.failed(zone, &format!("reading at {within} of"), error));
        }
        for buffer in buffers {
            self.read_at(buffer, offset)?;
            offset += buffer.len() as u64;
        }
        Ok(())
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.write_vectored_at(&mut [IoSlice::new(buffer)], offset)
    }

    fn write_vectored_at(&self, buffers: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        let length = buffers.iter().map(|buffer| buffer.len() as u64).sum();
        match self.pieces(offset, length)?[..] {
            [] => Ok(()),
            [(unit, within, length)] => self.write_unit(unit, buffers, within, length),
            _ => Err(invalid(format!("{}: a write of {length} bytes at {offset} spans zones", self.description()))),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.device.sync()
    }

    fn zero(&self, _offset: u64, _length: u64, _may_punch_holes: bool) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, format!("{}: zones cannot be zeroed", self.description())))
    }

    /// Resets the zones of whole units. Ignores parts of units.
    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        for (unit, within, length) in self.pieces(offset, length)? {
            if (within, length) == (0, self.device.capacity()) {
                let zone = zone_of(unit);
                self.current.lock().take_if(|current| *current == zone);
                self.reset(zone, &mut self.state(zone))?;
            }
        }
        Ok(())
    }
}
