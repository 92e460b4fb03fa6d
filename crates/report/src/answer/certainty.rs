//! Certainty of an answer: the length of the trace, the warm-up, and the agreement between parts of the trace.

use crate::numbers::{count, counted, duration, percent};
use flashwise_core::policy::Spec;
use flashwise_sim::checks::Checks;
use flashwise_sim::results::ResultRow;
use flashwise_trace::tools::info::Info;
use serde::Serialize;

/// Days from which a trace covers daily and weekly events.
const DAYS: [f64; 2] = [1.0, 7.0];
/// Smallest share of the parts of a trace in which a recommended policy must be ahead.
const AHEAD_MIN: f64 = 0.75;

/// Certainty of an answer.
#[derive(Debug, Serialize)]
pub struct Certainty {
    /// `low`, `fair` or `good`.
    pub verdict: &'static str,
    /// Reasons: a name and a sentence each.
    pub reasons: Vec<(&'static str, String)>,
}

/// Returns the certainty of an answer from the `rows` of a trace. `row` is the recommended one, or one with the same
/// counting.
pub fn of(info: &Info, rows: &[ResultRow], row: Option<&ResultRow>, checks: Option<&Checks>) -> Certainty {
    let days = checks.map_or((info.duration_us > 0).then(|| info.duration_us as f64 / 86_400e6), |checks| checks.days);
    let accesses = counted(info.accesses, "access", "accesses");
    let length = match days {
        None => format!("{accesses}, without times: there are no figures per day or in years"),
        Some(_) if info.duration_us as f64 >= 86_400e6 * DAYS[1] => {
            format!("{accesses} in {}", duration(info.duration_us as f64))
        }
        Some(days) if days >= DAYS[0] => {
            format!("{accesses} in {}: weekly events may be missing", duration(info.duration_us as f64))
        }
        Some(_) => format!(
            "{accesses} in {}: figures per day and in years are extrapolated, and daily events are missing",
            duration(info.duration_us as f64)
        ),
    };
    let mut reasons = vec![("Trace", length)];
    if let Some(row) = row {
        reasons.push(("Warm-up", warmup(row)));
    }
    let sampled = row.and_then(|row| sample(rows, row));
    let is_drawn = sampled.as_ref().is_some_and(|(_, is_drawn)| *is_drawn);
    reasons.extend(sampled.map(|(told, _)| ("Sample", told)));
    let ahead = checks.map(|checks| phases(checks, &mut reasons));
    let mut level = DAYS.iter().filter(|least| days.is_some_and(|days| days >= **least)).count();
    if ahead.is_some_and(|ahead| ahead < AHEAD_MIN) || is_drawn {
        level = level.saturating_sub(1);
    }
    Certainty { verdict: ["low", "fair", "good"][level], reasons }
}

fn warmup(row: &ResultRow) -> String {
    if row.warmup_accesses > 0 {
        return format!("the first {} are not counted", counted(row.warmup_accesses, "access", "accesses"));
    }
    if row.capacity_blocks >= row.accesses {
        return "none: the cache starts empty, and the trace ends before it is full".to_owned();
    }
    let filling = row.capacity_blocks.min(row.accesses) as f64 / row.accesses.max(1) as f64;
    format!("none: the cache starts empty, and at least {} of the counted accesses fill it", percent(filling))
}

/// Describes a row from a sample: the error of its hits, and the policies of its size that the sample cannot
/// distinguish from it. The second value is true if the row is certainly best: there are no such policies, and the
/// sample is large enough.
fn sample(rows: &[ResultRow], row: &ResultRow) -> Option<(String, bool)> {
    let own = row.sample.as_ref()?;
    let can_run = |other: &&ResultRow| !Spec::parse(&other.policy).is_ok_and(|policy| policy.info().offline);
    let others = rows.iter().filter(|other| other.capacity_blocks == row.capacity_blocks && other.policy != row.policy);
    let others = others.filter(can_run);
    let overlaps = |other: &&ResultRow| {
        let of_other = other.sample.as_ref();
        of_other.is_some_and(|sample| {
            sample.hit_ratio_high >= own.hit_ratio_low && sample.hit_ratio_low <= own.hit_ratio_high
        })
    };
    let mut alike: Vec<&str> = others.filter(overlaps).map(|other| &other.policy[..]).collect();
    alike.dedup();
    let rate = percent(own.sample_rate);
    let [low, high] = [own.hit_ratio_low, own.hit_ratio_high].map(percent);
    let hits = format!(
        "{rate} of the blocks: in 95 of 100 such samples, {} serves {low} to {high} of the whole trace",
        row.policy
    );
    let told = match (&own.sample_caveat, &alike[..]) {
        (Some(caveat), _) => format!("{hits}; {caveat}"),
        (None, []) => format!("{hits}, and no other policy of that size as much"),
        (None, alike) => format!("{hits}; the sample cannot distinguish it from {}", some_of(alike)),
    };
    Some((told, own.sample_caveat.is_some() || !alike.is_empty()))
}

/// Joins some names, and the number of the others.
fn some_of(names: &[&str]) -> String {
    match names {
        [first, second, third, rest @ ..] if !rest.is_empty() => {
            format!("{first}, {second}, {third} and {}", counted(rest.len() as u64, "other", "others"))
        }
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        names => names.join(""),
    }
}

/// Adds a reason about the variation of hits. Returns the share of the trace's parts in which LRU is not ahead.
fn phases(checks: &Checks, reasons: &mut Vec<(&'static str, String)>) -> f64 {
    let Some(own) = checks.recommended.first() else { return 1.0 };
    let parts: Vec<_> = own.epochs.iter().zip(&checks.lru.epochs).collect();
    let hits = || parts.iter().map(|(own, _)| own.hit_ratio);
    let (least, most) = (hits().fold(f64::INFINITY, f64::min), hits().fold(0.0, f64::max));
    let ahead = parts.iter().filter(|(own, lru)| own.hit_ratio >= lru.hit_ratio).count();
    // Without hits, or with one part, there is no variation.
    if parts.len() < 2 || most == 0.0 {
        return 1.0;
    }
    let beside = match (own.policy == checks.lru.policy, parts.len() - ahead) {
        (true, _) => String::new(),
        (false, 0) => "; lru is ahead in none".to_owned(),
        (false, behind) => format!("; lru is ahead in {}", count(behind as u64)),
    };
    reasons.push((
        "Phases",
        format!(
            "over {} equal parts of the trace {} serves {} to {}{beside}",
            count(parts.len() as u64),
            own.policy,
            percent(least),
            percent(most)
        ),
    ));
    ahead as f64 / parts.len() as f64
}
