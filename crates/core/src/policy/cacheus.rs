//! CACHEUS: evicts at random by SR-LRU, which resists scans, or by CR-LFU, which resists churn. From misses of their
//! victims it learns which one to trust, and how fast to learn.
//!
//! Source: Rodriguez, Yusuf, Lyons, Paz, Rangaswami, Liu, Zhao, Narasimhan: Learning cache replacement with CACHEUS.
//! FAST 2021. Where the paper is silent, this follows the authors' Python code.
//!
//! SR-LRU divides the cache into `R`, blocks with repeated use, and `SR`, blocks that are new or demoted from `R`; it
//! evicts from `SR`. CR-LFU evicts the least frequently used block, among equals the most recently used. So part of a
//! working set larger than the cache stays.
//!
//! Departures from the paper, all of them those of the authors' code:
//! - Each history remembers half as many blocks as the cache has.
//! - While the cache fills, blocks enter `R` until it is full, then `SR`, and do not count as new.
//! - `R` makes room when it reaches its maximum, not only above it.
//! - A block that returns from a history has the frequency with which it left. (The code adds one, and leaves the sum
//!   unused.)
//! - The learning rate starts at, and resets to, the square root of 2 ln 2 / N, where the paper draws it at random. If
//!   hits decreased without a change of rate, it moves up or down by a quarter at random.
//! - A weight stays within 1 % and 99 %. If both choose the same block, it goes to neither history.
//!
//! Departures from that code: it fails in a cache of one block, where here `R` is empty between two hits. Weights have
//! 64 bits, not 32. The random generator is SplitMix64 from `seed`. With the last two changed, their code gives the
//! same hits: 40,368 on the trace sprite in 100 blocks and 13,705 on multi3 in 745. The others are 48,863 on 2_pools in
//! 100 blocks and 136,240 on the bundled trace in 30,859.

use super::experts::Experts;
use super::{Info, Outcome, Policy, of_blocks};
use crate::access::Access;
use crate::blocks::{Blocks, List, NodeId};
use crate::index::Index;
use crate::options::{Kind, Options, Parameter};
use crate::random::Random;
use crate::uses::{Use, Uses};

/// CACHEUS's row in the table of policies.
pub static INFO: Info = Info {
    name: "cacheus",
    title: "CACHEUS: SR-LRU and CR-LFU, learned",
    source: "Rodriguez, Yusuf, Lyons, Paz, Rangaswami, Liu, Zhao, Narasimhan: Learning cache replacement with CACHEUS. \
        FAST 2021",
    parameters: &[Parameter::of("seed", Kind::Count(0, u64::MAX), "1").means("seed of the random numbers")],
    offline: false,
};

/// Blocks with repeated use, most recently used first.
const R: List = List(0);
/// Blocks that are new, or demoted from `R`, newest first; SR-LRU evicts from the back.
const SR: List = List(1);
/// Blocks evicted by SR-LRU, last evicted first.
const H_LRU: List = List(2);
/// Blocks evicted by CR-LFU, last evicted first.
const H_LFU: List = List(3);

/// The initial share of `SR`.
const SR_SHARE: f64 = 0.01;

/// The data of a block.
#[derive(Clone, Copy, Debug, Default, bytemuck::Zeroable)]
struct Block {
    /// The time of its last use.
    time: u64,
    frequency: u32,
    /// True if it was in no history when it entered a full `SR`.
    is_new: bool,
    /// True if it moved to `SR` from `R`.
    is_demoted: bool,
}

/// The learning rate: hill climbing on the hits of each window of as many accesses as the cache has blocks.
#[derive(Clone, Debug)]
struct LearningRate {
    window: u64,
    /// lambda.
    rate: f64,
    /// The value to which it resets.
    initial: f64,
    /// The rates of the last window, and of the one before.
    of_windows: [f64; 2],
    /// Hits in this window.
    hits: u64,
    /// The hit ratio of the last window.
    hit_ratio: f64,
    /// Windows since the last progress: all without hits or with fewer hits, and those with fewer hits only.
    idle: u32,
    worse: u32,
}

impl LearningRate {
    const MIN: f64 = 0.001;
    /// Windows without progress after which it resets.
    const PATIENCE: u32 = 10;

    fn new(window: usize) -> LearningRate {
        let rate = (2.0 * f64::ln(2.0) / window as f64).sqrt();
        LearningRate {
            window: window as u64,
            rate,
            initial: rate.clamp(Self::MIN, 1.0),
            of_windows: [rate, 0.0],
            hits: 0,
            hit_ratio: 0.0,
            idle: 0,
            worse: 0,
        }
    }

    /// Ends a window.
    fn update(&mut self, random: &mut Random) {
        let hit_ratio = thousandths(self.hits as f64 / self.window as f64);
        let gain = thousandths(hit_ratio - self.hit_ratio);
        let step = thousandths(self.of_windows[0]) - thousandths(self.of_windows[1]);
        if gain * step != 0.0 {
            // Continue if both grew or both fell, otherwise turn back.
            let change = (self.rate * step).abs();
            self.rate =
                if gain * step > 0.0 { (self.rate + change).min(1.0) } else { (self.rate - change).max(Self::MIN) };
            (self.idle, self.worse) = (0, 0);
        } else if gain <= 0.0 {
            self.retry(hit_ratio, gain < 0.0, random);
        }
        self.of_windows = [self.rate, self.of_windows[0]];
        self.hit_ratio = hit_ratio;
        self.hits = 0;
    }

    /// Handles a window without progress in which hits did not increase.
    fn retry(&mut self, hit_ratio: f64, is_worse: bool, random: &mut Random) {
        self.idle += u32::from(is_worse || hit_ratio <= 0.0);
        self.worse += u32::from(is_worse);
        if self.idle >= Self::PATIENCE {
            (self.rate, self.idle) = (self.initial, 0);
        } else if is_worse && self.worse >= Self::PATIENCE {
            (self.rate, self.worse) = (self.initial, 0);
        } else if is_worse {
            self.rate = match self.rate {
                rate if rate >= 1.0 => 0.9,
                rate if rate <= Self::MIN => 0.005,
                rate if random.share() < 0.5 => (rate * 1.25).min(1.0),
                rate => (rate * 0.75).max(Self::MIN),
            };
        }
    }
}

/// Rounds to three decimals, ties to even.
fn thousandths(number: f64) -> f64 {
    (number * 1000.0).round_ties_even() / 1000.0
}

/// Rounds to a whole number of at least 1.
fn step(ratio: f64) -> usize {
    ((ratio + 0.5) as usize).max(1)
}

/// SR-LRU and CR-LFU; for each eviction one of them is drawn.
#[derive(Debug)]
pub struct Cacheus<I: Index> {
    c: usize,
    history_max: usize,
    /// Maximum of `R`, approximately; `SR` has the rest.
    r_max: usize,
    /// Demoted blocks in `SR`.
    demoted: usize,
    /// New blocks in `H_LRU`.
    new_in_history: usize,
    learning: LearningRate,
    /// SR-LRU and CR-LFU, by weight.
    experts: Experts,
    time: u64,
    blocks: Blocks<I, Block>,
    /// The cached blocks in the order of CR-LFU, among equals the most recent first.
    lfu: Uses<I::Key>,
}

impl<I: Index> Cacheus<I> {
    /// Creates an empty cache of `capacity` blocks.
    pub fn new(index: I, capacity: usize, options: &Options) -> Self {
        Cacheus {
            c: capacity,
            history_max: capacity / 2,
            r_max: capacity - step(SR_SHARE * capacity as f64),
            demoted: 0,
            new_in_history: 0,
            learning: LearningRate::new(capacity),
            experts: Experts::new(options.count("seed")),
            time: 0,
            blocks: Blocks::new(index, 2, 2),
            lfu: Uses::new(capacity),
        }
    }

    /// Records a use of the cached block of `node` now.
    #[inline]
    fn note_use(&mut self, node: NodeId) {
        let Cacheus { blocks, lfu, time, .. } = self;
        let block = blocks.data_mut(node);
        block.time = *time;
        let used = Use { frequency: block.frequency, rank: u64::MAX - *time, key: blocks.key(node) };
        lfu.push(used, |used| node_of(blocks, used).is_some());
    }

    /// Inserts a block into the cache.
    #[inline]
    fn insert(&mut self, list: List, key: I::Key, frequency: u32, is_new: bool) {
        let block = Block { time: self.time, frequency, is_new, is_demoted: false };
        let node = self.blocks.insert_front(list, key, block);
        self.note_use(node);
    }

    /// Moves the least recently used block of `R` to `SR`.
    #[inline]
    fn demote(&mut self) {
        if let Some(last) = self.blocks.back(R) {
            self.blocks.data_mut(last).is_demoted = true;
            self.demoted += 1;
            self.blocks.move_front(last, SR);
        }
    }

    /// Makes room in `R` for the next block.
    #[inline]
    fn limit_r(&mut self) {
        while self.blocks.len(R) >= self.r_max && !self.blocks.is_empty(R) {
            self.demote();
        }
    }

    /// Handles a hit in `SR`.
    #[inline]
    fn hit_in_sr(&mut self, x: NodeId) {
        if self.blocks.data(x).is_demoted {
            // A demoted block was hit, so R was too small.
            let more = step(self.new_in_history as f64 / self.demoted as f64);
            self.r_max = (self.r_max + more).min(self.c - 1);
            self.blocks.data_mut(x).is_demoted = false;
            self.demoted -= 1;
        }
        if self.blocks.len(R) >= self.r_max {
            self.demote();
        }
        self.blocks.move_front(x, R);
    }

    /// Grows `SR`, because a new block left it too early.
    #[inline]
    fn grow_sr(&mut self) {
        let more = step(self.demoted as f64 / self.new_in_history.max(1) as f64);
        self.r_max = self.r_max.saturating_sub(more).max(1).min(self.c - 1);
    }

    /// Updates the counts when `block` leaves `list`.
    #[inline]
    fn leaves(&mut self, list: List, block: Block) {
        self.demoted -= usize::from(list == SR && block.is_demoted);
        self.new_in_history -= usize::from(list == H_LRU && block.is_new);
    }

    #[inline]
    fn evict(&mut self) -> Option<I::Key> {
        let Cacheus { blocks, lfu, .. } = self;
        let lru = blocks.back(SR).or(blocks.back(R))?;
        let lfu = lfu.least(|used| node_of(blocks, used))?;
        let by_lru = self.experts.draw_first();
        let (victim, history) = if by_lru { (lru, H_LRU) } else { (lfu, H_LFU) };
        self.leaves(self.blocks.list(victim), *self.blocks.data(victim));
        if lru == lfu {
            return Some(self.blocks.remove(victim));
        }
        let block = self.blocks.data_mut(victim);
        block.is_demoted = false;
        self.new_in_history += usize::from(history == H_LRU && block.is_new);
        self.blocks.move_front(victim, history);
        if self.blocks.len(history) > self.history_max
            && let Some(oldest) = self.blocks.back(history)
        {
            self.leaves(history, *self.blocks.data(oldest));
            self.blocks.remove(oldest);
        }
        Some(self.blocks.key(victim))
    }

    /// Penalises the policy that evicted a missed block.
    #[inline]
    fn regret(&mut self, history: List) {
        let loss = (-self.learning.rate).exp();
        self.experts.regret(history == H_LRU, loss);
    }

    /// Admits a block that returns from `history`.
    #[inline]
    fn admit_remembered(&mut self, ghost: NodeId, history: List) -> Option<I::Key> {
        let Block { frequency, is_new, .. } = *self.blocks.data(ghost);
        self.leaves(history, *self.blocks.data(ghost));
        let key = self.blocks.remove(ghost);
        if history == H_LRU && is_new {
            self.grow_sr();
        }
        self.regret(history);
        let evicted = if self.blocks.cached_len() == self.c { self.evict() } else { None };
        self.insert(R, key, frequency, false);
        self.limit_r();
        evicted
    }

    /// Admits a block without a ghost.
    #[inline]
    fn admit_unknown(&mut self, key: I::Key) -> Option<I::Key> {
        let (in_r, in_sr) = (self.blocks.len(R), self.blocks.len(SR));
        if in_r < self.r_max && in_sr == 0 {
            self.insert(R, key, 1, false);
            return None;
        }
        if in_r + in_sr < self.c && in_sr < self.c - self.r_max {
            self.insert(SR, key, 1, false);
            return None;
        }
        let evicted = if in_r + in_sr == self.c { self.evict() } else { None };
        self.insert(SR, key, 1, true);
        self.limit_r();
        evicted
    }
}

/// Returns the node of the block of a use, unless the use is outdated.
#[inline]
fn node_of<I: Index>(blocks: &Blocks<I, Block>, used: &Use<I::Key>) -> Option<NodeId> {
    let is_current =
        |node: &NodeId| [R, SR].contains(&blocks.list(*node)) && blocks.data(*node).time == u64::MAX - used.rank;
    blocks.find(used.key).filter(is_current)
}

impl<I: Index> Policy for Cacheus<I> {
    of_blocks!(I);

    #[inline]
    fn access(&mut self, access: Access<I::Key>) -> Outcome<I::Key> {
        self.time += 1;
        if self.time.is_multiple_of(self.c as u64) {
            self.learning.update(&mut self.experts.random);
        }
        let known = self.blocks.find(access.block).map(|node| (node, self.blocks.list(node)));
        match known {
            Some((node, list @ (R | SR))) => {
                if list == R {
                    self.blocks.move_front(node, R);
                } else {
                    self.hit_in_sr(node);
                }
                let frequency = &mut self.blocks.data_mut(node).frequency;
                *frequency = frequency.saturating_add(1);
                self.note_use(node);
                self.learning.hits += 1;
                Outcome::Hit
            }
            Some((ghost, history)) => Outcome::Admit { evicted: self.admit_remembered(ghost, history) },
            None => Outcome::Admit { evicted: self.admit_unknown(access.block) },
        }
    }

    fn remove(&mut self, block: I::Key) -> bool {
        let Some(node) = self.blocks.find(block) else {
            return false;
        };
        let list = self.blocks.list(node);
        self.leaves(list, *self.blocks.data(node));
        self.blocks.remove(node);
        [R, SR].contains(&list)
    }

    fn check(&self) {
        let count = |list, is: fn(&Block) -> bool| {
            let blocks = self.blocks.keys(list).filter_map(|key| self.blocks.find(key));
            blocks.filter(|node| is(self.blocks.data(*node))).count()
        };
        assert_eq!(self.demoted, count(SR, |block| block.is_demoted), "demoted blocks in SR");
        assert_eq!(count(R, |block| block.is_demoted), 0, "demoted blocks in R");
        assert_eq!(self.new_in_history, count(H_LRU, |block| block.is_new), "new blocks in the history of SR-LRU");
        assert!(self.r_max < self.c, "R may have {} blocks of {}", self.r_max, self.c);
        self.experts.check();
        let histories = [H_LRU, H_LFU].map(|list| self.blocks.len(list));
        assert!(
            histories.iter().all(|&len| len <= self.history_max),
            "{histories:?} blocks, {} at most",
            self.history_max
        );
        assert!(self.blocks.cached_len() <= self.c);
        self.lfu.check(self.blocks.cached_len(), |used| node_of(&self.blocks, used).is_some());
        self.blocks.check(self.c + 2 * self.history_max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Dense;
    use crate::policy::outcomes::{FILL, HIT, evict};

    fn draw(cacheus: &Cacheus<Dense>) -> String {
        let mark = |key: u32| {
            let block = cacheus.blocks.find(key).map(|node| *cacheus.blocks.data(node)).unwrap_or_default();
            let (new, demoted) = (if block.is_new { "n" } else { "" }, if block.is_demoted { "d" } else { "" });
            format!("{key}{}{new}{demoted}", "'".repeat(block.frequency as usize - 1))
        };
        [R, SR, H_LRU, H_LFU].map(|list| cacheus.blocks.keys(list).map(mark).collect::<Vec<_>>().join(" ")).join(" | ")
    }

    /// Four blocks, with at most three in R at first, and histories of two. The columns are `R | SR | H_LRU | H_LFU`,
    /// each with the last block first. A `'` marks each use after the first, `n` a new block, `d` a demoted one. Each
    /// row sets the weight of SR-LRU before the access: 1 evicts by SR-LRU, 0 by CR-LFU; a regret moves it by 0.01.
    #[test]
    fn r_and_sr_follow_blocks_demoted_or_evicted_too_early() {
        let options = Options::parse("cacheus", INFO.parameters, "").unwrap();
        let mut cacheus = Cacheus::new(Dense::new(100), 4, &options);
        let (by_lru, by_lfu) = (1.0, 0.0);
        let rows = [
            (1, by_lru, FILL, "1 |  |  | "),
            (2, by_lru, FILL, "2 1 |  |  | "),
            (3, by_lru, FILL, "3 2 1 |  |  | "),
            (4, by_lru, FILL, "3 2 1 | 4 |  | "),
            (5, by_lru, evict(4), "3 2 | 1d 5n |  | "),
            (5, by_lru, HIT, "5'n 3 2 | 1d |  | "),
            (6, by_lru, evict(1), "5'n 3 | 2d 6n | 1 | "),
            (7, by_lru, evict(6), "5'n 3 | 7n 2d | 1 | "),
            (8, by_lru, evict(2), "5'n 3 | 8n 7n | 2 1 | "),
            (9, by_lru, evict(7), "5'n 3 | 9n 8n | 7n 2 | "),
            (7, by_lfu, evict(9), "7 | 5'nd 3d 8n | 2 | 9n"),
            (3, by_lfu, HIT, "3' 7 | 5'nd 8n | 2 | 9n"),
            (9, by_lru, evict(8), "9 3' | 7d 5'nd | 8n 2 | "),
        ];
        for (block, weight, outcome, after) in rows {
            cacheus.experts.first = weight;
            assert_eq!(cacheus.access(Access::read(block)), outcome, "access to {block}");
            assert_eq!(draw(&cacheus), after, "after the access to {block}");
            assert!(
                (cacheus.experts.first - weight).abs() < 0.0101,
                "{} after the access to {block}",
                cacheus.experts.first
            );
            cacheus.experts.first = 0.5;
            cacheus.check();
        }
        assert_eq!(cacheus.r_max, 3);
        let loss = (-cacheus.learning.rate).exp();
        assert_ne!(cacheus.access(Access::read(8)), HIT);
        assert!(
            (cacheus.experts.first - loss / (1.0 + loss)).abs() < 1e-12,
            "SR-LRU evicted 8: {}",
            cacheus.experts.first
        );
        cacheus.check();
    }

    /// Windows of 1000: the square root of 2 ln 2 / 1000 is 0.037233.
    ///
    ///     hits   hit ratio   gain   step of the rate        rate
    ///     100    0.1          0.1   0.037 - 0      =  0.037   0.037233 * 1.037 = 0.038610
    ///     200    0.2          0.1   0.039 - 0.037  =  0.002   0.038610 * 1.002 = 0.038688
    ///     100    0.1         -0.1   0.039 - 0.039  =  0       a quarter more or less, by chance: 0.048360 or 0.029016
    ///     200    0.2          0.1   0.048 - 0.039  =  0.009   0.048360 * 1.009 = 0.048795
    ///                            or 0.029 - 0.039  = -0.010   0.029016 * 0.990 = 0.028726
    #[test]
    fn the_learning_rate_goes_on_where_hits_become_more() {
        let (mut learning, mut random) = (LearningRate::new(1000), Random::new(1));
        let mut window = |hits| {
            learning.hits = hits;
            learning.update(&mut random);
            learning.rate
        };
        let near = |rate: f64, expected: f64| (rate - expected).abs() < 1e-6;
        assert!(near(window(100), 0.038_610));
        assert!(near(window(200), 0.038_688));
        let drawn = window(100);
        let more = near(drawn, 0.048_360);
        assert!(more || near(drawn, 0.029_016), "{drawn}");
        assert!(near(window(200), if more { 0.048_795 } else { 0.028_726 }));
    }

    #[test]
    fn after_ten_windows_without_a_hit_the_learning_rate_begins_again() {
        let (mut learning, mut random) = (LearningRate::new(1000), Random::new(1));
        (learning.rate, learning.of_windows) = (0.5, [0.5, 0.5]);
        for window in 1..=10 {
            learning.update(&mut random);
            assert_eq!(learning.rate == 0.5, window < 10, "{window}");
        }
        assert!((learning.rate - 0.037_233).abs() < 1e-6);
    }
}
