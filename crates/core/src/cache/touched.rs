//! The regions of the backend with blocks known to a cache: a bit each. A trim of terabytes skips all others.

use std::ops::Range;

/// Blocks of a region.
const REGION_BLOCKS: u32 = 256;

/// Regions in which a request touched a block since the start, or the flash held one then.
#[derive(Debug, Default)]
pub(super) struct Touched {
    /// Regions behind the last bit are untouched.
    bits: Vec<u64>,
}

impl Touched {
    /// Adds blocks.
    pub fn add(&mut self, blocks: Range<u32>) {
        for region in (blocks.start / REGION_BLOCKS) as usize..blocks.end.div_ceil(REGION_BLOCKS) as usize {
            if region / 64 >= self.bits.len() {
                self.bits.resize(region / 64 + 1, 0);
            }
            self.bits[region / 64] |= 1 << (region % 64);
        }
    }

    /// Returns the next of `blocks` that are in a touched region.
    pub fn next(&self, blocks: Range<u32>) -> Option<Range<u32>> {
        let mut region = (blocks.start / REGION_BLOCKS) as usize;
        loop {
            let word = self.bits.get(region / 64)? >> (region % 64);
            if word != 0 {
                region += word.trailing_zeros() as usize;
                break;
            }
            region = (region / 64 + 1) * 64;
        }
        let start = u64::from(blocks.start).max(region as u64 * u64::from(REGION_BLOCKS));
        let end = u64::from(blocks.end).min((region as u64 + 1) * u64::from(REGION_BLOCKS));
        (start < end).then_some(start as u32..end as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touched_regions_are_found_in_order() {
        let mut touched = Touched::default();
        assert_eq!(touched.next(0..u32::MAX), None);
        for blocks in [100_000..100_001, 300..511, u32::MAX - 1..u32::MAX] {
            touched.add(blocks);
        }
        assert_eq!(touched.next(0..u32::MAX), Some(256..512));
        assert_eq!(touched.next(400..u32::MAX), Some(400..512));
        assert_eq!(touched.next(300..310), Some(300..310));
        assert_eq!(touched.next(512..u32::MAX), Some(99_840..100_096));
        assert_eq!(touched.next(512..99_840), None);
        assert_eq!(touched.next(u32::MAX - 1..u32::MAX), Some(u32::MAX - 1..u32::MAX));
    }
}
