//! Repeats a recommended run to measure its certainty: over equal parts of the trace, beside LRU, and behind admission
//! rules.

use flashwise_core::policy::Spec;
use flashwise_device::ArrayModel;
use flashwise_trace::Trace;
use flashwise_trace::progress::Progress;

use crate::array::{Arrivals, TraceRule};
use crate::cache_settings::Ram;
use crate::endurance::{Algorithm, days};
use crate::experiment::{self, Case, Devices, Experiment, ExperimentError, Layout};
use crate::results::{ResultRow, WearLimits};
use crate::simulate::{Counting, Warmup};

/// Number of parts into which a trace is cut.
pub const PARTS: u64 = 20;

/// Rules to try: CacheLib's, and the one that is nowhere worse than the policy without a rule.
const RULES: [&str; 2] = ["reject-x:writes=admit", "adaptive:kind=hotness,writes=admit"];
/// Shortest trace, in days, on which an adaptive rule is tried: a hundred of its timeframes of 10 minutes.
const ADAPTS_DAYS: f64 = 1000.0 / 1440.0;

/// Results of the checks.
#[derive(Clone, Debug)]
pub struct Checks {
    /// The recommended policy without a rule, with [`PARTS`] epochs; then it and the best others behind each rule.
    pub recommended: Vec<ResultRow>,
    /// LRU without a rule, with [`PARTS`] epochs.
    pub lru: ResultRow,
    /// Duration of the counted accesses in days; `None` if the trace's times are unusable.
    pub days: Option<f64>,
}

/// Runs `policy` at the size of `row` over `trace` again, then it and `others` behind rules.
///
/// # Errors
/// The trace can no longer be read.
pub fn run(
    trace: &Trace,
    policy: &Spec,
    others: &[Spec],
    row: &ResultRow,
    warmup: Warmup,
    progress: &dyn Progress,
) -> Result<Checks, ExperimentError> {
    let lru = Spec::parse("lru").expect("LRU is a policy");
    let days = days(trace, warmup.accesses(trace.len()));
    let is_long = days.is_some_and(|days| days >= ADAPTS_DAYS);
    let rules = RULES.iter().filter(|rule| is_long || !rule.starts_with("adaptive"));
    let rules: Vec<_> =
        rules.flat_map(|rule| TraceRule::parse_list(rule).expect("a rule of this list is one")).collect();
    let policies = std::iter::once(policy).chain(others);
    let behind = policies.flat_map(|policy| rules.iter().map(move |rule| (policy, Some(rule.of(trace)))));
    let case = |(policy, admission): (&Spec, _)| Case {
        trace: 0,
        algorithm: Algorithm::from(policy.clone()),
        admission,
        size: row.size.clone(),
        capacity_blocks: row.capacity_blocks as usize,
    };
    let cases = [(&lru, None), (policy, None)].into_iter().chain(behind).map(case).collect();
    let experiment = Experiment {
        layout: Layout::None { ram: Ram::Bytes(0) },
        devices: Some(Devices { model: ArrayModel::paper(), storage_bytes: None, arrivals: Arrivals::None }),
        counting: Counting { warmup, epoch: Some(warmup.part_of(trace.len(), PARTS)) },
    };
    let runs = experiment::run(std::slice::from_ref(trace), cases, &experiment, progress)?;
    let limits = WearLimits::default();
    let mut rows = runs.iter().map(|run| ResultRow::of(trace, run, None, &limits));
    let lru = rows.next().expect("a row for each case");
    Ok(Checks { recommended: rows.collect(), lru, days })
}
