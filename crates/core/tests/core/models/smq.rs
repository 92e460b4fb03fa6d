use flashwise_core::access::Op;

use super::{Access, Model, Outcome};

/// An element of a level, head first.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Item {
    Block(u32),
    Sentinel(bool),
}
use Item::{Block, Sentinel};

type Levels = Vec<Vec<Item>>;

/// The kernel's queues with sentinels as elements, and its cache blocks by number.
pub struct Smq {
    hotspots_max: usize,
    rate: u64,
    now: u64,
    next_hotspot: u64,
    next_cache: u64,
    next_demote: u64,
    current: bool,
    clean: Levels,
    hotspot: Levels,
    /// Hits and misses.
    cache_stats: (u64, u64),
    hotspot_stats: (u64, u64),
    jump: usize,
    /// The block in each place of the cache, and a flag if it was hit in this period.
    places: Vec<(Option<u32>, bool)>,
    /// The free places, and the number of free hotspots; the last freed is used first.
    free: Vec<usize>,
}

fn find(levels: &Levels, block: u32) -> Option<usize> {
    levels.iter().position(|level| level.contains(&Block(block)))
}

fn delete(levels: &mut Levels, item: Item) {
    levels.iter_mut().for_each(|level| level.retain(|other| *other != item));
}

fn blocks(level: &[Item]) -> Vec<u32> {
    level.iter().filter_map(|item| if let Block(block) = item { Some(*block) } else { None }).collect()
}

/// Inserts before the sentinel, if given.
fn insert(level: &mut Vec<Item>, item: Item, before: Option<bool>) {
    let at = before.and_then(|which| level.iter().position(|other| *other == Sentinel(which))).unwrap_or(level.len());
    level.insert(at, item);
}

fn requeue(levels: &mut Levels, block: u32, jump: usize, before: Option<bool>) {
    let level = find(levels, block).expect("it is queued");
    let above = 63.min(level + jump);
    delete(levels, Block(block));
    if above != level
        && let Some(head) = blocks(&levels[above]).first().copied()
    {
        delete(levels, Block(head));
        insert(&mut levels[level], Block(head), before);
    }
    levels[above].push(Block(block));
}

fn redistribute(levels: &mut Levels, top_levels: usize, in_top: usize) {
    let all: usize = levels.iter().map(|level| blocks(level).len()).sum();
    let share = |of: usize, levels: usize, at: usize| of / levels + usize::from(at < of % levels);
    let low = 64 - top_levels;
    for level in 0..63 {
        let target = if level < low {
            share(all.saturating_sub(in_top), low, level)
        } else {
            share(in_top, top_levels, level - low)
        };
        while blocks(&levels[level]).len() < target {
            let Some(head) = levels[level + 1..].iter().find_map(|above| blocks(above).first().copied()) else { break };
            delete(levels, Block(head));
            levels[level].push(Block(head));
        }
        while blocks(&levels[level]).len() > target {
            let last = *blocks(&levels[level]).last().expect("there are some");
            delete(levels, Block(last));
            levels[level + 1].insert(0, Block(last));
        }
    }
}

fn confidence(stats: (u64, u64), of: u64) -> u64 {
    if stats == (0, 0) { 0 } else { stats.0 * of / (stats.0 + stats.1) }
}

fn note(stats: &mut (u64, u64), level: Option<usize>) {
    if level >= Some(48) {
        stats.0 += 1;
    } else {
        stats.1 += 1;
    }
}

impl Smq {
    pub fn new(c: usize, hotspots: f64, rate: u64) -> Self {
        Smq {
            hotspots_max: 1024.max((hotspots * c as f64) as usize),
            rate,
            now: 0,
            next_hotspot: 0,
            next_cache: 0,
            next_demote: 60 * rate,
            current: true,
            clean: vec![vec![Sentinel(false), Sentinel(true)]; 64],
            hotspot: vec![vec![]; 64],
            cache_stats: (0, 0),
            hotspot_stats: (0, 0),
            jump: 1,
            places: vec![(None, false); c],
            free: (0..c).collect(),
        }
    }

    fn update_hotspot(&mut self, block: u32) -> usize {
        let level = find(&self.hotspot, block);
        note(&mut self.hotspot_stats, level);
        if level.is_some() {
            requeue(&mut self.hotspot, block, self.jump, None);
        } else {
            let queued: Vec<u32> = self.hotspot.iter().flat_map(|level| blocks(level)).collect();
            let mut level = 0;
            if queued.len() == self.hotspots_max {
                level = find(&self.hotspot, queued[0]).expect("it is queued");
                delete(&mut self.hotspot, Block(queued[0]));
            }
            self.hotspot[level].push(Block(block));
        }
        find(&self.hotspot, block).expect("it is queued")
    }

    fn end_periods(&mut self) {
        if self.now > self.next_demote {
            let sentinel = Sentinel(self.current);
            delete(&mut self.clean, sentinel);
            self.clean.iter_mut().for_each(|level| level.push(sentinel));
            self.current = !self.current;
            self.next_demote = self.now + 60 * self.rate;
        }
        if self.now > self.next_hotspot {
            self.jump = match confidence(self.hotspot_stats, 256) {
                0..=15 => 4,
                16..=31 => 2,
                _ => 1,
            };
            redistribute(&mut self.hotspot, 8, (self.hotspots_max / 64).min(self.places.len()));
            self.hotspot_stats = (0, 0);
            self.next_hotspot = self.now + self.rate;
        }
        if self.now > self.next_cache {
            self.places.iter_mut().for_each(|(_, hit)| *hit = false);
            redistribute(&mut self.clean, 0, 0);
            self.cache_stats = (0, 0);
            self.next_cache = self.now + 10 * self.rate;
        }
    }

    fn threshold(&self) -> usize {
        let table = [1, 1, 1, 2, 4, 6, 7, 8, 7, 6, 4, 4, 3, 3, 2, 2, 1];
        let levels = if self.free.is_empty() { table[confidence(self.cache_stats, 16) as usize] } else { 32 };
        match confidence(self.hotspot_stats, 256) {
            0..=15 => levels / 4,
            16..=31 => levels / 2,
            _ => levels,
        }
    }

    fn place(&self, block: u32) -> Option<usize> {
        self.places.iter().position(|(held, _)| *held == Some(block))
    }

    fn take_out(&mut self, block: u32) -> bool {
        let Some(place) = self.place(block) else { return false };
        delete(&mut self.clean, Block(block));
        self.places[place].0 = None;
        self.free.push(place);
        true
    }
}

impl Model for Smq {
    fn access(&mut self, access: Access<u32>) -> Outcome<u32> {
        let block = access.block;
        self.now += 1;
        let read_level = 64 - self.threshold();
        self.end_periods();
        let level = self.update_hotspot(block);
        let cached = find(&self.clean, block);
        note(&mut self.cache_stats, cached);
        if let Some(place) = self.place(block) {
            if !self.places[place].1 {
                self.places[place].1 = true;
                requeue(&mut self.clean, block, 1, Some(self.current));
            }
            return Outcome::Hit;
        }
        let is_write = access.op == Op::Write;
        let on_trial = is_write && !self.free.is_empty();
        if !on_trial && level < read_level + if is_write { 2 } else { 0 } {
            return Outcome::Bypass;
        }
        let mut evicted = None;
        if self.free.is_empty() {
            let old = self.clean.iter().find_map(|level| match level[0] {
                Block(block) => Some(block),
                Sentinel(_) => None,
            });
            let Some(old) = old else { return Outcome::Bypass };
            self.take_out(old);
            evicted = Some(old);
        }
        let place = self.free.pop().expect("there is one");
        self.places[place].0 = Some(block);
        insert(&mut self.clean[0], Block(block), on_trial.then_some(self.current));
        Outcome::Admit { evicted }
    }

    fn remove(&mut self, block: u32) -> bool {
        delete(&mut self.hotspot, Block(block));
        self.take_out(block)
    }

    fn refuse(&mut self, block: u32) {
        self.take_out(block);
    }
}
