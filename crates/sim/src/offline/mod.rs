//! Flash caches that know the future: what they decide about each access, before it is asked where the blocks lie on flash.
//!
//! Source: Cheng, Douglis, Shilane, Trachtman, Wallace, Desnoyers, Li: Erasing Belady's limitations: in search of flash cache
//! offline optimality. USENIX ATC 2016, sections 3 and 4.
//!
//! Four passes, each shared by all runs to which it is common:
//!
//! 1. [`next_reads`]: for each access of a trace its next reference, if that is a read. Shared by all runs over the trace.
//! 2. [`FlashStream`]: what a DRAM cache in front of the flash lets through, and for each of those accesses the next read *of the flash*
//!    before the block is overwritten. Shared by all sizes and algorithms with equal DRAM.
//! 3. [`Plan::min`]: MIN's decisions, and what came of each insertion: Step 2 of Algorithm H, the insertion log of section 4.2.
//!    Shared by all algorithms of a size.
//! 4. [`Plan::rerun`]: the decisions once more without the insertions that are not worth it: Step 3 of Algorithm H, H_N and H_T. One for
//!    each threshold; M+ and C have the same, so that their read hits are the same.
//!
//! A plan says for each access of the stream whether it hits, is inserted, or bypasses the cache, and which block leaves.
//! [`crate::endurance`] performs it on a device.
//!
//! A block counts for the cache only while it will be read there: one whose next reference is a write, or that is never read again,
//! leaves with its last read. So a cached block is never overwritten, and a position of the stream names the block that is read there.
//!
//! Memory: 4 bytes per access for pass 1, 8 for pass 2, 1 and 16 bytes per insertion for passes 3 and 4.
//!
//! Departures from the paper:
//!
//! - The DRAM cache is inclusive: what it holds may be on flash too, and is inserted there when the flash sees it. It does not let go of
//!   a block for the sake of the flash. A write goes to both; the DRAM cache keeps it if its MIN wants it for a later read.
//! - MIN's DRAM cache may bypass too.
//! - Rerun of M+: section 4.2 checks the insertion log and then decides as MIN once more. Left out insertions leave room, in which
//!   blocks stay that MIN evicted. MIN once more may then evict one that is on the log instead of one that MIN had evicted,
//!   and it will not come back, since the log has no insertion for it: read hits are lost. Here blocks that the log no longer holds go
//!   first, the one that is read last among them, so that M+ has exactly as many read hits as MIN (no algorithm has more, and none of
//!   those that the log promises is lost).
//! - A write is a reference (section 3.2, Step 1) that ends what is cached; it is no hit.

mod flash_stream;
mod min;
mod next_reads;
mod plan;
mod rerun;

pub use flash_stream::FlashStream;
pub use next_reads::next_reads;
pub use plan::{Decision, Insertion, NOT_EVICTING, Plan};
pub use rerun::Threshold;
