//! Pannier: containers in a segmented LRU. Containers that lost many blocks move to a queue by survival time, hot
//! blocks are copied forward, and writes are throttled.
//!
//! Source: Li, Shilane, Douglis, Wallace: Pannier: a container-based flash cache for compound objects. Middleware 2015;
//! as described in Cheng, Douglis, Shilane, et al.: Erasing Belady's limitations. USENIX ATC 2016, section 5.3. Written
//! without access to its authors' code.
//!
//! Blocks are collected in three containers in RAM: missed ones, copied ones, and overwritten ones, which are likely to
//! be overwritten again. So blocks that become worthless at about the same time are stored together.
//!
//! S2LRU*: sealed containers are in two LRU queues. Missed blocks enter the lower queue, the others the upper one. The
//! upper queue has a limited share of the containers, and passes its least recently used one down. A container with
//! enough hits moves to the head of the upper queue.
//!
//! The survival queue: a divergent container has lost many of its blocks. After its last hit it survives for a time
//! that is shorter the fewer are left. To make room, a container past its time is evicted, or else the least recently
//! used one of the lower queue. Its hit blocks are copied forward, and the others leave the cache.
//!
//! Departures from the paper, and choices beyond it:
//! - A container is divergent by the share of its pages with live blocks (`divergent`). Differences in read frequency
//!   are handled by copying hot blocks.
//! - Time is counted in sealed containers. The survival time is `survival` times the number of containers times the
//!   cube of the live share.
//! - For S2LRU* a container counts as hit once a share of its pages was (`moved`). With hundreds of blocks in a
//!   container, one hit is no evidence about the others.
//! - Hits of a block are counted up to 15, and halved when it is copied forward.
//! - If one container frees no room because most of its blocks are copied, more are evicted. From the third on, a
//!   copied block needs twice as many hits as in the previous one. So a cache of hot blocks is not copied over and
//!   over.
//! - An overwrite is a hit, and the new copy keeps the count.
//! - The throttle is off unless `epbpd` is given; see [`throttle`](super::throttle).
//! - Copying forward reads the blocks into RAM and resets their container at once.

use std::collections::VecDeque;

use super::throttle::Throttle;
use super::{ContainerOutcome, ContainerPolicy, Counts, Flash};
use crate::access::{Access, Op};
use crate::index::Index;
use crate::layout::open_units::OpenUnits;
use crate::layout::tournament::Tournament;
use crate::layout::units::Units;
use crate::lists::Lists;
use crate::options::{Kind, Options, Parameter};
use crate::policy::Info;
use crate::prefetch::prefetch;
use crate::step::{Cause, FlashStep};

/// Pannier's row in the table of container policies.
pub static INFO: Info = Info {
    name: "pannier",
    title: "Pannier: S2LRU* of containers with a survival queue and throttled writes",
    source: "Li, Shilane, Douglis, Wallace: Pannier: a container-based flash cache for compound objects. Middleware \
        2015",
    parameters: &[
        Parameter::of("copy", Kind::Count(1, HITS_MAX as u64), "1")
            .means("hits from which on a block is copied forward"),
        Parameter::of("upper", Kind::Number(0.0, 1.0), "50%").means("the upper queue's share of the containers"),
        Parameter::of("moved", Kind::Number(0.0, 1.0), "2%").means(
            "a container moves to the head of the upper queue when this share of its pages was hit since \
                 it last moved",
        ),
        Parameter::of("divergent", Kind::Number(0.0, 1.0), "75%")
            .means("a container with a smaller share of live pages is divergent and goes to the survival queue"),
        Parameter::of("survival", Kind::Number(0.0, f64::MAX), "2").means(
            "survival time of a divergent container, in turnovers of the cache, if all its pages are \
                 live. It decreases with the cube of the live share",
        ),
        Parameter::of("epbpd", Kind::Number(0.0, f64::MAX), "").means(
            "erasures per unit and day that the throttle allows on average; without it, writes are not throttled",
        ),
        Parameter::of("burst", Kind::Number(0.0, f64::MAX), "25%")
            .means("most credit of the throttle, as a share of the flash"),
    ],
    offline: false,
};

/// The queues of S2LRU*.
const LOWER: u8 = 0;
const UPPER: u8 = 1;

/// The containers in RAM, and the queue that each enters when it is sealed.
const MISSED: u32 = 0;
const COPIED: u32 = 1;
const OVERWRITTEN: u32 = 2;
const QUEUE_OF: [u8; 3] = [LOWER, UPPER, UPPER];

const HITS_MAX: u8 = 15;

#[derive(Clone, Copy, Debug, Default)]
struct Container {
    /// Hits since it was last moved.
    hits: u32,
    /// The time of its last hit, or of sealing.
    hit_at: u64,
}

/// Containers in a segmented LRU and a survival queue.
#[derive(Debug)]
pub struct Pannier<I: Index> {
    units: Units<I>,
    /// Containers in RAM, with the hits of each block.
    open: OpenUnits<I::Key, u8>,
    /// Hits of the block on each page.
    hits: Vec<u8>,
    /// Sealed containers, by their unit.
    containers: Vec<Container>,
    s2lru: Lists,
    /// Divergent containers, by the end of their survival time.
    survival: Tournament,
    /// Sealed containers so far.
    clock: u64,
    throttle: Throttle,
    copy: u8,
    upper_max: u32,
    /// Hits after which a container moves.
    moved: u32,
    /// Number of live blocks below which a container is divergent.
    divergent: f64,
    /// Survival time of a container with all blocks live.
    survival_time: f64,
    reserve_units: u32,
    /// Containers evicted since there was last room.
    evicted_for_room: u32,
    /// Blocks read for copying, with their hits.
    copies: VecDeque<(I::Key, u8)>,
    sealing: (Vec<I::Key>, Vec<(Cause, u8)>),
    counts: Counts,
}

impl<I: Index> Pannier<I> {
    /// Creates an empty cache.
    pub fn new(index: I, flash: Flash, options: &Options) -> Self {
        let Flash { units, unit_pages, reserve_units } = flash;
        let data_units = f64::from(units - reserve_units);
        let throttle = match options.text("epbpd") {
            "" => Throttle::off(),
            _ => Throttle::new(flash, options.number("epbpd"), options.number("burst")),
        };
        Pannier {
            units: Units::new(index, units, unit_pages),
            open: OpenUnits::new(QUEUE_OF.len() as u32, unit_pages),
            hits: vec![0; (units * unit_pages) as usize],
            containers: vec![Container::default(); units as usize],
            s2lru: Lists::new(2),
            survival: Tournament::new(units),
            clock: 0,
            throttle,
            copy: options.count("copy") as u8,
            upper_max: (options.number("upper") * data_units) as u32,
            moved: (options.number("moved") * f64::from(unit_pages)).ceil() as u32,
            divergent: options.number("divergent") * f64::from(unit_pages),
            survival_time: options.number("survival") * data_units,
            reserve_units,
            evicted_for_room: 0,
            copies: VecDeque::new(),
            sealing: Default::default(),
            counts: Counts::default(),
        }
    }

    /// Returns the end of the survival time of `unit`, if it is divergent.
    #[inline]
    fn survives_until(&self, unit: u32) -> u64 {
        let live = f64::from(self.units.live(unit));
        if live >= self.divergent {
            return Tournament::OUT;
        }
        let share = live / f64::from(self.units.unit_pages());
        self.containers[unit as usize].hit_at + (self.survival_time * share * share * share) as u64
    }

    /// Counts a hit of the block on `page`.
    #[inline]
    fn hit(&mut self, page: u32) {
        let hits = &mut self.hits[page as usize];
        *hits = (*hits + 1).min(HITS_MAX);
        let unit = self.units.unit_of(page);
        let container = &mut self.containers[unit as usize];
        container.hit_at = self.clock;
        container.hits += 1;
        if container.hits >= self.moved {
            container.hits = 0;
            self.s2lru.move_front(unit, UPPER);
            self.pass_down();
        }
        self.survival.set_key(unit, self.survives_until(unit));
    }

    #[inline]
    fn pass_down(&mut self) {
        if self.s2lru.len(UPPER) > self.upper_max {
            let least_recent = self.s2lru.back(UPPER).expect("the upper queue has a container");
            self.s2lru.move_front(least_recent, LOWER);
        }
    }

    /// Adds a block to a container in RAM.
    fn insert(&mut self, open: u32, block: I::Key, cause: Cause, hits: u8, steps: &mut Vec<FlashStep>) {
        if self.open.push(open, block, cause, hits) {
            self.seal(open, steps);
        }
    }

    fn seal(&mut self, open: u32, steps: &mut Vec<FlashStep>) {
        if self.units.free_units() == 0 {
            self.evict(steps);
        }
        let (blocks, kept) = &mut self.sealing;
        self.open.take(open, blocks, kept);
        let unit = self.units.seal(blocks, steps);
        let first = (unit * self.units.unit_pages()) as usize;
        for (page_hits, &(cause, hits)) in self.hits[first..].iter_mut().zip(kept.iter()) {
            *page_hits = hits;
            self.counts.flash_writes.count(cause);
        }
        self.clock += 1;
        self.containers[unit as usize] = Container { hits: 0, hit_at: self.clock };
        self.s2lru.push_front(QUEUE_OF[open as usize], unit);
        self.pass_down();
        self.survival.set_key(unit, self.survives_until(unit));
    }

    /// Returns the container to evict: one without live blocks, or the first past its survival time, or the least
    /// recently used.
    fn victim(&self) -> u32 {
        let emptiest = self.units.emptiest().expect("units that are not free are sealed");
        if self.units.live(emptiest) == 0 {
            return emptiest;
        }
        let outlived = self.survival.winner().filter(|&unit| self.survival.key(unit) <= self.clock);
        let least_recent = || self.s2lru.back(LOWER).or(self.s2lru.back(UPPER));
        outlived.or_else(least_recent).expect("sealed units are queued")
    }

    fn evict(&mut self, steps: &mut Vec<FlashStep>) {
        let unit = self.victim();
        let needed = self.copy.saturating_mul(1 << self.evicted_for_room.saturating_sub(1).min(7));
        self.evicted_for_room += 1;
        for (block, page) in self.units.live_blocks(unit) {
            let hits = self.hits[page as usize];
            if self.throttle.copies(hits, needed) {
                self.throttle.charge();
                self.copies.push_back((block, hits / 2));
                steps.push(FlashStep::Read { page });
            }
        }
        self.s2lru.remove(unit);
        self.survival.set_key(unit, Tournament::OUT);
        self.counts.units_reset += 1;
        self.counts.live_at_reset_blocks += u64::from(self.units.reset(unit, steps));
    }

    /// Writes the blocks read for copying, and evicts until only the reserve is free. From the third container on, a
    /// block is copied only with twice as many hits as in the previous one. So after a few containers all blocks leave
    /// the cache.
    fn settle(&mut self, steps: &mut Vec<FlashStep>) {
        loop {
            if let Some((block, hits)) = self.copies.pop_front() {
                self.insert(COPIED, block, Cause::CopyForward, hits, steps);
            } else if self.units.free_units() < self.reserve_units {
                self.evict(steps);
            } else {
                self.evicted_for_room = 0;
                return;
            }
        }
    }

    /// Makes the block on `page` dead.
    fn invalidate(&mut self, block: I::Key, page: u32) {
        self.units.invalidate(block);
        let unit = self.units.unit_of(page);
        self.survival.set_key(unit, self.survives_until(unit));
    }
}

impl<I: Index> ContainerPolicy for Pannier<I> {
    type Key = I::Key;

    #[inline]
    fn access(&mut self, access: Access<I::Key>, time_us: u64, steps: &mut Vec<FlashStep>) -> ContainerOutcome {
        let Access { block, op, .. } = access;
        self.throttle.set_time(time_us);
        if let Some(page) = self.units.page_of(block) {
            if op == Op::Read {
                steps.push(FlashStep::Read { page });
                self.hit(page);
            } else {
                let hits = (self.hits[page as usize] + 1).min(HITS_MAX);
                self.invalidate(block, page);
                self.throttle.charge();
                self.insert(OVERWRITTEN, block, Cause::Client, hits, steps);
                self.settle(steps);
            }
            return ContainerOutcome::Hit { in_ram: false };
        }
        if let Some(place) = self.open.find(block) {
            if op == Op::Write {
                self.open.overwrite(place);
            }
            let hits = self.open.data_mut(place);
            *hits = (*hits + 1).min(HITS_MAX);
            return ContainerOutcome::Hit { in_ram: true };
        }
        if op == Op::Read && !self.throttle.admits() {
            return ContainerOutcome::Bypass;
        }
        let cause = if op == Op::Write { Cause::Client } else { Cause::Admission };
        self.throttle.charge();
        self.insert(MISSED, block, cause, 0, steps);
        self.settle(steps);
        ContainerOutcome::Admit
    }

    fn remove(&mut self, block: I::Key) -> bool {
        if let Some(page) = self.units.page_of(block) {
            self.invalidate(block, page);
        } else if let Some(place) = self.open.find(block) {
            self.open.remove(place);
            self.throttle.refund();
        } else {
            return false;
        }
        true
    }

    fn contains(&self, block: I::Key) -> bool {
        self.units.page_of(block).is_some() || self.open.find(block).is_some()
    }

    fn page_of(&self, block: I::Key) -> Option<u32> {
        self.units.page_of(block)
    }

    fn len(&self) -> usize {
        self.units.len() + self.open.blocks()
    }

    fn ram_blocks_max(&self) -> usize {
        QUEUE_OF.len() * (self.units.unit_pages() as usize - 1)
    }

    fn counts(&self) -> Counts {
        self.counts
    }

    #[inline]
    fn prefetch(&self, soon: I::Key, later: I::Key) {
        if let Some(page) = self.units.page_of(soon) {
            prefetch(&self.hits, page as usize);
        }
        self.units.prefetch(later);
    }

    fn check(&self) {
        self.units.check();
        self.open.check();
        self.s2lru.check();
        assert!(self.copies.is_empty(), "all that was read for copying is copied");
        assert!(self.units.free_units() >= self.reserve_units, "the reserve is free");
        assert!(self.s2lru.len(UPPER) <= self.upper_max, "the upper queue has its share");
        for unit in 0..self.units.units() {
            let is_sealed = self.units.is_sealed(unit);
            assert_eq!(self.s2lru.list_of(unit).is_some(), is_sealed, "sealed containers are queued");
            let survives_until = if is_sealed { self.survives_until(unit) } else { Tournament::OUT };
            assert_eq!(self.survival.key(unit), survives_until, "container {unit} survives so long");
            for (block, page) in self.units.live_blocks(unit) {
                assert!(self.open.find(block).is_none(), "{block:?} is on flash and in RAM");
                assert!(self.hits[page as usize] <= HITS_MAX);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Dense;
    use crate::step::FlashWrites;

    /// Draws the upper queue, the lower one and the containers in RAM (missed, copied, overwritten), newest first. A
    /// block has a `'` for each hit; `@4` marks a divergent container that survives until four are sealed.
    fn draw(pannier: &Pannier<Dense>) -> String {
        let mark = |block: u32, hits: u8| format!("{block}{}", "'".repeat(hits.into()));
        let container = |unit: u32| {
            let blocks = pannier.units.live_blocks(unit).map(|(block, page)| mark(block, pannier.hits[page as usize]));
            let until = match pannier.survival.key(unit) {
                Tournament::OUT => String::new(),
                until => format!("@{until}"),
            };
            format!("({}){until}", blocks.collect::<Vec<_>>().join(" "))
        };
        let queue = |queue: u8| {
            let mut containers: Vec<_> = pannier.s2lru.from_back(queue).map(container).collect();
            containers.reverse();
            containers.join(" ")
        };
        let mut hits = pannier.open.clone();
        let mut open = |unit: u32| {
            let blocks = pannier.open.blocks_of(unit).iter();
            let marked = blocks.map(|&block| mark(block, *hits.data_mut(pannier.open.find(block).unwrap())));
            format!("[{}]", marked.collect::<Vec<_>>().join(" "))
        };
        format!("{} | {} | {} {} {}", queue(UPPER), queue(LOWER), open(MISSED), open(COPIED), open(OVERWRITTEN))
    }

    fn pannier(units: u32, unit_pages: u32, options: &str) -> Pannier<Dense> {
        let options = Options::parse("pannier", INFO.parameters, options).unwrap();
        Pannier::new(Dense::new(5_000), Flash { units, unit_pages, reserve_units: 0 }, &options)
    }

    /// Four containers of two blocks, at most two in the upper queue. Every hit moves a container. One with a single
    /// live block is divergent, and survives until 2 turnovers x 4 containers x (1/2)^3 = 1 more is sealed.
    #[test]
    fn divergent_containers_go_first_and_hit_blocks_are_copied() {
        let mut pannier = pannier(4, 2, "");
        let (read, write) = (Access::read, Access::write);
        let rows = [
            (vec![read(1)], " |  | [1] [] []"),
            (vec![read(2), read(3), read(4)], " | (3 4) (1 2) | [] [] []"),
            (vec![read(1)], "(1' 2) | (3 4) | [] [] []"),
            (vec![read(5), read(6)], "(1' 2) | (5 6) (3 4) | [] [] []"),
            // Three were sealed so far.
            (vec![write(6)], "(1' 2) | (5)@4 (3 4) | [] [] [6']"),
            (vec![read(7), read(8), read(9)], "(1' 2) | (7 8) (5)@4 (3 4) | [9] [] [6']"),
            // No unit is free. (5) is past its time and is evicted, although (3 4) is less recent.
            (vec![read(10)], "(1' 2) | (9 10) (7 8) (3 4) | [] [] [6']"),
            (vec![read(3)], "(3' 4) (1' 2) | (9 10) (7 8) | [] [] [6']"),
            // None is divergent: the least recent of the lower queue is evicted.
            (vec![read(11), read(12)], "(3' 4) (1' 2) | (11 12) (9 10) | [] [] [6']"),
            // A third one is too many in the upper queue.
            (vec![read(10)], "(9 10') (3' 4) | (1' 2) (11 12) | [] [] [6']"),
            (vec![read(13), read(14)], "(9 10') (3' 4) | (13 14) (1' 2) | [] [] [6']"),
            // 1 was hit and is copied, its hit forgotten; 2 leaves the cache.
            (vec![read(15), read(16)], "(9 10') (3' 4) | (15 16) (13 14) | [] [1] [6']"),
        ];
        for (accesses, after) in rows {
            for &access in &accesses {
                pannier.access(access, 0, &mut vec![]);
                pannier.check();
            }
            assert_eq!(draw(&pannier), after, "after {accesses:?}");
        }
        let flash_writes = FlashWrites { admission_blocks: 16, ..FlashWrites::default() };
        let counts = Counts { flash_writes, units_reset: 4, live_at_reset_blocks: 7 };
        assert_eq!(pannier.counts(), counts, "6 and 1 are in RAM still");
    }

    #[test]
    fn an_overwritten_block_takes_its_hits_along_and_a_removed_one_takes_none() {
        let mut pannier = pannier(4, 2, "");
        for access in [Access::read(1), Access::read(1), Access::write(2), Access::write(1), Access::write(1)] {
            pannier.access(access, 0, &mut vec![]);
        }
        assert_eq!(draw(&pannier), " | (2)@2 | [] [] [1''']");
        assert!(pannier.remove(1) && pannier.remove(2) && !pannier.remove(2));
        pannier.access(Access::read(1), 0, &mut vec![]);
        assert_eq!(draw(&pannier), " | ()@1 | [1] [] []");
        pannier.check();
    }

    #[test]
    fn a_hit_prolongs_the_life_of_a_divergent_container() {
        let mut pannier = pannier(4, 2, "");
        for access in
            [Access::read(1), Access::read(2), Access::write(2), Access::read(3), Access::read(4), Access::read(5)]
        {
            pannier.access(access, 0, &mut vec![]);
        }
        assert_eq!(draw(&pannier), " | (3 4) (1)@2 | [5] [] [2']");
        pannier.access(Access::read(1), 0, &mut vec![]);
        assert_eq!(draw(&pannier), "(1')@3 | (3 4) | [5] [] [2']");
    }

    #[test]
    fn copies_forward_cost_credit() {
        let mut pannier = pannier(4, 2, "epbpd=1,burst=1000%");
        for block in [1, 1, 2, 3, 4, 5, 6, 7, 8, 9] {
            pannier.access(Access::read(block), 0, &mut vec![]);
        }
        assert_eq!(
            (draw(&pannier).as_str(), pannier.throttle.credit()),
            (" | (7 8) (5 6) (3 4) (1' 2) | [9] [] []", 71.0)
        );
        pannier.access(Access::read(10), 0, &mut vec![]);
        assert_eq!(
            (draw(&pannier).as_str(), pannier.throttle.credit()),
            (" | (9 10) (7 8) (5 6) (3 4) | [] [1] []", 69.0)
        );
    }

    /// Every block was hit 15 times. For the first five containers 15 hits are enough for a copy (1, 1, 2, 4, 8), for
    /// the sixth (16) not.
    #[test]
    fn a_cache_of_hot_blocks_is_not_copied_over_and_over_to_make_room() {
        let mut pannier = pannier(40, 4, "");
        for block in (0..16).flat_map(|_| 0..160) {
            pannier.access(Access::read(block), 0, &mut vec![]);
        }
        let mut resets = vec![];
        for block in 160..168 {
            let before = pannier.counts().units_reset;
            pannier.access(Access::read(block), 0, &mut vec![]);
            resets.push(pannier.counts().units_reset - before);
        }
        assert_eq!(resets, [0, 0, 0, 6, 0, 0, 0, 6], "each time four new blocks fill a container");
    }

    /// 100 units of 10 pages and 2 erasures a day: 2,000 blocks a day and an initial credit of 250 blocks.
    #[test]
    fn the_throttle_limits_writes_except_those_of_clients() {
        let (mut throttled, mut free) = (pannier(100, 10, "epbpd=2"), pannier(100, 10, ""));
        let mut steps = vec![];
        let (second_us, day_us) = (1_000_000, 86_400_000_000);
        // Each third read is of one of 100 blocks, the others loop over three times the flash.
        for position in 0..86_400_u64 {
            let block = if position % 3 == 0 { position % 100 } else { 100 + position % 3_000 };
            throttled.access(Access::read(block as u32), position * second_us, &mut steps);
            free.access(Access::read(block as u32), position * second_us, &mut steps);
            let allowed = 250.0 + position as f64 * 2_000.0 / 86_400.0;
            let written = throttled.counts().flash_writes.total_blocks() as f64;
            assert!(written <= allowed, "{written} blocks were written after {position} s");
        }
        assert!(throttled.counts().flash_writes.total_blocks() > 2_200, "{:?}: the credit is used", throttled.counts());
        assert!(free.counts().flash_writes.total_blocks() > 40_000, "{:?}", free.counts());
        // Clients' writes are not limited. Then nothing is admitted until the debt is paid.
        for position in 0..5_000_u64 {
            let outcome = throttled.access(Access::write((position % 900) as u32), day_us, &mut steps);
            assert_ne!(outcome, ContainerOutcome::Bypass);
        }
        throttled.remove(7);
        assert_eq!(throttled.access(Access::read(7), 2 * day_us, &mut steps), ContainerOutcome::Bypass);
        let admitted =
            (0..4).any(|_| throttled.access(Access::read(7), 4 * day_us, &mut steps) == ContainerOutcome::Admit);
        assert!(admitted, "6,000 blocks of credit grew in three days");
    }
}
