//! Backend buckets that cannot be written: what the backend lacks of them stays in the cache, and is tried again.
//!
//! What would be written back of such a bucket becomes a dirty copy in its place, and that does not leave. Where all copies are of that kind
//! no more are made; a write that would need one fails, and so does one for which no write bucket can leave.

use super::bucket::{Bucket, Log, Oob, State};
use super::config::Config;
use super::pieces::pieces;
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

/// What clients wrote past the cache, and were answered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Passed {
    /// No flush was planned since.
    pub unflushed: bool,
    /// No flush is known to be done since.
    at_risk: bool,
    /// A flush failed that no client has heard of: the next one does.
    pub lost: bool,
}

impl Passed {
    pub fn note(&mut self) {
        (self.unflushed, self.at_risk) = (true, true);
    }
}

impl Wlfc {
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

    /// Whether buckets may be fewer than what is planned needs.
    #[inline]
    pub(super) fn is_crowded(&self) -> bool {
        !self.failing.is_empty() || self.over_full
    }

    /// Whether so many buckets are free, or are to be erased.
    pub(super) fn has_spare(&self, buckets: u32) -> bool {
        self.queues.free() + self.queues.gc_len() >= buckets
    }

    /// Whether there is room for a copy of a backend bucket.
    #[inline]
    pub(super) fn may_copy(&self, backend: u32) -> bool {
        !self.is_crowded() || self.has_spare(1) && self.has_place_for_copy(backend)
    }

    fn has_place_for_copy(&self, backend: u32) -> bool {
        self.copies_of(backend).read != NONE
            || self.queues.read_len() < self.config.read_queue
            || self.replaceable().is_some()
    }

    /// Lets leave what was too much when the cache was found.
    pub(super) fn shrink(&mut self, steps: &mut Vec<Step>) {
        if self.queues.write.len() as u32 > self.config.write_queue
            && self.has_spare(1)
            && let Some(victim) = self.victim()
        {
            self.evict(victim, steps);
        }
        self.make_room(steps);
        let (writes, copies) = (self.queues.write.len() as u32, self.queues.read_len());
        self.over_full = writes > self.config.write_queue || copies > self.config.read_queue;
    }

    /// A copy that may leave at once.
    pub(super) fn clean_copy(&self) -> Option<u32> {
        self.queues.read_copies().find(|bucket| self.buckets[*bucket as usize].state == State::Read)
    }

    fn may_evict(&self, bucket: u32) -> bool {
        let backend = self.buckets[bucket as usize].backend;
        !self.is_failing(backend) || self.has_place_for_copy(backend)
    }

    /// The write bucket that leaves first.
    #[inline]
    pub(super) fn victim(&self) -> Option<u32> {
        if self.failing.is_empty() {
            return self.queues.write.smallest();
        }
        self.queues.write.smallest_of(|bucket| self.may_evict(bucket))
    }

    /// Whether what a request changes has a place.
    pub(super) fn has_room(&self, request: &Request) -> bool {
        // A piece needs a write bucket, and a copy for what leaves for it; then there are as many to spare as before.
        self.has_spare(Config::SPARE_MIN)
            && pieces(request, self.config.bucket_blocks).all(|piece| {
                let write = self.copies_of(piece.backend).write;
                let oob = Oob {
                    state: State::Write,
                    backend: piece.backend,
                    epoch: 0,
                    log: Log::Data,
                    at: piece.at,
                    blocks: piece.blocks,
                };
                if write != NONE {
                    return self.room(write) >= self.config.pages(&oob) || self.may_evict(write);
                }
                (self.queues.write.len() as u32) < self.config.write_queue || self.victim().is_some()
            })
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

    /// A flush of the backend failed; whether a client was `told`.
    pub(super) fn backend_flush_failed(&mut self, told: bool) {
        self.passed.lost |= std::mem::take(&mut self.passed.at_risk) && !told;
    }

    #[inline]
    pub(super) fn done(&mut self, step: &Step) {
        match *step {
            Step::FlushBackend => self.passed.at_risk = self.passed.unflushed,
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
        (self.trials, self.passed) = (before.trials, before.passed);
    }

    /// What is known of a cache bucket whose pages cannot be read any more: what it was planned to hold, of which nothing can be read.
    pub fn remembered(&self, bucket: u32) -> super::Scan {
        let of = &self.buckets[bucket as usize];
        let oob = |log, at, blocks| Oob { state: of.state, backend: of.backend, epoch: of.epoch, log, at, blocks };
        let (end, torn) = (self.config.bucket_pages(), true);
        if of.next_page == 0 || of.epoch == 0 {
            return super::Scan::default();
        }
        let found = if of.is_write() {
            of.entries.iter().map(|entry| (entry.page, oob(entry.log, entry.at, entry.blocks))).collect()
        } else {
            let blocks = self.config.extent(of.backend);
            vec![(self.config.headers(blocks), oob(Log::Data, 0, blocks))]
        };
        super::Scan { found, end, torn }
    }
}
