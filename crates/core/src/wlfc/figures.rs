//! Counters of WLFC.

use super::bucket::{Log, State};
use super::config::Config;
use super::step::Step;
use crate::cache::Reads;

macro_rules! figures {
    ($($(#[$doc:meta])* $figure:ident,)*) => {
        /// Counters of a run.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Figures {
            $($(#[$doc])* pub $figure: u64,)*
        }

        impl std::ops::Add for Figures {
            type Output = Figures;

            /// Returns the sum of two runs.
            fn add(self, other: Figures) -> Figures {
                Figures { $($figure: self.$figure + other.$figure,)* }
            }
        }

        impl std::ops::Sub for Figures {
            type Output = Figures;

            /// Returns the counts since `before`.
            fn sub(self, before: Figures) -> Figures {
                Figures { $($figure: self.$figure - before.$figure,)* }
            }
        }
    };
}

figures! {
    /// Requests, flushes included.
    requests,
    /// Flushes requested by clients.
    flushes,
    /// Blocks read by clients.
    read_blocks,
    /// Blocks written by clients.
    written_blocks,
    /// Blocks read from RAM.
    ram_hits,
    /// Blocks read with their newest content on flash.
    read_hits,
    /// Blocks written through the cache with their newest content on flash.
    write_hits,
    /// Blocks read from the backend, and copied to flash with their bucket.
    read_admissions,
    /// Blocks written past the cache.
    passed_blocks,
    /// Blocks in logs.
    log_blocks,
    /// Data logs appended; each holds the neighbouring blocks of one write in one bucket.
    flash_write_requests,
    /// Blocks programmed to fill partial pages.
    padding_blocks,
    /// Blocks in read copies.
    copy_blocks,
    /// The part of these in copies that absorbed an evicted write bucket.
    copy_forward_blocks,
    /// Blocks programmed without data: tombstones, zeroes, and headers on flash without out-of-band bytes.
    metadata_blocks,
    /// Blocks read from flash.
    flash_read_blocks,
    /// Cache buckets reset.
    resets,
    /// Reads of the backend.
    backend_reads,
    /// Writes to the backend, including zeroing.
    backend_writes,
    /// Blocks read from the backend.
    backend_read_blocks,
    /// Blocks written to the backend.
    backend_written_blocks,
}

impl From<&Figures> for Reads {
    fn from(figures: &Figures) -> Reads {
        Reads { blocks: figures.read_blocks, ram_hits: figures.ram_hits, flash_hits: figures.read_hits }
    }
}

impl Figures {
    /// Counts a step on a device.
    #[inline]
    pub(super) fn count(&mut self, step: &Step, config: &Config) {
        match *step {
            Step::Append { pages, oob, .. } => {
                let headers = if oob.log == Log::Data { config.headers(oob.blocks) } else { 0 };
                let (programmed, blocks) = (u64::from((pages - headers) * config.page_blocks), u64::from(oob.blocks));
                self.metadata_blocks += u64::from(headers);
                match (oob.log, oob.state) {
                    (Log::Zeroes | Log::Passed, _) => self.metadata_blocks += programmed,
                    (Log::Data, State::Write) => {
                        self.log_blocks += blocks;
                        self.flash_write_requests += 1;
                        self.padding_blocks += programmed - blocks;
                    }
                    (Log::Data, State::Read | State::Dirty) => {
                        self.copy_blocks += blocks;
                        self.padding_blocks += programmed - blocks;
                    }
                }
            }
            Step::ReadFlash { blocks, .. } => self.flash_read_blocks += u64::from(blocks),
            Step::Reset { .. } => self.resets += 1,
            Step::ReadBackend { blocks, .. } => {
                self.backend_reads += 1;
                self.backend_read_blocks += u64::from(blocks);
            }
            Step::WriteBackend { blocks, .. } => {
                self.backend_writes += 1;
                self.backend_written_blocks += u64::from(blocks);
            }
            Step::ZeroBackend { .. } => self.backend_writes += 1,
            _ => {}
        }
    }

    /// Returns all blocks programmed.
    pub fn flash_written_blocks(&self) -> u64 {
        self.log_blocks + self.padding_blocks + self.copy_blocks + self.metadata_blocks
    }

    /// Returns the reads and writes of the backend.
    pub fn backend_accesses(&self) -> u64 {
        self.backend_reads + self.backend_writes
    }
}
