//! A slow and exact cache of single blocks for comparison with container policies.

/// Segmented LRU: a block enters the lowest segment and moves one up with each hit. Each segment except the lowest has
/// at most an equal share of the capacity, and passes its least recently used block down.
pub struct SegmentedLru {
    capacity: usize,
    /// Most recently used last.
    segments: Vec<Vec<u32>>,
}

impl SegmentedLru {
    pub fn new(capacity: usize, segments: usize) -> SegmentedLru {
        SegmentedLru { capacity, segments: vec![vec![]; segments] }
    }

    /// Returns true if `block` is hit.
    pub fn access(&mut self, block: u32) -> bool {
        let found = |(segment, blocks): (usize, &Vec<u32>)| {
            blocks.iter().rposition(|&held| held == block).map(|at| (segment, at))
        };
        let held = self.segments.iter().enumerate().find_map(found);
        let top = self.segments.len() - 1;
        let target = match held {
            Some((segment, at)) => {
                self.segments[segment].remove(at);
                (segment + 1).min(top)
            }
            None => 0,
        };
        self.segments[target].push(block);
        for segment in (1..=top).rev() {
            while self.segments[segment].len() > self.capacity / (top + 1) {
                let passed_down = self.segments[segment].remove(0);
                self.segments[segment - 1].push(passed_down);
            }
        }
        if self.segments.iter().map(Vec::len).sum::<usize>() > self.capacity {
            let lowest = self.segments.iter_mut().find(|blocks| !blocks.is_empty());
            lowest.expect("a full cache has a block").remove(0);
        }
        held.is_some()
    }
}
