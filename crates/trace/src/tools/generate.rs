//! Generates traces whose blocks follow a pattern; the same seed gives the same trace.
//!
//! Blocks, ops, lengths and arrivals are drawn from separate streams, so that traces that differ in one of them agree
//! in the others.

use std::cell::Cell;
use std::ops::RangeInclusive;
use std::path::Path;

use flashwise_core::access::Op;
use flashwise_core::options::{Kind, OptionError, Options, Parameter, named};
use rand::RngExt;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_distr::{Distribution, Exp1, Zipf};
use rand_xoshiro::Xoshiro256PlusPlus;

pub use crate::error::GenerateError;
use crate::error::TraceError;
use crate::normalised::Normaliser;
use crate::normalised::numbering::BLOCKS_MAX;
use crate::output::{output_name, write_whole};
use crate::progress::Progress;
use crate::request::{ONLY_VOLUME, Request};
use crate::tools::export::CsvWriter;
use crate::tools::like::Week;

/// The number of requests between two reports of progress.
const PROGRESS_REQUESTS: u64 = 1 << 14;

/// The length of a generated trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// This number of requests.
    Requests(u64),
    /// This number of block accesses; the last request is shortened to fit.
    Accesses(u64),
    /// Until the pattern ends.
    WholePattern,
}

/// The distribution of arrival times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// Independent: the intervals are exponentially distributed.
    Poisson,
    /// At equal intervals.
    Constant,
}

/// The parameters of a generated trace.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The pattern of block addresses.
    pub pattern: PatternSpec,
    /// The number of blocks in the address range.
    pub blocks: u64,
    /// The end of the trace.
    pub length: Length,
    /// Reads per request, 0 to 1.
    pub read_share: f64,
    /// The range of blocks per request, all equally likely.
    pub request_blocks: RangeInclusive<u64>,
    /// The mean number of requests per second.
    pub rate: f64,
    /// The distribution of arrivals.
    pub arrivals: Arrivals,
    /// The seed of all random numbers.
    pub seed: u64,
    /// The length of a block, in bytes.
    pub block_size_bytes: u64,
}

/// A pattern: a row of the table.
#[derive(Debug)]
pub struct Pattern {
    /// The name on the command line.
    pub name: &'static str,
    /// A short title.
    pub title: &'static str,
    /// The options: `--pattern name:key=value`.
    pub parameters: &'static [Parameter],
    ends: bool,
    build: fn(&Options, u64, &mut Xoshiro256PlusPlus) -> Ranges,
}

/// Returns the first block and the number of blocks of the next request, given the wanted number. Returns `None` at the
/// end of the pattern.
type Ranges = Box<dyn FnMut(&mut Xoshiro256PlusPlus, u64) -> Option<(u64, u64)>>;

const SKEW: Parameter = Parameter::of("skew", Kind::Number(0.0, 10.0), "0.9")
    .means("exponent: the r-th most popular block is accessed in proportion to 1 / r^skew; 0 makes all equal");
const PHASE_REQUESTS: Parameter = Parameter::of("requests", Kind::Count(1, u64::MAX), "100000")
    .means("requests of a phase; the default is the length of the epochs in LARC's Figure 8");

/// All patterns, in the order in which they are listed.
pub static PATTERNS: &[Pattern] = &[
    Pattern {
        name: "zipf",
        title: "a few blocks are popular, scattered over the address range",
        parameters: &[SKEW],
        ends: false,
        build: |options, blocks, random| zipf(options.number("skew"), blocks, None, random),
    },
    Pattern {
        name: "phases",
        title: "zipf whose popular blocks change at the end of each phase",
        parameters: &[SKEW, PHASE_REQUESTS],
        ends: false,
        build: |options, blocks, random| zipf(options.number("skew"), blocks, Some(options.count("requests")), random),
    },
    Pattern {
        name: "loop",
        title: "all blocks in order, again and again",
        parameters: &[],
        ends: false,
        build: |_, blocks, _| in_order(blocks, true),
    },
    Pattern {
        name: "scan",
        title: "all blocks in order, once",
        parameters: &[],
        ends: true,
        build: |_, blocks, _| in_order(blocks, false),
    },
];

/// Popularity ranks follow Zipf's law and are assigned to the blocks by a random permutation. A new phase rotates the
/// ranks by the golden section of the range, so that the popular blocks of consecutive phases are far apart.
fn zipf(skew: f64, blocks: u64, phase_requests: Option<u64>, random: &mut Xoshiro256PlusPlus) -> Ranges {
    const GOLDEN_SECTION: f64 = 0.618_033_988_749_894_9;
    let mut block_of: Vec<u32> = (0..blocks as u32).collect();
    block_of.shuffle(random);
    let ranks = Zipf::new(blocks as f64, skew).expect("at least one block and a skew of at least 0");
    let step = ((blocks as f64 * GOLDEN_SECTION) as u64).max(1);
    let mut requests = 0;
    Box::new(move |random, wanted| {
        let rank = (ranks.sample(random) as u64).clamp(1, blocks) - 1;
        let phase = phase_requests.map_or(0, |phase_requests| requests / phase_requests);
        requests += 1;
        let moved = u128::from(phase) * u128::from(step) % u128::from(blocks);
        let block = u64::from(block_of[((rank + moved as u64) % blocks) as usize]);
        // At the end of the range a request begins before its popular block, to keep its length.
        Some((block.min(blocks - wanted), wanted))
    })
}

/// The last request of a round is shortened to fit.
fn in_order(blocks: u64, again: bool) -> Ranges {
    let mut next = 0;
    Box::new(move |_, wanted| {
        if next == blocks {
            if !again {
                return None;
            }
            next = 0;
        }
        let (first, len) = (next, wanted.min(blocks - next));
        next += len;
        Some((first, len))
    })
}

/// A pattern and its options as the user wrote them: `zipf`, `phases:skew=1.1,requests=5000`.
#[derive(Clone, Debug)]
pub struct PatternSpec {
    pattern: &'static Pattern,
    options: Options,
}

impl std::str::FromStr for PatternSpec {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<PatternSpec, OptionError> {
        let (pattern, options) = named("pattern", text, PATTERNS.iter(), |pattern| pattern.name)?;
        Ok(PatternSpec { pattern, options: Options::parse(pattern.name, pattern.parameters, options)? })
    }
}

/// Parses a range of request lengths in blocks: `1`, `1..16`, both ends included.
pub fn parse_request_blocks(text: &str) -> Result<RangeInclusive<u64>, GenerateError> {
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    let range = first.parse::<u64>().ok().zip(last.parse::<u64>().ok());
    let range = range.filter(|&(first, last)| first >= 1 && first <= last);
    range.map(|(first, last)| first..=last).ok_or_else(|| GenerateError::Range { found: text.to_owned() })
}

/// Parses a rate: `1000/s`, `1000`.
pub fn parse_rate(text: &str) -> Result<f64, GenerateError> {
    let rate = text.strip_suffix("/s").unwrap_or(text).parse().ok();
    let rate = rate.filter(|rate: &f64| rate.is_normal() && *rate > 0.0);
    rate.ok_or_else(|| GenerateError::Rate { found: text.to_owned() })
}

/// An iterator over the requests of a workload.
pub struct Generator {
    workload: Workload,
    ranges: Ranges,
    blocks_random: Xoshiro256PlusPlus,
    ops_random: Xoshiro256PlusPlus,
    lengths_random: Xoshiro256PlusPlus,
    arrivals_random: Xoshiro256PlusPlus,
    requests: u64,
    accesses: u64,
    /// The sum of intervals between requests so far, in mean intervals.
    elapsed: f64,
}

impl Workload {
    /// Creates the generator. Memory: 4 bytes per block for patterns with popular blocks.
    pub fn generator(self) -> Result<Generator, GenerateError> {
        let Workload { blocks, .. } = self;
        let pattern = self.pattern.pattern;
        if !(1..=BLOCKS_MAX).contains(&blocks) {
            return Err(GenerateError::Blocks { found: blocks, most: BLOCKS_MAX });
        }
        if *self.request_blocks.end() > blocks {
            return Err(GenerateError::RequestBlocks { found: *self.request_blocks.end(), blocks });
        }
        if self.length == Length::WholePattern && !pattern.ends {
            return Err(GenerateError::NoLength { pattern: pattern.name });
        }
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let mut stream = || {
            random.jump();
            random.clone()
        };
        let mut blocks_random = stream();
        Ok(Generator {
            ranges: (pattern.build)(&self.pattern.options, blocks, &mut blocks_random),
            blocks_random,
            ops_random: stream(),
            lengths_random: stream(),
            arrivals_random: stream(),
            requests: 0,
            accesses: 0,
            elapsed: 0.0,
            workload: self,
        })
    }
}

impl Iterator for Generator {
    type Item = Result<Request, GenerateError>;

    fn next(&mut self) -> Option<Self::Item> {
        let Workload { length, blocks, block_size_bytes, rate, read_share, .. } = self.workload;
        let left = match length {
            Length::Requests(requests) if self.requests >= requests => return None,
            Length::Accesses(accesses) if self.accesses >= accesses => return None,
            Length::Accesses(accesses) => accesses - self.accesses,
            Length::Requests(_) | Length::WholePattern => u64::MAX,
        };
        let wanted = self.lengths_random.random_range(self.workload.request_blocks.clone()).min(left);
        let Some((first, len)) = (self.ranges)(&mut self.blocks_random, wanted) else {
            let Generator { requests, accesses, .. } = *self;
            let pattern = self.workload.pattern.pattern.name;
            let ended = GenerateError::Ended { pattern, blocks, requests, accesses };
            // The error is returned once.
            self.workload.length = Length::WholePattern;
            return (length != Length::WholePattern).then_some(Err(ended));
        };
        let time_us = (self.elapsed * 1e6 / rate) as i64;
        self.elapsed += match self.workload.arrivals {
            Arrivals::Poisson => Exp1.sample(&mut self.arrivals_random),
            Arrivals::Constant => 1.0,
        };
        self.requests += 1;
        self.accesses += len;
        let read = self.ops_random.random::<f64>() < read_share;
        Some(Ok(Request {
            time_us,
            op: if read { Op::Read } else { Op::Write },
            volume: 0,
            offset_bytes: first * block_size_bytes,
            length_bytes: len * block_size_bytes,
        }))
    }
}

/// The output format of a generated trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// A normalised trace.
    Normalised,
    /// CSV.
    Csv,
}

/// Writes a generated trace to `out` (`-` is standard output), and returns its number of requests. `progress` receives
/// the number of requests.
pub fn generate(
    workload: Workload,
    out: impl AsRef<Path>,
    written: Written,
    progress: &dyn Progress,
) -> Result<u64, TraceError> {
    let block_size_bytes = workload.block_size_bytes;
    write(workload.generator()?, block_size_bytes, out.as_ref(), written, progress)
}

/// Works like [`generate()`] for the week of a server.
pub fn generate_week(
    week: Week,
    out: impl AsRef<Path>,
    written: Written,
    progress: &dyn Progress,
) -> Result<u64, TraceError> {
    let block_size_bytes = week.block_size_bytes();
    write(week, block_size_bytes, out.as_ref(), written, progress)
}

fn write(
    requests: impl Iterator<Item = Result<Request, GenerateError>>,
    block_size_bytes: u64,
    out: &Path,
    written: Written,
    progress: &dyn Progress,
) -> Result<u64, TraceError> {
    let name = output_name(out);
    let made = Cell::new(0_u64);
    let requests = requests.inspect(|_| {
        made.set(made.get() + 1);
        if made.get().is_multiple_of(PROGRESS_REQUESTS) {
            progress.advance(PROGRESS_REQUESTS);
        }
    });
    write_whole(out, &[], |file| {
        if written == Written::Csv {
            let mut csv = CsvWriter::new(&name, file)?;
            for request in requests {
                csv.write(&request?, ONLY_VOLUME)?;
            }
            return csv.finish();
        }
        let mut normaliser = Normaliser::to(&name, &name, block_size_bytes, file)?;
        normaliser.description.format = "generated".to_owned();
        let volume = normaliser.volume(ONLY_VOLUME)?;
        for request in requests {
            normaliser.request(&Request { volume, ..request? })?;
        }
        normaliser.finish().map(|_| ())
    })?;
    Ok(made.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(pattern: &str, blocks: u64, length: Length) -> Workload {
        Workload {
            pattern: pattern.parse().unwrap(),
            blocks,
            length,
            read_share: 0.7,
            request_blocks: 1..=1,
            rate: 1000.0,
            arrivals: Arrivals::Poisson,
            seed: 1,
            block_size_bytes: 512,
        }
    }

    fn requests(workload: Workload) -> Vec<Request> {
        workload.generator().unwrap().collect::<Result<_, _>>().unwrap()
    }

    /// Returns the number of accesses to each block.
    fn popularity(requests: &[Request], blocks: u64) -> Vec<u64> {
        let mut popularity = vec![0; blocks as usize];
        for request in requests {
            popularity[(request.offset_bytes / 512) as usize] += 1;
        }
        popularity
    }

    #[test]
    fn zipf_frequencies_are_those_of_the_law_and_scattered_over_the_range() {
        let popularity = popularity(&requests(workload("zipf:skew=1", 1000, Length::Requests(1_000_000))), 1000);
        let mut sorted = popularity.clone();
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        let harmonic: f64 = (1..=1000).map(|rank| 1.0 / f64::from(rank)).sum();
        for rank in [1, 2, 5, 10, 100] {
            let expected = 1e6 / harmonic / rank as f64;
            let found = sorted[rank - 1] as f64;
            assert!((found - expected).abs() < 5.0 * expected.sqrt(), "rank {rank}: {found}, expected {expected}");
        }
        // The 100 most popular blocks: about 50 in each half, within 5 standard deviations.
        let hundredth = sorted[99];
        let lower = popularity[..500].iter().filter(|&&count| count >= hundredth).count();
        assert!((25..=75).contains(&lower), "{lower}");
    }

    #[test]
    fn skew_0_is_uniform() {
        let popularity = popularity(&requests(workload("zipf:skew=0", 100, Length::Requests(100_000))), 100);
        assert!(popularity.iter().all(|&count| (800..1200).contains(&count)), "{popularity:?}");
    }

    #[test]
    fn each_phase_has_other_popular_blocks() {
        let requests = requests(workload("phases:skew=1,requests=10000", 1000, Length::Requests(40_000)));
        let popular = |phase: &[Request]| {
            let popularity = popularity(phase, 1000);
            let mut blocks: Vec<usize> = (0..1000).collect();
            blocks.sort_by_key(|&block| std::cmp::Reverse(popularity[block]));
            blocks[..10].iter().copied().collect::<std::collections::BTreeSet<_>>()
        };
        let popular: Vec<_> = requests.chunks(10_000).map(popular).collect();
        for (number, phase) in popular.iter().enumerate() {
            assert!(popular[..number].iter().all(|earlier| earlier.is_disjoint(phase)), "{popular:?}");
        }
    }

    #[test]
    fn loops_go_round_and_scans_end() {
        let blocks = |workload| {
            requests(workload).iter().map(|request| (request.offset_bytes / 512, request.length_bytes / 512)).collect()
        };
        let with_length = |pattern, length| Workload { request_blocks: 3..=3, ..workload(pattern, 7, length) };
        let looped: Vec<_> = blocks(with_length("loop", Length::Accesses(16)));
        assert_eq!(looped, [(0, 3), (3, 3), (6, 1), (0, 3), (3, 3), (6, 1), (0, 2)]);
        let scanned: Vec<_> = blocks(with_length("scan", Length::WholePattern));
        assert_eq!(scanned, [(0, 3), (3, 3), (6, 1)]);
        let ended = with_length("scan", Length::Requests(4)).generator().unwrap().last().unwrap();
        assert_eq!(ended, Err(GenerateError::Ended { pattern: "scan", blocks: 7, requests: 3, accesses: 7 }));
    }

    #[test]
    fn ops_lengths_and_arrivals_leave_the_blocks_as_they_are() {
        let base = workload("zipf", 1000, Length::Requests(10_000));
        let blocks = |workload| requests(workload).iter().map(|request| request.offset_bytes).collect::<Vec<_>>();
        let expected = blocks(base.clone());
        assert_eq!(blocks(Workload { read_share: 0.1, ..base.clone() }), expected);
        assert_eq!(blocks(Workload { arrivals: Arrivals::Constant, rate: 7.0, ..base.clone() }), expected);
        assert_ne!(blocks(Workload { seed: 2, ..base }), expected);
    }

    #[test]
    fn shares_lengths_and_rates_are_those_asked_for() {
        let base = workload("zipf", 1000, Length::Requests(100_000));
        let made = requests(Workload { request_blocks: 1..=16, ..base.clone() });
        let reads = made.iter().filter(|request| request.op == Op::Read).count();
        assert!((69_000..71_000).contains(&reads), "{reads}");
        let blocks: u64 = made.iter().map(|request| request.length_bytes / 512).sum();
        assert!((840_000..860_000).contains(&blocks), "{blocks}");
        assert!(made.iter().all(|request| request.offset_bytes + request.length_bytes <= 512 * 1000));
        let end_us = made.last().unwrap().time_us;
        assert!((98_000_000..102_000_000).contains(&end_us), "{end_us}");
        let constant = requests(Workload { arrivals: Arrivals::Constant, ..base });
        assert!(constant.iter().enumerate().all(|(number, request)| request.time_us == number as i64 * 1000));
    }

    #[test]
    fn impossible_patterns_are_refused() {
        let base = workload("zipf", 10, Length::Requests(10));
        let refused = |workload: Workload| workload.generator().err().unwrap();
        assert_eq!(
            refused(Workload { blocks: 0, ..base.clone() }),
            GenerateError::Blocks { found: 0, most: BLOCKS_MAX }
        );
        let too_long = GenerateError::RequestBlocks { found: 11, blocks: 10 };
        assert_eq!(refused(Workload { request_blocks: 1..=11, ..base.clone() }), too_long);
        let endless = GenerateError::NoLength { pattern: "zipf" };
        assert_eq!(refused(Workload { length: Length::WholePattern, ..base }), endless);
        assert!("zipf:requests=5".parse::<PatternSpec>().is_err());
        assert!("zip".parse::<PatternSpec>().unwrap_err().to_string().contains("did you mean 'zipf'"));
        assert!(["", "0", "2..1", "1..", "a"].iter().all(|wrong| parse_request_blocks(wrong).is_err()));
        assert!(["", "0", "-1/s", "inf", "1/min"].iter().all(|wrong| parse_rate(wrong).is_err()));
    }
}
