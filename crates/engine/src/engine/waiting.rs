//! Requests that wait before they are planned.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use flashwise_core::format::BLOCK_BYTES;

use crate::request::Operation;

/// A change of more blocks is large.
const LARGE_BLOCKS: u64 = 1024;

/// Requests that wait before they are planned, in order. `T` is all that their owner needs to plan them.
#[derive(Debug)]
pub struct WaitingRequests<T> {
    /// With the changed blocks of each.
    requests: VecDeque<(Range<u64>, T)>,
    /// The number of waiting changes of each block.
    changes: HashMap<u64, u32>,
    /// The waiting changes of many blocks.
    large: Vec<Range<u64>>,
}

impl<T> Default for WaitingRequests<T> {
    fn default() -> WaitingRequests<T> {
        WaitingRequests { requests: VecDeque::new(), changes: HashMap::new(), large: Vec::new() }
    }
}

fn blocks_of(bytes: &Range<u64>) -> Range<u64> {
    bytes.start / BLOCK_BYTES as u64..bytes.end.div_ceil(BLOCK_BYTES as u64)
}

impl<T> WaitingRequests<T> {
    /// Returns the number of requests.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// True if none waits.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// True if a new request comes after waiting ones. A read passes changes of other blocks: they may wait for the
    /// backend, and a read of RAM or flash must not.
    pub fn precede(&self, operation: Operation, bytes: &Range<u64>) -> bool {
        if operation != Operation::Read {
            return !self.is_empty();
        }
        let blocks = blocks_of(bytes);
        self.large.iter().any(|large| large.start < blocks.end && blocks.start < large.end)
            || !self.changes.is_empty() && blocks.into_iter().any(|block| self.changes.contains_key(&block))
    }

    /// Adds a request after all others.
    pub fn push(&mut self, operation: Operation, bytes: &Range<u64>, request: T) {
        let blocks = self.count(operation, bytes);
        self.requests.push_back((blocks, request));
    }

    /// Adds a request before all others.
    pub fn push_front(&mut self, operation: Operation, bytes: &Range<u64>, request: T) {
        let blocks = self.count(operation, bytes);
        self.requests.push_front((blocks, request));
    }

    /// Takes the first request.
    pub fn pop(&mut self) -> Option<T> {
        let (blocks, request) = self.requests.pop_front()?;
        if blocks.end - blocks.start > LARGE_BLOCKS {
            let at = self.large.iter().position(|large| *large == blocks).expect("a large change is listed");
            self.large.swap_remove(at);
            return Some(request);
        }
        for block in blocks {
            let count = self.changes.get_mut(&block).expect("the blocks of a waiting change are counted");
            *count -= 1;
            if *count == 0 {
                self.changes.remove(&block);
            }
        }
        Some(request)
    }

    /// Counts the blocks that a request changes, and returns them.
    fn count(&mut self, operation: Operation, bytes: &Range<u64>) -> Range<u64> {
        let blocks = if operation.changes() { blocks_of(bytes) } else { 0..0 };
        match blocks.end - blocks.start {
            0..=LARGE_BLOCKS => blocks.clone().for_each(|block| *self.changes.entry(block).or_default() += 1),
            _ => self.large.push(blocks.clone()),
        }
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = BLOCK_BYTES as u64;

    #[test]
    fn reads_pass_changes_of_other_blocks_and_nothing_else_passes() {
        let mut waiting = WaitingRequests::default();
        assert!(!waiting.precede(Operation::Write, &(0..BLOCK)) && !waiting.precede(Operation::Read, &(0..BLOCK)));
        waiting.push(Operation::Write, &(512..BLOCK + 1), 1);
        waiting.push(Operation::Trim, &(8 * BLOCK..5000 * BLOCK), 2);
        waiting.push_front(Operation::Write, &(BLOCK..2 * BLOCK), 0);
        let reads = |waiting: &WaitingRequests<_>| {
            [0, 1, 2, 7, 8, 4999, 5000]
                .map(|block| waiting.precede(Operation::Read, &(block * BLOCK..(block + 1) * BLOCK)))
        };
        assert_eq!(reads(&waiting), [true, true, false, false, true, true, false]);
        assert!(waiting.precede(Operation::Write, &(6000 * BLOCK..6001 * BLOCK)));
        assert!(waiting.precede(Operation::Flush, &(0..0)));
        assert_eq!((waiting.pop(), waiting.len()), (Some(0), 2));
        assert_eq!(reads(&waiting), [true, true, false, false, true, true, false]);
        assert_eq!(waiting.pop(), Some(1));
        assert_eq!(reads(&waiting), [false, false, false, false, true, true, false]);
        assert_eq!((waiting.pop(), waiting.pop(), waiting.is_empty()), (Some(2), None, true));
        assert_eq!(reads(&waiting), [false; 7]);
    }
}
