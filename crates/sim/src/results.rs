//! The figures of a run, named once: JSON, CSV, Parquet, tables and the report all show these rows.

use std::io::Write;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, ListArray, RecordBatch, StringArray, StructArray, UInt64Array};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Schema};
use flashwise_core::access::Op;
use flashwise_core::cache::Figures;
use flashwise_core::counters::Counters;
use flashwise_core::format::BLOCK_BYTES;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use serde::Serialize;

use crate::array::{ArrayFigures, ArrayRun};
use crate::cache_run::CacheCounts;
use crate::cache_simulation::CacheResult;
use crate::device::lifetime;
use crate::device::profile::Profile;
use crate::endurance;
use crate::simulate::Run;
use crate::trace::Trace;

/// One (trace, policy, size) and what came of it. Definitions are those of [`Counters`]; of a whole cache those of [`Figures`]
/// as well: its hits are those of RAM and flash, its flash writes have every cause.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ResultRow {
    /// The trace as the user named it.
    pub trace: String,
    /// The policy as the user named it.
    pub policy: String,
    /// The cache size as the user gave it.
    pub size: String,
    /// The cache size.
    pub capacity_blocks: u64,
    /// Length of a block.
    pub block_size_bytes: u64,
    /// Different blocks in the whole trace.
    pub unique_blocks: u64,
    /// Accesses at the start that are not counted.
    pub warmup_accesses: u64,
    /// Block accesses counted.
    pub accesses: u64,
    /// Reads among them.
    pub reads: u64,
    /// Writes among them.
    pub writes: u64,
    /// Reads that found their block in the cache.
    pub read_hits: u64,
    /// Writes that found their block in the cache.
    pub write_hits: u64,
    /// Both.
    pub hits: u64,
    /// Hits per access.
    pub hit_ratio: f64,
    /// Read hits per read.
    pub read_hit_ratio: f64,
    /// Misses whose block was put into the cache.
    pub admissions: u64,
    /// Read misses among them.
    pub read_admissions: u64,
    /// Write misses among them.
    pub write_admissions: u64,
    /// Admissions that evicted a block; not counted where endurance is simulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replacements: Option<u64>,
    /// Blocks that left the cache; not counted where endurance is simulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evictions: Option<u64>,
    /// Misses that left the cache as it was.
    pub bypasses: u64,
    /// Write hits and admissions; of a whole cache all that was written to flash.
    pub flash_writes_blocks: u64,
    /// The same in bytes.
    pub flash_bytes_written: u64,
    /// What the tiers of a whole cache did, if one was simulated.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheFigures>,
    /// What the cache wears, if that was simulated.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub endurance: Option<EnduranceFigures>,
    /// What an admission rule lets in, and what it does to an array, if that was simulated.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub admission: Option<AdmissionFigures>,
    /// Figures over time, if they were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub epochs: Vec<Epoch>,
}

/// What the tiers of a whole cache did, in blocks. Definitions are those of [`Figures`].
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CacheFigures {
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
}

impl CacheFigures {
    fn new(result: &CacheResult) -> CacheFigures {
        let config = &result.job.config;
        let figures = &result.counts.figures;
        let buffers = u64::from(config.read_buffer_blocks) + u64::from(config.write_buffer_blocks);
        CacheFigures {
            write_mode: config.mode.name(),
            flash_bytes: u64::from(config.geometry.pages()) * BLOCK_BYTES as u64,
            ram_bytes: buffers * BLOCK_BYTES as u64,
            ram_hits: figures.ram_read_hits,
            ram_write_hits: figures.ram_write_hits,
            flash_hits: figures.flash_read_hits,
            flash_client_blocks: figures.flash_client_blocks,
            flash_admission_blocks: figures.flash_admission_blocks,
            flash_copy_forward_blocks: figures.flash_copy_forward_blocks,
            flash_metadata_blocks: figures.flash_metadata_blocks,
            erasures: figures.erasures,
            host_write_amplification: host_write_amplification(figures),
            destaged_blocks: figures.destaged_blocks,
            backend_read_blocks: figures.backend_read_blocks,
            backend_written_blocks: figures.backend_written_blocks,
            sequential_blocks: figures.sequential_blocks,
        }
    }
}

fn host_write_amplification(figures: &Figures) -> f64 {
    let wanted = figures.flash_client_blocks + figures.flash_admission_blocks;
    if wanted == 0 { 0.0 } else { figures.flash_written_blocks() as f64 / wanted as f64 }
}

/// Figures of a run of consecutive accesses (Figure 8 of the LARC paper).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Epoch {
    /// Position of the epoch's first access in the trace.
    pub first_access: u64,
    /// Accesses in the epoch.
    pub accesses: u64,
    /// Hits per access.
    pub hit_ratio: f64,
    /// Replacements per access.
    pub replacement_rate: f64,
    /// Write hits and admissions.
    pub flash_writes_blocks: u64,
}

impl ResultRow {
    /// The row of `run`, which ran over `trace`.
    pub fn new(trace: &Trace, run: &Run) -> ResultRow {
        let counters = &run.counters;
        let (read, write) = (counters.of(Op::Read), counters.of(Op::Write));
        ResultRow {
            trace: trace.name().to_owned(),
            policy: run.job.policy.to_string(),
            size: run.job.size.clone(),
            capacity_blocks: run.job.capacity_blocks as u64,
            block_size_bytes: trace.block_size_bytes(),
            unique_blocks: trace.unique_blocks() as u64,
            warmup_accesses: trace.len() as u64 - counters.accesses(),
            accesses: counters.accesses(),
            reads: read.accesses(),
            writes: write.accesses(),
            read_hits: read.hits,
            write_hits: write.hits,
            hits: counters.hits(),
            hit_ratio: counters.hit_ratio(),
            read_hit_ratio: counters.read_hit_ratio(),
            admissions: counters.admissions(),
            read_admissions: read.admissions(),
            write_admissions: write.admissions(),
            replacements: Some(counters.replacements()),
            evictions: Some(counters.evictions()),
            bypasses: counters.bypasses(),
            flash_writes_blocks: counters.flash_writes_blocks(),
            flash_bytes_written: counters.flash_writes_blocks() * trace.block_size_bytes(),
            cache: None,
            endurance: None,
            admission: None,
            epochs: epochs(&run.epochs),
        }
    }

    /// The row of a policy behind an admission rule that ran over `trace`.
    pub fn of_array(trace: &Trace, run: &ArrayRun) -> ResultRow {
        let replayed = &run.replayed;
        let figures = ArrayFigures::of(&run.setting, &replayed.counts, replayed.seconds);
        let plain = Run { job: run.job.job.clone(), counters: replayed.counters, epochs: Vec::new() };
        let admission = AdmissionFigures {
            admission: run.job.admission.as_ref().map(ToString::to_string).unwrap_or_default(),
            latency_mean_us: figures.latency_mean_us,
            lifetime_years: figures.lifetime_years,
            latency_over_lifetime: figures.latency_over_lifetime,
            cache_write_rate: figures.cache_write_rate,
            storage_write_rate: figures.storage_write_rate,
            bypassed: figures.bypassed,
        };
        ResultRow { admission: Some(admission), ..ResultRow::new(trace, &plain) }
    }

    /// The row of a whole cache that ran over `trace`.
    pub fn of_cache(trace: &Trace, result: &CacheResult) -> ResultRow {
        let CacheCounts { figures, counters } = &result.counts;
        let (read, write) = (counters.of(Op::Read), counters.of(Op::Write));
        let read_hits = figures.ram_read_hits + figures.flash_read_hits;
        let write_hits = figures.ram_write_hits + write.hits;
        let accesses = result.counts.accesses();
        ResultRow {
            trace: trace.name().to_owned(),
            policy: result.job.config.policy.to_string(),
            size: result.job.size.clone(),
            capacity_blocks: result.job.config.capacity_blocks() as u64,
            block_size_bytes: trace.block_size_bytes(),
            unique_blocks: trace.unique_blocks() as u64,
            warmup_accesses: result.warmup_accesses,
            accesses,
            reads: figures.read_blocks,
            writes: figures.written_blocks,
            read_hits,
            write_hits,
            hits: read_hits + write_hits,
            hit_ratio: if accesses == 0 { 0.0 } else { (read_hits + write_hits) as f64 / accesses as f64 },
            read_hit_ratio: figures.read_hit_ratio(),
            admissions: counters.admissions(),
            read_admissions: read.admissions(),
            write_admissions: write.admissions(),
            replacements: Some(counters.replacements()),
            evictions: Some(counters.evictions()),
            bypasses: counters.bypasses(),
            flash_writes_blocks: figures.flash_written_blocks(),
            flash_bytes_written: figures.flash_written_blocks() * BLOCK_BYTES as u64,
            cache: Some(CacheFigures::new(result)),
            endurance: None,
            admission: None,
            epochs: cache_epochs(&result.epochs),
        }
    }
}

impl ResultRow {
    /// The row of a cache whose endurance was simulated over `trace`, compared with `reference` and `limits`.
    pub fn of_endurance(
        trace: &Trace,
        run: &endurance::Run,
        reference: &endurance::Counts,
        limits: &WearLimits,
    ) -> ResultRow {
        let counts = &run.counts;
        let block_size_bytes = trace.block_size_bytes();
        let (accesses, read_hits) = (counts.reads + counts.writes, counts.read_hits());
        let flash_writes_blocks = counts.flash_writes.total_blocks();
        ResultRow {
            trace: trace.name().to_owned(),
            policy: run.job.algorithm.to_string(),
            size: run.job.size.clone(),
            capacity_blocks: run.job.capacity_blocks as u64,
            block_size_bytes,
            unique_blocks: trace.unique_blocks() as u64,
            warmup_accesses: trace.len() as u64 - accesses,
            accesses,
            reads: counts.reads,
            writes: counts.writes,
            read_hits,
            write_hits: 0,
            hits: read_hits,
            hit_ratio: if accesses == 0 { 0.0 } else { read_hits as f64 / accesses as f64 },
            read_hit_ratio: counts.rhr(),
            admissions: counts.insertions(),
            read_admissions: counts.insertions_read,
            write_admissions: counts.insertions_write,
            replacements: None,
            evictions: None,
            bypasses: counts.bypasses,
            flash_writes_blocks,
            flash_bytes_written: flash_writes_blocks * block_size_bytes,
            cache: None,
            endurance: Some(EnduranceFigures::new(run, reference, limits, block_size_bytes)),
            admission: None,
            epochs: Vec::new(),
        }
    }
}

impl EnduranceFigures {
    fn new(
        run: &endurance::Run,
        reference: &endurance::Counts,
        limits: &WearLimits,
        block_size_bytes: u64,
    ) -> EnduranceFigures {
        let endurance::Run { job, geometry, counts } = run;
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
            wfue: counts.wfue(limits.wfue_alpha, reference),
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
            lifetime_years: cycles.and_then(|cycles| lifetime::lifetime_years(most_worn, cycles, duration_us)),
        }
    }
}

fn cache_epochs(counts: &[CacheCounts]) -> Vec<Epoch> {
    let mut first_access = 0;
    let epoch = |counts: &CacheCounts| {
        let CacheCounts { figures, counters } = counts;
        let ram_hits = figures.ram_read_hits + figures.ram_write_hits;
        let hits = ram_hits + figures.flash_read_hits + counters.of(Op::Write).hits;
        let accesses = counts.accesses();
        let epoch = Epoch {
            first_access,
            accesses,
            hit_ratio: hits as f64 / accesses as f64,
            replacement_rate: counters.replacements() as f64 / accesses as f64,
            flash_writes_blocks: figures.flash_written_blocks(),
        };
        first_access += accesses;
        epoch
    };
    counts.iter().map(epoch).collect()
}

fn epochs(counters: &[Counters]) -> Vec<Epoch> {
    let mut first_access = 0;
    let epoch = |counters: &Counters| {
        let epoch = Epoch {
            first_access,
            accesses: counters.accesses(),
            hit_ratio: counters.hit_ratio(),
            replacement_rate: counters.replacement_rate(),
            flash_writes_blocks: counters.flash_writes_blocks(),
        };
        first_access += epoch.accesses;
        epoch
    };
    counters.iter().map(epoch).collect()
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

/// What a cache wears. Definitions are those of [`Counts`]. None stands where nothing was written or erased, where the trace has no
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
    pub lifetime_years: Option<f64>,
}

/// What a policy behind an admission rule does to an array of cache and storage devices. Definitions are those of [`ArrayFigures`].
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AdmissionFigures {
    /// The rule as the user named it; empty if there is none.
    pub admission: String,
    /// How long a block access waits on average.
    pub latency_mean_us: f64,
    /// How long the array lasts; infinite, `null` in JSON, if nothing wears.
    pub lifetime_years: f64,
    /// Microseconds of latency per year of lifetime.
    pub latency_over_lifetime: f64,
    /// Writes per cell of the cache and second.
    pub cache_write_rate: f64,
    /// Writes per cell of the storage and second.
    pub storage_write_rate: f64,
    /// Accesses that went past the cache.
    pub bypassed: u64,
}

/// A column of results. JSON takes the same names from the fields of [`ResultRow`].
enum Column<R> {
    Text(fn(&R) -> &str),
    Count(fn(&R) -> u64),
    Ratio(fn(&R) -> f64),
    MaybeText(fn(&R) -> Option<&str>),
    MaybeCount(fn(&R) -> Option<u64>),
    MaybeRatio(fn(&R) -> Option<f64>),
}

/// Names each field of a row once more, with its kind.
macro_rules! columns {
    ($($kind:ident { $($field:ident)* })*) => {
        &[$($((stringify!($field), columns!(@ $kind $field))),*),*]
    };
    (@ Text $field:ident) => { Column::Text(|row| &row.$field) };
    (@ MaybeText $field:ident) => { Column::MaybeText(|row| row.$field.as_deref()) };
    (@ $kind:ident $field:ident) => { Column::$kind(|row| row.$field) };
}

/// The columns of CSV and Parquet, in the order of JSON.
const COLUMNS: &[(&str, Column<ResultRow>)] = columns! {
    Text { trace policy size }
    Count { capacity_blocks block_size_bytes unique_blocks warmup_accesses accesses reads writes read_hits write_hits hits }
    Ratio { hit_ratio read_hit_ratio }
    Count { admissions read_admissions write_admissions }
    MaybeCount { replacements evictions }
    Count { bypasses flash_writes_blocks flash_bytes_written }
};

/// The columns that follow where whole caches were simulated.
const CACHE_COLUMNS: &[(&str, Column<CacheFigures>)] = columns! {
    Text { write_mode }
    Count { flash_bytes ram_bytes ram_hits ram_write_hits flash_hits }
    Count { flash_client_blocks flash_admission_blocks flash_copy_forward_blocks flash_metadata_blocks erasures }
    Ratio { host_write_amplification }
    Count { destaged_blocks backend_read_blocks backend_written_blocks sequential_blocks }
};

/// The columns that follow where endurance was simulated.
const ENDURANCE_COLUMNS: &[(&str, Column<EnduranceFigures>)] = columns! {
    Text { layout }
    Count { erase_unit_bytes erase_units }
    Ratio { over_provision }
    Count { ram_bytes }
    Ratio { rhr }
    Count { ram_hits flash_hits erasures }
    MaybeRatio { epbpd fue wfue }
    Ratio { wfue_alpha }
    MaybeRatio { host_write_amplification device_write_amplification write_amplification }
    Count { client_blocks admission_blocks copy_forward_blocks device_programs_pages device_copies_pages }
    MaybeRatio { live_at_eviction }
    Count { wear_min }
    Ratio { wear_mean }
    Count { wear_max }
    Ratio { wear_deviation }
    MaybeRatio { days flash_bytes_per_day drive_writes_per_day drive_writes_budget_used }
    MaybeText { device }
    MaybeRatio { lifetime_years }
};

/// The columns that follow where an array was simulated.
const ADMISSION_COLUMNS: &[(&str, Column<AdmissionFigures>)] = columns! {
    Text { admission }
    Ratio { latency_mean_us lifetime_years latency_over_lifetime cache_write_rate storage_write_rate }
    Count { bypassed }
};

/// A column's name, and its cells as text or as an array.
struct Cells {
    name: &'static str,
    text: Vec<String>,
    array: ArrayRef,
    nullable: bool,
}

/// All columns of the rows: those of every row, and those of whole caches or of endurance where all rows have them.
fn columns_of(rows: &[ResultRow]) -> Vec<Cells> {
    fn cells<'a, R: 'a>(columns: &'static [(&'static str, Column<R>)], rows: Option<Vec<&'a R>>) -> Vec<Cells> {
        let Some(rows) = rows else { return Vec::new() };
        let cells = |(name, column): &'static (&'static str, Column<R>)| Cells {
            name,
            text: rows.iter().map(|row| column.text(row)).collect(),
            array: column.array(rows.iter().copied()),
            nullable: column.nullable(),
        };
        columns.iter().map(cells).collect()
    }
    let mut all = cells(COLUMNS, Some(rows.iter().collect()));
    if !rows.is_empty() {
        all.extend(cells(CACHE_COLUMNS, rows.iter().map(|row| row.cache.as_ref()).collect()));
        all.extend(cells(ENDURANCE_COLUMNS, rows.iter().map(|row| row.endurance.as_ref()).collect()));
        all.extend(cells(ADMISSION_COLUMNS, rows.iter().map(|row| row.admission.as_ref()).collect()));
    }
    all
}

impl<R> Column<R> {
    fn text(&self, row: &R) -> String {
        fn maybe(value: Option<impl ToString>) -> String {
            value.map(|value| value.to_string()).unwrap_or_default()
        }
        match self {
            Column::Text(field) => field(row).to_owned(),
            Column::Count(field) => field(row).to_string(),
            Column::Ratio(field) => field(row).to_string(),
            Column::MaybeText(field) => maybe(field(row)),
            Column::MaybeCount(field) => maybe(field(row)),
            Column::MaybeRatio(field) => maybe(field(row)),
        }
    }

    fn array<'a>(&self, rows: impl Iterator<Item = &'a R>) -> ArrayRef
    where
        R: 'a,
    {
        match self {
            Column::Text(field) => Arc::new(StringArray::from_iter_values(rows.map(field))),
            Column::Count(field) => Arc::new(UInt64Array::from_iter_values(rows.map(field))),
            Column::Ratio(field) => Arc::new(Float64Array::from_iter_values(rows.map(field))),
            Column::MaybeText(field) => Arc::new(rows.map(field).collect::<StringArray>()),
            Column::MaybeCount(field) => Arc::new(rows.map(field).collect::<UInt64Array>()),
            Column::MaybeRatio(field) => Arc::new(rows.map(field).collect::<Float64Array>()),
        }
    }

    fn nullable(&self) -> bool {
        matches!(self, Column::MaybeText(_) | Column::MaybeCount(_) | Column::MaybeRatio(_))
    }
}

/// Writes rows as CSV with a header. Epochs are left out.
pub fn write_csv(rows: &[ResultRow], out: impl Write) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    let columns = columns_of(rows);
    csv.write_record(columns.iter().map(|column| column.name))?;
    for row in 0..rows.len() {
        csv.write_record(columns.iter().map(|column| &column.text[row]))?;
    }
    csv.flush()
}

/// Rows as the contents of a Parquet file; the epochs of a row are a list in the last column.
pub fn parquet(rows: &[ResultRow]) -> Result<Vec<u8>, ParquetError> {
    let mut fields = Vec::new();
    let mut arrays = Vec::new();
    for Cells { name, array, nullable, .. } in columns_of(rows) {
        fields.push(Field::new(name, array.data_type().clone(), nullable));
        arrays.push(array);
    }
    let epochs = epoch_lists(rows);
    fields.push(Field::new("epochs", arrow::array::Array::data_type(&epochs).clone(), false));
    arrays.push(Arc::new(epochs));
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?;
    let properties = WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default())).build();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties))?;
    writer.write(&batch)?;
    writer.into_inner()
}

fn epoch_lists(rows: &[ResultRow]) -> ListArray {
    let epochs = || rows.iter().flat_map(|row| &row.epochs);
    let count = |figure: fn(&Epoch) -> u64| Arc::new(UInt64Array::from_iter_values(epochs().map(figure))) as ArrayRef;
    let ratio = |figure: fn(&Epoch) -> f64| Arc::new(Float64Array::from_iter_values(epochs().map(figure))) as ArrayRef;
    let columns = [
        ("first_access", count(|epoch| epoch.first_access)),
        ("accesses", count(|epoch| epoch.accesses)),
        ("hit_ratio", ratio(|epoch| epoch.hit_ratio)),
        ("replacement_rate", ratio(|epoch| epoch.replacement_rate)),
        ("flash_writes_blocks", count(|epoch| epoch.flash_writes_blocks)),
    ];
    let field = |(name, array): (&str, ArrayRef)| (Arc::new(Field::new(name, array.data_type().clone(), false)), array);
    let values = StructArray::from(columns.map(field).to_vec());
    let item = Field::new("item", DataType::Struct(values.fields().clone()), false);
    let offsets = OffsetBuffer::from_lengths(rows.iter().map(|row| row.epochs.len()));
    ListArray::new(Arc::new(item), offsets, Arc::new(values), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_and_columns_name_the_same_figures_in_the_same_order() {
        let (replacements, evictions) = (Some(0), Some(0));
        let whole = || ResultRow { replacements, evictions, ..ResultRow::default() };
        let row = ResultRow { cache: Some(CacheFigures::default()), ..whole() };
        let worn = ResultRow { endurance: Some(EnduranceFigures::default()), ..whole() };
        let array = ResultRow { admission: Some(AdmissionFigures::default()), ..whole() };
        for row in [whole(), row, worn, array] {
            let json = serde_json::to_value(&row).unwrap();
            let in_json: Vec<_> = json.as_object().unwrap().keys().map(String::as_str).collect();
            let columns = columns_of(std::slice::from_ref(&row));
            assert_eq!(in_json, columns.iter().map(|column| column.name).collect::<Vec<_>>());
        }
    }
}
