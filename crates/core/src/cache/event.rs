//! The one interface of all caches: what happens to a cache goes in, and the steps that it wants done come out.
//!
//! Source: our own. The machine is that of event sourcing: as a cache has no time, randomness or I/O of its own, the list of its events is
//! all that decides what it does, and the same list again is a replay.

use super::request::Request;
use crate::format::{Geometry, Record};
use crate::step::{Segment, Step};

/// A cache, as those see it who perform its steps, charge them to models, or fail them.
///
/// **What its driver owes.** Times never go back. Ticks that are due come before a request. The steps of an answer are performed in
/// their order, or overlap as far as the documentation of their type allows. Each step ends once, as [`Event::Done`] or [`Event::Failed`], in
/// whatever order they end; one that was not begun because a step that it needs failed has failed. Of a step that only moves bytes in
/// memory, and is done, a cache need not hear. A transfer that failed may be tried again before the step counts as failed.
///
/// **What a cache owes.**
///
/// - *Order.* It plans as if all steps that it planned before were done, so that a driver may have any number of them under way. It is right
///   to perform all steps one by one in the order in which they were planned.
/// - *Determinism.* The same events get the same steps, and nothing else decides about them.
/// - *Idempotence.* To perform a step again before the next one of the same place leaves what performing it once leaves: so transfers are
///   tried again, and what was written back just before a crash is written back again after it.
/// - *What became of a step* gets no steps as its answer. What follows from it comes with the next [`Event::GoOn`], tick or request. Nothing
///   that failed is served as if it had been done, and what was lost with it is told by [`lost_blocks`](Cache::lost_blocks).
/// - *What may be lost.* In a power failure, what no flush was answered for since it was written; and nothing else. When a device fails, what
///   was on it alone. Clean blocks may leave at any time.
///
/// A cache is made again by recovery from what is on flash, not from its events.
pub trait Cache {
    /// What it wants done.
    type Step;
    /// What it counts.
    type Figures;

    /// Something happened: what is to be done about it is added to `steps`.
    fn on(&mut self, event: Event<'_, Self::Step>, steps: &mut Vec<Self::Step>);

    /// The time of the next tick that has something to do, if it is not later than `now_us`. A cache that does nothing by itself has none.
    fn next_tick_us(&self, now_us: u64) -> Option<u64>;

    /// How the flash is divided that its steps speak of.
    fn geometry(&self) -> Geometry;

    /// Frames of memory of a block each that its steps speak of.
    fn frame_count(&self) -> u32;

    /// Whether the backend's copy of `block` is not its newest.
    fn is_newer_than_backend(&self, block: u32) -> bool;

    /// Blocks that are newer than the backend's, on flash or only in RAM.
    fn blocks_to_write_back(&self) -> u64;

    /// The blocks whose only copy was lost, or cannot be read, in order.
    fn lost_blocks(&self) -> Vec<u32>;

    /// Whether a block is one of the [`lost_blocks`](Self::lost_blocks).
    fn is_lost(&self, block: u32) -> bool {
        self.lost_blocks().binary_search(&block).is_ok()
    }

    /// Who performs the steps has the content of a lost block in memory and writes it again until it finds a place. The flash does not say that it is
    /// lost, and until then no flush succeeds.
    fn keep(&mut self, _block: u32) {}

    /// Whether it is to be [kept](Self::keep) still: not once it was written anew.
    fn is_kept(&self, _block: u32) -> bool {
        false
    }

    /// Whether who asks for flushes sees by themselves to a block that is lost: it fails none.
    fn leaves(&self, _block: u32) -> bool {
        false
    }

    /// Whether [`Event::GoOn`] brings more once a write of the backend has ended.
    fn may_go_on(&self) -> bool {
        false
    }

    /// What happened so far.
    fn figures(&self) -> Self::Figures;

    /// Asserts what must hold between events. Slow; for tests.
    fn check(&self);
}

/// What happens to a cache whose steps are `S`. Times are in microseconds.
#[derive(Debug)]
pub enum Event<'a, S = Step> {
    /// A client's request came, or a piece of one. The steps up to the first `Reply` answer it; what comes after is background work.
    Request {
        /// What is asked.
        request: &'a Request,
        /// When.
        now_us: u64,
    },
    /// It is time for what is [due](Cache::next_tick_us).
    Tick {
        /// The time.
        now_us: u64,
    },
    /// A batch that was being written back came to its end, well or not, or an answered write [may go on](Cache::may_go_on). More is written back
    /// if it is due, unless some is still under way: so it makes no difference what ended first.
    GoOn,
    /// Everything dirty is to be written back; once the flash has failed, everything that is durable there. It happens again, after the steps
    /// are done, until nothing is left.
    DestageAll {
        /// When.
        now_us: u64,
    },
    /// What never became durable on a flash that failed is to be written back too: the flash is durably given up, and what it holds
    /// counts no more.
    DestageRest {
        /// When.
        now_us: u64,
    },
    /// The server ends in order: all that was written is to be durable, and said to be complete.
    Close {
        /// When.
        now_us: u64,
    },
    /// The segment of a [`Step::Append`] is about to be written: its records are wanted.
    Appending(Appending<'a>),
    /// Blocks that a step appends have no content, as the rest of them could not be read: they are what they were before it. The log hears of
    /// it where the step then fails; else it is [asked](Event::Appending) what is written in their place.
    Missing {
        /// The step.
        step: &'a S,
        /// The blocks, in order: counted from the first that WLFC appends, or records of the segment.
        blocks: &'a [u32],
    },
    /// A step is done.
    Done(&'a S),
    /// A step failed for now and is tried again after some time. It has not ended.
    Postponed(&'a S),
    /// A step failed, or was not begun because one that it needs failed.
    Failed {
        /// The step.
        step: &'a S,
        /// Nothing was moved, since the content of the step's frame never came. Of a flush of WLFC, that a client hears of it.
        missing: bool,
    },
}

/// A segment that is about to be written.
#[derive(Debug)]
pub struct Appending<'a> {
    /// The segment.
    pub segment: &'a Segment,
    /// The CRC-32C of the data of each record that has data, in order; none where the data never came.
    pub checksums: &'a [Option<u32>],
    /// A flush of the backend that the segment relies on failed: nothing is to be called clean.
    pub doubtful: bool,
    /// The cache adds what is written in place of the segment's records, one for each.
    pub records: &'a mut Vec<Record>,
}
