//! What became of reads of a part of a volume, for those who want to know it of their own.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use flashwise_core::cache::Figures;

/// Blocks read, and where they were found.
#[derive(Debug, Default)]
pub struct ReadFigures {
    blocks: AtomicU64,
    ram_hits: AtomicU64,
    flash_hits: AtomicU64,
}

/// A part of a volume that reads are of.
#[derive(Debug, Default)]
pub struct Part {
    /// What became of them.
    pub reads: ReadFigures,
    /// Of which pin they are; of none: 0.
    pub pin: AtomicU8,
}

/// [`ReadFigures`] at a moment.
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
    /// Those that a log has counted so far.
    pub(super) fn of_log(figures: &Figures) -> Reads {
        Reads { blocks: figures.reads, ram_hits: figures.ram_read_hits, flash_hits: figures.flash_read_hits }
    }

    /// Blocks read from RAM or flash per block read, 0 to 1; 0 where nothing was read.
    pub fn hit_ratio(&self) -> f64 {
        if self.blocks == 0 { 0.0 } else { (self.ram_hits + self.flash_hits) as f64 / self.blocks as f64 }
    }
}

impl ReadFigures {
    /// Counts what happened between two moments.
    pub(super) fn add(&self, before: Reads, after: Reads) {
        for (figure, before, after) in [
            (&self.blocks, before.blocks, after.blocks),
            (&self.ram_hits, before.ram_hits, after.ram_hits),
            (&self.flash_hits, before.flash_hits, after.flash_hits),
        ] {
            figure.fetch_add(after - before, Ordering::Relaxed);
        }
    }

    /// What was counted so far.
    pub fn now(&self) -> Reads {
        let of = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        Reads { blocks: of(&self.blocks), ram_hits: of(&self.ram_hits), flash_hits: of(&self.flash_hits) }
    }
}
