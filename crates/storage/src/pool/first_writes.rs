//! Writes to chunks of a logical disk without a place, and the release of places.
//!
//! The chunk is zeroed first, then the data is written. Requests for the chunk wait until both have completed; the next
//! flush then records its place. If the cache may keep the data, whole chunks are zeroed, otherwise only the parts
//! around the data. The disk may hold data of another owner, which a read would return if the cache were lost. With
//! write-back in order, the disk itself is zeroed first.

use std::ops::Range;
use std::sync::atomic::Ordering;

use flashwise_core::filter::Caching;
use flashwise_engine::Join;
use flashwise_engine::engine::Bug;

use super::commits::Job;
use super::entries::Entries;
use super::logical::LogicalDisk;
use super::map::Entry;
use super::pieces::{covers, cut, part, uncovered, whole};
use super::record::{Change, Run};
use super::{CHUNK_BYTES, Tables};
use crate::export::{Done, Error, Export, Operation, Request};

/// A chunk that gets a place for a write, or keeps its place until the others are zeroed.
#[derive(Clone, Copy)]
struct New {
    /// Its index in the logical disk.
    at: usize,
    chunk: u32,
    /// Its entry before.
    before: Entry,
}

impl New {
    /// True if this is the first write of the chunk.
    fn is_first(&self) -> bool {
        self.before.written().is_none()
    }

    /// Restores the entry after a failed write. Returns the place if it was allocated for this write.
    fn undo(self, entries: &mut Entries) -> Option<u32> {
        let before = if self.is_first() { self.before } else { entries[self.at].held(false) };
        entries.set(self.at, before);
        self.before.chunk().is_none().then_some(self.chunk)
    }
}

impl LogicalDisk {
    /// Allocates places for chunks and writes them.
    pub(super) fn write_new(&self, mut request: Request, done: Done) {
        let chunks = LogicalDisk::chunks(&request);
        let first = chunks.start;
        let mut pieces = Vec::new();
        let given = {
            let mut state = self.shared.state();
            if !state.metadata.map.logicals.contains_key(&self.id) {
                drop(state);
                return done(Err(Error::ShuttingDown));
            }
            let mut entries = self.logical.entries_mut();
            if entries[chunks.clone()].iter().any(|entry| entry.is_held()) {
                None
            } else {
                let new = self.place(&mut state, &mut entries, &request);
                if new.is_ok() {
                    cut(&request, &entries[chunks.clone()], &mut pieces);
                }
                Some(new.map_err(|error| (error, state.given_back)))
            }
        };
        let new = match given {
            None => {
                if let Some((request, done)) = self.wait(request, done) {
                    self.write_new(request, done);
                }
                return;
            }
            Some(Err((error, before))) => {
                // Chunks may be about to become free.
                let may_be_freed = self.shared.uncommitted.load(Ordering::SeqCst) > 0
                    || self.shared.has_resting()
                    || self.shared.state().given_back > before;
                return match (error, may_be_freed, self.shared.export(self.id)) {
                    (Error::NoSpace, true, Some(disk)) => self.shared.queue(Job::Again(Box::new(move || {
                        // Retries only if chunks were freed. Otherwise this loops while other changes are not durable.
                        if disk.shared.state().given_back > before {
                            disk.start(request, done, false);
                        } else {
                            disk.refuse(done, Error::NoSpace);
                        }
                    }))),
                    _ => self.refuse(done, error),
                };
            }
            Some(Ok(new)) => new,
        };
        let done = self.durable_after(&mut request, done);
        let places: Vec<_> = new.iter().filter(|new| new.is_first()).map(|new| (new.at, new.chunk)).collect();
        let finish: Done = {
            let disk = self.shared.export(self.id);
            Box::new(move |result| {
                if let Some(disk) = disk {
                    disk.placed(new, result.is_ok());
                }
                done(result);
            })
        };
        let in_order = self.shared.is_in_order();
        let may_stay_in_cache = request.caching == Caching::Usual && self.shared.volume().writes_back_to_flash();
        let zeroes = match (in_order, may_stay_in_cache) {
            // Each is small enough to wait for nothing.
            (true, _) => places.iter().flat_map(|place| whole(&[*place])).collect(),
            (false, true) => whole(&places),
            (false, false) => uncovered(&request, &places, first),
        };
        let is_unowned = in_order && !self.has_planted(Bug::ZeroesInOrder);
        let caching = if is_unowned { Caching::Unowned } else { request.caching };
        let (shared, id) = (self.shared.clone(), self.id);
        let write = move |zeroed: Result<(), Error>| {
            // A deletion trims the chunks, and no data may come after that.
            let pass = shared.gate.enter();
            let is_there = shared.state().metadata.map.logicals.contains_key(&id);
            if let Some(error) = zeroed.err().or((!is_there).then_some(Error::ShuttingDown)) {
                drop(pass);
                return finish(Err(error));
            }
            let join = Join::new(pieces.len(), Vec::new(), finish);
            for piece in &pieces {
                let place = piece.place.expect("every chunk of the request has its place");
                shared.volume().submit(part(&request, place, piece), join.piece(0));
            }
        };
        self.write_after_zeroes(zeroes, caching, write);
    }

    /// Zeroes ranges of the volume, and calls `write` after all of them have completed. If the volume retries the
    /// zeroes after a failure, they still never overwrite the data, which is submitted later.
    fn write_after_zeroes(
        &self,
        zeroes: Vec<(u64, u64)>,
        caching: Caching,
        write: impl FnOnce(Result<(), Error>) + Send + 'static,
    ) {
        if zeroes.is_empty() {
            return write(Ok(()));
        }
        let (zeroed, write): (Done, _) = match self.has_planted(Bug::ZeroesBesideData) {
            true => (Box::new(|_| ()), Some(write)),
            false => (Box::new(move |result| write(result.map(drop))), None),
        };
        let join = Join::new(zeroes.len(), Vec::new(), zeroed);
        for (offset, length) in zeroes {
            let zero = Request {
                operation: Operation::WriteZeroes { may_punch_holes: true, only_if_fast: false },
                offset,
                length,
                force_unit_access: false,
                data: Vec::new(),
                caching,
            };
            self.shared.volume().submit(zero, join.piece(0));
        }
        write.into_iter().for_each(|write| write(Ok(())));
    }

    fn has_planted(&self, bug: Bug) -> bool {
        self.shared.has_planted(bug)
    }

    /// Like `durable`, for a write whose places are certainly not recorded yet.
    pub(super) fn durable_after(&self, request: &mut Request, done: Done) -> Done {
        if !std::mem::take(&mut request.force_unit_access) {
            return done;
        }
        let (shared, id, done) = (self.shared.clone(), self.id, self.of_one(done));
        Box::new(move |result| match result {
            Ok(bytes) => shared.queue(Job::Flush(id, Box::new(move |flushed| done(flushed.map(|_| bytes))))),
            Err(error) => done(Err(error)),
        })
    }

    /// Allocates places for the chunks that have none, and holds all chunks. If one fails, none is changed. Chunks with
    /// data are held too: they must not move or be released before the new data is submitted, which waits for zeroes.
    fn place(&self, state: &mut Tables, entries: &mut Entries, request: &Request) -> Result<Vec<New>, Error> {
        let mut new: Vec<New> = Vec::new();
        let Tables { metadata, resting, .. } = state;
        let space = &mut metadata.map.space;
        for at in LogicalDisk::chunks(request) {
            let entry = entries[at];
            if let Some(chunk) = entry.written() {
                entries.hold(at, true);
                new.push(New { at, chunk, before: entry });
                continue;
            }
            let before = at.checked_sub(1).and_then(|before| entries[before].chunk());
            let chunk = match entry.chunk() {
                // A part of a lost chunk cannot be written, because the rest of it would stay lost.
                None if entry.is_lost() && !covers(request, at as u64) => Err(Error::Io),
                Some(chunk) if self.shared.is_missing(u64::from(chunk) * CHUNK_BYTES) => Err(Error::Io),
                Some(chunk) if resting.iter().any(|rest| rest.unwritten.contains(&chunk)) => Err(Error::NoSpace),
                Some(chunk) => Ok(chunk),
                None => space.allocate(at as u32, before, self.striped).ok_or(Error::NoSpace),
            };
            match chunk {
                Ok(chunk) => {
                    entries.set(at, entry.replaced_by(chunk));
                    new.push(New { at, chunk, before: entry });
                }
                Err(error) => {
                    // Nothing was written to these places.
                    new.into_iter().filter_map(|new| new.undo(entries)).for_each(|chunk| space.free(chunk));
                    return Err(error);
                }
            }
        }
        Ok(new)
    }

    /// Completes the first write of chunks: their places become pending changes, or are released.
    fn placed(&self, new: Vec<New>, written: bool) {
        {
            let mut state = self.shared.state();
            // A logical disk deleted meanwhile has released all its places.
            if state.metadata.map.logicals.contains_key(&self.id) {
                let mut entries = self.logical.entries_mut();
                let mut changes: Vec<Change> = Vec::new();
                let mut released = Vec::new();
                for new in new {
                    if written {
                        entries.hold(new.at, false);
                        if new.is_first() {
                            add_run(&mut changes, self.id, new.at as u32, new.chunk, true);
                        }
                    } else {
                        let place = new.undo(&mut entries);
                        released.extend(place.filter(|_| !self.has_planted(Bug::KeepsRefusedPlaces)));
                    }
                }
                drop(entries);
                self.shared.add_pending(&mut state, changes, released);
            }
        }
        self.release_waiting();
    }

    /// Returns the chunks that a request covers entirely.
    pub(super) fn covered(&self, request: &Request) -> Range<usize> {
        let (first, end) = (request.offset.div_ceil(CHUNK_BYTES), request.offset + request.length);
        // The last chunk may be shorter than a chunk.
        let is_last = end == self.logical.shape().size_bytes;
        let end = if is_last { end.div_ceil(CHUNK_BYTES) } else { end / CHUNK_BYTES };
        first as usize..end as usize
    }

    /// Releases the places of chunks that a request covers entirely and [frees](Self::frees), unless it `keeps` them,
    /// and clears lost chunks. Both read as zeroes afterwards.
    pub(super) fn give_up(&self, request: &Request, keeps: bool) {
        let whole = self.covered(request);
        if whole.is_empty() {
            return;
        }
        let mut state = self.shared.state();
        if !state.metadata.map.logicals.contains_key(&self.id) {
            return;
        }
        let mut entries = self.logical.entries_mut();
        let (mut changes, mut released) = (Vec::new(), Vec::new());
        for at in whole {
            let entry = entries[at];
            let written = entry.written().filter(|_| !keeps && !entry.is_held() && self.frees(request));
            let Some(chunk) = written else {
                if entry.is_lost() {
                    entries.set(at, Entry::default());
                    add_unmapped(&mut changes, self.id, at as u32);
                }
                continue;
            };
            if self.thick {
                entries.set(at, Entry::at(chunk, false));
                add_run(&mut changes, self.id, at as u32, chunk, false);
            } else {
                entries.set(at, Entry::default());
                released.push(chunk);
                add_unmapped(&mut changes, self.id, at as u32);
            }
        }
        drop(entries);
        if !changes.is_empty() {
            self.shared.add_pending(&mut state, changes, released);
        }
    }
}

pub(super) fn add_unmapped(changes: &mut Vec<Change>, id: u32, at: u32) {
    match changes.last_mut() {
        Some(Change::Unmapped(_, first, count)) if *first + *count == at => *count += 1,
        _ => changes.push(Change::Unmapped(id, at, 1)),
    }
}

/// Adds the place of a chunk to the changes, by extending the last run if it is contiguous.
pub(super) fn add_run(changes: &mut Vec<Change>, id: u32, at: u32, chunk: u32, written: bool) {
    if let Some(Change::Mapped(last, run)) = changes.last_mut()
        && run.step == 1
        && (*last, run.first + run.count, run.chunk + run.count, run.written) == (id, at, chunk, written)
    {
        run.count += 1;
        return;
    }
    changes.push(Change::Mapped(id, Run { first: at, step: 1, chunk, count: 1, written }));
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::pool::{NewLogical, Pool, PoolConfig, prepare};
    use crate::volume::VolumeConfig;

    #[test]
    fn a_write_with_new_chunks_holds_its_other_chunks_too() {
        let folder = tempfile::TempDir::new().unwrap();
        let disks = vec![folder.path().join("a.img")];
        std::fs::File::create(&disks[0]).unwrap().set_len(8 << 20).unwrap();
        drop(prepare::create("tank", &disks, &[]).unwrap());
        let mut cache = VolumeConfig::of("tank", Path::new(""), Path::new(""));
        cache.state_directory = folder.path().to_owned();
        let pool = Pool::open(PoolConfig { disks, degraded: false, cache }, &|_, _| ()).unwrap().0;
        pool.create_logical(&NewLogical {
            name: "vm".to_owned(),
            size_bytes: 1 << 20,
            thick: false,
            striped: false,
            cached: true,
            mode: None,
            pinned_ram_bytes: 0,
        })
        .unwrap();
        let disk = pool.logical("vm").unwrap();
        let write = |chunks: u64| Request {
            operation: Operation::Write,
            offset: 0,
            length: chunks * CHUNK_BYTES,
            force_unit_access: false,
            data: vec![1; (chunks * CHUNK_BYTES) as usize],
            caching: Caching::Usual,
        };
        let (sender, receiver) = std::sync::mpsc::channel();
        disk.submit(write(1), Box::new(move |result| drop(sender.send(result))));
        receiver.recv().unwrap().unwrap();
        let held = || disk.logical.entries()[..2].iter().map(|entry| entry.is_held()).collect::<Vec<_>>();
        for written in [false, true] {
            let new = disk.place(&mut pool.shared.state(), &mut disk.logical.entries_mut(), &write(2)).unwrap();
            assert_eq!(held(), [true, true]);
            disk.placed(new, written);
            assert_eq!(held(), [false, false]);
            let count = disk.logical.entries()[..2].iter().filter(|entry| entry.written().is_some()).count();
            assert_eq!(count, 1 + usize::from(written));
        }
    }
}
