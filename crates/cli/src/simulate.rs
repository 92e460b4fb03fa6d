//! `flashwise simulate`: what each policy would do on each trace at each cache size.

use clap::Args;
use flashwise_core::policy::Spec;
use flashwise_sim::results::ResultRow;
use flashwise_sim::simulate::{Counting, Job, Warmup, simulate};
use flashwise_sim::size::{Size, SizeError};

use crate::input::InputOptions;
use crate::progress::Bar;

/// Simulate caches over traces
#[derive(Debug, Args)]
pub struct Simulate {
    /// Traces of any format, or normalised ones; - is standard input
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<String>,
    #[command(flatten)]
    input: InputOptions,
    /// A policy with its options, as listed by `flashwise policies`: lru, larc:fill=ghost; can be given many times
    #[arg(long = "policy", value_name = "POLICY", required = true)]
    policies: Vec<Spec>,
    /// A cache size: a share of the trace's unique blocks (10%), bytes (512MiB) or a number of blocks; lists (1%,10%) and ranges
    /// (1%..10%:1%, 64MiB..1GiB:x2) too; can be given many times
    #[arg(long = "size", value_name = "SIZE", required = true, value_parser = parse_sizes)]
    sizes: Vec<Sizes>,
    /// Print a JSON array, one object per trace, policy and size
    #[arg(long)]
    json: bool,
}

/// The sizes of one `--size`.
#[derive(Clone, Debug)]
pub struct Sizes(Vec<Size>);

fn parse_sizes(text: &str) -> Result<Sizes, SizeError> {
    Size::parse_list(text).map(Sizes)
}

impl Simulate {
    pub fn run(&self) -> anyhow::Result<()> {
        let traces = self.traces.iter().map(|path| self.input.open(path)).collect::<Result<Vec<_>, _>>()?;
        let mut jobs = Vec::new();
        for (number, trace) in traces.iter().enumerate() {
            for policy in &self.policies {
                for size in self.sizes.iter().flat_map(|sizes| &sizes.0) {
                    let capacity_blocks = size.capacity_blocks(trace.unique_blocks(), trace.block_size_bytes())?;
                    jobs.push(Job { trace: number, policy: policy.clone(), size: size.to_string(), capacity_blocks });
                }
            }
        }
        let total = jobs.iter().map(|job| traces[job.trace].len() as u64).sum();
        let counting = Counting { warmup: Warmup::Accesses(0), epoch: None };
        let bar = Bar::accesses(format!("{} runs", jobs.len()), total);
        let runs = simulate(&traces, jobs, counting, &bar)?;
        drop(bar);
        let rows: Vec<_> = runs.iter().map(|run| ResultRow::new(&traces[run.job.trace], run)).collect();
        println!("{}", serde_json::to_string_pretty(&rows)?);
        Ok(())
    }
}
