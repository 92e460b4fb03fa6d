use super::{Access, Model, Outcome, take};

/// Algorithm 1. Queues are head first; `s` and `m` hold each block with its freq.
pub struct S3Fifo {
    c: f64,
    small: f64,
    ghost: f64,
    threshold: u32,
    s: Vec<(u32, u32)>,
    m: Vec<(u32, u32)>,
    g: Vec<u32>,
    shipped: bool,
    evictions: u32,
}

impl S3Fifo {
    pub fn new(c: usize, small: f64, ghost: f64, threshold: u32) -> Self {
        let c = c as f64;
        S3Fifo {
            c,
            small: small * c,
            ghost: ghost * c,
            threshold,
            s: vec![],
            m: vec![],
            g: vec![],
            shipped: false,
            evictions: 0,
        }
    }

    /// libCacheSim's variant.
    pub fn shipped(self) -> Self {
        S3Fifo { small: self.small.floor(), ghost: self.ghost.floor(), shipped: true, ..self }
    }

    fn access_shipped(&mut self, x: u32) -> Outcome<u32> {
        let was_ghost = take(&mut self.g, x);
        let mut evicted = None;
        while (self.s.len() + self.m.len()) as f64 == self.c {
            self.evictions += 1;
            if self.m.len() as f64 > self.c - self.small || self.s.is_empty() {
                evicted = self.evict_m();
                continue;
            }
            let (t, freq) = self.s.pop().expect("S is not empty");
            if freq > self.threshold {
                self.m.insert(0, (t, 0));
                // It continues with S until that is empty, for any number of blocks in M.
                while evicted.is_none()
                    && let Some((t, freq)) = self.s.pop()
                {
                    match freq > self.threshold {
                        true => self.m.insert(0, (t, 0)),
                        false => evicted = Some(t),
                    }
                }
            } else {
                evicted = Some(t);
            }
            self.g.splice(0..0, evicted);
            self.g.truncate(self.ghost as usize);
        }
        if was_ghost || (self.evictions == 0 && self.s.len() as f64 >= self.small) {
            self.m.insert(0, (x, 0));
        } else {
            self.s.insert(0, (x, 0));
        }
        Outcome::Admit { evicted }
    }

    fn evict(&mut self) -> Option<u32> {
        if !self.s.is_empty() && self.s.len() as f64 >= self.small { self.evict_s() } else { self.evict_m() }
    }

    fn evict_s(&mut self) -> Option<u32> {
        while let Some((t, freq)) = self.s.pop() {
            if freq <= self.threshold {
                self.g.insert(0, t);
                if self.g.len() as f64 > self.ghost {
                    self.g.pop();
                }
                return Some(t);
            }
            self.m.insert(0, (t, 0));
            if self.m.len() as f64 > self.c - self.small {
                return self.evict_m();
            }
        }
        None
    }

    fn evict_m(&mut self) -> Option<u32> {
        while let Some((t, freq)) = self.m.pop() {
            if freq == 0 {
                return Some(t);
            }
            self.m.insert(0, (t, freq - 1));
        }
        None
    }
}

impl Model for S3Fifo {
    fn access(&mut self, access: Access<u32>) -> Outcome<u32> {
        let x = access.block;
        if let Some((_, freq)) = self.s.iter_mut().chain(&mut self.m).find(|(block, _)| *block == x) {
            *freq = u32::min(*freq + 1, 3);
            return Outcome::Hit;
        }
        if self.shipped {
            return self.access_shipped(x);
        }
        let mut evicted = None;
        while (self.s.len() + self.m.len()) as f64 == self.c {
            evicted = self.evict();
        }
        if take(&mut self.g, x) {
            self.m.insert(0, (x, 0));
        } else {
            self.s.insert(0, (x, 0));
        }
        Outcome::Admit { evicted }
    }

    fn remove(&mut self, block: u32) -> bool {
        take(&mut self.g, block);
        let cached = self.s.len() + self.m.len();
        self.s.retain(|(other, _)| *other != block);
        self.m.retain(|(other, _)| *other != block);
        self.s.len() + self.m.len() < cached
    }
}
