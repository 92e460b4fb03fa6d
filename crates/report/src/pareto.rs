//! Finds the caches worth having: compares hits with erasures, and online with offline algorithms.
//!
//! A cache is on the frontier if no other of its kind is better. Another is better if it hits more reads at no more
//! erasures, or needs fewer erasures at no fewer hits. Online algorithms have one frontier, offline algorithms another
//! above it. All caches have the same RAM
//! ([`Experiment::with_equal_ram`](flashwise_sim::experiment::Experiment::with_equal_ram)).

use serde::Serialize;

use crate::{FrontierPoint, frontier_chart};
use flashwise_sim::endurance::{Algorithm, Endurance};
use flashwise_sim::experiment::{Case, Run};
use flashwise_sim::results::caveat;
use flashwise_sim::size::{Size, SizeError};
use flashwise_trace::Trace;

/// The default sizes.
pub const SIZES: &str = "1%,2%,5%,10%,20%";
/// The caches that can run: policies with their defaults, and some with other parameters.
const ONLINE: [&str; 18] = [
    "lru",
    "fifo",
    "lfu",
    "2q",
    "mq",
    "arc",
    "larc",
    "larc:max=50%",
    "larc:writes=admit",
    "lirs",
    "s3-fifo",
    "s3-fifo:threshold=2",
    "sieve",
    "w-tinylfu",
    "ripq+",
    "ripq+:sections=3",
    "pannier",
    "pannier:copy=2",
];
/// Offline algorithms.
const OFFLINE: [&str; 8] =
    ["m_t:share=10%", "m_t:share=25%", "m_t:share=50%", "m+", "c_t:share=10%", "c_t:share=25%", "c_t:share=50%", "c"];

/// Returns the default algorithms: those that need no future knowledge.
pub fn online() -> impl Iterator<Item = Algorithm> {
    ONLINE.iter().map(|name| Algorithm::parse(name).expect("a listed algorithm is one"))
}

/// The algorithms that they are compared with.
pub fn offline() -> impl Iterator<Item = Algorithm> {
    OFFLINE.iter().map(|name| Algorithm::parse(name).expect("a listed algorithm is one"))
}

/// Returns the runs to compare over `trace`: at each size, the `online` algorithms and the offline ones.
pub fn cases(trace: &Trace, online: &[Algorithm], sizes: &[Size]) -> Result<Vec<Case>, SizeError> {
    let mut cases = Vec::new();
    for size in sizes {
        let capacity_blocks = size.capacity_blocks(trace.unique_blocks(), trace.block_size_bytes())?;
        let size = size.to_string();
        let case = |algorithm| Case { trace: 0, algorithm, admission: None, size: size.clone(), capacity_blocks };
        cases.extend(online.iter().cloned().chain(offline()).map(case));
    }
    Ok(cases)
}

/// A cache with its hits and erasures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The trace as the user named it.
    pub trace: String,
    /// The policy or algorithm.
    pub policy: String,
    /// True for an offline algorithm.
    pub offline: bool,
    /// The cache size as the user gave it.
    pub size: String,
    /// The cache size.
    pub capacity_blocks: u64,
    /// RAM of the read cache and of buffers.
    pub ram_bytes: u64,
    /// Read hit ratio.
    pub rhr: f64,
    /// Erase units that were erased.
    pub erasures: u64,
    /// Erasures per unit and day, if the trace has times.
    pub epbpd: Option<f64>,
    /// Blocks that the host wrote to flash.
    pub flash_writes_blocks: u64,
    /// From how short a time the erasures per day are extrapolated; none if that is a day or more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caveat: Option<String>,
    /// True if no other cache of its kind, online or offline, is better.
    pub frontier: bool,
}

/// Returns the points of runs over `trace`, by ascending erasures, with the frontiers marked.
pub fn points<'a>(trace: &Trace, runs: impl Iterator<Item = &'a Run>) -> Vec<Point> {
    let point = |(run, counts): (&Run, &Endurance)| Point {
        trace: trace.name().to_owned(),
        policy: run.case.algorithm.to_string(),
        offline: run.case.algorithm.offline(),
        size: run.case.size.clone(),
        capacity_blocks: run.case.capacity_blocks as u64,
        ram_bytes: run.ram_bytes,
        rhr: counts.rhr(),
        erasures: counts.erasures(),
        epbpd: counts.epbpd(),
        flash_writes_blocks: counts.tally.flash_writes.total_blocks(),
        caveat: counts.days.and_then(|days| caveat::of_rates(days * 86_400.0)),
        frontier: false,
    };
    let mut points: Vec<Point> = runs.filter_map(|run| Some((run, &run.flash.as_ref()?.counts))).map(point).collect();
    points.sort_by(|a, b| a.erasures.cmp(&b.erasures).then(b.rhr.total_cmp(&a.rhr)));
    mark_frontiers(&mut points);
    points
}

/// Marks the points that no other of their kind is better than in one figure and as good in the other; ties are all
/// marked.
fn mark_frontiers(points: &mut [Point]) {
    for offline in [false, true] {
        let places: Vec<(u64, f64)> =
            points.iter().filter(|point| point.offline == offline).map(|point| (point.erasures, point.rhr)).collect();
        for point in points.iter_mut().filter(|point| point.offline == offline) {
            let is_better = |&(erasures, rhr): &(u64, f64)| {
                erasures <= point.erasures && rhr >= point.rhr && (erasures < point.erasures || rhr > point.rhr)
            };
            point.frontier = !places.iter().any(is_better);
        }
    }
}

/// The points of one trace as an SVG file, in light and in dark.
pub fn chart(points: &[Point]) -> String {
    let point = |point: &Point| FrontierPoint {
        offline: point.offline,
        frontier: point.frontier,
        erasures: point.erasures as f64,
        rhr: point.rhr,
    };
    frontier_chart(&points.iter().map(point).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_that_no_other_is_better_than_are_on_the_frontier_ties_too() {
        let point = |erasures, rhr, offline| Point {
            trace: String::new(),
            policy: String::new(),
            offline,
            size: String::new(),
            capacity_blocks: 1,
            ram_bytes: 0,
            rhr,
            erasures,
            epbpd: None,
            flash_writes_blocks: 0,
            caveat: None,
            frontier: false,
        };
        let mut points =
            [(1, 0.1), (1, 0.1), (1, 0.05), (2, 0.1), (2, 0.3), (3, 0.3), (4, 0.4)].map(|(e, r)| point(e, r, false));
        mark_frontiers(&mut points);
        assert_eq!(points.map(|point| point.frontier), [true, true, false, false, true, false, true]);
    }

    #[test]
    fn all_that_is_listed_can_be_run() {
        assert!(online().all(|algorithm| !algorithm.offline()) && online().count() == ONLINE.len());
        assert!(offline().all(|algorithm| algorithm.offline()) && offline().count() == OFFLINE.len());
    }
}
