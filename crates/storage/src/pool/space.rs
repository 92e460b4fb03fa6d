//! The free chunks of a pool's disks, and the order of allocation.

use std::collections::BTreeMap;

/// The free chunks of all disks.
#[derive(Clone, Debug, Default)]
pub struct Space {
    disks: BTreeMap<u32, Room>,
    /// Number of allocations and of changes of owners.
    taken: u64,
}

/// The data chunks of a disk.
#[derive(Clone, Debug)]
struct Room {
    /// The number of the first of them in the pool.
    first: u32,
    /// Bitmap of the used chunks.
    taken: Vec<u64>,
    chunks: u32,
    free: u32,
    /// The index where the search for a free chunk begins.
    next: u32,
    /// True if the disk is being evacuated. No chunks are allocated on it.
    leaving: bool,
    /// True if the disk is missing.
    missing: bool,
}

/// Counts of the data chunks of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Number of data chunks.
    pub chunks: u32,
    /// Number of free data chunks.
    pub free: u32,
}

impl Room {
    fn is_taken(&self, at: u32) -> bool {
        self.taken[at as usize / 64] >> (at % 64) & 1 == 1
    }

    fn set(&mut self, at: u32, taken: bool) {
        assert_ne!(self.is_taken(at), taken, "chunk {} is {}", self.first + at, if taken { "taken" } else { "free" });
        self.taken[at as usize / 64] ^= 1 << (at % 64);
        self.free = if taken { self.free - 1 } else { self.free + 1 };
    }

    fn can_be_used(&self) -> bool {
        !self.leaving && !self.missing && self.free > 0
    }

    /// Allocates `wanted` if it is free; otherwise the next free chunk after the last allocation.
    fn take_near(&mut self, wanted: Option<u32>) -> u32 {
        let wanted = wanted.and_then(|chunk| chunk.checked_sub(self.first)).filter(|at| *at < self.chunks);
        let at = match wanted.filter(|at| !self.is_taken(*at)) {
            Some(at) => at,
            None => self.search(),
        };
        self.set(at, true);
        self.next = (at + 1) % self.chunks;
        self.first + at
    }

    fn search(&self) -> u32 {
        let words = self.taken.len() as u32;
        let begin = self.next / 64;
        for number in 0..=words {
            let word = (begin + number) % words;
            // The bits of the first word before the start are checked last.
            let before = if number == 0 { (1u64 << (self.next % 64)) - 1 } else { 0 };
            let at = word * 64 + (!(self.taken[word as usize] | before)).trailing_zeros();
            if at < (word + 1) * 64 && at < self.chunks {
                return at;
            }
        }
        unreachable!("a chunk is free: {}", self.free)
    }
}

impl Space {
    /// Adds a disk. All its chunks are free, except the first `reserved`.
    pub fn add_disk(&mut self, disk: u32, base: u32, reserved: u32, chunks: u32) {
        let (first, chunks) = (base + reserved, chunks - reserved);
        let taken = vec![0; chunks.div_ceil(64) as usize];
        let room = Room { first, taken, chunks, free: chunks, next: 0, leaving: false, missing: false };
        self.disks.insert(disk, room);
    }

    /// Removes a disk.
    pub fn remove_disk(&mut self, disk: u32) {
        self.disks.remove(&disk);
    }

    /// Marks a disk as being evacuated, or not.
    pub fn set_leaving(&mut self, disk: u32, leaving: bool) {
        if let Some(room) = self.disks.get_mut(&disk) {
            room.leaving = leaving;
        }
    }

    /// Marks a disk as missing or present.
    pub fn set_missing(&mut self, disk: u32, missing: bool) {
        if let Some(room) = self.disks.get_mut(&disk) {
            room.missing = missing;
        }
    }

    fn room_of(&mut self, chunk: u32) -> Option<(&mut Room, u32)> {
        let is_in = |room: &&mut Room| (room.first..room.first + room.chunks).contains(&chunk);
        let room = self.disks.values_mut().find(is_in)?;
        let at = chunk - room.first;
        Some((room, at))
    }

    /// Allocates this chunk. True if it existed and was free.
    pub fn take(&mut self, chunk: u32) -> bool {
        self.taken += 1;
        match self.room_of(chunk) {
            Some((room, at)) if !room.is_taken(at) => {
                room.set(at, true);
                true
            }
            _ => false,
        }
    }

    /// Records that an allocated chunk has an owner now.
    pub fn note_owner(&mut self) {
        self.taken += 1;
    }

    /// Number of allocations and of changes of owners. If it is unchanged, unowned chunks are still unowned.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Frees a chunk. A chunk of a removed disk is ignored.
    pub fn free(&mut self, chunk: u32) {
        if let Some((room, at)) = self.room_of(chunk) {
            room.set(at, false);
        }
    }

    /// True if a chunk exists and is free.
    pub fn is_free(&self, chunk: u32) -> bool {
        let is_in = |room: &&Room| (room.first..room.first + room.chunks).contains(&chunk);
        self.disks.values().find(is_in).is_some_and(|room| !room.is_taken(chunk - room.first))
    }

    /// Allocates a place for chunk `at` of a logical disk, whose previous chunk is at `before`. It is the next free
    /// chunk of the same disk or, if striped, of the disk whose turn it is. If that disk is full, it is on another.
    pub fn allocate(&mut self, at: u32, before: Option<u32>, striped: bool) -> Option<u32> {
        self.taken += 1;
        let usable: Vec<u32> =
            self.disks.iter().filter(|(_, room)| room.can_be_used()).map(|(disk, _)| *disk).collect();
        let in_order: Vec<u32> = self.disks.iter().filter(|(_, room)| !room.leaving).map(|(disk, _)| *disk).collect();
        let turn = in_order.get(at as usize % in_order.len().max(1)).filter(|disk| striped && usable.contains(disk));
        let same = before.and_then(|chunk| self.room_of(chunk).map(|(room, _)| room.first));
        let same = usable.iter().find(|disk| !striped && Some(self.disks[*disk].first) == same);
        let emptiest = usable.iter().max_by_key(|disk| self.disks[*disk].free).filter(|_| striped);
        let disk = *turn.or(same).or(emptiest).or(usable.first())?;
        let wanted = before.map(|chunk| chunk + 1).filter(|_| !striped);
        Some(self.disks.get_mut(&disk)?.take_near(wanted))
    }

    /// Allocates a chunk for a striped logical disk during an evacuation. It is on the disk with the fewest
    /// `neighbours` and, among these, the most free chunks.
    pub fn allocate_apart(&mut self, neighbours: &[u32]) -> Option<u32> {
        self.taken += 1;
        let near = |room: &Room| {
            let is_in = |chunk: &&u32| (room.first..room.first + room.chunks).contains(chunk);
            neighbours.iter().filter(is_in).count()
        };
        let usable = self.disks.values_mut().filter(|room| room.can_be_used());
        Some(usable.min_by_key(|room| (near(room), std::cmp::Reverse(room.free)))?.take_near(None))
    }

    /// Number of disks that chunks can be allocated on.
    pub fn usable_disks(&self) -> usize {
        self.disks.values().filter(|room| room.can_be_used()).count()
    }

    /// Returns the counts of each disk, by number.
    pub fn counts(&self) -> BTreeMap<u32, Count> {
        self.disks.iter().map(|(disk, room)| (*disk, Count { chunks: room.chunks, free: room.free })).collect()
    }

    /// Returns the counts of all disks. Disks that are missing or being evacuated have no free chunks here.
    pub fn count(&self) -> Count {
        self.disks.values().fold(Count::default(), |sum, room| Count {
            chunks: sum.chunks + room.chunks,
            free: sum.free + if room.can_be_used() { room.free } else { 0 },
        })
    }

    /// Number of used chunks on present disks that are being evacuated. They need space on the other disks.
    pub fn wanted_by_leaving(&self) -> u32 {
        let leaving = self.disks.values().filter(|room| room.leaving && !room.missing);
        leaving.map(|room| room.chunks - room.free).sum()
    }

    /// Number of free chunks that no evacuation needs.
    pub fn to_give(&self) -> u32 {
        self.count().free.saturating_sub(self.wanted_by_leaving())
    }

    /// Returns the number of chunks of the disks that stay, and the number of used chunks of all disks.
    pub fn usage(&self) -> (u32, u32) {
        let stay = self.disks.values().filter(|room| !room.leaving);
        (stay.map(|room| room.chunks).sum(), self.disks.values().map(|room| room.chunks - room.free).sum())
    }

    /// Fails if a counter does not match the bitmap.
    pub fn check(&self) -> Result<(), String> {
        for (disk, room) in &self.disks {
            let taken: u32 = room.taken.iter().map(|word| word.count_ones()).sum();
            if taken + room.free != room.chunks {
                return Err(format!("disk {disk} has {} chunks, {taken} taken and {} free", room.chunks, room.free));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two disks with 10 and 20 data chunks: 2 to 11, and 13 to 32.
    fn space() -> Space {
        let mut space = Space::default();
        space.add_disk(1, 0, 2, 12);
        space.add_disk(2, 12, 1, 21);
        space
    }

    #[test]
    fn a_linear_disk_fills_one_disk_in_order_and_then_the_next() {
        let mut space = space();
        let mut before = None;
        for at in 0..30 {
            let chunk = space.allocate(at, before, false).unwrap();
            assert_eq!(chunk, if at < 10 { at + 2 } else { at + 3 });
            before = Some(chunk);
        }
        assert_eq!(space.allocate(30, before, false), None);
        assert_eq!(space.count(), Count { chunks: 30, free: 0 });
        space.free(7);
        assert_eq!(space.allocate(30, before, false), Some(7), "what is free is found wherever it is");
        space.check().unwrap();
    }

    #[test]
    fn a_striped_disk_takes_turns_until_one_disk_is_full() {
        let mut space = space();
        let chunks: Vec<_> = (0..6).map(|at| space.allocate(at, None, true).unwrap()).collect();
        assert_eq!(chunks, [2, 13, 3, 14, 4, 15]);
        (6..30).for_each(|at| assert!(space.allocate(at, None, true).is_some()));
        assert_eq!(space.allocate(30, None, true), None);
    }

    /// Disks 1 and 2 have 10 and 20 data chunks: 2 to 11, and 13 to 32.
    #[test]
    fn a_chunk_that_leaves_goes_where_its_neighbours_are_not_and_else_where_there_is_most_room() {
        let mut space = space();
        assert_eq!(space.usable_disks(), 2);
        assert_eq!(space.allocate_apart(&[13]), Some(2));
        assert_eq!(space.allocate_apart(&[2, 3]), Some(13));
        // One neighbour on each disk; 9 of 10 and 19 of 20 chunks are free.
        assert_eq!(space.allocate_apart(&[2, 13]), Some(14));
        space.set_leaving(1, true);
        assert_eq!((space.usable_disks(), space.allocate_apart(&[13, 14])), (1, Some(15)));
    }

    #[test]
    fn nothing_is_taken_of_a_disk_that_leaves_or_is_missing() {
        let mut space = space();
        space.set_leaving(1, true);
        assert_eq!(space.count(), Count { chunks: 30, free: 20 });
        assert_eq!(space.allocate(0, None, false), Some(13));
        space.set_missing(2, true);
        assert_eq!(space.allocate(1, Some(13), false), None);
        space.set_leaving(1, false);
        assert_eq!(space.allocate(1, Some(13), false), Some(2));
        assert!(space.take(5) && !space.take(5) && !space.take(12), "taken once, and not what is not there");
        assert!(space.is_free(6) && !space.is_free(5) && !space.is_free(1000));
    }

    /// 64 chunks are one word of the bitmap, and the search wraps around.
    #[test]
    fn the_search_goes_round_the_words_and_finds_the_only_free_chunk() {
        for chunks in [1, 63, 64, 65, 130] {
            let mut space = Space::default();
            space.add_disk(1, 0, 1, chunks + 1);
            let all: Vec<_> = (0..chunks).map(|at| space.allocate(at, None, false).unwrap()).collect();
            assert_eq!(all, (1..=chunks).collect::<Vec<_>>());
            for chunk in all {
                space.free(chunk);
                assert_eq!(space.allocate(0, None, false), Some(chunk));
            }
        }
    }
}
