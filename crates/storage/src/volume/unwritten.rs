//! Changes that are only in memory. When the flash is removed, they go to the backend.

use std::collections::BTreeMap;
use std::io;

use flashwise_core::format::{BLOCK_BYTES, Page};
use flashwise_engine::memory::Memory;

use super::BLOCK;
use crate::disk::Disk;
use crate::export::Request;

/// Returns the backend's content of the blocks that are changed only in part.
pub(super) fn read_rests(backend: &dyn Disk, changes: &[Request]) -> io::Result<BTreeMap<u64, Box<Page>>> {
    let mut rests = BTreeMap::new();
    for request in changes {
        for block in [request.offset / BLOCK, (request.offset + request.length - 1) / BLOCK] {
            if !is_whole(request, block) && !rests.contains_key(&block) {
                rests.insert(block, read_block(backend, block)?);
            }
        }
    }
    Ok(rests)
}

/// Writes changes to the backend, durably. Returns the refused blocks with their content. A block has no content if it
/// is changed in part, and its rest is neither among `rests` nor readable.
pub(super) fn write_unwritten(
    backend: &dyn Disk,
    changes: Vec<Request>,
    mut rests: BTreeMap<u64, Box<Page>>,
) -> BTreeMap<u64, Option<Box<Page>>> {
    let mut contents: BTreeMap<u64, Option<Box<Page>>> = BTreeMap::new();
    for request in changes {
        let end = request.offset + request.length;
        for block in request.offset / BLOCK..end.div_ceil(BLOCK) {
            let before = match contents.remove(&block) {
                _ if is_whole(&request, block) => Some(Box::new([0; BLOCK_BYTES])),
                Some(before) => before,
                None => rests.remove(&block).or_else(|| read_block(backend, block).ok()),
            };
            let content = before.map(|mut content| {
                request.put_over(block * BLOCK, &mut *content);
                content
            });
            contents.insert(block, content);
        }
    }
    if contents.is_empty() {
        return contents;
    }
    // Some devices need aligned memory.
    let mut memory = Memory::new(1);
    let mut write = |block: u64, content: &Page| {
        memory.page_mut(0).copy_from_slice(content);
        backend.write_at(memory.page(0), block * BLOCK)
    };
    let written = |(block, content): (&u64, &Option<Box<Page>>)| {
        content.as_ref().is_some_and(|content| write(*block, content).is_ok()).then_some(*block)
    };
    let written: Vec<u64> = contents.iter().filter_map(written).collect();
    if backend.sync().is_ok() {
        written.iter().for_each(|block| drop(contents.remove(block)));
    }
    contents
}

fn read_block(backend: &dyn Disk, block: u64) -> io::Result<Box<Page>> {
    let mut memory = Memory::new(1);
    backend.read_at(memory.page_mut(0), block * BLOCK)?;
    Ok(Box::new(*memory.page(0)))
}

/// True if a change covers a block.
fn is_whole(change: &Request, block: u64) -> bool {
    change.offset <= block * BLOCK && (block + 1) * BLOCK <= change.offset + change.length
}
