//! Requests of clients: planned when they come, and answered or handed back once their steps are done.

use flashwise_core::cache::{self, Cache, Event};
use flashwise_core::wlfc::Step;

use super::Engine;
use crate::engine::{Answered, OfBuckets, kind, leave_out_flushes};
use crate::export::{Done, Error, Operation, Request};

impl<C: Cache<Step = Step>> Engine<C> {
    /// Starts a request at a time; its range lies within the volume.
    pub fn submit(&mut self, request: Request, done: Done, now_us: u64) {
        self.submit_waited(request, done, now_us, 0);
    }

    /// As [`submit`](Self::submit), of a request that came this long before.
    pub fn submit_waited(&mut self, mut request: Request, done: Done, now_us: u64, waited_us: u64) {
        self.requests += 1;
        if self.stopped.is_none() && self.settings.answers_flushes_at_once && leave_out_flushes(&mut request) {
            self.answers.push((done, Ok(Vec::new())));
            return;
        }
        let of_buckets = OfBuckets { number: self.requests, waited_us, ..OfBuckets::default() };
        self.admit(request, done, of_buckets, now_us);
    }

    /// Begins a request, unless the cache has stopped or a read needs the outcome of a change that is not answered. A read that showed the
    /// content of a change that then fails would show content that comes and goes.
    fn admit(&mut self, request: Request, done: Done, of_buckets: OfBuckets, now_us: u64) {
        if self.stopped.is_some() {
            if self.settings.holds_failed && !self.waits {
                self.held.push((of_buckets.number, request, done));
            } else {
                let started_us = now_us.saturating_sub(of_buckets.waited_us);
                self.answered.push(Answered { operation: request.operation, started_us, failed: true });
                self.answers.push((done, Err(Error::Io)));
            }
        } else if request.operation == Operation::Read && self.clients.is_being_changed(&request) {
            self.delayed.push((request, done, of_buckets, now_us));
        } else {
            self.begin_request(request, done, of_buckets, now_us);
        }
    }

    /// Begins the reads whose changes are answered now.
    pub(super) fn admit_delayed(&mut self) {
        for (request, done, of_buckets, now_us) in std::mem::take(&mut self.delayed) {
            self.admit(request, done, of_buckets, now_us);
        }
    }

    /// Plans a request.
    pub(super) fn begin_request(&mut self, request: Request, done: Done, of_buckets: OfBuckets, now_us: u64) {
        if of_buckets.again {
            self.ahead.begin(of_buckets.number);
        }
        let durable = request.makes_durable();
        let Request { operation, offset, length, force_unit_access, caching, .. } = request;
        let alone = request.is_flush() && !self.clients.any_changes();
        let number = self.clients.insert(request, done, now_us.saturating_sub(of_buckets.waited_us));
        self.clients.get_mut(number).of_buckets = OfBuckets { alone, ..of_buckets };
        let whole =
            cache::Request { caching, ..cache::Request::whole(kind(operation), offset, length, force_unit_access) };
        let mut steps = std::mem::take(&mut self.planned);
        self.cache.on(Event::Request { request: &whole, now_us }, &mut steps);
        self.enqueue_plan(&mut steps, Some(number), durable);
        self.planned = steps;
        self.clients.get_mut(number).planned = true;
        self.run_ready();
        self.answer_if_complete(number);
    }

    pub(super) fn answer_if_complete(&mut self, number: u32) {
        let Some(mut client) = self.clients.take_complete(number) else { return };
        if client.error.is_none() && client.request.makes_durable() && self.ahead.has_lost() {
            (client.error, client.of_buckets.is_own) = (Some(Error::Io), true);
        }
        let OfBuckets { number, again, is_own, incomplete, passed, .. } = client.of_buckets;
        // What a flush of the backend was to make durable that failed is gone, and what came after it may have taken its place.
        let is_gone = passed && !incomplete && !again && self.backend_flush_failed;
        if client.error.is_some() && self.stopped.is_some() && self.settings.holds_failed && !is_own && !is_gone {
            let (mut request, done) = client.hand_back();
            if again {
                if request.changes() {
                    self.ahead.keep(number, request);
                }
                self.ahead.end(number);
                return;
            }
            if !incomplete && request.changes() {
                // What was written is not written again by itself: a later write may have taken its place.
                let flush = Request { caching: request.caching, ..Request::flush() };
                self.ahead.remember(number, std::mem::replace(&mut request, flush));
            }
            // It came before what failed.
            request.force_unit_access |= request.operation == Operation::Flush;
            self.held.push((number, request, done));
            return;
        }
        if client.error.is_some() && self.holds_frozen && !again {
            let (request, done) = client.hand_back();
            self.held.push((number, request, done));
            return;
        }
        let (answered, done, result, request) = client.answer();
        match &result {
            Ok(_) if request.changes() => {
                self.ahead.answered(number, request).iter().for_each(|change| self.clients.make(change));
            }
            Err(_) if again && request.changes() => self.ahead.lose(number, request),
            _ => {}
        }
        if again {
            self.ahead.end(number);
        } else {
            self.answered.push(answered);
            self.answers.push((done, result));
        }
    }
}
