//! The engine of a volume, whichever cache it drives.

use flashwise_core::cache::{Cache, LogCache, Mode, Reads};
use flashwise_core::filter::Caching;

use super::{BLOCK, SPARE_FRAMES};
use crate::attach::End;
use crate::disk;
use crate::engine::{Engine, Faults, Output};
use crate::export::{Done, Error, Operation, Request};
use crate::time;
use crate::wlfc;

/// Steps under way above which requests wait before they are planned.
const STEPS_MAX: usize = 16_384;
/// Bytes of memory that requests to buckets may take at a time, besides those of one more.
const BUCKET_BYTES_MAX: u64 = 64 << 20;

/// An engine with its cache.
#[derive(Debug)]
pub(super) enum Driver {
    /// Of a log.
    Log(Box<Engine>),
    /// Of buckets.
    Wlfc(Box<wlfc::Engine>),
}

impl Driver {
    /// The log, where it is one.
    pub fn log(&self) -> Option<&LogCache> {
        match self {
            Driver::Log(engine) => Some(engine.cache()),
            Driver::Wlfc(_) => None,
        }
    }

    /// The log, to change its settings.
    pub fn log_mut(&mut self) -> Option<&mut LogCache> {
        match self {
            Driver::Log(engine) => Some(engine.cache_mut()),
            Driver::Wlfc(_) => None,
        }
    }

    /// Of which pin the requests are that come next. WLFC has none.
    pub fn set_pin(&mut self, pin: u8) {
        if let Driver::Log(engine) = self {
            engine.cache_mut().set_pin(pin);
        }
    }

    /// What became of reads so far.
    pub fn reads(&self) -> Reads {
        match self {
            Driver::Log(engine) => engine.cache().reads(),
            Driver::Wlfc(engine) => Reads::from(&engine.cache().figures()),
        }
    }

    /// Starts a request that came `waited_us` before.
    pub fn submit(&mut self, request: Request, done: Done, now_us: u64, waited_us: u64) {
        match self {
            Driver::Log(engine) => engine.submit_waited(request, done, now_us, waited_us),
            Driver::Wlfc(engine) => engine.submit_waited(request, done, now_us, waited_us),
        }
    }

    pub fn completed(&mut self, tag: u64, result: Result<(), Error>) {
        match self {
            Driver::Log(engine) => engine.completed(tag, result),
            Driver::Wlfc(engine) => engine.completed(tag, result),
        }
    }

    pub fn take_output(&mut self, output: &mut Output) {
        match self {
            Driver::Log(engine) => engine.take_output(output),
            Driver::Wlfc(engine) => engine.take_output(output),
        }
    }

    pub fn transfer_of(&self, tag: u64) -> (usize, disk::Operation, u64) {
        match self {
            Driver::Log(engine) => engine.transfer_of(tag),
            Driver::Wlfc(engine) => engine.transfer_of(tag),
        }
    }

    /// Steps that are not done.
    pub fn running(&self) -> usize {
        match self {
            Driver::Log(engine) => engine.running(),
            Driver::Wlfc(engine) => engine.running(),
        }
    }

    /// True if requests have to wait before they are planned. Reads wait later than others, which may have to wait for the backend: there are steps
    /// and memory left for reads of RAM and flash.
    pub fn is_full(&self, for_reads: bool) -> bool {
        match self {
            Driver::Log(engine) if for_reads => engine.running_for_clients() >= 2 * STEPS_MAX,
            Driver::Log(engine) => {
                engine.running_for_clients() >= STEPS_MAX || engine.spare_places() < SPARE_FRAMES as usize / 4
            }
            Driver::Wlfc(engine) => engine.planned_bytes() + engine.answered_bytes() > BUCKET_BYTES_MAX,
        }
    }

    /// Requests that are under way.
    pub fn requests(&self) -> usize {
        match self {
            Driver::Log(engine) => engine.requests(),
            Driver::Wlfc(engine) => engine.requests(),
        }
    }

    /// True if it has stopped until it is made anew.
    pub fn has_stopped(&self) -> bool {
        matches!(self, Driver::Wlfc(engine) if engine.stopped().is_some() && !engine.is_given_up())
    }

    /// True if it waits for the flash to be read again.
    pub fn waits(&self) -> bool {
        matches!(self, Driver::Wlfc(engine) if engine.waits())
    }

    /// True if a log has put off reads of the flash.
    pub fn has_postponed(&self) -> bool {
        matches!(self, Driver::Log(engine) if engine.has_postponed())
    }

    /// Has the flash count as failed, as it cannot be read.
    pub fn give_flash_up(&mut self) {
        if let Driver::Log(engine) = self {
            engine.give_flash_up();
        }
    }

    /// Has as much patience again with them.
    pub fn be_patient(&mut self) {
        if let Driver::Log(engine) = self {
            engine.be_patient();
        }
    }

    /// Does what is due.
    pub fn look(&mut self) {
        match self {
            Driver::Log(engine) => {
                engine.read_again();
                engine.read_unreadable(time::now_us());
                engine.write_unwritten(time::now_us());
            }
            Driver::Wlfc(engine) => {
                engine.read_later();
                if !engine.cache().is_frozen() {
                    engine.make_what_was_lost();
                }
            }
        }
    }

    pub fn advance(&mut self, now_us: u64) {
        match self {
            Driver::Log(engine) => engine.advance(now_us),
            Driver::Wlfc(engine) => engine.advance(now_us),
        }
    }

    /// Asked once in a while: where what is durable ends, if that is to be noted.
    pub fn pause(&mut self) -> Option<End> {
        match self {
            Driver::Log(engine) => engine.pause().map(End::Log),
            Driver::Wlfc(engine) => engine.pause().map(End::Buckets),
        }
    }

    pub fn set_calm(&mut self, calm: bool) {
        match self {
            Driver::Log(engine) => engine.set_calm(calm),
            Driver::Wlfc(_) => {}
        }
    }

    pub fn close(&mut self, now_us: u64) {
        match self {
            Driver::Log(engine) => engine.close(now_us),
            Driver::Wlfc(engine) => engine.close(now_us),
        }
    }

    pub fn destage_all(&mut self, now_us: u64) {
        match self {
            Driver::Log(engine) => engine.destage_all(now_us),
            Driver::Wlfc(engine) => engine.destage_all(now_us),
        }
    }

    /// What is in memory alone; WLFC has nothing there.
    pub fn destage_rest(&mut self, now_us: u64) {
        match self {
            Driver::Log(engine) => engine.destage_rest(now_us),
            Driver::Wlfc(_) => {}
        }
    }

    /// Whoever asks for flushes sees by themselves to what is lost, where there is no flash that says so.
    pub fn leave_lost(&mut self) {
        if let Driver::Log(engine) = self {
            engine.cache_mut().leave_lost();
        }
    }

    /// Requests that fail from now on are answered; returns those that failed before and were not handed back.
    #[must_use]
    pub fn stop_holding(&mut self) -> Vec<(Request, Done)> {
        match self {
            Driver::Log(engine) => engine.stop_holding(),
            Driver::Wlfc(engine) => engine.stop_holding(),
        }
    }

    pub fn stop_admitting(&mut self) {
        self.log_mut().into_iter().for_each(LogCache::stop_admitting);
    }

    pub fn write_around(&mut self) {
        self.log_mut().into_iter().for_each(LogCache::write_around);
    }

    /// What [`stop_admitting`](Self::stop_admitting) ended goes on, in the mode that there was.
    pub fn admit_again(&mut self, mode: Mode) {
        self.log_mut().into_iter().for_each(|cache| cache.admit_again(mode));
    }

    pub fn is_newer_than_backend(&self, block: u32) -> bool {
        match self {
            Driver::Log(engine) => engine.is_newer_than_backend(block),
            Driver::Wlfc(engine) => engine.is_newer_than_backend(block),
        }
    }

    pub fn faults(&self) -> Faults {
        match self {
            Driver::Log(engine) => engine.faults(),
            Driver::Wlfc(engine) => engine.faults(),
        }
    }

    /// Of buckets, what a flush that fails was to make durable is known, or told of by the next.
    pub fn failed_flushes(&self) -> u64 {
        match self {
            Driver::Log(engine) => engine.failed_flushes(),
            Driver::Wlfc(_) => 0,
        }
    }

    pub fn blocks_to_write_back(&self) -> u64 {
        match self {
            Driver::Log(engine) => engine.cache().blocks_to_write_back(),
            // What stopped does not know.
            Driver::Wlfc(engine) => engine.cache().blocks_to_write_back().max(engine.stopped().is_some().into()),
        }
    }

    /// How many blocks were answered and wait in memory for a place.
    pub fn unwritten_blocks(&self) -> usize {
        match self {
            Driver::Log(engine) => engine.unwritten_blocks(),
            Driver::Wlfc(engine) => engine.unwritten_blocks(),
        }
    }

    /// What there is to say of devices that failed in part.
    pub fn remarks(&self) -> Vec<String> {
        let waiting = self.unwritten_blocks();
        let refuses = if self.has_flash_failed() { "flash" } else { "backend" };
        let waiting = (waiting > 0).then(|| {
            format!("{refuses}: {waiting} blocks that were answered have found no place yet: they wait in memory, and are lost if the server ends before")
        });
        let Driver::Wlfc(engine) = self else { return waiting.into_iter().collect() };
        let (failing, lossy) = (engine.cache().failing().len(), engine.lossy());
        let (failing, failed) = (failing.saturating_sub(lossy), engine.failed_units());
        let mut remarks = Vec::from_iter(waiting);
        if engine.waits() {
            remarks.push("flash: it cannot be read: all requests fail until it can".to_owned());
        }
        if lossy > 0 {
            remarks.push(format!(
                "flash: {lossy} buckets of the backend are not written back, as some of what they lack cannot be read from it"
            ));
        }
        if failing > 0 {
            remarks.push(format!(
                "backend: {failing} buckets could not be written; they stay in the cache, and are tried again"
            ));
        }
        if !failed.is_empty() {
            remarks.push(format!("flash: erase units {failed:?} have failed, and are not written any more"));
        }
        if engine.cache().is_frozen() {
            remarks.push("flash: nothing is written to it any more, as it cannot be relied on".to_owned());
        }
        remarks
    }

    /// Of those, what is durable on flash.
    pub fn durable_dirty_blocks(&self) -> u64 {
        match self {
            Driver::Log(engine) => engine.cache().durable_dirty_blocks(),
            // What of it has left the cache in its plans alone is nowhere else; what is in memory alone, it takes along by itself.
            Driver::Wlfc(_) => self.blocks_to_write_back(),
        }
    }

    /// The blocks whose only copy was lost, or cannot be read, in order.
    pub fn lost_blocks(&self) -> Vec<u64> {
        match self {
            Driver::Log(engine) => engine.lost_blocks().into_iter().map(u64::from).collect(),
            Driver::Wlfc(engine) => engine.lost_blocks(),
        }
    }

    /// True if the flash failed, or cannot be used for what it holds.
    pub fn has_flash_failed(&self) -> bool {
        match self {
            Driver::Log(engine) => engine.cache().has_flash_failed(),
            Driver::Wlfc(engine) => engine.cache().is_frozen() || engine.is_given_up() || engine.waits(),
        }
    }

    /// True if nothing that was flushed is only on the flash, so that the volume can go on without it.
    pub fn can_give_up_flash(&self) -> bool {
        match self {
            Driver::Log(engine) => engine.cache().can_give_up_flash(),
            Driver::Wlfc(engine) => {
                let nothing_dirty = engine.stopped().is_none() && engine.cache().blocks_to_write_back() == 0;
                nothing_dirty && engine.unreadable() == 0
            }
        }
    }

    /// Returns how many blocks are lost that the flash calls lost, or may have as they were flushed last: without it they would be old.
    pub fn lost_on_flash(&self) -> usize {
        match self {
            Driver::Log(engine) => engine.cache().lost_on_flash(),
            Driver::Wlfc(engine) => engine.unreadable(),
        }
    }

    /// True if all that is to be written back cannot be read.
    pub fn is_rest_unreadable(&self) -> bool {
        match self {
            Driver::Log(engine) => engine.cache().unreadable_blocks() == engine.cache().blocks_to_write_back(),
            Driver::Wlfc(_) => false,
        }
    }

    /// Returns what [`take_unwritten`](Self::take_unwritten) would of changes of parts of blocks. A log keeps whole blocks.
    pub fn unwritten(&self) -> Vec<Request> {
        match self {
            Driver::Log(_) => Vec::new(),
            Driver::Wlfc(engine) => engine.unwritten(),
        }
    }

    /// Takes what was answered, could not be written to the flash and is kept in memory, in order.
    pub fn take_unwritten(&mut self) -> Vec<Request> {
        match self {
            Driver::Log(engine) => engine.take_unwritten().into_iter().map(write_of).collect(),
            Driver::Wlfc(engine) => engine.take_unwritten(),
        }
    }

    /// Returns what is kept in memory of blocks of which a start would count what the flash says, in order. Of those, the backend may have
    /// anything before the flash is given up. Buckets keep nothing of such blocks.
    pub fn unwritten_on_flash(&self) -> Vec<Request> {
        match self {
            Driver::Log(engine) => engine.unwritten_on_flash().into_iter().map(write_of).collect(),
            Driver::Wlfc(_) => Vec::new(),
        }
    }

    /// True if every change is refused, because the flash has failed and the volume does not go on without it.
    pub fn refuses_changes(&self) -> bool {
        match self {
            Driver::Log(engine) => engine.refuses_changes(),
            Driver::Wlfc(engine) => engine.refuses_changes(),
        }
    }

    /// Where what is durable ends; none where it is not known.
    pub fn end(&self) -> Option<End> {
        match self {
            Driver::Log(engine) => Some(End::Log(engine.cache().log().end())),
            Driver::Wlfc(engine) => engine.stopped().is_none().then(|| End::Buckets(engine.end())),
        }
    }
}

/// The write of a block that is kept in memory.
fn write_of((block, data): (u32, Vec<u8>)) -> Request {
    Request {
        operation: Operation::Write,
        offset: u64::from(block) * BLOCK,
        length: BLOCK,
        force_unit_access: false,
        data,
        caching: Caching::default(),
    }
}
