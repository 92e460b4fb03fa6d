//! What rows have besides hits: the tiers of a whole cache, and what a cache wears.

use flashwise_core::cache::Figures;
use flashwise_core::format::BLOCK_BYTES;

use crate::cache_simulation::CacheResult;
use crate::columns::figures;
use crate::endurance;
use crate::experiment;
use crate::wlfc::BucketCounts;
use flashwise_device::flash::lifetime;
use flashwise_device::flash::profile::Profile;

figures! {
    /// A read cache in RAM before a policy.
    pub struct RamFigures {
        /// RAM of the read cache.
        ram_bytes: u64, "bytes";
        /// Reads that the read cache in RAM had.
        ram_hits: u64, "block accesses";
    }
}

figures! {
    /// A cache that evicts whole buckets, at a queue depth of 1. Flash pages are programmed whole.
    pub struct BucketFigures {
        /// Size of the flash.
        flash_bytes: u64, "bytes";
        /// Requests, flushes included.
        requests: u64, "requests";
        /// Reads served from RAM.
        ram_hits: u64, "block accesses";
        /// Reads served from flash.
        flash_hits: u64, "block accesses";
        /// Erase blocks erased, by the host or by the device.
        erasures: u64, "erasures";
        /// Erasures per request.
        erase_ratio: f64, "erasures per request";
        /// Times that the backend was read or written.
        backend_accesses: u64, "accesses";
        /// Accesses of the backend per request; several may be due to one request.
        backend_ratio: f64, "accesses per request";
        /// Blocks read from the backend.
        backend_read_blocks: u64, "blocks";
        /// Blocks written to the backend, for clients or to write back.
        backend_written_blocks: u64, "blocks";
        /// From a request to its answer, on average over reads and writes; empty if there was none.
        latency_mean_us: Option<f64>, "us";
        /// The same of reads.
        read_latency_mean_us: Option<f64>, "us";
        /// The same of writes, trims and zeroes.
        write_latency_mean_us: Option<f64>, "us";
        /// Bytes read and written per time until the last answer; empty if no time passed.
        throughput_mib_s: Option<f64>, "MiB/s";
        /// Flash writes because clients wrote.
        flash_client_blocks: u64, "blocks";
        /// Flash writes to copy what was read, to bring copies up to date, and to collect garbage above the device.
        flash_copy_blocks: u64, "blocks";
        /// Flash writes to fill pages.
        padding_blocks: u64, "blocks";
        /// Flash writes of metadata: tombstones, zeroes and journals.
        metadata_blocks: u64, "blocks";
    }
}

impl BucketFigures {
    /// Of what was counted with so much flash.
    pub fn new(counts: &BucketCounts, flash_bytes: u64) -> BucketFigures {
        let per_request = |number: u64| if counts.requests == 0 { 0.0 } else { number as f64 / counts.requests as f64 };
        let mean_us = |ns: u64, of: u64| (of > 0).then(|| ns as f64 / of as f64 / 1000.0);
        let latencies = &counts.latencies;
        let backend_accesses = counts.backend_reads + counts.backend_writes;
        let mib = latencies.bytes as f64 / f64::from(1 << 20);
        BucketFigures {
            flash_bytes,
            requests: counts.requests,
            ram_hits: counts.ram_hits,
            flash_hits: counts.flash_hits,
            erasures: counts.erasures,
            erase_ratio: per_request(counts.erasures),
            backend_accesses,
            backend_ratio: per_request(backend_accesses),
            backend_read_blocks: counts.backend_read_blocks,
            backend_written_blocks: counts.backend_written_blocks,
            latency_mean_us: mean_us(latencies.reads_ns + latencies.writes_ns, latencies.reads + latencies.writes),
            read_latency_mean_us: mean_us(latencies.reads_ns, latencies.reads),
            write_latency_mean_us: mean_us(latencies.writes_ns, latencies.writes),
            throughput_mib_s: (counts.elapsed_ns > 0).then(|| mib / (counts.elapsed_ns as f64 / 1e9)),
            flash_client_blocks: counts.log_blocks,
            flash_copy_blocks: counts.copy_blocks,
            padding_blocks: counts.padding_blocks,
            metadata_blocks: counts.metadata_blocks,
        }
    }
}

figures! {
    /// What the tiers of a whole cache did, in blocks. Definitions are those of [`Figures`].
    pub struct CacheFigures {
        /// The rule that says what the cache takes in, as the user named it; empty if there is none.
        admission: String, "";
        /// When written data reaches the backend.
        write_mode: &'static str, "";
        /// Size of the flash.
        flash_bytes: u64, "bytes";
        /// RAM for the read and the write buffer.
        ram_bytes: u64, "bytes";
        /// Reads served from RAM.
        ram_hits: u64, "block accesses";
        /// Writes to blocks that waited in the write buffer.
        ram_write_hits: u64, "block accesses";
        /// Reads served from flash.
        flash_hits: u64, "block accesses";
        /// Flash writes because clients wrote.
        flash_client_blocks: u64, "blocks";
        /// Flash writes because the policy admitted blocks.
        flash_admission_blocks: u64, "blocks";
        /// Flash writes because wanted blocks were moved out of erase units that were reset.
        flash_copy_forward_blocks: u64, "blocks";
        /// Clean blocks that the policy wanted and that were not copied forward: they left the cache.
        dropped_blocks: u64, "blocks";
        /// Flash writes of metadata.
        flash_metadata_blocks: u64, "blocks";
        /// Erase units reset.
        erasures: u64, "erasures";
        /// All flash writes per block that was written for clients or admitted; 0 if there was none.
        host_write_amplification: f64, "factor";
        /// Blocks written back.
        destaged_blocks: u64, "blocks";
        /// Blocks read from the backend.
        backend_read_blocks: u64, "blocks";
        /// Blocks that clients' writes sent to the backend past the flash.
        backend_written_blocks: u64, "blocks";
        /// Blocks of sequential streams that bypassed the flash.
        sequential_blocks: u64, "blocks";
        /// Reads that the policy admitted and the flash had no space for.
        refused_read_blocks: u64, "blocks";
        /// Writes that the policy wanted on flash, which had no space for them.
        refused_write_blocks: u64, "blocks";
        /// Blocks that bypassed the flash because of whose they were.
        filtered_blocks: u64, "blocks";
    }
}

impl CacheFigures {
    /// The figures of `result`.
    pub(super) fn new(result: &CacheResult) -> CacheFigures {
        let config = &result.job.config;
        let figures = &result.counts.figures;
        let buffers = u64::from(config.read_buffer_blocks) + u64::from(config.write_buffer_blocks);
        CacheFigures {
            admission: config.admission.as_ref().map(|admission| admission.rule.to_string()).unwrap_or_default(),
            write_mode: config.mode.name(),
            flash_bytes: u64::from(config.geometry.pages()) * BLOCK_BYTES as u64,
            ram_bytes: buffers * BLOCK_BYTES as u64,
            ram_hits: figures.ram_read_hits,
            ram_write_hits: figures.ram_write_hits,
            flash_hits: figures.flash_read_hits,
            flash_client_blocks: figures.flash_client_blocks,
            flash_admission_blocks: figures.flash_admission_blocks,
            flash_copy_forward_blocks: figures.flash_copy_forward_blocks,
            dropped_blocks: figures.dropped_blocks,
            flash_metadata_blocks: figures.flash_metadata_blocks,
            erasures: figures.erasures,
            host_write_amplification: host_write_amplification(figures),
            destaged_blocks: figures.destaged_blocks,
            backend_read_blocks: figures.backend_read_blocks,
            backend_written_blocks: figures.backend_written_blocks,
            sequential_blocks: figures.sequential_blocks,
            refused_read_blocks: figures.refused_read_blocks,
            refused_write_blocks: figures.refused_write_blocks,
            filtered_blocks: figures.filtered_blocks,
        }
    }
}

fn host_write_amplification(figures: &Figures) -> f64 {
    let wanted = figures.flash_client_blocks + figures.flash_admission_blocks;
    if wanted == 0 { 0.0 } else { figures.flash_written_blocks() as f64 / wanted as f64 }
}

/// What the wear of a cache is compared with.
#[derive(Clone, Debug)]
pub struct WearLimits {
    /// The weight of the hits in WFUE, 0 to 1.
    pub wfue_alpha: f64,
    /// The flash, whose cycles count.
    pub device: Option<Profile>,
    /// The drive writes per day that are allowed.
    pub drive_writes_per_day: Option<f64>,
}

figures! {
    /// What a cache wears. Definitions are those of [`endurance::Counts`]. None stands where nothing was written or erased, where the trace has no
    /// times, or where no device was named.
    pub struct EnduranceFigures {
        /// How blocks lie on flash: `slots`, `containers`, or `unit` where every block is an erase unit.
        layout: &'static str, "";
        /// Size of an erase unit.
        erase_unit_bytes: u64, "bytes";
        /// Erase units, spare ones included.
        erase_units: u64, "erase units";
        /// Flash beyond the size of the cache, as a share of it.
        over_provision: f64, "share";
        /// DRAM in front of the flash.
        ram_bytes: u64, "bytes";
        /// Read hit ratio: reads that DRAM or flash had, per read.
        rhr: f64, "share";
        /// Reads that DRAM had.
        ram_hits: u64, "block accesses";
        /// Reads that the flash cache had.
        flash_hits: u64, "block accesses";
        /// Erase units erased.
        erasures: u64, "erasures";
        /// Erasures per erase unit and day.
        epbpd: Option<f64>, "erasures a unit and day";
        /// Flash usage effectiveness: blocks read from the flash cache per page programmed.
        fue: Option<f64>, "blocks a page";
        /// Weighted flash usage effectiveness against M+ (H for unit caching).
        wfue: Option<f64>, "ratio";
        /// The weight of the hits in `wfue`.
        wfue_alpha: f64, "share";
        /// Blocks that the host wrote per block that it wrote because of an access.
        host_write_amplification: Option<f64>, "factor";
        /// Pages that the device programmed per block that the host wrote.
        device_write_amplification: Option<f64>, "factor";
        /// Pages programmed per block that was written because of an access: of host and device together.
        write_amplification: Option<f64>, "factor";
        /// Flash writes because clients wrote.
        flash_client_blocks: u64, "blocks";
        /// Flash writes because blocks that were read were admitted.
        flash_admission_blocks: u64, "blocks";
        /// Flash writes because wanted blocks were moved out of erase units that were reset.
        flash_copy_forward_blocks: u64, "blocks";
        /// Pages that the device programmed.
        device_programs_pages: u64, "pages";
        /// Pages among them that the device copied for itself.
        device_copies_pages: u64, "pages";
        /// Share of the pages that were live in the erase units that were erased.
        live_at_eviction: Option<f64>, "share";
        /// Erasures of the least worn unit.
        wear_min: u64, "erasures";
        /// Erasures of a unit, on average.
        wear_mean: f64, "erasures";
        /// Erasures of the most worn unit.
        wear_max: u64, "erasures";
        /// Standard deviation of the erasures of a unit.
        wear_deviation: f64, "erasures";
        /// Days from the first access after the warm-up to the last.
        days: Option<f64>, "days";
        /// Bytes that the host wrote to flash per day.
        flash_bytes_per_day: Option<f64>, "bytes a day";
        /// What the host writes to flash per day, as a multiple of its size: what the endurance of drives is rated in.
        drive_writes_per_day: Option<f64>, "drive writes a day";
        /// The share of the drive writes per day that are allowed; above 1 the flash wears out before its time.
        drive_writes_budget_used: Option<f64>, "share";
        /// The device whose cycles count.
        device: Option<String>, "";
        /// Years until the most worn unit has reached the device's limit of erasures, at the rate of the trace.
        flash_lifetime_years: Option<f64>, "years";
    }
}

impl EnduranceFigures {
    /// The figures of `run` on its `flash`.
    pub(super) fn new(
        run: &experiment::Run,
        flash: &experiment::Flash,
        reference: Option<&endurance::Counts>,
        limits: &WearLimits,
        block_size_bytes: u64,
    ) -> EnduranceFigures {
        let (job, experiment::Flash { geometry, counts }) = (&run.job, flash);
        let (writes, wear) = (&counts.flash_writes, &counts.wear);
        let unit_bytes = u64::from(geometry.unit_pages) * block_size_bytes;
        let written_bytes = writes.total_blocks() * block_size_bytes;
        let capacity_bytes = job.capacity_blocks as u64 * block_size_bytes;
        let duration_us = counts.days.map_or(0, |days| (days * 86_400e6) as u64);
        let cycles = limits.device.as_ref().and_then(|device| device.pe_cycles);
        let most_worn = f64::from(wear.erasures_max);
        EnduranceFigures {
            layout: job.algorithm.layout(),
            erase_unit_bytes: unit_bytes,
            erase_units: geometry.units.into(),
            over_provision: geometry.ftl.over_provision,
            ram_bytes: geometry.ram_blocks * block_size_bytes,
            rhr: counts.rhr(),
            ram_hits: counts.ram_hits,
            flash_hits: counts.flash_hits,
            erasures: counts.erasures(),
            epbpd: counts.epbpd(),
            fue: counts.fue(),
            wfue: reference.and_then(|reference| counts.wfue(limits.wfue_alpha, reference)),
            wfue_alpha: limits.wfue_alpha,
            host_write_amplification: counts.host_write_amplification(),
            device_write_amplification: counts.device_write_amplification(),
            write_amplification: counts.write_amplification(),
            flash_client_blocks: writes.client_blocks,
            flash_admission_blocks: writes.admission_blocks,
            flash_copy_forward_blocks: writes.copy_forward_blocks,
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
            drive_writes_budget_used: limits
                .drive_writes_per_day
                .and_then(|budget| lifetime::budget_used(written_bytes, capacity_bytes, duration_us, budget)),
            device: limits.device.as_ref().map(|device| device.name.clone()),
            flash_lifetime_years: cycles.and_then(|cycles| lifetime::lifetime_years(most_worn, cycles, duration_us)),
        }
    }
}
