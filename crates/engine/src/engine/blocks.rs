//! Which unfinished steps use which blocks of the backend.

use std::collections::HashMap;
use std::ops::Range;

use rustc_hash::FxBuildHasher;

use super::hazard::{Hazard, StepId};

/// The blocks that unfinished steps use. One step may zero billions of blocks, so those that no other step uses have no entry.
#[derive(Default)]
pub(super) struct Blocks {
    hazards: HashMap<u32, Hazard, FxBuildHasher>,
    /// Blocks that are being zeroed, in the order in which the steps were planned.
    zeroed: Vec<(Range<u32>, StepId)>,
}

impl Blocks {
    /// What uses a block; for a step that will use it too.
    pub fn entry(&mut self, block: u32) -> &mut Hazard {
        let zeroed = &self.zeroed;
        self.hazards.entry(block).or_insert_with(|| Hazard::written_by(last_zeroing(zeroed, block)))
    }

    /// The last unfinished step that writes a block.
    pub fn writer(&self, block: u32) -> Option<StepId> {
        self.hazards.get(&block).map_or_else(|| last_zeroing(&self.zeroed, block), Hazard::writer)
    }

    /// Whether an unfinished step uses a block.
    pub fn is_used(&self, block: u32) -> bool {
        self.hazards.contains_key(&block) || last_zeroing(&self.zeroed, block).is_some()
    }

    /// Adds a step that zeroes blocks; `wait` is told of the steps that it has to wait for.
    pub fn zero(&mut self, step: StepId, blocks: Range<u32>, mut wait: impl FnMut(StepId)) {
        let overlaps = |other: &Range<u32>| other.start < blocks.end && blocks.start < other.end;
        self.zeroed.iter().filter(|(other, _)| overlaps(other)).for_each(|&(_, earlier)| wait(earlier));
        self.for_each_used(&blocks, |hazard| hazard.write(step, &mut wait));
        self.zeroed.push((blocks, step));
    }

    /// Takes a step out that read or wrote a block and is done.
    pub fn end(&mut self, block: u32, step: StepId) {
        if let Some(hazard) = self.hazards.get_mut(&block) {
            hazard.end(step);
            if hazard.is_idle() {
                self.hazards.remove(&block);
            }
        }
    }

    /// Takes a step out that zeroed blocks and is done.
    pub fn end_zeroing(&mut self, step: StepId) {
        let Some(at) = self.zeroed.iter().position(|(_, zeroing)| *zeroing == step) else { return };
        let (blocks, _) = self.zeroed.remove(at);
        let mut idle = false;
        self.for_each_used(&blocks, |hazard| {
            hazard.end(step);
            idle |= hazard.is_idle();
        });
        if idle {
            self.hazards.retain(|_, hazard| !hazard.is_idle());
        }
    }

    /// Visits what uses some of the blocks.
    fn for_each_used(&mut self, blocks: &Range<u32>, mut visit: impl FnMut(&mut Hazard)) {
        if blocks.len() > self.hazards.len() {
            let used = self.hazards.iter_mut().filter(|(block, _)| blocks.contains(block));
            used.for_each(|(_, hazard)| visit(hazard));
        } else {
            blocks.clone().for_each(|block| self.hazards.get_mut(&block).into_iter().for_each(&mut visit));
        }
    }
}

/// The last of the steps that zero a block.
fn last_zeroing(zeroed: &[(Range<u32>, StepId)], block: u32) -> Option<StepId> {
    zeroed.iter().rev().find(|(blocks, _)| blocks.contains(&block)).map(|&(_, step)| step)
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
    fn zeroing_waits_for_what_uses_its_blocks_and_what_comes_later_waits_for_it() {
        let mut blocks = Blocks::default();
        blocks.entry(5).read(1, |_| ());
        blocks.entry(90).write(2, |_| ());
        blocks.entry(100).write(3, |_| ());
        let mut of_zeroing = waits(|wait| blocks.zero(4, 0..100, wait));
        of_zeroing.sort_unstable();
        assert_eq!(of_zeroing, [1, 2]);
        assert_eq!(
            [5, 7, 90, 99, 100].map(|block| blocks.writer(block)),
            [Some(4), Some(4), Some(4), Some(4), Some(3)]
        );
        assert_eq!(waits(|wait| blocks.entry(7).read(5, wait)), [4]);
        assert_eq!(waits(|wait| blocks.entry(8).write(6, wait)), [4]);
        assert_eq!(waits(|wait| blocks.zero(7, 8..10, wait)), [4, 6]);
        assert_eq!([7, 8, 9, 10].map(|block| blocks.writer(block)), [Some(4), Some(7), Some(7), Some(4)]);
        for (block, step) in [(5, 1), (90, 2), (7, 5), (8, 6)] {
            blocks.end(block, step);
        }
        blocks.end_zeroing(4);
        assert_eq!([5, 7, 8, 9].map(|block| blocks.writer(block)), [None, None, Some(7), Some(7)]);
        assert!(!blocks.is_used(5) && blocks.is_used(9));
        blocks.end_zeroing(7);
        blocks.end(100, 3);
        assert!(blocks.hazards.is_empty() && blocks.zeroed.is_empty());
    }
}
