//! `baleen` in front of LRU against a plain model: every access of every block is kept, and what a class of accesses was worth is counted anew from all
//! of them whenever it is asked.

#![allow(clippy::unwrap_used)] // A test ends where something goes wrong.

mod rules;

use std::collections::BTreeMap;

use flashwise_core::access::{Access, Op};
use flashwise_core::admission::Spec;
use flashwise_core::index::{Dense, Hashed, Index};
use flashwise_core::policy::{self, Outcome, Policy, Visitor};
use flashwise_core::random::Random;
use rules::{SETTING, skewed};

const BLOCKS: u32 = 400;
const CAPACITY: usize = 40;
const ACCESS_US: u64 = 10_000;
const INTERVAL_US: u64 = 1_000_000;

/// Op, length, place in the episode, earlier accesses, pause, each cut into a few.
type Class = [usize; 5];

#[derive(Default)]
struct Block {
    past: u64,
    last: u64,
    /// The class of each access of the episode that goes on, and whether it writes.
    episode: Vec<(Class, bool)>,
}

/// An example: its class, its hits and its writes, and its weight.
type Example = (Class, f64, f64, f64);

struct Model {
    now: u64,
    accesses: u64,
    admissions: u64,
    age: u64,
    blocks: BTreeMap<u32, Block>,
    examples: Vec<Example>,
    misses: BTreeMap<Class, f64>,
    /// Of classes that are not in it all is admitted.
    admitted: BTreeMap<Class, f64>,
    rate: f64,
    left: f64,
    at_us: u64,
    ended_us: u64,
    random: Random,
}

fn step(number: u64, steps: [u64; 3]) -> usize {
    steps.iter().filter(|&&step| number >= step).count()
}

impl Model {
    fn new(writes_per_day: f64, seed: u64) -> Model {
        let rate = writes_per_day * CAPACITY as f64 / 86_400e6;
        Model {
            now: 0,
            accesses: 0,
            admissions: 0,
            age: CAPACITY as u64,
            blocks: BTreeMap::new(),
            examples: vec![],
            misses: BTreeMap::new(),
            admitted: BTreeMap::new(),
            rate,
            left: rate * INTERVAL_US as f64,
            at_us: 0,
            ended_us: 0,
            random: Random::new(seed),
        }
    }

    fn end_episodes(&mut self) {
        for block in self.blocks.values_mut().filter(|block| self.now - block.last > self.age) {
            for (nth, (class, _)) in block.episode.iter().enumerate().take(3) {
                let rest = &block.episode[nth + 1..];
                let writes = rest.iter().filter(|(_, writes)| *writes).count();
                self.examples.push((*class, rest.len() as f64, 1.0 + writes as f64, 1.0));
            }
            block.past += block.episode.len() as u64;
            block.episode.clear();
        }
    }

    fn tick(&mut self, now_us: u64) {
        self.left += self.rate * (now_us - self.at_us) as f64;
        self.at_us = now_us;
        if now_us - self.ended_us >= INTERVAL_US {
            self.ended_us = now_us;
            let of_interval = self.rate * INTERVAL_US as f64;
            self.choose((of_interval + 0.5 * (self.left - of_interval)).max(0.0));
        }
    }

    fn choose(&mut self, mut left: f64) {
        if self.admissions > 0 {
            let age = CAPACITY as f64 * self.accesses as f64 / self.admissions as f64;
            self.age = age.clamp(CAPACITY as f64, 1000.0 * CAPACITY as f64) as u64;
        }
        (self.accesses, self.admissions) = (0, 0);
        let sums = |examples: &[&Example]| {
            let sum = |of: fn(&Example) -> f64| examples.iter().map(|example| of(example)).sum::<f64>();
            (sum(|e| e.3), sum(|e| e.1 * e.3), sum(|e| e.2 * e.3))
        };
        let all = sums(&self.examples.iter().collect::<Vec<_>>());
        let classes = (0..2 * 8 * 3 * 4 * 4).map(|n| [n / 384, n / 48 % 8, n / 16 % 3, n / 4 % 4, n % 4]);
        let misses = std::mem::take(&mut self.misses);
        if all.0 < 100.0 {
            let missed: f64 = misses.values().sum();
            let share = if missed > 0.0 { (left / missed).min(1.0) } else { 1.0 };
            self.admitted = classes.map(|class| (class, share)).collect();
            return;
        }
        let by = 8.0 / all.0;
        let mut order: Vec<_> = classes
            .map(|class| {
                let own: Vec<_> = self.examples.iter().filter(|example| example.0 == class).collect();
                let own = sums(&own);
                let (examples, hits, writes) = (all.0 * by + own.0, all.1 * by + own.1, all.2 * by + own.2);
                (class, hits / writes, writes / examples)
            })
            .collect();
        order.sort_by(|a, b| b.1.total_cmp(&a.1));
        for (class, _, writes) in order {
            let wanted = misses.get(&class).copied().unwrap_or(0.0) * writes;
            let share = if wanted <= left { f64::from(u8::from(left > 0.0)) } else { left / wanted };
            left -= wanted * share;
            self.admitted.insert(class, share);
        }
        if all.0 > 20.0 * CAPACITY as f64 {
            self.examples.iter_mut().for_each(|example| example.3 *= 0.5);
        }
    }

    fn admits(&mut self, access: &Access<u32>, cached: bool) -> bool {
        self.now += 1;
        self.accesses += 1;
        self.end_episodes();
        let (now, age) = (self.now, self.age);
        let block = self.blocks.entry(access.block).or_insert_with(|| Block { last: now, ..Block::default() });
        let (nth, past, pause) = (block.episode.len(), step(block.past, [1, 2, 4]), now - block.last);
        let pause = match (nth, past) {
            (0, 0) => 0,
            (0, _) => step(pause, [2 * age, 4 * age, 16 * age]),
            _ => step(pause, [age / 64, age / 16, age / 4]),
        };
        let class = [access.op as usize, access.request_blocks.ilog2().min(7) as usize, nth.min(2), past, pause];
        block.episode.push((class, access.op == Op::Write));
        block.last = now;
        if cached {
            return false;
        }
        *self.misses.entry(class).or_default() += 1.0;
        let share = self.admitted.get(&class).copied().unwrap_or(1.0);
        let mut draw = || self.random.share();
        self.left > 0.0 && (share >= 1.0 || share > 0.0 && draw() < share)
    }
}

struct Compare {
    writes_per_day: f64,
}

impl Visitor<u32> for Compare {
    /// Admissions and write hits, and blocks that the budget brought.
    type Output = (u64, f64);

    fn visit<P: Policy<Key = u32> + Send + 'static>(self, mut policy: P) -> Self::Output {
        let mut model = Model::new(self.writes_per_day, 7);
        let (mut admissions, mut refused, mut write_hits) = (0, 0, 0);
        let accesses = skewed(BLOCKS, 12_000);
        for (position, access) in accesses.iter().enumerate() {
            let now_us = position as u64 * ACCESS_US;
            policy.tick(now_us);
            model.tick(now_us);
            let held = policy.contains(access.block);
            let admits = model.admits(access, held);
            let outcome = policy.access(*access);
            assert_eq!(outcome == Outcome::Hit, held, "access {position}");
            let admitted = matches!(outcome, Outcome::Admit { .. });
            assert_eq!(admitted, admits, "access {position} of {}: {access:?}", self.writes_per_day);
            let write_hit = held && access.op == Op::Write;
            if admitted || write_hit {
                model.left -= 1.0;
            }
            model.admissions += u64::from(admitted);
            admissions += u64::from(admitted);
            write_hits += u64::from(write_hit);
            refused += u64::from(!held && !admitted);
        }
        assert!(admissions > 100 && refused > 100, "{admissions} admitted and {refused} refused");
        (admissions + write_hits, model.rate * (accesses.len() as u64 * ACCESS_US + INTERVAL_US) as f64)
    }
}

/// 20, 30 and 40 writes a second, of 100 accesses.
#[test]
fn it_does_what_its_model_does_and_keeps_its_budget() {
    for per_second in [20.0, 30.0, 40.0] {
        let writes_per_day = per_second * 86_400.0 / CAPACITY as f64;
        let rule = format!("baleen:writes-per-day={writes_per_day},interval=1s,history=100000%,seed=7");
        let (written, allowed) = run(&rule, writes_per_day, Dense::new(BLOCKS as usize));
        assert_eq!(run(&rule, writes_per_day, Hashed::new()).0, written);
        println!("{per_second} a second: {written} written of {allowed}");
        // What write hits take is not refused; it is taken from what is admitted later.
        assert!((written as f64) < allowed + 1.0, "{per_second} a second: {written} of {allowed}");
        assert!(written as f64 > 0.9 * allowed, "{per_second} a second: {written} of {allowed}");
    }
}

fn run<I: Index<Key = u32> + Clone + Send + 'static>(rule: &str, writes_per_day: f64, index: I) -> (u64, f64) {
    let lru = policy::Spec::parse("lru").unwrap();
    Spec::parse(rule).unwrap().build(&lru, index, CAPACITY, &SETTING, Compare { writes_per_day })
}
