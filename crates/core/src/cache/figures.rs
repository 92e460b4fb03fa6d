//! What a cache counts, and what it tells of itself.

use super::LogCache;
use crate::counters::Counters;
use crate::layout::containers::Log;

macro_rules! figures {
    ($($(#[$doc:meta])* $figure:ident,)*) => {
        /// What happened, beyond what the policy was asked.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Figures {
            $($(#[$doc])* pub $figure: u64,)*
        }

        impl std::ops::Sub for Figures {
            type Output = Figures;

            /// What happened after `before`.
            fn sub(self, before: Figures) -> Figures {
                Figures { $($figure: self.$figure - before.$figure,)* }
            }
        }
    };
}

figures! {
    /// Blocks read by clients.
    read_blocks,
    /// Blocks written by clients.
    written_blocks,
    /// Blocks read from a buffer in RAM.
    ram_read_hits,
    /// Blocks written that were in the write buffer already.
    ram_write_hits,
    /// Blocks read that had a copy on flash.
    flash_read_hits,
    /// Blocks written to flash because a client wrote them.
    flash_client_blocks,
    /// Writes of neighbouring blocks that were handed to the log because a client wrote: a request's, or what left the write buffer together. A
    /// block that is handed over again before its segment is full is written once.
    flash_write_requests,
    /// Blocks written to flash because the policy admitted them.
    flash_admission_blocks,
    /// Blocks copied forward within the flash.
    flash_copy_forward_blocks,
    /// Clean blocks that the policy wanted and that were not copied forward: their unit was reset, and they left the cache.
    dropped_blocks,
    /// Pages of metadata written to flash.
    flash_metadata_blocks,
    /// Erase units reset.
    erasures,
    /// Blocks read from the backend.
    backend_read_blocks,
    /// Blocks written to the backend by clients, past the flash.
    backend_written_blocks,
    /// Blocks written back to the backend.
    destaged_blocks,
    /// Blocks that bypassed the flash as part of a sequential stream.
    sequential_blocks,
    /// Blocks that bypassed the flash because of whose they were.
    filtered_blocks,
    /// Blocks read that the policy admitted and that found no place on flash: space was short until dirty blocks are written back.
    refused_read_blocks,
    /// Blocks written that the policy wanted and that found no place on flash for the same reason; the backend has them.
    refused_write_blocks,
    /// Blocks trimmed or zeroed whole.
    zeroed_blocks,
    /// Flushes asked for.
    flushes,
}

impl Figures {
    /// All blocks written to flash.
    pub fn flash_written_blocks(&self) -> u64 {
        self.flash_client_blocks
            + self.flash_admission_blocks
            + self.flash_copy_forward_blocks
            + self.flash_metadata_blocks
    }

    /// Blocks read from RAM or flash per block read, 0 to 1.
    pub fn read_hit_ratio(&self) -> f64 {
        let hits = self.ram_read_hits + self.flash_read_hits;
        if self.read_blocks == 0 { 0.0 } else { hits as f64 / self.read_blocks as f64 }
    }
}

impl LogCache {
    /// The log.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// What the policy answered.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Blocks written and acknowledged that are only in RAM.
    pub fn buffered_blocks(&self) -> usize {
        self.write_buffer.len()
    }
}
