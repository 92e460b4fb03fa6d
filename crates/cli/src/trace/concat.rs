//! `flashwise trace concat`: traces one after another.

use std::path::PathBuf;

use clap::Args;
use flashwise_core::quantity::Duration;
use flashwise_trace::output::name_of;

use super::written;
use crate::input::{InputOptions, reading, warn};
use crate::replace::Replace;

/// Join traces one after another into a normalised trace
///
/// The same address of the same volume is the same block in all of them, unless --apart is given. Each trace begins when the
/// one before ends. Normalised traces must have one block size; the others are read with it.
#[derive(Debug, Args)]
pub struct Concat {
    /// Traces of any format, or normalised ones; - is standard input
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// The file to write; - is standard output
    #[arg(long, value_name = "OUT.arrow")]
    out: PathBuf,
    /// Let the traces share no blocks: volume V of the n-th trace becomes n:V
    #[arg(long)]
    apart: bool,
    /// Time from the last request of a trace to the first of the next
    #[arg(long, value_name = "DURATION", default_value = "0")]
    gap: Duration,
    #[command(flatten)]
    replace: Replace,
    #[command(flatten)]
    input: InputOptions,
}

impl Concat {
    pub fn run(&self) -> anyhow::Result<()> {
        self.replace.check(&self.out, &self.traces)?;
        written::check_name(&self.out)?;
        let bar = reading(&self.traces);
        let how = flashwise_trace::tools::concat::Concat { apart: self.apart, gap_us: self.gap.us() };
        let about = flashwise_trace::tools::concat::concat(&self.traces, &self.out, how, &self.input.settings(), &bar)?;
        drop(bar);
        warn(&name_of(&self.out), &about);
        Ok(written::tell(&self.out, about.requests)?)
    }
}
