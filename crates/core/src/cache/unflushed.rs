//! Writes that the backend could still lose. A block that is read back from there must not be called clean on flash before it is flushed.
//! Other clean copies, and dirty ones, need not wait for the backend.

use std::collections::{HashSet, VecDeque};
use std::ops::Range;

use rustc_hash::FxBuildHasher;

/// Blocks of a region.
const REGION_BLOCKS: u32 = 256;
/// Regions that are told apart.
const REGIONS_MAX: usize = 4_096;

/// Regions of the backend.
#[derive(Debug, Default)]
struct Regions {
    some: HashSet<u32, FxBuildHasher>,
    /// All of them.
    all: bool,
}

impl Regions {
    const ALL: Regions = Regions { some: HashSet::with_hasher(FxBuildHasher), all: true };

    fn add(&mut self, blocks: Range<u32>) {
        let regions = blocks.start / REGION_BLOCKS..blocks.end.div_ceil(REGION_BLOCKS);
        self.all |= self.some.len() + regions.len() > REGIONS_MAX;
        if !self.all {
            self.some.extend(regions);
        }
    }

    fn contains(&self, block: u32) -> bool {
        self.all || self.some.contains(&(block / REGION_BLOCKS))
    }

    fn is_empty(&self) -> bool {
        !self.all && self.some.is_empty()
    }
}

/// Regions that were written since a flush of the backend was planned, and those of the flushes that have not ended.
#[derive(Debug)]
pub(super) struct Unflushed {
    written: Regions,
    /// In the order in which the flushes end.
    flushing: VecDeque<Regions>,
}

impl Unflushed {
    /// Nothing is known of the writes before.
    pub fn new() -> Unflushed {
        Unflushed { written: Regions::ALL, flushing: VecDeque::new() }
    }

    /// A write of blocks is planned.
    pub fn add(&mut self, blocks: Range<u32>) {
        self.written.add(blocks);
    }

    /// Whether the backend could still lose a write of the block.
    pub fn contains(&self, block: u32) -> bool {
        self.written.contains(block) || self.flushing.iter().any(|regions| regions.contains(block))
    }

    /// A flush is to be planned; whether there is anything to flush.
    pub fn begin_flush(&mut self) -> bool {
        let begins = !self.written.is_empty();
        if begins {
            self.flushing.push_back(std::mem::take(&mut self.written));
        }
        begins
    }

    /// The oldest flush has ended.
    pub fn end_flush(&mut self) {
        self.flushing.pop_front();
    }

    /// A flush failed, which was `planned` here or is of another kind: all waits for the next.
    pub fn flush_failed(&mut self, planned: bool) {
        self.written = Regions::ALL;
        if planned {
            self.end_flush();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_unflushed_until_its_flush_ends() {
        let mut unflushed = Unflushed::new();
        assert!(unflushed.contains(7) && unflushed.begin_flush() && !unflushed.begin_flush());
        unflushed.add(1_000..1_001);
        assert!(unflushed.contains(7));
        unflushed.end_flush();
        assert_eq!([7, 1_000].map(|block| unflushed.contains(block)), [false, true]);
        assert!(unflushed.begin_flush() && unflushed.contains(1_000));
        unflushed.flush_failed(true);
        assert!(unflushed.contains(7) && unflushed.begin_flush());
        unflushed.end_flush();
        assert!(!unflushed.contains(7) && !unflushed.begin_flush());
        // Too many regions to tell them apart.
        unflushed.add(0..REGION_BLOCKS * (REGIONS_MAX as u32 + 1));
        assert!(unflushed.contains(u32::MAX));
    }
}
