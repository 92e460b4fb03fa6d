//! The last referenced blocks, each with its count, in the order of their last references: the history of
//! [`hotness`](super::hotness).
//!
//! Source: our own. The order is a ring of places. A block that is referenced again is rewritten at the front, and its
//! old place becomes empty. That touches only its own two places. Moving a node of a linked list also changes its
//! neighbours, which are seldom in the processor's caches. The back skips empty places; if a block that is never
//! referenced again blocks it until the ring is full, the ring is compacted.

use crate::index::Index;
use crate::prefetch::prefetch;

/// Places of the ring per block of the history. More places mean fewer compactions.
const PLACES_PER_BLOCK: usize = 3;
/// Minimum number of places to reserve.
const ROOM_MIN: usize = 64;
/// Prefetch distance in places, for the index entry of a place's block.
const PREFETCH_DISTANCE: usize = 8;

/// Packed, to fit more places in a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, packed)]
struct HistoryEntry<K> {
    key: K,
    /// References to the block; 0 if the place is empty.
    count: u8,
}

/// The place of a block, valid until the history changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaceId(u32);

/// The result of a reference to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Referenced {
    /// References to the block before, 0 if it was not in the history.
    pub before: u8,
    /// References to the block that was forgotten to make room.
    pub forgotten: Option<u8>,
}

/// Recently referenced blocks, with their counts.
#[derive(Clone, Debug)]
pub struct History<I: Index> {
    index: I,
    /// A ring from the second place on, because the index uses 0 for no place. It grows as needed.
    places: Vec<HistoryEntry<I::Key>>,
    /// The last place of the ring.
    place_max: usize,
    /// The next place to write. The places from there to `back` are unused.
    front: usize,
    /// The place of the block that was referenced longest ago, or an empty one before it.
    back: usize,
    len: usize,
    len_max: usize,
}

impl<I: Index> History<I> {
    /// Creates an empty history of at most `len_max` blocks. `index` must be empty.
    pub fn new(index: I, len_max: usize) -> Self {
        // At most half of the places that an index can number.
        let len_max = len_max.min(u32::MAX as usize / 2);
        let nothing = HistoryEntry { key: I::Key::default(), count: 0 };
        // One place is always unused, and one is for a block written before another one is forgotten.
        let place_max = (PLACES_PER_BLOCK * len_max + 2).min(u32::MAX as usize);
        History { index, places: vec![nothing], place_max, front: 1, back: 1, len: 0, len_max }
    }

    /// Returns the number of blocks in the history.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if the history is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the maximum number of blocks.
    #[inline]
    pub fn len_max(&self) -> usize {
        self.len_max
    }

    /// Returns the place of `key`, if it is in the history.
    #[inline]
    pub fn find(&self, key: I::Key) -> Option<PlaceId> {
        Some(self.place_of(key)).filter(|&place| place != 0).map(PlaceId)
    }

    /// Returns the place of `key`, or 0.
    #[inline]
    fn place_of(&self, key: I::Key) -> u32 {
        self.index.get(key, |place| self.places[place as usize].key)
    }

    /// Returns the references to the block at `place`.
    #[inline]
    pub fn count(&self, place: PlaceId) -> u8 {
        self.places[place.0 as usize].count
    }

    /// Moves `key`, which is referenced, to the front. If that makes too many blocks, the last one is forgotten.
    #[inline]
    pub fn reference(&mut self, key: I::Key) -> Referenced {
        if self.is_full() {
            self.close_up();
        }
        let old = self.place_of(key);
        let before = self.places[old as usize].count;
        let new = self.push(key, before.saturating_add(1));
        // For a new block this is place 0, which is always empty.
        self.places[old as usize].count = 0;
        let History { index, places, .. } = self;
        if before > 0 {
            index.replace(key, old, new, |place| places[place as usize].key);
            return Referenced { before, forgotten: None };
        }
        index.insert(key, new, |place| places[place as usize].key);
        self.len += 1;
        let forgotten = if self.len > self.len_max { self.pop_back() } else { None };
        Referenced { before, forgotten }
    }

    /// Forgets the block at `place`.
    #[inline]
    pub fn remove(&mut self, place: PlaceId) {
        let History { index, places, .. } = self;
        index.remove(places[place.0 as usize].key, |place| places[place as usize].key);
        places[place.0 as usize].count = 0;
        self.len -= 1;
    }

    /// Forgets the block that was referenced longest ago, and returns its count.
    #[inline]
    fn pop_back(&mut self) -> Option<u8> {
        if self.is_empty() {
            return None;
        }
        loop {
            let place = self.back;
            self.prefetch_ahead(place);
            self.back = self.after(place);
            let count = self.places[place].count;
            if count > 0 {
                self.remove(PlaceId(place as u32));
                return Some(count);
            }
        }
    }

    #[inline]
    fn after(&self, place: usize) -> usize {
        if place == self.place_max { 1 } else { place + 1 }
    }

    /// True if only the place that is always unused is left.
    #[inline]
    fn is_full(&self) -> bool {
        self.after(self.front) == self.back
    }

    #[inline]
    fn push(&mut self, key: I::Key, count: u8) -> u32 {
        let place = self.front;
        if let Some(unused) = self.places.get_mut(place) {
            *unused = HistoryEntry { key, count };
        } else {
            if self.places.len() == self.places.capacity() {
                // Grows by an eighth instead of doubling, up to the maximum.
                let room = self.places.len() / 8 + ROOM_MIN;
                self.places.reserve_exact(room.min(self.place_max + 1 - self.places.len()));
            }
            self.places.push(HistoryEntry { key, count });
        }
        self.front = self.after(place);
        place as u32
    }

    /// Compacts the ring, so that no place between blocks is empty.
    #[cold]
    fn close_up(&mut self) {
        let (mut from, mut to) = (self.back, self.back);
        while from != self.front {
            self.prefetch_ahead(from);
            let moved = self.places[from];
            if moved.count > 0 {
                self.places[to] = moved;
                let History { index, places, .. } = self;
                index.replace(moved.key, from as u32, to as u32, |place| places[place as usize].key);
                to = self.after(to);
            }
            from = self.after(from);
        }
        self.front = to;
    }

    #[inline]
    fn prefetch_ahead(&self, place: usize) {
        if let Some(ahead) = self.places.get(place + PREFETCH_DISTANCE) {
            self.index.prefetch(ahead.key);
        }
    }

    /// Hints that `key` will be looked up soon.
    #[inline]
    pub fn prefetch_index(&self, key: I::Key) {
        self.index.prefetch(key);
    }

    /// Hints that the place of `key`, if any, will be used soon. Best given some accesses after
    /// [`prefetch_index`](Self::prefetch_index) for the same key.
    #[inline]
    pub fn prefetch_place(&self, key: I::Key) {
        prefetch(&self.places, self.place_of(key) as usize);
    }

    /// Iterates over blocks and their references, last referenced first.
    pub fn iter(&self) -> impl Iterator<Item = (I::Key, u8)> {
        let before = |&place: &usize| Some(if place == 1 { self.place_max } else { place - 1 });
        let used = (self.front + self.place_max - self.back) % self.place_max;
        let places = std::iter::successors(before(&self.front), before).take(used);
        places.map(|place| (self.places[place].key, self.places[place].count)).filter(|&(_, count)| count > 0)
    }

    /// Asserts that ring, length and index agree.
    pub fn check(&self) {
        assert!(self.len <= self.len_max, "{} blocks are remembered, {} at most are allowed", self.len, self.len_max);
        assert!(self.places.len() <= self.place_max + 1);
        assert!((1..=self.place_max).contains(&self.front) && (1..=self.place_max).contains(&self.back));
        assert_eq!(self.iter().count(), self.len);
        for (key, count) in self.iter() {
            let place = self.find(key).expect("a block of the history is indexed");
            assert_eq!((self.places[place.0 as usize].key, self.count(place)), (key, count));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{Dense, Hashed};

    /// Compares with a plain list of blocks and counts, last referenced first.
    fn does_what_a_list_does<I: Index>(index: I, len_max: usize, keys: u32, key: impl Fn(u32) -> I::Key) {
        let mut history = History::new(index, len_max);
        let mut list: Vec<(I::Key, u8)> = Vec::new();
        let mut state = 1_u32;
        for _ in 0..20_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let key = key((state >> 16) % keys);
            let listed = list.iter().position(|&(other, _)| other == key).map(|at| list.remove(at));
            assert_eq!(history.find(key).map(|place| history.count(place)), listed.map(|(_, count)| count));
            if let Some(place) = history.find(key).filter(|_| state >> 8 & 7 == 0) {
                history.remove(place);
            } else {
                let before = listed.map_or(0, |(_, count)| count);
                list.insert(0, (key, before.saturating_add(1)));
                let forgotten = if list.len() > len_max { list.pop().map(|(_, count)| count) } else { None };
                assert_eq!(history.reference(key), Referenced { before, forgotten });
            }
            assert_eq!(history.len(), list.len());
            history.check();
        }
        assert!(history.iter().eq(list), "the blocks are in the order of their last references");
    }

    #[test]
    fn it_matches_a_list() {
        for (len_max, keys) in [(0, 3), (1, 2), (1, 1), (2, 2), (20, 15), (20, 21), (20, 60)] {
            does_what_a_list_does(Dense::new(0), len_max, keys, |key| key);
            does_what_a_list_does(Hashed::<u64>::new(), len_max, keys, |key| u64::from(key) << 20);
        }
    }

    /// One block stays at the back while another one is referenced repeatedly.
    #[test]
    fn a_block_that_stays_at_the_back_does_not_make_the_ring_longer() {
        let mut history = History::new(Dense::new(0), 100);
        history.reference(7);
        (0..10_000).for_each(|_| _ = history.reference(8));
        assert_eq!(history.iter().collect::<Vec<_>>(), [(8, u8::MAX), (7, 1)]);
        assert_eq!(history.places.len(), 100 * PLACES_PER_BLOCK + 2);
        history.check();
    }
}
