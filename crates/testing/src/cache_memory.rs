//! Memory of a cache for each page of its flash, in the situations that take the most.

use std::collections::HashMap;

use flashwise_core::cache::{Cache, Config, Event, Kind, LogCache, Request};
use flashwise_core::format::Geometry;
use flashwise_core::layout::containers::{Head, Log};
use flashwise_core::random::next;

const BLOCK_BYTES: u64 = 4096;
/// Bytes of the server's checksum of each page.
const CHECKSUM_BYTES: f64 = 4.0;
/// Blocks to overwrite for each page of flash: enough to fill a policy's memory of evicted blocks.
const BLOCKS_PER_PAGE: u64 = 4;
/// Overwrites for each page of flash.
const OVERWRITES_PER_PAGE: u64 = 6;

/// Bytes for a page of flash, including its checksum.
#[derive(Clone, Copy, Debug)]
pub struct PageBytes {
    /// After a restart with a full flash.
    pub restarted: f64,
    /// After sequential writes of the whole flash.
    pub filled: f64,
    /// After random writes of single blocks.
    pub overwritten: f64,
    /// Share of the pages that hold a current block after these writes; the others hold older copies.
    pub current_share: f64,
}

/// A cache of `units` erase units of 512 pages, and its allocated memory by `allocated`.
struct Measured<'a> {
    cache: LogCache,
    before: usize,
    allocated: &'a dyn Fn() -> usize,
}

impl<'a> Measured<'a> {
    /// Creates a cache with the policy, over a log that `log` creates.
    fn new(config: Config, allocated: &'a dyn Fn() -> usize, log: impl FnOnce(Geometry) -> Log) -> Measured<'a> {
        let before = allocated();
        let log = log(config.geometry);
        Measured { cache: LogCache::new(config, log, HashMap::new()), before, allocated }
    }

    fn write(&mut self, block: u64, blocks: u64, now_us: u64) {
        let mut steps = Vec::new();
        for request in
            &Request::pieces(Kind::Write, block * BLOCK_BYTES, blocks * BLOCK_BYTES, false).collect::<Vec<_>>()
        {
            self.cache.on(Event::Request { request, now_us }, &mut steps);
        }
        steps.iter().for_each(|step| self.cache.on(Event::Done(step), &mut Vec::new()));
    }

    fn page_bytes(&self) -> f64 {
        let bytes = (self.allocated)() - self.before;
        bytes as f64 / f64::from(self.cache.geometry().pages()) + CHECKSUM_BYTES
    }
}

/// Measures a policy with `units` erase units of 512 pages. `allocated` returns the bytes allocated now.
pub fn measure(policy: &str, units: u32, allocated: &dyn Fn() -> usize) -> PageBytes {
    let geometry = Geometry { units, unit_pages: 512 };
    let pages = u64::from(geometry.pages());
    let config = Config { sequential_blocks: 0, ..Config::new(geometry, policy.parse().expect("a policy")) };
    let mut one = Measured::new(config.clone(), allocated, Log::new);
    (0..pages).step_by(32).for_each(|block| one.write(block, 32, block));
    let filled = one.page_bytes();
    let restarted = Measured::new(config, allocated, |geometry| restarted(geometry, one.cache.log())).page_bytes();
    let mut state = 1;
    for now_us in pages..(1 + OVERWRITES_PER_PAGE) * pages {
        one.write(next(&mut state) % (BLOCKS_PER_PAGE * pages), 1, now_us);
    }
    let current_share = one.cache.log().len() as f64 / pages as f64;
    PageBytes { restarted, filled, overwritten: one.page_bytes(), current_share }
}

/// Returns the log that recovery creates from another, newest unit first.
fn restarted(geometry: Geometry, before: &Log) -> Log {
    let (sequences, end) = (before.sequences(), before.end());
    let pages = geometry.unit_pages - 2;
    let head = Head { sequence: end.sequence, end: end.page, previous_end: pages, records: Vec::new() };
    let mut log = Log::continued(geometry, *sequences.start(), &head);
    for sequence in sequences.rev() {
        for (block, slot) in
            before.blocks_in(sequence).into_iter().filter(|(_, slot)| before.in_memory(*slot).is_none())
        {
            log.restore(block, slot, before.is_dirty(slot));
        }
    }
    log
}
