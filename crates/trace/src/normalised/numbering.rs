//! Numbers the blocks of a trace once, in order of first appearance, so that policies index arrays instead of hashing.

use flashwise_core::prefetch::prefetch;

/// The number of bits of a [`BlockAddress`] for the block within its volume.
pub const BLOCK_BITS: u32 = 48;
/// The maximum number of volumes of a trace.
pub const VOLUMES_MAX: u64 = 1 << (64 - BLOCK_BITS);
/// The maximum number of distinct blocks of a trace. Ids are signed 32-bit numbers in the file, since not every reader
/// of Arrow accepts unsigned dictionary indices.
pub const BLOCKS_MAX: u64 = i32::MAX as u64;

/// A block of a volume: the volume's number in the upper 16 bits, the block's number within the volume in the lower 48.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockAddress(pub u64);

impl BlockAddress {
    /// Returns the address of block `block` of volume `volume`; `None` if either is out of range.
    pub fn new(volume: u32, block: u64) -> Option<Self> {
        let fits = u64::from(volume) < VOLUMES_MAX && block < 1 << BLOCK_BITS;
        fits.then_some(BlockAddress(u64::from(volume) << BLOCK_BITS | block))
    }

    /// Returns the number of the volume.
    pub fn volume(self) -> u32 {
        (self.0 >> BLOCK_BITS) as u32
    }

    /// Returns the number of the block within its volume.
    pub fn block(self) -> u64 {
        self.0 & ((1 << BLOCK_BITS) - 1)
    }
}

/// The ids of block addresses: a list of the addresses by id, and a hash table to ids with linear probing.
///
/// A slot holds an id in its lower half and part of the address's hash in its upper half. So a look-up reads one slot
/// and, for certainty, one address. Both are mostly cache misses; numbering many blocks at once prefetches them and is
/// several times faster than one after the other.
///
/// Memory per block: 8 bytes per slot, with 3/8 to 3/4 of the slots used. The list takes 8 to 16 bytes, since it grows
/// to twice its size. In total 19 to 37 bytes, and 45 while the list is copied.
#[derive(Clone, Debug, Default)]
pub struct Numbering {
    addresses: Vec<u64>,
    slots: Vec<u64>,
}

const EMPTY: u64 = u64::MAX;
const SLOTS_MIN: usize = 1 << 10;
/// The number of concurrent look-ups: enough to hide a cache miss, few enough to stay in the first-level cache.
const AHEAD: usize = 64;

#[inline]
fn hash(address: u64) -> u64 {
    // Fibonacci hashing alone leaves runs of addresses in the upper bits; folding first spreads volumes and strides.
    (address ^ (address >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Returns a slot's content: the half of the hash that does not determine its position, and the id. No id is
/// `u32::MAX`, so that no slot equals [`EMPTY`].
#[inline]
fn slot(hash: u64, id: u32) -> u64 {
    hash << 32 | u64::from(id)
}

impl Numbering {
    /// Returns the id of the block at `address`, a new one if it has none yet. The caller must not number more than
    /// 2^32 - 1 blocks.
    #[inline]
    pub fn id(&mut self, address: BlockAddress) -> u32 {
        self.id_of_hashed(address.0, hash(address.0))
    }

    /// Appends the ids of the blocks at `addresses` to `ids`.
    pub fn ids(&mut self, addresses: &[u64], ids: &mut Vec<i32>) {
        ids.reserve(addresses.len());
        let mut hashes = [0; AHEAD];
        let mut chunks = addresses.chunks(AHEAD);
        for chunk in &mut chunks {
            self.grow_for(chunk.len());
            for (hash_of, &address) in hashes.iter_mut().zip(chunk) {
                *hash_of = hash(address);
                prefetch(&self.slots, self.place(*hash_of));
            }
            for &hash in &hashes[..chunk.len()] {
                let found = self.slots[self.place(hash)];
                prefetch(&self.addresses, found as u32 as usize);
            }
            for (&hash, &address) in hashes.iter().zip(chunk) {
                ids.push(self.id_of_hashed(address, hash) as i32);
            }
        }
    }

    /// Returns the position where the search for a hash begins. The number of slots is a power of two.
    #[inline]
    fn place(&self, hash: u64) -> usize {
        (hash >> (64 - self.slots.len().trailing_zeros())) as usize
    }

    #[inline]
    fn id_of_hashed(&mut self, address: u64, hash: u64) -> u32 {
        self.grow_for(1);
        let mask = self.slots.len() - 1;
        let mut place = self.place(hash);
        loop {
            let found = self.slots[place];
            let id = found as u32;
            if found == slot(hash, id) && self.addresses.get(id as usize) == Some(&address) {
                return id;
            }
            if found == EMPTY {
                let id = self.addresses.len() as u32;
                assert!(id < u32::MAX, "ids are 32-bit numbers");
                self.addresses.push(address);
                self.slots[place] = slot(hash, id);
                return id;
            }
            place = (place + 1) & mask;
        }
    }

    /// Reserves space for `more` blocks: at most 3/4 of the slots are used.
    #[inline]
    fn grow_for(&mut self, more: usize) {
        if (self.addresses.len() + more) * 4 > self.slots.len() * 3 {
            self.grow();
        }
    }

    #[cold]
    fn grow(&mut self) {
        let slots = (2 * self.slots.len()).max(SLOTS_MIN);
        self.slots = Vec::new();
        self.slots.resize(slots, EMPTY);
        let mask = slots - 1;
        for (id, &address) in self.addresses.iter().enumerate() {
            let hash = hash(address);
            let mut place = self.place(hash);
            while self.slots[place] != EMPTY {
                place = (place + 1) & mask;
            }
            self.slots[place] = slot(hash, id as u32);
        }
    }

    /// Returns the number of blocks with an id.
    pub fn len(&self) -> usize {
        self.addresses.len()
    }

    /// True if no block has an id yet.
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }

    /// Returns the address of each block, by id.
    pub fn into_addresses(self) -> Vec<u64> {
        self.addresses
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn blocks_are_numbered_in_order_of_first_appearance_one_by_one_or_many_at_once() {
        let mut known = HashMap::new();
        let mut random = 1_u64;
        let mut addresses = Vec::new();
        for at in 0..100_000_u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Sequences, strides, two volumes, hashes, and 0 and the greatest address.
            let address =
                [at, at * 4096, at % 1000, (1 << 48) + at % 5000, random, u64::from(at % 2 == 0).wrapping_neg()];
            addresses.extend(address);
        }
        let expected: Vec<_> = addresses
            .iter()
            .map(|&address| {
                let next = known.len() as i32;
                *known.entry(address).or_insert(next)
            })
            .collect();
        let mut numbering = Numbering::default();
        let one_by_one: Vec<_> = addresses.iter().map(|&address| numbering.id(BlockAddress(address)) as i32).collect();
        assert!(one_by_one == expected);
        let mut numbering = Numbering::default();
        let mut ids = Vec::new();
        for some in addresses.chunks(1001) {
            numbering.ids(some, &mut ids);
        }
        assert!(ids == expected);
        assert_eq!(numbering.len(), known.len());
        assert!(numbering.into_addresses().iter().enumerate().all(|(id, address)| known[address] == id as i32));
    }

    #[test]
    fn memory_is_bounded_by_the_blocks() {
        let mut numbering = Numbering::default();
        for block in 0..1_000_000 {
            numbering.id(BlockAddress(block));
            let bytes = 8 * (numbering.slots.len() + numbering.addresses.capacity());
            assert!(block < 10_000 || bytes < 48 * numbering.len(), "{bytes} bytes for {block} blocks");
        }
    }
}
