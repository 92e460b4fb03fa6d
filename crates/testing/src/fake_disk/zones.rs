//! Zones of a fake disk. They refuse everything that a zoned device refuses. After a power failure each zone keeps its
//! first changes.
//!
//! Zone 0 has the pages of unit 0 of the disk, zone 1 those behind its last unit. The others have those of the units
//! from 1 on.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::{Arc, Mutex};

use flashwise_core::format::{BLOCK_BYTES, Page};
use flashwise_storage::disk::zoned::{Condition, Limits, Zone, ZonedDevice};

use super::{Inner, Loss};
use crate::random::Random;

/// Maximum number of open or closed zones: the minimum for a cache, and one that a planted bug leaves open.
pub const ACTIVE_MIN: u32 = 4;

#[derive(Clone, Debug)]
enum Change {
    Append(u64, Vec<u8>),
    Reset,
    Finish,
}

#[derive(Clone, Debug)]
struct FakeZone {
    visible: Zone,
    stable: Zone,
    /// The changes since the last flush, with their numbers.
    volatile: Vec<(u64, Change)>,
}

#[derive(Clone, Debug)]
pub(super) struct FakeZones {
    zones: Vec<FakeZone>,
    pages: usize,
    /// Maximum number of open or closed zones.
    max_active: u32,
    /// Number of operations that a zoned device refuses.
    pub(super) refusals: u64,
}

const EMPTY: Zone = Zone { condition: Condition::Empty, written: 0 };

impl FakeZones {
    pub(super) fn new(units: u32, pages: usize, max_active: u32) -> FakeZones {
        let zone = FakeZone { visible: EMPTY, stable: EMPTY, volatile: Vec::new() };
        FakeZones { zones: vec![zone; units as usize + 1], pages, max_active, refusals: 0 }
    }

    pub(super) fn first_page(&self, zone: u32) -> usize {
        let unit = match zone {
            0 => 0,
            1 => self.zones.len() - 1,
            zone => zone as usize - 1,
        };
        unit * self.pages
    }

    fn capacity(&self) -> u64 {
        (self.pages * BLOCK_BYTES) as u64
    }

    fn apply(&self, zone: &mut Zone, first: usize, pages: &mut [Arc<Page>], change: &Change, sectors: usize) {
        match change {
            Change::Append(offset, bytes) => {
                let bytes = &bytes[..sectors * 512];
                for (at, sector) in (*offset as usize..).step_by(512).zip(bytes.chunks_exact(512)) {
                    let page = Arc::make_mut(&mut pages[first + at / BLOCK_BYTES]);
                    page[at % BLOCK_BYTES..][..512].copy_from_slice(sector);
                }
                zone.written = offset + bytes.len() as u64;
                zone.condition = if zone.written == self.capacity() { Condition::Full } else { Condition::Open };
            }
            Change::Reset => {
                *zone = EMPTY;
                pages[first..first + self.pages].fill(Arc::new([0; BLOCK_BYTES]));
            }
            Change::Finish => *zone = Zone { condition: Condition::Full, written: self.capacity() },
        }
    }

    /// Makes the first changes of each zone durable, up to a number.
    pub(super) fn sync_until(&mut self, number: u64, stable: &mut [Arc<Page>]) {
        for zone in 0..self.zones.len() as u32 {
            let covered = self.zones[zone as usize].volatile.partition_point(|(it, _)| *it <= number);
            self.keep(zone, covered, 0, stable);
        }
    }

    /// Makes the first changes of a zone durable, and some sectors of the next one if it is an append.
    fn keep(&mut self, zone: u32, changes: usize, sectors: usize, stable: &mut [Arc<Page>]) {
        let mut kept = self.zones[zone as usize].clone();
        let first = self.first_page(zone);
        for (number, (_, change)) in kept.volatile.iter().enumerate().take(changes + usize::from(sectors > 0)) {
            let whole = if let Change::Append(_, bytes) = change { bytes.len() / 512 } else { 0 };
            let sectors = if number < changes { whole } else { sectors };
            self.apply(&mut kept.stable, first, stable, change, sectors);
        }
        kept.volatile.drain(..changes);
        self.zones[zone as usize] = kept;
    }

    /// Simulates a power failure: each zone keeps some of its first changes.
    pub(super) fn crash(&mut self, loss: Loss, random: &mut Random, stable: &mut [Arc<Page>]) {
        for zone in 0..self.zones.len() as u32 {
            let volatile = &self.zones[zone as usize].volatile;
            let all = volatile.len();
            let (changes, sectors) = match loss {
                Loss::Process => unreachable!("the devices keep their power"),
                Loss::Nothing => (all, 0),
                Loss::Everything => (0, 0),
                Loss::Writes => (random.below(all as u64 + 1) as usize, 0),
                Loss::Sectors => {
                    let changes = random.below(all as u64 + 1) as usize;
                    match volatile.get(changes) {
                        Some((_, Change::Append(_, bytes))) => {
                            (changes, random.below(bytes.len() as u64 / 512) as usize)
                        }
                        _ => (changes, 0),
                    }
                }
            };
            self.keep(zone, changes, sectors, stable);
            let zone = &mut self.zones[zone as usize];
            zone.volatile.clear();
            if zone.stable.condition == Condition::Open {
                zone.stable.condition = Condition::Closed;
            }
            zone.visible = zone.stable;
        }
    }

    /// Resets all zones.
    pub(super) fn blank(&mut self) {
        self.zones.fill(FakeZone { visible: EMPTY, stable: EMPTY, volatile: Vec::new() });
    }

    /// Returns the pages of the superblocks that were written last, two at most, older first. The zones are used
    /// alternately.
    pub(super) fn superblock_pages(&self) -> Vec<usize> {
        let pages = |zone: u32| -> Vec<usize> {
            let written = self.zones[zone as usize].visible.written as usize / BLOCK_BYTES;
            (0..written).map(|page| self.first_page(zone) + page).collect()
        };
        let full = |zone: u32| self.zones[zone as usize].visible.condition == Condition::Full;
        // Both are full only between two writes. Then zone 1 was written last, or zone 0 before it was reset.
        let newest = if pages(1).is_empty() || (full(1) && !pages(0).is_empty() && !full(0)) { 0 } else { 1 };
        let all = [pages(1 - newest), pages(newest)].concat();
        all[all.len().saturating_sub(2)..].to_vec()
    }
}

/// The device for the zones of a fake disk.
pub(super) struct FakeZonedDevice {
    pub(super) inner: Arc<Mutex<Inner>>,
}

impl FakeZonedDevice {
    fn change<T>(&self, change: impl FnOnce(&mut Inner, FakeZones) -> (FakeZones, io::Result<T>)) -> io::Result<T> {
        let inner = &mut *self.inner.lock().unwrap();
        inner.operate(0)?;
        inner.writes += 1;
        let zones = inner.zones.take().unwrap();
        let (zones, result) = change(inner, zones);
        inner.zones = Some(zones);
        result
    }

    fn note(&self, zone: u32, change: Change) -> io::Result<()> {
        self.change(|inner, mut zones| {
            let (first, mut visible) = (zones.first_page(zone), zones.zones[zone as usize].visible);
            let sectors = if let Change::Append(_, bytes) = &change { bytes.len() / 512 } else { 0 };
            zones.apply(&mut visible, first, &mut inner.visible, &change, sectors);
            zones.zones[zone as usize].visible = visible;
            zones.zones[zone as usize].volatile.push((inner.writes, change));
            (zones, Ok(()))
        })
    }
}

impl ZonedDevice for FakeZonedDevice {
    fn description(&self) -> String {
        "zones".to_owned()
    }

    fn zones(&self) -> u32 {
        self.inner.lock().unwrap().zones.as_ref().unwrap().zones.len() as u32
    }

    fn capacity(&self) -> u64 {
        self.inner.lock().unwrap().zones.as_ref().unwrap().capacity()
    }

    fn limits(&self) -> Limits {
        Limits { max_active: Some(self.inner.lock().unwrap().zones.as_ref().unwrap().max_active), max_open: None }
    }

    fn report(&self, first: u32, count: u32) -> io::Result<Vec<Zone>> {
        let inner = self.inner.lock().unwrap();
        let zones = &inner.zones.as_ref().unwrap().zones;
        Ok(zones[first as usize..][..count as usize].iter().map(|zone| zone.visible).collect())
    }

    fn read(&self, zone: u32, buffers: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<()> {
        let inner = &mut *self.inner.lock().unwrap();
        inner.operate(0)?;
        let zones = inner.zones.as_ref().unwrap();
        let length: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        assert!(
            offset + length as u64 <= zones.zones[zone as usize].visible.written,
            "a read behind the write pointer"
        );
        let mut at = zones.first_page(zone) * BLOCK_BYTES + offset as usize;
        for buffer in buffers {
            for bytes in buffer.chunks_mut(BLOCK_BYTES) {
                bytes.copy_from_slice(&inner.visible[at / BLOCK_BYTES][..bytes.len()]);
                at += bytes.len();
            }
        }
        Ok(())
    }

    fn write(&self, zone: u32, buffers: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        let mut bytes = buffers.iter().map(|buffer| &buffer[..]).collect::<Vec<_>>().concat();
        self.change(|inner, mut zones| {
            let Zone { condition, written } = zones.zones[zone as usize].visible;
            let active = zones.zones.iter().filter(|zone| zone.visible.condition.is_active()).count() as u32;
            let is_allowed = condition != Condition::Full
                && offset == written
                && offset + bytes.len() as u64 <= zones.capacity()
                && (condition != Condition::Empty || active < zones.max_active);
            if !is_allowed {
                zones.refusals += 1;
                return (
                    zones,
                    Err(io::Error::other(format!("refused: {offset} of zone {zone}, {condition:?} {written}"))),
                );
            }
            if let Some(filter) = &inner.filter
                && offset.is_multiple_of(BLOCK_BYTES as u64)
            {
                let mut filter = filter.lock().unwrap();
                bytes.as_chunks_mut::<BLOCK_BYTES>().0.iter_mut().for_each(&mut *filter);
            }
            (zones, Ok(()))
        })?;
        self.inner.lock().unwrap().keep_before(zone, offset, bytes.len());
        self.note(zone, Change::Append(offset, bytes))
    }

    fn reset(&self, zone: u32) -> io::Result<()> {
        self.note(zone, Change::Reset)
    }

    fn finish(&self, zone: u32) -> io::Result<()> {
        self.note(zone, Change::Finish)
    }

    fn sync(&self) -> io::Result<()> {
        let inner = &mut *self.inner.lock().unwrap();
        inner.operate(0)?;
        inner.sync_until(u64::MAX);
        Ok(())
    }
}
