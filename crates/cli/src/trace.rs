//! `flashwise trace`: look at, convert, cut, join and generate workloads.

use clap::{Args, Subcommand};
use flashwise_sim::info::Info;

use crate::formats::Formats;
use crate::input::InputOptions;

/// Look at, convert, cut, join and generate traces
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    Info(InfoCommand),
    Formats(Formats),
}

/// Show what traces are like: requests, blocks, sizes, duration, re-access
#[derive(Debug, Args)]
pub struct InfoCommand {
    /// Traces; - is standard input
    #[arg(required = true)]
    traces: Vec<String>,
    #[command(flatten)]
    input: InputOptions,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

impl TraceCommand {
    pub fn run(&self) -> anyhow::Result<()> {
        match self {
            TraceCommand::Info(command) => command.run(),
            TraceCommand::Formats(command) => command.run(),
        }
    }
}

impl InfoCommand {
    fn run(&self) -> anyhow::Result<()> {
        let mut infos = Vec::new();
        for path in &self.traces {
            infos.push(Info::of(&self.input.open(path)?));
        }
        println!("{}", serde_json::to_string_pretty(&infos)?);
        Ok(())
    }
}
