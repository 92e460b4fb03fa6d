//! Answered writes that go past the flash: the policy refused their blocks as they left the write buffer.
//!
//! Their blocks are read from memory until the backend has them. The backend takes them at its
//! own pace, so that nothing else bounds how many are on their way. A writer that sends more of them waits until the backend has taken all but those
//! of the next [`BACKLOG_US`]. Where that would be too long, it waits for its own write.

use std::collections::HashMap;

use super::pace::{PAUSE_MAX_US, Rate};
use super::{LogCache, PIECE_BLOCKS};
use crate::step::{Frame, Step};

/// So many hold nobody up, nor do those that the backend takes within this time.
const BACKLOG_BLOCKS: f64 = 4.0;
const BACKLOG_US: f64 = 20_000.0;
/// Samples tell of no longer time: nobody wrote meanwhile.
const SAMPLES_US_MAX: u64 = 1_000_000;
/// So many may be on their way besides what the write buffer has room for.
pub(super) const BESIDE_BUFFER_BLOCKS: u32 = 2 * PIECE_BLOCKS;

/// The writes on their way.
#[derive(Debug, Default)]
pub(super) struct Past {
    /// Of each block that nothing is newer of, its content.
    newest: HashMap<u32, Frame>,
    /// The blocks of writes on their way, newest or not, by the number of the frame.
    by_frame: HashMap<u32, u32>,
    /// How fast the backend takes them.
    rate: Rate,
}

impl Past {
    /// Writes on their way.
    pub fn blocks(&self) -> usize {
        self.by_frame.len()
    }

    /// The content of a block that is on its way and that nothing is newer of.
    pub fn get(&self, block: u32) -> Option<Frame> {
        self.newest.get(&block).copied()
    }

    /// Something else is newer of a block.
    pub fn forget(&mut self, block: u32) {
        if !self.newest.is_empty() {
            self.newest.remove(&block);
        }
    }

    /// Whether the backend may have nothing to take.
    fn is_idle(&self) -> bool {
        self.blocks() as f64 <= BACKLOG_BLOCKS
    }

    pub fn sample(&mut self, now_us: u64) {
        if self.rate.sampled_us().is_some_and(|sampled_us| now_us > sampled_us.saturating_add(SAMPLES_US_MAX)) {
            self.rate.rest();
        }
        self.rate.sample(!self.is_idle(), now_us);
    }

    /// How long it takes until few enough are on their way.
    pub fn excess_us(&self) -> u64 {
        let rate = self.rate.per_second;
        let excess = self.blocks() as f64 - BACKLOG_BLOCKS.max(rate * BACKLOG_US / 1e6);
        (excess.max(0.0) * 1e6 / rate.max(1.0)) as u64
    }
}

impl LogCache {
    /// The answered content of a block goes past the flash.
    pub(super) fn go_past(&mut self, block: u32, frame: Frame) {
        self.frames.hold(frame);
        self.past.newest.insert(block, frame);
        self.past.by_frame.insert(frame.number, block);
    }

    /// A step ended: maybe the backend took such a write, or refused it.
    #[inline]
    pub(super) fn went_past(&mut self, step: &Step) {
        // One that failed and has a newer one behind it says that nothing was answered.
        if let &Step::WriteBackend { block, frame, batch: None, .. } = step
            && self.past.by_frame.get(&frame.number) == Some(&block)
        {
            if self.past.get(block) == Some(frame) {
                self.past.forget(block);
            }
            self.frames.release(frame);
            self.past.by_frame.remove(&frame.number);
            self.past.rate.taken += 1;
            if self.past.is_idle() {
                self.past.rate.rest();
            }
        }
    }

    /// The blocks and frames of answered writes on their way past the flash, in the order of blocks.
    pub fn going_past(&self) -> Vec<(u32, u32)> {
        let mut writes: Vec<_> = self.past.by_frame.iter().map(|(frame, block)| (*block, *frame)).collect();
        writes.sort_unstable();
        writes
    }

    /// Whether one more block may come into the write buffer: not where so many are on their way that its writer has to wait for the backend itself.
    pub(super) fn may_send_past(&self) -> bool {
        let most = self.config.write_buffer_blocks as usize + BESIDE_BUFFER_BLOCKS as usize;
        let makes_room = || !self.write_buffer.is_full() || self.past.excess_us() <= PAUSE_MAX_US;
        self.write_buffer.len() + self.past.blocks() < most && makes_room()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{Cache, Config, Event, Kind, Request};
    use crate::format::Geometry;
    use crate::layout::containers::Log;

    /// The write of an answered block fails, and a newer one of it has begun: whoever performs them says of the first that nothing was answered.
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
    fn a_writer_waits_until_the_backend_has_taken_all_but_20_ms_of_what_goes_past_the_flash() {
        let mut past = Past::default();
        for (rate, blocks, excess_us) in
            [(1000.0, 20, 0), (1000.0, 25, 5_000), (100.0, 4, 0), (100.0, 10, 60_000), (0.0, 5, 1_000_000)]
        {
            (past.rate.per_second, past.by_frame) = (rate, (0..blocks).map(|frame| (frame, frame)).collect());
            assert_eq!(past.excess_us(), excess_us, "{rate} {blocks}");
        }
    }
}
