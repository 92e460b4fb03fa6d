//! Sequential streams: detects requests that belong to a long run through consecutive blocks, such as a backup or a
//! copy. A disk serves these well, and they would only flush a cache.
//!
//! Source: the I/O filter of Flashcache, as in LARC (Huang et al., MSST 2013), section V.A, which only names it. Like
//! Flashcache this tracks a few streams, replaces the least recently continued one, and treats a request that continues
//! none as the start of another.
//!
//! Choices beyond the source:
//! - A request continues a stream of the same op if it starts within 16 blocks of the stream's end and ends beyond it.
//!   Readers skip metadata, and log writers rewrite their last block. Only the added blocks count, not skipped or
//!   overlapping ones, but a run is at least as long as its last request.
//! - A request that starts and ends within the last 16 blocks of a stream repeats a recent read or write, so it should
//!   be cached. It belongs to no stream, and neither continues nor starts one.
//! - Any other step back, for instance to the start of a file, starts a new stream. So each repetition of a scan is a
//!   new stream.
//! - If a request continues two streams, it continues the one whose end is nearer to its start; among equals, the one
//!   continued last.

use crate::access::Op;

/// Default number of tracked streams, as in Flashcache. Every random request starts one, so a stream is lost if this
/// many random requests come between two of its own.
pub const STREAMS_DEFAULT: usize = 32;

/// Maximum distance between a stream's end and the start of a request that continues it.
const REACH_BLOCKS: u64 = 16;

#[derive(Clone, Copy, Debug)]
struct Stream {
    /// The block after its last.
    end: u64,
    /// Number of blocks in its requests, each once.
    run_blocks: u64,
    /// The number of the request that continued it last.
    continued_last: u64,
    op: Op,
}

/// The tracked streams.
///
/// Memory: 32 bytes per stream. A random request scans them twice: 40 ns for 32 of them.
#[derive(Clone, Debug)]
pub struct Streams {
    threshold_blocks: u64,
    streams_max: usize,
    requests: u64,
    streams: Vec<Stream>,
}

impl Streams {
    /// Tracks up to `streams_max` streams, at least one, and reports those with runs of `threshold_blocks`; 0 disables
    /// it.
    pub fn new(threshold_blocks: u64, streams_max: usize) -> Self {
        assert!(streams_max > 0, "at least one stream is followed");
        Streams { threshold_blocks, streams_max, requests: 0, streams: Vec::with_capacity(streams_max) }
    }

    /// Processes the next request. Returns true if its stream has reached the threshold, this request included.
    pub fn observe(&mut self, offset_blocks: u64, length_blocks: u64, op: Op) -> bool {
        if self.threshold_blocks == 0 || length_blocks == 0 {
            return false;
        }
        self.requests += 1;
        let end = offset_blocks.saturating_add(length_blocks);
        let near = |stream: &Stream| stream.end.abs_diff(offset_blocks) <= REACH_BLOCKS && stream.op == op;
        let (mut continued, mut repeated): (Option<&mut Stream>, bool) = (None, false);
        for stream in self.streams.iter_mut().filter(|stream| near(stream)) {
            let rank = |stream: &Stream| (stream.end.abs_diff(offset_blocks), u64::MAX - stream.continued_last);
            if end <= stream.end {
                repeated = true;
            } else if continued.as_ref().is_none_or(|other| rank(stream) < rank(other)) {
                continued = Some(stream);
            }
        }
        let run_blocks = match continued {
            Some(stream) => {
                let added_blocks = end - offset_blocks.max(stream.end);
                stream.run_blocks = (stream.run_blocks + added_blocks).max(end - offset_blocks);
                stream.end = end;
                stream.continued_last = self.requests;
                stream.run_blocks
            }
            None if repeated => return false,
            None => {
                self.start(Stream { end, run_blocks: end - offset_blocks, continued_last: self.requests, op });
                end - offset_blocks
            }
        };
        run_blocks >= self.threshold_blocks
    }

    /// Tracks `stream` in place of the least recently continued one.
    fn start(&mut self, stream: Stream) {
        if self.streams.len() < self.streams_max {
            self.streams.push(stream);
        } else if let Some(oldest) = self.streams.iter_mut().min_by_key(|stream| stream.continued_last) {
            *oldest = stream;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Op::{Read, Write};

    /// Returns the results for a sequence of requests, each an offset and a length.
    fn reads(streams: &mut Streams, requests: &[(u64, u64)]) -> Vec<bool> {
        requests.iter().map(|&(offset, length)| streams.observe(offset, length, Read)).collect()
    }

    const NO: bool = false;
    const YES: bool = true;

    /// Runs of 8, 16, 24 and 32 blocks.
    #[test]
    fn the_request_that_makes_the_threshold_belongs_to_the_stream_and_so_do_all_after_it() {
        let found = reads(&mut Streams::new(24, 4), &[(100, 8), (108, 8), (116, 8), (124, 8), (500, 8)]);
        assert_eq!(found, [NO, NO, YES, YES, NO]);
        assert_eq!(reads(&mut Streams::new(24, 4), &[(100, 24)]), [YES], "one long request is a stream");
        assert_eq!(reads(&mut Streams::new(24, 4), &[(100, 23), (123, 1)]), [NO, YES]);
    }

    #[test]
    fn a_threshold_of_0_and_requests_without_blocks_are_no_stream() {
        assert_eq!(reads(&mut Streams::new(0, 4), &[(0, 1000), (1000, 1000)]), [NO, NO]);
        assert_eq!(reads(&mut Streams::new(1, 4), &[(0, 0), (0, 1), (1, 0)]), [NO, YES, NO]);
    }

    #[test]
    fn mixed_streams_are_distinguished() {
        let mut streams = Streams::new(3, 4);
        let found = reads(&mut streams, &[(0, 1), (1000, 1), (1, 1), (1001, 1), (2, 1), (7, 1), (1002, 1), (8000, 1)]);
        // 7 continues the first stream, after a gap of 4 blocks.
        assert_eq!(found, [NO, NO, NO, NO, YES, YES, YES, NO]);
    }

    #[test]
    fn reads_and_writes_make_streams_of_their_own() {
        let mut streams = Streams::new(4, 4);
        let found = [(0, 2, Read), (2, 2, Write), (2, 2, Read), (4, 2, Write)]
            .map(|(offset, length, op)| streams.observe(offset, length, op));
        assert_eq!(found, [NO, NO, YES, YES]);
    }

    /// A stream that ends at 100, with a run of 10 blocks; the threshold is 20.
    #[test]
    fn gaps_and_overlaps_up_to_16_blocks_continue_a_stream_and_do_not_count() {
        let after = |request| reads(&mut Streams::new(20, 4), &[(90, 10), request])[1];
        assert_eq!([after((100, 9)), after((100, 10))], [NO, YES]);
        assert_eq!([after((116, 9)), after((116, 10))], [NO, YES], "a gap of 16");
        assert_eq!([after((117, 10)), after((117, 19))], [NO, NO], "a gap of 17 starts another stream");
        assert_eq!([after((84, 25)), after((84, 26))], [YES, YES], "a long request is a stream whatever it overlaps");
        assert_eq!([after((95, 14)), after((95, 15))], [NO, YES], "an overlap of 5");
        assert_eq!([after((84, 17)), after((83, 18))], [NO, NO]);
    }

    /// A log whose writes each complete a block and start the next: 2, 3, 4, ... blocks.
    #[test]
    fn a_log_that_writes_its_last_block_again_is_a_stream() {
        let mut streams = Streams::new(4, 4);
        let found: Vec<_> = (0..4).map(|block| streams.observe(block, 2, Write)).collect();
        assert_eq!(found, [NO, NO, YES, YES]);
    }

    #[test]
    fn a_repeat_at_the_end_of_a_stream_belongs_to_none_and_leaves_the_stream_as_it_is() {
        let mut streams = Streams::new(20, 2);
        let found = reads(&mut streams, &[(0, 20), (16, 4), (19, 1), (4, 16), (20, 1)]);
        assert_eq!(found, [YES, NO, NO, NO, YES]);
        // Repeats displace no stream: both are still tracked.
        let found = reads(&mut streams, &[(1000, 19), (1018, 1), (1018, 1), (1018, 1), (21, 1), (1019, 1)]);
        assert_eq!(found, [NO, NO, NO, NO, YES, YES]);
    }

    #[test]
    fn a_scan_repeated_from_its_start_is_a_stream_again() {
        let scan: Vec<_> = (0..10).map(|request| (request * 4, 4)).collect();
        let mut streams = Streams::new(20, 4);
        let expected = [[NO; 4].as_slice(), &[YES; 6]].concat();
        assert_eq!(reads(&mut streams, &scan), expected);
        // Its last requests pass the end of the first scan, and continue their own stream.
        assert_eq!(reads(&mut streams, &scan), expected);
    }

    #[test]
    fn the_stream_not_continued_for_longest_makes_room() {
        // Two streams at most. 0 is continued before 1000 starts, so 2000 replaces 1000.
        let mut streams = Streams::new(3, 2);
        let found = reads(&mut streams, &[(1000, 1), (0, 1), (1001, 1), (1, 1), (2000, 1), (2, 1), (1002, 1)]);
        assert_eq!(found, [NO, NO, NO, NO, NO, YES, NO]);
    }

    #[test]
    fn the_last_block_of_the_address_space_ends_a_stream() {
        let found = reads(&mut Streams::new(8, 4), &[(u64::MAX - 8, 4), (u64::MAX - 4, u64::MAX), (u64::MAX, 9)]);
        assert_eq!(found, [NO, YES, NO]);
    }
}
