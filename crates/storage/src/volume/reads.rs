//! What became of reads of a part of a volume, for those who want to know it of their own.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use flashwise_core::cache::Reads;

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

impl ReadFigures {
    /// Counts these as well.
    pub(super) fn add(&self, reads: Reads) {
        let Reads { blocks, ram_hits, flash_hits } = reads;
        for (figure, more) in [(&self.blocks, blocks), (&self.ram_hits, ram_hits), (&self.flash_hits, flash_hits)] {
            figure.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// What was counted so far.
    pub fn now(&self) -> Reads {
        let of = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        Reads { blocks: of(&self.blocks), ram_hits: of(&self.ram_hits), flash_hits: of(&self.flash_hits) }
    }
}
