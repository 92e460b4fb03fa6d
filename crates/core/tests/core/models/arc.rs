use super::{Access, Model, Outcome, take};

/// Figure 4, with the MRU end of each list last.
pub struct Arc {
    c: usize,
    p: f64,
    t1: Vec<u32>,
    t2: Vec<u32>,
    b1: Vec<u32>,
    b2: Vec<u32>,
}

impl Arc {
    pub fn new(c: usize) -> Self {
        Arc { c, p: 0.0, t1: vec![], t2: vec![], b1: vec![], b2: vec![] }
    }

    fn replace(&mut self, x: u32) -> Option<u32> {
        if self.t1.len() + self.t2.len() < self.c {
            return None;
        }
        let t1 = self.t1.len() as f64;
        if !self.t1.is_empty() && (t1 > self.p || (self.b2.contains(&x) && t1 == self.p)) {
            self.b1.push(self.t1.remove(0));
            self.b1.last().copied()
        } else {
            self.b2.push(self.t2.remove(0));
            self.b2.last().copied()
        }
    }
}

impl Model for Arc {
    fn access(&mut self, access: Access<u32>) -> Outcome<u32> {
        let x = access.block;
        let (b1, b2) = (self.b1.len() as f64, self.b2.len() as f64);
        if take(&mut self.t1, x) || take(&mut self.t2, x) {
            self.t2.push(x);
            return Outcome::Hit;
        }
        if self.b1.contains(&x) {
            self.p = f64::min(self.c as f64, self.p + f64::max(1.0, b2 / b1));
            let evicted = self.replace(x);
            take(&mut self.b1, x);
            self.t2.push(x);
            return Outcome::Admit { evicted };
        }
        if self.b2.contains(&x) {
            self.p = f64::max(0.0, self.p - f64::max(1.0, b1 / b2));
            let evicted = self.replace(x);
            take(&mut self.b2, x);
            self.t2.push(x);
            return Outcome::Admit { evicted };
        }
        let l1 = self.t1.len() + self.b1.len();
        let l2 = self.t2.len() + self.b2.len();
        let mut evicted = None;
        if l1 == self.c && self.t1.len() < self.c {
            self.b1.remove(0);
            evicted = self.replace(x);
        } else if l1 == self.c {
            evicted = Some(self.t1.remove(0));
        } else if l1 + l2 >= self.c {
            if l1 + l2 == 2 * self.c {
                self.b2.remove(0);
            }
            evicted = self.replace(x);
        }
        self.t1.push(x);
        Outcome::Admit { evicted }
    }

    fn remove(&mut self, block: u32) -> bool {
        let cached = take(&mut self.t1, block) || take(&mut self.t2, block);
        take(&mut self.b1, block);
        take(&mut self.b2, block);
        cached
    }
}
