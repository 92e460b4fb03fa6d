//! Backends that may have more than the flash records as written back in order, because the flash could not be written.

use std::io;

use flashwise_core::format::Superblock;

use super::{Attachment, BackendSide, Record};

/// Lets all dirty blocks of such a flash be one epoch. A part of the recorded epochs would replace newer data.
pub(super) fn forget_epochs(superblock: &mut Superblock, record: Option<&Record>) {
    if record.is_some_and(|record| record.is_ahead) {
        superblock.epochs = superblock.epochs.map(|_| Superblock::NO_EPOCHS);
    }
}

impl Attachment {
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
