//! `flashwise trace convert`: converts a trace to a normalised one.

use std::path::PathBuf;

use clap::Args;
use flashwise_trace::output::name_of;

use super::written;
use crate::input::{InputOptions, reading, warn};
use crate::replace::Replace;

/// Convert a trace to a normalised one, an Arrow IPC file
///
/// Requests become accesses to numbered blocks. Other commands map this file and need not parse the original again.
/// --block-size can enlarge the blocks of a normalised trace.
#[derive(Debug, Args)]
pub struct Convert {
    /// Trace in any format; - is standard input
    trace: PathBuf,
    /// Output file; - is standard output
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
