//! Steps: the cache's plan, in order. The simulator charges them, the server executes them.
//!
//! Executing the steps one by one, in order, is always correct. Steps may overlap if each finds its frames, backend
//! blocks and flash pages as the steps before it left them, and if these rules hold:
//!
//! - A write to a device ([`Step::WriteBackend`], [`Step::ZeroBackend`], [`Step::Append`], [`Step::Witness`],
//!   [`Step::ResetUnit`], [`Step::WriteJournal`]) starts only after all earlier flushes of the flash have ended. If one
//!   of these fails, it does not start at all.
//! - An append that [needs it](Segment::needs_backend_flush) starts after the earlier flushes of the backend that
//!   belong to no batch. One that only [follows writes](Segment::follows_writes) starts after these writes.
//! - A flush starts after the earlier writes to its device have ended. A flush of the backend waits only for writes of
//!   its own batch, or of no batch. Blocks that are written back stay on flash until they are durable.
//! - Appends, witnesses and resets keep their order.
//! - Before an append is written, the cache decides about its records
//!   ([`Event::Appending`](crate::cache::Event::Appending)): if the append's flush of the backend failed, none is
//!   clean.

mod journal;
mod segment;
mod uses;

pub use journal::{JournalPart, JournalWrite};
pub use segment::{Footer, LogRecord, Segment};
pub use uses::{BATCHES, CLIENTS};

/// The reason for writing a block to flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A client wrote it.
    Client,
    /// It was read from, or written to, the backend, and was admitted.
    Admission,
    /// Its unit will be reset, and it is still wanted.
    CopyForward,
}

crate::counts! {
    /// Blocks that a cache wrote to its flash, by cause.
    pub struct FlashWrites {
        /// Written by clients.
        pub client_blocks: u64,
        /// Read by clients and admitted.
        pub admission_blocks: u64,
        /// Copied because their erase unit was reset.
        pub copy_forward_blocks: u64,
        /// Headers and footers for recovery.
        pub metadata_blocks: u64,
    }
}

impl FlashWrites {
    /// Counts a block.
    #[inline]
    pub fn count(&mut self, cause: Cause) {
        match cause {
            Cause::Client => self.client_blocks += 1,
            Cause::Admission => self.admission_blocks += 1,
            Cause::CopyForward => self.copy_forward_blocks += 1,
        }
    }

    /// Counts a block that is written because of an access.
    #[inline]
    pub fn count_insertion(&mut self, is_write: bool) {
        self.count(if is_write { Cause::Client } else { Cause::Admission });
    }

    /// Returns all blocks written per block written because of an access; `None` if there were none.
    pub fn amplification(&self) -> Option<f64> {
        let wanted = self.client_blocks + self.admission_blocks;
        (wanted > 0).then(|| self.total_blocks() as f64 / wanted as f64)
    }

    /// Returns the sum over all causes.
    pub fn total_blocks(&self) -> u64 {
        self.client_blocks + self.admission_blocks + self.copy_forward_blocks + self.metadata_blocks
    }
}

/// A block-sized piece of memory with a counter of its contents. Two steps name the same content only if both numbers
/// agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The frame's number.
    pub number: u32,
    /// Incremented for each content of a frame.
    pub fill: u32,
}

/// One step of a plan. Bytes within a frame are `at..at + length`.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Step {
    /// Copies bytes of the client's request, starting at `from`, into a frame.
    Receive { block: u32, frame: Frame, at: u16, length: u16, from: u32 },
    /// Copies bytes of a frame into the reply to the client, at `to`.
    Send { block: u32, frame: Frame, at: u16, length: u16, to: u32 },
    /// Fills bytes of a frame with zeroes.
    Zero { frame: Frame, at: u16, length: u16 },
    /// Copies a whole frame.
    Copy { block: u32, from: Frame, to: Frame },
    /// Reads the flash page `slot`, which holds `block`; unless it is `dirty`, the backend has the same content.
    ReadFlash { block: u32, slot: u32, frame: Frame, dirty: bool },
    /// Reads a block of the backend.
    ReadBackend { block: u32, frame: Frame },
    /// Writes a block of the backend.
    ///
    /// - `acknowledged`: the client has its reply, so a failure is not reported to it.
    /// - `replaces`: this replaced an acknowledged write that was only in memory, and a failure loses both. On failure
    ///   the debt passes to the next write or zeroing of the block.
    /// - `logged`: the log has the same content, which counts even if this fails.
    /// - `batch`: the batch of the write-back; these writes yield to others.
    WriteBackend { block: u32, frame: Frame, acknowledged: bool, replaces: bool, logged: bool, batch: Option<u32> },
    /// Zeroes blocks of the backend. For the blocks in `replaces` it replaced an acknowledged write that was only in
    /// memory.
    ZeroBackend { block: u32, count: u32, may_punch_holes: bool, replaces: Vec<u32> },
    /// Writes a segment to the end of the log.
    Append(Box<Segment>),
    /// Writes a footer of the unit that is being filled, once everything that it repeats is durable.
    Witness(Footer),
    /// Makes all appended segments durable, up to `page` of the unit of `sequence`.
    FlushFlash { sequence: u64, page: u32 },
    /// Makes the writes of a batch, or of clients, durable on the backend.
    FlushBackend { batch: Option<u32> },
    /// Writes a part of a group of epochs to the journal.
    WriteJournal(Box<JournalWrite>),
    /// Makes the writes of a batch durable in the journal. It fails if one of them did.
    FlushJournal { batch: u32 },
    /// Erases a unit whose contents are no longer needed.
    ResetUnit { unit: u32 },
    /// Ends a batch of blocks written back, or to the journal. It succeeds or fails with the flush of the batch.
    Destaged { batch: u32 },
    /// Waits for all earlier flushes; if one failed, the request fails.
    AwaitFlushes,
    /// Fails the request, because data that it needs was lost.
    Fail,
    /// Delays the reply to the client until this time, so that it does not write faster than dirty blocks are written
    /// back.
    Pause { until_us: u64 },
    /// Replies to the client after all earlier steps that [it awaits](Step::is_awaited). Later steps are background
    /// work.
    Reply,
}

impl Step {
    /// True if a failure of the step fails a client's write.
    pub fn decides_answer(&self) -> bool {
        matches!(self, Step::AwaitFlushes | Step::Fail | Step::WriteBackend { acknowledged: false, .. })
    }

    /// True if the reply waits for the step, given that it comes before [`Step::Reply`]. Steps that only make room are
    /// not awaited.
    pub fn is_awaited(&self) -> bool {
        match self {
            Step::Receive { .. }
            | Step::Send { .. }
            | Step::Zero { .. }
            | Step::Copy { .. }
            | Step::ZeroBackend { .. }
            | Step::AwaitFlushes
            | Step::Fail => true,
            Step::WriteBackend { acknowledged, .. } => !acknowledged,
            _ => false,
        }
    }
}

/// A step on the flash device, in pages of one block and erase units of equally many pages. The simulator charges these
/// to a modelled device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum FlashStep {
    /// Reads a page.
    Read { page: u32 },
    /// Writes a page: over its old content on a conventional device, at its unit's write pointer on zoned flash.
    Write { page: u32 },
    /// Discards the content of the page (TRIM).
    Discard { page: u32 },
    /// Erases a unit whose contents are no longer needed.
    Reset { unit: u32 },
}
