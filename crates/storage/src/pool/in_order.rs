//! A pool whose cache writes back in order: the disks without the flash are a state of all logical disks together.
//!
//! The map is not in the order, because it is written at once. So it changes only if the disks then show nothing newer:
//!
//! - A new chunk is zeroed on its disk before its place is recorded. Nothing reads it before, so its zeroes wait for no
//!   earlier epoch.
//! - A trimmed chunk keeps its place until the disk has the zeroes. A chunk moves once its disk has the copy.
//! - A released chunk rests until the disks have all its versions in the log. Otherwise a late write-back could show
//!   them to its next owner. After a power failure, a chunk of a thick logical disk without data rests, too.
//!
//! With a journal, the disks have data once its group has the mark. So a start never writes a group over the data of a
//! later owner. A missing disk keeps its blocks of a group in the journal, by its UUID: another disk may take over its
//! chunk numbers.
//!
//! Everything that a client could have seen as durable before a change is then on the disks, or the map does not show
//! it.

use std::collections::BTreeSet;

use flashwise_core::format::Place;

use super::Tables;
use super::commits::Job;
use super::first_writes::add_unmapped;
use super::logical::LogicalDisk;
use super::map::Entry;
use super::owners::chunk_of;
use super::pieces::cut;
use super::resting::Resting;
use crate::export::{Done, Error, Request};

impl LogicalDisk {
    /// Trims chunks whose places stay for now. Writes to them wait meanwhile, so that none comes before the trim. None
    /// of these chunks moves meanwhile, not even one that is trimmed only in part.
    pub(super) fn trim_in_order(&self, request: Request, done: Done) {
        self.give_up(&request, true);
        let held = {
            let mut entries = self.logical.entries_mut();
            let chunks = LogicalDisk::chunks(&request);
            match entries.get(chunks.clone()).map(|entries| entries.iter().any(|entry| entry.is_held())) {
                None => return done(Err(Error::Invalid)),
                Some(true) => None,
                Some(false) => {
                    let written: Vec<usize> = chunks.filter(|at| entries[*at].written().is_some()).collect();
                    for &at in &written {
                        entries.hold(at, true);
                    }
                    Some(written)
                }
            }
        };
        let Some(held) = held else {
            if let Some((request, done)) = self.wait(request, done) {
                self.trim_in_order(request, done);
            }
            return;
        };
        let Some(disk) = self.shared.export(self.id) else { return done(Err(Error::ShuttingDown)) };
        // Requests that found the places before are in the cache by then.
        self.shared.queue(Job::Drained(Box::new(move || disk.trim_held(held, request, done))));
    }

    fn trim_held(&self, held: Vec<usize>, mut request: Request, done: Done) {
        let _pass = self.shared.gate.enter();
        let mut pieces = Vec::new();
        cut(&request, &self.logical.entries()[LogicalDisk::chunks(&request)], &mut pieces);
        let disk = self.shared.export(self.id).filter(|_| !self.is_closed());
        let Some(disk) = disk else { return done(Err(Error::ShuttingDown)) };
        let whole = self.covered(&request);
        let done = self.durable(&mut request, done);
        let ended: Done = Box::new(move |result: Result<Vec<u8>, Error>| {
            let zeroed = whole.filter(|at| result.is_ok() && held.contains(at)).collect();
            disk.trimmed(&held, zeroed);
            done(result);
        });
        self.submit_pieces(request, &pieces, ended, false);
    }

    fn trimmed(&self, held: &[usize], zeroed: Vec<usize>) {
        {
            let mut entries = self.logical.entries_mut();
            for &at in held {
                entries.hold(at, false);
            }
            self.trimmed.add(&zeroed);
        }
        self.release_waiting();
    }

    /// Releases the trimmed chunks whose zeroes the disks have.
    pub(super) fn release_trimmed(&self) {
        let is_written_back = self.shared.volume().written_back();
        let mut done = self.trimmed.done(&is_written_back);
        {
            let mut entries = self.logical.entries_mut();
            done.retain(|at| entries.get(*at).is_some_and(|entry| entry.written().is_some() && !entry.is_held()));
            for &at in &done {
                entries.hold(at, true);
            }
        }
        if done.is_empty() {
            return;
        }
        // Writes that found the places before are noted by then.
        self.shared.gate.drain();
        let still_done: BTreeSet<usize> = self.trimmed.done(&is_written_back).into_iter().collect();
        let mut state = self.shared.state();
        if !state.metadata.map.logicals.contains_key(&self.id) {
            return;
        }
        let (mut changes, mut released) = (Vec::new(), Vec::new());
        {
            let mut entries = self.logical.entries_mut();
            for at in done {
                if still_done.contains(&at) {
                    self.trimmed.written(at..at + 1);
                    released.extend(entries[at].chunk());
                    entries.set(at, Entry::default());
                    add_unmapped(&mut changes, self.id, at as u32);
                } else {
                    entries.hold(at, false);
                }
            }
        }
        self.shared.add_pending(&mut state, changes, released);
        drop(state);
        self.release_waiting();
    }
}

impl Tables {
    /// Lets chunks rest that have no data according to the map, although the log has versions of these blocks.
    pub(super) fn rest(&mut self, end: Place, blocks: impl IntoIterator<Item = u32>) {
        let mut chunks: BTreeSet<u32> = blocks.into_iter().map(|block| chunk_of(u64::from(block))).collect();
        let map = &mut self.metadata.map;
        let released: Vec<u32> =
            chunks.extract_if(.., |chunk| map.space.is_free(*chunk) && map.space.take(*chunk)).collect();
        let mut unwritten = Vec::new();
        for logical in map.logicals.values() {
            let entries = logical.entries();
            let without_data = entries.there().filter(|(_, entry)| entry.written().is_none());
            unwritten.extend(without_data.filter_map(|(_, entry)| entry.chunk()).filter(|it| chunks.contains(it)));
        }
        if !released.is_empty() || !unwritten.is_empty() {
            self.resting.push(Resting { end, released, unwritten });
        }
    }

    /// Forgets resting chunks of a disk that is given up.
    pub(super) fn wake_resting(&mut self, of: impl Fn(u32) -> bool) {
        for rest in &mut self.resting {
            for chunk in rest.released.extract_if(.., |chunk| of(*chunk)) {
                self.metadata.map.space.free(chunk);
            }
        }
    }
}
