//! WLFC's implementation of the common interface of caches.
//!
//! Its only work on its own is to [retry](super::failing) failed writes to the backend; all other write-backs make room
//! for a request. It plans as if all earlier plans were executed. If a step that it relies on fails, its driver
//! [recovers the cache](super::recover_around) from the flash.

use super::load::Cover;
use super::{Figures, Step, Wlfc, check};
use crate::cache::{Cache, Event};
use crate::format::Geometry;

impl Cache for Wlfc {
    type Step = Step;
    type Figures = Figures;

    #[inline]
    fn on(&mut self, event: Event<'_, Step>, steps: &mut Vec<Step>) {
        match event {
            Event::Request { request, .. } if self.frozen => self.plan_frozen(request, steps),
            Event::Request { request, .. } => self.plan(request, steps),
            Event::DestageAll { .. } => self.destage_all(steps),
            Event::Close { .. } => self.close(steps),
            Event::Tick { now_us } => self.try_again(now_us, steps),
            // No data is dirty only in memory.
            Event::GoOn | Event::DestageRest { .. } => {}
            Event::Failed { step, missing } => self.failed(step, missing),
            Event::Done(step) => self.done(step),
            Event::Missing { step, blocks } => self.never_came(step, blocks),
            Event::Postponed(_) => {}
            Event::Appending(_) => unreachable!("what WLFC appends has no records"),
        }
    }

    fn next_tick_us(&self, now_us: u64) -> Option<u64> {
        (!self.failing.is_empty()).then_some(now_us)
    }

    fn geometry(&self) -> Geometry {
        Geometry { units: self.config.buckets, unit_pages: self.config.bucket_blocks }
    }

    fn frame_count(&self) -> u32 {
        self.config.ram_blocks
    }

    fn is_newer_than_backend(&self, block: u32) -> bool {
        let (backend, at) = (block / self.config.bucket_blocks, block % self.config.bucket_blocks);
        self.contents.has_newer(&self.contents.of(backend), at, 1)
    }

    fn blocks_to_write_back(&self) -> u64 {
        let mut cover = Cover::default();
        self.contents
            .copies
            .iter()
            .map(|(&backend, copies)| self.contents.newer_blocks((backend, copies), &self.config, &mut cover))
            .sum()
    }

    /// Returns none: lost data is only detected at a start.
    fn lost_blocks(&self) -> Vec<u32> {
        Vec::new()
    }

    fn figures(&self) -> Figures {
        self.figures
    }

    fn check(&self) {
        check::check(self);
    }
}
