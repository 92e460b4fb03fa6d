//! Counts of reads by part of a volume, such as a logical disk.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use flashwise_core::cache::Reads;

/// Blocks read, and where they were found.
#[derive(Debug, Default)]
pub struct ReadFigures {
    blocks: AtomicU64,
    ram_hits: AtomicU64,
    flash_hits: AtomicU64,
}

/// A part of a volume with its own counts.
#[derive(Debug, Default)]
pub struct Part {
    /// The counts of its reads.
    pub reads: ReadFigures,
    /// The pin of these reads; 0 for none.
    pub pin: AtomicU8,
}

impl ReadFigures {
    /// Adds counts.
    pub(super) fn add(&self, reads: Reads) {
        let Reads { blocks, ram_hits, flash_hits } = reads;
        for (figure, more) in [(&self.blocks, blocks), (&self.ram_hits, ram_hits), (&self.flash_hits, flash_hits)] {
            figure.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// Returns the counts.
    pub fn now(&self) -> Reads {
        let of = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        Reads { blocks: of(&self.blocks), ram_hits: of(&self.ram_hits), flash_hits: of(&self.flash_hits) }
    }
}
