//! The order of steps: one table of the resources that unfinished steps use.
//!
//! A layout defines the resources that each of its steps [uses](Use). The table knows nothing else about steps. It
//! determines the unfinished steps that a new one has to wait for. So overlapping steps have the same result as steps
//! executed one by one.
//!
//! | resource | waiting steps |
//! | --- | --- |
//! | a place in memory, a block of the backend | readers for the last writer; a writer for all before it |
//! | pages of flash | readers for the writes of these pages; an erasure for the readers |
//! | a [chain](Key) | its next step for the step before it; others may wait for its last step without being in it |
//! | a [group](Key) | a step that waits for all members, such as a flush for the writes before it |

mod blocks;
mod hazard;

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use rustc_hash::FxBuildHasher;

pub use blocks::Blocks;
pub use hazard::Hazard;

/// A step's position in the engine's table of steps.
pub type StepId = u32;

/// Identifies a chain of steps that are executed in order, or a group of steps. Layouts choose the numbers.
pub type Key = u64;

/// The use of a resource by a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Use {
    /// Reads a place in memory.
    ReadMemory(u32),
    /// Changes a place in memory.
    WriteMemory(u32),
    /// Reads a block of the backend, or another unit of it that the layout chooses.
    ReadBlock(u32),
    /// Changes blocks of the backend.
    WriteBlocks(Range<u32>),
    /// Follows the steps that write these pages of flash.
    AfterPages(Range<u32>),
    /// Needs the content of these pages until it ends.
    KeepPages(Range<u32>),
    /// Writes pages of flash.
    WritePages(Range<u32>),
    /// Erases pages: follows all steps that keep some of them.
    ErasePages(Range<u32>),
    /// Is the next step of a chain.
    Next(Key),
    /// Follows the last step of a chain.
    After(Key),
    /// Joins a group.
    Join(Key),
    /// Follows all members of a group.
    AfterAll(Key),
}

/// The consequence for a step that waits for another one, if that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bond {
    /// None.
    Follows,
    /// It fails too.
    Needs,
    /// It calls nothing clean.
    Trusts,
    /// The backend cannot stand in for the flash.
    Strands,
    /// Its client does not see the content, and reads again.
    Sees,
}

/// The unfinished steps, by what they use.
#[derive(Debug, Default)]
pub struct Order {
    memory: Vec<Hazard>,
    blocks: Blocks,
    /// By step: the pages that it keeps. Erasures are rare, so searching all steps costs less than an index of the
    /// readers.
    kept: Vec<Range<u32>>,
    /// In the order in which the steps were planned.
    writes: Vec<(Range<u32>, StepId)>,
    chains: HashMap<Key, StepId, FxBuildHasher>,
    groups: HashMap<Key, HashSet<StepId, FxBuildHasher>, FxBuildHasher>,
}

impl Order {
    /// Creates a table without steps, for this many places in memory.
    pub fn new(places: u32) -> Order {
        Order { memory: (0..places).map(|_| Hazard::default()).collect(), ..Order::default() }
    }

    /// Records a use of a new step; `wait` receives each unfinished step that it has to wait for.
    #[inline]
    pub fn begin(&mut self, step: StepId, used: Use, mut wait: impl FnMut(StepId)) {
        match used {
            Use::ReadMemory(place) => self.memory[place as usize].read(step, wait),
            Use::WriteMemory(place) => self.memory[place as usize].write(step, wait),
            Use::ReadBlock(block) => self.blocks.entry(block).read(step, wait),
            Use::WriteBlocks(blocks) => self.blocks.write(step, blocks, wait),
            Use::AfterPages(pages) => {
                let of_pages = self.writes.iter().filter(|(written, _)| overlap(written, &pages));
                of_pages.for_each(|&(_, write)| wait(write));
            }
            Use::KeepPages(pages) => {
                if self.kept.len() <= step as usize {
                    self.kept.resize(step as usize + 1, 0..0);
                }
                self.kept[step as usize] = pages;
            }
            Use::WritePages(pages) => self.writes.push((pages, step)),
            Use::ErasePages(pages) => {
                let keepers = self.kept.iter().zip(0..).filter(|(kept, _)| overlap(kept, &pages));
                keepers.for_each(|(_, keeper)| wait(keeper));
            }
            Use::Next(chain) => self.chains.insert(chain, step).into_iter().for_each(wait),
            Use::After(chain) => self.last(chain).into_iter().for_each(wait),
            Use::Join(group) => drop(self.groups.entry(group).or_default().insert(step)),
            Use::AfterAll(group) => self.members(group).for_each(wait),
        }
    }

    /// Removes a use of a step that has ended.
    #[inline]
    pub fn end(&mut self, step: StepId, used: Use) {
        match used {
            Use::ReadMemory(place) | Use::WriteMemory(place) => self.memory[place as usize].end(step),
            Use::ReadBlock(block) => self.blocks.end(step, block..block + 1),
            Use::WriteBlocks(blocks) => self.blocks.end(step, blocks),
            Use::KeepPages(_) => self.kept[step as usize] = 0..0,
            Use::WritePages(_) => self.writes.retain(|(_, write)| *write != step),
            Use::Next(chain) => {
                if self.chains.get(&chain) == Some(&step) {
                    self.chains.remove(&chain);
                }
            }
            Use::Join(group) => {
                if let Some(members) = self.groups.get_mut(&group) {
                    members.remove(&step);
                    if members.is_empty() {
                        self.groups.remove(&group);
                    }
                }
            }
            Use::AfterPages(_) | Use::ErasePages(_) | Use::After(_) | Use::AfterAll(_) => {}
        }
    }

    /// Two steps take the place of an unfinished one that reads several blocks. `read` reads `block`, on `page` of
    /// flash, into memory. `reader` reads the memory afterwards. The caller lets the steps that wait for the old one
    /// wait for the new ones.
    pub fn replace(&mut self, step: StepId, (read, reader): (StepId, StepId), place: u32, block: u32, page: u32) {
        self.memory[place as usize].replace(step, read, reader);
        self.blocks.replace(step, read, block);
        self.begin(read, Use::KeepPages(page..page + 1), |_| ());
    }

    /// Returns the steps that use a place in memory.
    #[inline]
    pub fn place(&self, place: u32) -> &Hazard {
        &self.memory[place as usize]
    }

    /// Returns the blocks of the backend that steps use.
    pub fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    /// Returns the last planned step that writes a page of flash.
    pub fn page_writer(&self, page: u32) -> Option<StepId> {
        self.writes.iter().rev().find(|(pages, _)| pages.contains(&page)).map(|&(_, step)| step)
    }

    /// True if a step writes pages of flash.
    pub fn writes_pages(&self, step: StepId) -> bool {
        self.writes.iter().any(|&(_, write)| write == step)
    }

    /// True if no step writes pages of flash.
    pub fn pages_are_idle(&self) -> bool {
        self.writes.is_empty()
    }

    /// Returns the last step of a chain, if it has not ended.
    pub fn last(&self, chain: Key) -> Option<StepId> {
        self.chains.get(&chain).copied()
    }

    /// Returns the last steps of all chains with these keys.
    pub fn last_of(&self, chains: Range<Key>) -> impl Iterator<Item = StepId> {
        self.chains.iter().filter(move |(chain, _)| chains.contains(chain)).map(|(_, &step)| step)
    }

    /// Returns the members of a group.
    pub fn members(&self, group: Key) -> impl Iterator<Item = StepId> {
        self.groups.get(&group).into_iter().flatten().copied()
    }

    /// Returns the number of steps in all groups with these keys.
    pub fn count_members(&self, groups: Range<Key>) -> usize {
        self.groups.iter().filter(|(group, _)| groups.contains(group)).map(|(_, members)| members.len()).sum()
    }
}

fn overlap(one: &Range<u32>, other: &Range<u32>) -> bool {
    one.start < other.end && other.start < one.end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(order: &mut Order, step: StepId, uses: &[Use]) -> Vec<StepId> {
        let mut waits = Vec::new();
        uses.iter().for_each(|used| order.begin(step, used.clone(), |other| waits.push(other)));
        waits.sort_unstable();
        waits
    }

    fn end(order: &mut Order, step: StepId, uses: &[Use]) {
        uses.iter().for_each(|used| order.end(step, used.clone()));
    }

    #[test]
    fn readers_wait_for_the_writer_and_writers_for_all() {
        let mut order = Order::new(2);
        assert_eq!(begin(&mut order, 0, &[Use::WriteMemory(1)]), []);
        assert_eq!(begin(&mut order, 1, &[Use::ReadMemory(1), Use::ReadBlock(7)]), [0]);
        assert_eq!(begin(&mut order, 2, &[Use::ReadMemory(1)]), [0]);
        assert_eq!(begin(&mut order, 3, &[Use::WriteMemory(1)]), [0, 1, 2]);
        assert_eq!(begin(&mut order, 4, &[Use::WriteBlocks(7..8), Use::ReadMemory(0)]), [1]);
        end(&mut order, 3, &[Use::WriteMemory(1)]);
        assert!(order.place(1).is_idle() && !order.place(0).is_idle());
        assert_eq!(order.blocks().writer(7), Some(4));
    }

    #[test]
    fn an_erasure_waits_for_readers_of_its_pages_and_a_read_for_writes_of_them() {
        let mut order = Order::new(0);
        begin(&mut order, 5, &[Use::WritePages(8..12)]);
        assert_eq!(begin(&mut order, 1, &[Use::AfterPages(12..13), Use::KeepPages(12..13)]), []);
        assert_eq!(begin(&mut order, 2, &[Use::AfterPages(11..12), Use::KeepPages(11..12)]), [5]);
        assert_eq!((order.page_writer(11), order.page_writer(12)), (Some(5), None));
        assert_eq!(begin(&mut order, 3, &[Use::ErasePages(0..12)]), [2]);
        end(&mut order, 2, &[Use::KeepPages(11..12)]);
        end(&mut order, 5, &[Use::WritePages(8..12)]);
        assert_eq!(begin(&mut order, 4, &[Use::ErasePages(0..12), Use::AfterPages(11..12)]), []);
        assert!(order.pages_are_idle());
    }

    #[test]
    fn chains_are_done_in_order_and_groups_are_waited_for_as_a_whole() {
        let (chain, group) = (1, 9);
        let mut order = Order::new(0);
        assert_eq!(begin(&mut order, 1, &[Use::Next(chain), Use::Join(group)]), []);
        assert_eq!(begin(&mut order, 2, &[Use::Next(chain), Use::Join(group)]), [1]);
        assert_eq!(begin(&mut order, 3, &[Use::After(chain), Use::AfterAll(group)]), [1, 2, 2]);
        // The last step of the chain is still unfinished.
        end(&mut order, 1, &[Use::Next(chain), Use::Join(group)]);
        assert_eq!(begin(&mut order, 4, &[Use::After(chain), Use::AfterAll(group)]), [2, 2]);
        end(&mut order, 2, &[Use::Next(chain), Use::Join(group)]);
        assert_eq!((order.last(chain), order.count_members(0..10)), (None, 0));
    }
}
