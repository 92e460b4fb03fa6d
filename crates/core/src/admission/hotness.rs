//! Hotness: admit a block after enough references within a history of uncached blocks.
//!
//! Source: Moon, Reddy: Adaptive policies for balancing performance and lifetime of mixed SSD arrays through workload
//! sampling. MSST 2016, section III.B. Its first form is the second queue of 2Q with a threshold. The other admits
//! blocks whose reference count is in the top 10 % of the history.
//!
//! `min`: a missed block moves to the head of the history, an LRU queue as long as the cache. On its `min`-th reference
//! there, it leaves the history and is admitted. The paper's threshold is `min` - 1.
//!
//! `top`: the history has every recently referenced block, cached or not, with its count. A missed block is admitted if
//! it belongs to the `top` share of the history with the highest counts.
//!
//! Departures from the paper:
//! - With `top`, the history includes cached blocks. If admitted blocks left it, the first block referenced twice would
//!   always be in the top. Blocks with equal counts are all in the top or none. Counts saturate at 255, and such a
//!   block is in the top.

use super::history::{History, Referenced};
use super::{Info, Judge, Thresholds, WRITES};
use crate::access::Access;
use crate::index::Index;
use crate::options::{Kind, Options, Parameter};

/// Hotness's row in the table of rules.
pub static INFO: Info = Info {
    name: "hotness",
    title: "Admits blocks that were missed before",
    source: "Moon, Reddy: Adaptive policies for balancing performance and lifetime of mixed SSD arrays through \
        workload sampling. MSST 2016, section III.B",
    parameters: &[
        Parameter::of("min", Kind::Count(1, 255), "2")
            .means("references in the history, this one included, from which on a block is admitted; as in 2Q"),
        Parameter::of("top", Kind::Number(0.0, 1.0), "")
            .means("admit by rank instead: the share of the history with the most references; 10% in the paper"),
        Parameter::of("history", Kind::Number(0.0, 1000.0), "100%")
            .means("blocks in the history, as a share of the cache size"),
        WRITES,
    ],
    thresholds: Some(Thresholds { at, shown }),
    decides: None,
};

/// Requires one reference fewer at each position: from the number of positions down to one.
fn at(position: f64, last: f64) -> f64 {
    f64::from((1.0 + last - position).round() as u8)
}

fn shown(threshold: f64, _block_bytes: u64) -> String {
    format!("min={threshold}")
}

const COUNT_MAX: u8 = u8::MAX;

/// Admits blocks by their references in a history.
#[derive(Debug)]
pub struct Hotness<I: Index> {
    history: History<I>,
    threshold: Threshold,
}

#[derive(Debug)]
enum Threshold {
    Min(u8),
    Top(Box<Top>),
}

/// The range of counts in the top of the history.
#[derive(Debug)]
struct Top {
    share: f64,
    /// Number of blocks of the history by count.
    blocks_of: [u32; COUNT_MAX as usize + 1],
    /// The smallest count in the top, at most `COUNT_MAX`.
    least: u8,
    /// Blocks whose count is `least` or more.
    above: u32,
    /// Maximum number of blocks in the top.
    above_max: u32,
}

impl Top {
    fn new(share: f64) -> Top {
        Top { share, blocks_of: [0; COUNT_MAX as usize + 1], least: COUNT_MAX, above: 0, above_max: 0 }
    }

    /// Sets the length of the history.
    #[inline]
    fn set_len(&mut self, len: usize) {
        self.above_max = (self.share * len as f64) as u32;
        self.settle();
    }

    /// Moves `least` so that the top has at most its share of the blocks, and would exceed it with the next lower
    /// count.
    #[inline]
    fn settle(&mut self) {
        while self.above > self.above_max && self.least < COUNT_MAX {
            self.above -= self.blocks_of[usize::from(self.least)];
            self.least += 1;
        }
        while self.least > 1 && self.above + self.blocks_of[usize::from(self.least) - 1] <= self.above_max {
            self.least -= 1;
            self.above += self.blocks_of[usize::from(self.least)];
        }
    }

    /// Raises a block's count from `before`, 0 if it is new in the history. Afterwards `above` may be too large.
    #[inline]
    fn raise(&mut self, before: u8, count: u8) {
        if before > 0 {
            self.blocks_of[usize::from(before)] -= 1;
        }
        self.blocks_of[usize::from(count)] += 1;
        self.above += u32::from((before < self.least) & (count >= self.least));
    }

    /// Removes a block with `count` references; the caller then sets the new length.
    #[inline]
    fn take(&mut self, count: u8) {
        self.blocks_of[usize::from(count)] -= 1;
        self.above -= u32::from(count >= self.least);
    }
}

impl<I: Index> Hotness<I> {
    /// Creates a rule with an empty history for a cache of `capacity` blocks.
    pub fn new(index: I, capacity: usize, options: &Options) -> Self {
        let threshold = if options.has("top") {
            Threshold::Top(Box::new(Top::new(options.number("top"))))
        } else {
            Threshold::Min(options.count("min") as u8)
        };
        let history_max = (options.number("history") * capacity as f64) as usize;
        Hotness { history: History::new(index, history_max), threshold }
    }

    /// Creates a rule with an empty history as long as the cache, which admits from the `min`-th reference on.
    pub fn with_min(index: I, capacity: usize, min: u8) -> Self {
        Hotness { history: History::new(index, capacity), threshold: Threshold::Min(min) }
    }

    /// True if references to cached blocks are counted too.
    #[inline]
    fn counts_hits(&self) -> bool {
        matches!(self.threshold, Threshold::Top(_))
    }

    /// True if every block is admitted, without a history to update.
    #[inline]
    fn is_idle(&self) -> bool {
        self.history.is_empty() && matches!(self.threshold, Threshold::Min(1))
    }

    /// True if `block`, which is referenced, is admitted when missed. If the rule does not count hits, `block` must be
    /// a miss.
    #[inline]
    fn admits(&mut self, block: I::Key) -> bool {
        match &mut self.threshold {
            Threshold::Min(min) => has_been_missed(&mut self.history, block, *min),
            Threshold::Top(top) => is_in_top(&mut self.history, block, top),
        }
    }

    /// Forgets `block`.
    fn forget(&mut self, block: I::Key) {
        let Some(place) = self.history.find(block) else { return };
        let count = self.history.count(place);
        self.history.remove(place);
        if let Threshold::Top(top) = &mut self.threshold {
            top.take(count);
            top.set_len(self.history.len());
        }
    }

    /// Asserts that the history is within its limit and that the top agrees with its counts.
    fn check(&self) {
        self.history.check();
        let Threshold::Top(top) = &self.threshold else { return };
        let mut blocks_of = [0; COUNT_MAX as usize + 1];
        for (_, count) in self.history.iter() {
            blocks_of[usize::from(count)] += 1;
        }
        assert_eq!(blocks_of, top.blocks_of);
        let above_max = (top.share * self.history.len() as f64) as u32;
        assert_eq!(top.above_max, above_max);
        assert_eq!(top.above, blocks_of[usize::from(top.least)..].iter().sum::<u32>());
        assert!(top.above <= above_max || top.least == COUNT_MAX, "{} in the top, {above_max} at most", top.above);
    }
}

impl<I: Index> Judge<I> for Hotness<I> {
    fn build(options: &Options, index: I, capacity: usize, _block_bytes: u64) -> Self {
        Hotness::new(index, capacity, options)
    }

    fn set_threshold(&mut self, references_min: f64) {
        self.threshold = Threshold::Min(references_min as u8);
    }

    #[inline(always)]
    fn judge(&mut self, access: &Access<I::Key>, is_cached: impl Fn() -> bool) -> bool {
        if self.counts_hits() {
            return self.admits(access.block) | is_cached();
        }
        self.is_idle() || is_cached() || self.admits(access.block)
    }

    #[inline]
    fn note_admitted(&mut self, block: I::Key) {
        if self.counts_hits() {
            self.admits(block);
        } else {
            self.forget(block);
        }
    }

    fn remembers(&self, block: I::Key) -> bool {
        self.history.find(block).is_some()
    }

    fn forget(&mut self, block: I::Key) {
        Hotness::forget(self, block);
    }

    #[inline]
    fn prefetch(&self, soon: I::Key, later: I::Key) {
        if !self.is_idle() {
            self.history.prefetch_place(soon);
            self.history.prefetch_index(later);
        }
    }

    fn check(&self) {
        Hotness::check(self);
    }
}

#[inline]
fn has_been_missed<I: Index>(history: &mut History<I>, block: I::Key, min: u8) -> bool {
    if let Some(place) = history.find(block)
        && history.count(place).saturating_add(1) >= min
    {
        history.remove(place);
        return true;
    }
    if min > 1 {
        history.reference(block);
    }
    min <= 1
}

#[inline]
fn is_in_top<I: Index>(history: &mut History<I>, block: I::Key, top: &mut Top) -> bool {
    if history.len_max() == 0 {
        return false;
    }
    let Referenced { before, forgotten } = history.reference(block);
    let count = before.saturating_add(1);
    top.raise(before, count);
    if before == 0 {
        if let Some(forgotten) = forgotten {
            top.take(forgotten);
        }
        top.set_len(history.len());
    } else if top.above > top.above_max {
        top.settle();
    }
    count >= top.least
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Dense;

    fn hotness(capacity: usize, options: &str) -> Hotness<Dense> {
        let options = Options::parse("hotness", INFO.parameters, options).unwrap();
        Hotness::new(Dense::new(100), capacity, &options)
    }

    /// A history of 2 blocks: 1 | 2 1 | 3 2 (1 is forgotten) | 1 3 | then 3 a second time, which leaves.
    #[test]
    fn a_block_is_admitted_by_its_second_miss_if_the_history_still_has_it() {
        let mut hotness = hotness(2, "");
        let rows = [(1, false), (2, false), (3, false), (1, false), (3, true), (3, false), (1, true)];
        for (at, (block, admitted)) in rows.into_iter().enumerate() {
            assert_eq!(hotness.admits(block), admitted, "access {at} to {block}");
            hotness.check();
        }
        assert_eq!(hotness.history.iter().collect::<Vec<_>>(), [(3, 1)]);
    }

    #[test]
    fn min_is_the_number_of_references_and_1_admits_all() {
        let mut third = hotness(10, "min=3");
        assert_eq!([1, 1, 1, 1].map(|block| third.admits(block)), [false, false, true, false]);
        let mut all = hotness(10, "min=1");
        assert!((0..50).all(|block| all.admits(block)));
        assert!(all.history.is_empty());
        let mut none = hotness(10, "history=0");
        assert!((0..50).all(|_| !none.admits(1)));
    }

    /// Ten blocks once each: a tenth of them is one, and all have one reference, so none stands out. The second
    /// reference to 3 puts it above all others. With a second one to 4 two have two, more than a tenth; the third to 4
    /// puts it above. A hit counts too: 3 and 4 are equal again.
    #[test]
    fn the_top_is_the_share_with_the_most_references() {
        let mut hotness = hotness(10, "top=10%");
        assert!((0..10).all(|block| !hotness.admits(block)));
        let rows = [(3, true), (4, false), (4, true)];
        for (block, admitted) in rows {
            assert_eq!(hotness.admits(block), admitted, "{block}");
            hotness.check();
        }
        hotness.admits(3);
        assert!(!hotness.admits(5));
        hotness.forget(4);
        hotness.check();
        hotness.admits(3);
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
                _ => {
                    hotness.admits(block);
                }
            }
            hotness.check();
            len_max = len_max.max(hotness.history.len());
        }
        assert_eq!(len_max, 20);
    }
}
