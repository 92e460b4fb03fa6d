//! MIN and M+ written once more, independently and in the slowest way.

use flashwise_core::access::Op;

/// MIN and M+ by looking at the rest of the trace whenever something is to be decided.
#[derive(Debug)]
pub struct BruteForce {
    /// Blocks and operations on them.
    pub accesses: Vec<(u32, Op)>,
    /// Blocks that the cache holds.
    pub capacity: usize,
}

/// When a block came, when it left, and its hits.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Stay {
    pub block: u32,
    pub from: usize,
    pub until: usize,
    pub hits: u64,
}

impl BruteForce {
    /// The position of the next read of `block` after `after`, if it is not overwritten before.
    pub fn next_read(&self, block: u32, after: usize) -> Option<usize> {
        let later = |at: &usize| self.accesses[*at].0 == block;
        (after + 1..self.accesses.len()).find(later).filter(|&at| self.accesses[at].1 == Op::Read)
    }

    /// The one of `blocks` that is read last after `now`.
    fn last(&self, blocks: impl Iterator<Item = u32>, now: usize) -> Option<u32> {
        blocks.max_by_key(|&block| self.next_read(block, now))
    }

    /// The history of each insertion of MIN.
    pub fn min(&self) -> Vec<Stay> {
        let (mut over, mut cached): (Vec<Stay>, Vec<Stay>) = (vec![], vec![]);
        for (now, &(block, _)) in self.accesses.iter().enumerate() {
            let will_be_read = self.next_read(block, now).is_some();
            if let Some(at) = cached.iter().position(|stay| stay.block == block) {
                cached[at].hits += 1;
                if !will_be_read {
                    let stay = cached.remove(at);
                    over.push(Stay { until: now, ..stay });
                }
                continue;
            }
            let last = self.last(cached.iter().map(|stay| stay.block).chain([block]), now);
            if !will_be_read || (cached.len() == self.capacity && last == Some(block)) {
                continue;
            }
            if cached.len() == self.capacity {
                let at = cached.iter().position(|stay| Some(stay.block) == last).unwrap();
                let stay = cached.remove(at);
                over.push(Stay { until: now, ..stay });
            }
            cached.push(Stay { block, from: now, until: usize::MAX, hits: 0 });
        }
        over.extend(cached);
        over
    }

    /// Hits and insertions of M+.
    pub fn m_plus(&self) -> (u64, u64) {
        let log: Vec<Stay> = self.min().into_iter().filter(|stay| stay.hits > 0).collect();
        let (mut hits, mut insertions) = (0, 0);
        let mut cached: Vec<u32> = vec![];
        for (now, &(block, _)) in self.accesses.iter().enumerate() {
            if let Some(at) = cached.iter().position(|&other| other == block) {
                hits += 1;
                if self.next_read(block, now).is_none() {
                    cached.remove(at);
                }
            } else if log.iter().any(|stay| stay.block == block && stay.from == now) {
                insertions += 1;
                if cached.len() == self.capacity {
                    // Of the blocks that the log does not hold at this time, the one that is read last.
                    let holds =
                        |other: u32| log.iter().any(|stay| stay.block == other && stay.from <= now && now < stay.until);
                    let last = self.last(cached.iter().copied().filter(|&other| !holds(other)), now).unwrap();
                    cached.retain(|&other| other != last);
                }
                cached.push(block);
            }
        }
        (hits, insertions)
    }
}
