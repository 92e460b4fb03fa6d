//! Acknowledged writes that bypass the flash, because the policy rejected their blocks when they left the write buffer.
//!
//! When the write buffer is emptied because of age, few of them are in progress at once. The others wait in the write
//! buffer, and are *leaving*. A block that is rewritten in the meantime stays. A flush sends them all.
//!
//! Their blocks are read from memory until the backend has them. The backend takes them at its own pace, so nothing
//! else limits the number in progress. A writer that sends more waits until the backend has taken all except those of
//! the next [`BACKLOG_US`]. If that would be too long, it waits for its own write.

use std::collections::{BTreeSet, HashMap};

use super::pace::{PAUSE_MAX_US, Rate};
use crate::frames::Frames;
use crate::step::{Frame, Step};

/// A backlog of this many blocks delays no writer, nor does one that the backend takes within this time.
const BACKLOG_BLOCKS: f64 = 4.0;
const BACKLOG_US: f64 = 20_000.0;
/// Longer gaps between samples are ignored, because there were no writes then.
const SAMPLES_US_MAX: u64 = 1_000_000;
/// A flush should find at most as much in RAM as the backend takes within this time.
const FLUSH_US: f64 = 300_000.0;
/// If a flush would find this much more, a writer waits for its own write.
const FLUSH_EXCESS_MAX_US: u64 = 250_000;
/// A client that flushed within this time is expected to flush again.
const FLUSHES_US: u64 = 10_000_000;
/// Length of the average, in blocks, of the share that bypasses the flash.
const SHARE_BLOCKS: f64 = 64.0;
/// Maximum number in progress of those that leave the write buffer because of age.
const LEAVING_MAX: usize = 16;

/// The writes in progress.
#[derive(Debug, Default)]
pub(super) struct Past {
    /// The content of each block without newer data elsewhere.
    newest: HashMap<u32, Frame>,
    /// The blocks of writes in progress, newest or not, by their content.
    by_frame: HashMap<Frame, u32>,
    /// The rate at which the backend takes them.
    rate: Rate,
    /// Blocks in the write buffer that the policy rejected.
    leaving: BTreeSet<u32>,
    /// The share of blocks, from 0 to 1, that bypassed the flash when they recently left the write buffer.
    share: f64,
    /// The time of the last flush by a client.
    flushed_us: Option<u64>,
}

impl Past {
    /// Returns the number of writes in progress.
    pub fn blocks(&self) -> usize {
        self.by_frame.len()
    }

    /// Returns the content of a block in progress, if there is no newer data elsewhere.
    pub fn get(&self, block: u32) -> Option<Frame> {
        self.newest.get(&block).copied()
    }

    /// Records a client's flush.
    pub fn flushed(&mut self, now_us: u64) {
        self.flushed_us = Some(now_us);
    }

    /// Records that blocks left the write buffer, some of them past the flash.
    pub fn left(&mut self, blocks: usize, past: usize) {
        let weight = (blocks as f64 / SHARE_BLOCKS).min(1.0);
        self.share += (past as f64 / blocks as f64 - self.share) * weight;
    }

    /// True if no more blocks may leave the write buffer because of age.
    pub fn is_enough(&self) -> bool {
        self.blocks() >= LEAVING_MAX
    }

    /// Marks a block in the write buffer as leaving: it will bypass the flash.
    pub fn leaves(&mut self, block: u32) {
        self.leaving.insert(block);
    }

    /// Returns the number of leaving blocks.
    pub fn leaving(&self) -> usize {
        self.leaving.len()
    }

    /// Returns the first leaving block.
    pub fn first_leaving(&self) -> Option<u32> {
        self.leaving.first().copied()
    }

    /// Returns the leaving blocks, in order.
    pub fn leaving_blocks(&self) -> impl Iterator<Item = u32> {
        self.leaving.iter().copied()
    }

    /// Unmarks a leaving block. Returns true if it was leaving.
    pub fn stays(&mut self, block: u32) -> bool {
        !self.leaving.is_empty() && self.leaving.remove(&block)
    }

    /// Records that newer data of a block is elsewhere.
    pub fn forget(&mut self, block: u32) {
        if !self.newest.is_empty() {
            self.newest.remove(&block);
        }
    }

    /// True if the backend may have nothing to take.
    fn is_idle(&self) -> bool {
        self.blocks() as f64 <= BACKLOG_BLOCKS
    }

    pub fn sample(&mut self, now_us: u64) {
        if self.rate.sampled_us().is_some_and(|sampled_us| now_us > sampled_us.saturating_add(SAMPLES_US_MAX)) {
            self.rate.rest();
        }
        self.rate.sample(!self.is_idle(), now_us);
    }

    /// Returns the time until few enough are in progress.
    pub fn excess_us(&self) -> u64 {
        self.takes_us(self.blocks() as f64, BACKLOG_US)
    }

    /// Returns the time until a flush finds little enough to wait for; 0 if clients do not flush. RAM has `buffered`
    /// blocks, and the flash has no room for `beyond` of them.
    pub fn excess_of_flush_us(&self, buffered: f64, beyond: f64, now_us: u64) -> u64 {
        if self.flushed_us.is_none_or(|flushed_us| now_us > flushed_us.saturating_add(FLUSHES_US)) {
            return 0;
        }
        self.takes_us(self.blocks() as f64 + beyond + (buffered - beyond) * self.share, FLUSH_US)
    }

    /// Returns the time that the backend takes for all of `blocks` except those of the last `but_us`, at least a few.
    fn takes_us(&self, blocks: f64, but_us: f64) -> u64 {
        let rate = self.rate.per_second;
        let excess = blocks - BACKLOG_BLOCKS.max(rate * but_us / 1e6);
        (excess.max(0.0) * 1e6 / rate.max(1.0)) as u64
    }

    /// Begins an acknowledged write of a block past the flash, whose frame it holds.
    pub fn begin(&mut self, block: u32, frame: Frame, frames: &mut Frames) {
        frames.hold(frame);
        self.stays(block);
        self.newest.insert(block, frame);
        self.by_frame.insert(frame, block);
    }

    /// Handles the end of a step, if it was such a write.
    #[inline]
    pub fn end(&mut self, step: &Step, frames: &mut Frames) {
        // A failed write with a newer one after it is reported as not acknowledged.
        if let &Step::WriteBackend { block, frame, batch: None, .. } = step
            && self.by_frame.remove(&frame).is_some()
        {
            if self.get(block) == Some(frame) {
                self.forget(block);
            }
            frames.release(frame);
            self.rate.taken += 1;
            if self.is_idle() {
                self.rate.rest();
            }
        }
    }

    /// Returns the blocks and frames of the writes in progress, in the order of blocks.
    pub fn writes(&self) -> Vec<(u32, u32)> {
        let mut writes: Vec<_> = self.by_frame.iter().map(|(frame, block)| (*block, frame.number)).collect();
        writes.sort_unstable();
        writes
    }

    /// True if a writer that sends more has to wait for its own write. Otherwise the backend would be too far behind,
    /// or a flush would take longer than it should, by this time.
    pub fn is_too_many(&self, buffer_is_full: bool, excess_of_flush_us: impl FnOnce() -> u64) -> bool {
        buffer_is_full && self.excess_us() > PAUSE_MAX_US
            || self.blocks() > 0 && excess_of_flush_us() > FLUSH_EXCESS_MAX_US
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{Cache, Config, Event, Kind, LogCache, Request};
    use crate::format::Geometry;
    use crate::layout::containers::Log;

    /// The write of an acknowledged block fails after a newer one of it has begun: the driver reports the first as not
    /// acknowledged.
    #[test]
    fn a_write_that_failed_is_no_longer_on_its_way() {
        let geometry = Geometry { units: 24, unit_pages: 16 };
        let config = Config { write_buffer_blocks: 4, ..Config::new(geometry, "lru".parse().unwrap()) };
        let mut cache = LogCache::new(config, Log::new(geometry), HashMap::new());
        cache.do_without_flash();
        let mut steps = Vec::new();
        for kind in [Kind::Write, Kind::Flush] {
            let request = Request::whole(kind, 7 * 4096, 4096, false);
            cache.on(Event::Request { request: &request, now_us: 1 }, &mut steps);
        }
        assert_eq!(cache.going_past().len(), 1);
        for step in &mut steps {
            let event = match step {
                Step::WriteBackend { acknowledged, .. } => {
                    *acknowledged = false;
                    Event::Failed { step, missing: false }
                }
                _ => Event::Done(step),
            };
            cache.on(event, &mut Vec::new());
        }
        assert_eq!(cache.going_past(), []);
    }

    #[test]
    fn a_writer_waits_until_at_most_20_ms_of_bypassing_writes_remain() {
        let mut past = Past::default();
        for (rate, blocks, excess_us) in
            [(1000.0, 20, 0), (1000.0, 25, 5_000), (100.0, 4, 0), (100.0, 10, 60_000), (0.0, 5, 1_000_000)]
        {
            (past.rate.per_second, past.by_frame) =
                (rate, (0..blocks).map(|number| (Frame { number, fill: 0 }, number)).collect());
            assert_eq!(past.excess_us(), excess_us, "{rate} {blocks}");
        }
    }
}
