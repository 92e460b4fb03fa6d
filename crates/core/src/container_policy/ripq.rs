//! RIPQ+: a priority queue of containers with a few insertion points, run as a segmented LRU, with support for
//! overwrites.
//!
//! Source: Tang, Huang, Lloyd, Kumar, Li: RIPQ: advanced photo caching on flash for Facebook. FAST 2015, section 4;
//! overwrites as Cheng et al., USENIX ATC 2016, section 5.3 describe for RIPQ+.
//!
//! The queue is divided into sections, one for each insertion point. Each section fills an active device container in
//! RAM, and an active virtual container that only names blocks. A block that is accessed again stays in place on flash;
//! the virtual container that names it determines its new position in the queue. Blocks at the tail of the queue are
//! evicted. Only those named by a virtual container are copied to the active device container of its section.
//!
//! No virtual container is behind the device container of a block that it names. Blocks are only named nearer to the
//! head, and containers do not overtake each other. So a virtual container is empty, and removed, before it reaches the
//! tail.
//!
//! Departures from the paper, and choices beyond it:
//! - Sections are the segments of a segmented LRU. Each except the lowest has at most an equal share of the blocks of
//!   the full cache. It passes the containers at its tail down to the next. The lowest has the rest. The paper splits
//!   and merges sections as their positions shift.
//! - A missed block enters the lowest section, a hit block the one above its own, as in segmented LRU. In section 3.3
//!   this is `insert(x, 1/K)` and `increase(x, (1 + ceil(p K)) / K)`.
//! - A block in an active device container moves between these in RAM, without a write.
//! - An overwritten block is hit like a read one. Its new copy goes to the active device container of the section in
//!   which a read would have named it. The copy on flash is dead.
//! - A container without live blocks is reset when room is needed, before the one at the tail.
//! - Copying forward reads the blocks into RAM and resets their container at once.
//! - There is no persistent queue for recovery, and the size of a block is one page.

use std::collections::VecDeque;

use super::{ContainerOutcome, ContainerPolicy, Counts, Flash};
use crate::access::{Access, Op};
use crate::index::Index;
use crate::layout::open_units::{OpenPlace, OpenUnits};
use crate::layout::units::Units;
use crate::lists::Lists;
use crate::options::{Kind, Options, Parameter};
use crate::policy::Info;
use crate::prefetch::prefetch;
use crate::step::{Cause, FlashStep};

/// RIPQ+'s row in the table of container policies.
pub static INFO: Info = Info {
    name: "ripq+",
    title: "Restricted Insertion Priority Queue with overwrites, as a segmented LRU",
    source: "Tang, Huang, Lloyd, Kumar, Li: RIPQ: advanced photo caching on flash for Facebook. FAST 2015",
    parameters: &[Parameter::of("sections", Kind::Count(1, 64), "8")
        .means("insertion points, which are segments of the LRU; each fills a container in RAM")],
    offline: false,
};

/// Marks a block that no virtual container names.
const NOT_NAMED: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, Default)]
struct Container {
    section: u8,
    /// Blocks positioned by this container: its live blocks that no other container names, or for a virtual one the
    /// named blocks.
    blocks: u32,
}

/// Containers in a priority queue with one insertion point per section.
#[derive(Debug)]
pub struct RipqPlus<I: Index> {
    units: Units<I>,
    /// The active device container of each section.
    active: OpenUnits<I::Key, ()>,
    /// The active virtual container of each section.
    active_virtual: Vec<u32>,
    /// Device containers by their unit, then virtual ones.
    containers: Vec<Container>,
    free_virtual: Vec<u32>,
    /// The sealed containers of each section, newest at the front.
    queue: Lists,
    /// The virtual container that names the block on each page.
    named_by: Vec<u32>,
    /// Blocks positioned in each section.
    section_blocks: Vec<u32>,
    blocks: u32,
    data_blocks: u32,
    reserve_units: u32,
    /// Blocks read for copying, with their destination section.
    copies: VecDeque<(I::Key, u8)>,
    sealing: (Vec<I::Key>, Vec<(Cause, ())>),
    evicting: Vec<(I::Key, u32)>,
    counts: Counts,
}

impl<I: Index> RipqPlus<I> {
    /// Creates an empty cache.
    pub fn new(index: I, flash: Flash, options: &Options) -> Self {
        let sections = options.count("sections") as u32;
        let Flash { units, unit_pages, reserve_units } = flash;
        let mut containers = vec![Container::default(); (units + sections) as usize];
        for section in 0..sections {
            containers[(units + section) as usize].section = section as u8;
        }
        RipqPlus {
            units: Units::new(index, units, unit_pages),
            active: OpenUnits::new(sections, unit_pages),
            active_virtual: (units..units + sections).collect(),
            containers,
            free_virtual: vec![],
            queue: Lists::new(sections as u8),
            named_by: vec![NOT_NAMED; (units * unit_pages) as usize],
            section_blocks: vec![0; sections as usize],
            blocks: 0,
            data_blocks: flash.data_blocks(),
            reserve_units,
            copies: VecDeque::new(),
            sealing: Default::default(),
            evicting: vec![],
            counts: Counts::default(),
        }
    }

    fn sections(&self) -> u8 {
        self.active_virtual.len() as u8
    }

    /// Returns the section of a block of `section` after a hit.
    #[inline]
    fn above(&self, section: u8) -> u8 {
        (section + 1).min(self.sections() - 1)
    }

    /// Returns the container that positions the live block on `page`.
    #[inline]
    fn container_of(&self, page: u32) -> u32 {
        match self.named_by[page as usize] {
            NOT_NAMED => self.units.unit_of(page),
            container => container,
        }
    }

    /// Removes a block from its position in the queue, given by `container`, and returns its section.
    #[inline]
    fn leave(&mut self, container: u32) -> u8 {
        let Container { section, blocks } = &mut self.containers[container as usize];
        let section = *section;
        *blocks -= 1;
        self.section_blocks[usize::from(section)] -= 1;
        self.blocks -= 1;
        let is_virtual = container >= self.units.units();
        if is_virtual && *blocks == 0 && self.active_virtual[usize::from(section)] != container {
            self.queue.remove(container);
            self.free_virtual.push(container);
        }
        section
    }

    /// Names the block on `page` in the virtual container of the section above its own.
    #[inline]
    fn increase(&mut self, page: u32) {
        let container = self.container_of(page);
        let section = self.above(self.containers[container as usize].section);
        let named_by = self.active_virtual[usize::from(section)];
        if named_by == container {
            return;
        }
        self.leave(container);
        self.named_by[page as usize] = named_by;
        self.section_blocks[usize::from(section)] += 1;
        self.blocks += 1;
        let blocks = &mut self.containers[named_by as usize].blocks;
        *blocks += 1;
        if *blocks == self.units.unit_pages() {
            self.queue.push_front(section, named_by);
            self.active_virtual[usize::from(section)] = self.new_virtual(section);
        }
        self.pass_down(section);
    }

    fn new_virtual(&mut self, section: u8) -> u32 {
        let container = self.free_virtual.pop().unwrap_or(self.containers.len() as u32);
        self.containers.resize(self.containers.len().max(container as usize + 1), Container::default());
        self.containers[container as usize] = Container { section, blocks: 0 };
        container
    }

    #[inline]
    fn has_too_many(&self, section: u8) -> bool {
        let is_filling = self.counts.units_reset == 0;
        let shared = if is_filling { self.data_blocks } else { self.blocks };
        u64::from(self.section_blocks[usize::from(section)]) * u64::from(self.sections()) > u64::from(shared)
    }

    /// Passes containers down from `section`, and from lower sections that become too large.
    #[inline]
    fn pass_down(&mut self, section: u8) {
        for upper in (1..=section).rev() {
            if !self.has_too_many(upper) {
                return;
            }
            while self.has_too_many(upper)
                && let Some(tail) = self.queue.back(upper)
            {
                let Container { section, blocks } = &mut self.containers[tail as usize];
                *section = upper - 1;
                self.section_blocks[usize::from(upper)] -= *blocks;
                self.section_blocks[usize::from(upper - 1)] += *blocks;
                self.queue.move_front(tail, upper - 1);
            }
        }
    }

    /// Adds a block to the active device container of `section`.
    fn insert(&mut self, section: u8, block: I::Key, cause: Cause, steps: &mut Vec<FlashStep>) {
        self.section_blocks[usize::from(section)] += 1;
        self.blocks += 1;
        if self.active.push(section.into(), block, cause, ()) {
            self.seal(section, steps);
        }
        self.pass_down(section);
    }

    fn seal(&mut self, section: u8, steps: &mut Vec<FlashStep>) {
        if self.units.free_units() == 0 {
            self.evict(steps);
        }
        let (blocks, kept) = &mut self.sealing;
        self.active.take(section.into(), blocks, kept);
        kept.iter().for_each(|(cause, ())| self.counts.flash_writes.count(*cause));
        let unit = self.units.seal(blocks, steps);
        let pages = (unit * self.units.unit_pages()) as usize;
        self.named_by[pages..pages + blocks.len()].fill(NOT_NAMED);
        self.containers[unit as usize] = Container { section, blocks: blocks.len() as u32 };
        self.queue.push_front(section, unit);
    }

    /// Resets the container at the tail of the queue, or one without live blocks.
    fn evict(&mut self, steps: &mut Vec<FlashStep>) {
        let emptiest = self.units.emptiest().expect("units that are not free are sealed");
        let unit = match self.units.live(emptiest) {
            0 => emptiest,
            _ => (0..self.sections()).find_map(|section| self.queue.back(section)).expect("sealed units are queued"),
        };
        assert!(unit < self.units.units(), "a virtual container is gone before it reaches the tail");
        let mut evicting = std::mem::take(&mut self.evicting);
        evicting.extend(self.units.live_blocks(unit));
        for (block, page) in evicting.drain(..) {
            let section = self.leave(self.container_of(page));
            if self.named_by[page as usize] != NOT_NAMED {
                self.copies.push_back((block, section));
                steps.push(FlashStep::Read { page });
            }
        }
        self.evicting = evicting;
        self.queue.remove(unit);
        self.counts.units_reset += 1;
        self.counts.live_at_reset_blocks += u64::from(self.units.reset(unit, steps));
    }

    /// Writes the blocks read for copying, and evicts until only the reserve is free. A copied block is not named, so
    /// each container is copied at most once before one is evicted whole: this terminates.
    fn settle(&mut self, steps: &mut Vec<FlashStep>) {
        loop {
            if let Some((block, section)) = self.copies.pop_front() {
                self.insert(section, block, Cause::CopyForward, steps);
            } else if self.units.free_units() < self.reserve_units {
                self.evict(steps);
            } else {
                return;
            }
        }
    }

    /// Makes the block on `page` dead, and returns its section.
    fn invalidate(&mut self, block: I::Key, page: u32) -> u8 {
        let section = self.leave(self.container_of(page));
        self.units.invalidate(block);
        section
    }

    fn remove_active(&mut self, place: OpenPlace) -> Cause {
        self.section_blocks[self.active.unit_of(place) as usize] -= 1;
        self.blocks -= 1;
        let (_, cause, ()) = self.active.remove(place);
        cause
    }
}

impl<I: Index> ContainerPolicy for RipqPlus<I> {
    type Key = I::Key;

    #[inline]
    fn access(&mut self, access: Access<I::Key>, _time_us: u64, steps: &mut Vec<FlashStep>) -> ContainerOutcome {
        let Access { block, op, .. } = access;
        if let Some(page) = self.units.page_of(block) {
            if op == Op::Read {
                steps.push(FlashStep::Read { page });
                self.increase(page);
            } else {
                let section = self.invalidate(block, page);
                self.insert(self.above(section), block, Cause::Client, steps);
                self.settle(steps);
            }
            return ContainerOutcome::Hit { in_ram: false };
        }
        if let Some(place) = self.active.find(block) {
            if op == Op::Write {
                self.active.overwrite(place);
            }
            let section = self.active.unit_of(place) as u8;
            if self.above(section) != section {
                let cause = self.remove_active(place);
                self.insert(self.above(section), block, cause, steps);
                self.settle(steps);
            }
            return ContainerOutcome::Hit { in_ram: true };
        }
        let cause = if op == Op::Write { Cause::Client } else { Cause::Admission };
        self.insert(0, block, cause, steps);
        self.settle(steps);
        ContainerOutcome::Admit
    }

    fn remove(&mut self, block: I::Key) -> bool {
        if let Some(page) = self.units.page_of(block) {
            self.invalidate(block, page);
        } else if let Some(place) = self.active.find(block) {
            self.remove_active(place);
        } else {
            return false;
        }
        true
    }

    fn contains(&self, block: I::Key) -> bool {
        self.units.page_of(block).is_some() || self.active.find(block).is_some()
    }

    fn page_of(&self, block: I::Key) -> Option<u32> {
        self.units.page_of(block)
    }

    fn len(&self) -> usize {
        self.units.len() + self.active.blocks()
    }

    fn ram_blocks_max(&self) -> usize {
        self.active_virtual.len() * (self.units.unit_pages() as usize - 1)
    }

    fn counts(&self) -> Counts {
        self.counts
    }

    #[inline]
    fn prefetch(&self, soon: I::Key, later: I::Key) {
        if let Some(page) = self.units.page_of(soon) {
            prefetch(&self.named_by, page as usize);
        }
        self.units.prefetch(later);
    }

    fn check(&self) {
        self.units.check();
        self.active.check();
        self.queue.check();
        assert!(self.copies.is_empty(), "all that was read for copying is copied");
        assert!(self.units.free_units() >= self.reserve_units, "the reserve is free");
        let mut blocks = vec![0; self.containers.len()];
        // Positions in the queue, tail first; the active containers of a section are in front of its sealed ones.
        let mut places = vec![0; self.containers.len()];
        let mut place = 0;
        for section in 0..self.sections() {
            let sealed = self.queue.from_back(section);
            for container in sealed.chain([self.active_virtual[usize::from(section)]]) {
                assert_eq!(
                    self.containers[container as usize].section, section,
                    "container {container} is in its section"
                );
                place += 1;
                places[container as usize] = place;
            }
        }
        let mut section_blocks: Vec<_> = (0..self.sections()).map(|section| self.active.len(section.into())).collect();
        for unit in 0..self.units.units() {
            assert_eq!(self.queue.list_of(unit).is_some(), self.units.is_sealed(unit), "sealed units are queued");
            for (block, page) in self.units.live_blocks(unit) {
                assert!(self.active.find(block).is_none(), "{block:?} is on flash and in RAM");
                let container = self.container_of(page) as usize;
                blocks[container] += 1;
                section_blocks[usize::from(self.containers[container].section)] += 1;
                assert!(places[container] >= places[unit as usize], "{block:?} is named nearer to the head");
            }
        }
        assert_eq!(section_blocks, self.section_blocks, "the blocks in each section");
        assert_eq!(section_blocks.iter().sum::<u32>(), self.blocks, "the blocks in all sections");
        for (number, container) in (0..).zip(&self.containers) {
            let is_free =
                self.free_virtual.contains(&number) || number < self.units.units() && !self.units.is_sealed(number);
            assert!(is_free || container.blocks == blocks[number as usize], "the blocks of container {number}");
            assert!(is_free || places[number as usize] > 0, "container {number} is queued or active");
        }
        let virtual_containers = self.containers.len() - self.units.units() as usize;
        assert!(
            virtual_containers <= usize::from(self.sections()) + self.named_by.len(),
            "a virtual container names a block"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Dense;
    use crate::step::FlashWrites;

    /// Draws each section from the top: `[blocks in RAM] <names>` of the active containers, then the sealed ones from
    /// the head. `(1' 2)` is a device container whose block 1 is named by a virtual one.
    fn queue(ripq: &RipqPlus<Dense>) -> String {
        let named_in = |container: u32| {
            let pages = 0..ripq.named_by.len() as u32;
            let live = |page: &u32| ripq.units.live_blocks(ripq.units.unit_of(*page)).find(|(_, live)| live == page);
            let names = pages.filter(|&page| ripq.named_by[page as usize] == container).filter_map(|page| live(&page));
            names.map(|(block, _)| block.to_string()).collect::<Vec<_>>().join(" ")
        };
        let held_in = |unit: u32| {
            let mark = |page: u32| if ripq.named_by[page as usize] == NOT_NAMED { "" } else { "'" };
            let blocks = ripq.units.live_blocks(unit).map(|(block, page)| format!("{block}{}", mark(page)));
            blocks.collect::<Vec<_>>().join(" ")
        };
        let section = |section: u8| {
            let ram: Vec<_> = ripq.active.blocks_of(section.into()).iter().map(u32::to_string).collect();
            let mut drawn = format!("[{}] <{}>", ram.join(" "), named_in(ripq.active_virtual[usize::from(section)]));
            let mut sealed: Vec<_> = ripq.queue.from_back(section).collect();
            sealed.reverse();
            for container in sealed {
                let is_device = container < ripq.units.units();
                let text = if is_device {
                    format!(" ({})", held_in(container))
                } else {
                    format!(" <{}>", named_in(container))
                };
                drawn.push_str(&text);
            }
            drawn
        };
        (0..ripq.sections()).rev().map(section).collect::<Vec<_>>().join(" | ")
    }

    const ADMIT: ContainerOutcome = ContainerOutcome::Admit;
    const HIT: ContainerOutcome = ContainerOutcome::Hit { in_ram: false };
    const RAM_HIT: ContainerOutcome = ContainerOutcome::Hit { in_ram: true };

    fn compare(ripq: &mut RipqPlus<Dense>, rows: &[(Access<u32>, ContainerOutcome, &str)]) {
        for &(access, outcome, after) in rows {
            assert_eq!(ripq.access(access, 0, &mut vec![]), outcome, "{access:?}");
            assert_eq!(queue(ripq), after, "after {access:?}");
            ripq.check();
        }
    }

    fn ripq(sections: &str, units: u32) -> RipqPlus<Dense> {
        let options = Options::parse("ripq+", INFO.parameters, sections).unwrap();
        RipqPlus::new(Dense::new(100), Flash { units, unit_pages: 2, reserve_units: 0 }, &options)
    }

    /// Two sections, four containers of two blocks: the upper section has at most four blocks.
    #[test]
    fn blocks_rise_by_name_and_are_copied_when_their_container_is_evicted() {
        let (read, write) = (Access::read, Access::write);
        let mut ripq = ripq("sections=2", 4);
        let rows = [
            (read(1), ADMIT, "[] <> | [1] <>"),
            (read(2), ADMIT, "[] <> | [] <> (1 2)"),
            (read(3), ADMIT, "[] <> | [3] <> (1 2)"),
            (read(1), HIT, "[] <1> | [3] <> (1' 2)"),
            (read(3), RAM_HIT, "[3] <1> | [] <> (1' 2)"),
            (read(4), ADMIT, "[3] <1> | [4] <> (1' 2)"),
            (read(5), ADMIT, "[3] <1> | [] <> (4 5) (1' 2)"),
            // The new copy of 4 fills the upper section's container.
            (write(4), HIT, "[] <1> (3 4) | [] <> (5) (1' 2)"),
            (read(6), ADMIT, "[] <1> (3 4) | [6] <> (5) (1' 2)"),
            (read(7), ADMIT, "[] <1> (3 4) | [] <> (6 7) (5) (1' 2)"),
            (read(8), ADMIT, "[] <1> (3 4) | [8] <> (6 7) (5) (1' 2)"),
            // No unit is free: at the tail, 2 is evicted and 1 copied.
            (read(9), ADMIT, "[1] <> (3 4) | [] <> (8 9) (6 7) (5)"),
            // The container loses its last block and is reset.
            (write(5), HIT, "[] <> (1 5) (3 4) | [] <> (8 9) (6 7)"),
            // Five blocks in the upper section are one too many.
            (read(6), HIT, "[] <6> (1 5) | [] <> (3 4) (8 9) (6' 7)"),
        ];
        compare(&mut ripq, &rows);
        let flash_writes =
            FlashWrites { client_blocks: 2, admission_blocks: 9, copy_forward_blocks: 1, ..FlashWrites::default() };
        assert_eq!(ripq.counts(), Counts { flash_writes, units_reset: 2, live_at_reset_blocks: 2 });
    }

    #[test]
    fn a_virtual_container_is_sealed_when_it_names_a_containerful_and_gone_when_it_names_nothing() {
        let read = Access::read;
        let mut ripq = ripq("sections=3", 9);
        let rows = [
            (read(1), ADMIT, "[] <> | [] <> | [1] <>"),
            (read(2), ADMIT, "[] <> | [] <> | [] <> (1 2)"),
            (read(1), HIT, "[] <> | [] <1> | [] <> (1' 2)"),
            (read(2), HIT, "[] <> | [] <> <1 2> | [] <> (1' 2')"),
            (read(1), HIT, "[] <1> | [] <> <2> | [] <> (1' 2')"),
            (read(1), HIT, "[] <1> | [] <> <2> | [] <> (1' 2')"),
            (read(2), HIT, "[] <> <1 2> | [] <> | [] <> (1' 2')"),
            (read(2), HIT, "[] <2> <1> | [] <> | [] <> (1' 2')"),
        ];
        compare(&mut ripq, &rows);
    }
    #[test]
    fn a_container_without_a_live_block_goes_before_the_tail() {
        let (read, write) = (Access::read, Access::write);
        let mut ripq = ripq("sections=1", 3);
        for access in [read(1), read(2), read(3), read(4), write(3), write(4), read(5)] {
            ripq.access(access, 0, &mut vec![]);
        }
        assert_eq!(queue(&ripq), "[5] <> (3 4) () (1 2)");
        compare(&mut ripq, &[(read(6), ADMIT, "[] <> (5 6) (3 4) (1 2)")]);
    }
}
