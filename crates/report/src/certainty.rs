//! How sure an answer is: how long the trace is, whether the cache was warm, and whether parts of the trace tell the same.

use super::numbers::{about_percent, count, counted, duration};
use flashwise_sim::checks::Checks;
use flashwise_sim::results::ResultRow;
use flashwise_trace::tools::info::Info;
use serde::Serialize;

/// Days from which a trace has what comes once a day, and once a week.
const DAYS: [f64; 2] = [1.0, 7.0];
/// In a smaller share of the parts of a trace what is recommended is not ahead by nature.
const AHEAD_MIN: f64 = 0.75;

/// How sure an answer is.
#[derive(Debug, Serialize)]
pub struct Certainty {
    /// `low`, `fair` or `good`.
    pub verdict: &'static str,
    /// What it follows from: a name and a sentence each.
    pub reasons: Vec<(&'static str, String)>,
}

/// How sure what follows from the rows of a trace is; `row` is one that tells how it was counted.
pub fn of(info: &Info, row: Option<&ResultRow>, checks: Option<&Checks>) -> Certainty {
    let days = checks.map_or((info.duration_us > 0).then(|| info.duration_us as f64 / 86_400e6), |checks| checks.days);
    let accesses = counted(info.accesses, "access", "accesses");
    let length = match days {
        None => format!("{accesses}, without times: nothing can be told of a day or of years"),
        Some(_) if info.duration_us as f64 >= 86_400e6 * DAYS[1] => {
            format!("{accesses} in {}", duration(info.duration_us))
        }
        Some(days) if days >= DAYS[0] => {
            format!("{accesses} in {}: what comes once a week may not be in it", duration(info.duration_us))
        }
        Some(_) => format!(
            "{accesses} in {}: what is told of a day and of years is extrapolated from it, and what comes once a day is not in it",
            duration(info.duration_us)
        ),
    };
    let mut reasons = vec![("Trace", length)];
    if let Some(row) = row {
        reasons.push(("Warm-up", warmup(row)));
    }
    let ahead = checks.map(|checks| phases(checks, &mut reasons));
    let mut level = DAYS.iter().filter(|least| days.is_some_and(|days| days >= **least)).count();
    if ahead.is_some_and(|ahead| ahead < AHEAD_MIN) {
        level = level.saturating_sub(1);
    }
    Certainty { verdict: ["low", "fair", "good"][level], reasons }
}

fn warmup(row: &ResultRow) -> String {
    if row.warmup_accesses > 0 {
        return format!("the first {} are not counted", counted(row.warmup_accesses, "access", "accesses"));
    }
    let filling = row.capacity_blocks.min(row.accesses) as f64 / row.accesses.max(1) as f64;
    format!(
        "none: the cache begins empty, and to fill it takes at least {} of the accesses, which are counted",
        about_percent(filling)
    )
}

/// Tells how the hits varied; the share of the parts of the trace in which LRU is not ahead.
fn phases(checks: &Checks, reasons: &mut Vec<(&'static str, String)>) -> f64 {
    let Some(own) = checks.recommended.first() else { return 1.0 };
    let parts: Vec<_> = own.epochs.iter().zip(&checks.lru.epochs).collect();
    let hits = || parts.iter().map(|(own, _)| own.hit_ratio);
    let (least, most) = (hits().fold(f64::INFINITY, f64::min), hits().fold(0.0, f64::max));
    let ahead = parts.iter().filter(|(own, lru)| own.hit_ratio >= lru.hit_ratio).count();
    let beside = match own.policy == checks.lru.policy {
        true => String::new(),
        false => format!("; lru is ahead in {}", count((parts.len() - ahead) as u64)),
    };
    let varied = if parts.is_empty() { (0.0, 0.0) } else { (least, most) };
    reasons.push((
        "Phases",
        format!(
            "over {} equal parts of the trace {} serves {} to {}{beside}",
            count(parts.len() as u64),
            own.policy,
            about_percent(varied.0),
            about_percent(varied.1)
        ),
    ));
    ahead as f64 / parts.len().max(1) as f64
}
