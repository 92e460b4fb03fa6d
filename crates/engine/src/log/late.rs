//! Segments that wait for a hanging backend: they are written without its blocks, so that flushes and later segments
//! need not wait.

use flashwise_core::cache::Cache;
use flashwise_core::order::Bond;
use flashwise_core::step::Step;

use super::Engine;

/// A step that takes longer is late.
const LATE_US: u64 = 500_000;
/// The interval between searches.
const LOOK_US: u64 = 50_000;

impl<C: Cache<Step = Step>> Engine<C> {
    /// Writes segments without blocks whose read from the backend takes too long; these blocks are not cached. After a
    /// slow write or flush of the backend, a segment does not mark blocks as clean.
    pub(super) fn go_without_late(&mut self) {
        if self.order.pages_are_idle() || self.now_us < self.layout.look_for_late_us || !self.settings.pauses {
            return;
        }
        self.layout.look_for_late_us = self.now_us + LOOK_US;
        // Segments that go without a place, or without a flush, from now on.
        let mut found = Vec::new();
        let before_us = self.now_us.saturating_sub(LATE_US);
        for running in self.steps.iter_mut().flatten() {
            if running.state.planned_us > before_us {
                continue;
            }
            let read = match running.step {
                Step::ReadBackend { frame, .. } => Some(frame.number),
                Step::FlushBackend { batch: None } | Step::WriteBackend { batch: None, .. } => None,
                _ => continue,
            };
            running.dependents.retain(|&mut (id, _)| {
                let leaves = self.order.writes_pages(id);
                if leaves {
                    found.push((id, read));
                }
                !leaves
            });
        }
        for (id, read) in found {
            let append = self.step(id);
            match read {
                Some(place) => append.state.late.push(place),
                None => append.broken.add(Bond::Trusts),
            }
            self.wait_less(id);
        }
        self.run_ready();
    }
}
