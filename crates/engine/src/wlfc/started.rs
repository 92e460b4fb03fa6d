//! The state at a start, and after a recovery.

use std::collections::{BTreeSet, VecDeque};

use flashwise_core::wlfc::header::{ResetAt, reset_mark};
use flashwise_core::wlfc::{Scan, State, Step};
use rustc_hash::FxHashSet;

use super::checksums::HeaderPages;
use super::{Buckets, Engine};
use crate::engine::{Asked, Recovers};
use crate::memory::Memory;

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
