//! Steps of WLFC: what it wants done, in order. They name ranges of cache buckets and of the backend.
//!
//! The blocks that a plan moves are in memory from the step that reads or receives them to the end of the plan, each at its address: the
//! blocks of at most two buckets. Where everything is written back, a bucket's blocks are not needed any more once they are.
//!
//! Performing the steps one by one, in order, is always right. What is appended, reset or written to the backend may be lost in a power
//! failure until the next flush of that device: of a cache bucket any part at the end, resets included; of the backend anything.

use super::bucket::Oob;

/// One step of a plan. Blocks are those of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Step {
    /// Copies bytes of the client's request into memory, at their address.
    Receive { offset: u64, length: u32 },
    /// Copies bytes of memory into the answer to the client.
    Send { offset: u64, length: u32 },
    /// Fills memory with zeroes.
    Zero { offset: u64, length: u32 },
    /// Copies a frame of the read cache in RAM, which holds the block, into memory.
    ReadRam { block: u64, frame: u32 },
    /// Copies a block of memory into a frame of the read cache in RAM.
    KeepInRam { block: u64, frame: u32 },
    /// Reads blocks of a cache bucket, from the `slot`-th block of its pages on, into memory.
    ReadFlash { bucket: u32, slot: u32, block: u64, blocks: u32 },
    /// Reads blocks of the backend into memory.
    ReadBackend { block: u64, blocks: u32 },
    /// Programs `pages` pages of a cache bucket at its write pointer, `page`, with the blocks of memory that the first's `oob` says.
    Append { bucket: u32, page: u32, pages: u32, oob: Oob },
    /// Writes blocks of memory to the backend. What `gives_up` has left the cache by what is planned behind it: if it fails, the cache has to be
    /// found again.
    WriteBackend { block: u64, blocks: u32, gives_up: bool },
    /// Makes blocks of the backend read as zeroes.
    ZeroBackend { block: u64, blocks: u32, may_punch_holes: bool },
    /// Makes durable what was appended and reset.
    FlushFlash,
    /// Makes durable what was written to the backend.
    FlushBackend,
    /// Erases a cache bucket.
    Reset { bucket: u32 },
    /// The request fails.
    Fail,
    /// The client is answered once all steps before it are done. What comes after is background work.
    Reply,
}
