use flashwise_core::access::NEVER;

use super::{Access, Model, Outcome};

/// `cached` holds each block with its next use, in the order of their last accesses.
pub struct Fif {
    pub c: usize,
    pub cached: Vec<(u32, u32)>,
}

impl Model for Fif {
    fn access(&mut self, access: Access<u32>) -> Outcome<u32> {
        let cached = self.cached.len();
        self.cached.retain(|(block, _)| *block != access.block);
        let hit = self.cached.len() < cached;
        let mut evicted = None;
        if self.cached.len() == self.c {
            // Among equals, which are never used again, the last.
            let furthest = self.cached.iter().enumerate().max_by_key(|(_, (_, next_use))| *next_use);
            evicted = furthest.map(|(at, _)| at).map(|at| self.cached.remove(at).0);
        }
        self.cached.push((access.block, access.next_use));
        if hit { Outcome::Hit } else { Outcome::Admit { evicted } }
    }

    fn remove(&mut self, block: u32) -> bool {
        let Some(at) = self.cached.iter().position(|(other, _)| *other == block) else { return false };
        if self.cached[at].1 == NEVER {
            // The last block that is never used again takes its place.
            let last = self.cached.iter().rposition(|(_, next_use)| *next_use == NEVER).expect("there is one");
            self.cached.swap(at, last);
            self.cached.remove(last);
        } else {
            self.cached.remove(at);
        }
        true
    }
}
