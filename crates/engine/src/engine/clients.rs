//! Clients' requests: planned piece by piece as they come, and answered once all steps that they wait for are done.

use std::ops::Range;

use flashwise_core::cache::{self, Cache, Event};
use flashwise_core::step::Step;

use super::Engine;
use crate::export::{Done, Error, Operation, Request};
use crate::join::Join;

/// A request that is under way.
pub(crate) struct Client {
    /// What was asked. Its data are bytes to write.
    pub request: Request,
    /// The bytes to read.
    pub reply: Vec<u8>,
    done: Done,
    /// Steps that it waits for.
    pub pending: u32,
    /// All of it is planned.
    pub planned: bool,
    pub error: Option<Error>,
    started_us: u64,
    /// It is not answered before this time.
    pub until_us: u64,
    /// It takes the place of what is kept in memory, up to this number.
    pub replaces_kept: Option<u64>,
    /// Changes that were answered before it came and are made since, or something newer: what it reads may lack them.
    pub made_since: Vec<Request>,
    /// It read content that was not written after all, and begins anew.
    pub reads_anew: bool,
    /// Counts changes in the order in which they came.
    number: u64,
    /// Changes of its bytes that came later and were answered: the bytes that each is about.
    overwritten: Vec<Range<u64>>,
    pub of_buckets: OfBuckets,
}

/// What the engine of WLFC knows of a request besides.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OfBuckets {
    /// Counts requests, in the order in which they came.
    pub number: u64,
    /// How long it waited before it was begun.
    pub waited_us: u64,
    /// It was answered before, and is made again.
    pub again: bool,
    /// The error is that of the backend and its own.
    pub is_own: bool,
    /// A step other than a flush did not take place.
    pub incomplete: bool,
    /// Something of it was written to the backend past the cache.
    pub passed: bool,
    /// No change was under way when it came.
    pub alone: bool,
}

/// The requests that are under way, by number, in the engine of any cache.
#[derive(Default)]
pub(crate) struct Clients {
    all: Vec<Option<Client>>,
    free: Vec<u32>,
    /// Requests so far.
    begun: u64,
}

impl Clients {
    /// Takes a request that came at a time.
    pub fn insert(&mut self, request: Request, done: Done, started_us: u64) -> u32 {
        let reply = if request.operation == Operation::Read { vec![0; request.length as usize] } else { Vec::new() };
        let (pending, planned, error, until_us, of_buckets) = (0, false, None, 0, OfBuckets::default());
        let (replaces_kept, made_since) = (None, Vec::new());
        let client = Client {
            request,
            reply,
            done,
            pending,
            planned,
            error,
            started_us,
            until_us,
            replaces_kept,
            made_since,
            reads_anew: false,
            number: self.begun,
            overwritten: Vec::new(),
            of_buckets,
        };
        self.begun += 1;
        insert(&mut self.all, &mut self.free, client)
    }

    /// Requests that are under way.
    pub fn len(&self) -> usize {
        self.all.len() - self.free.len()
    }

    /// True if one of them changes what is stored.
    pub fn any_changes(&self) -> bool {
        self.requests().any(Request::changes)
    }

    /// True if a change that is not answered is about bytes of `request`.
    pub fn is_being_changed(&self, request: &Request) -> bool {
        let mut first_time = self.all.iter().flatten().filter(|client| !client.of_buckets.again);
        first_time.any(|client| client.request.changes_part_of(request))
    }

    pub fn get(&self, number: u32) -> &Client {
        self.all[number as usize].as_ref().expect("a request is there until it is answered")
    }

    pub fn get_mut(&mut self, number: u32) -> &mut Client {
        self.all[number as usize].as_mut().expect("a request is there until it is answered")
    }

    /// What clients asked for and is not answered.
    pub fn requests(&self) -> impl Iterator<Item = &Request> {
        self.all.iter().flatten().map(|client| &client.request)
    }

    /// A change is made that was answered before any of those came that read what it is about.
    pub fn make(&mut self, change: &Request) {
        let of_change = |client: &&mut Client| change.changes_part_of(&client.request);
        self.all.iter_mut().flatten().filter(of_change).for_each(|client| client.made_since.push(change.clone()));
    }

    /// Notes that a change was answered: an older one that is under way and has to be repeated leaves out the bytes of this one.
    pub fn note_answered(&mut self, answered: &Client) {
        let change = &answered.request;
        if !change.changes() || self.len() == 0 {
            return;
        }
        let is_older = |client: &&mut Client| client.number < answered.number && client.request.changes();
        let of_change = |client: &&mut Client| change.changes_part_of(&client.request);
        for client in self.all.iter_mut().flatten().filter(is_older).filter(of_change) {
            client.overwritten.push(change.offset..change.offset + change.length);
        }
    }

    /// Takes out the request, if all that it waits for is done.
    pub fn take_complete(&mut self, number: u32) -> Option<Client> {
        let client = self.all[number as usize].take_if(|client| client.pending == 0 && client.planned)?;
        self.free.push(number);
        Some(client)
    }
}

impl Client {
    /// What became of it, for latencies, and the answer; and what was asked.
    pub fn answer(self) -> (Answered, Done, Result<Vec<u8>, Error>, Request) {
        let Client { request, started_us, error, .. } = self;
        let answered = Answered { operation: request.operation, started_us, failed: error.is_some() };
        (answered, self.done, error.map_or(Ok(self.reply), Err), request)
    }

    /// What was asked, and who is to be told, as if it had not been begun.
    pub fn hand_back(self) -> (Request, Done) {
        (self.request, self.done)
    }

    /// Returns the requests to repeat, as if this one had not been begun. Bytes that a later change has overwritten are left out, so that
    /// the repetition never takes effect after newer content.
    pub fn repeat(mut self) -> Vec<(Request, Done)> {
        if self.overwritten.is_empty() {
            return vec![(self.request, self.done)];
        }
        self.overwritten.sort_unstable_by_key(|range| range.start);
        let (mut at, end) = (self.request.offset, self.request.offset + self.request.length);
        let mut left = Vec::new();
        for range in self.overwritten.iter().chain([&(end..end)]) {
            if at < range.start {
                left.push(at..range.start);
            }
            at = at.max(range.end);
        }
        if left.is_empty() {
            // All bytes are newer now. A durable change is answered once those are durable.
            return vec![(Request { force_unit_access: true, ..Request::flush() }, self.done)];
        }
        let join = Join::new(left.len(), Vec::new(), self.done);
        let piece = |range: Range<u64>| {
            let from = (range.start - self.request.offset) as usize;
            let length = range.end - range.start;
            let data = self.request.data.get(from..from + length as usize).map(<[u8]>::to_vec).unwrap_or_default();
            (Request { offset: range.start, length, data, ..self.request.clone() }, join.piece(0))
        };
        left.into_iter().map(piece).collect()
    }
}

/// Makes of `request` what it is where flushes are answered and not done. Whether nothing is left of it.
pub(crate) fn leave_out_flushes(request: &mut Request) -> bool {
    request.force_unit_access = false;
    request.operation == Operation::Flush
}

/// Puts `new` where one is free, and says where.
pub(crate) fn insert<T>(all: &mut Vec<Option<T>>, free: &mut Vec<u32>, new: T) -> u32 {
    match free.pop() {
        Some(number) => {
            all[number as usize] = Some(new);
            number
        }
        None => {
            all.push(Some(new));
            (all.len() - 1) as u32
        }
    }
}

/// An answered request, for latencies.
#[derive(Clone, Copy, Debug)]
pub struct Answered {
    /// What it was.
    pub operation: Operation,
    /// When it came.
    pub started_us: u64,
    /// True if it failed.
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
    /// True if it is a flush that is asked for.
    pub(super) fn is_flush(&self, request: Option<u32>) -> bool {
        request.is_some_and(|request| self.clients.get(request).request.is_flush())
    }

    /// True if it is a read that is asked for.
    pub(super) fn is_read(&self, request: Option<u32>) -> bool {
        request.is_some_and(|request| self.clients.get(request).request.operation == Operation::Read)
    }

    /// True if it is a write that is asked for.
    pub(super) fn is_write(&self, request: Option<u32>) -> bool {
        request.is_some_and(|request| self.clients.get(request).request.operation == Operation::Write)
    }

    /// Starts a request at a time; its range lies within the volume. Ticks that are due come first.
    pub fn submit(&mut self, request: Request, done: Done, now_us: u64) {
        self.submit_waited(request, done, now_us, 0);
    }

    /// As [`submit`](Self::submit), of a request that came this long before.
    pub fn submit_waited(&mut self, mut request: Request, done: Done, now_us: u64, waited_us: u64) {
        self.now_us = self.now_us.max(now_us);
        self.advance(now_us);
        if self.settings.answers_flushes_at_once && leave_out_flushes(&mut request) {
            self.answers.push((done, Ok(Vec::new())));
            return;
        }
        self.begin_request(request, done, now_us, OfBuckets { waited_us, ..OfBuckets::default() });
    }

    /// Plans a request.
    pub(super) fn begin_request(&mut self, request: Request, done: Done, now_us: u64, of_buckets: OfBuckets) {
        let replaces_kept = if of_buckets.again { None } else { self.change_begins(&request) };
        let Request { operation, offset, length, force_unit_access, caching, .. } = request;
        let number = self.clients.insert(request, done, now_us.saturating_sub(of_buckets.waited_us));
        self.clients.get_mut(number).of_buckets = of_buckets;
        self.clients.get_mut(number).replaces_kept = replaces_kept;
        let plan = |engine: &mut Self, piece: cache::Request| {
            let mut steps = std::mem::take(&mut engine.planned);
            engine.cache.on(Event::Request { request: &piece, now_us }, &mut steps);
            engine.enqueue_plan(&mut steps, Some(number), (piece.offset - offset) as u32);
            engine.planned = steps;
        };
        match self.pieces_elsewhere(number) {
            Some(pieces) => pieces.into_iter().for_each(|piece| plan(self, piece)),
            None => {
                let pieces = cache::Request::pieces(kind(operation), offset, length, force_unit_access);
                pieces.of_client(caching).for_each(|piece| plan(self, piece));
            }
        }
        self.clients.get_mut(number).planned = true;
        self.run_ready();
        self.go_on();
        self.answer_if_complete(number);
    }

    /// Plans a request a second time.
    pub(super) fn begin_anew(&mut self, client: Client) {
        let Client { request, done, started_us, mut of_buckets, .. } = client;
        of_buckets.waited_us = self.now_us.saturating_sub(started_us);
        self.begin_request(request, done, self.now_us, of_buckets);
    }

    /// True if requests that fail are handed back rather than answered.
    pub(super) fn hands_back(&self) -> bool {
        self.settings.holds_failed && self.flash_failed
    }

    pub(super) fn answer_if_complete(&mut self, number: u32) {
        let Some(client) = self.clients.take_complete(number) else { return };
        let until_us = client.until_us;
        if client.of_buckets.again {
            return;
        }
        if let Some(before) = client.replaces_kept {
            self.change_ends(&client.request, client.error.is_some(), before);
        }
        if client.error.is_some() && self.hands_back() {
            self.held.extend(client.repeat());
            return;
        }
        if client.reads_anew {
            self.read_anew.push(client);
            return;
        }
        if client.error.is_none() && self.settings.holds_failed {
            self.clients.note_answered(&client);
        }
        let (answered, done, result, _) = client.answer();
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
