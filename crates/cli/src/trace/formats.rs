//! `flashwise trace formats`: the trace formats, their columns and options.

use clap::Args;
use flashwise_trace::formats::FORMATS;

use crate::listing;

/// List the trace formats with their columns and options
#[derive(Debug, Args)]
pub struct Formats {}

impl Formats {
    pub fn run(&self) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        for format in FORMATS {
            listing::write(&mut out, format.name, format.title, format.source, format.parameters)?;
        }
        Ok(())
    }
}
