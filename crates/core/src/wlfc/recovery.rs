//! Finding the cache again after a power failure, from what its pages say out of band.
//!
//! Source: WLFC, section IV.D.
//!
//! Departures from the paper:
//! - The paper keeps, of several cache buckets of a backend bucket, the one with the highest epoch. That loses writes: a read copy that was
//!   allocated after the bucket of logs does not have what was logged later. Here the newest whole copy counts, and all buckets of logs that
//!   are still there, the older below the newer. Not even the newest of each kind would do: a copy that was evicted before logs went to
//!   the backend, and that is not erased yet, would cover what those logs changed.
//! - This is sound because evicted buckets are erased in their order, each once what took its place is durable: of what a power failure
//!   leaves of a backend bucket, nothing that came after the oldest is missing unless it is elsewhere.
//! - A backend bucket with more than one bucket of logs, or that finds no room in the queues, is written back.

use std::collections::BTreeMap;

use super::bucket::{Bucket, Entry, Log, Oob, State};
use super::config::{Config, ConfigError};
use super::step::Step;
use super::{Copies, NONE, Wlfc};

/// The backend bucket of what counts for none.
const NOBODY: u32 = u32::MAX;

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

/// The cache that was found in `scans`, one for each cache bucket, and what has to be done before its first request.
///
/// # Errors
/// [`Config::check`] says what cannot work.
pub fn recover(config: Config, scans: &[Scan]) -> Result<(Wlfc, Vec<Step>), ConfigError> {
    recover_by(config, scans, &mut |_, _| {})
}

/// `drop_by` may drop what another rule would not let count.
fn recover_by(config: Config, scans: &[Scan], drop_by: DropBy) -> Result<(Wlfc, Vec<Step>), ConfigError> {
    let mut wlfc = Wlfc::new(config)?;
    assert_eq!(scans.len(), wlfc.buckets.len(), "every bucket was scanned");
    // What counts, by backend bucket; torn copies, of which nothing counts, are erased first.
    let mut found: BTreeMap<u32, Found> = BTreeMap::new();
    let mut epochs: Vec<(u64, u32)> = Vec::new();
    for (number, scan) in (0..).zip(scans) {
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
    order.sort_by_key(|(_, found)| std::cmp::Reverse(newest(&wlfc, found)));
    let mut copies_kept = Vec::new();
    for (backend, Found { mut copies, writes }) in order {
        let base = copies.pop();
        let mut counting = Counting { dropped: copies, base: base.into_iter().collect(), writes };
        drop_by(&wlfc.buckets, &mut counting);
        let Counting { dropped, base, writes } = counting;
        dropped.iter().for_each(|number| wlfc.retire(*number));
        let room = (wlfc.queues.write.len() + writes.len()) as u32 <= wlfc.config.write_queue
            && (copies_kept.len() + base.len()) as u32 <= wlfc.config.read_queue;
        if writes.len() > 1 || !room {
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
        let entries = logs.map(entry).collect();
        let next_page = if scan.torn { self.config.bucket_pages() } else { scan.end };
        self.buckets[number as usize] = Bucket { state, backend, epoch, next_page, entries, fresh: 0 };
    }

    /// Writes back a backend bucket with all its logs, which may be in several buckets. Repeating it changes nothing.
    fn commit(&mut self, backend: u32, base: Option<u32>, writes: &[u32], steps: &mut Vec<Step>) {
        let has_data = writes.iter().any(|write| self.has_data(*write));
        let dirty = base.is_some_and(|base| self.buckets[base as usize].state == State::Dirty);
        if !has_data && !dirty {
            return;
        }
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
        self.write_back(backend, steps);
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
        recover_by(config, scans, drop_by).expect("the cache was there before")
    }
}
