//! Steps: what the cache wants done, in order. The simulator charges them, the server performs them.
//!
//! Performing the steps one by one, in order, is always right. They may also overlap, as long as each step finds its frames,
//! backend blocks and flash pages as the steps before it left them, and
//!
//! - no write to a device ([`Step::WriteBackend`], [`Step::ZeroBackend`], [`Step::Append`], [`Step::Witness`], [`Step::ResetUnit`])
//!   starts before all flushes of the flash before it have ended, and none starts at all once one of these has failed;
//! - an append that [needs it](Segment::needs_backend_flush) starts after the flushes of the backend before it that are not of a batch;
//! - a flush starts after the writes before it to its device have ended, one of the backend only after those of its own batch, or of no
//!   batch: what is written back is on flash as long as it is not durable;
//! - appends, witnesses and resets are done in order;
//! - before an append is written, the cache is asked what its records say ([`Event::Appending`](crate::cache::Event::Appending)): of an append
//!   whose flush of the backend failed, that nothing is clean.

mod segment;
mod uses;

pub use segment::{Footer, LogRecord, Segment};
pub use uses::{BATCHES, CLIENTS, FLASH_FLUSH, backend_flush, writes_of};

/// Why a block is written to flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A client wrote it.
    Client,
    /// It was read from, or written to, the backend and was admitted.
    Admission,
    /// Its unit is about to be reset and it is still wanted.
    CopyForward,
}

/// A block's worth of memory, with what is put into it counted: two steps name the same content only if both numbers agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Which frame.
    pub number: u32,
    /// Counts the contents that frames were given.
    pub fill: u32,
}

/// One step of a plan. Bytes within a frame are `at..at + length`.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Step {
    /// Copies bytes of the client's request, from `from`, into a frame.
    Receive { block: u32, frame: Frame, at: u16, length: u16, from: u32 },
    /// Copies bytes of a frame into the answer to the client, at `to`.
    Send { block: u32, frame: Frame, at: u16, length: u16, to: u32 },
    /// Fills bytes of a frame with zeroes.
    Zero { frame: Frame, at: u16, length: u16 },
    /// Copies a whole frame.
    Copy { block: u32, from: Frame, to: Frame },
    /// Reads the flash page `slot`, which holds `block`; unless it is `dirty`, the backend holds the same.
    ReadFlash { block: u32, slot: u32, frame: Frame, dirty: bool },
    /// Reads a block of the backend.
    ReadBackend { block: u32, frame: Frame },
    /// Writes a block of the backend. `acknowledged`: no client will hear of it if this fails. `replaces`: an acknowledged write that
    /// was only in memory was given up for this one, and is lost with it; what fails may hand that on to the newer write of its block, or the zeroes,
    /// that wait for it. `logged`: the log has the same, which counts whether or not this
    /// fails. `batch`: with which it is written back; it gives way to others.
    WriteBackend { block: u32, frame: Frame, acknowledged: bool, replaces: bool, logged: bool, batch: Option<u32> },
    /// Makes blocks of the backend read as zeroes; of those that it `replaces`, an acknowledged write was only in memory.
    ZeroBackend { block: u32, count: u32, may_punch_holes: bool, replaces: Vec<u32> },
    /// Writes a segment to the end of the log.
    Append(Box<Segment>),
    /// Writes a footer of the unit that is being filled, once all that it repeats is durable.
    Witness(Footer),
    /// Makes all appended segments durable, which reach up to `page` of the unit of `sequence`.
    FlushFlash { sequence: u64, page: u32 },
    /// Makes durable what was written to the backend with a batch, or by clients.
    FlushBackend { batch: Option<u32> },
    /// Nothing on the unit is needed any more.
    ResetUnit { unit: u32 },
    /// Ends a batch of blocks written back. It is done once the batch is flushed, and failed if that flush failed.
    Destaged { batch: u32 },
    /// Waits for all flushes before it; if one of them failed, so does the request.
    AwaitFlushes,
    /// The request fails: what it needs was lost.
    Fail,
    /// The client is not answered before this time, so that it does not write faster than dirty blocks are written back.
    Pause { until_us: u64 },
    /// The client is answered once all steps before it are done that [it awaits](Step::is_awaited). What comes after is background work.
    Reply,
}

impl Step {
    /// Whether the answer to a client's write is an error if the step fails.
    pub fn decides_answer(&self) -> bool {
        matches!(self, Step::AwaitFlushes | Step::Fail | Step::WriteBackend { acknowledged: false, .. })
    }

    /// Whether the answer to a client whose plan has the step before [`Step::Reply`] waits for it: not for what only makes room.
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

/// What a layout wants done on the flash device, which is counted in pages of one block and in erase units of equally many pages.
/// The simulator charges these to a modelled device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum FlashStep {
    /// Reads a page.
    Read { page: u32 },
    /// Writes a page: over its old content on a conventional device, at the write pointer of its unit on one that is written in units.
    Write { page: u32 },
    /// The content of the page is not needed any more (TRIM).
    Discard { page: u32 },
    /// Nothing on the unit is needed any more; it is erased whole.
    Reset { unit: u32 },
}
