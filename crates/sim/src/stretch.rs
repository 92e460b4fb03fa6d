//! Counts of a run, cut at the end of the warm-up and of each epoch.

use flashwise_core::access::Op;
use flashwise_core::account;
use flashwise_core::admission::adaptive::Decision;
use flashwise_core::block_cache::Tally;
use flashwise_core::cache::Figures;
use flashwise_core::counters::Counters;
use flashwise_core::tiers::Traffic;
use flashwise_device::flash::{DeviceCounters, Wear};

use crate::array::Waits;
use crate::counting::Counting;
use crate::wlfc::Buckets;

flashwise_core::counts! {
    /// Counts over some accesses.
    pub struct Counts {
        /// Block accesses that read.
        pub reads: u64,
        /// Block accesses that write.
        pub writes: u64,
        /// Read hits in RAM or on flash.
        pub read_hits: u64,
        /// Write hits in RAM or on flash.
        pub write_hits: u64,
        /// Read hits in RAM, a part of `read_hits`.
        pub ram_hits: u64,
        /// Counts of the policy, which does not see every access.
        pub counters: Counters,
        /// Accesses that devices answered, and write-back; RAM answered the other accesses.
        pub answered: account::Counts,
        /// Writes to flash.
        pub tally: Tally,
        /// Operations of the flash device.
        pub device: DeviceCounters,
        /// Counts of the tiers of the whole cache, if that ran.
        pub whole: Option<Whole>,
        /// Counts of a cache of buckets, if that ran.
        pub buckets: Option<Buckets>,
    }

    /// Counts that only the whole cache has.
    pub struct Whole {
        /// Counts of its tiers.
        pub figures: Figures,
        /// Flushes of the flash.
        pub flash_flushes: u64,
        /// Flushes of the backend.
        pub backend_flushes: u64,
    }
}

impl From<Counters> for Counts {
    /// The counts of a policy that saw every access.
    fn from(counters: Counters) -> Counts {
        let (read, write) = (counters.of(Op::Read), counters.of(Op::Write));
        Counts {
            reads: read.accesses(),
            writes: write.accesses(),
            read_hits: read.hits,
            write_hits: write.hits,
            counters,
            ..Counts::default()
        }
    }
}

impl Counts {
    /// Block accesses.
    pub fn accesses(&self) -> u64 {
        self.reads + self.writes
    }

    /// Hits in RAM or on flash.
    pub fn hits(&self) -> u64 {
        self.read_hits + self.write_hits
    }

    /// Read hits on flash.
    pub fn flash_hits(&self) -> u64 {
        self.read_hits - self.ram_hits
    }

    /// Accesses that no device answered.
    pub fn answered_by_ram(&self) -> u64 {
        self.accesses() - self.answered.accesses()
    }

    /// Traffic of the devices of an array, with blocks of this many bytes. For a whole cache it includes metadata and
    /// copies.
    pub fn traffic(&self, block_bytes: u64) -> Traffic {
        let traffic = self.answered.traffic(block_bytes);
        let (flash, backend) = match (&self.whole, &self.buckets) {
            (Some(Whole { figures, .. }), _) => {
                (figures.flash_written_blocks(), figures.backend_written_blocks + figures.destaged_blocks)
            }
            (None, Some(buckets)) => (self.tally.flash_writes.total_blocks(), buckets.figures.backend_written_blocks),
            (None, None) => return traffic,
        };
        let bytes = |blocks: u64| blocks as f64 * block_bytes as f64;
        Traffic { cache_written: bytes(flash), storage_written: bytes(backend), ..traffic }
    }

    /// Valid blocks in the units that were erased: copied by the device, or found by the cache that reset them.
    pub fn live_at_eviction_blocks(&self) -> u64 {
        let copied = self.device.programs_collection + self.device.programs_levelling;
        copied + self.tally.live_at_reset_blocks
    }
}

/// Consecutive accesses of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stretch {
    /// Start, since the beginning of the trace.
    pub start_s: f64,
    /// Duration until the next stretch, or the last access of the trace; at least a microsecond.
    pub seconds: f64,
    /// Counts over them.
    pub counts: Counts,
    /// Number of decisions made before its end.
    pub decisions: usize,
}

/// Result of a run.
#[derive(Clone, Debug, Default)]
pub struct Ran {
    /// The accesses after the warm-up. Its duration is from the first to the last of them, at least a microsecond.
    pub counted: Stretch,
    /// Accesses that are not counted.
    pub warmup_accesses: u64,
    /// All decisions of an adaptive rule.
    pub decisions: Vec<Decision>,
    /// Waiting times, if simulated.
    pub waits: Option<Waits>,
    /// The epochs after the warm-up, if requested.
    pub epochs: Vec<Stretch>,
    /// Wear of the flash device after the warm-up, if there was one.
    pub wear: Option<Wear>,
    /// Blocks at the end that the backend lacks, of the whole cache.
    pub dirty_blocks: u64,
}

impl Ran {
    /// Returns the result of a policy that saw every access, from its counters after the warm-up and in each epoch. It
    /// has no times.
    pub(crate) fn of_policy(counters: Counters, epochs: &[Counters], warmup_accesses: u64) -> Ran {
        let stretch = |counters: Counters| Stretch { counts: counters.into(), ..Stretch::default() };
        let epochs = epochs.iter().copied().map(stretch).collect();
        Ran { counted: stretch(counters), warmup_accesses, epochs, ..Ran::default() }
    }
}

/// Cuts a run into stretches.
#[derive(Debug)]
pub(crate) struct Stretches {
    warmup: u64,
    /// Length of an epoch in accesses, and the start of the next.
    epoch: Option<u64>,
    next_epoch: u64,
    warm: Option<Mark>,
    begun: Mark,
    /// The time of the first access.
    start_us: Option<u64>,
    epochs: Vec<Stretch>,
    decisions: Vec<Decision>,
    /// Erasures of each erase unit at the end of the warm-up, if there is flash.
    erased_warm: Option<Vec<u32>>,
}

impl Stretches {
    /// Returns the stretches of a trace of `len` accesses.
    pub fn new(counting: Counting, len: usize) -> Stretches {
        let warmup = counting.warmup.accesses(len);
        Stretches {
            warmup,
            epoch: counting.epoch,
            next_epoch: warmup.saturating_add(counting.epoch.unwrap_or(u64::MAX)),
            warm: None,
            begun: Mark::default(),
            start_us: None,
            epochs: Vec::new(),
            decisions: Vec::new(),
            erased_warm: None,
        }
    }

    /// Ends the warm-up or an epoch if it has reached its length. The next access, at `time_us`, comes after `position`
    /// accesses, with these `counts` so far and these erasures of each erase unit, if there is flash. Returns true if
    /// the next access counts.
    #[inline]
    pub fn at(
        &mut self,
        position: u64,
        time_us: u64,
        counts: impl FnOnce() -> Counts,
        erased: impl FnOnce() -> Option<Vec<u32>>,
    ) -> bool {
        let is_warm = position >= self.warmup;
        if is_warm && self.warm.is_none() {
            self.erased_warm = erased();
        }
        if is_warm && self.warm.is_none() || position >= self.next_epoch || self.start_us.is_none() {
            self.cut(position, Mark { counts: counts(), time_us });
        }
        is_warm
    }

    fn cut(&mut self, position: u64, mark: Mark) {
        self.start_us.get_or_insert(mark.time_us);
        if position >= self.warmup && self.warm.is_none() {
            (self.warm, self.begun) = (Some(mark), mark);
        } else if position >= self.next_epoch {
            self.end_epoch(mark);
        } else {
            return;
        }
        self.next_epoch = position.saturating_add(self.epoch.unwrap_or(u64::MAX));
    }

    fn end_epoch(&mut self, mark: Mark) {
        self.epochs.push(self.stretch(self.begun, mark));
        self.begun = mark;
    }

    fn stretch(&self, start: Mark, end: Mark) -> Stretch {
        Stretch {
            start_s: (start.time_us - self.start_us.unwrap_or(0)) as f64 / 1e6,
            seconds: (end.time_us - start.time_us).max(1) as f64 / 1e6,
            counts: end.counts - start.counts,
            decisions: self.decisions.len(),
        }
    }

    /// Returns the start of the next epoch.
    pub fn next_epoch(&self) -> u64 {
        self.next_epoch
    }

    /// Records the last decision, if it is new.
    pub fn note(&mut self, decision: Option<&Decision>) {
        if let Some(decision) = decision
            && decision.number > self.decisions.len() as u64
        {
            self.decisions.push(decision.clone());
        }
    }

    /// Returns the result at the end of the run; for `erased` see [`at`](Self::at).
    pub fn end(mut self, time_us: u64, counts: Counts, waits: Option<Waits>, erased: Option<Vec<u32>>) -> Ran {
        let wear = erased.map(|erased| Wear::between(self.erased_warm.as_ref().unwrap_or(&erased), &erased));
        let end = Mark { counts, time_us };
        if self.epoch.is_some() && self.warm.is_some() && counts.accesses() > self.begun.counts.accesses() {
            self.end_epoch(end);
        }
        let warm = self.warm.unwrap_or(end);
        let counted = self.stretch(warm, end);
        let Stretches { decisions, epochs, .. } = self;
        Ran { counted, warmup_accesses: warm.counts.accesses(), decisions, waits, epochs, wear, dirty_blocks: 0 }
    }
}

/// Start or end of a stretch.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    counts: Counts,
    time_us: u64,
}
