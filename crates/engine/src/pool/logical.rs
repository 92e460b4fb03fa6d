//! A logical disk as an export: it finds the places of a request's chunks and hands the pieces to the pool's cache.
//!
//! A chunk that has no place gets one with its first write. What the write leaves of it is made zeroes, and until both are answered
//! requests for the chunk wait; then its place is written down with the next flush.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use flashwise_core::filter::{Caching, Client};

use super::commits::Job;
use super::join::Join;
use super::map::{Entry, Logical};
use super::record::{Change, Run};
use super::{CHUNK_BYTES, Shared};
use crate::disk::ALIGNMENT;
use crate::export::{Done, Error, Export, Extent, Guest, Operation, Request};

/// A logical disk of an open pool.
pub struct LogicalDisk {
    pub(super) shared: Arc<Shared>,
    pub(super) id: u32,
    pub(super) logical: Arc<Logical>,
    size_bytes: AtomicU64,
    thick: bool,
    striped: bool,
    cached: AtomicBool,
    closed: AtomicBool,
    /// Requests for chunks that are held.
    waiting: Mutex<Vec<(Request, Done)>>,
    waiting_count: AtomicUsize,
    guests: Mutex<Vec<Weak<Guest>>>,
    pub(super) figures: Figures,
}

/// What was asked of a logical disk since the pool was opened.
#[derive(Debug, Default)]
pub(super) struct Figures {
    pub reads: AtomicU64,
    pub read_bytes: AtomicU64,
    pub writes: AtomicU64,
    pub written_bytes: AtomicU64,
    pub flushes: AtomicU64,
}

/// Bytes of a request that lie together: where in the pool, if anywhere, where in the request, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    place: Option<u64>,
    at: u64,
    length: u64,
}

/// Chunks that get their places with a write: which of the logical disk, and where.
type New = Vec<(usize, u32)>;

impl LogicalDisk {
    pub(super) fn new(shared: Arc<Shared>, id: u32, logical: Arc<Logical>) -> LogicalDisk {
        let shape = logical.shape();
        LogicalDisk {
            shared,
            id,
            logical,
            size_bytes: AtomicU64::new(shape.size_bytes),
            thick: shape.thick,
            striped: shape.striped,
            cached: AtomicBool::new(shape.cached),
            closed: AtomicBool::new(false),
            waiting: Mutex::default(),
            waiting_count: AtomicUsize::new(0),
            guests: Mutex::default(),
            figures: Figures::default(),
        }
    }

    /// Its name.
    pub fn name(&self) -> String {
        self.logical.shape().name
    }

    /// Clients that have it open.
    pub fn clients(&self) -> usize {
        let mut guests = self.guests.lock().unwrap_or_else(PoisonError::into_inner);
        guests.retain(|guest| guest.strong_count() > 0);
        guests.len()
    }

    pub(super) fn set_size(&self, size_bytes: u64) {
        self.size_bytes.store(size_bytes, Ordering::Release);
    }

    pub(super) fn set_cached(&self, cached: bool) {
        self.cached.store(cached, Ordering::Relaxed);
    }

    /// From now on, requests fail.
    pub(super) fn close(self: &Arc<Self>) {
        self.closed.store(true, Ordering::SeqCst);
        self.release_waiting();
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<(Request, Done)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts requests that waited for chunks.
    pub(super) fn release_waiting(&self) {
        let released = {
            let mut waiting = self.waiting();
            self.waiting_count.store(0, Ordering::SeqCst);
            std::mem::take(&mut *waiting)
        };
        for (request, done) in released {
            self.start(request, done, false);
        }
    }

    fn chunks(request: &Request) -> Range<usize> {
        let first = (request.offset / CHUNK_BYTES) as usize;
        first..(request.offset + request.length).div_ceil(CHUNK_BYTES) as usize
    }

    fn is_held(&self, chunks: &Range<usize>) -> bool {
        let entries = self.logical.entries();
        entries.get(chunks.clone()).is_some_and(|entries| entries.iter().any(|entry| entry.is_held()))
    }

    /// Lets a request wait if its chunks are held, or if it would pass one that waits.
    fn wait(&self, request: Request, done: Done) -> Option<(Request, Done)> {
        let mut waiting = self.waiting();
        let chunks = LogicalDisk::chunks(&request);
        let overlaps = |other: &Request| {
            let other = LogicalDisk::chunks(other);
            other.start < chunks.end && chunks.start < other.end
        };
        if self.is_held(&chunks) || waiting.iter().any(|(other, _)| overlaps(other)) {
            waiting.push((request, done));
            self.waiting_count.store(waiting.len(), Ordering::SeqCst);
            return None;
        }
        Some((request, done))
    }

    /// Starts a request that has bytes; what is returned, as of [`Export::submit_and_wait`].
    fn start(&self, request: Request, done: Done, may_wait: bool) -> bool {
        let (mut request, mut done) = (request, done);
        if self.closed.load(Ordering::SeqCst) {
            done(Err(Error::ShuttingDown));
            return false;
        }
        if self.waiting_count.load(Ordering::SeqCst) > 0 {
            match self.wait(request, done) {
                Some(back) => (request, done) = back,
                None => return false,
            }
        }
        let pass = self.shared.gate.enter();
        if self.closed.load(Ordering::SeqCst) {
            done(Err(Error::ShuttingDown));
            return false;
        }
        let chunks = LogicalDisk::chunks(&request);
        let mut pieces = Vec::new();
        let found = self.logical.entries().get(chunks.clone()).map(|entries| {
            let held = entries.iter().any(|entry| entry.is_held());
            let new = request.operation == Operation::Write && entries.iter().any(|entry| entry.written().is_none());
            cut(&request, entries, &mut pieces);
            (held, new)
        });
        let Some((held, new)) = found else {
            done(Err(Error::Invalid));
            return false;
        };
        if held {
            drop(pass);
            if let Some((request, done)) = self.wait(request, done) {
                return self.start(request, done, may_wait);
            }
            return false;
        }
        if pieces.iter().any(|piece| piece.place.is_some_and(|place| self.shared.is_missing(place))) {
            done(Err(Error::Io));
            return false;
        }
        if !self.cached.load(Ordering::Relaxed) {
            request.caching = Caching::Never;
        }
        if new {
            self.write_new(request, done);
            return false;
        }
        if request.operation == Operation::Trim {
            self.give_up(&request);
        }
        let done = self.durable(&mut request, done);
        self.submit_pieces(request, &pieces, done, may_wait)
    }

    /// A request that is to be durable needs the map to be durable as well, where that is not so yet.
    fn durable(&self, request: &mut Request, done: Done) -> Done {
        if !request.force_unit_access || self.shared.uncommitted.load(Ordering::SeqCst) == 0 {
            return done;
        }
        request.force_unit_access = false;
        let shared = self.shared.clone();
        Box::new(move |result| match result {
            Ok(bytes) => {
                shared.queue(Job::Flush(Box::new(move |flushed| done(flushed.map(|_| bytes)))));
            }
            Err(error) => done(Err(error)),
        })
    }

    fn submit_pieces(&self, mut request: Request, pieces: &[Piece], done: Done, may_wait: bool) -> bool {
        let volume = self.shared.volume();
        if let [Piece { place: Some(place), .. }] = pieces {
            request.offset = *place;
            return if may_wait {
                volume.submit_and_wait(request, done)
            } else {
                volume.submit(request, done);
                false
            };
        }
        let placed = pieces.iter().filter(|piece| piece.place.is_some()).count();
        let bytes = if request.operation == Operation::Read { vec![0; request.length as usize] } else { Vec::new() };
        if placed == 0 {
            done(Ok(bytes));
            return false;
        }
        let join = Join::new(placed, bytes, done);
        for (place, piece) in pieces.iter().filter_map(|piece| Some((piece.place?, piece))) {
            volume.submit(part(&request, place, piece), join.piece(piece.at as usize));
        }
        false
    }

    /// Gives places to chunks and writes them.
    fn write_new(&self, mut request: Request, done: Done) {
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
                let new = self.place(&mut state.metadata.map.space, &mut entries, chunks.clone());
                if new.is_ok() {
                    cut(&request, &entries[chunks.clone()], &mut pieces);
                }
                // Chunks may be on their way to be free.
                Some(new.map_err(|error| (error, self.shared.uncommitted.load(Ordering::SeqCst) > 0)))
            }
        };
        let new = match given {
            None => {
                if let Some((request, done)) = self.wait(request, done) {
                    self.write_new(request, done);
                }
                return;
            }
            Some(Err((error, may_be_freed))) => {
                return match (error, may_be_freed, self.shared.export(self.id)) {
                    (Error::NoSpace, true, Some(disk)) => self.shared.queue(Job::Again(Box::new(move |may_be_free| {
                        if may_be_free {
                            disk.start(request, done, false);
                        } else {
                            done(Err(Error::NoSpace));
                        }
                    }))),
                    _ => done(Err(error)),
                };
            }
            Some(Ok(new)) => new,
        };
        let done = self.durable_after(&mut request, done);
        let finish: Done = {
            let disk = self.shared.export(self.id);
            let places = new.clone();
            Box::new(move |result| {
                if let Some(disk) = disk {
                    disk.placed(&places, result.is_ok());
                }
                done(result);
            })
        };
        let zeroes = uncovered(&request, &new, first);
        let join = Join::new(zeroes.len() + pieces.len(), Vec::new(), finish);
        for (offset, length) in zeroes {
            let zero = Request {
                operation: Operation::WriteZeroes { may_punch_holes: true, only_if_fast: false },
                offset,
                length,
                force_unit_access: false,
                data: Vec::new(),
                caching: request.caching,
            };
            self.shared.volume().submit(zero, join.piece(0));
        }
        for piece in &pieces {
            let place = piece.place.expect("every chunk of the request has its place");
            self.shared.volume().submit(part(&request, place, piece), join.piece(0));
        }
    }

    /// As `durable`, of a write whose places are not written down for certain.
    fn durable_after(&self, request: &mut Request, done: Done) -> Done {
        if !std::mem::take(&mut request.force_unit_access) {
            return done;
        }
        let shared = self.shared.clone();
        Box::new(move |result| match result {
            Ok(bytes) => shared.queue(Job::Flush(Box::new(move |flushed| done(flushed.map(|_| bytes))))),
            Err(error) => done(Err(error)),
        })
    }

    /// Finds places for the chunks that have none, all or nothing, and holds them.
    fn place(
        &self,
        space: &mut super::space::Space,
        entries: &mut [Entry],
        chunks: Range<usize>,
    ) -> Result<New, Error> {
        let mut new: New = Vec::new();
        for at in chunks {
            let entry = entries[at];
            if entry.written().is_some() {
                continue;
            }
            let before = at.checked_sub(1).and_then(|before| entries[before].chunk());
            let chunk = match entry.chunk() {
                Some(chunk) if self.shared.is_missing(u64::from(chunk) * CHUNK_BYTES) => Err(Error::Io),
                Some(chunk) => Ok(chunk),
                None => space.allocate(at as u32, before, self.striped).ok_or(Error::NoSpace),
            };
            match chunk {
                Ok(chunk) => {
                    entries[at] = Entry::at(chunk, true).pending(true).held(true);
                    new.push((at, chunk));
                }
                Err(error) => {
                    for (at, chunk) in new {
                        entries[at] = if self.thick { Entry::at(chunk, false) } else { Entry::default() };
                        // Nothing was ever written there.
                        if !self.thick {
                            space.free(chunk);
                        }
                    }
                    return Err(error);
                }
            }
        }
        Ok(new)
    }

    /// The first write of chunks was answered: their places are to be written down, or are given up.
    fn placed(&self, new: &[(usize, u32)], written: bool) {
        {
            let mut state = self.shared.state();
            // Of a disk that was deleted meanwhile, all places were given up.
            if state.metadata.map.logicals.contains_key(&self.id) {
                let mut entries = self.logical.entries_mut();
                let mut changes: Vec<Change> = Vec::new();
                let mut released = Vec::new();
                for &(at, chunk) in new {
                    if written {
                        entries[at] = entries[at].held(false);
                        add_run(&mut changes, self.id, at as u32, chunk, true);
                    } else if self.thick {
                        entries[at] = Entry::at(chunk, false);
                    } else {
                        entries[at] = Entry::default();
                        released.push(chunk);
                    }
                }
                drop(entries);
                self.shared.add_pending(&mut state, changes, released);
            }
        }
        self.release_waiting();
    }

    /// Takes their places from chunks that a trim covers whole; they read as zeroes from now on.
    fn give_up(&self, request: &Request) {
        let whole =
            request.offset.div_ceil(CHUNK_BYTES) as usize..((request.offset + request.length) / CHUNK_BYTES) as usize;
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
            let Some(chunk) = entries[at].written().filter(|_| !entries[at].is_held()) else { continue };
            if self.thick {
                entries[at] = Entry::at(chunk, false);
                add_run(&mut changes, self.id, at as u32, chunk, false);
            } else {
                entries[at] = Entry::default();
                released.push(chunk);
                match changes.last_mut() {
                    Some(Change::Unmapped(_, first, count)) if *first + *count == at as u32 => *count += 1,
                    _ => changes.push(Change::Unmapped(self.id, at as u32, 1)),
                }
            }
        }
        drop(entries);
        if !changes.is_empty() {
            self.shared.add_pending(&mut state, changes, released);
        }
    }
}

/// Adds a chunk's place to changes, to the last of them where it goes on.
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

/// Cuts a request into pieces that lie together; `entries`: those of its chunks.
fn cut(request: &Request, entries: &[Entry], pieces: &mut Vec<Piece>) {
    let first = request.offset / CHUNK_BYTES;
    let end = request.offset + request.length;
    for (number, entry) in (first..).zip(entries) {
        let from = request.offset.max(number * CHUNK_BYTES);
        let length = end.min((number + 1) * CHUNK_BYTES) - from;
        let place = entry.written().map(|chunk| u64::from(chunk) * CHUNK_BYTES + from % CHUNK_BYTES);
        match pieces.last_mut() {
            Some(last) if last.place.is_none() && place.is_none() => last.length += length,
            Some(last) if last.place.is_some_and(|last_place| Some(last_place + last.length) == place) => {
                last.length += length;
            }
            _ => pieces.push(Piece { place, at: from - request.offset, length }),
        }
    }
}

/// A piece of a request as one to the cache.
fn part(request: &Request, place: u64, piece: &Piece) -> Request {
    let bytes = piece.at as usize..(piece.at + piece.length) as usize;
    Request {
        operation: request.operation,
        offset: place,
        length: piece.length,
        force_unit_access: request.force_unit_access,
        data: request.data.get(bytes).unwrap_or_default().to_vec(),
        caching: request.caching,
    }
}

/// What a write leaves of the new chunks at its ends, whole blocks that it touches included: offsets in the pool, and lengths.
fn uncovered(request: &Request, new: &[(usize, u32)], first: usize) -> Vec<(u64, u64)> {
    const BLOCK: u64 = ALIGNMENT as u64;
    let end = request.offset + request.length;
    let last = (end - 1) / CHUNK_BYTES;
    let mut zeroes = Vec::new();
    for &(at, chunk) in new {
        let (start, place) = (at as u64 * CHUNK_BYTES, u64::from(chunk) * CHUNK_BYTES);
        let head = if at == first { (request.offset - start).next_multiple_of(BLOCK).min(CHUNK_BYTES) } else { 0 };
        let tail = if at as u64 == last { (end - start) / BLOCK * BLOCK } else { CHUNK_BYTES };
        if tail <= head && (head > 0 || tail < CHUNK_BYTES) {
            zeroes.push((place, CHUNK_BYTES));
            continue;
        }
        if head > 0 {
            zeroes.push((place, head));
        }
        if tail < CHUNK_BYTES {
            zeroes.push((place + tail, CHUNK_BYTES - tail));
        }
    }
    zeroes
}

impl Shared {
    /// Whether a byte of the pool is on a disk that is missing.
    fn is_missing(&self, place: u64) -> bool {
        self.disk.is_missing(place)
    }

    fn export(&self, id: u32) -> Option<Arc<LogicalDisk>> {
        self.exports.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }
}

impl Export for LogicalDisk {
    fn size(&self) -> u64 {
        self.size_bytes.load(Ordering::Acquire)
    }

    fn description(&self) -> String {
        format!("logical disk {} of pool {}", self.name(), self.shared.name)
    }

    fn enter(&self, client: Client) -> Arc<Guest> {
        let guest = self.shared.volume().enter(client);
        let mut guests = self.guests.lock().unwrap_or_else(PoisonError::into_inner);
        guests.retain(|guest| guest.strong_count() > 0);
        guests.push(Arc::downgrade(&guest));
        guest
    }

    fn submit(&self, request: Request, done: Done) {
        self.submit_by(request, done, false);
    }

    fn submit_and_wait(&self, request: Request, done: Done) -> bool {
        self.submit_by(request, done, true)
    }

    fn extents(&self, offset: u64, length: u64, extents_max: usize) -> Result<Vec<Extent>, Error> {
        let request = Request {
            operation: Operation::Cache,
            offset,
            length,
            force_unit_access: false,
            data: Vec::new(),
            caching: Caching::Usual,
        };
        let mut pieces = Vec::new();
        {
            let entries = self.logical.entries();
            let entries = entries.get(LogicalDisk::chunks(&request)).ok_or(Error::Invalid)?;
            cut(&request, entries, &mut pieces);
        }
        let mut extents: Vec<Extent> = Vec::new();
        for piece in pieces {
            let stored = match piece.place {
                Some(place) => self.shared.volume().extents(place, piece.length, extents_max)?,
                None => vec![Extent { length: piece.length, hole: true, zero: true }],
            };
            let told: u64 = stored.iter().map(|extent| extent.length).sum();
            for extent in stored {
                match extents.last_mut() {
                    Some(last) if (last.hole, last.zero) == (extent.hole, extent.zero) => last.length += extent.length,
                    _ => extents.push(extent),
                }
            }
            if told < piece.length || extents.len() > extents_max {
                break;
            }
        }
        extents.truncate(extents_max);
        Ok(extents)
    }
}

impl LogicalDisk {
    fn submit_by(&self, request: Request, done: Done, may_wait: bool) -> bool {
        let figures = &self.figures;
        let count = |requests: &AtomicU64, bytes: &AtomicU64| {
            requests.fetch_add(1, Ordering::Relaxed);
            bytes.fetch_add(request.length, Ordering::Relaxed);
        };
        match request.operation {
            Operation::Read => count(&figures.reads, &figures.read_bytes),
            Operation::Write => count(&figures.writes, &figures.written_bytes),
            Operation::Flush => {
                figures.flushes.fetch_add(1, Ordering::Relaxed);
                self.shared.flush(request, done);
                return false;
            }
            Operation::WriteZeroes { only_if_fast: true, .. } => {
                done(Err(Error::NotSupported));
                return false;
            }
            _ => {}
        }
        if request.length == 0 {
            done(Ok(Vec::new()));
            return false;
        }
        self.start(request, done, may_wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: u64 = CHUNK_BYTES;

    fn write(offset: u64, length: u64) -> Request {
        Request {
            operation: Operation::Write,
            offset,
            length,
            force_unit_access: false,
            data: Vec::new(),
            caching: Caching::Usual,
        }
    }

    #[test]
    fn a_request_is_cut_where_its_chunks_do_not_follow_one_another() {
        let entries =
            [Entry::at(5, true), Entry::at(6, true), Entry::default(), Entry::at(9, false), Entry::at(2, true)];
        let mut pieces = Vec::new();
        cut(&write(512, 5 * CHUNK - 1024), &entries, &mut pieces);
        let expected = [
            Piece { place: Some(5 * CHUNK + 512), at: 0, length: 2 * CHUNK - 512 },
            Piece { place: None, at: 2 * CHUNK - 512, length: 2 * CHUNK },
            Piece { place: Some(2 * CHUNK), at: 4 * CHUNK - 512, length: CHUNK - 512 },
        ];
        assert_eq!(pieces, expected);
    }

    #[test]
    fn what_a_first_write_leaves_of_its_chunks_is_made_zeroes_in_whole_blocks() {
        let zeroes = |offset, length, new: &[(usize, u32)]| uncovered(&write(offset, length), new, new[0].0);
        assert_eq!(zeroes(3 * CHUNK, CHUNK, &[(3, 7)]), []);
        assert_eq!(zeroes(0, 4096, &[(0, 7)]), [(7 * CHUNK + 4096, CHUNK - 4096)]);
        // Half of block 1: the whole block is made zeroes before.
        assert_eq!(zeroes(4096, 512, &[(0, 7)]), [(7 * CHUNK, CHUNK)]);
        assert_eq!(zeroes(512, 8192, &[(0, 7)]), [(7 * CHUNK, 4096), (7 * CHUNK + 8192, CHUNK - 8192)]);
        let over_three = zeroes(CHUNK - 4096, CHUNK + 8192, &[(0, 7), (1, 9), (2, 4)]);
        assert_eq!(over_three, [(7 * CHUNK, CHUNK - 4096), (4 * CHUNK + 4096, CHUNK - 4096)]);
    }
}
