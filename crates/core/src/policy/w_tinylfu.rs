//! W-TinyLFU: new blocks pass through a small LRU window. A block that leaves it enters the main cache only if it was
//! recently accessed more often than the block that it would evict.
//!
//! Source: Einziger, Friedman, Manes: TinyLFU: a highly efficient cache admission policy. ACM Transactions on Storage
//! 13(4), 2017, section 4 for the window and the segmented LRU, section 3 for the counts (see [`crate::sketch`]). For
//! `climb=on`, where the window's share follows the hit ratio: Einziger, Eytan, Friedman, Manes: Adaptive software
//! cache management. Middleware 2018, with the constants of the authors' Caffeine 3.
//!
//! Departures from the paper:
//! - While the main cache is not full, blocks that leave the window enter it without a comparison.
//! - Of two blocks with equal counts the one in the main cache stays, as in the paper's TinyLFU. The authors' Caffeine
//!   has an option to decide at random, against attacks on its hashing.
//! - The window's share is rounded up to blocks. Without a window (`window=0`) the missed block itself must pass the
//!   comparison, which is plain TinyLFU in front of a segmented LRU.
//! - A main cache whose blocks are all protected evicts the least recently used of them.
//! - A removed block stays counted: the sketch counts hashes, so the share of a single block in a counter is unknown.
//! - The climber counts hits once the cache is full. It moves all blocks of a step at once; Caffeine moves at most
//!   1,000 at once. The protected segment shrinks by as much as the window grows, as in Caffeine.
//! - The doorkeeper is off, as in the authors' simulator; the paper proposes it to save memory, not for hits.

use super::{Info, Outcome, Policy, of_blocks};
use crate::access::Access;
use crate::blocks::{Blocks, List, NodeId};
use crate::index::Index;
use crate::options::{Kind, Options, Parameter};
use crate::sketch::{BlockHash, Sketch};

/// W-TinyLFU's row in the table of policies.
pub static INFO: Info = Info {
    name: "w-tinylfu",
    title: "Window Tiny Least Frequently Used",
    source: "Einziger, Friedman, Manes: TinyLFU: a highly efficient cache admission policy. ACM Transactions on \
        Storage \
             13(4), 2017",
    parameters: &[
        Parameter::of("window", Kind::Number(0.0, 1.0), "1%")
            .means("the window's share of the cache; the main cache has the rest (section 4)"),
        Parameter::of("protected", Kind::Number(0.0, 1.0), "80%")
            .means("the share of the main cache for its protected segment, of blocks hit there (section 4)"),
        Parameter::of("sample", Kind::Number(1.0, 1000.0), "10").means(
            "W, the accesses in a sample, as a multiple of the cache size; a full sample halves all \
                 counts (section 3.3)",
        ),
        Parameter::of("doorkeeper", Kind::Choice(&["off", "on"]), "off")
            .means("keep first accesses in a sample in a Bloom filter instead of the counters (section 3.4.2)"),
        Parameter::of("climb", Kind::Choice(&["off", "on"]), "off").means(
            "adapt the window, from its share on, after each sample of W accesses (Middleware 2018). It \
                 grows or shrinks as long as the hit ratio rises, and reverses when it falls",
        ),
    ],
    offline: false,
};

/// The window. Every list has the most recently used block first.
const WINDOW: List = List(0);
/// The main cache's blocks without a recent hit there.
const PROBATION: List = List(1);
/// The main cache's blocks with a recent hit there.
const PROTECTED: List = List(2);

/// The climber's first step, as a share of the cache.
const STEP_SHARE: f64 = 0.0625;
/// Factor by which a step shrinks from one sample to the next.
const STEP_DECAY: f64 = 0.98;
/// A change of the hit ratio of at least this much restarts with the first step.
const RESTART: f64 = 0.05;

/// Hill climbing: finds the window's length with the best hit ratio.
#[derive(Debug)]
struct Climber {
    /// Accesses in a sample.
    sample: u64,
    accesses: u64,
    hits: u64,
    hit_ratio_before: f64,
    /// Blocks that the window gains next, unless the hit ratio falls.
    step: f64,
    step_first: f64,
}

impl Climber {
    fn new(capacity: usize, sample: u64) -> Climber {
        let step_first = STEP_SHARE * capacity as f64;
        // Down first.
        Climber { sample: sample.max(1), accesses: 0, hits: 0, hit_ratio_before: 0.0, step: -step_first, step_first }
    }

    /// Counts an access; at the end of a sample, returns the blocks that the window gains.
    #[inline]
    fn count(&mut self, is_hit: bool) -> Option<f64> {
        self.accesses += 1;
        self.hits += u64::from(is_hit);
        (self.accesses == self.sample).then(|| self.climb())
    }

    #[cold]
    fn climb(&mut self) -> f64 {
        let hit_ratio = self.hits as f64 / self.accesses as f64;
        let change = hit_ratio - self.hit_ratio_before;
        let gain = if change >= 0.0 { self.step } else { -self.step };
        self.step = if change.abs() >= RESTART { self.step_first.copysign(gain) } else { STEP_DECAY * gain };
        (self.accesses, self.hits, self.hit_ratio_before) = (0, 0, hit_ratio);
        gain
    }
}

/// A window and a main cache, which admits blocks accessed more often than its victims.
#[derive(Debug)]
pub struct WTinyLfu<I: Index> {
    window_max: usize,
    main_max: usize,
    protected_max: usize,
    sketch: Sketch,
    climber: Option<Climber>,
    blocks: Blocks<I, ()>,
}

impl<I: Index> WTinyLfu<I> {
    /// Creates an empty cache of `capacity` blocks.
    pub fn new(index: I, capacity: usize, options: &Options) -> Self {
        let c = capacity as f64;
        let window_max = (options.number("window") * c).ceil() as usize;
        let main_max = capacity - window_max;
        let sample = (options.number("sample") * c) as u64;
        WTinyLfu {
            window_max,
            main_max,
            protected_max: (options.number("protected") * main_max as f64) as usize,
            sketch: Sketch::new(capacity, sample, options.text("doorkeeper") == "on"),
            climber: (options.text("climb") == "on").then(|| Climber::new(capacity, sample)),
            blocks: Blocks::new(index, 3, 0),
        }
    }

    #[inline]
    fn main_len(&self) -> usize {
        self.blocks.len(PROBATION) + self.blocks.len(PROTECTED)
    }

    #[inline]
    fn frequency(&self, node: NodeId) -> u64 {
        self.sketch.estimate(BlockHash::new(&self.blocks.key(node)))
    }

    #[inline]
    fn hit(&mut self, node: NodeId) {
        if self.blocks.list(node) == WINDOW {
            self.blocks.move_front(node, WINDOW);
            return;
        }
        self.blocks.move_front(node, PROTECTED);
        if self.blocks.len(PROTECTED) > self.protected_max
            && let Some(demoted) = self.blocks.back(PROTECTED)
        {
            self.blocks.move_front(demoted, PROBATION);
        }
    }

    /// Counts an access to a full cache, and resizes the window at the end of a sample.
    #[inline]
    fn climb(&mut self, is_hit: bool) {
        let capacity = self.window_max + self.main_max;
        if let Some(climber) = &mut self.climber
            && self.blocks.cached_len() == capacity
            && let Some(gain) = climber.count(is_hit)
        {
            self.resize_window(gain);
        }
    }

    /// Moves `gain` places from the protected segment to the window, or back if it is negative.
    fn resize_window(&mut self, gain: f64) {
        let places = gain.abs() as usize;
        if gain < 0.0 {
            let places = places.min(self.window_max.saturating_sub(1));
            self.window_max -= places;
            self.main_max += places;
            self.protected_max += places;
            self.move_excess(WINDOW, self.window_max, PROBATION);
            return;
        }
        let places = places.min(self.protected_max);
        self.window_max += places;
        self.main_max -= places;
        self.protected_max -= places;
        self.move_excess(PROTECTED, self.protected_max, PROBATION);
        while self.main_len() > self.main_max
            && let Some(last) = self.blocks.back(PROBATION).or(self.blocks.back(PROTECTED))
        {
            self.blocks.move_front(last, WINDOW);
        }
    }

    /// Moves the least recently used blocks of `from` in excess of `max` to the front of `to`.
    fn move_excess(&mut self, from: List, max: usize, to: List) {
        while self.blocks.len(from) > max
            && let Some(last) = self.blocks.back(from)
        {
            self.blocks.move_front(last, to);
        }
    }

    /// Moves `candidate` from the window to the main cache, unless that is full of blocks accessed as often. Returns
    /// the evicted block.
    #[inline]
    fn leave_window(&mut self, candidate: NodeId) -> Option<I::Key> {
        if self.main_len() < self.main_max {
            self.blocks.move_front(candidate, PROBATION);
            return None;
        }
        let victim = self.blocks.back(PROBATION).or(self.blocks.back(PROTECTED));
        let beaten = victim.filter(|&victim| self.frequency(candidate) > self.frequency(victim));
        if beaten.is_some() {
            self.blocks.move_front(candidate, PROBATION);
        }
        Some(self.blocks.remove(beaten.unwrap_or(candidate)))
    }
}

impl<I: Index> Policy for WTinyLfu<I> {
    of_blocks!(I);

    #[inline]
    fn access(&mut self, access: Access<I::Key>) -> Outcome<I::Key> {
        self.sketch.add(BlockHash::new(&access.block));
        if let Some(node) = self.blocks.find(access.block) {
            self.hit(node);
            self.climb(true);
            return Outcome::Hit;
        }
        self.blocks.insert_front(WINDOW, access.block, ());
        let overflows = self.blocks.len(WINDOW) > self.window_max;
        let candidate = if overflows { self.blocks.back(WINDOW) } else { None };
        let evicted = candidate.and_then(|candidate| self.leave_window(candidate));
        self.climb(false);
        if evicted == Some(access.block) { Outcome::Bypass } else { Outcome::Admit { evicted } }
    }

    #[inline]
    fn prefetch(&self, soon: I::Key, later: I::Key) {
        self.blocks.prefetch_node(soon);
        self.blocks.prefetch_index(later);
        self.sketch.prefetch(BlockHash::new(&later));
    }

    fn check(&self) {
        assert!(self.blocks.len(WINDOW) <= self.window_max);
        assert!(self.main_len() <= self.main_max);
        assert!(self.blocks.len(PROTECTED) <= self.protected_max);
        self.blocks.check(self.window_max + self.main_max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Dense;
    use crate::policy::outcomes::{FILL, HIT, evict};

    /// Compares `window | probation | protected` after each access, each most recently used first.
    fn compare(capacity: usize, options: &str, rows: &[(u32, Outcome<u32>, &str)]) {
        let options = Options::parse("w-tinylfu", INFO.parameters, options).unwrap();
        let mut tinylfu = WTinyLfu::new(Dense::new(100), capacity, &options);
        for &(block, outcome, after) in rows {
            assert_eq!(tinylfu.access(Access::read(block)), outcome, "access to {block}");
            let draw = |list| tinylfu.blocks.keys(list).map(|key| key.to_string()).collect::<Vec<_>>().join(" ");
            let queues = [WINDOW, PROBATION, PROTECTED].map(draw).join(" | ");
            assert_eq!(queues, after, "after the access to {block}");
            tinylfu.check();
        }
    }

    /// C = 4: a window of 1 block, a main cache of 3, at most 2 of them protected. Comments give the counts compared.
    #[test]
    fn a_block_leaves_the_window_for_the_main_cache_if_it_was_accessed_more_often_than_the_victim() {
        let rows = [
            (1, FILL, "1 |  | "),
            (2, FILL, "2 | 1 | "),
            (3, FILL, "3 | 2 1 | "),
            (1, HIT, "3 | 2 | 1"),
            (4, FILL, "4 | 3 2 | 1"),
            // Candidate 4: 1, victim 2: 1.
            (5, evict(4), "5 | 3 2 | 1"),
            (5, HIT, "5 | 3 2 | 1"),
            // Candidate 5: 2, victim 2: 1.
            (4, evict(2), "4 | 5 3 | 1"),
            (5, HIT, "4 | 3 | 5 1"),
            // A third block is protected: the least recently used of them goes back.
            (3, HIT, "4 | 1 | 3 5"),
        ];
        compare(4, "protected=67%", &rows);
    }

    /// 32 blocks: a window of 8, 24 in the main cache, at most 19 of them protected. The first step is 2. Samples of 32
    /// accesses.
    ///
    ///     sample   accesses                     hit ratio   change   gain   window   protected
    ///     fill     1 to 32                                                  8        19
    ///     1        32 hits                      1           1        -2     6        21
    ///     2        16 hits, 16 misses           0.5         -0.5     +2     8        19
    ///     3        16 hits, 16 misses           0.5         0        +2     10       17     and a step of 1.96 next
    ///     4        16 hits, 16 misses           0.5         0        +1     11       16     1.96, in whole blocks
    ///     5        15 hits, 17 misses           0.469       -0.031   -1     10       17     -1.92
    #[test]
    fn the_window_goes_on_while_the_hit_ratio_rises_and_turns_when_it_falls() {
        let options = Options::parse("w-tinylfu", INFO.parameters, "climb=on,window=25%,sample=1").unwrap();
        let mut tinylfu = WTinyLfu::new(Dense::new(1000), 32, &options);
        for block in 1..=32 {
            assert_eq!(tinylfu.access(Access::read(block)), FILL);
        }
        // The access that fills the cache is counted.
        tinylfu.climber.as_mut().unwrap().accesses = 0;
        let mut missed = 100;
        for (hits, window, protected) in [(32, 6, 21), (16, 8, 19), (16, 10, 17), (16, 11, 16), (15, 10, 17)] {
            for access in 0..32 {
                // Hits go to blocks in the main cache, which never leave it for a block accessed once.
                let kept = tinylfu.blocks.keys(PROTECTED).next().or(tinylfu.blocks.keys(PROBATION).next()).unwrap();
                missed += 1;
                let block = if access < hits { kept } else { missed };
                assert_eq!(tinylfu.access(Access::read(block)) == HIT, access < hits);
                tinylfu.check();
            }
            assert_eq!((tinylfu.window_max, tinylfu.protected_max), (window, protected), "after {hits} hits");
            assert_eq!(tinylfu.window_max + tinylfu.main_max, 32);
            assert_eq!(tinylfu.blocks.cached_len(), 32);
        }
    }

    #[test]
    fn without_a_window_the_missed_block_itself_is_compared_and_may_be_turned_away() {
        let rows = [
            (1, FILL, " | 1 | "),
            // 2: 1, victim 1: 1.
            (2, Outcome::Bypass, " | 1 | "),
            // 2: 2, victim 1: 1.
            (2, evict(1), " | 2 | "),
            (2, HIT, " | 2 | "),
        ];
        compare(1, "window=0", &rows);
    }
}
