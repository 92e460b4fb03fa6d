//! A cache bucket: the out-of-band metadata of its pages, and its state in DRAM.
//!
//! Source: WLFC, section IV.B.1.
//!
//! Departures from the paper:
//! - The state is fixed when the bucket is allocated, because out-of-band bytes cannot be changed in place. Rewriting
//!   means a new bucket.
//! - Each page names its blocks, for the recovery of logs and the detection of torn ones.

/// The kind of contents of a cache bucket. A free bucket has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum State {
    /// A copy of a backend bucket.
    #[default]
    Read,
    /// A copy with applied logs that the backend lacks.
    Dirty,
    /// Logs.
    Write,
}

/// The kind of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Log {
    /// Blocks written by a client.
    #[default]
    Data,
    /// Zeroed blocks; a page without data.
    Zeroes,
    /// A tombstone: earlier copies and logs of the blocks are invalid, and the backend's content counts; a page without
    /// data.
    Passed,
}

/// The out-of-band metadata of a page: *State*, *C2Bmap* and *Epoch* of its bucket, and its blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Oob {
    /// The kind of the bucket's contents.
    pub state: State,
    /// The backend bucket that it belongs to.
    pub backend: u32,
    /// Counts allocations: the bucket with the larger number was allocated later.
    pub epoch: u64,
    /// The kind of log; [`Log::Data`] for a copy.
    pub log: Log,
    /// The first block, within the backend bucket.
    pub at: u32,
    /// Number of blocks.
    pub blocks: u32,
}

impl Oob {
    /// Returns the pages to program, without headers.
    pub(super) fn pages(&self, page_blocks: u32) -> u32 {
        if self.log == Log::Data { self.blocks.div_ceil(page_blocks) } else { 1 }
    }

    /// Returns the metadata of page `number`, from 0.
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
    /// The kind of log.
    pub log: Log,
    /// Its first block, within the backend bucket.
    pub at: u32,
    /// Number of blocks.
    pub blocks: u32,
    /// The first page of its data in the cache bucket, or its only page.
    pub page: u32,
}

/// The state of a cache bucket that is not free.
#[derive(Clone, Debug)]
pub struct Bucket {
    /// The kind of its contents.
    pub state: State,
    /// The backend bucket that it belongs to.
    pub backend: u32,
    /// The epoch of its allocation.
    pub epoch: u64,
    /// The next page to write.
    pub next_page: u32,
    /// The logs of a write bucket, oldest first.
    pub entries: Vec<Entry>,
    /// The blocks with logs, a bit each.
    pub covered: Vec<u64>,
    /// True if a log is a tombstone.
    pub has_passed: bool,
    /// For a copy: the number of logs in the backend bucket's write bucket that it includes.
    pub fresh: u32,
}

impl Bucket {
    /// Creates an empty bucket.
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

    /// True if a log concerns any of these blocks.
    #[inline]
    pub(super) fn touches(&self, at: u32, blocks: u32) -> bool {
        words(at, blocks).any(|(word, bits)| self.covered.get(word).is_some_and(|covered| covered & bits != 0))
    }

    /// Returns how many of these blocks have logs.
    #[inline]
    pub(super) fn covers(&self, at: u32, blocks: u32) -> u32 {
        let of = |(word, bits): (usize, u64)| self.covered.get(word).map_or(0, |covered| (covered & bits).count_ones());
        words(at, blocks).map(of).sum()
    }

    /// True if it holds logs.
    pub fn is_write(&self) -> bool {
        self.state == State::Write
    }
}

/// Returns the words with the bits of these blocks, and those bits.
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
