//! Finding the cache again after a power failure, from what its pages say out of band.
//!
//! Source: WLFC, section IV.D.
//!
//! Departures from the paper:
//! - The paper keeps, of several cache buckets of a backend bucket, the one with the highest epoch. That loses writes: a read copy that was
//!   allocated after the bucket of logs does not have what was logged later. Here the newest whole copy counts, and all buckets of logs that
//!   are still there, the older below the newer. Not even the newest of each kind would do: a copy that was evicted before logs went to
//!   the backend, and that is not erased yet, would cover what those logs changed.
//! - This is sound because the evicted buckets of a backend bucket are erased in their order, each once what took its place is durable: of
//!   what a power failure leaves of a backend bucket, nothing that came after the oldest is missing unless it is elsewhere.
//! - A backend bucket with more than one bucket of logs, or that finds no room in the queues, is written back.

use std::collections::{BTreeMap, BTreeSet};

use super::bucket::{Bucket, Entry, Log, Oob, State};
use super::config::{Config, ConfigError};
use super::step::Step;
use super::{Copies, NONE, Wlfc};

/// The backend bucket of what counts for none.
pub(super) const NOBODY: u32 = u32::MAX;

/// What was found in a cache bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// What was programmed, from the first page on, up to what is missing or damaged: at which page its data begins, and what it says.
    /// Of a copy all blocks have to be there.
    pub found: Vec<(u32, Oob)>,
    /// The page behind it.
    pub end: u32,
    /// Whether anything was written behind them, so that nothing can be appended.
    pub torn: bool,
}

/// The cache buckets that were found of a backend bucket, the oldest first.
#[derive(Clone, Debug, Default)]
struct Found {
    copies: Vec<u32>,
    writes: Vec<u32>,
}

/// The cache buckets of a backend bucket: copies that do not count, the one that does, if there is one, and the buckets of logs.
#[derive(Clone, Debug, Default)]
pub(super) struct Counting {
    pub dropped: Vec<u32>,
    pub base: Vec<u32>,
    pub writes: Vec<u32>,
}

/// Lets less count than the sound rule.
pub(super) type DropBy<'a> = &'a mut dyn FnMut(&[Bucket], &mut Counting);

/// What a cache that is found has to go around.
#[derive(Clone, Debug, Default)]
pub struct Around {
    /// Backend buckets that cannot be written for now: what they lack stays in the cache.
    pub failing: BTreeSet<u32>,
    /// Cache buckets that are never used again; nothing on them counts.
    pub failed: BTreeSet<u32>,
    /// Cache buckets whose pages cannot be read, of which no more can be written: they are evicted at once, so that what is lost is on flash.
    pub unread: BTreeSet<u32>,
    /// Backend buckets of which blocks are lost: they are never written back.
    pub lossy: BTreeSet<u32>,
    /// The flash cannot be written any more: what is on it can be read and written back.
    pub frozen: bool,
    /// What is on it is durable nevertheless.
    pub settled: bool,
}

/// The cache that was found in `scans`, one for each cache bucket, and what has to be done before its first request.
///
/// # Errors
/// [`Config::check`] says what cannot work.
pub fn recover(config: Config, scans: &[Scan]) -> Result<(Wlfc, Vec<Step>), ConfigError> {
    recover_around(config, scans, Around::default())
}

/// As [`recover`], on devices that failed in part. Queues are as much shorter as buckets failed; where too few are left the cache is frozen.
///
/// # Errors
/// [`Config::check`] says what cannot work.
pub fn recover_around(config: Config, scans: &[Scan], around: Around) -> Result<(Wlfc, Vec<Step>), ConfigError> {
    recover_by(config, scans, around, &mut |_, _| {})
}

/// `drop_by` may drop what another rule would not let count.
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
    // What counts, by backend bucket; torn copies, of which nothing counts, are erased first.
    let mut found: BTreeMap<u32, Found> = BTreeMap::new();
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
    // The newest first, so that they find room.
    let newest = |wlfc: &Wlfc, found: &Found| {
        found.copies.iter().chain(&found.writes).map(|number| wlfc.buckets[*number as usize].epoch).max()
    };
    let mut order: Vec<_> = found.into_iter().collect();
    // What cannot be written back has to.
    order.sort_by_key(|(backend, found)| std::cmp::Reverse((wlfc.is_failing(*backend), newest(&wlfc, found))));
    let (mut copies_kept, mut apart) = (Vec::new(), Vec::new());
    for (backend, Found { mut copies, writes }) in order {
        let base = copies.pop();
        let mut counting = Counting { dropped: copies, base: base.into_iter().collect(), writes };
        drop_by(&wlfc.buckets, &mut counting);
        let Counting { dropped, base, writes } = counting;
        dropped.iter().for_each(|number| wlfc.retire(*number));
        // Nothing is written to a frozen flash, and all of it may stay.
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
            // It can go nowhere, and all that is there stays.
            let around = Around { failed: around.failed, frozen: true, settled: true, ..Around::default() };
            return recover_by(whole, scans, around, drop_by);
        }
        if wlfc.spare() == 0 {
            // The backend is the only place that is left: it is tried again.
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
    /// A copy that is not whole, or a bucket of which no page can be read: it counts for no backend bucket, and is erased.
    fn give_up(&mut self, number: u32) {
        let bucket = &mut self.buckets[number as usize];
        let before = self.copies.get_mut(&bucket.backend).expect("it was counted");
        before.count -= 1;
        if before.count == 0 {
            self.copies.remove(&bucket.backend);
        }
        *bucket = Bucket { backend: NOBODY, epoch: u64::from(number), ..Bucket::new() };
        self.copies.entry(NOBODY).or_insert(Copies::NONE).count += 1;
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

    /// Writes back a backend bucket with all its logs, which may be in several buckets. Repeating it changes nothing.
    fn commit(&mut self, backend: u32, base: Option<u32>, writes: &[u32], steps: &mut Vec<Step>) {
        let has_data = writes.iter().any(|write| self.has_data(*write));
        let dirty = base.is_some_and(|base| self.buckets[base as usize].state == State::Dirty);
        if has_data || dirty {
            self.load_all(backend, base, writes, steps);
            self.write_back(backend, steps);
        }
    }

    /// As [`commit`](Self::commit), to a dirty copy in place of the backend.
    fn merge(&mut self, backend: u32, base: Option<u32>, writes: &[u32], steps: &mut Vec<Step>) {
        self.load_all(backend, base, writes, steps);
        let of = self.copies.get_mut(&backend).expect("it was found");
        (of.read, of.write) = (base.unwrap_or(NONE), NONE);
        self.copy(backend, true, steps);
        writes.iter().for_each(|number| self.retire(*number));
    }

    /// What a bucket holds that cannot be read goes to a copy that says so.
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

    /// Brings a backend bucket with all its logs to memory.
    fn load_all(&mut self, backend: u32, base: Option<u32>, writes: &[u32], steps: &mut Vec<Step>) {
        let extent = self.config.extent(backend);
        let mut below = Copies { write: NONE, read: base.unwrap_or(NONE), count: 0 };
        if writes.is_empty() {
            self.load(backend, &below, 0, extent, steps);
        }
        // What older logs made of it is below the newer ones: memory is loaded from the lowest, and each bucket of logs laid over it.
        for (above, write) in writes.iter().enumerate() {
            below.write = *write;
            if above == 0 {
                self.load(backend, &below, 0, extent, steps);
            } else {
                self.lay_over(backend, *write, steps);
            }
        }
    }

    /// Lays the logs of a bucket over what is in memory, in their order.
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
