//! The map on disk. Each disk has two areas; one of them holds a snapshot and the later changes, in pages. If a change
//! does not fit, a new snapshot goes to the other area. `docs/pool.md` has the format.
//!
//! Every page has a checksum, the name of its pool and start, and its position. Changes that were made together are
//! applied together. A page that is torn, lost, or left over from an earlier start ends the map.

use std::io;

use flashwise_core::checksum::crc32c;
use flashwise_engine::memory::Memory;
use uuid::Uuid;

use super::label::Label;
use super::record::{Change, decode, encode};
use crate::disk::{ALIGNMENT, Disk};

const MAGIC: [u8; 4] = *b"FWPM";
const HEADER_BYTES: usize = 64;
const PAYLOAD_BYTES: usize = ALIGNMENT - HEADER_BYTES;
/// Number of pages in one read.
const READ_PAGES: u32 = 256;

/// The end of the map on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Number of the snapshot.
    pub generation: u64,
    /// Number of written pages of the area.
    pub pages: u32,
}

/// A map that was read from a disk.
#[derive(Debug)]
pub struct ReadMap {
    /// Its end.
    pub position: Position,
    /// The start of the pool that wrote it.
    pub start: Uuid,
    /// All changes, those of the snapshot first.
    pub changes: Vec<Change>,
}

/// Encodes changes that were made together as pages, which begin at page `number` of an area.
fn pages(label: &Label, start: Uuid, generation: u64, number: u32, changes: &[Change]) -> Memory {
    let mut bytes = Vec::new();
    changes.iter().for_each(|change| encode(change, &mut bytes));
    let count = bytes.len().div_ceil(PAYLOAD_BYTES).max(1);
    let mut memory = Memory::new(count);
    for at in 0..count {
        let payload = &bytes[at * PAYLOAD_BYTES..((at + 1) * PAYLOAD_BYTES).min(bytes.len())];
        let page = memory.page_mut(at as u32);
        page[0..4].copy_from_slice(&MAGIC);
        page[8..24].copy_from_slice(label.pool.as_bytes());
        page[24..40].copy_from_slice(start.as_bytes());
        page[40..48].copy_from_slice(&generation.to_le_bytes());
        page[48..52].copy_from_slice(&(number + at as u32).to_le_bytes());
        page[52..54].copy_from_slice(&(payload.len() as u16).to_le_bytes());
        page[54] = u8::from(at + 1 == count);
        page[HEADER_BYTES..HEADER_BYTES + payload.len()].copy_from_slice(payload);
        let sum = crc32c(&page[8..]);
        page[4..8].copy_from_slice(&sum.to_le_bytes());
    }
    memory
}

/// The header of a valid page: complete, of this pool, and at its position.
struct PageHeader<'a> {
    start: Uuid,
    generation: u64,
    is_last: bool,
    payload: &'a [u8],
}

fn header<'a>(page: &'a [u8], label: &Label, number: u32) -> Option<PageHeader<'a>> {
    let word = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().expect("four bytes"));
    let length = usize::from(u16::from_le_bytes([page[52], page[53]]));
    let is_whole = page[0..4] == MAGIC && word(4) == crc32c(&page[8..]);
    let is_here = page[8..24] == *label.pool.as_bytes() && word(48) == number;
    (is_whole && is_here && length <= PAYLOAD_BYTES).then(|| PageHeader {
        start: Uuid::from_slice(&page[24..40]).expect("sixteen bytes"),
        generation: u64::from_le_bytes(page[40..48].try_into().expect("eight bytes")),
        is_last: page[54] == 1,
        payload: &page[HEADER_BYTES..HEADER_BYTES + length],
    })
}

/// The content of an area.
#[derive(Default)]
struct Area {
    /// A complete snapshot and the changes after it.
    found: Option<ReadMap>,
    /// The number of the snapshot that the first page belongs to.
    generation: Option<u64>,
    /// The error that ended the read before the end of the map was found.
    unread: Option<io::Error>,
}

/// Reads an area, up to the first page that is not part of the map.
fn read_area(disk: &dyn Disk, label: &Label, area: u64) -> Area {
    let mut read = Area::default();
    let mut of: Option<(Uuid, u64)> = None;
    let mut pending = Vec::new();
    let mut number = 0;
    let mut memory = Memory::new(READ_PAGES.min(label.area_pages()) as usize);
    // After an error, reads one page at a time, because the bad page may be after the end of the map.
    let mut at_once = READ_PAGES;
    'pages: while number < label.area_pages() {
        let count = at_once.min(label.area_pages() - number);
        let bytes = &mut memory.bytes_mut()[..count as usize * ALIGNMENT];
        match disk.read_at(bytes, label.area_offset(area) + u64::from(number) * ALIGNMENT as u64) {
            Ok(()) => {}
            Err(_) if count > 1 => {
                at_once = 1;
                continue;
            }
            Err(error) => {
                read.unread = Some(error);
                break;
            }
        }
        for page in bytes.chunks(ALIGNMENT) {
            let Some(header) = header(page, label, number) else { break 'pages };
            if *of.get_or_insert((header.start, header.generation)) != (header.start, header.generation) {
                break 'pages;
            }
            pending.extend_from_slice(header.payload);
            number += 1;
            if !header.is_last {
                continue;
            }
            let mut rest = &pending[..];
            let mut changes = Vec::new();
            while !rest.is_empty() {
                let Some(change) = decode(&mut rest) else { break 'pages };
                changes.push(change);
            }
            pending.clear();
            let position = Position { generation: header.generation, pages: number };
            match &mut read.found {
                None => read.found = Some(ReadMap { position, start: header.start, changes }),
                Some(found) => {
                    found.position = position;
                    found.changes.append(&mut changes);
                }
            }
        }
    }
    read.generation = of.map(|(_, generation)| generation);
    read
}

/// Reads the newer one of the two areas of a disk.
///
/// # Errors
/// A page of the newer area, or of one that may be newer, cannot be read.
pub fn read(disk: &dyn Disk, label: &Label) -> io::Result<Option<ReadMap>> {
    let areas = [0, 1].map(|area| read_area(disk, label, area));
    let whole =
        |area: &Area| area.found.as_ref().filter(|_| area.unread.is_none()).map(|found| found.position.generation);
    let newest = areas.iter().filter_map(whole).max();
    let mut all = Vec::new();
    for area in areas {
        // An older area is ignored, readable or not.
        let may_be_newer = area.generation.is_none_or(|generation| newest.is_none_or(|newest| newest < generation));
        match area.unread {
            Some(error) if may_be_newer => return Err(error),
            Some(_) => {}
            None => all.extend(area.found),
        }
    }
    Ok(all.into_iter().max_by_key(|found| found.position))
}

/// Returns the number of pages after the changes were written at `position`, or `None` if they do not fit.
pub fn fits(label: &Label, position: Position, changes: &[Change]) -> Option<u32> {
    let mut bytes = Vec::new();
    changes.iter().for_each(|change| encode(change, &mut bytes));
    let count = bytes.len().div_ceil(PAYLOAD_BYTES).max(1);
    let end = u64::from(position.pages) + count as u64;
    (end <= u64::from(label.area_pages())).then_some(end as u32)
}

/// Writes changes at `position`, durably. For a snapshot, the position has no pages yet.
pub fn write(disk: &dyn Disk, label: &Label, start: Uuid, position: Position, changes: &[Change]) -> io::Result<()> {
    let mut memory = pages(label, start, position.generation, position.pages, changes);
    let offset = label.area_offset(position.generation % 2) + u64::from(position.pages) * ALIGNMENT as u64;
    disk.write_at(memory.bytes_mut(), offset)?;
    disk.sync()
}
