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
pub(super) fn recover_by(
    config: Config,
    scans: &[Scan],
    around: Around,
    drop_by: DropBy,
) -> Result<(Wlfc, Vec<Step>), ConfigError> {
    let whole = config.clone();
    let shortened = config.without(around.failed.len() as u32);
    let frozen = around.frozen || shortened.is_none();
    let wlfc = Wlfc::new(shortened.filter(|_| !frozen).unwrap_or(config))?;
    let mut plan = RecoveryPlan { wlfc, steps: Vec::new() };
    (plan.wlfc.frozen, plan.wlfc.settled) = (frozen, around.settled || !around.frozen);
    plan.wlfc.failing = around.failing;
    assert_eq!(scans.len(), plan.wlfc.contents.buckets.len(), "every bucket was scanned");
    // Sort valid buckets by backend bucket; torn copies, which are invalid, are erased first.
    let mut found: BTreeMap<u32, CacheBuckets> = BTreeMap::new();
    let mut epochs: Vec<(u64, u32)> = Vec::new();
    for (number, scan) in (0..).zip(scans) {
        if around.failed.contains(&number) {
            plan.wlfc.queues.fail(number);
            continue;
        }
        let Some(first) = scan.found.first() else {
            if scan.torn {
                plan.wlfc.queues.take(number);
                plan.wlfc.contents.add(plan.wlfc.contents.buckets[number as usize].backend);
                plan.give_up(number);
            }
            continue;
        };
        plan.wlfc.epoch = plan.wlfc.epoch.max(first.1.epoch);
        plan.found(number, scan, &first.1);
        epochs.push((first.1.epoch, number));
    }
    epochs.sort_unstable();
    for (_, number) in epochs {
        let bucket = &plan.wlfc.contents.buckets[number as usize];
        let copied = || scans[number as usize].found.iter().map(|(_, oob)| oob.blocks).sum::<u32>();
        let whole = bucket.is_write() || copied() == plan.wlfc.config.extent(bucket.backend);
        let (is_write, backend) = (bucket.is_write(), bucket.backend);
        match (is_write, whole) {
            (true, _) => found.entry(backend).or_default().writes.push(number),
            (false, true) => found.entry(backend).or_default().copies.push(number),
            (false, false) => plan.give_up(number),
        }
    }
    // Newest first, so that they find room.
    let newest = |wlfc: &Wlfc, found: &CacheBuckets| {
        found.copies.iter().chain(&found.writes).map(|number| wlfc.contents.buckets[*number as usize].epoch).max()
    };
    let mut order: Vec<_> = found.into_iter().collect();
    // Data that cannot be written back has to stay.
    order
        .sort_by_key(|(backend, found)| std::cmp::Reverse((plan.wlfc.is_failing(*backend), newest(&plan.wlfc, found))));
    let (mut copies_kept, mut apart) = (Vec::new(), Vec::new());
    for (backend, CacheBuckets { mut copies, writes }) in order {
        let base = copies.pop();
        let mut counting = Counting { dropped: copies, base: base.into_iter().collect(), writes };
        drop_by(&plan.wlfc.contents.buckets, &mut counting);
        let Counting { dropped, base, writes } = counting;
        dropped.iter().for_each(|number| plan.wlfc.retire(*number));
        // A frozen flash is not written, so all may stay.
        let room = plan.wlfc.frozen
            || (plan.wlfc.queues.write.len() + writes.len()) as u32 <= plan.wlfc.config.write_queue
                && (copies_kept.len() + base.len()) as u32 <= plan.wlfc.config.read_queue;
        let dirty =
            base.iter().chain(&writes).any(|number| plan.wlfc.contents.buckets[*number as usize].state != State::Read);
        let stays = plan.wlfc.is_failing(backend) && dirty;
        if stays && writes.len() > 1 {
            apart.push((backend, base.first().copied(), writes));
            continue;
        }
        if writes.len() > 1 || !room && !stays {
            plan.commit(backend, base.first().copied(), &writes);
            base.iter().chain(&writes).for_each(|number| plan.wlfc.retire(*number));
            continue;
        }
        let of = plan.wlfc.contents.copies.get_mut(&backend).expect("it was found");
        (of.read, of.write) = (base.first().copied().unwrap_or(NONE), writes.first().copied().unwrap_or(NONE));
        copies_kept.extend(base);
        if let Some(number) = writes.first() {
            plan.wlfc.queues.write.set(*number, plan.wlfc.room(*number));
        }
    }
    copies_kept.iter().rev().for_each(|number| plan.wlfc.queues.read_insert(*number));
    for (backend, base, writes) in apart {
        plan.wlfc.make_room(&mut plan.steps);
        if plan.wlfc.spare() == 0 && around.lossy.contains(&backend) {
            // It cannot be moved, so everything stays as it is.
            let around = Around { failed: around.failed, frozen: true, settled: true, ..Around::default() };
            return recover_by(whole, scans, around, drop_by);
        }
        if plan.wlfc.spare() == 0 {
            // Only the backend is left: the write is retried.
            plan.wlfc.failing.remove(&backend);
            plan.commit(backend, base, &writes);
            base.iter().chain(&writes).for_each(|number| plan.wlfc.retire(*number));
            continue;
        }
        plan.merge(backend, base, &writes);
    }
    for number in around.unread.into_iter().filter(|_| !frozen) {
        if plan.wlfc.spare() > 0 {
            plan.leave(number);
        }
    }
    plan.wlfc.crowded = !plan.wlfc.has_bounds();
    Ok((plan.wlfc, plan.steps))
}

/// A recovery in progress: the cache so far, and the steps to execute before its first request.
struct RecoveryPlan {
    wlfc: Wlfc,
    steps: Vec<Step>,
}

impl RecoveryPlan {
    /// Drops an incomplete copy, or an unreadable bucket: it belongs to no backend bucket, and is erased.
    fn give_up(&mut self, number: u32) {
        let bucket = &mut self.wlfc.contents.buckets[number as usize];
        let before = std::mem::replace(bucket, Bucket { backend: NO_BACKEND, epoch: number.into(), ..Bucket::new() });
        self.wlfc.contents.erase(before.backend);
        self.wlfc.contents.add(NO_BACKEND);
        self.wlfc.retire(number);
    }

    fn found(&mut self, number: u32, scan: &Scan, first: &Oob) {
        let &Oob { state, backend, epoch, .. } = first;
        self.wlfc.queues.take(number);
        self.wlfc.contents.add(backend);
        let entry = |&(page, oob): &(u32, Oob)| Entry { log: oob.log, at: oob.at, blocks: oob.blocks, page };
        let logs = scan.found.iter().filter(|_| state == State::Write);
        let next_page = if scan.torn { self.wlfc.config.bucket_pages() } else { scan.end };
        let mut bucket = Bucket { state, backend, epoch, next_page, ..Bucket::new() };
        logs.map(entry).for_each(|entry| bucket.push(entry));
        self.wlfc.contents.buckets[number as usize] = bucket;
    }

    /// Writes back a backend bucket with all its logs, which may be in several buckets. Idempotent.
    fn commit(&mut self, backend: u32, base: Option<u32>, writes: &[u32]) {
        let has_data = writes.iter().any(|write| self.wlfc.contents.has_data(*write));
        let dirty = base.is_some_and(|base| self.wlfc.contents.buckets[base as usize].state == State::Dirty);
        if has_data || dirty {
            self.load_all(backend, base, writes);
            self.wlfc.write_back(backend, &mut self.steps);
        }
    }

    /// As [`commit`](Self::commit), but to a dirty copy instead of the backend.
    fn merge(&mut self, backend: u32, base: Option<u32>, writes: &[u32]) {
        self.load_all(backend, base, writes);
        let of = self.wlfc.contents.copies.get_mut(&backend).expect("it was found");
        (of.read, of.write) = (base.unwrap_or(NONE), NONE);
        self.wlfc.copy(backend, true, &mut self.steps);
        writes.iter().for_each(|number| self.wlfc.retire(*number));
    }

    /// Moves the contents of an unreadable bucket to a copy that records the loss.
    fn leave(&mut self, number: u32) {
        let backend = self.wlfc.contents.buckets[number as usize].backend;
        let copies = self.wlfc.contents.of(backend);
        if copies.write == number {
            self.wlfc.evict(number, &mut self.steps);
        } else if copies.read == number && self.wlfc.contents.buckets[number as usize].state == State::Dirty {
            self.wlfc.load(backend, &copies, 0, self.wlfc.config.extent(backend), &mut self.steps);
            self.wlfc.copy(backend, true, &mut self.steps);
        } else if copies.read == number {
            self.wlfc.retire(number);
        }
    }

    /// Loads a backend bucket with all its logs into memory.
    fn load_all(&mut self, backend: u32, base: Option<u32>, writes: &[u32]) {
        let extent = self.wlfc.config.extent(backend);
        let mut below = Copies { write: NONE, read: base.unwrap_or(NONE), count: 0 };
        if writes.is_empty() {
            self.wlfc.load(backend, &below, 0, extent, &mut self.steps);
        }
        // Older logs are below newer ones: memory is loaded from the lowest, and each bucket of logs overlaid.
        for (above, write) in writes.iter().enumerate() {
            below.write = *write;
            if above == 0 {
                self.wlfc.load(backend, &below, 0, extent, &mut self.steps);
            } else {
                self.lay_over(backend, *write);
            }
        }
    }

    /// Overlays the logs of a bucket on the contents of memory, in order.
    fn lay_over(&mut self, backend: u32, write: u32) {
        let first = u64::from(backend) * u64::from(self.wlfc.config.bucket_blocks);
        for entry in self.wlfc.contents.buckets[write as usize].entries.clone() {
            let (block, blocks) = (first + u64::from(entry.at), entry.blocks);
            let slot = entry.page * self.wlfc.config.page_blocks;
            let step = match entry.log {
                Log::Data => Step::ReadFlash { bucket: write, slot, block, blocks },
                Log::Zeroes => {
                    let bytes = super::pieces::BLOCK;
                    Step::Zero { offset: block * bytes, length: blocks * bytes as u32 }
                }
                Log::Passed => Step::ReadBackend { block, blocks },
            };
            self.wlfc.push(step, &mut self.steps);
        }
    }
}
