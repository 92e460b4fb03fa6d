use flashwise_core::access::NEVER;

use super::{Access, Model, Outcome};

/// `cached` holds each block with its next use, in the order of last accesses. Only next uses are foreseen.
pub struct Min {
    pub c: usize,
    pub cached: Vec<(u32, u32)>,
}

impl Model for Min {
    fn access(&mut self, access: Access<u32>) -> Outcome<u32> {
        if let Some(at) = self.cached.iter().position(|(block, _)| *block == access.block) {
            self.cached.remove(at);
            self.cached.push((access.block, access.next_use));
            return Outcome::Hit;
        }
        if access.next_use == NEVER {
            return Outcome::Bypass;
        }
        let mut evicted = None;
        if self.cached.len() == self.c {
            // Among equals, which are never used again, the last.
            let (at, next_use) = self
                .cached
                .iter()
                .map(|(_, next_use)| *next_use)
                .enumerate()
                .max_by_key(|(_, next_use)| *next_use)
                .expect("it is full");
            if next_use < access.next_use {
                return Outcome::Bypass;
            }
            evicted = Some(self.cached.remove(at).0);
        }
        self.cached.push((access.block, access.next_use));
        Outcome::Admit { evicted }
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
