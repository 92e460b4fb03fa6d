use super::{Access, Model, Outcome, take};

/// `q` is most recently used first.
pub struct Lru {
    pub c: usize,
    pub q: Vec<u32>,
}

impl Model for Lru {
    fn access(&mut self, access: Access<u32>) -> Outcome<u32> {
        let hit = take(&mut self.q, access.block);
        self.q.insert(0, access.block);
        if hit {
            return Outcome::Hit;
        }
        let evicted = if self.q.len() > self.c { self.q.pop() } else { None };
        Outcome::Admit { evicted }
    }

    fn remove(&mut self, block: u32) -> bool {
        take(&mut self.q, block)
    }
}
