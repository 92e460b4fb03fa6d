//! Numbers the blocks of a trace once, in order of first appearance, so that policies index arrays and hash nothing.

use std::hash::BuildHasher;

use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;

/// Bits of a [`BlockAddress`] that number the block within its volume.
pub const BLOCK_BITS: u32 = 48;
/// Volumes that a trace can have.
pub const VOLUMES_MAX: u64 = 1 << (64 - BLOCK_BITS);
/// Different blocks that a trace can have: ids are signed 32-bit numbers in the file, since not every reader of Arrow takes
/// unsigned dictionary indices.
pub const BLOCKS_MAX: u64 = i32::MAX as u64;

/// A block of a volume: the volume's number in the upper 16 bits, the block's number within the volume in the lower 48.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockAddress(pub u64);

impl BlockAddress {
    /// The block `block` of volume `volume`; `None` where either is out of range.
    pub fn new(volume: u32, block: u64) -> Option<Self> {
        let fits = u64::from(volume) < VOLUMES_MAX && block < 1 << BLOCK_BITS;
        fits.then_some(BlockAddress(u64::from(volume) << BLOCK_BITS | block))
    }

    /// The number of the volume.
    pub fn volume(self) -> u32 {
        (self.0 >> BLOCK_BITS) as u32
    }

    /// The number of the block within its volume.
    pub fn block(self) -> u64 {
        self.0 & ((1 << BLOCK_BITS) - 1)
    }
}

/// The ids of block addresses. Memory: 13 to 28 bytes per block.
#[derive(Clone, Debug, Default)]
pub struct Numbering {
    addresses: Vec<u64>,
    ids: HashTable<u32>,
    /// The id given last; the blocks of a sequential request mostly have consecutive ids.
    last: u32,
}

impl Numbering {
    /// The id of the block at `address`, a new one if it has none yet. The caller sees to it that no more than [`BLOCKS_MAX`]
    /// are numbered.
    #[inline]
    pub fn id(&mut self, address: BlockAddress) -> u32 {
        let guess = self.last.wrapping_add(1);
        if self.addresses.get(guess as usize) == Some(&address.0) {
            self.last = guess;
            return guess;
        }
        let Numbering { addresses, ids, .. } = self;
        let hash = FxBuildHasher.hash_one(address.0);
        let same = |&id: &u32| addresses[id as usize] == address.0;
        let id = match ids.find(hash, same) {
            Some(&id) => id,
            None => {
                let id = addresses.len() as u32;
                addresses.push(address.0);
                ids.insert_unique(hash, id, |&id| FxBuildHasher.hash_one(addresses[id as usize]));
                id
            }
        };
        self.last = id;
        id
    }

    /// Number of blocks with an id.
    pub fn len(&self) -> usize {
        self.addresses.len()
    }

    /// Whether no block has an id yet.
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }

    /// The address of each block, by id.
    pub fn into_addresses(self) -> Vec<u64> {
        self.addresses
    }
}
