//! `flashwise policies`: what can be simulated, from which paper, with which parameters.

use clap::Args;
use flashwise_core::policy::POLICIES;

use crate::listing;

/// List the policies, their sources and their parameters
#[derive(Debug, Args)]
pub struct Policies {}

impl Policies {
    pub fn run(&self) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        for info in POLICIES {
            let offline = if info.offline { " (offline: needs the whole trace)" } else { "" };
            listing::write(&mut out, info.name, &format!("{}{offline}", info.title), info.source, info.parameters)?;
        }
        Ok(())
    }
}
