//! How sure an advice is: how long the trace is, what was counted, how far estimates may be off, and whether parts of the trace tell the same.

use flashwise_trace::human;
use serde::Serialize;

use super::AdviseError;
use super::PARTS;
use super::search::{Found, Search};
use super::words::latency;
use crate::array::Arrivals;
use crate::job::Job;
use crate::results::caveat;

/// Days from which a trace has what comes once a day, and once a week.
const DAYS: [f64; 2] = [1.0, 7.0];
/// An answer that holds in a smaller share of the parts of the trace is less sure.
const PARTS_MIN: f64 = 0.75;

/// How sure an advice is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Certainty {
    /// `low`, `fair` or `good`.
    pub verdict: &'static str,
    /// What it follows from: a name and a sentence each.
    pub reasons: Vec<(&'static str, String)>,
}

/// That, and what it says of the answer that is to be thought of.
pub(super) struct Checked {
    pub certainty: Certainty,
    pub cautions: Vec<String>,
}

/// How sure what was found is. The answer runs once more, in parts and with its requests at the times of the trace.
pub(super) fn of(search: &Search, answer: Option<&Found>) -> Result<Checked, AdviseError> {
    let trace = search.workload.trace();
    let accesses = format!("{} block accesses", human::count(trace.len() as u64));
    let (mut reasons, mut cautions) = (Vec::new(), Vec::new());
    let length = match search.days {
        None => format!("{accesses}, without times: nothing is said per day or year"),
        Some(days) => {
            let time = human::duration((days * 86_400e6) as u64);
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
    if let Some(found) = answer {
        let rows = search.rows(&checks(search, &found.job)?, "the recommended cache, in parts".to_owned(), false)?;
        let parts = rows.first().map(|row| &row.epochs[..]).unwrap_or_default();
        let (told, share) = phases(search, parts);
        reasons.push(("Phases", told));
        if share < PARTS_MIN {
            level = level.saturating_sub(1);
        }
        if let Some(array) = rows.get(1).and_then(|row| row.array.as_ref()) {
            let [mean, most] = [array.latency_mean_us, array.latency_p99_us].map(latency);
            reasons.push((
                "Waiting",
                format!(
                    "with requests at the times of the trace one waits {mean} on average, and 99 of 100 at most {most}"
                ),
            ));
            let behind = |tier: &str, used: Option<f64>| {
                used.filter(|used| *used > 1.0).map(|used| {
                    format!("The {tier} cannot keep up with the trace: it has {used:.1} times the work that it can do.")
                })
            };
            cautions.extend(behind("storage", array.storage_utilisation));
            cautions.extend(behind("flash", array.cache_utilisation));
        }
    }
    let certainty = Certainty { verdict: ["low", "fair", "good"][level], reasons };
    Ok(Checked { certainty, cautions })
}

/// The job in parts, and the same with requests at the times of the trace, if it has times.
fn checks(search: &Search, job: &Job) -> Result<Vec<Job>, AdviseError> {
    let trace = search.workload.trace();
    let epoch = search.question.warmup.part_of(trace.len(), PARTS);
    let parts = Job { epoch: Some(epoch), ..job.clone() }.plain()?;
    let mut jobs = vec![parts];
    let arrivals: Arrivals = "trace".parse().expect("it is a word for arrivals");
    if search.days.is_some() && arrivals.check(trace).is_ok() {
        jobs.push(Job { arrivals: Some(arrivals), ..job.clone() }.plain()?);
    }
    Ok(jobs)
}

fn searched(search: &Search) -> String {
    let all = search.purchases.len() * search.ways.len();
    let all = human::counted(all as u64, "cache");
    let ran = human::count(search.found.len() as u64);
    if search.question.exhaustive {
        return format!("all {all} were run exactly");
    }
    let estimated = match &search.workload.sample {
        Some((share, _)) => format!("a sample of {share} of the blocks told which of {all} to look at"),
        None => format!("policies alone told which of {all} to look at"),
    };
    format!("{estimated}; {ran} were run exactly, those that are shown here")
}

/// How latency and hits vary over parts of the trace, and the share of those in which the latency is met.
fn phases(search: &Search, parts: &[crate::results::Epoch]) -> (String, f64) {
    let latencies: Vec<f64> =
        parts.iter().filter_map(|part| part.array.as_ref().map(|array| array.latency_mean_us)).collect();
    let least = latencies.iter().copied().fold(f64::INFINITY, f64::min);
    let most = latencies.iter().copied().fold(0.0, f64::max);
    if latencies.is_empty() {
        return ("unknown".to_owned(), 1.0);
    }
    let number = latencies.len();
    let [least, most] = [least, most].map(latency);
    let range = if least == most { format!("{least} in each") } else { format!("{least} to {most}") };
    let range = format!("over {number} equal parts of the trace an access takes {range}");
    let Some(target) = search.targets().latency_us else { return (range, 1.0) };
    let met = latencies.iter().filter(|latency| **latency <= target).count();
    (format!("{range}; the target is met in {met} of them"), met as f64 / number as f64)
}
