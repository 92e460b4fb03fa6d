//! `flashwise trace generate`: generates a trace from a pattern.

use std::fmt::Write;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use flashwise_core::quantity::Share;
use flashwise_sim::size::parse_block_size;
use flashwise_trace::tools::generate::{
    Length, PATTERNS, PatternSpec, Workload, Written, generate, generate_week, parse_rate, parse_request_blocks,
};
use flashwise_trace::tools::like::{SERVERS, Server, Week};

use super::written::{check_name, tell};
use crate::progress::Bar;
use crate::replace::Replace;

/// Generate a synthetic trace; the same options give the same trace
#[derive(Debug, Args)]
#[command(after_long_help = patterns())]
pub struct Generate {
    /// Output file; - is standard output
    #[arg(value_name = "OUT.arrow", required_unless_present = "csv", default_value_if("csv", "true", "-"))]
    out: Option<PathBuf>,
    /// Write CSV instead of a normalised trace; without a file, to standard output
    #[arg(long)]
    csv: bool,
    /// Imitate a week of a known server, listed by --help, instead of a pattern
    ///
    /// --accesses is its length [default: 2000000]; a quarter as many different blocks are accessed.
    #[arg(long, value_name = "SERVER", value_parser = Server::named, conflicts_with_all = ["pattern", "blocks", "requests", "read_share", "request_blocks", "rate", "arrivals"])]
    like: Option<&'static Server>,
    /// Access pattern and its options, listed by --help: zipf, phases:skew=1.1,requests=50000
    #[arg(long, value_name = "PATTERN", default_value = "zipf")]
    pattern: PatternSpec,
    /// Size of the address range in blocks
    #[arg(long, value_name = "N", required_unless_present = "like")]
    blocks: Option<u64>,
    /// Number of requests
    #[arg(long, value_name = "N", conflicts_with = "accesses", value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,
    /// Number of block accesses
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    accesses: Option<u64>,
    /// Share of reads: 0.7 or 70%
    #[arg(long, value_name = "SHARE", default_value = "0.7")]
    read_share: Share,
    /// Blocks per request: a number, or a range such as 1..16 (inclusive, uniform)
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_request_blocks)]
    request_blocks: RangeInclusive<u64>,
    /// Mean number of requests per second
    #[arg(long, value_name = "N/s", default_value = "1000/s", value_parser = parse_rate)]
    rate: f64,
    /// Arrivals of requests: at random and independent, or at equal intervals
    #[arg(long, value_enum, default_value = "poisson")]
    arrivals: Arrivals,
    /// Random seed
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
    /// Block size: a power of two from 512 to 1MiB
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = parse_block_size)]
    block_size: u64,
    #[command(flatten)]
    replace: Replace,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Arrivals {
    Poisson,
    Constant,
}

fn patterns() -> String {
    let mut text = "Patterns:\n".to_owned();
    for pattern in PATTERNS {
        let _ = writeln!(text, "  {:<7} {}", pattern.name, pattern.title);
        for parameter in pattern.parameters {
            let _ = writeln!(text, "          {}={}  {}", parameter.name, parameter.default, parameter.meaning);
        }
    }
    text += "\nServers for --like, after the thirteen of MSR-Cambridge:\n";
    for server in SERVERS {
        let _ = writeln!(text, "  {:<9} {}", server.name, server.title);
    }
    text
}

/// Accesses of a week by default.
const WEEK_ACCESSES: u64 = 2_000_000;

impl Generate {
    pub fn run(&self) -> anyhow::Result<()> {
        let written = if self.csv { Written::Csv } else { Written::Normalised };
        let out = self.out.as_deref().unwrap_or(Path::new("-"));
        self.replace.check(out, &[])?;
        if !self.csv {
            check_name(out)?;
        }
        if let Some(server) = self.like {
            let accesses = self.accesses.unwrap_or(WEEK_ACCESSES);
            let week = Week::new(server, accesses, self.block_size, self.seed)?;
            let bar = Bar::requests("generating".to_owned(), accesses);
            let requests = generate_week(week, out, written, &bar)?;
            drop(bar);
            return Ok(tell(out, requests)?);
        }
        let blocks = self.blocks.unwrap_or_default();
        let length = match (self.requests, self.accesses) {
            (Some(requests), _) => Length::Requests(requests),
            (None, Some(accesses)) => Length::Accesses(accesses),
            (None, None) => Length::WholePattern,
        };
        let workload = Workload {
            pattern: self.pattern.clone(),
            blocks,
            length,
            read_share: self.read_share.of_one(),
            request_blocks: self.request_blocks.clone(),
            rate: self.rate,
            arrivals: match self.arrivals {
                Arrivals::Poisson => flashwise_trace::tools::generate::Arrivals::Poisson,
                Arrivals::Constant => flashwise_trace::tools::generate::Arrivals::Constant,
            },
            seed: self.seed,
            block_size_bytes: self.block_size,
        };
        let bar = Bar::requests("generating".to_owned(), self.requests.or(self.accesses).unwrap_or(blocks));
        let requests = generate(workload, out, written, &bar)?;
        drop(bar);
        Ok(tell(out, requests)?)
    }
}
