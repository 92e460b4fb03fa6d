//! `make bench-larc`: Figures 10 and 11 of the paper on LARC, from `flashwise serve` before a slow disk.

use std::path::PathBuf;

use clap::Parser;
use flashwise_benches::larc::{Experiment, Kind, MINUTES, Outcome, Problem, chart, run, table};
use flashwise_benches::side_by_side;

/// Runs webserver and netsfs before LRU and LARC, and prints operations and flash writes.
#[derive(Parser)]
struct Arguments {
    /// The program.
    #[arg(long, default_value = "target/dist/flashwise")]
    flashwise: PathBuf,
    /// Factor by which sizes and times are smaller than the paper's.
    #[arg(long, default_value_t = 40)]
    scale: u64,
    /// Duration of a run in the paper's terms, in minutes.
    #[arg(long, default_value_t = MINUTES)]
    minutes: u64,
    /// Runs of each kind, each with its own seed.
    #[arg(long, default_value_t = 3)]
    runs: u64,
    /// Sizes of the flash in the paper's terms, in GB.
    #[arg(long, value_delimiter = ',', default_values_t = [2, 4, 6])]
    sizes: Vec<u64>,
    /// Policies of the flash, with their options, separated by spaces.
    #[arg(long, value_delimiter = ' ', default_value = "lru larc larc:fill=ghost")]
    policies: Vec<String>,
    /// The I/O filter: longer sequential streams bypass the flash; 0B is off.
    #[arg(long, value_delimiter = ',', default_value = "0B,4MiB")]
    filters: Vec<String>,
    /// Runs in parallel.
    #[arg(long, default_value_t = 12)]
    side_by_side: usize,
    /// Run this workload only.
    #[arg(long)]
    workload: Option<String>,
    /// Directory for the temporary files of the runs.
    #[arg(long, default_value = "/tmp")]
    directory: PathBuf,
    /// File for the chart.
    #[arg(long)]
    svg: Option<PathBuf>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parse();
    let mut experiments = Vec::new();
    for kind in
        Kind::ALL.into_iter().filter(|kind| arguments.workload.as_deref().is_none_or(|name| name == kind.name()))
    {
        for filter in &arguments.filters {
            for &gb in &arguments.sizes {
                for seed in 1..=arguments.runs {
                    let policy = |policy: &String| Experiment {
                        minutes: arguments.minutes,
                        ..Experiment::new(kind, policy, gb, filter, arguments.scale, seed)
                    };
                    experiments.extend(arguments.policies.iter().map(policy));
                }
            }
        }
    }
    let all = experiments.len();
    let runs = side_by_side(experiments, arguments.side_by_side, |number, experiment| -> Result<Outcome, Problem> {
        let outcome = run(experiment, &arguments.flashwise, &arguments.directory)?;
        tell(number + 1, all, experiment, &outcome);
        Ok(outcome)
    })?;
    print!("{}", table(&runs));
    if let Some(path) = arguments.svg {
        std::fs::write(path, chart(&runs))?;
    }
    Ok(())
}

fn tell(number: usize, all: usize, experiment: &Experiment, outcome: &Outcome) {
    let Experiment { kind, policy, paper_gb, filter, seed, .. } = experiment;
    eprintln!(
        "{number}/{all} {} {policy} {paper_gb} GB, filter {filter}, seed {seed}: {:.0} operations/s, {:.3} blocks per \
         operation, \
         {:.3} without copies, {:.1} % of {} reads hit, {} blocks written",
        kind.name(),
        outcome.operations_per_second(),
        outcome.written_per_operation(),
        outcome.written_without_copies_per_operation(),
        100.0 * outcome.read_hit_ratio(),
        outcome.status.reads,
        outcome.status.writes,
    );
}
