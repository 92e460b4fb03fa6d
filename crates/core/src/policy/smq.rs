//! SMQ, the stochastic multi-queue of Linux' dm-cache. A queue of recently accessed blocks, cached or not, on 64 levels
//! decides which are hot enough for the cache. The cache has 64 levels as well.
//!
//! Source: the Linux kernel, `drivers/md/dm-cache-policy-smq.c`, Linux 4.2 to 4.11.
//!
//! An accessed block trades places with the first of a level above. Periodically each level is refilled to its target
//! number of blocks, from the head of the next level or to it. A block enters the cache if its level in the hotspot
//! queue reaches a threshold. The threshold is low while the cache has room; otherwise it depends on how well both
//! queues predict accesses.
//!
//! The victim is the first old block of the lowest level that has one. Sentinels separate old blocks from recent
//! arrivals: every minute the older one moves to the end of each level.
//!
//! Departures from its code:
//! - A cache block of dm-cache has at least 32 KiB; here it is one block of 4 KiB. A hotspot block is also one block,
//!   as in the code for a small disk, not 16 cache blocks. A policy knows the names of blocks but not their neighbours.
//!   To cover as much of the disk, the hotspot queue has by default 16 times as many blocks as the code's: `hotspots`.
//!   With `hotspots=25%` it has the same number.
//! - Its periods of 1, 10 and 60 seconds are counted in accesses: `rate`. Each access is a tick, as with one request in
//!   flight in the code.
//! - A policy does not know which blocks are dirty: all are on the queue of clean ones. Linux writes old dirty blocks
//!   back, and does not evict them before.
//! - No promotion fails for lack of bandwidth. Since Linux 4.12 blocks are also demoted in the background, to keep a
//!   quarter of an idle cache free.

mod levels;

use levels::{LEVELS, Queue};

use super::{Info, Outcome, Policy, of_blocks};
use crate::access::{Access, Op};
use crate::blocks::{Blocks, List, NodeId};
use crate::index::Index;
use crate::options::{Kind, Options, Parameter};

/// SMQ's row in the table of policies.
pub static INFO: Info = Info {
    name: "smq",
    title: "Stochastic multi-queue of dm-cache",
    source: "Linux kernel, drivers/md/dm-cache-policy-smq.c, Linux 4.2 to 4.11",
    parameters: &[
        Parameter::of("hotspots", Kind::Number(0.0, 1000.0), "400%").means(
            "blocks of the hotspot queue, as a share of the cache size, at least 1024. 400% covers as \
                 much as dm-cache's, which has a quarter of it, each of 16 cache blocks",
        ),
        Parameter::of("rate", Kind::Count(1, 1_000_000_000), "1000")
            .means("accesses that count as a second of its periods of 1, 10 and 60 s"),
    ],
    offline: false,
};

/// Cached blocks, most recently used first. The order decides nothing here.
const CACHED: List = List(0);
/// Blocks only on the hotspot queue.
const REMEMBERED: List = List(1);

/// Minimum length of the hotspot queue.
const HOTSPOTS_MIN: usize = 1024;
/// The lowest level on which an access counts as a hit in the assessment of a queue.
const HIT_LEVEL: u8 = LEVELS / 4 * 3;
/// The top levels of the hotspot queue, which have fewer blocks.
const TOP_LEVELS: u8 = 8;
/// The number of top levels that promote to a full cache, indexed by hits in sixteenths of the accesses.
const PROMOTE_LEVELS: [u8; 17] = [1, 1, 1, 2, 4, 6, 7, 8, 7, 6, 4, 4, 3, 3, 2, 2, 1];

const CACHE_PERIOD_S: u64 = 10;
const DEMOTE_PERIOD_S: u64 = 60;

/// How well a queue predicts accesses.
#[derive(Clone, Copy, Debug, Default)]
struct Stats {
    hits: u32,
    misses: u32,
}

impl Stats {
    /// Counts an access to a block on `level`; `None` means not in the queue.
    #[inline]
    fn note(&mut self, level: Option<u8>) {
        if level.is_some_and(|level| level >= HIT_LEVEL) {
            self.hits += 1;
        } else {
            self.misses += 1;
        }
    }

    /// Returns the hits per this many accesses, rounded down.
    #[inline]
    fn hits_in(&self, accesses: u64) -> u64 {
        (u64::from(self.hits) * accesses).checked_div(u64::from(self.hits) + u64::from(self.misses)).unwrap_or(0)
    }

    /// Returns the divisor that discounts a poor queue (hits below 1/16) or a fair one (below 1/8).
    #[inline]
    fn divisor(&self) -> u8 {
        match self.hits_in(256) {
            0..16 => 4,
            16..32 => 2,
            _ => 1,
        }
    }
}

/// Names of the entries of a queue, by number; number 0 is none.
#[derive(Clone, Debug)]
struct Numbers<K> {
    keys: Vec<K>,
    free: Vec<u32>,
    max: usize,
}

impl<K: Default> Numbers<K> {
    fn new(max: usize) -> Self {
        Numbers { keys: vec![K::default()], free: vec![], max }
    }

    #[inline]
    fn has_free(&self) -> bool {
        self.keys.len() <= self.max || !self.free.is_empty()
    }

    /// Allocates a number for `key`, if one is free.
    #[inline]
    fn take(&mut self, key: K) -> Option<u32> {
        if let Some(number) = self.free.pop() {
            self.keys[number as usize] = key;
            return Some(number);
        }
        (self.keys.len() <= self.max).then(|| {
            self.keys.push(key);
            self.keys.len() as u32 - 1
        })
    }
}

/// The numbers of a block's entries in both queues.
#[derive(Clone, Copy, Debug, Default, bytemuck::Zeroable)]
struct Entries {
    cache: u32,
    hotspot: u32,
}

/// A cache on levels, and a queue of hotspots on levels that decides about admission.
#[derive(Debug)]
pub struct Smq<I: Index> {
    c: usize,
    hotspots_max: usize,
    rate: u64,
    /// Accesses so far.
    now: u64,
    /// The ends of the periods.
    hotspot_period: u64,
    cache_period: u64,
    demote_period: u64,
    /// The zone whose sentinel moves to the end next.
    sentinel: usize,
    cache: Queue,
    hotspots: Queue,
    cache_stats: Stats,
    hotspot_stats: Stats,
    level_jump: u8,
    /// Entries of the cache that were hit in this period.
    hit: Vec<bool>,
    of_cache: Numbers<I::Key>,
    of_hotspots: Numbers<I::Key>,
    /// True once the cache has been full, which ends the filling.
    filled: bool,
    blocks: Blocks<I, Entries>,
}

impl<I: Index> Smq<I> {
    /// Creates an empty cache of `capacity` blocks.
    pub fn new(index: I, capacity: usize, options: &Options) -> Self {
        let hotspots_max = ((options.number("hotspots") * capacity as f64) as usize).max(HOTSPOTS_MIN);
        let in_top_levels = (hotspots_max / usize::from(LEVELS)).min(capacity) as u32;
        let rate = options.count("rate");
        Smq {
            c: capacity,
            hotspots_max,
            rate,
            now: 0,
            hotspot_period: 0,
            cache_period: 0,
            demote_period: DEMOTE_PERIOD_S * rate,
            sentinel: 1,
            cache: Queue::new(3),
            hotspots: Queue::new(1).with_top_levels(TOP_LEVELS, in_top_levels),
            cache_stats: Stats::default(),
            hotspot_stats: Stats::default(),
            level_jump: 1,
            hit: vec![false],
            of_cache: Numbers::new(capacity),
            of_hotspots: Numbers::new(hotspots_max),
            filled: false,
            blocks: Blocks::new(index, 1, 1),
        }
    }

    /// True while the cache is filling.
    #[inline]
    fn has_room(&self) -> bool {
        !self.filled && self.of_cache.has_free()
    }

    /// Ends the periods that are over.
    #[inline]
    fn end_periods(&mut self) {
        if self.now > self.demote_period {
            self.cache.move_sentinels(self.sentinel);
            self.demote_period = self.now + DEMOTE_PERIOD_S * self.rate;
            self.sentinel = 0;
        }
        if self.now > self.hotspot_period {
            self.level_jump = self.hotspot_stats.divisor();
            self.hotspots.redistribute();
            self.hotspot_stats = Stats::default();
            self.hotspot_period = self.now + self.rate;
        }
        if self.now > self.cache_period {
            self.hit.fill(false);
            self.cache.redistribute();
            self.cache_stats = Stats::default();
            self.cache_period = self.now + CACHE_PERIOD_S * self.rate;
        }
    }

    /// Returns the lowest level of the hotspot queue from which a read block is promoted.
    #[inline]
    fn promote_level(&self) -> u8 {
        let levels = if self.has_room() { LEVELS / 2 } else { PROMOTE_LEVELS[self.cache_stats.hits_in(16) as usize] };
        LEVELS - levels / self.hotspot_stats.divisor()
    }

    /// Records an access to `block` in the hotspot queue, and returns its level there.
    #[inline]
    fn note_hotspot(&mut self, block: I::Key) -> u8 {
        let known = self.blocks.find(block).map(|node| self.blocks.data(node).hotspot).filter(|&entry| entry != 0);
        if let Some(entry) = known {
            self.hotspot_stats.note(Some(self.hotspots.level(entry)));
            self.hotspots.requeue(entry, 0, self.level_jump);
            return self.hotspots.level(entry);
        }
        self.hotspot_stats.note(None);
        let (entry, level) = match self.of_hotspots.take(block) {
            Some(entry) => (entry, 0),
            None => self.replace_hotspot(block),
        };
        self.hotspots.push(entry, level);
        match self.blocks.find(block) {
            Some(node) => self.blocks.data_mut(node).hotspot = entry,
            None => drop(self.blocks.insert_front(REMEMBERED, block, Entries { cache: 0, hotspot: entry })),
        }
        level
    }

    /// Gives `block` the entry and the level of the head of the lowest level.
    #[inline]
    fn replace_hotspot(&mut self, block: I::Key) -> (u32, u8) {
        let entry = self.hotspots.head_from(0).expect("a full queue has a head");
        let level = self.hotspots.remove(entry);
        let replaced = std::mem::replace(&mut self.of_hotspots.keys[entry as usize], block);
        if let Some(node) = self.blocks.find(replaced) {
            self.blocks.data_mut(node).hotspot = 0;
            self.drop_if_unused(node);
        }
        (entry, level)
    }

    /// Forgets a block that is on neither queue.
    #[inline]
    fn drop_if_unused(&mut self, node: NodeId) {
        let Entries { cache, hotspot } = *self.blocks.data(node);
        if (cache, hotspot) == (0, 0) {
            self.blocks.remove(node);
        } else if cache == 0 {
            self.blocks.move_front(node, REMEMBERED);
        }
    }

    /// Returns `Some` if a missed block is admitted; true if on trial, before the sentinels.
    #[inline]
    fn promotes(&self, op: Op, hotspot_level: u8, read_level: u8) -> Option<bool> {
        match op {
            // A write provides the whole block.
            Op::Write if self.has_room() => Some(true),
            Op::Write => (hotspot_level >= read_level + 2).then_some(false),
            Op::Read => (hotspot_level >= read_level).then_some(false),
        }
    }

    /// Makes room if there is none; fails if no block is old enough.
    #[inline]
    fn make_room(&mut self) -> Result<Option<I::Key>, ()> {
        if self.of_cache.has_free() {
            return Ok(None);
        }
        let oldest = self.cache.oldest().ok_or(())?;
        let key = self.of_cache.keys[oldest as usize];
        self.take_out(key);
        Ok(Some(key))
    }

    /// Evicts a block, which stays a hotspot. Returns true if it was cached.
    fn take_out(&mut self, block: I::Key) -> bool {
        let Some(node) = self.blocks.find_cached(block) else {
            return false;
        };
        let entry = std::mem::take(&mut self.blocks.data_mut(node).cache);
        self.cache.remove(entry);
        self.of_cache.free.push(entry);
        self.drop_if_unused(node);
        true
    }

    /// Inserts a block; an entry must be free.
    #[inline]
    fn insert(&mut self, block: I::Key, level: u8, zone: usize) {
        let entry = self.of_cache.take(block).expect("there is room");
        if self.hit.len() <= entry as usize {
            self.hit.resize(entry as usize + 1, false);
        }
        self.cache.push_in_zone(entry, level, zone);
        let node = match self.blocks.find(block) {
            Some(node) => node,
            None => self.blocks.insert_front(CACHED, block, Entries::default()),
        };
        self.blocks.data_mut(node).cache = entry;
        self.blocks.move_front(node, CACHED);
    }
}

impl<I: Index> Policy for Smq<I> {
    of_blocks!(I);

    #[inline]
    fn access(&mut self, access: Access<I::Key>) -> Outcome<I::Key> {
        self.now += 1;
        // Uses the figures of the period that may end now.
        let read_level = self.promote_level();
        self.end_periods();
        let hotspot_level = self.note_hotspot(access.block);
        if let Some(node) = self.blocks.find_cached(access.block) {
            let entry = self.blocks.data(node).cache;
            self.cache_stats.note(Some(self.cache.level(entry)));
            self.blocks.move_front(node, CACHED);
            if !std::mem::replace(&mut self.hit[entry as usize], true) {
                self.cache.requeue(entry, self.sentinel, 1);
            }
            return Outcome::Hit;
        }
        self.cache_stats.note(None);
        let Some(on_trial) = self.promotes(access.op, hotspot_level, read_level) else {
            return Outcome::Bypass;
        };
        let Ok(evicted) = self.make_room() else {
            return Outcome::Bypass;
        };
        self.insert(access.block, 0, if on_trial { self.sentinel } else { self.cache.last_zone() });
        Outcome::Admit { evicted }
    }

    fn remove(&mut self, block: I::Key) -> bool {
        let removed = self.take_out(block);
        if let Some(node) = self.blocks.find(block) {
            let entry = self.blocks.data(node).hotspot;
            self.hotspots.remove(entry);
            self.of_hotspots.free.push(entry);
            self.blocks.remove(node);
        }
        removed
    }

    fn refuse(&mut self, block: I::Key) {
        self.take_out(block);
    }

    fn space_is_full(&mut self) {
        self.filled = true;
    }

    /// Inserts the block on level 1, before the sentinel, as the kernel does for a block of unknown level.
    fn warm(&mut self, block: I::Key) -> Outcome<I::Key> {
        if self.contains(block) {
            return Outcome::Hit;
        }
        if !self.of_cache.has_free() {
            return Outcome::Bypass;
        }
        self.insert(block, 1, self.sentinel);
        Outcome::Admit { evicted: None }
    }

    fn check(&self) {
        self.cache.check();
        self.hotspots.check();
        assert_eq!(self.cache.len(), self.blocks.cached_len());
        assert!(self.blocks.cached_len() <= self.c);
        assert!(self.hotspots.len() <= self.hotspots_max, "{} hotspots", self.hotspots.len());
        for (list, is_cached) in [(CACHED, true), (REMEMBERED, false)] {
            for node in self.blocks.keys(list).filter_map(|key| self.blocks.find(key)) {
                let (key, Entries { cache, hotspot }) = (self.blocks.key(node), *self.blocks.data(node));
                assert_eq!(cache != 0, is_cached, "{key:?}");
                assert!(cache == 0 || self.of_cache.keys[cache as usize] == key, "{key:?}");
                assert!(hotspot == 0 || self.of_hotspots.keys[hotspot as usize] == key, "{key:?}");
                assert!((cache, hotspot) != (0, 0), "{key:?} is on no queue");
            }
        }
        self.blocks.check(self.c + self.hotspots_max);
    }
}

#[cfg(test)]
mod tests {
    use super::levels::draw;
    use super::*;
    use crate::index::Dense;

    #[test]
    fn the_threshold_follows_the_worth_of_the_queues() {
        let mut smq = Smq::new(Dense::new(10), 1, &Options::parse("smq", INFO.parameters, "").unwrap());
        let stats = |hits, misses| Stats { hits, misses };
        // Room: half of the levels; with a poor, a fair and a good hotspot queue.
        for (hotspots, level) in [((0, 0), 56), ((15, 241), 56), ((16, 240), 48), ((31, 225), 48), ((32, 224), 32)] {
            smq.hotspot_stats = stats(hotspots.0, hotspots.1);
            assert_eq!(smq.promote_level(), level, "{hotspots:?}");
        }
        smq.filled = true;
        // Full: 1 level from the top without hits or with hits only, 8 with hits in 7/16 of the accesses.
        for (cache, level) in [((0, 0), 63), ((0, 5), 63), ((7, 9), 56), ((8, 8), 57), ((16, 0), 63)] {
            smq.cache_stats = stats(cache.0, cache.1);
            assert_eq!(smq.promote_level(), level, "{cache:?}");
        }
        smq.hotspot_stats = stats(0, 1);
        assert_eq!(smq.promote_level(), 64, "nothing is promoted");
    }

    /// One block, and a second of 100 accesses. A write fills the cache at once, before the second sentinel, and stays
    /// because it is recent. After a minute, with access 6,001, the second sentinel moves to the end; after two, with
    /// access 12,002, the first: block 1 is old. Block 2 is on level 56 of the hotspot queue after each second, the
    /// first of the top levels, and climbs from there by accesses.
    #[test]
    fn a_block_comes_in_when_it_is_hot_and_another_is_old() {
        let mut smq = Smq::new(Dense::new(10), 1, &Options::parse("smq", INFO.parameters, "rate=100").unwrap());
        assert_eq!(smq.access(Access::write(1)), Outcome::Admit { evicted: None });
        assert_eq!(draw(&smq.cache), "0: | 1 |");
        for access in 2..12_002 {
            assert_eq!(smq.access(Access::read(2)), Outcome::Bypass, "access {access}");
        }
        assert_eq!(draw(&smq.cache), "0: | 1 |");
        assert_eq!(smq.access(Access::read(2)), Outcome::Admit { evicted: Some(1) });
        assert_eq!(
            (draw(&smq.cache).as_str(), smq.of_cache.keys[1]),
            ("0: | | 1", 2),
            "entry 1 is that of block 2 now"
        );
        smq.check();
    }

    /// Two hotspots, which trade places; the third block takes the place of the head of the lowest level, and its
    /// level.
    #[test]
    fn a_full_hotspot_queue_forgets_its_head() {
        let mut smq = Smq::new(Dense::new(10), 1, &Options::parse("smq", INFO.parameters, "").unwrap());
        smq.of_hotspots = Numbers::new(2);
        smq.access(Access::write(1));
        smq.access(Access::read(2));
        assert_eq!(draw(&smq.hotspots), "0: 1 2");
        smq.access(Access::read(1));
        assert_eq!(draw(&smq.hotspots), "0: 2, 4: 1", "a poor queue: up by four");
        smq.access(Access::read(2));
        assert_eq!(draw(&smq.hotspots), "0: 1, 4: 2");
        smq.access(Access::read(3));
        assert_eq!(draw(&smq.hotspots), "0: 1, 4: 2");
        assert_eq!((smq.of_hotspots.keys[1], smq.of_hotspots.keys[2]), (3, 2));
        assert_eq!(smq.access(Access::read(1)), Outcome::Hit, "1 is cached, and no hotspot any more");
        assert_eq!((smq.of_hotspots.keys[1], smq.of_hotspots.keys[2]), (1, 2));
        assert_eq!(smq.blocks.find(3), None);
        smq.check();
    }
}
