//! The blocks of the backend that unfinished steps use.

use std::collections::HashMap;
use std::ops::Range;

use rustc_hash::FxBuildHasher;

use super::{Hazard, StepId, overlap};

/// The blocks that unfinished steps use. One step may zero billions of blocks, so blocks that no other step uses have
/// no entry.
#[derive(Debug, Default)]
pub struct Blocks {
    hazards: HashMap<u32, Hazard, FxBuildHasher>,
    /// Removed entries, whose memory is reused.
    spare: Vec<Hazard>,
    /// Ranges of several blocks that are being written, in the order in which the steps were planned.
    ranges: Vec<(Range<u32>, StepId)>,
}

impl Blocks {
    /// Returns the last unfinished step that writes a block.
    pub fn writer(&self, block: u32) -> Option<StepId> {
        self.hazards.get(&block).map_or_else(|| last_of(&self.ranges, block), Hazard::writer)
    }

    /// True if an unfinished step uses a block.
    pub fn is_used(&self, block: u32) -> bool {
        self.hazards.contains_key(&block) || last_of(&self.ranges, block).is_some()
    }

    /// Returns the steps that use a block, for a step that will use it too.
    pub(super) fn entry(&mut self, block: u32) -> &mut Hazard {
        let Blocks { hazards, spare, ranges } = self;
        hazards.entry(block).or_insert_with(|| {
            let mut hazard = spare.pop().unwrap_or_default();
            hazard.reset(last_of(ranges, block));
            hazard
        })
    }

    /// Replaces a reader of a block, if that is known.
    pub(super) fn replace(&mut self, step: StepId, by: StepId, block: u32) {
        self.hazards.get_mut(&block).into_iter().for_each(|hazard| hazard.replace(step, by, by));
    }

    /// Adds a step that writes blocks; `wait` receives the steps that it has to wait for.
    pub(super) fn write(&mut self, step: StepId, blocks: Range<u32>, mut wait: impl FnMut(StepId)) {
        if blocks.len() == 1 {
            return self.entry(blocks.start).write(step, wait);
        }
        self.ranges.iter().filter(|(other, _)| overlap(other, &blocks)).for_each(|&(_, earlier)| wait(earlier));
        self.for_each_used(&blocks, |hazard| hazard.write(step, &mut wait));
        self.ranges.push((blocks, step));
    }

    /// Removes a step that read or wrote blocks and has ended.
    pub(super) fn end(&mut self, step: StepId, blocks: Range<u32>) {
        if blocks.len() == 1 {
            if let Some(hazard) = self.hazards.get_mut(&blocks.start) {
                hazard.end(step);
                if hazard.is_idle() {
                    self.spare.extend(self.hazards.remove(&blocks.start));
                }
            }
            return;
        }
        self.ranges.retain(|(_, writer)| *writer != step);
        let mut idle = false;
        self.for_each_used(&blocks, |hazard| {
            hazard.end(step);
            idle |= hazard.is_idle();
        });
        if idle {
            self.hazards.retain(|_, hazard| !hazard.is_idle());
        }
    }

    /// Visits the steps of each block in a range that has an entry.
    fn for_each_used(&mut self, blocks: &Range<u32>, mut visit: impl FnMut(&mut Hazard)) {
        if blocks.len() > self.hazards.len() {
            let used = self.hazards.iter_mut().filter(|(block, _)| blocks.contains(block));
            used.for_each(|(_, hazard)| visit(hazard));
        } else {
            blocks.clone().for_each(|block| self.hazards.get_mut(&block).into_iter().for_each(&mut visit));
        }
    }
}

/// Returns the last of the steps that write a range with this block.
fn last_of(ranges: &[(Range<u32>, StepId)], block: u32) -> Option<StepId> {
    ranges.iter().rev().find(|(blocks, _)| blocks.contains(&block)).map(|&(_, step)| step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(of: impl FnOnce(&mut dyn FnMut(StepId))) -> Vec<StepId> {
        let mut waits = Vec::new();
        of(&mut |step| waits.push(step));
        waits
    }

    #[test]
    fn a_range_waits_for_users_of_its_blocks_and_later_users_wait_for_it() {
        let mut blocks = Blocks::default();
        blocks.entry(5).read(1, |_| ());
        blocks.entry(90).write(2, |_| ());
        blocks.entry(100).write(3, |_| ());
        let mut of_range = waits(|wait| blocks.write(4, 0..100, wait));
        of_range.sort_unstable();
        assert_eq!(of_range, [1, 2]);
        assert_eq!(
            [5, 7, 90, 99, 100].map(|block| blocks.writer(block)),
            [Some(4), Some(4), Some(4), Some(4), Some(3)]
        );
        assert_eq!(waits(|wait| blocks.entry(7).read(5, wait)), [4]);
        assert_eq!(waits(|wait| blocks.entry(8).write(6, wait)), [4]);
        assert_eq!(waits(|wait| blocks.write(7, 8..10, wait)), [4, 6]);
        assert_eq!([7, 8, 9, 10].map(|block| blocks.writer(block)), [Some(4), Some(7), Some(7), Some(4)]);
        for (block, step) in [(5, 1), (90, 2), (7, 5), (8, 6)] {
            blocks.end(step, block..block + 1);
        }
        blocks.end(4, 0..100);
        assert_eq!([5, 7, 8, 9].map(|block| blocks.writer(block)), [None, None, Some(7), Some(7)]);
        assert!(!blocks.is_used(5) && blocks.is_used(9));
        blocks.end(7, 8..10);
        blocks.end(3, 100..101);
        assert!(blocks.hazards.is_empty() && blocks.ranges.is_empty());
    }
}
