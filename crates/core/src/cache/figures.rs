//! The counters of a cache, and queries of them.

/// The figures that running and simulated caches share, each with its name, description and unit. Calls the given macro
/// with the given arguments, followed by the figures of every cache on flash and those of the log. A figure may have a
/// heading for tables in a terminal, and a note below them.
///
/// The engine's status, the metrics and the simulator's columns are generated from it.
#[macro_export]
macro_rules! cache_figures {
    ($with:ident! { $($given:tt)* }) => {
        $crate::with_what_is_planted! { $with! { $($given)* } [
            /// Flash writes because clients wrote.
            flash_client_blocks: u64, "blocks", "client", "what clients wrote";
            /// Flash writes because blocks that were read, or written to the backend, were admitted.
            flash_admission_blocks: u64, "blocks", "admitted", "what was read, or written to the backend, and admitted";
            /// Flash writes because wanted blocks were moved out of erase units that were reset.
            flash_copy_forward_blocks: u64, "blocks", "copied", "what was copied forward out of erase units that were \
                reset";
            /// Flash writes of metadata, and to fill pages.
            flash_metadata_blocks: u64, "blocks", "metadata", "";
        ] [
            /// Writes to blocks that waited in the write buffer.
            ram_write_hits: u64, "block accesses";
            /// Clean blocks that the policy wanted and that were not copied forward: they left the cache.
            dropped_blocks: u64, "blocks";
            /// Blocks written back, and pages written to a journal before.
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
            /// Blocks that bypassed the flash because of the rules for clients.
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

/// See [`cache_figures`]: with the row planted by a test.
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
        $crate::counts! {
            /// Counters in addition to the policy's. A block is counted each time.
            pub struct Figures {
                $($(#[doc = $meaning])+ pub $figure: u64,)*
                $($(#[doc = $of_flash_meaning])+ pub $of_flash: u64,)*
                $($(#[doc = $of_log_meaning])+ pub $of_log: u64,)*
            }
        }

        impl Figures {
            /// Returns all blocks written to flash.
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
    /// Writes of neighbouring blocks passed to the log for clients: those of one request, or those that left the write
    /// buffer together. A block passed again before its segment is full is written once.
    flash_write_requests,
    /// Erase units reset.
    erasures,
    /// Blocks trimmed or zeroed whole.
    zeroed_blocks,
    /// Flushes requested by clients.
    flushes,
} }

impl Figures {
    /// Returns blocks read from RAM or flash per block read, 0 to 1.
    pub fn read_hit_ratio(&self) -> f64 {
        Reads::from(self).hit_ratio()
    }
}

crate::counts! {
    /// Counters of reads, a cheap subset of any cache's figures.
    pub struct Reads {
        /// Blocks read.
        pub blocks: u64,
        /// Of these, from RAM.
        pub ram_hits: u64,
        /// Of these, that had a copy on flash.
        pub flash_hits: u64,
    }
}

impl Reads {
    /// Returns blocks read from RAM or flash per block read, 0 to 1; 0 without reads.
    pub fn hit_ratio(&self) -> f64 {
        if self.blocks == 0 { 0.0 } else { (self.ram_hits + self.flash_hits) as f64 / self.blocks as f64 }
    }
}

impl From<&Figures> for Reads {
    fn from(figures: &Figures) -> Reads {
        Reads { blocks: figures.reads, ram_hits: figures.ram_read_hits, flash_hits: figures.flash_read_hits }
    }
}
