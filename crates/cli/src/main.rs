//! flashwise: what a flash cache buys and what it wears. Argument parsing, progress and output; no logic.

mod cache;
mod failure;
mod input;
mod listing;
mod policies;
mod progress;
mod simulate;
mod table;
mod trace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Flash caches: what they buy and what they wear.
///
/// Answers from a workload trace what each cache policy would do at each cache size: hits, flash writes, and how far each is
/// from the best possible.
#[derive(Debug, Parser)]
#[command(name = "flashwise", version, max_term_width = 120)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Simulate(simulate::Simulate),
    Policies(policies::Policies),
    #[command(subcommand)]
    Trace(trace::TraceCommand),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.command {
        Command::Simulate(simulate) => simulate.run(),
        Command::Policies(policies) => policies.run(),
        Command::Trace(command) => command.run(),
    };
    failure::exit_code(result)
}
