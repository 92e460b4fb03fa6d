//! Adds steps to the table of resources of unfinished steps, and removes them.

use flashwise_core::cache::Cache;
use flashwise_core::format::Geometry;
use flashwise_core::order::{Bond, StepId, Use};
use flashwise_core::step::Step;
use smallvec::SmallVec;

use super::{Engine, Running};
use crate::engine::Bug;

/// Calls `each` with each resource of a step. A read with a `source` gets its content from that place in memory, not
/// from the flash.
fn for_each_use(step: &Step, source: Option<u32>, geometry: Geometry, mut each: impl FnMut(Use, Bond)) {
    step.uses(geometry, |used, bond| match (used, source) {
        (Use::AfterPages(_), Some(place)) => each(Use::ReadMemory(place), Bond::Needs),
        (used, _) => each(used, bond),
    });
}

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
        let Running { step, state, .. } = self.steps[id as usize].as_ref().expect("the step is unfinished");
        if let Step::Send { block, .. } = step {
            waits.extend(self.undecided(*block).map(|write| (write, Bond::Sees)));
        }
        let order = &mut self.order;
        for_each_use(step, state.source, self.cache.geometry(), |used, bond| {
            order.begin(id, used, |other| waits.push((other, bond)));
        });
    }

    /// Removes the uses of a step that has ended.
    pub(super) fn unregister(&mut self, id: StepId, running: &Running<C>) {
        let (order, geometry) = (&mut self.order, self.cache.geometry());
        let mut idle: SmallVec<[u32; 4]> = SmallVec::new();
        let mut end = |used: Use| {
            let place = match used {
                Use::ReadMemory(place) | Use::WriteMemory(place) => Some(place),
                _ => None,
            };
            order.end(id, used);
            idle.extend(place.filter(|&place| order.place(place).is_idle()));
        };
        match &running.state.run {
            Some(run) => run.uses(end),
            None => for_each_use(&running.step, running.state.source, geometry, |used, _| end(used)),
        }
        for place in idle {
            let is_free = !self.layout.enters && self.cache.is_free(self.layout.places.frame_at(place));
            self.layout.places.idle(place, is_free);
        }
    }
}
