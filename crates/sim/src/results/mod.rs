//! The figures of a run, defined once, for JSON, CSV, Parquet, tables and reports.

mod brief;
pub mod caveat;
mod figures;
mod output;
mod page;
#[cfg(feature = "parquet")]
mod parquet;

use flashwise_core::access::Op;
use flashwise_core::admission::Setting;
use flashwise_core::cache::WriteBackOrder;
use flashwise_core::counters::Counters;

pub use self::brief::Brief;
pub use self::figures::{BucketFigures, CacheFigures, EnduranceFigures, RamFigures, TierFigures, WearLimits};
pub use self::output::{Cells, columns_of, write_csv};
pub use self::page::page;
#[cfg(feature = "parquet")]
pub use self::parquet::{batch, batch_of, parquet, written};
use crate::array::{ArrayEpoch, ArrayFigures};
use crate::columns::{Show, figures};
use crate::endurance::Endurance;
use crate::experiment;
use crate::sampling::SampleFigures;
pub use crate::spec_text::SpecText;
use crate::stretch::{Counts, Ran, Stretch};
use flashwise_trace::Trace;

figures! {
    /// One (trace, policy, size) and its results. Definitions are those of [`Counters`]. For the whole cache those of
    /// [`Figures`](flashwise_core::cache::Figures) apply too: its hits are in RAM and on flash, and its flash writes
    /// have every cause.
    pub struct ResultRow {
        /// The trace as the user named it.
        trace: String, "", "trace", "";
        /// The policy as the user named it.
        policy: SpecText, "", "policy", "";
        /// The cache size as the user gave it.
        size: String, "", "size", "";
        /// Capacity of the cache in blocks.
        capacity_blocks: u64, "blocks", "capacity", "", Show::Bytes;
        /// Size of a block.
        block_size_bytes: u64, "bytes";
        /// Different blocks in the whole trace.
        unique_blocks: u64, "blocks";
        /// Accesses at the start that are not counted.
        warmup_accesses: u64, "block accesses";
        /// Block accesses counted: those after the warm-up.
        accesses: u64, "block accesses";
        /// Block accesses that read.
        reads: u64, "block accesses";
        /// Block accesses that write.
        writes: u64, "block accesses";
        /// Read hits in RAM or on flash.
        read_hits: u64, "block accesses";
        /// Writes that found their block in RAM or on flash. In the whole cache, writes that bypass the policy do not
        /// count; in write-around, every write does so.
        write_hits: u64, "block accesses";
        /// Accesses that found their block in the cache: read hits and write hits.
        hits: u64, "block accesses";
        /// Hit ratio: hits per access.
        hit_ratio: f64, "share", "hits", "share of block accesses";
        /// Read hit ratio: read hits per read.
        read_hit_ratio: f64, "share", "read hits", "share of reads";
        /// Misses whose block was put into the cache.
        admissions: u64, "block accesses";
        /// Reads that missed and whose block was put into the cache. In the whole cache, also reads that hit in RAM and
        /// whose block was put on flash.
        read_admissions: u64, "block accesses";
        /// Write misses whose block was put into the cache.
        write_admissions: u64, "block accesses";
        /// Admissions that evicted a block. None for caches that evict whole erase units, and for algorithms that see
        /// the future.
        #[serde(skip_serializing_if = "Option::is_none")]
        replacements: Option<u64>, "block accesses", "replaced", "admissions that evicted a block";
        /// Blocks that left the cache. None for caches that evict whole erase units, and for algorithms that see the
        /// future.
        #[serde(skip_serializing_if = "Option::is_none")]
        evictions: Option<u64>, "blocks";
        /// LARC's write traffic W = H_w + R (section IV.C): write hits and replacements. Admissions that fill an empty
        /// cache do not count, nor do additional writes of a layout. None for caches that evict whole erase units, and
        /// for algorithms that see the future.
        #[serde(skip_serializing_if = "Option::is_none")]
        write_traffic_blocks: Option<u64>, "blocks", "W", "the LARC paper's write hits and replacements";
        /// Misses that left the cache unchanged. In the whole cache, only misses that reached the policy; sequential
        /// streams and write-around have their own figures.
        bypasses: u64, "block accesses";
        /// Blocks written to flash: write hits and admissions of a policy by itself, otherwise all writes of the cache.
        flash_writes_blocks: u64, "blocks", "flash writes", "blocks, for every cause";
        /// Bytes written to flash.
        flash_bytes_written: u64, "bytes";
        /// The admission rule as the user named it; empty if there is none. Only for the whole cache and for arrays.
        #[serde(skip_serializing_if = "Option::is_none")]
        admission: Option<SpecText>, "", "admission", "";
        /// The order of write-back: `barriers` or `journal`; empty if it is none. Only for the whole cache.
        #[serde(skip_serializing_if = "Option::is_none")]
        write_back_order: Option<&'static str>, "", "order", "";
        /// The used share of the allowed drive writes per day, from `--drive-writes-per-day` or the budget of the
        /// admission rule. Above 1 the flash wears out early.
        #[serde(skip_serializing_if = "Option::is_none")]
        drive_writes_budget_used: Option<f64>, "share", "budget", "share of the allowed drive writes per day that was \
            used";
        /// The run as `--job` reads it; it identifies the row.
        #[serde(skip_serializing_if = "Option::is_none")]
        job: Option<String>, "";
        /// A warning if rates per day, drive writes per day and lifetimes are extrapolated from less than a day, with
        /// that time. Otherwise none.
        #[serde(skip_serializing_if = "Option::is_none")]
        caveat: Option<String>, "";
    }
    /// The read cache in RAM before a policy, if there is one and no flash is simulated.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    ram: Option<RamFigures>;
    /// Work of RAM and flash, for the whole cache and on modelled flash.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    tiers: Option<TierFigures>;
    /// Figures of the whole cache, if simulated.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    cache: Option<CacheFigures>;
    /// Figures of a cache of buckets, if simulated.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    buckets: Option<BucketFigures>;
    /// Flash wear, if simulated.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    endurance: Option<EnduranceFigures>;
    /// Figures of an admission rule and an array, if simulated.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    array: Option<ArrayFigures>;
    /// Accuracy of the estimates, if the trace is a sample.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    sample: Option<SampleFigures>;
    /// Figures over time, if requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    epochs: Vec<Epoch>;
}

figures! {
    /// Figures of a run of consecutive accesses (Figure 8 of the LARC paper).
    pub struct Epoch {
        /// Accesses of the trace before the epoch.
        first_access: u64, "block accesses";
        /// Accesses in the epoch.
        accesses: u64, "block accesses";
        /// Hits per access.
        hit_ratio: f64, "share";
        /// Replacements per access.
        replacement_rate: f64, "share";
        /// Blocks written to flash, as in rows.
        flash_writes_blocks: u64, "blocks";
        /// Erase units erased, if flash was simulated.
        #[serde(skip_serializing_if = "Option::is_none")]
        erasures: Option<u64>, "erasures";
    }
    /// Figures of an array and a rule, if simulated.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    array: Option<ArrayEpoch>;
}

impl ResultRow {
    /// Returns the row of any policy over `trace`, for a cache of this many blocks and the user's text for its size.
    pub fn of_policy(
        trace: &Trace,
        policy: &str,
        (size, capacity_blocks): (&str, usize),
        counters: &Counters,
        epochs: &[Counters],
    ) -> ResultRow {
        let warmup_accesses = trace.whole_len() - counters.accesses();
        let ran = Ran::of_policy(*counters, epochs, warmup_accesses);
        let row = ResultRow::of_counts(&ran.counted.counts);
        ResultRow {
            trace: trace.name().to_owned(),
            policy: policy.into(),
            size: size.to_owned(),
            capacity_blocks: capacity_blocks as u64,
            block_size_bytes: trace.block_size_bytes(),
            unique_blocks: trace.whole_unique_blocks(),
            warmup_accesses,
            flash_bytes_written: row.flash_writes_blocks * trace.block_size_bytes(),
            epochs: epochs_of(&ran, |stretch| Epoch {
                flash_writes_blocks: stretch.counts.counters.flash_writes_blocks(),
                ..Epoch::default()
            }),
            ..row
        }
    }

    /// Returns the row of an online cache.
    fn of_counts(counts: &Counts) -> ResultRow {
        let counters = &counts.counters;
        ResultRow {
            accesses: counts.accesses(),
            reads: counts.reads,
            writes: counts.writes,
            read_hits: counts.read_hits,
            write_hits: counts.write_hits,
            hits: counts.hits(),
            hit_ratio: ratio(counts.hits(), counts.accesses()),
            read_hit_ratio: ratio(counts.read_hits, counts.reads),
            admissions: counters.admissions(),
            read_admissions: counters.of(Op::Read).admissions(),
            write_admissions: counters.of(Op::Write).admissions(),
            replacements: Some(counters.replacements()),
            evictions: Some(counters.evictions()),
            write_traffic_blocks: Some(counts.write_hits + counters.replacements()),
            bypasses: counters.bypasses(),
            flash_writes_blocks: counters.flash_writes_blocks(),
            ..ResultRow::default()
        }
    }
}

impl ResultRow {
    /// Returns the row of `run`, with its wear compared with `reference`, if simulated, and with `limits`.
    pub fn of(trace: &Trace, run: &experiment::Run, reference: Option<&Endurance>, limits: &WearLimits) -> ResultRow {
        let (counts, algorithm) = (run.counts(), &run.case.algorithm);
        let row = ResultRow::of_counts(counts);
        let (replacements, evictions, write_traffic_blocks) = match algorithm.policy().is_some() {
            true => (row.replacements, row.evictions, row.write_traffic_blocks),
            false => (None, None, None),
        };
        let block_bytes = run.block_bytes(trace);
        let flash_writes_blocks = run.flash_writes_blocks(counts);
        let written_bytes = flash_writes_blocks * block_bytes;
        let flash = run.flash.as_ref();
        let whole = run.whole.as_ref().zip(counts.whole.as_ref());
        let order = run.whole.as_ref().map(|config| config.order);
        let tiers = TierFigures::of(run);
        let ram = tiers.is_none() && run.ram_bytes > 0;
        let ram = ram.then_some(RamFigures { ram_bytes: run.ram_bytes, ram_read_hits: counts.ram_hits });
        let admission = run.case.admission.as_ref().map(ToString::to_string).unwrap_or_default();
        let refused = trace.rates_refused().filter(|_| is_rated(run));
        let array = run.setting.as_ref().map(|setting| array_figures(run, setting, refused.is_some()));
        let flash_bytes = run.case.capacity_blocks as u64 * trace.block_size_bytes();
        ResultRow {
            trace: trace.name().to_owned(),
            policy: algorithm.to_string().into(),
            size: run.case.size.clone(),
            capacity_blocks: run.capacity_blocks,
            block_size_bytes: trace.block_size_bytes(),
            unique_blocks: trace.whole_unique_blocks(),
            warmup_accesses: run.ran.warmup_accesses,
            replacements,
            evictions,
            write_traffic_blocks,
            flash_writes_blocks,
            flash_bytes_written: written_bytes,
            write_back_order: order.filter(|order| *order != WriteBackOrder::None).map(WriteBackOrder::name),
            admission: (run.whole.is_some() || array.is_some()).then(|| admission.into()),
            drive_writes_budget_used: match refused {
                None => figures::drive_writes_budget_used(run, limits, written_bytes, block_bytes),
                Some(_) => None,
            },
            caveat: caveat::of_run(refused, rated_seconds(run)),
            ram,
            tiers,
            cache: whole.map(|(config, whole)| CacheFigures::new(config, whole, run.ran.dirty_blocks)),
            buckets: counts.buckets.is_some().then(|| BucketFigures::of(counts, flash_bytes)),
            endurance: flash.map(|flash| EnduranceFigures::new(run, flash, reference, limits, block_bytes)),
            array,
            sample: run.sample.clone(),
            epochs: epochs_of(&run.ran, |stretch| Epoch {
                flash_writes_blocks: run.flash_writes_blocks(&stretch.counts),
                erasures: run.erasures(&stretch.counts),
                array: run.setting.as_ref().map(|setting| ArrayEpoch::of(setting, stretch, &run.ran.decisions)),
                ..Epoch::default()
            }),
            ..row
        }
    }
}

/// True if the run has rates and lifetimes, given usable times.
fn is_rated(run: &experiment::Run) -> bool {
    run.flash.is_some() || run.setting.is_some()
}

/// Seconds over which rates and lifetimes were measured, if there are any.
fn rated_seconds(run: &experiment::Run) -> Option<f64> {
    let of_flash = run.flash.as_ref().and_then(|flash| flash.counts.days).map(|days| days * 86_400.0);
    let of_array = run.setting.as_ref().map(|_| run.ran.counted.seconds);
    of_flash.or(of_array)
}

/// Returns the effect of the run on an array. If flash was simulated, its measured write amplification replaces that of
/// the device's description (equation 6). If the trace's times are `refused`, there are no rates and lifetimes.
fn array_figures(run: &experiment::Run, setting: &Setting, refused: bool) -> ArrayFigures {
    let ran = &run.ran;
    let mut setting = *setting;
    if let Some(flash) = &run.flash {
        let measured = flash.counts.device_write_amplification();
        setting.array.cache.write_amplification = measured.unwrap_or(setting.array.cache.write_amplification);
    }
    let Stretch { counts, seconds, .. } = &ran.counted;
    let figures = ArrayFigures::of(&setting, counts, if refused { f64::NAN } else { *seconds });
    match &ran.waits {
        Some(waits) => figures.with_waits(waits),
        None => figures,
    }
}

/// Returns the epochs of a run; `own` has the figures that depend on the cache.
fn epochs_of(ran: &Ran, own: impl Fn(&Stretch) -> Epoch) -> Vec<Epoch> {
    let mut first_access = ran.warmup_accesses;
    let epoch = |stretch: &Stretch| {
        let counts = &stretch.counts;
        let epoch = Epoch {
            first_access,
            accesses: counts.accesses(),
            hit_ratio: ratio(counts.hits(), counts.accesses()),
            replacement_rate: ratio(counts.counters.replacements(), counts.accesses()),
            ..own(stretch)
        };
        first_access += epoch.accesses;
        epoch
    };
    ran.epochs.iter().map(epoch).collect()
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
