//! Backend buckets that cannot be written: what the backend lacks of them stays in the cache, and is tried again.
//!
//! What would be written back of such a bucket becomes a dirty copy in its place, and that does not leave.
//!
//! A cache bucket is a write bucket, a read copy, evicted, free, or failed for good. Those evicted and free are *to spare*: a bucket can be
//! allocated where one is, since what is evicted only waits to be erased. What changes a piece of a request takes two at most before it gives any
//! back: a write bucket, and a copy for the write bucket that leaves for it. So it is planned only where
//! [`Config::SPARE_MIN`] are to spare, and is an error where they cannot be had. The bounds of both queues see to it in a cache that is whole,
//! and shrink with each bucket that fails. Where dirty buckets cannot leave, the queues may have more than their bounds: what can leave then leaves
//! behind each request until they have not. A log that finds room in its write bucket needs nothing, and a read needs no copy.

use std::collections::VecDeque;

use super::bucket::{Bucket, Log, Oob, State};
use super::config::Config;
use super::pieces::{Piece, pieces};
use super::step::Step;
use super::{NONE, Wlfc};
use crate::cache::{Kind, Request};

/// Whose turn it is to be tried again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trials {
    /// The tick that they are of, and how many are left in it.
    tick_us: u64,
    left: usize,
    /// The backend bucket that is tried next, or the one that follows.
    next: u32,
}

/// What clients wrote past the cache, and were answered: how many such changes, and which of them are durable.
#[derive(Clone, Debug, Default)]
pub(super) struct Passed {
    changes: u64,
    /// Those that a flush was planned for.
    planned: u64,
    /// Those that each flush is for that has not ended, in order.
    flushes: VecDeque<u64>,
    /// Those that a flush was done for, ...
    flushed: u64,
    /// ... and those of which a flush that failed has told, or the next one does.
    told: u64,
    /// A flush failed, of which no flush of a client's has told: the next one does.
    lost: bool,
}

impl Passed {
    /// One more is planned.
    pub fn note(&mut self) {
        self.changes += 1;
    }

    /// Whether there are some that no flush was planned for.
    pub fn is_unflushed(&self) -> bool {
        self.changes > self.planned
    }

    /// A flush of the backend is planned.
    pub fn plan_flush(&mut self) {
        self.planned = self.changes;
        self.flushes.push_back(self.changes);
    }

    fn flushed(&mut self) {
        self.flushed = self.flushes.pop_front().map_or(self.flushed, |changes| self.flushed.max(changes));
    }

    /// What a flush that failed was to make durable may be gone, and what was written behind it too; whether a client was `told` that asked for a flush.
    /// Where a device has kept it, one that succeeds later makes it durable: none is answered before.
    pub fn flush_failed(&mut self, told: bool) {
        let changes = self.flushes.pop_front().unwrap_or(0);
        if told {
            self.told = self.told.max(changes);
        }
        self.lost |= self.changes > self.flushed.max(self.told);
        self.told = self.changes;
        self.planned = self.planned.min(self.flushed);
    }

    /// Whether a flush has to tell that one before it failed. One that came `before` that may have come before what was lost was answered: the next tells
    /// of it too.
    pub fn tells(&mut self, before: bool) -> bool {
        let lost = self.lost;
        self.lost &= before;
        lost
    }

    /// Goes on from those of before, of which all flushes have ended.
    fn succeed(&mut self, before: &Passed) {
        let planned = self.flushes.len();
        *self = Passed { flushes: VecDeque::new(), ..before.clone() };
        (0..planned).for_each(|_| self.plan_flush());
    }
}

impl Wlfc {
    /// Whether the next flush has to tell of one of the backend that failed.
    pub fn owes_a_failed_flush(&self) -> bool {
        self.passed.lost
    }

    /// Backend buckets that could not be written when that was tried last.
    pub fn failing(&self) -> &std::collections::BTreeSet<u32> {
        &self.failing
    }

    /// Backend buckets of which the cache has what the backend has not.
    pub fn dirty_backends(&self) -> impl Iterator<Item = u32> {
        let dirty = |(&backend, copies): (&u32, &super::Copies)| {
            self.has_newer(copies, 0, self.config.extent(backend)).then_some(backend)
        };
        self.copies.iter().filter(|(_, copies)| copies.read != NONE || copies.write != NONE).filter_map(dirty)
    }

    #[inline]
    pub(super) fn is_failing(&self, backend: u32) -> bool {
        !self.failing.is_empty() && self.failing.contains(&backend)
    }

    pub(super) fn backend_of(&self, block: u64) -> u32 {
        (block / u64::from(self.config.bucket_blocks)) as u32
    }

    /// Buckets that are free, or are to be erased.
    #[inline]
    pub(super) fn spare(&self) -> u32 {
        self.queues.free() + self.queues.gc_len()
    }

    /// Whether no queue has more than it may, so that there are buckets to spare: always where nothing has failed.
    #[inline]
    pub(super) fn has_bounds(&self) -> bool {
        self.spare() >= Config::SPARE_MIN
            && self.queues.write.len() as u32 <= self.config.write_queue
            && self.queues.read_len() <= self.config.read_queue
    }

    /// Whether anything may leave, and all has the room that it may have.
    #[inline]
    fn is_roomy(&self) -> bool {
        self.failing.is_empty() && self.has_bounds()
    }

    /// Leaves the room behind a request that the next one may need.
    #[inline]
    pub(super) fn leave_room(&mut self, steps: &mut Vec<Step>) {
        if self.is_roomy() {
            self.crowded = false;
        } else {
            self.make_room(steps);
        }
    }

    /// The copy that leaves first.
    pub(super) fn replaceable(&self) -> Option<u32> {
        if self.failing.is_empty() {
            return self.queues.read_last();
        }
        let may_leave = |bucket: &u32| {
            let Bucket { state, backend, .. } = &self.buckets[*bucket as usize];
            *state != State::Dirty || !self.failing.contains(backend)
        };
        self.queues.read_copies().find(may_leave)
    }

    /// Whether a copy of a backend bucket may be made for a read: not while the backend cannot be read, and not the last buckets are taken for it.
    #[inline]
    pub(super) fn may_copy(&self, backend: u32) -> bool {
        if self.unread {
            return false;
        }
        self.is_roomy()
            || self.spare() >= Config::SPARE_MIN
                && (self.copies_of(backend).read != NONE
                    || self.replaceable().is_some()
                    || self.queues.read_len() < self.config.read_queue && self.spare() > Config::SPARE_MIN)
    }

    /// Whether a write bucket may leave: what cannot be written to the backend needs a place among the copies.
    fn may_evict(&self, bucket: u32) -> bool {
        let backend = self.buckets[bucket as usize].backend;
        !self.is_failing(backend)
            || self.copies_of(backend).read != NONE
            || self.queues.read_len() < self.config.read_queue
            || self.replaceable().is_some()
    }

    /// The write bucket that leaves first for another.
    #[inline]
    pub(super) fn victim(&self) -> Option<u32> {
        if self.failing.is_empty() {
            return self.queues.write.smallest();
        }
        self.queues.write.smallest_of(|bucket| self.may_evict(bucket))
    }

    /// Whether evicting a write bucket takes a bucket for a copy.
    fn needs_copy(&self, bucket: u32) -> bool {
        let backend = self.buckets[bucket as usize].backend;
        self.copies_of(backend).read != NONE || self.is_failing(backend)
    }

    /// Lets leave what is too much, and what takes the last [buckets to spare](Config::SPARE_MIN), as far as it may leave. Each turn makes the
    /// write queue shorter, or else the read queue.
    pub(super) fn make_room(&mut self, steps: &mut Vec<Step>) {
        loop {
            let (writes, copies) = (self.queues.write.len() as u32, self.queues.read_len());
            let Config { write_queue, read_queue, .. } = self.config;
            let short = self.spare() < Config::SPARE_MIN;
            // The queue that is fuller gives way first.
            let copies_first = u64::from(copies) * u64::from(write_queue) >= u64::from(writes) * u64::from(read_queue);
            let copy = self.replaceable().filter(|_| copies > read_queue || short);
            let victim = || {
                let has_spare = self.spare() > 0;
                // A place among the copies is no bucket more to spare.
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

    /// Whether a write bucket that leaves becomes a copy where there was none.
    fn becomes_copy(&self, bucket: u32) -> bool {
        let backend = self.buckets[bucket as usize].backend;
        self.is_failing(backend) && self.copies_of(backend).read == NONE
    }

    /// Whether what a piece of a request changes has a place, which is made if it can be. A log that its write bucket has room for needs none. Another
    /// takes a bucket, and what leaves for it may take a second before it gives back its own.
    pub(super) fn has_room(&mut self, piece: &Piece, log: Log, steps: &mut Vec<Step>) -> bool {
        let Piece { backend, at, blocks, .. } = *piece;
        let write = self.copies_of(backend).write;
        let oob = Oob { state: State::Write, backend, epoch: 0, log, at, blocks };
        if self.is_roomy() || write != NONE && self.room(write) >= self.config.pages(&oob) {
            return true;
        }
        self.make_room(steps);
        let leaves = match self.copies_of(backend).write {
            NONE => (self.queues.write.len() as u32) < self.config.write_queue || self.victim().is_some(),
            write => self.may_evict(write),
        };
        leaves && self.spare() >= Config::SPARE_MIN
    }

    /// Whether a write goes past the cache: not where the backend cannot take it.
    #[inline]
    pub(super) fn passes(&self, request: &Request, backend: u32) -> bool {
        request.whole_length > self.config.large_write_bytes && !self.is_failing(backend)
    }

    /// Writes to one of them, in turn, what it lacks; once to each in a tick. Nothing leaves the cache by that.
    pub(super) fn try_again(&mut self, now_us: u64, steps: &mut Vec<Step>) {
        if self.trials.tick_us != now_us {
            (self.trials.tick_us, self.trials.left) = (now_us, self.failing.len());
        }
        while self.trials.left > 0 && steps.is_empty() {
            self.trials.left -= 1;
            let Some(&backend) = self.failing.range(self.trials.next..).next().or(self.failing.first()) else { return };
            self.trials.next = backend + 1;
            let (copies, blocks) = (self.copies_of(backend), self.config.extent(backend));
            if !self.has_newer(&copies, 0, blocks) {
                self.failing.remove(&backend);
                continue;
            }
            self.load(backend, &copies, 0, blocks, steps);
            self.settle_flash(steps);
            self.push(Step::WriteBackend { block: self.first_block(backend), blocks, gives_up: false }, steps);
        }
    }

    /// The flush of the backend that a start begins with: what a process that died has written there may be in its volatile cache.
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

    /// A request to a cache whose flash cannot be written any more.
    pub(super) fn plan_frozen(&mut self, request: &Request, steps: &mut Vec<Step>) {
        match request.kind {
            Kind::Read => {
                for piece in pieces(request, self.config.bucket_blocks) {
                    let copies = self.copies_of(piece.backend);
                    self.figures.read_blocks += u64::from(piece.blocks);
                    let found = self.cached(&copies, piece.at, piece.blocks);
                    self.figures.read_hits += u64::from(found);
                    self.load(piece.backend, &copies, piece.at, piece.blocks, steps);
                    self.send(&piece, true, steps);
                }
            }
            Kind::Prefetch => {}
            // Nothing was written to it since it was found.
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

    /// Whether its flash cannot be written any more.
    pub fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// Goes on from a cache that was lost sight of: what it counted counts, and what it wrote to the backend may not be durable.
    pub fn succeed(&mut self, before: &Wlfc) {
        self.figures = self.figures + before.figures;
        self.backend_dirty = true;
        self.trials = before.trials;
        self.passed.succeed(&before.passed);
    }

    /// What is known of a cache bucket whose pages cannot be read any more, and that was programmed with this epoch up to this page: what it was planned
    /// to hold, of which nothing can be read. None where that is not known.
    pub fn remembered(&self, bucket: u32, epoch: u64, end: u32) -> Option<super::Scan> {
        let now = &self.buckets[bucket as usize];
        if end == 0 || now.backend == super::recovery::NOBODY {
            // Nothing on it counts.
            return Some(super::Scan::default());
        }
        let held = || self.resetting.get(&bucket).into_iter().flatten().chain([now]);
        let Some(of) = held().find(|of| of.backend != super::recovery::NOBODY && of.epoch == epoch) else {
            // It may be what counted for nobody and was to be reset.
            return held().any(|of| of.backend == super::recovery::NOBODY).then(super::Scan::default);
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
