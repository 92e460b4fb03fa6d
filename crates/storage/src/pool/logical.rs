//! A logical disk as an export: maps the chunks of a request to places, and hands the pieces to the pool's cache.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use crate::time::Mutex;
use flashwise_core::cache::Mode;
use flashwise_core::filter::{Caching, Client};
use flashwise_engine::Join;
use flashwise_engine::engine::Bug;

use super::map::Logical;
use super::pieces::{Piece, covers, cut, part};
use super::resting::Trimmed;
use super::told::{Asked, Told};
use super::{CHUNK_BYTES, Shared};
use crate::export::{Done, Error, Export, Extent, Guest, Operation, Request};
use crate::volume::Part;

/// A logical disk of an open pool.
pub struct LogicalDisk {
    pub(super) shared: Arc<Shared>,
    pub(super) id: u32,
    pub(super) logical: Arc<Logical>,
    size_bytes: AtomicU64,
    pub(super) thick: bool,
    pub(super) striped: bool,
    cached: AtomicBool,
    mode: AtomicU8,
    closed: AtomicBool,
    /// Requests that wait for held chunks.
    waiting: Mutex<Vec<(Request, Done)>>,
    waiting_count: AtomicUsize,
    guests: Mutex<Vec<Weak<Guest>>>,
    told: Arc<Told>,
    pub(super) trimmed: Trimmed,
    pub(super) figures: DiskCounters,
}

/// Counters of a logical disk since the pool was opened.
#[derive(Debug, Default)]
pub(super) struct DiskCounters {
    pub reads: AtomicU64,
    pub read_bytes: AtomicU64,
    pub writes: AtomicU64,
    pub written_bytes: AtomicU64,
    pub flushes: AtomicU64,
    pub refused: AtomicU64,
    /// The logical disk's share of the pool's cache.
    pub cache: Arc<Part>,
}

impl LogicalDisk {
    pub(super) fn new(shared: Arc<Shared>, id: u32, logical: Arc<Logical>) -> LogicalDisk {
        let shape = logical.shape();
        let told = Arc::new(Told::new(shared.volume().failed_flushes()));
        LogicalDisk {
            told,
            trimmed: Trimmed::default(),
            shared,
            id,
            logical,
            size_bytes: AtomicU64::new(shape.size_bytes),
            thick: shape.thick,
            striped: shape.striped,
            cached: AtomicBool::new(shape.cached),
            mode: AtomicU8::new(shape.mode as u8),
            closed: AtomicBool::new(false),
            waiting: Mutex::default(),
            waiting_count: AtomicUsize::new(0),
            guests: Mutex::default(),
            figures: DiskCounters::default(),
        }
    }

    /// The name.
    pub fn name(&self) -> String {
        self.logical.shape().name
    }

    /// Returns the number of clients that have the logical disk open.
    pub fn clients(&self) -> usize {
        let mut guests = self.guests.lock();
        guests.retain(|guest| guest.strong_count() > 0);
        guests.len()
    }

    pub(super) fn set_size(&self, size_bytes: u64) {
        self.size_bytes.store(size_bytes, Ordering::Release);
    }

    pub(super) fn set_cached(&self, cached: bool) {
        self.cached.store(cached, Ordering::Relaxed);
    }

    pub(super) fn set_mode(&self, mode: Mode) {
        self.mode.store(mode as u8, Ordering::Relaxed);
    }

    /// Combines the caching of the request with that of the logical disk.
    fn caching(&self, request: &Request) -> Caching {
        let mode = self.mode.load(Ordering::Relaxed);
        let writes = matches!(request.operation, Operation::Write | Operation::WriteZeroes { .. });
        if !self.cached.load(Ordering::Relaxed) || request.caching == Caching::Never {
            Caching::Never
        } else if writes && mode == Mode::WriteThrough as u8 {
            Caching::Through
        } else if writes && mode == Mode::WriteAround as u8 {
            Caching::Never
        } else {
            request.caching
        }
    }

    /// Makes all further requests fail.
    pub(super) fn close(self: &Arc<Self>) {
        self.closed.store(true, Ordering::SeqCst);
        self.release_waiting();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Fails a request whose content is not available, or that there is no space for.
    pub(super) fn refuse(&self, done: Done, error: Error) {
        self.figures.refused.fetch_add(1, Ordering::Relaxed);
        self.shared.refused.fetch_add(1, Ordering::Relaxed);
        done(Err(error));
    }

    /// Makes acknowledged writes durable. Losses of other logical disks do not fail this flush.
    fn flush(&self, request: Request, done: Done) {
        self.shared.flush(self.id, request, self.of_own(done));
    }

    /// Wraps the completion of a flush: it fails if the cache lost blocks of this logical disk.
    fn of_own(&self, done: Done) -> Done {
        self.of_own_by(self.told.ask(), Told::answer, done)
    }

    /// Wraps the completion of a change that later flushes make durable.
    fn told_of(&self, done: Done) -> Done {
        let told = self.told.clone();
        told.begin();
        Box::new(move |result| {
            told.end();
            done(result);
        })
    }

    /// Wraps the completion of a change that is itself durable.
    pub(super) fn of_one(&self, done: Done) -> Done {
        let asked = self.told.ask_for_one(self.shared.volume().failed_flushes());
        self.of_own_by(asked, Told::answer_one, done)
    }

    fn of_own_by(&self, asked: Asked, answer: fn(&Told, Asked, bool, u64) -> bool, done: Done) -> Done {
        let (shared, id) = (self.shared.clone(), self.id);
        Box::new(move |result: Result<Vec<u8>, Error>| {
            let check = |bytes| shared.check_none_lost(Some(id)).map(|()| bytes).map_err(|_| Error::Io);
            let result = result.and_then(check);
            let failed = shared.volume().failed_flushes();
            let succeeds = shared.export(id).is_none_or(|disk| answer(&disk.told, asked, result.is_ok(), failed));
            done(if succeeds { result } else { result.and(Err(Error::Io)) });
        })
    }

    /// Starts the requests that waited for chunks.
    pub(super) fn release_waiting(&self) {
        let released = {
            let mut waiting = self.waiting.lock();
            self.waiting_count.store(0, Ordering::SeqCst);
            std::mem::take(&mut *waiting)
        };
        for (request, done) in released {
            self.start(request, done, false);
        }
    }

    pub(super) fn chunks(request: &Request) -> Range<usize> {
        let first = (request.offset / CHUNK_BYTES) as usize;
        first..(request.offset + request.length).div_ceil(CHUNK_BYTES) as usize
    }

    fn is_held(&self, chunks: &Range<usize>) -> bool {
        let entries = self.logical.entries();
        entries.get(chunks.clone()).is_some_and(|entries| entries.iter().any(|entry| entry.is_held()))
    }

    /// Queues a request if its chunks are held, or if it would overtake a queued one. Otherwise returns it.
    pub(super) fn wait(&self, request: Request, done: Done) -> Option<(Request, Done)> {
        let mut waiting = self.waiting.lock();
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

    /// Starts a request with a length above 0. Returns the same as [`Export::submit_and_wait`].
    pub(super) fn start(&self, request: Request, done: Done, may_wait: bool) -> bool {
        let (mut request, mut done) = (request, done);
        if self.is_closed() {
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
        if self.is_closed() {
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
        let lost = pieces.iter().any(|piece| piece.lost);
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
            self.refuse(done, Error::Io);
            return false;
        }
        if lost && !is_about_whole_lost_chunks(&request, &pieces) {
            self.refuse(done, Error::Io);
            return false;
        }
        request.caching = self.caching(&request);
        if request.operation == Operation::Write {
            self.trimmed.written(chunks);
        }
        if new && self.shared.volume().refuses_changes() {
            // It must not take a place that only a flush could release.
            self.refuse(done, Error::Io);
            return false;
        }
        if new {
            self.write_new(request, done);
            return false;
        }
        let keeps = self.frees(&request) && self.shared.is_in_order() && !self.shared.has_planted(Bug::TrimsAtOnce);
        if keeps && !self.thick {
            drop(pass);
            self.trim_in_order(request, done);
            return false;
        }
        if self.frees(&request) || lost {
            self.give_up(&request, keeps);
        }
        let done = self.durable(&mut request, done);
        self.submit_pieces(request, &pieces, done, may_wait)
    }

    /// True if a request releases the chunks that it covers, which then read as zeroes.
    pub(super) fn frees(&self, request: &Request) -> bool {
        match request.operation {
            Operation::Trim => true,
            Operation::WriteZeroes { may_punch_holes, .. } => may_punch_holes && !self.thick,
            _ => false,
        }
    }

    /// Wraps the completion of a durable request so that it also waits for pending changes of the map.
    pub(super) fn durable(&self, request: &mut Request, done: Done) -> Done {
        if !request.force_unit_access || self.shared.uncommitted.load(Ordering::SeqCst) == 0 {
            return done;
        }
        self.durable_after(request, done)
    }

    pub(super) fn submit_pieces(&self, mut request: Request, pieces: &[Piece], done: Done, may_wait: bool) -> bool {
        let volume = self.shared.volume();
        if let [Piece { place: Some(place), .. }] = pieces {
            request.offset = *place;
            return volume.submit_for(&self.figures.cache, request, done, may_wait);
        }
        let placed = pieces.iter().filter(|piece| piece.place.is_some()).count();
        let bytes = if request.operation == Operation::Read { vec![0; request.length as usize] } else { Vec::new() };
        if placed == 0 {
            done(Ok(bytes));
            return false;
        }
        let join = Join::new(placed, bytes, done);
        for (place, piece) in pieces.iter().filter_map(|piece| Some((piece.place?, piece))) {
            let piece_done = join.piece(piece.at as usize);
            volume.submit_for(&self.figures.cache, part(&request, place, piece), piece_done, false);
        }
        false
    }
}

/// True if a request that touches lost chunks may run: it neither reads them nor changes only a part of one.
fn is_about_whole_lost_chunks(request: &Request, pieces: &[Piece]) -> bool {
    let whole = |piece: &Piece| {
        let from = request.offset + piece.at;
        let chunks = from / CHUNK_BYTES..(from + piece.length).div_ceil(CHUNK_BYTES);
        chunks.into_iter().all(|chunk| covers(request, chunk))
    };
    match request.operation {
        Operation::Read => false,
        Operation::Write | Operation::WriteZeroes { .. } => pieces.iter().filter(|piece| piece.lost).all(whole),
        Operation::Flush | Operation::Trim | Operation::Cache => true,
    }
}

impl Export for LogicalDisk {
    fn size(&self) -> u64 {
        self.size_bytes.load(Ordering::Acquire)
    }

    fn description(&self) -> String {
        format!("logical disk {} of pool {}", self.name(), self.shared.name)
    }

    fn identity(&self) -> Option<[u8; 16]> {
        Some(self.logical.shape().uuid.into_bytes())
    }

    fn trim_granularity(&self) -> u32 {
        CHUNK_BYTES as u32
    }

    fn enter(&self, client: Client) -> Arc<Guest> {
        let guest = self.shared.volume().enter(client);
        let mut guests = self.guests.lock();
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
                None => vec![Extent { length: piece.length, hole: !piece.lost, zero: !piece.lost }],
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
                self.shared.flushes.fetch_add(1, Ordering::Relaxed);
                self.flush(request, done);
                return false;
            }
            Operation::WriteZeroes { only_if_fast: true, .. } => {
                done(Err(Error::NotSupported));
                return false;
            }
            _ => {}
        }
        let done = if request.changes() { self.told_of(done) } else { done };
        if request.length == 0 {
            done(Ok(Vec::new()));
            return false;
        }
        self.start(request, done, may_wait)
    }
}
