//! The on-flash format, byte for byte: the superblock, and the header and footer pages of the log.
//!
//! Source: our own. Epochs that identify the newest copy of a block follow WLFC (section IV.D), and so does the
//! idempotence of repeated write-backs. `docs/format.md` has the same as tables.
//!
//! All integers are little-endian. A page is one block of 4,096 bytes. Every metadata page begins with a magic number
//! and a CRC32C of the rest of the page.

mod digest;
mod run_end;
mod superblock;

use std::fmt;

use crate::checksum;
pub use digest::{Difference, Digest};
pub use run_end::{RunEnd, Witness};
pub use superblock::{FailedUnit, Layout, Resets, State, Superblock};

/// Bytes in a block, which is also a page of the log.
pub const BLOCK_BYTES: usize = 4096;
/// The newest version of the [layout](Layout) of buckets, with reset marks in [every sector](Resets::EverySector).
pub const VERSION: u32 = 8;
/// The version of the layout of buckets with reset marks in [one sector](Resets::FirstSector).
pub const VERSION_MARKED: u32 = 7;
/// The version of the layout of buckets without reset marks, and with failed buckets.
pub const VERSION_FAILED: u32 = 6;
/// As [`VERSION_FAILED`], without failed buckets.
pub const VERSION_BUCKETS: u32 = 5;
/// The version of a log on zoned flash, which is [written in order](Superblock::in_order).
pub const VERSION_ZONED: u32 = 4;
/// The version of any other flash. Version 1, which can be read too, lacked the fields of [`Superblock`] from
/// [`attach`](Superblock::attach) on, and version 2 the records of regions.
pub const VERSION_ANYWHERE: u32 = 3;
/// The version of a log with records of [epochs](crate::epochs), on any flash.
pub const VERSION_EPOCHS: u32 = 9;
/// The newest version of the format.
pub const VERSION_MAX: u32 = VERSION_EPOCHS;
/// The version of [another program's layout](Layout::Other) with number 0; the others follow.
pub const VERSION_OTHER: u32 = 1 << 16;
const VERSION_MIN: u32 = 1;
/// Records in one metadata page: (4,096 - 64) / 16.
pub const RECORDS_PER_PAGE: usize = 252;
/// Pages of the superblock's copies, at the start of the device; the rest of its erase unit is unused.
pub const SUPERBLOCK_COPIES: u32 = 2;

pub(crate) const SUPERBLOCK_MAGIC: u64 = u64::from_le_bytes(*b"flashwis");
const HEADER_MAGIC: u32 = u32::from_le_bytes(*b"FWSG");
const FOOTER_MAGIC: u32 = u32::from_le_bytes(*b"FWFT");
const RECORDS_START: usize = 64;
const RECORD_BYTES: usize = 16;

/// One page of bytes.
pub type Page = [u8; BLOCK_BYTES];

/// The division of a flash device. Unit 0 holds the superblock; the log uses the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Erase units, the superblock's included; at least [`Geometry::UNITS_MIN`].
    pub units: u32,
    /// Pages in an erase unit, from [`Geometry::UNIT_PAGES_MIN`] to [`Geometry::UNIT_PAGES_MAX`].
    pub unit_pages: u32,
}

impl Geometry {
    /// Minimum number of units: the superblock's, and a log with one unit being filled, one being read and a reserve.
    pub const UNITS_MIN: u32 = 11;
    /// Minimum number of pages in a unit.
    pub const UNIT_PAGES_MIN: u32 = 16;
    /// Maximum number of pages in a unit: 2 GiB.
    pub const UNIT_PAGES_MAX: u32 = 524_288;

    /// Returns the units of the log.
    pub fn log_units(&self) -> u32 {
        self.units - 1
    }

    /// Returns the unit of sequence number `sequence`, at least 1: the log uses its units in turn.
    pub fn unit_of(&self, sequence: u64) -> u32 {
        assert!(sequence > 0, "sequence numbers start at 1");
        1 + ((sequence - 1) % u64::from(self.log_units())) as u32
    }

    /// Returns the pages of a unit's footer: room for one record per page, and a quarter more for marks.
    pub fn footer_pages(&self) -> u32 {
        (self.unit_pages + self.unit_pages / 4).div_ceil(RECORDS_PER_PAGE as u32)
    }

    /// Returns the maximum number of records in a unit.
    pub fn unit_records_max(&self) -> usize {
        self.footer_pages() as usize * RECORDS_PER_PAGE
    }

    /// Returns the page within a unit where its footer starts and segments end.
    pub fn segments_end(&self) -> u32 {
        self.unit_pages - self.footer_pages()
    }

    /// Returns the maximum number of data pages in a unit, besides the footer and the headers of segments of
    /// `segment_blocks`.
    pub fn unit_data_pages(&self, segment_blocks: u32) -> u32 {
        self.segments_end() - self.segments_end().div_ceil(segment_blocks + 1)
    }

    /// Returns the device's page number of page `page` of `unit`.
    pub fn slot(&self, unit: u32, page: u32) -> u32 {
        unit * self.unit_pages + page
    }

    /// Returns the place of a slot, if its unit is one of the log: in the newest use of that unit up to `sequence`.
    pub fn place_up_to(&self, sequence: u64, slot: u32) -> Option<Place> {
        let (laps, unit) = (u64::from(self.log_units()), u64::from(slot / self.unit_pages));
        let units = (1..=laps).contains(&unit).then(|| (sequence + laps - unit) % laps)?;
        Some(Place { sequence: sequence.checked_sub(units)?, page: slot % self.unit_pages })
    }

    /// Returns the pages of the device.
    pub fn pages(&self) -> u32 {
        self.units * self.unit_pages
    }
}

/// A place in the log: the start of a segment, or the end of the log. Places are ordered as they are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The unit's sequence number, 0 before the first.
    pub sequence: u64,
    /// The page within the unit.
    pub page: u32,
}

/// An error in a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum PageError {
    #[error("the magic number is missing")]
    Magic,
    #[error("the checksum is {found:08x}, expected {expected:08x}")]
    Checksum { found: u32, expected: u32 },
    #[error("it has format version {found}; this program reads versions {VERSION_MIN} to {VERSION_MAX}")]
    Version { found: u32 },
    #[error("{field} is {found}, which is invalid")]
    Field { field: &'static str, found: u64 },
}

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A page of data that is not referenced.
    Void,
    /// A page of data that the backend also has.
    Clean,
    /// A page of data that is newer than the backend's.
    Dirty,
    /// Invalidates all earlier records of the block: the backend has, or will have, newer data.
    Forget,
    /// The dirty copy of the block at [`Record::slot`] was written back and is clean.
    Destaged,
    /// The only copy of the block's newest data was lost; until it is rewritten, reading it is an error.
    Lost,
    /// All dirty copies on the unit of [`Record::slot`], in pages up to that slot, were written back and are clean.
    UnitDestaged,
    /// Blocks of the [`Region`] are being overwritten on the backend. Until the region is sure again, all clean copies
    /// in it are invalid, wherever their records are.
    Unsure,
    /// The clean copies of the [`Region`] are valid again.
    Sure,
    /// Invalidates the clean copies in the [`Region`] whose records come before this one; later ones are valid.
    ForgetRegion,
    /// An [epoch](crate::epochs) ends: dirty copies with earlier records belong to it, or to one before.
    EpochEnd,
    /// All epochs whose dirty copies are before the page of [`Record::slot`] were written back.
    EpochsDone,
    /// The [order is broken](crate::epochs::Break), unless an [`EpochsDone`](Self::EpochsDone) follows.
    OrderBroken,
}

impl Kind {
    /// All kinds, in the order of their numbers on the device.
    pub const ALL: [Kind; 13] = [
        Kind::Void,
        Kind::Clean,
        Kind::Dirty,
        Kind::Forget,
        Kind::Destaged,
        Kind::Lost,
        Kind::UnitDestaged,
        Kind::Unsure,
        Kind::Sure,
        Kind::ForgetRegion,
        Kind::EpochEnd,
        Kind::EpochsDone,
        Kind::OrderBroken,
    ];

    /// True if a page of data belongs to the record.
    pub fn has_data(self) -> bool {
        matches!(self, Kind::Void | Kind::Clean | Kind::Dirty)
    }

    /// True if a flush waits for the record.
    pub fn matters_to_flush(self) -> bool {
        self.is_of_epoch() || matches!(self, Kind::Dirty | Kind::Forget | Kind::Lost)
    }

    /// True if the record concerns [epochs](crate::epochs) rather than a block.
    pub fn is_of_epoch(self) -> bool {
        matches!(self, Kind::EpochEnd | Kind::EpochsDone | Kind::OrderBroken)
    }

    /// True if the record concerns a [`Region`] rather than a block.
    pub fn is_of_region(self) -> bool {
        matches!(self, Kind::Unsure | Kind::Sure | Kind::ForgetRegion)
    }
}

/// An aligned run of blocks: all regions of the same size start at multiples of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Region {
    /// Its first block.
    pub first: u32,
    /// The number of blocks, or 0 for all blocks of the volume.
    pub blocks: u32,
}

impl Region {
    /// All blocks of the volume.
    pub const ALL: Region = Region { first: 0, blocks: 0 };

    /// Returns the region of `blocks` blocks that contains `block`.
    pub fn of(block: u32, blocks: u32) -> Region {
        Region { first: block.checked_div(blocks).map_or(0, |number| number * blocks), blocks }
    }
}

/// One record of a segment's header or a unit's footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The kind of record.
    pub kind: Kind,
    /// The block concerned.
    pub block: u32,
    /// A page number whose meaning depends on the kind, otherwise 0:
    ///
    /// - for data, its page on the device;
    /// - for [`Kind::Destaged`], the page of the copy that was written back;
    /// - for [`Kind::UnitDestaged`], the last page concerned;
    /// - for a [`Kind::Lost`] in place of data, the page that it left unused;
    /// - for a [`Region`], whose first block is `block`, [its number of blocks](Region::blocks);
    /// - for [`Kind::EpochEnd`], whose `block` is a time in seconds since 1970, the milliseconds of that second;
    /// - for [`Kind::EpochsDone`], the page of the device before which epochs were written back.
    pub slot: u32,
    /// CRC32C of the data, or 0.
    pub crc: u32,
}

/// The common fields of a segment's header and a footer's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// First 8 bytes of the cache's UUID, to detect pages of other caches.
    pub cache: u64,
    /// Counts the starts of the server. It identifies leftovers of an earlier run behind the end of its log.
    pub epoch: u64,
    /// Counts units; together with the position in the unit it orders all records.
    pub sequence: u64,
    /// The oldest valid sequence number.
    pub tail: u64,
    /// The end of the previous unit's segments.
    pub previous_end: u32,
    /// The page within the unit.
    pub page: u32,
    /// For a segment, the number of data pages that follow; for a footer, the end of the segments.
    pub data_pages: u32,
    /// The page up to which the unit was durable before this was written.
    pub durable_end: u32,
    /// For a footer, its number of pages. 0 in a segment's header, and in a footer of version 1, which has the maximum.
    pub footer_pages: u32,
    /// For a segment, the number of invalid pages before it, torn by a crash. If several segments claim a place, the
    /// last one is right.
    pub skipped: u32,
}

/// A decoded header or footer page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataPage {
    /// The fields of the page.
    pub header: Header,
    /// The records, in order.
    pub records: Vec<Record>,
}

/// The role of a metadata page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Starts a segment: the data pages of its records follow in order.
    Segment,
    /// Repeats the records of all segments of a unit, full or partly written.
    Footer,
}

impl Role {
    pub(crate) fn magic(self) -> u32 {
        match self {
            Role::Segment => HEADER_MAGIC,
            Role::Footer => FOOTER_MAGIC,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Segment => "segment header",
            Role::Footer => "footer",
        })
    }
}

/// Encodes a metadata page of at most [`RECORDS_PER_PAGE`] records into `page`.
pub fn encode_metadata(role: Role, header: &Header, records: &[Record], page: &mut Page) {
    assert!(records.len() <= RECORDS_PER_PAGE, "{} records do not fit a page", records.len());
    page.fill(0);
    put(page, 0, &role.magic().to_le_bytes());
    put(page, 8, &header.cache.to_le_bytes());
    put(page, 16, &header.epoch.to_le_bytes());
    put(page, 24, &header.sequence.to_le_bytes());
    put(page, 32, &header.tail.to_le_bytes());
    put(page, 40, &header.previous_end.to_le_bytes());
    put(page, 44, &header.page.to_le_bytes());
    put(page, 48, &(records.len() as u32).to_le_bytes());
    put(page, 52, &header.data_pages.to_le_bytes());
    put(page, 56, &header.durable_end.to_le_bytes());
    let last = if role == Role::Footer { header.footer_pages } else { header.skipped };
    put(page, 60, &last.to_le_bytes());
    for (record, bytes) in records.iter().zip(page[RECORDS_START..].chunks_exact_mut(RECORD_BYTES)) {
        bytes[0..4].copy_from_slice(&record.block.to_le_bytes());
        bytes[4..8].copy_from_slice(&(record.kind as u32).to_le_bytes());
        bytes[8..12].copy_from_slice(&record.slot.to_le_bytes());
        bytes[12..16].copy_from_slice(&record.crc.to_le_bytes());
    }
    let crc = checksum::crc32c(&page[8..]);
    put(page, 4, &crc.to_le_bytes());
}

/// Decodes a metadata page.
pub fn decode_metadata(role: Role, page: &Page) -> Result<MetadataPage, PageError> {
    if u32_at(page, 0) != role.magic() {
        return Err(PageError::Magic);
    }
    check_crc(u32_at(page, 4), &page[8..])?;
    let count = u32_at(page, 48) as usize;
    if count > RECORDS_PER_PAGE {
        return Err(PageError::Field { field: "number of records", found: count as u64 });
    }
    let record = |bytes: &[u8]| {
        let found = u32_at(bytes, 4);
        let kind = Kind::ALL.get(found as usize).copied();
        let kind = kind.ok_or(PageError::Field { field: "kind of record", found: found.into() })?;
        Ok(Record { kind, block: u32_at(bytes, 0), slot: u32_at(bytes, 8), crc: u32_at(bytes, 12) })
    };
    let records = page[RECORDS_START..].chunks_exact(RECORD_BYTES).take(count).map(record).collect::<Result<_, _>>()?;
    let header = Header {
        cache: u64_at(page, 8),
        epoch: u64_at(page, 16),
        sequence: u64_at(page, 24),
        tail: u64_at(page, 32),
        previous_end: u32_at(page, 40),
        page: u32_at(page, 44),
        data_pages: u32_at(page, 52),
        durable_end: u32_at(page, 56),
        footer_pages: if role == Role::Footer { u32_at(page, 60) } else { 0 },
        skipped: if role == Role::Segment { u32_at(page, 60) } else { 0 },
    };
    Ok(MetadataPage { header, records })
}

fn check_crc(found: u32, bytes: &[u8]) -> Result<(), PageError> {
    let expected = checksum::crc32c(bytes);
    if found == expected { Ok(()) } else { Err(PageError::Checksum { found, expected }) }
}

pub(crate) fn put(page: &mut Page, at: usize, bytes: &[u8]) {
    page[at..at + bytes.len()].copy_from_slice(bytes);
}

pub(crate) fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("a slice of N bytes")
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GEOMETRY: Geometry = Geometry { units: 100, unit_pages: 512 };

    /// 512 pages: 3 of the footer (512 + 128 = 640 records, 252 a page), 509 for segments: two of 1 + 252 and one of 1
    /// + 2.
    #[test]
    fn a_unit_of_2_mib_loses_six_pages_to_metadata() {
        assert_eq!(GEOMETRY.footer_pages(), 3);
        assert_eq!(GEOMETRY.segments_end(), 509);
        assert_eq!(GEOMETRY.unit_data_pages(RECORDS_PER_PAGE as u32), 506);
        let metadata_pages = GEOMETRY.unit_pages - GEOMETRY.unit_data_pages(RECORDS_PER_PAGE as u32);
        assert!(f64::from(metadata_pages) / 512.0 < 0.02, "metadata stays below 2 % of the bytes");
    }

    #[test]
    fn the_log_takes_the_units_in_turn_and_leaves_out_the_superblocks() {
        let geometry = Geometry { units: 9, unit_pages: 16 };
        let units: Vec<u32> = (1..=10).map(|sequence| geometry.unit_of(sequence)).collect();
        assert_eq!(units, [1, 2, 3, 4, 5, 6, 7, 8, 1, 2]);
    }

    #[test]
    fn regions_lie_side_by_side_from_the_first_block_on() {
        assert_eq!(Region::of(4095, 4096), Region { first: 0, blocks: 4096 });
        assert_eq!(Region::of(4096, 4096), Region { first: 4096, blocks: 4096 });
        assert_eq!(Region::of(u32::MAX, 4096), Region { first: 0xFFFF_F000, blocks: 4096 });
        assert_eq!(Region::of(77, 0), Region::ALL);
    }

    #[test]
    fn a_metadata_page_reads_back_and_a_changed_byte_is_noticed() {
        let header = Header {
            cache: 9,
            epoch: 3,
            sequence: 70,
            tail: 5,
            previous_end: 509,
            page: 253,
            data_pages: 3,
            durable_end: 253,
            footer_pages: 0,
            skipped: 4,
        };
        let records: Vec<Record> = Kind::ALL
            .into_iter()
            .zip(10..)
            .map(|(kind, block)| Record { kind, block, slot: block * 2, crc: block * 3 })
            .collect();
        let mut page = [0xAA; BLOCK_BYTES];
        encode_metadata(Role::Segment, &header, &records, &mut page);
        assert_eq!(decode_metadata(Role::Segment, &page), Ok(MetadataPage { header, records }));
        assert_eq!(decode_metadata(Role::Footer, &page), Err(PageError::Magic));
        for at in 0..BLOCK_BYTES {
            let mut damaged = page;
            damaged[at] ^= 0x80;
            assert!(decode_metadata(Role::Segment, &damaged).is_err(), "byte {at}");
        }
    }
}
