//! `flashwise policies`: policies and admission rules, with their papers and parameters.

use std::io::Write;

use clap::Args;
use flashwise_core::admission::RULES;
use flashwise_core::policy::POLICIES;
use flashwise_sim::endurance::algorithms;

use crate::listing;

/// List policies and admission rules, with sources and parameters
#[derive(Debug, Args)]
pub struct Policies {}

impl Policies {
    pub fn run(&self) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        let known = |name: &str| POLICIES.iter().any(|info| info.name == name);
        for info in POLICIES.iter().copied().chain(algorithms().filter(|info| !known(info.name))) {
            let offline = if info.offline { " (offline: needs the whole trace)" } else { "" };
            listing::write(&mut out, info.name, &format!("{}{offline}", info.title), info.source, info.parameters)?;
        }
        writeln!(out, "\nAdmission rules, in front of any policy:\n")?;
        for info in RULES {
            listing::write(&mut out, info.name, info.title, info.source, info.parameters)?;
        }
        Ok(())
    }
}
