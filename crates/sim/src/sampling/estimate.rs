//! What a sample says of the whole trace, and how far it may be off.
//!
//! The sample's accesses fall into classes by a hash of where they lie, each a smaller sample by itself. Over the classes the hits h
//! depend on the accesses n: where popular blocks make some classes larger, their accesses are nearly all hits, elsewhere the hits grow
//! in proportion. How many accesses of the whole trace there are is known, and so is how many the sample should have, E\[n\]: the hits
//! are moved by as much as the regression of h on n says, `(H + beta (E[n] - n)) / E[n]`. A beta that is the hit ratio leaves it as it
//! is; a beta of 1 is SHARDS-adj.
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
pub struct Classes(pub Box<[Counters; CLASSES]>);

impl Default for Classes {
    fn default() -> Classes {
        Classes(Box::new([Counters::default(); CLASSES]))
    }
}

impl Classes {
    /// All classes together.
    pub fn total(&self) -> Counters {
        let mut total = Counters::default();
        self.0.iter().for_each(|&class| total += class);
        total
    }
}

/// The accesses that are counted, reads and writes, by [`Op`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Population {
    /// Of the whole trace.
    pub accesses: [u64; 2],
}

/// By how much hits grow with accesses, and how far that is off.
#[derive(Clone, Debug, PartialEq)]
pub struct Regression {
    /// The share of the blocks that the sample has.
    rate: f64,
    population: Population,
    /// By op.
    betas: [f64; 2],
    /// Standard deviation of the number of hits of the sample around what the regression says.
    residual: f64,
    /// How many normally distributed values know as much of it.
    freedom: f64,
}

impl Regression {
    /// The regression of hits on accesses over the classes of a sample that has a share `rate` of the blocks.
    pub fn of(classes: &Classes, rate: f64, population: Population) -> Regression {
        let of_op =
            |op: Op| classes.0.iter().map(move |class| (class.of(op).accesses() as f64, class.of(op).hits as f64));
        let betas = [Op::Read, Op::Write].map(|op| slope(of_op(op)));
        let residual = |class: &Counters| {
            let of_op = |op: Op| class.of(op).hits as f64 - betas[op as usize] * class.of(op).accesses() as f64;
            of_op(Op::Read) + of_op(Op::Write)
        };
        let residuals: Vec<f64> = classes.0.iter().map(residual).collect();
        let count = CLASSES as f64;
        let mean = residuals.iter().sum::<f64>() / count;
        let moment = |power: i32| residuals.iter().map(|residual| (residual - mean).powi(power)).sum::<f64>();
        let (second, fourth) = (moment(2), moment(4));
        // Of a normal distribution the ratio is a third of the number of classes; where few classes make up most of the error, less.
        let freedom = if fourth > 0.0 { 3.0 * second * second / fourth - 2.0 } else { count - 2.0 };
        let variance = second / (count - 2.0) * count * (1.0 - rate);
        Regression { rate, population, betas, residual: variance.sqrt(), freedom: freedom.clamp(3.0, count - 2.0) }
    }

    /// Of so many reads and writes as many are hits as of those of the sample: for parts of a trace that have too few accesses for a
    /// regression of their own.
    pub fn in_proportion(accesses: [u64; 2]) -> Regression {
        let population = Population { accesses };
        Regression { rate: 0.0, population, betas: [0.0; 2], residual: 0.0, freedom: f64::INFINITY }
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
        let expected = if self.rate > 0.0 { self.rate * whole as f64 } else { accesses as f64 };
        let hits = (counted.hits as f64 + self.betas[op as usize] * (expected - accesses as f64)) / expected;
        // A sample that has all accesses, or none but misses, is taken by its word.
        let hits = if counted.hits == 0 { 0 } else { (hits.clamp(0.0, 1.0) * whole as f64).round() as u64 };
        let (missed, misses) = (accesses - counted.hits, whole - hits);
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
}

/// The slope of the regression of the second on the first, from 0 to 1; their ratio where the first are all the same.
fn slope(points: impl Iterator<Item = (f64, f64)> + Clone) -> f64 {
    let (mut n, mut x, mut y) = (0.0, 0.0, 0.0);
    for (accesses, hits) in points.clone() {
        n += 1.0;
        x += accesses;
        y += hits;
    }
    let (mut covariance, mut variance) = (0.0, 0.0);
    for (accesses, hits) in points {
        covariance += (accesses - x / n) * (hits - y / n);
        variance += (accesses - x / n).powi(2);
    }
    let slope = if variance > 0.0 { covariance / variance } else { y / x };
    if slope.is_finite() { slope.clamp(0.0, 1.0) } else { 0.0 }
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
        let mut classes = Classes::default();
        for (number, class) in classes.0.iter_mut().enumerate() {
            *class = Counters::of_ops([of(number), OpCounters::default()]);
        }
        classes
    }

    const NO_WRITES: fn(u64) -> Population = |reads| Population { accesses: [reads, 0] };

    /// Ten misses in each class, and more hits in some: the whole trace, of 100 times as many accesses as are expected, lacks hits alone.
    #[test]
    fn where_popular_blocks_are_missing_only_hits_are_added() {
        let sample = classes(|number| op(10 * (number as u64 % 4), 10));
        let total = sample.total();
        assert_eq!((total.accesses(), total.hits()), (1600, 960));
        let regression = Regression::of(&sample, 0.01, NO_WRITES(200_000));
        assert_eq!((regression.betas[0], regression.standard_error()), (1.0, 0.0));
        let whole = regression.estimate(&total);
        // 400 more accesses are expected in the sample: 1,360 hits of 2,000.
        assert_eq!((whole.hits(), whole.accesses(), whole.replacements()), (136_000, 200_000, 64_000));
    }

    /// As many hits as misses in each class, whatever its size.
    #[test]
    fn where_all_blocks_are_alike_the_ratio_stays() {
        let sample = classes(|number| op(5 + number as u64 % 3, 5 + number as u64 % 3));
        let regression = Regression::of(&sample, 0.1, NO_WRITES(9_000));
        assert!((regression.betas[0] - 0.5).abs() < 1e-12);
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
        let regression = Regression::of(&sample, 0.01, Population { accesses: [60_000, 1000] });
        let whole = regression.estimate(&sample.total());
        assert_eq!((whole.of(Op::Write).accesses(), whole.of(Op::Write).hits), (1000, 0));
        sample.0[3] = Counters::of_ops([OpCounters { hits: 9, fills: 3, replacements: 1, bypasses: 5 }; 2]);
        for reads in [1, 10, 1000, 123_457] {
            let regression = Regression::of(&sample, 0.01, Population { accesses: [reads, 77] });
            let whole = regression.estimate(&sample.total());
            assert_eq!((whole.of(Op::Read).accesses(), whole.of(Op::Write).accesses()), (reads, 77));
        }
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
