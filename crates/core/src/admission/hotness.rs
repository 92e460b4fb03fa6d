//! Hotness: admit a block once it was referenced often enough while in a history of blocks that are not cached.
//!
//! Source: Moon, Reddy: Adaptive policies for balancing performance and lifetime of mixed SSD arrays through workload
//! sampling. MSST 2016, section III.B: the second queue of 2Q with a threshold, and its other form, blocks whose reference
//! count is in the top 10 % of the history.
//!
//! `min`: a missed block is put at the head of the history, an LRU queue as long as the cache; when it is referenced for
//! the `min`-th time while it is there, it leaves the history and is admitted. The paper's threshold is `min` - 1.
//!
//! `top`: the history has every block that was referenced lately, cached or not, with its count. A missed block is admitted
//! if it belongs to the `top` share of the history with the highest counts.
//!
//! Departures from the paper:
//! - With `top`, the history includes cached blocks: if blocks left it once they are admitted, the first that is referenced
//!   twice would always be in the top. Blocks with equal counts are in the top together or not at all. Counts stop at
//!   255, and a block that has so many is in the top.

use super::Info;
use crate::blocks::{Blocks, List};
use crate::index::Index;
use crate::options::{Kind, Options, Parameter};

/// Hotness's row in the table of rules.
pub static INFO: Info = Info {
    name: "hotness",
    title: "Admits blocks that were missed before",
    source: "Moon, Reddy: Adaptive policies for balancing performance and lifetime of mixed SSD arrays through workload sampling. MSST 2016, section III.B",
    parameters: &[
        Parameter {
            name: "min",
            kind: Kind::Count(1, 255),
            default: "2",
            meaning: "references in the history, this one included, from which on a block is admitted; as in 2Q",
        },
        Parameter {
            name: "top",
            kind: Kind::Number(0.0, 1.0),
            default: "",
            meaning: "admit by rank instead: the share of the history with the most references; 10% in the paper",
        },
        Parameter {
            name: "history",
            kind: Kind::Number(0.0, 1000.0),
            default: "100%",
            meaning: "blocks in the history, as a share of the cache size",
        },
    ],
};

const COUNT_MAX: u8 = u8::MAX;
/// The blocks of the history, last referenced first.
const HISTORY: List = List(0);

/// See the module.
#[derive(Debug)]
pub struct Hotness<I: Index> {
    history_max: usize,
    history: Blocks<I, u8>,
    threshold: Threshold,
}

#[derive(Debug)]
enum Threshold {
    Min(u8),
    Top(Box<Top>),
}

/// Which counts belong to the top of the history.
#[derive(Debug)]
struct Top {
    share: f64,
    /// Blocks of the history by count.
    blocks_of: [u32; COUNT_MAX as usize + 1],
    /// The least count in the top, at most `COUNT_MAX`.
    least: u8,
    /// Blocks whose count is `least` or more.
    above: u32,
}

impl Top {
    /// Moves `least` to where the top has at most its share of `len` blocks, and would have more with the next count below.
    #[inline]
    fn settle(&mut self, len: usize) {
        let above_max = (self.share * len as f64) as u32;
        while self.above > above_max && self.least < COUNT_MAX {
            self.above -= self.blocks_of[usize::from(self.least)];
            self.least += 1;
        }
        while self.least > 1 && self.above + self.blocks_of[usize::from(self.least) - 1] <= above_max {
            self.least -= 1;
            self.above += self.blocks_of[usize::from(self.least)];
        }
    }

    #[inline]
    fn add(&mut self, count: u8) {
        self.blocks_of[usize::from(count)] += 1;
        self.above += u32::from(count >= self.least);
    }

    #[inline]
    fn take(&mut self, count: u8) {
        self.blocks_of[usize::from(count)] -= 1;
        self.above -= u32::from(count >= self.least);
    }
}

impl<I: Index> Hotness<I> {
    /// A rule with an empty history for a cache of `capacity` blocks.
    pub fn new(index: I, capacity: usize, options: &Options) -> Self {
        let threshold = if options.has("top") {
            let share = options.number("top");
            let blocks_of = [0; COUNT_MAX as usize + 1];
            Threshold::Top(Box::new(Top { share, blocks_of, least: COUNT_MAX, above: 0 }))
        } else {
            Threshold::Min(options.count("min") as u8)
        };
        let history_max = (options.number("history") * capacity as f64) as usize;
        Hotness { history_max, history: Blocks::new(index, 1), threshold }
    }

    /// A rule with an empty history as long as the cache, which admits from the `min`-th reference on.
    pub fn with_min(index: I, capacity: usize, min: u8) -> Self {
        Hotness { history_max: capacity, history: Blocks::new(index, 1), threshold: Threshold::Min(min) }
    }

    /// Admits from the `min`-th reference on, from now on.
    pub fn set_min(&mut self, min: u8) {
        self.threshold = Threshold::Min(min);
    }

    /// Whether the missed `block` is admitted.
    #[inline]
    pub fn admits(&mut self, block: I::Key) -> bool {
        match self.threshold {
            Threshold::Min(min) => self.has_been_missed(block, min),
            Threshold::Top(_) => self.is_in_top(block),
        }
    }

    /// Notes that the cached `block` was referenced.
    #[inline]
    pub fn hit(&mut self, block: I::Key) {
        if matches!(self.threshold, Threshold::Top(_)) {
            self.is_in_top(block);
        }
    }

    #[inline]
    fn has_been_missed(&mut self, block: I::Key, min: u8) -> bool {
        if let Some(node) = self.history.find(block) {
            let count = self.history.data_mut(node);
            *count = count.saturating_add(1);
            if *count >= min {
                self.history.remove(node);
                return true;
            }
            self.history.move_front(node, HISTORY);
            return false;
        }
        if min > 1 && self.history_max > 0 {
            if self.history.len(HISTORY) == self.history_max {
                self.history.pop_back(HISTORY);
            }
            self.history.insert_front(HISTORY, block, 1);
        }
        min <= 1
    }

    #[inline]
    fn is_in_top(&mut self, block: I::Key) -> bool {
        let Threshold::Top(top) = &mut self.threshold else { return false };
        if self.history_max == 0 {
            return false;
        }
        let mut count = 1;
        if let Some(node) = self.history.find(block) {
            let before = *self.history.data(node);
            count = before.saturating_add(1);
            top.take(before);
            *self.history.data_mut(node) = count;
            self.history.move_front(node, HISTORY);
        } else {
            if self.history.len(HISTORY) == self.history_max
                && let Some(last) = self.history.back(HISTORY)
            {
                top.take(*self.history.data(last));
                self.history.pop_back(HISTORY);
            }
            self.history.insert_front(HISTORY, block, count);
        }
        top.add(count);
        top.settle(self.history.len(HISTORY));
        count >= top.least
    }

    /// Whether `block` is in the history.
    pub fn remembers(&self, block: I::Key) -> bool {
        self.history.find(block).is_some()
    }

    /// Forgets `block`.
    pub fn forget(&mut self, block: I::Key) {
        let Some(node) = self.history.find(block) else { return };
        let count = *self.history.data(node);
        self.history.remove(node);
        if let Threshold::Top(top) = &mut self.threshold {
            top.take(count);
            top.settle(self.history.len(HISTORY));
        }
    }

    /// A hint that `later` will be accessed soon and `soon`, for which the hint as `later` was given before, sooner.
    #[inline]
    pub fn prefetch(&self, soon: I::Key, later: I::Key) {
        self.history.prefetch_node(soon);
        self.history.prefetch_index(later);
    }

    /// Asserts that the history is no longer than it may be and that the top is what its counts say.
    pub fn check(&self) {
        self.history.check(self.history_max);
        let Threshold::Top(top) = &self.threshold else { return };
        let mut blocks_of = [0; COUNT_MAX as usize + 1];
        for key in self.history.keys(HISTORY) {
            let node = self.history.find(key).expect("a listed block is indexed");
            blocks_of[usize::from(*self.history.data(node))] += 1;
        }
        assert_eq!(blocks_of, top.blocks_of);
        let above_max = (top.share * self.history.len(HISTORY) as f64) as u32;
        assert_eq!(top.above, blocks_of[usize::from(top.least)..].iter().sum::<u32>());
        assert!(top.above <= above_max || top.least == COUNT_MAX, "{} in the top, {above_max} at most", top.above);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Dense;

    fn hotness(capacity: usize, options: &str) -> Hotness<Dense> {
        let options = Options::parse("hotness", INFO.parameters, options).unwrap();
        Hotness::new(Dense::new(100), capacity, &options)
    }

    /// A history of 2 blocks: 1 | 2 1 | 3 2 (1 is forgotten) | 1 3 | then 3 for the second time, which leaves.
    #[test]
    fn a_block_is_admitted_by_its_second_miss_if_the_history_still_has_it() {
        let mut hotness = hotness(2, "");
        let rows = [(1, false), (2, false), (3, false), (1, false), (3, true), (3, false), (1, true)];
        for (at, (block, admitted)) in rows.into_iter().enumerate() {
            assert_eq!(hotness.admits(block), admitted, "access {at} to {block}");
            hotness.check();
        }
        assert_eq!(hotness.history.keys(HISTORY).collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn min_is_the_number_of_references_and_1_admits_all() {
        let mut third = hotness(10, "min=3");
        assert_eq!([1, 1, 1, 1].map(|block| third.admits(block)), [false, false, true, false]);
        let mut all = hotness(10, "min=1");
        assert!((0..50).all(|block| all.admits(block)));
        assert!(all.history.is_empty(HISTORY));
        let mut none = hotness(10, "history=0");
        assert!((0..50).all(|_| !none.admits(1)));
    }

    /// Ten blocks once each: a tenth of them is one, and all have one reference, so that none stands out. The second reference to
    /// 3 puts it alone above the others; with a second one to 4 two have two, more than a tenth; the third to 4 puts it above.
    /// A hit counts too: 3 and 4 are even again.
    #[test]
    fn the_top_is_the_share_with_the_most_references() {
        let mut hotness = hotness(10, "top=10%");
        assert!((0..10).all(|block| !hotness.admits(block)));
        let rows = [(3, true), (4, false), (4, true)];
        for (block, admitted) in rows {
            assert_eq!(hotness.admits(block), admitted, "{block}");
            hotness.check();
        }
        hotness.hit(3);
        assert!(!hotness.admits(5));
        hotness.forget(4);
        hotness.check();
        hotness.hit(3);
        assert!(!hotness.admits(10), "3 is above all others, and 10 new");
        assert!(hotness.admits(3));
    }

    #[test]
    fn the_history_stays_in_its_bounds_while_thresholds_and_blocks_change() {
        let mut hotness = hotness(20, "top=20%");
        let (mut state, mut len_max) = (1_u32, 0);
        for _ in 0..20_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let block = (state >> 16) % 60;
            match state >> 8 & 7 {
                0 => hotness.forget(block),
                1 => hotness.hit(block),
                _ => {
                    hotness.admits(block);
                }
            }
            hotness.check();
            len_max = len_max.max(hotness.history.len(HISTORY));
        }
        assert_eq!(len_max, 20);
    }
}
