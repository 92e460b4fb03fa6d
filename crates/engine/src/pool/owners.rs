//! Whose the blocks of a pool are.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;

use flashwise_core::format::BLOCK_BYTES;
use rustc_hash::FxBuildHasher;

use super::CHUNK_BYTES;
use super::map::Map;
use crate::attach::Owned;

/// Blocks of a chunk.
pub(super) const CHUNK_BLOCKS: u64 = CHUNK_BYTES / BLOCK_BYTES as u64;

/// The chunk that a block of the pool is of.
pub(super) fn chunk_of(block: u64) -> u32 {
    (block / CHUNK_BLOCKS) as u32
}

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

/// The owners of chunks that are asked for again and again. All chunks of all logical disks are looked through for those alone that were not known
/// before, or have changed hands.
#[derive(Debug, Default)]
pub(super) struct Owners {
    known: HashMap<u32, Option<Owner>>,
    /// How often chunks had been taken when it was found that these are nobody's.
    taken: u64,
}

/// Whose a chunk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    /// The number of the logical disk.
    pub disk: u32,
    /// Which of its chunks it is.
    pub at: u32,
}

impl Owners {
    /// The owners of these chunks, of those that have one; the others are forgotten.
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

    /// By hand.
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

    /// However chunks change hands, their owners are those who have them then.
    #[test]
    fn owners_are_those_who_have_a_chunk_now() {
        let mut map = map();
        let mut owners = Owners::default();
        let mut of = |map: &Map, chunks: &[u32]| {
            let found = owners.of(map, &chunks.iter().copied().collect());
            found.into_iter().map(|(chunk, owner)| (chunk, owner.disk, owner.at)).collect::<Vec<_>>()
        };
        assert_eq!(of(&map, &[3, 5, 7]), [(3, 2, 2), (5, 1, 0)]);
        // One is given up, and one that was nobody's is somebody's.
        place(&mut map, 1, 0, None);
        assert_eq!(of(&map, &[3, 5, 7]), [(3, 2, 2)]);
        place(&mut map, 1, 1, Some(7));
        assert_eq!(of(&map, &[3, 5, 7]), [(3, 2, 2), (7, 1, 1)]);
        // One that was known has another owner.
        place(&mut map, 2, 2, None);
        place(&mut map, 1, 0, Some(3));
        assert_eq!(of(&map, &[3, 5, 7]), [(3, 1, 0), (7, 1, 1)]);
        map.replay(&Change::LogicalDeleted(1)).unwrap();
        assert_eq!(of(&map, &[3, 7]), []);
        assert_eq!(of(&map, &[1]), [(1, 2, 3)]);
    }
}
