//! `flashwise trace cut`: cuts a part out of a trace.

use std::ops::Range;
use std::path::PathBuf;

use clap::Args;
use flashwise_trace::duration::{parse_counts, parse_durations};
use flashwise_trace::output::name_of;

use super::written;
use crate::input::{InputOptions, reading, warn};
use crate::replace::Replace;

/// Cut a part out of a trace by request number, time or volume
///
/// Keeps whole requests that meet every given condition, and writes them as a normalised trace with its own numbers and
/// times. Requests of a normalised trace span whole blocks: if lengths in bytes matter, cut the original.
#[derive(Debug, Args)]
#[group(id = "part", required = true, multiple = true, args = ["requests", "accesses", "time", "volumes"])]
pub struct Cut {
    /// Trace in any format; - is standard input
    trace: PathBuf,
    /// Output file; - is standard output
    #[arg(value_name = "OUT.arrow")]
    out: PathBuf,
    /// Requests by number: from A (0 is the first) up to but excluding B; 1000.. and ..1000 are open
    #[arg(long, visible_alias = "rows", value_name = "A..B", value_parser = parse_counts)]
    requests: Option<Range<u64>>,
    /// Requests by the number of their first block access: from A (0 is the first) up to but excluding B
    #[arg(long, value_name = "A..B", value_parser = parse_counts)]
    accesses: Option<Range<u64>>,
    /// Requests by time since the first request: 10s..60s, ..1.5h; units us, ms, s, min, h, d
    #[arg(long, value_name = "A..B", value_parser = parse_durations)]
    time: Option<Range<i64>>,
    /// Requests for this volume; repeatable
    #[arg(long = "volume", value_name = "NAME")]
    volumes: Vec<String>,
    #[command(flatten)]
    replace: Replace,
    #[command(flatten)]
    input: InputOptions,
}

impl Cut {
    pub fn run(&self) -> anyhow::Result<()> {
        self.replace.check(&self.out, std::slice::from_ref(&self.trace))?;
        written::check_name(&self.out)?;
        let all = flashwise_trace::tools::cut::Cut::default();
        let cut = flashwise_trace::tools::cut::Cut {
            requests: self.requests.clone().unwrap_or(all.requests),
            accesses: self.accesses.clone().unwrap_or(all.accesses),
            time_us: self.time.clone().unwrap_or(all.time_us),
            volumes: self.volumes.clone(),
        };
        let bar = reading(std::slice::from_ref(&self.trace));
        let about = flashwise_trace::tools::cut::cut(&self.trace, &self.out, &cut, &self.input.settings(), &bar)?;
        drop(bar);
        warn(&name_of(&self.trace), &about);
        Ok(written::tell(&self.out, about.requests)?)
    }
}
