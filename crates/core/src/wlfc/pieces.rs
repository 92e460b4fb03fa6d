//! Division of requests at the borders of backend buckets and blocks.

use std::ops::Range;

use super::config::Config;
use crate::cache::Request;
use crate::format::BLOCK_BYTES;

/// Bytes of a block.
pub(super) const BLOCK: u64 = BLOCK_BYTES as u64;

/// Returns the parts of a request, one per backend bucket.
#[inline]
pub(super) fn pieces(request: &Request, bucket_blocks: u32) -> impl Iterator<Item = Piece> + use<> {
    let (mut offset, end) = (request.offset, request.offset + request.length);
    let bucket_bytes = u64::from(bucket_blocks) * BLOCK;
    std::iter::from_fn(move || {
        if offset >= end {
            return None;
        }
        let backend = offset / bucket_bytes;
        let stop = ((backend + 1) * bucket_bytes).min(end);
        let piece = Piece::new(backend as u32, offset, (stop - offset) as u32, bucket_blocks);
        offset = stop;
        Some(piece)
    })
}

/// Returns the runs that remain of `blocks` blocks without the given ones, which are ascending: the start and length of
/// each run.
pub(super) fn runs_without(blocks: u32, without: impl Iterator<Item = u32>) -> impl Iterator<Item = (u32, u32)> {
    let mut from = 0;
    without.chain([blocks]).filter_map(move |end| {
        let run = (from, end - from);
        from = end + 1;
        (run.1 > 0).then_some(run)
    })
}

/// Bytes within a backend bucket, and the blocks that they touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub backend: u32,
    /// The first block, within the backend bucket.
    pub at: u32,
    pub blocks: u32,
    /// The first byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u32,
}

impl Piece {
    #[inline]
    fn new(backend: u32, offset: u64, length: u32, bucket_blocks: u32) -> Piece {
        let (first, end) = (offset / BLOCK, (offset + u64::from(length)).div_ceil(BLOCK));
        let at = (first - u64::from(backend) * u64::from(bucket_blocks)) as u32;
        Piece { backend, at, blocks: (end - first) as u32, offset, length }
    }

    /// Returns its blocks in the volume.
    #[inline]
    pub fn block_range(&self, config: &Config) -> Range<u64> {
        let first = self.block(config);
        first..first + u64::from(self.blocks)
    }

    /// Returns its first block in the volume.
    #[inline]
    pub fn block(&self, config: &Config) -> u64 {
        u64::from(self.backend) * u64::from(config.bucket_blocks) + u64::from(self.at)
    }

    /// True for the first and the last block, respectively, if it is partial.
    #[inline]
    pub fn is_cut(&self) -> (bool, bool) {
        let end = self.offset + u64::from(self.length);
        (!self.offset.is_multiple_of(BLOCK), !end.is_multiple_of(BLOCK))
    }

    /// True if all its blocks are whole.
    #[inline]
    pub fn is_whole(&self) -> bool {
        self.is_cut() == (false, false)
    }

    /// Returns the part from `start` to `end`, which must lie in it.
    fn part(&self, start: u64, end: u64) -> Piece {
        let (first, stop) = (start / BLOCK, end.div_ceil(BLOCK));
        let at = self.at + (first - self.offset / BLOCK) as u32;
        Piece { at, blocks: (stop - first) as u32, offset: start, length: (end - start) as u32, ..*self }
    }

    /// Returns its whole blocks, if any.
    pub fn whole_blocks(&self) -> Option<Piece> {
        let end = self.offset + u64::from(self.length);
        let (start, end) = (self.offset.next_multiple_of(BLOCK), end / BLOCK * BLOCK);
        (start < end).then(|| self.part(start, end))
    }

    /// Returns the partial first block, the whole blocks and the partial last block, as far as they exist.
    pub fn parts(&self) -> impl Iterator<Item = Piece> + use<> {
        let (start, end) = (self.offset, self.offset + u64::from(self.length));
        let bounds = match self.whole_blocks() {
            Some(inner) => [start, inner.offset, inner.offset + u64::from(inner.length), end],
            // There are only partial blocks: one, or two.
            None => [start, start.next_multiple_of(BLOCK).clamp(start, end), end, end],
        };
        let piece = *self;
        (0..3)
            .map(move |part| (bounds[part], bounds[part + 1]))
            .filter(|(start, end)| start < end)
            .map(move |(start, end)| piece.part(start, end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Kind;

    #[test]
    fn requests_are_cut_at_buckets_and_zeroes_at_blocks() {
        let request = Request::whole(Kind::Write, 7 * BLOCK - 100, 2 * BLOCK + 200, false);
        let pieces: Vec<_> = pieces(&request, 8).collect();
        let of = |backend, at, blocks, offset, length| Piece { backend, at, blocks, offset, length };
        // Bytes 28,572 to 36,964: to the end of bucket 0 at 32,768, and beyond it.
        assert_eq!(pieces, [of(0, 6, 2, 28_572, 4196), of(1, 0, 2, 32_768, 4196)]);
        assert_eq!(pieces[0].parts().collect::<Vec<_>>(), [of(0, 6, 1, 28_572, 100), of(0, 7, 1, 28_672, 4096)]);
        assert_eq!(pieces[1].whole_blocks(), Some(of(1, 0, 1, 32_768, 4096)));
        let cut = of(0, 1, 2, BLOCK + 10, 4096);
        assert_eq!(cut.parts().collect::<Vec<_>>(), [of(0, 1, 1, 4106, 4086), of(0, 2, 1, 8192, 10)]);
        let inside = of(0, 1, 1, BLOCK + 10, 20);
        assert_eq!((inside.parts().collect::<Vec<_>>(), inside.whole_blocks()), (vec![inside], None));
    }

    #[test]
    fn runs_skip_excluded_blocks() {
        let runs = |without: &[u32]| runs_without(5, without.iter().copied()).collect::<Vec<_>>();
        assert_eq!(runs(&[]), [(0, 5)]);
        assert_eq!(runs(&[0, 3]), [(1, 2), (4, 1)]);
        assert_eq!(runs(&[1, 2, 4]), [(0, 1), (3, 1)]);
        assert_eq!(runs(&[0, 1, 2, 3, 4]), []);
    }
}
