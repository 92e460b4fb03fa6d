//! `make bench-ncache`: Figures 4 and 5 of the paper on NCache, and its write requests, from a pool before slow disks.

use std::path::PathBuf;

use clap::Parser;
use flashwise_benches::ncache::{Experiment, Outcome, Problem, Template, chart, run, table};
use flashwise_benches::side_by_side;

/// Runs transactions against a pool, with and without flash, and prints their rate and their writes.
#[derive(Parser)]
struct Arguments {
    /// The program.
    #[arg(long, default_value = "target/dist/flashwise")]
    flashwise: PathBuf,
    /// Factor by which sizes and times are smaller than the paper's.
    #[arg(long, default_value_t = 128)]
    scale: u64,
    /// Sizes of the RAM in the paper's terms, in MB.
    #[arg(long, value_delimiter = ',', default_values_t = [512, 1024])]
    rams: Vec<u64>,
    /// Sizes of the SSD in the paper's terms, in MB; 0 is none.
    #[arg(long, value_delimiter = ',', default_values_t = [0, 1536, 3072, 6144, 12288, 18432])]
    flashes: Vec<u64>,
    /// Share of the RAM for the write buffer, in percent.
    #[arg(long, default_value_t = 50)]
    write_buffer: u64,
    /// Policy of the flash, with its options.
    #[arg(long, default_value = "larc")]
    policy: String,
    /// Duration of the warm-up, as a multiple of the measured time.
    #[arg(long, default_value_t = 2)]
    warm_up: u32,
    /// Clients that run transactions in parallel.
    #[arg(long, default_value_t = 16)]
    clients: usize,
    /// Seed of the random numbers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Runs in parallel.
    #[arg(long, default_value_t = 9)]
    side_by_side: usize,
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
    for write_buffer_percent in [arguments.write_buffer, 0] {
        for &ram_mb in &arguments.rams {
            // Without an SSD, there are no writes to it to save.
            let flashes = arguments.flashes.iter().filter(|flash| write_buffer_percent > 0 || **flash > 0);
            experiments.extend(flashes.map(|&flash_mb| Experiment {
                ram_mb,
                flash_mb,
                write_buffer_percent,
                policy: arguments.policy.clone(),
                scale: arguments.scale,
                warm_up: arguments.warm_up,
                clients: arguments.clients,
                seed: arguments.seed,
            }));
        }
    }
    // The servers have working directories of their own, so the path must be absolute.
    let program = std::path::absolute(&arguments.flashwise)?;
    let template = Template::make(&program, arguments.scale, &arguments.directory)?;
    let all = experiments.len();
    let runs = side_by_side(experiments, arguments.side_by_side, |number, experiment| -> Result<Outcome, Problem> {
        let outcome = run(experiment, &program, &template, &arguments.directory)?;
        let Experiment { ram_mb, flash_mb, write_buffer_percent, .. } = experiment;
        eprintln!(
            "{}/{all} RAM {ram_mb} MB, SSD {flash_mb} MB, write buffer {write_buffer_percent} %: {:.0} transactions/s, \
             {:.2} write requests per transaction, {:.1} % of reads hit",
            number + 1,
            outcome.tps(),
            outcome.write_requests(),
            100.0 * outcome.read_hit_ratio(),
        );
        Ok(outcome)
    })?;
    print!("{}", table(&runs));
    if let Some(path) = arguments.svg {
        std::fs::write(path, chart(&runs))?;
    }
    Ok(())
}
