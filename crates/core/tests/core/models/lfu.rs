use super::{Access, Model, Outcome};

/// Blocks with their frequencies and the times of their last uses, in no order.
pub struct Lfu {
    pub c: usize,
    pub time: u64,
    pub cached: Vec<(u32, u64, u64)>,
}

impl Model for Lfu {
    fn access(&mut self, access: Access<u32>) -> Outcome<u32> {
        self.time += 1;
        if let Some((_, frequency, last)) = self.cached.iter_mut().find(|(block, ..)| *block == access.block) {
            *frequency += 1;
            *last = self.time;
            return Outcome::Hit;
        }
        let mut evicted = None;
        if self.cached.len() == self.c {
            evicted =
                self.cached.iter().min_by_key(|(_, frequency, last)| (*frequency, *last)).map(|(block, ..)| *block);
            self.cached.retain(|(block, ..)| Some(*block) != evicted);
        }
        self.cached.push((access.block, 1, self.time));
        Outcome::Admit { evicted }
    }

    fn remove(&mut self, block: u32) -> bool {
        let cached = self.cached.len();
        self.cached.retain(|(other, ..)| *other != block);
        self.cached.len() < cached
    }
}
