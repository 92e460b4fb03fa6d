use super::{Access, Model, Outcome, take};

/// Segments from the lowest, each least recently used first.
pub struct Slru {
    c: usize,
    protected_max: usize,
    segments: Vec<Vec<u32>>,
}

impl Slru {
    pub fn new(c: usize, segments: usize, protected: f64) -> Self {
        let protected_max = (protected * c as f64 / (segments - 1) as f64) as usize;
        Slru { c, protected_max, segments: vec![vec![]; segments] }
    }
}

impl Model for Slru {
    fn access(&mut self, access: Access<u32>) -> Outcome<u32> {
        let x = access.block;
        let top = self.segments.len() - 1;
        if let Some(at) = self.segments.iter_mut().position(|segment| take(segment, x)) {
            let to = usize::min(at + 1, top);
            self.segments[to].push(x);
            for above in (1..=top).rev() {
                while self.segments[above].len() > self.protected_max {
                    let demoted = self.segments[above].remove(0);
                    self.segments[above - 1].push(demoted);
                }
            }
            return Outcome::Hit;
        }
        let mut evicted = None;
        if self.segments.iter().map(Vec::len).sum::<usize>() == self.c {
            let lowest = self.segments.iter_mut().find(|segment| !segment.is_empty()).expect("it is full");
            evicted = Some(lowest.remove(0));
        }
        self.segments[0].push(x);
        Outcome::Admit { evicted }
    }

    fn remove(&mut self, block: u32) -> bool {
        self.segments.iter_mut().any(|segment| take(segment, block))
    }
}
