//! NHIT: once the cache is nearly full, admit a block by its n-th miss.
//!
//! Source: the Open CAS Framework, promotion policy "nhit", `src/promotion/nhit`.
//!
//! Departures from its code:
//! - There a request is admitted as a whole, if all of its blocks are or if one is cached; here each block separately.
//! - The fill level for the trigger is updated when blocks are admitted and removed.

use super::misses::Misses;
use super::{Info, Judge, WRITES};
use crate::access::Access;
use crate::index::Index;
use crate::options::{Kind, Options, Parameter};

/// NHIT's row in the table of rules.
pub static INFO: Info = Info {
    name: "nhit",
    title: "Admits the n-th miss of a block once the cache is nearly full: promotion of Open CAS",
    source: "Open CAS Framework, src/promotion/nhit",
    parameters: &[
        Parameter::of("threshold", Kind::Count(2, 1000), "3").means(
            "misses of a block, this one included, from which on it is admitted: Open CAS's insertion threshold",
        ),
        Parameter::of("trigger", Kind::Number(0.0, 1.0), "80%")
            .means("the share of the cache that is filled unconditionally: Open CAS's trigger threshold"),
        Parameter::of("history", Kind::Number(0.0, 1000.0), "200%")
            .means("blocks in the history, in the order of their first misses, as a share of the cache size"),
        WRITES,
    ],
    thresholds: None,
    decides: None,
};

/// Admits blocks by their n-th miss.
#[derive(Debug)]
pub struct Nhit<I: Index> {
    threshold: u16,
    /// Number of cached blocks from which on misses are judged.
    trigger: usize,
    cached: usize,
    history: Misses<I>,
}

impl<I: Index> Judge<I> for Nhit<I> {
    fn build(options: &Options, index: I, capacity: usize, _block_bytes: u64) -> Self {
        let share = |name| options.number(name) * capacity as f64;
        Nhit {
            threshold: options.count("threshold") as u16,
            trigger: share("trigger").ceil() as usize,
            cached: 0,
            history: Misses::new(index, share("history") as usize),
        }
    }

    fn set_threshold(&mut self, threshold: f64) {
        self.threshold = threshold as u16;
    }

    #[inline(always)]
    fn judge(&mut self, access: &Access<I::Key>, is_cached: impl Fn() -> bool) -> bool {
        self.cached < self.trigger || is_cached() || self.history.count(access.block) >= self.threshold
    }

    #[inline]
    fn note_len(&mut self, len: usize, admitted: Option<I::Key>) {
        self.cached = len;
        if let Some(admitted) = admitted {
            self.history.reset(admitted);
        }
    }

    fn remembers(&self, block: I::Key) -> bool {
        self.history.has(block)
    }

    fn forget(&mut self, block: I::Key) {
        self.history.forget(block);
    }

    #[inline]
    fn prefetch(&self, soon: I::Key, later: I::Key) {
        self.history.prefetch(soon, later);
    }

    fn check(&self) {
        self.history.check();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Dense;

    /// A cache of 5 blocks; 4 are filled freely. Then the third miss is admitted, and the count restarts.
    #[test]
    fn the_third_miss_is_admitted_once_the_cache_is_filled_to_the_trigger() {
        let options = Options::parse("nhit", INFO.parameters, "").unwrap();
        let mut rule = Nhit::build(&options, Dense::new(100), 5, 4096);
        let mut cached = 0;
        let mut judge = |block: u32| {
            let admits = rule.judge(&Access::read(block), || false);
            if admits {
                cached += 1;
                rule.note_len(cached.min(5), Some(block));
            }
            Judge::check(&rule);
            admits
        };
        let found = [1, 2, 3, 4, 5, 5, 6, 5, 5, 5, 5].map(&mut judge);
        assert_eq!(found, [true, true, true, true, false, false, false, true, false, false, true]);
    }
}
