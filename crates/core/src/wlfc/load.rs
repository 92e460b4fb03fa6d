//! The location of the newest content of blocks, and the steps that load it into memory.

use std::collections::HashMap;

use rustc_hash::FxBuildHasher;

use super::bucket::{Bucket, Entry, Log, State, words};
use super::config::Config;
use super::pieces::BLOCK;
use super::step::Step;
use super::{Copies, NONE};

/// The found blocks of a range, a bit each; reused to avoid allocations.
#[derive(Clone, Debug, Default)]
pub(super) struct Cover {
    words: Vec<u64>,
    /// The number of missing blocks.
    missing: u32,
    /// Steps that overlay logs on the blocks that they cover.
    logs: Vec<Step>,
}

impl Cover {
    fn clear(&mut self, blocks: u32) {
        self.words.clear();
        self.words.resize(blocks.div_ceil(64) as usize, 0);
        self.missing = blocks;
    }

    /// True if all blocks were found.
    fn is_full(&self) -> bool {
        self.missing == 0
    }

    /// Returns the first block in `from..to` that was found, or that is missing.
    #[inline]
    fn next(&self, from: u32, to: u32, found: bool) -> Option<u32> {
        let inverted = if found { 0 } else { u64::MAX };
        let mut above = u64::MAX << (from % 64);
        for word in from / 64..to.div_ceil(64) {
            let bits = (self.words[word as usize] ^ inverted) & above;
            if bits != 0 {
                return Some(word * 64 + bits.trailing_zeros()).filter(|block| *block < to);
            }
            above = u64::MAX;
        }
        None
    }

    /// Adds the missing blocks of `from..to`, and reports them run by run.
    fn add_missing(&mut self, from: u32, to: u32, mut found: impl FnMut(u32, u32)) {
        let mut at = from;
        while let Some(start) = self.next(at, to, false) {
            let end = self.next(start, to, true).unwrap_or(to);
            words(start, end - start).for_each(|(word, bits)| self.words[word] |= bits);
            self.missing -= end - start;
            found(start, end);
            at = end;
        }
    }
}

/// The start and the end of a range of blocks, possibly empty.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Span(u32, u32);

impl Span {
    const EMPTY: Span = Span(u32::MAX, 0);

    fn add(&mut self, from: u32, to: u32) {
        *self = Span(self.0.min(from), self.1.max(to));
    }
}

/// The contents of the cache buckets, by cache bucket and by backend bucket.
#[derive(Clone, Debug)]
pub(super) struct BucketContents {
    pub buckets: Vec<Bucket>,
    pub copies: HashMap<u32, Copies, FxBuildHasher>,
    cover: Cover,
}

impl BucketContents {
    /// Creates empty buckets.
    pub fn new(buckets: u32) -> BucketContents {
        let (copies, cover) = (HashMap::default(), Cover::default());
        BucketContents { buckets: vec![Bucket::new(); buckets as usize], copies, cover }
    }

    /// Returns the cache buckets of a backend bucket.
    #[inline]
    pub fn of(&self, backend: u32) -> Copies {
        self.copies.get(&backend).copied().unwrap_or(Copies::NONE)
    }

    /// Counts one more bucket of a backend bucket, and returns all of them.
    pub fn add(&mut self, backend: u32) -> &mut Copies {
        let copies = self.copies.entry(backend).or_insert(Copies::NONE);
        copies.count += 1;
        copies
    }

    /// Counts one bucket of a backend bucket less.
    pub fn erase(&mut self, backend: u32) {
        if let Some(copies) = self.copies.get_mut(&backend) {
            copies.count -= 1;
            if copies.count == 0 {
                self.copies.remove(&backend);
            }
        }
    }

    /// Returns the logs on top of a backend bucket's read copy or, without one, of the backend.
    pub fn logs_over(&self, copies: &Copies) -> &[Entry] {
        if copies.write == NONE {
            return &[];
        }
        &self.buckets[copies.write as usize].entries[self.fresh(copies)..]
    }

    /// Returns the number of logs that the read copy includes.
    #[inline]
    pub fn fresh(&self, copies: &Copies) -> usize {
        if copies.read == NONE { 0 } else { self.buckets[copies.read as usize].fresh as usize }
    }

    /// True if there are logs that the read copy, if any, lacks.
    #[inline]
    pub fn logs_beyond_copy(&self, copies: &Copies) -> bool {
        copies.write != NONE && self.buckets[copies.write as usize].entries.len() > self.fresh(copies)
    }

    /// True if logs concern any of these blocks. The read copy may include them.
    #[inline]
    fn logs_touch(&self, copies: &Copies, at: u32, blocks: u32) -> bool {
        self.logs_beyond_copy(copies) && self.buckets[copies.write as usize].touches(at, blocks)
    }

    /// True if a bucket of logs, if any, has data that the backend may lack.
    pub fn has_data(&self, write: u32) -> bool {
        write != NONE && self.buckets[write as usize].entries.iter().any(|entry| entry.log != Log::Passed)
    }

    /// True if the cache may have newer content of any of the blocks than the backend.
    pub fn has_newer(&self, copies: &Copies, at: u32, blocks: u32) -> bool {
        if copies.read != NONE && self.buckets[copies.read as usize].state == State::Dirty {
            return true;
        }
        let touches = |entry: &Entry| entry.at < at + blocks && at < entry.at + entry.blocks;
        copies.write != NONE
            && self.buckets[copies.write as usize].touches(at, blocks)
            && self.buckets[copies.write as usize]
                .entries
                .iter()
                .any(|entry| entry.log != Log::Passed && touches(entry))
    }

    /// Returns how many of the blocks have their newest content on flash.
    pub fn cached(&mut self, copies: &Copies, at: u32, blocks: u32) -> u32 {
        if !self.logs_touch(copies, at, blocks) {
            return if copies.read == NONE { 0 } else { blocks };
        }
        let write = &self.buckets[copies.write as usize];
        if !write.has_passed {
            return if copies.read == NONE { write.covers(at, blocks) } else { blocks };
        }
        let mut cover = std::mem::take(&mut self.cover);
        cover.clear(blocks);
        let (mut found, mut passed) = (0, 0);
        for entry in self.logs_over(copies).iter().rev() {
            if cover.is_full() {
                break;
            }
            let (from, to) = within(entry, at, blocks);
            cover.add_missing(from, to, |from, to| match entry.log {
                Log::Passed => passed += to - from,
                Log::Data | Log::Zeroes => found += to - from,
            });
        }
        self.cover = cover;
        if copies.read == NONE { found } else { blocks - passed }
    }

    /// Loads the newest content of blocks of a backend bucket into memory. Parts without logs come from the read copy,
    /// or from the backend, which is read once.
    pub fn load(
        &mut self,
        config: &Config,
        (backend, copies): (u32, &Copies),
        at: u32,
        blocks: u32,
        mut push: impl FnMut(Step),
    ) {
        let (read, page_blocks) = (copies.read, config.page_blocks);
        let first = u64::from(backend) * u64::from(config.bucket_blocks) + u64::from(at);
        let copied = config.headers(config.extent(backend));
        if !self.logs_touch(copies, at, blocks) {
            let step = match read {
                NONE => Step::ReadBackend { block: first, blocks },
                bucket => Step::ReadFlash { bucket, slot: copied + at, block: first, blocks },
            };
            return push(step);
        }
        let mut cover = std::mem::take(&mut self.cover);
        let mut logs = std::mem::take(&mut cover.logs);
        cover.clear(blocks);
        let (mut span, write) = (Span::EMPTY, copies.write);
        for entry in self.logs_over(copies).iter().rev() {
            if cover.is_full() {
                break;
            }
            let (from, to) = within(entry, at, blocks);
            cover.add_missing(from, to, |from, to| {
                let block = first + u64::from(from);
                match entry.log {
                    Log::Data => {
                        let slot = entry.page * page_blocks + (at + from - entry.at);
                        logs.push(Step::ReadFlash { bucket: write, slot, block, blocks: to - from });
                    }
                    Log::Zeroes => logs.push(Step::Zero { offset: block * BLOCK, length: (to - from) * BLOCK as u32 }),
                    Log::Passed => span.add(from, to),
                }
            });
        }
        let below = logs.len();
        cover.add_missing(0, blocks, |from, to| match read {
            NONE => span.add(from, to),
            bucket => {
                let block = first + u64::from(from);
                logs.push(Step::ReadFlash { bucket, slot: copied + at + from, block, blocks: to - from });
            }
        });
        if span != Span::EMPTY {
            push(Step::ReadBackend { block: first + u64::from(span.0), blocks: span.1 - span.0 });
        }
        // The copy's blocks and the logs' blocks are disjoint.
        logs.drain(below..).for_each(&mut push);
        logs.drain(..).for_each(push);
        cover.logs = logs;
        self.cover = cover;
    }

    /// Returns the blocks of a backend bucket that may be newer in the cache.
    pub fn newer_blocks(&self, (backend, copies): (u32, &Copies), config: &Config, cover: &mut Cover) -> u64 {
        if copies.read != NONE && self.buckets[copies.read as usize].state == State::Dirty {
            return config.extent(backend).into();
        }
        if copies.write == NONE {
            return 0;
        }
        cover.clear(config.extent(backend));
        let mut newer = 0;
        for entry in self.buckets[copies.write as usize].entries.iter().filter(|entry| entry.log != Log::Passed) {
            cover.add_missing(entry.at, entry.at + entry.blocks, |from, to| newer += u64::from(to - from));
        }
        newer
    }
}

/// Returns the part of a log in `blocks` from `at`, relative to `at`.
fn within(entry: &Entry, at: u32, blocks: u32) -> (u32, u32) {
    let from = entry.at.max(at);
    let to = (entry.at + entry.blocks).min(at + blocks);
    if from >= to { (0, 0) } else { (from - at, to - at) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wlfc::tests::random::Random;

    #[test]
    fn runs_of_missing_blocks_match_a_list() {
        let mut random = Random(3);
        let mut cover = Cover::default();
        for _ in 0..500 {
            let blocks = 1 + random.below(200) as u32;
            cover.clear(blocks);
            let mut naive = vec![false; blocks as usize];
            while !cover.is_full() {
                let from = random.below(u64::from(blocks)) as u32;
                let to = from + random.below(u64::from(blocks - from) + 1) as u32;
                let mut added = Vec::new();
                cover.add_missing(from, to, |start, end| added.push((start, end)));
                let mut expected: Vec<(u32, u32)> = Vec::new();
                for block in (from..to).filter(|block| !std::mem::replace(&mut naive[*block as usize], true)) {
                    match expected.last_mut() {
                        Some((_, end)) if *end == block => *end += 1,
                        _ => expected.push((block, block + 1)),
                    }
                }
                assert_eq!(added, expected, "{from}..{to} of {blocks}");
                assert_eq!(cover.is_full(), naive.iter().all(|found| *found));
            }
        }
    }
}
