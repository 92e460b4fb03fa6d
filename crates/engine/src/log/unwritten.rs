//! Acknowledged content that neither the flash nor the backend accepted. The cache counts it as lost. It is kept in
//! memory, read from there, and written again until a device accepts it.

use std::collections::BTreeMap;

use flashwise_core::cache::{self, Cache, Event};
use flashwise_core::filter::Caching;
use flashwise_core::format::{BLOCK_BYTES, Page};
use flashwise_core::step::Step;

use super::{Engine, Log};
use crate::engine;
use crate::request::{Operation, Request};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Most blocks that are kept: 64 MiB.
const UNWRITTEN_MAX: usize = 16 << 10;

/// The content by block.
pub(super) type Unwritten = BTreeMap<u32, Kept>;

/// The content of a block.
#[derive(Debug)]
pub(super) struct Kept {
    data: Vec<u8>,
    /// Later changes of the whole block in progress. Meanwhile it is not written; it stays if they fail.
    changes: u32,
    /// Number of kept blocks so far.
    number: u64,
}

impl Engine {
    /// Writes the kept blocks again like a client, because space may be available now. Not after a failure of the
    /// flash.
    pub fn write_unwritten(&mut self, now_us: u64) {
        if self.recovery.is_flash_failed() || self.layout.unwritten.is_empty() {
            return;
        }
        self.forget_written();
        for (number, block) in self.layout.unwritten.keys().copied().collect::<Vec<_>>().into_iter().enumerate() {
            // More than it has room for would never leave the log again.
            if !self.cache.may_write_again(number == 0) {
                continue;
            }
            let Some(kept) = self.layout.unwritten.get(&block).filter(|kept| kept.changes == 0) else { continue };
            let data = kept.data.clone();
            let request = Request {
                operation: Operation::Write,
                offset: u64::from(block) * BLOCK,
                length: BLOCK,
                force_unit_access: false,
                data,
                // It does not wait in the write buffer, where it might be lost again.
                caching: Caching::Through,
            };
            // If that fails too, it stays.
            self.begin_own(request, now_us);
        }
    }

    /// Returns the kept blocks for which a start would use the flash, in order. They stay kept.
    pub fn unwritten_on_flash(&self) -> BTreeMap<u32, Vec<u8>> {
        let on_flash = self.layout.unwritten.iter().filter(|(block, _)| self.cache.is_kept_and_on_flash(**block));
        on_flash.map(|(block, kept)| (*block, kept.data.clone())).collect()
    }
}

impl<C: Cache<Step = Step>> Engine<C> {
    /// Handles the failure of a segment. Its lost blocks are kept, in case they can be written elsewhere.
    pub(super) fn append_failed(&mut self, step: &mut Step) {
        let Step::Append(segment) = &*step else { unreachable!("a segment is appended") };
        let (mut missing, mut new) = (Vec::new(), Vec::new());
        for (number, record) in (0..).zip(&segment.records).filter(|(_, record)| record.kind.has_data()) {
            if self.layout.bad[record.frame.number as usize] {
                missing.push(number);
            } else if !self.cache.is_lost(record.block) {
                new.push((record.block, record.frame.number));
            }
        }
        if !missing.is_empty() {
            self.tell(Event::Missing { step, blocks: &missing });
        }
        self.tell_failed(step, false);
        new.into_iter().for_each(|(block, place)| self.keep(block, self.layout.memory.page(place).to_vec()));
    }

    /// Keeps unwritten content of a block that would otherwise be lost.
    pub(super) fn keep(&mut self, block: u32, data: Vec<u8>) {
        let has_room = self.layout.unwritten.len() < UNWRITTEN_MAX || self.layout.unwritten.contains_key(&block);
        if has_room && self.cache.is_lost(block) {
            self.layout.kept += 1;
            // Changes in progress are not newer than this: a newer one would have replaced it before.
            self.layout.unwritten.insert(block, Kept { data, changes: 0, number: self.layout.kept });
            self.cache.keep(block);
        }
    }

    /// Takes it, of blocks that are lost without it, in order.
    pub fn take_unwritten(&mut self) -> BTreeMap<u32, Vec<u8>> {
        self.forget_written();
        std::mem::take(&mut self.layout.unwritten).into_iter().map(|(block, kept)| (block, kept.data)).collect()
    }

    /// Takes over lost blocks from an engine that could not write them, to retry. Those without content stay lost.
    pub fn take_over_unwritten(&mut self, blocks: BTreeMap<u64, Option<Box<Page>>>) {
        let with_content = blocks.into_iter().filter_map(|(block, content)| Some((block as u32, content?)));
        with_content.for_each(|(block, content)| self.keep(block, content.to_vec()));
    }

    /// A change of a client begins. It replaces the kept content of whole blocks, unless it fails. Returns the number
    /// of the block that was kept last, if it replaces any.
    pub(super) fn change_begins(&mut self, change: &Request) -> Option<u64> {
        if self.layout.unwritten.is_empty() || !change.changes() {
            return None;
        }
        self.forget_written();
        let replaced = self.kept_whole(change, self.layout.kept).map(|(_, kept)| kept.changes += 1).count();
        (replaced > 0).then_some(self.layout.kept)
    }

    /// Handles the end of a change whose [begin](Self::change_begins) returned `before`. If it succeeded, its content
    /// counts. Content that was kept since then belongs to this change or to a newer one, and stays.
    pub(super) fn change_ends(&mut self, change: &Request, failed: bool, before: u64) {
        if failed {
            self.kept_whole(change, before).for_each(|(_, kept)| kept.changes -= 1);
        } else {
            // It is in memory elsewhere, or on its way.
            let newer: Vec<u32> = self.kept_whole(change, before).map(|(block, _)| block).collect();
            newer.iter().for_each(|block| drop(self.layout.unwritten.remove(block)));
        }
        self.forget_written();
    }

    /// Returns the kept whole blocks of a change, up to a number.
    fn kept_whole(&mut self, change: &Request, before: u64) -> impl Iterator<Item = (u32, &mut Kept)> {
        let (first, end) = (change.offset.div_ceil(BLOCK) as u32, ((change.offset + change.length) / BLOCK) as u32);
        let whole = self.layout.unwritten.range_mut(first..end.max(first)).map(|(block, kept)| (*block, kept));
        whole.filter(move |(_, kept)| kept.number <= before)
    }

    /// Forgets blocks that were rewritten since.
    fn forget_written(&mut self) {
        self.layout.unwritten.retain(|block, kept| kept.changes > 0 || self.cache.is_kept(*block));
    }

    /// Returns the blocks whose only copy is lost or unreadable, in ascending order.
    pub fn lost_blocks(&self) -> Vec<u32> {
        let mut lost = self.cache.lost_blocks();
        lost.retain(|block| !self.cache.is_kept(*block));
        lost
    }

    /// How many blocks wait in memory for a place.
    pub fn unwritten_blocks(&self) -> usize {
        self.layout.unwritten.keys().filter(|block| self.cache.is_kept(**block)).count()
    }

    /// Returns the pieces of a client's read for the cache; the others come from here. `None` if the cache gets the
    /// whole request.
    pub(super) fn pieces_elsewhere(&mut self, number: u32) -> Option<Vec<cache::Request>> {
        if self.layout.unwritten.is_empty() || self.clients.get(number).request.operation != Operation::Read {
            return None;
        }
        self.forget_written();
        let engine::Engine { clients, layout: Log { unwritten, .. }, .. } = self;
        let client = clients.get_mut(number);
        let Request { offset, length, caching, .. } = client.request;
        let mut pieces = Vec::new();
        for block in offset / BLOCK..(offset + length).div_ceil(BLOCK) {
            let (start, end) = (offset.max(block * BLOCK), (offset + length).min((block + 1) * BLOCK));
            match unwritten.get(&(block as u32)) {
                Some(Kept { data, .. }) => {
                    let bytes = &data[(start % BLOCK) as usize..][..(end - start) as usize];
                    client.put((start - offset) as usize, bytes);
                }
                None => pieces
                    .extend(cache::Request::pieces(cache::Kind::Read, start, end - start, false).of_client(caching)),
            }
        }
        Some(pieces)
    }
}
