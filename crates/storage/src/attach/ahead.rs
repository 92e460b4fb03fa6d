//! Backends that may have more than the flash records as written back in order. The flash could not be written, or a
//! group of epochs was being written into place, and its journal is gone.

use std::io;

use flashwise_core::format::{State, Superblock};

use super::{Attachment, BackendSide, Record, RecordedJournal};

/// Lets all dirty blocks of such a flash be one epoch. A part of the recorded epochs would replace newer data.
pub(crate) fn forget_epochs(superblock: &mut Superblock, record: Option<&Record>, has_journal: bool) {
    let was_in_use = superblock.state == State::InUse;
    let in_journal = |record: &Record| was_in_use || record.closed.as_ref().is_some_and(|closed| closed.in_journal);
    let is_ahead =
        |record: &Record| record.is_ahead || record.journal.id.is_some() && !has_journal && in_journal(record);
    if record.is_some_and(is_ahead) {
        superblock.epochs = superblock.epochs.map(|_| Superblock::NO_EPOCHS);
    }
}

/// Records that blocks of an unused cache are written back in order, although its flash does not record that. `record`
/// is the backend's, or `None` if that is damaged: then it is replaced.
///
/// # Errors
/// The record cannot be written.
pub(crate) fn note_ahead(superblock: &Superblock, record: Option<&Record>, side: &dyn BackendSide) -> io::Result<()> {
    let mut attachment = Attachment::of(superblock.clone(), side.inode());
    if let Some(record) = record {
        attachment.record = record.clone();
    }
    attachment.note_ahead(side)
}

impl Attachment {
    /// Returns the journal in the backend's record.
    pub fn journal(&self) -> &RecordedJournal {
        &self.record.journal
    }

    /// Names the journal in the backend's record. Another one does not count from then on.
    pub fn name_journal(&mut self, side: &dyn BackendSide, journal: RecordedJournal) -> io::Result<()> {
        if self.record.journal != journal {
            let record = Record { journal, ..self.record.clone() };
            side.write(&record)?;
            self.record = record;
        }
        Ok(())
    }

    /// Records that blocks are written back in order from a flash that can no longer record that.
    pub fn note_ahead(&mut self, side: &dyn BackendSide) -> io::Result<()> {
        if !self.record.is_ahead {
            let record = Record { is_ahead: true, ..self.record.clone() };
            side.write(&record)?;
            self.record = record;
        }
        Ok(())
    }
}
