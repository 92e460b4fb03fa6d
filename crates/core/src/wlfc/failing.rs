//! Backend buckets that cannot be written: their dirty data stays in the cache, and writes are retried.
//!
//! Data of such a bucket that would be written back becomes a dirty copy instead, which is not evicted.
//!
//! A cache bucket is a write bucket, a read copy, evicted, free, or permanently failed. Evicted and free ones are
//! *spare*: one of them can be allocated, because evicted buckets only wait for erasure. A change by a piece of a
//! request takes at most two buckets before it returns any. These are a write bucket, and a copy for the write bucket
//! that it evicts. So a piece is planned only if [`Config::SPARE_MIN`] are spare, and fails if they are unavailable. In
//! an intact cache the limits of both queues guarantee this; they shrink with each failed bucket. If dirty buckets
//! cannot be evicted, the queues may exceed their limits; then evictable buckets leave after each request until they do
//! not. A log that fits its write bucket needs no spare bucket, and a read needs no copy.

use std::collections::VecDeque;

use super::bucket::{Bucket, Entry, Log, Oob, State};
use super::config::Config;
use super::pieces::{Piece, pieces, runs_without};
use super::step::Step;
use super::{NONE, Wlfc};
use crate::cache::{Kind, Request};

/// The order of retries.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trials {
    /// The tick of the current retries, and the number left in it.
    tick_us: u64,
    left: usize,
    /// The backend bucket to retry next, or the one after it.
    next: u32,
}

/// Acknowledged client writes that bypassed the cache: their number, and which are durable.
#[derive(Clone, Debug, Default)]
pub(super) struct Passed {
    changes: u64,
    /// Changes that planned flushes cover.
    planned: u64,
    /// Changes that each unfinished flush covers, in order.
    flushes: VecDeque<u64>,
    /// Changes that successful flushes cover.
    flushed: u64,
    /// Changes whose failed flush was reported, or will be by the next one.
    reported: u64,
    /// True if a flush failed that was not reported to a client; the next flush reports it.
    lost: bool,
}

impl Passed {
    /// Counts a planned change.
    pub fn note(&mut self) {
        self.changes += 1;
    }

    /// True if there are changes that no planned flush covers.
    pub fn is_unflushed(&self) -> bool {
        self.changes > self.planned
    }

    /// Records that a flush of the backend is planned.
    pub fn plan_flush(&mut self) {
        self.planned = self.changes;
        self.flushes.push_back(self.changes);
    }

    fn flushed(&mut self) {
        self.flushed = self.flushes.pop_front().map_or(self.flushed, |changes| self.flushed.max(changes));
    }

    /// Handles a failed flush: its changes may be lost, and later ones too. `reported` is true if a client's flush
    /// reports it. If a device kept the changes, a later flush makes them durable, but no flush succeeds before.
    pub fn flush_failed(&mut self, reported: bool) {
        let changes = self.flushes.pop_front().unwrap_or(0);
        if reported {
            self.reported = self.reported.max(changes);
        }
        self.lost |= self.changes > self.flushed.max(self.reported);
        self.reported = self.changes;
        self.planned = self.planned.min(self.flushed);
    }

    /// Returns true if a flush must report an earlier failure. A flush that was possibly issued `before` the lost
    /// changes were acknowledged does not clear it, so the next flush reports it too.
    pub fn tells(&mut self, before: bool) -> bool {
        let lost = self.lost;
        self.lost &= before;
        lost
    }

    /// Continues from `before`, whose flushes have all ended.
    fn succeed(&mut self, before: &Passed) {
        let planned = self.flushes.len();
        *self = Passed { flushes: VecDeque::new(), ..before.clone() };
        (0..planned).for_each(|_| self.plan_flush());
    }
}

impl Wlfc {
    /// True if the next flush must report a failed flush of the backend.
    pub fn owes_a_failed_flush(&self) -> bool {
        self.passed.lost
    }

    /// Returns the backend buckets whose last write failed.
    pub fn failing(&self) -> &std::collections::BTreeSet<u32> {
        &self.failing
    }

    /// Returns the backend buckets with data in the cache that the backend lacks.
    pub fn dirty_backends(&self) -> impl Iterator<Item = u32> {
        let dirty = |(&backend, copies): (&u32, &super::Copies)| {
            self.contents.has_newer(copies, 0, self.config.extent(backend)).then_some(backend)
        };
        self.contents.copies.iter().filter(|(_, copies)| copies.read != NONE || copies.write != NONE).filter_map(dirty)
    }

    #[inline]
    pub(super) fn is_failing(&self, backend: u32) -> bool {
        !self.failing.is_empty() && self.failing.contains(&backend)
    }

    pub(super) fn backend_of(&self, block: u64) -> u32 {
        (block / u64::from(self.config.bucket_blocks)) as u32
    }

    /// Returns the number of buckets that are free or wait for erasure.
    #[inline]
    pub(super) fn spare(&self) -> u32 {
        self.queues.free() + self.queues.gc_len()
    }

    /// True if no queue exceeds its limit, so that there are spare buckets; always true without failures.
    #[inline]
    pub(super) fn has_bounds(&self) -> bool {
        self.spare() >= Config::SPARE_MIN
            && self.queues.write.len() as u32 <= self.config.write_queue
            && self.queues.read_len() <= self.config.read_queue
    }

    /// True if everything can be evicted and there is enough room.
    #[inline]
    fn is_roomy(&self) -> bool {
        self.failing.is_empty() && self.has_bounds()
    }

    /// After a request, makes the room that the next one may need.
    #[inline]
    pub(super) fn leave_room(&mut self, steps: &mut Vec<Step>) {
        if self.is_roomy() {
            self.crowded = false;
        } else {
            self.make_room(steps);
        }
    }

    /// Returns the copy to evict first.
    pub(super) fn replaceable(&self) -> Option<u32> {
        if self.failing.is_empty() {
            return self.queues.read_last();
        }
        let may_leave = |bucket: &u32| {
            let Bucket { state, backend, .. } = &self.contents.buckets[*bucket as usize];
            *state != State::Dirty || !self.failing.contains(backend)
        };
        self.queues.read_copies().find(may_leave)
    }

    /// True if a copy of a backend bucket may be made for a read. False while backend reads fail, and for the last
    /// spare buckets.
    #[inline]
    pub(super) fn may_copy(&self, backend: u32) -> bool {
        if self.unread {
            return false;
        }
        self.is_roomy()
            || self.spare() >= Config::SPARE_MIN
                && (self.contents.of(backend).read != NONE
                    || self.replaceable().is_some()
                    || self.queues.read_len() < self.config.read_queue && self.spare() > Config::SPARE_MIN)
    }

    /// True if a write bucket can be evicted. Data that cannot be written to the backend needs a place among the
    /// copies.
    fn may_evict(&self, bucket: u32) -> bool {
        let backend = self.contents.buckets[bucket as usize].backend;
        !self.is_failing(backend)
            || self.contents.of(backend).read != NONE
            || self.queues.read_len() < self.config.read_queue
            || self.replaceable().is_some()
    }

    /// Returns the write bucket to evict first.
    #[inline]
    pub(super) fn victim(&self) -> Option<u32> {
        if self.failing.is_empty() {
            return self.queues.write.smallest();
        }
        self.queues.write.smallest_of(|bucket| self.may_evict(bucket))
    }

    /// True if evicting a write bucket takes a bucket for a copy.
    fn needs_copy(&self, bucket: u32) -> bool {
        let backend = self.contents.buckets[bucket as usize].backend;
        self.contents.of(backend).read != NONE || self.is_failing(backend)
    }

    /// Evicts buckets that exceed the limits or take the last [spare buckets](Config::SPARE_MIN), as far as possible.
    /// Each iteration shortens one queue.
    pub(super) fn make_room(&mut self, steps: &mut Vec<Step>) {
        loop {
            let (writes, copies) = (self.queues.write.len() as u32, self.queues.read_len());
            let Config { write_queue, read_queue, .. } = self.config;
            let short = self.spare() < Config::SPARE_MIN;
            // The queue that is relatively fuller shrinks first.
            let copies_first = u64::from(copies) * u64::from(write_queue) >= u64::from(writes) * u64::from(read_queue);
            let copy = self.replaceable().filter(|_| copies > read_queue || short);
            let victim = || {
                let has_spare = self.spare() > 0;
                // Moving a bucket to the copies does not free one.
                let may = |bucket: u32| match self.needs_copy(bucket) {
                    true => has_spare && self.may_evict(bucket) && (writes > write_queue || !self.becomes_copy(bucket)),
                    false => true,
                };
                self.queues.write.smallest_of(may)
            };
            let victim = if writes > write_queue || short { victim() } else { None };
            match (copy, victim) {
                (Some(copy), _) if copies_first || copies > read_queue || victim.is_none() => self.replace(copy, steps),
                (_, Some(victim)) => self.evict(victim, steps),
                _ => break,
            }
        }
        self.crowded = !self.has_bounds();
    }

    /// True if evicting a write bucket creates a copy where there was none.
    fn becomes_copy(&self, bucket: u32) -> bool {
        let backend = self.contents.buckets[bucket as usize].backend;
        self.is_failing(backend) && self.contents.of(backend).read == NONE
    }

    /// Returns true if a change by a piece has room, after making it if possible. A log that fits its write bucket
    /// needs none. Otherwise it takes a bucket, and the eviction for it may take a second one before it frees its own.
    pub(super) fn has_room(&mut self, piece: &Piece, log: Log, steps: &mut Vec<Step>) -> bool {
        let Piece { backend, at, blocks, .. } = *piece;
        let write = self.contents.of(backend).write;
        let oob = Oob { state: State::Write, backend, epoch: 0, log, at, blocks };
        if self.is_roomy() || write != NONE && self.room(write) >= self.config.pages(&oob) {
            return true;
        }
        self.make_room(steps);
        let leaves = match self.contents.of(backend).write {
            NONE => (self.queues.write.len() as u32) < self.config.write_queue || self.victim().is_some(),
            write => self.may_evict(write),
        };
        leaves && self.spare() >= Config::SPARE_MIN
    }

    /// True if a write bypasses the cache, which it does not if the backend bucket cannot be written.
    #[inline]
    pub(super) fn passes(&self, request: &Request, backend: u32) -> bool {
        request.whole_length > self.config.large_write_bytes && !self.is_failing(backend)
    }

    /// Retries to write failing backend buckets in turn, each once per tick. Nothing leaves the cache.
    pub(super) fn try_again(&mut self, now_us: u64, steps: &mut Vec<Step>) {
        if self.trials.tick_us != now_us {
            (self.trials.tick_us, self.trials.left) = (now_us, self.failing.len());
        }
        while self.trials.left > 0 && steps.is_empty() {
            self.trials.left -= 1;
            let Some(&backend) = self.failing.range(self.trials.next..).next().or(self.failing.first()) else { return };
            self.trials.next = backend + 1;
            let (copies, blocks) = (self.contents.of(backend), self.config.extent(backend));
            if !self.contents.has_newer(&copies, 0, blocks) {
                self.failing.remove(&backend);
                continue;
            }
            self.load(backend, &copies, 0, blocks, steps);
            self.settle_flash(steps);
            self.push(Step::WriteBackend { block: self.first_block(backend), blocks, gives_up: false }, steps);
        }
    }

    /// Plans the flush of the backend at a start: a process that crashed may have left writes in its volatile cache.
    pub fn first_flush(&mut self) -> Step {
        self.passed.plan_flush();
        Step::FlushBackend
    }

    #[inline]
    pub(super) fn done(&mut self, step: &Step) {
        match *step {
            Step::FlushBackend => self.passed.flushed(),
            Step::ReadBackend { .. } => self.unread = false,
            Step::Reset { bucket } => {
                if let Some(held) = self.resetting.get_mut(&bucket) {
                    held.pop_front();
                    if held.is_empty() {
                        self.resetting.remove(&bucket);
                    }
                }
            }
            Step::WriteBackend { block, blocks, .. } if !self.failing.is_empty() => {
                let backend = self.backend_of(block);
                if blocks == self.config.extent(backend) {
                    self.failing.remove(&backend);
                }
            }
            _ => {}
        }
    }

    /// Handles a failed step. `missing`: a client's flush reports it, or it was not attempted.
    pub(super) fn failed(&mut self, step: &Step, missing: bool) {
        match *step {
            Step::KeepInRam { block, frame } => self.ram.failed(block, frame),
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
            | Step::Receive { .. }
            | Step::Send { .. }
            | Step::Zero { .. }
            | Step::Fail
            | Step::Reply => {}
        }
    }

    /// Handles missing blocks of a log: the content below them counts.
    pub(super) fn never_came(&mut self, step: &Step, missing: &[u32]) {
        let Step::Append { bucket, page, oob, .. } = *step else { return };
        let data = page + self.config.headers(oob.blocks);
        let of = &mut self.contents.buckets[bucket as usize];
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
        let read = self.contents.of(oob.backend).read;
        if read != NONE && self.contents.buckets[read as usize].fresh as usize > at {
            let fresh = &mut self.contents.buckets[read as usize].fresh;
            *fresh = *fresh + count - 1;
        }
    }

    /// Plans a request to a cache whose flash can no longer be written.
    pub(super) fn plan_frozen(&mut self, request: &Request, steps: &mut Vec<Step>) {
        match request.kind {
            Kind::Read => {
                for piece in pieces(request, self.config.bucket_blocks) {
                    let copies = self.contents.of(piece.backend);
                    self.figures.read_blocks += u64::from(piece.blocks);
                    let found = self.contents.cached(&copies, piece.at, piece.blocks);
                    self.figures.read_hits += u64::from(found);
                    self.load(piece.backend, &copies, piece.at, piece.blocks, steps);
                    self.send(&piece, true, steps);
                }
            }
            Kind::Prefetch => {}
            // Nothing was written to it since recovery.
            Kind::Flush if self.settled && !self.passed.tells(request.durable) => {
                if self.passed.is_unflushed() {
                    self.settle_backend(steps);
                }
            }
            _ => steps.push(Step::Fail),
        }
        self.figures.requests += u64::from(request.last);
        steps.push(Step::Reply);
    }

    /// True if the flash can no longer be written.
    pub fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// Continues from a cache that failed, including its counters. Its writes to the backend may not be durable.
    pub fn succeed(&mut self, before: &Wlfc) {
        self.figures += before.figures;
        self.backend_dirty = true;
        self.trials = before.trials;
        self.passed.succeed(&before.passed);
    }

    /// Returns the known contents of an unreadable cache bucket that was programmed with this epoch up to page `end`.
    /// None of it can be read. `None` if unknown.
    pub fn remembered(&self, bucket: u32, epoch: u64, end: u32) -> Option<super::Scan> {
        let now = &self.contents.buckets[bucket as usize];
        if end == 0 || now.backend == super::recovery::NO_BACKEND {
            // Its contents are invalid.
            return Some(super::Scan::default());
        }
        let held = || self.resetting.get(&bucket).into_iter().flatten().chain([now]);
        let Some(of) = held().find(|of| of.backend != super::recovery::NO_BACKEND && of.epoch == epoch) else {
            // It may be an invalid bucket that was waiting for its reset.
            return held().any(|of| of.backend == super::recovery::NO_BACKEND).then(super::Scan::default);
        };
        let oob = |log, at, blocks| Oob { state: of.state, backend: of.backend, epoch: of.epoch, log, at, blocks };
        let found = if of.is_write() {
            let programmed = of.entries.iter().filter(|entry| entry.page < end);
            programmed.map(|entry| (entry.page, oob(entry.log, entry.at, entry.blocks))).collect()
        } else {
            let blocks = self.config.extent(of.backend);
            vec![(self.config.headers(blocks), oob(Log::Data, 0, blocks))]
        };
        Some(super::Scan { found, end: self.config.bucket_pages(), torn: true })
    }
}
