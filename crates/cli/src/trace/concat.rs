//! `flashwise trace concat`: joins traces one after another.

use std::path::PathBuf;

use clap::Args;
use flashwise_core::quantity::Duration;
use flashwise_trace::output::name_of;

use super::written;
use crate::input::{InputOptions, reading, warn};
use crate::replace::Replace;

/// Join traces one after another into a normalised trace
///
/// Without --apart, the same address of the same volume is the same block in all traces. Each trace begins when the
/// previous one ends. Normalised traces must have one block size; others are read with it.
#[derive(Debug, Args)]
pub struct Concat {
    /// Traces in any format; - is standard input
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// Output file; - is standard output
    #[arg(long, value_name = "OUT.arrow")]
    out: PathBuf,
    /// Keep the traces' blocks separate: volume V of the n-th trace becomes n:V
    #[arg(long)]
    apart: bool,
    /// Time between the last request of a trace and the first of the next
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
