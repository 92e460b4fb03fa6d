use flashwise_core::sketch::{BlockHash, Sketch};

use super::{Access, Model, Outcome, take};

/// The window and the two segments of the main cache, each most recently used first. The sketch is the policy's own,
/// which has its own tests.
pub struct WTinyLfu {
    window_max: usize,
    main_max: usize,
    protected_max: usize,
    window: Vec<u32>,
    probation: Vec<u32>,
    protected: Vec<u32>,
    sketch: Sketch,
    /// Accesses in a sample, and for each of the current one a flag if it was a hit.
    climb: Option<(usize, Vec<bool>)>,
    step: f64,
    hit_ratio: f64,
}

impl WTinyLfu {
    pub fn new(c: usize, window: f64, protected: f64, sample: f64, doorkeeper: bool) -> Self {
        let window_max = (window * c as f64).ceil() as usize;
        let main_max = c - window_max;
        WTinyLfu {
            window_max,
            main_max,
            protected_max: (protected * main_max as f64) as usize,
            window: vec![],
            probation: vec![],
            protected: vec![],
            sketch: Sketch::new(c, (sample * c as f64) as u64, doorkeeper),
            climb: None,
            step: -0.0625 * c as f64,
            hit_ratio: 0.0,
        }
    }

    /// Sets the climber's sample, in multiples of the cache's blocks.
    pub fn climbing(self, sample: f64) -> Self {
        let c = (self.window_max + self.main_max) as f64;
        WTinyLfu { climb: Some(((sample * c) as usize, vec![])), ..self }
    }

    fn climb(&mut self, hit: bool) {
        let c = self.window_max + self.main_max;
        let len = self.window.len() + self.probation.len() + self.protected.len();
        let Some((sample, outcomes)) = &mut self.climb else { return };
        if len < c {
            return;
        }
        outcomes.push(hit);
        if outcomes.len() < *sample {
            return;
        }
        let hit_ratio = outcomes.iter().filter(|&&hit| hit).count() as f64 / outcomes.len() as f64;
        outcomes.clear();
        let change = hit_ratio - self.hit_ratio;
        if change < 0.0 {
            self.step = -self.step;
        }
        let mut blocks = self.step as i64;
        self.step = if change.abs() >= 0.05 { 0.0625 * c as f64 * self.step.signum() } else { self.step * 0.98 };
        self.hit_ratio = hit_ratio;
        // One block after the other, with the same result.
        while blocks < 0 && self.window_max > 1 {
            blocks += 1;
            (self.window_max, self.main_max, self.protected_max) =
                (self.window_max - 1, self.main_max + 1, self.protected_max + 1);
        }
        while blocks > 0 && self.protected_max > 0 {
            blocks -= 1;
            (self.window_max, self.main_max, self.protected_max) =
                (self.window_max + 1, self.main_max - 1, self.protected_max - 1);
        }
        while self.window.len() > self.window_max {
            self.probation.splice(0..0, self.window.pop());
        }
        while self.protected.len() > self.protected_max {
            self.probation.splice(0..0, self.protected.pop());
        }
        while self.probation.len() + self.protected.len() > self.main_max {
            let last = self.probation.pop().or_else(|| self.protected.pop());
            self.window.splice(0..0, last);
        }
    }

    fn estimate(&self, block: u32) -> u64 {
        self.sketch.estimate(BlockHash::new(&block))
    }
}

impl Model for WTinyLfu {
    fn access(&mut self, access: Access<u32>) -> Outcome<u32> {
        let outcome = self.cache(access);
        self.climb(outcome == Outcome::Hit);
        outcome
    }

    fn remove(&mut self, block: u32) -> bool {
        [&mut self.window, &mut self.probation, &mut self.protected].into_iter().any(|queue| take(queue, block))
    }
}

impl WTinyLfu {
    fn cache(&mut self, access: Access<u32>) -> Outcome<u32> {
        let x = access.block;
        self.sketch.add(BlockHash::new(&x));
        if take(&mut self.window, x) {
            self.window.insert(0, x);
            return Outcome::Hit;
        }
        if take(&mut self.probation, x) || take(&mut self.protected, x) {
            self.protected.insert(0, x);
            if self.protected.len() > self.protected_max {
                self.probation.splice(0..0, self.protected.pop());
            }
            return Outcome::Hit;
        }
        self.window.insert(0, x);
        if self.window.len() <= self.window_max {
            return Outcome::Admit { evicted: None };
        }
        let candidate = self.window.remove(self.window_max);
        let mut evicted = None;
        if self.probation.len() + self.protected.len() == self.main_max {
            let segment = if self.probation.is_empty() { &self.protected } else { &self.probation };
            let victim = segment.last().copied();
            if victim.is_none_or(|victim| self.estimate(candidate) <= self.estimate(victim)) {
                return if candidate == x { Outcome::Bypass } else { Outcome::Admit { evicted: Some(candidate) } };
            }
            evicted = victim;
            self.probation.retain(|block| victim != Some(*block));
            self.protected.retain(|block| victim != Some(*block));
        }
        self.probation.insert(0, candidate);
        Outcome::Admit { evicted }
    }
}
