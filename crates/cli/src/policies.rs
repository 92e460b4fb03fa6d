//! `flashwise policies`: what can be simulated, from which paper, with which parameters.

use std::io::Write;

use clap::Args;
use flashwise_core::policy::POLICIES;

/// List the policies, their sources and their parameters
#[derive(Debug, Args)]
pub struct Policies {}

impl Policies {
    pub fn run(&self) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        for info in POLICIES {
            let offline = if info.offline { " (offline: needs the whole trace)" } else { "" };
            writeln!(out, "{}  {}{offline}", info.name, info.title)?;
            writeln!(out, "    {}", info.source)?;
            for parameter in info.parameters {
                writeln!(out, "    {}={}  {}", parameter.name, parameter.default, parameter.meaning)?;
                writeln!(out, "        {}", parameter.kind)?;
            }
        }
        Ok(())
    }
}
