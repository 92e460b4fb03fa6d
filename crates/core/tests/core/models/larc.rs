use flashwise_core::access::Op;

use super::{Access, Model, Outcome, take};

/// Algorithm 1 and the refused blocks of section V.B, with its queues most recently used first.
pub struct Larc {
    c: f64,
    c_r: f64,
    q: Vec<u32>,
    q_r: Vec<u32>,
    fill_admits: bool,
    writes_admit: bool,
}

impl Larc {
    pub fn new(c: usize, fill_admits: bool, writes_admit: bool) -> Self {
        let c = c as f64;
        Larc { c, c_r: 0.1 * c, q: vec![], q_r: vec![], fill_admits, writes_admit }
    }
}

impl Larc {
    /// Once full, it never fills freely again.
    fn note_fill(&mut self) {
        self.fill_admits = self.fill_admits && (self.q.len() as f64) < self.c;
    }
}

impl Model for Larc {
    fn access(&mut self, access: Access<u32>) -> Outcome<u32> {
        let b = access.block;
        if take(&mut self.q, b) {
            self.q.insert(0, b);
            self.c_r = f64::max(0.1 * self.c, self.c_r - self.c / (self.c - self.c_r));
            return Outcome::Hit;
        }
        self.c_r = f64::min(0.9 * self.c, self.c_r + self.c / self.c_r);
        let full = self.q.len() as f64 >= self.c;
        self.note_fill();
        let seen = take(&mut self.q_r, b);
        if seen || (self.fill_admits) || (self.writes_admit && access.op == Op::Write) {
            self.q.insert(0, b);
            let evicted = if full { self.q.pop() } else { None };
            return Outcome::Admit { evicted };
        }
        self.q_r.insert(0, b);
        if self.q_r.len() as f64 > self.c_r {
            self.q_r.pop();
        }
        Outcome::Bypass
    }

    fn remove(&mut self, block: u32) -> bool {
        take(&mut self.q_r, block);
        self.note_fill();
        take(&mut self.q, block)
    }

    fn refuse(&mut self, block: u32) {
        self.note_fill();
        assert!(take(&mut self.q, block));
        self.q_r.push(block);
        if self.q_r.len() as f64 > self.c_r {
            self.q_r.pop();
        }
    }
}
