//! `flashwise trace export`: writes the requests of a trace as CSV.

use std::path::PathBuf;

use clap::Args;

use crate::input::{InputOptions, reading};
use crate::replace::Replace;

/// Write the requests of a trace as CSV
///
/// The header names the columns, so flashwise can read the file back. Requests of a normalised trace span whole blocks.
#[derive(Debug, Args)]
pub struct Export {
    /// Trace in any format; - is standard input
    trace: PathBuf,
    /// Output file; - is standard output
    #[arg(value_name = "OUT.csv", default_value = "-")]
    out: PathBuf,
    #[command(flatten)]
    replace: Replace,
    #[command(flatten)]
    input: InputOptions,
}

impl Export {
    pub fn run(&self) -> anyhow::Result<()> {
        self.replace.check(&self.out, std::slice::from_ref(&self.trace))?;
        let bar = reading(std::slice::from_ref(&self.trace));
        flashwise_trace::tools::export::export(&self.trace, &self.out, &self.input.settings(), &bar)?;
        Ok(())
    }
}
