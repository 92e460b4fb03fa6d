//! A request to the cache, and the division of a client's request into pieces that are planned one by one.
//!
//! Source: our own. The server and the simulator use the same division, so the same requests lead to the same steps.

use std::ops::Range;

use super::{PIECE_BLOCKS, ZERO_PIECE_BLOCKS};
use crate::filter::Caching;
use crate::format::BLOCK_BYTES;

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads bytes.
    Read,
    /// Writes bytes.
    Write,
    /// Makes acknowledged writes durable.
    Flush,
    /// Discards bytes.
    Trim,
    /// Zeroes bytes.
    WriteZeroes {
        /// True if the backend may deallocate them.
        may_punch_holes: bool,
    },
    /// Reads bytes without a client.
    Prefetch,
}

/// A request to a cache, or a piece of one. Pieces of reads, writes and prefetches touch at most [`PIECE_BLOCKS`]
/// blocks, those of trims and zeroing [`ZERO_PIECE_BLOCKS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The kind of request.
    pub kind: Kind,
    /// The first byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// Length in bytes of the client's request that this is a piece of.
    pub whole_length: u64,
    /// True if the change must be durable before the reply.
    pub durable: bool,
    /// True for the last piece of the client's request, whose reply waits for durability.
    pub last: bool,
    /// The I/O filter's treatment of the client.
    pub caching: Caching,
}

impl Kind {
    /// Returns the maximum number of blocks of a piece.
    fn piece_blocks(self) -> u32 {
        match self {
            Kind::Read | Kind::Write | Kind::Prefetch => PIECE_BLOCKS,
            Kind::Flush => 1,
            Kind::Trim | Kind::WriteZeroes { .. } => ZERO_PIECE_BLOCKS,
        }
    }
}

impl Request {
    /// Returns the blocks that it touches.
    pub fn blocks(&self) -> Range<u32> {
        let (block_bytes, end) = (BLOCK_BYTES as u64, self.offset + self.length);
        let number = |block: u64| u32::try_from(block).expect("a volume has fewer than 2^32 blocks");
        number(self.offset / block_bytes)..number(end.div_ceil(block_bytes))
    }

    /// Returns a client's undivided request, with the usual treatment by the I/O filter.
    pub fn whole(kind: Kind, offset: u64, length: u64, durable: bool) -> Request {
        Request { kind, offset, length, whole_length: length, durable, last: true, caching: Caching::Usual }
    }

    /// Returns the pieces of a client's request for `length` bytes from `offset`, in order; at least one. They end at
    /// multiples of their maximum size, so no block is split.
    pub fn pieces(kind: Kind, offset: u64, length: u64, durable: bool) -> Pieces {
        Pieces {
            kind,
            durable,
            at: offset,
            end: offset + length,
            whole_length: length,
            caching: Caching::Usual,
            ended: false,
        }
    }
}

/// The iterator of [`Request::pieces`].
#[derive(Clone, Debug)]
pub struct Pieces {
    kind: Kind,
    durable: bool,
    at: u64,
    end: u64,
    whole_length: u64,
    caching: Caching,
    ended: bool,
}

impl Pieces {
    /// Sets the I/O filter's treatment of the client.
    pub fn of_client(self, caching: Caching) -> Pieces {
        Pieces { caching, ..self }
    }
}

impl Iterator for Pieces {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        if self.ended {
            return None;
        }
        let piece_bytes = u64::from(self.kind.piece_blocks()) * BLOCK_BYTES as u64;
        let stop = ((self.at / piece_bytes + 1) * piece_bytes).min(self.end);
        let piece = Request {
            kind: self.kind,
            offset: self.at,
            length: stop - self.at,
            whole_length: self.whole_length,
            durable: self.durable,
            last: stop == self.end,
            caching: self.caching,
        };
        self.at = stop;
        self.ended = piece.last;
        Some(piece)
    }
}

/// The bytes of one block that a request touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockPart {
    pub(super) block: u32,
    pub(super) at: u16,
    pub(super) length: u16,
    /// Their position in the request's bytes.
    pub(super) from: u32,
}

impl BlockPart {
    pub(super) fn is_whole(&self) -> bool {
        usize::from(self.length) == BLOCK_BYTES
    }
}

/// Returns the parts of a request for `length` bytes from `offset`, in order.
pub(super) fn parts(offset: u64, length: u64) -> impl Iterator<Item = BlockPart> {
    let block_bytes = BLOCK_BYTES as u64;
    let end = offset + length;
    let blocks = offset / block_bytes..end.div_ceil(block_bytes);
    blocks.map(move |block| {
        let (start, stop) = ((block * block_bytes).max(offset), ((block + 1) * block_bytes).min(end));
        BlockPart {
            block: u32::try_from(block).expect("a volume has fewer than 2^32 blocks"),
            at: (start % block_bytes) as u16,
            length: (stop - start) as u16,
            from: (start - offset) as u32,
        }
    })
}

/// Returns the partial blocks: the first, the last or both.
pub(super) fn edges(offset: u64, length: u64) -> Vec<BlockPart> {
    let block_bytes = BLOCK_BYTES as u64;
    let (end, first_bytes) = (offset + length, length.min(block_bytes - offset % block_bytes));
    let last = (end / block_bytes * block_bytes).max(offset + first_bytes);
    let behind = |part: BlockPart| BlockPart { from: (last - offset) as u32, ..part };
    let edges = parts(offset, first_bytes).chain(parts(last, end - last).map(behind));
    edges.filter(|part| part.length > 0 && !part.is_whole()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(kind: Kind, offset: u64, length: u64) -> Vec<(u64, u64, bool)> {
        Request::pieces(kind, offset, length, false).map(|piece| (piece.offset, piece.length, piece.last)).collect()
    }

    /// Pieces of 64 blocks: 262,144 bytes.
    #[test]
    fn pieces_end_at_multiples_of_their_size_and_the_last_one_is_marked() {
        assert_eq!(ranges(Kind::Read, 512, 4096), [(512, 4096, true)]);
        assert_eq!(ranges(Kind::Write, 0, 262_144), [(0, 262_144, true)]);
        let expected = [(262_143, 1, false), (262_144, 262_144, false), (524_288, 1, true)];
        assert_eq!(ranges(Kind::Read, 262_143, 262_146), expected);
        assert_eq!(ranges(Kind::Trim, 1, 67_108_864), [(1, 67_108_863, false), (67_108_864, 1, true)]);
    }

    #[test]
    fn a_flush_is_one_piece_without_bytes() {
        assert_eq!(ranges(Kind::Flush, 0, 0), [(0, 0, true)]);
    }

    #[test]
    fn edges_are_the_parts_that_are_less_than_a_block() {
        for offset in [0, 1, 4095, 4096, 4100, 8192] {
            for length in [1, 100, 4095, 4096, 4097, 8191, 8192, 8200, 20_000] {
                let expected: Vec<BlockPart> = parts(offset, length).filter(|part| !part.is_whole()).collect();
                assert_eq!(edges(offset, length), expected, "{length} bytes from {offset}");
            }
        }
    }
}
