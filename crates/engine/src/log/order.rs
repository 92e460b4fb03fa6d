//! Adds steps to the table of resources of unfinished steps, and removes them.

use flashwise_core::cache::Cache;
use flashwise_core::order::{Bond, StepId};
use flashwise_core::step::Step;
use smallvec::SmallVec;

use super::{Engine, Running};
use crate::engine::Bug;

impl<C: Cache<Step = Step>> Engine<C> {
    /// Returns the unfinished write of a client that goes only to the backend, if it is the last writer of a block.
    /// Until it succeeds, no client may see its content: a later read could return the old content.
    pub(super) fn undecided(&self, block: u32) -> Option<StepId> {
        let writer = self.order.blocks().writer(block)?;
        let step = &self.peek(writer).step;
        let is_undecided =
            matches!(step, Step::WriteBackend { acknowledged: false, replaces: false, logged: false, batch: None, .. });
        (is_undecided && self.settings.planted != Some(Bug::ShowsRefusedWrites)).then_some(writer)
    }

    /// Records the uses of a step; adds the steps that it waits for.
    pub(super) fn register(&mut self, id: StepId, waits: &mut Vec<(StepId, Bond)>) {
        if let Step::Send { block, .. } = self.peek(id).step {
            waits.extend(self.undecided(block).map(|write| (write, Bond::Sees)));
        }
        self.begin_uses(id, |other, bond| waits.push((other, bond)));
    }

    /// Removes the uses of a step that has ended.
    pub(super) fn unregister(&mut self, id: StepId, running: &Running<C>) {
        let mut idle: SmallVec<[u32; 4]> = SmallVec::new();
        self.end_uses(id, running, |place| idle.push(place));
        for place in idle {
            let is_free = !self.layout.enters && self.cache.is_free(self.layout.places.frame_at(place));
            self.layout.places.idle(place, is_free);
        }
    }
}
