//! TinyLFU: admit a block if it was recently accessed more often than the block that makes room for it.
//!
//! Source: Einziger, Friedman, Manes: TinyLFU: a highly efficient cache admission policy. ACM Transactions on Storage
//! 13(4), 2017, sections 1 and 3. The counts are those of [`crate::sketch`].
//!
//! Departures from the paper:
//! - A policy reveals its victim only when it evicts. So a missed block is compared with the block that the policy
//!   evicted last, by its current count. The policy `w-tinylfu:window=0` is the paper's, in front of a segmented LRU.
//! - Until the first eviction, everything is admitted.

use super::{Info, Judge, WRITES};
use crate::access::Access;
use crate::index::Index;
use crate::options::{Kind, Options, Parameter};
use crate::sketch::{BlockHash, Sketch};

/// TinyLFU's row in the table of rules.
pub static INFO: Info = Info {
    name: "tinylfu",
    title: "Admits blocks that were accessed more often than the last evicted block",
    source: "Einziger, Friedman, Manes: TinyLFU: a highly efficient cache admission policy. ACM Transactions on \
        Storage 13(4), 2017",
    parameters: &[
        Parameter::of("sample", Kind::Number(1.0, 1000.0), "10").means(
            "W, the accesses in a sample, as a multiple of the cache size; a full sample halves all \
                 counts (section 3.3)",
        ),
        Parameter::of("doorkeeper", Kind::Choice(&["off", "on"]), "off")
            .means("keep first accesses in a sample in a Bloom filter instead of the counters (section 3.4.2)"),
        WRITES,
    ],
    thresholds: None,
    decides: None,
};

/// Admits blocks by their recent accesses.
#[derive(Debug)]
pub struct TinyLfu {
    sketch: Sketch,
    victim: Option<BlockHash>,
}

impl<I: Index> Judge<I> for TinyLfu {
    fn build(options: &Options, _index: I, capacity: usize, _block_bytes: u64) -> Self {
        let sample = (options.number("sample") * capacity as f64) as u64;
        TinyLfu { sketch: Sketch::new(capacity, sample, options.text("doorkeeper") == "on"), victim: None }
    }

    fn set_threshold(&mut self, threshold: f64) {
        unreachable!("TinyLFU has no threshold that could be {threshold}");
    }

    #[inline(always)]
    fn judge(&mut self, access: &Access<I::Key>, is_cached: impl Fn() -> bool) -> bool {
        let candidate = BlockHash::new(&access.block);
        self.sketch.add(candidate);
        is_cached() || self.victim.is_none_or(|victim| self.sketch.estimate(candidate) > self.sketch.estimate(victim))
    }

    #[inline]
    fn note_admitted(&mut self, block: I::Key) {
        self.sketch.add(BlockHash::new(&block));
    }

    #[inline]
    fn note_evicted(&mut self, block: I::Key) {
        self.victim = Some(BlockHash::new(&block));
    }

    #[inline]
    fn prefetch(&self, _soon: I::Key, later: I::Key) {
        self.sketch.prefetch(BlockHash::new(&later));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Dense;

    #[test]
    fn a_block_is_admitted_that_was_accessed_more_often_than_the_last_victim() {
        let options = Options::parse("tinylfu", INFO.parameters, "").unwrap();
        let mut rule = <TinyLfu as Judge<Dense>>::build(&options, Dense::new(100), 100, 4096);
        let judge = |rule: &mut TinyLfu, block| Judge::<Dense>::judge(rule, &Access::read(block), || false);
        assert!(judge(&mut rule, 1), "nothing was evicted yet");
        assert!(judge(&mut rule, 1));
        Judge::<Dense>::note_evicted(&mut rule, 1);
        // 2 against 2: once, twice, and more.
        assert_eq!([2, 2, 2].map(|block| judge(&mut rule, block)), [false, false, true]);
        Judge::<Dense>::note_evicted(&mut rule, 3);
        assert!(judge(&mut rule, 4), "1 against 0");
    }
}
