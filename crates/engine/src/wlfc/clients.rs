//! Requests of clients: planned on arrival, and answered or handed back once their steps are done.

use flashwise_core::cache::{self, Cache, Event};
use flashwise_core::wlfc::Step;

use super::Engine;
use crate::engine::{Answered, Asked, Client, kind};
use crate::request::{Done, Error, Operation, Request};

impl<C: Cache<Step = Step>> Engine<C> {
    /// Begins a request. A read waits if it depends on a change without a reply, because it must not return content of
    /// a change that then fails. If the cache has stopped, the request is held or fails.
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

    /// Begins the reads whose changes have their replies now.
    pub(super) fn admit_delayed(&mut self) {
        for (request, done, asked, now_us) in std::mem::take(&mut self.layout.delayed) {
            self.admit(request, done, asked, now_us);
        }
    }

    /// Plans a whole request.
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
        // Data of a failed flush of the backend is lost, and later changes may have replaced it.
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
                // A completed write is not repeated by itself, because a later write may have replaced it.
                let flush = Request { caching: request.caching, ..Request::flush() };
                self.layout.ahead.remember(number, std::mem::replace(&mut request, flush));
            }
            // The flush came before the failure.
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
