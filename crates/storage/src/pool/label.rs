//! The label of a pool's disk: the pool, the disk, and the layout of the disk. Each disk has two copies, 64 KiB apart.
//! So neither a torn write nor a partition table over the first one destroys both. `docs/pool.md` has the format.

use std::io;

use flashwise_core::checksum::{crc32c, crc32c_append};
use flashwise_engine::memory::Memory;
use uuid::Uuid;

use super::CHUNK_BYTES;
use crate::disk::inventory::POOL_MAGIC;
use crate::disk::{ALIGNMENT, Disk};

/// Bytes wiped at the beginning of a disk, where formats keep their magic numbers.
const WIPED_HEAD_BYTES: u64 = 1 << 20;
/// Bytes wiped at the end of a disk.
const WIPED_TAIL_BYTES: u64 = 128 << 10;

/// The version that this code writes. It reads no other.
const VERSION: u32 = 1;
/// Maximum length of a pool's name in bytes.
pub const NAME_BYTES_MAX: usize = 64;
/// Number of chunks in front of the map. Each holds a copy of the label.
pub const LABEL_CHUNKS: u32 = 2;
/// Each of the two areas of the map has 1 / `AREA_SHARE` of the disk.
const AREA_SHARE: u64 = 512;
/// Smallest area, in chunks: 128 KiB.
const AREA_CHUNKS_MIN: u32 = 2;

/// The contents of a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The pool's UUID.
    pub pool: Uuid,
    /// The pool's name.
    pub pool_name: String,
    /// The disk's UUID.
    pub disk: Uuid,
    /// Number of chunks of the disk, including those of labels and map.
    pub chunks: u32,
    /// Number of chunks of each of the two areas of the map.
    pub area_chunks: u32,
    /// The number of the snapshot when the label was written.
    pub generation: u64,
    /// The name of the start that wrote the label.
    pub start: Uuid,
}

/// Why a label is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum LabelError {
    #[error("there is no label of a pool")]
    Magic,
    /// Both copies are zeroes: the disk is blank or was removed.
    #[error("there is no label of a pool")]
    Erased,
    #[error("its label has version {found}; this program reads version {VERSION}")]
    Version { found: u32 },
    #[error("its label is damaged in both copies")]
    Damaged,
}

impl Label {
    /// Creates the label of a new disk of `size` bytes. Returns `None` if the disk is too small.
    pub fn new(pool: Uuid, pool_name: &str, disk: Uuid, size: u64) -> Option<Label> {
        let chunks = u32::try_from(size / CHUNK_BYTES).ok()?;
        let area = (size / AREA_SHARE).div_ceil(CHUNK_BYTES) as u32;
        let (area_chunks, pool_name) = (area.max(AREA_CHUNKS_MIN), pool_name.to_owned());
        let label = Label { pool, pool_name, disk, chunks, area_chunks, generation: 0, start: Uuid::nil() };
        (label.first_chunk() < chunks).then_some(label)
    }

    /// The first chunk for data.
    pub fn first_chunk(&self) -> u32 {
        LABEL_CHUNKS + 2 * self.area_chunks
    }

    /// The offset of one of the two areas, in bytes.
    pub fn area_offset(&self, area: u64) -> u64 {
        (u64::from(LABEL_CHUNKS) + area * u64::from(self.area_chunks)) * CHUNK_BYTES
    }

    /// The number of pages of an area.
    pub fn area_pages(&self) -> u32 {
        self.area_chunks * (CHUNK_BYTES / ALIGNMENT as u64) as u32
    }

    fn encode(&self) -> [u8; ALIGNMENT] {
        let mut page = [0; ALIGNMENT];
        page[0..8].copy_from_slice(&POOL_MAGIC);
        page[8..12].copy_from_slice(&VERSION.to_le_bytes());
        page[16..32].copy_from_slice(self.pool.as_bytes());
        page[32..48].copy_from_slice(self.disk.as_bytes());
        page[48..64].copy_from_slice(self.start.as_bytes());
        page[64..72].copy_from_slice(&self.generation.to_le_bytes());
        page[72..76].copy_from_slice(&self.chunks.to_le_bytes());
        page[76..80].copy_from_slice(&self.area_chunks.to_le_bytes());
        page[80] = self.pool_name.len() as u8;
        page[81..81 + self.pool_name.len()].copy_from_slice(self.pool_name.as_bytes());
        let sum = checksum(&page);
        page[12..16].copy_from_slice(&sum.to_le_bytes());
        page
    }

    fn decode(page: &[u8]) -> Result<Label, LabelError> {
        let number = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().expect("four bytes"));
        if page[0..8] != POOL_MAGIC {
            return Err(LabelError::Magic);
        }
        if number(12) != checksum(page) {
            return Err(LabelError::Damaged);
        }
        if number(8) != VERSION {
            return Err(LabelError::Version { found: number(8) });
        }
        let uuid = |at: usize| Uuid::from_slice(&page[at..at + 16]).expect("sixteen bytes");
        let name = page.get(81..81 + usize::from(page[80])).and_then(|bytes| std::str::from_utf8(bytes).ok());
        let label = Label {
            pool: uuid(16),
            pool_name: name.ok_or(LabelError::Damaged)?.to_owned(),
            disk: uuid(32),
            start: uuid(48),
            generation: u64::from_le_bytes(page[64..72].try_into().expect("eight bytes")),
            chunks: number(72),
            area_chunks: number(76),
        };
        let is_sound = (AREA_CHUNKS_MIN..1 << 24).contains(&label.area_chunks) && label.first_chunk() < label.chunks;
        if is_sound { Ok(label) } else { Err(LabelError::Damaged) }
    }

    /// Reads the label of a disk: the newer one of two valid copies. An unreadable copy is ignored if the other is
    /// valid.
    pub fn read(disk: &dyn Disk) -> io::Result<Result<Label, LabelError>> {
        if disk.size() < 2 * CHUNK_BYTES {
            return Ok(Err(LabelError::Magic));
        }
        let mut copies = Vec::new();
        let (mut zeroes, mut unread) = (true, None);
        for copy in 0..2 {
            let mut memory = Memory::new(1);
            if let Err(error) = disk.read_at(memory.bytes_mut(), copy * CHUNK_BYTES) {
                unread.get_or_insert(error);
                continue;
            }
            zeroes &= memory.page(0).iter().all(|byte| *byte == 0);
            copies.push(Label::decode(memory.page(0)));
        }
        let newest = copies.iter().flatten().max_by_key(|label| label.generation);
        if let (None, Some(error)) = (newest, unread) {
            return Err(error);
        }
        let newer_version = copies.iter().find(|copy| matches!(copy, Err(LabelError::Version { .. })));
        Ok(match (newer_version, newest) {
            (Some(refused), _) => refused.clone(),
            (None, Some(newest)) => Ok(newest.clone()),
            (None, None) if zeroes => Err(LabelError::Erased),
            (None, None) if copies.iter().all(|copy| *copy == Err(LabelError::Magic)) => Err(LabelError::Magic),
            (None, None) => Err(LabelError::Damaged),
        })
    }

    /// Writes both copies one after the other, so one of them is always valid.
    pub fn write(&self, disk: &dyn Disk) -> io::Result<()> {
        let mut memory = Memory::new(1);
        memory.bytes_mut().copy_from_slice(&self.encode());
        for copy in 0..2 {
            disk.write_at(memory.page(0), copy * CHUNK_BYTES)?;
            disk.sync()?;
        }
        Ok(())
    }
}

/// Erases the label, and all places where formats keep their magic numbers, durably. The disk is blank then.
pub(super) fn clear(disk: &dyn Disk) -> io::Result<()> {
    const STEP: u64 = 64 << 10;
    let mut zeroes = Memory::new((STEP / 4096) as usize);
    let end = disk.size().next_multiple_of(4096);
    let tail = end.saturating_sub(WIPED_TAIL_BYTES) / 4096 * 4096;
    for (from, to) in [(0, end.min(WIPED_HEAD_BYTES)), (tail, end)] {
        let mut at = from;
        while at < to {
            let length = STEP.min(to - at);
            disk.write_at(&zeroes.bytes_mut()[..length as usize], at)?;
            at += length;
        }
    }
    disk.sync()
}

/// The checksum of a page without the checksum field.
fn checksum(page: &[u8]) -> u32 {
    crc32c_append(crc32c(&page[..12]), &page[16..])
}
