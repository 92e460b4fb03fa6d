//! The pace at which clients may make blocks dirty. They slow down smoothly as the flash fills with dirty data, instead
//! of stopping once it is full.
//!
//! Source: our own. Like Linux's pacing of writers to the page cache: each waits a little, so that together they write
//! as fast as data is written back. The *pressure* is 0 as long as the cleaner keeps up, and 1 if there is no space
//! left. In between, writers get `1 / pressure - 0.2` times the rate of write-back, which balances at a pressure of
//! five sixths.
//!
//! Writers also wait for writes that go [past](super::past) the flash.

use super::config::{Config, RESERVE_UNITS};
use crate::layout::containers::Log;

/// Maximum delay of a reply.
pub(super) const PAUSE_MAX_US: u64 = 200_000;
/// Length of the average of the write-back rate.
const AVERAGE_US: f64 = 2_000_000.0;
/// Sampling interval.
const SAMPLE_US: u64 = 50_000;
/// While the flash is being removed, one block may become dirty for this many blocks that are written back.
const CREDIT_PER_WRITE: u64 = 2;
/// The maximum credit, in blocks: the length of a burst of writes while the flash is being removed.
const LEAVING_CREDIT_MAX: u64 = 256;
/// If at most this many dirty blocks remain, no more become dirty: about a second of a disk's work.
const LEAVING_DIRTY_LEAST: u64 = 256;
/// The initial rate, in blocks per second: that of a good disk.
const RATE_FIRST: f64 = 1_000.0;

/// The rate at which the backend takes blocks while it has some to take.
#[derive(Debug)]
pub(super) struct Rate {
    /// The recent number of blocks per second.
    pub per_second: f64,
    /// Blocks since the last sample.
    pub taken: u64,
    /// The time of that sample; `None` while the backend had nothing to take.
    sampled_us: Option<u64>,
}

impl Default for Rate {
    fn default() -> Rate {
        Rate { per_second: RATE_FIRST, taken: 0, sampled_us: None }
    }
}

impl Rate {
    /// Returns the time of the last sample, if the backend has had blocks to take since.
    pub fn sampled_us(&self) -> Option<u64> {
        self.sampled_us
    }

    /// Suspends sampling, because the backend has nothing to take.
    pub fn rest(&mut self) {
        self.sampled_us = None;
    }

    /// Takes a sample if it is time. `busy` is true if the backend has blocks to take.
    pub fn sample(&mut self, busy: bool, now_us: u64) {
        let Some(since_us) = self.sampled_us else {
            (self.sampled_us, self.taken) = (busy.then_some(now_us), 0);
            return;
        };
        let took_us = now_us.saturating_sub(since_us);
        if took_us >= SAMPLE_US {
            let weight = (took_us as f64 / AVERAGE_US).min(1.0);
            let rate = self.taken as f64 * 1e6 / took_us as f64;
            self.per_second += (rate - self.per_second) * weight;
            (self.sampled_us, self.taken) = (busy.then_some(now_us), 0);
        }
    }
}

/// The pace of clients' writes.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// The rate of write-back.
    written_back: Rate,
    /// Blocks written back in unfinished batches: they still count as dirty.
    written_of_batches: u64,
    /// The time until which writers have used their allowance.
    used_until_us: u64,
    /// Total delay of replies.
    throttled_us: u64,
    /// Credit for new dirty blocks while the flash is being removed: blocks written back minus those spent.
    credit: u64,
    /// Units before this sequence number have no dirty blocks.
    pub(super) clean_until: u64,
}

impl Pace {
    /// Records that a block was written back, not durably yet. `is_leaving` is true if the flash is being removed.
    pub fn block_written_back(&mut self, is_leaving: bool) {
        self.written_back.taken += 1;
        self.written_of_batches += 1;
        if is_leaving {
            self.credit = (self.credit + 1).min(LEAVING_CREDIT_MAX);
        }
    }

    /// True if a client's write may still become dirty on a flash that is being removed. Clients get half of the
    /// write-back rate, so that the dirty data shrinks; the last blocks are left to the cleaner.
    pub fn has_credit(&self, dirty_blocks: u64) -> bool {
        self.credit >= CREDIT_PER_WRITE && dirty_blocks > LEAVING_DIRTY_LEAST
    }

    /// Spends the credit for a client's write that becomes dirty while the flash is being removed.
    pub fn use_credit(&mut self) {
        self.credit = self.credit.saturating_sub(CREDIT_PER_WRITE);
    }

    /// Records that a batch ended in which this many blocks had been written back.
    pub fn batch_written_back(&mut self, blocks: u64) {
        self.written_of_batches = self.written_of_batches.saturating_sub(blocks);
    }

    /// Returns the blocks written back in unfinished batches.
    pub fn written_of_batches(&self) -> u64 {
        self.written_of_batches
    }

    /// Returns the total delay of replies.
    pub fn throttled_us(&self) -> u64 {
        self.throttled_us
    }

    /// Samples the rate of write-back. `busy` is true if blocks are being written back.
    pub fn sample(&mut self, busy: bool, now_us: u64) {
        self.written_back.sample(busy, now_us);
    }

    /// Returns the time until which the reply to a write waits, if it does: for this long, or because it made `blocks`
    /// dirty. For the rest, see [`pressure`](Self::pressure).
    pub fn pause(&mut self, blocks: u64, excess_us: u64, of: (&Config, &Log, u64), now_us: u64) -> Option<u64> {
        let pressure = if blocks > 0 { self.pressure(of) } else { 0.0 };
        let mut until_us = now_us + excess_us.min(PAUSE_MAX_US);
        if pressure > 0.0 {
            until_us = until_us.max(self.pause_until_us(blocks, pressure, now_us));
        }
        self.throttled_us += until_us - now_us;
        (until_us > now_us).then_some(until_us)
    }

    /// Returns the time until which a writer of `blocks` waits under this pressure.
    fn pause_until_us(&mut self, blocks: u64, pressure: f64, now_us: u64) -> u64 {
        let allowed = self.written_back.per_second.max(1.0) * (1.0 / pressure.min(1.0) - 0.2);
        let takes_us = (blocks as f64 * 1e6 / allowed) as u64;
        self.used_until_us = (self.used_until_us.max(now_us) + takes_us).min(now_us + PAUSE_MAX_US);
        self.used_until_us
    }

    /// Returns the urgency of write-back, from 0. It measures two ranges: from the cleaner's start to the maximum of
    /// dirty blocks, and from enough resettable units at the tail to none. Blocks in RAM that wait for the flash count
    /// too (`buffered`), because the flash has to take them.
    fn pressure(&mut self, (config, log, buffered): (&Config, &Log, u64)) -> f64 {
        let most = config.dirty_max() as f64;
        let dirty = (log.dirty_blocks() + buffered) as f64;
        // The cleaner only sees blocks on flash: there is no pressure while it has nothing to do.
        let begins = (config.data_pages() as f64 * config.dirty_high + buffered as f64).min(0.9 * most);
        let full = (dirty - begins) / (most - begins);
        let (tail, head) = (*log.sequences().start(), *log.sequences().end());
        self.clean_until = self.clean_until.clamp(tail, head.max(tail));
        while self.clean_until < head && !log.has_dirty(self.clean_until) {
            self.clean_until += 1;
        }
        let ready = u64::from(log.free_units()) + self.clean_until - tail;
        let wanted = f64::from(RESERVE_UNITS + units_to_keep_clean(log));
        // The reserve itself is in use during the reset of a unit.
        let least = f64::from(RESERVE_UNITS);
        full.max((wanted - ready as f64) / (wanted - least))
    }
}

/// Returns the number of units at the tail that are cleaned before they must be reset.
pub(super) fn units_to_keep_clean(log: &Log) -> u32 {
    (log.geometry().log_units() / 8).max(2)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::cache::{Cache, Event, Kind, LogCache, Request};
    use crate::format::Geometry;
    use crate::step::Step;

    #[test]
    fn writers_get_the_rate_of_write_back_at_five_sixths() {
        let mut pace = Pace { written_back: Rate { per_second: 100.0, ..Rate::default() }, ..Pace::default() };
        // 100 blocks a second: 10 ms each, one after the other.
        assert_eq!(pace.pause_until_us(1, 5.0 / 6.0, 1_000_000), 1_010_000);
        assert_eq!(pace.pause_until_us(2, 5.0 / 6.0, 1_000_000), 1_030_000);
        // 1 / 0.1 - 0.2 = 9.8 times as many: 1.02 ms.
        assert_eq!(pace.pause_until_us(1, 0.1, 2_000_000), 2_001_020);
        // 0.8 times as many, and at most 200 ms.
        assert_eq!(pace.pause_until_us(1, 3.0, 3_000_000), 3_012_500);
        assert_eq!(pace.pause_until_us(1_000, 1.0, 3_000_000), 3_200_000);
    }

    /// The write buffer has 150 dirty blocks, more than the 108 at which the cleaner starts; but the flash has none of
    /// them.
    #[test]
    fn blocks_in_ram_are_no_pressure_while_the_cleaner_has_nothing_to_do() {
        let geometry = Geometry { units: 24, unit_pages: 16 };
        let config = Config { write_buffer_blocks: 160, ..Config::new(geometry, "lru".parse().unwrap()) };
        let config = Config { dirty_high: 0.3, dirty_low: 0.2, sequential_blocks: 0, ..config };
        let mut cache = LogCache::new(config, Log::new(geometry), HashMap::new());
        let mut steps = Vec::new();
        for block in 0..150 {
            let request = Request::whole(Kind::Write, block * 4096, 4096, false);
            cache.on(Event::Request { request: &request, now_us: 1 + block }, &mut steps);
        }
        assert_eq!((cache.buffered_blocks(), cache.log().dirty_blocks()), (150, 0));
        assert!(!steps.iter().any(|step| matches!(step, Step::Pause { .. })));
    }

    /// 400 dirty blocks are being written back. New blocks become dirty for half of those that are, until 256 are left.
    #[test]
    fn while_the_flash_is_given_up_half_as_many_blocks_become_dirty_as_are_written_back() {
        let geometry = Geometry { units: 64, unit_pages: 16 };
        let config = Config { write_buffer_blocks: 0, ..Config::new(geometry, "lru".parse().unwrap()) };
        let mut cache = LogCache::new(Config { sequential_blocks: 0, ..config }, Log::new(geometry), HashMap::new());
        let write = |cache: &mut LogCache, block: u64| {
            let before = cache.log().dirty_blocks();
            let request = Request::whole(Kind::Write, block * 4096, 4096, false);
            cache.on(Event::Request { request: &request, now_us: 1 }, &mut Vec::new());
            cache.log().dirty_blocks() - before
        };
        (0..400).for_each(|block| assert_eq!(write(&mut cache, 2 * block), 1));
        cache.stop_admitting();
        assert_eq!(write(&mut cache, 2_000), 0, "none was written back");
        (0..10).for_each(|_| cache.pace.block_written_back(true));
        let became_dirty: u64 = (0..20).map(|number| write(&mut cache, 2_001 + 2 * number)).sum();
        assert_eq!(became_dirty, 5);
        cache.write_around();
        (0..10).for_each(|_| cache.pace.block_written_back(true));
        assert_eq!(write(&mut cache, 3_000), 0, "the last blocks go to the backend");
    }

    #[test]
    fn the_rate_is_an_average_over_two_seconds_of_writing_back() {
        let mut rate = Rate { per_second: 100.0, ..Rate::default() };
        // Nothing was written back before.
        rate.taken = 1_000;
        rate.sample(true, 5_000_000);
        rate.taken = 100;
        rate.sample(true, 5_040_000);
        assert_eq!(rate.per_second, 100.0, "too early");
        // 100 blocks in 200 ms are 500 a second, with a weight of 0.1.
        rate.sample(true, 5_200_000);
        assert_eq!(rate.per_second, 140.0);
        rate.sample(false, 9_000_000);
        assert_eq!((rate.per_second, rate.sampled_us), (0.0, None));
    }
}
