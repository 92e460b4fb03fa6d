//! Offline flash caches: decisions for each access, independent of the layout on flash.
//!
//! Source: Cheng, Douglis, Shilane, Trachtman, Wallace, Desnoyers, Li: Erasing Belady's limitations: in search of flash
//! cache offline optimality. USENIX ATC 2016, sections 3 and 4.
//!
//! Four passes; runs share each as far as possible:
//!
//! 1. [`next_reads`]: for each access of a trace its next reference, if that is a read. Shared by all runs over the
//!    trace.
//! 2. [`FlashStream`]: the accesses that pass a DRAM cache in front of the flash. Each has the next read *of the flash*
//!    before the block is overwritten. Shared by all sizes and algorithms with equal DRAM.
//! 3. [`Plan::min`]: MIN's decisions, and the history of each insertion: Step 2 of Algorithm H, the insertion log of
//!    section 4.2. Shared by all algorithms of a size.
//! 4. [`Plan::rerun`]: the decisions without insertions below a threshold: Step 3 of Algorithm H, H_N and H_T. One for
//!    each threshold; M+ and C have the same, so their read hits are equal.
//!
//! A plan gives for each access of the stream its outcome (hit, insertion or bypass) and the block that leaves.
//! [`crate::endurance`] performs it on a device.
//!
//! A block is in the cache only while it will be read there. A block whose next reference is a write, or that is never
//! read again, leaves with its last read. So a cached block is never overwritten, and a position of the stream
//! identifies the block read there.
//!
//! Memory: 4 bytes per access for pass 1, 8 for pass 2, 1 and 16 bytes per insertion for passes 3 and 4.
//!
//! Departures from the paper:
//!
//! - The DRAM cache is inclusive: its blocks may be on flash too, and are inserted there when the flash sees them. It
//!   never drops a block in favour of the flash. A write goes to both; the DRAM cache keeps it if its MIN wants it for
//!   a later read.
//! - MIN's DRAM cache may bypass too.
//! - Rerun of M+: section 4.2 checks the insertion log and then decides like MIN again. Insertions left out leave room
//!   for blocks that MIN evicted. So a second MIN may evict a block that is on the log, in place of one that MIN had
//!   evicted. That block does not come back, since the log has no insertion for it, and read hits are lost. Here blocks
//!   that the log no longer holds go first, the one read last among them. So M+ has exactly as many read hits as MIN:
//!   no algorithm has more, and no hit that the log promises is lost.
//! - A write is a reference (section 3.2, Step 1) that ends a block's stay; it is not a hit.

mod flash_stream;
mod min;
mod next_reads;
mod plan;
mod rerun;

pub use flash_stream::FlashStream;
pub use next_reads::next_reads;
pub use plan::{Decision, Insertion, NOT_EVICTING, Plan};
pub use rerun::Threshold;
