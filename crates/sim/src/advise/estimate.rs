//! Estimates for the whole cache from a simulation of only the policy: mean latency, and writes to flash.

use flashwise_core::tiers::Device;

use crate::results::ResultRow;

/// A cache is not tried if its estimated latency exceeds the target by more than this factor.
const LATENCY_MARGIN: f64 = 1.5;
/// A cache is not tried if its estimated lifetime is shorter than the target by more than this factor. The log may
/// write less than estimated, because its buffer absorbs overwrites, or more, because it copies forward.
const YEARS_MARGIN: f64 = 3.0;

/// The accesses of a trace by the device that answers them. From a sample they are estimates.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Estimate {
    reads: f64,
    flash_read_hits: f64,
    read_misses: f64,
    writes: f64,
    bypassed_writes: f64,
    cached_writes: f64,
    read_admissions: f64,
    block_bytes: f64,
    /// Standard error of the hit ratio.
    pub error: f64,
}

impl Estimate {
    pub fn of(row: &ResultRow) -> Estimate {
        let ram_hits = row.ram.as_ref().map_or(0, |ram| ram.ram_read_hits);
        let cached_writes = row.write_hits + row.write_admissions;
        Estimate {
            reads: row.reads as f64,
            flash_read_hits: row.read_hits.saturating_sub(ram_hits) as f64,
            read_misses: row.reads.saturating_sub(row.read_hits) as f64,
            writes: row.writes as f64,
            bypassed_writes: row.writes.saturating_sub(cached_writes) as f64,
            cached_writes: cached_writes as f64,
            read_admissions: row.read_admissions as f64,
            block_bytes: row.block_size_bytes as f64,
            error: row.sample.as_ref().map_or(0.0, |sample| sample.hit_ratio_standard_error),
        }
    }

    /// Returns the mean latency of an access. Data that is written back later is answered from RAM.
    pub fn latency_us(&self, mode: &str, cache: &Device, storage: &Device) -> f64 {
        let waiting_writes = if mode == "write-back" { self.bypassed_writes } else { self.writes };
        self.mean_us(waiting_writes, cache, storage)
    }

    /// Returns the same if RAM also answers bypassed writes before they reach the storage.
    pub fn shortest_us(&self, mode: &str, cache: &Device, storage: &Device) -> f64 {
        let waiting_writes = if mode == "write-back" { 0.0 } else { self.writes };
        self.mean_us(waiting_writes, cache, storage)
    }

    fn mean_us(&self, waiting_writes: f64, cache: &Device, storage: &Device) -> f64 {
        let sum = self.flash_read_hits * cache.read_latency_us
            + self.read_misses * storage.read_latency_us
            + waiting_writes * storage.write_latency_us;
        sum / (self.reads + self.writes).max(1.0)
    }

    /// Returns the bytes written to flash for accesses.
    pub fn flash_bytes(&self, mode: &str) -> f64 {
        let writes = if mode == "write-around" { 0.0 } else { self.cached_writes };
        (writes + self.read_admissions) * self.block_bytes
    }

    /// True if a cache with this estimate may meet targets that it misses by these factors. The errors of a sample
    /// widen the margins.
    pub fn may_meet(&self, latency_missed_by: f64, years_missed_by: f64, storage_share: f64) -> bool {
        // An error of the hit ratio moves accesses to the storage's latency.
        let sampled = 3.0 * self.error * storage_share;
        latency_missed_by <= LATENCY_MARGIN + sampled && years_missed_by <= YEARS_MARGIN
    }

    /// Returns the shortest latency within the error of an estimate of `latency_us`, if the storage takes at most
    /// `slowest_us`.
    pub fn least_latency_us(&self, latency_us: f64, slowest_us: f64) -> f64 {
        (latency_us / LATENCY_MARGIN - 3.0 * self.error * slowest_us).max(0.0)
    }
}
