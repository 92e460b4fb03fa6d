//! `flashwise trace formats`: what traces can be read, how they look and what can be set.

use std::io::Write;

use clap::Args;
use flashwise_sim::formats::FORMATS;

/// List the formats that traces are read in, with their columns and options
#[derive(Debug, Args)]
pub struct Formats {}

impl Formats {
    pub fn run(&self) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        for format in FORMATS {
            writeln!(out, "{}  {}", format.name, format.title)?;
            writeln!(out, "    {}", format.source)?;
            for parameter in format.parameters {
                writeln!(out, "    {}={}  {}", parameter.name, parameter.default, parameter.meaning)?;
                writeln!(out, "        {}", parameter.kind)?;
            }
        }
        Ok(())
    }
}
