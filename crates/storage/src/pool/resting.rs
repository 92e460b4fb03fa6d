//! Chunks that wait for the disks, if data is written back in order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use flashwise_core::format::Place;

use crate::time::Mutex;

/// The trimmed chunks of a logical disk that keep their places for now, by index.
#[derive(Default)]
pub(super) struct Trimmed {
    count: AtomicUsize,
    chunks: Mutex<Chunks>,
}

#[derive(Default)]
struct Chunks {
    /// Trims that no flush has followed.
    fresh: BTreeSet<usize>,
    /// The others, with the end of the epochs that the disks must have; `None` during that flush.
    flushed: BTreeMap<usize, Option<Place>>,
}

impl Trimmed {
    fn change<T>(&self, change: impl FnOnce(&mut Chunks) -> T) -> T {
        let mut chunks = self.chunks.lock();
        let result = change(&mut chunks);
        self.count.store(chunks.fresh.len() + chunks.flushed.len(), Ordering::SeqCst);
        result
    }

    pub fn has_fresh(&self) -> bool {
        !self.chunks.lock().fresh.is_empty()
    }

    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    /// Notes a write to chunks, which keep their places.
    pub fn written(&self, chunks: std::ops::Range<usize>) {
        if !self.is_empty() {
            self.change(|all| {
                all.fresh.retain(|at| !chunks.contains(at));
                all.flushed.retain(|at, _| !chunks.contains(at));
            });
        }
    }

    /// Notes trims that no flush has followed.
    pub fn add(&self, chunks: &[usize]) {
        self.change(|all| all.fresh.extend(chunks));
    }

    pub fn begin_flush(&self) {
        self.change(|all| all.flushed.extend(std::mem::take(&mut all.fresh).into_iter().map(|at| (at, None))));
    }

    pub fn end_flush(&self, end: Option<Place>) {
        self.change(|all| all.flushed.values_mut().for_each(|at| *at = at.or(end.or(Some(Place::default())))));
    }

    /// Returns the chunks whose zeroes the disks have.
    pub fn done(&self, is_done: &impl Fn(Place) -> bool) -> Vec<usize> {
        let chunks = self.chunks.lock();
        let done = chunks.flushed.iter().filter(|(_, end)| end.is_some_and(is_done));
        done.map(|(at, _)| *at).collect()
    }
}

/// Chunks that get no new data until the disks have all epochs up to an end.
pub(super) struct Resting {
    pub end: Place,
    /// Released chunks, which become free then.
    pub released: Vec<u32>,
    /// Chunks of thick logical disks that were never written, according to the map.
    pub unwritten: Vec<u32>,
}
