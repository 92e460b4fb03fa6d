use super::{Access, Model, Outcome, take};

/// The full version, with its queues' heads at 0.
pub struct TwoQ {
    c: usize,
    kin: f64,
    kout: f64,
    a1in: Vec<u32>,
    a1out: Vec<u32>,
    am: Vec<u32>,
}

impl TwoQ {
    pub fn new(c: usize, kin: f64, kout: f64) -> Self {
        TwoQ { c, kin: kin * c as f64, kout: kout * c as f64, a1in: vec![], a1out: vec![], am: vec![] }
    }

    fn reclaim(&mut self) -> Option<u32> {
        if self.a1in.len() + self.am.len() < self.c {
            return None;
        }
        if self.a1in.len() as f64 > self.kin || self.am.is_empty() {
            let y = self.a1in.pop()?;
            self.a1out.insert(0, y);
            if self.a1out.len() as f64 > self.kout {
                self.a1out.pop();
            }
            return Some(y);
        }
        self.am.pop()
    }
}

impl Model for TwoQ {
    fn access(&mut self, access: Access<u32>) -> Outcome<u32> {
        let x = access.block;
        if take(&mut self.am, x) {
            self.am.insert(0, x);
            return Outcome::Hit;
        }
        if self.a1in.contains(&x) {
            return Outcome::Hit;
        }
        let again = self.a1out.contains(&x);
        let evicted = self.reclaim();
        if again {
            take(&mut self.a1out, x);
            self.am.insert(0, x);
        } else {
            self.a1in.insert(0, x);
        }
        Outcome::Admit { evicted }
    }

    fn remove(&mut self, block: u32) -> bool {
        take(&mut self.a1out, block);
        take(&mut self.a1in, block) || take(&mut self.am, block)
    }
}
