use super::{Access, Model, Outcome, take};

/// Queues with their heads at 0, and the data of all blocks ever seen, by number.
pub struct Mq {
    c: usize,
    q: Vec<Vec<u32>>,
    q_out: Vec<u32>,
    q_out_max: usize,
    reference: Vec<u64>,
    expire_time: Vec<u64>,
    last_access: Vec<u64>,
    current_time: u64,
    life_time: u64,
    /// Powers of two with the numbers of accesses at distances up to the next one; the peak first. `None` if `lifeTime`
    /// is fixed.
    distances: Option<Vec<(u64, u64)>>,
}

impl Mq {
    pub fn new(c: usize, m: usize, life: Option<u64>, q_out: f64) -> Self {
        let powers = || (0..40).map(|j| (1 << j, 0)).collect();
        Mq {
            c,
            q: vec![vec![]; m],
            q_out: vec![],
            q_out_max: (q_out * c as f64) as usize,
            reference: vec![0; 1000],
            expire_time: vec![0; 1000],
            last_access: vec![0; 1000],
            current_time: 0,
            life_time: life.unwrap_or(c as u64),
            distances: if life.is_some() { None } else { Some(powers()) },
        }
    }

    fn evict(&mut self) -> Option<u32> {
        if self.q.iter().map(Vec::len).sum::<usize>() < self.c {
            return None;
        }
        let lowest = self.q.iter_mut().find(|q| !q.is_empty())?;
        let victim = lowest.remove(0);
        self.q_out.push(victim);
        if self.q_out.len() > self.q_out_max {
            self.q_out.remove(0);
        }
        Some(victim)
    }

    fn count_distance(&mut self, distance: u64) {
        let Some(distances) = &mut self.distances else { return };
        for (power, accesses) in distances.iter_mut() {
            if *power <= distance && distance < *power * 2 {
                *accesses += 1;
            }
        }
        // Stable, so that the peak stays first among equals.
        distances.sort_by_key(|(_, accesses)| std::cmp::Reverse(*accesses));
        self.life_time = u64::max(distances[0].0 * 2, self.c as u64);
    }
}

impl Model for Mq {
    fn access(&mut self, access: Access<u32>) -> Outcome<u32> {
        let (b, at) = (access.block, access.block as usize);
        let hit = self.q.iter_mut().any(|q| take(q, b));
        let evicted = if hit { None } else { self.evict() };
        if hit || take(&mut self.q_out, b) {
            self.count_distance(self.current_time - self.last_access[at]);
        } else {
            self.reference[at] = 0;
        }
        self.reference[at] += 1;
        self.last_access[at] = self.current_time;
        self.expire_time[at] = self.current_time + self.life_time;
        let mut k = 0;
        while k + 1 < self.q.len() && self.reference[at] >= 1 << (k + 1) {
            k += 1;
        }
        self.q[k].push(b);
        self.current_time += 1;
        for k in 1..self.q.len() {
            if !self.q[k].is_empty() && self.expire_time[self.q[k][0] as usize] < self.current_time {
                let sinking = self.q[k].remove(0);
                self.q[k - 1].push(sinking);
                self.expire_time[sinking as usize] = self.current_time + self.life_time;
            }
        }
        if hit { Outcome::Hit } else { Outcome::Admit { evicted } }
    }

    fn remove(&mut self, block: u32) -> bool {
        take(&mut self.q_out, block);
        self.q.iter_mut().any(|q| take(q, block))
    }
}
