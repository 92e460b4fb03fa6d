//! The common interface of all caches: events go in, steps come out.
//!
//! Source: our own. The design is event sourcing: a cache has no time, randomness or I/O of its own. So the list of its
//! events determines its behaviour, and the same list is a replay.

use super::request::Request;
use crate::format::{Geometry, Record};
use crate::step::{Segment, Step};

/// A cache, as seen by drivers that execute its steps, charge them to models, or make them fail.
///
/// **Duties of the driver.** Times never decrease. Due ticks come before a request. Steps are executed in order, or
/// overlap as far as the documentation of their type allows. Each step ends once, as [`Event::Done`] or
/// [`Event::Failed`], in any order. If a step is not started because a step that it needs failed, it has failed.
/// Successful steps that only move bytes in memory need not be reported. A failed transfer may be retried before the
/// step counts as failed.
///
/// **Duties of a cache.**
///
/// - *Order.* It plans as if all earlier steps had completed, so a driver may have any number of them in progress.
///   Executing all steps one by one in the planned order is always correct.
/// - *Determinism.* The same events get the same steps, and nothing else decides about them.
/// - *Idempotence.* Executing a step again before the next one at the same place has no further effect. So transfers
///   are retried, and blocks written back just before a crash are written back again after it.
/// - *Results of steps* get no steps in reply. Consequences follow with the next [`Event::GoOn`], tick or request.
///   Failed data is never served as if it had been written; [`lost_blocks`](Cache::lost_blocks) reports losses.
/// - *Losses.* A power failure loses at most writes after the last answered flush. A failed device loses at most its
///   own data. Clean blocks may leave at any time.
///
/// Recovery restores a cache from the contents of the flash, not from its events.
pub trait Cache {
    /// The type of its steps.
    type Step;
    /// The type of its counters.
    type Figures;

    /// Handles an event: adds the resulting steps to `steps`.
    fn on(&mut self, event: Event<'_, Self::Step>, steps: &mut Vec<Self::Step>);

    /// Returns the time of the next tick with work, if it is at most `now_us`. A cache without work of its own has
    /// none.
    fn next_tick_us(&self, now_us: u64) -> Option<u64>;

    /// Returns the geometry of the flash in its steps.
    fn geometry(&self) -> Geometry;

    /// Returns the number of frames in its steps, each one block of memory.
    fn frame_count(&self) -> u32;

    /// True if no plan so far leaves content in this frame that a later plan could need.
    fn is_free(&self, _frame: u32) -> bool {
        false
    }

    /// True if `block` has newer data than the backend's copy.
    fn is_newer_than_backend(&self, block: u32) -> bool;

    /// Returns the number of blocks that are newer than the backend's, on flash or only in RAM.
    fn blocks_to_write_back(&self) -> u64;

    /// Returns the blocks whose only copy was lost or cannot be read, in order.
    fn lost_blocks(&self) -> Vec<u32>;

    /// True if a block is one of the [`lost_blocks`](Self::lost_blocks).
    fn is_lost(&self, block: u32) -> bool {
        self.lost_blocks().binary_search(&block).is_ok()
    }

    /// Informs the cache that the driver keeps this lost block in memory and retries its write. The flash does not
    /// record the loss, and flushes fail until the write succeeds.
    fn keep(&mut self, _block: u32) {}

    /// True if the block is still to be [kept](Self::keep); false once it was rewritten.
    fn is_kept(&self, _block: u32) -> bool {
        false
    }

    /// True if the caller handles this lost block itself, so flushes need not fail.
    fn leaves(&self, _block: u32) -> bool {
        false
    }

    /// True if a failed flush of the backend may lose acknowledged writes. False if the flash has all that the backend
    /// could lose.
    fn relies_on_flush(&self) -> bool {
        true
    }

    /// Returns the dirty blocks whose last read from flash failed.
    fn unreadable(&self) -> Vec<u32> {
        Vec::new()
    }

    /// True if [`Event::GoOn`] may bring more steps once a write to the backend has ended.
    fn may_go_on(&self) -> bool {
        false
    }

    /// True if a block counts as lost when it cannot be read for its write-back. Then the driver retries that for some
    /// time.
    fn gives_up_unread(&self) -> bool {
        false
    }

    /// True if a client's undivided request must not be planned yet, because it has to wait until more is written back.
    /// It is asked again after each write-back. Later changes wait behind it.
    fn waits(&mut self, _request: &Request) -> bool {
        false
    }

    /// Returns the counters so far.
    fn figures(&self) -> Self::Figures;

    /// Asserts the invariants between events. Slow; for tests.
    fn check(&self);
}

/// An event of a cache with steps of type `S`. Times are in microseconds.
#[derive(Debug)]
pub enum Event<'a, S = Step> {
    /// A client's request, or a piece of one, arrived. The steps up to the first `Reply` answer it; later ones are
    /// background work.
    Request {
        /// The request.
        request: &'a Request,
        /// The time.
        now_us: u64,
    },
    /// A [due](Cache::next_tick_us) tick.
    Tick {
        /// The time.
        now_us: u64,
    },
    /// A batch of write-backs ended, successfully or not, or an acknowledged write [may go on](Cache::may_go_on). If
    /// more is due, it is written back once none is in progress, so the order of endings does not matter.
    GoOn,
    /// Write back everything dirty; after a flash failure, everything that is durable there. The event is repeated,
    /// after its steps are done, until nothing is left.
    DestageAll {
        /// The time.
        now_us: u64,
    },
    /// Also write back data that never became durable on a failed flash. The flash was durably abandoned, and its
    /// contents are invalid.
    DestageRest {
        /// The time.
        now_us: u64,
    },
    /// Clean shutdown: make all writes durable, and record that the log is complete.
    Close {
        /// The time.
        now_us: u64,
    },
    /// The segment of a [`Step::Append`] is about to be written: return its records.
    Appending(Appending<'a>),
    /// Some blocks of an append could not be completed; keep their old content. The log handles this if the step fails;
    /// otherwise it is [asked](Event::Appending) for replacement records.
    Missing {
        /// The step.
        step: &'a S,
        /// The blocks, in order: counted from the first one for WLFC, or records of the segment.
        blocks: &'a [u32],
    },
    /// A step completed.
    Done(&'a S),
    /// A step failed for now, and is retried after some time. It has not ended.
    Postponed(&'a S),
    /// A step failed, or was not started because a step that it needs failed.
    Failed {
        /// The step.
        step: &'a S,
        /// True if nothing was transferred, because the content of the step's frame is missing. For a flush of WLFC,
        /// true if a client is informed.
        missing: bool,
    },
}

/// A segment that is about to be written.
#[derive(Debug)]
pub struct Appending<'a> {
    /// The segment.
    pub segment: &'a Segment,
    /// The CRC-32C of the data of each record with data, in order; `None` for missing data.
    pub checksums: &'a [Option<u32>],
    /// True if a flush of the backend that the segment relies on failed: no record may be clean.
    pub doubtful: bool,
    /// The cache adds the records to write, one for each of the segment's.
    pub records: &'a mut Vec<Record>,
}
