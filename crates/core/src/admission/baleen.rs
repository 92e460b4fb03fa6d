//! Baleen: learns from the past which missed blocks will be hit often for what they cost to write, and admits the best of them that a
//! budget of writes allows.
//!
//! Source: Wong et al.: Baleen: ML admission and prefetching for flash caches. FAST 2024, sections 3 and 4: an *episode* of a block is a
//! run of accesses between which it would stay in the cache, that is with no longer pauses than the cache's *eviction age*; its worth
//! is what is saved if it is admitted with its first access, over what has to be written. Examples are its first accesses, with what the
//! rest of the episode was worth; what is worth more than a cutoff is admitted, and the cutoff is the one that writes what may be written.
//!
//! It learns while it runs, from what came before: there is no second pass. An example is an access with what is known of it and its block then:
//! whether it reads, the length of its request, which access of its episode it is, how many there were in earlier episodes, and how long
//! ago the last one was. Each is cut into a few classes, and all examples of the same classes have their sums of hits and of writes.
//! At the end of each interval the classes are put in order of hits for a write, and admitted from the best on up to the budget. What more comes in the
//! next interval than in the last ones is refused when the [budget](super::budget) is used up.
//!
//! A budget that is large is no reason to fill the cache with what is hardly used: what is admitted drives out what would have been hit. The cache
//! tells how often that is, by hits of blocks that were not used for half of the eviction age or longer, and what leaves it unused: a class that has not
//! half as many hits for an admission as those have is refused, whatever the budget.
//!
//! Departures from the paper:
//! - It learns boosted trees (LightGBM) from a day of the past, once, or in its online version every six hours; here are tables of sums, which
//!   is the first of its "Bayes optimal" comparisons: the score of an example is the mean of all that share its features. The sums
//!   are halved when there are many, so that the old counts for less.
//! - An example counts from its access on, and its hits as they come, where the paper waits until the episode has ended: in a cache that writes little
//!   blocks stay long, and episodes would end after hours.
//! - What is saved are hits, not disk-head time, and what has to be written are all writes to the flash: the paper's cache takes reads of
//!   what is never overwritten. With `worth=reads` hits are reads alone, as those of its label and of M+ are. Features of Meta's storage, users and
//!   namespaces, are not in a trace of blocks, nor does a rule know neighbours:
//!   the paper's counts for a whole block of 8 MiB are missing, and it does not prefetch.
//! - The first three accesses of an episode are examples, where the paper has six. The eviction age follows the cache: the blocks it has
//!   over the blocks it admits in an access, over the last quarter to half of its blocks.
//! - Until there are examples, it admits by chance what the budget allows; the paper's online version admits everything.
//! - The paper's cache is as good with more writes as with fewer; it has no bound besides the budget.

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
        Parameter {
            name: INTERVAL,
            kind: Kind::Duration(1_000_000, 86_400_000_000),
            default: "1min",
            meaning: "time between two choices of what is admitted",
        },
        Parameter {
            name: "history",
            kind: Kind::Number(0.0, 1000.0),
            default: "400%",
            meaning: "blocks of which past accesses are remembered, as a share of the cache size",
        },
        Parameter {
            name: "worth",
            kind: Kind::Choice(&["hits", "reads"]),
            default: "hits",
            meaning: "what a write is to bring most of: hits, or hits that are reads, as M+ counts them",
        },
        WRITES,
        SEED,
    ],
    thresholds: None,
    decides: None,
};

/// Blocks of which past accesses are remembered, most recently accessed first.
const HISTORY: List = List(0);

/// Accesses of an episode that are examples.
const EXAMPLES: usize = 3;
/// Examples without which nothing is learned.
const EXAMPLES_MIN: f64 = 100.0;
/// The sums are halved when there are this many examples for each block of the cache.
const EXAMPLES_PER_BLOCK: f64 = 20.0;
/// This many examples of the mean of all are added to those of each class.
const PRIOR: f64 = 8.0;
/// The eviction age is at most this many times what fills the cache.
const AGE_MAX: f64 = 1000.0;
/// The eviction age is that of the last admissions, twice as many at most as this share of the cache.
const AGE_OF: f64 = 0.25;
/// What counts of the misses of an interval, and of the hits and evictions of old blocks, in the next.
const KEPT: f64 = 0.9;
/// How many hits an admission brings at least, of those that an old block has.
const OF_OLD: f64 = 0.5;

const SIZES: usize = 8;
const PASTS: usize = 4;
const AGES: usize = 4;
const CLASSES: usize = 2 * SIZES * EXAMPLES * PASTS * AGES;

/// What is remembered of a block.
#[derive(Clone, Copy, Debug, Default, bytemuck::Zeroable)]
struct Seen {
    last: u64,
    /// Accesses of its episode.
    accesses: u16,
    /// The classes of its examples.
    classes: [u16; EXAMPLES],
    /// Accesses in earlier episodes.
    past: u8,
}

/// What examples of the same classes were worth.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sums {
    examples: f64,
    /// Accesses in the rest of their episodes that are worth a write.
    hits: f64,
    /// What was to be written: each example, and writes in the rest of its episode.
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

/// What one class of accesses is worth, and what is made of it.
#[derive(Clone, Copy, Debug)]
struct Class {
    sums: Sums,
    /// Misses, of which those of an interval ago count for [`KEPT`].
    misses: f64,
    /// The share of them that is admitted.
    admitted: f64,
}

/// Sums over the last intervals, the older ones for less.
#[derive(Clone, Copy, Debug, Default)]
struct Lately {
    /// Intervals.
    intervals: f64,
    /// Hits of blocks that were not accessed for half of the eviction age or longer, and admissions, each of which drove one out.
    old_hits: f64,
    admissions: f64,
}

/// Admits what was worth most before.
#[derive(Debug)]
pub struct Baleen<I: Index> {
    c: usize,
    reads_alone: bool,
    history_max: usize,
    random: Random,
    /// Accesses so far.
    now: u64,
    /// Accesses, and admissions in them, from which the eviction age is reckoned.
    accesses: f64,
    admissions: f64,
    /// Accesses for which an admitted block stays.
    eviction_age: u64,
    lately: Lately,
    all: Sums,
    classes: Vec<Class>,
    blocks: Blocks<I, Seen>,
}

/// Which quarter of the steps a number is on.
fn step(number: u64, steps: [u64; 3]) -> usize {
    steps.iter().filter(|&&step| number >= step).count()
}

impl<I: Index> Baleen<I> {
    /// The class of an access to a block of which `seen` is known, and which is the `nth` of its episode, from 0.
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

    /// The node of `block`, which comes into the history if need be.
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

    /// Notes an access, and returns its class and how long ago the last one to the block was.
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

    /// Hits of an admission of a class of blocks, and writes.
    fn expected(&self, class: &Class) -> (f64, f64) {
        let mut sums = self.all.scaled(PRIOR / self.all.examples);
        sums.add(class.sums);
        (sums.hits / sums.examples, sums.writes / sums.examples)
    }

    /// What an admission has to bring, since it drives out an old block: a share of the hits that one of these has.
    fn least_hits(&self) -> f64 {
        let Lately { old_hits, admissions, .. } = self.lately;
        if old_hits > 0.0 { OF_OLD * old_hits / (old_hits + admissions) } else { 0.0 }
    }

    /// Chooses what is admitted from now on, of which `left` blocks may be written in the next interval.
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

    /// Admits the classes with the most hits for a write, of which `left` blocks may be written.
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

    /// Two blocks, so that an episode ends with a pause of more than two accesses. That of block 1 is read, written, read, with nothing
    /// else between:
    ///
    ///     example   then left: hits, of these reads   writes of it and of the rest
    ///     read      2                1                1 + 1
    ///     write     1                1                1 + 0
    ///     read      0                0                1 + 0
    ///
    /// Block 2 was read once: no hits for a write. Block 1 comes back after a pause of two, in the same episode, as a hit of all three; it comes back after
    /// a pause of three in another.
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

    /// As long as old blocks are hit, what is hardly hit is refused, however large the budget.
    #[test]
    fn what_is_never_hit_does_not_drive_out_what_is() {
        let mut rule = rule("writes-per-day=1000000,interval=1s", 100);
        rule.all = Sums { examples: 1000.0, hits: 100.0, writes: 1000.0 };
        for class in &mut rule.classes {
            class.sums = Sums { examples: 1000.0, hits: 0.0, writes: 1000.0 };
        }
        rule.lately.intervals = 1.0;
        rule.admit_the_best(1e9);
        assert!(rule.classes.iter().all(|class| class.admitted == 1.0));
        // Of 20 old blocks 4 were hit, and 16 left: a tenth of a hit is what another has to bring. The classes have 0.0008.
        rule.lately = Lately { intervals: 1.0, old_hits: 4.0, admissions: 16.0 };
        assert!((rule.least_hits() - 0.1).abs() < 1e-12);
        rule.classes[7].sums.hits = 101.0;
        rule.admit_the_best(1e9);
        let admitted: Vec<usize> = (0..CLASSES).filter(|&at| rule.classes[at].admitted > 0.0).collect();
        assert_eq!(admitted, [7]);
    }

    /// Each second 20 blocks are read twice in requests of one block, and 60 once in requests of eight. Of 1,000,000 blocks 0.432 times a day are
    /// 5 a second, a quarter of the small ones; 1.728 are 20, all of these; 3.456 are 40, and a third of the large ones; 9 are all.
    #[test]
    fn what_was_hit_is_admitted_first() {
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
            // Of ten seconds: at most 200 small ones and 600 large ones.
            assert!(of_small.contains(&admitted[0]) && of_large.contains(&admitted[1]), "{budget}: {admitted:?}");
            Judge::check(&rule);
        }
    }
}
