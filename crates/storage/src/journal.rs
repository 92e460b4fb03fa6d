//! The [journal](flashwise_core::journal) of a volume: set up, checked, and written into place at a start.

use std::io;

use flashwise_core::format::{BLOCK_BYTES, Page};
use flashwise_core::journal::{Group, Head, Journal};
use flashwise_engine::memory::Memory;
use uuid::Uuid;

use crate::disk::Disk;

/// The first pages of a journal: its marks.
const MARKS: usize = 2;
/// Maximum number of blocks in one transfer.
const RUN_BLOCKS: usize = 256;
/// Minimum number of bytes of a journal.
pub const BYTES_MIN: u64 = 64 << 20;
/// Maximum number of bytes of a journal that are used.
pub const BYTES_MAX: u64 = 1 << 30;

/// Why a journal is not used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum JournalError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it does not exist; the backend has journal {expected}, which may have blocks that the backend lacks")]
    Absent { expected: Uuid },
    #[error(
        "none is configured; the backend has journal {expected}, which may have blocks that the backend lacks. Name it \
         with the key journal, or with --journal"
    )]
    NotGiven { expected: Uuid },
    #[error("found {found} bytes, expected at least {BYTES_MIN}")]
    TooSmall { found: u64 },
    #[error("it is the journal of backend {found}, expected that of {expected}")]
    OtherBackend { found: Uuid, expected: Uuid },
    #[error("it is journal {found}, expected {expected}, which may have blocks that the backend lacks")]
    Other { found: Uuid, expected: Uuid },
    #[error("it is blank or damaged, expected journal {expected}, which may have blocks that the backend lacks")]
    Missing { expected: Uuid },
    #[error("it is not blank, expected a journal or zeroes in its first {} bytes", MARKS * BLOCK_BYTES)]
    Foreign,
}

/// A journal without a group that is not in place.
#[derive(Clone, Copy, Debug)]
pub struct Opened {
    /// The journal.
    pub journal: Journal,
    /// The blocks that were written into place, if there was a whole group without its mark.
    pub replayed_blocks: Option<usize>,
    /// The journal of the backend that was given up for this one.
    pub given_up: Option<Uuid>,
}

/// A disk, by way of memory that is aligned for direct I/O.
struct Aligned<'a> {
    disk: &'a dyn Disk,
    memory: Memory,
}

impl<'a> Aligned<'a> {
    fn new(disk: &'a dyn Disk) -> Aligned<'a> {
        Aligned { disk, memory: Memory::new(RUN_BLOCKS) }
    }

    fn read(&mut self, page: u32, bytes: &mut [u8]) -> io::Result<()> {
        for (number, part) in bytes.chunks_mut(RUN_BLOCKS * BLOCK_BYTES).enumerate() {
            let memory = &mut self.memory.bytes_mut()[..part.len()];
            let at = u64::from(page) + (number * RUN_BLOCKS) as u64;
            self.disk.read_at(memory, at * BLOCK_BYTES as u64)?;
            part.copy_from_slice(memory);
        }
        Ok(())
    }

    fn write(&mut self, page: u32, bytes: &[u8]) -> io::Result<()> {
        for (number, part) in bytes.chunks(RUN_BLOCKS * BLOCK_BYTES).enumerate() {
            let memory = &mut self.memory.bytes_mut()[..part.len()];
            memory.copy_from_slice(part);
            let at = u64::from(page) + (number * RUN_BLOCKS) as u64;
            self.disk.write_at(memory, at * BLOCK_BYTES as u64)?;
        }
        Ok(())
    }

    fn write_mark(&mut self, head: &Head) -> io::Result<()> {
        self.write(head.mark_page(), &head.mark())?;
        self.disk.sync()
    }
}

/// Opens the journal of a backend with this identity. `expected` is the UUID of its journal in the backend's record; a
/// backend without one gets this journal. So does one whose flash is given up, if this journal is blank. A whole group
/// without its mark is written into place.
///
/// # Errors
/// It is another journal, or a device fails.
pub fn open(
    journal: &dyn Disk,
    backend: &dyn Disk,
    identity: [u8; 16],
    expected: Option<Uuid>,
    gives_up: bool,
) -> Result<Opened, JournalError> {
    let pages = journal.size() / BLOCK_BYTES as u64;
    let mut journal = Aligned::new(journal);
    let mut marks: [Page; MARKS] = [[0; BLOCK_BYTES]; MARKS];
    journal.read(0, marks.as_flattened_mut())?;
    let found = Head::last(&marks);
    if let Some(found) = found.filter(|found| found.backend != identity) {
        let (found, expected) = (Uuid::from_bytes(found.backend), Uuid::from_bytes(identity));
        return Err(JournalError::OtherBackend { found, expected });
    }
    let is_blank = marks.as_flattened().iter().all(|&byte| byte == 0);
    let given_up = expected.filter(|_| gives_up && is_blank);
    let mut last = match (expected.filter(|_| given_up.is_none()), found) {
        (Some(expected), Some(found)) if found.journal == expected.into_bytes() => found,
        (Some(expected), Some(found)) => {
            return Err(JournalError::Other { found: Uuid::from_bytes(found.journal), expected });
        }
        (Some(expected), None) => return Err(JournalError::Missing { expected }),
        (None, None) if !is_blank => return Err(JournalError::Foreign),
        (None, _) => {
            journal.write(0, &[0; MARKS * BLOCK_BYTES])?;
            Head { journal: Uuid::new_v4().into_bytes(), backend: identity, ..Head::default() }
        }
    };
    let group = Group::find(&last, pages, |page, bytes| journal.read(page, bytes))?;
    if let Some(group) = &group {
        // If only the server ended, the device may still lose it.
        journal.disk.sync()?;
        let mut backend = Aligned::new(backend);
        let read = |page: u32, bytes: &mut [u8]| journal.read(page, bytes);
        let is_whole = group.read(read, |blocks, bytes| put_in_place(&mut backend, blocks, bytes))?;
        if !is_whole {
            return Err(io::Error::other("it changed while it was read").into());
        }
        backend.disk.sync()?;
        last = group.head;
    } else {
        // Parts of a group may be left. The next one, which may have pages in common with it, must not complete it.
        last.number += 1;
    }
    // Of a server that was killed, the device could still lose the mark that was found.
    journal.write_mark(&last)?;
    let replayed_blocks = group.map(|group| group.blocks.len());
    Ok(Opened { journal: Journal { pages, last }, replayed_blocks, given_up })
}

/// Writes blocks to the backend, as few runs as possible.
fn put_in_place(backend: &mut Aligned<'_>, blocks: &[(u32, u32)], mut bytes: &[u8]) -> io::Result<()> {
    let follows = |one: &(u32, u32), other: &(u32, u32)| one.0 + 1 == other.0;
    for run in blocks.chunk_by(follows) {
        let (content, rest) = bytes.split_at(run.len() * BLOCK_BYTES);
        backend.write(run[0].0, content)?;
        bytes = rest;
    }
    Ok(())
}
