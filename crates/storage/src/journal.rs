//! The [journal](flashwise_core::journal) of a volume: set up, checked, and written into place at a start.

use std::io;

use flashwise_core::format::{BLOCK_BYTES, Page};
use flashwise_core::journal::{Group, Head, Journal};
use flashwise_engine::memory::Memory;
use uuid::Uuid;

use crate::attach::{BackendPart, RecordedJournal};
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
    #[error("it was cut short: found {found} bytes, expected at least {expected}")]
    CutShort { found: u64, expected: u64 },
    #[error("it is the journal of backend {found}, expected that of {expected}")]
    OtherBackend { found: Uuid, expected: Uuid },
    #[error("it is journal {found}, expected {expected}, which may have blocks that the backend lacks")]
    Other { found: Uuid, expected: Uuid },
    #[error("it is blank or damaged, expected journal {expected}, which may have blocks that the backend lacks")]
    Missing { expected: Uuid },
    #[error("it is not blank, expected a journal or zeroes in its first {} bytes", MARKS * BLOCK_BYTES)]
    Foreign,
    #[error("its last group is damaged, and a disk that was missing lacks blocks of it")]
    Damaged,
    #[error("its last group cannot be written to {disk}: {error}{}", if *.of_pool { WITHOUT_DISK } else { "" })]
    Place { disk: String, error: io::Error, of_pool: bool },
    #[error("blocks of its last group wait for {}, which is missing", paths.join(" and "))]
    Waits { paths: Vec<String> },
}

/// The way out if a lost journal has blocks of a disk that was missing.
const WITHOUT_BLOCKS: &str = ". It has blocks of a disk that was missing. If it is lost, put that disk back, and give \
                              those blocks up with 'flashwise detach --salvage --discard-rest'";
/// The way out for a pool with a failing disk.
const WITHOUT_DISK: &str = "; to start without that disk, leave it out of disks and set degraded = true";

impl JournalError {
    /// True if a retry can succeed.
    pub fn is_of_device(&self) -> bool {
        matches!(self, JournalError::Io(_) | JournalError::Place { .. })
    }

    /// Returns the advice for a start without this journal, or nothing. `gives_up` is true if the flash is given up.
    /// The journal `waits` if it has blocks of a disk that was missing.
    pub fn way_out(&self, gives_up: bool, waits: bool) -> &'static str {
        match self {
            JournalError::Absent { .. } | JournalError::Missing { .. } | JournalError::CutShort { .. } if gives_up => {
                ". If it is lost, give a new journal that is blank"
            }
            JournalError::Absent { .. } | JournalError::Missing { .. } | JournalError::CutShort { .. } if waits => {
                WITHOUT_BLOCKS
            }
            JournalError::NotGiven { .. } if waits && !gives_up => WITHOUT_BLOCKS,
            JournalError::Absent { .. } | JournalError::Missing { .. } | JournalError::CutShort { .. } => {
                ". If it is lost, remove the key journal, and set write-back-order = \"barriers\""
            }
            _ => "",
        }
    }

    /// True if an operator may give up the journal. One of another backend is only the wrong one.
    pub fn is_of_lost_journal(&self) -> bool {
        match self {
            JournalError::Absent { .. } | JournalError::NotGiven { .. } | JournalError::Missing { .. } => true,
            JournalError::CutShort { .. } | JournalError::Damaged | JournalError::Waits { .. } => true,
            JournalError::Io(_) | JournalError::Place { .. } | JournalError::TooSmall { .. } => false,
            JournalError::OtherBackend { .. } | JournalError::Other { .. } | JournalError::Foreign => false,
        }
    }
}

/// The backend of a journal.
#[derive(Clone, Debug)]
pub struct JournalOwner {
    /// The identity of the backend.
    pub identity: [u8; 16],
    /// The journal in its record.
    pub recorded: RecordedJournal,
    /// Its parts that can be missing.
    pub parts: Vec<BackendPart>,
    /// True if its flash is given up.
    pub gives_up: bool,
}

impl JournalOwner {
    /// Returns a volume's backend, whose record names this journal.
    pub fn of_volume(identity: [u8; 16], id: Option<Uuid>) -> JournalOwner {
        let recorded = RecordedJournal { id, ..RecordedJournal::default() };
        JournalOwner { identity, recorded, parts: Vec::new(), gives_up: false }
    }

    /// Returns the parts for which blocks of a group are still to be written: those of the record, or else all.
    fn is_open(&self, part: &BackendPart) -> bool {
        self.recorded.waits_for.is_empty() || self.recorded.waits_for.contains(&part.id)
    }

    fn part_of(&self, block: u32) -> Option<&BackendPart> {
        self.parts.iter().find(|part| part.blocks.contains(&block))
    }

    /// True if a start writes a block of the group into place.
    fn takes(&self, block: u32) -> bool {
        match self.part_of(block) {
            Some(part) => !part.is_missing && self.is_open(part),
            None => self.recorded.waits_for.is_empty(),
        }
    }

    /// Returns the missing parts that lack blocks of a group.
    fn missing(&self, group: &Group) -> Vec<BackendPart> {
        let lacks = |part: &&BackendPart| {
            part.is_missing && self.is_open(part) && group.blocks.iter().any(|(block, _)| part.blocks.contains(block))
        };
        self.parts.iter().filter(lacks).cloned().collect()
    }
}

/// A journal whose last group is in place, as far as the backend is there.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The journal. Its last group is that in place, or that which [waits](Self::waits_for).
    pub journal: Journal,
    /// The blocks that were written into place, if there was a whole group without its mark.
    pub replayed_blocks: Option<usize>,
    /// The journal of the backend that was given up for this one.
    pub given_up: Option<Uuid>,
    /// The missing parts of the backend that lack blocks of the last group. Meanwhile, the journal takes no other.
    pub waits_for: Vec<BackendPart>,
}

impl Opened {
    /// Returns what the backend's record has to name.
    pub fn recorded(&self) -> RecordedJournal {
        let id = Some(Uuid::from_bytes(self.journal.last.journal));
        RecordedJournal { id, waits_for: self.waits_for.iter().map(|part| part.id).collect() }
    }
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

    /// Reads pages of a journal. It had them when they were written.
    fn read(&mut self, page: u32, bytes: &mut [u8]) -> Result<(), JournalError> {
        let (found, expected) = (self.disk.size(), u64::from(page) * BLOCK_BYTES as u64 + bytes.len() as u64);
        if expected > found {
            return Err(JournalError::CutShort { found, expected });
        }
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

    /// Returns the group that follows `last`, if it is whole.
    fn find_group(&mut self, last: &Head) -> Result<Option<Group>, JournalError> {
        Group::find(last, BYTES_MAX / BLOCK_BYTES as u64, |page, bytes| self.read(page, bytes))
    }

    fn read_marks(&mut self) -> Result<[Page; MARKS], JournalError> {
        let mut marks = [[0; BLOCK_BYTES]; MARKS];
        self.read(0, marks.as_flattened_mut())?;
        Ok(marks)
    }

    fn write_mark(&mut self, head: &Head) -> io::Result<()> {
        self.write(head.mark_page(), &head.mark())?;
        self.disk.sync()
    }
}

/// Opens the journal of a backend. A backend without one in its record gets this journal. So does one whose flash is
/// given up, if this journal is blank. A whole group without its mark is written into place. It keeps no mark while a
/// part of the backend is missing that lacks blocks of it.
///
/// # Errors
/// It is another journal, or a device fails.
pub fn open(journal: &dyn Disk, backend: &dyn Disk, owner: &JournalOwner) -> Result<Opened, JournalError> {
    let JournalOwner { identity, recorded: RecordedJournal { id: expected, .. }, .. } = *owner;
    let pages = journal.size() / BLOCK_BYTES as u64;
    let mut journal = Aligned::new(journal);
    let marks = journal.read_marks()?;
    let found = Head::last(&marks);
    if let Some(found) = found.filter(|found| found.backend != identity) {
        let (found, expected) = (Uuid::from_bytes(found.backend), Uuid::from_bytes(identity));
        return Err(JournalError::OtherBackend { found, expected });
    }
    let is_blank = marks.as_flattened().iter().all(|&byte| byte == 0);
    let given_up = expected.filter(|_| owner.gives_up && is_blank);
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
    let group = journal.find_group(&last)?;
    let (mut waits_for, mut replayed_blocks) = (Vec::new(), None);
    if let Some(group) = &group {
        // If only the server ended, the device may still lose it.
        journal.disk.sync()?;
        replayed_blocks = put_in_place(&mut journal, backend, owner, group)?;
        waits_for = owner.missing(group);
        last = group.head;
    } else if !owner.recorded.waits_for.is_empty() && !owner.gives_up {
        // The start that wrote its mark ended before it changed the record.
        let before = Head { number: last.number.saturating_sub(1), ..last };
        if journal.find_group(&before)?.is_none() {
            return Err(JournalError::Damaged);
        }
    } else {
        // Parts of a group may be left. The next one, which may have pages in common with it, must not complete it.
        last.number += 1;
    }
    if waits_for.is_empty() {
        // Of a server that was killed, the device could still lose the mark that was found.
        journal.write_mark(&last)?;
    }
    Ok(Opened { journal: Journal { pages, last }, replayed_blocks, given_up, waits_for })
}

/// Makes a journal blank, durably, if it belongs to this backend.
///
/// # Errors
/// The device fails.
pub fn clear(journal: &dyn Disk, identity: [u8; 16]) -> io::Result<()> {
    if journal.size() < (MARKS * BLOCK_BYTES) as u64 {
        return Ok(());
    }
    let mut journal = Aligned::new(journal);
    let marks = journal.read_marks().map_err(io::Error::other)?;
    if Head::last(&marks).is_some_and(|last| last.backend == identity) {
        journal.write(0, &[0; MARKS * BLOCK_BYTES])?;
        journal.disk.sync()?;
    }
    Ok(())
}

/// Writes a group to the backend, in as few runs as possible. Returns the number of blocks, if there are any.
fn put_in_place(
    journal: &mut Aligned<'_>,
    backend: &dyn Disk,
    owner: &JournalOwner,
    group: &Group,
) -> Result<Option<usize>, JournalError> {
    let mut to = Aligned::new(backend);
    let mut count = 0;
    let follows =
        |one: &(u32, u32), other: &(u32, u32)| one.0 + 1 == other.0 && owner.takes(one.0) == owner.takes(other.0);
    let write = |blocks: &[(u32, u32)], mut bytes: &[u8]| -> Result<(), JournalError> {
        for run in blocks.chunk_by(follows) {
            let (content, rest) = bytes.split_at(run.len() * BLOCK_BYTES);
            bytes = rest;
            if owner.takes(run[0].0) {
                to.write(run[0].0, content).map_err(|error| failed(backend, owner, run[0].0, error))?;
                count += run.len();
            }
        }
        Ok(())
    };
    if !group.read(|page, bytes| journal.read(page, bytes), write)? {
        return Err(io::Error::other("it changed while it was read").into());
    }
    backend.sync().map_err(|error| failed(backend, owner, u32::MAX, error))?;
    Ok((count > 0).then_some(count))
}

/// Returns the error of a write to the part of the backend with a block.
fn failed(backend: &dyn Disk, owner: &JournalOwner, block: u32, error: io::Error) -> JournalError {
    let disk = owner.part_of(block).map_or_else(|| backend.description(), |part| part.path.clone());
    JournalError::Place { disk, error, of_pool: !owner.parts.is_empty() }
}
