//! `flashwise policies`: what can be simulated, from which paper, with which parameters.

use clap::Args;
use flashwise_core::policy::POLICIES;
use flashwise_sim::endurance::algorithms;

use crate::listing;

/// List the policies, their sources and their parameters
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
        Ok(())
    }
}
