//! The engine of a volume, for every layout of its cache.

use std::sync::Arc;

use flashwise_core::cache::{LogCache, Reads};
use flashwise_core::format::Geometry;
use flashwise_engine::engine::{Backend, Engine, Faults, Layout, Legacy, Output};

use crate::attach::{Attachment, End};
use crate::disk::{Disk, Operation};
use crate::export::{Done, Error, Request};
use crate::flash::FlashError;
use crate::status::VolumeStatus;
use crate::time;

/// An engine of any layout.
pub trait Performer {
    /// As [`Engine::submit_waited`].
    fn submit_waited(&mut self, request: Request, done: Done, now_us: u64, waited_us: u64);
    /// As [`Engine::completed`].
    fn completed(&mut self, tag: u64, result: Result<(), Error>);
    /// As [`Engine::take_output`].
    fn take_output(&mut self, output: &mut Output);
    /// As [`Engine::transfer_of`].
    fn transfer_of(&self, tag: u64) -> (usize, Operation, u64);
    /// As [`Engine::is_full`].
    fn is_full(&self, for_reads: bool) -> bool;
    /// As [`Engine::running`].
    fn running(&self) -> usize;
    /// As [`Engine::faults`].
    fn faults(&self) -> Faults;
    /// As [`Engine::advance`].
    fn advance(&mut self, now_us: u64);
    /// As [`Engine::close`].
    fn close(&mut self, now_us: u64);
    /// As [`Engine::destage_all`].
    fn destage_all(&mut self, now_us: u64);
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
}

/// The engine of a volume. Defaults are those of a layout without the ability in question.
pub trait Driver: Performer + Send {
    /// Returns the log, if it is one.
    fn log(&self) -> Option<&LogCache> {
        None
    }

    /// Returns the log, to change its settings.
    fn log_mut(&mut self) -> Option<&mut LogCache> {
        None
    }

    /// Measures the backend from now on, so that the background keeps each of its disks busy.
    fn set_backend(&mut self, _backend: Arc<dyn Disk>) {}

    /// Returns the counts of reads so far.
    fn reads(&self) -> Reads;

    /// Returns the number of unanswered requests.
    fn requests(&self) -> usize;

    /// True if it has stopped, until the cache is [recovered](Self::recover).
    fn has_stopped(&self) -> bool {
        false
    }

    /// True if it waits until the flash can be read again.
    fn waits(&self) -> bool {
        false
    }

    /// Recovers the cache from the flash, after [it stopped](Self::has_stopped).
    ///
    /// # Errors
    /// The flash cannot be read, which may pass, or its contents are no cache any more. Then requests fail: until the
    /// next attempt, or for good.
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

    /// Grants postponed reads all their retries again.
    fn be_patient(&mut self) {}

    /// Does the work that is due once a second.
    fn look(&mut self, now_us: u64);

    /// Returns the durable end, if it is to be noted.
    fn pause(&mut self) -> Option<End>;

    /// While it is calm, no more write-back begins by itself.
    fn set_calm(&mut self, _calm: bool) {}

    /// Writes back data that is only in memory. A layout without such data does nothing.
    fn destage_rest(&mut self, _now_us: u64) {}

    /// True if clients can make blocks dirty until the end of a detach.
    fn admits_while_leaving(&self) -> bool;

    /// Answers requests that fail from now on. Returns those that failed before and were not handed back.
    #[must_use]
    fn stop_holding(&mut self) -> Vec<(Request, Done)>;

    /// True if the backend's copy of `block` is not its newest, or is being changed.
    fn is_newer_than_backend(&self, block: u32) -> bool;

    /// Returns the number of failed flushes of the backend whose data may be gone.
    fn failed_flushes(&self) -> u64 {
        0
    }

    /// Returns the number of blocks that are newer than the backend's.
    fn blocks_to_write_back(&self) -> u64;

    /// Returns the number of these that are durable on flash.
    fn durable_dirty_blocks(&self) -> u64;

    /// Returns the number of answered blocks that wait in memory because no device takes them.
    fn unwritten_blocks(&self) -> usize;

    /// Returns remarks about devices that failed in part.
    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the blocks whose only copy was lost or cannot be read, in order.
    fn lost_blocks(&self) -> Vec<u64>;

    /// True if the flash failed, or cannot be used for its contents.
    fn has_flash_failed(&self) -> bool;

    /// True if no flushed data is only on the flash, so the volume can go on without it.
    fn can_give_up_flash(&self) -> bool;

    /// Returns the number of lost blocks that the flash records as lost, or may hold in an older flushed state.
    fn lost_on_flash(&self) -> usize;

    /// True if all blocks that are to be written back cannot be read.
    fn is_rest_unreadable(&self) -> bool {
        false
    }

    /// Returns the changes of parts of blocks that [`take_unwritten`](Self::take_unwritten) would return.
    fn unwritten(&self) -> Vec<Request> {
        Vec::new()
    }

    /// Takes the answered changes that could not be written to the flash and are only in memory, in order.
    fn take_unwritten(&mut self) -> Vec<Request>;

    /// Returns the content in memory of blocks for which a start would use the flash, in order. The backend may have
    /// any content of them before the flash is given up.
    fn unwritten_on_flash(&self) -> Vec<Request> {
        Vec::new()
    }

    /// True if every change is refused, because the flash has failed and the volume does not go on without it.
    fn refuses_changes(&self) -> bool;

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
    fn legacy(&self) -> Legacy;
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
