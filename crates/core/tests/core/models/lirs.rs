use super::{Access, Model, Outcome, take};

#[derive(Clone, Copy, PartialEq)]
enum Status {
    Lir,
    ResidentHir,
    NonResidentHir,
}

/// Section 3.3, with the stack as a stack: `s` with its top first, `q` with its end first.
pub struct Lirs {
    l_lirs: usize,
    l_hirs: usize,
    ghosts_max: f64,
    s: Vec<(u32, Status)>,
    q: Vec<u32>,
}

impl Lirs {
    pub fn new(c: usize, hirs: f64, ghosts: f64) -> Self {
        let l_hirs = ((hirs * c as f64) as usize).max(1);
        Lirs { l_lirs: c - l_hirs, l_hirs, ghosts_max: ghosts * c as f64, s: vec![], q: vec![] }
    }

    fn count(&self, status: Status) -> usize {
        self.s.iter().filter(|(_, s)| *s == status).count()
    }

    fn prune(&mut self) {
        while self.s.last().is_some_and(|(_, status)| *status != Status::Lir) {
            self.s.pop();
        }
    }

    /// Puts `x` on top of the stack as a LIR block. It replaces the LIR block at the bottom, which becomes HIR, or a
    /// removed block.
    fn promote(&mut self, x: u32) {
        self.s.insert(0, (x, Status::Lir));
        if self.count(Status::Lir) > self.l_lirs
            && let Some((bottom, _)) = self.s.pop()
        {
            self.q.insert(0, bottom);
        }
        self.prune();
    }

    fn evict(&mut self) -> Option<u32> {
        if self.count(Status::Lir) + self.q.len() < self.l_lirs + self.l_hirs {
            return None;
        }
        let evicted = self.q.pop();
        for (block, status) in &mut self.s {
            if Some(*block) == evicted {
                *status = Status::NonResidentHir;
            }
        }
        if self.count(Status::NonResidentHir) as f64 > self.ghosts_max {
            let deepest = self.s.iter().rposition(|(_, status)| *status == Status::NonResidentHir);
            self.s.remove(deepest.expect("there are some"));
        }
        evicted
    }
}

impl Model for Lirs {
    fn access(&mut self, access: Access<u32>) -> Outcome<u32> {
        let x = access.block;
        let at = self.s.iter().position(|(block, _)| *block == x);
        let on_stack = at.map(|at| self.s.remove(at).1);
        if on_stack == Some(Status::Lir) {
            self.s.insert(0, (x, Status::Lir));
            self.prune();
            return Outcome::Hit;
        }
        let hit = take(&mut self.q, x);
        let evicted = if hit { None } else { self.evict() };
        if on_stack.is_some() {
            self.promote(x);
        } else if !hit && self.count(Status::Lir) < self.l_lirs {
            self.s.insert(0, (x, Status::Lir));
        } else {
            self.s.insert(0, (x, Status::ResidentHir));
            self.q.insert(0, x);
            self.prune();
        }
        if hit { Outcome::Hit } else { Outcome::Admit { evicted } }
    }

    fn remove(&mut self, block: u32) -> bool {
        let at = self.s.iter().position(|(other, _)| *other == block);
        let on_stack = at.map(|at| self.s.remove(at).1);
        self.prune();
        take(&mut self.q, block) || on_stack == Some(Status::Lir)
    }
}
