//! Splits a request to a logical disk into pieces that are contiguous in the pool.

use super::CHUNK_BYTES;
use super::map::Entry;
use crate::disk::ALIGNMENT;
use crate::export::Request;

/// Contiguous bytes of a request: the place in the pool, if any, the offset in the request, and the length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub place: Option<u64>,
    /// True if the content is lost.
    pub lost: bool,
    pub at: u64,
    pub length: u64,
}

/// Splits a request into contiguous pieces. `entries` are the entries of its chunks.
pub(super) fn cut(request: &Request, entries: &[Entry], pieces: &mut Vec<Piece>) {
    let first = request.offset / CHUNK_BYTES;
    let end = request.offset + request.length;
    for (number, entry) in (first..).zip(entries) {
        let from = request.offset.max(number * CHUNK_BYTES);
        let length = end.min((number + 1) * CHUNK_BYTES) - from;
        let place = entry.written().map(|chunk| u64::from(chunk) * CHUNK_BYTES + from % CHUNK_BYTES);
        let lost = entry.is_lost();
        match pieces.last_mut() {
            Some(last) if last.place.is_none() && place.is_none() && last.lost == lost => last.length += length,
            Some(last) if last.place.is_some_and(|last_place| Some(last_place + last.length) == place) => {
                last.length += length;
            }
            _ => pieces.push(Piece { place, lost, at: from - request.offset, length }),
        }
    }
}

/// True if a request covers a whole chunk.
pub(super) fn covers(request: &Request, chunk: u64) -> bool {
    request.offset <= chunk * CHUNK_BYTES && (chunk + 1) * CHUNK_BYTES <= request.offset + request.length
}

/// Converts a piece of a request into a request to the cache.
pub(super) fn part(request: &Request, place: u64, piece: &Piece) -> Request {
    let bytes = piece.at as usize..(piece.at + piece.length) as usize;
    Request {
        operation: request.operation,
        offset: place,
        length: piece.length,
        force_unit_access: request.force_unit_access,
        data: request.data.get(bytes).unwrap_or_default().to_vec(),
        caching: request.caching,
    }
}

/// Returns the whole of the new chunks, as offsets in the pool and lengths.
pub(super) fn whole(new: &[(usize, u32)]) -> Vec<(u64, u64)> {
    let mut zeroes: Vec<(u64, u64)> = Vec::new();
    for &(_, chunk) in new {
        let place = u64::from(chunk) * CHUNK_BYTES;
        match zeroes.last_mut() {
            Some((start, length)) if *start + *length == place => *length += CHUNK_BYTES,
            _ => zeroes.push((place, CHUNK_BYTES)),
        }
    }
    zeroes
}

/// Returns the ranges of new chunks to zero around a write, as offsets in the pool and lengths. They include every
/// block that the write covers only in part.
pub(super) fn uncovered(request: &Request, new: &[(usize, u32)], first: usize) -> Vec<(u64, u64)> {
    const BLOCK: u64 = ALIGNMENT as u64;
    let end = request.offset + request.length;
    let last = (end - 1) / CHUNK_BYTES;
    let mut zeroes = Vec::new();
    for &(at, chunk) in new {
        let (start, place) = (at as u64 * CHUNK_BYTES, u64::from(chunk) * CHUNK_BYTES);
        let head = if at == first { (request.offset - start).next_multiple_of(BLOCK).min(CHUNK_BYTES) } else { 0 };
        let tail = if at as u64 == last { (end - start) / BLOCK * BLOCK } else { CHUNK_BYTES };
        if tail <= head && (head > 0 || tail < CHUNK_BYTES) {
            zeroes.push((place, CHUNK_BYTES));
            continue;
        }
        if head > 0 {
            zeroes.push((place, head));
        }
        if tail < CHUNK_BYTES {
            zeroes.push((place + tail, CHUNK_BYTES - tail));
        }
    }
    zeroes
}

#[cfg(test)]
mod tests {
    use flashwise_core::filter::Caching;

    use super::*;
    use crate::export::Operation;

    const CHUNK: u64 = CHUNK_BYTES;

    fn write(offset: u64, length: u64) -> Request {
        Request {
            operation: Operation::Write,
            offset,
            length,
            force_unit_access: false,
            data: Vec::new(),
            caching: Caching::Usual,
        }
    }

    #[test]
    fn a_request_is_cut_where_its_chunks_do_not_follow_one_another() {
        let (nothing, lost) = (Entry::default(), Entry::LOST);
        let entries = [Entry::at(5, true), Entry::at(6, true), nothing, Entry::at(9, false), lost, Entry::at(2, true)];
        let mut pieces = Vec::new();
        cut(&write(512, 6 * CHUNK - 1024), &entries, &mut pieces);
        let piece = |place, at, length| Piece { place, lost: false, at, length };
        let expected = [
            piece(Some(5 * CHUNK + 512), 0, 2 * CHUNK - 512),
            piece(None, 2 * CHUNK - 512, 2 * CHUNK),
            Piece { lost: true, ..piece(None, 4 * CHUNK - 512, CHUNK) },
            piece(Some(2 * CHUNK), 5 * CHUNK - 512, CHUNK - 512),
        ];
        assert_eq!(pieces, expected);
    }

    #[test]
    fn a_first_write_zeroes_the_rest_of_its_chunks_in_whole_blocks() {
        let zeroes = |offset, length, new: &[(usize, u32)]| uncovered(&write(offset, length), new, new[0].0);
        assert_eq!(zeroes(3 * CHUNK, CHUNK, &[(3, 7)]), []);
        assert_eq!(zeroes(0, 4096, &[(0, 7)]), [(7 * CHUNK + 4096, CHUNK - 4096)]);
        // A write of half of block 1: the whole block is zeroed first.
        assert_eq!(zeroes(4096, 512, &[(0, 7)]), [(7 * CHUNK, CHUNK)]);
        assert_eq!(zeroes(512, 8192, &[(0, 7)]), [(7 * CHUNK, 4096), (7 * CHUNK + 8192, CHUNK - 8192)]);
        let over_three = zeroes(CHUNK - 4096, CHUNK + 8192, &[(0, 7), (1, 9), (2, 4)]);
        assert_eq!(over_three, [(7 * CHUNK, CHUNK - 4096), (4 * CHUNK + 4096, CHUNK - 4096)]);
    }
}
