//! Experiments over samples. Each cache runs once over the sample, scaled down with it, and its counts are scaled up to
//! the whole trace.
//!
//! A run of the policy without rule and devices at the same size gives the relation of hits to the sample's accesses,
//! and the error. If there is no policy, LRU gives them: see [`sampling`]. The shares of misses that are admitted and
//! bypassed are those of the sample. Device operations scale with the blocks written because of accesses, and erase
//! units wear like those of the smaller device.

use flashwise_core::access::Op;
use flashwise_core::account;
use flashwise_core::block_cache::Tally;
use flashwise_core::counters::{Counters, OpCounters};
use flashwise_core::counts::Count;
use flashwise_core::policy::Spec;
use flashwise_device::flash::Wear;
use flashwise_trace::Trace;
use flashwise_trace::progress::Progress;
use flashwise_trace::sampling::Sample;

use crate::cache_settings::Ram;
use crate::counting::{Counting, Warmup};
use crate::endurance::{self, Endurance, Method};
use crate::experiment::{self, Case, Devices, Experiment, ExperimentError, Flash, Layout, Run};
use crate::sampling::{self, Regression, Sampled};
use crate::stretch::{Counts, Ran, Stretch};

/// Runs all cases over traces that are samples, and scales the runs to the whole traces. `progress` counts block
/// accesses of the samples.
///
/// # Errors
/// See [`experiment::run`]. A sample also cannot represent some layouts, arrivals and epochs.
///
/// # Panics
/// A trace is not a sample.
pub(crate) fn run(
    traces: &[Trace],
    cases: &[Case],
    experiment: &Experiment,
    progress: &dyn Progress,
) -> Result<Vec<Run>, ExperimentError> {
    experiment.check_sample()?;
    let mut found: Vec<Option<Run>> = vec![None; cases.len()];
    for (number, trace) in traces.iter().enumerate() {
        let of_trace = || cases.iter().enumerate().filter(|(_, case)| case.trace == number);
        let sample = trace.sample().expect("the trace is a sample");
        let smaller = |(_, case): (usize, &Case)| Case {
            trace: 0,
            capacity_blocks: sample.capacity_blocks(case.capacity_blocks),
            ..case.clone()
        };
        let small = small(experiment, trace, sample);
        let cases_small = of_trace().map(smaller).collect();
        let runs = experiment::run_all(std::slice::from_ref(trace), cases_small, &small, progress)
            .map_err(|error| error.of(trace, traces.len() > 1))?;
        let mut alone: Vec<((String, usize), Sampled)> = Vec::new();
        for ((at, case), run) in of_trace().zip(runs) {
            // One run for each policy and size serves all rules and layouts.
            let policy = policy_of(case);
            let key = (policy.to_string(), case.capacity_blocks);
            let ran = alone.iter().position(|(other, _)| *other == key).unwrap_or_else(|| {
                let sampled = sampling::run(trace, &policy, key.1, experiment.counting, None, progress);
                alone.push((key, sampled));
                alone.len() - 1
            });
            found[at] = Some(of_whole(trace, case, experiment, run, &alone[ran].1)?);
        }
    }
    Ok(found.into_iter().map(|run| run.expect("every case has a trace")).collect())
}

/// Scales the experiment down to the sample: RAM and storage.
fn small(experiment: &Experiment, trace: &Trace, sample: &Sample) -> Experiment {
    let share = sample.share();
    let times = |bytes: u64| (bytes as f64 * share).round() as u64;
    let of_ram = |ram: Ram| match ram {
        Ram::Bytes(bytes) => Ram::Bytes(times(bytes)),
        Ram::Share(share) => Ram::Share(share),
    };
    let layout = match &experiment.layout {
        Layout::None { ram } => Layout::None { ram: of_ram(*ram) },
        Layout::Flash(settings) => Layout::Flash(endurance::Settings { ram: of_ram(settings.ram), ..settings.clone() }),
        Layout::Log(_) | Layout::Buckets(..) => unreachable!("it was refused"),
    };
    let storage =
        |devices: &Devices| Devices { storage_bytes: Some(times(experiment.storage_bytes(trace))), ..devices.clone() };
    let warmup = sample.sampled_before(experiment.counting.warmup.accesses(sample.accesses() as usize));
    Experiment {
        layout,
        devices: experiment.devices.as_ref().map(storage),
        counting: Counting { warmup: Warmup::Accesses(warmup), ..experiment.counting },
    }
}

/// The policy of a case, for a run without rule and devices; LRU if it has none.
fn policy_of(case: &Case) -> Spec {
    match case.algorithm.method() {
        Method::Policy(policy) => policy.clone(),
        Method::ContainerPolicy(_) | Method::Offline(_) | Method::Buckets(_) => {
            Spec::parse("lru").expect("lru is a policy")
        }
    }
}

/// Scales `run`, of the sample, up to the whole trace; `sampled` is the run of the policy without rule and devices.
fn of_whole(
    trace: &Trace,
    case: &Case,
    experiment: &Experiment,
    run: Run,
    sampled: &Sampled,
) -> Result<Run, ExperimentError> {
    let scaling = Scaling { regression: sampled.regression.clone(), rate: trace.sample().map_or(1.0, Sample::share) };
    let geometry = experiment.geometry(case, trace.block_size_bytes(), None)?;
    let hit_ratio = |hits: u64, accesses: u64| if accesses == 0 { 0.0 } else { hits as f64 / accesses as f64 };
    let warmup = experiment.counting.warmup.accesses(trace.whole_len() as usize);
    let counted = Stretch { counts: scaling.counts(&run.ran.counted.counts), ..run.ran.counted };
    let flash = run.flash.zip(geometry).map(|(flash, geometry)| {
        let Endurance { wear, unit_pages, days, .. } = flash.counts;
        let wear = scaled(&wear, geometry.units, counted.counts.device.erasures);
        Flash { geometry, counts: Endurance { counts: counted.counts, wear, unit_pages, days } }
    });
    let ran = Ran { counted, warmup_accesses: warmup, ..run.ran };
    let hits = hit_ratio(ran.counted.counts.hits(), ran.counted.counts.accesses());
    let figures = sampled.figures.around(hits);
    let figures = if flash.is_some() { figures.on_flash() } else { figures };
    let geometry = flash.as_ref().map(|flash| &flash.geometry);
    Ok(Run {
        setting: experiment.setting(case, trace, None),
        ram_bytes: experiment.ram_bytes(case, geometry, None, trace.block_size_bytes()),
        flash,
        sample: Some(figures),
        ..Run::new(case.clone(), ran)
    })
}

/// Scaling of counts from the sample to the whole trace.
struct Scaling {
    regression: Regression,
    /// The sample's share of the blocks.
    rate: f64,
}

impl Scaling {
    /// Scales `count` by `whole` per `part` of the sample.
    fn times(&self, count: u64, whole: u64, part: u64) -> u64 {
        let factor = if part == 0 { 1.0 / self.rate } else { whole as f64 / part as f64 };
        (count as f64 * factor).round() as u64
    }

    /// Scales the counts of a cache.
    fn counts(&self, found: &Counts) -> Counts {
        let (read, write) = (found.counters.of(Op::Read), found.counters.of(Op::Write));
        // Hits in RAM, which the policy does not see, are hits too.
        let asked = Counters::of_ops([
            OpCounters { hits: found.read_hits, ..*read },
            OpCounters { hits: found.write_hits, ..*write },
        ]);
        let whole = self.regression.estimate(&asked);
        let (reads, writes) = (whole.of(Op::Read), whole.of(Op::Write));
        let of_hits = |count: u64| {
            if found.read_hits == 0 { 0 } else { self.times(count, reads.hits, found.read_hits).min(reads.hits) }
        };
        let ram_hits = of_hits(found.ram_hits);
        let unseen = of_hits(found.read_hits - read.hits).min(ram_hits);
        let (wanted, part) = (whole.flash_writes_blocks(), asked.flash_writes_blocks());
        let tally = &found.tally;
        Counts {
            reads: reads.accesses(),
            writes: writes.accesses(),
            read_hits: reads.hits,
            write_hits: writes.hits,
            ram_hits,
            counters: Counters::of_ops([OpCounters { hits: reads.hits - unseen, ..*reads }, *writes]),
            answered: account::Counts {
                hits: [reads.hits - ram_hits, writes.hits],
                admissions: [reads.admissions(), writes.admissions()],
                bypasses: [reads.bypasses, writes.bypasses],
                written_back: self.times(found.answered.written_back, wanted, part),
            },
            tally: Tally {
                flash_writes: tally.flash_writes.each(|count| self.times(count, wanted, part)),
                buffer_hits: ram_hits - unseen,
                live_at_reset_blocks: self.times(tally.live_at_reset_blocks, wanted, part),
                wasted_copies_blocks: self.times(tally.wasted_copies_blocks, wanted, part),
            },
            device: found.device.each(|count| self.times(count, wanted, part)),
            ..Counts::default()
        }
    }
}

/// Scales the wear of flash to a device of this many units with this many erasures.
fn scaled(found: &Wear, units: u32, erasures: u64) -> Wear {
    let mean = erasures as f64 / f64::from(units.max(1));
    let by = if found.erasures_mean > 0.0 { mean / found.erasures_mean } else { 1.0 };
    let worn = |erasures: u32| (f64::from(erasures) * by).round() as u32;
    Wear {
        units,
        erasures_min: worn(found.erasures_min),
        erasures_mean: mean,
        erasures_max: worn(found.erasures_max),
        erasures_deviation: found.erasures_deviation * by,
    }
}
