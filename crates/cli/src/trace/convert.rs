//! `flashwise trace convert`: a trace of any kind to a normalised one.

use std::path::PathBuf;

use clap::Args;
use flashwise_trace::output::name_of;

use super::written;
use crate::input::{InputOptions, reading, warn};
use crate::replace::Replace;

/// Convert a trace to a normalised one, an Arrow IPC file
///
/// Requests are cut into block accesses and blocks numbered. Other commands then map the file instead of reading the original
/// again. Blocks of a normalised trace can be made larger with --block-size.
#[derive(Debug, Args)]
pub struct Convert {
    /// A trace of any format, or a normalised one; - is standard input
    trace: PathBuf,
    /// The file to write; - is standard output
    #[arg(value_name = "OUT.arrow")]
    out: PathBuf,
    #[command(flatten)]
    replace: Replace,
    #[command(flatten)]
    input: InputOptions,
}

impl Convert {
    pub fn run(&self) -> anyhow::Result<()> {
        self.replace.check(&self.out, std::slice::from_ref(&self.trace))?;
        written::check_name(&self.out)?;
        let bar = reading(std::slice::from_ref(&self.trace));
        let about = flashwise_trace::tools::convert::convert(&self.trace, &self.out, &self.input.settings(), &bar)?;
        drop(bar);
        warn(&name_of(&self.trace), &about);
        Ok(written::tell(&self.out, about.requests)?)
    }
}
