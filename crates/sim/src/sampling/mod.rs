//! Runs over samples of traces: a cache that is as much smaller as the sample, and what it says of the whole trace.
//!
//! Each job runs three times, in a cache of the size that the sample asks for, and in a smaller and a larger one by as much as that size may
//! be off: the sampled blocks that fit stand for more or fewer blocks of the whole trace, by chance. Their difference is the one part of the
//! error, what the [`Regression`] over classes leaves over the other.

mod accuracy;
mod estimate;
mod figures;

use flashwise_core::access::{Access, NEVER, Op};
use flashwise_core::counters::Counters;
use flashwise_core::index::Dense;
use flashwise_core::policy::{Policy, Spec, Visitor};
use flashwise_trace::Trace;
use flashwise_trace::sampling::Sample;

pub use self::accuracy::{accurate, margin, parse_accuracy, tells_accuracy};
pub use self::estimate::{CONFIDENCE, Classes, Population, Regression, Uncertainty};
pub use self::figures::{GROUPS_MIN, SampleFigures};
use crate::counting::Counting;

/// A policy over a sample, and what it says of the whole trace.
#[derive(Clone, Debug)]
pub struct Sampled {
    /// Estimates of the counters after the warm-up.
    pub counters: Counters,
    /// Estimates of those of each epoch, in proportion.
    pub epochs: Vec<Counters>,
    /// What the estimates come from.
    pub regression: Regression,
    /// How good they are.
    pub figures: SampleFigures,
}

/// Runs `policy` over `trace`, a sample, as if in a cache of `capacity_blocks` over the whole trace. `next_uses` are those of the sample, where
/// the policy knows the future.
///
/// # Panics
/// If the trace is no sample.
pub fn run(
    trace: &Trace,
    policy: &Spec,
    capacity_blocks: usize,
    counting: Counting,
    next_uses: Option<&[u32]>,
) -> Sampled {
    let sample = trace.sample().expect("the trace is a sample");
    let blocks = sample.capacity_blocks(capacity_blocks);
    let size_error = sample.size_error(blocks);
    let cuts = Cuts::new(sample, counting);
    let replay = |blocks: usize, epochs: bool| {
        let replay = Replay { trace, sample, cuts: &cuts, epochs, next_uses };
        policy.build(Dense::new(trace.unique_blocks()), blocks, replay)
    };
    let (classes, epochs) = replay(blocks, true);
    let rate = sample.sampling().rate();
    let regression = Regression::of(&classes, rate, cuts.population);
    let hit_ratio = |blocks: usize| regression.estimate(&replay(blocks, false).0.total()).hit_ratio();
    let of_size = match size_error > 0.0 {
        true => slope_of_size(blocks, size_error, hit_ratio),
        false => 0.0,
    };
    let counters = regression.estimate(&classes.total());
    let figures =
        SampleFigures::new(sample, trace.block_size_bytes(), blocks, &regression, of_size, counters.hit_ratio());
    Sampled { counters, epochs, regression, figures }
}

/// Half of what the hit ratio changes by from a size that is smaller by `error`, a share of it, to one that is larger by as much.
fn slope_of_size(blocks: usize, error: f64, hit_ratio: impl Fn(usize) -> f64) -> f64 {
    let by = (blocks as f64 * error).max(0.5);
    let smaller = ((blocks as f64 - by).round() as usize).max(1);
    let larger = ((blocks as f64 + by).round() as usize).max(blocks + 1);
    // The sizes are whole numbers: the difference is that over as many blocks as they are really apart.
    (hit_ratio(larger) - hit_ratio(smaller)).abs() * by / (larger - smaller) as f64
}

/// Where warm-up and epochs end, in the whole trace and in the sample.
struct Cuts {
    /// Accesses of the sample that are not counted.
    warmup: u64,
    /// Counted accesses of the whole trace.
    population: Population,
    /// Ends of the epochs: in the sample, and reads and writes of the whole trace up to there.
    epochs: Vec<(u64, [u64; 2])>,
}

impl Cuts {
    fn new(sample: &Sample, counting: Counting) -> Cuts {
        let len = sample.accesses();
        let before = |accesses: u64| {
            let reads = sample.reads_before(accesses);
            [reads, accesses - reads]
        };
        let warmup = counting.warmup.accesses(len as usize).min(len);
        let ends = counting.epoch.into_iter().flat_map(|epoch| (1..=len.div_ceil(epoch)).map(move |end| end * epoch));
        let ends = ends.map(|end| end.min(len));
        Cuts {
            warmup: sample.sampled_before(warmup),
            population: Population {
                accesses: difference(before(len), before(warmup)),
                blocks: sample.unique_blocks(),
            },
            epochs: ends.map(|end| (sample.sampled_before(end), before(end))).collect(),
        }
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
}

impl Visitor<u32> for Replay<'_> {
    type Output = (Classes, Vec<Counters>);

    fn visit<P: Policy<Key = u32>>(self, mut policy: P) -> Self::Output {
        self.next_uses.into_iter().for_each(|next_uses| policy.foresee(next_uses));
        let (mut classes, mut epochs) = (Classes::new(self.sample.classes()), Epochs::new(self.cuts, self.epochs));
        let of_block = self.sample.classes();
        let mut position = 0;
        for columns in self.trace.batches() {
            let (ops, lengths) = (&columns.op[..], &columns.request_blocks[..]);
            for (at, &block) in columns.block.iter().enumerate() {
                epochs.end_before(position);
                let op = if ops[at] == 0 { Op::Read } else { Op::Write };
                let next_use = self.next_uses.map_or(NEVER, |next_uses| next_uses[position as usize]);
                let access = Access { block: block as u32, op, request_blocks: lengths[at], next_use };
                let outcome = policy.access(access);
                if position >= self.cuts.warmup {
                    classes.counters[usize::from(of_block[block as usize])].record(op, &outcome);
                }
                epochs.counters.record(op, &outcome);
                position += 1;
            }
        }
        (classes, epochs.end())
    }
}

/// Counters of each epoch of the whole trace.
struct Epochs<'a> {
    ends: &'a [(u64, [u64; 2])],
    counters: Counters,
    /// Reads and writes of the whole trace before the epoch.
    before: [u64; 2],
    done: Vec<Counters>,
}

impl Epochs<'_> {
    fn new(cuts: &Cuts, wanted: bool) -> Epochs<'_> {
        let ends = if wanted { &cuts.epochs[..] } else { &[] };
        Epochs { ends, counters: Counters::default(), before: [0, 0], done: Vec::new() }
    }

    /// The access at `position` of the sample follows.
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
        self.done.push(Regression::in_proportion(accesses).estimate(&std::mem::take(&mut self.counters)));
        (self.ends, self.before) = (rest, *whole);
    }

    fn end(mut self) -> Vec<Counters> {
        while !self.ends.is_empty() {
            self.end_one();
        }
        self.done
    }
}
