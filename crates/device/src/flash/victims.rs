//! Selection of the erase unit that a conventional SSD collects next.
//!
//! Sources:
//! - greedy and FIFO: Desnoyers, Analytic Modeling of SSD Write Performance. SYSTOR 2012
//! - d-choices: Van Houdt, A Mean Field Model for a Class of Garbage Collection Algorithms in Flash-based Solid State
//!   Drives. SIGMETRICS 2013
//! - cost-benefit: Kawaguchi, Nishioka and Motoda, A Flash-Memory Based File System. USENIX 1995

use std::fmt;

use flashwise_core::options::{Kind, OptionError, Options, Parameter, named};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::NONE;

/// The rule that selects a unit among the full ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Victim {
    /// The fewest valid pages; among equals, the unit that lost a page the longest ago.
    #[default]
    Greedy,
    /// The fewest valid pages among this many units, drawn at random with replacement.
    Choices(u32),
    /// The unit that was filled first.
    Fifo,
    /// The largest `age * (1 - u) / 2u`, where u is the share of valid pages. The age is the number of pages that the
    /// host wrote since the unit was filled or last lost a page.
    CostBenefit,
}

const CHOICES: [Parameter; 1] = [Parameter::of("d", Kind::Count(1, 1_000_000), "10")
    .means("units drawn; the one with the fewest valid pages is collected; with 10 it is close to greedy")];

/// A rule: its name, its parameters, and its constructor.
type Row = (&'static str, &'static [Parameter], fn(&Options) -> Victim);

const VICTIMS: [Row; 4] = [
    ("greedy", &[], |_| Victim::Greedy),
    ("d-choices", &CHOICES, |options| Victim::Choices(options.count("d") as u32)),
    ("fifo", &[], |_| Victim::Fifo),
    ("cost-benefit", &[], |_| Victim::CostBenefit),
];

impl Victim {
    /// Parses `greedy`, `d-choices`, `d-choices:d=4`, `fifo` or `cost-benefit`.
    pub fn parse(text: &str) -> Result<Victim, OptionError> {
        let ((name, parameters, make), options) = named("choice of victims", text, VICTIMS.into_iter(), |row| row.0)?;
        Options::parse(name, parameters, options).map(|options| make(&options))
    }
}

impl fmt::Display for Victim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Victim::Greedy => f.write_str("greedy"),
            Victim::Choices(choices) => write!(f, "d-choices:d={choices}"),
            Victim::Fifo => f.write_str("fifo"),
            Victim::CostBenefit => f.write_str("cost-benefit"),
        }
    }
}

/// The full units, in the order that the rule needs.
#[derive(Clone, Debug)]
pub(super) enum Candidates {
    Greedy(Buckets),
    Choices(Sample),
    Fifo(Lists),
    CostBenefit { buckets: Buckets, modified: Vec<u64> },
}

impl Candidates {
    pub fn new(victim: Victim, units: u32, unit_pages: u32, seed: u64) -> Candidates {
        match victim {
            Victim::Greedy => Candidates::Greedy(Buckets::new(units, unit_pages)),
            Victim::Choices(choices) => Candidates::Choices(Sample::new(units, choices, seed)),
            Victim::Fifo => Candidates::Fifo(Lists::new(units, 1)),
            Victim::CostBenefit => {
                Candidates::CostBenefit { buckets: Buckets::new(units, unit_pages), modified: vec![0; units as usize] }
            }
        }
    }

    /// Adds a unit that was filled, with `valid` valid pages.
    pub fn add(&mut self, unit: u32, valid: u32, now: u64) {
        match self {
            Candidates::Greedy(buckets) => buckets.add(unit, valid),
            Candidates::Choices(sample) => sample.add(unit),
            Candidates::Fifo(lists) => lists.push(0, unit),
            Candidates::CostBenefit { buckets, modified } => {
                modified[unit as usize] = now;
                buckets.add(unit, valid);
            }
        }
    }

    /// Records that a page of the unit became invalid, which leaves `valid` valid ones.
    #[inline]
    pub fn lost_page(&mut self, unit: u32, valid: u32, now: u64) {
        match self {
            Candidates::Greedy(buckets) => buckets.lost_page(unit, valid),
            Candidates::Choices(_) | Candidates::Fifo(_) => {}
            Candidates::CostBenefit { buckets, modified } => {
                modified[unit as usize] = now;
                buckets.lost_page(unit, valid);
            }
        }
    }

    /// Removes a unit.
    pub fn remove(&mut self, unit: u32) {
        match self {
            Candidates::Greedy(buckets) | Candidates::CostBenefit { buckets, .. } => buckets.lists.remove(unit),
            Candidates::Choices(sample) => sample.remove(unit),
            Candidates::Fifo(lists) => lists.remove(unit),
        }
    }

    /// Returns the unit to collect, or `None` if no unit is full.
    pub fn choose(&mut self, valid: &[u32], now: u64) -> Option<u32> {
        match self {
            Candidates::Greedy(buckets) => buckets.fewest_valid(),
            Candidates::Choices(sample) => sample.choose(valid),
            Candidates::Fifo(lists) => lists.first(0),
            Candidates::CostBenefit { buckets, modified } => buckets.most_benefit(modified, now),
        }
    }

    /// Asserts that exactly the full units are listed, each in its place.
    pub fn check(&self, full: &[bool], valid: &[u32]) {
        let mut listed = vec![false; full.len()];
        let mut list =
            |unit: u32| assert!(!std::mem::replace(&mut listed[unit as usize], true), "a unit is listed once");
        match self {
            Candidates::Greedy(buckets) | Candidates::CostBenefit { buckets, .. } => {
                for bucket in 0..buckets.lists.heads() {
                    for unit in buckets.lists.iter(bucket) {
                        assert_eq!(valid[unit as usize], bucket, "unit {unit} is in the bucket of its valid pages");
                        assert!(bucket >= buckets.fewest, "no bucket below the fewest holds a unit");
                        list(unit);
                    }
                }
            }
            Candidates::Choices(sample) => sample.units.iter().copied().for_each(list),
            Candidates::Fifo(lists) => lists.iter(0).for_each(list),
        }
        assert_eq!(listed, full, "all full units are candidates, and no others");
    }
}

/// Units by their number of valid pages; within a bucket, in order of arrival.
#[derive(Clone, Debug)]
pub(super) struct Buckets {
    lists: Lists,
    /// No bucket below this holds a unit.
    fewest: u32,
}

impl Buckets {
    fn new(units: u32, unit_pages: u32) -> Buckets {
        Buckets { lists: Lists::new(units, unit_pages + 1), fewest: unit_pages }
    }

    fn add(&mut self, unit: u32, valid: u32) {
        self.fewest = self.fewest.min(valid);
        self.lists.push(valid, unit);
    }

    #[inline]
    fn lost_page(&mut self, unit: u32, valid: u32) {
        self.lists.remove(unit);
        self.add(unit, valid);
    }

    fn fewest_valid(&mut self) -> Option<u32> {
        while self.fewest + 1 < self.lists.heads() && self.lists.first(self.fewest).is_none() {
            self.fewest += 1;
        }
        self.lists.first(self.fewest)
    }

    /// Each modification appends a unit to its bucket, so the first of each bucket is its oldest and best.
    fn most_benefit(&mut self, modified: &[u64], now: u64) -> Option<u32> {
        let first = self.fewest_valid()?;
        if self.fewest == 0 {
            return Some(first);
        }
        let unit_pages = self.lists.heads() - 1;
        let oldest = (self.fewest..=unit_pages).filter_map(|valid| Some((self.lists.first(valid)?, valid)));
        let benefits = oldest.map(|(unit, valid)| {
            // Time counts pages that the host writes. A unit modified at this instant still has some benefit.
            let age = now - modified[unit as usize] + 1;
            (benefit(age, f64::from(valid) / f64::from(unit_pages)), unit)
        });
        benefits.max_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, unit)| unit)
    }
}

fn benefit(age: u64, utilisation: f64) -> f64 {
    age as f64 * (1.0 - utilisation) / (2.0 * utilisation)
}

/// Doubly linked lists of units, each unit in at most one. A list is a ring through its own head node; heads follow the
/// units' nodes.
#[derive(Clone, Debug)]
pub(super) struct Lists {
    nodes: Vec<Node>,
    units: u32,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    previous: u32,
    next: u32,
}

impl Lists {
    fn new(units: u32, lists: u32) -> Lists {
        let apart = std::iter::repeat_n(Node { previous: NONE, next: NONE }, units as usize);
        let empty = (units..units + lists).map(|node| Node { previous: node, next: node });
        Lists { nodes: apart.chain(empty).collect(), units }
    }

    fn heads(&self) -> u32 {
        self.nodes.len() as u32 - self.units
    }

    #[inline]
    fn push(&mut self, list: u32, unit: u32) {
        let head = self.units + list;
        let last = std::mem::replace(&mut self.nodes[head as usize].previous, unit);
        self.nodes[last as usize].next = unit;
        self.nodes[unit as usize] = Node { previous: last, next: head };
    }

    #[inline]
    fn remove(&mut self, unit: u32) {
        let Node { previous, next } = self.nodes[unit as usize];
        self.nodes[previous as usize].next = next;
        self.nodes[next as usize].previous = previous;
    }

    fn first(&self, list: u32) -> Option<u32> {
        let first = self.nodes[(self.units + list) as usize].next;
        (first < self.units).then_some(first)
    }

    fn iter(&self, list: u32) -> impl Iterator<Item = u32> {
        std::iter::successors(self.first(list), |unit| {
            let next = self.nodes[*unit as usize].next;
            (next < self.units).then_some(next)
        })
    }
}

/// Units to draw at random.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    units: Vec<u32>,
    /// The index of each unit in `units`.
    positions: Vec<u32>,
    choices: u32,
    random: Xoshiro256PlusPlus,
}

impl Sample {
    fn new(units: u32, choices: u32, seed: u64) -> Sample {
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        Sample { units: Vec::new(), positions: vec![NONE; units as usize], choices, random }
    }

    fn add(&mut self, unit: u32) {
        self.positions[unit as usize] = self.units.len() as u32;
        self.units.push(unit);
    }

    fn remove(&mut self, unit: u32) {
        let position = std::mem::replace(&mut self.positions[unit as usize], NONE);
        self.units.swap_remove(position as usize);
        if let Some(moved) = self.units.get(position as usize) {
            self.positions[*moved as usize] = position;
        }
    }

    fn choose(&mut self, valid: &[u32]) -> Option<u32> {
        if self.units.is_empty() {
            return None;
        }
        let Sample { units, random, .. } = self;
        let drawn = (0..self.choices).map(|_| units[random.random_range(0..units.len())]);
        drawn.min_by_key(|unit| valid[*unit as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn victims_are_read_and_written() {
        for text in ["greedy", "d-choices:d=4", "fifo", "cost-benefit"] {
            assert_eq!(Victim::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Victim::parse("d-choices").unwrap(), Victim::Choices(10));
        let refused = |text| Victim::parse(text).unwrap_err().to_string();
        assert_eq!(
            refused("gredy"),
            "unknown choice of victims 'gredy' (did you mean 'greedy'?); expected one of: greedy, d-choices, fifo, \
             cost-benefit"
        );
        assert_eq!(refused("fifo:d=4"), "fifo has no option 'd'; it has none");
        assert_eq!(refused("d-choices:d=0"), "d-choices: d: found '0', expected a whole number from 1 to 1000000");
    }

    /// Compares the choice with the best of all units, while units lose pages at random and victims are refilled.
    fn compare_with_all_units(victim: Victim, best: impl Fn(&[u32], &[u64], u64) -> Vec<u32>) {
        let (units, unit_pages) = (20, 8);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
        let mut candidates = Candidates::new(victim, units, unit_pages, 1);
        let mut valid = vec![unit_pages; units as usize];
        let mut modified = vec![0; units as usize];
        (0..units).for_each(|unit| candidates.add(unit, unit_pages, 0));
        for now in 1..20_000 {
            let unit = random.random_range(0..units);
            if valid[unit as usize] > 0 {
                valid[unit as usize] -= 1;
                modified[unit as usize] = now;
                candidates.lost_page(unit, valid[unit as usize], now);
            }
            if random.random_bool(0.15) {
                let chosen = candidates.choose(&valid, now).unwrap();
                assert!(best(&valid, &modified, now).contains(&chosen), "{victim} chose {chosen} at {now}");
                candidates.remove(chosen);
                (valid[chosen as usize], modified[chosen as usize]) = (unit_pages, now);
                candidates.add(chosen, unit_pages, now);
            }
            candidates.check(&vec![true; units as usize], &valid);
        }
    }

    fn with_the_most<T: PartialOrd + Copy>(of_unit: impl Fn(usize) -> T, units: usize) -> Vec<u32> {
        let beaten = |unit: &usize| (0..units).any(|other| of_unit(other) > of_unit(*unit));
        (0..units).filter(|unit| !beaten(unit)).map(|unit| unit as u32).collect()
    }

    #[test]
    fn greedy_takes_the_fewest_valid_pages_of_all_units_and_the_one_that_waited_longest() {
        compare_with_all_units(Victim::Greedy, |valid, modified, now| {
            with_the_most(|unit| (8 - valid[unit], now - modified[unit]), valid.len())
        });
    }

    #[test]
    fn cost_benefit_takes_the_most_benefit_of_all_units() {
        compare_with_all_units(Victim::CostBenefit, |valid, modified, now| {
            // A unit without valid pages costs nothing: its benefit is infinite. With v of 8 pages valid, age * (1 - v
            // / 8) / (2 v / 8) is age * (8 - v) / 2v.
            let age = |unit: usize| (now - modified[unit] + 1) as f64;
            with_the_most(|unit| age(unit) * f64::from(8 - valid[unit]) / f64::from(2 * valid[unit]), valid.len())
        });
    }

    #[test]
    fn the_best_of_very_many_choices_is_the_best_of_all_units() {
        compare_with_all_units(Victim::Choices(2000), |valid, _, _| with_the_most(|unit| 8 - valid[unit], valid.len()));
    }

    #[test]
    fn fifo_takes_the_unit_that_was_filled_first() {
        let mut candidates = Candidates::new(Victim::Fifo, 4, 8, 1);
        for unit in [2, 0, 3] {
            candidates.add(unit, 8, 0);
        }
        candidates.lost_page(0, 1, 1);
        let mut taken = Vec::new();
        while let Some(unit) = candidates.choose(&[1, 0, 8, 8], 2) {
            candidates.remove(unit);
            taken.push(unit);
        }
        assert_eq!(taken, [2, 0, 3]);
    }

    #[test]
    fn a_random_unit_is_any_of_them_equally_often() {
        let mut candidates = Candidates::new(Victim::Choices(1), 5, 8, 1);
        for unit in [0, 4, 2, 3] {
            candidates.add(unit, 8, 0);
        }
        candidates.remove(4);
        let mut times = [0; 5];
        for _ in 0..30_000 {
            times[candidates.choose(&[0; 5], 0).unwrap() as usize] += 1;
        }
        // 10,000 each; the standard deviation is 82.
        assert!([0, 2, 3].iter().all(|unit| (9_600..10_400).contains(&times[*unit as usize])), "{times:?}");
        assert_eq!((times[1], times[4]), (0, 0));
    }
}
