//! Changes that are answered before they are appended. What clients were told is done is kept until it is, and with it all that was answered
//! after it: where the cache has to be found again, they are made again in the order in which they came, so that a read finds what was
//! answered last.
//!
//! What cannot be made again either is lost, as what waits in a volatile cache of a device may be: it cannot be read and no flush succeeds until
//! it is written anew, by a client or, once nothing fails any more, as it was.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use flashwise_core::cache::Cache;
use flashwise_core::wlfc::Step;
use rustc_hash::FxHashMap;

use super::Engine;
use super::memory::BLOCK;
use crate::engine::OfBuckets;
use crate::export::{Operation, Request};

/// What a change takes of memory besides its data.
const CHANGE_BYTES: u64 = 512;

/// The changes that were answered and may have to be made again, by number.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    kept: BTreeMap<u64, Request>,
    /// Bytes that they take.
    bytes: u64,
    /// Of each change, the steps that are not done and that its client does not wait for.
    unfinished: FxHashMap<u64, u32>,
    /// Blocks whose newest content was answered and is nowhere, with the number of the change that it was of.
    lost: BTreeMap<u64, u64>,
    /// The changes that they are of, by number.
    not_made: BTreeMap<u64, Request>,
}

/// Whether a step may be done after the client was answered whose change it makes durable or keeps.
pub(super) fn is_done_after(step: &Step) -> bool {
    use Step::{Append, FlushBackend, FlushFlash, KeepInRam, Reset};
    matches!(step, Append { .. } | KeepInRam { .. } | Reset { .. } | FlushFlash | FlushBackend)
}

impl Ahead {
    /// A step of a change is planned that its client does not wait for.
    pub fn begin(&mut self, number: u64) {
        *self.unfinished.entry(number).or_default() += 1;
    }

    /// Such a step is done.
    pub fn end(&mut self, number: u64) {
        let left = self.unfinished.get_mut(&number).expect("its steps were counted");
        *left -= 1;
        if *left == 0 {
            self.unfinished.remove(&number);
            self.let_go();
        }
    }

    /// A change was answered: whole blocks that it is about are lost no more, if they were before it.
    pub fn answered(&mut self, number: u64, request: Request) {
        if !self.lost.is_empty() {
            let whole = request.offset.div_ceil(BLOCK)..(request.offset + request.length) / BLOCK;
            self.lost.retain(|block, of| *of > number || !whole.contains(block));
            let lost = &self.lost;
            self.not_made.retain(|_, change| lost.range(blocks(change)).next().is_some());
        }
        self.remember(number, request);
    }

    fn remember(&mut self, number: u64, request: Request) {
        if self.unfinished.contains_key(&number) || !self.kept.is_empty() {
            self.bytes += bytes(&request);
            self.kept.insert(number, request);
        }
    }

    /// A change that was answered has to be made again.
    pub fn keep(&mut self, number: u64, request: Request) {
        self.begin(number);
        self.remember(number, request);
    }

    /// Lets go of what is done, and with it all before it.
    fn let_go(&mut self) {
        while let Some(first) = self.kept.first_entry()
            && !self.unfinished.contains_key(first.key())
        {
            self.bytes -= bytes(first.get());
            first.remove();
        }
    }

    /// Bytes that they take.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What has to be made again, in order: what is not done, and what took its place since.
    pub fn take(&mut self) -> Vec<(u64, Request)> {
        let mut again: Vec<(u64, Request)> = Vec::new();
        for (number, request) in std::mem::take(&mut self.kept) {
            let changed = blocks(&request);
            let overlaps = |other: Range<u64>| other.start < changed.end && changed.start < other.end;
            if self.unfinished.contains_key(&number) || again.iter().any(|(_, other)| overlaps(blocks(other))) {
                again.push((number, request));
            }
        }
        (self.bytes, self.unfinished) = (0, FxHashMap::default());
        again
    }

    /// What a request changes is nowhere. What is trimmed may be anything.
    pub fn lose(&mut self, number: u64, request: Request) {
        if request.operation == Operation::Trim {
            return;
        }
        for block in blocks(&request) {
            let of = self.lost.entry(block).or_default();
            *of = number.max(*of);
        }
        self.not_made.insert(number, request);
    }

    /// Takes the changes that could not be made, in order, without what was written anew since; nothing of them is lost as far as this knows.
    pub fn take_not_made(&mut self) -> Vec<Request> {
        let mut taken: BTreeSet<u64> = BTreeSet::new();
        let mut changes = Vec::new();
        for change in std::mem::take(&mut self.not_made).into_values() {
            let lost: Vec<u64> = self.lost.range(blocks(&change)).map(|(block, _)| *block).collect();
            taken.extend(&lost);
            match blocks(&change).count() == lost.len() {
                true => changes.push(change),
                false => changes.extend(lost.into_iter().map(|block| part_of(&change, block))),
            }
        }
        self.lost.retain(|block, _| !taken.contains(block));
        changes
    }

    /// Has bytes from `offset` on, as they are without the changes that could not be made, be what they are with them.
    pub fn put_over(&self, offset: u64, bytes: &mut [u8]) {
        let end = offset + bytes.len() as u64;
        for change in self.not_made.values() {
            for block in self.lost_of(offset, bytes.len() as u64) {
                let (from, to) = (offset.max(block * BLOCK), end.min((block + 1) * BLOCK));
                change.put_over(from, &mut bytes[(from - offset) as usize..(to - offset) as usize]);
            }
        }
    }

    /// Those of some bytes that are lost.
    pub fn lost_of(&self, offset: u64, length: u64) -> impl Iterator<Item = u64> {
        self.lost.range(blocks_of(offset, length)).map(|(block, _)| *block)
    }

    /// All blocks that are lost, in order.
    pub fn lost(&self) -> impl Iterator<Item = &u64> {
        self.lost.keys()
    }

    /// Whether any is.
    pub fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Goes on from what another engine left.
    pub fn succeed(&mut self, before: &mut Ahead) {
        self.lost.append(&mut before.lost);
        self.not_made.append(&mut before.not_made);
    }
}

/// What a change does to one of its blocks.
fn part_of(change: &Request, block: u64) -> Request {
    let start = change.offset.max(block * BLOCK);
    let end = (change.offset + change.length).min((block + 1) * BLOCK);
    let data = match change.data.is_empty() {
        true => Vec::new(),
        false => change.data[(start - change.offset) as usize..(end - change.offset) as usize].to_vec(),
    };
    let Request { operation, force_unit_access, caching, .. } = *change;
    Request { operation, offset: start, length: end - start, force_unit_access, data, caching }
}

fn bytes(request: &Request) -> u64 {
    CHANGE_BYTES + request.data.len() as u64
}

fn blocks(request: &Request) -> Range<u64> {
    blocks_of(request.offset, request.length)
}

fn blocks_of(offset: u64, length: u64) -> Range<u64> {
    offset / BLOCK..(offset + length).div_ceil(BLOCK)
}

impl<C: Cache<Step = Step>> Engine<C> {
    /// Bytes that changes take which were answered and are not done.
    pub fn answered_bytes(&self) -> u64 {
        self.ahead.bytes()
    }

    /// What was answered and is not done is lost, after it came to nothing again and again.
    pub fn lose_answered(&mut self) {
        for (number, request) in self.ahead.take() {
            self.ahead.lose(number, request);
        }
    }

    /// How many blocks wait in memory for a place.
    pub fn unwritten_blocks(&self) -> usize {
        self.ahead.lost().count()
    }

    /// Blocks whose newest content is in memory alone or nowhere, in order.
    pub fn not_durable_blocks(&self) -> Vec<u64> {
        let all: BTreeSet<u64> = self.unreadable.iter().chain(self.ahead.lost()).copied().collect();
        all.into_iter().collect()
    }

    /// Takes what was answered and could not be made, in order, to be made elsewhere: of blocks that are lost without it.
    pub fn take_unwritten(&mut self) -> Vec<Request> {
        self.ahead.take_not_made()
    }

    /// Once nothing fails any more, makes what was answered and could not be made.
    pub fn make_what_was_lost(&mut self) {
        if self.stopped.is_some() || self.cache.next_tick_us(u64::MAX).is_some() {
            return;
        }
        // What a client changes of it just now is newer, and what is made now would be written over that.
        let is_of_lost = |request: &Request| self.ahead.lost_of(request.offset, request.length).next().is_some();
        if self.clients.requests().any(|request| request.changes() && is_of_lost(request)) {
            return;
        }
        for change in self.ahead.take_not_made() {
            self.clients.make(&change);
            self.requests += 1;
            let of_buckets = OfBuckets { number: self.requests, again: true, ..OfBuckets::default() };
            self.begin_request(change, Box::new(|_| ()), of_buckets, 0);
        }
    }

    /// Makes again what `before` has answered and not done.
    pub(super) fn make_again(&mut self, before: &mut Engine<C>) {
        self.requests = before.requests;
        self.ahead.succeed(&mut before.ahead);
        for (number, request) in before.ahead.take() {
            match self.stopped {
                Some(_) => self.ahead.keep(number, request),
                None => self.begin_request(
                    request,
                    Box::new(|_| ()),
                    OfBuckets { number, again: true, ..OfBuckets::default() },
                    0,
                ),
            }
        }
    }
}
