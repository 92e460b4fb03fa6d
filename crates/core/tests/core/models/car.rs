use super::{Access, Model, Outcome, take};

/// Figure 2, with the head page of each list first. `t1` and `t2` hold each block with its page reference bit.
pub struct Car {
    c: usize,
    p: f64,
    t1: Vec<(u32, bool)>,
    t2: Vec<(u32, bool)>,
    b1: Vec<u32>,
    b2: Vec<u32>,
}

impl Car {
    pub fn new(c: usize) -> Self {
        Car { c, p: 0.0, t1: vec![], t2: vec![], b1: vec![], b2: vec![] }
    }

    fn replace(&mut self) -> Option<u32> {
        loop {
            if self.t1.len() as f64 >= f64::max(1.0, self.p) {
                match self.t1.remove(0) {
                    (page, false) => {
                        self.b1.push(page);
                        return Some(page);
                    }
                    (page, true) => self.t2.push((page, false)),
                }
            } else {
                match self.t2.remove(0) {
                    (page, false) => {
                        self.b2.push(page);
                        return Some(page);
                    }
                    (page, true) => self.t2.push((page, false)),
                }
            }
        }
    }
}

impl Model for Car {
    fn access(&mut self, access: Access<u32>) -> Outcome<u32> {
        let x = access.block;
        if let Some((_, bit)) = self.t1.iter_mut().chain(&mut self.t2).find(|(page, _)| *page == x) {
            *bit = true;
            return Outcome::Hit;
        }
        let evicted = if self.t1.len() + self.t2.len() == self.c { self.replace() } else { None };
        let in_history = self.b1.contains(&x) || self.b2.contains(&x);
        if !in_history && self.t1.len() + self.b1.len() == self.c && !self.b1.is_empty() {
            self.b1.remove(0);
        } else if !in_history && self.t1.len() + self.t2.len() + self.b1.len() + self.b2.len() == 2 * self.c {
            self.b2.remove(0);
        }
        let (b1, b2) = (self.b1.len() as f64, self.b2.len() as f64);
        if take(&mut self.b1, x) {
            self.p = f64::min(self.p + f64::max(1.0, b2 / b1), self.c as f64);
            self.t2.push((x, false));
        } else if take(&mut self.b2, x) {
            self.p = f64::max(self.p - f64::max(1.0, b1 / b2), 0.0);
            self.t2.push((x, false));
        } else {
            self.t1.push((x, false));
        }
        Outcome::Admit { evicted }
    }

    fn remove(&mut self, block: u32) -> bool {
        take(&mut self.b1, block);
        take(&mut self.b2, block);
        let cached = self.t1.len() + self.t2.len();
        self.t1.retain(|(page, _)| *page != block);
        self.t2.retain(|(page, _)| *page != block);
        self.t1.len() + self.t2.len() < cached
    }
}
