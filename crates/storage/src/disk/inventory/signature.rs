//! Detects the contents of a disk by the magic numbers of formats.
//!
//! Source: the descriptions of the formats: the kernel's documentation of ext4, md and bcache, `linux/magic.h`, the
//! specifications of UEFI (GPT), LUKS and LVM2. Crates that detect more formats need libblkid at run time.

use std::io;

use flashwise_core::journal::MARK_MAGIC;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// Detected contents of a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Signature {
    /// The format, named as by blkid(8), such as `ext4`, `xfs`, `gpt` or `lvm2`. This program's are `flashwise-cache`,
    /// `flashwise-journal` and `flashwise-pool`.
    pub kind: String,
    /// The label of a file system, or the name of a pool, if it has one.
    #[serde(default)]
    pub label: Option<String>,
    /// The UUID, if any.
    #[serde(default)]
    pub uuid: Option<String>,
}

/// The kind of a cache of this program.
pub const CACHE: &str = "flashwise-cache";
/// The kind of a [journal](crate::journal).
pub const JOURNAL: &str = "flashwise-journal";
/// The kind of a disk of a pool.
pub const POOL: &str = "flashwise-pool";
/// The magic number of a label of a pool's disk.
pub const POOL_MAGIC: [u8; 8] = *b"fwpooldk";

/// The position of a magic number.
enum At {
    /// Bytes from the start.
    Start(usize),
    /// Bytes from the end at least, rounded down to a multiple of the second number.
    End(u64, u64),
}

use At::{End, Start};

/// Formats with one magic number. Formats that need more checks have code below.
const MAGICS: &[(&str, At, &[u8])] = &[
    (CACHE, Start(0), b"flashwis"),
    (CACHE, Start(4096), b"flashwis"),
    (JOURNAL, Start(0), &MARK_MAGIC),
    (JOURNAL, Start(4096), &MARK_MAGIC),
    (POOL, Start(0), &POOL_MAGIC),
    (POOL, Start(64 << 10), &POOL_MAGIC),
    ("xfs", Start(0), b"XFSB"),
    ("btrfs", Start(0x1_0040), b"_BHRfS_M"),
    ("f2fs", Start(1024), &[0x10, 0x20, 0xf5, 0xf2]),
    ("bcachefs", Start(4096 + 24), &BCACHEFS),
    ("bcache", Start(4096 + 24), &BCACHE),
    ("erofs", Start(1024), &[0xe2, 0xe1, 0xf5, 0xe0]),
    ("squashfs", Start(0), b"hsqs"),
    ("iso9660", Start(0x8001), b"CD001"),
    ("ntfs", Start(3), b"NTFS    "),
    ("exfat", Start(3), b"EXFAT   "),
    ("vfat", Start(82), b"FAT32   "),
    ("vfat", Start(54), b"FAT16   "),
    ("vfat", Start(54), b"FAT12   "),
    ("swap", Start(4086), b"SWAPSPACE2"),
    ("lvm2", Start(512 + 24), b"LVM2 001"),
    ("lvm2", Start(24), b"LVM2 001"),
    ("luks", Start(0), b"LUKS\xba\xbe"),
    ("bluestore", Start(0), b"bluestore block device"),
    ("md", Start(0), &MD),
    ("md", Start(4096), &MD),
    ("md", End(8 << 10, 4 << 10), &MD),
    ("md", End(64 << 10, 64 << 10), &MD),
    ("gpt", Start(512), b"EFI PART"),
    ("gpt", Start(4096), b"EFI PART"),
    ("gpt", End(512, 512), b"EFI PART"),
];

const MD: [u8; 4] = 0xa92b_4efcu32.to_le_bytes();
const BCACHE: [u8; 16] =
    [0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca, 0x82, 0x65, 0xf5, 0x7f, 0x48, 0xba, 0x6d, 0x81];
const BCACHEFS: [u8; 16] =
    [0xc6, 0x85, 0x73, 0xf6, 0x66, 0xce, 0x90, 0xa9, 0xd9, 0x6a, 0x60, 0xcf, 0x80, 0x3d, 0xf7, 0xef];

/// The positions of labels and UUIDs: kind, offset of the UUID, offset and maximum length of the label. The label of a
/// pool's disk is the name of the pool.
const NAMES: [(&str, usize, usize, usize); 9] = [
    (CACHE, 24, 0, 0),
    (JOURNAL, 12, 0, 0),
    (POOL, 32, 81, 64),
    ("ext2", 0x468, 0x478, 16),
    ("ext3", 0x468, 0x478, 16),
    ("ext4", 0x468, 0x478, 16),
    ("xfs", 32, 108, 12),
    ("btrfs", 0x1_0020, 0x1_012b, 256),
    ("swap", 1036, 1052, 16),
];

/// Bytes read at the start.
const HEAD_BYTES: u64 = 1 << 20;
/// Bytes read at the end.
const TAIL_BYTES: u64 = 128 << 10;

/// The start and the end of a disk, where formats keep their magic numbers.
#[derive(Clone, Debug)]
pub struct Ends {
    size: u64,
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl Ends {
    /// Reads both ends of a disk of `size` bytes with `read_at`.
    pub fn read(size: u64, mut read_at: impl FnMut(&mut [u8], u64) -> io::Result<()>) -> io::Result<Ends> {
        let mut head = vec![0; size.min(HEAD_BYTES) as usize];
        read_at(&mut head, 0)?;
        let tail = size.min(TAIL_BYTES);
        let mut ends = Ends { size, head, tail: vec![0; tail as usize] };
        read_at(&mut ends.tail, size - tail)?;
        Ok(ends)
    }

    fn head(&self, at: usize, length: usize) -> Option<&[u8]> {
        self.head.get(at..at + length)
    }

    fn has(&self, at: &At, magic: &[u8]) -> bool {
        match *at {
            Start(at) => self.head(at, magic.len()) == Some(magic),
            End(distance, multiple) => {
                let Some(at) = self.size.checked_sub(distance).map(|at| at / multiple * multiple) else { return false };
                let Some(at) = at.checked_sub(self.size - self.tail.len() as u64) else { return false };
                self.tail.get(at as usize..at as usize + magic.len()) == Some(magic)
            }
        }
    }

    /// True if both ends are all zeroes.
    pub fn are_blank(&self) -> bool {
        self.head.iter().chain(&self.tail).all(|&byte| byte == 0)
    }

    /// Returns the detected contents, without duplicates.
    pub fn signatures(&self) -> Vec<Signature> {
        let mut kinds: Vec<&str> = Vec::new();
        let mut add = |kind| {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        };
        MAGICS.iter().filter(|(_, at, magic)| self.has(at, magic)).for_each(|(kind, ..)| add(kind));
        self.ext().into_iter().for_each(&mut add);
        if self.is_zfs() {
            add("zfs_member");
        }
        if self.has_partition_table() && kinds.is_empty() {
            kinds.push("dos");
        }
        kinds.into_iter().map(|kind| self.named(kind)).collect()
    }

    /// Distinguishes ext2, ext3 and ext4 by their features: a journal, and features that only ext4 has, such as
    /// extents.
    fn ext(&self) -> Option<&'static str> {
        const HAS_JOURNAL: u32 = 0x4;
        const OF_EXT3: u32 = 0x2 | 0x4 | 0x8 | 0x10;
        if self.head(0x438, 2)? != [0x53, 0xef] {
            return None;
        }
        let number = |at| Some(u32::from_le_bytes(self.head(at, 4)?.try_into().ok()?));
        let (compatible, incompatible) = (number(0x45c)?, number(0x460)?);
        Some(match (incompatible & !OF_EXT3 != 0, compatible & HAS_JOURNAL != 0) {
            (true, _) => "ext4",
            (false, true) => "ext3",
            (false, false) => "ext2",
        })
    }

    /// The first label of ZFS has its uberblocks from 128 KiB on, one in each KiB.
    fn is_zfs(&self) -> bool {
        let magic = 0x00ba_b10cu64.to_le_bytes();
        (0..128).any(|number| self.head((128 + number) << 10, 8) == Some(&magic))
    }

    /// A master boot record has a signature and a valid entry: active or not, with a type and a size.
    fn has_partition_table(&self) -> bool {
        let is_one = |entry: &[u8]| entry[0] & 0x7f == 0 && entry[4] != 0 && entry[12..16] != [0; 4];
        self.head(510, 2) == Some(&[0x55, 0xaa])
            && self.head(446, 64).is_some_and(|entries| entries.chunks(16).any(is_one))
    }

    fn named(&self, kind: &str) -> Signature {
        let mut signature = Signature { kind: kind.to_owned(), ..Signature::default() };
        if let Some(&(_, uuid, label, length)) = NAMES.iter().find(|(known, ..)| *known == kind) {
            // If the first copy is damaged, the second is used.
            let copies = MAGICS.iter().filter(|(of, at, magic)| *of == kind && self.has(at, magic));
            let starts = copies.filter_map(|(_, at, _)| if let Start(at) = at { Some(*at) } else { None });
            let copy = if [CACHE, JOURNAL, POOL].contains(&kind) { starts.min().unwrap_or(0) } else { 0 };
            let (uuid, label) = (copy + uuid, copy + label);
            let text = self.head(label, length).map(|bytes| {
                String::from_utf8_lossy(bytes.split(|&byte| byte == 0).next().unwrap_or_default()).into_owned()
            });
            signature.label = text.filter(|text| !text.is_empty());
            let uuid = self.head(uuid, 16).and_then(|bytes| Uuid::from_slice(bytes).ok());
            signature.uuid = uuid.filter(|uuid| !uuid.is_nil()).map(|uuid| uuid.to_string());
        }
        signature
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(size: usize, marks: &[(usize, &[u8])]) -> Ends {
        let mut disk = vec![0; size];
        for (at, mark) in marks {
            disk[*at..at + mark.len()].copy_from_slice(mark);
        }
        Ends::read(size as u64, |buffer, offset| {
            buffer.copy_from_slice(&disk[offset as usize..][..buffer.len()]);
            Ok(())
        })
        .unwrap()
    }

    fn kinds(size: usize, marks: &[(usize, &[u8])]) -> Vec<String> {
        ends(size, marks).signatures().into_iter().map(|signature| signature.kind).collect()
    }

    #[test]
    fn what_this_program_writes_has_its_names_from_the_copy_that_is_whole() {
        let uuid = Uuid::from_u128(0x1234_5678_9abc_def0_1122_3344_5566_7788);
        let of = |kind: &str, label: Option<&str>| {
            let (kind, label) = (kind.to_owned(), label.map(str::to_owned));
            [Signature { kind, label, uuid: Some(uuid.to_string()) }]
        };
        for copy in [0, 64 << 10] {
            let marks: [(usize, &[u8]); 3] =
                [(copy, &POOL_MAGIC), (copy + 32, uuid.as_bytes()), (copy + 80, b"\x04tank")];
            assert_eq!(ends(4 << 20, &marks).signatures(), of(POOL, Some("tank")));
        }
        for copy in [0, 4096] {
            let marks: [(usize, &[u8]); 2] = [(copy, b"flashwis"), (copy + 24, uuid.as_bytes())];
            assert_eq!(ends(4 << 20, &marks).signatures(), of(CACHE, None));
            let marks: [(usize, &[u8]); 2] = [(copy, b"FWJM"), (copy + 12, uuid.as_bytes())];
            assert_eq!(ends(4 << 20, &marks).signatures(), of(JOURNAL, None));
        }
    }

    #[test]
    fn a_format_is_known_by_its_magic_number_at_its_place_and_nowhere_else() {
        let size = 4 << 20;
        assert_eq!(kinds(size, &[(0, b"XFSB")]), ["xfs"]);
        assert!(kinds(size, &[(512, b"XFSB")]).is_empty());
        assert_eq!(kinds(size, &[(4086, b"SWAPSPACE2")]), ["swap"]);
        assert_eq!(kinds(size, &[(0, b"LUKS\xba\xbe\x00\x02")]), ["luks"]);
        assert_eq!(kinds(size, &[((64 << 10), &POOL_MAGIC)]), [POOL], "the first label may be overwritten");
        assert_eq!(kinds(size, &[(4096, b"flashwis")]), [CACHE]);
        assert_eq!(kinds(size, &[(130 << 10, &0x00ba_b10cu64.to_le_bytes())]), ["zfs_member"]);
        assert!(ends(size, &[]).are_blank() && !ends(size, &[(size - 1, &[1])]).are_blank());
    }

    /// Version 1.0 of md keeps its superblock 8 to 12 KiB before the end, at a multiple of 4 KiB. Version 0.90 keeps it
    /// 64 to 128 KiB before the end, at a multiple of 64 KiB.
    #[test]
    fn signatures_at_the_end_are_found_for_any_size() {
        let size = (4 << 20) + 512;
        assert_eq!(kinds(size, &[((4 << 20) - (8 << 10), &MD)]), ["md"]);
        assert_eq!(kinds(size, &[((4 << 20) - (64 << 10), &MD)]), ["md"]);
        assert_eq!(kinds(size, &[(size - 512, b"EFI PART")]), ["gpt"], "a partition table whose beginning is gone");
        assert!(kinds(300, &[(0, b"XFS")]).is_empty(), "a disk that is smaller than all of it");
    }

    #[test]
    fn ext_file_systems_are_distinguished_and_have_their_names() {
        let uuid = [7; 16];
        let ext = |compatible: u32, incompatible: u32| {
            let (compatible, incompatible) = (compatible.to_le_bytes(), incompatible.to_le_bytes());
            let marks: [(usize, &[u8]); 5] = [
                (0x438, &[0x53, 0xef]),
                (0x45c, &compatible),
                (0x460, &incompatible),
                (0x468, &uuid),
                (0x478, b"home"),
            ];
            ends(1 << 20, &marks).signatures().remove(0)
        };
        assert_eq!(ext(0, 0x2).kind, "ext2");
        assert_eq!(ext(0x4, 0x6).kind, "ext3");
        let ext4 = ext(0x4, 0x2c2);
        assert_eq!((ext4.kind.as_str(), ext4.label.as_deref()), ("ext4", Some("home")));
        assert_eq!(ext4.uuid, Some(Uuid::from_bytes(uuid).to_string()));
    }

    #[test]
    fn a_boot_record_without_partitions_and_that_of_a_file_system_are_no_partition_table() {
        let entry: [u8; 16] = [0x80, 0, 2, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 0, 1, 0];
        assert_eq!(kinds(1 << 20, &[(510, &[0x55, 0xaa]), (446, &entry)]), ["dos"]);
        assert!(kinds(1 << 20, &[(510, &[0x55, 0xaa])]).is_empty());
        assert_eq!(kinds(1 << 20, &[(510, &[0x55, 0xaa]), (82, b"FAT32   "), (446, &entry)]), ["vfat"]);
    }
}
