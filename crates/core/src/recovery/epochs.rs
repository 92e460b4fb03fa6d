//! The epochs of a log, found in its records, newest first.

use std::collections::HashMap;

use rustc_hash::FxBuildHasher;

use crate::epochs::{Epoch, Epochs};
use crate::format::{Place, Record};

/// The age of a mark: before the place from which clean copies are valid, or after it.
#[derive(Clone, Copy)]
pub(super) enum Age {
    Late,
    Early,
}

/// Stands for no epoch: the backend has the block, or something newer.
const NONE: u32 = u32::MAX;

/// The epochs found so far.
#[derive(Debug)]
pub(super) struct FoundEpochs {
    /// Records before this place do not count.
    from: Place,
    /// Those that have ended, newest first.
    ended: Vec<Epoch>,
    /// By [`Age`]: the end of those that are done.
    done: [Place; 2],
    /// The time since 1970 of the later one; 0 if it is unknown.
    done_unix_us: u64,
    /// By block: the epoch of the oldest version found so far, by the number of epochs that ended after it.
    oldest: HashMap<u32, u32, FxBuildHasher>,
}

impl FoundEpochs {
    /// Starts without epochs; their records count from a place on.
    pub fn new(from: Place) -> FoundEpochs {
        FoundEpochs {
            from,
            ended: Vec::new(),
            done: [Place::default(); 2],
            done_unix_us: 0,
            oldest: HashMap::default(),
        }
    }

    /// Notes a record that an epoch ends, after the pages before a place.
    pub fn ends(&mut self, end: Place, record: &Record) {
        if end >= self.from {
            let ended_unix_us = u64::from(record.block) * 1_000_000 + u64::from(record.slot) * 1_000;
            self.ended.push(Epoch { end, begun_us: 0, ended_unix_us, flushes: 0 });
        }
    }

    /// Notes a record that epochs before a place are done. It has the time of that place.
    pub fn done(&mut self, place: Place, record: &Record, age: Age) {
        if self.done.iter().all(|done| place > *done) {
            self.done_unix_us = u64::from(record.block) * 1_000_000;
        }
        let done = &mut self.done[age as usize];
        *done = place.max(*done);
    }

    /// True if the dirty copy at a place was written back.
    pub fn is_done(&self, place: Place, age: Age) -> bool {
        place < self.done[age as usize]
    }

    /// Notes a version of a block that is older than all of it before. Returns true if the backend needs it although it
    /// is not the newest: it `is_dirty` and the next version belongs to a later epoch.
    pub fn is_kept(&mut self, block: u32, place: Place, is_dirty: bool) -> bool {
        if self.done.iter().any(|done| place < *done) {
            return false;
        }
        let epoch = if is_dirty { self.ended.len() as u32 } else { NONE };
        let newer = self.oldest.insert(block, epoch);
        let is_kept = is_dirty && place >= self.from && newer.is_some_and(|newer| newer != NONE && newer != epoch);
        if newer == Some(NONE) {
            self.oldest.insert(block, NONE);
        }
        is_kept
    }

    /// Returns the epochs that the backend lacks.
    pub fn finish(self) -> Epochs {
        let [late, early] = self.done;
        Epochs::found(self.from, (late.max(early), self.done_unix_us), self.ended.into_iter().rev())
    }
}
