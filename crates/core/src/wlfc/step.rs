//! Steps of WLFC: its plan, in order. They name ranges of cache buckets and of the backend.
//!
//! The blocks of a plan are in memory at their addresses, from the step that reads or receives them to the end of the
//! plan. They are at most two buckets. When everything is written back, a bucket's blocks are no longer needed after
//! that.
//!
//! Executing the steps one by one, in order, is always correct. Until the next flush of its device, a power failure may
//! undo appends, resets and writes. A cache bucket may lose any part at its end, resets included; the backend may lose
//! anything.

use super::bucket::Oob;

/// One step of a plan. Blocks are those of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Step {
    /// Copies bytes of the client's request into memory, at their address.
    Receive { offset: u64, length: u32 },
    /// Copies bytes of memory into the reply to the client.
    Send { offset: u64, length: u32 },
    /// Fills memory with zeroes.
    Zero { offset: u64, length: u32 },
    /// Copies a frame of the read cache in RAM, which holds the block, into memory.
    ReadRam { block: u64, frame: u32 },
    /// Copies a block of memory into a frame of the read cache in RAM.
    KeepInRam { block: u64, frame: u32 },
    /// Reads blocks of a cache bucket into memory, starting with block number `slot` of its pages.
    ReadFlash { bucket: u32, slot: u32, block: u64, blocks: u32 },
    /// Reads blocks of the backend into memory.
    ReadBackend { block: u64, blocks: u32 },
    /// Programs `pages` pages of a cache bucket at its write pointer, `page`. `oob` is the metadata of the first page
    /// and names the blocks in memory.
    Append { bucket: u32, page: u32, pages: u32, oob: Oob },
    /// Writes blocks of memory to the backend. With `gives_up` later steps remove the data from the cache; if this
    /// fails, the cache must be recovered.
    WriteBackend { block: u64, blocks: u32, gives_up: bool },
    /// Makes blocks of the backend read as zeroes.
    ZeroBackend { block: u64, blocks: u32, may_punch_holes: bool },
    /// Makes appends and resets durable.
    FlushFlash,
    /// Makes writes to the backend durable.
    FlushBackend,
    /// Erases a cache bucket.
    Reset { bucket: u32 },
    /// The request fails.
    Fail,
    /// Replies to the client after all earlier steps. Later steps are background work.
    Reply,
}
