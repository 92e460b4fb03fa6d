//! The queues in DRAM: read copies, write buckets, buckets to erase, and free buckets.
//!
//! Source: WLFC, section IV.B.3 and Figure 3.
//!
//! Departures from the paper:
//! - Halving is exact: priorities are not rounded to whole numbers, so different ones never become equal.
//! - Among equal priorities the one that was set longest ago is the smallest.

use std::cmp::Ordering;

use crate::lists::Lists;

/// A priority that stays comparable across halvings. A number is `mantissa * 2^(exponent - 64)` with the mantissa's
/// highest bit set, so the larger exponent is the larger number. Zero has neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Priority {
    exponent: u64,
    mantissa: u64,
    /// The sequence number of its setting.
    set: u64,
}

/// Cache buckets by priority; the smallest leaves first.
///
/// Halving all priorities is implemented as doubling those that are set later, which takes constant time.
#[derive(Clone, Debug, Default)]
pub struct WriteQueue {
    /// A heap with the smallest element first.
    heap: Vec<(Priority, u32)>,
    /// The index of a cache bucket in the heap, or [`NOWHERE`].
    places: Vec<u32>,
    halvings: u64,
    set: u64,
}

const NOWHERE: u32 = u32::MAX;

impl WriteQueue {
    /// Returns the number of queued buckets.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// True if the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// True if `bucket` is queued.
    pub fn contains(&self, bucket: u32) -> bool {
        self.places.get(bucket as usize).is_some_and(|place| *place != NOWHERE)
    }

    /// Queues `bucket`, or changes its priority.
    #[inline]
    pub fn set(&mut self, bucket: u32, priority: u32) {
        self.set += 1;
        let priority = match u64::from(priority) {
            0 => Priority { exponent: 0, mantissa: 0, set: self.set },
            number => {
                let zeros = number.leading_zeros();
                Priority { exponent: self.halvings + u64::from(64 - zeros), mantissa: number << zeros, set: self.set }
            }
        };
        if bucket as usize >= self.places.len() {
            self.places.resize(bucket as usize + 1, NOWHERE);
        }
        let place = match self.places[bucket as usize] {
            NOWHERE => {
                self.heap.push((priority, bucket));
                self.heap.len() - 1
            }
            place => {
                self.heap[place as usize].0 = priority;
                place as usize
            }
        };
        self.settle(place);
    }

    /// Halves all priorities.
    pub fn halve(&mut self) {
        self.halvings += 1;
    }

    /// Returns the bucket with the smallest priority.
    pub fn smallest(&self) -> Option<u32> {
        self.heap.first().map(|(_, bucket)| *bucket)
    }

    /// Returns the bucket with the smallest priority for which `may` is true. Takes linear time.
    pub fn smallest_of(&self, may: impl Fn(u32) -> bool) -> Option<u32> {
        self.heap.iter().filter(|(_, bucket)| may(*bucket)).min().map(|(_, bucket)| *bucket)
    }

    /// Removes `bucket`, which must be queued.
    pub fn remove(&mut self, bucket: u32) {
        let place = std::mem::replace(&mut self.places[bucket as usize], NOWHERE) as usize;
        let last = self.heap.pop().expect("a queued bucket is in the heap");
        if place < self.heap.len() {
            self.heap[place] = last;
            self.settle(place);
        }
    }

    /// Iterates over the buckets, in no order.
    pub fn buckets(&self) -> impl Iterator<Item = u32> {
        self.heap.iter().map(|(_, bucket)| *bucket)
    }

    /// Moves the element at `place`, the only one that may be out of order, to its position.
    #[inline]
    fn settle(&mut self, mut place: usize) {
        let moved = self.heap[place];
        while place > 0 && moved < self.heap[(place - 1) / 2] {
            let parent = (place - 1) / 2;
            self.put(place, self.heap[parent]);
            place = parent;
        }
        loop {
            let left = 2 * place + 1;
            if left >= self.heap.len() {
                break;
            }
            let right = left + 1;
            let child = if right < self.heap.len() && self.heap[right] < self.heap[left] { right } else { left };
            if moved.cmp(&self.heap[child]) == Ordering::Less {
                break;
            }
            self.put(place, self.heap[child]);
            place = child;
        }
        self.put(place, moved);
    }

    #[inline]
    fn put(&mut self, place: usize, element: (Priority, u32)) {
        self.heap[place] = element;
        self.places[element.1 as usize] = place as u32;
    }

    /// Asserts the order of the heap and the indexes of the buckets.
    pub fn check(&self) {
        for (place, element) in self.heap.iter().enumerate() {
            assert!(place == 0 || self.heap[(place - 1) / 2] < *element, "the heap's order at {place}");
            assert_eq!(self.places[element.1 as usize] as usize, place, "the place of cache bucket {}", element.1);
        }
        let placed = self.places.iter().filter(|place| **place != NOWHERE).count();
        assert_eq!(placed, self.heap.len(), "a bucket with a place is in the heap");
    }
}

/// The queue of read copies, most recently used first.
const READ: u8 = 0;
/// The GC queue, in order of eviction, oldest at the back.
const GC: u8 = 1;
/// The Allocation queue of erased buckets, the next one to allocate at the back.
const ALLOCATION: u8 = 2;
/// Failed buckets, which are never reused.
const FAILED: u8 = 3;

/// The Read Cache, Write Cache, GC and Allocation queues. A cache bucket is in one of them.
#[derive(Clone, Debug)]
pub struct Queues {
    lists: Lists,
    /// The Write Cache Queue.
    pub write: WriteQueue,
}

impl Queues {
    /// Creates the queues with all `buckets` free, to be allocated in order of their numbers.
    pub fn new(buckets: u32) -> Queues {
        let mut queues = Queues { lists: Lists::new(4), write: WriteQueue::default() };
        (0..buckets).for_each(|bucket| queues.lists.push_front(ALLOCATION, bucket));
        queues
    }

    /// Removes and returns the oldest free bucket.
    pub fn allocate(&mut self) -> Option<u32> {
        let bucket = self.lists.back(ALLOCATION)?;
        self.lists.remove(bucket);
        Some(bucket)
    }

    /// Returns the number of buckets in the Allocation queue.
    pub fn free(&self) -> u32 {
        self.lists.len(ALLOCATION)
    }

    /// Queues a read copy as the most recently used.
    pub fn read_insert(&mut self, bucket: u32) {
        self.lists.push_front(READ, bucket);
    }

    /// Marks a read copy as the most recently used.
    #[inline]
    pub fn read_touch(&mut self, bucket: u32) {
        self.lists.move_front(bucket, READ);
    }

    /// Returns the least recently used read copy.
    pub fn read_last(&self) -> Option<u32> {
        self.lists.back(READ)
    }

    /// Returns the number of read copies.
    pub fn read_len(&self) -> u32 {
        self.lists.len(READ)
    }

    /// Iterates over read copies, least recently used first.
    pub fn read_copies(&self) -> impl Iterator<Item = u32> {
        self.lists.from_back(READ)
    }

    /// Moves an evicted bucket to the GC queue.
    pub fn retire(&mut self, bucket: u32) {
        if self.write.contains(bucket) {
            self.write.remove(bucket);
        } else if self.lists.list_of(bucket).is_some() {
            self.lists.remove(bucket);
        }
        self.lists.push_front(GC, bucket);
    }

    /// Returns the oldest evicted bucket that is not erased.
    pub fn gc_first(&self) -> Option<u32> {
        self.lists.back(GC)
    }

    /// Returns the number of buckets to erase.
    pub fn gc_len(&self) -> u32 {
        self.lists.len(GC)
    }

    /// Iterates over the buckets to erase, in order.
    pub fn gc_buckets(&self) -> impl Iterator<Item = u32> {
        self.lists.from_back(GC)
    }

    /// Moves an erased bucket from the GC queue to the Allocation queue.
    pub fn erased(&mut self, bucket: u32) {
        assert_eq!(self.lists.remove(bucket), GC, "erased buckets were evicted");
        self.lists.push_front(ALLOCATION, bucket);
    }

    /// Removes a bucket that was found in use from the Allocation queue.
    pub(super) fn take(&mut self, bucket: u32) {
        assert_eq!(self.lists.remove(bucket), ALLOCATION, "found buckets are free so far");
    }

    /// Removes a bucket from the Allocation queue for good.
    pub(super) fn fail(&mut self, bucket: u32) {
        self.take(bucket);
        self.lists.push_front(FAILED, bucket);
    }

    /// Asserts that each of `buckets` is in exactly one queue.
    pub fn check(&self, buckets: u32) {
        self.lists.check();
        self.write.check();
        for bucket in 0..buckets {
            let queued = usize::from(self.lists.list_of(bucket).is_some()) + usize::from(self.write.contains(bucket));
            assert_eq!(queued, 1, "cache bucket {bucket} is in one queue");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wlfc::tests::random::Random;

    /// Figure 3: room for 5, and 4 are there, with priorities that the text does not give: 40, 30, 20 (cache bucket 3)
    /// and 25. A write to J gets cache bucket 8 with 55, the largest. All are halved: 27.5, 20, 15, 10, 12.5. A write
    /// to F gets cache bucket 4 with 23 left. The queue is full, and cache bucket 3 is evicted.
    #[test]
    fn figure_3_by_hand() {
        let mut queue = WriteQueue::default();
        for (bucket, priority) in [(1, 40), (2, 30), (3, 20), (5, 25)] {
            queue.set(bucket, priority);
        }
        queue.set(8, 55);
        queue.check();
        let order = |queue: &WriteQueue| {
            let mut queue = queue.clone();
            std::iter::from_fn(|| {
                let bucket = queue.smallest()?;
                queue.remove(bucket);
                Some(bucket)
            })
            .collect::<Vec<_>>()
        };
        assert_eq!(order(&queue), [3, 5, 2, 1, 8]);
        queue.halve();
        assert_eq!(order(&queue), [3, 5, 2, 1, 8], "halving keeps the order");
        assert_eq!(queue.smallest(), Some(3));
        queue.remove(3);
        queue.set(4, 23);
        assert_eq!(order(&queue), [5, 2, 1, 4, 8], "23 is above 20 and below 27.5");
    }

    /// The naive queue halves numbers that floating point represents exactly: at most 17 bits, and fewer than a
    /// thousand halvings.
    #[test]
    fn halving_all_at_once_is_halving_one_by_one() {
        let mut random = Random(7);
        for _ in 0..20 {
            let (mut queue, mut naive) = (WriteQueue::default(), Vec::<(f64, u32, u32)>::new());
            for step in 0..2000 {
                let bucket = random.below(40) as u32;
                match random.below(10) {
                    0 => {
                        queue.halve();
                        naive.iter_mut().for_each(|(priority, ..)| *priority /= 2.0);
                    }
                    1 if queue.contains(bucket) => {
                        queue.remove(bucket);
                        naive.retain(|(_, _, other)| *other != bucket);
                    }
                    _ => {
                        let bits = random.below(18);
                        let priority = random.below(1 << bits) as u32;
                        queue.set(bucket, priority);
                        naive.retain(|(_, _, other)| *other != bucket);
                        naive.push((f64::from(priority), step, bucket));
                    }
                }
                queue.check();
                let smallest = naive.iter().min_by(|a, b| a.partial_cmp(b).expect("priorities are numbers"));
                assert_eq!(queue.smallest(), smallest.map(|(_, _, bucket)| *bucket));
                assert_eq!(queue.len(), naive.len());
            }
        }
    }

    #[test]
    fn buckets_are_erased_and_allocated_in_the_order_in_which_they_come() {
        let mut queues = Queues::new(4);
        assert_eq!([queues.allocate(), queues.allocate(), queues.allocate()], [Some(0), Some(1), Some(2)]);
        queues.read_insert(0);
        queues.read_insert(1);
        queues.write.set(2, 7);
        queues.read_touch(0);
        assert_eq!(queues.read_last(), Some(1));
        queues.check(4);
        queues.retire(2);
        queues.retire(1);
        assert_eq!((queues.gc_first(), queues.free()), (Some(2), 1));
        queues.check(4);
        queues.erased(2);
        assert_eq!((queues.allocate(), queues.allocate(), queues.allocate()), (Some(3), Some(2), None));
    }
}
