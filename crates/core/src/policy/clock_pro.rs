//! CLOCK-Pro: LIRS by a clock. A block accessed again soon after its arrival becomes hot. A cold block leaves soon, and
//! is remembered during its test period.
//!
//! Source: Jiang, Chen, Zhang: CLOCK-Pro: an effective improvement of the CLOCK replacement. USENIX ATC 2005, sections
//! 3 and 4. Where the paper is silent, this follows Caffeine's simulator (`ClockProPolicy`), which follows the authors'
//! own.
//!
//! The paper has all pages on one list, in the order of their arrival at its head. Three hands move from its tail. A
//! page that a hand passes moves to the head, leaves or ends its test. So each hand is at the last page of its kind.
//! Here each kind has its own list, and every page has a sequence number of its arrival at the head. The paper's list
//! is all of them in the order of these numbers.
//!
//! Departures from the paper, the first three as in Caffeine's simulator:
//! - While the cache fills, blocks are hot as long as more than the minimum of cold ones has room, then cold.
//! - A cold page that `HAND_hot` passes before it finds a hot page to demote is not promoted, and its test ends.
//! - The target of cold pages, `m_c`, is at least `cold` of the cache, and leaves as much to hot ones.
//! - The paper remembers as many uncached pages as it caches, Caffeine's simulator twice as many: `ghosts`.
//! - Every access counts; Caffeine's simulator skips an access to the same block as the access before it. Without that
//!   skip both give the same hits, with one and with two ghosts per block. They are 37,767 and 35,757 on the trace
//!   sprite in 100 blocks, and 14,403 and 14,559 on multi3 in 745. On the bundled trace in 30,859 blocks they are
//!   149,287 and 156,636.

use super::{Info, Outcome, Policy, of_blocks};
use crate::access::Access;
use crate::blocks::{Blocks, List, NodeId};
use crate::directory::Moved;
use crate::index::Index;
use crate::options::{Kind, Options, Parameter};

/// CLOCK-Pro's row in the table of policies.
pub static INFO: Info = Info {
    name: "clock-pro",
    title: "CLOCK-Pro",
    source: "Jiang, Chen, Zhang: CLOCK-Pro: an effective improvement of the CLOCK replacement. USENIX ATC 2005",
    parameters: &[
        Parameter::of("cold", Kind::Number(0.0, 0.5), "1%").means(
            "the minimum space for cold blocks, and for hot ones, as a share of the cache size, at least \
                 one block",
        ),
        Parameter::of("ghosts", Kind::Number(0.0, 1000.0), "100%")
            .means("the number of uncached blocks that are remembered, as a share of the cache size"),
    ],
    offline: false,
};

/// Hot pages, newest arrival first. `HAND_hot` is at the back.
const HOT: List = List(0);
/// Resident cold pages, newest arrival first. `HAND_cold` is at the back.
const COLD: List = List(1);
/// Non-resident cold pages, all in their test period, newest arrival first.
const NON_RESIDENT: List = List(2);

/// The data of a page.
#[derive(Clone, Copy, Debug, Default, bytemuck::Zeroable)]
struct ClockPage {
    /// The sequence number of its arrival at the head of the paper's list.
    arrival: u64,
    /// The reference bit.
    referenced: bool,
    /// It is cold and resident, and in its test period.
    in_test: bool,
}

/// Hot and cold pages on a clock.
#[derive(Debug)]
pub struct ClockPro<I: Index> {
    /// m.
    c: usize,
    cold_min: usize,
    cold_max: usize,
    ghosts_max: usize,
    /// m_c.
    cold_target: usize,
    /// Arrivals at the head so far.
    arrival: u64,
    /// The oldest resident cold page in its test period. `HAND_test` is at this page or at the last of `NON_RESIDENT`.
    first_in_test: Option<NodeId>,
    blocks: Blocks<I, ClockPage>,
}

impl<I: Index> ClockPro<I> {
    /// Creates an empty cache of `capacity` blocks.
    pub fn new(index: I, capacity: usize, options: &Options) -> Self {
        let c = capacity as f64;
        let cold_min = ((options.number("cold") * c) as usize).max(1);
        ClockPro {
            c: capacity,
            cold_min,
            cold_max: (capacity - cold_min).max(cold_min),
            ghosts_max: (options.number("ghosts") * c) as usize,
            cold_target: cold_min,
            arrival: 0,
            first_in_test: None,
            blocks: Blocks::new(index, 2, 1),
        }
    }

    #[inline]
    fn arrival(&self, x: NodeId) -> u64 {
        self.blocks.data(x).arrival
    }

    /// Returns the node of `block`, if it is in its test period.
    #[inline]
    fn in_test(&self, block: I::Key) -> Option<NodeId> {
        let is_in_test = |x: &NodeId| self.blocks.list(*x) == NON_RESIDENT || self.blocks.data(*x).in_test;
        self.blocks.find(block).filter(is_in_test)
    }

    /// Returns the oldest resident cold page in its test period, from `x` on towards the head.
    fn first_in_test_from(&self, x: Option<NodeId>) -> Option<NodeId> {
        std::iter::successors(x, |&x| self.blocks.toward_front(x)).find(|&x| self.blocks.data(x).in_test)
    }

    /// Ends the test of `x`, or takes it from its position.
    #[inline]
    fn passes(&mut self, x: NodeId) {
        if self.first_in_test == Some(x) {
            self.first_in_test = self.first_in_test_from(self.blocks.toward_front(x));
        }
        *self.blocks.data_mut(x) = ClockPage { referenced: false, in_test: false, ..*self.blocks.data(x) };
    }

    /// Moves `x` to the head of the paper's list as a page of `list`; a cold page starts its test period if `in_test`.
    #[inline]
    fn move_to_head(&mut self, x: NodeId, list: List, in_test: bool) {
        self.passes(x);
        self.arrival += 1;
        *self.blocks.data_mut(x) = ClockPage { arrival: self.arrival, referenced: false, in_test };
        self.blocks.move_front(x, list);
        if in_test && self.first_in_test.is_none() {
            self.first_in_test = Some(x);
        }
    }

    /// Moves `block`, which may be a ghost, to the head.
    #[inline]
    fn insert_at_head(&mut self, block: I::Key, list: List) {
        let x = match self.blocks.find(block) {
            Some(x) => x,
            None => self.blocks.insert_front(list, block, ClockPage::default()),
        };
        self.move_to_head(x, list, list == COLD);
    }

    fn adjust_cold_target(&mut self, more: bool) {
        self.cold_target = if more {
            (self.cold_target + 1).min(self.cold_max)
        } else {
            self.cold_target.saturating_sub(1).max(self.cold_min)
        };
    }

    /// `HAND_test`: ends the test of the oldest page in a test, if it arrived before `last`. Returns false if there is
    /// none.
    fn end_test(&mut self, last: u64) -> bool {
        let of_both = [self.first_in_test, self.blocks.back(NON_RESIDENT)];
        let first = of_both.into_iter().flatten().min_by_key(|&x| self.arrival(x));
        let Some(x) = first.filter(|&x| self.arrival(x) < last) else {
            return false;
        };
        let referenced = self.blocks.data(x).referenced;
        if self.blocks.list(x) == NON_RESIDENT {
            self.blocks.remove(x);
        } else {
            self.passes(x);
            self.blocks.data_mut(x).referenced = referenced;
        }
        self.adjust_cold_target(referenced);
        true
    }

    /// Ends all tests behind `HAND_hot`.
    fn end_tests_behind_hot(&mut self) {
        if let Some(hot) = self.blocks.back(HOT) {
            let arrival = self.arrival(hot);
            while self.end_test(arrival) {}
        }
    }

    /// `HAND_hot`: demotes a hot page that arrived before the tested page, which arrived at `trigger`. Returns false if
    /// there is none.
    fn demote(&mut self, trigger: u64) -> bool {
        let mut demoted = false;
        while let Some(hot) = self.blocks.back(HOT)
            && !demoted
        {
            let arrival = self.arrival(hot);
            while self.end_test(arrival.min(trigger)) {}
            if arrival > trigger {
                break;
            }
            if self.blocks.data(hot).referenced {
                self.move_to_head(hot, HOT, false);
            } else {
                self.move_to_head(hot, COLD, false);
                demoted = true;
            }
        }
        self.end_tests_behind_hot();
        demoted
    }

    /// True if the accessed `block` was in its test period and hot pages can make room for it.
    fn may_promote(&mut self, block: I::Key) -> bool {
        let Some(x) = self.in_test(block) else {
            return false;
        };
        self.adjust_cold_target(true);
        self.blocks.data_mut(x).referenced = false;
        let arrival = self.arrival(x);
        while self.blocks.len(HOT) >= self.c - self.cold_target {
            if self.blocks.is_empty(HOT) || self.in_test(block).is_none() || !self.demote(arrival) {
                return false;
            }
        }
        true
    }

    /// `HAND_cold`: evicts the last resident cold page, or moves it on if it was referenced.
    fn run_hand_cold(&mut self) -> Option<I::Key> {
        let x = self.blocks.back(COLD)?;
        let (key, ClockPage { referenced, in_test, .. }) = (self.blocks.key(x), *self.blocks.data(x));
        if referenced {
            let promoted = in_test && self.may_promote(key);
            self.insert_at_head(key, if promoted { HOT } else { COLD });
            return None;
        }
        self.passes(x);
        if in_test {
            self.blocks.move_front(x, NON_RESIDENT);
            while self.blocks.len(NON_RESIDENT) > self.ghosts_max && self.end_test(u64::MAX) {}
        } else {
            self.blocks.remove(x);
        }
        Some(key)
    }

    fn evict(&mut self) -> I::Key {
        loop {
            if let Some(evicted) = self.run_hand_cold() {
                return evicted;
            }
        }
    }
}

impl<I: Index> Policy for ClockPro<I> {
    of_blocks!(I);

    #[inline]
    fn access(&mut self, access: Access<I::Key>) -> Outcome<I::Key> {
        let block = access.block;
        if let Some(x) = self.blocks.find_cached(block) {
            self.blocks.data_mut(x).referenced = true;
            return Outcome::Hit;
        }
        let free = self.c - self.blocks.cached_len();
        let mut evicted = None;
        let list = if free > self.cold_min {
            HOT
        } else if free > 0 {
            COLD
        } else {
            evicted = Some(self.evict());
            if self.may_promote(block) { HOT } else { COLD }
        };
        self.insert_at_head(block, list);
        self.end_tests_behind_hot();
        Outcome::Admit { evicted }
    }

    fn remove(&mut self, block: I::Key) -> bool {
        let Some(x) = self.blocks.find(block) else {
            return false;
        };
        self.passes(x);
        let list = self.blocks.list(x);
        self.blocks.remove(x);
        self.end_tests_behind_hot();
        list != NON_RESIDENT
    }

    fn moved(&mut self, moved: Moved) {
        if self.first_in_test == Some(moved.from) {
            self.first_in_test = Some(moved.to);
        }
    }

    fn check(&self) {
        self.blocks.check(self.c + self.ghosts_max);
        assert!(self.blocks.cached_len() <= self.c);
        assert!(self.blocks.len(HOT) <= self.c - self.cold_min, "{} hot pages of {}", self.blocks.len(HOT), self.c);
        assert!(self.blocks.len(NON_RESIDENT) <= self.ghosts_max, "{} ghosts", self.blocks.len(NON_RESIDENT));
        assert!((self.cold_min..=self.cold_max).contains(&self.cold_target), "m_c = {}", self.cold_target);
        let hot_hand = self.blocks.back(HOT).map_or(0, |hot| self.arrival(hot));
        for list in [HOT, COLD, NON_RESIDENT] {
            let mut newer = self.arrival + 1;
            for x in self.blocks.keys(list).filter_map(|key| self.blocks.find(key)) {
                let ClockPage { arrival, in_test, .. } = *self.blocks.data(x);
                assert!(arrival < newer, "pages are in order of arrival");
                assert!(!in_test || list == COLD, "resident cold pages are marked as in their tests");
                assert!(!(in_test || list == NON_RESIDENT) || arrival > hot_hand, "a test continues behind HAND_hot");
                newer = arrival;
            }
        }
        assert_eq!(
            self.first_in_test,
            self.first_in_test_from(self.blocks.back(COLD)),
            "the first cold page in its test"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Dense;
    use crate::policy::outcomes::{FILL, HIT, evict};

    fn draw(clock: &ClockPro<Dense>) -> String {
        let mark = |key: u32| {
            let page = clock.blocks.find(key).map(|x| *clock.blocks.data(x)).unwrap_or_default();
            format!("{key}{}{}", if page.referenced { "'" } else { "" }, if page.in_test { "t" } else { "" })
        };
        [HOT, COLD, NON_RESIDENT]
            .map(|list| clock.blocks.keys(list).map(mark).collect::<Vec<_>>().join(" "))
            .join(" | ")
    }

    /// Three blocks, at least one of them cold, and three ghosts. The columns are `hot | resident cold | not resident`,
    /// each newest first; `'` is the reference bit, `t` a test period. Each row ends with m_c after the access.
    ///
    ///     access   what happens
    ///     3        returns in its test: m_c is 2, and hot pages may be one fewer: 1 and 2 turn cold.
    ///              3, now hot, is the newest: the test of 4 ends, m_c is 1
    ///     5        1 was referenced, not in a test: it goes on, in a test; 2 leaves
    ///     6        1 was referenced in its test, m_c is 2; HAND_hot finds 3, which was referenced and goes on,
    ///              and no other: the tests of 1 and 5 end without a reference, m_c is 1; 1 goes on in a test,
    ///              and 5 leaves for good
    #[test]
    fn a_block_that_returns_in_its_test_becomes_hot() {
        let options = Options::parse("clock-pro", INFO.parameters, "").unwrap();
        let mut clock = ClockPro::new(Dense::new(100), 3, &options);
        let rows = [
            (1, FILL, "1 |  | ", 1),
            (2, FILL, "2 1 |  | ", 1),
            (3, FILL, "2 1 | 3t | ", 1),
            (4, evict(3), "2 1 | 4t | 3", 1),
            (3, evict(4), "3 | 2 1 | ", 1),
            (1, HIT, "3 | 2 1' | ", 1),
            (5, evict(2), "3 | 5t 1t | ", 1),
            (1, HIT, "3 | 5t 1't | ", 1),
            (3, HIT, "3' | 5t 1't | ", 1),
            (6, evict(5), "3 | 6t 1t | ", 1),
            (7, evict(1), "3 | 7t 6t | 1", 1),
            (8, evict(6), "3 | 8t 7t | 6 1", 1),
            (9, evict(7), "3 | 9t 8t | 7 6 1", 1),
            // Four are too many: the test of 1 ends.
            (10, evict(8), "3 | 10t 9t | 8 7 6", 1),
            // 7 returned: m_c is 2; 3 is hot, and turns cold; then all tests end that began before 7 arrived.
            (7, evict(9), "7 | 3 10 | ", 1),
        ];
        for (block, outcome, after, cold_target) in rows {
            assert_eq!(clock.access(Access::read(block)), outcome, "access to {block}");
            assert_eq!((draw(&clock).as_str(), clock.cold_target), (after, cold_target), "after the access to {block}");
            clock.check();
        }
    }

    #[test]
    fn a_removed_block_ends_the_tests_behind_the_next_hot_one() {
        let options = Options::parse("clock-pro", INFO.parameters, "").unwrap();
        let mut clock = ClockPro::new(Dense::new(100), 3, &options);
        for block in 1..=4 {
            clock.access(Access::read(block));
        }
        assert!(clock.remove(1) && !clock.remove(3) && !clock.remove(3));
        assert_eq!(draw(&clock), "2 | 4t | ");
        assert_eq!(clock.access(Access::read(5)), FILL);
        assert_eq!(draw(&clock), "2 | 5t 4t | ", "one place is free, for a cold page");
        clock.check();
    }
}
