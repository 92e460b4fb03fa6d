//! flashwise: what a flash cache buys and how fast it wears out, simulated and served. Argument parsing, progress and output; no logic.

mod api;
mod array;
mod buckets;
mod cache;
mod check;
mod detach;
mod endurance;
mod failure;
mod help;
mod input;
mod lifetime;
mod listing;
mod manage;
mod pair;
mod pareto;
mod policies;
mod progress;
mod salvage;
mod serve;
mod settings;
mod simulate;
mod status;
mod table;
mod trace;
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
}

#[derive(Debug, Subcommand)]
enum Command {
    Simulate(Box<simulate::Simulate>),
    Pareto(Box<pareto::Pareto>),
    Serve(Box<serve::Serve>),
    Status(status::Status),
    Flush(manage::Flush),
    Set(manage::Set),
    Detach(detach::Detach),
    Check(check::Check),
    Wipe(wipe::Wipe),
    Policies(policies::Policies),
    Lifetime(lifetime::Lifetime),
    #[command(subcommand)]
    Trace(trace::TraceCommand),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.command {
        Command::Simulate(simulate) => simulate.run(),
        Command::Pareto(pareto) => pareto.run(),
        Command::Serve(serve) => serve.run(),
        Command::Status(status) => status.run(),
        Command::Flush(flush) => flush.run(),
        Command::Set(set) => set.run(),
        Command::Detach(detach) => detach.run(),
        Command::Check(check) => check.run(),
        Command::Wipe(wipe) => wipe.run(),
        Command::Policies(policies) => policies.run(),
        Command::Lifetime(lifetime) => lifetime.run(),
        Command::Trace(command) => command.run(),
    };
    failure::exit_code(result)
}
