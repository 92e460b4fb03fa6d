//! Writes a log as a server does, and knows what recovery must find in it. So targets get past magic numbers, sequences
//! and checksums.

use std::collections::{BTreeMap, BTreeSet};

use flashwise_core::format::{
    BLOCK_BYTES, Geometry, Header, Kind, Page, Record, Region, Role, Superblock, encode_metadata,
};
use flashwise_core::recovery::Recovered;
use flashwise_storage::disk::Disk;
use flashwise_storage::disk::memory::MemoryDisk;
use flashwise_storage::flash::{cache_tag, format};

/// A small device: ten units of a log.
pub const GEOMETRY: Geometry = Geometry { units: 11, unit_pages: 16 };

/// Returns the region of a record for this block: as many blocks as two servers wrote in one record, or the whole
/// volume.
fn region_of(block: u32) -> Region {
    match block {
        0..8 => Region::of(block, 4),
        8..15 => Region::of(block, 8),
        _ => Region::ALL,
    }
}

/// A log that is being written, and its contents.
pub struct LogWriter {
    /// The flash.
    pub flash: MemoryDisk,
    /// The superblock of the device.
    pub superblock: Superblock,
    /// The epoch of the next write.
    pub epoch: u64,
    /// The epoch of the last write.
    pub written_epoch: u64,
    sequence: u64,
    tail: u64,
    /// The tail in the last complete segment or footer.
    written_tail: u64,
    previous_end: u32,
    end: u32,
    durable_end: u32,
    units: BTreeMap<u64, Vec<Record>>,
}

/// Blocks with their slots, and true if dirty.
pub type Copies = BTreeMap<u32, (u32, bool)>;

impl LogWriter {
    /// Creates an empty cache.
    pub fn new() -> LogWriter {
        let flash = MemoryDisk::new(GEOMETRY.pages() as usize * BLOCK_BYTES);
        let mut superblock = Superblock::new([7; 16], [9; 16], GEOMETRY, 1 << 20);
        format(&flash, &mut superblock).expect("memory is written");
        LogWriter {
            flash,
            superblock,
            epoch: 1,
            written_epoch: 0,
            sequence: 0,
            tail: 1,
            written_tail: 1,
            previous_end: 0,
            end: 0,
            durable_end: 0,
            units: BTreeMap::new(),
        }
    }

    /// Returns the first bytes of the cache's UUID.
    pub fn tag(&self) -> u64 {
        cache_tag(&self.superblock)
    }

    /// Writes a page of the device.
    pub fn write(&self, page: &Page, slot: u32) {
        self.flash.write_at(page, u64::from(slot) * BLOCK_BYTES as u64).expect("memory is written");
    }

    /// Reads a page of the device.
    pub fn read(&self, slot: u32) -> Page {
        let mut page = [0; BLOCK_BYTES];
        self.flash.read_at(&mut page, u64::from(slot) * BLOCK_BYTES as u64).expect("memory is read");
        page
    }

    /// Frees up to `units` of the oldest units.
    pub fn advance_tail(&mut self, units: u64) {
        self.tail = (self.tail + units).min(self.sequence.max(1));
    }

    /// Records that everything was flushed.
    pub fn flush(&mut self) {
        self.durable_end = self.end;
    }

    /// Ends the unit with its footer, or without it, as a server does that is killed before it is written.
    pub fn close(&mut self, with_footer: bool) {
        if self.end == 0 {
            return;
        }
        if with_footer {
            let header = self.header(GEOMETRY.segments_end(), self.end, self.end);
            let mut page: Page = [0; BLOCK_BYTES];
            encode_metadata(Role::Footer, &header, &self.units[&self.sequence], &mut page);
            self.write(&page, GEOMETRY.slot(GEOMETRY.unit_of(self.sequence), GEOMETRY.segments_end()));
            (self.written_tail, self.written_epoch) = (self.tail, self.epoch);
        }
        (self.previous_end, self.end, self.durable_end) = (self.end, 0, 0);
    }

    fn header(&self, page: u32, data_pages: u32, durable_end: u32) -> Header {
        let (cache, previous_end) = (self.tag(), self.previous_end);
        Header {
            cache,
            epoch: self.epoch,
            sequence: self.sequence,
            tail: self.tail,
            previous_end,
            page,
            data_pages,
            durable_end,
            footer_pages: 0,
            skipped: 0,
        }
    }

    /// Appends a segment: data of these kinds and blocks, then marks. A torn one lacks the data of its last page.
    pub fn append(&mut self, data: &[(Kind, u32)], marks: &[(Kind, u32)], is_torn: bool) {
        if self.end + 1 + data.len() as u32 > GEOMETRY.segments_end() {
            self.close(true);
        }
        if self.end == 0 {
            self.sequence += 1;
            // The next unit is free before it is started, and one is reserved.
            self.tail = self.tail.max((self.sequence + 3).saturating_sub(u64::from(GEOMETRY.log_units())));
            self.units.insert(self.sequence, Vec::new());
        }
        let unit = GEOMETRY.unit_of(self.sequence);
        let mut records = Vec::new();
        for (&(kind, block), page) in data.iter().zip(self.end + 1..) {
            let slot = GEOMETRY.slot(unit, page);
            let bytes: Page = [block as u8 ^ self.end as u8; BLOCK_BYTES];
            let crc = if kind == Kind::Void { 0 } else { crc32c::crc32c(&bytes) };
            self.write(&bytes, slot);
            records.push(Record { kind, block, slot, crc });
        }
        for &(kind, block) in marks {
            if kind.is_of_region() {
                let Region { first, blocks } = region_of(block);
                records.push(Record { kind, block: first, slot: blocks, crc: 0 });
                continue;
            }
            let marked = matches!(kind, Kind::Destaged | Kind::UnitDestaged);
            let slot = if marked { self.copies().get(&block).map_or(0, |(slot, _)| *slot) } else { 0 };
            records.push(Record { kind, block, slot, crc: 0 });
        }
        let header = self.header(self.end, data.len() as u32, self.durable_end);
        let mut page: Page = [0; BLOCK_BYTES];
        encode_metadata(Role::Segment, &header, &records, &mut page);
        self.write(&page, GEOMETRY.slot(unit, self.end));
        let last = records.iter().rfind(|record| matches!(record.kind, Kind::Clean | Kind::Dirty));
        match last.filter(|_| is_torn) {
            Some(last) => {
                self.write(&[!(last.block as u8 ^ self.end as u8); BLOCK_BYTES], last.slot);
                if self.end == 0 {
                    self.units.remove(&self.sequence);
                    self.sequence -= 1;
                }
            }
            None => {
                (self.written_tail, self.written_epoch) = (self.tail, self.epoch);
                self.units.entry(self.sequence).or_default().extend(records);
                self.end += 1 + data.len() as u32;
            }
        }
    }

    fn records(&self) -> impl Iterator<Item = &Record> {
        self.units.range(self.written_tail..).flat_map(|(_, records)| records)
    }

    /// Returns true if a record reports the loss of a block's only copy.
    pub fn has_losses(&self) -> bool {
        self.records().any(|record| record.kind == Kind::Lost)
    }

    fn blocks_of(&self, first: u32, blocks: u32) -> std::ops::Range<u32> {
        match blocks {
            0 => 0..(self.superblock.volume_bytes / BLOCK_BYTES as u64) as u32,
            _ => first..first + blocks,
        }
    }

    /// Returns the blocks whose copies recovery must find.
    pub fn copies(&self) -> Copies {
        let mut copies = Copies::new();
        // Blocks of unsure regions. Clean copies before the record that marks the region as unsure do not count.
        let (mut unsure, mut forgotten) = (BTreeSet::new(), BTreeSet::new());
        for Record { kind, block, slot, .. } in self.records() {
            match kind {
                // This writer has no epochs.
                Kind::Void | Kind::EpochEnd | Kind::EpochsDone | Kind::OrderBroken => {}
                Kind::Clean | Kind::Dirty => drop(copies.insert(*block, (*slot, *kind == Kind::Dirty))),
                Kind::Forget | Kind::Lost => drop(copies.remove(block)),
                Kind::UnitDestaged => {
                    let meant = slot / GEOMETRY.unit_pages * GEOMETRY.unit_pages..=*slot;
                    for (_, is_dirty) in copies.values_mut().filter(|(slot, _)| meant.contains(slot)) {
                        *is_dirty = false;
                    }
                }
                Kind::Destaged => {
                    if let Some((_, is_dirty)) = copies.get_mut(block).filter(|(found, _)| found == slot) {
                        *is_dirty = false;
                    }
                }
                Kind::Unsure => unsure.extend(self.blocks_of(*block, *slot)),
                Kind::Sure => unsure.retain(|known| !self.blocks_of(*block, *slot).contains(known)),
                Kind::ForgetRegion => {
                    let region = self.blocks_of(*block, *slot);
                    unsure.retain(|known| !region.contains(known));
                    forgotten.extend(copies.range(region).map(|(known, (slot, _))| (*known, *slot)));
                }
            }
        }
        copies.retain(|block, (slot, is_dirty)| {
            *is_dirty || !(unsure.contains(block) || forgotten.contains(&(*block, *slot)))
        });
        copies
    }
}

impl Default for LogWriter {
    fn default() -> Self {
        LogWriter::new()
    }
}

/// Returns the blocks whose copies recovery found.
pub fn found(recovered: &Recovered) -> Copies {
    let log = &recovered.log;
    let copy = |block| log.find(block).map(|slot| (block, (slot, log.is_dirty(slot))));
    log.blocks().into_iter().filter_map(copy).collect()
}
