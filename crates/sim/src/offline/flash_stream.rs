//! The accesses that pass an offline DRAM cache and reach the flash behind it.
//!
//! Source: Cheng et al., USENIX ATC 2016, section 5: "a small DRAM cache ... in front of the flash cache"; "the DRAM
//! cache uses the MIN eviction policy for offline flash cache algorithms".

use flashwise_core::access::{NEVER, Op};
use flashwise_core::positions::Positions;

use flashwise_trace::Trace;
use flashwise_trace::progress::Progress;

use crate::pace::may_end;

/// The bit of an entry that marks a write; block ids are smaller.
const WRITE: u32 = 1 << 31;

/// The accesses that reach the flash, in order: reads that miss the DRAM cache, and all writes.
#[derive(Debug)]
pub struct FlashStream {
    /// Block, and [`WRITE`] for a write.
    entries: Vec<u32>,
    /// The position of the block's next read in the stream before it is overwritten, or [`NEVER`].
    next_reads: Vec<u32>,
    /// A bit for each access of the trace: 1 if it hits in the DRAM cache.
    in_dram: Vec<u64>,
    unique_blocks: usize,
    /// Number of accesses in the warm-up.
    warmup: usize,
    reads: u64,
    writes: u64,
    ram_hits: u64,
}

impl FlashStream {
    /// Returns the stream behind a DRAM cache of `ram_blocks`, which may be 0, with MIN: it keeps the blocks that are
    /// read soonest. `next_reads` are those of `trace`; its first `warmup` accesses are not counted. `progress` may end
    /// it.
    pub fn behind_min(
        trace: &Trace,
        next_reads: &[u32],
        ram_blocks: usize,
        warmup: u64,
        progress: &dyn Progress,
    ) -> FlashStream {
        let mut stream = FlashStream {
            entries: Vec::new(),
            next_reads: Vec::new(),
            in_dram: vec![0; trace.len().div_ceil(64)],
            unique_blocks: trace.unique_blocks(),
            warmup: 0,
            reads: 0,
            writes: 0,
            ram_hits: 0,
        };
        // The position of its next read identifies a cached block, so nothing else is stored.
        let (mut cached, mut len) = (Positions::new(), 0);
        for (position, (block, op)) in trace.accesses().enumerate() {
            assert!(block < WRITE, "block ids have 31 bits");
            may_end(position, progress);
            let counted = u64::from(position as u64 >= warmup);
            let hit = ram_blocks > 0 && op == Op::Read && cached.remove(position as u32);
            len -= usize::from(hit);
            match op {
                Op::Read => stream.reads += counted,
                Op::Write => stream.writes += counted,
            }
            if hit {
                stream.ram_hits += counted;
                stream.in_dram[position / 64] |= 1 << (position % 64);
            } else {
                stream.warmup += usize::from(counted == 0);
                stream.entries.push(block | if op == Op::Write { WRITE } else { 0 });
            }
            let next_read = next_reads[position];
            if ram_blocks == 0 || next_read == NEVER {
                continue;
            }
            cached.insert(next_read);
            len += 1;
            if len > ram_blocks {
                let last = cached.greatest().expect("a cache that is too full is not empty");
                cached.remove(last);
                len -= 1;
            }
        }
        stream.find_next_reads(progress);
        stream
    }

    fn find_next_reads(&mut self, progress: &dyn Progress) {
        self.next_reads = vec![NEVER; self.entries.len()];
        let mut next_read_of = vec![NEVER; self.unique_blocks];
        for position in (0..self.entries.len()).rev() {
            may_end(position, progress);
            let before = if self.is_write(position) { NEVER } else { position as u32 };
            let next_read_of = &mut next_read_of[self.block(position) as usize];
            self.next_reads[position] = std::mem::replace(next_read_of, before);
        }
    }

    /// True if the access at `position` of the trace hits in the DRAM cache and is not in the stream.
    #[inline]
    pub fn is_in_dram(&self, position: u64) -> bool {
        self.in_dram[position as usize / 64] >> (position % 64) & 1 != 0
    }

    /// Number of accesses in the stream.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if the stream has no accesses, which requires an empty trace.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The block accessed at `position`.
    #[inline]
    pub fn block(&self, position: usize) -> u32 {
        self.entries[position] & !WRITE
    }

    /// True if the access at `position` is a write.
    #[inline]
    pub fn is_write(&self, position: usize) -> bool {
        self.entries[position] & WRITE != 0
    }

    /// Position of the next read of the block accessed at `position`, before it is overwritten, or [`NEVER`].
    #[inline]
    pub fn next_read(&self, position: usize) -> u32 {
        self.next_reads[position]
    }

    /// Number of unique blocks of the trace; block ids are smaller.
    pub fn unique_blocks(&self) -> usize {
        self.unique_blocks
    }

    /// Number of accesses at the start of the stream that are not counted.
    pub fn warmup(&self) -> usize {
        self.warmup
    }

    /// Reads of the trace after the warm-up, including hits in the DRAM cache.
    pub fn reads(&self) -> u64 {
        self.reads
    }

    /// Writes of the trace after the warm-up.
    pub fn writes(&self) -> u64 {
        self.writes
    }

    /// Read hits of the DRAM cache after the warm-up.
    pub fn ram_hits(&self) -> u64 {
        self.ram_hits
    }
}
