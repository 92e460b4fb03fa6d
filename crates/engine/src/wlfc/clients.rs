//! Requests of clients: planned when they come, and answered or handed back once their steps are done.

use flashwise_core::cache::{self, Cache, Event};
use flashwise_core::filter::Caching;
use flashwise_core::wlfc::Step;

use super::{Engine, insert};
use crate::engine::Answered;
use crate::export::{Done, Error, Operation, Request};

/// A request that is not answered.
pub(super) struct Client {
    /// Counts requests, in the order in which they came.
    pub number: u64,
    pub length: u64,
    pub force_unit_access: bool,
    pub caching: Caching,
    /// The error is that of the backend and its own.
    pub is_own: bool,
    /// A step other than a flush did not take place.
    pub incomplete: bool,
    pub data: Vec<u8>,
    pub reply: Vec<u8>,
    pub done: Option<Done>,
    pub pending: u32,
    pub planned: bool,
    pub error: Option<Error>,
    pub started_us: u64,
    pub operation: Operation,
    pub offset: u64,
}

impl<C: Cache<Step = Step>> Engine<C> {
    /// Starts a request at a time; its range lies within the volume.
    pub fn submit(&mut self, request: Request, done: Done, now_us: u64) {
        self.requests += 1;
        if self.stopped.is_some() {
            match self.settings.holds_failed {
                true => self.held.push((self.requests, request, done)),
                false => {
                    self.answered.push(Answered { operation: request.operation, started_us: now_us, failed: true });
                    self.answers.push((done, Err(Error::Io)));
                }
            }
            return;
        }
        let Request { operation, offset, length, mut force_unit_access, data, caching } = request;
        if self.settings.answers_flushes_at_once {
            force_unit_access = false;
            if operation == Operation::Flush {
                self.answers.push((done, Ok(Vec::new())));
                return;
            }
        }
        let reply = if operation == Operation::Read { vec![0; length as usize] } else { Vec::new() };
        let client = Client {
            number: self.requests,
            length,
            force_unit_access,
            caching,
            is_own: false,
            incomplete: false,
            data,
            reply,
            done: Some(done),
            pending: 0,
            planned: false,
            error: None,
            started_us: now_us,
            operation,
            offset,
        };
        let number = insert(&mut self.clients, &mut self.free_clients, client);
        let kind = crate::engine::kind(operation);
        let whole = cache::Request { caching, ..cache::Request::whole(kind, offset, length, force_unit_access) };
        let mut steps = std::mem::take(&mut self.planned);
        self.cache.on(Event::Request { request: &whole, now_us }, &mut steps);
        let durable = operation == Operation::Flush || force_unit_access && operation != Operation::Read;
        self.enqueue_plan(&mut steps, Some(number), durable);
        self.planned = steps;
        self.client(number).planned = true;
        self.run_ready();
        self.answer_if_complete(number);
    }

    pub(super) fn client(&mut self, number: u32) -> &mut Client {
        self.clients[number as usize].as_mut().expect("a request is there until it is answered")
    }

    pub(super) fn answer_if_complete(&mut self, number: u32) {
        let Some(client) = &self.clients[number as usize] else { return };
        if client.pending > 0 || !client.planned {
            return;
        }
        let mut client = self.clients[number as usize].take().expect("checked above");
        self.free_clients.push(number);
        let done = client.done.take().expect("a request is answered once");
        if client.error.is_some() && self.stopped.is_some() && self.settings.holds_failed && !client.is_own {
            let Client { number, operation, offset, length, force_unit_access, caching, data, incomplete, .. } = client;
            let mut request = Request { operation, offset, length, force_unit_access, data, caching };
            if !incomplete && operation != Operation::Read {
                // What was written is not written again: a later write may have taken its place.
                (request.operation, request.offset, request.length) = (Operation::Flush, 0, 0);
                request.data.clear();
            }
            self.held.push((number, request, done));
            return;
        }
        let answered =
            Answered { operation: client.operation, started_us: client.started_us, failed: client.error.is_some() };
        self.answered.push(answered);
        self.answers.push((done, client.error.map_or(Ok(client.reply), Err)));
    }
}
