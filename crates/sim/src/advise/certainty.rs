//! Certainty of an advice: the length of the trace, the counted accesses, the errors of estimates, and the waits in the
//! worst interval.

use flashwise_core::human;
use serde::Serialize;

use super::cache::AdvisedCache;
use super::search::{ONE_BY_ONE, Search, busiest};
use super::sentences::{overload, worst};
use crate::results::caveat;

/// Days from which a trace covers daily and weekly events.
const DAYS: [f64; 2] = [1.0, 7.0];

/// Certainty of an advice.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Certainty {
    /// `low`, `fair` or `good`.
    pub verdict: &'static str,
    /// Reasons: a name and a sentence each.
    pub reasons: Vec<(&'static str, String)>,
}

/// The certainty, and cautions about the answer.
pub(super) struct Checked {
    pub certainty: Certainty,
    pub cautions: Vec<String>,
}

/// Returns the certainty of the answer.
pub(super) fn of(search: &Search, answer: Option<&AdvisedCache>) -> Checked {
    let trace = search.workload.trace();
    let accesses = format!("{} block accesses", human::count(trace.len() as u64));
    let (mut reasons, mut cautions) = (Vec::new(), Vec::new());
    let length = match search.days {
        None => format!("{accesses}, without times: nothing is said per day or year"),
        Some(days) => {
            let time = human::seconds(days * 86_400.0);
            if let Some(caveat) = caveat::of_rates(days * 86_400.0) {
                cautions.push(format!("The trace is short: {caveat}."));
            }
            match () {
                () if days < DAYS[0] => format!("{accesses} in {time}: what comes once a day is not in it"),
                () if days < DAYS[1] => format!("{accesses} in {time}: what comes once a week may not be in it"),
                () => format!("{accesses} in {time}"),
            }
        }
    };
    reasons.push(("Trace", length));
    let skipped = search.question.warmup.accesses(trace.len());
    reasons.push(match skipped {
        0 => ("Warm-up", "none: the cache begins empty, and what it misses while it fills is counted".to_owned()),
        skipped => ("Warm-up", format!("the first {} accesses are not counted", human::count(skipped))),
    });
    reasons.push(("Search", searched(search)));
    let mut level = DAYS.iter().filter(|least| search.days.is_some_and(|days| days >= **least)).count();
    if let Some(cache) = answer {
        if is_slow_at_worst(search, cache) {
            level = level.saturating_sub(1);
        }
        reasons.push(("Waiting", waiting(search, cache)));
        cautions.extend(overload(cache).map(|overload| format!("Requests wait ever longer: {overload}.")));
    }
    let certainty = Certainty { verdict: ["low", "fair", "good"][level], reasons };
    Checked { certainty, cautions }
}

/// Describes the arrivals of the answer's requests, and the load of its devices.
fn waiting(search: &Search, cache: &AdvisedCache) -> String {
    if search.base.arrivals == Some(ONE_BY_ONE) {
        return "the trace has no times: requests come one after the other".to_owned();
    }
    let target = if is_slow_at_worst(search, cache) { ", which misses the target" } else { "" };
    let worst = worst(cache).map(|worst| format!("; a request waits {worst}{target}")).unwrap_or_default();
    format!(
        "requests come at the times of the trace, and the busiest device works {} of the time{worst}",
        human::percent(busiest(cache).min(1.0))
    )
}

fn searched(search: &Search) -> String {
    let all = search.purchases.len() * search.ways.len();
    let all = human::counted(all as u64, "cache");
    let ran = human::count(search.found.len() as u64);
    if search.question.exhaustive {
        return format!("all {all} were run exactly");
    }
    let estimated = match &search.workload.sample {
        Some((share, _)) => format!("a sample of {share} of the blocks chose among {all}"),
        None => format!("simulations of only the policy chose among {all}"),
    };
    format!("{estimated}; the {ran} shown here were run exactly")
}

/// True if requests wait longer than the target in the worst interval.
fn is_slow_at_worst(search: &Search, cache: &AdvisedCache) -> bool {
    let (target, worst) = (search.targets().latency_us, cache.latency_worst_us);
    target.zip(worst).is_some_and(|(target, worst)| worst > target)
}
