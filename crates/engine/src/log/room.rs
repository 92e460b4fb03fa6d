//! Changes that wait, before they are planned, until more is written back.

use flashwise_core::cache::{self, Cache};
use flashwise_core::step::Step;

use super::Engine;
use crate::engine::{self, Asked, Layout, WaitingRequests};
use crate::request::{Done, Request};

/// The waiting changes.
#[derive(Default)]
pub(super) struct Room {
    /// In the order in which they came, with the time.
    waiting: WaitingRequests<(Request, Done, Asked, u64)>,
    /// True while they are begun.
    begins: bool,
}

impl Room {
    /// Returns the number of waiting changes.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }
}

impl<C: Cache<Step = Step>> Engine<C> {
    /// Takes the waiting changes, in order, because this engine does not begin them.
    pub fn take_waiting(&mut self) -> Vec<(Request, Done)> {
        std::iter::from_fn(|| self.layout.room.waiting.pop()).map(|(request, done, ..)| (request, done)).collect()
    }

    /// Plans a request, or lets it wait for room. Changes keep their order, so none overtakes one that waits.
    pub(super) fn begin_or_wait(&mut self, request: Request, done: Done, asked: Asked, now_us: u64) {
        if !request.changes() || self.layout.room.waiting.is_empty() && !self.must_wait(&request) {
            return self.begin_request(request, done, asked, now_us);
        }
        let (operation, bytes) = (request.operation, request.bytes());
        self.layout.room.waiting.push(operation, &bytes, (request, done, asked, now_us));
        self.layout.goes_on = true;
        super::Log::go_on(self);
    }

    fn must_wait(&mut self, request: &Request) -> bool {
        let Request { operation, offset, length, force_unit_access, caching, .. } = *request;
        let whole = cache::Request::whole(engine::kind(operation), offset, length, force_unit_access);
        self.cache.waits(&cache::Request { caching, ..whole })
    }

    /// Plans the changes that no longer have to wait. Returns true if there was one, and others still wait.
    pub(super) fn begin_waiting(&mut self) -> bool {
        if self.layout.room.waiting.is_empty() || std::mem::replace(&mut self.layout.room.begins, true) {
            return false;
        }
        let before = self.layout.room.len();
        while let Some((request, done, asked, since_us)) = self.layout.room.waiting.pop() {
            if self.must_wait(&request) {
                let (operation, bytes) = (request.operation, request.bytes());
                self.layout.room.waiting.push_front(operation, &bytes, (request, done, asked, since_us));
                break;
            }
            let waited_us = asked.waited_us + self.now_us.saturating_sub(since_us);
            self.begin_request(request, done, Asked { waited_us, ..asked }, self.now_us);
        }
        self.layout.room.begins = false;
        (1..before).contains(&self.layout.room.len())
    }
}
