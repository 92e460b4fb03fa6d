//! Runs over samples of traces: a cache scaled down with the sample, and estimates for the full trace.
//!
//! Each job runs three times: in a cache of the sampled size, and in a smaller and a larger one. They differ by the
//! possible error of that size, because the cached sample represents a random number of blocks of the whole trace.
//! Cached neighbours show how large that error is. The difference of the two caches is one part of the error; the
//! residual of the [`Regression`] over classes is the other. If the trace has hot blocks, LRU runs too.

mod accuracy;
mod epochs;
mod estimate;
mod figures;

use flashwise_core::access::{Access, NEVER, Op};
use flashwise_core::counters::Counters;
use flashwise_core::policy::{AnyPolicy, Outcome, Policy, Spec};
use flashwise_trace::Trace;
use flashwise_trace::progress::Progress;
use flashwise_trace::sampling::Sample;

pub use self::accuracy::{accurate, margin, parse_accuracy, takes_whole_trace};
use self::epochs::agree;
pub use self::estimate::{CONFIDENCE, Classes, Hot, Population, Regression, Uncertainty};
pub use self::figures::{GROUPS_MIN, SampleFigures};
use crate::counting::{Counting, foresee};
use crate::pace::may_end;

/// A policy over a sample, with estimates for the whole trace.
#[derive(Clone, Debug)]
pub struct Sampled {
    /// Estimates of the counters after the warm-up.
    pub counters: Counters,
    /// Estimates of the counters of each epoch; their hits add up to those of `counters`.
    pub epochs: Vec<Counters>,
    /// The regression behind the estimates.
    pub regression: Regression,
    /// Accuracy of the estimates.
    pub figures: SampleFigures,
}

/// Runs `policy` over `trace`, a sample, as if in a cache of `capacity_blocks` over the whole trace. `next_uses` are
/// those of the sample, for an offline policy. The caller can end it by `progress`, which counts no accesses.
///
/// # Panics
/// The trace is not a sample.
pub fn run(
    trace: &Trace,
    policy: &Spec,
    capacity_blocks: usize,
    counting: Counting,
    next_uses: Option<&[u32]>,
    progress: &dyn Progress,
) -> Sampled {
    let sample = trace.sample().expect("the trace is a sample");
    let blocks = sample.capacity_blocks(capacity_blocks);
    let cuts = Cuts::new(sample, counting);
    let lru = Spec::parse("lru").expect("lru is a policy");
    let replay = |blocks: usize, epochs: bool| {
        let run = |policy: &Spec, epochs: bool| {
            let replay = Replay { trace, sample, cuts: &cuts, epochs, next_uses, progress };
            replay.run(policy.boxed(trace.unique_blocks(), blocks))
        };
        let (mut classes, epochs) = run(policy, epochs);
        if sample.has_hot_blocks() && policy.to_string() != "lru" {
            classes.hot = run(&lru, false).0.hot;
        }
        (classes, epochs)
    };
    let (classes, mut epochs) = replay(blocks, true);
    let rate = sample.sampling().rate();
    let most = sample.size_error(blocks);
    let size_error = classes.size_error(rate).map_or(most, |error| error.min(most));
    let regression = Regression::of(&classes, rate, cuts.population(sample, blocks));
    let hit_ratio = |blocks: usize| {
        let classes = replay(blocks, false).0;
        regression.at(&classes, cuts.population(sample, blocks)).estimate(&classes.total()).hit_ratio()
    };
    let of_size = match size_error > 0.0 {
        true => slope_of_size(blocks, size_error, hit_ratio),
        false => 0.0,
    };
    let counters = regression.estimate(&classes.total());
    if !cuts.is_whole {
        agree(&mut epochs, &counters);
    }
    let figures =
        SampleFigures::new(sample, trace.block_size_bytes(), blocks, &regression, of_size, counters.hit_ratio());
    Sampled { counters, epochs, regression, figures: figures.of_policy(policy.info().name) }
}

/// Moments at which the cached blocks of neighbours are compared.
const SPREADS: u64 = 32;

/// Returns half the difference of the hit ratios of caches that are smaller and larger by the share `error`.
fn slope_of_size(blocks: usize, error: f64, hit_ratio: impl Fn(usize) -> f64) -> f64 {
    let by = (blocks as f64 * error).max(0.5);
    let smaller = ((blocks as f64 - by).round() as usize).max(1);
    let larger = ((blocks as f64 + by).round() as usize).max(blocks + 1);
    // Sizes are whole numbers, so scale by their actual difference.
    (hit_ratio(larger) - hit_ratio(smaller)).abs() * by / (larger - smaller) as f64
}

/// Ends of warm-up and epochs, in the whole trace and in the sample.
struct Cuts {
    /// Accesses of the sample that are not counted.
    warmup: u64,
    /// Reads and writes of the whole trace that are not counted.
    before: [u64; 2],
    /// Counted accesses of the whole trace, by [`Op`].
    accesses: [u64; 2],
    /// Counted accesses to hot blocks.
    hot: [u64; 2],
    /// Ends of the epochs: the position in the sample, and the reads and writes of the whole trace up to there.
    epochs: Vec<(u64, [u64; 2])>,
    /// True if the sample has all accesses, so nothing is estimated.
    is_whole: bool,
}

impl Cuts {
    fn new(sample: &Sample, counting: Counting) -> Cuts {
        let len = sample.accesses();
        let before = |accesses: u64| {
            let reads = sample.reads_before(accesses);
            [reads, accesses - reads]
        };
        let warmup = counting.warmup.accesses(len as usize).min(len);
        let ends =
            |epoch: u64| (1..=(len - warmup).div_ceil(epoch)).map(move |number| warmup.saturating_add(number * epoch));
        let ends: Vec<u64> = counting.epoch.into_iter().flat_map(ends).map(|end| end.min(len)).collect();
        let is_whole = sample.sampled_before(len) == len;
        let sampled_before = |end: u64| if is_whole { end } else { sample.sampled_before(end) };
        Cuts {
            warmup: sampled_before(warmup),
            before: before(warmup),
            accesses: difference(before(len), before(warmup)),
            hot: difference(sample.hot_before(len), sample.hot_before(warmup)),
            epochs: ends.into_iter().map(|end| (sampled_before(end), before(end))).collect(),
            is_whole,
        }
    }

    /// Returns the known figures of the whole trace, for a cache of this many sampled blocks.
    fn population(&self, sample: &Sample, blocks: usize) -> Population {
        let hot = [Op::Read, Op::Write].map(|op| {
            let accesses = self.hot[op as usize] as f64;
            Hot { accesses, lru_hits: accesses * sample.hot_hit_ratio(op, blocks, self.warmup) }
        });
        Population { accesses: self.accesses, blocks: sample.unique_blocks(), hot }
    }
}

fn difference(to: [u64; 2], from: [u64; 2]) -> [u64; 2] {
    [to[0] - from[0], to[1] - from[1]]
}

struct Replay<'a> {
    trace: &'a Trace,
    sample: &'a Sample,
    cuts: &'a Cuts,
    epochs: bool,
    next_uses: Option<&'a [u32]>,
    progress: &'a dyn Progress,
}

impl Replay<'_> {
    fn run(self, mut policy: AnyPolicy<u32>) -> (Classes, Vec<Counters>) {
        foresee(&mut policy, self.next_uses, self.cuts.warmup);
        let (mut classes, mut epochs) = (Classes::new(self.sample.classes()), Epochs::new(self.cuts, self.epochs));
        let of_block = self.sample.classes();
        let mut position = 0;
        // Compare in the second half, when the cache is more likely full.
        let len = self.trace.len() as u64;
        let (mut next_spread, step) = (len / 2, (len / (2 * SPREADS)).max(1));
        for columns in self.trace.batches() {
            let ops = &columns.op[..];
            for (at, &block) in columns.block.iter().enumerate() {
                may_end(position as usize, self.progress);
                epochs.end_before(position);
                let op = if ops[at] == 0 { Op::Read } else { Op::Write };
                let next_use = self.next_uses.map_or(NEVER, |next_uses| next_uses[position as usize]);
                // No policy of the table uses the length of requests.
                let access = Access { block: block as u32, op, request_blocks: 1, next_use };
                let outcome = policy.access(access);
                if let Outcome::Admit { evicted } = outcome {
                    classes.note_cached(of_block[block as usize], true);
                    evicted.into_iter().for_each(|block| classes.note_cached(of_block[block as usize], false));
                }
                if position == next_spread {
                    classes.note_spread();
                    next_spread += step;
                }
                if position >= self.cuts.warmup {
                    let class = usize::from(of_block[block as usize]);
                    classes.counters[class].record(op, &outcome);
                    if self.sample.is_hot(position) {
                        let hot = &mut classes.hot[class][op as usize];
                        hot.accesses += 1.0;
                        hot.lru_hits += if matches!(outcome, Outcome::Hit) { 1.0 } else { 0.0 };
                    }
                    epochs.counters.record(op, &outcome);
                }
                position += 1;
            }
        }
        (classes, epochs.end())
    }
}

/// Counters of each epoch of the whole trace after the warm-up.
struct Epochs<'a> {
    ends: &'a [(u64, [u64; 2])],
    counters: Counters,
    /// Reads and writes of the whole trace before the epoch.
    before: [u64; 2],
    is_whole: bool,
    done: Vec<Counters>,
}

impl Epochs<'_> {
    fn new(cuts: &Cuts, wanted: bool) -> Epochs<'_> {
        let ends = if wanted { &cuts.epochs[..] } else { &[] };
        let (counters, is_whole) = (Counters::default(), cuts.is_whole);
        Epochs { ends, counters, before: cuts.before, is_whole, done: Vec::new() }
    }

    /// Ends epochs before the access at `position` of the sample.
    #[inline]
    fn end_before(&mut self, position: u64) {
        while let [(end, _), _, ..] = self.ends
            && *end <= position
        {
            self.end_one();
        }
    }

    fn end_one(&mut self) {
        let Some(((_, whole), rest)) = self.ends.split_first() else { return };
        let accesses = difference(*whole, self.before);
        let counted = std::mem::take(&mut self.counters);
        let estimate = |counted: &Counters| Regression::in_proportion(accesses).estimate(counted);
        self.done.push(if self.is_whole { counted } else { estimate(&counted) });
        (self.ends, self.before) = (rest, *whole);
    }

    fn end(mut self) -> Vec<Counters> {
        while !self.ends.is_empty() {
            self.end_one();
        }
        self.done
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use flashwise_trace::normalised::{Settings, open};
    use flashwise_trace::progress::Silent;
    use flashwise_trace::sampling::Sampling;
    use flashwise_trace::tools::sample;

    use super::*;
    use crate::case::Case;
    use crate::counting::Warmup;
    use crate::simulate::simulate;

    /// A quarter of the accesses goes to 20 blocks, each in a sample of 1 % with a chance of one in five. The others go
    /// to 40,000. One block number a line.
    fn few_blocks_are_hot() -> String {
        let (mut text, mut random) = (String::new(), 1_u64);
        for number in 0..400_000_u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let block =
                if number % 4 == 0 { 1000 * (random >> 33) % 20_000 } else { 100_000 + (random >> 33) % 40_000 };
            writeln!(text, "{block}").unwrap();
        }
        text
    }

    #[test]
    fn estimates_are_independent_of_hot_blocks_in_the_sample() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.txt");
        std::fs::write(&path, few_blocks_are_hot()).unwrap();
        let settings = Settings { format: Some("blocks".parse().unwrap()), ..Settings::default() };
        let whole = open(&path, &settings, &Silent).unwrap();
        let cases = |capacity_blocks: usize| {
            let case = |policy: &str| Case::of(Spec::parse(policy).unwrap(), "", capacity_blocks);
            ["lru", "larc", "s3-fifo", "fifo"].map(case).to_vec()
        };
        let run = |trace: &Trace, blocks: usize, warmup: u64| {
            let counting = Counting { warmup: Warmup::Accesses(warmup), epoch: None };
            simulate(std::slice::from_ref(trace), cases(blocks), counting, &Silent).unwrap()
        };
        let samples: Vec<_> = (0..20)
            .map(|seed| {
                let sampling = Sampling::new(0.01, seed).unwrap();
                let mapped = sample::of(&whole, sampling, &Silent).unwrap();
                (sampling, [mapped, sample::open(&path, &settings, sampling, &Silent).unwrap()])
            })
            .collect();
        let has_hot = |sampling: &Sampling| {
            let filter = sampling.filter(4096);
            (0..20).any(|block| filter.keeps(1000 * block))
        };
        let with_hot = samples.iter().filter(|(sampling, _)| has_hot(sampling)).count();
        assert!(with_hot > 0 && with_hot < 10, "{with_hot} of 20 samples have hot blocks");
        for (blocks, warmup) in [(4000, 0), (20_000, 0), (4000, 200_000)] {
            let exact = run(&whole, blocks, warmup);
            let (mut found, mut held) = (0, 0);
            for (seed, (_, traces)) in samples.iter().enumerate() {
                for trace in traces {
                    assert!(trace.sample().unwrap().has_hot_blocks());
                    for (sampled, exact) in run(trace, blocks, warmup).iter().zip(&exact) {
                        let truth = exact.counts().counters.hit_ratio();
                        let error = sampled.counts().counters.hit_ratio() - truth;
                        assert!(
                            error.abs() < 0.07,
                            "{}, {blocks}, seed {seed}: {error} of {truth}",
                            exact.case.algorithm
                        );
                        let sample = sampled.sample.as_ref().unwrap();
                        found += 1;
                        held += u64::from(sample.hit_ratio_low <= truth && truth <= sample.hit_ratio_high);
                    }
                }
            }
            assert!(10 * held >= 9 * found, "{held} of {found} intervals are true");
        }
    }

    #[test]
    fn epochs_of_a_sample_add_up_to_its_row() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.txt");
        std::fs::write(&path, few_blocks_are_hot()).unwrap();
        let settings = Settings { format: Some("blocks".parse().unwrap()), ..Settings::default() };
        let whole = open(&path, &settings, &Silent).unwrap();
        let lru = Spec::parse("lru").unwrap();
        let run = |share: f64, seed: u64, warmup: u64| {
            let trace = sample::of(&whole, Sampling::new(share, seed).unwrap(), &Silent).unwrap();
            let counting = Counting { warmup: Warmup::Accesses(warmup), epoch: Some(30_000) };
            super::run(&trace, &lru, 4000, counting, None, &Silent)
        };
        for seed in 0..6 {
            let sampled = run(0.02, seed, 0);
            let hits: u64 = sampled.epochs.iter().map(Counters::hits).sum();
            assert!(hits.abs_diff(sampled.counters.hits()) < 20, "{hits}, {:?}", sampled.counters);
            // 265,000 of 400,000 accesses are counted: eight epochs and most of a ninth.
            let sampled = run(0.02, seed, 135_000);
            let hits: u64 = sampled.epochs.iter().map(Counters::hits).sum();
            assert!(hits.abs_diff(sampled.counters.hits()) < 20, "{hits}, {:?}", sampled.counters);
            let accesses: Vec<u64> = sampled.epochs.iter().map(Counters::accesses).collect();
            assert_eq!((accesses.len(), accesses[0], accesses[8]), (9, 30_000, 25_000));
        }
        let case = Case::of(lru.clone(), "", 4000);
        let all = sample::of(&whole, Sampling::new(1.0, 3).unwrap(), &Silent).unwrap();
        for warmup in [0, 135_500] {
            let counting = Counting { warmup: Warmup::Accesses(warmup), epoch: Some(1000) };
            let exact =
                simulate(std::slice::from_ref(&whole), vec![case.clone()], counting, &Silent).unwrap().remove(0);
            let epochs: Vec<Counters> = exact.ran.epochs.iter().map(|epoch| epoch.counts.counters).collect();
            assert_eq!(epochs.iter().map(Counters::hits).sum::<u64>(), exact.counts().hits());
            assert_eq!(super::run(&all, &lru, 4000, counting, None, &Silent).epochs, epochs);
        }
    }
}
