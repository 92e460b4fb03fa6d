//! WLFC's implementation of the common interface of caches.
//!
//! Its only work on its own is to [retry](super::failing) failed writes to the backend; all other write-backs make room
//! for a request. It plans as if all earlier plans were executed. If a step that it relies on fails, its driver
//! [recovers the cache](super::recover_around) from the flash.

use super::load::Cover;
use super::pieces::runs_without;
use super::{Copies, Entry, Figures, Log, NONE, State, Step, Wlfc};
use crate::cache::{Cache, Event};
use crate::format::Geometry;

impl Wlfc {
    /// Writes back everything that the backend lacks, makes that durable, and retires the buckets.
    fn destage_all(&mut self, steps: &mut Vec<Step>) {
        // Others only have buckets that wait for erasure.
        let held = self.copies.iter().filter(|(_, copies)| copies.read != NONE || copies.write != NONE);
        let mut backends: Vec<u32> = held.map(|(&backend, _)| backend).collect();
        backends.sort_unstable();
        for backend in backends {
            let (copies, blocks) = (self.copies_of(backend), self.config.extent(backend));
            if self.has_newer(&copies, 0, blocks) {
                if self.is_failing(backend) {
                    continue;
                }
                self.load(backend, &copies, 0, blocks, steps);
                self.write_back(backend, steps);
                let held = [copies.read, copies.write].into_iter().filter(|bucket| *bucket != NONE);
                held.for_each(|bucket| self.retire(bucket));
            }
        }
        self.settle(steps);
    }

    fn failed(&mut self, step: &Step, missing: bool) {
        match *step {
            Step::KeepInRam { block, frame } if self.ram.peek(block as u32) == Some(frame) => {
                self.free_frames.extend(self.ram.remove(block as u32));
            }
            // The client was informed.
            Step::FlushBackend => {
                self.backend_dirty = true;
                self.passed.flush_failed(missing);
            }
            // Not if it was not attempted.
            Step::WriteBackend { block, .. } if !missing => drop(self.failing.insert(self.backend_of(block))),
            Step::ReadBackend { .. } if !missing => self.unread = true,
            // Only the request fails, or the cache is recovered.
            Step::Append { .. }
            | Step::Reset { .. }
            | Step::FlushFlash
            | Step::WriteBackend { .. }
            | Step::ZeroBackend { .. }
            | Step::ReadFlash { .. }
            | Step::ReadBackend { .. }
            | Step::ReadRam { .. }
            | Step::KeepInRam { .. }
            | Step::Receive { .. }
            | Step::Send { .. }
            | Step::Zero { .. }
            | Step::Fail
            | Step::Reply => {}
        }
    }

    /// Handles missing blocks of a log: the content below them counts.
    fn never_came(&mut self, step: &Step, missing: &[u32]) {
        let Step::Append { bucket, page, oob, .. } = *step else { return };
        let data = page + self.config.headers(oob.blocks);
        let of = &mut self.buckets[bucket as usize];
        let is_it = |entry: &Entry| entry.log == Log::Data && entry.page == data;
        let Some(at) = of.entries.iter().position(is_it).filter(|_| of.is_write() && of.epoch == oob.epoch) else {
            return;
        };
        let entry = |(from, blocks)| Entry { log: Log::Data, at: oob.at + from, blocks, page: data + from };
        let pieces: Vec<Entry> = runs_without(oob.blocks, missing.iter().copied()).map(entry).collect();
        let count = pieces.len() as u32;
        let entries: Vec<Entry> = of.entries.splice(at..=at, pieces).collect();
        debug_assert_eq!(entries.len(), 1, "it is one log");
        let entries = std::mem::take(&mut of.entries);
        of.covered.clear();
        of.has_passed = false;
        entries.into_iter().for_each(|entry| of.push(entry));
        // A copy that includes the log counts its pieces.
        let read = self.copies_of(oob.backend).read;
        if read != NONE && self.buckets[read as usize].fresh as usize > at {
            let fresh = &mut self.buckets[read as usize].fresh;
            *fresh = *fresh + count - 1;
        }
    }

    /// Returns the blocks of a backend bucket that may be newer in the cache.
    fn newer_blocks(&self, backend: u32, copies: &Copies, cover: &mut Cover) -> u64 {
        if copies.read != NONE && self.buckets[copies.read as usize].state == State::Dirty {
            return self.config.extent(backend).into();
        }
        if copies.write == NONE {
            return 0;
        }
        cover.clear(self.config.extent(backend));
        let mut newer = 0;
        for entry in self.buckets[copies.write as usize].entries.iter().filter(|entry| entry.log != Log::Passed) {
            cover.add_missing(entry.at, entry.at + entry.blocks, |from, to| newer += u64::from(to - from));
        }
        newer
    }
}

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
        self.has_newer(&self.copies_of(backend), at, 1)
    }

    fn blocks_to_write_back(&self) -> u64 {
        let mut cover = Cover::default();
        self.copies.iter().map(|(&backend, copies)| self.newer_blocks(backend, copies, &mut cover)).sum()
    }

    /// Returns none: lost data is only detected at a start.
    fn lost_blocks(&self) -> Vec<u32> {
        Vec::new()
    }

    fn figures(&self) -> Figures {
        self.figures
    }

    fn check(&self) {
        self.check_all();
    }
}
