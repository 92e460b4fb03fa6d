//! Traffic of the devices, counted from a cache's outcomes. [`Array`](crate::tiers::Array) computes wear and latency
//! from it.
//!
//! Source: Moon, Reddy: Adaptive policies for balancing performance and lifetime of mixed SSD arrays through workload
//! sampling. MSST 2016, Figures 2 and 3: arrows 2 to 5. Evicted dirty blocks are counted one by one, where equation 2
//! has their average share `d`.

use std::hash::Hash;

use hashbrown::HashSet;
use rustc_hash::FxBuildHasher;

use crate::access::Op;
use crate::policy::Outcome;
use crate::tiers::Traffic;

/// A set of blocks: the dirty ones.
pub trait BlockSet<K> {
    /// Inserts `block`; returns true if it was absent.
    fn insert(&mut self, block: K) -> bool;

    /// Removes `block`; returns true if it was present.
    fn remove(&mut self, block: K) -> bool;
}

/// A set of dense block ids with a bit each. It grows to the largest id inserted.
#[derive(Clone, Debug)]
pub struct Bits(Vec<u64>);

impl Bits {
    /// Creates an empty set for ids below `block_count`.
    pub fn new(block_count: usize) -> Self {
        Bits(vec![0; block_count.div_ceil(64)])
    }
}

impl BlockSet<u32> for Bits {
    #[inline]
    fn insert(&mut self, block: u32) -> bool {
        let at = block as usize / 64;
        if at >= self.0.len() {
            self.0.resize(at + 1, 0);
        }
        let (word, bit) = (&mut self.0[at], 1 << (block % 64));
        let before = *word;
        *word |= bit;
        before & bit == 0
    }

    #[inline]
    fn remove(&mut self, block: u32) -> bool {
        let Some(word) = self.0.get_mut(block as usize / 64) else { return false };
        let (before, bit) = (*word, 1 << (block % 64));
        *word &= !bit;
        before & bit != 0
    }
}

/// A set of any blocks.
pub type Hashes<K> = HashSet<K, FxBuildHasher>;

impl<K: Eq + Hash> BlockSet<K> for Hashes<K> {
    #[inline]
    fn insert(&mut self, block: K) -> bool {
        HashSet::insert(self, block)
    }

    #[inline]
    fn remove(&mut self, block: K) -> bool {
        HashSet::remove(self, &block)
    }
}

crate::counts! {
    /// Block accesses by outcome, `[read, write]` by [`Op`], and blocks written back.
    pub struct Counts {
        /// Hits.
        pub hits: [u64; 2],
        /// Admitted misses.
        pub admissions: [u64; 2],
        /// Bypassed misses.
        pub bypasses: [u64; 2],
        /// Evicted dirty blocks.
        pub written_back: u64,
    }
}

impl Counts {
    /// Returns the number of accesses.
    pub fn accesses(&self) -> u64 {
        [self.hits, self.admissions, self.bypasses].iter().flatten().sum()
    }

    /// Returns hits per access; 0 without accesses.
    pub fn hit_ratio(&self) -> f64 {
        let hits: u64 = self.hits.iter().sum();
        if self.accesses() == 0 { 0.0 } else { hits as f64 / self.accesses() as f64 }
    }

    /// Counts an access.
    #[inline]
    pub fn record<K>(&mut self, op: Op, outcome: &Outcome<K>) {
        let counts = match outcome {
            Outcome::Hit => &mut self.hits,
            Outcome::Admit { .. } => &mut self.admissions,
            Outcome::Bypass => &mut self.bypasses,
        };
        counts[op as usize] += 1;
    }

    /// Returns the traffic for blocks of `block_bytes`.
    pub fn traffic(&self, block_bytes: u64) -> Traffic {
        let bytes = |blocks: u64| blocks as f64 * block_bytes as f64;
        let ([read_hits, write_hits], [read_admissions, write_admissions]) = (self.hits, self.admissions);
        let [read_bypasses, write_bypasses] = self.bypasses;
        Traffic {
            read_hits: bytes(read_hits),
            read_misses: bytes(read_admissions + read_bypasses),
            cached_writes: bytes(write_hits + write_admissions),
            bypassed_writes: bytes(write_bypasses),
            cache_written: bytes(read_admissions + write_hits + write_admissions),
            storage_written: bytes(write_bypasses + self.written_back),
        }
    }
}

/// Counts for a write-back cache, with the set of its dirty blocks. Dirty blocks are written back on eviction.
#[derive(Clone, Debug, Default)]
pub struct Account<S> {
    dirty: S,
    dirty_blocks: u64,
    counts: Counts,
}

impl<S> Account<S> {
    /// Creates the account of an empty cache; `dirty` must be empty.
    pub fn new(dirty: S) -> Self {
        Account { dirty, dirty_blocks: 0, counts: Counts::default() }
    }

    /// Returns all counts.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Returns the number of dirty blocks in the cache.
    pub fn dirty_blocks(&self) -> u64 {
        self.dirty_blocks
    }

    /// Counts an access to `block` and its outcome. Returns the evicted block if it was dirty and so is written back.
    #[inline]
    pub fn record<K: Copy + Eq>(&mut self, block: K, op: Op, outcome: &Outcome<K>) -> Option<K>
    where
        S: BlockSet<K>,
    {
        self.counts.record(op, outcome);
        let mut written_back = None;
        if let Outcome::Admit { evicted: Some(evicted) } = *outcome
            && self.dirty.remove(evicted)
        {
            self.dirty_blocks -= 1;
            self.counts.written_back += 1;
            written_back = Some(evicted);
        }
        match (op, outcome) {
            // The storage now has newer data than the cache had.
            (Op::Write, Outcome::Bypass) => self.remove(block),
            (Op::Write, _) => self.dirty_blocks += u64::from(self.dirty.insert(block)),
            _ => {}
        }
        written_back
    }

    /// Counts that `block` left without a replacement. Returns true if it was dirty and so is written back.
    #[inline]
    pub fn leave<K>(&mut self, block: K) -> bool
    where
        S: BlockSet<K>,
    {
        let was_dirty = self.dirty.remove(block);
        self.dirty_blocks -= u64::from(was_dirty);
        self.counts.written_back += u64::from(was_dirty);
        was_dirty
    }

    /// Forgets `block`, which was trimmed: it is not written back.
    pub fn remove<K>(&mut self, block: K)
    where
        S: BlockSet<K>,
    {
        self.dirty_blocks -= u64::from(self.dirty.remove(block));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Read 1 (admitted), write 1 (hit: dirty), write 2 (admitted: dirty). Read 3 (admitted, evicts 1: written back),
    /// write 4 and read 5 (past the cache). Read 2 (hit), read 6 (admitted, evicts 3: clean).
    #[test]
    fn dirty_blocks_are_written_back_when_they_are_evicted() {
        fn run(mut account: Account<impl BlockSet<u32>>) -> Counts {
            let admit = |evicted| Outcome::Admit { evicted };
            account.record(1, Op::Read, &admit(None));
            account.record(1, Op::Write, &Outcome::Hit);
            account.record(2, Op::Write, &admit(None));
            account.record(3, Op::Read, &admit(Some(1)));
            account.record(4, Op::Write, &Outcome::Bypass);
            account.record(5, Op::Read, &Outcome::Bypass);
            account.record(2, Op::Read, &Outcome::Hit);
            account.record(6, Op::Read, &admit(Some(3)));
            assert_eq!(account.dirty_blocks(), 1);
            account.remove(2);
            account.remove(6);
            assert_eq!(account.dirty_blocks(), 0);
            *account.counts()
        }
        let counts = run(Account::new(Bits::new(7)));
        assert_eq!(counts, run(Account::new(Hashes::default())));
        assert_eq!(counts, Counts { hits: [1, 1], admissions: [3, 1], bypasses: [1, 1], written_back: 1 });
        let traffic = counts.traffic(10);
        // 2 and 4 of the 5 reads, 1 and 2 of the writes; the cache takes 3 read misses and 2 writes.
        assert_eq!((traffic.read_hits, traffic.read_misses), (10.0, 40.0));
        assert_eq!((traffic.cached_writes, traffic.bypassed_writes), (20.0, 10.0));
        assert_eq!((traffic.cache_written, traffic.storage_written), (50.0, 20.0));
        assert_eq!(counts.hit_ratio(), 2.0 / 8.0);
    }
}
