//! The [journal](crate::journal) of a backend without a server: its last group is written into place.

use std::path::Path;

use crate::attach::{BackendSide, Pairing, RecordedJournal};
use crate::disk::Disk;
use crate::journal::{JournalError, JournalOwner, Opened, open};

/// The journal that a command was given.
#[derive(Clone, Copy)]
pub enum GivenJournal<'a> {
    /// None.
    Nothing,
    /// A path where nothing is.
    Absent(&'a Path),
    /// A disk.
    Disk(&'a dyn Disk),
}

impl GivenJournal<'_> {
    /// Returns its path after a space, or nothing.
    pub(super) fn path(&self) -> String {
        match self {
            GivenJournal::Nothing => String::new(),
            GivenJournal::Absent(path) => format!(" {}", path.display()),
            GivenJournal::Disk(disk) => format!(" {}", disk.description()),
        }
    }

    /// Writes the last group of the journal in the backend's record into place. Otherwise, a start would later write it
    /// over newer data. Returns the journal, if the record names one. If it `gives_up`, one that is lost or damaged is
    /// left out.
    pub(super) fn complete(
        &self,
        backend: &dyn Disk,
        side: &dyn BackendSide,
        pairing: &Pairing,
        recorded: RecordedJournal,
        gives_up: bool,
    ) -> Result<Option<Opened>, JournalError> {
        let Some(expected) = recorded.id else { return Ok(None) };
        let opened = match self {
            GivenJournal::Nothing => Err(JournalError::NotGiven { expected }),
            GivenJournal::Absent(_) => Err(JournalError::Absent { expected }),
            GivenJournal::Disk(disk) => {
                let owner = JournalOwner { identity: pairing.backend, recorded, parts: side.parts(), gives_up };
                open(*disk, backend, &owner)
            }
        };
        let completed = opened.and_then(|opened| match opened.waits_for.is_empty() || gives_up {
            true => Ok(Some(opened)),
            false => Err(JournalError::Waits { paths: opened.waits_for.into_iter().map(|part| part.path).collect() }),
        });
        match completed {
            Err(error) if gives_up && error.is_of_lost_journal() => Ok(None),
            completed => completed,
        }
    }
}
