use super::{Access, Model, Outcome};

#[derive(Clone, Copy)]
struct Block {
    number: u32,
    uses: u32,
    time: u32,
    new: bool,
    demoted: bool,
}

/// Queues in order of arrival, newest at the end, as in the authors' code: `s` is R, `q` is SR.
pub struct Cacheus {
    c: usize,
    s_limit: usize,
    s: Vec<Block>,
    q: Vec<Block>,
    histories: [Vec<Block>; 2],
    w: [f64; 2],
    time: u32,
    random: u64,
    rate: f64,
    rate_current: f64,
    rate_previous: f64,
    hits: u32,
    hit_rate_previous: f64,
    zero_count: u32,
    negative_count: u32,
}

fn take(queue: &mut Vec<Block>, number: u32) -> Option<Block> {
    let at = queue.iter().position(|block| block.number == number)?;
    Some(queue.remove(at))
}

fn round(x: f64) -> f64 {
    format!("{x:.3}").parse().expect("a number")
}

/// Rounds to at least 1.
fn delta(ratio: f64) -> usize {
    1.max((ratio + 0.5) as usize)
}

impl Cacheus {
    pub fn new(c: usize, seed: u64) -> Self {
        let rate = (2.0 * 2_f64.ln() / c as f64).sqrt();
        Cacheus {
            c,
            s_limit: c - delta(0.01 * c as f64),
            s: vec![],
            q: vec![],
            histories: [vec![], vec![]],
            w: [0.5, 0.5],
            time: 0,
            random: seed,
            rate,
            rate_current: rate,
            rate_previous: 0.0,
            hits: 0,
            hit_rate_previous: 0.0,
            zero_count: 0,
            negative_count: 0,
        }
    }

    fn draw(&mut self) -> f64 {
        (crate::workloads::random(&mut self.random) >> 11) as f64 / 2_f64.powi(53)
    }

    fn update_rate(&mut self) {
        let hit_rate = round(f64::from(self.hits) / self.c as f64);
        let difference = round(hit_rate - self.hit_rate_previous);
        let rate_difference = round(self.rate_current) - round(self.rate_previous);
        let change = (self.rate * rate_difference).abs();
        let direction = rate_difference * difference;
        if direction > 0.0 {
            self.rate = (self.rate + change).min(1.0);
        }
        if direction < 0.0 {
            self.rate = (self.rate - change).max(0.001);
        }
        if direction != 0.0 {
            (self.zero_count, self.negative_count) = (0, 0);
        }
        if direction == 0.0 && difference <= 0.0 {
            let reset = (2.0 * 2_f64.ln() / self.c as f64).sqrt().clamp(0.001, 1.0);
            if hit_rate == 0.0 && difference == 0.0 {
                self.zero_count += 1;
            }
            if difference < 0.0 {
                (self.zero_count, self.negative_count) = (self.zero_count + 1, self.negative_count + 1);
            }
            if self.zero_count >= 10 {
                (self.rate, self.zero_count) = (reset, 0);
            } else if difference < 0.0 && self.negative_count >= 10 {
                (self.rate, self.negative_count) = (reset, 0);
            } else if difference < 0.0 {
                self.rate = if self.rate >= 1.0 {
                    0.9
                } else if self.rate <= 0.001 {
                    0.005
                } else if self.draw() < 0.5 {
                    1_f64.min(self.rate * 1.25)
                } else {
                    0.001_f64.max(self.rate * 0.75)
                };
            }
        }
        self.rate_previous = self.rate_current;
        self.rate_current = self.rate;
        self.hit_rate_previous = hit_rate;
        self.hits = 0;
    }

    fn demoted(&self) -> usize {
        self.q.iter().filter(|block| block.demoted).count()
    }

    fn new_ones(&self) -> usize {
        self.histories[0].iter().filter(|block| block.new).count()
    }

    fn evict(&mut self) -> Option<u32> {
        if self.s.len() + self.q.len() < self.c {
            return None;
        }
        let lru = self.q.first().or(self.s.first()).expect("it is full").number;
        let cached = self.s.iter().chain(&self.q);
        // The most recent of the least used blocks.
        let lfu = cached.min_by_key(|block| (block.uses, u32::MAX - block.time)).expect("it is full").number;
        let expert = usize::from(self.draw() >= self.w[0]);
        let number = [lru, lfu][expert];
        let victim = take(&mut self.s, number).or_else(|| take(&mut self.q, number)).expect("it is cached");
        if lru != lfu {
            let history = &mut self.histories[expert];
            if history.len() == self.c / 2 {
                history.remove(0);
            }
            history.push(Block { demoted: false, ..victim });
        }
        Some(number)
    }

    fn demote(&mut self) {
        let block = self.s.remove(0);
        self.q.push(Block { demoted: true, ..block });
    }

    fn limit_stack(&mut self) {
        while self.s.len() >= self.s_limit && !self.s.is_empty() {
            self.demote();
        }
    }

    fn hit(&mut self, number: u32) -> bool {
        if let Some(x) = take(&mut self.s, number) {
            self.s.push(Block { uses: x.uses + 1, time: self.time, ..x });
            return true;
        }
        let (demoted, new) = (self.demoted(), self.new_ones());
        let Some(x) = take(&mut self.q, number) else { return false };
        if x.demoted {
            self.s_limit = (self.c - 1).min(self.s_limit + delta(new as f64 / demoted as f64));
        }
        if self.s.len() >= self.s_limit && !self.s.is_empty() {
            self.demote();
        }
        self.s.push(Block { uses: x.uses + 1, time: self.time, demoted: false, ..x });
        true
    }

    fn learn(&mut self, expert: usize) {
        self.w[expert] *= (-self.rate).exp();
        let sum = self.w[0] + self.w[1];
        self.w[0] = (self.w[0] / sum).clamp(1.0 - 0.99, 0.99);
        self.w[1] = 1.0 - self.w[0];
    }
}

impl Model for Cacheus {
    fn access(&mut self, access: Access<u32>) -> Outcome<u32> {
        let number = access.block;
        self.time += 1;
        if self.time.is_multiple_of(self.c as u32) {
            self.update_rate();
        }
        if self.hit(number) {
            self.hits += 1;
            return Outcome::Hit;
        }
        let mut block = Block { number, uses: 1, time: self.time, new: false, demoted: false };
        for expert in [0, 1] {
            let Some(ghost) = take(&mut self.histories[expert], number) else { continue };
            if expert == 0 && ghost.new {
                let q_limit = self.c - self.s_limit + delta(self.demoted() as f64 / self.new_ones().max(1) as f64);
                self.s_limit = self.c - q_limit.min(self.c - 1);
            }
            self.learn(expert);
            let evicted = self.evict();
            block.uses = ghost.uses;
            self.s.push(block);
            self.limit_stack();
            return Outcome::Admit { evicted };
        }
        let mut evicted = None;
        let q_limit = self.c - self.s_limit;
        if self.s.len() < self.s_limit && self.q.is_empty() {
            self.s.push(block);
        } else if self.s.len() + self.q.len() < self.c && self.q.len() < q_limit {
            self.q.push(block);
        } else {
            evicted = self.evict();
            self.q.push(Block { new: true, ..block });
            self.limit_stack();
        }
        Outcome::Admit { evicted }
    }

    fn remove(&mut self, block: u32) -> bool {
        let [lru, lfu] = &mut self.histories;
        take(lru, block);
        take(lfu, block);
        take(&mut self.s, block).or_else(|| take(&mut self.q, block)).is_some()
    }
}
