//! `flashwise trace`: inspects, converts, cuts, joins and generates traces.

mod concat;
mod convert;
mod cut;
mod export;
mod formats;
mod generate;
mod info;
mod reuse;
mod written;

use clap::Subcommand;

/// Inspect, convert, cut, join and generate traces
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    Formats(formats::Formats),
    Info(info::Info),
    Reuse(reuse::Reuse),
    Convert(convert::Convert),
    Cut(cut::Cut),
    Concat(concat::Concat),
    Generate(generate::Generate),
    Export(export::Export),
}

impl TraceCommand {
    pub fn run(&self) -> anyhow::Result<()> {
        match self {
            TraceCommand::Formats(command) => command.run(),
            TraceCommand::Info(command) => command.run(),
            TraceCommand::Reuse(command) => command.run(),
            TraceCommand::Convert(command) => command.run(),
            TraceCommand::Cut(command) => command.run(),
            TraceCommand::Concat(command) => command.run(),
            TraceCommand::Generate(command) => command.run(),
            TraceCommand::Export(command) => command.run(),
        }
    }
}
