//! `baleen` in front of LRU compared with a plain model. The model keeps every access of every block, and recounts the
//! worth of a class from all of them each time.

use std::collections::BTreeMap;

use crate::rules::{SETTING, skewed};
use flashwise_core::access::{Access, Op};
use flashwise_core::admission::Spec;
use flashwise_core::index::{Dense, Hashed, Index};
use flashwise_core::policy::{self, Outcome, Policy, Visitor};
use flashwise_core::random::Random;

const BLOCKS: u32 = 400;
const CAPACITY: usize = 40;
const ACCESS_US: u64 = 10_000;
const INTERVAL_US: u64 = 1_000_000;

/// Op, length, number in the episode, earlier accesses, pause, each quantised.
type Class = [usize; 5];

#[derive(Default)]
struct Block {
    past: u64,
    last: u64,
    /// The class of each access of the current episode.
    episode: Vec<Class>,
}

/// An addition to the sums of a class: example, hit, write, and weight.
type Entry = (Class, f64, f64, f64, f64);

/// The accesses of an interval.
#[derive(Default)]
struct Interval {
    misses: BTreeMap<Class, f64>,
    old_hits: f64,
    admissions: f64,
}

struct Model {
    reads_alone: bool,
    now: u64,
    accesses: f64,
    admissions: f64,
    age: u64,
    blocks: BTreeMap<u32, Block>,
    entries: Vec<Entry>,
    /// The last one is the current interval.
    intervals: Vec<Interval>,
    /// Classes that are missing here are admitted.
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
    fn new(writes_per_day: f64, reads_alone: bool, seed: u64) -> Model {
        let rate = writes_per_day * CAPACITY as f64 / 86_400e6;
        Model {
            reads_alone,
            now: 0,
            accesses: 0.0,
            admissions: 0.0,
            age: CAPACITY as u64,
            blocks: BTreeMap::new(),
            entries: vec![],
            intervals: vec![Interval::default()],
            admitted: BTreeMap::new(),
            rate,
            left: 0.0,
            at_us: 0,
            ended_us: 0,
            random: Random::new(seed),
        }
    }

    fn tick(&mut self, now_us: u64) {
        self.left += self.rate * (now_us - self.at_us) as f64;
        self.at_us = now_us;
        if now_us - self.ended_us >= INTERVAL_US {
            self.ended_us = now_us;
            let of_interval = self.rate * INTERVAL_US as f64;
            self.choose((of_interval + 0.5 * (self.left - of_interval)).max(0.0));
            self.intervals.push(Interval::default());
        }
    }

    /// Returns a sum over all intervals; each counts nine tenths of the next.
    fn recent(&self, of: impl Fn(&Interval) -> f64) -> f64 {
        self.intervals.iter().fold(0.0, |sum, interval| 0.9 * sum + of(interval))
    }

    fn choose(&mut self, mut left: f64) {
        if self.admissions > 0.0 {
            let age = CAPACITY as f64 * self.accesses / self.admissions;
            self.age = age.clamp(CAPACITY as f64, 1000.0 * CAPACITY as f64) as u64;
            if self.admissions > CAPACITY as f64 / 2.0 {
                (self.accesses, self.admissions) = (self.accesses / 2.0, self.admissions / 2.0);
            }
        }
        let mut own: BTreeMap<Class, [f64; 3]> = BTreeMap::new();
        let mut all = [0.0; 3];
        for (class, example, hit, write, weight) in &self.entries {
            for sums in [&mut all, own.entry(*class).or_default()] {
                *sums = [sums[0] + example * weight, sums[1] + hit * weight, sums[2] + write * weight];
            }
        }
        let classes = (0..2 * 8 * 3 * 4 * 4).map(|n| [n / 384, n / 48 % 8, n / 16 % 3, n / 4 % 4, n % 4]);
        let count = self.recent(|_| 1.0);
        if all[0] < 100.0 {
            let missed = self.recent(|interval| interval.misses.values().sum()) / count;
            let share = if missed > 0.0 { (left / missed).min(1.0) } else { 1.0 };
            self.admitted = classes.map(|class| (class, share)).collect();
            return;
        }
        let (old_hits, admissions) = (self.recent(|i| i.old_hits), self.recent(|i| i.admissions));
        let least = if old_hits > 0.0 { 0.5 * old_hits / (old_hits + admissions) } else { 0.0 };
        let by = 8.0 / all[0];
        let mut order: Vec<_> = classes
            .map(|class| {
                let own = own.get(&class).copied().unwrap_or_default();
                let [examples, hits, writes] = std::array::from_fn(|at| all[at] * by + own[at]);
                (class, hits / examples, writes / examples)
            })
            .collect();
        order.sort_by(|a, b| (b.1 / b.2).total_cmp(&(a.1 / a.2)));
        for (class, hits, writes) in order {
            let misses = self.recent(|interval| interval.misses.get(&class).copied().unwrap_or(0.0));
            let wanted = misses / count * writes;
            let share = if wanted <= left { f64::from(u8::from(left > 0.0)) } else { left / wanted };
            let share = if hits < least { 0.0 } else { share };
            left -= wanted * share;
            self.admitted.insert(class, share);
        }
        if all[0] > 20.0 * CAPACITY as f64 {
            self.entries.iter_mut().for_each(|entry| entry.4 *= 0.5);
        }
    }

    fn admits(&mut self, access: &Access<u32>, cached: bool) -> bool {
        self.now += 1;
        self.accesses += 1.0;
        let (now, age) = (self.now, self.age);
        let block = self.blocks.entry(access.block).or_insert_with(|| Block { last: now, ..Block::default() });
        let pause = now - block.last;
        if pause > age {
            block.past += block.episode.len() as u64;
            block.episode.clear();
        }
        let (nth, past) = (block.episode.len(), step(block.past, [1, 2, 4]));
        let paused = match (nth, past) {
            (0, 0) => 0,
            (0, _) => step(pause, [2 * age, 4 * age, 16 * age]),
            _ => step(pause, [age / 64, age / 16, age / 4]),
        };
        let class = [access.op as usize, access.request_blocks.ilog2().min(7) as usize, nth.min(2), past, paused];
        let (is_write, counts) = (access.op == Op::Write, access.op == Op::Read || !self.reads_alone);
        for earlier in block.episode.iter().take(3) {
            self.entries.push((*earlier, 0.0, f64::from(u8::from(counts)), f64::from(u8::from(is_write)), 1.0));
        }
        if nth < 3 {
            self.entries.push((class, 1.0, 0.0, 1.0, 1.0));
        }
        block.episode.push(class);
        block.last = now;
        let interval = self.intervals.last_mut().unwrap();
        if cached {
            interval.old_hits += f64::from(u8::from(counts && pause >= age / 2));
            return false;
        }
        *interval.misses.entry(class).or_default() += 1.0;
        let share = self.admitted.get(&class).copied().unwrap_or(1.0);
        let mut draw = || self.random.share();
        share >= 1.0 || share > 0.0 && draw() < share
    }
}

struct Compare {
    writes_per_day: f64,
    reads_alone: bool,
}

impl Visitor<u32> for Compare {
    /// Admissions and write hits, and the blocks of the budget.
    type Output = (u64, f64);

    fn visit<P: Policy<Key = u32> + Send + 'static>(self, mut policy: P) -> Self::Output {
        let mut model = Model::new(self.writes_per_day, self.reads_alone, 7);
        let (mut admissions, mut refused, mut write_hits) = (0, 0, 0);
        let accesses = skewed(BLOCKS, 12_000);
        for (position, access) in accesses.iter().enumerate() {
            let now_us = position as u64 * ACCESS_US;
            policy.tick(now_us);
            model.tick(now_us);
            let held = policy.contains(access.block);
            let may_write = model.left >= 1.0 - 1e-6;
            let admits = model.admits(access, held) && may_write;
            let outcome = policy.access(*access);
            let hits = held && (access.op == Op::Read || may_write);
            assert_eq!(outcome == Outcome::Hit, hits, "access {position}");
            assert_eq!(policy.contains(access.block), hits || admits, "access {position}");
            let admitted = matches!(outcome, Outcome::Admit { .. });
            assert_eq!(admitted, admits, "access {position} of {}: {access:?}", self.writes_per_day);
            let write_hit = hits && access.op == Op::Write;
            if admitted || write_hit {
                model.left -= 1.0;
            }
            model.admissions += f64::from(u8::from(admitted));
            model.intervals.last_mut().unwrap().admissions += f64::from(u8::from(admitted));
            admissions += u64::from(admitted);
            write_hits += u64::from(write_hit);
            refused += u64::from(!held && !admitted);
        }
        assert!(admissions > 100 && refused > 100, "{admissions} admitted and {refused} refused");
        (admissions + write_hits, model.rate * (accesses.len() as u64 * ACCESS_US) as f64)
    }
}

/// 20, 30 and 40 writes a second, of 100 accesses.
#[test]
fn it_matches_its_model_and_keeps_its_budget() {
    for (per_second, worth) in [(20.0, "hits"), (30.0, "hits"), (40.0, "hits"), (20.0, "reads")] {
        let writes_per_day = per_second * 86_400.0 / CAPACITY as f64;
        let rule = format!("baleen:writes-per-day={writes_per_day},interval=1s,history=100000%,seed=7,worth={worth}");
        let compare = || Compare { writes_per_day, reads_alone: worth == "reads" };
        let (written, allowed) = run(&rule, compare(), Dense::new(BLOCKS as usize));
        assert_eq!(run(&rule, compare(), Hashed::new()).0, written);
        println!("{per_second} a second, {worth}: {written} written of {allowed}");
        assert!((written as f64) < allowed + 1.0, "{per_second} a second: {written} of {allowed}");
        assert!(written as f64 > 0.9 * allowed, "{per_second} a second: {written} of {allowed}");
    }
}

fn run<I: Index<Key = u32> + Clone + Send + 'static>(rule: &str, compare: Compare, index: I) -> (u64, f64) {
    let lru = policy::Spec::parse("lru").unwrap();
    compare.visit(Spec::parse(rule).unwrap().build(&lru, index, CAPACITY, &SETTING))
}
