//! Which erase unit a conventional SSD collects next.
//!
//! Greedy and FIFO are as in Desnoyers, Analytic Modeling of SSD Write Performance (SYSTOR 2012), d-choices as in Van Houdt, A Mean Field
//! Model for a Class of Garbage Collection Algorithms in Flash-based Solid State Drives (SIGMETRICS 2013), cost-benefit as in Kawaguchi,
//! Nishioka and Motoda, A Flash-Memory Based File System (USENIX 1995).

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::NONE;

/// How the unit to collect is chosen among those that are full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Victim {
    /// The fewest valid pages; of equals, the one that lost a page the longest ago.
    #[default]
    Greedy,
    /// The fewest valid pages among so many units drawn at random, with replacement.
    Choices(u32),
    /// The unit that was filled first.
    Fifo,
    /// The most of `age * (1 - u) / 2u`, where u is the share of valid pages and the age counts from when the unit was filled or
    /// last lost a page, in pages that the host wrote.
    CostBenefit,
}

impl std::str::FromStr for Victim {
    type Err = String;

    /// Reads `greedy`, `fifo`, `cost-benefit`, or `d-choices:d=10`.
    fn from_str(text: &str) -> Result<Victim, String> {
        let choices = text.strip_prefix("d-choices:d=").and_then(|d| d.parse().ok()).filter(|&d| d > 0);
        match (text, choices) {
            ("greedy", _) => Ok(Victim::Greedy),
            ("fifo", _) => Ok(Victim::Fifo),
            ("cost-benefit", _) => Ok(Victim::CostBenefit),
            (_, Some(d)) => Ok(Victim::Choices(d)),
            _ => Err(format!("found '{text}', expected greedy, fifo, cost-benefit or d-choices:d=10")),
        }
    }
}

/// The full units, in the order that a choice of victims needs.
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

    /// A unit with this many valid pages was filled.
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

    /// A page of the unit became invalid, which leaves it `valid`.
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

    /// Takes a unit out.
    pub fn remove(&mut self, unit: u32) {
        match self {
            Candidates::Greedy(buckets) | Candidates::CostBenefit { buckets, .. } => buckets.lists.remove(unit),
            Candidates::Choices(sample) => sample.remove(unit),
            Candidates::Fifo(lists) => lists.remove(unit),
        }
    }

    /// The unit to collect; none if no unit is full.
    pub fn choose(&mut self, valid: &[u32], now: u64) -> Option<u32> {
        match self {
            Candidates::Greedy(buckets) => buckets.fewest_valid(),
            Candidates::Choices(sample) => sample.choose(valid),
            Candidates::Fifo(lists) => lists.first(0),
            Candidates::CostBenefit { buckets, modified } => buckets.most_benefit(modified, now),
        }
    }

    /// Asserts that a unit is here if and only if it is full, and in its place.
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
        assert_eq!(listed, full, "all full units are candidates, and they alone");
    }
}

/// Units by the number of their valid pages; those with equally many in the order in which they came to have them.
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

    /// A unit is appended to a bucket when it is modified, so that the first of each bucket is its oldest and the best of it.
    fn most_benefit(&mut self, modified: &[u64], now: u64) -> Option<u32> {
        let first = self.fewest_valid()?;
        if self.fewest == 0 {
            return Some(first);
        }
        let unit_pages = self.lists.heads() - 1;
        let benefit = |unit: u32, valid: u32| {
            // Every page that the host writes is an instant; one that was modified in this instant is not without benefit.
            let age = (now - modified[unit as usize] + 1) as f64;
            let utilisation = f64::from(valid) / f64::from(unit_pages);
            age * (1.0 - utilisation) / (2.0 * utilisation)
        };
        let oldest = (self.fewest..=unit_pages).filter_map(|valid| Some((self.lists.first(valid)?, valid)));
        let best =
            oldest.map(|(unit, valid)| (benefit(unit, valid), unit)).max_by(|one, other| one.0.total_cmp(&other.0));
        best.map(|(_, unit)| unit)
    }
}

/// Doubly linked lists of units, each unit in one at most: rings through a node of the list itself, after those of the units.
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

/// Units to draw from.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    units: Vec<u32>,
    /// Where each unit stands in `units`.
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
