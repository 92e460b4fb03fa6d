//! Maps blocks of a pool to the logical disks that own them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;

use flashwise_core::format::BLOCK_BYTES;
use rustc_hash::FxBuildHasher;

use super::CHUNK_BYTES;
use super::map::Map;
use crate::attach::Owned;

/// Number of blocks in a chunk.
pub(super) const CHUNK_BLOCKS: u64 = CHUNK_BYTES / BLOCK_BYTES as u64;

/// Returns the chunk of a block of the pool.
pub(super) fn chunk_of(block: u64) -> u32 {
    (block / CHUNK_BLOCKS) as u32
}

/// Returns the parts of block ranges of the pool that logical disks own, in the order of their blocks.
pub(super) fn owned(map: &Map, ranges: &[Range<u64>]) -> Vec<Owned> {
    if ranges.is_empty() {
        return Vec::new();
    }
    let mut order: Vec<usize> = (0..ranges.len()).collect();
    order.sort_unstable_by_key(|of| ranges[*of].start);
    // Ranges may overlap, so this is the furthest end so far.
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
        // The last part found of each range.
        let mut last: HashMap<usize, usize> = HashMap::new();
        for (at, entry) in logical.entries().there() {
            let Some(chunk) = entry.chunk() else { continue };
            let start = u64::from(chunk) * CHUNK_BLOCKS;
            let chunk = start..start + CHUNK_BLOCKS;
            let from = ends.partition_point(|end| *end <= chunk.start);
            for &of in order[from..].iter().take_while(|of| ranges[**of].start < chunk.end) {
                let both = chunk.start.max(ranges[of].start)..chunk.end.min(ranges[of].end);
                if both.is_empty() {
                    continue;
                }
                let here = u64::from(at) * CHUNK_BLOCKS + (both.start - chunk.start);
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

/// A cache of the owners of chunks. Scans all logical disks only for chunks that are not cached, or changed owners.
#[derive(Debug, Default)]
pub(super) struct Owners {
    known: HashMap<u32, Option<Owner>>,
    /// The [number of allocations](super::space::Space::taken) when chunks were cached as unowned.
    taken: u64,
}

/// The owner of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    /// The number of the logical disk.
    pub disk: u32,
    /// The index of the chunk in it.
    pub at: u32,
}

impl Owners {
    /// Returns the owners of these chunks, without unowned ones. Other chunks are dropped from the cache.
    pub fn of(&mut self, map: &Map, chunks: &BTreeSet<u32>) -> BTreeMap<u32, Owner> {
        let nobody = self.taken == map.space.taken();
        self.known.retain(|chunk, owner| {
            let is_so = |owner: &Owner| {
                let entries = map.logicals.get(&owner.disk).map(|logical| logical.entries());
                entries.and_then(|entries| entries.get(owner.at as usize)?.chunk()) == Some(*chunk)
            };
            chunks.contains(chunk) && owner.as_ref().map_or(nobody, is_so)
        });
        let mut unknown: HashSet<u32, FxBuildHasher> =
            chunks.iter().copied().filter(|chunk| !self.known.contains_key(chunk)).collect();
        for (disk, logical) in &map.logicals {
            if unknown.is_empty() {
                break;
            }
            for (at, entry) in logical.entries().there() {
                if let Some(chunk) = entry.chunk().filter(|chunk| unknown.remove(chunk)) {
                    self.known.insert(chunk, Some(Owner { disk: *disk, at }));
                }
            }
        }
        if !unknown.is_empty() {
            self.taken = map.space.taken();
            self.known.extend(unknown.into_iter().map(|chunk| (chunk, None)));
        }
        self.known.iter().filter_map(|(chunk, owner)| Some((*chunk, (*owner)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use flashwise_core::cache::Mode;
    use uuid::Uuid;

    use super::*;
    use crate::pool::map::Entry;
    use crate::pool::record::{Change, Member, Shape};

    /// Two logical disks of four chunks. Chunk 1 of `b` is chunk 2 of the pool, and so on.
    fn map() -> Map {
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
                // The last chunk has two blocks.
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
            place(&mut map, id, at, Some(chunk));
        }
        map
    }

    fn place(map: &mut Map, id: u32, at: usize, chunk: Option<u32>) {
        let entry = chunk.map_or(Entry::default(), |chunk| Entry::at(chunk, true));
        assert!(chunk.is_none_or(|chunk| map.space.take(chunk)));
        let before = map.logicals[&id].entries_mut().set(at, entry);
        before.chunk().into_iter().for_each(|chunk| map.space.free(chunk));
    }

    /// Computed by hand.
    #[test]
    #[allow(clippy::single_range_in_vec_init)]
    fn blocks_of_a_pool_are_those_of_its_logical_disks() {
        let map = map();
        let found = |ranges: &[Range<u64>]| {
            let of = |owned: Owned| (owned.of, owned.disk.unwrap(), owned.blocks);
            owned(&map, ranges).into_iter().map(of).collect::<Vec<_>>()
        };
        let (a, b) = (|| "a".to_owned(), || "b".to_owned());
        assert_eq!(found(&[]), []);
        // Chunk 7 has no owner.
        assert_eq!(found(&[7 * 16..8 * 16]), []);
        assert_eq!(found(&[5 * 16 + 3..5 * 16 + 4]), [(0, a(), 3..4)]);
        // Chunks that are adjacent only in the pool, and chunks that are adjacent in the disk too.
        assert_eq!(found(&[5 * 16 + 15..6 * 16 + 1]), [(0, a(), 15..16), (0, a(), 32..33)]);
        assert_eq!(found(&[0..64]), [(0, b(), 16..50)]);
        assert_eq!(found(&[18..19]), []);
        // Two ranges that overlap and are unordered.
        let three = [(2, a(), 32..48), (1, b(), 16..48), (0, b(), 24..25)];
        assert_eq!(found(&[40..41, 32..64, 6 * 16..7 * 16]), three);
    }

    /// The owner is always the current one, through any sequence of changes.
    #[test]
    fn owners_are_the_current_ones() {
        let mut map = map();
        let mut owners = Owners::default();
        let mut of = |map: &Map, chunks: &[u32]| {
            let found = owners.of(map, &chunks.iter().copied().collect());
            found.into_iter().map(|(chunk, owner)| (chunk, owner.disk, owner.at)).collect::<Vec<_>>()
        };
        assert_eq!(of(&map, &[3, 5, 7]), [(3, 2, 2), (5, 1, 0)]);
        // A chunk is released, and an unowned one gets an owner.
        place(&mut map, 1, 0, None);
        assert_eq!(of(&map, &[3, 5, 7]), [(3, 2, 2)]);
        place(&mut map, 1, 1, Some(7));
        assert_eq!(of(&map, &[3, 5, 7]), [(3, 2, 2), (7, 1, 1)]);
        // A cached chunk changes its owner.
        place(&mut map, 2, 2, None);
        place(&mut map, 1, 0, Some(3));
        assert_eq!(of(&map, &[3, 5, 7]), [(3, 1, 0), (7, 1, 1)]);
        map.replay(&Change::LogicalDeleted(1)).unwrap();
        assert_eq!(of(&map, &[3, 7]), []);
        assert_eq!(of(&map, &[1]), [(1, 2, 3)]);
    }
}
