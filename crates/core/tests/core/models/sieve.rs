use super::{Access, Model, Outcome};

/// Algorithm 1. `t` is head first: each block with its visited bit. `hand` is the block under the hand.
pub struct Sieve {
    pub c: usize,
    pub t: Vec<(u32, bool)>,
    pub hand: Option<u32>,
}

impl Model for Sieve {
    fn access(&mut self, access: Access<u32>) -> Outcome<u32> {
        let x = access.block;
        if let Some((_, visited)) = self.t.iter_mut().find(|(block, _)| *block == x) {
            *visited = true;
            return Outcome::Hit;
        }
        let mut evicted = None;
        if self.t.len() == self.c {
            let tail = self.c - 1;
            let mut o = self.t.iter().position(|(block, _)| Some(*block) == self.hand).unwrap_or(tail);
            while self.t[o].1 {
                self.t[o].1 = false;
                o = o.checked_sub(1).unwrap_or(tail);
            }
            self.hand = o.checked_sub(1).map(|prev| self.t[prev].0);
            evicted = Some(self.t.remove(o).0);
        }
        self.t.insert(0, (x, false));
        Outcome::Admit { evicted }
    }

    fn remove(&mut self, block: u32) -> bool {
        let Some(at) = self.t.iter().position(|(other, _)| *other == block) else { return false };
        if self.hand == Some(block) {
            self.hand = at.checked_sub(1).map(|prev| self.t[prev].0);
        }
        self.t.remove(at);
        true
    }
}
