//! Whose the blocks of a pool are.

use std::collections::HashMap;
use std::ops::Range;

use flashwise_core::format::BLOCK_BYTES;

use super::CHUNK_BYTES;
use super::map::Map;
use crate::attach::Owned;

/// Blocks of a chunk.
const CHUNK_BLOCKS: u64 = CHUNK_BYTES / BLOCK_BYTES as u64;

/// What logical disks have of these ranges of blocks of the pool, in the order of their blocks; of the rest, nobody has anything.
pub(super) fn owned(map: &Map, ranges: &[Range<u64>]) -> Vec<Owned> {
    if ranges.is_empty() {
        return Vec::new();
    }
    let mut order: Vec<usize> = (0..ranges.len()).collect();
    order.sort_unstable_by_key(|of| ranges[*of].start);
    // Ranges may overlap: so far, the furthest end.
    let mut end = 0;
    let mut furthest = |of: &usize| {
        end = end.max(ranges[*of].end);
        end
    };
    let ends: Vec<u64> = order.iter().map(&mut furthest).collect();
    let mut all: Vec<Owned> = Vec::new();
    for logical in map.logicals.values() {
        let (first, shape) = (all.len(), logical.shape());
        let end = shape.size_bytes / BLOCK_BYTES as u64;
        // The last that was found of each range.
        let mut last: HashMap<usize, usize> = HashMap::new();
        for (at, entry) in (0u64..).zip(logical.entries().iter()) {
            let Some(chunk) = entry.chunk() else { continue };
            let start = u64::from(chunk) * CHUNK_BLOCKS;
            let chunk = start..start + CHUNK_BLOCKS;
            let from = ends.partition_point(|end| *end <= chunk.start);
            for &of in order[from..].iter().take_while(|of| ranges[**of].start < chunk.end) {
                let both = chunk.start.max(ranges[of].start)..chunk.end.min(ranges[of].end);
                if both.is_empty() {
                    continue;
                }
                let here = at * CHUNK_BLOCKS + (both.start - chunk.start);
                let blocks = here..end.min(here + (both.end - both.start));
                match last.get(&of) {
                    Some(&last) if all[last].blocks.end == blocks.start => all[last].blocks.end = blocks.end,
                    _ if blocks.is_empty() => {}
                    _ => {
                        last.insert(of, all.len());
                        all.push(Owned { of, disk: Some(shape.name.clone()), blocks });
                    }
                }
            }
        }
        all[first..].sort_by_key(|owned| owned.blocks.start);
    }
    all
}

#[cfg(test)]
mod tests {
    use flashwise_core::cache::Mode;
    use uuid::Uuid;

    use super::*;
    use crate::pool::map::Entry;
    use crate::pool::record::{Change, Member, Shape};

    /// Chunk 1 of `b` is chunk 2 of the pool, and so on: by hand.
    #[test]
    fn blocks_of_a_pool_are_those_of_its_logical_disks() {
        let mut map = Map::default();
        let member = Member {
            disk: Uuid::nil(),
            path: "disk".to_owned(),
            base: 0,
            chunks: 100,
            reserved: 1,
            leaving: false,
            starts: [Uuid::nil(); 2],
        };
        map.replay(&Change::Disk(1, member)).unwrap();
        for (id, name) in [(1, "a"), (2, "b")] {
            let shape = Shape {
                name: name.to_owned(),
                uuid: Uuid::nil(),
                // Of the last chunk, there are two blocks.
                size_bytes: 3 * CHUNK_BYTES + 2 * BLOCK_BYTES as u64,
                thick: false,
                striped: false,
                cached: true,
                mode: Mode::WriteBack,
                pinned_ram_bytes: 0,
            };
            map.replay(&Change::Logical(id, shape)).unwrap();
        }
        for (id, at, chunk) in [(1, 0, 5), (1, 2, 6), (2, 1, 2), (2, 2, 3), (2, 3, 1)] {
            map.logicals[&id].entries_mut().set(at, Entry::at(chunk, true));
        }
        let found = |ranges: &[Range<u64>]| {
            let of = |owned: Owned| (owned.of, owned.disk.unwrap(), owned.blocks);
            owned(&map, ranges).into_iter().map(of).collect::<Vec<_>>()
        };
        let (a, b) = (|| "a".to_owned(), || "b".to_owned());
        assert_eq!(found(&[]), []);
        // Nobody has chunk 7.
        assert_eq!(found(&[7 * 16..8 * 16]), []);
        assert_eq!(found(&[5 * 16 + 3..5 * 16 + 4]), [(0, a(), 3..4)]);
        // Chunks that follow one another in the pool and not in the disk, and those that do.
        assert_eq!(found(&[5 * 16 + 15..6 * 16 + 1]), [(0, a(), 15..16), (0, a(), 32..33)]);
        assert_eq!(found(&[0..64]), [(0, b(), 16..50)]);
        assert_eq!(found(&[18..19]), []);
        // Two that overlap, and not in order.
        let three = [(2, a(), 32..48), (1, b(), 16..48), (0, b(), 24..25)];
        assert_eq!(found(&[40..41, 32..64, 6 * 16..7 * 16]), three);
    }
}
