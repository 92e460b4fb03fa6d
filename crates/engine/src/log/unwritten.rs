//! Acknowledged content that neither the flash nor the backend accepted. The cache counts it as lost. It is kept in
//! memory, read from there, and written again until a device accepts it.

use std::collections::BTreeMap;

use flashwise_core::cache::{self, Cache, LogCache};
use flashwise_core::format::BLOCK_BYTES;

use crate::engine::Client;
use crate::request::{Operation, Request};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Most blocks that are kept: 64 MiB.
const UNWRITTEN_MAX: usize = 16 << 10;

/// The content by block.
#[derive(Debug, Default)]
pub(super) struct Unwritten {
    blocks: BTreeMap<u32, Kept>,
    /// The number of blocks that were kept so far.
    count: u64,
}

/// The content of a block.
#[derive(Debug)]
struct Kept {
    data: Vec<u8>,
    /// Later changes of the whole block in progress. Meanwhile it is not written; it stays if they fail.
    changes: u32,
    /// Number of kept blocks so far.
    number: u64,
}

impl Unwritten {
    /// Returns the blocks, in order.
    pub fn blocks(&self) -> Vec<u32> {
        self.blocks.keys().copied().collect()
    }

    /// Returns the content of a block that no change is about to replace.
    pub fn to_write(&self, block: u32) -> Option<&[u8]> {
        self.blocks.get(&block).filter(|kept| kept.changes == 0).map(|kept| &kept.data[..])
    }

    /// Returns the blocks for which a start would use the flash, in order. They stay.
    pub fn on_flash(&self, cache: &LogCache) -> BTreeMap<u32, Vec<u8>> {
        let on_flash = self.blocks.iter().filter(|(block, _)| cache.is_kept_and_on_flash(**block));
        on_flash.map(|(block, kept)| (*block, kept.data.clone())).collect()
    }

    /// Keeps unwritten content of a block that would otherwise be lost.
    pub fn keep(&mut self, cache: &mut impl Cache, block: u32, data: Vec<u8>) {
        let has_room = self.blocks.len() < UNWRITTEN_MAX || self.blocks.contains_key(&block);
        if has_room && cache.is_lost(block) {
            self.count += 1;
            // Changes in progress are not newer than this: a newer one would have replaced it before.
            self.blocks.insert(block, Kept { data, changes: 0, number: self.count });
            cache.keep(block);
        }
    }

    /// Takes it, of blocks that are lost without it, in order.
    pub fn take(&mut self, cache: &impl Cache) -> BTreeMap<u32, Vec<u8>> {
        self.forget_written(cache);
        std::mem::take(&mut self.blocks).into_iter().map(|(block, kept)| (block, kept.data)).collect()
    }

    /// A change of a client begins. It replaces the kept content of whole blocks, unless it fails. Returns the number
    /// of the block that was kept last, if it replaces any.
    pub fn change_begins(&mut self, cache: &impl Cache, change: &Request) -> Option<u64> {
        if self.blocks.is_empty() || !change.changes() {
            return None;
        }
        self.forget_written(cache);
        let replaced = self.whole(change, self.count).map(|(_, kept)| kept.changes += 1).count();
        (replaced > 0).then_some(self.count)
    }

    /// Handles the end of a change whose [begin](Self::change_begins) returned `before`. If it succeeded, its content
    /// counts. Content that was kept since then belongs to this change or to a newer one, and stays.
    pub fn change_ends(&mut self, cache: &impl Cache, change: &Request, failed: bool, before: u64) {
        if failed {
            self.whole(change, before).for_each(|(_, kept)| kept.changes -= 1);
        } else {
            // It is in memory elsewhere, or on its way.
            let newer: Vec<u32> = self.whole(change, before).map(|(block, _)| block).collect();
            newer.iter().for_each(|block| drop(self.blocks.remove(block)));
        }
        self.forget_written(cache);
    }

    /// Returns the kept whole blocks of a change, up to a number.
    fn whole(&mut self, change: &Request, before: u64) -> impl Iterator<Item = (u32, &mut Kept)> {
        let (first, end) = (change.offset.div_ceil(BLOCK) as u32, ((change.offset + change.length) / BLOCK) as u32);
        let whole = self.blocks.range_mut(first..end.max(first)).map(|(block, kept)| (*block, kept));
        whole.filter(move |(_, kept)| kept.number <= before)
    }

    /// Forgets blocks that were rewritten since.
    pub fn forget_written(&mut self, cache: &impl Cache) {
        self.blocks.retain(|block, kept| kept.changes > 0 || cache.is_kept(*block));
    }

    /// Returns the number of blocks that wait for a place.
    pub fn waiting(&self, cache: &impl Cache) -> usize {
        self.blocks.keys().filter(|block| cache.is_kept(**block)).count()
    }

    /// True if a block waits for a place.
    pub fn waits(&self, cache: &impl Cache, block: u32) -> bool {
        self.blocks.contains_key(&block) && cache.is_kept(block)
    }

    /// Returns the pieces of a client's read for the cache; the others come from here. `None` if the cache gets the
    /// whole request.
    pub fn pieces_elsewhere(&mut self, cache: &impl Cache, client: &mut Client) -> Option<Vec<cache::Request>> {
        if self.blocks.is_empty() || client.request.operation != Operation::Read {
            return None;
        }
        self.forget_written(cache);
        let Request { offset, length, caching, .. } = client.request;
        let mut pieces = Vec::new();
        for block in offset / BLOCK..(offset + length).div_ceil(BLOCK) {
            let (start, end) = (offset.max(block * BLOCK), (offset + length).min((block + 1) * BLOCK));
            match self.blocks.get(&(block as u32)) {
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
