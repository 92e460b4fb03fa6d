//! An export in memory: sparse, so terabytes are cheap, and as slow, wrong or silent as a test needs.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, RwLock};

use flashwise_core::filter::{Caching, Client};
pub use flashwise_core::random::next as random;
use flashwise_storage::export::{Done, Error, Export, Extent, Guest, Operation, Request};
use rustc_hash::FxBuildHasher;

const PAGE_BYTES: u64 = 64 << 10;

type Pages = HashMap<u64, Box<[u8]>, FxBuildHasher>;
type Answer = (Done, Result<Vec<u8>, Error>);

/// Counters of requests by kind.
#[derive(Debug, Default)]
pub struct Seen {
    /// Flushes.
    pub flushes: AtomicU64,
    /// Writes with FUA.
    pub forced: AtomicU64,
    /// Trims.
    pub trims: AtomicU64,
    /// Zeroing that was not refused.
    pub zeroes: AtomicU64,
    /// Requests to read into the cache.
    pub caches: AtomicU64,
}

/// An export in memory.
#[derive(Default)]
pub struct Memory {
    size: AtomicU64,
    pages: RwLock<Pages>,
    /// True if it is read-only.
    pub read_only: bool,
    /// True if zeroing is no faster than writing.
    pub slow_zeroes: bool,
    /// Its description.
    pub description: String,
    /// Smallest request in bytes.
    pub block_bytes_min: u32,
    /// The queue of replies given later, by another thread and in another order.
    later: Option<Mutex<Sender<Answer>>>,
    /// The error of every request.
    pub failure: Mutex<Option<Error>>,
    /// True if replies are held back.
    stalled: AtomicBool,
    /// True if replies of writes are held back.
    writes_stalled: AtomicBool,
    held: Mutex<Vec<Answer>>,
    /// The clients that have opened it.
    pub entered: Mutex<Vec<Client>>,
    /// Its counters.
    pub seen: Seen,
}

impl Memory {
    /// Creates an export of `size` zeroes that replies immediately.
    pub fn new(size: u64) -> Self {
        Self { size: AtomicU64::new(size), block_bytes_min: 1, description: "in memory".into(), ..Self::default() }
    }

    /// Makes it reply later, on its own thread, in an order determined by `seed`.
    pub fn answering_later(mut self, seed: u64) -> Self {
        let (sender, receiver) = channel::<Answer>();
        self.later = Some(Mutex::new(sender));
        std::thread::spawn(move || {
            let mut state = seed | 1;
            let mut waiting: Vec<Answer> = Vec::new();
            while let Ok(first) = receiver.recv() {
                waiting.push(first);
                waiting.extend(receiver.try_iter());
                while !waiting.is_empty() {
                    let chosen = random(&mut state) as usize % waiting.len();
                    let (done, result) = waiting.swap_remove(chosen);
                    done(result);
                }
            }
        });
        self
    }

    /// Changes its size in bytes.
    pub fn resize(&self, size: u64) {
        self.size.store(size, Ordering::SeqCst);
    }

    /// Holds all replies back from now on.
    pub fn stall(&self) {
        self.stalled.store(true, Ordering::SeqCst);
    }

    /// Holds the replies of writes back from now on.
    pub fn stall_writes(&self) {
        self.writes_stalled.store(true, Ordering::SeqCst);
    }

    /// Sends the replies held back, the last first, and stops holding them back.
    pub fn release(&self) {
        self.writes_stalled.store(false, Ordering::SeqCst);
        self.stalled.store(false, Ordering::SeqCst);
        let held = std::mem::take(&mut *self.held.lock().unwrap());
        for (done, result) in held.into_iter().rev() {
            done(result);
        }
    }

    /// Returns the number of replies held back.
    pub fn held(&self) -> usize {
        self.held.lock().unwrap().len()
    }

    /// Returns some of its bytes.
    pub fn read(&self, offset: u64, length: u64) -> Vec<u8> {
        let pages = self.pages.read().unwrap();
        let mut data = vec![0; length as usize];
        let mut rest = &mut data[..];
        for (page, start, count) in pieces(offset, length) {
            let (piece, behind) = rest.split_at_mut(count);
            if let Some(bytes) = pages.get(&page) {
                piece.copy_from_slice(&bytes[start..start + count]);
            }
            rest = behind;
        }
        data
    }

    /// Changes some of its bytes.
    pub fn write(&self, offset: u64, data: &[u8]) {
        let mut pages = self.pages.write().unwrap();
        let mut rest = data;
        for (page, start, count) in pieces(offset, data.len() as u64) {
            let bytes = pages.entry(page).or_insert_with(|| vec![0; PAGE_BYTES as usize].into());
            bytes[start..start + count].copy_from_slice(&rest[..count]);
            rest = &rest[count..];
        }
    }

    fn zero(&self, offset: u64, length: u64, may_punch_holes: bool) {
        let mut pages = self.pages.write().unwrap();
        for (page, start, count) in pieces(offset, length) {
            let whole = count as u64 == PAGE_BYTES;
            if whole && may_punch_holes {
                pages.remove(&page);
            } else if let Some(bytes) = pages.get_mut(&page) {
                bytes[start..start + count].fill(0);
            } else if !may_punch_holes {
                pages.insert(page, vec![0; PAGE_BYTES as usize].into());
            }
        }
    }

    fn perform(&self, request: &Request) -> Result<Vec<u8>, Error> {
        let seen = |counter: &AtomicU64| counter.fetch_add(1, Ordering::SeqCst);
        if let Some(error) = *self.failure.lock().unwrap() {
            return Err(error);
        }
        if request.force_unit_access {
            seen(&self.seen.forced);
        }
        match request.operation {
            Operation::Read => return Ok(self.read(request.offset, request.length)),
            Operation::Write => self.write(request.offset, &request.data),
            Operation::Flush => _ = seen(&self.seen.flushes),
            Operation::Trim => {
                seen(&self.seen.trims);
                self.zero(request.offset, request.length, true);
            }
            Operation::WriteZeroes { only_if_fast: true, .. } if self.slow_zeroes => return Err(Error::NotSupported),
            Operation::WriteZeroes { may_punch_holes, .. } => {
                seen(&self.seen.zeroes);
                self.zero(request.offset, request.length, may_punch_holes);
            }
            Operation::Cache => _ = seen(&self.seen.caches),
        }
        Ok(Vec::new())
    }
}

impl Export for Memory {
    fn size(&self) -> u64 {
        self.size.load(Ordering::SeqCst)
    }

    fn read_only(&self) -> bool {
        self.read_only
    }

    fn description(&self) -> String {
        self.description.clone()
    }

    fn block_sizes(&self) -> (u32, u32, u32) {
        (self.block_bytes_min, 4096, 32 << 20)
    }

    fn enter(&self, client: Client) -> Arc<Guest> {
        self.entered.lock().unwrap().push(client.clone());
        Arc::new(Guest::new(client, Caching::Usual))
    }

    fn submit(&self, request: Request, done: Done) {
        let result = self.perform(&request);
        let stalled = match request.operation {
            Operation::Write if self.writes_stalled.load(Ordering::SeqCst) => true,
            _ => self.stalled.load(Ordering::SeqCst),
        };
        if stalled {
            self.held.lock().unwrap().push((done, result));
        } else if let Some(later) = &self.later {
            later.lock().unwrap().send((done, result)).unwrap();
        } else {
            done(result);
        }
    }

    fn extents(&self, offset: u64, length: u64, extents_max: usize) -> Result<Vec<Extent>, Error> {
        if let Some(error) = *self.failure.lock().unwrap() {
            return Err(error);
        }
        let pages = self.pages.read().unwrap();
        let mut extents: Vec<Extent> = Vec::new();
        for (page, _, count) in pieces(offset, length) {
            let hole = !pages.contains_key(&page);
            let length = count as u64;
            let full = extents.len() == extents_max;
            match extents.last_mut() {
                Some(last) if last.hole == hole => last.length += length,
                _ if full => break,
                _ => extents.push(Extent { length, hole, zero: hole }),
            }
        }
        Ok(extents)
    }
}

/// Divides a range at page boundaries: page, first byte in it, number of bytes.
fn pieces(offset: u64, length: u64) -> impl Iterator<Item = (u64, usize, usize)> {
    let end = offset + length;
    let mut next = offset;
    std::iter::from_fn(move || {
        let (page, start) = (next / PAGE_BYTES, next % PAGE_BYTES);
        let count = (PAGE_BYTES - start).min(end - next);
        next += count;
        (count > 0).then_some((page, start as usize, count as usize))
    })
}

/// Returns bytes determined by a seed.
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend(random(&mut state).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}
