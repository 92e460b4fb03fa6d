//! Objects of traces without addresses: an object is one block, regardless of its size.
//!
//! The block number of an object is its id. Longer ids (2^48 and more; less only for blocks above 64 KiB) are hashes:
//! they are hashed again to 48 bits. Of n such objects, about n^2 / 2^49 share a block: 0.2 of ten million.

use flashwise_core::access::Op;

use crate::normalised::numbering::BLOCK_BITS;
use crate::request::{Request, Volumes};

/// Assigns blocks to objects.
#[derive(Debug)]
pub struct Objects {
    block_size_bytes: u64,
    /// The number of bits of a block number.
    block_bits: u32,
}

impl Objects {
    /// Creates an assignment in blocks of `block_size_bytes`.
    pub fn new(block_size_bytes: u64) -> Self {
        let block_bits = BLOCK_BITS.min((u64::MAX / block_size_bytes).ilog2());
        Objects { block_size_bytes, block_bits }
    }

    /// Returns a request of the object `id`.
    #[inline]
    pub fn request(&self, time_us: i64, op: Op, id: u64, volumes: &mut Volumes) -> Request {
        let (offset_bytes, length_bytes) = (self.block(id) * self.block_size_bytes, self.block_size_bytes);
        Request { time_us, op, volume: volumes.only(), offset_bytes, length_bytes }
    }

    #[inline]
    fn block(&self, id: u64) -> u64 {
        if id >> self.block_bits == 0 { id } else { mixed(id) >> (64 - self.block_bits) }
    }
}

/// Mixes `id`, so that each bit of the result depends on all bits: the last step of SplitMix64.
pub fn mixed(id: u64) -> u64 {
    let id = (id ^ (id >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let id = (id ^ (id >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    id ^ (id >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_ids_fit_any_block_size() {
        for block_size_bytes in [512, 4096, 1 << 20] {
            let objects = Objects::new(block_size_bytes);
            for id in [0, (1 << 44) - 1, 1 << 48, u64::MAX] {
                let block = objects.block(id);
                assert!(block < 1 << BLOCK_BITS && block.checked_mul(block_size_bytes).is_some());
            }
            assert_ne!(objects.block(u64::MAX), objects.block(u64::MAX - 1));
        }
        assert_eq!(Objects::new(4096).block((1 << 48) - 1), (1 << 48) - 1);
    }
}
