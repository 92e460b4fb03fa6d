//! flashwise: simulates flash caches and serves them. Parses arguments, shows progress and prints results; the logic is
//! in other crates.

// Some code shared with the commands of a live cache is unused without them.
#![cfg_attr(not(feature = "serve"), allow(dead_code))]

mod advise;
mod array;
mod cache;
mod closed;
mod completions;
mod curve;
mod date;
mod failure;
mod fit;
mod help;
mod input;
mod left_out;
mod lifetime;
mod list;
mod listing;
#[cfg(feature = "serve")]
mod live;
mod log;
mod man;
mod outputs;
mod pareto;
mod policies;
mod progress;
mod replace;
mod sample;
mod settings;
mod simulate;
#[cfg(feature = "parquet")]
mod sweep;
mod table;
mod trace;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

/// A flash cache in front of slow storage, simulated from traces or served.
///
/// `simulate` replays a trace of your workload against each cache policy and size. It reports hits, flash writes and
/// the distance from the best possible cache. `serve` runs the cache: volumes over NBD and iSCSI, with RAM and flash in
/// front of slow disks.
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
    #[cfg(feature = "parquet")]
    Sweep(Box<sweep::Sweep>),
    #[cfg(feature = "serve")]
    #[command(flatten)]
    Live(live::Live),
    Policies(policies::Policies),
    Lifetime(lifetime::Lifetime),
    #[command(subcommand)]
    Trace(trace::TraceCommand),
    Completions(completions::Completions),
    Man(man::Man),
}

/// Joins arguments around a `+` into one: the name of a trace in several files.
fn sums(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut all: Vec<OsString> = Vec::new();
    let mut joins_next = false;
    for argument in arguments {
        let is_sign = argument == "+";
        match all.last_mut() {
            Some(last) if is_sign => last.push(" +"),
            Some(last) if joins_next => {
                last.push(" ");
                last.push(argument);
            }
            _ => all.push(argument),
        }
        joins_next = is_sign;
    }
    all
}

fn main() -> ExitCode {
    let given = sums(std::env::args_os());
    let mut program = help::with_groups(Arguments::command());
    let parsed = program.try_get_matches_from_mut(&given);
    let arguments = match parsed.and_then(|matches| Arguments::from_arg_matches(&matches)) {
        Ok(arguments) => arguments,
        Err(error) => return failure::of_command_line(&error, log::is_json_asked_for(&given)),
    };
    arguments.log.start();
    #[cfg(feature = "serve")]
    let is_live = matches!(arguments.command, Command::Live(_));
    #[cfg(not(feature = "serve"))]
    let is_live = false;
    if closed::is_standard_output_closed() && !is_live {
        return failure::exit_code(Err(failure::standard_output_closed()));
    }
    let result = match arguments.command {
        Command::Simulate(simulate) => simulate.run(),
        Command::Advise(advise) => advise.run(),
        Command::Curve(curve) => curve.run(),
        Command::Pareto(pareto) => pareto.run(),
        #[cfg(feature = "parquet")]
        Command::Sweep(sweep) => sweep.run(),
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
