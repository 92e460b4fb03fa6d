//! Counts the distinct blocks accessed since the last access to a block: the LRU stack distance of Mattson et al.
//! (1970). The algorithm is that of Bennett and Kruskal (IBM J. Res. Dev. 19(4), 1975): a set of last positions that
//! counts its members above a position.

/// The blocks in order of their last access. Each has a position, the newest the highest. A bit set of the used
/// positions, with a Fenwick tree over the bit counts of its leaves, counts those above a position. There are at least
/// twice as many positions as blocks. When they run out, the blocks move down to the lowest ones, at most once in as
/// many accesses as there are blocks. If there are more blocks than expected, there are four times as many positions as
/// blocks at that point.
#[derive(Debug)]
pub struct Recency {
    /// The position of each block.
    last: Vec<u32>,
    next: u32,
    bits: Vec<u64>,
    leaves: Fenwick,
    taken: u32,
}

impl Recency {
    const NONE: u32 = u32::MAX;
    /// The number of words of the bit set under one leaf of the tree: a cache line. The tree over 10 million blocks
    /// takes 160 KiB.
    const LEAF_WORDS: usize = 8;
    const LEAF_POSITIONS: usize = 64 * Self::LEAF_WORDS;

    /// Creates an empty order; `blocks` is the expected number of distinct blocks.
    pub fn new(blocks: usize) -> Self {
        let leaves = Self::leaves(2 * blocks);
        Recency {
            last: vec![Self::NONE; blocks],
            next: 0,
            bits: vec![0; leaves * Self::LEAF_WORDS],
            leaves: Fenwick(vec![0; leaves]),
            taken: 0,
        }
    }

    /// Returns the number of leaves for so many positions, at most the supported maximum.
    fn leaves(positions: usize) -> usize {
        positions.div_ceil(Self::LEAF_POSITIONS).min(u32::MAX as usize / Self::LEAF_POSITIONS)
    }

    /// Returns the number of distinct blocks accessed since the last access to `block`; none for the first access.
    pub fn access(&mut self, block: usize) -> Option<u64> {
        if block >= self.last.len() {
            self.last.resize(block + 1, Self::NONE);
        }
        if self.next as usize == 64 * self.bits.len() {
            self.compact();
        }
        let last = std::mem::replace(&mut self.last[block], self.next);
        let distance = if last == Self::NONE {
            self.taken += 1;
            None
        } else {
            let above = self.taken - self.taken_up_to(last);
            self.bits[last as usize / 64] &= !(1 << (last % 64));
            self.leaves.add(last as usize / Self::LEAF_POSITIONS, u32::MAX);
            Some(u64::from(above))
        };
        self.bits[self.next as usize / 64] |= 1 << (self.next % 64);
        self.leaves.add(self.next as usize / Self::LEAF_POSITIONS, 1);
        self.next += 1;
        distance
    }

    /// Returns the number of used positions up to `position`, which is used itself.
    fn taken_up_to(&self, position: u32) -> u32 {
        let (word, leaf) = (position as usize / 64, position as usize / Self::LEAF_POSITIONS);
        let words = &self.bits[leaf * Self::LEAF_WORDS..word];
        let upper = 63 - position % 64;
        let in_leaf = words.iter().map(|word| word.count_ones()).sum::<u32>() + (self.bits[word] << upper).count_ones();
        self.leaves.before(leaf) + in_leaf
    }

    /// Moves the blocks to the lowest positions, in the same order.
    fn compact(&mut self) {
        let mut sum = 0;
        let before = |word: &u64| {
            sum += word.count_ones();
            sum - word.count_ones()
        };
        let before: Vec<u32> = self.bits.iter().map(before).collect();
        for last in self.last.iter_mut().filter(|last| **last != Self::NONE) {
            let word = *last as usize / 64;
            let below = self.bits[word] & ((1 << (*last % 64)) - 1);
            *last = before[word] + below.count_ones();
        }
        self.next = self.taken;
        if 64 * self.bits.len() < 2 * self.taken as usize || self.bits.is_empty() {
            self.bits
                .resize(Self::leaves(4 * self.taken.max(1) as usize).max(self.leaves.0.len()) * Self::LEAF_WORDS, 0);
        }
        for (word, bits) in self.bits.iter_mut().enumerate() {
            let taken = (self.taken as usize).saturating_sub(64 * word).min(64);
            *bits = if taken == 64 { u64::MAX } else { (1 << taken) - 1 };
        }
        let counts = self.bits.chunks(Self::LEAF_WORDS).map(|leaf| leaf.iter().map(|word| word.count_ones()).sum());
        self.leaves = Fenwick::new(counts.collect());
    }
}

/// Prefix sums of a list whose elements change (Fenwick, Software: Practice and Experience 24(3), 1994). Element i of
/// the tree, counting from 1, is the sum of the last i & -i elements up to i.
#[derive(Debug)]
struct Fenwick(Vec<u32>);

impl Fenwick {
    fn new(mut counts: Vec<u32>) -> Self {
        for index in 1..=counts.len() {
            let parent = index + (index & index.wrapping_neg());
            if parent <= counts.len() {
                counts[parent - 1] += counts[index - 1];
            }
        }
        Fenwick(counts)
    }

    /// Adds `amount` modulo 2^32 to an element.
    fn add(&mut self, element: usize, amount: u32) {
        let mut index = element + 1;
        while index <= self.0.len() {
            self.0[index - 1] = self.0[index - 1].wrapping_add(amount);
            index += index & index.wrapping_neg();
        }
    }

    /// Returns the sum of the elements before `element`.
    fn before(&self, element: usize) -> u32 {
        let (mut index, mut sum) = (element, 0);
        while index > 0 {
            sum += self.0[index - 1];
            index &= index - 1;
        }
        sum
    }
}
