//! What a cache counts, and what it tells of itself.

use super::LogCache;
use crate::counters::Counters;
use crate::layout::containers::Log;

/// The figures that a running cache and a simulated one share, each named, described and given its unit once: calls the macro that is given with
/// what it is given, and behind that first what every cache on flash writes, then what the log alone does. A figure may have a heading for
/// tables in a terminal, and what is said of it below them.
///
/// The engine's status, the metrics and the simulator's columns are made from it.
#[macro_export]
macro_rules! cache_figures {
    ($with:ident! { $($given:tt)* }) => {
        $crate::with_what_is_planted! { $with! { $($given)* } [
            /// Flash writes because clients wrote.
            flash_client_blocks: u64, "blocks", "client", "what clients wrote";
            /// Flash writes because blocks that were read, or written to the backend, were admitted.
            flash_admission_blocks: u64, "blocks", "admitted", "what was read, or written to the backend, and admitted";
            /// Flash writes because wanted blocks were moved out of erase units that were reset.
            flash_copy_forward_blocks: u64, "blocks", "copied", "what was copied forward out of erase units that were reset";
            /// Flash writes of metadata, and to fill pages.
            flash_metadata_blocks: u64, "blocks", "metadata", "";
        ] [
            /// Writes to blocks that waited in the write buffer.
            ram_write_hits: u64, "block accesses";
            /// Clean blocks that the policy wanted and that were not copied forward: they left the cache.
            dropped_blocks: u64, "blocks";
            /// Blocks written back.
            destaged_blocks: u64, "blocks", "written back", "";
            /// Blocks read from the backend.
            backend_read_blocks: u64, "blocks";
            /// Blocks that clients' writes sent to the backend past the flash.
            backend_written_blocks: u64, "blocks";
            /// Blocks of sequential streams that bypassed the flash.
            sequential_blocks: u64, "blocks";
            /// Reads that the policy admitted and the flash had no space for.
            refused_read_blocks: u64, "blocks";
            /// Writes that the policy wanted on flash, which had no space for them.
            refused_write_blocks: u64, "blocks";
            /// Blocks that bypassed the flash because of whose they were.
            filtered_blocks: u64, "blocks";
        ] }
    };
}

/// See [`cache_figures`].
#[doc(hidden)]
#[cfg(not(feature = "planted"))]
#[macro_export]
macro_rules! with_what_is_planted {
    ($with:ident! { $($given:tt)* } [$($flash:tt)*] [$($log:tt)*]) => { $with! { $($given)* [$($flash)*] [$($log)*] } };
}

/// See [`cache_figures`]: with the row of a test.
#[doc(hidden)]
#[cfg(feature = "planted")]
#[macro_export]
macro_rules! with_what_is_planted {
    ($with:ident! { $($given:tt)* } [$($flash:tt)*] [$($log:tt)*]) => {
        $with! { $($given)* [$($flash)*] [
            $($log)*
            /// Blocks that a test planted.
            planted_blocks: u64, "blocks", "planted", "what a test planted";
        ] }
    };
}

macro_rules! figures {
    (
        $($(#[doc = $meaning:literal])+ $figure:ident,)*
        [$($(#[doc = $of_flash_meaning:literal])+ $of_flash:ident: u64, $of_flash_unit:literal $(, $of_flash_head:literal, $of_flash_note:literal)?;)*]
        [$($(#[doc = $of_log_meaning:literal])+ $of_log:ident: u64, $of_log_unit:literal $(, $of_log_head:literal, $of_log_note:literal)?;)*]
    ) => {
        /// What happened, beyond what the policy was asked. A block is counted each time.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Figures {
            $($(#[doc = $meaning])+ pub $figure: u64,)*
            $($(#[doc = $of_flash_meaning])+ pub $of_flash: u64,)*
            $($(#[doc = $of_log_meaning])+ pub $of_log: u64,)*
        }

        impl std::ops::Sub for Figures {
            type Output = Figures;

            /// What happened after `before`.
            fn sub(self, before: Figures) -> Figures {
                Figures {
                    $($figure: self.$figure - before.$figure,)*
                    $($of_flash: self.$of_flash - before.$of_flash,)*
                    $($of_log: self.$of_log - before.$of_log,)*
                }
            }
        }

        impl Figures {
            /// All blocks written to flash.
            pub fn flash_written_blocks(&self) -> u64 {
                0 $(+ self.$of_flash)*
            }
        }
    };
}

cache_figures! { figures! {
    /// Blocks read by clients.
    reads,
    /// Blocks written by clients.
    writes,
    /// Blocks read from a buffer in RAM.
    ram_read_hits,
    /// Blocks read that had a copy on flash.
    flash_read_hits,
    /// Writes of neighbouring blocks that were handed to the log because a client wrote: a request's, or what left the write buffer together. A
    /// block that is handed over again before its segment is full is written once.
    flash_write_requests,
    /// Erase units reset.
    erasures,
    /// Blocks trimmed or zeroed whole.
    zeroed_blocks,
    /// Flushes asked for.
    flushes,
} }

impl Figures {
    /// Blocks read from RAM or flash per block read, 0 to 1.
    pub fn read_hit_ratio(&self) -> f64 {
        Reads::from(self).hit_ratio()
    }
}

/// What became of reads, a cheap part of the figures of any cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// Blocks read.
    pub blocks: u64,
    /// Of these, from RAM.
    pub ram_hits: u64,
    /// Of these, that had a copy on flash.
    pub flash_hits: u64,
}

impl Reads {
    /// Blocks read from RAM or flash per block read, 0 to 1; 0 where nothing was read.
    pub fn hit_ratio(&self) -> f64 {
        if self.blocks == 0 { 0.0 } else { (self.ram_hits + self.flash_hits) as f64 / self.blocks as f64 }
    }
}

impl From<&Figures> for Reads {
    fn from(figures: &Figures) -> Reads {
        Reads { blocks: figures.reads, ram_hits: figures.ram_read_hits, flash_hits: figures.flash_read_hits }
    }
}

impl std::ops::Sub for Reads {
    type Output = Reads;

    /// What became of those after `before`.
    fn sub(self, before: Reads) -> Reads {
        Reads {
            blocks: self.blocks - before.blocks,
            ram_hits: self.ram_hits - before.ram_hits,
            flash_hits: self.flash_hits - before.flash_hits,
        }
    }
}

impl LogCache {
    /// What became of reads so far.
    #[inline]
    pub fn reads(&self) -> Reads {
        Reads::from(&self.figures)
    }

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
