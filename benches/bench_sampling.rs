//! Errors of estimates from samples, as a table in Markdown. Each trace is sampled with many seeds and compared with
//! runs over the whole trace.

use std::path::PathBuf;

use clap::Parser;
use flashwise_core::policy::Spec;
use flashwise_core::quantity::Share;
use flashwise_sim::counting::{Counting, Warmup};
use flashwise_sim::experiment::{Case, Run};
use flashwise_sim::sampling::{GROUPS_MIN, SampleFigures};
use flashwise_sim::simulate::simulate;
use flashwise_sim::size::Size;
use flashwise_trace::Trace;
use flashwise_trace::formats::FormatSpec;
use flashwise_trace::normalised::{Settings, open};
use flashwise_trace::progress::Silent;
use flashwise_trace::sampling::Sampling;
use flashwise_trace::tools::sample;

const COUNTING: Counting = Counting { warmup: Warmup::Accesses(0), epoch: None };

/// Compares samples with whole traces.
#[derive(Parser)]
struct Arguments {
    /// Traces; FILE=FORMAT to name the format
    #[arg(required = true)]
    traces: Vec<String>,
    /// Shares of the blocks
    #[arg(long, value_delimiter = ',', default_value = "1%")]
    rates: Vec<Share>,
    /// Samples of each trace
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// Policies
    #[arg(long, value_delimiter = ',', default_value = "lru,larc,s3-fifo")]
    policies: Vec<String>,
    /// Cache sizes
    #[arg(long, default_value = "1%,2%,5%,10%,20%,50%")]
    sizes: String,
    /// Ignored; cargo bench passes it.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Errors of one kind of estimate.
#[derive(Clone, Default)]
struct Errors {
    sum: f64,
    most: f64,
    number: u64,
    /// Intervals that contain the true value.
    held: u64,
    /// Sum of the stated standard errors.
    stated: f64,
}

impl Errors {
    fn add(&mut self, found: &Run, sample: &SampleFigures, truth: f64) {
        let error = (found.counts().counters.hit_ratio() - truth).abs();
        self.sum += error;
        self.most = self.most.max(error);
        self.number += 1;
        // The tolerance covers rounding.
        let held = sample.hit_ratio_low - 1e-9 <= truth && truth <= sample.hit_ratio_high + 1e-9;
        self.held += u64::from(held);
        self.stated += sample.hit_ratio_standard_error;
    }

    fn merge(&mut self, other: &Errors) {
        self.sum += other.sum;
        self.most = self.most.max(other.most);
        self.number += other.number;
        self.held += other.held;
        self.stated += other.stated;
    }

    fn cells(&self) -> String {
        if self.number == 0 {
            return "- | - | - | -".to_owned();
        }
        let number = self.number as f64;
        let held = 100.0 * self.held as f64 / number;
        format!("{:.4} | {:.3} | {:.4} | {held:.0} %", self.sum / number, self.most, self.stated / number)
    }
}

fn jobs(trace: &Trace, policies: &[Spec], sizes: &[Size]) -> Vec<Case> {
    let (unique_blocks, bytes) = (trace.whole_unique_blocks() as usize, trace.block_size_bytes());
    let of_policy = |policy: &Spec| {
        let job = |size: &Size| {
            let capacity_blocks = size.capacity_blocks(unique_blocks, bytes).expect("a size of the trace");
            Case::of(policy.clone(), size, capacity_blocks)
        };
        sizes.iter().map(job).collect::<Vec<_>>()
    };
    policies.iter().flat_map(of_policy).collect()
}

fn run(trace: &Trace, policies: &[Spec], sizes: &[Size]) -> Vec<Run> {
    let jobs = jobs(trace, policies, sizes);
    simulate(std::slice::from_ref(trace), jobs, COUNTING, &Silent).expect("policies that do not look ahead")
}

fn main() {
    let arguments = Arguments::parse();
    let policies: Vec<Spec> = arguments.policies.iter().map(|policy| Spec::parse(policy).expect("a policy")).collect();
    let sizes = Size::parse_list(&arguments.sizes).expect("cache sizes");
    println!(
        "| trace | rate | accesses sampled | groups | policy | mean error | worst | stated SE | intervals true | sizes \
         of a sample large enough: mean error | worst | stated SE | true |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    let mut of_all = [Errors::default(), Errors::default()];
    for named in &arguments.traces {
        let (path, format) =
            named.split_once('=').map_or((named.as_str(), None), |(path, format)| (path, Some(format)));
        let format = format.map(|format| format.parse::<FormatSpec>().expect("a format"));
        let settings = Settings { format, ..Settings::default() };
        let trace = open(path, &settings, &Silent).expect("a trace that can be read");
        let name = PathBuf::from(path).file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let name = name.split('.').next().unwrap_or_default().to_owned();
        let truths: Vec<f64> =
            run(&trace, &policies, &sizes).iter().map(|run| run.counts().counters.hit_ratio()).collect();
        for rate in &arguments.rates {
            let mut errors = vec![[Errors::default(), Errors::default()]; policies.len()];
            let (mut accesses, mut groups, mut empty) = (0, 0, 0);
            for seed in 0..arguments.seeds {
                let sampling = Sampling::new(rate.of_one(), seed).expect("a share");
                let Ok(sampled) = sample::of(&trace, sampling, &Silent) else {
                    empty += 1;
                    continue;
                };
                accesses += sampled.len();
                groups += sampled.sample().map_or(0, |sample| sample.groups());
                for (at, found) in run(&sampled, &policies, &sizes).iter().enumerate() {
                    let Some(sample) = &found.sample else { continue };
                    let of_policy = &mut errors[at / sizes.len()];
                    of_policy[0].add(found, sample, truths[at]);
                    if sample.sample_capacity_groups >= GROUPS_MIN {
                        of_policy[1].add(found, sample, truths[at]);
                    }
                }
            }
            let taken = (arguments.seeds - empty).max(1);
            for (policy, errors) in policies.iter().zip(&errors) {
                println!(
                    "| {name} | {rate} | {} | {} | {policy} | {} | {} |",
                    accesses / taken as usize,
                    groups / taken,
                    errors[0].cells(),
                    errors[1].cells()
                );
                of_all.iter_mut().zip(errors).for_each(|(all, errors)| all.merge(errors));
            }
        }
    }
    println!("| all | | | | | {} | {} |", of_all[0].cells(), of_all[1].cells());
}
