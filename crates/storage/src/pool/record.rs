//! Changes of a pool's map and their encoding. `docs/pool.md` has the format.

use flashwise_core::cache::Mode;
use uuid::Uuid;

/// Places of chunks of a logical disk. Its chunk `first + k * step` is chunk `chunk + k` of the pool, for each `k`
/// below `count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first chunk of the logical disk.
    pub first: u32,
    /// The distance between two chunks of the logical disk.
    pub step: u32,
    /// The first chunk of the pool.
    pub chunk: u32,
    /// The number of chunks.
    pub count: u32,
    /// False if the chunks read as zeroes.
    pub written: bool,
}

/// A disk of a pool, as recorded in the map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The disk's UUID.
    pub disk: Uuid,
    /// The last known path, for users.
    pub path: String,
    /// The number of its first chunk in the pool.
    pub base: u32,
    /// The number of its chunks, including those of labels and map.
    pub chunks: u32,
    /// The number of chunks at the beginning for labels and map.
    pub reserved: u32,
    /// True if it is being evacuated. No chunks are allocated on it.
    pub leaving: bool,
    /// The last start that it took part in, and the one before.
    pub starts: [Uuid; 2],
}

/// The properties of a logical disk, without the places of its chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The name, which is also the name of the export.
    pub name: String,
    /// Unique, even if another disk had or gets the same name.
    pub uuid: Uuid,
    /// Size in bytes, a multiple of 4,096.
    pub size_bytes: u64,
    /// True if all chunks are allocated at creation.
    pub thick: bool,
    /// True if adjacent chunks go to different disks.
    pub striped: bool,
    /// True if requests are cached.
    pub cached: bool,
    /// The write mode. The stricter one of this and the pool's mode applies.
    pub mode: Mode,
    /// Bytes of the pool's read buffer in RAM that are reserved for the most recently read blocks of this disk.
    pub pinned_ram_bytes: u64,
}

/// A change of the map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Adds or replaces the disk of this number.
    Disk(u32, Member),
    /// Removes a disk without used chunks.
    DiskRemoved(u32),
    /// Adds or reshapes the logical disk of this number.
    Logical(u32, Shape),
    /// Deletes a logical disk and frees its chunks.
    LogicalDeleted(u32),
    /// Maps chunks of a logical disk to places.
    Mapped(u32, Run),
    /// Unmaps chunks of a logical disk, given as first and count. They read as zeroes.
    Unmapped(u32, u32, u32),
    /// Replaces the pool's record of its cache.
    Cache(Vec<u8>),
    /// Marks chunks of a logical disk as lost, given as first and count. They return errors.
    Lost(u32, u32, u32),
}

impl Change {
    /// The logical disk whose chunks it changes, if any.
    pub fn logical(&self) -> Option<u32> {
        match self {
            Change::Mapped(id, _) | Change::Unmapped(id, ..) | Change::Lost(id, ..) => Some(*id),
            _ => None,
        }
    }
}

/// Encodes a change.
pub fn encode(change: &Change, out: &mut Vec<u8>) {
    let number = |out: &mut Vec<u8>, number: u32| out.extend(number.to_le_bytes());
    let bytes = |out: &mut Vec<u8>, bytes: &[u8]| {
        out.extend((bytes.len() as u32).to_le_bytes());
        out.extend(bytes);
    };
    match change {
        Change::Disk(id, member) => {
            out.push(1);
            [*id, member.base, member.chunks, member.reserved, u32::from(member.leaving)]
                .into_iter()
                .for_each(|value| number(out, value));
            [member.disk, member.starts[0], member.starts[1]].into_iter().for_each(|uuid| out.extend(uuid.as_bytes()));
            bytes(out, member.path.as_bytes());
        }
        Change::DiskRemoved(id) => {
            out.push(2);
            number(out, *id);
        }
        Change::Logical(id, shape) => {
            out.push(if shape.pinned_ram_bytes > 0 { 10 } else { 3 });
            number(out, *id);
            out.extend(shape.size_bytes.to_le_bytes());
            let flags = u8::from(shape.thick) | u8::from(shape.striped) << 1 | u8::from(shape.cached) << 2;
            out.push(flags | (shape.mode as u8) << 3);
            out.extend(shape.uuid.as_bytes());
            bytes(out, shape.name.as_bytes());
            if shape.pinned_ram_bytes > 0 {
                out.extend(shape.pinned_ram_bytes.to_le_bytes());
            }
        }
        Change::LogicalDeleted(id) => {
            out.push(4);
            number(out, *id);
        }
        Change::Mapped(id, run) => {
            out.push(if run.written { 5 } else { 6 });
            [*id, run.first, run.step, run.chunk, run.count].into_iter().for_each(|value| number(out, value));
        }
        Change::Unmapped(id, first, count) => {
            out.push(7);
            [*id, *first, *count].into_iter().for_each(|value| number(out, value));
        }
        Change::Cache(record) => {
            out.push(8);
            bytes(out, record);
        }
        Change::Lost(id, first, count) => {
            out.push(9);
            [*id, *first, *count].into_iter().for_each(|value| number(out, value));
        }
    }
}

/// Decodes one change and removes it from `rest`. Returns `None` if it is invalid.
pub fn decode(rest: &mut &[u8]) -> Option<Change> {
    fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
        let (taken, left) = rest.split_at_checked(length)?;
        *rest = left;
        Some(taken)
    }
    let number = |rest: &mut &[u8]| Some(u32::from_le_bytes(take(rest, 4)?.try_into().ok()?));
    let long = |rest: &mut &[u8]| Some(u64::from_le_bytes(take(rest, 8)?.try_into().ok()?));
    let uuid = |rest: &mut &[u8]| Uuid::from_slice(take(rest, 16)?).ok();
    let bytes = |rest: &mut &[u8]| {
        let length = number(rest)?;
        Some(take(rest, length as usize)?.to_vec())
    };
    let text = |rest: &mut &[u8]| String::from_utf8(bytes(rest)?).ok();
    Some(match take(rest, 1)?[0] {
        1 => {
            let (id, base, chunks) = (number(rest)?, number(rest)?, number(rest)?);
            let (reserved, leaving) = (number(rest)?, number(rest)? != 0);
            let (disk, starts) = (uuid(rest)?, [uuid(rest)?, uuid(rest)?]);
            Change::Disk(id, Member { disk, path: text(rest)?, base, chunks, reserved, leaving, starts })
        }
        2 => Change::DiskRemoved(number(rest)?),
        kind @ (3 | 10) => {
            let (id, size_bytes, flags) = (number(rest)?, long(rest)?, take(rest, 1)?[0]);
            let [thick, striped, cached] = [1, 2, 4].map(|flag| flags & flag != 0);
            let mode = *Mode::ALL.get(usize::from(flags >> 3 & 3))?;
            let (uuid, name) = (uuid(rest)?, text(rest)?);
            let pinned_ram_bytes = if kind == 10 { long(rest)? } else { 0 };
            Change::Logical(id, Shape { name, uuid, size_bytes, thick, striped, cached, mode, pinned_ram_bytes })
        }
        4 => Change::LogicalDeleted(number(rest)?),
        kind @ (5 | 6) => {
            let (id, first, step) = (number(rest)?, number(rest)?, number(rest)?);
            let (chunk, count) = (number(rest)?, number(rest)?);
            Change::Mapped(id, Run { first, step, chunk, count, written: kind == 5 })
        }
        7 => Change::Unmapped(number(rest)?, number(rest)?, number(rest)?),
        8 => Change::Cache(bytes(rest)?),
        9 => Change::Lost(number(rest)?, number(rest)?, number(rest)?),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_decode_and_truncated_ones_do_not() {
        let member = Member {
            disk: Uuid::from_u128(1),
            path: "/dev/sdb".to_owned(),
            base: 7,
            chunks: 100,
            reserved: 6,
            leaving: true,
            starts: [Uuid::from_u128(2), Uuid::from_u128(3)],
        };
        let shape = Shape {
            name: "größe".to_owned(),
            uuid: Uuid::from_u128(4),
            size_bytes: 5 << 40,
            thick: true,
            striped: false,
            cached: true,
            mode: Mode::WriteAround,
            pinned_ram_bytes: 0,
        };
        let run = Run { first: 1, step: 3, chunk: 9, count: 4, written: false };
        let changes = [
            Change::Disk(3, member),
            Change::DiskRemoved(2),
            Change::Logical(8, shape.clone()),
            Change::Logical(8, Shape { pinned_ram_bytes: 7 << 40, ..shape }),
            Change::LogicalDeleted(8),
            Change::Mapped(1, run),
            Change::Mapped(1, Run { written: true, ..run }),
            Change::Unmapped(1, 2, 3),
            Change::Cache(b"{}".to_vec()),
            Change::Lost(1, 4, 5),
        ];
        let mut all = Vec::new();
        changes.iter().for_each(|change| encode(change, &mut all));
        let mut rest = &all[..];
        for change in &changes {
            assert_eq!(decode(&mut rest).as_ref(), Some(change));
            let mut one = Vec::new();
            encode(change, &mut one);
            for length in 0..one.len() {
                assert_eq!(decode(&mut &one[..length]), None, "{change:?} cut to {length}");
            }
        }
        assert!(rest.is_empty());
        assert_eq!(decode(&mut &[77u8; 64][..]), None);
    }
}
