//! Curves: each policy's hit ratio at many cache sizes, its knee, and the working set over time.

use std::io::Write;

use flashwise_core::access::Op;
use flashwise_core::policy::Spec;
use flashwise_trace::Trace;
use flashwise_trace::progress::Progress;
use flashwise_trace::tools::curve::LruCurve;
use flashwise_trace::tools::pass::About;

use crate::columns::{Column, figures};
use crate::experiment::{Case, Run};
use crate::job::JobError;
use crate::results::{ResultRow, WearLimits};
use crate::sampling::SampleFigures;
use crate::simulate::{Counting, Warmup, simulate};
use crate::size::{Size, SizeError};

/// Default sizes of a curve.
pub const SIZES: &str = "1%..100%:1%";
/// Parts of the trace for working sets.
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
        /// The cache's capacity in bytes.
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
        /// Standard error of the hit ratio, if estimated from a sample.
        #[serde(skip_serializing_if = "Option::is_none")]
        hit_ratio_standard_error: Option<f64>, "share";
        /// The lower end of the interval that holds the hit ratio of the whole trace in 95 of 100 samples.
        #[serde(skip_serializing_if = "Option::is_none")]
        hit_ratio_low: Option<f64>, "share";
        /// The upper end of that interval.
        #[serde(skip_serializing_if = "Option::is_none")]
        hit_ratio_high: Option<f64>, "share";
        /// 1 at the smallest of these sizes that reaches the knee of the curve.
        knee: u64, "";
        /// The knee of the policy's curve: the size at which it is furthest above the straight line from no cache to
        /// one of every block. It does not depend on the sizes requested. Empty if the curve is nowhere far above that
        /// line.
        #[serde(skip_serializing_if = "Option::is_none")]
        knee_blocks: Option<u64>, "blocks";
        /// Hits per access at the knee.
        #[serde(skip_serializing_if = "Option::is_none")]
        knee_hit_ratio: Option<f64>, "share";
        /// A caveat about the sample, such as that it is too small for the size.
        #[serde(skip_serializing_if = "Option::is_none")]
        sample_caveat: Option<String>, "";
    }
}

/// Smallest excess, at a knee, of the share of all possible hits over the share of all blocks.
const KNEE_RISE: f64 = 0.1;
/// Sizes examined of a curve that is known at every size.
const KNEE_SIZES: u64 = 1000;
/// Sizes simulated to find a policy's knee.
const KNEE_SIZES_SIMULATED: u64 = 20;

/// A size in blocks, and hits per access.
type SizeAndHits = (u64, f64);

impl CurvePoint {
    /// Returns the point of an LRU cache of `capacity_blocks`, given by the user as `size`.
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

    /// Returns the point of a simulated policy.
    pub fn of_row(row: &ResultRow) -> CurvePoint {
        let sample = row.sample.as_ref();
        CurvePoint {
            trace: row.trace.clone(),
            policy: row.policy.to_string(),
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
            knee_blocks: None,
            knee_hit_ratio: None,
            sample_caveat: sample.and_then(|sample| sample.sample_caveat.clone()),
        }
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Returns cache sizes in blocks over `trace`, each with the user's text, sorted and without duplicates.
pub fn capacities(trace: &Trace, sizes: &[Size]) -> Result<Vec<(String, usize)>, SizeError> {
    capacities_over(trace.whole_unique_blocks() as usize, trace.block_size_bytes(), sizes)
}

/// Returns cache sizes as [`capacities`] does, over this many unique blocks.
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

/// Returns sizes in equal steps up to a cache of every block, for the knee.
fn knee_sizes(unique_blocks: u64, steps: u64) -> Vec<u64> {
    let mut sizes: Vec<u64> =
        (1..=steps).map(|step| (u128::from(unique_blocks) * u128::from(step) / u128::from(steps)) as u64).collect();
    sizes.retain(|blocks| *blocks > 0);
    sizes.dedup();
    sizes
}

/// Returns these [`capacities`] and the additional sizes at which a policy other than LRU is simulated to find its
/// knee.
pub fn simulated(trace: &Trace, sizes: &[(String, usize)]) -> Vec<(String, usize)> {
    let more = knee_sizes(trace.whole_unique_blocks(), KNEE_SIZES_SIMULATED);
    let mut all = sizes.to_vec();
    all.extend(more.into_iter().map(|blocks| (String::new(), blocks as usize)));
    // Of equal sizes, keep the one with a name.
    all.sort_by(|one, other| one.1.cmp(&other.1).then(other.0.cmp(&one.0)));
    all.dedup_by_key(|(_, blocks)| *blocks);
    all
}

/// Returns the points of `policy` at these [`capacities`], with knees marked, and the accuracy of a sample. LRU over a
/// whole trace takes one pass; other policies are simulated. `progress` counts block accesses.
///
/// # Errors
/// The warm-up leaves nothing to count, or the trace is too long for an offline policy.
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
    if is_in_one_pass(trace, policy) {
        let (curve, about) = (LruCurve::of(trace, before, progress), About::of(trace));
        let mut points: Vec<_> =
            sizes.iter().map(|(size, blocks)| CurvePoint::of_lru(&about, &curve, size, *blocks)).collect();
        mark_knee(&mut points, knee(&lru_curve(&about, &curve)));
        let samples = vec![None; points.len()];
        return Ok((points, samples));
    }
    let (points, samples): (Vec<_>, Vec<_>) = {
        let case = |(size, blocks): &(String, usize)| Case::of(policy.clone(), size, *blocks);
        let (cases, counting) = (simulated(trace, sizes).iter().map(case).collect(), Counting { warmup, epoch: None });
        let runs = simulate(std::slice::from_ref(trace), cases, counting, progress)?;
        let row = |run: &Run| ResultRow::of(trace, run, None, &WearLimits::default());
        runs.into_iter().map(|run| (CurvePoint::of_row(&row(&run)), run.sample)).unzip()
    };
    let curve: Vec<SizeAndHits> = points.iter().map(|point| (point.capacity_blocks, point.hit_ratio)).collect();
    let grid = knee_sizes(trace.whole_unique_blocks(), KNEE_SIZES_SIMULATED);
    let knee = knee(&curve.into_iter().filter(|(blocks, _)| grid.contains(blocks)).collect::<Vec<_>>());
    let asked = |point: &CurvePoint| sizes.iter().any(|(_, blocks)| *blocks as u64 == point.capacity_blocks);
    let (mut points, samples): (Vec<_>, Vec<_>) =
        points.into_iter().zip(samples).filter(|(point, _)| asked(point)).unzip();
    mark_knee(&mut points, knee);
    Ok((points, samples))
}

/// Returns the curve of LRU at many sizes, up to a cache of every block.
fn lru_curve(about: &About, curve: &LruCurve) -> Vec<SizeAndHits> {
    let accesses: u64 = [Op::Read, Op::Write].map(|op| curve.accesses(op)).iter().sum();
    let hits = |blocks: u64| [Op::Read, Op::Write].map(|op| curve.hits(op, blocks as usize)).iter().sum();
    let sizes = knee_sizes(about.unique_blocks, KNEE_SIZES);
    sizes.into_iter().map(|blocks| (blocks, ratio(hits(blocks), accesses))).collect()
}

/// Returns the points of LRU at `sizes`, with knees marked. `curve` has passed over the trace, which `about` describes,
/// without counting the first `warmup` accesses.
///
/// # Errors
/// The warm-up leaves nothing to count, or a size is invalid for the trace.
pub fn lru_points(about: &About, curve: &LruCurve, sizes: &[Size], warmup: u64) -> Result<Vec<CurvePoint>, JobError> {
    if warmup >= about.accesses {
        let accesses = about.accesses as usize;
        return Err(JobError::Warmup { trace: about.name.clone(), warmup, accesses });
    }
    let sizes = capacities_over(about.unique_blocks as usize, about.block_size_bytes, sizes)?;
    let mut points: Vec<_> =
        sizes.iter().map(|(size, blocks)| CurvePoint::of_lru(about, curve, size, *blocks)).collect();
    mark_knee(&mut points, knee(&lru_curve(about, curve)));
    Ok(points)
}

/// True if one pass counts all points of a curve: those of LRU over a whole trace.
pub fn is_in_one_pass(trace: &Trace, policy: &Spec) -> bool {
    trace.sample().is_none() && policy.to_string() == "lru"
}

/// Returns the knee of a curve whose points are sorted by size and end at a cache of every block. It is the point
/// furthest above the straight line from no cache to the last point. `None` if that is not far. Source: Satopaa,
/// Albrecht, Irwin, Raghavan: Finding a "Kneedle" in a haystack. SIMPLEX 2011.
fn knee(curve: &[SizeAndHits]) -> Option<SizeAndHits> {
    let &(largest, _) = curve.last()?;
    let most = curve.iter().map(|point| point.1).fold(0.0, f64::max);
    let above = |&(blocks, hits): &SizeAndHits| hits / most - blocks as f64 / largest as f64;
    let further = |one, other| if above(other) > above(one) + 1e-12 { other } else { one };
    let found = curve.iter().filter(|_| most > 0.0).reduce(further)?;
    (above(found) >= KNEE_RISE).then_some(*found)
}

/// Marks the knee in points that are sorted by size.
fn mark_knee(points: &mut [CurvePoint], knee: Option<SizeAndHits>) {
    let Some((blocks, hit_ratio)) = knee else { return };
    for point in points.iter_mut() {
        (point.knee_blocks, point.knee_hit_ratio) = (Some(blocks), Some(hit_ratio));
    }
    if let Some(first) = points.iter_mut().find(|point| point.capacity_blocks >= blocks) {
        first.knee = 1;
    }
}

/// Writes points as CSV with a header, without columns that no point has.
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

    #[test]
    fn a_knee_is_where_a_curve_bends_and_a_straight_one_has_none() {
        let straight: Vec<_> = (1..=10).map(|size| (size, size as f64 / 10.0)).collect();
        assert_eq!(knee(&straight), None);
        // 0.1 a block up to 5, then nothing.
        let flat: Vec<_> = (1..=10).map(|size: u64| (size, 0.1 * size.min(5) as f64)).collect();
        assert_eq!(knee(&flat), Some((5, 0.5)));
        // A cliff at 8 of a loop.
        let cliff: Vec<_> = (1..=10).map(|size| (size, if size < 8 { 0.01 } else { 0.9 })).collect();
        assert_eq!(knee(&cliff), Some((8, 0.9)));
        assert_eq!((knee(&[]), knee(&[(4, 0.0)]), knee(&[(4, 0.5)])), (None, None, None));
    }

    /// The knee is the same for any sizes requested, for every policy.
    #[test]
    fn the_knee_does_not_depend_on_the_sizes() {
        let request = |at: u64| flashwise_trace::request::Request {
            time_us: at as i64,
            op: Op::Read,
            volume: 0,
            // Half of the accesses go to 100 hot blocks of 1,000.
            offset_bytes: 4096 * (if at.is_multiple_of(2) { at * 7919 % 100 } else { at * 7919 % 1000 }),
            length_bytes: 4096,
        };
        let file = std::io::BufWriter::new(tempfile::tempfile().unwrap());
        let mut normaliser = flashwise_trace::normalised::Normaliser::new("t", 4096, file).unwrap();
        normaliser.volume(b"0").unwrap();
        (0..20_000).for_each(|at| normaliser.request(&request(at)).unwrap());
        let trace = Trace::map("t", &normaliser.finish().unwrap().into_inner().unwrap()).unwrap();
        for policy in ["lru", "larc"] {
            let knees = ["1%..100%:1%", "20%,95%", "33%", "5%"].map(|sizes| {
                let sizes = capacities(&trace, &Size::parse_list(sizes).unwrap()).unwrap();
                let warmup = Warmup::Accesses(0);
                let (points, _) =
                    points(&trace, &policy.parse().unwrap(), &sizes, warmup, &flashwise_trace::progress::Silent)
                        .unwrap();
                assert_eq!(points.len(), sizes.len());
                (points[0].knee_blocks, points[0].knee_hit_ratio)
            });
            assert!(knees[0].0.is_some_and(|blocks| (50..=300).contains(&blocks)), "{policy}: {knees:?}");
            assert!(knees.iter().all(|knee| *knee == knees[0]), "{policy}: {knees:?}");
        }
    }

    #[test]
    fn csv_omits_empty_columns() {
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
