//! Baleen: learns from past accesses which missed blocks will get most hits per write, and admits the best of them
//! within a write budget.
//!
//! Source: Wong et al.: Baleen: ML admission and prefetching for flash caches. FAST 2024, sections 3 and 4. An
//! *episode* of a block is a run of accesses during which it would stay in the cache: no pause exceeds the cache's
//! *eviction age*. Its worth is the savings if it is admitted at its first access, divided by the writes. Examples are
//! its first accesses, with the worth of the rest of the episode. Blocks worth more than a cutoff are admitted; the
//! cutoff is set so that the writes match the budget.
//!
//! It learns while it runs, from the past: there is no second pass. An example is an access with its properties known
//! at that time. They are the operation, the request length, the number within its episode, the block's earlier
//! accesses, and the time since its last access. Each property is quantised into a few classes, and examples of the
//! same classes share sums of hits and writes. At the end of each interval the classes are sorted by hits per write,
//! and admitted from the best on up to the budget. If the next interval has more misses than the last ones, the excess
//! is rejected when the [budget](super::budget) is used up.
//!
//! A large budget is no reason to fill the cache with blocks that are hardly used, because admissions evict blocks that
//! would have hit. The cache measures this by hits of blocks unused for at least half of the eviction age, and by
//! blocks that leave unused. A class with fewer than half as many hits per admission as those old blocks is rejected
//! under any budget.
//!
//! Departures from the paper:
//! - The paper learns boosted trees (LightGBM) from a day of the past, once, or every six hours in its online version.
//!   Here are tables of sums, the first of its "Bayes optimal" comparisons. The score of an example is the mean of all
//!   with the same features. When there are many, the sums are halved, so that old data weighs less.
//! - An example counts from its access on, and its hits when they occur; the paper waits until the episode has ended.
//!   In a cache with few writes blocks stay long, and episodes would end only after hours.
//! - Savings are hits, not disk-head time, and all writes to the flash count: the paper's cache serves reads of data
//!   that is never overwritten. With `worth=reads` only reads are hits, as in its label and in M+. Features of Meta's
//!   storage, users and namespaces, do not exist in a block trace, and a rule does not know neighbouring blocks. So the
//!   paper's counts for a whole block of 8 MiB are missing, and there is no prefetching.
//! - The first three accesses of an episode are examples; the paper has six. The eviction age follows the cache: its
//!   blocks divided by admissions per access, over the last quarter to half of its blocks.
//! - Until there are examples, it admits at random within the budget; the paper's online version admits everything.
//! - The paper's cache is as good with more writes as with fewer, so it has no bound except the budget.

use super::budget::{INTERVAL, Pace, WRITES_PER_DAY};
use super::{Info, Judge, SEED, WRITES};
use crate::access::{Access, Op};
use crate::blocks::{Blocks, List, NodeId};
use crate::index::Index;
use crate::options::{Kind, Options, Parameter};
use crate::random::Random;

/// Baleen's row in the table of rules.
pub static INFO: Info = Info {
    name: "baleen",
    title: "Learns which misses are worth a write, and keeps to a budget of writes",
    source: "Wong et al.: Baleen: ML admission and prefetching for flash caches. FAST 2024",
    parameters: &[
        WRITES_PER_DAY,
        Parameter::of(INTERVAL, Kind::Duration(1_000_000, 86_400_000_000), "1min")
            .means("time between two choices of the blocks to admit"),
        Parameter::of("history", Kind::Number(0.0, 1000.0), "400%")
            .means("blocks whose past accesses are remembered, as a share of the cache size"),
        Parameter::of("worth", Kind::Choice(&["hits", "reads"]), "hits")
            .means("the hits that writes should gain: all, or only reads, as M+ counts them"),
        WRITES,
        SEED,
    ],
    thresholds: None,
    decides: None,
};

/// Blocks with recorded accesses, most recently accessed first.
const HISTORY: List = List(0);

/// The number of first accesses of an episode that are examples.
const EXAMPLES: usize = 3;
/// Minimum number of examples for learning.
const EXAMPLES_MIN: f64 = 100.0;
/// The sums are halved at this many examples per block of the cache.
const EXAMPLES_PER_BLOCK: f64 = 20.0;
/// Weight of the overall mean in the estimate of each class, in examples.
const PRIOR: f64 = 8.0;
/// Maximum of the eviction age, as a multiple of the accesses that fill the cache.
const AGE_MAX: f64 = 1000.0;
/// The eviction age averages the last admissions, at most twice this share of the cache.
const AGE_OF: f64 = 0.25;
/// Decay per interval of the counts of misses, and of hits and evictions of old blocks.
const KEPT: f64 = 0.9;
/// Minimum hits of an admission, as a share of those of an old block.
const OF_OLD: f64 = 0.5;

const SIZES: usize = 8;
const PASTS: usize = 4;
const AGES: usize = 4;
const CLASSES: usize = 2 * SIZES * EXAMPLES * PASTS * AGES;

/// The recorded accesses of a block.
#[derive(Clone, Copy, Debug, Default, bytemuck::Zeroable)]
struct Seen {
    last: u64,
    /// Accesses of the current episode.
    accesses: u16,
    /// The classes of its examples.
    classes: [u16; EXAMPLES],
    /// Accesses in earlier episodes.
    past: u8,
}

/// The total worth of examples of the same classes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sums {
    examples: f64,
    /// Later accesses in their episodes that count as hits.
    hits: f64,
    /// Writes: each example, and writes in the rest of its episode.
    writes: f64,
}

impl Sums {
    fn add(&mut self, other: Sums) {
        self.examples += other.examples;
        self.hits += other.hits;
        self.writes += other.writes;
    }

    fn scaled(self, by: f64) -> Sums {
        Sums { examples: self.examples * by, hits: self.hits * by, writes: self.writes * by }
    }
}

/// The worth of one class of accesses, and its admission.
#[derive(Clone, Copy, Debug)]
struct Class {
    sums: Sums,
    /// Misses, decayed by [`KEPT`] per interval.
    misses: f64,
    /// The admitted share of the misses.
    admitted: f64,
}

/// Decaying sums over the last intervals.
#[derive(Clone, Copy, Debug, Default)]
struct Lately {
    /// Number of intervals.
    intervals: f64,
    /// Hits of blocks not accessed for at least half of the eviction age, and admissions that evicted a block.
    old_hits: f64,
    admissions: f64,
}

/// Admits the classes of highest past worth.
#[derive(Debug)]
pub struct Baleen<I: Index> {
    c: usize,
    reads_alone: bool,
    history_max: usize,
    random: Random,
    /// Accesses so far.
    now: u64,
    /// Accesses, and admissions in them, for the estimate of the eviction age.
    accesses: f64,
    admissions: f64,
    /// Accesses for which an admitted block stays.
    eviction_age: u64,
    lately: Lately,
    all: Sums,
    classes: Vec<Class>,
    blocks: Blocks<I, Seen>,
}

/// Returns the number of steps that `number` has reached.
fn step(number: u64, steps: [u64; 3]) -> usize {
    steps.iter().filter(|&&step| number >= step).count()
}

impl<I: Index> Baleen<I> {
    /// Returns the class of an access, number `nth` of its episode from 0, to a block with the record `seen`.
    #[inline]
    fn class(&self, op: Op, request_blocks: u32, seen: &Seen, nth: usize) -> u16 {
        let size = (request_blocks.max(1).ilog2() as usize).min(SIZES - 1);
        let past = step(seen.past.into(), [1, 2, 4]);
        let (pause, age) = (self.now - seen.last, self.eviction_age);
        let age = match (nth, past) {
            (0, 0) => 0,
            (0, _) => step(pause, [2 * age, 4 * age, 16 * age]),
            _ => step(pause, [age / 64, age / 16, age / 4]),
        };
        let nth = nth.min(EXAMPLES - 1);
        ((((op as usize * SIZES + size) * EXAMPLES + nth) * PASTS + past) * AGES + age) as u16
    }

    /// Returns the node of `block`, which is added to the history if necessary.
    #[inline]
    fn node(&mut self, block: I::Key) -> NodeId {
        if let Some(node) = self.blocks.find(block) {
            return node;
        }
        if self.blocks.len(HISTORY) == self.history_max {
            self.blocks.pop_back(HISTORY);
        }
        self.blocks.insert_front(HISTORY, block, Seen { last: self.now, ..Seen::default() })
    }

    fn add(&mut self, class: u16, sums: Sums) {
        self.all.add(sums);
        self.classes[usize::from(class)].sums.add(sums);
    }

    fn counts(&self, op: Op) -> bool {
        op == Op::Read || !self.reads_alone
    }

    /// Records an access; returns its class, and the accesses since the last one to the block.
    #[inline]
    fn note(&mut self, block: I::Key, op: Op, request_blocks: u32) -> (u16, u64) {
        self.now += 1;
        self.accesses += 1.0;
        if self.history_max == 0 {
            return (self.class(op, request_blocks, &Seen { last: self.now, ..Seen::default() }, 0), 0);
        }
        let node = self.node(block);
        let mut seen = *self.blocks.data(node);
        let pause = self.now - seen.last;
        if pause > self.eviction_age {
            seen.past = seen.past.saturating_add(seen.accesses.min(u16::from(u8::MAX)) as u8);
            seen.accesses = 0;
        }
        let nth = usize::from(seen.accesses);
        let class = self.class(op, request_blocks, &seen, nth);
        let (hit, write) = (f64::from(u8::from(self.counts(op))), f64::from(u8::from(op == Op::Write)));
        for &example in &seen.classes[..nth.min(EXAMPLES)] {
            self.add(example, Sums { examples: 0.0, hits: hit, writes: write });
        }
        if nth < EXAMPLES {
            seen.classes[nth] = class;
            self.add(class, Sums { examples: 1.0, hits: 0.0, writes: 1.0 });
        }
        seen.accesses = seen.accesses.saturating_add(1);
        seen.last = self.now;
        *self.blocks.data_mut(node) = seen;
        self.blocks.move_front(node, HISTORY);
        (class, pause)
    }

    /// Returns expected hits and writes of an admission of a class.
    fn expected(&self, class: &Class) -> (f64, f64) {
        let mut sums = self.all.scaled(PRIOR / self.all.examples);
        sums.add(class.sums);
        (sums.hits / sums.examples, sums.writes / sums.examples)
    }

    /// Returns the minimum hits of an admission: a share of those of an old block, because it evicts one.
    fn least_hits(&self) -> f64 {
        let Lately { old_hits, admissions, .. } = self.lately;
        if old_hits > 0.0 { OF_OLD * old_hits / (old_hits + admissions) } else { 0.0 }
    }

    /// Chooses the classes to admit, with a budget of `left` blocks for the next interval.
    #[cold]
    fn choose(&mut self, left: f64) {
        if self.admissions > 0.0 {
            let c = self.c as f64;
            self.eviction_age = (c * self.accesses / self.admissions).clamp(c, AGE_MAX * c) as u64;
            if self.admissions > 2.0 * AGE_OF * c {
                (self.accesses, self.admissions) = (self.accesses / 2.0, self.admissions / 2.0);
            }
        }
        self.lately.intervals += 1.0;
        if self.all.examples < EXAMPLES_MIN {
            let misses = self.classes.iter().map(|class| class.misses).sum::<f64>() / self.lately.intervals;
            let share = if misses > 0.0 { (left / misses).min(1.0) } else { 1.0 };
            self.classes.iter_mut().for_each(|class| class.admitted = share);
        } else {
            self.admit_the_best(left);
        }
        self.classes.iter_mut().for_each(|class| class.misses *= KEPT);
        let Lately { intervals, old_hits, admissions } = self.lately;
        self.lately = Lately { intervals: KEPT * intervals, old_hits: KEPT * old_hits, admissions: KEPT * admissions };
        if self.all.examples > EXAMPLES_PER_BLOCK * self.c as f64 {
            self.all = self.all.scaled(0.5);
            self.classes.iter_mut().for_each(|class| class.sums = class.sums.scaled(0.5));
        }
    }

    /// Admits the classes with the most hits per write within `left` blocks.
    fn admit_the_best(&mut self, mut left: f64) {
        let least = self.least_hits();
        let mut order: Vec<(usize, f64, f64)> = Vec::with_capacity(CLASSES);
        order.extend(self.classes.iter().enumerate().map(|(at, class)| {
            let (hits, writes) = self.expected(class);
            (at, hits, writes)
        }));
        order.sort_by(|a, b| (b.1 / b.2).total_cmp(&(a.1 / a.2)));
        for (at, hits, writes) in order {
            let class = &mut self.classes[at];
            let wanted = class.misses / self.lately.intervals * writes;
            class.admitted = match wanted <= left {
                _ if hits < least => 0.0,
                true => f64::from(u8::from(left > 0.0)),
                false => (left / wanted).max(0.0),
            };
            left -= wanted * class.admitted;
        }
    }
}

impl<I: Index> Judge<I> for Baleen<I> {
    fn build(options: &Options, index: I, capacity: usize, _block_bytes: u64) -> Self {
        let class = Class { sums: Sums::default(), misses: 0.0, admitted: 1.0 };
        Baleen {
            c: capacity,
            history_max: (options.number("history") * capacity as f64) as usize,
            random: Random::new(options.count(SEED.name)),
            reads_alone: options.text("worth") == "reads",
            now: 0,
            accesses: 0.0,
            admissions: 0.0,
            eviction_age: capacity as u64,
            lately: Lately::default(),
            all: Sums::default(),
            classes: vec![class; CLASSES],
            blocks: Blocks::new(index, 0, 1),
        }
    }

    fn set_threshold(&mut self, threshold: f64) {
        unreachable!("a budget has no threshold that could be {threshold}");
    }

    #[inline]
    fn judge(&mut self, access: &Access<I::Key>, is_cached: impl Fn() -> bool) -> bool {
        let (class, pause) = self.note(access.block, access.op, access.request_blocks);
        if is_cached() {
            if pause >= self.eviction_age / 2 && self.counts(access.op) {
                self.lately.old_hits += 1.0;
            }
            return true;
        }
        let class = usize::from(class);
        self.classes[class].misses += 1.0;
        let admitted = self.classes[class].admitted;
        admitted >= 1.0 || admitted > 0.0 && self.random.share() < admitted
    }

    fn note_admitted(&mut self, block: I::Key) {
        self.note(block, Op::Write, 1);
    }

    fn end_interval(&mut self, pace: Pace) {
        self.choose(pace.next);
    }

    #[inline]
    fn note_len(&mut self, _len: usize, admitted: Option<I::Key>) {
        if admitted.is_some() {
            self.admissions += 1.0;
            self.lately.admissions += 1.0;
        }
    }

    fn remembers(&self, block: I::Key) -> bool {
        self.blocks.find(block).is_some()
    }

    fn forget(&mut self, block: I::Key) {
        self.blocks.forget(block);
    }

    #[inline]
    fn prefetch(&self, soon: I::Key, later: I::Key) {
        self.blocks.prefetch_node(soon);
        self.blocks.prefetch_index(later);
    }

    fn check(&self) {
        self.blocks.check(self.history_max);
        let examples: f64 = self.classes.iter().map(|class| class.sums.examples).sum();
        assert!(
            (examples - self.all.examples).abs() < 1e-6 * (1.0 + examples),
            "{examples} and {} examples",
            self.all.examples
        );
        assert!(self.classes.iter().all(|class| (0.0..=1.0).contains(&class.admitted)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::budget::Budget;
    use crate::index::Dense;

    const SECOND_US: u64 = 1_000_000;

    fn rule(options: &str, capacity: usize) -> Baleen<Dense> {
        let options = Options::parse("baleen", INFO.parameters, options).unwrap();
        Judge::build(&options, Dense::new(0), capacity, 4096)
    }

    fn access(block: u32, op: Op, request_blocks: u32) -> Access<u32> {
        Access { op, request_blocks, ..Access::read(block) }
    }

    /// Two blocks, so an episode ends with a pause of more than two accesses. Block 1 is read, written and read in
    /// direct succession:
    ///
    ///     example   later hits, of these reads   writes of it and of the rest
    ///     read      2                1                1 + 1
    ///     write     1                1                1 + 0
    ///     read      0                0                1 + 0
    ///
    /// Block 2 was read once: no hits for a write. Block 1 returns after a pause of two, in the same episode, as a hit
    /// of all three. It returns after a pause of three in another episode.
    #[test]
    fn an_episode_gives_an_example_for_each_of_its_first_accesses() {
        for (worth, hits) in [("hits", [3.0, 6.0]), ("reads", [2.0, 5.0])] {
            let mut rule = rule(&format!("history=1000%,worth={worth}"), 2);
            let mut access_to = |block, op| {
                rule.judge(&access(block, op, 1), || false);
                (rule.all, *rule.blocks.data(rule.blocks.find(block).unwrap()))
            };
            for (block, op) in [(1, Op::Read), (1, Op::Write), (1, Op::Read)] {
                access_to(block, op);
            }
            let (sums, _) = access_to(2, Op::Read);
            assert_eq!(sums, Sums { examples: 4.0, hits: hits[0], writes: 5.0 }, "{worth}");
            let (sums, seen) = access_to(1, Op::Read);
            assert_eq!(sums, Sums { examples: 4.0, hits: hits[1], writes: 5.0 }, "{worth}");
            assert_eq!((seen.past, seen.accesses), (0, 4));
            access_to(2, Op::Read);
            access_to(3, Op::Read);
            let (sums, seen) = access_to(1, Op::Read);
            assert_eq!((seen.past, seen.accesses), (4, 1), "it is known that it was accessed four times");
            assert_eq!((sums.examples, sums.hits), (7.0, hits[1] + 1.0), "block 2 was hit once, and 3 and 1 begin");
            let first_reads = rule.class(Op::Read, 1, &Seen { last: rule.now, ..Seen::default() }, 0);
            assert_eq!(rule.classes[usize::from(first_reads)].sums.examples, 3.0);
            assert_ne!(rule.class(Op::Read, 1, &seen, 0), first_reads);
            Judge::check(&rule);
        }
    }

    /// As long as old blocks hit, blocks that hardly hit are rejected under any budget.
    #[test]
    fn blocks_without_hits_do_not_displace_others() {
        let mut rule = rule("writes-per-day=1000000,interval=1s", 100);
        rule.all = Sums { examples: 1000.0, hits: 100.0, writes: 1000.0 };
        for class in &mut rule.classes {
            class.sums = Sums { examples: 1000.0, hits: 0.0, writes: 1000.0 };
        }
        rule.lately.intervals = 1.0;
        rule.admit_the_best(1e9);
        assert!(rule.classes.iter().all(|class| class.admitted == 1.0));
        // Of 20 old blocks 4 hit and 16 left: the minimum is a tenth of a hit. The classes have 0.0008.
        rule.lately = Lately { intervals: 1.0, old_hits: 4.0, admissions: 16.0 };
        assert!((rule.least_hits() - 0.1).abs() < 1e-12);
        rule.classes[7].sums.hits = 101.0;
        rule.admit_the_best(1e9);
        let admitted: Vec<usize> = (0..CLASSES).filter(|&at| rule.classes[at].admitted > 0.0).collect();
        assert_eq!(admitted, [7]);
    }

    /// Each second 20 blocks are read twice in requests of one block, and 60 once in requests of eight. With 1,000,000
    /// blocks, a budget of 0.432 writes per day is 5 blocks per second, a quarter of the small ones. 1.728 is 20, all
    /// of these; 3.456 is 40, and a third of the large ones; 9 is all.
    #[test]
    fn hit_blocks_are_admitted_first() {
        let cases = [
            ("0.432", 30..70, 0..1),
            ("1.728", 195..201, 0..1),
            ("3.456", 200..201, 140..260),
            ("9", 200..201, 600..601),
        ];
        for (budget, of_small, of_large) in cases {
            let text = format!("writes-per-day={budget},interval=1s,history=100%");
            let mut rule = rule(&text, 1_000_000);
            let options = Options::parse("baleen", INFO.parameters, &text).unwrap();
            let mut allowed = Budget::of(INFO.parameters, &options, 1_000_000).unwrap();
            rule.eviction_age = 50;
            let mut admitted = [0; 2];
            for second in 0..60_u32 {
                if let Some(pace) = allowed.tick(u64::from(second) * SECOND_US) {
                    rule.end_interval(pace);
                }
                for number in 0..80_u32 {
                    let block = 80 * second + number;
                    let length = if number < 20 { 1 } else { 8 };
                    let admits = rule.judge(&access(block, Op::Read, length), || false) && !allowed.is_used_up();
                    if number < 20 {
                        rule.judge(&access(block, Op::Read, length), || admits);
                    }
                    if admits {
                        allowed.note_written();
                    }
                    admitted[usize::from(number >= 20)] += u32::from(admits && second >= 50);
                }
            }
            // In ten seconds there are at most 200 small ones and 600 large ones.
            assert!(of_small.contains(&admitted[0]) && of_large.contains(&admitted[1]), "{budget}: {admitted:?}");
            Judge::check(&rule);
        }
    }
}
