//! Curves: what each policy hits at many cache sizes, where they bend, and what is in use over time.

use std::io::Write;

use flashwise_core::access::Op;
use flashwise_core::policy::Spec;
use flashwise_trace::Trace;
use flashwise_trace::progress::Progress;
use flashwise_trace::tools::curve::LruCurve;
use flashwise_trace::tools::pass::About;

use crate::columns::{Column, figures};
use crate::job::JobError;
use crate::results::ResultRow;
use crate::sampling::SampleFigures;
use crate::simulate::{Counting, PolicyCase, Warmup, simulate};
use crate::size::{Size, SizeError};

/// Sizes of a curve where none are given.
pub const SIZES: &str = "1%..100%:1%";
/// Parts of the trace whose working sets are shown.
pub const PARTS: u64 = 100;

figures! {
    /// A point of a curve: one policy at one cache size.
    pub struct CurvePoint {
        /// The trace as the user named it.
        trace: String, "";
        /// The policy as the user named it.
        policy: String, "";
        /// The cache size as the user gave it.
        size: String, "";
        /// How many blocks the cache holds.
        capacity_blocks: u64, "blocks";
        /// The same in bytes.
        capacity_bytes: u64, "bytes";
        /// Hits per access.
        hit_ratio: f64, "share";
        /// Read hits per read.
        read_hit_ratio: f64, "share";
        /// Write hits per write.
        write_hit_ratio: f64, "share";
        /// Reads that hit.
        read_hits: u64, "block accesses";
        /// Writes that hit.
        write_hits: u64, "block accesses";
        /// Standard error of the hit ratio, of a sample.
        #[serde(skip_serializing_if = "Option::is_none")]
        hit_ratio_standard_error: Option<f64>, "share";
        /// The lower end of the interval that holds the hit ratio of the whole trace in 95 of 100 samples.
        #[serde(skip_serializing_if = "Option::is_none")]
        hit_ratio_low: Option<f64>, "share";
        /// The upper end of that interval.
        #[serde(skip_serializing_if = "Option::is_none")]
        hit_ratio_high: Option<f64>, "share";
        /// 1 where the curve bends: up to this size a block of cache brings at least twice the hits of one beyond.
        knee: u64, "";
        /// That the sample is too small for the size, or what else its figures may be off by.
        #[serde(skip_serializing_if = "Option::is_none")]
        sample_caveat: Option<String>, "";
    }
}

/// At a knee, a block of cache before it brings at least this many times the hits of one behind it.
const KNEE_FACTOR: f64 = 2.0;
/// At a knee, the hit ratio is higher by this or more than at the knee before it, or than with no cache.
const KNEE_RISE: f64 = 0.01;

impl CurvePoint {
    /// The point of an LRU cache of `capacity_blocks`, which the user called `size`.
    pub fn of_lru(about: &About, curve: &LruCurve, size: &str, capacity_blocks: usize) -> CurvePoint {
        let hits = [Op::Read, Op::Write].map(|op| curve.hits(op, capacity_blocks));
        let accesses = [Op::Read, Op::Write].map(|op| curve.accesses(op));
        CurvePoint {
            trace: about.name.clone(),
            policy: "lru".to_owned(),
            size: size.to_owned(),
            capacity_blocks: capacity_blocks as u64,
            capacity_bytes: capacity_blocks as u64 * about.block_size_bytes,
            hit_ratio: ratio(hits[0] + hits[1], accesses[0] + accesses[1]),
            read_hit_ratio: ratio(hits[0], accesses[0]),
            write_hit_ratio: ratio(hits[1], accesses[1]),
            read_hits: hits[0],
            write_hits: hits[1],
            ..CurvePoint::default()
        }
    }

    /// The point of a policy that was simulated.
    pub fn of_row(row: &ResultRow) -> CurvePoint {
        let sample = row.sample.as_ref();
        CurvePoint {
            trace: row.trace.clone(),
            policy: row.policy.clone(),
            size: row.size.clone(),
            capacity_blocks: row.capacity_blocks,
            capacity_bytes: row.capacity_blocks * row.block_size_bytes,
            hit_ratio: row.hit_ratio,
            read_hit_ratio: row.read_hit_ratio,
            write_hit_ratio: ratio(row.write_hits, row.writes),
            read_hits: row.read_hits,
            write_hits: row.write_hits,
            hit_ratio_standard_error: sample.map(|sample| sample.hit_ratio_standard_error),
            hit_ratio_low: sample.map(|sample| sample.hit_ratio_low),
            hit_ratio_high: sample.map(|sample| sample.hit_ratio_high),
            knee: 0,
            sample_caveat: sample.and_then(|sample| sample.sample_caveat.clone()),
        }
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Sizes in blocks for caches over `trace`, each with what the user calls it, from the smallest to the largest, each once.
pub fn capacities(trace: &Trace, sizes: &[Size]) -> Result<Vec<(String, usize)>, SizeError> {
    capacities_over(trace.whole_unique_blocks() as usize, trace.block_size_bytes(), sizes)
}

/// The same over this many different blocks.
fn capacities_over(
    unique_blocks: usize,
    block_size_bytes: u64,
    sizes: &[Size],
) -> Result<Vec<(String, usize)>, SizeError> {
    let mut all = Vec::new();
    for size in sizes {
        all.push((size.to_string(), size.capacity_blocks(unique_blocks, block_size_bytes)?));
    }
    all.sort_by_key(|(_, blocks)| *blocks);
    all.dedup_by_key(|(_, blocks)| *blocks);
    Ok(all)
}

/// The points of `policy` at these [`capacities`], with knees marked, and what is known of a sample. The points of LRU over a whole trace are
/// counted in one pass, all others simulated. `progress` is told of block accesses.
///
/// # Errors
/// A warm-up that leaves nothing to count, and a trace too long for a policy that knows the future.
pub fn points(
    trace: &Trace,
    policy: &Spec,
    sizes: &[(String, usize)],
    warmup: Warmup,
    progress: &dyn Progress,
) -> Result<(Vec<CurvePoint>, Vec<Option<SampleFigures>>), JobError> {
    let (accesses, before) = (trace.whole_len() as usize, warmup.accesses(trace.whole_len() as usize));
    if before >= accesses as u64 {
        return Err(JobError::Warmup { trace: trace.name().to_owned(), warmup: before, accesses });
    }
    let (mut points, samples): (Vec<_>, Vec<_>) = if is_in_one_pass(trace, policy) {
        let (curve, about) = (LruCurve::of(trace, before, progress), About::of(trace));
        sizes.iter().map(|(size, blocks)| (CurvePoint::of_lru(&about, &curve, size, *blocks), None)).unzip()
    } else {
        let case = |(size, capacity_blocks): &(String, usize)| PolicyCase {
            trace: 0,
            policy: policy.clone(),
            size: size.clone(),
            capacity_blocks: *capacity_blocks,
        };
        let (cases, counting) = (sizes.iter().map(case).collect(), Counting { warmup, epoch: None });
        let runs = simulate(std::slice::from_ref(trace), cases, counting, progress)?;
        runs.into_iter().map(|run| (CurvePoint::of_row(&ResultRow::new(trace, &run)), run.sample)).unzip()
    };
    mark_knees(&mut points);
    Ok((points, samples))
}

/// The points of LRU at `sizes` over a trace that has passed `curve` and is known as `about`, with knees marked; the first `warmup` accesses were not
/// counted.
///
/// # Errors
/// A warm-up that leaves nothing to count, and sizes that are none of a cache over it.
pub fn lru_points(about: &About, curve: &LruCurve, sizes: &[Size], warmup: u64) -> Result<Vec<CurvePoint>, JobError> {
    if warmup >= about.accesses {
        let accesses = about.accesses as usize;
        return Err(JobError::Warmup { trace: about.name.clone(), warmup, accesses });
    }
    let sizes = capacities_over(about.unique_blocks as usize, about.block_size_bytes, sizes)?;
    let mut points: Vec<_> =
        sizes.iter().map(|(size, blocks)| CurvePoint::of_lru(about, curve, size, *blocks)).collect();
    mark_knees(&mut points);
    Ok(points)
}

/// Whether all points of a curve are counted in one pass: those of LRU, over a whole trace.
pub fn is_in_one_pass(trace: &Trace, policy: &Spec) -> bool {
    trace.sample().is_none() && policy.to_string() == "lru"
}

/// Marks the knees of one curve, whose points come by size.
///
/// They are among the corners of the curve's upper hull, beginning at an empty cache: a size between two corners is worth less than a mixture
/// of these.
pub fn mark_knees(points: &mut [CurvePoint]) {
    let place = |points: &[CurvePoint], at: Option<usize>| {
        at.map_or((0.0, 0.0), |at| (points[at].capacity_blocks as f64, points[at].hit_ratio))
    };
    let slope = |from: (f64, f64), to: (f64, f64)| (to.1 - from.1) / (to.0 - from.0).max(1.0);
    let mut hull: Vec<usize> = Vec::new();
    for at in 0..points.len() {
        while let Some(&last) = hull.last() {
            let before = place(points, hull.len().checked_sub(2).map(|at| hull[at]));
            let (last, next) = (place(points, Some(last)), place(points, Some(at)));
            if slope(before, last) > slope(last, next) {
                break;
            }
            hull.pop();
        }
        hull.push(at);
    }
    let mut knee = (0.0, 0.0);
    for (number, &at) in hull.iter().enumerate() {
        let here = place(points, Some(at));
        let before = place(points, number.checked_sub(1).map(|before| hull[before]));
        let Some(&next) = hull.get(number + 1) else { break };
        let bends = slope(before, here) >= KNEE_FACTOR * slope(here, place(points, Some(next)));
        if bends && here.1 - knee.1 >= KNEE_RISE {
            points[at].knee = 1;
            knee = here;
        }
    }
}

/// Writes points as CSV with a header; columns that no point has are left out.
pub fn write_csv(points: &[CurvePoint], out: impl Write) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    let shown = |column: &&Column<CurvePoint>| {
        !column.optional || points.iter().any(|point| (column.cell)(point) != column.none)
    };
    let columns: Vec<_> = CurvePoint::COLUMNS.iter().filter(shown).collect();
    csv.write_record(columns.iter().map(|column| column.about.name))?;
    for point in points {
        csv.write_record(columns.iter().map(|column| (column.cell)(point).text()))?;
    }
    csv.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knees(curve: &[(u64, f64)]) -> Vec<u64> {
        let point = |&(capacity_blocks, hit_ratio): &(u64, f64)| CurvePoint {
            capacity_blocks,
            hit_ratio,
            ..CurvePoint::default()
        };
        let mut points: Vec<_> = curve.iter().map(point).collect();
        mark_knees(&mut points);
        points.iter().filter(|point| point.knee == 1).map(|point| point.capacity_blocks).collect()
    }

    #[test]
    fn knees_are_where_a_curve_bends_and_not_where_it_is_straight_or_steepens() {
        let straight: Vec<_> = (1..=10).map(|size| (size, size as f64 / 10.0)).collect();
        assert_eq!(knees(&straight), Vec::<u64>::new());
        // 0.1 a block up to 5, then nothing.
        let flat: Vec<_> = (1..=10).map(|size: u64| (size, 0.1 * size.min(5) as f64)).collect();
        assert_eq!(knees(&flat), [5]);
        // A cliff at 8 of a loop: what is below lies under the line from nothing to the cliff.
        let cliff: Vec<_> = (1..=10).map(|size| (size, if size < 8 { 0.01 } else { 0.9 })).collect();
        assert_eq!(knees(&cliff), [8]);
        // A small set of hot blocks, a plateau, and a cliff.
        let two = [(10, 0.4), (20, 0.41), (50, 0.42), (60, 0.8), (100, 0.81)];
        assert_eq!(knees(&two), [10, 60]);
        assert_eq!((knees(&[]), knees(&[(4, 0.5)])), (vec![], vec![]));
    }

    #[test]
    fn csv_leaves_out_what_no_point_has() {
        let mut out = Vec::new();
        write_csv(&[CurvePoint { policy: "lru".to_owned(), ..CurvePoint::default() }], &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.starts_with(
                "trace,policy,size,capacity_blocks,capacity_bytes,hit_ratio,read_hit_ratio,write_hit_ratio,"
            )
        );
        assert!(text.contains("write_hits,knee\n,lru,,0,0,0,0,0,0,0,0\n"), "{text}");
        let sampled = CurvePoint { hit_ratio_low: Some(0.5), ..CurvePoint::default() };
        let mut out = Vec::new();
        write_csv(&[sampled], &mut out).unwrap();
        assert!(String::from_utf8(out).unwrap().contains("write_hits,hit_ratio_low,knee\n"));
    }
}
