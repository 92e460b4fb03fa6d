//! RejectX: reject the first x misses of a block, within a limited history.
//!
//! Source: the admission policy "reject first" of CacheLib (Berg et al.: The CacheLib caching engine. OSDI 2020). X,
//! and a history in the order of first misses: Wong et al.: Baleen: ML admission and prefetching for flash caches. FAST
//! 2024.
//!
//! It differs from [`hotness`](super::hotness), where every miss moves a block to the front of the history, and an
//! admitted block leaves it. Here a block leaves after a fixed number of other blocks since its first miss. Until then,
//! all its misses from the x + 1st are admitted.
//!
//! Departures from the papers:
//! - The history holds the blocks themselves, where CacheLib has a Bloom filter.
//! - Baleen's simulator drops a block of a full history on every miss, even of a block in it. Here each new block
//!   replaces one.

use super::misses::Misses;
use super::{Info, Judge, Thresholds, WRITES};
use crate::access::Access;
use crate::index::Index;
use crate::options::{Kind, Options, Parameter};

/// RejectX's row in the table of rules.
pub static INFO: Info = Info {
    name: "reject-x",
    title: "Rejects the first misses of a block",
    source: "Berg et al.: The CacheLib caching engine. OSDI 2020; Wong et al.: Baleen: ML admission and prefetching \
        for flash caches. \
             FAST 2024",
    parameters: &[
        Parameter::of("x", Kind::Count(0, 1000), "1")
            .means("misses of a block that are rejected; 1 is CacheLib's reject first"),
        Parameter::of("history", Kind::Number(0.0, 1000.0), "200%")
            .means("blocks in the history, as a share of the cache size; as in Baleen's simulator"),
        WRITES,
    ],
    thresholds: Some(Thresholds { at, shown }),
    decides: None,
};

/// Rejects one miss fewer at each position: from the number of positions less one down to none.
fn at(position: f64, last: f64) -> f64 {
    (last - position).round()
}

fn shown(threshold: f64, _block_bytes: u64) -> String {
    format!("x={threshold}")
}

/// Rejects the first misses of a block.
#[derive(Debug)]
pub struct RejectX<I: Index> {
    x: u16,
    history: Misses<I>,
}

impl<I: Index> Judge<I> for RejectX<I> {
    fn build(options: &Options, index: I, capacity: usize, _block_bytes: u64) -> Self {
        let history_max = (options.number("history") * capacity as f64) as usize;
        RejectX { x: options.count("x") as u16, history: Misses::new(index, history_max) }
    }

    fn set_threshold(&mut self, x: f64) {
        self.x = x as u16;
    }

    #[inline(always)]
    fn judge(&mut self, access: &Access<I::Key>, is_cached: impl Fn() -> bool) -> bool {
        self.x == 0 || is_cached() || self.history.count(access.block) > self.x
    }

    fn remembers(&self, block: I::Key) -> bool {
        self.history.has(block)
    }

    fn forget(&mut self, block: I::Key) {
        self.history.forget(block);
    }

    #[inline]
    fn prefetch(&self, soon: I::Key, later: I::Key) {
        if self.x > 0 {
            self.history.prefetch(soon, later);
        }
    }

    fn check(&self) {
        self.history.check();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Dense;

    fn admitted(options: &str, blocks: &[u32]) -> Vec<u32> {
        let options = Options::parse("reject-x", INFO.parameters, options).unwrap();
        let mut rule = RejectX::build(&options, Dense::new(100), 2, 4096);
        let mut admits = |block: &u32| {
            let admits = rule.judge(&Access::read(*block), || false);
            Judge::check(&rule);
            admits
        };
        blocks.iter().copied().filter(|block| admits(block)).collect()
    }

    /// A history of 2 blocks, the last first: `1`, `2 1`; 1 is admitted twice. `3 2` drops 1 despite its later misses,
    /// so 1 (`1 3`) and then 2 are new.
    #[test]
    fn the_second_miss_is_admitted_if_few_other_blocks_were_missed_since_the_first() {
        assert_eq!(admitted("history=100%", &[1, 2, 1, 1, 3, 1, 2, 1]), [1, 1, 1]);
    }

    #[test]
    fn x_misses_are_refused() {
        assert_eq!(admitted("x=2", &[1, 1, 1, 2, 1, 2, 2]), [1, 1, 2]);
        assert_eq!(admitted("x=0", &[1, 2]), [1, 2]);
        assert_eq!(admitted("history=0", &[1, 1, 1]), []);
    }
}
