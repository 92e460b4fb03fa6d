use super::{Access, Model, Outcome, take};

/// An entry of the stack. Among the two of a block, the one nearer to the top is its last access.
#[derive(Clone, Copy, Debug)]
struct Instance {
    block: u32,
    /// True for the second instance of a block that was accessed once.
    placeholder: bool,
}

/// The stack with its bottom first, with both instances of every block accessed and not removed.
pub struct Lirs2 {
    l_lirs: usize,
    c: usize,
    n_max: usize,
    stack: Vec<Instance>,
    lir: Vec<u32>,
    /// Cached HIR blocks and uncached ones, the next to leave first.
    q: Vec<u32>,
    n: Vec<u32>,
    latest: Option<u32>,
}

impl Lirs2 {
    pub fn new(c: usize, hirs: f64, ghosts: f64) -> Self {
        let l_hirs = 1.max((hirs * c as f64) as usize);
        let n_max = (ghosts * c as f64) as usize;
        Lirs2 { l_lirs: c - l_hirs, c, n_max, stack: vec![], lir: vec![], q: vec![], n: vec![], latest: None }
    }

    /// Returns the positions of instance 2 and instance 1 of `block`.
    fn instances(&self, block: u32) -> Option<[usize; 2]> {
        let mut at = (0..self.stack.len()).filter(|&at| self.stack[at].block == block);
        Some([at.next()?, at.next()?])
    }

    /// Returns the position of R_max2: the deepest instance 2 of a LIR block, which is the deepest of all its
    /// instances.
    fn rmax2(&self) -> Option<usize> {
        self.stack.iter().position(|instance| self.lir.contains(&instance.block))
    }

    /// True if `block` is nowhere above R_max2, so it no longer counts.
    fn is_below(&self, block: u32) -> bool {
        let last = self.instances(block).map(|[_, first]| first);
        self.lir.is_empty() || last < self.rmax2()
    }

    fn forget(&mut self, block: u32) {
        self.stack.retain(|instance| instance.block != block);
    }

    fn evict(&mut self) -> Option<u32> {
        if self.lir.len() + self.q.len() < self.c {
            return None;
        }
        let evicted = self.q.remove(0);
        if self.is_below(evicted) {
            self.forget(evicted);
        } else {
            self.n.push(evicted);
        }
        Some(evicted)
    }

    /// Forgets uncached blocks whose last access is below R_max2, in order.
    fn bound(&mut self) {
        while let Some(&oldest) = self.n.first()
            && (self.n.len() > self.n_max || self.is_below(oldest))
        {
            self.n.remove(0);
            self.forget(oldest);
        }
    }
}

impl Model for Lirs2 {
    fn access(&mut self, access: Access<u32>) -> Outcome<u32> {
        let block = access.block;
        let hit = self.lir.contains(&block) || self.q.contains(&block);
        if self.latest.replace(block) == Some(block) && hit {
            return Outcome::Hit;
        }
        let promotes = self.instances(block).is_some_and(|[second, _]| {
            !self.stack[second].placeholder && !self.lir.is_empty() && Some(second) > self.rmax2()
        });
        let is_known = take(&mut self.n, block) || hit;
        let was_lir = self.lir.contains(&block);
        take(&mut self.q, block);
        let evicted = if hit { None } else { self.evict() };
        // Instance 2 moves to the top and becomes instance 1.
        match self.instances(block) {
            Some([second, _]) => {
                self.stack.remove(second);
            }
            None => self.stack.push(Instance { block, placeholder: true }),
        }
        self.stack.push(Instance { block, placeholder: false });
        if promotes && !was_lir {
            if self.lir.len() == self.l_lirs {
                let bottom = self.rmax2().expect("there are LIR blocks");
                let demoted = self.stack[bottom].block;
                take(&mut self.lir, demoted);
                self.q.push(demoted);
            }
            self.lir.push(block);
        } else if !is_known && self.lir.len() < self.l_lirs {
            self.lir.push(block);
        } else if !was_lir {
            self.q.push(block);
        }
        self.bound();
        if hit { Outcome::Hit } else { Outcome::Admit { evicted } }
    }

    fn remove(&mut self, block: u32) -> bool {
        let cached = take(&mut self.lir, block) || take(&mut self.q, block);
        if cached || take(&mut self.n, block) {
            self.forget(block);
        }
        self.bound();
        cached
    }
}
