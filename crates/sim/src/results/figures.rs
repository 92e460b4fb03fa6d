//! Figures of rows besides hits: of the tiers of a cache, and of flash wear.

use flashwise_core::block_cache::FlashWrites;
use flashwise_core::cache::Config;
use flashwise_core::format::BLOCK_BYTES;

use crate::columns::{Show, figures};
use crate::endurance::Endurance;
use crate::experiment;
use crate::stretch::{Counts, Whole};
use crate::wlfc::Buckets;
use flashwise_device::flash::lifetime;
use flashwise_device::flash::profile::Profile;

figures! {
    /// A read cache in RAM before a policy.
    pub struct RamFigures {
        /// RAM of the read cache.
        ram_bytes: u64, "bytes";
        /// Read hits of the read cache in RAM.
        ram_read_hits: u64, "block accesses", "RAM", "reads that it had";
    }
}

flashwise_core::cache_figures! { figures! { @flash
    /// Work of RAM and flash.
    pub struct TierFigures {
        /// RAM of the read cache and the write buffers. It exceeds `--ram` if the buffers need more.
        ram_bytes: u64, "bytes";
        /// Reads that RAM had: the read cache, or a write buffer or open erase unit with a block that was not on flash
        /// yet.
        ram_read_hits: u64, "block accesses", "RAM", "reads that it had";
        /// Read hits on flash.
        flash_read_hits: u64, "block accesses", "flash", "reads that it had";
    } {
        /// Erasures: erase units erased by the device, or reset by the cache if no device is simulated.
        erasures: u64, "erasures", "erased", "erase units";
        /// Blocks that the host wrote to flash, per block written because of an access.
        host_write_amplification: Option<f64>, "factor", "host x", "flash writes per block of client and admitted";
    }
} }

impl TierFigures {
    /// Returns the figures of `run`; `None` for policies without flash.
    pub(super) fn of(run: &experiment::Run) -> Option<TierFigures> {
        let counts = run.counts();
        let erasures = run.erasures(counts)?;
        let FlashWrites { client_blocks, admission_blocks, copy_forward_blocks, metadata_blocks } =
            counts.tally.flash_writes;
        Some(TierFigures {
            ram_bytes: run.ram_bytes,
            ram_read_hits: counts.ram_hits,
            flash_read_hits: counts.flash_hits(),
            flash_client_blocks: client_blocks,
            flash_admission_blocks: admission_blocks,
            flash_copy_forward_blocks: copy_forward_blocks,
            flash_metadata_blocks: metadata_blocks,
            erasures,
            host_write_amplification: counts.tally.flash_writes.amplification(),
        })
    }
}

figures! {
    /// Figures of caches that evict whole buckets. Flash pages are programmed whole; the host or the device erases
    /// blocks.
    pub struct BucketFigures {
        /// Size of the flash.
        flash_bytes: u64, "bytes";
        /// Requests, including flushes.
        requests: u64, "requests";
        /// Erasures per request.
        erase_ratio: f64, "erasures per request", "erased each", "erasures per request";
        /// Read and write accesses of the backend.
        backend_accesses: u64, "accesses", "backend", "times that it was read or written";
        /// Accesses of the backend per request; one request may cause several.
        backend_ratio: f64, "accesses per request", "backend each", "accesses of the backend per request";
        /// Blocks read from the backend.
        backend_read_blocks: u64, "blocks";
        /// Blocks that clients wrote to the backend past the flash.
        backend_written_blocks: u64, "blocks";
        /// Blocks written back, and pages written to a journal before.
        destaged_blocks: u64, "blocks", "written back", "";
        /// Mean time from a request to its answer, if requests come one after the other; empty with `--arrivals`.
        serial_latency_mean_us: Option<f64>, "us", "latency", "mean, of requests that come one after the other";
        /// The same for reads; empty if there was none.
        read_latency_mean_us: Option<f64>, "us", "read latency", "";
        /// The same for writes, trims and zeroes.
        write_latency_mean_us: Option<f64>, "us", "write latency", "";
        /// Bytes read and written per second until the last answer; empty like the latencies.
        throughput_mib_s: Option<f64>, "MiB/s", "MiB/s", "";
        /// Flash writes among `flash_metadata_blocks` that only fill pages.
        flash_padding_blocks: u64, "blocks", "filled", "part of the metadata that only fills flash pages";
    }
}

impl BucketFigures {
    /// Returns the figures of a cache of buckets that counted this, on flash of this many bytes.
    pub fn of(counts: &Counts, flash_bytes: u64) -> BucketFigures {
        let Buckets { figures, latencies } = counts.buckets.unwrap_or_default();
        let per_request =
            |number: u64| if figures.requests == 0 { 0.0 } else { number as f64 / figures.requests as f64 };
        let mean_us = |ns: u64, of: u64| (of > 0).then(|| ns as f64 / of as f64 / 1000.0);
        let mib = latencies.bytes as f64 / f64::from(1 << 20);
        BucketFigures {
            flash_bytes,
            requests: figures.requests,
            erase_ratio: per_request(counts.device.erasures),
            backend_accesses: figures.backend_accesses(),
            backend_ratio: per_request(figures.backend_accesses()),
            backend_read_blocks: figures.backend_read_blocks,
            backend_written_blocks: figures.passed_blocks,
            destaged_blocks: counts.answered.written_back,
            serial_latency_mean_us: mean_us(
                latencies.reads_ns + latencies.writes_ns,
                latencies.reads + latencies.writes,
            ),
            read_latency_mean_us: mean_us(latencies.reads_ns, latencies.reads),
            write_latency_mean_us: mean_us(latencies.writes_ns, latencies.writes),
            throughput_mib_s: (latencies.elapsed_ns > 0).then(|| mib / (latencies.elapsed_ns as f64 / 1e9)),
            flash_padding_blocks: figures.padding_blocks,
        }
    }
}

flashwise_core::cache_figures! { figures! { @log
    /// Figures that only the whole cache has, in blocks. Definitions are those of
    /// [`Figures`](flashwise_core::cache::Figures).
    pub struct CacheFigures {
        /// When written data reaches the backend: `write-back`, `write-through` or `write-around`.
        write_mode: &'static str, "";
        /// Size of the flash.
        flash_bytes: u64, "bytes";
    } {
        /// Erase units that the cache reset.
        resets: u64, "erase units";
        /// Flushes of the flash.
        flash_flushes: u64, "flushes";
        /// Flushes of the backend.
        backend_flushes: u64, "flushes";
        /// Blocks at the end that are still to be written back.
        dirty_blocks: u64, "blocks";
    }
} }

/// Copies the counts of a cache, by their table.
macro_rules! with_figures {
    (@of $figures:ident, $own:expr; [$($flash:tt)*] [$($(#[$doc:meta])+ $log:ident: $type:ty $(, $about:literal)+;)*]) => {
        CacheFigures { $($log: $figures.$log,)* ..$own }
    };
}

impl CacheFigures {
    /// Returns the figures of a cache of `config` that counted `whole`, and has so many dirty blocks at the end.
    pub(super) fn new(config: &Config, whole: &Whole, dirty_blocks: u64) -> CacheFigures {
        let figures = &whole.figures;
        let own = CacheFigures {
            write_mode: config.mode.name(),
            flash_bytes: u64::from(config.geometry.pages()) * BLOCK_BYTES as u64,
            resets: figures.erasures,
            flash_flushes: whole.flash_flushes,
            backend_flushes: whole.backend_flushes,
            dirty_blocks,
            ..CacheFigures::default()
        };
        flashwise_core::cache_figures! { with_figures! { @of figures, own; } }
    }
}

/// Limits for comparison with wear.
#[derive(Clone, Debug, PartialEq)]
pub struct WearLimits {
    /// Weight of hits in WFUE, 0 to 1.
    pub wfue_alpha: f64,
    /// The flash, for its cycles.
    pub device: Option<Profile>,
    /// Allowed drive writes per day.
    pub drive_writes_per_day: Option<f64>,
}

impl Default for WearLimits {
    fn default() -> WearLimits {
        WearLimits { wfue_alpha: 0.5, device: None, drive_writes_per_day: None }
    }
}

figures! {
    /// Flash wear after the warm-up. Definitions are those of [`Endurance`]. Figures are empty if nothing was written
    /// or erased, the trace has no times, or no device was given.
    pub struct EnduranceFigures {
        /// Layout of the flash: `in-place`, `containers`, `log`, or `unit` if every block is an erase unit.
        layout: &'static str, "";
        /// Size of an erase unit.
        erase_unit_bytes: u64, "bytes";
        /// Erase units, including spare ones.
        erase_units: u64, "erase units";
        /// Flash beyond the size of the cache, as a share of the size.
        spare: f64, "share", "spare", "flash beyond the size";
        /// RAM of the read cache in front of the flash: `--ram` less the buffer.
        read_cache_bytes: u64, "bytes", "read cache", "RAM";
        /// Maximum RAM of the write buffer, or of the erase units that fill in RAM. Its blocks count towards the size
        /// of the cache.
        buffer_bytes: u64, "bytes", "buffer", "RAM of the write buffer or of open erase units";
        /// Reads among `ram_read_hits` from a write buffer or an open erase unit. Always 0 for `--layout log`, which
        /// does not separate them.
        buffer_hits: u64, "block accesses";
        /// Read hit ratio: reads that hit in RAM or on flash, per read.
        rhr: f64, "share";
        /// Erasures per erase unit and day.
        epbpd: Option<f64>, "erasures a unit and day", "per day", "erasures of each erase unit", Show::Rate;
        /// Flash usage effectiveness: blocks that hits read from flash per page programmed. Hits in RAM do not count.
        fue: Option<f64>, "blocks a page", "FUE", "blocks read from flash per page programmed";
        /// Weighted flash usage effectiveness: hits and saved erasures, weighted, against M+ (H for unit caching).
        wfue: Option<f64>, "ratio", "WFUE", "hits and saved erasures, weighted, against m+";
        /// Read hit ratio relative to M+ (H for unit caching); an input of `wfue`.
        rhr_of_m_plus: Option<f64>, "ratio";
        /// Erasures relative to M+ at the same size (H for unit caching). The difference from 1 is saved; an input of
        /// `wfue`.
        erasures_of_m_plus: Option<f64>, "ratio";
        /// Weight of hits in `wfue`.
        wfue_alpha: f64, "share";
        /// Pages that the device programmed per block that the host wrote.
        device_write_amplification: Option<f64>, "factor", "device x", "pages programmed per flash write";
        /// Pages programmed per block written because of an access, by host and device together.
        write_amplification: Option<f64>, "factor";
        /// Pages that the host read.
        host_read_pages: u64, "pages";
        /// Pages that the host discarded, singly or by resetting their unit.
        host_discarded_pages: u64, "pages";
        /// Pages that the device programmed.
        device_programs_pages: u64, "pages";
        /// Pages among them that the device copied internally.
        device_copies_pages: u64, "pages";
        /// Share of live pages in the erase units that were erased.
        live_at_eviction: Option<f64>, "share";
        /// Erasures of the least worn unit after the warm-up.
        wear_min: u64, "erasures";
        /// Mean erasures of a unit after the warm-up.
        wear_mean: f64, "erasures";
        /// Erasures of the most worn unit after the warm-up.
        wear_max: u64, "erasures";
        /// Standard deviation of the erasures of a unit after the warm-up.
        wear_deviation: f64, "erasures";
        /// Days from the first access after the warm-up to the last.
        days: Option<f64>, "days";
        /// Bytes that the host wrote to flash per day.
        flash_bytes_per_day: Option<f64>, "bytes a day";
        /// Host writes per day, divided by the size of the flash. Drives are rated in this unit.
        drive_writes_per_day: Option<f64>, "drive writes a day";
        /// The device whose cycles limit the lifetime.
        device: Option<String>, "";
        /// Years until the most worn unit reaches the device's limit of erasures, at the rate of the trace.
        flash_lifetime_years: Option<f64>, "years";
    }
}

/// Returns the share of the allowed drive writes per day that `run` used. The allowance is that of `limits`, if there
/// is flash, or the budget of the admission rule. `None` without an allowance, or if no time passes.
pub(super) fn drive_writes_budget_used(
    run: &experiment::Run,
    limits: &WearLimits,
    written_bytes: u64,
    block_bytes: u64,
) -> Option<f64> {
    let of_drive = run.flash.as_ref().and(limits.drive_writes_per_day);
    let of_rule = || run.case.admission.as_ref().and_then(|rule| rule.writes_per_day());
    let (budget, blocks) = match (of_drive, &run.whole) {
        (Some(budget), Some(config)) => (budget, u64::from(config.geometry.pages())),
        (Some(budget), None) => (budget, run.case.capacity_blocks as u64),
        (None, Some(config)) => (of_rule()?, config.capacity_blocks() as u64),
        (None, None) => (of_rule()?, run.case.capacity_blocks as u64),
    };
    let days = match &run.flash {
        Some(flash) => flash.counts.days?,
        None => run.ran.counted.seconds / 86_400.0,
    };
    let duration_us = (days * 86_400e6) as u64;
    lifetime::budget_used(written_bytes, blocks * block_bytes, duration_us, budget)
}

impl EnduranceFigures {
    /// Returns the figures of `run` on its `flash`.
    pub(super) fn new(
        run: &experiment::Run,
        flash: &experiment::Flash,
        reference: Option<&Endurance>,
        limits: &WearLimits,
        block_size_bytes: u64,
    ) -> EnduranceFigures {
        let (case, experiment::Flash { geometry, counts }) = (&run.case, flash);
        let (writes, wear) = (&counts.tally.flash_writes, &counts.wear);
        let unit_bytes = u64::from(geometry.unit_pages) * block_size_bytes;
        let written_bytes = writes.total_blocks() * block_size_bytes;
        // For the log all its flash, otherwise the cache's size.
        let held_blocks =
            run.whole.as_ref().map_or(case.capacity_blocks as u64, |config| config.geometry.pages().into());
        let capacity_bytes = held_blocks * block_size_bytes;
        let duration_us = counts.days.map_or(0, |days| (days * 86_400e6) as u64);
        let cycles = limits.device.as_ref().and_then(|device| device.pe_cycles);
        let most_worn = f64::from(wear.erasures_max);
        EnduranceFigures {
            layout: run.layout(),
            erase_unit_bytes: unit_bytes,
            erase_units: geometry.units.into(),
            spare: geometry.ftl.spare,
            read_cache_bytes: geometry.read_cache_blocks as u64 * block_size_bytes,
            buffer_bytes: geometry.buffer_blocks * block_size_bytes,
            buffer_hits: counts.tally.buffer_hits,
            rhr: counts.rhr(),
            epbpd: counts.epbpd(),
            fue: counts.fue(),
            wfue: reference.and_then(|reference| counts.wfue(limits.wfue_alpha, reference)),
            rhr_of_m_plus: reference.and_then(|reference| counts.rhr_of(reference)),
            erasures_of_m_plus: reference.and_then(|reference| counts.erasures_of(reference)),
            wfue_alpha: limits.wfue_alpha,
            device_write_amplification: counts.device_write_amplification(),
            write_amplification: counts.write_amplification(),
            host_read_pages: counts.device.host_reads,
            host_discarded_pages: counts.device.host_discards,
            device_programs_pages: counts.device.programs(),
            device_copies_pages: counts.device.programs() - counts.device.programs_host,
            live_at_eviction: counts.live_share_at_eviction(),
            wear_min: wear.erasures_min.into(),
            wear_mean: wear.erasures_mean,
            wear_max: wear.erasures_max.into(),
            wear_deviation: wear.erasures_deviation,
            days: counts.days,
            flash_bytes_per_day: lifetime::bytes_per_day(written_bytes, duration_us),
            drive_writes_per_day: lifetime::drive_writes_per_day(written_bytes, capacity_bytes, duration_us),
            device: limits.device.as_ref().map(|device| device.name.clone()),
            flash_lifetime_years: cycles.and_then(|cycles| lifetime::lifetime_years(most_worn, cycles, duration_us)),
        }
    }
}
