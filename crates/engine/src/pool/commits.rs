//! The thread that makes the map durable: it collects what waits for that, makes the cache durable, writes the changes down, has the
//! cache forget the chunks that were given up, and gives them back.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;

use flashwise_core::filter::Caching;
use flashwise_core::format::BLOCK_BYTES;

use super::map::{Entry, Logical};
use super::record::Change;
use super::{CHUNK_BYTES, PoolError, Shared, State};
use crate::export::{Done, Error, Export, Operation, Request};

/// What is to be done once all changes are durable that are in memory now.
pub(super) enum Job {
    /// A flush is answered.
    Flush(Done),
    /// Something that needed free chunks is tried again; it is told whether there may be more of them.
    Again(Box<dyn FnOnce(bool) + Send>),
    /// An operator's change is done.
    Changed(Box<dyn FnOnce(Result<(), PoolError>) + Send>),
}

/// Largest request that gives up chunks.
const TRIM_BYTES: u64 = 1 << 30;

pub(super) fn start(shared: Arc<Shared>, jobs: Receiver<Job>) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(format!("pool {}", shared.name)).spawn(move || {
        let mut told: Option<String> = None;
        while let Ok(first) = jobs.recv() {
            let batch: Vec<Job> = std::iter::once(first).chain(jobs.try_iter()).collect();
            let result = shared.round();
            // Once, until it changes or works again.
            let failure = result.as_ref().err().map(ToString::to_string);
            if let Some(error) = failure.as_ref().filter(|_| failure != told) {
                tracing::error!(pool = shared.name, error, "changes of the map are not durable");
            }
            told = failure;
            // Errors are told to each; the operator's change has it whole.
            let failed = result.err().map(Arc::new);
            for job in batch {
                match (job, &failed) {
                    (Job::Flush(done), None) => done(Ok(Vec::new())),
                    (Job::Flush(done), Some(error)) => done(Err(Error::from_pool(error))),
                    (Job::Again(again), failed) => again(failed.is_none()),
                    (Job::Changed(done), None) => done(Ok(())),
                    (Job::Changed(done), Some(error)) => done(Err(PoolError::Together(error.clone()))),
                }
            }
        }
    })
}

impl Error {
    fn from_pool(error: &PoolError) -> Error {
        if matches!(error, PoolError::MapFull { .. }) { Error::NoSpace } else { Error::Io }
    }
}

/// Whether the places of changes are durable.
fn settle(state: &State, changes: &[Change], durable: bool) {
    for change in changes {
        let Change::Mapped(id, run) = change else { continue };
        let Some(logical) = state.metadata.map.logicals.get(id) else { continue };
        let mut entries = logical.entries_mut();
        for k in 0..run.count {
            let at = (run.first + k * run.step) as usize;
            let entry = entries[at];
            let (chunk, has) = (run.chunk + k, entry.chunk());
            if entry.written() == Some(chunk) {
                entries.set(at, entry.pending(!durable));
            } else if entry.is_held() && !entry.is_pending() && has.is_some() && has != Some(chunk) && durable {
                // It moves from one disk to another.
                entries.set(at, Entry::at(chunk, run.written).held(true));
            }
            // What has changed since is another change's affair.
        }
    }
}

/// Entries of changes that are held, as they are.
fn held(state: &State, changes: &[Change]) -> Vec<(Arc<Logical>, usize, Entry)> {
    let mut found = Vec::new();
    for change in changes {
        let Change::Mapped(id, run) = change else { continue };
        let Some(logical) = state.metadata.map.logicals.get(id) else { continue };
        let entries = logical.entries();
        let all = (0..run.count).map(|k| (run.first + k * run.step) as usize);
        found.extend(all.filter(|at| entries[*at].is_held()).map(|at| (logical.clone(), at, entries[at])));
    }
    found
}

impl Shared {
    /// Has a job done after the changes that are in memory now are durable.
    pub(super) fn queue(&self, job: Job) {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(jobs) = &*jobs else {
            let pool = self.name.clone();
            return match job {
                Job::Flush(done) => done(Err(Error::ShuttingDown)),
                Job::Again(again) => again(false),
                Job::Changed(done) => done(Err(PoolError::Refused { pool, what: "it is closed".to_owned() })),
            };
        };
        // The thread ends after the sender is gone.
        let _ = jobs.send(job);
    }

    /// Makes durable what is in memory now; returns when it is.
    pub(super) fn commit_now(&self) -> Result<(), PoolError> {
        let (sender, receiver) = channel();
        self.queue(Job::Changed(Box::new(move |result| drop(sender.send(result)))));
        receiver.recv().unwrap_or_else(|_| {
            Err(PoolError::Refused { pool: self.name.clone(), what: "it is being closed".to_owned() })
        })
    }

    /// A flush of a client.
    pub(super) fn flush(&self, request: Request, done: Done) {
        if self.uncommitted.load(Ordering::SeqCst) == 0 {
            self.volume().submit(request, done);
        } else {
            self.queue(Job::Flush(done));
        }
    }

    fn round(&self) -> Result<(), PoolError> {
        let (batch, released) = {
            let mut state = self.state();
            state.committing = true;
            (std::mem::take(&mut state.pending), std::mem::take(&mut state.released))
        };
        if let Err(error) = self.write_down(&batch) {
            let mut state = self.state();
            state.committing = false;
            let later = std::mem::replace(&mut state.pending, batch);
            state.pending.extend(later);
            state.released.extend(released);
            return Err(error);
        }
        let freed = self.forget(&released);
        if freed.is_err() {
            self.state().released.extend(&released);
        }
        let done = batch.len() + freed.as_ref().map_or(0, |()| released.len());
        self.uncommitted.fetch_sub(done as u64, Ordering::SeqCst);
        freed
    }

    /// What chunks hold is durable before it is written down that they belong to a logical disk.
    fn write_down(&self, batch: &[Change]) -> Result<(), PoolError> {
        self.flush_cache()?;
        let placed = |change: &Change| match change {
            Change::Mapped(_, run) => Some(run.chunk..run.chunk + run.count),
            _ => None,
        };
        let chunks: Vec<_> = batch.iter().filter_map(placed).collect();
        self.check_none_lost(|chunk| chunks.iter().any(|range| range.contains(&chunk)))?;
        let mut state = self.state();
        let moved = held(&state, batch);
        settle(&state, batch, true);
        let written = state.metadata.commit(batch);
        match &written {
            Ok(()) => state.committing = false,
            Err(_) => {
                settle(&state, batch, false);
                for (logical, at, before) in moved {
                    logical.entries_mut().set(at, before);
                }
            }
        }
        written
    }

    /// The cache forgets chunks durably; then they are free.
    fn forget(&self, released: &[u32]) -> Result<(), PoolError> {
        if released.is_empty() {
            return Ok(());
        }
        // Who still has an old place has handed the request over, which is performed before the chunk is given up.
        self.gate.drain();
        let mut chunks = released.to_vec();
        chunks.sort_unstable();
        let mut at = 0;
        while at < chunks.len() {
            let first = chunks[at];
            let follows =
                |(k, chunk): &(usize, &u32)| **chunk == first + *k as u32 && (*k as u64) < TRIM_BYTES / CHUNK_BYTES;
            let count = chunks[at..].iter().enumerate().take_while(follows).count();
            at += count;
            let (offset, length) = (u64::from(first) * CHUNK_BYTES, count as u64 * CHUNK_BYTES);
            // What lies on a disk that is missing can only be forgotten when that is back.
            if let Err(error) = self.ask(Operation::Trim, offset, length, Vec::new()) {
                tracing::warn!(pool = self.name, %error, offset, length, "chunks that were given up cannot be trimmed");
            }
        }
        self.flush_cache()?;
        self.check_none_lost(|chunk| chunks.binary_search(&chunk).is_ok())?;
        let mut state = self.state();
        chunks.into_iter().for_each(|chunk| state.metadata.map.space.free(chunk));
        Ok(())
    }

    /// Makes durable what the cache has, but for what is lost.
    pub(super) fn flush_cache(&self) -> Result<(), PoolError> {
        self.volume().flush().map_err(|error| {
            let why = self.volume().state().1.unwrap_or_else(|| error.to_string());
            self.cache_failed(format!("it cannot be flushed: {why}"))
        })
    }

    /// Refuses to go on where blocks of some chunks are lost that have no flash which says so.
    pub(super) fn check_none_lost(&self, of: impl Fn(u32) -> bool) -> Result<(), PoolError> {
        let volume = self.volume();
        if volume.has_flash() {
            return Ok(());
        }
        match volume
            .lost_blocks()
            .into_iter()
            .filter(|block| of((block * BLOCK_BYTES as u64 / CHUNK_BYTES) as u32))
            .count()
        {
            0 => Ok(()),
            1 => Err(self.cache_failed("a block is lost until it is written anew".to_owned())),
            many => Err(self.cache_failed(format!("{many} blocks are lost until they are written anew"))),
        }
    }

    pub(super) fn cache_failed(&self, what: String) -> PoolError {
        PoolError::CacheFailed { pool: self.name.clone(), what }
    }

    /// Asks the cache and waits for the answer.
    pub(super) fn ask(&self, operation: Operation, offset: u64, length: u64, data: Vec<u8>) -> Result<Vec<u8>, Error> {
        let (sender, receiver) = channel();
        let request = Request { operation, offset, length, force_unit_access: false, data, caching: Caching::Never };
        self.volume().submit(request, Box::new(move |result| drop(sender.send(result))));
        receiver.recv().unwrap_or(Err(Error::ShuttingDown))
    }
}
