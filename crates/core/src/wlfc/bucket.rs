//! A cache bucket: what its pages say of themselves out of band, and what DRAM knows of it.
//!
//! Source: WLFC, section IV.B.1.
//!
//! Departures from the paper:
//! - A state is fixed when the bucket is allocated: out-of-band bytes cannot be changed in place. What is rewritten is a new bucket.
//! - Each page says which blocks it holds, so that logs are found again, and which of them a power failure tore.

/// What a cache bucket holds. A free one holds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// A copy of a backend bucket.
    Read,
    /// A copy with logs applied that the backend does not have.
    Dirty,
    /// Logs.
    Write,
}

/// What a log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Log {
    /// Blocks that a client wrote.
    Data,
    /// Blocks that read as zeroes; a page without data.
    Zeroes,
    /// A tombstone: from here on the blocks are the backend's, whatever was copied or logged before; a page without data.
    Passed,
}

/// What a page says of itself out of band: *State*, *C2Bmap* and *Epoch* of its bucket, and which blocks it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Oob {
    /// What the bucket holds.
    pub state: State,
    /// The backend bucket that it is of.
    pub backend: u32,
    /// Counts allocations: of two buckets the one with the larger number was allocated later.
    pub epoch: u64,
    /// What the page is; of a copy [`Log::Data`].
    pub log: Log,
    /// The first block, within the backend bucket.
    pub at: u32,
    /// Number of blocks.
    pub blocks: u32,
}

impl Oob {
    /// Pages that are programmed for it, without headers.
    pub(super) fn pages(&self, page_blocks: u32) -> u32 {
        if self.log == Log::Data { self.blocks.div_ceil(page_blocks) } else { 1 }
    }

    /// What page `number` of those pages says, from 0.
    pub fn of_page(&self, number: u32, page_blocks: u32) -> Oob {
        match self.log {
            Log::Data => {
                let skipped = number * page_blocks;
                Oob { at: self.at + skipped, blocks: (self.blocks - skipped).min(page_blocks), ..*self }
            }
            Log::Zeroes | Log::Passed => *self,
        }
    }
}

/// A log in a write bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it is.
    pub log: Log,
    /// Its first block, within the backend bucket.
    pub at: u32,
    /// Number of blocks.
    pub blocks: u32,
    /// The first page of its data in the cache bucket, or its only page.
    pub page: u32,
}

/// What DRAM knows of a cache bucket that is not free.
#[derive(Clone, Debug)]
pub struct Bucket {
    /// What it holds.
    pub state: State,
    /// The backend bucket that it is of.
    pub backend: u32,
    /// When it was allocated.
    pub epoch: u64,
    /// The page that is written next.
    pub next_page: u32,
    /// The logs of a write bucket, the oldest first.
    pub entries: Vec<Entry>,
    /// Which blocks any of them is of, a bit each.
    pub covered: Vec<u64>,
    /// Whether any of them is of what went past the cache.
    pub has_passed: bool,
    /// How many logs of the write bucket of the same backend bucket a copy has in it.
    pub fresh: u32,
}

impl Bucket {
    /// A bucket that nothing was written to, nor ever was.
    pub fn new() -> Bucket {
        let (entries, covered) = (Vec::new(), Vec::new());
        let (state, has_passed) = (State::Read, false);
        Bucket { state, backend: 0, epoch: 0, next_page: 0, entries, covered, has_passed, fresh: 0 }
    }

    /// Adds a log.
    #[inline]
    pub(super) fn push(&mut self, entry: Entry) {
        self.entries.push(entry);
        self.has_passed |= entry.log == Log::Passed;
        let last = (entry.at + entry.blocks).saturating_sub(1) as usize / 64;
        if last >= self.covered.len() {
            self.covered.resize(last + 1, 0);
        }
        for (word, bits) in words(entry.at, entry.blocks) {
            self.covered[word] |= bits;
        }
    }

    /// Whether any log is of any of these blocks.
    #[inline]
    pub(super) fn touches(&self, at: u32, blocks: u32) -> bool {
        words(at, blocks).any(|(word, bits)| self.covered.get(word).is_some_and(|covered| covered & bits != 0))
    }

    /// How many of these blocks any log is of.
    #[inline]
    pub(super) fn covers(&self, at: u32, blocks: u32) -> u32 {
        let of = |(word, bits): (usize, u64)| self.covered.get(word).map_or(0, |covered| (covered & bits).count_ones());
        words(at, blocks).map(of).sum()
    }

    /// Whether it holds logs.
    pub fn is_write(&self) -> bool {
        self.state == State::Write
    }
}

/// The words that have the bits of these blocks, with those bits.
#[inline]
pub(super) fn words(at: u32, blocks: u32) -> impl Iterator<Item = (usize, u64)> {
    let (from, to) = (at as usize, (at + blocks) as usize);
    let end = if blocks == 0 { from / 64 } else { to.div_ceil(64) };
    (from / 64..end).map(move |word| {
        let (first, end) = (from.max(word * 64) - word * 64, to.min(word * 64 + 64) - word * 64);
        (word, (u64::MAX >> (64 - (end - first))) << first)
    })
}

impl Default for Bucket {
    fn default() -> Self {
        Bucket::new()
    }
}
