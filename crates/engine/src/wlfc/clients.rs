//! Requests of clients: planned when they come, and answered or handed back once their steps are done.

use flashwise_core::cache::{self, Cache, Event};
use flashwise_core::wlfc::Step;

use super::Engine;
use crate::engine::{Answered, Asked, Client, kind};
use crate::export::{Done, Error, Operation, Request};

impl<C: Cache<Step = Step>> Engine<C> {
    /// Begins a request, unless the cache has stopped or a read needs the outcome of a change that is not answered. A read that showed the
    /// content of a change that then fails would show content that comes and goes.
    pub(super) fn admit(&mut self, request: Request, done: Done, asked: Asked, now_us: u64) {
        if self.layout.stopped.is_some() {
            if self.settings.holds_failed && !self.layout.waits {
                self.held.push((asked.number, request, done));
            } else {
                let started_us = now_us.saturating_sub(asked.waited_us);
                self.answered.push(Answered { operation: request.operation, started_us, failed: true });
                self.answers.push((done, Err(Error::Io)));
            }
        } else if request.operation == Operation::Read && self.clients.is_being_changed(&request) {
            self.layout.delayed.push((request, done, asked, now_us));
        } else {
            self.begin_request(request, done, asked, now_us);
        }
    }

    /// Begins the reads whose changes are answered now.
    pub(super) fn admit_delayed(&mut self) {
        for (request, done, asked, now_us) in std::mem::take(&mut self.layout.delayed) {
            self.admit(request, done, asked, now_us);
        }
    }

    /// Plans a request as a whole.
    pub(super) fn plan_whole(&mut self, number: u32, now_us: u64) {
        let request = &self.clients.get(number).request;
        let durable = request.makes_durable();
        let &Request { operation, offset, length, force_unit_access, caching, .. } = request;
        let whole =
            cache::Request { caching, ..cache::Request::whole(kind(operation), offset, length, force_unit_access) };
        let mut steps = std::mem::take(&mut self.planned);
        self.cache.on(Event::Request { request: &whole, now_us }, &mut steps);
        self.enqueue_plan(&mut steps, Some(number), durable);
        self.planned = steps;
    }

    pub(super) fn answer(&mut self, mut client: Client) {
        if client.error.is_none() && client.request.makes_durable() && self.layout.ahead.has_lost() {
            (client.error, client.is_own) = (Some(Error::Io), true);
        }
        let (Asked { number, again, .. }, incomplete) = (client.asked, client.incomplete);
        // What a flush of the backend was to make durable that failed is gone, and what came after it may have taken its place.
        let is_gone = client.passed && !incomplete && !again && self.layout.backend_flush_failed;
        let is_repeated = !client.is_own && !is_gone;
        if client.error.is_some() && self.layout.stopped.is_some() && self.settings.holds_failed && is_repeated {
            let (mut request, done) = client.hand_back();
            if again {
                if request.changes() {
                    self.layout.ahead.keep(number, request);
                }
                self.layout.ahead.end(number);
                return;
            }
            if !incomplete && request.changes() {
                // What was written is not written again by itself: a later write may have taken its place.
                let flush = Request { caching: request.caching, ..Request::flush() };
                self.layout.ahead.remember(number, std::mem::replace(&mut request, flush));
            }
            // It came before what failed.
            request.force_unit_access |= request.operation == Operation::Flush;
            self.held.push((number, request, done));
            return;
        }
        if client.error.is_some() && self.layout.holds_frozen && !again {
            let (request, done) = client.hand_back();
            self.held.push((number, request, done));
            return;
        }
        let (answered, done, result, request) = client.answer();
        match &result {
            Ok(_) if request.changes() => {
                self.layout.ahead.answered(number, request).iter().for_each(|change| self.clients.make(change));
            }
            Err(_) if again && request.changes() => self.layout.ahead.lose(number, request),
            _ => {}
        }
        if again {
            self.layout.ahead.end(number);
        } else {
            self.answered.push(answered);
            self.answers.push((done, result));
        }
    }
}
