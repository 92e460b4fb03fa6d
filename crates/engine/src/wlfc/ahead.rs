//! Changes that are answered before they are appended. What clients were told is done is kept until it is, and with it all that was answered
//! after it: where the cache has to be found again, they are made again in the order in which they came, so that a read finds what was
//! answered last.
//!
//! What cannot be made again either is lost, as what waits in a volatile cache of a device may be: it cannot be read and no flush succeeds until
//! it is written anew, by a client or, once nothing fails any more, as it was.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use flashwise_core::cache::Cache;
use flashwise_core::wlfc::Step;

use super::Engine;
use super::memory::BLOCK;
use crate::engine::Asked;
use crate::export::{Operation, Request};

/// What a change takes of memory besides its data.
const CHANGE_BYTES: u64 = 512;

/// The changes that were answered and may have to be made again, by number.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    kept: BTreeMap<u64, Request>,
    /// Bytes that they take.
    bytes: u64,
    /// Of each change, the steps that are not done and that its client does not wait for, and whether it is being made again.
    unfinished: BTreeMap<u64, u32>,
    /// Blocks whose newest content was answered and is nowhere, each with the changes that it is of, by number.
    lost: BTreeMap<u64, BTreeMap<u64, Arc<Request>>>,
}

/// True if a step may be done after the client was answered whose change it makes durable or keeps.
pub(super) fn is_done_after(step: &Step) -> bool {
    use Step::{Append, FlushBackend, FlushFlash, KeepInRam, Reset};
    matches!(step, Append { .. } | KeepInRam { .. } | Reset { .. } | FlushFlash | FlushBackend)
}

impl Ahead {
    /// A step of a change is planned that its client does not wait for, or the change is made again.
    pub fn begin(&mut self, number: u64) {
        *self.unfinished.entry(number).or_default() += 1;
    }

    /// Such a step is done, or the change is made.
    pub fn end(&mut self, number: u64) {
        let left = self.unfinished.get_mut(&number).expect("its steps were counted");
        *left -= 1;
        if *left == 0 {
            self.unfinished.remove(&number);
            self.let_go();
        }
    }

    /// A change was answered: whole blocks that it is about are lost no more, if they were before it. Those who came before it may still be told what
    /// had become of them: what is returned.
    pub fn answered(&mut self, number: u64, request: Request) -> Vec<Request> {
        let mut replaced = Vec::new();
        if !self.lost.is_empty() {
            let whole = whole_blocks(&request);
            self.lost.retain(|block, changes| {
                let stays = !whole.contains(block) || changes.keys().next_back().is_some_and(|of| *of > number);
                if !stays {
                    replaced.extend(changes.values().map(|change| part_of(change, *block)));
                }
                stays
            });
        }
        self.remember(number, request);
        replaced
    }

    /// What is done stays known while a change before it may have to be made again, and it would be made behind it.
    pub fn remember(&mut self, number: u64, request: Request) {
        if !self.unfinished.is_empty() || !self.kept.is_empty() {
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
        let unfinished = self.unfinished.first_key_value().map_or(u64::MAX, |(number, _)| *number);
        while let Some(first) = self.kept.first_entry()
            && *first.key() < unfinished
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
        (self.bytes, self.unfinished) = (0, BTreeMap::new());
        again
    }

    /// What a request changes is nowhere, but for what was answered since and took its place. What is trimmed may be anything.
    pub fn lose(&mut self, number: u64, request: Request) {
        if request.operation == Operation::Trim {
            return;
        }
        let newer: Vec<Range<u64>> = self.kept.range(number + 1..).map(|(_, change)| whole_blocks(change)).collect();
        let request = Arc::new(request);
        for block in blocks(&request).filter(|block| !newer.iter().any(|newer| newer.contains(block))) {
            self.lost.entry(block).or_default().insert(number, request.clone());
        }
    }

    /// The changes that could not be made, in order, of blocks that are lost.
    pub fn not_made(&self) -> Vec<Request> {
        Ahead { lost: self.lost.clone(), ..Ahead::default() }.take_not_made()
    }

    /// Takes the changes that could not be made, in order, of blocks that are lost; none is lost any more as far as this knows.
    pub fn take_not_made(&mut self) -> Vec<Request> {
        let mut changes: BTreeMap<u64, (Arc<Request>, Vec<u64>)> = BTreeMap::new();
        for (block, of_block) in std::mem::take(&mut self.lost) {
            for (number, change) in of_block {
                changes.entry(number).or_insert_with(|| (change, Vec::new())).1.push(block);
            }
        }
        let mut taken = Vec::new();
        for (change, lost) in changes.into_values() {
            match blocks(&change).count() == lost.len() {
                true => taken.push(Arc::unwrap_or_clone(change)),
                false => taken.extend(lost.into_iter().map(|block| part_of(&change, block))),
            }
        }
        taken
    }

    /// Has bytes from `offset` on, as they are without the changes that could not be made, be what they are with them.
    pub fn put_over(&self, offset: u64, bytes: &mut [u8]) {
        let end = offset + bytes.len() as u64;
        for (block, changes) in self.lost.range(blocks_of(offset, bytes.len() as u64)) {
            let (from, to) = (offset.max(block * BLOCK), end.min((block + 1) * BLOCK));
            let part = &mut bytes[(from - offset) as usize..(to - offset) as usize];
            changes.values().for_each(|change| change.put_over(from, part));
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

    /// True if any is.
    pub fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Goes on from what another engine left.
    pub fn succeed(&mut self, before: &mut Ahead) {
        self.lost.append(&mut before.lost);
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

/// The blocks of which it says what every byte is. A trim says of none, and may come to nothing.
fn whole_blocks(request: &Request) -> Range<u64> {
    match request.operation {
        Operation::Trim => 0..0,
        _ => request.offset.div_ceil(BLOCK)..(request.offset + request.length) / BLOCK,
    }
}

fn blocks_of(offset: u64, length: u64) -> Range<u64> {
    offset / BLOCK..(offset + length).div_ceil(BLOCK)
}

impl<C: Cache<Step = Step>> Engine<C> {
    /// Bytes that changes take which were answered and are not done.
    pub fn answered_bytes(&self) -> u64 {
        self.layout.ahead.bytes()
    }

    /// What was answered and is not done is lost, after it came to nothing again and again.
    pub fn lose_answered(&mut self) {
        for (number, request) in self.layout.ahead.take() {
            self.layout.ahead.lose(number, request);
        }
    }

    /// How many blocks wait in memory for a place.
    pub fn unwritten_blocks(&self) -> usize {
        self.layout.ahead.lost().count()
    }

    /// Blocks whose newest content is in memory alone or nowhere, in order.
    pub fn not_durable_blocks(&self) -> Vec<u64> {
        let all: BTreeSet<u64> = self.layout.unreadable.iter().chain(self.layout.ahead.lost()).copied().collect();
        all.into_iter().collect()
    }

    /// What was answered and could not be made, in order, of blocks that are lost without it.
    pub fn unwritten(&self) -> Vec<Request> {
        self.layout.ahead.not_made()
    }

    /// Takes what was answered and could not be made, in order, to be made elsewhere: of blocks that are lost without it.
    pub fn take_unwritten(&mut self) -> Vec<Request> {
        self.layout.ahead.take_not_made()
    }

    /// Once nothing fails any more, makes what was answered and could not be made.
    pub fn make_what_was_lost(&mut self) {
        if self.layout.stopped.is_some() || self.cache.next_tick_us(u64::MAX).is_some() {
            return;
        }
        // What a client changes of it just now is newer, and what is made now would be written over that.
        let is_of_lost = |request: &Request| self.layout.ahead.lost_of(request.offset, request.length).next().is_some();
        if self.clients.requests().any(|request| request.changes() && is_of_lost(request)) {
            return;
        }
        for change in self.layout.ahead.take_not_made() {
            self.clients.make(&change);
            self.begin_own(change, 0);
        }
    }

    /// Makes again what `before` has answered and not done.
    pub(super) fn make_again(&mut self, before: &mut Engine<C>) {
        self.requests = before.requests;
        self.layout.ahead.succeed(&mut before.layout.ahead);
        for (number, request) in before.layout.ahead.take() {
            match self.layout.stopped {
                Some(_) => self.layout.ahead.keep(number, request),
                None => self.begin_request(request, Box::new(|_| ()), Asked { number, waited_us: 0, again: true }, 0),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::Operation;

    fn write(offset: u64, length: u64, fill: u8) -> Request {
        let data = vec![fill; length as usize];
        let (operation, caching) = (Operation::Write, Default::default());
        Request { operation, offset, length, force_unit_access: false, data, caching }
    }

    fn lost(ahead: &Ahead) -> Vec<u64> {
        ahead.lost().copied().collect()
    }

    /// The older of two changes comes to nothing once the newer was answered.
    #[test]
    fn what_took_the_place_of_a_change_is_not_lost_with_it() {
        let mut ahead = Ahead::default();
        ahead.begin(1);
        ahead.answered(2, write(BLOCK, BLOCK, 2));
        ahead.lose(1, write(512, 3 * BLOCK, 1));
        assert_eq!(lost(&ahead), [0, 2, 3]);
        // Of the block between, a part is lost later: the rest of it is the newer's.
        ahead.lose(3, write(BLOCK, 512, 3));
        let mut bytes = vec![2; BLOCK as usize];
        ahead.put_over(BLOCK, &mut bytes);
        assert_eq!((&bytes[..512], &bytes[512..]), (&[3; 512][..], &[2; BLOCK as usize - 512][..]));
        let taken: Vec<_> = ahead.take_not_made().iter().map(|change| (change.offset, change.length)).collect();
        assert_eq!(taken, [(512, BLOCK - 512), (2 * BLOCK, BLOCK), (3 * BLOCK, 512), (BLOCK, 512)]);
        assert!(!ahead.has_lost());
    }

    /// What was answered while an older change was being made again is made behind it, though all of it was done.
    #[test]
    fn what_came_behind_a_change_that_is_made_again_comes_behind_it_again() {
        let mut ahead = Ahead::default();
        ahead.begin(1);
        ahead.answered(2, write(0, BLOCK, 2));
        ahead.answered(3, write(8 * BLOCK, BLOCK, 3));
        ahead.keep(1, write(0, 2 * BLOCK, 1));
        ahead.end(1);
        let again: Vec<u64> = ahead.take().into_iter().map(|(number, _)| number).collect();
        assert_eq!(again, [1, 2], "what has no block in common with it stays");
        assert_eq!(ahead.bytes(), 0);
        ahead.begin(4);
        ahead.answered(5, write(0, BLOCK, 5));
        ahead.end(4);
        assert!(ahead.take().is_empty(), "nothing before it is to be made");
        assert_eq!(ahead.bytes(), 0);
    }
}
