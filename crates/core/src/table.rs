//! A dense hash table of numbers, for indexes with one entry per cached block.
//!
//! Source: our own. As in F14, a bucket is a cache line, and counts the entries that overflowed past it. Source of F14:
//! Bronson and Shi: Open-sourcing F14 for faster, more memory-efficient hash tables. Engineering at Meta, 2019.
//!
//! The table stores only numbers, 4 bytes each. The caller knows their keys and hashes. The bits that the numbers leave
//! free hold a part of the hash, so few of the caller's keys are compared in vain. A table with a known capacity is
//! 9/10 full when it reaches it, and takes 4.7 bytes per number. Until then it grows twofold, afterwards by a quarter.
//!
//! A large table consists of many small ones, which grow separately: no call moves more than about ten thousand
//! numbers.

use crate::prefetch::prefetch;

/// Numbers in a bucket; with the overflow count a bucket is a cache line.
const WAYS: usize = 15;
/// The share of a table in use when it reaches its expected size.
const LOAD: f64 = 0.9;
/// Maximum share in use for a part of the expected size, because hashes do not divide numbers evenly. With 16,384
/// numbers expected their standard deviation is 128, which is 0.8 %; the 4.4 % from 0.9 to 0.94 are more than five of
/// it.
const LOAD_MAX: f64 = 0.94;
/// Maximum expected numbers in a part.
const PART_MAX: usize = 32_768;

#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Bucket {
    /// Tag and number; 0 for an empty entry.
    entries: [u32; WAYS],
    /// Number of entries from here or earlier buckets that are in a later one.
    passed: u32,
}

/// A set of numbers from 1 to 2^32 - 1, found by hash.
#[derive(Clone, Debug)]
pub struct Table {
    /// The parts; their number is a power of two.
    parts: Vec<SubTable>,
    len: usize,
}

impl Default for Table {
    fn default() -> Table {
        Table::new()
    }
}

impl Table {
    /// Creates an empty table.
    pub fn new() -> Table {
        Table { parts: vec![SubTable::new(0, 8)], len: 0 }
    }

    /// Creates an empty table for `capacity` numbers of at most `number_max`. It allocates memory as it fills. More or
    /// larger numbers are possible, with slightly more work.
    pub fn with_capacity(capacity: usize, number_max: u32) -> Table {
        let parts = capacity.div_ceil(PART_MAX).max(1).next_power_of_two();
        let part = SubTable::new(capacity.div_ceil(parts), bits_of(number_max));
        Table { parts: vec![part; parts], len: 0 }
    }

    /// Reserves room for `numbers` in total, to avoid growth on the way.
    pub fn reserve(&mut self, numbers: usize, hash_of: impl Fn(u32) -> u64) {
        // A part may have slightly more than its share; see `LOAD_MAX`.
        let share = (numbers + numbers / 16).div_ceil(self.parts.len());
        for part in self.parts.iter_mut().filter(|part| part.room < share) {
            part.grow(share, part.number_bits, &hash_of);
        }
    }

    /// Returns the number of numbers in the table.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if the table is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the part of a hash, from bits between those of the bucket and those of the tag.
    #[inline]
    fn part(&self, hash: u64) -> usize {
        (hash >> 8) as usize & (self.parts.len() - 1)
    }

    /// Returns the number with this hash for which `is_it` holds, or 0.
    #[inline]
    pub fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> u32 {
        self.parts[self.part(hash)].find(hash, is_it)
    }

    /// Adds a number, which is not 0 and not in the table. `hash_of` returns the hash of a number in the table.
    pub fn insert(&mut self, hash: u64, number: u32, hash_of: impl Fn(u32) -> u64) {
        assert!(number != 0, "0 stands for no number");
        let part = self.part(hash);
        self.parts[part].insert(hash, number, hash_of);
        self.len += 1;
    }

    /// Replaces `old` with the number `new`, which is not 0, not in the table and has the same hash. `hash_of` returns
    /// the hash of a number in the table.
    pub fn replace(&mut self, hash: u64, old: u32, new: u32, hash_of: impl Fn(u32) -> u64) {
        assert!(new != 0, "0 stands for no number");
        let part = self.part(hash);
        self.parts[part].replace(hash, old, new, hash_of);
    }

    /// Removes the number with this hash for which `is_it` holds. Returns true if it was present. `hash_of` returns the
    /// hashes of the others: one that overflowed moves back, otherwise a full table would accumulate overflows.
    pub fn remove(&mut self, hash: u64, is_it: impl Fn(u32) -> bool, hash_of: impl Fn(u32) -> u64) -> bool {
        let part = self.part(hash);
        let found = self.parts[part].remove(hash, is_it, hash_of);
        self.len -= usize::from(found);
        found
    }

    /// Iterates over the numbers, in no order.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.parts.iter().flat_map(SubTable::iter)
    }

    /// Hints that a number with this hash will be looked up soon.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.parts[self.part(hash)].prefetch(hash);
    }
}

/// One of the small tables, with a share of the hashes. The fields for a lookup are in one cache line.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct SubTable {
    buckets: Vec<Bucket>,
    len: usize,
    /// Maximum number of entries before it grows.
    room: usize,
    /// The expected number of entries.
    expected: usize,
    /// Width of the number in the low bits of an entry; the others are the tag.
    number_bits: u32,
}

impl SubTable {
    /// Creates an empty part, which takes no memory.
    fn new(expected: usize, number_bits: u32) -> SubTable {
        SubTable { buckets: Vec::new(), len: 0, room: 0, expected, number_bits }
    }

    /// Grows to about this many numbers.
    fn grow(&mut self, wanted: usize, number_bits: u32, hash_of: impl Fn(u32) -> u64) {
        let made_for = (self.buckets.len() as f64 * WAYS as f64 * LOAD) as usize;
        let capacity = match self.expected {
            expected if self.len >= expected => made_for + made_for / 4,
            // Avoids another small growth.
            expected if 4 * wanted > 3 * expected => expected,
            _ => wanted,
        };
        let capacity = capacity.max(WAYS);
        let buckets = (capacity as f64 / (WAYS as f64 * LOAD)).ceil() as usize;
        let load = if capacity == self.expected { LOAD_MAX } else { LOAD };
        self.room = (buckets as f64 * WAYS as f64 * load) as usize;
        self.rebuild(buckets, number_bits, hash_of);
    }

    /// Returns the home bucket of a hash.
    #[inline]
    fn home(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.buckets.len() as u128) >> 64) as usize
    }

    /// Returns the tag of a hash, shifted to its bits. The bucket depends on high bits of the hash, the tag on low
    /// ones.
    #[inline]
    fn tag(&self, hash: u64) -> u32 {
        // A shift by 32 leaves no bits for a tag.
        (hash as u32).checked_shl(self.number_bits).unwrap_or(0)
    }

    #[inline]
    fn number(&self, entry: u32) -> u32 {
        entry & u32::MAX.checked_shl(self.number_bits).map_or(u32::MAX, |tags| !tags)
    }

    #[inline]
    fn next(&self, at: usize) -> usize {
        if at + 1 == self.buckets.len() { 0 } else { at + 1 }
    }

    /// Returns the bucket and the entry of a number with this hash for which `is_it` holds.
    #[inline]
    fn position(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<(usize, usize)> {
        if self.len == 0 {
            return None;
        }
        let (tag, tags) = (self.tag(hash), self.tag(u64::MAX));
        let mut at = self.home(hash);
        // In a small table entries may overflow past every bucket.
        for _ in 0..self.buckets.len() {
            let bucket = &self.buckets[at];
            let mut candidates = 0_u32;
            for (way, &entry) in bucket.entries.iter().enumerate() {
                candidates |= u32::from(entry & tags == tag) << way;
            }
            while candidates != 0 {
                let way = candidates.trailing_zeros() as usize;
                let number = self.number(bucket.entries[way]);
                if number != 0 && is_it(number) {
                    return Some((at, way));
                }
                candidates &= candidates - 1;
            }
            if bucket.passed == 0 {
                break;
            }
            at = self.next(at);
        }
        None
    }

    /// Returns the number with this hash for which `is_it` holds, or 0.
    #[inline]
    fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> u32 {
        self.position(hash, is_it).map_or(0, |(at, way)| self.number(self.buckets[at].entries[way]))
    }

    fn insert(&mut self, hash: u64, number: u32, hash_of: impl Fn(u32) -> u64) {
        let bits = bits_of(number);
        if self.len == self.room {
            self.grow(2 * self.len, bits.max(self.number_bits), hash_of);
        } else if bits > self.number_bits {
            self.rebuild(self.buckets.len(), bits, hash_of);
        }
        self.place(hash, number);
        self.len += 1;
    }

    fn replace(&mut self, hash: u64, old: u32, new: u32, hash_of: impl Fn(u32) -> u64) {
        if bits_of(new) > self.number_bits {
            self.rebuild(self.buckets.len(), bits_of(new), hash_of);
        }
        let (at, way) = self.position(hash, |number| number == old).expect("the number to be replaced is in the table");
        self.buckets[at].entries[way] = self.tag(hash) | new;
    }

    fn place(&mut self, hash: u64, number: u32) {
        let entry = self.tag(hash) | number;
        let mut at = self.home(hash);
        loop {
            let bucket = &mut self.buckets[at];
            if let Some(free) = bucket.entries.iter_mut().find(|entry| **entry == 0) {
                *free = entry;
                return;
            }
            bucket.passed += 1;
            at = self.next(at);
        }
    }

    fn rebuild(&mut self, buckets: usize, number_bits: u32, hash_of: impl Fn(u32) -> u64) {
        let old = std::mem::replace(&mut self.buckets, vec![Bucket::default(); buckets]);
        let old_mask = u32::MAX.checked_shl(self.number_bits).map_or(u32::MAX, |tags| !tags);
        self.number_bits = number_bits;
        for entry in old.iter().flat_map(|bucket| bucket.entries).filter(|&entry| entry != 0) {
            let number = entry & old_mask;
            self.place(hash_of(number), number);
        }
    }

    fn remove(&mut self, hash: u64, is_it: impl Fn(u32) -> bool, hash_of: impl Fn(u32) -> u64) -> bool {
        let Some((found, way)) = self.position(hash, is_it) else { return false };
        self.buckets[found].entries[way] = 0;
        self.decrement_overflow(self.home(hash), found);
        self.len -= 1;
        let mut hole = (found, way);
        while let Some((at, way)) = self.passed_by(hole.0, &hash_of) {
            self.buckets[hole.0].entries[hole.1] = std::mem::take(&mut self.buckets[at].entries[way]);
            self.decrement_overflow(hole.0, at);
            hole = (at, way);
        }
        true
    }

    /// Decrements the overflow counts of the buckets from `from` up to but not including `to`.
    fn decrement_overflow(&mut self, from: usize, to: usize) {
        let mut at = from;
        while at != to {
            self.buckets[at].passed -= 1;
            at = self.next(at);
        }
    }

    /// Returns the position of an entry that overflowed past the bucket at `hole`.
    fn passed_by(&self, hole: usize, hash_of: impl Fn(u32) -> u64) -> Option<(usize, usize)> {
        let len = self.buckets.len();
        let distance = |from: usize, to: usize| if to >= from { to - from } else { to + len - from };
        let mut at = hole;
        while self.buckets[at].passed > 0 {
            at = self.next(at);
            if at == hole {
                return None;
            }
            let went_past =
                |&entry: &u32| entry != 0 && distance(self.home(hash_of(self.number(entry))), at) >= distance(hole, at);
            if let Some(way) = self.buckets[at].entries.iter().position(went_past) {
                return Some((at, way));
            }
        }
        None
    }

    fn iter(&self) -> impl Iterator<Item = u32> {
        let entries = self.buckets.iter().flat_map(|bucket| bucket.entries);
        entries.filter(|&entry| entry != 0).map(|entry| self.number(entry))
    }

    #[inline]
    fn prefetch(&self, hash: u64) {
        if !self.buckets.is_empty() {
            prefetch(&self.buckets, self.home(hash));
        }
    }
}

/// Returns the bits of numbers up to `number_max`.
fn bits_of(number_max: u32) -> u32 {
    u32::BITS - number_max.leading_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn buckets(table: &Table) -> impl Iterator<Item = &Bucket> {
        table.parts.iter().flat_map(|part| &part.buckets)
    }

    /// Few different hashes, to get overflows and equal tags.
    fn poor_hash(number: u32) -> u64 {
        u64::from(number % 7).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    /// Stafford's mixer, as in SplitMix64.
    fn good_hash(number: u32) -> u64 {
        let mut hash = u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        hash = (hash ^ hash >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        hash = (hash ^ hash >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        hash ^ hash >> 31
    }

    fn does_what_a_set_does(mut table: Table, hash_of: fn(u32) -> u64, number_max: u32, live_max: usize) {
        let mut set = BTreeSet::new();
        let mut state = 1_u64;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let number = 1 + (state >> 33) as u32 % number_max;
            let hash = hash_of(number);
            assert_eq!(table.find(hash, |found| found == number) == number, set.contains(&number));
            let grow = set.len() < live_max && state >> 20 & 3 != 0;
            if set.contains(&number) || !grow {
                assert_eq!(table.remove(hash, |found| found == number, hash_of), set.remove(&number));
            } else {
                table.insert(hash, number, hash_of);
                set.insert(number);
            }
            assert_eq!(table.len(), set.len());
        }
        for &number in &set {
            assert!(table.remove(hash_of(number), |found| found == number, hash_of), "{number}");
        }
        assert!(buckets(&table).all(|bucket| bucket.passed == 0 && bucket.entries == [0; WAYS]));
    }

    #[test]
    fn it_matches_a_set() {
        does_what_a_set_does(Table::new(), good_hash, 1_000, 600);
        does_what_a_set_does(Table::new(), poor_hash, 300, 200);
        does_what_a_set_does(Table::new(), good_hash, u32::MAX, 5_000);
        does_what_a_set_does(Table::with_capacity(500, 1_000), good_hash, 1_000, 500);
        does_what_a_set_does(Table::with_capacity(1, 1), poor_hash, 10, 10);
        does_what_a_set_does(Table::with_capacity(20, 40), good_hash, 40, 26);
        does_what_a_set_does(Table::with_capacity(40, 80), good_hash, 80, 39);
        does_what_a_set_does(Table::with_capacity(3_000, u32::MAX), good_hash, u32::MAX, 3_000);
        does_what_a_set_does(Table::with_capacity(300_000, 1_000), good_hash, 1_000, 900);
        does_what_a_set_does(Table::with_capacity(500, 0), good_hash, 3_000, 600);
    }

    #[test]
    fn a_number_in_the_place_of_another_is_found_by_the_same_hash() {
        let hash_of = |number: u32| good_hash(number & 1023);
        let mut table = Table::with_capacity(200, 200);
        (1..=200).for_each(|number| table.insert(hash_of(number), number, hash_of));
        let before = buckets(&table).count();
        for number in (1..=200).step_by(3) {
            // Needs more bits than before.
            table.replace(hash_of(number), number, number + 1024, hash_of);
        }
        for number in 1..=200 {
            let there = if number % 3 == 1 { number + 1024 } else { number };
            assert_eq!(table.find(hash_of(number), |found| found & 1023 == number), there);
        }
        assert_eq!((table.len(), buckets(&table).count()), (200, before));
    }

    /// Blocks come and go for a long time in a full cache.
    #[test]
    fn entries_stay_near_where_they_belong_in_a_table_that_stays_full() {
        let mut table = Table::with_capacity(30_000, 30_000);
        (1..=30_000).for_each(|number| table.insert(good_hash(number), number, good_hash));
        let past = |table: &Table| buckets(table).map(|bucket| u64::from(bucket.passed)).sum::<u64>();
        let before = past(&table);
        for round in 0..300_000_u32 {
            let (old, new) = (1 + round, 30_001 + round);
            assert!(table.remove(good_hash(old), |found| found == old, good_hash));
            table.insert(good_hash(new), new, good_hash);
        }
        assert!(
            past(&table) < before + before / 2,
            "{} entries are not where they belong, {before} at first",
            past(&table)
        );
    }

    #[test]
    fn a_table_with_a_capacity_takes_less_than_five_bytes_per_entry() {
        let mut table = Table::with_capacity(1_000_000, 1_000_000);
        (1..=1_000_000).for_each(|number| table.insert(good_hash(number), number, good_hash));
        assert!(buckets(&table).count() * size_of::<Bucket>() < 5_000_000);
        let past: u64 = buckets(&table).map(|bucket| u64::from(bucket.passed)).sum();
        assert!(past < 250_000, "{past} entries are not where they belong");
    }

    /// A table for a cache of 1 TiB takes a gigabyte once the cache is full.
    #[test]
    fn a_table_takes_memory_as_it_fills() {
        assert_eq!(buckets(&Table::with_capacity(1 << 28, 1 << 28)).count(), 0);
        let mut table = Table::with_capacity(4_000_000, 4_000_000);
        for number in 1..=1_000_000 {
            table.insert(good_hash(number), number, good_hash);
        }
        let bytes = buckets(&table).count() * size_of::<Bucket>();
        assert!(bytes < 12_000_000, "{bytes} bytes for a million numbers");
    }
}
