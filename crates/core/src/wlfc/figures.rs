//! Counters of WLFC.

use super::bucket::{Log, State};
use super::config::Config;
use super::step::Step;
use crate::cache::Reads;

crate::counts! {
    /// Counters of a run.
    pub struct Figures {
        /// Requests, flushes included.
        pub requests: u64,
        /// Flushes requested by clients.
        pub flushes: u64,
        /// Blocks read by clients.
        pub read_blocks: u64,
        /// Blocks written by clients.
        pub written_blocks: u64,
        /// Blocks read from RAM.
        pub ram_hits: u64,
        /// Blocks read with their newest content on flash.
        pub read_hits: u64,
        /// Blocks written through the cache with their newest content on flash.
        pub write_hits: u64,
        /// Blocks read from the backend, and copied to flash with their bucket.
        pub read_admissions: u64,
        /// Blocks written past the cache.
        pub passed_blocks: u64,
        /// Blocks in logs.
        pub log_blocks: u64,
        /// Data logs appended; each holds the neighbouring blocks of one write in one bucket.
        pub flash_write_requests: u64,
        /// Blocks programmed to fill partial pages.
        pub padding_blocks: u64,
        /// Blocks in read copies.
        pub copy_blocks: u64,
        /// The part of these in copies that absorbed an evicted write bucket.
        pub copy_forward_blocks: u64,
        /// Blocks programmed without data: tombstones, zeroes, and headers on flash without out-of-band bytes.
        pub metadata_blocks: u64,
        /// Blocks read from flash.
        pub flash_read_blocks: u64,
        /// Cache buckets reset.
        pub resets: u64,
        /// Reads of the backend.
        pub backend_reads: u64,
        /// Writes to the backend, including zeroing.
        pub backend_writes: u64,
        /// Blocks read from the backend.
        pub backend_read_blocks: u64,
        /// Blocks written to the backend.
        pub backend_written_blocks: u64,
    }
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
