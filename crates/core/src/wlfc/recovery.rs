//! Recovery of the cache after a power failure, from the out-of-band metadata of its pages.
//!
//! Source: WLFC, section IV.D.
//!
//! Departures from the paper:
//! - If a backend bucket has several cache buckets, the paper keeps the one with the highest epoch. That loses writes:
//!   a read copy allocated after the bucket of logs lacks later logs. Here the newest whole copy counts, and all
//!   remaining buckets of logs, older below newer. Keeping only the newest of each kind would also be wrong. A copy
//!   evicted before logs went to the backend, but not yet erased, would hide the changes of those logs.
//! - This is sound because the evicted buckets of a backend bucket are erased in order, each after its replacement is
//!   durable. So after a power failure nothing newer than the oldest remaining bucket is missing, unless it is
//!   elsewhere.
//! - A backend bucket is written back if it has several buckets of logs, or finds no room in the queues.

use std::collections::{BTreeMap, BTreeSet};

use super::bucket::{Bucket, Entry, Log, Oob, State};
use super::config::{Config, ConfigError};
use super::step::Step;
use super::{Copies, NONE, Wlfc};

/// The backend bucket of invalid cache buckets.
pub(super) const NO_BACKEND: u32 = u32::MAX;

/// The scanned contents of a cache bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// The programmed writes, from the first page up to the first missing or damaged one: the page of the data, and the
    /// metadata. A copy must have all its blocks.
    pub found: Vec<(u32, Oob)>,
    /// The page after them.
    pub end: u32,
    /// True if other data was written after them, so nothing can be appended.
    pub torn: bool,
}

/// The cache buckets found for a backend bucket, oldest first.
#[derive(Clone, Debug, Default)]
struct CacheBuckets {
    copies: Vec<u32>,
    writes: Vec<u32>,
}

/// The cache buckets of a backend bucket: invalid copies, the valid copy if any, and the buckets of logs.
#[derive(Clone, Debug, Default)]
pub(super) struct Counting {
    pub dropped: Vec<u32>,
    pub base: Vec<u32>,
    pub writes: Vec<u32>,
}

/// A rule for tests that drops valid buckets.
pub(super) type DropBy<'a> = &'a mut dyn FnMut(&[Bucket], &mut Counting);

/// Failures that recovery works around.
#[derive(Clone, Debug, Default)]
pub struct Around {
    /// Backend buckets that cannot be written for now; their dirty data stays in the cache.
    pub failing: BTreeSet<u32>,
    /// Cache buckets that are never reused; their contents are invalid.
    pub failed: BTreeSet<u32>,
    /// Cache buckets that can be neither read nor written. They are evicted at once, so that the loss is recorded on
    /// flash.
    pub unread: BTreeSet<u32>,
    /// Backend buckets with lost blocks, which are never written back.
    pub lossy: BTreeSet<u32>,
    /// True if the flash can no longer be written; its contents can be read and written back.
    pub frozen: bool,
    /// True if the contents of a frozen flash are durable nevertheless.
    pub settled: bool,
}

/// Recovers the cache from `scans`, one per cache bucket. Also returns the steps to execute before its first request.
///
/// # Errors
/// An invalid configuration, according to [`Config::check`].
pub fn recover(config: Config, scans: &[Scan]) -> Result<(Wlfc, Vec<Step>), ConfigError> {
    recover_around(config, scans, Around::default())
}

/// As [`recover`], on partly failed devices. Queues shrink by the failed buckets; with too few left the cache is
/// frozen.
///
/// # Errors
/// An invalid configuration, according to [`Config::check`].
pub fn recover_around(config: Config, scans: &[Scan], around: Around) -> Result<(Wlfc, Vec<Step>), ConfigError> {
    recover_by(config, scans, around, &mut |_, _| {})
}

/// As [`recover_around`]; `drop_by` may drop valid buckets according to another rule.
fn recover_by(
    config: Config,
    scans: &[Scan],
    around: Around,
    drop_by: DropBy,
) -> Result<(Wlfc, Vec<Step>), ConfigError> {
    let whole = config.clone();
    let shortened = config.without(around.failed.len() as u32);
    let frozen = around.frozen || shortened.is_none();
    let mut wlfc = Wlfc::new(shortened.filter(|_| !frozen).unwrap_or(config))?;
    (wlfc.frozen, wlfc.settled) = (frozen, around.settled || !around.frozen);
    wlfc.failing = around.failing;
    assert_eq!(scans.len(), wlfc.buckets.len(), "every bucket was scanned");
    // Sort valid buckets by backend bucket; torn copies, which are invalid, are erased first.
    let mut found: BTreeMap<u32, CacheBuckets> = BTreeMap::new();
    let mut epochs: Vec<(u64, u32)> = Vec::new();
    for (number, scan) in (0..).zip(scans) {
        if around.failed.contains(&number) {
            wlfc.queues.fail(number);
            continue;
        }
        let Some(first) = scan.found.first() else {
            if scan.torn {
                wlfc.queues.take(number);
                wlfc.copies.entry(wlfc.buckets[number as usize].backend).or_insert(Copies::NONE).count += 1;
                wlfc.give_up(number);
            }
            continue;
        };
        wlfc.epoch = wlfc.epoch.max(first.1.epoch);
        wlfc.found(number, scan, &first.1);
        epochs.push((first.1.epoch, number));
    }
    epochs.sort_unstable();
    for (_, number) in epochs {
        let bucket = &wlfc.buckets[number as usize];
        let copied = || scans[number as usize].found.iter().map(|(_, oob)| oob.blocks).sum::<u32>();
        let whole = bucket.is_write() || copied() == wlfc.config.extent(bucket.backend);
        let (is_write, backend) = (bucket.is_write(), bucket.backend);
        match (is_write, whole) {
            (true, _) => found.entry(backend).or_default().writes.push(number),
            (false, true) => found.entry(backend).or_default().copies.push(number),
            (false, false) => wlfc.give_up(number),
        }
    }
    let mut steps = Vec::new();
    // Newest first, so that they find room.
    let newest = |wlfc: &Wlfc, found: &CacheBuckets| {
        found.copies.iter().chain(&found.writes).map(|number| wlfc.buckets[*number as usize].epoch).max()
    };
    let mut order: Vec<_> = found.into_iter().collect();
    // Data that cannot be written back has to stay.
    order.sort_by_key(|(backend, found)| std::cmp::Reverse((wlfc.is_failing(*backend), newest(&wlfc, found))));
    let (mut copies_kept, mut apart) = (Vec::new(), Vec::new());
    for (backend, CacheBuckets { mut copies, writes }) in order {
        let base = copies.pop();
        let mut counting = Counting { dropped: copies, base: base.into_iter().collect(), writes };
        drop_by(&wlfc.buckets, &mut counting);
        let Counting { dropped, base, writes } = counting;
        dropped.iter().for_each(|number| wlfc.retire(*number));
        // A frozen flash is not written, so all may stay.
        let room = wlfc.frozen
            || (wlfc.queues.write.len() + writes.len()) as u32 <= wlfc.config.write_queue
                && (copies_kept.len() + base.len()) as u32 <= wlfc.config.read_queue;
        let dirty = base.iter().chain(&writes).any(|number| wlfc.buckets[*number as usize].state != State::Read);
        let stays = wlfc.is_failing(backend) && dirty;
        if stays && writes.len() > 1 {
            apart.push((backend, base.first().copied(), writes));
            continue;
        }
        if writes.len() > 1 || !room && !stays {
            wlfc.commit(backend, base.first().copied(), &writes, &mut steps);
            base.iter().chain(&writes).for_each(|number| wlfc.retire(*number));
            continue;
        }
        let of = wlfc.copies.get_mut(&backend).expect("it was found");
        (of.read, of.write) = (base.first().copied().unwrap_or(NONE), writes.first().copied().unwrap_or(NONE));
        copies_kept.extend(base);
        if let Some(number) = writes.first() {
            wlfc.queues.write.set(*number, wlfc.room(*number));
        }
    }
    copies_kept.iter().rev().for_each(|number| wlfc.queues.read_insert(*number));
    for (backend, base, writes) in apart {
        wlfc.make_room(&mut steps);
        if wlfc.spare() == 0 && around.lossy.contains(&backend) {
            // It cannot be moved, so everything stays as it is.
            let around = Around { failed: around.failed, frozen: true, settled: true, ..Around::default() };
            return recover_by(whole, scans, around, drop_by);
        }
        if wlfc.spare() == 0 {
            // Only the backend is left: the write is retried.
            wlfc.failing.remove(&backend);
            wlfc.commit(backend, base, &writes, &mut steps);
            base.iter().chain(&writes).for_each(|number| wlfc.retire(*number));
            continue;
        }
        wlfc.merge(backend, base, &writes, &mut steps);
    }
    for number in around.unread.into_iter().filter(|_| !frozen) {
        if wlfc.spare() > 0 {
            wlfc.leave(number, &mut steps);
        }
    }
    wlfc.crowded = !wlfc.has_bounds();
    Ok((wlfc, steps))
}

impl Wlfc {
    /// Drops an incomplete copy, or an unreadable bucket: it belongs to no backend bucket, and is erased.
    fn give_up(&mut self, number: u32) {
        let bucket = &mut self.buckets[number as usize];
        let before = self.copies.get_mut(&bucket.backend).expect("it was counted");
        before.count -= 1;
        if before.count == 0 {
            self.copies.remove(&bucket.backend);
        }
        *bucket = Bucket { backend: NO_BACKEND, epoch: u64::from(number), ..Bucket::new() };
        self.copies.entry(NO_BACKEND).or_insert(Copies::NONE).count += 1;
        self.retire(number);
    }

    fn found(&mut self, number: u32, scan: &Scan, first: &Oob) {
        let &Oob { state, backend, epoch, .. } = first;
        self.queues.take(number);
        self.copies.entry(backend).or_insert(Copies::NONE).count += 1;
        let entry = |&(page, oob): &(u32, Oob)| Entry { log: oob.log, at: oob.at, blocks: oob.blocks, page };
        let logs = scan.found.iter().filter(|_| state == State::Write);
        let next_page = if scan.torn { self.config.bucket_pages() } else { scan.end };
        let mut bucket = Bucket { state, backend, epoch, next_page, ..Bucket::new() };
        logs.map(entry).for_each(|entry| bucket.push(entry));
        self.buckets[number as usize] = bucket;
    }

    /// Writes back a backend bucket with all its logs, which may be in several buckets. Idempotent.
    fn commit(&mut self, backend: u32, base: Option<u32>, writes: &[u32], steps: &mut Vec<Step>) {
        let has_data = writes.iter().any(|write| self.has_data(*write));
        let dirty = base.is_some_and(|base| self.buckets[base as usize].state == State::Dirty);
        if has_data || dirty {
            self.load_all(backend, base, writes, steps);
            self.write_back(backend, steps);
        }
    }

    /// As [`commit`](Self::commit), but to a dirty copy instead of the backend.
    fn merge(&mut self, backend: u32, base: Option<u32>, writes: &[u32], steps: &mut Vec<Step>) {
        self.load_all(backend, base, writes, steps);
        let of = self.copies.get_mut(&backend).expect("it was found");
        (of.read, of.write) = (base.unwrap_or(NONE), NONE);
        self.copy(backend, true, steps);
        writes.iter().for_each(|number| self.retire(*number));
    }

    /// Moves the contents of an unreadable bucket to a copy that records the loss.
    fn leave(&mut self, number: u32, steps: &mut Vec<Step>) {
        let backend = self.buckets[number as usize].backend;
        let copies = self.copies_of(backend);
        if copies.write == number {
            self.evict(number, steps);
        } else if copies.read == number && self.buckets[number as usize].state == State::Dirty {
            self.load(backend, &copies, 0, self.config.extent(backend), steps);
            self.copy(backend, true, steps);
        } else if copies.read == number {
            self.retire(number);
        }
    }

    /// Loads a backend bucket with all its logs into memory.
    fn load_all(&mut self, backend: u32, base: Option<u32>, writes: &[u32], steps: &mut Vec<Step>) {
        let extent = self.config.extent(backend);
        let mut below = Copies { write: NONE, read: base.unwrap_or(NONE), count: 0 };
        if writes.is_empty() {
            self.load(backend, &below, 0, extent, steps);
        }
        // Older logs are below newer ones: memory is loaded from the lowest, and each bucket of logs overlaid.
        for (above, write) in writes.iter().enumerate() {
            below.write = *write;
            if above == 0 {
                self.load(backend, &below, 0, extent, steps);
            } else {
                self.lay_over(backend, *write, steps);
            }
        }
    }

    /// Overlays the logs of a bucket on the contents of memory, in order.
    fn lay_over(&mut self, backend: u32, write: u32, steps: &mut Vec<Step>) {
        let first = u64::from(backend) * u64::from(self.config.bucket_blocks);
        for entry in self.buckets[write as usize].entries.clone() {
            let (block, blocks) = (first + u64::from(entry.at), entry.blocks);
            let slot = entry.page * self.config.page_blocks;
            let step = match entry.log {
                Log::Data => Step::ReadFlash { bucket: write, slot, block, blocks },
                Log::Zeroes => {
                    let bytes = super::pieces::BLOCK;
                    Step::Zero { offset: block * bytes, length: blocks * bytes as u32 }
                }
                Log::Passed => Step::ReadBackend { block, blocks },
            };
            self.push(step, steps);
        }
    }

    /// Recovers by another rule than the sound one.
    #[cfg(test)]
    pub(super) fn recover_planted(config: Config, scans: &[Scan], drop_by: DropBy) -> (Wlfc, Vec<Step>) {
        recover_by(config, scans, Around::default(), drop_by).expect("the cache was there before")
    }
}
