//! Requests of clients: planned when they come, and answered once all steps that they wait for have ended.

use std::ops::Range;

use flashwise_core::cache;
use flashwise_core::format::BLOCK_BYTES;

use super::{Engine, Layout};
use crate::join::Join;
use crate::request::{Done, Error, Operation, Request};

/// Bytes of a block.
pub(super) const BLOCK: u64 = BLOCK_BYTES as u64;

/// The order and the history of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked {
    /// The number of the request, in the order of arrival.
    pub number: u64,
    /// The time that it waited before it was begun.
    pub waited_us: u64,
    /// True if it is the engine's own: a repetition of an answered request, or a read of a block that could not be
    /// read.
    pub again: bool,
}

/// An unanswered request.
pub struct Client {
    /// The request. Its data are the bytes to write.
    pub request: Request,
    /// The bytes read so far.
    reply: Vec<u8>,
    done: Done,
    pub(crate) asked: Asked,
    /// The number of unfinished steps that it waits for.
    pub(crate) pending: u32,
    /// True if all of it is planned.
    planned: bool,
    /// The error of its answer.
    pub error: Option<Error>,
    pub(crate) started_us: u64,
    /// It is not answered before this time.
    pub(crate) until_us: u64,
    /// It replaces the blocks that are kept in memory, up to this number.
    pub(crate) replaces_kept: Option<u64>,
    /// Changes that were acknowledged before it arrived, and were made or replaced since. Its reads may miss them.
    pub(crate) made_since: Vec<Request>,
    /// True if it read content that was not written after all, so it begins again.
    pub(crate) reads_anew: bool,
    /// Byte ranges of later changes that were answered.
    overwritten: Vec<Range<u64>>,
    /// True if the error is its own, and not one of the whole cache.
    pub(crate) is_own: bool,
    /// True if a step other than a flush did not happen.
    pub(crate) incomplete: bool,
    /// True if some of it was written to the backend past the cache.
    pub(crate) passed: bool,
    /// True if no change was in progress when it arrived.
    pub(crate) alone: bool,
}

/// The unanswered requests, by number.
#[derive(Default)]
pub(crate) struct Clients {
    all: Vec<Option<Client>>,
    free: Vec<u32>,
}

impl Clients {
    fn insert(&mut self, client: Client) -> u32 {
        insert(&mut self.all, &mut self.free, client)
    }

    /// Returns the number of unanswered requests.
    pub fn len(&self) -> usize {
        self.all.len() - self.free.len()
    }

    /// True if one of them changes data.
    pub fn any_changes(&self) -> bool {
        self.requests().any(Request::changes)
    }

    /// True if an unanswered change overlaps `request`.
    pub fn is_being_changed(&self, request: &Request) -> bool {
        let mut first_time = self.all.iter().flatten().filter(|client| !client.asked.again);
        first_time.any(|client| client.request.changes_part_of(request))
    }

    pub fn get(&self, number: u32) -> &Client {
        self.all[number as usize].as_ref().expect("a request is there until it is answered")
    }

    pub fn get_mut(&mut self, number: u32) -> &mut Client {
        self.all[number as usize].as_mut().expect("a request is there until it is answered")
    }

    /// Returns the unanswered requests.
    pub fn requests(&self) -> impl Iterator<Item = &Request> {
        self.all.iter().flatten().map(|client| &client.request)
    }

    /// Records a change that is made now, and was acknowledged before the overlapping requests arrived.
    pub fn make(&mut self, change: &Request) {
        let of_change = |client: &&mut Client| change.changes_part_of(&client.request);
        self.all.iter_mut().flatten().filter(of_change).for_each(|client| client.made_since.push(change.clone()));
    }

    /// Notes an answered change. An older unanswered one, if it is repeated, leaves out the bytes of this one.
    pub fn note_answered(&mut self, number: u64, change: &Request) {
        if self.len() == 0 {
            return;
        }
        let is_older = |client: &&mut Client| client.asked.number < number && client.request.changes();
        let of_change = |client: &&mut Client| change.changes_part_of(&client.request);
        for client in self.all.iter_mut().flatten().filter(is_older).filter(of_change) {
            client.overwritten.push(change.offset..change.offset + change.length);
        }
    }

    /// Takes a request that waits for no steps any more.
    pub fn take_complete(&mut self, number: u32) -> Option<Client> {
        let client = self.all[number as usize].take_if(|client| client.pending == 0 && client.planned)?;
        self.free.push(number);
        Some(client)
    }
}

impl Client {
    fn new(request: Request, done: Done, asked: Asked, now_us: u64) -> Client {
        let reply_bytes = if request.operation == Operation::Read { request.length as usize } else { 0 };
        Client {
            request,
            reply: Vec::with_capacity(reply_bytes),
            done,
            asked,
            pending: 0,
            planned: false,
            error: None,
            started_us: now_us.saturating_sub(asked.waited_us),
            until_us: 0,
            replaces_kept: None,
            made_since: Vec::new(),
            reads_anew: false,
            overwritten: Vec::new(),
            is_own: false,
            incomplete: false,
            passed: false,
            alone: false,
        }
    }

    /// Puts bytes into the reply, at a position. Returns them, to be changed. Bytes that come in order are written
    /// once.
    pub fn put(&mut self, to: usize, bytes: &[u8]) -> &mut [u8] {
        let end = to + bytes.len();
        if to == self.reply.len() {
            self.reply.extend_from_slice(bytes);
        } else {
            self.reply.resize(self.reply.len().max(end), 0);
            self.reply[to..end].copy_from_slice(bytes);
        }
        &mut self.reply[to..end]
    }

    /// Returns its result for the latencies, its answer, and the request.
    pub(crate) fn answer(self) -> (Answered, Done, Result<Vec<u8>, Error>, Request) {
        let Client { request, started_us, error, .. } = self;
        let answered = Answered { operation: request.operation, started_us, failed: error.is_some() };
        (answered, self.done, error.map_or(Ok(self.reply), Err), request)
    }

    /// Returns the request as if it had not been begun.
    pub(crate) fn hand_back(self) -> (Request, Done) {
        (self.request, self.done)
    }

    /// Returns the requests to repeat, as if this one had not been begun. Bytes that a later change has overwritten are
    /// left out, so that the repetition never takes effect after newer content.
    pub(crate) fn repeat(mut self) -> Vec<(Request, Done)> {
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

/// Puts `new` at a free position, and returns that.
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
    /// The operation.
    pub operation: Operation,
    /// The time of its arrival.
    pub started_us: u64,
    /// True if it failed.
    pub failed: bool,
}

/// An answer that waits until a time.
pub struct Paused {
    /// The time.
    pub until_us: u64,
    /// The request, for latencies.
    pub answered: Answered,
    /// The function that takes the answer.
    pub done: Done,
    /// The answer.
    pub result: Result<Vec<u8>, Error>,
}

impl<L: Layout> Engine<L> {
    /// Starts a request at time `now_us`. Its range must lie within the volume.
    pub fn submit(&mut self, request: Request, done: Done, now_us: u64) {
        self.submit_waited(request, done, now_us, 0);
    }

    /// Like [`submit`](Self::submit), for a request that has waited.
    pub fn submit_waited(&mut self, request: Request, done: Done, now_us: u64, waited_us: u64) {
        self.now_us = self.now_us.max(now_us);
        self.requests += 1;
        let asked = Asked { number: self.requests, waited_us, again: false };
        let left = if self.recovery.works() { self.without_flushes(request, done) } else { Some((request, done)) };
        if let Some((request, done)) = left {
            self.admit(request, done, asked, now_us);
        }
    }

    /// Answers a flush that has to be answered at once. Returns the request if anything of it is left.
    fn without_flushes(&mut self, mut request: Request, done: Done) -> Option<(Request, Done)> {
        if self.settings.answers_flushes_at_once {
            request.force_unit_access = false;
            if request.operation == Operation::Flush {
                self.answers.push((done, Ok(Vec::new())));
                return None;
            }
        }
        Some((request, done))
    }

    /// Plans a request of the engine itself, without a waiting client.
    pub(crate) fn begin_own(&mut self, request: Request, now_us: u64) {
        self.requests += 1;
        let asked = Asked { number: self.requests, waited_us: 0, again: true };
        self.begin_request(request, Box::new(|_| ()), asked, now_us);
    }

    /// Plans a request.
    pub(crate) fn begin_request(&mut self, request: Request, done: Done, asked: Asked, now_us: u64) {
        let mut client = Client::new(request, done, asked, now_us);
        L::begins(self, &mut client);
        let number = self.clients.insert(client);
        L::plan_request(self, number, now_us);
        self.clients.get_mut(number).planned = true;
        self.run_ready();
        self.go_on();
        self.answer_if_complete(number);
    }

    /// Begins the reads again whose content was not written, and what else may begin after calls. Not while a plan is
    /// being entered, whose steps come before.
    pub(super) fn go_on(&mut self) {
        while let Some(client) = self.read_anew.pop() {
            let (waited_us, asked) = (self.now_us.saturating_sub(client.started_us), client.asked);
            let ((request, done), now_us) = (client.hand_back(), self.now_us);
            self.begin_request(request, done, Asked { waited_us, ..asked }, now_us);
        }
        L::go_on(self);
    }

    pub(super) fn answer_if_complete(&mut self, number: u32) {
        if let Some(client) = self.clients.take_complete(number) {
            self.conclude(client);
        }
    }
}

/// Returns the kind of an operation for the cache.
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
