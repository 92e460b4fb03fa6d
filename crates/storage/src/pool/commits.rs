//! The thread that makes the map durable.
//!
//! It collects pending jobs, makes the cache durable, and records the changes. Then the cache discards the released
//! chunks, and they become free.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use flashwise_core::filter::Caching;
use flashwise_engine::engine::Bug;

use super::map::{Entry, Logical};
use super::metadata::REVIVE_INTERVAL;
use super::owners::chunk_of;
use super::record::Change;
use super::resting::Resting;
use super::{CHUNK_BYTES, LogicalDisk, PoolError, Shared, Tables};
use crate::export::{Done, Error, Export, Operation, Request};
use crate::time::{self, JoinHandle, Receiver, channel};
use crate::vital;

/// Work to do once all changes in memory are durable.
pub(super) enum Job {
    /// Answers a flush of a logical disk.
    Flush(u32, Done),
    /// Retries an operation that needed free chunks.
    Again(Box<dyn FnOnce() + Send>),
    /// Runs once all requests that looked up the map before are in the cache, whether or not changes are durable.
    Drained(Box<dyn FnOnce() + Send>),
    /// Completes an operation of an administrator.
    Changed(Box<dyn FnOnce(Result<(), PoolError>) + Send>),
}

/// Maximum time to write back everything, while chunks wait to move or writes wait for space.
const WAITS_AT_MOST: Duration = Duration::from_secs(60);
/// Interval of looks at the progress.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);
/// Length of the largest trim of released chunks.
const TRIM_BYTES: u64 = 1 << 30;

pub(super) fn start(shared: Arc<Shared>, jobs: Receiver<Job>) -> io::Result<JoinHandle> {
    let name = format!("pool {}", shared.name);
    vital::spawn(&name, move || {
        let (mut told, mut cleaned): (Option<String>, _) = (None, time::now());
        loop {
            if time::elapsed(cleaned) >= REVIVE_INTERVAL {
                shared.clean();
                cleaned = time::now();
            }
            // At most once per interval, regardless of other work. A disk that fails again is retried.
            let _ = shared.state().metadata.bring_up_to_date();
            shared.wake();
            let first = match jobs.recv_timeout(REVIVE_INTERVAL) {
                Ok(first) => Some(first),
                // Trimmed chunks wait for an end of an epoch, and the map follows the data.
                Err(RecvTimeoutError::Timeout) if shared.is_in_order() && shared.has_changes() => None,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            let is_tick = first.is_none();
            let (drained, batch): (Vec<Job>, Vec<Job>) =
                first.into_iter().chain(jobs.try_iter()).partition(|job| matches!(job, Job::Drained(_)));
            if !drained.is_empty() {
                shared.gate.drain();
            }
            for job in drained {
                let Job::Drained(go_on) = job else { unreachable!("others are in the batch") };
                go_on();
            }
            if batch.is_empty() && !is_tick {
                continue;
            }
            let lacks_space = batch.iter().any(|job| matches!(job, Job::Again(_)));
            let result = match lacks_space && shared.is_in_order() && shared.has_resting() {
                true => shared.make_room(),
                false => shared.round(),
            };
            let held_back = result.as_ref().ok().cloned().unwrap_or_default();
            // Logs a failure once, until it changes or is resolved.
            let failure = result.as_ref().err().map(ToString::to_string);
            if let Some(error) = failure.as_ref().filter(|_| failure != told) {
                tracing::error!(
                    event = "map-not-durable",
                    pool = shared.name,
                    error,
                    "changes of the map are not durable"
                );
            }
            told = failure;
            // Clients get an error code; the operation of an administrator gets the whole error.
            let failed = result.err().map(Arc::new);
            for job in batch {
                match (job, &failed) {
                    // Held-back changes are not committed, even if recovered since.
                    (Job::Flush(disk, done), None) if held_back.contains(&disk) => done(Err(Error::Io)),
                    (Job::Flush(_, done), None) => done(Ok(Vec::new())),
                    (Job::Flush(_, done), Some(error)) => done(Err(from_pool(error))),
                    (Job::Again(again) | Job::Drained(again), _) => again(),
                    (Job::Changed(done), None) => done(Ok(())),
                    (Job::Changed(done), Some(error)) => done(Err(PoolError::Together(error.clone()))),
                }
            }
        }
    })
}

fn from_pool(error: &PoolError) -> Error {
    if matches!(error, PoolError::MapFull { .. }) { Error::NoSpace } else { Error::Io }
}

/// Marks the places of changes as durable or pending.
fn settle(state: &Tables, changes: &[Change], durable: bool) {
    for change in changes {
        let Change::Mapped(id, run) = change else { continue };
        let Some(logical) = state.metadata.map.logicals.get(id) else { continue };
        let mut entries = logical.entries_mut();
        for k in 0..run.count {
            let at = (run.first + k * run.step) as usize;
            // The logical disk may have shrunk again.
            let Some(&entry) = entries.get(at) else { continue };
            let (chunk, has) = (run.chunk + k, entry.chunk());
            if entry.written() == Some(chunk) {
                entries.set(at, entry.pending(!durable));
            } else if entry.is_held() && !entry.is_pending() && has.is_some() && has != Some(chunk) && durable {
                // The chunk moves from one disk to another.
                entries.set(at, Entry::at(chunk, run.written).held(true));
            }
            // A later change covers entries that have changed since.
        }
    }
}

/// Returns the held entries of changes, with their current values.
fn held(state: &Tables, changes: &[Change]) -> Vec<(Arc<Logical>, usize, Entry)> {
    let mut found = Vec::new();
    for change in changes {
        let Change::Mapped(id, run) = change else { continue };
        let Some(logical) = state.metadata.map.logicals.get(id) else { continue };
        let entries = logical.entries();
        let all = (0..run.count).map(|k| (run.first + k * run.step) as usize);
        let there = all.filter_map(|at| Some((at, *entries.get(at)?)));
        found.extend(there.filter(|(_, entry)| entry.is_held()).map(|(at, entry)| (logical.clone(), at, entry)));
    }
    found
}

impl Shared {
    /// Queues a job that runs once all changes in memory are durable.
    pub(super) fn queue(&self, job: Job) {
        let jobs = self.jobs.lock();
        if let Some(jobs) = &*jobs {
            // The thread ends only after the sender is dropped.
            let _ = jobs.send(job);
            return;
        }
        // The job may queue another one.
        drop(jobs);
        match job {
            Job::Flush(_, done) => done(Err(Error::ShuttingDown)),
            Job::Again(again) | Job::Drained(again) => again(),
            Job::Changed(done) => {
                done(Err(self.refuse("it is closed".to_owned())));
            }
        }
    }

    /// Makes all changes in memory durable, and waits for it.
    pub(super) fn commit_now(&self) -> Result<(), PoolError> {
        let (sender, receiver) = channel();
        self.queue(Job::Changed(Box::new(move |result| drop(sender.send(result)))));
        receiver.recv().unwrap_or_else(|_| Err(self.refuse("it is being closed".to_owned())))
    }

    /// Performs a client's flush.
    pub(super) fn flush(&self, disk: u32, request: Request, done: Done) {
        if self.uncommitted.load(Ordering::SeqCst) == 0 {
            self.volume().submit(request, done);
        } else {
            self.queue(Job::Flush(disk, done));
        }
    }

    /// Makes the changes in memory durable. Returns the logical disks with held-back changes.
    fn round(&self) -> Result<BTreeSet<u32>, PoolError> {
        let (batch, released) = {
            let mut state = self.state();
            state.committing = true;
            (std::mem::take(&mut state.pending), std::mem::take(&mut state.released))
        };
        let put_back = |batch: Vec<Change>, released: &[u32]| {
            let mut state = self.state();
            state.committing = false;
            let later = std::mem::replace(&mut state.pending, batch);
            state.pending.extend(later);
            state.released.extend(released);
        };
        if let Err(error) = self.flush_and_end_epoch() {
            put_back(batch, &released);
            return Err(error);
        }
        let (batch, held_back) = self.without_lost(batch);
        if let Err(error) = self.write_down(&batch) {
            let mut all = batch;
            all.extend(held_back);
            put_back(all, &released);
            return Err(error);
        }
        let written = batch.len();
        // Chunks released by a held-back change stay in use until it is recorded.
        let freed = match held_back.is_empty() {
            true => self.forget(&released),
            false => Ok(released.clone()),
        };
        let kept = freed.as_ref().map_or(&released[..], Vec::as_slice);
        let done = written + released.len() - kept.len();
        let of = held_back.iter().filter_map(Change::logical).collect();
        put_back(held_back, kept);
        self.uncommitted.fetch_sub(done as u64, Ordering::SeqCst);
        freed.map(|_| of)
    }

    /// As `round`, and frees the chunks that wait for their disks.
    fn make_room(&self) -> Result<BTreeSet<u32>, PoolError> {
        let before = self.round()?;
        // A failure leaves the chunks as they are.
        let waited = self.write_back().and_then(|()| {
            self.wake();
            self.round()?;
            self.write_back()
        });
        if waited.is_ok() {
            self.wake();
        }
        Ok(before)
    }

    /// True if a round has something to do.
    fn has_changes(&self) -> bool {
        self.uncommitted.load(Ordering::SeqCst) > 0 || self.has_fresh()
    }

    /// Splits off the changes of logical disks that have lost a block of a changed chunk, in order. These changes are
    /// recorded once nothing of the disk is lost, and its flushes fail until then. Other logical disks are not
    /// affected.
    fn without_lost(&self, batch: Vec<Change>) -> (Vec<Change>, Vec<Change>) {
        let lost = self.lost_chunks();
        if lost.is_empty() {
            return (batch, Vec::new());
        }
        let state = self.state();
        let mut stuck = BTreeSet::new();
        batch.into_iter().partition(|change| {
            let of = match change {
                Change::Mapped(id, run) => {
                    if lost.range(run.chunk..run.chunk + run.count).next().is_some() {
                        stuck.insert(*id);
                    }
                    id
                }
                Change::Unmapped(id, ..) | Change::Lost(id, ..) => id,
                _ => return true,
            };
            // Changes of a deleted logical disk are never recorded.
            !stuck.contains(of) || !state.metadata.map.logicals.contains_key(of)
        })
    }

    /// Records the owners of chunks, whose contents are durable by now.
    fn write_down(&self, batch: &[Change]) -> Result<(), PoolError> {
        let mut state = self.state();
        let moved = held(&state, batch);
        settle(&state, batch, true);
        state.metadata.map.space.note_owner();
        let written = state.metadata.commit(batch);
        if written.is_err() {
            settle(&state, batch, false);
            for (logical, at, before) in moved {
                logical.entries_mut().set(at, before);
            }
        }
        written
    }

    /// Makes the cache discard chunks durably, and frees them. Returns the chunks that stay in use because blocks of
    /// them are lost.
    fn forget(&self, released: &[u32]) -> Result<Vec<u32>, PoolError> {
        if released.is_empty() {
            return Ok(Vec::new());
        }
        // Requests that used an old place are in the cache after this, ahead of the trim.
        self.gate.drain();
        let mut chunks = released.to_vec();
        chunks.sort_unstable();
        let mut unclean: BTreeSet<u32> = BTreeSet::new();
        let failed = self.volume().failed_flushes();
        let mut at = 0;
        while at < chunks.len() {
            let first = chunks[at];
            let follows =
                |(k, chunk): &(usize, &u32)| **chunk == first + *k as u32 && (*k as u64) < TRIM_BYTES / CHUNK_BYTES;
            let count = chunks[at..].iter().enumerate().take_while(follows).count();
            at += count;
            let (offset, length) = (u64::from(first) * CHUNK_BYTES, count as u64 * CHUNK_BYTES);
            if let Err(error) = self.ask(Operation::Trim, offset, length, Vec::new()) {
                tracing::debug!(event = "trim-failed", pool = self.name, %error, offset, length, "freed chunks cannot \
                    be trimmed");
                let one =
                    |chunk: &u32| self.ask(Operation::Trim, u64::from(*chunk) * CHUNK_BYTES, CHUNK_BYTES, Vec::new());
                let alone = (first..first + count as u32).filter(|chunk| count == 1 || one(chunk).is_err());
                unclean.extend(alone.filter(|chunk| self.is_to_be_clean(*chunk)));
            }
        }
        self.flush_cache()?;
        if self.volume().failed_flushes() != failed {
            // That flush may have lost the zeroes, whichever client got the error.
            return Ok(chunks);
        }
        let lost = self.lost_chunks();
        let (kept, free): (Vec<u32>, Vec<u32>) = chunks.into_iter().partition(|chunk| lost.contains(chunk));
        let end = self.volume().ended_epochs().filter(|_| !self.has_planted(Bug::ReusesAtOnce));
        let mut state = self.state();
        unclean.retain(|chunk| !lost.contains(chunk));
        if let Some(end) = end {
            let free = free.into_iter().filter(|chunk| !unclean.contains(chunk)).collect();
            state.resting.push(Resting { end, released: free, unwritten: Vec::new() });
            state.unclean.extend(unclean);
            return Ok(kept);
        }
        for chunk in free.into_iter().filter(|chunk| !unclean.contains(chunk)) {
            state.metadata.map.space.free(chunk);
            state.given_back += 1;
        }
        state.unclean.extend(unclean);
        Ok(kept)
    }

    /// True if a chunk must be zeroed before its reuse. Chunks of a missing disk are handled when it returns, and a
    /// disk that is being evacuated allocates none.
    fn is_to_be_clean(&self, chunk: u32) -> bool {
        let state = self.state();
        let member = state.metadata.map.disk_of(chunk).and_then(|id| state.metadata.map.disks.get(&id));
        member.is_some_and(|member| !member.leaving) && !self.is_missing(u64::from(chunk) * CHUNK_BYTES)
    }

    /// Retries to zero unclean chunks. Otherwise the next owner could read the old contents, even after writes of its
    /// own.
    fn clean(&self) {
        let mut unclean = std::mem::take(&mut self.state().unclean);
        unclean.retain(|chunk| self.state().metadata.map.disk_of(*chunk).is_some());
        if unclean.is_empty() {
            return;
        }
        match self.forget(&unclean) {
            Ok(kept) => self.state().unclean.extend(kept),
            Err(_) => self.state().unclean.extend(unclean),
        }
    }

    /// Makes the cache durable, except for lost blocks.
    pub(super) fn flush_cache(&self) -> Result<(), PoolError> {
        self.volume().flush().map_err(|error| {
            let why = self.volume().state().1.unwrap_or_else(|| error.to_string());
            self.cache_failed(format!("it cannot be flushed: {why}"))
        })
    }

    /// Performs the pool's own writes and makes them durable. Fails if any flush failed meanwhile, because that flush
    /// may have lost these writes.
    pub(super) fn durably(&self, write: impl FnOnce() -> Result<(), PoolError>) -> Result<(), PoolError> {
        let failed = self.volume().failed_flushes();
        write()?;
        self.flush_cache()?;
        match self.volume().failed_flushes() == failed {
            true => Ok(()),
            false => Err(self.cache_failed("a flush of its disks has failed".to_owned())),
        }
    }

    /// Returns the chunks with blocks that are lost, or exist only in memory, and whose loss no flush reports.
    fn lost_chunks(&self) -> BTreeSet<u32> {
        self.volume().not_durable_blocks().into_iter().map(chunk_of).collect()
    }

    /// Fails if a block of a logical disk is lost or exists only in memory; `None` checks all logical disks.
    pub(super) fn check_none_lost(&self, of: Option<u32>) -> Result<(), PoolError> {
        let chunks = self.lost_chunks();
        let is_any = match of {
            None => !chunks.is_empty(),
            Some(disk) => self.state().owners_of(&chunks).values().any(|owner| owner.disk == disk),
        };
        match is_any {
            false => Ok(()),
            true => {
                let what = "acknowledged writes are not durable: blocks wait in memory for space, or are lost until \
                    new data is written there";
                Err(self.cache_failed(what.to_owned()))
            }
        }
    }

    pub(super) fn cache_failed(&self, what: String) -> PoolError {
        PoolError::CacheFailed { pool: self.name.clone(), what }
    }

    /// Sends a request to the cache and waits for the result.
    pub(super) fn ask(&self, operation: Operation, offset: u64, length: u64, data: Vec<u8>) -> Result<Vec<u8>, Error> {
        let (sender, receiver) = channel();
        let request = Request { operation, offset, length, force_unit_access: false, data, caching: Caching::Never };
        self.volume().submit(request, Box::new(move |result| drop(sender.send(result))));
        receiver.recv().unwrap_or(Err(Error::ShuttingDown))
    }

    /// True if data is written back in order.
    pub(super) fn is_in_order(&self) -> bool {
        self.volume().ended_epochs().is_some()
    }

    /// True if chunks wait for the disks, and then become free.
    pub(super) fn has_resting(&self) -> bool {
        !self.state().resting.is_empty() || self.exports.read().values().any(|disk| !disk.trimmed.is_empty())
    }

    /// True if chunks were trimmed since the last flush.
    pub(super) fn has_fresh(&self) -> bool {
        self.exports.read().values().any(|disk| !disk.trimmed.is_empty() && disk.trimmed.has_fresh())
    }

    fn each_trimmed(&self, act: impl Fn(&LogicalDisk)) {
        let disks: Vec<_> = self.exports.read().values().filter(|disk| !disk.trimmed.is_empty()).cloned().collect();
        disks.iter().for_each(|disk| act(disk));
    }

    /// Makes the cache durable, which ends an epoch. Only the thread of commits does this.
    pub(super) fn flush_and_end_epoch(&self) -> Result<(), PoolError> {
        self.each_trimmed(|disk| disk.trimmed.begin_flush());
        let flushed = self.flush_cache();
        let end = self.volume().ended_epochs().filter(|_| flushed.is_ok());
        // After a failure, the next flush counts.
        if flushed.is_ok() {
            self.each_trimmed(|disk| disk.trimmed.end_flush(end));
        }
        flushed
    }

    /// Releases and frees chunks whose contents the disks have.
    pub(super) fn wake(&self) {
        if !self.has_resting() {
            return;
        }
        self.each_trimmed(LogicalDisk::release_trimmed);
        let is_written_back = self.volume().written_back();
        let mut state = self.state();
        let done: Vec<_> = state.resting.extract_if(.., |rest| is_written_back(rest.end)).collect();
        for rest in done {
            state.given_back += (rest.released.len() + rest.unwritten.len()) as u64;
            rest.released.into_iter().for_each(|chunk| state.metadata.map.space.free(chunk));
        }
    }

    pub(super) fn has_planted(&self, bug: Bug) -> bool {
        self.volume().config().planted == Some(bug)
    }

    /// Writes back everything that is durable now, in order, and waits for it.
    pub(super) fn write_back(&self) -> Result<(), PoolError> {
        if !self.is_in_order() {
            return Ok(());
        }
        self.flush_cache()?;
        let (volume, began) = (self.volume(), time::now());
        let Some(end) = volume.ended_epochs() else { return Ok(()) };
        volume.write_back_epochs();
        while !volume.written_back()(end) {
            if time::elapsed(began) > WAITS_AT_MOST {
                let what = format!("its disks did not take all data within {} s", WAITS_AT_MOST.as_secs());
                return Err(self.cache_failed(what));
            }
            time::sleep(LOOK_INTERVAL);
        }
        Ok(())
    }
}
