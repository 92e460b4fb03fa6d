use super::{Access, Model, Outcome};

/// A block with its uses, and the time of its last use or eviction.
#[derive(Clone, Copy)]
struct Block {
    number: u32,
    uses: u32,
    time: i32,
}

/// Blocks in the order of last uses, and of evictions.
pub struct Lecar {
    c: usize,
    history_max: usize,
    rate: f64,
    d: f64,
    w: [f64; 2],
    time: i32,
    random: u64,
    cached: Vec<Block>,
    /// Of LRU and LFU.
    histories: [Vec<Block>; 2],
}

impl Lecar {
    pub fn new(c: usize, rate: f64, discount: f64, history: f64, seed: u64) -> Self {
        Lecar {
            c,
            history_max: (history * c as f64) as usize,
            rate,
            d: discount.powf(1.0 / c as f64),
            w: [0.5, 0.5],
            time: 0,
            random: seed,
            cached: vec![],
            histories: [vec![], vec![]],
        }
    }

    fn evict(&mut self) -> u32 {
        // The same random numbers as elsewhere in the tests.
        let draw = (crate::workloads::random(&mut self.random) >> 11) as f64 / 2_f64.powi(53);
        let expert = usize::from(draw >= self.w[0]);
        let lru = 0;
        let lfu = (0..self.cached.len()).min_by_key(|&at| self.cached[at].uses).expect("it is full");
        let mut victim = self.cached.remove([lru, lfu][expert]);
        if lru != lfu {
            victim.time = self.time;
            self.histories[expert].push(victim);
            if self.histories[expert].len() > self.history_max {
                self.histories[expert].remove(0);
            }
        }
        victim.number
    }
}

impl Model for Lecar {
    fn access(&mut self, access: Access<u32>) -> Outcome<u32> {
        self.time += 1;
        let mut block = Block { number: access.block, uses: 1, time: self.time };
        let is_it = |other: &Block| other.number == access.block;
        if let Some(at) = self.cached.iter().position(is_it) {
            block.uses = self.cached.remove(at).uses + 1;
            self.cached.push(block);
            return Outcome::Hit;
        }
        for expert in [0, 1] {
            if let Some(at) = self.histories[expert].iter().position(is_it) {
                let ghost = self.histories[expert].remove(at);
                let r = self.d.powf(f64::from(self.time - ghost.time));
                self.w[expert] *= (-self.rate * r).exp();
                let sum = self.w[0] + self.w[1];
                self.w[0] = (self.w[0] / sum).clamp(1.0 - 0.99, 0.99);
                self.w[1] = 1.0 - self.w[0];
                block.uses = ghost.uses + 1;
            }
        }
        let evicted = (self.cached.len() == self.c).then(|| self.evict());
        self.cached.push(block);
        Outcome::Admit { evicted }
    }

    fn remove(&mut self, block: u32) -> bool {
        let cached = self.cached.len();
        for queue in self.histories.iter_mut().chain([&mut self.cached]) {
            queue.retain(|other| other.number != block);
        }
        self.cached.len() < cached
    }
}
