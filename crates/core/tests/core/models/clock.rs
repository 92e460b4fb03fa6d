use super::{Access, Model, Outcome};

/// The circle of blocks, each with its uses. A new block enters just behind the hand.
pub struct Clock {
    pub c: usize,
    pub uses_max: u32,
    /// From the hand, round to the position behind it.
    pub circle: Vec<(u32, u32)>,
}

impl Model for Clock {
    fn access(&mut self, access: Access<u32>) -> Outcome<u32> {
        if let Some((_, uses)) = self.circle.iter_mut().find(|(block, _)| *block == access.block) {
            *uses = (*uses + 1).min(self.uses_max);
            return Outcome::Hit;
        }
        let mut evicted = None;
        if self.circle.len() == self.c {
            while self.circle[0].1 > 0 {
                self.circle[0].1 -= 1;
                self.circle.rotate_left(1);
            }
            evicted = Some(self.circle.remove(0).0);
        }
        self.circle.push((access.block, 0));
        Outcome::Admit { evicted }
    }

    fn remove(&mut self, block: u32) -> bool {
        let cached = self.circle.len();
        self.circle.retain(|(other, _)| *other != block);
        self.circle.len() < cached
    }
}
