//! Tracks requests between map lookup and cache: a change of the map waits for lookups before it.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::time::{self, Mutex};

/// Counts requests between map lookup and cache, per epoch.
#[derive(Debug, Default)]
pub struct Gate {
    turn: AtomicU64,
    inside: [AtomicU64; 2],
    waiting: Mutex<()>,
}

/// A counted request.
pub struct Pass<'a>(&'a AtomicU64);

impl Gate {
    /// Enters, before the map lookup.
    pub fn enter(&self) -> Pass<'_> {
        loop {
            let turn = self.turn.load(Ordering::SeqCst);
            let inside = &self.inside[(turn % 2) as usize];
            inside.fetch_add(1, Ordering::SeqCst);
            // A request counted in an ended epoch would not be waited for.
            if self.turn.load(Ordering::SeqCst) == turn {
                return Pass(inside);
            }
            inside.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Waits for all requests that entered earlier. Must not be called with a [`Pass`].
    pub fn drain(&self) {
        let _one_at_a_time = self.waiting.lock();
        let turn = self.turn.fetch_add(1, Ordering::SeqCst);
        let mut rounds = 0u32;
        while self.inside[(turn % 2) as usize].load(Ordering::SeqCst) > 0 {
            rounds += 1;
            match rounds {
                ..64 => std::thread::yield_now(),
                _ => time::sleep(std::time::Duration::from_micros(50)),
            }
        }
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn draining_waits_for_earlier_requests_but_not_for_later_ones() {
        let gate = Gate::default();
        let early = gate.enter();
        let drained = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                gate.drain();
                drained.store(true, Ordering::SeqCst);
            });
            while gate.turn.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            let late = gate.enter();
            assert!(!drained.load(Ordering::SeqCst));
            drop(early);
            while !drained.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            drop(late);
        });
    }
}
