//! Changes that are acknowledged before they are appended. Each is kept until it is done, together with all later
//! acknowledged changes. If the cache must be recovered, they are made again in their order, so that a read returns the
//! newest data.
//!
//! A change that cannot be made again is lost, like data in the volatile cache of a device. Its blocks cannot be read,
//! and no flush succeeds, until a client rewrites them or, after all failures have ended, the change itself is made.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use flashwise_core::wlfc::Step;

use super::memory::BLOCK;
use crate::engine::{Asked, Client};
use crate::request::{Done, Operation, Request};

/// Memory of a change besides its data, in bytes.
const CHANGE_BYTES: u64 = 512;

/// The acknowledged changes that may have to be made again, by number.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    kept: BTreeMap<u64, Request>,
    /// Memory that they take, in bytes.
    bytes: u64,
    /// Of each change, the number of unfinished steps that its client does not wait for, plus 1 while it is being made
    /// again.
    unfinished: BTreeMap<u64, u32>,
    /// Blocks whose newest acknowledged content is lost, with the changes of each, by number.
    lost: BTreeMap<u64, BTreeMap<u64, Arc<Request>>>,
}

/// True if a step that makes a change durable, or caches it, may run after the reply to the client.
pub(super) fn is_done_after(step: &Step) -> bool {
    use Step::{Append, FlushBackend, FlushFlash, KeepInRam, Reset};
    matches!(step, Append { .. } | KeepInRam { .. } | Reset { .. } | FlushFlash | FlushBackend)
}

impl Ahead {
    /// Counts a planned step of a change that its client does not wait for, or a change that is made again.
    pub fn begin(&mut self, number: u64) {
        *self.unfinished.entry(number).or_default() += 1;
    }

    /// Counts the end of such a step or change.
    pub fn end(&mut self, number: u64) {
        let left = self.unfinished.get_mut(&number).expect("its steps were counted");
        *left -= 1;
        if *left == 0 {
            self.unfinished.remove(&number);
            self.let_go();
        }
    }

    /// Records an acknowledged change. Lost blocks that it covers, and that were lost before it, are lost no more.
    /// Returns the replaced changes, which requests in progress may still need.
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

    /// A finished change is kept while an earlier one may have to be made again, because it must then be made after it.
    pub fn remember(&mut self, number: u64, request: Request) {
        if !self.unfinished.is_empty() || !self.kept.is_empty() {
            self.bytes += bytes(&request);
            self.kept.insert(number, request);
        }
    }

    /// Keeps an acknowledged change that has to be made again.
    pub fn keep(&mut self, number: u64, request: Request) {
        self.begin(number);
        self.remember(number, request);
    }

    /// Returns the requests that repeat a failed one once the cache is found again. An acknowledged change is kept
    /// instead.
    pub fn repeat(&mut self, client: Client) -> Vec<(Request, Done)> {
        let (Asked { number, again, .. }, incomplete) = (client.asked, client.incomplete);
        let (mut request, done) = client.hand_back();
        if again {
            if request.changes() {
                self.keep(number, request);
            }
            self.end(number);
            return Vec::new();
        }
        if !incomplete && request.changes() {
            // A completed write is not repeated by itself, because a later write may have replaced it.
            let flush = Request { caching: request.caching, ..Request::flush() };
            self.remember(number, std::mem::replace(&mut request, flush));
        }
        // The flush came before the failure.
        request.force_unit_access |= request.operation == Operation::Flush;
        vec![(request, done)]
    }

    /// Drops finished changes up to the first unfinished one.
    fn let_go(&mut self) {
        let unfinished = self.unfinished.first_key_value().map_or(u64::MAX, |(number, _)| *number);
        while let Some(first) = self.kept.first_entry()
            && *first.key() < unfinished
        {
            self.bytes -= bytes(first.get());
            first.remove();
        }
    }

    /// Memory that they take, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes the changes to make again, in order: unfinished ones, and later ones that overlap them.
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

    /// Records that a change is lost, except where a later acknowledged change covers it. A trim cannot be lost,
    /// because it defines no content.
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

    /// Gives up all changes that are not done, after several attempts failed.
    pub fn give_up(&mut self) {
        for (number, request) in self.take() {
            self.lose(number, request);
        }
    }

    /// Returns the lost changes, in order, restricted to lost blocks.
    pub fn not_made(&self) -> Vec<Request> {
        Ahead { lost: self.lost.clone(), ..Ahead::default() }.take_not_made()
    }

    /// Takes the lost changes, in order, restricted to lost blocks. No block is lost afterwards.
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

    /// Applies the lost changes to bytes that begin at `offset`.
    pub fn put_over(&self, offset: u64, bytes: &mut [u8]) {
        let end = offset + bytes.len() as u64;
        for (block, changes) in self.lost.range(blocks_of(offset, bytes.len() as u64)) {
            let (from, to) = (offset.max(block * BLOCK), end.min((block + 1) * BLOCK));
            let part = &mut bytes[(from - offset) as usize..(to - offset) as usize];
            changes.values().for_each(|change| change.put_over(from, part));
        }
    }

    /// Returns the lost blocks of a byte range.
    pub fn lost_of(&self, offset: u64, length: u64) -> impl Iterator<Item = u64> {
        self.lost.range(blocks_of(offset, length)).map(|(block, _)| *block)
    }

    /// Returns all lost blocks, in order.
    pub fn lost(&self) -> impl Iterator<Item = &u64> {
        self.lost.keys()
    }

    /// True if any block is lost.
    pub fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Takes over the lost changes of an earlier engine.
    pub fn succeed(&mut self, before: &mut Ahead) {
        self.lost.append(&mut before.lost);
    }
}

/// Returns the part of a change in one block.
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

/// Returns the blocks that a change defines completely. A trim defines none, and may have no effect.
fn whole_blocks(request: &Request) -> Range<u64> {
    match request.operation {
        Operation::Trim => 0..0,
        _ => request.offset.div_ceil(BLOCK)..(request.offset + request.length) / BLOCK,
    }
}

fn blocks_of(offset: u64, length: u64) -> Range<u64> {
    offset / BLOCK..(offset + length).div_ceil(BLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Operation;

    fn write(offset: u64, length: u64, fill: u8) -> Request {
        let data = vec![fill; length as usize];
        let (operation, caching) = (Operation::Write, Default::default());
        Request { operation, offset, length, force_unit_access: false, data, caching }
    }

    fn lost(ahead: &Ahead) -> Vec<u64> {
        ahead.lost().copied().collect()
    }

    /// An older change is not lost where a newer acknowledged one covers it.
    #[test]
    fn a_newer_change_is_not_lost_with_an_older_one() {
        let mut ahead = Ahead::default();
        ahead.begin(1);
        ahead.answered(2, write(BLOCK, BLOCK, 2));
        ahead.lose(1, write(512, 3 * BLOCK, 1));
        assert_eq!(lost(&ahead), [0, 2, 3]);
        // Later, a part of the block in between is lost. The rest of it is that of the newer change.
        ahead.lose(3, write(BLOCK, 512, 3));
        let mut bytes = vec![2; BLOCK as usize];
        ahead.put_over(BLOCK, &mut bytes);
        assert_eq!((&bytes[..512], &bytes[512..]), (&[3; 512][..], &[2; BLOCK as usize - 512][..]));
        let taken: Vec<_> = ahead.take_not_made().iter().map(|change| (change.offset, change.length)).collect();
        assert_eq!(taken, [(512, BLOCK - 512), (2 * BLOCK, BLOCK), (3 * BLOCK, 512), (BLOCK, 512)]);
        assert!(!ahead.has_lost());
    }

    /// A change that was acknowledged while an older one was being made again is made after it, even if it was done.
    #[test]
    fn changes_after_one_that_is_made_again_come_after_it_again() {
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
