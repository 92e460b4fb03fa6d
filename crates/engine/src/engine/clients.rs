//! Clients' requests: planned piece by piece as they come, and answered once all steps that they wait for are done.

use flashwise_core::cache::{self, Cache, Event};
use flashwise_core::filter::Caching;
use flashwise_core::step::Step;

use super::Engine;
use crate::export::{Done, Error, Operation, Request};

/// A request that is under way.
pub(super) struct Client {
    pub data: Vec<u8>,
    pub reply: Vec<u8>,
    pub done: Option<Done>,
    pub pending: u32,
    /// All pieces are planned.
    pub planned: bool,
    pub error: Option<Error>,
    pub started_us: u64,
    pub operation: Operation,
    pub offset: u64,
    pub length: u64,
    pub force_unit_access: bool,
    /// It is not answered before this time.
    pub until_us: u64,
    pub caching: Caching,
}

/// An answered request, for latencies.
#[derive(Clone, Copy, Debug)]
pub struct Answered {
    /// What it was.
    pub operation: Operation,
    /// When it came.
    pub started_us: u64,
    /// Whether it failed.
    pub failed: bool,
}

/// The answer to a request that is not given before a time.
pub struct Paused {
    /// That time.
    pub until_us: u64,
    /// What was asked.
    pub answered: Answered,
    /// Who is to be told.
    pub done: Done,
    /// What.
    pub result: Result<Vec<u8>, Error>,
}

impl<C: Cache<Step = Step>> Engine<C> {
    /// Starts a request at a time; its range lies within the volume. Ticks that are due come first.
    pub fn submit(&mut self, request: Request, done: Done, now_us: u64) {
        self.now_us = self.now_us.max(now_us);
        self.advance(now_us);
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
            data,
            reply,
            done: Some(done),
            pending: 0,
            planned: false,
            error: None,
            started_us: now_us,
            operation,
            offset,
            length,
            force_unit_access,
            until_us: 0,
            caching,
        };
        let number = match self.free_clients.pop() {
            Some(number) => {
                self.clients[number as usize] = Some(client);
                number
            }
            None => {
                self.clients.push(Some(client));
                (self.clients.len() - 1) as u32
            }
        };
        let pieces = cache::Request::pieces(kind(operation), offset, length, force_unit_access);
        for piece in pieces.of_client(caching) {
            let mut steps = std::mem::take(&mut self.planned);
            self.cache.on(Event::Request { request: &piece, now_us }, &mut steps);
            self.enqueue_plan(&mut steps, Some(number), (piece.offset - offset) as u32);
            self.planned = steps;
        }
        let client = self.client(number);
        client.planned = true;
        self.run_ready();
        self.go_on();
        self.answer_if_complete(number);
    }

    pub(super) fn client(&mut self, number: u32) -> &mut Client {
        self.clients[number as usize].as_mut().expect("a request is there until it is answered")
    }

    pub(super) fn answer_if_complete(&mut self, number: u32) {
        let Some(client) = &mut self.clients[number as usize] else { return };
        if client.pending > 0 || !client.planned {
            return;
        }
        let mut client = self.clients[number as usize].take().expect("checked above");
        self.free_clients.push(number);
        let done = client.done.take().expect("a request is answered once");
        let Client { operation, offset, length, force_unit_access, caching, data, .. } = client;
        let Client { started_us, error, reply, until_us, .. } = client;
        if error.is_some() && self.settings.holds_failed && self.flash_failed {
            let request = Request { operation, offset, length, force_unit_access, data, caching };
            self.held.push((request, done));
            return;
        }
        let answered = Answered { operation, started_us, failed: error.is_some() };
        let result = error.map_or(Ok(reply), Err);
        if until_us > self.now_us && result.is_ok() {
            self.paused.push(Paused { until_us, answered, done, result });
            return;
        }
        self.answered.push(answered);
        self.answers.push((done, result));
    }
}

/// What the cache calls an operation.
pub(crate) fn kind(operation: Operation) -> cache::Kind {
    match operation {
        Operation::Read => cache::Kind::Read,
        Operation::Write => cache::Kind::Write,
        Operation::Flush => cache::Kind::Flush,
        Operation::Trim => cache::Kind::Trim,
        Operation::WriteZeroes { may_punch_holes, .. } => cache::Kind::WriteZeroes { may_punch_holes },
        Operation::Cache => cache::Kind::Prefetch,
    }
}
