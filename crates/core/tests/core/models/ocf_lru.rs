use super::{Access, Model, Outcome, take};

/// One queue, head first; its first half is hot.
pub struct OcfLru {
    pub c: usize,
    pub q: Vec<u32>,
}

impl Model for OcfLru {
    fn access(&mut self, access: Access<u32>) -> Outcome<u32> {
        if let Some(at) = self.q.iter().position(|&block| block == access.block) {
            if at >= self.q.len() / 2 {
                self.q.remove(at);
                self.q.insert(0, access.block);
            }
            return Outcome::Hit;
        }
        let evicted = if self.q.len() == self.c { self.q.pop() } else { None };
        self.q.insert(0, access.block);
        Outcome::Admit { evicted }
    }

    fn remove(&mut self, block: u32) -> bool {
        take(&mut self.q, block)
    }
}
