//! What rows have besides hits: the tiers of a whole cache, and what a cache wears.

use flashwise_core::cache::Figures;
use flashwise_core::format::BLOCK_BYTES;
use serde::Serialize;

use crate::cache_simulation::CacheResult;
use crate::endurance;
use crate::experiment;
use flashwise_device::flash::lifetime;
use flashwise_device::flash::profile::Profile;

/// A read cache in RAM before a policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RamFigures {
    /// Its size.
    pub ram_bytes: u64,
    /// Reads that it had.
    pub ram_hits: u64,
}

/// What the tiers of a whole cache did, in blocks. Definitions are those of [`Figures`].
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CacheFigures {
    /// The rule that says what the cache takes in, as the user named it; empty if there is none.
    pub admission: String,
    /// When written data reaches the backend.
    pub write_mode: &'static str,
    /// Size of the flash.
    pub flash_bytes: u64,
    /// RAM for the read and the write buffer.
    pub ram_bytes: u64,
    /// Reads served from RAM.
    pub ram_hits: u64,
    /// Writes to blocks that waited in the write buffer.
    pub ram_write_hits: u64,
    /// Reads served from flash.
    pub flash_hits: u64,
    /// Flash writes because clients wrote.
    pub flash_client_blocks: u64,
    /// Flash writes because the policy admitted blocks.
    pub flash_admission_blocks: u64,
    /// Flash writes because wanted blocks were moved out of erase units that were reset.
    pub flash_copy_forward_blocks: u64,
    /// Clean blocks that the policy wanted and that were not moved.
    pub dropped_blocks: u64,
    /// Flash writes of metadata.
    pub flash_metadata_blocks: u64,
    /// Erase units reset.
    pub erasures: u64,
    /// All flash writes per block that was written for clients or admitted; 0 if there was none.
    pub host_write_amplification: f64,
    /// Blocks written back.
    pub destaged_blocks: u64,
    /// Blocks read from the backend.
    pub backend_read_blocks: u64,
    /// Blocks that clients' writes sent to the backend past the flash.
    pub backend_written_blocks: u64,
    /// Blocks of sequential streams that bypassed the flash.
    pub sequential_blocks: u64,
    /// Reads that the policy admitted and the flash had no space for.
    pub refused_read_blocks: u64,
    /// Writes that the policy wanted on flash, which had no space for them.
    pub refused_write_blocks: u64,
    /// Blocks that bypassed the flash because of whose they were.
    pub filtered_blocks: u64,
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

/// What a cache wears. Definitions are those of [`endurance::Counts`]. None stands where nothing was written or erased, where the trace has no
/// times, or where no device was named.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct EnduranceFigures {
    /// How blocks lie on flash: `slots`, `containers`, or `unit` where every block is an erase unit.
    pub layout: &'static str,
    /// Size of an erase unit.
    pub erase_unit_bytes: u64,
    /// Erase units, spare ones included.
    pub erase_units: u64,
    /// Flash beyond the size of the cache, as a share of it.
    pub over_provision: f64,
    /// DRAM in front of the flash.
    pub ram_bytes: u64,
    /// Read hit ratio: reads that DRAM or flash had, per read.
    pub rhr: f64,
    /// Reads that DRAM had.
    pub ram_hits: u64,
    /// Reads that the flash cache had.
    pub flash_hits: u64,
    /// Erase units erased.
    pub erasures: u64,
    /// Erasures per erase unit and day.
    pub epbpd: Option<f64>,
    /// Flash usage effectiveness: blocks read from the flash cache per page programmed.
    pub fue: Option<f64>,
    /// Weighted flash usage effectiveness against M+ (H for unit caching).
    pub wfue: Option<f64>,
    /// The weight of the hits in it.
    pub wfue_alpha: f64,
    /// Blocks that the host wrote per block that it wrote because of an access.
    pub host_write_amplification: Option<f64>,
    /// Pages that the device programmed per block that the host wrote.
    pub device_write_amplification: Option<f64>,
    /// Both together.
    pub write_amplification: Option<f64>,
    /// Flash writes because clients wrote.
    pub client_blocks: u64,
    /// Flash writes because blocks that were read were admitted.
    pub admission_blocks: u64,
    /// Flash writes because wanted blocks were moved out of erase units that were reset.
    pub copy_forward_blocks: u64,
    /// Pages that the device programmed.
    pub device_programs_pages: u64,
    /// Pages among them that the device copied for itself.
    pub device_copies_pages: u64,
    /// Share of the pages that were live in the erase units that were erased.
    pub live_at_eviction: Option<f64>,
    /// Erasures of the least worn unit, ...
    pub wear_min: u64,
    /// ... of all on average, ...
    pub wear_mean: f64,
    /// ... of the most worn, ...
    pub wear_max: u64,
    /// ... and their standard deviation.
    pub wear_deviation: f64,
    /// Days that the trace spans.
    pub days: Option<f64>,
    /// Bytes that the host wrote to flash per day.
    pub flash_bytes_per_day: Option<f64>,
    /// The same as a multiple of the flash's size: what drives' endurance is rated in.
    pub drive_writes_per_day: Option<f64>,
    /// The share of the drive writes per day that are allowed; above 1 the flash wears out before its time.
    pub drive_writes_budget_used: Option<f64>,
    /// The device whose cycles count.
    pub device: Option<String>,
    /// Years until the most worn unit has reached the device's limit of erasures, at the rate of the trace.
    pub flash_lifetime_years: Option<f64>,
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
            client_blocks: writes.client_blocks,
            admission_blocks: writes.admission_blocks,
            copy_forward_blocks: writes.copy_forward_blocks,
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
