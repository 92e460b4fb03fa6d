//! `flashwise trace reuse`: reuse distances of blocks.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use flashwise_core::human;
use flashwise_trace::tools::reuse::ReusePass;

use crate::input::InputOptions;
use crate::table::plain;

/// Show the reuse distances of reads and of writes (LARC, Figure 3)
///
/// The reuse distance of an access is the number of blocks, or accesses, since the previous access to the same block.
/// An LRU cache of C blocks hits the accesses with fewer than C different blocks in between.
#[derive(Debug, Args)]
pub struct Reuse {
    /// Trace in any format; - is standard input
    trace: PathBuf,
    /// Unit of the distance: unique blocks, or accesses
    #[arg(long, value_enum, default_value = "unique")]
    distance: Distance,
    /// Print JSON: numbers of accesses by distance
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    input: InputOptions,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Distance {
    Unique,
    Accesses,
}

impl Reuse {
    pub fn run(&self) -> anyhow::Result<()> {
        let distance = match self.distance {
            Distance::Unique => flashwise_trace::tools::reuse::Distance::Unique,
            Distance::Accesses => flashwise_trace::tools::reuse::Distance::Accesses,
        };
        let mut pass = ReusePass::new(distance, 0);
        self.input.pass(&self.trace, |columns| pass.accesses(columns))?;
        let distances = pass.finish();
        let mut out = std::io::stdout().lock();
        if self.json {
            writeln!(out, "{}", serde_json::to_string_pretty(&distances)?)?;
            return Ok(());
        }
        let mut table = plain(&["distance", "reads", "writes", "reads <=", "writes <="], 1);
        for row in distances.rows() {
            let counts = [row.reads, row.writes].map(human::count);
            let shares = [row.reads_up_to, row.writes_up_to].map(human::percent);
            table.add_row([row.distance].into_iter().chain(counts).chain(shares));
        }
        writeln!(out, "{}", table.trim_fmt())?;
        Ok(())
    }
}
