//! The flash of a volume, and the records of its cache on both devices.

use std::io;
use std::sync::Arc;

use super::state::Without;
use crate::attach::{AttachError, Attachment, BackendSide, attach_again, note_detached};
use crate::disk::Disk;
use crate::layout::End;
use crate::time::Mutex;

/// The flash of a volume, and the records of its cache on both devices.
pub(super) struct Pair {
    /// The flash; an empty disk for a volume without one.
    pub flash: Arc<dyn Disk>,
    /// The pair; `None` without a flash.
    attachment: Mutex<Option<Attachment>>,
    /// The record on the side of the backend.
    side: Box<dyn BackendSide>,
}

impl Pair {
    pub fn new(flash: Arc<dyn Disk>, attachment: Option<Attachment>, side: Box<dyn BackendSide>) -> Pair {
        Pair { flash, attachment: Mutex::new(attachment), side }
    }

    /// Calls `work` with the attachment, if there is a flash.
    pub fn with<T>(&self, work: impl FnOnce(&mut Attachment) -> T) -> Option<T> {
        self.attachment.lock().as_mut().map(work)
    }

    fn write(&self, work: impl FnOnce(&mut Attachment) -> io::Result<()>) -> io::Result<()> {
        self.with(work).unwrap_or(Ok(()))
    }

    /// Records that data may become newer than the backend's.
    pub fn allow_dirty(&self) -> io::Result<()> {
        self.write(|attachment| attachment.allow_dirty(&*self.flash, &*self.side))
    }

    /// Records the size of the volume.
    pub fn set_volume_bytes(&self, bytes: u64) -> io::Result<()> {
        self.write(|attachment| attachment.set_volume_bytes(&*self.flash, bytes))
    }

    /// Records the durable end of the cache.
    pub fn note_durable(&self, end: End) -> io::Result<()> {
        self.write(|attachment| attachment.note_durable(&*self.flash, end))
    }

    /// Records that blocks are written back in order from a flash that can no longer record that.
    pub fn note_ahead(&self) -> io::Result<()> {
        self.write(|attachment| attachment.note_ahead(&*self.side))
    }

    /// Records a clean shutdown.
    pub fn close(&self, end: End, may_be_dirty: bool, in_journal: bool) -> io::Result<()> {
        self.write(|attachment| attachment.close(&*self.flash, &*self.side, end, may_be_dirty, in_journal))
    }

    /// Records that the contents of the flash are no longer valid.
    pub fn leave(&self, why: Without) -> io::Result<()> {
        self.write(|attachment| match why {
            Without::Detached { .. } => attachment.detach(&*self.flash, &*self.side),
            Without::Failed | Without::NotConfigured => attachment.leave_failed(&*self.flash, &*self.side),
        })
    }

    /// Records that the volume, which uses only its backend, is detached.
    pub fn note_detached(&self) -> io::Result<()> {
        note_detached(&*self.side)
    }

    /// Records that the next start uses the flash again.
    pub fn attach_again(&self) -> Result<bool, AttachError> {
        attach_again(&*self.side)
    }
}
