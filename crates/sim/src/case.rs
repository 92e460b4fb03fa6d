//! A case, and the result of running it.

use flashwise_core::admission::{Setting, Spec as Rule};
use flashwise_core::cache::Config;
use flashwise_core::format::BLOCK_BYTES;
use flashwise_trace::Trace;

use crate::endurance::{Algorithm, Endurance, Geometry};
use crate::sampling::SampleFigures;
use crate::stretch::{Counts, Ran};

/// A cache to run over one trace.
#[derive(Clone, Debug)]
pub struct Case {
    /// Position of the trace among the traces.
    pub trace: usize,
    /// The policy or algorithm.
    pub algorithm: Algorithm,
    /// The rule in front of it, if there is one.
    pub admission: Option<Rule>,
    /// The size as it was asked for.
    pub size: String,
    /// The size.
    pub capacity_blocks: usize,
}

impl Case {
    /// A cache without a rule over the first trace.
    pub fn of(algorithm: impl Into<Algorithm>, size: impl ToString, capacity_blocks: usize) -> Case {
        Case { trace: 0, algorithm: algorithm.into(), admission: None, size: size.to_string(), capacity_blocks }
    }
}

/// The flash of a run.
#[derive(Clone, Debug)]
pub struct Flash {
    /// Its parts.
    pub geometry: Geometry,
    /// Counts and wear after the warm-up.
    pub counts: Endurance,
}

/// The result of a case.
#[derive(Clone, Debug)]
pub struct Run {
    /// The case.
    pub case: Case,
    /// The array, as large as cache and trace make it, if one was simulated.
    pub setting: Option<Setting>,
    /// The flash, if one was simulated.
    pub flash: Option<Flash>,
    /// The whole cache, if that is what ran.
    pub whole: Option<Config>,
    /// Number of blocks that fit.
    pub capacity_blocks: u64,
    /// RAM that was used: read cache, write buffer, open erase units.
    pub ram_bytes: u64,
    /// The counts.
    pub ran: Ran,
    /// Accuracy of the counts, if they are estimates from a sample.
    pub sample: Option<SampleFigures>,
}

impl Run {
    /// A run without devices, flash and RAM.
    pub(crate) fn new(case: Case, ran: Ran) -> Run {
        let capacity_blocks = case.capacity_blocks as u64;
        Run { case, setting: None, flash: None, whole: None, capacity_blocks, ram_bytes: 0, ran, sample: None }
    }

    /// The counts after the warm-up.
    pub fn counts(&self) -> &Counts {
        &self.ran.counted.counts
    }

    /// True if blocks lie on flash, modelled or not.
    pub fn has_flash(&self) -> bool {
        self.flash.is_some() || self.whole.is_some() || self.counts().buckets.is_some()
    }

    /// Blocks written to flash, of these counts of the run: those of a layout, or the write hits and admissions.
    pub(crate) fn flash_writes_blocks(&self, counts: &Counts) -> u64 {
        match self.has_flash() {
            true => counts.tally.flash_writes.total_blocks(),
            false => counts.counters.flash_writes_blocks(),
        }
    }

    /// Erase units erased, of these counts of the run: by the device if simulated, otherwise by the whole cache.
    pub(crate) fn erasures(&self, counts: &Counts) -> Option<u64> {
        match (&self.flash, &counts.whole) {
            (None, Some(whole)) => Some(whole.figures.erasures),
            _ => self.has_flash().then_some(counts.device.erasures),
        }
    }

    /// Size of a block of the cache: that of the trace's, or 4,096 bytes if the cache handles requests.
    pub fn block_bytes(&self, trace: &Trace) -> u64 {
        let has_own = self.whole.is_some() || self.counts().buckets.is_some();
        if has_own { BLOCK_BYTES as u64 } else { trace.block_size_bytes() }
    }

    /// How blocks lie on flash: `log`, or as the algorithm has them.
    pub fn layout(&self) -> &'static str {
        if self.whole.is_some() { "log" } else { self.case.algorithm.layout() }
    }
}
