//! The free blocks of the guest's file system.

use std::collections::BTreeMap;
use std::ops::Range;

/// Runs of free blocks, by their first block.
#[derive(Debug)]
pub struct FreeSpace {
    runs: BTreeMap<u32, u32>,
}

impl FreeSpace {
    /// Creates this many free blocks.
    pub fn new(blocks: u32) -> Self {
        Self { runs: BTreeMap::from([(0, blocks)]) }
    }

    /// Takes blocks in one run if one is long enough, otherwise in several. It starts with the first free run at or
    /// behind `goal`, then continues from the beginning. Returns `None` if there are too few free blocks.
    pub fn take(&mut self, goal: u32, blocks: u32) -> Option<Vec<Range<u32>>> {
        if let Some(run) = self.find(goal, blocks) {
            self.remove(&run);
            return Some(vec![run]);
        }
        let mut taken = Vec::new();
        let mut missing = blocks;
        while missing > 0 {
            let Some(run) = self.find(goal, 1) else {
                taken.into_iter().for_each(|run| self.give(run));
                return None;
            };
            let run = run.start..self.end_of(run.start).min(run.start + missing);
            self.remove(&run);
            missing -= run.len() as u32;
            taken.push(run);
        }
        Some(taken)
    }

    /// Frees blocks.
    pub fn give(&mut self, run: Range<u32>) {
        let (mut start, mut end) = (run.start, run.end);
        if let Some((&before, &length)) = self.runs.range(..start).next_back()
            && before + length == start
        {
            start = before;
        }
        if let Some(length) = self.runs.remove(&end) {
            end += length;
        }
        self.runs.insert(start, end - start);
    }

    /// Returns the end of the free run that contains `block`.
    fn end_of(&self, block: u32) -> u32 {
        self.runs.range(..=block).next_back().map_or(block, |(start, length)| start + length)
    }

    /// Returns the first run of this many free blocks at or behind `goal`, otherwise from the beginning.
    fn find(&self, goal: u32, blocks: u32) -> Option<Range<u32>> {
        if self.end_of(goal) >= goal.saturating_add(blocks) {
            return Some(goal..goal + blocks);
        }
        let fits = |(&start, &length): (&u32, &u32)| (length >= blocks).then_some(start..start + blocks);
        self.runs.range(goal..).find_map(fits).or_else(|| self.runs.range(..goal).find_map(fits))
    }

    fn remove(&mut self, run: &Range<u32>) {
        let (start, end) = (self.runs.range(..=run.start).next_back().map(|(&start, &length)| (start, start + length)))
            .expect("only free blocks are taken");
        self.runs.remove(&start);
        for (from, to) in [(start, run.start), (run.end, end)] {
            if from < to {
                self.runs.insert(from, to - from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::single_range_in_vec_init)] // One run is meant.
    fn blocks_are_taken_in_one_run_near_the_goal_and_come_back_as_one() {
        let mut space = FreeSpace::new(100);
        assert_eq!(space.take(40, 10), Some(vec![40..50]));
        assert_eq!(space.take(45, 10), Some(vec![50..60]));
        // No run behind the goal is long enough.
        assert_eq!(space.take(55, 41), Some(vec![60..100, 0..1]));
        assert_eq!(space.take(0, 40), None);
        assert_eq!(space.take(0, 39), Some(vec![1..40]));
        for run in [40..50, 60..100, 0..1, 50..60, 1..40] {
            space.give(run);
        }
        assert_eq!(space.runs, BTreeMap::from([(0, 100)]));
    }
}
