//! What a sample says of the whole trace, and how far it may be off.
//!
//! The sample's accesses fall into classes by a hash of where they lie, each a smaller sample by itself. Over the classes the hits h
//! depend on the accesses n: where popular blocks make some classes larger, their accesses are nearly all hits, elsewhere the hits grow
//! in proportion. How many accesses of the whole trace there are is known, and so is how many the sample should have, E\[n\]: the hits
//! are moved by as much as the regression of h on n says, `(H + beta (E[n] - n)) / E[n]`. A beta that is the hit ratio leaves it as it
//! is; a beta of 1 is SHARDS-adj. Where the different blocks of the whole trace are known too, hits depend on both: a block that the sample has
//! too many is at least one miss too many.
//!
//! Accesses to hot blocks, see [`flashwise_trace::sampling`], are left out of that. How many of them LRU would hit is known of the whole trace
//! and of each class, and what is estimated from the classes is the difference: other accesses, and what other caches make of these.
//!
//! Source: Cochran: Sampling techniques. 3rd edition, 1977, chapter 7, for the regression estimate and its error. Waldspurger, Park,
//! Garthwaite, Ahmad: SHARDS. FAST 2015, section 3.4, for what is adjusted.

use flashwise_core::access::Op;
use flashwise_core::counters::{Counters, OpCounters};
use flashwise_trace::sampling::CLASSES;

/// The share of the intervals that hold the truth.
pub const CONFIDENCE: f64 = 0.95;
/// The quantile of the normal distribution that goes with it.
const NORMAL_QUANTILE: f64 = 1.959_964;

/// What became of the accesses of a sample, by class.
#[derive(Clone, Debug)]
pub struct Classes {
    /// The counters.
    pub counters: Box<[Counters; CLASSES]>,
    /// Different blocks.
    pub blocks: Box<[u64; CLASSES]>,
    /// Of the accesses those to hot blocks, by [`Op`], and how many of these LRU hits.
    pub hot: Box<[[Hot; 2]; CLASSES]>,
}

/// Accesses to hot blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Hot {
    /// How many there are.
    pub accesses: f64,
    /// How many of them LRU hits in a cache of the size.
    pub lru_hits: f64,
}

impl Classes {
    /// Nothing counted yet, of a sample whose blocks are in these classes.
    pub fn new(of_blocks: &[u8]) -> Classes {
        let mut blocks = Box::new([0; CLASSES]);
        of_blocks.iter().for_each(|&class| blocks[usize::from(class)] += 1);
        let hot = Box::new([[Hot::default(); 2]; CLASSES]);
        Classes { counters: Box::new([Counters::default(); CLASSES]), blocks, hot }
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

    /// What the hits of one kind of accesses depend on, and the hits; hot ones left out.
    fn points(&self, op: Op) -> [Point; CLASSES] {
        std::array::from_fn(|class| {
            let counters = self.counters[class].of(op);
            let [accesses, hits] = [counters.accesses(), counters.hits].map(|count| count as f64);
            let hot = self.hot[class][op as usize];
            Point { accesses: accesses - hot.accesses, blocks: self.blocks[class] as f64, hits: hits - hot.lru_hits }
        })
    }
}

/// A class.
#[derive(Clone, Copy)]
struct Point {
    accesses: f64,
    blocks: f64,
    hits: f64,
}

/// What is known of the whole trace.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Population {
    /// The accesses that are counted, by [`Op`].
    pub accesses: [u64; 2],
    /// Different blocks, if they were counted.
    pub blocks: Option<u64>,
    /// Those of the accesses that are to hot blocks.
    pub hot: [Hot; 2],
}

/// By how much hits grow with accesses and with different blocks, and how far that is off.
#[derive(Clone, Debug, PartialEq)]
pub struct Regression {
    /// The share of the blocks that the sample has.
    rate: f64,
    population: Population,
    /// Different blocks of the sample.
    blocks: u64,
    /// Hot accesses of the sample.
    hot: [Hot; 2],
    /// Hits of the sample, by op.
    hits: [u64; 2],
    /// By op.
    slopes: [Slopes; 2],
    /// Standard deviation of the number of hits of the sample around what the regression says.
    residual: f64,
    /// How many normally distributed values know as much of it.
    freedom: f64,
}

impl Regression {
    /// The regression over the classes of a sample that has a share `rate` of the blocks. Of the different blocks it knows where `population`
    /// does.
    pub fn of(classes: &Classes, rate: f64, population: Population) -> Regression {
        let points = [Op::Read, Op::Write].map(|op| classes.points(op));
        let slopes = points.map(|points| Slopes::of(&points, population.blocks.is_some()));
        let of_op = |op: Op, class: usize| {
            let Point { accesses, blocks, hits } = points[op as usize][class];
            let Slopes { of_accesses, of_blocks } = slopes[op as usize];
            hits - of_accesses * accesses - of_blocks * blocks
        };
        let residuals: Vec<f64> = (0..CLASSES).map(|class| of_op(Op::Read, class) + of_op(Op::Write, class)).collect();
        let count = CLASSES as f64;
        let left = count - if population.blocks.is_some() { 3.0 } else { 2.0 };
        let mean = residuals.iter().sum::<f64>() / count;
        let moment = |power: i32| residuals.iter().map(|residual| (residual - mean).powi(power)).sum::<f64>();
        let (second, fourth) = (moment(2), moment(4));
        // Of a normal distribution the ratio is a third of the number of classes; where few classes make up most of the error, less.
        let freedom = if fourth > 0.0 { 3.0 * second * second / fourth - 2.0 } else { left };
        let residual = (second / left * count * (1.0 - rate)).sqrt();
        let blocks = classes.blocks.iter().sum();
        let (hot, total) = (classes.total_hot(), classes.total());
        let hits = [Op::Read, Op::Write].map(|op| total.of(op).hits);
        Regression { rate, population, blocks, hot, hits, slopes, residual, freedom: freedom.clamp(3.0, left) }
    }

    /// Of this many reads and writes as many are hits as of those of the sample: for parts of a trace that have too few accesses for a
    /// regression of their own.
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

    /// The same for a cache of another size, with other hits of `classes` and, where accesses are hot, of LRU.
    pub fn at(&self, classes: &Classes, population: Population) -> Regression {
        Regression { population, hot: classes.total_hot(), hits: [0; 2], ..self.clone() }
    }

    /// Standard error of the hit ratio, if only the hits of the sample vary.
    pub fn standard_error(&self) -> f64 {
        let expected = self.rate * self.population.accesses.iter().sum::<u64>() as f64;
        if expected > 0.0 { self.residual / expected } else { 0.0 }
    }

    /// How many normally distributed values know as much of the error.
    pub fn freedom(&self) -> f64 {
        self.freedom
    }

    /// What `counted` in the sample stands for in the whole trace. Of the misses as many are admitted as in the sample.
    pub fn estimate(&self, counted: &Counters) -> Counters {
        Counters::of_ops([Op::Read, Op::Write].map(|op| self.estimate_op(op, counted.of(op))))
    }

    fn estimate_op(&self, op: Op, counted: &OpCounters) -> OpCounters {
        let whole = self.population.accesses[op as usize];
        let accesses = counted.accesses();
        if accesses == 0 || whole == 0 {
            // Nothing is known of them.
            return OpCounters { bypasses: whole, ..OpCounters::default() };
        }
        // Without a rate, as many accesses are expected as there are.
        let rate = if self.rate > 0.0 { self.rate } else { accesses as f64 / whole as f64 };
        let Slopes { of_accesses, of_blocks } = self.slopes[op as usize];
        let (hot, hot_of_whole) = (self.hot[op as usize], self.population.hot[op as usize]);
        let more_accesses = rate * (whole as f64 - hot_of_whole.accesses) - (accesses as f64 - hot.accesses);
        let more_blocks = self.population.blocks.map_or(0.0, |blocks| rate * blocks as f64 - self.blocks as f64);
        // A cache that hits less than the policy alone hits as much less of the hot accesses.
        let part = match self.hits[op as usize] {
            0 => 1.0,
            alone => (counted.hits as f64 / alone as f64).min(1.0),
        };
        let difference = counted.hits as f64 - part * hot.lru_hits;
        let hits =
            (difference + of_accesses * more_accesses + of_blocks * more_blocks) / rate + part * hot_of_whole.lru_hits;
        // A sample that has all accesses, or none but misses, is taken by its word.
        let hits = if counted.hits == 0 { 0 } else { hits.clamp(0.0, whole as f64).round() as u64 };
        with_hits(counted, hits, whole - hits)
    }
}

/// So many hits and misses, of which as many are admitted as of those that were `counted`.
pub(super) fn with_hits(counted: &OpCounters, hits: u64, misses: u64) -> OpCounters {
    let missed = counted.accesses() - counted.hits;
    if missed == 0 {
        return OpCounters { hits, bypasses: misses, ..OpCounters::default() };
    }
    let of_misses = |count: u64| (misses as f64 * count as f64 / missed as f64).round() as u64;
    let fills = of_misses(counted.fills).min(misses);
    let replacements = of_misses(counted.replacements).min(misses - fills);
    let rest = misses - fills - replacements;
    // What rounding leaves over bypasses nothing where nothing was bypassed.
    match (counted.bypasses, counted.replacements) {
        (0, 0) => OpCounters { hits, fills: fills + rest, replacements, bypasses: 0 },
        (0, _) => OpCounters { hits, fills, replacements: replacements + rest, bypasses: 0 },
        _ => OpCounters { hits, fills, replacements, bypasses: rest },
    }
}

/// What one access or one block more brings in hits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Slopes {
    of_accesses: f64,
    of_blocks: f64,
}

/// Where accesses and blocks tell the same but for so small a share of their variance, accesses alone are asked.
const COLLINEAR: f64 = 1e-6;

impl Slopes {
    /// The slopes by least squares: of accesses and of blocks if these are `known`, else of accesses alone, from 0 to 1.
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

/// An error of several causes, and the interval that it makes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Uncertainty {
    /// The standard error.
    pub standard_error: f64,
    /// How far the truth is off at most, in [`CONFIDENCE`] of all samples.
    pub margin: f64,
}

impl Uncertainty {
    /// Of independent causes: the standard error of each, and how many normally distributed values know as much of it (Satterthwaite,
    /// Biometrics Bulletin 2(6), 1946).
    pub fn of(causes: &[(f64, f64)]) -> Uncertainty {
        let variance: f64 = causes.iter().map(|(error, _)| error * error).sum();
        let spread: f64 = causes.iter().map(|(error, freedom)| error.powi(4) / freedom).sum();
        let freedom = if spread > 0.0 { variance * variance / spread } else { f64::INFINITY };
        let standard_error = variance.sqrt();
        Uncertainty { standard_error, margin: standard_error * student_quantile(freedom.max(3.0)) }
    }
}

/// The quantile of Student's distribution that leaves [`CONFIDENCE`] between itself and its opposite; of 3 degrees of freedom or more within
/// a hundredth (Abramowitz, Stegun: Handbook of mathematical functions, 26.7.5).
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
        for (number, class) in classes.counters.iter_mut().enumerate() {
            *class = Counters::of_ops([of(number), OpCounters::default()]);
        }
        classes
    }

    const NO_WRITES: fn(u64) -> Population = |reads| Population { accesses: [reads, 0], ..Population::default() };

    /// Ten misses in each class, and more hits in some: the whole trace, of 100 times as many accesses as are expected, lacks hits alone.
    #[test]
    fn where_popular_blocks_are_missing_only_hits_are_added() {
        let sample = classes(|number| op(10 * (number as u64 % 4), 10));
        let total = sample.total();
        assert_eq!((total.accesses(), total.hits()), (1600, 960));
        let regression = Regression::of(&sample, 0.01, NO_WRITES(200_000));
        assert_eq!((regression.slopes[0].of_accesses, regression.standard_error()), (1.0, 0.0));
        let whole = regression.estimate(&total);
        // 400 more accesses are expected in the sample: 1,360 hits of 2,000.
        assert_eq!((whole.hits(), whole.accesses(), whole.replacements()), (136_000, 200_000, 64_000));
    }

    /// As many hits as misses in each class, whatever its size.
    #[test]
    fn where_all_blocks_are_alike_the_ratio_stays() {
        let sample = classes(|number| op(5 + number as u64 % 3, 5 + number as u64 % 3));
        let regression = Regression::of(&sample, 0.1, NO_WRITES(9_000));
        assert!((regression.slopes[0].of_accesses - 0.5).abs() < 1e-12);
        let whole = regression.estimate(&sample.total());
        assert_eq!((whole.hits(), whole.replacements(), whole.bypasses()), (4500, 4500, 0));
    }

    /// 32 classes with 8 hits and 2 misses, and 32 with 6 and 4: by hand, a residual of 1 in each, a variance of 64 / 62 x 64, of which a
    /// share of 0.9 is not in the sample, over 640 expected accesses.
    #[test]
    fn what_the_regression_leaves_over_is_the_error() {
        let sample = classes(|number| if number % 2 == 0 { op(8, 2) } else { op(6, 4) });
        let regression = Regression::of(&sample, 0.1, NO_WRITES(6400));
        let expected = (64.0_f64 / 62.0 * 64.0 * 0.9).sqrt() / 640.0;
        assert!((regression.standard_error() - expected).abs() < 1e-12);
        assert_eq!(regression.estimate(&sample.total()).hits(), 4480);
        let whole = Regression::of(&sample, 1.0, NO_WRITES(640));
        assert_eq!((whole.standard_error(), whole.estimate(&sample.total())), (0.0, sample.total()));
    }

    #[test]
    fn reads_and_writes_add_up_and_what_was_not_sampled_is_not_invented() {
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

    /// Each block misses once and never again: hits are accesses without blocks, whatever the sample has too many or too few of.
    #[test]
    fn where_each_block_misses_once_the_blocks_tell_all() {
        let mut sample = classes(|number| op(20 + 7 * (number as u64 % 5), 3 + number as u64 % 3));
        for (number, blocks) in sample.blocks.iter_mut().enumerate() {
            *blocks = 3 + number as u64 % 3;
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
