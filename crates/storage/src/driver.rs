//! The engine of a volume, for every layout of its cache.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use flashwise_core::cache::{LogCache, Reads};
use flashwise_core::format::Geometry;
use flashwise_engine::engine::{Backend, Engine, Faults, Layout, Legacy, Output, Recovers, Recovery};

use crate::attach::Attachment;
use crate::disk::{Disk, Operation};
use crate::export::{Done, Error, Request};
use crate::flash::FlashError;
use crate::layout::End;
use crate::status::VolumeStatus;
use crate::time;

/// An engine of any layout.
pub trait Performer {
    /// See [`Engine::submit_waited`].
    fn submit_waited(&mut self, request: Request, done: Done, now_us: u64, waited_us: u64);
    /// See [`Engine::completed`].
    fn completed(&mut self, tag: u64, result: Result<(), Error>);
    /// See [`Engine::take_output`].
    fn take_output(&mut self, output: &mut Output);
    /// See [`Engine::transfer_of`].
    fn transfer_of(&self, tag: u64) -> (usize, Operation, u64);
    /// As [`Engine::is_full`].
    fn is_full(&self, for_reads: bool) -> bool;
    /// See [`Engine::running`].
    fn running(&self) -> usize;
    /// See [`Engine::faults`].
    fn faults(&self) -> Faults;
    /// See [`Engine::advance`].
    fn advance(&mut self, now_us: u64);
    /// See [`Engine::close`].
    fn close(&mut self, now_us: u64);
    /// See [`Engine::destage_all`].
    fn destage_all(&mut self, now_us: u64);
    /// As [`Engine::recovery`].
    fn recovery(&self) -> &Recovery;
    /// As [`Engine::recovery_mut`].
    fn recovery_mut(&mut self) -> &mut Recovery;
    /// As [`Engine::be_patient`].
    fn be_patient(&mut self);
}

impl<L: Layout> Performer for Engine<L> {
    fn submit_waited(&mut self, request: Request, done: Done, now_us: u64, waited_us: u64) {
        Engine::submit_waited(self, request, done, now_us, waited_us);
    }

    fn completed(&mut self, tag: u64, result: Result<(), Error>) {
        Engine::completed(self, tag, result);
    }

    fn take_output(&mut self, output: &mut Output) {
        Engine::take_output(self, output);
    }

    fn transfer_of(&self, tag: u64) -> (usize, Operation, u64) {
        Engine::transfer_of(self, tag)
    }

    fn is_full(&self, for_reads: bool) -> bool {
        Engine::is_full(self, for_reads)
    }

    fn running(&self) -> usize {
        Engine::running(self)
    }

    fn faults(&self) -> Faults {
        Engine::faults(self)
    }

    fn advance(&mut self, now_us: u64) {
        Engine::advance(self, now_us);
    }

    fn close(&mut self, now_us: u64) {
        Engine::close(self, now_us);
    }

    fn destage_all(&mut self, now_us: u64) {
        Engine::destage_all(self, now_us);
    }

    fn recovery(&self) -> &Recovery {
        Engine::recovery(self)
    }

    fn recovery_mut(&mut self) -> &mut Recovery {
        Engine::recovery_mut(self)
    }

    fn be_patient(&mut self) {
        Engine::be_patient(self);
    }
}

/// The engine of a volume. Defaults are those of a layout without the ability in question, and of a cache without dirty
/// blocks.
///
/// A driver derefs to its [`Performer`].
pub trait Driver: Send + 'static {
    /// Returns the engine.
    fn performer(&self) -> &(dyn Performer + 'static);

    /// Returns the engine, to use it.
    fn performer_mut(&mut self) -> &mut (dyn Performer + 'static);

    /// Returns the log, if it is one.
    fn log(&self) -> Option<&LogCache> {
        None
    }

    /// Returns the log, to change its settings.
    fn log_mut(&mut self) -> Option<&mut LogCache> {
        None
    }

    /// Starts to measure the backend, to keep each of its disks busy in the background.
    fn set_backend(&mut self, _backend: Arc<dyn Disk>) {}

    /// Returns the counts of reads so far.
    fn reads(&self) -> Reads;

    /// Returns the number of unanswered requests.
    fn requests(&self) -> usize;

    /// As [`recover`]. A layout whose engine never [stops](Recovery::has_stopped) has nothing to do.
    fn recover(
        &mut self,
        _flash: &dyn Disk,
        _attachment: &mut Attachment,
        _backend_fails: bool,
    ) -> Result<(), FlashError> {
        Ok(())
    }

    /// True if it has postponed reads of the flash.
    fn has_postponed(&self) -> bool {
        false
    }

    /// Treats the flash as failed, because it cannot be read.
    fn give_flash_up(&mut self) {}

    /// Does the work that is due once a second.
    fn look(&mut self, _now_us: u64) {}

    /// Returns the durable end, if it should be recorded.
    fn pause(&mut self) -> Option<End> {
        None
    }

    /// In calm mode, no write-back starts on its own.
    fn set_calm(&mut self, _calm: bool) {}

    /// Writes back data that is only in memory. A layout without such data does nothing.
    fn destage_rest(&mut self, _now_us: u64) {}

    /// True if clients can make blocks dirty until the end of a detach.
    fn admits_while_leaving(&self) -> bool {
        false
    }

    /// True if the backend's copy of `block` is not its newest, or is being changed.
    fn is_newer_than_backend(&self, block: u32) -> bool;

    /// Returns the number of failed flushes of the backend whose data may be gone.
    fn failed_flushes(&self) -> u64 {
        0
    }

    /// Returns the number of blocks that are newer than the backend's.
    fn blocks_to_write_back(&self) -> u64 {
        0
    }

    /// Returns the number of these that are durable on flash.
    fn durable_dirty_blocks(&self) -> u64 {
        0
    }

    /// Returns the number of answered blocks that wait in memory because no device takes them.
    fn unwritten_blocks(&self) -> usize {
        0
    }

    /// Returns remarks about partly failed devices.
    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the blocks whose only copy is lost or unreadable, in ascending order.
    fn lost_blocks(&self) -> Vec<u64> {
        Vec::new()
    }

    /// True if the flash has no flushed dirty data, so the volume can continue without it.
    fn can_give_up_flash(&self) -> bool {
        true
    }

    /// Returns the number of lost blocks that the flash records as lost, or may hold in an older flushed state.
    fn lost_on_flash(&self) -> usize {
        0
    }

    /// True if none of the remaining dirty blocks is readable.
    fn is_rest_unreadable(&self) -> bool {
        false
    }

    /// Returns the changes of parts of blocks that [`take_unwritten`](Self::take_unwritten) would return.
    fn unwritten(&self) -> Vec<Request> {
        Vec::new()
    }

    /// Takes the changes that wait until more is written back, in order, because this engine ends.
    fn take_waiting(&mut self) -> Vec<(Request, Done)> {
        Vec::new()
    }

    /// Takes the answered changes that could not be written to the flash and are only in memory, in order.
    fn take_unwritten(&mut self) -> Vec<Request> {
        Vec::new()
    }

    /// Returns the content in memory of blocks for which a start would use the flash, in order. The backend may have
    /// any content of them before the flash is given up.
    fn unwritten_on_flash(&self) -> Vec<Request> {
        Vec::new()
    }

    /// Returns the durable end, if it is known.
    fn end(&self) -> Option<End>;

    /// Returns the bytes of the flash, and the bytes that the cache has written to it since it was opened.
    fn flash_bytes(&self) -> (u64, u64);

    /// Returns the settings and counters of the cache. Without a flash, sizes of the flash are 0.
    fn status(&self, has_flash: bool) -> VolumeStatus;

    /// Returns the geometry that a cache without this flash should have.
    fn geometry(&self) -> Option<Geometry> {
        None
    }

    /// Returns the failures that the next engine of the volume takes over. Without unfinished steps.
    fn legacy(&self) -> Legacy {
        Legacy { faults: self.performer().faults(), ..Legacy::default() }
    }
}

impl Deref for dyn Driver {
    type Target = dyn Performer;

    fn deref(&self) -> &Self::Target {
        self.performer()
    }
}

impl DerefMut for dyn Driver {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.performer_mut()
    }
}

/// A layout whose cache is found again on its flash.
pub trait FindsAgain: Recovers {
    /// Returns the engine that continues after `before` stopped. It begins with the contents of the flash, as after a
    /// crash of the process, and avoids what has failed. `backend_fails` is true if the last write to the backend
    /// failed.
    ///
    /// # Errors
    /// The flash cannot be read, which may pass, or its contents are no cache any more.
    fn find_again(
        before: &Engine<Self>,
        flash: &dyn Disk,
        attachment: &mut Attachment,
        backend_fails: bool,
    ) -> Result<Engine<Self>, FlashError>;
}

/// Recovers an engine that has stopped, once all its transfers have ended. Then requests begin again.
///
/// # Errors
/// The cache is not [found again](FindsAgain::find_again). Then requests fail: until the next attempt, or for good.
pub fn recover<L: FindsAgain>(
    engine: &mut Engine<L>,
    flash: &dyn Disk,
    attachment: &mut Attachment,
    backend_fails: bool,
) -> Result<(), FlashError> {
    let next = L::find_again(engine, flash, attachment, backend_fails).inspect_err(|error| {
        // A flash that is unreadable for now still has its contents.
        engine.recovery_mut().not_found(matches!(error, FlashError::Io(_)));
    })?;
    let (waited, was_frozen) = (engine.recovery().waits(), engine.recovery().is_flash_failed());
    engine.continue_as(next);
    let path = flash.description();
    if waited {
        tracing::warn!(event = "flash-readable", path, "the flash can be read again");
    }
    if !was_frozen && engine.recovery().is_flash_failed() {
        tracing::error!(
            event = "flash-read-only",
            path,
            "the flash is no longer writable: its blocks can be read, and writes fail"
        );
    }
    Ok(())
}

/// A backend that the engine measures.
pub(crate) struct Measured(pub Arc<dyn Disk>);

impl Backend for Measured {
    fn lane(&self, offset: u64) -> u16 {
        self.0.lane(offset)
    }

    fn now_us(&self) -> u64 {
        time::now_us()
    }
}
