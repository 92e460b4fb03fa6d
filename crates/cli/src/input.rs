//! The options that say how traces are read, shared by all commands that read one.

use clap::Args;
use flashwise_sim::error::TraceError;
use flashwise_sim::formats::FormatSpec;
use flashwise_sim::normalise::{self, Settings};
use flashwise_sim::size::{SizeError, parse_block_size};
use flashwise_sim::trace::Trace;

use crate::progress::Bar;

/// How to read traces.
#[derive(Clone, Debug, Args)]
pub struct InputOptions {
    /// The traces' format, with its options if it has any, as listed by `flashwise trace formats` [default: recognised from
    /// the contents]
    #[arg(long, value_name = "FORMAT")]
    format: Option<FormatSpec>,
    /// Length of a block: a power of two from 512 to 1MiB [default: 4KiB, or that of a normalised trace]
    #[arg(long, value_name = "SIZE", value_parser = parse_block_size_argument)]
    block_size: Option<u64>,
    /// Pass over malformed records and count them, instead of ending at the first
    #[arg(long)]
    lenient: bool,
}

fn parse_block_size_argument(text: &str) -> Result<u64, SizeError> {
    parse_block_size(text)
}

impl InputOptions {
    /// How to read a trace that is not normalised yet.
    pub fn settings(&self) -> Settings {
        let default = Settings::default();
        let block_size_bytes = self.block_size.unwrap_or(default.block_size_bytes);
        Settings { format: self.format.clone(), block_size_bytes, lenient: self.lenient }
    }

    /// Opens a trace of any kind, with a progress bar; `-` is standard input. Says on standard error what was passed over.
    pub fn open(&self, path: &str) -> Result<Trace, TraceError> {
        let total = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        let trace = normalise::open(path, &self.settings(), &Bar::bytes(format!("reading {path}"), total))?;
        warn_of_passed_over(&trace);
        Ok(trace)
    }
}

/// Says on standard error how many malformed records were passed over, if any were.
pub fn warn_of_passed_over(trace: &Trace) {
    let malformed = trace.description().malformed_records;
    if malformed > 0 {
        eprintln!("flashwise: {}: {malformed} malformed records were passed over", trace.name());
    }
}
