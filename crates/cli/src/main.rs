//! flashwise: what a flash cache buys and how fast it wears out, simulated and served. Argument parsing, progress and output; no logic.

// What commands of a live cache share with the others is not all used without them.
#![cfg_attr(not(feature = "serve"), allow(dead_code))]

mod advise;
#[cfg(feature = "serve")]
mod api;
mod array;
mod buckets;
mod cache;
#[cfg(feature = "serve")]
mod capture;
#[cfg(feature = "serve")]
mod check;
mod completions;
mod curve;
#[cfg(feature = "serve")]
mod demo;
#[cfg(feature = "serve")]
mod detach;
#[cfg(feature = "serve")]
mod disks;
mod endurance;
mod failure;
mod fit;
mod help;
mod input;
mod lifetime;
mod list;
mod listing;
mod log;
mod man;
#[cfg(feature = "serve")]
mod manage;
#[cfg(feature = "serve")]
mod pair;
mod pareto;
mod policies;
#[cfg(feature = "serve")]
mod pool;
mod progress;
#[cfg(feature = "serve")]
mod salvage;
mod sample;
#[cfg(feature = "serve")]
mod serve;
mod settings;
mod simulate;
#[cfg(feature = "serve")]
mod status;
mod table;
mod trace;
#[cfg(feature = "serve")]
mod wipe;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A flash cache in front of slow storage: how much faster it makes it, and how fast the flash wears out.
///
/// `simulate` answers from a trace of a workload what each cache policy would do at each cache size: hits, flash writes, and how far each is
/// from the best possible. `serve` runs the cache: volumes over NBD, with RAM and flash in front of slow disks.
#[derive(Debug, Parser)]
#[command(name = "flashwise", version, max_term_width = 120)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    log: log::LogOptions,
}

#[derive(Debug, Subcommand)]
enum Command {
    Simulate(Box<simulate::Simulate>),
    Advise(Box<advise::Advise>),
    Curve(Box<curve::Curve>),
    Pareto(Box<pareto::Pareto>),
    #[cfg(feature = "serve")]
    #[command(flatten)]
    Live(Live),
    Policies(policies::Policies),
    Lifetime(lifetime::Lifetime),
    #[command(subcommand)]
    Trace(trace::TraceCommand),
    Completions(completions::Completions),
    Man(man::Man),
}

/// What runs a cache, manages it and looks after its disks.
#[cfg(feature = "serve")]
#[derive(Debug, Subcommand)]
enum Live {
    Serve(Box<serve::Serve>),
    Status(status::Status),
    Flush(manage::Flush),
    Set(manage::Set),
    Disks(disks::Disks),
    #[command(subcommand)]
    Pool(pool::PoolCommand),
    #[command(subcommand)]
    Disk(pool::DiskCommand),
    Detach(detach::Detach),
    Check(check::Check),
    Wipe(wipe::Wipe),
    Demo(demo::Demo),
    Capture(capture::Capture),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    arguments.log.start();
    let result = match arguments.command {
        Command::Simulate(simulate) => simulate.run(),
        Command::Advise(advise) => advise.run(),
        Command::Curve(curve) => curve.run(),
        Command::Pareto(pareto) => pareto.run(),
        #[cfg(feature = "serve")]
        Command::Live(command) => command.run(),
        Command::Policies(policies) => policies.run(),
        Command::Lifetime(lifetime) => lifetime.run(),
        Command::Trace(command) => command.run(),
        Command::Completions(completions) => completions.run(),
        Command::Man(man) => man.run(),
    };
    failure::exit_code(result)
}

#[cfg(feature = "serve")]
impl Live {
    fn run(&self) -> anyhow::Result<()> {
        match self {
            Live::Serve(command) => command.run(),
            Live::Status(command) => command.run(),
            Live::Flush(command) => command.run(),
            Live::Set(command) => command.run(),
            Live::Disks(command) => command.run(),
            Live::Pool(command) => command.run(),
            Live::Disk(command) => command.run(),
            Live::Detach(command) => command.run(),
            Live::Check(command) => command.run(),
            Live::Wipe(command) => command.run(),
            Live::Demo(command) => command.run(),
            Live::Capture(command) => command.run(),
        }
    }
}
