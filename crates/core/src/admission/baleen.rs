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
//! next interval than in the last is refused when the budget is used up: the rule never writes more than the budget brought, but for write hits.
//!
//! Departures from the paper:
//! - It learns boosted trees (LightGBM) from a day of the past, once, or in its online version every six hours; here are tables of sums, which
//!   is the first of its "Bayes optimal" comparisons: the score of an example is the mean of all that share its features. The sums
//!   are halved when there are many, so that the old counts for less.
//! - What is saved are hits, not disk-head time, and what has to be written are all writes to the flash: the paper's cache takes reads of
//!   what is never overwritten. Features of Meta's storage, users and namespaces, are not in a trace of blocks, nor does a rule know neighbours:
//!   the paper's counts for a whole block of 8 MiB are missing, and it does not prefetch.
//! - The first three accesses of an episode are examples, where the paper has six. The eviction age follows the cache: the blocks it has
//!   over the blocks it admits in an access.
//! - Until there are examples, it admits by chance what the budget allows; the paper's online version admits everything.

use super::budget::{Allowance, WRITES_PER_DAY};
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
            name: "interval",
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
        WRITES,
        SEED,
    ],
    thresholds: None,
    decides: None,
};

/// Blocks in an episode, most recently accessed first.
const GOING: List = List(0);
/// Blocks whose episodes have ended, the last first.
const ENDED: List = List(1);

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

const SIZES: usize = 8;
const PASTS: usize = 4;
const AGES: usize = 4;
const CLASSES: usize = 2 * SIZES * EXAMPLES * PASTS * AGES;

/// What is remembered of a block.
#[derive(Clone, Copy, Debug, Default, bytemuck::Zeroable)]
struct Seen {
    last: u64,
    /// Accesses of its episode, and writes among them.
    accesses: u16,
    writes: u16,
    /// The classes of its examples, and the writes of the episode up to each.
    classes: [u16; EXAMPLES],
    writes_then: [u8; EXAMPLES],
    /// Accesses in earlier episodes.
    past: u8,
}

/// What examples of the same classes were worth.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sums {
    examples: f64,
    /// Accesses in the rest of their episodes.
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
    /// Misses in this interval.
    misses: f64,
    /// The share of them that is admitted.
    admitted: f64,
}

/// Admits what was worth most before.
#[derive(Debug)]
pub struct Baleen<I: Index> {
    c: usize,
    budget: Allowance,
    history_max: usize,
    random: Random,
    /// Accesses so far, and since the interval began.
    now: u64,
    accesses_since: u64,
    admissions_since: u64,
    /// Accesses for which an admitted block stays.
    eviction_age: u64,
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

    /// Ends the episode of the block at the back of `GOING`, which stays.
    fn end_episode(&mut self, node: NodeId) {
        let seen = self.blocks.data_mut(node);
        let Seen { accesses, writes, classes, writes_then, .. } = *seen;
        seen.past = seen.past.saturating_add(accesses.min(u16::from(u8::MAX)) as u8);
        (seen.accesses, seen.writes) = (0, 0);
        self.blocks.move_front(node, ENDED);
        for nth in 0..EXAMPLES.min(accesses.into()) {
            let example = Sums {
                examples: 1.0,
                hits: f64::from(accesses) - 1.0 - nth as f64,
                writes: 1.0 + f64::from(writes) - f64::from(writes_then[nth]),
            };
            self.all.add(example);
            self.classes[usize::from(classes[nth])].sums.add(example);
        }
    }

    /// Ends the episodes of blocks that would have left the cache.
    #[inline]
    fn end_episodes(&mut self) {
        while let Some(back) = self.blocks.back(GOING)
            && self.now - self.blocks.data(back).last > self.eviction_age
        {
            self.end_episode(back);
        }
    }

    /// The node of `block`, which comes into the history if need be.
    #[inline]
    fn node(&mut self, block: I::Key) -> NodeId {
        if let Some(node) = self.blocks.find(block) {
            return node;
        }
        if self.blocks.len(GOING) + self.blocks.len(ENDED) == self.history_max {
            if let Some(oldest) = self.blocks.back(GOING).filter(|_| self.blocks.is_empty(ENDED)) {
                self.end_episode(oldest);
            }
            self.blocks.pop_back(ENDED);
        }
        self.blocks.insert_front(GOING, block, Seen { last: self.now, ..Seen::default() })
    }

    /// Notes an access, and returns its class.
    #[inline]
    fn note(&mut self, block: I::Key, op: Op, request_blocks: u32) -> u16 {
        self.now += 1;
        self.accesses_since += 1;
        if self.history_max == 0 {
            return self.class(op, request_blocks, &Seen { last: self.now, ..Seen::default() }, 0);
        }
        self.end_episodes();
        let node = self.node(block);
        let mut seen = *self.blocks.data(node);
        let nth = usize::from(seen.accesses);
        let class = self.class(op, request_blocks, &seen, nth);
        seen.accesses = seen.accesses.saturating_add(1);
        seen.writes = seen.writes.saturating_add(u16::from(op == Op::Write));
        seen.last = self.now;
        if nth < EXAMPLES {
            (seen.classes[nth], seen.writes_then[nth]) = (class, seen.writes as u8);
        }
        *self.blocks.data_mut(node) = seen;
        self.blocks.move_front(node, GOING);
        class
    }

    /// Hits for a write of a class of blocks, and writes for one of them.
    fn worth(&self, class: &Class) -> (f64, f64) {
        let mut sums = self.all.scaled(PRIOR / self.all.examples);
        sums.add(class.sums);
        (sums.hits / sums.writes, sums.writes / sums.examples)
    }

    /// Chooses what is admitted from now on, of which `left` blocks may be written in the next interval.
    #[cold]
    fn choose(&mut self, mut left: f64) {
        if self.admissions_since > 0 {
            let age = self.c as f64 * self.accesses_since as f64 / self.admissions_since as f64;
            self.eviction_age = age.clamp(self.c as f64, AGE_MAX * self.c as f64) as u64;
        }
        (self.accesses_since, self.admissions_since) = (0, 0);
        if self.all.examples < EXAMPLES_MIN {
            let misses: f64 = self.classes.iter().map(|class| class.misses).sum();
            let share = if misses > 0.0 { (left / misses).min(1.0) } else { 1.0 };
            self.classes.iter_mut().for_each(|class| (class.misses, class.admitted) = (0.0, share));
            return;
        }
        let mut order: Vec<(usize, f64, f64)> = Vec::with_capacity(CLASSES);
        order.extend(self.classes.iter().enumerate().map(|(at, class)| {
            let (worth, writes) = self.worth(class);
            (at, worth, writes)
        }));
        order.sort_by(|a, b| b.1.total_cmp(&a.1));
        for (at, _, writes) in order {
            let class = &mut self.classes[at];
            let wanted = class.misses * writes;
            class.admitted = match wanted <= left {
                true => f64::from(u8::from(left > 0.0)),
                false => left / wanted,
            };
            left -= wanted * class.admitted;
            class.misses = 0.0;
        }
        if self.all.examples > EXAMPLES_PER_BLOCK * self.c as f64 {
            self.all = self.all.scaled(0.5);
            self.classes.iter_mut().for_each(|class| class.sums = class.sums.scaled(0.5));
        }
    }
}

impl<I: Index> Judge<I> for Baleen<I> {
    fn build(options: &Options, index: I, capacity: usize, _block_bytes: u64) -> Self {
        let class = Class { sums: Sums::default(), misses: 0.0, admitted: 1.0 };
        Baleen {
            c: capacity,
            budget: Allowance::new(options, capacity),
            history_max: (options.number("history") * capacity as f64) as usize,
            random: Random::new(options.count(SEED.name)),
            now: 0,
            accesses_since: 0,
            admissions_since: 0,
            eviction_age: capacity as u64,
            all: Sums::default(),
            classes: vec![class; CLASSES],
            blocks: Blocks::new(index, 0, 2),
        }
    }

    fn set_threshold(&mut self, threshold: f64) {
        unreachable!("a budget has no threshold that could be {threshold}");
    }

    #[inline]
    fn judge(&mut self, access: &Access<I::Key>, is_cached: impl Fn() -> bool) -> bool {
        let class = usize::from(self.note(access.block, access.op, access.request_blocks));
        if is_cached() {
            return true;
        }
        self.classes[class].misses += 1.0;
        let admitted = if self.budget.is_used_up() { 0.0 } else { self.classes[class].admitted };
        admitted >= 1.0 || admitted > 0.0 && self.random.share() < admitted
    }

    fn note_admitted(&mut self, block: I::Key) {
        self.note(block, Op::Write, 1);
    }

    #[inline]
    fn tick(&mut self, time_us: u64) {
        if let Some(left) = self.budget.tick(time_us) {
            self.choose(left);
        }
    }

    #[inline]
    fn note_written(&mut self) {
        self.budget.note_written();
    }

    #[inline]
    fn note_len(&mut self, _len: usize, admitted: Option<I::Key>) {
        self.admissions_since += u64::from(admitted.is_some());
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
        let ended: f64 = self.classes.iter().map(|class| class.sums.examples).sum();
        assert!((ended - self.all.examples).abs() < 1e-6 * (1.0 + ended), "{ended} and {} examples", self.all.examples);
        assert!(self.classes.iter().all(|class| (0.0..=1.0).contains(&class.admitted)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
    /// else between; three accesses to other blocks later it has ended:
    ///
    ///     example   then left: hits, writes of it and of the rest
    ///     read      2          1 + 1
    ///     write     1          1 + 0
    ///     read      0          1 + 0
    ///
    /// Block 2 was read once: no hits for a write.
    #[test]
    fn an_episode_gives_an_example_for_each_of_its_first_accesses() {
        let mut rule = rule("history=1000%", 2);
        for (block, op) in [(1, Op::Read), (1, Op::Write), (1, Op::Read), (2, Op::Read), (3, Op::Read)] {
            rule.judge(&access(block, op, 1), || false);
        }
        assert_eq!(rule.all, Sums::default(), "a pause of two");
        rule.judge(&access(4, Op::Read, 1), || false);
        assert_eq!(rule.all, Sums { examples: 3.0, hits: 3.0, writes: 4.0 });
        rule.judge(&access(5, Op::Read, 1), || false);
        assert_eq!(rule.all, Sums { examples: 4.0, hits: 3.0, writes: 5.0 });
        let first_reads = usize::from(rule.class(Op::Read, 1, &Seen { last: rule.now, ..Seen::default() }, 0));
        assert_eq!(rule.classes[first_reads].sums, Sums { examples: 2.0, hits: 2.0, writes: 3.0 });
        // Block 1 comes back: it is known that it was accessed three times.
        let seen = *rule.blocks.data(rule.blocks.find(1).unwrap());
        assert_eq!((seen.past, rule.blocks.list(rule.blocks.find(1).unwrap())), (3, ENDED));
        assert_ne!(usize::from(rule.class(Op::Read, 1, &seen, 0)), first_reads);
        Judge::check(&rule);
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
            let mut rule = rule(&format!("writes-per-day={budget},interval=1s,history=100%"), 1_000_000);
            rule.eviction_age = 50;
            let mut admitted = [0; 2];
            for second in 0..60_u32 {
                Judge::tick(&mut rule, u64::from(second) * SECOND_US);
                for number in 0..80_u32 {
                    let block = 80 * second + number;
                    let length = if number < 20 { 1 } else { 8 };
                    let admits = rule.judge(&access(block, Op::Read, length), || false);
                    if number < 20 {
                        rule.judge(&access(block, Op::Read, length), || admits);
                    }
                    if admits {
                        Judge::note_written(&mut rule);
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
