//! Requests of clients: planned when they come, and answered once all steps that they wait for have ended.

use std::ops::Range;

use flashwise_core::cache;
use flashwise_core::format::BLOCK_BYTES;

use super::Output;
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
    pub(super) planned: bool,
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
    /// The number of requests so far.
    pub count: u64,
    /// Reads to begin again.
    pub read_anew: Vec<Client>,
}

impl Clients {
    /// Returns the number of a new request.
    pub fn next(&mut self, waited_us: u64, again: bool) -> Asked {
        self.count += 1;
        Asked { number: self.count, waited_us, again }
    }

    /// Adds a request, which is not planned yet.
    pub fn insert(&mut self, client: Client) -> u32 {
        insert(&mut self.all, &mut self.free, client)
    }

    /// Takes a read to begin again.
    pub fn next_read_anew(&mut self, now_us: u64) -> Option<(Request, Done, Asked)> {
        let client = self.read_anew.pop()?;
        let (waited_us, asked) = (now_us.saturating_sub(client.started_us), client.asked);
        let (request, done) = client.hand_back();
        Some((request, done, Asked { waited_us, ..asked }))
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
    pub(super) fn new(request: Request, done: Done, asked: Asked, now_us: u64) -> Client {
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

/// The answers for the caller.
#[derive(Default)]
pub(crate) struct Answers {
    ready: Vec<(Done, Result<Vec<u8>, Error>)>,
    answered: Vec<Answered>,
    paused: Vec<Paused>,
}

impl Answers {
    /// Answers a flush that was not done.
    pub fn skip(&mut self, done: Done) {
        self.ready.push((done, Ok(Vec::new())));
    }

    /// Answers a request with an error. It was begun at `started_us`.
    pub fn refuse(&mut self, request: &Request, done: Done, started_us: u64) {
        self.answered.push(Answered { operation: request.operation, started_us, failed: true });
        self.ready.push((done, Err(Error::Io)));
    }

    /// Answers a request, unless it is the engine's own. A success may have to wait. Returns the request, with its
    /// success.
    pub fn give(&mut self, client: Client, now_us: u64) -> (Request, bool) {
        let Client { request, reply, done, asked, error, started_us, until_us, .. } = client;
        let answered = Answered { operation: request.operation, started_us, failed: error.is_some() };
        let result = error.map_or(Ok(reply), Err);
        if until_us > now_us && error.is_none() && !asked.again {
            self.paused.push(Paused { until_us, answered, done, result });
        } else if !asked.again {
            self.answered.push(answered);
            self.ready.push((done, result));
        }
        (request, error.is_none())
    }

    /// Moves the answers to the output.
    pub fn take(&mut self, output: &mut Output) {
        output.answers.append(&mut self.ready);
        output.answered.append(&mut self.answered);
        output.paused.append(&mut self.paused);
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
