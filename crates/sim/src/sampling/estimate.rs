//! Estimates for the whole trace from a sample, and their errors.
//!
//! A hash of their address divides the sample's accesses into classes, each a smaller sample. Each class has two
//! halves; a block and its neighbour are in different halves. Over the classes, hits h depend on accesses n. If popular
//! blocks enlarge some classes, the additional accesses are nearly all hits; otherwise hits grow in proportion. The
//! number of accesses of the whole trace is known, and so is the expected number of the sample, E\[n\]. So the estimate
//! follows the regression of h on n: `(H + beta (E[n] - n)) / E[n]`. A beta equal to the hit ratio leaves the estimate
//! unchanged; a beta of 1 is SHARDS-adj. If the whole trace's number of unique blocks is known too, hits depend on
//! both. Each surplus block of the sample is at least one surplus miss.
//!
//! Accesses to hot blocks, see [`flashwise_trace::sampling`], are excluded from that. LRU's hits on them are known for
//! the whole trace and for each class. The classes estimate only the difference: other accesses, and the hits of other
//! caches on hot blocks.
//!
//! Samples have their exact share of neighbours, so they err by as much as neighbours differ. The squared differences
//! between the halves of classes add up to the variance (Wolter: Introduction to variance estimation. 2nd edition,
//! 2007, section 8.2, estimators of successive differences).
//!
//! Source: Cochran: Sampling techniques. 3rd edition, 1977, chapter 7, for the regression estimate and its error.
//! Waldspurger, Park, Garthwaite, Ahmad: SHARDS. FAST 2015, section 3.4, for the adjusted quantity.

use flashwise_core::access::Op;
use flashwise_core::counters::{Counters, OpCounters};
use flashwise_trace::sampling::CLASSES;

/// Share of the intervals that contain the true value.
pub const CONFIDENCE: f64 = 0.95;
/// The corresponding quantile of the normal distribution.
const NORMAL_QUANTILE: f64 = 1.959_964;

/// Number of halves of classes.
const HALVES: usize = 2 * CLASSES;

/// Outcomes of the accesses of a sample, by half of a class.
#[derive(Clone, Debug)]
pub struct Classes {
    /// The counters.
    pub counters: Box<[Counters; HALVES]>,
    /// Unique blocks.
    pub blocks: Box<[u64; HALVES]>,
    /// Accesses to hot blocks, by [`Op`], and LRU's hits among them.
    pub hot: Box<[[Hot; 2]; HALVES]>,
    /// Blocks in the cache.
    cached: Box<[i64; HALVES]>,
    /// The sum of `cached` over the recorded moments.
    cached_sums: Box<[i64; HALVES]>,
}

/// Accesses to hot blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Hot {
    /// Number of accesses.
    pub accesses: f64,
    /// LRU's hits among them, in a cache of the size.
    pub lru_hits: f64,
}

impl Classes {
    /// Returns zero counts for a sample whose blocks are in these halves of classes.
    pub fn new(of_blocks: &[u8]) -> Classes {
        let mut blocks = Box::new([0; HALVES]);
        of_blocks.iter().for_each(|&class| blocks[usize::from(class)] += 1);
        let hot = Box::new([[Hot::default(); 2]; HALVES]);
        let counters = Box::new([Counters::default(); HALVES]);
        Classes { counters, blocks, hot, cached: Box::new([0; HALVES]), cached_sums: Box::new([0; HALVES]) }
    }

    /// Records that a block of this half entered or left the cache.
    pub fn note_cached(&mut self, half: u8, entered: bool) {
        self.cached[usize::from(half)] += if entered { 1 } else { -1 };
    }

    /// Records where the blocks lie that the cache has now.
    pub fn note_spread(&mut self) {
        self.cached_sums.iter_mut().zip(self.cached.iter()).for_each(|(sum, cached)| *sum += cached);
    }

    /// Returns the relative standard deviation of the number of cached blocks, on average over the recorded moments, in
    /// a sample of a share `rate`. It follows from the differences between neighbours. `None` if nothing was in the
    /// cache.
    pub fn size_error(&self, rate: f64) -> Option<f64> {
        let square = |number: i64| (number as f64).powi(2);
        let all = square(self.cached_sums.iter().sum());
        let (pairs, _) = self.cached_sums.as_chunks::<2>();
        let differences: f64 = pairs.iter().map(|[one, other]| square(one - other)).sum();
        (all > 0.0).then(|| (differences / all * (1.0 - rate)).sqrt())
    }

    /// All classes together.
    pub fn total(&self) -> Counters {
        let mut total = Counters::default();
        self.counters.iter().for_each(|&class| total += class);
        total
    }

    /// The hot accesses of all classes together.
    fn total_hot(&self) -> [Hot; 2] {
        [0, 1].map(|op| {
            let add = |sum: Hot, class: &[Hot; 2]| Hot {
                accesses: sum.accesses + class[op].accesses,
                lru_hits: sum.lru_hits + class[op].lru_hits,
            };
            self.hot.iter().fold(Hot::default(), add)
        })
    }

    /// Returns the regressors and hits of accesses of one kind, without hot ones, by class and half.
    fn points(&self, op: Op) -> [[Point; 2]; CLASSES] {
        let of_half = |half: usize| {
            let counters = self.counters[half].of(op);
            let [accesses, hits] = [counters.accesses(), counters.hits].map(|count| count as f64);
            let hot = self.hot[half][op as usize];
            Point { accesses: accesses - hot.accesses, blocks: self.blocks[half] as f64, hits: hits - hot.lru_hits }
        };
        std::array::from_fn(|class| [of_half(2 * class), of_half(2 * class + 1)])
    }
}

/// A class, or half of one.
#[derive(Clone, Copy)]
struct Point {
    accesses: f64,
    blocks: f64,
    hits: f64,
}

impl Point {
    /// Returns one half plus `sign` times the other.
    fn of([one, other]: [Point; 2], sign: f64) -> Point {
        Point {
            accesses: one.accesses + sign * other.accesses,
            blocks: one.blocks + sign * other.blocks,
            hits: one.hits + sign * other.hits,
        }
    }
}

/// Known figures of the whole trace.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Population {
    /// Counted accesses, by [`Op`].
    pub accesses: [u64; 2],
    /// Unique blocks, if counted.
    pub blocks: Option<u64>,
    /// Counted accesses to hot blocks.
    pub hot: [Hot; 2],
}

/// Slopes of hits over accesses and unique blocks, and their error.
#[derive(Clone, Debug, PartialEq)]
pub struct Regression {
    /// The sample's share of the blocks.
    rate: f64,
    population: Population,
    /// Unique blocks of the sample.
    blocks: u64,
    /// Hot accesses of the sample.
    hot: [Hot; 2],
    /// Hits of the sample, by op.
    hits: [u64; 2],
    /// By op.
    slopes: [Slopes; 2],
    /// Standard deviation of the sample's hits around the regression, from the differences between neighbours.
    residual: f64,
    /// Degrees of freedom of `residual`.
    freedom: f64,
}

impl Regression {
    /// Returns the regression over the classes of a sample with a share `rate` of the blocks. It uses unique blocks if
    /// `population` has them.
    pub fn of(classes: &Classes, rate: f64, population: Population) -> Regression {
        let halves = [Op::Read, Op::Write].map(|op| classes.points(op));
        let points = halves.map(|halves| halves.map(|halves| Point::of(halves, 1.0)));
        let slopes = points.map(|points| Slopes::of(&points, population.blocks.is_some()));
        let of_op = |op: Op, class: usize| {
            let Point { accesses, blocks, hits } = Point::of(halves[op as usize][class], -1.0);
            let Slopes { of_accesses, of_blocks } = slopes[op as usize];
            hits - of_accesses * accesses - of_blocks * blocks
        };
        // The halves of a class are neighbours. The sample takes the same share of both, so their difference is that
        // between samples.
        let residuals: Vec<f64> = (0..CLASSES).map(|class| of_op(Op::Read, class) + of_op(Op::Write, class)).collect();
        let count = CLASSES as f64;
        let left = count - if population.blocks.is_some() { 2.0 } else { 1.0 };
        let moment = |power: i32| residuals.iter().map(|residual| residual.powi(power)).sum::<f64>();
        let (second, fourth) = (moment(2), moment(4));
        // For a normal distribution the ratio is a third of the number of classes; it is smaller if few classes
        // dominate the error.
        let freedom = if fourth > 0.0 { 3.0 * second * second / fourth - 2.0 } else { left };
        let residual = (second * count / left * (1.0 - rate)).sqrt();
        let blocks = classes.blocks.iter().sum();
        let (hot, total) = (classes.total_hot(), classes.total());
        let hits = [Op::Read, Op::Write].map(|op| total.of(op).hits);
        Regression { rate, population, blocks, hot, hits, slopes, residual, freedom: freedom.clamp(3.0, left) }
    }

    /// Assumes that this many reads and writes have the hit ratios of the sample. For parts of a trace with too few
    /// accesses for a regression of their own.
    pub fn in_proportion(accesses: [u64; 2]) -> Regression {
        Regression {
            rate: 0.0,
            population: Population { accesses, ..Population::default() },
            blocks: 0,
            hot: [Hot::default(); 2],
            hits: [0; 2],
            slopes: [Slopes::default(); 2],
            residual: 0.0,
            freedom: f64::INFINITY,
        }
    }

    /// Returns the regression for a cache of another size, with other hits of `classes` and, for hot accesses, of LRU.
    pub fn at(&self, classes: &Classes, population: Population) -> Regression {
        Regression { population, hot: classes.total_hot(), hits: [0; 2], ..self.clone() }
    }

    /// Standard error of the hit ratio, if only the hits of the sample vary.
    pub fn standard_error(&self) -> f64 {
        let expected = self.rate * self.population.accesses.iter().sum::<u64>() as f64;
        if expected > 0.0 { self.residual / expected } else { 0.0 }
    }

    /// Degrees of freedom of the error.
    pub fn freedom(&self) -> f64 {
        self.freedom
    }

    /// Scales `counted` of the sample up to the whole trace. The share of misses that are admitted is that of the
    /// sample.
    pub fn estimate(&self, counted: &Counters) -> Counters {
        Counters::of_ops([Op::Read, Op::Write].map(|op| self.estimate_op(op, counted.of(op))))
    }

    fn estimate_op(&self, op: Op, counted: &OpCounters) -> OpCounters {
        let whole = self.population.accesses[op as usize];
        let accesses = counted.accesses();
        if accesses == 0 || whole == 0 {
            // Without accesses in the sample, nothing is known.
            return OpCounters { bypasses: whole, ..OpCounters::default() };
        }
        // Without a rate, assume that the sample has the expected number of accesses.
        let rate = if self.rate > 0.0 { self.rate } else { accesses as f64 / whole as f64 };
        let Slopes { of_accesses, of_blocks } = self.slopes[op as usize];
        let (hot, hot_of_whole) = (self.hot[op as usize], self.population.hot[op as usize]);
        let more_accesses = rate * (whole as f64 - hot_of_whole.accesses) - (accesses as f64 - hot.accesses);
        let more_blocks = self.population.blocks.map_or(0.0, |blocks| rate * blocks as f64 - self.blocks as f64);
        // A cache with fewer hits than the policy has proportionally fewer hits on hot accesses.
        let part = match self.hits[op as usize] {
            0 => 1.0,
            alone => (counted.hits as f64 / alone as f64).min(1.0),
        };
        let difference = counted.hits as f64 - part * hot.lru_hits;
        let hits =
            (difference + of_accesses * more_accesses + of_blocks * more_blocks) / rate + part * hot_of_whole.lru_hits;
        // A sample with all accesses, or with misses only, is not adjusted.
        let hits = if counted.hits == 0 { 0 } else { hits.clamp(0.0, whole as f64).round() as u64 };
        with_hits(counted, hits, whole - hits)
    }
}

/// Returns counters with these hits and misses, and the share of admissions of `counted`.
pub(super) fn with_hits(counted: &OpCounters, hits: u64, misses: u64) -> OpCounters {
    let missed = counted.accesses() - counted.hits;
    if missed == 0 {
        return OpCounters { hits, bypasses: misses, ..OpCounters::default() };
    }
    let of_misses = |count: u64| (misses as f64 * count as f64 / missed as f64).round() as u64;
    let fills = of_misses(counted.fills).min(misses);
    let replacements = of_misses(counted.replacements).min(misses - fills);
    let rest = misses - fills - replacements;
    // A rounding remainder must not create bypasses if there were none.
    match (counted.bypasses, counted.replacements) {
        (0, 0) => OpCounters { hits, fills: fills + rest, replacements, bypasses: 0 },
        (0, _) => OpCounters { hits, fills, replacements: replacements + rest, bypasses: 0 },
        _ => OpCounters { hits, fills, replacements, bypasses: rest },
    }
}

/// Additional hits per additional access and block.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Slopes {
    of_accesses: f64,
    of_blocks: f64,
}

/// Below this share of the variance, accesses and blocks count as collinear, and only accesses are used.
const COLLINEAR: f64 = 1e-6;

impl Slopes {
    /// Returns the least-squares slopes, from 0 to 1: of accesses and of blocks if these are `known`, otherwise of
    /// accesses only.
    fn of(points: &[Point; CLASSES], known: bool) -> Slopes {
        let mean = |of: fn(&Point) -> f64| points.iter().map(of).sum::<f64>() / CLASSES as f64;
        let (accesses, blocks, hits) =
            (mean(|point| point.accesses), mean(|point| point.blocks), mean(|point| point.hits));
        let sum = |product: &dyn Fn(f64, f64, f64) -> f64| {
            let of = |point: &Point| product(point.accesses - accesses, point.blocks - blocks, point.hits - hits);
            points.iter().map(of).sum::<f64>()
        };
        let (aa, ab, bb) = (sum(&|a, _, _| a * a), sum(&|a, b, _| a * b), sum(&|_, b, _| b * b));
        let (ah, bh) = (sum(&|a, _, h| a * h), sum(&|_, b, h| b * h));
        let determinant = aa * bb - ab * ab;
        if known && determinant > COLLINEAR * aa * bb {
            let of_accesses = (ah * bb - bh * ab) / determinant;
            return Slopes { of_accesses, of_blocks: (bh * aa - ah * ab) / determinant };
        }
        let slope = if aa > 0.0 { ah / aa } else { hits / accesses };
        Slopes { of_accesses: if slope.is_finite() { slope.clamp(0.0, 1.0) } else { 0.0 }, of_blocks: 0.0 }
    }
}

/// An error with several causes, and its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Uncertainty {
    /// The standard error.
    pub standard_error: f64,
    /// Largest error in [`CONFIDENCE`] of all samples.
    pub margin: f64,
}

impl Uncertainty {
    /// Combines independent causes, each given by its standard error and degrees of freedom (Satterthwaite, Biometrics
    /// Bulletin 2(6), 1946).
    pub fn of(causes: &[(f64, f64)]) -> Uncertainty {
        let variance: f64 = causes.iter().map(|(error, _)| error * error).sum();
        let spread: f64 = causes.iter().map(|(error, freedom)| error.powi(4) / freedom).sum();
        let freedom = if spread > 0.0 { variance * variance / spread } else { f64::INFINITY };
        let standard_error = variance.sqrt();
        Uncertainty { standard_error, margin: standard_error * student_quantile(freedom.max(3.0)) }
    }
}

/// Returns the two-sided quantile of Student's distribution for [`CONFIDENCE`]. It is accurate to a hundredth for 3
/// degrees of freedom or more (Abramowitz, Stegun: Handbook of mathematical functions, 26.7.5).
fn student_quantile(freedom: f64) -> f64 {
    let z = NORMAL_QUANTILE;
    let terms = [
        (z.powi(3) + z) / 4.0,
        (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0,
        (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0,
    ];
    terms.iter().rev().fold(0.0, |sum, term| (sum + term) / freedom) + z
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(hits: u64, replacements: u64) -> OpCounters {
        OpCounters { hits, replacements, ..OpCounters::default() }
    }

    fn classes(of: impl Fn(usize) -> OpCounters) -> Classes {
        let mut classes = Classes::new(&[]);
        for (number, half) in classes.counters.iter_mut().enumerate() {
            *half = Counters::of_ops([of(number / 2), OpCounters::default()]);
        }
        classes
    }

    const NO_WRITES: fn(u64) -> Population = |reads| Population { accesses: [reads, 0], ..Population::default() };

    /// Each half of a class has ten misses, and some have more hits. The whole trace, 100 times the expected accesses,
    /// lacks only hits.
    #[test]
    fn missing_popular_blocks_only_add_hits() {
        let sample = classes(|number| op(10 * (number as u64 % 4), 10));
        let total = sample.total();
        assert_eq!((total.accesses(), total.hits()), (3200, 1920));
        let regression = Regression::of(&sample, 0.01, NO_WRITES(400_000));
        assert_eq!((regression.slopes[0].of_accesses, regression.standard_error()), (1.0, 0.0));
        let whole = regression.estimate(&total);
        // 800 more accesses are expected in the sample: 2,720 hits of 4,000.
        assert_eq!((whole.hits(), whole.accesses(), whole.replacements()), (272_000, 400_000, 128_000));
    }

    /// Each class has as many hits as misses, at any size.
    #[test]
    fn with_equal_blocks_the_ratio_is_unchanged() {
        let sample = classes(|number| op(5 + number as u64 % 3, 5 + number as u64 % 3));
        let regression = Regression::of(&sample, 0.1, NO_WRITES(9_000));
        assert!((regression.slopes[0].of_accesses - 0.5).abs() < 1e-12);
        let whole = regression.estimate(&sample.total());
        assert_eq!((whole.hits(), whole.replacements(), whole.bypasses()), (4500, 4500, 0));
    }

    /// In each class one half has 8 hits and 2 misses, and the other 6 and 4. By hand: a difference of 2 in each gives
    /// a variance of 64 / 63 x 64 x 4. A share of 0.9 is not in the sample; there are 1,280 expected accesses.
    #[test]
    fn the_differences_between_neighbours_are_the_error() {
        let mut sample = classes(|_| op(0, 0));
        for (number, half) in sample.counters.iter_mut().enumerate() {
            *half = Counters::of_ops([if number % 2 == 0 { op(8, 2) } else { op(6, 4) }, OpCounters::default()]);
        }
        let regression = Regression::of(&sample, 0.1, NO_WRITES(12_800));
        let expected = (64.0_f64 / 63.0 * 64.0 * 4.0 * 0.9).sqrt() / 1280.0;
        assert!((regression.standard_error() - expected).abs() < 1e-12);
        assert_eq!(regression.estimate(&sample.total()).hits(), 8960);
        let whole = Regression::of(&sample, 1.0, NO_WRITES(1280));
        assert_eq!((whole.standard_error(), whole.estimate(&sample.total())), (0.0, sample.total()));
    }

    /// First 3 blocks are in one half and 1 in the other, besides a pair; then 1 and 1. By hand: a difference of 4 - 2
    /// among 10, and a share of 0.9 is not in the sample.
    #[test]
    fn the_size_of_a_cache_errs_by_as_much_as_neighbours_differ() {
        let mut sample = Classes::new(&[]);
        [0, 0, 0, 1, 6, 7].into_iter().for_each(|half| sample.note_cached(half, true));
        assert_eq!(sample.size_error(0.1), None);
        sample.note_spread();
        assert!((sample.size_error(0.1).unwrap() - (4.0_f64 / 36.0 * 0.9).sqrt()).abs() < 1e-12);
        sample.note_cached(0, false);
        sample.note_cached(0, false);
        sample.note_spread();
        assert!((sample.size_error(0.1).unwrap() - (4.0_f64 / 100.0 * 0.9).sqrt()).abs() < 1e-12);
        assert_eq!(sample.size_error(1.0), Some(0.0));
    }

    #[test]
    fn reads_and_writes_add_up_and_nothing_is_invented() {
        let mut sample = classes(|number| op(number as u64 % 5, 7));
        let regression =
            Regression::of(&sample, 0.01, Population { accesses: [60_000, 1000], ..Population::default() });
        let whole = regression.estimate(&sample.total());
        assert_eq!((whole.of(Op::Write).accesses(), whole.of(Op::Write).hits), (1000, 0));
        sample.counters[3] = Counters::of_ops([OpCounters { hits: 9, fills: 3, replacements: 1, bypasses: 5 }; 2]);
        for reads in [1, 10, 1000, 123_457] {
            let regression =
                Regression::of(&sample, 0.01, Population { accesses: [reads, 77], ..Population::default() });
            let whole = regression.estimate(&sample.total());
            assert_eq!((whole.of(Op::Read).accesses(), whole.of(Op::Write).accesses()), (reads, 77));
        }
    }

    /// Each block misses once: hits are accesses minus blocks, even if the sample has too many or too few of either.
    #[test]
    fn if_each_block_misses_once_the_blocks_suffice() {
        let mut sample = classes(|number| op(20 + 7 * (number as u64 % 5), 3 + number as u64 % 3));
        for (number, blocks) in sample.blocks.iter_mut().enumerate() {
            *blocks = 3 + number as u64 / 2 % 3;
        }
        let regression = Regression::of(
            &sample,
            0.01,
            Population { accesses: [300_000, 0], blocks: Some(20_000), ..Population::default() },
        );
        assert!(regression.standard_error() < 1e-9);
        assert_eq!(regression.estimate(&sample.total()).hits(), 280_000);
    }

    /// From a table of Student's distribution.
    #[test]
    fn quantiles_are_those_of_tables() {
        for (freedom, expected) in [(3.0, 3.182), (5.0, 2.571), (10.0, 2.228), (30.0, 2.042), (62.0, 1.999)] {
            let found = student_quantile(freedom);
            assert!((found / expected - 1.0).abs() < 0.01, "{freedom}: {found}, expected {expected}");
        }
        assert_eq!(student_quantile(f64::INFINITY), NORMAL_QUANTILE);
        let both = Uncertainty::of(&[(0.3, 62.0), (0.4, 62.0)]);
        assert!((both.standard_error - 0.5).abs() < 1e-12 && both.margin > 0.98 && both.margin < 1.0);
    }
}
