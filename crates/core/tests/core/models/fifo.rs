use super::{Access, Model, Outcome, take};

/// `q` is in order of arrival.
pub struct Fifo {
    pub c: usize,
    pub q: Vec<u32>,
}

impl Model for Fifo {
    fn access(&mut self, access: Access<u32>) -> Outcome<u32> {
        if self.q.contains(&access.block) {
            return Outcome::Hit;
        }
        self.q.push(access.block);
        let evicted = if self.q.len() > self.c { Some(self.q.remove(0)) } else { None };
        Outcome::Admit { evicted }
    }

    fn remove(&mut self, block: u32) -> bool {
        take(&mut self.q, block)
    }
}
