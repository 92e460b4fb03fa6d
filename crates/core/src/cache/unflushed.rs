//! Writes that the backend could still lose. A block read back from there must not be recorded as clean on flash before
//! it is flushed. If its region is [unsure](super::intents), the region must not become sure before. Other clean
//! copies, and dirty ones, need not wait for the backend.

use std::collections::{HashSet, VecDeque};
use std::ops::Range;

use rustc_hash::FxBuildHasher;

/// Blocks of a region.
const REGION_BLOCKS: u32 = 256;
/// Maximum number of distinguished regions.
const REGIONS_MAX: usize = 4_096;

/// Regions of the backend.
#[derive(Debug, Default)]
struct Regions {
    some: HashSet<u32, FxBuildHasher>,
    /// True for all regions.
    all: bool,
    /// True if clean copies of unsure regions rely on a flush of them.
    relied_on: bool,
}

impl Regions {
    const ALL: Regions = Regions { some: HashSet::with_hasher(FxBuildHasher), all: true, relied_on: false };

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

/// Regions written since the last planned flush of the backend, and those of unfinished flushes.
#[derive(Debug)]
pub(super) struct Unflushed {
    written: Regions,
    /// In the order in which the flushes end.
    flushing: VecDeque<Regions>,
    /// The number of flushes that have ended.
    ended: u64,
}

impl Unflushed {
    /// Starts with unknown earlier writes.
    pub fn new() -> Unflushed {
        Unflushed { written: Regions::ALL, flushing: VecDeque::new(), ended: 0 }
    }

    /// Records a planned write of blocks.
    pub fn add(&mut self, blocks: Range<u32>) {
        self.written.add(blocks);
    }

    /// True if the backend could still lose a write of the block.
    pub fn contains(&self, block: u32) -> bool {
        self.written.contains(block) || self.flushing.iter().any(|regions| regions.contains(block))
    }

    /// Records that a clean copy may become durable before the next flush ends, because its region is unsure.
    pub fn rely(&mut self) {
        self.written.relied_on = true;
    }

    /// True if regions must stay unsure until the next flush ends.
    pub fn are_relied_on(&self) -> bool {
        self.written.relied_on || self.flushing.iter().any(|regions| regions.relied_on)
    }

    /// Starts a flush. Returns false if there is nothing to flush.
    pub fn begin_flush(&mut self) -> bool {
        let begins = !self.written.is_empty();
        if begins {
            self.flushing.push_back(std::mem::take(&mut self.written));
        }
        begins
    }

    /// Returns the number of flushes that have ended.
    pub fn ended(&self) -> u64 {
        self.ended
    }

    /// Returns that number at the time when everything planned so far is flushed.
    pub fn with_next(&self) -> u64 {
        self.ended + self.flushing.len() as u64 + u64::from(!self.written.is_empty())
    }

    /// Ends the oldest flush.
    pub fn end_flush(&mut self) {
        self.flushing.pop_front();
        self.ended += 1;
    }

    /// True if the backend can lose no write past the flash.
    pub fn is_empty(&self) -> bool {
        self.written.is_empty() && self.flushing.is_empty()
    }

    /// Handles a failed flush, `planned` here or of another kind: everything waits for the next.
    pub fn flush_failed(&mut self, planned: bool) {
        self.written = Regions { relied_on: self.are_relied_on(), ..Regions::ALL };
        if planned {
            self.end_flush();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_unflushed_until_their_flush_ends() {
        let mut unflushed = Unflushed::new();
        assert!(unflushed.contains(7) && unflushed.begin_flush() && !unflushed.begin_flush());
        assert!(unflushed.contains(7) && !unflushed.is_empty());
        unflushed.add(1_000..1_001);
        unflushed.end_flush();
        assert_eq!([7, 1_000].map(|block| unflushed.contains(block)), [false, true]);
        assert!(unflushed.begin_flush() && unflushed.contains(1_000));
        unflushed.flush_failed(true);
        assert!(unflushed.contains(7) && unflushed.begin_flush());
        unflushed.end_flush();
        assert!(!unflushed.contains(7) && !unflushed.begin_flush() && unflushed.is_empty());
        unflushed.add(7..8);
        assert!(!unflushed.are_relied_on());
        unflushed.rely();
        assert!(unflushed.begin_flush() && unflushed.are_relied_on());
        unflushed.flush_failed(true);
        assert!(unflushed.are_relied_on() && unflushed.begin_flush() && unflushed.are_relied_on());
        unflushed.end_flush();
        assert!(!unflushed.are_relied_on());
        // Too many regions to tell them apart.
        unflushed.add(0..REGION_BLOCKS * (REGIONS_MAX as u32 + 1));
        assert!(unflushed.contains(u32::MAX));
    }
}
