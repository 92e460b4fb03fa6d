//! The state at a start, and after a recovery.

use std::collections::{BTreeSet, VecDeque};

use flashwise_core::cache::Cache;
use flashwise_core::wlfc::header::{ResetAt, reset_mark};
use flashwise_core::wlfc::{Scan, State, Step, Wlfc};
use rustc_hash::FxHashSet;

use super::checksums::HeaderPages;
use super::{Buckets, Engine, Settings};
use crate::engine::{self, Asked, Recovers};
use crate::memory::Memory;
use crate::request::Request;

/// The state of a cache bucket on flash.
#[derive(Clone, Debug)]
pub struct OnFlash {
    /// The state of the last planned program.
    pub(super) state: State,
    /// The epoch of the last program.
    pub(super) epoch: u64,
    /// The checksum of the last programmed header.
    pub(super) last: u32,
    /// Programs that may not be durable: number, and the page after each.
    pub(super) volatile: VecDeque<(u64, u32)>,
    /// Number of durable pages.
    pub(super) durable_end: u32,
    /// Number of programmed pages.
    pub(super) end: u32,
}

impl OnFlash {
    /// Creates the state of a bucket with these contents, which are durable. `last` is the checksum of its last header.
    pub fn new(scan: &Scan, last: u32) -> OnFlash {
        OnFlash {
            state: scan.found.first().map_or(State::Read, |(_, oob)| oob.state),
            epoch: scan.found.first().map_or(0, |(_, oob)| oob.epoch),
            last,
            volatile: VecDeque::new(),
            durable_end: scan.end,
            end: scan.end,
        }
    }
}

/// The initial state of an engine.
#[derive(Debug)]
pub struct Started {
    /// Pages of a bucket.
    pub unit_pages: u32,
    /// The header pages.
    pub headers: HeaderPages,
    /// Each bucket.
    pub on_flash: Vec<OnFlash>,
    /// Buckets that failed earlier, and are not reset.
    pub worn: BTreeSet<u32>,
    /// Dirty blocks that could not be read.
    pub unreadable: FxHashSet<u64>,
    /// The first steps.
    pub steps: Vec<Step>,
}

impl Started {
    /// Creates the state of an empty cache of so many buckets, each with so many pages.
    pub fn empty(buckets: u32, unit_pages: u32) -> Started {
        Started {
            unit_pages,
            headers: HeaderPages::new(buckets, unit_pages),
            on_flash: vec![OnFlash::new(&Scan::default(), 0); buckets as usize],
            worn: BTreeSet::new(),
            unreadable: FxHashSet::default(),
            steps: Vec::new(),
        }
    }
}

/// The number of a run: its start, and how often its cache was recovered since.
pub fn run(start: u64, found_again: u32) -> u64 {
    start << 32 | u64::from(found_again)
}

/// Returns the first page of a reset bucket, for buckets without zones.
pub fn mark(cache: u64, bucket: u32, at: ResetAt) -> Memory {
    let mut memory = Memory::new(1);
    *memory.page_mut(0) = reset_mark(cache, bucket, at);
    memory
}

impl Recovers for Buckets {
    fn is_frozen(engine: &Engine) -> bool {
        engine.cache.is_frozen()
    }

    /// Makes the unfinished acknowledged changes of `before` again.
    fn make_again(engine: &mut Engine, before: &mut Engine) {
        engine.layout.ahead.succeed(&mut before.layout.ahead);
        for (number, request) in before.layout.ahead.take() {
            match engine.recovery.works() {
                false => engine.layout.ahead.keep(number, request),
                true => engine.begin_request(request, Box::new(|_| ()), Asked { number, waited_us: 0, again: true }, 0),
            }
        }
    }
}

impl Engine {
    /// Creates the engine that [continues](engine::Engine::continue_as) after `before`, whose cache was found again as
    /// `wlfc`. `settled` is true if the flash took the changes of the recovery.
    pub fn after(before: &Engine, mut wlfc: Wlfc, started: Started, settled: bool) -> Engine {
        wlfc.succeed(&before.cache);
        let settings = Settings { found_again: before.settings.found_again + 1, ..before.settings };
        let mut engine = Engine::new(wlfc, settings, started);
        // A later flush does not cover the data of a failed one.
        engine.layout.failures.flushes = !settled;
        engine.layout.failures.unreadable.extend(&before.layout.failures.unreadable);
        engine
    }

    /// Returns the contents of a bucket that this engine knows, if it knows them.
    pub fn remembered(&self, bucket: u32) -> Option<Scan> {
        let OnFlash { epoch, end, .. } = self.layout.on_flash[bucket as usize];
        self.cache.remembered(bucket, epoch, end)
    }

    /// Returns the number of backend buckets that are not written back, because the flash has lost some of their dirty
    /// blocks.
    pub fn lossy(&self) -> usize {
        self.layout.failures.lossy(self.cache.failing(), self.layout.bucket_blocks)
    }

    /// Returns the header pages.
    pub fn headers(&self) -> &HeaderPages {
        &self.layout.headers
    }

    /// Returns the failures that a successor takes over. Without unfinished steps.
    pub fn legacy(&self) -> engine::Legacy {
        let unreported = self.cache.owes_a_failed_flush().into();
        engine::Legacy { faults: self.faults, unreported, failed_flushes: 0 }
    }
}

impl<C: Cache<Step = Step>> Engine<C> {
    /// Returns the memory of unfinished plans in bytes.
    pub fn planned_bytes(&self) -> u64 {
        self.layout.plans.bytes()
    }

    /// Returns the blocks whose only copy was unreadable, in order.
    pub fn lost_blocks(&self) -> Vec<u64> {
        self.layout.failures.lost_blocks()
    }

    /// Returns the number of blocks that wait in memory for a place.
    pub fn unwritten_blocks(&self) -> usize {
        self.layout.ahead.lost().count()
    }

    /// Returns the blocks whose newest content is only in memory or lost, in order.
    pub fn not_durable_blocks(&self) -> Vec<u64> {
        let all: BTreeSet<u64> =
            self.layout.failures.unreadable.iter().chain(self.layout.ahead.lost()).copied().collect();
        all.into_iter().collect()
    }

    /// Returns the acknowledged changes that could not be made, in order, restricted to lost blocks.
    pub fn unwritten(&self) -> Vec<Request> {
        self.layout.ahead.not_made()
    }

    /// Takes the acknowledged changes that could not be made, in order, restricted to lost blocks, to make them
    /// elsewhere.
    pub fn take_unwritten(&mut self) -> Vec<Request> {
        self.layout.ahead.take_not_made()
    }

    /// Makes the lost changes once nothing fails any more.
    pub fn make_what_was_lost(&mut self) {
        if !self.recovery.works() || self.cache.next_tick_us(u64::MAX).is_some() {
            return;
        }
        // A client's current change of these blocks is newer, and would be overwritten.
        let is_of_lost = |request: &Request| self.layout.ahead.lost_of(request.offset, request.length).next().is_some();
        if self.clients.requests().any(|request| request.changes() && is_of_lost(request)) {
            return;
        }
        for change in self.layout.ahead.take_not_made() {
            self.clients.make(&change);
            self.begin_own(change, 0);
        }
    }
}
